//! Targets: names under which volumes are offered.

use std::sync::Arc;

use super::{Core, Server, State};
use crate::access::AccessList;
use crate::offered::{Offered, namespaces_max};
use crate::{
    Force, HostPolicy, NamespaceDefinition, ServerError, TargetDefinition, TargetInfo, TargetName,
    VolumeName, Warning,
};

/// A target: what was defined, with its namespaces in the order of their numbers, and what became of it.
#[derive(Clone)]
pub(super) struct TargetEntry {
    pub(super) definition: TargetDefinition,
    pub(super) offered: Arc<Offered>,
    pub(super) access: Arc<AccessList>,
}

/// The most targets.
const TARGETS_MAX: usize = 4096;

impl Server {
    /// Creates a target. Names that are not in NQN form are taken with a warning.
    pub fn create_target(
        &self,
        mut definition: TargetDefinition,
    ) -> Result<Vec<Warning>, ServerError> {
        let mut state = self.state();
        state.check_running()?;
        state.check_new_target(&definition)?;
        definition.namespaces = state.sort_namespaces(&definition)?;
        let name = definition.name.clone();
        let warnings = if name.is_nqn() {
            Vec::new()
        } else {
            vec![Warning::NotAnNqn(name.clone())]
        };
        let core = self.core();
        let offered = Offered::target(&name, core.machine, &core.budget, core.handle.clone());
        for namespace in &definition.namespaces {
            let volume = state.volume(&namespace.volume)?;
            offered.attach(namespace.nsid, &volume.handle, core.machine);
        }
        let entry = TargetEntry {
            access: Arc::new(AccessList::new(&definition.hosts, &state.hosts)),
            offered: Arc::new(offered),
            definition,
        };
        state.targets.insert(name, entry);
        core.publish(&state);
        Ok(warnings)
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
        Ok(())
    }

    /// Removes a target; refused while it has sessions, unless forced, which ends them.
    pub fn remove_target(&self, name: &TargetName, force: Force) -> Result<(), ServerError> {
        let mut state = self.state();
        state.check_running()?;
        state.target(name)?;
        self.core().check_unused(name, force)?;
        if let Some(entry) = state.targets.remove(name) {
            self.core().publish(&state);
            entry
                .offered
                .with(nvme::target::Subsystem::delete_all_controllers);
        }
        Ok(())
    }

    /// Makes a volume a namespace of a target, with the lowest free number where none is given. Returns the
    /// number. Attached hosts are told.
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
        let handle = state.volume(volume)?.handle.clone();
        let entry = state.target_mut(target)?;
        entry.definition.namespaces.insert(at, namespace);
        entry.offered.attach(nsid, &handle, self.core().machine);
        Ok(nsid)
    }

    /// Takes a namespace from a target; refused while the target has sessions, unless forced. Attached hosts are
    /// told.
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
        entry.offered.detach(nsid);
        Ok(())
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
            statistics: target.offered.totals().sum(),
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

    /// Makes the access list of a target follow its policy and the hosts.
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

    /// The namespaces in the order of their numbers, which are within bounds and not given twice; their volumes exist.
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
            let at = place_of(&sorted, namespace)?;
            sorted.namespaces.insert(at, namespace.clone());
        }
        Ok(sorted.namespaces)
    }
}

/// Where a new namespace belongs in the order of numbers.
fn place_of(
    target: &TargetDefinition,
    namespace: &NamespaceDefinition,
) -> Result<usize, ServerError> {
    let (nsid, max) = (namespace.nsid, namespaces_max());
    if nsid == 0 || nsid > max {
        return Err(ServerError::NamespaceId { nsid, max });
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

/// The first number that the sorted namespaces leave free.
fn lowest_free_nsid(target: &TargetDefinition) -> Result<u32, ServerError> {
    let max = namespaces_max();
    let taken = target.namespaces.iter().map(|namespace| namespace.nsid);
    let gap = taken.zip(1..).take_while(|(nsid, at)| nsid == at).count() as u32 + 1;
    if gap > max {
        return Err(ServerError::NamespacesFull {
            target: target.name.clone(),
            max,
        });
    }
    Ok(gap)
}
