//! SCSI commands: from the message to a task that has started.

use std::sync::Arc;
use std::time::Instant;

use block::{OpKind, Status};
use scsi::{Begin, CopyWork, Medium, Response, Sense, medium};
use zerocopy::IntoBytes;

use super::admission::Admission;
use super::session::TargetSession;
use super::task::{Execution, Progress, Task, Work};
use crate::backend::Backend;
use crate::wire::{Data, Descriptor, Direction, Request, Violation, parse_command};

impl<B: Backend> TargetSession<B> {
    /// Takes an SRP_CMD.
    pub(super) fn on_command(
        &mut self,
        now: Instant,
        message: &[u8],
        backend: &mut B,
    ) -> Result<(), Violation> {
        let Request { command, data } = parse_command(message, self.immediate_offset)?;
        self.check_limit()?;
        self.check_tag(command.tag)?;
        let mut task = Task::new(now, command);
        let (table, immediate) = match data {
            Data::None => (None, &[][..]),
            Data::Immediate(data) => {
                task.buffer = Some(Direction::Out);
                task.expected_len = data.len() as u64;
                (None, data)
            }
            Data::Memory {
                direction,
                table,
                len_bytes,
                ..
            } => {
                task.buffer = Some(direction);
                task.expected_len = u64::from(len_bytes);
                (table, &[][..])
            }
        };
        let slot = self.tasks.insert(task).ok_or(Violation::RequestLimit)?;
        let table_bytes = table.map_or(0, |table| table.len_bytes);
        let has_room = self.tasks.hold(slot, u64::from(table_bytes), backend);
        let Some((task, places)) = self.tasks.with_places(slot) else {
            return Ok(());
        };
        if let Data::Memory { descriptors, .. } = data
            && has_room
        {
            let unlisted = table_bytes as usize / size_of::<Descriptor>();
            places.reserve(descriptors.len() + unlisted);
            places.extend(descriptors);
        }
        if let Some(table) = table {
            task.table = has_room.then_some((table, table.len_bytes));
            self.tasks.queue(slot);
            return Ok(());
        }
        self.arrange(slot, immediate, now, backend)
    }

    /// A part of a descriptor table has arrived.
    pub(super) fn on_table(
        &mut self,
        slot: usize,
        data: &[u8],
        now: Instant,
        backend: &mut B,
    ) -> Result<(), Violation> {
        let Some((task, places)) = self.tasks.with_places(slot) else {
            return Ok(());
        };
        let mut descriptors = [Descriptor::of(session::RemoteBuffer {
            address: 0,
            key: session::RemoteKey(0),
            len_bytes: 0,
        }); 16];
        let size = size_of::<Descriptor>();
        for some in data.chunks(descriptors.len() * size) {
            let count = some.len() / size;
            descriptors[..count]
                .as_mut_bytes()
                .copy_from_slice(&some[..count * size]);
            places.extend(&descriptors[..count]);
        }
        let Some((_, left_bytes)) = &mut task.table else {
            return Ok(());
        };
        *left_bytes = left_bytes.saturating_sub(data.len() as u32);
        if *left_bytes > 0 {
            return Ok(());
        }
        task.table = None;
        self.arrange(slot, &[], now, backend)
    }

    /// All descriptors of a command are there: it starts, if no other command is in its way.
    fn arrange(
        &mut self,
        slot: usize,
        immediate: &[u8],
        now: Instant,
        backend: &mut B,
    ) -> Result<(), Violation> {
        let Some((task, places)) = self.tasks.with_places(slot) else {
            return Ok(());
        };
        let has_memory = immediate.is_empty() && task.buffer.is_some();
        if has_memory && places.len_bytes() < task.expected_len {
            return Err(Violation::Table);
        }
        if self.tasks.may_start(slot) && !self.is_fenced(backend) {
            self.start(slot, immediate, now, backend);
            return Ok(());
        }
        if let Some(task) = self.tasks.get_mut(slot) {
            task.enter(Progress::Waiting);
        }
        if self.tasks.hold(slot, immediate.len() as u64, backend) {
            if let Some(task) = self.tasks.get_mut(slot) {
                task.gathered.extend_from_slice(immediate);
            }
            self.tasks.block(slot);
        } else {
            self.tasks.queue(slot);
        }
        Ok(())
    }

    /// Starts the commands that waited for others, or for the end of another nexus, and need not
    /// wait any more.
    pub(super) fn start_unblocked(&mut self, now: Instant, backend: &mut B) {
        while self.tasks.has_blocked()
            && !self.is_fenced(backend)
            && let Some(slot) = self.tasks.take_unblocked()
        {
            let task = self.tasks.get_mut(slot);
            let immediate = task.map_or_else(Vec::new, |task| std::mem::take(&mut task.gathered));
            self.start(slot, &immediate, now, backend);
        }
    }

    /// Starts a command: plain transfers by the nexus's view of the logical unit, all others by the
    /// device.
    fn start(&mut self, slot: usize, immediate: &[u8], now: Instant, backend: &mut B) {
        let (leases, task) = self.tasks.leases_and(slot);
        let Some(task) = task else {
            return;
        };
        task.enter(Progress::Sending);
        let mut admission = Admission { now, slot, leases };
        begin(task, &mut admission, backend);
        let gathers = match task.progress() {
            Progress::Receiving | Progress::Filling => gathered_len(task, immediate.len()),
            _ => 0,
        };
        if gathers > 0 && !self.tasks.hold(slot, gathers, backend) {
            self.tasks.queue(slot);
            return;
        }
        if !immediate.is_empty() {
            self.take_data(slot, immediate, backend);
            if let Some(task) = self.tasks.get_mut(slot) {
                task.requested = task.moved;
            }
        }
        self.advance(slot, now, backend);
    }
}

/// How much data-out a command may have to keep, bytes: what arrives before its volume is ready,
/// and all that is gathered.
fn gathered_len(task: &Task, immediate_len: usize) -> u64 {
    match task.work {
        Work::Gathered(_) => task.len,
        // The command that the list describes may need more memory than the list.
        Work::Parameters => task.len.max(CopyWork::LEN_BYTES_MAX as u64),
        // Only a part of a block is kept once the volume is ready.
        Work::Write(_) => task.block_size.bytes().max(immediate_len as u64),
        _ => 0,
    }
}

/// Begins a task, which is in Sending, and stays in it if nothing has to arrive.
fn begin<B: Backend>(task: &mut Task, admission: &mut Admission<'_>, backend: &mut B) {
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
            set_medium(task, transfer);
            let extents = std::slice::from_ref(&extent);
            admission.admit_extents(task, &view.volume, kind, extents);
            return;
        }
    }
    begin_by_device(task, admission, backend);
}

fn begin_by_device<B: Backend>(task: &mut Task, admission: &mut Admission<'_>, backend: &mut B) {
    match backend.with_device(|device, nexus| device.begin(nexus, task.lun, &task.cdb)) {
        Begin::Done(mut response) => {
            let data = std::mem::take(&mut response.data_in);
            let len = data.len() as u64;
            task.set_work(Work::Data(data), len);
            task.response = response;
        }
        Begin::Medium(command, volume) => {
            task.block_size = volume.geometry().block_size;
            set_medium(task, command);
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
            task.set_work(Work::Sanitize, 0);
            task.enter(Progress::Receiving);
            task.execution = Some(Execution::Sanitize(Box::new(work)));
        }
        Begin::Parameters { len_bytes } => {
            task.set_work(Work::Parameters, u64::from(len_bytes));
            task.enter(Progress::Receiving);
        }
    }
}

fn set_medium(task: &mut Task, command: Medium) {
    let block_size = task.block_size;
    let wanted_len = command
        .data_out_len(block_size)
        .max(command.data_in_len(block_size));
    if matches!(command, Medium::CompareAndWrite(_)) && wanted_len != task.expected_len {
        // NUMBER OF LOGICAL BLOCKS has eight bits: an initiator that means 256 blocks writes 0, and
        // must not take a comparison of nothing for that of its data.
        task.wanted = (Direction::Out, wanted_len);
        task.response = Response::check(Sense::invalid_cdb_field(13));
        return;
    }
    let work = match command {
        // It stays in Sending.
        Medium::Read(extent) => return task.set_work(Work::Read(extent), wanted_len),
        Medium::Write(extent) => Work::Write(extent),
        other => Work::Gathered(other),
    };
    task.set_work(work, wanted_len);
    task.enter(Progress::Receiving);
}
