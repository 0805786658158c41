//! The thread of a runtime: its loop, and how it handles completions and events.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use block::Lane;
use net::parts::{EventSet, GraceMember, Handshake, Slots, Spin, Timers, Wait as Pause};
use net::{Accepted, CloseReason, ConnectionId};

use super::acceptor::Refusal;
use super::admission::{Login, NotAdmitted, admit};
use super::connection::{Connection, Turn, failed};
use super::pool::Pool;
use super::queue::Staged;
use super::{Common, Listener, Message, Metered};
use crate::Wait;
use crate::verbs::{
    Completion, ConnectRequest, Event, QpFailure, Qpn, RejReason, WorkKind, WorkStatus,
};

/// The thread's own state.
pub(super) struct Worker<P> {
    common: Arc<Common>,
    provider: P,
    slots: Slots<Box<Connection>>,
    by_qpn: HashMap<Qpn, ConnectionId>,
    /// The last lookup in `by_qpn`: completions of one connection arrive together.
    last: Option<(Qpn, ConnectionId)>,
    listeners: HashMap<u16, Listener>,
    /// Those that may continue, in the order of their turns.
    ready: VecDeque<ConnectionId>,
    /// How many wait for requests to complete.
    awaiting: usize,
    timers: Timers,
    spin: Spin,
    pool: Pool,
    staged: Vec<Staged>,
    drain_until: Option<Instant>,
    /// When to publish the counts, unless a sleep comes first.
    publish_due: Instant,
    grace: GraceMember,
    lane: Option<WatchedLane>,
}

/// The thread's lane, and what ends a sleep: its event or that of the mailbox.
pub(super) struct WatchedLane {
    lane: Box<dyn Lane>,
    events: EventSet,
}

impl WatchedLane {
    pub(super) fn new(lane: Box<dyn Lane>, common: &Common) -> io::Result<Self> {
        let events = EventSet::new(&[common.mailbox.event(), lane.event()])?;
        Ok(Self { lane, events })
    }
}

/// Completions that are handled before others have their turn.
const COMPLETIONS_PER_ROUND: usize = 1024;
/// Events that are handled before others have their turn.
const EVENTS_PER_ROUND: usize = 64;
/// Connection requests among them. An adapter needs a millisecond or more for each.
const REQUESTS_PER_ROUND: usize = 4;
/// How often a thread that does not sleep publishes its counts.
const PUBLISH_EVERY: Duration = Duration::from_millis(100);
/// The longest sleep.
const SLEEP_MAX: Duration = Duration::from_secs(60);

impl<P: Metered> Worker<P> {
    pub(super) fn new(
        index: usize,
        provider: P,
        common: Arc<Common>,
        grace: GraceMember,
        lane: Option<WatchedLane>,
    ) -> Self {
        let pool = Pool::new(common.pool_max_bytes, &common.budget);
        Self {
            common,
            provider,
            slots: Slots::new(index),
            by_qpn: HashMap::new(),
            last: None,
            listeners: HashMap::new(),
            ready: VecDeque::new(),
            awaiting: 0,
            timers: Timers::default(),
            spin: Spin::default(),
            pool,
            staged: Vec::new(),
            drain_until: None,
            publish_due: Instant::now(),
            grace,
            lane,
        }
    }

    /// Runs until it has been drained, or the provider fails.
    pub(super) fn run(&mut self) {
        loop {
            let now = Instant::now();
            let mut has_worked = self.with_lane(|lane| lane.reap());
            has_worked |= self.collect_mail(now);
            has_worked |= self.fire_timers(now);
            has_worked |= self.take_completions(now);
            has_worked |= self.take_events(now);
            has_worked |= self.give_turns(now);
            has_worked |= self.with_lane(|lane| lane.submit());
            if self.is_drained(now) {
                // This sends the last packets of closed connections.
                let _ = self.provider.poll(Wait::Poll);
                return;
            }
            let pause = self.next_pause(now, has_worked);
            self.publish(now, &pause);
            if let Err(error) = self.poll(pause) {
                tracing::error!(%error, "RDMA has failed at this address; its connections end");
                for id in self.slots.ids() {
                    let error = std::io::Error::from(error.kind());
                    self.close(now, id, &CloseReason::Io(error));
                }
                return;
            }
        }
    }

    fn with_lane(&mut self, turn: impl FnOnce(&mut dyn Lane) -> bool) -> bool {
        let lane = self.lane.as_mut();
        lane.is_some_and(|watched| turn(&mut *watched.lane))
    }

    fn next_pause(&mut self, now: Instant, has_worked: bool) -> Pause {
        if has_worked {
            self.spin.worked(now);
        }
        if has_worked || !self.ready.is_empty() {
            return Pause::Poll;
        }
        let of_lane = self.lane.as_ref().and_then(|watched| watched.lane.due());
        let due = [self.timers.next(), self.drain_until, of_lane];
        let due = due.into_iter().flatten().min();
        self.spin.idle(now, due)
    }

    pub(super) fn publish_now(&self) {
        self.common.published.publish(self.provider.counted());
    }

    /// Publishes the counts for other threads: before each sleep, and every `PUBLISH_EVERY` without
    /// a sleep.
    fn publish(&mut self, now: Instant, pause: &Pause) {
        if matches!(pause, Pause::Poll) && now < self.publish_due {
            return;
        }
        self.publish_due = now + PUBLISH_EVERY;
        self.publish_now();
    }

    /// Moves all data that can be moved. Sleeps as `pause` says.
    fn poll(&mut self, pause: Pause) -> std::io::Result<()> {
        let at_most = match pause {
            Pause::Poll => return self.provider.poll(Wait::Poll),
            Pause::AtMost(at_most) => at_most.min(SLEEP_MAX),
            Pause::Forever => SLEEP_MAX,
        };
        let mailbox = &self.common.mailbox;
        if !mailbox.fall_asleep() {
            return self.provider.poll(Wait::Poll);
        }
        self.provider.may_notice_late(self.awaiting == 0);
        let events = self.lane.as_ref().map(|watched| &watched.events);
        let event = events.map_or_else(|| mailbox.event(), EventSet::as_fd);
        let result = self.provider.poll(Wait::Event { at_most, event });
        if let Some(events) = events {
            events.clear();
        }
        mailbox.wake_up();
        mailbox.clear_event();
        result
    }

    fn collect_mail(&mut self, now: Instant) -> bool {
        let Some(mail) = self.common.mailbox.collect() else {
            return false;
        };
        for message in mail.messages {
            self.handle_mail(now, message);
        }
        for id in mail.wakes {
            self.with(now, id, |connection| {
                connection.wake(now);
                Ok(())
            });
        }
        for (id, completion) in mail.completions {
            self.with(now, id, |connection| {
                connection.complete(now, completion);
                Ok(())
            });
        }
        if let Some(period) = mail.checkpoint {
            self.grace.pass(period);
        }
        true
    }

    fn handle_mail(&mut self, now: Instant, message: Message) {
        match message {
            Message::Listen(port, listener, done) => {
                let result = self.provider.listen(port);
                if result.is_ok() {
                    self.listeners.insert(port, listener);
                }
                // The caller may have timed out.
                let _ = done.try_send(result);
            }
            Message::Unlisten(port, done) => {
                self.unlisten(now, port);
                // The caller may have timed out.
                let _ = done.try_send(());
            }
            Message::Close(id) => self.close(now, id, &CloseReason::Requested),
            Message::Drain(until) => {
                self.drain_until = Some(until);
                for (port, _) in self.listeners.drain() {
                    self.provider.stop_listening(port);
                }
                for id in self.slots.ids() {
                    self.with(now, id, |connection| {
                        connection.drain();
                        Ok(())
                    });
                }
            }
        }
    }

    fn unlisten(&mut self, now: Instant, port: u16) {
        let Some(listener) = self.listeners.remove(&port) else {
            return;
        };
        self.provider.stop_listening(port);
        for id in self.slots.ids() {
            let connection = self.slots.get_mut(id);
            if connection.is_some_and(|connection| connection.listener == listener.id) {
                self.close(now, id, &CloseReason::Requested);
            }
        }
    }

    /// Fires each timer that is due once.
    fn fire_timers(&mut self, now: Instant) -> bool {
        let due = self.timers.take_due(now);
        for &(at, id) in &due {
            self.with(now, id, |connection| {
                if connection.armed != Some(at) {
                    return Ok(());
                }
                connection.armed = None;
                connection.handle_timer(now)
            });
        }
        let has_fired = !due.is_empty();
        self.timers.give_back(due);
        has_fired
    }

    fn take_completions(&mut self, now: Instant) -> bool {
        for count in 0..COMPLETIONS_PER_ROUND {
            let Some(completion) = self.provider.next_completion() else {
                return count > 0;
            };
            let Some(id) = self.connection_of(completion.qpn) else {
                continue;
            };
            match (completion.status, completion.kind) {
                (WorkStatus::Success, WorkKind::Recv) => self.on_message(now, id, &completion),
                (WorkStatus::Success, _) => self.on_done(now, id, &completion),
                // An event gives the reason.
                (WorkStatus::Flushed, _) => {}
                (status, _) => self.close(now, id, &failed(QpFailure::Request(status))),
            }
        }
        true
    }

    fn connection_of(&mut self, qpn: Qpn) -> Option<ConnectionId> {
        if let Some((last, id)) = self.last
            && last == qpn
        {
            return Some(id);
        }
        let id = *self.by_qpn.get(&qpn)?;
        self.last = Some((qpn, id));
        Some(id)
    }

    fn on_message(&mut self, now: Instant, id: ConnectionId, completion: &Completion) {
        let provider = &mut self.provider;
        let Some(connection) = self.slots.get_mut(id) else {
            return;
        };
        let handled = catch_unwind(AssertUnwindSafe(|| {
            connection.handle_message(now, completion, provider);
        }));
        enqueue(&mut self.ready, connection);
        if handled.is_err() {
            self.close(now, id, &CloseReason::Panicked);
        }
    }

    /// A request of a session's and all before it are done.
    fn on_done(&mut self, now: Instant, id: ConnectionId, completion: &Completion) {
        let Some(connection) = self.slots.get_mut(id) else {
            return;
        };
        let mut has_panicked = false;
        while let Some((chunk, read)) = connection.queue.done(completion.id.0) {
            if let Some(read) = read {
                // Each read says when it is done, so it is the request that has completed.
                let at = completion.at.unwrap_or(chunk.placement(read.len_bytes));
                let data = self.provider.placed(at);
                let handle = AssertUnwindSafe(|| connection.handle_read(now, read, data));
                has_panicked |= catch_unwind(handle).is_err();
            }
            connection.queue.give(chunk, &mut self.pool);
        }
        enqueue(&mut self.ready, connection);
        if has_panicked {
            self.close(now, id, &CloseReason::Panicked);
        }
    }

    fn take_events(&mut self, now: Instant) -> bool {
        let mut requests = 0;
        for count in 0..EVENTS_PER_ROUND {
            let next = (requests < REQUESTS_PER_ROUND).then(|| self.provider.next_event());
            let Some(event) = next.flatten() else {
                return count > 0;
            };
            let (qpn, reason) = match event {
                Event::Request(request) => {
                    self.on_request(now, &request);
                    requests += 1;
                    continue;
                }
                Event::Connected { .. } | Event::Established { .. } => continue,
                Event::Disconnected { qpn, .. } => (Some(qpn), CloseReason::PeerClosed),
                Event::Rejected { qpn, .. } | Event::Unreachable { qpn, .. } => {
                    (qpn, CloseReason::PeerClosed)
                }
                Event::QpFailed { qpn, failure, .. } => (Some(qpn), failed(failure)),
            };
            if let Some(id) = qpn.and_then(|qpn| self.connection_of(qpn)) {
                self.close(now, id, &reason);
            }
        }
        true
    }

    /// Someone wants to connect.
    fn on_request(&mut self, now: Instant, request: &ConnectRequest) {
        let peer = request.flow.remote().ip();
        let refused = match self.try_admit(now, request) {
            Ok(()) => return,
            Err(refused) => refused,
        };
        tracing::warn!(%peer, error = %refused, "rejected an RDMA connection");
        let (reason, private_data) = match refused {
            NotAdmitted::Refused(Refusal::Protocol { private_data, .. }) => {
                (RejReason::CONSUMER, private_data)
            }
            NotAdmitted::NoSuchPort => (RejReason::INVALID_SERVICE_ID, Vec::new()),
            _ => (RejReason::NO_RESOURCES, Vec::new()),
        };
        // The requester may have withdrawn the request.
        let _ = self.provider.reject(request.id, reason, &private_data);
    }

    fn try_admit(&mut self, now: Instant, request: &ConnectRequest) -> Result<(), NotAdmitted> {
        let port = request.service.tcp_port().ok_or(NotAdmitted::NoSuchPort)?;
        let listener = self.listeners.get(&port).ok_or(NotAdmitted::NoSuchPort)?;
        let peer_ip = request.flow.remote().ip();
        let peer_port = request.addresses.map_or(0, |(source, _)| source.port());
        let reactors = &self.common.reactors;
        let (place, half_open) = reactors.gate().enter(peer_ip)?;
        if !self.pool.add_connection(&mut self.provider) {
            return Err(NotAdmitted::NoMemory);
        }
        let due = now + reactors.handshake_timeout();
        let mut login = Some(Login {
            place,
            handshake: Handshake::new(half_open, due),
        });
        let mut failure = NotAdmitted::NoMemory;
        let (provider, common) = (&mut self.provider, &self.common);
        let id = self.slots.insert_with(|id| {
            let login = login.take()?;
            let accepted = Accepted {
                id,
                listener: listener.id,
                peer: SocketAddr::new(peer_ip, peer_port),
                local: SocketAddr::new(request.flow.local().ip(), port),
            };
            let asked = (&accepted, request);
            let admitted = admit(now, asked, login, &listener.acceptor, common, provider);
            admitted.map_err(|error| failure = error).ok()
        });
        let Some(connection) = id.and_then(|id| self.slots.get_mut(id)) else {
            self.pool.remove_connection(&mut self.provider);
            return Err(failure);
        };
        self.by_qpn.insert(connection.qpn, connection.id);
        arm(&mut self.timers, connection);
        enqueue(&mut self.ready, connection);
        Ok(())
    }

    /// Gives each ready connection one turn.
    fn give_turns(&mut self, now: Instant) -> bool {
        let count = self.ready.len();
        for _ in 0..count {
            let Some(id) = self.ready.pop_front() else {
                break;
            };
            let Some(connection) = self.slots.get_mut(id) else {
                continue;
            };
            connection.is_queued = false;
            let (provider, pool, staged) = (&mut self.provider, &mut self.pool, &mut self.staged);
            let turn = catch_unwind(AssertUnwindSafe(|| {
                connection.turn(now, provider, pool, staged)
            }));
            arm(&mut self.timers, connection);
            count_if(connection.awaits_requests(), connection, &mut self.awaiting);
            match turn.unwrap_or(Err(CloseReason::Panicked)) {
                Ok(Turn::Waits) => {}
                Ok(Turn::HasMore) => enqueue(&mut self.ready, connection),
                Err(reason) => {
                    connection.queue.unstage(&mut self.staged, &mut self.pool);
                    self.close(now, id, &reason);
                }
            }
        }
        count > 0
    }

    /// Calls `f` for a connection. Closes the connection if `f` fails, otherwise makes it ready.
    fn with(
        &mut self,
        now: Instant,
        id: ConnectionId,
        f: impl FnOnce(&mut Connection) -> Result<(), CloseReason>,
    ) {
        let Some(connection) = self.slots.get_mut(id) else {
            return;
        };
        let result = catch_unwind(AssertUnwindSafe(|| f(connection)));
        arm(&mut self.timers, connection);
        enqueue(&mut self.ready, connection);
        if let Err(reason) = result.unwrap_or(Err(CloseReason::Panicked)) {
            self.close(now, id, &reason);
        }
    }

    fn close(&mut self, now: Instant, id: ConnectionId, reason: &CloseReason) {
        let Some(mut connection) = self.slots.remove(id) else {
            return;
        };
        count_if(false, &mut connection, &mut self.awaiting);
        self.by_qpn.remove(&connection.qpn);
        self.last = None;
        self.provider.destroy_qp(connection.qpn);
        connection.queue.abandon(&mut self.pool);
        self.pool.remove_connection(&mut self.provider);
        connection.receives.release(&mut self.provider);
        // A session that panics while it is closed is removed all the same.
        let closed = catch_unwind(AssertUnwindSafe(|| connection.close(now, reason)));
        if closed.is_err() {
            tracing::error!(connection = %id, "a session panicked while it was closed");
        }
        if self.slots.is_empty() {
            self.pool.clear(&mut self.provider);
        }
    }

    /// Whether the thread is to end, with everything closed.
    fn is_drained(&mut self, now: Instant) -> bool {
        let Some(until) = self.drain_until else {
            return false;
        };
        if now >= until {
            for id in self.slots.ids() {
                self.close(now, id, &CloseReason::Stopping);
            }
        }
        self.slots.is_empty()
    }
}

/// Arms the timer for when the connection is due.
fn arm(timers: &mut Timers, connection: &mut Connection) {
    let Some(due) = connection.due() else {
        return;
    };
    if connection.armed.is_none_or(|armed| due < armed) {
        connection.armed = Some(due);
        timers.arm(due, connection.id);
    }
}

/// Counts a connection while it waits for requests to complete.
fn count_if(awaits: bool, connection: &mut Connection, awaiting: &mut usize) {
    match (connection.is_counted, awaits) {
        (false, true) => *awaiting += 1,
        (true, false) => *awaiting -= 1,
        _ => {}
    }
    connection.is_counted = awaits;
}

fn enqueue(ready: &mut VecDeque<ConnectionId>, connection: &mut Connection) {
    if !connection.is_queued {
        connection.is_queued = true;
        ready.push_back(connection.id);
    }
}
