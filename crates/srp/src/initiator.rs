//! The initiator's end of a channel.
//!
//! ```text
//!  login (connection request and reply)
//!  channel ── table (commands in flight, their tags and keys)
//!          └─ response (what an SRP_RSP means)
//! ```
//!
//! [`request`] makes the login, [`Terms`] is what the target grants, and [`InitiatorSession`] is
//! the open channel. It carries the commands of [`scsi::host`].

mod channel;
mod error;
mod login;
mod response;
mod table;
#[cfg(test)]
mod tests;

pub use channel::{Event, InitiatorSession, RECEIVE_LEN_BYTES, RECEIVES_EXTRA};
pub use error::{Abort, InitiatorError, NoRoom};
pub use login::{LoginError, MESSAGE_LEN_MAX_BYTES, Terms, request};
