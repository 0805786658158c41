//! What arrives where, on a network that does as it should.

use super::*;
use crate::testing::drain;
use crate::wire::{Opcode, Packet, Position, WriteTail};
use crate::{PostError, TransmitList};

#[test]
fn messages_of_every_length_arrive_at_every_mtu() {
    for mtu in PathMtu::ALL {
        let full = u64::from(mtu.bytes());
        let mut both = Connected::new(mtu);
        for len in [0, 1, 3, full - 1, full, full + 1, 3 * full, 3 * full + 5] {
            both.recv(1, 7, place(SINK, 20_000));
            both.post(0, 3, SendOp::Send(data(SOURCE + 9, len)));
            let received = both.complete(1, 1);
            assert_eq!(statuses(&received), [(7, WorkStatus::Success)]);
            assert_eq!(u64::from(received[0].len_bytes), len);
            both.assert_moved(0, place(SOURCE + 9, len), place(SINK, len));
            assert_eq!(statuses(&both.complete(0, 1)), [(3, WorkStatus::Success)]);
        }
    }
}

#[test]
fn writes_and_reads_move_their_bytes_and_no_others() {
    for addresses in [V4, V6] {
        let mut both = Connected::with(5, addresses, PathMtu::B1024, [config(); 2]);
        let remote = both.register(1, place(SINK, 100_000), EVERYTHING);
        let at = Remote {
            va: remote.va + 100,
            ..remote
        };
        both.post(0, 1, SendOp::Write(data(SOURCE, 50_001), at));
        let into = Gather::new(&[place(SINK + 7, 1000), place(SINK + 5000, 49_001)]).unwrap();
        both.post(0, 2, SendOp::Read(into, at));
        let done = both.complete(0, 2);
        assert_eq!(
            statuses(&done),
            [(1, WorkStatus::Success), (2, WorkStatus::Success)]
        );
        both.assert_moved(0, place(SOURCE, 50_001), place(SINK + 100, 50_001));
        assert!(both.bytes(1, place(SINK, 100)).iter().all(|b| *b == 0));
        let beyond = place(SINK + 100 + 50_001, 1000);
        assert!(both.bytes(1, beyond).iter().all(|b| *b == 0));
        both.assert_moved(0, place(SINK + 7, 1000), place(SINK + 100, 1000));
        both.assert_moved(0, place(SINK + 5000, 49_001), place(SINK + 1100, 49_001));
    }
}

#[test]
fn immediate_data_and_invalidated_keys_are_reported() {
    let mut both = Connected::new(PathMtu::B256);
    let remote = both.register(1, place(SINK, 4096), EVERYTHING);
    for id in 0..3 {
        both.recv(1, id, place(SINK + 8192, 4096));
    }
    both.post(0, 1, SendOp::SendImmediate(inline(b"abc"), 0x0102_0304));
    let write = SendOp::WriteImmediate(data(SOURCE, 1000), remote, 5);
    both.post(0, 2, write);
    both.post(0, 3, SendOp::SendInvalidate(data(SOURCE, 700), remote.rkey));
    let received = both.complete(1, 3);
    assert_eq!(received[0].immediate, Some(0x0102_0304));
    assert_eq!(
        (received[1].immediate, received[1].len_bytes),
        (Some(5), 1000)
    );
    assert_eq!(received[2].invalidated, Some(remote.rkey));
    both.assert_moved(0, place(SOURCE, 1000), place(SINK, 1000));
    assert!(!both.pair.ends[1].endpoint.invalidate(remote.rkey));
    both.post(0, 4, SendOp::Write(data(SOURCE, 1), remote));
    let done = both.complete(0, 4);
    assert_eq!(done[3].status, WorkStatus::RemoteAccess);
}

#[test]
fn silent_requests_free_their_places() {
    let mut both = Connected::new(PathMtu::B1024);
    let remote = both.register(1, place(SINK, 4096), EVERYTHING);
    for round in 0..20 {
        for id in 0..63 {
            let request = SendRequest {
                id: WorkId(id),
                op: SendOp::Write(inline(&[round; 8]), remote),
                signal: Signal::OnError,
            };
            let end = &mut both.pair.ends[0];
            end.endpoint.post_send(both.qpns[0], request).unwrap();
        }
        both.post(0, 99, SendOp::Write(inline(&[round; 8]), remote));
        let end = &mut both.pair.ends[0].endpoint;
        let one_more = SendRequest {
            id: WorkId(0),
            op: SendOp::Send(inline(b"")),
            signal: Signal::OnError,
        };
        assert_eq!(end.post_send(both.qpns[0], one_more), Err(PostError::Full));
        assert_eq!(statuses(&both.complete(0, 1)), [(99, WorkStatus::Success)]);
    }
    assert_eq!(both.bytes(1, place(SINK, 8)), [19; 8]);
}

#[test]
fn both_directions_work_at_once() {
    let mut both = Connected::new(PathMtu::B4096);
    for end in 0..2 {
        for id in 0..20 {
            both.recv(end, id, place(SINK + id * 6000, 6000));
        }
    }
    for id in 0..20 {
        both.post(0, id, SendOp::Send(data(SOURCE + id, 6000)));
        both.post(1, id, SendOp::Send(data(SOURCE + id * 2, 5999)));
    }
    both.complete(0, 40);
    both.complete(1, 40);
    for id in 0..20 {
        both.assert_moved(0, place(SOURCE + id, 6000), place(SINK + id * 6000, 6000));
        let to = place(SINK + id * 6000, 5999);
        both.assert_moved(1, place(SOURCE + id * 2, 5999), to);
    }
}

#[test]
fn large_writes_leave_in_runs_of_equal_packets_without_a_copy() {
    let mut both = Connected::new(PathMtu::B4096);
    let remote = both.register(1, place(SINK, 100_000), EVERYTHING);
    both.post(0, 1, SendOp::Write(data(SOURCE, 100_000), remote));
    let mut list = TransmitList::new(16 << 10, TransmitList::SEGMENTS_MAX);
    let end = &mut both.pair.ends[0];
    end.endpoint
        .poll_transmit(both.pair.now, &mut end.memory, &mut list);
    let shapes: Vec<_> = list
        .batches()
        .map(|b| (b.segment_len_bytes, b.segments))
        .collect();
    // As many as one datagram holds.
    assert_eq!(shapes, [(12 + 16 + 4096 + 4, 15), (4128, 10)]);
    let own: usize = list
        .batches()
        .flat_map(|b| b.parts().collect::<Vec<_>>())
        .map(|part| match part {
            crate::Piece::Bytes(bytes) => bytes.len(),
            crate::Piece::Memory(_) => 0,
        })
        .sum();
    assert_eq!(own, 25 * 32, "headers and checksums only");
    let mut count = 0;
    drain(&mut list, &end.memory, |_, _, bytes| {
        let packet = Packet::parse(&bytes).unwrap();
        assert_eq!(
            packet.opcode,
            Opcode::Write(Position::Only, WriteTail::Plain)
        );
        count += 1;
    });
    assert_eq!(count, 25);
}

#[test]
fn one_acknowledgement_answers_what_came_together() {
    let mut both = Connected::new(PathMtu::B1024);
    for id in 0..32 {
        both.recv(1, id, place(SINK, 100));
        both.post(0, id, SendOp::Send(inline(b"request")));
    }
    let sent = both.pair.intercept(0);
    assert_eq!(sent.len(), 32);
    for (_, _, datagram) in &sent {
        both.pair.inject(1, datagram);
    }
    assert_eq!(both.pair.ends[1].completions.len(), 32);
    let answers = both.pair.intercept(1);
    assert_eq!(answers.len(), 1);
    both.pair.inject(0, &answers[0].2);
    assert_eq!(both.pair.ends[0].completions.len(), 32);
}

#[test]
fn joined_datagrams_are_cut_again() {
    let mut both = Connected::new(PathMtu::B1024);
    let remote = both.register(1, place(SINK, 10_000), EVERYTHING);
    both.post(0, 1, SendOp::Write(data(SOURCE, 10_000), remote));
    let sent = both.pair.intercept(0);
    let flow = both.pair.flow(0);
    let joined: Vec<u8> = sent[1..].iter().flat_map(|s| s.2.clone()).collect();
    both.pair.inject(1, &sent[0].2);
    let received = crate::Received {
        flow,
        bytes: &joined,
        segment_len_bytes: Some(sent[1].2.len() as u16),
        identification: crate::wire::Ipv4Identification::Unknown,
        congestion_experienced: false,
    };
    both.pair.inject_received(1, &received);
    both.complete(0, 1);
    both.assert_moved(0, place(SOURCE, 10_000), place(SINK, 10_000));
    let counters = both.pair.ends[1].endpoint.counters();
    assert_eq!((counters.bad_icrc, counters.malformed), (0, 0));
}

#[test]
fn reads_beyond_the_peers_depth_wait_their_turn() {
    let shallow = QpConfig {
        responder_resources: 2,
        ..config()
    };
    let mut both = Connected::with(3, V6, PathMtu::B256, [config(), shallow]);
    let remote = both.register(1, place(SOURCE, 100_000), EVERYTHING);
    for id in 0..30 {
        let into = Gather::new(&[place(SINK + id * 1000, 1000)]).unwrap();
        let from = Remote {
            va: remote.va + id * 500,
            ..remote
        };
        both.post(0, id, SendOp::Read(into, from));
    }
    let requests = both.pair.intercept(0);
    assert_eq!(requests.len(), 2);
    for (_, _, datagram) in requests {
        both.pair.inject(1, &datagram);
    }
    both.complete(0, 30);
    for id in 0..30 {
        both.assert_moved(1, place(id * 500, 1000), place(SINK + id * 1000, 1000));
    }
    let none = QpConfig {
        responder_resources: 0,
        ..config()
    };
    let mut both = Connected::with(3, V6, PathMtu::B256, [config(), none]);
    let remote = Remote {
        va: 0,
        rkey: Rkey(1),
    };
    let request = SendRequest {
        id: WorkId(1),
        op: SendOp::Read(Gather::EMPTY, remote),
        signal: Signal::Always,
    };
    let qpn = both.qpns[0];
    let refused = both.pair.ends[0].endpoint.post_send(qpn, request);
    assert_eq!(refused, Err(PostError::NoReads));
}

#[test]
fn destroying_a_queue_pair_flushes_everything() {
    let mut both = Connected::new(PathMtu::B1024);
    both.recv(0, 1, place(SINK, 100));
    both.recv(0, 2, place(SINK, 100));
    both.post(0, 3, SendOp::Send(inline(b"never answered")));
    let (now, qpn) = (both.pair.now, both.qpns[0]);
    both.pair.ends[0].endpoint.destroy_qp(now, qpn);
    let flushed = both.complete(0, 3);
    assert!(flushed.iter().all(|c| c.status == WorkStatus::Flushed));
    let kinds: Vec<WorkKind> = flushed.iter().map(|c| c.kind).collect();
    assert_eq!(kinds, [WorkKind::Send, WorkKind::Recv, WorkKind::Recv]);
    let endpoint = &mut both.pair.ends[0].endpoint;
    assert_eq!(endpoint.qp_state(qpn), None);
    let recv = RecvRequest {
        id: WorkId(1),
        into: place(0, 1),
    };
    assert_eq!(endpoint.post_recv(qpn, recv), Err(PostError::NoSuchQp));
}
