//! Calls whose tree waits for storage. A session passes such a call to the program, as a whole or,
//! of a compound, from the first operation on that waits; a thread that may wait executes it and
//! gives the whole reply back. Sessions serve other calls meanwhile, so replies leave in the order
//! in which calls end.

use std::collections::VecDeque;
use std::time::Instant;

use crate::calls::{Answer, BYTES_MAX, CALL_BYTES, Cost, Ending, Rest, WaitingCall};
use crate::dispatch::{
    Executed, execute_parsed, reply_later, reply_reject, results_of, resume_compound,
};
use crate::results::Results;
use crate::rpc::Call;
use crate::v3::{READ_HEAD_BYTES, ReadCall, TRANSFER_BYTES_MAX};
use crate::v4::Resumption;
use crate::{Backend, Completed, ExportId};

/// The most waiting calls of a connection.
const CALLS_MAX: usize = 64;

impl WaitingCall {
    /// The most memory that waiting calls of a connection take, in bytes: what the program charges
    /// for it once the connection has the first. A call may begin below the bound and exceed it,
    /// while another arrives.
    pub const BYTES_MAX: u64 = (BYTES_MAX + 2 * TRANSFER_BYTES_MAX + 4 * CALL_BYTES) as u64;

    /// The export that it is about.
    pub const fn export(&self) -> ExportId {
        self.cost.export
    }

    /// Executes the call. `backend` need not be the one of the session, but has to give the same
    /// answers.
    pub fn execute<B: Backend>(mut self, backend: &mut B) -> Answer {
        let mut reply = Vec::new();
        let record = std::mem::take(&mut self.record);
        let executed = match (Call::parse(&record), self.rest.take()) {
            (Ok(call), Some(rest)) => {
                return self.resume(&call, rest, Resumption::Execute, backend);
            }
            (Ok(call), None) => execute_parsed(call, &record, self.began, backend, &mut reply),
            (Err((xid, reject)), _) => {
                reply_reject(xid, reject, &mut reply);
                Executed::Done(None)
            }
        };
        let (completed, results) = match executed {
            Executed::Read(read) => self.read(read, backend, &mut reply),
            Executed::Done(Some(completed)) => (Some(completed), results_of(&completed, &reply)),
            Executed::Compound(completed, results) => (Some(completed), results),
            Executed::Done(None) | Executed::Waits(..) => (None, Results::default()),
        };
        self.answer(reply, completed, results)
    }

    /// Answers the call, which cannot be executed now, so that the client tries later.
    pub(crate) fn refuse<B: Backend>(mut self, backend: &mut B) -> Answer {
        let record = std::mem::take(&mut self.record);
        if let (Ok(call), Some(rest)) = (Call::parse(&record), self.rest.take()) {
            return self.resume(&call, rest, Resumption::Refuse, backend);
        }
        let mut reply = Vec::new();
        refuse(&record, &mut reply);
        self.answer(reply, None, Results::default())
    }

    /// Passes the call on. If the program cannot take it now, returns the answer that refuses it.
    pub(crate) fn submit<B: Backend>(self, backend: &mut B) -> Result<(), Box<Answer>> {
        let submitted = if backend.charge_waiting() {
            backend.submit(self)
        } else {
            Err(self)
        };
        submitted.map_err(|call| Box::new(call.refuse(backend)))
    }

    /// Executes or refuses the rest of a compound.
    fn resume<B: Backend>(
        &self,
        call: &Call<'_>,
        rest: Rest,
        resumption: Resumption,
        backend: &mut B,
    ) -> Answer {
        match resume_compound(call, rest, resumption, backend) {
            Some((reply, completed, results)) => self.answer(reply, Some(completed), results),
            None => self.answer(Vec::new(), None, Results::default()),
        }
    }

    fn answer(&self, reply: Vec<u8>, completed: Option<Completed>, results: Results) -> Answer {
        Answer {
            slot: self.slot,
            reply,
            ending: Ending {
                completed: completed.map(|it| (self.cost.export, it)),
                results,
            },
            bytes: self.cost.bytes,
        }
    }

    /// Executes a READ. Its data are in the reply.
    fn read<B: Backend>(
        &self,
        read: ReadCall,
        backend: &mut B,
        reply: &mut Vec<u8>,
    ) -> (Option<Completed>, Results) {
        let begun = read.begin_placed(self.data_bytes_max, backend, reply);
        let completed = match begun {
            Ok(read) => read.finish_inline(backend, reply),
            Err(completed) => completed,
        };
        let results = if completed.is_ok {
            Results::one(READ_HEAD_BYTES..READ_HEAD_BYTES + completed.bytes_out as usize)
        } else {
            Results::default()
        };
        (Some(completed), results)
    }
}

impl Ending {
    /// Counts the call.
    pub(crate) fn count<B: Backend>(&self, now: Instant, backend: &mut B) {
        if let Some((export, completed)) = &self.completed {
            // What follows is counted for this export, if it still exists.
            let _ = backend.by_id(*export);
            backend.count(completed, now);
        }
    }
}

/// The waiting calls of a stream connection.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    calls: usize,
    /// What they take, with replies that were not sent.
    bytes: usize,
    /// Replies that were not sent, with what their calls take.
    replies: VecDeque<(Vec<u8>, usize)>,
}

impl Waiting {
    /// Whether another call may wait.
    pub(crate) fn has_room(&self) -> bool {
        self.calls < CALLS_MAX && self.bytes < BYTES_MAX
    }

    /// Whether neither a call nor a reply waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.calls == 0 && self.replies.is_empty()
    }

    /// Passes a call on. If the program cannot take it now, the status asks the client to retry
    /// later.
    pub(crate) fn begin<B: Backend>(
        &mut self,
        record: Vec<u8>,
        (cost, rest, now): (Cost, Option<Rest>, Instant),
        backend: &mut B,
        replies: &mut Vec<u8>,
    ) {
        let call = WaitingCall {
            record,
            began: now,
            slot: 0,
            data_bytes_max: backend.transfer_bytes_max(),
            cost,
            rest,
        };
        match call.submit(backend) {
            Ok(()) => {
                self.calls += 1;
                self.bytes += cost.bytes;
            }
            Err(answer) => {
                answer.ending.count(now, backend);
                replies.extend_from_slice(&answer.reply);
            }
        }
    }

    /// Takes the answers that there are.
    pub(crate) fn take_answers<B: Backend>(&mut self, now: Instant, backend: &mut B) {
        while let Some(answer) = backend.next_answer() {
            self.calls = self.calls.saturating_sub(1);
            answer.ending.count(now, backend);
            self.replies.push_back((answer.reply, answer.bytes));
        }
    }

    /// A call to the client is sent as replies are.
    pub(crate) fn push_call(&mut self, record: Vec<u8>) {
        self.replies.push_back((record, 0));
    }

    /// Whether there is a reply to be sent.
    pub(crate) fn has_reply(&self) -> bool {
        !self.replies.is_empty()
    }

    /// The next reply, with the bytes to be passed to [`sent`](Self::sent) when it was sent.
    pub(crate) fn next_reply(&mut self) -> Option<(Vec<u8>, usize)> {
        self.replies.pop_front()
    }

    /// A reply was sent.
    pub(crate) fn sent(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}

/// Appends the reply to a call that cannot wait now.
pub(crate) fn refuse(record: &[u8], replies: &mut Vec<u8>) {
    match Call::parse(record) {
        Ok(call) => reply_later(&call, replies),
        Err((xid, reject)) => reply_reject(xid, reject, replies),
    }
}
