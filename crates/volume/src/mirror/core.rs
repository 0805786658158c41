//! What a mirror and its thread share.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};

use block::{Blocks, ByteRange, Extent, Geometry, Lba};
use memory::Charge;
use window::{Window, WindowOptions};

use super::legs::{LegClient, Legs};
use super::memory::{Bench, MemoryEngine};
use super::recorder::Recorder;
use super::standing::Standings;
use crate::managed::Member;
use crate::members::Members;
use crate::volume_backing::{BackingThread, VolumeBacking};
use crate::{ManagedVolume, Platform, VolumeError};

/// Members, their standings, and the way operations take to them.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) geometry: Geometry,
    pub(super) members: Members,
    pub(super) standings: Arc<Standings>,
    pub(super) engine: Engine,
    pub(super) platform: Platform,
    /// Bytes per second that are copied to members at most; 0 for no limit.
    pub(super) resync_rate: AtomicU64,
    /// Bytes that were copied to members.
    pub(super) copied_bytes: AtomicU64,
    pub(super) recorder: Recorder,
    /// The memory of what is known of members.
    pub(super) charges: Mutex<Vec<Charge>>,
}

/// How operations are carried out.
#[derive(Debug)]
pub(super) enum Engine {
    /// All members are memory.
    Memory(MemoryEngine),
    /// Members may make commands wait: a window orders them.
    Window {
        window: Arc<Window>,
        legs: Arc<Legs>,
        workers: Mutex<Vec<BackingThread>>,
    },
}

impl Core {
    pub(super) fn volume(&self, place: usize) -> &dyn ManagedVolume {
        &*self.members.get(place).volume
    }

    pub(super) fn bench(&self) -> Bench<'_> {
        Bench {
            geometry: self.geometry,
            members: &self.members,
            standings: &self.standings,
        }
    }

    /// The blocks of bytes.
    pub(super) fn extent(&self, range: ByteRange) -> Extent {
        let shift = self.geometry.block_size.shift();
        Extent::new(Lba(range.offset >> shift), Blocks(range.len >> shift))
    }

    /// Calls `copy` while nothing changes the bytes of `range`.
    pub(super) fn exclude<T>(&self, range: ByteRange, copy: impl FnOnce() -> T) -> T {
        match &self.engine {
            Engine::Memory(memory) => {
                let _held = memory.exclude(&[range]);
                copy()
            }
            Engine::Window { legs, .. } => {
                let _held = legs.exclude(range);
                copy()
            }
        }
    }

    /// Waits until nothing is in flight on a member that was replaced.
    pub(super) fn retire(&self, place: usize) {
        match &self.engine {
            Engine::Memory(memory) => drop(memory.exclude(&[ByteRange {
                offset: 0,
                len: self.geometry.len_bytes(),
            }])),
            Engine::Window { legs, .. } => legs.retire(place),
        }
    }

    /// Ends what carries operations out, while sessions may still refer to the mirror.
    pub(super) fn close(&self) {
        if let Engine::Window {
            window,
            legs,
            workers,
        } = &self.engine
        {
            window.close();
            legs.close();
            let mut workers = workers.lock().unwrap_or_else(PoisonError::into_inner);
            for worker in workers.drain(..) {
                worker.join();
            }
        }
    }
}

impl Engine {
    /// The engine for these members.
    ///
    /// # Errors
    /// If memory cannot be allocated or a thread not be started.
    pub(super) fn new(
        geometry: Geometry,
        members: &[Member],
        standings: &Arc<Standings>,
        platform: &Platform,
    ) -> Result<Self, VolumeError> {
        if members.iter().all(|member| member.store().is_some()) {
            return Ok(Self::Memory(MemoryEngine::new()));
        }
        let legs = Arc::new(Legs::new(standings));
        let window = platform.window(
            geometry,
            WindowOptions::FRAME_BYTES_MAX,
            Arc::clone(&legs) as _,
        );
        let engine = Self::Window {
            window,
            legs,
            workers: Mutex::default(),
        };
        for (place, member) in members.iter().enumerate() {
            engine.add(place, member, platform)?;
        }
        Ok(engine)
    }

    /// Carries operations out on another member, too. Members of memory need nothing.
    ///
    /// # Errors
    /// If memory cannot be allocated or a thread not be started.
    pub(super) fn add(
        &self,
        place: usize,
        member: &Member,
        platform: &Platform,
    ) -> Result<(), VolumeError> {
        let Self::Window {
            window,
            legs,
            workers,
        } = self
        else {
            return Ok(());
        };
        let backing = VolumeBacking::new(platform);
        let client = Arc::new(LegClient {
            legs: Arc::clone(legs),
            window: Arc::clone(window),
            place,
        });
        let frame_bytes = WindowOptions::FRAME_BYTES_MAX as usize;
        let worker = backing.start(&member.volume, client, frame_bytes, platform)?;
        legs.add(backing, member.store().is_some());
        let mut workers = workers.lock().unwrap_or_else(PoisonError::into_inner);
        workers.push(worker);
        Ok(())
    }
}

impl Drop for Engine {
    /// Ends the threads of members if the mirror was never complete.
    fn drop(&mut self) {
        if let Self::Window { legs, .. } = self {
            legs.close();
        }
    }
}
