//! Saving the contents of volumes in memory to files, and restoring them.
//!
//! A save shows one moment, under I/O: it is written from a temporary snapshot. Neither blocks
//! sessions; both take as long as the disk takes, so they need a thread that may wait.

mod early;
mod threads;

use std::fmt;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use block::{Allocation, BlockSize, ByteRange, Status};
use image::{
    Chain, Chunk, HostFiles, HostReader, IfBroken, ImageError, Increment, Label, Replace, Source,
    Tail, WriteError,
};
use memory::{MemoryError, Progress, Provision, Snapshot, Store, Tracker};
use uuid::Uuid;

use crate::damage::Damage;
use crate::increments::{Plan, Tracked};
use crate::{ByteSize, ManagedVolume, VolumeKind, VolumeSpec};
use threads::Asker;

pub use early::{LoadStep, Loader, begin_restore};

/// Which save of a volume a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SaveId {
    /// What all saves of the same contents have in common.
    pub lineage: Uuid,
    /// Its number there.
    pub sequence: u64,
}

/// As `number 7 of 0123…`.
impl fmt::Display for SaveId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "number {} of {}", self.sequence, self.lineage)
    }
}

impl From<&Label> for SaveId {
    fn from(label: &Label) -> Self {
        Self {
            lineage: label.lineage,
            sequence: label.sequence,
        }
    }
}

impl SaveId {
    /// The first save of contents that were never saved.
    pub fn first() -> Self {
        Self {
            lineage: Uuid::new_v4(),
            sequence: 1,
        }
    }

    /// The next save of the same contents.
    #[must_use]
    pub fn next(self) -> Self {
        Self {
            sequence: self.sequence + 1,
            ..self
        }
    }
}

/// A file that holds what a volume was at one moment, with the increments beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Saved {
    /// Which save it is.
    pub id: SaveId,
    /// The moment.
    pub moment: SystemTime,
    /// Length of the file and its increments in bytes.
    pub file_bytes: u64,
    /// How many increments there are.
    pub increments: u32,
    /// Bytes of the volume that it holds: all others are zeros.
    pub held_bytes: u64,
}

impl From<&Chain<HostReader>> for Saved {
    fn from(chain: &Chain<HostReader>) -> Self {
        let label = chain.label();
        let since_1970 = Duration::from_nanos(label.moment_unix_ns);
        Self {
            id: label.into(),
            moment: SystemTime::UNIX_EPOCH + since_1970,
            file_bytes: chain.file_bytes(),
            increments: chain.tail().increments,
            held_bytes: chain.held_bytes(),
        }
    }
}

/// What was restored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    /// The save.
    pub saved: Saved,
    /// What the file had damaged, which is zeros now.
    pub damage: Damage,
}

impl Restored {
    fn of(restoration: &Restoration<'_>, damage: Damage) -> Self {
        Self {
            saved: Saved::from(&restoration.chain),
            damage,
        }
    }
}

/// What becomes of parts of a file that are damaged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IfDamaged {
    /// Nothing is restored.
    #[default]
    Refuse,
    /// They become zeros.
    Zeros,
}

/// What is to be restored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// This save alone; any where absent.
    pub only: Option<SaveId>,
    /// What becomes of damaged parts.
    pub if_damaged: IfDamaged,
}

/// Where a volume is saved, and how.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// The complete file.
    pub path: &'a Path,
    /// What may be replaced there.
    pub replace: Replace,
    /// What is written.
    pub mode: SaveMode,
    /// Called in the thread that compresses and writes before that begins, to lower its priority.
    pub prepare: fn(),
}

/// What a save writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SaveMode {
    /// A complete file.
    Single,
    /// A complete file. What changes afterwards is noted, so that increments can follow.
    Complete,
    /// An increment if that is cheaper, nothing if nothing has changed, or else as `Complete`.
    Cheapest,
}

/// Why a volume was not saved. Earlier saves are unchanged.
#[derive(Debug, thiserror::Error)]
pub enum SaveError {
    /// Its contents are on a disk already.
    #[error(
        "only volumes in memory are saved, and this one is a {kind}; copy it to a file with `ramport volume copy`"
    )]
    NotInMemory {
        /// The kind.
        kind: VolumeKind,
    },
    /// It was removed.
    #[error("the volume was removed")]
    Gone,
    /// Writes went on at the expense of the save.
    #[error(
        "hosts changed more blocks meanwhile than the memory budget had room to keep the old contents of; save when less is written, or raise --memory"
    )]
    GaveWay,
    /// A thread could not be started.
    #[error("cannot start a thread: {0}")]
    Thread(#[source] std::io::Error),
    /// The file was not written.
    #[error(transparent)]
    File(#[from] WriteError),
}

/// Why a volume was not restored.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// Only memory is restored.
    #[error("a volume of kind {kind} cannot be restored; RAM volumes and clones can")]
    NotInMemory {
        /// The kind.
        kind: VolumeKind,
    },
    /// The file cannot be read.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: ImageError,
    },
    /// It is another save than the one that was wanted.
    #[error(
        "{} holds another save ({found}) than the one of the shutdown ({wanted}); if it is right, restore it with `ramport volume restore`",
        path.display()
    )]
    OtherSave {
        /// The file.
        path: PathBuf,
        /// The save in the file.
        found: SaveId,
        /// The save that was wanted.
        wanted: SaveId,
    },
    /// It is of a volume of another size.
    #[error(
        "{} is of a volume of {saved}, and this one has {actual}; resize it to {saved} first", path.display()
    )]
    OtherSize {
        /// The file.
        path: PathBuf,
        /// The size of the volume that was saved.
        saved: ByteSize,
        /// The size of this volume.
        actual: ByteSize,
    },
    /// It is of a volume with other blocks.
    #[error(
        "{} is of a volume with blocks of {saved_bytes} bytes, and this one has blocks of {actual_bytes}; create a volume with --block-size {saved_bytes}",
        path.display()
    )]
    OtherBlocks {
        /// The file.
        path: PathBuf,
        /// The block size of the volume that was saved.
        saved_bytes: u32,
        /// That of this volume.
        actual_bytes: u64,
    },
    /// Parts of it are damaged.
    #[error(
        "{} is damaged: {damage} of the volume cannot be read from it; restore another save, or the rest with --zero-damaged, which makes them zeros",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is damaged.
        damage: Damage,
    },
    /// The memory budget has no room for it.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// The volume could not be written.
    #[error("the volume cannot be written: {0}")]
    Write(#[source] Status),
    /// The caller ended the work.
    #[error("restoring was cancelled")]
    Cancelled,
    /// What the volume held is gone, and the save is not restored.
    #[error(
        "{cause}; what the volume held is gone, and it stays offline until it is restored, erased or acknowledged"
    )]
    Spoiled {
        /// Why.
        cause: Box<Self>,
    },
}

/// The part of the memory budget, as a divisor, that saves leave free.
const RESERVE_DIVISOR: u64 = 64;

/// Saves what `volume` holds at this moment, while it is in use, and reports to `progress`, which
/// may cancel the save. The volume was called `name`. If nothing has changed since the last save of
/// this target, that one is returned, with the present moment.
///
/// # Errors
/// If it has no memory to save, memory runs out for what hosts change meanwhile, or the file cannot
/// be written. The target is then what it was.
pub fn save(
    volume: &dyn ManagedVolume,
    name: &str,
    id: SaveId,
    target: &Target<'_>,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<Saved, SaveError> {
    // It notes what changes after the snapshot, which is taken later.
    let tracker = begin_tracking(volume, target.mode)?;
    let frozen = Frozen::of(volume)?;
    let moment = SystemTime::now();
    let spec = volume.storage().spec();
    let since_1970 = moment.duration_since(SystemTime::UNIX_EPOCH);
    let label = Label {
        volume: name.to_owned(),
        size_bytes: frozen.snapshot().len_bytes(),
        block_bytes: spec.block_size.bytes() as u32,
        lineage: id.lineage,
        sequence: id.sequence,
        moment_unix_ns: since_1970.map_or(0, |since| since.as_nanos() as u64),
    };
    let plan = match (target.mode, &*volume.controls().tracked()) {
        (SaveMode::Cheapest, Some(tracked)) => tracked.plan(target.path, &label),
        _ => Plan::Complete,
    };
    // The tracker that began before goes on.
    if let Plan::Unchanged(chain) = plan {
        return Ok(Saved {
            moment,
            ..Saved::from(&chain)
        });
    }
    let packed = threads::pack(&frozen, progress, target.prepare, |source| {
        let job = Job {
            label: &label,
            source,
            moment,
            target,
        };
        match plan {
            Plan::Increment(chain, changed) => job.write_increment(&chain, &changed),
            _ => job.write_complete(),
        }
    });
    let (saved, tail) = packed
        .map_err(SaveError::Thread)?
        .map_err(|error| match error {
            WriteError::Source(Status::Gone) => frozen.loss(),
            error => error.into(),
        })?;
    if let Some(tracker) = tracker {
        let tracked = Tracked::new(tracker, target.path, tail);
        volume.controls().set_tracked(tracked);
    }
    Ok(saved)
}

/// Notes from now on what changes, if a later save can use it.
fn begin_tracking(
    volume: &dyn ManagedVolume,
    mode: SaveMode,
) -> Result<Option<Tracker>, SaveError> {
    match (mode, volume.storage().store()) {
        (SaveMode::Complete | SaveMode::Cheapest, Some(store)) => {
            let tracker = Tracked::begin(store).map_err(|_| SaveError::Gone)?;
            Ok(Some(tracker))
        }
        _ => Ok(None),
    }
}

/// A save that is being written.
struct Job<'a> {
    label: &'a Label,
    source: &'a Asker,
    moment: SystemTime,
    target: &'a Target<'a>,
}

impl Job<'_> {
    fn write_complete(&self) -> Result<(Saved, Tail), WriteError> {
        let Target { path, replace, .. } = *self.target;
        let report = &mut self.report_of(self.label.size_bytes);
        let written = image::write(&HostFiles, path, self.label, self.source, replace, report)?;
        let saved = Saved {
            id: self.label.into(),
            moment: self.moment,
            file_bytes: written.file_bytes,
            increments: 0,
            held_bytes: written.held_bytes,
        };
        Ok((saved, written.tail))
    }

    /// `changed` are the chunks that have changed since the moment of `chain`.
    fn write_increment(
        &self,
        chain: &Chain<HostReader>,
        changed: &[u32],
    ) -> Result<(Saved, Tail), WriteError> {
        let tail = chain.tail();
        let total_bytes = changed.len() as u64 * image::CHUNK_BYTES;
        let report = &mut self.report_of(total_bytes);
        let increment = Increment { tail, changed };
        let path = self.target.path;
        let written =
            image::write_increment(&HostFiles, path, self.label, self.source, increment, report)?;
        let saved = Saved {
            id: self.label.into(),
            moment: self.moment,
            file_bytes: chain.file_bytes() + written.file_bytes,
            increments: written.tail.increments,
            held_bytes: written.held_bytes + chain.held_bytes_without(changed),
        };
        Ok((saved, written.tail))
    }

    /// Reports bytes that are done.
    fn report_of(&self, total_bytes: u64) -> impl FnMut(u64) -> ControlFlow<()> {
        move |done_bytes| {
            self.source.report(Progress {
                done_bytes,
                total_bytes,
            })
        }
    }
}

/// A volume at one moment.
enum Frozen {
    /// A snapshot that someone has taken.
    Lasting(Arc<Snapshot>),
    /// One for this save.
    Temporary(Snapshot),
}

impl Frozen {
    fn of(volume: &dyn ManagedVolume) -> Result<Self, SaveError> {
        let storage = volume.storage();
        if let Some(snapshot) = storage.snapshot() {
            return Ok(Self::Lasting(Arc::clone(snapshot)));
        }
        let Some(store) = storage.store() else {
            let kind = storage.spec().kind;
            return Err(SaveError::NotInMemory { kind });
        };
        let reserve_bytes = store.budget().total_bytes() / RESERVE_DIVISOR;
        let taken = store.take_temporary_snapshot(reserve_bytes);
        taken.map(Self::Temporary).map_err(|_| SaveError::Gone)
    }

    fn snapshot(&self) -> &Snapshot {
        match self {
            Self::Lasting(snapshot) => snapshot,
            Self::Temporary(snapshot) => snapshot,
        }
    }

    /// Why it shows nothing any more.
    fn loss(&self) -> SaveError {
        match self {
            Self::Temporary(snapshot) if !snapshot.origin().is_empty() => SaveError::GaveWay,
            _ => SaveError::Gone,
        }
    }
}

impl Source for Frozen {
    fn allocation(&self, range: ByteRange) -> Allocation {
        let told = self.snapshot().allocation(range);
        if self.snapshot().is_gone() {
            // So that it is read, which fails.
            return Allocation {
                allocated: true,
                len_bytes: range.len,
            };
        }
        told
    }

    fn read(&self, offset: u64, dest: &mut [u8]) -> Result<(), Status> {
        self.snapshot().read(offset, dest)
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        if let Self::Temporary(snapshot) = self {
            // If the host refuses memory for what is moved to older snapshots, the rest stays until
            // the next snapshot of the volume is removed.
            let _rest_stays = snapshot.remove();
        }
    }
}

/// Makes `volume` what the file `path` holds, and reports to `progress`, which may cancel it.
/// Nobody should use the volume meanwhile. The file is verified as a whole before anything changes,
/// except if the volume is empty, as it is after a failure.
///
/// # Errors
/// If the volume cannot be restored, the file does not fit it or cannot be read, is damaged (unless
/// `wanted` permits that), or memory could not be allocated. The volume is unchanged, except
/// after [`RestoreError::Spoiled`].
pub fn restore(
    volume: &dyn ManagedVolume,
    path: &Path,
    wanted: Wanted,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<Restored, RestoreError> {
    let storage = volume.storage();
    let Some(store) = storage.store() else {
        let kind = storage.spec().kind;
        return Err(RestoreError::NotInMemory { kind });
    };
    let was_empty = is_empty(store);
    let restoration = Restoration {
        chain: open(volume, path, wanted, IfBroken::Refuse)?,
        path,
        if_damaged: wanted.if_damaged,
    };
    let held_bytes = restoration.chain.held_bytes();
    check_room(store, held_bytes)?;
    let mut steps = Steps {
        done_bytes: 0,
        total_bytes: held_bytes * if was_empty { 1 } else { 2 },
        progress,
    };
    if !was_empty {
        restoration.read(&mut steps, &mut |_, _| Ok(()))?;
    }
    // What follows is a change of the save that is restored, not of the one before.
    volume.controls().end_tracking();
    let loaded = store.erase().map_err(RestoreError::Memory);
    let loaded = loaded.and_then(|()| {
        restoration.read(&mut steps, &mut |offset, bytes| {
            store.write(offset, bytes).map_err(RestoreError::Write)
        })
    });
    let damage = match loaded {
        Ok(damage) => damage,
        Err(cause) if store.erase().is_ok() && was_empty => return Err(cause),
        Err(cause) => {
            let cause = Box::new(cause);
            return Err(RestoreError::Spoiled { cause });
        }
    };
    Ok(Restored::of(&restoration, damage))
}

/// Whether nothing but zeros can be in a store.
fn is_empty(store: &Store) -> bool {
    store.provision() == Provision::Thin && !store.is_clone() && store.allocated_bytes() == 0
}

/// The size and the block size of the volume that the file `path` holds.
///
/// # Errors
/// If the file cannot be read, is no save, or has a damaged header or index.
pub fn saved_form(path: &Path) -> Result<(ByteSize, BlockSize), RestoreError> {
    let chain = open_file(path, |_| Ok(()), IfBroken::EndBefore)?;
    let label = chain.label();
    let block_size = match label.block_bytes {
        4096 => BlockSize::B4096,
        _ => BlockSize::B512,
    };
    Ok((ByteSize(label.size_bytes), block_size))
}

/// What `path` and its increments hold, which fits `volume`.
fn open(
    volume: &dyn ManagedVolume,
    path: &Path,
    wanted: Wanted,
    if_broken: IfBroken,
) -> Result<Chain<HostReader>, RestoreError> {
    let spec = volume.storage().spec();
    let accept = |label: &Label| {
        let misfit = misfit_of(label, path, &spec);
        misfit.map_or(Ok(()), |misfit| Err(Failure::Restore(misfit)))
    };
    let chain = open_file(path, accept, if_broken)?;
    let found = SaveId::from(chain.label());
    match wanted.only {
        Some(wanted) if wanted != found => {
            let path = path.to_owned();
            Err(match chain.into_broken() {
                Some(source) => RestoreError::File { path, source },
                None => RestoreError::OtherSave {
                    path,
                    found,
                    wanted,
                },
            })
        }
        _ => Ok(chain),
    }
}

/// What `path` and its increments hold, if `accept` permits it.
fn open_file(
    path: &Path,
    accept: impl FnOnce(&Label) -> Result<(), Failure>,
    if_broken: IfBroken,
) -> Result<Chain<HostReader>, RestoreError> {
    let opened = Chain::open(&HostFiles, path, accept, if_broken);
    opened.map_err(|failure| failure.at(path))
}

/// A failure to restore, the path of which may be missing.
enum Failure {
    Restore(RestoreError),
    Image(ImageError),
}

impl From<ImageError> for Failure {
    fn from(error: ImageError) -> Self {
        Self::Image(error)
    }
}

impl Failure {
    fn at(self, path: &Path) -> RestoreError {
        match self {
            Self::Restore(error) => error,
            Self::Image(source) => RestoreError::File {
                path: path.to_owned(),
                source,
            },
        }
    }
}

/// Why a file does not fit a volume.
fn misfit_of(label: &Label, path: &Path, spec: &VolumeSpec) -> Option<RestoreError> {
    let path = path.to_owned();
    let saved = ByteSize(label.size_bytes);
    let actual_bytes = spec.block_size.bytes();
    if u64::from(label.block_bytes) != actual_bytes {
        return Some(RestoreError::OtherBlocks {
            path,
            saved_bytes: label.block_bytes,
            actual_bytes,
        });
    }
    (saved != spec.size).then_some(RestoreError::OtherSize {
        path,
        saved,
        actual: spec.size,
    })
}

/// A save that cannot fit is refused before it has cost the contents and minutes.
fn check_room(store: &Store, held_bytes: u64) -> Result<(), MemoryError> {
    let budget = store.budget();
    let room_bytes = budget.free_bytes().saturating_add(store.allocated_bytes());
    if held_bytes > room_bytes {
        return Err(MemoryError::OverBudget {
            wanted_bytes: held_bytes,
            free_bytes: room_bytes,
            total_bytes: budget.total_bytes(),
        });
    }
    Ok(())
}

/// How far it is.
struct Steps<'a> {
    done_bytes: u64,
    total_bytes: u64,
    progress: &'a mut dyn FnMut(Progress) -> ControlFlow<()>,
}

impl Steps<'_> {
    fn take(&mut self, len: u64) -> Result<(), RestoreError> {
        self.done_bytes += len;
        let progress = Progress {
            done_bytes: self.done_bytes,
            total_bytes: self.total_bytes,
        };
        match (self.progress)(progress) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(RestoreError::Cancelled),
        }
    }
}

/// What is done with bytes of the volume, which begin at an offset.
type TakeBytes<'a> = dyn FnMut(u64, &[u8]) -> Result<(), RestoreError> + 'a;

/// A file, and what to do if it is damaged.
struct Restoration<'a> {
    chain: Chain<HostReader>,
    path: &'a Path,
    if_damaged: IfDamaged,
}

impl Restoration<'_> {
    /// Calls `each` with the offset and bytes of every part that is not damaged. Returns what is.
    fn read(
        &self,
        steps: &mut Steps<'_>,
        each: &mut TakeBytes<'_>,
    ) -> Result<Damage, RestoreError> {
        let mut damage = Damage::default();
        let read = self.chain.read(&mut |chunk: Chunk<'_>| {
            let done = if let Some(bytes) = chunk.bytes {
                each(chunk.range.offset, bytes)
            } else {
                damage.add(chunk.range);
                Ok(())
            };
            done.and_then(|()| steps.take(chunk.range.len))
                .map_err(Failure::Restore)
        });
        read.map_err(|failure| failure.at(self.path))?;
        if self.if_damaged == IfDamaged::Refuse && !damage.is_empty() {
            return Err(RestoreError::Damaged {
                path: self.path.to_owned(),
                damage,
            });
        }
        Ok(damage)
    }
}

#[cfg(test)]
mod tests;
