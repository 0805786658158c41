//! Members whose peers and store are this test.

use std::time::Duration;

use block::{BlockSize, Blocks, Lba};

use super::*;
use crate::contents::Contents;
use crate::ids::{Epoch, Seq, StreamId};
use crate::medium::Unwritten;
use crate::message::{Entry, EntryBody, HostReply, StoreOp};
use crate::testing::{VecMedium, settings};

/// A copy that writes half of the blocks while it has no memory.
struct Scarce {
    copy: VecMedium,
    is_full: bool,
}

impl Medium for Scarce {
    type Data = Contents;

    fn read(&self, extent: Extent) -> Contents {
        self.copy.read(extent)
    }

    fn write(&mut self, extent: Extent, data: &Contents) -> Result<(), Unwritten> {
        if !self.is_full {
            return self.copy.write(extent, data);
        }
        let half = Extent::new(extent.lba, Blocks(extent.blocks.0 / 2));
        let bytes = data.bytes().map(|bytes| bytes[..bytes.len() / 2].into());
        let zeros = Contents::zeros(BlockSize::B512, half.blocks.0);
        let written = bytes.and_then(|bytes| Contents::of_bytes(BlockSize::B512, bytes));
        self.copy.write(half, &written.unwrap_or(zeros))?;
        Err(Unwritten)
    }

    fn blocks(data: &Contents) -> u64 {
        data.blocks()
    }

    fn needs_memory(data: &Contents) -> bool {
        data.bytes().is_some()
    }
}

/// One member, and what it wants.
struct Driven {
    member: Member<Scarce>,
    now: LocalTime,
    sent: Vec<Body<Contents>>,
    asked: Vec<(StoreRequestId, StoreOp)>,
    replies: Vec<(HostRequest, HostReply)>,
}

const fn id(node: u32) -> MemberId {
    MemberId {
        node,
        incarnation: 1,
    }
}

const fn extent(lba: u64, blocks: u64) -> Extent {
    Extent::new(Lba(lba), Blocks(blocks))
}

fn bytes(blocks: u64, byte: u8) -> Contents {
    let bytes = vec![byte; blocks as usize * 512];
    Contents::of_bytes(BlockSize::B512, bytes.into()).expect("whole blocks")
}

impl Driven {
    /// Member 1 of a volume whose first primary and members in sync are these.
    fn start(primary: u32, in_sync: &[u32]) -> Self {
        let medium = Scarce {
            copy: VecMedium(vec![0; 64 * 512]),
            is_full: false,
        };
        let member = Member::new(id(1), settings(), medium, LocalTime::default());
        let mut driven = Self {
            member: member.expect("the settings are valid"),
            now: LocalTime::default(),
            sent: Vec::new(),
            asked: Vec::new(),
            replies: Vec::new(),
        };
        let members: Vec<_> = in_sync.iter().map(|node| id(*node)).collect();
        let config = Config::first(id(primary), &members).expect("a configuration");
        driven.receive(9, 0, Body::Newer(config));
        driven
    }

    fn take_outputs(&mut self) {
        while let Some(output) = self.member.poll_output() {
            match output {
                Output::Send(envelope) => self.sent.push(envelope.body),
                Output::Store(id, op) => self.asked.push((id, op)),
                Output::Reply(request, reply) => self.replies.push((request, reply)),
            }
        }
    }

    fn receive(&mut self, from: u32, epoch: u64, body: Body<Contents>) {
        let message = Envelope {
            from: id(from),
            to: id(1),
            epoch: Epoch(epoch),
            body,
        };
        self.member.handle_message(self.now, message);
        self.take_outputs();
    }

    /// A millisecond passes.
    fn tick(&mut self) {
        self.now = self.now.plus(Duration::from_millis(1));
        self.member.handle_tick(self.now);
        self.take_outputs();
    }

    fn write(&mut self, request: u64, extent: Extent, data: &Contents) -> Result<(), Refusal> {
        let written = self
            .member
            .handle_write(self.now, HostRequest(request), extent, data);
        self.take_outputs();
        written
    }

    /// A peer reports that it has nothing.
    fn report(&mut self, from: u32, epoch: u64) {
        let report = Report {
            stream: StreamId {
                number: 1,
                opened: Epoch(0),
            },
            claim: Claim::everything(Epoch(0)),
            unsettled: Vec::new(),
        };
        self.receive(from, epoch, Body::Report(report));
    }

    /// The peer has executed these entries.
    fn ack(&mut self, from: u32, epoch: u64, applied: u64) {
        let stream = StreamId {
            number: 1,
            opened: Epoch(epoch),
        };
        let applied = Seq(applied);
        self.receive(from, epoch, Body::EntryAck { stream, applied });
    }

    /// The store executes what was asked last.
    fn swap(&mut self) {
        let (id, op) = self.asked.pop().expect("something was asked");
        let StoreOp::Swap(next) = op else {
            panic!("a configuration is proposed");
        };
        self.member.handle_store_reply(self.now, id, next);
        self.take_outputs();
    }

    /// How many reports were sent since this was asked last.
    fn reports(&mut self) -> usize {
        let sent = self.sent.drain(..);
        sent.filter(|body| matches!(body, Body::Report(_))).count()
    }
}

#[test]
fn zeros_without_memory_fail_at_once_and_every_member_gets_what_the_blocks_hold() {
    let mut primary = Driven::start(1, &[1, 2]);
    primary.report(2, 1);
    let data = bytes(4, 7);
    for (request, lba) in [(1, 0), (2, 4), (3, 8)] {
        assert_eq!(primary.write(request, extent(lba, 4), &data), Ok(()));
    }
    primary.ack(2, 1, 3);
    primary.sent.clear();
    primary.member.base.medium.is_full = true;
    let zeros = Contents::zeros(BlockSize::B512, 10);
    let failed = primary.write(4, extent(1, 10), &zeros);
    assert_eq!(failed, Err(Refusal::NoMemory));
    // A peer that had the writes before.
    let mut other = VecMedium(vec![0; 64 * 512]);
    for lba in [0, 4, 8] {
        other.write(extent(lba, 4), &data).expect("there is memory");
    }
    let mut last = 0;
    for body in primary.sent.drain(..) {
        if let Body::Entry(Entry {
            seq,
            body: EntryBody::Write { extent, data },
            ..
        }) = body
        {
            assert!(data.blocks() <= 4, "a piece");
            other.write(extent, &data).expect("there is memory");
            last = seq.0;
        }
    }
    assert_eq!(other, primary.member.medium().copy);
    assert_eq!(other.0[512], 0, "a half was written");
    primary.ack(2, 1, last - 1);
    let reply = (HostRequest(4), HostReply::Written);
    assert!(!primary.replies.contains(&reply));
    let overwritten: Vec<_> = primary.member.overwritten().collect();
    assert_eq!(overwritten.len(), 1);
    assert_eq!(overwritten[0].extent, extent(1, 10));
    primary.ack(2, 1, last);
    assert!(primary.replies.contains(&reply));
    assert_eq!(primary.member.overwritten().count(), 0);
}

#[test]
fn a_member_that_is_copied_to_and_falls_behind_leaves_no_places() {
    let mut primary = Driven::start(1, &[1]);
    primary.report(2, 1);
    primary.tick();
    primary.swap();
    // Nothing was written, so it misses nothing: the end of the copy is its first entry.
    primary.tick();
    let data = bytes(1, 7);
    assert_eq!(primary.member.write_places(), 8);
    let mut request = 0;
    while primary.member.write_places() > 0 {
        request += 1;
        assert_eq!(primary.write(request, extent(request, 1), &data), Ok(()));
    }
    // 8 writes and 4 pieces.
    assert_eq!(request, 12);
    let refused = primary.write(13, extent(0, 1), &data);
    assert_eq!(refused, Err(Refusal::Busy));
    primary.ack(2, 2, 2);
    assert_eq!(primary.member.write_places(), 2);
    assert_eq!(primary.write(14, extent(0, 1), &data), Ok(()));
}

#[test]
fn a_silent_member_reads_the_store_ever_less_often() {
    let mut member = Driven::start(9, &[9]);
    let mut reads = Vec::new();
    // The store answers, and knows nothing new.
    let config = member.member.config().cloned().expect("known");
    for ms in 0..10_000 {
        member.tick();
        for (id, _) in std::mem::take(&mut member.asked) {
            reads.push(ms);
            let config = config.clone();
            member.member.handle_store_reply(member.now, id, config);
        }
    }
    // Beacons come every 20 ms; the longest pause is 32 times as long, or a quarter longer.
    assert!((10_000 / 800..40).contains(&reads.len()), "{reads:?}");
    assert!(
        reads.windows(2).all(|pair| pair[1] - pair[0] <= 801),
        "{reads:?}"
    );
    let is_early = reads[0] < 120 && reads[1] - reads[0] < 30;
    assert!(is_early, "{reads:?}");
}

#[test]
fn a_member_without_memory_pauses_ever_longer_before_it_returns() {
    let mut member = Driven::start(9, &[9]);
    member.member.base.medium.is_full = true;
    let mut reports = 0;
    let mut number = 0;
    for _ in 0..20_000 {
        member.tick();
        member.asked.clear();
        let reported = member.reports();
        reports += reported;
        if reported > 0 {
            // The primary opens the stream, sends a piece, and gives the member up.
            number += 1;
            let stream = StreamId {
                number,
                opened: Epoch(1),
            };
            let piece = EntryBody::Piece {
                extent: extent(0, 4),
                data: bytes(4, 1),
                stamp: Epoch(1),
                below: Lba(4),
                complete_through: Epoch(0),
            };
            let entry = Entry {
                stream,
                seq: Seq(1),
                settled: Seq(0),
                body: piece,
            };
            member.receive(9, 1, Body::Entry(entry));
        }
    }
    // Pauses of 20 ms, doubled up to 7 times, or a quarter shorter or longer.
    assert!((10..20).contains(&reports), "{reports}");
}
