//! A client over the provider in software, driven by the test.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use block::ByteRange;
use fabric::verbs::{
    Access, Data, Event, Gather, MemoryId, MemoryRange, PostError, ProtectionDomain, QpConfig, Qpn,
    RecvRequest, Region, Rkey, SendOp, SendRequest, Signal, WorkId, WorkKind, WorkStatus,
};
use fabric::{ConnectTo, Provider, Soft, SoftOptions, Wait};
use nfs::rdma::wire::{PrivateData, Segment};
use zerocopy::IntoBytes;

const DOMAIN: ProtectionDomain = ProtectionDomain(1);
const DATA_BYTES: u64 = 1 << 20;
/// Where the server finds the data.
const BASE: u64 = 0x7000_0000;
const MESSAGE_BYTES: u64 = 4096;
/// Receives, and messages in flight.
const MESSAGES: u64 = 16;
/// Servers under emulation are slow.
const PATIENCE: Duration = Duration::from_secs(30);

pub struct Peer {
    soft: Soft,
    qpn: Qpn,
    data: MemoryId,
    receives: MemoryId,
    sends: MemoryId,
    sent: u64,
    inbox: VecDeque<Vec<u8>>,
    pub is_gone: bool,
    /// The private data of the server's reply.
    pub private_data: Box<[u8]>,
}

impl Peer {
    /// Connects as Linux's client does: messages of 4096 bytes, remote invalidation.
    pub fn connect(from: SocketAddr, to: SocketAddr) -> Self {
        let mut soft = Soft::bind(&SoftOptions::at(from)).expect("a port of loopback is free");
        let mut memory = |len: u64| soft.allocate(len as usize).expect("memory");
        let data = memory(DATA_BYTES);
        let (receives, sends) = (
            memory(MESSAGES * MESSAGE_BYTES),
            memory(MESSAGES * MESSAGE_BYTES),
        );
        let qpn = soft.create_qp(QpConfig {
            domain: DOMAIN,
            access: ACCESS,
            ..QpConfig::default()
        });
        let mut peer = Self {
            qpn: qpn.expect("room"),
            soft,
            data,
            receives,
            sends,
            sent: 0,
            inbox: VecDeque::new(),
            is_gone: false,
            private_data: Box::default(),
        };
        for index in 0..MESSAGES {
            peer.post_recv(index);
        }
        let private_data = PrivateData::new(4096, true);
        let to = ConnectTo {
            address: to.ip(),
            port: to.port(),
            private_data: private_data.as_bytes(),
        };
        peer.soft.connect(peer.qpn, &to).expect("asked");
        let end = Instant::now() + PATIENCE;
        loop {
            assert!(Instant::now() < end, "the server does not answer");
            peer.poll();
            match peer.soft.next_event() {
                Some(Event::Connected { private_data, .. }) => {
                    peer.private_data = private_data;
                    return peer;
                }
                Some(other) => panic!("{other:?}"),
                None => {}
            }
        }
    }

    /// The memory that segments name.
    pub fn data(&mut self) -> &mut [u8] {
        self.soft.bytes_mut(self.data)
    }

    /// Registers `len` bytes of the data from `offset` on for the server's access.
    pub fn register(&mut self, offset: u64, len: u64) -> Segment {
        let region = Region {
            domain: DOMAIN,
            placement: place(self.data, offset, len),
            base_va: BASE,
            access: ACCESS,
        };
        let remote = self.soft.register(region).expect("room");
        Segment {
            handle: remote.rkey.0.into(),
            len_bytes: (len as u32).into(),
            offset: remote.va.into(),
        }
    }

    /// Invalidates a key. Returns whether it was valid.
    pub fn invalidate(&mut self, segment: Segment) -> bool {
        self.soft.invalidate(Rkey(segment.handle.get()))
    }

    pub fn send(&mut self, message: &[u8]) {
        let offset = self.sent % MESSAGES * MESSAGE_BYTES;
        self.sent += 1;
        self.soft.bytes_mut(self.sends)[offset as usize..][..message.len()]
            .copy_from_slice(message);
        let part = place(self.sends, offset, message.len() as u64);
        let request = SendRequest {
            id: WorkId(0),
            op: SendOp::Send(Data::Gather(Gather::new(&[part]).expect("one part"))),
            signal: Signal::OnError,
        };
        self.soft
            .post_send(self.qpn, request)
            .expect("there is room");
        self.poll();
    }

    /// Waits for a message.
    pub fn receive(&mut self) -> Vec<u8> {
        self.until("a message", |peer| !peer.inbox.is_empty());
        self.inbox.pop_front().expect("one is there")
    }

    pub fn until(&mut self, what: &str, done: impl Fn(&Self) -> bool) {
        let end = Instant::now() + PATIENCE;
        while !done(self) {
            assert!(Instant::now() < end, "{what} did not come");
            self.turn();
        }
    }

    fn turn(&mut self) {
        self.poll();
        while let Some(completion) = self.soft.next_completion() {
            if completion.status == WorkStatus::Success && completion.kind == WorkKind::Recv {
                let start = (completion.id.0 * MESSAGE_BYTES) as usize;
                let bytes = &self.soft.bytes(self.receives)[start..];
                self.inbox
                    .push_back(bytes[..completion.len_bytes as usize].to_vec());
                self.post_recv(completion.id.0);
            }
        }
        while let Some(event) = self.soft.next_event() {
            self.is_gone |= matches!(event, Event::Disconnected { .. });
        }
    }

    fn poll(&mut self) {
        let wait = Wait::AtMost(Duration::from_millis(1));
        self.soft.poll(wait).expect("the socket works");
    }

    fn post_recv(&mut self, index: u64) {
        let request = RecvRequest {
            id: WorkId(index),
            into: place(self.receives, index * MESSAGE_BYTES, MESSAGE_BYTES),
        };
        match self.soft.post_recv(self.qpn, request) {
            // The server's last word, with the end of the connection behind it.
            Ok(()) | Err(PostError::Failed) => {}
            Err(error) => panic!("there is room: {error}"),
        }
    }
}

impl Drop for Peer {
    /// Disconnects, as an operating system does for a process that ends.
    fn drop(&mut self) {
        self.soft.destroy_qp(self.qpn);
        let _is_sent = self.soft.poll(Wait::AtMost(Duration::from_millis(1)));
    }
}

const ACCESS: Access = Access {
    read: true,
    write: true,
    atomic: false,
    invalidate: true,
};

fn place(memory: MemoryId, offset: u64, len: u64) -> MemoryRange {
    MemoryRange {
        memory,
        range: ByteRange { offset, len },
    }
}
