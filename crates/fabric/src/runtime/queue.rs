//! What a connection has posted to its send queue, and how its session posts more.

use std::collections::VecDeque;

use block::{RemoteBuffer, RemoteKey, WorkList};

use super::pool::{Chunk, PIECE_MAX_BYTES, Pool};
use crate::Provider;
use crate::verbs::{
    Data, Gather, Inline, PathMtu, PostError, Qpn, Remote, Rkey, SendOp, SendRequest, Signal,
    WorkId,
};

/// The send queue of a connection. Requests complete in the order of posting, so one that says so stands for all before it.
#[derive(Debug)]
pub(super) struct SendQueue {
    qpn: Qpn,
    depth: usize,
    reads_max: usize,
    /// The longest data of a request.
    piece_max_bytes: u32,
    posted: VecDeque<Posted>,
    next_id: u64,
    reads: usize,
    /// Bytes that its reads ask for.
    read_bytes: u64,
    /// Bytes of the pool that it holds.
    held_bytes: u64,
}

#[derive(Debug)]
struct Posted {
    id: u64,
    chunk: Option<Chunk>,
    read: Option<ReadDone>,
}

/// A read whose data have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReadDone {
    pub(super) tag: u64,
    pub(super) len_bytes: u32,
}

/// Something that the session has posted in this turn.
#[derive(Debug)]
pub(super) struct Staged {
    op: StagedOp,
    len_bytes: u32,
    chunk: Option<Chunk>,
}

#[derive(Debug)]
enum StagedOp {
    Write(RemoteBuffer),
    Read(u64, RemoteBuffer),
    Send(Option<RemoteKey>, [u8; Inline::LEN_MAX_BYTES]),
}

impl SendQueue {
    /// The most bytes that its reads ask for at once. Nothing but that limits what their responses bring to the socket at once.
    const READ_BYTES_MAX: u64 = 1 << 20;

    pub(super) fn new(qpn: Qpn, depth: u16, reads_max: u8, path_mtu: PathMtu) -> Self {
        // Where packets are nearly as long as chunks, none is a short rest.
        let piece_max_bytes = match path_mtu {
            PathMtu::B61440 => path_mtu.bytes(),
            _ => PIECE_MAX_BYTES,
        };
        Self {
            qpn,
            depth: usize::from(depth),
            reads_max: usize::from(reads_max),
            piece_max_bytes,
            posted: VecDeque::new(),
            next_id: 0,
            reads: 0,
            read_bytes: 0,
            held_bytes: 0,
        }
    }

    /// Whether everything that was posted is done.
    pub(super) fn is_empty(&self) -> bool {
        self.posted.is_empty()
    }

    /// Whether data are awaited.
    pub(super) fn has_reads(&self) -> bool {
        self.reads > 0
    }

    /// The oldest request up to `id`, which has completed: its chunk is the caller's to give back.
    pub(super) fn done(&mut self, id: u64) -> Option<(Option<Chunk>, Option<ReadDone>)> {
        if self.posted.front()?.id > id {
            return None;
        }
        let posted = self.posted.pop_front()?;
        if let Some(chunk) = &posted.chunk {
            self.held_bytes -= chunk.len_bytes();
        }
        if let Some(read) = &posted.read {
            self.reads -= 1;
            self.read_bytes -= u64::from(read.len_bytes);
        }
        Some((posted.chunk, posted.read))
    }

    /// All chunks: the queue pair is gone.
    pub(super) fn abandon(&mut self) -> impl Iterator<Item = Chunk> {
        self.held_bytes = 0;
        self.reads = 0;
        self.read_bytes = 0;
        self.posted.drain(..).filter_map(|posted| posted.chunk)
    }

    /// Posts what a session has staged. The last one and reads say when they are done.
    pub(super) fn post<P: Provider>(
        &mut self,
        staged: &mut Vec<Staged>,
        provider: &mut P,
    ) -> Result<(), PostError> {
        let last = staged.len().saturating_sub(1);
        for (index, item) in staged.drain(..).enumerate() {
            let id = self.next_id;
            self.next_id += 1;
            let signals = index == last || matches!(item.op, StagedOp::Read(..));
            let request = SendRequest {
                id: WorkId(id),
                op: item.send_op(),
                signal: if signals {
                    Signal::Always
                } else {
                    Signal::OnError
                },
            };
            let read = match item.op {
                StagedOp::Read(tag, _) => Some(ReadDone {
                    tag,
                    len_bytes: item.len_bytes,
                }),
                _ => None,
            };
            self.posted.push_back(Posted {
                id,
                chunk: item.chunk,
                read,
            });
            provider.post_send(self.qpn, request)?;
        }
        Ok(())
    }

    /// Takes back what was staged and will not be posted.
    pub(super) fn unstage(&mut self, staged: &mut Vec<Staged>, pool: &mut Pool) {
        for item in staged.drain(..) {
            self.forget(&item);
            if let Some(chunk) = item.chunk {
                pool.give(chunk);
            }
        }
    }

    fn forget(&mut self, item: &Staged) {
        if let Some(chunk) = &item.chunk {
            self.held_bytes -= chunk.len_bytes();
        }
        if let StagedOp::Read(..) = item.op {
            self.reads -= 1;
            self.read_bytes -= u64::from(item.len_bytes);
        }
    }

    /// Whether a read of so many bytes may be posted.
    fn may_read(&self, len_bytes: u32) -> bool {
        let bytes = self.read_bytes + u64::from(len_bytes);
        self.reads < self.reads_max && (self.reads == 0 || bytes <= Self::READ_BYTES_MAX)
    }
}

impl Staged {
    fn send_op(&self) -> SendOp {
        let remote = |to: RemoteBuffer| Remote {
            va: to.address,
            rkey: Rkey(to.key.0),
        };
        match &self.op {
            StagedOp::Write(to) => SendOp::Write(Data::Gather(self.gather()), remote(*to)),
            StagedOp::Read(_, from) => SendOp::Read(self.gather(), remote(*from)),
            StagedOp::Send(invalidate, bytes) => {
                let data = match (&self.chunk, Inline::new(&bytes[..self.inline_len()])) {
                    (None, Some(inline)) => Data::Inline(inline),
                    _ => Data::Gather(self.gather()),
                };
                match invalidate {
                    Some(key) => SendOp::SendInvalidate(data, Rkey(key.0)),
                    None => SendOp::Send(data),
                }
            }
        }
    }

    fn inline_len(&self) -> usize {
        (self.len_bytes as usize).min(Inline::LEN_MAX_BYTES)
    }

    fn gather(&self) -> Gather {
        let parts = self.chunk.as_ref().map(|c| c.placement(self.len_bytes));
        Gather::new(parts.as_slice()).expect("one part of at most a chunk fits a message")
    }
}

/// A session's room to post in one turn.
pub(super) struct Poster<'a, P> {
    pub(super) queue: &'a mut SendQueue,
    pub(super) pool: &'a mut Pool,
    pub(super) provider: &'a mut P,
    pub(super) staged: &'a mut Vec<Staged>,
    /// Bytes that may still be staged in this turn.
    pub(super) turn_bytes: u64,
}

impl<P> Poster<'_, P> {
    /// Bytes that are staged in a turn; one request may go beyond it. 14 packets of 4 KiB and their responses are what leaves with one
    /// call in software.
    /// The peer goes on with them while the next are made, and they are sent while the processor's cache still has them.
    pub(super) const TURN_BYTES: u64 = 56 << 10;
    /// What a shorter request counts as, since its packet costs as much.
    const REQUEST_MIN_BYTES: u64 = 960;
}

impl<P: Provider> Poster<'_, P> {
    /// A chunk for one more request.
    fn chunk(&mut self, len_bytes: u32) -> Option<Chunk> {
        if !self.has_room() || self.turn_bytes == 0 {
            return None;
        }
        let held_bytes = self.queue.held_bytes;
        let chunk = self.pool.take(len_bytes, held_bytes, self.provider)?;
        let cost_bytes = u64::from(len_bytes).max(Self::REQUEST_MIN_BYTES);
        self.turn_bytes = self.turn_bytes.saturating_sub(cost_bytes);
        self.queue.held_bytes += chunk.len_bytes();
        Some(chunk)
    }

    fn has_room(&self) -> bool {
        self.queue.posted.len() + self.staged.len() < self.queue.depth
    }

    fn stage(&mut self, op: StagedOp, len_bytes: u32, chunk: Option<Chunk>) {
        self.staged.push(Staged {
            op,
            len_bytes,
            chunk,
        });
    }

    /// The bytes of what was staged last.
    fn last_bytes(&mut self) -> Option<&mut [u8]> {
        let staged = self.staged.last_mut()?;
        match (&staged.chunk, &mut staged.op) {
            (Some(chunk), _) => Some(chunk.bytes_mut(self.provider, staged.len_bytes)),
            (None, StagedOp::Send(_, inline)) => inline.get_mut(..staged.len_bytes as usize),
            (None, _) => None,
        }
    }
}

impl<P: Provider> WorkList for Poster<'_, P> {
    fn piece_max_bytes(&self) -> u32 {
        self.queue.piece_max_bytes
    }

    fn write(&mut self, to: RemoteBuffer) -> Option<&mut [u8]> {
        assert!(to.len_bytes <= PIECE_MAX_BYTES, "writes go in pieces");
        let chunk = self.chunk(to.len_bytes)?;
        self.stage(StagedOp::Write(to), to.len_bytes, Some(chunk));
        self.last_bytes()
    }

    fn retract(&mut self) {
        let item = self.staged.pop();
        let item = item.filter(|item| matches!(item.op, StagedOp::Write(_)));
        let item = item.expect("only a write that was just posted can be taken back");
        self.queue.forget(&item);
        if let Some(chunk) = item.chunk {
            self.pool.give(chunk);
        }
    }

    fn read(&mut self, tag: u64, from: RemoteBuffer) -> bool {
        assert!(from.len_bytes <= PIECE_MAX_BYTES, "reads go in pieces");
        if !self.queue.may_read(from.len_bytes) {
            return false;
        }
        let Some(chunk) = self.chunk(from.len_bytes) else {
            return false;
        };
        self.queue.reads += 1;
        self.queue.read_bytes += u64::from(from.len_bytes);
        self.stage(StagedOp::Read(tag, from), from.len_bytes, Some(chunk));
        true
    }

    fn send(&mut self, len_bytes: u32, invalidate: Option<RemoteKey>) -> Option<&mut [u8]> {
        assert!(
            len_bytes <= PIECE_MAX_BYTES,
            "messages are not longer than pieces"
        );
        let chunk = if len_bytes as usize <= Inline::LEN_MAX_BYTES {
            if !self.has_room() {
                return None;
            }
            None
        } else {
            Some(self.chunk(len_bytes)?)
        };
        let inline = [0; Inline::LEN_MAX_BYTES];
        self.stage(StagedOp::Send(invalidate, inline), len_bytes, chunk);
        self.last_bytes()
    }
}
