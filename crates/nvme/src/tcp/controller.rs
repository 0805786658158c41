//! The controller's end of an NVMe/TCP connection.
//!
//! Read first: NVMe/TCP 1.1, "Transport Specific Content", "Error Handling Model".
//!
//! ```text
//!            ICReq              Connect             violation, H2CTermReq,
//!  Started ─────────► Ready ─────────────► Ready ─── controller gone ─────► Closing
//!                    (commands: Connect    (queue of a controller)
//!                     alone)
//! ```
//!
//! [`ControllerSession`] cuts the byte stream into PDUs (`receive`), tracks transfers (`transfer`)
//! and writes PDUs (`transmit`); [`Queue`] executes commands.

mod receive;
mod transfer;
mod transmit;

use std::marker::PhantomData;
use std::time::{Duration, Instant};

use block::Completion;
use session::{Pace, SendList, Session, StreamSession};

use self::receive::Receiver;
use self::transfer::Transfers;
use self::transmit::Transmitter;
use super::wire::{Dgst, Fes, Layout, MAXH2CDATA_MIN_BYTES, Pda, Violation};
use crate::controller::{Backend, Queue, QueueFull};

/// The settings of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControllerConfig {
    /// Digests that hosts may request.
    pub dgst: Dgst,
    /// The alignment that data from the host have to keep to (CPDA).
    pub cpda: Pda,
    /// The most data of one H2CData (MAXH2CDATA): a multiple of 4, at least 4096.
    pub maxh2cdata_bytes: u32,
    /// The most data that one R2T requests if the host supports several outstanding R2Ts per
    /// command; a multiple of 4096. Longer commands need several R2Ts. A host that supports one R2T
    /// at a time gets one R2T for all data, since every further R2T would cost a round trip.
    pub r2t_max_bytes: u32,
    /// Reads of at least this many bytes are placed into the send list; shorter ones are copied.
    pub place_min_bytes: u32,
    /// How long a host may take from the start of the connection to a successful Connect.
    pub connect_timeout: Duration,
}

impl Default for ControllerConfig {
    fn default() -> Self {
        Self {
            dgst: Dgst::HEADER | Dgst::DATA,
            cpda: Pda(0),
            maxh2cdata_bytes: 128 << 10,
            r2t_max_bytes: 256 << 10,
            place_min_bytes: 4 << 10,
            connect_timeout: Duration::from_secs(30),
        }
    }
}

/// Why a connection has to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SessionError {
    /// The host broke the protocol; a C2HTermReq reports the violation.
    #[error("the host broke the protocol: {0}")]
    Violation(#[from] Violation),
    /// The host submitted more commands than it may.
    #[error(transparent)]
    QueueFull(#[from] QueueFull),
    /// The host said that the controller broke the protocol.
    #[error("the host terminated the connection: status {fes:#x}, information {fei:#x}")]
    Terminated {
        /// Fatal error status (FES) as it came.
        fes: u16,
        /// Fatal error information (FEI).
        fei: u32,
    },
    /// No Connect succeeded in time.
    #[error("the host did not connect in time")]
    ConnectTimeout,
}

/// The controller's end of one connection.
#[derive(Debug)]
pub struct ControllerSession<B> {
    config: ControllerConfig,
    queue: Queue,
    receiver: Receiver,
    transfers: Transfers,
    transmitter: Transmitter,
    /// Digests and alignment of what the host sends.
    incoming: Layout,
    pace: Pace,
    stage: Stage,
    connect_deadline: Instant,
    backend: PhantomData<fn(&mut B)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Nothing has come.
    Started,
    /// ICReq has come.
    Ready,
    /// The connection ends.
    Closing,
}

impl<B> ControllerSession<B> {
    /// The least capacity of a send list, in bytes.
    pub const SEND_LIST_MIN_BYTES: usize = transmit::SEND_LIST_MIN_BYTES;

    /// The end of a connection that has just been accepted.
    pub fn new(now: Instant, config: ControllerConfig) -> Self {
        assert!(
            config.maxh2cdata_bytes >= MAXH2CDATA_MIN_BYTES
                && config.maxh2cdata_bytes.is_multiple_of(4),
            "MAXH2CDATA is a multiple of 4, at least 4096"
        );
        assert!(
            config.r2t_max_bytes >= 4096 && config.r2t_max_bytes.is_multiple_of(4096),
            "R2Ts ask for whole blocks"
        );
        Self {
            config,
            queue: Queue::new(now),
            receiver: Receiver::default(),
            transfers: Transfers::new(config.r2t_max_bytes),
            transmitter: Transmitter::new(config.place_min_bytes),
            incoming: Layout::default(),
            pace: Pace::default(),
            stage: Stage::Started,
            connect_deadline: now + config.connect_timeout,
            backend: PhantomData,
        }
    }

    /// The queue that this connection is.
    pub fn queue(&self) -> &Queue {
        &self.queue
    }
}

impl<B: Backend> StreamSession for ControllerSession<B> {
    fn turn_bytes(&self) -> usize {
        self.pace.turn_bytes()
    }

    fn handle_bytes(
        &mut self,
        now: Instant,
        input: &[u8],
        backend: &mut B,
    ) -> Result<(), SessionError> {
        if self.stage == Stage::Closing {
            return Ok(());
        }
        if let Some(connection) = self.queue.connection() {
            connection.activity.mark();
        }
        let result = self.receive(now, input, backend);
        if let Err(error) = result {
            self.close(error);
        }
        if self.queue.is_ended() {
            self.stage = Stage::Closing;
        }
        result
    }

    fn poll_transmit(&mut self, now: Instant, backend: &mut B, out: &mut SendList) {
        let (queue, transfers) = (&mut self.queue, &mut self.transfers);
        self.transmitter.poll(now, queue, transfers, backend, out);
    }
}

impl<B: Backend> Session for ControllerSession<B> {
    type Backend = B;
    type Error = SessionError;

    fn wants_transmit(&self) -> bool {
        self.transmitter.wants(&self.queue, &self.transfers)
    }

    fn is_idle(&self) -> bool {
        self.queue.is_idle() && !self.wants_transmit()
    }

    fn may_close(&mut self, backend: &mut B) -> bool {
        self.is_idle() && self.queue.may_close(backend)
    }

    fn is_closing(&self) -> bool {
        self.stage == Stage::Closing
    }

    fn handle_wake(&mut self, now: Instant, backend: &mut B) -> Result<(), SessionError> {
        self.queue.handle_wake(now, backend);
        if self.queue.is_ended() {
            self.stage = Stage::Closing;
        }
        Ok(())
    }

    fn handle_completion(
        &mut self,
        now: Instant,
        completion: Completion,
        backend: &mut B,
    ) -> Result<(), SessionError> {
        if self.stage != Stage::Closing {
            let begun = self.queue.handle_completion(now, completion, backend);
            self.bring_data(begun);
        }
        Ok(())
    }

    fn poll_timeout(&self) -> Option<Instant> {
        if self.stage == Stage::Closing {
            return None;
        }
        let connect = self
            .queue
            .connection()
            .is_none()
            .then_some(self.connect_deadline);
        match (self.queue.poll_timeout(), connect) {
            (Some(queue), Some(connect)) => Some(queue.min(connect)),
            (queue, connect) => queue.or(connect),
        }
    }

    fn handle_timeout(&mut self, now: Instant, backend: &mut B) -> Result<(), SessionError> {
        self.queue.handle_timeout(now, backend);
        if self.queue.connection().is_none() && now >= self.connect_deadline {
            self.close(SessionError::ConnectTimeout);
            return Err(SessionError::ConnectTimeout);
        }
        if self.queue.is_ended() {
            self.stage = Stage::Closing;
        }
        Ok(())
    }

    fn handle_close(&mut self, _now: Instant, backend: &mut B) {
        self.stage = Stage::Closing;
        self.queue.handle_close(backend);
    }
}

impl<B> ControllerSession<B> {
    /// Ends the connection. Sends C2HTermReq if the host caused the error and has not sent
    /// H2CTermReq itself.
    fn close(&mut self, error: SessionError) {
        self.stage = Stage::Closing;
        let violation = match error {
            SessionError::Violation(violation) => violation,
            SessionError::QueueFull(_) => Violation {
                fes: Fes::PduSequenceError,
                fei: 0,
            },
            SessionError::Terminated { .. } | SessionError::ConnectTimeout => {
                return self.transmitter.silence();
            }
        };
        self.transmitter
            .terminate(violation, self.receiver.offending_header());
    }
}

#[cfg(test)]
mod tests;
