//! Volumes: RAM, and the filters that any volume can wear.
//!
//! On the data path a volume stands between a protocol core and memory: it checks extents against
//! its geometry, refuses what its state forbids, and turns blocks into bytes of a
//! [`memory::Store`]. It knows no protocol, no socket and no clock: instants come as arguments.
//!
//! ```
//! use std::sync::Arc;
//! use block::{Blocks, Extent, Lba, Op, ReadDest, Volume};
//! use volume::{Budget, RamSpec, RamVolume};
//!
//! let budget = Arc::new(Budget::new(64 << 20));
//! let spec = RamSpec::thin("50G".parse()?);
//! let disk = RamVolume::new(spec, &budget)?;
//! let extent = Extent::new(Lba(100), Blocks(1));
//! disk.execute(Op::Write { extent, data: &[7; 512] })?;
//! let mut read = [0; 512];
//! disk.execute(Op::Read { extent, dest: ReadDest::Copy(&mut read) })?;
//! assert_eq!(read, [7; 512]);
//! assert_eq!(disk.allocated_bytes(), 2 << 20);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

pub mod filters;
mod ram;
mod size;

pub use memory::{
    Budget, Charge, HostMemory, MemoryError, NoSuchProvision, Overcommit, PagePolicy, Progress,
    Provision, huge_bytes_in_use,
};
pub use ram::{Availability, RamSpec, RamVolume, SpecError, VolumeError, WriteLock};
pub use size::{ByteSize, SizeError};
