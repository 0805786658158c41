//! A call that arrives: what came with its message, and what is read from the client's memory.
//!
//! ```text
//!  begin ─┬─ no chunk to read, or an error ──────────────────► ready
//!         └─ Gather ─┬───────────────► all bytes arrived ──────► ready
//!            Write ◄─┘ WRITE's head arrived   └── Rejected ──────► ready
//! ```

use std::time::Instant;

use session::{RemoteBuffer, WorkList};

use super::chunks::{Chunks, Fault, Form, chunk_bytes};
use super::wire::ErrorCode;
use crate::rpc::{Call, Reject};
use crate::session::WRITE_HEAD_BYTES_MAX;
use crate::v3::{TRANSFER_BYTES_MAX, WriteCall};
use crate::xdr::{Malformed, UNIT_BYTES, padding};
use crate::{Backend, Procedure};

/// A call.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) chunks: Chunks,
    /// Bytes of the call, unless they are data of a WRITE.
    bytes: Vec<u8>,
    pub(super) body: Body,
    pub(super) began: Instant,
    /// Bytes that are read from the client's memory in all, that were asked for, and that have
    /// arrived.
    remote_bytes: usize,
    arrived_bytes: usize,
    asked: Cursor,
}

/// What becomes of a call.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "slots are used again; a box would be allocated per WRITE"
)]
pub(super) enum Body {
    /// It is executed when all of it has arrived.
    Gather,
    /// It is a WRITE: its data are written as they arrive.
    Write(WriteCall),
    /// It is not executed: the reply says so.
    Rejected(u32, Reject),
    /// Its header cannot be used.
    Refused(ErrorCode),
}

/// A place in a list of segments.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cursor {
    index: usize,
    offset_bytes: u32,
}

/// Calls that a client may have in flight: a slot is a credit.
pub(super) const CREDITS: u16 = 64;
/// The longest call that is kept until all of it has arrived: SYMLINK, with the longest path that
/// Linux allows, is shorter.
pub(super) const GATHERED_BYTES_MAX: usize = 8 << 10;
/// The longest call: the longest WRITE, or a call that is malformed but answered.
const CALL_BYTES_MAX: u64 = (TRANSFER_BYTES_MAX + GATHERED_BYTES_MAX) as u64;
/// The longest call whose message has all of it: that is how long messages are.
pub(super) const INLINE_BYTES_MAX: usize = 4096;

impl Cursor {
    /// The next piece to move if `left_bytes` bytes are left, and moves on. `None` at the end of
    /// the segments.
    pub(super) fn next<'a>(
        &mut self,
        mut segments: impl Iterator<Item = &'a RemoteBuffer>,
        left_bytes: u32,
        out: &dyn WorkList,
    ) -> Option<RemoteBuffer> {
        let mut segment = segments.nth(self.index)?;
        while self.offset_bytes == segment.len_bytes {
            self.index += 1;
            self.offset_bytes = 0;
            segment = segments.next()?;
        }
        let left_bytes = left_bytes.min(segment.len_bytes - self.offset_bytes);
        let len_bytes = out.piece_bytes(left_bytes);
        let piece = segment.piece(self.offset_bytes, len_bytes)?;
        self.offset_bytes += len_bytes;
        Some(piece)
    }
}

impl Slot {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            chunks: Chunks::default(),
            bytes: Vec::new(),
            body: Body::Gather,
            began: now,
            remote_bytes: 0,
            arrived_bytes: 0,
            asked: Cursor::default(),
        }
    }

    /// Begins with a message, whose header was read into `chunks`.
    pub(super) fn begin(&mut self, now: Instant, header: Result<(Form, &[u8]), Fault>) {
        self.began = now;
        self.bytes.clear();
        self.body = Body::Gather;
        (self.remote_bytes, self.arrived_bytes) = (0, 0);
        self.asked = Cursor::default();
        let begun = match header {
            Err(Fault::Ignored) => Err(ErrorCode::Chunk),
            Err(Fault::Error(code)) => Err(code),
            Ok((Form::Long, _)) => self.begin_long(),
            Ok((Form::Inline, bytes)) => self.begin_inline(now, bytes),
        };
        if let Err(code) = begun {
            self.body = Body::Refused(code);
        }
    }

    /// The call is in a chunk. What follows the header is ignored.
    fn begin_long(&mut self) -> Result<(), ErrorCode> {
        let call = chunk_bytes(&self.chunks.call);
        let all = call + chunk_bytes(&self.chunks.argument);
        let is_misplaced = !self.chunks.argument.is_empty() && self.chunks.position as u64 != call;
        if all > CALL_BYTES_MAX || is_misplaced {
            return Err(ErrorCode::Chunk);
        }
        self.remote_bytes = all as usize;
        self.bytes
            .reserve_exact(self.remote_bytes.min(GATHERED_BYTES_MAX));
        Ok(())
    }

    /// The call follows the header, except for an argument that is in a chunk, if there is one.
    fn begin_inline(&mut self, now: Instant, bytes: &[u8]) -> Result<(), ErrorCode> {
        if self.chunks.argument.is_empty() {
            self.bytes.extend_from_slice(bytes);
            return Ok(());
        }
        // Such an argument is the call's last, so nothing but padding follows (RFC 8166 section
        // 3.4.5).
        let (position, remote) = (self.chunks.position, chunk_bytes(&self.chunks.argument));
        let (head, rest) = bytes.split_at_checked(position).ok_or(ErrorCode::Chunk)?;
        if position % UNIT_BYTES != 0 || rest.len() >= UNIT_BYTES || remote > CALL_BYTES_MAX {
            return Err(ErrorCode::Chunk);
        }
        let call = match Call::parse(head) {
            Ok(call) => call,
            Err((xid, reject)) => {
                self.body = Body::Rejected(xid, reject);
                return Ok(());
            }
        };
        self.remote_bytes = remote as usize;
        match call.procedure {
            Procedure::Write => self.begin_reduced_write(now, call, head)?,
            Procedure::SymLink if head.len() + self.remote_bytes <= GATHERED_BYTES_MAX => {
                self.bytes
                    .reserve_exact(head.len() + self.remote_bytes + UNIT_BYTES);
                self.bytes.extend_from_slice(head);
            }
            // No other procedure has an argument that may be in a chunk (RFC 8267 section 2.1).
            _ => return Err(ErrorCode::Chunk),
        }
        Ok(())
    }

    /// A WRITE whose data, and nothing else, are in a chunk, with their padding or without (RFC
    /// 8166 section 3.4.5).
    fn begin_reduced_write(
        &mut self,
        now: Instant,
        call: Call<'_>,
        head: &[u8],
    ) -> Result<(), ErrorCode> {
        let xid = call.xid;
        let Ok((write, data)) = WriteCall::new(call, now) else {
            self.remote_bytes = 0;
            self.body = Body::Rejected(xid, Reject::GarbageArguments);
            return Ok(());
        };
        if !data.is_empty() || !is_data_of(head, self.remote_bytes) {
            return Err(ErrorCode::Chunk);
        }
        self.body = Body::Write(write);
        Ok(())
    }

    /// Whether all of it has arrived.
    pub(super) fn is_whole(&self) -> bool {
        matches!(self.body, Body::Refused(_)) || self.arrived_bytes == self.remote_bytes
    }

    /// The bytes of a call that was gathered.
    pub(super) fn call(&self) -> &[u8] {
        &self.bytes
    }

    /// The next piece to read from the client's memory, and the cursor behind it.
    pub(super) fn next_read(&self, out: &dyn WorkList) -> Option<(RemoteBuffer, Cursor)> {
        let mut cursor = self.asked;
        let segments = self.chunks.call.iter().chain(&self.chunks.argument);
        let piece = cursor.next(segments, u32::MAX, out)?;
        Some((piece, cursor))
    }

    /// The piece was posted.
    pub(super) fn note_read(&mut self, cursor: Cursor) {
        self.asked = cursor;
    }

    /// Takes data from the client's memory, which arrive in the order of the segments.
    pub(super) fn take<B: Backend>(&mut self, data: &[u8], backend: &mut B) {
        self.arrived_bytes += data.len();
        let data = match &self.body {
            Body::Gather => self.gather(data, backend),
            _ => data,
        };
        self.write(data, backend);
    }

    /// Keeps data of a call that is gathered. Returns what is left once it turns out to be a WRITE.
    fn gather<'a, B: Backend>(&mut self, data: &'a [u8], backend: &mut B) -> &'a [u8] {
        let missing = WRITE_HEAD_BYTES_MAX.saturating_sub(self.bytes.len());
        let (head, rest) = data.split_at(data.len().min(missing));
        self.bytes.extend_from_slice(head);
        if missing > 0 && head.len() == missing && Call::is_write(&self.bytes) {
            self.begin_long_write(backend);
            return rest;
        }
        let room = GATHERED_BYTES_MAX.saturating_sub(self.bytes.len());
        self.bytes.extend_from_slice(&rest[..rest.len().min(room)]);
        &[]
    }

    /// A long call turns out to be a WRITE.
    fn begin_long_write<B: Backend>(&mut self, backend: &mut B) {
        let begun = Call::parse(&self.bytes).and_then(|call| {
            let xid = call.xid;
            let garbage = |_| (xid, Reject::GarbageArguments);
            let (mut write, data) = WriteCall::new(call, self.began).map_err(garbage)?;
            let head = &self.bytes[..self.bytes.len() - data.len()];
            let is_whole = is_data_of(head, self.remote_bytes - head.len());
            let data = if is_whole { Ok(data) } else { Err(Malformed) };
            write
                .take(backend, data.map_err(garbage)?)
                .map_err(garbage)?;
            Ok(write)
        });
        self.body = match begun {
            Ok(write) => Body::Write(write),
            Err((xid, reject)) => Body::Rejected(xid, reject),
        };
    }

    /// Writes data of a WRITE, if it is one.
    fn write<B: Backend>(&mut self, data: &[u8], backend: &mut B) {
        if let Body::Write(write) = &mut self.body
            && write.take(backend, data).is_err()
        {
            self.body = Body::Rejected(write.xid(), Reject::GarbageArguments);
        }
    }

    /// All of it has arrived: adds padding that was left out.
    pub(super) fn finish<B: Backend>(&mut self, backend: &mut B) {
        match &self.body {
            Body::Write(write) => {
                let padding = [0; UNIT_BYTES];
                let left = write.left_bytes();
                self.write(&padding[..left.min(UNIT_BYTES - 1)], backend);
            }
            Body::Gather if !self.chunks.argument.is_empty() => {
                let len = self.bytes.len();
                self.bytes.resize(len + padding(len), 0);
            }
            _ => {}
        }
        if let Body::Write(write) = &self.body
            && write.left_bytes() > 0
        {
            self.body = Body::Rejected(write.xid(), Reject::GarbageArguments);
        }
    }

    /// The call was answered. Memory that most calls do not need is freed.
    pub(super) fn end(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(INLINE_BYTES_MAX);
        self.chunks.shrink();
    }
}

/// Whether `len` bytes are the data of a WRITE that begins with `head`, with their padding or
/// without. Their length is the last word of the head.
fn is_data_of(head: &[u8], len: usize) -> bool {
    let expected = head.last_chunk().map_or(0, |len| u32::from_be_bytes(*len)) as usize;
    len == expected || len == expected + padding(expected)
}
