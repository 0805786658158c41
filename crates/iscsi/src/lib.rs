//! iSCSI (RFC 7143) without sockets, both ends: PDUs, login, CHAP, negotiation, tasks.
//!
//! The target's end ([`Connection`]) stands between a byte stream and the `scsi` device server; the initiator's end
//! ([`initiator::Session`]) between commands of `scsi::host` and a byte stream. They know sessions, connections and
//! tasks. They refuse to know sockets, clocks, random numbers and volumes' kinds.
//!
//! ```
//! use iscsi::{Parameters, Phase, TextBuilder};
//! let mut parameters = Parameters::default();
//! let mut answer = TextBuilder::default();
//! parameters.negotiate(Phase::LeadingLogin, "InitialR2T", "No", &mut answer).unwrap();
//! assert_eq!(answer.into_bytes(), b"InitialR2T=No\0");
//! assert!(!parameters.initial_r2t);
//! ```

#![forbid(unsafe_code)]

mod backend;
mod chap;
pub mod initiator;
pub mod iser;
mod login;
pub mod params;
mod target;
mod tcp;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod text;
mod window;
pub mod wire;

pub use backend::{Abort, AbortScope, Saved, Standing, TargetAddress, TargetRecord};
pub use backend::{Authentication, Backend, Completed, OpenError, Opened, SessionEnds};
pub use chap::{Algorithm, CHALLENGE_LEN, Challenge, ChapError, Credentials};
pub use login::{LoggedIn, LoginStatus, SessionKind};
pub use params::{Digest, Parameters, Phase, Unacceptable};
pub use target::COMMANDS_MAX;
pub use tcp::SEND_LIST_MIN_BYTES;
pub use tcp::{Connection, LOGIN_TIMEOUT, PING_AFTER, PING_TIMEOUT, PeerError};
pub use text::TextBuilder;
pub use window::SharedSession;
