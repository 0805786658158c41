//! The initiator's end of one iSCSI session: it logs in, sends commands, puts data into their
//! buffers, and returns outcomes.
//!
//! Read first: RFC 7143 §4.2 (sessions, numbering), §6.3 (login), §11 (PDUs).
//!
//! ```text
//!           last Login Response                    Logout Response, violation,
//!  Login ───────────────────────► FullFeature ────────────────────────────────► Closed
//!    └──── refused, violation ──────────────────────────────────────────────────►
//! ```
//!
//! A session has one connection, and recovery level 0: after any loss the owner creates another
//! session. It has no socket, clock or random numbers: the owner passes received bytes to
//! [`Session::handle_bytes`] and sends what [`Session::poll_transmit`] puts into a
//! [`SendList`](::session::SendList), whose placements are offsets into the session's
//! [`Buffers`](::session::Buffers).

mod config;
mod discovery;
mod error;
mod inbound;
mod login;
mod outbound;
mod pending;
mod receiver;
mod session;
mod table;
#[cfg(test)]
mod tests;

pub use self::config::SessionConfig;
pub use self::discovery::{DiscoveredTarget, PortalAddress, parse_targets};
pub use self::error::{LoginError, NotTaken, SessionError, Violation};
pub use self::session::{Event, Session};
pub use self::table::Abort;
