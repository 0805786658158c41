//! The invariant CRC (ICRC): CRC-32 over what no router changes, from the IP addresses to the pad.
//!
//! Read first: annex A17, "invariant CRC".
//!
//! A receiver on a UDP socket does not learn the identification field of an IPv4 header, which the
//! ICRC covers. CRC-32 is linear, so the difference between the received sum and the sum for
//! identification 0 is the image of the two missing bytes: [`verify`] runs that difference
//! backwards through everything that follows the field, and accepts it if only those two bytes are
//! left. That checks the packet with 16 bits instead of 32.

use std::net::{Ipv4Addr, Ipv6Addr};

use crc32fast::Hasher;
use zerocopy::big_endian::U16;
use zerocopy::{Immutable, IntoBytes, Unaligned};

use super::{Bth, ICRC_LEN_BYTES, Packet};
use crate::Flow;

/// What a receiver knows about the identification field of an IPv4 header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ipv4Identification {
    /// The field.
    Known(u16),
    /// The most likely value, from the packet's place in a run. It is not known for certain.
    Likely(u16),
    /// The field is unknown.
    Unknown,
}

/// A running ICRC of a packet that is being built or checked.
#[derive(Clone, Debug)]
pub struct Icrc(Hasher);

/// The network headers of a packet, as the ICRC covers them.
#[derive(Clone, Copy, Debug)]
pub struct IpHeader {
    flow: Flow,
    identification: u16,
}

impl IpHeader {
    /// The headers of a packet of `flow`; `identification` is used for IPv4 only.
    pub const fn new(flow: Flow, identification: u16) -> Self {
        Self {
            flow,
            identification,
        }
    }
}

impl Icrc {
    /// The sum over the network headers of a packet whose UDP payload, ICRC included, has
    /// `udp_payload_len_bytes`.
    pub fn begin(ip: &IpHeader, udp_payload_len_bytes: u16) -> Self {
        let mut hasher = Hasher::new_with_initial(SEED);
        let udp_len = udp_payload_len_bytes.saturating_add(UDP_HEADER_LEN_BYTES);
        let udp = |source: u16, dest: u16| UdpMasked {
            source_port: U16::new(source),
            dest_port: U16::new(dest),
            len: U16::new(udp_len),
            checksum: U16::MAX_VALUE,
        };
        match ip.flow {
            Flow::V4 { local, remote } => {
                let source = *local.ip();
                let masked = ipv4_masked(udp_len, ip.identification, source, *remote.ip());
                hasher.update(&masked);
                hasher.update(udp(local.port(), remote.port()).as_bytes());
            }
            Flow::V6 { local, remote } => {
                hasher.update(&ipv6_masked(udp_len, *local.ip(), *remote.ip()));
                hasher.update(udp(local.port(), remote.port()).as_bytes());
            }
        }
        Self(hasher)
    }

    /// Adds the base transport header.
    pub fn update_bth(&mut self, bth: &Bth) {
        let masked = Bth {
            congestion: 0xFF,
            ..*bth
        };
        self.0.update(masked.as_bytes());
    }

    /// Adds the next bytes: extended headers, payload, pad.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The field as it is sent: little-endian.
    pub fn to_wire(self) -> [u8; ICRC_LEN_BYTES] {
        self.0.finalize().to_le_bytes()
    }
}

/// Whether the ICRC of `datagram` (a UDP payload that arrived on `flow`, seen from its sender) is
/// right.
pub fn verify(flow: Flow, identification: Ipv4Identification, datagram: &[u8]) -> bool {
    let Some((body, sum)) = datagram.split_last_chunk::<ICRC_LEN_BYTES>() else {
        return false;
    };
    if datagram.len() > Packet::LEN_MAX_BYTES || body.len() < size_of::<Bth>() {
        return false;
    }
    let assumed = match identification {
        Ipv4Identification::Known(identification) | Ipv4Identification::Likely(identification) => {
            identification
        }
        Ipv4Identification::Unknown => 0,
    };
    let mut icrc = Icrc::begin(&IpHeader::new(flow, assumed), datagram.len() as u16);
    let mut masked = [0; size_of::<Bth>()];
    masked.copy_from_slice(&body[..size_of::<Bth>()]);
    masked[std::mem::offset_of!(Bth, congestion)] = 0xFF;
    icrc.update(&masked);
    icrc.update(&body[size_of::<Bth>()..]);
    let difference = icrc.0.finalize() ^ u32::from_le_bytes(*sum);
    if difference == 0 {
        return true;
    }
    match (flow, identification) {
        (Flow::V4 { .. }, Ipv4Identification::Unknown | Ipv4Identification::Likely(_)) => {
            let since_field = BYTES_SINCE_IDENTIFICATION + body.len();
            unwind(difference, since_field) >> 16 == 0
        }
        _ => false,
    }
}

/// The register difference `bytes` bytes earlier that became `difference`, where both inputs were
/// alike since then.
fn unwind(difference: u32, bytes: usize) -> u32 {
    let near = multiply(difference, UNWIND_BYTES[bytes % UNWIND_STRIDE]);
    multiply(near, UNWIND_STRIDES[bytes / UNWIND_STRIDE])
}

/// The product of two residues modulo the CRC's polynomial. Reflected: bit 31 is the coefficient of
/// x^0.
const fn multiply(a: u32, mut b: u32) -> u32 {
    let mut product = 0;
    let mut bit = 32;
    while bit > 0 {
        bit -= 1;
        product ^= b & (a >> bit & 1).wrapping_neg();
        b = (b >> 1) ^ (POLYNOMIAL & (b & 1).wrapping_neg());
    }
    product
}

/// `count` powers of `base`, from its 0th on.
const fn powers<const COUNT: usize>(base: u32) -> [u32; COUNT] {
    let mut powers = [ONE; COUNT];
    let mut index = 1;
    while index < COUNT {
        powers[index] = multiply(powers[index - 1], base);
        index += 1;
    }
    powers
}

/// x^-8: the inverse of taking in a byte of zeros.
const fn byte_backwards() -> u32 {
    let mut residue = ONE;
    let mut bit = 0;
    while bit < 8 {
        residue = if residue & ONE == 0 {
            residue << 1
        } else {
            (residue ^ POLYNOMIAL) << 1 | 1
        };
        bit += 1;
    }
    residue
}

/// The residue 1, reflected.
const ONE: u32 = 1 << 31;
/// CRC-32's polynomial, reflected.
const POLYNOMIAL: u32 = 0xEDB8_8320;
const UNWIND_STRIDE: usize = 64;
/// x^(-8 i).
const UNWIND_BYTES: [u32; UNWIND_STRIDE] = powers(byte_backwards());
/// x^(-8 · 64 i), enough for the longest packet.
const UNWIND_STRIDES: [u32; Packet::LEN_MAX_BYTES / UNWIND_STRIDE + 2] =
    powers(multiply(UNWIND_BYTES[UNWIND_STRIDE - 1], byte_backwards()));

/// The CRC of the 8 bytes 0xFF in place of the local route header.
const SEED: u32 = 0x2144_DF1C;
const UDP_HEADER_LEN_BYTES: u16 = 8;
const IPV4_HEADER_LEN_BYTES: u16 = 20;
/// The identification field, and all that follows it in an IPv4 header and the UDP header.
const BYTES_SINCE_IDENTIFICATION: usize = 2 + 14 + 8;
const DONT_FRAGMENT: u16 = 0x4000;
const PROTOCOL_UDP: u8 = 17;

/// An IPv4 header whose type of service, time to live and checksum are masked.
fn ipv4_masked(
    udp_len: u16,
    identification: u16,
    source: Ipv4Addr,
    dest: Ipv4Addr,
) -> [u8; IPV4_HEADER_LEN_BYTES as usize] {
    let mut bytes = [0xFF; IPV4_HEADER_LEN_BYTES as usize];
    bytes[0] = 0x45;
    let total_len = udp_len.saturating_add(IPV4_HEADER_LEN_BYTES);
    bytes[2..4].copy_from_slice(&total_len.to_be_bytes());
    bytes[4..6].copy_from_slice(&identification.to_be_bytes());
    bytes[6..8].copy_from_slice(&DONT_FRAGMENT.to_be_bytes());
    bytes[9] = PROTOCOL_UDP;
    bytes[12..16].copy_from_slice(&source.octets());
    bytes[16..].copy_from_slice(&dest.octets());
    bytes
}

/// An IPv6 header whose traffic class, flow label and hop limit are masked.
fn ipv6_masked(udp_len: u16, source: Ipv6Addr, dest: Ipv6Addr) -> [u8; 40] {
    let mut bytes = [0; 40];
    bytes[..4].copy_from_slice(&[0x6F, 0xFF, 0xFF, 0xFF]);
    bytes[4..6].copy_from_slice(&udp_len.to_be_bytes());
    bytes[6] = PROTOCOL_UDP;
    bytes[7] = 0xFF;
    bytes[8..24].copy_from_slice(&source.octets());
    bytes[24..].copy_from_slice(&dest.octets());
    bytes
}

/// A UDP header whose checksum is masked.
#[derive(IntoBytes, Immutable, Unaligned)]
#[repr(C)]
struct UdpMasked {
    source_port: U16,
    dest_port: U16,
    len: U16,
    checksum: U16,
}
