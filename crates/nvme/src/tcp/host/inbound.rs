//! What the controller sends: PDUs in any chunking, each field checked before it is used.

use zerocopy::FromBytes;

use super::table::{DataVerdict, DataWay};
use super::{HostError, HostSession, State, invalid_field};
use crate::host::{BufferRange, Buffers, CommandKey, Outcome, Transfer};
use crate::tcp::wire::{
    CapsuleResp, CommonHeader, DIGEST_LEN_BYTES, DataPdu, Dgst, Digest, Fes, HLEN_MAX_BYTES,
    IcResp, Layout, MAXH2CDATA_MIN_BYTES, PFV, Pda, PduFlags, PduShape, PduType, R2t, Receiver,
    TermReq, Violation,
};
use crate::wire::{Cqe, Status, StatusCode};

/// The longest that is kept of a PDU that has not fully arrived: the longest header and its digest.
const STASH_BYTES: usize = HLEN_MAX_BYTES + DIGEST_LEN_BYTES;

/// The PDU that is arriving.
#[derive(Debug)]
pub(super) struct Inbound {
    stash: [u8; STASH_BYTES],
    stash_len: usize,
    payload: Option<Payload>,
}

/// The part of a C2HData that follows its header.
#[derive(Debug)]
struct Payload {
    key: u16,
    flags: PduFlags,
    /// Padding before the data.
    padding_bytes: usize,
    /// Where the rest of the data belongs.
    dest: BufferRange,
    digest: Digest,
    trailer: [u8; DIGEST_LEN_BYTES],
    trailer_len: usize,
    /// Length of the data digest: 4 or 0.
    trailer_bytes: usize,
}

/// Offsets of fields, for the fatal error information of a termination.
const OFFSET_TYPE: u32 = 0;
const OFFSET_FLAGS: u32 = 1;
const OFFSET_IC_PFV: u32 = 8;
const OFFSET_IC_CPDA: u32 = 10;
const OFFSET_IC_DGST: u32 = 11;
const OFFSET_IC_MAXH2CDATA: u32 = 12;
const OFFSET_CQE_CID: u32 = 8 + 12;

impl Default for Inbound {
    fn default() -> Self {
        Self {
            stash: [0; STASH_BYTES],
            stash_len: 0,
            payload: None,
        }
    }
}

impl Inbound {
    pub(super) fn in_payload(&self) -> bool {
        self.payload.is_some()
    }

    pub(super) fn direct(&self) -> Option<BufferRange> {
        let payload = self.payload.as_ref()?;
        (payload.padding_bytes == 0 && payload.dest.len_bytes >= HostSession::BULK_MIN_BYTES / 4)
            .then_some(payload.dest)
    }
}

impl HostSession {
    /// Handles bytes at a PDU's start or inside its header. Returns the rest of the input.
    pub(super) fn on_header_bytes<'a>(
        &mut self,
        input: &'a [u8],
        done: &mut Vec<Outcome>,
    ) -> Result<&'a [u8], HostError> {
        if self.inbound.stash_len == 0 && input.len() >= size_of::<CommonHeader>() {
            let shape = self.shape(input)?;
            if let Some((header, rest)) = input.split_at_checked(shape.header_bytes) {
                self.on_pdu(header, shape, done)?;
                return Ok(rest);
            }
        }
        let wanted_bytes = if self.inbound.stash_len < size_of::<CommonHeader>() {
            size_of::<CommonHeader>()
        } else {
            let stash = self.inbound.stash;
            self.shape(&stash[..self.inbound.stash_len])?.header_bytes
        };
        let take = (wanted_bytes - self.inbound.stash_len).min(input.len());
        let (head, rest) = input.split_at(take);
        let at = self.inbound.stash_len;
        self.inbound.stash[at..at + take].copy_from_slice(head);
        self.inbound.stash_len += take;
        self.on_stash(done)?;
        Ok(rest)
    }

    /// Handles the stashed header if it is complete.
    fn on_stash(&mut self, done: &mut Vec<Outcome>) -> Result<(), HostError> {
        if self.inbound.stash_len < size_of::<CommonHeader>() {
            return Ok(());
        }
        let stash = self.inbound.stash;
        let header = &stash[..self.inbound.stash_len];
        let shape = self.shape(header)?;
        if header.len() < shape.header_bytes {
            return Ok(());
        }
        self.inbound.stash_len = 0;
        self.on_pdu(header, shape, done)
    }

    fn shape(&mut self, header: &[u8]) -> Result<PduShape, HostError> {
        let ch = CommonHeader::read_from_prefix(header)
            .map_or_else(|_| unreachable!("8 bytes are there"), |(ch, _)| ch);
        ch.shape(Receiver::Host, self.to_host)
            .map_err(|violation| self.violated(&header[..size_of::<CommonHeader>()], violation))
    }

    /// A PDU whose header, and digest of it, are `header`.
    fn on_pdu(
        &mut self,
        header: &[u8],
        shape: PduShape,
        done: &mut Vec<Outcome>,
    ) -> Result<(), HostError> {
        let hlen = shape.pdu_type.hlen_bytes();
        if shape.header_bytes > hlen {
            self.check_header_digest(header, hlen)?;
        }
        let header = &header[..hlen];
        match (self.state, shape.pdu_type) {
            (_, PduType::C2hTermReq) => Err(self.on_term_req(header)),
            (State::AwaitIcResp, PduType::IcResp) => self.on_ic_resp(header),
            (State::Ready, PduType::CapsuleResp) => self.on_response(header, done),
            (State::Ready, PduType::C2hData) => self.on_data(header, shape),
            (State::Ready, PduType::R2t) => self.on_r2t(header),
            _ => Err(self.violated(
                header,
                Violation {
                    fes: Fes::PduSequenceError,
                    fei: OFFSET_TYPE,
                },
            )),
        }
    }

    fn check_header_digest(&mut self, header: &[u8], hlen: usize) -> Result<(), HostError> {
        let (header, digest) = header.split_at(hlen);
        let came = digest
            .try_into()
            .map_or_else(|_| unreachable!("a digest has 4 bytes"), Digest::from_wire);
        if Digest::of(header) == came {
            return Ok(());
        }
        Err(self.violated(
            header,
            Violation {
                fes: Fes::HeaderDigestError,
                fei: came.get(),
            },
        ))
    }

    fn on_term_req(&mut self, header: &[u8]) -> HostError {
        self.state = State::Closed;
        let term: TermReq = parse(header);
        HostError::Terminated {
            fes: term.fes.get(),
            fei: term.fei.get(),
        }
    }

    fn on_ic_resp(&mut self, header: &[u8]) -> Result<(), HostError> {
        let terms: IcResp = parse(header);
        let h2c_data_max_bytes = terms.maxh2cdata.get();
        let wrong = if terms.pfv.get() != PFV {
            Some(OFFSET_IC_PFV)
        } else if terms.cpda.0 > Pda::MAX.0 {
            Some(OFFSET_IC_CPDA)
        } else if terms.dgst.has_reserved() {
            Some(OFFSET_IC_DGST)
        } else if h2c_data_max_bytes < MAXH2CDATA_MIN_BYTES || !h2c_data_max_bytes.is_multiple_of(4)
        {
            Some(OFFSET_IC_MAXH2CDATA)
        } else {
            None
        };
        if let Some(offset) = wrong {
            return Err(self.violated(header, invalid_field(offset)));
        }
        if terms.dgst != self.config.dgst {
            self.state = State::Closed;
            return Err(HostError::Digests {
                asked: self.config.dgst,
                used: terms.dgst,
            });
        }
        self.state = State::Ready;
        self.h2c_data_max_bytes = h2c_data_max_bytes;
        self.to_controller = Layout {
            dgst: terms.dgst,
            pda: terms.cpda,
        };
        self.to_host.dgst = Dgst(terms.dgst.0);
        Ok(())
    }

    fn on_response(&mut self, header: &[u8], done: &mut Vec<Outcome>) -> Result<(), HostError> {
        let capsule: CapsuleResp = parse(header);
        let cqe: Cqe = zerocopy::transmute!(capsule.cqe);
        let Some((key, entry)) = self.table.find(cqe.cid().0) else {
            return Err(self.violated(header, invalid_field(OFFSET_CQE_CID)));
        };
        let mut status = cqe.status();
        if status.is_success() {
            // Success without all the data would leave old bytes in the caller's buffer.
            if !entry.has_all_data() {
                return Err(self.violated(
                    header,
                    Violation {
                        fes: Fes::PduSequenceError,
                        fei: OFFSET_TYPE,
                    },
                ));
            }
            status = judged(entry.data_verdict);
        }
        let outcome = Outcome {
            key: CommandKey(key),
            status,
            result: cqe.result.get(),
        };
        self.end(key, outcome, done);
        Ok(())
    }

    fn on_data(&mut self, header: &[u8], shape: PduShape) -> Result<(), HostError> {
        let pdu: DataPdu = parse(header);
        let Some((key, entry)) = self.table.find(pdu.cccid.get()) else {
            return Err(self.violated(header, invalid_field(DataPdu::OFFSET_CCCID)));
        };
        let datal = pdu.datal.get();
        let violation = if !matches!(entry.transfer, Transfer::ToHost(_)) {
            Some(invalid_field(DataPdu::OFFSET_CCCID))
        } else if datal as usize != shape.data_len_bytes || datal == 0 {
            Some(invalid_field(DataPdu::OFFSET_DATAL))
        } else if pdu.datao.get() != entry.moved_bytes {
            Some(out_of_range(DataPdu::OFFSET_DATAO))
        } else if datal > entry.len_bytes() - entry.moved_bytes {
            Some(out_of_range(DataPdu::OFFSET_DATAL))
        } else if pdu.ch.flags.contains(PduFlags::SUCCESS) {
            let is_last = pdu.ch.flags.contains(PduFlags::LAST);
            let is_all = entry.moved_bytes + datal == entry.len_bytes();
            (!(is_last && is_all)).then_some(invalid_field(OFFSET_FLAGS))
        } else {
            None
        };
        if let Some(violation) = violation {
            return Err(self.violated(header, violation));
        }
        let dest = entry.part(entry.moved_bytes, datal);
        entry.moved_bytes += datal;
        self.inbound.payload = Some(Payload {
            key,
            flags: pdu.ch.flags,
            padding_bytes: shape.data_offset_bytes - shape.header_bytes,
            dest,
            digest: Digest::default(),
            trailer: [0; DIGEST_LEN_BYTES],
            trailer_len: 0,
            trailer_bytes: shape.data_digest_bytes,
        });
        Ok(())
    }

    fn on_r2t(&mut self, header: &[u8]) -> Result<(), HostError> {
        let r2t: R2t = parse(header);
        let Some((key, entry)) = self.table.find(r2t.cccid.get()) else {
            return Err(self.violated(header, invalid_field(R2t::OFFSET_CCCID)));
        };
        let (offset, len_bytes) = (r2t.r2to.get(), r2t.r2tl.get());
        let end = u64::from(offset) + u64::from(len_bytes);
        let by_r2t =
            matches!(entry.transfer, Transfer::ToController(_)) && entry.data_way == DataWay::ByR2t;
        let violation = if !by_r2t {
            Some(invalid_field(R2t::OFFSET_CCCID))
        } else if len_bytes == 0 {
            Some(invalid_field(R2t::OFFSET_R2TL))
        } else if offset != entry.moved_bytes {
            Some(out_of_range(R2t::OFFSET_R2TO))
        } else if end > u64::from(entry.len_bytes()) {
            Some(out_of_range(R2t::OFFSET_R2TL))
        } else if entry.open_r2ts >= Self::R2TS_MAX {
            Some(Violation {
                fes: Fes::LimitExceeded,
                fei: OFFSET_TYPE,
            })
        } else {
            None
        };
        if let Some(violation) = violation {
            return Err(self.violated(header, violation));
        }
        entry.moved_bytes = end as u32;
        entry.open_r2ts += 1;
        self.answers.push_back(super::Answer {
            key,
            ttag: r2t.ttag,
            offset,
            left_bytes: len_bytes,
        });
        Ok(())
    }

    /// Handles bytes of a C2HData's data, of the padding before them or the digest after them.
    /// Returns the rest of the input.
    pub(super) fn on_payload<'a>(
        &mut self,
        input: &'a [u8],
        buffers: &mut Buffers,
        done: &mut Vec<Outcome>,
    ) -> &'a [u8] {
        let Some(payload) = &mut self.inbound.payload else {
            return input;
        };
        let padding_bytes = payload.padding_bytes.min(input.len());
        payload.padding_bytes -= padding_bytes;
        let rest = &input[padding_bytes..];
        let (data, rest) = rest.split_at(rest.len().min(payload.dest.len_bytes as usize));
        if !data.is_empty() {
            let len_bytes = data.len() as u32;
            // Copied, since it arrived together with other PDUs; long data are received in place.
            buffers
                .range_mut(BufferRange {
                    len_bytes,
                    ..payload.dest
                })
                .copy_from_slice(data);
            payload.take(data);
        }
        let missing = payload.trailer_bytes - payload.trailer_len;
        let (trailer, rest) = rest.split_at(rest.len().min(missing));
        let at = payload.trailer_len;
        payload.trailer[at..at + trailer.len()].copy_from_slice(trailer);
        payload.trailer_len += trailer.len();
        self.finish_payload(done);
        rest
    }

    pub(super) fn on_placed(&mut self, len_bytes: u32, buffers: &Buffers, done: &mut Vec<Outcome>) {
        let Some(payload) = &mut self.inbound.payload else {
            panic!("only data that direct() asked for are received in place");
        };
        assert!(
            len_bytes <= payload.dest.len_bytes,
            "no more than fits was received in place"
        );
        let placed = BufferRange {
            len_bytes,
            ..payload.dest
        };
        payload.take(buffers.range(placed));
        self.finish_payload(done);
    }

    /// Completes the arriving C2HData if all of it has been received.
    fn finish_payload(&mut self, done: &mut Vec<Outcome>) {
        let Some(payload) = &self.inbound.payload else {
            return;
        };
        if payload.padding_bytes > 0
            || payload.dest.len_bytes > 0
            || payload.trailer_len < payload.trailer_bytes
        {
            return;
        }
        let (key, flags) = (payload.key, payload.flags);
        let is_sound =
            payload.trailer_bytes == 0 || payload.digest == Digest::from_wire(payload.trailer);
        self.inbound.payload = None;
        let entry = self.table.get_mut(key);
        if !is_sound {
            entry.data_verdict = DataVerdict::DigestError;
        }
        if flags.contains(PduFlags::SUCCESS) {
            let outcome = Outcome {
                key: CommandKey(key),
                status: judged(entry.data_verdict),
                result: 0,
            };
            self.end(key, outcome, done);
        }
    }
}

impl Payload {
    /// `data` are at their place.
    fn take(&mut self, data: &[u8]) {
        if self.trailer_bytes > 0 {
            self.digest.update(data);
        }
        self.dest.offset += data.len() as u32;
        self.dest.len_bytes -= data.len() as u32;
    }
}

/// The status of a command that succeeded as far as the controller knows.
fn judged(verdict: DataVerdict) -> Status {
    match verdict {
        DataVerdict::Sound => Status::SUCCESS,
        DataVerdict::DigestError => StatusCode::TransientTransportError.into(),
    }
}

const fn out_of_range(offset: u32) -> Violation {
    Violation {
        fes: Fes::DataTransferOutOfRange,
        fei: offset,
    }
}

/// The header of a PDU whose type has been found, as its structure.
fn parse<T: FromBytes>(header: &[u8]) -> T {
    T::read_from_bytes(header)
        .unwrap_or_else(|_| unreachable!("the type fixes the header's length, which was checked"))
}
