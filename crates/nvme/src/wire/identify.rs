//! Data structures of the Identify command, 4096 bytes each.
//!
//! Read first: NVM Express Base 2.0, "Identify command"; NVM Command Set 1.0, "Identify Namespace
//! Data Structure".

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::Nsid;
use super::fabrics::NqnField;

/// The length of every Identify data structure.
pub const DATA_BYTES: usize = 4096;

/// Controller or Namespace Structure (CNS): which data structure is requested.
pub mod cns {
    /// Identify Namespace, NVM command set.
    pub const NAMESPACE: u8 = 0x00;
    /// Identify Controller.
    pub const CONTROLLER: u8 = 0x01;
    /// Active Namespace ID list.
    pub const ACTIVE_NAMESPACES: u8 = 0x02;
    /// Namespace Identification Descriptor list.
    pub const NAMESPACE_DESCRIPTORS: u8 = 0x03;
    /// Identify Namespace of one I/O command set.
    pub const COMMAND_SET_NAMESPACE: u8 = 0x05;
    /// Identify Controller of one I/O command set.
    pub const COMMAND_SET_CONTROLLER: u8 = 0x06;
    /// Active Namespace ID list of one I/O command set.
    pub const COMMAND_SET_ACTIVE_NAMESPACES: u8 = 0x07;
    /// Identify Namespace, independent of the I/O command set.
    pub const INDEPENDENT_NAMESPACE: u8 = 0x08;
    /// Allocated Namespace ID list.
    pub const ALLOCATED_NAMESPACES: u8 = 0x10;
    /// Identify Namespace of an allocated namespace, NVM command set.
    pub const ALLOCATED_NAMESPACE: u8 = 0x11;
    /// Controllers that a namespace is attached to.
    pub const ATTACHED_CONTROLLERS: u8 = 0x12;
    /// Controllers of the subsystem.
    pub const CONTROLLERS: u8 = 0x13;
    /// Combinations of I/O command sets.
    pub const COMMAND_SETS: u8 = 0x1C;
}

/// Command Set Identifier (CSI) of the NVM command set.
pub const CSI_NVM: u8 = 0;

/// Identify Controller.
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct IdentifyController {
    /// PCI Vendor ID (VID); 0 in Fabrics.
    pub vendor_id: U16,
    /// PCI Subsystem Vendor ID (SSVID).
    pub subsystem_vendor_id: U16,
    /// Serial Number (SN), ASCII padded with blanks.
    pub serial: [u8; 20],
    /// Model Number (MN), ASCII padded with blanks.
    pub model: [u8; 40],
    /// Firmware Revision (FR), ASCII padded with blanks.
    pub firmware: [u8; 8],
    /// Recommended Arbitration Burst (RAB), log2 of commands.
    pub arbitration_burst: u8,
    /// IEEE OUI Identifier (IEEE).
    pub ieee_oui: [u8; 3],
    /// Controller Multi-Path I/O and Namespace Sharing Capabilities (CMIC): several ports in bit 0,
    /// several controllers in bit 1, ANA reporting in bit 3.
    pub multipath: u8,
    /// Maximum Data Transfer Size (MDTS), log2 of units of the smallest page; 0 is no limit.
    pub mdts: u8,
    /// Controller ID (CNTLID).
    pub controller_id: U16,
    /// Version (VER), as the VS property.
    pub version: U32,
    /// RTD3 Resume Latency (RTD3R), microseconds; 0 is not reported.
    pub rtd3_resume_us: U32,
    /// RTD3 Entry Latency (RTD3E), microseconds; 0 is not reported.
    pub rtd3_entry_us: U32,
    /// Optional Asynchronous Events Supported (OAES), bits as in Asynchronous Event Configuration.
    pub events: U32,
    /// Controller Attributes (CTRATT): 128-bit host identifiers in bit 0, traffic based keep alive
    /// in bit 6.
    pub attributes: U32,
    reserved1: [u8; 11],
    /// Controller Type (CNTRLTYPE): 1 I/O, 2 discovery.
    pub controller_type: u8,
    /// FRU Globally Unique Identifier (FGUID).
    pub fru_guid: [u8; 16],
    /// Command Retry Delay Times (CRDT1 to CRDT3), units of 100 ms.
    pub retry_delays: [U16; 3],
    reserved2: [u8; 122],
    /// Optional Admin Command Support (OACS).
    pub admin_commands: U16,
    /// Abort Command Limit (ACL), 0's based.
    pub aborts_max_minus_1: u8,
    /// Asynchronous Event Request Limit (AERL), 0's based.
    pub event_requests_max_minus_1: u8,
    /// Firmware Updates (FRMW): slot 1 read-only in bit 0, slots in bits 3:1.
    pub firmware_updates: u8,
    /// Log Page Attributes (LPA): commands supported and effects in bit 1, offsets in bit 2.
    pub log_attributes: u8,
    /// Error Log Page Entries (ELPE), 0's based.
    pub error_entries_minus_1: u8,
    /// Number of Power States Support (NPSS), 0's based.
    pub power_states_minus_1: u8,
    /// Admin Vendor Specific Command Configuration (AVSCC).
    pub vendor_admin_commands: u8,
    /// Autonomous Power State Transition Attributes (APSTA).
    pub autonomous_power: u8,
    /// Warning Composite Temperature Threshold (WCTEMP), kelvin; 0 is not reported.
    pub warning_temperature_k: U16,
    /// Critical Composite Temperature Threshold (CCTEMP), kelvin; 0 is not reported.
    pub critical_temperature_k: U16,
    /// Maximum Time for Firmware Activation (MTFA), units of 100 ms.
    pub firmware_activation_time: U16,
    /// Host Memory Buffer Preferred and Minimum Size (HMPRE, HMMIN).
    pub host_memory_buffer: [U32; 2],
    /// Total NVM Capacity (TNVMCAP), bytes.
    pub total_capacity_bytes: [U64; 2],
    /// Unallocated NVM Capacity (UNVMCAP), bytes.
    pub unallocated_capacity_bytes: [U64; 2],
    /// Replay Protected Memory Block Support (RPMBS).
    pub replay_protected_memory: U32,
    /// Extended Device Self-test Time (EDSTT), minutes.
    pub self_test_minutes: U16,
    /// Device Self-test Options (DSTO).
    pub self_test_options: u8,
    /// Firmware Update Granularity (FWUG).
    pub firmware_granularity: u8,
    /// Keep Alive Support (KAS), units of 100 ms; 0 is none.
    pub keep_alive_granularity: U16,
    /// Host Controlled Thermal Management (HCTMA, MNTMT, MXTMT).
    pub thermal_management: [U16; 3],
    /// Sanitize Capabilities (SANICAP).
    pub sanitize: U32,
    reserved3: [u8; 10],
    /// ANA Transition Time (ANATT), seconds.
    pub ana_transition_s: u8,
    /// ANA Capabilities (ANACAP): states reported in bits 4:0, group IDs do not change in bit 6.
    pub ana_capabilities: u8,
    /// ANA Group Identifier Maximum (ANAGRPMAX).
    pub ana_group_max: U32,
    /// Number of ANA Group Identifiers (NANAGRPID).
    pub ana_groups: U32,
    reserved4: [u8; 160],
    /// Submission Queue Entry Size (SQES): log2, required in bits 3:0, maximum in bits 7:4.
    pub sq_entry_shifts: u8,
    /// Completion Queue Entry Size (CQES): log2, required in bits 3:0, maximum in bits 7:4.
    pub cq_entry_shifts: u8,
    /// Maximum Outstanding Commands (MAXCMD) of a queue.
    pub commands_max: U16,
    /// Number of Namespaces (NN): the largest NSID.
    pub namespaces: U32,
    /// Optional NVM Command Support (ONCS).
    pub nvm_commands: U16,
    /// Fused Operation Support (FUSES): compare-and-write in bit 0.
    pub fused: U16,
    /// Format NVM Attributes (FNA).
    pub format_attributes: u8,
    /// Volatile Write Cache (VWC): present in bit 0; whether Flush takes the broadcast NSID in bits
    /// 2:1.
    pub volatile_write_cache: u8,
    /// Atomic Write Unit Normal (AWUN), blocks, 0's based.
    pub atomic_write_blocks_minus_1: U16,
    /// Atomic Write Unit Power Fail (AWUPF), blocks, 0's based.
    pub atomic_write_power_fail_blocks_minus_1: U16,
    /// I/O Command Set Vendor Specific Command Configuration (ICSVSCC).
    pub vendor_io_commands: u8,
    /// Namespace Write Protection Capabilities (NWPC).
    pub write_protection: u8,
    /// Atomic Compare & Write Unit (ACWU), blocks, 0's based.
    pub atomic_compare_write_blocks_minus_1: U16,
    /// Optional Copy Formats Supported (OCFS): format 0 in bit 0.
    pub copy_formats: U16,
    /// SGL Support (SGLS): supported in bits 1:0, offsets in bit 20, transport data blocks in bit
    /// 21.
    pub sgls: U32,
    /// Maximum Number of Allowed Namespaces (MNAN).
    pub namespaces_max: U32,
    reserved5: [u8; 224],
    /// NVM Subsystem NVMe Qualified Name (SUBNQN).
    pub subsystem_nqn: NqnField,
    reserved6: [u8; 768],
    /// I/O Queue Command Capsule Supported Size (IOCCSZ), units of 16 bytes.
    pub command_capsule_units: U32,
    /// I/O Queue Response Capsule Supported Size (IORCSZ), units of 16 bytes.
    pub response_capsule_units: U32,
    /// In Capsule Data Offset (ICDOFF), units of 16 bytes.
    pub in_capsule_data_offset_units: U16,
    /// Fabrics Controller Attributes (FCATT): static model in bit 0.
    pub fabrics_attributes: u8,
    /// Maximum SGL Data Block Descriptors (MSDBD); 0 is no limit.
    pub sgl_descriptors_max: u8,
    /// Optional Fabrics Commands Support (OFCS): Disconnect in bit 0.
    pub fabrics_commands: U16,
    /// Discovery Controller Type (DCTYPE): 1 direct.
    pub discovery_type: u8,
    reserved7: [u8; 241],
    /// Power State Descriptors (PSD0 to PSD31).
    pub power_states: [PowerState; 32],
    /// Vendor specific.
    pub vendor: [u8; 1024],
}

const _: () = assert!(size_of::<IdentifyController>() == DATA_BYTES);
const _: () = assert!(std::mem::offset_of!(IdentifyController, controller_type) == 111);
const _: () = assert!(std::mem::offset_of!(IdentifyController, admin_commands) == 256);
const _: () = assert!(std::mem::offset_of!(IdentifyController, keep_alive_granularity) == 320);
const _: () = assert!(std::mem::offset_of!(IdentifyController, ana_transition_s) == 342);
const _: () = assert!(std::mem::offset_of!(IdentifyController, sq_entry_shifts) == 512);
const _: () = assert!(std::mem::offset_of!(IdentifyController, sgls) == 536);
const _: () = assert!(std::mem::offset_of!(IdentifyController, subsystem_nqn) == 768);
const _: () = assert!(std::mem::offset_of!(IdentifyController, command_capsule_units) == 1792);
const _: () = assert!(std::mem::offset_of!(IdentifyController, power_states) == 2048);

/// Bits of [`IdentifyController::sgls`] (SGLS).
pub mod sgls {
    /// Keyed SGL Data Block descriptors.
    pub const KEYED: u32 = 1 << 2;
    /// An offset as the address of a descriptor: data inside of capsules.
    pub const OFFSETS: u32 = 1 << 20;
}

/// Bits of [`IdentifyController::nvm_commands`] (ONCS).
pub mod oncs {
    /// Compare.
    pub const COMPARE: u16 = 1 << 0;
    /// Dataset Management.
    pub const DATASET_MANAGEMENT: u16 = 1 << 2;
    /// Write Zeroes.
    pub const WRITE_ZEROES: u16 = 1 << 3;
    /// Save and Select fields of Set and Get Features.
    pub const SAVE_SELECT: u16 = 1 << 4;
    /// Reservations.
    pub const RESERVATIONS: u16 = 1 << 5;
    /// Timestamp feature.
    pub const TIMESTAMP: u16 = 1 << 6;
    /// Verify.
    pub const VERIFY: u16 = 1 << 7;
    /// Copy.
    pub const COPY: u16 = 1 << 8;
}

/// A Power State Descriptor.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct PowerState {
    /// Maximum Power (MP), in hundredths of a watt unless flagged otherwise.
    pub power_max: U16,
    reserved1: u8,
    /// Max Power Scale in bit 0, Non-Operational State in bit 1.
    pub flags: u8,
    /// Entry Latency (ENLAT), microseconds.
    pub entry_latency_us: U32,
    /// Exit Latency (EXLAT), microseconds.
    pub exit_latency_us: U32,
    /// Relative throughputs and latencies (RRT, RRL, RWT, RWL).
    pub relative: [u8; 4],
    /// Idle and active power.
    pub power: [u8; 16],
}

const _: () = assert!(size_of::<PowerState>() == 32);

/// Identify Namespace of the NVM command set.
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct IdentifyNamespace {
    /// Namespace Size (NSZE), blocks.
    pub size_blocks: U64,
    /// Namespace Capacity (NCAP), blocks.
    pub capacity_blocks: U64,
    /// Namespace Utilization (NUSE), blocks.
    pub used_blocks: U64,
    /// Namespace Features (NSFEAT): thin provisioning in bit 0, identifiers never reused in bit 3.
    pub features: u8,
    /// Number of LBA Formats (NLBAF), 0's based.
    pub formats_minus_1: u8,
    /// Formatted LBA Size (FLBAS): index of the format in bits 3:0.
    pub format: u8,
    /// Metadata Capabilities (MC).
    pub metadata: u8,
    /// End-to-end Data Protection Capabilities (DPC).
    pub protection: u8,
    /// End-to-end Data Protection Type Settings (DPS).
    pub protection_type: u8,
    /// Namespace Multi-path I/O and Namespace Sharing Capabilities (NMIC): shared in bit 0.
    pub sharing: u8,
    /// Reservation Capabilities (RESCAP).
    pub reservations: u8,
    /// Format Progress Indicator (FPI).
    pub format_progress: u8,
    /// Deallocate Logical Block Features (DLFEAT): what deallocated blocks read as in bits 2:0 (1
    /// is zeros), Write Zeroes may deallocate in bit 3.
    pub deallocate: u8,
    /// Namespace Atomic Write Unit Normal, Power Fail, Compare & Write (NAWUN, NAWUPF, NACWU).
    pub atomic_units: [U16; 3],
    /// Namespace Atomic Boundary Size Normal, Offset, Size Power Fail (NABSN, NABO, NABSPF).
    pub atomic_boundaries: [U16; 3],
    /// Namespace Optimal I/O Boundary (NOIOB), blocks; 0 is none.
    pub optimal_boundary_blocks: U16,
    /// NVM Capacity (NVMCAP), bytes.
    pub capacity_bytes: [U64; 2],
    /// Preferred granularities and alignments (NPWG, NPWA, NPDG, NPDA, NOWS), blocks, 0's based.
    pub preferred: [U16; 5],
    /// Maximum Single Source Range Length (MSSRL) of Copy, blocks.
    pub copy_range_blocks_max: U16,
    /// Maximum Copy Length (MCL), blocks.
    pub copy_blocks_max: U32,
    /// Maximum Source Range Count (MSRC), 0's based.
    pub copy_ranges_max_minus_1: u8,
    reserved1: [u8; 11],
    /// ANA Group Identifier (ANAGRPID).
    pub ana_group: U32,
    reserved2: [u8; 3],
    /// Namespace Attributes (NSATTR): write protected in bit 0.
    pub attributes: u8,
    /// NVM Set Identifier (NVMSETID).
    pub nvm_set: U16,
    /// Endurance Group Identifier (ENDGID).
    pub endurance_group: U16,
    /// Namespace Globally Unique Identifier (NGUID).
    pub nguid: [u8; 16],
    /// IEEE Extended Unique Identifier (EUI64).
    pub eui64: [u8; 8],
    /// LBA Formats (LBAF0 to LBAF63).
    pub formats: [LbaFormat; 64],
    reserved3: [u8; 8],
    /// Vendor specific.
    pub vendor: [u8; 3704],
}

const _: () = assert!(size_of::<IdentifyNamespace>() == DATA_BYTES);
const _: () = assert!(std::mem::offset_of!(IdentifyNamespace, capacity_bytes) == 48);
const _: () = assert!(std::mem::offset_of!(IdentifyNamespace, copy_range_blocks_max) == 74);
const _: () = assert!(std::mem::offset_of!(IdentifyNamespace, ana_group) == 92);
const _: () = assert!(std::mem::offset_of!(IdentifyNamespace, nguid) == 104);
const _: () = assert!(std::mem::offset_of!(IdentifyNamespace, formats) == 128);

impl IdentifyNamespace {
    /// The LBA format in use.
    pub fn current_format(&self) -> LbaFormat {
        self.formats[usize::from(self.format & 0xF)]
    }
}

/// An LBA Format (LBAF).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct LbaFormat {
    /// Metadata Size (MS), bytes.
    pub metadata_bytes: U16,
    /// LBA Data Size (LBADS), log2 of bytes.
    pub data_shift: u8,
    /// Relative Performance (RP): 0 is best.
    pub relative_performance: u8,
}

const _: () = assert!(size_of::<LbaFormat>() == 4);

/// Identify Controller of the NVM command set.
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct IdentifyNvmController {
    /// Verify Size Limit (VSL), log2 of units of the smallest page; 0 is no limit.
    pub verify_max_shift: u8,
    /// Write Zeroes Size Limit (WZSL), likewise.
    pub write_zeroes_max_shift: u8,
    /// Write Uncorrectable Size Limit (WUSL), likewise.
    pub write_uncorrectable_max_shift: u8,
    /// Dataset Management Ranges Limit (DMRL); 0 is no limit.
    pub dataset_ranges_max: u8,
    /// Dataset Management Range Size Limit (DMRSL), blocks; 0 is no limit.
    pub dataset_range_blocks_max: U32,
    /// Dataset Management Size Limit (DMSL), blocks; 0 is no limit.
    pub dataset_blocks_max: U64,
    reserved1: [u8; 4080],
}

const _: () = assert!(size_of::<IdentifyNvmController>() == DATA_BYTES);

/// Identify Namespace, independent of the I/O command set.
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct IdentifyIndependentNamespace {
    /// As [`IdentifyNamespace::features`].
    pub features: u8,
    /// As [`IdentifyNamespace::sharing`].
    pub sharing: u8,
    /// As [`IdentifyNamespace::reservations`].
    pub reservations: u8,
    /// As [`IdentifyNamespace::format_progress`].
    pub format_progress: u8,
    /// ANA Group Identifier (ANAGRPID).
    pub ana_group: U32,
    /// As [`IdentifyNamespace::attributes`].
    pub attributes: u8,
    reserved1: u8,
    /// NVM Set Identifier (NVMSETID).
    pub nvm_set: U16,
    /// Endurance Group Identifier (ENDGID).
    pub endurance_group: U16,
    /// Namespace Status (NSTAT): ready in bit 0.
    pub status: u8,
    reserved2: [u8; 4081],
}

const _: () = assert!(size_of::<IdentifyIndependentNamespace>() == DATA_BYTES);

/// One Namespace Identification Descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamespaceDescriptor {
    /// IEEE Extended Unique Identifier (EUI64).
    Eui64([u8; 8]),
    /// Namespace Globally Unique Identifier (NGUID).
    Nguid([u8; 16]),
    /// Universally unique identifier (UUID).
    Uuid([u8; 16]),
    /// Command Set Identifier (CSI).
    CommandSet(u8),
}

impl NamespaceDescriptor {
    /// The list of `descriptors`, ended by zeros.
    pub fn list(descriptors: &[Self]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(DATA_BYTES);
        for descriptor in descriptors {
            let (kind, value): (u8, &[u8]) = match descriptor {
                Self::Eui64(id) => (1, id),
                Self::Nguid(id) => (2, id),
                Self::Uuid(id) => (3, id),
                Self::CommandSet(csi) => (4, std::slice::from_ref(csi)),
            };
            // Namespace Identifier Type (NIDT), Namespace Identifier Length (NIDL), two reserved
            // bytes.
            bytes.extend_from_slice(&[kind, value.len() as u8, 0, 0]);
            bytes.extend_from_slice(value);
        }
        bytes.resize(DATA_BYTES, 0);
        bytes
    }

    /// The descriptors of a list, except descriptors of unknown types or of wrong lengths.
    pub fn parse(list: &[u8]) -> Vec<Self> {
        let mut rest = list;
        let mut found = Vec::new();
        while let [kind, len_bytes, _, _, tail @ ..] = rest {
            let Some((value, next)) = tail.split_at_checked(usize::from(*len_bytes)) else {
                break;
            };
            found.extend(match kind {
                1 => value.try_into().ok().map(Self::Eui64),
                2 => value.try_into().ok().map(Self::Nguid),
                3 => value.try_into().ok().map(Self::Uuid),
                4 => value.first().copied().map(Self::CommandSet),
                _ => None,
            });
            rest = next;
        }
        found
    }
}

/// A Namespace ID list: up to 1024 identifiers in ascending order, ended by zeros.
pub fn namespace_list(nsids: impl Iterator<Item = Nsid>) -> Vec<u8> {
    let mut bytes: Vec<u8> = nsids
        .take(DATA_BYTES / 4)
        .flat_map(|nsid| nsid.0.to_le_bytes())
        .collect();
    bytes.resize(DATA_BYTES, 0);
    bytes
}

/// The identifiers of a Namespace ID list.
pub fn parse_namespace_list(list: &[u8]) -> impl Iterator<Item = Nsid> {
    list.chunks_exact(4)
        .map(|id| Nsid(u32::from_le_bytes([id[0], id[1], id[2], id[3]])))
        .take_while(|&nsid| nsid != Nsid::NONE)
}

/// A Controller List: up to 2047 identifiers in ascending order, their number first.
pub fn controller_list(ids: impl Iterator<Item = u16>) -> Vec<u8> {
    const ENTRIES_MAX: usize = 2047;
    let ids: Vec<u16> = ids.take(ENTRIES_MAX).collect();
    let mut bytes = Vec::with_capacity(DATA_BYTES);
    bytes.extend_from_slice(&(ids.len() as u16).to_le_bytes());
    bytes.extend(ids.into_iter().flat_map(u16::to_le_bytes));
    bytes.resize(DATA_BYTES, 0);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::FromZeros;

    #[test]
    fn golden_controller_both_ways() {
        let mut id = IdentifyController::new_zeroed();
        id.serial.copy_from_slice(b"0123456789          ");
        id.mdts = 8;
        id.controller_id = U16::new(0x0102);
        id.version = U32::new(0x0002_0000);
        id.controller_type = 1;
        id.keep_alive_granularity = U16::new(10);
        id.sq_entry_shifts = 0x66;
        id.cq_entry_shifts = 0x44;
        id.namespaces = U32::new(1024);
        id.nvm_commands = U16::new(oncs::COMPARE | oncs::COPY);
        id.subsystem_nqn = NqnField::new("nqn.x").expect("fits");
        id.command_capsule_units = U32::new(516);
        id.power_states[0].power_max = U16::new(0x9C4);
        let bytes = id.as_bytes();
        assert_eq!(&bytes[4..14], b"0123456789");
        assert_eq!(bytes[77], 8);
        assert_eq!(bytes[78..84], [0x02, 0x01, 0x00, 0x00, 0x02, 0x00]);
        assert_eq!(bytes[111], 1);
        assert_eq!(bytes[320..322], [10, 0]);
        assert_eq!(bytes[512..514], [0x66, 0x44]);
        assert_eq!(bytes[516..522], [0, 4, 0, 0, 0x01, 0x01]);
        assert_eq!(&bytes[768..774], b"nqn.x\0");
        assert_eq!(bytes[1792..1796], [0x04, 0x02, 0, 0]);
        assert_eq!(bytes[2048..2050], [0xC4, 0x09]);
        assert_eq!(
            IdentifyController::read_from_bytes(bytes).expect("4096 bytes"),
            id
        );
    }

    #[test]
    fn golden_namespace_both_ways() {
        let mut id = IdentifyNamespace::new_zeroed();
        id.size_blocks = U64::new(0x1000);
        id.deallocate = 9;
        id.copy_blocks_max = U32::new(7);
        id.ana_group = U32::new(1);
        id.attributes = 1;
        id.nguid = [0xAA; 16];
        id.eui64 = [0xBB; 8];
        id.formats[0].data_shift = 12;
        let bytes = id.as_bytes();
        assert_eq!(bytes[..8], [0, 0x10, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[33], 9);
        assert_eq!(bytes[76], 7);
        assert_eq!(bytes[92], 1);
        assert_eq!(bytes[99], 1);
        assert_eq!(
            bytes[104..128],
            [[0xAA; 16].as_slice(), &[0xBB; 8]].concat()
        );
        assert_eq!(bytes[128..132], [0, 0, 12, 0]);
        let parsed = IdentifyNamespace::read_from_bytes(bytes).expect("4096 bytes");
        assert_eq!(parsed.current_format().data_shift, 12);
    }

    #[test]
    fn golden_descriptors_both_ways() {
        let descriptors = [
            NamespaceDescriptor::Eui64([1; 8]),
            NamespaceDescriptor::Uuid([3; 16]),
            NamespaceDescriptor::CommandSet(0),
        ];
        let list = NamespaceDescriptor::list(&descriptors);
        assert_eq!(list.len(), DATA_BYTES);
        assert_eq!(list[..12], [1, 8, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1]);
        assert_eq!(list[12..16], [3, 16, 0, 0]);
        assert_eq!(list[32..37], [4, 1, 0, 0, 0]);
        assert_eq!(NamespaceDescriptor::parse(&list), descriptors);
    }

    #[test]
    fn a_descriptor_longer_than_its_list_ends_it() {
        assert_eq!(NamespaceDescriptor::parse(&[3, 16, 0, 0, 1, 2]), []);
        assert_eq!(NamespaceDescriptor::parse(&[1, 3, 0, 0, 1, 2, 3]), []);
        assert_eq!(NamespaceDescriptor::parse(&[4, 0, 0, 0]), []);
    }

    #[test]
    fn lists_are_bounded_and_ended_by_zeros() {
        let list = namespace_list([Nsid(1), Nsid(0x0203)].into_iter());
        assert_eq!(list[..12], [1, 0, 0, 0, 3, 2, 0, 0, 0, 0, 0, 0]);
        assert_eq!(
            parse_namespace_list(&list).collect::<Vec<_>>(),
            [Nsid(1), Nsid(0x203)]
        );
        assert_eq!(namespace_list((1..=5000).map(Nsid)).len(), DATA_BYTES);
        let list = controller_list([1, 0x0203].into_iter());
        assert_eq!(list[..8], [2, 0, 1, 0, 3, 2, 0, 0]);
        let full = controller_list(1..=5000);
        assert_eq!((full.len(), &full[..2]), (DATA_BYTES, &[0xFF, 0x07][..]));
    }
}
