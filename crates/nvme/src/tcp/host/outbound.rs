//! What goes to the controller: ICReq, command capsules, answers to R2Ts, and the last word.

use block::ByteRange;
use session::{Placement, SendList};
use zerocopy::IntoBytes;
use zerocopy::little_endian::{U16, U32};

use super::table::{DataWay, Phase};
use super::{Hello, HostSession, State};
use crate::host::{BufferRange, Buffers, Transfer};
use crate::tcp::wire::{
    DIGEST_LEN_BYTES, DataPdu, Digest, HLEN_MAX_BYTES, IcReq, Layout, Pda, PduFlags, PduType,
    TermReq, Violation,
};
use crate::wire::Sqe;

/// An R2T that has not been answered in full.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) key: u16,
    pub(super) ttag: U16,
    /// The next byte to send, from the start of the command's data.
    pub(super) offset: u32,
    pub(super) left_bytes: u32,
}

/// A terminate connection request, ready to be sent.
#[derive(Debug)]
pub(super) struct PreparedTermReq {
    bytes: [u8; size_of::<TermReq>() + TermReq::DATA_MAX_BYTES],
    len: usize,
}

impl PreparedTermReq {
    pub(super) fn new(violation: Violation, offending: &[u8]) -> Self {
        let offending = &offending[..offending.len().min(TermReq::DATA_MAX_BYTES)];
        let term = TermReq::new(PduType::H2cTermReq, violation, offending.len());
        let header_len = size_of::<TermReq>();
        let mut word = Self {
            bytes: [0; size_of::<TermReq>() + TermReq::DATA_MAX_BYTES],
            len: header_len + offending.len(),
        };
        word.bytes[..header_len].copy_from_slice(term.as_bytes());
        word.bytes[header_len..word.len].copy_from_slice(offending);
        word
    }
}

/// Data up to this length are copied next to their header; longer ones are gathered from their
/// buffer.
pub(super) const COPY_MAX_BYTES: u32 = 4096;

/// Header, digest and padding before the data of one PDU: at most the largest alignment behind the
/// longest header.
const HEAD_MAX_BYTES: usize = HLEN_MAX_BYTES + Pda::MAX.bytes();

/// Parts of a list that one PDU takes: head, data, data digest.
const PDU_PARTS: usize = 3;

impl HostSession {
    pub(super) fn emit(&mut self, buffers: &Buffers, out: &mut SendList) {
        let before_bytes = out.len_bytes();
        self.emit_pdus(before_bytes, buffers, out);
        self.emitted_bytes += out.len_bytes() - before_bytes;
    }

    fn emit_pdus(&mut self, before_bytes: u64, buffers: &Buffers, out: &mut SendList) {
        if self.hello == Hello::Due {
            let hello = IcReq::new(Pda::default(), self.config.dgst, u32::from(Self::R2TS_MAX));
            if !out.push(hello.as_bytes()) {
                return;
            }
            self.hello = Hello::Emitted;
        }
        if let Some(word) = &self.term_req {
            if out.push(&word.bytes[..word.len]) {
                self.term_req = None;
            }
            return;
        }
        if self.state != State::Ready {
            return;
        }
        while let Some(answer) = self.answers.front_mut() {
            let len_bytes = answer.left_bytes.min(self.h2c_data_max_bytes);
            if !has_room(out, len_bytes) {
                return;
            }
            let entry = self.table.get_mut(answer.key);
            let is_last = len_bytes == answer.left_bytes;
            emit_h2c_data(
                self.to_controller,
                answer,
                entry.sqe.cid,
                entry.part(answer.offset, len_bytes),
                buffers,
                out,
            );
            entry.placed_until_bytes = self.emitted_bytes + (out.len_bytes() - before_bytes);
            if is_last {
                entry.open_r2ts -= 1;
                self.answers.pop_front();
            } else {
                answer.offset += len_bytes;
                answer.left_bytes -= len_bytes;
            }
        }
        while let Some(&key) = self.pending.front() {
            let entry = self.table.get_mut(key);
            let data = match (entry.transfer, entry.data_way) {
                (Transfer::ToController(range), DataWay::InCapsule) => Some(range),
                _ => None,
            };
            if !has_room(out, data.map_or(0, |range| range.len_bytes)) {
                return;
            }
            emit_capsule(self.to_controller, &entry.sqe, data, buffers, out);
            if data.is_some_and(|range| range.len_bytes > COPY_MAX_BYTES) {
                entry.placed_until_bytes = self.emitted_bytes + (out.len_bytes() - before_bytes);
            }
            entry.phase = Phase::Active;
            self.pending.pop_front();
        }
    }
}

/// Whether a PDU with `data_len_bytes` bytes of data surely fits.
fn has_room(out: &SendList, data_len_bytes: u32) -> bool {
    let copied_bytes = if data_len_bytes > COPY_MAX_BYTES {
        0
    } else {
        data_len_bytes as usize
    };
    out.free_parts() >= PDU_PARTS
        && out.free_bytes() >= HEAD_MAX_BYTES + copied_bytes + DIGEST_LEN_BYTES
}

fn emit_capsule(
    layout: Layout,
    sqe: &Sqe,
    data: Option<BufferRange>,
    buffers: &Buffers,
    out: &mut SendList,
) {
    let data_len_bytes = data.map_or(0, |range| range.len_bytes);
    let ch = layout.common_header(PduType::CapsuleCmd, PduFlags::NONE, data_len_bytes);
    emit_head(
        layout,
        PduType::CapsuleCmd,
        [ch.as_bytes(), sqe.as_bytes()],
        data_len_bytes,
        out,
    );
    if let Some(range) = data {
        emit_data(layout, range, buffers, out);
    }
}

fn emit_h2c_data(
    layout: Layout,
    answer: &Answer,
    cccid: U16,
    range: BufferRange,
    buffers: &Buffers,
    out: &mut SendList,
) {
    let flags = if range.len_bytes == answer.left_bytes {
        PduFlags::LAST
    } else {
        PduFlags::NONE
    };
    let pdu = DataPdu {
        ch: layout.common_header(PduType::H2cData, flags, range.len_bytes),
        cccid,
        ttag: answer.ttag,
        datao: U32::new(answer.offset),
        datal: U32::new(range.len_bytes),
        reserved: [0; 4],
    };
    emit_head(
        layout,
        PduType::H2cData,
        [pdu.as_bytes(), &[]],
        range.len_bytes,
        out,
    );
    emit_data(layout, range, buffers, out);
}

/// Emits a header given in two pieces, its digest, and the padding before data.
fn emit_head(
    layout: Layout,
    pdu_type: PduType,
    header: [&[u8]; 2],
    data_len_bytes: u32,
    out: &mut SendList,
) {
    let head_len = if data_len_bytes > 0 {
        layout.data_offset_bytes(pdu_type)
    } else {
        layout.header_bytes(pdu_type)
    };
    let room = out
        .reserve(head_len)
        .expect("has_room was asked for the longest head");
    let hlen = pdu_type.hlen_bytes();
    let (first, second) = room[..hlen].split_at_mut(header[0].len());
    first.copy_from_slice(header[0]);
    second.copy_from_slice(header[1]);
    let (head, tail) = room.split_at_mut(hlen);
    tail.fill(0);
    if layout.dgst.header() {
        tail[..DIGEST_LEN_BYTES].copy_from_slice(&Digest::of(head).to_wire());
    }
}

/// Emits data and their digest.
fn emit_data(layout: Layout, range: BufferRange, buffers: &Buffers, out: &mut SendList) {
    if range.len_bytes == 0 {
        return;
    }
    let data = buffers.range(range);
    let fitted = if range.len_bytes > COPY_MAX_BYTES {
        out.place(Placement {
            source: HostSession::SOURCE,
            range: ByteRange {
                offset: buffers.offset(range),
                len: u64::from(range.len_bytes),
            },
        })
    } else {
        // Copied, since one more part costs the operating system more than these few bytes.
        out.push(data)
    };
    assert!(fitted, "has_room was asked for these data");
    if layout.dgst.data() {
        let fitted = out.push(&Digest::of(data).to_wire());
        assert!(fitted, "has_room was asked for the digest");
    }
}
