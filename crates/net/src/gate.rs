//! Admission of connections: bounds on all connections and on half-open ones per address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

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
    fn connections_are_bounded_in_all() {
        let gate = Arc::new(Gate::new(1, 2));
        let first = gate.enter([192, 0, 2, 1].into()).expect("first");
        let second = gate.enter([192, 0, 2, 2].into());
        assert_eq!(second.err(), Some(Refused::Full));
        drop(first);
        assert!(gate.enter([192, 0, 2, 2].into()).is_ok());
    }
}
