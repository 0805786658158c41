//! Handling of messages and timeouts.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use block::{Stranger, network_of, oldest_of_the_greediest};

use super::connection::{Agreed, Conn, Resend};
use super::{CmState, CmTransition, Manager};
use crate::Flow;
use crate::backend::Backend;
use crate::event::{ConnectRequest, Event};
use crate::qp::Connection;
use crate::wire::cm::{
    CommId, Drep, Dreq, IpCmHeader, Message, Mra, MraMessage, Rej, RejReason, RejectedMessage, Rep,
    Req, Rtu, TimeCode,
};
use zerocopy::FromBytes;

/// An accepted request: its identifier, and the connection for its queue pair.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Replied {
    pub(crate) id: CommId,
    pub(crate) connection: Connection,
}

/// A request that has been checked.
struct Checked {
    agreed: Agreed,
    event: ConnectRequest,
}

impl Manager {
    /// How much time a peer may ask for, at most.
    const EXTENSION_MAX: Duration = Duration::from_secs(70);
    /// How long we say that our application may take: 2^23 · 4.096 µs are 34 s.
    const SERVICE_TIMEOUT: TimeCode = TimeCode::new(23);

    /// Handles a message. `flow` leads back to its sender. If it establishes a connection that we
    /// requested, the caller must connect the queue pair.
    pub(crate) fn handle_message<B: Backend>(
        &mut self,
        now: Instant,
        flow: Flow,
        (tid, message): (u64, Message),
        backend: &mut B,
    ) -> Option<Replied> {
        match message {
            Message::Req(req) => self.on_req(now, flow, tid, &req, backend),
            Message::Rep(rep) => return self.on_rep(now, flow, tid, &rep),
            Message::Rtu(rtu) => self.on_rtu(flow, &rtu),
            Message::Rej(rej) => self.on_rej(flow, &rej),
            Message::Mra(mra) => self.on_mra(now, flow, &mra),
            Message::Dreq(dreq) => self.on_dreq(now, flow, tid, &dreq),
            Message::Drep(drep) => self.on_drep(now, flow, &drep),
        }
        None
    }

    /// Handles due deadlines: retransmits, gives up, drops ended connections.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        while let Some(id) = self.deadlines.pop_due(now) {
            let Some(conn) = self.conns.get_mut(&id.0) else {
                continue;
            };
            conn.deadline = None;
            if let Some(resend) = conn.resend.as_mut().filter(|resend| resend.left > 0) {
                resend.left -= 1;
                self.send_again(now, id);
                continue;
            }
            match conn.state {
                CmState::TimeWait => self.remove(id),
                CmState::DreqSent => self.end(now, id),
                CmState::ReqSent | CmState::RepSent | CmState::ReqReceived => self.give_up(id),
                CmState::Established | CmState::Closed => {}
            }
        }
    }

    /// Sends a connection's message (again), and sets its timer.
    pub(super) fn send_again(&mut self, now: Instant, id: CommId) {
        let Some(conn) = self.conns.get_mut(&id.0) else {
            return;
        };
        let Some(resend) = &conn.resend else {
            return;
        };
        let due = now + resend.interval;
        let (flow, mad) = (conn.flow, resend.mad);
        self.deadlines.set(&mut conn.deadline, id, Some(due));
        self.post(flow, &mad);
    }

    fn on_req<B: Backend>(
        &mut self,
        now: Instant,
        flow: Flow,
        tid: u64,
        req: &Req,
        backend: &mut B,
    ) {
        let peer = flow.remote().ip();
        let by_id = (peer, req.ca_guid.get(), req.local().0);
        if let Some(id) = self.by_remote_id.get(&by_id).copied() {
            self.on_duplicate_req(now, id, flow, tid, req);
            return;
        }
        let by_qpn = (peer, req.ca_guid.get(), req.qpn().get());
        if let Some(id) = self.by_remote_qpn.get(&by_qpn).copied() {
            // The peer has forgotten a connection that we still have (IBTA volume 1, "stale
            // connection").
            self.reject_req(flow, tid, req, RejReason::STALE_CONNECTION);
            self.start_disconnecting(now, id);
            return;
        }
        let checked = match self.check_req(flow, req, peer) {
            Ok(checked) => checked,
            Err(reason) => {
                self.reject_req(flow, tid, req, reason);
                return;
            }
        };
        let id = self.new_id(backend);
        let mut conn = Conn::new(CmState::ReqReceived, flow, tid, checked.agreed);
        conn.remote = Some(req.local());
        conn.remote_qpn = req.qpn();
        conn.remote_guid = req.ca_guid.get();
        conn.number = self.next_number;
        self.next_number += 1;
        let due = now + Self::ANSWER_MAX;
        self.deadlines.set(&mut conn.deadline, id, Some(due));
        self.by_remote_id.insert(by_id, id);
        self.by_remote_qpn.insert(by_qpn, id);
        self.peers.add(peer, true);
        self.conns.insert(id.0, conn);
        let event = ConnectRequest {
            id,
            ..checked.event
        };
        self.events.push_back(Event::Request(event));
    }

    /// Checks whether a request can be accepted. Returns the reason if not.
    fn check_req(&mut self, flow: Flow, req: &Req, peer: IpAddr) -> Result<Checked, RejReason> {
        if !req.is_reliable_connected() {
            return Err(RejReason::INVALID_TRANSPORT);
        }
        if !self.services.contains(&req.service_id.get()) {
            return Err(RejReason::INVALID_SERVICE_ID);
        }
        // Packets will have to come from the source address of the request.
        if req.primary.local_gid.to_ip() != peer {
            return Err(RejReason::INVALID_GID);
        }
        let path_mtu = req.path_mtu().filter(|mtu| *mtu <= self.path_mtu_max);
        let path_mtu = path_mtu.ok_or(RejReason::INVALID_MTU)?;
        let mut private_data = &req.private_data[..];
        let mut addresses = None;
        if req.service().tcp_port().is_some() {
            let (header, rest) =
                IpCmHeader::read_from_prefix(private_data).map_err(|_| RejReason::UNSUPPORTED)?;
            private_data = rest;
            let both = header.addresses().ok_or(RejReason::UNSUPPORTED)?;
            if both.0.ip() != peer {
                return Err(RejReason::INVALID_GID);
            }
            addresses = Some(both);
        }
        if self.is_full_for(peer) || !self.has_room_for_strangers() {
            self.counters.refused_by_limit += 1;
            return Err(RejReason::NO_RESOURCES);
        }
        Ok(Checked {
            agreed: Agreed::passive(req, path_mtu),
            event: ConnectRequest {
                id: CommId::default(),
                service: req.service(),
                flow,
                addresses,
                responder_resources: req.responder_resources,
                initiator_depth: req.initiator_depth,
                path_mtu,
                private_data: private_data.into(),
            },
        })
    }

    fn is_full_for(&self, peer: IpAddr) -> bool {
        let counts = self.peers.of(peer);
        self.connections() >= self.limits.connections_max
            || counts.all >= self.limits.connections_per_peer_max
            || counts.half_open >= self.limits.half_open_per_peer_max
    }

    /// Whether one more half-open connection fits. If not, the oldest of the network with most of
    /// them makes room, of those that wait for their peer. The application has answered these, so
    /// their events are bounded.
    fn has_room_for_strangers(&mut self) -> bool {
        if self.peers.half_open() < self.limits.half_open_max {
            return true;
        }
        let waiting = self.conns.iter();
        let waiting = waiting.filter(|(_, conn)| conn.state == CmState::RepSent);
        let oldest = oldest_of_the_greediest(waiting.map(|(&id, conn)| Stranger {
            number: (conn.number, id),
            network: network_of(conn.peer()),
            held: 1,
        }));
        if let Some((_, id)) = oldest {
            self.give_up(CommId(id));
        }
        oldest.is_some()
    }

    fn on_duplicate_req(&mut self, now: Instant, id: CommId, flow: Flow, tid: u64, req: &Req) {
        let Some(conn) = self.conns.get(&id.0) else {
            return;
        };
        match conn.state {
            CmState::ReqReceived => {
                let mra = Mra::new(id, req.local(), MraMessage::Req, Self::SERVICE_TIMEOUT);
                self.send(flow, &Message::Mra(mra), tid);
            }
            CmState::RepSent => self.send_again(now, id),
            CmState::TimeWait => {
                self.reject_req(flow, tid, req, RejReason::STALE_CONNECTION);
            }
            CmState::ReqSent | CmState::Established | CmState::DreqSent | CmState::Closed => {}
        }
    }

    fn reject_req(&mut self, flow: Flow, tid: u64, req: &Req, reason: RejReason) {
        let none = CommId::default();
        let rej = Rej::new(none, req.local(), RejectedMessage::Req, reason, &[]);
        self.send(flow, &Message::Rej(rej), tid);
    }

    fn on_rep(&mut self, now: Instant, flow: Flow, tid: u64, rep: &Rep) -> Option<Replied> {
        let id = rep.remote();
        let Some(conn) = self.matching(id, flow) else {
            let reason = RejReason::INVALID_COMM_ID;
            self.reject_rep(flow, tid, rep, reason);
            return None;
        };
        match conn.state {
            CmState::ReqSent => {}
            CmState::Established if conn.remote == Some(rep.local()) => {
                let (flow, tid) = (conn.flow, conn.tid);
                let rtu = Rtu::new(id, rep.local());
                self.send(flow, &Message::Rtu(rtu), tid);
                return None;
            }
            _ => {
                self.counters.unmatched += 1;
                return None;
            }
        }
        conn.remote = Some(rep.local());
        conn.remote_qpn = rep.qpn();
        conn.remote_guid = rep.ca_guid.get();
        let (id_key, qpn_key) = (conn.id_key()?, conn.qpn_key()?);
        if self.by_remote_id.contains_key(&id_key) || self.by_remote_qpn.contains_key(&qpn_key) {
            return self.on_stale_rep(now, flow, tid, rep, id);
        }
        self.by_remote_id.insert(id_key, id);
        self.by_remote_qpn.insert(qpn_key, id);
        let conn = self.conns.get_mut(&id.0)?;
        conn.transition(CmTransition::Ready);
        conn.resend = None;
        self.deadlines.set(&mut conn.deadline, id, None);
        let connection = conn.agreed.replied(conn.flow, rep);
        let qpn = conn.qpn?;
        let (flow, tid) = (conn.flow, conn.tid);
        self.send(flow, &Message::Rtu(Rtu::new(id, rep.local())), tid);
        self.events.push_back(Event::Connected {
            id,
            qpn,
            path_mtu: connection.path_mtu,
            private_data: rep.private_data.into(),
        });
        Some(Replied { id, connection })
    }

    /// The reply names a queue pair that another connection uses: that connection is stale, and
    /// this one is rejected.
    fn on_stale_rep(
        &mut self,
        now: Instant,
        flow: Flow,
        tid: u64,
        rep: &Rep,
        id: CommId,
    ) -> Option<Replied> {
        let conn = self.conns.get_mut(&id.0)?;
        let qpn = conn.qpn;
        let other = self.by_remote_qpn.get(&conn.qpn_key()?).copied();
        // This connection owns neither entry, so they must not go with it.
        conn.remote = None;
        self.reject_rep(flow, tid, rep, RejReason::STALE_CONNECTION);
        self.remove(id);
        if let Some(other) = other {
            self.start_disconnecting(now, other);
        }
        self.events.push_back(Event::Rejected {
            id,
            qpn,
            reason: RejReason::STALE_CONNECTION,
            private_data: Box::default(),
        });
        None
    }

    fn reject_rep(&mut self, flow: Flow, tid: u64, rep: &Rep, reason: RejReason) {
        let (local, remote) = (rep.remote(), rep.local());
        let rej = Rej::new(local, remote, RejectedMessage::Rep, reason, &[]);
        self.send(flow, &Message::Rej(rej), tid);
    }

    fn on_rtu(&mut self, flow: Flow, rtu: &Rtu) {
        let id = rtu.remote();
        let state = self
            .matching(id, flow)
            .filter(|conn| conn.remote == Some(rtu.local()))
            .map(|conn| conn.state);
        match state {
            Some(CmState::RepSent) => self.establish(id),
            Some(_) => {}
            None => self.counters.unmatched += 1,
        }
    }

    /// The passive side knows that the active side has the reply.
    pub(super) fn establish(&mut self, id: CommId) {
        let Some(conn) = self.conns.get_mut(&id.0) else {
            return;
        };
        conn.transition(CmTransition::Ready);
        conn.resend = None;
        self.deadlines.set(&mut conn.deadline, id, None);
        self.peers.complete(conn.peer());
        if let Some(qpn) = conn.qpn {
            self.events.push_back(Event::Established { id, qpn });
        }
    }

    fn on_rej(&mut self, flow: Flow, rej: &Rej) {
        let mut id = rej.remote();
        if rej.reason() == RejReason::TIMEOUT {
            // A sender that gives up before it knows our identifier names itself by its GUID
            // instead.
            let guid = u64::from_be_bytes(*rej.info.first_chunk().unwrap_or(&[0; 8]));
            let key = (flow.remote().ip(), guid, rej.local().0);
            id = self.by_remote_id.get(&key).copied().unwrap_or(id);
        }
        let Some(conn) = self.matching(id, flow) else {
            self.counters.unmatched += 1;
            return;
        };
        let is_peer = conn.remote.is_none_or(|remote| remote == rej.local());
        if !is_peer
            || !matches!(
                conn.state,
                CmState::ReqSent | CmState::RepSent | CmState::ReqReceived
            )
        {
            self.counters.unmatched += 1;
            return;
        }
        let qpn = conn.qpn;
        self.remove(id);
        self.events.push_back(Event::Rejected {
            id,
            qpn,
            reason: rej.reason(),
            private_data: rej.private_data.as_slice().into(),
        });
    }

    /// The peer needs more time.
    fn on_mra(&mut self, now: Instant, flow: Flow, mra: &Mra) {
        let id = mra.remote();
        let is_peer = |conn: &&mut Conn| conn.flow.same_addresses(&flow);
        let Some(conn) = self.conns.get_mut(&id.0).filter(is_peer) else {
            self.counters.unmatched += 1;
            return;
        };
        if conn.was_extended || !matches!(conn.state, CmState::ReqSent | CmState::RepSent) {
            return;
        }
        conn.was_extended = true;
        let due = now + mra.service_timeout().duration().min(Self::EXTENSION_MAX);
        if conn.deadline.is_none_or(|deadline| deadline < due) {
            self.deadlines.set(&mut conn.deadline, id, Some(due));
        }
    }

    fn on_dreq(&mut self, now: Instant, flow: Flow, tid: u64, dreq: &Dreq) {
        let id = dreq.remote();
        let drep = Message::Drep(Drep::new(id, dreq.local()));
        let Some(conn) = self.conns.get_mut(&id.0) else {
            // The peer does not know that we have forgotten it.
            self.send(flow, &drep, tid);
            return;
        };
        let is_peer = conn.flow.same_addresses(&flow)
            && conn.remote == Some(dreq.local())
            && conn.qpn == Some(dreq.remote_qpn());
        if !is_peer {
            self.counters.unmatched += 1;
            return;
        }
        match conn.state {
            CmState::RepSent | CmState::Established | CmState::DreqSent => {
                self.send(flow, &drep, tid);
                self.end(now, id);
            }
            CmState::TimeWait => self.send(flow, &drep, tid),
            CmState::ReqReceived | CmState::ReqSent | CmState::Closed => {
                self.counters.unmatched += 1;
            }
        }
    }

    fn on_drep(&mut self, now: Instant, flow: Flow, drep: &Drep) {
        let id = drep.remote();
        let is_answer = self
            .matching(id, flow)
            .is_some_and(|c| c.state == CmState::DreqSent && c.remote == Some(drep.local()));
        if is_answer {
            self.end(now, id);
        } else {
            self.counters.unmatched += 1;
        }
    }

    /// Sends the peer a disconnect request, if the connection's state allows it.
    pub(super) fn start_disconnecting(&mut self, now: Instant, id: CommId) {
        let Some(conn) = self.conns.get_mut(&id.0) else {
            return;
        };
        if conn.state.apply(CmTransition::Disconnect).is_none() {
            return;
        }
        if conn.state.is_half_open() {
            self.peers.complete(conn.peer());
        }
        conn.transition(CmTransition::Disconnect);
        let remote = conn.remote.unwrap_or_default();
        let dreq = Message::Dreq(Dreq::new(id, remote, conn.remote_qpn));
        self.next_tid += 1;
        let timeout = Self::RESPONSE_TIMEOUT.duration();
        conn.resend = Some(Resend::new(&dreq, self.next_tid, timeout, Self::CM_RETRIES));
        self.send_again(now, id);
    }

    /// The connection has ended: keep its numbers for the time-wait.
    fn end(&mut self, now: Instant, id: CommId) {
        let Some(conn) = self.conns.get_mut(&id.0) else {
            return;
        };
        let peer = conn.peer();
        let was_half_open = conn.state.is_half_open();
        conn.transition(CmTransition::Ended);
        conn.resend = None;
        let due = now + self.limits.time_wait;
        self.deadlines.set(&mut conn.deadline, id, Some(due));
        if let Some(qpn) = conn.qpn {
            self.events.push_back(Event::Disconnected { id, qpn });
        }
        self.peers.remove(peer, was_half_open);
        self.time_wait.push_back(id);
        if self.time_wait.len() > self.limits.time_wait_max {
            let oldest = self.time_wait[0];
            self.remove(oldest);
        }
    }

    /// The peer, or our application, does not answer.
    fn give_up(&mut self, id: CommId) {
        let Some(conn) = self.conns.get(&id.0) else {
            return;
        };
        let message = match conn.state {
            CmState::RepSent => RejectedMessage::Rep,
            CmState::ReqReceived => RejectedMessage::Req,
            _ => RejectedMessage::Other,
        };
        let remote = conn.remote.unwrap_or_default();
        let mut rej = Rej::new(id, remote, message, RejReason::TIMEOUT, &[]);
        if conn.remote.is_none() {
            let guid = self.ca_guid.to_be_bytes();
            rej.info[..guid.len()].copy_from_slice(&guid);
            rej.info_len = (guid.len() as u8) << 1;
        }
        let (flow, tid, qpn) = (conn.flow, conn.tid, conn.qpn);
        self.send(flow, &Message::Rej(rej), tid);
        self.remove(id);
        self.events.push_back(Event::Unreachable { id, qpn });
    }

    /// Forgets a connection.
    pub(super) fn remove(&mut self, id: CommId) {
        let Some(mut conn) = self.conns.remove(&id.0) else {
            return;
        };
        if conn.state == CmState::TimeWait {
            self.time_wait.retain(|other| *other != id);
        } else {
            self.peers.remove(conn.peer(), conn.state.is_half_open());
        }
        conn.transition(CmTransition::Close);
        self.deadlines.set(&mut conn.deadline, id, None);
        if let Some(key) = conn.id_key() {
            self.by_remote_id.remove(&key);
        }
        if let Some(key) = conn.qpn_key() {
            self.by_remote_qpn.remove(&key);
        }
    }

    /// The connection `id`, if its peer is at the other end of `flow`.
    fn matching(&mut self, id: CommId, flow: Flow) -> Option<&mut Conn> {
        self.conns
            .get_mut(&id.0)
            .filter(|conn| conn.flow.same_addresses(&flow))
    }
}
