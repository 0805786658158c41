//! A reactor's connections and listeners by number.

use std::fmt;

/// A connection's or listening socket's number: which reactor, which place there, and a serial
/// number, so that a number is not soon used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);

impl ConnectionId {
    const REACTOR_BITS: u32 = 8;
    const SLOT_BITS: u32 = 24;

    fn new(serial: u32, slot: usize, reactor: usize) -> Self {
        Self(
            u64::from(serial) << (Self::REACTOR_BITS + Self::SLOT_BITS)
                | (slot as u64) << Self::REACTOR_BITS
                | reactor as u64,
        )
    }

    /// The number of the thread that drives it: a reactor, or an external driver.
    pub fn thread(self) -> usize {
        (self.0 & ((1 << Self::REACTOR_BITS) - 1)) as usize
    }

    fn slot(self) -> usize {
        ((self.0 >> Self::REACTOR_BITS) & ((1 << Self::SLOT_BITS) - 1)) as usize
    }
}

impl fmt::Display for ConnectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.0)
    }
}

impl fmt::Debug for ConnectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ConnectionId({self})")
    }
}

/// Values by number.
pub struct Slots<T> {
    reactor: usize,
    serial: u32,
    places: Vec<Option<(ConnectionId, T)>>,
    free: Vec<usize>,
}

/// A serial number of 1 or more makes a number that belongs to a session.
const _: () = assert!(
    block::Ticket::CONNECTIONS_MIN == 1 << (ConnectionId::REACTOR_BITS + ConnectionId::SLOT_BITS)
);

/// The most reactors that connection numbers can distinguish.
pub(crate) const REACTORS_MAX: usize = 1 << ConnectionId::REACTOR_BITS;
/// The most slots that connection numbers can distinguish.
const SLOTS_MAX: usize = 1 << ConnectionId::SLOT_BITS;

impl<T> Slots<T> {
    /// Slots of the reactor of this number.
    pub fn new(reactor: usize) -> Self {
        assert!(reactor < REACTORS_MAX);
        Self {
            reactor,
            serial: 0,
            places: Vec::new(),
            free: Vec::new(),
        }
    }

    /// Puts in what `make` makes of its number; `None` if it makes nothing or there is no room.
    pub fn insert_with(
        &mut self,
        make: impl FnOnce(ConnectionId) -> Option<T>,
    ) -> Option<ConnectionId> {
        let slot = match self.free.last() {
            Some(&slot) => slot,
            None if self.places.len() < SLOTS_MAX => {
                self.free.push(self.places.len());
                self.places.push(None);
                self.places.len() - 1
            }
            None => return None,
        };
        // Serial 0 is never given out, so that no number is below those of sessions.
        self.serial = self.serial.checked_add(1).unwrap_or(1);
        let id = ConnectionId::new(self.serial, slot, self.reactor);
        let value = make(id)?;
        self.free.pop();
        self.places[slot] = Some((id, value));
        Some(id)
    }

    /// The value of this number.
    pub fn get_mut(&mut self, id: ConnectionId) -> Option<&mut T> {
        match self.places.get_mut(id.slot()) {
            Some(Some((held, value))) if *held == id => Some(value),
            _ => None,
        }
    }

    /// Takes the value of this number out.
    pub fn remove(&mut self, id: ConnectionId) -> Option<T> {
        self.get_mut(id)?;
        self.free.push(id.slot());
        self.places[id.slot()].take().map(|(_, value)| value)
    }

    /// All numbers that have a value.
    pub fn ids(&self) -> Vec<ConnectionId> {
        self.places.iter().flatten().map(|&(id, _)| id).collect()
    }

    /// Whether no number has a value.
    pub fn is_empty(&self) -> bool {
        self.free.len() == self.places.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_not_used_again_for_the_next_in_its_place() {
        let mut slots = Slots::new(3);
        let first = slots.insert_with(|_| Some("first")).expect("room");
        assert_eq!(first.thread(), 3);
        assert_eq!(slots.remove(first), Some("first"));
        assert!(slots.is_empty());
        let second = slots.insert_with(|_| Some("second")).expect("room");
        assert_eq!(first.slot(), second.slot());
        assert_eq!(slots.get_mut(first), None);
        assert_eq!(slots.remove(first), None);
        assert_eq!(slots.get_mut(second), Some(&mut "second"));
        assert_eq!(slots.insert_with(|_| None), None);
        assert_eq!(slots.ids(), [second]);
    }
}
