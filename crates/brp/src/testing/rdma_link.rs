//! Both ends of a connection over RDMA: messages and requests in flight, and the host's memory.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use block::{Completion, Volume};
use session::testing::{PostedWork, Work};
use session::{BufferRange, Buffers, MessageSession, RemoteBuffer, RemoteKey, Session};
use zerocopy::IntoBytes;

use super::link::{Link, Setup};
use super::{TestBackend, TestTarget};
use crate::host::{HostCommand, NoRoom, Outcome, Resumption, Terms};
use crate::rdma::{HostSession, HostWork, Reach, TargetSession};

/// The host's queue pair, and its memory with the keys to it.
pub struct HostMemory {
    /// The buffers of its commands.
    pub buffers: Buffers,
    keys: BTreeMap<u32, (BufferRange, Reach)>,
    next_key: u32,
    sent: VecDeque<Vec<u8>>,
    sent_max: usize,
    message_max_bytes: usize,
}

impl HostMemory {
    /// Addresses of a slot begin here, times one more than its number.
    const SLOT_ADDRESS: u64 = 1 << 32;

    fn address(range: BufferRange) -> u64 {
        Self::SLOT_ADDRESS * (1 + u64::from(range.slot)) + u64::from(range.offset)
    }

    /// The bytes that an RDMA request may reach.
    ///
    /// # Panics
    /// If the key is not valid, or for other bytes or the other direction.
    fn reach(&self, remote: RemoteBuffer, reach: Reach) -> BufferRange {
        let &(range, allowed) = self.keys.get(&remote.key.0).expect("a valid key");
        assert_eq!(allowed, reach, "the direction that was opened");
        let offset = remote.address.checked_sub(Self::address(range));
        let offset = u32::try_from(offset.expect("inside")).expect("inside");
        assert!(offset + remote.len_bytes <= range.len_bytes, "inside");
        BufferRange {
            slot: range.slot,
            offset: range.offset + offset,
            len_bytes: remote.len_bytes,
        }
    }
}

impl HostWork for HostMemory {
    fn open(&mut self, range: BufferRange, reach: Reach) -> Option<RemoteBuffer> {
        self.next_key += 1;
        self.keys.insert(self.next_key, (range, reach));
        Some(RemoteBuffer {
            address: Self::address(range),
            key: RemoteKey(self.next_key),
            len_bytes: range.len_bytes,
        })
    }

    fn close(&mut self, key: RemoteKey) {
        let closed = self.keys.remove(&key.0);
        assert!(closed.is_some(), "a key is invalidated once");
    }

    fn send(&mut self, head: &[u8], data: Option<BufferRange>) -> bool {
        if self.sent.len() >= self.sent_max {
            return false;
        }
        let data = data.map_or(&[][..], |range| self.buffers.range(range));
        let message = [head, data].concat();
        assert!(message.len() <= self.message_max_bytes, "it fits a receive");
        self.sent.push_back(message);
        true
    }

    fn put(&mut self, range: BufferRange, data: &[u8]) {
        self.buffers.range_mut(range).copy_from_slice(data);
    }
}

/// Both ends of a connection. Nothing moves between them except by its methods.
pub struct RdmaLink {
    /// The host's end.
    pub host: HostSession,
    /// What the host's end uses.
    pub memory: HostMemory,
    /// Outcomes that the owner has not taken.
    pub done: Vec<Outcome>,
    /// The target's end.
    pub target: TargetSession<TestBackend>,
    /// What the target's end uses.
    pub backend: TestBackend,
    posted: PostedWork,
    /// What the target has posted and the provider has not carried out.
    work: VecDeque<Work>,
    to_host: VecDeque<(Vec<u8>, Option<RemoteKey>)>,
    read_in: VecDeque<(u64, Vec<u8>)>,
    /// Messages of the target that the host got.
    pub messages: usize,
}

impl RdmaLink {
    /// Few, so that send queues are full often.
    const DEPTH: usize = 5;

    fn host_sends(&mut self) {
        if self.host.wants_transmit() {
            self.host.poll_transmit(&mut self.memory);
        }
    }

    fn target_posts(&mut self, now: Instant) {
        if self.work.is_empty() && self.target.wants_transmit() {
            self.target
                .poll_transmit(now, &mut self.backend, &mut self.posted);
            self.work.extend(self.posted.take());
        }
    }

    /// The provider carries the next request of the target out.
    fn carry_out(&mut self) {
        match self.work.pop_front() {
            None => {}
            Some(Work::Write { to, data }) => {
                let range = self.memory.reach(to, Reach::Write);
                self.memory.buffers.range_mut(range).copy_from_slice(&data);
            }
            Some(Work::Read { tag, from }) => {
                let range = self.memory.reach(from, Reach::Read);
                let data = self.memory.buffers.range(range).to_vec();
                self.read_in.push_back((tag, data));
            }
            Some(Work::Send {
                message,
                invalidate,
            }) => {
                if let Some(key) = invalidate {
                    self.memory.close(key);
                }
                self.to_host.push_back((message, invalidate));
            }
        }
    }

    fn deliver_to_target(&mut self, now: Instant) {
        if let Some(message) = self.memory.sent.pop_front() {
            let result = (self.target).handle_message(now, &message, None, &mut self.backend);
            result.expect("our host keeps to the protocol");
        }
        if let Some((tag, data)) = self.read_in.pop_front() {
            let result = (self.target).handle_read(now, tag, &data, &mut self.backend);
            result.expect("data that were asked for");
        }
    }

    fn deliver_to_host(&mut self) {
        if let Some((message, invalidated)) = self.to_host.pop_front() {
            self.messages += 1;
            let (memory, done) = (&mut self.memory, &mut self.done);
            let result = self
                .host
                .handle_message(&message, invalidated, memory, done);
            result.expect("our target keeps to the protocol");
        }
    }

    fn handle_due(&mut self, now: Instant) {
        if self.target.poll_timeout().is_some_and(|due| due <= now) {
            let result = self.target.handle_timeout(now, &mut self.backend);
            result.expect("nothing is late here");
        }
    }

    fn is_quiet(&self, now: Instant) -> bool {
        self.work.is_empty()
            && self.to_host.is_empty()
            && self.read_in.is_empty()
            && self.memory.sent.is_empty()
            && !self.host.wants_transmit()
            && !self.target.wants_transmit()
            && self.target.poll_timeout().is_none_or(|due| due > now)
    }
}

impl Link for RdmaLink {
    fn connect(
        now: Instant,
        target: &Arc<TestTarget>,
        _volume: Arc<dyn Volume>,
        setup: &Setup,
        resumption: Option<&Resumption>,
    ) -> Self {
        let request = HostSession::request(&setup.login);
        let (_, receive_bytes) = HostSession::receives(&setup.login);
        let accepted = TargetSession::accept(now, setup.config, request.as_bytes(), 4);
        let accepted = accepted.expect("a valid request");
        let reply = accepted.reply.as_bytes();
        let mut posted = PostedWork::default();
        posted.depth_max = Self::DEPTH;
        posted.piece_max_bytes = 8192;
        posted.message_max_bytes = receive_bytes;
        let host =
            HostSession::new(setup.login, resumption, reply, u32::MAX).expect("a valid reply");
        Self {
            host,
            memory: HostMemory {
                buffers: Buffers::new(setup.login.tags.get(), setup.slot_bytes),
                keys: BTreeMap::new(),
                next_key: 0,
                sent: VecDeque::new(),
                sent_max: Self::DEPTH,
                message_max_bytes: accepted.receive_len_bytes as usize,
            },
            done: Vec::new(),
            target: accepted.session,
            backend: TestBackend::new(target),
            posted,
            work: VecDeque::new(),
            to_host: VecDeque::new(),
            read_in: VecDeque::new(),
            messages: 0,
        }
    }

    fn submit(&mut self, tag: u16, command: &HostCommand) -> Result<(), NoRoom> {
        self.host.submit(tag, command)
    }

    fn abort(&mut self, tag: u16) {
        self.host.abort(tag);
    }

    fn terms(&self) -> Option<Terms> {
        self.host.terms().copied()
    }

    fn buffers(&mut self) -> &mut Buffers {
        &mut self.memory.buffers
    }

    fn done(&mut self) -> &mut Vec<Outcome> {
        &mut self.done
    }

    fn advance(&mut self, now: Instant, amount: usize) {
        self.handle_due(now);
        self.host_sends();
        for _ in 0..=amount % 4 {
            self.deliver_to_target(now);
        }
        self.target_posts(now);
        for _ in 0..=amount % 3 {
            self.carry_out();
            self.deliver_to_host();
        }
    }

    fn settle(&mut self, now: Instant, _chunk: usize) {
        while !self.is_quiet(now) {
            self.advance(now, 1);
        }
        let in_flight = usize::from(self.host.in_flight());
        assert!(
            self.memory.keys.len() <= in_flight,
            "keys end with commands"
        );
    }

    fn complete(&mut self, now: Instant, completion: Completion) {
        let result = self
            .target
            .handle_completion(now, completion, &mut self.backend);
        result.expect("completions end no connection");
    }

    fn cut(mut self, now: Instant) -> Option<Resumption> {
        self.target.handle_close(now, &mut self.backend);
        let resumption = self.host.resumption();
        // A key that the target has invalidated is no more, even if its reply was lost.
        let lost: Vec<RemoteKey> = self.to_host.drain(..).filter_map(|(_, key)| key).collect();
        for key in lost {
            let nothing = (BufferRange::first(0, 0), Reach::Read);
            self.memory.keys.insert(key.0, nothing);
        }
        self.host.handle_close(&mut self.memory);
        assert!(self.memory.keys.is_empty(), "keys end with the connection");
        resumption
    }
}
