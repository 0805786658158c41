//! From bytes to PDUs, in any chunking, and from PDUs to commands and data.
//!
//! A header that is complete in the input is parsed in place; a header that is split is assembled
//! first. Data are passed to the queue straight from the input. With data digests, data of a PDU
//! that is split are assembled, since nothing is executed before its digest was checked.

use std::time::Instant;

use zerocopy::FromBytes;

use super::{ControllerSession, SessionError, Stage};
use crate::controller::{Backend, Begun, DataPointer, SlotId};
use crate::tcp::wire::{
    CapsuleCmd, CommonHeader, DIGEST_LEN_BYTES, DataPdu, Dgst, Digest, Fes, HLEN_MAX_BYTES, IcReq,
    Layout, PFV, Pda, PduShape, PduType, Receiver as Receives, TermReq, Violation,
};
use crate::wire::{SglKind, Sqe, StatusCode};

const CH_BYTES: usize = size_of::<CommonHeader>();

/// Where in the stream of PDUs a connection is.
#[derive(Debug)]
pub(super) struct Receiver {
    /// The header of the PDU that is being received, as far as it was put together; after a
    /// violation, that of the PDU in error.
    header: [u8; HLEN_MAX_BYTES + DIGEST_LEN_BYTES],
    header_len: usize,
    body: Option<Body>,
    /// Data of a PDU that were cut, where a digest follows.
    cut: Vec<u8>,
    /// Commands with little data that have come in this turn. Those with more spend their time in
    /// the system's copying, of which many at a time are better.
    short_commands: usize,
}

/// The rest of a PDU whose header is done.
#[derive(Clone, Copy, Debug)]
struct Body {
    shape: PduShape,
    /// Bytes of the PDU so far.
    at: usize,
    sink: Sink,
    digest: [u8; DIGEST_LEN_BYTES],
}

/// Where the data of a PDU go.
#[derive(Clone, Copy, Debug)]
pub(super) enum Sink {
    /// Nowhere.
    Discard,
    /// To a command; they are all of its data.
    Capsule(SlotId),
    /// To a command; an R2T requested them.
    Transfer(SlotId),
}

impl Default for Receiver {
    fn default() -> Self {
        Self {
            header: [0; HLEN_MAX_BYTES + DIGEST_LEN_BYTES],
            header_len: 0,
            body: None,
            cut: Vec::new(),
            short_commands: 0,
        }
    }
}

impl Receiver {
    /// The header of the PDU in error, digest not counted, as far as it is known.
    pub(super) fn offending_header(&self) -> &[u8] {
        &self.header[..self.header_len.min(TermReq::DATA_MAX_BYTES)]
    }

    /// Keeps `header` for a termination.
    fn keep(&mut self, header: &[u8]) {
        let len = header.len().min(self.header.len());
        self.header[..len].copy_from_slice(&header[..len]);
        self.header_len = len;
    }

    /// Takes bytes from `input` until `len` bytes of the header are there; whether they are.
    fn fill(&mut self, input: &mut &[u8], len: usize) -> bool {
        let take = input.len().min(len.saturating_sub(self.header_len));
        let (now, rest) = input.split_at(take);
        self.header[self.header_len..self.header_len + take].copy_from_slice(now);
        self.header_len += take;
        *input = rest;
        self.header_len >= len
    }
}

impl<B: Backend> ControllerSession<B> {
    pub(super) fn receive(
        &mut self,
        now: Instant,
        input: &[u8],
        backend: &mut B,
    ) -> Result<(), SessionError> {
        self.queue.start_turn(now);
        self.receiver.short_commands = 0;
        let result = self.receive_all(input, backend);
        self.pace.note(input.len(), self.receiver.short_commands);
        result
    }

    fn receive_all(&mut self, input: &[u8], backend: &mut B) -> Result<(), SessionError> {
        let mut rest = input;
        let mut ahead = Ahead::default();
        loop {
            if self.receiver.body.is_none() && self.receiver.header_len == 0 {
                let at = input.len() - rest.len();
                let queue = &self.queue;
                ahead.look(at, input, |sqe, has_data| {
                    queue.prefetch(sqe, has_data, backend);
                });
            }
            if let Some(body) = self.receiver.body {
                if !self.take_body(body, &mut rest, backend) {
                    return Ok(());
                }
            } else if rest.is_empty() || !self.take_header(&mut rest, backend)? {
                return Ok(());
            }
        }
    }

    /// Takes the header of the next PDU from `input`; `false` if it has not come whole.
    fn take_header(&mut self, input: &mut &[u8], backend: &mut B) -> Result<bool, SessionError> {
        if self.receiver.header_len == 0 && input.len() >= CH_BYTES {
            let (ch, _) = CommonHeader::read_from_prefix(input).expect("8 bytes are there");
            let shape = self.check_shape(ch, &input[..CH_BYTES])?;
            if let Some((header, rest)) = input.split_at_checked(shape.header_bytes) {
                *input = rest;
                let result = self.on_header(shape, header, backend);
                if result.is_err() {
                    self.receiver.keep(&header[..shape.pdu_type.hlen_bytes()]);
                }
                return result.map(|()| true);
            }
        }
        if !self.receiver.fill(input, CH_BYTES) {
            return Ok(false);
        }
        let header = self.receiver.header;
        let (ch, _) = CommonHeader::read_from_prefix(&header).expect("8 bytes are there");
        let shape = self.check_shape(ch, &header[..CH_BYTES])?;
        if !self.receiver.fill(input, shape.header_bytes) {
            return Ok(false);
        }
        let header = self.receiver.header;
        let result = self.on_header(shape, &header[..shape.header_bytes], backend);
        self.receiver.header_len = match result {
            Ok(()) => 0,
            Err(_) => shape.pdu_type.hlen_bytes(),
        };
        result.map(|()| true)
    }

    fn check_shape(&mut self, ch: CommonHeader, bytes: &[u8]) -> Result<PduShape, Violation> {
        let result = ch.shape(Receives::Controller, self.incoming);
        if result.is_err() {
            self.receiver.keep(bytes);
        }
        result
    }

    /// Checks a complete header and its digest.
    fn on_header(
        &mut self,
        shape: PduShape,
        header: &[u8],
        backend: &mut B,
    ) -> Result<(), SessionError> {
        check_header_digest(shape, header)?;
        let sink = match (shape.pdu_type, self.stage) {
            (PduType::H2cTermReq, _) => return Err(on_term(header)),
            (PduType::IcReq, Stage::Started) => {
                self.on_icreq(header)?;
                Sink::Discard
            }
            (PduType::CapsuleCmd, Stage::Ready) => self.on_capsule(shape, header, backend)?,
            (PduType::H2cData, Stage::Ready) => self.on_h2c_data(shape, header)?,
            _ => {
                return Err(SessionError::Violation(Violation {
                    fes: Fes::PduSequenceError,
                    fei: 0,
                }));
            }
        };
        if shape.plen_bytes() > shape.header_bytes {
            self.receiver.body = Some(Body {
                shape,
                at: shape.header_bytes,
                sink,
                digest: [0; DIGEST_LEN_BYTES],
            });
        }
        Ok(())
    }

    fn on_icreq(&mut self, header: &[u8]) -> Result<(), Violation> {
        let unsupported = |fei| Violation {
            fes: Fes::UnsupportedParameter,
            fei,
        };
        let invalid = |fei| Violation {
            fes: Fes::InvalidPduHeaderField,
            fei,
        };
        let icreq = IcReq::ref_from_bytes(header).expect("the shape fixes the length");
        if icreq.pfv.get() != PFV {
            return Err(unsupported(IcReq::OFFSET_PFV));
        }
        if icreq.hpda > Pda::MAX {
            return Err(invalid(IcReq::OFFSET_HPDA));
        }
        if icreq.dgst.has_reserved() {
            return Err(invalid(IcReq::OFFSET_DGST));
        }
        let dgst = Dgst(icreq.dgst.0 & self.config.dgst.0);
        let cpda = self.config.cpda;
        self.incoming = Layout { dgst, pda: cpda };
        let outgoing = Layout {
            dgst,
            pda: icreq.hpda,
        };
        self.transmitter
            .accept(outgoing, cpda, self.config.maxh2cdata_bytes);
        self.transfers.set_r2ts_max(icreq.r2ts_max());
        self.stage = Stage::Ready;
        Ok(())
    }

    fn on_capsule(
        &mut self,
        shape: PduShape,
        header: &[u8],
        backend: &mut B,
    ) -> Result<Sink, SessionError> {
        let (capsule, _) = CapsuleCmd::ref_from_prefix(header).expect("the shape fixes the length");
        let data_len = shape.data_len_bytes as u64;
        if data_len > u64::from(self.queue.in_capsule_max_bytes()) {
            return Err(SessionError::Violation(Violation {
                fes: Fes::LimitExceeded,
                fei: 0,
            }));
        }
        let sqe = Sqe::ref_from_bytes(&capsule.sqe).expect("an entry has 64 bytes");
        let pointer = data_pointer(sqe, data_len);
        if pointer.is_ok_and(|data| data.len_bytes() < self.config.place_min_bytes) {
            self.receiver.short_commands += 1;
        }
        let begun = self.queue.begin(sqe, pointer, backend)?;
        Ok(self.bring_data(begun))
    }

    /// Asks for the data of a command where the host sends them only then.
    pub(super) fn bring_data(&mut self, begun: Begun) -> Sink {
        match begun {
            Begun::Receive {
                slot,
                pointer: DataPointer::InCapsule { .. },
            } => Sink::Capsule(slot),
            Begun::Receive {
                slot,
                pointer: DataPointer::Remote { len_bytes },
            } => {
                self.transfers
                    .begin(slot, len_bytes, self.queue.slots_len());
                Sink::Discard
            }
            Begun::Done => Sink::Discard,
        }
    }

    fn on_h2c_data(&mut self, shape: PduShape, header: &[u8]) -> Result<Sink, Violation> {
        let (pdu, _) = DataPdu::ref_from_prefix(header).expect("the shape fixes the length");
        if shape.data_len_bytes > self.config.maxh2cdata_bytes as usize {
            return Err(Violation {
                fes: Fes::LimitExceeded,
                fei: 0,
            });
        }
        let queue = &self.queue;
        let slot = self
            .transfers
            .check(pdu, shape.data_len_bytes, |slot| queue.receiving(slot))?;
        Ok(Sink::Transfer(slot))
    }

    /// Takes more of a PDU's rest from `input`; whether all of it has come.
    fn take_body(&mut self, mut body: Body, input: &mut &[u8], backend: &mut B) -> bool {
        let shape = body.shape;
        let padding = shape.data_offset_bytes.saturating_sub(body.at);
        body.at += take(input, padding).len();
        let data_end = shape.data_offset_bytes + shape.data_len_bytes;
        if body.at >= shape.data_offset_bytes {
            let data = take(input, data_end.saturating_sub(body.at));
            body.at += data.len();
            if shape.data_digest_bytes == 0 {
                self.on_data(body.sink, data, backend);
            } else {
                self.on_digested(&mut body, data, input, backend);
            }
        }
        if body.at < shape.plen_bytes() {
            self.receiver.body = Some(body);
            return false;
        }
        self.receiver.body = None;
        self.on_pdu_end(body, backend);
        true
    }

    fn on_data(&mut self, sink: Sink, data: &[u8], backend: &mut B) {
        match sink {
            Sink::Capsule(slot) | Sink::Transfer(slot) if !data.is_empty() => {
                self.queue.data(slot, data, backend);
            }
            _ => {}
        }
    }

    /// `data` are the next of a PDU whose data digest follows: they are put together unless they
    /// are all.
    fn on_digested(&mut self, body: &mut Body, data: &[u8], input: &mut &[u8], backend: &mut B) {
        let shape = body.shape;
        let data_end = shape.data_offset_bytes + shape.data_len_bytes;
        let digest_at = body.at - data_end.min(body.at);
        let digest: &[u8] = if body.at >= data_end {
            take(input, DIGEST_LEN_BYTES - digest_at)
        } else {
            &[]
        };
        body.digest[digest_at..digest_at + digest.len()].copy_from_slice(digest);
        body.at += digest.len();
        let is_whole = body.at == shape.plen_bytes();
        if is_whole && data.len() == shape.data_len_bytes {
            return self.on_digest(*body, data, backend);
        }
        self.receiver.cut.extend_from_slice(data);
        if is_whole {
            let mut cut = std::mem::take(&mut self.receiver.cut);
            self.on_digest(*body, &cut, backend);
            cut.clear();
            self.receiver.cut = cut;
        }
    }

    fn on_digest(&mut self, body: Body, data: &[u8], backend: &mut B) {
        let (Sink::Capsule(slot) | Sink::Transfer(slot)) = body.sink else {
            return;
        };
        if Digest::of(data) == Digest::from_wire(body.digest) {
            self.queue.data(slot, data, backend);
        } else {
            self.queue.data_lost(slot);
        }
    }

    fn on_pdu_end(&mut self, body: Body, backend: &mut B) {
        match body.sink {
            Sink::Discard => {}
            Sink::Capsule(slot) => self.queue.data_done(slot, backend),
            Sink::Transfer(slot) => {
                let len_bytes = body.shape.data_len_bytes as u32;
                if self.transfers.received(slot, len_bytes) {
                    self.queue.data_done(slot, backend);
                }
            }
        }
    }
}

/// Prefetches the memory that capsules further on in the input write.
#[derive(Clone, Copy, Debug, Default)]
struct Ahead {
    /// Where in the input the next PDU is that was not looked at.
    at: usize,
    /// PDUs that were looked at and have not been taken.
    count: usize,
}

impl Ahead {
    /// The number of PDUs to prefetch for.
    const PDUS_MAX: usize = 8;

    /// The next PDU is at `at`: gives commands behind it to `each`, and whether they have data in
    /// their capsule.
    fn look(&mut self, at: usize, input: &[u8], mut each: impl FnMut(&Sqe, bool)) {
        self.count = self.count.saturating_sub(1);
        if self.at <= at {
            *self = Self { at, count: 0 };
        }
        while self.count < Self::PDUS_MAX {
            let Ok((capsule, _)) = CapsuleCmd::ref_from_prefix(&input[self.at..]) else {
                return;
            };
            let plen = capsule.ch.plen.get() as usize;
            if capsule.ch.pdu_type == PduType::CapsuleCmd as u8 {
                let sqe = Sqe::ref_from_bytes(&capsule.sqe).expect("an entry has 64 bytes");
                each(sqe, plen > size_of::<CapsuleCmd>());
            }
            let is_whole = plen >= CH_BYTES && plen <= input.len() - self.at;
            self.at = if is_whole {
                self.at + plen
            } else {
                input.len()
            };
            self.count += 1;
        }
    }
}

/// Takes up to `len` bytes off the front.
fn take<'a>(input: &mut &'a [u8], len: usize) -> &'a [u8] {
    let (taken, rest) = input.split_at(len.min(input.len()));
    *input = rest;
    taken
}

fn check_header_digest(shape: PduShape, header: &[u8]) -> Result<(), Violation> {
    match header[shape.pdu_type.hlen_bytes()..].first_chunk() {
        None => Ok(()),
        Some(came) => {
            let came = Digest::from_wire(*came);
            if Digest::of(&header[..shape.pdu_type.hlen_bytes()]) == came {
                return Ok(());
            }
            Err(Violation {
                fes: Fes::HeaderDigestError,
                fei: came.get(),
            })
        }
    }
}

fn on_term(header: &[u8]) -> SessionError {
    let (term, _) = TermReq::ref_from_prefix(header).expect("the shape fixes the length");
    SessionError::Terminated {
        fes: term.fes.get(),
        fei: term.fei.get(),
    }
}

/// What a command's SGL descriptor means here; `data_len` bytes follow in the capsule.
fn data_pointer(sqe: &Sqe, data_len: u64) -> Result<DataPointer, StatusCode> {
    match sqe.sgl1.kind() {
        SglKind::Transport { len_bytes } => Ok(DataPointer::Remote { len_bytes }),
        SglKind::InCapsule { offset, .. } if offset != 0 => Err(StatusCode::SglOffsetInvalid),
        SglKind::InCapsule { len_bytes, .. } if u64::from(len_bytes) != data_len => {
            Err(StatusCode::DataSglLengthInvalid)
        }
        SglKind::InCapsule { len_bytes, .. } => Ok(DataPointer::InCapsule { len_bytes }),
        SglKind::Keyed { .. } | SglKind::LastSegment { .. } | SglKind::Other(_) => {
            Err(StatusCode::SglDescriptorTypeInvalid)
        }
    }
}
