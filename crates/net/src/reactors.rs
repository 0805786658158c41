//! All reactors together, as the rest of the program sees them.

mod reactor;

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use block::{Completion, Completions, Lane, LaneOpener};
use memory::Budget;
use rustix::thread::CpuSet;

use crate::connection::UNDRAINED_MAX_BYTES;
use crate::driven::{Acceptor, Refused};
use crate::external_drivers::{ExternalDriver, ExternalDrivers, Membership};
use crate::gate::{Gate, GateBounds, Handshake};
use crate::grace::{GracePeriod, GracePeriods};
use crate::listener::{self, Listener};
use crate::mailbox::Mailbox;
use crate::slots::REACTORS_MAX;
use crate::thread_clock::ThreadClock;
use crate::{ConnectionId, ListenerId, ThreadUsage};

use reactor::{Message, Reactor};

/// How reactors are set up.
#[derive(Clone, Debug)]
pub struct ReactorOptions {
    /// Which threads there are.
    pub threads: Threads,
    /// Connections at once.
    pub connections_max: usize,
    /// Connections at once of one network ([`block::network_of`]) that have not logged in.
    pub half_open_per_network_max: usize,
    /// What connections are charged to. Those that have not logged in leave most of it to others.
    pub budget: Arc<Budget>,
    /// How long a login may take.
    pub handshake_timeout: Duration,
    /// Where volumes drive their devices in the reactors' threads, if any do.
    pub lanes: Option<Arc<dyn LaneOpener>>,
}

/// A thread per core.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Threads {
    /// So many, on whichever cores the system chooses.
    Count(usize),
    /// One on each of these cores.
    Pinned(Vec<usize>),
}

/// Why reactors did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Zero, or more than the maximum.
    #[error("{count} reactor threads are out of range; use 1 to {REACTORS_MAX}")]
    ThreadCount {
        /// What was asked for.
        count: usize,
    },
    /// A core that does not exist or that this process may not use.
    #[error("cannot use core {core}: {source}; check `nproc` and `taskset -p $$`")]
    Core {
        /// Its number.
        core: usize,
        /// What the system said.
        source: io::Error,
    },
    /// A thread, or its epoll set or eventfd, could not be made.
    #[error("cannot create a reactor thread: {0}")]
    Thread(#[from] io::Error),
}

/// The reactors. Stopped when this drops.
pub struct Reactors {
    common: Arc<Common>,
    threads: Mutex<Vec<ReactorThread>>,
    listeners: AtomicU32,
}

struct ReactorThread {
    handle: JoinHandle<()>,
    clock: ThreadClock,
}

/// What reactors share with each other.
pub(crate) struct Common {
    pub(crate) mailboxes: Vec<Mailbox<Message>>,
    /// Connections of each reactor.
    pub(crate) loads: Vec<AtomicUsize>,
    pub(crate) gate: Arc<Gate>,
    pub(crate) drivers: Arc<ExternalDrivers>,
    grace: GracePeriods,
    pub(crate) options: ReactorOptions,
}

/// How long to wait for a listener to be closed.
const UNLISTEN_WAIT: Duration = Duration::from_secs(5);

impl Default for ReactorOptions {
    fn default() -> Self {
        Self {
            threads: Threads::Count(1),
            connections_max: 8192,
            half_open_per_network_max: 512,
            budget: Arc::new(Budget::new(u64::MAX)),
            handshake_timeout: Duration::from_secs(10),
            lanes: None,
        }
    }
}

impl Threads {
    fn count(&self) -> usize {
        match self {
            Self::Count(count) => *count,
            Self::Pinned(cores) => cores.len(),
        }
    }
}

impl Reactors {
    /// What the output of a connection whose peer does not read may take, in bytes.
    pub const UNDRAINED_MAX_BYTES: usize = UNDRAINED_MAX_BYTES;

    /// Starts the threads.
    pub fn start(options: ReactorOptions) -> Result<Self, StartError> {
        let count = options.threads.count();
        if count == 0 || count > REACTORS_MAX {
            return Err(StartError::ThreadCount { count });
        }
        let mailboxes = (0..count)
            .map(|_| Mailbox::new())
            .collect::<Result<_, _>>()?;
        let gate = Gate::new(GateBounds {
            connections_max: options.connections_max,
            half_open_per_network_max: options.half_open_per_network_max,
            budget: Arc::clone(&options.budget),
        });
        let common = Arc::new(Common {
            mailboxes,
            loads: (0..count).map(|_| AtomicUsize::new(0)).collect(),
            gate: Arc::new(gate),
            drivers: Arc::new(ExternalDrivers::beside(count)),
            grace: GracePeriods::default(),
            options,
        });
        let reactors = Self {
            common,
            threads: Mutex::new(Vec::new()),
            listeners: AtomicU32::new(0),
        };
        for index in 0..count {
            let thread = reactors.spawn(index)?;
            reactors.lock_threads().push(thread);
        }
        Ok(reactors)
    }

    /// Listens on `address`. Returns the listener's number and the address that it got.
    pub fn listen(
        &self,
        address: SocketAddr,
        acceptor: Arc<dyn Acceptor>,
    ) -> io::Result<(ListenerId, SocketAddr)> {
        let (socket, local) = listener::open(address)?;
        let id = ListenerId(self.listeners.fetch_add(1, Ordering::Relaxed));
        self.common.mailboxes[self.reactor_of(id)].post(Message::Listen(Listener {
            id,
            socket,
            acceptor,
            is_queued: false,
        }));
        Ok((id, local))
    }

    /// Closes a listener and the connections that came through it. When this returns its address is
    /// free, and no connection that it accepted is left, unless reactors are so busy that this took
    /// five seconds. Not for reactor threads.
    pub fn unlisten(&self, listener: ListenerId) {
        let mailboxes = &self.common.mailboxes;
        let until = Instant::now() + UNLISTEN_WAIT;
        let close_at = |at: usize| {
            let (done, is_done) = std::sync::mpsc::sync_channel(1);
            mailboxes[at].post(Message::Unlisten(listener, done));
            let _ = is_done.recv_timeout(until.saturating_duration_since(Instant::now()));
        };
        // The listener goes first: what it has passed on to other reactors by then is in their
        // mailboxes before this.
        let own = self.reactor_of(listener);
        close_at(own);
        (0..mailboxes.len())
            .filter(|&at| at != own)
            .for_each(close_at);
    }

    /// The reactor that a listener lives on.
    fn reactor_of(&self, listener: ListenerId) -> usize {
        listener.0 as usize % self.common.mailboxes.len()
    }

    /// How others reach connections.
    pub fn handle(&self) -> ReactorHandle {
        ReactorHandle {
            common: Arc::clone(&self.common),
        }
    }

    /// The threads with the CPU time that they have used.
    pub fn usage(&self) -> Vec<ThreadUsage> {
        let threads = self.lock_threads();
        let usage = threads.iter().enumerate().filter_map(|(index, thread)| {
            Some(ThreadUsage {
                index,
                name: thread.handle.thread().name()?.to_owned(),
                cpu_time: thread.clock.cpu_time()?,
            })
        });
        usage.collect()
    }

    /// Stops: accepts no more, lets commands in progress finish, closes; connections that are left
    /// after `patience` are closed. Returns when the threads have ended. Reactor threads must not
    /// call it.
    pub fn stop(&self, patience: Duration) {
        let until = Instant::now() + patience;
        let threads = std::mem::take(&mut *self.lock_threads());
        if threads.is_empty() {
            return;
        }
        for mailbox in &self.common.mailboxes {
            mailbox.post(Message::Drain(until));
        }
        for thread in threads {
            if thread.handle.join().is_err() {
                tracing::error!("a reactor had panicked");
            }
        }
    }

    fn spawn(&self, index: usize) -> Result<ReactorThread, StartError> {
        let common = Arc::clone(&self.common);
        let core = match &common.options.threads {
            Threads::Count(_) => None,
            Threads::Pinned(cores) => Some(cores[index]),
        };
        let (ready, is_ready) = std::sync::mpsc::sync_channel(1);
        let handle = thread::Builder::new()
            .name(format!("reactor-{index}"))
            .spawn(move || {
                let made = pin(core).and_then(|()| {
                    let clock = ThreadClock::of_current()?;
                    Ok((Reactor::new(index, common)?, clock))
                });
                match made {
                    Ok((mut reactor, clock)) => {
                        // The starter waits for this, so it is there.
                        let _ = ready.send(Ok(clock));
                        reactor.run();
                    }
                    Err(error) => drop(ready.send(Err(error))),
                }
            })?;
        let clock = is_ready
            .recv()
            .unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::BrokenPipe).into()))?;
        Ok(ReactorThread { handle, clock })
    }

    fn lock_threads(&self) -> std::sync::MutexGuard<'_, Vec<ReactorThread>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Reactors {
    fn drop(&mut self) {
        self.stop(Duration::ZERO);
    }
}

/// Reaches connections from any thread, reactor threads among them.
#[derive(Clone)]
pub struct ReactorHandle {
    common: Arc<Common>,
}

impl ReactorHandle {
    /// Makes a connection's session check its shared state ([`session::Session::handle_wake`]).
    pub fn wake(&self, connection: ConnectionId) {
        if let Some(mailbox) = self.common.mailboxes.get(connection.thread()) {
            mailbox.post_wake(connection);
        } else if let Some(driver) = self.common.drivers.of(connection) {
            driver.wake(connection);
        }
    }

    /// Ends a connection. May wait if the reactor's mailbox is full, so reactor threads must not
    /// call it.
    pub fn close(&self, connection: ConnectionId) {
        if let Some(mailbox) = self.common.mailboxes.get(connection.thread()) {
            mailbox.post(Message::Close(connection));
        } else if let Some(driver) = self.common.drivers.of(connection) {
            driver.close(connection);
        }
    }

    /// Lets connections that another thread drives be woken and closed through here, too; `None` if
    /// there are too many threads.
    pub fn join(&self, driver: Arc<dyn ExternalDriver>) -> Option<Membership> {
        self.common.drivers.join(driver)
    }

    /// Begins a grace period, which is over when every thread that drives connections has been
    /// between two turns since: no thread works any more by what it read before this call.
    pub fn start_grace_period(&self) -> GracePeriod {
        let period = self.common.grace.start();
        for mailbox in &self.common.mailboxes {
            mailbox.post_checkpoint(period);
        }
        for driver in self.common.drivers.all() {
            driver.post_checkpoint(period);
        }
        period
    }

    /// Whether a grace period is over. If not, `waiter` is woken when it is, or earlier, and asks
    /// again.
    pub fn is_over(&self, period: GracePeriod, waiter: ConnectionId) -> bool {
        self.common.grace.is_over(period, waiter)
    }

    /// A connection waits for no grace period any more.
    pub fn stop_waiting(&self, waiter: ConnectionId) {
        self.common.grace.forget(waiter);
    }

    /// Waits until a grace period is over. Returns false if that takes longer than `timeout`. Not
    /// for reactor threads.
    pub fn wait_until_over(&self, period: GracePeriod, timeout: Duration) -> bool {
        self.common.grace.wait(period, timeout)
    }

    /// A thread begins to drive connections that carry this reactor number ([`Membership::index`]).
    /// From now on, grace periods last until it has passed them.
    pub fn join_grace_periods(&self, thread: usize) -> GraceMember {
        self.common.grace.join(thread);
        GraceMember {
            handle: self.clone(),
            thread,
        }
    }

    /// The lane of the calling thread, which begins to drive connections.
    ///
    /// # Errors
    /// If the system has no descriptor left.
    pub fn open_lane(&self) -> io::Result<Option<Box<dyn Lane>>> {
        let lanes = self.common.options.lanes.clone();
        lanes.map(LaneOpener::open).transpose()
    }

    /// What bounds connections, those of drivers among them.
    pub fn gate(&self) -> Arc<Gate> {
        Arc::clone(&self.common.gate)
    }

    /// A half-open connection holds `len_bytes`, which have been charged for it. Others are evicted
    /// if these hold too much together.
    ///
    /// # Errors
    /// [`Refused::Memory`] if those that were evicted have yet to free theirs.
    pub fn hold(
        &self,
        handshake: &mut Handshake,
        connection: ConnectionId,
        len_bytes: u64,
    ) -> Result<(), Refused> {
        for evicted in handshake.hold(connection, len_bytes)? {
            self.wake(evicted);
        }
        Ok(())
    }

    /// How long a login may take.
    pub fn handshake_timeout(&self) -> Duration {
        self.common.options.handshake_timeout
    }

    /// How many connections there are.
    pub fn connections(&self) -> usize {
        self.common.gate.connections()
    }

    /// How many reactor threads there are.
    pub fn threads(&self) -> usize {
        self.common.mailboxes.len()
    }
}

/// A thread that drives connections, as grace periods know it, until this drops.
pub struct GraceMember {
    handle: ReactorHandle,
    thread: usize,
}

impl GraceMember {
    /// The thread is between two turns, and has handled the mail with which this checkpoint came
    /// ([`Mail::checkpoint`](crate::parts::Mail::checkpoint)).
    pub fn pass(&self, period: GracePeriod) {
        self.wake(self.grace().pass(self.thread, period));
    }

    fn grace(&self) -> &GracePeriods {
        &self.handle.common.grace
    }

    fn wake(&self, waiters: Vec<ConnectionId>) {
        for waiter in waiters {
            self.handle.wake(waiter);
        }
    }
}

impl Drop for GraceMember {
    fn drop(&mut self) {
        self.wake(self.grace().leave(self.thread));
    }
}

/// Volumes report completions here, whichever thread drives the connection. Completions of closed
/// connections are dropped.
impl Completions for ReactorHandle {
    fn done(&self, completion: Completion) {
        self.done_all(&[completion]);
    }

    fn done_all(&self, completions: &[Completion]) {
        let connection = |of: &Completion| ConnectionId(of.ticket.connection);
        let same_thread =
            |a: &Completion, b: &Completion| connection(a).thread() == connection(b).thread();
        for group in completions.chunk_by(same_thread) {
            let connection = connection(&group[0]);
            if let Some(mailbox) = self.common.mailboxes.get(connection.thread()) {
                mailbox.post_completions(group);
            } else if let Some(driver) = self.common.drivers.of(connection) {
                driver.complete(group);
            }
        }
    }
}

fn pin(core: Option<usize>) -> Result<(), StartError> {
    let Some(core) = core else {
        return Ok(());
    };
    let failed = |source| StartError::Core { core, source };
    if core >= CpuSet::MAX_CPU {
        return Err(failed(io::ErrorKind::InvalidInput.into()));
    }
    let mut cpus = CpuSet::new();
    cpus.set(core);
    rustix::thread::sched_setaffinity(None, &cpus).map_err(|error| failed(error.into()))
}
