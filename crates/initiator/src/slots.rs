//! The slots of a queue: which command each carries, and how far it is.

use std::time::{Duration, Instant};

use block::{Blocks, Extent, Lba};
use nvme::host::{CommandKey, Outcome};
use nvme::wire::{Status, StatusCode};

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
    /// The status of the half of a fused pair that ended first.
    first_half: Option<Status>,
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
            first_half: None,
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
        entry.first_half = None;
    }

    /// The command has to start anew.
    pub(crate) fn hold(&mut self, slot: u16) {
        self.entries[usize::from(slot)].phase = Phase::Waiting;
    }

    pub(crate) fn fail(&mut self, slot: u16, error: CommandError) -> Completion {
        self.entries[usize::from(slot)].phase = Phase::Idle;
        self.busy -= 1;
        Completion {
            slot: Slot(slot),
            result: Err(error),
        }
    }

    /// A command of the session has ended; `None` where it is a half of a fused pair whose other half has not.
    pub(crate) fn end(&mut self, outcome: &Outcome, second_keys: CommandKey) -> Option<Completion> {
        let key = outcome.key.0;
        let slot = if key < second_keys.0 {
            key
        } else {
            key - second_keys.0
        };
        let entry = &mut self.entries[usize::from(slot)];
        let mut status = outcome.status;
        if entry.request.operation == Operation::CompareAndWrite {
            match entry.first_half.take() {
                None => {
                    entry.first_half = Some(status);
                    return None;
                }
                Some(first) => status = pair_status(first, status),
            }
        }
        entry.phase = Phase::Idle;
        self.busy -= 1;
        Some(Completion {
            slot: Slot(slot),
            result: if status.is_success() {
                Ok(())
            } else {
                Err(CommandError::Status(status))
            },
        })
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

/// The status of a pair: of the half that failed of its own accord.
fn pair_status(first: Status, second: Status) -> Status {
    let is_follower = first.code() == Some(StatusCode::AbortedFailedFused);
    if first.is_success() || (is_follower && !second.is_success()) {
        second
    } else {
        first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_half_that_failed_gives_the_status_of_a_pair() {
        let failed = Status::from(StatusCode::CompareFailure);
        let follower = Status::from(StatusCode::AbortedFailedFused);
        let ok = Status::SUCCESS;
        assert_eq!(pair_status(ok, ok), ok);
        assert_eq!(pair_status(failed, follower), failed);
        assert_eq!(pair_status(follower, failed), failed);
        assert_eq!(pair_status(ok, failed), failed);
        assert_eq!(pair_status(follower, ok), follower);
    }

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
        slots.fail(1, CommandError::ConnectionLost);
        assert_eq!(slots.sweep(late, timeout), None);
    }
}
