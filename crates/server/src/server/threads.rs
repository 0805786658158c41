//! The threads that drive connections, and what hosts do through each.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use net::ConnectionId;
use nvme::controller::PortalNumber;

use super::{Core, Server};
use crate::ThreadInfo;
use crate::counters::Totals;

/// The totals of threads by their number. Taken when connections open, and by the control path.
#[derive(Debug, Default)]
pub(super) struct ThreadTotals(Mutex<HashMap<usize, Arc<Totals>>>);

impl ThreadTotals {
    /// The totals of the thread with this number.
    fn of(&self, thread: usize) -> Arc<Totals> {
        let mut totals = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(totals.entry(thread).or_default())
    }

    /// A thread has started, perhaps with the number of one that has ended.
    pub(super) fn start(&self, thread: usize) {
        let mut totals = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        totals.insert(thread, Arc::default());
    }
}

impl Core {
    /// A connection has opened. Returns the totals that it counts in: those of its portal and of
    /// its thread.
    pub(crate) fn connection_opened(
        &self,
        id: ConnectionId,
        port: PortalNumber,
        portal: &Arc<Totals>,
    ) -> Vec<Arc<Totals>> {
        self.registry.connection_opened(id, port);
        vec![Arc::clone(portal), self.threads.of(id.thread())]
    }
}

impl Server {
    /// Every thread that drives connections: first the reactors, then RDMA threads by address.
    pub fn threads(&self) -> Vec<ThreadInfo> {
        let mut threads = self.shared.reactors.usage();
        threads.extend(self.shared.rdma.usage());
        let core = self.core();
        let threads = threads.into_iter().map(|thread| ThreadInfo {
            connections: core.registry.connections_on(thread.index),
            statistics: core.threads.of(thread.index).sum(),
            name: thread.name,
            cpu_time: thread.cpu_time,
        });
        threads.collect()
    }
}
