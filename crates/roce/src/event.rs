//! Events: what an end reports besides completions.

use std::net::{IpAddr, SocketAddr};

use crate::Flow;
use crate::qp::QpFailure;
use crate::wire::cm::{CommId, RejReason, ServiceId};
use crate::wire::{PathMtu, Qpn};

/// Something happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A connection request: answer by accepting or rejecting.
    Request(ConnectRequest),
    /// The requested connection is established; the queue pair may be used.
    Connected {
        /// The connection.
        id: CommId,
        /// Its queue pair.
        qpn: Qpn,
        /// Payload of a full packet.
        path_mtu: PathMtu,
        /// The peer's private data.
        private_data: Box<[u8]>,
    },
    /// The connection that was accepted is made. Its queue pair could be used since it was
    /// accepted.
    Established {
        /// The connection.
        id: CommId,
        /// Its queue pair.
        qpn: Qpn,
    },
    /// The connection is not made.
    Rejected {
        /// The connection.
        id: CommId,
        /// Its queue pair, which remains to be destroyed.
        qpn: Option<Qpn>,
        /// Why.
        reason: RejReason,
        /// The peer's private data.
        private_data: Box<[u8]>,
    },
    /// The connection is not made: the peer does not answer.
    Unreachable {
        /// The connection.
        id: CommId,
        /// Its queue pair, which remains to be destroyed.
        qpn: Option<Qpn>,
    },
    /// The connection has ended.
    Disconnected {
        /// The connection.
        id: CommId,
        /// Its queue pair, which is in the error state and remains to be destroyed.
        qpn: Qpn,
    },
    /// A queue pair failed. Its connection remains until one end disconnects.
    QpFailed {
        /// The queue pair.
        qpn: Qpn,
        /// The connection.
        id: Option<CommId>,
        /// Why.
        failure: QpFailure,
    },
}

/// A request for a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectRequest {
    /// The connection.
    pub id: CommId,
    /// The service.
    pub service: ServiceId,
    /// From here to the requester.
    pub flow: Flow,
    /// The requester's address and port, and the address that it requested, from rdma_cm's header;
    /// `None` for services outside the TCP port space.
    pub addresses: Option<(SocketAddr, IpAddr)>,
    /// RDMA READs and atomics that the requester answers at once.
    pub responder_resources: u8,
    /// RDMA READs and atomics that the requester requests at once.
    pub initiator_depth: u8,
    /// Payload of a full packet.
    pub path_mtu: PathMtu,
    /// The application's private data, padded with zeros.
    pub private_data: Box<[u8]>,
}
