//! The controller's end of an NVMe/RDMA connection.
//!
//! Read first: NVMe RDMA Transport 1.0, "Transport Specific Content".
//!
//! ```text
//!            Connect                 violation, controller gone
//!  Started ─────────► Ready ─────────────────────────────────────► Closing
//!  (Connect alone)    (queue of a controller)
//! ```
//!
//! [`ControllerSession`] takes a message as a command capsule, keeps where each command's data are
//! in the host's memory (`sgl`, `inbound`) and posts RDMA WRITEs and response capsules
//! (`outbound`); [`Queue`] executes commands. There is no termination message:
//! a host that breaks the protocol is disconnected.

mod inbound;
mod outbound;
mod sgl;

use std::marker::PhantomData;
use std::time::{Duration, Instant};

use block::Completion;
use session::{MessageSession, RemoteKey, Session, WorkList};
use zerocopy::FromBytes;

use self::inbound::Inbound;
use self::outbound::Outbound;
use self::sgl::Places;
use super::wire::{ConnectReply, ConnectRequest, RECORD_FORMAT, RejectStatus};
use crate::controller::{Backend, Begun, DataPointer, Limits, Queue, QueueFull};
use crate::wire::Sqe;

/// The settings of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControllerConfig {
    /// The bounds of queues and capsules: those of the subsystems behind the portal.
    pub limits: Limits,
    /// How long a host may take from the start of the connection to a successful Connect.
    pub connect_timeout: Duration,
}

impl Default for ControllerConfig {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            connect_timeout: Duration::from_secs(30),
        }
    }
}

/// Why a connection has to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SessionError {
    /// A message is no command capsule.
    #[error("a message of {len_bytes} bytes is shorter than a command capsule (64 bytes)")]
    ShortCapsule {
        /// Its length.
        len_bytes: usize,
    },
    /// The host submitted more commands than it may.
    #[error(transparent)]
    QueueFull(#[from] QueueFull),
    /// Connect names another queue, another controller or a longer queue than the request for the
    /// connection did.
    #[error("the Connect command names another queue than the connection request")]
    OtherQueue,
    /// The data of a read were not asked for, or are too many.
    #[error("data arrived that were not requested")]
    UnexpectedData,
    /// No Connect succeeded in time.
    #[error("the host did not connect in time")]
    ConnectTimeout,
}

/// A session, and what its connection is to be like.
pub struct Accepted<B> {
    /// The session.
    pub session: ControllerSession<B>,
    /// The response to the host.
    pub reply: ConnectReply,
    /// Receives to keep posted.
    pub receives: u16,
    /// The length of each, in bytes.
    pub receive_len_bytes: u32,
    /// Requests of the session's at once.
    pub sends: u16,
    /// RDMA READs among them.
    pub reads: u8,
}

/// The controller's end of one connection.
#[derive(Debug)]
pub struct ControllerSession<B> {
    queue: Queue,
    /// The queue's properties in the host's connection request.
    asked: ConnectRequest,
    /// Where the data of the command in each slot are.
    places: Vec<Places>,
    inbound: Inbound,
    outbound: Outbound,
    stage: Stage,
    /// The instant of the last turn.
    turn: Instant,
    connect_deadline: Instant,
    backend: PhantomData<fn(&mut B)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Connect has not succeeded.
    Started,
    /// It is a queue of a controller.
    Ready,
    /// The connection ends once what is ready was sent.
    Ending,
    /// The connection ends, and nothing more is said.
    Broken,
}

impl<B> ControllerSession<B> {
    /// Requests beside one for each entry of the queue: the pieces of data.
    const SENDS_EXTRA: u32 = 64;
    /// The most requests at once.
    const SENDS_MAX: u32 = 1024;
    /// The most RDMA READs at once.
    const READS_MAX: u8 = 64;

    /// Checks the private data of a connection request by a host that supports `reads_max`
    /// outstanding RDMA READs. Bytes after the record are padding.
    pub fn accept(
        now: Instant,
        config: &ControllerConfig,
        private_data: &[u8],
        reads_max: u8,
    ) -> Result<Accepted<B>, RejectStatus> {
        let (asked, _) = ConnectRequest::read_from_prefix(private_data)
            .map_err(|_| RejectStatus::InvalidLength)?;
        if asked.record_format.get() != RECORD_FORMAT {
            return Err(RejectStatus::InvalidRecordFormat);
        }
        let limits = &config.limits;
        let entries_max = match asked.queue.get() {
            0 => limits.admin_queue_depth_max,
            queue if queue > limits.io_queues_max => return Err(RejectStatus::InvalidQueueId),
            _ => limits.io_queue_depth_max,
        };
        let entries = asked.entries();
        if entries < 2 || entries > entries_max {
            return Err(RejectStatus::InvalidHostSends);
        }
        if asked.host_receives.get() == 0 {
            return Err(RejectStatus::InvalidHostReceives);
        }
        if reads_max == 0 {
            return Err(RejectStatus::InvalidInboundReads);
        }
        let session = Self {
            queue: Queue::new(now),
            asked,
            places: Vec::new(),
            inbound: Inbound::default(),
            outbound: Outbound::default(),
            stage: Stage::Started,
            turn: now,
            connect_deadline: now + config.connect_timeout,
            backend: PhantomData,
        };
        let sends = (entries + Self::SENDS_EXTRA).min(Self::SENDS_MAX);
        Ok(Accepted {
            session,
            reply: ConnectReply::new(entries as u16),
            receives: entries as u16,
            receive_len_bytes: size_of::<Sqe>() as u32 + limits.rdma_in_capsule_data_max_bytes,
            sends: sends as u16,
            reads: reads_max.min(Self::READS_MAX),
        })
    }

    /// The queue that this connection is.
    pub fn queue(&self) -> &Queue {
        &self.queue
    }
}

impl<B: Backend> MessageSession for ControllerSession<B> {
    fn handle_message(
        &mut self,
        now: Instant,
        message: &[u8],
        _invalidated: Option<RemoteKey>,
        backend: &mut B,
    ) -> Result<(), SessionError> {
        if self.is_closing() {
            return Ok(());
        }
        if let Some(connection) = self.queue.connection() {
            connection.activity.mark();
        }
        self.start_turn(now);
        let result = self.take_capsule(message, backend);
        self.settle(result)
    }

    fn handle_read(
        &mut self,
        now: Instant,
        tag: u64,
        data: &[u8],
        backend: &mut B,
    ) -> Result<(), SessionError> {
        if self.is_closing() {
            return Ok(());
        }
        self.start_turn(now);
        let result = match self.inbound.received(tag, data.len()) {
            Some((slot, is_whole)) if self.queue.receiving(slot).is_some() => {
                self.queue.data(slot, data, backend);
                if is_whole {
                    self.queue.data_done(slot, backend);
                }
                Ok(())
            }
            _ => Err(SessionError::UnexpectedData),
        };
        self.settle(result)
    }

    fn poll_transmit(&mut self, now: Instant, backend: &mut B, out: &mut dyn WorkList) {
        if self.stage == Stage::Broken {
            return;
        }
        self.inbound.poll(&self.places, out);
        self.outbound
            .poll(now, &mut self.queue, &self.places, backend, out);
    }
}

impl<B: Backend> Session for ControllerSession<B> {
    type Backend = B;
    type Error = SessionError;

    fn wants_transmit(&self) -> bool {
        let wants = self.inbound.wants() || self.queue.has_ready() || self.outbound.wants();
        self.stage != Stage::Broken && wants
    }

    fn is_idle(&self) -> bool {
        self.queue.is_idle() && !self.wants_transmit()
    }

    fn may_close(&mut self, backend: &mut B) -> bool {
        self.is_idle() && self.queue.may_close(backend)
    }

    fn is_closing(&self) -> bool {
        matches!(self.stage, Stage::Ending | Stage::Broken)
    }

    fn handle_wake(&mut self, now: Instant, backend: &mut B) -> Result<(), SessionError> {
        self.queue.handle_wake(now, backend);
        self.settle(Ok(()))
    }

    fn handle_completion(
        &mut self,
        now: Instant,
        completion: Completion,
        backend: &mut B,
    ) -> Result<(), SessionError> {
        if !self.is_closing()
            && let Begun::Receive { slot, pointer } =
                self.queue.handle_completion(now, completion, backend)
        {
            self.inbound.begin(slot, pointer.len_bytes());
        }
        Ok(())
    }

    fn poll_timeout(&self) -> Option<Instant> {
        if self.is_closing() {
            return None;
        }
        let is_connected = self.queue.connection().is_some();
        let connect = (!is_connected).then_some(self.connect_deadline);
        self.queue.poll_timeout().into_iter().chain(connect).min()
    }

    fn handle_timeout(&mut self, now: Instant, backend: &mut B) -> Result<(), SessionError> {
        self.queue.handle_timeout(now, backend);
        if self.queue.connection().is_none() && now >= self.connect_deadline {
            return self.settle(Err(SessionError::ConnectTimeout));
        }
        self.settle(Ok(()))
    }

    fn handle_close(&mut self, _now: Instant, backend: &mut B) {
        self.stage = Stage::Broken;
        self.queue.handle_close(backend);
    }
}

impl<B: Backend> ControllerSession<B> {
    /// All that comes at one instant is one turn.
    fn start_turn(&mut self, now: Instant) {
        if now != self.turn {
            self.turn = now;
            self.queue.start_turn(now);
        }
    }

    fn take_capsule(&mut self, message: &[u8], backend: &mut B) -> Result<(), SessionError> {
        let Ok((sqe, in_capsule)) = Sqe::ref_from_prefix(message) else {
            return Err(SessionError::ShortCapsule {
                len_bytes: message.len(),
            });
        };
        // If no slot is free, `begin` reports it.
        let index = self.queue.next_slot().map_or(0, |slot| slot.0.into());
        if self.places.len() <= index {
            self.places.resize_with(index + 1, Places::default);
        }
        let in_capsule_max = self.queue.in_capsule_max_bytes() as usize;
        let in_capsule = &in_capsule[..in_capsule.len().min(in_capsule_max)];
        let pointer = self.places[index].parse(&sqe.sgl1, in_capsule);
        match self.queue.begin(sqe, pointer, backend)? {
            Begun::Done => {}
            Begun::Receive {
                slot,
                pointer: DataPointer::InCapsule { .. },
            } => {
                let data = self.places[index].in_capsule(in_capsule);
                self.queue.data(slot, data, backend);
                self.queue.data_done(slot, backend);
            }
            Begun::Receive {
                slot,
                pointer: DataPointer::Remote { len_bytes },
            } => self.inbound.begin(slot, len_bytes),
        }
        Ok(())
    }

    /// After input or time: the connection may have become a queue, or have to end.
    fn settle(&mut self, result: Result<(), SessionError>) -> Result<(), SessionError> {
        let result = result.and_then(|()| self.check_queue());
        if result.is_err() {
            self.stage = Stage::Broken;
        } else if self.queue.is_ended() && self.stage != Stage::Broken {
            self.stage = Stage::Ending;
        }
        result
    }

    /// Connect has to be for the queue of the connection request: its receives are as many
    /// as that has entries.
    fn check_queue(&mut self) -> Result<(), SessionError> {
        let (Stage::Started, Some(connection)) = (self.stage, self.queue.connection()) else {
            return Ok(());
        };
        self.stage = Stage::Ready;
        let controller = self.asked.controller.get();
        let is_as_asked = connection.queue.0 == self.asked.queue.get()
            && connection.sq_entries <= self.asked.entries()
            && (connection.queue.is_admin()
                || controller == 0
                || controller == connection.controller.0);
        if is_as_asked {
            Ok(())
        } else {
            Err(SessionError::OtherQueue)
        }
    }
}

#[cfg(test)]
mod tests;
