use std::collections::VecDeque;

use block::{Blocks, Extent, Lba};
use session::RemoteBuffer;

use super::*;
use crate::host;
use crate::wire::{LoginStatus, SessionId, Step};

/// A queue pair and memory that write down what they are asked for.
#[derive(Default)]
struct Work {
    opened: Vec<(BufferRange, Reach, RemoteKey)>,
    closed: Vec<RemoteKey>,
    sent: VecDeque<(Vec<u8>, Option<BufferRange>)>,
    put: Vec<(BufferRange, Vec<u8>)>,
    has_no_room: bool,
}

impl session::HostWork for Work {
    fn open(&mut self, _: u16, range: BufferRange, reach: Reach) -> Option<RemoteBuffer> {
        let key = RemoteKey(0xAB00_0000 + self.opened.len() as u32);
        self.opened.push((range, reach, key));
        Some(RemoteBuffer {
            address: 0x10_0000 * (1 + u64::from(range.slot)),
            key,
            len_bytes: range.len_bytes,
        })
    }

    fn close(&mut self, key: RemoteKey) {
        self.closed.push(key);
    }

    fn send(&mut self, head: &[u8], data: Option<BufferRange>) -> bool {
        if !self.has_no_room {
            self.sent.push_back((head.to_vec(), data));
        }
        !self.has_no_room
    }
}

impl HostWork for Work {
    fn put(&mut self, range: BufferRange, data: &[u8]) {
        self.put.push((range, data.to_vec()));
    }
}

struct Fixture {
    session: HostSession,
    work: Work,
    done: Vec<Outcome>,
}

fn login() -> Login {
    let mut login = Login::new("nqn.h", "nqn.t", 1).expect("names");
    login.tags.set(4);
    login.features.set(Step::Merge.features().0);
    login.transfer_max_bytes.set(1 << 20);
    login.reply_data_max_bytes.set(1024);
    login
}

impl Fixture {
    /// A session whose login was granted, with a read of 512 bytes, one of 8 KiB, a write of 512
    /// bytes and one of 8 KiB in flight.
    fn new(features: Features) -> Self {
        let reply = ConnectionReply::new(4, 1056);
        let session =
            HostSession::new(login(), None, reply.as_bytes(), u32::MAX).expect("a valid reply");
        let mut fixture = Self {
            session,
            work: Work::default(),
            done: Vec::new(),
        };
        fixture.session.poll_transmit(&mut fixture.work);
        let (sent, _) = fixture.work.sent.pop_front().expect("LOGIN");
        assert_eq!(sent, login().as_bytes());
        let mut reply = LoginReply::rejected(LoginStatus::Ok);
        reply.tags.set(4);
        reply.credits.set(4);
        reply.features.set(features.0);
        reply.block_shift = 9;
        reply.blocks.set(64);
        reply.transfer_max_bytes.set(1 << 20);
        reply.command_data_max_bytes.set(4096);
        reply.reply_data_max_bytes.set(1024);
        reply.session = SessionId([1; 16]);
        fixture.message(&[reply.as_bytes()], None).expect("granted");
        let extent = |blocks| Extent::new(Lba(0), Blocks(blocks));
        for (tag, command) in [
            (0, host::read(extent(1), BufferRange::first(0, 512))),
            (1, host::read(extent(16), BufferRange::first(1, 8192))),
            (2, host::write(extent(1), BufferRange::first(2, 512))),
            (3, host::write(extent(16), BufferRange::first(3, 8192))),
        ] {
            fixture.session.submit(tag, &command).expect("credits");
        }
        fixture.session.poll_transmit(&mut fixture.work);
        fixture
    }

    fn message(&mut self, parts: &[&[u8]], key: Option<RemoteKey>) -> Result<(), HostError> {
        let message = parts.concat();
        let (work, done) = (&mut self.work, &mut self.done);
        self.session.handle_message(&message, key, work, done)
    }
}

fn success(tag: u16, data_bytes: u32) -> Short {
    Short::reply(tag, data_bytes, Status::Success, 4, 0)
}

const READ_KEY: RemoteKey = RemoteKey(0xAB00_0000);
const WRITE_KEY: RemoteKey = RemoteKey(0xAB00_0001);

/// BRP-13, BRP-18: short data are inside, others behind one descriptor.
#[test]
fn short_data_go_inside_and_long_ones_behind_a_descriptor() {
    let fixture = Fixture::new(Step::Merge.features());
    let commands: Vec<(Command, usize, Option<BufferRange>)> = (fixture.work.sent.iter())
        .map(|(head, data)| {
            let (command, rest) = Command::read_from_prefix(head).expect("a command");
            (command, rest.len(), *data)
        })
        .collect();
    let shape = |(command, behind, data): &(Command, usize, Option<BufferRange>)| {
        let (count, inside) = (command.descriptors.get(), command.data_bytes.get());
        (count, inside, *behind, data.is_some())
    };
    let shapes: Vec<_> = commands.iter().map(shape).collect();
    assert_eq!(
        shapes,
        [
            (0, 0, 0, false),
            (1, 0, 16, false),
            (0, 512, 0, true),
            (1, 0, 16, false)
        ]
    );
    let reaches: Vec<_> = fixture
        .work
        .opened
        .iter()
        .map(|(_, reach, _)| *reach)
        .collect();
    assert_eq!(reaches, [Reach::Write, Reach::Read]);
    assert!(commands[1].0.flags().contains(Flags::INVALIDATE));
    assert!(!commands[0].0.flags().contains(Flags::INVALIDATE));
}

/// BRP-19: when an outcome is reported, no key opens its data any more.
#[test]
fn keys_are_invalid_before_outcomes_are_reported() {
    let mut fixture = Fixture::new(Step::Merge.features());
    fixture
        .message(&[success(1, 0).as_bytes()], Some(READ_KEY))
        .expect("a reply");
    assert_eq!(fixture.work.closed, [], "the target did that");
    fixture
        .message(&[success(3, 0).as_bytes()], None)
        .expect("a reply");
    assert_eq!(fixture.work.closed, [WRITE_KEY]);
    let data = [7; 512];
    fixture
        .message(&[success(0, 512).as_bytes(), &data], None)
        .expect("a reply");
    assert_eq!(
        fixture.work.put,
        [(BufferRange::first(0, 512), data.to_vec())]
    );
    let tags: Vec<u16> = fixture.done.iter().map(|outcome| outcome.tag).collect();
    assert_eq!(tags, [1, 3, 0]);
    fixture.session.handle_close(&mut fixture.work);
    assert_eq!(fixture.work.closed, [WRITE_KEY], "each once");
}

#[test]
fn a_command_without_room_is_posted_later_and_its_key_is_closed() {
    let mut fixture = Fixture::new(Step::Merge.features());
    fixture
        .message(&[success(1, 0).as_bytes()], Some(READ_KEY))
        .expect("a reply");
    let extent = Extent::new(Lba(0), Blocks(16));
    let read = host::read(extent, BufferRange::first(1, 8192));
    fixture.session.submit(1, &read).expect("credits");
    fixture.work.has_no_room = true;
    fixture.session.poll_transmit(&mut fixture.work);
    assert!(fixture.session.wants_transmit());
    assert_eq!(fixture.work.closed.len(), 1, "the key of what was not sent");
    fixture.work.has_no_room = false;
    fixture.session.poll_transmit(&mut fixture.work);
    assert!(!fixture.session.wants_transmit());
}

/// BRP-37: replies that came together are handled in order.
#[test]
fn joined_replies_are_replies() {
    let mut fixture = Fixture::new(Step::Merge.features());
    let data = [9; 512];
    let replies = [
        Short::replies(3, 3 * 16 + 512).as_bytes(),
        success(0, 512).as_bytes(),
        &data,
        success(1, 0).as_bytes(),
        Short::reply(3, 0, Status::WriteError, 4, 0).as_bytes(),
    ]
    .concat();
    fixture.message(&[&replies], None).expect("replies");
    assert_eq!(fixture.done.len(), 3);
    assert_eq!(fixture.done[2].status, Status::WriteError);
    assert_eq!(fixture.work.put.len(), 1);
    assert_eq!(fixture.work.closed, [READ_KEY, WRITE_KEY]);
}

/// A message with the key that it invalidates, and what is wrong with it.
type Wrong = (Violation, Vec<u8>, Option<RemoteKey>);

/// Single messages that a target may not send.
fn wrong_messages() -> Vec<Wrong> {
    use Violation::{Key, Kind as UnknownKind, Length, Login, Tag};
    let wrong = |violation, message: &Short| (violation, message.as_bytes().to_vec(), None);
    let behind =
        |violation, reply: Short, data: &[u8]| (violation, [reply.as_bytes(), data].concat(), None);
    let reply = success(1, 0);
    let mut more = reply;
    more.code = Short::MORE;
    let login = LoginReply::rejected(LoginStatus::Ok);
    vec![
        (Length, vec![], None),
        (UnknownKind, vec![0x77; 16], None),
        wrong(UnknownKind, &Short::pull(2, 0, 512)),
        wrong(UnknownKind, &Short::new(Kind::Logout)),
        (Length, reply.as_bytes()[..15].to_vec(), None),
        behind(Length, reply, &[0]),
        behind(Length, Short::new(Kind::Pong), &[0]),
        wrong(Tag, &success(4, 0)),
        wrong(Length, &more),
        wrong(Length, &success(0, 0)),
        behind(Length, success(1, 512), &[0; 512]),
        behind(Length, success(0, 511), &[0; 511]),
        (Key, reply.as_bytes().to_vec(), Some(WRITE_KEY)),
        (Key, success(2, 0).as_bytes().to_vec(), Some(WRITE_KEY)),
        (Login, login.as_bytes().to_vec(), None),
    ]
}

/// REPLIES that a target may not send.
fn wrong_replies() -> Vec<Wrong> {
    use Violation::{Kind as UnknownKind, Length, Tag};
    let reply = success(1, 0);
    let one = Short::replies(1, 16);
    let joined = |violation, parts: &[Short], key| {
        let parts: Vec<&[u8]> = parts.iter().map(IntoBytes::as_bytes).collect();
        (violation, parts.concat(), key)
    };
    vec![
        joined(Length, &[Short::replies(0, 0)], None),
        joined(Length, &[Short::replies(2, 16), reply], None),
        joined(Length, &[Short::replies(1, 32), reply, reply], None),
        joined(UnknownKind, &[one, one], None),
        joined(Length, &[one, reply], Some(READ_KEY)),
        joined(Tag, &[Short::replies(2, 32), reply, reply], None),
    ]
}

/// BRP-10, BRP-18, BRP-19, BRP-37.
#[test]
fn what_a_target_may_not_send_ends_the_connection_with_a_fault() {
    let reply = success(1, 0);
    let cases = wrong_messages().into_iter().chain(wrong_replies());
    for (index, (violation, message, key)) in cases.enumerate() {
        let mut fixture = Fixture::new(Step::Merge.features());
        fixture.work.sent.clear();
        let result = fixture.message(&[&message], key);
        assert_eq!(result, Err(HostError::Violation(violation)), "case {index}");
        fixture.session.poll_transmit(&mut fixture.work);
        let fault = Short::fault(violation).as_bytes().to_vec();
        assert_eq!(fixture.work.sent, [(fault, None)], "case {index}");
        let after = fixture.message(&[reply.as_bytes()], None);
        assert_eq!(after, Err(HostError::Closed));
    }
    let mut fixture = Fixture::new(Step::Parallel.features());
    let one = Short::replies(1, 16);
    let result = fixture.message(&[one.as_bytes(), reply.as_bytes()], None);
    assert_eq!(result, Err(Violation::Kind.into()), "without MERGE");
}

/// BRP-9.
#[test]
fn a_connection_reply_that_cannot_serve_is_rejected() {
    for reply in [
        ConnectionReply::new(0, 4096),
        ConnectionReply::new(5, 4096),
        ConnectionReply::new(4, 511),
    ] {
        assert!(HostSession::new(login(), None, reply.as_bytes(), u32::MAX).is_err());
    }
    assert!(HostSession::new(login(), None, &[], u32::MAX).is_err());
    assert_eq!(HostSession::receives(&login()), (8, 1040));
}

#[test]
fn corpora_are_replayed() {
    use crate::testing::fuzz::rdma;
    assert!(block::testing::replay("brp_rdma_target", rdma::target_session) > 0);
    assert!(block::testing::replay("brp_rdma_host", rdma::host_session) > 0);
}
