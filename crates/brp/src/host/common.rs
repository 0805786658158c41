//! What both transports' hosts do alike: login, tags, notices.

use std::collections::VecDeque;

use block::Blocks;
use zerocopy::IntoBytes;

use super::{HostCommand, HostEvent, LoginError, NoRoom, Resumption, Table, Terms, Transfer};
use crate::wire::{EventCode, Features, Kind, Login, LoginReply, Short, Status, Violation};

/// Why a connection has to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    /// The target broke the protocol; a FAULT reports it.
    #[error("the target broke the protocol: {0}")]
    Violation(#[from] Violation),
    /// The login was not granted.
    #[error(transparent)]
    Login(#[from] LoginError),
    /// The target says that the host broke the protocol.
    #[error("the target ended the connection: {}", describe(*.0))]
    TargetFault(u8),
    /// Input came after the end.
    #[error("the connection has ended")]
    Closed,
}

fn describe(code: u8) -> String {
    match Violation::from_byte(code) {
        Some(violation) => violation.to_string(),
        None => format!("unknown fault {code}"),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// LOGIN is to be sent.
    Started,
    /// LOGIN was sent.
    LoggingIn,
    Ready,
    /// The connection ends once a last message was sent.
    Closed,
}

/// A connection's session, whatever carries it.
#[derive(Debug)]
pub struct Common {
    pub(crate) login: Login,
    pub(crate) terms: Option<Terms>,
    pub(crate) state: State,
    pub(crate) table: Table,
    /// Tags of commands that were not emitted, in the order of submission.
    pub(crate) pending: VecDeque<u16>,
    pub(crate) outbox: VecDeque<Short>,
    events: VecDeque<HostEvent>,
    /// Messages that have come.
    heard: u64,
}

/// Answers to PINGs, PINGs and ABORTs that wait to be sent at most; more are not taken.
const OUTBOX_MAX: usize = 64;
/// Events that wait for the owner at most; the oldest are dropped.
const EVENTS_MAX: usize = 16;

impl Common {
    /// A connection on which `login` is to be sent. Panics if `login` asks for no tags.
    pub(crate) fn new(login: &Login, resumption: Option<&Resumption>) -> Self {
        let tags = login.tags().expect("a login asks for 1 to 1024 tags");
        let mut login = *login;
        if let Some(resumption) = resumption {
            login.session = resumption.session();
        }
        Self {
            table: Table::new(tags, resumption),
            login,
            terms: None,
            state: State::Started,
            pending: VecDeque::with_capacity(tags.into()),
            outbox: VecDeque::new(),
            events: VecDeque::new(),
            heard: 0,
        }
    }

    /// What the login has granted.
    pub fn terms(&self) -> Option<&Terms> {
        self.terms.as_ref()
    }

    /// Forgets that a tag is unanswered from the last connection: its next command is a new one
    /// (BRP-34).
    pub fn give_up(&mut self, tag: u16) {
        self.table.give_up(tag);
    }

    pub(crate) fn submit(&mut self, tag: u16, command: &HostCommand) -> Result<(), NoRoom> {
        if self.state != State::Ready {
            return Err(NoRoom::Closed);
        }
        if self.table.room() == 0 {
            return Err(NoRoom::Credits);
        }
        self.table.insert(tag, command);
        self.pending.push_back(tag);
        Ok(())
    }

    /// Asks the target to give the command of `tag` up; whether it is in flight.
    pub fn abort(&mut self, tag: u16) -> bool {
        let Some(entry) = self.table.find(tag) else {
            return false;
        };
        let abort = Short::abort(tag, entry.sequence());
        self.push_short(abort)
    }

    /// Asks the target whether it is there (BRP-25).
    pub fn ping(&mut self) {
        if self.state == State::Ready {
            self.push_short(Short::new(Kind::Ping));
        }
    }

    /// Ends the session; nothing can be submitted any more.
    pub fn log_out(&mut self) {
        if self.state == State::Ready {
            self.push_short(Short::new(Kind::Logout));
            self.state = State::Closed;
        }
    }

    /// What is to be known on the next connection; `None` if no login was granted.
    pub fn resumption(&self) -> Option<Resumption> {
        let terms = self.terms.as_ref()?;
        Some(self.table.resumption(terms.session))
    }

    /// How many messages have come: more than before means that the target is there.
    pub fn heard(&self) -> u64 {
        self.heard
    }

    /// The next thing that the target has said besides outcomes.
    pub fn poll_event(&mut self) -> Option<HostEvent> {
        self.events.pop_front()
    }

    /// Whether the features were granted.
    pub(crate) fn has(&self, features: Features) -> bool {
        let terms = self.terms.as_ref();
        terms.is_some_and(|terms| terms.features.contains(features))
    }

    /// The connection ends for this reason; a FAULT reports it if the target broke the protocol.
    pub(crate) fn fail(&mut self, error: HostError) {
        self.state = State::Closed;
        self.outbox.clear();
        if let HostError::Violation(violation) = error {
            self.outbox.push_back(Short::fault(violation));
        }
    }

    /// Sends LOGIN and messages about no command with `send`, which says whether there was room.
    /// Returns whether commands may follow.
    pub(crate) fn emit_notices(&mut self, mut send: impl FnMut(&[u8]) -> bool) -> bool {
        if self.state == State::Started {
            if !send(self.login.as_bytes()) {
                return false;
            }
            self.state = State::LoggingIn;
        }
        while let Some(short) = self.outbox.front() {
            if !send(short.as_bytes()) {
                return false;
            }
            self.outbox.pop_front();
        }
        self.state == State::Ready
    }

    /// A message has come.
    pub(crate) fn note_heard(&mut self) {
        self.heard += 1;
    }

    pub(crate) fn on_login_reply(&mut self, reply: &LoginReply) -> Result<(), HostError> {
        let terms = Terms::of(&self.login, reply)?;
        self.table.grant(&terms);
        self.terms = Some(terms);
        self.state = State::Ready;
        self.push_event(HostEvent::LoggedIn(terms));
        Ok(())
    }

    /// Handles a message about no command: EVENT, PING, PONG or FAULT. Others are violations here.
    pub(crate) fn on_notice(&mut self, kind: Kind, short: &Short) -> Result<(), HostError> {
        match (self.state, kind) {
            (_, Kind::Fault) => return Err(HostError::TargetFault(short.code)),
            (State::Ready, Kind::Event) => self.on_event(short),
            (State::Ready, Kind::Ping) => {
                self.push_short(Short::pong(short));
            }
            (State::Ready, Kind::Pong) => {}
            _ => return Err(Violation::Login.into()),
        }
        Ok(())
    }

    /// Checks a REPLY of a command of which `left_bytes` bytes of data are missing (BRP-17).
    pub(crate) fn check_reply(reply: &Short, left_bytes: u32) -> Result<(), Violation> {
        let data_bytes = reply.data_bytes.get();
        let is_success = reply.status() == Status::Success as u16;
        let is_possible = if reply.has_more() {
            is_success && data_bytes > 0 && data_bytes < left_bytes
        } else if is_success {
            // Success without all the data would leave old bytes in the caller's buffer.
            data_bytes == left_bytes
        } else {
            data_bytes == 0
        };
        if is_possible && Status::from_number(reply.status()).is_some() {
            Ok(())
        } else {
            Err(Violation::Length)
        }
    }

    fn on_event(&mut self, event: &Short) {
        // Events of later versions are ignored.
        let event = match EventCode::from_byte(event.code) {
            Some(EventCode::Resized) => HostEvent::Resized(Blocks(event.value())),
            Some(EventCode::ReadOnly) => HostEvent::Writable(false),
            Some(EventCode::Writable) => HostEvent::Writable(true),
            Some(EventCode::Removed) => HostEvent::Removed,
            Some(EventCode::Shutdown) => HostEvent::Shutdown,
            None => return,
        };
        self.push_event(event);
    }

    fn push_event(&mut self, event: HostEvent) {
        if self.events.len() == EVENTS_MAX {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    fn push_short(&mut self, short: Short) -> bool {
        let has_room = self.outbox.len() < OUTBOX_MAX;
        if has_room {
            self.outbox.push_back(short);
        }
        has_room
    }
}

impl Transfer {
    /// How many bytes of a read are missing if `moved_bytes` have come; 0 for other commands.
    pub(crate) const fn missing_bytes(self, moved_bytes: u32) -> u32 {
        match self {
            Self::ToHost(range) => range.len_bytes - moved_bytes,
            _ => 0,
        }
    }
}
