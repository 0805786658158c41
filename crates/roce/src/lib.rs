//! RoCEv2 in user space: reliable-connected queue pairs over UDP datagrams.
//!
//! - [`wire`] — the headers as bytes, field by field, and the invariant CRC;
//! - [`Endpoint`] — queue pairs (requester, completer, responder), regions and the connection manager of one thread;
//! - [`TransmitList`] — what is to be sent: headers in one buffer, payload where it is, in batches for segmentation offload;
//! - [`Backend`] — what an end asks of the program around it: the bytes behind regions, and random numbers.
//!
//! The path of a byte: a received datagram is cut and checked in place; what it carries is copied once, to the region or receive
//! that it is for. What is sent is not copied at all: its checksum is taken where it lies.
//!
//! What this crate refuses to know: sockets, clocks, threads, memory of volumes, random numbers. Instants, random numbers
//! and the bytes behind a region are arguments.

#![forbid(unsafe_code)]

mod backend;
mod cm;
mod deadlines;
mod endpoint;
mod event;
mod flow;
mod qp;
mod region;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
mod transmit;
pub mod wire;
mod work;

pub use backend::{AtomicOp, Backend, MemoryFault};
pub use cm::{CmCounters, CmError, CmLimits, CmState, CmTransition, ConnectParams};
pub use endpoint::{Counters, CreateError, Endpoint, EndpointConfig, Received};
pub use event::{ConnectRequest, Event};
pub use flow::Flow;
pub use qp::{PostError, QpConfig, QpFailure, QpState, Transition};
pub use region::{Access, ProtectionDomain, Region, RegisterError};
pub use transmit::{Batch, TransmitList};
pub use work::{
    Completion, Data, Gather, Inline, MESSAGE_LEN_MAX_BYTES, MessageTooLong, RecvRequest, Remote,
    SendOp, SendRequest, Signal, WorkId, WorkKind, WorkStatus,
};
