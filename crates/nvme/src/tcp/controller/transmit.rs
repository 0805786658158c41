//! From ready commands to PDUs, written straight into the send list.

use std::time::Instant;

use session::SendList;
use zerocopy::IntoBytes;
use zerocopy::little_endian::{U16, U32};

use super::transfer::{Ask, Transfers};
use crate::controller::{Backend, Payload, Queue, SqFlow};
use crate::tcp::wire::{
    CapsuleResp, DIGEST_LEN_BYTES, DataPdu, Digest, IcResp, Layout, Pda, PduFlags, PduType, R2t,
    TermReq, Violation,
};
use crate::wire::Cid;

/// The most bytes of one C2HData that is copied.
const COPY_MAX_BYTES: u32 = 64 << 10;
/// The most bytes of one C2HData that is placed.
const PLACE_MAX_BYTES: u32 = 1 << 20;
/// Header, digest and padding of a C2HData at most, its data digest, and a response.
const OVERHEAD_MAX_BYTES: usize = 128 + DIGEST_LEN_BYTES + RESPONSE_MAX_BYTES;
const RESPONSE_MAX_BYTES: usize = size_of::<CapsuleResp>() + DIGEST_LEN_BYTES;

/// What a send list has to have room for, so that there always is progress.
pub(super) const SEND_LIST_MIN_BYTES: usize = COPY_MAX_BYTES as usize + OVERHEAD_MAX_BYTES;

/// What is to be sent besides the queue's ready commands.
#[derive(Debug)]
pub(super) struct Transmitter {
    layout: Layout,
    place_min_bytes: u32,
    icresp: Option<IcResp>,
    term: Option<Term>,
    is_terminated: bool,
}

#[derive(Debug)]
struct Term {
    violation: Violation,
    header: [u8; TermReq::DATA_MAX_BYTES],
    header_len: usize,
}

impl Transmitter {
    pub(super) fn new(place_min_bytes: u32) -> Self {
        Self {
            layout: Layout::default(),
            place_min_bytes,
            icresp: None,
            term: None,
            is_terminated: false,
        }
    }

    /// Answers ICReq; from now on PDUs have this layout.
    pub(super) fn accept(&mut self, layout: Layout, cpda: Pda, maxh2cdata_bytes: u32) {
        self.layout = layout;
        self.icresp = Some(IcResp::new(cpda, layout.dgst, maxh2cdata_bytes));
    }

    /// Queues the C2HTermReq about the PDU that starts with `header`, the last output.
    pub(super) fn terminate(&mut self, violation: Violation, header: &[u8]) {
        let mut term = Term {
            violation,
            header: [0; TermReq::DATA_MAX_BYTES],
            header_len: header.len(),
        };
        term.header[..header.len()].copy_from_slice(header);
        self.term = Some(term);
        self.is_terminated = true;
    }

    /// Ends the session's output.
    pub(super) fn silence(&mut self) {
        self.icresp = None;
        self.is_terminated = true;
    }

    pub(super) fn wants(&self, queue: &Queue, transfers: &Transfers) -> bool {
        if self.is_terminated {
            return self.term.is_some();
        }
        self.icresp.is_some() || transfers.has_asks() || queue.has_ready()
    }

    /// Puts into `out` what fits.
    pub(super) fn poll<B: Backend>(
        &mut self,
        now: Instant,
        queue: &mut Queue,
        transfers: &mut Transfers,
        backend: &mut B,
        out: &mut SendList,
    ) {
        if let Some(icresp) = &self.icresp {
            if !out.push(icresp.as_bytes()) {
                return;
            }
            self.icresp = None;
        }
        if self.is_terminated {
            return self.poll_term(out);
        }
        while let Some(ask) = transfers.ask() {
            let Some(cid) = queue.receiving(ask.slot) else {
                unreachable!("only commands that await data have transfers");
            };
            if !self.push_r2t(cid, ask, out) {
                return;
            }
            transfers.asked();
        }
        while queue.has_ready() && self.push_front(now, queue, backend, out) {}
    }

    fn poll_term(&mut self, out: &mut SendList) {
        let Some(term) = &self.term else { return };
        let header = &term.header[..term.header_len];
        let pdu = TermReq::new(PduType::C2hTermReq, term.violation, header.len());
        if let Some(room) = out.reserve(size_of::<TermReq>() + header.len()) {
            let (start, rest) = room.split_at_mut(size_of::<TermReq>());
            start.copy_from_slice(pdu.as_bytes());
            rest.copy_from_slice(header);
            self.term = None;
        }
    }

    fn push_r2t(&self, cid: Cid, ask: Ask, out: &mut SendList) -> bool {
        let r2t = R2t {
            ch: self.layout.common_header(PduType::R2t, PduFlags::NONE, 0),
            cccid: U16::new(cid.0),
            ttag: U16::new(ask.ttag),
            r2to: U32::new(ask.offset_bytes),
            r2tl: U32::new(ask.len_bytes),
            reserved: [0; 4],
        };
        let Some(room) = out.reserve(self.layout.header_bytes(PduType::R2t)) else {
            return false;
        };
        write_header(r2t.as_bytes(), room);
        true
    }

    /// Sends as much as fits of the first ready command; whether anything was done about it.
    fn push_front<B: Backend>(
        &self,
        now: Instant,
        queue: &mut Queue,
        backend: &mut B,
        out: &mut SendList,
    ) -> bool {
        let may_elide = queue.sq_flow() == SqFlow::Disabled;
        let Some(front) = queue.front() else {
            return false;
        };
        let (cid, is_plain) = (front.cid, front.is_plain_success && may_elide);
        match front.payload {
            Payload::None => self.push_response(now, queue, backend, out),
            Payload::Blocks {
                done_bytes,
                len_bytes,
                may_place,
                ..
            } => {
                let piece = Piece {
                    cid,
                    offset_bytes: done_bytes,
                    left_bytes: len_bytes - done_bytes,
                    is_plain,
                };
                if may_place && len_bytes >= self.place_min_bytes && !self.layout.dgst.data() {
                    self.push_placed(now, piece, queue, backend, out)
                } else {
                    self.push_copied(now, piece, queue, backend, out)
                }
            }
            Payload::Reply { done_bytes, bytes } => {
                let piece = Piece {
                    cid,
                    offset_bytes: done_bytes,
                    left_bytes: bytes.len() as u32 - done_bytes,
                    is_plain,
                };
                let len_bytes = piece.left_bytes.min(COPY_MAX_BYTES);
                let start = done_bytes as usize;
                let data = &bytes[start..start + len_bytes as usize];
                let Some(room) = out.reserve(self.data_pdu_bytes(len_bytes)) else {
                    return false;
                };
                self.write_data_header(piece, len_bytes, room);
                let at = self.data_offset();
                room[at..at + data.len()].copy_from_slice(data);
                self.write_data_digest(len_bytes, room);
                queue.advance_front(len_bytes);
                piece.retire_if_elided(now, len_bytes, queue, backend);
                true
            }
        }
    }

    /// A C2HData whose data are copied out of the volume.
    fn push_copied<B: Backend>(
        &self,
        now: Instant,
        piece: Piece,
        queue: &mut Queue,
        backend: &mut B,
        out: &mut SendList,
    ) -> bool {
        let len_bytes = piece.left_bytes.min(COPY_MAX_BYTES);
        let pdu_bytes = self.data_pdu_bytes(len_bytes);
        let Some(room) = out.reserve(pdu_bytes) else {
            return false;
        };
        let at = self.data_offset();
        if queue
            .copy_front(&mut room[at..at + len_bytes as usize], backend)
            .is_err()
        {
            out.retract(pdu_bytes);
            return true;
        }
        self.write_data_header(piece, len_bytes, room);
        self.write_data_digest(len_bytes, room);
        piece.retire_if_elided(now, len_bytes, queue, backend);
        true
    }

    /// A C2HData whose data stay where they are until they are sent.
    fn push_placed<B: Backend>(
        &self,
        now: Instant,
        piece: Piece,
        queue: &mut Queue,
        backend: &mut B,
        out: &mut SendList,
    ) -> bool {
        let len_bytes = piece.left_bytes.min(PLACE_MAX_BYTES);
        let header_bytes = self.data_offset();
        if out.free_parts() < 2 {
            return false;
        }
        let Some(room) = out.reserve(header_bytes) else {
            return false;
        };
        self.write_data_header(piece, len_bytes, room);
        let Ok(placement) = queue.place_front(len_bytes, backend) else {
            out.retract(header_bytes);
            return true;
        };
        assert!(out.place(placement), "there was a part left for it");
        piece.retire_if_elided(now, len_bytes, queue, backend);
        true
    }

    fn push_response<B: Backend>(
        &self,
        now: Instant,
        queue: &mut Queue,
        backend: &mut B,
        out: &mut SendList,
    ) -> bool {
        let Some(room) = out.reserve(self.layout.header_bytes(PduType::CapsuleResp)) else {
            return false;
        };
        let cqe = queue
            .retire_front(now, backend)
            .expect("the caller has seen the front");
        let mut bytes = [0; 16];
        bytes.copy_from_slice(cqe.as_bytes());
        let response = CapsuleResp {
            ch: self
                .layout
                .common_header(PduType::CapsuleResp, PduFlags::NONE, 0),
            cqe: bytes,
        };
        write_header(response.as_bytes(), room);
        true
    }

    fn data_offset(&self) -> usize {
        self.layout.data_offset_bytes(PduType::C2hData)
    }

    /// The whole length of a C2HData.
    fn data_pdu_bytes(&self, len_bytes: u32) -> usize {
        let digest = if self.layout.dgst.data() {
            DIGEST_LEN_BYTES
        } else {
            0
        };
        self.data_offset() + len_bytes as usize + digest
    }

    /// Header, header digest and padding of a C2HData.
    fn write_data_header(&self, piece: Piece, len_bytes: u32, room: &mut [u8]) {
        let pdu = DataPdu {
            ch: self
                .layout
                .common_header(PduType::C2hData, piece.flags(len_bytes), len_bytes),
            cccid: U16::new(piece.cid.0),
            ttag: U16::ZERO,
            datao: U32::new(piece.offset_bytes),
            datal: U32::new(len_bytes),
            reserved: [0; 4],
        };
        let header_bytes = self.layout.header_bytes(PduType::C2hData);
        write_header(pdu.as_bytes(), &mut room[..header_bytes]);
        room[header_bytes..self.data_offset()].fill(0);
    }

    fn write_data_digest(&self, len_bytes: u32, room: &mut [u8]) {
        if self.layout.dgst.data() {
            let (pdu, digest) = room.split_at_mut(self.data_offset() + len_bytes as usize);
            let data = &pdu[self.data_offset()..];
            digest.copy_from_slice(&Digest::of(data).to_wire());
        }
    }
}

/// A header and, if there is room for it, its digest.
fn write_header(header: &[u8], room: &mut [u8]) {
    let (start, digest) = room.split_at_mut(header.len());
    start.copy_from_slice(header);
    if !digest.is_empty() {
        digest.copy_from_slice(&Digest::of(header).to_wire());
    }
}

/// What is left to be sent of a command's data.
#[derive(Clone, Copy)]
struct Piece {
    cid: Cid,
    offset_bytes: u32,
    left_bytes: u32,
    /// Whether the last of them may replace the response.
    is_plain: bool,
}

impl Piece {
    fn flags(self, len_bytes: u32) -> PduFlags {
        if len_bytes < self.left_bytes {
            PduFlags::NONE
        } else if self.is_plain {
            PduFlags::LAST | PduFlags::SUCCESS
        } else {
            PduFlags::LAST
        }
    }

    /// Completes the first ready command without a response where its last data said enough.
    fn retire_if_elided<B: Backend>(
        self,
        now: Instant,
        len_bytes: u32,
        queue: &mut Queue,
        backend: &mut B,
    ) {
        if self.flags(len_bytes).contains(PduFlags::SUCCESS) {
            queue.retire_front(now, backend);
        }
    }
}
