//! RoCEv2 in user space: reliable-connected queue pairs over UDP datagrams.
//!
//! - [`wire`] — the headers as bytes, field by field, and the invariant CRC;
//! - [`Endpoint`] — queue pairs (requester, completer, responder), regions and the connection
//!   manager of one thread;
//! - [`TransmitList`] — datagrams to send: headers in one buffer, payload in place, in batches for
//!   segmentation offload;
//! - [`Backend`] — what an end needs of the program around it: the bytes behind regions, and random
//!   numbers.
//!
//! The path of a byte: a received datagram is parsed and checked in place; its payload is copied
//! once, to the region or receive that it is for. Sent data are not copied at all: their checksum
//! is computed in place.
//!
//! ```
//! use roce::Flow;
//! use roce::wire::{Ipv4Identification, Packet, Psn, Qpn, verify};
//!
//! // An acknowledgement of packet 0x112233, as it came from the network.
//! let datagram = [
//!     0x11, 0x40, 0xFF, 0xFF, 0x00, 0x00, 0x00, 0x11, 0x00, 0x11, 0x22, 0x33, // base transport header
//!     0x1F, 0x00, 0x00, 0x01, // AETH: positive, one message completed
//!     0xD4, 0x68, 0xFF, 0x27, // invariant CRC
//! ];
//! let flow = Flow::new("10.9.0.2:49443".parse()?, "10.9.0.1:4791".parse()?).unwrap();
//! assert!(verify(flow, Ipv4Identification::Unknown, &datagram));
//! let packet = Packet::parse(&datagram)?;
//! assert_eq!((packet.bth.dest(), packet.bth.psn()), (Qpn::new(0x11), Psn::new(0x112233)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! What this crate must not know: sockets, clocks, threads, memory of volumes, random numbers.
//! Instants, random numbers and the bytes behind a region are arguments.

#![forbid(unsafe_code)]

mod backend;
mod cm;
mod config;
mod deadlines;
mod endpoint;
mod event;
mod flow;
mod memory;
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
pub use cm::{CmCounters, CmError, CmState, CmTransition, ConnectParams};
pub use config::{CmLimits, EndpointConfig};
pub use endpoint::{Counters, CreateError, Endpoint, Received};
pub use event::{ConnectRequest, Event};
pub use flow::Flow;
pub use memory::{MemoryId, MemoryRange};
pub use qp::{Connection, PostError, QpConfig, QpFailure, QpState, Transition};
pub use region::{Access, ProtectionDomain, Region, RegisterError};
pub use transmit::{Batch, Piece, TransmitList};
pub use work::{
    Completion, Data, Gather, Inline, MESSAGE_LEN_MAX_BYTES, MessageTooLong, RecvRequest, Remote,
    SendOp, SendRequest, Signal, WorkId, WorkKind, WorkStatus,
};
