//! Identifiers by which hosts distinguish disks. Identifiers that the administrator sets move with
//! the disk to other targets and machines; the others are derived.
//!
//! Read first: NVM Express Base Specification, "Namespace Identification Descriptor"; SPC-5,
//! "Device Identification VPD page", "NAA designator format" and "Unit Serial Number VPD page".

use std::fmt;
use std::str::FromStr;

use nvme::controller::NamespaceIds;
use scsi::{Naa as NaaDesignator, UnitIdentity};
use srp::wire::PortId;
use uuid::Uuid;

use crate::{Protocol, TargetName, VolumeName};

/// The identifiers of a volume that are set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeIdentity {
    /// NVMe: the namespace's UUID. Identifiers that are not set are derived from it.
    pub uuid: Option<DiskUuid>,
    /// NVMe: the namespace's NGUID.
    pub nguid: Option<Nguid>,
    /// NVMe and SCSI: the EUI-64.
    pub eui64: Option<Eui64>,
    /// SCSI: the NAA designator.
    pub naa: Option<Naa>,
    /// SCSI: the unit serial number.
    pub serial: Option<SerialNumber>,
}

/// The place of a volume. Identifiers are derived from it if none is set.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// Identifies this machine.
    pub machine: Uuid,
    /// The target.
    pub target: &'a TargetName,
    /// The volume.
    pub volume: &'a VolumeName,
}

/// A UUID other than the nil UUID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DiskUuid(Uuid);

/// A Namespace Globally Unique Identifier: 16 bytes that are not all zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Nguid([u8; 16]);

impl Nguid {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl Naa {
    pub(crate) fn bytes(&self) -> &[u8] {
        self.0.bytes()
    }
}

/// An IEEE Extended Unique Identifier: 8 bytes that are not all zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Eui64([u8; 8]);

/// An NAA designator: 8 bytes of type 2, 3 or 5, or 16 bytes of type 6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Naa(NaaDesignator);

/// A unit serial number: 1 to 64 printable ASCII characters without a space at either end.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SerialNumber(String);

/// Why a text is not an identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdentityFault {
    /// Not a UUID.
    #[error("is not a UUID; write for example 6ba7b810-9dad-41d1-80b4-00c04fd430c8")]
    Uuid,
    /// Not the required number of hexadecimal digits.
    #[error("is not {digits} hexadecimal digits")]
    Digits {
        /// The required number of digits.
        digits: usize,
    },
    /// Zero means that there is no identifier.
    #[error("is zero, which hosts take for no identifier; choose another value")]
    Zero,
    /// Not an NAA designator.
    #[error(
        "is not an NAA designator; write 16 hexadecimal digits that begin with 2, 3 or 5, or 32 that begin with 6"
    )]
    Naa,
    /// Not a serial number.
    #[error(
        "is not a serial number; write 1 to {} printable ASCII characters without spaces at the ends",
        SerialNumber::LEN_MAX_BYTES
    )]
    Serial,
}

/// The port identifier by which SRP initiators name a target: derived from its name alone, so that
/// it stays when the target moves to another machine.
pub fn srp_port(target: &TargetName) -> PortId {
    PortId::of_target(target.as_str())
}

impl VolumeIdentity {
    /// Whether no identifier is set.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The identifiers that hosts of a target see.
    #[must_use]
    pub fn seen_at(&self, place: Place<'_>) -> Self {
        match place.target.protocol() {
            Protocol::Nvme => self.seen_by_nvme(self.seed(place)),
            Protocol::Iscsi => self.seen_by_scsi(self.seed(place)),
        }
    }

    /// The identifiers that hosts of each protocol see in every target; empty if they depend on the
    /// target.
    pub fn seen_anywhere(&self) -> Vec<Self> {
        let seed = self.own_seed();
        seed.map_or_else(Vec::new, |seed| {
            vec![self.seen_by_nvme(seed), self.seen_by_scsi(seed)]
        })
    }

    /// The identifiers of the namespace.
    pub(crate) fn namespace_ids(&self, place: Place<'_>) -> NamespaceIds {
        self.namespace_ids_of(self.seed(place))
    }

    /// The identifiers of the logical unit.
    pub(crate) fn unit(&self, place: Place<'_>) -> UnitIdentity {
        self.unit_of(self.seed(place))
    }

    /// The identifier of the volume in BRP, which does not depend on the target.
    pub(crate) fn volume_id(&self, machine: Uuid, volume: &VolumeName) -> [u8; 16] {
        let of_name = || Uuid::new_v5(&machine, volume.to_string().as_bytes());
        let seed = self.own_seed().unwrap_or_else(of_name);
        self.namespace_ids_of(seed).nguid
    }

    fn seen_by_nvme(&self, seed: Uuid) -> Self {
        let ids = self.namespace_ids_of(seed);
        Self {
            uuid: Some(DiskUuid(Uuid::from_bytes(ids.uuid))),
            nguid: Some(Nguid(ids.nguid)),
            eui64: Some(Eui64(ids.eui64)),
            ..Self::default()
        }
    }

    fn seen_by_scsi(&self, seed: Uuid) -> Self {
        let unit = self.unit_of(seed);
        Self {
            eui64: Some(Eui64(unit.eui64)),
            naa: Some(Naa(unit.naa)),
            serial: Some(SerialNumber(unit.serial)),
            ..Self::default()
        }
    }

    fn namespace_ids_of(&self, seed: Uuid) -> NamespaceIds {
        let mut ids = NamespaceIds::from_seed(seed.into_bytes());
        if let Some(nguid) = self.nguid {
            ids.nguid = nguid.0;
        }
        if let Some(eui64) = self.eui64 {
            ids.eui64 = eui64.0;
        }
        ids
    }

    fn unit_of(&self, seed: Uuid) -> UnitIdentity {
        let (unique, _) = seed.as_u64_pair();
        let mut unit = UnitIdentity::derived(unique, seed.simple().to_string());
        if let Some(eui64) = self.eui64 {
            unit.eui64 = eui64.0;
        }
        if let Some(naa) = self.naa {
            unit.naa = naa.0;
        }
        if let Some(serial) = &self.serial {
            unit.serial.clone_from(&serial.0);
        }
        unit
    }

    /// The seed of identifiers that are not set, at a place.
    fn seed(&self, place: Place<'_>) -> Uuid {
        self.own_seed().unwrap_or_else(|| {
            let name = format!("{}\0{}", place.target, place.volume);
            Uuid::new_v5(&place.machine, name.as_bytes())
        })
    }

    /// The seed that does not depend on the place: the UUID, otherwise a hash of the identifiers
    /// that are set. `None` if none is set.
    fn own_seed(&self) -> Option<Uuid> {
        let Self {
            uuid,
            nguid,
            eui64,
            naa,
            serial,
        } = self;
        if let Some(uuid) = uuid {
            return Some(uuid.0);
        }
        let text = |id: Option<&dyn fmt::Display>| id.map_or_else(String::new, ToString::to_string);
        let name = [
            text(nguid.as_ref().map(|id| id as _)),
            text(eui64.as_ref().map(|id| id as _)),
            text(naa.as_ref().map(|id| id as _)),
            text(serial.as_ref().map(|id| id as _)),
        ];
        (!self.is_empty()).then(|| Uuid::new_v5(&Uuid::NAMESPACE_OID, name.join("\0").as_bytes()))
    }
}

impl SerialNumber {
    /// The maximum length in bytes.
    pub const LEN_MAX_BYTES: usize = 64;
}

impl FromStr for DiskUuid {
    type Err = IdentityFault;

    fn from_str(text: &str) -> Result<Self, IdentityFault> {
        match text.parse::<Uuid>() {
            Err(_) => Err(IdentityFault::Uuid),
            Ok(uuid) if uuid.is_nil() => Err(IdentityFault::Zero),
            Ok(uuid) => Ok(Self(uuid)),
        }
    }
}

impl FromStr for Nguid {
    type Err = IdentityFault;

    fn from_str(text: &str) -> Result<Self, IdentityFault> {
        not_zero(text).map(Self)
    }
}

impl FromStr for Eui64 {
    type Err = IdentityFault;

    fn from_str(text: &str) -> Result<Self, IdentityFault> {
        not_zero(text).map(Self)
    }
}

impl FromStr for Naa {
    type Err = IdentityFault;

    fn from_str(text: &str) -> Result<Self, IdentityFault> {
        let eight = hexadecimal(text).map(NaaDesignator::Eight);
        let naa = eight.or_else(|| hexadecimal(text).map(NaaDesignator::Sixteen));
        match naa {
            Some(naa) if naa.has_known_type() => Ok(Self(naa)),
            _ => Err(IdentityFault::Naa),
        }
    }
}

impl FromStr for SerialNumber {
    type Err = IdentityFault;

    fn from_str(text: &str) -> Result<Self, IdentityFault> {
        let is_printable = text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
        let is_short = (1..=Self::LEN_MAX_BYTES).contains(&text.len());
        if is_printable && is_short && text.trim() == text {
            Ok(Self(text.to_owned()))
        } else {
            Err(IdentityFault::Serial)
        }
    }
}

fn not_zero<const N: usize>(text: &str) -> Result<[u8; N], IdentityFault> {
    let bytes = hexadecimal(text).ok_or(IdentityFault::Digits { digits: 2 * N })?;
    if bytes == [0; N] {
        return Err(IdentityFault::Zero);
    }
    Ok(bytes)
}

/// Parses hexadecimal digits. Hyphens and colons, which tools write between digits, are ignored.
fn hexadecimal<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digits = text
        .chars()
        .filter(|character| !matches!(character, '-' | ':'));
    let digits: Vec<u8> = digits
        .map(|digit| digit.to_digit(16).map(|digit| digit as u8))
        .collect::<Option<_>>()?;
    if digits.len() != 2 * N {
        return None;
    }
    let bytes = digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]);
    bytes.collect::<Vec<_>>().try_into().ok()
}

fn write_hexadecimal(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

impl fmt::Display for DiskUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Nguid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hexadecimal(f, &self.0)
    }
}

impl fmt::Display for Eui64 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hexadecimal(f, &self.0)
    }
}

impl fmt::Display for Naa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hexadecimal(f, self.0.bytes())
    }
}

impl fmt::Display for SerialNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = "6ba7b810-9dad-41d1-80b4-00c04fd430c8";

    fn seen(identity: &VolumeIdentity, machine: u128, target: &str) -> VolumeIdentity {
        identity.seen_at(Place {
            machine: Uuid::from_u128(machine),
            target: &target.parse().expect("a name"),
            volume: &"rd0".parse().expect("a name"),
        })
    }

    #[test]
    fn texts_that_are_no_identifiers_are_rejected() {
        assert_eq!("x".parse::<DiskUuid>(), Err(IdentityFault::Uuid));
        let nil = "00000000-0000-0000-0000-000000000000";
        assert_eq!(nil.parse::<DiskUuid>(), Err(IdentityFault::Zero));
        assert_eq!(nil.parse::<Nguid>(), Err(IdentityFault::Zero));
        assert_eq!(
            "0000000000000000".parse::<Eui64>(),
            Err(IdentityFault::Zero)
        );
        for text in [
            "",
            "1",
            "0123456789abcde",
            "0123456789abcdef0",
            "0123456789abcdeg",
            "é123456789abcdef",
        ] {
            assert_eq!(
                text.parse::<Eui64>(),
                Err(IdentityFault::Digits { digits: 16 }),
                "{text}"
            );
        }
        assert_eq!(
            "0123".parse::<Nguid>(),
            Err(IdentityFault::Digits { digits: 32 })
        );
        for text in [
            "",
            "4000000000000001",
            "6000000000000001",
            "50000000000000010000000000000000",
            "5000000000000001000000000000000",
        ] {
            assert_eq!(text.parse::<Naa>(), Err(IdentityFault::Naa), "{text}");
        }
        let long = "x".repeat(65);
        for text in ["", " a", "a ", "a\nb", "é", &long] {
            assert_eq!(
                text.parse::<SerialNumber>(),
                Err(IdentityFault::Serial),
                "{text}"
            );
        }
    }

    #[test]
    fn identifiers_read_back_as_they_are_shown() {
        let shown = |text: &str| {
            let eui64 = text.parse::<Eui64>().expect("an EUI-64").to_string();
            assert_eq!(eui64.parse::<Eui64>(), text.parse());
            eui64
        };
        assert_eq!(shown("02-00-45-67-A4-25-67-8D"), "02004567a425678d");
        assert_eq!(shown("02:00:45:67:a4:25:67:8d"), "02004567a425678d");
        let nguid: Nguid = UUID.parse().expect("with hyphens");
        assert_eq!(nguid.to_string(), UUID.replace('-', ""));
        for naa in ["3000000000000001", "60000000000000010000000000000002"] {
            assert_eq!(naa.parse::<Naa>().expect("an NAA").to_string(), naa);
        }
        assert_eq!(UUID.parse::<DiskUuid>().expect("a UUID").to_string(), UUID);
    }

    #[test]
    fn without_settings_identifiers_depend_on_machine_and_target() {
        let derived = VolumeIdentity::default();
        let first = seen(&derived, 1, "nqn.2025-01.com.example:a");
        assert_eq!(first, seen(&derived, 1, "nqn.2025-01.com.example:a"));
        assert_ne!(first, seen(&derived, 2, "nqn.2025-01.com.example:a"));
        assert_ne!(first, seen(&derived, 1, "nqn.2025-01.com.example:b"));
        assert!(derived.seen_anywhere().is_empty());
        // A volume created elsewhere with the UUID shown here is the same disk.
        let moved = VolumeIdentity {
            uuid: first.uuid,
            ..VolumeIdentity::default()
        };
        assert_eq!(seen(&moved, 3, "nqn.2025-01.com.example:c"), first);
    }

    #[test]
    fn what_is_set_is_the_same_in_every_target_and_on_every_machine() {
        let identity = VolumeIdentity {
            nguid: UUID.parse().ok(),
            naa: "5000000000000001".parse().ok(),
            serial: "S 1".parse().ok(),
            ..VolumeIdentity::default()
        };
        let nvme = seen(&identity, 1, "nqn.2025-01.com.example:a");
        assert_eq!(nvme, seen(&identity, 2, "nqn.2025-01.com.example:b"));
        assert_eq!((nvme.nguid, nvme.naa), (identity.nguid, None));
        assert!(nvme.uuid.is_some() && nvme.eui64.is_some());
        let scsi = seen(&identity, 1, "iqn.2025-01.com.example:a");
        assert_eq!((scsi.naa, &scsi.serial), (identity.naa, &identity.serial));
        assert_eq!(identity.seen_anywhere(), [nvme, scsi]);
    }
}
