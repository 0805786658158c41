//! The target: a session's commands, from COMMAND to REPLY, and its record of replies. Knows no
//! transport.
//!
//! Read first: docs/brp.md, "Messages", "Reconnect and replay".
//!
//! ```text
//!             begin               data … data_done           (filters)
//!  COMMAND ──┬──────► Receiving ─────────────┬─────────────► Held ──┐
//!            │                               ├─► Working ───────────┤        (without ANY_ORDER:
//!            ├───────────────────────────────┤                      ▼         those before it)
//!            └─► (errors, reads, no data) ───┴───────────────────► Done ──► Ready ──► retire_front ──► Free
//!
//!  on volumes that take time: Filling, or Keeping while data of the command arrive, before Receiving, Working or Done;
//!  Settling before Held or Done. `Stage::next` has the whole table.
//! ```
//!
//! [`Connection`](connection) adds login, keep-alive, events and the end of a connection. The
//! transport beside it (`tcp`) moves bytes.

mod backend;
mod commands;
pub(crate) mod connection;
mod data;
mod join;
mod merge;
mod record;
mod slot;
mod waiting;
mod work;

pub use backend::{Backend, Completed, LogIn, LoginRequest, Permission, Standing, UnitRef};
pub(crate) use commands::{Begun, Commands, Given};
pub use connection::{SessionError, TargetConfig};
pub use merge::Merge;
pub use record::SessionRecord;
pub(crate) use slot::Payload;

/// A command in flight, by its tag: an index of the session's slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Tag(pub(crate) u16);

impl Tag {
    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }
}
