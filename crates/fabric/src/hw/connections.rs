//! Connections and their phases (see `connecting`).

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Instant;

use block::network_of;
use roce::{CmError, CmState};

use super::cma::{CmId, Resources};
use super::queue_pairs::Serial;
use crate::FabricError;
use crate::verbs::{CommId, Qpn};

/// The phase of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Address,
    Route,
    Asked,
    Requested,
    Accepted,
    Established,
    Closing,
}

/// A connection, established or not.
pub(super) struct Connection {
    pub(super) id: CmId,
    pub(super) phase: Phase,
    pub(super) peer: IpAddr,
    pub(super) pair: Option<(Serial, Qpn)>,
    /// Outstanding RDMA READs that the peer accepts and requests, if it has stated them.
    pub(super) resources: Resources,
    /// Private data of the request.
    pub(super) private_data: Box<[u8]>,
    pub(super) since: Instant,
}

/// All connections.
#[derive(Default)]
pub(super) struct Connections {
    pub(super) by_id: HashMap<u32, Connection>,
    next: u32,
}

/// Connections that peers requested and that are not yet established, in total and per peer.
const HALF_OPEN_MAX: usize = 256;
const HALF_OPEN_PER_PEER_MAX: usize = 64;
/// Connections of a peer's that were ended here, to which it has not agreed.
const CLOSING_PER_PEER_MAX: usize = 1024;

impl Connections {
    /// The number of the next connection.
    pub(super) fn next_id(&mut self) -> CommId {
        loop {
            self.next = self.next.wrapping_add(1);
            if self.next != 0 && !self.by_id.contains_key(&self.next) {
                return CommId(self.next);
            }
        }
    }

    pub(super) fn get(&self, id: CommId) -> Result<&Connection, FabricError> {
        let connection = self.by_id.get(&id.0);
        connection.ok_or_else(|| CmError::NoSuchConnection.into())
    }

    pub(super) fn in_phase(
        &mut self,
        id: CommId,
        phase: Phase,
    ) -> Result<&mut Connection, FabricError> {
        let connection = self.by_id.get_mut(&id.0).ok_or(CmError::NoSuchConnection)?;
        if connection.phase == phase {
            Ok(connection)
        } else {
            Err(CmError::State(connection.phase.as_state()).into())
        }
    }

    /// Whether there is room for one more request of a peer's.
    pub(super) fn has_room_for(&self, peer: IpAddr) -> bool {
        let network = network_of(peer);
        let (mut half_open, mut of_peer, mut closing) = (0, 0, 0);
        for other in self.by_id.values() {
            let is_of_peer = usize::from(network_of(other.peer) == network);
            match other.phase {
                Phase::Requested | Phase::Accepted => {
                    half_open += 1;
                    of_peer += is_of_peer;
                }
                Phase::Closing => closing += is_of_peer,
                _ => {}
            }
        }
        half_open < HALF_OPEN_MAX
            && of_peer < HALF_OPEN_PER_PEER_MAX
            && closing < CLOSING_PER_PEER_MAX
    }
}

impl Phase {
    /// The architecture's name for it.
    pub(super) const fn as_state(self) -> CmState {
        match self {
            Self::Address | Self::Route | Self::Asked => CmState::ReqSent,
            Self::Requested => CmState::ReqReceived,
            Self::Accepted => CmState::RepSent,
            Self::Established => CmState::Established,
            Self::Closing => CmState::DreqSent,
        }
    }
}
