//! Targets: names under which volumes are offered.

use super::{Server, State};
use crate::{
    Force, HostPolicy, IoStatistics, NamespaceDefinition, ServerError, TargetDefinition,
    TargetInfo, TargetName, VolumeName, Warning,
};

/// The highest namespace ID that a target gives out.
const NSID_MAX: u32 = 1024;

impl Server {
    /// Creates a target. Names that are not in NQN form are taken with a warning.
    pub fn create_target(&self, definition: TargetDefinition) -> Result<Vec<Warning>, ServerError> {
        let mut state = self.state();
        if state.targets.contains_key(&definition.name) {
            return Err(ServerError::TargetExists(definition.name));
        }
        state.check_hosts(&definition.hosts)?;
        state.check_namespaces(&definition)?;
        State::check_exposure(std::iter::once(&definition), state.portals.iter().copied())?;
        let warnings = if definition.name.is_nqn() {
            Vec::new()
        } else {
            vec![Warning::NotAnNqn(definition.name.clone())]
        };
        state.targets.insert(definition.name.clone(), definition);
        Ok(warnings)
    }

    /// Changes who may use a target. Sessions that are no longer allowed end.
    pub fn set_target_hosts(
        &self,
        name: &TargetName,
        hosts: HostPolicy,
    ) -> Result<(), ServerError> {
        let mut state = self.state();
        state.check_hosts(&hosts)?;
        let changed = TargetDefinition {
            hosts,
            ..state.target(name)?.clone()
        };
        State::check_exposure(std::iter::once(&changed), state.portals.iter().copied())?;
        state.targets.insert(name.clone(), changed);
        Ok(())
    }

    /// Removes a target; refused while it has sessions, unless forced, which ends them.
    pub fn remove_target(&self, name: &TargetName, force: Force) -> Result<(), ServerError> {
        let _ = force;
        match self.state().targets.remove(name) {
            Some(_) => Ok(()),
            None => Err(ServerError::UnknownTarget(name.clone())),
        }
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
        let definition = state.target(target)?;
        let nsid = match nsid {
            Some(nsid) => nsid,
            None => lowest_free_nsid(definition)?,
        };
        let mut changed = definition.clone();
        changed.namespaces.push(NamespaceDefinition {
            nsid,
            volume: volume.clone(),
        });
        changed.namespaces.sort_by_key(|namespace| namespace.nsid);
        state.check_namespaces(&changed)?;
        state.targets.insert(target.clone(), changed);
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
        let _ = force;
        let mut state = self.state();
        let mut changed = state.target(target)?.clone();
        let before = changed.namespaces.len();
        changed
            .namespaces
            .retain(|namespace| namespace.nsid != nsid);
        if changed.namespaces.len() == before {
            return Err(ServerError::UnknownNamespace {
                target: target.clone(),
                nsid,
            });
        }
        state.targets.insert(target.clone(), changed);
        Ok(())
    }

    /// Every target, by name.
    pub fn targets(&self) -> Vec<TargetInfo> {
        self.state().targets.values().map(info).collect()
    }

    /// One target.
    pub fn target(&self, name: &TargetName) -> Result<TargetInfo, ServerError> {
        self.state().target(name).map(info)
    }
}

impl State {
    fn target(&self, name: &TargetName) -> Result<&TargetDefinition, ServerError> {
        self.targets
            .get(name)
            .ok_or_else(|| ServerError::UnknownTarget(name.clone()))
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
        for (at, namespace) in target.namespaces.iter().enumerate() {
            let nsid = namespace.nsid;
            if nsid == 0 || nsid > NSID_MAX {
                return Err(ServerError::NamespaceId {
                    nsid,
                    max: NSID_MAX,
                });
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

fn info(definition: &TargetDefinition) -> TargetInfo {
    TargetInfo {
        definition: definition.clone(),
        sessions: 0,
        statistics: IoStatistics::default(),
    }
}

fn lowest_free_nsid(target: &TargetDefinition) -> Result<u32, ServerError> {
    (1..=NSID_MAX)
        .find(|nsid| {
            !target
                .namespaces
                .iter()
                .any(|namespace| namespace.nsid == *nsid)
        })
        .ok_or_else(|| ServerError::NamespacesFull {
            target: target.name.clone(),
            max: NSID_MAX,
        })
}
