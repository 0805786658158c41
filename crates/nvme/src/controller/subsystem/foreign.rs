//! Foreign connections: those of another protocol that use the namespaces without a controller.
//! Their hosts cannot register, so reservations exclude them like every host that has not
//! registered, and commands that take permits from them wait until they have noticed, as for queues
//! of controllers.

use block::Access;

use crate::controller::{Gate, Permit, Subsystem, WakeToken};
use crate::wire::Nsid;

impl Subsystem {
    /// A connection of another protocol uses the namespaces from now on. It is woken when they
    /// change, and then calls [`Self::acknowledge_foreign`].
    pub fn add_foreign(&mut self, connection: WakeToken) {
        self.foreign.insert(connection);
    }

    /// A foreign connection has ended.
    pub fn remove_foreign(&mut self, connection: WakeToken) {
        self.foreign.remove(&connection);
        self.acknowledge_foreign(connection);
        self.wakes.remove(&connection);
    }

    /// A foreign connection is between two turns, and looks its namespaces up again before it uses
    /// them.
    pub fn acknowledge_foreign(&mut self, connection: WakeToken) {
        self.wakes.extend(self.fences.acknowledge(connection));
    }

    /// What a foreign connection whose host has this access may do with namespace `nsid`.
    pub fn foreign_permit(&self, access: Access, nsid: Nsid) -> Permit {
        if !self.namespaces.contains_key(&nsid) {
            return Permit::closed(Gate::AccessDenied);
        }
        Permit::of_access(access).and(self.unregistered_permit(nsid))
    }
}
