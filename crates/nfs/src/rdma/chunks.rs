//! The chunk lists of a call's header, and the lists of its reply's.
//!
//! Read first: RFC 8166 sections 3.4 and 4.4.

use session::{RemoteBuffer, RemoteKey};
use zerocopy::FromBytes;

use super::wire::{ErrorCode, FIXED_BYTES, FixedHeader, Segment, VERSION, procedure};
use crate::results::PLACED_MAX;
use crate::xdr::{Malformed, Reader, Writer};

/// Where the data of a call and of its reply are in the client's memory, and to which message that
/// belongs.
#[derive(Debug, Default)]
pub(super) struct Chunks {
    pub(super) xid: u32,
    /// The read chunk at position 0: the call itself.
    pub(super) call: Chunk,
    /// The read chunk that replaces an argument.
    pub(super) argument: Chunk,
    /// Where the argument is in the call.
    pub(super) position: usize,
    /// The write list: a chunk for each result that may be placed, in their order.
    results: Vec<Chunk>,
    /// How many of `results` the header has. The others are memory to be used again.
    results_len: usize,
    reply: Chunk,
    has_reply: bool,
}

/// Segments that are one piece of data, in order.
pub(super) type Chunk = Vec<RemoteBuffer>;

/// What a header says of the bytes that follow it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// They are the call, except for an argument that is in a chunk.
    Inline,
    /// The call is in a chunk.
    Long,
}

/// Why a message is no call that can be executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// It has no reply: it is shorter than the fixed part of a header, or an error or RDMA_DONE
    /// (RFC 8166 section 4.2.2).
    Ignored,
    /// The reply is an error.
    Error(ErrorCode),
}

/// The most segments of a header, in all its lists.
const SEGMENTS_MAX: usize = 64;
/// Segments of a list for which memory is kept: as many as most lists have.
const SEGMENTS_KEPT: usize = 4;
/// The most memory of the lists of a header, in bytes. They grow by doubling.
pub(super) const LISTS_BYTES_MAX: usize =
    (2 * SEGMENTS_MAX + (3 + PLACED_MAX) * SEGMENTS_KEPT) * size_of::<RemoteBuffer>();

impl From<Malformed> for Fault {
    fn from(Malformed: Malformed) -> Self {
        Self::Error(ErrorCode::Chunk)
    }
}

impl Chunks {
    /// Reads a header. Returns its form, and what follows.
    pub(super) fn read<'a>(&mut self, message: &'a [u8]) -> Result<(Form, &'a [u8]), Fault> {
        self.clear();
        let (header, lists) = FixedHeader::ref_from_prefix(message).map_err(|_| Fault::Ignored)?;
        self.xid = header.xid.get();
        if header.version != VERSION {
            return Err(Fault::Error(ErrorCode::Version));
        }
        let form = match header.procedure.get() {
            procedure::MSG => Form::Inline,
            procedure::NOMSG => Form::Long,
            procedure::DONE | procedure::ERROR => return Err(Fault::Ignored),
            _ => return Err(Fault::Error(ErrorCode::Chunk)),
        };
        let mut reader = Reader::new(lists);
        self.read_lists(&mut reader)?;
        // The call is in one place only.
        if (form == Form::Long) == self.call.is_empty() {
            return Err(Malformed.into());
        }
        Ok((form, reader.rest()))
    }

    fn clear(&mut self) {
        self.call.clear();
        self.argument.clear();
        self.position = 0;
        self.results_len = 0;
        self.reply.clear();
        self.has_reply = false;
    }

    /// Frees memory that most headers do not need.
    pub(super) fn shrink(&mut self) {
        let lists = [&mut self.call, &mut self.argument, &mut self.reply];
        for list in lists.into_iter().chain(&mut self.results) {
            list.clear();
            list.shrink_to(SEGMENTS_KEPT);
        }
    }

    fn read_lists(&mut self, reader: &mut Reader<'_>) -> Result<(), Malformed> {
        let mut segments_left = SEGMENTS_MAX;
        self.read_read_list(reader, &mut segments_left)?;
        while reader.bool()? {
            if self.results_len == PLACED_MAX {
                return Err(Malformed);
            }
            if self.results.len() == self.results_len {
                self.results.push(Chunk::new());
            }
            read_chunk(
                reader,
                &mut self.results[self.results_len],
                &mut segments_left,
            )?;
            self.results_len += 1;
        }
        self.has_reply = reader.bool()?;
        if self.has_reply {
            read_chunk(reader, &mut self.reply, &mut segments_left)?;
        }
        Ok(())
    }

    /// The read list: segments of one position are a chunk. A call has at most one argument that
    /// may be in a chunk (RFC 8267 section 2), so at most one position other than 0 is allowed.
    fn read_read_list(
        &mut self,
        reader: &mut Reader<'_>,
        segments_left: &mut usize,
    ) -> Result<(), Malformed> {
        while reader.bool()? {
            let position = reader.u32()? as usize;
            let segment = read_segment(reader, segments_left)?;
            if position == 0 {
                // Positions are in ascending order.
                if !self.argument.is_empty() {
                    return Err(Malformed);
                }
                self.call.push(segment);
            } else {
                if !self.argument.is_empty() && self.position != position {
                    return Err(Malformed);
                }
                self.position = position;
                self.argument.push(segment);
            }
        }
        Ok(())
    }

    /// The write list.
    pub(super) fn results(&self) -> &[Chunk] {
        &self.results[..self.results_len]
    }

    /// The chunk that a result is placed in. One without segments says that it is not to be placed.
    pub(super) fn result(&self, index: usize) -> Option<&Chunk> {
        self.results().get(index).filter(|chunk| !chunk.is_empty())
    }

    /// The reply chunk.
    pub(super) fn reply(&self) -> Option<&Chunk> {
        self.has_reply.then_some(&self.reply)
    }

    /// The key of all segments, if they have the same: the reply may invalidate it. A client that
    /// has registered more keys waits for its own invalidations anyway.
    pub(super) fn only_key(&self) -> Option<RemoteKey> {
        let written = self.results().iter().chain(self.reply());
        let mut segments = [&self.call, &self.argument]
            .into_iter()
            .chain(written)
            .flatten();
        let key = segments.next()?.key;
        segments.all(|segment| segment.key == key).then_some(key)
    }

    /// The length of the header of a reply in bytes.
    pub(super) fn reply_header_bytes(&self) -> usize {
        let chunk = |chunk: &Chunk| 4 + chunk.len() * size_of::<Segment>();
        let results: usize = self.results().iter().map(|result| 4 + chunk(result)).sum();
        // Each list has a word that says what follows.
        FIXED_BYTES + 3 * 4 + results + self.reply().map_or(0, chunk)
    }

    /// Writes the header of a reply of which `result_bytes` are in the chunks of the write list,
    /// and `reply_bytes` in the reply chunk. Segments have the lengths that were written.
    pub(super) fn write_reply_header(
        &self,
        (procedure, credits): (u32, u32),
        (result_bytes, reply_bytes): (&[usize; PLACED_MAX], usize),
        out: &mut Writer<'_>,
    ) {
        out.view(&FixedHeader {
            xid: self.xid.into(),
            version: VERSION.into(),
            credits: credits.into(),
            procedure: procedure.into(),
        });
        // The read list is empty.
        out.bool(false);
        for (chunk, written_bytes) in self.results().iter().zip(result_bytes) {
            out.bool(true);
            write_chunk(chunk, *written_bytes, out);
        }
        out.bool(false);
        out.bool(self.has_reply);
        if let Some(chunk) = self.reply() {
            write_chunk(chunk, reply_bytes, out);
        }
    }
}

/// The length of a chunk in bytes.
pub(super) fn chunk_bytes(chunk: &Chunk) -> u64 {
    chunk
        .iter()
        .map(|segment| u64::from(segment.len_bytes))
        .sum()
}

fn read_chunk(
    reader: &mut Reader<'_>,
    chunk: &mut Chunk,
    segments_left: &mut usize,
) -> Result<(), Malformed> {
    chunk.clear();
    let len = reader.u32()? as usize;
    if len > *segments_left {
        return Err(Malformed);
    }
    for _ in 0..len {
        chunk.push(read_segment(reader, segments_left)?);
    }
    Ok(())
}

fn read_segment(
    reader: &mut Reader<'_>,
    segments_left: &mut usize,
) -> Result<RemoteBuffer, Malformed> {
    *segments_left = segments_left.checked_sub(1).ok_or(Malformed)?;
    let segment: &Segment = reader.view()?;
    let (address, len_bytes) = (segment.offset.get(), segment.len_bytes.get());
    // Memory does not wrap around.
    address.checked_add(u64::from(len_bytes)).ok_or(Malformed)?;
    Ok(RemoteBuffer {
        address,
        key: RemoteKey(segment.handle.get()),
        len_bytes,
    })
}

/// Writes a chunk of which `written_bytes` were written, from its front on.
fn write_chunk(chunk: &Chunk, written_bytes: usize, out: &mut Writer<'_>) {
    out.u32(chunk.len() as u32);
    let mut left_bytes = written_bytes as u64;
    for segment in chunk {
        let written = left_bytes.min(u64::from(segment.len_bytes));
        left_bytes -= written;
        out.view(&Segment {
            handle: segment.key.0.into(),
            len_bytes: (written as u32).into(),
            offset: segment.address.into(),
        });
    }
}
