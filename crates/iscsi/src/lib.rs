//! iSCSI (RFC 7143) and iSER (RFC 7145) without sockets, both ends: PDUs, login, CHAP, negotiation,
//! tasks.
//!
//! The target's ends ([`tcp::TargetSession`], [`iser::TargetSession`]) are between a transport and
//! the `scsi` device server; the initiator's end ([`initiator::Session`]) between commands of
//! `scsi::host` and a byte stream. They know sessions, connections and tasks. They must not know
//! sockets, clocks, locks, random numbers and kinds of volumes.
//!
//! Each module imports only modules above it:
//!
//! | module | contents |
//! |---|---|
//! | [`wire`] | PDU headers |
//! | [`text`], [`params`], `chap` | key=value pairs, negotiation, authentication |
//! | `peer`, `framing` | bounds and errors of peers; PDUs in a send list |
//! | `window` | the command window of a session, which the program shares between its connections |
//! | `backend` | [`Backend`]: what a connection needs from the program |
//! | `login` | the login phase |
//! | `target` | the core: a connection in full feature phase, whatever the transport |
//! | [`tcp`], [`iser`] | the transports of a target |
//! | [`initiator`] | the initiator's end, which needs only `wire`, `text`, `params`, `chap` and `framing` |
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
mod framing;
pub mod initiator;
pub mod iser;
mod login;
pub mod params;
mod peer;
mod target;
pub mod tcp;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod text;
mod window;
pub mod wire;

pub use backend::{Abort, LoggedIn, Saved, SessionKind, SessionState, TargetAddress, TargetRecord};
pub use backend::{Authentication, Backend, Completed, OpenError, Opened, SessionEnds};
pub use chap::{Algorithm, CHALLENGE_LEN, Challenge, ChapError, Credentials};
pub use params::{Digest, Parameters, Phase};
pub use peer::{COMMANDS_MAX, LOGIN_TIMEOUT, PING_AFTER, PING_TIMEOUT, PeerError};
pub use text::{TextBuilder, Unacceptable};
pub use window::CommandWindow;
pub use window::order::AbortScope;
pub use wire::login::LoginStatus;
