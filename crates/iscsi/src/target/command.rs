//! SCSI commands: begun by their PDU, fed by data-out, executed on the volume or the device.
//!
//! Read first: RFC 7143 §11.3, §11.7, §11.8; §4.2.5.2 (immediate, unsolicited and solicited data).

use std::time::Instant;

use block::{BlockSize, Extent, Op, OpKind, Status, Volume};
use scsi::{Begin, CopyWork, Medium, NexusId, Response, ScsiStatus, Sense, SenseKey, medium};
use session::SourceId;

use crate::backend::{Backend, Completed, Saved};
use crate::params::Parameters;
use crate::target::task::{Advertised, Bursts, Early, Held, Progress, Task, Work};
use crate::target::waiting::Admitting;
use crate::target::work::Execution;
use crate::tcp::session::{Connection, Full, Sink, Stage};
use crate::tcp::transmit::COPY_LEN_MAX;
use crate::window::Arrival;
use crate::window::order::{Attribute, Place};
use crate::wire::command::ScsiCommand;
use crate::wire::data::DataOut;
use crate::wire::other::reason;
use crate::wire::{NO_TASK_TAG, parse_lun, sn_before};

/// PROTOCOL SERVICE CRC ERROR (47h/05h): data came with a wrong digest.
const PROTOCOL_SERVICE_CRC_ERROR: scsi::Asc = scsi::Asc(0x4705);
/// Data not delivered as announced (0Ch/0Dh: not enough unsolicited data).
const NOT_ENOUGH_UNSOLICITED_DATA: scsi::Asc = scsi::Asc(0x0C0D);
/// UNEXPECTED UNSOLICITED DATA (0Ch/0Ch).
const UNEXPECTED_UNSOLICITED_DATA: scsi::Asc = scsi::Asc(0x0C0C);

/// INTERNAL TARGET FAILURE (44h/00h).
const INTERNAL_TARGET_FAILURE: scsi::Asc = scsi::Asc(0x4400);

impl<B: Backend> Connection<B> {
    /// The header of a SCSI Command has come. Its numbering is checked and its task begun, so that immediate
    /// data can be executed as they come.
    pub(crate) fn on_command(&mut self, now: Instant, backend: &mut B) -> Sink {
        let command: ScsiCommand = *self.bhs.cast();
        let Stage::Full(full) = &mut self.stage else {
            return Sink::Discard;
        };
        let Some(opened) = full.opened() else {
            self.reject(reason::PROTOCOL_ERROR);
            return Sink::Discard;
        };
        let attribute = Attribute::of(command.flags);
        let windowed = (!self.bhs.is_immediate()).then_some(attribute);
        let arrival = match windowed {
            None => Arrival::Now,
            Some(attribute) => {
                let lun = parse_lun(command.lun).unwrap_or(u16::MAX);
                full.tasks.arrive(command.cmd_sn.get(), attribute, lun)
            }
        };
        // Outside of the window: silently ignored (RFC 7143 §4.2.2.1).
        if matches!(arrival, Arrival::Ignored | Arrival::Aborted) {
            return Sink::Discard;
        }
        if full.tasks.find(command.itt.get()).is_some() || command.itt.get() == NO_TASK_TAG {
            return self.turn_away(windowed.map(|_| arrival), reason::TASK_IN_PROGRESS);
        }
        if u64::from(command.expected_len.get()) <= COPY_LEN_MAX {
            self.short_commands += 1;
        }
        let Some(slot) = full.tasks.next_slot() else {
            return self.turn_away(windowed.map(|_| arrival), reason::TOO_MANY_IMMEDIATE);
        };
        let mut task = if let Arrival::Held(place) = arrival {
            early_task(now, &command, place, attribute)
        } else {
            let mut admitting = Admitting::new(now, slot, &mut full.tasks.leases);
            begin(&mut admitting, &command, opened.nexus, windowed, backend)
        };
        if matches!(task.progress, Progress::Waiting | Progress::Filling) {
            task.gathers = task.gathers.max(early_len(&command, &full.parameters));
        }
        task.advertised = self.advertised;
        if !full.tasks.make_room(task.gathers, backend) {
            refuse(&mut task);
        }
        let writes = task.takes_data_out();
        full.tasks.insert(slot, task);
        match (arrival, windowed) {
            (Arrival::Held(place), _) => full.tasks.hold(place, Held::Command(slot)),
            (_, Some(attribute)) => full.tasks.begun(attribute),
            (_, None) => {}
        }
        self.expect_unsolicited(slot, &command);
        if writes {
            Sink::Write { slot }
        } else {
            Sink::Begun { slot }
        }
    }

    /// Rejects a command, whose number is used up where it has one.
    fn turn_away(&mut self, arrival: Option<Arrival>, reason: u8) -> Sink {
        self.with_full(|full| {
            if let Some(arrival) = arrival {
                full.tasks.forgo(arrival);
            }
        });
        self.reject(reason);
        Sink::Discard
    }

    /// Notes how much data-out may come without an R2T.
    #[inline]
    fn expect_unsolicited(&mut self, slot: usize, command: &ScsiCommand) {
        let Stage::Full(full) = &mut self.stage else {
            return;
        };
        let parameters = &full.parameters;
        let immediate_len = u64::from(command.data_segment_len.get());
        let burst = u64::from(parameters.first_burst_len_max);
        let may_follow = command.flags & crate::wire::FINAL == 0 && command.writes();
        let unexpected = immediate_len > 0 && !parameters.immediate_data
            || may_follow && parameters.initial_r2t
            || immediate_len > burst;
        let Some(task) = full.tasks.get_mut(slot) else {
            return;
        };
        if task.progress == Progress::Waiting {
            // Looked at again when it is begun.
            task.len = if unexpected { 0 } else { task.gathers };
        }
        if unexpected && task.progress != Progress::Waiting && task.takes_data_out() {
            fail(task, SenseKey::AbortedCommand, UNEXPECTED_UNSOLICITED_DATA);
            full.tasks.queue(slot);
            return;
        }
        task.unsolicited_open = may_follow;
        task.solicited = if may_follow {
            burst.min(task.len)
        } else {
            immediate_len.min(task.len)
        };
    }

    /// The PDU of a SCSI Command is whole.
    pub(crate) fn finish_command_pdu(&mut self, now: Instant, backend: &mut B) {
        if let Sink::Write { slot } | Sink::Begun { slot } = self.sink {
            self.go_on(slot, now, backend);
        }
    }

    /// The header of a Data-Out has come: which task do its data belong to?
    pub(crate) fn on_data_out(&mut self) -> Sink {
        let data: DataOut = *self.bhs.cast();
        let Stage::Full(full) = &mut self.stage else {
            return Sink::Discard;
        };
        let slot = match data.ttt.get() {
            NO_TASK_TAG => full.tasks.find(data.itt.get()).filter(|slot| {
                full.tasks
                    .get(*slot)
                    .is_some_and(|task| task.unsolicited_open)
            }),
            ttt => full.tasks.by_transfer_tag(ttt),
        };
        // Data of a task that has ended (aborted, failed): thrown away.
        let Some(slot) = slot else {
            return Sink::Discard;
        };
        let Some(task) = full.tasks.get_mut(slot) else {
            return Sink::Discard;
        };
        if !task.takes_data_out() || task.itt != data.itt.get() {
            return Sink::Discard;
        }
        let len = u64::from(data.data_segment_len.get());
        let sequence_end = task.r2ts.front().unwrap_or(task.solicited);
        let in_order = u64::from(data.buffer_offset.get()) == task.moved
            && data.data_sn.get() == task.next_data_out_sn;
        if !in_order || task.moved + len > sequence_end {
            fail(task, SenseKey::AbortedCommand, NOT_ENOUGH_UNSOLICITED_DATA);
            full.tasks.queue(slot);
            return Sink::Discard;
        }
        task.next_data_out_sn = task.next_data_out_sn.wrapping_add(1);
        Sink::Write { slot }
    }

    /// The PDU of a Data-Out is whole: where F is set, its sequence is too.
    pub(crate) fn finish_data_out_pdu(&mut self, now: Instant, backend: &mut B) {
        let data: DataOut = *self.bhs.cast();
        let unsolicited = data.ttt.get() == NO_TASK_TAG;
        let Stage::Full(full) = &mut self.stage else {
            return;
        };
        let slot = match data.ttt.get() {
            NO_TASK_TAG => full.tasks.find(data.itt.get()),
            ttt => full.tasks.by_transfer_tag(ttt),
        };
        let Some(slot) = slot else { return };
        let Some(task) = full.tasks.get_mut(slot) else {
            return;
        };
        if !task.takes_data_out() {
            return;
        }
        if self.bhs.is_final() {
            task.next_data_out_sn = 0;
            let end = if unsolicited {
                task.unsolicited_open = false;
                // The initiator may send less than it was allowed to.
                task.solicited = task.moved;
                task.moved
            } else {
                task.r2ts.pop_front().unwrap_or(task.moved)
            };
            if task.moved != end {
                fail(task, SenseKey::AbortedCommand, NOT_ENOUGH_UNSOLICITED_DATA);
                full.tasks.queue(slot);
                return;
            }
        }
        self.go_on(slot, now, backend);
    }

    /// Data-out that an RDMA READ has brought: those of the task's oldest R2T.
    pub(crate) fn on_read(&mut self, slot: usize, data: &[u8], now: Instant, backend: &mut B) {
        self.last_heard = Some(now);
        self.workload.continue_turn(now);
        let Stage::Full(full) = &mut self.stage else {
            return;
        };
        let Some(task) = full.tasks.get_mut(slot) else {
            return;
        };
        task.r2ts.pop_front();
        match task.progress {
            Progress::Receiving => {
                self.write_data(slot, data, backend);
                self.go_on(slot, now, backend);
            }
            // It has failed meanwhile; the answer waits for all of its reads.
            _ if task.r2ts.is_empty() => full.tasks.queue(slot),
            _ => {}
        }
    }

    /// Data-out of a task: whole blocks are written from `bytes` at once, a part of a block is kept.
    pub(crate) fn write_data(&mut self, slot: usize, bytes: &[u8], backend: &mut B) {
        let Stage::Full(full) = &mut self.stage else {
            return;
        };
        let Some(nexus) = full.opened().map(|opened| opened.nexus) else {
            return;
        };
        let Some(task) = full.tasks.get_mut(slot) else {
            return;
        };
        if !task.takes_data_out() {
            return;
        }
        // More than the command takes (an underflow of its CDB): the rest is read and dropped.
        let room = (task.len - task.moved).min(bytes.len() as u64) as usize;
        let bytes = &bytes[..room];
        match task.work {
            Work::Write(extent) if task.progress == Progress::Receiving => {
                let volume = backend.view(nexus, task.lun).map(|(view, _)| view);
                let result = match volume {
                    Some(view) => write_blocks(task, extent, bytes, view.volume.as_ref()),
                    None => Err(Status::Gone),
                };
                if let Err(status) = result {
                    task.response = Response::check(Sense::of_volume(status));
                    finish(task);
                    full.tasks.queue(slot);
                    return;
                }
            }
            _ => task.gathered.extend_from_slice(bytes),
        }
        task.moved += room as u64;
    }

    /// Data with a wrong digest ended a task.
    pub(crate) fn fail_task_of_bad_data(&mut self, slot: usize, _: &mut B) {
        let Stage::Full(full) = &mut self.stage else {
            return;
        };
        if let Some(task) = full.tasks.get_mut(slot) {
            fail(task, SenseKey::AbortedCommand, PROTOCOL_SERVICE_CRC_ERROR);
            full.tasks.queue(slot);
        }
    }

    /// Begins what waited for its turn, as far as that has come. Whether there was any.
    #[inline]
    pub(crate) fn begin_held(&mut self, now: Instant, backend: &mut B) -> bool {
        let has_held = matches!(&self.stage, Stage::Full(full) if full.tasks.has_held());
        has_held && self.claim_held(now, backend)
    }

    fn claim_held(&mut self, now: Instant, backend: &mut B) -> bool {
        let mut has_begun = false;
        while let Stage::Full(full) = &mut self.stage
            && full.tasks.has_held()
            && !self.closing
        {
            match full.tasks.claim() {
                None => break,
                Some(Held::Command(slot)) => self.begin_early(slot, now, backend),
                Some(Held::Control(bhs, segment)) => self.take_up(*bhs, segment, backend),
            }
            has_begun = true;
        }
        has_begun
    }

    /// The turn of a command has come that waited.
    fn begin_early(&mut self, slot: usize, now: Instant, backend: &mut B) {
        let Stage::Full(full) = &mut self.stage else {
            return;
        };
        let (Some(opened), Some(task)) = (full.opened(), full.tasks.get_mut(slot)) else {
            return;
        };
        let Some(early) = task.early.take() else {
            return;
        };
        let attribute = Attribute::of(early.command.flags);
        if let Some(verdict) = early.verdict {
            finish(task);
            task.response = verdict;
            full.tasks.begun(attribute);
            full.tasks.queue(slot);
            return;
        }
        let mut admitting = Admitting::new(now, slot, &mut full.tasks.leases);
        let (command, nexus) = (&early.command, opened.nexus);
        let mut task = begin(&mut admitting, command, nexus, Some(attribute), backend);
        if task.progress == Progress::Filling {
            task.gathers = task.gathers.max(early_len(command, &full.parameters));
        }
        if !full.tasks.make_room(task.gathers, backend) {
            refuse(&mut task);
        }
        let waited = full.tasks.replace(slot, task);
        full.tasks.begun(attribute);
        let Some(waited) = waited else { return };
        self.expect_unsolicited(slot, &early.command);
        self.write_data(slot, &waited.gathered, backend);
        self.with_full(|full| {
            let task = full.tasks.get_mut(slot);
            if let Some(task) = task.filter(|task| task.takes_data_out()) {
                task.next_data_out_sn = waited.next_data_out_sn;
                if task.unsolicited_open && !waited.unsolicited_open {
                    (task.unsolicited_open, task.solicited) = (false, task.moved);
                }
            }
        });
        if early.is_whole {
            self.go_on(slot, now, backend);
        }
    }

    /// Completions whose time has come.
    pub(crate) fn release_due(&mut self, now: Instant, _: &mut B) {
        let Stage::Full(full) = &mut self.stage else {
            return;
        };
        while let Some(due) = self.due.peek().copied().filter(|due| due.at <= now) {
            self.due.pop();
            let Some(task) = full.tasks.get_mut(due.slot) else {
                continue;
            };
            if task.generation == due.generation && task.progress == Progress::Held {
                task.enter(Progress::Sending);
                full.tasks.queue(due.slot);
            }
        }
    }
}

impl Full {
    /// Answers commands whose reservations have been saved, or can't be.
    pub(crate) fn release_saved(&mut self, backend: &mut impl Backend) {
        for (slot, number) in self.tasks.unsaved() {
            let saved = backend.saved(number);
            let Some(task) = self.tasks.get_mut(slot).filter(|_| saved != Saved::Pending) else {
                continue;
            };
            if saved == Saved::Failed {
                let sense = Sense::new(SenseKey::HardwareError, INTERNAL_TARGET_FAILURE);
                task.response = Response::check(sense);
            }
            task.unsaved = None;
            task.enter(Progress::Sending);
            self.tasks.queue(slot);
        }
    }

    /// Accounts for a finished command.
    pub(crate) fn completed(task: &Task, backend: &mut impl Backend) {
        if let Some(kind) = kind_of(task) {
            backend.completed(Completed {
                lun: task.lun,
                kind,
                len_bytes: task.moved,
                ok: task.response.status == ScsiStatus::Good,
                started: task.started,
            });
        }
    }
}

/// Begins a command: plain transfers by what is remembered of the logical unit, the rest by the device.
fn begin<B: Backend>(
    admitting: &mut Admitting<'_>,
    command: &ScsiCommand,
    nexus: NexusId,
    windowed: Option<Attribute>,
    backend: &mut B,
) -> Task {
    let mut task = new_task(admitting.now, command, windowed);
    if let Some((view, region)) = backend.view(nexus, task.lun) {
        task.region = region;
        let geometry = view.volume.geometry();
        task.block_size = geometry.block_size;
        let fast = match medium::plain_transfer(&task.cdb, geometry) {
            Some(Ok(Medium::Read(extent))) if view.reads => {
                // It is executed when it is sent, after the other commands at hand.
                view.volume.prefetch(extent);
                Some((Medium::Read(extent), OpKind::Read, extent))
            }
            Some(Ok(Medium::Write(extent))) if view.writes && !view.volume.is_read_only() => {
                Some((Medium::Write(extent), OpKind::Write, extent))
            }
            _ => None,
        };
        if let Some((transfer, kind, extent)) = fast {
            set_medium(&mut task, transfer);
            task.must_copy = !view.is_pinned;
            let (len_bytes, extents) = (task.len, std::slice::from_ref(&extent));
            admitting.admit_extents(&mut task, &view.volume, kind, extents, len_bytes);
            return task;
        }
    }
    begin_by_device(&mut task, admitting, nexus, backend);
    task
}

fn new_task(now: Instant, command: &ScsiCommand, windowed: Option<Attribute>) -> Task {
    Task {
        itt: command.itt.get(),
        lun: parse_lun(command.lun).unwrap_or(u16::MAX),
        cmd_sn: command.cmd_sn.get(),
        cdb: command.cdb,
        work: Work::None,
        progress: Progress::Sending,
        region: SourceId(0),
        must_copy: true,
        block_size: BlockSize::B512,
        started: now,
        expected_len: u64::from(command.expected_len.get()),
        wanted_len: 0,
        len: 0,
        moved: 0,
        solicited: 0,
        unsolicited_open: false,
        r2ts: Bursts::default(),
        next_sn: 0,
        next_data_out_sn: 0,
        gathered: Vec::new(),
        gathers: 0,
        not_before: None,
        unsaved: None,
        execution: None,
        response: Response::good(),
        advertised: Advertised::default(),
        windowed,
        early: None,
        queued: false,
        generation: 0,
    }
}

/// A command whose turn has not come.
fn early_task(now: Instant, command: &ScsiCommand, place: Place, attribute: Attribute) -> Task {
    let early = Early {
        place,
        command: *command,
        is_whole: false,
        verdict: None,
    };
    Task {
        progress: Progress::Waiting,
        early: Some(Box::new(early)),
        ..new_task(now, command, Some(attribute))
    }
}

/// How much data-out may come with a command, and after it without an R2T.
fn early_len(command: &ScsiCommand, parameters: &Parameters) -> u64 {
    let expected = u64::from(command.expected_len.get());
    let unsolicited = if command.flags & crate::wire::FINAL == 0 {
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

fn begin_by_device<B: Backend>(
    task: &mut Task,
    admitting: &mut Admitting<'_>,
    nexus: NexusId,
    backend: &mut B,
) {
    match backend.with_device(|device| device.begin(nexus, task.lun, &task.cdb)) {
        Begin::Done(mut response) => {
            task.wanted_len = response.data_in.len() as u64;
            task.work = Work::Data(std::mem::take(&mut response.data_in));
            task.response = response;
            task.len = task.wanted_len.min(task.expected_len);
        }
        Begin::Medium(transfer, volume) => {
            task.block_size = volume.geometry().block_size;
            if let Some((_, region)) = backend.view(nexus, task.lun) {
                task.region = region;
            }
            set_medium(task, transfer);
            task.must_copy = volume.pinned().is_none();
            admitting.admit(task, &volume);
        }
        Begin::Sanitize(work) => {
            task.work = Work::Sanitize;
            task.progress = Progress::Receiving;
            task.execution = Some(Execution::Sanitize(Box::new(work)));
        }
        Begin::Parameters { len_bytes } => {
            task.wanted_len = u64::from(len_bytes);
            task.len = task.wanted_len.min(task.expected_len);
            // What the list becomes may be longer than itself.
            task.gathers = task.len.max(CopyWork::LEN_BYTES_MAX as u64);
            task.work = Work::Parameters;
            task.progress = Progress::Receiving;
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
        // NUMBER OF LOGICAL BLOCKS has eight bits: an initiator that means 256 blocks writes 0, and must not take a
        // comparison of nothing for that of its data.
        task.response = Response::check(Sense::invalid_cdb_field(13));
        return;
    }
    task.len = task.wanted_len.min(task.expected_len);
    (task.work, task.progress, task.gathers) = match transfer {
        Medium::Read(extent) => (Work::Read(extent), Progress::Sending, 0),
        // Only a part of a block is kept.
        Medium::Write(extent) => {
            let block_len = task.block_size.bytes();
            (Work::Write(extent), Progress::Receiving, block_len)
        }
        other => (Work::Gathered(other), Progress::Receiving, task.len),
    };
}

/// Writes what has come of a transfer: the kept part of a block is filled up first.
fn write_blocks(
    task: &mut Task,
    extent: Extent,
    mut bytes: &[u8],
    volume: &dyn Volume,
) -> Result<(), Status> {
    let block_len = task.block_size.bytes() as usize;
    let mut at = task.moved - task.gathered.len() as u64;
    if !task.gathered.is_empty() {
        let fill = (block_len - task.gathered.len()).min(bytes.len());
        task.gathered.extend_from_slice(&bytes[..fill]);
        bytes = &bytes[fill..];
        if task.gathered.len() < block_len {
            return Ok(());
        }
        let block = medium::piece(extent, task.block_size, at, block_len as u64);
        volume.execute(Op::Write {
            extent: block,
            data: &task.gathered,
        })?;
        task.gathered.clear();
        at += block_len as u64;
    }
    let (whole, rest) = bytes.split_at(bytes.len() / block_len * block_len);
    if !whole.is_empty() {
        let piece = medium::piece(extent, task.block_size, at, whole.len() as u64);
        volume.execute(Op::Write {
            extent: piece,
            data: whole,
        })?;
    }
    task.gathered.extend_from_slice(rest);
    Ok(())
}

/// What a command is to filters and statistics; `None` for those that don't touch the medium.
pub(crate) fn kind_of(task: &Task) -> Option<OpKind> {
    match task.work {
        Work::Read(_) => Some(OpKind::Read),
        Work::Write(_) => Some(OpKind::Write),
        Work::Sanitize => Some(OpKind::Discard),
        Work::Gathered(transfer) => Some(match transfer {
            Medium::Unmap { .. } => OpKind::Discard,
            Medium::SynchronizeCache => OpKind::Flush,
            Medium::VerifyData(..) | Medium::VerifyMedium(_) | Medium::PreFetch(_) => OpKind::Read,
            _ => OpKind::Write,
        }),
        Work::Parameters | Work::Data(_) | Work::None => None,
    }
}

pub(crate) fn fail(task: &mut Task, key: SenseKey, asc: scsi::Asc) {
    let response = Response::check(Sense::new(key, asc));
    if let Some(early) = &mut task.early {
        // It is answered when its turn comes.
        early.verdict = Some(response);
        task.unsolicited_open = false;
        task.gathered.clear();
        task.len = task.moved;
        return;
    }
    finish(task);
    task.response = response;
}

/// There is no room for what the command gathers: TASK SET FULL, since other commands take it.
fn refuse(task: &mut Task) {
    let response = Response {
        status: ScsiStatus::TaskSetFull,
        sense: None,
        data_in: Vec::new(),
    };
    (task.len, task.gathers) = (0, 0);
    if let Some(early) = &mut task.early {
        early.verdict = Some(response);
        return;
    }
    finish(task);
    task.response = response;
}

/// Ends a task: what is still to come for it is thrown away.
pub(crate) fn finish(task: &mut Task) {
    task.enter(Progress::Sending);
    task.work = Work::None;
    task.gathered.clear();
    task.unsolicited_open = false;
}

/// Whether `cmd_sn` is one that an immediate request may carry: the next expected or an older one.
pub(crate) fn is_plausible(cmd_sn: u32, expected: u32) -> bool {
    !sn_before(expected, cmd_sn)
}
