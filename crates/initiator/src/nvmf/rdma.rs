//! Queues over RDMA.

mod connection;
mod port;
mod provider;
mod route;

use std::{
    collections::HashMap,
    fmt, io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use fabric::verbs::{QpFailure, RejReason};
use fabric::{Choice, FabricError, Hw, HwError, Soft, SoftOptions};
use nvme::host::ControllerFacts;
use nvme::rdma::HostSession;
use nvme::rdma::wire::RejectStatus;
use nvme::wire::identify::sgls;

use self::connection::RdmaConnection;
use self::port::{Port, Sharing};
use self::provider::HostProvider;
use self::route::Route;
use super::line::NvmeLine;
use super::transport::{QueueShape, Transport};
use crate::error::QueueName;
use crate::line::Line;
use crate::{ConnectError, DeviceOptions, Url};

/// NVMe/RDMA.
///
/// Peers of RoCEv2 answer to UDP port 4791 of the address that they were asked from, and one socket has that. So where this
/// machine has one address towards the controller, all queues share a socket and its provider. Loopback has many addresses:
/// there each queue has one of its own, and what a thread polls is its own alone. Adapters can be opened once for each queue.
#[derive(Debug)]
pub(crate) struct Rdma {
    choice: Choice,
    local: Option<IpAddr>,
    connect_timeout: Duration,
    /// By local address, of those that queues share.
    shared: HashMap<IpAddr, Arc<Port>>,
    /// By queue, of those that share none.
    own: HashMap<QueueName, Arc<Port>>,
}

/// What goes wrong with RDMA.
#[derive(Debug, thiserror::Error)]
pub enum RdmaError {
    /// No adapter has the address that the controller is reached from.
    #[error("no RDMA adapter reaches the target: {0}; use rdma=soft, which needs none")]
    NoAdapter(#[source] HwError),
    /// There is no way to the controller.
    #[error("no route to the target: {0}; check the address and this machine's routes")]
    NoRoute(#[source] io::Error),
    /// The local address can't be used.
    #[error("cannot use UDP port 4791 of {local}: {source}{}", hint(source))]
    Bind {
        /// The address.
        local: IpAddr,
        /// What the system says.
        source: io::Error,
    },
    /// No address of loopback was free.
    #[error(
        "UDP port 4791 is in use on all tried addresses of 127.0.0.0/8; give an address with local="
    )]
    NoLoopback,
    /// The provider refuses.
    #[error(transparent)]
    Fabric(#[from] FabricError),
    /// The peer refuses the connection.
    #[error("the target rejected the connection: {0}")]
    Rejected(Rejection),
    /// The peer does not answer.
    #[error(
        "no response over RDMA (UDP port 4791); check the address, and that the target has a portal for RDMA"
    )]
    Unreachable,
    /// The peer's reply makes no sense.
    #[error("the reply has {len_bytes} bytes of private data that are not NVMe/RDMA private data")]
    Reply {
        /// Their length.
        len_bytes: usize,
    },
    /// The queue pair failed before the connection was made.
    #[error("the connection failed: {0}")]
    Failed(QpFailure),
}

impl RdmaError {
    /// Whether the person who asked can fix it with another request, or at another address.
    pub(crate) fn is_mistake(&self) -> bool {
        match self {
            Self::NoAdapter(_)
            | Self::NoRoute(_)
            | Self::Bind { .. }
            | Self::NoLoopback
            | Self::Unreachable => true,
            Self::Rejected(rejection) => rejection.reason == RejReason::INVALID_SERVICE_ID,
            Self::Fabric(_) | Self::Reply { .. } | Self::Failed(_) => false,
        }
    }
}

/// Why a connection is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rejection {
    reason: RejReason,
    /// NVMe's own reason (STS).
    status: Option<u16>,
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.reason, self.status) {
            (RejReason::INVALID_SERVICE_ID, _) => f.write_str(
                "no portal for RDMA is at this port (`ramport portal ls` there lists where it listens)",
            ),
            (RejReason::CONSUMER, Some(status)) => match RejectStatus::from_wire(status) {
                Some(known) => write!(f, "{known}"),
                None => write!(f, "NVMe status {status:#x}"),
            },
            (RejReason::NO_RESOURCES, _) => f.write_str("it has no room for another connection"),
            (RejReason::INVALID_MTU, _) => f.write_str(
                "longer packets than it can send were asked for; give the interfaces at both ends the same MTU (ip link set INTERFACE mtu BYTES)",
            ),
            (reason, _) => write!(f, "reason {}", reason.0),
        }
    }
}

/// What to do where an address can't be had.
fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            "; another program serves or uses RDMA there, so name another address of this machine with local="
        }
        io::ErrorKind::AddrNotAvailable => "; local= takes an address of this machine",
        _ => "",
    }
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
        let port = self.port(address, shape.queue).map_err(failed)?;
        RdmaConnection::connect(port, address, shape, self.connect_timeout).map_err(failed)
    }

    fn in_capsule_max_bytes(controller: &ControllerFacts) -> u32 {
        if controller.sgls & sgls::OFFSETS == 0 {
            return 0;
        }
        controller.in_capsule_max_bytes
    }

    fn line(line: NvmeLine<RdmaConnection>) -> Line {
        Line::NvmeRdma(line)
    }

    fn tend(&mut self) -> Option<Duration> {
        for port in self.shared.values().chain(self.own.values()) {
            port.tend();
        }
        Some(Port::TEND_INTERVAL)
    }
}

impl Rdma {
    /// The port that a queue's connection to `peer` is made from.
    fn port(&mut self, peer: SocketAddr, queue: QueueName) -> Result<Arc<Port>, RdmaError> {
        // Where their adapter was removed, they let it go, and it is looked for anew.
        self.own.retain(|_, port| port.is_usable());
        if let Some(port) = self.own.get(&queue) {
            return Ok(Arc::clone(port));
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
        let port = Arc::new(Port::new(provider, Sharing::Own)?);
        self.own.insert(queue, Arc::clone(&port));
        Ok(port)
    }

    /// The adapter that has an address, where one does and is wanted.
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

    /// The socket that all queues at an address share.
    fn shared(
        &mut self,
        local: IpAddr,
        options: &impl Fn(IpAddr) -> SoftOptions,
    ) -> Result<Arc<Port>, RdmaError> {
        if let Some(port) = self.shared.get(&local) {
            return Ok(Arc::clone(port));
        }
        let soft = Soft::bind(&options(local)).map_err(|error| unbound(local, error))?;
        let port = Arc::new(Port::new(Box::new(soft), Sharing::Shared)?);
        self.shared.insert(local, Arc::clone(&port));
        Ok(port)
    }
}

/// A provider at an address of loopback that nobody else has.
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

/// Why there is no provider at an address of ours.
fn unbound(local: IpAddr, error: FabricError) -> RdmaError {
    match error {
        FabricError::SoftPort { error: source, .. } => RdmaError::Bind { local, source },
        other => other.into(),
    }
}
