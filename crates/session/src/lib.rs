//! What a runtime drives: a protocol's end of one connection, and the lists of what that end sends.
//!
//! On the path of a byte this crate stands between a runtime (`net` over sockets, `fabric` over
//! queue pairs) and a protocol core. It has no socket, queue pair, clock, lock or thread, and it
//! knows no command of any protocol.
//!
//! - [`Session`] — what every protocol's end of a connection does;
//! - [`StreamSession`] — how a runtime drives one that runs over a byte stream;
//! - [`MessageSession`] and [`WorkList`] — the same for one that runs over a queue pair (RDMA);
//! - [`Placement`] and [`SendList`] — *where* bytes to be sent are, so that they need not be
//!   copied;
//! - [`Leases`] — commands that wait for their volume;
//! - [`Buffers`] and [`HostWork`] — the memory of a host's own commands, and its queue pair;
//! - [`Pace`] — how many bytes a session receives at a time.

#![forbid(unsafe_code)]

mod buffers;
mod host_work;
mod leases;
mod message;
mod send;
mod session;
mod stream;
#[cfg(feature = "testing")]
pub mod testing;

pub use buffers::{BufferRange, Buffers, SlotMemory};
pub use host_work::{HostWork, Reach};
pub use leases::{Admitted, Leases, Resumed};
pub use message::{MessageSession, RemoteBuffer, RemoteKey, WorkList};
pub use send::{Placement, Segment, SendList, SourceId};
pub use session::Session;
pub use stream::{Pace, StreamSession};
