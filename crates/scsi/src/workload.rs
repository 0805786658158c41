//! What a transport's connection executes in time slices.

use std::collections::VecDeque;
use std::time::Instant;

use session::{Admitted, Leases, Resumed};

use crate::lease::LeaseHolder;
use crate::response::Response;
use crate::sanitize::SanitizeWork;
use crate::turn::{Step, Turn};

/// Something to execute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkItem {
    /// A command, by its slot and the slot's generation; it may have ended meanwhile.
    Command(usize, u16),
    /// A sanitize operation by its number.
    Sanitize(usize),
}

/// How a sanitize operation begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SanitizeBegun {
    /// What the volume answers to its command.
    pub admitted: Admitted,
    /// Whether the command waits for the end of the operation.
    pub waits: bool,
}

/// A sanitize operation, which outlives its command.
struct Sanitizing {
    work: Box<SanitizeWork>,
    /// The command that waits for its end, by its slot and the slot's generation; it may have ended
    /// meanwhile.
    command: Option<(usize, u16)>,
}

/// The commands of a connection that are being executed, and the rest of its time slice. Those that
/// wait for a volume are not in the queue.
#[derive(Default)]
pub struct Workload {
    queue: VecDeque<WorkItem>,
    /// Sanitize operations that are not over, by number: at most one for each logical unit, and
    /// those whose logical unit was removed since the last time slice.
    sanitizing: Vec<Option<Sanitizing>>,
    /// What is left of the time slice.
    pub turn: Turn,
    began: Option<Instant>,
}

impl Workload {
    /// A time slice begins: input has arrived, or the time of the next slice.
    pub fn start_turn(&mut self, now: Instant) {
        self.began = Some(now);
        self.turn = Turn::new();
    }

    /// Input has arrived that may be one of many at the same instant. Together they have one time
    /// slice.
    pub fn continue_turn(&mut self, now: Instant) {
        if self.began != Some(now) {
            self.start_turn(now);
        }
    }

    /// Whether there is nothing to execute or to wait for.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.sanitizing.is_empty()
    }

    /// Queues a command.
    pub fn queue_command(&mut self, slot: usize, generation: u16) {
        self.queue.push_back(WorkItem::Command(slot, generation));
    }

    /// The next item, if the time slice is not over: what has waited longest.
    pub fn next_item(&mut self) -> Option<WorkItem> {
        if self.turn.is_over() {
            return None;
        }
        self.queue.pop_front()
    }

    /// Begins the sanitize operation of a command, by its slot and the slot's generation, unless
    /// the volume refuses it.
    pub fn begin_sanitizing(
        &mut self,
        mut work: Box<SanitizeWork>,
        command: (usize, u16),
        leases: &mut Leases,
        now: Instant,
    ) -> SanitizeBegun {
        let free = self.sanitizing.iter().position(Option::is_none);
        let number = free.unwrap_or(self.sanitizing.len());
        let admitted = match work.admit(now, leases, LeaseHolder::Sanitize(number).lease()) {
            refused @ Admitted::Fail(..) => {
                return SanitizeBegun {
                    admitted: refused,
                    waits: false,
                };
            }
            // The command itself holds no lease, but a filter holds it back.
            Admitted::NotBefore(at) | Admitted::Leased(Some(at)) | Admitted::Filling(Some(at)) => {
                Admitted::NotBefore(at)
            }
            Admitted::Now | Admitted::Leased(None) | Admitted::Filling(None) => Admitted::Now,
        };
        let waits = !work.is_immediate();
        if !work.is_waiting() {
            self.queue.push_back(WorkItem::Sanitize(number));
        }
        if free.is_none() {
            self.sanitizing.push(None);
        }
        self.sanitizing[number] = Some(Sanitizing {
            work,
            command: waits.then_some(command),
        });
        SanitizeBegun { admitted, waits }
    }

    /// Executes a sanitize operation for the rest of the time slice. Once it is over, returns its
    /// result and the command that waits for it.
    pub fn sanitize(
        &mut self,
        number: usize,
        leases: &mut Leases,
    ) -> Option<(Response, (usize, u16))> {
        let sanitizing = self.sanitizing.get_mut(number)?.as_mut()?;
        let lease = LeaseHolder::Sanitize(number).lease();
        let response = match sanitizing.work.go_on(&mut self.turn, leases, lease) {
            Step::More => {
                self.queue.push_back(WorkItem::Sanitize(number));
                return None;
            }
            Step::Waits => return None,
            Step::Over(response) => response,
        };
        leases.release(lease);
        let command = self.end_sanitizing(number)?;
        Some((response, command))
    }

    /// The volume of a sanitize operation has answered. Returns whether the operation is not over.
    pub fn resume_sanitizing(&mut self, number: usize, resumed: Resumed) -> bool {
        let Some(Some(sanitizing)) = self.sanitizing.get_mut(number) else {
            return false;
        };
        sanitizing.work.resume(resumed);
        self.queue.push_back(WorkItem::Sanitize(number));
        true
    }

    /// The numbers of the sanitize operations that wait for their volume.
    pub fn waiting_sanitizing(&self) -> Vec<usize> {
        let all = self.sanitizing.iter().enumerate();
        let is_waiting = |other: &Option<Sanitizing>| {
            let sanitizing = other.as_ref();
            sanitizing.is_some_and(|sanitizing| sanitizing.work.is_waiting())
        };
        all.filter(|(_, other)| is_waiting(other))
            .map(|(number, _)| number)
            .collect()
    }

    /// Removes a sanitize operation that is over. Returns the command that waits for it.
    fn end_sanitizing(&mut self, number: usize) -> Option<(usize, u16)> {
        let ended = self.sanitizing.get_mut(number)?.take()?;
        while let Some(None) = self.sanitizing.last() {
            self.sanitizing.pop();
        }
        ended.command
    }

    /// Takes all sanitize operations, with their numbers, and drops the rest.
    pub fn take_sanitizing(&mut self) -> impl Iterator<Item = (usize, Box<SanitizeWork>)> + use<> {
        self.queue.clear();
        let all = std::mem::take(&mut self.sanitizing).into_iter();
        all.enumerate()
            .filter_map(|(number, sanitizing)| Some((number, sanitizing?.work)))
    }

    /// The instant of the next time slice: at once if there is work.
    pub fn due(&self) -> Option<Instant> {
        self.began.filter(|_| !self.queue.is_empty())
    }
}
