//! What volumes are made of: snapshots, clones, and volumes that hold others.

use std::collections::{BTreeMap, VecDeque};

use server::{TargetName, VolumeName};
use volume::{ByteSize, VolumeKind};

use super::parent_fault::{HOLDERS_DEPTH_MAX, ParentFault};
use super::{DefinitionFault, Definitions, Target, Volume};
use crate::text::{Size, Text};

/// How deep a volume lies: how many volumes are below it, one below the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Depth {
    /// Of any kind.
    all: usize,
    /// Of those that hold others, with this one.
    holders: usize,
}

impl Definitions {
    /// Checks what every volume is made of.
    pub(crate) fn check_all_parents(&self) -> Result<(), DefinitionFault> {
        let depths = self.depths();
        let mut holders = BTreeMap::new();
        for (name, volume) in &self.volumes {
            let mut check = || {
                self.check_parents(volume)?;
                depths.get(name).ok_or_else(|| circle(volume))?.check()?;
                for of in volume.held() {
                    if let Some(holder) = holders.insert(of, &name.0) {
                        let (of, holder) = (of.to_owned(), holder.clone());
                        return Err(ParentFault::Held { of, holder });
                    }
                }
                Ok(())
            };
            check().map_err(|fault| DefinitionFault::parent(&name.0, fault))?;
        }
        self.targets
            .iter()
            .try_for_each(|(name, target)| check_offers(&name.0, target, &holders))
    }

    /// Checks what a volume is made of that is about to be defined.
    pub(crate) fn check_new_parents(
        &self,
        name: &VolumeName,
        volume: &Volume,
    ) -> Result<(), ParentFault> {
        if volume.parents().is_empty() {
            return Ok(());
        }
        if volume.parents().iter().any(|of| of == name.as_str()) {
            return Err(circle(volume));
        }
        self.check_parents(volume)?;
        let depths = self.depths();
        let below = self.parents_of(volume);
        Depth::of(
            volume,
            below.filter_map(|(name, _)| depths.get(name).copied()),
        )
        .check()?;
        self.check_free(volume.held())?;
        self.check_new_size(volume)
    }

    /// Checks that nothing else uses what a volume is to hold.
    pub(crate) fn check_free<'a>(
        &self,
        members: impl Iterator<Item = &'a str>,
    ) -> Result<(), ParentFault> {
        let holders = self.holders();
        for of in members {
            if let Some(&holder) = holders.get(of) {
                let (of, holder) = (of.to_owned(), holder.clone());
                return Err(ParentFault::Held { of, holder });
            }
            let offers = |target: &Target| target.namespaces.values().any(|v| v.0.as_str() == of);
            let offering = self.targets.iter().find(|(_, target)| offers(target));
            if let Some((target, _)) = offering {
                let (of, target) = (of.to_owned(), target.0.clone());
                return Err(ParentFault::Offered { of, target });
            }
        }
        Ok(())
    }

    /// Checks that a target offers no volume that another holds.
    pub(crate) fn check_target_volumes(
        &self,
        name: &TargetName,
        target: &Target,
    ) -> Result<(), DefinitionFault> {
        check_offers(name, target, &self.holders())
    }

    fn check_parents(&self, volume: &Volume) -> Result<(), ParentFault> {
        let is_snapshot = |volume: &Volume| matches!(volume.kind.0, VolumeKind::Snapshot { .. });
        for of in volume.parents() {
            let of = of.clone();
            let Some(parent) = self.volume_called(&of) else {
                return Err(ParentFault::Undefined { of });
            };
            let is_cache = matches!(volume.kind.0, VolumeKind::Cache { .. });
            if is_cache && parent.1.is_replicated() {
                return Err(ParentFault::WrittenByOthers { of });
            }
            if !volume.kind.0.holds_members() && is_snapshot(volume) == is_snapshot(parent.1) {
                let kind = parent.1.kind.0.clone();
                return Err(ParentFault::Kind { of, kind });
            }
            if volume.block_size != parent.1.block_size {
                let bytes = parent.1.block_size.0.bytes();
                return Err(ParentFault::BlockSize { of, bytes });
            }
        }
        Ok(())
    }

    /// Checks the size of a volume that does not exist yet. Later the volume that a snapshot is of
    /// may get another.
    pub(crate) fn check_new_size(&self, volume: &Volume) -> Result<(), ParentFault> {
        let given = ByteSize(volume.size.0);
        if let VolumeKind::Snapshot { of } = &volume.kind.0
            && let Some((_, parent)) = self.volume_called(of)
            && parent.size != volume.size
        {
            return Err(ParentFault::Size {
                of: of.clone(),
                size: ByteSize(parent.size.0),
            });
        }
        match self.size_over_members(volume)? {
            // Members of a mirror that replaced others may all be larger.
            Some(derived)
                if matches!(volume.kind.0, VolumeKind::Mirror { .. }) && given < derived =>
            {
                Ok(())
            }
            Some(derived) if derived != given => Err(ParentFault::DerivedSize { given, derived }),
            _ => Ok(()),
        }
    }

    /// The size of a volume that holds others, which follows from theirs; `None` for other kinds.
    pub(crate) fn size_over_members(
        &self,
        volume: &Volume,
    ) -> Result<Option<ByteSize>, ParentFault> {
        if !volume.kind.0.holds_members() {
            return Ok(None);
        }
        let sizes: Vec<_> = self
            .parents_of(volume)
            .map(|(_, parent)| ByteSize(parent.size.0))
            .collect();
        let size = volume.kind.0.size_over(&sizes);
        size.map(Some)
            .map_err(|error| ParentFault::Members(error.to_string()))
    }

    /// `to` as the new definition of `name`, with those of the volumes behind it that grow with it,
    /// if it is a cache that grows.
    pub(crate) fn with_cached(
        &self,
        name: &VolumeName,
        to: Volume,
    ) -> BTreeMap<Text<VolumeName>, Volume> {
        let mut changed = BTreeMap::new();
        let mut next = Some((Text(name.clone()), to));
        while let Some((name, volume)) = next.take() {
            let grows = self
                .volumes
                .get(&name)
                .is_some_and(|from| from.size < volume.size);
            if grows && matches!(volume.kind.0, VolumeKind::Cache { .. }) {
                let behind = self.parents_of(&volume).next();
                next = behind.map(|(of, behind)| {
                    let size = behind.size.max(volume.size);
                    (
                        of.clone(),
                        Volume {
                            size,
                            ..behind.clone()
                        },
                    )
                });
            }
            changed.insert(name, volume);
        }
        changed
    }

    /// Fills in the sizes of volumes that hold others, which may be left out.
    pub(crate) fn fill_in_sizes_over_members(&mut self) -> Result<(), DefinitionFault> {
        let mut holding: Vec<_> = self.depths().into_iter().collect();
        holding.sort_by_key(|(_, depth)| *depth);
        for (name, _) in holding {
            let volume = &self.volumes[&name];
            let size = self.size_over_members(volume);
            let size = size.map_err(|fault| DefinitionFault::parent(&name.0, fault))?;
            if let (Some(size), Some(volume)) = (size, self.volumes.get_mut(&name))
                && volume.lacks_size()
            {
                volume.size = Size(size.0);
            }
        }
        Ok(())
    }

    /// How deep each volume lies, except those that are made of themselves or of something that is
    /// not defined.
    pub(crate) fn depths(&self) -> BTreeMap<Text<VolumeName>, Depth> {
        let mut above = BTreeMap::<&str, Vec<&Text<VolumeName>>>::new();
        let mut missing = BTreeMap::new();
        let mut ready = VecDeque::new();
        for (name, volume) in &self.volumes {
            missing.insert(name, volume.parents().len());
            for parent in volume.parents() {
                above.entry(parent).or_default().push(name);
            }
            if volume.parents().is_empty() {
                ready.push_back(name);
            }
        }
        let mut depths = BTreeMap::<Text<VolumeName>, Depth>::new();
        while let Some(name) = ready.pop_front() {
            let volume = &self.volumes[name];
            let below = self.parents_of(volume);
            let below = below.filter_map(|(parent, _)| depths.get(parent).copied());
            depths.insert(name.clone(), Depth::of(volume, below));
            for next in above.get(name.0.as_str()).into_iter().flatten() {
                let missing = missing.entry(next).or_default();
                *missing = missing.saturating_sub(1);
                if *missing == 0 {
                    ready.push_back(next);
                }
            }
        }
        depths
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
            for parent in volume.parents() {
                children.entry(parent.as_str()).or_default().push(&name.0);
            }
        }
        children
    }

    /// The volume that holds each volume which is held.
    pub(crate) fn holders(&self) -> BTreeMap<&str, &VolumeName> {
        let volumes = self.volumes.iter();
        let pairs = volumes.flat_map(|(name, volume)| volume.held().map(move |of| (of, &name.0)));
        pairs.collect()
    }

    fn parents_of(&self, volume: &Volume) -> impl Iterator<Item = (&Text<VolumeName>, &Volume)> {
        let parents = volume.parents().iter();
        parents.filter_map(|name| self.volume_called(name))
    }

    fn volume_called(&self, name: &str) -> Option<(&Text<VolumeName>, &Volume)> {
        self.volumes.get_key_value(&Text(name.parse().ok()?))
    }
}

impl Depth {
    /// That of a volume over volumes that lie `below` deep.
    fn of(volume: &Volume, below: impl Iterator<Item = Self>) -> Self {
        let deepest = below.fold(Self::default(), |deepest, depth| Self {
            all: deepest.all.max(depth.all + 1),
            holders: deepest.holders.max(depth.holders),
        });
        Self {
            holders: deepest.holders + usize::from(volume.kind.0.holds_members()),
            ..deepest
        }
    }

    fn check(self) -> Result<(), ParentFault> {
        if self.holders > HOLDERS_DEPTH_MAX {
            return Err(ParentFault::TooDeep);
        }
        Ok(())
    }
}

impl Volume {
    /// What it is made of.
    pub(crate) fn parents(&self) -> &[String] {
        self.kind.0.parents()
    }

    /// The member of this mirror that is replaced if it becomes `to`, and the volume that replaces
    /// it.
    pub(crate) fn replacement(&self, to: &Self) -> Option<(VolumeName, VolumeName)> {
        let (old, new) = self.kind.0.replaced_member(&to.kind.0)?;
        Some((old.parse().ok()?, new.parse().ok()?))
    }

    /// The volumes that it holds.
    pub(crate) fn held(&self) -> impl Iterator<Item = &str> {
        let holds = self.kind.0.holds_members();
        let parents = self.parents().iter().map(String::as_str);
        parents.filter(move |_| holds)
    }
}

fn circle(volume: &Volume) -> ParentFault {
    ParentFault::Circle {
        of: volume.parents().join(", "),
    }
}

fn check_offers(
    name: &TargetName,
    target: &Target,
    holders: &BTreeMap<&str, &VolumeName>,
) -> Result<(), DefinitionFault> {
    for (nsid, volume) in &target.namespaces {
        if let Some(&holder) = holders.get(volume.0.as_str()) {
            return Err(DefinitionFault::HeldVolume {
                target: name.clone(),
                nsid: nsid.0,
                volume: volume.0.clone(),
                holder: holder.clone(),
            });
        }
    }
    Ok(())
}
