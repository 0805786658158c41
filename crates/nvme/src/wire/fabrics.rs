//! Fabrics commands: Connect and its data, properties, Disconnect.
//!
//! Read first: NVM Express Base 2.0, "Fabrics Command Set" and "Controller Properties".

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{Cid, Sgl, Sqe};

/// Fabrics Command Types (FCTYPE).
pub mod fctype {
    /// Property Set.
    pub const PROPERTY_SET: u8 = 0x00;
    /// Connect.
    pub const CONNECT: u8 = 0x01;
    /// Property Get.
    pub const PROPERTY_GET: u8 = 0x04;
    /// Authentication Send.
    pub const AUTHENTICATION_SEND: u8 = 0x05;
    /// Authentication Receive.
    pub const AUTHENTICATION_RECEIVE: u8 = 0x06;
    /// Disconnect.
    pub const DISCONNECT: u8 = 0x08;
}

/// The Connect command, 64 bytes.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct ConnectSqe {
    /// Opcode: [`Sqe::OPCODE_FABRICS`].
    pub opcode: u8,
    /// As in [`Sqe::flags`].
    pub flags: u8,
    /// Command Identifier (CID).
    pub cid: U16,
    /// Fabrics Command Type (FCTYPE): [`fctype::CONNECT`].
    pub fctype: u8,
    reserved1: [u8; 19],
    /// Where [`ConnectData`] is.
    pub sgl1: Sgl,
    /// Record Format (RECFMT): 0.
    pub record_format: U16,
    /// Queue ID (QID): 0 is the admin queue.
    pub queue_id: U16,
    /// Submission Queue Size (SQSIZE), 0's based.
    pub sq_size_minus_1: U16,
    /// Connect Attributes (CATTR): priority class in bits 1:0, disable SQ flow control in bit 2,
    /// individual I/O queue deletion in bit 3.
    pub attributes: u8,
    reserved2: u8,
    /// Keep Alive Timeout (KATO) in milliseconds; 0 is none. Admin queue only.
    pub keep_alive_timeout_ms: U32,
    reserved3: [u8; 12],
}

const _: () = assert!(size_of::<ConnectSqe>() == 64);
const _: () = assert!(std::mem::offset_of!(ConnectSqe, sgl1) == 24);
const _: () = assert!(std::mem::offset_of!(ConnectSqe, record_format) == 40);
const _: () = assert!(std::mem::offset_of!(ConnectSqe, keep_alive_timeout_ms) == 48);

impl ConnectSqe {
    /// The only record format.
    pub const RECORD_FORMAT: u16 = 0;
    /// [`Self::attributes`]: SQ flow control is disabled, SQHD is not kept.
    pub const ATTRIBUTE_NO_SQ_FLOW: u8 = 1 << 2;

    /// A Connect for queue `queue_id` of `sq_entries` entries, whose data follow in the capsule.
    pub fn new(cid: Cid, queue_id: u16, sq_entries: u16) -> Self {
        Self {
            opcode: Sqe::OPCODE_FABRICS,
            flags: 0x40,
            cid: U16::new(cid.0),
            fctype: fctype::CONNECT,
            reserved1: [0; 19],
            sgl1: Sgl::in_capsule(0, size_of::<ConnectData>() as u32),
            record_format: U16::new(Self::RECORD_FORMAT),
            queue_id: U16::new(queue_id),
            sq_size_minus_1: U16::new(sq_entries.saturating_sub(1)),
            attributes: 0,
            reserved2: 0,
            keep_alive_timeout_ms: U32::ZERO,
            reserved3: [0; 12],
        }
    }

    /// Entries of the submission queue, 1's based.
    pub fn sq_entries(&self) -> u32 {
        u32::from(self.sq_size_minus_1.get()) + 1
    }
}

/// The data of a Connect command, 1024 bytes.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct ConnectData {
    /// Host Identifier (HOSTID).
    pub host_id: [u8; 16],
    /// Controller ID (CNTLID): [`Self::CONTROLLER_ANY`] on the admin queue of the dynamic model; on
    /// I/O queues that of the admin queue's controller.
    pub controller_id: U16,
    reserved1: [u8; 238],
    /// NVM Subsystem NVMe Qualified Name (SUBNQN), ended by a zero byte.
    pub subsystem_nqn: NqnField,
    /// Host NVMe Qualified Name (HOSTNQN), ended by a zero byte.
    pub host_nqn: NqnField,
    reserved2: [u8; 256],
}

const _: () = assert!(size_of::<ConnectData>() == 1024);
const _: () = assert!(std::mem::offset_of!(ConnectData, controller_id) == 16);
const _: () = assert!(std::mem::offset_of!(ConnectData, subsystem_nqn) == 256);
const _: () = assert!(std::mem::offset_of!(ConnectData, host_nqn) == 512);

impl ConnectData {
    /// The subsystem chooses the controller.
    pub const CONTROLLER_ANY: u16 = 0xFFFF;

    /// The data of a host that requests a controller of `subsystem_nqn`.
    pub fn new(
        host_id: [u8; 16],
        controller_id: u16,
        subsystem_nqn: NqnField,
        host_nqn: NqnField,
    ) -> Self {
        Self {
            host_id,
            controller_id: U16::new(controller_id),
            reserved1: [0; 238],
            subsystem_nqn,
            host_nqn,
            reserved2: [0; 256],
        }
    }
}

/// A name in a field of 256 bytes: UTF-8, ended by a zero byte, the rest zero.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(transparent)]
pub struct NqnField([u8; 256]);

impl NqnField {
    /// The longest name, in bytes, without the zero byte that ends it.
    pub const NAME_MAX_BYTES: usize = 223;

    /// The field holding `name`, or `None` if it is longer than [`Self::NAME_MAX_BYTES`].
    pub fn new(name: &str) -> Option<Self> {
        if name.len() > Self::NAME_MAX_BYTES {
            return None;
        }
        let mut bytes = [0; 256];
        bytes[..name.len()].copy_from_slice(name.as_bytes());
        Some(Self(bytes))
    }

    /// The name; `None` if no zero byte ends it in time, it is empty, or not UTF-8.
    pub fn name(&self) -> Option<&str> {
        self.text().filter(|name| !name.is_empty())
    }

    /// The name, which may be empty; `None` if no zero byte ends it in time, or it is not UTF-8.
    pub fn text(&self) -> Option<&str> {
        let len = self.0[..=Self::NAME_MAX_BYTES]
            .iter()
            .position(|&b| b == 0)?;
        std::str::from_utf8(&self.0[..len]).ok()
    }
}

/// The invalid field of a Connect: DW0 of its completion with Connect Invalid Parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvalidParameter {
    /// In the command, at this byte.
    Command(u16),
    /// In the data, at this byte.
    Data(u16),
}

impl InvalidParameter {
    /// DW0: Invalid Parameter Offset (IPO) in bits 15:0, Invalid Attributes (IATTR) in bits 23:16.
    pub const fn dw0(self) -> u32 {
        match self {
            Self::Command(offset) => offset as u32,
            Self::Data(offset) => 1 << 16 | offset as u32,
        }
    }

    /// The invalid field that DW0 names.
    pub const fn from_dw0(dw0: u32) -> Self {
        if dw0 & 1 << 16 == 0 {
            Self::Command(dw0 as u16)
        } else {
            Self::Data(dw0 as u16)
        }
    }
}

/// Property Get and Property Set, 64 bytes.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct PropertySqe {
    /// Opcode: [`Sqe::OPCODE_FABRICS`].
    pub opcode: u8,
    /// As in [`Sqe::flags`].
    pub flags: u8,
    /// Command Identifier (CID).
    pub cid: U16,
    /// Fabrics Command Type (FCTYPE): [`fctype::PROPERTY_GET`] or [`fctype::PROPERTY_SET`].
    pub fctype: u8,
    reserved1: [u8; 35],
    /// Attributes (ATTRIB): the property's length in bits 2:0, 0 for 4 bytes, 1 for 8.
    pub attributes: u8,
    reserved2: [u8; 3],
    /// Offset (OFST) of the property.
    pub offset: U32,
    /// Value (VALUE), of Property Set only.
    pub value: U64,
    reserved3: [u8; 8],
}

const _: () = assert!(size_of::<PropertySqe>() == 64);
const _: () = assert!(std::mem::offset_of!(PropertySqe, attributes) == 40);
const _: () = assert!(std::mem::offset_of!(PropertySqe, value) == 48);

impl PropertySqe {
    fn new(cid: Cid, fctype: u8, property: Property, value: u64) -> Self {
        Self {
            opcode: Sqe::OPCODE_FABRICS,
            flags: 0x40,
            cid: U16::new(cid.0),
            fctype,
            reserved1: [0; 35],
            attributes: u8::from(property.len_bytes() == 8),
            reserved2: [0; 3],
            offset: U32::new(property.offset()),
            value: U64::new(value),
            reserved3: [0; 8],
        }
    }

    /// A Property Get.
    pub fn get(cid: Cid, property: Property) -> Self {
        Self::new(cid, fctype::PROPERTY_GET, property, 0)
    }

    /// A Property Set.
    pub fn set(cid: Cid, property: Property, value: u64) -> Self {
        Self::new(cid, fctype::PROPERTY_SET, property, value)
    }

    /// Length of the property in bytes: 4 or 8, `None` for the reserved values.
    pub fn len_bytes(&self) -> Option<u8> {
        match self.attributes & 0b111 {
            0 => Some(4),
            1 => Some(8),
            _ => None,
        }
    }
}

/// A controller property that exists in Fabrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Property {
    /// Controller Capabilities (CAP), 8 bytes.
    Capabilities,
    /// Version (VS), 4 bytes.
    Version,
    /// Controller Configuration (CC), 4 bytes.
    Configuration,
    /// Controller Status (CSTS), 4 bytes.
    Status,
    /// NVM Subsystem Reset (NSSR), 4 bytes.
    SubsystemReset,
}

impl Property {
    /// The property at `offset`.
    pub const fn from_offset(offset: u32) -> Option<Self> {
        match offset {
            0x00 => Some(Self::Capabilities),
            0x08 => Some(Self::Version),
            0x14 => Some(Self::Configuration),
            0x1C => Some(Self::Status),
            0x20 => Some(Self::SubsystemReset),
            _ => None,
        }
    }

    /// Its offset.
    pub const fn offset(self) -> u32 {
        match self {
            Self::Capabilities => 0x00,
            Self::Version => 0x08,
            Self::Configuration => 0x14,
            Self::Status => 0x1C,
            Self::SubsystemReset => 0x20,
        }
    }

    /// Its length in bytes.
    pub const fn len_bytes(self) -> u8 {
        match self {
            Self::Capabilities => 8,
            _ => 4,
        }
    }
}

/// Controller Capabilities (CAP).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities(pub u64);

impl Capabilities {
    /// CAP of a Fabrics controller with the NVM command set: queues of up to `queue_entries_max`,
    /// contiguous queues required, ready within `timeout_ms`, memory pages of 4 KiB only.
    pub const fn new(queue_entries_max: u32, timeout_ms: u32) -> Self {
        let mqes = (queue_entries_max - 1) as u64 & 0xFFFF;
        let contiguous_queues_required = 1 << 16;
        let timeout = (timeout_ms.div_ceil(500) as u64 & 0xFF) << 24;
        let nvm_command_set = 1 << 37;
        Self(mqes | contiguous_queues_required | timeout | nvm_command_set)
    }

    /// Maximum Queue Entries Supported (MQES), 1's based.
    pub const fn queue_entries_max(self) -> u32 {
        (self.0 & 0xFFFF) as u32 + 1
    }

    /// Timeout (TO): how long CSTS.RDY may take to follow CC.EN, in milliseconds.
    pub const fn timeout_ms(self) -> u32 {
        (self.0 >> 24 & 0xFF) as u32 * 500
    }
}

/// Controller Configuration (CC).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Configuration(pub u32);

impl Configuration {
    /// What a host writes to enable a controller with the NVM command set: SQ entries of 64 bytes,
    /// CQ entries of 16.
    pub const ENABLE_NVM: Self = Self(4 << 20 | 6 << 16 | 1);

    /// Enable (EN).
    pub const fn is_enabled(self) -> bool {
        self.0 & 1 != 0
    }

    /// I/O Command Set Selected (CSS), 3 bits: 0 is NVM.
    pub const fn command_set(self) -> u8 {
        (self.0 >> 4 & 0b111) as u8
    }

    /// Memory Page Size (MPS): log2 of the page size above 4 KiB.
    pub const fn page_shift(self) -> u8 {
        (self.0 >> 7 & 0xF) as u8
    }

    /// Arbitration Mechanism Selected (AMS): 0 is round robin.
    pub const fn arbitration(self) -> u8 {
        (self.0 >> 11 & 0b111) as u8
    }

    /// Shutdown Notification (SHN): 0 none, 1 normal, 2 abrupt.
    pub const fn shutdown(self) -> u8 {
        (self.0 >> 14 & 0b11) as u8
    }

    /// The same with this Shutdown Notification.
    #[must_use]
    pub const fn with_shutdown(self, notification: u8) -> Self {
        Self(self.0 & !(0b11 << 14) | (notification as u32 & 0b11) << 14)
    }

    /// I/O Submission Queue Entry Size (IOSQES), log2 of bytes.
    pub const fn sq_entry_shift(self) -> u8 {
        (self.0 >> 16 & 0xF) as u8
    }

    /// I/O Completion Queue Entry Size (IOCQES), log2 of bytes.
    pub const fn cq_entry_shift(self) -> u8 {
        (self.0 >> 20 & 0xF) as u8
    }
}

/// Controller Status (CSTS).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ControllerStatus(pub u32);

impl ControllerStatus {
    /// Ready (RDY).
    pub const READY: u32 = 1;
    /// Controller Fatal Status (CFS).
    pub const FATAL: u32 = 1 << 1;
    /// Shutdown Status (SHST): processing complete.
    pub const SHUTDOWN_COMPLETE: u32 = 0b10 << 2;

    /// Ready (RDY).
    pub const fn is_ready(self) -> bool {
        self.0 & Self::READY != 0
    }

    /// Controller Fatal Status (CFS).
    pub const fn is_fatal(self) -> bool {
        self.0 & Self::FATAL != 0
    }

    /// Shutdown Status (SHST) says that the shutdown is complete.
    pub const fn is_shutdown_complete(self) -> bool {
        self.0 >> 2 & 0b11 == 0b10
    }
}

/// The Version property (VS) of NVM Express 2.0.
pub const VERSION_2_0: u32 = 0x0002_0000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_connect_both_ways() {
        let mut sqe = ConnectSqe::new(Cid(0x0102), 3, 128);
        sqe.attributes = ConnectSqe::ATTRIBUTE_NO_SQ_FLOW;
        sqe.keep_alive_timeout_ms = U32::new(5000);
        let mut golden = [0; 64];
        golden[0] = 0x7F;
        golden[1] = 0x40;
        golden[2..4].copy_from_slice(&[0x02, 0x01]); // CID
        golden[4] = 0x01; // FCTYPE
        golden[32..36].copy_from_slice(&[0x00, 0x04, 0, 0]); // 1024 bytes
        golden[39] = 0x01; // in capsule
        golden[42] = 3; // QID
        golden[44] = 127; // SQSIZE
        golden[46] = 0x04; // CATTR
        golden[48..52].copy_from_slice(&[0x88, 0x13, 0, 0]); // KATO
        assert_eq!(sqe.as_bytes(), golden);
        let general: Sqe = zerocopy::transmute!(sqe);
        assert_eq!((general.opcode, general.fctype()), (0x7F, fctype::CONNECT));
        let parsed = ConnectSqe::read_from_bytes(&golden).expect("64 bytes");
        assert_eq!(parsed, sqe);
        assert_eq!(parsed.sq_entries(), 128);
    }

    #[test]
    fn golden_connect_data_both_ways() {
        let subsystem = NqnField::new("nqn.2014-08.org.nvmexpress.discovery").expect("fits");
        let host = NqnField::new("host").expect("fits");
        let data = ConnectData::new([7; 16], 0xFFFF, subsystem, host);
        let bytes = data.as_bytes();
        assert_eq!(bytes[..18], [&[7; 16][..], &[0xFF, 0xFF]].concat());
        assert_eq!(&bytes[256..292], b"nqn.2014-08.org.nvmexpress.discovery");
        assert_eq!(&bytes[512..517], b"host\0");
        let parsed = ConnectData::read_from_bytes(bytes).expect("1024 bytes");
        assert_eq!(parsed.host_nqn.name(), Some("host"));
    }

    #[test]
    fn names_end_by_a_zero_byte_within_224() {
        assert!(NqnField::new(&"n".repeat(224)).is_none());
        let longest = NqnField::new(&"n".repeat(223)).expect("fits");
        assert_eq!(longest.name().map(str::len), Some(223));
        assert_eq!(NqnField([b'n'; 256]).name(), None);
        assert_eq!(NqnField([0; 256]).name(), None);
        let mut not_utf8 = [0; 256];
        not_utf8[0] = 0xFF;
        assert_eq!(NqnField(not_utf8).name(), None);
    }

    #[test]
    fn golden_property_set_both_ways() {
        let sqe = PropertySqe::set(Cid(1), Property::Configuration, 0x0046_0001);
        let mut golden = [0; 64];
        golden[..5].copy_from_slice(&[0x7F, 0x40, 1, 0, 0]);
        golden[44] = 0x14; // OFST
        golden[48..52].copy_from_slice(&[0x01, 0x00, 0x46, 0x00]); // EN, IOSQES 6, IOCQES 4
        assert_eq!(sqe.as_bytes(), golden);
        let parsed = PropertySqe::read_from_bytes(&golden).expect("64 bytes");
        assert_eq!(parsed, sqe);
        assert_eq!(parsed.len_bytes(), Some(4));
        assert_eq!(
            PropertySqe::get(Cid(1), Property::Capabilities).len_bytes(),
            Some(8)
        );
        assert_eq!(Configuration::ENABLE_NVM.0, 0x0046_0001);
    }

    #[test]
    fn capabilities_keep_their_units() {
        let cap = Capabilities::new(1024, 7_500);
        assert_eq!(cap.0, 0x0000_0020_0F01_03FF);
        assert_eq!((cap.queue_entries_max(), cap.timeout_ms()), (1024, 7_500));
    }

    #[test]
    fn invalid_parameter_distinguishes_command_from_data() {
        assert_eq!(InvalidParameter::Data(256).dw0(), 0x1_0100);
        for place in [InvalidParameter::Data(512), InvalidParameter::Command(42)] {
            assert_eq!(InvalidParameter::from_dw0(place.dw0()), place);
        }
    }
}
