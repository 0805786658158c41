//! Asymmetric Namespace Access: how well each portal leads to the namespaces. One group holds them
//! all.

use std::collections::BTreeMap;

use super::events::Event;
use crate::controller::{PortalNumber, QueueId, Subsystem};
use crate::wire::log::AnaState;

/// The ANA group that every namespace is in.
pub(super) const ANA_GROUP: u32 = 1;

/// The states that are not [`AnaState::Optimized`].
#[derive(Debug, Default)]
pub(in crate::controller) struct Ana {
    states: BTreeMap<PortalNumber, AnaState>,
    change_count: u64,
}

impl Ana {
    pub(in crate::controller) fn state(&self, portal: PortalNumber) -> AnaState {
        self.states.get(&portal).copied().unwrap_or_default()
    }

    pub(in crate::controller) fn change_count(&self) -> u64 {
        self.change_count
    }

    fn set(&mut self, portal: PortalNumber, state: AnaState) -> bool {
        if self.state(portal) == state {
            return false;
        }
        if state == AnaState::Optimized {
            self.states.remove(&portal);
        } else {
            self.states.insert(portal, state);
        }
        self.change_count += 1;
        true
    }
}

impl Subsystem {
    /// Sets the ANA state of `portal`, and notifies the hosts that are connected through
    /// it.
    pub fn set_ana_state(&mut self, portal: PortalNumber, state: AnaState) {
        if !self.ana.set(portal, state) {
            return;
        }
        self.generation.advance();
        for controller in self.controllers.values_mut() {
            if controller.origin.portal == portal && controller.events.raise(Event::AnaChange) {
                self.wakes.extend(controller.queues.get(&QueueId::ADMIN));
            }
        }
    }
}
