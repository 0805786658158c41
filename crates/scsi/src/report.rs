//! Commands whose answer is made from constants, the geometry and the CDB alone.

use block::{Geometry, HostPath};

use crate::access_state::{descriptor_fields, shown_number};
use crate::device::Lun;
use crate::inquiry::TargetPort;
use crate::opcodes::{OPCODES, Opcode};
use crate::sense::Sense;

/// READ CAPACITY (10): last LBA (all ones if it does not fit) and block length.
pub(crate) fn read_capacity_10(geometry: Geometry) -> Vec<u8> {
    let last = u32::try_from(geometry.blocks.0 - 1).unwrap_or(u32::MAX);
    let mut data = last.to_be_bytes().to_vec();
    data.extend((geometry.block_size.bytes() as u32).to_be_bytes());
    data
}

/// READ CAPACITY (16).
pub(crate) fn read_capacity_16(geometry: Geometry) -> Vec<u8> {
    let mut data = vec![0; 32];
    data[0..8].copy_from_slice(&(geometry.blocks.0 - 1).to_be_bytes());
    data[8..12].copy_from_slice(&(geometry.block_size.bytes() as u32).to_be_bytes());
    data[14] = 0xC0; // LBPME, LBPRZ
    data
}

/// REPORT LUNS; `select` is SELECT REPORT.
pub(crate) fn luns(select: u8, luns: &[Lun]) -> Result<Vec<u8>, Sense> {
    /// REPORT LUNS' own well-known logical unit.
    const WELL_KNOWN: [u8; 8] = [0xC1, 0x01, 0, 0, 0, 0, 0, 0];
    let (normal, well_known) = match select {
        0x00 => (true, false),
        0x01 => (false, true),
        0x02 => (true, true),
        _ => return Err(Sense::invalid_cdb_field(2)),
    };
    let mut list = Vec::new();
    if normal {
        // SAM: LUN 0 answers even where nothing is behind it.
        let empty: &[Lun] = &[0];
        for lun in if luns.is_empty() { empty } else { luns } {
            list.extend(lun_bytes(*lun));
        }
    }
    if well_known {
        list.extend(WELL_KNOWN);
    }
    let mut data = (list.len() as u32).to_be_bytes().to_vec();
    data.extend([0; 4]);
    data.extend(list);
    Ok(data)
}

/// A LUN in single-level form: peripheral addressing below 256, flat space above (SAM-5, "LUN
/// addressing").
pub fn lun_bytes(lun: Lun) -> [u8; 8] {
    let [high, low] = lun.to_be_bytes();
    let method = if high == 0 { 0 } else { 0x40 };
    [method | high, low, 0, 0, 0, 0, 0, 0]
}

/// A LUN field in single-level form (peripheral or flat addressing), if it has that form.
pub fn parse_lun(lun: [u8; 8]) -> Option<Lun> {
    if lun[2..] != [0; 6] {
        return None;
    }
    match lun[0] >> 6 {
        0 if lun[0] == 0 => Some(u16::from(lun[1])),
        1 => Some(u16::from_be_bytes([lun[0] & 0x3F, lun[1]])),
        _ => None,
    }
}

/// READ DEFECT DATA (10): an empty list in the asked format.
pub(crate) fn defects_10(cdb: &[u8; 16]) -> Vec<u8> {
    vec![0, cdb[2] & 0x1F, 0, 0]
}

/// READ DEFECT DATA (12).
pub(crate) fn defects_12(cdb: &[u8; 16]) -> Vec<u8> {
    vec![0, cdb[1] & 0x1F, 0, 0, 0, 0, 0, 0]
}

/// REPORT TARGET PORT GROUPS: those of this machine, by which hosts reach the volume equally well.
/// `format` 1 is the extended header.
pub(crate) fn target_port_groups(ports: &[TargetPort], path: HostPath, format: u8) -> Vec<u8> {
    let mut body = Vec::new();
    if format == 1 {
        body.extend([0x10, 0, 0, 0]);
    }
    let mut groups: Vec<u16> = ports.iter().map(|port| port.group).collect();
    groups.sort_unstable();
    groups.dedup();
    for group in groups {
        let members: Vec<_> = ports.iter().filter(|port| port.group == group).collect();
        let (state, status) = descriptor_fields(path);
        body.extend(state);
        body.extend(shown_number(group, path).to_be_bytes());
        body.extend([0, status, 0, members.len() as u8]);
        for port in members {
            body.extend([0, 0]);
            body.extend(shown_number(port.relative_id, path).to_be_bytes());
        }
    }
    let mut data = (body.len() as u32).to_be_bytes().to_vec();
    data.extend(body);
    data
}

/// REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS; `extended` is REPD.
pub(crate) fn task_management(extended: bool) -> Vec<u8> {
    // ATS, ATSS, CTSS, LURS, TRS (abort task, abort and clear task set, logical unit and target
    // reset).
    let functions = [0xDA, 0x00, 0x00, if extended { 12 } else { 0 }];
    let mut data = functions.to_vec();
    if extended {
        data.extend([0; 12]);
    }
    data
}

/// REPORT SUPPORTED OPERATION CODES.
pub(crate) fn supported_opcodes(cdb: &[u8; 16]) -> Result<Vec<u8>, Sense> {
    let timeouts = cdb[2] & 0x80 != 0;
    let options = cdb[2] & 0x07;
    let (opcode, action) = (cdb[3], u16::from_be_bytes([cdb[4], cdb[5]]));
    if options == 0 {
        return Ok(all_opcodes(timeouts));
    }
    let mut rows = OPCODES.iter().filter(|row| row.code == opcode).peekable();
    let has_actions = rows.peek().is_some_and(|row| row.service_action.is_some());
    let found = match options {
        // One command by opcode alone must not have service actions; 2 must have; 3 takes both.
        1 if has_actions => return Err(Sense::invalid_cdb_bit(2, 2)),
        2 if rows.peek().is_some() && !has_actions => return Err(Sense::invalid_cdb_bit(2, 2)),
        1 => rows.next(),
        2 | 3 => rows.find(|row| row.service_action.unwrap_or(0) == action),
        _ => return Err(Sense::invalid_cdb_bit(2, 2)),
    };
    Ok(one_opcode(found, timeouts))
}

/// Command timeouts descriptor: lengths 0Ah, no nominal and no recommended time.
const NO_TIMEOUTS: [u8; 12] = [0, 0x0A, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

fn all_opcodes(timeouts: bool) -> Vec<u8> {
    let mut body = Vec::new();
    for row in OPCODES {
        let action = row.service_action;
        let flags = u8::from(action.is_some()) | if timeouts { 0x02 } else { 0 };
        body.extend([row.code, 0]);
        body.extend(action.unwrap_or(0).to_be_bytes());
        body.extend([0, flags]);
        body.extend((row.cdb_len() as u16).to_be_bytes());
        if timeouts {
            body.extend(NO_TIMEOUTS);
        }
    }
    let mut data = (body.len() as u32).to_be_bytes().to_vec();
    data.extend(body);
    data
}

fn one_opcode(row: Option<&Opcode>, timeouts: bool) -> Vec<u8> {
    const NOT_SUPPORTED: u8 = 0x01;
    const AS_STANDARD: u8 = 0x03;
    let Some(row) = row else {
        return vec![0, NOT_SUPPORTED, 0, 0];
    };
    let ctdp = if timeouts { 0x80 } else { 0 };
    let mut data = vec![0, ctdp | AS_STANDARD];
    data.extend((row.cdb_len() as u16).to_be_bytes());
    data.extend(row.usage);
    if timeouts {
        data.extend(NO_TIMEOUTS);
    }
    // The service action is a fixed value, not a bitmap of used bits.
    if let Some(action) = row.service_action {
        data[5] = data[5] & 0xE0 | (action as u8 & 0x1F);
    }
    data
}

#[cfg(test)]
mod tests {
    use super::*;
    use block::{BlockSize, Blocks};

    #[test]
    fn capacities_beyond_32_bits_tell_the_initiator_to_ask_again() {
        let big = Geometry::new(BlockSize::B512, Blocks(1 << 33));
        assert_eq!(read_capacity_10(big)[..4], [0xFF; 4]);
        assert_eq!(
            read_capacity_16(big)[..8],
            ((1_u64 << 33) - 1).to_be_bytes()
        );
    }

    #[test]
    fn luns_beyond_255_use_flat_addressing() {
        assert_eq!(lun_bytes(255)[..2], [0, 255]);
        assert_eq!(lun_bytes(256)[..2], [0x41, 0]);
        assert_eq!(luns(1, &[0, 1]).expect("well known")[8..10], [0xC1, 0x01]);
        assert!(luns(9, &[]).is_err());
    }

    fn rsoc(options: u8, opcode: u8, action: u8) -> Result<Vec<u8>, Sense> {
        let mut cdb = [0; 16];
        cdb[..6].copy_from_slice(&[0xA3, 0x0C, options, opcode, 0, action]);
        supported_opcodes(&cdb)
    }

    #[test]
    fn one_command_by_opcode_and_by_service_action() {
        assert_eq!(
            rsoc(1, 0x28, 0).expect("READ (10)")[..6],
            [0, 3, 0, 10, 0x28, 0x18]
        );
        assert_eq!(rsoc(2, 0x9E, 0x10).expect("READ CAPACITY (16)")[5], 0x10);
        assert_eq!(rsoc(3, 0x28, 0).expect("either form")[1], 3);
        assert!(rsoc(1, 0x9E, 0).is_err() && rsoc(2, 0x28, 0).is_err());
        assert_eq!(rsoc(1, 0xFE, 0).expect("answered")[1], 1);
    }

    #[test]
    fn the_whole_list_has_a_descriptor_for_each_row() {
        assert_eq!(rsoc(0, 0, 0).expect("all").len(), 4 + OPCODES.len() * 8);
        assert_eq!(rsoc(0x80, 0, 0).expect("all").len(), 4 + OPCODES.len() * 20);
    }
}
