//! The commands in flight of one queue pair, by key.

use session::RemoteKey;
use zerocopy::little_endian::U16;

use super::HostSession;
use crate::host::{Command, CommandKey, Generation, Transfer};
use crate::wire::{Cid, Nsid, Sqe};

/// The commands in flight. Their entries are taken once.
#[derive(Debug)]
pub(super) struct Table {
    entries: Box<[Entry]>,
    in_flight: u16,
}

/// A command in flight, or the place for one.
///
/// ```text
///           submitted          posted         completed
///   Free ─────────────► Pending ────► Active ───────────► Free
/// ```
#[derive(Clone, Debug)]
struct Entry {
    sqe: Sqe,
    transfer: Transfer,
    phase: Phase,
    generation: Generation,
    /// The key to its data, as long as it may be worth something.
    open: Option<RemoteKey>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Free,
    Pending,
    Active,
}

/// A command that a controller may complete.
pub(super) struct InFlight {
    /// The key to its data, if it has any outside of the capsule.
    pub(super) open: Option<RemoteKey>,
}

impl Table {
    pub(super) fn new(keys: u16) -> Self {
        let free = Entry {
            sqe: Sqe::new(0, Cid(0), Nsid::NONE),
            transfer: Transfer::None,
            phase: Phase::Free,
            generation: Generation::default(),
            open: None,
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
        if let Transfer::ToHost(range) | Transfer::ToController(range) = command.transfer {
            assert!(
                range.len_bytes <= HostSession::TRANSFER_MAX_BYTES,
                "a keyed SGL has 24 bits for the length"
            );
        }
        entry.sqe = command.sqe;
        entry.sqe.cid = U16::new(key.cid(entry.generation).0);
        entry.transfer = command.transfer;
        entry.phase = Phase::Pending;
        self.in_flight += 1;
    }

    /// A command that has not been posted.
    pub(super) fn pending(&self, key: u16) -> (Sqe, Transfer) {
        let entry = &self.entries[usize::from(key)];
        (entry.sqe, entry.transfer)
    }

    /// The command has been posted; always `true`.
    pub(super) fn activate(&mut self, key: u16, open: Option<RemoteKey>) -> bool {
        let entry = &mut self.entries[usize::from(key)];
        assert_eq!(entry.phase, Phase::Pending, "a command is posted once");
        entry.phase = Phase::Active;
        entry.open = open;
        true
    }

    /// The command that a controller names; `None` if that is not in flight.
    pub(super) fn find(&self, cid: Cid) -> Option<InFlight> {
        let entry = self.entries.get(usize::from(CommandKey::of(cid).0))?;
        (entry.phase == Phase::Active && entry.sqe.cid() == cid)
            .then_some(InFlight { open: entry.open })
    }

    /// The command has completed.
    pub(super) fn remove(&mut self, key: CommandKey) {
        let entry = &mut self.entries[usize::from(key.0)];
        assert_eq!(entry.phase, Phase::Active, "only commands in flight end");
        entry.phase = Phase::Free;
        entry.open = None;
        entry.generation = entry.generation.next();
        self.in_flight -= 1;
    }

    /// Every key that may be worth something.
    pub(super) fn take_keys(&mut self) -> impl Iterator<Item = RemoteKey> {
        self.entries
            .iter_mut()
            .filter_map(|entry| entry.open.take())
    }
}
