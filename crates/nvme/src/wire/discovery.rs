//! The Discovery log page.
//!
//! Read first: NVM Express Base 2.0, "Discovery Log Page".

use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::fabrics::NqnField;

/// The well-known name of the discovery subsystem.
pub const DISCOVERY_NQN: &str = "nqn.2014-08.org.nvmexpress.discovery";

/// The head of the Discovery log, 1024 bytes; [`DiscoveryEntry`]s follow.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct DiscoveryHeader {
    /// Generation Counter (GENCTR): changes whenever the log does.
    pub generation: U64,
    /// Number of Records (NUMREC).
    pub records: U64,
    /// Record Format (RECFMT): 0.
    pub record_format: U16,
    reserved1: [u8; 1006],
}

const _: () = assert!(size_of::<DiscoveryHeader>() == 1024);

impl DiscoveryHeader {
    /// A head.
    pub fn new(generation: u64, records: u64) -> Self {
        Self {
            generation: U64::new(generation),
            records: U64::new(records),
            record_format: U16::ZERO,
            reserved1: [0; 1006],
        }
    }
}

/// A Discovery Log Page Entry, 1024 bytes.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct DiscoveryEntry {
    /// Transport Type (TRTYPE): see [`TransportType`].
    pub transport: u8,
    /// Address Family (ADRFAM): see [`AddressFamily`].
    pub address_family: u8,
    /// Subsystem Type (SUBTYPE): see [`SubsystemType`].
    pub subsystem_type: u8,
    /// Transport Requirements (TREQ): secure channel in bits 1:0 (2 is not required), SQ flow
    /// control may be disabled in bit 2.
    pub requirements: u8,
    /// Port ID (PORTID).
    pub port: U16,
    /// Controller ID (CNTLID): FFFFh in the dynamic model.
    pub controller: U16,
    /// Admin Max SQ Size (ASQSZ), entries.
    pub admin_sq_entries_max: U16,
    /// Entry Flags (EFLAGS): duplicate information in bit 0, explicit persistent connections in bit
    /// 1.
    pub flags: U16,
    reserved1: [u8; 20],
    /// Transport Service Identifier (TRSVCID): the port number in decimal, ended by a zero byte.
    pub service: [u8; 32],
    reserved2: [u8; 192],
    /// NVM Subsystem Qualified Name (SUBNQN).
    pub subsystem_nqn: NqnField,
    /// Transport Address (TRADDR), ended by a zero byte.
    pub address: [u8; 256],
    /// Transport Specific Address Subtype (TSAS). TCP: Security Type (SECTYPE) in byte 0, 0 is
    /// none. RDMA: see [`RdmaAddress`].
    pub transport_specific: [u8; 256],
}

const _: () = assert!(size_of::<DiscoveryEntry>() == 1024);
const _: () = assert!(std::mem::offset_of!(DiscoveryEntry, service) == 32);
const _: () = assert!(std::mem::offset_of!(DiscoveryEntry, subsystem_nqn) == 256);
const _: () = assert!(std::mem::offset_of!(DiscoveryEntry, address) == 512);

impl DiscoveryEntry {
    /// [`Self::requirements`]: a secure channel is required.
    pub const SECURE_CHANNEL_REQUIRED: u8 = 0b01;
    /// [`Self::requirements`]: a secure channel is not required.
    pub const SECURE_CHANNEL_NOT_REQUIRED: u8 = 0b10;
    /// Security Type (SECTYPE) in byte 0 of [`Self::transport_specific`]: TLS 1.3.
    pub const SECURITY_TLS_1_3: u8 = 2;
    /// [`Self::requirements`]: nothing said about secure channels, SQ flow control may be disabled.
    pub const REQUIREMENTS: u8 = 0b100;
    /// [`Self::flags`]: the discovery subsystem takes explicit persistent connections.
    pub const FLAG_PERSISTENT: u16 = 0b10;

    /// The transport address, if it is UTF-8 and ended by a zero byte.
    pub fn address(&self) -> Option<&str> {
        text(&self.address)
    }

    /// The transport service, if it is UTF-8 and ended by a zero byte.
    pub fn service(&self) -> Option<&str> {
        text(&self.service)
    }
}

/// Transport Specific Address Subtype of RDMA, 10 bytes and zeros.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct RdmaAddress {
    /// RDMA QP Service Type (RDMA_QPTYPE): 1 is reliable connected.
    pub qp_type: u8,
    /// RDMA Provider Type (RDMA_PRTYPE): see [`RdmaProvider`].
    pub provider: u8,
    /// RDMA Connection Management Service (RDMA_CMS): 1 is rdma_cm.
    pub connection_management: u8,
    reserved1: [u8; 5],
    /// Partition Key (RDMA_PKEY), for addresses of InfiniBand only.
    pub partition_key: U16,
    reserved2: [u8; 246],
}

const _: () = assert!(size_of::<RdmaAddress>() == 256);
const _: () = assert!(std::mem::offset_of!(RdmaAddress, partition_key) == 8);

impl RdmaAddress {
    /// Reliable connected queue pairs of a provider, made by rdma_cm.
    pub const fn connected(provider: RdmaProvider) -> Self {
        Self {
            qp_type: 1,
            provider: provider as u8,
            connection_management: 1,
            reserved1: [0; 5],
            partition_key: U16::ZERO,
            reserved2: [0; 246],
        }
    }
}

/// RDMA Provider Type (RDMA_PRTYPE): what carries RDMA. The specification knows RoCE (3) and iWARP
/// (5), too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum RdmaProvider {
    /// Not stated.
    NotSpecified = 1,
    /// InfiniBand.
    InfiniBand = 2,
    /// RoCEv2.
    RoceV2 = 4,
}

/// `text` in a field of `LEN` bytes, ended by a zero byte; cut if it is longer.
pub fn text_field<const LEN: usize>(text: &str) -> [u8; LEN] {
    let mut field = [0; LEN];
    let len = text.len().min(LEN - 1);
    field[..len].copy_from_slice(&text.as_bytes()[..len]);
    field
}

fn text(field: &[u8]) -> Option<&str> {
    // Some targets pad with blanks instead.
    let len = field.iter().position(|&b| b == 0).unwrap_or(field.len());
    std::str::from_utf8(&field[..len]).ok().map(str::trim_end)
}

/// Transport Type (TRTYPE).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum TransportType {
    /// RDMA.
    Rdma = 1,
    /// TCP.
    Tcp = 3,
}

/// Address Family (ADRFAM).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum AddressFamily {
    /// IPv4.
    Ipv4 = 1,
    /// IPv6.
    Ipv6 = 2,
}

/// Subsystem Type (SUBTYPE).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum SubsystemType {
    /// A referral to another discovery subsystem.
    Referral = 1,
    /// A subsystem with namespaces.
    Nvm = 2,
    /// The discovery subsystem that answers.
    Current = 3,
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::FromZeros;

    #[test]
    fn golden_entry_both_ways() {
        let mut entry = DiscoveryEntry::new_zeroed();
        entry.transport = TransportType::Tcp as u8;
        entry.address_family = AddressFamily::Ipv4 as u8;
        entry.subsystem_type = SubsystemType::Nvm as u8;
        entry.requirements = DiscoveryEntry::REQUIREMENTS;
        entry.port = U16::new(1);
        entry.controller = U16::new(0xFFFF);
        entry.admin_sq_entries_max = U16::new(128);
        entry.service = text_field("4420");
        entry.address = text_field("192.0.2.1");
        entry.subsystem_nqn = NqnField::new("nvmet-rd0").expect("fits");
        let bytes = entry.as_bytes();
        assert_eq!(bytes[..12], [3, 1, 2, 4, 1, 0, 0xFF, 0xFF, 0x80, 0, 0, 0]);
        assert_eq!(&bytes[32..37], b"4420\0");
        assert_eq!(&bytes[256..266], b"nvmet-rd0\0");
        assert_eq!(&bytes[512..522], b"192.0.2.1\0");
        let parsed = DiscoveryEntry::read_from_bytes(bytes).expect("1024 bytes");
        assert_eq!(parsed, entry);
        assert_eq!(
            (parsed.address(), parsed.service()),
            (Some("192.0.2.1"), Some("4420"))
        );
    }

    #[test]
    fn golden_header_both_ways() {
        let header = DiscoveryHeader::new(7, 2);
        assert_eq!(
            header.as_bytes()[..18],
            [7, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0]
        );
        assert_eq!(
            DiscoveryHeader::read_from_bytes(header.as_bytes()).expect("1024"),
            header
        );
    }

    #[test]
    fn an_address_padded_with_blanks_is_read() {
        let mut entry = DiscoveryEntry::new_zeroed();
        entry.service = *b"4420                            ";
        assert_eq!(entry.service(), Some("4420"));
    }
}
