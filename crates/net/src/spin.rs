//! How long a reactor that has run out of work polls before it sleeps.
//!
//! Waking a sleeping thread costs several microseconds on both sides, so under load it pays to look again for a
//! while. How long is learnt: the span doubles when work came while polling or soon after falling asleep, halves
//! when polling was in vain, and ends at nothing, so that an idle reactor only sleeps. A machine of one processor never
//! polls: that would only keep the processor from whoever has work to send.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use crate::poller::Wait;

/// The state of one reactor's polling. At first it does not poll at all.
#[derive(Debug)]
pub struct Spin {
    span: Duration,
    span_max: Duration,
    /// When the present quiet began.
    quiet_since: Option<Instant>,
    /// When the reactor fell asleep, until it wakes with work.
    asleep_since: Option<Instant>,
}

/// The first span, and the least above nothing.
const SPAN_MIN: Duration = Duration::from_micros(50);
/// The longest span.
const SPAN_MAX: Duration = Duration::from_micros(400);
/// Work that comes so soon after falling asleep would have been worth polling for.
const REGRET: Duration = Duration::from_micros(150);

/// Whether the machine has one processor alone, whatever this process is bound to.
static IS_UNIPROCESSOR: LazyLock<bool> = LazyLock::new(|| {
    let online = std::fs::read_to_string("/sys/devices/system/cpu/online");
    online.is_ok_and(|online| online.trim() == "0")
});

impl Default for Spin {
    fn default() -> Self {
        Self::new(if *IS_UNIPROCESSOR {
            Duration::ZERO
        } else {
            SPAN_MAX
        })
    }
}

impl Spin {
    fn new(span_max: Duration) -> Self {
        Self {
            span: Duration::ZERO,
            span_max,
            quiet_since: None,
            asleep_since: None,
        }
    }

    /// There was work.
    pub fn worked(&mut self, now: Instant) {
        if let Some(asleep) = self.asleep_since.take() {
            if now.duration_since(asleep) < REGRET {
                self.lengthen();
            }
        } else if self.quiet_since.is_some() && !self.span.is_zero() {
            self.lengthen();
        }
        self.quiet_since = None;
    }

    /// There was none: whether to look again at once or to sleep, `due` at the latest.
    pub fn idle(&mut self, now: Instant, due: Option<Instant>) -> Wait {
        let since = *self.quiet_since.get_or_insert(now);
        if self.asleep_since.is_none() {
            if now.duration_since(since) < self.span {
                return Wait::Poll;
            }
            self.shorten();
            self.asleep_since = Some(now);
        }
        match due {
            Some(due) => Wait::AtMost(due.saturating_duration_since(now)),
            None => Wait::Forever,
        }
    }

    fn lengthen(&mut self) {
        self.span = (self.span * 2).max(SPAN_MIN).min(self.span_max);
    }

    fn shorten(&mut self) {
        self.span /= 2;
        if self.span < SPAN_MIN {
            self.span = Duration::ZERO;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: Duration = Duration::from_micros(1);

    /// Lets work come every `gap`, `times` times, and returns for how long of that the reactor polled.
    fn polled(spin: &mut Spin, start: Instant, gap: Duration, times: u32) -> Duration {
        let mut polled = Duration::ZERO;
        for turn in 0..times {
            let worked_at = start + gap * turn;
            spin.worked(worked_at);
            let mut now = worked_at;
            while now < worked_at + gap {
                match spin.idle(now, None) {
                    Wait::Poll => {
                        polled += US;
                        now += US;
                    }
                    Wait::AtMost(_) | Wait::Forever => break,
                }
            }
        }
        polled
    }

    #[test]
    fn steady_work_is_polled_for() {
        let mut spin = Spin::new(SPAN_MAX);
        let start = Instant::now();
        polled(&mut spin, start, 20 * US, 10);
        let later = start + 200 * US;
        assert_eq!(polled(&mut spin, later, 20 * US, 100), 2000 * US);
    }

    #[test]
    fn rare_work_is_slept_for() {
        let mut spin = Spin::new(SPAN_MAX);
        let start = Instant::now();
        polled(&mut spin, start, 20 * US, 100);
        let later = start + Duration::from_secs(1);
        let rare = polled(&mut spin, later, 10_000 * US, 100);
        assert!(rare < 1000 * US, "polled {rare:?} of a second");
        assert_eq!(spin.span, Duration::ZERO);
    }

    #[test]
    fn a_sleep_ends_when_a_timer_is_due() {
        let mut spin = Spin::new(SPAN_MAX);
        let now = Instant::now();
        let due = now + Duration::from_millis(3);
        assert_eq!(
            spin.idle(now, Some(due)),
            Wait::AtMost(Duration::from_millis(3))
        );
        assert_eq!(spin.idle(due + US, Some(due)), Wait::AtMost(Duration::ZERO));
    }

    #[test]
    fn one_processor_is_left_to_whoever_has_work_to_send() {
        let mut spin = Spin::new(Duration::ZERO);
        let start = Instant::now();
        assert_eq!(polled(&mut spin, start, 20 * US, 100), Duration::ZERO);
    }
}
