//! Lists of datagrams to send: headers here, payload in place.

use std::ops::Range;

use crate::memory::MemoryRange;
use zerocopy::{Immutable, IntoBytes};

use crate::backend::{Backend, MemoryFault};
use crate::work::{Data, Gather};
use crate::{
    Flow,
    wire::{Bth, HEADERS_LEN_MAX_BYTES, ICRC_LEN_BYTES, Icrc, IpHeader},
};

/// Datagrams to send, in order, as batches that the operating system cuts into datagrams of one
/// size (generic segmentation offload, GSO). A runtime fills it, sends every batch with one call,
/// and clears it. Nothing is allocated after creation.
#[derive(Debug)]
pub struct TransmitList {
    bytes: Box<[u8]>,
    tail: usize,
    parts: Vec<Part>,
    batches: Vec<Entry>,
    len_bytes: u32,
    segments_max: u16,
}

#[derive(Clone, Copy, Debug)]
enum Part {
    Bytes { start: usize, len: usize },
    Place(MemoryRange),
}

#[derive(Clone, Debug)]
struct Entry {
    flow: Flow,
    /// The length of every packet but the last, which may be shorter.
    packet_len: u16,
    packets: u16,
    len_bytes: u32,
    parts: Range<usize>,
}

impl Entry {
    /// One more packet; its index.
    #[inline]
    fn take(&mut self, len: u16) -> u16 {
        self.packets += 1;
        self.len_bytes += u32::from(len);
        self.packets - 1
    }
}

/// Datagrams of one flow that leave with one call.
#[derive(Clone, Debug)]
pub struct Batch<'a> {
    /// Source and destination.
    pub flow: &'a Flow,
    /// The length of every datagram but the last, which may be shorter.
    pub segment_len_bytes: u16,
    /// How many datagrams.
    pub segments: u16,
    /// Bytes in all.
    pub len_bytes: u32,
    parts: &'a [Part],
    bytes: &'a [u8],
}

/// A piece of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// Bytes of the list: headers and small payloads.
    Bytes(&'a [u8]),
    /// Payload in allocated memory.
    Memory(MemoryRange),
}

impl<'a> Batch<'a> {
    /// What to send, in order.
    pub fn parts(&self) -> impl Iterator<Item = Piece<'a>> + Clone + use<'a> {
        let bytes = self.bytes;
        self.parts.iter().map(move |part| match *part {
            Part::Bytes { start, len } => Piece::Bytes(&bytes[start..start + len]),
            Part::Place(placement) => Piece::Memory(placement),
        })
    }
}

/// Why a packet was not appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PushError {
    /// The list is full: send it, then go on.
    Full,
    /// The payload cannot be read.
    Fault(MemoryFault),
}

/// The payload of a packet.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Payload<'a> {
    None,
    Bytes(&'a [u8]),
    Places {
        gather: &'a Gather,
        offset: u32,
        len: u32,
    },
}

impl<'a> Payload<'a> {
    /// `len` bytes from `offset` on of a message.
    #[inline]
    pub(crate) fn of(data: &'a Data, offset: u32, len: u32) -> Self {
        match data {
            Data::Inline(inline) => {
                let start = offset as usize;
                Self::Bytes(&inline.bytes()[start..start + len as usize])
            }
            Data::Gather(gather) => Self::Places {
                gather,
                offset,
                len,
            },
        }
    }

    #[inline]
    const fn len_bytes(&self) -> u32 {
        match self {
            Self::None => 0,
            Self::Bytes(bytes) => bytes.len() as u32,
            Self::Places { len, .. } => *len,
        }
    }

    #[inline]
    const fn copied_len_bytes(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::None | Self::Places { .. } => 0,
        }
    }
}

/// The headers of a packet between BTH and payload.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ExtendedHeaders {
    bytes: [u8; HEADERS_LEN_MAX_BYTES - size_of::<Bth>()],
    len: usize,
}

impl ExtendedHeaders {
    /// With one more header.
    ///
    /// # Panics
    /// If they do not fit, which no packet of this crate causes.
    #[must_use]
    #[inline]
    pub(crate) fn with<T: IntoBytes + Immutable>(mut self, header: &T) -> Self {
        let end = self.len + size_of::<T>();
        self.bytes[self.len..end].copy_from_slice(header.as_bytes());
        self.len = end;
        self
    }

    #[inline]
    fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl TransmitList {
    /// The most segments that Linux accepts per call since 6.9; older kernels accept half.
    pub const SEGMENTS_MAX: u16 = 64;
    /// The most parts.
    const PARTS_MAX: usize = 1024;
    /// The most batches.
    const BATCHES_MAX: usize = 512;
    /// Bytes of packets after which it is full: what was summed for the ICRC is sent while the
    /// processor's cache has it.
    const LEN_MAX_BYTES: u32 = 120 << 10;
    /// The most bytes of a batch: it is one UDP datagram until it is cut.
    const BATCH_LEN_MAX_BYTES: u32 = 65_000;
    /// Room for pad and ICRC in one number.
    const SEAL_ROOM_BYTES: usize = size_of::<u64>();
    /// Bytes of the list's own buffer that a packet needs besides copied payload: headers, pad,
    /// ICRC.
    const OVERHEAD_MAX_BYTES: usize = HEADERS_LEN_MAX_BYTES + Self::SEAL_ROOM_BYTES;

    /// A list with `capacity_bytes` for headers and small payload, whose batches have up to
    /// `segments_max` datagrams. Pass 1 if the network does not segment, or segments in a way that
    /// breaks the ICRC.
    pub fn new(capacity_bytes: usize, segments_max: u16) -> Self {
        Self {
            bytes: vec![0; capacity_bytes].into_boxed_slice(),
            tail: 0,
            parts: Vec::with_capacity(Self::PARTS_MAX),
            batches: Vec::with_capacity(Self::BATCHES_MAX),
            len_bytes: 0,
            segments_max: segments_max.clamp(1, Self::SEGMENTS_MAX),
        }
    }

    /// Whether there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// What to send, in order.
    pub fn batches(&self) -> impl ExactSizeIterator<Item = Batch<'_>> {
        self.batches.iter().map(|entry| Batch {
            flow: &entry.flow,
            segment_len_bytes: entry.packet_len,
            segments: entry.packets,
            len_bytes: entry.len_bytes,
            parts: &self.parts[entry.parts.clone()],
            bytes: &self.bytes,
        })
    }

    /// Everything has been sent, or given up.
    pub fn clear(&mut self) {
        self.tail = 0;
        self.len_bytes = 0;
        self.parts.clear();
        self.batches.clear();
    }

    /// Appends a packet: pad count, pad and ICRC are added here.
    #[inline]
    pub(crate) fn push<B: Backend>(
        &mut self,
        flow: &Flow,
        bth: Bth,
        extended: &ExtendedHeaders,
        payload: Payload<'_>,
        backend: &mut B,
    ) -> Result<(), PushError> {
        let bth = bth.with_pad_for(payload.len_bytes());
        let pad = bth.pad_len_bytes() as usize;
        let head = size_of::<Bth>() + extended.len;
        let len = head + payload.len_bytes() as usize + pad + ICRC_LEN_BYTES;
        let len = u16::try_from(len).map_err(|_| PushError::Full)?;
        if !self.has_room(payload.copied_len_bytes()) {
            return Err(PushError::Full);
        }
        let index = self.join_run(flow, len);
        let mut icrc = Icrc::begin(&IpHeader::new(*flow, index), len);
        icrc.update_bth(&bth);
        icrc.update(extended.as_bytes());
        let mark = (self.tail, self.parts.len());
        let mergeable = index > 0;
        self.append_headers(&bth, extended, mergeable);
        if let Err(fault) = self.append_payload(payload, &mut icrc, backend) {
            self.undo(mark, mergeable, index, len);
            return Err(PushError::Fault(fault));
        }
        icrc.update(&[0; 3][..pad]);
        self.append_seal(pad, icrc.to_wire());
        let end = self.parts.len();
        self.batches.last_mut().expect("joined above").parts.end = end;
        self.len_bytes += u32::from(len);
        Ok(())
    }

    #[inline]
    fn has_room(&self, copied_len_bytes: usize) -> bool {
        self.bytes.len() - self.tail >= Self::OVERHEAD_MAX_BYTES + copied_len_bytes
            && self.parts.len() + Gather::PARTS_MAX + 2 <= Self::PARTS_MAX
            && self.batches.len() < Self::BATCHES_MAX
            && self.len_bytes < Self::LEN_MAX_BYTES
    }

    /// Makes the packet part of the last batch, or of a new one; its index there, which is its IPv4
    /// identification.
    #[inline]
    fn join_run(&mut self, flow: &Flow, len: u16) -> u16 {
        let segments_max = self.segments_max;
        let run = self.batches.last_mut().filter(|last| {
            let full = last.len_bytes == u32::from(last.packet_len) * u32::from(last.packets);
            full && last.flow == *flow
                && len <= last.packet_len
                && last.packets < segments_max
                && last.len_bytes + u32::from(len) <= Self::BATCH_LEN_MAX_BYTES
        });
        match run {
            Some(run) => run.take(len),
            None => self.begin(flow, len),
        }
    }

    fn begin(&mut self, flow: &Flow, len: u16) -> u16 {
        let start = self.parts.len();
        self.batches.push(Entry {
            flow: *flow,
            packet_len: len,
            packets: 1,
            len_bytes: u32::from(len),
            parts: start..start,
        });
        0
    }

    /// All headers of a packet. As many bytes as there may be are copied, which is quicker than as
    /// many as there are.
    #[inline]
    fn append_headers(&mut self, bth: &Bth, extended: &ExtendedHeaders, mergeable: bool) {
        let room = &mut self.bytes[self.tail..][..HEADERS_LEN_MAX_BYTES];
        let (first, rest) = room.split_at_mut(size_of::<Bth>());
        first.copy_from_slice(bth.as_bytes());
        rest.copy_from_slice(&extended.bytes);
        self.keep(size_of::<Bth>() + extended.len, mergeable);
    }

    /// What ends a packet, behind its pad.
    #[inline]
    fn append_seal(&mut self, pad: usize, seal: [u8; ICRC_LEN_BYTES]) {
        let padded = u64::from(u32::from_le_bytes(seal)) << (8 * pad);
        let room = &mut self.bytes[self.tail..][..Self::SEAL_ROOM_BYTES];
        room.copy_from_slice(&padded.to_le_bytes());
        self.keep(pad + ICRC_LEN_BYTES, true);
    }

    /// Copies own bytes in.
    fn append(&mut self, bytes: &[u8]) {
        self.bytes[self.tail..][..bytes.len()].copy_from_slice(bytes);
        self.keep(bytes.len(), true);
    }

    /// The next `len` bytes of the buffer have been written. They extend the last part if that is
    /// also in the buffer and belongs to the same batch.
    #[inline]
    fn keep(&mut self, len: usize, mergeable: bool) {
        let start = self.tail;
        self.tail += len;
        match self.parts.last_mut() {
            Some(Part::Bytes { len: before, .. }) if mergeable => *before += len,
            _ => self.parts.push(Part::Bytes { start, len }),
        }
    }

    fn append_payload<B: Backend>(
        &mut self,
        payload: Payload<'_>,
        icrc: &mut Icrc,
        backend: &mut B,
    ) -> Result<(), MemoryFault> {
        match payload {
            Payload::None => Ok(()),
            Payload::Bytes(bytes) => {
                icrc.update(bytes);
                self.append(bytes);
                Ok(())
            }
            Payload::Places {
                gather,
                offset,
                len,
            } => gather.slice(offset, len).try_for_each(|placement| {
                backend.hash(placement, icrc)?;
                self.parts.push(Part::Place(placement));
                Ok(())
            }),
        }
    }

    /// Removes a packet whose payload failed.
    fn undo(&mut self, (tail, parts): (usize, usize), merged: bool, index: u16, len: u16) {
        let excess = self.tail - tail;
        self.tail = tail;
        self.parts.truncate(parts);
        if let (true, Some(Part::Bytes { len, .. })) = (merged, self.parts.last_mut()) {
            // The last part of a batch is always own bytes, an ICRC at least, which this packet's
            // headers were added to.
            *len -= excess;
        }
        if index == 0 {
            self.batches.pop();
        } else if let Some(last) = self.batches.last_mut() {
            last.packets -= 1;
            last.len_bytes -= u32::from(len);
        }
    }
}
