//! What every provider must do, whatever it is.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use block::ByteRange;
use fabric::verbs::{
    Access, CommId, Completion, Data, Event, Gather, Inline, MemoryId, MemoryRange, PostError,
    ProtectionDomain, QpConfig, QpFailure, Qpn, RecvRequest, Region, RejReason, Remote, SendOp,
    SendRequest, Signal, WorkId, WorkKind, WorkStatus,
};
use fabric::{ConnectTo, Provider, Wait};

const PORT: u16 = 4420;
const TIMEOUT: Duration = Duration::from_secs(60);
const BASE_VA: u64 = 0x7000_0000;
const DOMAIN: ProtectionDomain = ProtectionDomain(3);
const ALL: Access = Access {
    read: true,
    write: true,
    atomic: true,
    invalidate: true,
};

/// Queue pairs of the suite.
pub const QP: QpConfig = QpConfig {
    domain: DOMAIN,
    access: ALL,
    send_depth: 64,
    recv_depth: 64,
    responder_resources: 16,
    initiator_depth: 16,
    retry_min: 12,
    rnr_wait: Duration::from_millis(1),
    may_stay: false,
};

/// Two providers that reach each other.
pub struct Ends<P> {
    pub providers: [P; 2],
    addresses: [IpAddr; 2],
    completions: [Vec<Completion>; 2],
    events: [Vec<Event>; 2],
}

/// A connection between them, and memory at both.
struct Link {
    ids: [CommId; 2],
    qpns: [Qpn; 2],
    memory: [MemoryId; 2],
}

const MEMORY_BYTES: usize = 4 << 20;

/// A part of the suite.
pub type Part<P> = fn(&mut Ends<P>);

/// The whole suite: each part takes fresh ends.
pub fn parts<P: Provider>() -> [(&'static str, Part<P>); 10] {
    [
        ("private_data_reach_both_ends", private_data_reach_both_ends),
        (
            "rejections_carry_their_reason",
            rejections_carry_their_reason,
        ),
        ("messages_arrive_in_order", messages_arrive_in_order),
        ("reads_and_writes_move_bytes", reads_and_writes_move_bytes),
        ("keys_are_invalidated", keys_are_invalidated),
        (
            "wrong_keys_end_the_queue_pair",
            wrong_keys_end_the_queue_pair,
        ),
        ("receivers_may_be_late", receivers_may_be_late),
        ("disconnecting_flushes", disconnecting_flushes),
        ("connections_come_and_go", connections_come_and_go),
        ("bulk", bulk),
    ]
}

impl<P: Provider> Ends<P> {
    pub fn new(first: (P, IpAddr), second: (P, IpAddr)) -> Self {
        Self {
            providers: [first.0, second.0],
            addresses: [first.1, second.1],
            completions: Default::default(),
            events: Default::default(),
        }
    }

    /// Drives both until `done`.
    fn until(&mut self, what: &str, mut done: impl FnMut(&Self) -> bool) {
        let end = Instant::now() + TIMEOUT;
        while !done(self) {
            assert!(Instant::now() < end, "{what}: {:?}", self.events);
            for (index, provider) in self.providers.iter_mut().enumerate() {
                let wait = Wait::AtMost(Duration::from_micros(200));
                provider.poll(wait).expect("the provider works");
                self.completions[index].extend(std::iter::from_fn(|| provider.next_completion()));
                self.events[index].extend(std::iter::from_fn(|| provider.next_event()));
            }
        }
    }

    /// The completions of an end, once there are `count`.
    fn completed(&mut self, end: usize, count: usize) -> Vec<(u64, WorkStatus)> {
        self.until("completions", |e| e.completions[end].len() >= count);
        let taken = std::mem::take(&mut self.completions[end]);
        taken.iter().map(|c| (c.id.0, c.status)).collect()
    }

    fn ask(&mut self, private_data: &[u8]) -> (CommId, Qpn) {
        self.providers[1].listen(PORT).expect("the port is free");
        let qpn = self.providers[0].create_qp(QP).expect("there is room");
        let to = ConnectTo {
            address: self.addresses[1],
            port: PORT,
            private_data,
        };
        let id = self.providers[0].connect(qpn, &to).expect("asked");
        (id, qpn)
    }

    /// The next event of an end.
    fn event(&mut self, end: usize) -> Event {
        self.until("an event", |e| !e.events[end].is_empty());
        self.events[end].remove(0)
    }

    fn request(&mut self) -> (CommId, Box<[u8]>) {
        match self.event(1) {
            Event::Request(request) => (request.id, request.private_data),
            other => panic!("a request was expected, not {other:?}"),
        }
    }

    /// The event of end 0 after end 1 has rejected its request. End 1 rejects each retransmission,
    /// since a rejection may be lost and end 1 handles the retransmission as a new request.
    fn rejection(&mut self, private_data: &[u8]) -> Event {
        loop {
            self.until("a request or its rejection", |e| {
                !e.events.iter().all(Vec::is_empty)
            });
            if let Some(event) = self.events[0].pop() {
                return event;
            }
            let (id, _) = self.request();
            let rejected = self.providers[1].reject(id, RejReason::CONSUMER, private_data);
            rejected.expect("rejected");
        }
    }

    fn connect(&mut self) -> Link {
        let asked = self.ask(b"");
        let (id, _) = self.request();
        let qpn = self.providers[1].create_qp(QP).expect("there is room");
        self.providers[1].accept(id, qpn, b"").expect("accepted");
        assert!(matches!(self.event(0), Event::Connected { .. }));
        assert!(matches!(self.event(1), Event::Established { .. }));
        Link {
            ids: [asked.0, id],
            qpns: [asked.1, qpn],
            memory: [0, 1].map(|end: usize| {
                let memory = self.providers[end].allocate(MEMORY_BYTES);
                let memory = memory.expect("there is memory");
                let bytes = self.providers[end].bytes_mut(memory);
                for (at, byte) in bytes.iter_mut().enumerate() {
                    *byte = (at * 7 + at / 253 + end * 101) as u8;
                }
                memory
            }),
        }
    }

    fn send(&mut self, link: &Link, end: usize, id: u64, op: SendOp) {
        let request = SendRequest {
            id: WorkId(id),
            op,
            signal: Signal::Always,
        };
        let posted = self.providers[end].post_send(link.qpns[end], request);
        posted.expect("there is room in the queue");
    }

    fn recv(&mut self, link: &Link, end: usize, id: u64, into: MemoryRange) {
        let request = RecvRequest {
            id: WorkId(id),
            into,
        };
        let posted = self.providers[end].post_recv(link.qpns[end], request);
        posted.expect("there is room in the queue");
    }

    fn register(&mut self, end: usize, placement: MemoryRange) -> Remote {
        let region = Region {
            domain: DOMAIN,
            placement,
            base_va: BASE_VA,
            access: ALL,
        };
        self.providers[end].register(region).expect("registered")
    }

    /// Registers memory of end 1 for end 0 and notifies end 0 by a message: an adapter binds the
    /// key before it sends requests that were posted later, but not necessarily at once.
    fn lend(&mut self, link: &Link, placement: MemoryRange) -> Remote {
        let remote = self.register(1, placement);
        self.recv(link, 0, 0, link.place(0, 0, 0));
        self.send(link, 1, 0, SendOp::Send(inline(b"")));
        assert_eq!(self.completed(0, 1), [(0, OK)]);
        assert_eq!(self.completed(1, 1), [(0, OK)]);
        remote
    }

    fn slice(&self, end: usize, place: MemoryRange) -> &[u8] {
        let start = place.range.offset as usize;
        &self.providers[end].bytes(place.memory)[start..start + place.range.len as usize]
    }
}

impl Link {
    fn place(&self, end: usize, offset: u64, len: u64) -> MemoryRange {
        MemoryRange {
            memory: self.memory[end],
            range: ByteRange { offset, len },
        }
    }

    fn data(&self, end: usize, offset: u64, len: u64) -> Data {
        Data::Gather(Gather::new(&[self.place(end, offset, len)]).expect("one part"))
    }
}

fn inline(bytes: &[u8]) -> Data {
    Data::Inline(Inline::new(bytes).expect("short"))
}

const OK: WorkStatus = WorkStatus::Success;

fn private_data_reach_both_ends<P: Provider>(ends: &mut Ends<P>) {
    let (asked, client) = ends.ask(b"ping");
    let (id, data) = ends.request();
    assert_eq!(&data[..5], b"ping\0");
    let server = ends.providers[1].create_qp(QP).expect("there is room");
    let accepted = ends.providers[1].accept(id, server, b"pong");
    accepted.expect("accepted");
    match ends.event(0) {
        Event::Connected {
            id,
            qpn,
            private_data,
            ..
        } => {
            assert_eq!((id, qpn), (asked, client));
            assert_eq!(&private_data[..5], b"pong\0");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(ends.event(1), Event::Established { id, qpn: server });
}

fn rejections_carry_their_reason<P: Provider>(ends: &mut Ends<P>) {
    let (asked, qpn) = ends.ask(b"");
    match ends.rejection(b"full") {
        Event::Rejected {
            id,
            qpn: of,
            reason,
            private_data,
        } => {
            assert_eq!((id, of, reason), (asked, Some(qpn), RejReason::CONSUMER));
            assert_eq!(&private_data[..5], b"full\0");
        }
        other => panic!("{other:?}"),
    }
    ends.providers[1].stop_listening(PORT);
    let qpn = ends.providers[0].create_qp(QP).expect("there is room");
    let to = ConnectTo {
        address: ends.addresses[1],
        port: PORT,
        private_data: b"",
    };
    ends.providers[0].connect(qpn, &to).expect("asked");
    let nobody = RejReason::INVALID_SERVICE_ID;
    assert!(matches!(ends.event(0), Event::Rejected { reason, .. } if reason == nobody));
}

fn messages_arrive_in_order<P: Provider>(ends: &mut Ends<P>) {
    let link = ends.connect();
    for id in 0..40 {
        ends.recv(&link, 1, id, link.place(1, id * 10_000, 10_000));
    }
    for id in 0..40u64 {
        let op = match id % 3 {
            0 => SendOp::Send(link.data(0, id * 11_000, 10_000 - id)),
            1 => SendOp::SendImmediate(link.data(0, id * 11_000, id), id as u32),
            _ => SendOp::Send(inline(b"short")),
        };
        ends.send(&link, 0, id, op);
    }
    let order: Vec<_> = (0..40).map(|id| (id, OK)).collect();
    assert_eq!(ends.completed(0, 40), order);
    ends.until("receives", |e| e.completions[1].len() >= 40);
    let received = std::mem::take(&mut ends.completions[1]);
    for (id, done) in (0..40u64).zip(received) {
        assert_eq!(
            (done.id.0, done.kind, done.status),
            (id, WorkKind::Recv, OK)
        );
        let len = u64::from(done.len_bytes);
        let came = ends.slice(1, link.place(1, id * 10_000, len));
        match id % 3 {
            0 => assert!(
                len == 10_000 - id && came == ends.slice(0, link.place(0, id * 11_000, len))
            ),
            1 => assert_eq!((done.immediate, len), (Some(id as u32), id)),
            _ => assert_eq!(came, b"short"),
        }
    }
}

fn reads_and_writes_move_bytes<P: Provider>(ends: &mut Ends<P>) {
    let link = ends.connect();
    let remote = ends.lend(&link, link.place(1, 1_000_000, 1_000_000));
    ends.recv(&link, 1, 5, link.place(1, 0, 0));
    let at = |offset| Remote {
        va: remote.va + offset,
        ..remote
    };
    let write = SendOp::Write(link.data(0, 0, 300_001), at(17));
    let more = SendOp::WriteImmediate(link.data(0, 300_001, 99_999), at(17 + 300_001), 77);
    let into = [
        link.place(0, 2_000_000, 1),
        link.place(0, 2_500_000, 399_999),
    ];
    let into = Gather::new(&into).expect("two parts");
    ends.send(&link, 0, 1, write);
    ends.send(&link, 0, 2, more);
    ends.send(&link, 0, 3, SendOp::Read(into, at(17)));
    assert_eq!(ends.completed(0, 3), [(1, OK), (2, OK), (3, OK)]);
    let sent = ends.slice(0, link.place(0, 0, 400_000));
    assert!(sent == ends.slice(1, link.place(1, 1_000_017, 400_000)));
    assert_eq!(sent[..1], *ends.slice(0, link.place(0, 2_000_000, 1)));
    assert!(sent[1..] == *ends.slice(0, link.place(0, 2_500_000, 399_999)));
    ends.until("the receive", |e| !e.completions[1].is_empty());
    let received = std::mem::take(&mut ends.completions[1]);
    let [done] = &received[..] else {
        panic!("{received:?}");
    };
    assert_eq!((done.id, done.immediate), (WorkId(5), Some(77)));
}

fn keys_are_invalidated<P: Provider>(ends: &mut Ends<P>) {
    let link = ends.connect();
    let remote = ends.lend(&link, link.place(1, 0, 100));
    ends.recv(&link, 1, 1, link.place(1, 200, 100));
    ends.send(
        &link,
        0,
        1,
        SendOp::SendInvalidate(inline(b"done"), remote.rkey),
    );
    ends.until("the receive", |e| !e.completions[1].is_empty());
    let done = &ends.completions[1][0];
    assert_eq!((done.status, done.invalidated), (OK, Some(remote.rkey)));
    assert!(!ends.providers[1].invalidate(remote.rkey));
    let again = ends.register(1, link.place(1, 0, 100));
    assert_ne!(again.rkey, remote.rkey);
    assert!(ends.providers[1].invalidate(again.rkey));
}

fn wrong_keys_end_the_queue_pair<P: Provider>(ends: &mut Ends<P>) {
    let link = ends.connect();
    let remote = ends.lend(&link, link.place(1, 0, 100));
    let before = ends.slice(1, link.place(1, 0, 300)).to_vec();
    ends.recv(&link, 0, 9, link.place(0, 0, 10));
    ends.send(
        &link,
        0,
        1,
        SendOp::Write(
            inline(&[0xEE; 50]),
            Remote {
                va: remote.va + 60,
                ..remote
            },
        ),
    );
    ends.send(&link, 0, 2, SendOp::Send(inline(b"late")));
    let flushed = WorkStatus::Flushed;
    let mut done = ends.completed(0, 3);
    // Each queue is flushed in its own order.
    done.sort_by_key(|(id, _)| *id);
    assert_eq!(
        done,
        [(1, WorkStatus::RemoteAccess), (2, flushed), (9, flushed)]
    );
    assert_eq!(ends.slice(1, link.place(1, 0, 300)), before);
    let failure = QpFailure::Request(WorkStatus::RemoteAccess);
    assert!(matches!(ends.event(0), Event::QpFailed { failure: f, .. } if f == failure));
    assert!(matches!(ends.event(1), Event::QpFailed { .. }));
    let request = SendRequest {
        id: WorkId(3),
        op: SendOp::Send(inline(b"")),
        signal: Signal::Always,
    };
    let refused = ends.providers[0].post_send(link.qpns[0], request);
    assert_eq!(refused, Err(PostError::Failed));
}

fn receivers_may_be_late<P: Provider>(ends: &mut Ends<P>) {
    let link = ends.connect();
    ends.send(&link, 0, 1, SendOp::Send(inline(b"patience")));
    let start = Instant::now();
    ends.until("a while", |_| start.elapsed() > Duration::from_millis(20));
    assert!(ends.completions[0].is_empty());
    ends.recv(&link, 1, 1, link.place(1, 0, 100));
    assert_eq!(ends.completed(0, 1), [(1, OK)]);
    assert_eq!(ends.slice(1, link.place(1, 0, 8)), b"patience");
}

fn disconnecting_flushes<P: Provider>(ends: &mut Ends<P>) {
    let link = ends.connect();
    ends.recv(&link, 0, 1, link.place(0, 0, 10));
    ends.recv(&link, 1, 2, link.place(1, 0, 10));
    ends.providers[0]
        .disconnect(link.ids[0])
        .expect("connected");
    assert_eq!(ends.completed(0, 1), [(1, WorkStatus::Flushed)]);
    assert_eq!(ends.completed(1, 1), [(2, WorkStatus::Flushed)]);
    for end in 0..2 {
        let ended = Event::Disconnected {
            id: link.ids[end],
            qpn: link.qpns[end],
        };
        assert_eq!(ends.event(end), ended);
        ends.providers[end].destroy_qp(link.qpns[end]);
    }
}

fn connections_come_and_go<P: Provider>(ends: &mut Ends<P>) {
    for round in 0..100 {
        let (id, client) = ends.ask(b"");
        let (request, _) = ends.request();
        let server = ends.providers[1]
            .create_qp(QP)
            .expect("places are used again");
        ends.providers[1]
            .accept(request, server, b"")
            .expect("accepted");
        assert!(matches!(ends.event(0), Event::Connected { .. }));
        assert!(matches!(ends.event(1), Event::Established { .. }));
        let (closer, closed) = if round % 2 == 0 {
            (0, id)
        } else {
            (1, request)
        };
        ends.providers[closer]
            .disconnect(closed)
            .expect("connected");
        for (end, qpn) in [client, server].into_iter().enumerate() {
            assert!(matches!(ends.event(end), Event::Disconnected { .. }));
            ends.providers[end].destroy_qp(qpn);
        }
    }
}

/// Writes of 1 MiB, many at once.
pub fn bulk<P: Provider>(ends: &mut Ends<P>) {
    const PIECE: u64 = 1 << 20;
    let link = ends.connect();
    let remote = ends.lend(&link, link.place(1, 0, MEMORY_BYTES as u64));
    for round in 0..8u64 {
        let offset = round % 4 * PIECE;
        let at = Remote {
            va: remote.va + (3 - round % 4) * PIECE,
            ..remote
        };
        ends.send(
            &link,
            0,
            round,
            SendOp::Write(link.data(0, offset, PIECE), at),
        );
    }
    let order: Vec<_> = (0..8).map(|id| (id, OK)).collect();
    assert_eq!(ends.completed(0, 8), order);
    for index in 0..4 {
        let sent = ends.slice(0, link.place(0, index * PIECE, PIECE));
        let came = ends.slice(1, link.place(1, (3 - index) * PIECE, PIECE));
        assert!(sent == came, "piece {index}");
    }
}
