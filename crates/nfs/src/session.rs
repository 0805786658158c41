//! The server's end of one connection: order, output and bounds.

use std::marker::PhantomData;
use std::time::Instant;

use ::session::{SendList, Session, StreamSession};

use crate::Backend;

/// The server's end of one TCP connection: record marking, RPC with AUTH_NONE and AUTH_SYS, programs NFS (100003) and
/// MOUNT (100005), both of version 3.
pub struct NfsSession<B> {
    backend: PhantomData<fn(&mut B)>,
}

/// How a peer breaks record marking, so that the connection must end. Everything else has a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SessionError {
    /// The fragments of a record are longer than the longest call.
    #[error("a record has {len_bytes} bytes or more; the longest has {max_bytes}")]
    RecordTooLong {
        /// The length of the fragments so far.
        len_bytes: u64,
        /// The longest record.
        max_bytes: u64,
    },
}

impl<B: Backend> NfsSession<B> {
    /// The most memory that a connection takes in this session, in bytes: what the program charges for it.
    pub const BYTES_MAX: u64 = 320 << 10;

    /// The end of a connection that was just accepted.
    pub fn new() -> Self {
        Self {
            backend: PhantomData,
        }
    }
}

impl<B: Backend> Default for NfsSession<B> {
    fn default() -> Self {
        Self::new()
    }
}

impl<B: Backend> StreamSession for NfsSession<B> {
    fn handle_bytes(&mut self, _: Instant, _: &[u8], _: &mut B) -> Result<(), SessionError> {
        Ok(())
    }

    fn poll_transmit(&mut self, _: Instant, _: &mut B, _: &mut SendList) {}
}

impl<B: Backend> Session for NfsSession<B> {
    type Backend = B;
    type Error = SessionError;

    fn wants_transmit(&self) -> bool {
        false
    }

    fn is_closing(&self) -> bool {
        false
    }

    fn handle_wake(&mut self, _: Instant, _: &mut B) -> Result<(), SessionError> {
        Ok(())
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn handle_timeout(&mut self, _: Instant, _: &mut B) -> Result<(), SessionError> {
        Ok(())
    }

    fn handle_close(&mut self, _: Instant, _: &mut B) {}
}
