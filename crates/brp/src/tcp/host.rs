//! The host's end of a connection over TCP: commands go out, data are put where they belong,
//! outcomes come back.
//!
//! No socket, no clock: the owner gives what was received to [`HostSession::handle_bytes`] and
//! sends what [`HostSession::poll_transmit`] puts into a [`SendList`], whose placements are offsets
//! into the session's [`Buffers`].

use std::collections::VecDeque;

use block::ByteRange;
use session::{BufferRange, Buffers, Placement, SendList, SourceId};
use zerocopy::IntoBytes;

use super::stream::{Header, Taken, parse, take};
use crate::host::{
    Common, HostCommand, HostError, HostEvent, NoRoom, Outcome, Phase, Resumption, State, Terms,
    Transfer,
};
use crate::wire::{Features, Kind, Login, STREAM_REPLIES_MAX_BYTES, Short, Status, Violation};

/// A session's connection, seen from the host.
#[derive(Debug)]
pub struct HostSession {
    common: Common,
    /// PULLs to answer, in the order of arrival.
    pulls: VecDeque<Pull>,
    header: Header,
    body: Option<Body>,
    /// Bytes that were put into the send list, and bytes that the owner has sent, since the
    /// connection began.
    emitted_bytes: u64,
    sent_bytes: u64,
    /// Outcomes of commands whose data are still in the send list.
    held: VecDeque<Held>,
    /// Replies of a REPLIES that have not come.
    joined: Joined,
    /// Reads in flight of at least [`BULK_MIN_BYTES`].
    bulk_reads: u16,
}

/// A PULL that was not answered in full.
#[derive(Clone, Copy, Debug)]
struct Pull {
    tag: u16,
    offset_bytes: u32,
    left_bytes: u32,
}

/// The data of a REPLY that are arriving.
#[derive(Clone, Copy, Debug)]
struct Body {
    reply: Short,
    /// Where the rest of them belong.
    dest: BufferRange,
}

/// The replies of a REPLIES that have not come.
#[derive(Clone, Copy, Debug, Default)]
struct Joined {
    /// How many; 0: no REPLIES is arriving.
    count: u16,
    /// Their length with their data.
    left_bytes: u32,
}

impl Joined {
    /// Takes the next reply, if a REPLIES is arriving (BRP-37).
    fn take(&mut self, reply: &Short) -> Result<(), Violation> {
        if self.count == 0 {
            return Ok(());
        }
        let len_bytes = (size_of::<Short>() as u32).saturating_add(reply.data_bytes.get());
        let left_bytes = self.left_bytes.checked_sub(len_bytes);
        self.left_bytes = left_bytes.ok_or(Violation::Length)?;
        self.count -= 1;
        let is_last = self.count == 0;
        if reply.has_more() || (is_last && self.left_bytes > 0) {
            return Err(Violation::Length);
        }
        Ok(())
    }
}

/// An outcome that waits until its command's data have left.
#[derive(Clone, Copy, Debug)]
struct Held {
    until_bytes: u64,
    outcome: Outcome,
}

/// Data up to this length are copied next to their header; longer ones are gathered from their
/// buffer.
const COPY_MAX_BYTES: u32 = 4096;
/// The most data of one DATA message.
const DATA_MAX_BYTES: u32 = 256 << 10;
/// Reads from this length on are worth being received in place.
const BULK_MIN_BYTES: u32 = 16 << 10;

impl HostSession {
    /// The source of every placement: the session's buffers.
    pub const SOURCE: SourceId = SourceId(0);

    /// A connection that has just been made; `login` is the first thing to be sent. `resumption` is
    /// what is known from the last connection of the session that `login` is to go on with. Panics
    /// if `login` asks for no tags.
    pub fn new(login: Login, resumption: Option<&Resumption>) -> Self {
        let common = Common::new(&login, resumption);
        Self {
            pulls: VecDeque::with_capacity(common.login.tags.get().into()),
            common,
            header: Header::default(),
            body: None,
            joined: Joined::default(),
            emitted_bytes: 0,
            sent_bytes: 0,
            held: VecDeque::new(),
            bulk_reads: 0,
        }
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
    /// command, and is sent as a replay. Panics if `tag` is out of range or in flight, or if the
    /// command's data lie outside of `buffers`.
    pub fn submit(
        &mut self,
        tag: u16,
        command: &HostCommand,
        buffers: &Buffers,
    ) -> Result<(), NoRoom> {
        if let Transfer::ToHost(range) | Transfer::ToTarget(range) = command.transfer {
            assert!(buffers.contains(range), "data lie inside of their buffer");
        }
        self.common.submit(tag, command)?;
        self.bulk_reads += u16::from(is_bulk(command.transfer));
        Ok(())
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

    /// How many commands are in flight or wait to be emitted.
    pub fn in_flight(&self) -> u16 {
        self.common.table.in_flight()
    }

    /// The next thing that the target has said besides outcomes.
    pub fn poll_event(&mut self) -> Option<HostEvent> {
        self.common.poll_event()
    }

    /// Handles all of `input`, in any chunking. Puts data into `buffers` and appends outcomes to
    /// `done`. If this fails, the next output of [`poll_transmit`](Self::poll_transmit) is the
    /// last, and the connection must be closed after it.
    pub fn handle_bytes(
        &mut self,
        input: &[u8],
        buffers: &mut Buffers,
        done: &mut Vec<Outcome>,
    ) -> Result<(), HostError> {
        let mut rest = input;
        while !rest.is_empty() {
            if self.common.state == State::Closed {
                return Err(HostError::Closed);
            }
            if let Err(error) = self.step(&mut rest, buffers, done) {
                self.common.fail(error);
                return Err(error);
            }
        }
        Ok(())
    }

    fn step(
        &mut self,
        rest: &mut &[u8],
        buffers: &mut Buffers,
        done: &mut Vec<Outcome>,
    ) -> Result<(), HostError> {
        if let Some(body) = self.body {
            let data = take(rest, body.dest.len_bytes as usize);
            let len_bytes = data.len() as u32;
            let dest = BufferRange {
                len_bytes,
                ..body.dest
            };
            // Copied, since it arrived together with other messages; long data are received in
            // place.
            buffers.range_mut(dest).copy_from_slice(data);
            self.note_data(len_bytes, done);
            return Ok(());
        }
        match self.header.take(rest, Kind::is_of_target)? {
            Taken::Cut => Ok(()),
            Taken::InPlace(kind, header) => self.on_header(kind, header, done),
            Taken::Joined(kind, bytes) => self.on_header(kind, &bytes[..kind.header_bytes()], done),
        }
    }

    /// Where the next received bytes belong, as long as they are data of a long read: the owner
    /// receives at most that many bytes there, then calls [`handle_placed`](Self::handle_placed).
    pub fn direct(&self) -> Option<BufferRange> {
        let body = self.body.as_ref()?;
        (body.dest.len_bytes >= BULK_MIN_BYTES / 4).then_some(body.dest)
    }

    /// `len_bytes` bytes have been received into the start of what [`direct`](Self::direct) gave.
    pub fn handle_placed(&mut self, len_bytes: u32, done: &mut Vec<Outcome>) {
        self.note_data(len_bytes, done);
    }

    /// Whether most of what will arrive are data of long reads, so that little should be received
    /// at once that is not in place.
    pub fn expects_bulk(&self) -> bool {
        self.bulk_reads > 0 && self.bulk_reads >= self.common.table.in_flight() / 2
    }

    /// Whether [`poll_transmit`](Self::poll_transmit) would add anything to an empty list.
    pub fn wants_transmit(&self) -> bool {
        match self.common.state {
            State::Started => true,
            State::LoggingIn | State::Closed => !self.common.outbox.is_empty(),
            State::Ready => {
                !(self.common.pending.is_empty()
                    && self.pulls.is_empty()
                    && self.common.outbox.is_empty())
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

    /// Adds pending output to `out`, as much as fits.
    pub fn poll_transmit(&mut self, buffers: &Buffers, out: &mut SendList) {
        let before_bytes = out.len_bytes();
        self.emit(before_bytes, buffers, out);
        self.emitted_bytes += out.len_bytes() - before_bytes;
    }

    fn on_header(
        &mut self,
        kind: Kind,
        header: &[u8],
        done: &mut Vec<Outcome>,
    ) -> Result<(), HostError> {
        self.common.note_heard();
        if self.joined.count > 0 && kind != Kind::Reply {
            return Err(Violation::Kind.into());
        }
        match (self.common.state, kind) {
            (State::LoggingIn, Kind::LoginReply) => self.common.on_login_reply(&parse(header)),
            (State::Ready, Kind::Reply) => self.on_reply(&parse(header), done),
            (State::Ready, Kind::Replies) => self.on_replies(&parse(header)),
            (State::Ready, Kind::Pull) => self.on_pull(&parse(header)),
            (_, Kind::LoginReply | Kind::Reply | Kind::Replies | Kind::Pull) => {
                Err(Violation::Login.into())
            }
            _ => self.common.on_notice(kind, &parse(header)),
        }
    }

    /// REPLIES (BRP-37): the replies follow.
    fn on_replies(&mut self, replies: &Short) -> Result<(), HostError> {
        if !self.common.has(Features::MERGE) {
            return Err(Violation::Kind.into());
        }
        let (count, left_bytes) = (replies.tag.get(), replies.data_bytes.get());
        let least_bytes = u32::from(count) * size_of::<Short>() as u32;
        if count == 0 || !(least_bytes..=STREAM_REPLIES_MAX_BYTES).contains(&left_bytes) {
            return Err(Violation::Length.into());
        }
        self.joined = Joined { count, left_bytes };
        Ok(())
    }

    /// REPLY (BRP-17).
    fn on_reply(&mut self, reply: &Short, done: &mut Vec<Outcome>) -> Result<(), HostError> {
        let tag = reply.tag.get();
        let entry = self.common.table.find(tag).ok_or(Violation::Tag)?;
        Common::check_reply(reply, entry.transfer.missing_bytes(entry.moved_bytes))?;
        self.joined.take(reply)?;
        let data_bytes = reply.data_bytes.get();
        self.common.table.set_credits(reply.credits());
        if data_bytes == 0 {
            self.finish(reply, done);
            return Ok(());
        }
        let entry = self.common.table.get_mut(tag);
        let dest = entry.transfer.part(entry.moved_bytes, data_bytes);
        entry.moved_bytes += data_bytes;
        self.body = dest.map(|dest| Body {
            reply: *reply,
            dest,
        });
        Ok(())
    }

    /// `len_bytes` bytes of the data that are arriving are at their place.
    fn note_data(&mut self, len_bytes: u32, done: &mut Vec<Outcome>) {
        let Some(body) = &mut self.body else {
            return;
        };
        body.dest.offset += len_bytes;
        body.dest.len_bytes -= len_bytes;
        if body.dest.len_bytes > 0 {
            return;
        }
        let reply = body.reply;
        self.body = None;
        if !reply.has_more() {
            self.finish(&reply, done);
        }
    }

    /// The command is answered. Its outcome waits if its data are still in the send list, since the
    /// caller may use the buffer again as soon as it has the outcome.
    fn finish(&mut self, reply: &Short, done: &mut Vec<Outcome>) {
        let tag = reply.tag.get();
        let entry = self.common.table.get_mut(tag);
        let (until_bytes, transfer) = (entry.placed_until_bytes, entry.transfer);
        self.bulk_reads -= u16::from(is_bulk(transfer));
        self.common.table.remove(tag);
        self.pulls.retain(|pull| pull.tag != tag);
        let outcome = Outcome {
            tag,
            status: Status::from_number(reply.status()).unwrap_or(Status::Invalid),
            detail: reply.second(),
        };
        if until_bytes > self.sent_bytes {
            self.held.push_back(Held {
                until_bytes,
                outcome,
            });
        } else {
            done.push(outcome);
        }
    }

    /// PULL (BRP-16).
    fn on_pull(&mut self, pull: &Short) -> Result<(), HostError> {
        let tag = pull.tag.get();
        let entry = self.common.table.find(tag).ok_or(Violation::Tag)?;
        let (offset_bytes, len_bytes) = (pull.first(), pull.second());
        let end_bytes = u64::from(offset_bytes) + u64::from(len_bytes);
        let is_possible = matches!(entry.transfer, Transfer::ToTarget(_))
            && entry.moved_bytes == 0
            && len_bytes > 0
            && end_bytes == u64::from(entry.transfer.len_bytes());
        if !is_possible {
            return Err(Violation::UnexpectedData.into());
        }
        entry.moved_bytes = entry.transfer.len_bytes();
        self.pulls.push_back(Pull {
            tag,
            offset_bytes,
            left_bytes: len_bytes,
        });
        Ok(())
    }

    fn emit(&mut self, before_bytes: u64, buffers: &Buffers, out: &mut SendList) {
        if !self.common.emit_notices(|bytes| out.push(bytes)) {
            return;
        }
        while let Some(pull) = self.pulls.front_mut() {
            let len_bytes = pull.left_bytes.min(DATA_MAX_BYTES);
            if !has_room(out, len_bytes) {
                return;
            }
            let entry = self.common.table.get_mut(pull.tag);
            push(Short::data(pull.tag, len_bytes).as_bytes(), out);
            push_data(
                entry.transfer.part(pull.offset_bytes, len_bytes),
                buffers,
                out,
            );
            entry.placed_until_bytes = self.emitted_bytes + (out.len_bytes() - before_bytes);
            pull.offset_bytes += len_bytes;
            pull.left_bytes -= len_bytes;
            if pull.left_bytes == 0 {
                self.pulls.pop_front();
            }
        }
        let inside_max_bytes = self
            .common
            .terms
            .map_or(0, |terms| terms.command_data_max_bytes);
        while let Some(&tag) = self.common.pending.front() {
            let entry = self.common.table.get_mut(tag);
            let inside = match entry.transfer {
                Transfer::ToTarget(range) if range.len_bytes <= inside_max_bytes => Some(range),
                _ => None,
            };
            let inside_bytes = inside.map_or(0, |range| range.len_bytes);
            if !has_room(out, inside_bytes) {
                return;
            }
            entry.command.data_bytes.set(inside_bytes);
            push(entry.command.as_bytes(), out);
            if inside_bytes > 0 {
                push_data(inside, buffers, out);
                entry.moved_bytes = inside_bytes;
            }
            if inside_bytes > COPY_MAX_BYTES {
                entry.placed_until_bytes = self.emitted_bytes + (out.len_bytes() - before_bytes);
            }
            entry.phase = Phase::Active;
            self.common.pending.pop_front();
        }
    }
}

fn is_bulk(transfer: Transfer) -> bool {
    matches!(transfer, Transfer::ToHost(range) if range.len_bytes >= BULK_MIN_BYTES)
}

/// Whether a message with `data_bytes` bytes of data surely fits.
fn has_room(out: &SendList, data_bytes: u32) -> bool {
    let copied_bytes = if data_bytes > COPY_MAX_BYTES {
        0
    } else {
        data_bytes as usize
    };
    out.free_parts() >= 2 && out.free_bytes() >= size_of::<crate::wire::Command>() + copied_bytes
}

fn push(bytes: &[u8], out: &mut SendList) {
    assert!(out.push(bytes), "has_room was asked for this message");
}

fn push_data(range: Option<BufferRange>, buffers: &Buffers, out: &mut SendList) {
    let Some(range) = range else {
        return;
    };
    let fitted = if range.len_bytes > COPY_MAX_BYTES {
        out.place(Placement {
            source: HostSession::SOURCE,
            range: ByteRange {
                offset: buffers.offset(range),
                len: u64::from(range.len_bytes),
            },
        })
    } else {
        // Copied, since one more part costs the operating system more than these few bytes.
        out.push(buffers.range(range))
    };
    assert!(fitted, "has_room was asked for these data");
}

#[cfg(test)]
mod tests;
