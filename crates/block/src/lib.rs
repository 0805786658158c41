//! The waist between protocols and volumes.
//!
//! A protocol core (NVMe, SCSI, …) converts a peer's commands into [`Op`]s on a [`Volume`] and the
//! resulting [`Status`] into its own status codes. A volume knows no protocol; a protocol knows no
//! kind of volume; neither knows sockets, threads or clocks. This crate has their interface:
//!
//! - [`units`](Lba) — logical block addresses, counts, block sizes, extents;
//! - [`Op`] and [`Volume`] — the operations of a volume;
//! - [`Ticket`] and [`Completions`] — how a volume that is not ready at once reports that later;
//! - [`Lane`] — how a volume drives its device in the thread of the command;
//! - [`HostPath`] — which machine executes the commands on a volume that several machines offer;
//! - [`Pinned`] — memory of a volume that can be sent from where it lies;
//! - [`HostIdentity`] and [`Access`] — the vocabulary of the one access check;
//! - [`Stranger`] — which peer makes room, of those that have yet to pass it.
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
mod host_path;
mod lane;
mod op;
mod status;
mod strangers;
#[cfg(feature = "testing")]
pub mod testing;
mod ticket;
mod units;
mod volume;

pub use access::{Access, HostIdentity};
pub use host_path::{HostPath, PathState};
pub use lane::{Lane, LaneOpener};
pub use op::{Admission, DataUse, Intent, Op, OpKind, Persistence, ReadDest, Unmap};
pub use status::Status;
pub use strangers::{Stranger, network_of, oldest_of_the_greediest};
pub use ticket::{Completion, Completions, Settled, Ticket};
pub use units::{BlockSize, Blocks, ByteRange, Extent, Geometry, Lba};
pub use volume::{Allocation, Pinned, RawSpan, Volume, WriteCache};
