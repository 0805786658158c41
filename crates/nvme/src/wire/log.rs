//! Log pages.
//!
//! Read first: NVM Express Base 2.0, "Get Log Page command".

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{Sqe, opcode};

/// Log Page Identifiers (LID).
pub mod lid {
    /// Supported Log Pages.
    pub const SUPPORTED_PAGES: u8 = 0x00;
    /// Error Information.
    pub const ERROR: u8 = 0x01;
    /// SMART / Health Information.
    pub const SMART: u8 = 0x02;
    /// Firmware Slot Information.
    pub const FIRMWARE_SLOT: u8 = 0x03;
    /// Changed Namespace List.
    pub const CHANGED_NAMESPACES: u8 = 0x04;
    /// Commands Supported and Effects.
    pub const COMMAND_EFFECTS: u8 = 0x05;
    /// Asymmetric Namespace Access.
    pub const ANA: u8 = 0x0C;
    /// Discovery.
    pub const DISCOVERY: u8 = 0x70;
    /// Reservation Notification.
    pub const RESERVATION: u8 = 0x80;
}

/// The fields of a Get Log Page command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetLogPage {
    /// Log Page Identifier (LID).
    pub page: u8,
    /// Log Specific Parameter (LSP), 7 bits.
    pub specific: u8,
    /// Whether the event that the page belongs to is cleared.
    pub event: RetainEvent,
    /// Bytes to be returned; the field counts dwords, 0's based.
    pub len_bytes: u64,
    /// Log Page Offset (LPO), bytes.
    pub offset_bytes: u64,
    /// Offset Type (OT) says that the offset is an index of entries.
    pub offset_type: OffsetType,
}

/// Retain Asynchronous Event (RAE).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetainEvent {
    /// The event is cleared: it may be reported again.
    Clear,
    /// The event stays as it is.
    Retain,
}

/// Offset Type (OT).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffsetType {
    /// Bytes.
    Bytes,
    /// An index of data structures.
    Index,
}

impl GetLogPage {
    /// The fields of `sqe`.
    pub fn parse(sqe: &Sqe) -> Self {
        let cdw10 = sqe.cdw10.get();
        let dwords_minus_1 = u64::from(sqe.cdw11.get() & 0xFFFF) << 16 | u64::from(cdw10 >> 16);
        Self {
            page: cdw10 as u8,
            specific: (cdw10 >> 8) as u8 & 0x7F,
            event: if cdw10 & 1 << 15 == 0 {
                RetainEvent::Clear
            } else {
                RetainEvent::Retain
            },
            len_bytes: (dwords_minus_1 + 1) * 4,
            offset_bytes: u64::from(sqe.cdw13.get()) << 32 | u64::from(sqe.cdw12.get()),
            offset_type: if sqe.cdw14.get() & 1 << 23 == 0 {
                OffsetType::Bytes
            } else {
                OffsetType::Index
            },
        }
    }

    /// Writes the fields into `sqe`, whose opcode becomes Get Log Page. The length is a multiple of
    /// 4 above 0.
    pub fn apply(&self, sqe: &mut Sqe) {
        let dwords_minus_1 = self.len_bytes / 4 - 1;
        let retain = u32::from(self.event == RetainEvent::Retain) << 15;
        sqe.opcode = opcode::GET_LOG_PAGE;
        sqe.cdw10 = U32::new(
            (dwords_minus_1 as u32 & 0xFFFF) << 16
                | retain
                | u32::from(self.specific) << 8
                | u32::from(self.page),
        );
        sqe.cdw11 = U32::new((dwords_minus_1 >> 16) as u32);
        sqe.cdw12 = U32::new(self.offset_bytes as u32);
        sqe.cdw13 = U32::new((self.offset_bytes >> 32) as u32);
        sqe.cdw14 = U32::new(u32::from(self.offset_type == OffsetType::Index) << 23);
    }
}

/// An entry of the Error Information log, 64 bytes.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct ErrorEntry {
    /// Error Count: the number of this error, from 1; 0 marks an unused entry.
    pub error_count: U64,
    /// Submission Queue ID (SQID).
    pub sq_id: U16,
    /// Command ID (CID).
    pub cid: U16,
    /// Status Field, above the phase tag.
    pub status: U16,
    /// Parameter Error Location: byte in bits 7:0, bit in bits 10:8; all ones if it is not a single
    /// field.
    pub location: U16,
    /// LBA.
    pub lba: U64,
    /// Namespace.
    pub nsid: U32,
    /// Vendor Specific Information Available: a log page.
    pub vendor_page: u8,
    /// Transport Type (TRTYPE), as in the discovery log.
    pub transport: u8,
    /// Command Set Indicator (CSI).
    pub command_set: u8,
    /// Opcode.
    pub opcode: u8,
    /// Command Specific Information.
    pub command_specific: U64,
    /// Transport Type Specific Information.
    pub transport_specific: U16,
    reserved1: [u8; 22],
}

const _: () = assert!(size_of::<ErrorEntry>() == 64);
const _: () = assert!(std::mem::offset_of!(ErrorEntry, lba) == 16);

/// SMART / Health Information, 512 bytes.
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct SmartLog {
    /// Critical Warning: available spare below threshold in bit 0, temperature beyond a threshold
    /// in bit 1, media read-only in bit 3.
    pub critical_warning: u8,
    /// Composite Temperature, kelvin. No value says that it is not measured.
    pub temperature_k: U16,
    /// Available Spare, per cent.
    pub spare_percent: u8,
    /// Available Spare Threshold, per cent.
    pub spare_threshold_percent: u8,
    /// Percentage Used.
    pub used_percent: u8,
    /// Endurance Group Critical Warning Summary.
    pub endurance_warning: u8,
    reserved1: [u8; 25],
    /// Data Units Read: thousands of 512 bytes, rounded up.
    pub data_units_read: [U64; 2],
    /// Data Units Written: thousands of 512 bytes, rounded up.
    pub data_units_written: [U64; 2],
    /// Host Read Commands.
    pub read_commands: [U64; 2],
    /// Host Write Commands.
    pub write_commands: [U64; 2],
    /// Controller Busy Time, minutes.
    pub busy_minutes: [U64; 2],
    /// Power Cycles.
    pub power_cycles: [U64; 2],
    /// Power On Hours.
    pub power_on_hours: [U64; 2],
    /// Unsafe Shutdowns.
    pub unsafe_shutdowns: [U64; 2],
    /// Media and Data Integrity Errors.
    pub media_errors: [U64; 2],
    /// Number of Error Information Log Entries, over the life of the controller.
    pub error_entries: [U64; 2],
    /// Times above the temperature thresholds, minutes.
    pub temperature_minutes: [U32; 2],
    /// Temperature Sensors, kelvin; 0 is none.
    pub sensors_k: [U16; 8],
    /// Thermal management counts and times.
    pub thermal_management: [U32; 4],
    reserved2: [u8; 280],
}

impl SmartLog {
    /// Critical Warning bit 1.
    pub const TEMPERATURE_WARNING: u8 = 1 << 1;
}

const _: () = assert!(size_of::<SmartLog>() == 512);
const _: () = assert!(std::mem::offset_of!(SmartLog, data_units_read) == 32);
const _: () = assert!(std::mem::offset_of!(SmartLog, error_entries) == 176);

/// Firmware Slot Information, 512 bytes.
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct FirmwareSlotLog {
    /// Active Firmware Info (AFI): active slot in bits 2:0.
    pub active: u8,
    reserved1: [u8; 7],
    /// Firmware Revision for Slot 1 to 7 (FRS1 to FRS7).
    pub revisions: [[u8; 8]; 7],
    reserved2: [u8; 448],
}

const _: () = assert!(size_of::<FirmwareSlotLog>() == 512);

/// Commands Supported and Effects, 4096 bytes.
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct CommandEffectsLog {
    /// Admin Command Supported (ACS0 to ACS255).
    pub admin: [U32; 256],
    /// I/O Command Supported (IOCS0 to IOCS255).
    pub io: [U32; 256],
    reserved1: [u8; 2048],
}

const _: () = assert!(size_of::<CommandEffectsLog>() == 4096);

impl CommandEffectsLog {
    /// Command Supported (CSUPP).
    pub const SUPPORTED: u32 = 1;
    /// Logical Block Content Change (LBCC).
    pub const CONTENT_CHANGE: u32 = 1 << 1;
}

/// The head of the Asymmetric Namespace Access log, 16 bytes; [`AnaGroup`]s follow.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct AnaHeader {
    /// Change Count.
    pub change_count: U64,
    /// Number of ANA Group Descriptors.
    pub groups: U16,
    reserved1: [u8; 6],
}

const _: () = assert!(size_of::<AnaHeader>() == 16);

impl AnaHeader {
    /// A head.
    pub fn new(change_count: u64, groups: u16) -> Self {
        Self {
            change_count: U64::new(change_count),
            groups: U16::new(groups),
            reserved1: [0; 6],
        }
    }
}

/// An ANA Group Descriptor, 32 bytes; the NSIDs of the group follow.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct AnaGroup {
    /// ANA Group ID.
    pub group: U32,
    /// Number of NSID Values.
    pub namespaces: U32,
    /// Change Count.
    pub change_count: U64,
    /// Asymmetric Namespace Access State, bits 3:0.
    pub state: u8,
    reserved1: [u8; 15],
}

const _: () = assert!(size_of::<AnaGroup>() == 32);

impl AnaGroup {
    /// A descriptor.
    pub fn new(group: u32, namespaces: u32, change_count: u64, state: AnaState) -> Self {
        Self {
            group: U32::new(group),
            namespaces: U32::new(namespaces),
            change_count: U64::new(change_count),
            state: state as u8,
            reserved1: [0; 15],
        }
    }
}

/// Asymmetric Namespace Access State: how well a path leads to the namespaces of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum AnaState {
    /// The best path.
    #[default]
    Optimized = 0x01,
    /// A path that works, but not the best.
    NonOptimized = 0x02,
    /// No I/O at present.
    Inaccessible = 0x03,
    /// No I/O any more.
    PersistentLoss = 0x04,
    /// About to become another state.
    Change = 0x0F,
}

/// The Reservation Notification log, 64 bytes: one notification.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct ReservationLog {
    /// Log Page Count: the number of this notification; wraps to 1.
    pub count: U64,
    /// Reservation Notification Log Page Type: see [`ReservationNotice`]; 0 is an empty page.
    pub kind: u8,
    /// Number of Available Log Pages besides this one; 255 is that or more.
    pub available: u8,
    reserved1: [u8; 2],
    /// The namespace.
    pub nsid: U32,
    reserved2: [u8; 48],
}

const _: () = assert!(size_of::<ReservationLog>() == 64);
const _: () = assert!(std::mem::offset_of!(ReservationLog, nsid) == 12);

impl ReservationLog {
    /// A page with one notification.
    pub fn new(count: u64, kind: ReservationNotice, available: u8, nsid: u32) -> Self {
        Self {
            count: U64::new(count),
            kind: kind as u8,
            available,
            reserved1: [0; 2],
            nsid: U32::new(nsid),
            reserved2: [0; 48],
        }
    }
}

/// A reservation event that a host is notified of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ReservationNotice {
    /// Its registration was preempted.
    RegistrationPreempted = 1,
    /// The reservation was released.
    ReservationReleased = 2,
    /// Its reservation was preempted.
    ReservationPreempted = 3,
}

impl ReservationNotice {
    /// Its bit in the Reservation Notification Mask feature.
    pub const fn mask_bit(self) -> u32 {
        1 << self as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Cid, Nsid};
    use zerocopy::FromZeros;

    #[test]
    fn golden_get_log_page_both_ways() {
        let fields = GetLogPage {
            page: lid::DISCOVERY,
            specific: 1,
            event: RetainEvent::Retain,
            len_bytes: 4 * 0x0001_0002,
            offset_bytes: 0x1_0000_0400,
            offset_type: OffsetType::Bytes,
        };
        let mut sqe = Sqe::new(0, Cid(1), Nsid::NONE);
        fields.apply(&mut sqe);
        #[rustfmt::skip]
        let golden = [
            0x70, 0x81, 0x01, 0x00, // LID, RAE and LSP, NUMDL
            0x01, 0x00, 0x00, 0x00, // NUMDU
            0x00, 0x04, 0x00, 0x00, // LPOL
            0x01, 0x00, 0x00, 0x00, // LPOU
        ];
        assert_eq!(sqe.opcode, 0x02);
        assert_eq!(sqe.as_bytes()[40..56], golden);
        assert_eq!(GetLogPage::parse(&sqe), fields);
    }

    #[test]
    fn the_longest_log_page_request_does_not_overflow() {
        let mut sqe = Sqe::new(opcode::GET_LOG_PAGE, Cid(1), Nsid::NONE);
        sqe.cdw10 = U32::new(0xFFFF_0001);
        sqe.cdw11 = U32::new(0x0000_FFFF);
        assert_eq!(GetLogPage::parse(&sqe).len_bytes, 1 << 34);
    }

    #[test]
    fn golden_error_entry_both_ways() {
        let mut entry = ErrorEntry::new_zeroed();
        entry.error_count = U64::new(1);
        entry.cid = U16::new(0x0203);
        entry.status = U16::new(0x8004);
        entry.location = U16::new(40);
        entry.nsid = U32::new(5);
        entry.opcode = 6;
        let bytes = entry.as_bytes();
        assert_eq!(
            bytes[..16],
            [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 2, 4, 0x80, 40, 0]
        );
        assert_eq!((bytes[24], bytes[31]), (5, 6));
        assert_eq!(ErrorEntry::read_from_bytes(bytes).expect("64 bytes"), entry);
    }

    #[test]
    fn golden_smart_both_ways() {
        let mut log = SmartLog::new_zeroed();
        log.spare_percent = 100;
        log.data_units_read[0] = U64::new(2);
        log.power_on_hours[0] = U64::new(3);
        log.error_entries[0] = U64::new(4);
        let bytes = log.as_bytes();
        assert_eq!(
            (bytes[3], bytes[32], bytes[128], bytes[176]),
            (100, 2, 3, 4)
        );
        assert_eq!(SmartLog::read_from_bytes(bytes).expect("512 bytes"), log);
    }

    #[test]
    fn golden_ana_both_ways() {
        let header = AnaHeader::new(5, 1);
        assert_eq!(
            header.as_bytes(),
            [5, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]
        );
        let group = AnaGroup::new(1, 2, 5, AnaState::Inaccessible);
        let bytes = group.as_bytes();
        assert_eq!(
            bytes[..17],
            [1, 0, 0, 0, 2, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 3]
        );
        assert_eq!(AnaGroup::read_from_bytes(bytes).expect("32 bytes"), group);
    }

    #[test]
    fn golden_reservation_notification_both_ways() {
        let log = ReservationLog::new(9, ReservationNotice::ReservationPreempted, 2, 0x0102);
        let bytes = log.as_bytes();
        assert_eq!(
            bytes[..16],
            [9, 0, 0, 0, 0, 0, 0, 0, 3, 2, 0, 0, 2, 1, 0, 0]
        );
        assert_eq!(
            ReservationLog::read_from_bytes(bytes).expect("64 bytes"),
            log
        );
        assert_eq!(ReservationNotice::RegistrationPreempted.mask_bit(), 0b0010);
    }
}
