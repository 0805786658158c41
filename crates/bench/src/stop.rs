//! The request to end early.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

/// A request to end a run early, with the figures so far. Clones share the request.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Ends the runs whose plans hold a clone of this.
    pub fn request(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether the runs are to end.
    #[inline]
    pub fn is_requested(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
