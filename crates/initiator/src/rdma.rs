//! Queue pairs of hosts, whatever the protocol: providers, and connections over them.

mod connection;
mod locked_provider;
mod provider;
mod queue_pair;
mod route;

use std::{
    collections::HashMap,
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use fabric::{Choice, FabricError, Hw, Soft, SoftOptions};

pub(crate) use self::connection::{MessageHost, RdmaConnection};
use self::locked_provider::{LockedProvider, Sharing};
use self::provider::HostProvider;
pub(crate) use self::queue_pair::{Established, PairShape, QueuePair, WorkContext};
use self::route::Route;
use crate::{ConnectError, DeviceOptions, RdmaError, Url};

/// The providers of a device's queue pairs.
///
/// Peers of RoCEv2 respond to UDP port 4791 of the requester's address, which one socket owns. If
/// the target is reached from one address of this machine, all queues share that socket and its
/// provider. Loopback has many addresses: each queue uses one of its own, so that its thread polls
/// only its own packets. An adapter is opened once per queue.
#[derive(Debug)]
pub(crate) struct Providers {
    choice: Choice,
    local: Option<IpAddr>,
    connect_timeout: Duration,
    /// The providers that queues share, by local address.
    shared: HashMap<IpAddr, Arc<LockedProvider>>,
    /// The providers of single queues.
    own: HashMap<u16, Arc<LockedProvider>>,
}

impl Providers {
    pub(crate) fn new(url: &Url, options: &DeviceOptions) -> Self {
        Self {
            choice: url.rdma(),
            local: url.local(),
            connect_timeout: options.connect_timeout,
            shared: HashMap::new(),
            own: HashMap::new(),
        }
    }

    /// Connects a queue pair for `queue` to `address`.
    pub(crate) fn connect(
        &mut self,
        address: SocketAddr,
        queue: u16,
        shape: &PairShape,
        private_data: &[u8],
    ) -> Result<(QueuePair, Established), ConnectError> {
        let timeout = self.connect_timeout;
        let provider = self.provider(address, queue);
        provider
            .and_then(|provider| {
                QueuePair::connect(provider, address, shape, private_data, timeout)
            })
            .map_err(|source| ConnectError::Rdma {
                address,
                source: Box::new(source),
            })
    }

    /// Polls the providers of connections whose owners may not poll them. Returns the time until
    /// the next call is due.
    pub(crate) fn poll_idle(&self) -> Duration {
        for provider in self.shared.values().chain(self.own.values()) {
            provider.poll_idle();
        }
        LockedProvider::IDLE_POLL_INTERVAL
    }

    /// The provider of a queue's connection to `peer`.
    fn provider(&mut self, peer: SocketAddr, queue: u16) -> Result<Arc<LockedProvider>, RdmaError> {
        // The provider of a removed adapter is dropped, and the adapter is opened again.
        self.own.retain(|_, provider| provider.is_usable());
        if let Some(provider) = self.own.get(&queue) {
            return Ok(Arc::clone(provider));
        }
        let route = match self.local {
            Some(local) => Route::from(local, peer),
            None => Route::to(peer),
        }
        .map_err(RdmaError::NoRoute)?;
        let provider: Box<dyn HostProvider + Send> = match self.adapter(route.local())? {
            Some(adapter) => Box::new(adapter),
            None => match route {
                Route::Address { local, .. } => return self.shared(local, &route.options()),
                Route::AnyLoopback { .. } => Box::new(bind_loopback(route.options())?),
            },
        };
        let provider = Arc::new(LockedProvider::new(provider, Sharing::Own)?);
        self.own.insert(queue, Arc::clone(&provider));
        Ok(provider)
    }

    /// Opens the adapter that has the address `local`, unless `rdma=soft` excludes adapters.
    fn adapter(&self, local: IpAddr) -> Result<Option<Hw>, RdmaError> {
        if self.choice == Choice::Soft {
            return Ok(None);
        }
        match Hw::open(local) {
            Ok(adapter) => Ok(Some(adapter)),
            Err(error) if self.choice == Choice::Hw => Err(RdmaError::NoAdapter(error)),
            Err(_) => Ok(None),
        }
    }

    /// The software provider that all queues at an address share.
    fn shared(
        &mut self,
        local: IpAddr,
        options: &impl Fn(IpAddr) -> SoftOptions,
    ) -> Result<Arc<LockedProvider>, RdmaError> {
        if let Some(provider) = self.shared.get(&local) {
            return Ok(Arc::clone(provider));
        }
        let soft = Soft::bind(&options(local)).map_err(|error| unbound(local, error))?;
        let provider = Arc::new(LockedProvider::new(Box::new(soft), Sharing::Shared)?);
        self.shared.insert(local, Arc::clone(&provider));
        Ok(provider)
    }
}

/// Binds a provider to a loopback address that is not in use.
fn bind_loopback(options: impl Fn(IpAddr) -> SoftOptions) -> Result<Soft, RdmaError> {
    for local in route::loopback_addresses() {
        match Soft::bind(&options(local)) {
            Ok(soft) => return Ok(soft),
            Err(FabricError::SoftPort { error, .. })
                if error.kind() == io::ErrorKind::AddrInUse => {}
            Err(error) => return Err(unbound(local, error)),
        }
    }
    Err(RdmaError::NoLoopback)
}

/// Converts the failure to bind to a local address.
fn unbound(local: IpAddr, error: FabricError) -> RdmaError {
    match error {
        FabricError::SoftPort { error: source, .. } => RdmaError::Bind { local, source },
        other => other.into(),
    }
}
