//! A frame: memory for one window block, and what is known about each of its sectors.
//!
//! ```text
//!            Assigned          FillStarted            Overwritten
//!  Absent ────────────► Clean ◄───────────► Filling ─────────────► FillingDirty
//!         ◄────────────   │ ▲     Filled                                │ Filled
//!             Freed       │ │ WriteEnded                                ▼
//!             Overwritten │ └──────────── Writing ◄──────────────────► Dirty
//!                         │                  │         WriteStarted     ▲
//!                         │                  │ Overwritten              │ WriteEnded
//!                         │                  └────────► WritingDirty ───┘
//!                         └─────────────────────────────────────────► Dirty
//! ```
//!
//! Erased takes each state to the one without dirty sectors, if it was the last dirty one.

use std::ops::Range;

use block::Status;
use memory::Piece;

use crate::sectors::SectorSet;

/// What a frame is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) enum FrameState {
    /// It holds no window block.
    #[default]
    Absent,
    /// Its valid sectors are what the backing holds.
    Clean,
    /// Some sectors are newer than what the backing holds.
    Dirty,
    /// Sectors are being read.
    Filling,
    /// Sectors are being read, and some are newer than what the backing holds.
    FillingDirty,
    /// Sectors are being written.
    Writing,
    /// Sectors are being written, and some are newer than what is being written.
    WritingDirty,
}

/// What happens to a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameEvent {
    Assigned,
    FillStarted,
    Filled,
    /// A command has changed sectors.
    Overwritten,
    WriteStarted,
    /// The write has ended, well or not.
    WriteEnded,
    /// The last dirty sectors were erased.
    Erased,
    Freed,
}

impl FrameState {
    /// The next state; `None` if the event cannot happen in this state.
    const fn next(self, event: FrameEvent) -> Option<Self> {
        use FrameEvent as Event;
        Some(match (self, event) {
            (Self::Absent, Event::Assigned)
            | (Self::Dirty, Event::Erased)
            | (Self::Filling, Event::Filled)
            | (Self::Writing, Event::WriteEnded) => Self::Clean,
            (Self::Clean | Self::Dirty, Event::Overwritten)
            | (Self::FillingDirty, Event::Filled)
            | (Self::WritingDirty, Event::WriteEnded) => Self::Dirty,
            (Self::Clean, Event::FillStarted) | (Self::FillingDirty, Event::Erased) => {
                Self::Filling
            }
            (Self::Dirty, Event::FillStarted)
            | (Self::Filling | Self::FillingDirty, Event::Overwritten) => Self::FillingDirty,
            (Self::Dirty, Event::WriteStarted) | (Self::WritingDirty, Event::Erased) => {
                Self::Writing
            }
            (Self::Writing | Self::WritingDirty, Event::Overwritten) => Self::WritingDirty,
            (Self::Clean, Event::Freed) => Self::Absent,
            _ => return None,
        })
    }

    /// Whether a read or write of the backing is in flight.
    pub(crate) const fn is_in_transfer(self) -> bool {
        matches!(
            self,
            Self::Filling | Self::FillingDirty | Self::Writing | Self::WritingDirty
        )
    }
}

/// Memory for one window block. What a hit needs comes first, in one line of the processor's cache
/// with the lock.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Frame {
    /// Which window block it holds, unless it is absent.
    pub(crate) block: u64,
    memory: Piece,
    pub(crate) state: FrameState,
    has_memory: bool,
    /// Sectors whose bytes are the volume's contents.
    pub(crate) valid: SectorSet,
    /// Valid sectors that are newer than what the backing holds or is given.
    pub(crate) dirty: SectorSet,
    /// Sectors that the backing is writing, unless they were erased since.
    pub(crate) writing: SectorSet,
    /// Sectors whose last write failed, unless they were overwritten since.
    pub(crate) failed: SectorSet,
    /// Why those failed.
    pub(crate) failure: Option<Status>,
    /// Sectors that the read in flight may have read before an erasure.
    outdated: SectorSet,
}

impl Frame {
    /// A frame that takes no memory yet.
    pub(crate) fn new(memory: Piece) -> Self {
        Self {
            block: 0,
            memory,
            state: FrameState::Absent,
            has_memory: false,
            valid: SectorSet::EMPTY,
            dirty: SectorSet::EMPTY,
            writing: SectorSet::EMPTY,
            failed: SectorSet::EMPTY,
            failure: None,
            outdated: SectorSet::EMPTY,
        }
    }

    pub(crate) fn has_memory(&self) -> bool {
        self.has_memory
    }

    /// Its memory is charged from now on.
    pub(crate) fn give_memory(&mut self) {
        self.has_memory = true;
    }

    pub(crate) fn take_memory(&mut self) {
        assert_eq!(
            self.state,
            FrameState::Absent,
            "an absent frame has no use for memory"
        );
        self.has_memory = false;
        self.memory.give_back();
    }

    /// The frame holds `block` from now on; none of its sectors is known.
    pub(crate) fn assign(&mut self, block: u64) {
        self.on(FrameEvent::Assigned);
        self.block = block;
        self.valid = SectorSet::EMPTY;
        self.failed = SectorSet::EMPTY;
        self.failure = None;
    }

    pub(crate) fn free(&mut self) {
        self.on(FrameEvent::Freed);
    }

    pub(crate) fn start_fill(&mut self) {
        self.on(FrameEvent::FillStarted);
        self.outdated = SectorSet::EMPTY;
    }

    /// Takes the bytes that a fill has read for a run of sectors. What was overwritten or erased in
    /// the meantime stays, and what is outdated stays unknown.
    pub(crate) fn land(&mut self, run: (u32, u32), bytes: &[u8], shift: u32) {
        let missing = SectorSet::span(run.0, run.1).without(self.valid);
        let missing = missing.without(self.outdated);
        for (first, count) in missing.runs() {
            let from = byte_range(first - run.0, count, shift);
            self.bytes(byte_range(first, count, shift))
                .copy_from_slice(&bytes[from]);
        }
        self.valid = self.valid.or(missing);
    }

    pub(crate) fn end_fill(&mut self) {
        self.on(FrameEvent::Filled);
    }

    /// Starts writing all dirty sectors; which they are.
    pub(crate) fn start_write(&mut self) -> SectorSet {
        self.on(FrameEvent::WriteStarted);
        self.writing = std::mem::take(&mut self.dirty);
        self.writing
    }

    /// Writing `run` has failed. What is not newer there is to be written again.
    pub(crate) fn redo_write(&mut self, run: SectorSet) {
        let again = run.and(self.writing).without(self.dirty);
        if !again.is_empty() {
            self.on(FrameEvent::Overwritten);
            self.dirty = self.dirty.or(again);
        }
    }

    /// Writing `run` has failed. What is not newer there is dropped, so that the next read shows
    /// what the backing holds; returns which sectors that are.
    pub(crate) fn fail_write(&mut self, run: SectorSet, failure: Status) -> SectorSet {
        let lost = run.and(self.writing).without(self.dirty);
        self.valid = self.valid.without(lost);
        self.failed = self.failed.or(lost);
        self.failure = Some(failure);
        lost
    }

    /// The write has ended, well or not.
    pub(crate) fn end_write(&mut self) {
        self.on(FrameEvent::WriteEnded);
        self.writing = SectorSet::EMPTY;
    }

    /// A command changes sectors.
    pub(crate) fn overwrite(&mut self, first: u32, data: &[u8], shift: u32) {
        self.on(FrameEvent::Overwritten);
        let count = (data.len() >> shift) as u32;
        self.bytes(byte_range(first, count, shift))
            .copy_from_slice(data);
        let sectors = SectorSet::span(first, count);
        self.valid = self.valid.or(sectors);
        self.dirty = self.dirty.or(sectors);
        self.failed = self.failed.without(sectors);
    }

    /// Sectors become zeros, as the backing is about to make them.
    pub(crate) fn erase(&mut self, sectors: SectorSet, shift: u32) {
        for (first, count) in sectors.runs() {
            self.bytes(byte_range(first, count, shift)).fill(0);
        }
        self.valid = self.valid.or(sectors);
        self.writing = self.writing.without(sectors);
        self.failed = self.failed.without(sectors);
        let was_dirty = !self.dirty.is_empty();
        self.dirty = self.dirty.without(sectors);
        if was_dirty && self.dirty.is_empty() {
            self.on(FrameEvent::Erased);
        }
    }

    /// Erasing sectors has failed: what is not newer there is dropped. A read in flight does not
    /// bring it back, because another erasure of these sectors may have come in between.
    pub(crate) fn fail_erase(&mut self, sectors: SectorSet) {
        self.valid = self.valid.without(sectors.without(self.dirty));
        self.outdated = self.outdated.or(sectors);
    }

    /// The bytes of sectors.
    pub(crate) fn bytes(&mut self, range: Range<usize>) -> &mut [u8] {
        assert!(self.has_memory, "an assigned frame has memory");
        &mut self.memory[range]
    }

    fn on(&mut self, event: FrameEvent) {
        let next = self.state.next(event);
        self.state =
            next.unwrap_or_else(|| panic!("a frame cannot be {event:?} in state {:?}", self.state));
    }
}

/// Where `count` sectors from `first` on lie.
pub(crate) fn byte_range(first: u32, count: u32, shift: u32) -> Range<usize> {
    let start = (first as usize) << shift;
    start..start + ((count as usize) << shift)
}

#[cfg(test)]
mod tests {
    use super::FrameEvent as Event;
    use super::FrameState as State;

    const STATES: [State; 7] = [
        State::Absent,
        State::Clean,
        State::Dirty,
        State::Filling,
        State::FillingDirty,
        State::Writing,
        State::WritingDirty,
    ];

    #[test]
    fn the_transition_table_is_this_one() {
        let rows = [
            (Event::Assigned, [1, 0, 0, 0, 0, 0, 0]),
            (Event::FillStarted, [0, 3, 4, 0, 0, 0, 0]),
            (Event::Filled, [0, 0, 0, 1, 2, 0, 0]),
            (Event::Overwritten, [0, 2, 2, 4, 4, 6, 6]),
            (Event::WriteStarted, [0, 0, 5, 0, 0, 0, 0]),
            (Event::WriteEnded, [0, 0, 0, 0, 0, 1, 2]),
            (Event::Erased, [0, 0, 1, 0, 3, 0, 5]),
        ];
        for (event, row) in rows {
            for (from, to) in STATES.into_iter().zip(row) {
                // No event but Freed leads to Absent, so 0 stands for "cannot happen".
                let expected = (to > 0).then(|| STATES[to]);
                assert_eq!(from.next(event), expected, "{from:?} {event:?}");
            }
        }
        for from in STATES {
            let expected = (from == State::Clean).then_some(State::Absent);
            assert_eq!(from.next(Event::Freed), expected, "{from:?}");
        }
    }
}
