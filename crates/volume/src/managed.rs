//! What a manager does with a volume of any kind: it locks the volume, takes it offline, sets
//! filters, resizes, erases and removes it.
//!
//! ```text
//!  sessions ──► Managed: block::Volume ──► Controls (flags, filters) ──► the kind: block::Volume
//!  manager ───► Managed: ManagedVolume ─┬► Controls
//!                                       └► the kind: Storage
//! ```

use std::fmt::Debug;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Instant;

use block::{
    Admission, Allocation, ByteRange, Extent, Geometry, HostPath, Intent, Op, OpKind, Pinned,
    Settled, Status, Ticket, Volume, WriteCache,
};
use memory::{Progress, Snapshot, Store};

use crate::cache_settings::{CacheSettings, CacheStatistics};
use crate::damage::Damage;
use crate::filters::{FilterSpec, Filters};
use crate::increments::Tracked;
use crate::loading::Loading;
use crate::mirror_info::{MirrorInfo, Repair, ScrubReport};
use crate::replication_info::ReplicationInfo;
use crate::{ByteSize, VolumeError, VolumeKind, VolumeSpec};

/// The volume was removed.
const GONE: u8 = 1;
/// Writes are refused.
const READ_ONLY: u8 = 1 << 1;
/// At least one filter is set.
const FILTERED: u8 = 1 << 2;
/// Nothing is executed.
const OFFLINE: u8 = 1 << 3;
/// Some blocks are not read yet from the file that the volume is restored from.
const LOADING: u8 = 1 << 4;

/// Learns that [`Volume::path`] may have changed. It is called from any thread, and from inside
/// calls of the volume too, so it neither waits nor calls the volume.
pub type PathWatcher = Arc<dyn Fn() + Send + Sync>;

/// What a kind of volume implements besides [`Volume`], so that it can be managed.
pub trait Storage: Send + Sync + Debug {
    /// What the volume is, with its present size.
    fn spec(&self) -> VolumeSpec;

    /// Memory or space that its blocks take, in bytes.
    fn used_bytes(&self) -> u64;

    /// Changes the capacity while the volume is in use. `size` is valid for the volume. Blocks
    /// beyond a smaller size are lost. A kind that allocates the added memory now reports to
    /// `progress`, which may cancel the resize. A volume that is made of others has the size of its
    /// members, unless its kind says otherwise.
    ///
    /// # Errors
    /// If memory could not be allocated, or the size cannot change. The capacity is then unchanged.
    #[expect(unused_variables, reason = "the members decide")]
    fn resize(
        &self,
        size: ByteSize,
        progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<(), VolumeError> {
        Err(VolumeError::SizeOfMembers)
    }

    /// Makes all blocks read as zeros, and frees what they took if the kind can. A kind whose
    /// blocks are not in memory waits until they are zeros on stable storage.
    ///
    /// # Errors
    /// If the volume cannot be erased, if what stores its blocks fails, or, with snapshots, if
    /// memory for what these show could not be allocated: some blocks are zeros then.
    fn erase(&self) -> Result<(), VolumeError>;

    /// Writes what only memory holds to where it is kept, and waits for that. For what no session
    /// may have flushed: at shutdown and before the volume is removed.
    ///
    /// # Errors
    /// If it cannot be written. It stays in memory.
    fn flush(&self) -> Result<(), VolumeError> {
        Ok(())
    }

    /// The volume was created a moment ago, and is removed because what it was created for has
    /// failed: what its creation left outside the program is removed, unless something was written
    /// to it.
    fn undo_creation(&self) {}

    /// Frees what all blocks take, while sessions may still refer to the volume. Nothing is
    /// executed any more. A file stays, and is free for other uses.
    fn close(&self);

    /// Like [`close`](Self::close), but the same volume may be created again of its members, in
    /// this run of the program or, after a crash, in the next.
    fn free_members(&self) {
        self.close();
    }

    /// Whether what was written is there when the program runs again.
    fn outlives_program(&self) -> bool {
        true
    }

    /// Why the volume executes nothing, if it could not be opened.
    fn problem(&self) -> Option<String> {
        None
    }

    /// The ways to its disk, if that is on another machine.
    fn paths(&self) -> Vec<PathInfo> {
        Vec::new()
    }

    /// The memory of a kind of volume that can have snapshots.
    fn store(&self) -> Option<&Arc<Store>> {
        None
    }

    /// Itself, if it is a cache.
    fn cache(&self) -> Option<&dyn Caching> {
        None
    }

    /// Itself, if it is a mirror.
    fn mirror(&self) -> Option<&dyn Mirroring> {
        None
    }

    /// How its copies are, if it is replicated.
    fn replication(&self) -> Option<ReplicationInfo> {
        None
    }

    /// Has `watcher` called after each change of [`Volume::path`], in the place of an earlier one.
    /// The path of most kinds never changes.
    #[expect(unused_variables, reason = "the path never changes")]
    fn watch_path(&self, watcher: PathWatcher) {}

    /// Changes the settings of a cache or a mirror to those of `kind` while it is in use. Other
    /// kinds have none.
    ///
    /// # Errors
    /// If it is of another kind, a setting is invalid, the budget has no room, or what was written
    /// could not be flushed for a mode that promises it.
    fn set_settings(&self, kind: &VolumeKind) -> Result<(), VolumeError> {
        match (kind, self.mirror(), self.cache()) {
            (VolumeKind::Mirror { resync_rate, .. }, Some(mirror), _) => {
                mirror.set_resync_rate(*resync_rate);
                Ok(())
            }
            (VolumeKind::Mirror { .. }, None, _) => Err(VolumeError::NotAMirror {
                kind: self.spec().kind,
            }),
            (VolumeKind::Cache { settings, .. }, _, Some(cache)) => cache.set(*settings),
            (VolumeKind::Cache { .. }, _, None) => Err(VolumeError::NotACache {
                kind: self.spec().kind,
            }),
            _ => Ok(()),
        }
    }

    /// Checks what [`set_settings`](Self::set_settings) checks before anything changes, except for
    /// the kind and the budget.
    ///
    /// # Errors
    /// If a setting is invalid for the volume.
    fn check_settings(&self, kind: &VolumeKind) -> Result<(), VolumeError> {
        match (kind, self.cache()) {
            (VolumeKind::Cache { settings, .. }, Some(cache)) => cache.check(*settings),
            _ => Ok(()),
        }
    }

    /// Itself, if it is made of others, to which one can be added.
    fn extendable(&self) -> Option<&dyn Extendable> {
        None
    }

    /// What the volume shows, if it is a snapshot.
    fn snapshot(&self) -> Option<&Arc<Snapshot>> {
        None
    }
}

/// A way to a disk on another machine, as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathInfo {
    /// Its URL.
    pub url: String,
    /// Whether it is connected. Of those that are, one is used.
    pub is_up: bool,
    /// Why it is not connected.
    pub problem: Option<String>,
    /// How often it was connected.
    pub connects: u64,
    /// How often its connection was lost, or given up because commands were not answered.
    pub losses: u64,
    /// How many commands the other side failed, including those that were tried again.
    pub errors: u64,
}

/// A volume that another is made of.
#[derive(Clone, Debug)]
pub struct Member {
    /// Its name.
    pub name: String,
    /// The volume.
    pub volume: Arc<dyn ManagedVolume>,
}

/// A volume to which members can be added while it is in use.
pub trait Extendable {
    /// Adds a member. The volume grows by it at once.
    ///
    /// # Errors
    /// If it is another kind of volume, or the member does not fit.
    fn add_member(&self, new: Member) -> Result<(), VolumeError>;

    /// Checks a member that is to be added: what sessions know of the volume has to stay true.
    ///
    /// # Errors
    /// Those of [`add_member`](Self::add_member).
    fn check_addition(&self, new: &Member) -> Result<(), VolumeError>;
}

/// What can be done with a mirror besides.
pub trait Mirroring {
    /// How its members are.
    fn info(&self) -> MirrorInfo;

    /// Takes a member out of use until it is returned.
    ///
    /// # Errors
    /// If there is no such member, or it has the only good copy.
    fn fail_member(&self, name: &str) -> Result<(), VolumeError>;

    /// Uses a member again. What it missed is copied to it in the background.
    ///
    /// # Errors
    /// If there is no such member.
    fn return_member(&self, name: &str) -> Result<(), VolumeError>;

    /// Uses another volume instead of a member while hosts use the mirror. Everything is copied to
    /// it in the background. When this returns, nothing is in flight on the old member.
    ///
    /// # Errors
    /// Those of [`check_replacement`](Self::check_replacement), or if memory could not be
    /// allocated.
    fn replace_member(&self, old: &str, new: Member) -> Result<(), VolumeError>;

    /// Checks a replacement: what sessions know of the mirror has to stay true.
    ///
    /// # Errors
    /// If there is no such member, it has the only good copy, or the new one does not fit.
    fn check_replacement(&self, old: &str, new: &Member) -> Result<(), VolumeError>;

    /// Compares what members in sync hold while hosts use the mirror; see [`Repair`]. `progress`
    /// may end that.
    ///
    /// # Errors
    /// If no member can be read at some place.
    fn scrub(
        &self,
        repair: Repair,
        progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<ScrubReport, VolumeError>;

    /// Sets how many bytes per second are copied to members and compared at most.
    fn set_resync_rate(&self, rate: Option<ByteSize>);
}

/// What can be done with a cache besides.
pub trait Caching {
    /// What it is set to.
    fn settings(&self) -> CacheSettings;

    /// Checks settings for [`set`](Self::set).
    ///
    /// # Errors
    /// If the unit differs or the size is invalid.
    fn check(&self, settings: CacheSettings) -> Result<(), VolumeError>;

    /// Changes mode, size and bypass while the cache is in use; its unit stays. If write-back ends
    /// or the cache becomes smaller, what was dirty has reached the slower volume when this
    /// returns, and memory that a smaller cache does not keep is free.
    ///
    /// # Errors
    /// If the unit differs, the size is invalid, memory could not be allocated, or the slower
    /// volume fails. The settings are those of before then.
    fn set(&self, settings: CacheSettings) -> Result<(), VolumeError>;

    /// What it has done.
    fn statistics(&self) -> CacheStatistics;
}

/// A volume with the controls of its manager, whatever its kind. Implemented by [`Managed`].
pub trait ManagedVolume: Volume + Debug {
    /// What the kind of the volume implements.
    fn storage(&self) -> &dyn Storage;

    /// Lock, availability and filters.
    fn controls(&self) -> &Controls;

    /// Changes the capacity while the volume is in use; see [`Storage::resize`].
    ///
    /// # Errors
    /// If no volume can have this size, if memory could not be allocated, or if the volume
    /// was removed.
    fn resize(
        &self,
        size: ByteSize,
        progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<(), VolumeError> {
        let wanted = VolumeSpec {
            size,
            ..self.storage().spec()
        };
        wanted.check()?;
        if self.controls().has(GONE) {
            return Err(VolumeError::Gone);
        }
        self.storage().resize(size, progress)
    }

    /// Removes the volume: every later command fails with [`Status::Gone`], and its memory is free
    /// at once, even while sessions still refer to it. What only memory held of it, and could not
    /// be flushed, is lost.
    fn remove(&self) {
        self.controls().raise(GONE);
        // Who removes a volume flushes it before, and decides what a failure means. This is for
        // what was written since.
        let _ = self.storage().flush();
        self.storage().close();
    }

    /// Removes the volume such that its members are free, and that it can be created again of them;
    /// see [`Storage::free_members`].
    fn free_members(&self) {
        self.controls().raise(GONE);
        let _ = self.storage().flush();
        self.storage().free_members();
    }
}

/// Whether a volume refuses writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WriteLock {
    /// Reads and writes are executed.
    #[default]
    Writable,
    /// Writes are refused.
    ReadOnly,
}

/// Whether a volume executes commands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Availability {
    /// It does.
    #[default]
    Online,
    /// Every command fails with [`Status::NotReady`].
    Offline,
}

/// What the manager of a volume has set: lock, availability and filters; and what is not restored
/// yet.
#[derive(Debug, Default)]
pub struct Controls {
    flags: AtomicU8,
    filters: Mutex<Filters>,
    loading: RwLock<Option<Arc<Loading>>>,
    tracked: Mutex<Option<Tracked>>,
}

impl Controls {
    /// Refuses writes from now on, or executes them again.
    pub fn set_write_lock(&self, lock: WriteLock) {
        match lock {
            WriteLock::ReadOnly => self.raise(READ_ONLY),
            WriteLock::Writable => self.lower(READ_ONLY),
        }
    }

    /// Whether writes are refused.
    pub fn write_lock(&self) -> WriteLock {
        if self.has(READ_ONLY) {
            WriteLock::ReadOnly
        } else {
            WriteLock::Writable
        }
    }

    /// Executes no command from now on, or executes them again.
    pub fn set_availability(&self, availability: Availability) {
        match availability {
            Availability::Offline => self.raise(OFFLINE),
            Availability::Online => self.lower(OFFLINE),
        }
    }

    /// Whether commands are executed.
    pub fn availability(&self) -> Availability {
        if self.has(OFFLINE) {
            Availability::Offline
        } else {
            Availability::Online
        }
    }

    /// Replaces all filters; those that were set forget what they counted.
    pub fn set_filters(&self, spec: FilterSpec) {
        let mut filters = self.lock_filters();
        if spec.is_empty() {
            self.lower(FILTERED);
        } else {
            self.raise(FILTERED);
        }
        *filters = Filters::new(spec);
    }

    /// The filters that are set.
    pub fn filters(&self) -> FilterSpec {
        self.lock_filters().spec().clone()
    }

    /// What the file that the volume was restored from could not give, and no host has written
    /// since: reads of it fail.
    pub fn damage(&self) -> Damage {
        let loading = self.loading();
        loading.map_or_else(Damage::default, |loading| loading.damage())
    }

    /// Whether some of the volume is missing in memory.
    pub(crate) fn is_loading(&self) -> bool {
        self.has(LOADING)
    }

    /// Serves the volume, which is offline and holds zeros, while it is loaded.
    pub(crate) fn begin_loading(&self, loading: Arc<Loading>) {
        *self.loading.write().unwrap_or_else(PoisonError::into_inner) = Some(loading);
        self.raise(LOADING);
    }

    /// The volume is what is in memory from now on: damaged parts become what was written there, or
    /// zeros. Nothing is being loaded.
    pub fn end_loading(&self) {
        self.lower(LOADING);
        *self.loading.write().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// What is known for the next increment of the volume's save.
    pub(crate) fn tracked(&self) -> MutexGuard<'_, Option<Tracked>> {
        // It is replaced as a whole.
        self.tracked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The volume was saved.
    pub(crate) fn set_tracked(&self, tracked: Tracked) {
        let former = self.tracked().replace(tracked);
        drop(former);
    }

    /// Notes no longer what changes: the next save is complete.
    pub fn end_tracking(&self) {
        let former = self.tracked().take();
        drop(former);
    }

    /// What is not restored yet.
    fn loading(&self) -> Option<Arc<Loading>> {
        if !self.has(LOADING) {
            return None;
        }
        let loading = self.loading.read();
        loading.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What lock, availability and filters say about a command. Never [`Admission::Later`] or
    /// [`Admission::NowThenSettle`].
    fn admit(&self, now: Instant, intent: &Intent<'_>) -> Admission {
        let flags = self.flags();
        let writes = matches!(intent.kind, OpKind::Write | OpKind::Discard);
        if flags & GONE != 0 {
            Admission::Fail(Status::Gone, None)
        } else if flags & OFFLINE != 0 {
            Admission::Fail(Status::NotReady, None)
        } else if flags & READ_ONLY != 0 && writes {
            Admission::Fail(Status::WriteProtected, None)
        } else if flags & FILTERED != 0 {
            self.lock_filters()
                .admit(now, intent.kind, intent.len_bytes)
        } else {
            Admission::Now
        }
    }

    /// Refuses what the flags forbid.
    #[cold]
    pub(crate) fn check(&self, op: &Op<'_>) -> Result<(), Status> {
        if self.has(GONE) {
            return Err(Status::Gone);
        }
        if self.has(OFFLINE) {
            return Err(Status::NotReady);
        }
        match op {
            Op::Write { .. }
            | Op::WriteZeroes { .. }
            | Op::Discard { .. }
            | Op::CompareAndWrite { .. }
            | Op::Copy { .. }
                if self.has(READ_ONLY) =>
            {
                Err(Status::WriteProtected)
            }
            _ => Ok(()),
        }
    }

    fn has(&self, flag: u8) -> bool {
        self.flags() & flag != 0
    }

    fn flags(&self) -> u8 {
        self.flags.load(Ordering::Acquire)
    }

    fn raise(&self, flag: u8) {
        self.flags.fetch_or(flag, Ordering::Release);
    }

    fn lower(&self, flag: u8) {
        self.flags.fetch_and(!flag, Ordering::Release);
    }

    fn lock_filters(&self) -> MutexGuard<'_, Filters> {
        // Filters are replaced whole and change by single steps, so none is half done after a
        // panic.
        self.filters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A volume of the kind `V` with the controls of its manager. Sessions see both as one [`Volume`].
#[derive(Debug)]
pub struct Managed<V> {
    controls: Controls,
    volume: V,
}

impl<V: Volume + Storage> Managed<V> {
    /// `volume`, writable, online and without filters.
    pub fn new(volume: V) -> Self {
        Self {
            controls: Controls::default(),
            volume,
        }
    }

    /// The volume below the controls.
    pub fn volume(&self) -> &V {
        &self.volume
    }

    /// Has a command admitted that the controls permit.
    fn admit_below(&self, now: Instant, intent: &Intent<'_>, ticket: Ticket) -> Admission {
        let loading = self.controls.loading();
        match loading.map_or(Admission::Now, |loading| loading.admit(intent, ticket)) {
            Admission::Now => self.volume.admit(now, intent, ticket),
            not_now => not_now,
        }
    }

    /// Executes what the controls permit, while blocks are missing.
    #[cold]
    fn execute_while_loading(&self, op: Op<'_>) -> Result<(), Status> {
        let Some(loading) = self.controls.loading() else {
            return self.volume.execute(op);
        };
        let done = loading.execute(op, |op| self.volume.execute(op));
        if loading.is_complete() {
            self.controls.end_loading();
        }
        done
    }
}

impl<V: Volume + Storage> ManagedVolume for Managed<V> {
    fn storage(&self) -> &dyn Storage {
        &self.volume
    }

    fn controls(&self) -> &Controls {
        &self.controls
    }
}

impl<V: Volume + Storage> Volume for Managed<V> {
    fn geometry(&self) -> Geometry {
        self.volume.geometry()
    }

    fn is_read_only(&self) -> bool {
        self.controls.has(READ_ONLY) || self.volume.is_read_only()
    }

    fn is_ready(&self) -> bool {
        !self.controls.has(OFFLINE) && self.volume.is_ready()
    }

    fn write_cache(&self) -> WriteCache {
        self.volume.write_cache()
    }

    fn path(&self) -> HostPath {
        self.volume.path()
    }

    fn admit(&self, now: Instant, intent: &Intent<'_>, ticket: Ticket) -> Admission {
        if self.controls.flags() == 0 {
            return self.volume.admit(now, intent, ticket);
        }
        match self.controls.admit(now, intent) {
            Admission::NotBefore(due) => self.admit_below(now, intent, ticket).held_until(due),
            failed @ Admission::Fail(..) => failed,
            _ => self.admit_below(now, intent, ticket),
        }
    }

    fn execute(&self, op: Op<'_>) -> Result<(), Status> {
        if self.controls.has(GONE | OFFLINE | READ_ONLY | LOADING) {
            self.controls.check(&op)?;
            return self.execute_while_loading(op);
        }
        self.volume.execute(op)
    }

    fn allocation(&self, range: ByteRange) -> Allocation {
        if self.controls.has(LOADING) {
            // What is missing may hold anything.
            return Allocation {
                allocated: true,
                len_bytes: range.len,
            };
        }
        self.volume.allocation(range)
    }

    fn copies_discarded(&self) -> bool {
        self.volume.copies_discarded()
    }

    fn prefetch(&self, kind: OpKind, extent: Extent) {
        self.volume.prefetch(kind, extent);
    }

    fn announce_read(&self, extent: Extent) {
        self.volume.announce_read(extent);
    }

    fn settle(&self, ticket: Ticket) -> Result<Settled, Status> {
        self.volume.settle(ticket)
    }

    fn release(&self, ticket: Ticket) {
        if let Some(loading) = self.controls.loading() {
            loading.release(ticket);
        }
        self.volume.release(ticket);
    }

    fn pinned(&self) -> Option<&dyn Pinned> {
        self.volume.pinned()
    }
}

#[cfg(test)]
mod tests;
