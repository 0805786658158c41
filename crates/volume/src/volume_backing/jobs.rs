//! Commands on the volume below that carry requests of a window out. One thread owns them at a
//! time: that of a lane, or the backing's own.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::fmt;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use block::{
    Admission, Blocks, Completion, Completions, DataUse, Extent, Intent, Lba, Op, OpKind,
    Persistence, ReadDest, Settled, Status, Ticket,
};
use memory::Charge;
use window::{BackingError, BackingOp, Request};

use super::{Client, VolumeBacking, meaning_of};
use crate::ManagedVolume;
use crate::lanes::LaneHandle;
use crate::relay::{Connections, Relay};

/// Commands on the volume at a time.
const DEPTH: usize = 64;
/// How long a request waits before it is tried again because the volume is busy.
const BUSY_PAUSE: Duration = Duration::from_millis(2);
/// How often a request is tried again before it fails: for 10 s.
const BUSY_TRIES: u32 = 5000;

/// Carries requests out.
pub(super) struct Jobs {
    volume: Arc<dyn ManagedVolume>,
    client: Arc<dyn Client>,
    returns: Arc<Returns>,
    slots: Vec<Job>,
    free: Vec<usize>,
    /// Requests that wait for a free job.
    backlog: VecDeque<Request>,
    /// Jobs that go on at an instant.
    timers: BinaryHeap<Reverse<(Instant, usize)>>,
    /// Completions that are being handled: kept for its memory.
    came: VecDeque<Completion>,
    _charge: Charge,
}

/// Completions of the volume for one set of jobs, and whose thread they wake.
struct Returns {
    backing: Arc<VolumeBacking>,
    connections: Connections,
    state: Mutex<Returned>,
}

struct Returned {
    completions: VecDeque<Completion>,
    /// Where the jobs are.
    owner: JobOwner,
}

/// The thread that owns jobs.
pub(super) enum JobOwner {
    /// The backing's own.
    Worker,
    /// That of a lane.
    Lane(Arc<LaneHandle>),
}

impl Returns {
    fn state(&self) -> MutexGuard<'_, Returned> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Completions for Returns {
    fn done(&self, completion: Completion) {
        let mut state = self.state();
        state.completions.push_back(completion);
        match &state.owner {
            JobOwner::Worker => self.backing.ring_for_completions(),
            // In the lane's own thread, a turn of its queues follows before it sleeps.
            JobOwner::Lane(door) if door.thread() == thread::current().id() => {}
            JobOwner::Lane(door) => door.event().raise(),
        }
    }
}

/// One command on the volume.
struct Job {
    request: Option<Request>,
    stage: Stage,
    generation: u32,
    /// It is not reported before.
    due: Option<Instant>,
    tries: u32,
    buffer: Box<[u8]>,
}

/// What a job waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The end of a pause, to be admitted again.
    Busy,
    /// Its blocks.
    Filling,
    /// Its effects to be safe.
    Settling,
    /// The instant at which it is due, to be reported.
    Over(Result<(), Status>),
}

impl Job {
    fn new(frame_bytes: usize) -> Self {
        Self {
            request: None,
            stage: Stage::Busy,
            generation: 0,
            due: None,
            tries: 0,
            buffer: vec![0; frame_bytes].into(),
        }
    }
}

impl Jobs {
    /// The memory that all jobs need for frames of this size, in bytes.
    pub(super) const fn memory_bytes(frame_bytes: usize) -> u64 {
        (DEPTH * frame_bytes) as u64
    }

    pub(super) fn new(
        backing: &Arc<VolumeBacking>,
        (volume, client): (&Arc<dyn ManagedVolume>, &Arc<dyn Client>),
        relay: &Arc<Relay>,
        frame_bytes: usize,
        owner: JobOwner,
        charge: Charge,
    ) -> Self {
        let returns = relay.join(1, |connections| Returns {
            backing: Arc::clone(backing),
            connections,
            state: Mutex::new(Returned {
                completions: VecDeque::new(),
                owner,
            }),
        });
        Self {
            volume: Arc::clone(volume),
            client: Arc::clone(client),
            returns,
            slots: (0..DEPTH).map(|_| Job::new(frame_bytes)).collect(),
            free: (0..DEPTH).collect(),
            backlog: VecDeque::new(),
            timers: BinaryHeap::new(),
            came: VecDeque::new(),
            _charge: charge,
        }
    }

    /// Where new requests are put, behind those that wait for a free job.
    pub(super) fn backlog(&mut self) -> &mut VecDeque<Request> {
        &mut self.backlog
    }

    /// Whether no request is left.
    pub(super) fn is_idle(&self) -> bool {
        self.backlog.is_empty() && self.free.len() == DEPTH
    }

    /// When a job goes on by itself.
    pub(super) fn due(&self) -> Option<Instant> {
        self.timers.peek().map(|Reverse((at, _))| *at)
    }

    /// The worker owns the jobs from now on.
    pub(super) fn move_to_worker(&mut self) {
        self.returns.state().owner = JobOwner::Worker;
    }

    /// Handles what has come, and begins what can be begun. Returns whether there was anything.
    pub(super) fn turn(&mut self) -> bool {
        let mut came = mem::take(&mut self.came);
        mem::swap(&mut came, &mut self.returns.state().completions);
        let mut has_worked = !came.is_empty();
        for completion in came.drain(..) {
            self.handle_completion(completion);
        }
        self.came = came;
        has_worked |= self.fire_timers();
        while !self.backlog.is_empty()
            && let Some(at) = self.free.pop()
        {
            has_worked = true;
            let job = &mut self.slots[at];
            job.request = self.backlog.pop_front();
            job.tries = 0;
            self.begin(at);
        }
        has_worked
    }

    /// Fails every request that was begun: the thread has panicked, so nobody knows how far it
    /// came.
    pub(super) fn fail(mut self) {
        for at in 0..self.slots.len() {
            if let Some(request) = self.slots[at].request.take() {
                self.client.done(request.id, Err(BackingError::Gone));
                self.volume.release(self.ticket(at));
            }
        }
    }

    fn fire_timers(&mut self) -> bool {
        if self.timers.is_empty() {
            return false;
        }
        let now = Instant::now();
        let mut has_fired = false;
        while let Some(&Reverse((at, job))) = self.timers.peek()
            && at <= now
        {
            has_fired = true;
            self.timers.pop();
            match self.slots[job].stage {
                Stage::Over(result) => self.end(job, result),
                _ => self.begin(job),
            }
        }
        has_fired
    }

    /// Has a job's request admitted.
    fn begin(&mut self, at: usize) {
        let job = &mut self.slots[at];
        job.generation = job.generation.wrapping_add(1);
        job.due = None;
        let request = job.request.expect("a job has a request");
        if matches!(request.op, BackingOp::Write(_)) {
            let len = request.range.len as usize;
            // Copied, so that commands go on with the frame meanwhile.
            self.client.fetch(request.id, 0, &mut job.buffer[..len]);
        }
        let extents = [self.extent_of(request)];
        let intent = intent_of(request, &extents);
        match self.volume.admit(Instant::now(), &intent, self.ticket(at)) {
            Admission::Now => self.execute_now(at, None),
            Admission::NotBefore(due) => self.execute_now(at, Some(due)),
            Admission::Fail(Status::Busy, _) if self.slots[at].tries < BUSY_TRIES => {
                self.slots[at].tries += 1;
                self.slots[at].stage = Stage::Busy;
                let again = Instant::now() + BUSY_PAUSE;
                self.timers.push(Reverse((again, at)));
            }
            Admission::Fail(status, due) => {
                self.slots[at].due = due;
                self.finish(at, Err(status));
            }
            Admission::Later(due) => {
                self.slots[at].due = due;
                self.slots[at].stage = Stage::Filling;
            }
            Admission::NowThenSettle(due) => {
                self.slots[at].due = due;
                self.execute_and_settle(at);
            }
        }
    }

    fn execute_now(&mut self, at: usize, due: Option<Instant>) {
        self.slots[at].due = due;
        let result = self.execute(at);
        self.finish(at, result);
    }

    /// Executes a job that holds a lease.
    fn execute_and_settle(&mut self, at: usize) {
        let executed = self.execute(at);
        let is_read = self.slots[at]
            .request
            .is_some_and(|it| it.op == BackingOp::Read);
        let settled = match executed {
            Ok(()) if !is_read => self.volume.settle(self.ticket(at)),
            result => result.map(|()| Settled::Done),
        };
        match settled {
            Ok(Settled::Later) => self.slots[at].stage = Stage::Settling,
            settled => self.finish_lease(at, settled.map(drop)),
        }
    }

    fn execute(&mut self, at: usize) -> Result<(), Status> {
        let Job {
            request, buffer, ..
        } = &mut self.slots[at];
        let request = request.expect("a job has a request");
        let shift = self.volume.geometry().block_size.shift();
        let extent = extent(request, shift);
        // Other requests may be longer than the buffer, which they do not use.
        let len = (request.range.len as usize).min(buffer.len());
        let buffer = &mut buffer[..len];
        self.volume.execute(match request.op {
            BackingOp::Read => Op::Read {
                extent,
                dest: ReadDest::Copy(buffer),
            },
            BackingOp::Write(_) => Op::Write {
                extent,
                data: buffer,
            },
            BackingOp::Flush => Op::Flush,
            BackingOp::Discard => Op::Discard { extent },
            BackingOp::WriteZeroes(unmap) => Op::WriteZeroes { extent, unmap },
        })
    }

    fn handle_completion(&mut self, completion: Completion) {
        let at = completion.ticket.slot as usize;
        if completion.ticket != self.ticket(at) {
            return;
        }
        match (self.slots[at].stage, completion.result) {
            (Stage::Filling, Ok(())) => self.execute_and_settle(at),
            (Stage::Filling | Stage::Settling, result) => self.finish_lease(at, result),
            (Stage::Busy | Stage::Over(_), _) => {}
        }
    }

    fn finish_lease(&mut self, at: usize, result: Result<(), Status>) {
        self.volume.release(self.ticket(at));
        self.finish(at, result);
    }

    /// A job is over, but it may not be due yet.
    fn finish(&mut self, at: usize, result: Result<(), Status>) {
        match self.slots[at].due.filter(|due| *due > Instant::now()) {
            Some(due) => {
                self.slots[at].stage = Stage::Over(result);
                self.timers.push(Reverse((due, at)));
            }
            None => self.end(at, result),
        }
    }

    fn end(&mut self, at: usize, result: Result<(), Status>) {
        let job = &mut self.slots[at];
        job.stage = Stage::Busy;
        let request = job.request.take().expect("a job has a request");
        let len = match request.op {
            BackingOp::Read => request.range.len as usize,
            _ => 0,
        };
        let result = result.map_err(meaning_of);
        self.client
            .done(request.id, result.map(|()| &job.buffer[..len]));
        self.free.push(at);
    }

    fn extent_of(&self, request: Request) -> Extent {
        extent(request, self.volume.geometry().block_size.shift())
    }

    fn ticket(&self, at: usize) -> Ticket {
        Ticket {
            connection: self.returns.connections.number(0),
            slot: at as u32,
            generation: self.slots[at].generation,
        }
    }
}

impl fmt::Debug for Jobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = f.debug_struct("Jobs");
        fields
            .field("connections", &self.returns.connections)
            .field("free", &self.free.len())
            .finish_non_exhaustive()
    }
}

fn extent(request: Request, shift: u32) -> Extent {
    Extent::new(
        Lba(request.range.offset >> shift),
        Blocks(request.range.len >> shift),
    )
}

fn intent_of(request: Request, extents: &[Extent; 1]) -> Intent<'_> {
    let (kind, data_use, persistence) = match request.op {
        BackingOp::Read => (OpKind::Read, DataUse::Read, Persistence::Volatile),
        BackingOp::Write(persistence) => (OpKind::Write, DataUse::Overwrite, persistence),
        BackingOp::Flush => (OpKind::Flush, DataUse::Flush, Persistence::Durable),
        BackingOp::Discard => (OpKind::Discard, DataUse::Erase, Persistence::Volatile),
        BackingOp::WriteZeroes(_) => (OpKind::Write, DataUse::Erase, Persistence::Volatile),
    };
    let extents: &[Extent] = match request.op {
        BackingOp::Flush => &[],
        _ => extents,
    };
    Intent {
        kind,
        extents,
        len_bytes: request.range.len,
        data_use,
        persistence,
    }
}
