//! The slots of a session: one for each tag.

use std::time::Instant;

use block::{
    Blocks, DataUse, Extent, Intent, Lba, Op, OpKind, Persistence, Status as VolumeStatus, Unmap,
};
use session::SourceId;

use super::backend::{Backend, Permission};
use super::record::{Progress, TagRecord};
use crate::wire::{Flags, Operation, Status};

/// The stage of a slot's command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// The tag has no command in flight.
    Free,
    /// Its volume brings the blocks into memory. Data that are not inside the command were not
    /// requested.
    Filling,
    /// The same, while the data inside the command arrive and are kept.
    Keeping,
    /// Its data are arriving.
    Receiving,
    /// It is executed piece by piece.
    Working,
    /// It was executed, and its volume makes the effects safe.
    Settling,
    /// It is done but may not be answered yet.
    Held,
    /// It may be answered when those before it were.
    Done,
    /// It may be answered, or sent if it is a read.
    Ready,
}

impl Stage {
    /// The stages that may follow, as in the diagram of [`target`](super::super).
    const fn next(self) -> &'static [Self] {
        match self {
            Self::Free => &[Self::Receiving],
            Self::Filling => &[
                Self::Receiving,
                Self::Working,
                Self::Settling,
                Self::Held,
                Self::Done,
            ],
            Self::Keeping => &[Self::Filling, Self::Receiving, Self::Held, Self::Done],
            Self::Receiving => &[
                Self::Filling,
                Self::Keeping,
                Self::Working,
                Self::Settling,
                Self::Held,
                Self::Done,
            ],
            Self::Working => &[Self::Settling, Self::Held, Self::Done],
            Self::Settling => &[Self::Held, Self::Done],
            Self::Held => &[Self::Done],
            Self::Done => &[Self::Ready],
            Self::Ready => &[Self::Free],
        }
    }
}

/// What goes to the host before the reply, or with it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Payload {
    /// Nothing (more).
    None,
    /// Bytes of the volume, whole blocks at a time through `copy_front` or
    /// `place_front`.
    Blocks {
        /// How many are left.
        left_bytes: u32,
        /// How many there are in all.
        len_bytes: u32,
        /// Whether they may be sent from where they lie in the volume.
        may_place: bool,
    },
}

/// One tag.
#[derive(Debug)]
pub(super) struct Slot {
    stage: Stage,
    pub(super) record: TagRecord,
    /// What is done now: a flush if the recorded command was executed already.
    pub(super) operation: Operation,
    /// Whether the operation is one that exists.
    pub(super) is_known: bool,
    /// Its data may be sent from where they lie in the volume.
    pub(super) may_place: bool,
    /// Data of the command are kept, and charged, until its volume is ready or they are whole.
    pub(super) keeps_input: bool,
    pub(super) source: SourceId,
    pub(super) block_shift: u32,
    /// Data that move between host and target, in bytes.
    pub(super) len_bytes: u32,
    /// Of a read: bytes that were sent. Of a command with data: bytes that have arrived or need
    /// not.
    pub(super) moved_bytes: u32,
    /// Success until something failed.
    pub(super) status: Status,
    pub(super) started: Instant,
    pub(super) not_before: Option<Instant>,
    /// The piece of a block that has come, or all data of commands that need them together.
    pub(super) buffer: Vec<u8>,
}

impl Slot {
    pub(super) fn new(now: Instant, record: TagRecord) -> Self {
        Self {
            stage: Stage::Free,
            record,
            operation: Operation::Flush,
            is_known: false,
            may_place: false,
            keeps_input: false,
            source: SourceId(0),
            block_shift: 0,
            len_bytes: 0,
            moved_bytes: 0,
            status: Status::Success,
            started: now,
            not_before: None,
            buffer: Vec::new(),
        }
    }

    pub(super) fn stage(&self) -> Stage {
        self.stage
    }

    /// Moves on to `stage`. Tests, fuzz targets and simulations check that it may follow.
    pub(super) fn enter(&mut self, stage: Stage) {
        debug_assert!(
            self.stage.next().contains(&stage),
            "{stage:?} does not follow {:?}",
            self.stage
        );
        self.stage = stage;
    }

    /// A command arrives. The buffer is empty already.
    pub(super) fn open(&mut self, now: Instant) {
        self.enter(Stage::Receiving);
        self.is_known = false;
        self.may_place = false;
        self.len_bytes = 0;
        self.moved_bytes = 0;
        self.status = Status::Success;
        self.started = now;
        self.not_before = None;
    }

    pub(super) fn is_failed(&self) -> bool {
        self.status != Status::Success
    }

    /// Records the first failure.
    pub(super) fn fail(&mut self, status: Status) {
        if self.status == Status::Success {
            self.status = status;
        }
    }

    /// Records the first failure of a volume.
    pub(super) fn fail_by_volume(&mut self, status: VolumeStatus) {
        if let (VolumeStatus::Miscompare { offset_bytes }, Status::Success) = (status, self.status)
        {
            self.record.detail = u32::try_from(offset_bytes).unwrap_or(u32::MAX);
        }
        self.fail(status.into());
    }

    /// What the record is to say if the connection ends now.
    pub(super) fn final_record(&self) -> TagRecord {
        let mut record = self.record;
        if matches!(self.stage, Stage::Free) || record.progress == Progress::Done {
            return record;
        }
        let is_read = record.operation == Operation::Read as u8;
        if self.is_failed()
            || (matches!(self.stage, Stage::Held | Stage::Done | Stage::Ready) && !is_read)
        {
            record.progress = Progress::Done;
            record.status = self.status;
        } else if self.stage == Stage::Settling {
            record.progress = Progress::Executed;
        }
        record
    }

    /// What goes to the host before its reply, or with it.
    pub(super) fn payload(&self) -> Payload {
        let is_read = self.operation == Operation::Read;
        if is_read && !self.is_failed() && self.moved_bytes < self.len_bytes {
            Payload::Blocks {
                left_bytes: self.len_bytes - self.moved_bytes,
                len_bytes: self.len_bytes,
                may_place: self.may_place,
            }
        } else {
            Payload::None
        }
    }

    /// Its blocks.
    pub(super) fn extent(&self) -> Extent {
        Extent::new(Lba(self.record.lba), Blocks(u64::from(self.record.blocks)))
    }

    /// The blocks of `len_bytes` bytes of data from `offset_bytes` on.
    pub(super) fn part(&self, offset_bytes: u32, len_bytes: u32) -> Extent {
        let skipped = u64::from(offset_bytes >> self.block_shift);
        let blocks = u64::from(len_bytes >> self.block_shift);
        Extent::new(Lba(self.record.lba + skipped), Blocks(blocks))
    }

    pub(super) fn flags(&self) -> Flags {
        Flags(self.record.flags)
    }

    pub(super) fn unmap(&self) -> Unmap {
        if self.flags().contains(Flags::KEEP) {
            Unmap::Forbidden
        } else {
            Unmap::Allowed
        }
    }

    /// How statistics class it; `None` for operations that do not exist.
    pub(super) fn kind(&self) -> Option<OpKind> {
        self.is_known.then_some(kind(self.operation))
    }

    /// The announcement to the volume before any data move.
    pub(super) fn intent<'a>(&self, extents: &'a [Extent]) -> Intent<'a> {
        let blocks: u64 = extents.iter().map(|extent| extent.blocks.0).sum();
        Intent {
            kind: kind(self.operation),
            extents,
            len_bytes: blocks << self.block_shift,
            data_use: match self.operation {
                Operation::Read => DataUse::Read,
                Operation::Write => DataUse::Overwrite,
                Operation::Flush => DataUse::Flush,
                Operation::WriteZeroes | Operation::Discard => DataUse::Erase,
                Operation::CompareAndWrite => DataUse::Modify,
            },
            persistence: if self.flags().contains(Flags::FUA) {
                Persistence::Durable
            } else {
                Persistence::Volatile
            },
        }
    }

    /// Executes `op` on the command's volume, if it is still the volume for which the command was
    /// checked and the host may still do that.
    pub(super) fn execute_op<B: Backend>(&mut self, op: Op<'_>, backend: &mut B) {
        let done = match backend.unit() {
            Some(unit) if unit.source == self.source => {
                if let Err(status) = allowed(self.operation, unit.permission) {
                    return self.fail(status);
                }
                unit.volume.execute(op)
            }
            _ => return self.fail(Status::Gone),
        };
        if let Err(status) = done {
            self.fail_by_volume(status);
        }
    }
}

/// Whether the host may execute this operation.
pub(super) fn allowed(operation: Operation, permission: Permission) -> Result<(), Status> {
    match operation {
        Operation::Read | Operation::Flush => permission.read,
        Operation::Write
        | Operation::WriteZeroes
        | Operation::Discard
        | Operation::CompareAndWrite => permission.write,
    }
}

const fn kind(operation: Operation) -> OpKind {
    match operation {
        Operation::Read => OpKind::Read,
        Operation::Write | Operation::WriteZeroes | Operation::CompareAndWrite => OpKind::Write,
        Operation::Discard => OpKind::Discard,
        Operation::Flush => OpKind::Flush,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Stage; 9] = [
        Stage::Free,
        Stage::Filling,
        Stage::Keeping,
        Stage::Receiving,
        Stage::Working,
        Stage::Settling,
        Stage::Held,
        Stage::Done,
        Stage::Ready,
    ];

    #[test]
    fn the_table_is_that_of_the_diagram() {
        // A row for each stage, in the order of `ALL`: whether each other one may follow.
        let table = [
            "...R.....",
            "...RWSHD.",
            ".F.R..HD.",
            ".FK.WSHD.",
            ".....SHD.",
            "......HD.",
            ".......D.",
            "........R",
            "F........",
        ];
        for (stage, row) in ALL.into_iter().zip(table) {
            for (next, mark) in ALL.into_iter().zip(row.chars()) {
                let may_follow = stage.next().contains(&next);
                assert_eq!(may_follow, mark != '.', "{stage:?} to {next:?}");
            }
        }
    }

    #[test]
    #[should_panic(expected = "Working does not follow Held")]
    fn an_illegal_transition_asserts() {
        let mut slot = Slot::new(Instant::now(), TagRecord::default());
        slot.enter(Stage::Receiving);
        slot.enter(Stage::Held);
        slot.enter(Stage::Working);
    }
}
