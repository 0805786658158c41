//! A reactor: one thread, its sockets, and the loop that gives each its turn.
//!
//! ```text
//!          ┌──────────────────────────────────────────────────────────────┐
//!          ▼                                                              │
//!  mailbox ─► timers ─► turns of those that may go on ─► poll or sleep ───┘
//!    ▲                                 │
//!    └ lane: reap ◄── devices ◄── lane: submit
//! ```
//!
//! In its lane ([`block::Lane`]) a reactor drives the devices of volumes. What they have completed
//! is in the mailbox when it is collected.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

use block::Lane;

use super::{Common, GraceMember, ReactorHandle};
use crate::channel::Channel;
use crate::connection::{Connection, Scratch, Turn, configure};
use crate::driven::{Accepted, CloseReason};
use crate::gate::Handshake;
use crate::listener::{Incoming, Listener};
use crate::poller::{Poller, Readiness, Wait};
use crate::slots::Slots;
use crate::spin::Spin;
use crate::timers::Timers;
use crate::{ConnectionId, ListenerId};

/// What other threads ask of a reactor.
pub(crate) enum Message {
    /// Listen here.
    Listen(Listener),
    /// Close the listener and what came through it, then say so.
    Unlisten(ListenerId, SyncSender<()>),
    /// Drive this connection.
    Adopt(Incoming),
    /// End this connection.
    Close(ConnectionId),
    /// Accept no more, let commands finish, close; what is left at this instant is cut off.
    Drain(Instant),
}

enum Slot {
    Connection(Box<Connection>),
    Listener(Listener),
}

/// A reactor. Lives on its thread.
pub(crate) struct Reactor {
    index: usize,
    common: Arc<Common>,
    poller: Poller,
    lane: Option<Box<dyn Lane>>,
    slots: Slots<Slot>,
    /// Those that may go on, in the order of their turns.
    ready: VecDeque<ConnectionId>,
    timers: Timers,
    spin: Spin,
    scratch: Scratch,
    drain_until: Option<Instant>,
    grace: GraceMember,
}

/// The mailbox's event among the poller's.
const MAILBOX_TOKEN: u64 = 0;
/// The lane's event among them. Numbers of connections are larger.
const LANE_TOKEN: u64 = 1;
/// Connections accepted in one turn of a listener.
const ACCEPTS_PER_TURN: usize = 64;
/// A listener that could not accept (no descriptors left) tries again after so long.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

impl Reactor {
    pub(crate) fn new(index: usize, common: Arc<Common>) -> io::Result<Self> {
        let poller = Poller::new()?;
        poller.add(common.mailboxes[index].event(), MAILBOX_TOKEN)?;
        let handle = ReactorHandle {
            common: Arc::clone(&common),
        };
        let lane = handle.open_lane()?;
        if let Some(lane) = &lane {
            poller.add(lane.event(), LANE_TOKEN)?;
        }
        Ok(Self {
            index,
            common,
            poller,
            lane,
            slots: Slots::new(index),
            ready: VecDeque::new(),
            timers: Timers::default(),
            spin: Spin::default(),
            scratch: Scratch::new(),
            drain_until: None,
            grace: handle.join_grace_periods(index),
        })
    }

    /// Runs until it has been drained.
    pub(crate) fn run(&mut self) {
        loop {
            let now = Instant::now();
            let mut has_worked = self.lane.as_mut().is_some_and(|lane| lane.reap());
            has_worked |= self.collect_mail(now);
            has_worked |= self.fire_timers(now);
            has_worked |= self.give_turns(now);
            has_worked |= self.lane.as_mut().is_some_and(|lane| lane.submit());
            if self.is_drained(now) {
                return;
            }
            let wait = self.next_wait(now, has_worked);
            self.poll(wait);
        }
    }

    fn next_wait(&mut self, now: Instant, has_worked: bool) -> Wait {
        if has_worked {
            self.spin.worked(now);
        }
        if has_worked || !self.ready.is_empty() {
            return Wait::Poll;
        }
        let of_lane = self.lane.as_ref().and_then(|lane| lane.due());
        let due = [self.timers.next(), self.drain_until, of_lane];
        let due = due.into_iter().flatten().min();
        self.spin.idle(now, due)
    }

    /// Polls which sockets have become ready, and sleeps if `wait` permits it.
    fn poll(&mut self, wait: Wait) {
        let mailbox = &self.common.mailboxes[self.index];
        let sleeps = wait != Wait::Poll;
        let wait = if sleeps && !mailbox.fall_asleep() {
            Wait::Poll
        } else {
            wait
        };
        let events = match self.poller.wait(wait) {
            Ok(events) => events,
            Err(error) => panic!("epoll fails only where its descriptor is invalid: {error}"),
        };
        for readiness in events {
            if readiness.token == MAILBOX_TOKEN {
                mailbox.clear_event();
                continue;
            }
            if readiness.token == LANE_TOKEN {
                continue;
            }
            let id = ConnectionId(readiness.token);
            note(&mut self.slots, &mut self.ready, id, readiness);
        }
        if sleeps {
            mailbox.wake_up();
        }
    }

    fn collect_mail(&mut self, now: Instant) -> bool {
        let Some(mail) = self.common.mailboxes[self.index].collect() else {
            return false;
        };
        for message in mail.messages {
            self.handle_message(now, message);
        }
        for id in mail.wakes {
            if let Some(Slot::Connection(connection)) = self.slots.get_mut(id) {
                let woken = catch_unwind(AssertUnwindSafe(|| connection.wake(now)));
                enqueue(&mut self.ready, id, &mut connection.is_queued);
                if woken.is_err() {
                    self.close(now, id, &CloseReason::Panicked);
                }
            }
        }
        for (id, completion) in mail.completions {
            if let Some(Slot::Connection(connection)) = self.slots.get_mut(id) {
                let done = catch_unwind(AssertUnwindSafe(|| connection.complete(now, completion)));
                enqueue(&mut self.ready, id, &mut connection.is_queued);
                if done.is_err() {
                    self.close(now, id, &CloseReason::Panicked);
                }
            }
        }
        if let Some(period) = mail.checkpoint {
            self.grace.pass(period);
        }
        true
    }

    fn handle_message(&mut self, now: Instant, message: Message) {
        match message {
            Message::Listen(listener) => self.listen(listener),
            Message::Unlisten(id, done) => {
                self.unlisten(now, id);
                // The caller may have timed out.
                let _ = done.try_send(());
            }
            Message::Adopt(incoming) => self.adopt(now, incoming),
            Message::Close(id) => self.close(now, id, &CloseReason::Requested),
            Message::Drain(until) => self.drain(until),
        }
    }

    fn listen(&mut self, listener: Listener) {
        let poller = &self.poller;
        let ready = &mut self.ready;
        self.slots.insert_with(|id| {
            if let Err(error) = poller.add(&listener.socket, id.0) {
                tracing::error!(%error, "a portal cannot be watched and stays deaf");
                return None;
            }
            let mut listener = listener;
            enqueue(ready, id, &mut listener.is_queued);
            Some(Slot::Listener(listener))
        });
    }

    fn unlisten(&mut self, now: Instant, listener: ListenerId) {
        for id in self.slots.ids() {
            match self.slots.get_mut(id) {
                Some(Slot::Listener(slot)) if slot.id == listener => {
                    self.slots.remove(id);
                }
                Some(Slot::Connection(connection)) if connection.listener == listener => {
                    self.close(now, id, &CloseReason::Requested);
                }
                _ => {}
            }
        }
    }

    /// Takes a connection in: makes its session and gives it a first turn.
    fn adopt(&mut self, now: Instant, incoming: Incoming) {
        if self.drain_until.is_some() {
            self.common.loads[self.index].fetch_sub(1, Ordering::Relaxed);
            return;
        }
        let peer = incoming.peer;
        let result = self.try_adopt(now, incoming);
        if let Err(error) = result {
            self.common.loads[self.index].fetch_sub(1, Ordering::Relaxed);
            tracing::warn!(%peer, %error, "rejected a connection");
        }
    }

    fn try_adopt(&mut self, now: Instant, incoming: Incoming) -> Result<(), NotAdmitted> {
        let (place, half_open) = self.common.gate.enter(incoming.peer.ip())?;
        configure(&incoming.socket)?;
        let due = now + self.common.options.handshake_timeout;
        let mut handshake = Handshake::new(half_open, due);
        let handle = ReactorHandle {
            common: Arc::clone(&self.common),
        };
        let mut failure = Some(NotAdmitted::Declined);
        let id = self.slots.insert_with(|id| {
            if let Err(error) = self.poller.add(&incoming.socket, id.0) {
                failure = Some(error.into());
                return None;
            }
            let accepted = Accepted {
                id,
                listener: incoming.listener,
                peer: incoming.peer,
                local: incoming.local,
            };
            let mut driven = incoming.acceptor.accept(now, &accepted)?;
            let charged_bytes = driven.attachment().charged_bytes();
            if let Err(refused) = handle.hold(&mut handshake, id, charged_bytes) {
                driven.handle_close(now, &refused.into());
                failure = Some(refused.into());
                return None;
            }
            let channel = Channel::new(incoming.acceptor.entry());
            Some(Slot::Connection(Box::new(Connection::new(
                (id, incoming.listener),
                incoming.socket,
                channel,
                driven,
                handshake,
                place,
            ))))
        });
        let Some(id) = id else {
            return Err(failure.take().unwrap_or(NotAdmitted::Declined));
        };
        if let Some(Slot::Connection(connection)) = self.slots.get_mut(id) {
            arm(&mut self.timers, connection);
            enqueue(&mut self.ready, id, &mut connection.is_queued);
        }
        Ok(())
    }

    /// Lets each whose time has come have it once.
    fn fire_timers(&mut self, now: Instant) -> bool {
        let due = self.timers.take_due(now);
        for &(at, id) in &due {
            match self.slots.get_mut(id) {
                Some(Slot::Connection(connection)) if connection.armed == Some(at) => {
                    connection.armed = None;
                    let result = catch_unwind(AssertUnwindSafe(|| connection.handle_timer(now)));
                    arm(&mut self.timers, connection);
                    enqueue(&mut self.ready, id, &mut connection.is_queued);
                    if let Err(reason) = result.unwrap_or(Err(CloseReason::Panicked)) {
                        self.close(now, id, &reason);
                    }
                }
                Some(Slot::Listener(listener)) => {
                    enqueue(&mut self.ready, id, &mut listener.is_queued);
                }
                _ => {}
            }
        }
        let has_fired = !due.is_empty();
        self.timers.give_back(due);
        has_fired
    }

    /// Gives each ready connection one turn. Connections that become ready in the meantime wait for
    /// the next round, so none can delay the others.
    fn give_turns(&mut self, now: Instant) -> bool {
        let mut has_worked = false;
        for _ in 0..self.ready.len() {
            let Some(id) = self.ready.pop_front() else {
                break;
            };
            match self.slots.get_mut(id) {
                Some(Slot::Connection(connection)) => {
                    connection.is_queued = false;
                    let turn = take_turn(connection, now, &mut self.scratch);
                    has_worked |= self.after_turn(now, id, turn);
                }
                Some(Slot::Listener(listener)) => {
                    listener.is_queued = false;
                    has_worked |= self.accept(now, id);
                }
                None => {}
            }
        }
        has_worked
    }

    fn after_turn(
        &mut self,
        now: Instant,
        id: ConnectionId,
        turn: Result<Turn, CloseReason>,
    ) -> bool {
        let turn = match turn {
            Ok(turn) => turn,
            Err(reason) => {
                self.close(now, id, &reason);
                return true;
            }
        };
        if let Some(Slot::Connection(connection)) = self.slots.get_mut(id) {
            arm(&mut self.timers, connection);
            if turn == Turn::Again {
                enqueue(&mut self.ready, id, &mut connection.is_queued);
            }
        }
        turn != Turn::Nothing
    }

    /// Accepts what waits and passes each connection to the reactor that has the fewest.
    fn accept(&mut self, now: Instant, id: ConnectionId) -> bool {
        let Some(Slot::Listener(listener)) = self.slots.get_mut(id) else {
            return false;
        };
        let mut incoming = Vec::new();
        while incoming.len() < ACCEPTS_PER_TURN {
            match listener.accept() {
                Ok(Some(connection)) => incoming.push(connection),
                Ok(None) => break,
                Err(error) => {
                    let listener = listener.address().map(|address| address.to_string());
                    tracing::warn!(listener, %error, "a connection could not be accepted");
                    self.timers.arm(now + ACCEPT_RETRY, id);
                    break;
                }
            }
        }
        if incoming.len() == ACCEPTS_PER_TURN {
            enqueue(&mut self.ready, id, &mut listener.is_queued);
        }
        let has_worked = !incoming.is_empty();
        for connection in incoming {
            self.assign(now, connection);
        }
        has_worked
    }

    fn assign(&mut self, now: Instant, incoming: Incoming) {
        let loads = self.common.loads.iter().enumerate();
        let (least, load) = loads
            .min_by_key(|(_, load)| load.load(Ordering::Relaxed))
            .expect("there is at least this reactor");
        load.fetch_add(1, Ordering::Relaxed);
        if least == self.index {
            self.adopt(now, incoming);
            return;
        }
        let (common, peer) = (Arc::clone(&self.common), incoming.peer);
        if common.mailboxes[least]
            .try_post(Message::Adopt(incoming))
            .is_err()
        {
            load_left(&common, least);
            tracing::warn!(%peer, "rejected a connection: its reactor is overloaded");
        }
    }

    fn close(&mut self, now: Instant, id: ConnectionId, reason: &CloseReason) {
        let Some(Slot::Connection(mut connection)) = self.slots.remove(id) else {
            return;
        };
        load_left(&self.common, self.index);
        // A session that panics while it is closed is dropped all the same.
        let closed = catch_unwind(AssertUnwindSafe(|| connection.close(now, reason)));
        if closed.is_err() {
            tracing::error!(connection = %id, "a session panicked while it was closed");
        }
    }

    fn drain(&mut self, until: Instant) {
        self.drain_until = Some(until);
        for id in self.slots.ids() {
            match self.slots.get_mut(id) {
                Some(Slot::Listener(_)) => {
                    self.slots.remove(id);
                }
                Some(Slot::Connection(connection)) => {
                    connection.drain();
                    enqueue(&mut self.ready, id, &mut connection.is_queued);
                }
                None => {}
            }
        }
    }

    /// Whether the reactor is to end, with everything closed.
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

/// Why a connection was not taken in.
#[derive(Debug, thiserror::Error)]
enum NotAdmitted {
    #[error(transparent)]
    Refused(#[from] crate::Refused),
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("its listener accepts no more connections")]
    Declined,
}

fn load_left(common: &Common, reactor: usize) {
    common.loads[reactor].fetch_sub(1, Ordering::Relaxed);
}

/// One turn of a connection. A panic ends it alone: the session is dropped, the scratch made again.
fn take_turn(
    connection: &mut Connection,
    now: Instant,
    scratch: &mut Scratch,
) -> Result<Turn, CloseReason> {
    let turn = catch_unwind(AssertUnwindSafe(|| connection.turn(now, scratch)));
    turn.unwrap_or_else(|_| {
        scratch.reset();
        Err(CloseReason::Panicked)
    })
}

/// Makes sure that the timer fires when the connection's time comes.
fn arm(timers: &mut Timers, connection: &mut Connection) {
    let Some(due) = connection.due() else {
        return;
    };
    if connection.armed.is_none_or(|armed| due < armed) {
        connection.armed = Some(due);
        timers.arm(due, connection.id);
    }
}

fn enqueue(ready: &mut VecDeque<ConnectionId>, id: ConnectionId, is_queued: &mut bool) {
    if !*is_queued {
        *is_queued = true;
        ready.push_back(id);
    }
}

/// Remembers what has become possible.
fn note(
    slots: &mut Slots<Slot>,
    ready: &mut VecDeque<ConnectionId>,
    id: ConnectionId,
    readiness: Readiness,
) {
    match slots.get_mut(id) {
        Some(Slot::Connection(connection)) => {
            connection.handle_readiness(readiness);
            enqueue(ready, id, &mut connection.is_queued);
        }
        Some(Slot::Listener(listener)) => enqueue(ready, id, &mut listener.is_queued),
        None => {}
    }
}
