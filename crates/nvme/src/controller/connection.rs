//! What identifies controllers, queues, hosts and connections, and what a connection is.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use block::Access;

use super::Completion;
use crate::auth::{Concatenation, Credentials, Names};
use crate::wire::auth::CONNECT_AUTHENTICATION_REQUIRED;
use crate::wire::discovery::TransportType;
use crate::wire::fabrics::{ConnectData, ConnectSqe, InvalidParameter};
use crate::wire::{Status, StatusCode};

/// Where a connection comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The peer's address.
    pub address: IpAddr,
    /// The local address of the connection.
    pub local: IpAddr,
    /// The transport of the connection.
    pub transport: TransportType,
    /// The portal that accepted it.
    pub portal: PortalNumber,
    /// How [`Subsystem::poll_wake`](super::Subsystem::poll_wake) names this connection.
    pub wake: WakeToken,
}

/// The number of a portal. The discovery log shows it as PORTID, the identifier of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PortalNumber(pub u16);

/// A connection by the number that the program around the core gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WakeToken(pub u64);

/// A Controller ID (CNTLID).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ControllerId(pub u16);

/// A Queue ID (QID). 0 is the admin queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QueueId(pub u16);

impl QueueId {
    /// The admin queue.
    pub const ADMIN: Self = Self(0);

    /// Whether this is the admin queue.
    pub const fn is_admin(self) -> bool {
        self.0 == 0
    }
}

/// A host, as it named itself in Connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Its NVMe Qualified Name.
    pub nqn: String,
    /// Its Host Identifier; all zeros if it has none.
    pub id: [u8; 16],
}

/// A connection that has become a queue of a controller.
#[derive(Clone, Debug)]
pub struct Connection {
    /// The controller.
    pub controller: ControllerId,
    /// The queue.
    pub queue: QueueId,
    /// Entries of the submission queue: at most this many less one commands are outstanding.
    pub sq_entries: u32,
    /// Whether completions carry SQHD.
    pub sq_flow: SqFlow,
    /// To be marked whenever commands arrive, for keep alive.
    pub activity: Activity,
    /// The I/O queues of the controller.
    pub io_queues: IoQueues,
    /// The connection's name towards the subsystem.
    pub wake: WakeToken,
    /// What the host has to prove or may prove, if anything.
    pub authentication: Option<Authentication>,
}

/// In-band authentication of a queue.
#[derive(Clone, Debug)]
pub struct Authentication {
    /// Whether the host has to authenticate before anything else.
    pub demand: Demand,
    /// What the host has to prove.
    pub credentials: Arc<Credentials>,
    /// The names in Connect.
    pub names: Names,
    /// Whether the host may have a key for TLS generated.
    pub concatenation: Concatenation,
}

/// Whether a host that has a secret has to prove it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Demand {
    /// It has to, before anything else is executed.
    #[default]
    Required,
    /// It may: it has proven who it is by TLS, and authenticates to replace its key.
    Permitted,
}

impl Authentication {
    /// Whether the host has to authenticate before anything else.
    pub fn is_required(&self) -> bool {
        self.demand == Demand::Required
    }
}

/// SQ flow control, as Connect requested it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SqFlow {
    /// Completions carry the head of the submission queue.
    Enabled,
    /// Completions carry no SQHD.
    Disabled,
}

/// Whether a controller's host has sent anything recently: shared by all its queues (traffic based
/// keep alive).
#[derive(Clone, Debug, Default)]
pub struct Activity(Arc<AtomicBool>);

impl Activity {
    /// Records that commands have arrived. Cheap if that is recorded already.
    pub fn mark(&self) {
        if !self.0.load(Ordering::Relaxed) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    /// Whether it was marked since the last call.
    pub(super) fn take(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }
}

/// What the queues of a controller read about its I/O queues. The subsystem writes it.
#[derive(Clone, Debug, Default)]
pub struct IoQueues(Arc<IoQueueState>);

#[derive(Debug, Default)]
struct IoQueueState {
    count: AtomicUsize,
    have_rested: AtomicBool,
}

impl IoQueues {
    /// How many there are. The admin queue reads it, whose end would end them.
    pub fn count(&self) -> usize {
        self.0.count.load(Ordering::Acquire)
    }

    /// Whether each has been idle since the server began to stop.
    pub fn have_rested(&self) -> bool {
        self.0.have_rested.load(Ordering::Acquire)
    }

    pub(super) fn set(&self, count: usize, have_rested: bool) {
        self.0.count.store(count, Ordering::Release);
        self.0.have_rested.store(have_rested, Ordering::Release);
    }
}

/// The number of a command's slot in its connection: what transports use as a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SlotId(pub u16);

impl SlotId {
    pub(in crate::controller) const fn index(self) -> usize {
        self.0 as usize
    }
}

/// What a checked Connect requests.
#[derive(Clone, Debug)]
pub(super) struct ConnectRequest {
    pub(super) host: Host,
    pub(super) controller: u16,
    pub(super) queue: QueueId,
    pub(super) sq_entries: u32,
    pub(super) sq_flow: SqFlow,
    pub(super) keep_alive_timeout_ms: u32,
    pub(super) origin: Origin,
    pub(super) access: Access,
    pub(super) authentication: Option<Authentication>,
}

impl ConnectRequest {
    /// Whether the host has to authenticate before anything else.
    pub(super) fn must_authenticate(&self) -> bool {
        let authentication = self.authentication.as_ref();
        authentication.is_some_and(Authentication::is_required)
    }
}

/// The completion of the Connect that made `connection`.
pub fn connected(connection: &Connection) -> Completion {
    let required = match &connection.authentication {
        Some(authentication) if authentication.is_required() => CONNECT_AUTHENTICATION_REQUIRED,
        _ => 0,
    };
    Completion {
        status: Status::SUCCESS,
        result: u64::from(u32::from(connection.controller.0) | required),
    }
}

pub(super) const CONTROLLER_ID: InvalidParameter =
    InvalidParameter::Data(std::mem::offset_of!(ConnectData, controller_id) as u16);
pub(super) const SUBSYSTEM_NQN: InvalidParameter =
    InvalidParameter::Data(std::mem::offset_of!(ConnectData, subsystem_nqn) as u16);
pub(super) const HOST_NQN: InvalidParameter =
    InvalidParameter::Data(std::mem::offset_of!(ConnectData, host_nqn) as u16);
pub(super) const HOST_ID: InvalidParameter =
    InvalidParameter::Data(std::mem::offset_of!(ConnectData, host_id) as u16);
pub(super) const QUEUE_ID: InvalidParameter =
    InvalidParameter::Command(std::mem::offset_of!(ConnectSqe, queue_id) as u16);
pub(super) const SQ_SIZE: InvalidParameter =
    InvalidParameter::Command(std::mem::offset_of!(ConnectSqe, sq_size_minus_1) as u16);

impl From<InvalidParameter> for Completion {
    fn from(place: InvalidParameter) -> Self {
        Self {
            status: StatusCode::ConnectInvalidParameters.into(),
            result: u64::from(place.dw0()),
        }
    }
}
