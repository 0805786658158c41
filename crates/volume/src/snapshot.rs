//! Snapshots: volumes that show what another was at one moment. Clones, which are made over them,
//! are RAM volumes.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

use block::{
    Admission, Allocation, BlockSize, Blocks, ByteRange, Geometry, Intent, Op, OpKind, ReadDest,
    Status, Ticket, Volume,
};
use memory::{Progress, Snapshot, Store};

use crate::ByteSize;
use crate::managed::{Managed, ManagedVolume, Storage};
use crate::ram::{RamVolume, byte_range};
use crate::spec::{VolumeError, VolumeKind, VolumeSpec};

/// What a volume was at one moment. It cannot be written.
#[derive(Debug)]
pub struct SnapshotVolume {
    snapshot: Arc<Snapshot>,
    block_size: BlockSize,
    of: String,
}

/// Takes snapshots of several volumes at one moment, while these are in use: each specification of
/// a snapshot with the volume that it is of, which occurs once.
///
/// # Errors
/// If a volume, the index of which comes with the error, cannot have a snapshot, has too many, or
/// has other blocks than the specification says. None is taken then.
pub fn take_snapshots(
    specs: &[(&VolumeSpec, &dyn ManagedVolume)],
) -> Result<Vec<Arc<dyn ManagedVolume>>, (usize, VolumeError)> {
    let store = |(index, &(spec, volume)): (usize, &(&VolumeSpec, &dyn ManagedVolume))| {
        let store = store_for(spec, volume).map_err(|error| (index, error))?;
        Ok((Arc::clone(store), spec.size.0))
    };
    let stores: Vec<_> = specs
        .iter()
        .enumerate()
        .map(store)
        .collect::<Result<_, _>>()?;
    let snapshots =
        Store::take_snapshots(&stores).map_err(|(index, error)| (index, error.into()))?;
    let volumes = snapshots
        .into_iter()
        .zip(specs)
        .map(|(snapshot, (spec, _))| {
            let volume = SnapshotVolume {
                snapshot: Arc::new(snapshot),
                block_size: spec.block_size,
                of: spec.kind.parents().concat(),
            };
            Arc::new(Managed::new(volume)) as Arc<dyn ManagedVolume>
        });
    Ok(volumes.collect())
}

/// The memory that a snapshot as `spec` says is taken of.
fn store_for<'a>(
    spec: &VolumeSpec,
    volume: &'a dyn ManagedVolume,
) -> Result<&'a Arc<Store>, VolumeError> {
    spec.check()?;
    check_blocks(spec, volume)?;
    volume.storage().store().ok_or_else(|| {
        let kind = volume.storage().spec().kind;
        VolumeError::NoSnapshots { kind }
    })
}

/// Creates a clone of a snapshot. If the clone is longer, the rest is zeros.
///
/// # Errors
/// If `snapshot` is another kind of volume, has other blocks than `spec` says, or lies too many
/// snapshots deep.
pub fn create_clone(
    spec: &VolumeSpec,
    snapshot: &dyn ManagedVolume,
) -> Result<Arc<dyn ManagedVolume>, VolumeError> {
    spec.check()?;
    check_blocks(spec, snapshot)?;
    let base = shown_by(snapshot)?;
    let store = Store::over(Arc::clone(base), spec.size.0)?;
    let clone = RamVolume::over_snapshot(store, spec)?;
    Ok(Arc::new(Managed::new(clone)))
}

/// How much of a volume has changed since a snapshot of it, in bytes.
///
/// # Errors
/// If it is no snapshot.
pub fn changed_bytes(snapshot: &dyn ManagedVolume) -> Result<u64, VolumeError> {
    Ok(shown_by(snapshot)?.changed_bytes())
}

/// Makes a volume what it was when `snapshot` was taken of it. Nobody should use it meanwhile.
///
/// # Errors
/// If `snapshot` is no snapshot of `volume`, or their sizes differ: nothing has changed then. If
/// memory could not be allocated: the volume is then a mixture, until this succeeds.
pub fn roll_back(
    volume: &dyn ManagedVolume,
    snapshot: &dyn ManagedVolume,
    progress: &mut dyn FnMut(Progress),
) -> Result<(), VolumeError> {
    let shown = shown_by(snapshot)?;
    let is_origin = |store: &Arc<Store>| Arc::ptr_eq(store, shown.origin());
    if !volume.storage().store().is_some_and(is_origin) {
        return Err(VolumeError::OtherOrigin);
    }
    let [from, to] = [volume, snapshot].map(|volume| volume.storage().spec().size);
    if from != to {
        return Err(VolumeError::OtherSize { from, to });
    }
    shown
        .roll_back(progress)
        .map_err(VolumeError::HalfRolledBack)
}

fn shown_by(snapshot: &dyn ManagedVolume) -> Result<&Arc<Snapshot>, VolumeError> {
    snapshot.storage().snapshot().ok_or_else(|| {
        let kind = snapshot.storage().spec().kind;
        VolumeError::NotASnapshot { kind }
    })
}

fn check_blocks(spec: &VolumeSpec, parent: &dyn ManagedVolume) -> Result<(), VolumeError> {
    let of_parent = parent.storage().spec().block_size;
    if spec.block_size != of_parent {
        return Err(VolumeError::OtherBlocks {
            given_bytes: spec.block_size.bytes(),
            parent_bytes: of_parent.bytes(),
        });
    }
    Ok(())
}

impl Volume for SnapshotVolume {
    fn geometry(&self) -> Geometry {
        let blocks = self.snapshot.len_bytes() >> self.block_size.shift();
        Geometry::new(self.block_size, Blocks(blocks))
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn admit(&self, _now: Instant, intent: &Intent<'_>, _ticket: Ticket) -> Admission {
        match intent.kind {
            OpKind::Write | OpKind::Discard => Admission::Fail(Status::WriteProtected, None),
            _ => Admission::Now,
        }
    }

    fn execute(&self, op: Op<'_>) -> Result<(), Status> {
        match op {
            Op::Read {
                extent,
                dest: ReadDest::Copy(buffer),
            } => {
                let range = byte_range(self.block_size, extent, buffer.len())?;
                self.snapshot.read(range.offset, buffer)
            }
            Op::Read { extent, .. } | Op::Verify { extent } => {
                self.geometry().byte_range(extent).map(drop)
            }
            Op::Compare { extent, data } => {
                let range = byte_range(self.block_size, extent, data.len())?;
                self.snapshot.compare(range.offset, data)
            }
            Op::Flush => Ok(()),
            Op::Write { .. }
            | Op::WriteZeroes { .. }
            | Op::Discard { .. }
            | Op::CompareAndWrite { .. }
            | Op::Copy { .. } => Err(Status::WriteProtected),
        }
    }

    fn allocation(&self, range: ByteRange) -> Allocation {
        self.snapshot.allocation(range)
    }
}

impl Storage for SnapshotVolume {
    fn spec(&self) -> VolumeSpec {
        VolumeSpec {
            size: ByteSize(self.snapshot.len_bytes()),
            block_size: self.block_size,
            kind: VolumeKind::Snapshot {
                of: self.of.clone(),
            },
        }
    }

    fn used_bytes(&self) -> u64 {
        self.snapshot.allocated_bytes()
    }

    fn resize(
        &self,
        _size: ByteSize,
        _progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<(), VolumeError> {
        Err(VolumeError::Unchangeable)
    }

    fn erase(&self) -> Result<(), VolumeError> {
        Err(VolumeError::Unchangeable)
    }

    fn close(&self) {
        // If the host refuses memory for what is moved to older snapshots, the rest stays until the
        // next snapshot of the volume is removed.
        let _rest_stays = self.snapshot.remove();
    }

    fn outlives_program(&self) -> bool {
        false
    }

    fn snapshot(&self) -> Option<&Arc<Snapshot>> {
        Some(&self.snapshot)
    }
}

#[cfg(test)]
mod tests;
