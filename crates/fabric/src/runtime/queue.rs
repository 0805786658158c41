//! What a connection has posted to its send queue, and how its session posts more.

use std::collections::VecDeque;
use std::collections::hash_map::{Entry, HashMap};

use std::sync::Arc;

use net::Source;
use session::{Placement, RegionId, RemoteBuffer, RemoteKey, WorkList};

use super::pool::{Chunk, Holding, PIECE_MAX_BYTES, Pool};
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
    /// Whether requests leave together, and how much with one call, so that pieces are cut to fill that.
    call_bytes: Option<u32>,
    /// Of what was posted and is not done, what holds a chunk.
    posted: VecDeque<Posted>,
    next_id: u64,
    /// All before this one are done.
    first_open: u64,
    /// Requests that were posted since one that says when it is done.
    silent: usize,
    reads: usize,
    /// Bytes that its reads ask for.
    read_bytes: u64,
    /// Bytes of reads with which the peer's last call is filled.
    asked_bytes: u32,
    holding: Holding,
    shown: Shown,
}

/// Volumes that requests are sent from, as the provider knows them, by the session's number.
#[derive(Debug)]
struct Shown {
    /// Whether the provider sends from volumes here.
    is_possible: bool,
    regions: HashMap<RegionId, RegionId>,
    last: Option<(RegionId, RegionId)>,
}

/// Why what was staged could not be posted.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unposted {
    /// The provider does not take it.
    #[error(transparent)]
    Refused(#[from] PostError),
    /// The volume of a placement is not there.
    #[error("the volume of the data to send was removed")]
    NoSource,
}

#[derive(Debug)]
struct Posted {
    id: u64,
    chunk: Chunk,
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
    op: SendOp,
    /// Where its data are in a volume, by the session's number: they are no part of `op` yet.
    place: Option<Placement>,
    chunk: Option<Chunk>,
    read: Option<ReadDone>,
}

impl SendQueue {
    /// The most bytes that its reads ask for at once. Nothing but that limits what their responses bring to the socket at once.
    const READ_BYTES_MAX: u64 = 1 << 20;
    /// Requests after which one says when it is done, though more follow. Many short ones wait for room sooner than eight long ones.
    const SILENT_MAX: usize = 8;
    /// Requests that may be done late: where more are open, their peer is busy, and their places are needed again.
    const LATE_MAX: usize = 16;
    /// The same in bytes of chunks.
    const LATE_BYTES_MAX: u64 = 32 << 10;

    pub(super) fn new(
        qpn: Qpn,
        (depth, reads_max): (u16, u8),
        path_mtu: PathMtu,
        sends_from_volumes: bool,
    ) -> Self {
        // Where packets are nearly as long as chunks, none is a short rest.
        let call_bytes = (path_mtu == PathMtu::B61440).then_some(path_mtu.bytes());
        Self {
            qpn,
            depth: usize::from(depth),
            reads_max: usize::from(reads_max),
            call_bytes,
            posted: VecDeque::new(),
            next_id: 0,
            first_open: 0,
            silent: 0,
            reads: 0,
            read_bytes: 0,
            asked_bytes: 0,
            holding: Holding::default(),
            shown: Shown {
                is_possible: sends_from_volumes,
                regions: HashMap::new(),
                last: None,
            },
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

    /// All requests up to `id` have completed: the oldest of those chunks that are to be given back, and what was read into it.
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

    /// Gives back the chunk of a request that is done.
    pub(super) fn give(&mut self, chunk: Chunk, pool: &mut Pool) {
        pool.give(chunk, &mut self.holding);
    }

    /// Gives back all chunks: the queue pair is gone, and volumes need not be shown any more.
    pub(super) fn abandon<P: Provider>(&mut self, pool: &mut Pool, provider: &mut P) {
        self.shown.clear(provider);
        self.reads = 0;
        self.read_bytes = 0;
        self.first_open = self.next_id;
        for posted in self.posted.drain(..) {
            pool.give(posted.chunk, &mut self.holding);
        }
    }

    /// Posts what a session has staged; `source` finds the volumes of placements. Reads and the last one say when they are done; not the
    /// last one where more is `to_follow` and none of these holds anything. Where little is open, it may say so late. Where one is refused,
    /// those behind it are not posted, and the queue holds the chunks of all until it is abandoned.
    pub(super) fn post<P: Provider>(
        &mut self,
        staged: &mut Vec<Staged>,
        to_follow: bool,
        source: &dyn Fn(RegionId) -> Option<Arc<dyn Source>>,
        provider: &mut P,
    ) -> Result<(), Unposted> {
        if self.is_empty() && self.shown.regions.len() >= Shown::KEPT_MAX {
            self.shown.clear(provider);
        }
        self.silent += staged.len();
        let last_is_silent = to_follow
            && self.silent < Self::SILENT_MAX.min(self.depth / 2)
            && staged.iter().all(|item| item.chunk.is_none());
        let may_be_late = self.may_be_late(staged.len());
        let last = staged.len().saturating_sub(1);
        let mut result = Ok(());
        for (index, item) in staged.iter_mut().enumerate() {
            if let Some(place) = item.place {
                match self.shown.region(place.region, source, provider) {
                    Some(region) => item.send_from(Placement { region, ..place }),
                    None => result = result.and(Err(Unposted::NoSource)),
                }
            }
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
                result = provider
                    .post_send(self.qpn, request)
                    .map_err(Unposted::from);
            }
        }
        staged.clear();
        result
    }

    /// Whether so many more may say late that they are done, since little is open with them.
    fn may_be_late(&self, more: usize) -> bool {
        let open = self.open() + more;
        open <= Self::LATE_MAX.min(self.depth / 2) && self.holding.bytes() <= Self::LATE_BYTES_MAX
    }

    /// Takes back what was staged and will not be posted.
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

    /// A read of so many bytes is posted.
    fn asked(&mut self, len_bytes: u32) {
        if self.reads == 0 {
            self.asked_bytes = 0;
        }
        if let Some(call_bytes) = self.call_bytes {
            self.asked_bytes = (self.asked_bytes + len_bytes) % call_bytes;
        }
        self.reads += 1;
        self.read_bytes += u64::from(len_bytes);
    }

    /// Whether a read of so many bytes may be posted.
    fn may_read(&self, len_bytes: u32) -> bool {
        let bytes = self.read_bytes + u64::from(len_bytes);
        self.reads < self.reads_max && (self.reads == 0 || bytes <= Self::READ_BYTES_MAX)
    }
}

impl Shown {
    /// More than so many are forgotten once none is in use: their volumes may be gone.
    const KEPT_MAX: usize = 64;

    /// The provider's number of a volume.
    fn region<P: Provider>(
        &mut self,
        session: RegionId,
        source: &dyn Fn(RegionId) -> Option<Arc<dyn Source>>,
        provider: &mut P,
    ) -> Option<RegionId> {
        if let Some((_, region)) = self.last.filter(|(known, _)| *known == session) {
            return Some(region);
        }
        let region = match self.regions.entry(session) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(new) => *new.insert(provider.show(source(session)?)?),
        };
        self.last = Some((session, region));
        Some(region)
    }

    fn clear<P: Provider>(&mut self, provider: &mut P) {
        self.last = None;
        for (_, region) in self.regions.drain() {
            provider.release(region);
        }
    }
}

impl Staged {
    /// Its data are there, by the provider's number.
    fn send_from(&mut self, place: Placement) {
        if let SendOp::Write(data, _) = &mut self.op {
            *data = Data::Gather(part_of(place));
        }
    }
}

const fn remote(buffer: RemoteBuffer) -> Remote {
    Remote {
        va: buffer.address,
        rkey: Rkey(buffer.key.0),
    }
}

/// What a chunk holds of so many bytes.
fn gather(chunk: &Chunk, len_bytes: u32) -> Gather {
    part_of(chunk.placement(len_bytes))
}

#[inline]
fn part_of(place: Placement) -> Gather {
    Gather::new(&[place]).expect("what is at most a chunk fits a message")
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
    /// Bytes that are staged in a turn; one request may go beyond it. 60 KiB and what goes with them are what leaves with one call in
    /// software.
    /// The peer goes on with them while the next are made, and they are sent while the processor's cache still has them.
    pub(super) const TURN_BYTES: u64 = PathMtu::B61440.bytes() as u64;
    /// What a shorter request counts as, since its packet costs as much.
    const REQUEST_MIN_BYTES: u64 = 960;
}

impl<P: Provider> Poster<'_, P> {
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
            place: None,
            chunk,
            read: None,
        });
    }

    /// The bytes of what was staged last.
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

impl<P: Provider> WorkList for Poster<'_, P> {
    fn piece_max_bytes(&self) -> u32 {
        self.queue.call_bytes.unwrap_or(PIECE_MAX_BYTES)
    }

    fn write_room_bytes(&self) -> Option<u32> {
        self.queue.call_bytes.map(|_| self.turn_bytes as u32)
    }

    fn read_room_bytes(&self) -> Option<u32> {
        let call_bytes = self.queue.call_bytes?;
        Some(call_bytes - self.queue.asked_bytes)
    }

    fn write(&mut self, to: RemoteBuffer) -> Option<&mut [u8]> {
        assert!(to.len_bytes <= PIECE_MAX_BYTES, "writes go in pieces");
        let chunk = self.chunk(to.len_bytes)?;
        self.spend(to.len_bytes);
        let data = Data::Gather(gather(&chunk, to.len_bytes));
        self.stage(SendOp::Write(data, remote(to)), Some(chunk));
        self.last_bytes()
    }

    fn places(&self) -> bool {
        self.queue.shown.is_possible
    }

    fn write_placed(&mut self, to: RemoteBuffer) -> Option<&mut Placement> {
        assert!(to.len_bytes <= PIECE_MAX_BYTES, "writes go in pieces");
        if !self.places() || !self.has_room() || self.turn_bytes == 0 {
            return None;
        }
        self.spend(to.len_bytes);
        let data = Data::Gather(Gather::EMPTY);
        self.stage(SendOp::Write(data, remote(to)), None);
        let staged = self.staged.last_mut()?;
        Some(staged.place.insert(Placement::NOWHERE))
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
        // It is the peer who sends the data.
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

    use memory::Budget;

    use super::*;
    use crate::{Soft, SoftOptions};

    /// A queue of a queue pair that does not exist, as if it had failed, and all around it.
    struct Bed {
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

    impl Bed {
        fn at(port: u16) -> Self {
            let local = (Ipv4Addr::new(127, 38, 3, 1), port).into();
            let bound = Soft::bind(&SoftOptions::at(local));
            let mut provider = bound.expect("a port of loopback is free");
            let mut pool = Pool::new(64 << 20, &Arc::new(Budget::new(64 << 20)));
            assert!(pool.enter(&mut provider));
            Self {
                provider,
                pool,
                queue: SendQueue::new(Qpn::new(77), (8, 1), PathMtu::B61440, true),
                staged: Vec::new(),
            }
        }

        fn poster(&mut self) -> Poster<'_, Soft> {
            Poster {
                queue: &mut self.queue,
                pool: &mut self.pool,
                provider: &mut self.provider,
                staged: &mut self.staged,
                turn_bytes: Poster::<Soft>::TURN_BYTES,
            }
        }

        fn post(&mut self, to_follow: bool) -> Result<(), Unposted> {
            let (staged, provider) = (&mut self.staged, &mut self.provider);
            self.queue.post(staged, to_follow, &|_| None, provider)
        }
    }

    #[test]
    fn chunks_of_requests_that_are_refused_go_back_to_the_pool() {
        let mut bed = Bed::at(25_021);
        let mut poster = bed.poster();
        assert!(poster.write(TO).is_some() && poster.write(TO).is_some());
        assert!(poster.write_placed(TO).is_some() && poster.write(TO).is_some());
        assert!(matches!(
            bed.post(false),
            Err(Unposted::Refused(PostError::NoSuchQp))
        ));
        assert!(bed.staged.is_empty());
        bed.queue.abandon(&mut bed.pool, &mut bed.provider);
        bed.pool.leave(&mut bed.provider);
        // It asserts that no chunk is out.
        bed.pool.clear(&mut bed.provider);
    }

    #[test]
    fn a_few_requests_do_not_say_when_they_are_done_where_more_follow() {
        let mut bed = Bed::at(25_023);
        for silent in [1, 2, 3, 0, 1] {
            assert!(bed.poster().write_placed(TO).is_some());
            let _ = bed.post(true);
            assert_eq!(bed.queue.silent, silent);
        }
        // What holds a chunk says so, and what nothing follows.
        assert!(bed.poster().write(TO).is_some());
        let _ = bed.post(true);
        assert_eq!(bed.queue.silent, 0);
        assert!(bed.poster().write_placed(TO).is_some());
        let _ = bed.post(false);
        assert_eq!(bed.queue.silent, 0);
    }

    #[test]
    fn only_a_few_requests_that_hold_little_are_done_late() {
        let mut bed = Bed::at(25_025);
        assert!(bed.queue.may_be_late(4) && !bed.queue.may_be_late(5));
        assert!(bed.poster().write(TO).is_some());
        let _ = bed.post(false);
        assert!(bed.queue.may_be_late(3) && !bed.queue.may_be_late(4));
        let long = RemoteBuffer {
            len_bytes: 64 << 10,
            ..TO
        };
        assert!(bed.poster().write(long).is_some());
        assert!(!bed.queue.may_be_late(1), "it holds 68 KiB");
    }

    #[test]
    fn pieces_fill_what_leaves_with_one_call() {
        let mut bed = Bed::at(25_024);
        let mut poster = bed.poster();
        let of = |len_bytes| RemoteBuffer { len_bytes, ..TO };
        assert_eq!(poster.write_piece_bytes(128 << 10), 60 << 10);
        assert!(poster.write_placed(of(8 << 10)).is_some());
        assert_eq!(poster.write_piece_bytes(128 << 10), 52 << 10);
        assert_eq!(poster.read_piece_bytes(128 << 10), 60 << 10);
        assert!(poster.read(1, of(20 << 10)));
        assert_eq!(poster.read_piece_bytes(128 << 10), 40 << 10);
        assert_eq!(poster.read_piece_bytes(6 << 10), 6 << 10);
    }
}
