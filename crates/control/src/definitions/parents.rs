//! What snapshots and clones are made of.

use std::collections::BTreeMap;

use server::VolumeName;
use volume::{ByteSize, VolumeKind};

use super::{Definitions, Volume};
use crate::text::Text;

/// What is wrong with the volume that another is made of.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParentFault {
    /// It is not defined.
    #[error("it is of {of}, which is not defined; define it, or name another in `of`")]
    Undefined {
        /// What stands in `of`.
        of: String,
    },
    /// It is of the wrong kind.
    #[error(
        "it is of {of}, which is {kind}; snapshots are of RAM volumes and clones, and clones are of snapshots"
    )]
    Kind {
        /// The parent.
        of: String,
        /// The kind of the parent.
        kind: VolumeKind,
    },
    /// It has other blocks.
    #[error("its block size differs from that of {of}, {bytes}; give {bytes}")]
    BlockSize {
        /// The parent.
        of: String,
        /// The block size of the parent.
        bytes: u64,
    },
    /// A snapshot is as large as what it is of.
    #[error("it is a snapshot of {of}, which has {size}; give that size")]
    Size {
        /// The parent.
        of: String,
        /// The size of the parent.
        size: ByteSize,
    },
    /// It is made of itself.
    #[error("it is made of itself by way of {of}; name another in `of`")]
    Circle {
        /// The parent.
        of: String,
    },
}

impl Definitions {
    /// Checks what a volume is made of.
    pub(crate) fn check_parent(&self, volume: &Volume) -> Result<(), ParentFault> {
        let Some(of) = volume.parent().map(str::to_owned) else {
            return Ok(());
        };
        let Some(parent) = self.parent_of(volume) else {
            return Err(ParentFault::Undefined { of });
        };
        let is_snapshot = |volume: &Volume| matches!(volume.kind.0, VolumeKind::Snapshot { .. });
        if is_snapshot(volume) == is_snapshot(parent) {
            let kind = parent.kind.0.clone();
            return Err(ParentFault::Kind { of, kind });
        }
        if volume.block_size != parent.block_size {
            let bytes = parent.block_size.0.bytes();
            return Err(ParentFault::BlockSize { of, bytes });
        }
        if self.depth(volume) > self.volumes.len() {
            return Err(ParentFault::Circle { of });
        }
        Ok(())
    }

    /// Checks the size of a volume that does not exist yet. Later the volume that a snapshot is of
    /// may get another.
    pub(crate) fn check_new_size(&self, volume: &Volume) -> Result<(), ParentFault> {
        match (&volume.kind.0, self.parent_of(volume)) {
            (VolumeKind::Snapshot { of }, Some(parent)) if parent.size != volume.size => {
                Err(ParentFault::Size {
                    of: of.clone(),
                    size: ByteSize(parent.size.0),
                })
            }
            _ => Ok(()),
        }
    }

    /// How many volumes lie below a volume; more than there are if it is made of itself.
    pub(crate) fn depth(&self, volume: &Volume) -> usize {
        let below = std::iter::successors(self.parent_of(volume), |below| self.parent_of(below));
        below.take(self.volumes.len() + 1).count()
    }

    /// The volumes that are made of a volume.
    pub(crate) fn children(&self, name: &VolumeName) -> Vec<&VolumeName> {
        let mut all = self.all_children();
        all.remove(name.as_str()).unwrap_or_default()
    }

    /// The volumes that are made of others, by the names of these.
    pub(crate) fn all_children(&self) -> BTreeMap<&str, Vec<&VolumeName>> {
        let mut children = BTreeMap::<_, Vec<_>>::new();
        for (name, volume) in &self.volumes {
            if let Some(parent) = volume.parent() {
                children.entry(parent).or_default().push(&name.0);
            }
        }
        children
    }

    fn parent_of(&self, volume: &Volume) -> Option<&Volume> {
        let name = volume.parent()?.parse().ok()?;
        self.volumes.get(&Text(name))
    }
}

impl Volume {
    /// What it is made of.
    pub(crate) fn parent(&self) -> Option<&str> {
        self.kind.0.parent()
    }
}
