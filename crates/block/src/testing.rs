//! A volume in a vector and one that answers late, for tests, fuzz targets and simulations; the
//! corpora of fuzz targets, for tests; how a test is skipped; folders; lists of errors; whether
//! other peers delay commands, and tests that run alone to measure that.

mod delay;
mod errors;
mod folder;
mod lanes;
mod late;
mod turn;

use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::{
    Admission, BlockSize, Blocks, ByteRange, Extent, Geometry, HostPath, Intent, Lba, Op, OpKind,
    Persistence, Pinned, RawSpan, ReadDest, Status, Ticket, Volume, WriteCache,
};

pub use delay::{assert_not_delayed, timed};
pub use errors::messages;
pub use folder::Folder;
pub use lanes::{CountedLanes, LaneCounts};
pub use late::{LateVolume, Lateness};
pub use turn::Turn;

/// How many cases a property test plays whose cases take longer than most: `usual`, or as many
/// times more as `PROPTEST_CASES` asks of other tests, whose usual number is 256.
pub fn cases(usual: u32) -> u32 {
    let asked = std::env::var("PROPTEST_CASES").ok();
    let asked: Option<u64> = asked.and_then(|cases| cases.parse().ok());
    asked.map_or(usual, |asked| {
        (u64::from(usual) * asked / 256).clamp(1, 1 << 24) as u32
    })
}

/// Runs a fuzz target over its corpus, `fuzz/corpus/name`, and returns the number of inputs.
/// Panics if the corpus cannot be read.
pub fn replay(name: &str, target: fn(&[u8])) -> usize {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz/corpus")
        .join(name);
    let entries = std::fs::read_dir(&corpus).expect("the corpus is part of the tree");
    let mut inputs = 0;
    for entry in entries {
        let path = entry.expect("a directory entry").path();
        target(&std::fs::read(&path).expect("a readable input"));
        inputs += 1;
    }
    inputs
}

/// Reports that the calling test is skipped because `lack` is missing on this machine; the test
/// then returns. Panics if `CI=true`, because skips are not noticed there.
pub fn skip(lack: &str) {
    let is_ci = std::env::var_os("CI").is_some_and(|value| value == "true");
    assert!(!is_ci, "in CI a skipped test is a failure: {lack}");
    // The test harness captures what macros print, and shows it only for tests that fail.
    let _ = writeln!(std::io::stderr(), "SKIPPED: {lack}");
}

/// A volume in a vector. Tests can change its contents, size, lock, admissions and results.
#[derive(Debug)]
pub struct VecVolume {
    block_size: BlockSize,
    blocks: AtomicU64,
    state: Mutex<State>,
    /// Whether the state has an admission other than `Now`.
    filtered: AtomicBool,
    read_only: AtomicBool,
    has_volatile_cache: AtomicBool,
    copies_discarded: AtomicBool,
    path: Mutex<HostPath>,
    admitted_bytes: AtomicU64,
    /// How many commands other than reads asked to be durable.
    durable_commands: AtomicU64,
}

#[derive(Debug)]
struct State {
    geometry: Geometry,
    bytes: Vec<u8>,
    admission: Admission,
    failure: Option<Status>,
    /// All contents at the last flush, if they are kept.
    flushed: Option<Vec<u8>>,
}

impl VecVolume {
    /// A volume of zeros.
    pub fn new(block_size: BlockSize, blocks: u64) -> Self {
        let geometry = Geometry::new(block_size, Blocks(blocks));
        Self {
            block_size,
            blocks: AtomicU64::new(blocks),
            filtered: AtomicBool::new(false),
            state: Mutex::new(State {
                geometry,
                bytes: vec![0; geometry.len_bytes() as usize],
                admission: Admission::Now,
                failure: None,
                flushed: None,
            }),
            read_only: AtomicBool::new(false),
            has_volatile_cache: AtomicBool::new(false),
            copies_discarded: AtomicBool::new(false),
            path: Mutex::default(),
            admitted_bytes: AtomicU64::new(0),
            durable_commands: AtomicU64::new(0),
        }
    }

    /// From now on it says that it has a volatile write cache.
    pub fn set_volatile_cache(&self) {
        self.has_volatile_cache.store(true, Ordering::Relaxed);
    }

    /// From now on it says that it copies what is discarded.
    pub fn set_copies_discarded(&self) {
        self.copies_discarded.store(true, Ordering::Relaxed);
    }

    /// From now on it says that hosts reach it so.
    pub fn set_path(&self, path: HostPath) {
        *self.path.lock().unwrap_or_else(PoisonError::into_inner) = path;
    }

    /// How many commands other than reads asked to be durable.
    pub fn durable_commands(&self) -> u64 {
        self.durable_commands.load(Ordering::Relaxed)
    }

    /// The contents.
    pub fn bytes(&self, range: ByteRange) -> Vec<u8> {
        let start = range.offset as usize;
        self.state().bytes[start..start + range.len as usize].to_vec()
    }

    /// All contents.
    pub fn contents(&self) -> Vec<u8> {
        self.state().bytes.clone()
    }

    /// From now on it keeps what each flush has made durable.
    pub fn keep_flushed(&self) {
        let mut state = self.state();
        state.flushed = Some(state.bytes.clone());
    }

    /// All contents at the last flush, or at the call of [`Self::keep_flushed`], if it was called.
    pub fn flushed(&self) -> Option<Vec<u8>> {
        self.state().flushed.clone()
    }

    /// Overwrites bytes.
    pub fn fill(&self, offset: usize, bytes: &[u8]) {
        self.state().bytes[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    /// Changes the size.
    pub fn resize(&self, blocks: u64) {
        let mut state = self.state();
        state.geometry.blocks = Blocks(blocks);
        let len = state.geometry.len_bytes() as usize;
        state.bytes.resize(len, 0);
        self.blocks.store(blocks, Ordering::Release);
    }

    /// Makes the volume read-only or writable.
    pub fn set_read_only(&self, read_only: bool) {
        self.read_only.store(read_only, Ordering::Relaxed);
    }

    /// Sets the admission of every further command.
    pub fn set_admission(&self, admission: Admission) {
        self.state().admission = admission;
        self.filtered.store(true, Ordering::Release);
    }

    /// The total bytes of all commands for which admission was requested.
    pub fn admitted_bytes(&self) -> u64 {
        self.admitted_bytes.load(Ordering::Relaxed)
    }

    /// Sets the result of every further operation.
    pub fn set_failure(&self, failure: Option<Status>) {
        self.state().failure = failure;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Volume for VecVolume {
    fn geometry(&self) -> Geometry {
        Geometry::new(self.block_size, Blocks(self.blocks.load(Ordering::Acquire)))
    }

    fn is_read_only(&self) -> bool {
        self.read_only.load(Ordering::Relaxed)
    }

    fn is_ready(&self) -> bool {
        self.state().failure != Some(Status::NotReady)
    }

    fn path(&self) -> HostPath {
        *self.path.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_cache(&self) -> WriteCache {
        if self.has_volatile_cache.load(Ordering::Relaxed) {
            WriteCache::Volatile
        } else {
            WriteCache::Absent
        }
    }

    fn copies_discarded(&self) -> bool {
        self.copies_discarded.load(Ordering::Relaxed)
    }

    fn admit(&self, _now: Instant, intent: &Intent<'_>, _ticket: Ticket) -> Admission {
        self.admitted_bytes
            .fetch_add(intent.len_bytes, Ordering::Relaxed);
        if intent.kind != OpKind::Read && intent.persistence == Persistence::Durable {
            self.durable_commands.fetch_add(1, Ordering::Relaxed);
        }
        if self.filtered.load(Ordering::Acquire) {
            self.state().admission
        } else {
            Admission::Now
        }
    }

    fn execute(&self, op: Op<'_>) -> Result<(), Status> {
        let mut state = self.state();
        if let Some(failure) = state.failure {
            return Err(failure);
        }
        let writes = !matches!(
            op,
            Op::Read { .. } | Op::Verify { .. } | Op::Compare { .. } | Op::Flush
        );
        if writes && self.is_read_only() {
            return Err(Status::WriteProtected);
        }
        state.execute(op)
    }

    fn pinned(&self) -> Option<&dyn Pinned> {
        Some(self)
    }
}

impl Pinned for VecVolume {
    fn pin(&self, range: ByteRange, each: &mut dyn FnMut(RawSpan)) {
        let state = self.state();
        let bytes = &state.bytes[range.offset as usize..(range.offset + range.len) as usize];
        each(RawSpan {
            ptr: bytes.as_ptr(),
            len: bytes.len(),
        });
    }

    fn unpin(&self, _range: ByteRange) {}
}

impl State {
    fn execute(&mut self, op: Op<'_>) -> Result<(), Status> {
        match op {
            Op::Read { extent, dest } => {
                let at = self.range(extent)?;
                if let ReadDest::Copy(dest) = dest {
                    same_len(&at, dest)?;
                    dest.copy_from_slice(&self.bytes[at]);
                }
            }
            Op::Write { extent, data } => {
                let at = self.range(extent)?;
                same_len(&at, data)?;
                self.bytes[at].copy_from_slice(data);
            }
            Op::WriteZeroes { extent, .. } | Op::Discard { extent } => {
                let at = self.range(extent)?;
                self.bytes[at].fill(0);
            }
            Op::Flush => {
                if let Some(flushed) = &mut self.flushed {
                    flushed.clone_from(&self.bytes);
                }
            }
            Op::Verify { extent } => {
                self.range(extent)?;
            }
            Op::Compare { extent, data } => self.compare(extent, data)?,
            Op::CompareAndWrite {
                extent,
                compare,
                write,
            } => {
                self.compare(extent, compare)?;
                let at = self.range(extent)?;
                same_len(&at, write)?;
                self.bytes[at].copy_from_slice(write);
            }
            Op::Copy { from, to } => {
                let to = self.range(Extent::new(to, from.blocks))?;
                let from = self.range(from)?;
                self.bytes.copy_within(from, to.start);
            }
        }
        Ok(())
    }

    fn range(&self, extent: Extent) -> Result<std::ops::Range<usize>, Status> {
        let range = self.geometry.byte_range(extent)?;
        Ok(range.offset as usize..(range.offset + range.len) as usize)
    }

    fn compare(&self, extent: Extent, data: &[u8]) -> Result<(), Status> {
        let at = self.range(extent)?;
        same_len(&at, data)?;
        let differs = self.bytes[at].iter().zip(data).position(|(a, b)| a != b);
        match differs {
            Some(offset) => Err(Status::Miscompare {
                offset_bytes: offset as u64,
            }),
            None => Ok(()),
        }
    }
}

fn same_len(at: &std::ops::Range<usize>, data: &[u8]) -> Result<(), Status> {
    if at.len() == data.len() {
        Ok(())
    } else {
        Err(Status::Invalid)
    }
}

impl VecVolume {
    /// One block.
    pub fn block(&self, lba: u64) -> Vec<u8> {
        let range = self.geometry().byte_range(Extent::new(Lba(lba), Blocks(1)));
        self.bytes(range.expect("tests ask for blocks that there are"))
    }
}
