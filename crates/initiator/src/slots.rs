//! The slots of a queue: which command each carries, and how far it is.

use std::time::{Duration, Instant};

use block::{Blocks, Extent, Lba};

use crate::{CommandError, Completion, Operation, Request, Slot};

/// A queue's slots, taken once.
#[derive(Debug)]
pub(crate) struct Slots {
    entries: Box<[Entry]>,
    busy: usize,
    /// The time of the last sweep: close enough for commands that start before the next.
    clock: Option<Instant>,
}

#[derive(Clone, Debug)]
struct Entry {
    phase: Phase,
    request: Request,
    /// The time of the sweep before the command started.
    since: Option<Instant>,
}

/// How far a slot's command is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Idle,
    Waiting,
    InFlight,
}

impl Slots {
    pub(crate) fn new(depth: u16) -> Self {
        let entries = (0..depth).map(|slot| Entry {
            phase: Phase::Idle,
            request: Request {
                slot: Slot(slot),
                operation: Operation::Flush,
                extent: Extent::new(Lba(0), Blocks(0)),
            },
            since: None,
        });
        Self {
            entries: entries.collect(),
            busy: 0,
            clock: None,
        }
    }

    pub(crate) fn busy(&self) -> usize {
        self.busy
    }

    pub(crate) fn is_idle(&self, slot: u16) -> bool {
        self.entries[usize::from(slot)].phase == Phase::Idle
    }

    pub(crate) fn is_in_flight(&self, slot: u16) -> bool {
        self.entries[usize::from(slot)].phase == Phase::InFlight
    }

    pub(crate) fn request(&self, slot: u16) -> &Request {
        &self.entries[usize::from(slot)].request
    }

    pub(crate) fn occupy(&mut self, slot: u16, request: Request) {
        let entry = &mut self.entries[usize::from(slot)];
        entry.request = request;
        entry.phase = Phase::Waiting;
        self.busy += 1;
    }

    pub(crate) fn start(&mut self, slot: u16) {
        let entry = &mut self.entries[usize::from(slot)];
        entry.phase = Phase::InFlight;
        entry.since = self.clock;
    }

    /// The command has to start again.
    pub(crate) fn hold(&mut self, slot: u16) {
        self.entries[usize::from(slot)].phase = Phase::Waiting;
    }

    /// The slot's command has ended.
    pub(crate) fn end(&mut self, slot: u16, result: Result<(), CommandError>) -> Completion {
        self.entries[usize::from(slot)].phase = Phase::Idle;
        self.busy -= 1;
        Completion {
            slot: Slot(slot),
            result,
        }
    }

    /// The slot's command gets as much time again.
    pub(crate) fn give_time(&mut self, slot: u16) {
        self.entries[usize::from(slot)].since = self.clock;
    }

    /// Finds a command that has been in flight for more than `timeout`.
    pub(crate) fn sweep(&mut self, now: Instant, timeout: Duration) -> Option<Slot> {
        self.clock = Some(now);
        self.entries
            .iter_mut()
            .filter(|entry| entry.phase == Phase::InFlight)
            .find_map(|entry| {
                let since = *entry.since.get_or_insert(now);
                (now.saturating_duration_since(since) > timeout).then_some(entry.request.slot)
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_late_after_the_timeout_and_not_before() {
        let mut slots = Slots::new(2);
        let began = Instant::now();
        let timeout = Duration::from_secs(5);
        let request = *slots.request(1);
        assert_eq!(slots.sweep(began, timeout), None);
        slots.occupy(1, request);
        slots.start(1);
        assert_eq!(slots.sweep(began + timeout, timeout), None);
        let late = began + timeout + Duration::from_secs(1);
        assert_eq!(slots.sweep(late, timeout), Some(Slot(1)));
        slots.end(1, Err(CommandError::ConnectionLost));
        assert_eq!(slots.sweep(late, timeout), None);
    }
}
