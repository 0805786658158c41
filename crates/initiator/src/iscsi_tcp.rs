//! iSCSI: one session of one connection per queue.

mod credentials;
mod discover;
mod link;
mod login;

use self::login::Plan;
use crate::attached::Attached;
use crate::{ConnectError, DeviceOptions, Url, scsi_sessions};

pub use self::discover::{TargetRecord, discover_targets};

/// Attaches to the logical unit that `url` names.
pub(crate) fn attach(url: &Url, options: &DeviceOptions) -> Result<Attached, ConnectError> {
    scsi_sessions::attach(Plan::new(url, options)?)
}
