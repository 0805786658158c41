//! The one place that turns what a volume is to be into a volume.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use block::BlockSize;
use file_io::HostDiskError;
use memory::{Progress, Provision};

use crate::ByteSize;
use crate::cache::CacheVolume;
use crate::composite::Composite;
use crate::file::FileVolume;
use crate::managed::{Managed, ManagedVolume, Member};
use crate::mirror::MirrorVolume;
use crate::ram::RamVolume;
use crate::snapshot::{create_clone, take_snapshots};
use crate::spec::{Origin, Platform, VolumeError, VolumeKind, VolumeSpec};
use crate::unopened::Unopened;

/// Creates a volume of the kind that `spec` names. A kind that allocates all its memory now, such
/// as thick RAM, takes about a second for a few GiB. It reports to `progress`, which may cancel it.
///
/// # Errors
/// If the specification is invalid, if the kind is made of another volume, if memory could not be
/// allocated, or if a new volume's file does not serve as a disk.
pub fn create(
    spec: &VolumeSpec,
    origin: Origin,
    platform: &Platform,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<Arc<dyn ManagedVolume>, VolumeError> {
    spec.check()?;
    match &spec.kind {
        VolumeKind::Ram { provision } => {
            let ram = RamVolume::new(spec.geometry(), *provision, &platform.budget, progress)?;
            Ok(Arc::new(Managed::new(ram)))
        }
        VolumeKind::Snapshot { .. }
        | VolumeKind::Clone { .. }
        | VolumeKind::Linear { .. }
        | VolumeKind::Stripe { .. }
        | VolumeKind::Mirror { .. }
        | VolumeKind::Cache { .. } => Err(VolumeError::NeedsParent {
            kind: spec.kind.clone(),
        }),
        VolumeKind::Remote { .. } | VolumeKind::Replicated { .. } => {
            Err(VolumeError::NeedsNetwork {
                kind: spec.kind.clone(),
            })
        }
        VolumeKind::File { .. } => {
            let file = match (FileVolume::open(spec, origin, platform), origin) {
                (Err(error), Origin::Restored) => FileVolume::failed(spec, &error),
                (opened, _) => opened?,
            };
            Ok(Arc::new(Managed::new(file)))
        }
    }
}

impl VolumeSpec {
    /// A snapshot of `of`, a volume as this says.
    #[must_use]
    pub fn snapshot(&self, of: &str) -> Self {
        Self {
            kind: VolumeKind::Snapshot { of: of.to_owned() },
            ..self.clone()
        }
    }

    /// A volume with blocks of 512 bytes in a file or block device, as large as that is. A file
    /// that does not exist is to have `new_size`. Also returns whether it is to be created.
    ///
    /// # Errors
    /// If it does not serve as a disk, or does not exist while there is no `new_size`.
    pub fn of_file(path: &Path, new_size: Option<ByteSize>) -> Result<(Self, bool), VolumeError> {
        let kind = VolumeKind::File {
            path: path.to_owned(),
            provision: Provision::Thin,
        };
        let (size, is_new) = match (kind.natural_size(), new_size) {
            (Err(VolumeError::NeedsSize { .. }), Some(size)) => (size, true),
            (Err(VolumeError::NeedsSize { path }), None) => {
                let error = HostDiskError::Missing;
                return Err(VolumeError::File { path, error });
            }
            (size, _) => (size?.expect("a file has one"), false),
        };
        let spec = Self {
            size,
            block_size: BlockSize::B512,
            kind,
        };
        Ok((spec, is_new))
    }
}

/// What volumes can be made of besides memory and files.
pub trait Sources {
    /// The volume of this name.
    fn volume(&self, name: &str) -> Option<Arc<dyn ManagedVolume>>;

    /// Opens the disk of another machine that `spec` names.
    ///
    /// # Errors
    /// If it does not serve as a volume.
    fn open_remote(
        &self,
        spec: &VolumeSpec,
        origin: Origin,
        platform: &Platform,
    ) -> Result<Arc<dyn ManagedVolume>, VolumeError>;

    /// Opens the replicated volume that `spec` names.
    ///
    /// # Errors
    /// If the program takes part in no cluster, or the cluster has not placed the volume.
    fn open_replicated(&self, spec: &VolumeSpec) -> Result<Arc<dyn ManagedVolume>, VolumeError>;
}

/// Creates a volume of any kind. What it is made of comes from `sources`. The rest is as with
/// [`create`].
///
/// # Errors
/// Those of [`create`], of [`create_composite`], [`take_snapshots`] and [`create_clone`], and if a
/// volume that it is made of does not exist.
pub fn create_from(
    sources: &dyn Sources,
    spec: &VolumeSpec,
    origin: Origin,
    platform: &Platform,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<Arc<dyn ManagedVolume>, VolumeError> {
    let parent = |of: &String| {
        let parent = sources.volume(of);
        parent.ok_or_else(|| VolumeError::UnknownParent { of: of.clone() })
    };
    match &spec.kind {
        VolumeKind::Ram { .. } | VolumeKind::File { .. } => {
            create(spec, origin, platform, progress)
        }
        VolumeKind::Remote { .. } => sources.open_remote(spec, origin, platform),
        VolumeKind::Replicated { .. } => sources.open_replicated(spec),
        VolumeKind::Snapshot { of } => {
            let taken = take_snapshots(&[(spec, &*parent(of)?)]);
            taken
                .map(|mut taken| taken.pop().expect("as many as were asked for"))
                .map_err(|(_, error)| error)
        }
        VolumeKind::Clone { of } => create_clone(spec, &*parent(of)?),
        VolumeKind::Linear { .. }
        | VolumeKind::Stripe { .. }
        | VolumeKind::Mirror { .. }
        | VolumeKind::Cache { .. } => {
            let member = |of: &String| {
                Ok(Member {
                    name: of.clone(),
                    volume: parent(of)?,
                })
            };
            let members = spec.kind.parents().iter().map(member);
            create_composite(
                spec,
                members.collect::<Result<_, VolumeError>>()?,
                origin,
                platform,
            )
        }
    }
}

/// Creates a volume that holds others: linear, striped, a mirror or a cache. `members` are in the
/// order in which `spec` names them, and as many.
///
/// # Errors
/// If the specification is invalid, or a member does not fit.
pub fn create_composite(
    spec: &VolumeSpec,
    members: Vec<Member>,
    origin: Origin,
    platform: &Platform,
) -> Result<Arc<dyn ManagedVolume>, VolumeError> {
    spec.check()?;
    let built: Result<Arc<dyn ManagedVolume>, _> = match (&spec.kind, &members[..]) {
        (VolumeKind::Cache { .. }, [member]) => CacheVolume::new(spec, member.clone(), platform)
            .map(|cache| Arc::new(Managed::new(cache)) as _),
        (VolumeKind::Mirror { .. }, _) => MirrorVolume::new(spec, members, origin, platform)
            .map(|mirror| Arc::new(Managed::new(mirror)) as _),
        _ => Composite::new(spec, members, platform)
            .map(|composite| Arc::new(Managed::new(composite)) as _),
    };
    match (built, origin) {
        (Ok(volume), _) => Ok(volume),
        (Err(error), Origin::Restored) => Ok(Arc::new(Managed::new(Unopened::new(spec, &error)))),
        (Err(error), Origin::New) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use memory::Budget;

    use super::*;
    use crate::testing::io::{MIB, no_progress, platform};

    #[test]
    fn a_created_volume_is_what_was_specified() {
        let budget = Arc::new(Budget::new(4 * MIB));
        let spec = VolumeSpec {
            block_size: BlockSize::B4096,
            ..VolumeSpec::thick(ByteSize(2 * MIB))
        };
        let mut reported_bytes = 0;
        let platform = platform(budget);
        let volume = create(&spec, Origin::New, &platform, &mut |progress| {
            reported_bytes = progress.done_bytes;
            ControlFlow::Continue(())
        });
        let volume = volume.expect("fits");
        assert_eq!(volume.storage().spec(), spec);
        assert_eq!(volume.geometry(), spec.geometry());
        assert_eq!(reported_bytes, spec.reserved_bytes());
        assert_eq!(volume.storage().used_bytes(), spec.reserved_bytes());
        let invalid = VolumeSpec::thin(ByteSize(1));
        let refused = create(&invalid, Origin::New, &platform, &mut no_progress);
        assert!(matches!(refused, Err(VolumeError::Spec(_))));
    }
}
