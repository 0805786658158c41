//! The thread of a portal.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::nfs::{DatagramSession, answer_stranger};
use net::parts::{ConnectionPlace, Gate, GraceMember, HalfOpen, Slots};
use net::{
    Accepted, Attachment, CloseReason, ConnectionId, ListenerId, LoginProgress, UdpArrival, UdpRun,
    UdpSocket,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::super::NfsPortal;
use super::super::backend::NfsBackend;
use super::{Common, Message};

/// The thread's own state.
pub(super) struct Worker {
    portal: NfsPortal,
    socket: UdpSocket,
    common: Arc<Common>,
    gate: Arc<Gate>,
    grace: GraceMember,
    clients: Slots<Client>,
    by_ends: HashMap<Ends, ConnectionId>,
    /// Those with datagrams, in the order of their turns.
    ready: VecDeque<ConnectionId>,
    buffer: Vec<u8>,
    reply: Vec<u8>,
    swept: Instant,
    is_stopping: bool,
}

/// The client's address and port, and the address of ours that it sends to.
type Ends = (SocketAddr, IpAddr);

/// A client: a source of datagrams.
struct Client {
    ends: Ends,
    session: DatagramSession<NfsBackend>,
    backend: NfsBackend,
    /// Datagrams that were not handled.
    queue: VecDeque<Vec<u8>>,
    queued_bytes: usize,
    is_ready: bool,
    /// When it was last heard of.
    heard: Instant,
    half_open: Option<HalfOpen>,
    _place: ConnectionPlace,
}

/// Why a source has no session.
enum NotAdmitted {
    /// It may use no share.
    Stranger,
    /// There is no room for it now.
    Full,
}

/// Calls to the socket before clients have their turns.
const ARRIVALS_PER_ROUND: usize = 64;
/// Strangers that are answered in a round. The datagrams of others are dropped.
const STRANGERS_PER_ROUND: usize = 8;
/// Clients of a portal. The one that was not heard of for the longest time is forgotten first.
const CLIENTS_MAX: usize = 256;
/// Ports of one address among them.
const CLIENTS_PER_ADDRESS_MAX: usize = 32;
/// Datagrams of a client that wait, and their bytes: what Linux's client has in flight at once, 16
/// calls of 32 KiB.
const QUEUE_MAX: usize = 64;
const QUEUE_BYTES_MAX: usize = 640 << 10;
/// A client that was silent for so long is forgotten. It need not notice.
const IDLE_MAX: Duration = Duration::from_secs(5 * 60);
/// How often that is checked.
const SWEEP_EVERY: Duration = Duration::from_secs(10);
/// How long a reply waits for room in the socket before it is dropped, so that the client asks
/// again.
const SEND_WITHIN: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 2_000_000,
};

impl Worker {
    pub(super) fn new(
        index: usize,
        portal: NfsPortal,
        socket: UdpSocket,
        common: Arc<Common>,
    ) -> Self {
        Self {
            gate: portal.core.handle.gate(),
            grace: portal.core.handle.join_grace_periods(index),
            portal,
            socket,
            common,
            clients: Slots::new(index),
            by_ends: HashMap::new(),
            ready: VecDeque::new(),
            buffer: vec![0; UdpSocket::ARRIVAL_LEN_MAX_BYTES],
            reply: Vec::new(),
            swept: Instant::now(),
            is_stopping: false,
        }
    }

    /// Runs until it is to stop, or the socket fails.
    pub(super) fn run(&mut self) {
        loop {
            let now = Instant::now();
            let mut has_worked = self.collect_mail(now);
            if self.is_stopping {
                break;
            }
            match self.receive(now) {
                Ok(has_received) => has_worked |= has_received,
                Err(error) => {
                    let address = self.socket.local_addr();
                    tracing::error!(%address, %error, "a UDP portal has failed and receives nothing; remove it and create it again");
                    break;
                }
            }
            has_worked |= self.give_turns(now);
            if now.saturating_duration_since(self.swept) >= SWEEP_EVERY {
                self.sweep(now);
            }
            if !has_worked && self.ready.is_empty() {
                self.sleep();
            }
        }
        for id in self.clients.ids() {
            self.forget(id, &CloseReason::Stopping);
        }
    }

    fn collect_mail(&mut self, now: Instant) -> bool {
        let Some(mail) = self.common.0.collect() else {
            return false;
        };
        for message in mail.messages {
            match message {
                Message::Close(id) => self.forget(id, &CloseReason::Requested),
                Message::Stop => self.is_stopping = true,
            }
        }
        for id in mail.wakes {
            self.wake(now, id);
        }
        if let Some(period) = mail.checkpoint {
            self.grace.pass(period);
        }
        true
    }

    /// Queues what has arrived.
    fn receive(&mut self, now: Instant) -> io::Result<bool> {
        let mut strangers = 0;
        for count in 0..ARRIVALS_PER_ROUND {
            let Some(arrival) = self.socket.receive(&mut self.buffer)? else {
                return Ok(count > 0);
            };
            let buffer = std::mem::take(&mut self.buffer);
            let each = arrival
                .segment_len_bytes
                .map_or(arrival.len_bytes, usize::from);
            for datagram in buffer[..arrival.len_bytes].chunks(each.max(1)) {
                if self.queue(now, &arrival, datagram).is_err() && strangers < STRANGERS_PER_ROUND {
                    strangers += 1;
                    answer_stranger(datagram, &mut self.reply);
                    let ends = (arrival.source, arrival.dest.ip());
                    // A stranger's reply waits for no room: it would hold clients up.
                    let _ = try_send(&mut self.socket, ends, &self.reply);
                }
            }
            self.buffer = buffer;
        }
        Ok(true)
    }

    /// Queues a datagram for its client. Fails if it is a stranger's.
    fn queue(&mut self, now: Instant, arrival: &UdpArrival, datagram: &[u8]) -> Result<(), ()> {
        let ends = (arrival.source, arrival.dest.ip());
        let id = match self.by_ends.get(&ends) {
            Some(&id) => id,
            None => match self.admit(now, ends) {
                Ok(id) => id,
                Err(NotAdmitted::Stranger) => return Err(()),
                Err(NotAdmitted::Full) => return Ok(()),
            },
        };
        let Some(client) = self.clients.get_mut(id) else {
            return Ok(());
        };
        client.heard = now;
        if client.queue.len() < QUEUE_MAX && client.queued_bytes + datagram.len() <= QUEUE_BYTES_MAX
        {
            client.queued_bytes += datagram.len();
            // The buffer takes the next datagrams before the client has its turn.
            client.queue.push_back(datagram.to_vec());
            if !client.is_ready {
                client.is_ready = true;
                self.ready.push_back(id);
            }
        }
        Ok(())
    }

    /// Makes a session for a source of datagrams that was not heard of before.
    fn admit(&mut self, now: Instant, ends: Ends) -> Result<ConnectionId, NotAdmitted> {
        let (peer, local) = ends;
        let shares = self.portal.core.exports.shares();
        if !shares.iter().any(|share| share.is_for(peer.ip())) {
            return Err(NotAdmitted::Stranger);
        }
        self.make_room(peer.ip());
        if self.by_ends.len() >= CLIENTS_MAX {
            return Err(NotAdmitted::Full);
        }
        let address = peer.ip().to_canonical();
        let entered = self.gate.enter(address).map_err(|_| NotAdmitted::Full)?;
        let (place, half_open) = entered;
        let session_bytes = DatagramSession::<NfsBackend>::BYTES_MAX + QUEUE_BYTES_MAX as u64;
        let portal = &self.portal;
        let local = SocketAddr::new(local, self.socket.local_addr().port());
        let id = self.clients.insert_with(|id| {
            let accepted = Accepted {
                id,
                listener: ListenerId(0),
                peer,
                local,
            };
            Some(Client {
                ends,
                session: DatagramSession::new(),
                backend: portal.backend(&accepted, session_bytes)?,
                queue: VecDeque::new(),
                queued_bytes: 0,
                is_ready: false,
                heard: now,
                half_open: Some(half_open),
                _place: place,
            })
        });
        let id = id.ok_or(NotAdmitted::Full)?;
        self.by_ends.insert(ends, id);
        Ok(id)
    }

    /// Forgets a client that waits for nothing, if there are too many: one of this address if it
    /// has too many ports.
    fn make_room(&mut self, address: IpAddr) {
        let of_address = |(peer, _): &&Ends| peer.ip() == address;
        let own = self.by_ends.keys().filter(of_address).count() >= CLIENTS_PER_ADDRESS_MAX;
        if !own && self.by_ends.len() < CLIENTS_MAX {
            return;
        }
        let clients = &mut self.clients;
        let unused = self.by_ends.iter().filter_map(|(ends, &id)| {
            let client = clients.get_mut(id)?;
            let may_go = client.is_idle() && (!own || ends.0.ip() == address);
            may_go.then_some((client.heard, id))
        });
        let oldest = unused.min();
        if let Some((_, id)) = oldest {
            self.forget(id, &CloseReason::SessionEnded);
        }
    }

    /// Handles one datagram of each client that has any.
    fn give_turns(&mut self, now: Instant) -> bool {
        let count = self.ready.len();
        for _ in 0..count {
            let Some(id) = self.ready.pop_front() else {
                break;
            };
            let (socket, reply) = (&mut self.socket, &mut self.reply);
            let Some(client) = self.clients.get_mut(id) else {
                continue;
            };
            let turn = AssertUnwindSafe(|| client.take_turn(now, socket, reply));
            let has_failed = catch_unwind(turn).is_err();
            client.is_ready = !client.queue.is_empty();
            if client.is_ready {
                self.ready.push_back(id);
            }
            if has_failed {
                self.forget(id, &CloseReason::Panicked);
            }
        }
        count > 0
    }

    /// Sends replies to calls that other threads have executed.
    fn wake(&mut self, now: Instant, id: ConnectionId) {
        let socket = &mut self.socket;
        let Some(client) = self.clients.get_mut(id) else {
            return;
        };
        let woken = AssertUnwindSafe(|| {
            client.session.handle_wake(now, &mut client.backend);
            while let Some(reply) = client.session.next_reply() {
                send(socket, client.ends, &reply);
            }
            client.settle(now);
        });
        if catch_unwind(woken).is_err() {
            self.forget(id, &CloseReason::Panicked);
        }
    }

    fn forget(&mut self, id: ConnectionId, reason: &CloseReason) {
        if let Some(mut client) = self.clients.remove(id) {
            self.by_ends.remove(&client.ends);
            client.backend.handle_closed(reason);
        }
    }

    /// Forgets clients that were silent for long.
    fn sweep(&mut self, now: Instant) {
        self.swept = now;
        for id in self.clients.ids() {
            let client = self.clients.get_mut(id);
            let is_silent = |client: &mut Client| {
                now.saturating_duration_since(client.heard) >= IDLE_MAX && client.is_idle()
            };
            if client.is_some_and(is_silent) {
                self.forget(id, &CloseReason::SessionEnded);
            }
        }
    }

    fn sleep(&self) {
        let mailbox = &self.common.0;
        if !mailbox.fall_asleep() {
            return;
        }
        let mut watched = [
            PollFd::new(&self.socket, PollFlags::IN),
            PollFd::from_borrowed_fd(mailbox.event(), PollFlags::IN),
        ];
        let at_most = Timespec {
            tv_sec: SWEEP_EVERY.as_secs().cast_signed(),
            tv_nsec: 0,
        };
        // A signal, or a failure that the next receive reports.
        let _ = poll(&mut watched, Some(&at_most));
        mailbox.wake_up();
        mailbox.clear_event();
    }
}

impl Client {
    /// Handles the first datagram.
    fn take_turn(&mut self, now: Instant, socket: &mut UdpSocket, reply: &mut Vec<u8>) {
        let Some(datagram) = self.queue.pop_front() else {
            return;
        };
        self.queued_bytes -= datagram.len();
        self.session
            .handle_datagram(now, &datagram, &mut self.backend, reply);
        send(socket, self.ends, reply);
        self.settle(now);
    }

    /// Replies were sent.
    fn settle(&mut self, now: Instant) {
        self.backend.handle_sent(now);
        if self.backend.login_progress() == LoginProgress::Admitted {
            self.half_open = None;
        }
    }

    /// Whether nothing waits.
    fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.session.is_idle()
    }
}

/// Sends a reply, which waits for room in the socket. What cannot be sent, the client asks for
/// again.
fn send(socket: &mut UdpSocket, ends: Ends, reply: &[u8]) {
    let mut sent = try_send(socket, ends, reply);
    if (sent.as_ref()).is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
        let mut watched = [PollFd::new(&*socket, PollFlags::OUT)];
        // The next try says whether there is room.
        let _ = poll(&mut watched, Some(&SEND_WITHIN));
        sent = try_send(socket, ends, reply);
    }
    if let Err(error) = sent {
        tracing::debug!(peer = %ends.0, %error, "a datagram was not sent");
    }
}

/// Sends a reply, if there is one, from the address that the client knows.
fn try_send(socket: &mut UdpSocket, (peer, local): Ends, reply: &[u8]) -> io::Result<()> {
    if reply.is_empty() {
        return Ok(());
    }
    let run = UdpRun {
        source: local,
        dest: peer,
        segment_len_bytes: None,
    };
    socket.send(&run, std::iter::once(reply))
}
