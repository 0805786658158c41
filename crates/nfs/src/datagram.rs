//! The server's end of a client that sends each call as a datagram: version 3 with MOUNT and NLM.
//!
//! Read first: RFC 5531 section 10, RFC 1813 section 4.
//!
//! A datagram is a call, and its reply is a datagram. Nothing is kept between two of them except
//! calls that other threads execute: what is lost, the client sends again, and the
//! [`ReplyCache`](crate::ReplyCache) answers what must not be executed twice. Since the source
//! address of a datagram proves nothing, an address that may use no share gets a short reply
//! ([`answer_stranger`]) for which no session is made, and large replies need a file handle, which
//! the server sends only to a client that has asked for it and that may use the share.

use std::marker::PhantomData;
use std::time::Instant;

use crate::dispatch::{Executed, execute, reply_reject};
use crate::rpc::{AuthError, Call, Reject, write_success};
use crate::v3::{READ_OVERHEAD_BYTES_MAX, ReadCall};
use crate::waiting::Waiting;
use crate::xdr::Writer;
use crate::{Backend, Procedure};

/// The server's end of one client address and port over UDP.
pub struct DatagramSession<B> {
    waiting: Waiting,
    backend: PhantomData<fn(&mut B)>,
}

/// The most data of a READ, WRITE or list over UDP, in bytes: what other servers offer, half of the
/// longest datagram.
pub const DATAGRAM_TRANSFER_BYTES_MAX: usize = 32 << 10;
/// The longest payload of a UDP datagram over IPv4 in bytes.
const DATAGRAM_BYTES_MAX: usize = 65_507;
/// The header of a record, which `dispatch` puts in front of each reply and which datagrams do not
/// have.
const MARK_BYTES: usize = 4;

/// Replies besides those to READ and to lists are shorter than a path and attributes.
const _: () =
    assert!(DATAGRAM_TRANSFER_BYTES_MAX + READ_OVERHEAD_BYTES_MAX + 4096 < DATAGRAM_BYTES_MAX);

impl<B: Backend> DatagramSession<B> {
    /// The most memory that it takes, in bytes, besides calls that wait.
    pub const BYTES_MAX: u64 = 4096;

    /// The end of a client that has sent its first datagram.
    pub fn new() -> Self {
        Self {
            waiting: Waiting::default(),
            backend: PhantomData,
        }
    }

    /// Executes the call in a datagram and puts its reply into `reply`, which is empty afterwards
    /// if there is none now: the call is none, another thread executes it or has executed it
    /// before, or there is no room for it.
    pub fn handle_datagram(
        &mut self,
        now: Instant,
        datagram: &[u8],
        backend: &mut B,
        reply: &mut Vec<u8>,
    ) {
        reply.clear();
        if let Some((xid, reject)) = rejection(datagram) {
            reply_reject(xid, reject, reply);
        } else {
            match execute(datagram, now, backend, reply) {
                Executed::Read(read) => {
                    let completed = execute_read(read, backend, reply);
                    backend.count(&completed, now);
                }
                Executed::Done(Some(completed)) | Executed::Compound(completed, _) => {
                    backend.count(&completed, now);
                }
                Executed::Done(None) => {}
                // The client sends it again.
                Executed::Waits(..) if !self.waiting.has_room() => {}
                Executed::Waits(cost, rest) => {
                    let record = datagram.to_vec();
                    self.waiting
                        .begin(record, (cost, rest, now), backend, reply);
                }
            }
        }
        strip(reply);
    }

    /// Takes the answers to calls that other threads have executed.
    pub fn handle_wake(&mut self, now: Instant, backend: &mut B) {
        self.waiting.take_answers(now, backend);
    }

    /// The next of their replies.
    pub fn next_reply(&mut self) -> Option<Vec<u8>> {
        while let Some((mut reply, cost)) = self.waiting.next_reply() {
            self.waiting.sent(cost);
            strip(&mut reply);
            if !reply.is_empty() {
                return Some(reply);
            }
        }
        None
    }

    /// Whether no other thread executes a call of it.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty()
    }
}

impl<B: Backend> Default for DatagramSession<B> {
    fn default() -> Self {
        Self::new()
    }
}

/// The reply to an address that may use no share: that a program is there, or that the caller is
/// not accepted. It is shorter than any call.
pub fn answer_stranger(datagram: &[u8], reply: &mut Vec<u8>) {
    reply.clear();
    let answered = match rejection(datagram) {
        Some(rejected) => Err(rejected),
        None => Call::parse(datagram),
    };
    match answered {
        Ok(call) if matches!(call.procedure, Procedure::Null | Procedure::MountNull) => {
            reply.resize(MARK_BYTES, 0);
            write_success(call.xid, &mut Writer::new(reply));
        }
        Ok(call) => reply_reject(call.xid, Reject::Auth(AuthError::TooWeak), reply),
        Err((xid, reject)) => reply_reject(xid, reject, reply),
    }
    strip(reply);
}

/// Version 4 is not served over UDP, which lacks congestion control (RFC 8881 section 2.9).
fn rejection(datagram: &[u8]) -> Option<(u32, Reject)> {
    let rejected = (Call::xid(datagram)?, Reject::ProgramMismatch(3, 3));
    Call::is_other_nfs(datagram).then_some(rejected)
}

/// Executes a READ, whose data are copied into its datagram.
fn execute_read<B: Backend>(
    read: ReadCall,
    backend: &mut B,
    reply: &mut Vec<u8>,
) -> crate::Completed {
    match read.begin_placed(backend.transfer_bytes_max(), backend, reply) {
        Ok(read) => read.finish_inline(backend, reply),
        Err(completed) => completed,
    }
}

/// Removes the header of the record.
fn strip(reply: &mut Vec<u8>) {
    reply.drain(..MARK_BYTES.min(reply.len()));
    assert!(reply.len() <= DATAGRAM_BYTES_MAX, "replies have bounds");
}
