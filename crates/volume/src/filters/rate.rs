//! Limits what a volume does per second: commands and bytes, of reads, of writes and of both.

use std::num::NonZeroU64;
use std::time::{Duration, Instant};

use block::OpKind;

use super::meter::Meter;

/// What may exceed the rate after a pause, as time at that rate. At least one command always may.
const CREDIT: Duration = Duration::from_millis(10);

/// What the bytes of one discard cost at most, as time at the rate. Creating a file system discards
/// the whole volume; charged in full, such a discard would be held back for longer than hosts wait
/// for any command.
const DISCARD_MAX: Duration = Duration::from_secs(1);

/// Limits per second. Flushes are not counted. Discards count as writes; the bytes of one discard
/// count at most as what may be written in a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RateLimit {
    /// Reads alone.
    pub reads: Rate,
    /// Writes and discards alone.
    pub writes: Rate,
    /// All of them together.
    pub all: Rate,
}

/// A limit of commands, of bytes, or of both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rate {
    /// Commands per second (IOPS).
    pub commands_per_second: Option<NonZeroU64>,
    /// Bytes of data per second.
    pub bytes_per_second: Option<NonZeroU64>,
}

#[derive(Debug)]
pub(super) struct RateLimitState {
    reads: RateState,
    writes: RateState,
    all: RateState,
}

impl RateLimitState {
    pub(super) fn new(limit: RateLimit) -> Self {
        Self {
            reads: RateState::new(limit.reads),
            writes: RateState::new(limit.writes),
            all: RateState::new(limit.all),
        }
    }

    /// When a command may complete.
    pub(super) fn admit(&mut self, now: Instant, kind: OpKind, len_bytes: u64) -> Instant {
        let (own, max) = match kind {
            OpKind::Read => (&mut self.reads, Duration::MAX),
            OpKind::Write => (&mut self.writes, Duration::MAX),
            OpKind::Discard => (&mut self.writes, DISCARD_MAX),
            OpKind::Flush => return now,
        };
        own.spend(now, len_bytes, max)
            .max(self.all.spend(now, len_bytes, max))
    }
}

#[derive(Debug)]
struct RateState {
    commands: Option<Meter>,
    bytes: Option<Meter>,
}

impl RateState {
    fn new(rate: Rate) -> Self {
        Self {
            commands: rate.commands_per_second.map(|per_second| {
                let one =
                    Duration::from_secs(1) / u32::try_from(per_second.get()).unwrap_or(u32::MAX);
                Meter::new(per_second, CREDIT.max(one))
            }),
            bytes: rate
                .bytes_per_second
                .map(|per_second| Meter::new(per_second, CREDIT)),
        }
    }

    /// `max` is what the bytes cost at most.
    fn spend(&mut self, now: Instant, len_bytes: u64, max: Duration) -> Instant {
        let commands = self.commands.as_mut().map(|meter| meter.spend(now, 1));
        let bytes = self.bytes.as_mut();
        let bytes = bytes.map(|meter| meter.spend_at_most(now, len_bytes, max));
        now.max(commands.unwrap_or(now)).max(bytes.unwrap_or(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Commands of `kind` that complete in ten seconds when 32 are always waiting.
    fn completed(limit: RateLimit, kinds: &[OpKind], len_bytes: u64) -> usize {
        let mut state = RateLimitState::new(limit);
        let start = Instant::now();
        let mut slots = [start; 32];
        (0..1_000_000)
            .position(|n: usize| {
                let slot = &mut slots[n % 32];
                *slot = state.admit(*slot, kinds[n % kinds.len()], len_bytes);
                *slot > start + Duration::from_secs(10)
            })
            .expect("a limit holds")
    }

    fn assert_near(got: usize, expected: usize) {
        assert!(
            got.abs_diff(expected) <= expected / 100,
            "{got} is not about {expected}"
        );
    }

    #[test]
    fn commands_and_bytes_keep_to_their_rates() {
        let commands = Rate {
            commands_per_second: NonZeroU64::new(1000),
            bytes_per_second: None,
        };
        let bytes = Rate {
            commands_per_second: None,
            bytes_per_second: NonZeroU64::new(4_096_000),
        };
        let reads = RateLimit {
            reads: commands,
            ..RateLimit::default()
        };
        assert_near(completed(reads, &[OpKind::Read], 512), 10_000);
        let writes = RateLimit {
            writes: bytes,
            ..RateLimit::default()
        };
        assert_near(completed(writes, &[OpKind::Write], 4096), 10_000);
        let all = RateLimit {
            all: commands,
            ..RateLimit::default()
        };
        assert_near(completed(all, &[OpKind::Read, OpKind::Write], 512), 10_000);
    }

    #[test]
    fn discards_are_charged_their_bytes_up_to_a_second_each() {
        let mut state = RateLimitState::new(RateLimit {
            all: Rate {
                commands_per_second: None,
                bytes_per_second: NonZeroU64::new(1 << 20),
            },
            ..RateLimit::default()
        });
        let now = Instant::now();
        let wait = |at: Instant| at.duration_since(now) + CREDIT;
        let half = state.admit(now, OpKind::Discard, 1 << 19);
        assert_eq!(wait(half), Duration::from_millis(500));
        let all = state.admit(now, OpKind::Discard, 50 << 30);
        assert_eq!(wait(all), Duration::from_millis(1500));
        let write = state.admit(now, OpKind::Write, 1 << 19);
        assert_eq!(wait(write), Duration::from_secs(2), "they share the rate");
    }

    #[test]
    fn a_limit_on_reads_leaves_writes_and_flushes_alone() {
        let mut state = RateLimitState::new(RateLimit {
            reads: Rate {
                commands_per_second: Some(NonZeroU64::MIN),
                bytes_per_second: None,
            },
            ..RateLimit::default()
        });
        let now = Instant::now();
        assert_eq!(
            state.admit(now, OpKind::Read, 512),
            now,
            "the first is credit"
        );
        assert_eq!(
            state.admit(now, OpKind::Read, 512),
            now + Duration::from_secs(1)
        );
        for kind in [OpKind::Write, OpKind::Discard, OpKind::Flush] {
            assert_eq!(state.admit(now, kind, 1 << 30), now);
        }
    }
}
