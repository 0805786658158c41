//! The commands in flight of one session, by key.

use scsi::host::{Command, CommandKey, Outcome, Transfer};
use session::{BufferRange, Buffers};

/// Reads of at least this length are worth being received in place, bytes.
pub(super) const BULK_MIN_BYTES: u32 = 16 * 1024;

/// The result of asking for the abort of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Abort {
    /// The target has no such command: it has ended, or was not sent yet.
    NotInFlight,
    /// The target was asked to abort it.
    Asked,
    /// The target had been asked before.
    AskedBefore,
}

/// The commands in flight. Their entries are allocated once.
#[derive(Debug)]
pub(super) struct Table {
    entries: Box<[Entry]>,
    in_flight: u16,
    /// Reads in flight of at least [`BULK_MIN_BYTES`].
    bulk_reads: u16,
}

/// A command in flight, or the place for one.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) cdb: [u8; 16],
    pub(super) transfer: Transfer,
    pub(super) phase: Phase,
    pub(super) data_verdict: DataVerdict,
    abort: AbortState,
    /// Unsolicited sequences and R2Ts that have not been sent in full.
    pub(super) open_answers: u8,
    pub(super) generation: u16,
    pub(super) cmd_sn: u32,
    /// The next DataSN or R2TSN.
    pub(super) next_sn: u32,
    /// Data received, or the end of the data that were sent unsolicited or requested by R2Ts, from
    /// the start of the command's data.
    pub(super) moved_bytes: u32,
    /// The position in the stream at which the command's data in the send list end.
    pub(super) placed_until_bytes: u64,
}

/// The progress of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Free,
    Pending,
    Active,
}

/// Whether a command's data arrived undamaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DataVerdict {
    Sound,
    DigestError,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AbortState {
    No,
    Asked,
}

/// An outcome that waits until its command's data have been sent.
#[derive(Debug)]
pub(super) struct HeldOutcome {
    pub(super) until_bytes: u64,
    pub(super) outcome: Outcome,
}

/// The state of a command at its end.
pub(super) struct Ended {
    pub(super) is_pending: bool,
    pub(super) has_open_answers: bool,
    pub(super) placed_until_bytes: u64,
}

/// Bits of a task tag that hold the key; the upper 16 hold the generation.
const KEY_MASK: u32 = 0xFFFF;
/// Set in the tag of a task management request; 0 in the tag of a command.
const ABORT_TAG: u32 = 0x8000;

/// The Initiator Task Tag of a command.
fn tag(key: u16, generation: u16) -> u32 {
    u32::from(generation) << 16 | u32::from(key)
}

/// The Initiator Task Tag of the request to abort the command of `itt`.
pub(super) fn abort_tag(itt: u32) -> u32 {
    itt | ABORT_TAG
}

impl Table {
    pub(super) fn new(keys: u16) -> Self {
        let free = Entry {
            cdb: [0; 16],
            transfer: Transfer::None,
            phase: Phase::Free,
            data_verdict: DataVerdict::Sound,
            abort: AbortState::No,
            open_answers: 0,
            generation: 0,
            cmd_sn: 0,
            next_sn: 0,
            moved_bytes: 0,
            placed_until_bytes: 0,
        };
        Self {
            entries: vec![free; usize::from(keys)].into_boxed_slice(),
            in_flight: 0,
            bulk_reads: 0,
        }
    }

    pub(super) fn in_flight(&self) -> u16 {
        self.in_flight
    }

    pub(super) fn expects_bulk(&self) -> bool {
        self.bulk_reads > 0 && self.bulk_reads >= self.in_flight / 2
    }

    pub(super) fn insert(&mut self, key: CommandKey, command: &Command, buffers: &Buffers) {
        let entry = &mut self.entries[usize::from(key.0)];
        assert_eq!(entry.phase, Phase::Free, "a key carries one command");
        if let Transfer::ToHost(range) | Transfer::ToTarget(range) = command.transfer {
            assert!(buffers.contains(range), "data lie inside of their buffer");
        }
        *entry = Entry {
            cdb: command.cdb,
            transfer: command.transfer,
            phase: Phase::Pending,
            data_verdict: DataVerdict::Sound,
            abort: AbortState::No,
            open_answers: 0,
            generation: entry.generation,
            cmd_sn: 0,
            next_sn: 0,
            moved_bytes: 0,
            placed_until_bytes: 0,
        };
        self.in_flight += 1;
        self.bulk_reads += u16::from(is_bulk(command.transfer));
    }

    /// The entry of a key that is ours.
    pub(super) fn get_mut(&mut self, key: u16) -> &mut Entry {
        &mut self.entries[usize::from(key)]
    }

    /// The command that a target names: one whose PDU has been emitted, and of this generation.
    pub(super) fn find(&mut self, itt: u32) -> Option<(u16, &mut Entry)> {
        let key = (itt & KEY_MASK) as u16;
        let entry = self.entries.get_mut(usize::from(key))?;
        (entry.phase == Phase::Active && tag(key, entry.generation) == itt).then_some((key, entry))
    }

    /// The command that the target was asked to abort by a request with the tag `itt`, if it is
    /// still in flight.
    pub(super) fn find_aborting(&mut self, itt: u32) -> Option<u16> {
        let (key, entry) = self.find(itt & !ABORT_TAG)?;
        (entry.abort == AbortState::Asked).then_some(key)
    }

    /// Also returns the task tag and the CmdSN of the command if the target is to be asked.
    pub(super) fn begin_abort(&mut self, key: u16) -> (Abort, Option<(u32, u32)>) {
        let entry = &mut self.entries[usize::from(key)];
        match (entry.phase, entry.abort) {
            // A command that waits for the target's window needs progress on the connection, not an
            // abort.
            (Phase::Free | Phase::Pending, _) => (Abort::NotInFlight, None),
            (Phase::Active, AbortState::Asked) => (Abort::AskedBefore, None),
            (Phase::Active, AbortState::No) => {
                entry.abort = AbortState::Asked;
                let command = (tag(key, entry.generation), entry.cmd_sn);
                (Abort::Asked, Some(command))
            }
        }
    }

    pub(super) fn remove(&mut self, key: u16) -> Ended {
        let entry = &mut self.entries[usize::from(key)];
        assert_ne!(entry.phase, Phase::Free, "only commands in flight end");
        let is_pending = entry.phase == Phase::Pending;
        entry.phase = Phase::Free;
        entry.generation = entry.generation.wrapping_add(1);
        self.in_flight -= 1;
        self.bulk_reads -= u16::from(is_bulk(entry.transfer));
        Ended {
            is_pending,
            has_open_answers: entry.open_answers > 0,
            placed_until_bytes: entry.placed_until_bytes,
        }
    }
}

impl Entry {
    /// Length of the command's data in bytes.
    pub(super) fn len_bytes(&self) -> u32 {
        self.transfer.len_bytes()
    }

    /// The command's Initiator Task Tag.
    pub(super) fn itt(&self, key: u16) -> u32 {
        tag(key, self.generation)
    }

    /// The part of the command's buffer from `offset` on, `len_bytes` long.
    pub(super) fn part(&self, offset: u32, len_bytes: u32) -> BufferRange {
        let (Transfer::ToHost(range) | Transfer::ToTarget(range)) = self.transfer else {
            panic!("only commands with data have parts of them");
        };
        BufferRange {
            slot: range.slot,
            offset: range.offset + offset,
            len_bytes,
        }
    }
}

fn is_bulk(transfer: Transfer) -> bool {
    matches!(transfer, Transfer::ToHost(range) if range.len_bytes >= BULK_MIN_BYTES)
}
