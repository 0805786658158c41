//! From definitions to the server's own values, and the checks that need no server.

use target::{
    AllowedHost, HostDefinition, HostName, HostPolicy, Lock, NamespaceDefinition, TargetDefinition,
    TargetName, VolumeDefinition, VolumeName,
};
use volume::filters::FaultError;
use volume::{ByteSize, Provision, RamSpec, SpecError};

use super::{Access, Definitions, Host, Provisioning, Target, ToldBy, Volume};

/// How definitions contradict themselves or each other.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum DefinitionFault {
    /// A target is for any host and for some.
    #[error("target {target} has both any_host and hosts; keep one of them")]
    TwoPolicies {
        /// The target.
        target: TargetName,
    },
    /// A target names a volume that does not exist.
    #[error(
        "namespace {nsid} of target {target} is volume {volume}, which is not defined; define it or leave the namespace out"
    )]
    UndefinedVolume {
        /// The target.
        target: TargetName,
        /// The namespace ID.
        nsid: u32,
        /// The volume.
        volume: VolumeName,
    },
    /// A target's list names a host that does not exist.
    #[error(
        "target {target} lists host {host}, which is not defined; define it or take it off the list"
    )]
    UndefinedHost {
        /// The target.
        target: TargetName,
        /// The host.
        host: HostName,
    },
    /// A host is told by its address and has none.
    #[error("host {host} is told by its address but has none; give addresses")]
    HostWithoutAddress {
        /// The host.
        host: HostName,
    },
    /// A volume can't be so.
    #[error("volume {volume}: {fault}")]
    Volume {
        /// The volume.
        volume: VolumeName,
        /// What is wrong.
        fault: SpecError,
    },
    /// A rule has two rates.
    #[error("a fault rule of volume {volume} has both every and per_million; keep one of them")]
    TwoFaultRates {
        /// The volume.
        volume: VolumeName,
    },
    /// Filters of a volume are wrong.
    #[error("filters of volume {volume}: {fault}")]
    Filters {
        /// The volume.
        volume: VolumeName,
        /// What is wrong.
        fault: FaultError,
    },
}

impl Definitions {
    /// Whether the definitions agree with themselves.
    pub fn check(&self) -> Result<(), DefinitionFault> {
        for (name, volume) in &self.volumes {
            volume.check(&name.0)?;
        }
        for (name, host) in &self.hosts {
            host.check(&name.0)?;
        }
        for (name, target) in &self.targets {
            self.check_target(&name.0, target)?;
        }
        Ok(())
    }

    /// Whether a target agrees with itself and with what else is defined.
    pub(crate) fn check_target(
        &self,
        name: &TargetName,
        target: &Target,
    ) -> Result<(), DefinitionFault> {
        if target.any_host.is_some() && target.hosts.is_some() {
            return Err(DefinitionFault::TwoPolicies {
                target: name.clone(),
            });
        }
        for (nsid, volume) in &target.namespaces {
            if !self.volumes.contains_key(volume) {
                return Err(DefinitionFault::UndefinedVolume {
                    target: name.clone(),
                    nsid: nsid.0,
                    volume: volume.0.clone(),
                });
            }
        }
        for host in target.hosts.iter().flat_map(|hosts| hosts.keys()) {
            if !self.hosts.contains_key(host) {
                return Err(DefinitionFault::UndefinedHost {
                    target: name.clone(),
                    host: host.0.clone(),
                });
            }
        }
        Ok(())
    }
}

impl Volume {
    pub(crate) fn check(&self, name: &VolumeName) -> Result<(), DefinitionFault> {
        let spec = RamSpec {
            size: ByteSize(self.size.0),
            block_size: self.block_size.0,
            provision: Provision::Thin,
        };
        if let Err(fault) = spec.check() {
            return Err(DefinitionFault::Volume {
                volume: name.clone(),
                fault,
            });
        }
        if self.filters.has_two_fault_rates() {
            return Err(DefinitionFault::TwoFaultRates {
                volume: name.clone(),
            });
        }
        match self.filters.to_spec() {
            Ok(_) => Ok(()),
            Err(fault) => Err(DefinitionFault::Filters {
                volume: name.clone(),
                fault,
            }),
        }
    }

    pub(crate) fn to_server(&self, name: &VolumeName) -> VolumeDefinition {
        VolumeDefinition {
            name: name.clone(),
            len_bytes: self.size.0,
            block_size: self.block_size.0,
            provisioning: self.provisioning.into(),
        }
    }

    pub(crate) fn lock(&self) -> Lock {
        if self.read_only {
            Lock::ReadOnly
        } else {
            Lock::Unlocked
        }
    }
}

impl Target {
    pub(crate) fn to_server(&self, name: &TargetName) -> TargetDefinition {
        let namespaces = self
            .namespaces
            .iter()
            .map(|(nsid, volume)| NamespaceDefinition {
                nsid: nsid.0,
                volume: volume.0.clone(),
            });
        TargetDefinition {
            name: name.clone(),
            hosts: self.policy(),
            namespaces: namespaces.collect(),
        }
    }

    pub(crate) fn policy(&self) -> HostPolicy {
        match (&self.hosts, self.any_host) {
            (Some(hosts), _) => HostPolicy::Listed(
                hosts
                    .iter()
                    .map(|(host, &access)| AllowedHost {
                        host: host.0.clone(),
                        access: access.into(),
                    })
                    .collect(),
            ),
            (None, Some(access)) => HostPolicy::Any(access.into()),
            (None, None) => HostPolicy::Local,
        }
    }
}

impl Host {
    pub(crate) fn check(&self, name: &HostName) -> Result<(), DefinitionFault> {
        if self.told_by == ToldBy::Address && self.addresses.is_empty() {
            return Err(DefinitionFault::HostWithoutAddress { host: name.clone() });
        }
        Ok(())
    }

    pub(crate) fn to_server(&self, name: &HostName) -> HostDefinition {
        HostDefinition {
            name: name.clone(),
            told_by: self.told_by.into(),
            addresses: self.addresses.iter().map(|range| range.0).collect(),
        }
    }
}

impl From<Provisioning> for target::Provisioning {
    fn from(provisioning: Provisioning) -> Self {
        match provisioning {
            Provisioning::Thin => Self::Thin,
            Provisioning::Thick => Self::Thick,
        }
    }
}

impl From<ToldBy> for target::ToldBy {
    fn from(told_by: ToldBy) -> Self {
        match told_by {
            ToldBy::Name => Self::Name,
            ToldBy::Address => Self::Address,
        }
    }
}

impl From<Access> for block::Access {
    fn from(access: Access) -> Self {
        match access {
            Access::ReadWrite => Self::ReadWrite,
            Access::ReadOnly => Self::ReadOnly,
        }
    }
}
