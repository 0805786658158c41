//! Threads that drive connections of another kind beside the reactors.

use std::sync::{Arc, PoisonError, RwLock};

use block::Completion;

use crate::slots::REACTORS_MAX;
use crate::{ConnectionId, GracePeriod};

/// Reaches the connections of a thread that is not a reactor.
pub trait ExternalDriver: Send + Sync {
    /// Wakes a connection's session: shared state has changed.
    fn wake(&self, connection: ConnectionId);

    /// Tells sessions of this thread's connections that a volume has completed commands of theirs.
    /// Never waits.
    fn complete(&self, completions: &[Completion]);

    /// Ends a connection. May wait, so not for reactor threads.
    fn close(&self, connection: ConnectionId);

    /// Asks the thread to pass a grace period, if it is a
    /// [`GraceMember`](crate::parts::GraceMember). Never waits.
    fn post_checkpoint(&self, period: GracePeriod);
}

/// External drivers by the reactor number that their connections carry: the numbers above the
/// reactors' own.
pub(crate) struct ExternalDrivers {
    first: usize,
    places: RwLock<Vec<Option<Arc<dyn ExternalDriver>>>>,
}

/// An external driver's registration. Dropping it removes the driver.
pub struct Membership {
    drivers: Arc<ExternalDrivers>,
    index: usize,
}

impl ExternalDrivers {
    /// No drivers yet, beside `reactors` reactors.
    pub(crate) fn beside(reactors: usize) -> Self {
        Self {
            first: reactors,
            places: RwLock::default(),
        }
    }

    /// Registers a driver. Returns `None` if no reactor number is left.
    pub(crate) fn join(self: &Arc<Self>, driver: Arc<dyn ExternalDriver>) -> Option<Membership> {
        let mut places = self.places.write().unwrap_or_else(PoisonError::into_inner);
        let place = match places.iter().position(Option::is_none) {
            Some(free) => free,
            None if self.first + places.len() < REACTORS_MAX => {
                places.push(None);
                places.len() - 1
            }
            None => return None,
        };
        places[place] = Some(driver);
        Some(Membership {
            drivers: Arc::clone(self),
            index: self.first + place,
        })
    }

    /// The driver of a connection. The caller calls it without the lock.
    pub(crate) fn of(&self, connection: ConnectionId) -> Option<Arc<dyn ExternalDriver>> {
        let place = connection.thread().checked_sub(self.first)?;
        let places = self.places.read().unwrap_or_else(PoisonError::into_inner);
        places.get(place)?.clone()
    }

    /// All drivers. The caller calls them without the lock.
    pub(crate) fn all(&self) -> Vec<Arc<dyn ExternalDriver>> {
        let places = self.places.read().unwrap_or_else(PoisonError::into_inner);
        places.iter().flatten().cloned().collect()
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
            .drivers
            .places
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        places[self.index - self.drivers.first] = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parts::Slots;
    use std::sync::Mutex;

    #[derive(Default)]
    struct Note(Mutex<Vec<ConnectionId>>);

    impl ExternalDriver for Note {
        fn wake(&self, connection: ConnectionId) {
            self.0.lock().expect("unpoisoned").push(connection);
        }

        fn complete(&self, _completions: &[Completion]) {}

        fn close(&self, _connection: ConnectionId) {}

        fn post_checkpoint(&self, _period: GracePeriod) {}
    }

    #[test]
    fn a_driver_is_found_by_its_connections_until_it_is_removed() {
        let drivers = Arc::new(ExternalDrivers::beside(2));
        let note = Arc::new(Note::default());
        let member = drivers.join(note.clone()).expect("room");
        let other = drivers.join(Arc::new(Note::default())).expect("room");
        assert_eq!((member.index(), other.index()), (2, 3));
        let mut slots = Slots::new(member.index());
        let id = slots.insert_with(|_| Some(())).expect("room");
        drivers.of(id).expect("a driver").wake(id);
        assert_eq!(*note.0.lock().expect("unpoisoned"), [id]);
        let own = Slots::new(1).insert_with(|_| Some(())).expect("room");
        assert!(drivers.of(own).is_none(), "reactors are not drivers");
        drop(member);
        assert!(drivers.of(id).is_none());
        let next = drivers.join(note).expect("room");
        assert_eq!(next.index(), 2, "numbers are used again");
    }

    #[test]
    fn there_are_as_many_drivers_as_numbers() {
        let drivers = Arc::new(ExternalDrivers::beside(REACTORS_MAX - 1));
        let only = drivers.join(Arc::new(Note::default()));
        assert!(only.is_some());
        assert!(drivers.join(Arc::new(Note::default())).is_none());
    }
}
