//! A reliable-connected queue pair.
//!
//! Read first: InfiniBand Architecture volume 1, chapter 9, "reliable service".
//!
//! It has two independent halves. The requester sends requests and handles responses (`requester`,
//! `completer`); the responder handles requests and sends responses (`responder`).
//! Sequence numbers inside are 64 bits wide; on the wire they have 24.

mod completer;
mod pacer;
mod requester;
mod responder;
mod retry;
mod state;
mod window;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::Flow;
use crate::backend::Backend;
use crate::deadlines::earlier;
use crate::region::{Access, ProtectionDomain, Regions};
use crate::transmit::{ExtendedHeaders, Payload, TransmitList};
use crate::wire::{Bth, NakCode, Opcode, Packet, PathMtu, Psn, Qpn, RnrTimer};
use crate::work::{Completion, RecvRequest, SendRequest, WorkKind, WorkStatus};
use pacer::Pacer;
use requester::Requester;
use responder::Responder;

pub use requester::PostError;
pub use state::{QpState, Transition};

/// The parameters of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpConfig {
    /// The domain whose regions peers reach through it.
    pub domain: ProtectionDomain,
    /// The access that peers have at all.
    pub access: Access,
    /// The most send requests at once.
    pub send_depth: u16,
    /// The most receives at once.
    pub recv_depth: u16,
    /// RDMA READs and atomics of the peer's that are answered at once.
    pub responder_resources: u8,
    /// RDMA READs that may be outstanding at the peer.
    pub initiator_depth: u8,
    /// How often a packet is retransmitted without progress before the queue pair fails, if the
    /// peers agreed on less: our timer starts far below an adapter's, so that many retries end
    /// sooner.
    pub retry_min: u8,
    /// The time that a peer is asked to wait if no receive is posted for its SEND.
    pub rnr_wait: Duration,
    /// Whether messages, and data of READs, may stay where they were received, as
    /// [`Completion::at`](crate::Completion::at) then says.
    pub may_stay: bool,
}

impl Default for QpConfig {
    fn default() -> Self {
        Self {
            domain: ProtectionDomain(0),
            access: Access::default(),
            send_depth: 256,
            recv_depth: 256,
            responder_resources: 16,
            initiator_depth: 16,
            retry_min: 12,
            rnr_wait: Duration::from_millis(1),
            may_stay: false,
        }
    }
}

/// The parameters that both ends agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection {
    /// Source and destination of packets. Received packets must come from the same addresses.
    pub flow: Flow,
    /// The peer's queue pair.
    pub remote_qpn: Qpn,
    /// Payload of a full packet.
    pub path_mtu: PathMtu,
    /// The PSN of our first packet.
    pub send_psn: Psn,
    /// The PSN of the peer's first packet.
    pub recv_psn: Psn,
    /// RDMA READs that may be outstanding at the peer.
    pub initiator_depth: u8,
    /// How often a packet is sent again without progress before the queue pair fails.
    pub retry_max: u8,
    /// The same for a receiver that is not ready; 7: without end.
    pub rnr_retry_max: u8,
}

/// Why a queue pair failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum QpFailure {
    /// One of our requests failed.
    #[error("a request failed: {0:?}")]
    Request(WorkStatus),
    /// The peer's request was refused.
    #[error("the peer's request was rejected: {0:?}")]
    Responder(NakCode),
    /// It was closed from here.
    #[error("closed")]
    Closed,
}

/// What a queue pair uses while it handles a call.
pub(crate) struct Context<'a, B> {
    pub(crate) now: Instant,
    pub(crate) regions: &'a mut Regions,
    pub(crate) backend: &'a mut B,
    pub(crate) completions: &'a mut VecDeque<Completion>,
}

/// A packet that was not for this queue pair in its state, or made no sense to it. It is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dropped {
    /// Not connected, or failed.
    State,
    /// From another address than the peer's.
    Stranger,
    /// A response to nothing that was asked.
    Unexpected,
    /// A duplicate that cannot be answered again, or a packet beyond a gap.
    OutOfSequence,
}

/// A queue pair.
#[derive(Debug)]
pub(crate) struct QueuePair {
    qpn: Qpn,
    config: QpConfig,
    state: QpState,
    connection: Option<Connection>,
    requester: Requester,
    responder: Responder,
    pacer: Pacer,
    failure: Option<QpFailure>,
    /// Requests that are posted, or completed but not yet taken by the caller. This bounds the
    /// completion queue.
    sends_held: u16,
    recvs_held: u16,
    /// Whether a packet of the peer's has been accepted.
    heard: bool,
    /// When the peer was last notified of congestion, and whether a notification is due.
    notified: Option<Instant>,
    owes_notification: bool,
}

impl QueuePair {
    pub(crate) fn new(qpn: Qpn, config: QpConfig) -> Self {
        Self {
            qpn,
            config,
            state: QpState::Init,
            connection: None,
            requester: Requester::new(qpn, &config),
            responder: Responder::new(qpn, &config),
            pacer: Pacer::default(),
            failure: None,
            sends_held: 0,
            recvs_held: 0,
            heard: false,
            notified: None,
            owes_notification: false,
        }
    }

    pub(crate) const fn qpn(&self) -> Qpn {
        self.qpn
    }

    pub(crate) const fn state(&self) -> QpState {
        self.state
    }

    pub(crate) const fn config(&self) -> &QpConfig {
        &self.config
    }

    /// Whether a packet of the peer's has been accepted, which proves that it knows our numbers.
    pub(crate) const fn has_heard_peer(&self) -> bool {
        self.heard
    }

    /// Accepts requests and sends from now on.
    ///
    /// # Panics
    /// If it is connected already.
    pub(crate) fn connect(&mut self, connection: Connection) {
        self.transition(Transition::Connect);
        let depth = connection.initiator_depth.min(self.config.initiator_depth);
        let retry_max = connection.retry_max.max(self.config.retry_min);
        self.requester.start(&connection, depth, retry_max);
        self.responder
            .start(connection.recv_psn, connection.path_mtu);
        self.connection = Some(connection);
    }

    /// Adds a request to the send queue.
    #[inline]
    pub(crate) fn post_send(&mut self, request: SendRequest) -> Result<(), PostError> {
        match self.state {
            QpState::Init => return Err(PostError::NotConnected),
            QpState::Error => return Err(PostError::Failed),
            QpState::ReadyToSend => {}
        }
        if self.sends_held >= self.config.send_depth {
            return Err(PostError::Full);
        }
        self.requester.post(request)?;
        self.sends_held += 1;
        Ok(())
    }

    /// Posts a receive, even before the queue pair is connected.
    #[inline]
    pub(crate) fn post_recv(&mut self, request: RecvRequest) -> Result<(), PostError> {
        if self.state == QpState::Error {
            return Err(PostError::Failed);
        }
        if self.recvs_held >= self.config.recv_depth {
            return Err(PostError::Full);
        }
        self.responder.post(request);
        self.recvs_held += 1;
        Ok(())
    }

    /// The caller has taken a completion of this queue pair: its place is free.
    #[inline]
    pub(crate) fn release(&mut self, kind: WorkKind) {
        let held = match kind {
            WorkKind::Recv => &mut self.recvs_held,
            WorkKind::Send | WorkKind::Write | WorkKind::Read => &mut self.sends_held,
        };
        *held = held.saturating_sub(1);
    }

    /// Handles a packet that arrived on `flow`, as seen by its sender.
    pub(crate) fn handle_packet<B: Backend>(
        &mut self,
        flow: &Flow,
        packet: &Packet<'_>,
        context: &mut Context<'_, B>,
    ) -> Result<(), Dropped> {
        let (QpState::ReadyToSend, Some(connection)) = (self.state, &self.connection) else {
            return Err(Dropped::State);
        };
        if !flow.reversed().same_addresses(&connection.flow) {
            return Err(Dropped::Stranger);
        }
        if packet.opcode == Opcode::CongestionNotification {
            self.pacer.on_congestion(context.now);
            return Ok(());
        }
        let failure = if packet.opcode.is_request() {
            self.responder.handle_request(packet, context)?
        } else {
            self.requester.handle_response(packet, context)?
        };
        self.heard = true;
        if let Some(failure) = failure {
            self.fail(failure, context.completions);
        }
        self.count_unsignaled();
        Ok(())
    }

    /// Appends what can be sent now, at most about `budget` packets.
    pub(crate) fn poll_transmit<B: Backend>(
        &mut self,
        budget: u32,
        context: &mut Context<'_, B>,
        out: &mut TransmitList,
    ) -> Transmitted {
        let Some(connection) = self.connection else {
            return Transmitted::All;
        };
        if self.owes_notification && self.state == QpState::ReadyToSend {
            self.send_notification(&connection, context, out);
        }
        let paced = match self.state {
            QpState::ReadyToSend => self.pacer.allowance(context.now, budget),
            QpState::Init | QpState::Error => budget,
        };
        // Even if a peer sends READs without end, one packet is left for our own requests.
        let reserved = u32::from(paced > 1);
        let mut left = paced - reserved;
        let mut ended = self
            .responder
            .poll_responses(&connection, &mut left, context, out);
        left += reserved;
        let may_go_on = matches!(ended, Transmitted::All | Transmitted::BudgetSpent);
        if self.state == QpState::ReadyToSend && may_go_on {
            let requested = self
                .requester
                .poll_transmit(&connection, &mut left, context, out);
            if requested != Transmitted::All {
                ended = requested;
            }
        }
        // Last, since the peer does not wait for it.
        if !matches!(ended, Transmitted::ListFull | Transmitted::Failed(_)) {
            let acknowledged =
                self.responder
                    .poll_acknowledgement(&connection, &mut left, context, out);
            if acknowledged != Transmitted::All {
                ended = acknowledged;
            }
        }
        self.pacer.on_sent(context.now, paced - left);
        if let Transmitted::Failed(failure) = ended {
            self.fail(failure, context.completions);
            return self.poll_transmit(1, context, out);
        }
        if ended == Transmitted::BudgetSpent && self.pacer.is_waiting(context.now) {
            return Transmitted::Waiting;
        }
        ended
    }

    /// A packet of the peer's was marked as congested: notifies the peer, but not for every packet.
    pub(crate) fn notify_congestion(&mut self, now: Instant) {
        let is_recent =
            |at: Instant| now.saturating_duration_since(at) < Pacer::NOTIFICATION_INTERVAL;
        if !self.notified.is_some_and(is_recent) {
            self.notified = Some(now);
            self.owes_notification = true;
        }
    }

    /// Sends the congestion notification packet that is owed.
    fn send_notification<B: Backend>(
        &mut self,
        connection: &Connection,
        context: &mut Context<'_, B>,
        out: &mut TransmitList,
    ) {
        let opcode = Opcode::CongestionNotification.to_wire();
        let mut bth = Bth::new(opcode, connection.remote_qpn, Psn::default());
        bth.congestion = Bth::BECN;
        let headers = ExtendedHeaders::default();
        let payload = Payload::Bytes(&[0; CNP_PAYLOAD_LEN_BYTES]);
        let pushed = out.push(&connection.flow, bth, &headers, payload, context.backend);
        self.owes_notification = pushed.is_err();
    }

    /// When [`QueuePair::handle_timeout`] is due.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        if self.state != QpState::ReadyToSend {
            return None;
        }
        earlier(self.pacer.resumes_at(), self.requester.poll_timeout())
    }

    /// The deadline has passed: retransmits, or gives up.
    pub(crate) fn handle_timeout(&mut self, now: Instant, completions: &mut VecDeque<Completion>) {
        if self.state != QpState::ReadyToSend {
            return;
        }
        self.pacer.on_timeout(now);
        if let Some(failure) = self.requester.handle_timeout(now) {
            self.fail(failure, completions);
        }
    }

    /// Ends all work. Outstanding requests are flushed.
    pub(crate) fn fail(&mut self, failure: QpFailure, completions: &mut VecDeque<Completion>) {
        if self.state == QpState::Error {
            return;
        }
        self.transition(Transition::Fail);
        self.failure = Some(failure);
        let status = match failure {
            QpFailure::Request(status) => status,
            QpFailure::Responder(_) | QpFailure::Closed => WorkStatus::Flushed,
        };
        self.requester.flush(status, completions);
        self.responder.flush(completions);
    }

    /// Why it failed, once.
    pub(crate) fn take_failure(&mut self) -> Option<QpFailure> {
        self.failure.take()
    }

    /// Places of requests that succeeded without saying so are free at once.
    #[inline]
    fn count_unsignaled(&mut self) {
        self.sends_held -= self.requester.take_silent();
    }

    fn transition(&mut self, transition: Transition) {
        self.state = self
            .state
            .apply(transition)
            .expect("callers look at the state before they change it");
    }
}

/// The result of [`QueuePair::poll_transmit`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transmitted {
    /// Nothing more can be sent until a packet arrives, a request is posted, or a timer fires.
    All,
    /// The budget is spent.
    BudgetSpent,
    /// Congestion: the rest waits for its time.
    Waiting,
    /// The list is full.
    ListFull,
    /// It failed over the attempt.
    Failed(QpFailure),
}

/// The time that a peer is asked to wait.
fn rnr_timer(config: &QpConfig) -> RnrTimer {
    RnrTimer::at_least(config.rnr_wait)
}

/// Bytes after the BTH of a congestion notification packet; they mean nothing.
const CNP_PAYLOAD_LEN_BYTES: usize = 16;

/// Sequence numbers start here plus the first PSN, so that there is room below for old packets.
const SEQUENCE_BASE: u64 = 1 << 32;

fn first_sequence(psn: Psn) -> u64 {
    SEQUENCE_BASE + u64::from(psn.get())
}
