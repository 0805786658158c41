//! Targets: names under which volumes are offered.

use std::sync::Arc;

use uuid::Uuid;

use super::{Core, Server, State};
use crate::access::AccessList;
use crate::counters::Totals;
use crate::iscsi::IscsiTarget;
use crate::nvme_target::{NvmeTarget, namespaces_max};
use crate::volume_handle::VolumeHandle;
use crate::{
    ChapDefinition, ChapOwner, Force, HostPolicy, LoginPolicy, NamespaceDefinition, Protocol,
    ServerError, TargetDefinition, TargetInfo, TargetName, VolumeName, Warning,
};

/// A target: its definition, with its namespaces in the order of their numbers, and the service at
/// work.
#[derive(Clone)]
pub(super) struct TargetEntry {
    pub(super) definition: TargetDefinition,
    pub(super) service: Service,
    pub(super) access: Arc<AccessList>,
}

/// A target as its protocol's connections reach it.
#[derive(Clone)]
pub(super) enum Service {
    Nvme(Arc<NvmeTarget>),
    Iscsi(Arc<IscsiTarget>),
}

impl Service {
    fn new(name: &TargetName, core: &Core) -> Self {
        let handle = core.handle.clone();
        match name.protocol() {
            Protocol::Nvme => {
                let target = NvmeTarget::named(name, &core.budget, handle);
                Self::Nvme(Arc::new(target))
            }
            Protocol::Iscsi => {
                let save_queue = Arc::clone(&core.save_queue);
                Self::Iscsi(Arc::new(IscsiTarget::new(name, handle, save_queue)))
            }
        }
    }

    pub(super) fn is_iscsi(&self, target: &Arc<IscsiTarget>) -> bool {
        matches!(self, Self::Iscsi(mine) if Arc::ptr_eq(mine, target))
    }

    fn totals(&self) -> &Arc<Totals> {
        match self {
            Self::Nvme(target) => target.totals(),
            Self::Iscsi(target) => target.totals(),
        }
    }

    /// Ends every session for good.
    fn remove(&self) {
        match self {
            Self::Nvme(target) => target.remove(),
            Self::Iscsi(target) => target.remove(),
        }
    }

    /// Makes a volume a namespace or LUN. The number is free and within bounds.
    fn attach(&self, number: u32, volume: &VolumeHandle, machine: Uuid) {
        match self {
            Self::Nvme(target) => target.attach(number, volume, machine),
            Self::Iscsi(target) => target.attach(lun(number), volume, machine),
        }
    }

    /// Removes a namespace or LUN.
    pub(super) fn detach(&self, number: u32) {
        match self {
            Self::Nvme(target) => target.detach(number),
            Self::Iscsi(target) => target.detach(lun(number)),
        }
    }

    /// Notifies hosts that a volume has changed.
    pub(super) fn notify(&self, number: u32, change: VolumeChange) {
        match (self, change) {
            (Self::Nvme(target), VolumeChange::Path) => target.path_changed(number),
            (Self::Nvme(target), _) => target.namespace_changed(number),
            (Self::Iscsi(target), VolumeChange::Capacity) => target.capacity_changed(lun(number)),
            (Self::Iscsi(target), VolumeChange::Lock) => target.protection_changed(lun(number)),
            (Self::Iscsi(target), VolumeChange::Ready) => target.became_ready(lun(number)),
            (Self::Iscsi(target), VolumeChange::Path) => target.path_changed(lun(number)),
        }
    }
}

/// How a volume has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum VolumeChange {
    Capacity,
    Lock,
    /// It executes commands again.
    Ready,
    /// Its hosts may reach it in another way.
    Path,
}

/// The LUN of a number in an iSCSI target.
fn lun(number: u32) -> scsi::Lun {
    scsi::Lun::try_from(number).expect("numbers are checked before they become LUNs")
}

fn check_logins(name: &TargetName, logins: &LoginPolicy) -> Result<(), ServerError> {
    if name.protocol() != Protocol::Iscsi && *logins != LoginPolicy::default() {
        return Err(ServerError::LoginPolicy(name.clone()));
    }
    let chap = logins.chap.as_ref().map_or(Ok(()), ChapDefinition::check);
    chap.map_err(|fault| ServerError::Chap {
        owner: ChapOwner::Target(name.clone()),
        fault,
    })
}

/// The most targets.
const TARGETS_MAX: usize = 4096;

impl Server {
    /// Creates a target. A name that is not in NQN form is accepted with a warning.
    pub fn create_target(
        &self,
        mut definition: TargetDefinition,
    ) -> Result<Vec<Warning>, ServerError> {
        let mut state = self.state();
        state.check_running()?;
        state.check_new_target(&definition)?;
        check_logins(&definition.name, &definition.logins)?;
        definition.namespaces = state.sort_namespaces(&definition)?;
        let name = definition.name.clone();
        let warnings = if name.is_nqn() || name.protocol() == Protocol::Iscsi {
            Vec::new()
        } else {
            vec![Warning::NotAnNqn(name.clone())]
        };
        let core = self.core();
        let service = Service::new(&name, core);
        for namespace in &definition.namespaces {
            let volume = state.volume(&namespace.volume)?;
            service.attach(namespace.nsid, volume, state.machine);
        }
        let entry = TargetEntry {
            access: Arc::new(AccessList::new(&definition.hosts, &state.hosts)),
            service,
            definition,
        };
        state.targets.insert(name, entry);
        core.publish(&state);
        Ok(warnings)
    }

    /// Endless names for an iSCSI target, made of this machine and `word`, and numbered from the
    /// second on.
    pub fn iscsi_names(&self, word: &str) -> impl Iterator<Item = TargetName> + use<> {
        let machine = self.state().machine.simple().to_string();
        let word: String = word
            .chars()
            .map(|c| match c.to_ascii_lowercase() {
                c @ ('a'..='z' | '0'..='9' | '.' | '-') => c,
                _ => '-',
            })
            .collect();
        let stem = format!("iqn.2025-01.io.ramport:{}.{word}", &machine[..8]);
        let numbered = (2_u64..).map({
            let stem = stem.clone();
            move |number| format!("{stem}.{number}")
        });
        let names = std::iter::once(stem).chain(numbered);
        names.map(|name| name.parse().expect("made of what such names are made of"))
    }

    /// Changes who may use a target. Sessions that are no longer allowed end.
    pub fn set_target_hosts(
        &self,
        name: &TargetName,
        hosts: HostPolicy,
    ) -> Result<(), ServerError> {
        let mut state = self.state();
        state.check_running()?;
        state.check_hosts(&hosts)?;
        let changed = TargetDefinition {
            hosts,
            ..state.target(name)?.definition.clone()
        };
        State::check_exposure(std::iter::once(&changed), state.portals.keys())?;
        state.target_mut(name)?.definition = changed;
        state.renew_access(name);
        self.core().publish(&state);
        self.core().renew_sessions(&state);
        drop(state);
        self.finish_turns()
    }

    /// Changes how an iSCSI target accepts logins. Sessions end if their portal no longer reaches
    /// the target; others are not authenticated again.
    pub fn set_target_logins(
        &self,
        name: &TargetName,
        logins: LoginPolicy,
    ) -> Result<(), ServerError> {
        let mut state = self.state();
        state.check_running()?;
        check_logins(name, &logins)?;
        let entry = state.target_mut(name)?;
        if let Service::Iscsi(target) = &entry.service {
            target.keep_reached(&logins);
        }
        entry.definition.logins = logins;
        self.core().publish(&state);
        drop(state);
        self.finish_turns()
    }

    /// Removes a target. While it has sessions this fails, unless forced, which ends them. When
    /// this returns, no command of theirs is executed any more.
    pub fn remove_target(&self, name: &TargetName, force: Force) -> Result<(), ServerError> {
        let mut state = self.state();
        state.check_running()?;
        state.target(name)?;
        self.core().check_unused(name, force)?;
        if let Some(entry) = state.targets.remove(name) {
            self.core().publish(&state);
            entry.service.remove();
        }
        drop(state);
        self.finish_turns()
    }

    /// Makes a volume a namespace of a target, with the lowest free number if none is given, and
    /// notifies attached hosts. Returns the number.
    pub fn attach_volume(
        &self,
        target: &TargetName,
        volume: &VolumeName,
        nsid: Option<u32>,
    ) -> Result<u32, ServerError> {
        let mut state = self.state();
        state.check_running()?;
        let entry = state.target(target)?;
        let nsid = match nsid {
            Some(nsid) => nsid,
            None => lowest_free_nsid(&entry.definition)?,
        };
        let namespace = NamespaceDefinition {
            nsid,
            volume: volume.clone(),
        };
        let at = place_of(&entry.definition, &namespace)?;
        state.check_not_held(volume)?;
        let handle = state.volume(volume)?.clone();
        let machine = state.machine;
        let entry = state.target_mut(target)?;
        entry.definition.namespaces.insert(at, namespace);
        entry.service.attach(nsid, &handle, machine);
        Ok(nsid)
    }

    /// Removes a namespace from a target, and notifies attached hosts. While the target has
    /// sessions this fails, unless forced. When this returns, no command of theirs reaches the
    /// volume any more.
    pub fn detach_volume(
        &self,
        target: &TargetName,
        nsid: u32,
        force: Force,
    ) -> Result<(), ServerError> {
        let mut state = self.state();
        state.check_running()?;
        let entry = state.target_mut(target)?;
        let namespaces = &mut entry.definition.namespaces;
        let Ok(at) = namespaces.binary_search_by_key(&nsid, |ns| ns.nsid) else {
            return Err(ServerError::UnknownNamespace {
                target: target.clone(),
                nsid,
            });
        };
        self.core().check_unused(target, force)?;
        namespaces.remove(at);
        entry.service.detach(nsid);
        drop(state);
        self.finish_turns()
    }

    /// Every target, by name.
    pub fn targets(&self) -> Vec<TargetInfo> {
        let targets: Vec<_> = self.state().targets.values().cloned().collect();
        let targets = targets.iter();
        targets
            .map(|target| self.core().target_info(target))
            .collect()
    }

    /// One target.
    pub fn target(&self, name: &TargetName) -> Result<TargetInfo, ServerError> {
        let target = self.state().target(name)?.clone();
        Ok(self.core().target_info(&target))
    }
}

impl Core {
    fn check_unused(&self, target: &TargetName, force: Force) -> Result<(), ServerError> {
        let sessions = self.registry.sessions_of(target);
        if sessions > 0 && force == Force::No {
            return Err(ServerError::TargetInUse {
                target: target.clone(),
                sessions,
            });
        }
        Ok(())
    }

    fn target_info(&self, target: &TargetEntry) -> TargetInfo {
        TargetInfo {
            definition: target.definition.clone(),
            sessions: self.registry.sessions_of(&target.definition.name),
            statistics: target.service.totals().sum(),
        }
    }
}

impl State {
    fn target(&self, name: &TargetName) -> Result<&TargetEntry, ServerError> {
        self.targets
            .get(name)
            .ok_or_else(|| ServerError::UnknownTarget(name.clone()))
    }

    fn target_mut(&mut self, name: &TargetName) -> Result<&mut TargetEntry, ServerError> {
        self.targets
            .get_mut(name)
            .ok_or_else(|| ServerError::UnknownTarget(name.clone()))
    }

    /// Updates the access list of a target from its policy and the hosts.
    pub(super) fn renew_access(&mut self, name: &TargetName) {
        if let Some(target) = self.targets.get_mut(name) {
            target.access = Arc::new(AccessList::new(&target.definition.hosts, &self.hosts));
        }
    }

    fn check_new_target(&self, definition: &TargetDefinition) -> Result<(), ServerError> {
        if self.targets.contains_key(&definition.name) {
            return Err(ServerError::TargetExists(definition.name.clone()));
        }
        if self.targets.len() >= TARGETS_MAX {
            return Err(ServerError::TooMany {
                what: "targets",
                max: TARGETS_MAX,
            });
        }
        self.check_hosts(&definition.hosts)?;
        Self::check_exposure(std::iter::once(definition), self.portals.keys())
    }

    fn check_hosts(&self, hosts: &HostPolicy) -> Result<(), ServerError> {
        let HostPolicy::Listed(list) = hosts else {
            return Ok(());
        };
        match list
            .iter()
            .find(|allowed| !self.hosts.contains_key(&allowed.host))
        {
            Some(unknown) => Err(ServerError::UnknownHost(unknown.host.clone())),
            None => Ok(()),
        }
    }

    /// The namespaces in the order of their numbers. Checks that numbers are within bounds and
    /// unique, and that the volumes exist.
    fn sort_namespaces(
        &self,
        target: &TargetDefinition,
    ) -> Result<Vec<NamespaceDefinition>, ServerError> {
        let mut sorted = TargetDefinition {
            namespaces: Vec::new(),
            ..target.clone()
        };
        for namespace in &target.namespaces {
            self.volume(&namespace.volume)?;
            self.check_not_held(&namespace.volume)?;
            let at = place_of(&sorted, namespace)?;
            sorted.namespaces.insert(at, namespace.clone());
        }
        Ok(sorted.namespaces)
    }
}

/// The index of a new namespace in the order of numbers.
fn place_of(
    target: &TargetDefinition,
    namespace: &NamespaceDefinition,
) -> Result<usize, ServerError> {
    let nsid = namespace.nsid;
    let (min, max) = numbers(target);
    if nsid < min || nsid > max {
        return Err(ServerError::NamespaceId { nsid, min, max });
    }
    let namespaces = &target.namespaces;
    match namespaces.binary_search_by_key(&nsid, |namespace| namespace.nsid) {
        Err(at) => Ok(at),
        Ok(at) => Err(ServerError::NamespaceExists {
            target: target.name.clone(),
            nsid,
            volume: namespaces[at].volume.clone(),
        }),
    }
}

/// The lowest and the highest number of a volume in a target.
fn numbers(target: &TargetDefinition) -> (u32, u32) {
    let protocol = target.name.protocol();
    let max = match protocol {
        Protocol::Nvme => namespaces_max(),
        Protocol::Iscsi => scsi::UNITS_MAX as u32 - 1,
    };
    (protocol.first_number(), max)
}

/// The first number that the sorted namespaces leave free.
fn lowest_free_nsid(target: &TargetDefinition) -> Result<u32, ServerError> {
    let (min, max) = numbers(target);
    let taken = target.namespaces.iter().map(|namespace| namespace.nsid);
    let gap = min + taken.zip(min..).take_while(|(nsid, at)| nsid == at).count() as u32;
    if gap > max {
        return Err(ServerError::NamespacesFull {
            target: target.name.clone(),
            max: max - min + 1,
        });
    }
    Ok(gap)
}
