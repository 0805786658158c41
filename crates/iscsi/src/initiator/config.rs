//! How a session is set up.

use scsi::Lun;

use crate::chap::{CHALLENGE_LEN, Credentials};
use crate::params::Digest;

/// The most R2Ts of one command at once (MaxOutstandingR2T).
pub(super) const R2TS_MAX: u8 = 4;

/// The purpose of a session, and how it logs in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionConfig {
    /// InitiatorName.
    pub initiator: String,
    /// TargetName; `None` for a discovery session.
    pub target: Option<String>,
    /// The logical unit that every command is for.
    pub lun: Lun,
    /// ISID, which no other session of this initiator to this target has.
    pub isid: [u8; 6],
    /// What the initiator proves by CHAP if the target requests it.
    pub credentials: Option<Credentials>,
    /// What the target has to prove by CHAP; needs `credentials`.
    pub target_credentials: Option<Credentials>,
    /// Random bytes: the identifier and the challenge that the target has to answer.
    pub challenge: [u8; 1 + CHALLENGE_LEN],
    /// Whether header digests are requested.
    pub header_digest: Digest,
    /// Whether data digests are requested.
    pub data_digest: Digest,
    /// Keys go from 0 to this less one; at most [`Session::KEYS_MAX`](super::Session::KEYS_MAX).
    pub keys: u16,
}
