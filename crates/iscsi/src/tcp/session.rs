//! One connection of an iSCSI session: bytes in, PDUs cut and executed, bytes out.
//!
//! Read first: RFC 7143 §4.2 (sessions, numbering), §11 (PDUs).
//!
//! The path of a byte: [`Connection::handle_bytes`](session::StreamSession::handle_bytes) cuts the stream; `command`
//! begins SCSI commands and takes their data-out, `control` answers everything else, `transmit` sends.

use std::collections::{BinaryHeap, VecDeque};
use std::time::{Duration, Instant};

use block::Completion;
use session::{SendList, Session, StreamSession};
use zerocopy::{FromBytes, IntoBytes};

use crate::backend::{Backend, Opened};
use crate::login::{LoggedIn, Login, SessionKind};
use crate::params::{Digest, Parameters, RECV_SEGMENT_LEN_MAX};
use crate::target::control::{Managing, Reply};
use crate::target::task::{Advertised, COMMANDS_MAX, Due, Tasks};
use crate::target::work::Workload;
use crate::text::TEXT_LEN_MAX;
use crate::window::Window;
use crate::window::order::Place;
use crate::wire::other::reason;
use crate::wire::{BHS_LEN, Bhs, DIGEST_LEN, request};

/// The longest additional header segments that are read. None is needed: CDBs have 16 bytes, and bidirectional
/// commands are not offered.
pub(crate) const AHS_LEN_MAX: usize = 64;
/// How long a connection may be in login.
pub const LOGIN_TIMEOUT: Duration = Duration::from_secs(15);
/// Silence after which the target asks by NOP-In whether the initiator is there.
pub const PING_AFTER: Duration = Duration::from_secs(30);
/// How long the answer to that may take.
pub const PING_TIMEOUT: Duration = Duration::from_secs(20);
/// How long commands wait for one with a lower CmdSN that has not come. It was lost with its connection: what is left
/// of the session ends, as error recovery level 0 has it (RFC 7143 §7.1.4).
pub const GAP_TIMEOUT: Duration = Duration::from_secs(20);
/// How long an initiator may take to read that its connection is dropped.
pub(crate) const DROP_TIMEOUT: Duration = Duration::from_secs(1);
/// The most replies that wait to be sent, beyond those of tasks.
pub(crate) const REPLIES_MAX: usize = 64;

/// How a peer breaks the protocol so that the connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PeerError {
    /// The header digest is wrong.
    #[error("the header digest is wrong")]
    HeaderDigest,
    /// AHS longer than any that exists.
    #[error("TotalAHSLength is {0} bytes; the maximum is {AHS_LEN_MAX}")]
    AhsLength(usize),
    /// A data segment longer than was declared.
    #[error("DataSegmentLength is {have} bytes; the maximum is {max}")]
    SegmentLength {
        /// What came.
        have: usize,
        /// What is allowed.
        max: usize,
    },
    /// A message that ends before its PDU does.
    #[error("a message of {0} bytes ends before its PDU does")]
    Truncated(usize),
    /// A PDU that is not allowed before the login is done.
    #[error("opcode {0:#04x} arrived during login")]
    BeforeLogin(u8),
    /// A login request in full feature phase.
    #[error("a login request arrived after the login")]
    SecondLogin,
    /// The login took too long.
    #[error("the login took longer than {} s", LOGIN_TIMEOUT.as_secs())]
    LoginTimeout,
    /// The initiator does not answer.
    #[error("no response to a NOP-In within {} s", PING_TIMEOUT.as_secs())]
    PingTimeout,
    /// The initiator does not read that its connection is dropped.
    #[error("the host did not read the notice that its connection is dropped within {} s", DROP_TIMEOUT.as_secs())]
    DropUnread,
    /// A command is missing.
    #[error("a command that others wait for has not arrived within {} s", GAP_TIMEOUT.as_secs())]
    Gap,
    /// More requests than answers are taken.
    #[error("more than {REPLIES_MAX} responses wait to be read")]
    Flood,
}

/// Where the data segment of the current PDU goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sink {
    /// Gathered, then handed on with the header.
    Gather,
    /// Data-out of a write task, executed as it comes.
    Write {
        /// The task.
        slot: usize,
    },
    /// Thrown away: the task takes no data-out.
    Begun {
        /// The task.
        slot: usize,
    },
    /// Thrown away: it belongs to nothing.
    Discard,
}

/// What the next bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Awaiting {
    /// The basic header segment.
    Bhs,
    /// AHS and header digest, so many bytes.
    HeaderRest { len: usize },
    /// The data segment, so many bytes left.
    Data { left: usize },
    /// Padding and data digest, so many bytes.
    DataRest { len: usize },
}

/// The state of a connection after its login.
pub(crate) struct Full {
    pub(crate) initiator: String,
    /// TargetName; `None` in a discovery session.
    pub(crate) target: Option<String>,
    pub(crate) kind: SessionKind,
    pub(crate) parameters: Parameters,
    pub(crate) cid: u16,
    pub(crate) tasks: Tasks,
    /// Text of a SendTargets answer that goes on in the next response.
    pub(crate) text_left: Vec<u8>,
}

impl Full {
    pub(crate) fn opened(&self) -> Option<Opened> {
        match self.kind {
            SessionKind::Normal(opened) => Some(opened),
            SessionKind::Discovery => None,
        }
    }
}

pub(crate) enum Stage {
    Login(Box<Login>),
    Full(Box<Full>),
}

/// An iSCSI target's end of one connection.
pub struct Connection<B> {
    pub(crate) stage: Stage,
    /// How many commands its window takes, where the connection is its session's only one.
    commands_max: usize,
    pub(crate) stat_sn: u32,
    /// CmdSN of the login.
    pub(crate) login_cmd_sn: u32,
    pub(crate) replies: VecDeque<Reply>,
    pub(crate) due: BinaryHeap<Due>,
    pub(crate) workload: Workload,
    awaiting: Awaiting,
    /// Bytes of the header part that is awaited and came in pieces.
    header: Vec<u8>,
    pub(crate) bhs: Bhs,
    /// The buffers that the current PDU names, over RDMA.
    pub(crate) advertised: Advertised,
    pub(crate) segment: Vec<u8>,
    pub(crate) sink: Sink,
    segment_crc: u32,
    started: Option<Instant>,
    pace: session::Pace,
    /// Commands with little data that have come in this turn.
    pub(crate) short_commands: usize,
    pub(crate) last_heard: Option<Instant>,
    pub(crate) pinged: Option<Instant>,
    /// Task management whose commands on other connections have not all ended.
    pub(crate) managing: VecDeque<Managing>,
    /// Since when the command that is expected next keeps others waiting.
    gap: Option<(Place, Instant)>,
    /// When the session is to have ended, or the connection to be closed where it is dropped.
    pub(crate) leave_by: Option<Instant>,
    /// The target drops the connection: nothing is taken any more.
    pub(crate) is_dropped: bool,
    pub(crate) closing: bool,
    backend: std::marker::PhantomData<fn(&mut B)>,
}

impl<B: Backend> Default for Connection<B> {
    fn default() -> Self {
        Self::new()
    }
}

impl<B: Backend> Connection<B> {
    /// A connection that was just accepted.
    pub fn new() -> Self {
        Self::with_login(Login::new(), COMMANDS_MAX)
    }

    pub(crate) fn with_login(login: Login, commands_max: usize) -> Self {
        Self {
            stage: Stage::Login(Box::new(login)),
            commands_max,
            stat_sn: 1,
            login_cmd_sn: 0,
            replies: VecDeque::new(),
            due: BinaryHeap::new(),
            workload: Workload::default(),
            awaiting: Awaiting::Bhs,
            header: Vec::new(),
            bhs: Bhs::read_from_bytes(&[0; BHS_LEN]).expect("a BHS has this length"),
            advertised: Advertised::default(),
            segment: Vec::new(),
            sink: Sink::Gather,
            segment_crc: 0,
            started: None,
            pace: session::Pace::default(),
            short_commands: 0,
            last_heard: None,
            pinged: None,
            managing: VecDeque::new(),
            gap: None,
            leave_by: None,
            is_dropped: false,
            closing: false,
            backend: std::marker::PhantomData,
        }
    }

    /// The negotiated parameters, once logged in.
    pub fn parameters(&self) -> Option<&Parameters> {
        match &self.stage {
            Stage::Full(full) => Some(&full.parameters),
            Stage::Login(_) => None,
        }
    }

    /// The initiator's name, once logged in.
    pub fn initiator(&self) -> Option<&str> {
        match &self.stage {
            Stage::Full(full) => Some(&full.initiator),
            Stage::Login(_) => None,
        }
    }

    pub(crate) fn header_digest(&self) -> Digest {
        self.parameters()
            .map_or(Digest::None, |parameters| parameters.header_digest)
    }

    pub(crate) fn data_digest(&self) -> Digest {
        self.parameters()
            .map_or(Digest::None, |parameters| parameters.data_digest)
    }

    pub(crate) fn enter_full_feature(&mut self, logged_in: LoggedIn, connection: u64) {
        let window = match &logged_in.shared {
            Some(session) => Window::shared(session, logged_in.cid),
            None => Window::own(self.login_cmd_sn, self.commands_max),
        };
        self.stage = Stage::Full(Box::new(Full {
            initiator: logged_in.initiator,
            target: logged_in.target,
            kind: logged_in.kind,
            parameters: logged_in.parameters,
            cid: logged_in.cid,
            tasks: Tasks::new(window, connection),
            text_left: Vec::new(),
        }));
    }

    /// Takes bytes of one awaited part; returns how many.
    fn advance(&mut self, now: Instant, input: &[u8], backend: &mut B) -> Result<usize, PeerError> {
        match self.awaiting {
            Awaiting::Bhs if self.header.is_empty() && input.len() >= BHS_LEN => {
                self.bhs = Bhs::read_from_bytes(&input[..BHS_LEN]).expect("cut to its length");
                self.on_bhs(now, backend)?;
                Ok(BHS_LEN)
            }
            Awaiting::Bhs => {
                let (used, done) = self.gather_header(input, BHS_LEN);
                if done {
                    self.bhs = Bhs::read_from_bytes(&self.header).expect("gathered to its length");
                    self.on_bhs(now, backend)?;
                }
                Ok(used)
            }
            Awaiting::HeaderRest { len } => {
                let (used, done) = self.gather_header(input, BHS_LEN + len);
                if done {
                    self.check_header_digest()?;
                    self.on_header(now, backend)?;
                }
                Ok(used)
            }
            Awaiting::Data { left } => {
                let used = left.min(input.len());
                self.on_data(&input[..used], backend);
                if used == left {
                    self.await_data_rest(now, backend)?;
                } else {
                    self.awaiting = Awaiting::Data { left: left - used };
                }
                Ok(used)
            }
            Awaiting::DataRest { len } => {
                let (used, done) = self.gather_header(input, len);
                if done {
                    self.on_data_rest(now, backend)?;
                }
                Ok(used)
            }
        }
    }

    /// Gathers the awaited part up to `want` bytes in all; how many were taken and whether it is whole.
    fn gather_header(&mut self, input: &[u8], want: usize) -> (usize, bool) {
        let used = (want - self.header.len()).min(input.len());
        self.header.extend_from_slice(&input[..used]);
        (used, self.header.len() == want)
    }

    /// Takes a PDU that came in one piece, without digests: over RDMA a message is a PDU. Padding may follow.
    pub(crate) fn handle_pdu(
        &mut self,
        now: Instant,
        pdu: &[u8],
        backend: &mut B,
    ) -> Result<(), PeerError> {
        let short = PeerError::Truncated(pdu.len());
        self.started.get_or_insert(now);
        self.workload.continue_turn(now);
        self.look_at_standing(now, backend);
        if self.closing || self.is_dropped {
            return Ok(());
        }
        let (bhs, rest) = Bhs::read_from_prefix(pdu).map_err(|_| short)?;
        self.bhs = bhs;
        let ahs_len = self.check_lengths()?;
        let len = bhs.data_segment_len.get() as usize;
        let data = rest.get(ahs_len..).and_then(|rest| rest.get(..len));
        let data = data.ok_or(short)?;
        self.on_header(now, backend)?;
        if data.is_empty() {
            return Ok(());
        }
        self.on_data(data, backend);
        self.finish_pdu(now, backend)
    }

    /// Checks the lengths in a BHS before anything is awaited or allocated; that of the AHS.
    fn check_lengths(&self) -> Result<usize, PeerError> {
        let ahs = self.bhs.ahs_len();
        if ahs > AHS_LEN_MAX {
            return Err(PeerError::AhsLength(ahs));
        }
        let have = self.bhs.data_segment_len.get() as usize;
        let max = match self.stage {
            Stage::Login(_) => TEXT_LEN_MAX,
            Stage::Full(_) => RECV_SEGMENT_LEN_MAX as usize,
        };
        if have > max {
            return Err(PeerError::SegmentLength { have, max });
        }
        Ok(ahs)
    }

    /// The BHS is whole.
    fn on_bhs(&mut self, now: Instant, backend: &mut B) -> Result<(), PeerError> {
        let ahs = self.check_lengths()?;
        let digest = if self.header_digest() == Digest::Crc32c {
            DIGEST_LEN
        } else {
            0
        };
        match ahs + digest {
            0 => self.on_header(now, backend),
            len => {
                self.header.clear();
                self.header.extend_from_slice(self.bhs.as_bytes());
                self.awaiting = Awaiting::HeaderRest { len };
                Ok(())
            }
        }
    }

    fn check_header_digest(&self) -> Result<(), PeerError> {
        if self.header_digest() == Digest::None {
            return Ok(());
        }
        let (header, digest) = self.header.split_at(self.header.len() - DIGEST_LEN);
        if crc32c::crc32c(header).to_le_bytes() == digest {
            Ok(())
        } else {
            Err(PeerError::HeaderDigest)
        }
    }

    /// The header is whole and right: where do its data go?
    fn on_header(&mut self, now: Instant, backend: &mut B) -> Result<(), PeerError> {
        self.header.clear();
        self.segment.clear();
        self.segment_crc = 0;
        let opcode = self.bhs.opcode();
        match (&self.stage, opcode) {
            (Stage::Login(_), request::LOGIN) => {}
            (Stage::Login(_), other) => return Err(PeerError::BeforeLogin(other)),
            (Stage::Full(_), request::LOGIN) => return Err(PeerError::SecondLogin),
            (Stage::Full(_), _) => {}
        }
        self.sink = match opcode {
            request::SCSI_COMMAND => self.on_command(now, backend),
            request::DATA_OUT => self.on_data_out(),
            _ => Sink::Gather,
        };
        match self.bhs.data_segment_len.get() as usize {
            0 => self.finish_pdu(now, backend),
            left => {
                self.awaiting = Awaiting::Data { left };
                Ok(())
            }
        }
    }

    /// Bytes of the data segment. With a data digest nothing is executed before it was checked.
    fn on_data(&mut self, bytes: &[u8], backend: &mut B) {
        if self.data_digest() == Digest::Crc32c {
            self.segment_crc = crc32c::crc32c_append(self.segment_crc, bytes);
            if !matches!(self.sink, Sink::Begun { .. } | Sink::Discard) {
                self.segment.extend_from_slice(bytes);
            }
            return;
        }
        match self.sink {
            Sink::Gather => self.segment.extend_from_slice(bytes),
            Sink::Write { slot } => self.write_data(slot, bytes, backend),
            Sink::Begun { .. } | Sink::Discard => {}
        }
    }

    fn await_data_rest(&mut self, now: Instant, backend: &mut B) -> Result<(), PeerError> {
        let padding = self.bhs.padded_data_len() - self.bhs.data_segment_len.get() as usize;
        let digest = if self.data_digest() == Digest::Crc32c {
            DIGEST_LEN
        } else {
            0
        };
        match padding + digest {
            0 => self.finish_pdu(now, backend),
            len => {
                self.awaiting = Awaiting::DataRest { len };
                Ok(())
            }
        }
    }

    fn on_data_rest(&mut self, now: Instant, backend: &mut B) -> Result<(), PeerError> {
        let rest = std::mem::take(&mut self.header);
        if self.data_digest() == Digest::Crc32c {
            let (padding, digest) = rest.split_at(rest.len() - DIGEST_LEN);
            let crc = crc32c::crc32c_append(self.segment_crc, padding);
            if crc.to_le_bytes() != digest {
                self.on_bad_data_digest(backend);
                self.awaiting = Awaiting::Bhs;
                return Ok(());
            }
            if let Sink::Write { slot } = self.sink {
                let segment = std::mem::take(&mut self.segment);
                self.write_data(slot, &segment, backend);
                self.segment = segment;
            }
        }
        self.header = rest;
        self.header.clear();
        self.finish_pdu(now, backend)
    }

    /// A data digest error is answered by a Reject; the command that the data belong to ends with an error
    /// (RFC 7143 §7.8: at recovery level 0 nothing is sent again).
    fn on_bad_data_digest(&mut self, backend: &mut B) {
        if let Sink::Write { slot } = self.sink {
            self.fail_task_of_bad_data(slot, backend);
        }
        self.reject(reason::DATA_DIGEST);
    }

    /// The PDU is whole.
    fn finish_pdu(&mut self, now: Instant, backend: &mut B) -> Result<(), PeerError> {
        self.awaiting = Awaiting::Bhs;
        self.last_heard = Some(now);
        match self.bhs.opcode() {
            request::SCSI_COMMAND => self.finish_command_pdu(now, backend),
            request::DATA_OUT => self.finish_data_out_pdu(now, backend),
            _ => self.control(backend),
        }
        let mut unanswered = self.replies.len() + self.managing.len();
        if let Stage::Full(full) = &self.stage
            && full.tasks.has_held()
        {
            unanswered += full.tasks.held_controls();
            self.begin_held(now, backend);
        }
        if unanswered > REPLIES_MAX {
            Err(PeerError::Flood)
        } else {
            Ok(())
        }
    }

    /// At the end of whatever was done: what the session's other connections are to know.
    fn end_turn(&mut self, now: Instant, backend: &mut B) {
        let Stage::Full(full) = &mut self.stage else {
            return;
        };
        if let (Some(opened), Some(cid)) = (full.opened(), full.tasks.next_elsewhere()) {
            backend.wake_other(opened, cid);
        }
        if full.tasks.has_held() || self.gap.is_some() {
            let since = |place| match self.gap {
                Some((same, since)) if same == place => (place, since),
                _ => (place, now),
            };
            self.gap = full.tasks.gap().map(since);
        }
    }

    fn check_gap(&mut self, now: Instant, backend: &mut B) -> Result<(), PeerError> {
        let is_late = |(_, since): (Place, Instant)| now >= since + GAP_TIMEOUT;
        if !self.gap.is_some_and(is_late) {
            return Ok(());
        }
        if let Stage::Full(full) = &self.stage
            && let Some(opened) = full.opened()
        {
            backend.end_others(opened, None);
        }
        Err(PeerError::Gap)
    }
}

impl<B: Backend> StreamSession for Connection<B> {
    fn turn_bytes(&self) -> usize {
        self.pace.turn_bytes()
    }

    fn handle_bytes(
        &mut self,
        now: Instant,
        mut input: &[u8],
        backend: &mut B,
    ) -> Result<(), PeerError> {
        self.started.get_or_insert(now);
        self.workload.start_turn(now);
        self.look_at_standing(now, backend);
        let len = input.len();
        self.short_commands = 0;
        while !input.is_empty() && !self.closing && !self.is_dropped {
            let used = self.advance(now, input, backend)?;
            input = &input[used..];
        }
        self.pace.note(len, self.short_commands);
        self.end_turn(now, backend);
        Ok(())
    }

    fn poll_transmit(&mut self, now: Instant, backend: &mut B, out: &mut SendList) {
        self.look_at_standing(now, backend);
        self.transmit(now, backend, out);
        self.end_turn(now, backend);
    }
}

impl<B: Backend> Session for Connection<B> {
    type Backend = B;
    type Error = PeerError;

    fn wants_transmit(&self) -> bool {
        if self.closing {
            return false;
        }
        let tasks = match &self.stage {
            Stage::Full(full) => full.tasks.has_ready(),
            Stage::Login(_) => false,
        };
        tasks || !self.replies.is_empty()
    }

    fn is_idle(&self) -> bool {
        match &self.stage {
            Stage::Full(full) => {
                full.tasks.is_empty()
                    && self.replies.is_empty()
                    && self.managing.is_empty()
                    && self.workload.is_empty()
            }
            Stage::Login(_) => true,
        }
    }

    fn is_closing(&self) -> bool {
        self.closing
    }

    fn handle_wake(&mut self, now: Instant, backend: &mut B) -> Result<(), PeerError> {
        self.on_wake(now, backend);
        self.end_turn(now, backend);
        Ok(())
    }

    fn handle_completion(
        &mut self,
        now: Instant,
        completion: Completion,
        backend: &mut B,
    ) -> Result<(), PeerError> {
        self.on_completion(now, completion, backend);
        self.end_turn(now, backend);
        Ok(())
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let housekeeping = match &self.stage {
            Stage::Login(_) => self.started.map(|started| started + LOGIN_TIMEOUT),
            Stage::Full(_) => match (self.pinged, self.last_heard) {
                (Some(pinged), _) => Some(pinged + PING_TIMEOUT),
                (None, heard) => heard.map(|heard| heard + PING_AFTER),
            },
        };
        let due = self.due.peek().map(|due| due.at);
        let gap = self.gap.map(|(_, since)| since + GAP_TIMEOUT);
        let times = housekeeping.into_iter().chain(due).chain(gap);
        times.chain(self.workload.due()).chain(self.leave_by).min()
    }

    fn handle_timeout(&mut self, now: Instant, backend: &mut B) -> Result<(), PeerError> {
        self.release_due(now, backend);
        self.take_turn(now, backend);
        self.check_gap(now, backend)?;
        self.check_leaving(now, backend)?;
        if let Stage::Login(_) = self.stage {
            let late = self
                .started
                .is_some_and(|started| now >= started + LOGIN_TIMEOUT);
            return if late {
                Err(PeerError::LoginTimeout)
            } else {
                Ok(())
            };
        }
        match (self.pinged, self.last_heard) {
            (Some(pinged), _) if now >= pinged + PING_TIMEOUT => Err(PeerError::PingTimeout),
            (None, Some(heard)) if now >= heard + PING_AFTER => {
                self.ping(now);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn handle_close(&mut self, now: Instant, backend: &mut B) {
        // Commands that waited for one of this connection's need not any more.
        self.with_full(|full| full.tasks.clear());
        self.end_turn(now, backend);
        self.give_sanitizing_away(backend);
        if let Stage::Full(full) = &self.stage
            && let Some(opened) = full.opened()
        {
            backend.close(opened);
        }
    }
}
