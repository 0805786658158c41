//! What waits to be sent besides commands: control PDUs, and sequences of data-out.

use scsi::Lun;
use zerocopy::IntoBytes;
use zerocopy::big_endian::{U16, U32};

use super::table::abort_tag;
use crate::text::TextBuilder;
use crate::wire::command::{TaskManagementRequest, function};
use crate::wire::login::{LoginRequest, LogoutRequest, TextRequest};
use crate::wire::other::NopOut;
use crate::wire::{BHS_LEN, FINAL, NO_TASK_TAG, U24, request};

/// I: immediate delivery, which takes no CmdSN.
const IMMEDIATE: u8 = 0x40;
/// Initiator Task Tags of control PDUs. A session has one of each at a time.
pub(super) const TAG_LOGIN: u32 = 0xFF01;
pub(super) const TAG_TEXT: u32 = 0xFF02;
pub(super) const TAG_LOGOUT: u32 = 0xFF03;
pub(super) const TAG_PING: u32 = 0xFF04;

/// A sequence of data-out that has not been sent in full.
#[derive(Debug)]
pub(super) struct DataSequence {
    pub(super) key: u16,
    /// The R2T's Target Transfer Tag; all ones for unsolicited data.
    pub(super) ttt: U32,
    pub(super) lun: [u8; 8],
    pub(super) data_sn: u32,
    /// The next byte to send, from the start of the command's data.
    pub(super) offset: u32,
    pub(super) left_bytes: u32,
}

/// A PDU that is not a command and carries no blocks. Its CmdSN and ExpStatSN are filled in when it
/// is emitted.
#[derive(Debug)]
pub(super) struct Control {
    header: [u8; BHS_LEN],
    pub(super) segment: Vec<u8>,
}

impl Control {
    pub(super) fn login(flags: u8, isid: [u8; 6], text: Vec<u8>) -> Self {
        let header = LoginRequest {
            opcode: IMMEDIATE | request::LOGIN,
            flags,
            version_max: 0,
            version_min: 0,
            total_ahs_words: 0,
            data_segment_len: U24::new(text.len() as u32),
            isid,
            tsih: U16::ZERO,
            itt: U32::new(TAG_LOGIN),
            cid: U16::new(1),
            reserved: U16::ZERO,
            cmd_sn: U32::ZERO,
            exp_stat_sn: U32::ZERO,
            reserved_32: [0; 16],
        };
        Self::new(&header, text)
    }

    /// SendTargets=All.
    pub(super) fn send_targets() -> Self {
        let mut text = TextBuilder::default();
        text.push("SendTargets", "All");
        Self::text([0; 8], U32::new(NO_TASK_TAG), text.into_bytes())
    }

    /// Asks for the rest of an answer.
    pub(super) fn text_rest(lun: [u8; 8], ttt: U32) -> Self {
        Self::text(lun, ttt, Vec::new())
    }

    fn text(lun: [u8; 8], ttt: U32, text: Vec<u8>) -> Self {
        let header = TextRequest {
            opcode: IMMEDIATE | request::TEXT,
            flags: FINAL,
            reserved: [0; 2],
            total_ahs_words: 0,
            data_segment_len: U24::new(text.len() as u32),
            lun,
            itt: U32::new(TAG_TEXT),
            ttt,
            cmd_sn: U32::ZERO,
            exp_stat_sn: U32::ZERO,
            reserved_32: [0; 16],
        };
        Self::new(&header, text)
    }

    /// Closes the session.
    pub(super) fn logout() -> Self {
        let header = LogoutRequest {
            opcode: IMMEDIATE | request::LOGOUT,
            reason: FINAL,
            reserved: [0; 2],
            total_ahs_words: 0,
            data_segment_len: U24::default(),
            reserved_8: [0; 8],
            itt: U32::new(TAG_LOGOUT),
            cid: U16::ZERO,
            reserved_22: U16::ZERO,
            cmd_sn: U32::ZERO,
            exp_stat_sn: U32::ZERO,
            reserved_32: [0; 16],
        };
        Self::new(&header, Vec::new())
    }

    /// Answers a NOP-In.
    pub(super) fn nop(lun: [u8; 8], ttt: U32) -> Self {
        Self::nop_out(lun, NO_TASK_TAG, ttt)
    }

    /// Asks for a NOP-In.
    pub(super) fn ping() -> Self {
        Self::nop_out([0; 8], TAG_PING, U32::new(NO_TASK_TAG))
    }

    fn nop_out(lun: [u8; 8], itt: u32, ttt: U32) -> Self {
        let header = NopOut {
            opcode: IMMEDIATE | request::NOP_OUT,
            flags: FINAL,
            reserved: [0; 2],
            total_ahs_words: 0,
            data_segment_len: U24::default(),
            lun,
            itt: U32::new(itt),
            ttt,
            cmd_sn: U32::ZERO,
            exp_stat_sn: U32::ZERO,
            reserved_32: [0; 16],
        };
        Self::new(&header, Vec::new())
    }

    /// Aborts the command of `itt`, whose CmdSN was `cmd_sn`.
    pub(super) fn abort_task(itt: u32, lun: Lun, cmd_sn: u32) -> Self {
        let header = TaskManagementRequest {
            opcode: IMMEDIATE | request::TASK_MANAGEMENT,
            function: FINAL | function::ABORT_TASK,
            reserved: [0; 2],
            total_ahs_words: 0,
            data_segment_len: U24::default(),
            lun: scsi::lun_bytes(lun),
            itt: U32::new(abort_tag(itt)),
            referenced_task_tag: U32::new(itt),
            cmd_sn: U32::ZERO,
            exp_stat_sn: U32::ZERO,
            ref_cmd_sn: U32::new(cmd_sn),
            exp_data_sn: U32::ZERO,
            reserved_40: [0; 8],
        };
        Self::new(&header, Vec::new())
    }

    fn new(header: &(impl IntoBytes + zerocopy::Immutable), segment: Vec<u8>) -> Self {
        let mut bytes = [0; BHS_LEN];
        bytes.copy_from_slice(header.as_bytes());
        Self {
            header: bytes,
            segment,
        }
    }

    /// The header with the present numbers. Every request has CmdSN and ExpStatSN in the same
    /// place.
    pub(super) fn numbered(&self, cmd_sn: u32, exp_stat_sn: u32) -> [u8; BHS_LEN] {
        let mut header = self.header;
        header[24..28].copy_from_slice(&cmd_sn.to_be_bytes());
        header[28..32].copy_from_slice(&exp_stat_sn.to_be_bytes());
        header
    }
}
