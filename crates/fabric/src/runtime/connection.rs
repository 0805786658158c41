//! One connection of a runtime: its session, its receives, and its posted requests.

use std::time::{Duration, Instant};

use block::ByteRange;
use memory::Charge;
use net::parts::{ConnectionPlace, Handshake};
use net::{CloseReason, ConnectionId, ListenerId};
use session::RemoteKey;

use super::acceptor::{DrivenMessages, QueueShape};
use super::pool::Pool;
use super::queue::{ReadDone, SendBatch, SendQueue, Staged};
use crate::verbs::{Completion, MemoryId, MemoryRange, QpFailure, Qpn, RecvRequest, WorkId};
use crate::{FabricError, Provider};

/// A connection.
pub(super) struct Connection {
    pub(super) id: ConnectionId,
    pub(super) listener: ListenerId,
    pub(super) qpn: Qpn,
    pub(super) driven: Box<dyn DrivenMessages>,
    pub(super) receives: Receives,
    pub(super) queue: SendQueue,
    /// It is in the queue of connections that can continue.
    pub(super) is_queued: bool,
    /// It was counted among those that wait for requests to complete.
    pub(super) is_counted: bool,
    /// When its timer fires; `None` if it is not armed.
    pub(super) armed: Option<Instant>,
    handshake: Handshake,
    phase: Phase,
    is_draining: bool,
    /// Something arrived or was posted since the attachment was last notified.
    has_worked: bool,
    _charge: Charge,
    _place: ConnectionPlace,
}

/// Memory for incoming messages.
pub(super) struct Receives {
    region: MemoryId,
    count: u16,
    len_bytes: u32,
}

enum Phase {
    Open,
    /// The session's last data are in flight. At this instant the connection is closed even if they
    /// are not acknowledged.
    Ending(CloseReason, Instant),
}

/// The parameters of an admitted connection.
pub(super) struct Admission {
    pub(super) place: ConnectionPlace,
    pub(super) handshake: Handshake,
    pub(super) charge: Charge,
}

/// How a turn left the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// It waits for its peer or its timer.
    Waits,
    /// It has more to post once its posted requests were sent.
    HasMore,
}

/// How long a peer may take to take the last words.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

impl Receives {
    /// Memory for the receives of a queue pair of this shape.
    pub(super) fn allocate<P: Provider>(
        shape: &QueueShape,
        provider: &mut P,
    ) -> Result<Self, FabricError> {
        Ok(Self {
            region: provider.allocate(Self::bytes_of(shape) as usize)?,
            count: shape.receives,
            len_bytes: shape.receive_len_bytes,
        })
    }

    /// Their length, in bytes.
    pub(super) fn bytes_of(shape: &QueueShape) -> u64 {
        u64::from(shape.receives) * u64::from(shape.receive_len_bytes)
    }

    pub(super) fn requests(&self) -> impl Iterator<Item = RecvRequest> {
        (0..self.count).map(|index| self.request(u64::from(index)))
    }

    fn request(&self, index: u64) -> RecvRequest {
        let len_bytes = u64::from(self.len_bytes);
        RecvRequest {
            id: WorkId(index),
            into: MemoryRange {
                memory: self.region,
                range: ByteRange {
                    offset: index * len_bytes,
                    len: len_bytes,
                },
            },
        }
    }

    pub(super) fn release<P: Provider>(&self, provider: &mut P) {
        provider.release(self.region);
    }
}

impl Connection {
    pub(super) fn new(
        (id, listener): (ConnectionId, ListenerId),
        qpn: Qpn,
        (driven, shape): (Box<dyn DrivenMessages>, &QueueShape),
        receives: Receives,
        admission: Admission,
    ) -> Self {
        Self {
            id,
            listener,
            qpn,
            driven,
            receives,
            queue: SendQueue::new(qpn, (shape.sends, shape.reads)),
            is_queued: false,
            is_counted: false,
            armed: None,
            handshake: admission.handshake,
            phase: Phase::Open,
            is_draining: false,
            has_worked: false,
            _charge: admission.charge,
            _place: admission.place,
        }
    }

    /// Passes a message to the session, and posts its receive again.
    pub(super) fn handle_message<P: Provider>(
        &mut self,
        now: Instant,
        completion: &Completion,
        provider: &mut P,
    ) {
        let request = self.receives.request(completion.id.0);
        if let Phase::Open = self.phase {
            self.has_worked = true;
            let at = completion.at.unwrap_or(request.into);
            let message = &provider.placed(at)[..completion.len_bytes as usize];
            let invalidated = completion.invalidated.map(|key| RemoteKey(key.0));
            let result = self.driven.handle_message(now, message, invalidated);
            self.end_on_error(now, result);
        }
        // If the queue pair has failed, an event says so.
        let _ = provider.post_recv(self.qpn, request);
    }

    /// Passes the data of a read to the session.
    pub(super) fn handle_read(&mut self, now: Instant, read: ReadDone, data: &[u8]) {
        if let Phase::Open = self.phase {
            self.has_worked = true;
            let result = self.driven.handle_read(now, read.tag, data);
            self.end_on_error(now, result);
        }
    }

    /// Lets the session post its requests.
    pub(super) fn turn<P: Provider>(
        &mut self,
        now: Instant,
        provider: &mut P,
        pool: &mut Pool,
        staged: &mut Vec<Staged>,
    ) -> Result<Turn, CloseReason> {
        if self.handshake.is_evicted() {
            return Err(CloseReason::Evicted);
        }
        let mut may_go_on = false;
        if self.driven.wants_transmit() {
            let mut batch = SendBatch {
                queue: &mut self.queue,
                pool,
                provider: &mut *provider,
                staged: &mut *staged,
                turn_bytes: SendBatch::<P>::TURN_BYTES,
            };
            self.driven.poll_transmit(now, &mut batch);
            may_go_on = batch.turn_bytes == 0;
            self.has_worked |= !staged.is_empty();
            let to_follow = may_go_on && self.driven.wants_transmit();
            self.queue
                .post(staged, to_follow, provider)
                .map_err(|error| CloseReason::Fabric(Box::new(error)))?;
            self.driven.attachment_mut().handle_drained();
        }
        if std::mem::take(&mut self.has_worked) {
            self.driven.attachment_mut().handle_sent(Instant::now());
        }
        if self.handshake.is_open() {
            self.handshake
                .advance(self.driven.attachment().login_progress());
        }
        self.close_if_done(now)?;
        if self.driven.wants_transmit() && may_go_on {
            return Ok(Turn::HasMore);
        }
        Ok(Turn::Waits)
    }

    /// Whether it can continue only after requests have completed.
    pub(super) fn awaits_requests(&self) -> bool {
        let is_ending = self.is_draining || matches!(self.phase, Phase::Ending(..));
        !self.queue.is_empty()
            && (is_ending || self.queue.has_reads() || self.driven.wants_transmit())
    }

    /// The session's shared state has changed.
    pub(super) fn wake(&mut self, now: Instant) {
        if let Phase::Open = self.phase {
            let result = self.driven.handle_wake(now);
            self.end_on_error(now, result);
        }
    }

    /// A volume is done with a command that it made wait.
    pub(super) fn complete(&mut self, now: Instant, completion: block::Completion) {
        if let Phase::Open = self.phase {
            let result = self.driven.handle_completion(now, completion);
            self.end_on_error(now, result);
        }
    }

    /// The armed timer has fired.
    pub(super) fn handle_timer(&mut self, now: Instant) -> Result<(), CloseReason> {
        if self.handshake.is_late(now) {
            return Err(CloseReason::HandshakeTimeout);
        }
        if let Phase::Ending(_, until) = &self.phase {
            if now >= *until {
                return Err(self.take_reason());
            }
        } else if self.driven.poll_timeout().is_some_and(|at| now >= at) {
            let result = self.driven.handle_timeout(now);
            self.end_on_error(now, result);
        }
        Ok(())
    }

    /// When the timer is due.
    pub(super) fn due(&self) -> Option<Instant> {
        let of_phase = match &self.phase {
            Phase::Open => self.driven.poll_timeout(),
            Phase::Ending(_, until) => Some(*until),
        };
        of_phase.into_iter().chain(self.handshake.due()).min()
    }

    /// From now on it closes as soon as no command is in progress.
    pub(super) fn drain(&mut self) {
        self.is_draining = true;
    }

    /// Tells the session that the connection has ended. Its chunks have been given back.
    pub(super) fn close(&mut self, now: Instant, reason: &CloseReason) {
        self.driven.handle_close(now, reason);
    }

    /// Advances towards the end if the session is closing or the runtime drains.
    fn close_if_done(&mut self, now: Instant) -> Result<(), CloseReason> {
        if let Phase::Open = self.phase {
            if self.is_draining && self.queue.is_empty() && self.driven.may_close() {
                return Err(CloseReason::Stopping);
            }
            if self.driven.is_closing() {
                self.phase = Phase::Ending(CloseReason::SessionEnded, now + CLOSE_TIMEOUT);
            }
        }
        let is_over = matches!(self.phase, Phase::Ending(..))
            && self.queue.is_empty()
            && !self.driven.wants_transmit();
        if is_over {
            return Err(self.take_reason());
        }
        Ok(())
    }

    fn end_on_error(&mut self, now: Instant, result: Result<(), CloseReason>) {
        if let Err(reason) = result {
            self.phase = Phase::Ending(reason, now + CLOSE_TIMEOUT);
        }
    }

    fn take_reason(&mut self) -> CloseReason {
        match std::mem::replace(&mut self.phase, Phase::Open) {
            Phase::Ending(reason, _) => reason,
            Phase::Open => CloseReason::SessionEnded,
        }
    }
}

/// Why a connection closes after its queue pair failed.
pub(super) fn failed(failure: QpFailure) -> CloseReason {
    CloseReason::Fabric(Box::new(failure))
}
