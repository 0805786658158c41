//! The one place that turns what a volume is to be into a volume.

use std::ops::ControlFlow;
use std::sync::Arc;

use memory::Progress;

use crate::cache::CacheVolume;
use crate::composite::Composite;
use crate::file::FileVolume;
use crate::managed::{Managed, ManagedVolume, Member};
use crate::mirror::MirrorVolume;
use crate::ram::RamVolume;
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
        VolumeKind::Remote { .. } => Err(VolumeError::NeedsNetwork {
            kind: spec.kind.clone(),
        }),
        VolumeKind::File { .. } => {
            let file = match (FileVolume::open(spec, origin, platform), origin) {
                (Err(error), Origin::Restored) => FileVolume::failed(spec, &error),
                (opened, _) => opened?,
            };
            Ok(Arc::new(Managed::new(file)))
        }
    }
}

/// Creates a volume that holds others: linear, striped, a mirror or a cache. `members` are in the order in which
/// `spec` names them, and as many.
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
    use block::BlockSize;
    use memory::Budget;

    use super::*;
    use crate::ByteSize;
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
