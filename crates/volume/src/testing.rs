//! A volume that answers late, as one that can be managed; what tests of volumes share.

use std::ops::ControlFlow;

use block::Volume as _;
use block::testing::LateVolume;
use memory::{Progress, Provision};

use crate::{ByteSize, Storage, VolumeError, VolumeKind, VolumeSpec};

impl Storage for LateVolume {
    fn spec(&self) -> VolumeSpec {
        let geometry = self.geometry();
        VolumeSpec {
            size: ByteSize(geometry.len_bytes()),
            block_size: geometry.block_size,
            kind: VolumeKind::Ram {
                provision: Provision::Thick,
            },
        }
    }

    fn used_bytes(&self) -> u64 {
        self.geometry().len_bytes()
    }

    fn resize(
        &self,
        size: ByteSize,
        _progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<(), VolumeError> {
        self.disk()
            .resize(size.0 >> self.geometry().block_size.shift());
        Ok(())
    }

    fn erase(&self) -> Result<(), VolumeError> {
        self.disk().fill(0, &vec![0; self.used_bytes() as usize]);
        Ok(())
    }

    fn close(&self) {
        self.disk().resize(0);
    }
}

#[cfg(test)]
pub(crate) mod io {
    //! Plain reads and writes.

    use std::os::fd::{AsFd as _, OwnedFd};
    use std::sync::{Arc, Condvar, Mutex};
    use std::thread::{self, ThreadId};
    use std::time::{Duration, Instant};

    use block::{
        Blocks, Completion, Completions, Extent, Lba, Op, ReadDest, Status, Ticket, Volume,
    };
    use file_io::Event;
    use memory::Budget;
    use rustix::event::{Timespec, epoll};

    use super::{ControlFlow, Progress};
    use crate::{LaneRegistry, Platform, Relay};

    pub(crate) const MIB: u64 = 1 << 20;

    pub(crate) fn no_progress(_: Progress) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    /// Completions as they come.
    #[derive(Default)]
    pub(crate) struct Reports {
        done: Mutex<Vec<Completion>>,
        came: Condvar,
        /// What wakes threads that wait with a lane.
        events: Mutex<Vec<Arc<Event>>>,
        /// The thread that reported last.
        reporter: Mutex<Option<ThreadId>>,
    }

    impl Completions for Reports {
        fn done(&self, completion: Completion) {
            *self.reporter.lock().expect("no panic") = Some(thread::current().id());
            self.done.lock().expect("no panic").push(completion);
            self.came.notify_all();
            for event in &*self.events.lock().expect("no panic") {
                event.raise();
            }
        }
    }

    impl Reports {
        /// What has come so far.
        pub(crate) fn take(&self) -> Vec<Completion> {
            std::mem::take(&mut self.done.lock().expect("no panic"))
        }

        /// Waits for the completion of a ticket.
        pub(crate) fn wait(&self, ticket: Ticket) -> Result<(), Status> {
            let is_it = |completion: &Completion| completion.ticket == ticket;
            let done = self.done.lock().expect("no panic");
            let wait = self.came.wait_while(done, |done| !done.iter().any(is_it));
            let mut done = wait.expect("no panic");
            let at = done.iter().position(is_it).expect("it was waited for");
            done.remove(at).result
        }
    }

    impl Reports {
        fn take_of(&self, ticket: Ticket) -> Option<Result<(), Status>> {
            let mut done = self.done.lock().expect("no panic");
            let at = done.iter().position(|it| it.ticket == ticket)?;
            Some(done.remove(at).result)
        }

        pub(crate) fn reporter(&self) -> Option<ThreadId> {
            *self.reporter.lock().expect("no panic")
        }
    }

    /// What a reactor is to volumes: a thread with a lane, which sleeps until its lane or its
    /// mailbox has something. Fails if nothing wakes it.
    pub(crate) struct TestReactor {
        lane: Box<dyn block::Lane>,
        reports: Arc<Reports>,
        epoll: OwnedFd,
    }

    impl TestReactor {
        pub(crate) fn new(lanes: &Arc<LaneRegistry>, reports: &Arc<Reports>) -> Self {
            let lane = block::LaneOpener::open(Arc::clone(lanes)).expect("a descriptor is left");
            let mail = Arc::new(Event::new().expect("a descriptor is left"));
            let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).expect("a descriptor");
            for event in [mail.as_fd(), lane.event()] {
                let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
                let data = epoll::EventData::new_u64(0);
                epoll::add(&epoll, event, data, flags).expect("a new one");
            }
            reports.events.lock().expect("no panic").push(mail);
            Self {
                lane,
                reports: Arc::clone(reports),
                epoll,
            }
        }

        /// Takes turns until `is_over` says something.
        pub(crate) fn run<T>(&mut self, mut is_over: impl FnMut() -> Option<T>) -> T {
            loop {
                let has_worked = self.lane.reap();
                if let Some(result) = is_over() {
                    return result;
                }
                if !(self.lane.submit() || has_worked) {
                    self.sleep();
                }
            }
        }

        /// Waits for the completion of a ticket.
        pub(crate) fn wait(&mut self, ticket: Ticket) -> Result<(), Status> {
            let reports = Arc::clone(&self.reports);
            self.run(|| reports.take_of(ticket))
        }

        fn sleep(&self) {
            let mut events = Vec::with_capacity(2);
            let patience = Duration::from_secs(20);
            let due = self.lane.due();
            let left = due.map(|due| due.saturating_duration_since(Instant::now()));
            let timeout = Timespec::try_from(left.unwrap_or(patience)).expect("it is short");
            let spare = rustix::buffer::spare_capacity(&mut events);
            let count = epoll::wait(&self.epoll, spare, Some(&timeout));
            assert!(due.is_some() || count != Ok(0), "nothing wakes the thread");
        }
    }

    pub(crate) fn platform(budget: Arc<Budget>) -> Platform {
        Platform {
            budget,
            relay: Relay::new(Arc::<Reports>::default()),
            lanes: Arc::default(),
            record: None,
        }
    }

    pub(crate) fn extent(lba: u64, blocks: u64) -> Extent {
        Extent::new(Lba(lba), Blocks(blocks))
    }

    pub(crate) fn write(
        disk: &(impl Volume + ?Sized),
        lba: u64,
        data: &[u8],
    ) -> Result<(), Status> {
        let extent = extent(lba, data.len() as u64 / 512);
        disk.execute(Op::Write { extent, data })
    }

    pub(crate) fn read(disk: &(impl Volume + ?Sized), lba: u64, blocks: u64) -> Vec<u8> {
        let mut buffer = vec![0xEE; blocks as usize * 512];
        let dest = ReadDest::Copy(&mut buffer);
        let extent = extent(lba, blocks);
        disk.execute(Op::Read { extent, dest }).expect("in range");
        buffer
    }
}
