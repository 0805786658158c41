//! In-band authentication from the host's side: the messages of [`HostAuth`] in commands.
//!
//! Read first: NVM Express Base 2.0, "Authentication Send Command" and "Authentication Receive
//! Command".

use super::{BufferRange, Command, Outcome, Transfer};
use crate::auth::{AuthStep, GeneratedKey, HostAuth, HostAuthError};
use crate::wire::Status;
use crate::wire::auth::{AuthenticationSqe, MESSAGE_MAX_BYTES};
use crate::wire::fabrics::fctype;

/// Authenticates a queue that has connected, one command at a time.
#[derive(Debug)]
pub struct Authenticator {
    auth: HostAuth,
    /// Whether the command in flight brings a message.
    receives: bool,
}

/// The next thing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthenticatorStep {
    /// Submit this, and hand its outcome to [`Authenticator::handle_outcome`].
    Submit(Command),
    /// The queue is authenticated.
    Done,
}

impl Authenticator {
    /// What the buffer of its commands has to hold.
    pub const BUFFER_BYTES: usize = MESSAGE_MAX_BYTES;

    /// At the first step.
    pub fn new(auth: HostAuth) -> Self {
        Self {
            auth,
            receives: false,
        }
    }

    /// Whether the controller has to prove a secret, too.
    pub fn is_mutual(&self) -> bool {
        self.auth.is_mutual()
    }

    /// The key for TLS, once the authentication is done that has generated one.
    pub fn generated_key(&self) -> Option<&GeneratedKey> {
        self.auth.generated_key()
    }

    /// The next step. Fills the first bytes of `slot`'s `buffer` with a message to send.
    pub fn poll(
        &mut self,
        slot: u16,
        buffer: &mut [u8],
    ) -> Result<AuthenticatorStep, HostAuthError> {
        match self.auth.poll() {
            AuthStep::Send(message) => {
                self.receives = false;
                buffer[..message.len()].copy_from_slice(&message);
                let len_bytes = message.len() as u32;
                let sqe = AuthenticationSqe::new(fctype::AUTHENTICATION_SEND, len_bytes);
                Ok(AuthenticatorStep::Submit(Command {
                    sqe: zerocopy::transmute!(sqe),
                    transfer: Transfer::ToController(BufferRange::first(slot, len_bytes)),
                }))
            }
            AuthStep::Receive => {
                self.receives = true;
                // A message of fewer bytes leaves the rest as it is.
                buffer[..MESSAGE_MAX_BYTES].fill(0);
                let len_bytes = MESSAGE_MAX_BYTES as u32;
                let sqe = AuthenticationSqe::new(fctype::AUTHENTICATION_RECEIVE, len_bytes);
                Ok(AuthenticatorStep::Submit(Command {
                    sqe: zerocopy::transmute!(sqe),
                    transfer: Transfer::ToHost(BufferRange::first(slot, len_bytes)),
                }))
            }
            AuthStep::Done => Ok(AuthenticatorStep::Done),
            AuthStep::Failed(error) => Err(error),
        }
    }

    /// The command has ended; `buffer` is that of its slot. An error is the status with which the
    /// controller rejected it.
    pub fn handle_outcome(&mut self, outcome: &Outcome, buffer: &[u8]) -> Result<(), Status> {
        if self.auth.is_failed() {
            // The message was only the notification of the controller.
            return Ok(());
        }
        if !outcome.status.is_success() {
            return Err(outcome.status);
        }
        if self.receives {
            self.auth.handle_message(&buffer[..MESSAGE_MAX_BYTES]);
        }
        Ok(())
    }
}
