//! NFS: version 3 with MOUNT and NLM, and version 4 (minor versions 0, 1 and 2), over a byte stream
//! and over queue pairs.
//!
//! On the path of a byte this crate stands between a runtime (`net`) and file trees: it cuts a
//! stream into RPC calls, checks them, turns them into operations of a [`file_tree::FileTree`], and
//! encodes the replies. It has no socket, clock, lock or thread, and knows no kind of tree. The
//! program around it implements [`Backend`] for each connection.
//!
//! - [`NfsSession`] — the server's end of one connection over a byte stream;
//! - [`rdma::RdmaSession`] — the same over a queue pair;
//! - [`DatagramSession`] — the same, version 3 alone, for a client that sends datagrams;
//! - [`Export`], [`ExportOptions`] — a tree and how clients may use it;
//! - [`Backend`] — what the session asks of the program;
//! - [`WaitingCall`], [`Answer`] — a call whose tree waits for storage, and its end;
//! - [`ReplyCache`] — replies to calls that must not be executed twice;
//! - [`Clients`] — what clients hold: sessions, opens, locks;
//! - [`Grant`] — the callback to a client whose lock was granted after a wait;
//! - [`LockHost`], [`RestartNotice`] — a client to notify of a restart, and the notification;
//! - [`Registration`] — registration with the machine's portmapper;
//! - [`Procedure`], [`Completed`] — what is counted.
//!
//! Inside, from the stream to the tree: `rpc` (record marking, calls, credentials, replies), `xdr`
//! (bounds-checked reading and writing), `mount`, `nlm`, `v3` and `v4` (procedures and operations),
//! `dispatch` (from a record to its reply), `waiting` (calls that other threads execute), `session`
//! (order, output and bounds).

#![forbid(unsafe_code)]

mod backend;
mod callbacks;
mod calls;
mod clients;
mod datagram;
mod dispatch;
mod error;
mod export;
mod mount;
mod nlm;
mod nsm;
mod procedure;
pub mod rdma;
mod reply_cache;
mod results;
mod rpc;
mod rpcbind;
mod session;
mod status4;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
mod v3;
mod v4;
mod waiting;
mod xdr;

pub use backend::{Backend, TRANSFER_BYTES_MAX};
pub use calls::{Answer, Completed, WaitingCall};
pub use clients::{ClientCounts, ClientInfo, ClientRecord, Clients, Grant, LockHost};
pub use datagram::{DATAGRAM_TRANSFER_BYTES_MAX, DatagramSession, answer_stranger};
pub use error::SessionError;
pub use export::{Export, ExportId, ExportOptions, Refusal, Squash};
pub use nsm::RestartNotice;
pub use procedure::Procedure;
pub use reply_cache::ReplyCache;
pub use rpcbind::{Change, IpProtocol, Registration};
pub use session::NfsSession;
