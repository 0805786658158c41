//! A backing in a vector whose requests end when a test says so, and what its sectors may hold.

use std::sync::{Mutex, MutexGuard};

use block::Persistence;

use super::SECTOR;
use crate::backing::{Backing, BackingClient, BackingError, BackingOp, Request};
use crate::window::Window;

/// The contents of a sector: which change of the whole play they come from, and whether that change
/// wrote its own number or zeros.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cell {
    pub(super) version: u64,
    pub(super) is_written: bool,
}

impl Cell {
    pub(super) fn bytes(self) -> [u8; SECTOR] {
        let mut bytes = [0; SECTOR];
        if self.is_written {
            for chunk in bytes.chunks_mut(8) {
                chunk.copy_from_slice(&self.version.to_le_bytes());
            }
        }
        bytes
    }
}

/// A device with a volatile cache.
#[derive(Debug)]
pub(super) struct Disk(Mutex<Sectors>);

#[derive(Debug)]
pub(super) struct Sectors {
    pub(super) pending: Vec<Pending>,
    /// What commands have made of each sector, in the order of execution.
    pub(super) current: Vec<Cell>,
    /// The last erasure of each sector.
    pub(super) erased: Vec<u64>,
    /// What the device holds, and what it holds after a power cut.
    pub(super) stored: Vec<Cell>,
    pub(super) stable: Vec<Cell>,
    /// Versions of each sector that failures have lost: above the first and up to the second.
    pub(super) lost: Vec<Vec<(u64, u64)>>,
    /// The last version of each sector whose write failed and that stays in the cache.
    pub(super) unwritten: Vec<u64>,
    /// The last version of each sector that a completed command has put into the cache.
    pub(super) acknowledged: Vec<u64>,
    /// The last version of each sector that completed commands guarantee to survive a kill of this
    /// process, and a power cut.
    promised: Vec<Promise>,
    /// Whether the window has said that there is something to clean.
    pub(super) is_cleaner_awake: bool,
}

/// Versions that have to survive.
#[derive(Clone, Copy, Debug, Default)]
struct Promise {
    kill: u64,
    power_cut: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Pending {
    pub(super) request: Request,
    /// The cells of its sectors when it was submitted; of a flush, all that the device held.
    cells: Vec<Cell>,
    erased: Vec<u64>,
}

impl Disk {
    pub(super) fn new(sectors: usize) -> Self {
        Self(Mutex::new(Sectors {
            pending: Vec::new(),
            current: vec![Cell::default(); sectors],
            erased: vec![0; sectors],
            stored: vec![Cell::default(); sectors],
            stable: vec![Cell::default(); sectors],
            lost: vec![Vec::new(); sectors],
            unwritten: vec![0; sectors],
            acknowledged: vec![0; sectors],
            promised: vec![Promise::default(); sectors],
            is_cleaner_awake: false,
        }))
    }

    pub(super) fn sectors(&self) -> MutexGuard<'_, Sectors> {
        self.0.lock().expect("no panic")
    }

    pub(super) fn requests(&self) -> Vec<Request> {
        let sectors = self.sectors();
        sectors
            .pending
            .iter()
            .map(|pending| pending.request)
            .collect()
    }

    /// Every sector holds this version, which is not that of a play.
    pub(super) fn fill(&self, version: u64) {
        self.sectors().stored.fill(Cell {
            version,
            is_written: true,
        });
    }

    /// Ends the request at a place of the list.
    pub(super) fn complete(&self, client: &Window, at: usize, error: Option<BackingError>) {
        let pending = self.sectors().pending.remove(at);
        let Request { id, op, range } = pending.request;
        let first = range.offset as usize / SECTOR;
        let run = first..first + range.len as usize / SECTOR;
        let mut bytes = vec![0; range.len as usize];
        match op {
            BackingOp::Read if error.is_none() => {
                let sectors = self.sectors();
                for (cell, to) in sectors.stored[run].iter().zip(bytes.chunks_mut(SECTOR)) {
                    to.copy_from_slice(&cell.bytes());
                }
            }
            BackingOp::Write(_) if error.is_some() => {
                client.done(id, error.map_or(Ok(&[]), Err));
                for (sector, cell) in run.zip(&pending.cells) {
                    let is_kept = client.is_unwritten(sector as u64);
                    self.sectors().fail_write(sector, *cell, is_kept);
                }
                return;
            }
            BackingOp::Write(persistence) => {
                client.fetch(id, 0, &mut bytes);
                let mut sectors = self.sectors();
                for (sector, (cell, from)) in
                    run.zip(pending.cells.iter().zip(bytes.chunks(SECTOR)))
                {
                    sectors.write(sector, *cell, from, persistence);
                }
                bytes.clear();
            }
            BackingOp::Discard | BackingOp::WriteZeroes(_) => {
                bytes.clear();
                for (sector, version) in run.zip(pending.erased) {
                    let is_kept = client.is_unwritten(sector as u64);
                    self.sectors()
                        .erase(sector, version, error.is_some(), is_kept);
                }
            }
            BackingOp::Flush if error.is_none() => {
                let mut sectors = self.sectors();
                for (stable, cell) in sectors.stable.iter_mut().zip(pending.cells) {
                    if cell.version > stable.version {
                        *stable = cell;
                    }
                }
            }
            BackingOp::Read | BackingOp::Flush => {}
        }
        client.done(id, error.map_or(Ok(&bytes), Err));
    }
}

impl Sectors {
    fn fail_write(&mut self, sector: usize, submitted: Cell, is_kept: bool) {
        let held = self.stored[sector];
        if is_kept && self.current[sector] == submitted {
            self.unwritten[sector] = submitted.version;
            return;
        }
        let below = held.version.min(submitted.version.saturating_sub(1));
        self.lost[sector].push((below, submitted.version));
        if self.current[sector] == submitted {
            assert!(
                self.acknowledged[sector] <= held.version
                    || self.is_lost_since(sector, self.acknowledged[sector] + 1),
                "sector {sector}: what was acknowledged is dropped"
            );
            self.current[sector] = held;
        }
    }

    fn write(&mut self, sector: usize, submitted: Cell, bytes: &[u8], persistence: Persistence) {
        let version = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"));
        // Zeros were erased since; another version was written since.
        let cell = if version > submitted.version {
            Cell {
                version,
                is_written: true,
            }
        } else {
            submitted
        };
        self.stored[sector] = cell;
        if persistence == Persistence::Durable {
            self.stable[sector] = cell;
        }
    }

    fn erase(&mut self, sector: usize, version: u64, is_failed: bool, is_kept: bool) {
        let held = self.stored[sector];
        if is_failed {
            self.lost[sector].push((held.version, version));
            if self.current[sector].version == version {
                self.current[sector] = held;
            }
            return;
        }
        // Erasures may pass each other: all make zeros.
        if held.is_written || held.version < version {
            self.stored[sector] = Cell {
                version,
                is_written: false,
            };
        }
        let stored = self.stored[sector];
        // A later erasure has failed before.
        if self.current[sector].version < version {
            self.current[sector] = stored;
        }
        // It took a newer version out of memory, which a write had brought to the device meanwhile.
        if self.current[sector] == held && held != stored && !is_kept {
            self.lost[sector].push((version, held.version));
            self.current[sector] = stored;
        }
    }

    /// A completed command guarantees that this version of a sector is on the device, and whether
    /// it is stable there.
    pub(super) fn promise(&mut self, sector: usize, version: u64, is_stable: bool) {
        let promise = &mut self.promised[sector];
        promise.kill = promise.kill.max(version);
        if is_stable {
            promise.power_cut = promise.power_cut.max(version);
        }
    }

    /// A crash now leaves what completed commands guarantee, unless a failure of the device has
    /// taken it since.
    pub(super) fn check_crash(&self) {
        let cells = self.stored.iter().zip(&self.stable);
        for (sector, ((stored, stable), promise)) in cells.zip(&self.promised).enumerate() {
            assert!(
                stored.version >= promise.kill || self.is_lost(sector, promise.kill),
                "a kill takes {promise:?} of sector {sector}, which holds {stored:?}"
            );
            assert!(
                stable.version >= promise.power_cut || self.is_lost(sector, promise.power_cut),
                "a power cut takes {promise:?} of sector {sector}, which holds {stable:?}"
            );
        }
    }

    /// Whether this version or a later one was lost.
    pub(super) fn is_lost_since(&self, sector: usize, version: u64) -> bool {
        self.lost[sector].iter().any(|&(_, to)| version <= to)
    }

    pub(super) fn is_lost(&self, sector: usize, version: u64) -> bool {
        let lost = self.lost[sector].iter();
        lost.into_iter()
            .any(|&(from, to)| from < version && version <= to)
    }
}

impl Backing for Disk {
    fn submit(&self, request: Request) {
        let mut sectors = self.sectors();
        let first = request.range.offset as usize / SECTOR;
        let run = first..first + request.range.len as usize / SECTOR;
        let cells = match request.op {
            BackingOp::Flush => sectors.stored.clone(),
            _ => sectors.current[run.clone()].to_vec(),
        };
        let erased = sectors.erased[run].to_vec();
        sectors.pending.push(Pending {
            request,
            cells,
            erased,
        });
    }

    fn wake_cleaner(&self) {
        let was_awake = std::mem::replace(&mut self.sectors().is_cleaner_awake, true);
        assert!(!was_awake, "it is woken once");
    }
}
