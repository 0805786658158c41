//! Admission of connections: bounds on all connections, and on half-open ones, whose peers have not
//! been admitted yet.
//!
//! ```text
//!           enter            hold                          admitted
//!  accepted ─────► HalfOpen ─────► HalfOpen with its bytes ────────► ConnectionPlace alone
//!                                   └─ evicted: it closes ──────────► nothing
//! ```
//!
//! Half-open connections take at most a part of the memory and of the places ([`SHARE_OF_MEMORY`],
//! [`SHARE_OF_CONNECTIONS`]). However many there are, admitted connections go on, and a new one
//! finds room because an older half-open one is evicted.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use block::network_of;
use memory::Budget;

use crate::ConnectionId;
use crate::driven::{LoginProgress, Refused};

/// Counts the connections of all threads. Used when connections open, are admitted, and close.
#[derive(Debug)]
pub struct Gate {
    bounds: GateBounds,
    connections: AtomicUsize,
    half_open: Mutex<HalfOpenList>,
}

/// The bounds of a [`Gate`].
#[derive(Debug)]
pub struct GateBounds {
    /// Connections at once.
    pub connections_max: usize,
    /// Half-open ones of one network ([`network_of`]).
    pub half_open_per_network_max: usize,
    /// What connections are charged to.
    pub budget: Arc<Budget>,
}

/// A connection's place; left when this drops.
#[derive(Debug)]
pub struct ConnectionPlace {
    gate: Arc<Gate>,
}

/// A connection's place among the half-open ones; left when this drops.
#[derive(Debug)]
pub struct HalfOpen {
    gate: Arc<Gate>,
    number: u64,
    network: IpAddr,
    held_bytes: u64,
    is_evicted: Arc<AtomicBool>,
}

/// What bounds a connection until its peer is admitted: its place among the half-open ones, and the
/// deadline of its login.
#[derive(Debug)]
pub struct Handshake {
    half_open: Option<HalfOpen>,
    due: Option<Instant>,
}

/// The half-open connections.
#[derive(Debug, Default)]
struct HalfOpenList {
    next_number: u64,
    networks: HashMap<IpAddr, Network>,
    /// How many hold memory, and how much all of them hold.
    holding_count: usize,
    held_bytes: u64,
    /// How much those hold that were evicted and have not closed yet.
    leaving_bytes: u64,
}

/// The half-open connections of one network.
#[derive(Debug, Default)]
struct Network {
    /// All of them, those included that are being evicted.
    count: usize,
    /// Those that hold memory, by their numbers, and how much all of them hold.
    holding: BTreeMap<u64, Holding>,
    held_bytes: u64,
}

#[derive(Debug)]
struct Holding {
    connection: ConnectionId,
    held_bytes: u64,
    is_evicted: Arc<AtomicBool>,
}

/// Half-open connections hold at most this part of the memory that is not used for anything else.
const SHARE_OF_MEMORY: u64 = 4;
/// The same with those that are being evicted.
const SHARE_WITH_LEAVING: u64 = 2;
/// Half-open connections are at most this part of all connections.
const SHARE_OF_CONNECTIONS: usize = 2;

impl Handshake {
    /// Of a connection whose peer has to log in before `due`.
    pub fn new(half_open: HalfOpen, due: Instant) -> Self {
        Self {
            half_open: Some(half_open),
            due: Some(due),
        }
    }

    /// Whether the peer is not admitted yet.
    pub fn is_open(&self) -> bool {
        self.half_open.is_some()
    }

    /// Whether the connection has to close, to make room for others.
    pub fn is_evicted(&self) -> bool {
        let half_open = self.half_open.as_ref();
        half_open.is_some_and(|half_open| half_open.is_evicted.load(Ordering::Relaxed))
    }

    /// When the login has to be completed; `None` if no such deadline holds any more.
    pub fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Whether the login has taken too long.
    pub fn is_late(&self, now: Instant) -> bool {
        self.due.is_some_and(|due| now >= due)
    }

    /// The connection holds `len_bytes` of memory, which have been charged to the budget. Returns
    /// the connections that are evicted for it: they have to be woken.
    ///
    /// # Errors
    /// [`Refused::Memory`] if those that were evicted before have yet to free theirs.
    pub(crate) fn hold(
        &mut self,
        connection: ConnectionId,
        len_bytes: u64,
    ) -> Result<Vec<ConnectionId>, Refused> {
        let half_open = self.half_open.as_mut();
        half_open.map_or_else(|| Ok(Vec::new()), |own| own.hold(connection, len_bytes))
    }

    /// Lifts the bounds that no longer hold.
    pub fn advance(&mut self, login_progress: LoginProgress) {
        match login_progress {
            LoginProgress::Pending => {}
            LoginProgress::Authenticating => self.due = None,
            LoginProgress::Admitted => (self.half_open, self.due) = (None, None),
        }
    }
}

impl Gate {
    /// A gate that no connection has passed.
    pub fn new(bounds: GateBounds) -> Self {
        Self {
            bounds,
            connections: AtomicUsize::new(0),
            half_open: Mutex::default(),
        }
    }

    /// Reserves a place for a connection from `address`.
    ///
    /// # Errors
    /// If there are too many connections, or too many half-open ones of its network.
    pub fn enter(
        self: &Arc<Self>,
        address: IpAddr,
    ) -> Result<(ConnectionPlace, HalfOpen), Refused> {
        let before = self.connections.fetch_add(1, Ordering::Relaxed);
        let place = ConnectionPlace {
            gate: Arc::clone(self),
        };
        if before >= self.bounds.connections_max {
            return Err(Refused::Full);
        }
        let network = network_of(address);
        let mut list = self.lock();
        let of_network = list.networks.entry(network).or_default();
        if of_network.count >= self.bounds.half_open_per_network_max {
            return Err(Refused::HalfOpen);
        }
        of_network.count += 1;
        let number = list.next_number;
        list.next_number += 1;
        drop(list);
        let half_open = HalfOpen {
            gate: Arc::clone(self),
            number,
            network,
            held_bytes: 0,
            is_evicted: Arc::default(),
        };
        Ok((place, half_open))
    }

    /// How many connections there are.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// No code that runs under this lock leaves its sums half changed.
    fn lock(&self) -> MutexGuard<'_, HalfOpenList> {
        self.half_open
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl HalfOpen {
    fn hold(
        &mut self,
        connection: ConnectionId,
        len_bytes: u64,
    ) -> Result<Vec<ConnectionId>, Refused> {
        let gate = Arc::clone(&self.gate);
        let mut list = gate.lock();
        let free_bytes = gate.bounds.budget.free_bytes().saturating_add(len_bytes);
        let evicted = list.make_room(
            len_bytes,
            free_bytes,
            gate.bounds.connections_max / SHARE_OF_CONNECTIONS,
        )?;
        self.held_bytes = len_bytes;
        let holding = Holding {
            connection,
            held_bytes: len_bytes,
            is_evicted: Arc::clone(&self.is_evicted),
        };
        list.insert((self.network, self.number), holding);
        Ok(evicted)
    }
}

impl HalfOpenList {
    /// Evicts connections until `len_bytes` more fit, and there are fewer than `connections_max`.
    /// `free_bytes` is what nothing else uses, these bytes included. One that is alone fits always,
    /// since the budget has room for it.
    fn make_room(
        &mut self,
        len_bytes: u64,
        free_bytes: u64,
        connections_max: usize,
    ) -> Result<Vec<ConnectionId>, Refused> {
        let all_bytes = self.held_bytes + self.leaving_bytes;
        let free_bytes = free_bytes.saturating_add(all_bytes);
        if self.leaving_bytes > 0 && all_bytes + len_bytes > free_bytes / SHARE_WITH_LEAVING {
            return Err(Refused::Memory);
        }
        let mut evicted = Vec::new();
        while self.holding_count > 0
            && (self.held_bytes + len_bytes > free_bytes / SHARE_OF_MEMORY
                || self.holding_count >= connections_max)
        {
            evicted.extend(self.evict_one());
        }
        Ok(evicted)
    }

    /// Evicts the oldest connection of the network whose connections together hold most. Of
    /// networks that hold as much, the one with the oldest connection.
    fn evict_one(&mut self) -> Option<ConnectionId> {
        let networks = self.networks.iter().filter_map(|(&network, of_network)| {
            let (&oldest, _) = of_network.holding.first_key_value()?;
            Some((of_network.held_bytes, Reverse(oldest), network))
        });
        let (_, Reverse(oldest), network) = networks.max()?;
        let evicted = self.remove((network, oldest))?;
        self.leaving_bytes += evicted.held_bytes;
        evicted.is_evicted.store(true, Ordering::Relaxed);
        Some(evicted.connection)
    }

    /// A connection of a network, with this number, holds memory from now on.
    fn insert(&mut self, (network, number): (IpAddr, u64), holding: Holding) {
        let of_network = self.networks.entry(network).or_default();
        of_network.held_bytes += holding.held_bytes;
        self.held_bytes += holding.held_bytes;
        self.holding_count += 1;
        of_network.holding.insert(number, holding);
    }

    /// It does not any more. `None` if it was not among those that do.
    fn remove(&mut self, (network, number): (IpAddr, u64)) -> Option<Holding> {
        let of_network = self.networks.get_mut(&network)?;
        let holding = of_network.holding.remove(&number)?;
        of_network.held_bytes -= holding.held_bytes;
        self.held_bytes -= holding.held_bytes;
        self.holding_count -= 1;
        Some(holding)
    }
}

impl Drop for ConnectionPlace {
    fn drop(&mut self) {
        self.gate.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for HalfOpen {
    fn drop(&mut self) {
        let mut list = self.gate.lock();
        if list.remove((self.network, self.number)).is_none() {
            // It holds nothing, or was evicted.
            list.leaving_bytes -= self.held_bytes;
        }
        if let Some(of_network) = list.networks.get_mut(&self.network) {
            of_network.count -= 1;
            if of_network.count == 0 {
                list.networks.remove(&self.network);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate(connections_max: usize, half_open_per_network_max: usize, bytes: u64) -> Arc<Gate> {
        Arc::new(Gate::new(GateBounds {
            connections_max,
            half_open_per_network_max,
            budget: Arc::new(Budget::new(bytes)),
        }))
    }

    /// A connection of the address with this last number, which is charged `len_bytes`.
    struct TestConnection {
        handshake: Handshake,
        _place: ConnectionPlace,
        _charge: memory::Charge,
    }

    fn try_guest(
        gate: &Arc<Gate>,
        host: u8,
        id: u64,
        len_bytes: u64,
    ) -> (TestConnection, Result<Vec<u64>, Refused>) {
        let (place, half_open) = gate.enter([192, 0, 2, host].into()).expect("a place");
        let charge = gate.bounds.budget.reserve(len_bytes).expect("free");
        let mut handshake = Handshake::new(half_open, Instant::now());
        let evicted = handshake.hold(ConnectionId(id), len_bytes);
        let evicted = evicted.map(|evicted| evicted.into_iter().map(|id| id.0).collect());
        let guest = TestConnection {
            handshake,
            _place: place,
            _charge: charge,
        };
        (guest, evicted)
    }

    fn guest(gate: &Arc<Gate>, host: u8, id: u64, len_bytes: u64) -> (TestConnection, Vec<u64>) {
        let (guest, evicted) = try_guest(gate, host, id, len_bytes);
        (guest, evicted.expect("not refused"))
    }

    #[test]
    fn half_open_connections_are_bounded_per_network_until_admitted() {
        let gate = gate(10, 2, 0);
        let (a, b): (IpAddr, IpAddr) = ([192, 0, 2, 1].into(), [192, 0, 2, 2].into());
        let first = gate.enter(a).expect("first");
        let second = gate.enter(a).expect("second");
        assert_eq!(gate.enter(a).err(), Some(Refused::HalfOpen));
        let other = gate.enter(b).expect("another address");
        drop(first.1);
        let third = gate.enter(a).expect("one was admitted");
        assert_eq!(gate.connections(), 4);
        drop((first.0, second, third, other));
        assert_eq!(gate.connections(), 0);
        assert!(gate.lock().networks.is_empty());
        let of_network = ["2001:db8::1", "2001:db8::2", "2001:db8::3"];
        let of_network = of_network.map(|text| gate.enter(text.parse().expect("an address")));
        assert_eq!(
            of_network.map(|entered| entered.is_ok()),
            [true, true, false]
        );
    }

    #[test]
    fn strangers_hold_a_quarter_of_what_is_free_and_the_oldest_of_most_makes_room() {
        let gate = gate(100, 100, 1000);
        let served = gate.bounds.budget.reserve(600).expect("free");
        // 400 are free, so 100 are for half-open connections.
        let (_other, _) = guest(&gate, 9, 1, 40);
        let (oldest, _) = guest(&gate, 1, 2, 30);
        let (next, evicted) = guest(&gate, 1, 3, 30);
        assert!(evicted.is_empty());
        let (newest, evicted) = guest(&gate, 2, 4, 30);
        assert_eq!(evicted, [2]);
        assert!(oldest.handshake.is_evicted() && !next.handshake.is_evicted());
        drop((oldest, newest));
        let list = gate.lock();
        assert_eq!((list.held_bytes, list.leaving_bytes), (70, 0));
        drop((list, served));
    }

    #[test]
    fn of_networks_that_hold_as_much_the_one_with_the_oldest_makes_room() {
        let gate = gate(100, 100, 400);
        // A share of 100.
        let all = [(2, 40), (1, 20), (1, 20)].into_iter().zip(0..);
        let all: Vec<_> = all
            .map(|((host, bytes), id)| guest(&gate, host, id, bytes).0)
            .collect();
        let (_newest, evicted) = guest(&gate, 3, 3, 30);
        assert_eq!(evicted, [0]);
        drop(all);
        let list = gate.lock();
        assert_eq!((list.held_bytes, list.leaving_bytes), (30, 0));
        assert_eq!(list.holding_count, 1);
    }

    #[test]
    fn those_that_were_evicted_free_their_memory_before_more_are() {
        let gate = gate(100, 100, 400);
        let mut guests = Vec::new();
        let refused = loop {
            // A share of 100, and 200 with those that are leaving.
            let (guest, evicted) = try_guest(&gate, 1, guests.len() as u64, 20);
            if let Err(refused) = evicted {
                break refused;
            }
            guests.push(guest);
        };
        assert_eq!((refused, guests.len()), (Refused::Memory, 10));
        let is_evicted = |guest: &&TestConnection| guest.handshake.is_evicted();
        assert_eq!(guests.iter().filter(is_evicted).count(), 5);
        guests.retain(|guest| !guest.handshake.is_evicted());
        let (_, evicted) = guest(&gate, 1, 100, 20);
        assert_eq!(evicted.len(), 1);
    }

    #[test]
    fn one_alone_may_hold_all_that_is_free() {
        let gate = gate(100, 100, 100);
        let (alone, evicted) = guest(&gate, 1, 1, 50);
        assert!(evicted.is_empty());
        let (_second, evicted) = guest(&gate, 2, 2, 50);
        assert_eq!(evicted, [1]);
        assert!(alone.handshake.is_evicted());
    }

    #[test]
    fn strangers_leave_places_to_those_who_are_admitted() {
        let gate = gate(8, 100, 1000);
        let all: Vec<_> = (0..4).map(|id| guest(&gate, 1, id, 1)).collect();
        assert!(all.iter().all(|(_, evicted)| evicted.is_empty()));
        let (mut late, evicted) = guest(&gate, 2, 4, 1);
        assert_eq!(evicted, [0]);
        late.handshake.advance(LoginProgress::Admitted);
        let (_next, evicted) = guest(&gate, 2, 5, 1);
        assert!(
            evicted.is_empty(),
            "the one that was admitted is none of them"
        );
    }

    #[test]
    fn an_authentication_may_take_longer_than_a_login_and_stays_half_open() {
        let gate = gate(10, 1, 0);
        let peer: IpAddr = [192, 0, 2, 1].into();
        let (_place, half_open) = gate.enter(peer).expect("first");
        let due = Instant::now();
        let mut handshake = Handshake::new(half_open, due);
        handshake.advance(LoginProgress::Pending);
        assert!(handshake.is_late(due) && handshake.due() == Some(due));
        handshake.advance(LoginProgress::Authenticating);
        assert!(!handshake.is_late(due) && handshake.due().is_none());
        assert!(handshake.is_open());
        assert_eq!(gate.enter(peer).err(), Some(Refused::HalfOpen));
        handshake.advance(LoginProgress::Admitted);
        assert!(!handshake.is_open() && gate.enter(peer).is_ok());
    }

    #[test]
    fn connections_are_bounded_in_all() {
        let gate = gate(1, 2, 0);
        let first = gate.enter([192, 0, 2, 1].into()).expect("first");
        let second = gate.enter([192, 0, 2, 2].into());
        assert_eq!(second.err(), Some(Refused::Full));
        drop(first);
        assert!(gate.enter([192, 0, 2, 2].into()).is_ok());
    }
}
