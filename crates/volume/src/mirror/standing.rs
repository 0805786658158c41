//! Which members of a mirror are in sync, and what the others miss.
//!
//! ```text
//!          ┌── failure, or a person ──────► Absent ──┐ answers again, or a person
//!  InSync ─┤                                  ▲      ▼
//!          └◄── nothing missing, flushed ── Resyncing
//! ```
//!
//! Reads use members in sync, writes those in sync or resyncing. What a write does not reach is
//! marked as missing before the write is done anywhere. Sets of members are masks: bit `n` is the
//! member in place `n`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use block::{ByteRange, Status};

use super::regions::{Division, Regions};
use crate::members::{PLACES, bits};
use crate::mirror_info::{Cause, Role};

/// How long a member that failed stays absent before it is tried again.
const RETRY_FIRST: Duration = Duration::from_secs(1);
/// The longest such time: it doubles with each failure.
const RETRY_MAX: Duration = Duration::from_secs(60);

/// Sets of regions besides those that members miss: `recent`, `older`, those of the record and
/// wanted there.
const SETS_BESIDES: u64 = 4;

/// What is known of members when a mirror starts.
#[derive(Debug)]
pub(super) struct Start {
    /// What each misses; `None` for the one in sync.
    pub(super) missing: Vec<Option<Regions>>,
    /// The regions that belong into the record, if there is one.
    pub(super) noted: Option<Regions>,
    /// Members that have the contents as well as the one in sync, which cannot be used yet. The
    /// record names them, too. Until one of them can be used, it is not written, and nothing is
    /// changed.
    pub(super) alternatives: u64,
}

/// The members of one mirror.
#[derive(Debug)]
pub(super) struct Standings {
    division: Division,
    /// Members from which is read.
    in_sync: AtomicU64,
    /// Members to which is written.
    written: AtomicU64,
    /// All members.
    present: AtomicU64,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    places: Vec<Standing>,
    /// Members that may lose with their power what was not flushed.
    volatile: u64,
    /// Regions that were written since the last flush began, and those before that no flush has
    /// completed for.
    recent: Regions,
    older: Regions,
    flushes: u64,
    /// Counts changes of roles.
    changes: u64,
    /// What the record says; `None` without one.
    noted: Option<Noted>,
    /// As in [`Start`]; 0 once it is decided which member has the contents.
    alternatives: u64,
    is_closing: bool,
}

/// What the record of a mirror says.
#[derive(Debug)]
struct Noted {
    /// The regions. What is being removed from the record is not here any more.
    regions: Regions,
    /// Regions that are to be in the record.
    wanted: Regions,
    /// `changes` at the roles in it.
    changes: u64,
}

#[derive(Debug)]
struct Standing {
    role: Role,
    /// Why it is absent.
    cause: Option<Cause>,
    missing: Regions,
    /// Counts what was added to `missing`, and failures.
    marks: u64,
    /// How often it has failed without having been in sync for [`RETRY_MAX`] in between.
    failures: u32,
    /// When it changed its role.
    since: Instant,
}

/// A member as it is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StandingInfo {
    pub(super) role: Role,
    pub(super) cause: Option<Cause>,
    pub(super) missing_bytes: u64,
}

/// A region that a member misses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Missing {
    pub(super) region: u64,
    pub(super) range: ByteRange,
    marks: u64,
}

/// What the record is to say.
#[derive(Debug)]
pub(super) struct ToRecord {
    pub(super) members: u64,
    pub(super) in_sync: u64,
    pub(super) regions: Regions,
    changes: u64,
}

/// What the thread of a mirror has to do.
#[derive(Debug)]
pub(super) struct Work {
    /// Members to which is copied.
    pub(super) resyncing: u64,
    /// Absent members that are to be tried again.
    pub(super) due: u64,
    /// When the next one is.
    next: Option<Instant>,
    changes: u64,
}

/// The member has the only good copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LastCopy;

impl Standings {
    /// Members in the first places. Those in `volatile` have a write cache.
    pub(super) fn new(division: Division, start: Start, volatile: u64) -> Self {
        let Start {
            missing,
            noted,
            alternatives,
        } = start;
        let in_sync = (missing.iter().enumerate()).fold(0, |set, (place, missing)| {
            set | u64::from(missing.is_none()) << place
        });
        let all = u64::MAX >> (PLACES - missing.len());
        let places = missing.into_iter().map(|missing| match missing {
            None => Standing::new(Role::InSync, Regions::none(division)),
            Some(missing) => Standing::new(Role::Resyncing, missing),
        });
        Self {
            division,
            in_sync: AtomicU64::new(in_sync),
            written: AtomicU64::new(all),
            present: AtomicU64::new(all),
            state: Mutex::new(State {
                places: places.collect(),
                volatile,
                recent: Regions::none(division),
                older: Regions::none(division),
                flushes: 0,
                changes: 0,
                noted: noted.map(|noted| {
                    let none = Regions::none(division);
                    // As long as it is open who has the contents, the record is as it was.
                    let (regions, wanted) = match alternatives {
                        0 => (noted, none),
                        _ => (none, noted),
                    };
                    Noted {
                        regions,
                        wanted,
                        changes: 0,
                    }
                }),
                alternatives,
                is_closing: false,
            }),
            changed: Condvar::new(),
        }
    }

    /// The memory of what is known of one member more, in bytes.
    pub(super) const fn set_bytes(&self) -> u64 {
        Regions::memory_bytes(self.division)
    }

    /// The memory of the standings of all members, in bytes.
    pub(super) fn memory_bytes(len_bytes: u64, members: usize) -> u64 {
        Regions::memory_bytes(Division::new(len_bytes)) * (members as u64 + SETS_BESIDES)
    }

    /// An empty set of regions.
    pub(super) fn no_regions(&self) -> Regions {
        Regions::none(self.division)
    }

    /// Members from which is read.
    pub(super) fn in_sync(&self) -> u64 {
        self.in_sync.load(Ordering::Acquire)
    }

    /// All members.
    pub(super) fn present(&self) -> u64 {
        self.present.load(Ordering::Acquire)
    }

    /// Decides which member has the contents, if that is open: the one in sync, or else another one
    /// of those in `ready`. Nothing was changed meanwhile, so each misses the same of the other.
    /// Returns whether it is decided.
    pub(super) fn decide(&self, ready: u64) -> bool {
        let state = &mut *self.state();
        if state.alternatives == 0 {
            return true;
        }
        let old = self.in_sync();
        if old & ready == 0 {
            let is_usable = |member: &usize| state.places[*member].cause != Some(Cause::Person);
            let usable = state.alternatives & self.present() & ready;
            let Some(new) = bits(usable).find(is_usable) else {
                return false;
            };
            let mut missing = Regions::none(self.division);
            std::mem::swap(&mut missing, &mut state.places[new].missing);
            state.places[new].cause = None;
            self.set_role(state, new, Role::InSync);
            for old in bits(old) {
                state.places[old].missing.insert_set(&missing);
                self.set_role(state, old, Role::Resyncing);
            }
        }
        state.alternatives = 0;
        self.changed.notify_all();
        true
    }

    /// Whether no member can be used that has the contents, since the start.
    pub(super) fn is_undecided(&self) -> bool {
        self.state().alternatives != 0
    }

    /// The members that a change of `range` goes to. The others miss it from now on. Called under
    /// what excludes copies of the range ([`super::engine`]).
    pub(super) fn begin_write(&self, range: ByteRange) -> u64 {
        let written = self.written.load(Ordering::Acquire);
        if written == self.present() {
            return written;
        }
        let mut state = self.state();
        let written = self.written.load(Ordering::Acquire);
        state.mark(self.present() & !written, range);
        written
    }

    /// `members` miss `range`.
    pub(super) fn mark(&self, members: u64, range: ByteRange) {
        if members != 0 {
            self.state().mark(members, range);
        }
    }

    /// Notes that a change of `range` may be in caches of members.
    pub(super) fn note_unflushed(&self, range: ByteRange) {
        self.state().recent.insert(range);
    }

    /// Whether the record has the regions of a change, without which it must not begin. Otherwise
    /// they will be in it.
    pub(super) fn note(&self, range: ByteRange) -> bool {
        let state = &mut *self.state();
        let Some(noted) = &mut state.noted else {
            return true;
        };
        let is_noted = noted.regions.covers(range);
        if !is_noted {
            noted.wanted.insert(range);
            self.changed.notify_all();
        }
        is_noted
    }

    /// Whether the record has the roles of members, without which no change must be answered.
    pub(super) fn has_recorded_roles(&self) -> bool {
        let state = self.state();
        let noted = state.noted.as_ref();
        noted.is_none_or(|noted| noted.changes == state.changes)
    }

    /// Waits until something is to be recorded, at most for `period`.
    pub(super) fn wait_for_record(&self, period: Duration) -> Option<ToRecord> {
        let until = Some(Instant::now() + period);
        self.wait_while(until, |state| !state.has_to_record());
        let state = self.state();
        state
            .has_to_record()
            .then(|| self.to_record(&state))
            .flatten()
    }

    /// What the first record of a mirror says that had none.
    pub(super) fn first_record(&self) -> ToRecord {
        let mut regions = Regions::none(self.division);
        regions.insert_all();
        ToRecord {
            members: self.present(),
            in_sync: self.in_sync(),
            regions,
            changes: self.state().changes,
        }
    }

    /// The first record was written.
    pub(super) fn begin_record(&self) {
        let record = self.first_record();
        self.state().noted = Some(Noted {
            regions: record.regions,
            wanted: Regions::none(self.division),
            changes: record.changes,
        });
    }

    /// Whether there is a record.
    pub(super) fn is_recorded(&self) -> bool {
        self.state().noted.is_some()
    }

    fn to_record(&self, state: &State) -> Option<ToRecord> {
        let noted = state.noted.as_ref()?;
        let mut regions = noted.regions.clone();
        regions.insert_set(&noted.wanted);
        Some(ToRecord {
            members: self.present(),
            in_sync: self.in_sync(),
            regions,
            changes: state.changes,
        })
    }

    /// The record says so.
    pub(super) fn recorded(&self, record: ToRecord) {
        let state = &mut *self.state();
        if let Some(noted) = &mut state.noted {
            let mut wanted = Regions::none(self.division);
            std::mem::swap(&mut wanted, &mut noted.wanted);
            noted.regions = record.regions;
            noted.changes = record.changes;
            if !noted.regions.has_all_of(&wanted) {
                noted.wanted = wanted;
            }
        }
    }

    /// Removes regions from the record in which members do not differ: all members are in sync, and
    /// the region was flushed and is not in `in_flight`.
    pub(super) fn forget(&self, in_flight: &Regions) -> Option<ToRecord> {
        let state = &mut *self.state();
        if self.in_sync() != self.present() {
            return None;
        }
        let mut kept = state.unflushed();
        kept.insert_set(in_flight);
        let noted = state.noted.as_mut()?;
        kept.insert_set(&noted.wanted);
        if kept.has_all_of(&noted.regions) {
            return None;
        }
        noted.regions = kept;
        self.to_record(state)
    }

    /// What the record is to say of a mirror that ends, after its threads.
    pub(super) fn last_record(&self) -> Option<ToRecord> {
        let state = self.state();
        if state.alternatives != 0 {
            return None;
        }
        let mut record = self.to_record(&state)?;
        record.regions = state.unflushed();
        for member in bits(self.present()) {
            record.regions.insert_set(&state.places[member].missing);
        }
        Some(record)
    }

    /// A change of `range` is done by `members`. Those that became absent meanwhile may lose it.
    pub(super) fn end_write(&self, range: ByteRange, members: u64) {
        let mut state = self.state();
        state.recent.insert(range);
        let lost = members & state.volatile & !self.written.load(Ordering::Acquire);
        state.mark(lost, range);
    }

    /// A flush of all members begins. Returns its number.
    pub(super) fn begin_flush(&self) -> u64 {
        let state = &mut *self.state();
        state.older.insert_set(&state.recent);
        state.recent.clear();
        state.flushes += 1;
        state.flushes
    }

    /// Every member that is in use has completed a flush.
    pub(super) fn end_flush(&self, number: u64) {
        let mut state = self.state();
        // A later flush has put into the set what it completes for.
        if number == state.flushes {
            state.older.clear();
        }
    }

    /// A command on a member failed, perhaps in the middle of a change of `range`. Returns whether
    /// the member is out of sync: the last good copy stays in use.
    pub(super) fn fail(&self, member: usize, status: Status, range: Option<ByteRange>) -> bool {
        self.take_out(member, Cause::Failed(status), range).is_ok()
    }

    /// A change of `range` is over that `failures` did not carry out, but those in `done` did. If
    /// none in sync did, the change has failed: the first one in sync stays so, whatever it holds
    /// now, and all others miss the range.
    ///
    /// # Errors
    /// If the change has failed: how it did on the member that stays in sync.
    pub(super) fn end_failed(
        &self,
        range: ByteRange,
        done: u64,
        failures: &[(usize, Status)],
    ) -> Result<(), Status> {
        let in_sync = self.in_sync();
        let is_done = done & in_sync != 0;
        let keeper = failures
            .iter()
            .find(|(member, _)| !is_done && in_sync >> member & 1 == 1);
        let others = failures
            .iter()
            .filter(|(member, _)| keeper.is_none_or(|(keeper, _)| keeper != member));
        for (member, status) in others {
            self.fail(*member, *status, Some(range));
        }
        if is_done {
            return Ok(());
        }
        self.mark(done, range);
        Err(keeper
            .or(failures.first())
            .map_or(Status::NotReady, |(_, status)| *status))
    }

    /// Someone takes a member out of use.
    pub(super) fn fail_by_person(&self, member: usize) -> Result<(), LastCopy> {
        self.take_out(member, Cause::Person, None)
    }

    fn take_out(
        &self,
        member: usize,
        cause: Cause,
        range: Option<ByteRange>,
    ) -> Result<(), LastCopy> {
        let mut state = self.state();
        let bit = 1 << member;
        if self.in_sync() == bit {
            return Err(LastCopy);
        }
        if self.present() & bit == 0 {
            // It was replaced while the command was in flight.
            return Ok(());
        }
        if let Some(range) = range {
            state.mark(bit, range);
        }
        let State {
            places,
            volatile,
            recent,
            older,
            ..
        } = &mut *state;
        let standing = &mut places[member];
        if standing.role == Role::Absent && cause != Cause::Person {
            return Ok(());
        }
        if *volatile & bit != 0 {
            standing.missing.insert_set(recent);
            standing.missing.insert_set(older);
        }
        standing.marks += 1;
        let was_long_in_sync =
            standing.role == Role::InSync && standing.since.elapsed() > RETRY_MAX;
        standing.failures = if was_long_in_sync {
            1
        } else {
            standing.failures.saturating_add(1)
        };
        standing.cause = Some(cause);
        self.set_role(&mut state, member, Role::Absent);
        Ok(())
    }

    /// How many places are or were used.
    pub(super) fn places(&self) -> usize {
        self.state().places.len()
    }

    /// The member in place `old` is none any more; a new one in the next place misses everything.
    pub(super) fn replace(&self, old: usize, is_volatile: bool) -> Result<(), LastCopy> {
        let state = &mut *self.state();
        let new = state.places.len();
        let mut missing = Regions::none(self.division);
        missing.insert_all();
        state.places.push(Standing::new(Role::Absent, missing));
        if self.in_sync() == 1 << old {
            // The place stays unused.
            return Err(LastCopy);
        }
        state.volatile |= u64::from(is_volatile) << new;
        if let Some(noted) = &mut state.noted {
            noted.wanted.insert_all();
        }
        // In this order, changes see the old member, none, or the new one; see `begin_write`.
        self.set_role(state, old, Role::Absent);
        self.present.fetch_and(!(1 << old), Ordering::AcqRel);
        self.present.fetch_or(1 << new, Ordering::AcqRel);
        self.set_role(state, new, Role::Resyncing);
        Ok(())
    }

    /// A member is written again, and what it misses is copied to it, if it is absent.
    pub(super) fn begin_return(&self, member: usize) {
        let mut state = self.state();
        let standing = &mut state.places[member];
        if standing.role == Role::Absent {
            self.set_role(&mut state, member, Role::Resyncing);
        }
    }

    /// The next region from `from` on that a resyncing member misses.
    pub(super) fn next_missing(&self, member: usize, from: u64) -> Option<Missing> {
        let state = self.state();
        let standing = &state.places[member];
        let region = standing.missing.next(from)?;
        (standing.role == Role::Resyncing).then_some(Missing {
            region,
            range: self.division.range(region),
            marks: standing.marks,
        })
    }

    /// A region was copied to a member, unless it has missed something since.
    pub(super) fn copied(&self, member: usize, copied: Missing) {
        let mut state = self.state();
        state.recent.insert(copied.range);
        let standing = &mut state.places[member];
        if standing.marks == copied.marks {
            standing.missing.remove(copied.region);
        }
    }

    /// A resyncing member that misses nothing is in sync.
    pub(super) fn finish(&self, member: usize) {
        let mut state = self.state();
        let standing = &mut state.places[member];
        if standing.role == Role::Resyncing && standing.missing.is_empty() {
            standing.cause = None;
            self.set_role(&mut state, member, Role::InSync);
        }
    }

    /// What there is to do at `now`.
    pub(super) fn work(&self, now: Instant) -> Work {
        let state = self.state();
        let mut work = Work {
            resyncing: 0,
            due: 0,
            next: None,
            changes: state.changes,
        };
        for member in bits(self.present()) {
            let standing = &state.places[member];
            match (standing.role, standing.retry_at()) {
                (Role::Resyncing, _) => work.resyncing |= 1 << member,
                (_, Some(at)) if at <= now => work.due |= 1 << member,
                (_, Some(at)) => work.next = Some(work.next.map_or(at, |next| next.min(at))),
                (_, None) => {}
            }
        }
        work
    }

    /// Tries a member again later.
    pub(super) fn postpone(&self, member: usize, now: Instant) {
        self.state().places[member].since = now;
    }

    /// Waits until roles differ from those of which `work` was found, or the next is due. Returns
    /// whether the mirror goes on.
    pub(super) fn wait(&self, work: &Work) -> bool {
        self.wait_while(work.next, |state| state.changes == work.changes)
    }

    /// Waits until `until`. Returns whether the mirror goes on.
    pub(super) fn pause(&self, until: Instant) -> bool {
        self.wait_while(Some(until), |_| true)
    }

    fn wait_while(&self, until: Option<Instant>, goes_on: impl Fn(&State) -> bool) -> bool {
        let state = self.state();
        let goes_on = |state: &mut State| !state.is_closing && goes_on(state);
        let state = if let Some(at) = until {
            let left = at.saturating_duration_since(Instant::now());
            let waited = self.changed.wait_timeout_while(state, left, goes_on);
            waited.unwrap_or_else(PoisonError::into_inner).0
        } else {
            let waited = self.changed.wait_while(state, goes_on);
            waited.unwrap_or_else(PoisonError::into_inner)
        };
        !state.is_closing
    }

    pub(super) fn close(&self) {
        self.state().is_closing = true;
        self.changed.notify_all();
    }

    pub(super) fn is_closing(&self) -> bool {
        self.state().is_closing
    }

    pub(super) fn info(&self, member: usize) -> StandingInfo {
        let state = self.state();
        let standing = &state.places[member];
        StandingInfo {
            role: standing.role,
            cause: standing.cause,
            missing_bytes: standing.missing.len_bytes(),
        }
    }

    /// Keeps the masks equal to the roles.
    fn set_role(&self, state: &mut State, member: usize, role: Role) {
        state.changes += 1;
        let standing = &mut state.places[member];
        standing.role = role;
        standing.since = Instant::now();
        let set = |mask: &AtomicU64, is_set: bool| {
            if is_set {
                mask.fetch_or(1 << member, Ordering::AcqRel);
            } else {
                mask.fetch_and(!(1 << member), Ordering::AcqRel);
            }
        };
        set(&self.in_sync, role == Role::InSync);
        set(&self.written, role != Role::Absent);
        self.changed.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each change is a few assignments without calls that panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn has_to_record(&self) -> bool {
        let is_new = |noted: &Noted| noted.changes != self.changes || !noted.wanted.is_empty();
        self.alternatives == 0 && self.noted.as_ref().is_some_and(is_new)
    }

    /// What members may lose with their power. Without write caches, what was answered is safe.
    fn unflushed(&self) -> Regions {
        let mut unflushed = self.recent.clone();
        if self.volatile == 0 {
            unflushed.clear();
            return unflushed;
        }
        unflushed.insert_set(&self.older);
        unflushed
    }

    /// `members` may include some that were replaced, which nobody asks for.
    fn mark(&mut self, members: u64, range: ByteRange) {
        for member in bits(members) {
            let standing = &mut self.places[member];
            standing.missing.insert(range);
            standing.marks += 1;
        }
    }
}

impl Standing {
    fn new(role: Role, missing: Regions) -> Self {
        Self {
            role,
            cause: None,
            missing,
            marks: 0,
            failures: 0,
            since: Instant::now(),
        }
    }

    /// When an absent member is tried again, if it is.
    fn retry_at(&self) -> Option<Instant> {
        let passes = self.role == Role::Absent && self.cause.is_some_and(Cause::passes);
        let doublings = self.failures.saturating_sub(1).min(6);
        passes.then(|| self.since + (RETRY_FIRST * (1 << doublings)).min(RETRY_MAX))
    }
}
