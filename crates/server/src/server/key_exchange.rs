//! The thread that computes the powers of DH-HMAC-CHAP's key exchange, which would hold up the I/O
//! of a reactor for milliseconds.

use std::io;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use net::{ConnectionId, ReactorHandle};
use nvme::auth::{Exponentiation, Power};

/// How many powers may wait. A connection waits for one at a time; a host whose power finds no room
/// is not authenticated, and may connect again.
const WAITING_MAX: usize = 256;

/// The way to the thread. It ends when this is dropped.
pub(super) struct KeyExchange(SyncSender<Job>);

struct Job {
    power: Exponentiation,
    result: PowerSlot,
    connection: ConnectionId,
}

/// Where a connection finds its power.
#[derive(Clone, Default)]
pub(super) struct PowerSlot(Arc<Mutex<Option<Power>>>);

impl KeyExchange {
    pub(super) fn start(handle: ReactorHandle) -> io::Result<Self> {
        let (sender, receiver) = sync_channel(WAITING_MAX);
        thread::Builder::new()
            .name("key exchange".to_owned())
            .spawn(move || compute_all(&receiver, &handle))?;
        Ok(Self(sender))
    }

    /// Computes `power` into `result` and wakes `connection` then. Returns `false` if too many
    /// wait.
    pub(super) fn compute(
        &self,
        power: Exponentiation,
        result: PowerSlot,
        connection: ConnectionId,
    ) -> bool {
        let job = Job {
            power,
            result,
            connection,
        };
        self.0.try_send(job).is_ok()
    }
}

impl PowerSlot {
    /// The power, once.
    pub(super) fn take(&self) -> Option<Power> {
        let mut slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        slot.take()
    }

    fn put(&self, power: Power) {
        let mut slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *slot = Some(power);
    }

    /// Whether its connection still exists.
    fn is_wanted(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }
}

fn compute_all(jobs: &Receiver<Job>, handle: &ReactorHandle) {
    while let Ok(job) = jobs.recv() {
        if job.result.is_wanted() {
            job.result.put(job.power.compute());
            handle.wake(job.connection);
        }
    }
}
