//! A cache: memory in front of a slower volume.
//!
//! ```text
//!  sessions ──► CacheVolume ──► window::Window, which keeps frames ──► VolumeBacking ──► slower volume
//! ```

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use block::{Admission, Geometry, Intent, Op, Settled, Status, Ticket, Volume, WriteCache};
use window::{Backing, BackingClient, CacheOptions, Ended, RequestId, Window};

use crate::ByteSize;
use crate::cache_settings::{CacheMode, CacheSettings, CacheStatistics};
use crate::managed::{Caching, Member, Storage};
use crate::spec::{self, Platform, VolumeError, VolumeKind, VolumeSpec};
use crate::volume_backing::{Client, VolumeBacking};

/// Background writes of a tick, at least.
const CLEANED_MIN: usize = 16;
/// Dirty blocks are written within about so many ticks.
const CLEANED_WITHIN: usize = 50;

/// Memory in front of a slower volume, which it holds.
#[derive(Debug)]
pub struct CacheVolume {
    window: Arc<Window>,
    backing: Arc<VolumeBacking>,
    member: Member,
    settings: Mutex<CacheSettings>,
    worker: Mutex<Option<JoinHandle<()>>>,
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
        let backing = VolumeBacking::new(&platform.relay);
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
            worker: Mutex::new(Some(worker)),
        })
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
        *self.settings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, settings: CacheSettings) -> Result<(), VolumeError> {
        spec::check_cache(settings)?;
        let mut current = self.settings.lock().unwrap_or_else(PoisonError::into_inner);
        if settings.block != current.block {
            return Err(VolumeError::CacheBlockStays {
                given: settings.block,
                block: current.block,
            });
        }
        check_use(settings, self.member.size())?;
        self.window.set_cache(options(settings))?;
        *current = settings;
        drop(current);
        if settings.mode == CacheMode::WriteBack {
            return Ok(());
        }
        self.window.flush().map_err(VolumeError::Unflushed)
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
            // A panic of it has been reported; there is nothing left to wait for.
            let _ = worker.join();
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
