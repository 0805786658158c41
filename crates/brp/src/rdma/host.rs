//! The host's end of a connection over RDMA: commands go out, the target moves data, outcomes come
//! back.
//!
//! Data go inside messages if they are short enough for the terms of the connection. Otherwise the
//! command's range of the buffers is opened to the target, for one direction and under a key of its
//! own, until the command is answered. If the target has not invalidated the key with the reply,
//! the session does so before it reports the outcome, so late RDMA requests cannot access memory
//! (BRP-19).
//!
//! No queue pair, no clock: the owner posts what [`HostSession::poll_transmit`] requests through
//! [`HostWork`], and hands in the messages that come.

use session::{BufferRange, Reach, RemoteKey};
use zerocopy::{FromBytes, IntoBytes};

use crate::host::{
    Common, HostCommand, HostError, HostEvent, LoginError, NoRoom, Outcome, Phase, Resumption,
    State, Terms, Transfer,
};
use crate::wire::{
    Command, ConnectionReply, ConnectionRequest, Descriptor, Features, Flags, Kind, Login,
    LoginReply, RECEIVES_EXTRA, Short, Status, Violation,
};

/// A session's connection, seen from the host.
#[derive(Debug)]
pub struct HostSession {
    common: Common,
    /// By tag: the key under which the data of its command are open to the target.
    open: Box<[Option<RemoteKey>]>,
    /// The longest message that the owner can send and the target's receives take, in bytes.
    send_max_bytes: u32,
}

/// What a session asks of its queue pair and of the memory behind it.
pub trait HostWork: session::HostWork {
    /// Copies data that came inside a message to a range of the same length.
    fn put(&mut self, range: BufferRange, data: &[u8]);
}

const SHORT_BYTES: usize = size_of::<Short>();
const COMMAND_BYTES: usize = size_of::<Command>();
const DESCRIPTOR_BYTES: usize = size_of::<Descriptor>();

impl HostSession {
    /// The private data of the connection request for `login` (BRP-9).
    pub fn request(login: &Login) -> ConnectionRequest {
        ConnectionRequest::new(login.tags.get())
    }

    /// Receives to keep posted for `login`, and the length of each in bytes (BRP-9).
    pub fn receives(login: &Login) -> (u16, u32) {
        let reply_bytes = (SHORT_BYTES as u32).saturating_add(login.reply_data_max_bytes.get());
        let len_bytes = reply_bytes.max(size_of::<LoginReply>() as u32);
        (login.tags.get() + RECEIVES_EXTRA, len_bytes)
    }

    /// A connection that has just been made, whose reply had `private_data`; `login` is the first
    /// thing to be sent. `resumption` is what is known from the last connection of the session that
    /// `login` is to go on with, and `send_max_bytes` the longest message that the owner can send,
    /// at least that of LOGIN. Panics if `login` asks for no tags.
    pub fn new(
        login: Login,
        resumption: Option<&Resumption>,
        private_data: &[u8],
        send_max_bytes: u32,
    ) -> Result<Self, HostError> {
        let reply = ConnectionReply::parse(private_data);
        let reply = reply.ok_or(LoginError::Reply("the connection reply"))?;
        if reply.tags.get() > login.tags.get()
            || reply.receive_bytes.get() < Kind::HEADER_BYTES_MAX as u32
        {
            return Err(LoginError::Reply("the receives").into());
        }
        // The session has the tags that its first connection was granted.
        let mut login = login;
        if resumption.is_none() {
            login.tags = reply.tags;
        }
        let common = Common::new(&login, resumption);
        Ok(Self {
            open: vec![None; login.tags.get().into()].into_boxed_slice(),
            common,
            send_max_bytes: reply.receive_bytes.get().min(send_max_bytes),
        })
    }

    /// What does not depend on the transport.
    pub fn common(&self) -> &Common {
        &self.common
    }

    /// The same, to change it.
    pub fn common_mut(&mut self) -> &mut Common {
        &mut self.common
    }

    /// What the login has granted.
    pub fn terms(&self) -> Option<&Terms> {
        self.common.terms()
    }

    /// Takes a command. One with a tag that is unanswered from the last connection must be the same
    /// command, and is sent as a replay. Panics if `tag` is out of range or in flight.
    pub fn submit(&mut self, tag: u16, command: &HostCommand) -> Result<(), NoRoom> {
        self.common.submit(tag, command)
    }

    /// Forgets that a tag is unanswered from the last connection: its next command is a new one
    /// (BRP-34).
    pub fn give_up(&mut self, tag: u16) {
        self.common.give_up(tag);
    }

    /// Asks the target to give the command of `tag` up; whether it is in flight.
    pub fn abort(&mut self, tag: u16) -> bool {
        self.common.abort(tag)
    }

    /// Asks the target whether it is there (BRP-25).
    pub fn ping(&mut self) {
        self.common.ping();
    }

    /// Ends the session; nothing can be submitted any more.
    pub fn log_out(&mut self) {
        self.common.log_out();
    }

    /// What is to be known on the next connection; `None` if no login was granted.
    pub fn resumption(&self) -> Option<Resumption> {
        self.common.resumption()
    }

    /// How many messages have come: more than before means that the target is there.
    pub fn heard(&self) -> u64 {
        self.common.heard()
    }

    /// How many commands are in flight or wait to be posted.
    pub fn in_flight(&self) -> u16 {
        self.common.table.in_flight()
    }

    /// The next thing that the target has said besides outcomes.
    pub fn poll_event(&mut self) -> Option<HostEvent> {
        self.common.poll_event()
    }

    /// Whether [`poll_transmit`](Self::poll_transmit) would post anything if there was room.
    pub fn wants_transmit(&self) -> bool {
        match self.common.state {
            State::Started => true,
            State::LoggingIn | State::Closed => !self.common.outbox.is_empty(),
            State::Ready => !(self.common.pending.is_empty() && self.common.outbox.is_empty()),
        }
    }

    /// Posts as much as fits of what is to be sent.
    pub fn poll_transmit<W: HostWork + ?Sized>(&mut self, work: &mut W) {
        if !self.common.emit_notices(|bytes| work.send(bytes, None)) {
            return;
        }
        while let Some(&tag) = self.common.pending.front() {
            if !self.post(tag, work) {
                return;
            }
            self.common.pending.pop_front();
        }
    }

    /// Handles a message and the key that the target invalidated with it. Appends outcomes to
    /// `done`. If this fails, the next output of [`poll_transmit`](Self::poll_transmit) is the
    /// last, and the connection must be closed after it.
    pub fn handle_message<W: HostWork + ?Sized>(
        &mut self,
        message: &[u8],
        invalidated: Option<RemoteKey>,
        work: &mut W,
        done: &mut Vec<Outcome>,
    ) -> Result<(), HostError> {
        if self.common.state == State::Closed {
            return Err(HostError::Closed);
        }
        let result = self.on_message(message, invalidated, work, done);
        if let Err(error) = result {
            self.common.fail(error);
        }
        result
    }

    /// Handles the end of the connection: invalidates the remaining keys. No outcome is reported
    /// any more.
    pub fn handle_close<W: HostWork + ?Sized>(&mut self, work: &mut W) {
        self.common.state = State::Closed;
        for key in self.open.iter_mut().filter_map(Option::take) {
            work.close(key);
        }
    }

    /// Posts a command; whether there was room.
    fn post<W: HostWork + ?Sized>(&mut self, tag: u16, work: &mut W) -> bool {
        let (write_max_bytes, read_max_bytes) = self.common.terms.map_or((0, 0), |terms| {
            (terms.command_data_max_bytes, terms.reply_data_max_bytes)
        });
        let write_max_bytes = write_max_bytes.min(self.send_max_bytes - COMMAND_BYTES as u32);
        let entry = self.common.table.get_mut(tag);
        let mut command = entry.command;
        let (range, reach) = match entry.transfer {
            Transfer::ToTarget(range) if range.len_bytes <= write_max_bytes => {
                command.data_bytes.set(range.len_bytes);
                let is_posted = work.send(command.as_bytes(), Some(range));
                return is_posted && self.activate(tag, None);
            }
            Transfer::ToHost(range) if range.len_bytes > read_max_bytes => (range, Reach::Write),
            Transfer::ToTarget(range) => (range, Reach::Read),
            Transfer::None | Transfer::ToHost(_) => {
                let is_posted = work.send(command.as_bytes(), None);
                return is_posted && self.activate(tag, None);
            }
        };
        let Some(open) = work.open(tag, range, reach) else {
            return false;
        };
        command.descriptors.set(1);
        command.flags.set(command.flags.get() | Flags::INVALIDATE.0);
        let mut head = [0; COMMAND_BYTES + DESCRIPTOR_BYTES];
        head[..COMMAND_BYTES].copy_from_slice(command.as_bytes());
        head[COMMAND_BYTES..].copy_from_slice(Descriptor::of(open).as_bytes());
        if work.send(&head, None) {
            return self.activate(tag, Some(open.key));
        }
        work.close(open.key);
        false
    }

    /// The command was posted.
    fn activate(&mut self, tag: u16, open: Option<RemoteKey>) -> bool {
        self.common.table.get_mut(tag).phase = Phase::Active;
        self.open[usize::from(tag)] = open;
        true
    }

    fn on_message<W: HostWork + ?Sized>(
        &mut self,
        message: &[u8],
        invalidated: Option<RemoteKey>,
        work: &mut W,
        done: &mut Vec<Outcome>,
    ) -> Result<(), HostError> {
        self.common.note_heard();
        let first = *message.first().ok_or(Violation::Length)?;
        let kind = Kind::from_byte(first)
            .filter(|&kind| kind.is_of_target() && kind != Kind::Pull)
            .ok_or(Violation::Kind)?;
        let (header, rest) = message
            .split_at_checked(kind.header_bytes())
            .ok_or(Violation::Length)?;
        if kind == Kind::LoginReply {
            let reply = LoginReply::ref_from_bytes(header).map_err(|_| Violation::Length)?;
            return match self.common.state {
                State::LoggingIn if rest.is_empty() => self.common.on_login_reply(reply),
                State::LoggingIn => Err(Violation::Length.into()),
                _ => Err(Violation::Login.into()),
            };
        }
        let short = Short::ref_from_bytes(header).map_err(|_| Violation::Length)?;
        let is_ready = self.common.state == State::Ready;
        match kind {
            Kind::Reply | Kind::Replies if !is_ready => Err(Violation::Login.into()),
            Kind::Reply => self.on_reply(short, rest, invalidated, work, done),
            Kind::Replies => self.on_replies(short, rest, invalidated, work, done),
            _ if rest.is_empty() => self.common.on_notice(kind, short),
            _ => Err(Violation::Length.into()),
        }
    }

    /// REPLIES (BRP-37).
    fn on_replies<W: HostWork + ?Sized>(
        &mut self,
        replies: &Short,
        mut rest: &[u8],
        invalidated: Option<RemoteKey>,
        work: &mut W,
        done: &mut Vec<Outcome>,
    ) -> Result<(), HostError> {
        if !self.common.has(Features::MERGE) {
            return Err(Violation::Kind.into());
        }
        let count = replies.tag.get();
        let is_possible =
            count > 0 && rest.len() == replies.data_bytes.get() as usize && invalidated.is_none();
        if !is_possible {
            return Err(Violation::Length.into());
        }
        for _ in 0..count {
            let (header, behind) = rest
                .split_at_checked(SHORT_BYTES)
                .ok_or(Violation::Length)?;
            let reply = Short::ref_from_bytes(header).map_err(|_| Violation::Length)?;
            if reply.kind != Kind::Reply as u8 {
                return Err(Violation::Kind.into());
            }
            let (data, behind) = behind
                .split_at_checked(reply.data_bytes.get() as usize)
                .ok_or(Violation::Length)?;
            self.on_reply(reply, data, None, work, done)?;
            rest = behind;
        }
        if rest.is_empty() {
            Ok(())
        } else {
            Err(Violation::Length.into())
        }
    }

    /// REPLY: the whole answer of a command (BRP-18).
    fn on_reply<W: HostWork + ?Sized>(
        &mut self,
        reply: &Short,
        data: &[u8],
        invalidated: Option<RemoteKey>,
        work: &mut W,
        done: &mut Vec<Outcome>,
    ) -> Result<(), HostError> {
        let tag = reply.tag.get();
        let entry = self.common.table.find(tag).ok_or(Violation::Tag)?;
        let transfer = entry.transfer;
        let open = self.open[usize::from(tag)];
        let inside_bytes = match open {
            None => transfer.missing_bytes(0),
            Some(_) => 0,
        };
        if reply.has_more() || data.len() != reply.data_bytes.get() as usize {
            return Err(Violation::Length.into());
        }
        Common::check_reply(reply, inside_bytes)?;
        match (open, invalidated) {
            (open, Some(key)) if open != Some(key) => return Err(Violation::Key.into()),
            (Some(key), None) => work.close(key),
            _ => {}
        }
        self.open[usize::from(tag)] = None;
        if let (Transfer::ToHost(range), false) = (transfer, data.is_empty()) {
            work.put(range, data);
        }
        self.common.table.set_credits(reply.credits());
        self.common.table.remove(tag);
        done.push(Outcome {
            tag,
            status: Status::from_number(reply.status()).unwrap_or(Status::Invalid),
            detail: reply.second(),
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests;
