//! A call that arrives: what came with its message, and what is read from the client's memory.
//!
//! ```text
//!  begin ─┬─ no chunk to read, or an error ──────────────────► ready
//!         └─ Gather ─┬───────────────► all bytes arrived ──────► ready
//!            Write ◄─┘ WRITE's head arrived   └── Rejected ──────► ready
//! ```
//!
//! A call whose tree waits for storage is gathered as a whole, data of a WRITE included (`Whole`),
//! and executed by another thread (`Waits`) before it is ready (`Answered`).

use std::time::Instant;

use session::{RemoteBuffer, WorkList};

use super::chunks::{Chunks, Fault, Form, chunk_bytes};
use super::wire::ErrorCode;
use crate::calls::{Answer, Cost, Ending, Rest, WaitingCall};
use crate::clients::MESSAGE_BYTES_MAX;
use crate::dispatch::cost_of;
use crate::rpc::{Call, Reject};
use crate::session::WRITE_HEAD_BYTES_MAX;
use crate::v3::{TRANSFER_BYTES_MAX, WriteCall};
use crate::waiting::refuse;
use crate::xdr::{Malformed, UNIT_BYTES, padding};
use crate::{Backend, Procedure};

/// A call.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) chunks: Chunks,
    /// Bytes of the call, unless they are data of a WRITE.
    bytes: Vec<u8>,
    /// What follows an argument that is in a chunk.
    tail: Vec<u8>,
    pub(super) body: Body,
    pub(super) began: Instant,
    /// What the call takes of the memory for calls that are gathered or wait.
    pub(super) room_bytes: usize,
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
    /// It is a WRITE for a tree that waits for storage: all of it is gathered.
    Whole(Cost),
    /// Another thread executes it.
    Waits(Waits),
    /// It was answered: the slot's bytes are the reply as a record.
    Answered(Ending),
    /// It is not executed: the reply says so.
    Rejected(u32, Reject),
    /// Its header cannot be used.
    Refused(ErrorCode),
}

/// How a call waits.
#[derive(Debug)]
pub(super) struct Waits {
    pub(super) cost: Cost,
    /// The most bytes of data that its reply has room for.
    pub(super) data_bytes_max: usize,
    /// Of a compound that was executed in part: what is left.
    pub(super) rest: Option<Rest>,
}

/// A place in a list of segments.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cursor {
    index: usize,
    offset_bytes: u32,
}

/// Calls that a client may have in flight: a slot is a credit.
pub(super) const CREDITS: u16 = 64;
/// The longest call, other than a compound, that is kept until all of it has arrived: SYMLINK, with
/// the longest path that Linux allows, is shorter.
const GATHERED_BYTES_MAX: usize = 8 << 10;
/// The longest compound that is kept: longer than any session allows, so that it is refused there.
pub(super) const COMPOUND_BYTES_MAX: usize = MESSAGE_BYTES_MAX as usize + UNIT_BYTES;
/// What follows an argument of a compound, for which memory is kept: GETATTR is shorter.
const TAIL_BYTES_KEPT: usize = 64;
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
            tail: Vec::new(),
            body: Body::Gather,
            began: now,
            room_bytes: 0,
            remote_bytes: 0,
            arrived_bytes: 0,
            asked: Cursor::default(),
        }
    }

    /// Begins with a message, whose header was read into `chunks`.
    pub(super) fn begin<B: Backend>(
        &mut self,
        now: Instant,
        header: Result<(Form, &[u8]), Fault>,
        backend: &mut B,
    ) {
        self.began = now;
        self.bytes.clear();
        self.tail.clear();
        self.body = Body::Gather;
        (self.remote_bytes, self.arrived_bytes) = (0, 0);
        self.asked = Cursor::default();
        let begun = match header {
            Err(Fault::Ignored) => Err(ErrorCode::Chunk),
            Err(Fault::Error(code)) => Err(code),
            Ok((Form::Long, _)) => self.begin_long(),
            Ok((Form::Inline, bytes)) => self.begin_inline(now, bytes, backend),
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
        Ok(())
    }

    /// The call follows the header, except for an argument that is in a chunk, if there is one.
    fn begin_inline<B: Backend>(
        &mut self,
        now: Instant,
        bytes: &[u8],
        backend: &mut B,
    ) -> Result<(), ErrorCode> {
        if self.chunks.argument.is_empty() {
            self.bytes.extend_from_slice(bytes);
            return Ok(());
        }
        let (position, remote) = (self.chunks.position, chunk_bytes(&self.chunks.argument));
        let (head, rest) = bytes.split_at_checked(position).ok_or(ErrorCode::Chunk)?;
        if position % UNIT_BYTES != 0 || remote > CALL_BYTES_MAX {
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
        let len = bytes.len() + self.remote_bytes;
        match call.procedure {
            // Operations may follow the argument, without its padding (RFC 8166 section 3.4.5).
            Procedure::Compound if rest.len() % UNIT_BYTES == 0 && len <= COMPOUND_BYTES_MAX => {
                self.bytes.extend_from_slice(head);
                self.tail.extend_from_slice(rest);
            }
            // Otherwise such an argument is the call's last, so nothing but padding follows.
            _ if rest.len() >= UNIT_BYTES => return Err(ErrorCode::Chunk),
            Procedure::Write => self.begin_reduced_write(now, call, head, backend)?,
            Procedure::SymLink if len <= GATHERED_BYTES_MAX => self.bytes.extend_from_slice(head),
            // No other procedure has an argument that may be in a chunk (RFC 8267 sections 2.1 and
            // 6.1).
            _ => return Err(ErrorCode::Chunk),
        }
        Ok(())
    }

    /// A WRITE whose data, and nothing else, are in a chunk, with their padding or without (RFC
    /// 8166 section 3.4.5).
    fn begin_reduced_write<B: Backend>(
        &mut self,
        now: Instant,
        call: Call<'_>,
        head: &[u8],
        backend: &mut B,
    ) -> Result<(), ErrorCode> {
        let xid = call.xid;
        let cost = cost_of(&call, head.len() + self.remote_bytes, backend);
        let Ok((write, data)) = WriteCall::new(call, now) else {
            self.remote_bytes = 0;
            self.body = Body::Rejected(xid, Reject::GarbageArguments);
            return Ok(());
        };
        if !data.is_empty() || !is_data_of(head, self.remote_bytes) {
            return Err(ErrorCode::Chunk);
        }
        self.body = match cost {
            None => Body::Write(write),
            Some(cost) if backend.charge_waiting() => {
                self.bytes.extend_from_slice(head);
                Body::Whole(cost)
            }
            Some(_) => {
                self.remote_bytes = 0;
                refuse(head, &mut self.bytes);
                Body::Answered(Ending::default())
            }
        };
        Ok(())
    }

    /// Whether all of it has arrived.
    pub(super) fn is_whole(&self) -> bool {
        matches!(self.body, Body::Refused(_)) || self.arrived_bytes == self.remote_bytes
    }

    /// The memory that the call needs before its data are read.
    pub(super) fn needed_bytes(&self) -> usize {
        match self.body {
            Body::Gather => {
                let len = self.bytes.len() + self.remote_bytes + self.tail.len();
                (len + UNIT_BYTES).min(COMPOUND_BYTES_MAX + UNIT_BYTES)
            }
            Body::Whole(cost) => cost.bytes,
            _ => 0,
        }
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
            Body::Whole(_) => {
                self.bytes.extend_from_slice(data);
                &[]
            }
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
            if let Body::Whole(_) = self.body {
                self.bytes.extend_from_slice(rest);
                return &[];
            }
            return rest;
        }
        let longest = if Call::is_compound(&self.bytes) {
            COMPOUND_BYTES_MAX
        } else {
            GATHERED_BYTES_MAX
        };
        // The padding and what follows are appended in the end.
        let room = longest.saturating_sub(self.bytes.len());
        let left = self.remote_bytes - self.arrived_bytes + rest.len();
        let end = UNIT_BYTES + self.tail.len();
        self.bytes.reserve_exact(left.min(room) + end);
        self.bytes.extend_from_slice(&rest[..rest.len().min(room)]);
        &[]
    }

    /// A long call turns out to be a WRITE.
    fn begin_long_write<B: Backend>(&mut self, backend: &mut B) {
        let begun = Call::parse(&self.bytes).and_then(|call| {
            let xid = call.xid;
            let cost = cost_of(&call, self.remote_bytes, backend);
            let garbage = |_| (xid, Reject::GarbageArguments);
            let (mut write, data) = WriteCall::new(call, self.began).map_err(garbage)?;
            let head = &self.bytes[..self.bytes.len() - data.len()];
            let is_whole = is_data_of(head, self.remote_bytes - head.len());
            if let Some(cost) = cost.filter(|_| is_whole && backend.charge_waiting()) {
                return Ok(Body::Whole(cost));
            }
            let data = if is_whole { Ok(data) } else { Err(Malformed) };
            write
                .take(backend, data.map_err(garbage)?)
                .map_err(garbage)?;
            Ok(Body::Write(write))
        });
        self.body = begun.unwrap_or_else(|(xid, reject)| Body::Rejected(xid, reject));
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
            Body::Gather | Body::Whole(_) if !self.chunks.argument.is_empty() => {
                let len = self.bytes.len();
                self.bytes.resize(len + padding(len), 0);
                self.bytes.extend_from_slice(&self.tail);
            }
            _ => {}
        }
        if let Body::Write(write) = &self.body
            && write.left_bytes() > 0
        {
            self.body = Body::Rejected(write.xid(), Reject::GarbageArguments);
        }
    }

    /// Whether another thread has to execute the call, which has arrived as a whole. Its reply has
    /// room for `data_bytes_max` bytes of data.
    pub(super) fn waits<B: Backend>(&mut self, data_bytes_max: usize, backend: &mut B) -> bool {
        let cost = match &self.body {
            Body::Whole(cost) => Some(*cost),
            Body::Gather => {
                let call = Call::parse(&self.bytes).ok();
                call.and_then(|call| cost_of(&call, self.bytes.len(), backend))
            }
            _ => None,
        };
        if let Some(cost) = cost {
            self.body = Body::Waits(Waits {
                cost,
                data_bytes_max,
                rest: None,
            });
        }
        cost.is_some()
    }

    /// Another thread has executed the call.
    pub(super) fn answer(&mut self, answer: Answer) {
        self.bytes = answer.reply;
        self.body = Body::Answered(answer.ending);
    }

    /// The call, if it waits, as it is passed on.
    pub(super) fn take_waiting(&mut self, index: u16) -> Option<WaitingCall> {
        let Body::Waits(waits) = &mut self.body else {
            return None;
        };
        Some(WaitingCall {
            record: std::mem::take(&mut self.bytes),
            began: self.began,
            slot: index,
            data_bytes_max: waits.data_bytes_max,
            cost: waits.cost,
            rest: waits.rest.take(),
        })
    }

    /// The bytes of the call, or of its reply.
    pub(super) fn take_bytes(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }

    /// The call was answered. Memory that most calls do not need is freed.
    pub(super) fn end(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(INLINE_BYTES_MAX);
        self.tail.clear();
        self.tail.shrink_to(TAIL_BYTES_KEPT);
        self.chunks.shrink();
    }
}

/// Whether `len` bytes are the data of a WRITE that begins with `head`, with their padding or
/// without. Their length is the last word of the head.
fn is_data_of(head: &[u8], len: usize) -> bool {
    let expected = head.last_chunk().map_or(0, |len| u32::from_be_bytes(*len)) as usize;
    len == expected || len == expected + padding(expected)
}
