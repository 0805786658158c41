//! A peer of the toy server: a provider in software, driven by the test.

use std::collections::VecDeque;
use std::fmt;
use std::time::{Duration, Instant};

use block::ByteRange;
use fabric::verbs::{
    Access, Completion, Data, Event, Gather, Inline, MemoryId, MemoryRange, PostError,
    ProtectionDomain, QpConfig, Qpn, RecvRequest, Region, RejReason, Remote, SendOp, SendRequest,
    Signal, WorkId, WorkKind, WorkStatus,
};
use fabric::{ConnectTo, Provider, Soft, SoftOptions, Wait};

use crate::toy::{PORT, Server};

const ALL: Access = Access {
    read: true,
    write: true,
    atomic: false,
    invalidate: true,
};
const DOMAIN: ProtectionDomain = ProtectionDomain(1);
const MEMORY_BYTES: usize = (1 << 20) + 4096;
const BASE: u64 = 0x4000_0000;
const RECEIVES: u64 = 8;
const RECEIVE_BYTES: u64 = 64;

/// A connection was refused.
#[derive(Debug)]
pub struct Refused {
    pub reason: RejReason,
    pub private_data: Box<[u8]>,
}

pub struct Peer {
    soft: Soft,
    qpn: Qpn,
    data: MemoryId,
    receives: MemoryId,
    memory_at: Remote,
    messages: VecDeque<Vec<u8>>,
    is_gone: bool,
    pub private_data: Box<[u8]>,
    pub invalidated: Option<u32>,
    pub send_status: Option<WorkStatus>,
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a connection of {:?}", self.qpn)
    }
}

impl Peer {
    pub fn connect(server: &Server, private_data: &[u8]) -> Result<Self, Refused> {
        Self::connect_to(server, PORT, private_data)
    }

    pub fn connect_to(server: &Server, port: u16, private_data: &[u8]) -> Result<Self, Refused> {
        let options = SoftOptions::at(server.peer_address());
        let mut soft = Soft::bind(&options).expect("a port of loopback is free");
        let data = soft.allocate(MEMORY_BYTES).expect("memory");
        let receives = soft.allocate((RECEIVES * RECEIVE_BYTES) as usize);
        let receives = receives.expect("memory");
        let config = QpConfig {
            domain: DOMAIN,
            access: ALL,
            ..QpConfig::default()
        };
        let qpn = soft.create_qp(config).expect("room");
        let region = Region {
            domain: DOMAIN,
            placement: place(data, 0, MEMORY_BYTES as u64),
            base_va: BASE,
            access: ALL,
        };
        let memory_at = soft.register(region).expect("room");
        let mut peer = Self {
            soft,
            qpn,
            data,
            receives,
            memory_at,
            messages: VecDeque::new(),
            is_gone: false,
            private_data: Box::default(),
            invalidated: None,
            send_status: None,
        };
        (0..RECEIVES).for_each(|index| peer.post_recv(index));
        let to = ConnectTo {
            address: Server::ADDRESS,
            port,
            private_data,
        };
        peer.soft.connect(qpn, &to).expect("asked");
        peer.private_data = peer.answer()?;
        Ok(peer)
    }

    /// Asks for one more connection from the same address.
    pub fn connect_again(&mut self) -> Result<(), Refused> {
        let qpn = self.soft.create_qp(QpConfig::default()).expect("room");
        let to = ConnectTo {
            address: Server::ADDRESS,
            port: PORT,
            private_data: b"",
        };
        self.soft.connect(qpn, &to).expect("asked");
        self.answer().map(|_| ())
    }

    fn answer(&mut self) -> Result<Box<[u8]>, Refused> {
        match self.event() {
            Event::Connected { private_data, .. } => Ok(private_data),
            Event::Rejected {
                reason,
                private_data,
                ..
            } => Err(Refused {
                reason,
                private_data,
            }),
            other => panic!("{other:?}"),
        }
    }

    pub fn key(&self) -> u32 {
        self.memory_at.rkey.0
    }

    pub fn memory(&mut self) -> &mut [u8] {
        self.soft.bytes_mut(self.data)
    }

    pub fn send(&mut self, message: &[u8]) {
        let data = if let Some(inline) = Inline::new(message) {
            Data::Inline(inline)
        } else {
            self.memory()[..message.len()].copy_from_slice(message);
            let part = place(self.data, 0, message.len() as u64);
            Data::Gather(Gather::new(&[part]).expect("one part"))
        };
        let request = SendRequest {
            id: WorkId(0),
            op: SendOp::Send(data),
            signal: Signal::OnError,
        };
        self.soft.post_send(self.qpn, request).expect("room");
        self.soft.poll(Wait::Poll).expect("the socket works");
    }

    /// Asks for something to be done with this peer's memory.
    pub fn ask(&mut self, command: u8, offset: u64, len: u32) {
        self.ask_with(self.key(), command, offset, len);
    }

    pub fn ask_with(&mut self, key: u32, command: u8, offset: u64, len: u32) {
        let address = self.memory_at.va + offset;
        let (key, len) = (key.to_le_bytes(), len.to_le_bytes());
        self.send(&[&[command][..], &key, &len, &address.to_le_bytes()].concat());
    }

    pub fn receive(&mut self) -> Vec<u8> {
        self.until("a message", |peer| !peer.messages.is_empty());
        self.messages.pop_front().expect("one is there")
    }

    pub fn disconnect(&mut self) {
        self.soft.destroy_qp(self.qpn);
        for _ in 0..3 {
            let _ = self.soft.poll(Wait::AtMost(Duration::from_millis(2)));
        }
    }

    pub fn until_gone(&mut self) {
        self.until("the end", |peer| peer.is_gone);
    }

    fn event(&mut self) -> Event {
        let end = Instant::now() + Duration::from_secs(10);
        loop {
            assert!(Instant::now() < end, "nothing happened");
            let wait = Wait::AtMost(Duration::from_millis(1));
            self.soft.poll(wait).expect("the socket works");
            if let Some(event) = self.soft.next_event() {
                return event;
            }
        }
    }

    fn until(&mut self, what: &str, done: impl Fn(&Self) -> bool) {
        let end = Instant::now() + Duration::from_secs(20);
        while !done(self) {
            assert!(Instant::now() < end, "{what} did not come");
            let wait = Wait::AtMost(Duration::from_millis(1));
            self.soft.poll(wait).expect("the socket works");
            while let Some(completion) = self.soft.next_completion() {
                self.on_completion(&completion);
            }
            while let Some(event) = self.soft.next_event() {
                self.is_gone |= matches!(event, Event::Disconnected { .. });
            }
        }
    }

    fn on_completion(&mut self, completion: &Completion) {
        if completion.status != WorkStatus::Success {
            if completion.kind == WorkKind::Send && self.send_status.is_none() {
                self.send_status = Some(completion.status);
            }
            return;
        }
        if completion.kind == WorkKind::Recv {
            let start = (completion.id.0 * RECEIVE_BYTES) as usize;
            let bytes = &self.soft.bytes(self.receives)[start..];
            let message = bytes[..completion.len_bytes as usize].to_vec();
            self.messages.push_back(message);
            self.invalidated = completion.invalidated.map(|key| key.0);
            self.post_recv(completion.id.0);
        }
    }

    fn post_recv(&mut self, index: u64) {
        let request = RecvRequest {
            id: WorkId(index),
            into: place(self.receives, index * RECEIVE_BYTES, RECEIVE_BYTES),
        };
        let posted = self.soft.post_recv(self.qpn, request);
        // The last word may be followed closely by the end.
        assert!(
            matches!(posted, Ok(()) | Err(PostError::Failed)),
            "{posted:?}"
        );
    }
}

fn place(memory: MemoryId, offset: u64, len: u64) -> MemoryRange {
    MemoryRange {
        memory,
        range: ByteRange { offset, len },
    }
}
