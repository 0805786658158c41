//! Random commands, in any interleaving, and what must hold after each step.

use std::collections::BTreeMap;
use std::sync::Arc;

use block::Unmap;

use super::model::{Cell, Disk};
use super::*;
use crate::backing::{BackingOp, Request, RequestId};

/// A step: what, and three numbers that say which.
#[derive(Clone, Copy, Debug)]
pub(super) struct Action(u8, u8, u8, u8);

impl Arbitrary for Action {
    type Parameters = ();
    type Strategy = BoxedStrategy<Self>;

    fn arbitrary_with((): ()) -> Self::Strategy {
        any::<(u8, u8, u8, u8)>()
            .prop_map(|(what, a, b, c)| Self(what, a, b, c))
            .boxed()
    }
}

/// A command of the play.
#[derive(Debug)]
struct Command {
    data_use: DataUse,
    persistence: Persistence,
    extents: Vec<Extent>,
    stage: Stage,
    /// Whether the window was in write-back mode when it settled.
    is_written_back: bool,
    /// The versions that it has made.
    made: Vec<(usize, u64)>,
    /// For a flush: the version of each sector that it has to make stable.
    required: Vec<u64>,
    /// How many failures of reads, flushes and erasures there had been when it was admitted.
    failures: Failures,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Filling,
    Granted,
    /// So many operations of it are executed.
    Executed,
    Settling,
}

/// How many failures there have been.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Failures {
    reads: u32,
    writes: u32,
    flushes: u32,
    erasures: u32,
}

pub(super) struct Play {
    window: Arc<Window>,
    disk: Arc<Disk>,
    reports: Arc<Reports>,
    commands: BTreeMap<u32, Command>,
    next_slot: u32,
    version: u64,
    failures: Failures,
    /// For each failed part of a write: the other parts of that write that are in flight.
    failing: Vec<Vec<RequestId>>,
    /// If the window is a cache.
    cache: Option<CacheOptions>,
}

impl Play {
    pub(super) fn new(frames_max: u32, cache: Option<CacheOptions>) -> Self {
        let (window, disk, reports) = window_with(frames_max, 1 << 20, cache);
        Self {
            cache,
            window,
            disk,
            reports,
            commands: BTreeMap::new(),
            next_slot: 0,
            version: 0,
            failures: Failures::default(),
            failing: Vec::new(),
        }
    }

    pub(super) fn act(&mut self, action: Action) {
        let Action(what, a, b, c) = action;
        match what % 9 {
            0 | 1 => self.admit(a, b, c),
            8 => self.change_cache(a, b, c),
            2..=4 => self.complete(a, b),
            5 | 6 => self.go_on(a, b),
            // Aborts are rarer than anything else.
            _ if b < 64 => self.abort(a),
            _ => self.go_on(a, c),
        }
        self.take_reports();
        self.check_progress();
        self.disk.sectors().check_crash();
    }

    /// Another mode or size, a round of background writes, or nothing if the window is no cache.
    fn change_cache(&mut self, a: u8, b: u8, c: u8) {
        let Some(cache) = &mut self.cache else {
            return;
        };
        if a < 200 {
            self.clean(usize::from(b % 4));
            return;
        }
        cache.mode = match b % 4 {
            0 => CacheMode::WriteThrough,
            1 => CacheMode::WriteAround,
            _ => CacheMode::WriteBack,
        };
        cache.kept_bytes = options(u64::from(c % 4) + 1, cache.mode).kept_bytes;
        cache.bypass_bytes = if c < 64 { 3 * SECTOR as u64 } else { 0 };
        self.window
            .set_cache(*cache)
            .expect("the budget is large enough");
    }

    fn is_written_back(&self) -> bool {
        self.cache
            .is_some_and(|cache| cache.mode == CacheMode::WriteBack)
    }

    /// Everything ends: all commands go on, and the backing answers, until nothing is left.
    pub(super) fn finish(mut self) {
        while !self.commands.is_empty() {
            while !self.disk.requests().is_empty() {
                self.complete(0, 255);
                self.take_reports();
                self.check_progress();
            }
            for at in 0..self.commands.len() {
                self.go_on(at as u8, 0);
            }
            self.take_reports();
        }
        self.clean_all();
        let kept = self.cache.map_or(0, |cache| {
            (cache.kept_bytes as usize / SECTOR) >> FRAME_SHIFT
        });
        let (frames, leases) = self.window.in_use();
        assert!(frames <= kept && leases == 0, "everything is free again");
        self.check_contents();
        let sectors = self.disk.sectors();
        for (stored, current) in sectors.stored.iter().zip(&sectors.current) {
            assert_eq!(
                stored.bytes(),
                current.bytes(),
                "the device holds everything"
            );
        }
    }

    /// Starts background writes. If there is something to write, the device was notified before,
    /// except while commands hold what is dirty.
    fn clean(&mut self, frames: usize) {
        let is_idle = self.commands.is_empty() && self.disk.requests().is_empty();
        let has_dirty = self.window.clean(usize::MAX, frames);
        let was_awake = std::mem::replace(&mut self.disk.sectors().is_cleaner_awake, has_dirty);
        assert!(was_awake || !has_dirty || !is_idle, "the cleaner sleeps");
    }

    fn clean_all(&mut self) {
        loop {
            self.clean(usize::MAX);
            if self.disk.requests().is_empty() {
                return;
            }
            self.complete(0, 255);
        }
    }

    /// What the window shows is what commands made, and the device holds the same.
    fn check_contents(&mut self) {
        for lba in 0..SECTORS {
            let slot = self.next_slot;
            self.next_slot += 1;
            let extents = [extent(lba, 1)];
            let admitted = admit(&self.window, slot, DataUse::Read, &extents);
            assert!(admitted == LATER || self.cache.is_some() && admitted == NOW);
            while !self.disk.requests().is_empty() {
                self.complete(0, 255);
            }
            let cell = self.disk.sectors().current[lba as usize];
            assert_eq!(read(&self.window, lba, 1), Ok(cell.bytes().to_vec()));
            self.window.release(ticket(slot));
        }
    }

    fn admit(&mut self, a: u8, b: u8, c: u8) {
        let lba = u64::from(b) % SECTORS;
        let blocks = (u64::from(c) % 7 + 1).min(SECTORS - lba);
        let first = extent(lba, blocks);
        let (data_use, extents) = match a % 8 {
            0 | 1 => (DataUse::Read, vec![first]),
            2 | 3 => (DataUse::Overwrite, vec![first]),
            4 => (DataUse::Modify, vec![first]),
            5 => {
                let from = u64::from(a / 8) % (SECTORS - blocks + 1);
                (DataUse::Copy, vec![first, extent(from, blocks)])
            }
            6 => (DataUse::Erase, vec![first]),
            _ => (DataUse::Flush, vec![]),
        };
        let persistence = if c >= 192 {
            Persistence::Durable
        } else {
            Persistence::Volatile
        };
        let slot = self.next_slot;
        self.next_slot += 1;
        let stage = match admit_as(&self.window, slot, data_use, &extents, persistence) {
            NOW => Stage::Granted,
            LATER => Stage::Filling,
            Admission::Fail(Status::Busy | Status::Invalid, None) => return,
            other => panic!("{other:?} is no answer of a window"),
        };
        let command = Command {
            data_use,
            persistence,
            extents,
            stage,
            is_written_back: false,
            made: Vec::new(),
            required: Vec::new(),
            failures: self.ended_failures(),
        };
        self.commands.insert(slot, command);
    }

    /// The failures that no command meets from now on. A write fails as a whole only when its last
    /// part has ended, so one of its parts may have failed before.
    fn ended_failures(&mut self) -> Failures {
        let requests = self.disk.requests();
        let is_in_flight = |id: &RequestId| requests.iter().any(|request| request.id == *id);
        self.failing.retain(|parts| parts.iter().any(is_in_flight));
        Failures {
            writes: self.failures.writes - self.failing.len() as u32,
            ..self.failures
        }
    }

    fn complete(&mut self, a: u8, b: u8) {
        let requests = self.disk.requests();
        if requests.is_empty() {
            return;
        }
        let at = usize::from(a) % requests.len();
        let error = match b {
            0..12 => Some(BackingError::Medium),
            12..20 => Some(BackingError::NoSpace),
            _ => None,
        };
        if error.is_some() {
            let count = match requests[at].op {
                BackingOp::Read => &mut self.failures.reads,
                BackingOp::Write(_) => &mut self.failures.writes,
                BackingOp::Flush => &mut self.failures.flushes,
                BackingOp::Discard | BackingOp::WriteZeroes(_) => &mut self.failures.erasures,
            };
            *count += 1;
        }
        if error.is_some() && matches!(requests[at].op, BackingOp::Write(_)) {
            self.failing.push(other_parts(&requests, at));
        }
        self.disk.complete(&self.window, at, error);
    }

    fn abort(&mut self, a: u8) {
        if let Some(slot) = self.pick(a) {
            self.commands.remove(&slot);
            self.window.release(ticket(slot));
        }
    }

    fn pick(&self, a: u8) -> Option<u32> {
        let at = usize::from(a) % self.commands.len().max(1);
        self.commands.keys().nth(at).copied()
    }

    /// The next step of a command that waits for nothing.
    fn go_on(&mut self, a: u8, b: u8) {
        let Some(slot) = self.pick(a) else {
            return;
        };
        let mut command = self.commands.remove(&slot).expect("it was picked");
        match command.stage {
            Stage::Filling | Stage::Settling => {
                self.commands.insert(slot, command);
            }
            Stage::Granted => {
                if self.execute(&mut command, b) {
                    command.stage = Stage::Executed;
                    self.commands.insert(slot, command);
                } else {
                    self.window.release(ticket(slot));
                }
            }
            Stage::Executed => match self.settle(slot, &mut command) {
                Ok(Settled::Later) => {
                    command.stage = Stage::Settling;
                    self.commands.insert(slot, command);
                }
                settled => {
                    if settled.is_ok() && self.is_written_back() {
                        let mut sectors = self.disk.sectors();
                        for &(sector, version) in &command.made {
                            sectors.acknowledged[sector] =
                                version.max(sectors.acknowledged[sector]);
                        }
                    }
                    self.check_settled(&command, settled.map(drop));
                    self.window.release(ticket(slot));
                }
            },
        }
    }

    fn settle(&mut self, slot: u32, command: &mut Command) -> Result<Settled, Status> {
        command.is_written_back = self.is_written_back();
        if command.data_use == DataUse::Read {
            return Ok(Settled::Done);
        }
        if command.data_use == DataUse::Flush {
            let sectors = self.disk.sectors();
            command.required = sectors.current.iter().map(|cell| cell.version).collect();
        }
        self.window.settle(ticket(slot))
    }

    /// Whether the command was executed.
    fn execute(&mut self, command: &mut Command, b: u8) -> bool {
        let first = command.extents.first().copied();
        let result = match command.data_use {
            DataUse::Read => self.read(first.expect("it has blocks")),
            DataUse::Overwrite if b < 32 => self.erase(command, first.expect("it has blocks"), b),
            DataUse::Overwrite => self.write(command, first.expect("it has blocks")),
            DataUse::Modify => self.compare_and_write(command, first.expect("blocks"), b),
            DataUse::Copy => self.copy(command),
            DataUse::Erase => self.erase(command, first.expect("it has blocks"), b),
            DataUse::Flush | DataUse::Verify => self.window.execute(Op::Flush),
        };
        match result {
            Ok(()) => true,
            Err(Status::Miscompare { .. }) => false,
            Err(Status::Busy) => {
                // A write fails as a whole only when its last part has ended, so the failure of a
                // part may be older than the command.
                assert!(
                    self.failures.writes + self.failures.erasures > 0,
                    "a command with its lease is executed unless a failure took its blocks away"
                );
                false
            }
            Err(other) => panic!("{other:?} while executing {command:?}"),
        }
    }

    fn expected(&self, extent: Extent) -> Vec<u8> {
        let sectors = self.disk.sectors();
        let cells = &sectors.current[range(extent)];
        cells.iter().flat_map(|cell| cell.bytes()).collect()
    }

    fn read(&self, extent: Extent) -> Result<(), Status> {
        let bytes = read(&self.window, extent.lba.0, extent.blocks.0)?;
        assert!(bytes == self.expected(extent), "a read of {extent:?}");
        Ok(())
    }

    /// The sectors of a command get a new version; returns the bytes of that.
    fn make(&mut self, command: &mut Command, extent: Extent, is_written: bool) -> Vec<u8> {
        self.version += 1;
        let cell = Cell {
            version: self.version,
            is_written,
        };
        let mut sectors = self.disk.sectors();
        for sector in range(extent) {
            sectors.current[sector] = cell;
            if !is_written {
                sectors.erased[sector] = cell.version;
            }
            command.made.push((sector, cell.version));
        }
        cell.bytes().repeat(extent.blocks.0 as usize)
    }

    fn write(&mut self, command: &mut Command, extent: Extent) -> Result<(), Status> {
        let data = self.make(command, extent, true);
        let data = &data;
        self.window.execute(Op::Write { extent, data })
    }

    fn compare_and_write(
        &mut self,
        command: &mut Command,
        extent: Extent,
        b: u8,
    ) -> Result<(), Status> {
        let mut compare = self.expected(extent);
        let is_same = !b.is_multiple_of(4);
        if !is_same {
            compare[usize::from(b)] ^= 1;
            let wrong = self.window.execute(Op::CompareAndWrite {
                extent,
                compare: &compare,
                write: &compare,
            });
            if wrong != Err(Status::Busy) {
                let offset_bytes = u64::from(b);
                assert_eq!(wrong, Err(Status::Miscompare { offset_bytes }));
            }
            return wrong;
        }
        // Whether a failure has taken the blocks away is known only after the attempt.
        self.window.execute(Op::Compare {
            extent,
            data: &compare,
        })?;
        let write = self.make(command, extent, true);
        self.window.execute(Op::CompareAndWrite {
            extent,
            compare: &compare,
            write: &write,
        })
    }

    /// A copy gives sectors the contents of others, which have the version of that write. To keep
    /// versions apart, the model checks the copied bytes and then overwrites them.
    fn copy(&mut self, command: &mut Command) -> Result<(), Status> {
        let (to, from) = (command.extents[0], command.extents[1]);
        let expected = self.expected(from);
        read(&self.window, from.lba.0, from.blocks.0)?;
        self.window.execute(Op::Copy { from, to: to.lba })?;
        let copied = read(&self.window, to.lba.0, to.blocks.0).expect("it was just written");
        assert!(copied == expected, "a copy of {from:?} to {to:?}");
        self.write(command, to)
    }

    fn erase(&mut self, command: &mut Command, extent: Extent, b: u8) -> Result<(), Status> {
        self.make(command, extent, false);
        match b % 3 {
            0 => self.window.execute(Op::Discard { extent }),
            1 => self.window.execute(Op::WriteZeroes {
                extent,
                unmap: Unmap::Allowed,
            }),
            _ => self.window.execute(Op::WriteZeroes {
                extent,
                unmap: Unmap::Forbidden,
            }),
        }
    }

    fn take_reports(&mut self) {
        for Completion { ticket, result } in self.reports.take() {
            let Some(mut command) = self.commands.remove(&ticket.slot) else {
                continue;
            };
            match (command.stage, result) {
                (Stage::Filling, Ok(())) => {
                    command.stage = Stage::Granted;
                    self.commands.insert(ticket.slot, command);
                }
                (Stage::Filling, Err(status)) => {
                    let (was, now) = (command.failures, self.failures);
                    let is_due = was.reads < now.reads
                        || was.flushes < now.flushes
                        || self.cache.is_some() && was.writes < now.writes;
                    assert!(is_due, "{status:?} for {command:?}");
                    self.window.release(ticket);
                }
                (Stage::Settling, result) => {
                    self.check_settled(&command, result);
                    self.window.release(ticket);
                }
                (stage, _) => panic!("a report in stage {stage:?}"),
            }
        }
    }

    fn check_settled(&self, command: &Command, result: Result<(), Status>) {
        let mut sectors = self.disk.sectors();
        let (was, now) = (command.failures, self.failures);
        let is_durable = command.persistence == Persistence::Durable;
        if result.is_err() {
            // If another command overwrote the data while this one was outstanding, and that write
            // was lost, this command reports the error, too.
            let mut made = command.made.iter();
            let lost = made.any(|made| {
                sectors.is_lost_since(made.0, made.1) || made.1 <= sectors.unwritten[made.0]
            });
            let is_flushed = is_durable || command.data_use == DataUse::Flush;
            let flushed = is_flushed
                && (was.flushes < now.flushes || self.cache.is_some() && was.writes < now.writes);
            assert!(
                lost || flushed || was.erasures < now.erasures,
                "{result:?} for {command:?}"
            );
            return;
        }
        let is_stored = is_durable || !command.is_written_back;
        for &(sector, version) in command.made.iter().filter(|_| is_stored) {
            let held = if is_durable {
                sectors.stable[sector]
            } else {
                sectors.stored[sector]
            };
            assert!(held.version >= version, "{command:?} settled too early");
            sectors.promise(sector, version, is_durable);
        }
        for (sector, &version) in command.required.iter().enumerate() {
            assert!(
                sectors.stable[sector].version >= version || sectors.is_lost(sector, version),
                "sector {sector} is not stable after {command:?}"
            );
            sectors.promise(sector, version, true);
        }
    }

    /// A command waits only while the backing has something to do.
    fn check_progress(&self) {
        if !self.disk.requests().is_empty() {
            return;
        }
        let waits = |command: &&Command| matches!(command.stage, Stage::Filling | Stage::Settling);
        let waiting: Vec<_> = self.commands.values().filter(waits).collect();
        assert!(
            waiting.is_empty(),
            "nothing can end the wait of {waiting:?}"
        );
    }
}

/// The parts in flight of the same write of a frame as this request.
fn other_parts(requests: &[Request], at: usize) -> Vec<RequestId> {
    let frame = |request: &Request| request.range.offset / ((SECTOR as u64) << FRAME_SHIFT);
    let is_other = |request: &&Request| {
        matches!(request.op, BackingOp::Write(_))
            && request.id != requests[at].id
            && frame(request) == frame(&requests[at])
    };
    requests
        .iter()
        .filter(is_other)
        .map(|request| request.id)
        .collect()
}

fn range(extent: Extent) -> std::ops::Range<usize> {
    let start = extent.lba.0 as usize;
    start..start + extent.blocks.0 as usize
}
