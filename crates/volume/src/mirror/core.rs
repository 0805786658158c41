//! What a mirror and its thread share.

use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

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
    /// A member has a write cache that was not advertised to hosts, so each change of theirs is
    /// made durable.
    pub(super) is_durable: AtomicBool,
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
pub(super) struct Engine {
    memory: MemoryEngine,
    /// Absent as long as all members are memory.
    windowed: OnceLock<Windowed>,
}

/// Members may make commands wait: a window orders them.
#[derive(Debug)]
pub(super) struct Windowed {
    pub(super) window: Arc<Window>,
    pub(super) legs: Arc<Legs>,
    workers: Mutex<Vec<BackingThread>>,
}

/// How operations are carried out at present.
pub(super) enum Way<'a> {
    /// In the thread of the session.
    Memory(&'a MemoryEngine),
    /// Below a window.
    Window(&'a Windowed),
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
        let Some(windowed) = self.engine.windowed.get() else {
            if let Some(_held) = self.engine.memory.exclude(&[range]) {
                return copy();
            }
            // A window orders changes by now.
            return self.exclude(range, copy);
        };
        let _held = windowed.legs.exclude(range);
        copy()
    }

    /// Waits until nothing is in flight on a member that was replaced.
    pub(super) fn retire(&self, place: usize) {
        match self.engine.way() {
            Way::Memory(memory) => drop(memory.exclude(&[ByteRange {
                offset: 0,
                len: self.geometry.len_bytes(),
            }])),
            Way::Window(windowed) => windowed.legs.retire(place),
        }
    }

    /// Ends what carries operations out, while sessions may still refer to the mirror.
    pub(super) fn close(&self) {
        if let Some(windowed) = self.engine.windowed.get() {
            windowed.window.close();
            windowed.legs.close();
            let workers = windowed.workers.lock();
            let mut workers = workers.unwrap_or_else(PoisonError::into_inner);
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
        let engine = Self {
            memory: MemoryEngine::new(),
            windowed: OnceLock::new(),
        };
        if members.iter().any(|member| member.store().is_none()) {
            let windowed = Windowed::new(geometry, standings, platform);
            for (place, member) in members.iter().enumerate() {
                windowed.add(place, member, platform)?;
            }
            engine.set(windowed);
        }
        Ok(engine)
    }

    pub(super) fn way(&self) -> Way<'_> {
        let windowed = self.windowed.get();
        windowed.map_or(Way::Memory(&self.memory), Way::Window)
    }

    /// Carries operations out on another member of `core`, too. Members of memory beside others of
    /// memory need nothing. If it is the first one that is none, commands that were admitted before
    /// and are executed later fail such that hosts retry: no lease of the window holds their
    /// blocks.
    ///
    /// # Errors
    /// If memory cannot be allocated or a thread not be started.
    pub(super) fn add(&self, place: usize, new: &Member, core: &Core) -> Result<(), VolumeError> {
        if let Some(windowed) = self.windowed.get() {
            return windowed.add(place, new, &core.platform);
        }
        if new.store().is_some() {
            return Ok(());
        }
        let windowed = Windowed::new(core.geometry, &core.standings, &core.platform);
        let present = core.standings.present();
        for (place, member) in core.members.iter().enumerate() {
            if present >> place & 1 == 1 {
                windowed.add(place, member, &core.platform)?;
            } else {
                windowed.skip(place, &core.platform);
            }
        }
        windowed.add(place, new, &core.platform)?;
        self.memory.end(|| self.set(windowed));
        Ok(())
    }

    fn set(&self, windowed: Windowed) {
        let set = self.windowed.set(windowed);
        set.expect("members are added one at a time");
    }
}

impl Windowed {
    fn new(geometry: Geometry, standings: &Arc<Standings>, platform: &Platform) -> Self {
        let legs = Arc::new(Legs::new(standings));
        let backing = Arc::clone(&legs) as _;
        Self {
            window: platform.window(geometry, WindowOptions::FRAME_BYTES_MAX, backing),
            legs,
            workers: Mutex::default(),
        }
    }

    /// Has requests go to a member, too.
    fn add(&self, place: usize, member: &Member, platform: &Platform) -> Result<(), VolumeError> {
        let backing = VolumeBacking::new(platform);
        let client = Arc::new(LegClient {
            legs: Arc::clone(&self.legs),
            window: Arc::clone(&self.window),
            place,
        });
        let frame_bytes = WindowOptions::FRAME_BYTES_MAX as usize;
        let worker = backing.start(&member.volume, client, frame_bytes, platform)?;
        self.legs.add(place, backing, member.store().is_some());
        let workers = self.workers.lock();
        workers.unwrap_or_else(PoisonError::into_inner).push(worker);
        Ok(())
    }

    /// The next place is that of a member that was replaced, which gets no requests.
    fn skip(&self, place: usize, platform: &Platform) {
        let is_memory = true;
        self.legs
            .add(place, VolumeBacking::new(platform), is_memory);
    }
}

impl Drop for Windowed {
    /// Ends the threads of members if the mirror was never complete.
    fn drop(&mut self) {
        self.legs.close();
    }
}
