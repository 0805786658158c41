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
mod command;
mod connection;
mod control;
pub mod initiator;
pub mod iser;
mod login;
mod order;
pub mod params;
mod task;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod text;
mod transmit;
mod waiting;
mod window;
pub mod wire;
mod work;

pub use backend::{Abort, AbortScope, Saved, Standing, TargetAddress, TargetRecord};
pub use backend::{Authentication, Backend, Completed, OpenError, Opened, SessionEnds};
pub use chap::{Algorithm, CHALLENGE_LEN, Challenge, ChapError, Credentials};
pub use connection::{Connection, LOGIN_TIMEOUT, PING_AFTER, PING_TIMEOUT, PeerError};
pub use login::{LoggedIn, LoginStatus, SessionKind};
pub use params::{Digest, Parameters, Phase, Unacceptable};
pub use task::COMMANDS_MAX;
pub use text::TextBuilder;
pub use transmit::SEND_LIST_MIN_BYTES;
pub use window::SharedSession;
