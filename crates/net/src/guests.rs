//! Threads that drive connections of another kind beside the reactors.

use std::sync::{Arc, PoisonError, RwLock};

use block::Completion;

use crate::ConnectionId;
use crate::slots::REACTORS_MAX;

/// How others reach the connections of a thread that is not a reactor.
pub trait Guest: Send + Sync {
    /// Has a connection's session look at its shared state.
    fn wake(&self, connection: ConnectionId);

    /// Tells a connection's session that a volume is done with one of its commands. Never waits.
    fn complete(&self, completion: Completion);

    /// Ends a connection. May wait, so not for reactor threads.
    fn close(&self, connection: ConnectionId);
}

/// Guests by the reactor number that their connections carry: the numbers above the reactors' own.
pub(crate) struct Guests {
    first: usize,
    places: RwLock<Vec<Option<Arc<dyn Guest>>>>,
}

/// A guest's place, left when this drops.
pub struct Membership {
    guests: Arc<Guests>,
    index: usize,
}

impl Guests {
    /// Guests beside so many reactors.
    pub(crate) fn beside(reactors: usize) -> Self {
        Self {
            first: reactors,
            places: RwLock::default(),
        }
    }

    /// `None` where no number is left.
    pub(crate) fn join(self: &Arc<Self>, guest: Arc<dyn Guest>) -> Option<Membership> {
        let mut places = self.places.write().unwrap_or_else(PoisonError::into_inner);
        let place = match places.iter().position(Option::is_none) {
            Some(free) => free,
            None if self.first + places.len() < REACTORS_MAX => {
                places.push(None);
                places.len() - 1
            }
            None => return None,
        };
        places[place] = Some(guest);
        Some(Membership {
            guests: Arc::clone(self),
            index: self.first + place,
        })
    }

    /// The guest that drives a connection. The lock is not held while it is spoken to.
    pub(crate) fn of(&self, connection: ConnectionId) -> Option<Arc<dyn Guest>> {
        let place = connection.reactor().checked_sub(self.first)?;
        let places = self.places.read().unwrap_or_else(PoisonError::into_inner);
        places.get(place)?.clone()
    }
}

impl Membership {
    /// The number that its connections carry as that of their reactor (see
    /// [`Slots::new`](crate::parts::Slots::new)).
    pub fn index(&self) -> usize {
        self.index
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        let mut places = self
            .guests
            .places
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        places[self.index - self.guests.first] = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parts::Slots;
    use std::sync::Mutex;

    #[derive(Default)]
    struct Note(Mutex<Vec<ConnectionId>>);

    impl Guest for Note {
        fn wake(&self, connection: ConnectionId) {
            self.0.lock().expect("unpoisoned").push(connection);
        }

        fn complete(&self, _completion: Completion) {}

        fn close(&self, _connection: ConnectionId) {}
    }

    #[test]
    fn a_guest_is_found_by_its_connections_until_it_leaves() {
        let guests = Arc::new(Guests::beside(2));
        let note = Arc::new(Note::default());
        let member = guests.join(note.clone()).expect("room");
        let other = guests.join(Arc::new(Note::default())).expect("room");
        assert_eq!((member.index(), other.index()), (2, 3));
        let mut slots = Slots::new(member.index());
        let id = slots.insert_with(|_| Some(())).expect("room");
        guests.of(id).expect("a guest").wake(id);
        assert_eq!(*note.0.lock().expect("unpoisoned"), [id]);
        let own = Slots::new(1).insert_with(|_| Some(())).expect("room");
        assert!(guests.of(own).is_none(), "reactors are not guests");
        drop(member);
        assert!(guests.of(id).is_none());
        let next = guests.join(note).expect("room");
        assert_eq!(next.index(), 2, "numbers are used again");
    }

    #[test]
    fn there_are_as_many_guests_as_numbers() {
        let guests = Arc::new(Guests::beside(REACTORS_MAX - 1));
        let only = guests.join(Arc::new(Note::default()));
        assert!(only.is_some());
        assert!(guests.join(Arc::new(Note::default())).is_none());
    }
}
