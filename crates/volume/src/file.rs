//! A volume in a file or block device of this machine.
//!
//! ```text
//!  sessions ──► FileVolume ──► window::Window ──► FileBacking ─┬─► LaneQueue, in the thread of the session ─┬─► FileQueue ──► FileIo
//!                                                              └─► Worker, in a thread of its own ──────────┘
//! ```

mod backing;
mod file_queue;
mod lane_queue;
mod worker;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use block::{Admission, Blocks, Geometry, Intent, Op, Settled, Status, Ticket, Volume, WriteCache};
use file_io::{HostDisk, HostDiskError, NewFile};
use memory::{Progress, Provision};
use window::Window;

use crate::spec::check_path;
use crate::{ByteSize, Origin, Platform, Storage, VolumeError, VolumeKind, VolumeSpec};

use backing::FileBacking;
use file_queue::FileQueue;
use worker::Worker;

/// Frames of this size turn a sequence of small transfers into few large ones.
const FRAME_BYTES: u32 = 64 << 10;
/// How long a restored volume waits for the lock of its file, and between two attempts.
const UNLOCK_WAIT: Duration = Duration::from_secs(2);
const UNLOCK_STEP: Duration = Duration::from_millis(10);

/// A volume in a file or block device of this machine. Its contents outlive it.
///
/// Writes are acknowledged when the system has taken them, so they may be in a volatile cache of
/// the disk, or in the page cache where `O_DIRECT` is not possible: see [`WriteCache::Volatile`].
#[derive(Debug)]
pub struct FileVolume {
    path: PathBuf,
    provision: Provision,
    state: Opened,
}

#[derive(Debug)]
enum Opened {
    Yes {
        window: Arc<Window>,
        backing: Arc<FileBacking>,
        /// Until it is closed.
        disk: Mutex<Option<Arc<HostDisk>>>,
    },
    No {
        geometry: Geometry,
        /// Grows with the definition.
        blocks: AtomicU64,
        problem: String,
    },
}

impl FileVolume {
    /// Opens the file or device that `spec` names, which must have the size that it says. A file
    /// that does not exist is created if the volume is new.
    ///
    /// # Errors
    /// If the file does not serve as a disk, or if memory could not be allocated.
    pub fn open(
        spec: &VolumeSpec,
        origin: Origin,
        platform: &Platform,
    ) -> Result<Self, VolumeError> {
        let (path, provision) = file_of(spec);
        check_path(path)?;
        let new = (origin == Origin::New).then(|| new_file(spec.size, provision));
        let block_bytes = spec.block_size.bytes() as u32;
        let disk = open_unlocked(origin, || HostDisk::open(path, block_bytes, new));
        let disk = disk.map_err(|error| VolumeError::file(path, error))?;
        let actual = ByteSize(disk.len_bytes());
        if actual != spec.size {
            return Err(VolumeError::FileSize {
                path: path.to_owned(),
                given: spec.size,
                actual,
            });
        }
        let disk = Arc::new(disk);
        let started = Self::start(spec, &disk, platform);
        if started.is_err() {
            remove_if_new(&disk, path);
        }
        started
    }

    /// The volume on `disk`, which `spec` names.
    fn start(
        spec: &VolumeSpec,
        disk: &Arc<HostDisk>,
        platform: &Platform,
    ) -> Result<Self, VolumeError> {
        let (path, provision) = file_of(spec);
        let open_error = |error| VolumeError::file(path, HostDiskError::Open(error));
        let charge = platform
            .budget
            .reserve(FileQueue::memory_bytes(FRAME_BYTES))?;
        let (backing, worker) =
            Worker::new(disk, FRAME_BYTES, charge, platform).map_err(open_error)?;
        let window = platform.window(spec.geometry(), FRAME_BYTES, Arc::clone(&backing) as _);
        worker.start(Arc::clone(&window) as _).map_err(open_error)?;
        Ok(Self {
            path: path.to_owned(),
            provision,
            state: Opened::Yes {
                window,
                backing,
                disk: Mutex::new(Some(Arc::clone(disk))),
            },
        })
    }

    /// A volume whose file could not be opened. It executes nothing.
    pub(crate) fn failed(spec: &VolumeSpec, error: &VolumeError) -> Self {
        let (path, provision) = file_of(spec);
        Self {
            path: path.to_owned(),
            provision,
            state: Opened::No {
                geometry: spec.geometry(),
                blocks: AtomicU64::new(spec.geometry().blocks.0),
                problem: format!("{error}; restart the daemon when that is corrected"),
            },
        }
    }

    fn window(&self) -> Result<&Window, Status> {
        match &self.state {
            Opened::Yes { window, .. } => Ok(window),
            Opened::No { .. } => Err(Status::NotReady),
        }
    }

    fn disk(&self) -> Option<MutexGuard<'_, Option<Arc<HostDisk>>>> {
        match &self.state {
            Opened::Yes { disk, .. } => Some(disk.lock().unwrap_or_else(PoisonError::into_inner)),
            Opened::No { .. } => None,
        }
    }
}

/// Leaves no file behind of a volume that was not to be.
fn remove_if_new(disk: &HostDisk, path: &Path) {
    // The file is empty. The caller already reports why there is no volume, so an error here is not
    // reported too.
    let _ = disk.remove_if_new(path);
}

/// Opens a disk. The lock of an earlier run of the program that was killed lasts until the system
/// has ended its requests, so a restored volume waits a moment for that.
fn open_unlocked(
    origin: Origin,
    open: impl Fn() -> Result<HostDisk, HostDiskError>,
) -> Result<HostDisk, HostDiskError> {
    let end = Instant::now() + UNLOCK_WAIT;
    loop {
        match open() {
            Err(HostDiskError::InUse) if origin == Origin::Restored && Instant::now() < end => {
                thread::sleep(UNLOCK_STEP);
            }
            opened => return opened,
        }
    }
}

fn file_of(spec: &VolumeSpec) -> (&Path, Provision) {
    match &spec.kind {
        VolumeKind::File { path, provision } => (path, *provision),
        _ => unreachable!("the factory looks at the kind first"),
    }
}

fn new_file(size: ByteSize, provision: Provision) -> NewFile {
    NewFile {
        len_bytes: size.0,
        allocate: provision == Provision::Thick,
    }
}

impl Volume for FileVolume {
    fn geometry(&self) -> Geometry {
        match &self.state {
            Opened::Yes { window, .. } => window.geometry(),
            Opened::No {
                geometry, blocks, ..
            } => Geometry::new(geometry.block_size, Blocks(blocks.load(Ordering::Relaxed))),
        }
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn is_ready(&self) -> bool {
        self.window().is_ok()
    }

    fn write_cache(&self) -> WriteCache {
        WriteCache::Volatile
    }

    fn admit(&self, _now: Instant, intent: &Intent<'_>, ticket: Ticket) -> Admission {
        match self.window() {
            Ok(window) => window.admit(intent, ticket),
            Err(status) => Admission::Fail(status, None),
        }
    }

    fn execute(&self, op: Op<'_>) -> Result<(), Status> {
        self.window()?.execute(op)
    }

    fn settle(&self, ticket: Ticket) -> Result<Settled, Status> {
        self.window()?.settle(ticket)
    }

    fn release(&self, ticket: Ticket) {
        if let Ok(window) = self.window() {
            window.release(ticket);
        }
    }
}

impl Storage for FileVolume {
    fn spec(&self) -> VolumeSpec {
        let geometry = self.geometry();
        VolumeSpec {
            size: ByteSize(geometry.len_bytes()),
            block_size: geometry.block_size,
            kind: VolumeKind::File {
                path: self.path.clone(),
                provision: self.provision,
            },
        }
    }

    fn used_bytes(&self) -> u64 {
        let disk = self.disk();
        let disk = disk.as_ref().and_then(|disk| disk.as_ref());
        disk.map_or(0, |disk| disk.allocated_bytes())
    }

    fn resize(
        &self,
        size: ByteSize,
        _progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<(), VolumeError> {
        let from = self.spec().size;
        if size < from {
            return Err(VolumeError::CannotShrink { from, to: size });
        }
        let window = self.window().map_err(VolumeError::Storage)?;
        let disk = self.disk();
        let disk = disk.as_ref().and_then(|disk| disk.as_ref());
        let disk = disk.ok_or(VolumeError::Gone)?;
        disk.grow(new_file(size, self.provision))
            .map_err(|error| VolumeError::file(&self.path, error))?;
        window.grow(Blocks(size.0 >> self.geometry().block_size.shift()));
        Ok(())
    }

    fn erase(&self) -> Result<(), VolumeError> {
        let window = self.window().map_err(VolumeError::Storage)?;
        window.erase_all().map_err(VolumeError::Storage)
    }

    fn undo_creation(&self) {
        if let Some(disk) = self.disk().as_ref().and_then(|disk| disk.as_ref()) {
            remove_if_new(disk, &self.path);
        }
    }

    fn close(&self) {
        let Opened::Yes {
            window, backing, ..
        } = &self.state
        else {
            return;
        };
        window.close();
        if let Some(mut disk) = self.disk() {
            *disk = None;
        }
        backing.close();
    }

    fn problem(&self) -> Option<String> {
        match &self.state {
            Opened::Yes { .. } => None,
            Opened::No { problem, .. } => Some(problem.clone()),
        }
    }
}

impl Drop for FileVolume {
    fn drop(&mut self) {
        self.close();
    }
}

#[cfg(test)]
mod tests;
