//! A SCSI command between its PDU and its response.

use std::time::Instant;

use block::{BlockSize, DataUse, Extent, OpKind, Status};
use scsi::medium::Transfer;
use scsi::{CopyWork, Lun, Medium, Response, SanitizeWork, ScsiStatus, Sense, SenseKey, View};
use session::{RemoteBuffer, SourceId};

use crate::backend::Backend;
use crate::params::OUTSTANDING_R2T_MAX;
use crate::window::order::{Attribute, WideCmdSn};
use crate::wire::command::ScsiCommand;
use crate::wire::parse_lun;

/// What a task does with its data.
#[derive(Clone, Debug)]
pub(crate) enum Work {
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

/// The progress of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// It may not start yet (order of CmdSN); unsolicited data-out are kept.
    Waiting,
    /// Its volume loads the blocks into memory; unsolicited data-out are kept, and no others are
    /// requested.
    Filling,
    /// Data-out are awaited.
    Receiving,
    /// It is executed, in slices.
    Working,
    /// Executed; its volume makes the effects safe.
    Settling,
    /// Executed; its completion is held back (delay, rate limit).
    Held,
    /// Data-in and response are to be sent.
    Sending,
    /// The last Data-In carried its status: there is no response.
    Answered,
}

impl Progress {
    /// The states that may follow. A task that has no slot yet starts in Sending, Receiving,
    /// Filling or Waiting.
    ///
    /// ```text
    ///  Filling ◄──► Receiving ──► Working ──► Settling ──► Sending ──► Answered
    ///                   │            │                     │ ▲ │ ▲
    ///                   │            │                     │ │ └─┘ it is executed or fails once more
    ///                   └────────────┴───────► Held ◄──────┘ │
    ///                                            └───────────┘
    ///  Receiving may skip Working. Every state before Sending may be followed by it at once.
    ///  A new task replaces one that is Waiting.
    /// ```
    const fn next(self) -> &'static [Self] {
        match self {
            Self::Waiting | Self::Settling | Self::Held => &[Self::Sending],
            Self::Filling => &[Self::Receiving, Self::Sending],
            Self::Receiving => &[
                Self::Filling,
                Self::Working,
                Self::Settling,
                Self::Held,
                Self::Sending,
            ],
            Self::Working => &[Self::Settling, Self::Held, Self::Sending],
            Self::Sending => &[Self::Held, Self::Sending, Self::Answered],
            Self::Answered => &[],
        }
    }
}

/// The buffers of the initiator that a command names, over RDMA.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Advertised {
    /// The buffer for data-in.
    pub(crate) read: Option<RemoteBuffer>,
    /// The buffer that holds the data-out that are not sent unsolicited.
    pub(crate) write: Option<RemoteBuffer>,
    /// The byte of the data-out that `write` begins with, if it holds only those that are
    /// solicited. Otherwise it holds all of them.
    pub(crate) write_base: Option<u32>,
}

/// The most bursts that one task has requested at a time: R2Ts, or RDMA READs. Eight reads of 64
/// KiB keep a link of 25 Gb/s busy for 160 us.
pub(crate) const BURSTS_MAX: usize = OUTSTANDING_R2T_MAX as usize;

/// The ends of requested bursts of data-out, oldest first, as offsets. They are in the task itself,
/// so that a request for data allocates nothing.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Bursts {
    ends: [u32; BURSTS_MAX],
    first: u8,
    len: u8,
}

impl Bursts {
    pub(crate) fn len(&self) -> usize {
        self.len.into()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The end of the oldest.
    pub(crate) fn front(&self) -> Option<u64> {
        let end = self.ends[usize::from(self.first)];
        (!self.is_empty()).then_some(end.into())
    }

    /// Adds one that ends at `end`. Panics if there are [`BURSTS_MAX`].
    pub(crate) fn push_back(&mut self, end: u64) {
        assert!(self.len() < BURSTS_MAX, "the caller has checked for room");
        let at = (usize::from(self.first) + self.len()) % BURSTS_MAX;
        // Expected Data Transfer Length has 32 bits.
        self.ends[at] = end as u32;
        self.len += 1;
    }

    /// Removes the oldest.
    pub(crate) fn pop_front(&mut self) -> Option<u64> {
        let end = self.front()?;
        self.first = (self.first + 1) % BURSTS_MAX as u8;
        self.len -= 1;
        Some(end)
    }
}

/// A SCSI command.
pub(crate) struct Task {
    pub(crate) itt: u32,
    pub(crate) lun: Lun,
    pub(crate) cmd_sn: u32,
    pub(crate) cdb: [u8; 16],
    pub(crate) work: Work,
    /// The kind of operation that has failed, whose work is given up.
    failed: Option<OpKind>,
    progress: Progress,
    pub(crate) source: SourceId,
    /// Data-in must be copied: they may not be sent from the memory of the volume.
    pub(crate) must_copy: bool,
    pub(crate) block_size: BlockSize,
    pub(crate) started: Instant,
    /// Expected Data Transfer Length.
    pub(crate) expected_len: u64,
    /// Bytes that the CDB transfers.
    pub(crate) wanted_len: u64,
    /// Bytes that are transferred: the smaller of both.
    pub(crate) len: u64,
    /// Data-out received, or data-in sent, bytes.
    pub(crate) moved: u64,
    /// Data-out requested by R2T or announced as unsolicited, bytes.
    pub(crate) solicited: u64,
    /// Unsolicited data may still arrive (F was not set).
    pub(crate) unsolicited_open: bool,
    /// R2Ts whose data have not all arrived.
    pub(crate) r2ts: Bursts,
    /// R2TSN or DataSN of the next PDU that is sent.
    pub(crate) next_sn: u32,
    /// DataSN of the next Data-Out of the current sequence.
    pub(crate) next_data_out_sn: u32,
    /// The part of a block that has arrived, or all gathered data.
    pub(crate) gathered: Vec<u8>,
    /// The state of its execution, while it is executed.
    pub(crate) execution: Option<Execution>,
    pub(crate) response: Response,
    pub(crate) advertised: Advertised,
    /// Bytes of data-out that may have to be gathered before they can be executed.
    pub(crate) gathers: u64,
    /// Filters of the volume hold the completion back until this instant.
    pub(crate) not_before: Option<Instant>,
    /// The number of the reservations that have to be saved before the command is answered.
    pub(crate) unsaved: Option<u64>,
    /// The number of what its reservation command aborted on other connections, which has to be
    /// over before the command is answered.
    pub(crate) fence: Option<u64>,
    /// How it is ordered among other commands, if it counts in the command window.
    pub(crate) windowed: Option<Attribute>,
    /// What is needed to start it later, if it may not start yet.
    pub(crate) early: Option<Box<EarlyCommand>>,
    /// It is in the queue of tasks that have something to send.
    pub(crate) queued: bool,
    /// Tells the tasks of a slot apart that follow one another.
    pub(crate) generation: u16,
}

/// The memory that a connection is charged for its tasks depends on this.
const _: () = assert!(size_of::<Task>() <= 460);

impl Task {
    /// The task of a command, before anything is known of its logical unit.
    pub(super) fn new(now: Instant, command: &ScsiCommand, windowed: Option<Attribute>) -> Self {
        Self {
            itt: command.itt.get(),
            lun: parse_lun(command.lun).unwrap_or(u16::MAX),
            cmd_sn: command.cmd_sn.get(),
            cdb: command.cdb,
            work: Work::None,
            failed: None,
            progress: Progress::Sending,
            source: SourceId(0),
            must_copy: true,
            block_size: BlockSize::B512,
            started: now,
            expected_len: u64::from(command.expected_len.get()),
            wanted_len: 0,
            len: 0,
            moved: 0,
            solicited: 0,
            unsolicited_open: false,
            r2ts: Bursts::default(),
            next_sn: 0,
            next_data_out_sn: 0,
            gathered: Vec::new(),
            gathers: 0,
            not_before: None,
            unsaved: None,
            fence: None,
            execution: None,
            response: Response::good(),
            advertised: Advertised::default(),
            windowed,
            early: None,
            queued: false,
            generation: 0,
        }
    }

    /// The session's view of its logical unit, unless another volume is behind the LUN by now.
    pub(crate) fn view<'a, B: Backend>(&self, backend: &'a mut B) -> Option<&'a View> {
        let (view, source) = backend.view(self.lun)?;
        (source == self.source).then_some(view)
    }

    /// The task of a command that may not start yet.
    pub(super) fn early(
        now: Instant,
        command: &ScsiCommand,
        cmd_sn: WideCmdSn,
        attribute: Attribute,
    ) -> Self {
        let early = EarlyCommand {
            cmd_sn,
            command: *command,
            is_whole: false,
            verdict: None,
        };
        Self {
            progress: Progress::Waiting,
            early: Some(Box::new(early)),
            ..Self::new(now, command, Some(attribute))
        }
    }

    /// The kind of operation that the command is counted as when it has ended; `None` if it did not
    /// get as far as the medium.
    pub(crate) fn counted_kind(&self) -> Option<OpKind> {
        self.failed.or_else(|| self.op_kind())
    }

    /// The kind of operation for filters and statistics; `None` for commands that do not access the
    /// medium.
    pub(crate) fn op_kind(&self) -> Option<OpKind> {
        match self.work {
            Work::Read(_) => Some(OpKind::Read),
            Work::Write(_) => Some(OpKind::Write),
            Work::Sanitize => Some(OpKind::Discard),
            Work::Gathered(transfer) => Some(transfer.op_kind()),
            Work::Parameters | Work::Data(_) | Work::None => None,
        }
    }

    /// Its transfer of `extent`, as far as that has come.
    pub(crate) fn transfer(&self, extent: Extent) -> Transfer {
        Transfer {
            extent,
            block_size: self.block_size,
            moved: self.moved,
        }
    }

    /// What the command does with the contents of its blocks.
    pub(crate) fn data_use(&self) -> DataUse {
        match self.work {
            Work::Read(_) => DataUse::Read,
            Work::Write(_) => DataUse::Overwrite,
            Work::Sanitize => DataUse::Erase,
            Work::Gathered(transfer) => transfer.data_use(),
            Work::Parameters | Work::Data(_) | Work::None => DataUse::Flush,
        }
    }

    /// Ends the task with CHECK CONDITION. A command that may not start yet is answered when it
    /// may.
    pub(crate) fn fail(&mut self, key: SenseKey, asc: scsi::Asc) {
        let response = Response::check(Sense::new(key, asc));
        if let Some(early) = &mut self.early {
            early.verdict = Some(response);
            self.unsolicited_open = false;
            self.gathered.clear();
            self.len = self.moved;
            return;
        }
        self.end_with(response);
    }

    /// Ends the task with the error of its volume.
    pub(super) fn fail_of_volume(&mut self, status: Status) {
        self.end_with(Response::check(Sense::of_volume(status)));
    }

    /// Ends the task with TASK SET FULL, since other commands use the room for gathered data.
    pub(super) fn fail_for_room(&mut self) {
        let response = Response {
            status: ScsiStatus::TaskSetFull,
            sense: None,
            data_in: Vec::new(),
        };
        (self.len, self.gathers) = (0, 0);
        if let Some(early) = &mut self.early {
            early.verdict = Some(response);
            return;
        }
        self.end_with(response);
    }

    /// Ends the task: data that still arrive for it are discarded.
    pub(super) fn end_with(&mut self, response: Response) {
        self.enter(Progress::Sending);
        self.give_up_work(&response);
        self.gathered.clear();
        self.unsolicited_open = false;
        self.response = response;
    }

    /// Ends the sending of data-in with an error.
    pub(crate) fn fail_data_in(&mut self, sense: Sense) {
        let response = Response::check(sense);
        self.give_up_work(&response);
        self.response = response;
    }

    fn give_up_work(&mut self, response: &Response) {
        if response.status == scsi::ScsiStatus::CheckCondition {
            self.failed = self.counted_kind();
        }
        self.work = Work::None;
    }

    /// Whether it has data-in that were not sent.
    pub(crate) fn has_data_in(&self) -> bool {
        matches!(self.work, Work::Read(_) | Work::Data(_)) && self.moved < self.len
    }

    /// Whether it accepts data-out.
    pub(crate) fn takes_data_out(&self) -> bool {
        match self.progress {
            Progress::Receiving | Progress::Waiting => true,
            Progress::Filling => !matches!(self.work, Work::Read(_)),
            _ => false,
        }
    }

    pub(crate) const fn progress(&self) -> Progress {
        self.progress
    }

    /// Sets the state in which a new task starts that has no slot yet, if that is not Sending.
    pub(super) fn start_in(&mut self, progress: Progress) {
        debug_assert_eq!(self.progress, Progress::Sending, "it has not started");
        self.progress = progress;
    }

    /// Its volume loads its blocks: those of a new read, which has no slot yet, or those that
    /// data-out are for.
    pub(super) fn fill(&mut self) {
        match self.progress {
            Progress::Receiving => self.enter(Progress::Filling),
            _ => self.start_in(Progress::Filling),
        }
    }

    /// Notes that the first `len` bytes of data-out have come, or will come, without a request.
    pub(super) fn set_unsolicited(&mut self, len: u64) {
        self.solicited = len;
        if let Some(base) = &mut self.advertised.write_base {
            // Expected Data Transfer Length has 32 bits.
            *base = len as u32;
        }
    }

    /// Changes to `progress`. Tests, fuzz targets and simulations check that it may follow; in a
    /// release build that would cost each command a dozen instructions.
    pub(crate) fn enter(&mut self, progress: Progress) {
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
    pub(crate) fn waits_for_volume(&self) -> bool {
        matches!(self.progress, Progress::Filling | Progress::Settling)
    }
}

/// The execution of a command.
pub(crate) enum Execution {
    /// By its volume.
    Medium(scsi::Execution),
    /// EXTENDED COPY.
    Copy(Box<CopyWork>),
    /// SANITIZE that is about to start.
    Sanitize(Box<SanitizeWork>),
}

/// A command that may not start yet.
#[derive(Debug)]
pub(crate) struct EarlyCommand {
    pub(crate) cmd_sn: WideCmdSn,
    pub(crate) command: ScsiCommand,
    /// Its PDU is whole.
    pub(crate) is_whole: bool,
    /// It has failed before it was started.
    pub(crate) verdict: Option<Response>,
}

#[cfg(test)]
mod tests {
    use zerocopy::FromZeros;

    use super::*;

    #[test]
    fn the_table_is_that_of_the_diagram() {
        use Progress::{Answered, Filling, Held, Receiving, Sending, Settling, Waiting, Working};
        let all = [
            Waiting, Filling, Receiving, Working, Settling, Held, Sending, Answered,
        ];
        // A row for each, in this order: whether each other one may follow.
        let table = [
            "......S.", "..R...S.", ".F.WsHS.", "....sHS.", "......S.", "......S.", ".....HSA",
            "........",
        ];
        for (progress, row) in all.into_iter().zip(table) {
            for (next, mark) in all.into_iter().zip(row.chars()) {
                let may_follow = progress.next().contains(&next);
                assert_eq!(may_follow, mark != '.', "{progress:?} to {next:?}");
            }
        }
    }

    #[test]
    #[should_panic(expected = "Working does not follow Held")]
    fn an_illegal_transition_asserts() {
        let command = ScsiCommand::new_zeroed();
        let mut task = Task::new(Instant::now(), &command, None);
        task.start_in(Progress::Receiving);
        task.enter(Progress::Held);
        task.enter(Progress::Working);
    }

    #[test]
    fn bursts_are_a_queue_that_goes_round() {
        let mut bursts = Bursts::default();
        for round in 0..5 {
            for at in 0..BURSTS_MAX as u64 {
                bursts.push_back(round * 100 + at);
            }
            assert_eq!(bursts.len(), BURSTS_MAX);
            for at in 0..BURSTS_MAX as u64 {
                assert_eq!(bursts.front(), Some(round * 100 + at));
                assert_eq!(bursts.pop_front(), Some(round * 100 + at));
            }
            assert!(bursts.is_empty() && bursts.pop_front().is_none());
            bursts.push_back(1);
            bursts.pop_front();
        }
    }
}
