//! Back channels: how a client is called over the connections of its sessions.
//!
//! ```text
//!           CREATE_SESSION, BIND_CONN_TO_SESSION             its last connection ends, or is silent
//!  no path ─────────────────────────────────────► has a path ─────────────────────────────────────► no path
//!                                                    └── a reply that leaves the slots unknown ──► faulty
//! ```
//!
//! Read first: RFC 8881 sections 2.10.3 and 2.10.6.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use super::Clients;
use super::callback::{self, CallbackProgram, CallbackSlot, RecallEnd};
use super::claims::FileKey;
use super::session_id::SessionId;
use super::stateid::StateId;

/// The back channel of a session.
#[derive(Debug)]
pub(super) struct BackChannel {
    program: CallbackProgram,
    connections: Vec<u64>,
    slots: Vec<BackSlot>,
    /// Whether a connection was ever bound: the client wants to be called.
    is_wanted: bool,
    is_faulty: bool,
}

/// A slot of a back channel.
#[derive(Debug, Default)]
struct BackSlot {
    /// The number of its last request that was executed.
    sequence: u32,
    /// The delegation that is recalled with it.
    recalls: Option<u32>,
}

/// The back channels of all sessions.
#[derive(Debug, Default)]
pub(super) struct BackChannels {
    /// Connections, and the client and session that each is bound to.
    bound: BTreeSet<(u64, u64, u32)>,
    /// Calls without a reply, by their connection and xid.
    calls: BTreeMap<(u64, u32), Call>,
    last_xid: u32,
    /// Connections that have something to send.
    wakes: VecDeque<u64>,
}

/// A call without a reply.
#[derive(Clone, Copy, Debug)]
struct Call {
    client: u64,
    session: u32,
    slot: usize,
    deadline: Instant,
}

/// A delegation that its client has to be asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct PendingRecall {
    /// The number of the delegation.
    pub(super) number: u32,
    /// Not before this instant.
    pub(super) due: Instant,
}

/// A delegation that is recalled.
#[derive(Clone, Copy, Debug)]
struct Recalled {
    /// Its number.
    number: u32,
    key: FileKey,
    id: StateId,
}

/// What a connection is to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NextCallback {
    /// A call, as a record.
    Call(Vec<u8>),
    /// Nothing before this instant, or nothing at all.
    Nothing(Option<Instant>),
}

/// The most slots of a back channel that are used.
const BACK_SLOTS_MAX: u32 = 8;
/// The most connections of a back channel. Linux has up to 16 (`nconnect`), of which one is enough.
const CONNECTIONS_MAX: usize = 4;
/// The most sessions that are bound to a connection.
const BOUND_MAX: usize = 1024;
/// The most calls without a reply on a connection.
pub(crate) const CALLS_MAX: usize = 64;
/// How long a call may take. Then the connection is no path any more.
const CALL_WITHIN: Duration = Duration::from_secs(10);
/// When a client is asked again that could not do what it was asked for.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Flags of SEQUENCE (RFC 8881 section 18.46).
const PATH_DOWN: u32 = 0x1;
const SESSION_PATH_DOWN: u32 = 0x200;
const FAULT: u32 = 0x400;

impl BackChannel {
    /// The most memory in bytes that it takes.
    pub(super) const BYTES_MAX: usize =
        size_of::<Self>() + BACK_SLOTS_MAX as usize * 128 + CONNECTIONS_MAX * 64;

    /// A back channel with as many slots as the client has, up to a bound.
    pub(super) fn new(program: CallbackProgram, slots: u32) -> Self {
        let slots = slots.min(BACK_SLOTS_MAX);
        Self {
            program,
            connections: Vec::new(),
            slots: (0..slots).map(|_| BackSlot::default()).collect(),
            is_wanted: false,
            is_faulty: false,
        }
    }

    fn is_path(&self) -> bool {
        !self.is_faulty && !self.connections.is_empty()
    }

    fn is_down(&self) -> bool {
        self.is_wanted && !self.is_path()
    }

    /// A free slot.
    fn free_slot(&self) -> Option<usize> {
        self.slots.iter().position(|slot| slot.recalls.is_none())
    }
}

impl Clients {
    /// Binds a connection to the back channel of a session. Returns whether the session is called
    /// over it from now on.
    pub(crate) fn bind_back(&mut self, connection: u64, session: SessionId) -> bool {
        let (client, number) = (session.client(), session.number());
        let bound = self.back.bound_to(connection);
        let has_room = bound.count() < BOUND_MAX;
        let Some(back) = self.back_channel(client, number) else {
            return false;
        };
        if back.connections.contains(&connection) {
            return true;
        }
        if !has_room || back.is_faulty || back.slots.is_empty() {
            return false;
        }
        if back.connections.len() == CONNECTIONS_MAX {
            let oldest = back.connections.remove(0);
            self.back.bound.remove(&(oldest, client, number));
        }
        if let Some(back) = self.back_channel(client, number) {
            back.connections.push(connection);
            back.is_wanted = true;
        }
        self.back.bound.insert((connection, client, number));
        self.wake_client(client);
        true
    }

    /// A session is called in another way from now on. Returns whether it can be called at all.
    pub(crate) fn set_callbacks(&mut self, session: SessionId, program: CallbackProgram) -> bool {
        let back = self.back_channel(session.client(), session.number());
        back.map(|back| back.program = program).is_some()
    }

    /// A connection has ended: its calls have no reply.
    pub(crate) fn close_connection(&mut self, now: Instant, connection: u64) {
        let sessions: Vec<_> = self.back.bound_to(connection).collect();
        for (client, number) in sessions {
            self.unbind(now, connection, client, number);
        }
    }

    /// A session is removed, or its client.
    pub(super) fn forget_back(&mut self, client: u64, number: u32, back: &BackChannel) {
        for &connection in &back.connections {
            self.back.bound.remove(&(connection, client, number));
        }
        let is_its = |call: &Call| (call.client, call.session) == (client, number);
        let calls = self.back.calls.values().filter(|call| is_its(call));
        let lost: Vec<_> = calls.copied().collect();
        self.back.calls.retain(|_, call| !is_its(call));
        for call in lost {
            // Another session of the client's may carry what this one has begun.
            let due = call.deadline.checked_sub(CALL_WITHIN);
            self.recall_again(client, back.slots[call.slot].recalls, due);
        }
    }

    /// Whether a client can be called.
    pub(super) fn has_path(&self, client: u64) -> bool {
        let client = self.clients.get(&client);
        let mut sessions = client.into_iter().flat_map(|it| it.sessions.values());
        sessions.any(|session| session.back().is_some_and(BackChannel::is_path))
    }

    /// What SEQUENCE tells of back channels.
    pub(super) fn path_flags(&self, client: u64, number: u32) -> u32 {
        let Some(holder) = self.clients.get(&client) else {
            return 0;
        };
        let back = holder.sessions.get(&number).and_then(|it| it.back());
        let Some(back) = back.filter(|back| back.is_down()) else {
            return 0;
        };
        let path = if self.has_path(client) { 0 } else { PATH_DOWN };
        let fault = if back.is_faulty { FAULT } else { 0 };
        path | fault | SESSION_PATH_DOWN
    }

    /// Wakes a connection over which a client can be called, if anything is to be sent.
    pub(super) fn wake_client(&mut self, client: u64) {
        let Some(holder) = self.clients.get(&client) else {
            return;
        };
        if holder.recalls.is_empty() {
            return;
        }
        let backs = holder.sessions.values().filter_map(|it| it.back());
        let back = backs.into_iter().find(|back| back.is_path());
        let connection = back.and_then(|back| back.connections.last().copied());
        if let Some(connection) = connection
            && !self.back.wakes.contains(&connection)
        {
            self.back.wakes.push_back(connection);
        }
    }

    /// A connection whose session has to be woken, since it has something to send
    /// ([`Backend::back_channel`](crate::Backend::back_channel) is its number).
    pub fn next_wake(&mut self) -> Option<u64> {
        self.back.wakes.pop_front()
    }

    /// What a connection is to send next.
    pub(crate) fn next_callback(&mut self, now: Instant, connection: u64) -> NextCallback {
        self.expire_calls(now, connection);
        let calls = self.back.calls_of(connection);
        let deadline = calls.clone().map(|(_, call)| call.deadline).min();
        if calls.count() >= CALLS_MAX {
            return NextCallback::Nothing(deadline);
        }
        let mut due: Option<Instant> = None;
        let sessions: Vec<_> = self.back.bound_to(connection).collect();
        for (client, number) in sessions {
            match self.next_recall(now, client, number) {
                Ok((slot, recall)) => {
                    let at = (connection, client, number);
                    return NextCallback::Call(self.call(now, at, slot, recall));
                }
                Err(later) => due = due.into_iter().chain(later).min(),
            }
        }
        NextCallback::Nothing(due.into_iter().chain(deadline).min())
    }

    /// A slot of a session and a delegation that is to be recalled with it; otherwise when there
    /// will be one.
    fn next_recall(
        &mut self,
        now: Instant,
        client: u64,
        number: u32,
    ) -> Result<(usize, Recalled), Option<Instant>> {
        let holder = self.clients.get_mut(&client).ok_or(None)?;
        let due = holder.recalls.iter().map(|recall| recall.due).min();
        let back = holder.sessions.get(&number).and_then(|it| it.back());
        let slot = back.filter(|back| back.is_path());
        let slot = slot.and_then(BackChannel::free_slot).ok_or(None)?;
        let at = holder.recalls.iter().position(|recall| recall.due <= now);
        let recall = at.and_then(|at| holder.recalls.remove(at)).ok_or(due)?;
        let state = holder.states.get(&recall.number).ok_or(due)?;
        let recalled = Recalled {
            number: recall.number,
            key: state.file,
            id: StateId::new(client, recall.number, state.sequence),
        };
        Ok((slot, recalled))
    }

    /// Begins a call.
    fn call(
        &mut self,
        now: Instant,
        (connection, client, session): (u64, u64, u32),
        slot: usize,
        recalled: Recalled,
    ) -> Vec<u8> {
        self.back.last_xid = self.back.last_xid.wrapping_add(1);
        let (xid, start) = (self.back.last_xid, self.start);
        let call = Call {
            client,
            session,
            slot,
            deadline: now + CALL_WITHIN,
        };
        let Some(back) = self.back_channel(client, session) else {
            return Vec::new();
        };
        let at = CallbackSlot {
            session: SessionId::new(client, session, start),
            slot: slot as u32,
            highest_slot: back.slots.len() as u32 - 1,
            sequence: back.slots[slot].sequence.wrapping_add(1),
        };
        back.slots[slot].recalls = Some(recalled.number);
        let what = (recalled.id, &recalled.key);
        let record = callback::recall(xid, &back.program, &at, what);
        self.back.calls.insert((connection, xid), call);
        record
    }

    /// A client has replied to a call.
    pub(crate) fn end_callback(&mut self, now: Instant, connection: u64, xid: u32, reply: &[u8]) {
        let Some(call) = self.back.calls.remove(&(connection, xid)) else {
            return;
        };
        let Some(back) = self.back_channel(call.client, call.session) else {
            return;
        };
        let slot = &mut back.slots[call.slot];
        let recalled = slot.recalls.take();
        let end = callback::recall_end(reply);
        match end {
            RecallEnd::NotExecuted => {}
            RecallEnd::Broken => back.is_faulty = true,
            RecallEnd::Delivered | RecallEnd::Later | RecallEnd::Repeated => {
                slot.sequence = slot.sequence.wrapping_add(1);
            }
        }
        let due = match end {
            RecallEnd::Delivered => None,
            RecallEnd::Repeated | RecallEnd::Broken => Some(now),
            RecallEnd::Later | RecallEnd::NotExecuted => Some(now + RETRY_AFTER),
        };
        self.recall_again(call.client, recalled, due);
        if end == RecallEnd::Broken {
            self.unbind(now, connection, call.client, call.session);
        }
    }

    /// Has a delegation recalled by another call.
    fn recall_again(&mut self, client: u64, number: Option<u32>, due: Option<Instant>) {
        let holder = self.clients.get_mut(&client);
        if let (Some(holder), Some(number), Some(due)) = (holder, number, due)
            && holder.is_delegated(number)
        {
            holder.recalls.push_back(PendingRecall { number, due });
            self.wake_client(client);
        }
    }

    /// Calls without a reply in time: their connections are no paths of their sessions any more.
    fn expire_calls(&mut self, now: Instant, connection: u64) {
        let calls = self.back.calls_of(connection);
        let late = calls.filter(|(_, call)| call.deadline <= now);
        let late: BTreeSet<_> = late.map(|(_, call)| (call.client, call.session)).collect();
        for (client, session) in late {
            self.unbind(now, connection, client, session);
        }
    }

    /// Ends the use of a connection by a session. What was called over it is called again, with the
    /// same numbers of its slots: the client may have executed it or not.
    fn unbind(&mut self, now: Instant, connection: u64, client: u64, session: u32) {
        self.back.bound.remove(&(connection, client, session));
        if let Some(back) = self.back_channel(client, session) {
            back.connections.retain(|other| *other != connection);
        }
        let calls = self.back.calls_of(connection);
        let lost = calls.filter(|(_, call)| (call.client, call.session) == (client, session));
        let lost: Vec<_> = lost.map(|(xid, call)| (xid, *call)).collect();
        for (xid, call) in lost {
            self.back.calls.remove(&(connection, xid));
            let back = self.back_channel(client, session);
            let recalled = back.and_then(|back| back.slots[call.slot].recalls.take());
            self.recall_again(client, recalled, Some(now));
        }
        // Another connection of the client's sends what this one was woken for.
        self.wake_client(client);
    }

    fn back_channel(&mut self, client: u64, session: u32) -> Option<&mut BackChannel> {
        let client = self.clients.get_mut(&client)?;
        client.sessions.get_mut(&session)?.back_mut()
    }
}

impl BackChannels {
    /// The clients and sessions that a connection is bound to.
    fn bound_to(&self, connection: u64) -> impl Iterator<Item = (u64, u32)> + use<'_> {
        let all = (connection, 0, 0)..=(connection, u64::MAX, u32::MAX);
        let bound = self.bound.range(all);
        bound.map(|&(_, client, session)| (client, session))
    }

    /// The xids and the calls of a connection.
    fn calls_of(&self, connection: u64) -> impl Iterator<Item = (u32, &Call)> + Clone {
        let calls = self.calls.range((connection, 0)..=(connection, u32::MAX));
        calls.map(|(&(_, xid), call)| (xid, call))
    }
}
