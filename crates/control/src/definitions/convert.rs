//! From definitions to the server's own values, and the checks that need no server.

use std::collections::BTreeMap;
use std::sync::Arc;

use server::{
    AllowedHost, ChapOwner, HostDefinition, HostName, HostPolicy, LoginPolicy, NamespaceDefinition,
    PortalGroup, Protocol, ServerError, TargetDefinition, TargetName, VolumeName,
};
use volume::{ByteSize, VolumeKind, VolumeSpec, WriteLock};

use super::fault::DefinitionFault;
use super::{Access, Chap, Definitions, DhChap, Host, Nsid, Target, Tls, ToldBy, Volume};
use crate::text::Text;

/// The highest LUN that a host can be shown: those that need no more than one level and 14 bits.
const LUN_MAX: u32 = (1 << 14) - 1;

impl Definitions {
    /// Checks that the definitions are consistent.
    pub fn check(&self) -> Result<(), DefinitionFault> {
        for (name, volume) in &self.volumes {
            volume.check(&name.0)?;
        }
        self.check_all_parents()?;
        for (name, host) in &self.hosts {
            host.check(&name.0)?;
        }
        for (name, target) in &self.targets {
            self.check_target(&name.0, target, |_| false)?;
        }
        for (name, share) in &self.shares {
            let checked = share.check();
            checked.map_err(|fault| DefinitionFault::share(&name.0, fault))?;
        }
        self.check_identities(self.machine)
    }

    /// Checks that a target is consistent in itself and with the other definitions. `is_new`
    /// returns whether a host is about to be defined.
    pub(crate) fn check_target(
        &self,
        name: &TargetName,
        target: &Target,
        is_new: impl Fn(&HostName) -> bool,
    ) -> Result<(), DefinitionFault> {
        if target.any_host.is_some() && target.hosts.is_some() {
            return Err(DefinitionFault::TwoPolicies {
                target: name.clone(),
            });
        }
        let zero = Nsid(0);
        if name.protocol() == Protocol::Nvme && target.namespaces.contains_key(&zero) {
            return Err(DefinitionFault::NamespaceZero {
                target: name.clone(),
            });
        }
        let mut numbers = BTreeMap::new();
        for (nsid, volume) in &target.namespaces {
            if let Some(first) = numbers.insert(volume, nsid) {
                return Err(DefinitionFault::VolumeTwice {
                    target: name.clone(),
                    volume: volume.0.clone(),
                    first: first.0,
                    second: nsid.0,
                });
            }
            if !self.volumes.contains_key(volume) {
                return Err(DefinitionFault::UndefinedVolume {
                    target: name.clone(),
                    nsid: nsid.0,
                    volume: volume.0.clone(),
                });
            }
        }
        for host in target.hosts.iter().flat_map(|hosts| hosts.keys()) {
            if !self.hosts.contains_key(host) && !is_new(&host.0) {
                return Err(DefinitionFault::UndefinedHost {
                    target: name.clone(),
                    host: host.0.clone(),
                });
            }
        }
        target.check_logins(name)?;
        target.check_luns(name)
    }
}

impl Volume {
    /// Checks what can be checked of it alone.
    ///
    /// # Errors
    /// If its size, its kind, its filters or its saving is invalid.
    pub fn check(&self, name: &VolumeName) -> Result<(), DefinitionFault> {
        let is_sized_later = self.lacks_size() && self.kind.0.is_persistent();
        let checked = if is_sized_later {
            self.kind.0.check()
        } else {
            self.spec().check()
        };
        checked.map_err(|fault| DefinitionFault::Volume {
            volume: name.clone(),
            fault,
        })?;
        self.check_saving()
            .map_err(|fault| DefinitionFault::Saving {
                volume: name.clone(),
                fault,
            })?;
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

    /// Whether the size is to be that of the file or of the members.
    pub(crate) fn lacks_size(&self) -> bool {
        self.size.0 == 0
    }

    /// Whether what it leaves open is as it is defined in `before`.
    pub(crate) fn has_form_of(&self, before: &Self) -> bool {
        let mut kind = self.kind.clone();
        if let (VolumeKind::Remote { disk, .. }, VolumeKind::Remote { disk: known, .. }) =
            (&mut kind.0, &before.kind.0)
            && disk.is_none()
        {
            disk.clone_from(known);
        }
        kind == before.kind
    }

    /// Takes what it leaves open from `before`: the size, and which disk it is.
    pub(crate) fn take_form_of(&mut self, before: &Self) {
        if self.lacks_size() {
            self.size = before.size;
            // The block size of a remote disk is known with its size.
            if matches!(self.kind.0, VolumeKind::Remote { .. }) {
                self.block_size = before.block_size;
            }
        }
        self.kind = before.kind.clone();
    }

    /// What it is to be.
    pub fn spec(&self) -> VolumeSpec {
        VolumeSpec {
            size: ByteSize(self.size.0),
            block_size: self.block_size.0,
            kind: self.kind.0.clone(),
        }
    }

    pub(crate) fn write_lock(&self) -> WriteLock {
        if self.read_only {
            WriteLock::ReadOnly
        } else {
            WriteLock::Writable
        }
    }
}

impl Target {
    fn check_logins(&self, name: &TargetName) -> Result<(), DefinitionFault> {
        let is_plain = self.portal_groups.is_empty() && self.chap.is_none();
        if name.protocol() != Protocol::Iscsi && !is_plain {
            return Err(DefinitionFault::LoginPolicy {
                target: name.clone(),
            });
        }
        check_chap(self.chap.as_ref(), || ChapOwner::Target(name.clone()))
    }

    pub(crate) fn logins(&self, name: &TargetName) -> Result<LoginPolicy, ServerError> {
        let chap = self.chap.as_ref().map(Chap::to_server).transpose();
        let chap = chap.map_err(|fault| ServerError::Chap {
            owner: ChapOwner::Target(name.clone()),
            fault,
        })?;
        Ok(LoginPolicy {
            groups: self
                .portal_groups
                .iter()
                .copied()
                .map(PortalGroup)
                .collect(),
            chap,
        })
    }

    fn check_luns(&self, name: &TargetName) -> Result<(), DefinitionFault> {
        let listed = |host| self.hosts.as_ref().is_some_and(|h| h.contains_key(host));
        let all = self.luns.iter();
        let all = all.flat_map(|(host, map)| map.iter().map(move |(lun, to)| (host, lun, to)));
        for (host, lun, to) in all {
            let is_known = listed(host) && self.namespaces.contains_key(to);
            if name.protocol() != Protocol::Iscsi || !is_known || lun.0 > LUN_MAX {
                return Err(DefinitionFault::LunMap {
                    target: name.clone(),
                    host: host.0.clone(),
                    lun: lun.0,
                    number: to.0,
                });
            }
        }
        Ok(())
    }

    /// The LUNs that a host sees, if it does not see all.
    fn luns_of(&self, host: &Text<HostName>) -> Option<BTreeMap<u16, u32>> {
        let known = |(lun, to): (&Nsid, &Nsid)| Some((u16::try_from(lun.0).ok()?, to.0));
        let map = self.luns.get(host)?;
        Some(map.iter().filter_map(known).collect())
    }

    pub(crate) fn to_server(&self, name: &TargetName) -> Result<TargetDefinition, ServerError> {
        let namespaces = self
            .namespaces
            .iter()
            .map(|(nsid, volume)| NamespaceDefinition {
                nsid: nsid.0,
                volume: volume.0.clone(),
            });
        Ok(TargetDefinition {
            name: name.clone(),
            hosts: self.policy(),
            logins: self.logins(name)?,
            namespaces: namespaces.collect(),
        })
    }

    pub(crate) fn policy(&self) -> HostPolicy {
        match (&self.hosts, self.any_host) {
            (Some(hosts), _) => HostPolicy::Listed(
                hosts
                    .iter()
                    .map(|(host, &access)| AllowedHost {
                        host: host.0.clone(),
                        access: access.into(),
                        luns: self.luns_of(host),
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
        let is_nvme = self.told_by == ToldBy::Name && name.protocol() == Protocol::Nvme;
        if self.chap.is_some() && is_nvme {
            return Err(DefinitionFault::ChapOverNvme { host: name.clone() });
        }
        let is_iscsi = self.told_by == ToldBy::Name && name.protocol() == Protocol::Iscsi;
        if self.dhchap.is_some() && is_iscsi {
            return Err(DefinitionFault::DhChapOverIscsi { host: name.clone() });
        }
        if let Some(Err(fault)) = self.dhchap.as_ref().map(DhChap::check) {
            let host = name.clone();
            return Err(DefinitionFault::DhChap { host, fault });
        }
        // A key is looked up by the name that the host sends.
        if self.tls.is_some() && (is_iscsi || self.told_by == ToldBy::Address) {
            return Err(DefinitionFault::TlsWithoutNqn { host: name.clone() });
        }
        if let Some(Err(fault)) = self.tls.as_ref().map(Tls::check) {
            let host = name.clone();
            return Err(DefinitionFault::TlsKey { host, fault });
        }
        check_chap(self.chap.as_ref(), || ChapOwner::Host(name.clone()))
    }

    pub(crate) fn to_server(&self, name: &HostName) -> Result<HostDefinition, ServerError> {
        let chap = self.chap.as_ref().map(Chap::to_server).transpose();
        let chap = chap.map_err(|fault| ServerError::Chap {
            owner: ChapOwner::Host(name.clone()),
            fault,
        })?;
        let dhchap = self.dhchap.as_ref().map(DhChap::to_server).transpose();
        let dhchap = dhchap.map_err(|fault| ServerError::DhChap {
            host: name.clone(),
            fault,
        })?;
        let tls = self.tls.as_ref().map(Tls::to_server).transpose();
        let tls = tls.map_err(|fault| ServerError::TlsKey {
            host: name.clone(),
            fault,
        })?;
        Ok(HostDefinition {
            tls,
            name: name.clone(),
            told_by: self.told_by.into(),
            addresses: self.addresses.iter().map(|range| range.0).collect(),
            chap,
            dhchap: dhchap.map(Arc::new),
        })
    }
}

fn check_chap(
    chap: Option<&Chap>,
    owner: impl FnOnce() -> ChapOwner,
) -> Result<(), DefinitionFault> {
    match chap.map(Chap::check) {
        Some(Err(fault)) => Err(DefinitionFault::Chap {
            owner: owner(),
            fault,
        }),
        _ => Ok(()),
    }
}

impl From<ToldBy> for server::ToldBy {
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
