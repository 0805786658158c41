//! A volume as the backing of a window, for caches and mirrors: a thread that runs commands on it.
//!
//! ```text
//!  client ── requests ──► Inbox ──► worker ── admit, execute, settle, release ──► volume below
//!         ◄── done(id) ──────────── worker ◄── Inbox ◄── Relay ◄── done(ticket) ──┘
//! ```

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use block::{
    Admission, Blocks, Completion, Completions, DataUse, Extent, Intent, Lba, Op, OpKind,
    Persistence, ReadDest, Settled, Status, Ticket,
};
use memory::Charge;
use window::{Backing, BackingClient, BackingError, BackingOp, Request};

use crate::relay::{Connections, Relay};
use crate::{ManagedVolume, Platform, VolumeError};

/// Commands on the volume at a time.
const DEPTH: usize = 64;
/// How long a request waits before it is tried again because the volume is busy.
const BUSY_PAUSE: Duration = Duration::from_millis(2);
/// How often a request is tried again before it fails: for 10 s.
const BUSY_TRIES: u32 = 5000;
/// How often [`Client::tick`] is called, as long as it asks for that.
const TICK: Duration = Duration::from_millis(100);

/// Whose requests a volume carries out.
pub(crate) trait Client: BackingClient {
    /// Called by the worker some time after [`Backing::wake_cleaner`]. Returns whether to call it again.
    fn tick(&self) -> bool {
        false
    }
}

/// Hands requests to the worker, and completions of the volume.
pub(crate) struct VolumeBacking {
    inbox: Mutex<Inbox>,
    has_mail: Condvar,
    connections: Connections,
}

#[derive(Default)]
struct Inbox {
    requests: VecDeque<Request>,
    completions: VecDeque<Completion>,
    /// There are dirty blocks to be written in the background.
    has_dirty: bool,
    is_closing: bool,
}

/// What the worker takes out of the inbox, except for requests.
struct Mail {
    completions: VecDeque<Completion>,
    has_dirty: bool,
    is_closing: bool,
}

impl fmt::Debug for VolumeBacking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VolumeBacking({:?})", self.connections)
    }
}

impl VolumeBacking {
    pub(crate) fn new(relay: &Arc<Relay>) -> Arc<Self> {
        relay.join(1, |connections| Self {
            inbox: Mutex::default(),
            has_mail: Condvar::new(),
            connections,
        })
    }

    /// Starts the thread, which reports to `client`. It ends after [`close`](Self::close), when nothing is
    /// in flight.
    ///
    /// # Errors
    /// If the budget has no room for its buffers, or the thread cannot be started.
    pub(crate) fn start(
        self: &Arc<Self>,
        volume: &Arc<dyn ManagedVolume>,
        client: Arc<dyn Client>,
        frame_bytes: usize,
        platform: &Platform,
    ) -> Result<JoinHandle<()>, VolumeError> {
        let charge = platform.budget.reserve((DEPTH * frame_bytes) as u64)?;
        let worker = Worker {
            backing: Arc::clone(self),
            volume: Arc::clone(volume),
            client,
            jobs: (0..DEPTH).map(|_| Job::new(frame_bytes)).collect(),
            free: (0..DEPTH).collect(),
            backlog: VecDeque::new(),
            timers: BinaryHeap::new(),
            _charge: charge,
        };
        let thread = thread::Builder::new().name("volume-backing".to_owned());
        let started = thread.spawn(move || worker.run());
        started.map_err(VolumeError::Thread)
    }

    /// The worker ends when it has carried out what was submitted.
    pub(crate) fn close(&self) {
        self.inbox().is_closing = true;
        self.has_mail.notify_one();
    }

    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Backing for VolumeBacking {
    fn submit(&self, request: Request) {
        self.inbox().requests.push_back(request);
        self.has_mail.notify_one();
    }

    fn wake_cleaner(&self) {
        self.inbox().has_dirty = true;
        self.has_mail.notify_one();
    }
}

impl Completions for VolumeBacking {
    fn done(&self, completion: Completion) {
        self.inbox().completions.push_back(completion);
        self.has_mail.notify_one();
    }
}

/// Carries requests out.
struct Worker {
    backing: Arc<VolumeBacking>,
    volume: Arc<dyn ManagedVolume>,
    client: Arc<dyn Client>,
    jobs: Vec<Job>,
    free: Vec<usize>,
    /// Requests that wait for a free job.
    backlog: VecDeque<Request>,
    /// Jobs that go on at an instant.
    timers: BinaryHeap<Reverse<(Instant, usize)>>,
    _charge: Charge,
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

impl Worker {
    fn run(mut self) {
        // None while there is nothing to clean: an idle cache takes no CPU time.
        let mut tick = None;
        loop {
            let mail = self.take_mail(tick);
            for completion in mail.completions {
                self.handle_completion(completion);
            }
            let now = Instant::now();
            self.fire_timers(now);
            while !self.backlog.is_empty()
                && let Some(at) = self.free.pop()
            {
                let job = &mut self.jobs[at];
                job.request = self.backlog.pop_front();
                job.tries = 0;
                self.begin(at);
            }
            if mail.is_closing && self.free.len() == DEPTH {
                return;
            }
            if mail.has_dirty {
                tick = tick.or(Some(now + TICK));
            }
            if tick.is_some_and(|tick| now >= tick) {
                tick = self.client.tick().then(|| now + TICK);
            }
        }
    }

    /// Waits for something to do, until `tick` or the next timer at the latest.
    fn take_mail(&mut self, tick: Option<Instant>) -> Mail {
        let backing = Arc::clone(&self.backing);
        let timer = self.timers.peek().map(|Reverse((at, _))| *at);
        let is_over = self.free.len() == DEPTH;
        let is_idle = |inbox: &mut Inbox| {
            let may_end = inbox.is_closing && is_over;
            let has_mail = !inbox.requests.is_empty() || !inbox.completions.is_empty();
            !(has_mail || inbox.has_dirty || may_end)
        };
        let left = [tick, timer].into_iter().flatten().min().map(|next| {
            let now = Instant::now();
            next.saturating_duration_since(now)
        });
        let inbox = backing.inbox();
        let waited =
            backing
                .has_mail
                .wait_timeout_while(inbox, left.unwrap_or(Duration::MAX), is_idle);
        let (mut inbox, _) = waited.unwrap_or_else(PoisonError::into_inner);
        self.backlog.append(&mut inbox.requests);
        Mail {
            completions: std::mem::take(&mut inbox.completions),
            has_dirty: std::mem::take(&mut inbox.has_dirty),
            is_closing: inbox.is_closing,
        }
    }

    fn fire_timers(&mut self, now: Instant) {
        while let Some(&Reverse((at, job))) = self.timers.peek()
            && at <= now
        {
            self.timers.pop();
            match self.jobs[job].stage {
                Stage::Over(result) => self.end(job, result),
                _ => self.begin(job),
            }
        }
    }

    /// Has a job's request admitted.
    fn begin(&mut self, at: usize) {
        let job = &mut self.jobs[at];
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
            Admission::Fail(Status::Busy, _) if self.jobs[at].tries < BUSY_TRIES => {
                self.jobs[at].tries += 1;
                self.jobs[at].stage = Stage::Busy;
                let again = Instant::now() + BUSY_PAUSE;
                self.timers.push(Reverse((again, at)));
            }
            Admission::Fail(status, due) => {
                self.jobs[at].due = due;
                self.finish(at, Err(status));
            }
            Admission::Later(due) => {
                self.jobs[at].due = due;
                self.jobs[at].stage = Stage::Filling;
            }
            Admission::NowThenSettle(due) => {
                self.jobs[at].due = due;
                self.execute_and_settle(at);
            }
        }
    }

    fn execute_now(&mut self, at: usize, due: Option<Instant>) {
        self.jobs[at].due = due;
        let result = self.execute(at);
        self.finish(at, result);
    }

    /// Executes a job that holds a lease.
    fn execute_and_settle(&mut self, at: usize) {
        let executed = self.execute(at);
        let is_read = self.jobs[at]
            .request
            .is_some_and(|it| it.op == BackingOp::Read);
        let settled = match executed {
            Ok(()) if !is_read => self.volume.settle(self.ticket(at)),
            result => result.map(|()| Settled::Done),
        };
        match settled {
            Ok(Settled::Later) => self.jobs[at].stage = Stage::Settling,
            settled => self.finish_lease(at, settled.map(drop)),
        }
    }

    fn execute(&mut self, at: usize) -> Result<(), Status> {
        let Job {
            request, buffer, ..
        } = &mut self.jobs[at];
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
        match (self.jobs[at].stage, completion.result) {
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
        match self.jobs[at].due.filter(|due| *due > Instant::now()) {
            Some(due) => {
                self.jobs[at].stage = Stage::Over(result);
                self.timers.push(Reverse((due, at)));
            }
            None => self.end(at, result),
        }
    }

    fn end(&mut self, at: usize, result: Result<(), Status>) {
        let job = &mut self.jobs[at];
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
            connection: self.backing.connections.number(0),
            slot: at as u32,
            generation: self.jobs[at].generation,
        }
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

/// What the window tells commands whose request has failed so.
pub(crate) fn meaning_of(status: Status) -> BackingError {
    match status {
        Status::CapacityExceeded => BackingError::NoSpace,
        Status::NotReady | Status::Gone => BackingError::Gone,
        Status::ReadError | Status::WriteError => BackingError::Medium,
        _ => BackingError::Other,
    }
}
