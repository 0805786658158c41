//! What has to be done to a running server for a change, in which order, and how it is undone.
//! Pure: nothing is done here.

use std::collections::{BTreeMap, BTreeSet};

use server::{HostName, PortalDefinition, ShareName, TargetName, VolumeName};
use uuid::Uuid;
use volume::VolumeKind;

use crate::change::Change;
use crate::definitions::{Definitions, Host, Nsid, Share, ShareKind, Target, Volume};

/// One call of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    SetMachine {
        from: Option<Uuid>,
        to: Uuid,
    },
    CreateHost(HostName, Host),
    ChangeHost {
        name: HostName,
        from: Host,
        to: Host,
    },
    RemoveHost(HostName, Host),
    CreateVolume(VolumeName, Volume),
    Resize {
        name: VolumeName,
        from_bytes: u64,
        to_bytes: u64,
    },
    /// Adds members to a linear volume, or replaces one of a mirror.
    ChangeMembers {
        name: VolumeName,
        from: Box<Volume>,
        to: Box<Volume>,
    },
    /// Replaces a member of a mirror before the old one is used otherwise.
    FreeMember(VolumeName, Box<Volume>, Box<Volume>),
    /// Changes settings of a cache or a mirror.
    SetSettings {
        name: VolumeName,
        from: VolumeKind,
        to: VolumeKind,
    },
    SetLock {
        name: VolumeName,
        from: Box<Volume>,
        to: Box<Volume>,
    },
    SetFilters {
        name: VolumeName,
        from: Box<Volume>,
        to: Box<Volume>,
    },
    RemoveVolume(VolumeName, Volume),
    /// Removes a volume that holds others, before these are used otherwise. They have its contents,
    /// so it can be created again.
    ReleaseMembers(VolumeName, Volume),
    CreateTarget(TargetName, Target),
    SetPolicy {
        name: TargetName,
        from: Target,
        to: Target,
    },
    Attach(TargetName, Nsid, VolumeName),
    Detach(TargetName, Nsid, VolumeName),
    RemoveTarget(TargetName, Target),
    Share(ShareName, ShareStep),
    AddPortal(PortalDefinition),
    RemovePortal(PortalDefinition),
    AddReferral(PortalDefinition),
    RemoveReferral(PortalDefinition),
}

/// What a step does to a share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ShareStep {
    Create(Share),
    Change { from: Share, to: Share },
    Remove(Share),
}

impl ShareStep {
    fn inverse(self) -> Self {
        match self {
            Self::Create(share) => Self::Remove(share),
            Self::Change { from, to } => Self::Change { from: to, to: from },
            Self::Remove(share) => Self::Create(share),
        }
    }
}

/// When a step is taken. Everything before [`Phase::Destroy`] can be undone; what destroys data, or
/// cannot be undone for another reason, comes after the change is durable, since then nothing is
/// left that could fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    Machine,
    Hosts,
    /// Targets no longer offer what is released or becomes a member.
    Withdraw,
    Release,
    Volumes,
    ClosePortals,
    Detach,
    Policies,
    Targets,
    Shares,
    RemoveTargets,
    RemoveHosts,
    OpenPortals,
    Destroy,
}

impl Step {
    pub(crate) fn phase(&self) -> Phase {
        match self {
            Self::SetMachine { .. } => Phase::Machine,
            Self::CreateHost(..) | Self::ChangeHost { .. } => Phase::Hosts,
            Self::ReleaseMembers(..) | Self::FreeMember(..) => Phase::Release,
            Self::CreateVolume(..)
            | Self::SetSettings { .. }
            | Self::SetLock { .. }
            | Self::SetFilters { .. } => Phase::Volumes,
            Self::Resize {
                from_bytes,
                to_bytes,
                ..
            } if to_bytes >= from_bytes => Phase::Volumes,
            Self::Resize { .. }
            | Self::RemoveVolume(..)
            | Self::ChangeMembers { .. }
            | Self::Share(_, ShareStep::Remove(_)) => Phase::Destroy,
            Self::RemovePortal(_) | Self::RemoveReferral(_) => Phase::ClosePortals,
            Self::Detach(..) => Phase::Detach,
            Self::SetPolicy { .. } => Phase::Policies,
            Self::CreateTarget(..) | Self::Attach(..) => Phase::Targets,
            Self::Share(..) => Phase::Shares,
            Self::RemoveTarget(..) => Phase::RemoveTargets,
            Self::RemoveHost(..) => Phase::RemoveHosts,
            Self::AddPortal(_) | Self::AddReferral(_) => Phase::OpenPortals,
        }
    }

    /// The volume that it changes itself.
    pub(crate) fn volume(&self) -> Option<&VolumeName> {
        match self {
            Self::CreateVolume(name, _)
            | Self::RemoveVolume(name, _)
            | Self::ReleaseMembers(name, _)
            | Self::Resize { name, .. }
            | Self::ChangeMembers { name, .. }
            | Self::FreeMember(name, ..)
            | Self::SetSettings { name, .. }
            | Self::SetLock { name, .. }
            | Self::SetFilters { name, .. } => Some(name),
            _ => None,
        }
    }

    /// That volume, and those that become members of it.
    pub(crate) fn volumes(&self) -> Vec<VolumeName> {
        let members = self.new_members();
        self.volume().cloned().into_iter().chain(members).collect()
    }

    /// Volumes that become members of another.
    fn new_members(&self) -> Vec<VolumeName> {
        let members: Vec<_> = match self {
            Self::CreateVolume(_, volume) => volume.held().collect(),
            Self::ChangeMembers { from, to, .. } | Self::FreeMember(_, from, to) => {
                let old: Vec<_> = from.held().collect();
                to.held().filter(|of| !old.contains(of)).collect()
            }
            _ => Vec::new(),
        };
        let members = members.into_iter();
        members.filter_map(|name| name.parse().ok()).collect()
    }

    /// Volumes that no other may hold when the step is taken.
    fn freed(&self) -> Vec<VolumeName> {
        match self {
            Self::CreateVolume(..) | Self::ChangeMembers { .. } | Self::FreeMember(..) => {
                self.new_members()
            }
            Self::Resize { name, .. } | Self::Attach(_, _, name) => vec![name.clone()],
            Self::CreateTarget(_, target) => offered(target).cloned().collect(),
            _ => Vec::new(),
        }
    }

    /// The member of a mirror that another volume replaces.
    fn replaced(&self) -> Option<VolumeName> {
        match self {
            Self::ChangeMembers { from, to, .. } | Self::FreeMember(_, from, to) => {
                from.replacement(to).map(|(old, _)| old)
            }
            _ => None,
        }
    }

    /// Whether a target no longer offers one of `volumes`.
    fn withdraws(&self, volumes: &BTreeSet<VolumeName>) -> bool {
        match self {
            Self::Detach(_, _, volume) => volumes.contains(volume),
            Self::RemoveTarget(_, target) => offered(target).any(|name| volumes.contains(name)),
            _ => false,
        }
    }

    /// Whether what it destroys is not the only copy of data: the file or the members of a removed
    /// volume stay.
    pub(crate) fn keeps_data(&self) -> bool {
        match self {
            Self::RemoveVolume(_, volume) => volume.kind.0.is_persistent(),
            Self::ChangeMembers { .. } => true,
            Self::Share(_, ShareStep::Remove(share)) => share.kind == ShareKind::Dir,
            _ => false,
        }
    }

    /// What it is about, for people.
    pub(crate) fn noun(&self) -> String {
        match self {
            Self::SetMachine { to, .. } => format!("machine {to}"),
            Self::CreateHost(name, _)
            | Self::ChangeHost { name, .. }
            | Self::RemoveHost(name, _) => format!("host {name}"),
            Self::CreateVolume(name, _)
            | Self::RemoveVolume(name, _)
            | Self::ReleaseMembers(name, _)
            | Self::Resize { name, .. }
            | Self::ChangeMembers { name, .. }
            | Self::FreeMember(name, ..)
            | Self::SetSettings { name, .. }
            | Self::SetLock { name, .. }
            | Self::SetFilters { name, .. } => format!("volume {name}"),
            Self::CreateTarget(name, _)
            | Self::RemoveTarget(name, _)
            | Self::SetPolicy { name, .. }
            | Self::Attach(name, ..)
            | Self::Detach(name, ..) => format!("target {name}"),
            Self::Share(name, _) => format!("share {name}"),
            Self::AddPortal(portal) | Self::RemovePortal(portal) => format!("portal {portal}"),
            Self::AddReferral(to) | Self::RemoveReferral(to) => format!("referral {to}"),
        }
    }

    fn set_machine(from: Uuid, to: Uuid) -> Self {
        let from = Some(from);
        Self::SetMachine { from, to }
    }

    /// The step that takes this one back.
    pub(crate) fn inverse(self) -> Self {
        match self {
            Self::SetMachine { from, to } => Self::set_machine(to, from.unwrap_or(to)),
            Self::CreateHost(name, host) => Self::RemoveHost(name, host),
            Self::ChangeHost {
                name,
                from: to,
                to: from,
            } => Self::ChangeHost { name, from, to },
            Self::RemoveHost(name, host) => Self::CreateHost(name, host),
            Self::CreateVolume(name, volume) => Self::RemoveVolume(name, volume),
            Self::Resize {
                name,
                from_bytes: to_bytes,
                to_bytes: from_bytes,
            } => Self::Resize {
                name,
                from_bytes,
                to_bytes,
            },
            Self::ChangeMembers {
                name,
                from: to,
                to: from,
            } => Self::ChangeMembers { name, from, to },
            Self::FreeMember(name, from, to) => Self::FreeMember(name, to, from),
            Self::SetSettings {
                name,
                from: to,
                to: from,
            } => Self::SetSettings { name, from, to },
            Self::SetLock {
                name,
                from: to,
                to: from,
            } => Self::SetLock { name, from, to },
            Self::SetFilters {
                name,
                from: to,
                to: from,
            } => Self::SetFilters { name, from, to },
            Self::RemoveVolume(name, of) | Self::ReleaseMembers(name, of) => {
                Self::CreateVolume(name, of)
            }
            Self::CreateTarget(name, target) => Self::RemoveTarget(name, target),
            Self::SetPolicy {
                name,
                from: to,
                to: from,
            } => Self::SetPolicy { name, from, to },
            Self::Attach(target, nsid, volume) => Self::Detach(target, nsid, volume),
            Self::Detach(target, nsid, volume) => Self::Attach(target, nsid, volume),
            Self::RemoveTarget(name, target) => Self::CreateTarget(name, target),
            Self::Share(name, step) => Self::Share(name, step.inverse()),
            Self::AddPortal(portal) => Self::RemovePortal(portal),
            Self::RemovePortal(portal) => Self::AddPortal(portal),
            Self::AddReferral(referral) => Self::RemoveReferral(referral),
            Self::RemoveReferral(referral) => Self::AddReferral(referral),
        }
    }
}

/// What cannot be done to something that exists.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// The kind or the directory of a share differs.
    #[error("share {0} keeps its kind and its path; remove it and create it again")]
    ShareForm(ShareName),
    /// A volume's block size is fixed.
    #[error(
        "volume {0} exists with another block size, which cannot change; remove the volume first, or use another name"
    )]
    BlockSize(VolumeName),
    /// A volume's kind, path and provisioning are fixed.
    #[error(
        "volume {0} exists with another kind, path or provisioning, which cannot change; remove the volume first, or use another name"
    )]
    Kind(VolumeName),
    /// A snapshot stays as it is.
    #[error("volume {0} is a snapshot, whose size cannot change; clone it, and resize the clone")]
    SnapshotSize(VolumeName),
    /// A file is not cut off.
    #[error(
        "volume {0} is in a file, and cannot shrink; remove the volume, truncate the file and create the volume again"
    )]
    Shrink(VolumeName),
    /// The size follows from the members.
    #[error(
        "volume {0} is made of others, whose sizes determine its own; remove it, resize them, and create it again, or enlarge a linear volume with `ramport volume add-member`"
    )]
    SizeOfMembers(VolumeName),
    /// A cache has the size of what it caches.
    #[error(
        "volume {0} is a cache, which cannot shrink; remove it, resize the volume behind it, and create it again"
    )]
    CacheShrinks(VolumeName),
    /// All nodes have it in this size.
    #[error("volume {0} is replicated, and cannot be resized; remove it and create it again")]
    ReplicatedSize(VolumeName),
    /// The volume that holds another relies on its size.
    #[error(
        "volume {volume} is a member of {holder}, and cannot be resized; remove {holder} first, or grow {holder} if it is a cache, which grows both"
    )]
    HeldSize {
        /// The volume.
        volume: VolumeName,
        /// The volume that holds it.
        holder: VolumeName,
    },
    /// The identifiers of a volume cannot change, since hosts would see another disk.
    #[error(
        "volume {0} exists with other identifiers, which cannot change; remove the volume first, or use another name"
    )]
    Identity(VolumeName),
}

/// The steps for `changes`, in the order in which they are taken.
pub(crate) fn plan(before: &Definitions, changes: &[Change]) -> Result<Vec<Step>, PlanError> {
    let mut steps = Vec::new();
    for change in changes {
        match change {
            Change::AddPortal(portal) => steps.push(Step::AddPortal(portal.0.0)),
            Change::RemovePortal(portal) => steps.push(Step::RemovePortal(portal.0.0)),
            Change::AddReferral(to) => steps.push(Step::AddReferral(to.0.0)),
            Change::RemoveReferral(to) => steps.push(Step::RemoveReferral(to.0.0)),
            Change::SetHost(name, to) => steps.push(match before.hosts.get(name) {
                None => Step::CreateHost(name.0.clone(), to.clone()),
                Some(from) => Step::ChangeHost {
                    name: name.0.clone(),
                    from: from.clone(),
                    to: to.clone(),
                },
            }),
            Change::RemoveHost(name) => {
                let host = before.hosts.get(name);
                steps.extend(host.map(|host| Step::RemoveHost(name.0.clone(), host.clone())));
            }
            Change::SetVolume(name, to) => {
                plan_volume(&name.0, before.volumes.get(name), to, &mut steps)?;
            }
            Change::RemoveVolume(name) => {
                let volume = before.volumes.get(name);
                let step = volume.map(|v| Step::RemoveVolume(name.0.clone(), v.clone()));
                steps.extend(step);
            }
            Change::SetTarget(name, to) => {
                plan_target(&name.0, before.targets.get(name), to, &mut steps);
            }
            Change::SetShare(name, to) => {
                let step = plan_share(&name.0, before.shares.get(name), to)?;
                steps.push(Step::Share(name.0.clone(), step));
            }
            Change::RemoveShare(name) => {
                let step = before.shares.get(name).cloned().map(ShareStep::Remove);
                steps.extend(step.map(|step| Step::Share(name.0.clone(), step)));
            }
            Change::SetMachine(to) => steps.push(Step::SetMachine {
                from: before.machine,
                to: *to,
            }),
            // The server has these already.
            Change::SetReservations(..) | Change::SetShutdownSave(..) => {}
            Change::RemoveTarget(name) => {
                let target = before.targets.get(name);
                let step = target.map(|t| Step::RemoveTarget(name.0.clone(), t.clone()));
                steps.extend(step);
            }
        }
    }
    drop_growth_by_caches(before, &mut steps);
    order(before, &mut steps)?;
    Ok(steps)
}

fn plan_share(
    name: &ShareName,
    before: Option<&Share>,
    to: &Share,
) -> Result<ShareStep, PlanError> {
    let to = to.clone();
    match before.cloned() {
        None => Ok(ShareStep::Create(to)),
        Some(from) if from.kind != to.kind || from.path != to.path => {
            Err(PlanError::ShareForm(name.clone()))
        }
        Some(from) => Ok(ShareStep::Change { from, to }),
    }
}

/// Drops the steps that grow a volume behind a cache which grows to the same size: its own step
/// grows both.
fn drop_growth_by_caches(before: &Definitions, steps: &mut Vec<Step>) {
    let sizes = steps.iter().filter_map(|step| match step {
        Step::Resize { name, to_bytes, .. } => Some((name.clone(), *to_bytes)),
        _ => None,
    });
    let sizes: BTreeMap<_, _> = sizes.collect();
    let holders = before.holders();
    steps.retain(|step| {
        let Step::Resize { name, to_bytes, .. } = step else {
            return true;
        };
        let holder = holders.get(name.as_str());
        holder.and_then(|&holder| sizes.get(holder)) != Some(to_bytes)
    });
}

/// Brings the steps into the order in which they are taken.
fn order(before: &Definitions, steps: &mut [Step]) -> Result<(), PlanError> {
    let mut withdrawn = release_members(steps);
    check_held(before, steps, &withdrawn)?;
    withdrawn.extend(steps.iter().flat_map(Step::new_members));
    free_members(steps);
    steps.sort_by_key(|step| match step {
        step if step.withdraws(&withdrawn) => Phase::Withdraw,
        step => step.phase(),
    });
    Ok(())
}

/// The volumes that a target offers.
fn offered(target: &Target) -> impl Iterator<Item = &VolumeName> {
    target.namespaces.values().map(|volume| &volume.0)
}

/// Removes volumes that hold others before these are used otherwise, and returns the names.
fn release_members(steps: &mut [Step]) -> BTreeSet<VolumeName> {
    let mut freed: BTreeSet<_> = steps.iter().flat_map(Step::freed).collect();
    let mut released = BTreeSet::new();
    // A volume is removed before what it holds, so what holds it comes first: the innermost is
    // found first.
    for step in steps.iter_mut().rev() {
        let Step::RemoveVolume(name, volume) = step else {
            continue;
        };
        let is_freed = |member: &str| member.parse().is_ok_and(|of| freed.contains(&of));
        if volume.held().any(is_freed) {
            freed.insert(name.clone());
            released.insert(name.clone());
            *step = Step::ReleaseMembers(name.clone(), volume.clone());
        }
    }
    released
}

/// Replaces members of mirrors before these are used otherwise.
fn free_members(steps: &mut [Step]) {
    let used: BTreeSet<_> = steps.iter().flat_map(Step::freed).collect();
    for step in steps {
        if step.replaced().is_some_and(|old| used.contains(&old))
            && let Step::ChangeMembers { name, from, to } = step
        {
            *step = Step::FreeMember(name.clone(), from.clone(), to.clone());
        }
    }
}

/// What a volume holds keeps its size, unless its holder is `released` before, or is a mirror in
/// which another volume replaces it.
fn check_held(
    before: &Definitions,
    steps: &[Step],
    released: &BTreeSet<VolumeName>,
) -> Result<(), PlanError> {
    let holders = before.holders();
    let replaced: BTreeSet<_> = steps.iter().filter_map(Step::replaced).collect();
    for step in steps {
        if let Step::Resize { name, .. } = step
            && let Some(&holder) = holders.get(name.as_str())
            && !released.contains(holder)
            && !replaced.contains(name)
        {
            return Err(PlanError::HeldSize {
                volume: name.clone(),
                holder: holder.clone(),
            });
        }
    }
    Ok(())
}

fn plan_volume(
    name: &VolumeName,
    from: Option<&Volume>,
    to: &Volume,
    steps: &mut Vec<Step>,
) -> Result<(), PlanError> {
    let from = if let Some(from) = from {
        from.clone()
    } else {
        let plain = Volume {
            read_only: false,
            filters: crate::definitions::Filters::default(),
            ..to.clone()
        };
        steps.push(Step::CreateVolume(name.clone(), plain.clone()));
        plain
    };
    let boxed = |volume: &Volume| Box::new(volume.clone());
    check_unchangeable(name, &from, to)?;
    if from.kind.0.differs_in_settings(&to.kind.0) {
        steps.push(Step::SetSettings {
            name: name.clone(),
            from: from.kind.0.clone(),
            to: to.kind.0.clone(),
        });
    } else if from.kind != to.kind {
        steps.push(Step::ChangeMembers {
            name: name.clone(),
            from: boxed(&from),
            to: boxed(to),
        });
    } else if from.size != to.size {
        steps.push(Step::Resize {
            name: name.clone(),
            from_bytes: from.size.0,
            to_bytes: to.size.0,
        });
    }
    let name = name.clone();
    if from.read_only != to.read_only {
        steps.push(Step::SetLock {
            name: name.clone(),
            from: boxed(&from),
            to: boxed(to),
        });
    }
    if from.filters != to.filters {
        steps.push(Step::SetFilters {
            name,
            from: boxed(&from),
            to: boxed(to),
        });
    }
    Ok(())
}

/// Checks what cannot change of a volume that exists.
fn check_unchangeable(name: &VolumeName, from: &Volume, to: &Volume) -> Result<(), PlanError> {
    let adds_members = from.kind.0.added_members(&to.kind.0).is_some();
    let replaces_member = from.kind.0.replaced_member(&to.kind.0).is_some();
    if from.block_size != to.block_size {
        return Err(PlanError::BlockSize(name.clone()));
    }
    let changes_settings = from.kind.0.differs_in_settings(&to.kind.0);
    if from.kind != to.kind && !adds_members && !replaces_member && !changes_settings {
        return Err(PlanError::Kind(name.clone()));
    }
    if from.identity != to.identity {
        return Err(PlanError::Identity(name.clone()));
    }
    if from.size == to.size || adds_members {
        return Ok(());
    }
    match to.kind.0 {
        VolumeKind::Cache { .. } if to.size > from.size => return Ok(()),
        VolumeKind::Cache { .. } => return Err(PlanError::CacheShrinks(name.clone())),
        VolumeKind::Replicated { .. } => return Err(PlanError::ReplicatedSize(name.clone())),
        _ if from.kind.0.holds_members() => {
            return Err(PlanError::SizeOfMembers(name.clone()));
        }
        _ => {}
    }
    if to.size < from.size && from.kind.0.is_persistent() {
        return Err(PlanError::Shrink(name.clone()));
    }
    if matches!(to.kind.0, VolumeKind::Snapshot { .. }) {
        return Err(PlanError::SnapshotSize(name.clone()));
    }
    Ok(())
}

fn plan_target(name: &TargetName, from: Option<&Target>, to: &Target, steps: &mut Vec<Step>) {
    let Some(from) = from else {
        steps.push(Step::CreateTarget(name.clone(), to.clone()));
        return;
    };
    let others = |mine: &Target, theirs: &Target| -> BTreeMap<Nsid, VolumeName> {
        let differing = mine
            .namespaces
            .iter()
            .filter(|(nsid, volume)| theirs.namespaces.get(nsid) != Some(volume));
        differing
            .map(|(nsid, volume)| (*nsid, volume.0.clone()))
            .collect()
    };
    let gone = others(from, to).into_iter();
    steps.extend(gone.map(|(nsid, volume)| Step::Detach(name.clone(), nsid, volume)));
    let logins = |target: &Target| (target.portal_groups.clone(), target.chap.clone());
    if from.policy() != to.policy() || logins(from) != logins(to) {
        steps.push(Step::SetPolicy {
            name: name.clone(),
            from: from.clone(),
            to: to.clone(),
        });
    }
    let new = others(to, from).into_iter();
    steps.extend(new.map(|(nsid, volume)| Step::Attach(name.clone(), nsid, volume)));
}

#[cfg(test)]
mod tests;
