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

    use std::sync::{Arc, Condvar, Mutex};

    use block::{
        Blocks, Completion, Completions, Extent, Lba, Op, ReadDest, Status, Ticket, Volume,
    };
    use memory::Budget;

    use super::{ControlFlow, Progress};
    use crate::{Platform, Relay};

    pub(crate) const MIB: u64 = 1 << 20;

    pub(crate) fn no_progress(_: Progress) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    /// Completions as they come.
    #[derive(Default)]
    pub(crate) struct Reports {
        done: Mutex<Vec<Completion>>,
        came: Condvar,
    }

    impl Completions for Reports {
        fn done(&self, completion: Completion) {
            self.done.lock().expect("no panic").push(completion);
            self.came.notify_all();
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

    pub(crate) fn platform(budget: Arc<Budget>) -> Platform {
        Platform {
            budget,
            relay: Relay::new(Arc::<Reports>::default()),
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
