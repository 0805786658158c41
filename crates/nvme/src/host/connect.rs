//! The Connect command, from the host's side.
//!
//! Read first: NVM Express Base 2.0, "Connect Command and Response".

use zerocopy::IntoBytes;
use zerocopy::little_endian::U32;

use super::{BufferRange, Command, Transfer};
use crate::wire::Cid;
use crate::wire::fabrics::{ConnectData, ConnectSqe, NqnField};

/// The names by which a host connects: its own, and the subsystem's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostName {
    /// Host NVMe Qualified Name (HOSTNQN).
    pub host_nqn: NqnField,
    /// Host Identifier (HOSTID).
    pub host_id: [u8; 16],
    /// NVM Subsystem NVMe Qualified Name (SUBNQN).
    pub subsystem_nqn: NqnField,
}

/// Connects an admin queue of `sq_entries` entries. Fills the first bytes of `slot`'s `buffer` with
/// the command's data; `keep_alive_timeout_ms` 0 is none.
pub fn connect_admin(
    name: &HostName,
    sq_entries: u16,
    keep_alive_timeout_ms: u32,
    slot: u16,
    buffer: &mut [u8],
) -> Command {
    let mut sqe = ConnectSqe::new(Cid(0), 0, sq_entries);
    sqe.keep_alive_timeout_ms = U32::new(keep_alive_timeout_ms);
    connect(name, sqe, ConnectData::CONTROLLER_ANY, slot, buffer)
}

/// Connects I/O queue `queue_id` of `sq_entries` entries to the controller that the admin queue
/// got.
pub fn connect_io(
    name: &HostName,
    controller_id: u16,
    queue_id: u16,
    sq_entries: u16,
    slot: u16,
    buffer: &mut [u8],
) -> Command {
    let sqe = ConnectSqe::new(Cid(0), queue_id, sq_entries);
    connect(name, sqe, controller_id, slot, buffer)
}

fn connect(
    name: &HostName,
    sqe: ConnectSqe,
    controller_id: u16,
    slot: u16,
    buffer: &mut [u8],
) -> Command {
    let data = ConnectData::new(
        name.host_id,
        controller_id,
        name.subsystem_nqn,
        name.host_nqn,
    );
    let bytes = data.as_bytes();
    buffer[..bytes.len()].copy_from_slice(bytes);
    Command {
        sqe: zerocopy::transmute!(sqe),
        transfer: Transfer::ToController(BufferRange::first(slot, bytes.len() as u32)),
    }
}
