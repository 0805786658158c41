//! The Connect command: how a connection becomes a queue of a controller.
//!
//! Read first: NVM Express Base 2.0, "Connect Command and Response".

use std::time::Instant;

use super::connection::{CONTROLLER_ID, ConnectRequest, HOST_NQN, SQ_SIZE, SUBSYSTEM_NQN};
use super::{Authentication, Backend, Completion, Connection, Host, OpenError, QueueId, SqFlow};
use crate::auth::{Concatenation, Names};
use crate::wire::fabrics::{ConnectData, ConnectSqe};
use crate::wire::{Sqe, StatusCode};
use zerocopy::FromBytes;

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
    // Hosts must give a name, but some leave it empty. The program decides whether to serve them.
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
        authentication: backend.credentials().map(|credentials| Authentication {
            credentials,
            demand: backend.demand(),
            concatenation: match command.queue_id.get() {
                0 => backend.concatenation(),
                _ => Concatenation::Refused,
            },
            names: Names {
                host_nqn: host_nqn.to_owned(),
                subsystem_nqn: subsystem_nqn.to_owned(),
            },
        }),
    };
    let connection = backend.with_subsystem(|subsystem| subsystem.connect(now, request))?;
    backend.bind(connection.controller);
    Ok(connection)
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
