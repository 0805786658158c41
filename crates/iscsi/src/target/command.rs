//! SCSI commands: from the header of their PDU to a task.
//!
//! Read first: RFC 7143 §11.3; §4.2.5.2 (immediate, unsolicited and solicited data).

use std::sync::Arc;
use std::time::Instant;

use block::{OpKind, Status};
use scsi::{Begin, CopyWork, Medium, Response, Sense, SenseKey, medium};

use super::admission::Admission;
use super::full_feature::FullFeature;
use super::pdu::Sink;
use super::task::{Advertised, Execution, Progress, Task, Work};
use super::tasks::EarlyRequest;
use crate::backend::{Backend, SessionKind};
use crate::params::Parameters;
use crate::window::Arrival;
use crate::window::order::Attribute;
use crate::wire::command::ScsiCommand;
use crate::wire::other::reason;
use crate::wire::{Bhs, FINAL, NO_TASK_TAG, parse_lun};

/// UNEXPECTED UNSOLICITED DATA (0Ch/0Ch).
const UNEXPECTED_UNSOLICITED_DATA: scsi::Asc = scsi::Asc(0x0C0C);

impl FullFeature {
    /// Takes the header of a SCSI Command: checks its numbering and starts its task, so that
    /// immediate data can be executed as they arrive.
    pub(super) fn begin_command<B: Backend>(
        &mut self,
        now: Instant,
        bhs: &Bhs,
        advertised: Advertised,
        backend: &mut B,
    ) -> Sink {
        let command: &ScsiCommand = bhs.cast();
        if self.kind == SessionKind::Discovery {
            self.replies.reject(bhs, reason::PROTOCOL_ERROR);
            return Sink::Discard;
        }
        let attribute = Attribute::of(command.flags);
        let windowed = (!bhs.is_immediate()).then_some(attribute);
        let arrival = self.arrive(command, windowed, backend);
        // Outside of the window: silently ignored (RFC 7143 §4.2.2.1).
        if matches!(arrival, Arrival::Ignored | Arrival::Aborted) {
            return Sink::Discard;
        }
        let numbered = windowed.map(|_| arrival);
        if self.tasks.find(command.itt.get()).is_some() || command.itt.get() == NO_TASK_TAG {
            return self.reject_command(bhs, numbered, reason::TASK_IN_PROGRESS, backend);
        }
        let Some(slot) = self.tasks.next_slot() else {
            return self.reject_command(bhs, numbered, reason::TOO_MANY_IMMEDIATE, backend);
        };
        let mut task = if let Arrival::Early(cmd_sn) = arrival {
            Task::early(now, command, cmd_sn, attribute)
        } else {
            let mut admission = Admission::new(now, slot, &mut self.tasks.leases);
            begin(&mut admission, command, windowed, backend)
        };
        if matches!(task.progress(), Progress::Waiting | Progress::Filling) {
            task.gathers = task.gathers.max(unsolicited_len(command, &self.parameters));
        }
        task.advertised = advertised;
        if !self.tasks.make_room(task.gathers, backend) {
            task.fail_for_room();
        }
        let takes_data = task.takes_data_out();
        self.tasks.insert(slot, task);
        match (arrival, windowed) {
            (Arrival::Early(cmd_sn), _) => {
                let request = EarlyRequest::Command(slot);
                self.tasks.keep(cmd_sn, request);
            }
            (_, Some(attribute)) => self.tasks.window.started(attribute, backend),
            (_, None) => {}
        }
        self.expect_unsolicited(slot, command);
        if takes_data {
            Sink::Write { slot }
        } else {
            Sink::Ignore { slot }
        }
    }

    /// Records the number of a command. An immediate command has none, and starts now.
    #[inline]
    fn arrive<B: Backend>(
        &mut self,
        command: &ScsiCommand,
        windowed: Option<Attribute>,
        backend: &mut B,
    ) -> Arrival {
        let Some(attribute) = windowed else {
            return Arrival::Now;
        };
        let lun = parse_lun(command.lun).unwrap_or(u16::MAX);
        let window = &mut self.tasks.window;
        window.arrive(command.cmd_sn.get(), attribute, lun, backend)
    }

    /// Rejects a command, whose number is used up if it has one.
    fn reject_command<B: Backend>(
        &mut self,
        bhs: &Bhs,
        numbered: Option<Arrival>,
        reason: u8,
        backend: &mut B,
    ) -> Sink {
        if let Some(arrival) = numbered {
            self.tasks.window.reject(arrival, backend);
        }
        self.replies.reject(bhs, reason);
        Sink::Discard
    }

    /// Notes how much data-out may arrive without an R2T.
    #[inline]
    fn expect_unsolicited(&mut self, slot: usize, command: &ScsiCommand) {
        let parameters = &self.parameters;
        let immediate_len = u64::from(command.data_segment_len.get());
        let burst = u64::from(parameters.first_burst_len_max);
        let may_follow = command.flags & FINAL == 0 && command.writes();
        let is_unexpected = immediate_len > 0 && !parameters.immediate_data
            || may_follow && parameters.initial_r2t
            || immediate_len > burst;
        let Some(task) = self.tasks.get_mut(slot) else {
            return;
        };
        if task.progress() == Progress::Waiting {
            // Checked again when it starts.
            task.len = if is_unexpected { 0 } else { task.gathers };
        }
        if is_unexpected && task.progress() != Progress::Waiting && task.takes_data_out() {
            task.fail(SenseKey::AbortedCommand, UNEXPECTED_UNSOLICITED_DATA);
            self.tasks.queue(slot);
            return;
        }
        task.unsolicited_open = may_follow;
        task.set_unsolicited(if may_follow {
            burst.min(task.len)
        } else {
            immediate_len.min(task.len)
        });
    }

    /// Starts the requests that waited and may start now. Returns whether there was any.
    #[inline]
    pub(crate) fn begin_early<B: Backend>(&mut self, now: Instant, backend: &mut B) -> bool {
        self.tasks.has_early() && self.claim_early(now, backend)
    }

    fn claim_early<B: Backend>(&mut self, now: Instant, backend: &mut B) -> bool {
        let mut has_begun = false;
        while self.tasks.has_early() && !self.is_closing() {
            match self.tasks.claim(backend) {
                None => break,
                Some(EarlyRequest::Command(slot)) => self.begin_early_command(slot, now, backend),
                Some(EarlyRequest::Control(bhs, segment)) => {
                    self.serve(now, &bhs, &segment, backend);
                }
            }
            has_begun = true;
        }
        has_begun
    }

    /// Starts a command that waited.
    fn begin_early_command<B: Backend>(&mut self, slot: usize, now: Instant, backend: &mut B) {
        let Some(task) = self.tasks.get_mut(slot) else {
            return;
        };
        let Some(early) = task.early.take() else {
            return;
        };
        let attribute = Attribute::of(early.command.flags);
        if let Some(verdict) = early.verdict {
            task.end_with(verdict);
            self.tasks.window.started(attribute, backend);
            self.tasks.queue(slot);
            return;
        }
        let command = &early.command;
        let mut admission = Admission::new(now, slot, &mut self.tasks.leases);
        let mut task = begin(&mut admission, command, Some(attribute), backend);
        if task.progress() == Progress::Filling {
            task.gathers = task.gathers.max(unsolicited_len(command, &self.parameters));
        }
        if !self.tasks.make_room(task.gathers, backend) {
            task.fail_for_room();
        }
        let waited = self.tasks.replace(slot, task);
        self.tasks.window.started(attribute, backend);
        let Some(waited) = waited else { return };
        self.expect_unsolicited(slot, command);
        self.handle_data(slot, &waited.gathered, backend);
        let task = self.tasks.get_mut(slot);
        if let Some(task) = task.filter(|task| task.takes_data_out()) {
            task.next_data_out_sn = waited.next_data_out_sn;
            if task.unsolicited_open && !waited.unsolicited_open {
                task.unsolicited_open = false;
                task.set_unsolicited(task.moved);
            }
        }
        if early.is_whole {
            self.advance(slot, now, backend);
        }
    }
}

/// Starts a command: plain transfers by the session's view of the logical unit, all others by the
/// device.
fn begin<B: Backend>(
    admission: &mut Admission<'_>,
    command: &ScsiCommand,
    windowed: Option<Attribute>,
    backend: &mut B,
) -> Task {
    let mut task = Task::new(admission.now, command, windowed);
    if let Some((view, source)) = backend.view(task.lun) {
        task.source = source;
        let geometry = view.volume.geometry();
        task.block_size = geometry.block_size;
        let plain = match medium::plain_transfer(&task.cdb, geometry) {
            Some(Ok(Medium::Read(extent))) if view.reads => {
                // It is executed when it is sent, after the other commands of the batch.
                view.volume.prefetch(OpKind::Read, extent);
                Some((Medium::Read(extent), OpKind::Read, extent))
            }
            Some(Ok(Medium::Write(extent))) if view.writes && !view.volume.is_read_only() => {
                Some((Medium::Write(extent), OpKind::Write, extent))
            }
            _ => None,
        };
        if let Some((transfer, kind, extent)) = plain {
            set_medium(&mut task, transfer);
            task.must_copy = !view.is_pinned;
            let extents = std::slice::from_ref(&extent);
            admission.admit_extents(&mut task, &view.volume, kind, extents);
            return task;
        }
    }
    begin_by_device(&mut task, admission, backend);
    task
}

/// How much data-out may arrive with a command, and after it without an R2T, in bytes.
fn unsolicited_len(command: &ScsiCommand, parameters: &Parameters) -> u64 {
    let expected = u64::from(command.expected_len.get());
    let unsolicited = if command.flags & FINAL == 0 {
        parameters.first_burst_len_max
    } else {
        command.data_segment_len.get()
    };
    if command.writes() {
        expected.min(unsolicited.into())
    } else {
        0
    }
}

fn begin_by_device<B: Backend>(task: &mut Task, admission: &mut Admission<'_>, backend: &mut B) {
    match backend.with_device(|device, nexus| device.begin(nexus, task.lun, &task.cdb)) {
        Begin::Done(mut response) => {
            task.wanted_len = response.data_in.len() as u64;
            task.work = Work::Data(std::mem::take(&mut response.data_in));
            task.response = response;
            task.len = task.wanted_len.min(task.expected_len);
        }
        Begin::Medium(transfer, volume) => {
            task.block_size = volume.geometry().block_size;
            set_medium(task, transfer);
            task.must_copy = volume.pinned().is_none();
            match backend.view(task.lun) {
                Some((view, source)) if Arc::ptr_eq(&view.volume, &volume) => {
                    task.source = source;
                    admission.admit(task, &volume);
                }
                // The volume has been removed meanwhile.
                _ => task.fail_of_volume(Status::Gone),
            }
        }
        Begin::Sanitize(work) => {
            task.work = Work::Sanitize;
            task.start_in(Progress::Receiving);
            task.execution = Some(Execution::Sanitize(Box::new(work)));
        }
        Begin::Parameters { len_bytes } => {
            task.wanted_len = u64::from(len_bytes);
            task.len = task.wanted_len.min(task.expected_len);
            // The command that the list describes may need more memory than the list.
            task.gathers = task.len.max(CopyWork::LEN_BYTES_MAX as u64);
            task.work = Work::Parameters;
            task.start_in(Progress::Receiving);
        }
    }
}

fn set_medium(task: &mut Task, transfer: Medium) {
    let (data_out, data_in) = (
        transfer.data_out_len(task.block_size),
        transfer.data_in_len(task.block_size),
    );
    task.wanted_len = data_out.max(data_in);
    if matches!(transfer, Medium::CompareAndWrite(_)) && task.wanted_len != task.expected_len {
        // NUMBER OF LOGICAL BLOCKS has eight bits: an initiator that means 256 blocks writes 0, and
        // must not take a comparison of nothing for that of its data.
        task.response = Response::check(Sense::invalid_cdb_field(13));
        return;
    }
    task.len = task.wanted_len.min(task.expected_len);
    (task.work, task.gathers) = match transfer {
        // It stays in Sending.
        Medium::Read(extent) => {
            task.work = Work::Read(extent);
            return;
        }
        // Only a part of a block is kept.
        Medium::Write(extent) => (Work::Write(extent), task.block_size.bytes()),
        other => (Work::Gathered(other), task.len),
    };
    task.start_in(Progress::Receiving);
}
