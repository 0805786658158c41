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

use std::marker::PhantomData;
use std::time::Instant;

use block::Completion;
use session::{MessageSession, RemoteBuffer, RemoteKey, Session, WorkList};
use zerocopy::FromBytes;

use super::wire::{
    CmHeader, ControlHeader, HEADER_LEN, HelloReply, Layout, Malformed, Message, Tag,
};
use crate::backend::Backend;
use crate::params::rdma::{RdmaKeys, SEGMENT_LEN_MAX_BYTES, UNEXPECTED_PDUS_MAX};
use crate::params::{Parameters, RECV_SEGMENT_LEN_MAX};
use crate::peer::{self, AHS_LEN_MAX, check_lengths};
use crate::target::login_phase::LoginPhase;
use crate::target::pdu::Sink;
use crate::target::stage::Stage;
use crate::target::task::Advertised;
use crate::text::TEXT_LEN_MAX;
use crate::wire::command::ScsiCommand;
use crate::wire::{BHS_LEN, Bhs};

/// How a peer breaks the protocol so that the connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PeerError {
    /// As over TCP.
    #[error(transparent)]
    Iscsi(#[from] peer::PeerError),
    /// The message is not one of iSER.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// Hello was announced, but another message arrived.
    #[error("iSERHelloRequired=Yes was declared, but the first message is not a Hello")]
    HelloMissing,
    /// A Hello that was not announced, or a HelloReply.
    #[error("a Hello or HelloReply arrived where none is allowed")]
    UnexpectedHello,
}

/// The limits of a target's end of a connection.
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

    /// How many receives are posted: for the command window and the unexpected PDUs. The transport
    /// makes initiators that send more wait (receiver not ready).
    pub const fn receives(&self) -> u16 {
        self.commands_max + UNEXPECTED_PDUS_MAX
    }
}

/// How a connection request is accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// Both ends use zero-based addresses.
    zero_based: bool,
    /// Write Base Offset counts from the first byte of all data-out, unless the login says
    /// otherwise.
    counts_all_data: bool,
    invalidates: bool,
}

/// Takes the private data of a connection request. Returns how it is accepted, and the private data
/// of the reply.
///
/// Zero-based addresses are used if the initiator supports them. Its headers may then omit
/// addresses; addresses that are present are used as they are, from 0 on.
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
    pub(super) stage: Stage,
    config: TargetConfig,
    /// Responses invalidate the keys of their commands.
    pub(super) invalidates: bool,
    hello: HelloState,
    /// `None` until the first message shows it.
    layout: Option<Layout>,
    pub(super) hello_reply: Option<HelloReply>,
    /// RDMA READs that were posted.
    pub(super) reads_posted: u64,
    /// RDMA READs whose data have arrived.
    pub(super) reads_done: u64,
    backend: PhantomData<fn(&mut B)>,
}

impl<B: Backend> TargetSession<B> {
    /// A session over a connection that was just accepted.
    pub fn new(accepted: Accepted, config: TargetConfig) -> Self {
        let keys = RdmaKeys::new(accepted.counts_all_data);
        let login = LoginPhase::over_rdma(keys, usize::from(config.commands_max));
        Self {
            stage: Stage::new(login),
            config,
            invalidates: accepted.invalidates,
            hello: HelloState::Login,
            layout: (!accepted.zero_based).then_some(Layout::Expanded),
            hello_reply: None,
            reads_posted: 0,
            reads_done: 0,
            backend: PhantomData,
        }
    }

    /// The negotiated parameters, once logged in.
    pub fn parameters(&self) -> Option<&Parameters> {
        self.stage.parameters()
    }

    /// How headers are laid out, both ways.
    pub(super) fn layout(&self) -> Layout {
        self.layout.unwrap_or_default()
    }

    /// The initiator's name, once logged in.
    pub fn initiator(&self) -> Option<&str> {
        self.stage.initiator()
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
        match &mut self.stage {
            Stage::Login(login) if login.is_closing() => {}
            Stage::Login(login) => {
                login.start(now);
                let (bhs, segment) = cut(pdu, TEXT_LEN_MAX)?;
                if let Some(full) = login.handle(now, bhs, segment, backend)? {
                    self.stage = Stage::Full(Box::new(full));
                    self.leave_login();
                }
            }
            Stage::Full(core) => {
                core.continue_turn(now, backend);
                if core.takes_input() {
                    let (bhs, data) = cut(pdu, RECV_SEGMENT_LEN_MAX as usize)?;
                    let keys = core.parameters.rdma.as_ref();
                    let solicited_only = keys.is_some_and(|keys| keys.solicited_only);
                    let advertised = Advertised {
                        write_base: solicited_only.then_some(0),
                        ..advertised(header, bhs)
                    };
                    let sink = core.handle_header(now, bhs, advertised, backend)?;
                    if let Sink::Write { slot } = sink
                        && !data.is_empty()
                    {
                        core.handle_data(slot, data, backend);
                    }
                    core.finish_pdu(now, (bhs, sink), data, backend)?;
                }
            }
        }
        Ok(())
    }

    /// Notes that the login is done, if it is.
    fn leave_login(&mut self) {
        let (HelloState::Login, Stage::Full(full)) = (self.hello, &self.stage) else {
            return;
        };
        let keys = full.parameters.rdma.as_ref();
        self.hello = if keys.is_some_and(|keys| keys.hello_required) {
            HelloState::AwaitingHello
        } else {
            HelloState::Open
        };
    }

    /// Whether no reply may be sent. While reads of an aborted task are outstanding, none may,
    /// since the initiator reuses the task's buffer once it has the reply.
    pub(super) fn holds_replies(&self) -> bool {
        let outstanding = self.reads_posted - self.reads_done;
        let of_tasks = || match &self.stage {
            Stage::Full(core) => core.tasks.outstanding_r2ts() as u64,
            Stage::Login(_) => 0,
        };
        outstanding != 0 && outstanding != of_tasks()
    }
}

/// Cuts a PDU that arrived in one piece, without digests: over RDMA a message is a PDU. Padding may
/// follow.
fn cut(pdu: &[u8], segment_len_max: usize) -> Result<(&Bhs, &[u8]), peer::PeerError> {
    let truncated = peer::PeerError::Truncated(pdu.len());
    let (bhs, rest) = Bhs::ref_from_prefix(pdu).map_err(|_| truncated)?;
    let ahs_len = check_lengths(bhs, segment_len_max)?;
    let len = bhs.data_segment_len.get() as usize;
    let data = rest.get(ahs_len..).and_then(|rest| rest.get(..len));
    Ok((bhs, data.ok_or(truncated)?))
}

/// The buffers that a SCSI Command names. Their length is not stated: it is the Expected Data
/// Transfer Length.
fn advertised(header: &ControlHeader, bhs: &Bhs) -> Advertised {
    let command: &ScsiCommand = bhs.cast();
    let buffer = |tag: Tag| RemoteBuffer {
        address: tag.base,
        key: RemoteKey(tag.stag),
        len_bytes: command.expected_len.get(),
    };
    Advertised {
        read: header.read().filter(|_| command.reads()).map(buffer),
        write: header.write().filter(|_| command.writes()).map(buffer),
        write_base: None,
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
        // Data of a task that was aborted are discarded.
        if let Stage::Full(core) = &mut self.stage
            && let Ok(tag) = u32::try_from(tag)
            && let Some(slot) = core.tasks.by_transfer_tag(tag)
        {
            core.handle_read(slot, data, now, backend);
        }
        Ok(())
    }

    fn poll_transmit(&mut self, now: Instant, backend: &mut B, out: &mut dyn WorkList) {
        if let Stage::Full(core) = &mut self.stage {
            core.check_session_state(now, backend);
        }
        self.transmit(now, backend, out);
    }
}

impl<B: Backend> Session for TargetSession<B> {
    type Backend = B;
    type Error = PeerError;

    fn wants_transmit(&self) -> bool {
        let has_replies = self.stage.has_replies() && !self.holds_replies();
        let has_output = self.stage.has_ready() || has_replies || self.hello_reply.is_some();
        !self.stage.is_closing() && has_output
    }

    fn is_idle(&self) -> bool {
        self.stage.is_idle() && self.hello_reply.is_none() && self.reads_done == self.reads_posted
    }

    fn is_closing(&self) -> bool {
        self.stage.is_closing()
    }

    fn handle_wake(&mut self, now: Instant, backend: &mut B) -> Result<(), PeerError> {
        self.stage.handle_wake(now, backend);
        self.leave_login();
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
        Ok(self.stage.handle_timeout(now, backend)?)
    }

    fn handle_close(&mut self, now: Instant, backend: &mut B) {
        self.stage.handle_close(now, backend);
    }
}
