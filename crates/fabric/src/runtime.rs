//! A thread that drives protocols over the queue pairs of one provider.
//!
//! ```text
//!            Request            accepted             violation, done
//!  peer ───► MessageAcceptor ──► Open ───────────────► Ending ──────────► closed
//!                                 └─ failed, closed, disconnected ──────►
//!
//!  mailbox ─► timers ─► completions, events ─► turns of those that may go on ─► poll or sleep ─┐
//!     ▲                                                                                        │
//!     └────────────────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! It is to queue pairs what `net`'s reactors are to sockets, uses the same parts, and joins the
//! reactors as a [`net::ExternalDriver`]. Bounds on connections, deadlines of logins, and the ways
//! to wake, close and drain are the same.

mod acceptor;
mod admission;
mod connection;
mod group;
mod meter;
mod pool;
mod queue;
mod worker;

use std::collections::HashSet;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use block::Completion;
use memory::Budget;
use net::parts::{Mailbox, ThreadClock};
use net::{
    ConnectionId, ExternalDriver, GracePeriod, ListenerId, Membership, ReactorHandle, ThreadUsage,
};

use crate::FabricError;
pub use acceptor::{
    Admitted, DrivenMessages, MessageAcceptor, QueueShape, Refusal, Request, drive_messages,
};
pub use group::RuntimeGroup;
use meter::Published;
pub use meter::{Meter, Metered};
use worker::{WatchedLane, Worker};

/// How a runtime is set up.
#[derive(Clone, Debug)]
pub struct RuntimeOptions {
    /// The name of its thread.
    pub thread_name: String,
    /// The most memory for data on their way to and from peers, of all connections together, in
    /// bytes.
    pub pool_max_bytes: u64,
}

impl Default for RuntimeOptions {
    fn default() -> Self {
        Self {
            thread_name: "rdma".to_owned(),
            pool_max_bytes: 64 << 20,
        }
    }
}

/// Why a runtime does not start, or does not listen.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    /// The provider cannot be opened.
    #[error(transparent)]
    Provider(#[from] FabricError),
    /// Its thread or its event could not be made.
    #[error("cannot create an RDMA thread: {0}")]
    Thread(#[source] io::Error),
    /// Too many threads drive connections.
    #[error("too many threads serve connections; use fewer addresses, cores or RDMA threads")]
    TooManyThreads,
    /// Its thread does not answer.
    #[error("the RDMA thread has ended or is overloaded; its log lines say why")]
    Silent,
    /// Another portal has the port.
    #[error("another RDMA portal uses port {0} of this address")]
    PortTaken(u16),
}

/// A thread with a provider. Stopped when this drops.
pub struct Runtime {
    common: Arc<Common>,
    thread: Mutex<Option<JoinHandle<()>>>,
    name: String,
    clock: ThreadClock,
    /// Ports that are listened at.
    ports: Mutex<HashSet<u16>>,
    listeners: AtomicU32,
    membership: Membership,
}

/// State that the thread shares with others.
struct Common {
    mailbox: Mailbox<Message>,
    reactors: ReactorHandle,
    budget: Arc<Budget>,
    pool_max_bytes: u64,
    published: Arc<Published>,
}

/// Requests to the thread.
enum Message {
    /// Take connections to this port, and say whether it does.
    Listen(u16, Listener, SyncSender<Result<(), FabricError>>),
    /// Take no more connections to this port, end those that came through it, then reply.
    Unlisten(u16, SyncSender<()>),
    /// End this connection.
    Close(ConnectionId),
    /// Accept no more connections, let commands finish, close. At this instant the remaining
    /// connections are closed.
    Drain(Instant),
}

/// Creates the sessions of connections to a port.
struct Listener {
    id: ListenerId,
    acceptor: Arc<dyn MessageAcceptor>,
}

/// How long a caller waits until a port is opened or closed.
const LISTEN_WAIT: Duration = Duration::from_secs(5);

impl Runtime {
    /// Starts a thread that opens a provider by `open` and drives it, beside `reactors`. Memory is
    /// charged to `budget`.
    pub fn start<P: Metered>(
        open: impl FnOnce() -> Result<P, FabricError> + Send + 'static,
        reactors: &ReactorHandle,
        budget: Arc<Budget>,
        options: RuntimeOptions,
    ) -> Result<Self, RuntimeError> {
        let common = Arc::new(Common {
            mailbox: Mailbox::new().map_err(RuntimeError::Thread)?,
            reactors: reactors.clone(),
            budget,
            pool_max_bytes: options.pool_max_bytes,
            published: Arc::default(),
        });
        let driver = Arc::clone(&common);
        let membership = reactors.join(driver).ok_or(RuntimeError::TooManyThreads)?;
        let index = membership.index();
        let handle = reactors.clone();
        let (ready, is_ready) = sync_channel(1);
        let shared = Arc::clone(&common);
        let name = options.thread_name;
        let start = move || {
            let clock = ThreadClock::of_current().map_err(RuntimeError::Thread)?;
            let lane = handle.open_lane().map_err(RuntimeError::Thread)?;
            let watched = lane.map(|lane| WatchedLane::new(lane, &shared));
            let lane = watched.transpose().map_err(RuntimeError::Thread)?;
            let worker = Worker::new(
                index,
                open()?,
                Arc::clone(&shared),
                handle.join_grace_periods(index),
                lane,
            );
            Ok((worker, clock))
        };
        let thread = thread::Builder::new()
            .name(name.clone())
            .spawn(move || match start() {
                Ok((mut worker, clock)) => {
                    worker.publish_now();
                    // The starter waits for this, so it is there.
                    let _ = ready.send(Ok(clock));
                    worker.run();
                }
                Err(error) => drop(ready.send(Err(error))),
            })
            .map_err(RuntimeError::Thread)?;
        let gone = |_| Err(RuntimeError::Thread(io::ErrorKind::BrokenPipe.into()));
        let clock = is_ready.recv().unwrap_or_else(gone)?;
        Ok(Self {
            common,
            thread: Mutex::new(Some(thread)),
            name,
            clock,
            ports: Mutex::default(),
            listeners: AtomicU32::new(0),
            membership,
        })
    }

    /// Accepts connections to `port` of the TCP port space from now on.
    pub fn listen(
        &self,
        port: u16,
        acceptor: Arc<dyn MessageAcceptor>,
    ) -> Result<ListenerId, RuntimeError> {
        let mut ports = lock(&self.ports);
        if ports.contains(&port) {
            return Err(RuntimeError::PortTaken(port));
        }
        let id = ListenerId(self.listeners.fetch_add(1, Ordering::Relaxed));
        let (done, is_done) = sync_channel(1);
        let listener = Listener { id, acceptor };
        self.common
            .mailbox
            .post(Message::Listen(port, listener, done));
        is_done
            .recv_timeout(LISTEN_WAIT)
            .map_err(|_| RuntimeError::Silent)??;
        ports.insert(port);
        Ok(id)
    }

    /// Accepts no more connections to `port`, and ends those that came through it. All have ended
    /// when this returns, unless the thread was too busy for five seconds. Not for reactor threads.
    pub fn unlisten(&self, port: u16) {
        let (done, is_done) = sync_channel(1);
        self.common.mailbox.post(Message::Unlisten(port, done));
        if is_done.recv_timeout(LISTEN_WAIT) == Err(RecvTimeoutError::Timeout) {
            tracing::warn!(port, "closing an RDMA portal takes long");
        }
        lock(&self.ports).remove(&port);
    }

    /// Whether nothing is listened for.
    pub fn is_unused(&self) -> bool {
        lock(&self.ports).is_empty()
    }

    /// Whether its thread has ended: by [`stop`](Self::stop), or since its provider failed.
    pub fn has_ended(&self) -> bool {
        let thread = lock(&self.thread);
        thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// The thread with the CPU time that it has used; `None` if it has ended.
    fn usage(&self) -> Option<ThreadUsage> {
        Some(ThreadUsage {
            index: self.membership.index(),
            name: self.name.clone(),
            cpu_time: self.clock.cpu_time()?,
        })
    }

    /// The counts that its thread has published.
    fn published(&self) -> Arc<Published> {
        Arc::clone(&self.common.published)
    }

    /// Stops the thread: it accepts no more connections, lets commands in progress finish, and
    /// closes. After `timeout`, the remaining connections are closed. Returns when the thread has
    /// ended. Not for reactor threads.
    pub fn stop(&self, timeout: Duration) {
        let Some(thread) = lock(&self.thread).take() else {
            return;
        };
        let until = Instant::now() + timeout;
        self.common.mailbox.post(Message::Drain(until));
        if thread.join().is_err() {
            tracing::error!("a thread for RDMA had panicked");
        }
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        self.stop(Duration::ZERO);
    }
}

impl ExternalDriver for Common {
    fn wake(&self, connection: ConnectionId) {
        self.mailbox.post_wake(connection);
    }

    fn complete(&self, completions: &[Completion]) {
        self.mailbox.post_completions(completions);
    }

    fn close(&self, connection: ConnectionId) {
        self.mailbox.post(Message::Close(connection));
    }

    fn post_checkpoint(&self, period: GracePeriod) {
        self.mailbox.post_checkpoint(period);
    }
}

/// No code that runs under these locks leaves its map half changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
