//! One connection.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use super::RemoteKey;
use super::state::{CmState, CmTransition};
use crate::Flow;
use crate::qp::{Connection, QpConfig};
use crate::wire::cm::{CommId, Message, Rep, Req};
use crate::wire::{MAD_LEN_BYTES, PathMtu, Psn, Qpn};

#[derive(Debug)]
pub(super) struct Conn {
    pub(super) state: CmState,
    /// In the order of requests of peers.
    pub(super) number: u64,
    /// From here to the peer.
    pub(super) flow: Flow,
    pub(super) tid: u64,
    pub(super) qpn: Option<Qpn>,
    pub(super) remote: Option<CommId>,
    pub(super) remote_qpn: Qpn,
    pub(super) remote_guid: u64,
    pub(super) agreed: Agreed,
    pub(super) resend: Option<Resend>,
    /// When something is to be done about it next.
    pub(super) deadline: Option<Instant>,
    /// Whether the peer requested more time, which is granted once.
    pub(super) was_extended: bool,
}

/// The parameters that the ends have agreed on so far.
#[derive(Clone, Copy, Debug)]
pub(super) struct Agreed {
    path_mtu: PathMtu,
    /// A starting PSN: on the passive side the peer's (we send from there), on the active side
    /// ours.
    psn: u32,
    /// RDMA READs and atomics that the peer answers at once (passive side), or our own bound
    /// (active side).
    resources: u8,
    /// RDMA READs and atomics that the peer requests.
    pub(super) peer_depth: u8,
    retry_max: u8,
    rnr_retry_max: u8,
    pub(super) cm_timeout: Duration,
    pub(super) cm_retries: u8,
}

impl Agreed {
    /// The shortest and the longest time between two replies.
    const CM_TIMEOUT_MIN: Duration = Duration::from_millis(100);
    const CM_TIMEOUT_MAX: Duration = Duration::from_secs(5);
    /// A reply is not sent more often than this, so that a connection is half open for 40 s at
    /// most.
    const CM_RETRIES_MAX: u8 = 7;

    pub(super) fn passive(req: &Req, path_mtu: PathMtu) -> Self {
        let timeout = req.local_cm_timeout().duration();
        Self {
            path_mtu,
            psn: req.starting_psn().get(),
            resources: req.responder_resources,
            peer_depth: req.initiator_depth,
            retry_max: req.retry_count(),
            rnr_retry_max: req.rnr_retry_count(),
            cm_timeout: timeout.clamp(Self::CM_TIMEOUT_MIN, Self::CM_TIMEOUT_MAX),
            cm_retries: req.cm_retries_max().min(Self::CM_RETRIES_MAX),
        }
    }

    pub(super) fn active(path_mtu: PathMtu, recv_psn: u32, config: &QpConfig) -> Self {
        Self {
            path_mtu,
            psn: recv_psn,
            resources: config.initiator_depth,
            peer_depth: 0,
            retry_max: super::Manager::RETRIES,
            rnr_retry_max: super::Manager::RETRIES,
            cm_timeout: super::Manager::RESPONSE_TIMEOUT.duration(),
            cm_retries: super::Manager::CM_RETRIES,
        }
    }

    /// The passive side's connection.
    pub(super) fn accept(&self, conn: &Conn, recv_psn: u32, config: &QpConfig) -> Connection {
        Connection {
            flow: conn.flow,
            remote_qpn: conn.remote_qpn,
            path_mtu: self.path_mtu,
            send_psn: Psn::new(self.psn),
            recv_psn: Psn::new(recv_psn),
            initiator_depth: config.initiator_depth.min(self.resources),
            retry_max: self.retry_max,
            rnr_retry_max: self.rnr_retry_max,
        }
    }

    /// The active side's connection.
    pub(super) fn replied(&self, flow: Flow, rep: &Rep) -> Connection {
        Connection {
            flow,
            remote_qpn: rep.qpn(),
            path_mtu: self.path_mtu,
            send_psn: rep.starting_psn(),
            recv_psn: Psn::new(self.psn),
            initiator_depth: self.resources.min(rep.responder_resources),
            retry_max: self.retry_max,
            rnr_retry_max: rep.rnr_retry_count(),
        }
    }
}

/// A message that is sent again until it is answered.
#[derive(Debug)]
pub(super) struct Resend {
    pub(super) mad: [u8; MAD_LEN_BYTES],
    pub(super) interval: Duration,
    pub(super) left: u8,
}

impl Resend {
    /// `message`, once and then `retries` times more.
    pub(super) fn new(message: &Message, tid: u64, interval: Duration, retries: u8) -> Self {
        Self {
            mad: message.to_mad(tid),
            interval,
            left: retries,
        }
    }
}

impl Conn {
    pub(super) const fn new(state: CmState, flow: Flow, tid: u64, agreed: Agreed) -> Self {
        Self {
            state,
            number: 0,
            flow,
            tid,
            qpn: None,
            remote: None,
            remote_qpn: Qpn::new(0),
            remote_guid: 0,
            agreed,
            resend: None,
            deadline: None,
            was_extended: false,
        }
    }

    pub(super) const fn peer(&self) -> IpAddr {
        self.flow.remote().ip()
    }

    pub(super) fn id_key(&self) -> Option<RemoteKey> {
        let remote = self.remote?;
        Some((self.peer(), self.remote_guid, remote.0))
    }

    pub(super) fn qpn_key(&self) -> Option<RemoteKey> {
        self.remote?;
        Some((self.peer(), self.remote_guid, self.remote_qpn.get()))
    }

    pub(super) fn transition(&mut self, transition: CmTransition) {
        self.state = self
            .state
            .apply(transition)
            .expect("callers look at the state before they change it");
    }
}
