//! An NVMe/RDMA host over the provider in software, driven by the test: one queue.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use block::ByteRange;
use fabric::verbs::{
    Access, Completion, Data, Event, Gather, Inline, MemoryId, MemoryRange, ProtectionDomain,
    QpConfig, Qpn, RecvRequest, Region, Remote, SendOp, SendRequest, Signal, WorkId, WorkKind,
    WorkStatus,
};
use fabric::{ConnectTo, Provider, Soft, SoftOptions, Wait};
use nvme::rdma::wire::ConnectRequest;
use nvme::wire::{Cid, Cqe, Invalidate, Nsid, Sgl, Sqe};
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, IntoBytes};

/// Entries of a queue.
pub const ENTRIES: u16 = 16;
const DOMAIN: ProtectionDomain = ProtectionDomain(1);
const ACCESS: Access = Access {
    read: true,
    write: true,
    atomic: false,
    invalidate: true,
};
const DATA_BYTES: usize = 2 << 20;
const RESPONSE_BYTES: u64 = 16;
/// Targets under emulation are slow.
const PATIENCE: Duration = Duration::from_secs(30);

pub struct Peer {
    soft: Soft,
    qpn: Qpn,
    data: MemoryId,
    data_at: Remote,
    receives: MemoryId,
    responses: VecDeque<Cqe>,
    is_gone: bool,
    /// Its queue pair has failed.
    has_failed: bool,
}

/// The connection was refused.
#[derive(Debug)]
pub struct Refused {
    pub private_data: Box<[u8]>,
}

impl std::fmt::Debug for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a host with {:?}", self.qpn)
    }
}

impl Peer {
    /// Asks for a connection for a queue.
    pub fn connect(from: SocketAddr, to: SocketAddr, queue: u16) -> Result<Self, Refused> {
        let mut soft = Soft::bind(&SoftOptions::at(from)).expect("a port of loopback is free");
        let data = soft.allocate(DATA_BYTES).expect("memory");
        let receives = soft.allocate(usize::from(ENTRIES) * RESPONSE_BYTES as usize);
        let config = QpConfig {
            domain: DOMAIN,
            access: ACCESS,
            ..QpConfig::default()
        };
        let region = Region {
            domain: DOMAIN,
            placement: place(data, 0, DATA_BYTES as u64),
            base_va: 0x7000_0000,
            access: ACCESS,
        };
        let mut peer = Self {
            qpn: soft.create_qp(config).expect("room"),
            data_at: soft.register(region).expect("room"),
            soft,
            data,
            receives: receives.expect("memory"),
            responses: VecDeque::new(),
            is_gone: false,
            has_failed: false,
        };
        (0..u64::from(ENTRIES)).for_each(|index| peer.post_recv(index));
        let asked = ConnectRequest::new(queue, ENTRIES);
        let to = ConnectTo {
            address: to.ip(),
            port: to.port(),
            private_data: asked.as_bytes(),
        };
        peer.soft.connect(peer.qpn, &to).expect("asked");
        match peer.event() {
            Event::Connected { private_data, .. } => {
                assert_eq!(private_data[..4], [0, 0, ENTRIES as u8, 0], "CRQSIZE");
                Ok(peer)
            }
            Event::Rejected { private_data, .. } => Err(Refused { private_data }),
            other => panic!("{other:?}"),
        }
    }

    /// The data of the next command.
    pub fn data(&mut self) -> &mut [u8] {
        self.soft.bytes_mut(self.data)
    }

    /// Sends a command with the first `len` bytes of the data, and waits for its completion.
    pub fn command(&mut self, sqe: &Sqe, len: usize) -> Cqe {
        self.keyed_command(sqe, len as u32, self.data_at);
        self.until("a completion", |peer| !peer.responses.is_empty());
        let cqe = self.responses.pop_front().expect("one is there");
        assert_eq!(cqe.cid.get(), sqe.cid().0);
        cqe
    }

    fn keyed_command(&mut self, sqe: &Sqe, len: u32, at: Remote) {
        let mut sqe = *sqe;
        sqe.sgl1 = Sgl::keyed(at.va, len, at.rkey.0, Invalidate::No);
        let inline = Inline::new(sqe.as_bytes()).expect("64 bytes");
        self.send(SendOp::Send(Data::Inline(inline)));
    }

    /// Sends a command whose data, of 1024 bytes, are somewhere else, and waits for nothing.
    pub fn command_to(&mut self, sqe: &Sqe, at: Remote) {
        self.keyed_command(sqe, 1024, at);
    }

    /// Posts a request. One that has no room any more is left out.
    pub fn send(&mut self, op: SendOp) {
        let request = SendRequest {
            id: WorkId(0),
            op,
            signal: Signal::OnError,
        };
        let _ = self.soft.post_send(self.qpn, request);
    }

    /// `len` bytes for a message, at most 64.
    pub fn inline(&self, len: usize) -> Data {
        Data::Inline(Inline::new(&self.soft.bytes(self.data)[..len]).expect("at most 64"))
    }

    /// The first `len` bytes of the data.
    pub fn gather(&self, len: u32) -> Gather {
        Gather::new(&[place(self.data, 0, u64::from(len))]).expect("one part")
    }

    /// Waits until the connection has ended, by either end.
    pub fn until_over(&mut self) {
        self.until("the end", |peer| peer.is_gone || peer.has_failed);
    }

    pub fn until_gone(&mut self) {
        self.until("the end", |peer| peer.is_gone);
    }

    fn event(&mut self) -> Event {
        let end = Instant::now() + PATIENCE;
        loop {
            assert!(Instant::now() < end, "nothing happened");
            self.poll();
            if let Some(event) = self.soft.next_event() {
                return event;
            }
        }
    }

    fn until(&mut self, what: &str, done: impl Fn(&Self) -> bool) {
        let end = Instant::now() + PATIENCE;
        while !done(self) {
            assert!(Instant::now() < end, "{what} did not come");
            self.poll();
            while let Some(completion) = self.soft.next_completion() {
                self.on_completion(&completion);
            }
            while let Some(event) = self.soft.next_event() {
                self.is_gone |= matches!(event, Event::Disconnected { .. });
                self.has_failed |= matches!(event, Event::QpFailed { .. });
            }
        }
    }

    fn on_completion(&mut self, completion: &Completion) {
        if completion.kind == WorkKind::Recv && completion.status == WorkStatus::Success {
            assert_eq!(u64::from(completion.len_bytes), RESPONSE_BYTES);
            let start = (completion.id.0 * RESPONSE_BYTES) as usize;
            let bytes = &self.soft.bytes(self.receives)[start..];
            let (cqe, _) = Cqe::read_from_prefix(bytes).expect("16 bytes");
            self.responses.push_back(cqe);
            self.post_recv(completion.id.0);
        }
    }

    fn post_recv(&mut self, index: u64) {
        let request = RecvRequest {
            id: WorkId(index),
            into: place(self.receives, index * RESPONSE_BYTES, RESPONSE_BYTES),
        };
        self.soft.post_recv(self.qpn, request).expect("room");
    }

    fn poll(&mut self) {
        let wait = Wait::AtMost(Duration::from_millis(1));
        self.soft.poll(wait).expect("the socket works");
    }
}

/// A read or write, by `opcode`, of `len` bytes behind the namespace's first 4 KiB.
pub fn transfer(opcode: u8, cid: u16, len: usize) -> Sqe {
    let mut sqe = Sqe::new(opcode, Cid(cid), Nsid(1));
    sqe.set_cdw10_11(8);
    sqe.cdw12 = U32::new((len / 512) as u32 - 1);
    sqe
}

fn place(memory: MemoryId, offset: u64, len: u64) -> MemoryRange {
    MemoryRange {
        memory,
        range: ByteRange { offset, len },
    }
}
