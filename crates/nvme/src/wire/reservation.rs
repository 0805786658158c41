//! Reservation commands and their data.
//!
//! Read first: NVM Express Base 2.0, "Reservations", "Reservation Acquire command" and its
//! neighbours.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The type of a reservation (RTYPE).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ReservationType {
    /// The holder writes, all read.
    WriteExclusive = 1,
    /// The holder writes and reads.
    ExclusiveAccess = 2,
    /// Registrants write, all read.
    WriteExclusiveRegistrantsOnly = 3,
    /// Registrants write and read.
    ExclusiveAccessRegistrantsOnly = 4,
    /// Registrants write, all read; every registrant holds the reservation.
    WriteExclusiveAllRegistrants = 5,
    /// Registrants write and read; every registrant holds the reservation.
    ExclusiveAccessAllRegistrants = 6,
}

impl ReservationType {
    /// Every type.
    pub const ALL: [Self; 6] = [
        Self::WriteExclusive,
        Self::ExclusiveAccess,
        Self::WriteExclusiveRegistrantsOnly,
        Self::ExclusiveAccessRegistrantsOnly,
        Self::WriteExclusiveAllRegistrants,
        Self::ExclusiveAccessAllRegistrants,
    ];

    /// The type of this number.
    pub fn from_raw(raw: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|&kind| kind as u8 == raw)
    }

    /// Whether every registrant is a holder.
    pub const fn is_held_by_all(self) -> bool {
        matches!(
            self,
            Self::WriteExclusiveAllRegistrants | Self::ExclusiveAccessAllRegistrants
        )
    }

    /// Whether it gives registrants more than other hosts have.
    pub const fn favours_registrants(self) -> bool {
        !matches!(self, Self::WriteExclusive | Self::ExclusiveAccess)
    }
}

/// Reservation Register Action (RREGA): CDW10 bits 2:0.
pub mod register_action {
    /// Register.
    pub const REGISTER: u8 = 0;
    /// Unregister.
    pub const UNREGISTER: u8 = 1;
    /// Replace the key.
    pub const REPLACE: u8 = 2;
}

/// Reservation Acquire Action (RACQA): CDW10 bits 2:0.
pub mod acquire_action {
    /// Acquire.
    pub const ACQUIRE: u8 = 0;
    /// Preempt.
    pub const PREEMPT: u8 = 1;
    /// Preempt and abort.
    pub const PREEMPT_AND_ABORT: u8 = 2;
}

/// Reservation Release Action (RRELA): CDW10 bits 2:0.
pub mod release_action {
    /// Release.
    pub const RELEASE: u8 = 0;
    /// Clear.
    pub const CLEAR: u8 = 1;
}

/// Ignore Existing Key (IEKEY): CDW10 bit 3.
pub const IGNORE_EXISTING_KEY: u32 = 1 << 3;
/// Extended Data Structure (EDS) of Reservation Report: CDW11 bit 0.
pub const EXTENDED_DATA_STRUCTURE: u32 = 1;

/// The data of Reservation Register and Reservation Acquire, 16 bytes; Reservation Release has the
/// first key alone.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct ReservationKeys {
    /// Current Reservation Key (CRKEY).
    pub current: U64,
    /// New Reservation Key (NRKEY) of Register, Preempt Reservation Key (PRKEY) of Acquire.
    pub other: U64,
}

const _: () = assert!(size_of::<ReservationKeys>() == 16);

/// The head of the extended Reservation Status data structure, 64 bytes; a [`RegisteredController`]
/// for each registered controller follows.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct ReservationStatus {
    /// Generation (GEN): counts registrations, unregistrations, clears and preempts.
    pub generation: U32,
    /// Reservation Type (RTYPE); 0 is none held.
    pub kind: u8,
    /// Number of Registered Controllers (REGCTL).
    pub controllers: U16,
    reserved1: [u8; 2],
    /// Persist Through Power Loss State (PTPLS).
    pub persists: u8,
    reserved2: [u8; 54],
}

const _: () = assert!(size_of::<ReservationStatus>() == 64);
const _: () = assert!(std::mem::offset_of!(ReservationStatus, controllers) == 5);

impl ReservationStatus {
    /// A head; the reservation does not persist through power loss.
    pub fn new(generation: u32, kind: Option<ReservationType>, controllers: u16) -> Self {
        Self {
            generation: U32::new(generation),
            kind: kind.map_or(0, |kind| kind as u8),
            controllers: U16::new(controllers),
            reserved1: [0; 2],
            persists: 0,
            reserved2: [0; 54],
        }
    }
}

/// A Registered Controller of the extended data structure, 64 bytes.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct RegisteredController {
    /// Controller ID (CNTLID); [`Self::DYNAMIC_CONTROLLER`] in a subsystem of dynamic controllers.
    pub controller: U16,
    /// Reservation Status (RCSTS): its host holds the reservation in bit 0.
    pub status: u8,
    reserved1: [u8; 5],
    /// Reservation Key (RKEY).
    pub key: U64,
    /// Host Identifier (HOSTID).
    pub host_id: [u8; 16],
    reserved2: [u8; 32],
}

const _: () = assert!(size_of::<RegisteredController>() == 64);
const _: () = assert!(std::mem::offset_of!(RegisteredController, host_id) == 16);

impl RegisteredController {
    /// [`Self::controller`] of a registered host, which may have any number of dynamic controllers
    /// at any time.
    pub const DYNAMIC_CONTROLLER: u16 = 0xFFFF;

    /// The entry of a host; `status` is [`Self::status`].
    pub fn new(status: u8, key: u64, host_id: [u8; 16]) -> Self {
        Self {
            controller: U16::new(Self::DYNAMIC_CONTROLLER),
            status,
            reserved1: [0; 5],
            key: U64::new(key),
            host_id,
            reserved2: [0; 32],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_keys_both_ways() {
        let keys = ReservationKeys {
            current: U64::new(0x0102),
            other: U64::new(3),
        };
        assert_eq!(
            keys.as_bytes(),
            [2, 1, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0]
        );
        assert_eq!(
            ReservationKeys::read_from_bytes(keys.as_bytes()).expect("16 bytes"),
            keys
        );
    }

    #[test]
    fn golden_status_both_ways() {
        let kind = ReservationType::ExclusiveAccessRegistrantsOnly;
        let status = ReservationStatus::new(7, Some(kind), 0x0102);
        assert_eq!(status.as_bytes()[..10], [7, 0, 0, 0, 4, 2, 1, 0, 0, 0]);
        let parsed = ReservationStatus::read_from_bytes(status.as_bytes()).expect("64 bytes");
        assert_eq!(ReservationType::from_raw(parsed.kind), Some(kind));
        let entry = RegisteredController::new(1, 9, [0xAB; 16]);
        let bytes = entry.as_bytes();
        assert_eq!(
            bytes[..16],
            [0xFF, 0xFF, 1, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0]
        );
        assert_eq!(bytes[16..32], [0xAB; 16]);
        assert_eq!(
            RegisteredController::read_from_bytes(bytes).expect("64 bytes"),
            entry
        );
    }

    #[test]
    fn types_are_one_to_six() {
        assert_eq!(ReservationType::from_raw(0), None);
        assert_eq!(ReservationType::from_raw(7), None);
        for raw in 1..=6 {
            assert_eq!(
                ReservationType::from_raw(raw).map(|kind| kind as u8),
                Some(raw)
            );
        }
    }
}
