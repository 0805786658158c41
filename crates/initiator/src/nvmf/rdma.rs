//! Queues of NVMe/RDMA: a queue pair each, and the session that speaks over it.

use std::{net::SocketAddr, time::Duration};

use nvme::host::{Command, CommandKey, ControllerFacts, NoRoom, Outcome};
use nvme::rdma::wire::{ConnectReply, ConnectRequest};
use nvme::rdma::{HostConfig, HostSession};
use nvme::wire::Sqe;
use nvme::wire::identify::sgls;
use session::{Buffers, RemoteKey};
use zerocopy::IntoBytes as _;

use super::transport::{NvmeConnection, QueueShape, Transport};
use crate::rdma::{Established, MessageHost, PairShape, Providers, RdmaConnection, WorkContext};
use crate::{ConnectError, ConnectionError, DeviceOptions, RdmaError, Url};

/// NVMe/RDMA.
#[derive(Debug)]
pub(crate) struct Rdma(Providers);

/// Commands with in-capsule data that are posted at once if software makes the packets and a
/// capsule takes several. With an adapter the order makes no difference.
const IN_CAPSULE_BATCH_MAX: u16 = 4;

impl Transport for Rdma {
    type Connection = RdmaConnection<HostSession>;

    const TRANSFER_MAX_BYTES: u64 = HostSession::TRANSFER_MAX_BYTES as u64;

    fn new(url: &Url, options: &DeviceOptions) -> Result<Self, ConnectError> {
        Ok(Self(Providers::new(url, options)))
    }

    fn connect(
        &mut self,
        address: SocketAddr,
        shape: &QueueShape,
    ) -> Result<RdmaConnection<HostSession>, ConnectError> {
        let entries = shape.in_flight_max + 1;
        let mut request = ConnectRequest::new(shape.queue.0, entries);
        request.controller.set(shape.controller_id);
        let capsule_bytes = size_of::<Sqe>() as u32 + shape.in_capsule_max_bytes;
        let pair = PairShape {
            keys: shape.keys,
            slots: shape.slots,
            slot_bytes: shape.slot_bytes,
            messages: shape.keys,
            message_bytes: capsule_bytes,
            receives: entries,
            receive_bytes: HostSession::RESPONSE_BYTES,
        };
        let queue = shape.queue.0;
        let (pair, established) = self.0.connect(address, queue, &pair, request.as_bytes())?;
        if ConnectReply::parse(&established.private_data).is_none() {
            let len_bytes = established.private_data.len();
            return Err(ConnectError::Rdma {
                address,
                source: Box::new(RdmaError::Reply { len_bytes }),
            });
        }
        let session = HostSession::new(HostConfig {
            keys: shape.keys,
            in_flight_max: shape.in_flight_max,
            in_capsule_max_bytes: shape.in_capsule_max_bytes,
            in_capsule_batch_max: in_capsule_batch_max(&established, capsule_bytes),
        });
        Ok(RdmaConnection::new(pair, session, shape.keys))
    }

    fn in_capsule_max_bytes(controller: &ControllerFacts) -> u32 {
        if controller.sgls & sgls::OFFSETS == 0 {
            return 0;
        }
        controller.in_capsule_max_bytes
    }

    fn poll_idle(&mut self) -> Option<Duration> {
        Some(self.0.poll_idle())
    }
}

/// See [`HostConfig::in_capsule_batch_max`].
fn in_capsule_batch_max(established: &Established, capsule_bytes: u32) -> u16 {
    // If each capsule is one packet, the order makes no difference.
    if established.is_software && established.path_mtu.bytes() < capsule_bytes {
        IN_CAPSULE_BATCH_MAX
    } else {
        u16::MAX
    }
}

impl MessageHost for HostSession {
    type Outcome = Outcome;

    #[inline]
    fn wants_transmit(&self) -> bool {
        self.wants_transmit()
    }

    fn in_flight(&self) -> u16 {
        self.in_flight()
    }

    fn poll_transmit(&mut self, work: &mut WorkContext<'_>) {
        self.poll_transmit(work);
    }

    fn handle_message(
        &mut self,
        message: &[u8],
        invalidated: Option<RemoteKey>,
        work: &mut WorkContext<'_>,
        done: &mut Vec<Outcome>,
    ) -> Result<(), ConnectionError> {
        self.handle_message(message, invalidated, work, done)
            .map_err(ConnectionError::RdmaProtocol)
    }

    fn handle_close(&mut self, work: &mut WorkContext<'_>) {
        self.handle_close(work);
    }

    fn key_of(outcome: &Outcome) -> u16 {
        outcome.key.0
    }

    fn is_success(outcome: &Outcome) -> bool {
        outcome.status.is_success()
    }
}

impl NvmeConnection for RdmaConnection<HostSession> {
    #[inline]
    fn submit(&mut self, key: CommandKey, command: &Command, _: &Buffers) -> Result<(), NoRoom> {
        self.session_mut().submit(key, command)
    }

    fn room(&self) -> u16 {
        self.session().room()
    }
}
