//! What a task sends, whatever the transport: bytes of its data-in, and its SCSI Response.
//!
//! Read first: RFC 7143 §11.4.

use block::{Extent, Status, Volume};
use scsi::{ScsiStatus, SenseFormat};
use zerocopy::big_endian::U32;

use super::task::Task;
use crate::backend::Backend;
use crate::wire::command::{RESIDUAL_OVERFLOW, RESIDUAL_UNDERFLOW, ScsiResponse};
use crate::wire::{FINAL, U24, response};

/// The numbers of a PDU.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Numbers {
    /// StatSN.
    pub(crate) stat: u32,
    /// ExpCmdSN.
    pub(crate) expected: u32,
    /// MaxCmdSN.
    pub(crate) max: u32,
}

/// The header of a task's SCSI Response.
pub(crate) fn scsi_response(task: &Task, segment_len: usize, numbers: Numbers) -> ScsiResponse {
    let (flags, residual) = residual(task);
    ScsiResponse {
        opcode: response::SCSI_RESPONSE,
        flags: FINAL | flags,
        response: 0,
        status: task.response.status as u8,
        total_ahs_words: 0,
        data_segment_len: U24::new(segment_len as u32),
        reserved: [0; 8],
        itt: U32::new(task.itt),
        snack_tag: U32::new(0),
        stat_sn: U32::new(numbers.stat),
        exp_cmd_sn: U32::new(numbers.expected),
        max_cmd_sn: U32::new(numbers.max),
        exp_data_sn: U32::new(task.next_sn),
        bidi_residual: U32::new(0),
        residual: U32::new(residual),
    }
}

/// Residual flags and count: the bytes that the CDB transfers against those that the initiator
/// expected (RFC 7143 §11.4.5).
pub(crate) fn residual(task: &Task) -> (u8, u32) {
    let moved = if task.response.status == ScsiStatus::Good {
        task.wanted_len
    } else {
        task.moved
    };
    let over = moved.saturating_sub(task.expected_len);
    let under = task.expected_len.saturating_sub(moved);
    match (over, under) {
        (0, 0) => (0, 0),
        (0, under) => (RESIDUAL_UNDERFLOW, under as u32),
        (over, _) => (RESIDUAL_OVERFLOW, over as u32),
    }
}

/// The data segment of a SCSI Response: SenseLength, and sense data in the format that D_SENSE
/// selects.
pub(crate) fn sense_segment<B: Backend>(task: &Task, backend: &mut B) -> Vec<u8> {
    let Some(sense) = &task.response.sense else {
        return Vec::new();
    };
    let view = backend.view(task.lun);
    let format = view.map_or(SenseFormat::Fixed, |(view, _)| view.sense_format);
    let bytes = sense.encode(format);
    let mut segment = (bytes.as_slice().len() as u16).to_be_bytes().to_vec();
    segment.extend_from_slice(bytes.as_slice());
    segment
}

/// Fills `room` with the next data-in of a task that reads `extent`.
pub(crate) fn read_next(
    task: &Task,
    extent: Extent,
    room: &mut [u8],
    volume: &dyn Volume,
) -> Result<(), Status> {
    task.transfer(extent).read_next(room, volume)
}
