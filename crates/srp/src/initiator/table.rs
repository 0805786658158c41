//! The commands in flight of one channel, by key.

use scsi::host::{Command, CommandKey, Transfer};
use session::RemoteKey;

use super::error::Abort;
use crate::wire::Tag;

/// The commands in flight. Their entries are allocated once.
#[derive(Debug)]
pub(super) struct Table {
    entries: Box<[Entry]>,
    in_flight: u16,
}

/// A command in flight, or the place for one.
///
/// ```text
///           submitted          posted         answered, or aborted
///   Free ─────────────► Pending ────► Active ─────────────────────► Free
/// ```
#[derive(Clone, Debug)]
struct Entry {
    command: Command,
    phase: Phase,
    /// Counts the commands of the key, so that a late answer does not end a later command.
    generation: u32,
    /// The key to its data, while the target may use it.
    open: Option<RemoteKey>,
    is_aborting: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Free,
    Pending,
    Active,
}

/// A command that the target may answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct InFlight {
    pub(super) transfer: Transfer,
    pub(super) open: Option<RemoteKey>,
}

/// What a request of ours is called by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RequestTag {
    pub(super) kind: RequestKind,
    pub(super) key: u16,
    pub(super) generation: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestKind {
    /// SRP_CMD.
    Command,
    /// The SRP_TSK_MGMT that aborts the command of the same key and generation.
    Abort,
    /// SRP_I_LOGOUT.
    Logout,
}

impl RequestTag {
    pub(super) const LOGOUT: Self = Self {
        kind: RequestKind::Logout,
        key: 0,
        generation: 0,
    };

    pub(super) fn encode(self) -> Tag {
        let mut tag = [0; 8];
        tag[..4].copy_from_slice(&self.generation.to_be_bytes());
        tag[5] = match self.kind {
            RequestKind::Command => 0,
            RequestKind::Abort => 1,
            RequestKind::Logout => 2,
        };
        tag[6..].copy_from_slice(&self.key.to_be_bytes());
        tag
    }

    /// The tag of a response; `None` if no request of ours has such a tag.
    pub(super) fn decode(tag: Tag) -> Option<Self> {
        let [g0, g1, g2, g3, 0, kind, k0, k1] = tag else {
            return None;
        };
        Some(Self {
            kind: match kind {
                0 => RequestKind::Command,
                1 => RequestKind::Abort,
                2 => RequestKind::Logout,
                _ => return None,
            },
            key: u16::from_be_bytes([k0, k1]),
            generation: u32::from_be_bytes([g0, g1, g2, g3]),
        })
    }
}

impl Table {
    pub(super) fn new(keys: u16) -> Self {
        let free = Entry {
            command: Command {
                cdb: [0; 16],
                transfer: Transfer::None,
            },
            phase: Phase::Free,
            generation: 0,
            open: None,
            is_aborting: false,
        };
        Self {
            entries: vec![free; usize::from(keys)].into_boxed_slice(),
            in_flight: 0,
        }
    }

    pub(super) fn in_flight(&self) -> u16 {
        self.in_flight
    }

    pub(super) fn insert(&mut self, key: CommandKey, command: &Command) {
        let entry = &mut self.entries[usize::from(key.0)];
        assert_eq!(entry.phase, Phase::Free, "a key carries one command");
        entry.command = *command;
        entry.phase = Phase::Pending;
        entry.is_aborting = false;
        self.in_flight += 1;
    }

    /// A command that has not been posted, and its tag.
    pub(super) fn pending(&self, key: u16) -> (&Command, RequestTag) {
        let entry = &self.entries[usize::from(key)];
        let tag = RequestTag {
            kind: RequestKind::Command,
            key,
            generation: entry.generation,
        };
        (&entry.command, tag)
    }

    /// The command has been posted.
    pub(super) fn activate(&mut self, key: u16, open: Option<RemoteKey>) {
        let entry = &mut self.entries[usize::from(key)];
        assert_eq!(entry.phase, Phase::Pending, "a command is posted once");
        entry.phase = Phase::Active;
        entry.open = open;
    }

    /// The command that a target names; `None` if that is not in flight.
    pub(super) fn find(&self, tag: RequestTag) -> Option<InFlight> {
        let entry = self.entries.get(usize::from(tag.key))?;
        let is_it = entry.phase == Phase::Active && entry.generation == tag.generation;
        is_it.then_some(InFlight {
            transfer: entry.command.transfer,
            open: entry.open,
        })
    }

    /// Marks an active command as one that is to be aborted. Returns the tag of the request for
    /// that, or why there is none.
    pub(super) fn begin_abort(&mut self, key: u16) -> Result<RequestTag, Abort> {
        let entry = &mut self.entries[usize::from(key)];
        if entry.phase != Phase::Active {
            return Err(Abort::NotInFlight);
        }
        if std::mem::replace(&mut entry.is_aborting, true) {
            return Err(Abort::AskedBefore);
        }
        Ok(RequestTag {
            kind: RequestKind::Abort,
            key,
            generation: entry.generation,
        })
    }

    /// The command has ended.
    pub(super) fn remove(&mut self, key: u16) {
        let entry = &mut self.entries[usize::from(key)];
        assert_eq!(entry.phase, Phase::Active, "only commands in flight end");
        entry.phase = Phase::Free;
        entry.open = None;
        entry.generation = entry.generation.wrapping_add(1);
        self.in_flight -= 1;
    }

    /// Every key that the target may use.
    pub(super) fn take_keys(&mut self) -> impl Iterator<Item = RemoteKey> {
        self.entries
            .iter_mut()
            .filter_map(|entry| entry.open.take())
    }
}
