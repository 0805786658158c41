use std::thread;

use block::BlockSize;
use block::testing::{LateVolume, Lateness};

use super::*;
use crate::testing::io::{Reports, extent};
use crate::{Availability, Managed};

const BLOCKS: u64 = 64;
const LONG: Duration = Duration::from_secs(30);

/// A late volume whose steps a thread completes, and a driver of it.
struct Fixture {
    relay: Arc<Relay>,
    late: Arc<Managed<LateVolume>>,
}

impl Fixture {
    fn new() -> Self {
        Self {
            relay: Relay::new(Arc::new(Reports::default())),
            late: Arc::new(Managed::new(LateVolume::new(BlockSize::B512, BLOCKS))),
        }
    }

    fn driver(&self, patience: Duration) -> Driver {
        Driver::new(&self.relay, Arc::clone(&self.late) as _, patience)
    }

    /// Runs `work` while another thread completes every step with what `answer` says.
    fn while_answering<T>(
        &self,
        answer: impl Fn(usize) -> Result<(), Status> + Sync,
        work: impl FnOnce() -> T,
    ) -> T {
        let is_over = std::sync::atomic::AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut count = 0;
                while !is_over.load(std::sync::atomic::Ordering::Acquire) {
                    for ticket in self.late.volume().waiting() {
                        let completion = self.late.volume().complete(ticket, answer(count));
                        self.relay.done(completion);
                        count += 1;
                    }
                    thread::yield_now();
                }
            });
            let result = work();
            is_over.store(true, std::sync::atomic::Ordering::Release);
            result
        })
    }

    fn leases(&self) -> usize {
        self.late.volume().leases()
    }
}

#[test]
fn commands_wait_for_every_step_of_their_volume() {
    for lateness in [
        Lateness::Never,
        Lateness::Settling,
        Lateness::Filling,
        Lateness::Both,
    ] {
        let fixture = Fixture::new();
        fixture.late.volume().set_lateness(lateness);
        let mut driver = fixture.driver(LONG);
        let two = extent(3, 2);
        let mut read = [0; 1024];
        fixture
            .while_answering(
                |_| Ok(()),
                || {
                    driver.write(two, &[7; 1024], Persistence::Durable)?;
                    driver.write_zeroes(extent(4, 1), Unmap::Allowed)?;
                    driver.flush()?;
                    driver.read(two, &mut read)
                },
            )
            .expect("no failures");
        assert_eq!((&read[..512], &read[512..]), (&[7; 512][..], &[0; 512][..]));
        assert_eq!(fixture.leases(), 0, "{lateness:?}");
    }
}

#[test]
fn a_failure_of_any_step_is_the_commands_and_its_lease_ends() {
    for failing in 0..2 {
        let fixture = Fixture::new();
        let mut driver = fixture.driver(LONG);
        let answer = |count| {
            if count == failing {
                Err(Status::WriteError)
            } else {
                Ok(())
            }
        };
        let write = || driver.write(extent(0, 1), &[1; 512], Persistence::Volatile);
        let written = fixture.while_answering(answer, write);
        assert_eq!(written, Err(DriveError::Status(Status::WriteError)));
        assert_eq!(fixture.leases(), 0);
    }
    let fixture = Fixture::new();
    fixture
        .late
        .controls()
        .set_availability(Availability::Offline);
    let flushed = fixture.driver(LONG).flush();
    assert_eq!(flushed, Err(DriveError::Status(Status::NotReady)));
}

#[test]
fn a_volume_that_does_not_answer_fails_the_command_and_may_answer_the_next() {
    let fixture = Fixture::new();
    let short = Duration::from_millis(20);
    let mut driver = fixture.driver(short);
    let mut read = [1; 512];
    let timed_out = driver.read(extent(0, 1), &mut read);
    assert_eq!(timed_out, Err(DriveError::TimedOut(short)));
    assert_eq!(fixture.leases(), 0);
    driver.patience = LONG;
    // The thread answers the first command, too.
    let second = fixture.while_answering(|_| Ok(()), || driver.read(extent(0, 1), &mut read));
    assert_eq!((second, read), (Ok(()), [0; 512]));
}

#[test]
fn a_busy_volume_is_asked_again() {
    let fixture = Fixture::new();
    fixture.late.volume().set_leases_max(0);
    let mut driver = fixture.driver(LONG);
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(20));
            fixture.late.volume().set_lateness(Lateness::Never);
        });
        driver.flush().expect("it is not busy for ever");
    });
    fixture.late.volume().set_lateness(Lateness::Both);
    driver.patience = Duration::from_millis(20);
    assert_eq!(driver.flush(), Err(DriveError::Status(Status::Busy)));
}
