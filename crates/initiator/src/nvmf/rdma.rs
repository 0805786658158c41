//! Queues over RDMA.

mod connection;
mod locked_provider;
mod provider;
mod route;

use std::{
    collections::HashMap,
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use fabric::{Choice, FabricError, Hw, Soft, SoftOptions};
use nvme::host::ControllerFacts;
use nvme::rdma::HostSession;
use nvme::wire::identify::sgls;

use self::connection::RdmaConnection;
use self::locked_provider::{LockedProvider, Sharing};
use self::provider::HostProvider;
use self::route::Route;
use super::transport::{QueueShape, Transport};
use crate::error::QueueName;
use crate::{ConnectError, DeviceOptions, RdmaError, Url};

/// NVMe/RDMA.
///
/// Peers of RoCEv2 respond to UDP port 4791 of the requester's address, which one socket owns. If
/// the controller is reached from one address of this machine, all queues share that socket and its
/// provider. Loopback has many addresses: each queue uses one of its own, so that its thread polls
/// only its own packets. An adapter is opened once per queue.
#[derive(Debug)]
pub(crate) struct Rdma {
    choice: Choice,
    local: Option<IpAddr>,
    connect_timeout: Duration,
    /// The providers that queues share, by local address.
    shared: HashMap<IpAddr, Arc<LockedProvider>>,
    /// The providers of single queues.
    own: HashMap<QueueName, Arc<LockedProvider>>,
}

impl Transport for Rdma {
    type Connection = RdmaConnection;

    const TRANSFER_MAX_BYTES: u64 = HostSession::TRANSFER_MAX_BYTES as u64;

    fn new(url: &Url, options: &DeviceOptions) -> Result<Self, ConnectError> {
        Ok(Self {
            choice: url.rdma(),
            local: url.local(),
            connect_timeout: options.connect_timeout,
            shared: HashMap::new(),
            own: HashMap::new(),
        })
    }

    fn connect(
        &mut self,
        address: SocketAddr,
        shape: &QueueShape,
    ) -> Result<RdmaConnection, ConnectError> {
        let failed = |error| ConnectError::Rdma {
            address,
            source: Box::new(error),
        };
        let provider = self.provider(address, shape.queue).map_err(failed)?;
        RdmaConnection::connect(provider, address, shape, self.connect_timeout).map_err(failed)
    }

    fn in_capsule_max_bytes(controller: &ControllerFacts) -> u32 {
        if controller.sgls & sgls::OFFSETS == 0 {
            return 0;
        }
        controller.in_capsule_max_bytes
    }

    fn poll_idle(&mut self) -> Option<Duration> {
        for provider in self.shared.values().chain(self.own.values()) {
            provider.poll_idle();
        }
        Some(LockedProvider::IDLE_POLL_INTERVAL)
    }
}

impl Rdma {
    /// The provider of a queue's connection to `peer`.
    fn provider(
        &mut self,
        peer: SocketAddr,
        queue: QueueName,
    ) -> Result<Arc<LockedProvider>, RdmaError> {
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
