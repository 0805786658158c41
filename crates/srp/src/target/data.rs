//! Data-out of commands, as RDMA READs or messages bring them.

use std::time::Instant;

use block::Status;

use super::session::TargetSession;
use super::task::{Progress, Work};
use crate::backend::Backend;
use crate::wire::Violation;

impl<B: Backend> TargetSession<B> {
    /// An RDMA READ of the task in `slot` has brought `data`.
    pub(super) fn on_read(
        &mut self,
        slot: usize,
        data: &[u8],
        now: Instant,
        backend: &mut B,
    ) -> Result<(), Violation> {
        let Some(task) = self.tasks.get_mut(slot) else {
            return Ok(());
        };
        task.reads = task.reads.saturating_sub(1);
        match task.progress() {
            Progress::Arriving => return self.on_table(slot, data, now, backend),
            Progress::Receiving => {
                self.take_data(slot, data, backend);
                self.advance(slot, now, backend);
            }
            _ if task.reads > 0 => {}
            Progress::Aborted => self.tasks.remove(slot),
            // It has failed meanwhile; the response waits for all of its reads.
            _ => self.tasks.queue(slot),
        }
        Ok(())
    }

    /// Takes data-out of a task: whole blocks are written from `bytes` at once, a part of a block
    /// is kept. While its volume is not ready, all are kept.
    pub(super) fn take_data(&mut self, slot: usize, bytes: &[u8], backend: &mut B) {
        let Some(task) = self.tasks.get_mut(slot) else {
            return;
        };
        if !matches!(task.progress(), Progress::Receiving | Progress::Filling) {
            return;
        }
        // The rest exceeds what the command takes: its CDB transfers less than its buffer has.
        let room = (task.len - task.moved).min(bytes.len() as u64) as usize;
        let bytes = &bytes[..room];
        match task.work {
            Work::Write(extent) if task.progress() == Progress::Receiving => {
                let transfer = task.transfer(extent);
                let result = match task.view(backend) {
                    Some(view) => {
                        transfer.write_next(&mut task.gathered, bytes, view.volume.as_ref())
                    }
                    None => Err(Status::Gone),
                };
                if let Err(status) = result {
                    task.fail_of_volume(status);
                    self.tasks.queue(slot);
                    return;
                }
            }
            _ => task.gathered.extend_from_slice(bytes),
        }
        task.moved += room as u64;
    }
}
