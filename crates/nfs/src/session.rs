//! The server's end of one connection: order, output and bounds.
//!
//! ```text
//!  input ──► record reader ──► call ──► replies ──► send list
//!    │          WRITE: data, as they arrive ──► tree
//!    │          READ: nothing is executed behind it until its data were sent
//!    └──► backlog: input behind a READ, or behind more replies than are kept; nothing is received meanwhile
//! ```
//!
//! Calls are executed and answered in the order of their arrival, except those whose tree waits for
//! storage: others execute them, and their replies leave when they end (`waiting`). Memory is
//! bounded whatever the peer does: data of WRITE and READ are not kept, and input is not taken
//! while output waits.

use std::marker::PhantomData;
use std::time::Instant;

use ::session::{Pace, SendList, Session, StreamSession};

use crate::callbacks::{CALLBACKS_BYTES_MAX, Callbacks};
use crate::calls::Cost;
use crate::clients::MESSAGE_BYTES_MAX;
use crate::dispatch::{Executed, cost_of, execute, reply_reject, reply_write};
use crate::rpc::{CALL_HEAD_BYTES_MAX, Call, Fragment, RecordReader, Reject};
use crate::v3::{
    HANDLE_BYTES_MAX, Produced, ReadCall, SEND_LIST_MIN_BYTES, TRANSFER_BYTES_MAX, WriteCall,
};
use crate::waiting::Waiting;
use crate::{Backend, SessionError};

/// The server's end of one TCP connection: record marking, RPC with AUTH_NONE and AUTH_SYS,
/// programs NFS (100003) and MOUNT (100005), both of version 3.
pub struct NfsSession<B> {
    records: RecordReader,
    body: Body,
    /// The present record, unless it is passed on as it arrives.
    gathered: Vec<u8>,
    /// Replies that were not sent, behind those that were.
    replies: Vec<u8>,
    replies_sent: usize,
    /// A READ behind these replies.
    read: Option<ReadCall>,
    /// The head of the READ's reply: memory to be used again.
    head: Vec<u8>,
    /// Calls that other threads execute.
    waiting: Waiting,
    /// What the reply in `replies` takes of the room for waiting calls.
    replies_cost: usize,
    /// Input behind that.
    backlog: Vec<u8>,
    backlog_taken: usize,
    /// Calls to the client.
    callbacks: Callbacks,
    pace: Pace,
    /// Calls of this turn.
    calls: usize,
    is_closing: bool,
    backend: PhantomData<fn(&mut B)>,
}

/// What becomes of the present record.
#[derive(Debug, Default)]
#[expect(
    clippy::large_enum_variant,
    reason = "a connection has one; a box would be allocated per WRITE"
)]
enum Body {
    /// It is gathered and then executed.
    #[default]
    Gather,
    /// It is a WRITE whose head was read: what follows is data.
    Write(WriteCall),
    /// It is a WRITE for a tree that waits for storage: all of it is gathered here. The number is
    /// how many bytes of its last fragment have not arrived.
    Whole(Vec<u8>, Cost, usize),
    /// It was answered: what follows is ignored.
    Skip,
}

/// The longest call other than WRITE that is read in whole; what is longer is malformed.
const GATHERED_BYTES_MAX: usize = 16 << 10;
/// The longest WRITE up to its data: the call's head, a handle, offset, count, stability and the
/// length of the data.
pub(crate) const WRITE_HEAD_BYTES_MAX: usize =
    CALL_HEAD_BYTES_MAX + 4 + HANDLE_BYTES_MAX + 8 + 4 + 4 + 4;
/// The longest compound of version 4 that is read in whole: longer than any session allows, so that
/// it is refused there.
const COMPOUND_BYTES_MAX: usize = MESSAGE_BYTES_MAX as usize + 4;
/// The longest record: the longest WRITE, or a call that is malformed but answered.
const RECORD_BYTES_MAX: usize = TRANSFER_BYTES_MAX + GATHERED_BYTES_MAX;
/// Calls are not executed while at least this many bytes of replies wait to be sent.
const REPLIES_BYTES_MAX: usize = 64 << 10;
/// What is received at a time besides data of a WRITE, and so the longest backlog.
const TURN_BYTES_MAX: usize = 64 << 10;

impl<B: Backend> NfsSession<B> {
    /// The most memory that a connection takes in this session, in bytes: what the program charges
    /// for it.
    pub const BYTES_MAX: u64 = {
        // Buffers of replies and of gathered calls grow by doubling.
        let reply = MESSAGE_BYTES_MAX as usize;
        let buffers = 2 * (REPLIES_BYTES_MAX + reply + COMPOUND_BYTES_MAX);
        (buffers + TURN_BYTES_MAX + CALLBACKS_BYTES_MAX + 4096) as u64
    };
    /// The least capacity in bytes of the send lists that it is given.
    pub const SEND_LIST_MIN_BYTES: usize = SEND_LIST_MIN_BYTES;

    /// The end of a connection that was just accepted.
    pub fn new() -> Self {
        Self {
            records: RecordReader::default(),
            body: Body::Gather,
            gathered: Vec::new(),
            replies: Vec::new(),
            replies_sent: 0,
            read: None,
            head: Vec::new(),
            waiting: Waiting::default(),
            replies_cost: 0,
            backlog: Vec::new(),
            backlog_taken: 0,
            callbacks: Callbacks::default(),
            pace: Pace::default(),
            calls: 0,
            is_closing: false,
            backend: PhantomData,
        }
    }

    /// Whether calls are executed at present.
    fn takes_calls(&self) -> bool {
        !self.is_closing
            && self.read.is_none()
            && self.replies.len() < REPLIES_BYTES_MAX
            && self.waiting.has_room()
    }

    /// Executes calls from the front of the input while there is room for their replies.
    fn take_input(
        &mut self,
        now: Instant,
        input: &mut &[u8],
        backend: &mut B,
    ) -> Result<(), SessionError> {
        while self.takes_calls() {
            match self.records.next(input, RECORD_BYTES_MAX) {
                Ok(Some(fragment)) => self.take_fragment(now, fragment, backend),
                Ok(None) => break,
                Err(error) => {
                    self.is_closing = true;
                    self.backlog.clear();
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    fn take_fragment(&mut self, now: Instant, fragment: Fragment<'_>, backend: &mut B) {
        match &mut self.body {
            Body::Skip => {}
            Body::Write(_) => self.take_data(fragment.bytes, backend),
            Body::Whole(record, _, left) => {
                record.extend_from_slice(fragment.bytes);
                *left = if fragment.is_last { fragment.left } else { 0 };
            }
            Body::Gather if self.gathered.is_empty() && is_executable(&fragment) => {
                return self.execute(now, fragment.bytes, backend);
            }
            Body::Gather => self.gather(now, fragment, backend),
        }
        if fragment.ends_record() {
            self.end_record(now, backend);
        }
    }

    /// Takes bytes of a record that has not arrived as a whole. As soon as the head of a WRITE has,
    /// its data are written.
    fn gather(&mut self, now: Instant, fragment: Fragment<'_>, backend: &mut B) {
        let Fragment {
            bytes,
            left,
            is_last,
        } = fragment;
        let missing = WRITE_HEAD_BYTES_MAX.saturating_sub(self.gathered.len());
        if self.gathered.is_empty() && bytes.len() >= missing && Call::is_write(bytes) {
            return self.begin_write(now, bytes, is_last.then_some(left), backend);
        }

        let (head, rest) = bytes.split_at(bytes.len().min(missing));
        self.gathered.extend_from_slice(head);
        if missing > 0 && head.len() == missing && Call::is_write(&self.gathered) {
            let head = std::mem::take(&mut self.gathered);
            self.begin_write(now, &head, is_last.then_some(rest.len() + left), backend);
            self.gathered = head;
            return self.take_data(rest, backend);
        }
        let longest = if Call::is_compound(&self.gathered) {
            COMPOUND_BYTES_MAX
        } else {
            GATHERED_BYTES_MAX
        };
        // One byte more than the longest call makes a longer one malformed.
        let room = (longest + 1).saturating_sub(self.gathered.len());
        self.gathered
            .extend_from_slice(&rest[..rest.len().min(room)]);
    }

    /// Begins a WRITE with what has arrived of it. `rest_len` is the length of what has not, if
    /// that is known.
    fn begin_write(
        &mut self,
        now: Instant,
        bytes: &[u8],
        rest_len: Option<usize>,
        backend: &mut B,
    ) {
        self.calls += 1;
        let begun = Call::parse(bytes).and_then(|call| {
            let xid = call.xid;
            if let Some(cost) = cost_of(&call, TRANSFER_BYTES_MAX, backend) {
                return Ok(Body::Whole(bytes.to_vec(), cost, rest_len.unwrap_or(0)));
            }
            let garbage = |_| (xid, Reject::GarbageArguments);
            let (mut write, data) = WriteCall::new(call, now).map_err(garbage)?;
            match rest_len.map(|rest_len| rest_len + data.len()) {
                Some(len) if len != write.left_bytes() => {
                    return Err((xid, Reject::GarbageArguments));
                }
                _ => {}
            }
            write.take(backend, data).map_err(garbage)?;
            Ok(Body::Write(write))
        });
        self.body = begun.unwrap_or_else(|(xid, reject)| {
            reply_reject(xid, reject, &mut self.replies);
            Body::Skip
        });
    }

    /// Takes data of the present WRITE, if it is one.
    fn take_data(&mut self, bytes: &[u8], backend: &mut B) {
        if let Body::Whole(record, _, left) = &mut self.body {
            record.extend_from_slice(bytes);
            *left = left.saturating_sub(bytes.len());
            return;
        }
        if let Body::Write(write) = &mut self.body
            && write.take(backend, bytes).is_err()
        {
            reply_reject(write.xid(), Reject::GarbageArguments, &mut self.replies);
            self.body = Body::Skip;
        }
    }

    fn end_record(&mut self, now: Instant, backend: &mut B) {
        match std::mem::take(&mut self.body) {
            Body::Gather => {
                let record = std::mem::take(&mut self.gathered);
                self.execute(now, &record, backend);
                self.gathered = record;
            }
            Body::Write(write) if write.left_bytes() == 0 => {
                let completed = reply_write(&write, backend, &mut self.replies);
                backend.count(&completed, now);
            }
            Body::Write(write) => {
                reply_reject(write.xid(), Reject::GarbageArguments, &mut self.replies);
            }
            Body::Whole(record, cost, _) => {
                let waiting = (cost, None, now);
                self.waiting
                    .begin(record, waiting, backend, &mut self.replies);
            }
            Body::Skip => {}
        }
        self.gathered.clear();
    }

    fn execute(&mut self, now: Instant, record: &[u8], backend: &mut B) {
        self.calls += 1;
        match execute(record, now, backend, &mut self.replies) {
            Executed::Read(read) => self.read = Some(read),
            Executed::Done(Some(completed)) | Executed::Compound(completed, _) => {
                backend.count(&completed, now);
            }
            Executed::Done(None) => {}
            Executed::Waits(cost, rest) => {
                let (record, waiting) = (record.to_vec(), (cost, rest, now));
                self.waiting
                    .begin(record, waiting, backend, &mut self.replies);
            }
        }
    }

    /// Makes the calls to the client that are due.
    fn make_calls(&mut self, now: Instant, backend: &mut B) {
        if self.is_closing {
            return;
        }
        let waiting = &mut self.waiting;
        let push = |record| waiting.push_call(record);
        self.callbacks.take(now, backend, push);
    }

    /// Keeps input for later.
    fn keep(&mut self, input: &[u8]) {
        if input.is_empty() || self.is_closing {
            return;
        }
        self.backlog.drain(..self.backlog_taken);
        self.backlog_taken = 0;
        self.backlog.reserve_exact(input.len());
        self.backlog.extend_from_slice(input);
    }

    /// Executes calls of the backlog. An invalid record ends the connection as if it had just
    /// arrived.
    fn take_backlog(&mut self, now: Instant, backend: &mut B) {
        let backlog = std::mem::take(&mut self.backlog);
        let mut input = &backlog[self.backlog_taken..];
        let is_valid = self.take_input(now, &mut input, backend).is_ok();
        self.backlog_taken = backlog.len() - input.len();
        self.backlog = backlog;
        if !is_valid || self.backlog_taken == self.backlog.len() {
            self.backlog.clear();
            self.backlog_taken = 0;
        }
    }

    /// Passes replies on. Returns whether these were all.
    fn send_replies(&mut self, out: &mut SendList) -> bool {
        loop {
            let waiting = &self.replies[self.replies_sent..];
            let len = waiting.len().min(out.free_bytes());
            if len > 0 && out.push(&waiting[..len]) {
                self.replies_sent += len;
            }
            if self.replies_sent < self.replies.len() {
                return false;
            }
            self.replies.clear();
            self.replies_sent = 0;
            if self.replies_cost > 0 {
                // This one may be longer than others ever are.
                self.replies = Vec::new();
                self.waiting.sent(std::mem::take(&mut self.replies_cost));
            }
            // The data of a READ follow its head at once.
            if self.read.is_some() {
                return true;
            }
            let Some((reply, cost)) = self.waiting.next_reply() else {
                return true;
            };
            (self.replies, self.replies_cost) = (reply, cost);
        }
    }

    /// Sends data of the READ that is being answered. Returns whether its reply is whole.
    fn send_data(&mut self, now: Instant, backend: &mut B, out: &mut SendList) -> bool {
        let Some(read) = &mut self.read else {
            return true;
        };
        match read.produce(backend, out, &mut self.replies, &mut self.head) {
            Produced::Part => return false,
            Produced::Whole(completed) => backend.count(&completed, now),
            Produced::Broken => {
                self.is_closing = true;
                self.backlog.clear();
                self.backlog_taken = 0;
            }
        }
        self.read = None;
        true
    }
}

/// Whether a fragment is a whole record that need not be gathered.
fn is_executable(fragment: &Fragment<'_>) -> bool {
    let bytes = fragment.bytes;
    fragment.ends_record() && (bytes.len() <= GATHERED_BYTES_MAX || Call::is_write(bytes))
}

impl<B: Backend> Default for NfsSession<B> {
    fn default() -> Self {
        Self::new()
    }
}

impl<B: Backend> StreamSession for NfsSession<B> {
    fn turn_bytes(&self) -> usize {
        if !self.backlog.is_empty() || !self.takes_calls() {
            return 0;
        }
        let data = match &self.body {
            Body::Write(write) => write.left_bytes(),
            Body::Whole(_, _, left) => *left,
            _ => 0,
        };
        data + self.pace.turn_bytes().min(TURN_BYTES_MAX)
    }

    fn handle_bytes(
        &mut self,
        now: Instant,
        input: &[u8],
        backend: &mut B,
    ) -> Result<(), SessionError> {
        let mut rest = input;
        self.calls = 0;
        if self.backlog.is_empty() {
            self.take_input(now, &mut rest, backend)?;
        }
        self.keep(rest);
        self.pace.note(input.len(), self.calls);
        Ok(())
    }

    fn poll_transmit(&mut self, now: Instant, backend: &mut B, out: &mut SendList) {
        while self.send_replies(out) && self.send_data(now, backend, out) {
            if !self.replies.is_empty() || self.waiting.has_reply() {
                continue;
            }
            if self.backlog.is_empty() || !self.takes_calls() {
                return;
            }
            self.take_backlog(now, backend);
        }
    }
}

impl<B: Backend> Session for NfsSession<B> {
    type Backend = B;
    type Error = SessionError;

    fn wants_transmit(&self) -> bool {
        !self.replies.is_empty()
            || self.read.is_some()
            || self.waiting.has_reply()
            || !self.backlog.is_empty() && self.takes_calls()
    }

    fn is_idle(&self) -> bool {
        !self.wants_transmit() && self.waiting.is_empty()
    }

    fn is_closing(&self) -> bool {
        self.is_closing
    }

    fn handle_wake(&mut self, now: Instant, backend: &mut B) -> Result<(), SessionError> {
        self.waiting.take_answers(now, backend);
        self.make_calls(now, backend);
        Ok(())
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.callbacks.due()
    }

    fn handle_timeout(&mut self, now: Instant, backend: &mut B) -> Result<(), SessionError> {
        self.make_calls(now, backend);
        Ok(())
    }

    fn handle_close(&mut self, now: Instant, backend: &mut B) {
        Callbacks::close(now, backend);
    }
}
