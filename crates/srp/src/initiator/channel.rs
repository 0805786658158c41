//! An open channel: commands go out, the target moves data, outcomes come back.
//!
//! Read first: SRP, "Request limit", "Data buffers", SRP_CMD, SRP_RSP, SRP_TSK_MGMT.
//!
//! Each command with data registers exactly its bytes of the owner's buffers, for one direction,
//! under a key of its own. SRP has no remote invalidation: the session invalidates the key before
//! it reports the outcome, so late RDMA requests cannot access memory. A buffer is one range of
//! memory, so one direct descriptor names it. Short data-out travel inside the message (immediate
//! data) if the target takes them.
//!
//! No queue pair, no clock: the owner posts what [`InitiatorSession::poll_transmit`] requests
//! through [`HostWork`], and hands in the messages that come.

use std::collections::VecDeque;

use scsi::Lun;
use scsi::host::{Command, CommandFailure, CommandKey, Outcome, Transfer};
use session::{HostWork, Reach, RemoteKey};
use zerocopy::{FromZeros as _, IntoBytes as _};

use super::error::{ANSWERS_MAX, Abort, InitiatorError, NoRoom};
use super::login::{IMMEDIATE_OFFSET, Terms};
use super::response::Response;
use super::table::{RequestKind, RequestTag, Table};
use crate::wire::{
    self, CreditRequest, CreditResponse, Descriptor, Direction, LogoutRequest, ManagementRequest,
    ResponseHeader, data_format, function, opcode,
};

/// The length of each receive that the owner keeps posted, bytes: a response with response data and
/// sense data of the greatest length.
pub const RECEIVE_LEN_BYTES: u32 = 512;
/// Receives beside one for each command: for answers to aborts, SRP_CRED_REQ, SRP_AER_REQ and
/// SRP_T_LOGOUT. A target that sends more at once has to retry (receiver not ready).
pub const RECEIVES_EXTRA: u16 = 8;

/// One channel, seen from the initiator.
#[derive(Debug)]
pub struct InitiatorSession {
    lun: Lun,
    terms: Terms,
    table: Table,
    /// Keys of commands whose message has not been posted, in the order of submission.
    pending: VecDeque<u16>,
    /// What is to be sent before them.
    notices: VecDeque<Notice>,
    /// Aborts that are unanswered.
    aborts: Vec<RequestTag>,
    /// How many more requests the target takes. Targets may lower it below 0.
    credits: i64,
    heard: u64,
    state: State,
    /// The target has logged the channel out, which was not reported yet.
    has_new_logout: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    /// One end has logged the channel out.
    LoggedOut,
    Closed,
}

/// A short message to send.
#[derive(Clone, Copy, Debug)]
enum Notice {
    /// SRP_CRED_RSP, or the answer to SRP_AER_REQ, which has the same form.
    Answer {
        opcode: u8,
        tag: wire::Tag,
    },
    Abort(RequestTag),
    Logout,
}

/// Something that the target has said besides outcomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The target has logged the channel out; it closes it.
    LoggedOut,
}

const COMMAND_BYTES: usize = size_of::<wire::Command>();

impl InitiatorSession {
    /// Aborts that are unanswered.
    const ABORTS_MAX: usize = 64;
    /// Requests that commands leave for aborts.
    const CREDITS_FOR_ABORTS: i64 = 1;

    /// The channel of a login that was granted, to the logical unit `lun`. Keys go from 0 to `keys`
    /// less one.
    pub fn new(terms: Terms, lun: Lun, keys: u16) -> Self {
        Self {
            lun,
            terms,
            table: Table::new(keys),
            pending: VecDeque::with_capacity(keys.into()),
            notices: VecDeque::new(),
            aborts: Vec::new(),
            credits: terms.request_limit.into(),
            heard: 0,
            state: State::Open,
            has_new_logout: false,
        }
    }

    /// Takes a command. Panics if `key` is out of range or in flight.
    ///
    /// # Errors
    /// If the target takes no more requests for now, or ever.
    pub fn submit(&mut self, key: CommandKey, command: &Command) -> Result<(), NoRoom> {
        if self.state != State::Open {
            return Err(NoRoom::Closed);
        }
        // A target that grants one request gets commands only.
        let reserved = Self::CREDITS_FOR_ABORTS.min(i64::from(self.terms.request_limit) - 1);
        if self.credits <= reserved {
            return Err(NoRoom::Credits);
        }
        self.table.insert(key, command);
        self.pending.push_back(key.0);
        self.credits -= 1;
        Ok(())
    }

    /// Asks the target to abort a command (ABORT TASK). It ends with
    /// [`Aborted`](CommandFailure::Aborted), unless it ends before that.
    pub fn abort(&mut self, key: CommandKey) -> Abort {
        let has_room = self.credits > 0 && self.aborts.len() < Self::ABORTS_MAX;
        if self.state != State::Open || !has_room {
            return Abort::NotInFlight;
        }
        match self.table.begin_abort(key.0) {
            Err(why_not) => why_not,
            Ok(tag) => {
                self.credits -= 1;
                self.aborts.push(tag);
                self.notices.push_back(Notice::Abort(tag));
                Abort::Asked
            }
        }
    }

    /// Logs the channel out. Nothing can be submitted any more.
    pub fn log_out(&mut self) {
        if self.state == State::Open {
            self.state = State::LoggedOut;
            self.pending.clear();
            self.notices.push_back(Notice::Logout);
        }
    }

    /// How many messages have come. While the number does not change, the target is silent.
    pub fn heard(&self) -> u64 {
        self.heard
    }

    /// How many commands are in flight or wait to be posted.
    pub fn in_flight(&self) -> u16 {
        self.table.in_flight()
    }

    /// The next thing that the target has said besides outcomes.
    pub fn poll_event(&mut self) -> Option<Event> {
        std::mem::take(&mut self.has_new_logout).then_some(Event::LoggedOut)
    }

    /// Whether [`poll_transmit`](Self::poll_transmit) would post anything if there was room.
    pub fn wants_transmit(&self) -> bool {
        self.state != State::Closed && !(self.pending.is_empty() && self.notices.is_empty())
    }

    /// Posts as much as fits of what is to be sent.
    pub fn poll_transmit<W: HostWork + ?Sized>(&mut self, work: &mut W) {
        if self.state == State::Closed {
            return;
        }
        while let Some(notice) = self.notices.front() {
            if !self.post_notice(*notice, work) {
                return;
            }
            self.notices.pop_front();
        }
        while let Some(&key) = self.pending.front() {
            if !self.post(key, work) {
                return;
            }
            self.pending.pop_front();
        }
    }

    /// Handles a message and the key that the target invalidated with it. Appends outcomes to
    /// `done`.
    ///
    /// # Errors
    /// If it breaks the protocol: the channel must be closed.
    pub fn handle_message<W: HostWork + ?Sized>(
        &mut self,
        message: &[u8],
        invalidated: Option<RemoteKey>,
        work: &mut W,
        done: &mut Vec<Outcome>,
    ) -> Result<(), InitiatorError> {
        if self.state == State::Closed {
            return Err(InitiatorError::Closed);
        }
        let result = self.on_message(message, invalidated, work, done);
        if result.is_err() {
            self.state = State::Closed;
        }
        result
    }

    /// Handles the end of the connection: invalidates the remaining keys. No outcome is reported
    /// any more.
    pub fn handle_close<W: HostWork + ?Sized>(&mut self, work: &mut W) {
        self.state = State::Closed;
        for key in self.table.take_keys() {
            work.close(key);
        }
    }

    /// Posts the message of a command; whether there was room.
    fn post<W: HostWork + ?Sized>(&mut self, key: u16, work: &mut W) -> bool {
        let (command, tag) = self.table.pending(key);
        let transfer = command.transfer;
        let mut message = wire::Command::new_zeroed();
        message.opcode = opcode::CMD;
        message.tag = tag.encode();
        message.lun = scsi::lun_bytes(self.lun);
        message.cdb = command.cdb;
        let (range, direction) = match transfer {
            Transfer::None => {
                let is_posted = work.send(message.as_bytes(), None);
                return self.note_posted(key, None, is_posted);
            }
            Transfer::ToTarget(range) if range.len_bytes <= self.terms.immediate_max_bytes => {
                message.formats = Direction::Out.formats(data_format::IMMEDIATE);
                let mut head = [0; IMMEDIATE_OFFSET as usize];
                let (to_command, rest) = head.split_at_mut(COMMAND_BYTES);
                to_command.copy_from_slice(message.as_bytes());
                rest[..4].copy_from_slice(&range.len_bytes.to_be_bytes());
                let is_posted = work.send(&head, Some(range));
                return self.note_posted(key, None, is_posted);
            }
            Transfer::ToTarget(range) => (range, Direction::Out),
            Transfer::ToHost(range) => (range, Direction::In),
        };
        let reach = match direction {
            Direction::In => Reach::Write,
            Direction::Out => Reach::Read,
        };
        let Some(open) = work.open(key, range, reach) else {
            return false;
        };
        message.formats = direction.formats(data_format::DIRECT);
        let mut head = [0; COMMAND_BYTES + size_of::<Descriptor>()];
        head[..COMMAND_BYTES].copy_from_slice(message.as_bytes());
        head[COMMAND_BYTES..].copy_from_slice(Descriptor::of(open).as_bytes());
        let is_posted = work.send(&head, None);
        if !is_posted {
            work.close(open.key);
        }
        self.note_posted(key, Some(open.key), is_posted)
    }

    fn note_posted(&mut self, key: u16, open: Option<RemoteKey>, is_posted: bool) -> bool {
        if is_posted {
            self.table.activate(key, open);
        }
        is_posted
    }

    fn post_notice<W: HostWork + ?Sized>(&self, notice: Notice, work: &mut W) -> bool {
        match notice {
            Notice::Answer { opcode, tag } => {
                let answer = CreditResponse {
                    opcode,
                    reserved: [0; 7],
                    tag,
                };
                work.send(answer.as_bytes(), None)
            }
            Notice::Abort(tag) => {
                let mut request = ManagementRequest::new_zeroed();
                request.opcode = opcode::TSK_MGMT;
                request.tag = tag.encode();
                request.lun = scsi::lun_bytes(self.lun);
                request.function = function::ABORT_TASK;
                let task = RequestTag {
                    kind: RequestKind::Command,
                    ..tag
                };
                request.task_tag = task.encode();
                work.send(request.as_bytes(), None)
            }
            Notice::Logout => {
                let mut request = LogoutRequest::new_zeroed();
                request.opcode = opcode::I_LOGOUT;
                request.tag = RequestTag::LOGOUT.encode();
                work.send(request.as_bytes(), None)
            }
        }
    }

    fn on_message<W: HostWork + ?Sized>(
        &mut self,
        message: &[u8],
        invalidated: Option<RemoteKey>,
        work: &mut W,
        done: &mut Vec<Outcome>,
    ) -> Result<(), InitiatorError> {
        self.heard += 1;
        let first = message.first().ok_or(InitiatorError::Length(0))?;
        match *first {
            opcode::RSP => self.on_response(message, invalidated, work, done),
            opcode::CRED_REQ => self.on_request(message, opcode::CRED_RSP),
            opcode::AER_REQ => self.on_request(message, opcode::AER_RSP),
            opcode::T_LOGOUT => {
                self.state = State::LoggedOut;
                self.pending.clear();
                self.has_new_logout = true;
                Ok(())
            }
            other => Err(InitiatorError::Opcode(other)),
        }
    }

    /// SRP_CRED_REQ or SRP_AER_REQ, which begin alike.
    fn on_request(&mut self, message: &[u8], answer: u8) -> Result<(), InitiatorError> {
        let request = CreditRequest::parse(message);
        let request = request.ok_or(InitiatorError::Length(message.len()))?;
        if self.notices.len() >= ANSWERS_MAX + Self::ABORTS_MAX {
            return Err(InitiatorError::Flood);
        }
        self.add_credits(request.request_limit_delta.get());
        self.notices.push_back(Notice::Answer {
            opcode: answer,
            tag: request.tag,
        });
        Ok(())
    }

    fn on_response<W: HostWork + ?Sized>(
        &mut self,
        message: &[u8],
        invalidated: Option<RemoteKey>,
        work: &mut W,
        done: &mut Vec<Outcome>,
    ) -> Result<(), InitiatorError> {
        let response = Response::parse(message)?;
        let ResponseHeader {
            tag,
            request_limit_delta,
            ..
        } = response.header;
        let unknown = InitiatorError::Tag(tag);
        let request = RequestTag::decode(tag).ok_or(unknown)?;
        self.add_credits(request_limit_delta.get());
        match request.kind {
            RequestKind::Command => {
                let command = self.table.find(request).ok_or(unknown)?;
                let result = response.result(command.transfer)?;
                match (command.open, invalidated) {
                    (open, Some(key)) if open != Some(key) => {
                        return Err(InitiatorError::Key(key));
                    }
                    (Some(key), None) => work.close(key),
                    _ => {}
                }
                self.end(request, result, done);
            }
            RequestKind::Abort => {
                if let Some(key) = invalidated {
                    return Err(InitiatorError::Key(key));
                }
                let asked = self.aborts.iter().position(|abort| *abort == request);
                self.aborts.swap_remove(asked.ok_or(unknown)?);
                let command = self.table.find(request);
                if let Some(command) = command.filter(|_| response.is_function_complete()) {
                    if let Some(key) = command.open {
                        work.close(key);
                    }
                    self.end(request, Err(CommandFailure::Aborted), done);
                }
            }
            // The target answers by closing the channel.
            RequestKind::Logout => return Err(unknown),
        }
        Ok(())
    }

    fn end(
        &mut self,
        tag: RequestTag,
        result: Result<u32, CommandFailure>,
        done: &mut Vec<Outcome>,
    ) {
        self.table.remove(tag.key);
        done.push(Outcome {
            key: CommandKey(tag.key),
            result,
        });
    }

    /// REQUEST LIMIT DELTA, which is signed.
    fn add_credits(&mut self, delta: u32) {
        let range = i64::from(i32::MIN)..=i64::from(i32::MAX);
        let credits = self.credits + i64::from(delta.cast_signed());
        self.credits = credits.clamp(*range.start(), *range.end());
    }
}
