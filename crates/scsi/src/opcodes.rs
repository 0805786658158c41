//! The table of commands: which are implemented, the form of their CDBs, and how reservations
//! affect them. Everything else that must know which commands exist (dispatch, REPORT SUPPORTED
//! OPERATION CODES) reads this table.
//!
//! Read first: SPC-5, "REPORT SUPPORTED OPERATION CODES command"; SPC-5 and SBC-4, the tables of
//! commands that are allowed in the presence of reservations.

/// A command that this device server knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Name {
    TestUnitReady,
    RequestSense,
    Inquiry,
    ModeSelect6,
    ModeSelect10,
    ModeSense6,
    ModeSense10,
    Reserve6,
    Release6,
    StartStopUnit,
    PreventAllow,
    ReadCapacity10,
    ReadCapacity16,
    Read,
    Write,
    WriteAndVerify,
    Verify,
    CompareAndWrite,
    OrWrite16,
    PreFetch,
    SynchronizeCache,
    WriteSame,
    Unmap,
    GetLbaStatus,
    ReadDefectData10,
    ReadDefectData12,
    Sanitize,
    PersistentReserveIn,
    PersistentReserveOut,
    ExtendedCopy,
    ReceiveCopyResults,
    ReportLuns,
    ReportTargetPortGroups,
    ReportSupportedOpcodes,
    ReportTaskManagement,
}

/// How a reservation of another nexus affects a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AccessClass {
    /// Allowed whatever is reserved.
    Always,
    /// Allowed, as a read is, except under an exclusive access reservation.
    Read,
    /// Allowed only for nexuses that may write.
    Write,
    /// The command checks the reservation itself (PERSISTENT RESERVE OUT, RELEASE).
    Own,
}

/// One row: an operation code, a service action, if any, and the bits of the CDB that are used.
pub(crate) struct Opcode {
    pub(crate) name: Name,
    pub(crate) code: u8,
    pub(crate) service_action: Option<u16>,
    /// CDB USAGE DATA: a 1 for each bit that the device server evaluates; byte 0 holds the opcode.
    /// Its length is the CDB's.
    pub(crate) usage: &'static [u8],
    pub(crate) access: AccessClass,
}

const fn row(name: Name, access: AccessClass, usage: &'static [u8]) -> Opcode {
    Opcode {
        name,
        code: usage[0],
        service_action: None,
        usage,
        access,
    }
}

const fn row_sa(name: Name, access: AccessClass, action: u16, usage: &'static [u8]) -> Opcode {
    Opcode {
        name,
        code: usage[0],
        service_action: Some(action),
        usage,
        access,
    }
}

use AccessClass::{Always, Own, Read, Write};

/// Byte 1 of reads and writes: protection (which must be 0) is not evaluated as a feature; DPO and
/// FUA are.
const DPO_FUA: u8 = 0x18;

/// Every implemented command, ordered by operation code and service action.
pub(crate) const OPCODES: &[Opcode] = &[
    row(Name::TestUnitReady, Always, &[0x00, 0, 0, 0, 0, 0x04]),
    row(Name::RequestSense, Always, &[0x03, 0x01, 0, 0, 0xFF, 0x04]),
    row(Name::Read, Read, &[0x08, 0x1F, 0xFF, 0xFF, 0xFF, 0x04]),
    row(Name::Write, Write, &[0x0A, 0x1F, 0xFF, 0xFF, 0xFF, 0x04]),
    row(Name::Inquiry, Always, &[0x12, 0x01, 0xFF, 0xFF, 0xFF, 0x04]),
    row(Name::ModeSelect6, Write, &[0x15, 0x11, 0, 0, 0xFF, 0x04]),
    row(Name::Reserve6, Write, &[0x16, 0, 0, 0, 0, 0x04]),
    row(Name::Release6, Own, &[0x17, 0, 0, 0, 0, 0x04]),
    row(
        Name::ModeSense6,
        Read,
        &[0x1A, 0x08, 0xFF, 0xFF, 0xFF, 0x04],
    ),
    row(
        Name::StartStopUnit,
        Write,
        &[0x1B, 0x01, 0, 0x0F, 0xF7, 0x04],
    ),
    row(Name::PreventAllow, Always, &[0x1E, 0, 0, 0, 0x03, 0x04]),
    row(
        Name::ReadCapacity10,
        Always,
        &[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0x04],
    ),
    row(
        Name::Read,
        Read,
        &[0x28, DPO_FUA, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0xFF, 0xFF, 0x04],
    ),
    row(
        Name::Write,
        Write,
        &[0x2A, DPO_FUA, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0xFF, 0xFF, 0x04],
    ),
    row(
        Name::WriteAndVerify,
        Write,
        &[0x2E, 0x16, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0xFF, 0xFF, 0x04],
    ),
    row(
        Name::Verify,
        Read,
        &[0x2F, 0x16, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0xFF, 0xFF, 0x04],
    ),
    row(
        Name::PreFetch,
        Read,
        &[0x34, 0x02, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0xFF, 0xFF, 0x04],
    ),
    row(
        Name::SynchronizeCache,
        Write,
        &[0x35, 0x02, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0xFF, 0xFF, 0x04],
    ),
    row(
        Name::ReadDefectData10,
        Read,
        &[0x37, 0, 0x1F, 0, 0, 0, 0, 0xFF, 0xFF, 0x04],
    ),
    row(
        Name::WriteSame,
        Write,
        &[0x41, 0x08, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0xFF, 0xFF, 0x04],
    ),
    row(
        Name::Unmap,
        Write,
        &[0x42, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 0x04],
    ),
    row_sa(
        Name::Sanitize,
        Write,
        0x02,
        &[0x48, 0xBF, 0, 0, 0, 0, 0, 0, 0, 0x04],
    ),
    row_sa(
        Name::Sanitize,
        Write,
        0x03,
        &[0x48, 0xBF, 0, 0, 0, 0, 0, 0, 0, 0x04],
    ),
    row_sa(
        Name::Sanitize,
        Write,
        0x1F,
        &[0x48, 0xBF, 0, 0, 0, 0, 0, 0, 0, 0x04],
    ),
    row(
        Name::ModeSelect10,
        Write,
        &[0x55, 0x11, 0, 0, 0, 0, 0, 0xFF, 0xFF, 0x04],
    ),
    row(
        Name::ModeSense10,
        Read,
        &[0x5A, 0x18, 0xFF, 0xFF, 0, 0, 0, 0xFF, 0xFF, 0x04],
    ),
    row_sa(
        Name::PersistentReserveIn,
        Always,
        0,
        &[0x5E, 0x1F, 0, 0, 0, 0, 0, 0xFF, 0xFF, 0x04],
    ),
    row_sa(
        Name::PersistentReserveIn,
        Always,
        1,
        &[0x5E, 0x1F, 0, 0, 0, 0, 0, 0xFF, 0xFF, 0x04],
    ),
    row_sa(
        Name::PersistentReserveIn,
        Always,
        2,
        &[0x5E, 0x1F, 0, 0, 0, 0, 0, 0xFF, 0xFF, 0x04],
    ),
    row_sa(
        Name::PersistentReserveIn,
        Always,
        3,
        &[0x5E, 0x1F, 0, 0, 0, 0, 0, 0xFF, 0xFF, 0x04],
    ),
    row_sa(Name::PersistentReserveOut, Own, 0, PERSISTENT_RESERVE_OUT),
    row_sa(Name::PersistentReserveOut, Own, 1, PERSISTENT_RESERVE_OUT),
    row_sa(Name::PersistentReserveOut, Own, 2, PERSISTENT_RESERVE_OUT),
    row_sa(Name::PersistentReserveOut, Own, 3, PERSISTENT_RESERVE_OUT),
    row_sa(Name::PersistentReserveOut, Own, 4, PERSISTENT_RESERVE_OUT),
    row_sa(Name::PersistentReserveOut, Own, 5, PERSISTENT_RESERVE_OUT),
    row_sa(Name::PersistentReserveOut, Own, 6, PERSISTENT_RESERVE_OUT),
    row_sa(Name::PersistentReserveOut, Own, 7, PERSISTENT_RESERVE_OUT),
    row_sa(
        Name::ExtendedCopy,
        Write,
        0x00,
        &[
            0x83, 0x1F, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0x04,
        ],
    ),
    row_sa(Name::ReceiveCopyResults, Always, 0x00, RECEIVE_COPY_RESULTS),
    row_sa(Name::ReceiveCopyResults, Always, 0x03, RECEIVE_COPY_RESULTS),
    row(Name::Read, Read, &long_16(0x88, DPO_FUA)),
    row(Name::CompareAndWrite, Write, &COMPARE_AND_WRITE),
    row(Name::Write, Write, &long_16(0x8A, DPO_FUA)),
    row(Name::OrWrite16, Write, &long_16(0x8B, DPO_FUA)),
    row(Name::WriteAndVerify, Write, &long_16(0x8E, 0x16)),
    row(Name::Verify, Read, &long_16(0x8F, 0x16)),
    row(Name::PreFetch, Read, &long_16(0x90, 0x02)),
    row(Name::SynchronizeCache, Write, &long_16(0x91, 0x02)),
    row(Name::WriteSame, Write, &long_16(0x93, 0x09)),
    row_sa(Name::ReadCapacity16, Always, 0x10, &SERVICE_ACTION_IN_16),
    row_sa(Name::GetLbaStatus, Read, 0x12, &GET_LBA_STATUS),
    row(
        Name::ReportLuns,
        Always,
        &[0xA0, 0, 0xFF, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0x04],
    ),
    row_sa(
        Name::ReportTargetPortGroups,
        Always,
        0x0A,
        &[0xA3, 0xFF, 0, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0x04],
    ),
    row_sa(
        Name::ReportSupportedOpcodes,
        Always,
        0x0C,
        &[
            0xA3, 0x1F, 0x87, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0x04,
        ],
    ),
    row_sa(
        Name::ReportTaskManagement,
        Always,
        0x0D,
        &[0xA3, 0x1F, 0x80, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0x04],
    ),
    row(Name::Read, Read, &long_12(0xA8, DPO_FUA)),
    row(Name::Write, Write, &long_12(0xAA, DPO_FUA)),
    row(Name::WriteAndVerify, Write, &long_12(0xAE, 0x16)),
    row(Name::Verify, Read, &long_12(0xAF, 0x16)),
    row(
        Name::ReadDefectData12,
        Read,
        &[0xB7, 0x1F, 0, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0x04],
    ),
];

const PERSISTENT_RESERVE_OUT: &[u8] = &[0x5F, 0x1F, 0xFF, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0x04];
const RECEIVE_COPY_RESULTS: &[u8] = &[
    0x84, 0x1F, 0xFF, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0x04,
];
const COMPARE_AND_WRITE: [u8; 16] = [
    0x89, DPO_FUA, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 0, 0xFF, 0, 0x04,
];
const SERVICE_ACTION_IN_16: [u8; 16] = [
    0x9E, 0x1F, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0x04,
];
const GET_LBA_STATUS: [u8; 16] = [
    0x9E, 0x1F, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0x04,
];

/// A 16-byte CDB with a 64-bit LBA and a 32-bit length.
const fn long_16(opcode: u8, flags: u8) -> [u8; 16] {
    let f = 0xFF;
    [opcode, flags, f, f, f, f, f, f, f, f, f, f, f, f, 0, 0x04]
}

/// A 12-byte CDB with a 32-bit LBA and a 32-bit length.
const fn long_12(opcode: u8, flags: u8) -> [u8; 12] {
    let f = 0xFF;
    [opcode, flags, f, f, f, f, f, f, f, f, 0, 0x04]
}

impl Opcode {
    /// Bytes in the CDB.
    pub(crate) fn cdb_len(&self) -> usize {
        self.usage.len()
    }
}

/// Why a CDB names no command that is implemented.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unknown {
    /// The operation code itself.
    Opcode,
    /// Its service action.
    ServiceAction,
}

/// Where the rows of each operation code begin in [`OPCODES`]; its length for codes without a row.
const FIRST_ROW: [u8; 256] = {
    let mut first = [OPCODES.len() as u8; 256];
    let mut row = OPCODES.len();
    while row > 0 {
        row -= 1;
        first[OPCODES[row].code as usize] = row as u8;
    }
    first
};

/// The row of `cdb`, which holds at least the bytes of its longest form (16; shorter ones are
/// padded).
pub(crate) fn find(cdb: &[u8; 16]) -> Result<&'static Opcode, Unknown> {
    let mut unknown = Unknown::Opcode;
    let rows = &OPCODES[usize::from(FIRST_ROW[usize::from(cdb[0])])..];
    for row in rows.iter().take_while(|row| row.code == cdb[0]) {
        match row.service_action {
            Some(action) if action != u16::from(cdb[1] & 0x1F) => unknown = Unknown::ServiceAction,
            _ => return Ok(row),
        }
    }
    Err(unknown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_and_each_row_has_its_groups_length() {
        let keys: Vec<_> = OPCODES.iter().map(|o| (o.code, o.service_action)).collect();
        assert!(keys.windows(2).all(|pair| pair[0] < pair[1]), "{keys:02x?}");
        for row in OPCODES {
            let len = match row.code >> 5 {
                0 => 6,
                1 | 2 => 10,
                4 => 16,
                5 => 12,
                group => panic!("group {group} has no fixed length"),
            };
            assert_eq!(row.cdb_len(), len, "opcode {:02x}", row.code);
        }
    }

    #[test]
    fn an_unknown_service_action_is_distinguished_from_an_unknown_opcode() {
        let mut cdb = [0; 16];
        cdb[0] = 0x9E;
        cdb[1] = 0x11;
        assert_eq!(find(&cdb).err(), Some(Unknown::ServiceAction));
        cdb[0] = 0xFF;
        assert_eq!(find(&cdb).err(), Some(Unknown::Opcode));
    }
}
