//! The commands in flight of one queue pair, by key.

use block::RemoteKey;
use zerocopy::little_endian::U16;

use super::HostSession;
use crate::host::{Command, CommandKey, Generation, Outcome, Transfer};
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
///           submitted          posted           sent, completed (either first)
///   Free ─────────────► Pending ────► Active ───────────────────────────────────► Free
/// ```
#[derive(Clone, Debug)]
struct Entry {
    sqe: Sqe,
    transfer: Transfer,
    phase: Phase,
    generation: Generation,
    /// The key to its data, as long as it may be worth something.
    open: Option<RemoteKey>,
    /// Its outcome, where that came before its send had completed: the capsule may have to be sent again, so its bytes are not
    /// the caller's yet.
    outcome: Option<Outcome>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Free,
    Pending,
    /// Posted; neither sent nor completed.
    Active,
    /// Sent; not completed.
    Sent,
    /// Completed; not sent.
    Completed,
}

/// A command that a controller may complete.
pub(super) struct InFlight {
    /// The key to its data, where it has any outside of the capsule.
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
            outcome: None,
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

    /// The command that a controller names; `None` where that is not in flight.
    pub(super) fn find(&self, cid: Cid) -> Option<InFlight> {
        let entry = self.entries.get(usize::from(CommandKey::of(cid).0))?;
        let is_open = matches!(entry.phase, Phase::Active | Phase::Sent);
        (is_open && entry.sqe.cid() == cid).then_some(InFlight { open: entry.open })
    }

    /// The command has completed; the outcome where it has been sent, too.
    pub(super) fn complete(&mut self, outcome: Outcome) -> Option<Outcome> {
        let entry = &mut self.entries[usize::from(outcome.key.0)];
        entry.open = None;
        entry.outcome = Some(outcome);
        if entry.phase == Phase::Sent {
            return self.free(outcome.key);
        }
        entry.phase = Phase::Completed;
        None
    }

    /// The command has been sent; the outcome where it has completed, too.
    pub(super) fn sent(&mut self, key: CommandKey) -> Option<Outcome> {
        let entry = &mut self.entries[usize::from(key.0)];
        match entry.phase {
            Phase::Completed => self.free(key),
            Phase::Active => {
                entry.phase = Phase::Sent;
                None
            }
            Phase::Free | Phase::Pending | Phase::Sent => panic!("a command is sent once"),
        }
    }

    /// Every key that may be worth something.
    pub(super) fn take_keys(&mut self) -> impl Iterator<Item = RemoteKey> {
        self.entries
            .iter_mut()
            .filter_map(|entry| entry.open.take())
    }

    fn free(&mut self, key: CommandKey) -> Option<Outcome> {
        let entry = &mut self.entries[usize::from(key.0)];
        entry.phase = Phase::Free;
        entry.generation = entry.generation.next();
        self.in_flight -= 1;
        entry.outcome.take()
    }
}
