//! What stands below the window of a mirror: each request goes to one member, or to all, as legs.
//!
//! ```text
//!  Window ── request ──► Legs ─┬─ leg ──► VolumeBacking of member 0 ──► …
//!         ◄── done ─────────── └─ leg ──► VolumeBacking of member 3 ──► …
//! ```
//!
//! The window never has two requests in flight whose order matters, so members need no order among
//! requests. A copy to a member that missed something waits until no change of the same bytes is in
//! flight, and changes of them wait until it is over.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use block::{ByteRange, Status};
use window::{Backing, BackingClient, BackingError, BackingOp, Ended, Request, RequestId, Window};

use super::standing::{Standings, ToRecord};
use crate::members::bits;
use crate::volume_backing::{Client, VolumeBacking, meaning_of};

/// Carries requests of the window out.
#[derive(Debug)]
pub(super) struct Legs {
    standings: Arc<Standings>,
    table: Mutex<Table>,
    /// A member has answered.
    ended: Condvar,
    /// Held while a range is excluded.
    excluding: Mutex<()>,
}

#[derive(Debug, Default)]
struct Table {
    places: Vec<Place>,
    requests: HashMap<RequestId, Split>,
    /// Bytes that are being copied.
    copying: Option<ByteRange>,
    /// Changes of these bytes.
    parked: VecDeque<Request>,
    /// Changes whose regions are not in the record yet.
    unrecorded: VecDeque<Request>,
    /// Changes that are over, but for the record of who has them.
    held: Vec<(RequestId, Result<(), BackingError>)>,
}

#[derive(Debug)]
struct Place {
    backing: Arc<VolumeBacking>,
    is_memory: bool,
    /// Legs that it has not answered.
    in_flight: u32,
}

/// A request whose legs are in flight.
#[derive(Debug)]
struct Split {
    request: Request,
    /// Members that have not answered.
    waiting: u64,
    done: u64,
    /// Members that could not be read.
    tried: u64,
    failures: Vec<(usize, Status)>,
    /// Of a flush: its number.
    flush: u64,
}

/// Excludes changes of a range of bytes until it drops.
pub(super) struct Exclusion<'a> {
    legs: &'a Legs,
    _alone: MutexGuard<'a, ()>,
}

/// What a member reports to.
pub(super) struct LegClient {
    pub(super) legs: Arc<Legs>,
    pub(super) window: Arc<Window>,
    pub(super) place: usize,
}

impl Legs {
    pub(super) fn new(standings: &Arc<Standings>) -> Self {
        Self {
            standings: Arc::clone(standings),
            table: Mutex::default(),
            ended: Condvar::new(),
            excluding: Mutex::default(),
        }
    }

    /// Adds the member in `place`, the next one, which may be one that was added before and is not
    /// used.
    pub(super) fn add(&self, place: usize, backing: Arc<VolumeBacking>, is_memory: bool) {
        let places = &mut self.table().places;
        let unused = places.drain(place..);
        unused.for_each(|unused| unused.backing.close());
        places.push(Place {
            backing,
            is_memory,
            in_flight: 0,
        });
    }

    /// Excludes changes of `range`. Waits for those in flight, and for other threads that exclude.
    pub(super) fn exclude(&self, range: ByteRange) -> Exclusion<'_> {
        let alone = self.excluding.lock();
        let mut table = self.table();
        table.copying = Some(range);
        while table
            .requests
            .values()
            .any(|split| overlap(split.request, range))
        {
            table = self
                .ended
                .wait(table)
                .unwrap_or_else(PoisonError::into_inner);
        }
        Exclusion {
            legs: self,
            _alone: alone.unwrap_or_else(PoisonError::into_inner),
        }
    }

    /// Waits until a member that gets no requests any more has answered all, and ends its thread.
    pub(super) fn retire(&self, place: usize) {
        let is_busy = |table: &mut Table| table.places[place].in_flight != 0;
        let table = self.ended.wait_while(self.table(), is_busy);
        let table = table.unwrap_or_else(PoisonError::into_inner);
        table.places[place].backing.close();
    }

    /// The members have carried out what was submitted when their threads end.
    pub(super) fn close(&self) {
        for place in &self.table().places {
            place.backing.close();
        }
    }

    /// The record was written, or could not be. Returns requests that are over by that.
    pub(super) fn resume(&self, is_recorded: bool) -> Vec<(RequestId, Result<(), BackingError>)> {
        let table = &mut *self.table();
        let unrecorded = std::mem::take(&mut table.unrecorded);
        if !is_recorded {
            let over = table.held.drain(..).map(|(id, _)| id);
            let over = over.chain(unrecorded.iter().map(|request| request.id));
            return over.map(|id| (id, Err(BackingError::Gone))).collect();
        }
        for request in unrecorded {
            self.begin(table, request);
        }
        if self.standings.has_recorded_roles() {
            std::mem::take(&mut table.held)
        } else {
            Vec::new()
        }
    }

    /// Removes regions from the record in which nothing is to be copied. Returns what it is to say,
    /// if it changes.
    pub(super) fn forget(&self) -> Option<ToRecord> {
        let table = self.table();
        let mut in_flight = self.standings.no_regions();
        let changes = table.requests.values().map(|split| split.request);
        for request in changes.filter(is_change) {
            in_flight.insert(request.range);
        }
        self.standings.forget(&in_flight)
    }

    fn begin(&self, table: &mut Table, request: Request) {
        if is_change(&request) && !self.standings.note(request.range) {
            table.unrecorded.push_back(request);
            return;
        }
        if table.copying.is_some_and(|range| overlap(request, range)) {
            table.parked.push_back(request);
            return;
        }
        let mut flush = 0;
        let targets = match request.op {
            BackingOp::Read => 1 << nearest(&table.places, self.standings.in_sync()),
            BackingOp::Flush => {
                flush = self.standings.begin_flush();
                self.standings.begin_write(request.range)
            }
            BackingOp::Write(_) | BackingOp::Discard | BackingOp::WriteZeroes(_) => {
                self.standings.note_unflushed(request.range);
                self.standings.begin_write(request.range)
            }
        };
        table.requests.insert(
            request.id,
            Split {
                request,
                waiting: targets,
                done: 0,
                tried: 0,
                failures: Vec::new(),
                flush,
            },
        );
        table.send(request, targets);
    }

    /// A member has answered. Returns what has become of the request if that was the last leg.
    /// Members that failed are marked before a copy can begin.
    fn note(
        &self,
        place: usize,
        id: RequestId,
        result: Result<(), BackingError>,
    ) -> Option<Result<(), BackingError>> {
        let table = &mut *self.table();
        table.places[place].in_flight -= 1;
        self.ended.notify_all();
        let split = table.requests.get_mut(&id)?;
        let request = split.request;
        split.waiting &= !(1 << place);
        match result {
            Ok(()) => split.done |= 1 << place,
            Err(error) if request.op == BackingOp::Read => {
                let status = error.of_read();
                split.tried |= 1 << place;
                self.standings.fail(place, status, Some(request.range));
                let others = self.standings.in_sync() & !split.tried;
                if others == 0 {
                    split.failures.push((place, status));
                } else {
                    let next = 1 << nearest(&table.places, others);
                    split.waiting = next;
                    table.send(request, next);
                    return None;
                }
            }
            Err(error) => split.failures.push((place, error.of_write())),
        }
        if split.waiting != 0 {
            return None;
        }
        let split = table.requests.remove(&id)?;
        let over = self.end(&split).map_err(meaning_of);
        if request.op != BackingOp::Read && !self.standings.has_recorded_roles() {
            table.held.push((id, over));
            return None;
        }
        Some(over)
    }

    fn end(&self, split: &Split) -> Result<(), Status> {
        let range = split.request.range;
        let result = match (&split.failures[..], split.request.op) {
            ([], _) => Ok(()),
            ([(_, status), ..], BackingOp::Read) => Err(*status),
            (failures, _) => self.standings.end_failed(range, split.done, failures),
        };
        match split.request.op {
            BackingOp::Flush if result.is_ok() => self.standings.end_flush(split.flush),
            BackingOp::Write(_) | BackingOp::Discard | BackingOp::WriteZeroes(_) => {
                self.standings.end_write(range, split.done);
            }
            BackingOp::Flush | BackingOp::Read => {}
        }
        result
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // A panic inside is a broken invariant of the request at hand alone.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn send(&mut self, request: Request, members: u64) {
        for place in bits(members) {
            let place = &mut self.places[place];
            place.in_flight += 1;
            place.backing.submit(request);
        }
    }
}

/// The member among `members` that answers a read soonest: one in memory, else the least busy.
fn nearest(places: &[Place], members: u64) -> usize {
    let distance = |place: &usize| (!places[*place].is_memory, places[*place].in_flight);
    let nearest = bits(members).min_by_key(distance);
    nearest.expect("one member is always in sync")
}

/// Whether a request changes bytes.
fn is_change(request: &Request) -> bool {
    !matches!(request.op, BackingOp::Read | BackingOp::Flush)
}

/// Whether a request changes bytes of the range.
fn overlap(request: Request, range: ByteRange) -> bool {
    let end = |range: ByteRange| range.offset + range.len;
    is_change(&request) && request.range.offset < end(range) && range.offset < end(request.range)
}

impl Drop for Exclusion<'_> {
    fn drop(&mut self) {
        let mut table = self.legs.table();
        table.copying = None;
        while let Some(request) = table.parked.pop_front() {
            self.legs.begin(&mut table, request);
        }
    }
}

impl Backing for Legs {
    fn submit(&self, request: Request) {
        self.begin(&mut self.table(), request);
    }
}

impl BackingClient for LegClient {
    fn fetch(&self, id: RequestId, offset_bytes: usize, buffer: &mut [u8]) {
        self.window.fetch(id, offset_bytes, buffer);
    }

    fn done_all(&self, ended: &[Ended<'_>]) {
        for Ended { id, result } in ended {
            if let Some(over) = self.legs.note(self.place, *id, result.map(drop)) {
                let bytes = result.unwrap_or_default();
                self.window.done(*id, over.map(|()| bytes));
            }
        }
    }
}

impl Client for LegClient {}
