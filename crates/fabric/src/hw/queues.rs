//! The completion queues, and which of them raise events while the thread sleeps.
//!
//! A queue that is armed raises an event with its next completion, once. Arming, the event and the
//! wakeup cost more than the completion. So receives have a queue of their own, which is armed
//! before each sleep. The queue of requests is armed only if a connection waits for them, or after
//! a sleep in which nothing happened.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::queue_pair::{Cqs, Depths};
use super::verbs::{Channel, Context};
use crate::HwError;

/// The completion queues of a provider.
pub(super) struct Queues {
    pub(super) cqs: Cqs,
    /// The adapter cannot resize them.
    are_fixed: bool,
    pub(super) channel: Arc<Channel>,
    pub(super) watch: Watch,
}

/// Which queues raise events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Watch {
    receives_armed: bool,
    sends_armed: bool,
    /// Completions of requests may be noticed late.
    may_be_late: bool,
    /// They are late.
    is_late: bool,
}

/// Which queues are to be armed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ToArm {
    receives: bool,
    sends: bool,
}

impl Queues {
    /// Completions that there is room for at the start.
    const COMPLETIONS_MIN: u32 = 1024;
    /// The size of queues that cannot be resized: enough for hundreds of queues of 128 commands.
    const FIXED_COMPLETIONS_MAX: u32 = 1 << 16;

    /// Queues with room for `COMPLETIONS_MIN` each, or with their final size if the adapter cannot
    /// resize them.
    pub(super) fn new(context: &Arc<Context>) -> Result<Self, HwError> {
        let channel = Arc::new(Channel::new(context)?);
        let most = context.caps.completions_max;
        let at_first = Self::COMPLETIONS_MIN.min(most);
        let mut cqs = Cqs::new(&channel, at_first)?;
        let are_fixed = cqs
            .sends
            .resize(at_first)
            .is_err_and(|e| is_unsupported(&e));
        if are_fixed {
            cqs = Cqs::new(&channel, Self::FIXED_COMPLETIONS_MAX.min(most))?;
        }
        Ok(Self {
            cqs,
            are_fixed,
            channel,
            watch: Watch::default(),
        })
    }

    /// Makes room for `completions`, at most `most` per queue.
    pub(super) fn reserve(&self, completions: Depths, most: u32) -> Result<(), HwError> {
        let Cqs { sends, receives } = &self.cqs;
        for (cq, asked) in [(sends, completions.sends), (receives, completions.receives)] {
            let room = if self.are_fixed { cq.depth() } else { most };
            if asked > room {
                let what = "completions of all queue pairs";
                return Err(HwError::Room { what, asked, room });
            }
            if asked > cq.depth() {
                let longer = asked.checked_next_power_of_two().unwrap_or(room);
                cq.resize(longer.min(room))?;
            }
        }
        Ok(())
    }

    /// Arms the queues that are to raise events during the next sleep. Returns whether they must be
    /// polled again, since completions may have arrived before.
    pub(super) fn arm(&mut self) -> io::Result<bool> {
        let to_arm = self.watch.to_arm();
        if to_arm.receives {
            self.cqs.receives.arm()?;
            self.watch.receives_armed = true;
        }
        if to_arm.sends {
            self.cqs.sends.arm()?;
            self.watch.sends_armed = true;
        }
        Ok(to_arm.receives || to_arm.sends)
    }

    /// Takes the channel's notifications: at most one per queue.
    pub(super) fn take_notifications(&mut self) {
        while self.watch.receives_armed || self.watch.sends_armed {
            let Some(address) = self.channel.take_notification() else {
                return;
            };
            if address == self.cqs.receives.address() {
                self.watch.receives_armed = false;
            } else {
                self.watch.sends_armed = false;
            }
        }
    }
}

fn is_unsupported(error: &HwError) -> bool {
    let HwError::Call { error, .. } = error else {
        return false;
    };
    matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::ENOSYS))
}

impl Watch {
    /// The longest delay until completions of requests are noticed while no connection waits for
    /// them.
    const LATENESS_MAX: Duration = Duration::from_millis(1);

    pub(super) fn allow_late(&mut self, may_be_late: bool) {
        self.may_be_late = may_be_late;
    }

    /// Requests have been posted.
    pub(super) fn posted(&mut self) {
        self.is_late = false;
    }

    fn to_arm(self) -> ToArm {
        let awaits_sends = !self.may_be_late || self.is_late;
        ToArm {
            receives: !self.receives_armed,
            sends: awaits_sends && !self.sends_armed,
        }
    }

    /// The longest sleep, if the caller requests `at_most`.
    pub(super) fn limit(self, at_most: Duration) -> Duration {
        if self.sends_armed {
            at_most
        } else {
            at_most.min(Self::LATENESS_MAX)
        }
    }

    /// Nothing has happened while the thread slept.
    pub(super) fn slept_without_event(&mut self) {
        self.is_late = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    /// Arms as [`Queues::arm`] does.
    fn arm(watch: &mut Watch) -> ToArm {
        let to_arm = watch.to_arm();
        watch.receives_armed |= to_arm.receives;
        watch.sends_armed |= to_arm.sends;
        to_arm
    }

    #[test]
    fn both_queues_tell_where_somebody_waits_for_requests() {
        let mut watch = Watch::default();
        let both = ToArm {
            receives: true,
            sends: true,
        };
        assert_eq!(arm(&mut watch), both);
        assert_eq!(watch.limit(HOUR), HOUR);
    }

    #[test]
    fn what_is_armed_is_not_armed_again() {
        let mut watch = Watch::default();
        arm(&mut watch);
        let none = ToArm {
            receives: false,
            sends: false,
        };
        assert_eq!(arm(&mut watch), none);
    }

    #[test]
    fn unawaited_requests_raise_events_only_after_a_while() {
        let mut watch = Watch::default();
        watch.allow_late(true);
        watch.posted();
        let receives = ToArm {
            receives: true,
            sends: false,
        };
        assert_eq!(arm(&mut watch), receives);
        assert_eq!(watch.limit(HOUR), Watch::LATENESS_MAX);
        assert_eq!(watch.limit(Duration::ZERO), Duration::ZERO);
        watch.slept_without_event();
        let sends = ToArm {
            receives: false,
            sends: true,
        };
        assert_eq!(arm(&mut watch), sends);
        assert_eq!(watch.limit(HOUR), HOUR);
    }

    #[test]
    fn new_requests_begin_a_new_while() {
        let mut watch = Watch::default();
        watch.allow_late(true);
        watch.slept_without_event();
        watch.posted();
        assert!(!arm(&mut watch).sends);
        watch.allow_late(false);
        assert!(arm(&mut watch).sends);
    }
}
