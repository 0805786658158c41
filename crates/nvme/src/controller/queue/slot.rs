//! The slots of a queue: one for each command that is outstanding.

use std::time::Instant;

use block::{Blocks, Extent, Lba, OpKind};
use session::SourceId;

use crate::controller::io::Action;
use crate::controller::{FailedCommand, SlotId};
use crate::wire::{Cid, Nsid, Sqe, Status, StatusCode};

/// The stage of a slot's command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// The slot has no command.
    Free,
    /// Its volume brings the blocks into memory. Data that are not in the capsule were not
    /// requested.
    Filling,
    /// The same, while the data of its capsule arrive and are kept.
    Keeping,
    /// Its data are arriving.
    Receiving,
    /// It is fused, has its data and waits for its partner.
    Gathered,
    /// It is executed piece by piece.
    Working,
    /// It was executed, and its volume makes the effects safe.
    Settling,
    /// It is done but may not be completed yet.
    Held,
    /// The subsystem will complete it.
    Parked,
    /// It may be completed, or sent if it is a read.
    Ready,
}

impl Stage {
    /// The stages that may follow, as in the diagram of [`queue`](super).
    const fn next(self) -> &'static [Self] {
        match self {
            Self::Free => &[Self::Receiving],
            Self::Filling => &[
                Self::Receiving,
                Self::Gathered,
                Self::Working,
                Self::Settling,
                Self::Held,
                Self::Ready,
            ],
            Self::Keeping => &[
                Self::Filling,
                Self::Receiving,
                Self::Gathered,
                Self::Held,
                Self::Ready,
            ],
            Self::Receiving => &[
                Self::Filling,
                Self::Keeping,
                Self::Gathered,
                Self::Working,
                Self::Settling,
                Self::Held,
                Self::Parked,
                Self::Ready,
            ],
            Self::Gathered => &[Self::Settling, Self::Held, Self::Ready],
            Self::Working => &[Self::Filling, Self::Settling, Self::Held, Self::Ready],
            Self::Settling => &[Self::Held, Self::Ready],
            Self::Held | Self::Parked => &[Self::Ready],
            Self::Ready => &[Self::Free],
        }
    }
}

/// One outstanding command.
#[derive(Debug)]
pub(super) struct Slot {
    stage: Stage,
    pub(super) action: Action,
    /// How statistics class it; `None` for those that they leave out.
    pub(super) kind: Option<OpKind>,
    pub(super) cid: Cid,
    pub(super) opcode: u8,
    /// Starting LBA (SLBA), if the command has one.
    pub(super) lba: Lba,
    pub(super) flags: SlotFlags,
    pub(super) nsid: Nsid,
    pub(super) source: SourceId,
    pub(super) extent: Extent,
    pub(super) block_shift: u32,
    /// Data that move between host and controller, in bytes.
    pub(super) len_bytes: u32,
    /// How many of these bytes were executed or sent.
    pub(super) done_bytes: u32,
    /// Success until something failed.
    pub(super) status: Status,
    pub(super) result: u64,
    pub(super) started: Instant,
    pub(super) not_before: Option<Instant>,
    /// How many bytes the transport can take to the host, or why none.
    pub(super) to_host: Result<u32, StatusCode>,
    /// The other half of a compare-and-write.
    pub(super) partner: Option<SlotId>,
    /// How far work that is done piece by piece has come: the range, and blocks of it.
    pub(super) range_index: usize,
    pub(super) range_blocks: u64,
    /// The piece of a block that has come; or all data of commands that need it together; or a
    /// reply.
    pub(super) buffer: Vec<u8>,
}

/// What is special about a command.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SlotFlags {
    /// Its identifier was in use already, by another command.
    pub(super) cid_conflicts: bool,
    /// The subsystem executes it.
    pub(super) is_control: bool,
    /// It is a Connect.
    pub(super) is_connect: bool,
    /// Its data may be sent from where they lie in the volume.
    pub(super) may_place: bool,
    /// Data of its capsule are kept, and charged, until its volume is ready.
    pub(super) keeps_input: bool,
}

impl Slot {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            stage: Stage::Free,
            action: Action::Control,
            kind: None,
            cid: Cid(0),
            opcode: 0,
            lba: Lba(0),
            flags: SlotFlags::default(),
            nsid: Nsid::NONE,
            source: SourceId(0),
            extent: Extent::new(Lba(0), Blocks(0)),
            block_shift: 0,
            len_bytes: 0,
            done_bytes: 0,
            status: Status::SUCCESS,
            result: 0,
            started: now,
            not_before: None,
            to_host: Ok(0),
            partner: None,
            range_index: 0,
            range_blocks: 0,
            buffer: Vec::new(),
        }
    }

    /// Stores a new command. The buffer is empty already.
    pub(super) fn open(&mut self, now: Instant, sqe: &Sqe) {
        assert!(
            self.stage == Stage::Free && self.buffer.is_empty(),
            "only free slots are opened"
        );
        self.enter(Stage::Receiving);
        self.action = Action::Control;
        self.kind = None;
        self.cid = sqe.cid();
        self.opcode = sqe.opcode;
        self.lba = Lba(sqe.cdw10_11());
        self.flags = SlotFlags::default();
        self.nsid = sqe.nsid();
        self.len_bytes = 0;
        self.done_bytes = 0;
        self.status = Status::SUCCESS;
        self.result = 0;
        self.started = now;
        self.not_before = None;
        self.partner = None;
    }

    /// The stage of the command.
    pub(super) fn stage(&self) -> Stage {
        self.stage
    }

    /// Moves on to `stage`. Tests, fuzz targets and simulations check that it may follow; in a
    /// release build that would cost each command a dozen instructions.
    pub(super) fn enter(&mut self, stage: Stage) {
        debug_assert!(
            self.stage.next().contains(&stage),
            "{stage:?} does not follow {:?}",
            self.stage
        );
        self.stage = stage;
    }

    pub(super) fn is_failed(&self) -> bool {
        !self.status.is_success()
    }

    /// Its entry in the error log.
    pub(super) fn failed_command(&self) -> FailedCommand {
        FailedCommand {
            cid: self.cid,
            nsid: self.nsid,
            opcode: self.opcode,
            lba: self.lba,
        }
    }

    /// Records the first failure.
    pub(super) fn fail(&mut self, status: impl Into<Status>) {
        if self.status.is_success() {
            self.status = status.into();
        }
    }

    /// The blocks of the next `len_bytes` bytes of data.
    pub(super) fn next_extent(&self, len_bytes: u32) -> Extent {
        let done = u64::from(self.done_bytes >> self.block_shift);
        let blocks = u64::from(len_bytes >> self.block_shift);
        Extent::new(Lba(self.extent.lba.0 + done), Blocks(blocks))
    }
}

/// Which command identifiers are in use: a bit for each.
#[derive(Debug)]
pub(super) struct CidSet(Box<[u64]>);

impl CidSet {
    pub(super) fn new() -> Self {
        Self(vec![0; (1 << 16) / 64].into_boxed_slice())
    }

    /// Inserts `cid`. Returns `false` if it was in use already.
    pub(super) fn insert(&mut self, cid: Cid) -> bool {
        let (word, bit) = Self::place(cid);
        let was_in = self.0[word] & bit != 0;
        self.0[word] |= bit;
        !was_in
    }

    pub(super) fn remove(&mut self, cid: Cid) {
        let (word, bit) = Self::place(cid);
        self.0[word] &= !bit;
    }

    const fn place(cid: Cid) -> (usize, u64) {
        (cid.0 as usize / 64, 1 << (cid.0 % 64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Stage; 10] = [
        Stage::Free,
        Stage::Filling,
        Stage::Keeping,
        Stage::Receiving,
        Stage::Gathered,
        Stage::Working,
        Stage::Settling,
        Stage::Held,
        Stage::Parked,
        Stage::Ready,
    ];

    #[test]
    fn the_table_is_that_of_the_diagram() {
        // A row for each stage, in the order of `ALL`: whether each other one may follow.
        let table = [
            "...R......",
            "...RGWSH.R",
            ".F.RG..H.R",
            ".FK.GWSHPR",
            "......SH.R",
            ".F....SH.R",
            ".......H.R",
            ".........R",
            ".........R",
            "F.........",
        ];
        for (stage, row) in ALL.into_iter().zip(table) {
            for (next, mark) in ALL.into_iter().zip(row.chars()) {
                let may_follow = stage.next().contains(&next);
                assert_eq!(may_follow, mark != '.', "{stage:?} to {next:?}");
            }
        }
    }

    #[test]
    #[should_panic(expected = "Working does not follow Ready")]
    fn an_illegal_transition_asserts() {
        let mut slot = Slot::new(Instant::now());
        slot.enter(Stage::Receiving);
        slot.enter(Stage::Ready);
        slot.enter(Stage::Working);
    }
}
