//! The access check: one function for every protocol.

use std::collections::BTreeMap;

use block::{Access, HostIdentity};
use nvme::controller::HostFilter;
use scsi::{Lun, LunMap};

use crate::{AddressRange, AllowedHost, HostDefinition, HostName, HostPolicy, ToldBy};

/// A target's policy with the definitions of the hosts that it names, as of the last change of
/// policy or hosts.
#[derive(Debug)]
pub(crate) enum AccessList {
    Local,
    Any(Access),
    Listed(Vec<Entry>),
}

/// A host on a target's list.
#[derive(Debug)]
pub(crate) struct Entry {
    host: HostDefinition,
    grant: Grant,
}

/// What a host may do with a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    pub(crate) access: Access,
    /// The LUNs that it sees, if the target has LUNs.
    pub(crate) luns: LunMap,
}

impl Grant {
    pub(crate) const fn all(access: Access) -> Self {
        Self {
            access,
            luns: LunMap::All,
        }
    }

    fn of(allowed: &AllowedHost) -> Self {
        let map = |luns: &BTreeMap<Lun, u32>| {
            let known = luns
                .iter()
                .filter_map(|(&lun, &number)| Some((lun, Lun::try_from(number).ok()?)));
            LunMap::Listed(known.collect())
        };
        Self {
            access: allowed.access,
            luns: allowed.luns.as_ref().map_or(LunMap::All, map),
        }
    }
}

impl AccessList {
    /// Looks up the hosts of `policy`. A host that is not defined admits no connection.
    pub(crate) fn new(policy: &HostPolicy, hosts: &BTreeMap<HostName, HostDefinition>) -> Self {
        match policy {
            HostPolicy::Local => Self::Local,
            HostPolicy::Any(access) => Self::Any(*access),
            HostPolicy::Listed(list) => Self::Listed(
                list.iter()
                    .filter_map(|allowed| {
                        let host = hosts.get(&allowed.host)?.clone();
                        let grant = Grant::of(allowed);
                        Some(Entry { host, grant })
                    })
                    .collect(),
            ),
        }
    }

    /// Admits clients that are identified by their address alone; none if the list is empty.
    pub(crate) fn of_addresses(addresses: Vec<AddressRange>) -> Self {
        let host = HostDefinition {
            name: "clients".parse().expect("a name"),
            told_by: ToldBy::Address,
            addresses,
            chap: None,
            dhchap: None,
            tls: None,
        };
        let grant = Grant::all(Access::ReadWrite);
        Self::Listed(vec![Entry { host, grant }])
    }

    /// What the host `who` may do.
    pub(crate) fn check(&self, who: HostIdentity<'_>) -> Access {
        self.grant(who).access
    }

    /// What the host `who` may do and see. If several entries match, the one that allows most
    /// counts; among equals, one that matches by name.
    pub(crate) fn grant(&self, who: HostIdentity<'_>) -> Grant {
        match self {
            Self::Local if who.address.to_canonical().is_loopback() => {
                Grant::all(Access::ReadWrite)
            }
            Self::Local => Grant::all(Access::Denied),
            Self::Any(access) => Grant::all(*access),
            Self::Listed(list) => list
                .iter()
                .filter(|entry| is_told(&entry.host, who))
                .max_by_key(|entry| (entry.grant.access, entry.host.told_by == ToldBy::Name))
                .map_or(Grant::all(Access::Denied), |entry| entry.grant.clone()),
        }
    }
}

impl HostFilter for AccessList {
    fn admits(&self, host: HostIdentity<'_>) -> bool {
        self.check(host) > Access::Denied
    }
}

/// Whether `who` is `host`.
pub(crate) fn is_told(host: &HostDefinition, who: HostIdentity<'_>) -> bool {
    let by_address = host
        .addresses
        .iter()
        .any(|range| range.contains(who.address));
    match host.told_by {
        ToldBy::Name => {
            who.name == Some(host.name.as_str()) && (host.addresses.is_empty() || by_address)
        }
        ToldBy::Address => by_address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AllowedHost;

    fn host(name: &str, told_by: ToldBy, addresses: &[&str]) -> HostDefinition {
        HostDefinition {
            name: name.parse().expect("a name"),
            told_by,
            addresses: addresses
                .iter()
                .map(|text| text.parse().expect("a range"))
                .collect(),
            chap: None,
            dhchap: None,
            tls: None,
        }
    }

    fn decide(policy: &HostPolicy, hosts: &[HostDefinition], name: &str, address: &str) -> Access {
        let hosts = hosts.iter().map(|h| (h.name.clone(), h.clone())).collect();
        let who = HostIdentity {
            name: Some(name),
            address: address.parse().expect("an address"),
        };
        AccessList::new(policy, &hosts).check(who)
    }

    fn listed(entries: &[(&str, Access)]) -> HostPolicy {
        HostPolicy::Listed(
            entries
                .iter()
                .map(|&(name, access)| AllowedHost {
                    host: name.parse().expect("a name"),
                    access,
                    luns: None,
                })
                .collect(),
        )
    }

    #[test]
    fn without_a_list_only_this_machine_gets_in() {
        let policy = HostPolicy::Local;
        assert_eq!(decide(&policy, &[], "a", "127.0.0.1"), Access::ReadWrite);
        assert_eq!(
            decide(&policy, &[], "a", "::ffff:127.0.0.1"),
            Access::ReadWrite
        );
        assert_eq!(decide(&policy, &[], "a", "192.0.2.1"), Access::Denied);
    }

    #[test]
    fn a_listed_host_must_give_its_name_and_come_from_its_address() {
        let hosts = [host("nqn.h1", ToldBy::Name, &["192.0.2.0/24"])];
        let policy = listed(&[("nqn.h1", Access::ReadWrite)]);
        let decide = |name, address| decide(&policy, &hosts, name, address);
        assert_eq!(decide("nqn.h1", "192.0.2.9"), Access::ReadWrite);
        assert_eq!(decide("nqn.h1", "198.51.100.1"), Access::Denied);
        assert_eq!(decide("nqn.h2", "192.0.2.9"), Access::Denied);
    }

    #[test]
    fn a_host_told_by_address_needs_no_name() {
        let hosts = [host("rack7", ToldBy::Address, &["2001:db8::/32"])];
        let policy = listed(&[("rack7", Access::ReadOnly)]);
        assert_eq!(
            decide(&policy, &hosts, "any", "2001:db8::7"),
            Access::ReadOnly
        );
        assert_eq!(decide(&policy, &hosts, "any", "192.0.2.1"), Access::Denied);
    }

    #[test]
    fn of_several_entries_the_most_generous_counts() {
        let hosts = [
            host("all", ToldBy::Address, &["0.0.0.0/0"]),
            host("nqn.h1", ToldBy::Name, &[]),
        ];
        let policy = listed(&[("all", Access::ReadOnly), ("nqn.h1", Access::ReadWrite)]);
        assert_eq!(
            decide(&policy, &hosts, "nqn.h1", "192.0.2.1"),
            Access::ReadWrite
        );
        assert_eq!(
            decide(&policy, &hosts, "nqn.h2", "192.0.2.1"),
            Access::ReadOnly
        );
    }

    #[test]
    fn a_hosts_own_luns_win_over_those_of_its_network() {
        let hosts = [
            host("all", ToldBy::Address, &["0.0.0.0/0"]),
            host("iqn.h1", ToldBy::Name, &[]),
        ];
        let entry = |name: &str, luns| AllowedHost {
            host: name.parse().expect("a name"),
            access: Access::ReadWrite,
            luns,
        };
        let own = BTreeMap::from([(0, 7)]);
        let policy = HostPolicy::Listed(vec![entry("iqn.h1", Some(own)), entry("all", None)]);
        let hosts = hosts.iter().map(|h| (h.name.clone(), h.clone())).collect();
        let list = AccessList::new(&policy, &hosts);
        let luns = |name| {
            let address = "192.0.2.1".parse().expect("an address");
            let name = Some(name);
            list.grant(HostIdentity { name, address }).luns
        };
        assert_eq!(luns("iqn.h1"), LunMap::Listed(BTreeMap::from([(0, 7)])));
        assert_eq!(luns("iqn.h2"), LunMap::All);
    }

    #[test]
    fn clients_of_a_share_are_told_by_their_address() {
        let ranges: Vec<AddressRange> = ["192.0.2.0/24", "2001:db8::7"]
            .map(|text| text.parse().expect("a range"))
            .to_vec();
        let check = |ranges: &[AddressRange], address: &str| {
            let address = address.parse().expect("an address");
            let name = None;
            AccessList::of_addresses(ranges.to_vec()).check(HostIdentity { name, address })
        };
        assert_eq!(check(&ranges, "192.0.2.9"), Access::ReadWrite);
        assert_eq!(check(&ranges, "::ffff:192.0.2.9"), Access::ReadWrite);
        assert_eq!(check(&ranges, "2001:db8::7"), Access::ReadWrite);
        assert_eq!(check(&ranges, "192.0.3.9"), Access::Denied);
        assert_eq!(check(&[], "192.0.3.9"), Access::Denied);
    }

    #[test]
    fn an_empty_list_admits_nobody() {
        let policy = listed(&[]);
        assert_eq!(decide(&policy, &[], "a", "127.0.0.1"), Access::Denied);
    }
}
