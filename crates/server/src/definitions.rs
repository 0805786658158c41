//! What a user defines: targets, hosts, portals. These are plain values; the server creates the
//! objects.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU16;
use std::sync::Arc;

use block::Access;
use zeroize::Zeroizing;

use crate::{
    DhChapDefinition, HostName, Protocol, RdmaChoice, TargetName, TlsKey, TlsPolicy, VolumeName,
};

/// Whether a request is executed although sessions use its object or it discards data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Force {
    /// It fails.
    #[default]
    No,
    /// It is executed.
    Yes,
}

/// A target: what is offered under a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetDefinition {
    /// Its name, which decides the protocol: a subsystem NQN, or an iSCSI target name.
    pub name: TargetName,
    /// Who may use it.
    pub hosts: HostPolicy,
    /// How it takes logins (iSCSI).
    pub logins: LoginPolicy,
    /// Its volumes.
    pub namespaces: Vec<NamespaceDefinition>,
}

/// A volume as a namespace of an NVMe target, or a LUN of an iSCSI target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceDefinition {
    /// Namespace ID, from 1; or LUN, from 0.
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

/// How an iSCSI target accepts logins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoginPolicy {
    /// The groups of the portals through which it is reached; all if empty.
    pub groups: BTreeSet<PortalGroup>,
    /// CHAP for hosts whose own definition has none; no authentication if absent.
    pub chap: Option<ChapDefinition>,
}

impl LoginPolicy {
    /// Whether the target is reached through portals of `group`.
    pub fn is_reached(&self, group: PortalGroup) -> bool {
        self.groups.is_empty() || self.groups.contains(&group)
    }
}

/// The owner of CHAP settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChapOwner {
    /// A host.
    Host(HostName),
    /// A target, for all hosts without CHAP of their own.
    Target(TargetName),
    /// Discovery, for all hosts without CHAP of their own.
    Discovery,
}

impl fmt::Display for ChapOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(name) => write!(f, "host {name}"),
            Self::Target(name) => write!(f, "target {name}"),
            Self::Discovery => f.write_str("discovery"),
        }
    }
}

/// A host on a target's list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllowedHost {
    /// Which host.
    pub host: HostName,
    /// What it may do.
    pub access: Access,
    /// The LUNs that it sees (iSCSI), each with the volume's number in the target; all, under those
    /// numbers, if absent.
    pub luns: Option<BTreeMap<u16, u32>>,
}

/// A host. It is identified by its name, if it must send one, and by its address, if the definition
/// has addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostDefinition {
    /// Its name: the host NQN or initiator name that it sends, or a label.
    pub name: HostName,
    /// Whether it must send that name, or is identified by its address alone.
    pub told_by: ToldBy,
    /// The addresses that it may use; any if empty.
    pub addresses: Vec<AddressRange>,
    /// How it authenticates over iSCSI; no authentication if absent.
    pub chap: Option<ChapDefinition>,
    /// How it authenticates over NVMe; no authentication if absent.
    pub dhchap: Option<Arc<DhChapDefinition>>,
    /// Its keys for TLS over NVMe/TCP; it cannot use TLS if absent.
    pub tls: Option<TlsKeys>,
}

/// The keys of a host for TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsKeys {
    /// The key.
    pub key: Arc<TlsKey>,
    /// A key that the host may use in its place, while it is being changed.
    pub other: Option<Arc<TlsKey>>,
}

/// CHAP of an iSCSI host, of a target, or of discovery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChapDefinition {
    /// The name that the host sends with its response.
    pub user: String,
    /// The secret of the host.
    pub secret: ChapSecret,
    /// Name and secret with which targets authenticate to the host, if it asks for that.
    pub mutual: Option<(String, ChapSecret)>,
}

/// A CHAP secret. Never printed, and erased from memory when it drops.
#[derive(Clone, PartialEq, Eq)]
pub struct ChapSecret(Zeroizing<Vec<u8>>);

/// Why CHAP settings are invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChapFault {
    /// A secret is too short or too long.
    #[error(
        "a CHAP secret has {min} to {max} bytes; generate one with `head -c 12 /dev/urandom | base64`",
        min = ChapSecret::LEN_MIN,
        max = ChapSecret::LEN_MAX
    )]
    SecretLength,
    /// A name is empty or too long.
    #[error("a CHAP user name has 1 to 255 bytes")]
    UserLength,
    /// Both directions have the same secret, so that a host could send a target's own challenge
    /// back to it.
    #[error("both directions have the same secret; use different secrets (RFC 7143 §12.1.3)")]
    SameSecret,
}

impl ChapSecret {
    /// Shorter secrets can be found by trying (RFC 7143 §9.2.1: 96 bits).
    pub const LEN_MIN: usize = 12;
    /// The longest.
    pub const LEN_MAX: usize = 255;

    /// A secret of these bytes.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Result<Self, ChapFault> {
        let bytes = Zeroizing::new(bytes.into());
        if (Self::LEN_MIN..=Self::LEN_MAX).contains(&bytes.len()) {
            Ok(Self(bytes))
        } else {
            Err(ChapFault::SecretLength)
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for ChapSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ChapSecret(hidden)")
    }
}

impl ChapDefinition {
    /// Checks lengths and secrets.
    pub fn check(&self) -> Result<(), ChapFault> {
        let mutual_user = self.mutual.as_ref().map(|(user, _)| user);
        let mut users = std::iter::once(&self.user).chain(mutual_user);
        if !users.all(|user| (1..=255).contains(&user.len())) {
            return Err(ChapFault::UserLength);
        }
        match &self.mutual {
            Some((_, secret)) if *secret == self.secret => Err(ChapFault::SameSecret),
            _ => Ok(()),
        }
    }
}

/// How a host is identified.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ToldBy {
    /// By the name that it sends (and its address, if the definition has addresses).
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

/// Why a text is not an address range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressRangeFault {
    /// The part before `/` is not an address.
    #[error("is not an IP address; write 192.0.2.7, 192.0.2.0/24 or 2001:db8::/32")]
    Address,
    /// The part after `/` is not the length of a prefix.
    #[error("has a prefix length above {max_bits}; write a number from 0 to {max_bits}")]
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
    /// The portal group that it belongs to (iSCSI; 1 for other protocols).
    pub group: PortalGroup,
    /// The requested RDMA provider; [`RdmaChoice::Auto`] for transports without RDMA.
    pub rdma: RdmaChoice,
    /// Whether hosts use TLS; [`TlsPolicy::Off`] for transports other than NVMe/TCP.
    pub tls: TlsPolicy,
    /// Which hosts have to authenticate.
    pub auth: PortalAuth,
}

/// Which hosts have to authenticate at a portal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PortalAuth {
    /// Those with a secret, when they connect to a target.
    #[default]
    ByHost,
    /// All, for discovery too. Hosts without a secret are rejected.
    Required,
}

impl PortalDefinition {
    /// Whether other machines reach it and need to prove nothing.
    pub fn admits_strangers(&self) -> bool {
        let is_local = self.address.ip().to_canonical().is_loopback();
        !is_local && self.auth == PortalAuth::ByHost && self.tls != TlsPolicy::Required
    }

    /// Whether it is the portal that `named` names, which may leave options out.
    pub fn is_named(&self, named: &Self) -> bool {
        let is_rdma = named.rdma == RdmaChoice::default() || named.rdma == self.rdma;
        let is_auth = named.auth == PortalAuth::default() || named.auth == self.auth;
        let is_tls = named.tls == TlsPolicy::default() || named.tls == self.tls;
        self.is_beside(named) && self.group == named.group && is_rdma && is_auth && is_tls
    }

    /// Whether both listen at the same address and transport, where only one of them can.
    pub fn is_beside(&self, other: &Self) -> bool {
        self.transport == other.transport && self.address == other.address
    }
}

/// A portal group (RFC 7143 §4.2.7.1): portals that the connections of one session may be spread
/// over. For SCSI, each group of a target is one target port. Its tag is a number from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PortalGroup(pub NonZeroU16);

impl PortalGroup {
    /// Its tag on the wire.
    pub const fn tag(self) -> u16 {
        self.0.get()
    }
}

impl Default for PortalGroup {
    fn default() -> Self {
        Self(NonZeroU16::MIN)
    }
}

/// A protocol that a portal can speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Transport {
    /// NVMe over TCP.
    NvmeTcp,
    /// NVMe over RDMA.
    NvmeRdma,
    /// iSCSI.
    Iscsi,
    /// iSCSI over RDMA (iSER).
    Iser,
    /// NFS over TCP, with MOUNT at the same port.
    Nfs,
    /// NFS version 3 over UDP, with MOUNT at the same port.
    NfsUdp,
    /// NFS over RDMA, with MOUNT at the same port.
    NfsRdma,
    /// The Block RDMA Protocol over TCP (docs/brp.md), for the targets of NVMe.
    Brp,
    /// The same over RDMA.
    BrpRdma,
    /// The SCSI RDMA Protocol (SRP), for the targets of iSCSI.
    Srp,
}

impl Transport {
    /// Which targets are reached through it, by the protocol of their names; `None` for NFS,
    /// through which shares are reached.
    pub const fn protocol(self) -> Option<Protocol> {
        match self {
            Self::NvmeTcp | Self::NvmeRdma | Self::Brp | Self::BrpRdma => Some(Protocol::Nvme),
            Self::Iscsi | Self::Iser | Self::Srp => Some(Protocol::Iscsi),
            Self::Nfs | Self::NfsUdp | Self::NfsRdma => None,
        }
    }

    /// Whether shares are reached through it.
    pub const fn is_nfs(self) -> bool {
        self.protocol().is_none()
    }

    /// Whether NVMe is spoken there.
    pub const fn is_nvme(self) -> bool {
        matches!(self, Self::NvmeTcp | Self::NvmeRdma)
    }

    /// Whether BRP is spoken there.
    pub const fn is_brp(self) -> bool {
        matches!(self, Self::Brp | Self::BrpRdma)
    }

    /// Whether iSCSI is spoken there.
    pub const fn is_iscsi(self) -> bool {
        matches!(self, Self::Iscsi | Self::Iser)
    }

    /// Whether hosts are known there by what they say alone: their names and addresses.
    pub const fn trusts_names(self) -> bool {
        matches!(self, Self::Brp | Self::BrpRdma | Self::Srp)
    }

    /// Whether hosts can prove there who they are.
    pub const fn authenticates(self) -> bool {
        match self {
            Self::NvmeTcp | Self::NvmeRdma | Self::Iscsi | Self::Iser => true,
            Self::Nfs | Self::NfsUdp | Self::NfsRdma | Self::Brp | Self::BrpRdma | Self::Srp => {
                false
            }
        }
    }

    /// The same protocol over RDMA, for a transport over TCP; `None` for others.
    pub const fn over_rdma(self) -> Option<Self> {
        match self {
            Self::NvmeTcp => Some(Self::NvmeRdma),
            Self::Iscsi => Some(Self::Iser),
            Self::Nfs => Some(Self::NfsRdma),
            Self::Brp => Some(Self::BrpRdma),
            Self::NfsUdp
            | Self::NvmeRdma
            | Self::Iser
            | Self::NfsRdma
            | Self::BrpRdma
            | Self::Srp => None,
        }
    }

    /// Whether it is one over RDMA.
    pub const fn is_rdma(self) -> bool {
        matches!(
            self,
            Self::NvmeRdma | Self::Iser | Self::NfsRdma | Self::BrpRdma | Self::Srp
        )
    }

    /// What carries it: `tcp`, `udp` or `rdma`.
    pub const fn carrier(self) -> &'static str {
        match self {
            Self::NvmeTcp | Self::Iscsi | Self::Nfs | Self::Brp => "tcp",
            Self::NfsUdp => "udp",
            Self::NvmeRdma | Self::Iser | Self::NfsRdma | Self::BrpRdma | Self::Srp => "rdma",
        }
    }

    /// Its name in URLs.
    pub const fn scheme(self) -> &'static str {
        match self {
            Self::NvmeTcp => "nvme+tcp",
            Self::NvmeRdma => "nvme+rdma",
            Self::Iscsi => "iscsi",
            Self::Iser => "iser",
            Self::Nfs => "nfs",
            Self::NfsUdp => "nfs+udp",
            Self::NfsRdma => "nfs+rdma",
            Self::Brp => "brp",
            Self::BrpRdma => "brp+rdma",
            Self::Srp => "srp",
        }
    }

    /// The protocol of a URL's scheme.
    pub fn from_scheme(scheme: &str) -> Option<Self> {
        match scheme {
            "nvme+tcp" => Some(Self::NvmeTcp),
            "nvme+rdma" => Some(Self::NvmeRdma),
            "iscsi" => Some(Self::Iscsi),
            "iser" => Some(Self::Iser),
            "nfs" => Some(Self::Nfs),
            "nfs+udp" => Some(Self::NfsUdp),
            "nfs+rdma" => Some(Self::NfsRdma),
            "brp" => Some(Self::Brp),
            "brp+rdma" => Some(Self::BrpRdma),
            "srp" => Some(Self::Srp),
            _ => None,
        }
    }
}

impl fmt::Display for PortalDefinition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.transport.scheme(), self.address)?;
        if self.group != PortalGroup::default() {
            write!(f, ",{}", self.group.tag())?;
        }
        let rdma = (self.rdma != RdmaChoice::default()).then(|| format!("rdma={}", self.rdma));
        let auth = (self.auth == PortalAuth::Required).then(|| "auth=required".to_owned());
        let tls = (self.tls != TlsPolicy::default()).then(|| format!("tls={}", self.tls));
        for (option, mark) in [rdma, auth, tls].into_iter().flatten().zip("?&&".chars()) {
            write!(f, "{mark}{option}")?;
        }
        Ok(())
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

    /// One address.
    pub fn one(address: IpAddr) -> Self {
        Self {
            address,
            prefix_bits: address_bits(address),
        }
    }

    /// Whether `address` lies in the range. An IPv4 address mapped into IPv6 counts as the IPv4
    /// address.
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
