//! What the settings of a remote volume may be.

use std::time::Duration;

/// The most URLs of a volume.
pub const URLS_MAX: usize = 8;
/// The time limit of commands, unless another is chosen.
pub const IO_TIMEOUT_DEFAULT: Duration = Duration::from_secs(30);
pub(crate) const IO_TIMEOUT_MIN: Duration = Duration::from_secs(1);
pub(crate) const IO_TIMEOUT_MAX: Duration = Duration::from_secs(3600);
