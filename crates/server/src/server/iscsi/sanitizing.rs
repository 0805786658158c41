//! SANITIZE operations whose connection has ended: each goes on in a thread of its own.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread;
use std::time::{Duration, Instant};

use block::Completion;
use net::parts::Slots;
use net::{ConnectionId, ExternalDriver, GracePeriod, ReactorHandle};
use scsi::{SanitizeWork, Step, Turn};
use session::Leases;

/// How often an operation that waits for its volume looks whether its logical unit was removed.
const UNIT_CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// Goes on with an operation in the background. It ends early if its logical unit is removed, also
/// because the server stops. A logical unit has one operation at a time, so there are no more
/// threads than logical units.
pub(in super::super) fn go_on_with(sanitize: Box<SanitizeWork>, handle: &ReactorHandle) {
    let (answers, received) = mpsc::sync_channel(1);
    let Some(membership) = handle.join(Arc::new(Answers(answers))) else {
        tracing::error!(
            "a SANITIZE whose initiator has gone cannot go on, because there are too many threads; the logical unit \
             requires another one"
        );
        return;
    };
    let thread = thread::Builder::new().name("sanitize".to_owned());
    let spawned = thread.spawn(move || {
        let mut slots = Slots::new(membership.index());
        let number = slots.insert_with(|_| Some(()));
        let number = number.expect("the first slot is free");
        finish(*sanitize, number, &received);
    });
    if let Err(error) = spawned {
        tracing::error!(%error, "a SANITIZE whose initiator has gone cannot go on; the logical unit requires another one");
    }
}

/// Where the volume of the operation answers.
struct Answers(SyncSender<Completion>);

impl ExternalDriver for Answers {
    fn wake(&self, _: ConnectionId) {}

    fn complete(&self, completions: &[Completion]) {
        for completion in completions {
            // One lease awaits one answer at a time. What finds no room answers nothing.
            let _ = self.0.try_send(*completion);
        }
    }

    fn close(&self, _: ConnectionId) {}

    fn post_checkpoint(&self, _: GracePeriod) {}
}

/// Goes on with an operation to its end, as the connection of this number.
fn finish(mut sanitize: SanitizeWork, number: ConnectionId, answers: &Receiver<Completion>) {
    const LEASE: usize = 0;
    let mut leases = Leases::new(number.0);
    // Where this fails, the operation is over, and has failed. Filters hold back answers, and
    // nobody awaits one.
    sanitize.admit(Instant::now(), &mut leases, LEASE);
    loop {
        match sanitize.go_on(&mut Turn::new(), &mut leases, LEASE) {
            Step::More => {}
            Step::Waits => {
                let answer = answers.recv_timeout(UNIT_CHECK_INTERVAL).ok();
                if let Some((_, resumed)) = answer.and_then(|answer| leases.complete(answer)) {
                    sanitize.resume(resumed);
                }
            }
            Step::Over(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use block::testing::LateVolume;
    use block::{BlockSize, Completions as _, Status};
    use net::{ReactorOptions, Reactors};
    use scsi::{Begin, Device, NexusId};

    use super::*;

    const BLOCKS: u64 = 2048;

    /// A logical unit that is being sanitized by the thread, and what reaches that.
    struct Fixture {
        reactors: Reactors,
        device: Device,
        nexus: NexusId,
        late: Arc<LateVolume>,
    }

    impl Fixture {
        fn new() -> Self {
            let late = Arc::new(LateVolume::new(BlockSize::B512, BLOCKS));
            late.disk().fill(0, &[7; 512]);
            let mut device = scsi::testing::device("iqn.t", [(0, Arc::clone(&late))]);
            let nexus = scsi::testing::open_nexus(&mut device, "iqn.a");
            let mut fixture = Self {
                reactors: Reactors::start(ReactorOptions::default()).expect("threads start"),
                device,
                nexus,
                late,
            };
            assert!(!fixture.is_ready(), "a unit attention comes first");
            let mut cdb = [0; 16];
            (cdb[0], cdb[1]) = (0x48, 2);
            let Begin::Sanitize(sanitize) = fixture.device.begin(nexus, 0, &cdb) else {
                panic!("it is begun")
            };
            go_on_with(Box::new(sanitize), &fixture.reactors.handle());
            fixture
        }

        /// TEST UNIT READY.
        fn is_ready(&mut self) -> bool {
            match self.device.begin(self.nexus, 0, &[0; 16]) {
                Begin::Done(response) => response.sense.is_none(),
                _ => panic!("it moves no data"),
            }
        }

        /// The volume answers what the thread waits for.
        fn answer(&self, result: Result<(), Status>) {
            until(|| !self.late.waiting().is_empty());
            let completion = self.late.complete(self.late.waiting()[0], result);
            self.reactors.handle().done(completion);
        }
    }

    /// Waits, with a bound, for another thread.
    fn until(mut is_so: impl FnMut() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(30);
        while !is_so() {
            assert!(Instant::now() < deadline, "the other thread goes on");
            thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn an_operation_goes_on_when_its_volume_answers() {
        let mut fixture = Fixture::new();
        for _ in ["filled", "settled"] {
            assert!(!fixture.is_ready());
            fixture.answer(Ok(()));
        }
        until(|| fixture.late.leases() == 0);
        assert!(fixture.is_ready());
        assert_eq!(fixture.late.disk().contents()[..512], [0; 512]);
    }

    #[test]
    fn an_operation_whose_volume_fails_has_failed() {
        let mut fixture = Fixture::new();
        fixture.answer(Err(Status::WriteError));
        until(|| fixture.late.leases() == 0);
        assert!(!fixture.is_ready());
    }

    #[test]
    fn an_operation_ends_with_its_logical_unit_though_its_volume_never_answers() {
        let fixture = Fixture::new();
        until(|| fixture.late.leases() == 1);
        drop(fixture.device);
        until(|| fixture.late.leases() == 0);
        assert_eq!(fixture.late.disk().contents()[..512], [7; 512]);
    }
}
