//! The Connect command: how a connection becomes a queue of a controller.
//!
//! Read first: NVM Express Base 2.0, "Connect Command and Response".

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use block::Access;
use zerocopy::FromBytes;

use super::{Backend, Completion, OpenError, Origin, WakeToken};
use crate::wire::fabrics::{ConnectData, ConnectSqe, InvalidParameter};
use crate::wire::{Sqe, Status, StatusCode};

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
}

/// SQ flow control, as Connect requested it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SqFlow {
    /// Completions carry the head of the submission queue.
    Enabled,
    /// Completions carry no SQHD.
    Disabled,
}

/// Whether a controller's host has sent anything of late: shared by all its queues (traffic based
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
}

/// Executes the Connect command `sqe` with its `data`, the first command on any connection. On
/// success the completion's result is the controller ID ([`connected`]); else the error is the
/// completion to send.
pub fn connect<B: Backend>(
    now: Instant,
    sqe: &Sqe,
    data: &[u8],
    backend: &mut B,
) -> Result<Connection, Completion> {
    let command: ConnectSqe = zerocopy::transmute!(*sqe);
    if sqe.opcode != Sqe::OPCODE_FABRICS || sqe.fctype() != crate::wire::fabrics::fctype::CONNECT {
        return Err(StatusCode::CommandSequenceError.into());
    }
    let data = ConnectData::ref_from_bytes(data).map_err(|_| StatusCode::DataSglLengthInvalid)?;
    if command.record_format.get() != ConnectSqe::RECORD_FORMAT {
        return Err(StatusCode::ConnectIncompatibleFormat.into());
    }
    let subsystem_nqn = data.subsystem_nqn.name().ok_or(SUBSYSTEM_NQN)?;
    // Hosts must give a name, but some leave it empty: the program decides whether they are served.
    let host_nqn = data.host_nqn.text().ok_or(HOST_NQN)?;
    if command.queue_id.get() == 0 && data.controller_id.get() != ConnectData::CONTROLLER_ANY {
        return Err(CONTROLLER_ID.into());
    }
    if command.sq_size_minus_1.get() == 0 {
        return Err(SQ_SIZE.into());
    }
    let access = backend
        .open(subsystem_nqn, host_nqn, data.host_id)
        .map_err(open_error)?;
    let request = ConnectRequest {
        host: Host {
            nqn: host_nqn.to_owned(),
            id: data.host_id,
        },
        controller: data.controller_id.get(),
        queue: QueueId(command.queue_id.get()),
        sq_entries: command.sq_entries(),
        sq_flow: if command.attributes & ConnectSqe::ATTRIBUTE_NO_SQ_FLOW == 0 {
            SqFlow::Enabled
        } else {
            SqFlow::Disabled
        },
        keep_alive_timeout_ms: command.keep_alive_timeout_ms.get(),
        origin: backend.origin(),
        access,
    };
    let connection = backend.with_subsystem(|subsystem| subsystem.connect(now, request))?;
    backend.bind(connection.controller);
    Ok(connection)
}

/// The completion of the Connect that made `connection`.
pub fn connected(connection: &Connection) -> Completion {
    Completion {
        status: Status::SUCCESS,
        result: u64::from(connection.controller.0),
    }
}

fn open_error(error: OpenError) -> Completion {
    match error {
        OpenError::UnknownSubsystem => SUBSYSTEM_NQN.into(),
        OpenError::HostNotAllowed => Completion {
            status: StatusCode::ConnectInvalidHost.into(),
            result: u64::from(HOST_NQN.dw0()),
        },
        OpenError::Busy => StatusCode::ConnectControllerBusy.into(),
    }
}

pub(super) const CONTROLLER_ID: InvalidParameter =
    InvalidParameter::Data(std::mem::offset_of!(ConnectData, controller_id) as u16);
const SUBSYSTEM_NQN: InvalidParameter =
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
