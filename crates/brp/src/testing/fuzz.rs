//! The functions of fuzz targets. `cargo test` runs the same functions over the corpora.

pub mod rdma;

use std::sync::Arc;
use std::time::{Duration, Instant};

use block::testing::VecVolume;
use block::{BlockSize, Blocks, Extent, Lba, Volume};
use session::{BufferRange, Buffers, SendList, Session, StreamSession};
use zerocopy::IntoBytes;

use super::{TestBackend, TestTarget};
use crate::host;
use crate::target::TargetConfig;
use crate::tcp::{HostSession, TargetSession};
use crate::wire::{
    Command, Flags, Login, LoginReply, LoginStatus, Operation, SessionId, Short, Step,
};

const BLOCKS: u64 = 64;
const TAGS: u16 = 4;

fn login() -> Login {
    let mut login = Login::new("nqn.h", "nqn.t", 1).expect("names");
    login.tags.set(TAGS);
    login.features.set(Step::Merge.features().0);
    login.transfer_max_bytes.set(1 << 20);
    login
}

/// A target's end gets any bytes: first a script of commands, then the raw rest of the input, cut
/// into chunks of a length that the first byte gives. A second connection resumes the session.
pub fn target_session(input: &[u8]) {
    let Some((&first, rest)) = input.split_first() else {
        return;
    };
    let chunk = usize::from(first) + 1;
    let volume: Arc<dyn Volume> = Arc::new(VecVolume::new(BlockSize::B512, BLOCKS));
    let target = TestTarget::new(volume);
    let mut login = login();
    login
        .features
        .set(Step::ALL[usize::from(first) % 3].features().0);
    for _ in 0..2 {
        let mut bytes = login.as_bytes().to_vec();
        let (script, raw) = rest.split_at(rest.len() / 2);
        for (sequence, step) in (1..).zip(script.chunks_exact(4)) {
            push_step(sequence, step, &mut bytes);
        }
        bytes.extend_from_slice(raw);
        if let Some(session) = play(&target, &bytes, chunk) {
            login.session = session;
        }
    }
}

/// A message made of four bytes, most often a valid one.
fn push_step(sequence: u32, step: &[u8], bytes: &mut Vec<u8>) {
    let &[what, tag, lba, blocks] = step else {
        return;
    };
    let tag = u16::from(tag % 5);
    match what % 16 {
        0 => return bytes.extend_from_slice(Short::abort(tag, sequence - 1).as_bytes()),
        1 => {
            let mut data = Short::data(tag, blocks.into());
            data.code = what >> 4;
            bytes.extend_from_slice(data.as_bytes());
            return bytes.extend(std::iter::repeat_n(what, blocks.into()));
        }
        _ => {}
    }
    let extent = Extent::new(Lba(lba.into()), Blocks(u64::from(blocks % 8)));
    let operation = Operation::from_byte(what % 8).unwrap_or(Operation::Flush);
    let mut command = Command::new(operation, Flags(u16::from(what >> 4)), extent);
    command.tag.set(tag);
    command.sequence.set(sequence);
    let data_bytes = match operation {
        Operation::Write => u32::from(blocks % 8) * 512,
        Operation::CompareAndWrite => u32::from(blocks % 8) * 1024,
        _ => 0,
    };
    command.data_bytes.set(data_bytes);
    bytes.extend_from_slice(command.as_bytes());
    bytes.extend(std::iter::repeat_n(lba, data_bytes as usize));
}

/// Feeds a connection, and returns its session.
fn play(target: &Arc<TestTarget>, bytes: &[u8], chunk: usize) -> Option<SessionId> {
    let mut now = Instant::now();
    let mut backend = TestBackend::new(target);
    let mut session = TargetSession::new(now, TargetConfig::default());
    let mut out = SendList::with_capacity(TargetSession::<TestBackend>::SEND_LIST_MIN_BYTES);
    for piece in bytes.chunks(chunk) {
        now += Duration::from_micros(10);
        let handled = session.handle_bytes(now, piece, &mut backend);
        let mut rounds = 0;
        while session.wants_transmit() {
            let before = out.len_bytes();
            session.poll_transmit(now, &mut backend, &mut out);
            assert!(
                out.len_bytes() > before || before > 0,
                "a session that wants to send sends"
            );
            out.consume(out.len_bytes());
            rounds += 1;
            assert!(rounds < 1000, "output is bounded");
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

/// A host's end gets any bytes after a granted login, with commands of each kind in flight.
pub fn host_session(input: &[u8]) {
    let Some((&first, rest)) = input.split_first() else {
        return;
    };
    let chunk = usize::from(first) + 1;
    let mut session = HostSession::new(login(), None);
    let mut buffers = Buffers::new(TAGS, 8192);
    let mut out = SendList::with_capacity(64 << 10);
    session.poll_transmit(&buffers, &mut out);
    let reply = granted();
    let mut done = Vec::new();
    session
        .handle_bytes(reply.as_bytes(), &mut buffers, &mut done)
        .expect("a valid reply");
    let extent = Extent::new(Lba(0), Blocks(8));
    for (tag, command) in [
        (0, host::read(extent, BufferRange::first(0, 4096))),
        (1, host::write(extent, BufferRange::first(1, 4096))),
        (
            2,
            host::compare_and_write(extent, BufferRange::first(2, 8192)),
        ),
        (3, host::flush()),
    ] {
        let taken = session.submit(tag, &command, &buffers);
        taken.expect("there are credits");
    }
    for piece in rest.chunks(chunk) {
        while session.wants_transmit() {
            session.poll_transmit(&buffers, &mut out);
            let sent = out.len_bytes();
            assert!(sent > 0, "a session that wants to send sends");
            out.consume(sent);
            session.handle_sent(sent, &mut done);
        }
        if session
            .handle_bytes(piece, &mut buffers, &mut done)
            .is_err()
        {
            break;
        }
        while session.poll_event().is_some() {}
    }
    assert!(done.len() <= usize::from(TAGS), "a command ends once");
}

/// A granted login.
fn granted() -> LoginReply {
    let mut reply = LoginReply::rejected(LoginStatus::Ok);
    reply.tags.set(TAGS);
    reply.credits.set(TAGS);
    reply.features.set(Step::Merge.features().0);
    reply.block_shift = 9;
    reply.blocks.set(BLOCKS);
    reply.transfer_max_bytes.set(1 << 20);
    reply.command_data_max_bytes.set(1024);
    reply.session = SessionId([1; 16]);
    reply
}
