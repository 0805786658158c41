//! How long a reactor that has run out of work polls before it sleeps.
//!
//! Waking a sleeping thread costs several microseconds on both sides, so under load it pays to poll
//! for a while. The polling time adapts: it doubles if work arrived while polling or soon after
//! falling asleep, and halves if polling found none, down to zero, so that an idle reactor only
//! sleeps.
//!
//! On a machine with one processor, polling would block the threads that produce work. There a
//! reactor yields the processor between two polls and then handles all work that others have
//! produced, without a wake-up. If another thread keeps the processor, the reactor sleeps instead
//! of yielding for the next second: a thread that is woken gets the processor sooner than one that
//! has yielded.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use crate::poller::Wait;

/// The state of one reactor's polling. At first it does not poll at all.
#[derive(Debug)]
pub struct Spin {
    span: Duration,
    between: BetweenLooks,
    /// Until then the processor is not yielded, because another thread kept it.
    barred_until: Option<Instant>,
    /// When the present quiet began.
    quiet_since: Option<Instant>,
    /// When the reactor fell asleep, until it wakes with work.
    asleep_since: Option<Instant>,
}

/// What is done between two polls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BetweenLooks {
    Nothing,
    Yield,
}

/// The first span, and the least above nothing.
const SPAN_MIN: Duration = Duration::from_micros(50);
/// The longest span.
const SPAN_MAX: Duration = Duration::from_micros(400);
/// Work that comes so soon after falling asleep would have been worth polling for.
const REGRET: Duration = Duration::from_micros(150);
/// If yielding takes this long, another thread kept the processor. Threads that serve or send I/O
/// return it far sooner.
const KEPT: Duration = Duration::from_millis(1);
/// How long it is not yielded then.
const BARRED: Duration = Duration::from_secs(1);

/// Whether the machine has one processor alone, whatever this process is bound to.
static IS_UNIPROCESSOR: LazyLock<bool> = LazyLock::new(|| {
    let online = std::fs::read_to_string("/sys/devices/system/cpu/online");
    online.is_ok_and(|online| online.trim() == "0")
});

impl Default for Spin {
    fn default() -> Self {
        Self::new(if *IS_UNIPROCESSOR {
            BetweenLooks::Yield
        } else {
            BetweenLooks::Nothing
        })
    }
}

impl Spin {
    const fn new(between: BetweenLooks) -> Self {
        Self {
            span: Duration::ZERO,
            between,
            barred_until: None,
            quiet_since: None,
            asleep_since: None,
        }
    }

    /// There was work.
    pub fn worked(&mut self, now: Instant) {
        if let Some(asleep) = self.asleep_since.take() {
            if now.duration_since(asleep) < REGRET {
                self.lengthen(now);
            }
        } else if self.quiet_since.is_some() && !self.span.is_zero() {
            self.bar_if_kept(now);
            self.lengthen(now);
        }
        self.quiet_since = None;
    }

    /// There was none: whether to look again at once or to sleep, `due` at the latest.
    pub fn idle(&mut self, now: Instant, due: Option<Instant>) -> Wait {
        let since = *self.quiet_since.get_or_insert(now);
        if self.asleep_since.is_none() {
            if now.duration_since(since) < self.span {
                if self.between == BetweenLooks::Yield {
                    std::thread::yield_now();
                }
                return Wait::Poll;
            }
            self.bar_if_kept(now);
            self.shorten();
            self.asleep_since = Some(now);
        }
        match due {
            Some(due) => Wait::AtMost(due.saturating_duration_since(now)),
            None => Wait::Forever,
        }
    }

    fn lengthen(&mut self, now: Instant) {
        if self.barred_until.is_none_or(|until| until <= now) {
            self.span = (self.span * 2).max(SPAN_MIN).min(SPAN_MAX);
        }
    }

    fn shorten(&mut self) {
        self.span /= 2;
        if self.span < SPAN_MIN {
            self.span = Duration::ZERO;
        }
    }

    /// Ends polling for some time if the processor was yielded while idle and another thread kept
    /// it.
    fn bar_if_kept(&mut self, now: Instant) {
        let is_kept = |since| now.duration_since(since) >= KEPT;
        let has_yielded = self.between == BetweenLooks::Yield && !self.span.is_zero();
        if has_yielded && self.quiet_since.is_some_and(is_kept) {
            self.span = Duration::ZERO;
            self.barred_until = Some(now + BARRED);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: Duration = Duration::from_micros(1);

    /// Lets work come every `gap`, `times` times, and returns for how long of that the reactor
    /// polled.
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
        let mut spin = Spin::new(BetweenLooks::Nothing);
        let start = Instant::now();
        polled(&mut spin, start, 20 * US, 10);
        let later = start + 200 * US;
        assert_eq!(polled(&mut spin, later, 20 * US, 100), 2000 * US);
    }

    #[test]
    fn rare_work_is_slept_for() {
        let mut spin = Spin::new(BetweenLooks::Nothing);
        let start = Instant::now();
        polled(&mut spin, start, 20 * US, 100);
        let later = start + Duration::from_secs(1);
        let rare = polled(&mut spin, later, 10_000 * US, 100);
        assert!(rare < 1000 * US, "polled {rare:?} of a second");
        assert_eq!(spin.span, Duration::ZERO);
    }

    #[test]
    fn a_sleep_ends_when_a_timer_is_due() {
        let mut spin = Spin::new(BetweenLooks::Nothing);
        let now = Instant::now();
        let due = now + Duration::from_millis(3);
        assert_eq!(
            spin.idle(now, Some(due)),
            Wait::AtMost(Duration::from_millis(3))
        );
        assert_eq!(spin.idle(due + US, Some(due)), Wait::AtMost(Duration::ZERO));
    }

    /// A reactor that polls for work and had an empty poll a millisecond ago; and the current time.
    fn back_after_a_look(between: BetweenLooks) -> (Spin, Instant) {
        let mut spin = Spin::new(between);
        let start = Instant::now();
        assert_eq!(polled(&mut spin, start, 20 * US, 11), 200 * US);
        let looked = start + 220 * US;
        spin.worked(looked);
        assert_eq!(spin.idle(looked, None), Wait::Poll);
        (spin, looked + 1000 * US)
    }

    #[test]
    fn a_processor_that_somebody_keeps_is_not_yielded_for_a_second() {
        let (mut spin, mut now) = back_after_a_look(BetweenLooks::Yield);
        spin.worked(now);
        assert_eq!(polled(&mut spin, now, 20 * US, 49_999), Duration::ZERO);
        now += Duration::from_secs(1);
        assert!(polled(&mut spin, now, 20 * US, 10) > 100 * US);
    }

    #[test]
    fn it_is_the_same_where_it_is_got_back_without_work() {
        let (mut spin, now) = back_after_a_look(BetweenLooks::Yield);
        assert_eq!(spin.idle(now, None), Wait::Forever);
        assert_eq!(polled(&mut spin, now, 20 * US, 100), Duration::ZERO);
    }

    #[test]
    fn a_processor_of_several_is_polled_on_however_late_it_is_got_back() {
        let (mut spin, now) = back_after_a_look(BetweenLooks::Nothing);
        spin.worked(now);
        assert_eq!(polled(&mut spin, now, 20 * US, 100), 2000 * US);
    }
}
