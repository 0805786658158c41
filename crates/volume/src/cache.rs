//! A cache: memory in front of a slower volume.
//!
//! ```text
//!  sessions ──► CacheVolume ──► window::Window, which keeps frames ──► VolumeBacking ──► slower volume
//! ```

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use block::{
    Admission, Blocks, Extent, Geometry, Intent, Op, OpKind, Settled, Status, Ticket, Volume,
    WriteCache,
};
use memory::Progress;
use window::{Backing, BackingClient, CacheOptions, Ended, RequestId, Window};

use crate::ByteSize;
use crate::cache_settings::{CacheMode, CacheSettings, CacheStatistics};
use crate::managed::{Caching, Member, Storage};
use crate::spec::{self, Platform, VolumeError, VolumeKind, VolumeSpec};
use crate::volume_backing::{BackingThread, Client, VolumeBacking};

/// Background writes of a tick, at least.
const CLEANED_MIN: usize = 16;
/// The number of ticks in which about all dirty blocks are written.
const CLEANED_WITHIN: usize = 50;

/// Memory in front of a slower volume, which it holds.
#[derive(Debug)]
pub struct CacheVolume {
    window: Arc<Window>,
    backing: Arc<VolumeBacking>,
    member: Member,
    settings: Mutex<CacheSettings>,
    /// Held while settings change.
    changing: Mutex<()>,
    worker: Mutex<Option<BackingThread>>,
}

impl CacheVolume {
    /// The cache that `spec` says, of `member`.
    ///
    /// # Errors
    /// If the cache is larger than the volume, the sizes or blocks of both differ, or its memory
    /// could not be allocated.
    pub(crate) fn new(
        spec: &VolumeSpec,
        member: Member,
        platform: &Platform,
    ) -> Result<Self, VolumeError> {
        let VolumeKind::Cache { settings, .. } = &spec.kind else {
            unreachable!("the factory looks at the kind first");
        };
        member.check_blocks(spec.block_size)?;
        let derived = member.size();
        if derived != spec.size {
            return Err(VolumeError::DerivedSize {
                given: spec.size,
                derived,
            });
        }
        check_use(*settings, derived)?;
        let backing = VolumeBacking::new(platform);
        let window = Arc::new(Window::cache(
            spec.geometry(),
            settings.block.0 as u32,
            options(*settings),
            Arc::clone(&backing) as Arc<dyn Backing>,
            &platform.budget,
            Arc::clone(&platform.relay) as _,
        )?);
        let frame_bytes = settings.block.0 as usize;
        let client = Arc::new(Cleaner {
            window: Arc::clone(&window),
        });
        let worker = backing.start(&member.volume, client, frame_bytes, platform)?;
        Ok(Self {
            window,
            backing,
            member,
            settings: Mutex::new(*settings),
            changing: Mutex::default(),
            worker: Mutex::new(Some(worker)),
        })
    }

    fn lock_settings(&self) -> MutexGuard<'_, CacheSettings> {
        // Settings are replaced whole, so a panic left none half changed.
        self.settings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The window of a cache, whose dirty blocks are written in the background.
struct Cleaner {
    window: Arc<Window>,
}

impl BackingClient for Cleaner {
    fn fetch(&self, id: RequestId, offset_bytes: usize, buffer: &mut [u8]) {
        self.window.fetch(id, offset_bytes, buffer);
    }

    fn done_all(&self, ended: &[Ended<'_>]) {
        self.window.done_all(ended);
    }
}

impl Client for Cleaner {
    /// Writes a share of what is dirty; more the more there is.
    fn tick(&self) -> bool {
        self.window.clean(CLEANED_WITHIN, CLEANED_MIN)
    }
}

impl Caching for CacheVolume {
    fn settings(&self) -> CacheSettings {
        *self.lock_settings()
    }

    fn check(&self, settings: CacheSettings) -> Result<(), VolumeError> {
        spec::check_cache(settings)?;
        let block = self.settings().block;
        if settings.block != block {
            return Err(VolumeError::CacheBlockStays {
                given: settings.block,
                block,
            });
        }
        check_use(settings, self.member.size())
    }

    fn set(&self, settings: CacheSettings) -> Result<(), VolumeError> {
        let _one_at_a_time = self.changing.lock();
        self.check(settings)?;
        let before = self.settings();
        let size = before.size.max(settings.size);
        self.window
            .set_cache(options(CacheSettings { size, ..settings }))?;
        // Dirty blocks keep their memory, which the caller expects to be free in a smaller cache.
        if settings.mode != CacheMode::WriteBack || settings.size < before.size {
            self.window.flush().map_err(|status| {
                let undone = self.window.set_cache(options(before));
                undone.expect("a cache can always become smaller");
                VolumeError::Unflushed(status)
            })?;
        }
        self.window.set_cache(options(settings))?;
        *self.lock_settings() = settings;
        Ok(())
    }

    fn statistics(&self) -> CacheStatistics {
        self.window.cache_statistics()
    }
}

const fn options(settings: CacheSettings) -> CacheOptions {
    CacheOptions {
        mode: settings.mode,
        kept_bytes: settings.size.0,
        bypass_bytes: settings.bypass.0,
    }
}

/// A cache that is larger than the volume wastes memory.
fn check_use(settings: CacheSettings, of: ByteSize) -> Result<(), VolumeError> {
    if settings.size > of {
        return Err(VolumeError::CacheTooLarge {
            given: settings.size,
            of,
        });
    }
    Ok(())
}

impl Volume for CacheVolume {
    fn geometry(&self) -> Geometry {
        self.window.geometry()
    }

    fn is_read_only(&self) -> bool {
        self.member.volume.is_read_only()
    }

    fn is_ready(&self) -> bool {
        self.member.volume.is_ready()
    }

    /// Its mode may change, so hosts flush in any mode.
    fn write_cache(&self) -> WriteCache {
        WriteCache::Volatile
    }

    fn admit(&self, _now: Instant, intent: &Intent<'_>, ticket: Ticket) -> Admission {
        self.window.admit(intent, ticket)
    }

    fn execute(&self, op: Op<'_>) -> Result<(), Status> {
        self.window.execute(op)
    }

    fn prefetch(&self, kind: OpKind, extent: Extent) {
        // Reads are looked up when they are admitted, at once after this.
        if kind == OpKind::Write {
            self.window.prefetch(extent);
        }
    }

    fn announce_read(&self, extent: Extent) {
        self.window.prefetch(extent);
    }

    fn settle(&self, ticket: Ticket) -> Result<Settled, Status> {
        self.window.settle(ticket)
    }

    fn release(&self, ticket: Ticket) {
        self.window.release(ticket);
    }
}

impl Storage for CacheVolume {
    fn spec(&self) -> VolumeSpec {
        let geometry = self.geometry();
        VolumeSpec {
            size: ByteSize(geometry.len_bytes()),
            block_size: geometry.block_size,
            kind: VolumeKind::Cache {
                of: [self.member.name.clone()],
                settings: self.settings(),
            },
        }
    }

    fn used_bytes(&self) -> u64 {
        self.statistics().resident_bytes
    }

    /// Grows with the slower volume, which grows first unless it is that large already.
    fn resize(
        &self,
        size: ByteSize,
        progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<(), VolumeError> {
        let from = self.spec().size;
        if size < from {
            return Err(VolumeError::CacheCannotShrink { from, to: size });
        }
        if self.member.size() < size {
            self.member.volume.resize(size, progress)?;
        }
        let derived = self.member.size();
        if derived != size {
            let given = size;
            return Err(VolumeError::DerivedSize { given, derived });
        }
        let block_shift = self.geometry().block_size.shift();
        self.window.grow(Blocks(size.0 >> block_shift));
        Ok(())
    }

    fn erase(&self) -> Result<(), VolumeError> {
        self.window.erase_all().map_err(VolumeError::Storage)
    }

    fn flush(&self) -> Result<(), VolumeError> {
        self.window.flush().map_err(VolumeError::Unflushed)
    }

    fn close(&self) {
        self.window.close();
        self.backing.close();
        let mut worker = self.worker.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(worker) = worker.take() {
            worker.join();
        }
    }

    fn outlives_program(&self) -> bool {
        self.member.volume.storage().outlives_program()
    }

    fn problem(&self) -> Option<String> {
        (!self.is_ready()).then(|| self.member.problem())
    }

    fn cache(&self) -> Option<&dyn Caching> {
        Some(self)
    }
}

impl Drop for CacheVolume {
    fn drop(&mut self) {
        self.close();
    }
}

#[cfg(test)]
mod tests;
