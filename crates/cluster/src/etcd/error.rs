//! Why etcd did not do what was asked.

use crate::url::EtcdUrl;

/// Why etcd did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum EtcdError {
    /// The client has no endpoints.
    #[error("no endpoint of etcd is known; give its URLs")]
    NoEndpoint,
    /// No endpoint answered. The error is the last one's.
    #[error(
        "no etcd answers, at last {url}: {reason}; check that most of its members run and are reachable"
    )]
    Unreachable {
        /// The endpoint.
        url: EtcdUrl,
        /// What happened.
        reason: String,
    },
    /// A change was sent and not answered: it may have been made, or may still be made.
    #[error(
        "etcd at {url} did not say whether the change was made: {reason}; look before you repeat it"
    )]
    OutcomeUnknown {
        /// The endpoint.
        url: EtcdUrl,
        /// What happened.
        reason: String,
    },
    /// etcd refused.
    #[error("etcd refused: {message}")]
    Refused {
        /// Its reason.
        message: String,
    },
    /// An answer has no known form.
    #[error("etcd's answer to {what} is not understood; use etcd 3.4 or later")]
    NotUnderstood {
        /// What was asked.
        what: &'static str,
    },
    /// The changes since a revision are no longer kept.
    #[error("changes before revision {oldest} are no longer kept; read the keys again")]
    Compacted {
        /// The oldest revision that can be followed.
        oldest: i64,
    },
}
