//! A target's end of one iSER connection: messages and data that were read in, requests out.
//!
//! Read first: RFC 7145 §5 (connection setup), §7.3 (PDUs).
//!
//! ```text
//!         login is done, iSERHelloRequired=No
//! Login ──────────────────────────────────────► Open
//!   │  iSERHelloRequired=Yes                      ▲
//!   └────────────────────► AwaitingHello ─────────┘
//!                                        Hello
//! ```

use std::time::Instant;

use block::Completion;
use session::{MessageSession, RemoteBuffer, RemoteKey, Session, WorkList};
use zerocopy::FromBytes;

use super::SEGMENT_LEN_MAX_BYTES;
use super::wire::{
    CmHeader, ControlHeader, HEADER_LEN, HelloReply, Layout, Malformed, Message, Tag,
};
use crate::backend::Backend;
use crate::login::Login;
use crate::params::Parameters;
use crate::params::rdma::{RdmaKeys, UNEXPECTED_PDUS_MAX};
use crate::target::task::Advertised;
use crate::tcp::session::{AHS_LEN_MAX, Connection, Stage};
use crate::wire::BHS_LEN;
use crate::wire::command::ScsiCommand;

/// How a peer breaks the protocol so that the connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PeerError {
    /// As over TCP.
    #[error(transparent)]
    Iscsi(#[from] crate::tcp::session::PeerError),
    /// A message that is none of iSER's.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// Another message where Hello was announced.
    #[error("iSERHelloRequired=Yes was declared, but the first message is not a Hello")]
    HelloMissing,
    /// Hello where none was announced, or a HelloReply.
    #[error("a Hello or HelloReply arrived where none is allowed")]
    UnexpectedHello,
}

/// What a target's end of a connection has room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TargetConfig {
    /// The command window.
    pub commands_max: u16,
    /// RDMA READs outstanding.
    pub reads_max: u16,
}

impl Default for TargetConfig {
    fn default() -> Self {
        Self {
            commands_max: 128,
            reads_max: 16,
        }
    }
}

impl TargetConfig {
    /// Bytes of a receive: a message whose data segment is as long as was negotiated.
    pub const RECEIVE_LEN_BYTES: u32 =
        (HEADER_LEN + BHS_LEN + AHS_LEN_MAX) as u32 + SEGMENT_LEN_MAX_BYTES;
    /// Bytes of the longest message that is sent.
    pub const SEND_LEN_MAX_BYTES: u32 = (HEADER_LEN + BHS_LEN) as u32 + SEGMENT_LEN_MAX_BYTES;

    /// How many receives are posted: for the command window and the unexpected PDUs. Initiators that send more wait for
    /// the transport, which tells them to (receiver not ready).
    pub const fn receives(&self) -> u16 {
        self.commands_max + UNEXPECTED_PDUS_MAX
    }
}

/// How a connection request is accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// Both ends use zero-based addresses.
    zero_based: bool,
    /// Write Base Offset counts from the first byte of all data-out, unless the login says otherwise.
    counts_all_data: bool,
    invalidates: bool,
}

/// Takes the private data of a connection request; what they lead to, and the private data of the reply.
///
/// Zero-based addresses are used where the initiator says that it has them: its headers may then come without addresses, and
/// addresses that they do have are taken as they stand, from 0 on.
pub fn accept(private_data: &[u8]) -> (Accepted, [u8; 4]) {
    let asked = CmHeader::parse(private_data);
    let zero_based = asked.is_some_and(CmHeader::zero_based);
    let accepted = Accepted {
        zero_based,
        counts_all_data: asked.is_none() || zero_based,
        invalidates: asked.is_some_and(CmHeader::invalidates),
    };
    let reply = CmHeader::new(zero_based, accepted.invalidates);
    (accepted, zerocopy::transmute!(reply))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HelloState {
    Login,
    AwaitingHello,
    Open,
}

/// An iSER target's end of one connection.
pub struct TargetSession<B> {
    pub(super) core: Connection<B>,
    config: TargetConfig,
    pub(super) invalidates: bool,
    hello: HelloState,
    /// `None` before the first message, where that is to tell.
    layout: Option<Layout>,
    pub(super) hello_reply: Option<HelloReply>,
    /// RDMA READs that were posted, and those whose data have come.
    pub(super) reads_posted: u64,
    pub(super) reads_done: u64,
}

impl<B: Backend> TargetSession<B> {
    /// A session over a connection that was just accepted.
    pub fn new(accepted: Accepted, config: TargetConfig) -> Self {
        let keys = RdmaKeys::new(accepted.counts_all_data);
        Self {
            core: Connection::with_login(Login::over_rdma(keys), usize::from(config.commands_max)),
            config,
            invalidates: accepted.invalidates,
            hello: HelloState::Login,
            layout: (!accepted.zero_based).then_some(Layout::Expanded),
            hello_reply: None,
            reads_posted: 0,
            reads_done: 0,
        }
    }

    /// The negotiated parameters, once logged in.
    pub fn parameters(&self) -> Option<&Parameters> {
        self.core.parameters()
    }

    /// How headers are laid out, both ways.
    pub(super) fn layout(&self) -> Layout {
        self.layout.unwrap_or_default()
    }

    /// The initiator's name, once logged in.
    pub fn initiator(&self) -> Option<&str> {
        self.core.initiator()
    }

    fn on_control(
        &mut self,
        now: Instant,
        (header, pdu): (&ControlHeader, &[u8]),
        backend: &mut B,
    ) -> Result<(), PeerError> {
        if self.hello == HelloState::AwaitingHello {
            return Err(PeerError::HelloMissing);
        }
        self.core.advertised = advertised(header, pdu);
        self.core.handle_pdu(now, pdu, backend)?;
        if self.hello == HelloState::Login
            && let Some(parameters) = self.core.parameters()
        {
            let keys = parameters.rdma.as_ref();
            self.hello = if keys.is_some_and(|keys| keys.hello_required) {
                HelloState::AwaitingHello
            } else {
                HelloState::Open
            };
        }
        Ok(())
    }

    /// Whether replies may be sent: while reads are outstanding of a task that was aborted, none is, since the initiator
    /// takes the task's buffer back once it is told.
    pub(super) fn may_reply(&self) -> bool {
        let outstanding = self.reads_posted - self.reads_done;
        let of_tasks = || match &self.core.stage {
            Stage::Full(full) => full.tasks.outstanding_r2ts() as u64,
            Stage::Login(_) => 0,
        };
        outstanding == 0 || outstanding == of_tasks()
    }
}

/// The buffers that a SCSI Command names. How long they are is not said: as long as its Expected Data Transfer Length.
fn advertised(header: &ControlHeader, pdu: &[u8]) -> Advertised {
    let Ok((command, _)) = ScsiCommand::read_from_prefix(pdu) else {
        return Advertised::default();
    };
    let buffer = |tag: Tag| RemoteBuffer {
        address: tag.base,
        key: RemoteKey(tag.stag),
        len_bytes: command.expected_len.get(),
    };
    Advertised {
        read: header.read().filter(|_| command.reads()).map(buffer),
        write: header.write().filter(|_| command.writes()).map(buffer),
        write_base: 0,
    }
}

impl<B: Backend> MessageSession for TargetSession<B> {
    fn handle_message(
        &mut self,
        now: Instant,
        message: &[u8],
        _: Option<RemoteKey>,
        backend: &mut B,
    ) -> Result<(), PeerError> {
        let layout = self.layout.get_or_insert_with(|| Layout::of_login(message));
        match Message::parse(message, *layout)? {
            Message::Control(header, pdu) => self.on_control(now, (&header, pdu), backend),
            Message::Hello(hello) if self.hello == HelloState::AwaitingHello => {
                self.hello = HelloState::Open;
                self.hello_reply = Some(hello.reply(self.config.reads_max));
                Ok(())
            }
            Message::Hello(_) | Message::HelloReply(_) => Err(PeerError::UnexpectedHello),
        }
    }

    fn handle_read(
        &mut self,
        now: Instant,
        tag: u64,
        data: &[u8],
        backend: &mut B,
    ) -> Result<(), PeerError> {
        self.reads_done += 1;
        let slot = match (&self.core.stage, u32::try_from(tag)) {
            (Stage::Full(full), Ok(tag)) => full.tasks.by_transfer_tag(tag),
            _ => None,
        };
        // Data of a task that was aborted are thrown away.
        if let Some(slot) = slot {
            self.core.on_read(slot, data, now, backend);
        }
        Ok(())
    }

    fn poll_transmit(&mut self, now: Instant, backend: &mut B, out: &mut dyn WorkList) {
        self.core.look_at_standing(now, backend);
        self.transmit(now, backend, out);
    }
}

impl<B: Backend> Session for TargetSession<B> {
    type Backend = B;
    type Error = PeerError;

    fn wants_transmit(&self) -> bool {
        if self.core.closing {
            return false;
        }
        let tasks = match &self.core.stage {
            Stage::Full(full) => full.tasks.has_ready(),
            Stage::Login(_) => false,
        };
        let replies = !self.core.replies.is_empty() && self.may_reply();
        tasks || replies || self.hello_reply.is_some()
    }

    fn is_idle(&self) -> bool {
        self.core.is_idle() && self.hello_reply.is_none() && self.reads_done == self.reads_posted
    }

    fn is_closing(&self) -> bool {
        self.core.is_closing()
    }

    fn handle_wake(&mut self, now: Instant, backend: &mut B) -> Result<(), PeerError> {
        Ok(self.core.handle_wake(now, backend)?)
    }

    fn handle_completion(
        &mut self,
        now: Instant,
        completion: Completion,
        backend: &mut B,
    ) -> Result<(), PeerError> {
        Ok(self.core.handle_completion(now, completion, backend)?)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.core.poll_timeout()
    }

    fn handle_timeout(&mut self, now: Instant, backend: &mut B) -> Result<(), PeerError> {
        Ok(self.core.handle_timeout(now, backend)?)
    }

    fn handle_close(&mut self, now: Instant, backend: &mut B) {
        self.core.handle_close(now, backend);
    }
}
