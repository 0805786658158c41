//! A SCSI command between its SRP_CMD and its SRP_RSP.

use std::time::Instant;

use block::{BlockSize, DataUse, Extent, OpKind, Status};
use scsi::medium::Transfer;
use scsi::{
    Asc, CopyWork, Lun, Medium, Response, SanitizeWork, ScsiStatus, Sense, SenseKey, View,
    parse_lun,
};
use session::{RemoteBuffer, SourceId};

use crate::backend::Backend;
use crate::wire::{Command, Direction, Tag, attribute};

/// What a task does with its data.
#[derive(Clone, Debug)]
pub(super) enum Work {
    /// Data-in from the volume.
    Read(Extent),
    /// Data-out into the volume, block by block.
    Write(Extent),
    /// Data-out gathered, then executed at once.
    Gathered(Medium),
    /// SANITIZE.
    Sanitize,
    /// Data-out gathered for the device (a parameter list).
    Parameters,
    /// Data-in that are in the task itself.
    Data(Vec<u8>),
    /// No data.
    None,
}

impl Work {
    /// Which way its data move.
    pub(super) const fn direction(&self) -> Direction {
        match self {
            Self::Write(_) | Self::Gathered(_) | Self::Sanitize | Self::Parameters => {
                Direction::Out
            }
            Self::Read(_) | Self::Data(_) | Self::None => Direction::In,
        }
    }
}

/// The execution of a command.
pub(super) enum Execution {
    /// By its volume.
    Medium(scsi::Execution),
    /// EXTENDED COPY.
    Copy(Box<CopyWork>),
    /// SANITIZE that is about to start.
    Sanitize(Box<SanitizeWork>),
}

/// The progress of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// Its descriptors are not all there: the rest of its table is read from the initiator.
    Arriving,
    /// It may not start before others have ended (ORDERED).
    Waiting,
    /// Its volume loads the blocks into memory; no data-out are read.
    Filling,
    /// Data-out are awaited.
    Receiving,
    /// It is executed, in slices.
    Working,
    /// Executed; its volume makes the effects safe.
    Settling,
    /// Executed; its completion is held back (delay, rate limit, reservations).
    Held,
    /// Data-in and response are to be sent.
    Sending,
    /// It was aborted, and RDMA READs of its data are outstanding.
    Aborted,
}

impl Progress {
    /// The states that may follow.
    ///
    /// ```text
    ///  Arriving ──► Waiting ──► Sending ──► Filling ◄──► Receiving
    ///
    ///  Receiving ──► Working ──► Settling ──► Sending
    ///      │            │                     │ ▲ ▲│
    ///      └────────────┴───────► Held ◄──────┘ │ └┘
    ///                               └───────────┘
    ///  Waiting, Filling and Working may be skipped. A task that moves no data-out stays in Sending.
    ///  Every state may be followed by Sending and by Aborted at once.
    /// ```
    const fn next(self) -> &'static [Self] {
        match self {
            Self::Arriving => &[Self::Waiting, Self::Sending, Self::Aborted],
            Self::Waiting | Self::Settling | Self::Held => &[Self::Sending, Self::Aborted],
            Self::Filling => &[Self::Receiving, Self::Sending, Self::Aborted],
            Self::Receiving => &[
                Self::Filling,
                Self::Working,
                Self::Settling,
                Self::Held,
                Self::Sending,
                Self::Aborted,
            ],
            Self::Working => &[Self::Settling, Self::Held, Self::Sending, Self::Aborted],
            Self::Sending => &[
                Self::Filling,
                Self::Receiving,
                Self::Held,
                Self::Sending,
                Self::Aborted,
            ],
            Self::Aborted => &[],
        }
    }
}

/// DATA PHASE ERROR (4Bh/00h): the command names no memory for its data.
pub(super) const DATA_PHASE_ERROR: Asc = Asc(0x4B00);

/// A SCSI command.
pub(super) struct Task {
    pub(super) tag: Tag,
    pub(super) lun: Lun,
    pub(super) cdb: [u8; 16],
    pub(super) is_ordered: bool,
    pub(super) is_head: bool,
    pub(super) work: Work,
    /// The kind of operation that has failed, whose work is given up.
    failed: Option<OpKind>,
    progress: Progress,
    /// Tells the volume from others that were behind its LUN.
    pub(super) source: SourceId,
    pub(super) block_size: BlockSize,
    pub(super) started: Instant,
    /// Which way its data may move; `None` if it has no buffer.
    pub(super) buffer: Option<Direction>,
    /// Length of its buffer, bytes.
    pub(super) expected_len: u64,
    /// Which way the CDB moves data, and how many bytes.
    pub(super) wanted: (Direction, u64),
    /// Bytes that are transferred.
    pub(super) len: u64,
    /// Data-out received, or data-in sent, bytes.
    pub(super) moved: u64,
    /// Data-out that arrived or were requested, bytes.
    pub(super) requested: u64,
    /// RDMA READs whose data have not arrived.
    pub(super) reads: u16,
    /// What is left of its descriptor table to be requested, and to arrive, in bytes.
    pub(super) table: Option<(RemoteBuffer, u32)>,
    /// The part of a block that has arrived, or all gathered data.
    pub(super) gathered: Vec<u8>,
    /// The state of its execution, while it is executed.
    pub(super) execution: Option<Execution>,
    pub(super) response: Response,
    /// Bytes of data and of its table that it may hold.
    pub(super) holds_bytes: u64,
    /// Filters of the volume hold the completion back until this instant.
    pub(super) not_before: Option<Instant>,
    /// The number of the reservations that have to be saved before the command is answered.
    pub(super) unsaved: Option<u64>,
    /// The number of what its reservation command aborted on other channels, which has to be over
    /// before the command is answered.
    pub(super) fence: Option<u64>,
    /// It is in the queue of tasks that have something to post.
    pub(super) queued: bool,
    /// Tells the tasks of a slot apart that follow one another.
    pub(super) generation: u16,
    /// Counts the commands of the channel, in the order of their arrival.
    pub(super) number: u64,
}

/// The memory that a channel is charged for its tasks depends on this.
const _: () = assert!(size_of::<Task>() <= 400);

impl Task {
    /// The task of a command, before anything is known of its logical unit.
    pub(super) fn new(now: Instant, command: &Command) -> Self {
        let attribute = command.task_attribute & 0x07;
        Self {
            tag: command.tag,
            lun: parse_lun(command.lun).unwrap_or(Lun::MAX),
            cdb: command.cdb,
            is_ordered: attribute == attribute::ORDERED,
            is_head: attribute == attribute::HEAD,
            work: Work::None,
            failed: None,
            progress: Progress::Arriving,
            source: SourceId(0),
            block_size: BlockSize::B512,
            started: now,
            buffer: None,
            expected_len: 0,
            wanted: (Direction::In, 0),
            len: 0,
            moved: 0,
            requested: 0,
            reads: 0,
            table: None,
            gathered: Vec::new(),
            execution: None,
            response: Response::good(),
            holds_bytes: 0,
            not_before: None,
            unsaved: None,
            fence: None,
            queued: false,
            generation: 0,
            number: 0,
        }
    }

    /// The nexus's view of its logical unit, unless another volume is behind the LUN by now.
    pub(super) fn view<'a, B: Backend>(&self, backend: &'a mut B) -> Option<&'a View> {
        let (view, source) = backend.view(self.lun)?;
        (source == self.source).then_some(view)
    }

    /// What the command transfers, and how much of that its buffer takes.
    pub(super) fn set_work(&mut self, work: Work, wanted_len: u64) {
        let direction = work.direction();
        let room = if self.buffer == Some(direction) {
            self.expected_len
        } else {
            0
        };
        self.wanted = (direction, wanted_len);
        self.len = wanted_len.min(room);
        self.work = work;
    }

    /// Its transfer of `extent`, as far as that has come.
    pub(super) fn transfer(&self, extent: Extent) -> Transfer {
        Transfer {
            extent,
            block_size: self.block_size,
            moved: self.moved,
        }
    }

    /// The kind of operation that the command is counted as when it has ended; `None` if it did not
    /// get as far as the medium.
    pub(super) fn counted_kind(&self) -> Option<OpKind> {
        self.failed.or_else(|| self.op_kind())
    }

    /// The kind of operation for filters; `None` for commands that do not access the medium.
    pub(super) fn op_kind(&self) -> Option<OpKind> {
        match self.work {
            Work::Read(_) => Some(OpKind::Read),
            Work::Write(_) => Some(OpKind::Write),
            Work::Sanitize => Some(OpKind::Discard),
            Work::Gathered(command) => Some(command.op_kind()),
            Work::Parameters | Work::Data(_) | Work::None => None,
        }
    }

    /// What the command does with the contents of its blocks.
    pub(super) fn data_use(&self) -> DataUse {
        match self.work {
            Work::Read(_) => DataUse::Read,
            Work::Write(_) => DataUse::Overwrite,
            Work::Sanitize => DataUse::Erase,
            Work::Gathered(command) => command.data_use(),
            Work::Parameters | Work::Data(_) | Work::None => DataUse::Flush,
        }
    }

    /// Ends the task with CHECK CONDITION.
    pub(super) fn fail(&mut self, key: SenseKey, asc: Asc) {
        self.end_with(Response::check(Sense::new(key, asc)));
    }

    /// Ends the task with the error of its volume.
    pub(super) fn fail_of_volume(&mut self, status: Status) {
        self.end_with(Response::check(Sense::of_volume(status)));
    }

    /// Ends the task with TASK SET FULL, since other commands use the room for data and tables.
    pub(super) fn fail_for_room(&mut self) {
        (self.len, self.holds_bytes, self.table) = (0, 0, None);
        self.end_with(status(ScsiStatus::TaskSetFull));
    }

    /// Ends the task: data that still arrive for it are discarded.
    pub(super) fn end_with(&mut self, response: Response) {
        self.enter(Progress::Sending);
        self.give_up_work(&response);
        self.execution = None;
        self.gathered = Vec::new();
        self.response = response;
    }

    /// Ends the sending of data-in with an error.
    pub(super) fn fail_data_in(&mut self, sense: Sense) {
        let response = Response::check(sense);
        self.give_up_work(&response);
        self.response = response;
    }

    fn give_up_work(&mut self, response: &Response) {
        if response.status == ScsiStatus::CheckCondition {
            self.failed = self.counted_kind();
        }
        self.work = Work::None;
    }

    /// Whether it has data-in that were not sent.
    pub(super) fn has_data_in(&self) -> bool {
        matches!(self.work, Work::Read(_) | Work::Data(_)) && self.moved < self.len
    }

    pub(super) const fn progress(&self) -> Progress {
        self.progress
    }

    /// Changes to `progress`. Tests, fuzz targets and simulations check that it may follow.
    pub(super) fn enter(&mut self, progress: Progress) {
        debug_assert!(
            self.progress.next().contains(&progress),
            "{progress:?} does not follow {:?}",
            self.progress
        );
        self.progress = progress;
    }

    /// The EXTENDED COPY that it executes, which may wait for its volumes.
    pub(super) fn copy(&self) -> Option<&CopyWork> {
        match &self.execution {
            Some(Execution::Copy(copy)) if self.progress == Progress::Working => Some(copy),
            _ => None,
        }
    }

    /// Whether its answer waits for what it did to reservations.
    pub(super) fn awaits_reservation(&self) -> bool {
        self.unsaved.is_some() || self.fence.is_some()
    }

    /// Whether it waits for its volume, and nothing else can be done before.
    pub(super) fn waits_for_volume(&self) -> bool {
        matches!(self.progress, Progress::Filling | Progress::Settling)
    }
}

/// A response without sense data.
pub(super) fn status(status: ScsiStatus) -> Response {
    Response {
        status,
        sense: None,
        data_in: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_that_of_the_diagram() {
        use Progress::{
            Aborted, Arriving, Filling, Held, Receiving, Sending, Settling, Waiting, Working,
        };
        let all = [
            Arriving, Waiting, Filling, Receiving, Working, Settling, Held, Sending, Aborted,
        ];
        // A row for each, in this order: whether each other one may follow.
        let table = [
            ".W.....SA",
            ".......SA",
            "...R...SA",
            "..F.WsHSA",
            ".....sHSA",
            ".......SA",
            ".......SA",
            "..FR..HSA",
            ".........",
        ];
        for (progress, row) in all.into_iter().zip(table) {
            for (next, mark) in all.into_iter().zip(row.chars()) {
                let may_follow = progress.next().contains(&next);
                assert_eq!(may_follow, mark != '.', "{progress:?} to {next:?}");
            }
        }
    }
}
