//! Targets: names under which volumes are offered.

use std::sync::Arc;

use super::{Core, Server, State};
use crate::access::AccessList;
use crate::offered::{Offered, namespaces_max};
use crate::{
    Force, HostPolicy, NamespaceDefinition, ServerError, TargetDefinition, TargetInfo, TargetName,
    VolumeName, Warning,
};

/// A target: what was defined, and what became of it.
pub(super) struct TargetEntry {
    pub(super) definition: TargetDefinition,
    pub(super) offered: Arc<Offered>,
    pub(super) access: Arc<AccessList>,
}

/// The most targets.
const TARGETS_MAX: usize = 4096;

impl Server {
    /// Creates a target. Names that are not in NQN form are taken with a warning.
    pub fn create_target(&self, definition: TargetDefinition) -> Result<Vec<Warning>, ServerError> {
        let mut state = self.state();
        state.check_running()?;
        state.check_new_target(&definition)?;
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
        let mut changed = entry.definition.clone();
        changed.namespaces.push(NamespaceDefinition {
            nsid,
            volume: volume.clone(),
        });
        state.check_namespaces(&changed)?;
        changed.namespaces.sort_by_key(|namespace| namespace.nsid);
        let handle = state.volume(volume)?.handle.clone();
        let entry = state.target_mut(target)?;
        entry.definition = changed;
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
        let Some(at) = namespaces.iter().position(|ns| ns.nsid == nsid) else {
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
        let state = self.state();
        let targets = state.targets.values();
        targets
            .map(|target| self.core().target_info(target))
            .collect()
    }

    /// One target.
    pub fn target(&self, name: &TargetName) -> Result<TargetInfo, ServerError> {
        let state = self.state();
        let target = state.target(name)?;
        Ok(self.core().target_info(target))
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
        self.check_namespaces(definition)?;
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

    /// Namespace IDs within bounds and not given twice, volumes that exist.
    fn check_namespaces(&self, target: &TargetDefinition) -> Result<(), ServerError> {
        let max = namespaces_max();
        for (at, namespace) in target.namespaces.iter().enumerate() {
            let nsid = namespace.nsid;
            if nsid == 0 || nsid > max {
                return Err(ServerError::NamespaceId { nsid, max });
            }
            self.volume(&namespace.volume)?;
            let twice = target.namespaces[..at]
                .iter()
                .find(|other| other.nsid == nsid);
            if let Some(other) = twice {
                return Err(ServerError::NamespaceExists {
                    target: target.name.clone(),
                    nsid,
                    volume: other.volume.clone(),
                });
            }
        }
        Ok(())
    }
}

fn lowest_free_nsid(target: &TargetDefinition) -> Result<u32, ServerError> {
    let max = namespaces_max();
    let is_taken = |nsid: &u32| target.namespaces.iter().any(|ns| ns.nsid == *nsid);
    (1..=max)
        .find(|nsid| !is_taken(nsid))
        .ok_or_else(|| ServerError::NamespacesFull {
            target: target.name.clone(),
            max,
        })
}
