//! The waist between protocols and volumes.
//!
//! A protocol core (NVMe, SCSI, …) turns what a peer sends into [`Op`]s on a [`Volume`] and turns the
//! [`Status`] that comes back into its own words. A volume knows no protocol; a protocol knows no kind of
//! volume; neither knows sockets, threads or clocks. What both may say to each other is on this page:
//!
//! - [`units`](Lba) — logical block addresses, counts, block sizes, extents;
//! - [`Op`] and [`Volume`] — what can be asked of a volume;
//! - [`Placement`] and [`SendList`] — *where* bytes to be sent are, so that they need not be copied;
//! - [`Buffers`] — the memory of a host's own commands;
//! - [`StreamSession`] — how a runtime drives a protocol that runs over a byte stream;
//! - [`MessageSession`] and [`WorkList`] — the same for a protocol that runs over a queue pair (RDMA);
//! - [`HostIdentity`] and [`Access`] — the vocabulary of the one access check.
//!
//! ```
//! use block::{Blocks, BlockSize, Extent, Geometry, Lba};
//! let disk = Geometry::new(BlockSize::B512, Blocks(2048));
//! let bytes = disk.byte_range(Extent::new(Lba(2047), Blocks(1))).unwrap();
//! assert_eq!((bytes.offset, bytes.len), (2047 * 512, 512));
//! assert!(disk.byte_range(Extent::new(Lba(2047), Blocks(2))).is_err());
//! ```

#![forbid(unsafe_code)]

mod access;
mod buffers;
mod message;
mod op;
mod send;
mod session;
#[cfg(feature = "testing")]
pub mod testing;
mod units;
mod volume;

pub use access::{Access, HostIdentity};
pub use buffers::{BufferRange, Buffers, SlotMemory};
pub use message::{MessageSession, RemoteBuffer, RemoteKey, WorkList};
pub use op::{Admission, Op, OpKind, ReadDest, Status, Unmap};
pub use send::{Placement, RegionId, Segment, SendList};
pub use session::{Pace, StreamSession};
pub use units::{BlockSize, Blocks, ByteRange, Extent, Geometry, Lba};
pub use volume::{Allocation, RawSpan, Volume};
