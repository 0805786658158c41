//! From a record to its reply: one call at a time.

use std::time::Instant;

use crate::reply_cache::{CallKey, Known};
use crate::rpc::{Call, Reject, record_mark, write_reject, write_success};
use crate::v3::{Context, Fault, ReadCall, WriteCall, failure_len};
use crate::xdr::Writer;
use crate::{Backend, Completed, Procedure, mount, v3, v4};

/// What a record has led to.
#[derive(Debug)]
pub(crate) enum Executed {
    /// It is done: its reply, if it has one, was appended.
    Done(Option<Completed>),
    /// A READ, whose reply is produced where it is sent.
    Read(ReadCall),
}

/// Executes the call in a record and appends its reply, a record of its own, to `replies`.
pub(crate) fn execute<B: Backend>(
    record: &[u8],
    now: Instant,
    backend: &mut B,
    replies: &mut Vec<u8>,
) -> Executed {
    let call = match Call::parse(record) {
        Ok(call) => call,
        Err((xid, reject)) => {
            reply_reject(xid, reject, replies);
            return Executed::Done(None);
        }
    };
    let xid = call.xid;
    let completed = match call.procedure {
        Procedure::Read => {
            if let Ok(read) = ReadCall::new(call, now) {
                return Executed::Read(read);
            }
            reply_reject(xid, Reject::GarbageArguments, replies);
            None
        }
        Procedure::Write => execute_write(call, now, backend, replies),
        Procedure::Compound => execute_compound(&call, record.len(), now, backend, replies),
        procedure if procedure.is_kept() => {
            let key = CallKey::new(&call, record);
            execute_once(&call, key, now, backend, replies)
        }
        _ => execute_call(&call, now, backend, replies),
    };
    Executed::Done(completed)
}

/// Executes a WRITE that has arrived as a whole.
fn execute_write<B: Backend>(
    call: Call<'_>,
    now: Instant,
    backend: &mut B,
    replies: &mut Vec<u8>,
) -> Option<Completed> {
    let xid = call.xid;
    if let Ok((mut write, data)) = WriteCall::new(call, now)
        && data.len() == write.left_bytes()
        && write.take(backend, data).is_ok()
    {
        return Some(reply_write(&write, backend, replies));
    }
    reply_reject(xid, Reject::GarbageArguments, replies);
    None
}

/// Appends the reply to a WRITE.
pub(crate) fn reply_write<B: Backend>(
    write: &WriteCall,
    backend: &mut B,
    replies: &mut Vec<u8>,
) -> Completed {
    append(replies, |out| {
        write_success(write.xid(), out);
        write.finish(backend, out)
    })
}

/// Appends the reply to a call that is not executed, if it has one.
pub(crate) fn reply_reject(xid: u32, reject: Reject, replies: &mut Vec<u8>) {
    if reject != Reject::NoCall {
        append(replies, |out| write_reject(xid, reject, out));
    }
}

/// Executes a compound of version 4.
fn execute_compound<B: Backend>(
    call: &Call<'_>,
    len_bytes: usize,
    now: Instant,
    backend: &mut B,
    replies: &mut Vec<u8>,
) -> Option<Completed> {
    append(replies, |out| {
        let begin = out.len();
        write_success(call.xid, out);
        let executed = v4::execute(call, len_bytes, now, backend, out);
        if executed.is_err() {
            out.truncate(begin);
            write_reject(call.xid, Reject::GarbageArguments, out);
        }
        executed.ok()
    })
}

/// Executes a call, unless it was executed before.
fn execute_once<B: Backend>(
    call: &Call<'_>,
    key: CallKey,
    now: Instant,
    backend: &mut B,
    replies: &mut Vec<u8>,
) -> Option<Completed> {
    let client = backend.client();
    let begin = replies.len();
    let known = append(replies, |out| {
        let mut known = Known::InProgress;
        backend.with_replies(&mut |cache| known = cache.begin(client, key, now, out));
        known
    });
    if known == Known::Replied {
        return None;
    }
    replies.truncate(begin);
    if known == Known::InProgress {
        return None;
    }
    let completed = execute_call(call, now, backend, replies);
    let reply = &replies[begin + MARK_BYTES..];
    backend.with_replies(&mut |cache| cache.finish(client, key, reply));
    completed
}

/// Executes a call other than READ and WRITE. Returns `None` if its arguments are malformed.
fn execute_call<B: Backend>(
    call: &Call<'_>,
    now: Instant,
    backend: &mut B,
    replies: &mut Vec<u8>,
) -> Option<Completed> {
    let procedure = call.procedure;
    append(replies, |out| {
        let begin = out.len();
        write_success(call.xid, out);
        let results = out.len();
        let mut context = Context {
            credential: &call.credential,
            backend,
        };
        let executed = if procedure.is_mount() {
            mount::execute(procedure, &mut context, call.arguments, out)
        } else {
            v3::execute(procedure, &mut context, call.arguments, out)
        };
        let status = match executed {
            Ok(status) => status,
            Err(Fault::Status(status)) => {
                out.truncate(results);
                out.u32(status as u32);
                out.zeros(failure_len(procedure));
                status
            }
            Err(Fault::Malformed) => {
                out.truncate(begin);
                write_reject(call.xid, Reject::GarbageArguments, out);
                return None;
            }
        };
        Some(Completed {
            procedure,
            is_ok: status == v3::Status::Ok,
            bytes_in: 0,
            bytes_out: 0,
            began: now,
        })
    })
}

/// The length of a record's header.
pub(crate) const MARK_BYTES: usize = 4;

/// Appends a record that `write` writes.
fn append<T>(replies: &mut Vec<u8>, write: impl FnOnce(&mut Writer<'_>) -> T) -> T {
    let begin = replies.len();
    let mut out = Writer::new(replies);
    out.zeros(MARK_BYTES);
    let value = write(&mut out);
    let len = out.len() - begin - MARK_BYTES;
    out.patch(begin, &record_mark(len));
    value
}
