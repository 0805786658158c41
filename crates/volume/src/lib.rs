//! Volumes: their kinds, and the controls and filters that a volume of any kind can have.
//!
//! On the data path a volume stands between a protocol core and memory: [`Managed`] refuses what
//! the volume's state forbids, and the kind executes the rest: [`RamVolume`] and [`SnapshotVolume`]
//! on a [`memory::Store`], [`FileVolume`] on the frames of a [`window::Window`]. It knows no
//! protocol, no socket and no clock: instants come as arguments.
//!
//! [`create`] turns a [`VolumeSpec`] into a volume, and [`create_from`] does if that is made of
//! other volumes or of a disk of another machine. The program holds it as a [`ManagedVolume`] and
//! needs to know no kind.
//!
//! ```
//! use std::ops::ControlFlow;
//! use std::sync::Arc;
//! use block::{Blocks, Completion, Completions, Extent, Lba, Op, ReadDest};
//! use volume::{Budget, Origin, Platform, Relay, VolumeSpec};
//!
//! struct Nobody;
//! impl Completions for Nobody {
//!     fn done(&self, _: Completion) {}
//! }
//! let platform = Platform {
//!     budget: Arc::new(Budget::new(64 << 20)),
//!     relay: Relay::new(Arc::new(Nobody)),
//!     lanes: Arc::default(),
//!     record: None,
//! };
//! let spec = VolumeSpec::thin("50G".parse()?);
//! let progress = &mut |_| ControlFlow::Continue(());
//! let disk = volume::create(&spec, Origin::New, &platform, progress)?;
//! let extent = Extent::new(Lba(100), Blocks(1));
//! disk.execute(Op::Write { extent, data: &[7; 512] })?;
//! let mut read = [0; 512];
//! disk.execute(Op::Read { extent, dest: ReadDest::Copy(&mut read) })?;
//! assert_eq!(read, [7; 512]);
//! assert_eq!(disk.storage().used_bytes(), 2 << 20);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod cache;
mod cache_settings;
mod composite;
pub mod copy;
mod create;
mod damage;
mod driver;
mod file;
pub mod filters;
mod increments;
mod kind_changes;
mod kind_members;
mod lanes;
mod loading;
mod managed;
mod members;
mod mirror;
mod mirror_info;
mod ram;
mod relay;
mod replication_info;
mod saved;
mod size;
mod snapshot;
mod spec;
#[cfg(any(test, feature = "testing"))]
mod testing;
mod unopened;
mod volume_backing;

pub use cache::CacheVolume;
pub use cache_settings::{CacheMode, CacheModeName, CacheSettings, CacheStatistics, NoSuchMode};
pub use composite::Composite;
pub use create::{Sources, create, create_composite, create_from};
pub use damage::Damage;
pub use driver::{DriveError, Driver};
pub use file::FileVolume;
pub use file_io::HostDiskError;
pub use image::{FileStep, ImageError, Label, Replace, WriteError};
pub use lanes::LaneRegistry;
pub use managed::{
    Availability, Caching, Controls, Extendable, Managed, ManagedVolume, Member, Mirroring,
    PathInfo, PathWatcher, Storage, WriteLock,
};
pub use memory::{
    Budget, Charge, HostMemory, MemoryError, NoSuchProvision, Overcommit, PagePolicy, Progress,
    Provision, huge_bytes_in_use,
};
pub use mirror::MirrorVolume;
pub use mirror_info::{Cause, MirrorInfo, MirrorMember, RecordError, Repair, Role, ScrubReport};
pub use ram::RamVolume;
pub use relay::{Connections, Relay};
pub use replication_info::{CopyRole, Placement, ReplicaCopy, ReplicationInfo};
pub use saved::{
    IfDamaged, LoadStep, Loader, RestoreError, Restored, SaveError, SaveId, SaveMode, Saved,
    Target, Wanted, begin_restore, restore, save, saved_form,
};
pub use size::{ByteSize, SizeError};
pub use snapshot::{SnapshotVolume, changed_bytes, create_clone, roll_back, take_snapshots};
pub use spec::{Origin, Platform, SpecError, VolumeError, VolumeKind, VolumeSpec};
