//! What the lock of a volume protects: the member, writes in flight, commands that wait.

use std::collections::{BTreeSet, VecDeque};
use std::hash::{BuildHasher as _, RandomState};

use block::{Completion, Extent, Status, Ticket};
use replica::wire::{Answer, AnswerCode, CONTENTS_BYTES_MAX, Packet};
use replica::{
    Body, Config, Contents, Entry, EntryBody, Epoch, HostReply, HostRequest, LocalTime, Member,
    MemberId, Output, Overwritten, Refusal, Settings, StoreOp, StoreRequestId,
};
use rustc_hash::FxHashMap;

use super::lease::{Forwards, Lease, Stage};
use super::{ReplicatedVolume, Role, VolumeStatus};
use crate::medium::StoreMedium;
use crate::options::{NodeError, VolumeOptions};

/// The state of a volume.
pub(super) struct State {
    pub member: Option<Member<StoreMedium>>,
    member_id: Option<MemberId>,
    pub is_closed: bool,
    /// Without a member: the newest configuration that was seen, and when it was asked for.
    seen: Option<Config>,
    watched_at: Option<LocalTime>,
    is_watching: bool,
    /// The last number of a write or forwarded command. The first is random: an answer to a command
    /// of an earlier start of this node finds no command of this one.
    pub last_id: u64,
    /// Fetches up to this one were made before this node began to serve reads itself.
    pub fetch_floor: u64,
    /// The writes of which the member has not said what has become of them, in their order.
    pub in_flight: VecDeque<LocalWrite>,
    /// The writes of this node's hosts that are not settled.
    pub outstanding: BTreeSet<u64>,
    pub forwards: Forwards,
    pub leases: FxHashMap<Ticket, Lease>,
    /// How many leases are parked.
    pub parked: usize,
    /// The bytes that reads of leases have fetched or may fetch.
    pub fetched_bytes: u64,
    /// A write was settled since settling leases were looked at.
    pub has_news: bool,
    pub completions: Vec<Completion>,
    asked: Vec<(StoreRequestId, StoreOp)>,
    copied_bytes: u64,
}

/// A write that this node executes as the primary.
#[derive(Clone, Copy, Debug)]
pub(super) struct LocalWrite {
    pub id: u64,
    pub origin: Origin,
    pub extent: Extent,
}

/// Why a write failed, for another node and for a host.
pub(super) type Failure = (AnswerCode, Status);

/// Who waits for a write.
#[derive(Clone, Copy, Debug)]
pub(super) enum Origin {
    /// A host of this node; the number of its write.
    Host(u64),
    /// Another node, with its command.
    Node { node: u32, command: u64 },
    /// It has failed already, or the last part of the same copy stands for it.
    Nobody,
}

/// What follows from a change of the state, and happens without its lock.
#[derive(Default)]
pub(super) struct Effects {
    pub completions: Vec<Completion>,
    pub asked: Vec<(StoreRequestId, StoreOp)>,
    /// The configuration is to be read.
    pub is_watching: bool,
}

impl VolumeOptions {
    /// Checks the options of a volume on `node`. Returns the bytes of a piece.
    pub(super) fn check(&self, node: u32) -> Result<u64, NodeError> {
        self.settings.check().map_err(NodeError::Settings)?;
        let piece_bytes = self.settings.piece_blocks.0 << self.geometry.block_size.shift();
        let is_same = self.settings.blocks == self.geometry.blocks;
        let fits = piece_bytes <= CONTENTS_BYTES_MAX as u64;
        if !is_same || !fits {
            return Err(NodeError::Geometry {
                blocks: self.geometry.blocks.0,
                settings_blocks: self.settings.blocks.0,
            });
        }
        match self.member {
            Some(member) if member.node != node => Err(NodeError::OtherNode {
                given: member.node,
                node,
            }),
            _ => Ok(piece_bytes),
        }
    }
}

impl State {
    /// The state of a volume without a copy.
    pub fn new() -> Self {
        Self {
            member: None,
            member_id: None,
            is_closed: false,
            seen: None,
            watched_at: None,
            is_watching: false,
            last_id: RandomState::new().hash_one(crate::clock::now()) >> 1,
            fetch_floor: 0,
            in_flight: VecDeque::new(),
            outstanding: BTreeSet::new(),
            forwards: Forwards::default(),
            leases: FxHashMap::default(),
            parked: 0,
            fetched_bytes: 0,
            has_news: false,
            completions: Vec::new(),
            asked: Vec::new(),
            copied_bytes: 0,
        }
    }

    /// Begins with a copy in `medium`, which is empty.
    pub fn gain(
        &mut self,
        now: LocalTime,
        id: MemberId,
        settings: Settings,
        medium: StoreMedium,
    ) -> Result<(), NodeError> {
        let member = Member::new(id, settings, medium, now);
        let mut member = member.map_err(NodeError::Settings)?;
        if let Some(config) = self.seen.take() {
            member.handle_config(now, config);
        }
        self.member = Some(member);
        self.member_id = Some(id);
        Ok(())
    }

    /// Gives the copy up: this node passes commands on. Returns the writes that it executed as a
    /// primary, of which nobody knows what becomes of them.
    pub fn lose(&mut self) -> VecDeque<LocalWrite> {
        let member = self.member.take();
        self.seen = member.and_then(|member| member.config().cloned());
        self.member_id = None;
        std::mem::take(&mut self.in_flight)
    }

    /// The newest configuration that this node knows.
    pub fn config(&self) -> Option<&Config> {
        match &self.member {
            Some(member) => member.config(),
            None => self.seen.as_ref(),
        }
    }

    /// The node that serves the volume, as far as this one knows.
    pub fn primary(&self) -> Option<u32> {
        self.config().map(|config| config.primary.node)
    }

    /// This node's copy, if it has one.
    pub fn member_id(&self) -> Option<MemberId> {
        self.member_id
    }

    pub fn knows_no_primary(&self) -> bool {
        self.config().is_none()
    }

    /// Whether this node executes writes.
    pub fn serves_writes(&self) -> bool {
        let member = self.member.as_ref().filter(|_| !self.is_closed);
        member.is_some_and(Member::serves_writes)
    }

    /// Whether this node is primary and may serve reads, if it holds the lease.
    pub fn is_serving(&self) -> bool {
        let member = self.member.as_ref().filter(|_| !self.is_closed);
        member.is_some_and(|member| member.serves_reads_until().is_some())
    }

    pub fn role(&self) -> Role {
        let (config, id) = match (self.config(), self.member_id) {
            (None, _) => return Role::Unknown,
            (Some(_), None) => return Role::Absent,
            (Some(config), Some(id)) => (config, id),
        };
        if config.primary == id {
            Role::Primary
        } else if config.has(id) {
            Role::Secondary
        } else {
            Role::Returning
        }
    }

    pub fn status(&self, is_serving: bool) -> VolumeStatus {
        let config = self.config();
        VolumeStatus {
            role: self.role(),
            is_serving,
            epoch: config.map_or(Epoch(0), |config| config.epoch),
            primary: config.map(|config| config.primary),
            in_sync: config.map_or_else(Vec::new, |config| config.in_sync.clone()),
            copied_bytes: self.copied_bytes,
            copies: self.member.as_ref().map_or_else(Vec::new, Member::copies),
            complete_through: self.member.as_ref().map(|member| member.claim().through),
        }
    }

    /// Without a copy: reads the configuration regularly.
    pub fn watch(&mut self, now: LocalTime) {
        let interval = match self.seen {
            None => ReplicatedVolume::READ_PATIENCE,
            Some(_) => ReplicatedVolume::WATCH_INTERVAL,
        };
        let is_due = self.watched_at.is_none_or(|at| now.since(at) >= interval);
        if is_due {
            self.watched_at = Some(now);
            self.is_watching = true;
        }
    }

    /// Takes a configuration if it is newer.
    pub fn see(&mut self, now: LocalTime, config: Config) {
        if let Some(member) = &mut self.member {
            return member.handle_config(now, config);
        }
        let known = self.seen.as_ref().map(|seen| seen.epoch);
        if config.is_valid() && known < Some(config.epoch) {
            self.seen = Some(config);
        }
    }

    /// What writes in flight have overwritten here.
    pub fn overwritten(&self) -> impl DoubleEndedIterator<Item = &Overwritten<Contents>> {
        self.member.iter().flat_map(Member::overwritten)
    }

    /// How many more writes can be executed here.
    pub fn write_places(&self) -> usize {
        let member = self.member.as_ref().filter(|_| !self.is_closed);
        member.map_or(0, Member::write_places)
    }

    /// Executes a change for a host of this node, which waits for it unless it fails at once.
    pub fn execute_for_host(
        &mut self,
        execute: impl FnOnce(&mut Self, Origin) -> Result<(), Failure>,
    ) -> Result<(), Status> {
        let id = self.next_id();
        self.outstanding.insert(id);
        let executed = execute(self, Origin::Host(id));
        executed.map_err(|(_, status)| {
            self.outstanding.remove(&id);
            status
        })
    }

    pub fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    /// A write of a host of this node has ended after its command was executed. If it failed, each
    /// command that may have caused it fails: those at that time that concern its blocks.
    pub fn finish(&mut self, id: u64, written: Extent, result: Result<(), Status>) {
        self.outstanding.remove(&id);
        self.has_news = true;
        if let Err(status) = result {
            for lease in self.leases.values_mut() {
                lease.fail_if_covers(id, written, status);
            }
        }
    }

    pub fn take_effects(&mut self) -> Effects {
        if std::mem::take(&mut self.has_news) {
            self.complete_settled();
        }
        Effects {
            completions: std::mem::take(&mut self.completions),
            asked: std::mem::take(&mut self.asked),
            is_watching: std::mem::take(&mut self.is_watching),
        }
    }

    /// Ends everything. Returns the results of waiting commands.
    pub fn close(&mut self) -> Vec<Completion> {
        self.is_closed = true;
        self.member = None;
        drop(self.forwards.take());
        let waiting = self.leases.iter_mut().filter_map(|(ticket, lease)| {
            let waits = lease.stage != Stage::Granted;
            lease.stage = Stage::Granted;
            waits.then_some(Completion {
                ticket: *ticket,
                result: Err(Status::Gone),
            })
        });
        let failed = waiting.collect();
        self.parked = 0;
        failed
    }
}

impl ReplicatedVolume {
    /// Carries out what the member wants, except what happens without the lock.
    pub(super) fn drain(&self, state: &mut State) {
        while let Some(output) = state.member.as_mut().and_then(Member::poll_output) {
            match output {
                Output::Send(envelope) => {
                    state.copied_bytes += piece_bytes(&envelope.body);
                    let node = envelope.to.node;
                    let volume = self.id.0;
                    self.links.send(node, &Packet::Message { volume, envelope });
                }
                Output::Store(id, op) => state.asked.push((id, op)),
                Output::Reply(request, reply) => self.finish_write(state, request, reply),
            }
        }
    }

    fn finish_write(&self, state: &mut State, request: HostRequest, reply: HostReply) {
        // Writes are committed in their order, so it stands first.
        let place = state.in_flight.iter().position(|w| w.id == request.0);
        if let Some(write) = place.and_then(|place| state.in_flight.remove(place)) {
            self.end_write(state, write, reply);
        }
    }

    /// Tells who waits for a write what has become of it.
    pub(super) fn end_write(&self, state: &mut State, write: LocalWrite, reply: HostReply) {
        self.stripes.end(self.byte_range(write.extent));
        let (code, result) = match reply {
            HostReply::Written => (AnswerCode::Done, Ok(())),
            HostReply::Deposed => (AnswerCode::Unknown, Err(Status::Busy)),
        };
        match write.origin {
            Origin::Host(id) => state.finish(id, write.extent, result),
            Origin::Node { node, command } => self.answer(node, command, code, None),
            Origin::Nobody => {}
        }
    }

    /// Answers a command of another node.
    pub(super) fn answer(
        &self,
        node: u32,
        command: u64,
        code: AnswerCode,
        contents: Option<Contents>,
    ) {
        let answer = Answer {
            id: command,
            volume: self.id.0,
            code,
            contents,
        };
        self.links.send(node, &Packet::Answer(answer));
    }
}

/// The bytes of a piece of a copy.
fn piece_bytes(body: &Body<Contents>) -> u64 {
    match body {
        Body::Entry(Entry {
            body: EntryBody::Piece { data, .. },
            ..
        }) => data.blocks() << data.block_size().shift(),
        _ => 0,
    }
}

/// Why a write failed, as the host and a forwarding node get it.
pub(super) fn failure(refusal: Refusal) -> Failure {
    match refusal {
        Refusal::NotPrimary(_) | Refusal::NotReady | Refusal::Busy => {
            (AnswerCode::NotExecuted, Status::Busy)
        }
        Refusal::InvalidExtent => (AnswerCode::Invalid, Status::Invalid),
        Refusal::NoMemory => (AnswerCode::Full, Status::CapacityExceeded),
    }
}
