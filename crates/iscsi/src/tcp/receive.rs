//! From bytes to PDUs, in any chunking, with and without digests.
//!
//! Read first: RFC 7143 §11.2 (PDU template), §13.1 (digests).
//!
//! A header that lies whole in the input is used in place; only one that is cut is gathered first.
//! Data-out are passed on from the input. With a data digest, data are gathered, since nothing is
//! executed before its digest was checked.

use std::time::Instant;

use zerocopy::{FromBytes, IntoBytes};

use super::transmit::COPY_LEN_MAX;
use crate::backend::Backend;
use crate::framing::digest_len;
use crate::params::{Digest, RECV_SEGMENT_LEN_MAX};
use crate::peer::{PeerError, check_lengths};
use crate::target::full_feature::FullFeature;
use crate::target::login_phase::LoginPhase;
use crate::target::pdu::Sink;
use crate::target::task::Advertised;
use crate::text::TEXT_LEN_MAX;
use crate::wire::command::ScsiCommand;
use crate::wire::{BHS_LEN, Bhs, DIGEST_LEN, request};

/// The position of a connection in its stream of PDUs.
#[derive(Debug, Default)]
pub(super) struct Receiver {
    awaiting: Awaiting,
    /// Bytes of the awaited part that arrived in pieces. During login, all bytes of the PDU.
    gathered: Vec<u8>,
    /// Gathered data of the PDU.
    segment: Vec<u8>,
    /// CRC32C of the data so far.
    segment_crc: u32,
}

/// What the next bytes are.
#[derive(Clone, Copy, Debug, Default)]
enum Awaiting {
    /// The basic header segment.
    #[default]
    Bhs,
    /// AHS and header digest, of this length. The BHS is in `gathered`.
    HeaderRest { len: usize },
    /// The data segment, of which this many bytes are left.
    Data { pdu: Pdu, left: usize },
    /// Padding and data digest, of this length.
    DataRest { pdu: Pdu, len: usize },
}

/// A PDU whose header is done.
#[derive(Clone, Copy, Debug)]
struct Pdu {
    bhs: Bhs,
    sink: Sink,
}

/// What a connection calls for the parts of its PDUs.
struct Context<'a, B> {
    now: Instant,
    core: &'a mut FullFeature,
    backend: &'a mut B,
    /// Commands with little data that have arrived. Those with more spend their time in copies of
    /// the operating system, of which many at a time are better.
    short_commands: usize,
}

impl Receiver {
    /// Gathers the next Login Request, which has no digests. Returns its header and its data if it
    /// is whole. The caller calls [`next_pdu`](Self::next_pdu) once it has used them.
    pub(super) fn take_login_request(
        &mut self,
        input: &mut &[u8],
    ) -> Result<Option<(Bhs, &[u8])>, PeerError> {
        if !self.gather(input, BHS_LEN) {
            return Ok(None);
        }
        let (bhs, _) = Bhs::read_from_prefix(&self.gathered).expect("gathered to its length");
        let data_at = BHS_LEN + check_lengths(&bhs, TEXT_LEN_MAX)?;
        LoginPhase::check(&bhs)?;
        if !self.gather(input, data_at + bhs.padded_data_len()) {
            return Ok(None);
        }
        let len = bhs.data_segment_len.get() as usize;
        Ok(Some((bhs, &self.gathered[data_at..][..len])))
    }

    /// The next bytes are those of another PDU.
    pub(super) fn next_pdu(&mut self) {
        self.awaiting = Awaiting::Bhs;
        self.gathered.clear();
    }

    /// Takes input in full feature phase, until the connection takes no more. Returns how many
    /// commands with little data arrived.
    pub(super) fn receive<B: Backend>(
        &mut self,
        now: Instant,
        mut input: &[u8],
        core: &mut FullFeature,
        backend: &mut B,
    ) -> Result<usize, PeerError> {
        let mut context = Context {
            now,
            core,
            backend,
            short_commands: 0,
        };
        while !input.is_empty() && context.core.takes_input() {
            self.advance(&mut input, &mut context)?;
        }
        Ok(context.short_commands)
    }

    /// Takes bytes of the awaited part.
    fn advance<B: Backend>(
        &mut self,
        input: &mut &[u8],
        context: &mut Context<'_, B>,
    ) -> Result<(), PeerError> {
        match &mut self.awaiting {
            Awaiting::Bhs if self.gathered.is_empty() && input.len() >= BHS_LEN => {
                let (bhs, rest) = Bhs::ref_from_prefix(input).expect("its length was checked");
                *input = rest;
                self.on_bhs(bhs, context)
            }
            Awaiting::Bhs => {
                if !self.gather(input, BHS_LEN) {
                    return Ok(());
                }
                let bhs = Bhs::read_from_bytes(&self.gathered).expect("gathered to its length");
                self.on_bhs(&bhs, context)
            }
            Awaiting::HeaderRest { len } => {
                let len = BHS_LEN + *len;
                if !self.gather(input, len) {
                    return Ok(());
                }
                self.check_header_digest(context.core.parameters.header_digest)?;
                let (bhs, _) = Bhs::read_from_prefix(&self.gathered).expect("gathered before");
                self.on_header(&bhs, context)
            }
            Awaiting::Data { pdu, left } => {
                let pdu = *pdu;
                let (bytes, rest) = input.split_at((*left).min(input.len()));
                *left -= bytes.len();
                let is_whole = *left == 0;
                *input = rest;
                self.on_data(pdu.sink, bytes, context);
                if is_whole {
                    self.await_data_rest(&pdu, context)
                } else {
                    Ok(())
                }
            }
            Awaiting::DataRest { pdu, len } => {
                let (pdu, len) = (*pdu, *len);
                if !self.gather(input, len) {
                    return Ok(());
                }
                self.on_data_rest(&pdu, context)
            }
        }
    }

    /// Gathers the awaited part up to `want` bytes in total. Returns whether the part is complete.
    fn gather(&mut self, input: &mut &[u8], want: usize) -> bool {
        let missing = want.saturating_sub(self.gathered.len());
        let (bytes, rest) = input.split_at(missing.min(input.len()));
        self.gathered.extend_from_slice(bytes);
        *input = rest;
        bytes.len() == missing
    }

    /// The BHS is whole.
    fn on_bhs<B: Backend>(
        &mut self,
        bhs: &Bhs,
        context: &mut Context<'_, B>,
    ) -> Result<(), PeerError> {
        let ahs = check_lengths(bhs, RECV_SEGMENT_LEN_MAX as usize)?;
        match ahs + digest_len(context.core.parameters.header_digest) {
            0 => self.on_header(bhs, context),
            len => {
                self.gathered.clear();
                self.gathered.extend_from_slice(bhs.as_bytes());
                self.awaiting = Awaiting::HeaderRest { len };
                Ok(())
            }
        }
    }

    fn check_header_digest(&self, digest: Digest) -> Result<(), PeerError> {
        if digest == Digest::None {
            return Ok(());
        }
        let (header, digest) = self.gathered.split_at(self.gathered.len() - DIGEST_LEN);
        if crc32c::crc32c(header).to_le_bytes() == digest {
            Ok(())
        } else {
            Err(PeerError::HeaderDigest)
        }
    }

    /// The header is whole and right.
    fn on_header<B: Backend>(
        &mut self,
        bhs: &Bhs,
        context: &mut Context<'_, B>,
    ) -> Result<(), PeerError> {
        self.gathered.clear();
        self.segment.clear();
        self.segment_crc = 0;
        let (now, none) = (context.now, Advertised::default());
        let sink = context
            .core
            .handle_header(now, bhs, none, context.backend)?;
        context.note_short(bhs, sink);
        let left = bhs.data_segment_len.get() as usize;
        if left == 0 {
            return self.finish(bhs, sink, context);
        }
        let pdu = Pdu { bhs: *bhs, sink };
        self.awaiting = Awaiting::Data { pdu, left };
        Ok(())
    }

    /// Bytes of the data segment.
    fn on_data<B: Backend>(&mut self, sink: Sink, bytes: &[u8], context: &mut Context<'_, B>) {
        if context.core.parameters.data_digest == Digest::Crc32c {
            self.segment_crc = crc32c::crc32c_append(self.segment_crc, bytes);
            if matches!(sink, Sink::Gather | Sink::Write { .. }) {
                self.segment.extend_from_slice(bytes);
            }
            return;
        }
        match sink {
            Sink::Gather => self.segment.extend_from_slice(bytes),
            Sink::Write { slot } => context.core.handle_data(slot, bytes, context.backend),
            Sink::Ignore { .. } | Sink::Discard => {}
        }
    }

    /// The data segment is whole.
    fn await_data_rest<B: Backend>(
        &mut self,
        pdu: &Pdu,
        context: &mut Context<'_, B>,
    ) -> Result<(), PeerError> {
        let padding = pdu.bhs.padded_data_len() - pdu.bhs.data_segment_len.get() as usize;
        match padding + digest_len(context.core.parameters.data_digest) {
            0 => self.finish(&pdu.bhs, pdu.sink, context),
            len => {
                self.awaiting = Awaiting::DataRest { pdu: *pdu, len };
                Ok(())
            }
        }
    }

    /// Padding and data digest are whole.
    fn on_data_rest<B: Backend>(
        &mut self,
        pdu: &Pdu,
        context: &mut Context<'_, B>,
    ) -> Result<(), PeerError> {
        if context.core.parameters.data_digest == Digest::Crc32c {
            let (padding, digest) = self.gathered.split_at(self.gathered.len() - DIGEST_LEN);
            let crc = crc32c::crc32c_append(self.segment_crc, padding);
            if crc.to_le_bytes() != digest {
                context.core.reject_bad_data(&pdu.bhs, pdu.sink);
                self.next_pdu();
                return Ok(());
            }
            if let Sink::Write { slot } = pdu.sink {
                let core = &mut *context.core;
                core.handle_data(slot, &self.segment, context.backend);
            }
        }
        self.finish(&pdu.bhs, pdu.sink, context)
    }

    /// The PDU is whole.
    fn finish<B: Backend>(
        &mut self,
        bhs: &Bhs,
        sink: Sink,
        context: &mut Context<'_, B>,
    ) -> Result<(), PeerError> {
        self.next_pdu();
        let (now, segment) = (context.now, &self.segment);
        let core = &mut *context.core;
        core.finish_pdu(now, (bhs, sink), segment, context.backend)
    }
}

impl<B> Context<'_, B> {
    fn note_short(&mut self, bhs: &Bhs, sink: Sink) {
        if bhs.opcode() == request::SCSI_COMMAND
            && matches!(sink, Sink::Write { .. } | Sink::Ignore { .. })
        {
            let expected_len = bhs.cast::<ScsiCommand>().expected_len.get();
            self.short_commands += usize::from(u64::from(expected_len) <= COPY_LEN_MAX);
        }
    }
}
