//! Slows a volume down: a latency per kind of command, and a bandwidth.

use std::num::NonZeroU64;
use std::time::{Duration, Instant};

use block::OpKind;

use super::meter::Meter;

/// By how much a volume is slowed down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delay {
    /// Added to each command.
    pub latency: Latency,
    /// Data of reads and writes (including copies) are transferred one after the other at this
    /// rate. Discards carry no data.
    pub bytes_per_second: Option<NonZeroU64>,
}

/// A latency per kind of command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// Of reads, verifies, compares.
    pub read: Duration,
    /// Of all commands that write.
    pub write: Duration,
    /// Of discards.
    pub discard: Duration,
    /// Of flushes.
    pub flush: Duration,
}

impl Latency {
    /// The same latency for every kind.
    pub const fn same(latency: Duration) -> Self {
        Self {
            read: latency,
            write: latency,
            discard: latency,
            flush: latency,
        }
    }

    /// The latency of a kind.
    pub const fn of(&self, kind: OpKind) -> Duration {
        match kind {
            OpKind::Read => self.read,
            OpKind::Write => self.write,
            OpKind::Discard => self.discard,
            OpKind::Flush => self.flush,
        }
    }
}

#[derive(Debug)]
pub(super) struct DelayState {
    latency: Latency,
    pipe: Option<Meter>,
}

impl DelayState {
    pub(super) fn new(delay: Delay) -> Self {
        Self {
            latency: delay.latency,
            pipe: delay
                .bytes_per_second
                .map(|rate| Meter::new(rate, Duration::ZERO)),
        }
    }

    /// When a command that could complete at `now` completes.
    pub(super) fn admit(&mut self, now: Instant, kind: OpKind, len_bytes: u64) -> Instant {
        let through = match (&mut self.pipe, kind) {
            (Some(pipe), OpKind::Read | OpKind::Write) => pipe.spend(now, len_bytes),
            _ => now,
        };
        through + self.latency.of(kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_its_latency_and_data_queue_for_the_pipe() {
        let ms = Duration::from_millis;
        let mut state = DelayState::new(Delay {
            latency: Latency {
                read: ms(1),
                write: ms(2),
                discard: ms(3),
                flush: ms(4),
            },
            bytes_per_second: NonZeroU64::new(1 << 20),
        });
        let now = Instant::now();
        let half = 1 << 19;
        assert_eq!(state.admit(now, OpKind::Read, half), now + ms(501));
        assert_eq!(state.admit(now, OpKind::Write, half), now + ms(1002));
        assert_eq!(state.admit(now, OpKind::Discard, half), now + ms(3));
        assert_eq!(state.admit(now, OpKind::Flush, 0), now + ms(4));
    }
}
