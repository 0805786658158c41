//! How much a file volume takes of its file's speed, without a network: the figures of
//! `docs/design/0016-window.md`.
//!
//! `cargo run --release -p volume --example file_speed -- FILE [file|volume] [worker] [read|write] [DEPTH]`
//!
//! Requests of 4 KiB at random places of FILE, which is created with [`FILE_BYTES`] and is
//! overwritten. The file alone is driven by one thread through [`FileIo`]; the volume by one thread
//! that does what a session and a reactor do, with a lane or, with `worker`, without one. Rounds of
//! both alternate, since the machine is shared, and the best of each counts.

#![expect(clippy::cast_precision_loss, reason = "figures for people to read")]

use std::ops::ControlFlow;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use block::{
    Admission, BlockSize, Blocks, Completion, Completions, DataUse, Extent, Intent, Lane, Lba, Op,
    OpKind, Persistence, ReadDest, Settled, Ticket,
};
use file_io::{Caching, Event, FileAccess, FileIo, FileIoOptions, FileOp};
use rustix::event::epoll;
use volume::{
    Budget, ByteSize, LaneRegistry, ManagedVolume, Origin, Platform, Provision, Relay, VolumeKind,
    VolumeSpec,
};

const FILE_BYTES: u64 = 512 << 20;
const REQUEST_BYTES: u64 = 4096;
const REQUESTS: u64 = FILE_BYTES / REQUEST_BYTES;
const ROUND: Duration = Duration::from_millis(500);
const ROUNDS: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Read,
    Write,
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let wants = |word: &str, others: &[&str]| {
        arguments.iter().any(|it| it == word)
            || !arguments.iter().any(|it| others.contains(&it.as_str()))
    };
    let path = PathBuf::from(arguments.first().expect("usage: file_speed FILE"));
    let depth = arguments.iter().skip(1).find_map(|it| it.parse().ok());
    let with_file = wants("file", &["volume"]);
    let with_volume = wants("volume", &["file"]);
    let with_lane = !arguments.iter().any(|it| it == "worker");
    fill(&path);
    println!("| 4 KiB | file: requests/s | volume: requests/s | ratio |");
    println!("|---|---|---|---|");
    for (direction, name) in [(Direction::Read, "read"), (Direction::Write, "write")] {
        if !wants(name, &["read", "write"]) {
            continue;
        }
        for depth in depth.map_or(vec![1, 32], |depth| vec![depth]) {
            let (mut file, mut volume) = (0_f64, 0_f64);
            for _ in 0..ROUNDS {
                if with_file {
                    file = file.max(file_rate(&path, direction, depth));
                }
                if with_volume {
                    volume = volume.max(Fixture::new(&path, depth, with_lane).rate(direction));
                }
            }
            let ratio = volume / file;
            println!("| {name}, depth {depth} | {file:.0} | {volume:.0} | {ratio:.2} |");
        }
    }
}

/// Makes the file as long as it has to be, without holes.
fn fill(path: &Path) {
    let is_full = std::fs::metadata(path).is_ok_and(|file| file.len() == FILE_BYTES);
    if !is_full {
        std::fs::write(path, vec![1; FILE_BYTES as usize]).expect("a file of 512 MiB fits");
    }
}

/// Random places.
struct Places(u64);

impl Places {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % REQUESTS
    }
}

const PLACES: Places = Places(0x1234_5678_9ABC_DEF1);

/// Requests per second of the file alone.
fn file_rate(path: &Path, direction: Direction, depth: u16) -> f64 {
    let options = FileIoOptions {
        depth,
        buffer_bytes: REQUEST_BYTES as usize,
        access: FileAccess::ReadWrite,
        caching: Caching::DirectWherePossible,
        engine: None,
    };
    let mut queue = FileIo::open(path, &options).expect("the file opens");
    let mut places = PLACES;
    let op = match direction {
        Direction::Read => FileOp::Read,
        Direction::Write => FileOp::Write,
    };
    let mut done = Vec::new();
    let start = Instant::now();
    for slot in 0..depth {
        queue.submit(slot, op, places.next() * REQUEST_BYTES, REQUEST_BYTES);
    }
    let mut count = 0;
    while start.elapsed() < ROUND {
        done.clear();
        count += queue.wait(None, &mut done).expect("the queue works");
        for completion in &done {
            completion.result.as_ref().expect("the file works");
            let at = places.next() * REQUEST_BYTES;
            queue.submit(completion.slot, op, at, REQUEST_BYTES);
        }
    }
    count as f64 / start.elapsed().as_secs_f64()
}

/// Where the volume reports, as a reactor's mailbox: the thread is woken only by others.
struct Mailbox {
    sender: Sender<Completion>,
    reader: ThreadId,
    event: Arc<Event>,
}

impl Completions for Mailbox {
    fn done(&self, completion: Completion) {
        self.sender
            .send(completion)
            .expect("the driver waits for it");
        if thread::current().id() != self.reader {
            self.event.raise();
        }
    }
}

/// What a reactor watches.
struct Poller {
    epoll: OwnedFd,
    lane: Option<Box<dyn Lane>>,
}

impl Poller {
    fn new(mail: &Event, lane: Option<Box<dyn Lane>>) -> Self {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).expect("a descriptor");
        let events = lane.as_ref().map(|lane| lane.event());
        for event in [Some(mail.as_fd()), events].into_iter().flatten() {
            let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
            let data = epoll::EventData::new_u64(0);
            epoll::add(&epoll, event, data, flags).expect("a new one");
        }
        Self { epoll, lane }
    }

    fn reap(&mut self) {
        if let Some(lane) = &mut self.lane {
            lane.reap();
        }
    }

    /// Submits, and sleeps if there was nothing to do.
    fn wait(&mut self) {
        let has_worked = self.lane.as_mut().is_some_and(|lane| lane.submit());
        if !has_worked {
            let mut events = Vec::with_capacity(4);
            let spare = rustix::buffer::spare_capacity(&mut events);
            let _ = epoll::wait(&self.epoll, spare, None);
        }
    }
}

/// A volume and a thread that drives it.
struct Fixture {
    volume: Arc<dyn ManagedVolume>,
    done: Receiver<Completion>,
    poller: Poller,
    _event: Arc<Event>,
    commands: Vec<Command>,
    buffer: Vec<u8>,
    places: Places,
}

#[derive(Clone, Copy)]
struct Command {
    extent: Extent,
    generation: u32,
    is_executed: bool,
}

impl Fixture {
    fn new(path: &Path, depth: u16, with_lane: bool) -> Self {
        let (sender, done) = channel();
        let event = Arc::new(Event::new().expect("a descriptor"));
        let lanes = Arc::<LaneRegistry>::default();
        let lane = with_lane.then(|| block::LaneOpener::open(Arc::clone(&lanes)).expect("a lane"));
        let mailbox = Mailbox {
            sender,
            reader: thread::current().id(),
            event: Arc::clone(&event),
        };
        let spec = VolumeSpec {
            size: ByteSize(FILE_BYTES),
            block_size: BlockSize::B4096,
            kind: VolumeKind::File {
                path: std::path::absolute(path).expect("the file has a path"),
                provision: Provision::Thin,
            },
        };
        let platform = Platform {
            budget: Arc::new(Budget::new(1 << 30)),
            relay: Relay::new(Arc::new(mailbox)),
            lanes,
            record: None,
        };
        let progress = &mut |_| ControlFlow::Continue(());
        let idle = Command {
            extent: Extent::new(Lba(0), Blocks(1)),
            generation: 0,
            is_executed: false,
        };
        Self {
            volume: volume::create(&spec, Origin::New, &platform, progress).expect("it opens"),
            done,
            poller: Poller::new(&event, lane),
            _event: event,
            commands: vec![idle; usize::from(depth)],
            buffer: vec![7; REQUEST_BYTES as usize],
            places: PLACES,
        }
    }

    /// Requests per second through the volume.
    fn rate(mut self, direction: Direction) -> f64 {
        let start = Instant::now();
        for slot in 0..self.commands.len() {
            self.begin(slot, direction);
        }
        let mut count = 0;
        while start.elapsed() < ROUND {
            self.poller.reap();
            while let Ok(completion) = self.done.try_recv() {
                count += self.go_on(completion, direction);
            }
            self.poller.wait();
        }
        let rate = count as f64 / start.elapsed().as_secs_f64();
        // Its queue ends first, so that the volume can be closed by this thread.
        drop(self.poller.lane.take());
        self.volume.storage().close();
        rate
    }

    fn ticket(&self, slot: usize) -> Ticket {
        Ticket {
            connection: Ticket::CONNECTIONS_MIN,
            slot: slot as u32,
            generation: self.commands[slot].generation,
        }
    }

    /// Begins commands in a slot until one has to wait; how many are over before that.
    fn begin(&mut self, slot: usize, direction: Direction) -> u64 {
        let mut over = 0;
        while self.admit(slot, direction) {
            self.volume.release(self.ticket(slot));
            over += 1;
        }
        over
    }

    /// Begins a command; whether it is over at once.
    fn admit(&mut self, slot: usize, direction: Direction) -> bool {
        let extent = Extent::new(Lba(self.places.next()), Blocks(1));
        let command = &mut self.commands[slot];
        command.extent = extent;
        command.generation += 1;
        command.is_executed = false;
        let (kind, data_use) = match direction {
            Direction::Read => (OpKind::Read, DataUse::Read),
            Direction::Write => (OpKind::Write, DataUse::Overwrite),
        };
        let intent = Intent {
            kind,
            extents: &[extent],
            len_bytes: REQUEST_BYTES,
            data_use,
            persistence: Persistence::Volatile,
        };
        let ticket = self.ticket(slot);
        match self.volume.admit(Instant::now(), &intent, ticket) {
            Admission::Later(_) => false,
            Admission::NowThenSettle(_) => self.execute(slot, direction),
            other => panic!("{other:?}"),
        }
    }

    /// A command may continue; how many commands are over then.
    fn go_on(&mut self, completion: Completion, direction: Direction) -> u64 {
        completion.result.expect("the file works");
        let slot = completion.ticket.slot as usize;
        if !self.commands[slot].is_executed && !self.execute(slot, direction) {
            return 0;
        }
        self.volume.release(self.ticket(slot));
        1 + self.begin(slot, direction)
    }

    /// Executes a command that has its blocks; whether nothing is left to wait for.
    fn execute(&mut self, slot: usize, direction: Direction) -> bool {
        let extent = self.commands[slot].extent;
        self.commands[slot].is_executed = true;
        let op = match direction {
            Direction::Read => Op::Read {
                extent,
                dest: ReadDest::Copy(&mut self.buffer),
            },
            Direction::Write => Op::Write {
                extent,
                data: &self.buffer,
            },
        };
        self.volume.execute(op).expect("it has its blocks");
        if direction == Direction::Read {
            return true;
        }
        let settled = self.volume.settle(self.ticket(slot));
        settled.expect("the file works") == Settled::Done
    }
}
