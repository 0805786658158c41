//! Replies: RDMA WRITEs of results and of long replies, and messages.
//!
//! ```text
//!          READ                        its data are placed
//!  Start ─┬──────► Data ──────────────────────────────────────────┐
//!         │ READLINK                   its path is placed         │
//!         ├──────► Path ──────────────────────────────────────────┤
//!         │ any other                  longer than a message      ▼
//!         ├───────────────────────────────────────► Long ──► Message
//!         └──────────────────────────────────────────────────────►
//! ```
//!
//! Read first: RFC 8166 sections 3.4.6, 3.5 and 4.3 to 4.5; RFC 8267 section 2.

use std::ops::Range;
use std::time::Instant;

use session::{RemoteBuffer, WorkList};

use super::chunks::{Chunk, Chunks, chunk_bytes};
use super::slot::{Body, CREDITS, Cursor, Slot};
use super::wire::{ErrorCode, FixedHeader, VERSION, procedure};
use crate::dispatch::{Executed, MARK_BYTES, execute, reply_reject, reply_write};
use crate::v3::{
    LISTING_BYTES_MAX, PlacedRead, READ_OVERHEAD_BYTES_MAX, ReadCall, Status, link_path,
};
use crate::xdr::Writer;
use crate::{Backend, Completed, Procedure};

/// The reply to the first of the calls that are ready.
#[derive(Debug)]
pub(super) struct Outbound {
    /// The longest message that the client receives.
    inline_bytes_max: usize,
    /// The client supports remote invalidation.
    invalidates: bool,
    step: Step,
    /// The reply as a record. A path that is placed follows.
    reply: Vec<u8>,
    /// Where in `reply` the bytes are that go into a chunk.
    source: Range<usize>,
    /// How many of them were written.
    written: usize,
    /// Where in the chunk the next bytes are written.
    cursor: Cursor,
    /// Bytes of the result in the write chunk.
    result_bytes: usize,
    /// The length of `reply` without a path that is placed.
    reply_end: usize,
    /// The header of the message: memory to be used again.
    header: Vec<u8>,
}

#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a connection has one")]
enum Step {
    /// The call was not executed yet.
    Start,
    /// Data of a READ are written into the write chunk.
    Data(PlacedRead),
    /// A path is written into the write chunk.
    Path,
    /// The reply is written into the reply chunk.
    Long,
    /// The message is sent.
    Message(Message),
}

/// The message that ends a reply.
#[derive(Clone, Copy, Debug)]
enum Message {
    /// RDMA_MSG: it has the reply.
    Inline,
    /// RDMA_NOMSG: the reply is in the reply chunk.
    Long,
    /// RDMA_ERROR.
    Error(ErrorCode),
}

/// Whether there was room for all of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    Yes,
    NoRoom,
}

/// What placing data has led to.
enum Placed {
    All,
    NoRoom,
    Failed(Status),
}

impl Outbound {
    pub(super) fn new(inline_bytes_max: usize, invalidates: bool) -> Self {
        Self {
            inline_bytes_max,
            invalidates,
            step: Step::Start,
            reply: Vec::new(),
            source: 0..0,
            written: 0,
            cursor: Cursor::default(),
            result_bytes: 0,
            reply_end: 0,
            header: Vec::new(),
        }
    }

    /// Executes the call in a slot if it was not, and posts as much of its reply as fits. A call
    /// without a reply is done at once.
    pub(super) fn poll<B: Backend>(
        &mut self,
        now: Instant,
        slot: &mut Slot,
        backend: &mut B,
        out: &mut dyn WorkList,
    ) -> Sent {
        loop {
            let chunks = &slot.chunks;
            let next = match std::mem::replace(&mut self.step, Step::Start) {
                Step::Start => match self.start(now, slot, backend) {
                    Some(step) => step,
                    None => return Sent::Yes,
                },
                Step::Data(mut read) => match self.place_data(&mut read, chunks, backend, out) {
                    Placed::NoRoom => return self.wait(Step::Data(read)),
                    placed => {
                        let completed = self.end_data(read, &placed, backend);
                        self.end_call(now, &completed, backend);
                        self.choose(chunks)
                    }
                },
                Step::Path => {
                    if self.place(chunks.result(), out) == Sent::NoRoom {
                        return self.wait(Step::Path);
                    }
                    self.result_bytes = self.written;
                    self.choose(chunks)
                }
                Step::Long => {
                    if self.place(chunks.reply(), out) == Sent::NoRoom {
                        return self.wait(Step::Long);
                    }
                    Step::Message(Message::Long)
                }
                Step::Message(message) => {
                    if self.send(message, chunks, out) == Sent::NoRoom {
                        return self.wait(Step::Message(message));
                    }
                    return Sent::Yes;
                }
            };
            self.step = next;
        }
    }

    fn wait(&mut self, step: Step) -> Sent {
        self.step = step;
        Sent::NoRoom
    }

    /// Executes a call. Returns how its reply is sent, if it has one.
    fn start<B: Backend>(
        &mut self,
        now: Instant,
        slot: &mut Slot,
        backend: &mut B,
    ) -> Option<Step> {
        self.reply.clear();
        self.result_bytes = 0;
        match &slot.body {
            Body::Refused(code) => return Some(Step::Message(Message::Error(*code))),
            Body::Rejected(xid, reject) => reply_reject(*xid, *reject, &mut self.reply),
            Body::Write(write) => {
                let completed = reply_write(write, backend, &mut self.reply);
                backend.count(&completed, now);
            }
            Body::Gather => match execute(slot.call(), slot.began, backend, &mut self.reply) {
                Executed::Read(read) => {
                    return Some(self.start_read(now, read, &slot.chunks, backend));
                }
                Executed::Done(Some(completed)) => {
                    backend.count(&completed, now);
                    if let Some(step) = self.start_path(&completed, &slot.chunks) {
                        return Some(step);
                    }
                }
                Executed::Done(None) => {}
            },
        }
        self.reply_end = self.reply.len();
        (!self.reply.is_empty()).then(|| self.choose(&slot.chunks))
    }

    /// Data of a READ go into the write chunk. Without one, as many are read as the reply has room
    /// for.
    fn start_read<B: Backend>(
        &mut self,
        now: Instant,
        read: ReadCall,
        chunks: &Chunks,
        backend: &mut B,
    ) -> Step {
        self.cursor = Cursor::default();
        let max_bytes = match chunks.result() {
            Some(_) => usize::MAX,
            None => self
                .reply_room(chunks)
                .saturating_sub(READ_OVERHEAD_BYTES_MAX),
        };
        let begun = read.begin_placed(max_bytes, backend, &mut self.reply);
        let completed = match (begun, chunks.result()) {
            (Ok(read), Some(chunk)) if read.left_bytes() as u64 > chunk_bytes(chunk) => {
                return Step::Message(Message::Error(ErrorCode::Chunk));
            }
            (Ok(read), Some(_)) => return Step::Data(read),
            (Ok(read), None) => read.finish_inline(backend, &mut self.reply),
            (Err(completed), _) => completed,
        };
        self.end_call(now, &completed, backend);
        self.choose(chunks)
    }

    /// The longest reply that can be sent without a write chunk.
    fn reply_room(&self, chunks: &Chunks) -> usize {
        let inline = self
            .inline_bytes_max
            .saturating_sub(chunks.reply_header_bytes());
        let long = chunks.reply().map_or(0, chunk_bytes);
        usize::try_from(long)
            .unwrap_or(usize::MAX)
            .max(inline)
            .min(LISTING_BYTES_MAX)
    }

    /// The path of a READLINK goes into the write chunk, if there is one.
    fn start_path(&mut self, completed: &Completed, chunks: &Chunks) -> Option<Step> {
        let chunk = chunks.result()?;
        if completed.procedure != Procedure::ReadLink || !completed.is_ok {
            return None;
        }
        let path = link_path(&self.reply[MARK_BYTES..])?;
        let path = path.start + MARK_BYTES..path.end + MARK_BYTES;
        if path.len() as u64 > chunk_bytes(chunk) {
            return Some(Step::Message(Message::Error(ErrorCode::Chunk)));
        }
        self.reply_end = path.start;
        self.begin_placing(path);
        Some(Step::Path)
    }

    /// The reply of a READ was appended.
    fn end_call<B: Backend>(&mut self, now: Instant, completed: &Completed, backend: &mut B) {
        self.reply_end = self.reply.len();
        backend.count(completed, now);
    }

    fn place_data<B: Backend>(
        &mut self,
        read: &mut PlacedRead,
        chunks: &Chunks,
        backend: &mut B,
        out: &mut dyn WorkList,
    ) -> Placed {
        let chunk = chunks.result().map_or(&[][..], Vec::as_slice);
        while let Some((piece, behind)) = self.next_piece(chunk, read.left_bytes(), out) {
            let Some(room) = out.write(piece) else {
                return Placed::NoRoom;
            };
            if let Err(status) = read.fill(backend, room) {
                out.retract();
                return Placed::Failed(status);
            }
            self.cursor = behind;
        }
        Placed::All
    }

    /// Appends the reply of a READ whose data were placed, or could not be.
    fn end_data<B: Backend>(
        &mut self,
        read: PlacedRead,
        placed: &Placed,
        backend: &mut B,
    ) -> Completed {
        if let Placed::Failed(status) = placed {
            return read.fail(*status, backend, &mut self.reply);
        }
        self.result_bytes = read.moved_bytes();
        read.finish(&mut self.reply)
    }

    fn begin_placing(&mut self, source: Range<usize>) {
        self.source = source;
        self.written = 0;
        self.cursor = Cursor::default();
    }

    /// Writes bytes of the reply into a chunk, whose length was checked.
    fn place(&mut self, chunk: Option<&Chunk>, out: &mut dyn WorkList) -> Sent {
        let chunk = chunk.map_or(&[][..], Vec::as_slice);
        loop {
            let left = self.source.len() - self.written;
            let Some((piece, behind)) = self.next_piece(chunk, left, out) else {
                return Sent::Yes;
            };
            let Some(room) = out.write(piece) else {
                return Sent::NoRoom;
            };
            let begin = self.source.start + self.written;
            room.copy_from_slice(&self.reply[begin..begin + room.len()]);
            self.written += room.len();
            self.cursor = behind;
        }
    }

    /// The next piece to write if `left` bytes are left, and the cursor behind it.
    fn next_piece(
        &self,
        chunk: &[RemoteBuffer],
        left: usize,
        out: &dyn WorkList,
    ) -> Option<(RemoteBuffer, Cursor)> {
        if left == 0 {
            return None;
        }
        let mut cursor = self.cursor;
        let left = u32::try_from(left).unwrap_or(u32::MAX);
        let piece = cursor.next(chunk.iter(), left, out)?;
        Some((piece, cursor))
    }

    /// How the reply is sent: in a message if it fits, otherwise in the reply chunk.
    fn choose(&mut self, chunks: &Chunks) -> Step {
        let reply = MARK_BYTES..self.reply_end;
        let header_bytes = chunks.reply_header_bytes();
        if header_bytes + reply.len() <= self.inline_bytes_max {
            return Step::Message(Message::Inline);
        }
        let room = chunks.reply().map_or(0, chunk_bytes);
        if header_bytes > self.inline_bytes_max || reply.len() as u64 > room {
            return Step::Message(Message::Error(ErrorCode::Chunk));
        }
        self.begin_placing(reply);
        Step::Long
    }

    fn send(&mut self, message: Message, chunks: &Chunks, out: &mut dyn WorkList) -> Sent {
        self.header.clear();
        let mut header = Writer::new(&mut self.header);
        let mut reply = &self.reply[..0];
        let credits = u32::from(CREDITS);
        match message {
            Message::Inline => {
                let lengths = (self.result_bytes, 0);
                chunks.write_reply_header((procedure::MSG, credits), lengths, &mut header);
                reply = &self.reply[MARK_BYTES..self.reply_end];
            }
            Message::Long => {
                let lengths = (self.result_bytes, self.written);
                chunks.write_reply_header((procedure::NOMSG, credits), lengths, &mut header);
            }
            Message::Error(code) => write_error(chunks.xid, code, &mut header),
        }
        let key = match message {
            Message::Error(_) => None,
            _ => chunks.only_key().filter(|_| self.invalidates),
        };
        let len = self.header.len() + reply.len();
        let Some(room) = out.send(len as u32, key) else {
            return Sent::NoRoom;
        };
        let (head, rest) = room.split_at_mut(self.header.len());
        head.copy_from_slice(&self.header);
        rest.copy_from_slice(reply);
        Sent::Yes
    }
}

/// RDMA_ERROR (RFC 8166 section 4.5).
fn write_error(xid: u32, code: ErrorCode, out: &mut Writer<'_>) {
    out.view(&FixedHeader {
        xid: xid.into(),
        version: VERSION.into(),
        credits: u32::from(CREDITS).into(),
        procedure: procedure::ERROR.into(),
    });
    out.u32(code as u32);
    if code == ErrorCode::Version {
        // The lowest and the highest version.
        out.u32(VERSION);
        out.u32(VERSION);
    }
}
