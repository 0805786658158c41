//! From a record to its reply: one call at a time.

use std::time::Instant;

use crate::callbacks::take_reply;
use crate::calls::{CALL_BYTES, Cost, Rest};
use crate::reply_cache::{CallKey, Known};
use crate::results::Results;
use crate::rpc::{Call, Reject, record_mark, write_reject, write_success};
use crate::v3::{
    Context, Fault, Handle, LISTING_BYTES_MAX, READ_OVERHEAD_BYTES_MAX, ReadCall, WriteCall,
    failure_len,
};
use crate::v4::{Outcome, Resumption, Stopped};
use crate::xdr::Writer;
use crate::{Backend, Completed, Procedure, mount, nlm, v3, v4};

/// What a record has led to.
#[derive(Debug)]
pub(crate) enum Executed {
    /// It is done: its reply, if it has one, was appended.
    Done(Option<Completed>),
    /// A compound, whose reply was appended, with results that may be placed.
    Compound(Completed, Results),
    /// A READ, whose reply is produced where it is sent.
    Read(ReadCall),
    /// Its tree waits for storage, so another thread has to execute it: all of it, or the rest of a
    /// compound.
    Waits(Cost, Option<Rest>),
}

/// What a call costs if its tree waits for storage; otherwise `None`.
pub(crate) fn cost_of<B: Backend>(
    call: &Call<'_>,
    record_len: usize,
    backend: &mut B,
) -> Option<Cost> {
    let mut arguments = call.arguments;
    let export = match call.procedure {
        // Its operations decide.
        Procedure::Null | Procedure::Compound => return None,
        Procedure::Mnt => mount::export(arguments, backend)?,
        procedure if procedure.is_mount() => return None,
        procedure if procedure.is_lock() => nlm::export(procedure, arguments, backend)?,
        _ => {
            let handle = Handle::read(&mut arguments).ok()?.ok()?;
            backend.by_id(handle.export).ok()?
        }
    };
    if !export.tree.may_wait() {
        return None;
    }
    let reply = match call.procedure {
        Procedure::Read => {
            READ_OVERHEAD_BYTES_MAX + ReadCall::asked_bytes(call).unwrap_or_default()
        }
        Procedure::ReadDir | Procedure::ReadDirPlus => LISTING_BYTES_MAX,
        _ => 0,
    };
    Some(Cost {
        export: export.id,
        bytes: CALL_BYTES + record_len + reply,
    })
}

/// What is left of a compound that has stopped.
#[derive(Debug)]
struct StoppedCompound {
    stopped: Box<Stopped>,
    /// The reply as far as it is, as a record.
    reply: Vec<u8>,
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
        Err((_, Reject::NoCall)) if take_reply(record, now, backend) => {
            return Executed::Done(None);
        }
        Err((xid, reject)) => {
            reply_reject(xid, reject, replies);
            return Executed::Done(None);
        }
    };
    match cost_of(&call, record.len(), backend) {
        Some(cost) => Executed::Waits(cost, None),
        None => execute_parsed(call, record, now, backend, replies),
    }
}

/// As [`execute`], in a thread that may wait.
pub(crate) fn execute_parsed<B: Backend>(
    call: Call<'_>,
    record: &[u8],
    now: Instant,
    backend: &mut B,
    replies: &mut Vec<u8>,
) -> Executed {
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
        Procedure::Compound => {
            return execute_compound(&call, record.len(), now, backend, replies);
        }
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

/// What may be placed of the reply to a call that is done: the path of a READLINK.
pub(crate) fn results_of(completed: &Completed, reply: &[u8]) -> Results {
    if completed.procedure == Procedure::ReadLink
        && completed.is_ok
        && let Some(path) = v3::link_path(&reply[MARK_BYTES..])
    {
        return Results::one(path.start + MARK_BYTES..path.end + MARK_BYTES);
    }
    Results::default()
}

/// Appends the reply to a call that is not executed, if it has one.
pub(crate) fn reply_reject(xid: u32, reject: Reject, replies: &mut Vec<u8>) {
    if reject != Reject::NoCall {
        append(replies, |out| write_reject(xid, reject, out));
    }
}

/// Executes a compound of version 4, until one of its operations has to wait.
fn execute_compound<B: Backend>(
    call: &Call<'_>,
    len_bytes: usize,
    now: Instant,
    backend: &mut B,
    replies: &mut Vec<u8>,
) -> Executed {
    let begin = replies.len();
    let outcome = append(replies, |out| {
        let begin = out.len();
        write_success(call.xid, out);
        let executed = v4::execute(call, len_bytes, now, backend, out);
        if executed.is_err() {
            out.truncate(begin);
            write_reject(call.xid, Reject::GarbageArguments, out);
        }
        executed
    });
    match outcome {
        Err(_) => Executed::Done(None),
        Ok(Outcome::Done(completed, results)) => Executed::Compound(completed, results),
        Ok(Outcome::Dropped) => {
            replies.truncate(begin);
            Executed::Done(None)
        }
        Ok(Outcome::Stopped(mut stopped)) => {
            let cost = Cost {
                export: stopped.export,
                bytes: CALL_BYTES + len_bytes + stopped.reply_bytes,
            };
            stopped.move_to_front(begin);
            let reply = replies.split_off(begin);
            Executed::Waits(cost, Some(Box::new(StoppedCompound { stopped, reply })))
        }
    }
}

/// Executes the rest of a compound, or refuses it. Returns the reply as a record, too; `None` if
/// there is none.
pub(crate) fn resume_compound<B: Backend>(
    call: &Call<'_>,
    rest: Rest,
    resumption: Resumption,
    backend: &mut B,
) -> Option<(Vec<u8>, Completed, Results)> {
    let StoppedCompound { stopped, mut reply } = *rest.downcast().ok()?;
    let mut out = Writer::new(&mut reply);
    let (completed, results) = v4::resume(call, *stopped, resumption, backend, &mut out)?;
    let len = out.len() - MARK_BYTES;
    out.patch(0, &record_mark(len));
    Some((reply, completed, results))
}

/// Appends the reply to a call that cannot be executed now (NFS3ERR_JUKEBOX, RFC 1813 section 2.6).
pub(crate) fn reply_later(call: &Call<'_>, replies: &mut Vec<u8>) {
    if call.procedure.is_lock() {
        return append(replies, |out| {
            write_success(call.xid, out);
            nlm::write_later(call.arguments, out);
        });
    }
    let status = match call.procedure {
        // MOUNT has no such status (section 5.1.4).
        Procedure::Mnt => v3::Status::Io,
        _ => v3::Status::TryLater,
    };
    append(replies, |out| {
        write_success(call.xid, out);
        out.u32(status as u32);
        out.zeros(failure_len(call.procedure));
    });
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
            now,
        };
        let arguments = call.arguments;
        let is_ok = |status| status == v3::Status::Ok;
        let executed = if procedure.is_lock() {
            nlm::execute(procedure, now, &mut context, arguments, out)
        } else if procedure.is_mount() {
            mount::execute(procedure, &mut context, arguments, out).map(is_ok)
        } else {
            v3::execute(procedure, &mut context, arguments, out).map(is_ok)
        };
        let is_ok = match executed {
            Ok(is_ok) => is_ok,
            Err(Fault::Status(status)) => {
                out.truncate(results);
                out.u32(status as u32);
                out.zeros(failure_len(procedure));
                false
            }
            Err(Fault::Malformed) => {
                out.truncate(begin);
                write_reject(call.xid, Reject::GarbageArguments, out);
                return None;
            }
        };
        Some(Completed {
            procedure,
            is_ok,
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
