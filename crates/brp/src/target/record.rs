//! The record of a session: for each tag its last command, how far it is, and its reply (BRP-30).
//!
//! ```text
//!            a new command                  all is executed             the reply is determined
//!  (any) ──────────────────► Partial(0…n) ──────────────────► Executed ────────────────────────► Done
//!                                 └──────────────────────────────────────────────────────────────►
//! ```

use std::fmt;

use crate::wire::{Command, Flags, SessionId, Status, Violation};

/// What becomes of a session whose connection ends.
pub struct SessionRecord {
    session: SessionId,
    tags: Box<[TagRecord]>,
}

/// The last command of a tag.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TagRecord {
    /// 0: there was none.
    pub(super) sequence: u32,
    pub(super) operation: u8,
    pub(super) progress: Progress,
    pub(super) flags: u16,
    pub(super) lba: u64,
    pub(super) blocks: u32,
    /// What is done of a command in [`Progress::Partial`]: bytes of a write, blocks of other
    /// commands.
    pub(super) done: u32,
    pub(super) status: Status,
    pub(super) detail: u32,
}

/// What a session's charge and BRP-32 count on.
const _: () = assert!(size_of::<TagRecord>() <= 40);

/// How far a recorded command is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Progress {
    /// A part is executed, possibly nothing.
    #[default]
    Partial,
    /// All is executed; whether the effects are safe is not known.
    Executed,
    /// The reply is known.
    Done,
}

/// How a command relates to the record of its tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    New,
    Replay,
}

impl SessionRecord {
    /// Bytes of memory for each tag.
    pub const TAG_BYTES: usize = size_of::<TagRecord>();

    /// The record of a new session.
    pub fn new(session: SessionId, tags: u16) -> Self {
        Self {
            session,
            tags: vec![TagRecord::default(); usize::from(tags)].into_boxed_slice(),
        }
    }

    pub(super) fn of(session: SessionId, tags: impl Iterator<Item = TagRecord>) -> Self {
        Self {
            session,
            tags: tags.collect(),
        }
    }

    /// The session.
    pub fn session(&self) -> SessionId {
        self.session
    }

    /// How many tags it has.
    pub fn tags(&self) -> u16 {
        self.tags.len() as u16
    }

    /// Whether no command was ever recorded.
    pub fn is_new(&self) -> bool {
        self.tags.iter().all(|tag| tag.sequence == 0)
    }

    pub(super) fn into_tags(self) -> impl Iterator<Item = TagRecord> {
        self.tags.into_iter()
    }
}

impl fmt::Debug for SessionRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionRecord")
            .field("tags", &self.tags.len())
            .finish_non_exhaustive()
    }
}

impl TagRecord {
    /// What `command` is to this tag (BRP-12, BRP-30, BRP-31).
    pub(super) fn arrival(&self, command: &Command) -> Result<Arrival, Violation> {
        let ahead = command
            .sequence
            .get()
            .wrapping_sub(self.sequence)
            .cast_signed();
        if ahead > 0 {
            return Ok(Arrival::New);
        }
        if ahead < 0 || self.sequence == 0 {
            return Err(Violation::OldSequence);
        }
        let is_same = self.operation == command.operation
            && self.flags == Self::lasting(command.flags())
            && self.lba == command.lba.get()
            && self.blocks == command.blocks.get();
        if is_same {
            Ok(Arrival::Replay)
        } else {
            Err(Violation::ReplayDiffers)
        }
    }

    /// The record of a new command.
    pub(super) fn begin(&mut self, command: &Command) {
        *self = Self {
            sequence: command.sequence.get(),
            operation: command.operation,
            progress: Progress::Partial,
            flags: Self::lasting(command.flags()),
            lba: command.lba.get(),
            blocks: command.blocks.get(),
            done: 0,
            status: Status::Success,
            detail: 0,
        };
    }

    /// The flags that say what a command does, not how its reply travels.
    fn lasting(flags: Flags) -> u16 {
        flags.0 & !Flags::INVALIDATE.0
    }
}

#[cfg(test)]
mod tests {
    use block::{Blocks, Extent, Lba};

    use super::*;
    use crate::wire::Operation;

    fn command(sequence: u32) -> Command {
        let extent = Extent::new(Lba(5), Blocks(8));
        let mut command = Command::new(Operation::Write, Flags::FUA, extent);
        command.sequence.set(sequence);
        command
    }

    /// BRP-12, BRP-30.
    #[test]
    fn a_higher_number_is_new_the_same_a_replay_and_a_lower_one_a_violation() {
        let mut record = TagRecord::default();
        assert_eq!(record.arrival(&command(0)), Err(Violation::OldSequence));
        assert_eq!(record.arrival(&command(7)), Ok(Arrival::New));
        record.begin(&command(7));
        assert_eq!(record.arrival(&command(7)), Ok(Arrival::Replay));
        assert_eq!(record.arrival(&command(6)), Err(Violation::OldSequence));
        assert_eq!(record.arrival(&command(9)), Ok(Arrival::New));
        record.begin(&command(u32::MAX));
        assert_eq!(
            record.arrival(&command(2)),
            Ok(Arrival::New),
            "numbers wrap"
        );
    }

    /// BRP-31.
    #[test]
    fn a_replay_is_the_same_command() {
        let mut record = TagRecord::default();
        record.begin(&command(7));
        let changes: [&dyn Fn(&mut Command); 4] = [
            &|command| command.lba.set(6),
            &|command| command.blocks.set(9),
            &|command| command.operation = Operation::Discard as u8,
            &|command| command.flags.set(0),
        ];
        for change in changes {
            let mut other = command(7);
            change(&mut other);
            assert_eq!(record.arrival(&other), Err(Violation::ReplayDiffers));
        }
        let mut other = command(7);
        other.flags.set(Flags::FUA.0 | Flags::INVALIDATE.0);
        other.data_bytes.set(9);
        assert_eq!(
            record.arrival(&other),
            Ok(Arrival::Replay),
            "its data may come another way"
        );
    }
}
