//! The tasks of a connection: SCSI commands between their PDU and their response.

use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

use block::{BlockSize, Extent};
use scsi::{CopyWork, Lun, Medium, Response};
use session::{Leases, RemoteBuffer, SourceId};

use crate::backend::{AbortScope, Backend};
use crate::params::OUTSTANDING_R2T_MAX;
use crate::target::work::Execution;
use crate::window::order::{Attribute, Place};
use crate::window::{Arrival, Window};
use crate::wire::command::ScsiCommand;
use crate::wire::{Bhs, NO_TASK_TAG};

/// How many commands a session may have outstanding (its command window) at the most.
pub const COMMANDS_MAX: usize = 256;
/// Slots beyond the window, for commands of immediate delivery.
const IMMEDIATE_MAX: usize = 16;
/// The slots of commands.
const SLOTS_MAX: usize = COMMANDS_MAX + IMMEDIATE_MAX;

/// What holds a lease. Each has a slot of its own in [`Leases`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeaseHolder {
    /// The command in this slot.
    Command(usize),
    /// The command in this slot, an EXTENDED COPY, for what it reads. For what it writes it is a
    /// [`Command`](Self::Command).
    CopySource(usize),
    /// The sanitize operation of this number. A connection has at most one for each logical unit.
    Sanitize(usize),
}

impl LeaseHolder {
    /// The slot of its lease.
    pub(crate) const fn lease(self) -> usize {
        match self {
            Self::Command(slot) => slot,
            Self::CopySource(slot) => SLOTS_MAX + slot,
            Self::Sanitize(number) => 2 * SLOTS_MAX + number,
        }
    }

    /// The holder of the lease in a slot.
    pub(crate) const fn of(lease: usize) -> Self {
        match lease / SLOTS_MAX {
            0 => Self::Command(lease),
            1 => Self::CopySource(lease - SLOTS_MAX),
            _ => Self::Sanitize(lease - 2 * SLOTS_MAX),
        }
    }
}

/// What a task does with data.
#[derive(Clone, Debug)]
pub(crate) enum Work {
    /// Data-in from the volume.
    Read(Extent),
    /// Data-out into the volume, block by block.
    Write(Extent),
    /// Data-out gathered, then executed at once.
    Gathered(Medium),
    /// SANITIZE.
    Sanitize,
    /// Data-out gathered for the device (a parameter list).
    Parameters,
    /// Data-in at hand.
    Data(Vec<u8>),
    /// No data.
    None,
}

/// How far a task has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Its turn has not come; unsolicited data-out are kept.
    Waiting,
    /// Its volume brings the blocks into memory; unsolicited data-out are kept, and no others are asked for.
    Filling,
    /// Data-out are awaited.
    Receiving,
    /// It is executed, in turns.
    Working,
    /// Executed; its volume makes the effects safe.
    Settling,
    /// Executed; its completion is held back (delay, rate limit).
    Held,
    /// Data-in and response are to be sent.
    Sending,
    /// The last Data-In carried its status: there is no response.
    Answered,
}

impl Progress {
    /// What may follow for a task that has a slot. A task that has none yet begins wherever its command says.
    ///
    /// ```text
    ///             ┌─────────┐
    ///  Filling ──►│Receiving│──► Working ──► Settling ──► Held ──► Sending ──► Answered
    ///     ▲       └────┬────┘
    ///     └────────────┘            Waiting: another task takes its place; every step may be left out towards Sending
    /// ```
    const fn next(self) -> &'static [Self] {
        match self {
            Self::Waiting | Self::Settling | Self::Held => &[Self::Sending],
            Self::Filling => &[Self::Receiving, Self::Sending],
            Self::Receiving => &[
                Self::Filling,
                Self::Working,
                Self::Settling,
                Self::Held,
                Self::Sending,
            ],
            Self::Working => &[Self::Settling, Self::Held, Self::Sending],
            Self::Sending => &[Self::Held, Self::Sending, Self::Answered],
            Self::Answered => &[],
        }
    }
}

/// Buffers of the initiator's that a command names, over RDMA.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Advertised {
    /// Where data-in go.
    pub(crate) read: Option<RemoteBuffer>,
    /// Where data-out are that are not sent unsolicited.
    pub(crate) write: Option<RemoteBuffer>,
    /// Which byte of the data-out the first byte of `write` is.
    pub(crate) write_base: u64,
}

/// The most bursts that one task has asked for at a time: R2Ts, or RDMA READs. Eight reads of 64 KiB keep a link of 25 Gb/s busy
/// for 160 us.
pub(crate) const BURSTS_MAX: usize = OUTSTANDING_R2T_MAX as usize;

/// The ends of bursts of data-out, oldest first, as offsets. In the task itself, so that asking for data allocates nothing.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Bursts {
    ends: [u32; BURSTS_MAX],
    first: u8,
    len: u8,
}

impl Bursts {
    pub(crate) fn len(&self) -> usize {
        self.len.into()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The end of the oldest.
    pub(crate) fn front(&self) -> Option<u64> {
        let end = self.ends[usize::from(self.first)];
        (!self.is_empty()).then_some(end.into())
    }

    /// Adds one that ends at `end`. Panics if there are [`BURSTS_MAX`].
    pub(crate) fn push_back(&mut self, end: u64) {
        assert!(
            self.len() < BURSTS_MAX,
            "the caller has seen that there is room"
        );
        let at = (usize::from(self.first) + self.len()) % BURSTS_MAX;
        // Expected Data Transfer Length has 32 bits.
        self.ends[at] = end as u32;
        self.len += 1;
    }

    /// Takes the oldest away.
    pub(crate) fn pop_front(&mut self) -> Option<u64> {
        let end = self.front()?;
        self.first = (self.first + 1) % BURSTS_MAX as u8;
        self.len -= 1;
        Some(end)
    }
}

/// A SCSI command.
pub(crate) struct Task {
    pub(crate) itt: u32,
    pub(crate) lun: Lun,
    pub(crate) cmd_sn: u32,
    pub(crate) cdb: [u8; 16],
    pub(crate) work: Work,
    pub(crate) progress: Progress,
    pub(crate) region: SourceId,
    /// Data-in may not be sent from where they lie in the volume.
    pub(crate) must_copy: bool,
    pub(crate) block_size: BlockSize,
    pub(crate) started: Instant,
    /// Expected Data Transfer Length.
    pub(crate) expected_len: u64,
    /// What the CDB says that is to be transferred.
    pub(crate) wanted_len: u64,
    /// What is transferred: the smaller of both.
    pub(crate) len: u64,
    /// Data-out received, or data-in sent.
    pub(crate) moved: u64,
    /// Data-out asked for by R2T or announced as unsolicited.
    pub(crate) solicited: u64,
    /// Unsolicited data may still come (F was not set).
    pub(crate) unsolicited_open: bool,
    /// R2Ts whose data have not all come, oldest first: their end offsets.
    pub(crate) r2ts: Bursts,
    /// R2TSN or DataSN of the next PDU that is sent.
    pub(crate) next_sn: u32,
    /// DataSN of the next Data-Out of the current sequence.
    pub(crate) next_data_out_sn: u32,
    /// The part of a block that has come, or the whole of gathered data.
    pub(crate) gathered: Vec<u8>,
    /// How far it has been executed, while it is.
    pub(crate) execution: Option<Execution>,
    pub(crate) response: Response,
    pub(crate) advertised: Advertised,
    /// Bytes of data-out that may have to be gathered before they can be executed.
    pub(crate) gathers: u64,
    /// Until when filters of the volume hold the completion back.
    pub(crate) not_before: Option<Instant>,
    /// The number of the reservations that have to be saved before the command is answered.
    pub(crate) unsaved: Option<u64>,
    /// Counted in the command window: how it stands to the commands in line.
    pub(crate) windowed: Option<Attribute>,
    /// What is needed to begin it when its turn comes.
    pub(crate) early: Option<Box<Early>>,
    /// In the queue of those that have something to send.
    pub(crate) queued: bool,
    /// Ended by another nexus or by task management: freed without a response once it may be.
    pub(crate) generation: u16,
}

/// What a connection is charged for its tasks counts on this.
const _: () = assert!(size_of::<Task>() <= 460);

impl Task {
    /// Whether data-out are of any use to it.
    pub(crate) fn takes_data_out(&self) -> bool {
        match self.progress {
            Progress::Receiving | Progress::Waiting => true,
            Progress::Filling => !matches!(self.work, Work::Read(_)),
            _ => false,
        }
    }

    /// Moves on to `progress`. Tests, fuzz targets and simulations check that it may follow; in a release build that
    /// would cost each command a dozen instructions.
    pub(crate) fn enter(&mut self, progress: Progress) {
        debug_assert!(
            self.progress.next().contains(&progress),
            "{progress:?} does not follow {:?}",
            self.progress
        );
        self.progress = progress;
    }

    /// The EXTENDED COPY that it executes, which may wait for its volumes.
    pub(crate) fn copy(&self) -> Option<&CopyWork> {
        match &self.execution {
            Some(Execution::Copy(copy)) if self.progress == Progress::Working => Some(copy),
            _ => None,
        }
    }

    /// Whether it waits for its volume, and no more can be done before.
    pub(crate) fn waits_for_volume(&self) -> bool {
        matches!(self.progress, Progress::Filling | Progress::Settling)
    }
}

/// A command whose turn has not come.
#[derive(Debug)]
pub(crate) struct Early {
    pub(crate) place: Place,
    pub(crate) command: ScsiCommand,
    /// Its PDU is whole.
    pub(crate) is_whole: bool,
    /// It has failed before it could be begun.
    pub(crate) verdict: Option<Response>,
}

/// A numbered request whose turn has not come.
#[derive(Debug)]
pub(crate) enum Held {
    /// The command in this slot.
    Command(usize),
    /// Another request, with its data.
    Control(Box<Bhs>, Vec<u8>),
}

/// A completion that is held back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Due {
    pub(crate) at: Instant,
    pub(crate) slot: usize,
    pub(crate) generation: u16,
}

impl Ord for Due {
    /// The earliest is the greatest: a binary heap gives that first.
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        other.at.cmp(&self.at).then(other.slot.cmp(&self.slot))
    }
}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// The tasks of a connection, by slot.
pub(crate) struct Tasks {
    slots: Vec<Option<Task>>,
    /// The Initiator Task Tag of each slot; [`NO_TASK_TAG`] where it is free. A search reads these alone.
    tags: Vec<u32>,
    generations: Vec<u16>,
    free: Vec<usize>,
    /// Slots with something to send, oldest first.
    ready: VecDeque<usize>,
    /// What tasks and sanitize operations hold on volumes that take time, by [`LeaseHolder`].
    pub(crate) leases: Leases,
    window: Window,
    /// What waits for its turn.
    held: BTreeMap<Place, Held>,
    /// Requests among that which are not SCSI commands.
    held_controls: usize,
    /// What all tasks together may have to gather, bytes.
    gathers: u64,
    /// What the program was asked to have room for, bytes; at least `gathers`.
    charged: u64,
}

/// The most data-out that the commands of one connection gather together, bytes.
const GATHERS_MAX: u64 = 16 << 20;
/// The program is asked for room in steps of so many bytes, so that plain commands do not ask each time.
const CHARGE_STEP: u64 = 256 << 10;

impl Tasks {
    /// Of the connection of this number.
    pub(crate) fn new(window: Window, connection: u64) -> Self {
        Self {
            slots: Vec::new(),
            tags: Vec::new(),
            generations: Vec::new(),
            free: Vec::new(),
            ready: VecDeque::new(),
            leases: Leases::new(connection),
            window,
            held: BTreeMap::new(),
            held_controls: 0,
            gathers: 0,
            charged: 0,
        }
    }

    /// Takes note of a numbered request that has come: see [`Window::arrive`].
    pub(crate) fn arrive(&mut self, cmd_sn: u32, attribute: Attribute, lun: Lun) -> Arrival {
        self.window.arrive(cmd_sn, attribute, lun)
    }

    /// A SCSI command that arrived has come to nothing.
    pub(crate) fn forgo(&mut self, arrival: Arrival) {
        match arrival {
            Arrival::Now => {
                self.window.begun(Attribute::Simple);
                self.window.end(Attribute::Simple);
            }
            Arrival::Held(place) => self.window.forgo(place),
            Arrival::Ignored | Arrival::Aborted => {}
        }
    }

    /// A command that arrived, or was claimed, has been begun.
    pub(crate) fn begun(&mut self, attribute: Attribute) {
        self.window.begun(attribute);
    }

    /// Keeps a request until its turn comes.
    pub(crate) fn hold(&mut self, place: Place, held: Held) {
        self.held_controls += usize::from(matches!(held, Held::Control(..)));
        self.held.insert(place, held);
    }

    /// Whether anything waits for its turn.
    pub(crate) fn has_held(&self) -> bool {
        !self.held.is_empty()
    }

    /// How many requests wait that are not SCSI commands.
    pub(crate) fn held_controls(&self) -> usize {
        self.held_controls
    }

    /// The next request whose turn has come. After a SCSI command, [`begun`](Self::begun) is due.
    pub(crate) fn claim(&mut self) -> Option<Held> {
        let place = self.window.claim()?;
        let held = self.held.remove(&place);
        let held = held.expect("what waits in line is held by the connection that it came on");
        self.held_controls -= usize::from(matches!(held, Held::Control(..)));
        Some(held)
    }

    /// The place that is expected next, where something waits for what is missing there.
    pub(crate) fn gap(&mut self) -> Option<Place> {
        let (last, _) = self.held.last_key_value()?;
        let expected = self.window.expected();
        (*last > expected).then_some(expected)
    }

    /// The CID of the other connection whose turn has come, once.
    pub(crate) fn next_elsewhere(&mut self) -> Option<u16> {
        self.window.next_elsewhere()
    }

    /// Commands with numbers before `cmd_sn` that have not come are aborted when they do.
    pub(crate) fn condemn(&mut self, cmd_sn: u32, scope: AbortScope) {
        self.window.condemn(cmd_sn, scope);
    }

    /// Takes the number of a command that is aborted before it comes; false where it is not to come any more.
    pub(crate) fn abort_ahead(&mut self, cmd_sn: u32) -> bool {
        self.window.abort_ahead(cmd_sn)
    }

    /// Tells the session's connections that the command of a tag was found and aborted.
    pub(crate) fn note_aborted(&mut self, tag: u32) {
        self.window.note_aborted(tag);
    }

    /// Whether the command of a tag was found and aborted by another connection.
    pub(crate) fn take_aborted(&mut self, tag: u32) -> bool {
        self.window.take_aborted(tag)
    }

    /// ExpCmdSN and MaxCmdSN.
    pub(crate) fn numbers(&self) -> (u32, u32) {
        self.window.numbers()
    }

    /// Ends all tasks without a response, and drops all that waits.
    pub(crate) fn clear(&mut self) {
        for slot in self.of_lun(None) {
            self.remove(slot);
        }
        self.ready.clear();
        self.held.clear();
        self.held_controls = 0;
        self.window.leave();
    }

    /// Whether there is no task at all.
    pub(crate) fn is_empty(&self) -> bool {
        self.free.len() == self.slots.len()
    }

    /// Asks for room for a command that gathers `len_bytes`; false where there is none.
    pub(crate) fn make_room(&mut self, len_bytes: u64, backend: &mut impl Backend) -> bool {
        let want = self.gathers + len_bytes;
        if want <= self.charged {
            return true;
        }
        let charge = want.next_multiple_of(CHARGE_STEP);
        let has_room = charge <= GATHERS_MAX && backend.charge(charge);
        if has_room {
            self.charged = charge;
        }
        has_room
    }

    /// Gives back what is no longer needed, once nothing is gathered.
    pub(crate) fn give_room_back(&mut self, backend: &mut impl Backend) {
        if self.gathers == 0 && self.charged > CHARGE_STEP && backend.charge(CHARGE_STEP) {
            self.charged = CHARGE_STEP;
        }
    }

    /// The slot of the next task; `None` if all are taken.
    #[inline]
    pub(crate) fn next_slot(&mut self) -> Option<usize> {
        if self.free.is_empty() && self.slots.len() < SLOTS_MAX {
            self.free.push(self.slots.len());
            self.slots.push(None);
            self.tags.push(NO_TASK_TAG);
            self.generations.push(0);
        }
        self.free.last().copied()
    }

    /// Puts a task into the slot that [`next_slot`](Self::next_slot) gave.
    #[inline]
    pub(crate) fn insert(&mut self, slot: usize, mut task: Task) {
        let next = self.free.pop();
        assert_eq!(next, Some(slot), "the slot is the next one");
        task.generation = self.generations[slot];
        self.gathers += task.gathers;
        self.tags[slot] = task.itt;
        self.slots[slot] = Some(task);
    }

    /// Puts the task that a command has become in the place of the one that waited, whose data-out it gives.
    pub(crate) fn replace(&mut self, slot: usize, mut task: Task) -> Option<Task> {
        let waiting = self.slots.get_mut(slot)?.take()?;
        task.generation = waiting.generation;
        task.started = waiting.started;
        task.queued = waiting.queued;
        task.advertised = waiting.advertised;
        self.gathers += task.gathers;
        self.gathers -= waiting.gathers;
        self.slots[slot] = Some(task);
        Some(waiting)
    }

    pub(crate) fn get_mut(&mut self, slot: usize) -> Option<&mut Task> {
        self.slots.get_mut(slot)?.as_mut()
    }

    /// The leases of all tasks, and a task.
    pub(crate) fn leases_and(&mut self, slot: usize) -> (&mut Leases, Option<&mut Task>) {
        let task = self.slots.get_mut(slot).and_then(Option::as_mut);
        (&mut self.leases, task)
    }

    /// Whether the task in a slot executes an EXTENDED COPY.
    pub(crate) fn is_copying(&self, slot: usize) -> bool {
        self.get(slot).is_some_and(|task| task.copy().is_some())
    }

    pub(crate) fn get(&self, slot: usize) -> Option<&Task> {
        self.slots.get(slot)?.as_ref()
    }

    /// Frees a slot, where it is not free.
    pub(crate) fn remove(&mut self, slot: usize) {
        let Some(task) = self.slots.get(slot).and_then(Option::as_ref) else {
            return;
        };
        let gathers = task.gathers;
        match (&task.early, task.windowed) {
            (Some(early), _) => {
                self.held.remove(&early.place);
                self.window.forgo(early.place);
            }
            (None, Some(attribute)) => self.window.end(attribute),
            (None, None) => {}
        }
        self.gathers -= gathers;
        if !self.leases.is_empty() {
            for holder in [LeaseHolder::Command(slot), LeaseHolder::CopySource(slot)] {
                self.leases.release(holder.lease());
            }
        }
        self.slots[slot] = None;
        self.tags[slot] = NO_TASK_TAG;
        self.generations[slot] = self.generations[slot].wrapping_add(1);
        self.free.push(slot);
    }

    /// A task that waits for its turn is answered before it comes.
    pub(crate) fn withdraw(&mut self, slot: usize) {
        let Some(task) = self.get_mut(slot) else {
            return;
        };
        if let Some(early) = task.early.take() {
            task.windowed = Some(Attribute::Simple);
            self.held.remove(&early.place);
            self.window.withdraw(early.place);
        }
    }

    /// The slot of an Initiator Task Tag, which is not [`NO_TASK_TAG`].
    pub(crate) fn find(&self, itt: u32) -> Option<usize> {
        if itt == NO_TASK_TAG {
            return None;
        }
        self.tags.iter().position(|tag| *tag == itt)
    }

    /// The slots that wait for reservations to be saved.
    pub(crate) fn unsaved(&self) -> Vec<(usize, u64)> {
        let slots = self.slots.iter().enumerate();
        slots
            .filter_map(|(slot, task)| Some((slot, task.as_ref()?.unsaved?)))
            .collect()
    }

    /// The slots of a LUN, or all.
    pub(crate) fn of_lun(&self, lun: Option<Lun>) -> Vec<usize> {
        let of_lun = |task: &Task| lun.is_none_or(|lun| task.lun == lun);
        let slots = self.slots.iter().enumerate();
        slots
            .filter(|(_, task)| task.as_ref().is_some_and(of_lun))
            .map(|(slot, _)| slot)
            .collect()
    }

    /// R2Ts of all tasks whose data have not come.
    pub(crate) fn outstanding_r2ts(&self) -> usize {
        self.slots
            .iter()
            .flatten()
            .map(|task| task.r2ts.len())
            .sum()
    }

    /// The Target Transfer Tag of a slot: never all ones, since slots are few.
    pub(crate) fn transfer_tag(&self, slot: usize) -> u32 {
        u32::from(self.generations[slot]) << 16 | slot as u32
    }

    /// The slot that a Target Transfer Tag names, where its task is still the same.
    pub(crate) fn by_transfer_tag(&self, tag: u32) -> Option<usize> {
        let slot = (tag & 0xFFFF) as usize;
        let same = self
            .generations
            .get(slot)
            .is_some_and(|g| u32::from(*g) == tag >> 16);
        (same && self.slots[slot].is_some()).then_some(slot)
    }

    /// Marks a task as having something to send.
    pub(crate) fn queue(&mut self, slot: usize) {
        if let Some(task) = self.get_mut(slot)
            && !task.queued
        {
            task.queued = true;
            self.ready.push_back(slot);
        }
    }

    /// The task that is to send next.
    pub(crate) fn next_ready(&mut self) -> Option<usize> {
        self.ready_at(0)
    }

    /// The task that is to send after so many others. Slots that were freed meanwhile are passed over.
    pub(crate) fn ready_at(&mut self, index: usize) -> Option<usize> {
        while let Some(slot) = self.ready.get(index).copied() {
            if self.get(slot).is_some_and(|task| task.queued) {
                return Some(slot);
            }
            self.ready.remove(index);
        }
        None
    }

    /// The task at the front has nothing more to send for now.
    pub(crate) fn pop_ready(&mut self) {
        self.remove_ready(0);
    }

    /// The task behind so many others has nothing more to send for now.
    pub(crate) fn remove_ready(&mut self, index: usize) {
        if let Some(slot) = self.ready.remove(index)
            && let Some(task) = self.get_mut(slot)
        {
            task.queued = false;
        }
    }

    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }
}

impl Drop for Tasks {
    /// The session may go on with other connections.
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_that_of_the_diagram() {
        use Progress::{Answered, Filling, Held, Receiving, Sending, Settling, Waiting, Working};
        let all = [
            Waiting, Filling, Receiving, Working, Settling, Held, Sending, Answered,
        ];
        // A row for each, in this order: whether each other one may follow.
        let table = [
            "......S.", "..R...S.", ".F.WsHS.", "....sHS.", "......S.", "......S.", ".....HSA",
            "........",
        ];
        for (progress, row) in all.into_iter().zip(table) {
            for (next, mark) in all.into_iter().zip(row.chars()) {
                let may_follow = progress.next().contains(&next);
                assert_eq!(may_follow, mark != '.', "{progress:?} to {next:?}");
            }
        }
    }

    #[test]
    fn each_holder_has_a_lease_of_its_own() {
        let holders = |slot| {
            let sanitize = LeaseHolder::Sanitize(slot);
            [
                LeaseHolder::Command(slot),
                LeaseHolder::CopySource(slot),
                sanitize,
            ]
        };
        for holder in [0, 1, SLOTS_MAX - 1].into_iter().flat_map(holders) {
            assert_eq!(LeaseHolder::of(holder.lease()), holder);
        }
        let last = LeaseHolder::Sanitize(scsi::UNITS_MAX - 1);
        assert_eq!(LeaseHolder::of(last.lease()), last);
    }

    #[test]
    fn bursts_are_a_queue_that_goes_round() {
        let mut bursts = Bursts::default();
        for round in 0..5 {
            for at in 0..BURSTS_MAX as u64 {
                bursts.push_back(round * 100 + at);
            }
            assert_eq!(bursts.len(), BURSTS_MAX);
            for at in 0..BURSTS_MAX as u64 {
                assert_eq!(bursts.front(), Some(round * 100 + at));
                assert_eq!(bursts.pop_front(), Some(round * 100 + at));
            }
            assert!(bursts.is_empty() && bursts.pop_front().is_none());
            bursts.push_back(1);
            bursts.pop_front();
        }
    }
}
