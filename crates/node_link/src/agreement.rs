//! What the nodes agree on: the configuration of each replicated volume.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use replica::{Config, StoreOp};

/// A replicated volume: unique in the cluster, and never used for another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VolumeId(pub u64);

/// Takes the configuration that the store has after an operation.
pub type Answer = Box<dyn FnOnce(Config) + Send>;

/// Keeps the configuration of each replicated volume, such that all nodes see the same sequence of
/// them.
pub trait Agreement: Send + Sync {
    /// Begins `op` on the configuration of `volume`. Never waits.
    ///
    /// [`StoreOp::Swap`] replaces the configuration if its epoch is the one before that of the new
    /// one. [`StoreOp::Read`] is linearizable. Calls `answer` at most once, from any thread, also
    /// from inside of this call, with the configuration that the store has *after* the operation.
    /// Drops `answer` if the store failed or knows no configuration: the volume asks again after
    /// [`replica::Settings::store_timeout`]. An operation that was not answered may still be
    /// executed later.
    fn request(&self, volume: VolumeId, op: StoreOp, answer: Answer);
}

/// An agreement of nodes in one process.
#[derive(Debug, Default)]
pub struct MemoryAgreement {
    configs: Mutex<BTreeMap<VolumeId, Config>>,
}

impl MemoryAgreement {
    /// Sets the first configuration of a volume.
    pub fn insert(&self, volume: VolumeId, first: Config) {
        let mut configs = self.configs.lock().unwrap_or_else(PoisonError::into_inner);
        configs.insert(volume, first);
    }

    /// The present configuration.
    pub fn config(&self, volume: VolumeId) -> Option<Config> {
        let configs = self.configs.lock().unwrap_or_else(PoisonError::into_inner);
        configs.get(&volume).cloned()
    }
}

impl Agreement for MemoryAgreement {
    fn request(&self, volume: VolumeId, op: StoreOp, answer: Answer) {
        let current = {
            let mut configs = self.configs.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(config) = configs.get_mut(&volume) else {
                return;
            };
            if let StoreOp::Swap(next) = op
                && next.epoch == config.epoch.next()
            {
                *config = next;
            }
            config.clone()
        };
        answer(current);
    }
}
