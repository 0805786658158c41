//! The SCSI RDMA Protocol (SRP): SCSI commands as messages of a queue pair, whose data the target
//! moves by RDMA.
//!
//! Read first: T10/1415-D (SRP revision 16a): request limit, data buffer descriptors, information
//! units. Immediate data are of SRP-2. Initiators over the RDMA connection manager,
//! as Linux's ib_srp, log in with the private data of their connection request.
//!
//! - [`wire`] — information units as bytes, field by field;
//! - [`target`] — a channel's tasks and their data;
//! - [`initiator`] — the other end of a channel, for our own hosts;
//! - [`Backend`] — what a channel's target needs from the program.
//!
//! The target stands between a runtime of queue pairs and the `scsi` device server, the initiator
//! between `scsi::host` and the queue pairs of crate `initiator`. Neither may know queue pairs,
//! clocks, locks, threads and kinds of volumes.

#![forbid(unsafe_code)]

mod backend;
pub mod initiator;
pub mod target;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod wire;

pub use backend::{Abort, Backend, Completed, Saved, Standing};
