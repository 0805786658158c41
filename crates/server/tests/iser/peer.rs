//! An iSER initiator over the provider in software, driven by the test.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use block::ByteRange;
use fabric::verbs::{
    Access, Completion, Data, Event, Gather, MemoryId, MemoryRange, PostError, ProtectionDomain,
    QpConfig, Qpn, RecvRequest, Region, Rkey, SendOp, SendRequest, Signal, WorkId, WorkKind,
    WorkStatus,
};
use fabric::{ConnectTo, Provider, Soft, SoftOptions, Wait};
use iscsi::iser::wire::{Layout, Tag};
use iscsi::testing::{IserInitiator, Received, laid_out};
use iscsi::wire::response;

const DOMAIN: ProtectionDomain = ProtectionDomain(1);
const DATA_BYTES: usize = 1 << 20;
/// Where the target finds the data.
const BASE: u64 = 0x7000_0000;
const RECEIVES: u64 = 16;
const MESSAGE_BYTES: u64 = 8192 + 76;
const SENDS: u64 = 16;
/// Targets under emulation are slow.
const PATIENCE: Duration = Duration::from_secs(30);

/// The flags of a command, and its status.
pub const READ: u8 = 0xC1;
pub const WRITE: u8 = 0xA1;
pub const GOOD: (u8, u8) = (0, 0);

pub struct Peer {
    soft: Soft,
    qpn: Qpn,
    /// The data that commands name, the messages that come, and those that go.
    data: MemoryId,
    receives: MemoryId,
    sends: MemoryId,
    sent: u64,
    inbox: VecDeque<Received>,
    addresses: Addresses,
    pub is_gone: bool,
    pub initiator: IserInitiator,
    /// The private data of the target's reply.
    pub private_data: Box<[u8]>,
}

/// Whether the initiator's keys are zero-based, and the layout of its headers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Addresses {
    /// As Linux's: addresses of its memory.
    InFull,
    /// Offsets, given in every header.
    ZeroBased,
    /// Offsets, which headers have no place for: RFC 5046's.
    ZeroBasedUnsaid,
}

impl Addresses {
    fn private_data(self) -> [u8; 4] {
        let flags = if self == Self::InFull { 0x80 } else { 0 };
        [flags, 0, 0, 0]
    }

    fn base(self) -> u64 {
        if self == Self::InFull { BASE } else { 0 }
    }

    fn layout(self) -> Layout {
        match self {
            Self::InFull | Self::ZeroBased => Layout::Expanded,
            Self::ZeroBasedUnsaid => Layout::Short,
        }
    }
}

/// Why there is no connection.
#[derive(Debug, PartialEq, Eq)]
pub enum NotConnected {
    Rejected,
    NoAnswer,
}

impl Peer {
    /// Connects from an address of loopback.
    pub fn connect(
        from: SocketAddr,
        to: SocketAddr,
        addresses: Addresses,
    ) -> Result<Self, NotConnected> {
        let reads = QpConfig::default().responder_resources;
        Self::connect_for(reads, from, to, addresses)
    }

    /// Connects, and accepts this many outstanding RDMA READs.
    pub fn connect_for(
        reads: u8,
        from: SocketAddr,
        to: SocketAddr,
        addresses: Addresses,
    ) -> Result<Self, NotConnected> {
        let mut soft = Soft::bind(&SoftOptions::at(from)).expect("a port of loopback is free");
        let mut memory = |len: u64| soft.allocate(len as usize).expect("memory");
        let data = memory(DATA_BYTES as u64);
        let receives = memory(RECEIVES * MESSAGE_BYTES);
        let sends = memory(SENDS * MESSAGE_BYTES);
        let qpn = soft.create_qp(QpConfig {
            domain: DOMAIN,
            access: ACCESS,
            responder_resources: reads,
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
            addresses,
            is_gone: false,
            initiator: IserInitiator::default(),
            private_data: Box::default(),
        };
        (0..RECEIVES).for_each(|index| peer.post_recv(index));
        let to = ConnectTo {
            address: to.ip(),
            port: to.port(),
            private_data: &addresses.private_data(),
        };
        peer.soft.connect(peer.qpn, &to).expect("asked");
        let end = Instant::now() + Duration::from_secs(10);
        while Instant::now() < end {
            peer.poll();
            match peer.soft.next_event() {
                Some(Event::Connected { private_data, .. }) => {
                    peer.private_data = private_data;
                    return Ok(peer);
                }
                Some(Event::Rejected { .. }) => return Err(NotConnected::Rejected),
                Some(other) => panic!("{other:?}"),
                None => {}
            }
        }
        Err(NotConnected::NoAnswer)
    }

    /// Logs in as that initiator; with what status.
    pub fn log_in(&mut self, initiator: &str, target: &str) -> (u8, u8) {
        let mut keys = IserInitiator::KEYS.to_vec();
        keys.retain(|(key, _)| !["InitiatorName", "TargetName"].contains(key));
        keys.extend([("InitiatorName", initiator), ("TargetName", target)]);
        let login = self.initiator.login(&keys);
        self.send(&login);
        let answer = self.receive();
        assert_eq!(answer.bhs.opcode(), response::LOGIN);
        (answer.bhs.specific_20[16], answer.bhs.specific_20[17])
    }

    /// The data of the next command.
    pub fn data(&mut self) -> &mut [u8] {
        self.soft.bytes_mut(self.data)
    }

    /// Registers the first `len` bytes of the data for the target's access.
    pub fn register(&mut self, len: u64) -> Tag {
        self.register_at(0, len)
    }

    /// Registers `len` bytes of the data from `offset` on.
    pub fn register_at(&mut self, offset: u64, len: u64) -> Tag {
        let region = Region {
            domain: DOMAIN,
            placement: place(self.data, offset, len),
            base_va: self.addresses.base(),
            access: ACCESS,
        };
        let remote = self.soft.register(region).expect("room");
        Tag {
            stag: remote.rkey.0,
            base: remote.va,
        }
    }

    /// Whether a key is still worth something; not any more after this.
    pub fn invalidate(&mut self, tag: Tag) -> bool {
        self.soft.invalidate(Rkey(tag.stag))
    }

    pub fn send(&mut self, message: &[u8]) {
        let message = laid_out(message, self.addresses.layout());
        let offset = self.sent % SENDS * MESSAGE_BYTES;
        self.sent += 1;
        self.soft.bytes_mut(self.sends)[offset as usize..][..message.len()]
            .copy_from_slice(&message);
        let part = place(self.sends, offset, message.len() as u64);
        self.post(SendOp::Send(Data::Gather(one(part))));
    }

    /// Posts a request; nothing happens where the connection has ended.
    pub fn post(&mut self, op: SendOp) {
        let request = SendRequest {
            id: WorkId(0),
            op,
            signal: Signal::OnError,
        };
        match self.soft.post_send(self.qpn, request) {
            Ok(()) | Err(PostError::Failed) => {}
            Err(error) => panic!("there is room: {error}"),
        }
        self.poll();
    }

    /// The first `len` bytes of the data.
    pub fn gather(&self, len: u64) -> Gather {
        one(place(self.data, 0, len))
    }

    /// Waits until the target has answered or has ended the connection.
    pub fn until_over(&mut self, what: &str) {
        self.until(what, |peer| peer.is_gone || !peer.inbox.is_empty());
    }

    pub fn receive(&mut self) -> Received {
        self.until("an answer", |peer| !peer.inbox.is_empty());
        self.try_receive().expect("one is there")
    }

    /// An answer, if one has arrived.
    pub fn try_receive(&mut self) -> Option<Received> {
        self.inbox.pop_front()
    }

    pub fn until(&mut self, what: &str, done: impl Fn(&Self) -> bool) {
        let end = Instant::now() + PATIENCE;
        while !done(self) {
            assert!(
                Instant::now() < end,
                "{what} did not come; gone: {}",
                self.is_gone
            );
            self.turn();
        }
    }

    /// Handles what arrives within a millisecond.
    pub fn turn(&mut self) {
        self.poll();
        while let Some(completion) = self.soft.next_completion() {
            self.on_completion(&completion);
        }
        while let Some(event) = self.soft.next_event() {
            let ended = matches!(event, Event::Disconnected { .. } | Event::QpFailed { .. });
            self.is_gone |= ended;
        }
    }

    fn poll(&mut self) {
        let wait = Wait::AtMost(Duration::from_millis(1));
        self.soft.poll(wait).expect("the socket works");
    }

    fn on_completion(&mut self, completion: &Completion) {
        if completion.status != WorkStatus::Success || completion.kind != WorkKind::Recv {
            return;
        }
        let start = (completion.id.0 * MESSAGE_BYTES) as usize;
        let bytes = &self.soft.bytes(self.receives)[start..][..completion.len_bytes as usize];
        let key = completion.invalidated.map(|key| session::RemoteKey(key.0));
        self.inbox
            .push_back(Received::parse(bytes, self.addresses.layout(), key));
        self.post_recv(completion.id.0);
    }

    fn post_recv(&mut self, index: u64) {
        let request = RecvRequest {
            id: WorkId(index),
            into: place(self.receives, index * MESSAGE_BYTES, MESSAGE_BYTES),
        };
        match self.soft.post_recv(self.qpn, request) {
            // The target's last word, with the end of the connection behind it.
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

fn one(part: MemoryRange) -> Gather {
    Gather::new(&[part]).expect("one part")
}

fn place(memory: MemoryId, offset: u64, len: u64) -> MemoryRange {
    MemoryRange {
        memory,
        range: ByteRange { offset, len },
    }
}

pub fn cdb_10(opcode: u8, lba: u32, blocks: u16) -> [u8; 10] {
    let mut cdb = [0; 10];
    cdb[0] = opcode;
    cdb[2..6].copy_from_slice(&lba.to_be_bytes());
    cdb[7..9].copy_from_slice(&blocks.to_be_bytes());
    cdb
}
