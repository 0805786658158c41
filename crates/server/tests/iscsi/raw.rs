//! A bare iSCSI initiator, which can send any bytes, and the server that it connects to.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use block::testing::Turn;
use block::{Blocks, Extent, Lba};
use initiator::{
    CommandError, Device, DeviceOptions, OnLoss, Operation, Queue, Request, Slot, WaitStrategy,
};
use server::{ByteSize, HostPolicy, Server, Transport, VolumeSpec};

use super::fixture;

pub const MIB: u64 = 1 << 20;
pub const PATIENCE: Duration = Duration::from_secs(20);
/// Of the session that must not notice anything.
pub const OWN: &str = "iqn.2026-11.com.example:own";
/// Where others do what they like.
pub const OTHERS: &str = "iqn.2026-11.com.example:others";

pub struct Fixture {
    pub server: Server,
    pub address: SocketAddr,
    _turn: Turn,
}

impl Fixture {
    /// A server of one core, with a target of one LUN of 16 MiB, and another of one LUN as given.
    pub fn new(memory_bytes: u64, others: &VolumeSpec) -> Self {
        Self::at(Turn::shared(), memory_bytes, others)
    }

    /// The same for a test that bounds delays.
    pub fn alone(memory_bytes: u64, others: &VolumeSpec) -> Self {
        Self::at(Turn::alone(), memory_bytes, others)
    }

    fn at(turn: Turn, memory_bytes: u64, others: &VolumeSpec) -> Self {
        let spec = VolumeSpec::thin(ByteSize(16 * MIB));
        let server = fixture::start(fixture::config(1, memory_bytes), "rd0", &spec);
        let second = "rd1".parse().expect("a name");
        server
            .create_volume(second, others, &mut |_| {})
            .expect("room");
        for (target, volume) in [(OWN, "rd0"), (OTHERS, "rd1")] {
            fixture::offer(&server, target, volume, HostPolicy::Local);
        }
        let portal = fixture::portal(Transport::Iscsi, ([127, 0, 0, 1], 0));
        let portal = server.add_portal(portal).expect("a free port");
        Self {
            server,
            address: portal.address,
            _turn: turn,
        }
    }

    /// A session that counts as lost where its connection is.
    pub fn attach(&self) -> (Device, Queue) {
        let url = format!("iscsi://{}/{OWN}/0", self.address);
        let options = DeviceOptions {
            depth: 4,
            buffer_bytes: 64 << 10,
            on_loss: OnLoss::Fail,
            ..DeviceOptions::default()
        };
        let url = url.parse().expect("a URL");
        let mut device = Device::connect(&url, &options).expect("attaches");
        let queue = device.take_queues().remove(0);
        (device, queue)
    }
}

pub fn wait_until(mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < until, "it did not come to be so");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Submits one command and waits for it.
pub fn run(queue: &mut Queue, operation: Operation, lba: u64) -> Result<(), CommandError> {
    let request = Request {
        slot: Slot(0),
        operation,
        extent: Extent::new(Lba(lba), Blocks(BLOCKS)),
    };
    let mut done = Vec::new();
    queue.submit(request).expect("the slot is free");
    queue
        .wait(WaitStrategy::Sleep, PATIENCE, &mut done)
        .expect("the queue lives");
    done[0].result
}

/// Blocks of each command of [`run`].
pub const BLOCKS: u64 = 16;

/// A peer that sends what a test tells it to.
pub struct Peer {
    pub stream: TcpStream,
    pub cmd_sn: u32,
}

/// A PDU that came.
pub struct Pdu {
    pub header: [u8; 48],
    /// With its padding.
    pub data: Vec<u8>,
}

impl Peer {
    pub fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("the portal listens");
        stream.set_nodelay(true).expect("a socket option");
        let patience = Some(PATIENCE);
        stream.set_read_timeout(patience).expect("a socket option");
        stream.set_write_timeout(patience).expect("a socket option");
        Self { stream, cmd_sn: 1 }
    }

    /// Logs in to the target for others; `keys` are added to what is needed.
    pub fn log_in(address: SocketAddr, name: &str, keys: &str) -> Self {
        let mut peer = Self::begin_login(address, OTHERS, name, keys);
        peer.finish_login();
        peer
    }

    /// Sends the login to `target`, which is yet to be answered.
    pub fn begin_login(address: SocketAddr, target: &str, name: &str, keys: &str) -> Self {
        let mut peer = Self::connect(address);
        let text =
            format!("InitiatorName=iqn.2026-11.com.example:{name}\0TargetName={target}\0{keys}");
        peer.send(login(), text.as_bytes());
        peer
    }

    /// Receives the answer to the login, which succeeds.
    pub fn finish_login(&mut self) {
        let answer = self.receive().expect("an answer to the login");
        assert_eq!((answer.header[0] & 0x3F, answer.header[36]), (0x23, 0));
    }

    /// Sends a PDU without digests, as well as the other end takes it.
    pub fn send(&mut self, mut header: [u8; 48], data: &[u8]) {
        header[5..8].copy_from_slice(&(data.len() as u32).to_be_bytes()[1..]);
        let mut bytes = header.to_vec();
        bytes.extend_from_slice(data);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        self.send_raw(&bytes);
    }

    /// Sends bytes; whether the connection was open.
    pub fn send_raw(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).is_ok()
    }

    pub fn command(&mut self, itt: u32, flags: u8, cdb: &[u8], expected: u32, data: &[u8]) {
        let header = self.command_header(itt, flags, cdb, expected);
        self.send(header, data);
    }

    pub fn command_header(&mut self, itt: u32, flags: u8, cdb: &[u8], expected: u32) -> [u8; 48] {
        let mut header = [0; 48];
        (header[0], header[1]) = (0x01, flags);
        header[16..20].copy_from_slice(&itt.to_be_bytes());
        header[20..24].copy_from_slice(&expected.to_be_bytes());
        header[24..28].copy_from_slice(&self.cmd_sn.to_be_bytes());
        header[32..32 + cdb.len()].copy_from_slice(cdb);
        self.cmd_sn = self.cmd_sn.wrapping_add(1);
        header
    }

    /// The next PDU without digests; `None` where the connection has ended.
    pub fn receive(&mut self) -> Option<Pdu> {
        let mut header = [0; 48];
        self.fill(&mut header)?;
        let len = u32::from_be_bytes([0, header[5], header[6], header[7]]) as usize;
        let mut data = vec![0; len.next_multiple_of(4)];
        self.fill(&mut data)?;
        Some(Pdu { header, data })
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Option<()> {
        match self.stream.read_exact(bytes) {
            Ok(()) => Some(()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => panic!("no answer came"),
            Err(_) => None,
        }
    }

    /// Whether anything has come that was not received, or the connection has ended.
    pub fn has_answer(&self) -> bool {
        self.stream.set_nonblocking(true).expect("a socket option");
        let peeked = self.stream.peek(&mut [0]);
        self.stream.set_nonblocking(false).expect("a socket option");
        !matches!(peeked, Err(error) if error.kind() == ErrorKind::WouldBlock)
    }

    /// Shuts down the sending side, and reads until the other end closes, which is asserted.
    pub fn finish(mut self) {
        let _ = self.stream.shutdown(Shutdown::Write);
        let mut sink = vec![0; 64 << 10];
        loop {
            match self.stream.read(&mut sink) {
                Ok(0) => return,
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    panic!("the connection was not closed")
                }
                Err(_) => return,
            }
        }
    }
}

/// The header of a login that goes straight to full feature phase.
pub fn login() -> [u8; 48] {
    let mut header = [0; 48];
    (header[0], header[1], header[13], header[27]) = (0x43, 0x87, 1, 1);
    header
}
