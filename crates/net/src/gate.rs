//! Admission of connections: bounds on all connections and on half-open ones per address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use crate::driven::LoginProgress;

/// Counts the connections of all reactors. Used when connections open, are admitted, and close.
#[derive(Debug)]
pub struct Gate {
    connections_max: usize,
    half_open_per_address_max: usize,
    connections: AtomicUsize,
    half_open: Mutex<HashMap<IpAddr, usize>>,
}

/// Why a connection is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// In all.
    #[error("the maximum number of connections is reached")]
    Full,
    /// Of its address.
    #[error("its address has too many connections that have not logged in")]
    HalfOpen,
}

/// A connection's place; left when this drops.
#[derive(Debug)]
pub struct ConnectionPlace {
    gate: Arc<Gate>,
}

/// A connection's place among the half-open ones of its address; left when this drops.
#[derive(Debug)]
pub struct HalfOpen {
    gate: Arc<Gate>,
    address: IpAddr,
}

/// What bounds a connection until its peer is admitted: its place among the half-open ones, and the
/// deadline of its login.
#[derive(Debug)]
pub struct Handshake {
    half_open: Option<HalfOpen>,
    due: Option<Instant>,
}

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

    /// When the login has to be completed; `None` if no such deadline holds any more.
    pub fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Whether the login has taken too long.
    pub fn is_late(&self, now: Instant) -> bool {
        self.due.is_some_and(|due| now >= due)
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
    /// Bounds on connections in all, and on half-open ones of an address.
    pub fn new(connections_max: usize, half_open_per_address_max: usize) -> Self {
        Self {
            connections_max,
            half_open_per_address_max,
            connections: AtomicUsize::new(0),
            half_open: Mutex::new(HashMap::new()),
        }
    }

    /// Reserves a place for a connection from `address`.
    pub fn enter(
        self: &Arc<Self>,
        address: IpAddr,
    ) -> Result<(ConnectionPlace, HalfOpen), Refused> {
        if self.connections.fetch_add(1, Ordering::Relaxed) >= self.connections_max {
            self.connections.fetch_sub(1, Ordering::Relaxed);
            return Err(Refused::Full);
        }
        let place = ConnectionPlace {
            gate: Arc::clone(self),
        };
        let mut half_open = self
            .half_open
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let count = half_open.entry(address).or_default();
        if *count >= self.half_open_per_address_max {
            return Err(Refused::HalfOpen);
        }
        *count += 1;
        let half_open = HalfOpen {
            gate: Arc::clone(self),
            address,
        };
        Ok((place, half_open))
    }

    /// How many connections there are.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}

impl Drop for ConnectionPlace {
    fn drop(&mut self) {
        self.gate.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for HalfOpen {
    fn drop(&mut self) {
        let mut half_open = self
            .gate
            .half_open
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = half_open.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                half_open.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_open_connections_are_bounded_per_address_until_admitted() {
        let gate = Arc::new(Gate::new(10, 2));
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
        assert!(gate.half_open.lock().expect("unpoisoned").is_empty());
    }

    #[test]
    fn an_authentication_may_take_longer_than_a_login_and_stays_half_open() {
        let gate = Arc::new(Gate::new(10, 1));
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
        let gate = Arc::new(Gate::new(1, 2));
        let first = gate.enter([192, 0, 2, 1].into()).expect("first");
        let second = gate.enter([192, 0, 2, 2].into());
        assert_eq!(second.err(), Some(Refused::Full));
        drop(first);
        assert!(gate.enter([192, 0, 2, 2].into()).is_ok());
    }
}
