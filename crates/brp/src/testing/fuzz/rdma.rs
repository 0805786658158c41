//! Fuzz targets of both ends over RDMA.

use std::sync::Arc;
use std::time::{Duration, Instant};

use block::testing::VecVolume;
use block::{BlockSize, Blocks, Extent, Lba, Volume};
use session::testing::{PostedWork, Work};
use session::{BufferRange, MessageSession, Reach, RemoteBuffer, RemoteKey, Session};
use zerocopy::IntoBytes;

use super::{BLOCKS, TAGS, granted, login};
use crate::host;
use crate::rdma::{HostSession, HostWork, TargetSession};
use crate::target::{Merge, TargetConfig};
use crate::testing::{TestBackend, TestTarget};
use crate::wire::{Command, ConnectionReply, Descriptor, Flags, Operation, SessionId, Step};

/// The most data of a reply in bytes.
const REPLY_DATA_BYTES: u32 = 1024;

/// A target's end gets messages: the input is cut into them by a length before each. Most are made
/// into commands with descriptors. A second connection resumes the session.
pub fn target_session(input: &[u8]) {
    let Some((&first, rest)) = input.split_first() else {
        return;
    };
    let volume: Arc<dyn Volume> = Arc::new(VecVolume::new(BlockSize::B512, BLOCKS));
    let target = TestTarget::new(volume);
    let mut login = login();
    login
        .features
        .set(Step::ALL[usize::from(first) % 3].features().0);
    login.reply_data_max_bytes.set(REPLY_DATA_BYTES);
    for _ in 0..2 {
        let mut messages = vec![login.as_bytes().to_vec()];
        let mut left = rest;
        let mut sequence = 1;
        while let Some((&len, behind)) = left.split_first() {
            let (bytes, behind) = behind.split_at(usize::from(len).min(behind.len()));
            left = behind;
            messages.push(message(sequence, bytes));
            sequence += 1;
        }
        if let Some(session) = play(&target, &messages) {
            login.session = session;
        }
    }
}

/// A message made of these bytes: a command with descriptors if they are as many as it takes, or as
/// they are.
fn message(sequence: u32, bytes: &[u8]) -> Vec<u8> {
    let &[what, tag, lba, blocks, count, len, data] = bytes else {
        return bytes.to_vec();
    };
    let extent = Extent::new(Lba(lba.into()), Blocks(u64::from(blocks % 32)));
    let operation = Operation::from_byte(what % 8).unwrap_or(Operation::Flush);
    let mut command = Command::new(operation, Flags(u16::from(what >> 4)), extent);
    command.tag.set(u16::from(tag % 5));
    command.sequence.set(sequence);
    command.descriptors.set(u16::from(count % 6));
    command.data_bytes.set(u32::from(data) * 64);
    let mut message = command.as_bytes().to_vec();
    for index in 0..count % 6 {
        let buffer = RemoteBuffer {
            address: u64::MAX.rotate_left(u32::from(index) + u32::from(len)) << (len % 64),
            key: RemoteKey(u32::from(index)),
            len_bytes: u32::from(len) * 256,
        };
        message.extend_from_slice(Descriptor::of(buffer).as_bytes());
    }
    message.extend(std::iter::repeat_n(lba, usize::from(data) * 64));
    message
}

/// Feeds a connection, and returns its session.
fn play(target: &Arc<TestTarget>, messages: &[Vec<u8>]) -> Option<SessionId> {
    let mut now = Instant::now();
    let mut backend = TestBackend::new(target);
    let request = HostSession::request(&login());
    let config = TargetConfig {
        merge: Merge::Always,
        ..TargetConfig::default()
    };
    let accepted = TargetSession::accept(now, config, request.as_bytes(), 1);
    let accepted = accepted.expect("a valid request");
    let mut session = accepted.session;
    let mut posted = PostedWork::default();
    posted.depth_max = 7;
    posted.piece_max_bytes = 4096;
    posted.message_max_bytes = 16 + REPLY_DATA_BYTES;
    for message in messages {
        now += Duration::from_micros(20);
        let mut handled = session.handle_message(now, message, None, &mut backend);
        let mut rounds = 0;
        while session.wants_transmit() {
            session.poll_transmit(now, &mut backend, &mut posted);
            let work = posted.take();
            assert!(!work.is_empty(), "a session that wants to send sends");
            for work in work {
                if let Work::Read { tag, from } = work {
                    let data = vec![0x5A; from.len_bytes as usize];
                    handled = handled.and(session.handle_read(now, tag, &data, &mut backend));
                }
            }
            rounds += 1;
            assert!(rounds < 10_000, "output is bounded");
        }
        if handled.is_err() || session.is_closing() {
            break;
        }
        if session.poll_timeout().is_some_and(|due| due <= now) {
            let _ = session.handle_timeout(now, &mut backend);
        }
    }
    let id = backend.session();
    session.handle_close(now, &mut backend);
    assert_eq!(backend.charged_bytes, 0, "nothing stays charged");
    id
}

/// A queue pair that keeps nothing.
#[derive(Default)]
struct Sink {
    opened: u32,
    closed: u32,
}

impl session::HostWork for Sink {
    fn open(&mut self, _: u16, range: BufferRange, _reach: Reach) -> Option<RemoteBuffer> {
        self.opened += 1;
        Some(RemoteBuffer {
            address: 0x1000,
            key: RemoteKey(self.opened),
            len_bytes: range.len_bytes,
        })
    }

    fn close(&mut self, _key: RemoteKey) {
        self.closed += 1;
    }

    fn send(&mut self, _head: &[u8], _data: Option<BufferRange>) -> bool {
        true
    }
}

impl HostWork for Sink {
    fn put(&mut self, range: BufferRange, data: &[u8]) {
        assert_eq!(range.len_bytes as usize, data.len(), "exactly the data");
    }
}

/// A host's end gets any messages after a granted login, with commands of each kind in flight. The
/// first byte of each is its length, the second the key that it invalidates.
pub fn host_session(input: &[u8]) {
    let mut login = login();
    login.features.set(Step::Merge.features().0);
    login.reply_data_max_bytes.set(REPLY_DATA_BYTES);
    let reply = ConnectionReply::new(TAGS, 4096);
    let mut session =
        HostSession::new(login, None, reply.as_bytes(), u32::MAX).expect("a valid reply");
    let mut work = Sink::default();
    session.poll_transmit(&mut work);
    let mut reply = granted();
    reply.features.set(Step::Merge.features().0);
    reply.reply_data_max_bytes.set(REPLY_DATA_BYTES);
    let mut done = Vec::new();
    session
        .handle_message(reply.as_bytes(), None, &mut work, &mut done)
        .expect("a valid reply");
    let extent = |blocks| Extent::new(Lba(0), Blocks(blocks));
    for (tag, command) in [
        (0, host::read(extent(1), BufferRange::first(0, 512))),
        (1, host::read(extent(8), BufferRange::first(1, 4096))),
        (2, host::write(extent(8), BufferRange::first(2, 4096))),
        (3, host::flush()),
    ] {
        session.submit(tag, &command).expect("there are credits");
    }
    session.poll_transmit(&mut work);
    let mut left = input;
    while let [len, key, behind @ ..] = left {
        let (message, behind) = behind.split_at(usize::from(*len).min(behind.len()));
        left = behind;
        let key = (*key > 0).then(|| RemoteKey(u32::from(*key)));
        let handled = session.handle_message(message, key, &mut work, &mut done);
        session.poll_transmit(&mut work);
        if handled.is_err() {
            break;
        }
        while session.poll_event().is_some() {}
    }
    session.handle_close(&mut work);
    assert!(done.len() <= usize::from(TAGS), "a command ends once");
    assert!(work.closed <= work.opened, "a key is invalidated once");
}
