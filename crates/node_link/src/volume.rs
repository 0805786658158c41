//! A replicated volume on one node.
//!
//! ```text
//!  primary:    admit ─ Now or NowThenSettle ─► execute on memory, entries to members ─► settle: all have them
//!  elsewhere:  admit ─ Later: blocks are fetched from the primary ─► execute: commands to it ─► settle: answered
//!  neither:    admit ─ Later: until there is a primary
//! ```

mod forward;
mod host;
mod lease;
mod path;
mod state;
mod waiting;

use std::fmt;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError, Weak};
use std::time::{Duration, Instant};

use block::{
    Admission, ByteRange, Extent, Geometry, HostPath, Intent, Lba, Op, OpKind, PathState, ReadDest,
    Settled, Status, Ticket, Volume,
};
use memory::{Budget, Layout, Provision, Store};
use replica::{Body, Config, Contents, Envelope, Epoch, HostReply, LocalTime, MemberId, StoreOp};

use crate::agreement::VolumeId;
use crate::clock::now;
use crate::committed::{Stripes, read_committed};
use crate::links::Links;
use crate::medium::{StoreMedium, byte_range};
use crate::options::{NodeError, VolumeOptions};
use path::PathCell;
use state::{Effects, State};

/// What a node is to a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It does not know the configuration yet.
    Unknown,
    /// It serves the volume.
    Primary,
    /// It has a copy in sync.
    Secondary,
    /// It has a copy that is not in sync.
    Returning,
    /// It has no copy.
    Absent,
}

/// What a node knows of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeStatus {
    /// What it is to the volume.
    pub role: Role,
    /// Whether it serves reads now.
    pub is_serving: bool,
    /// The epoch; 0: unknown.
    pub epoch: Epoch,
    /// Who serves the volume.
    pub primary: Option<MemberId>,
    /// The copies in sync.
    pub in_sync: Vec<MemberId>,
    /// Up to which epoch this node's copy has everything; with a copy only.
    pub complete_through: Option<Epoch>,
    /// Bytes of pieces that this node has sent to returning members.
    pub copied_bytes: u64,
    /// At the primary: the members that are brought up to date, and the first block that was not
    /// looked at for each.
    pub copies: Vec<(MemberId, Lba)>,
}

/// A volume whose blocks are in the memory of several nodes.
pub struct ReplicatedVolume {
    id: VolumeId,
    geometry: Geometry,
    /// The most bytes of one write or command.
    piece_bytes: u64,
    writes_max: usize,
    /// How old a command of another node may be.
    command_age_max: Duration,
    /// The memory of this node's copy; empty while it has none. Set by the first copy.
    store: OnceLock<Arc<Store>>,
    stripes: Stripes,
    /// Until when reads may be served, in nanoseconds of this node's clock; 0: they may not.
    serves_until: AtomicU64,
    /// Whether this node serves and its primary is about to move: reads that are admitted now might
    /// be executed afterwards.
    is_moving: AtomicBool,
    /// How many times this node ceased to serve. What a read took from memory before that does not
    /// count after it.
    ceased: AtomicU64,
    /// Ticks in a row that found the lock taken.
    ticks_skipped: AtomicU32,
    links: Arc<Links>,
    path: PathCell,
    state: Mutex<State>,
    this: Weak<Self>,
}

impl fmt::Debug for ReplicatedVolume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplicatedVolume")
            .field("id", &self.id)
            .field("geometry", &self.geometry)
            .finish_non_exhaustive()
    }
}

impl ReplicatedVolume {
    pub(crate) fn new(
        id: VolumeId,
        options: VolumeOptions,
        links: &Arc<Links>,
    ) -> Result<Arc<Self>, NodeError> {
        let geometry = options.geometry;
        let piece_bytes = options.check(links.node)?;
        let writes_max = options.settings.writes_max;
        let command_age_max = Self::COMMAND_AGE_MAX.min(options.settings.lease);
        let volume = Arc::new_cyclic(|this| Self {
            id,
            geometry,
            piece_bytes,
            writes_max,
            command_age_max,
            store: OnceLock::new(),
            stripes: Stripes::new(),
            serves_until: AtomicU64::new(0),
            is_moving: AtomicBool::new(false),
            ceased: AtomicU64::new(0),
            ticks_skipped: AtomicU32::new(0),
            links: Arc::clone(links),
            path: PathCell::new(),
            state: Mutex::new(State::new()),
            this: Weak::clone(this),
        });
        volume.place(options)?;
        Ok(volume)
    }

    /// Begins with an empty copy, or gives the copy up, as `options` say. Commands of its hosts go
    /// on. Not from several threads at a time.
    ///
    /// # Errors
    /// If memory could not be allocated, or this node serves the volume and would give it up.
    pub(crate) fn place(&self, options: VolumeOptions) -> Result<(), NodeError> {
        let has_copy = self.lock().member_id().is_some();
        match options.member {
            Some(id) if !has_copy => {
                let medium = StoreMedium {
                    store: Arc::clone(self.memory(options.budget)?),
                    block_size: self.geometry.block_size,
                };
                self.drive(|_, state, now| state.gain(now, id, options.settings, medium))
            }
            None if has_copy => {
                self.drive(|volume, state, _| {
                    if state.role() == Role::Primary {
                        return Err(NodeError::Serving);
                    }
                    for write in state.lose() {
                        volume.end_write(state, write, HostReply::Deposed);
                    }
                    Ok(())
                })?;
                // No member writes to it any more, and nobody is served from it.
                let store = self.store.get();
                Ok(store.map_or(Ok(()), |store| store.erase())?)
            }
            _ => Ok(()),
        }
    }

    /// The memory of this node's copy.
    fn memory(&self, budget: Arc<Budget>) -> Result<&Arc<Store>, NodeError> {
        if let Some(store) = self.store.get() {
            return Ok(store);
        }
        let store = Store::new(budget, Provision::Thin, Layout::DEFAULT);
        let len_bytes = self.geometry.len_bytes();
        store.resize(len_bytes, &mut |_| ControlFlow::Continue(()))?;
        Ok(self.store.get_or_init(|| Arc::new(store)))
    }

    /// What distinguishes this node's copy from others, if it has one.
    pub(crate) fn member(&self) -> Option<MemberId> {
        self.lock().member_id()
    }

    /// What this node knows.
    pub fn status(&self) -> VolumeStatus {
        let is_serving = self.serves_reads();
        self.lock().status(is_serving)
    }

    /// The bytes that this node's copy takes.
    pub fn used_bytes(&self) -> u64 {
        let store = self.store.get();
        store.map_or(0, |store| store.allocated_bytes())
    }

    /// Takes a configuration that the agreement has, so that this node need not ask for it.
    pub(crate) fn see(&self, config: Config) {
        self.drive(|_, state, now| state.see(now, config));
    }

    /// Moves the primary to a member in sync on a node that may have it, if it is here.
    pub(crate) fn move_away(&self) {
        let is_primary = self.serves_until.load(Ordering::SeqCst) > 0;
        if !is_primary {
            return;
        }
        self.drive(|volume, state, now| {
            let Some(member) = &mut state.member else {
                return;
            };
            let mut to = member.successors(now);
            to.retain(|id| !volume.links.is_drained(id.node));
            if to.is_empty() {
                return;
            }
            // Volumes that share their nodes do not all move to the same one.
            let place = volume.id.0 % to.len() as u64;
            member.begin_move(now, to[place as usize]);
        });
    }

    /// Does what is due, unless another thread holds the lock: other volumes wait for the clock,
    /// too. After a few calls that did nothing it waits for the lock, because a volume whose time
    /// stands still loses its lease.
    pub(crate) fn handle_tick(&self) {
        let state = match self.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                let skipped = self.ticks_skipped.fetch_add(1, Ordering::Relaxed);
                if skipped < Self::TICKS_SKIPPED_MAX {
                    return;
                }
                self.lock()
            }
        };
        self.ticks_skipped.store(0, Ordering::Relaxed);
        self.drive_locked(state, |volume, state, now| {
            if let Some(member) = &mut state.member {
                member.handle_tick(now);
            } else {
                state.watch(now);
            }
            volume.drain(state);
            volume.tick_forwards(state, now);
            state.expire_parked(now);
        });
    }

    pub(crate) fn handle_message(&self, envelope: Envelope<Contents>) {
        let block_size = envelope.body.block_size();
        if block_size.is_some_and(|given| given != self.geometry.block_size) {
            return;
        }
        // What follows from these need not wait for the clock: the next pieces of a copy, the move
        // of a primary, and its first beacons elsewhere.
        let is_urgent = matches!(envelope.body, Body::EntryAck { .. } | Body::Newer(_));
        self.drive(|_, state, now| {
            let Some(member) = &mut state.member else {
                return;
            };
            member.handle_message(now, envelope);
            if is_urgent {
                member.handle_tick(now);
            }
        });
    }

    /// Ends this node's part. Commands that wait fail.
    pub(crate) fn close(&self) {
        self.serves_until.store(0, Ordering::SeqCst);
        let mut state = self.lock();
        let failed = state.close();
        self.path.set(PathState::Inaccessible);
        drop(state);
        self.path.notify();
        self.links.completions.done_all(&failed);
        if let Some(store) = self.store.get() {
            store.close();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state, and carries out what follows. Not from within admit, settle and release:
    /// completions are reported.
    fn drive<R>(&self, change: impl FnOnce(&Self, &mut State, LocalTime) -> R) -> R {
        self.drive_locked(self.lock(), change)
    }

    fn drive_locked<R>(
        &self,
        mut state: MutexGuard<'_, State>,
        change: impl FnOnce(&Self, &mut State, LocalTime) -> R,
    ) -> R {
        // After the lock, so that the protocol sees times in ascending order.
        let now = now();
        let result = change(self, &mut state, now);
        // The lease first: a primary that was replaced forgets what is not committed.
        let is_ready = self.publish(&mut state);
        self.drain(&mut state);
        if is_ready || !state.knows_no_primary() {
            self.resume(&mut state, now);
        }
        let has_other_path = self.path.set(self.find_path(&state, now));
        let effects = state.take_effects();
        drop(state);
        if has_other_path {
            self.path.notify();
        }
        self.carry_out(effects);
        result
    }

    /// Sets until when reads may be served. Returns whether they may. What was fetched before this
    /// node serves is older than writes that it executes itself.
    fn publish(&self, state: &mut State) -> bool {
        let until = state.member.as_ref().and_then(|member| {
            let is_open = !state.is_closed;
            is_open.then(|| member.serves_reads_until()).flatten()
        });
        let ns = |time: LocalTime| u64::try_from(time.0.as_nanos()).unwrap_or(u64::MAX);
        let until = until.map_or(0, ns);
        let is_moving = until > 0 && !state.serves_writes();
        self.is_moving.store(is_moving, Ordering::SeqCst);
        let before = self.serves_until.swap(until, Ordering::SeqCst);
        match (before, until) {
            (1.., 0) => drop(self.ceased.fetch_add(1, Ordering::SeqCst)),
            (0, 1..) => state.fetch_floor = state.last_id,
            _ => {}
        }
        until > 0
    }

    fn carry_out(&self, effects: Effects) {
        self.links.completions.done_all(&effects.completions);
        for (id, op) in effects.asked {
            let this = Weak::clone(&self.this);
            let answer = move |config: Config| {
                if let Some(volume) = this.upgrade() {
                    volume.handle_store_reply(id, config);
                }
            };
            self.links.agreement.request(self.id, op, Box::new(answer));
        }
        if effects.is_watching {
            let this = Weak::clone(&self.this);
            let answer = move |config: Config| {
                if let Some(volume) = this.upgrade() {
                    volume.see(config);
                }
            };
            let read = StoreOp::Read;
            self.links
                .agreement
                .request(self.id, read, Box::new(answer));
        }
    }

    fn handle_store_reply(&self, id: replica::StoreRequestId, config: Config) {
        self.drive(|_, state, now| {
            if let Some(member) = &mut state.member {
                member.handle_store_reply(now, id, config);
                member.handle_tick(now);
            }
        });
    }

    /// Whether this node is primary and holds the lease, now.
    fn serves_reads(&self) -> bool {
        let now = now();
        // The clock first: a lease that ended or was renewed since then counts.
        let until = self.serves_until.load(Ordering::SeqCst);
        is_before(now, until)
    }

    /// Whether a read that is admitted now is executed here.
    fn admits_reads(&self) -> bool {
        !self.is_moving.load(Ordering::SeqCst) && self.serves_reads()
    }

    /// Reads what is committed from the own copy. `Ok(false)`: this node does not serve reads.
    fn read_here(&self, extent: Extent, dest: &mut [u8]) -> Result<bool, Status> {
        let Some(store) = self.store.get() else {
            return Ok(false);
        };
        let ceased = self.ceased.load(Ordering::SeqCst);
        if self.serves_until.load(Ordering::SeqCst) == 0 {
            return Ok(false);
        }
        let block_size = self.geometry.block_size;
        let offset = extent.lba.0 << block_size.shift();
        let done = self.stripes.read(store, offset, dest)?;
        if done < dest.len() {
            let state = self.lock();
            let (offset, rest) = (offset + done as u64, &mut dest[done..]);
            read_committed(store, state.overwritten(), block_size, offset, rest)?;
        }
        // The lease last: what was read was then the newest while no other node served.
        Ok(self.serves_reads() && self.ceased.load(Ordering::SeqCst) == ceased)
    }

    fn read(&self, extent: Extent, dest: &mut [u8]) -> Result<(), Status> {
        if self.read_here(extent, dest)? || self.lock().read_fetched(extent, dest) {
            return Ok(());
        }
        Err(Status::Busy)
    }

    /// The contents of `extent`, whose data have this length.
    fn check(&self, extent: Extent, data_len: usize) -> Result<(), Status> {
        let range = self.geometry.byte_range(extent)?;
        if range.len == data_len as u64 {
            Ok(())
        } else {
            Err(Status::Invalid)
        }
    }

    /// The bytes of an extent that was checked.
    fn byte_range(&self, extent: Extent) -> ByteRange {
        byte_range(self.geometry.block_size, extent)
    }
}

impl Volume for ReplicatedVolume {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn path(&self) -> HostPath {
        HostPath {
            state: self.path.get(),
            machine: self.links.node,
        }
    }

    fn admit(&self, _now: Instant, intent: &Intent<'_>, ticket: Ticket) -> Admission {
        if intent.kind == OpKind::Read && self.admits_reads() {
            return Admission::Now;
        }
        self.admit_with_lease(intent, ticket)
    }

    fn execute(&self, op: Op<'_>) -> Result<(), Status> {
        match op {
            Op::Read { extent, dest } => match dest {
                ReadDest::InPlace => self.geometry.byte_range(extent).map(drop),
                ReadDest::Copy(buffer) => {
                    self.check(extent, buffer.len())?;
                    self.read(extent, buffer)
                }
            },
            Op::Verify { extent } => self.geometry.byte_range(extent).map(drop),
            Op::Compare { extent, data } => {
                self.check(extent, data.len())?;
                self.compare(extent, data)
            }
            Op::Flush => Ok(()),
            Op::Write { extent, data } => {
                self.check(extent, data.len())?;
                self.write(extent, data)
            }
            Op::WriteZeroes { extent, .. } | Op::Discard { extent } => {
                self.geometry.byte_range(extent)?;
                self.write_zeroes(extent)
            }
            Op::CompareAndWrite {
                extent,
                compare,
                write,
            } => {
                self.check(extent, compare.len())?;
                self.check(extent, write.len())?;
                self.compare_and_write(extent, compare, write)
            }
            Op::Copy { from, to } => {
                self.geometry.byte_range(from)?;
                self.geometry.byte_range(Extent::new(to, from.blocks))?;
                self.copy(from, to)
            }
        }
    }

    fn settle(&self, ticket: Ticket) -> Result<Settled, Status> {
        self.lock().settle(ticket)
    }

    fn release(&self, ticket: Ticket) {
        self.lock().release(ticket);
    }
}

/// Whether a lease that ends after `until` nanoseconds of this node's clock holds.
fn is_before(now: LocalTime, until: u64) -> bool {
    u64::try_from(now.0.as_nanos()).is_ok_and(|now| now < until)
}

/// Time limits of commands.
impl ReplicatedVolume {
    /// How old a command of another node may be, by the clock of the primary alone: what a
    /// connection delays for longer is not executed, so that a host that has given it up meanwhile
    /// is not surprised. At most the lease: a primary that was replaced is not primary again
    /// sooner.
    pub(crate) const COMMAND_AGE_MAX: Duration = Duration::from_secs(1);
    /// How long an answer to a write is awaited, and a primary that takes it. Then the write was
    /// executed, or is too old to be executed.
    const WRITE_PATIENCE: Duration = Duration::from_secs(3);
    /// After which time a read is sent again.
    const READ_PATIENCE: Duration = Duration::from_millis(500);
    /// How many ticks in a row are skipped because the lock is taken.
    const TICKS_SKIPPED_MAX: u32 = 3;
    /// How often a node without a copy reads a configuration that it has seen before. Changes are
    /// passed to it as well.
    const WATCH_INTERVAL: Duration = Duration::from_secs(5);
    /// How long a command waits for a primary.
    const PARKED_MAX: Duration = Duration::from_secs(20);
}

#[cfg(test)]
mod tests;
