//! Messages that stay where they came.

use std::net::Ipv4Addr;

use super::*;
use crate::verbs::{Data, Gather, SendOp, Signal, WorkId, WorkStatus};

const PORT: u16 = 4420;
const LEN: u64 = 1000;
const MESSAGES: u64 = 20;

/// Two ends with a connection; the second's receives are posted.
struct Ends {
    from: Soft,
    to: Soft,
    qpn: Qpn,
    source: MemoryId,
    receives: MemoryId,
}

fn place(memory: MemoryId, index: u64) -> MemoryRange {
    MemoryRange {
        memory,
        range: ByteRange {
            offset: index * LEN,
            len: LEN,
        },
    }
}

impl Ends {
    fn new() -> Self {
        let udp_port = free_udp_port();
        let bind = |host| {
            let local = (Ipv4Addr::new(127, 38, 5, host), udp_port).into();
            Soft::bind(&SoftOptions::at(local)).expect("a port of loopback is free")
        };
        let (mut from, mut to) = (bind(1), bind(2));
        to.listen(PORT).expect("any port will do");
        let len_bytes = (MESSAGES * LEN) as usize;
        let source = from.allocate(len_bytes).expect("memory");
        let receives = to.allocate(len_bytes).expect("memory");
        let qpn = from.create_qp(QpConfig::default()).expect("room");
        let there = ConnectTo {
            address: to.local_addr().ip(),
            port: PORT,
            private_data: b"",
        };
        from.connect(qpn, &there).expect("it is asked for");
        let mut ends = Self {
            from,
            to,
            qpn,
            source,
            receives,
        };
        ends.accept();
        ends
    }

    fn accept(&mut self) {
        let end = Instant::now() + Duration::from_secs(20);
        loop {
            assert!(Instant::now() < end, "no connection");
            self.from.poll(Wait::Poll).expect("the socket works");
            self.to.poll(Wait::Poll).expect("the socket works");
            if let Some(Event::Request(request)) = self.to.next_event() {
                let config = QpConfig {
                    may_stay: true,
                    ..QpConfig::default()
                };
                let qpn = self.to.create_qp(config).expect("room");
                for index in 0..MESSAGES {
                    let (id, into) = (WorkId(index), place(self.receives, index));
                    let posted = self.to.post_recv(qpn, RecvRequest { id, into });
                    posted.expect("room");
                }
                self.to.accept(request.id, qpn, b"").expect("it waits");
            }
            if let Some(Event::Connected { .. }) = self.from.next_event() {
                return;
            }
        }
    }

    /// Sends a message, in a datagram of its own.
    fn send(&mut self, index: u64) {
        let from = place(self.source, index);
        let bytes = self.from.bytes_mut(self.source);
        bytes[from.range.offset as usize..][..LEN as usize].fill(index as u8 + 1);
        let data = Data::Gather(Gather::new(&[from]).expect("one part"));
        let request = SendRequest {
            id: WorkId(index),
            op: SendOp::Send(data),
            signal: Signal::OnError,
        };
        self.from.post_send(self.qpn, request).expect("room");
        self.from.poll(Wait::Poll).expect("the socket works");
    }
}

#[test]
fn messages_stay_until_they_are_taken_and_the_next_wait_for_room() {
    let mut ends = Ends::new();
    (0..MESSAGES).for_each(|index| ends.send(index));
    let mut taken = 0;
    let mut rounds = 0;
    let end = Instant::now() + Duration::from_secs(20);
    while taken < MESSAGES {
        assert!(Instant::now() < end, "{taken} messages came");
        // Nothing is taken meanwhile: what has come stays as it is.
        for _ in 0..10 {
            ends.to.poll(Wait::Poll).expect("the socket works");
        }
        let before = taken;
        while let Some(done) = ends.to.next_completion() {
            assert_eq!((done.id.0, done.status), (taken, WorkStatus::Success));
            let at = done.at.expect("it stays where it came");
            let bytes = &ends.to.bytes(at.memory)[at.range.offset as usize..][..LEN as usize];
            assert!(bytes.iter().all(|byte| u64::from(*byte) == taken + 1));
            taken += 1;
        }
        assert!(taken - before <= 8, "there is room for eight datagrams");
        rounds += 1;
        // What is lost where the socket's room is short is sent again.
        ends.from.poll(Wait::Poll).expect("the socket works");
    }
    assert!(rounds >= 3);
    assert!(ends.to.bytes(ends.receives).iter().all(|byte| *byte == 0));
}
