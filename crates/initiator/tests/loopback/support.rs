//! A target on loopback: the session core behind one thread per connection.

use std::{
    io::{Read as _, Write as _},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use block::{BlockSize, Blocks, Extent, Lba, Op, ReadDest, Segment, SendList, StreamSession as _};
use initiator::Url;
use nvme::target::{Limits, Subsystem};
use nvme::tcp::{TargetConfig, TargetSession};
use nvme::testing::{TestBackend, VecVolume, subsystem};

/// A target that serves one volume as namespace 1 until it is dropped.
pub struct Target {
    pub address: SocketAddr,
    pub volume: Arc<VecVolume>,
    pub subsystem: Arc<Mutex<Subsystem>>,
    streams: Arc<Mutex<Vec<TcpStream>>>,
    stop: Arc<AtomicBool>,
    /// Connections accepted so far.
    pub accepted: Arc<AtomicU64>,
    /// Hosts that have shut their controller down.
    pub farewells: Arc<AtomicU64>,
}

impl Target {
    pub fn start(blocks: u64) -> Self {
        let volume = Arc::new(VecVolume::new(BlockSize::B512, blocks));
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let target = Self {
            address: listener.local_addr().unwrap(),
            subsystem: subsystem(Limits::default(), &[Arc::clone(&volume)]),
            volume,
            streams: Arc::default(),
            stop: Arc::default(),
            accepted: Arc::default(),
            farewells: Arc::default(),
        };
        let (subsystem, streams) = (target.subsystem.clone(), target.streams.clone());
        let (stop, accepted) = (target.stop.clone(), target.accepted.clone());
        let farewells = target.farewells.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let stream = stream.unwrap();
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                let wake = accepted.fetch_add(1, Ordering::Relaxed);
                streams.lock().unwrap().push(stream.try_clone().unwrap());
                let backend = TestBackend::new(subsystem.clone(), wake);
                let farewells = farewells.clone();
                thread::spawn(move || serve(&stream, backend, &farewells));
            }
        });
        target
    }

    pub fn url(&self, query: &str) -> Url {
        format!(
            "nvme+tcp://{}/nqn.2014-08.org.example:test?{query}",
            self.address
        )
        .parse()
        .unwrap()
    }

    /// Ends every connection.
    pub fn cut(&self) {
        for stream in self.streams.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.cut();
        let _ = TcpStream::connect(self.address);
    }
}

/// Whether `input` is a capsule with a Property Set of CC that asks for a normal shutdown.
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

fn serve(stream: &TcpStream, mut backend: TestBackend, farewells: &AtomicU64) {
    let mut stream = stream;
    stream.set_nodelay(true).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_millis(20)))
        .unwrap();
    let mut session = TargetSession::new(Instant::now(), TargetConfig::default());
    let mut list = SendList::with_capacity(1 << 20);
    let mut inbox = vec![0; 256 * 1024];
    loop {
        match stream.read(&mut inbox) {
            Ok(0) => break,
            Ok(len) => {
                farewells.fetch_add(is_farewell(&inbox[..len]).into(), Ordering::Relaxed);
                let now = Instant::now();
                let result = session.handle_bytes(now, &inbox[..len], &mut backend);
                if send(&mut session, &mut list, &mut backend, stream).is_err() || result.is_err() {
                    break;
                }
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                // Events of the subsystem and delayed completions.
                let now = Instant::now();
                if session.handle_wake(now, &mut backend).is_err()
                    || session.handle_timeout(now, &mut backend).is_err()
                    || send(&mut session, &mut list, &mut backend, stream).is_err()
                {
                    break;
                }
            }
            Err(_) => break,
        }
        if session.is_closing() {
            break;
        }
    }
    session.handle_close(Instant::now(), &mut backend);
    let _ = stream.shutdown(Shutdown::Both);
}

fn send(
    session: &mut TargetSession<TestBackend>,
    list: &mut SendList,
    backend: &mut TestBackend,
    mut stream: &TcpStream,
) -> std::io::Result<()> {
    while session.wants_transmit() {
        session.poll_transmit(Instant::now(), backend, list);
        let mut bytes = Vec::new();
        for segment in list.segments() {
            match segment {
                Segment::Bytes(part) => bytes.extend_from_slice(part),
                Segment::Place(place) => {
                    let start = bytes.len();
                    bytes.resize(start + place.range.len as usize, 0);
                    let volume = backend.volume(place.region).expect("a region");
                    let shift = volume.geometry().block_size.shift();
                    let blocks = Blocks(place.range.len >> shift);
                    let extent = Extent::new(Lba(place.range.offset >> shift), blocks);
                    let dest = ReadDest::Copy(&mut bytes[start..]);
                    volume.execute(Op::Read { extent, dest }).unwrap();
                }
            }
        }
        let len = list.len_bytes();
        list.consume(len);
        stream.write_all(&bytes)?;
    }
    Ok(())
}
