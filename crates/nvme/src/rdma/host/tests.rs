use block::{Blocks, Extent, Lba};
use session::{BufferRange, RemoteBuffer};
use zerocopy::IntoBytes;

use super::*;
use crate::host::io;
use crate::wire::{Nsid, SglKind, Status, StatusCode};

/// A queue pair and memory that write down what they are asked for.
#[derive(Default)]
struct Work {
    opened: Vec<(BufferRange, Reach, RemoteKey)>,
    closed: Vec<RemoteKey>,
    sent: Vec<(CommandKey, Sqe, Option<BufferRange>)>,
    sends_max: usize,
    has_no_keys: bool,
}

impl HostWork for Work {
    fn open(&mut self, key: u16, range: BufferRange, reach: Reach) -> Option<RemoteBuffer> {
        assert_eq!(key, range.slot, "its own slot");
        if self.has_no_keys {
            return None;
        }
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
        let has_room = self.sent.len() < self.sends_max;
        if has_room {
            let sqe = Sqe::read_from_bytes(head).expect("an entry");
            self.sent.push((CommandKey::of(sqe.cid()), sqe, data));
        }
        has_room
    }
}

struct Fixture {
    session: HostSession,
    work: Work,
    done: Vec<Outcome>,
}

impl Fixture {
    fn new() -> Self {
        Self {
            session: HostSession::new(HostConfig {
                keys: 4,
                in_flight_max: 3,
                in_capsule_max_bytes: 4096,
                in_capsule_batch_max: 2,
            }),
            work: Work {
                sends_max: 100,
                ..Work::default()
            },
            done: Vec::new(),
        }
    }

    fn submit(&mut self, key: u16, command: Command) -> Result<(), NoRoom> {
        self.session.submit(CommandKey(key), &command)
    }

    /// Posts a command; gives its entry as sent.
    fn post(&mut self, key: u16, command: Command) -> Sqe {
        self.submit(key, command).unwrap();
        self.session.poll_transmit(&mut self.work);
        let (of, sqe, _) = *self.work.sent.last().unwrap();
        assert_eq!(of, CommandKey(key));
        sqe
    }

    fn answer(&mut self, cid: Cid, invalidated: Option<RemoteKey>) -> Result<(), HostError> {
        let cqe = Cqe::new(cid, Status::SUCCESS, 77);
        self.message(cqe.as_bytes(), invalidated)
    }

    fn message(&mut self, message: &[u8], invalidated: Option<RemoteKey>) -> Result<(), HostError> {
        let (work, done) = (&mut self.work, &mut self.done);
        self.session
            .handle_message(message, invalidated, work, done)
    }
}

fn extent(len_bytes: u32) -> Extent {
    Extent::new(Lba(0), Blocks(u64::from(len_bytes) / 512))
}

fn read(slot: u16, len_bytes: u32) -> Command {
    io::read(
        Nsid(1),
        extent(len_bytes),
        BufferRange::first(slot, len_bytes),
    )
}

fn write(slot: u16, len_bytes: u32) -> Command {
    io::write(
        Nsid(1),
        extent(len_bytes),
        BufferRange::first(slot, len_bytes),
    )
}

#[test]
fn a_read_opens_its_bytes_for_writing_and_asks_for_invalidation() {
    let mut fixture = Fixture::new();
    let sqe = fixture.post(2, read(2, 8192));
    let (range, reach, key) = fixture.work.opened[0];
    assert_eq!((range, reach), (BufferRange::first(2, 8192), Reach::Write));
    let keyed = SglKind::Keyed {
        address: 0x30_0000,
        len_bytes: 8192,
        key: key.0,
        invalidate: true,
    };
    assert_eq!(sqe.sgl1.kind(), keyed);
    assert_eq!(fixture.answer(sqe.cid(), Some(key)), Ok(()));
    assert_eq!(fixture.work.closed, [], "the controller did that");
    let [outcome] = fixture.done[..] else {
        panic!("{:?}", fixture.done);
    };
    assert_eq!((outcome.key, outcome.result), (CommandKey(2), 77));
    assert_eq!(fixture.session.in_flight(), 0);
}

#[test]
fn a_key_that_the_controller_left_is_closed_before_the_outcome() {
    let mut fixture = Fixture::new();
    let sqe = fixture.post(0, read(0, 512));
    let key = fixture.work.opened[0].2;
    assert_eq!(fixture.answer(sqe.cid(), None), Ok(()));
    assert_eq!(fixture.work.closed, [key]);
    assert_eq!(fixture.done.len(), 1);
}

#[test]
fn small_writes_travel_inside_the_capsule_and_long_ones_are_read() {
    let mut fixture = Fixture::new();
    let small = fixture.post(0, write(0, 4096));
    let inside = SglKind::InCapsule {
        offset: 0,
        len_bytes: 4096,
    };
    assert_eq!(small.sgl1.kind(), inside);
    assert_eq!(fixture.work.sent[0].2, Some(BufferRange::first(0, 4096)));
    assert_eq!(fixture.work.opened, []);
    fixture.post(1, write(1, 4608));
    assert_eq!(fixture.work.opened[0].1, Reach::Read);
    assert_eq!(fixture.work.sent[1].2, None);
}

#[test]
fn data_of_many_commands_at_once_are_read() {
    for (count, len_bytes, opened) in [(2, 4096, 0), (3, 4096, 3), (3, 512, 0)] {
        let mut fixture = Fixture::new();
        for key in 0..count {
            fixture.submit(key, write(key, len_bytes)).unwrap();
        }
        fixture.session.poll_transmit(&mut fixture.work);
        assert_eq!(fixture.work.opened.len(), opened);
        assert_eq!(fixture.work.sent.len(), usize::from(count));
    }
}

#[test]
fn fabrics_commands_have_their_data_outside_of_the_capsule() {
    let mut fixture = Fixture::new();
    let mut connect = write(0, 1024);
    connect.sqe.opcode = Sqe::OPCODE_FABRICS;
    fixture.post(0, connect);
    assert_eq!(fixture.work.opened[0].1, Reach::Read);
}

#[test]
fn commands_without_data_have_an_empty_keyed_descriptor() {
    let mut fixture = Fixture::new();
    let sqe = fixture.post(0, io::flush(Nsid(1)));
    assert_eq!(sqe.sgl1, Sgl::keyed(0, 0, 0, Invalidate::No));
    assert_eq!(fixture.work.opened, []);
    // Nothing of it can be invalidated.
    let key = RemoteKey(5);
    let cid = sqe.cid();
    assert_eq!(
        fixture.answer(cid, Some(key)),
        Err(HostError::WrongKey { key, cid })
    );
}

#[test]
fn a_command_completes_once() {
    let mut fixture = Fixture::new();
    let cid = fixture.post(0, write(0, 512)).cid();
    assert_eq!(fixture.answer(cid, None), Ok(()));
    assert_eq!((fixture.done.len(), fixture.session.in_flight()), (1, 0));
    let again = fixture.answer(cid, None);
    assert_eq!(again, Err(HostError::UnknownCommand { cid }));
}

#[test]
fn completions_of_unknown_commands_end_the_connection() {
    let mut fixture = Fixture::new();
    let sqe = fixture.post(0, read(0, 512));
    for cid in [1, 3, 4, 0x0FFF, sqe.cid().0 ^ 0x1000] {
        let mut fixture = Fixture::new();
        fixture.post(0, read(0, 512));
        let cid = Cid(cid);
        assert_eq!(
            fixture.answer(cid, None),
            Err(HostError::UnknownCommand { cid })
        );
        assert_eq!(fixture.answer(sqe.cid(), None), Err(HostError::Closed));
        assert_eq!(fixture.submit(1, read(1, 512)), Err(NoRoom::Closed));
        assert!(!fixture.session.wants_transmit());
        assert_eq!(fixture.done, []);
    }
}

#[test]
fn a_completion_of_a_command_that_was_not_posted_ends_the_connection() {
    let mut fixture = Fixture::new();
    fixture.work.sends_max = 0;
    fixture.submit(1, read(1, 512)).unwrap();
    fixture.session.poll_transmit(&mut fixture.work);
    let cid = Cid(1);
    assert_eq!(
        fixture.answer(cid, None),
        Err(HostError::UnknownCommand { cid })
    );
}

#[test]
fn messages_of_other_lengths_end_the_connection() {
    for len_bytes in [0, 15, 17, 64] {
        let mut fixture = Fixture::new();
        fixture.post(0, read(0, 512));
        let error = fixture.message(&vec![0; len_bytes], None);
        assert_eq!(error, Err(HostError::Length { len_bytes }));
    }
}

#[test]
fn keys_of_other_commands_must_not_be_invalidated() {
    let mut fixture = Fixture::new();
    let first = fixture.post(0, read(0, 512));
    fixture.post(1, read(1, 512));
    let key = fixture.work.opened[1].2;
    let cid = first.cid();
    assert_eq!(
        fixture.answer(cid, Some(key)),
        Err(HostError::WrongKey { key, cid })
    );
}

#[test]
fn identifiers_change_with_each_command_of_a_key() {
    let mut fixture = Fixture::new();
    let mut seen = Vec::new();
    for _ in 0..17 {
        let sqe = fixture.post(0, read(0, 512));
        seen.push(sqe.cid());
        fixture.answer(sqe.cid(), None).unwrap();
    }
    assert_eq!(seen[0], seen[16], "four bits of generation");
    seen.dedup();
    assert_eq!(seen.len(), 17);
    assert!(seen[..16].iter().all(|cid| CommandKey::of(*cid).0 == 0));
}

#[test]
fn no_more_commands_are_in_flight_than_the_controllers_queue_takes() {
    let mut fixture = Fixture::new();
    for key in 0..3 {
        fixture.post(key, read(key, 512));
    }
    assert_eq!(fixture.submit(3, read(3, 512)), Err(NoRoom::QueueFull));
    assert_eq!(fixture.session.room(), 0);
    let cid = fixture.work.sent[1].1.cid();
    fixture.answer(cid, None).unwrap();
    assert_eq!(fixture.submit(1, read(1, 512)), Ok(()));
}

#[test]
fn what_finds_no_room_or_key_is_posted_later_in_order() {
    let mut fixture = Fixture::new();
    fixture.work.sends_max = 1;
    for key in 0..3 {
        fixture.submit(key, read(key, 512)).unwrap();
    }
    fixture.session.poll_transmit(&mut fixture.work);
    assert_eq!(fixture.work.sent.len(), 1);
    assert_eq!(
        fixture.work.closed.len(),
        1,
        "the key of what was not sent is gone"
    );
    assert!(fixture.session.wants_transmit());
    fixture.work.sends_max = 100;
    fixture.work.has_no_keys = true;
    fixture.session.poll_transmit(&mut fixture.work);
    assert_eq!(fixture.work.sent.len(), 1);
    fixture.work.has_no_keys = false;
    fixture.session.poll_transmit(&mut fixture.work);
    let order: Vec<u16> = fixture.work.sent.iter().map(|(key, ..)| key.0).collect();
    assert_eq!(order, [0, 1, 2]);
}

#[test]
fn closing_invalidates_every_key() {
    let mut fixture = Fixture::new();
    fixture.post(0, read(0, 512));
    let done = fixture.post(1, read(1, 512));
    fixture.post(2, write(2, 512));
    fixture.answer(done.cid(), None).unwrap();
    fixture.work.closed.clear();
    fixture.session.handle_close(&mut fixture.work);
    assert_eq!(fixture.work.closed, [fixture.work.opened[0].2]);
    assert_eq!(fixture.submit(3, read(3, 512)), Err(NoRoom::Closed));
}

#[test]
fn statuses_reach_the_caller() {
    let mut fixture = Fixture::new();
    let sqe = fixture.post(0, read(0, 512));
    let status = Status::from(StatusCode::LbaOutOfRange);
    let cqe = Cqe::new(sqe.cid(), status, 0);
    fixture.message(cqe.as_bytes(), None).unwrap();
    assert_eq!(fixture.done[0].status, status);
}
