//! Both ends of a connection over RDMA: messages and requests in flight, and the host's memory.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use block::{Completion, Volume};
use session::testing::{HostMemory, PostedWork, Work};
use session::{BufferRange, Buffers, MessageSession, Reach, RemoteKey, Session};
use zerocopy::IntoBytes;

use super::link::{Link, Setup};
use super::{TestBackend, TestTarget};
use crate::host::{HostCommand, NoRoom, Outcome, Resumption, Terms};
use crate::rdma::{HostSession, HostWork, TargetSession};

impl HostWork for HostMemory {
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
                    session::HostWork::close(&mut self.memory, key);
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
            memory: HostMemory::new(
                Buffers::new(setup.login.tags.get(), setup.slot_bytes),
                Self::DEPTH,
                accepted.receive_len_bytes as usize,
            ),
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
        assert!(self.memory.keys() <= in_flight, "keys end with commands");
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
            self.memory.forget_invalidation(key);
        }
        self.host.handle_close(&mut self.memory);
        assert_eq!(self.memory.keys(), 0, "keys end with the connection");
        resumption
    }
}
