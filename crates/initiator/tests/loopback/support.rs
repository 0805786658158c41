//! Targets on loopback: the session cores behind one thread per connection.

use std::{
    io::{Read as _, Write as _},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use block::testing::VecVolume;
use block::{BlockSize, Blocks, Extent, Lba, Op, ReadDest};
use initiator::{
    Backoff, CommandError, Completion, DeviceOptions, Operation, Queue, Request, Slot, Url,
    WaitStrategy,
};
use iscsi::tcp::TargetSession;
use iscsi::testing::TestTarget;
use nvme::controller::{Limits, Subsystem};
use nvme::tcp::{ControllerConfig, ControllerSession};
use nvme::testing::{TestBackend, subsystem};
use session::{Segment, SendList, Session, StreamSession};

pub const BLOCK: usize = 512;
/// How long a test waits for what must come.
pub const PATIENCE: Duration = Duration::from_secs(20);

pub fn options(buffer_bytes: usize) -> DeviceOptions {
    DeviceOptions {
        depth: 8,
        buffer_bytes,
        backoff: Backoff {
            first: Duration::from_millis(1),
            max: Duration::from_millis(50),
            give_up_after: PATIENCE,
            ..Backoff::default()
        },
        ..DeviceOptions::default()
    }
}

pub fn request(slot: u16, operation: Operation, lba: u64, blocks: u64) -> Request {
    Request {
        slot: Slot(slot),
        operation,
        extent: Extent::new(Lba(lba), Blocks(blocks)),
    }
}

/// Submits and waits for this one.
pub fn run(queue: &mut Queue, request: Request) -> Result<(), CommandError> {
    let mut done = Vec::new();
    queue.submit(request).unwrap();
    queue
        .wait(WaitStrategy::Sleep, PATIENCE, &mut done)
        .unwrap();
    assert_eq!(done.len(), 1, "one command, one completion");
    assert_eq!(done[0].slot, request.slot);
    done[0].result
}

/// Waits until there are `count` outcomes in `done`.
pub fn finish(queue: &mut Queue, count: usize, done: &mut Vec<Completion>, what: &str) {
    while done.len() < count {
        let came = queue.wait(WaitStrategy::Sleep, PATIENCE, done).unwrap();
        assert!(came > 0, "{what}: no progress");
    }
}

pub fn pattern(seed: u64, len: usize) -> Vec<u8> {
    (0..len as u64)
        .map(|i| (seed.wrapping_mul(0x9E37_79B9) ^ i.wrapping_mul(31)) as u8)
        .collect()
}

/// A connection, and the thread that serves it.
type Served = (TcpStream, JoinHandle<()>);

/// Accepts connections until it is dropped.
pub struct Acceptor {
    pub address: SocketAddr,
    connections: Arc<Mutex<Vec<Served>>>,
    stop: Arc<AtomicBool>,
    /// Connections accepted so far.
    pub accepted: Arc<AtomicU64>,
}

impl Acceptor {
    /// Calls `serve` in a thread for each connection, with its number.
    fn start(serve: impl Fn(u64, &TcpStream) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let acceptor = Self {
            address: listener.local_addr().unwrap(),
            connections: Arc::default(),
            stop: Arc::default(),
            accepted: Arc::default(),
        };
        let (connections, stop) = (acceptor.connections.clone(), acceptor.stop.clone());
        let (accepted, serve) = (acceptor.accepted.clone(), Arc::new(serve));
        thread::spawn(move || {
            for stream in listener.incoming() {
                let stream = stream.unwrap();
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                let number = accepted.fetch_add(1, Ordering::Relaxed);
                let serve = Arc::clone(&serve);
                let copy = stream.try_clone().unwrap();
                let thread = thread::spawn(move || serve(number, &copy));
                connections.lock().unwrap().push((stream, thread));
            }
        });
        acceptor
    }

    /// Ends every connection, and waits until its commands are executed: they must not take effect
    /// after those of a connection that replaces it.
    pub fn cut(&self) {
        let connections = std::mem::take(&mut *self.connections.lock().unwrap());
        for (stream, _) in &connections {
            let _ = stream.shutdown(Shutdown::Both);
        }
        for (_, thread) in connections {
            let _ = thread.join();
        }
    }
}

impl Drop for Acceptor {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.cut();
        let _ = TcpStream::connect(self.address);
    }
}

/// An NVMe/TCP target that serves one volume as namespace 1 until it is dropped.
pub struct Target {
    pub volume: Arc<VecVolume>,
    pub subsystem: Arc<Mutex<Subsystem>>,
    /// Hosts that have shut their controller down.
    pub farewells: Arc<AtomicU64>,
    acceptor: Acceptor,
}

impl Target {
    pub fn start(blocks: u64) -> Self {
        let volume = Arc::new(VecVolume::new(BlockSize::B512, blocks));
        let subsystem = subsystem(Limits::default(), &[Arc::clone(&volume)]);
        let served = subsystem.clone();
        let farewells = Arc::new(AtomicU64::new(0));
        let counted = farewells.clone();
        let acceptor = Acceptor::start(move |wake, stream| {
            let backend = TestBackend::new(served.clone(), wake);
            let session = ControllerSession::new(Instant::now(), ControllerConfig::default());
            let note = |input: &[u8]| {
                counted.fetch_add(is_farewell(input).into(), Ordering::Relaxed);
            };
            serve(stream, session, backend, drain_nvme, note);
        });
        Self {
            volume,
            subsystem,
            farewells,
            acceptor,
        }
    }

    pub fn url(&self, query: &str) -> Url {
        format!(
            "nvme+tcp://{}/nqn.2014-08.org.example:test?{query}",
            self.address
        )
        .parse()
        .unwrap()
    }
}

impl std::ops::Deref for Target {
    type Target = Acceptor;

    fn deref(&self) -> &Acceptor {
        &self.acceptor
    }
}

/// An iSCSI target that serves volumes as LUNs until it is dropped.
pub struct IscsiTarget {
    pub target: TestTarget,
    /// How many bytes the commands of each connection may gather.
    pub room: Arc<AtomicU64>,
    /// Connections with a lower number are deaf: nothing of what comes on them is read.
    pub deaf_below: Arc<AtomicU64>,
    acceptor: Acceptor,
}

impl IscsiTarget {
    pub fn start(blocks: u64) -> Self {
        let volumes = (0..2).map(|_| Arc::new(VecVolume::new(BlockSize::B512, blocks)));
        Self::of(TestTarget::new(volumes.collect()))
    }

    pub fn of(target: TestTarget) -> Self {
        let served = target.clone();
        let room = Arc::new(AtomicU64::new(u64::MAX));
        let deaf_below = Arc::new(AtomicU64::new(0));
        let (left, deaf) = (Arc::clone(&room), Arc::clone(&deaf_below));
        let acceptor = Acceptor::start(move |number, stream| {
            serve(
                stream,
                TargetSession::new(),
                served.backend(),
                |connection, backend| {
                    while deaf.load(Ordering::Relaxed) > number {
                        thread::sleep(Duration::from_millis(5));
                    }
                    backend.gather_max = left.load(Ordering::Relaxed);
                    backend.drain(Instant::now(), connection)
                },
                |_| {},
            );
        });
        Self {
            target,
            room,
            deaf_below,
            acceptor,
        }
    }

    pub fn url(&self, lun: u16, query: &str) -> Url {
        let name = TestTarget::NAME;
        let text = format!("iscsi://{}/{name}/{lun}?{query}", self.address);
        text.parse().unwrap()
    }
}

impl std::ops::Deref for IscsiTarget {
    type Target = Acceptor;

    fn deref(&self) -> &Acceptor {
        &self.acceptor
    }
}

/// Whether `input` is a capsule with a Property Set of CC that requests a normal shutdown.
fn is_farewell(input: &[u8]) -> bool {
    const HEADER: usize = 8;
    const FABRICS: u8 = 0x7F;
    const PROPERTY_SET: u8 = 0x00;
    const CC: u8 = 0x14;
    const SHN_NORMAL: u8 = 0b01 << 6;
    let Some(sqe) = input.get(HEADER..HEADER + 64) else {
        return false;
    };
    sqe[0] == FABRICS && sqe[4] == PROPERTY_SET && sqe[44] == CC && sqe[49] & 0xC0 == SHN_NORMAL
}

/// Serves one connection; `note` sees what is received.
fn serve<S: StreamSession>(
    mut stream: &TcpStream,
    mut session: S,
    mut backend: S::Backend,
    drain: impl Fn(&mut S, &mut S::Backend) -> Vec<u8>,
    note: impl Fn(&[u8]),
) {
    stream.set_nodelay(true).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_millis(20)))
        .unwrap();
    let mut inbox = vec![0; 256 * 1024];
    loop {
        let taken = match stream.read(&mut inbox) {
            Ok(0) => break,
            Ok(len) => {
                note(&inbox[..len]);
                session.handle_bytes(Instant::now(), &inbox[..len], &mut backend)
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                // Events of shared state and delayed completions.
                let now = Instant::now();
                let woken = session.handle_wake(now, &mut backend);
                woken.and_then(|()| session.handle_timeout(now, &mut backend))
            }
            Err(_) => break,
        };
        let sent = stream.write_all(&drain(&mut session, &mut backend));
        if sent.is_err() || taken.is_err() || session.is_closing() {
            break;
        }
    }
    session.handle_close(Instant::now(), &mut backend);
    let _ = stream.shutdown(Shutdown::Both);
}

fn drain_nvme(session: &mut ControllerSession<TestBackend>, backend: &mut TestBackend) -> Vec<u8> {
    let mut list = SendList::with_capacity(1 << 20);
    let mut bytes = Vec::new();
    while session.wants_transmit() {
        session.poll_transmit(Instant::now(), backend, &mut list);
        for segment in list.segments() {
            match segment {
                Segment::Bytes(part) => bytes.extend_from_slice(part),
                Segment::Place(place) => {
                    let start = bytes.len();
                    bytes.resize(start + place.range.len as usize, 0);
                    let volume = backend.volume(place.source).expect("a source");
                    let shift = volume.geometry().block_size.shift();
                    let blocks = Blocks(place.range.len >> shift);
                    let extent = Extent::new(Lba(place.range.offset >> shift), blocks);
                    let dest = ReadDest::Copy(&mut bytes[start..]);
                    volume.execute(Op::Read { extent, dest }).unwrap();
                }
            }
        }
        list.consume(list.len_bytes());
    }
    bytes
}
