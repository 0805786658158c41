//! Replies: RDMA WRITEs of results and of long replies, and messages.
//!
//! ```text
//!          READ                        its data are placed
//!  Start ─┬──────► Data ──────────────────────────────────────────┐
//!         │ READLINK, compound         path and data are placed   │
//!         ├──────► Results ───────────────────────────────────────┤
//!         │ any other                  longer than a message      ▼
//!         ├───────────────────────────────────────► Long ──► Message
//!         └──────────────────────────────────────────────────────►
//! ```
//!
//! Read first: RFC 8166 sections 3.4.6, 3.5 and 4.3 to 4.5; RFC 8267 sections 2 and 6.

use std::ops::Range;
use std::time::Instant;

use session::{RemoteBuffer, WorkList};

use super::chunks::{Chunk, Chunks, chunk_bytes};
use super::slot::{Body, CREDITS, Cursor, INLINE_BYTES_MAX, Slot, Waits};
use super::wire::{ErrorCode, FixedHeader, VERSION, procedure};
use crate::calls::Ending;
use crate::clients::MESSAGE_BYTES_MAX;
use crate::dispatch::{Executed, MARK_BYTES, execute, reply_reject, reply_write, results_of};
use crate::results::{PLACED_MAX, Results};
use crate::v3::{LISTING_BYTES_MAX, PlacedRead, READ_OVERHEAD_BYTES_MAX, ReadCall, Status};
use crate::xdr::{Writer, padding};
use crate::{Backend, Completed};

/// The reply to the first of the calls that are ready.
#[derive(Debug)]
pub(super) struct Outbound {
    /// The longest message that the client receives.
    inline_bytes_max: usize,
    /// The client supports remote invalidation.
    invalidates: bool,
    step: Step,
    /// The reply as a record. Data that are placed are removed from it afterwards, except those of
    /// a READ, which are never in it.
    reply: Vec<u8>,
    /// What of it may be placed.
    results: Results,
    /// Where in `reply` the bytes are that go into a chunk.
    source: Range<usize>,
    /// How many of them were written.
    written: usize,
    /// Where in the chunk the next bytes are written.
    cursor: Cursor,
    /// Bytes of results in the chunks of the write list.
    result_bytes: [usize; PLACED_MAX],
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
    /// The result with this index is written into its write chunk.
    Results(usize),
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

/// What became of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    Yes,
    NoRoom,
    /// There is no reply yet: another thread has to execute the call.
    Waits,
}

/// What placing data has led to.
enum Placed {
    All,
    NoRoom,
    Failed(Status),
}

/// Memory for replies that is kept. They grow by doubling; the longest is that of a compound,
/// unless another thread has made it.
pub(super) const REPLY_BYTES_KEPT: usize = 2 * (MESSAGE_BYTES_MAX as usize + INLINE_BYTES_MAX);

impl Outbound {
    pub(super) fn new(inline_bytes_max: usize, invalidates: bool) -> Self {
        Self {
            inline_bytes_max,
            invalidates,
            step: Step::Start,
            reply: Vec::new(),
            results: Results::default(),
            source: 0..0,
            written: 0,
            cursor: Cursor::default(),
            result_bytes: [0; PLACED_MAX],
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
                    None if matches!(slot.body, Body::Waits(_)) => return Sent::Waits,
                    None => return Sent::Yes,
                },
                Step::Data(mut read) => match self.place_data(&mut read, chunks, backend, out) {
                    Placed::NoRoom => return self.wait(Step::Data(read)),
                    placed => {
                        let completed = self.end_data(read, &placed, backend);
                        backend.count(&completed, now);
                        self.choose(chunks)
                    }
                },
                Step::Results(index) => {
                    if self.place(chunks.result(index), out) == Sent::NoRoom {
                        return self.wait(Step::Results(index));
                    }
                    self.result_bytes[index] = self.written;
                    self.next_result(index + 1, chunks)
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
        self.reply.shrink_to(REPLY_BYTES_KEPT);
        self.results = Results::default();
        self.result_bytes = [0; PLACED_MAX];
        match &slot.body {
            Body::Answered(ending) => {
                let ending = ending.clone();
                return self.start_answer(now, slot, ending, backend);
            }
            // They are not ready.
            Body::Whole(_) | Body::Waits(..) => return None,
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
                Executed::Compound(completed, results) => {
                    backend.count(&completed, now);
                    self.results = results;
                }
                Executed::Done(Some(completed)) => {
                    backend.count(&completed, now);
                    self.results = results_of(&completed, &self.reply);
                }
                Executed::Done(None) => {}
                Executed::Waits(cost, rest) => {
                    slot.body = Body::Waits(Waits {
                        cost,
                        data_bytes_max: self.data_room(&slot.chunks),
                        rest,
                    });
                    return None;
                }
            },
        }
        (!self.reply.is_empty()).then(|| self.next_result(0, &slot.chunks))
    }

    /// Sends a reply that was made before.
    fn start_answer<B: Backend>(
        &mut self,
        now: Instant,
        slot: &mut Slot,
        ending: Ending,
        backend: &mut B,
    ) -> Option<Step> {
        self.reply = slot.take_bytes();
        ending.count(now, backend);
        self.results = ending.results;
        (!self.reply.is_empty()).then(|| self.next_result(0, &slot.chunks))
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
        let max_bytes = self.data_room(chunks);
        let begun = read.begin_placed(max_bytes, backend, &mut self.reply);
        let completed = match (begun, chunks.result(0)) {
            (Ok(read), Some(chunk)) if read.left_bytes() as u64 > chunk_bytes(chunk) => {
                return Step::Message(Message::Error(ErrorCode::Chunk));
            }
            (Ok(read), Some(_)) => return Step::Data(read),
            (Ok(read), None) => read.finish_inline(backend, &mut self.reply),
            (Err(completed), _) => completed,
        };
        backend.count(&completed, now);
        self.choose(chunks)
    }

    /// The most data of a READ that a reply has room for. A write chunk that is too short is an
    /// error.
    pub(super) fn data_room(&self, chunks: &Chunks) -> usize {
        match chunks.result(0) {
            Some(_) => usize::MAX,
            None => self
                .reply_room(chunks)
                .saturating_sub(READ_OVERHEAD_BYTES_MAX),
        }
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

    /// Results go into the chunks of the write list from the one with this index on, as far as it
    /// has them. Behind the last one the rest of the reply follows.
    fn next_result(&mut self, from: usize, chunks: &Chunks) -> Step {
        for (index, range) in self.results.ranges().iter().enumerate().skip(from) {
            let Some(chunk) = chunks.result(index) else {
                continue;
            };
            if range.len() as u64 > chunk_bytes(chunk) {
                return Step::Message(Message::Error(ErrorCode::Chunk));
            }
            self.begin_placing(range.clone());
            return Step::Results(index);
        }
        self.remove_placed(chunks);
        self.choose(chunks)
    }

    /// Removes results that were placed from the reply, with their padding.
    fn remove_placed(&mut self, chunks: &Chunks) {
        // From the last one on, so that the places of the others stay.
        for (index, range) in self.results.ranges().iter().enumerate().rev() {
            if chunks.result(index).is_some() {
                let end = range.end + padding(range.len());
                self.reply.drain(range.start..end);
            }
        }
    }

    fn place_data<B: Backend>(
        &mut self,
        read: &mut PlacedRead,
        chunks: &Chunks,
        backend: &mut B,
        out: &mut dyn WorkList,
    ) -> Placed {
        let chunk = chunks.result(0).map_or(&[][..], Vec::as_slice);
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
        self.result_bytes[0] = read.moved_bytes();
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
        let reply = MARK_BYTES..self.reply.len();
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
                let lengths = (&self.result_bytes, 0);
                chunks.write_reply_header((procedure::MSG, credits), lengths, &mut header);
                reply = &self.reply[MARK_BYTES..];
            }
            Message::Long => {
                let lengths = (&self.result_bytes, self.written);
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
