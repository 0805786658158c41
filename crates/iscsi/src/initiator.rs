//! The initiator's end of one iSCSI session: it logs in, commands go out, data are put where they belong, outcomes
//! come back.
//!
//! Read first: RFC 7143 §4.2 (sessions, numbering), §6.3 (login), §11 (PDUs).
//!
//! ```text
//!           last Login Response                    Logout Response, violation,
//!  Login ───────────────────────► FullFeature ────────────────────────────────► Closed
//!    └──── refused, violation ──────────────────────────────────────────────────►
//! ```
//!
//! A session has one connection, and recovery level 0: after any loss the owner makes another session. No socket, no
//! clock, no random numbers: the owner gives what was received to [`Session::handle_bytes`] and sends what
//! [`Session::poll_transmit`] puts into a [`SendList`], whose placements are offsets into the session's [`Buffers`].

mod discovery;
mod inbound;
mod login;
mod outbound;
mod table;

use std::collections::VecDeque;

use scsi::Lun;
use scsi::host::{Command, CommandKey, Outcome, ReceivedSense};
use session::{BufferRange, Buffers, SendList, SourceId};

use self::discovery::Discovery;
use self::inbound::Inbound;
use self::login::Login;
use self::outbound::{Answer, Control};
use self::table::{Held, Table};
use crate::chap::{CHALLENGE_LEN, Credentials};
use crate::params::{Digest, Parameters};

pub use self::discovery::{DiscoveredTarget, PortalAddress, parse_targets};
pub use self::login::LoginError;

/// One session, seen from the initiator.
#[derive(Debug)]
pub struct Session {
    keys: u16,
    lun: Lun,
    state: State,
    parameters: Parameters,
    table: Table,
    /// Keys of commands whose PDU has not been emitted, in the order of submission.
    pending: VecDeque<u16>,
    /// Unsolicited data to send and R2Ts to answer, in their order.
    answers: VecDeque<Answer>,
    /// Everything else to send, before these.
    controls: VecDeque<Control>,
    inbound: Inbound,
    discovery: Option<Discovery>,
    events: VecDeque<Event>,
    /// CmdSN of the next command.
    cmd_sn: u32,
    /// The last CmdSN that the target takes.
    max_cmd_sn: u32,
    exp_stat_sn: u32,
    /// Bytes that were put into the send list, and bytes that the owner has sent, since the connection began.
    emitted_bytes: u64,
    sent_bytes: u64,
    /// Outcomes of commands whose data are still in the send list.
    held: VecDeque<Held>,
    /// A logout has been asked for.
    is_leaving: bool,
    /// The target was asked whether it is there.
    is_pinging: bool,
    /// PDUs that have come.
    heard_pdus: u64,
}

/// What a session is for and how it logs in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionConfig {
    /// InitiatorName.
    pub initiator: String,
    /// TargetName; a discovery session where there is none.
    pub target: Option<String>,
    /// The logical unit that every command is for.
    pub lun: Lun,
    /// ISID, which no other session of this initiator to this target has.
    pub isid: [u8; 6],
    /// What the initiator proves by CHAP where the target asks for it.
    pub credentials: Option<Credentials>,
    /// What the target has to prove by CHAP; needs `credentials`.
    pub target_credentials: Option<Credentials>,
    /// Random bytes: the identifier and the challenge that the target has to answer.
    pub challenge: [u8; 1 + CHALLENGE_LEN],
    /// Whether header digests are asked for.
    pub header_digest: Digest,
    /// Whether data digests are asked for.
    pub data_digest: Digest,
    /// Keys go from 0 to this less one; at most [`Session::KEYS_MAX`].
    pub keys: u16,
}

/// Something that is no command's outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The login is done: commands can go out.
    LoggedIn,
    /// What SendTargets gave.
    Targets(Vec<DiscoveredTarget>),
    /// The target tells of an event of the logical unit (AsyncEvent 0).
    Sense(ReceivedSense),
    /// The target wants the session to end; a logout is on its way.
    LogoutRequested,
    /// The session has been logged out.
    LoggedOut,
}

/// Why a session has to end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SessionError {
    /// The target broke the protocol.
    #[error("the target sent a PDU of opcode {opcode:#04x} that breaks the protocol: {violation}")]
    Violation {
        /// The opcode.
        opcode: u8,
        /// What is wrong.
        violation: Violation,
    },
    /// The login failed.
    #[error(transparent)]
    Login(#[from] LoginError),
    /// The target rejected a PDU that is no command.
    #[error("the target rejected a PDU of opcode {opcode:#04x} (reason {reason:#04x})")]
    Rejected {
        /// The opcode of the PDU that was rejected.
        opcode: u8,
        /// The reason's code.
        reason: u8,
    },
    /// The target drops the connection (AsyncEvent 2 or 3).
    #[error("the target drops the connection (asynchronous event {event})")]
    Dropped {
        /// AsyncEvent.
        event: u8,
        /// For how long the initiator is not to come back (Time2Wait), seconds.
        wait_s: u16,
    },
    /// Bytes came after the end.
    #[error("the session has ended")]
    Closed,
}

/// How a PDU breaks the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// An opcode that is not known, or not possible in this phase.
    #[error("it is not expected here")]
    Unexpected,
    /// No PDU to an initiator has additional header segments.
    #[error("it has additional header segments")]
    HasAhs,
    /// The header digest is wrong.
    #[error("its header digest is wrong")]
    HeaderDigest,
    /// The digest of data that belong to no command's buffer is wrong.
    #[error("its data digest is wrong")]
    DataDigest,
    /// The data segment is longer than was declared.
    #[error("its data segment has {len_bytes} bytes; the maximum is {max_bytes}")]
    SegmentLength {
        /// DataSegmentLength.
        len_bytes: u32,
        /// The most possible.
        max_bytes: u32,
    },
    /// The task tag names no command in flight, or one of another kind.
    #[error("its task tag {itt:#010x} names no outstanding task")]
    TaskTag {
        /// Initiator Task Tag.
        itt: u32,
    },
    /// DataSN or R2TSN is not the next one.
    #[error("its sequence number is {have}, but {want} is expected")]
    Number {
        /// What came.
        have: u32,
        /// What was expected.
        want: u32,
    },
    /// Data or R2T are out of order or beyond the command's data.
    #[error("bytes {offset} to {end} are out of order or exceed the command's {len_bytes} bytes")]
    Range {
        /// Buffer Offset.
        offset: u64,
        /// The first byte beyond.
        end: u64,
        /// How many bytes the command has.
        len_bytes: u32,
    },
    /// More than was negotiated, or than is bearable.
    #[error("it exceeds {limit}")]
    Limit {
        /// Which limit.
        limit: &'static str,
    },
    /// A text is malformed.
    #[error("its text is malformed")]
    Text,
}

/// What became of the wish to abort a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Abort {
    /// The target has no such command: it has ended, or was not sent yet.
    NotInFlight,
    /// The target is asked to.
    Asked,
    /// It was asked to already.
    AskedBefore,
}

/// Why a command was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotTaken {
    /// The session has ended.
    #[error("the session has ended")]
    Closed,
}

#[derive(Debug)]
enum State {
    Login(Box<Login>),
    FullFeature,
    Closed,
}

impl Session {
    /// The most keys: a task tag has as many, with room for tags of other kinds.
    pub const KEYS_MAX: u16 = 1 << 12;
    /// The most R2Ts of one command at once (MaxOutstandingR2T).
    pub const R2TS_MAX: u8 = 4;
    /// The region of every placement: the session's buffers.
    pub const REGION: SourceId = SourceId(0);
    /// Reads from this length on are worth being received in place.
    pub const BULK_MIN_BYTES: u32 = 16 * 1024;
    /// Replies to the target that wait to be sent.
    const CONTROLS_MAX: usize = 64;
    /// Events that wait to be taken.
    const EVENTS_MAX: usize = 64;

    /// A session whose connection has just been made; a Login Request is the first thing to be sent.
    pub fn new(config: &SessionConfig) -> Result<Self, LoginError> {
        assert!(
            config.keys <= Self::KEYS_MAX,
            "a session has at most 4096 keys"
        );
        let mut login = Login::new(config)?;
        let first = login.first();
        let keys = usize::from(config.keys);
        Ok(Self {
            keys: config.keys,
            lun: config.lun,
            state: State::Login(Box::new(login)),
            parameters: Parameters::default(),
            table: Table::new(config.keys),
            pending: VecDeque::with_capacity(keys),
            answers: VecDeque::with_capacity(keys),
            controls: VecDeque::from([first]),
            inbound: Inbound::default(),
            discovery: None,
            events: VecDeque::new(),
            cmd_sn: FIRST_CMD_SN,
            max_cmd_sn: FIRST_CMD_SN,
            exp_stat_sn: 0,
            emitted_bytes: 0,
            sent_bytes: 0,
            held: VecDeque::new(),
            is_leaving: false,
            is_pinging: false,
            heard_pdus: 0,
        })
    }

    /// Takes a command; it is emitted when the session is logged in and the target's command window has room. Panics
    /// where `key` is out of range or in flight, or where the command's data lie outside of `buffers`.
    #[inline]
    pub fn submit(
        &mut self,
        key: CommandKey,
        command: &Command,
        buffers: &Buffers,
    ) -> Result<(), NotTaken> {
        if let State::Closed = self.state {
            return Err(NotTaken::Closed);
        }
        self.table.insert(key, command, buffers);
        self.pending.push_back(key.0);
        Ok(())
    }

    /// Asks the target to abort a command (ABORT TASK). It ends with
    /// [`Aborted`](scsi::host::CommandFailure::Aborted), unless it ends of itself before.
    pub fn abort(&mut self, key: CommandKey) -> Abort {
        assert!(key.0 < self.keys, "only keys of this session are aborted");
        let (answer, command) = self.table.begin_abort(key.0);
        if let Some((itt, cmd_sn)) = command {
            let control = Control::abort_task(itt, self.lun, cmd_sn);
            self.controls.push_back(control);
        }
        answer
    }

    /// Asks a discovery session's target for all targets (SendTargets=All); [`Event::Targets`] answers.
    pub fn send_targets(&mut self) {
        if let State::FullFeature = self.state {
            self.discovery = Some(Discovery::default());
            self.controls.push_back(Control::send_targets());
        }
    }

    /// Ends the session in order; [`Event::LoggedOut`] answers. Commands that have not been emitted are not any more.
    pub fn logout(&mut self) {
        if let State::FullFeature = self.state
            && !self.is_leaving
        {
            self.is_leaving = true;
            self.controls.push_back(Control::logout());
        }
    }

    /// Asks the target whether it is there (NOP-Out), unless it was asked and has not answered. That it is shows in
    /// [`heard_pdus`](Self::heard_pdus).
    pub fn ping(&mut self) {
        if let State::FullFeature = self.state
            && !self.is_leaving
            && !self.is_pinging
        {
            self.is_pinging = true;
            self.controls.push_back(Control::ping());
        }
    }

    /// How many PDUs have come: where that stands still, the target is silent.
    pub fn heard_pdus(&self) -> u64 {
        self.heard_pdus
    }

    /// Takes all of `input`, in any chunking; puts data into `buffers` and appends what has ended to `done`. Where this
    /// fails, the connection is to be closed.
    pub fn handle_bytes(
        &mut self,
        input: &[u8],
        buffers: &mut Buffers,
        done: &mut Vec<Outcome>,
    ) -> Result<(), SessionError> {
        let mut rest = input;
        while !rest.is_empty() {
            if let State::Closed = self.state {
                return Err(SessionError::Closed);
            }
            let took = if self.inbound.in_segment() {
                self.on_segment(rest, buffers, done)
            } else {
                self.on_header_bytes(rest, done)
            };
            rest = took.inspect_err(|_| self.state = State::Closed)?;
        }
        Ok(())
    }

    /// Where the next received bytes belong, as long as they are data of a long read: the owner receives at most that
    /// many bytes there, then calls [`handle_placed`](Self::handle_placed).
    pub fn direct(&self) -> Option<BufferRange> {
        self.inbound.direct()
    }

    /// `len_bytes` bytes have been received into the start of what [`direct`](Self::direct) gave.
    pub fn handle_placed(
        &mut self,
        len_bytes: u32,
        buffers: &Buffers,
        done: &mut Vec<Outcome>,
    ) -> Result<(), SessionError> {
        self.on_placed(len_bytes, buffers, done)
            .inspect_err(|_| self.state = State::Closed)
    }

    /// Whether most of what will arrive are data of long reads, so that little should be received at once that is not
    /// in place.
    pub fn expects_bulk(&self) -> bool {
        self.table.expects_bulk()
    }

    /// Puts as much as fits of what is to be sent into `out`.
    pub fn poll_transmit(&mut self, buffers: &Buffers, out: &mut SendList) {
        self.emit(buffers, out);
    }

    /// Whether [`poll_transmit`](Self::poll_transmit) would add anything to an empty list.
    pub fn wants_transmit(&self) -> bool {
        match self.state {
            State::Closed => false,
            State::Login(_) => !self.controls.is_empty(),
            State::FullFeature if self.is_leaving => !self.controls.is_empty(),
            State::FullFeature => {
                !self.controls.is_empty()
                    || !self.answers.is_empty()
                    || (!self.pending.is_empty() && self.window_is_open())
            }
        }
    }

    /// `len_bytes` more bytes of the list have been sent.
    pub fn handle_sent(&mut self, len_bytes: u64, done: &mut Vec<Outcome>) {
        self.sent_bytes += len_bytes;
        while let Some(held) = self.held.front() {
            if held.until_bytes > self.sent_bytes {
                break;
            }
            done.push(held.outcome);
            self.held.pop_front();
        }
    }

    /// What has happened besides commands.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Whether the login is done and the session not ended.
    pub fn is_logged_in(&self) -> bool {
        matches!(self.state, State::FullFeature)
    }

    /// Whether the connection is to be closed.
    pub fn is_closing(&self) -> bool {
        matches!(self.state, State::Closed)
    }

    /// How many commands are in flight or wait to be emitted.
    pub fn in_flight(&self) -> u16 {
        self.table.in_flight()
    }

    /// What was negotiated; the defaults before the login is done.
    pub fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    /// Whether the target takes another command.
    fn window_is_open(&self) -> bool {
        // CmdSN <= MaxCmdSN in serial number arithmetic (RFC 7143 §4.2.2.1).
        !crate::wire::sn_before(self.max_cmd_sn, self.cmd_sn)
    }

    /// Ends a command. Its outcome waits where its data are still in the send list, since the caller may use the
    /// buffer again as soon as it has the outcome.
    fn end(
        &mut self,
        key: u16,
        result: Result<u32, scsi::host::CommandFailure>,
        done: &mut Vec<Outcome>,
    ) {
        let ended = self.table.remove(key);
        if ended.has_open_answers {
            self.answers.retain(|answer| answer.key != key);
        }
        if ended.is_pending {
            self.pending.retain(|&pending| pending != key);
        }
        let outcome = Outcome {
            key: CommandKey(key),
            result,
        };
        if ended.placed_until_bytes > self.sent_bytes {
            self.held.push_back(Held {
                until_bytes: ended.placed_until_bytes,
                outcome,
            });
        } else {
            done.push(outcome);
        }
    }

    fn tell(&mut self, event: Event) {
        // A target that floods its initiator with events loses the newest.
        if self.events.len() < Self::EVENTS_MAX {
            self.events.push_back(event);
        }
    }
}

/// CmdSN of the first command of a session; any will do.
const FIRST_CMD_SN: u32 = 1;

#[cfg(test)]
mod tests;
