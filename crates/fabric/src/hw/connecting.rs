//! Connections, by librdmacm.
//!
//! Its identifiers know queue pairs only by number, so this module changes the states of queue
//! pairs itself, with the attributes that the identifier gives:
//!
//! ```text
//!  connect: Address ──► Route ──► Asked ──response──► Established ──► Closing ──► gone
//!  accept:  Requested ──accept──► Accepted ──established──┘
//! ```

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use roce::wire::cm::ServiceId;
use roce::wire::{RnrTimer, UDP_PORT};
use roce::{CmError, Flow};

use super::adapter::Hw;
use super::cma::{CmEvent, CmId, Key, Parameters, Resources};
use super::connections::{Connection, Phase};
use super::queue_pairs::Serial;
use super::regions::remote_rights;
use super::sys::{async_event, cm_event, qp_attr_mask, qp_state};
use crate::FabricError;
use crate::provider::ConnectTo;
use crate::verbs::{CommId, ConnectRequest, Event, PathMtu, QpFailure, QpState, Qpn, RejReason};

/// Private data of a request, of a reply and of a rejection.
const REQUEST_DATA_MAX: usize = 56;
const REPLY_DATA_MAX: usize = 196;
const REJECTION_DATA_MAX: usize = 148;
/// How long the application may take to answer a request.
const ANSWER_MAX: Duration = Duration::from_secs(30);
/// How long a peer may take to confirm a disconnect. Linux uses the time that the peer requested,
/// which may be hours.
const CLOSING_MAX: Duration = Duration::from_secs(10);
/// The interval of checks whether a device has the address, while none has it.
const SEARCH_INTERVAL: Duration = Duration::from_secs(1);
/// Events in a round. Each may cost a few system calls, which delay other work.
const EVENTS_PER_ROUND: usize = 32;

impl Hw {
    /// Asks for a connection.
    pub(super) fn request_connection(
        &mut self,
        qpn: Qpn,
        to: &ConnectTo<'_>,
    ) -> Result<CommId, FabricError> {
        check_data(to.private_data, REQUEST_DATA_MAX)?;
        if self.address.is_ipv4() != to.address.is_ipv4() {
            return Err(FabricError::Family {
                local: self.address,
                peer: to.address,
            });
        }
        let serial = self.unconnected(qpn)?;
        let key = self.connections.next_id();
        let id = CmId::bound_to(&self.channel, Key::Connection(key.0), self.address, 0)?;
        id.resolve_address(SocketAddr::new(to.address, to.port))?;
        let connection = Connection {
            id,
            phase: Phase::Address,
            peer: to.address,
            pair: Some((serial, qpn)),
            resources: Resources::default(),
            private_data: to.private_data.into(),
            since: Instant::now(),
        };
        self.connections.by_id.insert(key.0, connection);
        self.attach(serial, key);
        Ok(key)
    }

    pub(super) fn accept_request(
        &mut self,
        id: CommId,
        qpn: Qpn,
        private_data: &[u8],
    ) -> Result<(), FabricError> {
        check_data(private_data, REPLY_DATA_MAX)?;
        let serial = self.unconnected(qpn)?;
        let asked = self.connections.in_phase(id, Phase::Requested)?.resources;
        let agreed = self.agree(serial, asked);
        self.make_ready(serial, id, agreed)?;
        let connection = self.connections.in_phase(id, Phase::Requested)?;
        connection.pair = Some((serial, qpn));
        let accepted = connection.id.accept(&Parameters {
            private_data,
            resources: Resources {
                responder: agreed.responder,
                // Linux refuses every RDMA READ of a peer that says 0.
                initiator: agreed.initiator.max(1),
            },
            qp_number: qpn.get(),
        });
        self.attach(serial, id);
        if let Err(error) = accepted {
            self.fail_pair(serial, QpFailure::Closed);
            self.connections.by_id.remove(&id.0);
            return Err(error.into());
        }
        self.connections.in_phase(id, Phase::Requested)?.phase = Phase::Accepted;
        Ok(())
    }

    /// Rejects a request: for the library's only reason, that of the application.
    pub(super) fn reject_request(
        &mut self,
        id: CommId,
        _reason: RejReason,
        private_data: &[u8],
    ) -> Result<(), FabricError> {
        check_data(private_data, REJECTION_DATA_MAX)?;
        let connection = self.connections.in_phase(id, Phase::Requested)?;
        let rejected = connection.id.reject(private_data);
        self.connections.by_id.remove(&id.0);
        Ok(rejected?)
    }

    /// Ends a connection, or the attempt to make one.
    pub(super) fn end_connection(&mut self, id: CommId) -> Result<(), FabricError> {
        let phase = self.connections.get(id)?.phase;
        match phase {
            Phase::Accepted | Phase::Established => {
                if let Some(serial) = self.serial_of(id) {
                    self.fail_pair(serial, QpFailure::Closed);
                }
                let connection = self.connections.in_phase(id, phase)?;
                connection.phase = Phase::Closing;
                connection.since = Instant::now();
                connection.id.disconnect();
                Ok(())
            }
            Phase::Requested => self.reject_request(id, RejReason::CONSUMER, &[]),
            Phase::Address | Phase::Route | Phase::Asked => {
                // The kernel notifies the peer if it has sent the request.
                self.forget(id);
                Ok(())
            }
            Phase::Closing => Err(CmError::State(phase.as_state()).into()),
        }
    }

    /// Handles events of connections.
    pub(super) fn handle_connection_events(&mut self) {
        self.end_overdue();
        for _ in 0..EVENTS_PER_ROUND {
            let Some(event) = self.channel.next_event() else {
                break;
            };
            match event.key {
                Key::Anchor => self.on_anchor_event(&event),
                Key::Listener(port) => self.on_listener_event(port, event),
                Key::Connection(id) => self.on_connection_event(CommId(id), &event),
            }
        }
    }

    /// The device is gone, and all objects of it with it.
    pub(super) fn lose_device(&mut self) {
        if std::mem::replace(&mut self.is_gone, true) {
            return;
        }
        for serial in self.pairs.all() {
            self.fail_pair(serial, QpFailure::Closed);
            let Some(pair) = self.pairs.get_mut(serial) else {
                continue;
            };
            while let Some(completion) = pair.tracker.flush() {
                self.completions.push_back((serial, completion));
            }
        }
        let ids: Vec<_> = self.connections.by_id.keys().copied().map(CommId).collect();
        for id in ids {
            self.end_by_event(id);
        }
        self.listeners.clear();
    }

    /// The peer's first packet arrived before its last message of the connection manager.
    pub(super) fn report_traffic(&self, about: usize) {
        let serial = self.pairs.at_address(about);
        let of_pair = |c: &&Connection| c.pair.is_some_and(|(of, _)| Some(of) == serial);
        if let Some(connection) = self.connections.by_id.values().find(of_pair) {
            connection.id.notify(async_event::COMM_EST);
        }
    }

    fn on_anchor_event(&mut self, event: &CmEvent) {
        match event.kind {
            cm_event::DEVICE_REMOVAL => self.lose_device(),
            cm_event::ADDR_CHANGE => self.follow_address(),
            _ => {}
        }
    }

    fn on_listener_event(&mut self, port: u16, event: CmEvent) {
        match event.kind {
            cm_event::CONNECT_REQUEST => self.on_request(port, event),
            cm_event::DEVICE_REMOVAL => self.lose_device(),
            cm_event::ADDR_CHANGE => {
                self.listeners.remove(&port);
                let again = CmId::bound_to(&self.channel, Key::Listener(port), self.address, port)
                    .and_then(|id| id.listen(Self::BACKLOG).map(|()| id));
                match again {
                    Ok(id) => drop(self.listeners.insert(port, id)),
                    Err(_) => self.lose_device(),
                }
            }
            _ => {}
        }
    }

    /// The address may have moved: to another link of this device, or to another device, which this
    /// provider cannot serve.
    pub(super) fn follow_address(&mut self) {
        self.next_search = Instant::now() + Self::CHECK_INTERVAL;
        match CmId::bound_to(&self.channel, Key::Anchor, self.address, 0) {
            Ok(moved) if moved.library_context() == self.anchor.library_context() => {
                self.anchor = moved;
            }
            Ok(_) => self.lose_device(),
            // No device has the address now, for example while its link is down. If another device
            // receives the address, no event reports it.
            Err(_) => self.next_search = Instant::now() + SEARCH_INTERVAL,
        }
    }

    fn on_request(&mut self, port: u16, event: CmEvent) {
        let Some(mut id) = event.request else {
            return;
        };
        let Some((local, peer)) = id.addresses() else {
            return;
        };
        let (here, there) = (
            SocketAddr::new(local.ip(), UDP_PORT),
            SocketAddr::new(peer.ip(), UDP_PORT),
        );
        let Some(flow) = Flow::new(here, there).filter(|_| self.has_room_for(&id, peer.ip()))
        else {
            return;
        };
        let path_mtu = path_mtu(&id);
        let key = self.connections.next_id();
        id.set_key(Key::Connection(key.0));
        // From the peer's point of view: what is requested of one end is what the other has.
        let resources = Resources {
            responder: event.resources.initiator,
            initiator: event.resources.responder,
        };
        self.events.push_back(Event::Request(ConnectRequest {
            id: key,
            service: ServiceId::tcp(port),
            flow,
            addresses: Some((peer, local.ip())),
            responder_resources: resources.responder,
            initiator_depth: resources.initiator,
            path_mtu,
            private_data: padded(&event.private_data, REQUEST_DATA_MAX),
        }));
        let connection = Connection {
            id,
            phase: Phase::Requested,
            peer: peer.ip(),
            pair: None,
            resources,
            private_data: Box::default(),
            since: Instant::now(),
        };
        self.connections.by_id.insert(key.0, connection);
    }

    fn on_connection_event(&mut self, id: CommId, event: &CmEvent) {
        let Ok(connection) = self.connections.get(id) else {
            return;
        };
        match (event.kind, connection.phase) {
            (cm_event::ADDR_RESOLVED, Phase::Address) => {
                let resolved = connection.id.resolve_route();
                self.proceed(id, Phase::Route, resolved.map_err(Into::into));
            }
            (cm_event::ROUTE_RESOLVED, Phase::Route) => {
                let asked = self.send_request(id);
                self.proceed(id, Phase::Asked, asked);
            }
            (cm_event::CONNECT_RESPONSE, Phase::Asked) => self.on_response(id, event),
            (cm_event::ESTABLISHED, Phase::Accepted) => self.on_established(id),
            // We ended the connection before the peer had confirmed it, and could not disconnect
            // until now.
            (cm_event::ESTABLISHED, Phase::Closing) => connection.id.disconnect(),
            (cm_event::REJECTED, Phase::Asked) => {
                let reason = u16::try_from(event.status).map_or(RejReason::CONSUMER, RejReason);
                let qpn = self.forget(id);
                self.events.push_back(Event::Rejected {
                    id,
                    qpn,
                    reason,
                    private_data: padded(&event.private_data, REJECTION_DATA_MAX),
                });
            }
            (
                cm_event::ADDR_ERROR
                | cm_event::ROUTE_ERROR
                | cm_event::CONNECT_ERROR
                | cm_event::UNREACHABLE
                | cm_event::REJECTED
                | cm_event::DISCONNECTED
                | cm_event::ADDR_CHANGE,
                _,
            ) => self.end_by_event(id),
            (cm_event::DEVICE_REMOVAL, _) => self.lose_device(),
            _ => {}
        }
    }

    /// The next step of connecting was taken, or failed.
    fn proceed(&mut self, id: CommId, phase: Phase, step: Result<(), FabricError>) {
        match (step, self.connections.by_id.get_mut(&id.0)) {
            (Ok(()), Some(connection)) => connection.phase = phase,
            _ => self.end_by_event(id),
        }
    }

    fn send_request(&mut self, id: CommId) -> Result<(), FabricError> {
        let serial = self.serial_of(id).ok_or(CmError::QueuePair)?;
        let all = Resources {
            responder: u8::MAX,
            initiator: u8::MAX,
        };
        let resources = self.agree(serial, all);
        let connection = self.connections.in_phase(id, Phase::Route)?;
        let qpn = connection
            .pair
            .map(|(_, qpn)| qpn)
            .ok_or(CmError::QueuePair)?;
        let private_data = std::mem::take(&mut connection.private_data);
        Ok(connection.id.connect(&Parameters {
            private_data: &private_data,
            resources,
            qp_number: qpn.get(),
        })?)
    }

    /// The peer has accepted: makes the queue pair ready, and confirms.
    fn on_response(&mut self, id: CommId, event: &CmEvent) {
        let Some((serial, qpn)) = self.connections.get(id).ok().and_then(|c| c.pair) else {
            self.forget(id);
            return;
        };
        let all = Resources {
            responder: u8::MAX,
            initiator: u8::MAX,
        };
        let ours = self.agree(serial, all);
        let done = self.make_ready(serial, id, ours).and_then(|()| {
            let connection = self.connections.in_phase(id, Phase::Asked)?;
            connection.id.establish()?;
            connection.phase = Phase::Established;
            Ok(path_mtu(&connection.id))
        });
        match done {
            Ok(path_mtu) => self.events.push_back(Event::Connected {
                id,
                qpn,
                path_mtu,
                private_data: padded(&event.private_data, REPLY_DATA_MAX),
            }),
            Err(_) => self.end_by_event(id),
        }
    }

    fn on_established(&mut self, id: CommId) {
        let Some(connection) = self.connections.by_id.get_mut(&id.0) else {
            return;
        };
        connection.phase = Phase::Established;
        if let Some((_, qpn)) = connection.pair {
            self.events.push_back(Event::Established { id, qpn });
        }
    }

    /// A connection has ended, or was not established: fails its queue pair, and reports an event.
    fn end_by_event(&mut self, id: CommId) {
        let Ok(connection) = self.connections.get(id) else {
            return;
        };
        let phase = connection.phase;
        if matches!(phase, Phase::Accepted | Phase::Established) {
            // This answers a peer that has ended it, so that it need not ask again.
            connection.id.disconnect();
        }
        let qpn = self.forget(id);
        let event = match (phase, qpn) {
            (Phase::Address | Phase::Route | Phase::Asked, qpn) => Event::Unreachable { id, qpn },
            (Phase::Accepted, Some(_)) => Event::Unreachable { id, qpn },
            (Phase::Established | Phase::Closing, Some(qpn)) => Event::Disconnected { id, qpn },
            // The application has seen only the request. Its answer will fail.
            _ => return,
        };
        self.events.push_back(event);
    }

    /// Removes a connection, and fails its queue pair, whose number it returns. Returns `None` for
    /// a destroyed queue pair, since another may have its number.
    fn forget(&mut self, id: CommId) -> Option<Qpn> {
        let connection = self.connections.by_id.remove(&id.0)?;
        let (serial, qpn) = connection.pair?;
        self.fail_pair(serial, QpFailure::Closed);
        self.pairs.get_mut(serial)?.connection = None;
        Some(qpn)
    }

    /// Brings a queue pair to the state in which it takes requests and sends. `ours` bounds the
    /// RDMA READs that it answers and has outstanding.
    fn make_ready(
        &mut self,
        serial: Serial,
        id: CommId,
        ours: Resources,
    ) -> Result<(), FabricError> {
        let connection = self.connections.get(id)?;
        let pair = self.pairs.get_mut(serial).ok_or(CmError::QueuePair)?;
        for state in [qp_state::INIT, qp_state::RTR, qp_state::RTS] {
            let (mut attr, mask) = connection.id.attributes(state)?;
            let sets = |bit| mask & bit != 0;
            if sets(qp_attr_mask::ACCESS_FLAGS) {
                attr.qp_access_flags = remote_rights(pair.config.access);
            }
            if sets(qp_attr_mask::MIN_RNR_TIMER) {
                attr.min_rnr_timer = RnrTimer::at_least(pair.config.rnr_wait).code();
            }
            if sets(qp_attr_mask::MAX_DEST_RD_ATOMIC) {
                attr.max_dest_rd_atomic = attr.max_dest_rd_atomic.min(ours.responder);
            }
            if sets(qp_attr_mask::MAX_QP_RD_ATOMIC) {
                attr.max_rd_atomic = attr.max_rd_atomic.min(ours.initiator);
                pair.initiator_depth = attr.max_rd_atomic;
            }
            pair.qp.modify(&attr, mask)?;
        }
        pair.state = QpState::ReadyToSend;
        Ok(())
    }

    /// The RDMA READs that queue pair and adapter have room for, if the peer advertises `theirs`.
    fn agree(&mut self, serial: Serial, theirs: Resources) -> Resources {
        let caps = self.context.caps;
        let Some(pair) = self.pairs.get_mut(serial) else {
            return Resources::default();
        };
        Resources {
            responder: (pair.config.responder_resources)
                .min(caps.responder_resources_max)
                .min(theirs.initiator),
            initiator: (pair.config.initiator_depth)
                .min(caps.initiator_depth_max)
                .min(theirs.responder),
        }
    }

    /// Whether a peer may have one more connection that is not yet established. Rejects the request
    /// if not.
    fn has_room_for(&self, id: &CmId, peer: IpAddr) -> bool {
        let has_room = self.connections.has_room_for(peer);
        if !has_room {
            // If this fails, the peer retries or gives up.
            let _ = id.reject(&[]);
        }
        has_room
    }

    /// Ends requests that the application has not answered in time, and connections whose
    /// disconnect the peer has not confirmed.
    fn end_overdue(&mut self) {
        let is_late = |connection: &Connection| match connection.phase {
            Phase::Requested => connection.since.elapsed() > ANSWER_MAX,
            Phase::Closing => connection.since.elapsed() > CLOSING_MAX,
            _ => false,
        };
        let late: Vec<_> = (self.connections.by_id.iter())
            .filter(|(_, connection)| is_late(connection))
            .map(|(id, connection)| (CommId(*id), connection.phase))
            .collect();
        for (id, phase) in late {
            if phase == Phase::Requested {
                // It is removed in both cases.
                let _ = self.reject_request(id, RejReason::CONSUMER, &[]);
            } else {
                self.end_by_event(id);
            }
        }
    }

    /// A queue pair that has no connection yet.
    pub(super) fn unconnected(&mut self, qpn: Qpn) -> Result<Serial, CmError> {
        let (serial, pair) = self.pairs.by_qpn(qpn).ok_or(CmError::QueuePair)?;
        let is_new = pair.state == QpState::Init && pair.connection.is_none();
        is_new.then_some(serial).ok_or(CmError::QueuePair)
    }

    fn attach(&mut self, serial: Serial, id: CommId) {
        if let Some(pair) = self.pairs.get_mut(serial) {
            pair.connection = Some(id);
        }
    }

    fn serial_of(&self, id: CommId) -> Option<Serial> {
        let connection = self.connections.by_id.get(&id.0)?;
        connection.pair.map(|(serial, _)| serial)
    }
}

fn check_data(data: &[u8], max: usize) -> Result<(), CmError> {
    let len = data.len();
    if len > max {
        return Err(CmError::PrivateData { len, max });
    }
    Ok(())
}

/// Private data at the full length of the message's field: some adapters return only the bytes
/// sent, some the whole field.
fn padded(data: &[u8], len: usize) -> Box<[u8]> {
    let mut whole = vec![0; len.max(data.len())];
    whole[..data.len()].copy_from_slice(data);
    whole.into_boxed_slice()
}

/// The path MTU that the adapter's stack has found.
fn path_mtu(id: &CmId) -> PathMtu {
    id.attributes(qp_state::RTR)
        .map_or(PathMtu::B256, |(attr, _)| {
            let code = u8::try_from(attr.path_mtu).unwrap_or(0);
            PathMtu::from_wire(code).unwrap_or(PathMtu::B256)
        })
}
