//! Identifiers of volumes in definitions, and the check that no two volumes share one.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use server::{
    DiskUuid, Eui64, Naa, Nguid, Place, SerialNumber, TargetName, VolumeIdentity, VolumeName,
};
use utoipa::ToSchema;
use uuid::Uuid;

use super::{DefinitionFault, Definitions, Target, Volume};
use crate::text::Text;

/// Identifiers by which hosts distinguish disks. Identifiers that are absent are derived: from the
/// UUID, otherwise from those that are set; if none is set, from this machine, the target and the
/// volume's name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Identity {
    /// NVMe: UUID of the namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "6ba7b810-9dad-41d1-80b4-00c04fd430c8")]
    pub uuid: Option<Text<DiskUuid>>,
    /// NVMe: NGUID of the namespace, 32 hexadecimal digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub nguid: Option<Text<Nguid>>,
    /// NVMe and SCSI: EUI-64, 16 hexadecimal digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub eui64: Option<Text<Eui64>>,
    /// SCSI: NAA designator, 16 hexadecimal digits that begin with 2, 3 or 5, or 32 that begin with
    /// 6.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub naa: Option<Text<Naa>>,
    /// SCSI: unit serial number, up to 64 printable characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub serial: Option<Text<SerialNumber>>,
}

impl Identity {
    /// Identifiers that are derived from `uuid`, which is not nil.
    pub fn with_uuid(uuid: Uuid) -> Self {
        Self {
            uuid: uuid.to_string().parse().ok(),
            ..Self::default()
        }
    }

    /// Whether no identifier is set.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    pub(crate) fn to_server(&self) -> VolumeIdentity {
        VolumeIdentity {
            uuid: self.uuid.map(|id| id.0),
            nguid: self.nguid.map(|id| id.0),
            eui64: self.eui64.map(|id| id.0),
            naa: self.naa.map(|id| id.0),
            serial: self.serial.clone().map(|id| id.0),
        }
    }

    /// Each identifier as text, with its name.
    fn named(&self) -> impl Iterator<Item = (&'static str, String)> {
        let text = |id: Option<String>, name| id.map(|id| (name, id));
        [
            text(self.uuid.map(|id| id.to_string()), "uuid"),
            text(self.nguid.map(|id| id.to_string()), "nguid"),
            text(self.eui64.map(|id| id.to_string()), "eui64"),
            text(self.naa.map(|id| id.to_string()), "naa"),
            text(self.serial.as_ref().map(ToString::to_string), "serial"),
        ]
        .into_iter()
        .flatten()
    }
}

impl From<VolumeIdentity> for Identity {
    fn from(identity: VolumeIdentity) -> Self {
        Self {
            uuid: identity.uuid.map(Text),
            nguid: identity.nguid.map(Text),
            eui64: identity.eui64.map(Text),
            naa: identity.naa.map(Text),
            serial: identity.serial.map(Text),
        }
    }
}

impl Definitions {
    /// Checks that no two volumes share an identifier. For volumes without identifiers of their
    /// own, it checks the identifiers that hosts see in their targets, which are derived from
    /// `machine`.
    pub(crate) fn check_identities(&self, machine: Option<Uuid>) -> Result<(), DefinitionFault> {
        let set = self.volumes.iter();
        let set: Vec<_> = set
            .filter(|(_, volume)| !volume.identity.is_empty())
            .collect();
        if set.is_empty() {
            return Ok(());
        }
        let mut owners = BTreeMap::new();
        for (name, volume) in set {
            for seen in volume.identity.to_server().seen_anywhere() {
                claim(&mut owners, &name.0, seen)?;
            }
        }
        let Some(machine) = machine else {
            return Ok(());
        };
        for (target, definition) in &self.targets {
            for volume in definition.namespaces.values() {
                let known = self.volumes.get(volume);
                if known.is_some_and(|known| known.identity.is_empty()) {
                    let place = Place {
                        machine,
                        target: &target.0,
                        volume: &volume.0,
                    };
                    let seen = VolumeIdentity::default().seen_at(place);
                    claim(&mut owners, &volume.0, seen)?;
                }
            }
        }
        Ok(())
    }

    /// As [`check_identities`](Self::check_identities), as if `name` were `target`.
    pub(crate) fn check_identities_with(
        &self,
        name: &TargetName,
        target: &Target,
    ) -> Result<(), DefinitionFault> {
        if self
            .volumes
            .values()
            .all(|volume| volume.identity.is_empty())
        {
            return Ok(());
        }
        let mut with = self.clone();
        with.targets.insert(Text(name.clone()), target.clone());
        with.check_identities(self.machine)
    }

    /// As [`check_identities`](Self::check_identities), as if `name` were `volume`.
    pub(crate) fn check_identity(
        &self,
        name: &VolumeName,
        volume: &Volume,
    ) -> Result<(), DefinitionFault> {
        if volume.identity.is_empty() {
            // No target has it yet.
            return Ok(());
        }
        let mut with = self.clone();
        with.volumes.insert(Text(name.clone()), volume.clone());
        with.check_identities(self.machine)
    }
}

/// Records `name` as the owner of the identifiers of `seen`. Fails if another volume owns one.
fn claim<'a>(
    owners: &mut BTreeMap<(&'static str, String), &'a VolumeName>,
    name: &'a VolumeName,
    seen: VolumeIdentity,
) -> Result<(), DefinitionFault> {
    for (kind, id) in Identity::from(seen).named() {
        let other = *owners.entry((kind, id.clone())).or_insert(name);
        if other != name {
            return Err(DefinitionFault::SameIdentifier {
                volume: name.clone(),
                other: other.clone(),
                kind,
                id,
            });
        }
    }
    Ok(())
}
