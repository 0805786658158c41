//! Asymmetric Namespace Access: how well each portal leads to the namespaces. One group holds them
//! all.

use std::collections::BTreeMap;

use super::events::Event;
use super::{PortId, QueueId, Subsystem};
use crate::wire::log::AnaState;

/// The states that are not [`AnaState::Optimized`].
#[derive(Debug, Default)]
pub(super) struct Ana {
    states: BTreeMap<PortId, AnaState>,
    change_count: u64,
}

impl Ana {
    pub(super) fn state(&self, port: PortId) -> AnaState {
        self.states.get(&port).copied().unwrap_or_default()
    }

    pub(super) fn change_count(&self) -> u64 {
        self.change_count
    }

    fn set(&mut self, port: PortId, state: AnaState) -> bool {
        if self.state(port) == state {
            return false;
        }
        if state == AnaState::Optimized {
            self.states.remove(&port);
        } else {
            self.states.insert(port, state);
        }
        self.change_count += 1;
        true
    }
}

impl Subsystem {
    /// Says how well the portal `port` leads to the namespaces, and tells the hosts that came
    /// through it.
    pub fn set_ana_state(&mut self, port: PortId, state: AnaState) {
        if !self.ana.set(port, state) {
            return;
        }
        self.generation.advance();
        for controller in self.controllers.values_mut() {
            if controller.origin.port == port && controller.events.raise(Event::AnaChange) {
                self.wakes.extend(controller.queues.get(&QueueId::ADMIN));
            }
        }
    }
}
