//! The target's end of a connection over RDMA.
//!
//! [`TargetSession`] takes messages apart, keeps where each command's data are in the host's memory
//! (`places`), fetches data with RDMA READ (`inbound`), and posts RDMA WRITEs and replies
//! (`outbound`); [`Commands`](crate::target) executes commands.

mod inbound;
mod outbound;
mod places;

use std::marker::PhantomData;
use std::time::Instant;

use block::Completion;
use session::{MessageSession, RemoteKey, Session, WorkList};
use zerocopy::{FromBytes, IntoBytes};

use self::inbound::Inbound;
use self::outbound::Outbound;
use self::places::Places;
use crate::target::connection::{Connection, Notice, TransportTerms};
use crate::target::{Backend, Begun, Given, SessionError, Tag, TargetConfig};
use crate::wire::{
    Command, ConnectionReply, ConnectionRequest, DESCRIPTORS_MAX, Descriptor, Kind, Login,
    RECEIVES_EXTRA, Short, Violation,
};

/// The target's end of one connection.
#[derive(Debug)]
pub struct TargetSession<B> {
    connection: Connection,
    /// By tag: where the data of its command are.
    places: Box<[Places]>,
    inbound: Inbound,
    outbound: Outbound,
    /// A message about no command for which there was no room.
    notice: Option<Notice>,
    /// The instant of the last turn.
    turn: Instant,
    backend: PhantomData<fn(&mut B)>,
}

/// A session, and what its connection is to be like (BRP-9).
pub struct Accepted<B> {
    /// The session.
    pub session: TargetSession<B>,
    /// The private data of the reply.
    pub reply: ConnectionReply,
    /// Receives to keep posted.
    pub receives: u16,
    /// The length of each, in bytes.
    pub receive_len_bytes: u32,
    /// Requests of the session's at once.
    pub sends: u16,
    /// RDMA READs among them.
    pub reads: u8,
}

impl<B> TargetSession<B> {
    /// Requests beside one for each tag: the pieces of data.
    const SENDS_EXTRA: u16 = 64;
    /// The most requests at once.
    const SENDS_MAX: u16 = 1024;
    /// The most RDMA READs at once.
    const READS_MAX: u8 = 64;

    /// Checks the private data of a connection request by a host that supports `reads_max`
    /// outstanding RDMA READs. `None`: the request is to be rejected, since it is none of BRP's or
    /// allows no RDMA READ.
    pub fn accept(
        now: Instant,
        config: TargetConfig,
        private_data: &[u8],
        reads_max: u8,
    ) -> Option<Accepted<B>> {
        let request = ConnectionRequest::parse(private_data).filter(|_| reads_max > 0)?;
        let tags = request.tags.get().min(config.tags_max);
        let receive_len_bytes = receive_bytes(&config);
        let terms = TransportTerms {
            command_data_max_bytes: config.message_data_max_bytes,
            reply_data_max_bytes: config.reply_data_max_bytes,
            tags_max: tags,
        };
        let session = Self {
            connection: Connection::new(now, config, terms),
            places: (0..tags).map(|_| Places::default()).collect(),
            inbound: Inbound::new(tags),
            outbound: Outbound::default(),
            notice: None,
            turn: now,
            backend: PhantomData,
        };
        Some(Accepted {
            session,
            reply: ConnectionReply::new(tags, receive_len_bytes),
            receives: tags + RECEIVES_EXTRA,
            receive_len_bytes,
            sends: (tags + Self::SENDS_EXTRA).min(Self::SENDS_MAX),
            reads: reads_max.min(Self::READS_MAX),
        })
    }
}

/// The length of the longest message of a host, in bytes.
fn receive_bytes(config: &TargetConfig) -> u32 {
    let behind = u32::from(DESCRIPTORS_MAX) * size_of::<Descriptor>() as u32;
    let command = size_of::<Command>() as u32 + config.message_data_max_bytes.max(behind);
    command.max(Kind::HEADER_BYTES_MAX as u32)
}

impl<B: Backend> MessageSession for TargetSession<B> {
    fn handle_message(
        &mut self,
        now: Instant,
        message: &[u8],
        _invalidated: Option<RemoteKey>,
        backend: &mut B,
    ) -> Result<(), SessionError> {
        if self.connection.is_closing() {
            return Ok(());
        }
        self.start_turn(now);
        let result = self.take_message(now, message, backend);
        self.end(result, backend)
    }

    fn handle_read(
        &mut self,
        now: Instant,
        tag: u64,
        data: &[u8],
        backend: &mut B,
    ) -> Result<(), SessionError> {
        if self.connection.is_closing() {
            return Ok(());
        }
        self.start_turn(now);
        let commands = &mut self.connection.commands;
        let result = match self.inbound.received(tag, data.len()) {
            Some((tag, is_whole)) if commands.is_receiving(tag) => {
                commands.data(tag, data, backend);
                if is_whole {
                    commands.data_done(tag, backend);
                }
                Ok(())
            }
            _ => Err(Violation::UnexpectedData.into()),
        };
        self.end(result, backend)
    }

    fn poll_transmit(&mut self, now: Instant, backend: &mut B, out: &mut dyn WorkList) {
        if !self.post_notices(out) || self.connection.is_closing() {
            return;
        }
        self.inbound.poll(&self.places, out);
        let commands = &mut self.connection.commands;
        self.outbound
            .poll(now, commands, &self.places, backend, out);
    }
}

impl<B: Backend> Session for TargetSession<B> {
    type Backend = B;
    type Error = SessionError;

    fn wants_transmit(&self) -> bool {
        let has_work = self.inbound.wants() || self.outbound.wants();
        self.notice.is_some()
            || self.connection.wants_transmit()
            || (has_work && !self.connection.is_closing())
    }

    fn is_idle(&self) -> bool {
        self.connection.is_idle() && !self.wants_transmit()
    }

    fn may_close(&mut self, _backend: &mut B) -> bool {
        self.connection.may_close() && !self.wants_transmit()
    }

    fn is_closing(&self) -> bool {
        self.connection.is_closing()
    }

    fn handle_wake(&mut self, now: Instant, backend: &mut B) -> Result<(), SessionError> {
        let result = self.connection.on_wake(now, backend);
        self.end(result, backend)
    }

    fn handle_completion(
        &mut self,
        now: Instant,
        completion: Completion,
        backend: &mut B,
    ) -> Result<(), SessionError> {
        if !self.connection.is_closing() {
            let commands = &mut self.connection.commands;
            let begun = commands.handle_completion(now, completion, backend);
            self.fetch(begun);
        }
        Ok(())
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.connection.poll_timeout()
    }

    fn handle_timeout(&mut self, now: Instant, backend: &mut B) -> Result<(), SessionError> {
        let result = self.connection.on_timeout(now, backend);
        self.end(result, backend)
    }

    fn handle_close(&mut self, _now: Instant, backend: &mut B) {
        self.connection.on_close(backend);
    }
}

impl<B: Backend> TargetSession<B> {
    fn end(
        &mut self,
        result: Result<(), SessionError>,
        backend: &mut B,
    ) -> Result<(), SessionError> {
        if let Err(error) = result {
            // What was about to be said is not the last message.
            self.notice = None;
            self.connection.close(error, backend);
        }
        result
    }

    /// All that comes at one instant is one turn.
    fn start_turn(&mut self, now: Instant) {
        if now != self.turn {
            self.turn = now;
            self.connection.hear(now);
        }
    }

    /// BRP-10.
    fn take_message(
        &mut self,
        now: Instant,
        message: &[u8],
        backend: &mut B,
    ) -> Result<(), SessionError> {
        let first = *message.first().ok_or(Violation::Length)?;
        let kind = Kind::from_byte(first)
            .filter(|&kind| kind.is_of_host() && kind != Kind::Data)
            .ok_or(Violation::Kind)?;
        let (header, rest) = message
            .split_at_checked(kind.header_bytes())
            .ok_or(Violation::Length)?;
        if kind == Kind::Command {
            return self.on_command(header, rest, backend);
        }
        if !rest.is_empty() {
            return Err(Violation::Length.into());
        }
        if kind == Kind::Login {
            let login = Login::ref_from_bytes(header).map_err(|_| Violation::Length)?;
            return self.connection.on_login(now, login, backend);
        }
        let short = Short::ref_from_bytes(header).map_err(|_| Violation::Length)?;
        self.connection.on_short(kind, short, backend)
    }

    /// COMMAND, with `rest` behind it.
    fn on_command(
        &mut self,
        header: &[u8],
        rest: &[u8],
        backend: &mut B,
    ) -> Result<(), SessionError> {
        if !self.connection.is_ready() {
            return Err(Violation::Login.into());
        }
        let command = Command::ref_from_bytes(header).map_err(|_| Violation::Length)?;
        let count = command.descriptors.get();
        let descriptors_bytes = usize::from(count) * size_of::<Descriptor>();
        let (descriptors, data) = rest
            .split_at_checked(descriptors_bytes)
            .ok_or(Violation::Length)?;
        let is_possible = count <= DESCRIPTORS_MAX
            && data.len() == command.data_bytes.get() as usize
            && command.data_bytes.get() <= self.connection.command_data_max_bytes()
            && (count == 0 || data.is_empty());
        if !is_possible {
            return Err(Violation::Length.into());
        }
        let commands = &mut self.connection.commands;
        let tag = Tag(command.tag.get());
        // Where the data of a command in flight are stays as it is.
        commands.check_free(tag)?;
        let descriptors =
            <[Descriptor]>::ref_from_bytes(descriptors).map_err(|_| Violation::Length)?;
        let places = &mut self.places[tag.index()];
        places.set(command.flags(), descriptors);
        let given = match places.buffers() {
            [] => Given::Message(data.len() as u32),
            buffers => Given::Memory(buffers),
        };
        match commands.begin(command, given, backend)? {
            Begun::Inside(tag) => {
                commands.data(tag, data, backend);
                commands.data_done(tag, backend);
            }
            begun => self.fetch(begun),
        }
        Ok(())
    }

    /// Reads the data of a command from the host's memory.
    fn fetch(&mut self, begun: Begun) {
        if let Begun::Fetch {
            tag,
            offset_bytes,
            len_bytes,
        } = begun
        {
            self.inbound.begin(tag, offset_bytes, len_bytes);
        }
    }

    /// Posts messages about no command; whether all fitted.
    fn post_notices(&mut self, out: &mut dyn WorkList) -> bool {
        loop {
            if self.notice.is_none() {
                self.notice = self.connection.take_notice();
            }
            let bytes = match &self.notice {
                None => return true,
                Some(Notice::Login(reply)) => reply.as_bytes(),
                Some(Notice::Short(short)) => short.as_bytes(),
            };
            let Some(room) = out.send(bytes.len() as u32, None) else {
                return false;
            };
            room.copy_from_slice(bytes);
            self.notice = None;
        }
    }
}

#[cfg(test)]
mod tests;
