//! NFS: version 3 with MOUNT, over a byte stream and over queue pairs.
//!
//! On the path of a byte this crate stands between a runtime (`net`) and file trees: it cuts a
//! stream into RPC calls, checks them, turns them into operations of a [`file_tree::FileTree`], and
//! encodes the replies. It has no socket, clock, lock or thread, and knows no kind of tree. The
//! program around it implements [`Backend`] for each connection.
//!
//! - [`NfsSession`] — the server's end of one connection over a byte stream;
//! - [`rdma::RdmaSession`] — the same over a queue pair;
//! - [`Export`], [`ExportOptions`] — a tree and how clients may use it;
//! - [`Backend`] — what the session asks of the program;
//! - [`ReplyCache`] — replies to calls that must not be executed twice;
//! - [`Procedure`], [`Completed`] — what is counted.
//!
//! Inside, from the stream to the tree: `rpc` (record marking, calls, credentials, replies), `xdr`
//! (bounds-checked reading and writing), `mount` and `v3` (procedures), `dispatch` (from a record
//! to its reply), `session` (order, output and bounds).

#![forbid(unsafe_code)]

mod backend;
mod dispatch;
mod error;
mod export;
mod mount;
mod procedure;
pub mod rdma;
mod reply_cache;
mod rpc;
mod session;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
mod v3;
mod xdr;

pub use backend::{Backend, Completed};
pub use error::SessionError;
pub use export::{Export, ExportId, ExportOptions, Refusal, Squash};
pub use procedure::Procedure;
pub use reply_cache::ReplyCache;
pub use session::NfsSession;
