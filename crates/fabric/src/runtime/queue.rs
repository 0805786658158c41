//! The requests that a connection has posted to its send queue, and how its session posts more.

use std::collections::VecDeque;

use session::{RemoteBuffer, RemoteKey, WorkList};

use super::pool::{Chunk, Holding, PIECE_MAX_BYTES, Pool};
use crate::Provider;
use crate::verbs::{
    Data, Gather, Inline, PostError, Qpn, Remote, Rkey, SendOp, SendRequest, Signal, WorkId,
};

/// The send queue of a connection. Requests complete in the order of posting, so the completion of
/// a signalled request completes all requests before it.
#[derive(Debug)]
pub(super) struct SendQueue {
    qpn: Qpn,
    depth: usize,
    reads_max: usize,
    /// Outstanding requests that hold a chunk.
    posted: VecDeque<Posted>,
    next_id: u64,
    /// All requests before this one have completed.
    first_open: u64,
    /// Requests that were posted since the last signalled one.
    silent: usize,
    reads: usize,
    /// Bytes that its reads request.
    read_bytes: u64,
    holding: Holding,
}

#[derive(Debug)]
struct Posted {
    id: u64,
    chunk: Chunk,
    read: Option<ReadDone>,
}

/// A read whose data have arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReadDone {
    pub(super) tag: u64,
    pub(super) len_bytes: u32,
}

/// Something that the session has posted in this turn.
#[derive(Debug)]
pub(super) struct Staged {
    op: SendOp,
    chunk: Option<Chunk>,
    read: Option<ReadDone>,
}

impl SendQueue {
    /// The most bytes that its reads request at once. Nothing else bounds the responses in the
    /// socket's buffer.
    const READ_BYTES_MAX: u64 = 1 << 20;
    /// The most requests without a signalled one, if more follow. Short requests use up the queue's
    /// entries before they use up chunks.
    const SILENT_MAX: usize = 8;
    /// Requests that may complete late. With more outstanding, the peer is busy and their places
    /// are needed again.
    const LATE_MAX: usize = 16;
    /// The same in bytes of chunks.
    const LATE_BYTES_MAX: u64 = 32 << 10;

    pub(super) fn new(qpn: Qpn, (depth, reads_max): (u16, u8)) -> Self {
        Self {
            qpn,
            depth: usize::from(depth),
            reads_max: usize::from(reads_max),
            posted: VecDeque::new(),
            next_id: 0,
            first_open: 0,
            silent: 0,
            reads: 0,
            read_bytes: 0,
            holding: Holding::default(),
        }
    }

    /// Whether everything that was posted is done.
    pub(super) fn is_empty(&self) -> bool {
        self.open() == 0
    }

    /// How many requests are not done.
    fn open(&self) -> usize {
        (self.next_id - self.first_open) as usize
    }

    /// Whether data are awaited.
    pub(super) fn has_reads(&self) -> bool {
        self.reads > 0
    }

    /// All requests up to `id` have completed. Returns the oldest chunk among them that is to be
    /// given back, and its read.
    #[inline]
    pub(super) fn done(&mut self, id: u64) -> Option<(Chunk, Option<ReadDone>)> {
        self.first_open = self.first_open.max(id + 1);
        if self.posted.front()?.id > id {
            return None;
        }
        let posted = self.posted.pop_front()?;
        if let Some(read) = &posted.read {
            self.reads -= 1;
            self.read_bytes -= u64::from(read.len_bytes);
        }
        Some((posted.chunk, posted.read))
    }

    /// Frees the chunk of a completed request.
    pub(super) fn give(&mut self, chunk: Chunk, pool: &mut Pool) {
        pool.give(chunk, &mut self.holding);
    }

    /// Frees all chunks after the queue pair was destroyed.
    pub(super) fn abandon(&mut self, pool: &mut Pool) {
        self.reads = 0;
        self.read_bytes = 0;
        self.first_open = self.next_id;
        for posted in self.posted.drain(..) {
            pool.give(posted.chunk, &mut self.holding);
        }
    }

    /// Posts what a session has staged. Reads and the last request are signaled. The last request
    /// is not signaled if more is `to_follow` and no staged request holds a chunk. With little
    /// outstanding, it may complete late. If a request is refused, those behind it are not posted,
    /// and the queue holds the chunks of all until it is abandoned.
    pub(super) fn post<P: Provider>(
        &mut self,
        staged: &mut Vec<Staged>,
        to_follow: bool,
        provider: &mut P,
    ) -> Result<(), PostError> {
        self.silent += staged.len();
        let last_is_silent = to_follow
            && self.silent < Self::SILENT_MAX.min(self.depth / 2)
            && staged.iter().all(|item| item.chunk.is_none());
        let may_be_late = self.may_be_late(staged.len());
        let last = staged.len().saturating_sub(1);
        let mut result = Ok(());
        for (index, item) in staged.iter_mut().enumerate() {
            let id = self.next_id;
            self.next_id += 1;
            let read = item.read;
            let signals = index == last && !last_is_silent || read.is_some();
            if signals {
                self.silent = last - index;
            }
            let signal = match (signals, read) {
                (false, _) => Signal::OnError,
                (true, None) if may_be_late => Signal::Eventually,
                (true, _) => Signal::Always,
            };
            let request = SendRequest {
                id: WorkId(id),
                op: item.op,
                signal,
            };
            if let Some(chunk) = item.chunk.take() {
                self.posted.push_back(Posted { id, chunk, read });
            }
            if result.is_ok() {
                result = provider.post_send(self.qpn, request);
            }
        }
        staged.clear();
        result
    }

    /// Whether `more` further requests may complete late, since little is outstanding with them.
    fn may_be_late(&self, more: usize) -> bool {
        let open = self.open() + more;
        open <= Self::LATE_MAX.min(self.depth / 2) && self.holding.bytes() <= Self::LATE_BYTES_MAX
    }

    /// Frees staged requests that will not be posted.
    pub(super) fn unstage(&mut self, staged: &mut Vec<Staged>, pool: &mut Pool) {
        staged.drain(..).for_each(|item| self.forget(item, pool));
    }

    fn forget(&mut self, item: Staged, pool: &mut Pool) {
        if let Some(chunk) = item.chunk {
            pool.give(chunk, &mut self.holding);
        }
        if let Some(read) = item.read {
            self.reads -= 1;
            self.read_bytes -= u64::from(read.len_bytes);
        }
    }

    /// Records that a read of `len_bytes` bytes is posted.
    fn asked(&mut self, len_bytes: u32) {
        self.reads += 1;
        self.read_bytes += u64::from(len_bytes);
    }

    /// Whether a read of `len_bytes` bytes may be posted.
    fn may_read(&self, len_bytes: u32) -> bool {
        let bytes = self.read_bytes + u64::from(len_bytes);
        self.reads < self.reads_max && (self.reads == 0 || bytes <= Self::READ_BYTES_MAX)
    }
}

const fn remote(buffer: RemoteBuffer) -> Remote {
    Remote {
        va: buffer.address,
        rkey: Rkey(buffer.key.0),
    }
}

/// The first `len_bytes` bytes of a chunk.
fn gather(chunk: &Chunk, len_bytes: u32) -> Gather {
    Gather::new(&[chunk.placement(len_bytes)]).expect("what is at most a chunk fits a message")
}

/// A session's room to post in one turn.
pub(super) struct SendBatch<'a, P> {
    pub(super) queue: &'a mut SendQueue,
    pub(super) pool: &'a mut Pool,
    pub(super) provider: &'a mut P,
    pub(super) staged: &'a mut Vec<Staged>,
    /// Bytes that may still be staged in this turn.
    pub(super) turn_bytes: u64,
}

impl<P> SendBatch<'_, P> {
    /// Bytes that are staged in a turn; the last request may exceed them. The provider in software
    /// sends about as many with one call, while the processor's cache still has them, and the peer
    /// handles them while the next are staged.
    pub(super) const TURN_BYTES: u64 = 60 << 10;
    /// The least cost of a request, since a short one's packet costs as much.
    const REQUEST_MIN_BYTES: u64 = 960;
}

impl<P: Provider> SendBatch<'_, P> {
    /// A chunk for one more request.
    fn chunk(&mut self, len_bytes: u32) -> Option<Chunk> {
        if !self.has_room() || self.turn_bytes == 0 {
            return None;
        }
        let holding = &mut self.queue.holding;
        self.pool.take(len_bytes, holding, self.provider)
    }

    fn spend(&mut self, len_bytes: u32) {
        let cost_bytes = u64::from(len_bytes).max(Self::REQUEST_MIN_BYTES);
        self.turn_bytes = self.turn_bytes.saturating_sub(cost_bytes);
    }

    fn has_room(&self) -> bool {
        self.queue.open() + self.staged.len() < self.queue.depth
    }

    #[inline]
    fn stage(&mut self, op: SendOp, chunk: Option<Chunk>) {
        self.staged.push(Staged {
            op,
            chunk,
            read: None,
        });
    }

    /// The bytes of the last staged request.
    fn last_bytes(&mut self) -> Option<&mut [u8]> {
        let staged = self.staged.last_mut()?;
        match (&staged.chunk, &mut staged.op) {
            (Some(chunk), op) => Some(chunk.bytes_mut(self.provider, op.len_bytes())),
            (
                None,
                SendOp::Send(Data::Inline(inline))
                | SendOp::SendInvalidate(Data::Inline(inline), _),
            ) => Some(inline.bytes_mut()),
            (None, _) => None,
        }
    }
}

impl<P: Provider> WorkList for SendBatch<'_, P> {
    fn piece_max_bytes(&self) -> u32 {
        PIECE_MAX_BYTES
    }

    fn write(&mut self, to: RemoteBuffer) -> Option<&mut [u8]> {
        assert!(to.len_bytes <= PIECE_MAX_BYTES, "writes go in pieces");
        let chunk = self.chunk(to.len_bytes)?;
        self.spend(to.len_bytes);
        let data = Data::Gather(gather(&chunk, to.len_bytes));
        self.stage(SendOp::Write(data, remote(to)), Some(chunk));
        self.last_bytes()
    }

    fn retract(&mut self) {
        let item = self.staged.pop();
        let item = item.filter(|item| matches!(item.op, SendOp::Write(..)));
        let item = item.expect("only a write that was just posted can be taken back");
        self.queue.forget(item, self.pool);
    }

    fn read(&mut self, tag: u64, from: RemoteBuffer) -> bool {
        assert!(from.len_bytes <= PIECE_MAX_BYTES, "reads go in pieces");
        if !self.queue.may_read(from.len_bytes) {
            return false;
        }
        let Some(chunk) = self.chunk(from.len_bytes) else {
            return false;
        };
        self.queue.asked(from.len_bytes);
        // The peer sends the data.
        self.spend(0);
        let into = gather(&chunk, from.len_bytes);
        self.stage(SendOp::Read(into, remote(from)), Some(chunk));
        if let Some(staged) = self.staged.last_mut() {
            staged.read = Some(ReadDone {
                tag,
                len_bytes: from.len_bytes,
            });
        }
        true
    }

    fn send(&mut self, len_bytes: u32, invalidate: Option<RemoteKey>) -> Option<&mut [u8]> {
        assert!(
            len_bytes <= PIECE_MAX_BYTES,
            "messages are not longer than pieces"
        );
        let (data, chunk) = match Inline::zeroed(len_bytes as usize) {
            Some(_) if !self.has_room() => return None,
            Some(inline) => (Data::Inline(inline), None),
            None => {
                let chunk = self.chunk(len_bytes)?;
                self.spend(len_bytes);
                (Data::Gather(gather(&chunk, len_bytes)), Some(chunk))
            }
        };
        let op = match invalidate {
            Some(key) => SendOp::SendInvalidate(data, Rkey(key.0)),
            None => SendOp::Send(data),
        };
        self.stage(op, chunk);
        self.last_bytes()
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::sync::Arc;

    use memory::Budget;

    use super::*;
    use crate::ports::free_udp_port;
    use crate::{Soft, SoftOptions};

    /// A queue of a queue pair that does not exist, as if it had failed, and its surroundings.
    struct Fixture {
        provider: Soft,
        pool: Pool,
        queue: SendQueue,
        staged: Vec<Staged>,
    }

    const TO: RemoteBuffer = RemoteBuffer {
        address: 0,
        key: RemoteKey(1),
        len_bytes: 512,
    };

    impl Fixture {
        fn new() -> Self {
            let local = (Ipv4Addr::new(127, 38, 3, 1), free_udp_port()).into();
            let bound = Soft::bind(&SoftOptions::at(local));
            let mut provider = bound.expect("a port of loopback is free");
            let mut pool = Pool::new(64 << 20, &Arc::new(Budget::new(64 << 20)));
            assert!(pool.add_connection(&mut provider));
            Self {
                provider,
                pool,
                queue: SendQueue::new(Qpn::new(77), (8, 1)),
                staged: Vec::new(),
            }
        }

        fn batch(&mut self) -> SendBatch<'_, Soft> {
            SendBatch {
                queue: &mut self.queue,
                pool: &mut self.pool,
                provider: &mut self.provider,
                staged: &mut self.staged,
                turn_bytes: SendBatch::<Soft>::TURN_BYTES,
            }
        }

        fn post(&mut self, to_follow: bool) -> Result<(), PostError> {
            self.queue
                .post(&mut self.staged, to_follow, &mut self.provider)
        }
    }

    #[test]
    fn chunks_of_requests_that_are_refused_go_back_to_the_pool() {
        let mut fixture = Fixture::new();
        let mut batch = fixture.batch();
        assert!(batch.write(TO).is_some() && batch.write(TO).is_some());
        assert!(batch.send(16, None).is_some() && batch.write(TO).is_some());
        assert_eq!(fixture.post(false), Err(PostError::NoSuchQp));
        assert!(fixture.staged.is_empty());
        fixture.queue.abandon(&mut fixture.pool);
        fixture.pool.remove_connection(&mut fixture.provider);
        // It asserts that no chunk is out.
        fixture.pool.clear(&mut fixture.provider);
    }

    #[test]
    fn a_few_requests_do_not_say_when_they_are_done_where_more_follow() {
        let mut fixture = Fixture::new();
        for silent in [1, 2, 3, 0, 1] {
            assert!(fixture.batch().send(16, None).is_some());
            let _ = fixture.post(true);
            assert_eq!(fixture.queue.silent, silent);
        }
        // Requests that hold a chunk are signaled, and so is the last one.
        assert!(fixture.batch().write(TO).is_some());
        let _ = fixture.post(true);
        assert_eq!(fixture.queue.silent, 0);
        assert!(fixture.batch().send(16, None).is_some());
        let _ = fixture.post(false);
        assert_eq!(fixture.queue.silent, 0);
    }

    #[test]
    fn only_a_few_requests_that_hold_little_are_done_late() {
        let mut fixture = Fixture::new();
        assert!(fixture.queue.may_be_late(4) && !fixture.queue.may_be_late(5));
        assert!(fixture.batch().write(TO).is_some());
        let _ = fixture.post(false);
        assert!(fixture.queue.may_be_late(3) && !fixture.queue.may_be_late(4));
        let long = RemoteBuffer {
            len_bytes: 64 << 10,
            ..TO
        };
        assert!(fixture.batch().write(long).is_some());
        assert!(!fixture.queue.may_be_late(1), "it holds 68 KiB");
    }
}
