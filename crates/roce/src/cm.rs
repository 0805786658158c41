//! The connection manager.
//!
//! Read first: InfiniBand Architecture volume 1, chapter 12, "communication management".
//!
//! It establishes and ends connections by messages that may be lost, duplicated or forged. A peer
//! is identified by the source address of its datagrams; identifiers that it names are looked up
//! only among connections of that address. Connections that are not yet established are bounded per
//! peer and in total.

mod connection;
mod messages;
mod peers;
mod state;

use std::collections::{HashMap, HashSet, VecDeque};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use crate::Flow;
use crate::backend::Backend;
use crate::config::{CmLimits, EndpointConfig};
use crate::deadlines::Deadlines;
use crate::event::Event;
use crate::qp::{Connection, QpConfig};
use crate::wire::cm::{
    CommId, Gid, IpCmHeader, Message, Path, Rej, RejReason, RejectedMessage, Rep, Req, ServiceId,
    TimeCode,
};
use crate::wire::{MAD_LEN_BYTES, PathMtu, Qpn, U24};
use connection::{Agreed, Conn, Resend};
use peers::Peers;
pub use state::{CmState, CmTransition};
use zerocopy::{FromZeros, IntoBytes};

/// The parameters of a connection request.
#[derive(Clone, Copy, Debug)]
pub struct ConnectParams<'a> {
    /// From here to the peer.
    pub flow: Flow,
    /// The service. In the TCP port space, rdma_cm's header is put before the private data.
    pub service: ServiceId,
    /// Payload of a full packet. A long one is an offer. If the peer does not know of it, or the
    /// private data leave no room for it (12 bytes), 4096 bytes apply.
    pub path_mtu: PathMtu,
    /// The application's private data: at most 56 bytes.
    pub private_data: &'a [u8],
}

/// Why the connection manager refused a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CmError {
    /// The connection does not exist, or no longer.
    #[error("no such connection")]
    NoSuchConnection,
    /// The connection is not in a state for that.
    #[error("the connection is {0:?}, which does not permit this")]
    State(CmState),
    /// As many connections as allowed.
    #[error("{0} connections are open, the maximum; raise the limit of connections")]
    TooMany(usize),
    /// More private data than the message has room for.
    #[error("{len} bytes of private data are too many; the maximum is {max}")]
    PrivateData {
        /// How many were given.
        len: usize,
        /// How many fit.
        max: usize,
    },
    /// The queue pair does not exist, or is connected already.
    #[error("the queue pair does not exist or is in use")]
    QueuePair,
}

/// How often messages were dropped, and why.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CmCounters {
    /// Requests that were rejected since a bound was reached.
    pub refused_by_limit: u64,
    /// Messages that match no connection, or came from another address than its peer's.
    pub unmatched: u64,
    /// Messages that were not sent since too many waited.
    pub outbox_full: u64,
}

/// An outgoing message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outgoing {
    pub(crate) flow: Flow,
    pub(crate) mad: [u8; MAD_LEN_BYTES],
}

/// Names a connection as its peer knows it: address, channel adapter, and queue pair or
/// communication identifier there.
type RemoteKey = (IpAddr, u64, u32);

/// The connection manager.
#[derive(Debug)]
pub(crate) struct Manager {
    limits: CmLimits,
    ca_guid: u64,
    path_mtu_max: PathMtu,
    /// Our identifiers are the offset plus multiples of the stride.
    id_stride: u32,
    id_offset: u32,
    services: HashSet<u64>,
    conns: HashMap<u32, Conn>,
    by_remote_id: HashMap<RemoteKey, CommId>,
    by_remote_qpn: HashMap<RemoteKey, CommId>,
    peers: Peers,
    time_wait: VecDeque<CommId>,
    deadlines: Deadlines<CommId>,
    outbox: VecDeque<Outgoing>,
    events: VecDeque<Event>,
    next_tid: u64,
    /// The number of the next request.
    next_number: u64,
    counters: CmCounters,
}

impl Manager {
    /// Messages that wait to be sent.
    const OUTBOX_MAX: usize = 512;
    /// How long our own application may take to answer a request.
    const ANSWER_MAX: Duration = Duration::from_secs(30);
    /// Within which time we say that we answer messages: 2^18 · 4.096 µs are about a second.
    const RESPONSE_TIMEOUT: TimeCode = TimeCode::new(18);
    /// The acknowledgement timeout that we advertise to peers: 2^15 · 4.096 µs are 134 ms.
    const ACK_TIMEOUT: TimeCode = TimeCode::new(15);
    /// How often we send CM messages again.
    const CM_RETRIES: u8 = 7;
    /// How often packets are sent again, as asked of peers.
    const RETRIES: u8 = 7;

    pub(crate) fn new(config: &EndpointConfig) -> Self {
        Self {
            limits: config.cm,
            ca_guid: config.ca_guid,
            path_mtu_max: config.path_mtu_max,
            id_stride: config.number_stride,
            id_offset: config.number_offset,
            services: HashSet::new(),
            conns: HashMap::new(),
            by_remote_id: HashMap::new(),
            by_remote_qpn: HashMap::new(),
            peers: Peers::default(),
            time_wait: VecDeque::new(),
            deadlines: Deadlines::default(),
            outbox: VecDeque::new(),
            events: VecDeque::new(),
            next_tid: 0,
            next_number: 0,
            counters: CmCounters::default(),
        }
    }

    pub(crate) fn listen(&mut self, service: ServiceId) {
        self.services.insert(service.0);
    }

    pub(crate) fn stop_listening(&mut self, service: ServiceId) {
        self.services.remove(&service.0);
    }

    pub(crate) const fn counters(&self) -> CmCounters {
        self.counters
    }

    /// Connections that are not in time-wait.
    pub(crate) fn connections(&self) -> usize {
        self.conns.len() - self.time_wait.len()
    }

    pub(crate) fn state(&self, id: CommId) -> Option<CmState> {
        self.conns.get(&id.0).map(|conn| conn.state)
    }

    pub(crate) fn next_outgoing(&self) -> Option<&Outgoing> {
        self.outbox.front()
    }

    pub(crate) fn outgoing_sent(&mut self) {
        self.outbox.pop_front();
    }

    pub(crate) fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.deadlines.next()
    }

    /// Asks a peer for a connection of `qpn`.
    pub(crate) fn connect<B: Backend>(
        &mut self,
        now: Instant,
        qpn: Qpn,
        config: &QpConfig,
        params: &ConnectParams<'_>,
        backend: &mut B,
    ) -> Result<CommId, CmError> {
        if self.connections() >= self.limits.connections_max {
            return Err(CmError::TooMany(self.limits.connections_max));
        }
        let id = self.new_id(backend);
        let recv_psn = backend.random() as u32;
        let local = params.flow.local();
        let remote = params.flow.remote();
        let path = Path::roce(
            Gid::from_ip(local.ip()),
            Gid::from_ip(remote.ip()),
            Self::ACK_TIMEOUT,
        );
        let mut req = Req::reliable(params.service, path);
        req.local_comm_id = id.0.into();
        req.ca_guid = self.ca_guid.into();
        req.qpn = U24::new(qpn.get());
        req.responder_resources = config.responder_resources;
        req.initiator_depth = config.initiator_depth;
        req.starting_psn = U24::new(recv_psn);
        req.set_cm_timeouts(Self::RESPONSE_TIMEOUT);
        req.set_retry_counts(Self::RETRIES, Self::RETRIES);
        req.set_path_mtu(params.path_mtu);
        req.set_cm_retries_max(Self::CM_RETRIES);
        let header = params
            .service
            .tcp_port()
            .map(|_| IpCmHeader::new(local, remote.ip()));
        let header = header.as_ref().map_or(&[][..], IntoBytes::as_bytes);
        fill(&mut req.private_data, header, params.private_data)?;
        self.next_tid += 1;
        let agreed = Agreed::active(params.path_mtu, recv_psn, config);
        let mut conn = Conn::new(CmState::ReqSent, params.flow, self.next_tid, agreed);
        conn.qpn = Some(qpn);
        conn.resend = Some(Resend::new(
            &Message::Req(req),
            conn.tid,
            Self::RESPONSE_TIMEOUT.duration(),
            Self::CM_RETRIES,
        ));
        self.peers.add(conn.peer(), false);
        self.conns.insert(id.0, conn);
        self.send_again(now, id);
        Ok(id)
    }

    /// Accepts a request: the queue pair's connection, which is to be connected before anything is
    /// sent.
    pub(crate) fn accept<B: Backend>(
        &mut self,
        now: Instant,
        id: CommId,
        qpn: Qpn,
        config: &QpConfig,
        private_data: &[u8],
        backend: &mut B,
    ) -> Result<Connection, CmError> {
        let ca_guid = self.ca_guid;
        let conn = self.conn_in(id, CmState::ReqReceived)?;
        let remote = conn.remote.unwrap_or_default();
        let recv_psn = backend.random() as u32;
        let connection = conn.agreed.accept(conn, recv_psn, config);
        let mut rep = Rep {
            local_comm_id: id.0.into(),
            remote_comm_id: remote.0.into(),
            qpn: U24::new(qpn.get()),
            starting_psn: U24::new(recv_psn),
            responder_resources: config.responder_resources.min(conn.agreed.peer_depth),
            // Linux refuses every RDMA READ of a peer that says 0.
            initiator_depth: connection.initiator_depth.max(1),
            ca_guid: ca_guid.into(),
            ..Rep::new_zeroed()
        };
        rep.set_rnr_retry_count(Self::RETRIES);
        fill(&mut rep.private_data, &[], private_data)?;
        conn.qpn = Some(qpn);
        conn.resend = Some(Resend::new(
            &Message::Rep(rep),
            conn.tid,
            conn.agreed.cm_timeout,
            conn.agreed.cm_retries,
        ));
        conn.transition(CmTransition::Accept);
        self.send_again(now, id);
        Ok(connection)
    }

    /// Rejects a request.
    pub(crate) fn reject(
        &mut self,
        id: CommId,
        reason: RejReason,
        private_data: &[u8],
    ) -> Result<(), CmError> {
        let max = Rej::new_zeroed().private_data.len();
        if private_data.len() > max {
            let len = private_data.len();
            return Err(CmError::PrivateData { len, max });
        }
        let conn = self.conn_in(id, CmState::ReqReceived)?;
        let remote = conn.remote.unwrap_or_default();
        let rej = Rej::new(id, remote, RejectedMessage::Req, reason, private_data);
        let (flow, tid) = (conn.flow, conn.tid);
        self.send(flow, &Message::Rej(rej), tid);
        self.remove(id);
        Ok(())
    }

    /// Ends a connection, or the attempt to make one.
    pub(crate) fn disconnect(&mut self, now: Instant, id: CommId) -> Result<(), CmError> {
        let conn = self.conns.get_mut(&id.0).ok_or(CmError::NoSuchConnection)?;
        match conn.state {
            CmState::RepSent | CmState::Established => {
                self.start_disconnecting(now, id);
                Ok(())
            }
            CmState::ReqSent => {
                let rej = Rej::new(
                    id,
                    CommId::default(),
                    RejectedMessage::Other,
                    RejReason::CONSUMER,
                    &[],
                );
                let (flow, tid) = (conn.flow, conn.tid);
                self.send(flow, &Message::Rej(rej), tid);
                self.remove(id);
                Ok(())
            }
            CmState::ReqReceived => self.reject(id, RejReason::CONSUMER, &[]),
            CmState::DreqSent | CmState::TimeWait | CmState::Closed => {
                Err(CmError::State(conn.state))
            }
        }
    }

    /// The peer has sent a packet to the queue pair, so it has the reply though its answer was
    /// lost.
    pub(crate) fn handle_traffic(&mut self, id: CommId) {
        if self.state(id) == Some(CmState::RepSent) {
            self.establish(id);
        }
    }

    fn conn_in(&mut self, id: CommId, state: CmState) -> Result<&mut Conn, CmError> {
        let conn = self.conns.get_mut(&id.0).ok_or(CmError::NoSuchConnection)?;
        if conn.state == state {
            Ok(conn)
        } else {
            Err(CmError::State(conn.state))
        }
    }

    /// A free communication identifier. The loop ends soon, since few of 2^32 are taken.
    fn new_id<B: Backend>(&self, backend: &mut B) -> CommId {
        loop {
            let random = backend.random() as u32;
            let id = (random - random % self.id_stride).checked_add(self.id_offset);
            if let Some(id) = id.filter(|id| *id != 0 && !self.conns.contains_key(id)) {
                return CommId(id);
            }
        }
    }

    fn send(&mut self, flow: Flow, message: &Message, tid: u64) {
        self.post(flow, &message.to_mad(tid));
    }

    fn post(&mut self, flow: Flow, mad: &[u8; MAD_LEN_BYTES]) {
        if self.outbox.len() >= Self::OUTBOX_MAX {
            self.counters.outbox_full += 1;
            return;
        }
        self.outbox.push_back(Outgoing { flow, mad: *mad });
    }
}

/// Puts `header` and `data` at the start of a message's private data.
fn fill(private_data: &mut [u8], header: &[u8], data: &[u8]) -> Result<(), CmError> {
    let max = private_data.len() - header.len();
    let (front, rest) = private_data.split_at_mut(header.len());
    front.copy_from_slice(header);
    let room = rest.get_mut(..data.len()).ok_or(CmError::PrivateData {
        len: data.len(),
        max,
    })?;
    room.copy_from_slice(data);
    Ok(())
}
