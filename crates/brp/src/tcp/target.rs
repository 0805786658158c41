//! The target's end of a connection over TCP.
//!
//! [`TargetSession`] cuts the stream into messages (`receive`), asks for data with PULL, and writes
//! replies with their data; [`Commands`] executes commands.

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::time::Instant;

use block::Completion;
use session::{Pace, SendList, Session, StreamSession};
use zerocopy::{FromBytes, IntoBytes};

use super::stream::{Header, Taken, parse, take};
use crate::target::connection::{Connection, Notice, TransportTerms};
use crate::target::{Backend, Begun, Commands, Given, Payload, SessionError, Tag, TargetConfig};
use crate::wire::{Command, Kind, STREAM_REPLIES_MAX_BYTES, Short, Violation};

/// The target's end of one connection.
#[derive(Debug)]
pub struct TargetSession<B> {
    connection: Connection,
    header: Header,
    body: Option<Body>,
    pulls: Pulls,
    pace: Pace,
    /// Commands with little data that have come in this turn.
    short_commands: usize,
    backend: PhantomData<fn(&mut B)>,
}

/// Data of a message whose header is done.
#[derive(Clone, Copy, Debug)]
struct Body {
    sink: Sink,
    left_bytes: u32,
}

/// Where data go.
#[derive(Clone, Copy, Debug)]
enum Sink {
    /// Nowhere.
    Discard,
    /// To a command; they are all of its data.
    Inside(Tag),
    /// To a command; a PULL asked for them.
    Pulled(Tag),
}

/// Data that were or are to be asked for.
#[derive(Debug, Default)]
struct Pulls {
    /// To be asked for: each command once at most.
    due: VecDeque<Pull>,
    /// By tag: bytes that were asked for and have not come.
    expected: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
struct Pull {
    tag: Tag,
    offset_bytes: u32,
    len_bytes: u32,
}

/// Data of one reply that are copied at most; longer ones take several.
const COPY_MAX_BYTES: u32 = 32 << 10;
/// Data of one reply that stay where they are at most.
const PLACE_MAX_BYTES: u32 = 128 << 10;
const SHORT_BYTES: usize = size_of::<Short>();

impl<B> TargetSession<B> {
    /// The least capacity of a send list, in bytes.
    pub const SEND_LIST_MIN_BYTES: usize = SHORT_BYTES + COPY_MAX_BYTES as usize;

    /// The end of a connection that has just been accepted.
    pub fn new(now: Instant, config: TargetConfig) -> Self {
        let terms = TransportTerms {
            command_data_max_bytes: config.stream_data_max_bytes,
            reply_data_max_bytes: 0,
            tags_max: config.tags_max,
        };
        Self {
            connection: Connection::new(now, config, terms),
            header: Header::default(),
            body: None,
            pulls: Pulls::default(),
            pace: Pace::default(),
            short_commands: 0,
            backend: PhantomData,
        }
    }
}

impl<B: Backend> StreamSession for TargetSession<B> {
    fn turn_bytes(&self) -> usize {
        self.pace.turn_bytes()
    }

    fn handle_bytes(
        &mut self,
        now: Instant,
        input: &[u8],
        backend: &mut B,
    ) -> Result<(), SessionError> {
        if self.connection.is_closing() {
            return Ok(());
        }
        self.connection.hear(now);
        self.short_commands = 0;
        let result = self.receive(now, input, backend);
        self.pace.note(input.len(), self.short_commands);
        self.end(result, backend)
    }

    fn poll_transmit(&mut self, now: Instant, backend: &mut B, out: &mut SendList) {
        self.transmit(now, backend, out);
    }
}

impl<B: Backend> Session for TargetSession<B> {
    type Backend = B;
    type Error = SessionError;

    fn wants_transmit(&self) -> bool {
        let has_pulls = !self.pulls.due.is_empty() && !self.connection.is_closing();
        has_pulls || self.connection.wants_transmit()
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
            self.bring_data(begun);
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
            self.connection.close(error, backend);
        }
        result
    }

    fn receive(&mut self, now: Instant, input: &[u8], backend: &mut B) -> Result<(), SessionError> {
        let mut rest = input;
        let mut ahead = Ahead::default();
        while !rest.is_empty() && !self.connection.is_closing() {
            if let Some(body) = self.body {
                self.take_body(body, &mut rest, backend);
                continue;
            }
            if !self.header.is_cut() {
                let at = input.len() - rest.len();
                ahead.look(at, input, |command| Commands::prefetch(command, backend));
            }
            match self.header.take(&mut rest, Kind::is_of_host)? {
                Taken::Cut => return Ok(()),
                Taken::InPlace(kind, header) => self.on_header(now, kind, header, backend)?,
                Taken::Joined(kind, bytes) => {
                    self.on_header(now, kind, &bytes[..kind.header_bytes()], backend)?;
                }
            }
        }
        Ok(())
    }

    fn on_header(
        &mut self,
        now: Instant,
        kind: Kind,
        header: &[u8],
        backend: &mut B,
    ) -> Result<(), SessionError> {
        match kind {
            Kind::Command => self.on_command(header, backend),
            Kind::Login => self.connection.on_login(now, &parse(header), backend),
            Kind::Data => self.on_data(&parse(header)),
            _ => self.connection.on_short(kind, &parse(header), backend),
        }
    }

    fn on_command(&mut self, header: &[u8], backend: &mut B) -> Result<(), SessionError> {
        if !self.connection.is_ready() {
            return Err(Violation::Login.into());
        }
        let command = Command::ref_from_bytes(header).expect("the kind fixes the header's length");
        let inside_bytes = command.data_bytes.get();
        let is_possible = inside_bytes <= self.connection.command_data_max_bytes()
            && command.descriptors.get() == 0;
        if !is_possible {
            return Err(Violation::Length.into());
        }
        if inside_bytes < self.connection.config().place_min_bytes {
            self.short_commands += 1;
        }
        let begun =
            self.connection
                .commands
                .begin(command, Given::Stream(inside_bytes), backend)?;
        let sink = self.bring_data(begun);
        if inside_bytes > 0 {
            self.body = Some(Body {
                sink,
                left_bytes: inside_bytes,
            });
        }
        Ok(())
    }

    /// Asks for the data of a command where the host sends them only then.
    fn bring_data(&mut self, begun: Begun) -> Sink {
        match begun {
            Begun::Done => Sink::Discard,
            Begun::Inside(tag) => Sink::Inside(tag),
            Begun::Fetch {
                tag,
                offset_bytes,
                len_bytes,
            } => {
                self.pulls.due.push_back(Pull {
                    tag,
                    offset_bytes,
                    len_bytes,
                });
                Sink::Discard
            }
        }
    }

    /// DATA (BRP-16).
    fn on_data(&mut self, data: &Short) -> Result<(), SessionError> {
        if !self.connection.is_ready() {
            return Err(Violation::Login.into());
        }
        let tag = Tag(data.tag.get());
        let len_bytes = data.data_bytes.get();
        let expected = self.pulls.expected.get(tag.index()).copied();
        let is_expected = len_bytes > 0 && expected.is_some_and(|expected| len_bytes <= expected);
        if !is_expected || !self.connection.commands.is_receiving(tag) {
            return Err(Violation::UnexpectedData.into());
        }
        self.body = Some(Body {
            sink: Sink::Pulled(tag),
            left_bytes: len_bytes,
        });
        Ok(())
    }

    /// Takes more of a message's data from `input`.
    fn take_body(&mut self, mut body: Body, input: &mut &[u8], backend: &mut B) {
        let data = take(input, body.left_bytes as usize);
        let len_bytes = data.len() as u32;
        body.left_bytes -= len_bytes;
        self.body = (body.left_bytes > 0).then_some(body);
        let commands = &mut self.connection.commands;
        match body.sink {
            Sink::Discard => {}
            Sink::Inside(tag) => {
                commands.data(tag, data, backend);
                if body.left_bytes == 0 {
                    commands.data_done(tag, backend);
                }
            }
            Sink::Pulled(tag) => {
                commands.data(tag, data, backend);
                let expected = &mut self.pulls.expected[tag.index()];
                *expected -= len_bytes;
                if *expected == 0 {
                    commands.data_done(tag, backend);
                }
            }
        }
    }

    fn transmit(&mut self, now: Instant, backend: &mut B, out: &mut SendList) {
        while self.connection.wants_transmit() || !self.pulls.due.is_empty() {
            if out.free_bytes() < crate::wire::Kind::HEADER_BYTES_MAX {
                return;
            }
            match self.connection.take_notice() {
                Some(Notice::Login(reply)) => push(reply.as_bytes(), out),
                Some(Notice::Short(short)) => push(short.as_bytes(), out),
                None => break,
            }
        }
        if self.connection.is_closing() {
            return;
        }
        while let Some(&pull) = self.pulls.due.front() {
            let message = Short::pull(pull.tag.0, pull.offset_bytes, pull.len_bytes);
            if !out.push(message.as_bytes()) {
                return;
            }
            self.pulls.note_sent(pull);
            self.pulls.due.pop_front();
        }
        let place_min_bytes = self.connection.config().place_min_bytes;
        let commands = &mut self.connection.commands;
        while push_joined(now, commands, place_min_bytes, backend, out)
            || push_front(now, commands, place_min_bytes, backend, out)
        {}
    }
}

impl Pulls {
    fn note_sent(&mut self, pull: Pull) {
        let index = pull.tag.index();
        if self.expected.len() <= index {
            self.expected.resize(index + 1, 0);
        }
        self.expected[index] = pull.len_bytes;
    }
}

/// Sends the first ready replies in one message if replies are joined and at least two fit
/// (BRP-36); whether it did. Data that are placed are in no such message.
fn push_joined<B: Backend>(
    now: Instant,
    commands: &mut Commands,
    place_min_bytes: u32,
    backend: &mut B,
    out: &mut SendList,
) -> bool {
    if !commands.has_ready() || !commands.joins() {
        return false;
    }
    let free_bytes = out.free_bytes().saturating_sub(SHORT_BYTES);
    let room_bytes = free_bytes.min(STREAM_REPLIES_MAX_BYTES as usize);
    let joinable = commands.joinable(place_min_bytes, room_bytes);
    if joinable.count < 2 {
        return false;
    }
    let message_bytes = SHORT_BYTES + joinable.len_bytes;
    let Some(room) = out.reserve(message_bytes) else {
        return false;
    };
    let (header, replies) = room.split_at_mut(SHORT_BYTES);
    let used = commands.join(now, joinable, backend, replies);
    header.copy_from_slice(Short::replies(joinable.count, used as u32).as_bytes());
    out.retract(joinable.len_bytes - used);
    true
}

/// Sends as much as fits of the first ready command; whether anything was done about it.
fn push_front<B: Backend>(
    now: Instant,
    commands: &mut Commands,
    place_min_bytes: u32,
    backend: &mut B,
    out: &mut SendList,
) -> bool {
    let Some(front) = commands.front() else {
        return false;
    };
    match front.payload {
        Payload::None => {
            let Some(room) = out.reserve(SHORT_BYTES) else {
                return false;
            };
            write_reply(now, front.tag, 0, true, commands, backend, room);
            true
        }
        Payload::Blocks {
            left_bytes,
            len_bytes,
            may_place,
        } => {
            if may_place && len_bytes >= place_min_bytes {
                push_placed(now, front.tag, left_bytes, commands, backend, out)
            } else {
                push_copied(now, front.tag, left_bytes, commands, backend, out)
            }
        }
    }
}

/// A reply whose data are copied out of the volume.
fn push_copied<B: Backend>(
    now: Instant,
    tag: Tag,
    left_bytes: u32,
    commands: &mut Commands,
    backend: &mut B,
    out: &mut SendList,
) -> bool {
    let len_bytes = left_bytes.min(COPY_MAX_BYTES);
    let message_bytes = SHORT_BYTES + len_bytes as usize;
    let Some(room) = out.reserve(message_bytes) else {
        return false;
    };
    // Copied once, next to the header, since one more part costs the system more than these few
    // bytes.
    if !commands.copy_front(&mut room[SHORT_BYTES..], backend) {
        out.retract(message_bytes);
        return true;
    }
    let is_last = len_bytes == left_bytes;
    write_reply(
        now,
        tag,
        len_bytes,
        is_last,
        commands,
        backend,
        &mut room[..SHORT_BYTES],
    );
    true
}

/// A reply whose data stay where they are until they are sent.
fn push_placed<B: Backend>(
    now: Instant,
    tag: Tag,
    left_bytes: u32,
    commands: &mut Commands,
    backend: &mut B,
    out: &mut SendList,
) -> bool {
    let len_bytes = left_bytes.min(PLACE_MAX_BYTES);
    if out.free_parts() < 2 {
        return false;
    }
    let Some(room) = out.reserve(SHORT_BYTES) else {
        return false;
    };
    let Some(placement) = commands.place_front(len_bytes, backend) else {
        out.retract(SHORT_BYTES);
        return true;
    };
    let is_last = len_bytes == left_bytes;
    write_reply(now, tag, len_bytes, is_last, commands, backend, room);
    assert!(out.place(placement), "there was a part left for it");
    true
}

/// Writes the header of a reply with `len_bytes` bytes of data. With the last one the command ends
/// (BRP-17).
fn write_reply<B: Backend>(
    now: Instant,
    tag: Tag,
    len_bytes: u32,
    is_last: bool,
    commands: &mut Commands,
    backend: &mut B,
    room: &mut [u8],
) {
    let reply = if is_last {
        let reply = commands.retire_front(now, len_bytes, backend);
        reply.expect("the caller has seen the front")
    } else {
        Short::part(tag.0, len_bytes, commands.credits())
    };
    room.copy_from_slice(reply.as_bytes());
}

fn push(bytes: &[u8], out: &mut SendList) {
    assert!(out.push(bytes), "there was room for the longest message");
}

/// Prefetches the memory that commands further on in the input write.
#[derive(Clone, Copy, Debug, Default)]
struct Ahead {
    /// Where in the input the next message is that was not looked at.
    at: usize,
    /// Messages that were looked at and have not been taken.
    count: usize,
}

impl Ahead {
    /// The number of messages to prefetch for.
    const MESSAGES_MAX: usize = 8;

    /// The next message is at `at`: gives commands behind it that have data inside to `each`.
    fn look(&mut self, at: usize, input: &[u8], mut each: impl FnMut(&Command)) {
        self.count = self.count.saturating_sub(1);
        if self.at <= at {
            *self = Self { at, count: 0 };
        }
        while self.count < Self::MESSAGES_MAX {
            let Ok((command, _)) = Command::ref_from_prefix(&input[self.at..]) else {
                return;
            };
            if command.kind != Kind::Command as u8 {
                // Other messages are rare: what follows is looked at when they were taken.
                return;
            }
            let data_bytes = command.data_bytes.get() as usize;
            if data_bytes > 0 {
                each(command);
            }
            let len = size_of::<Command>() + data_bytes;
            self.at += len.min(input.len() - self.at);
            self.count += 1;
        }
    }
}

#[cfg(test)]
mod tests;
