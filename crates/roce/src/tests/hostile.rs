//! Peers that send what they must not.

use proptest::prelude::*;
use zerocopy::{FromBytes, IntoBytes};

use super::*;
use crate::testing::forge;
use crate::wire::{
    Aeth, AtomicAckEth, AtomicEth, AtomicOpcode, Bth, Extended, Ieth, ImmDt, NakCode, Opcode,
    Packet, Position, Psn, Reth, SendTail, Syndrome, WriteTail,
};
use crate::{Flow, QpState, Received};

/// End 1, attacked by a peer that knows end 0's numbers.
struct Victim {
    both: Connected,
    psn: u32,
    remote: Remote,
}

/// Names remote memory.
type Aim = fn(&Victim) -> Reth;
/// Sends packets.
type Attack = fn(&mut Victim);

const FIRST: Opcode = Opcode::Write(Position::First, WriteTail::Plain);
const MIDDLE: Opcode = Opcode::Write(Position::Middle, WriteTail::Plain);
const LAST: Opcode = Opcode::Write(Position::Last, WriteTail::Plain);
const ONLY: Opcode = Opcode::Write(Position::Only, WriteTail::Plain);
const SEND_FIRST: Opcode = Opcode::Send(Position::First, SendTail::Plain);
const SEND_LAST: Opcode = Opcode::Send(Position::Last, SendTail::Plain);
const SEND_ONLY: Opcode = Opcode::Send(Position::Only, SendTail::Plain);
const REGION_BYTES: u32 = 4096;

impl Victim {
    fn new() -> Self {
        Self::with(config(), EVERYTHING)
    }

    /// A victim whose queue pair and region allow this much.
    fn with(config: QpConfig, access: Access) -> Self {
        let mut both = Connected::with(11, V6, PathMtu::B256, [super::config(), config]);
        let remote = both.register(1, place(SINK, u64::from(REGION_BYTES)), access);
        both.recv(1, 1, place(SINK + 20_000, 1000));
        // The next PSN is learnt from a packet that is not delivered.
        both.post(0, 0, SendOp::Send(inline(b"")));
        let sent = both.pair.intercept(0);
        let psn = Packet::parse(&sent[0].2).unwrap().bth.psn().get();
        Self { both, psn, remote }
    }

    fn flow(&self) -> Flow {
        self.both.pair.flow(0)
    }

    fn inject(&mut self, opcode: Opcode, psn: u32, extended: &[u8], payload: &[u8]) {
        let dest = self.both.qpns[1];
        let datagram = forge::packet(&self.flow(), opcode, dest, Psn::new(psn), extended, payload);
        self.both.pair.inject(1, &datagram);
    }

    /// The next packet in sequence.
    fn next(&mut self, opcode: Opcode, extended: &[u8], payload: &[u8]) {
        self.inject(opcode, self.psn, extended, payload);
        self.psn += 1;
    }

    fn reth(&self, offset: u64, len: u32) -> Reth {
        Reth::new(self.remote.va.wrapping_add(offset), self.remote.rkey, len)
    }

    /// What the victim answers.
    fn answers(&mut self) -> Vec<(Opcode, u32, Extended)> {
        let sent = self.both.pair.intercept(1);
        let parsed = sent.iter().map(|s| Packet::parse(&s.2).unwrap());
        parsed
            .map(|p| (p.opcode, p.bth.psn().get(), p.extended))
            .collect()
    }

    fn state(&mut self) -> QpState {
        let qpn = self.both.qpns[1];
        let endpoint = &mut self.both.pair.ends[1].endpoint;
        endpoint.qp_state(qpn).unwrap()
    }

    /// The last packet was refused by `code`, counted, and ended the queue pair.
    fn assert_refused(&mut self, code: NakCode, what: &str) {
        let answers = self.answers();
        let Some((Opcode::Acknowledge, psn, Extended::Acknowledge(aeth))) = answers.last() else {
            panic!("{what}: {answers:?}");
        };
        assert_eq!(aeth.syndrome(), Some(Syndrome::Nak(code)), "{what}");
        assert_eq!(*psn, Psn::new(self.psn - 1).get(), "{what}");
        assert_eq!(self.state(), QpState::Error, "{what}");
        let counters = self.both.pair.ends[1].endpoint.counters();
        let counted = [
            (NakCode::RemoteAccessError, counters.refused_access),
            (NakCode::InvalidRequest, counters.refused_invalid),
            (
                NakCode::RemoteOperationalError,
                counters.refused_operational,
            ),
        ];
        for (cause, count) in counted {
            assert_eq!(count, u64::from(cause == code), "{what}: {cause:?}");
        }
    }

    fn sink(&self) -> &[u8] {
        let sink = place(SINK, MEMORY_BYTES as u64 - SINK);
        self.both.bytes(1, sink)
    }
}

#[test]
fn wrong_keys_ranges_and_rights_are_refused_and_touch_nothing() {
    let no_write = Access {
        write: false,
        ..EVERYTHING
    };
    let foreign = QpConfig {
        domain: ProtectionDomain(2),
        ..config()
    };
    let beyond = u64::from(REGION_BYTES);
    let access = NakCode::RemoteAccessError;
    let cases: [(&str, QpConfig, Access, Aim); 7] = [
        ("wrong key", config(), EVERYTHING, |v| {
            Reth::new(v.remote.va, Rkey(v.remote.rkey.0 ^ 1), 4)
        }),
        ("key 0", config(), EVERYTHING, |v| {
            Reth::new(v.remote.va, Rkey(0), 4)
        }),
        ("beyond the end", config(), EVERYTHING, |v| {
            v.reth(u64::from(REGION_BYTES) - 3, 4)
        }),
        ("before the start", config(), EVERYTHING, |v| {
            v.reth(u64::MAX, 4)
        }),
        ("wraps", config(), EVERYTHING, |v| {
            Reth::new(u64::MAX - 1, v.remote.rkey, 4)
        }),
        ("region without the right", config(), no_write, |v| {
            v.reth(0, 4)
        }),
        ("another domain", foreign, EVERYTHING, |v| v.reth(0, 4)),
    ];
    for (what, qp, rights, reth) in cases {
        let mut victim = Victim::with(qp, rights);
        let reth = reth(&victim);
        victim.next(ONLY, reth.as_bytes(), &[0xEE; 4]);
        victim.assert_refused(access, what);
        assert!(victim.sink().iter().all(|b| *b == 0), "{what}");
        let mut victim = Victim::with(
            qp,
            Access {
                read: false,
                ..rights
            },
        );
        victim.next(Opcode::ReadRequest, reth.as_bytes(), &[]);
        victim.assert_refused(access, what);
    }
    let mut victim = Victim::new();
    let reth = victim.reth(0, 300 + beyond as u32);
    victim.next(FIRST, reth.as_bytes(), &[0xEE; 256]);
    victim.assert_refused(access, "the end of a message lies beyond");
    assert!(victim.sink().iter().all(|b| *b == 0));
}

#[test]
fn queue_pairs_without_rights_refuse_operations() {
    let none = QpConfig {
        access: Access::default(),
        ..config()
    };
    let invalid = NakCode::InvalidRequest;
    let mut victim = Victim::with(none, EVERYTHING);
    victim.next(ONLY, victim.reth(0, 4).as_bytes(), &[1; 4]);
    victim.assert_refused(invalid, "write");
    let mut victim = Victim::with(none, EVERYTHING);
    victim.next(Opcode::ReadRequest, victim.reth(0, 4).as_bytes(), &[]);
    victim.assert_refused(invalid, "read");
    // Nor as what it has requested before, which it has not.
    let mut victim = Victim::with(none, EVERYTHING);
    victim.next(SEND_ONLY, &[], b"first");
    victim.answers();
    let again = victim.reth(0, 4);
    victim.inject(Opcode::ReadRequest, victim.psn - 1, again.as_bytes(), &[]);
    assert_eq!(victim.answers(), []);
    let mut victim = Victim::with(none, EVERYTHING);
    let atomic = atomic(&victim, 0);
    victim.next(ADD, atomic.as_bytes(), &[]);
    victim.assert_refused(invalid, "atomic");
}

#[test]
fn messages_whose_packets_do_not_fit_are_refused() {
    let cases: [(&str, Attack); 12] = [
        ("first packet too short", |v| {
            v.next(FIRST, v.reth(0, 600).as_bytes(), &[1; 255]);
        }),
        ("only packet too long", |v| {
            v.next(ONLY, v.reth(0, 600).as_bytes(), &[1; 600]);
        }),
        ("less than it said", |v| {
            v.next(ONLY, v.reth(0, 8).as_bytes(), &[1; 4]);
        }),
        ("more than it said", |v| {
            v.next(ONLY, v.reth(0, 4).as_bytes(), &[1; 8]);
        }),
        ("first packet has all that it said", |v| {
            v.next(FIRST, v.reth(0, 256).as_bytes(), &[1; 256]);
        }),
        ("last packet empty", |v| {
            v.next(FIRST, v.reth(0, 600).as_bytes(), &[1; 256]);
            v.next(LAST, &[], &[]);
        }),
        ("last packet too early", |v| {
            v.next(FIRST, v.reth(0, 600).as_bytes(), &[1; 256]);
            v.next(LAST, &[], &[1; 88]);
        }),
        ("longer than any message", |v| {
            v.next(FIRST, v.reth(0, (1 << 31) + 1).as_bytes(), &[1; 256]);
        }),
        ("middle without a first", |v| v.next(MIDDLE, &[], &[1; 256])),
        ("a first within a message", |v| {
            v.next(FIRST, v.reth(0, 600).as_bytes(), &[1; 256]);
            v.next(FIRST, v.reth(0, 600).as_bytes(), &[1; 256]);
        }),
        ("a send within a write", |v| {
            v.next(FIRST, v.reth(0, 600).as_bytes(), &[1; 256]);
            v.next(SEND_LAST, &[], &[1; 4]);
        }),
        ("a read within a send", |v| {
            v.next(SEND_FIRST, &[], &[1; 256]);
            v.next(Opcode::ReadRequest, v.reth(0, 4).as_bytes(), &[]);
        }),
    ];
    for (what, attack) in cases {
        let mut victim = Victim::new();
        attack(&mut victim);
        victim.assert_refused(NakCode::InvalidRequest, what);
    }
}

#[test]
fn a_message_longer_than_its_receive_fails_both() {
    let mut victim = Victim::new();
    victim.both.recv(1, 2, place(SINK, 8));
    victim.next(SEND_ONLY, &[], &[7; 200]);
    victim.next(SEND_ONLY, &[], &[7; 200]);
    victim.assert_refused(NakCode::InvalidRequest, "too long");
    let received = statuses(&victim.both.pair.ends[1].completions);
    assert_eq!(
        received,
        [(1, WorkStatus::Success), (2, WorkStatus::LocalLength)]
    );
    assert_eq!(victim.sink()[..16], [0; 16]);
}

#[test]
fn only_keys_that_may_be_are_invalidated_by_peers() {
    let fixed = Access {
        invalidate: false,
        ..EVERYTHING
    };
    let mut victim = Victim::with(config(), fixed);
    let key = victim.remote.rkey;
    let ieth = Ieth { rkey: key.0.into() };
    let opcode = Opcode::Send(Position::Only, SendTail::Invalidate);
    victim.next(opcode, ieth.as_bytes(), b"x");
    victim.assert_refused(NakCode::RemoteAccessError, "invalidate");
    assert!(victim.both.pair.ends[1].endpoint.invalidate(key));
    let received = statuses(&victim.both.pair.ends[1].completions);
    assert_eq!(received, [(1, WorkStatus::RemoteAccess)]);
}

#[test]
fn packets_beyond_a_gap_bring_one_nak_and_no_effect() {
    let mut victim = Victim::new();
    for ahead in 1..500 {
        let psn = victim.psn + ahead;
        victim.inject(ONLY, psn, victim.reth(0, 4).as_bytes(), &[1; 4]);
    }
    let answers = victim.answers();
    assert_eq!(answers.len(), 1, "{answers:?}");
    assert_eq!(answers[0].1, victim.psn);
    assert!(victim.sink().iter().all(|b| *b == 0));
    assert_eq!(victim.state(), QpState::ReadyToSend);
    let counters = victim.both.pair.ends[1].endpoint.counters();
    assert_eq!(counters.out_of_sequence, 499);
}

#[test]
fn duplicates_change_nothing() {
    let mut victim = Victim::new();
    victim.next(ONLY, victim.reth(0, 4).as_bytes(), &[1; 4]);
    victim.answers();
    for behind in 1..100 {
        let psn = victim.psn - behind;
        victim.inject(ONLY, psn, victim.reth(8, 4).as_bytes(), &[9; 4]);
    }
    let answers = victim.answers();
    assert_eq!(answers.len(), 1, "acknowledged together");
    assert_eq!(answers[0].1, victim.psn - 1);
    assert_eq!(victim.sink()[..12], [1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn a_duplicate_is_answered_by_all_that_has_arrived_even_where_an_answer_is_due() {
    let mut victim = Victim::new();
    let quiet = |victim: &Victim, psn| {
        let bth = Bth::new(ONLY.to_wire(), victim.both.qpns[1], Psn::new(psn));
        forge::datagram(&victim.flow(), bth, victim.reth(0, 4).as_bytes(), &[1; 4])
    };
    let first = victim.psn;
    victim.next(ONLY, victim.reth(0, 4).as_bytes(), &[1; 4]);
    let [second, third] = [first + 1, first + 2].map(|psn| quiet(&victim, psn));
    victim.both.pair.inject(1, &second);
    victim.both.pair.inject(1, &third);
    victim.inject(ONLY, first + 2, victim.reth(0, 4).as_bytes(), &[1; 4]);
    let answers = victim.answers();
    assert_eq!(answers.iter().map(|a| a.1).collect::<Vec<_>>(), [first + 2]);
}

const ADD: Opcode = Opcode::Atomic(AtomicOpcode::FetchAdd);
const SWAP: Opcode = Opcode::Atomic(AtomicOpcode::CompareSwap);

/// Adds 5, or swaps 5 in for 0.
fn atomic(victim: &Victim, offset: u64) -> AtomicEth {
    AtomicEth {
        va: victim.remote.va.wrapping_add(offset).into(),
        rkey: victim.remote.rkey.0.into(),
        swap_or_add: 5.into(),
        compare: 0.into(),
    }
}

impl Victim {
    /// The next atomic in sequence, at offset 8; what was there before by its answer, and what is
    /// there now.
    fn next_atomic(&mut self, opcode: Opcode, swap_or_add: u64, compare: u64) -> (u64, u64) {
        let header = AtomicEth {
            swap_or_add: swap_or_add.into(),
            compare: compare.into(),
            ..atomic(self, 8)
        };
        self.next(opcode, header.as_bytes(), &[]);
        let [(psn, original)] = self.originals()[..] else {
            panic!("one answer");
        };
        assert_eq!(psn, self.psn - 1);
        (original, self.atomic_value())
    }

    /// What atomics are answered with, by PSN; nothing else is answered.
    fn originals(&mut self) -> Vec<(u32, u64)> {
        let original = |(_, psn, extended)| match extended {
            Extended::AtomicAcknowledge(aeth, AtomicAckEth { original }) => {
                assert_eq!(aeth.syndrome(), Some(Syndrome::Ack));
                (psn, original.get())
            }
            other => panic!("{other:?}"),
        };
        self.answers().into_iter().map(original).collect()
    }

    fn atomic_value(&self) -> u64 {
        u64::from_ne_bytes(*self.sink()[8..].first_chunk().unwrap())
    }
}

#[test]
fn atomics_add_and_swap_where_they_match() {
    const LARGE: u64 = 0x0123_4567_89AB_CDEF;
    let mut victim = Victim::new();
    assert_eq!(victim.next_atomic(ADD, 5, 99), (0, 5), "nothing to compare");
    assert_eq!(victim.next_atomic(ADD, u64::MAX, 0), (5, 4), "it wraps");
    assert_eq!(victim.next_atomic(SWAP, LARGE, 5), (4, 4), "no match");
    assert_eq!(victim.next_atomic(SWAP, LARGE, 4), (4, LARGE), "a match");
    assert_eq!(victim.next_atomic(SWAP, 0, LARGE), (LARGE, 0), "and back");
    assert_eq!(victim.next_atomic(SWAP, 6, 0), (0, 6));
    assert!(victim.sink()[..8].iter().all(|b| *b == 0));
    assert!(victim.sink()[16..].iter().all(|b| *b == 0));
}

#[test]
fn atomics_are_executed_once_and_answered_again() {
    let shallow = QpConfig {
        responder_resources: 3,
        ..config()
    };
    let mut victim = Victim::with(shallow, EVERYTHING);
    let first = victim.psn;
    let done = [(SWAP, 7, 0), (ADD, 1, 0), (SWAP, 3, 9), (SWAP, 9, 8)];
    let originals = done.map(|(opcode, value, compare)| {
        let (original, _) = victim.next_atomic(opcode, value, compare);
        original
    });
    assert_eq!(originals, [0, 7, 8, 8]);
    assert_eq!(victim.atomic_value(), 9);
    // What a duplicate says does not matter: it is known by its PSN.
    let header = atomic(&victim, 8);
    for (index, original) in originals.into_iter().enumerate().skip(1) {
        let psn = first + index as u32;
        for opcode in [ADD, SWAP, ADD] {
            victim.inject(opcode, psn, header.as_bytes(), &[]);
        }
        assert_eq!(victim.originals(), [(psn, original)], "answered at once");
        victim.inject(ADD, psn, header.as_bytes(), &[]);
        assert_eq!(victim.originals(), [(psn, original)], "and once more");
    }
    // More than the peer may have open are not remembered.
    victim.inject(SWAP, first, header.as_bytes(), &[]);
    assert_eq!(victim.answers(), []);
    assert_eq!(victim.atomic_value(), 9);
    assert_eq!(victim.state(), QpState::ReadyToSend);
}

#[test]
fn atomics_beyond_keys_ranges_and_rights_are_refused_and_touch_nothing() {
    let foreign = QpConfig {
        domain: ProtectionDomain(2),
        ..config()
    };
    let fixed = Access {
        atomic: false,
        ..EVERYTHING
    };
    let (access, invalid) = (NakCode::RemoteAccessError, NakCode::InvalidRequest);
    let end = u64::from(REGION_BYTES);
    let all = EVERYTHING;
    let cases = [
        ("wrong key", config(), all, 8, 1, access),
        ("beyond the end", config(), all, end, 0, access),
        (
            "before the start",
            config(),
            all,
            8u64.wrapping_neg(),
            0,
            access,
        ),
        ("region without the right", config(), fixed, 8, 0, access),
        ("another domain", foreign, all, 8, 0, access),
        ("misaligned by 1", config(), all, 9, 0, invalid),
        ("misaligned by 4", config(), all, 12, 0, invalid),
        ("misaligned by 7", config(), all, 15, 0, invalid),
        ("over the end", config(), all, end - 4, 0, invalid),
    ];
    for (what, qp, rights, offset, key_change, code) in cases {
        for opcode in [ADD, SWAP] {
            let mut victim = Victim::with(qp, rights);
            let mut header = atomic(&victim, offset);
            header.rkey = (header.rkey.get() ^ key_change).into();
            victim.next(opcode, header.as_bytes(), &[]);
            victim.assert_refused(code, what);
            assert!(victim.sink().iter().all(|b| *b == 0), "{what}");
        }
    }
}

#[test]
fn atomics_of_a_wrong_length_are_dropped() {
    let mut victim = Victim::new();
    let header = atomic(&victim, 8);
    let header = header.as_bytes();
    for opcode in [ADD, SWAP] {
        victim.inject(opcode, victim.psn, &header[..header.len() - 4], &[]);
        victim.inject(opcode, victim.psn, header, &[0; 4]);
    }
    assert_eq!(victim.answers(), []);
    assert_eq!(victim.atomic_value(), 0);
    let counters = victim.both.pair.ends[1].endpoint.counters();
    assert_eq!(counters.malformed, 4);
    assert_eq!(
        victim.next_atomic(ADD, 5, 0),
        (0, 5),
        "its turn is not over"
    );
}

#[test]
fn a_repeated_read_whose_key_was_invalidated_is_not_answered() {
    let mut victim = Victim::new();
    let reth = victim.reth(0, 4);
    victim.next(Opcode::ReadRequest, reth.as_bytes(), b"");
    assert_eq!(victim.answers().len(), 1);
    victim.inject(Opcode::ReadRequest, victim.psn - 1, reth.as_bytes(), b"");
    let key = victim.remote.rkey;
    assert!(victim.both.pair.ends[1].endpoint.invalidate(key));
    assert!(victim.answers().is_empty());
    assert_eq!(victim.state(), QpState::ReadyToSend);
}

#[test]
fn floods_of_reads_are_bounded() {
    let shallow = QpConfig {
        responder_resources: 2,
        ..config()
    };
    let mut victim = Victim::with(shallow, EVERYTHING);
    for _ in 0..5 {
        let reth = victim.reth(0, 256);
        victim.next(Opcode::ReadRequest, reth.as_bytes(), &[]);
    }
    victim.assert_refused(NakCode::InvalidRequest, "more reads than agreed");
    let mut victim = Victim::with(shallow, EVERYTHING);
    let reth = victim.reth(0, 4096);
    let first = victim.psn;
    victim.next(Opcode::ReadRequest, reth.as_bytes(), &[]);
    for _ in 0..1000 {
        victim.inject(Opcode::ReadRequest, first, reth.as_bytes(), &[]);
    }
    assert_eq!(
        victim.answers().len(),
        16,
        "a repeated request is answered once"
    );
    let longer = victim.reth(0, 4096);
    victim.inject(Opcode::ReadRequest, first + 15, longer.as_bytes(), &[]);
    assert_eq!(victim.answers(), [], "a repetition never asks for more");
}

#[test]
fn answers_to_a_flood_of_duplicates_are_those_of_what_may_be_open() {
    const READS: u32 = 50;
    const RESOURCES: u8 = 2;
    let shallow = QpConfig {
        responder_resources: RESOURCES,
        ..config()
    };
    let mut victim = Victim::with(shallow, EVERYTHING);
    let packets = PathMtu::B256.packets(REGION_BYTES);
    let reth = victim.reth(0, REGION_BYTES);
    let first = victim.psn;
    let ask = |victim: &mut Victim, read: u32| {
        let psn = first + read * packets;
        victim.inject(Opcode::ReadRequest, psn, reth.as_bytes(), &[]);
    };
    for read in 0..READS {
        ask(&mut victim, read);
        assert_eq!(victim.answers().len(), packets as usize);
    }
    for read in 0..READS {
        ask(&mut victim, read);
    }
    // No more answers wait than twice the requests that may be open.
    let waiting = 2 * u32::from(RESOURCES);
    assert_eq!(victim.answers().len(), (waiting * packets) as usize);
    assert_eq!(victim.state(), QpState::ReadyToSend);
}

#[test]
fn responses_to_nothing_are_dropped() {
    let mut both = Connected::new(PathMtu::B256);
    let flow = both.pair.flow(1);
    both.post(0, 1, SendOp::Send(data(SOURCE, 600)));
    let sent = both.pair.intercept(0);
    let first = Packet::parse(&sent[0].2).unwrap().bth.psn().get();
    let ack = Aeth::new(Syndrome::Ack, 1);
    let atomic = [ack.as_bytes(), &[0; 8]].concat();
    let dest = both.qpns[0];
    let mut respond = |opcode, psn: u32, extended: &[u8], payload: &[u8]| {
        let datagram = forge::packet(&flow, opcode, dest, Psn::new(psn), extended, payload);
        both.pair.inject(0, &datagram);
    };
    respond(Opcode::Acknowledge, first + 3, ack.as_bytes(), &[]);
    respond(
        Opcode::Acknowledge,
        first.wrapping_sub(1),
        ack.as_bytes(),
        &[],
    );
    respond(Opcode::Acknowledge, first + (1 << 22), ack.as_bytes(), &[]);
    respond(Opcode::AtomicAcknowledge, first, &atomic, &[]);
    let only = Opcode::ReadResponse(Position::Only);
    respond(only, first, ack.as_bytes(), &[1; 100]);
    let counters = both.pair.ends[0].endpoint.counters();
    assert_eq!(counters.unexpected, 5);
    assert!(both.pair.ends[0].completions.is_empty());
    let qpn = both.qpns[0];
    let state = both.pair.ends[0].endpoint.qp_state(qpn);
    assert_eq!(state, Some(QpState::ReadyToSend));
}

#[test]
fn responses_of_the_wrong_length_fail_the_read_and_write_nothing() {
    for (position, len) in [
        (Position::First, 255),
        (Position::First, 100),
        (Position::Only, 256),
        (Position::Last, 256),
    ] {
        let mut both = Connected::new(PathMtu::B256);
        let flow = both.pair.flow(1);
        let into = Gather::new(&[place(SINK, 300)]).unwrap();
        let remote = Remote {
            va: 0,
            rkey: Rkey(1),
        };
        both.post(0, 1, SendOp::Read(into, remote));
        let sent = both.pair.intercept(0);
        let psn = Packet::parse(&sent[0].2).unwrap().bth.psn();
        let ack = Aeth::new(Syndrome::Ack, 1);
        let opcode = Opcode::ReadResponse(position);
        let payload = vec![0xEE; len];
        let datagram = forge::packet(&flow, opcode, both.qpns[0], psn, ack.as_bytes(), &payload);
        both.pair.inject(0, &datagram);
        let done = both.complete(0, 1);
        assert_eq!(statuses(&done), [(1, WorkStatus::BadResponse)]);
        assert!(both.bytes(0, place(SINK, 400)).iter().all(|b| *b == 0));
    }
}

#[test]
fn strangers_partitions_and_unknown_numbers_are_dropped_and_counted() {
    let mut victim = Victim::new();
    let (dest, psn) = (victim.both.qpns[1], Psn::new(victim.psn));
    let reth = victim.reth(0, 4);
    let stranger = Flow::new(
        "[fd09::66]:4791".parse().unwrap(),
        "[fd09::2]:4791".parse().unwrap(),
    )
    .unwrap();
    let forged = forge::packet(&stranger, ONLY, dest, psn, reth.as_bytes(), &[1; 4]);
    let received = Received {
        flow: stranger,
        bytes: &forged,
        segment_len_bytes: None,
        identification: crate::wire::Ipv4Identification::Unknown,
        congestion_experienced: false,
    };
    victim.both.pair.inject_received(1, &received);
    let flow = victim.flow();
    let mut bth = Bth::new(ONLY.to_wire(), dest, psn);
    bth.pkey = 0x7ABC.into();
    let other_partition = forge::datagram(&flow, bth, reth.as_bytes(), &[1; 4]);
    victim.both.pair.inject(1, &other_partition);
    let nobody = Qpn::new(dest.get() ^ 1 << 20);
    let to_nobody = forge::packet(&flow, ONLY, nobody, psn, reth.as_bytes(), &[1; 4]);
    victim.both.pair.inject(1, &to_nobody);
    let mut bad_sum = forge::packet(&flow, ONLY, dest, psn, reth.as_bytes(), &[1; 4]);
    *bad_sum.last_mut().unwrap() ^= 1;
    victim.both.pair.inject(1, &bad_sum);
    let bth = Bth::new(0x1C, dest, psn);
    let unknown = forge::datagram(&flow, bth, reth.as_bytes(), &[1; 4]);
    victim.both.pair.inject(1, &unknown);
    let counters = victim.both.pair.ends[1].endpoint.counters();
    assert_eq!(
        (
            counters.stranger,
            counters.bad_pkey,
            counters.no_such_qp,
            counters.bad_icrc,
            counters.malformed
        ),
        (1, 1, 1, 1, 1)
    );
    assert_eq!(victim.answers(), []);
    assert!(victim.sink().iter().all(|b| *b == 0));
}

#[test]
fn truncated_datagrams_are_dropped_at_every_length() {
    let mut victim = Victim::new();
    let reth = victim.reth(0, 256);
    let imm = ImmDt { data: 1.into() };
    let headers = [reth.as_bytes(), imm.as_bytes()].concat();
    let opcode = Opcode::Write(Position::Only, WriteTail::Immediate);
    let (dest, psn) = (victim.both.qpns[1], Psn::new(victim.psn));
    let whole = forge::packet(&victim.flow(), opcode, dest, psn, &headers, &[1; 256]);
    for len in 0..whole.len() {
        victim.both.pair.inject(1, &whole[..len]);
    }
    assert_eq!(victim.answers(), []);
    assert!(victim.sink().iter().all(|b| *b == 0));
    victim.both.pair.inject(1, &whole);
    assert_eq!(victim.sink()[..256], [1; 256]);
}

/// The maximum number of response packets to one packet: the data of a READ, otherwise one.
fn answers_max(code: u8, len: u32) -> u32 {
    match Opcode::from_wire(code) {
        Some(Opcode::ReadRequest) if len <= REGION_BYTES => PathMtu::B256.packets(len),
        _ => 1,
    }
}

proptest! {
    /// Whatever comes with a right checksum from the peer's address: bytes outside of the region
    /// and of posted receives stay as they are, answers are bounded, nothing panics.
    #[test]
    fn nothing_outside_of_what_was_granted_is_written(
        packets in proptest::collection::vec(
            (
                prop_oneof![Just(Opcode::ReadRequest.to_wire()), 0u8..0x18, any::<u8>()],
                0u32..4,
                prop_oneof![Just(0u64), 0u64..5000, any::<u64>()],
                prop_oneof![Just(0u32), 0u32..600, Just(REGION_BYTES), any::<u32>()],
                any::<bool>(),
                proptest::collection::vec(any::<u8>(), 0..70),
                prop_oneof![Just(0usize), 0usize..300],
            ),
            1..40,
        )
    ) {
        let mut victim = Victim::new();
        let before = victim.both.pair.ends[1].memory.bytes.clone();
        let mut psn = victim.psn;
        for (code, ahead, offset, len, right_key, noise, payload_len) in packets {
            let mut reth = victim.reth(offset, len);
            if !right_key {
                reth.rkey = 7.into();
            }
            let headers = match Opcode::from_wire(code).map(Opcode::extended_len_bytes) {
                Some(16) => reth.as_bytes().to_vec(),
                Some(20) => [reth.as_bytes(), &[0; 4]].concat(),
                Some(n) => noise.iter().copied().chain(std::iter::repeat(0)).take(n).collect(),
                None => noise,
            };
            let bth = Bth::new(code, victim.both.qpns[1], Psn::new(psn + ahead / 3)).with_ack_request();
            let datagram = forge::datagram(&victim.flow(), bth, &headers, &vec![0xEE; payload_len]);
            victim.both.pair.inject(1, &datagram);
            let answers_max = answers_max(code, len);
            if ahead < 2 {
                psn += answers_max;
            }
            prop_assert!(victim.answers().len() <= answers_max as usize);
        }
        let after = &victim.both.pair.ends[1].memory.bytes;
        let region = SINK as usize..SINK as usize + REGION_BYTES as usize;
        let recv = SINK as usize + 20_000..SINK as usize + 21_000;
        for (at, (old, new)) in before.iter().zip(after).enumerate() {
            prop_assert!(old == new || region.contains(&at) || recv.contains(&at), "byte {}", at);
        }
    }

    #[test]
    fn any_bytes_with_a_right_checksum_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let mut victim = Victim::new();
        let sealed = forge::seal(&victim.flow(), &bytes);
        victim.both.pair.inject(1, &sealed);
        if let Ok((bth, _)) = Bth::read_from_prefix(&bytes[..]) {
            let addressed = Bth { dest_qpn: crate::wire::U24::new(victim.both.qpns[1].get()), ..bth };
            let body = [addressed.as_bytes(), &bytes[12..]].concat();
            let sealed = forge::seal(&victim.flow(), &body);
            victim.both.pair.inject(1, &sealed);
        }
        victim.answers();
    }
}
