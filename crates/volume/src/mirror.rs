//! A mirror: several volumes that hold the same bytes.
//!
//! ```text
//!  all members in memory:  sessions ──► MirrorVolume ─┬─► member (Managed) ──► Store
//!                                                     └─► member (Managed) ──► Store
//!  otherwise:  sessions ──► window::Window ──► Legs ─┬─► VolumeBacking ──► member (Managed) ──► …
//!                                                    └─► VolumeBacking ──► member (Managed) ──► …
//! ```
//!
//! A change is answered when every member has carried it out or failed, so members in sync are
//! equal except in what is in flight. What a member misses is marked by region, and one thread
//! copies it to the member when that returns (`docs/design/0019-mirrors.md`).

mod access;
mod core;
mod legs;
mod memory;
mod record;
mod recorder;
mod recording;
mod regions;
mod resync;
mod scrub;
mod standing;

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use ::memory::Progress;
use block::{
    Admission, Allocation, ByteRange, Extent, Geometry, Intent, Op, OpKind, Persistence, Settled,
    Status, Ticket, Volume, WriteCache,
};

use crate::managed::{Member, Mirroring, Storage};
use crate::members::{Members, PLACES, bits};
use crate::mirror_info::{MirrorInfo, MirrorMember, Repair, ScrubReport};
use crate::{ByteSize, Origin, Platform, VolumeError, VolumeKind, VolumeSpec};

use self::core::{Core, Engine, Way};
use recorder::Recorder;
use regions::Division;
use standing::{LastCopy, Standings};

/// Several volumes that hold the same bytes. It holds them.
#[derive(Debug)]
pub struct MirrorVolume {
    core: Arc<Core>,
    write_cache: WriteCache,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Held while a member is replaced.
    replacing: Mutex<()>,
}

impl MirrorVolume {
    /// The mirror that `spec` says, of `members`. If it is new, the first has the contents; what
    /// the others hold differently is overwritten. Otherwise its record says which members were in
    /// sync.
    ///
    /// # Errors
    /// If they have other blocks or another size than `spec` says, the record of an earlier run
    /// cannot be used or a new one not be written, memory could not be allocated, or a thread not
    /// be started.
    pub(crate) fn new(
        spec: &VolumeSpec,
        members: Vec<Member>,
        origin: Origin,
        platform: &Platform,
    ) -> Result<Self, VolumeError> {
        check(spec, &members)?;
        let VolumeKind::Mirror { resync_rate, .. } = spec.kind else {
            unreachable!("the factory looks at the kind first");
        };
        let volatile = mask_of(&members, Member::is_volatile);
        let standings_bytes = Standings::memory_bytes(spec.size.0, members.len());
        let charge = platform.budget.reserve(standings_bytes)?;
        let division = Division::new(spec.size.0);
        let recorder = Recorder::new(platform, &members);
        let start = recorder.start(division, &members, origin)?;
        let standings = Standings::new(division, start, volatile);
        let standings = Arc::new(standings);
        let engine = Engine::new(spec.geometry(), &members, &standings, platform)?;
        let core = Arc::new(Core {
            geometry: spec.geometry(),
            members: Members::new(members),
            standings,
            engine,
            is_durable: AtomicBool::new(false),
            platform: platform.clone(),
            resync_rate: AtomicU64::new(resync_rate.map_or(0, |rate| rate.0)),
            copied_bytes: AtomicU64::new(0),
            recorder,
            charges: Mutex::new(vec![charge]),
        });
        let mirror = Self {
            core,
            write_cache: if volatile == 0 {
                WriteCache::Absent
            } else {
                WriteCache::Volatile
            },
            threads: Mutex::default(),
            replacing: Mutex::default(),
        };
        mirror.spawn("mirror-resync", resync::run)?;
        if mirror.core.recorder.has_file() {
            mirror.spawn("mirror-record", recording::run)?;
        }
        Ok(mirror)
    }

    fn spawn(&self, name: &str, run: fn(&Core)) -> Result<(), VolumeError> {
        let core = Arc::clone(&self.core);
        let thread = thread::Builder::new().name(name.to_owned());
        let thread = thread.spawn(move || run(&core));
        self.threads().push(thread.map_err(VolumeError::Thread)?);
        Ok(())
    }

    /// Ends all threads. Returns whether they had not been ended before.
    fn end(&self) -> bool {
        self.core.standings.close();
        let threads = std::mem::take(&mut *self.threads());
        let had_threads = !threads.is_empty();
        for thread in threads {
            // A panic of it has been reported; there is nothing left to wait for.
            let _ = thread.join();
        }
        self.core.close();
        had_threads
    }

    fn threads(&self) -> MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn members(&self) -> impl Iterator<Item = (usize, &Member)> {
        let present = bits(self.core.standings.present());
        present.map(|place| (place, self.core.members.get(place)))
    }

    fn in_sync(&self) -> impl Iterator<Item = &Member> {
        let in_sync = bits(self.core.standings.in_sync());
        in_sync.map(|place| self.core.members.get(place))
    }

    /// The place of a member.
    fn place_of(&self, name: &str) -> Result<usize, VolumeError> {
        let found = self.members().find(|(_, member)| member.name == name);
        found
            .map(|(place, _)| place)
            .ok_or_else(|| VolumeError::NoSuchMember {
                given: name.to_owned(),
                members: self.names().join(", "),
            })
    }

    fn names(&self) -> Vec<String> {
        self.members()
            .map(|(_, member)| member.name.clone())
            .collect()
    }
}

/// Checks blocks and sizes of members.
fn check(spec: &VolumeSpec, members: &[Member]) -> Result<(), VolumeError> {
    let sizes: Vec<_> = members.iter().map(Member::size).collect();
    let derived = spec.kind.size_over(&sizes)?;
    for member in members {
        member.check_blocks(spec.block_size)?;
    }
    // Members that replaced others may all be larger.
    if derived < spec.size {
        return Err(VolumeError::DerivedSize {
            given: spec.size,
            derived,
        });
    }
    Ok(())
}

fn mask_of(members: &[Member], is_in: impl Fn(&Member) -> bool) -> u64 {
    let members = members.iter().enumerate();
    members.fold(0, |set, (place, member)| {
        set | u64::from(is_in(member)) << place
    })
}

impl Mirroring for MirrorVolume {
    fn info(&self) -> MirrorInfo {
        let info = |(place, member): (usize, &Member)| {
            let standing = self.core.standings.info(place);
            MirrorMember {
                name: member.name.clone(),
                role: standing.role,
                cause: standing.cause,
                missing_bytes: standing.missing_bytes,
            }
        };
        MirrorInfo {
            members: self.members().map(info).collect(),
            resynced_bytes: self.core.copied_bytes.load(Ordering::Relaxed),
        }
    }

    fn fail_member(&self, name: &str) -> Result<(), VolumeError> {
        let place = self.place_of(name)?;
        let failed = self.core.standings.fail_by_person(place);
        failed.map_err(|LastCopy| VolumeError::LastCopy {
            member: name.to_owned(),
        })
    }

    fn return_member(&self, name: &str) -> Result<(), VolumeError> {
        self.core.standings.begin_return(self.place_of(name)?);
        Ok(())
    }

    fn check_replacement(&self, old: &str, new: &Member) -> Result<(), VolumeError> {
        let place = self.place_of(old)?;
        if self.core.standings.in_sync() == 1 << place {
            let member = old.to_owned();
            return Err(VolumeError::LastCopy { member });
        }
        new.check_blocks(self.core.geometry.block_size)?;
        let needed = ByteSize(self.core.geometry.len_bytes());
        if new.size() < needed {
            return Err(VolumeError::SmallReplacement {
                given: new.size(),
                needed,
            });
        }
        if self.core.standings.places() == PLACES {
            return Err(VolumeError::TooManyReplaced { max: PLACES });
        }
        Ok(())
    }

    fn replace_member(&self, old: &str, new: Member) -> Result<(), VolumeError> {
        let _one_at_a_time = self.replacing.lock();
        self.check_replacement(old, &new)?;
        let core = &self.core;
        let (place, new_place) = (self.place_of(old)?, core.standings.places());
        let charge = core.platform.budget.reserve(core.standings.set_bytes())?;
        let has_cache = new.is_volatile();
        if has_cache && self.write_cache == WriteCache::Absent {
            core.is_durable.store(true, Ordering::Release);
        }
        // Without a record, a member that outlives the program would be trusted after a restart.
        let begins_record = recording::is_missing_for(&new, core);
        if begins_record {
            recording::write_first(core)?;
        }
        core.engine.add(new_place, &new, core)?;
        if begins_record {
            self.spawn("mirror-record", recording::run)?;
            core.standings.begin_record();
        }
        core.members.add(new_place, new);
        let charges = core.charges.lock();
        charges.unwrap_or_else(PoisonError::into_inner).push(charge);
        let replaced = core.standings.replace(place, has_cache);
        replaced.map_err(|LastCopy| VolumeError::LastCopy {
            member: old.to_owned(),
        })?;
        core.retire(place);
        Ok(())
    }

    fn scrub(
        &self,
        repair: Repair,
        progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<ScrubReport, VolumeError> {
        scrub::scrub(&self.core, repair, progress).map_err(VolumeError::Storage)
    }

    fn set_resync_rate(&self, rate: Option<ByteSize>) {
        let rate = rate.map_or(0, |rate| rate.0);
        self.core.resync_rate.store(rate, Ordering::Relaxed);
    }
}

impl Volume for MirrorVolume {
    fn geometry(&self) -> Geometry {
        self.core.geometry
    }

    fn is_read_only(&self) -> bool {
        self.in_sync().any(|member| member.volume.is_read_only())
    }

    fn is_ready(&self) -> bool {
        self.in_sync().any(|member| member.volume.is_ready())
    }

    fn write_cache(&self) -> WriteCache {
        self.write_cache
    }

    fn admit(&self, now: Instant, intent: &Intent<'_>, ticket: Ticket) -> Admission {
        let changes = matches!(intent.kind, OpKind::Write | OpKind::Discard);
        // A lock of a member is no failure of it.
        if changes && self.is_read_only() {
            return Admission::Fail(Status::WriteProtected, None);
        }
        match self.core.engine.way() {
            Way::Memory(_) => memory::admit(self.core.bench(), now, intent, ticket),
            Way::Window(windowed) if changes && self.core.is_durable.load(Ordering::Acquire) => {
                let persistence = Persistence::Durable;
                let intent = Intent {
                    persistence,
                    ..*intent
                };
                windowed.window.admit(&intent, ticket)
            }
            Way::Window(windowed) => windowed.window.admit(intent, ticket),
        }
    }

    fn execute(&self, op: Op<'_>) -> Result<(), Status> {
        match self.core.engine.way() {
            Way::Memory(memory) => memory.execute(self.core.bench(), op),
            Way::Window(windowed) => windowed.window.execute(op),
        }
    }

    fn allocation(&self, range: ByteRange) -> Allocation {
        let first = self.in_sync().next();
        let first = first.expect("one member is always in sync");
        first.volume.allocation(range)
    }

    fn copies_discarded(&self) -> bool {
        self.members()
            .any(|(_, member)| member.volume.copies_discarded())
    }

    fn prefetch(&self, kind: OpKind, extent: Extent) {
        if let Way::Window(_) = self.core.engine.way() {
            return;
        }
        let used = if kind == OpKind::Read { 1 } else { usize::MAX };
        for member in self.in_sync().take(used) {
            member.volume.prefetch(kind, extent);
        }
    }

    fn settle(&self, ticket: Ticket) -> Result<Settled, Status> {
        match self.core.engine.way() {
            Way::Memory(_) => Ok(Settled::Done),
            Way::Window(windowed) => windowed.window.settle(ticket),
        }
    }

    fn release(&self, ticket: Ticket) {
        if let Way::Window(windowed) = self.core.engine.way() {
            windowed.window.release(ticket);
        }
    }
}

impl Storage for MirrorVolume {
    fn spec(&self) -> VolumeSpec {
        let rate = self.core.resync_rate.load(Ordering::Relaxed);
        VolumeSpec {
            size: ByteSize(self.core.geometry.len_bytes()),
            block_size: self.core.geometry.block_size,
            kind: VolumeKind::Mirror {
                members: self.names(),
                resync_rate: (rate != 0).then_some(ByteSize(rate)),
            },
        }
    }

    fn used_bytes(&self) -> u64 {
        let used = self
            .members()
            .map(|(_, member)| member.volume.storage().used_bytes());
        used.sum()
    }

    fn erase(&self) -> Result<(), VolumeError> {
        let erased = match self.core.engine.way() {
            Way::Memory(memory) => memory.execute(
                self.core.bench(),
                Op::Discard {
                    extent: Extent::new(block::Lba(0), self.core.geometry.blocks),
                },
            ),
            Way::Window(windowed) => windowed.window.erase_all(),
        };
        erased.map_err(VolumeError::Storage)
    }

    fn flush(&self) -> Result<(), VolumeError> {
        match self.core.engine.way() {
            Way::Memory(_) => Ok(()),
            Way::Window(windowed) => windowed.window.flush().map_err(VolumeError::Storage),
        }
    }

    fn close(&self) {
        if self.end() {
            self.core.recorder.remove();
        }
    }

    fn free_members(&self) {
        if self.end() {
            recording::end_for_now(&self.core);
        }
    }

    fn problem(&self) -> Option<String> {
        let first = self.in_sync().next()?;
        if !self.is_ready() {
            return Some(first.problem());
        }
        self.core.recorder.problem()
    }

    fn outlives_program(&self) -> bool {
        self.members()
            .any(|(_, member)| member.volume.storage().outlives_program())
    }

    fn mirror(&self) -> Option<&dyn Mirroring> {
        Some(self)
    }
}

impl Drop for MirrorVolume {
    /// The mirror stays, for the next run of the program.
    fn drop(&mut self) {
        if self.end() {
            recording::end(&self.core);
        }
    }
}

#[cfg(test)]
mod tests;
