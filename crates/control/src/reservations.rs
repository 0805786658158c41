//! Reservations of iSCSI targets that outlive a restart (APTPL), as the state file keeps them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use server::{
    NexusPorts, Registration, Reservation, ReservationType, Reservations, UnsavedReservations,
};

use crate::definitions::Nsid;

/// Reservations of a target by LUN.
pub type TargetReservations = BTreeMap<Nsid, LunReservations>;

/// Reservations of a LUN.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LunReservations {
    registrations: Vec<Registered>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reservation: Option<Reserved>,
}

/// A registered nexus.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Registered {
    nexus: Nexus,
    all_target_ports: bool,
    key: u64,
}

/// The reservation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Reserved {
    holder: Nexus,
    /// The code of SPC-5.
    kind: u8,
}

/// Both ends of a nexus.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Nexus {
    initiator: String,
    target_port: u16,
}

/// Converts reservations that the server saves to the file's form.
pub(crate) fn to_saved(unsaved: &UnsavedReservations) -> TargetReservations {
    let luns = unsaved.luns.iter();
    luns.map(|(lun, reservations)| (Nsid(*lun), LunReservations::from(reservations)))
        .collect()
}

impl LunReservations {
    pub(crate) fn to_server(&self) -> Option<Reservations> {
        let reservation = match &self.reservation {
            Some(reserved) => Some(Reservation {
                kind: ReservationType::from_code(reserved.kind)?,
                holder: reserved.holder.to_server(),
            }),
            None => None,
        };
        let registrations = self.registrations.iter();
        Some(Reservations {
            generation: 0,
            registrations: registrations
                .map(|registered| Registration {
                    ports: registered.nexus.to_server(),
                    all_target_ports: registered.all_target_ports,
                    key: registered.key,
                })
                .collect(),
            reservation,
            persist: true,
        })
    }
}

impl From<&Reservations> for LunReservations {
    fn from(reservations: &Reservations) -> Self {
        let registrations = reservations.registrations.iter();
        let reservation = reservations.reservation.as_ref();
        Self {
            registrations: registrations
                .map(|registration| Registered {
                    nexus: Nexus::from(&registration.ports),
                    all_target_ports: registration.all_target_ports,
                    key: registration.key,
                })
                .collect(),
            reservation: reservation.map(|reservation| Reserved {
                holder: Nexus::from(&reservation.holder),
                kind: reservation.kind as u8,
            }),
        }
    }
}

impl Nexus {
    fn to_server(&self) -> NexusPorts {
        NexusPorts {
            initiator: self.initiator.clone(),
            target_port: self.target_port,
        }
    }
}

impl From<&NexusPorts> for Nexus {
    fn from(ports: &NexusPorts) -> Self {
        Self {
            initiator: ports.initiator.clone(),
            target_port: ports.target_port,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn saved_reservations_are_restored_unchanged() {
        let ports = NexusPorts {
            initiator: "iqn.2025-01.io.ramport:h,i,0x000000000001".to_owned(),
            target_port: 2,
        };
        let reservations = Reservations {
            generation: 0,
            registrations: vec![Registration {
                ports: ports.clone(),
                all_target_ports: true,
                key: u64::MAX,
            }],
            reservation: Some(Reservation {
                kind: ReservationType::ExclusiveAccessAllRegistrants,
                holder: ports,
            }),
            persist: true,
        };
        let kept = LunReservations::from(&reservations);
        let text = serde_json::to_string(&kept).expect("serialises");
        let back: LunReservations = serde_json::from_str(&text).expect("reads back");
        assert_eq!(back.to_server(), Some(reservations));
    }
}
