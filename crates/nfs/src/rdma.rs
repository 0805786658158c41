//! NFS over RDMA: RPC-over-RDMA version 1.
//!
//! Read first: RFC 8166 sections 3 and 4, RFC 8267 section 2, RFC 8797 section 4.
//!
//! - [`RdmaSession`] — the server's end of one connection over a queue pair;
//! - [`accept`] — the answer to a connection request;
//! - [`wire`] — headers and private data.
//!
//! Inside: `chunks` (the lists of a header), `slot` (a call that arrives), `inbound` (RDMA READs of
//! a call's data), and
//! `outbound` (RDMA WRITEs of a reply's data, and messages).

mod chunks;
mod inbound;
mod outbound;
mod session;
mod slot;
#[cfg(test)]
mod tests;
mod waiting;
pub mod wire;

pub use session::{Accepted, RdmaSession, SessionError, accept};
