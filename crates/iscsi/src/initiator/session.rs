//! The session: its state, and what its owner calls.

use std::collections::VecDeque;

use scsi::Lun;
use scsi::host::{Command, CommandFailure, CommandKey, Outcome, ReceivedSense};
use session::{BufferRange, Buffers, SendList, SourceId};

use super::config::{R2TS_MAX, SessionConfig};
use super::discovery::{DiscoveredTarget, Discovery};
use super::error::{LoginError, NotTaken, SessionError};
use super::login::Login;
use super::pending::{Control, DataSequence};
use super::receiver::Inbound;
use super::table::{Abort, BULK_MIN_BYTES, HeldOutcome, Table};
use crate::params::Parameters;
use crate::wire::sn_before;

/// One session, seen from the initiator.
#[derive(Debug)]
pub struct Session {
    pub(super) keys: u16,
    pub(super) lun: Lun,
    pub(super) state: State,
    pub(super) parameters: Parameters,
    pub(super) table: Table,
    /// Keys of commands whose PDU has not been emitted, in the order of submission.
    pub(super) pending: VecDeque<u16>,
    /// Unsolicited data to send and R2Ts to answer, in their order.
    pub(super) answers: VecDeque<DataSequence>,
    /// Everything else to send, before these.
    pub(super) controls: VecDeque<Control>,
    pub(super) inbound: Inbound,
    pub(super) discovery: Option<Discovery>,
    pub(super) events: VecDeque<Event>,
    /// CmdSN of the next command.
    pub(super) cmd_sn: u32,
    /// The last CmdSN that the target takes.
    pub(super) max_cmd_sn: u32,
    pub(super) exp_stat_sn: u32,
    /// Bytes that were put into the send list, and bytes that the owner has sent, since the
    /// connection began.
    pub(super) emitted_bytes: u64,
    pub(super) sent_bytes: u64,
    /// Outcomes of commands whose data are still in the send list.
    pub(super) held: VecDeque<HeldOutcome>,
    /// A logout has been requested.
    pub(super) is_leaving: bool,
    /// A NOP-Out was sent and has not been answered.
    pub(super) is_pinging: bool,
    /// PDUs received.
    pub(super) heard_pdus: u64,
}

/// An event of the session that is not the outcome of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The login is done: commands can be sent.
    LoggedIn,
    /// The result of SendTargets.
    Targets(Vec<DiscoveredTarget>),
    /// The target reports an event of the logical unit (AsyncEvent 0).
    Sense(ReceivedSense),
    /// The target requests a logout, which was queued.
    LogoutRequested,
    /// The session has been logged out.
    LoggedOut,
}

/// The state of a session.
#[derive(Debug)]
pub(super) enum State {
    Login(Box<Login>),
    FullFeature,
    Closed,
}

impl Session {
    /// The most keys. Task tags have room for them and for tags of other kinds.
    pub const KEYS_MAX: u16 = 1 << 12;
    /// The most R2Ts of one command at once (MaxOutstandingR2T).
    pub const R2TS_MAX: u8 = R2TS_MAX;
    /// The region of every placement: the session's buffers.
    pub const REGION: SourceId = SourceId(0);
    /// Reads from this length on are worth being received in place.
    pub const BULK_MIN_BYTES: u32 = BULK_MIN_BYTES;
    /// Replies to the target that wait to be sent.
    pub(super) const CONTROLS_MAX: usize = 64;
    /// Events that wait to be taken.
    const EVENTS_MAX: usize = 64;

    /// A session whose connection has just been made; a Login Request is the first thing to be
    /// sent.
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

    /// Takes a command. It is emitted when the session is logged in and the target's command window
    /// has room. Panics if `key` is out of range or in flight, or if the command's data lie outside
    /// of `buffers`.
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
    /// [`Aborted`](scsi::host::CommandFailure::Aborted), unless it ends before that.
    pub fn abort(&mut self, key: CommandKey) -> Abort {
        assert!(key.0 < self.keys, "only keys of this session are aborted");
        let (answer, command) = self.table.begin_abort(key.0);
        if let Some((itt, cmd_sn)) = command {
            let control = Control::abort_task(itt, self.lun, cmd_sn);
            self.controls.push_back(control);
        }
        answer
    }

    /// Asks a discovery session's target for all targets (SendTargets=All); [`Event::Targets`]
    /// answers.
    pub fn send_targets(&mut self) {
        if let State::FullFeature = self.state {
            self.discovery = Some(Discovery::default());
            self.controls.push_back(Control::send_targets());
        }
    }

    /// Logs the session out; [`Event::LoggedOut`] follows. Commands that have not been emitted will
    /// not be.
    pub fn logout(&mut self) {
        if let State::FullFeature = self.state
            && !self.is_leaving
        {
            self.is_leaving = true;
            self.controls.push_back(Control::logout());
        }
    }

    /// Sends a NOP-Out, unless the last one has not been answered. The answer counts in
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

    /// How many PDUs were received. While the number does not change, the target is silent.
    pub fn heard_pdus(&self) -> u64 {
        self.heard_pdus
    }

    /// Takes all of `input`, in any chunking; puts data into `buffers` and appends outcomes to
    /// `done`. After an error, the caller closes the connection.
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

    /// Where the next received bytes belong, as long as they are data of a long read: the owner
    /// receives at most that many bytes there, then calls [`handle_placed`](Self::handle_placed).
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

    /// Whether most of what will arrive are data of long reads, so that little should be received
    /// at once that is not in place.
    pub fn expects_bulk(&self) -> bool {
        self.table.expects_bulk()
    }

    /// Puts PDUs into `out`, as many as fit.
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

    /// The next event.
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

    /// The negotiated values; the defaults before the login is done.
    pub fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    /// Whether the target takes another command.
    pub(super) fn window_is_open(&self) -> bool {
        // CmdSN <= MaxCmdSN in serial number arithmetic (RFC 7143 §4.2.2.1).
        !sn_before(self.max_cmd_sn, self.cmd_sn)
    }

    /// Ends a command. Its outcome is held while its data are still in the send list, since the
    /// caller may reuse the buffer as soon as it has the outcome.
    pub(super) fn end(
        &mut self,
        key: u16,
        result: Result<u32, CommandFailure>,
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
            self.held.push_back(HeldOutcome {
                until_bytes: ended.placed_until_bytes,
                outcome,
            });
        } else {
            done.push(outcome);
        }
    }

    pub(super) fn notify(&mut self, event: Event) {
        // A target that floods its initiator with events loses the newest.
        if self.events.len() < Self::EVENTS_MAX {
            self.events.push_back(event);
        }
    }
}

/// CmdSN of the first command of a session: any value is allowed.
const FIRST_CMD_SN: u32 = 1;
