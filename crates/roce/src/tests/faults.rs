//! What is lost, late or broken, one thing at a time.

use super::*;
use crate::testing::forge;
use crate::wire::{
    Aeth, Bth, Extended, Ipv4Identification, NakCode, Opcode, Packet, Position, Psn, SendTail,
    Syndrome,
};
use crate::{Event, QpFailure, QpState, Received};

fn opcodes(sent: &[(crate::Flow, u16, Vec<u8>)]) -> Vec<(u8, u32)> {
    let parsed = sent.iter().map(|s| Packet::parse(&s.2).unwrap());
    parsed.map(|p| (p.bth.opcode, p.bth.psn().get())).collect()
}

#[test]
fn a_lost_packet_is_asked_for_once_and_sent_again_from_there() {
    let mut both = Connected::new(PathMtu::B256);
    let remote = both.register(1, place(SINK, 4096), EVERYTHING);
    both.post(0, 1, SendOp::Write(data(SOURCE, 2048), remote));
    let sent = both.pair.intercept(0);
    assert_eq!(sent.len(), 8);
    for (index, (_, _, datagram)) in sent.iter().enumerate() {
        if index != 2 {
            both.pair.inject(1, datagram);
        }
    }
    let answers = both.pair.intercept(1);
    assert_eq!(answers.len(), 1, "one NAK for five packets");
    let nak = Packet::parse(&answers[0].2).unwrap();
    let Extended::Acknowledge(aeth) = nak.extended else {
        panic!("{nak:?}");
    };
    let code = Syndrome::Nak(NakCode::PsnSequenceError);
    assert_eq!(aeth.syndrome(), Some(code));
    let missing = Packet::parse(&sent[2].2).unwrap().bth.psn();
    assert_eq!(nak.bth.psn(), missing);
    both.pair.inject(0, &answers[0].2);
    both.pair.inject(0, &answers[0].2);
    let again = both.pair.intercept(0);
    assert_eq!(
        opcodes(&again),
        opcodes(&sent[2..]),
        "once, and no more than needed"
    );
    for (_, _, datagram) in &again {
        both.pair.inject(1, datagram);
    }
    assert_eq!(statuses(&both.complete(0, 1)), [(1, WorkStatus::Success)]);
    both.assert_moved(0, place(SOURCE, 2048), place(SINK, 2048));
}

#[test]
fn a_lost_acknowledgement_repeats_nothing() {
    let mut both = Connected::new(PathMtu::B1024);
    both.recv(1, 1, place(SINK, 100));
    both.recv(1, 2, place(SINK + 100, 100));
    both.post(0, 1, SendOp::Send(inline(b"once")));
    let sent = both.pair.intercept(0);
    both.pair.inject(1, &sent[0].2);
    both.pair.intercept(1);
    let start = both.pair.now;
    assert_eq!(statuses(&both.complete(0, 1)), [(1, WorkStatus::Success)]);
    assert!(both.pair.now - start >= Duration::from_millis(4));
    assert_eq!(both.complete(1, 1).len(), 1);
    assert!(both.bytes(1, place(SINK + 100, 4)).iter().all(|b| *b == 0));
}

#[test]
fn the_rest_of_a_read_is_requested_from_the_end_of_its_responses() {
    let mut both = Connected::new(PathMtu::B256);
    let remote = both.register(1, place(SOURCE, 4096), EVERYTHING);
    let into = Gather::new(&[place(SINK, 1000)]).unwrap();
    both.post(0, 1, SendOp::Read(into, remote));
    let request = both.pair.intercept(0);
    both.pair.inject(1, &request[0].2);
    let responses = both.pair.intercept(1);
    assert_eq!(responses.len(), 4);
    both.pair.inject(0, &responses[0].2);
    both.pair.inject(0, &responses[2].2);
    both.pair.inject(0, &responses[3].2);
    let again = both.pair.intercept(0);
    assert_eq!(again.len(), 1);
    let first = Packet::parse(&request[0].2).unwrap().bth.psn();
    let packet = Packet::parse(&again[0].2).unwrap();
    assert_eq!(packet.bth.psn(), Psn::new(first.get() + 1));
    let Extended::Rdma(reth) = packet.extended else {
        panic!("{packet:?}");
    };
    assert_eq!((reth.va.get(), reth.dma_len.get()), (BASE_VA + 256, 744));
    both.pair.inject(1, &again[0].2);
    both.complete(0, 1);
    both.assert_moved(1, place(SOURCE, 1000), place(SINK, 1000));
}

#[test]
fn a_receiver_that_is_not_ready_gets_a_pause() {
    let mut both = Connected::new(PathMtu::B1024);
    both.post(0, 1, SendOp::Send(inline(b"first")));
    both.post(0, 2, SendOp::Send(inline(b"second")));
    both.pair.run(Duration::from_micros(100), |_| false);
    let sent_before = both.pair.sent;
    both.pair.run(Duration::from_micros(800), |_| false);
    assert_eq!(both.pair.sent, sent_before, "silence while it waits");
    both.recv(1, 1, place(SINK, 100));
    both.recv(1, 2, place(SINK + 100, 100));
    both.complete(0, 2);
    assert_eq!(both.bytes(1, place(SINK, 5)), b"first");
    assert_eq!(both.bytes(1, place(SINK + 100, 6)), b"second");
}

#[test]
fn a_write_with_immediate_waits_for_a_receive_and_is_done_once() {
    let mut both = Connected::new(PathMtu::B256);
    let remote = both.register(1, place(SINK, 4096), EVERYTHING);
    both.post(0, 1, SendOp::WriteImmediate(data(SOURCE, 600), remote, 9));
    both.pair.run(Duration::from_millis(3), |_| false);
    assert!(both.pair.ends[0].completions.is_empty());
    both.recv(1, 5, place(0, 0));
    both.complete(0, 1);
    let received = both.complete(1, 1);
    assert_eq!(
        (received[0].id, received[0].immediate),
        (WorkId(5), Some(9))
    );
    both.assert_moved(0, place(SOURCE, 600), place(SINK, 600));
}

#[test]
fn a_dead_peer_is_noticed_and_everything_flushed() {
    let mut both = Connected::new(PathMtu::B1024);
    both.pair.faults.loss = 100;
    both.recv(0, 9, place(SINK, 10));
    for id in 0..3 {
        both.post(0, id, SendOp::Send(inline(b"anyone?")));
    }
    let done = both.complete(0, 4);
    assert_eq!(
        statuses(&done),
        [
            (0, WorkStatus::RetryExceeded),
            (1, WorkStatus::Flushed),
            (2, WorkStatus::Flushed),
            (9, WorkStatus::Flushed)
        ]
    );
    let qpn = both.qpns[0];
    let failed = both.pair.ends[0].events.iter().any(|e| {
        let failure = QpFailure::Request(WorkStatus::RetryExceeded);
        matches!(e, Event::QpFailed { qpn: q, failure: f, id: Some(_) } if *q == qpn && *f == failure)
    });
    assert!(failed, "{:?}", both.pair.ends[0].events);
    let endpoint = &mut both.pair.ends[0].endpoint;
    assert_eq!(endpoint.qp_state(qpn), Some(QpState::Error));
    assert_eq!(endpoint.poll_timeout(), None, "nothing is left to wait for");
}

impl Connected {
    /// End 0 gets this many congestion notifications.
    fn congest(&mut self, count: u32) {
        let cnp = Bth::new(0x81, self.qpns[0], Psn::new(0));
        let datagram = forge::datagram(&self.pair.flow(1), cnp, &[], &[0; 16]);
        for _ in 0..count {
            self.pair.inject(0, &datagram);
            self.pair.now += Duration::from_micros(60);
        }
    }
}

#[test]
fn congestion_notifications_slow_a_sender_down() {
    let mut both = Connected::new(PathMtu::B1024);
    let remote = both.register(1, place(SINK, 100_000), EVERYTHING);
    both.congest(4);
    both.post(0, 1, SendOp::Write(data(SOURCE, 100_000), remote));
    assert_eq!(both.pair.intercept(0).len(), 16, "a burst, then a pause");
    assert_eq!(both.pair.intercept(0).len(), 0);
    let start = both.pair.now;
    both.complete(0, 1);
    assert!(both.pair.now - start >= Duration::from_micros(16 * 5 * 16));
    both.assert_moved(0, place(SOURCE, 100_000), place(SINK, 100_000));
}

#[test]
fn marked_packets_are_answered_by_one_notification_at_a_time() {
    let mut both = Connected::new(PathMtu::B1024);
    let remote = both.register(1, place(SINK, 10_000), EVERYTHING);
    both.post(0, 1, SendOp::Write(data(SOURCE, 10_000), remote));
    for (flow, _, bytes) in both.pair.intercept(0) {
        let received = Received {
            flow,
            bytes: &bytes,
            segment_len_bytes: None,
            identification: Ipv4Identification::Unknown,
            congestion_experienced: true,
        };
        both.pair.inject_received(1, &received);
    }
    let answers = both.pair.intercept(1);
    let codes: Vec<u8> = opcodes(&answers).iter().map(|(code, _)| *code).collect();
    assert_eq!(codes, [0x81, 0x11]);
    let cnp = Packet::parse(&answers[0].2).unwrap();
    assert_eq!(cnp.bth.congestion, Bth::BECN);
    assert_eq!(cnp.payload, [0; 16]);
    // It is not reported that it met congestion as well.
    let (flow, _, bytes) = &answers[0];
    let received = Received {
        flow: *flow,
        bytes,
        segment_len_bytes: None,
        identification: Ipv4Identification::Unknown,
        congestion_experienced: true,
    };
    both.pair.inject_received(0, &received);
    assert!(both.pair.intercept(0).is_empty());
}

#[test]
fn what_is_said_does_not_wait_for_the_end_of_what_is_read() {
    let mut both = Connected::new(PathMtu::B256);
    let remote = both.register(0, place(SOURCE, 100_000), EVERYTHING);
    let into = Gather::new(&[place(SINK, 100_000)]).unwrap();
    both.post(1, 1, SendOp::Read(into, remote));
    let asked = both.pair.intercept(1);
    both.congest(4);
    both.pair.inject(0, &asked[0].2);
    both.post(0, 2, SendOp::Send(inline(b"news")));
    let burst = opcodes(&both.pair.intercept(0));
    assert_eq!(burst.len(), 16, "a burst, then a pause");
    let news = Opcode::Send(Position::Only, SendTail::Plain).to_wire();
    assert!(burst.iter().any(|(code, _)| *code == news), "{burst:?}");
}

#[test]
fn broken_memory_of_our_own_fails_the_request() {
    let mut both = Connected::new(PathMtu::B1024);
    both.pair.ends[0].memory.is_broken = true;
    both.post(0, 1, SendOp::Send(inline(b"fine")));
    both.post(0, 2, SendOp::Send(data(SOURCE, 100)));
    both.recv(1, 1, place(SINK, 100));
    let done = both.complete(0, 2);
    // The failure ends the queue pair before the first message's acknowledgement can come.
    assert_eq!(
        statuses(&done),
        [(1, WorkStatus::Flushed), (2, WorkStatus::LocalMemory)]
    );
}

#[test]
fn broken_memory_of_the_peer_is_reported() {
    let mut both = Connected::new(PathMtu::B1024);
    let remote = both.register(1, place(SINK, 5000), EVERYTHING);
    both.pair.ends[1].memory.is_broken = true;
    both.post(0, 1, SendOp::Write(data(SOURCE, 5000), remote));
    let done = both.complete(0, 1);
    assert_eq!(statuses(&done), [(1, WorkStatus::RemoteOperation)]);
    let mut both = Connected::new(PathMtu::B1024);
    let remote = both.register(1, place(SINK, 5000), EVERYTHING);
    both.pair.ends[1].memory.is_broken = true;
    let into = Gather::new(&[place(SINK, 5000)]).unwrap();
    both.post(0, 1, SendOp::Read(into, remote));
    let done = both.complete(0, 1);
    assert_eq!(statuses(&done), [(1, WorkStatus::RemoteOperation)]);
}

#[test]
fn a_key_that_is_invalidated_ends_the_response_in_the_middle() {
    let mut both = Connected::new(PathMtu::B256);
    let remote = both.register(1, place(SOURCE, 100_000), EVERYTHING);
    let into = Gather::new(&[place(SINK, 100_000)]).unwrap();
    both.post(0, 1, SendOp::Read(into, remote));
    let request = both.pair.intercept(0);
    both.pair.inject(1, &request[0].2);
    let mut list = crate::TransmitList::new(4 << 10, 1);
    let end = &mut both.pair.ends[1];
    end.endpoint
        .poll_transmit(both.pair.now, &mut end.memory, &mut list);
    assert!(end.endpoint.wants_transmit(), "the list is full");
    assert!(end.endpoint.invalidate(remote.rkey));
    let rest = both.pair.intercept(1);
    assert_eq!(opcodes(&rest).len(), 1);
    let nak = Packet::parse(&rest[0].2).unwrap();
    let refused = Aeth::new(Syndrome::Nak(NakCode::RemoteAccessError), 1);
    assert_eq!(nak.extended, Extended::Acknowledge(refused));
    assert_eq!(nak.opcode, Opcode::Acknowledge);
}
