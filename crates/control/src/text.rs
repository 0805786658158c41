//! Values that stand as text in files and requests: names, sizes, durations, addresses.

use std::fmt;
use std::marker::PhantomData;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::num::NonZeroU64;
use std::str::FromStr;
use std::time::Duration;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use server::{
    AddressRange, DhChapHash, DhGroupPolicy, DiskUuid, Eui64, HostName, Naa, Nguid, PortalAuth,
    PortalDefinition, PortalGroup, Protocol, RdmaChoice, SerialNumber, ShareClient, ShareName,
    TargetName, TlsPolicy, Transport, VolumeName,
};
use volume::{ByteSize, Provision, SizeError};

/// A value that is written as text. Parsing checks it, and an error names the text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Text<T>(pub T);

/// What can stand as [`Text`]: it reads back what it displays.
pub trait Written: FromStr<Err: fmt::Display> + fmt::Display {
    /// What a person calls it.
    const NOUN: &'static str;
}

impl Written for VolumeName {
    const NOUN: &'static str = "volume name";
}

impl Written for TargetName {
    const NOUN: &'static str = "target name";
}

impl Written for ShareName {
    const NOUN: &'static str = "share name";
}

impl Written for HostName {
    const NOUN: &'static str = "host name";
}

impl Written for AddressRange {
    const NOUN: &'static str = "address range";
}

impl Written for ShareClient {
    const NOUN: &'static str = "client";
}

impl Written for DiskUuid {
    const NOUN: &'static str = "UUID";
}

impl Written for Nguid {
    const NOUN: &'static str = "NGUID";
}

impl Written for Eui64 {
    const NOUN: &'static str = "EUI-64";
}

impl Written for Naa {
    const NOUN: &'static str = "NAA designator";
}

impl Written for SerialNumber {
    const NOUN: &'static str = "serial number";
}

impl Written for DhChapHash {
    const NOUN: &'static str = "hash function";
}

impl Written for TlsPolicy {
    const NOUN: &'static str = "TLS setting";
}

impl Written for DhGroupPolicy {
    const NOUN: &'static str = "Diffie-Hellman group";
}

impl Written for volume::CacheModeName {
    const NOUN: &'static str = "cache mode";
}

impl Written for Provision {
    const NOUN: &'static str = "provisioning";
}

impl Written for Portal {
    const NOUN: &'static str = "portal";
}

impl Written for Period {
    const NOUN: &'static str = "duration";
}

/// Parses a value. The error message names an invalid value.
pub fn parse<T: Written>(text: &str) -> Result<T, TextFault> {
    text.parse().map_err(|fault: T::Err| TextFault {
        noun: T::NOUN,
        given: text.to_owned(),
        fault: fault.to_string(),
    })
}

/// A text that is not what it should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{noun} {given:?} {fault}")]
pub struct TextFault {
    noun: &'static str,
    given: String,
    fault: String,
}

impl<T: Written> FromStr for Text<T> {
    type Err = TextFault;

    fn from_str(text: &str) -> Result<Self, TextFault> {
        parse(text).map(Self)
    }
}

impl<T: fmt::Display> fmt::Display for Text<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<T: fmt::Display> Serialize for Text<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de, T: Written> Deserialize<'de> for Text<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor<T>(PhantomData<T>);
        impl<T: Written> Visitor<'_> for TextVisitor<T> {
            type Value = Text<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a {} as text", T::NOUN)
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Text<T>, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_str(TextVisitor(PhantomData))
    }
}

/// A size in bytes, as a number or as text (`50G`, `512MiB`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Size(pub u64);

impl FromStr for Size {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<Self, SizeError> {
        text.parse().map(|size: ByteSize| Self(size.bytes()))
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        ByteSize(self.0).fmt(f)
    }
}

impl From<NonZeroU64> for Size {
    fn from(bytes: NonZeroU64) -> Self {
        Self(bytes.get())
    }
}

impl Serialize for Size {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct SizeVisitor;
        impl Visitor<'_> for SizeVisitor {
            type Value = Size;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a size: a number of bytes, or text such as \"50G\"")
            }
            fn visit_u64<E: Error>(self, bytes: u64) -> Result<Size, E> {
                Ok(Size(bytes))
            }
            fn visit_i64<E: Error>(self, bytes: i64) -> Result<Size, E> {
                match u64::try_from(bytes) {
                    Ok(bytes) => Ok(Size(bytes)),
                    Err(_) => Err(E::custom(format_args!("{bytes} bytes are less than none"))),
                }
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Size, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_any(SizeVisitor)
    }
}

/// A duration as people write it: `250us`, `10ms`, `2s`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Period(pub Duration);

/// Why a text is no duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("is not a whole number with a unit; write for example 250us, 10ms, 2s or 5m")]
pub struct PeriodFault;

/// Units from the smallest, with their nanoseconds.
const PERIOD_UNITS: [(&str, u64); 6] = [
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

impl FromStr for Period {
    type Err = PeriodFault;

    fn from_str(text: &str) -> Result<Self, PeriodFault> {
        let text = text.trim();
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at(digits);
        let number: u64 = number.parse().map_err(|_| PeriodFault)?;
        let unit = unit.trim();
        let (_, unit_ns) = PERIOD_UNITS
            .iter()
            .find(|(name, _)| *name == unit)
            .ok_or(PeriodFault)?;
        let ns = number.checked_mul(*unit_ns).ok_or(PeriodFault)?;
        Ok(Self(Duration::from_nanos(ns)))
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ns = self.0.as_nanos();
        if ns == 0 {
            return f.write_str("0s");
        }
        let largest = PERIOD_UNITS
            .iter()
            .rev()
            .find(|(_, unit_ns)| ns.is_multiple_of(u128::from(*unit_ns)));
        let (unit, unit_ns) = largest.expect("every duration is a whole number of ns");
        write!(f, "{}{unit}", ns / u128::from(*unit_ns))
    }
}

/// A portal as a URL: `nvme+tcp://192.0.2.1:4420`, or `iscsi://192.0.2.1:3260,2` with the tag of
/// its portal group. Over RDMA, `nvme+rdma://192.0.2.1:4420` or `iser://192.0.2.1:3260,2?rdma=soft`
/// with what is to carry RDMA: `auto`, `hw` or `soft`. With `?auth=required`, all its hosts have to
/// authenticate. `nvme+tcp://192.0.2.1:4420?tls=required` says whether hosts use TLS: `off`,
/// `allowed` or `required`. Options are joined by `&`. Without a scheme it is NVMe/TCP, without a
/// port the protocol's own, without a tag group 1, without `rdma` auto.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Portal(pub PortalDefinition);

/// Why a text is no portal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PortalFault {
    /// The scheme is not that of a supported protocol.
    #[error(
        "has an unknown protocol; write nvme+tcp://, nvme+rdma://, iscsi://, iser://, srp://, brp://, brp+rdma://, nfs://, nfs+udp:// or nfs+rdma://, then ADDRESS:PORT"
    )]
    Scheme,
    /// What follows the comma is no portal group, or the protocol has none.
    #[error(
        "has no portal group after the comma; write iscsi://ADDRESS:PORT,NUMBER with a number from 1 to 65535"
    )]
    Group,
    /// What follows the question mark is nothing that a portal has.
    #[error(
        "has an unknown option after the question mark; portals accept ?auth=required, over RDMA ?rdma=auto, ?rdma=hw and ?rdma=soft, and with nvme+tcp:// ?tls=off, ?tls=allowed and ?tls=required, with & between two"
    )]
    Query,
    /// Required authentication at a portal of a protocol that has none.
    #[error(
        "has auth=, but BRP has no authentication, and sec=sys of NFS is none; leave out auth="
    )]
    NoAuth,
    /// What is to carry RDMA, if there is none.
    #[error(
        "has rdma= but does not use RDMA; write nvme+rdma://, iser://, srp://, brp+rdma:// or nfs+rdma://, or leave out rdma="
    )]
    NoRdma,
    /// Whether hosts use TLS, if there is none.
    #[error("has tls= but does not use NVMe/TCP; write nvme+tcp://, or leave out tls=")]
    NoTls,
    /// An address without a valid port after it.
    #[error(
        "has no port from 0 to 65535 after the address; write for example nvme+tcp://192.0.2.1:4420"
    )]
    Port,
    /// What follows is no address.
    #[error(
        "has no IP address; write nvme+tcp://192.0.2.1:4420, or nvme+tcp://[2001:db8::1]:4420 for IPv6 (host names are not resolved)"
    )]
    Address,
}

impl FromStr for Portal {
    type Err = PortalFault;

    fn from_str(text: &str) -> Result<Self, PortalFault> {
        let (text, query) = match text.split_once('?') {
            Some((text, query)) => (text, Some(query)),
            None => (text, None),
        };
        let (transport, address) = match text.split_once("://") {
            None => (Transport::NvmeTcp, text),
            Some((scheme, rest)) => (
                Transport::from_scheme(scheme).ok_or(PortalFault::Scheme)?,
                rest.trim_end_matches('/'),
            ),
        };
        let PortalOptions { rdma, auth, tls } =
            query.map_or(Ok(PortalOptions::default()), str::parse)?;
        if rdma.is_some() && !transport.is_rdma() {
            return Err(PortalFault::NoRdma);
        }
        if auth.is_some() && !transport.authenticates() {
            return Err(PortalFault::NoAuth);
        }
        if tls.is_some() && transport != Transport::NvmeTcp {
            return Err(PortalFault::NoTls);
        }
        let (address, group) = match address.rsplit_once(',') {
            Some((address, tag)) if transport.protocol() == Some(Protocol::Iscsi) => {
                let tag = tag.parse().map_err(|_| PortalFault::Group)?;
                (address, PortalGroup(tag))
            }
            Some(_) => return Err(PortalFault::Group),
            None => (address, PortalGroup::default()),
        };
        let bare = address.trim_start_matches('[').trim_end_matches(']');
        let address = match (address.parse(), bare.parse()) {
            (Ok(address), _) => address,
            (_, Ok(ip)) => std::net::SocketAddr::new(ip, default_port(transport)),
            _ if has_address_before_port(address) => return Err(PortalFault::Port),
            _ => return Err(PortalFault::Address),
        };
        Ok(Self(PortalDefinition {
            transport,
            address,
            group,
            rdma: rdma.unwrap_or_default(),
            auth: auth.unwrap_or_default(),
            tls: tls.unwrap_or_default(),
        }))
    }
}

/// Whether an IP address stands before the last colon. An IPv6 address must be in brackets.
fn has_address_before_port(text: &str) -> bool {
    let Some((host, _)) = text.rsplit_once(':') else {
        return false;
    };
    let bracketed = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'));
    match bracketed {
        Some(host) => host.parse::<Ipv6Addr>().is_ok(),
        None => host.parse::<Ipv4Addr>().is_ok(),
    }
}

/// The options in a portal's query: each at most once, in any order.
#[derive(Default)]
struct PortalOptions {
    rdma: Option<RdmaChoice>,
    auth: Option<PortalAuth>,
    tls: Option<TlsPolicy>,
}

impl FromStr for PortalOptions {
    type Err = PortalFault;

    fn from_str(query: &str) -> Result<Self, PortalFault> {
        let mut options = Self::default();
        for option in query.split('&') {
            let (key, value) = option.split_once('=').ok_or(PortalFault::Query)?;
            let is_repeated = match (key, value) {
                ("rdma", choice) => {
                    let choice = choice.parse().map_err(|_| PortalFault::Query)?;
                    options.rdma.replace(choice).is_some()
                }
                ("auth", "required") => options.auth.replace(PortalAuth::Required).is_some(),
                ("tls", policy) => {
                    let policy = policy.parse().map_err(|_| PortalFault::Query)?;
                    options.tls.replace(policy).is_some()
                }
                _ => true,
            };
            if is_repeated {
                return Err(PortalFault::Query);
            }
        }
        Ok(options)
    }
}

impl fmt::Display for Portal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The port that a protocol has of its own.
pub const fn default_port(transport: Transport) -> u16 {
    match transport {
        Transport::NvmeTcp | Transport::NvmeRdma => 4420,
        Transport::Iscsi | Transport::Iser => 3260,
        Transport::Nfs | Transport::NfsUdp => 2049,
        Transport::NfsRdma => 20_049,
        Transport::Brp | Transport::BrpRdma => 4424,
        Transport::Srp => 5555,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn portals_default_to_nvme_tcp_and_its_port() {
        let shown = |text| parse::<Portal>(text).map(|portal| portal.to_string());
        for text in [
            "192.0.2.1",
            "192.0.2.1:4420",
            "nvme+tcp://192.0.2.1",
            "nvme+tcp://192.0.2.1:4420/",
        ] {
            assert_eq!(shown(text).as_deref(), Ok("nvme+tcp://192.0.2.1:4420"));
        }
        for text in [
            "2001:db8::1",
            "[2001:db8::1]",
            "nvme+tcp://[2001:db8::1]:4420",
        ] {
            assert_eq!(shown(text).as_deref(), Ok("nvme+tcp://[2001:db8::1]:4420"));
        }
        let fault = shown("localhost:4420").expect_err("a name").to_string();
        assert!(fault.contains("\"localhost:4420\" has no IP address; write"));
        for text in [
            "192.0.2.1:70000",
            "iscsi://[2001:db8::1]:70000,2",
            "192.0.2.1:",
            "192.0.2.1:x",
        ] {
            let fault = shown(text).expect_err(text).to_string();
            assert!(fault.contains("has no port from 0 to 65535"), "{fault}");
        }
        assert!(
            shown("smb://192.0.2.1")
                .expect_err("not served")
                .to_string()
                .contains("nvme+tcp")
        );
    }

    #[test]
    fn iscsi_portals_may_have_a_group() {
        let shown = |text| parse::<Portal>(text).map(|portal| portal.to_string());
        for text in ["iscsi://192.0.2.1", "iscsi://192.0.2.1:3260,1"] {
            assert_eq!(shown(text).as_deref(), Ok("iscsi://192.0.2.1:3260"));
        }
        for text in ["iscsi://[2001:db8::1],7", "iscsi://2001:db8::1,7"] {
            assert_eq!(shown(text).as_deref(), Ok("iscsi://[2001:db8::1]:3260,7"));
        }
        for text in ["iser://192.0.2.1", "iser://192.0.2.1:3260"] {
            assert_eq!(shown(text).as_deref(), Ok("iser://192.0.2.1:3260"));
        }
        for text in ["nvme+rdma://192.0.2.1", "nvme+rdma://192.0.2.1:4420"] {
            assert_eq!(shown(text).as_deref(), Ok("nvme+rdma://192.0.2.1:4420"));
        }
        for text in ["iscsi://192.0.2.1,0", "iscsi://192.0.2.1,x", "192.0.2.1,2"] {
            let fault = shown(text).expect_err(text).to_string();
            assert!(fault.contains("portal group"), "{fault}");
        }
    }

    #[test]
    fn nfs_portals_have_the_port_of_nfs_and_no_group() {
        let shown = |text| parse::<Portal>(text).map(|portal| portal.to_string());
        for text in ["nfs://192.0.2.1", "nfs://192.0.2.1:2049/"] {
            assert_eq!(shown(text).as_deref(), Ok("nfs://192.0.2.1:2049"));
        }
        for text in [
            "nfs+rdma://192.0.2.1?rdma=soft",
            "nfs+rdma://192.0.2.1:20049?rdma=soft",
        ] {
            let portal = "nfs+rdma://192.0.2.1:20049?rdma=soft";
            assert_eq!(shown(text).as_deref(), Ok(portal));
        }
        for (text, hint) in [
            ("nfs://192.0.2.1,2", "portal group"),
            ("nfs://192.0.2.1?rdma=soft", "leave out rdma="),
        ] {
            let fault = shown(text).expect_err(text).to_string();
            assert!(fault.contains(hint), "{fault}");
        }
    }

    #[test]
    fn portals_over_nvme_tcp_may_say_whether_hosts_use_tls() {
        let shown = |text| parse::<Portal>(text).map(|portal| portal.to_string());
        for (text, expected) in [
            ("192.0.2.1?tls=off", "nvme+tcp://192.0.2.1:4420"),
            (
                "nvme+tcp://192.0.2.1?tls=allowed",
                "nvme+tcp://192.0.2.1:4420?tls=allowed",
            ),
            (
                "nvme+tcp://[2001:db8::1]/?tls=required",
                "nvme+tcp://[2001:db8::1]:4420?tls=required",
            ),
        ] {
            assert_eq!(shown(text).as_deref(), Ok(expected));
            assert_eq!(shown(expected).as_deref(), Ok(expected));
        }
        for (text, told) in [
            ("192.0.2.1?tls=maybe", "?tls=off"),
            ("192.0.2.1?tls", "?tls=off"),
            ("iscsi://192.0.2.1?tls=off", "leave out tls="),
        ] {
            let fault = shown(text).expect_err(text).to_string();
            assert!(fault.contains(told), "{fault}");
        }
    }

    #[test]
    fn portals_over_rdma_may_say_what_carries_it() {
        let shown = |text| parse::<Portal>(text).map(|portal| portal.to_string());
        for (text, read) in [
            ("nvme+rdma://192.0.2.1", "nvme+rdma://192.0.2.1:4420"),
            (
                "nvme+rdma://192.0.2.1?rdma=auto",
                "nvme+rdma://192.0.2.1:4420",
            ),
            (
                "nvme+rdma://192.0.2.1/?rdma=hw",
                "nvme+rdma://192.0.2.1:4420?rdma=hw",
            ),
            (
                "iser://[2001:db8::1],7?rdma=soft",
                "iser://[2001:db8::1]:3260,7?rdma=soft",
            ),
        ] {
            assert_eq!(shown(text).as_deref(), Ok(read), "{text}");
            assert_eq!(shown(read).as_deref(), Ok(read));
        }
        for text in [
            "iser://192.0.2.1?rdma=",
            "iser://192.0.2.1?rdma=on",
            "iser://192.0.2.1?",
            "iser://192.0.2.1?rdma=hw&rdma=soft",
            "iser://192.0.2.1?path=hw",
        ] {
            let fault = shown(text).expect_err(text).to_string();
            assert!(fault.contains("?rdma=auto, ?rdma=hw and"), "{fault}");
        }
        for text in ["192.0.2.1?rdma=hw", "iscsi://192.0.2.1?rdma=auto"] {
            let fault = shown(text).expect_err(text).to_string();
            assert!(fault.contains("leave out rdma="), "{fault}");
        }
    }

    #[test]
    fn portals_may_require_authentication() {
        let shown = |text| parse::<Portal>(text).map(|portal| portal.to_string());
        for (text, read) in [
            (
                "192.0.2.1?auth=required",
                "nvme+tcp://192.0.2.1:4420?auth=required",
            ),
            (
                "iscsi://192.0.2.1,7?auth=required",
                "iscsi://192.0.2.1:3260,7?auth=required",
            ),
            (
                "iser://192.0.2.1?auth=required&rdma=soft",
                "iser://192.0.2.1:3260?rdma=soft&auth=required",
            ),
            (
                "192.0.2.1?tls=allowed&auth=required",
                "nvme+tcp://192.0.2.1:4420?auth=required&tls=allowed",
            ),
        ] {
            assert_eq!(shown(text).as_deref(), Ok(read), "{text}");
            assert_eq!(shown(read).as_deref(), Ok(read));
        }
        for (text, hint) in [
            ("192.0.2.1?auth=", "portals accept ?auth=required"),
            ("192.0.2.1?auth=none", "portals accept ?auth=required"),
            (
                "192.0.2.1?auth=required&auth=required",
                "portals accept ?auth=required",
            ),
            ("192.0.2.1?auth=required&", "portals accept ?auth=required"),
            ("nfs://192.0.2.1?auth=required", "leave out auth="),
            ("nfs+rdma://192.0.2.1?auth=required", "leave out auth="),
        ] {
            let fault = shown(text).expect_err(text).to_string();
            assert!(fault.contains(hint), "{fault}");
        }
    }

    #[test]
    fn a_portal_is_named_without_its_options_and_tls_keeps_strangers_out() {
        let portal = |text| parse::<Portal>(text).expect(text).0;
        let bare = portal("192.0.2.1");
        assert!(bare.admits_strangers());
        assert!(portal("192.0.2.1?tls=allowed").admits_strangers());
        for text in ["192.0.2.1?tls=required", "192.0.2.1?auth=required"] {
            assert!(!portal(text).admits_strangers(), "{text}");
        }
        let both = portal("192.0.2.1?auth=required&tls=required");
        for named in [bare, portal("192.0.2.1?tls=required"), both] {
            assert!(both.is_named(&named), "{named}");
        }
        assert!(!both.is_named(&portal("192.0.2.1?tls=allowed")));
        assert!(!bare.is_named(&both));
    }

    #[test]
    fn periods_read_back_as_they_are_shown() {
        for (text, ns, shown) in [
            ("250us", 250_000, "250us"),
            ("1000us", 1_000_000, "1ms"),
            ("2 s", 2_000_000_000, "2s"),
            ("7ns", 7, "7ns"),
            ("300s", 300_000_000_000, "5m"),
            ("36h", 129_600_000_000_000, "36h"),
            ("0ms", 0, "0s"),
        ] {
            let period: Period = text.parse().expect(text);
            assert_eq!(period.0, Duration::from_nanos(ns));
            assert_eq!(period.to_string(), shown);
            assert_eq!(shown.parse(), Ok(period));
        }
        for text in ["", "10", "ms", "1.5s", "-1s", "99999999999999999999s", "1d"] {
            assert_eq!(text.parse::<Period>(), Err(PeriodFault), "{text}");
        }
    }

    #[test]
    fn sizes_are_numbers_or_text() {
        let read = |json: &str| serde_json::from_str::<Size>(json);
        assert_eq!(read("1048576").expect("a number"), Size(1 << 20));
        assert_eq!(read("\"1M\"").expect("a text"), Size(1 << 20));
        assert!(read("-1").is_err() && read("\"much\"").is_err() && read("true").is_err());
    }

    #[test]
    fn a_wrong_name_is_reported_with_its_noun() {
        let fault = serde_json::from_str::<Text<VolumeName>>("\"a/b\"").expect_err("a slash");
        assert!(
            fault
                .to_string()
                .starts_with("volume name \"a/b\" contains '/'; use"),
            "{fault}"
        );
    }
}
