//! Data-out: which task it belongs to, and its execution.
//!
//! Read first: RFC 7143 §11.7, §11.8.

use std::time::Instant;

use block::Status;
use scsi::SenseKey;

use super::full_feature::FullFeature;
use super::pdu::Sink;
use super::task::{Progress, Work};
use crate::backend::Backend;
use crate::wire::data::DataOut;
use crate::wire::{Bhs, NO_TASK_TAG};

/// PROTOCOL SERVICE CRC ERROR (47h/05h): data arrived with a wrong digest.
const PROTOCOL_SERVICE_CRC_ERROR: scsi::Asc = scsi::Asc(0x4705);
/// NOT ENOUGH UNSOLICITED DATA (0Ch/0Dh): data did not arrive as announced.
const NOT_ENOUGH_UNSOLICITED_DATA: scsi::Asc = scsi::Asc(0x0C0D);

impl FullFeature {
    /// Takes the header of a Data-Out.
    pub(super) fn begin_data_out(&mut self, bhs: &Bhs) -> Sink {
        let data: &DataOut = bhs.cast();
        let slot = match data.ttt.get() {
            NO_TASK_TAG => self.tasks.find(data.itt.get()).filter(|slot| {
                let task = self.tasks.get(*slot);
                task.is_some_and(|task| task.unsolicited_open)
            }),
            ttt => self.tasks.by_transfer_tag(ttt),
        };
        // Data of a task that has ended (aborted, failed) are discarded.
        let Some(slot) = slot else {
            return Sink::Discard;
        };
        let Some(task) = self.tasks.get_mut(slot) else {
            return Sink::Discard;
        };
        if !task.takes_data_out() || task.itt != data.itt.get() {
            return Sink::Discard;
        }
        let len = u64::from(data.data_segment_len.get());
        let sequence_end = task.r2ts.front().unwrap_or(task.solicited);
        let is_in_order = u64::from(data.buffer_offset.get()) == task.moved
            && data.data_sn.get() == task.next_data_out_sn;
        if !is_in_order || task.moved + len > sequence_end {
            task.fail(SenseKey::AbortedCommand, NOT_ENOUGH_UNSOLICITED_DATA);
            self.tasks.queue(slot);
            return Sink::Discard;
        }
        task.next_data_out_sn = task.next_data_out_sn.wrapping_add(1);
        Sink::Write { slot }
    }

    /// Takes the end of a Data-Out PDU. With F, its sequence ends too.
    pub(super) fn finish_data_out<B: Backend>(&mut self, now: Instant, bhs: &Bhs, backend: &mut B) {
        let data: &DataOut = bhs.cast();
        let is_unsolicited = data.ttt.get() == NO_TASK_TAG;
        let slot = match data.ttt.get() {
            NO_TASK_TAG => self.tasks.find(data.itt.get()),
            ttt => self.tasks.by_transfer_tag(ttt),
        };
        let Some(slot) = slot else { return };
        let Some(task) = self.tasks.get_mut(slot) else {
            return;
        };
        if !task.takes_data_out() {
            return;
        }
        if bhs.is_final() {
            task.next_data_out_sn = 0;
            let end = if is_unsolicited {
                task.unsolicited_open = false;
                // The initiator may send less than it was allowed to.
                task.set_unsolicited(task.moved);
                task.moved
            } else {
                task.r2ts.pop_front().unwrap_or(task.moved)
            };
            if task.moved != end {
                task.fail(SenseKey::AbortedCommand, NOT_ENOUGH_UNSOLICITED_DATA);
                self.tasks.queue(slot);
                return;
            }
        }
        self.advance(slot, now, backend);
    }

    /// Takes the data-out of a task's oldest R2T, which an RDMA READ has fetched.
    pub(crate) fn handle_read<B: Backend>(
        &mut self,
        slot: usize,
        data: &[u8],
        now: Instant,
        backend: &mut B,
    ) {
        self.note_heard(now);
        self.workload.continue_turn(now);
        let Some(task) = self.tasks.get_mut(slot) else {
            return;
        };
        task.r2ts.pop_front();
        match task.progress() {
            Progress::Receiving => {
                self.handle_data(slot, data, backend);
                self.advance(slot, now, backend);
            }
            // It has failed meanwhile; the response waits for all of its reads.
            _ if task.r2ts.is_empty() => self.tasks.queue(slot),
            _ => {}
        }
    }

    /// Takes data-out of a task: whole blocks are written from `bytes` at once, a part of a block
    /// is kept.
    pub(crate) fn handle_data<B: Backend>(&mut self, slot: usize, bytes: &[u8], backend: &mut B) {
        let Some(task) = self.tasks.get_mut(slot) else {
            return;
        };
        if !task.takes_data_out() {
            return;
        }
        // The rest exceeds what the command takes (its CDB transfers less than was announced) and
        // is discarded.
        let room = (task.len - task.moved).min(bytes.len() as u64) as usize;
        let bytes = &bytes[..room];
        match task.work {
            Work::Write(extent) if task.progress() == Progress::Receiving => {
                let result = match task.view(backend) {
                    Some(view) => {
                        let transfer = task.transfer(extent);
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

    /// Ends a task whose data arrived with a wrong digest.
    pub(super) fn fail_of_bad_data(&mut self, slot: usize) {
        if let Some(task) = self.tasks.get_mut(slot) {
            task.fail(SenseKey::AbortedCommand, PROTOCOL_SERVICE_CRC_ERROR);
            self.tasks.queue(slot);
        }
    }
}
