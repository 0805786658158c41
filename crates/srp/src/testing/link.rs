//! Both ends of a channel: messages and requests in flight, and the initiator's memory.

use std::collections::VecDeque;
use std::time::Instant;

use scsi::host::{Command, CommandFailure, CommandKey, Outcome};
use session::testing::{HostMemory, PostedWork, Work};
use session::{Buffers, MessageSession as _, Reach, RemoteKey, Session as _};

use super::TestBackend;
use crate::initiator::{
    InitiatorSession, MESSAGE_LEN_MAX_BYTES, RECEIVE_LEN_BYTES, Terms, request,
};
use crate::target::{TargetConfig, TargetSession, accept};
use crate::wire::PortId;
use zerocopy::IntoBytes as _;

/// Both ends of a channel. Nothing moves between them except by its methods.
pub struct ChannelLink {
    /// The initiator's end.
    pub initiator: InitiatorSession,
    /// Its queue pair and its memory.
    pub memory: HostMemory,
    /// Outcomes that the owner has not taken.
    pub done: Vec<Outcome>,
    target: TargetSession<TestBackend>,
    backend: TestBackend,
    posted: PostedWork,
    /// What the target has posted and the provider has not carried out.
    work: VecDeque<Work>,
    to_initiator: VecDeque<Vec<u8>>,
    reads: VecDeque<(u64, Vec<u8>)>,
    now: Instant,
}

impl ChannelLink {
    /// Few, so that send queues are full often.
    const DEPTH: usize = 5;
    /// Few, so that the request limit is used up often.
    const REQUESTS: u16 = 4;

    /// An open channel for `keys` commands with data of at most `slot_bytes` bytes.
    ///
    /// # Panics
    /// If the login is rejected.
    pub fn new(mut backend: TestBackend, keys: u16, slot_bytes: usize) -> Self {
        let config = TargetConfig {
            requests_max: Self::REQUESTS,
            ..TargetConfig::default()
        };
        let login = request(PortId([1; 16]), PortId([2; 16]));
        let accepted = accept(&login, config).expect("a valid login");
        let response = accepted.response(None);
        let terms = Terms::of(response.as_bytes()).expect("a valid answer");
        backend.clear_attention();
        let mut posted = PostedWork::default();
        posted.depth_max = Self::DEPTH;
        posted.piece_max_bytes = 8192;
        posted.message_max_bytes = RECEIVE_LEN_BYTES;
        Self {
            initiator: InitiatorSession::new(terms, 0, keys),
            memory: HostMemory::new(
                Buffers::new(keys, slot_bytes),
                Self::DEPTH,
                MESSAGE_LEN_MAX_BYTES as usize,
            ),
            done: Vec::new(),
            target: TargetSession::new(&accepted, &mut backend),
            backend,
            posted,
            work: VecDeque::new(),
            to_initiator: VecDeque::new(),
            reads: VecDeque::new(),
            now: Instant::now(),
        }
    }

    /// Takes a command; whether there was room.
    pub fn submit(&mut self, key: u16, command: &Command) -> bool {
        self.initiator.submit(CommandKey(key), command).is_ok()
    }

    /// Moves a few messages and requests on.
    ///
    /// # Panics
    /// If an end breaks the protocol.
    pub fn advance(&mut self, amount: u8) {
        self.handle_due();
        if self.initiator.wants_transmit() {
            self.initiator.poll_transmit(&mut self.memory);
        }
        for _ in 0..=amount % 4 {
            self.deliver_to_target();
        }
        if self.work.is_empty() && self.target.wants_transmit() {
            self.target
                .poll_transmit(self.now, &mut self.backend, &mut self.posted);
            self.work.extend(self.posted.take());
        }
        for _ in 0..=amount % 3 {
            self.carry_out();
            self.deliver_to_initiator();
        }
    }

    /// Moves everything on until nothing is left to do.
    ///
    /// # Panics
    /// If an end breaks the protocol, or keys outlive their commands.
    pub fn settle(&mut self) {
        while !self.is_quiet() {
            self.advance(1);
        }
        assert_eq!(self.initiator.in_flight(), 0, "every command ends");
        assert_eq!(self.memory.keys(), 0, "keys end with commands");
    }

    /// The connection is lost.
    ///
    /// # Panics
    /// If a key is left.
    pub fn cut(mut self) {
        self.target.handle_close(self.now, &mut self.backend);
        self.initiator.handle_close(&mut self.memory);
        assert_eq!(self.memory.keys(), 0, "keys end with the connection");
    }

    /// The data of the commands that have ended since the last call.
    pub fn take_done(&mut self) -> Vec<(u16, Result<u32, CommandFailure>)> {
        let done = self.done.drain(..);
        done.map(|outcome| (outcome.key.0, outcome.result))
            .collect()
    }

    fn deliver_to_target(&mut self) {
        if let Some(message) = self.memory.sent.pop_front() {
            let (now, backend) = (self.now, &mut self.backend);
            let result = self.target.handle_message(now, &message, None, backend);
            result.expect("our initiator keeps to the protocol");
        }
        if let Some((tag, data)) = self.reads.pop_front() {
            let (now, backend) = (self.now, &mut self.backend);
            let result = self.target.handle_read(now, tag, &data, backend);
            result.expect("data that were asked for");
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
                self.reads.push_back((tag, data));
            }
            Some(Work::Send {
                message,
                invalidate,
            }) => {
                assert_eq!(invalidate, None::<RemoteKey>, "SRP has no invalidation");
                self.to_initiator.push_back(message);
            }
        }
    }

    fn deliver_to_initiator(&mut self) {
        if let Some(message) = self.to_initiator.pop_front() {
            let (memory, done) = (&mut self.memory, &mut self.done);
            let result = self.initiator.handle_message(&message, None, memory, done);
            result.expect("our target keeps to the protocol");
        }
    }

    fn handle_due(&mut self) {
        if self.backend.take_wake() {
            let result = self.target.handle_wake(self.now, &mut self.backend);
            result.expect("a wake ends no channel");
        }
        if self
            .target
            .poll_timeout()
            .is_some_and(|due| due <= self.now)
        {
            let result = self.target.handle_timeout(self.now, &mut self.backend);
            result.expect("nothing is late here");
        }
    }

    fn is_quiet(&self) -> bool {
        self.work.is_empty()
            && self.to_initiator.is_empty()
            && self.reads.is_empty()
            && self.memory.sent.is_empty()
            && !self.initiator.wants_transmit()
            && !self.target.wants_transmit()
            && self.target.poll_timeout().is_none_or(|due| due > self.now)
    }
}
