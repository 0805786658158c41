//! Filters that any volume can have: delay, faults, rate limits. They act once per command, when it
//! is admitted.
//!
//! Each filter is a plain value and a state machine without clock or randomness: instants and seeds
//! are arguments, so that a test can replay what a user saw.

mod delay;
mod fault;
mod meter;
mod rate;

use std::time::Instant;

use block::{Admission, OpKind};

pub use delay::{Delay, Latency};
pub use fault::{Chance, Fault, FaultError, FaultRule, FaultStatus, FaultWhen};
pub use rate::{Rate, RateLimit};

/// The filters of a volume; none by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FilterSpec {
    /// Slows commands down.
    pub delay: Option<Delay>,
    /// Makes commands fail.
    pub fault: Option<Fault>,
    /// Limits commands and bytes per second.
    pub rate_limit: Option<RateLimit>,
}

impl FilterSpec {
    /// Whether there is no filter.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The state of a volume's filters.
#[derive(Debug, Default)]
pub(crate) struct Filters {
    spec: FilterSpec,
    delay: Option<delay::DelayState>,
    fault: Option<fault::FaultState>,
    rate_limit: Option<rate::RateLimitState>,
}

impl Filters {
    pub(crate) fn new(spec: FilterSpec) -> Self {
        Self {
            delay: spec.delay.map(delay::DelayState::new),
            fault: spec.fault.clone().map(fault::FaultState::new),
            rate_limit: spec.rate_limit.map(rate::RateLimitState::new),
            spec,
        }
    }

    pub(crate) fn spec(&self) -> &FilterSpec {
        &self.spec
    }

    /// Whether and when a command may complete. The rate limit is applied first, then the delay;
    /// both also apply to a command that fails.
    pub(crate) fn admit(&mut self, now: Instant, kind: OpKind, len_bytes: u64) -> Admission {
        let mut due = now;
        if let Some(rate_limit) = &mut self.rate_limit {
            due = rate_limit.admit(due, kind, len_bytes);
        }
        if let Some(delay) = &mut self.delay {
            due = delay.admit(due, kind, len_bytes);
        }
        let failure = self.fault.as_mut().and_then(|fault| fault.admit(kind));
        match failure {
            Some(status) => Admission::Fail(status.into(), (due > now).then_some(due)),
            None if due > now => Admission::NotBefore(due),
            None => Admission::Now,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;
    use std::time::Duration;

    use block::Status;

    use super::*;

    #[test]
    fn a_failing_command_waits_for_its_limit_and_delay_too() {
        let latency = Duration::from_millis(5);
        let per_second = NonZeroU64::new(10);
        let mut filters = Filters::new(FilterSpec {
            delay: Some(Delay {
                latency: Latency::same(latency),
                bytes_per_second: None,
            }),
            fault: Some(
                Fault::new(
                    1,
                    vec![FaultRule {
                        kind: None,
                        status: FaultStatus::Busy,
                        when: FaultWhen::EveryNth(NonZeroU64::MIN),
                    }],
                )
                .expect("one rule"),
            ),
            rate_limit: Some(RateLimit {
                all: Rate {
                    commands_per_second: per_second,
                    bytes_per_second: None,
                },
                ..RateLimit::default()
            }),
        });
        let now = Instant::now();
        let first = filters.admit(now, OpKind::Read, 512);
        assert_eq!(first, Admission::Fail(Status::Busy, Some(now + latency)));
        let second = filters.admit(now, OpKind::Read, 512);
        let due = now + Duration::from_millis(100) + latency;
        assert_eq!(second, Admission::Fail(Status::Busy, Some(due)));
    }

    #[test]
    fn no_filter_admits_at_once() {
        let mut filters = Filters::new(FilterSpec::default());
        assert!(filters.spec().is_empty());
        assert_eq!(
            filters.admit(Instant::now(), OpKind::Write, 1 << 20),
            Admission::Now
        );
    }
}
