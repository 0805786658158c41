//! A connection before full feature phase, whatever the transport: Login Requests and their
//! responses.

use std::time::Instant;

use zerocopy::IntoBytes;

use super::full_feature::FullFeature;
use super::reply::{Numbering, Replies};
use super::window::SessionWindow;
use crate::backend::Backend;
use crate::login::{Login, LoginReply};
use crate::params::rdma::RdmaKeys;
use crate::peer::{COMMANDS_MAX, LOGIN_TIMEOUT, PeerError, REPLIES_MAX};
use crate::window::CommandWindow;
use crate::wire::login::{LoginRequest, LoginStatus};
use crate::wire::{BHS_LEN, Bhs, request, response};

/// A connection before full feature phase.
pub(crate) struct LoginPhase {
    login: Login,
    pub(crate) replies: Replies,
    /// CmdSN of the last request: until the window exists, that is ExpCmdSN and MaxCmdSN.
    cmd_sn: u32,
    /// The most commands outstanding, if the session has this connection alone.
    commands_max: usize,
    started: Option<Instant>,
    last: Option<LastResponse>,
}

/// The response with which full feature phase begins. It is sent once the session that it replaces
/// is executed no more (RFC 7143 §6.3.5): the initiator may then rely on what it writes.
struct LastResponse {
    fence: u64,
    header: [u8; BHS_LEN],
    text: Vec<u8>,
}

impl LoginPhase {
    /// A connection over TCP that was just accepted.
    pub(crate) fn over_tcp() -> Self {
        Self::new(Login::new(), COMMANDS_MAX)
    }

    /// A connection over RDMA that was just accepted, with its initial keys and command window.
    pub(crate) fn over_rdma(keys: RdmaKeys, commands_max: usize) -> Self {
        Self::new(Login::over_rdma(keys), commands_max)
    }

    fn new(login: Login, commands_max: usize) -> Self {
        Self {
            login,
            replies: Replies::new(),
            cmd_sn: 0,
            commands_max,
            started: None,
            last: None,
        }
    }

    /// Input has arrived: with the first, the time of the login begins.
    pub(crate) fn start(&mut self, now: Instant) {
        self.started.get_or_insert(now);
    }

    /// Checks that the PDU with this header is allowed.
    pub(crate) fn check(bhs: &Bhs) -> Result<(), PeerError> {
        match bhs.opcode() {
            request::LOGIN => Ok(()),
            other => Err(PeerError::BeforeLogin(other)),
        }
    }

    /// Takes a Login Request with its data. Returns the full feature phase if the login is done.
    pub(crate) fn handle<B: Backend>(
        &mut self,
        now: Instant,
        bhs: &Bhs,
        segment: &[u8],
        backend: &mut B,
    ) -> Result<Option<FullFeature>, PeerError> {
        Self::check(bhs)?;
        if self.last.is_some() {
            return Err(PeerError::BeforeLoginResponse(bhs.opcode()));
        }
        let request: &LoginRequest = bhs.cast();
        let reply = self.login.handle(request, segment, backend);
        self.cmd_sn = request.cmd_sn.get();
        let header = encode(request, &reply);
        if reply.done {
            self.last = Some(LastResponse {
                fence: backend.fence(),
                header,
                text: reply.text,
            });
            return Ok(self.finish(now, backend));
        }
        // The StatSN of a failure does not matter, since the connection ends.
        self.replies.push(header, reply.text, Numbering::Status);
        if reply.status != LoginStatus::SUCCESS {
            self.replies.close_after_last();
        }
        if self.replies.len() > REPLIES_MAX {
            return Err(PeerError::Flood);
        }
        Ok(None)
    }

    /// Answers a login that is done, unless the session that it replaces may still be executed.
    pub(super) fn finish<B: Backend>(
        &mut self,
        now: Instant,
        backend: &mut B,
    ) -> Option<FullFeature> {
        let last = self.last.take_if(|last| backend.is_past(last.fence))?;
        self.replies.push(last.header, last.text, Numbering::Status);
        self.enter_full_feature(now, backend)
    }

    fn enter_full_feature<B: Backend>(
        &mut self,
        now: Instant,
        backend: &mut B,
    ) -> Option<FullFeature> {
        let login = std::mem::replace(&mut self.login, Login::new());
        let logged_in = login.logged_in()?;
        backend.logged_in(&logged_in);
        let window = if logged_in.is_shared {
            SessionWindow::join(logged_in.cid, backend)
        } else {
            SessionWindow::Own(CommandWindow::new(self.cmd_sn, self.commands_max))
        };
        let replies = std::mem::replace(&mut self.replies, Replies::new());
        let full = FullFeature::new(logged_in, replies, window, now, backend);
        Some(full)
    }

    /// ExpCmdSN and MaxCmdSN of responses.
    pub(crate) fn numbers(&self) -> (u32, u32) {
        (self.cmd_sn, self.cmd_sn)
    }

    /// Whether the connection is to be closed.
    pub(crate) fn is_closing(&self) -> bool {
        self.replies.is_finished()
    }

    /// The instant at which the login has to be done.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.started.map(|started| started + LOGIN_TIMEOUT)
    }

    /// Time has passed.
    pub(super) fn handle_timeout(&self, now: Instant) -> Result<(), PeerError> {
        match self.poll_timeout() {
            Some(by) if now >= by => Err(PeerError::LoginTimeout),
            _ => Ok(()),
        }
    }
}

/// The header of a Login Response.
fn encode(request: &LoginRequest, reply: &LoginReply) -> [u8; BHS_LEN] {
    let mut header = [0; BHS_LEN];
    header[0] = response::LOGIN;
    header[1] = reply.flags;
    header[8..14].copy_from_slice(&request.isid);
    header[14..16].copy_from_slice(&reply.tsih.to_be_bytes());
    header[16..20].copy_from_slice(request.itt.as_bytes());
    header[36..38].copy_from_slice(&[reply.status.0, reply.status.1]);
    header
}
