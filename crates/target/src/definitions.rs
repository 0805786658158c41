//! What a person defines: volumes, targets, hosts, portals. Plain values; the server makes them real.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use block::{Access, BlockSize};

use crate::{HostName, TargetName, VolumeName};

/// A volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeDefinition {
    /// Its name.
    pub name: VolumeName,
    /// Capacity in bytes: a multiple of the block size, at least 1 MiB.
    pub len_bytes: u64,
    /// The size of its logical blocks.
    pub block_size: BlockSize,
    /// When its memory is taken.
    pub provisioning: Provisioning,
}

/// When a volume's memory is taken from the budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Provisioning {
    /// On the first write of each slab.
    #[default]
    Thin,
    /// At creation.
    Thick,
}

/// What becomes of a request that sessions stand in the way of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Force {
    /// It is refused.
    #[default]
    No,
    /// It is done all the same.
    Yes,
}

/// A target: what is offered under a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetDefinition {
    /// Its name: the subsystem NQN.
    pub name: TargetName,
    /// Who may use it.
    pub hosts: HostPolicy,
    /// Its volumes.
    pub namespaces: Vec<NamespaceDefinition>,
}

/// A volume as a namespace of a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceDefinition {
    /// Namespace ID, from 1.
    pub nsid: u32,
    /// The volume.
    pub volume: VolumeName,
}

/// Who may use a target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum HostPolicy {
    /// Any host on this machine, none from outside.
    #[default]
    Local,
    /// Any host from anywhere.
    Any(Access),
    /// The hosts named here.
    Listed(Vec<AllowedHost>),
}

/// A host on a target's list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllowedHost {
    /// Which host.
    pub host: HostName,
    /// What it may do.
    pub access: Access,
}

/// A host. It is recognised by its name, where it has to give one, and by its address, where there are any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostDefinition {
    /// Its name: the host NQN that it gives.
    pub name: HostName,
    /// Whether it must give that name, or its address alone tells it.
    pub told_by: ToldBy,
    /// Where it may come from; anywhere, where empty.
    pub addresses: Vec<AddressRange>,
}

/// How a host is recognised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ToldBy {
    /// By the name that it gives (and its address, where the definition has any).
    #[default]
    Name,
    /// By its address alone; the definition has at least one.
    Address,
}

/// A range of addresses: an address and how many of its leading bits count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressRange {
    address: IpAddr,
    prefix_bits: u8,
}

/// Why a text is no address range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressRangeFault {
    /// The part before `/` is no address.
    #[error("is no IP address; write 192.0.2.7, 192.0.2.0/24 or 2001:db8::/32")]
    Address,
    /// The part after `/` is no length of a prefix.
    #[error("has a prefix length beyond {max_bits}; write a number from 0 to {max_bits}")]
    Prefix {
        /// The most bits.
        max_bits: u8,
    },
}

/// A portal: where a protocol listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PortalDefinition {
    /// Which protocol.
    pub transport: Transport,
    /// Where; port 0 lets the system choose.
    pub address: SocketAddr,
}

/// A protocol that a portal can speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Transport {
    /// NVMe over TCP.
    NvmeTcp,
}

impl Transport {
    /// Its name in URLs.
    pub const fn scheme(self) -> &'static str {
        match self {
            Self::NvmeTcp => "nvme+tcp",
        }
    }

    /// The protocol of a URL's scheme.
    pub fn from_scheme(scheme: &str) -> Option<Self> {
        match scheme {
            "nvme+tcp" => Some(Self::NvmeTcp),
            _ => None,
        }
    }
}

impl fmt::Display for PortalDefinition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.transport.scheme(), self.address)
    }
}

impl AddressRange {
    /// The addresses whose first `prefix_bits` bits are those of `address`.
    pub fn new(address: IpAddr, prefix_bits: u8) -> Result<Self, AddressRangeFault> {
        let max_bits = address_bits(address);
        if prefix_bits > max_bits {
            return Err(AddressRangeFault::Prefix { max_bits });
        }
        Ok(Self {
            address,
            prefix_bits,
        })
    }

    /// Whether `address` lies in the range. An IPv4 address mapped into IPv6 counts as the IPv4 address.
    pub fn contains(&self, address: IpAddr) -> bool {
        let (range, address) = (self.address.to_canonical(), address.to_canonical());
        if range.is_ipv4() != address.is_ipv4() {
            return false;
        }
        let ignored_bits =
            u32::from(address_bits(range) - self.prefix_bits.min(address_bits(range)));
        let high = |address| number(address).checked_shr(ignored_bits).unwrap_or(0);
        high(range) == high(address)
    }
}

impl std::str::FromStr for AddressRange {
    type Err = AddressRangeFault;

    fn from_str(text: &str) -> Result<Self, AddressRangeFault> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| AddressRangeFault::Address)?;
        let max_bits = address_bits(address);
        let prefix_bits = match prefix {
            Some(prefix) => prefix
                .parse()
                .map_err(|_| AddressRangeFault::Prefix { max_bits })?,
            None => max_bits,
        };
        Self::new(address, prefix_bits)
    }
}

impl fmt::Display for AddressRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.prefix_bits == address_bits(self.address) {
            write!(f, "{}", self.address)
        } else {
            write!(f, "{}/{}", self.address, self.prefix_bits)
        }
    }
}

fn address_bits(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_holds_the_addresses_with_its_prefix() {
        let range: AddressRange = "192.0.2.0/24".parse().expect("a range");
        let holds = |text: &str| range.contains(text.parse().expect("an address"));
        assert!(holds("192.0.2.0") && holds("192.0.2.255") && holds("::ffff:192.0.2.9"));
        assert!(!holds("192.0.3.0") && !holds("2001:db8::1"));
        let all: AddressRange = "::/0".parse().expect("a range");
        assert!(all.contains("2001:db8::1".parse().expect("an address")));
        assert_eq!(range.to_string(), "192.0.2.0/24");
        let one: AddressRange = "192.0.2.7".parse().expect("a range");
        assert_eq!(one.to_string(), "192.0.2.7");
    }

    #[test]
    fn a_prefix_longer_than_the_address_is_refused() {
        let parse = |text: &str| text.parse::<AddressRange>();
        assert_eq!(
            parse("192.0.2.0/33"),
            Err(AddressRangeFault::Prefix { max_bits: 32 })
        );
        assert_eq!(parse("here"), Err(AddressRangeFault::Address));
    }
}
