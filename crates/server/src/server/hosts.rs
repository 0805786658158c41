//! Hosts: who may use targets.

use super::{Server, State};
use crate::{
    ChapDefinition, ChapOwner, HostDefinition, HostInfo, HostName, HostPolicy, ServerError,
    TargetName, ToldBy,
};

impl Server {
    /// Defines a host.
    pub fn create_host(&self, definition: HostDefinition) -> Result<(), ServerError> {
        check(&definition)?;
        let mut state = self.state();
        state.check_running()?;
        if state.hosts.contains_key(&definition.name) {
            return Err(ServerError::HostExists(definition.name));
        }
        state.hosts.insert(definition.name.clone(), definition);
        Ok(())
    }

    /// Changes a host. Sessions that are no longer allowed end.
    pub fn change_host(&self, definition: HostDefinition) -> Result<(), ServerError> {
        check(&definition)?;
        let mut state = self.state();
        state.check_running()?;
        let name = definition.name.clone();
        match state.hosts.get_mut(&name) {
            Some(host) => *host = definition,
            None => return Err(ServerError::UnknownHost(name)),
        }
        let targets: Vec<_> = state.targets_of_host(&name).cloned().collect();
        for target in &targets {
            state.renew_access(target);
        }
        self.core().publish(&state);
        self.core().renew_sessions(&state);
        drop(state);
        self.finish_turns()
    }

    /// Removes a host that no target's list names.
    pub fn remove_host(&self, name: &HostName) -> Result<(), ServerError> {
        let mut state = self.state();
        state.check_running()?;
        if let Some(target) = state.targets_of_host(name).next() {
            return Err(ServerError::HostInUse {
                host: name.clone(),
                target: target.clone(),
            });
        }
        match state.hosts.remove(name) {
            Some(_) => Ok(()),
            None => Err(ServerError::UnknownHost(name.clone())),
        }
    }

    /// Every host, by name.
    pub fn hosts(&self) -> Vec<HostInfo> {
        let state = self.state();
        let hosts = state.hosts.values();
        hosts.map(|host| state.host_info(host)).collect()
    }

    /// One host.
    pub fn host(&self, name: &HostName) -> Result<HostInfo, ServerError> {
        let state = self.state();
        match state.hosts.get(name) {
            Some(host) => Ok(state.host_info(host)),
            None => Err(ServerError::UnknownHost(name.clone())),
        }
    }
}

impl State {
    fn host_info(&self, host: &HostDefinition) -> HostInfo {
        HostInfo {
            definition: host.clone(),
            targets: self.targets_of_host(&host.name).cloned().collect(),
        }
    }

    /// The targets whose lists name the host.
    fn targets_of_host(&self, name: &HostName) -> impl Iterator<Item = &TargetName> {
        self.targets
            .values()
            .filter(move |target| match &target.definition.hosts {
                HostPolicy::Listed(list) => list.iter().any(|allowed| allowed.host == *name),
                HostPolicy::Local | HostPolicy::Any(_) => false,
            })
            .map(|target| &target.definition.name)
    }
}

fn check(definition: &HostDefinition) -> Result<(), ServerError> {
    if definition.told_by == ToldBy::Address && definition.addresses.is_empty() {
        return Err(ServerError::HostWithoutAddress(definition.name.clone()));
    }
    let chap = definition
        .chap
        .as_ref()
        .map_or(Ok(()), ChapDefinition::check);
    chap.map_err(|fault| ServerError::Chap {
        owner: ChapOwner::Host(definition.name.clone()),
        fault,
    })
}
