//! The tasks of a channel, by slot.

use std::collections::VecDeque;

use scsi::{COMMAND_SLOTS_MAX, LeaseHolder, Lun};
use session::Leases;

use super::places::Places;
use super::task::{Progress, Task};
use crate::backend::Backend;
use crate::wire::Tag;

/// The most data and tables that the commands of one channel hold together, bytes.
const HOLDS_MAX_BYTES: u64 = 16 << 20;
/// The program is asked for room in steps of this many bytes, so that few commands ask.
const CHARGE_STEP_BYTES: u64 = 256 << 10;

/// The tasks of a channel, by slot.
pub(super) struct Tasks {
    slots: Vec<Option<Task>>,
    /// The tag of each slot's task, unless that was aborted. A search reads only these.
    tags: Vec<Option<Tag>>,
    /// Where the data of each slot's task are.
    places: Vec<Places>,
    generations: Vec<u16>,
    free: Vec<usize>,
    /// Slots with something to post, oldest first.
    ready: VecDeque<usize>,
    /// Slots of commands that may not start yet, oldest first.
    blocked: VecDeque<usize>,
    /// How many tasks are ORDERED.
    ordered: usize,
    /// The number of the last task.
    last_number: u64,
    /// The leases of tasks and sanitize operations, by [`LeaseHolder`].
    pub(super) leases: Leases,
    /// Requests that have ended, and that no response has told the initiator of.
    pub(super) owed: u32,
    holds_bytes: u64,
    /// Bytes that the program was asked to have room for; at least `holds_bytes`.
    charged_bytes: u64,
}

/// The numbers of the oldest task and the oldest ORDERED one that were not aborted; `u64::MAX` if
/// no task is ORDERED.
#[derive(Clone, Copy)]
struct Oldest {
    task: u64,
    ordered: u64,
}

impl Tasks {
    /// Room for `count` tasks of the channel with this number.
    pub(super) fn new(count: u16, connection: u64) -> Self {
        let count = usize::from(count);
        assert!(
            count <= COMMAND_SLOTS_MAX,
            "a request limit is within bounds"
        );
        Self {
            slots: (0..count).map(|_| None).collect(),
            tags: vec![None; count],
            places: (0..count).map(|_| Places::default()).collect(),
            generations: vec![0; count],
            free: (0..count).rev().collect(),
            ready: VecDeque::with_capacity(count),
            blocked: VecDeque::new(),
            ordered: 0,
            last_number: 0,
            leases: Leases::new(connection),
            owed: 0,
            holds_bytes: 0,
            charged_bytes: 0,
        }
    }

    /// How many slots are in use.
    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Asks for room for a command that holds `len_bytes`. Returns false if there is none.
    fn make_room<B: Backend>(&mut self, len_bytes: u64, backend: &mut B) -> bool {
        let want = self.holds_bytes + len_bytes;
        if want <= self.charged_bytes {
            return true;
        }
        let charge = want.next_multiple_of(CHARGE_STEP_BYTES);
        let has_room = charge <= HOLDS_MAX_BYTES && backend.charge(charge);
        if has_room {
            self.charged_bytes = charge;
        }
        has_room
    }

    /// Makes a task hold `len_bytes` more. It ends with TASK SET FULL if there is no room; returns
    /// whether there is.
    pub(super) fn hold<B: Backend>(
        &mut self,
        slot: usize,
        len_bytes: u64,
        backend: &mut B,
    ) -> bool {
        let has_room = self.make_room(len_bytes, backend);
        let Some(task) = self.slots.get_mut(slot).and_then(Option::as_mut) else {
            return false;
        };
        if has_room {
            task.holds_bytes += len_bytes;
            self.holds_bytes += len_bytes;
        } else {
            self.holds_bytes -= task.holds_bytes;
            task.fail_for_room();
        }
        has_room
    }

    /// Returns room that is no longer needed, once nothing is held.
    pub(super) fn return_room<B: Backend>(&mut self, backend: &mut B) {
        if self.holds_bytes == 0
            && self.charged_bytes > CHARGE_STEP_BYTES
            && backend.charge(CHARGE_STEP_BYTES)
        {
            self.charged_bytes = CHARGE_STEP_BYTES;
        }
    }

    /// Puts a task into a free slot; `None` if all are in use.
    pub(super) fn insert(&mut self, mut task: Task) -> Option<usize> {
        let slot = self.free.pop()?;
        task.generation = self.generations[slot];
        self.last_number += 1;
        task.number = self.last_number;
        self.tags[slot] = Some(task.tag);
        self.ordered += usize::from(task.is_ordered);
        self.slots[slot] = Some(task);
        Some(slot)
    }

    pub(super) fn get(&self, slot: usize) -> Option<&Task> {
        self.slots.get(slot)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, slot: usize) -> Option<&mut Task> {
        self.slots.get_mut(slot)?.as_mut()
    }

    /// A task, and where its data are.
    pub(super) fn with_places(&mut self, slot: usize) -> Option<(&mut Task, &mut Places)> {
        let task = self.slots.get_mut(slot)?.as_mut()?;
        Some((task, &mut self.places[slot]))
    }

    /// The leases of all tasks, and a task.
    pub(super) fn leases_and(&mut self, slot: usize) -> (&mut Leases, Option<&mut Task>) {
        let task = self.slots.get_mut(slot).and_then(Option::as_mut);
        (&mut self.leases, task)
    }

    /// The slot of a tag whose task was not aborted.
    pub(super) fn find(&self, tag: Tag) -> Option<usize> {
        self.tags.iter().position(|other| *other == Some(tag))
    }

    /// The slots of the tasks that were not aborted, of a LUN or of all.
    pub(super) fn of_lun(&self, lun: Option<Lun>) -> Vec<usize> {
        let is_meant = |task: &Task| {
            task.progress() != Progress::Aborted && lun.is_none_or(|lun| task.lun == lun)
        };
        self.slots_where(is_meant)
    }

    /// The slots of the tasks for which `is_meant`.
    pub(super) fn slots_where(&self, is_meant: impl Fn(&Task) -> bool) -> Vec<usize> {
        let slots = self.slots.iter().enumerate();
        slots
            .filter(|(_, task)| task.as_ref().is_some_and(&is_meant))
            .map(|(slot, _)| slot)
            .collect()
    }

    /// Whether RDMA READs of aborted tasks are outstanding.
    pub(super) fn has_aborted(&self) -> bool {
        let mut tasks = self.slots.iter().flatten();
        tasks.any(|task| task.progress() == Progress::Aborted)
    }

    /// Ends a task without a response, or after it. Its slot stays in use until its reads are done.
    pub(super) fn remove(&mut self, slot: usize) {
        if !self.leases.is_empty() {
            for holder in [LeaseHolder::Command(slot), LeaseHolder::CopySource(slot)] {
                self.leases.release(holder.lease());
            }
        }
        let Some(task) = self.slots.get_mut(slot).and_then(Option::as_mut) else {
            return;
        };
        self.holds_bytes -= std::mem::take(&mut task.holds_bytes);
        if std::mem::take(&mut task.queued) {
            self.ready.retain(|other| *other != slot);
        }
        self.tags[slot] = None;
        if task.reads > 0 {
            if task.progress() != Progress::Aborted {
                task.enter(Progress::Aborted);
                task.gathered = Vec::new();
            }
            return;
        }
        self.ordered -= usize::from(task.is_ordered);
        if task.progress() == Progress::Waiting {
            self.unblock(slot);
        }
        self.slots[slot] = None;
        self.places[slot].clear();
        self.generations[slot] = self.generations[slot].wrapping_add(1);
        self.free.push(slot);
        self.owed += 1;
    }

    /// Makes a command wait until others have ended.
    pub(super) fn block(&mut self, slot: usize) {
        self.blocked.push_back(slot);
    }

    pub(super) fn has_blocked(&self) -> bool {
        !self.blocked.is_empty()
    }

    /// Whether a command may start now. HEAD OF QUEUE starts at once, an ORDERED command after all
    /// that arrived before it, any other after the ORDERED ones that arrived before it.
    pub(super) fn may_start(&self, slot: usize) -> bool {
        self.may_start_after(slot, self.oldest())
    }

    fn may_start_after(&self, slot: usize, oldest: Oldest) -> bool {
        self.get(slot).is_some_and(|task| {
            let first = if task.is_ordered {
                oldest.task
            } else {
                oldest.ordered
            };
            task.is_head || task.number <= first
        })
    }

    fn oldest(&self) -> Oldest {
        let mut oldest = Oldest {
            task: u64::MAX,
            ordered: u64::MAX,
        };
        if self.ordered == 0 {
            return oldest;
        }
        let tasks = self.slots.iter().flatten();
        for task in tasks.filter(|task| task.progress() != Progress::Aborted) {
            oldest.task = oldest.task.min(task.number);
            if task.is_ordered {
                oldest.ordered = oldest.ordered.min(task.number);
            }
        }
        oldest
    }

    /// The first blocked command that may start now. It is not blocked any more.
    pub(super) fn take_unblocked(&mut self) -> Option<usize> {
        let oldest = self.oldest();
        let mut blocked = self.blocked.iter();
        let index = blocked.position(|slot| self.may_start_after(*slot, oldest))?;
        self.blocked.remove(index)
    }

    /// A task has ended while it was blocked.
    pub(super) fn unblock(&mut self, slot: usize) {
        self.blocked.retain(|other| *other != slot);
    }

    /// Marks a task as having something to post.
    pub(super) fn queue(&mut self, slot: usize) {
        if let Some(task) = self.get_mut(slot)
            && !task.queued
        {
            task.queued = true;
            self.ready.push_back(slot);
        }
    }

    /// The task to serve after `index` others. Slots that were freed meanwhile are removed.
    pub(super) fn ready_at(&mut self, index: usize) -> Option<usize> {
        while let Some(slot) = self.ready.get(index).copied() {
            if self.get(slot).is_some_and(|task| task.queued) {
                return Some(slot);
            }
            self.ready.remove(index);
        }
        None
    }

    /// The task behind `index` others has nothing more to post for now.
    pub(super) fn remove_ready(&mut self, index: usize) {
        if let Some(slot) = self.ready.remove(index)
            && let Some(task) = self.get_mut(slot)
        {
            task.queued = false;
        }
    }

    pub(super) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }
}
