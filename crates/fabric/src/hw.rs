//! Adapters: InfiniBand and RoCE, through rdma-core's libibverbs and librdmacm.
//!
//! The libraries are opened at run time, so the same binary runs where they are absent. Queue pairs, memory and completions go
//! through a context of this provider alone; connections go through librdmacm, which knows queue pairs by their numbers only.
//!
//! Read first: `ibv_post_send(3)`, `rdma_cm(7)`, and InfiniBand Architecture volume 1, chapters 10 to 12.
//!
//! # Why the unsafe code here is sound
//!
//! `library` finds functions by name and version, and gives them the types of the headers; `sys` has the structures, whose layouts
//! a test compares with those headers. `verbs`, `queue_pair` and `cma` own what the libraries make: each thing is made once,
//! keeps what it was made of, and is destroyed once, so a pointer to it is valid as long as its owner is. Nothing is told to the
//! libraries by pointer that must outlive a call.
//!
//! Adapters write memory while Rust code runs. They reach it by registration only (`Mr`), which keeps the mapping (`memory`)
//! until the adapter is known to be done; where it refuses to be, the mapping stays for ever. Whatever a peer names, a wrong key
//! or address ends at the adapter's own check. Bytes that are being written are numbers without invariants, and those who look at
//! them are told to copy them first ([`Provider::bytes`]).

mod cma;
mod completions;
mod connections;
mod error;
mod ledger;
mod library;
mod memory;
mod pairing;
mod queue_pair;
mod queue_pairs;
mod queues;
mod regions;
mod removal;
mod sys;
mod verbs;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use session::RegionId;

use crate::devices::{LinkLayer, devices};
use crate::provider::{ConnectTo, FabricError, PeerQp, Provider, Wait};
use crate::verbs::{
    CommId, Completion, Event, PostError, ProtectionDomain, QpConfig, Qpn, RecvRequest, Region,
    RejReason, Remote, Rkey, SendRequest,
};
use cma::{CmId, EventChannel, Key};
use connections::Connections;
pub use error::HwError;
use error::{checked, made};
use library::Library;
use memory::Memory;
use queue_pairs::{QueuePairs, Serial};
use queues::Queues;
use regions::Regions;
use verbs::{Context, Pd};

/// The provider of an adapter.
///
/// What is destroyed first stands first: keys before queue pairs, both before the memory.
pub struct Hw {
    regions: Regions,
    pairs: QueuePairs,
    memory: Memory,
    domains: Vec<(ProtectionDomain, Arc<Pd>)>,
    queues: Queues,
    connections: Connections,
    listeners: HashMap<u16, CmId>,
    /// Bound to the address: it holds the device, and tells of its end.
    anchor: CmId,
    channel: Arc<EventChannel>,
    context: Arc<Context>,
    address: IpAddr,
    completions: VecDeque<(Serial, Completion)>,
    events: VecDeque<Event>,
    /// Rounds since events of connections and of the device were looked for.
    rounds: u32,
    /// When queue pairs are looked at next whose adapter may have failed them silently.
    next_watch: Instant,
    /// How many were looked at.
    watched: usize,
    /// When the address, which nobody had the last time, is looked for again.
    next_search: Option<Instant>,
    is_gone: bool,
}

impl Hw {
    /// Rounds in which only completions are looked for, before events are: each costs a system call.
    const ROUNDS_PER_EVENTS: u32 = 32;
    /// Between two looks at queue pairs.
    const WATCH_INTERVAL: Duration = Duration::from_millis(20);
    /// Requests for connections that wait in the kernel.
    const BACKLOG: i32 = 256;
    /// The longest sleep, since connections that are late, and an address that nobody had, are looked at in between.
    const SLEEP_MAX: Duration = Duration::from_secs(1);

    /// The provider of the adapter that has `address`.
    pub fn open(address: IpAddr) -> Result<Self, HwError> {
        // The kernel binds loopback addresses to any adapter, whose peers could never reach them.
        if address.is_loopback() || address.is_unspecified() {
            return Err(HwError::NoSuchAddress(address));
        }
        let library = Arc::new(Library::load()?);
        let channel = Arc::new(EventChannel::new(&library)?);
        let anchor = bound(&channel, Key::Anchor, address, 0)?;
        removal::watch(&library, address, &anchor)?;
        let context = Arc::new(anchor.open_device()?);
        let domain = ProtectionDomain::default();
        Ok(Self {
            regions: Regions::default(),
            pairs: QueuePairs::default(),
            memory: Memory::default(),
            domains: vec![(domain, Arc::new(Pd::new(&context)?))],
            queues: Queues::new(&context)?,
            connections: Connections::default(),
            listeners: HashMap::new(),
            anchor,
            channel,
            context,
            address,
            completions: VecDeque::new(),
            events: VecDeque::new(),
            rounds: 0,
            next_watch: Instant::now(),
            watched: 0,
            next_search: None,
            is_gone: false,
        })
    }

    /// Whether adapters could be used at all: rdma-core is here, and the kernel has a connection manager.
    pub fn probe() -> Result<(), HwError> {
        EventChannel::new(&Arc::new(Library::load()?)).map(drop)
    }

    /// The adapter's name, as the system has it.
    pub fn device(&self) -> &str {
        &self.context.name
    }

    /// What its port's cable carries; `None` where the system does not say.
    pub fn link_layer(&self) -> Option<LinkLayer> {
        let port = u32::from(self.anchor.device_port());
        let devices = devices().ok()?.into_iter();
        let mut mine = devices.filter(|device| device.name == self.device());
        let mut ports = mine.next()?.ports.into_iter();
        ports
            .find(|of_it| of_it.number == port)
            .map(|of_it| of_it.link_layer)
    }

    /// The protection domain of that name.
    fn pd(&mut self, domain: ProtectionDomain) -> Result<Arc<Pd>, HwError> {
        if let Some((_, pd)) = self.domains.iter().find(|(of, _)| *of == domain) {
            return Ok(Arc::clone(pd));
        }
        let pd = Arc::new(Pd::new(&self.context)?);
        // Connections that came and went have left those that nothing is made of any more.
        self.domains
            .retain(|(of, pd)| *of == ProtectionDomain::default() || Arc::strong_count(pd) > 1);
        self.domains.push((domain, Arc::clone(&pd)));
        Ok(pd)
    }

    fn has_news(&self) -> bool {
        !self.completions.is_empty() || !self.events.is_empty()
    }

    /// One round; whether anything came of it.
    fn turn(&mut self) -> io::Result<bool> {
        let has_reaped = self.reap()?;
        self.rounds += 1;
        if self.rounds >= Self::ROUNDS_PER_EVENTS {
            self.handle_events();
        }
        Ok(has_reaped || self.has_news())
    }

    /// Looks for events of the device and of connections.
    fn handle_events(&mut self) {
        self.rounds = 0;
        self.handle_device_events();
        self.handle_connection_events();
        if self.next_search.is_some_and(|at| Instant::now() >= at) {
            self.follow_address();
        }
        self.watch();
    }

    /// Sleeps until anything has something, at most `at_most`; and takes what that is.
    fn sleep(&mut self, at_most: Duration, event: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let at_most = self.queues.watch.limit(at_most.min(Self::SLEEP_MAX));
        let timeout = Timespec {
            tv_sec: i64::try_from(at_most.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: at_most.subsec_nanos().into(),
        };
        let completions = self.queues.channel.fd();
        let own = [completions, self.channel.fd(), self.context.async_fd()];
        // SAFETY: the descriptors belong to what this provider holds, so they are open during the call.
        let own = own.map(|fd| unsafe { BorrowedFd::borrow_raw(fd) });
        let count = own.len() + usize::from(event.is_some());
        let [first, second, third] = own;
        let mut fds = [first, second, third, event.unwrap_or(first)]
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        let ready = match poll(&mut fds[..count], Some(&timeout)) {
            Ok(ready) => ready,
            Err(rustix::io::Errno::INTR) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let [has_completed, has_connected, has_changed, _] = fds.map(|fd| !fd.revents().is_empty());
        if has_completed {
            self.queues.take_notifications();
        }
        if ready == 0 {
            self.queues.watch.slept_in_vain();
        }
        if ready == 0 || has_connected || has_changed {
            self.handle_events();
        } else {
            self.watch();
        }
        Ok(())
    }
}

/// An identifier bound to an address of an adapter.
fn bound(
    channel: &Arc<EventChannel>,
    key: Key,
    address: IpAddr,
    port: u16,
) -> Result<CmId, HwError> {
    let id = CmId::new(channel, key)?;
    id.bind(SocketAddr::new(address, port)).map_err(|error| {
        let is_no_device = matches!(&error, HwError::Call { error, .. }
            if matches!(error.raw_os_error(), Some(libc::ENODEV | libc::EADDRNOTAVAIL)));
        if is_no_device {
            HwError::NoSuchAddress(address)
        } else {
            error
        }
    })?;
    if id.has_device() {
        Ok(id)
    } else {
        Err(HwError::NoSuchAddress(address))
    }
}

impl Provider for Hw {
    fn allocate(&mut self, len_bytes: usize) -> Result<RegionId, FabricError> {
        let domain = ProtectionDomain::default();
        let pd = self.pd(domain)?;
        Ok(self.memory.allocate(len_bytes, domain, &pd)?)
    }

    fn release(&mut self, memory: RegionId) {
        self.regions.remove_of(memory);
        self.memory.release(memory);
    }

    fn bytes(&self, memory: RegionId) -> &[u8] {
        self.memory.bytes(memory)
    }

    fn bytes_mut(&mut self, memory: RegionId) -> &mut [u8] {
        self.memory.bytes_mut(memory)
    }

    fn register(&mut self, region: Region) -> Result<Remote, FabricError> {
        self.register_region(region)
    }

    fn invalidate(&mut self, key: Rkey) -> bool {
        self.regions.remove(key)
    }

    fn create_qp(&mut self, config: QpConfig) -> Result<Qpn, FabricError> {
        Ok(self.create_pair(config)?)
    }

    fn destroy_qp(&mut self, qpn: Qpn) {
        self.destroy_pair(qpn);
    }

    fn post_send(&mut self, qpn: Qpn, request: SendRequest) -> Result<(), PostError> {
        self.post_request(qpn, request)
    }

    fn post_recv(&mut self, qpn: Qpn, request: RecvRequest) -> Result<(), PostError> {
        self.post_receive(qpn, request)
    }

    fn listen(&mut self, port: u16) -> Result<(), FabricError> {
        if self.listeners.contains_key(&port) {
            return Ok(());
        }
        let id = bound(&self.channel, Key::Listener(port), self.address, port)?;
        id.listen(Self::BACKLOG)?;
        self.listeners.insert(port, id);
        Ok(())
    }

    fn stop_listening(&mut self, port: u16) {
        self.listeners.remove(&port);
    }

    fn connect(&mut self, qpn: Qpn, to: &ConnectTo<'_>) -> Result<CommId, FabricError> {
        self.ask(qpn, to)
    }

    fn pair(&mut self, qpn: Qpn, with: &PeerQp) -> Result<(), FabricError> {
        self.pair_with(qpn, with)
    }

    fn accept(&mut self, id: CommId, qpn: Qpn, private_data: &[u8]) -> Result<(), FabricError> {
        self.accept_request(id, qpn, private_data)
    }

    fn reject(
        &mut self,
        id: CommId,
        reason: RejReason,
        private_data: &[u8],
    ) -> Result<(), FabricError> {
        self.reject_request(id, reason, private_data)
    }

    fn disconnect(&mut self, id: CommId) -> Result<(), FabricError> {
        self.end_connection(id)
    }

    fn may_notice_late(&mut self, may: bool) {
        self.queues.watch.be_patient(may);
    }

    fn poll(&mut self, wait: Wait<'_>) -> io::Result<()> {
        self.post_held();
        let (at_most, event) = match wait {
            Wait::Poll => return self.turn().and(self.alive()),
            Wait::AtMost(at_most) => (at_most, None),
            Wait::Event { at_most, event } => (at_most, Some(event)),
        };
        if self.turn()? {
            return Ok(());
        }
        self.alive()?;
        // What came between the last look and arming tells nobody, so it is looked for again.
        if self.queues.arm()? && self.reap()? {
            return Ok(());
        }
        self.sleep(at_most, event)?;
        self.reap()?;
        self.alive()
    }

    fn next_completion(&mut self) -> Option<Completion> {
        let (serial, completion) = self.completions.pop_front()?;
        self.pairs.release(serial, completion.kind);
        Some(completion)
    }

    fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }
}

impl Hw {
    /// An error once the adapter is gone and all that came of that has been taken.
    fn alive(&self) -> io::Result<()> {
        if self.is_gone && !self.has_news() {
            let error = HwError::Gone(self.context.name.as_str().into());
            return Err(io::Error::new(io::ErrorKind::NotConnected, error));
        }
        Ok(())
    }
}
