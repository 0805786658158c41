//! Reactors with real sockets and a session of the simplest kind.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use block::testing::{Turn, assert_not_delayed, timed};
use block::{ByteRange, Pinned, RawSpan};
use session::{Placement, SendList, Session, SourceId, StreamSession};

use crate::{
    Accepted, Acceptor, Attachment, CloseReason, ConnectionId, DrivenStream, LoginProgress,
    ReactorOptions, Reactors, Threads, drive,
};

/// Commands of the test protocol: one byte each.
mod command {
    pub const LOGIN: u8 = b'L';
    /// Answer with [`super::SMALL`] bytes of the session's own.
    pub const SMALL: u8 = b's';
    /// Answer with [`super::LARGE`] bytes of the volume, in place.
    pub const LARGE: u8 = b'P';
    /// Answer after [`super::DELAY`].
    pub const LATER: u8 = b'd';
    /// From now on there is always more to do at once.
    pub const WORK: u8 = b'w';
    /// From now on, take no input while replies wait.
    pub const ORDERLY: u8 = b'o';
    pub const PANIC: u8 = b'!';
    pub const END: u8 = b'q';
}

const SMALL: usize = 64;
const LARGE: usize = 1 << 20;
const DELAY: Duration = Duration::from_millis(30);
const TIMEOUT: Duration = Duration::from_secs(10);

/// The memory of a volume: [`LARGE`] bytes that the test writes to, one value for all.
struct TestMemory(Box<[AtomicU8]>);

impl TestMemory {
    fn new() -> Self {
        Self((0..LARGE).map(|_| AtomicU8::new(0)).collect())
    }

    fn fill(&self, value: u8) {
        for byte in &self.0 {
            byte.store(value, Ordering::Relaxed);
        }
    }
}

impl Pinned for TestMemory {
    fn pin(&self, range: ByteRange, each: &mut dyn FnMut(RawSpan)) {
        let bytes = &self.0[range.offset as usize..(range.offset + range.len) as usize];
        each(RawSpan {
            ptr: bytes.as_ptr().cast(),
            len: bytes.len(),
        });
    }

    fn unpin(&self, _: ByteRange) {}
}

struct TestBackend {
    memory: Arc<TestMemory>,
    login_progress: LoginProgress,
    closed: Arc<Mutex<Vec<String>>>,
}

impl Attachment for TestBackend {
    fn handle_stalled(&mut self) {}

    fn may_send(&self, _: SourceId) -> bool {
        true
    }

    fn memory(&self, _: SourceId) -> Option<&dyn Pinned> {
        Some(&*self.memory)
    }

    fn charged_bytes(&self) -> u64 {
        0
    }

    fn login_progress(&self) -> LoginProgress {
        self.login_progress
    }

    fn handle_sent(&mut self, _: Instant) {}

    fn handle_drained(&mut self) {}

    fn handle_closed(&mut self, reason: &CloseReason) {
        self.closed
            .lock()
            .expect("unpoisoned")
            .push(reason.to_string());
    }
}

#[derive(Default)]
struct TestSession {
    replies: VecDeque<u8>,
    later: Option<Instant>,
    /// There is always more to do at once.
    works_since: Option<Instant>,
    is_orderly: bool,
    is_closing: bool,
}

#[derive(Debug, thiserror::Error)]
#[error("no such command")]
struct Unknown;

impl StreamSession for TestSession {
    fn turn_bytes(&self) -> usize {
        if self.is_orderly && !self.replies.is_empty() {
            0
        } else {
            usize::MAX
        }
    }

    fn handle_bytes(
        &mut self,
        now: Instant,
        input: &[u8],
        backend: &mut TestBackend,
    ) -> Result<(), Unknown> {
        assert!(!input.is_empty() && input.len() <= self.turn_bytes());
        for &byte in input {
            match byte {
                command::LOGIN => backend.login_progress = LoginProgress::Admitted,
                command::SMALL | command::LARGE => self.replies.push_back(byte),
                command::LATER => self.later = Some(now + DELAY),
                command::WORK => self.works_since = Some(now),
                command::ORDERLY => self.is_orderly = true,
                command::PANIC => panic!("as the test asked"),
                command::END => self.is_closing = true,
                _ => {
                    self.replies.push_back(command::SMALL);
                    return Err(Unknown);
                }
            }
        }
        Ok(())
    }

    fn poll_transmit(&mut self, _: Instant, _: &mut TestBackend, out: &mut SendList) {
        while let Some(reply) = self.replies.front() {
            let fits = match *reply {
                command::LARGE => out.place(Placement {
                    source: SourceId(0),
                    range: ByteRange {
                        offset: 0,
                        len: LARGE as u64,
                    },
                }),
                _ => out.push(&[b'.'; SMALL]),
            };
            if !fits {
                break;
            }
            self.replies.pop_front();
        }
    }
}

impl Session for TestSession {
    type Backend = TestBackend;
    type Error = Unknown;

    fn wants_transmit(&self) -> bool {
        !self.replies.is_empty()
    }

    fn is_idle(&self) -> bool {
        self.replies.is_empty() && self.later.is_none()
    }

    fn is_closing(&self) -> bool {
        self.is_closing
    }

    fn handle_wake(&mut self, _: Instant, _: &mut TestBackend) -> Result<(), Unknown> {
        self.replies.push_back(command::SMALL);
        Ok(())
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.works_since.or(self.later)
    }

    fn handle_timeout(&mut self, now: Instant, _: &mut TestBackend) -> Result<(), Unknown> {
        if self.later.take_if(|later| now >= *later).is_some() {
            self.replies.push_back(command::SMALL);
        }
        if let Some(since) = &mut self.works_since {
            *since = now;
        }
        Ok(())
    }

    fn handle_close(&mut self, _: Instant, _: &mut TestBackend) {}
}

struct TestAcceptor {
    memory: Arc<TestMemory>,
    closed: Arc<Mutex<Vec<String>>>,
    accepted: Mutex<Vec<ConnectionId>>,
}

impl Acceptor for TestAcceptor {
    fn accept(&self, _: Instant, accepted: &Accepted) -> Option<Box<dyn DrivenStream>> {
        self.accepted.lock().expect("unpoisoned").push(accepted.id);
        let backend = TestBackend {
            memory: Arc::clone(&self.memory),
            login_progress: LoginProgress::Pending,
            closed: Arc::clone(&self.closed),
        };
        Some(drive(TestSession::default(), backend))
    }
}

struct Fixture {
    reactors: Reactors,
    acceptor: Arc<TestAcceptor>,
    address: SocketAddr,
    _turn: Turn,
}

impl Fixture {
    fn new(options: ReactorOptions) -> Self {
        Self::at(Turn::shared(), options)
    }

    /// For a test that bounds delays.
    fn alone() -> Self {
        Self::at(Turn::alone(), ReactorOptions::default())
    }

    fn at(turn: Turn, options: ReactorOptions) -> Self {
        let acceptor = Arc::new(TestAcceptor {
            memory: Arc::new(TestMemory::new()),
            closed: Arc::default(),
            accepted: Mutex::default(),
        });
        let reactors = Reactors::start(options).expect("reactors start");
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let (_, address) = reactors
            .listen(any, acceptor.clone())
            .expect("loopback listens");
        Self {
            reactors,
            acceptor,
            address,
            _turn: turn,
        }
    }

    fn with_defaults() -> Self {
        Self::new(ReactorOptions::default())
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).expect("connects");
        stream.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
        stream.set_nodelay(true).expect("no delay");
        stream
    }

    fn log_in(&self) -> TcpStream {
        let mut stream = self.connect();
        exchange(&mut stream, &[command::LOGIN, command::SMALL], SMALL);
        stream
    }

    fn wait_closed(&self, count: usize) -> Vec<String> {
        let until = Instant::now() + TIMEOUT;
        loop {
            let closed = self.acceptor.closed.lock().expect("unpoisoned").clone();
            if closed.len() >= count {
                return closed;
            }
            assert!(Instant::now() < until, "closed so far: {closed:?}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

fn exchange(stream: &mut TcpStream, commands: &[u8], reply_bytes: usize) -> Vec<u8> {
    stream.write_all(commands).expect("sent");
    let mut reply = vec![0; reply_bytes];
    stream.read_exact(&mut reply).expect("answered");
    reply
}

fn is_closed(stream: &mut TcpStream) -> bool {
    let mut rest = Vec::new();
    match stream.read_to_end(&mut rest) {
        Ok(_) => true,
        Err(error) => error.kind() == io::ErrorKind::ConnectionReset,
    }
}

#[test]
fn a_session_that_takes_no_input_is_given_none_until_its_output_was_sent() {
    let fixture = Fixture::with_defaults();
    let mut stream = fixture.log_in();
    stream
        .write_all(&[&[command::ORDERLY], &[command::LARGE; 8][..]].concat())
        .expect("sent");
    let reply = exchange(&mut stream, &[command::LARGE; 8], 12 * LARGE);
    assert_eq!(reply.len(), 12 * LARGE);
    exchange(&mut stream, &[command::SMALL], 4 * LARGE + SMALL);
}

#[test]
fn commands_are_answered_in_order_over_several_reactors() {
    let fixture = Fixture::new(ReactorOptions {
        threads: Threads::Count(3),
        ..ReactorOptions::default()
    });
    fixture.acceptor.memory.fill(7);
    let mut streams: Vec<_> = (0..6).map(|_| fixture.log_in()).collect();
    for stream in &mut streams {
        let reply = exchange(
            stream,
            &[command::SMALL, command::LARGE, command::SMALL],
            LARGE + 2 * SMALL,
        );
        assert_eq!(&reply[..SMALL], [b'.'; SMALL]);
        assert!(reply[SMALL..SMALL + LARGE].iter().all(|&byte| byte == 7));
        assert_eq!(&reply[SMALL + LARGE..], [b'.'; SMALL]);
    }
    let mut reactors: Vec<_> = fixture
        .acceptor
        .accepted
        .lock()
        .expect("unpoisoned")
        .iter()
        .map(|id| id.thread())
        .collect();
    reactors.sort_unstable();
    assert_eq!(reactors, [0, 0, 1, 1, 2, 2], "each reactor got as many");
}

#[test]
fn work_that_is_done_in_pieces_lets_others_have_their_turns() {
    let fixture = Fixture::new(ReactorOptions {
        threads: Threads::Count(1),
        ..ReactorOptions::default()
    });
    let (mut works, mut other) = (fixture.log_in(), fixture.log_in());
    works.write_all(&[command::WORK]).expect("sent");
    for _ in 0..100 {
        exchange(&mut other, &[command::SMALL], SMALL);
        exchange(&mut works, &[command::SMALL], SMALL);
    }
}

#[test]
fn a_reader_that_stalls_stops_being_read_and_costs_one_list() {
    let fixture = Fixture::alone();
    let mut stalled = fixture.log_in();
    stalled
        .set_write_timeout(Some(Duration::from_millis(500)))
        .expect("a timeout");
    let flood = vec![command::SMALL; 1 << 20];
    let mut sent_bytes = 0;
    let stopped = loop {
        match stalled.write(&flood) {
            Ok(sent) => sent_bytes += sent,
            Err(error) => break error.kind(),
        }
        assert!(sent_bytes < 256 << 20, "the flood was taken in without end");
    };
    assert_eq!(stopped, io::ErrorKind::WouldBlock);
    let mut other = fixture.log_in();
    let mut round_trip = || {
        exchange(&mut other, &[command::SMALL], SMALL);
    };
    let times: Vec<_> = (0..100).map(|_| timed(&mut round_trip)).collect();
    let mut reply = vec![0; sent_bytes.min(1 << 20) * SMALL];
    stalled.read_exact(&mut reply).expect("all was kept");
    assert!(reply.iter().all(|&byte| byte == b'.'));
    assert_not_delayed(&times, round_trip);
}

#[test]
fn a_flood_on_one_connection_lets_others_have_their_turns() {
    let fixture = Fixture::with_defaults();
    let mut flooding = fixture.log_in();
    let mut reading = flooding.try_clone().expect("a second handle");
    let mut polite = fixture.log_in();
    let received = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&received);
    let reader = std::thread::spawn(move || {
        let mut buffer = vec![0; 1 << 20];
        while let Ok(count @ 1..) = reading.read(&mut buffer) {
            counter.fetch_add(count, Ordering::Relaxed);
        }
    });
    let writer = std::thread::spawn(move || {
        let flood = [command::LARGE; 4096];
        while flooding.write(&flood).is_ok() {}
    });
    let until = Instant::now() + TIMEOUT;
    while received.load(Ordering::Relaxed) < 8 * LARGE {
        assert!(Instant::now() < until, "the flood never began");
        std::thread::yield_now();
    }
    let before = received.load(Ordering::Relaxed);
    for _ in 0..50 {
        exchange(&mut polite, &[command::SMALL], SMALL);
    }
    let meanwhile = received.load(Ordering::Relaxed) - before;
    assert!(
        meanwhile < 50 * 8 * LARGE,
        "{meanwhile} bytes went to the flood while 50 commands waited"
    );
    drop(fixture);
    writer.join().expect("the writer ends");
    reader.join().expect("the reader ends");
}

#[test]
fn a_session_is_woken_through_the_mailbox() {
    let fixture = Fixture::with_defaults();
    let mut stream = fixture.log_in();
    let id = fixture.acceptor.accepted.lock().expect("unpoisoned")[0];
    std::thread::sleep(Duration::from_millis(20));
    fixture.reactors.handle().wake(id);
    let mut reply = [0; SMALL];
    stream.read_exact(&mut reply).expect("the wake is answered");
}

#[test]
fn a_timer_fires_when_due_and_not_before() {
    let fixture = Fixture::with_defaults();
    let mut stream = fixture.log_in();
    let started = Instant::now();
    exchange(&mut stream, &[command::LATER], SMALL);
    let took = started.elapsed();
    assert!(took >= DELAY, "after {took:?}");
}

#[test]
fn a_login_that_is_not_completed_ends() {
    let fixture = Fixture::new(ReactorOptions {
        handshake_timeout: Duration::from_millis(50),
        ..ReactorOptions::default()
    });
    let mut logged_in = fixture.log_in();
    let mut silent = fixture.connect();
    assert!(is_closed(&mut silent));
    assert_eq!(
        fixture.wait_closed(1),
        [CloseReason::HandshakeTimeout.to_string()]
    );
    exchange(&mut logged_in, &[command::SMALL], SMALL);
}

#[test]
fn a_flood_of_half_open_connections_leaves_admitted_ones_alone() {
    let fixture = Fixture::new(ReactorOptions {
        half_open_per_network_max: 4,
        ..ReactorOptions::default()
    });
    let mut logged_in = fixture.log_in();
    let mut half_open: Vec<_> = (0..4).map(|_| fixture.connect()).collect();
    for stream in &mut half_open {
        exchange(stream, &[command::SMALL], SMALL);
    }
    assert!(is_closed(&mut fixture.connect()), "one too many");
    exchange(&mut logged_in, &[command::SMALL], SMALL);
    exchange(&mut half_open[0], &[command::LOGIN, command::SMALL], SMALL);
    let mut next = fixture.connect();
    exchange(&mut next, &[command::SMALL], SMALL);
}

#[test]
fn a_peer_that_breaks_the_protocol_gets_the_last_output() {
    let fixture = Fixture::with_defaults();
    let mut stream = fixture.log_in();
    let mut everything = Vec::new();
    stream.write_all(b"?sssss").expect("sent");
    stream.read_to_end(&mut everything).expect("a clean end");
    assert_eq!(everything, [b'.'; SMALL]);
    drop(stream);
    assert!(fixture.wait_closed(1)[0].contains("no such command"));
}

#[test]
fn a_session_that_ends_sends_its_pending_output() {
    let fixture = Fixture::with_defaults();
    let mut stream = fixture.log_in();
    let mut everything = Vec::new();
    stream
        .write_all(&[command::SMALL, command::SMALL, command::END])
        .expect("sent");
    stream.read_to_end(&mut everything).expect("a clean end");
    assert_eq!(everything.len(), 2 * SMALL);
}

#[test]
fn a_panic_ends_its_own_connection_only() {
    let fixture = Fixture::with_defaults();
    let mut other = fixture.log_in();
    let mut doomed = fixture.log_in();
    doomed.write_all(&[command::PANIC]).expect("sent");
    assert!(is_closed(&mut doomed));
    assert_eq!(fixture.wait_closed(1), [CloseReason::Panicked.to_string()]);
    exchange(&mut other, &[command::SMALL], SMALL);
}

#[test]
fn draining_lets_commands_in_progress_finish() {
    let fixture = Fixture::with_defaults();
    let mut busy = fixture.log_in();
    let mut idle = fixture.log_in();
    busy.write_all(&[command::LATER]).expect("sent");
    exchange(&mut busy, &[command::SMALL], SMALL);
    fixture.reactors.stop(TIMEOUT);
    let mut reply = [0; SMALL];
    busy.read_exact(&mut reply).expect("the delayed reply came");
    assert!(is_closed(&mut busy) && is_closed(&mut idle));
    assert!(TcpStream::connect(fixture.address).is_err());
    let closed = fixture.wait_closed(2);
    assert_eq!(
        closed,
        [
            CloseReason::Stopping.to_string(),
            CloseReason::Stopping.to_string()
        ]
    );
}

#[test]
fn closing_a_portal_ends_its_connections() {
    let fixture = Fixture::with_defaults();
    let mut stream = fixture.log_in();
    fixture.reactors.unlisten(crate::ListenerId(0));
    assert!(is_closed(&mut stream));
    assert_eq!(fixture.wait_closed(1), [CloseReason::Requested.to_string()]);
}

#[test]
fn a_thousand_connections_come_and_go_without_a_trace() {
    let fixture = Fixture::with_defaults();
    let descriptors = || std::fs::read_dir("/proc/self/fd").expect("procfs").count();
    drop(fixture.log_in());
    fixture.wait_closed(1);
    let before = descriptors();
    for _ in 0..1000 {
        drop(fixture.log_in());
    }
    fixture.wait_closed(1001);
    let until = Instant::now() + TIMEOUT;
    // Other tests of this process open sockets too.
    while descriptors() > before + 100 {
        assert!(
            Instant::now() < until,
            "{} descriptors are left",
            descriptors()
        );
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(fixture.reactors.handle().connections(), 0);
}

mod lanes;
