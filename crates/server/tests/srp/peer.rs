//! An SRP initiator over the provider in software, driven by the test.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use block::ByteRange;
use fabric::verbs::{
    Access, Completion, Data, Event, Gather, MemoryId, MemoryRange, PostError, ProtectionDomain,
    QpConfig, Qpn, RecvRequest, Region, SendOp, SendRequest, Signal, WorkId, WorkKind, WorkStatus,
};
use fabric::{ConnectTo, Provider, Soft, SoftOptions, Wait};
use session::{RemoteBuffer, RemoteKey};
use srp::wire::{Login, LoginReject, LoginResponse, ResponseHeader, opcode};
use zerocopy::{FromBytes, IntoBytes};

const DOMAIN: ProtectionDomain = ProtectionDomain(1);
const DATA_BYTES: usize = 1 << 20;
/// Where the target finds the data.
const BASE: u64 = 0x7000_0000;
const RECEIVES: u64 = 136;
const MESSAGE_BYTES: u64 = 8320;
const SENDS: u64 = 16;
/// Targets under emulation are slow.
const PATIENCE: Duration = Duration::from_secs(30);
const ACCESS: Access = Access {
    read: true,
    write: true,
    atomic: false,
    invalidate: false,
};

pub struct Peer {
    soft: Soft,
    qpn: Qpn,
    data: MemoryId,
    receives: MemoryId,
    sends: MemoryId,
    sent: u64,
    inbox: VecDeque<(ResponseHeader, Vec<u8>)>,
    pub is_gone: bool,
    pub is_logged_out: bool,
    pub login: Option<LoginResponse>,
}

impl Peer {
    /// Logs in from an address of loopback. The reason if the login is rejected.
    pub fn connect(from: SocketAddr, to: SocketAddr, login: &Login) -> Result<Self, u32> {
        Self::connect_with(from, to, login.as_bytes())
    }

    /// The same with any private data.
    pub fn connect_with(from: SocketAddr, to: SocketAddr, login: &[u8]) -> Result<Self, u32> {
        let mut soft = Soft::bind(&SoftOptions::at(from)).expect("a port of loopback is free");
        let mut memory = |len: u64| soft.allocate(len as usize).expect("memory");
        let data = memory(DATA_BYTES as u64);
        let receives = memory(RECEIVES * MESSAGE_BYTES);
        let sends = memory(SENDS * MESSAGE_BYTES);
        let qpn = soft.create_qp(QpConfig {
            domain: DOMAIN,
            access: ACCESS,
            recv_depth: RECEIVES as u16,
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
            is_logged_out: false,
            login: None,
        };
        (0..RECEIVES).for_each(|index| peer.post_recv(index));
        let to = ConnectTo {
            address: to.ip(),
            port: to.port(),
            private_data: login,
        };
        peer.soft.connect(peer.qpn, &to).expect("asked");
        let end = Instant::now() + Duration::from_secs(10);
        while Instant::now() < end {
            peer.poll();
            match peer.soft.next_event() {
                Some(Event::Connected { private_data, .. }) => {
                    let login = LoginResponse::read_from_prefix(&private_data);
                    let (login, _) = login.expect("an answer");
                    assert_eq!(login.opcode, opcode::LOGIN_RSP);
                    peer.login = Some(login);
                    return Ok(peer);
                }
                Some(Event::Rejected { private_data, .. }) => {
                    let reject = LoginReject::read_from_prefix(&private_data);
                    return Err(reject.map_or(0, |(reject, _)| reject.reason.get()));
                }
                Some(other) => panic!("{other:?}"),
                None => {}
            }
        }
        panic!("no answer")
    }

    /// The data of the next command.
    pub fn data(&mut self) -> &mut [u8] {
        self.soft.bytes_mut(self.data)
    }

    /// Registers `len` bytes of the data from `offset` on for the target's access.
    pub fn register(&mut self, offset: u64, len: u32) -> RemoteBuffer {
        let region = Region {
            domain: DOMAIN,
            placement: place(self.data, offset, u64::from(len)),
            base_va: BASE + offset,
            access: ACCESS,
        };
        let remote = self.soft.register(region).expect("room");
        RemoteBuffer {
            address: remote.va,
            key: RemoteKey(remote.rkey.0),
            len_bytes: len,
        }
    }

    pub fn send(&mut self, message: &[u8]) {
        let offset = self.sent % SENDS * MESSAGE_BYTES;
        self.sent += 1;
        self.soft.bytes_mut(self.sends)[offset as usize..][..message.len()]
            .copy_from_slice(message);
        let part = place(self.sends, offset, message.len() as u64);
        let request = SendRequest {
            id: WorkId(0),
            op: SendOp::Send(Data::Gather(Gather::new(&[part]).expect("one part"))),
            signal: Signal::OnError,
        };
        match self.soft.post_send(self.qpn, request) {
            Ok(()) | Err(PostError::Failed) => {}
            Err(error) => panic!("there is room: {error}"),
        }
        self.poll();
    }

    /// Sends a request, and returns its response: status, and what follows the header.
    pub fn ask(&mut self, message: &[u8]) -> (u8, Vec<u8>) {
        self.send(message);
        self.receive()
    }

    pub fn receive(&mut self) -> (u8, Vec<u8>) {
        self.until("an answer", |peer| !peer.inbox.is_empty());
        let (header, data) = self.inbox.pop_front().expect("one is there");
        (header.status, data)
    }

    /// Answers that have arrived.
    pub fn waiting(&self) -> usize {
        self.inbox.len()
    }

    pub fn until(&mut self, what: &str, done: impl Fn(&Self) -> bool) {
        let end = Instant::now() + PATIENCE;
        while !done(self) {
            assert!(Instant::now() < end, "{what}; gone: {}", self.is_gone);
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
            self.is_gone |= matches!(event, Event::Disconnected { .. } | Event::QpFailed { .. });
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
        if bytes[0] == opcode::T_LOGOUT {
            self.is_logged_out = true;
        } else {
            let response = ResponseHeader::read_from_prefix(bytes);
            let (header, data) = response.expect("a whole response");
            self.inbox.push_back((header, data.to_vec()));
        }
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

fn place(memory: MemoryId, offset: u64, len: u64) -> MemoryRange {
    MemoryRange {
        memory,
        range: ByteRange { offset, len },
    }
}
