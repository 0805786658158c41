//! The host: a session's tags, its commands and their outcomes. Knows no transport.
//!
//! Read first: docs/brp.md, "Messages", "Reconnect and replay".
//!
//! ```text
//!           submit            sent              answered, data received
//!   Free ─────────► Pending ───────► Active ──────────────────────────────► Free
//!                      └──────┬─────────┘
//!                             │ connection lost             submit on the next connection of the session
//!                             └────────────────► Unanswered ──────────────────────────────────────────► Pending,
//!                                                                                                 with the same number
//! ```

mod common;

use block::{Blocks, Extent, Lba, Unmap};
use session::BufferRange;

use crate::wire::{
    Command, Features, Flags, Login, LoginReply, LoginStatus, Operation, ReplyFlags, SessionId,
    Status, TAGS_MAX, VERSION,
};

pub(crate) use common::State;
pub use common::{Common, HostError};

/// A command and where its data are.
#[derive(Clone, Copy, Debug)]
pub struct HostCommand {
    /// The command; tag, sequence number and data are filled in when it is sent.
    pub(crate) command: Command,
    pub(crate) transfer: Transfer,
}

/// Which way a command's data go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transfer {
    /// It has none.
    None,
    /// From the target into this range.
    ToHost(BufferRange),
    /// From this range to the target.
    ToTarget(BufferRange),
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Its tag.
    pub tag: u16,
    /// Its status.
    pub status: Status,
    /// The offset of the first difference in bytes if the status is [`Status::Miscompare`].
    pub detail: u32,
}

/// Why a command is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoRoom {
    /// As many are in flight as the host has credits.
    Credits,
    /// The connection is not ready, or has ended.
    Closed,
}

/// Something that a host learns from its target besides outcomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostEvent {
    /// The login is granted.
    LoggedIn(Terms),
    /// The unit has this many blocks now.
    Resized(Blocks),
    /// Whether the host may write now.
    Writable(bool),
    /// The unit was removed.
    Removed,
    /// The target ends its service soon.
    Shutdown,
}

/// What a login has granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// The session.
    pub session: SessionId,
    /// Whether the session existed: unanswered commands are sent again (BRP-30).
    pub is_resumed: bool,
    /// Whether the host may write.
    pub is_writable: bool,
    /// Whether the unit has a volatile write cache.
    pub has_write_cache: bool,
    /// Tags.
    pub tags: u16,
    /// Features.
    pub features: Features,
    /// Commands that may be in flight for now.
    pub credits: u16,
    /// log2 of the block size in bytes.
    pub block_shift: u8,
    /// Blocks of the unit.
    pub blocks: Blocks,
    /// The longest transfer in bytes.
    pub transfer_max_bytes: u32,
    /// The most data inside a WRITE in bytes.
    pub command_data_max_bytes: u32,
    /// The most data of one side of a compare-and-write in bytes.
    pub compare_max_bytes: u32,
    /// The most data inside a reply over RDMA in bytes.
    pub reply_data_max_bytes: u32,
    /// The keep-alive time in ms; 0: none.
    pub keep_alive_ms: u32,
    /// The identifier of the volume.
    pub volume: [u8; 16],
}

/// Why a login is not granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoginError {
    /// The target rejects it.
    #[error("the target rejected the login: {0}")]
    Rejected(LoginStatus),
    /// The target gives a status that does not exist.
    #[error("the target rejected the login with the unknown status {0}")]
    UnknownStatus(u16),
    /// The target grants what was not asked for, or what is not possible.
    #[error("the target's reply to the login is not valid: {0}")]
    Reply(&'static str),
}

/// What a host keeps of a session whose connection is lost.
#[derive(Debug)]
pub struct Resumption {
    session: SessionId,
    tags: Box<[TagState]>,
}

/// What a host knows of a tag between two connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct TagState {
    /// The last number that was used.
    sequence: u32,
    /// Whether that command is unanswered.
    is_unanswered: bool,
}

/// Read blocks into a buffer.
pub fn read(extent: Extent, data: BufferRange) -> HostCommand {
    HostCommand {
        command: Command::new(Operation::Read, Flags::default(), extent),
        transfer: Transfer::ToHost(data),
    }
}

/// Write blocks from a buffer.
pub fn write(extent: Extent, data: BufferRange) -> HostCommand {
    HostCommand {
        command: Command::new(Operation::Write, Flags::default(), extent),
        transfer: Transfer::ToTarget(data),
    }
}

/// Write blocks from a buffer onto stable storage.
pub fn write_durable(extent: Extent, data: BufferRange) -> HostCommand {
    HostCommand {
        command: Command::new(Operation::Write, Flags::FUA, extent),
        transfer: Transfer::ToTarget(data),
    }
}

/// Compare blocks with the first half of a buffer and, if equal, write the second half.
pub fn compare_and_write(extent: Extent, data: BufferRange) -> HostCommand {
    HostCommand {
        command: Command::new(Operation::CompareAndWrite, Flags::default(), extent),
        transfer: Transfer::ToTarget(data),
    }
}

/// Make what was answered durable.
pub fn flush() -> HostCommand {
    let extent = Extent::new(Lba(0), Blocks(0));
    without_data(Operation::Flush, Flags::default(), extent)
}

/// Make blocks read as zeros.
pub fn write_zeroes(extent: Extent, unmap: Unmap) -> HostCommand {
    let flags = match unmap {
        Unmap::Allowed => Flags::default(),
        Unmap::Forbidden => Flags::KEEP,
    };
    without_data(Operation::WriteZeroes, flags, extent)
}

/// Free the memory of blocks.
pub fn discard(extent: Extent) -> HostCommand {
    without_data(Operation::Discard, Flags::default(), extent)
}

fn without_data(operation: Operation, flags: Flags, extent: Extent) -> HostCommand {
    HostCommand {
        command: Command::new(operation, flags, extent),
        transfer: Transfer::None,
    }
}

impl Transfer {
    /// Length of the data in bytes.
    pub(crate) const fn len_bytes(self) -> u32 {
        match self {
            Self::None => 0,
            Self::ToHost(range) | Self::ToTarget(range) => range.len_bytes,
        }
    }

    /// The part of the range from `offset_bytes` on, `len_bytes` long; `None` without data.
    pub(crate) fn part(self, offset_bytes: u32, len_bytes: u32) -> Option<BufferRange> {
        match self {
            Self::None => None,
            Self::ToHost(range) | Self::ToTarget(range) => Some(BufferRange {
                slot: range.slot,
                offset: range.offset + offset_bytes,
                len_bytes,
            }),
        }
    }
}

impl Resumption {
    /// The session.
    pub fn session(&self) -> SessionId {
        self.session
    }

    /// The tags whose last command is unanswered.
    pub fn unanswered(&self) -> impl Iterator<Item = u16> {
        let tags = (0..).zip(&self.tags);
        tags.filter_map(|(tag, state)| state.is_unanswered.then_some(tag))
    }

    /// The session is lost at the target: numbers go on, and nothing is a replay (BRP-33).
    #[must_use]
    pub fn forgotten(mut self) -> Self {
        self.session = SessionId::NONE;
        for tag in &mut self.tags {
            *tag = TagState::default();
        }
        self
    }
}

impl Terms {
    /// Checks the reply to `login` (BRP-4, BRP-5).
    pub fn of(login: &Login, reply: &LoginReply) -> Result<Self, LoginError> {
        let status = reply.status.get();
        match LoginStatus::from_number(status) {
            Some(LoginStatus::Ok) => {}
            Some(status) => return Err(LoginError::Rejected(status)),
            None => return Err(LoginError::UnknownStatus(status)),
        }
        let terms = Self::read(reply);
        let features = Features(login.features.get());
        let wanted = login.session;
        let checks = [
            (reply.version.get() == VERSION, "the version"),
            (
                (1..=login.tags.get().min(TAGS_MAX)).contains(&terms.tags),
                "the tags",
            ),
            (features.contains(terms.features), "the features"),
            ((1..=terms.tags).contains(&terms.credits), "the credits"),
            (matches!(terms.block_shift, 9 | 12), "the block size"),
            (
                terms.blocks.0 <= u64::MAX >> terms.block_shift.min(12),
                "the capacity",
            ),
            (
                terms.transfer_max_bytes >= 4096
                    && terms.transfer_max_bytes <= login.transfer_max_bytes.get(),
                "the transfer length",
            ),
            (
                terms.reply_data_max_bytes <= login.reply_data_max_bytes.get(),
                "the data of replies",
            ),
            (
                terms.session != SessionId::NONE
                    && terms.is_resumed == (wanted != SessionId::NONE)
                    && (!terms.is_resumed || terms.session == wanted),
                "the session",
            ),
        ];
        match checks.iter().find(|(is_valid, _)| !is_valid) {
            Some(&(_, what)) => Err(LoginError::Reply(what)),
            None => Ok(terms),
        }
    }

    fn read(reply: &LoginReply) -> Self {
        let flags = ReplyFlags(reply.flags);
        Self {
            session: reply.session,
            is_resumed: flags.contains(ReplyFlags::RESUMED),
            is_writable: !flags.contains(ReplyFlags::READ_ONLY),
            has_write_cache: flags.contains(ReplyFlags::WRITE_CACHE),
            tags: reply.tags.get(),
            features: Features(reply.features.get()),
            credits: reply.credits.get(),
            block_shift: reply.block_shift,
            blocks: Blocks(reply.blocks.get()),
            transfer_max_bytes: reply.transfer_max_bytes.get(),
            command_data_max_bytes: reply.command_data_max_bytes.get(),
            compare_max_bytes: reply.compare_max_bytes.get(),
            reply_data_max_bytes: reply.reply_data_max_bytes.get(),
            keep_alive_ms: reply.keep_alive_ms.get(),
            volume: reply.volume,
        }
    }
}

/// The tags of one connection.
#[derive(Debug)]
pub(crate) struct Table {
    entries: Box<[Entry]>,
    in_flight: u16,
    credits: u16,
}

/// A tag.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) phase: Phase,
    pub(crate) command: Command,
    pub(crate) transfer: Transfer,
    state: TagState,
    /// Data received, or sent on PULL, or inside the command.
    pub(crate) moved_bytes: u32,
    /// Where in the stream the last of the command's data that were placed in the send list end
    /// (TCP).
    pub(crate) placed_until_bytes: u64,
}

/// How far a command is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Free,
    Pending,
    Active,
}

impl Table {
    /// `tags` tags, with what is known of them from a lost connection.
    pub(crate) fn new(tags: u16, resumption: Option<&Resumption>) -> Self {
        let free = |index: usize| Entry {
            phase: Phase::Free,
            command: Command::new(
                Operation::Flush,
                Flags::default(),
                Extent::new(Lba(0), Blocks(0)),
            ),
            transfer: Transfer::None,
            state: resumption
                .and_then(|before| before.tags.get(index))
                .copied()
                .unwrap_or_default(),
            moved_bytes: 0,
            placed_until_bytes: 0,
        };
        Self {
            entries: (0..usize::from(tags)).map(free).collect(),
            in_flight: 0,
            credits: 0,
        }
    }

    /// How many commands are in flight or wait to be sent.
    pub(crate) fn in_flight(&self) -> u16 {
        self.in_flight
    }

    /// How many more commands may be submitted (BRP-21).
    pub(crate) fn room(&self) -> u16 {
        self.credits.saturating_sub(self.in_flight)
    }

    pub(crate) fn set_credits(&mut self, credits: u16) {
        self.credits = credits.clamp(1, self.entries.len() as u16);
    }

    /// A login was granted with this many tags: others are not used any more.
    pub(crate) fn grant(&mut self, terms: &Terms) {
        if !terms.is_resumed {
            for entry in &mut self.entries {
                entry.state.is_unanswered = false;
            }
        }
        self.credits = terms.credits.min(terms.tags);
    }

    /// Takes a command. One that was unanswered when the last connection was lost keeps its number.
    pub(crate) fn insert(&mut self, tag: u16, command: &HostCommand) {
        let entry = &mut self.entries[usize::from(tag)];
        assert_eq!(entry.phase, Phase::Free, "a tag carries one command");
        if !entry.state.is_unanswered {
            entry.state.sequence = entry.state.sequence.wrapping_add(1);
            if entry.state.sequence == 0 {
                // 0 stands for no command (BRP-12).
                entry.state.sequence = 1;
            }
        }
        entry.state.is_unanswered = true;
        entry.command = command.command;
        entry.command.tag.set(tag);
        entry.command.sequence.set(entry.state.sequence);
        entry.transfer = command.transfer;
        entry.phase = Phase::Pending;
        entry.moved_bytes = 0;
        entry.placed_until_bytes = 0;
        self.in_flight += 1;
    }

    /// The entry of a tag that is ours.
    pub(crate) fn get_mut(&mut self, tag: u16) -> &mut Entry {
        &mut self.entries[usize::from(tag)]
    }

    /// The entry that a target names: one whose command was sent.
    pub(crate) fn find(&mut self, tag: u16) -> Option<&mut Entry> {
        let entry = self.entries.get_mut(usize::from(tag))?;
        (entry.phase == Phase::Active).then_some(entry)
    }

    /// The command has been answered.
    pub(crate) fn remove(&mut self, tag: u16) {
        let entry = &mut self.entries[usize::from(tag)];
        assert_ne!(entry.phase, Phase::Free, "only commands in flight end");
        entry.phase = Phase::Free;
        entry.state.is_unanswered = false;
        self.in_flight -= 1;
    }

    /// Forgets that the last command of a free tag is unanswered (BRP-34).
    pub(crate) fn give_up(&mut self, tag: u16) {
        let entry = &mut self.entries[usize::from(tag)];
        if entry.phase == Phase::Free {
            entry.state.is_unanswered = false;
        }
    }

    /// What is to be known on the next connection of `session`.
    pub(crate) fn resumption(&self, session: SessionId) -> Resumption {
        Resumption {
            session,
            tags: self.entries.iter().map(|entry| entry.state).collect(),
        }
    }
}

impl Entry {
    /// The number of the command.
    pub(crate) fn sequence(&self) -> u32 {
        self.state.sequence
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms_of(change: impl FnOnce(&mut Login, &mut LoginReply)) -> Result<Terms, LoginError> {
        let mut login = Login::new("nqn.h", "nqn.t", 1).expect("names");
        login.tags.set(32);
        login.features.set(1);
        login.transfer_max_bytes.set(1 << 20);
        let mut reply = LoginReply::rejected(LoginStatus::Ok);
        reply.tags.set(32);
        reply.credits.set(32);
        reply.block_shift = 9;
        reply.blocks.set(100);
        reply.transfer_max_bytes.set(1 << 20);
        reply.session = SessionId([1; 16]);
        change(&mut login, &mut reply);
        Terms::of(&login, &reply)
    }

    /// BRP-4, BRP-5.
    #[test]
    fn a_reply_that_grants_more_than_was_asked_for_is_not_valid() {
        assert!(terms_of(|_, _| {}).is_ok());
        let reply = |what| Err(LoginError::Reply(what));
        assert_eq!(terms_of(|_, it| it.version.set(2)), reply("the version"));
        assert_eq!(terms_of(|_, it| it.tags.set(33)), reply("the tags"));
        assert_eq!(terms_of(|_, it| it.tags.set(0)), reply("the tags"));
        assert_eq!(terms_of(|_, it| it.features.set(2)), reply("the features"));
        assert_eq!(terms_of(|_, it| it.credits.set(0)), reply("the credits"));
        assert_eq!(terms_of(|_, it| it.credits.set(33)), reply("the credits"));
        assert_eq!(
            terms_of(|_, it| it.block_shift = 10),
            reply("the block size")
        );
        assert_eq!(
            terms_of(|_, it| it.blocks.set(u64::MAX)),
            reply("the capacity")
        );
        let longer = |_: &mut Login, it: &mut LoginReply| it.transfer_max_bytes.set(2 << 20);
        assert_eq!(terms_of(longer), reply("the transfer length"));
        let inside = |_: &mut Login, it: &mut LoginReply| it.reply_data_max_bytes.set(1);
        assert_eq!(terms_of(inside), reply("the data of replies"));
        let other = |it: &mut Login, _: &mut LoginReply| it.session = SessionId([2; 16]);
        assert_eq!(terms_of(other), reply("the session"));
        assert_eq!(terms_of(|_, it| it.flags = 1), reply("the session"));
        let status = |_: &mut Login, it: &mut LoginReply| it.status.set(7);
        assert_eq!(
            terms_of(status),
            Err(LoginError::Rejected(LoginStatus::NoSession))
        );
    }

    /// BRP-12, BRP-30, BRP-34.
    #[test]
    fn an_unanswered_command_keeps_its_number_on_the_next_connection_and_others_get_new_ones() {
        let command = flush();
        let mut table = Table::new(3, None);
        for tag in 0..3 {
            table.insert(tag, &command);
            assert_eq!(table.get_mut(tag).sequence(), 1);
        }
        table.get_mut(2).phase = Phase::Active;
        table.remove(2);
        let lost = table.resumption(SessionId([1; 16]));
        let mut next = Table::new(3, Some(&lost));
        next.give_up(1);
        for tag in 0..3 {
            next.insert(tag, &command);
        }
        let numbers: Vec<u32> = (0..3).map(|tag| next.get_mut(tag).sequence()).collect();
        assert_eq!(numbers, [1, 2, 2]);
        let mut anew = Table::new(3, Some(&lost.forgotten()));
        anew.insert(0, &command);
        assert_eq!(anew.get_mut(0).sequence(), 1);
    }
}
