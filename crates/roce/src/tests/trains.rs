//! Several packets in a datagram, between two ends in one machine.

use zerocopy::IntoBytes;

use super::*;
use crate::testing::forge;
use crate::wire::{Bth, Opcode, Position, Psn, Reth, SendTail, WriteTail};

const SEND: Opcode = Opcode::Send(Position::Only, SendTail::Plain);
const WRITE: Opcode = Opcode::Write(Position::Only, WriteTail::Plain);

/// End 1, and what its peer may put into a train.
struct Station {
    both: Connected,
    remote: Remote,
    psn: u32,
}

impl Station {
    fn new() -> Self {
        let mut both = Connected::with(1, LOOPBACK, PathMtu::B61440, [config(); 2]);
        let remote = both.register(1, place(SINK, 4096), EVERYTHING);
        both.recv(1, 7, place(SINK + 8192, 1000));
        both.post(0, 0, SendOp::Send(inline(b"")));
        let sent = both.pair.intercept(0);
        let psn = u32::from_be_bytes(*sent[0].2[8..].first_chunk().unwrap()) & 0x00FF_FFFF;
        Self { both, remote, psn }
    }

    /// The packet after the last; `dest` is end 1's queue pair, if nothing else.
    fn packet(&mut self, opcode: Opcode, dest: Qpn, payload: &[u8]) -> Vec<u8> {
        let bth = Bth::new(opcode.to_wire(), dest, Psn::new(self.psn)).with_ack_request();
        self.psn += 1;
        let reth = Reth::new(self.remote.va, self.remote.rkey, payload.len() as u32);
        match opcode {
            WRITE => forge::in_train(bth, reth.as_bytes(), payload),
            _ => forge::in_train(bth, &[], payload),
        }
    }

    fn write(&mut self, payload: &[u8]) -> Vec<u8> {
        self.packet(WRITE, self.both.qpns[1], payload)
    }

    fn send(&mut self, payload: &[u8]) -> Vec<u8> {
        self.packet(SEND, self.both.qpns[1], payload)
    }

    /// Packets and malformed ones, that `train` adds to what end 1 counts.
    fn arrive(&mut self, train: &[u8]) -> (u64, u64) {
        let before = self.both.pair.ends[1].endpoint.counters();
        self.both.pair.inject(1, train);
        let after = self.both.pair.ends[1].endpoint.counters();
        (
            after.packets - before.packets,
            after.malformed - before.malformed,
        )
    }

    fn written(&self) -> &[u8] {
        self.both.bytes(1, place(SINK, 8))
    }
}

#[test]
fn data_and_responses_leave_in_one_datagram_where_both_are_in_one_machine() {
    for (addresses, mtu, datagrams) in [
        (LOOPBACK, PathMtu::B61440, 1),
        (["::1", "::1"], PathMtu::B61440, 1),
        (LOOPBACK, PathMtu::B8192, 8),
        (LOOPBACK, PathMtu::B4096, 8),
        (V4, PathMtu::B61440, 8),
    ] {
        let mut both = Connected::with(1, addresses, mtu, [config(); 2]);
        let remote = both.register(1, place(SINK, 4096), EVERYTHING);
        for id in 0..4 {
            both.recv(1, id, place(SINK + 8192, 100));
            both.post(0, 2 * id, SendOp::Write(data(SOURCE, 24), remote));
            both.post(0, 2 * id + 1, SendOp::Send(data(SOURCE + 24, 60)));
        }
        let sent = both.pair.intercept(0);
        assert_eq!(sent.len(), datagrams, "{addresses:?} {mtu:?}");
        // What was taken off the network comes again.
        assert_eq!(both.complete(1, 4).len(), 4);
        assert_eq!(both.complete(0, 8).len(), 8);
        both.assert_moved(0, place(SOURCE, 24), place(SINK, 24));
    }
}

#[test]
fn trains_have_a_longest_length_and_are_for_one_queue_pair_each() {
    let mut both = Connected::with(1, LOOPBACK, PathMtu::B61440, [config(); 2]);
    let [(_, beside), _] = both.pair.connected([config(); 2], PathMtu::B61440);
    both.pair.intercept(0);
    let remote = both.register(1, place(SINK, 4096), EVERYTHING);
    for id in 0..20 {
        both.post(0, id, SendOp::Write(data(SOURCE, 4096), remote));
    }
    let sent = both.pair.intercept(0);
    assert_eq!(sent.len(), 2, "15 packets of 4128 bytes fit a train");
    assert!(sent.iter().all(|(_, _, bytes)| bytes.len() <= 65_000));
    assert_eq!(both.complete(0, 20).len(), 20);
    both.post(0, 20, SendOp::Write(data(SOURCE, 24), remote));
    both.qpns[0] = beside;
    both.post(0, 21, SendOp::Write(data(SOURCE, 24), remote));
    assert_eq!(both.pair.intercept(0).len(), 2);
}

#[test]
fn a_train_is_taken_in_order() {
    let mut station = Station::new();
    let train = [
        station.write(b"first..."),
        station.write(b"second.."),
        station.send(b"done"),
    ];
    assert_eq!(station.arrive(&train.concat()), (3, 0));
    assert_eq!(station.written(), b"second..");
    let received = station.both.complete(1, 1);
    assert_eq!(statuses(&received), [(7, WorkStatus::Success)]);
    // Again: duplicates, which do nothing.
    assert_eq!(station.arrive(&train.concat()), (3, 0));
    assert_eq!(station.both.pair.ends[1].completions.len(), 0);
}

#[test]
fn a_train_whose_lengths_do_not_add_up_does_nothing() {
    let mut station = Station::new();
    let good = [station.write(b"wrong..."), station.send(b"done")].concat();
    let mut bad = vec![good[1..].to_vec(), good[..good.len() - 4].to_vec()];
    for (at, value) in [
        (good.len() - 1, 16),
        (good.len() - 1, 24),
        (39, 41),
        (37, 1),
    ] {
        let mut other = good.clone();
        other[at] = value;
        bad.push(other);
    }
    for train in bad {
        let (packets, malformed) = station.arrive(&train);
        assert_eq!(packets, malformed);
        assert_eq!(station.written(), [0; 8], "{train:02x?}");
    }
    assert_eq!(station.arrive(&good), (2, 0));
    assert_eq!(station.written(), b"wrong...");
}

#[test]
fn packets_for_others_and_with_an_icrc_are_no_part_of_a_train() {
    let mut station = Station::new();
    let [(_, _), (_, other)] = station.both.pair.connected([config(); 2], PathMtu::B4096);
    let first = station.write(b"for us..");
    let astray = station.packet(WRITE, other, b"for all.");
    assert_eq!(station.arrive(&[first, astray].concat()), (2, 1));
    assert_eq!(station.written(), b"for us..");
    let flow = station.both.pair.flow(0);
    let reth = Reth::new(station.remote.va, station.remote.rkey, 8);
    let psn = Psn::new(station.psn - 1);
    let [ours, other] = [station.both.qpns[1], other]
        .map(|dest| forge::packet(&flow, WRITE, dest, psn, reth.as_bytes(), b"sealed.."));
    assert_eq!(station.arrive(&ours), (1, 1), "an ICRC is no length");
    assert_eq!(station.written(), b"for us..");
    // Whose the train is says its first header, even of a packet that is none.
    let unknown = Bth::new(0x1F, station.both.qpns[1], Psn::new(station.psn));
    let first = forge::in_train(unknown, &[], b"nothing.");
    let astray = station.packet(WRITE, other_of(&other), b"for all.");
    assert_eq!(station.arrive(&[first, astray].concat()), (2, 2));
    // A queue pair without trains takes none.
    let before = station.both.pair.ends[1].endpoint.counters().bad_icrc;
    let train = station.packet(WRITE, other_of(&other), b"unsealed");
    station.arrive(&train);
    let after = station.both.pair.ends[1].endpoint.counters().bad_icrc;
    assert_eq!(after - before, 1);
    assert_eq!(station.written(), b"for us..");
}

/// The queue pair that a datagram is for.
fn other_of(datagram: &[u8]) -> Qpn {
    crate::wire::Packet::parse(datagram).unwrap().bth.dest()
}
