//! INQUIRY: standard data and vital product data pages.
//!
//! Read first: SPC-5, "INQUIRY command" and "Vital product data parameters"; SBC-4, its pages B0h
//! to B2h.

use block::{Geometry, HostPath, WriteCache};

use crate::access_state::shown_number;
use crate::identity::UnitIdentity;
use crate::medium;
use crate::sense::Sense;

/// T10 VENDOR IDENTIFICATION.
const VENDOR: &[u8; 8] = b"RAMPORT ";
/// PRODUCT IDENTIFICATION.
const PRODUCT: &[u8; 16] = b"RAM DISK        ";
/// PRODUCT REVISION LEVEL.
const REVISION: &[u8; 4] = b"0001";

/// VERSION DESCRIPTOR values: SAM-5, SPC-4, SBC-3, iSCSI. Initiators decide by these and by the
/// VERSION field. All of them know SPC-4 (6); the pages and opcodes show what SPC-5 adds.
const VERSION_DESCRIPTORS: [u16; 4] = [0x00A0, 0x0460, 0x04C0, 0x0960];

/// The transport of a target port: PROTOCOL IDENTIFIER.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum PortProtocol {
    /// SRP.
    Srp = 4,
    /// iSCSI.
    Iscsi = 5,
}

/// A target port as the pages show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetPort {
    /// RELATIVE TARGET PORT IDENTIFIER.
    pub relative_id: u16,
    /// Its transport.
    pub protocol: PortProtocol,
    /// The port's SCSI name; for iSCSI `name,t,0xTPGT`, for SRP `eui.` and its identifier.
    pub name: String,
    /// TARGET PORT GROUP.
    pub group: u16,
}

/// What the pages are made from.
pub(crate) struct Subject<'a> {
    pub(crate) identity: &'a UnitIdentity,
    pub(crate) geometry: Geometry,
    pub(crate) write_cache: WriteCache,
    /// The SCSI name of the target device; for iSCSI its name.
    pub(crate) device_name: &'a str,
    /// The port that the command came through.
    pub(crate) port: &'a TargetPort,
    pub(crate) ports: &'a [TargetPort],
    /// How hosts reach the volume.
    pub(crate) path: HostPath,
}

/// Standard INQUIRY data; `qualifier` 0 for a LUN that exists, 3 for one that does not.
pub(crate) fn standard(lun_exists: bool) -> Vec<u8> {
    let mut data = vec![0; 96];
    data[0] = if lun_exists { 0x00 } else { 0x7F };
    data[2] = 0x06;
    data[3] = 0x12; // HISUP, RESPONSE DATA FORMAT 2
    data[4] = (data.len() - 5) as u8;
    data[5] = 0x18; // TPGS 01b (implicit), 3PC
    data[6] = 0x10; // MULTIP
    data[7] = 0x02; // CMDQUE
    data[8..16].copy_from_slice(VENDOR);
    data[16..32].copy_from_slice(PRODUCT);
    data[32..36].copy_from_slice(REVISION);
    for (i, descriptor) in VERSION_DESCRIPTORS.iter().enumerate() {
        data[58 + 2 * i..60 + 2 * i].copy_from_slice(&descriptor.to_be_bytes());
    }
    data
}

/// The pages, in the order of their codes.
const PAGES: &[u8] = &[0x00, 0x80, 0x83, 0x86, 0x88, 0x8F, 0xB0, 0xB1, 0xB2];

/// A vital product data page, or INVALID FIELD IN CDB if no page has this code.
pub(crate) fn vital_product_data(code: u8, subject: &Subject<'_>) -> Result<Vec<u8>, Sense> {
    let body = match code {
        0x00 => PAGES.to_vec(),
        0x80 => subject.identity.serial.as_bytes().to_vec(),
        0x83 => device_identification(subject),
        0x86 => extended_inquiry(subject.write_cache),
        0x88 => scsi_ports(subject),
        0x8F => third_party_copy(),
        0xB0 => block_limits(subject.geometry),
        0xB1 => block_device_characteristics(),
        0xB2 => vec![0, 0xE4, 0x02, 0], // LBPU, LBPWS, LBPWS10, LBPRZ 001b; thin
        _ => return Err(Sense::invalid_cdb_field(2)),
    };
    let mut page = vec![0, code];
    page.extend((body.len() as u16).to_be_bytes());
    page.extend(body);
    Ok(page)
}

/// What a designator names.
#[derive(Clone, Copy)]
enum Association {
    Unit,
    Port(PortProtocol),
    /// The target device, whose name is one of iSCSI.
    Device,
}

/// A designation descriptor: code set, association and type, then the designator.
fn designator(code_set: u8, association: Association, kind: u8, value: &[u8]) -> Vec<u8> {
    // PROTOCOL IDENTIFIER is valid (PIV) for associations with a port or the device.
    let (number, protocol) = match association {
        Association::Unit => (0, None),
        Association::Port(protocol) => (1, Some(protocol)),
        Association::Device => (2, Some(PortProtocol::Iscsi)),
    };
    let piv = if protocol.is_some() { 0x80 } else { 0 };
    let protocol = protocol.map_or(0, |protocol| (protocol as u8) << 4);
    let mut out = vec![
        protocol | code_set,
        piv | number << 4 | kind,
        0,
        value.len() as u8,
    ];
    out.extend(value);
    out
}

/// A SCSI name string designator: UTF-8, null-terminated, padded to a multiple of four.
fn name_string(association: Association, name: &str) -> Vec<u8> {
    let mut value = name.as_bytes().to_vec();
    value.truncate(247);
    value.push(0);
    value.resize(value.len().next_multiple_of(4), 0);
    designator(3, association, 8, &value)
}

fn device_identification(subject: &Subject<'_>) -> Vec<u8> {
    let mut t10 = VENDOR.to_vec();
    t10.extend(subject.identity.serial.as_bytes());
    let shown = |number| u32::from(shown_number(number, subject.path)).to_be_bytes();
    let (relative, group) = (shown(subject.port.relative_id), shown(subject.port.group));
    let (unit, port) = (Association::Unit, Association::Port(subject.port.protocol));
    [
        designator(1, unit, 3, subject.identity.naa.bytes()),
        designator(1, unit, 2, &subject.identity.eui64),
        designator(2, unit, 1, &t10),
        designator(1, port, 4, &relative),
        designator(1, port, 5, &group),
        name_string(port, &subject.port.name),
        name_string(Association::Device, subject.device_name),
    ]
    .concat()
}

fn extended_inquiry(write_cache: WriteCache) -> Vec<u8> {
    let mut body = vec![0; 60];
    body[1] = 0x07; // HEADSUP, ORDSUP, SIMPSUP
    if write_cache == WriteCache::Volatile {
        body[2] = 0x01; // V_SUP
    }
    body[3] = 0x01; // LUICLR
    body
}

fn scsi_ports(subject: &Subject<'_>) -> Vec<u8> {
    let mut body = Vec::new();
    for port in subject.ports {
        let name = name_string(Association::Port(port.protocol), &port.name);
        body.extend([0, 0]);
        body.extend(shown_number(port.relative_id, subject.path).to_be_bytes());
        body.extend([0; 4]); // reserved; no initiator port TransportID
        body.extend([0, 0]);
        body.extend((name.len() as u16).to_be_bytes());
        body.extend(name);
    }
    body
}

/// Third-party copy page: the supported commands descriptor (EXTENDED COPY, its results) and the
/// parameter data, supported descriptors and general copy operations descriptors.
fn third_party_copy() -> Vec<u8> {
    let descriptor = |kind: u16, body: &[u8]| {
        let padded = (body.len() + 4).next_multiple_of(4) - 4;
        let mut out = kind.to_be_bytes().to_vec();
        out.extend((padded as u16).to_be_bytes());
        out.extend(body);
        out.resize(4 + padded, 0);
        out
    };
    let commands = [7, 0x83, 1, 0x00, 0x84, 2, 0x00, 0x03];
    let mut parameters = vec![0; 28];
    parameters[4..6].copy_from_slice(&u16::from(crate::copy::TARGETS_MAX).to_be_bytes());
    parameters[6..8].copy_from_slice(&u16::from(crate::copy::SEGMENTS_MAX).to_be_bytes());
    parameters[8..12].copy_from_slice(&u32::from(crate::copy::LIST_LEN_MAX).to_be_bytes());
    let descriptors = [
        2,
        crate::copy::SEGMENT_BLOCK_TO_BLOCK,
        crate::copy::TARGET_IDENTIFICATION,
    ];
    let mut general = vec![0; 32];
    general[0..4].copy_from_slice(&1_u32.to_be_bytes()); // total concurrent copies
    general[4..8].copy_from_slice(&1_u32.to_be_bytes()); // maximum identified concurrent copies
    general[8..12].copy_from_slice(&crate::copy::SEGMENT_LEN_BYTES_MAX.to_be_bytes());
    [
        descriptor(0x0001, &commands),
        descriptor(0x0004, &parameters),
        descriptor(0x0008, &descriptors),
        descriptor(0x8001, &general),
    ]
    .concat()
}

fn block_limits(geometry: Geometry) -> Vec<u8> {
    let shift = geometry.block_size.shift();
    let blocks = |len_bytes: u64| u32::try_from(len_bytes >> shift).unwrap_or(u32::MAX);
    let mut body = vec![0; 60];
    body[0] = 0x01; // WSNZ
    body[1] = medium::COMPARE_AND_WRITE_BLOCKS_MAX;
    let mut put = |at: usize, value: u32| body[at - 4..at].copy_from_slice(&value.to_be_bytes());
    put(8, blocks(medium::TRANSFER_LEN_BYTES_MAX));
    put(12, blocks(128 << 10)); // OPTIMAL TRANSFER LENGTH
    put(16, 0); // MAXIMUM PREFETCH LENGTH: no limit, since of many blocks the first are fetched
    put(20, u32::MAX); // MAXIMUM UNMAP LBA COUNT: no limit
    put(24, medium::UNMAP_DESCRIPTORS_MAX as u32);
    put(28, blocks(UNMAP_GRANULARITY_BYTES));
    put(32, 1 << 31); // UGAVALID, alignment 0
    put(40, blocks(medium::WRITE_SAME_LEN_BYTES_MAX)); // low half of a 64-bit field
    body
}

/// Memory is freed in pages.
const UNMAP_GRANULARITY_BYTES: u64 = 4096;

fn block_device_characteristics() -> Vec<u8> {
    let mut body = vec![0; 60];
    body[1] = 0x01; // MEDIUM ROTATION RATE 0001h: non-rotating
    body[3] = 0x50; // WABEREQ 01b, WACEREQ 01b: after SANITIZE, reads return zeros
    body
}

#[cfg(test)]
mod tests {
    use super::*;
    use block::{BlockSize, Blocks};

    fn page(code: u8) -> Vec<u8> {
        let identity = UnitIdentity::derived(0x1122_3344_5566_7788, "S1".into());
        let port = TargetPort {
            relative_id: 2,
            protocol: PortProtocol::Iscsi,
            name: "iqn.x,t,0x0001".into(),
            group: 1,
        };
        let subject = Subject {
            identity: &identity,
            geometry: Geometry::new(BlockSize::B4096, Blocks(1 << 18)),
            write_cache: WriteCache::Absent,
            device_name: "iqn.x",
            port: &port,
            ports: std::slice::from_ref(&port),
            path: HostPath::default(),
        };
        vital_product_data(code, &subject).expect("the page exists")
    }

    #[test]
    fn every_listed_page_exists_and_states_its_length() {
        assert_eq!(page(0x00)[4..], *PAGES);
        for code in PAGES {
            let page = page(*code);
            let len = usize::from(u16::from_be_bytes([page[2], page[3]]));
            assert_eq!((page[1], page.len()), (*code, len + 4), "page {code:02x}");
        }
    }

    #[test]
    fn identification_begins_with_an_naa_designator() {
        let want = [
            0x01, 0x03, 0, 8, 0x31, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88,
        ];
        assert_eq!(page(0x83)[4..16], want);
    }

    #[test]
    fn block_limits_count_in_the_units_own_blocks() {
        let page = page(0xB0);
        assert_eq!(page.len(), 64);
        assert_eq!(
            page[8..12],
            (medium::TRANSFER_LEN_BYTES_MAX as u32 / 4096).to_be_bytes()
        );
        assert_eq!(
            page[36..44],
            (medium::WRITE_SAME_LEN_BYTES_MAX / 4096).to_be_bytes()
        );
    }

    #[test]
    fn standard_data_is_as_long_as_it_says() {
        let data = standard(true);
        assert_eq!(data.len(), usize::from(data[4]) + 5);
        assert_eq!(standard(false)[0], 0x7F);
    }
}
