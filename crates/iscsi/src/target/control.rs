//! Requests that are not SCSI commands: their numbering, NOP and logout.
//!
//! Read first: RFC 7143 §11.14, §11.18.

use std::time::Instant;

use zerocopy::big_endian::U16;

use super::full_feature::{FencedKind, FullFeature, Liveness, PING_TAG};
use super::reply::{Numbering, ReplyHeader};
use super::tasks::EarlyRequest;
use crate::backend::Backend;
use crate::window::Arrival;
use crate::window::order::Attribute;
use crate::wire::login::LogoutRequest;
use crate::wire::other::{NopOut, reason};
use crate::wire::{Bhs, NO_TASK_TAG, request, response, sn_before};

/// The longest ping data that are returned, bytes.
const PING_LEN_MAX: usize = 4096;
/// How far beyond ExpCmdSN the CmdSN of an immediate request may be.
const IMMEDIATE_AHEAD_MAX: u32 = 1 << 16;

impl FullFeature {
    /// Takes a PDU that is not a SCSI command, with its data.
    pub(super) fn control<B: Backend>(
        &mut self,
        now: Instant,
        bhs: &Bhs,
        segment: &[u8],
        backend: &mut B,
    ) {
        if self.may_serve(bhs, segment, backend) {
            self.serve(now, bhs, segment, backend);
        }
    }

    /// Serves a request whose numbering was checked.
    pub(super) fn serve<B: Backend>(
        &mut self,
        now: Instant,
        bhs: &Bhs,
        segment: &[u8],
        backend: &mut B,
    ) {
        match bhs.opcode() {
            request::NOP_OUT => self.on_nop_out(now, bhs.cast(), segment),
            request::TASK_MANAGEMENT => self.on_task_management(bhs, backend),
            request::TEXT => self.on_text(bhs, segment, backend),
            request::LOGOUT => self.on_logout(bhs.cast(), backend),
            request::SNACK => self.replies.reject(bhs, reason::SNACK),
            _ => self.replies.reject(bhs, reason::NOT_SUPPORTED),
        }
    }

    /// Checks CmdSN. Returns false if the PDU is ignored, or kept until those before it have
    /// arrived.
    fn may_serve<B: Backend>(&mut self, bhs: &Bhs, segment: &[u8], backend: &mut B) -> bool {
        let is_numbered = matches!(
            bhs.opcode(),
            request::NOP_OUT | request::TASK_MANAGEMENT | request::TEXT | request::LOGOUT
        );
        if !is_numbered {
            return true;
        }
        let cmd_sn = bhs.cmd_sn();
        if bhs.is_immediate() {
            let (expected, _) = self.numbers(backend);
            return !sn_before(expected.wrapping_add(IMMEDIATE_AHEAD_MAX), cmd_sn);
        }
        let window = &mut self.tasks.window;
        match window.arrive(cmd_sn, Attribute::Control, 0, backend) {
            Arrival::Now => true,
            Arrival::Ignored | Arrival::Aborted => false,
            Arrival::Early(cmd_sn) => {
                // No request that the target knows needs more data than a ping.
                let segment = segment[..segment.len().min(PING_LEN_MAX)].to_vec();
                let request = EarlyRequest::Control(Box::new(*bhs), segment);
                self.tasks.keep(cmd_sn, request);
                false
            }
        }
    }

    fn on_nop_out(&mut self, now: Instant, nop: &NopOut, segment: &[u8]) {
        if nop.ttt.get() == PING_TAG {
            self.liveness = Liveness::Heard(now);
        }
        if nop.itt.get() != NO_TASK_TAG {
            let max = PING_LEN_MAX.min(self.parameters.send_segment_len_max as usize);
            let data = segment[..segment.len().min(max)].to_vec();
            let header = ReplyHeader {
                ttt: NO_TASK_TAG,
                lun: nop.lun,
                ..ReplyHeader::new(response::NOP_IN, nop.itt.get())
            };
            self.replies.push(header.encode(), data, Numbering::Status);
        }
    }

    fn on_logout<B: Backend>(&mut self, logout: &LogoutRequest, backend: &mut B) {
        const CLOSED: u8 = 0;
        const NO_CID: u8 = 1;
        const NO_RECOVERY: u8 = 2;
        // Whether this connection is among those that close.
        let (result, is_own) = match logout.reason & 0x7F {
            0 => {
                backend.end_others(None);
                (CLOSED, true)
            }
            1 if logout.cid == U16::new(self.cid) => (CLOSED, true),
            1 if backend.end_others(Some(logout.cid.get())) > 0 => (CLOSED, false),
            1 => (NO_CID, false),
            _ => (NO_RECOVERY, false),
        };
        let parameters = &self.parameters;
        let header = ReplyHeader {
            byte_2: result,
            ..ReplyHeader::new(response::LOGOUT, logout.itt.get())
        };
        let mut header = header.encode();
        header[40..42].copy_from_slice(&(parameters.time2wait_s as u16).to_be_bytes());
        header[42..44].copy_from_slice(&(parameters.time2retain_s as u16).to_be_bytes());
        self.fence(FencedKind::Logout(header, is_own), backend);
    }
}
