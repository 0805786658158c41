//! An open adapter: the state that the provider owns.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::cma::{CmId, EventChannel, Key};
use super::connections::Connections;
use super::library::Library;
use super::memory::Memory;
use super::queue_pairs::{QueuePairs, Serial};
use super::queues::Queues;
use super::regions::Regions;
use super::removal;
use super::verbs::{Context, Pd};
use crate::HwError;
use crate::devices::{LinkLayer, devices};
use crate::verbs::{Completion, Event, ProtectionDomain};

/// The provider of an adapter.
///
/// Fields are dropped in this order: keys before queue pairs, both before the memory.
pub struct Hw {
    pub(super) regions: Regions,
    pub(super) pairs: QueuePairs,
    pub(super) memory: Memory,
    pub(super) domains: Vec<(ProtectionDomain, Arc<Pd>)>,
    pub(super) queues: Queues,
    pub(super) connections: Connections,
    pub(super) listeners: HashMap<u16, CmId>,
    /// Bound to the address: it holds the device, and reports its removal.
    pub(super) anchor: CmId,
    pub(super) channel: Arc<EventChannel>,
    pub(super) context: Arc<Context>,
    pub(super) address: IpAddr,
    pub(super) completions: VecDeque<(Serial, Completion)>,
    pub(super) events: VecDeque<Event>,
    /// Rounds since events of connections and of the device were polled.
    pub(super) rounds: u32,
    /// When queue pairs are checked next. Some adapters fail a queue pair without an event.
    pub(super) next_watch: Instant,
    /// How many queue pairs were checked.
    pub(super) watched: usize,
    /// When to look again which device has the address.
    pub(super) next_search: Instant,
    pub(super) is_gone: bool,
}

impl Hw {
    /// Rounds that poll only completions, before one that polls events: a poll of events costs a
    /// system call.
    pub(super) const ROUNDS_PER_EVENTS: u32 = 32;
    /// Between two checks of queue pairs.
    pub(super) const WATCH_INTERVAL: Duration = Duration::from_millis(20);
    /// Requests for connections that wait in the kernel.
    pub(super) const BACKLOG: i32 = 256;
    /// The interval of checks whether the device still has the address. Events say so too, but one
    /// that comes while the address is being taken away finds it in place.
    pub(super) const CHECK_INTERVAL: Duration = Duration::from_secs(5);
    /// The longest sleep. Connections that are late, and an address that no device had, are checked
    /// between sleeps.
    pub(super) const SLEEP_MAX: Duration = Duration::from_secs(1);

    /// The provider of the adapter that has `address`.
    pub fn open(address: IpAddr) -> Result<Self, HwError> {
        // The kernel binds loopback addresses to any adapter, and no peer could reach them.
        if address.is_loopback() || address.is_unspecified() {
            return Err(HwError::NoSuchAddress(address));
        }
        let library = Arc::new(Library::load()?);
        let channel = Arc::new(EventChannel::new(&library)?);
        let anchor = CmId::bound_to(&channel, Key::Anchor, address, 0)?;
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
            next_search: Instant::now() + Self::CHECK_INTERVAL,
            is_gone: false,
        })
    }

    /// Whether adapters could be used at all: rdma-core is here, and the kernel has a connection
    /// manager.
    pub fn probe() -> Result<(), HwError> {
        EventChannel::new(&Arc::new(Library::load()?)).map(drop)
    }

    /// The adapter's name in the system.
    pub fn device(&self) -> &str {
        &self.context.name
    }

    /// The link layer of its port; `None` if the system does not say.
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
    pub(super) fn pd(&mut self, domain: ProtectionDomain) -> Result<Arc<Pd>, HwError> {
        if let Some((_, pd)) = self.domains.iter().find(|(of, _)| *of == domain) {
            return Ok(Arc::clone(pd));
        }
        let pd = Arc::new(Pd::new(&self.context)?);
        // Closed connections leave protection domains that nothing uses any more.
        self.domains
            .retain(|(of, pd)| *of == ProtectionDomain::default() || Arc::strong_count(pd) > 1);
        self.domains.push((domain, Arc::clone(&pd)));
        Ok(pd)
    }

    pub(super) fn has_news(&self) -> bool {
        !self.completions.is_empty() || !self.events.is_empty()
    }

    /// Returns an error once the adapter is gone and the caller has taken all completions and
    /// events.
    pub(super) fn check_alive(&self) -> io::Result<()> {
        if self.is_gone && !self.has_news() {
            let error = HwError::Gone(self.context.name.as_str().into());
            return Err(io::Error::new(io::ErrorKind::NotConnected, error));
        }
        Ok(())
    }
}
