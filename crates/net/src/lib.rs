//! Reactors: a thread per core, sockets, mailboxes.
//!
//! The path of a byte: a [`Reactors::listen`]ing socket accepts a connection and passes it to the
//! reactor with the fewest (`reactor`). In its turn (`connection`) the reactor receives what has
//! come into one buffer that all its connections share, gives it to the session
//! ([`session::StreamSession`]), asks the session for what is to be sent, and sends it with one
//! call, gathered from the session's bytes and from volumes' memory (`gather`). A connection whose
//! peer does not read is not read either, and holds at most one send list. When nothing is left to
//! do, the reactor polls for a while that it learns (`spin`), and then sleeps in the poller.
//!
//! A connection whose protocol has TLS begins with an [`tls::Entry`]: then its bytes pass through
//! records on both ways (`channel`).
//!
//! Threads that drive connections of another kind (RDMA's queue pairs) use the same [`parts`], and
//! join the reactors as [`ExternalDriver`]s, so that callers can wake or close a connection without
//! knowing its kind.
//!
//! Beside that stands [`UdpSocket`], datagrams in runs for RDMA in software.
//!
//! What this crate must not know: protocols, targets, access rights.
//!
//! # Why the unsafe code here is sound
//!
//! In `gather`, pointers go to `sendmsg`, and the rest of a block, or all that is to be encrypted,
//! is copied from them. They point to byte slices that are borrowed across the call, or to volume
//! memory between [`block::Pinned::pin`] and its `unpin`, which promise that it stays mapped and
//! unwritten; a guard unpins however the scope is left. No Rust reference to volume memory is made.
//! `thread_clock` calls the system with pointers to its own variables. `udp` has its own argument.

mod background;
mod channel;
mod connection;
mod driven;
mod event_set;
mod external_drivers;
mod gate;
mod gather;
mod grace;
mod listener;
mod mailbox;
mod poller;
mod reactors;
mod slots;
mod spin;
mod thread_clock;
mod timers;
mod udp;

#[cfg(test)]
mod tests;

pub use background::{Background, enter_background};
pub use driven::{
    Accepted, Acceptor, Attachment, CloseReason, Driven, DrivenStream, Joined, ListenerId,
    LoginProgress, Refused, drive,
};
pub use external_drivers::{ExternalDriver, Membership};
pub use grace::GracePeriod;
pub use reactors::{ReactorHandle, ReactorOptions, Reactors, StartError, Threads};
pub use slots::ConnectionId;
pub use thread_clock::ThreadUsage;
/// The parts of a reactor, for threads that drive connections of another kind.
pub mod parts {
    pub use crate::event_set::EventSet;
    pub use crate::gate::{ConnectionPlace, Gate, GateBounds, HalfOpen, Handshake};
    pub use crate::mailbox::{Mail, Mailbox};
    pub use crate::poller::Wait;
    pub use crate::reactors::GraceMember;
    pub use crate::slots::Slots;
    pub use crate::spin::Spin;
    pub use crate::thread_clock::ThreadClock;
    pub use crate::timers::Timers;
}

pub use udp::{Instruction, TooLong, UdpArrival, UdpOptions, UdpRun, UdpSocket};
