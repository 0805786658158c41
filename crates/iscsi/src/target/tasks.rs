//! The tasks of a connection, by slot, and the requests that may not start yet.

use std::collections::{BTreeMap, VecDeque};

use scsi::{COMMAND_SLOTS_MAX, LeaseHolder, Lun};
use session::Leases;

use super::task::Task;
use super::window::SessionWindow;
use crate::backend::Backend;
use crate::peer::COMMANDS_MAX;
use crate::window::order::{Attribute, WideCmdSn};
use crate::wire::{Bhs, NO_TASK_TAG};

/// Slots beyond the window, for immediate commands.
const IMMEDIATE_MAX: usize = 16;
/// The slots of commands.
pub(super) const SLOTS_MAX: usize = COMMANDS_MAX + IMMEDIATE_MAX;
const _: () = assert!(SLOTS_MAX <= COMMAND_SLOTS_MAX);
/// The most data-out that the commands of one connection gather together, bytes.
const GATHERS_MAX: u64 = 16 << 20;
/// The program is asked for room in steps of this many bytes, so that plain commands do not ask
/// each time.
const CHARGE_STEP: u64 = 256 << 10;

/// A numbered request that may not start yet.
#[derive(Debug)]
pub(super) enum EarlyRequest {
    /// The command in this slot.
    Command(usize),
    /// Another request, with its data.
    Control(Box<Bhs>, Vec<u8>),
}

/// The tasks of a connection, by slot.
pub(crate) struct Tasks {
    slots: Vec<Option<Task>>,
    /// The Initiator Task Tag of each slot; [`NO_TASK_TAG`] if it is free. A search reads only
    /// these.
    tags: Vec<u32>,
    generations: Vec<u16>,
    free: Vec<usize>,
    /// Slots with something to send, oldest first.
    ready: VecDeque<usize>,
    /// The leases of tasks and sanitize operations on volumes that take time, by [`LeaseHolder`].
    pub(super) leases: Leases,
    pub(super) window: SessionWindow,
    /// Requests that may not start yet.
    early: BTreeMap<WideCmdSn, EarlyRequest>,
    /// Requests among `early` that are not SCSI commands.
    early_controls: usize,
    /// Bytes that all tasks together may have to gather.
    gathers: u64,
    /// Bytes that the program was asked to have room for; at least `gathers`.
    charged: u64,
}

impl Tasks {
    /// The tasks of the connection with this number.
    pub(super) fn new(window: SessionWindow, connection: u64) -> Self {
        Self {
            slots: Vec::new(),
            tags: Vec::new(),
            generations: Vec::new(),
            free: Vec::new(),
            ready: VecDeque::new(),
            leases: Leases::new(connection),
            window,
            early: BTreeMap::new(),
            early_controls: 0,
            gathers: 0,
            charged: 0,
        }
    }

    /// Keeps a request until it may start.
    pub(super) fn keep(&mut self, cmd_sn: WideCmdSn, request: EarlyRequest) {
        self.early_controls += usize::from(matches!(request, EarlyRequest::Control(..)));
        self.early.insert(cmd_sn, request);
    }

    /// Whether any request waits until it may start.
    pub(super) fn has_early(&self) -> bool {
        !self.early.is_empty()
    }

    /// How many requests wait that are not SCSI commands.
    pub(super) fn early_controls(&self) -> usize {
        self.early_controls
    }

    /// The next request that may start. After a SCSI command, the caller calls
    /// [`SessionWindow::started`].
    pub(super) fn claim<B: Backend>(&mut self, backend: &mut B) -> Option<EarlyRequest> {
        let cmd_sn = self.window.claim(backend)?;
        let request = self.early.remove(&cmd_sn);
        let request = request.expect("a connection keeps its requests in the start queue");
        self.early_controls -= usize::from(matches!(request, EarlyRequest::Control(..)));
        Some(request)
    }

    /// The number that is expected next, if a later request waits for it.
    pub(super) fn gap<B: Backend>(&mut self, backend: &mut B) -> Option<WideCmdSn> {
        let (last, _) = self.early.last_key_value()?;
        let expected = self.window.expected(backend);
        (*last > expected).then_some(expected)
    }

    /// Ends all tasks without a response, and drops all requests that wait.
    pub(super) fn clear<B: Backend>(&mut self, backend: &mut B) {
        for slot in self.of_lun(None) {
            self.remove(slot, backend);
        }
        self.ready.clear();
        self.early.clear();
        self.early_controls = 0;
        self.window.leave(backend);
    }

    /// Whether there is no task at all.
    pub(super) fn is_empty(&self) -> bool {
        self.free.len() == self.slots.len()
    }

    /// Asks for room for a command that gathers `len_bytes`. Returns false if there is none.
    pub(super) fn make_room<B: Backend>(&mut self, len_bytes: u64, backend: &mut B) -> bool {
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

    /// Returns room that is no longer needed, once nothing is gathered.
    pub(super) fn return_room<B: Backend>(&mut self, backend: &mut B) {
        if self.gathers == 0 && self.charged > CHARGE_STEP && backend.charge(CHARGE_STEP) {
            self.charged = CHARGE_STEP;
        }
    }

    /// The slot of the next task; `None` if all are in use.
    #[inline]
    pub(super) fn next_slot(&mut self) -> Option<usize> {
        if self.free.is_empty() && self.slots.len() < SLOTS_MAX {
            self.free.push(self.slots.len());
            self.slots.push(None);
            self.tags.push(NO_TASK_TAG);
            self.generations.push(0);
        }
        self.free.last().copied()
    }

    /// Puts a task into the slot that [`next_slot`](Self::next_slot) returned.
    #[inline]
    pub(super) fn insert(&mut self, slot: usize, mut task: Task) {
        let next = self.free.pop();
        assert_eq!(next, Some(slot), "the slot is the next one");
        task.generation = self.generations[slot];
        self.gathers += task.gathers;
        self.tags[slot] = task.itt;
        self.slots[slot] = Some(task);
    }

    /// Replaces the task of a command that waited by the one of the started command. Returns the
    /// former.
    pub(super) fn replace(&mut self, slot: usize, mut task: Task) -> Option<Task> {
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
    pub(super) fn leases_and(&mut self, slot: usize) -> (&mut Leases, Option<&mut Task>) {
        let task = self.slots.get_mut(slot).and_then(Option::as_mut);
        (&mut self.leases, task)
    }

    /// Whether the task in a slot executes an EXTENDED COPY.
    pub(super) fn is_copying(&self, slot: usize) -> bool {
        self.get(slot).is_some_and(|task| task.copy().is_some())
    }

    pub(crate) fn get(&self, slot: usize) -> Option<&Task> {
        self.slots.get(slot)?.as_ref()
    }

    /// Frees a slot, if it is not free.
    pub(super) fn remove<B: Backend>(&mut self, slot: usize, backend: &mut B) {
        let Some(task) = self.slots.get(slot).and_then(Option::as_ref) else {
            return;
        };
        let gathers = task.gathers;
        match (&task.early, task.windowed) {
            (Some(early), _) => {
                let cmd_sn = early.cmd_sn;
                self.early.remove(&cmd_sn);
                self.window.end_early(cmd_sn, backend);
            }
            (None, Some(attribute)) => self.window.end(attribute, backend),
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

    /// A task that may not start yet is answered without being started.
    pub(super) fn withdraw<B: Backend>(&mut self, slot: usize, backend: &mut B) {
        let Some(task) = self.get_mut(slot) else {
            return;
        };
        if let Some(early) = task.early.take() {
            task.windowed = Some(Attribute::Simple);
            self.early.remove(&early.cmd_sn);
            self.window.withdraw(early.cmd_sn, backend);
        }
    }

    /// The slot of an Initiator Task Tag.
    pub(super) fn find(&self, itt: u32) -> Option<usize> {
        if itt == NO_TASK_TAG {
            return None;
        }
        self.tags.iter().position(|tag| *tag == itt)
    }

    /// The slots whose answers wait for what they did to reservations.
    pub(super) fn reserving(&self) -> Vec<usize> {
        let waits = |task: &Option<Task>| task.as_ref().is_some_and(Task::awaits_reservation);
        let slots = self.slots.iter().enumerate();
        slots
            .filter(|(_, task)| waits(task))
            .map(|(slot, _)| slot)
            .collect()
    }

    /// The slots of a LUN, or all.
    pub(super) fn of_lun(&self, lun: Option<Lun>) -> Vec<usize> {
        let of_lun = |task: &Task| lun.is_none_or(|lun| task.lun == lun);
        let slots = self.slots.iter().enumerate();
        slots
            .filter(|(_, task)| task.as_ref().is_some_and(of_lun))
            .map(|(slot, _)| slot)
            .collect()
    }

    /// R2Ts of all tasks whose data have not arrived.
    pub(crate) fn outstanding_r2ts(&self) -> usize {
        let tasks = self.slots.iter().flatten();
        tasks.map(|task| task.r2ts.len()).sum()
    }

    /// The Target Transfer Tag of a slot: never all ones, since slots are few.
    pub(crate) fn transfer_tag(&self, slot: usize) -> u32 {
        u32::from(self.generations[slot]) << 16 | slot as u32
    }

    /// The slot that a Target Transfer Tag names, if its task is still the same.
    pub(crate) fn by_transfer_tag(&self, tag: u32) -> Option<usize> {
        let slot = (tag & 0xFFFF) as usize;
        let is_same = self
            .generations
            .get(slot)
            .is_some_and(|generation| u32::from(*generation) == tag >> 16);
        (is_same && self.slots[slot].is_some()).then_some(slot)
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

    /// The next task to send.
    pub(crate) fn next_ready(&mut self) -> Option<usize> {
        self.ready_at(0)
    }

    /// The task to send after `index` others. Slots that were freed meanwhile are removed.
    pub(crate) fn ready_at(&mut self, index: usize) -> Option<usize> {
        while let Some(slot) = self.ready.get(index).copied() {
            if self.get(slot).is_some_and(|task| task.queued) {
                return Some(slot);
            }
            self.ready.remove(index);
        }
        None
    }

    /// The first task in the queue has nothing more to send for now.
    pub(crate) fn pop_ready(&mut self) {
        self.remove_ready(0);
    }

    /// The task behind `index` others has nothing more to send for now.
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
