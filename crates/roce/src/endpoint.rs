//! One end: queue pairs, regions and the connection manager of one thread.

mod slots;

use std::collections::VecDeque;
use std::time::Instant;

use zerocopy::IntoBytes;

use crate::Flow;
use crate::backend::Backend;
use crate::cm::{CmCounters, CmError, CmState, ConnectParams, Manager};
use crate::config::EndpointConfig;
use crate::deadlines::{Deadlines, earlier};
use crate::event::Event;
use crate::qp::{
    Connection, Context, Dropped, PostError, QpConfig, QpFailure, QpState, QueuePair, Transmitted,
};
use crate::region::{Region, Regions, RegisterError};
use crate::transmit::{ExtendedHeaders, Payload, TransmitList};
use crate::wire::cm::{CommId, Message, RejReason, ServiceId};
use crate::wire::{
    Bth, Deth, Extended, Ipv4Identification, NakCode, Opcode, Packet, Psn, QKEY_GSI, Qpn, Rkey,
    verify,
};
use crate::work::{Completion, RecvRequest, SendRequest};
pub use slots::CreateError;
use slots::{SlotIndex, Slots};

/// Received data: one datagram, or several of one length that the operating system joined (generic
/// receive offload, GRO).
#[derive(Clone, Copy, Debug)]
pub struct Received<'a> {
    /// From its sender to here.
    pub flow: Flow,
    /// The UDP payloads, one after the other.
    pub bytes: &'a [u8],
    /// The length of every datagram but the last, which may be shorter; `None`: there is one only.
    pub segment_len_bytes: Option<u16>,
    /// Knowledge of the identification field of its IPv4 header.
    pub identification: Ipv4Identification,
    /// Whether a router marked it since it was congested (ECN CE).
    pub congestion_experienced: bool,
}

/// Packets, and why some were dropped or refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Received packets.
    pub packets: u64,
    /// Not a packet of a known kind.
    pub malformed: u64,
    /// The invariant CRC was wrong.
    pub bad_icrc: u64,
    /// Another partition.
    pub bad_pkey: u64,
    /// To a queue pair that does not exist, or is not connected.
    pub no_such_qp: u64,
    /// From another address than the queue pair's peer.
    pub stranger: u64,
    /// A response to nothing that was asked.
    pub unexpected: u64,
    /// Beyond a gap, or a duplicate that cannot be answered again.
    pub out_of_sequence: u64,
    /// Not a message of communication management.
    pub bad_mad: u64,
    /// Requests for memory that is not open to the peer: its connection has ended (NAK remote
    /// access error).
    pub refused_access: u64,
    /// Requests that were wrong in any other way: its connection has ended (NAK invalid request).
    pub refused_invalid: u64,
    /// Requests that could not be done here: its connection has ended (NAK remote operational
    /// error).
    pub refused_operational: u64,
    /// The connection manager's.
    pub cm: CmCounters,
}

impl Counters {
    /// Counts a peer's request that has failed its queue pair.
    const fn count_refused(&mut self, failure: QpFailure) {
        let QpFailure::Responder(code) = failure else {
            return;
        };
        match code {
            NakCode::RemoteAccessError => self.refused_access += 1,
            NakCode::InvalidRequest => self.refused_invalid += 1,
            NakCode::RemoteOperationalError => self.refused_operational += 1,
            // The peer continues after this one.
            NakCode::PsnSequenceError => {}
        }
    }
}

/// One end. It has no socket, clock, lock or thread: a runtime passes received datagrams in and
/// sends those that it returns.
///
/// ```text
///  received datagrams ──► handle_received ──► queue pairs ──► poll_completion, poll_event
///  sent datagrams     ◄── poll_transmit   ◄── queue pairs ◄── post_send, post_recv, connect, accept
/// ```
#[derive(Debug)]
pub struct Endpoint {
    regions: Regions,
    slots: Slots,
    manager: Manager,
    /// Queue pairs that may have something to send; each at most once.
    ready: VecDeque<SlotIndex>,
    deadlines: Deadlines<SlotIndex>,
    completions: VecDeque<Completion>,
    events: VecDeque<Event>,
    counters: Counters,
    gsi_psn: u32,
    udp_port: u16,
}

impl Endpoint {
    /// Packets that one queue pair sends in its turn.
    const TURN_PACKETS: u32 = 64;

    /// An end without queue pairs.
    ///
    /// # Panics
    /// If the numbers of `config` leave no room for queue pair numbers.
    pub fn new<B: Backend>(config: &EndpointConfig, backend: &mut B) -> Self {
        Self {
            regions: Regions::new(config.regions_max),
            slots: Slots::new(config, backend.random()),
            manager: Manager::new(config),
            ready: VecDeque::new(),
            deadlines: Deadlines::default(),
            completions: VecDeque::new(),
            events: VecDeque::new(),
            counters: Counters::default(),
            gsi_psn: 0,
            udp_port: config.udp_port,
        }
    }

    /// Handles received datagrams.
    pub fn handle_received<B: Backend>(
        &mut self,
        now: Instant,
        received: &Received<'_>,
        backend: &mut B,
    ) {
        let whole = received.bytes.len().max(1);
        let segment_len = received.segment_len_bytes.map_or(whole, usize::from).max(1);
        for (index, datagram) in (0..).zip(received.bytes.chunks(segment_len)) {
            self.counters.packets += 1;
            // Linux counts from 0 in each run.
            let identification = match received.identification {
                Ipv4Identification::Unknown => Ipv4Identification::Likely(index),
                known => known,
            };
            match Packet::parse(datagram) {
                Err(_) => self.counters.malformed += 1,
                Ok(_) if !verify(received.flow, identification, datagram) => {
                    self.counters.bad_icrc += 1;
                }
                Ok(packet) => {
                    let taken_by = self.handle_packet(now, received, &packet, backend);
                    self.follow_up(taken_by);
                }
            }
        }
    }

    /// Appends what can be sent now to `out`, until it is full. Call again with an empty list while
    /// [`wants_transmit`](Self::wants_transmit).
    pub fn poll_transmit<B: Backend>(
        &mut self,
        now: Instant,
        backend: &mut B,
        out: &mut TransmitList,
    ) {
        while let Some(outgoing) = self.manager.next_outgoing() {
            let bth = Bth::new(
                Opcode::DatagramSend.to_wire(),
                Qpn::GSI,
                Psn::new(self.gsi_psn),
            );
            let headers = ExtendedHeaders::default().with(&Deth::new(QKEY_GSI, Qpn::GSI));
            let payload = Payload::Bytes(outgoing.mad.as_bytes());
            let pushed = out.push(&outgoing.flow, bth, &headers, payload, backend);
            if pushed.is_err() {
                return;
            }
            self.gsi_psn = self.gsi_psn.wrapping_add(1);
            self.manager.outgoing_sent();
        }
        while let Some(index) = self.ready.pop_front() {
            let slot = self.slots.at(index);
            slot.is_ready = false;
            let Some(qp) = &mut slot.qp else {
                continue;
            };
            let mut context = Context {
                now,
                regions: &mut self.regions,
                backend,
                completions: &mut self.completions,
            };
            let transmitted = qp.poll_transmit(Self::TURN_PACKETS, &mut context, out);
            self.settle(index);
            match transmitted {
                Transmitted::All | Transmitted::Waiting | Transmitted::Failed(_) => {}
                Transmitted::BudgetSpent => self.mark_ready(index),
                Transmitted::ListFull => {
                    self.slots.at(index).is_ready = true;
                    self.ready.push_front(index);
                    return;
                }
            }
        }
    }

    /// Whether [`poll_transmit`](Self::poll_transmit) may have something to send.
    pub fn wants_transmit(&self) -> bool {
        !self.ready.is_empty() || self.manager.next_outgoing().is_some()
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due next.
    pub fn poll_timeout(&self) -> Option<Instant> {
        earlier(self.deadlines.next(), self.manager.poll_timeout())
    }

    /// The instant that [`poll_timeout`](Self::poll_timeout) returned has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        // Whatever is armed in this loop is in the future, so it ends.
        while let Some(index) = self.deadlines.pop_due(now) {
            let slot = self.slots.at(index);
            slot.armed = None;
            let Some(qp) = &mut slot.qp else {
                continue;
            };
            if qp.poll_timeout().is_some_and(|due| due <= now) {
                qp.handle_timeout(now, &mut self.completions);
                self.mark_ready(index);
            }
            self.settle(index);
        }
        self.manager.handle_timeout(now);
        self.pump_manager();
    }

    /// The next request that has ended.
    #[inline]
    pub fn poll_completion(&mut self) -> Option<Completion> {
        let completion = self.completions.pop_front()?;
        if let Some((_, qp)) = self.slots.find(completion.qpn) {
            qp.release(completion.kind);
        }
        Some(completion)
    }

    /// The next thing that happened.
    #[inline]
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Whether a completion or an event is queued.
    #[inline]
    pub fn has_news(&self) -> bool {
        !self.completions.is_empty() || !self.events.is_empty()
    }

    /// Whether a completion is queued.
    pub fn has_completions(&self) -> bool {
        !self.completions.is_empty()
    }

    /// Whether an event is queued.
    #[inline]
    pub fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// Creates a queue pair.
    pub fn create_qp(&mut self, config: QpConfig) -> Result<Qpn, CreateError> {
        self.slots.create(config)
    }

    /// Destroys a queue pair, and ends its connection. Outstanding requests complete as flushed.
    pub fn destroy_qp(&mut self, now: Instant, qpn: Qpn) {
        let Some((index, qp)) = self.slots.find(qpn) else {
            return;
        };
        qp.fail(QpFailure::Closed, &mut self.completions);
        let slot = self.slots.at(index);
        if let Some(id) = slot.conn.take() {
            // If the connection has ended already, there is nothing to disconnect.
            let _ = self.manager.disconnect(now, id);
        }
        let slot = self.slots.at(index);
        self.deadlines.set(&mut slot.armed, index, None);
        self.slots.destroy(index);
        self.pump_manager();
    }

    /// The state of a queue pair.
    pub fn qp_state(&mut self, qpn: Qpn) -> Option<QpState> {
        self.slots.find(qpn).map(|(_, qp)| qp.state())
    }

    /// Posts a request to the send queue. Its data stay as they are until it has completed.
    #[inline]
    pub fn post_send(&mut self, qpn: Qpn, request: SendRequest) -> Result<(), PostError> {
        let (index, qp) = self.slots.find(qpn).ok_or(PostError::NoSuchQp)?;
        qp.post_send(request)?;
        self.mark_ready(index);
        Ok(())
    }

    /// Posts a receive.
    #[inline]
    pub fn post_recv(&mut self, qpn: Qpn, request: RecvRequest) -> Result<(), PostError> {
        let (_, qp) = self.slots.find(qpn).ok_or(PostError::NoSuchQp)?;
        qp.post_recv(request)
    }

    /// Registers `region` for remote access. Returns its key.
    pub fn register<B: Backend>(
        &mut self,
        region: Region,
        backend: &mut B,
    ) -> Result<Rkey, RegisterError> {
        self.regions.register(region, backend)
    }

    /// Invalidates a key. Returns whether it was valid.
    #[inline]
    pub fn invalidate(&mut self, key: Rkey) -> bool {
        self.regions.invalidate(key)
    }

    /// How many regions are registered.
    pub fn regions(&self) -> usize {
        self.regions.len()
    }

    /// How many connections there are, those in time-wait not counted.
    pub fn connections(&self) -> usize {
        self.manager.connections()
    }

    /// Accepts connection requests to `service` from now on.
    pub fn listen(&mut self, service: ServiceId) {
        self.manager.listen(service);
    }

    /// Rejects further requests for connections to `service`; those that are made remain.
    pub fn stop_listening(&mut self, service: ServiceId) {
        self.manager.stop_listening(service);
    }

    /// Asks a peer for a connection of a new queue pair. An event reports the result.
    pub fn connect<B: Backend>(
        &mut self,
        now: Instant,
        qpn: Qpn,
        params: &ConnectParams<'_>,
        backend: &mut B,
    ) -> Result<CommId, CmError> {
        let (index, config) = self.unconnected(qpn)?;
        let id = self.manager.connect(now, qpn, &config, params, backend)?;
        self.slots.at(index).conn = Some(id);
        Ok(id)
    }

    /// Connects a new queue pair with one that is known by other means than the connection manager.
    pub fn pair(&mut self, qpn: Qpn, connection: Connection) -> Result<(), CmError> {
        let (index, _) = self.unconnected(qpn)?;
        if let Some(qp) = &mut self.slots.at(index).qp {
            qp.connect(connection);
        }
        Ok(())
    }

    /// Accepts a request with a new queue pair, which may be used from now on.
    pub fn accept<B: Backend>(
        &mut self,
        now: Instant,
        id: CommId,
        qpn: Qpn,
        private_data: &[u8],
        backend: &mut B,
    ) -> Result<(), CmError> {
        let (index, config) = self.unconnected(qpn)?;
        let connection = self
            .manager
            .accept(now, id, qpn, &config, private_data, backend)?;
        let slot = self.slots.at(index);
        slot.conn = Some(id);
        if let Some(qp) = &mut slot.qp {
            qp.connect(connection);
        }
        Ok(())
    }

    /// Rejects a request.
    pub fn reject(
        &mut self,
        id: CommId,
        reason: RejReason,
        private_data: &[u8],
    ) -> Result<(), CmError> {
        self.manager.reject(id, reason, private_data)
    }

    /// Ends a connection: its queue pair fails at once, and an event says when the peer knows.
    pub fn disconnect(&mut self, now: Instant, id: CommId) -> Result<(), CmError> {
        self.manager.disconnect(now, id)?;
        let qpn = self.slots.of_connection(id);
        if let Some((index, qp)) = qpn.and_then(|qpn| self.slots.find(qpn)) {
            qp.fail(QpFailure::Closed, &mut self.completions);
            self.settle(index);
        }
        self.pump_manager();
        Ok(())
    }

    /// The state of a connection; `None` if it is forgotten.
    pub fn connection_state(&self, id: CommId) -> Option<CmState> {
        self.manager.state(id)
    }

    /// The counts.
    pub fn counters(&self) -> Counters {
        Counters {
            cm: self.manager.counters(),
            ..self.counters
        }
    }

    /// Handles a packet. Returns its queue pair, to be [followed up](Self::follow_up).
    fn handle_packet<B: Backend>(
        &mut self,
        now: Instant,
        received: &Received<'_>,
        packet: &Packet<'_>,
        backend: &mut B,
    ) -> Option<SlotIndex> {
        if !packet.bth.is_default_partition() {
            self.counters.bad_pkey += 1;
            return None;
        }
        if packet.bth.dest() == Qpn::GSI || packet.opcode == Opcode::DatagramSend {
            self.handle_mad(now, received, packet, backend);
            return None;
        }
        let Some((index, qp)) = self.slots.find(packet.bth.dest()) else {
            self.counters.no_such_qp += 1;
            return None;
        };
        let mut context = Context {
            now,
            regions: &mut self.regions,
            backend,
            completions: &mut self.completions,
        };
        match qp.handle_packet(&received.flow, packet, &mut context) {
            // A notification that was itself marked as congested is not reported, otherwise both
            // ends would notify each other forever.
            Ok(())
                if received.congestion_experienced
                    && packet.opcode != Opcode::CongestionNotification =>
            {
                qp.notify_congestion(now);
            }
            Ok(()) => {}
            Err(Dropped::State) => self.counters.no_such_qp += 1,
            Err(Dropped::Stranger) => self.counters.stranger += 1,
            Err(Dropped::Unexpected) => self.counters.unexpected += 1,
            Err(Dropped::OutOfSequence) => self.counters.out_of_sequence += 1,
        }
        Some(index)
    }

    /// After a packet, a queue pair may have to send, may have failed, or may need another timer.
    fn follow_up(&mut self, taken_by: Option<SlotIndex>) {
        if let Some(index) = taken_by {
            self.mark_ready(index);
            self.settle(index);
        }
    }

    fn handle_mad<B: Backend>(
        &mut self,
        now: Instant,
        received: &Received<'_>,
        packet: &Packet<'_>,
        backend: &mut B,
    ) {
        let is_gsi = packet.bth.dest() == Qpn::GSI
            && matches!(packet.extended, Extended::Datagram(deth) if deth.qkey.get() == QKEY_GSI);
        let message = match Message::parse(packet.payload) {
            Ok(message) if is_gsi => message,
            _ => {
                self.counters.bad_mad += 1;
                return;
            }
        };
        let flow = received.flow.answering(self.udp_port);
        let replied = self.manager.handle_message(now, flow, message, backend);
        if let Some(replied) = replied {
            let qpn = self.slots.of_connection(replied.id);
            match qpn.and_then(|qpn| self.slots.find(qpn)) {
                Some((_, qp)) if qp.state() == QpState::Init => qp.connect(replied.connection),
                _ => {
                    // Its queue pair was destroyed or has failed.
                    let _ = self.manager.disconnect(now, replied.id);
                }
            }
        }
        self.pump_manager();
    }

    /// Passes the connection manager's events on, and fails queue pairs whose connection has ended.
    fn pump_manager(&mut self) {
        while let Some(event) = self.manager.next_event() {
            let ended = match &event {
                Event::Disconnected { qpn, .. } => Some(*qpn),
                Event::Rejected { qpn, .. } | Event::Unreachable { qpn, .. } => *qpn,
                Event::Request(_)
                | Event::Connected { .. }
                | Event::Established { .. }
                | Event::QpFailed { .. } => None,
            };
            if let Some((index, qp)) = ended.and_then(|qpn| self.slots.find(qpn)) {
                qp.fail(QpFailure::Closed, &mut self.completions);
                self.slots.at(index).conn = None;
                self.settle(index);
            }
            self.events.push_back(event);
        }
    }

    /// After every change of a queue pair: reports its failure and its first packet, and sets its
    /// timer.
    fn settle(&mut self, index: SlotIndex) {
        let slot = self.slots.at(index);
        let Some(qp) = &mut slot.qp else {
            return;
        };
        let due = qp.poll_timeout();
        // A timer that fires too early costs less than moving it with each packet.
        let is_late = due.is_some_and(|due| slot.armed.is_none_or(|armed| armed > due));
        if is_late {
            self.deadlines.set(&mut slot.armed, index, due);
        }
        let qpn = qp.qpn();
        match qp.take_failure() {
            None | Some(QpFailure::Closed) => {}
            Some(failure) => {
                self.counters.count_refused(failure);
                self.events.push_back(Event::QpFailed {
                    qpn,
                    id: slot.conn,
                    failure,
                });
            }
        }
        let is_first = qp.has_heard_peer() && !slot.has_reported_traffic;
        if let Some(id) = slot.conn.filter(|_| is_first) {
            slot.has_reported_traffic = true;
            self.manager.handle_traffic(id);
            while let Some(event) = self.manager.next_event() {
                self.events.push_back(event);
            }
        }
    }

    #[inline]
    fn mark_ready(&mut self, index: SlotIndex) {
        let slot = self.slots.at(index);
        if !slot.is_ready {
            slot.is_ready = true;
            self.ready.push_back(index);
        }
    }

    /// A queue pair that has no connection yet.
    fn unconnected(&mut self, qpn: Qpn) -> Result<(SlotIndex, QpConfig), CmError> {
        let (index, qp) = self.slots.find(qpn).ok_or(CmError::QueuePair)?;
        let (state, config) = (qp.state(), *qp.config());
        if state != QpState::Init || self.slots.at(index).conn.is_some() {
            return Err(CmError::QueuePair);
        }
        Ok((index, config))
    }
}

/// Creates a queue pair on the heap, since an end has room for thousands.
fn boxed(qpn: Qpn, config: QpConfig) -> Box<QueuePair> {
    Box::new(QueuePair::new(qpn, config))
}
