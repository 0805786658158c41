//! Why a provider cannot be used or a call on it failed.

use std::io;
use std::net::{IpAddr, SocketAddr};

/// Why a call of a provider failed.
#[derive(Debug, thiserror::Error)]
pub enum FabricError {
    /// A system call failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The connection manager rejected the call.
    #[error(transparent)]
    Connection(#[from] roce::CmError),
    /// The limit of queue pairs is reached.
    #[error(transparent)]
    QueuePair(#[from] roce::CreateError),
    /// The limit of regions is reached, or the region is invalid.
    #[error(transparent)]
    Region(#[from] roce::RegisterError),
    /// The adapter cannot be used, or a call on it failed.
    #[error(transparent)]
    Adapter(HwError),
    /// The region is outside of the memory that was allocated.
    #[error("the region is not inside allocated memory")]
    NotAllocated,
    /// Addresses of two families.
    #[error("cannot reach {peer} from {local}: one is IPv4, the other IPv6")]
    Family {
        /// The local address.
        local: IpAddr,
        /// The peer's address.
        peer: IpAddr,
    },
    /// The provider in software could not bind its port.
    #[error(
        "cannot use UDP port {} of {} ({error}): choose an address of this machine where neither another program nor \
         rdma_rxe uses the port",
        local.port(),
        local.ip()
    )]
    SoftPort {
        /// Its port, at the address.
        local: SocketAddr,
        /// The system's error.
        error: io::Error,
    },
    /// Packets of the provider in software arrive damaged.
    #[error(
        "software RDMA does not work at {0}: a packet sent to the address itself came back damaged; find out which \
         filter or driver of this machine changes UDP packets, and turn it off"
    )]
    SoftPackets(SocketAddr),
    /// Neither an adapter nor software is available.
    #[error("{hw}; software RDMA does not work either: {soft}")]
    Neither {
        /// Why no adapter is available.
        hw: HwError,
        /// Why software RDMA is not available.
        soft: Box<FabricError>,
    },
    /// The local address to connect from is not specific.
    #[error("connection requests need a specific local address, not {0}; bind to one")]
    NoSource(IpAddr),
}

impl From<HwError> for FabricError {
    fn from(error: HwError) -> Self {
        Self::Adapter(error)
    }
}

/// Why an adapter cannot be used, or a call on it failed.
#[derive(Debug, thiserror::Error)]
pub enum HwError {
    /// A statically linked program cannot load libraries.
    #[error(
        "this is the static build of ramport, which cannot load rdma-core; install the Debian package, or build from source, to use \
         RDMA adapters"
    )]
    Static,
    /// A library of rdma-core could not be loaded.
    #[error("cannot load {name} ({reason}); install rdma-core's librdmacm1 and ibverbs-providers")]
    Library {
        /// Its file.
        name: &'static str,
        /// The loader's message.
        reason: Box<str>,
    },
    /// A library is too old: it lacks this function in this version.
    #[error("{0} is missing; install rdma-core 25 or newer")]
    Symbol(Box<str>),
    /// The kernel has no connection manager for RDMA.
    #[error("the kernel has no RDMA adapters ({0}); load rdma_ucm and the adapter's driver")]
    NoDevices(#[source] io::Error),
    /// No adapter has the address.
    #[error("no RDMA adapter has the address {0}")]
    NoSuchAddress(IpAddr),
    /// The transport is iWARP or proprietary.
    #[error("adapter {0} supports neither InfiniBand nor RoCE")]
    Transport(Box<str>),
    /// A call failed.
    #[error("{call}: {error}")]
    Call {
        /// The function.
        call: &'static str,
        /// The system's error.
        error: io::Error,
    },
    /// Memory could not be allocated or pinned.
    #[error(
        "cannot pin {len_bytes} bytes for the adapter ({error}); raise the limit of locked memory (ulimit -l, or \
         LimitMEMLOCK= of the service)"
    )]
    Pin {
        /// The length in bytes.
        len_bytes: u64,
        /// The system's error.
        error: io::Error,
    },
    /// The adapter does not let peers invalidate its keys.
    #[error(
        "the adapter has no memory windows, so peers cannot invalidate its keys; register without remote invalidation"
    )]
    Windows,
    /// A window belongs to a queue pair.
    #[error(
        "a key for remote invalidation belongs to one connected queue pair; give the queue pair its own protection domain"
    )]
    WindowOwner,
    /// A limit of the adapter is exceeded.
    #[error("{asked} {what} are too many; the adapter supports {room}")]
    Room {
        /// Which objects.
        what: &'static str,
        /// How many were requested.
        asked: u32,
        /// How many fit.
        room: u32,
    },
    /// The adapter was removed or has failed permanently.
    #[error("the adapter {0} was removed")]
    Gone(Box<str>),
}
