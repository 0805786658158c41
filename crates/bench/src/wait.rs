//! How a thread waits for completions.

use std::time::Duration;

use initiator::WaitStrategy;
use serde::{Serialize, Serializer};

/// How a thread waits for completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Polls without pause: the shortest latency, for a whole core.
    Spin,
    /// Sleeps in the kernel until something completes.
    Sleep,
    /// Polls for this long, then sleeps.
    Adaptive(Duration),
}

impl From<Wait> for WaitStrategy {
    fn from(wait: Wait) -> Self {
        match wait {
            Wait::Spin => Self::Spin,
            Wait::Sleep => Self::Sleep,
            Wait::Adaptive(spin) => Self::SpinThenSleep(spin),
        }
    }
}

impl Serialize for Wait {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Spin => serializer.serialize_str("spin"),
            Self::Sleep => serializer.serialize_str("sleep"),
            Self::Adaptive(_) => serializer.serialize_str("adaptive"),
        }
    }
}

/// The longest sleep of a thread before it reads the clock again.
pub(crate) const SLEEP_MAX: Duration = Duration::from_millis(50);
