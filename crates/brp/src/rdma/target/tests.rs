use std::sync::Arc;
use std::time::Duration;

use block::testing::{LateVolume, Lateness, VecVolume};
use block::{BlockSize, Blocks, Extent, Lba, Volume};
use session::RemoteBuffer;
use session::testing::{PostedWork, Work};

use super::*;
use crate::testing::{TestBackend, TestTarget};
use crate::wire::{Flags, LoginReply, LoginStatus, Operation, SessionId, Status, Step};

/// A raw host.
struct Peer {
    session: TargetSession<TestBackend>,
    backend: TestBackend,
    now: Instant,
    posted: PostedWork,
}

fn login() -> Login {
    let mut login = Login::new("nqn.h", "nqn.t", 1).expect("names");
    login.tags.set(4);
    login.features.set(Step::Parallel.features().0);
    login.hold_ms.set(1000);
    login.transfer_max_bytes.set(1 << 20);
    login.reply_data_max_bytes.set(1024);
    login
}

fn command(operation: Operation, tag: u16, sequence: u32, lba: u64, blocks: u64) -> Command {
    let extent = Extent::new(Lba(lba), Blocks(blocks));
    let mut command = Command::new(operation, Flags::default(), extent);
    command.tag.set(tag);
    command.sequence.set(sequence);
    command
}

fn buffer(address: u64, len_bytes: u32) -> RemoteBuffer {
    RemoteBuffer {
        address,
        key: RemoteKey(7),
        len_bytes,
    }
}

/// A command with these descriptors.
fn with(mut command: Command, buffers: &[RemoteBuffer]) -> Vec<u8> {
    command.descriptors.set(buffers.len() as u16);
    let mut message = command.as_bytes().to_vec();
    for &buffer in buffers {
        message.extend_from_slice(Descriptor::of(buffer).as_bytes());
    }
    message
}

/// A command with these data inside.
fn inside(mut command: Command, data: &[u8]) -> Vec<u8> {
    command.data_bytes.set(data.len() as u32);
    [command.as_bytes(), data].concat()
}

impl Peer {
    fn connected(target: &Arc<TestTarget>, login: &Login) -> (Self, LoginReply) {
        let now = Instant::now();
        let request = ConnectionRequest::new(4);
        let config = TargetConfig::default();
        let accepted = TargetSession::accept(now, config, request.as_bytes(), 4);
        let mut peer = Self {
            session: accepted.expect("a valid request").session,
            backend: TestBackend::new(target),
            now,
            posted: PostedWork::default(),
        };
        peer.send(login.as_bytes()).expect("a valid login");
        let [Work::Send { message, .. }] = &peer.posts()[..] else {
            panic!("LOGIN_REPLY");
        };
        let reply = LoginReply::read_from_bytes(message).expect("a reply");
        (peer, reply)
    }

    fn send(&mut self, message: &[u8]) -> Result<(), SessionError> {
        self.session
            .handle_message(self.now, message, None, &mut self.backend)
    }

    fn posts(&mut self) -> Vec<Work> {
        self.session
            .poll_transmit(self.now, &mut self.backend, &mut self.posted);
        self.posted.take()
    }

    fn read_in(&mut self, tag: u64, data: &[u8]) -> Result<(), SessionError> {
        self.session
            .handle_read(self.now, tag, data, &mut self.backend)
    }

    /// The only reply: its tag, its status and its data.
    fn reply(&mut self) -> (u16, Status, Vec<u8>) {
        let posts = self.posts();
        let [Work::Send { message, .. }] = &posts[..] else {
            panic!("one reply: {posts:?}");
        };
        let (reply, data) = Short::read_from_prefix(message).expect("16 bytes");
        let status = Status::from_number(reply.status()).expect("a known status");
        (reply.tag.get(), status, data.to_vec())
    }
}

fn vec_target() -> (Arc<VecVolume>, Arc<TestTarget>) {
    let volume = Arc::new(VecVolume::new(BlockSize::B512, 512));
    let target = TestTarget::new(Arc::clone(&volume) as Arc<dyn Volume>);
    (volume, target)
}

/// BRP-9.
#[test]
fn a_connection_request_is_checked_and_gets_a_receive_for_each_tag() {
    let accept = |request: &[u8], reads_max| {
        let config = TargetConfig::default();
        TargetSession::<TestBackend>::accept(Instant::now(), config, request, reads_max)
    };
    let accepted = accept(ConnectionRequest::new(1024).as_bytes(), 200).expect("valid");
    assert_eq!(
        accepted.reply.tags.get(),
        256,
        "no more than the target has"
    );
    assert_eq!((accepted.receives, accepted.receive_len_bytes), (260, 4128));
    assert_eq!(accepted.reply.receive_bytes.get(), 4128);
    assert_eq!((accepted.sends, accepted.reads), (320, 64));
    assert!(accept(ConnectionRequest::new(4).as_bytes(), 0).is_none());
    assert!(accept(ConnectionRequest::new(0).as_bytes(), 1).is_none());
    assert!(accept(b"BRP2", 1).is_none());
    assert!(accept(&[], 1).is_none());
}

/// BRP-5.
#[test]
fn a_login_gets_no_more_than_the_connection_has() {
    let (_, target) = vec_target();
    let mut wide = login();
    wide.tags.set(100);
    let (mut peer, reply) = Peer::connected(&target, &wide);
    assert_eq!(reply.tags.get(), 4, "the receives are for four");
    assert_eq!(reply.reply_data_max_bytes.get(), 1024);
    assert_eq!(reply.command_data_max_bytes.get(), 4096);
    // A session with more tags cannot go on here.
    let accepted = TargetSession::accept(
        peer.now,
        TargetConfig::default(),
        ConnectionRequest::new(2).as_bytes(),
        1,
    );
    peer.session.handle_close(peer.now, &mut peer.backend);
    let mut session = accepted.expect("valid").session;
    let mut backend = TestBackend::new(&target);
    let mut resumed = login();
    resumed.session = reply.session;
    let result = session.handle_message(peer.now, resumed.as_bytes(), None, &mut backend);
    let rejected = SessionError::Rejected(LoginStatus::Malformed);
    assert_eq!(result, Err(rejected));
    let (_, reply) = Peer::connected(&target, &resumed);
    assert_eq!(reply.session, resumed.session, "the record is kept");
    assert_ne!(reply.session, SessionId::NONE);
}

/// BRP-18: data are written before the reply, into the descriptors in their order, and nowhere
/// else.
#[test]
fn a_read_fills_its_descriptors_and_then_is_answered() {
    let (volume, target) = vec_target();
    volume.fill(0, &[3; 4096]);
    let (mut peer, _) = Peer::connected(&target, &login());
    let places = [buffer(0x1000, 1024), buffer(0x9000, 3072)];
    peer.send(&with(command(Operation::Read, 1, 1, 0, 8), &places))
        .expect("valid");
    let posts = peer.posts();
    let write = |to: RemoteBuffer| Work::Write {
        to,
        data: vec![3; to.len_bytes as usize],
    };
    let reply = Short::reply(1, 0, Status::Success, 4, 0);
    let send = Work::Send {
        message: reply.as_bytes().to_vec(),
        invalidate: None,
    };
    assert_eq!(posts, [write(places[0]), write(places[1]), send]);
}

/// BRP-19.
#[test]
fn the_reply_invalidates_the_key_of_the_only_descriptor_if_asked_to() {
    let (_, target) = vec_target();
    let (mut peer, _) = Peer::connected(&target, &login());
    let mut read = command(Operation::Read, 0, 1, 0, 2);
    read.flags.set(Flags::INVALIDATE.0);
    let mut invalidated = |message: &[u8]| {
        peer.send(message).expect("valid");
        match peer.posts().pop() {
            Some(Work::Send { invalidate, .. }) => invalidate,
            other => panic!("a reply: {other:?}"),
        }
    };
    let one = [buffer(0, 1024)];
    assert_eq!(invalidated(&with(read, &one)), Some(RemoteKey(7)));
    read.sequence.set(2);
    let two = [buffer(0, 512), buffer(0x1000, 512)];
    assert_eq!(invalidated(&with(read, &two)), None);
    assert_eq!(
        invalidated(&with(command(Operation::Read, 0, 3, 0, 2), &one)),
        None
    );
}

/// BRP-13, BRP-18.
#[test]
fn short_data_travel_inside() {
    let (volume, target) = vec_target();
    let (mut peer, _) = Peer::connected(&target, &login());
    peer.send(&inside(command(Operation::Write, 0, 1, 4, 2), &[5; 1024]))
        .expect("valid");
    assert_eq!(peer.reply(), (0, Status::Success, vec![]));
    assert_eq!(volume.contents()[2048..3072], [5; 1024]);
    peer.send(command(Operation::Read, 0, 2, 4, 2).as_bytes())
        .expect("valid");
    assert_eq!(peer.reply(), (0, Status::Success, vec![5; 1024]));
}

/// BRP-13: the data of a write are read from its descriptors, in pieces.
#[test]
fn a_write_reads_its_descriptors() {
    let (volume, target) = vec_target();
    let (mut peer, _) = Peer::connected(&target, &login());
    peer.posted.piece_max_bytes = 4096;
    let places = [buffer(0x1000, 512), buffer(0x9000, 7680)];
    peer.send(&with(command(Operation::Write, 2, 1, 0, 16), &places))
        .expect("valid");
    let posts = peer.posts();
    let froms: Vec<RemoteBuffer> = (posts.iter())
        .map(|work| match work {
            Work::Read { tag: 2, from } => *from,
            other => panic!("a read: {other:?}"),
        })
        .collect();
    let expected = [
        buffer(0x1000, 512),
        buffer(0x9000, 4096),
        buffer(0xA000, 3584),
    ];
    assert_eq!(froms, expected);
    for from in expected {
        assert!(peer.posts().is_empty(), "nothing before all data are there");
        let data = vec![from.len_bytes.to_le_bytes()[1]; from.len_bytes as usize];
        peer.read_in(2, &data).expect("asked for");
    }
    assert_eq!(peer.reply(), (2, Status::Success, vec![]));
    assert_eq!(volume.contents()[..512], [2; 512]);
    assert_eq!(volume.contents()[4608..8192], [14; 3584]);
    let late = peer.read_in(2, &[0; 512]);
    assert_eq!(late, Err(Violation::UnexpectedData.into()));
}

/// BRP-13, BRP-14, BRP-15: commands whose data are not where they may be have no effect and post
/// nothing.
#[test]
fn a_command_with_bad_descriptors_gets_a_status() {
    let (volume, target) = vec_target();
    let (mut peer, _) = Peer::connected(&target, &login());
    let high = u64::MAX - 100;
    let read = |sequence| command(Operation::Read, 0, sequence, 0, 2);
    let write = |sequence| command(Operation::Write, 0, sequence, 0, 2);
    let cases = [
        with(read(1), &[buffer(0, 512)]),
        with(read(2), &[buffer(0, 2048)]),
        with(read(3), &[buffer(0, 500), buffer(0, 524)]),
        with(read(4), &[buffer(0, 1024), buffer(0, 0)]),
        with(read(5), &[buffer(high, 1024)]),
        with(write(6), &[buffer(0, 0xFFFF_FE00), buffer(0, 1024)]),
        with(command(Operation::Flush, 0, 7, 0, 0), &[buffer(0, 512)]),
        with(command(Operation::Discard, 0, 8, 0, 2), &[buffer(0, 1024)]),
        inside(write(9), &[1; 512]),
        inside(read(10), &[1; 1024]),
        write(11).as_bytes().to_vec(),
        // More than a reply may carry.
        command(Operation::Read, 0, 12, 0, 3).as_bytes().to_vec(),
    ];
    for message in cases {
        peer.send(&message).expect("well formed");
        assert_eq!(peer.reply(), (0, Status::Invalid, vec![]), "{message:?}");
    }
    assert!(volume.contents().iter().all(|&byte| byte == 0));
}

/// BRP-3, BRP-10, BRP-11.
#[test]
fn what_breaks_the_protocol_ends_the_connection_with_a_fault() {
    let (_, target) = vec_target();
    let read = command(Operation::Read, 0, 1, 0, 2);
    let mut too_long = read;
    too_long.data_bytes.set(512);
    let both = {
        let mut both = read;
        both.data_bytes.set(512);
        let mut message = with(both, &[buffer(0, 1024)]);
        message.extend([0; 512]);
        message
    };
    let cases: [(Violation, Vec<u8>); 11] = [
        (Violation::Length, vec![]),
        (Violation::Kind, vec![0x77; 16]),
        (Violation::Kind, Short::data(0, 0).as_bytes().to_vec()),
        (Violation::Kind, Short::replies(1, 16).as_bytes().to_vec()),
        (Violation::Length, read.as_bytes()[..31].to_vec()),
        (Violation::Length, too_long.as_bytes().to_vec()),
        (Violation::Length, with(read, &[buffer(0, 256); 5])),
        (Violation::Length, both),
        (Violation::Length, inside(read, &[0; 4608])),
        (
            Violation::Length,
            Short::new(Kind::Ping).as_bytes().repeat(2),
        ),
        (
            Violation::Tag,
            with(command(Operation::Read, 4, 1, 0, 2), &[buffer(0, 1024)]),
        ),
    ];
    for (violation, message) in cases {
        let (mut peer, _) = Peer::connected(&target, &login());
        assert_eq!(peer.send(&message), Err(violation.into()), "{message:?}");
        let fault = Work::Send {
            message: Short::fault(violation).as_bytes().to_vec(),
            invalidate: None,
        };
        assert_eq!(peer.posts(), [fault]);
        assert!(peer.session.is_closing() && !peer.session.wants_transmit());
    }
    let (mut peer, _) = Peer::connected(&target, &login());
    let unasked = peer.read_in(0, &[0; 512]);
    assert_eq!(unasked, Err(Violation::UnexpectedData.into()));
}

/// BRP-11: a second command with a tag does not change where the data of the first are.
#[test]
fn a_tag_in_use_is_a_violation() {
    let (_, target) = vec_target();
    let (mut peer, _) = Peer::connected(&target, &login());
    let write = |sequence| command(Operation::Write, 0, sequence, 0, 2);
    peer.send(&with(write(1), &[buffer(0, 1024)]))
        .expect("valid");
    let second = peer.send(&with(write(2), &[buffer(0x5000, 1024)]));
    assert_eq!(second, Err(Violation::TagInUse.into()));
}

/// BRP-22: a command that waits for its volume is answered, and its data are not read.
#[test]
fn an_abort_answers_a_command_that_waits() {
    let volume = Arc::new(LateVolume::new(BlockSize::B512, 512));
    let target = TestTarget::new(Arc::clone(&volume) as Arc<dyn Volume>);
    let (mut peer, _) = Peer::connected(&target, &login());
    volume.set_lateness(Lateness::Filling);
    peer.send(&with(
        command(Operation::Write, 0, 1, 0, 2),
        &[buffer(0, 1024)],
    ))
    .expect("valid");
    assert!(peer.posts().is_empty());
    peer.send(Short::abort(0, 1).as_bytes()).expect("valid");
    assert_eq!(peer.reply(), (0, Status::Aborted, vec![]));
}

/// BRP-21, BRP-25, BRP-26.
#[test]
fn a_ping_is_answered_and_a_silent_host_is_disconnected() {
    let (_, target) = vec_target();
    let mut alive = login();
    alive.keep_alive_ms.set(100);
    let (mut peer, _) = Peer::connected(&target, &alive);
    let ping = Short::new(Kind::Ping);
    peer.now += Duration::from_millis(150);
    peer.send(ping.as_bytes()).expect("valid");
    let pong = Work::Send {
        message: Short::pong(&ping).as_bytes().to_vec(),
        invalidate: None,
    };
    assert_eq!(peer.posts(), [pong]);
    let due = peer.session.poll_timeout().expect("silence");
    assert_eq!(due, peer.now + Duration::from_millis(200));
    let result = peer.session.handle_timeout(due, &mut peer.backend);
    assert_eq!(result, Err(Violation::Silence.into()));
}
