use std::sync::Arc;
use std::time::{Duration, Instant};

use block::testing::{LateVolume, Lateness, VecVolume};
use block::{Admission, BlockSize, Blocks, Extent, Lba, Status as VolumeStatus, Volume};
use session::{Segment, SendList};
use zerocopy::FromBytes;

use super::*;
use crate::testing::{TestBackend, TestTarget};
use crate::wire::{
    EventCode, Flags, Login, LoginReply, LoginStatus, Operation, ReplyFlags, SessionId, Status,
};

const BLOCKS: u64 = 512;

/// A raw host.
struct Peer {
    session: TargetSession<TestBackend>,
    backend: TestBackend,
    now: Instant,
}

/// What came from the target: headers, with the data behind them.
type Messages = Vec<(Vec<u8>, Vec<u8>)>;

/// What is wrong with a login.
type Change = &'static dyn Fn(&mut Login);

fn login() -> Login {
    let mut login = Login::new("nqn.h", "nqn.t", 1).expect("names");
    login.tags.set(4);
    login.features.set(1);
    login.hold_ms.set(1000);
    login.transfer_max_bytes.set(1 << 20);
    login
}

fn command(operation: Operation, tag: u16, sequence: u32, lba: u64, blocks: u64) -> Command {
    let extent = Extent::new(Lba(lba), Blocks(blocks));
    let mut command = Command::new(operation, Flags::default(), extent);
    command.tag.set(tag);
    command.sequence.set(sequence);
    command
}

impl Peer {
    fn unconnected(target: &Arc<TestTarget>) -> Self {
        let now = Instant::now();
        Self {
            session: TargetSession::new(now, TargetConfig::default()),
            backend: TestBackend::new(target),
            now,
        }
    }

    fn connected(target: &Arc<TestTarget>, login: &Login) -> (Self, LoginReply) {
        let mut peer = Self::unconnected(target);
        peer.send(&[login.as_bytes()]).expect("a valid login");
        let messages = peer.receive();
        let reply = LoginReply::read_from_bytes(&messages[0].0).expect("a reply");
        (peer, reply)
    }

    fn send(&mut self, parts: &[&[u8]]) -> Result<(), SessionError> {
        let bytes = parts.concat();
        self.session
            .handle_bytes(self.now, &bytes, &mut self.backend)
    }

    fn write(
        &mut self,
        tag: u16,
        sequence: u32,
        lba: u64,
        data: &[u8],
    ) -> Result<(), SessionError> {
        let mut command = command(
            Operation::Write,
            tag,
            sequence,
            lba,
            data.len() as u64 / 512,
        );
        command.data_bytes.set(data.len() as u32);
        self.send(&[command.as_bytes(), data])
    }

    fn receive(&mut self) -> Messages {
        let mut bytes = Vec::new();
        let mut out = SendList::with_capacity(TargetSession::<TestBackend>::SEND_LIST_MIN_BYTES);
        while self.session.wants_transmit() {
            self.session
                .poll_transmit(self.now, &mut self.backend, &mut out);
            for segment in out.segments() {
                match segment {
                    Segment::Bytes(part) => bytes.extend_from_slice(part),
                    Segment::Place(place) => bytes.extend(vec![0xEE; place.range.len as usize]),
                }
            }
            out.consume(out.len_bytes());
        }
        let mut messages = Vec::new();
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let kind = Kind::from_byte(rest[0]).expect("a known kind");
            let header = take(&mut rest, kind.header_bytes()).to_vec();
            let data_bytes = match kind {
                Kind::Reply => Short::read_from_bytes(&header)
                    .expect("16 bytes")
                    .data_bytes
                    .get(),
                _ => 0,
            };
            let data = take(&mut rest, data_bytes as usize).to_vec();
            messages.push((header, data));
        }
        messages
    }

    /// Statuses of the replies that have come, by tag.
    fn replies(&mut self) -> Vec<(u16, Status)> {
        let messages = self.receive();
        let replies = messages
            .iter()
            .filter(|(header, _)| header[0] == Kind::Reply as u8);
        let reply = |(header, _): &(Vec<u8>, Vec<u8>)| {
            let reply = Short::read_from_bytes(header).expect("16 bytes");
            let status = Status::from_number(reply.status()).expect("a known status");
            (reply.tag.get(), status)
        };
        replies.map(reply).collect()
    }
}

fn vec_target() -> (Arc<VecVolume>, Arc<TestTarget>) {
    let volume = Arc::new(VecVolume::new(BlockSize::B512, BLOCKS));
    let target = TestTarget::new(Arc::clone(&volume) as Arc<dyn Volume>);
    (volume, target)
}

fn late_target() -> (Arc<LateVolume>, Arc<TestTarget>) {
    let volume = Arc::new(LateVolume::new(BlockSize::B512, BLOCKS));
    let target = TestTarget::new(Arc::clone(&volume) as Arc<dyn Volume>);
    (volume, target)
}

fn resumed(session: SessionId) -> Login {
    Login { session, ..login() }
}

/// BRP-3, BRP-10.
#[test]
fn a_connection_begins_with_a_login_and_has_one() {
    let (_, target) = vec_target();
    for message in [
        command(Operation::Flush, 0, 1, 0, 0).as_bytes(),
        Short::new(Kind::Ping).as_bytes(),
        Short::data(0, 1).as_bytes(),
    ] {
        let mut peer = Peer::unconnected(&target);
        assert_eq!(peer.send(&[message]), Err(Violation::Login.into()));
        let messages = peer.receive();
        assert_eq!(messages[0].0, Short::fault(Violation::Login).as_bytes());
    }
    let (mut peer, _) = Peer::connected(&target, &login());
    let again = peer.send(&[login().as_bytes()]);
    assert_eq!(again, Err(Violation::Login.into()));
    let mut late = Peer::unconnected(&target);
    let due = late.session.poll_timeout().expect("a deadline");
    assert_eq!(due, late.now + Duration::from_secs(10));
    let ended = late.session.handle_timeout(due, &mut late.backend);
    assert_eq!(ended, Err(SessionError::LoginTimeout));
}

/// BRP-4, BRP-5, BRP-7, BRP-8.
#[test]
fn a_login_is_checked_and_grants_no_more_than_was_asked_for() {
    let (_, target) = vec_target();
    let cases: [(LoginStatus, Change); 8] = [
        (LoginStatus::Malformed, &|it| it.magic = *b"BRP2"),
        (LoginStatus::Version, &|it| it.version.set(0)),
        (LoginStatus::Malformed, &|it| it.tags.set(0)),
        (LoginStatus::Malformed, &|it| it.tags.set(1025)),
        (LoginStatus::Malformed, &|it| {
            it.transfer_max_bytes.set(4095);
        }),
        (LoginStatus::Malformed, &|it| {
            it.host = FromBytes::read_from_bytes(&[0; 224]).expect("224 bytes");
        }),
        (LoginStatus::NoUnit, &|it| it.unit.set(2)),
        (LoginStatus::NoSession, &|it| {
            it.session = SessionId([9; 16]);
        }),
    ];
    for (status, change) in cases {
        let mut login = login();
        change(&mut login);
        let mut peer = Peer::unconnected(&target);
        assert_eq!(
            peer.send(&[login.as_bytes()]),
            Err(SessionError::Rejected(status))
        );
        let reply = LoginReply::rejected(status);
        assert_eq!(peer.receive()[0].0, reply.as_bytes());
        assert!(peer.session.is_closing());
    }
    let mut more = login();
    more.tags.set(1024);
    more.features.set(u32::MAX);
    more.version.set(7);
    more.hold_ms.set(u32::MAX);
    let (_, reply) = Peer::connected(&target, &more);
    assert_eq!(
        (reply.version.get(), reply.tags.get(), reply.features.get()),
        (1, 256, 0b1_0011)
    );
    assert_eq!((reply.hold_ms.get(), reply.blocks.get()), (120_000, BLOCKS));
    let (_, reply) = Peer::connected(&target, &login());
    assert_eq!(
        (reply.tags.get(), reply.credits.get(), reply.hold_ms.get()),
        (4, 4, 1000)
    );
    assert_ne!(reply.session, SessionId::NONE);
}

/// A write of a block of sevens.
fn write(tag: u16, sequence: u32, lba: u64) -> Vec<u8> {
    let mut write = command(Operation::Write, tag, sequence, lba, 1);
    write.data_bytes.set(512);
    [write.as_bytes(), &[7; 512]].concat()
}

/// Violations, each with what a host sends before and, last, what breaks the protocol.
fn violations() -> [(Violation, Vec<Vec<u8>>); 12] {
    let mut long = command(Operation::Write, 0, 1, 0, 8);
    long.data_bytes.set(65_537);
    let mut with_descriptors = command(Operation::Read, 0, 1, 0, 8);
    with_descriptors.descriptors.set(1);
    let mut ping = Short::new(Kind::Ping);
    ping.data_bytes.set(1);
    let big = command(Operation::Write, 0, 1, 0, 256);
    [
        (Violation::Kind, vec![vec![0x15; 16]]),
        (
            Violation::Kind,
            vec![
                Short::reply(0, 0, Status::Success, 1, 0)
                    .as_bytes()
                    .to_vec(),
            ],
        ),
        (Violation::Length, vec![long.as_bytes().to_vec()]),
        (
            Violation::Length,
            vec![with_descriptors.as_bytes().to_vec()],
        ),
        (Violation::Length, vec![ping.as_bytes().to_vec()]),
        (
            Violation::Tag,
            vec![command(Operation::Flush, 4, 1, 0, 0).as_bytes().to_vec()],
        ),
        (
            Violation::TagInUse,
            vec![big.as_bytes().to_vec(), write(0, 2, 0)],
        ),
        (Violation::OldSequence, vec![write(0, 0, 0)]),
        (Violation::OldSequence, vec![write(0, 5, 0), write(0, 4, 0)]),
        (
            Violation::ReplayDiffers,
            vec![write(0, 5, 0), write(0, 5, 1)],
        ),
        (
            Violation::UnexpectedData,
            vec![Short::data(0, 8).as_bytes().to_vec()],
        ),
        (
            Violation::UnexpectedData,
            vec![
                big.as_bytes().to_vec(),
                Short::data(0, 256 * 512 + 1).as_bytes().to_vec(),
            ],
        ),
    ]
}

/// BRP-10, BRP-11, BRP-12, BRP-13, BRP-16, BRP-31.
#[test]
fn what_breaks_the_protocol_ends_the_connection_with_a_fault() {
    let (volume, target) = vec_target();
    for (violation, inputs) in violations() {
        let (mut peer, _) = Peer::connected(&target, &login());
        let (last, before) = inputs.split_last().expect("inputs");
        for input in before {
            peer.send(&[input]).expect("valid");
            peer.receive();
        }
        assert_eq!(peer.send(&[last]), Err(violation.into()), "{violation}");
        let messages = peer.receive();
        let fault = Short::fault(violation);
        assert_eq!(
            messages.last().map(|(header, _)| &header[..]),
            Some(fault.as_bytes())
        );
        let contents = volume.contents();
        peer.send(&[&write(1, 9, 3)]).expect("it is ignored");
        assert_eq!(volume.contents(), contents, "nothing is executed any more");
    }
}

/// BRP-14.
#[test]
fn an_invalid_command_gets_a_status_and_its_data_are_dropped() {
    let (volume, target) = vec_target();
    let (mut peer, _) = Peer::connected(&target, &login());
    let mut short = command(Operation::Write, 0, 1, 0, 2);
    short.data_bytes.set(512);
    let mut read = command(Operation::Read, 0, 4, 0, 1);
    read.data_bytes.set(16);
    let mut unknown = command(Operation::Flush, 0, 5, 0, 0);
    unknown.operation = 0x40;
    let cases = [
        (short, 512, Status::Invalid),
        (
            command(Operation::Read, 0, 2, BLOCKS, 1),
            0,
            Status::LbaOutOfRange,
        ),
        (
            command(Operation::Read, 0, 3, u64::MAX, 2),
            0,
            Status::LbaOutOfRange,
        ),
        (read, 16, Status::Invalid),
        (unknown, 0, Status::Unsupported),
        (command(Operation::Flush, 0, 6, 1, 0), 0, Status::Invalid),
        (command(Operation::Discard, 0, 7, 0, 0), 0, Status::Invalid),
        (command(Operation::Flush, 0, 8, 0, 1), 0, Status::Invalid),
        (
            command(Operation::CompareAndWrite, 0, 9, 0, 129),
            0,
            Status::Invalid,
        ),
    ];
    let before = volume.contents();
    for (command, data_bytes, status) in cases {
        let data = vec![9; data_bytes];
        peer.send(&[command.as_bytes(), &data])
            .expect("no violation");
        assert_eq!(peer.replies(), [(0, status)], "{command:?}");
    }
    assert_eq!(volume.contents(), before);
    volume.set_read_only(true);
    peer.write(1, 1, 0, &[1; 512]).expect("no violation");
    assert_eq!(peer.replies(), [(1, Status::WriteProtected)]);
    volume.set_read_only(false);
    peer.backend.permission.write = Err(Status::Conflict);
    peer.write(1, 2, 0, &[1; 512]).expect("no violation");
    assert_eq!(peer.replies(), [(1, Status::Conflict)]);
    assert_eq!(volume.contents(), before);
}

/// BRP-30: a write that was answered is not executed again, whatever has been written since.
#[test]
fn a_replay_of_an_answered_command_gets_its_reply_and_has_no_effect() {
    let (volume, target) = vec_target();
    let (mut peer, reply) = Peer::connected(&target, &login());
    peer.write(0, 1, 0, &[1; 512]).expect("valid");
    // The reply is lost with the connection.
    peer.session.handle_close(peer.now, &mut peer.backend);
    volume.fill(0, &[2; 512]);
    let (mut next, again) = Peer::connected(&target, &resumed(reply.session));
    assert_eq!(again.flags & ReplyFlags::RESUMED.0, 1);
    assert_eq!(again.session, reply.session);
    next.write(0, 1, 0, &[1; 512]).expect("a replay");
    assert_eq!(next.replies(), [(0, Status::Success)]);
    assert_eq!(volume.block(0), [2; 512]);
    next.write(0, 2, 0, &[3; 512]).expect("a new command");
    assert_eq!(next.replies(), [(0, Status::Success)]);
    assert_eq!(volume.block(0), [3; 512]);
}

/// BRP-30: a write that was cut off in its data goes on where it was.
#[test]
fn a_replay_of_a_command_that_was_executed_in_part_executes_the_rest() {
    let (volume, target) = vec_target();
    let (mut peer, reply) = Peer::connected(&target, &login());
    let data: Vec<u8> = (0..8 * 512_usize).map(|at| (at / 512 + 1) as u8).collect();
    let mut write = command(Operation::Write, 3, 1, 10, 8);
    write.data_bytes.set(8 * 512);
    peer.send(&[write.as_bytes(), &data[..1300]])
        .expect("valid");
    peer.session.handle_close(peer.now, &mut peer.backend);
    assert_eq!((volume.block(11)[0], volume.block(12)[0]), (2, 0));
    volume.fill(10 * 512, &[0xAA; 1024]);
    let (mut next, _) = Peer::connected(&target, &resumed(reply.session));
    for piece in [write.as_bytes(), &data].concat().chunks(700) {
        next.send(&[piece]).expect("a replay");
    }
    assert_eq!(next.replies(), [(3, Status::Success)]);
    let starts: Vec<u8> = (10..18).map(|lba| volume.block(lba)[0]).collect();
    assert_eq!(
        starts,
        [0xAA, 0xAA, 3, 4, 5, 6, 7, 8],
        "the first two blocks are not written again"
    );
    // The same with data that are asked for.
    let big = command(Operation::Write, 1, 1, 100, 200);
    let data = vec![5; 200 * 512];
    next.send(&[big.as_bytes()]).expect("valid");
    assert_eq!(next.receive()[0].0, Short::pull(1, 0, 200 * 512).as_bytes());
    let part = Short::data(1, 200 * 512);
    next.send(&[part.as_bytes(), &data[..150 * 512 + 7]])
        .expect("valid");
    next.session.handle_close(next.now, &mut next.backend);
    volume.fill(100 * 512, &[6; 512]);
    let (mut last, _) = Peer::connected(&target, &resumed(reply.session));
    last.send(&[big.as_bytes()]).expect("a replay");
    assert_eq!(
        last.receive()[0].0,
        Short::pull(1, 150 * 512, 50 * 512).as_bytes()
    );
    let rest = Short::data(1, 50 * 512);
    last.send(&[rest.as_bytes(), &data[150 * 512..]])
        .expect("valid");
    assert_eq!(last.replies(), [(1, Status::Success)]);
    assert_eq!((volume.block(100)[0], volume.block(299)[0]), (6, 5));
}

/// BRP-30: a command whose effects were not known to be safe is not executed again, but flushed.
#[test]
fn a_replay_of_an_executed_command_makes_its_effects_safe() {
    let (volume, target) = late_target();
    volume.set_lateness(Lateness::Settling);
    let (mut peer, reply) = Peer::connected(&target, &login());
    peer.write(0, 1, 4, &[1; 512]).expect("valid");
    assert_eq!(peer.replies(), [], "it settles");
    peer.session.handle_close(peer.now, &mut peer.backend);
    assert_eq!(volume.leases(), 0);
    let (mut other, _) = Peer::connected(&target, &login());
    other.write(0, 1, 4, &[2; 512]).expect("valid");
    let (mut next, _) = Peer::connected(&target, &resumed(reply.session));
    next.write(0, 1, 4, &[1; 512]).expect("a replay");
    assert_eq!(next.replies(), []);
    for ticket in volume.waiting() {
        let completion = volume.complete(ticket, Ok(()));
        for peer in [&mut other, &mut next] {
            let handled = peer
                .session
                .handle_completion(peer.now, completion, &mut peer.backend);
            handled.expect("completions end no connection");
        }
    }
    assert_eq!(next.replies(), [(0, Status::Success)]);
    assert_eq!(other.replies(), [(0, Status::Success)]);
    volume.set_lateness(Lateness::Filling);
    let (mut reader, _) = Peer::connected(&target, &login());
    reader
        .send(&[command(Operation::Read, 0, 1, 4, 1).as_bytes()])
        .expect("valid");
    let completion = volume.complete(volume.waiting()[0], Ok(()));
    let handled = reader
        .session
        .handle_completion(reader.now, completion, &mut reader.backend);
    handled.expect("completions end no connection");
    assert_eq!(
        reader.receive()[0].1,
        [2; 512],
        "the write of the other session stands"
    );
}

/// BRP-28, BRP-29.
#[test]
fn a_login_to_a_session_waits_until_its_old_connection_has_ended() {
    let (_, target) = vec_target();
    let (mut old, reply) = Peer::connected(&target, &login());
    let mut new = Peer::unconnected(&target);
    new.send(&[resumed(reply.session).as_bytes()])
        .expect("it waits");
    assert!(new.receive().is_empty());
    let early = new.send(&[command(Operation::Flush, 0, 1, 0, 0).as_bytes()]);
    assert_eq!(early, Err(Violation::Login.into()));
    let mut new = Peer::unconnected(&target);
    new.send(&[resumed(reply.session).as_bytes()])
        .expect("it waits");
    old.session.handle_close(old.now, &mut old.backend);
    new.session
        .handle_wake(new.now, &mut new.backend)
        .expect("the session is free");
    assert_eq!(new.receive()[0].0[..4], [2, 1, 0, 0]);
    new.session.handle_close(new.now, &mut new.backend);
    let mut stranger = resumed(reply.session);
    stranger.host = crate::wire::NameField::new("nqn.other").expect("a name");
    let mut peer = Peer::unconnected(&target);
    let rejected = peer.send(&[stranger.as_bytes()]);
    assert_eq!(
        rejected,
        Err(SessionError::Rejected(LoginStatus::NoSession))
    );
}

/// BRP-27.
#[test]
fn a_logout_ends_the_session_and_its_record() {
    let (_, target) = vec_target();
    let (mut peer, _) = Peer::connected(&target, &login());
    assert_eq!(target.sessions(), 1);
    peer.send(&[Short::new(Kind::Logout).as_bytes()])
        .expect("valid");
    assert!(peer.session.is_closing());
    peer.session.handle_close(peer.now, &mut peer.backend);
    assert_eq!(target.sessions(), 0);
}

/// BRP-35.
#[test]
fn replies_come_in_the_order_of_commands_unless_any_order_was_granted() {
    for (features, order) in [(0, [0, 1, 2]), (1, [2, 0, 1])] {
        let (volume, target) = late_target();
        volume.set_lateness(Lateness::Settling);
        let mut login = login();
        login.features.set(features);
        let (mut peer, reply) = Peer::connected(&target, &login);
        assert_eq!(reply.features.get(), features);
        peer.write(0, 1, 0, &[1; 512]).expect("valid");
        peer.write(1, 1, 1, &[1; 512]).expect("valid");
        peer.send(&[command(Operation::Read, 2, 1, BLOCKS, 1).as_bytes()])
            .expect("valid");
        let mut order_of_replies = peer.replies();
        let mut waiting = volume.waiting();
        waiting.sort_by_key(|ticket| ticket.slot);
        for ticket in waiting {
            let completion = volume.complete(ticket, Ok(()));
            let handled = peer
                .session
                .handle_completion(peer.now, completion, &mut peer.backend);
            handled.expect("completions end no connection");
            order_of_replies.extend(peer.replies());
        }
        let tags: Vec<u16> = order_of_replies.iter().map(|(tag, _)| *tag).collect();
        assert_eq!(tags, order);
    }
}

/// BRP-22, BRP-23.
#[test]
fn an_abort_answers_a_command_that_waits() {
    for lateness in [Lateness::Filling, Lateness::Settling] {
        let (volume, target) = late_target();
        volume.set_lateness(lateness);
        let (mut peer, _) = Peer::connected(&target, &login());
        peer.write(0, 3, 0, &[1; 512]).expect("valid");
        assert_eq!(peer.replies(), []);
        for (tag, sequence) in [(0, 2), (1, 3), (9, 3)] {
            peer.send(&[Short::abort(tag, sequence).as_bytes()])
                .expect("valid");
            assert_eq!(peer.replies(), [], "no such command");
        }
        let ticket = volume.waiting()[0];
        peer.send(&[Short::abort(0, 3).as_bytes()]).expect("valid");
        assert_eq!(peer.replies(), [(0, Status::Aborted)]);
        assert_eq!((volume.leases(), peer.backend.charged_bytes), (0, 0));
        let late = block::Completion {
            ticket,
            result: Ok(()),
        };
        let handled = peer
            .session
            .handle_completion(peer.now, late, &mut peer.backend);
        handled.expect("a late answer is ignored");
        assert_eq!(peer.replies(), []);
    }
}

/// BRP-21.
#[test]
fn credits_fall_when_memory_for_waiting_data_is_short_and_recover() {
    let (volume, target) = late_target();
    volume.set_lateness(Lateness::Filling);
    let (mut peer, _) = Peer::connected(&target, &login());
    peer.backend.charged_max_bytes = 0;
    let mut credits = Vec::new();
    for sequence in 1..4 {
        peer.write(0, sequence, 0, &[1; 512]).expect("valid");
        let reply = Short::read_from_bytes(&peer.receive()[0].0).expect("16 bytes");
        credits.push((reply.status(), reply.credits()));
    }
    let busy = Status::Busy as u16;
    assert_eq!(credits, [(busy, 2), (busy, 1), (busy, 1)]);
    peer.backend.charged_max_bytes = 1 << 20;
    peer.write(0, 9, 0, &[1; 512]).expect("valid");
    let completion = volume.complete(volume.waiting()[0], Ok(()));
    let handled = peer
        .session
        .handle_completion(peer.now, completion, &mut peer.backend);
    handled.expect("completions end no connection");
    for ticket in volume.waiting() {
        let completion = volume.complete(ticket, Ok(()));
        let handled = peer
            .session
            .handle_completion(peer.now, completion, &mut peer.backend);
        handled.expect("completions end no connection");
    }
    let reply = Short::read_from_bytes(&peer.receive()[0].0).expect("16 bytes");
    assert_eq!((reply.status(), reply.credits()), (0, 2));
}

/// Data that are kept until a command has them all are charged, and the command fails if there is
/// no room.
#[test]
fn data_of_compare_and_write_are_charged_until_it_is_executed() {
    let (_, target) = vec_target();
    let (mut peer, _) = Peer::connected(&target, &login());
    let pulled = |tag, sequence| command(Operation::CompareAndWrite, tag, sequence, 0, 2);
    peer.send(&[pulled(0, 1).as_bytes()]).expect("valid");
    peer.receive();
    assert_eq!(peer.backend.charged_bytes, 2048);
    peer.backend.charged_max_bytes = 3000;
    peer.send(&[pulled(1, 1).as_bytes()]).expect("valid");
    assert_eq!(peer.replies(), [(1, Status::Busy)]);
    peer.send(&[Short::data(0, 2048).as_bytes(), &[0; 2048]])
        .expect("asked for");
    assert_eq!(peer.replies(), [(0, Status::Success)]);
    assert_eq!(peer.backend.charged_bytes, 0);
}

/// BRP-24.
#[test]
fn changes_of_the_unit_are_events() {
    let (volume, target) = vec_target();
    let (mut peer, _) = Peer::connected(&target, &login());
    let wake = |peer: &mut Peer| {
        peer.session
            .handle_wake(peer.now, &mut peer.backend)
            .expect("good standing");
        peer.receive()
            .into_iter()
            .map(|(header, _)| header)
            .collect::<Vec<_>>()
    };
    assert!(wake(&mut peer).is_empty());
    volume.resize(BLOCKS * 2);
    let resized = Short::event(EventCode::Resized, BLOCKS * 2);
    assert_eq!(wake(&mut peer), [resized.as_bytes()]);
    volume.set_read_only(true);
    assert_eq!(
        wake(&mut peer),
        [Short::event(EventCode::ReadOnly, 0).as_bytes()]
    );
    volume.set_read_only(false);
    assert_eq!(
        wake(&mut peer),
        [Short::event(EventCode::Writable, 0).as_bytes()]
    );
    target.set_unit(None);
    assert_eq!(
        wake(&mut peer),
        [Short::event(EventCode::Removed, 0).as_bytes()]
    );
    peer.write(0, 1, 0, &[1; 512]).expect("no violation");
    assert_eq!(peer.replies(), [(0, Status::Gone)]);
    assert!(
        !peer.session.may_close(&mut peer.backend),
        "the host is told first"
    );
    assert_eq!(
        peer.receive()[0].0,
        Short::event(EventCode::Shutdown, 0).as_bytes()
    );
    assert!(peer.session.may_close(&mut peer.backend));
}

/// BRP-25, BRP-26.
#[test]
fn a_silent_host_is_disconnected_and_a_ping_is_answered() {
    let (_, target) = vec_target();
    let mut login = login();
    login.keep_alive_ms.set(500);
    let (mut peer, _) = Peer::connected(&target, &login);
    peer.now += Duration::from_millis(900);
    let mut ping = Short::new(Kind::Ping);
    ping.rest = *b"whatever";
    peer.send(&[ping.as_bytes()]).expect("valid");
    assert_eq!(peer.receive()[0].0, Short::pong(&ping).as_bytes());
    let due = peer.session.poll_timeout().expect("keep-alive");
    assert_eq!(due, peer.now + Duration::from_secs(1));
    let early = peer
        .session
        .handle_timeout(peer.now + Duration::from_millis(999), &mut peer.backend);
    early.expect("not yet");
    let ended = peer.session.handle_timeout(due, &mut peer.backend);
    assert_eq!(ended, Err(Violation::Silence.into()));
    assert_eq!(target.sessions(), 1, "the session is kept");
}

#[test]
fn a_delayed_command_is_answered_when_it_is_due() {
    let (volume, target) = vec_target();
    let (mut peer, _) = Peer::connected(&target, &login());
    let until = peer.now + Duration::from_millis(5);
    volume.set_admission(Admission::NotBefore(until));
    peer.write(0, 1, 0, &[1; 512]).expect("valid");
    assert_eq!(peer.replies(), []);
    assert_eq!(peer.session.poll_timeout(), Some(until));
    peer.session
        .handle_timeout(until, &mut peer.backend)
        .expect("due");
    assert_eq!(peer.replies(), [(0, Status::Success)]);
    volume.set_admission(Admission::Fail(VolumeStatus::WriteError, None));
    peer.write(0, 2, 0, &[2; 512]).expect("valid");
    assert_eq!(peer.replies(), [(0, Status::WriteError)]);
}
