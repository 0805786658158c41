//! The session over a byte stream: what the program around it calls.

use std::marker::PhantomData;
use std::time::Instant;

use block::Completion;
use session::{Pace, SendList, Session, StreamSession};

use super::receive::Receiver;
use super::transmit::{Digests, send_replies, transmit};
use crate::backend::Backend;
use crate::params::Parameters;
use crate::peer::PeerError;
use crate::target::login_phase::LoginPhase;
use crate::target::stage::Stage;

/// An iSCSI target's end of one TCP connection.
pub struct TargetSession<B> {
    stage: Stage,
    receiver: Receiver,
    pace: Pace,
    backend: PhantomData<fn(&mut B)>,
}

impl<B: Backend> Default for TargetSession<B> {
    fn default() -> Self {
        Self::new()
    }
}

impl<B: Backend> TargetSession<B> {
    /// The end of a connection that was just accepted.
    pub fn new() -> Self {
        Self {
            stage: Stage::new(LoginPhase::over_tcp()),
            receiver: Receiver::default(),
            pace: Pace::default(),
            backend: PhantomData,
        }
    }

    /// The negotiated parameters, once logged in.
    pub fn parameters(&self) -> Option<&Parameters> {
        self.stage.parameters()
    }

    /// The initiator's name, once logged in.
    pub fn initiator(&self) -> Option<&str> {
        self.stage.initiator()
    }

    /// Takes Login Requests until the login is done.
    fn log_in(
        &mut self,
        now: Instant,
        input: &mut &[u8],
        backend: &mut B,
    ) -> Result<(), PeerError> {
        let Stage::Login(login) = &mut self.stage else {
            return Ok(());
        };
        login.start(now);
        while !login.is_closing()
            && let Some((bhs, segment)) = self.receiver.take_login_request(input)?
        {
            let full = login.handle(now, &bhs, segment, backend)?;
            self.receiver.next_pdu();
            if let Some(full) = full {
                self.stage = Stage::Full(Box::new(full));
                return Ok(());
            }
        }
        Ok(())
    }
}

impl<B: Backend> StreamSession for TargetSession<B> {
    fn turn_bytes(&self) -> usize {
        self.pace.turn_bytes()
    }

    fn handle_bytes(
        &mut self,
        now: Instant,
        input: &[u8],
        backend: &mut B,
    ) -> Result<(), PeerError> {
        let mut rest = input;
        self.log_in(now, &mut rest, backend)?;
        let mut short_commands = 0;
        if let Stage::Full(core) = &mut self.stage {
            core.start_turn(now, backend);
            short_commands = self.receiver.receive(now, rest, core, backend)?;
            core.end_turn(now, backend);
        }
        self.pace.note(input.len(), short_commands);
        Ok(())
    }

    fn poll_transmit(&mut self, now: Instant, backend: &mut B, out: &mut SendList) {
        match &mut self.stage {
            Stage::Login(login) => {
                let numbers = login.numbers();
                send_replies(&mut login.replies, numbers, Digests::NONE, out);
            }
            Stage::Full(core) => {
                core.check_session_state(now, backend);
                transmit(core, now, backend, out);
                core.end_turn(now, backend);
            }
        }
    }
}

impl<B: Backend> Session for TargetSession<B> {
    type Backend = B;
    type Error = PeerError;

    fn wants_transmit(&self) -> bool {
        !self.stage.is_closing() && (self.stage.has_ready() || self.stage.has_replies())
    }

    fn is_idle(&self) -> bool {
        self.stage.is_idle()
    }

    fn is_closing(&self) -> bool {
        self.stage.is_closing()
    }

    fn handle_wake(&mut self, now: Instant, backend: &mut B) -> Result<(), PeerError> {
        self.stage.handle_wake(now, backend);
        Ok(())
    }

    fn handle_completion(
        &mut self,
        now: Instant,
        completion: Completion,
        backend: &mut B,
    ) -> Result<(), PeerError> {
        self.stage.handle_completion(now, completion, backend);
        Ok(())
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.stage.poll_timeout()
    }

    fn handle_timeout(&mut self, now: Instant, backend: &mut B) -> Result<(), PeerError> {
        self.stage.handle_timeout(now, backend)
    }

    fn handle_close(&mut self, now: Instant, backend: &mut B) {
        self.stage.handle_close(now, backend);
    }
}
