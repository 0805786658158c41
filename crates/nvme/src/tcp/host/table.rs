//! The commands in flight of one connection, by key.

use crate::host::{BufferRange, Buffers, Command, CommandKey, Generation, Outcome, Transfer};
use crate::tcp::host::HostSession;
use crate::tcp::wire::ADMIN_IN_CAPSULE_DATA_BYTES;
use crate::wire::{Cid, Sgl, Sqe};
use zerocopy::little_endian::U16;

/// The commands in flight. Their entries are taken once.
#[derive(Debug)]
pub(super) struct Table {
    entries: Box<[Entry]>,
    in_flight: u16,
    /// Reads in flight of at least [`HostSession::BULK_MIN_BYTES`].
    bulk_reads: u16,
}

/// A command in flight, or the place for one.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) sqe: Sqe,
    pub(super) transfer: Transfer,
    pub(super) phase: Phase,
    pub(super) data_verdict: DataVerdict,
    pub(super) data_way: DataWay,
    /// R2Ts that have not been answered in full.
    pub(super) open_r2ts: u8,
    generation: Generation,
    /// Data received, or the end of what was requested by R2Ts, from the start of the command's
    /// data.
    pub(super) moved_bytes: u32,
    /// Where in the stream the last of the command's data that were placed in the send list end.
    pub(super) placed_until_bytes: u64,
}

/// How far a command is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Free,
    Pending,
    Active,
}

/// What became of a command's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DataVerdict {
    Sound,
    DigestError,
}

/// How a command's data to the controller travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DataWay {
    InCapsule,
    ByR2t,
}

/// An outcome that waits until its command's data have left.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) until_bytes: u64,
    pub(super) outcome: Outcome,
}

/// What an ended command leaves behind.
pub(super) struct Ended {
    pub(super) has_open_r2ts: bool,
    pub(super) placed_until_bytes: u64,
}

impl Table {
    pub(super) fn new(keys: u16) -> Self {
        let free = Entry {
            sqe: Sqe::new(0, Cid(0), crate::wire::Nsid::NONE),
            transfer: Transfer::None,
            phase: Phase::Free,
            data_verdict: DataVerdict::Sound,
            data_way: DataWay::ByR2t,
            open_r2ts: 0,
            generation: Generation::default(),
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

    pub(super) fn insert(
        &mut self,
        key: CommandKey,
        command: &Command,
        in_capsule_max_bytes: u32,
        buffers: &Buffers,
    ) {
        let entry = &mut self.entries[usize::from(key.0)];
        assert_eq!(entry.phase, Phase::Free, "a key carries one command");
        let in_capsule_max_bytes = if command.sqe.opcode == Sqe::OPCODE_FABRICS {
            ADMIN_IN_CAPSULE_DATA_BYTES
        } else {
            in_capsule_max_bytes
        };
        let (sgl, way) = match command.transfer {
            Transfer::None => (Sgl::transport(0), DataWay::ByR2t),
            Transfer::ToController(range) if range.len_bytes <= in_capsule_max_bytes => {
                (Sgl::in_capsule(0, range.len_bytes), DataWay::InCapsule)
            }
            Transfer::ToHost(range) | Transfer::ToController(range) => {
                (Sgl::transport(range.len_bytes), DataWay::ByR2t)
            }
        };
        if let Transfer::ToHost(range) | Transfer::ToController(range) = command.transfer {
            assert!(buffers.contains(range), "data lie inside of their buffer");
        }
        entry.sqe = command.sqe;
        entry.sqe.cid = U16::new(key.cid(entry.generation).0);
        entry.sqe.sgl1 = sgl;
        entry.transfer = command.transfer;
        entry.phase = Phase::Pending;
        entry.data_verdict = DataVerdict::Sound;
        entry.data_way = way;
        entry.open_r2ts = 0;
        entry.moved_bytes = 0;
        entry.placed_until_bytes = 0;
        self.in_flight += 1;
        self.bulk_reads += u16::from(is_bulk(command.transfer));
    }

    /// The entry of a key that is ours.
    pub(super) fn get_mut(&mut self, key: u16) -> &mut Entry {
        &mut self.entries[usize::from(key)]
    }

    /// The command that a controller names: one whose capsule has been emitted, and of this
    /// generation.
    pub(super) fn find(&mut self, cid: u16) -> Option<(u16, &mut Entry)> {
        let key = CommandKey::of(Cid(cid)).0;
        let entry = self.entries.get_mut(usize::from(key))?;
        (entry.phase == Phase::Active && entry.sqe.cid.get() == cid).then_some((key, entry))
    }

    pub(super) fn remove(&mut self, key: u16) -> Ended {
        let entry = &mut self.entries[usize::from(key)];
        assert_ne!(entry.phase, Phase::Free, "only commands in flight end");
        entry.phase = Phase::Free;
        entry.generation = entry.generation.next();
        self.in_flight -= 1;
        self.bulk_reads -= u16::from(is_bulk(entry.transfer));
        Ended {
            has_open_r2ts: entry.open_r2ts > 0,
            placed_until_bytes: entry.placed_until_bytes,
        }
    }
}

impl Entry {
    /// Length of the command's data in bytes.
    pub(super) fn len_bytes(&self) -> u32 {
        match self.transfer {
            Transfer::None => 0,
            Transfer::ToHost(range) | Transfer::ToController(range) => range.len_bytes,
        }
    }

    /// Whether all data have moved that a successful command moves.
    pub(super) fn has_all_data(&self) -> bool {
        let in_capsule = self.data_way == DataWay::InCapsule;
        in_capsule || (self.moved_bytes == self.len_bytes() && self.open_r2ts == 0)
    }

    /// The part of the command's buffer from `offset` on, `len_bytes` long.
    pub(super) fn part(&self, offset: u32, len_bytes: u32) -> BufferRange {
        let (Transfer::ToHost(range) | Transfer::ToController(range)) = self.transfer else {
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
    matches!(transfer, Transfer::ToHost(range) if range.len_bytes >= HostSession::BULK_MIN_BYTES)
}
