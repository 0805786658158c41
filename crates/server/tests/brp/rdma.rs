//! The same over RDMA in software, and peers that break the rules of BRP's queue pairs.

use std::collections::VecDeque;

use block::ByteRange;
use brp::wire::{
    ConnectionReply, ConnectionRequest, Descriptor, Kind, Login, LoginReply, Short, Step,
};
use fabric::verbs::{
    Access as RdmaAccess, Data, Event, Gather, MemoryId, MemoryRange, PostError, QpConfig, Qpn,
    RecvRequest, SendOp, SendRequest, Signal, WorkId, WorkKind, WorkStatus,
};
use fabric::{ConnectTo, Provider, Soft, SoftOptions, Wait};
use session::{RemoteBuffer, RemoteKey};
use zerocopy::FromBytes;

use super::rdma_crowd::{Crowd, assert_bounded};
use super::*;

/// A peer's receives and sends, and the length of each.
const ENTRIES: u16 = 80;
const ENTRY_BYTES: u64 = 8192;

/// A queue pair that sends any bytes.
struct Peer {
    soft: Soft,
    qpn: Qpn,
    memory: MemoryId,
    sent: u64,
    messages: VecDeque<Vec<u8>>,
    is_over: bool,
}

impl Peer {
    /// Asks for a connection; `None` if it is rejected. `reads` is how many RDMA READs it answers
    /// at once.
    fn connect(to: SocketAddr, private_data: &[u8], reads: u8) -> Option<(Self, Vec<u8>)> {
        let mut soft = Soft::bind(&SoftOptions::at_ip(own_loopback().into())).expect("a free port");
        let config = QpConfig {
            send_depth: ENTRIES,
            recv_depth: ENTRIES,
            responder_resources: reads,
            access: RdmaAccess {
                read: true,
                write: true,
                atomic: false,
                invalidate: true,
            },
            ..QpConfig::default()
        };
        let memory = soft.allocate(2 * usize::from(ENTRIES) * ENTRY_BYTES as usize);
        let mut peer = Self {
            qpn: soft.create_qp(config).expect("room"),
            memory: memory.expect("memory"),
            soft,
            sent: 0,
            messages: VecDeque::new(),
            is_over: false,
        };
        (0..u64::from(ENTRIES)).for_each(|index| peer.post_receive(index));
        let to = ConnectTo {
            address: to.ip(),
            port: to.port(),
            private_data,
        };
        peer.soft.connect(peer.qpn, &to).expect("asked");
        let until = Instant::now() + PATIENCE;
        loop {
            assert!(Instant::now() < until, "no answer");
            peer.poll();
            match peer.soft.next_event() {
                None => {}
                Some(Event::Connected { private_data, .. }) => {
                    return Some((peer, private_data.to_vec()));
                }
                Some(Event::Rejected { .. }) => return None,
                Some(other) => panic!("{other:?}"),
            }
        }
    }

    /// A connection as our hosts make it.
    fn connected(to: SocketAddr) -> Self {
        Self::connected_for(to, 4)
    }

    fn connected_for(to: SocketAddr, tags: u16) -> Self {
        let request = ConnectionRequest::new(tags);
        let (peer, told) = Self::connect(to, request.as_bytes(), 4).expect("it is BRP's");
        let reply = ConnectionReply::parse(&told).expect("BRP's reply");
        assert_eq!(reply.tags.get(), tags);
        peer
    }

    fn logged_in(to: SocketAddr) -> (Self, LoginReply) {
        Self::log_in(to, login())
    }

    fn log_in(to: SocketAddr, mut login: Login) -> (Self, LoginReply) {
        let mut peer = Self::connected_for(to, login.tags.get());
        login.reply_data_max_bytes.set(4096);
        peer.send(login.as_bytes());
        let reply = peer.login_reply();
        assert_eq!(reply.status.get(), LoginStatus::Ok as u16);
        (peer, reply)
    }

    fn place(&self, index: u64, len: u64) -> MemoryRange {
        let offset = index * ENTRY_BYTES;
        MemoryRange {
            memory: self.memory,
            range: ByteRange { offset, len },
        }
    }

    fn post_receive(&mut self, index: u64) {
        let request = RecvRequest {
            id: WorkId(index),
            into: self.place(index, ENTRY_BYTES),
        };
        self.soft.post_recv(self.qpn, request).expect("room");
    }

    fn send(&mut self, message: &[u8]) {
        let index = u64::from(ENTRIES) + self.sent % u64::from(ENTRIES);
        self.sent += 1;
        let start = (index * ENTRY_BYTES) as usize;
        self.soft.bytes_mut(self.memory)[start..start + message.len()].copy_from_slice(message);
        let gather = Gather::new(&[self.place(index, message.len() as u64)]).expect("one part");
        let request = SendRequest {
            id: WorkId(0),
            op: SendOp::Send(Data::Gather(gather)),
            signal: Signal::OnError,
        };
        // A queue pair that has failed takes none; one whose sends are not acknowledged yet, later.
        while self.soft.post_send(self.qpn, request) == Err(PostError::Full) {
            self.poll();
        }
    }

    fn poll(&mut self) {
        let wait = Wait::AtMost(Duration::from_millis(1));
        self.soft.poll(wait).expect("the socket works");
    }

    fn until(&mut self, what: &str, is_done: impl Fn(&Self) -> bool) {
        let until = Instant::now() + PATIENCE;
        while !is_done(self) {
            assert!(Instant::now() < until, "{what} did not come");
            self.poll();
            while let Some(completion) = self.soft.next_completion() {
                if (completion.kind, completion.status) == (WorkKind::Recv, WorkStatus::Success) {
                    let start = (completion.id.0 * ENTRY_BYTES) as usize;
                    let message = &self.soft.bytes(self.memory)[start..];
                    let message = message[..completion.len_bytes as usize].to_vec();
                    self.messages.push_back(message);
                    self.post_receive(completion.id.0);
                }
            }
            while let Some(event) = self.soft.next_event() {
                self.is_over |=
                    matches!(event, Event::Disconnected { .. } | Event::QpFailed { .. });
            }
        }
    }

    fn message(&mut self) -> Vec<u8> {
        self.until("a message", |peer| !peer.messages.is_empty());
        self.messages.pop_front().expect("one has come")
    }

    fn login_reply(&mut self) -> LoginReply {
        LoginReply::read_from_bytes(&self.message()).expect("128 bytes")
    }

    /// Reads a block with each of the first `tags` tags, and returns how many messages have
    /// answered.
    fn burst(&mut self, tags: u16, sequence: u32) -> u16 {
        for tag in 0..tags {
            self.send(command(WireOperation::Read, tag, sequence, 0).as_bytes());
        }
        let (mut answered, mut messages) = (vec![false; tags.into()], 0);
        while answered.contains(&false) {
            let message = self.message();
            messages += 1;
            let (first, behind) = Short::read_from_prefix(&message).expect("16 bytes");
            let is_joined = first.kind == Kind::Replies as u8;
            let mut rest = if is_joined { behind } else { &message[..] };
            while !rest.is_empty() {
                let (reply, data) = Short::read_from_prefix(rest).expect("16 bytes");
                assert_eq!((reply.kind, reply.status()), (Kind::Reply as u8, 0));
                assert_eq!(data[..512], [0; 512]);
                let was_answered = &mut answered[usize::from(reply.tag.get())];
                assert!(!std::mem::replace(was_answered, true), "once");
                rest = &data[512..];
            }
        }
        messages
    }

    fn expect_fault(&mut self, violation: Violation) {
        let fault = Short::read_from_bytes(&self.message()).expect("16 bytes");
        let expected = (Kind::Fault as u8, violation as u8);
        assert_eq!((fault.kind, fault.code), expected, "{violation:?}");
        self.until("the end", |peer| peer.is_over);
    }
}

#[test]
fn every_operation_works_over_rdma_and_two_hosts_see_the_same_volume() {
    check_operations(Transport::BrpRdma);
}

#[test]
fn figures_and_sessions_over_rdma_are_counted_and_a_session_can_be_ended() {
    check_figures(Transport::BrpRdma);
}

#[test]
fn what_changes_for_a_host_over_rdma_holds_at_once() {
    check_changes(Transport::BrpRdma);
}

/// BRP-30: the server closes connections at any moment.
#[test]
fn no_command_over_rdma_is_lost_or_executed_twice_while_connections_are_lost() {
    sessions::check_replays(Transport::BrpRdma);
}

/// BRP-6, BRP-8, with the statuses that depend on the common access check.
#[test]
fn a_login_over_rdma_is_rejected_with_its_reason_and_the_connection_ends() {
    let fixture = Fixture::over(Transport::BrpRdma);
    fixture.define_host(None);
    fixture.allow(Access::ReadOnly);
    let named = |name: &str| brp::wire::NameField::new(name).expect("a name");
    let mut stranger = login();
    stranger.host = named("nqn.other");
    let mut unknown = login();
    unknown.target = named("nqn.unknown");
    let mut other_unit = login();
    other_unit.unit.set(2);
    for (login, status) in [
        (stranger, LoginStatus::Denied),
        (unknown, LoginStatus::NoTarget),
        (other_unit, LoginStatus::NoUnit),
    ] {
        let mut peer = Peer::connected(fixture.address());
        peer.send(login.as_bytes());
        assert_eq!(peer.login_reply().status.get(), status as u16, "{status:?}");
        peer.until("the end", |peer| peer.is_over);
    }
    let url = format!("{}/{NQN}?hostnqn=nqn.other", fixture.portal);
    let url = url.parse().expect("a URL");
    let refused = Device::connect(&url, &options()).expect_err("it is not allowed");
    assert!(
        refused.to_string().contains("rejected the login"),
        "{refused}"
    );
    let (_device, mut queue) = fixture.attach("");
    assert!(reads(&mut queue, 0, 0, 8));
    let denied = run(&mut queue, Operation::Write, 0, 1);
    assert_eq!(denied, Err(CommandError::Brp(Status::Denied)));
}

/// BRP-9, BRP-10, BRP-15: peers that break the protocol are disconnected, and another host notices
/// nothing.
#[test]
fn hostile_peers_over_rdma_are_disconnected_and_disturb_nobody() {
    let fixture = Fixture::alone(Transport::BrpRdma);
    let to = fixture.address();
    let (_device, mut queue) = fixture.attach("");
    fill(&mut queue, 5, 2048);
    run(&mut queue, Operation::Write, 0, 2048).expect("write");
    let request = ConnectionRequest::new(4);
    assert!(Peer::connect(to, b"NVMe?", 4).is_none(), "not BRP's");
    assert!(
        Peer::connect(to, request.as_bytes(), 0).is_none(),
        "no READ"
    );

    let mut peer = Peer::connected(to);
    peer.send(b"GET / HTTP/1.1\r\n\r\n");
    peer.expect_fault(Violation::Kind);
    let mut peer = Peer::connected(to);
    peer.send(command(WireOperation::Read, 0, 1, 0).as_bytes());
    peer.expect_fault(Violation::Login);
    let (mut peer, reply) = Peer::logged_in(to);
    assert_eq!(reply.tags.get(), 4);
    peer.send(command(WireOperation::Read, 4, 1, 0).as_bytes());
    peer.expect_fault(Violation::Tag);
    let (mut peer, _) = Peer::logged_in(to);
    let mut many = command(WireOperation::Read, 0, 1, 0);
    many.descriptors.set(5);
    peer.send(many.as_bytes());
    peer.expect_fault(Violation::Length);

    // Keys that open nothing end the queue pair, for reads and for writes. Meanwhile, the host's
    // commands are timed.
    let mut round_trip = || writes_and_reads(&mut queue, 8);
    let mut beside = Vec::new();
    for operation in [WireOperation::Read, WireOperation::Write] {
        let (mut peer, _) = Peer::logged_in(to);
        let mut wrong = command(operation, 0, 1, 0);
        wrong.descriptors.set(1);
        let nowhere = Descriptor::of(RemoteBuffer {
            address: 0x1000,
            key: RemoteKey(0xDEAD),
            len_bytes: 512,
        });
        peer.send(&[wrong.as_bytes(), nowhere.as_bytes()].concat());
        beside.extend((0..BESIDE).map(|_| timed(&mut round_trip)));
        peer.until("the end", |peer| peer.is_over);
    }
    wait_until(|| fixture.server.portals()[0].connections == 1);
    assert_not_delayed(&beside, round_trip);
    assert!(reads(&mut queue, 5, 0, 2048), "nothing was written");
}

/// BRP-36, BRP-38, BRP-39: an adaptive target joins replies of a loaded session, and neither those
/// of one that sends command after command, nor those of one that has not asked for it.
#[test]
fn replies_over_rdma_are_joined_under_load_alone() {
    const TAGS: u16 = 64;
    const BURSTS: u32 = 200;
    let fixture = Fixture::over(Transport::BrpRdma);
    let log_in = |step: Step| {
        let mut login = login();
        login.tags.set(TAGS);
        login.features.set(step.features().0);
        Peer::log_in(fixture.address(), login).0
    };
    let mut peer = log_in(Step::Merge);
    for sequence in 1..=BURSTS {
        assert_eq!(peer.burst(1, sequence), 1);
    }
    let joins = |peer: &mut Peer, sequence: u32| peer.burst(TAGS, sequence) < TAGS;
    let is_joined = (1..=BURSTS).any(|burst| joins(&mut peer, BURSTS + burst));
    assert!(is_joined, "bursts of {TAGS} commands are a load");
    let mut peer = log_in(Step::Parallel);
    let is_joined = (1..=BURSTS).any(|burst| joins(&mut peer, burst));
    assert!(!is_joined, "nobody has asked for it");
}

#[test]
fn a_crowd_over_rdma_that_never_logs_in_leaves_memory_and_time_to_others() {
    let fixture = Fixture::over(Transport::BrpRdma);
    let to = fixture.address();
    let (_device, mut queue) = fixture.attach("");
    let request = ConnectionRequest::new(128);
    let crowds = [(); 4].map(|()| Crowd {
        from: (own_loopback(), 4791).into(),
        to,
        private_data: request.as_bytes(),
    });
    let probe = || run(&mut queue, Operation::Write, 0, 8).expect("write");
    let late = || drop(Peer::logged_in(to));
    assert_bounded(&fixture.server, &crowds, probe, late);
}
