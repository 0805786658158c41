use block::{Blocks, Extent, Lba};

use super::*;
use crate::host::{self, LoginError};
use crate::wire::{LoginReply, LoginStatus, SessionId, Step};

const BLOCKS: u64 = 256;
const TAGS: u16 = 4;
const SLOT_BYTES: usize = 256 << 10;

fn login() -> Login {
    let mut login = Login::new("nqn.h", "nqn.t", 1).expect("names");
    login.tags.set(TAGS);
    login.features.set(Step::Merge.features().0);
    login.transfer_max_bytes.set(1 << 20);
    login
}

/// A session whose login was granted with these terms.
fn session(change: impl FnOnce(&mut LoginReply)) -> (HostSession, Buffers) {
    let mut session = HostSession::new(login(), None);
    let mut buffers = Buffers::new(TAGS, SLOT_BYTES);
    emit(&mut session, &buffers);
    let mut reply = LoginReply::rejected(LoginStatus::Ok);
    reply.tags.set(TAGS);
    reply.credits.set(TAGS);
    reply.block_shift = 9;
    reply.blocks.set(BLOCKS);
    reply.transfer_max_bytes.set(1 << 20);
    reply.command_data_max_bytes.set(4096);
    reply.session = SessionId([1; 16]);
    change(&mut reply);
    let granted = session.handle_bytes(reply.as_bytes(), &mut buffers, &mut Vec::new());
    granted.expect("a valid reply");
    assert!(matches!(session.poll_event(), Some(HostEvent::LoggedIn(_))));
    (session, buffers)
}

fn emit(session: &mut HostSession, buffers: &Buffers) -> u64 {
    let mut out = SendList::with_capacity(64 << 10);
    session.poll_transmit(buffers, &mut out);
    let len_bytes = out.len_bytes();
    session.handle_sent(len_bytes, &mut Vec::new());
    len_bytes
}

fn extent(lba: u64, blocks: u64) -> Extent {
    Extent::new(Lba(lba), Blocks(blocks))
}

/// BRP-10, BRP-16, BRP-17.
#[test]
fn what_a_target_may_not_send_ends_the_connection() {
    let reply = |tag, data_bytes, status| Short::reply(tag, data_bytes, status, 4, 0);
    let cases = [
        (
            Short::reply(1, 0, Status::Success, 4, 0),
            Violation::Tag,
            "not in flight",
        ),
        (
            reply(0, 0, Status::Success),
            Violation::Length,
            "success without data",
        ),
        (
            reply(0, 513, Status::Success),
            Violation::Length,
            "too many data",
        ),
        (
            reply(0, 512, Status::ReadError),
            Violation::Length,
            "data with an error",
        ),
        (Short::part(0, 512, 4), Violation::Length, "more of nothing"),
        (Short::part(0, 0, 4), Violation::Length, "a part of nothing"),
        (
            Short::pull(0, 0, 512),
            Violation::UnexpectedData,
            "a read has no data to send",
        ),
        (Short::pull(2, 0, 512), Violation::Tag, "not in flight"),
        (
            Short::new(Kind::Logout),
            Violation::Kind,
            "only hosts log out",
        ),
        (
            Short {
                rest: [0xFF; 8],
                ..reply(0, 0, Status::Success)
            },
            Violation::Length,
            "no such status",
        ),
    ];
    for (message, violation, why) in cases {
        let (mut session, mut buffers) = session(|_| {});
        let read = host::read(extent(0, 1), BufferRange::first(0, 512));
        session.submit(0, &read, &buffers).expect("credits");
        emit(&mut session, &buffers);
        let mut done = Vec::new();
        let result = session.handle_bytes(message.as_bytes(), &mut buffers, &mut done);
        assert_eq!(result, Err(violation.into()), "{why}");
        assert!(done.is_empty() && session.wants_transmit());
        let after = session.handle_bytes(&[0], &mut buffers, &mut done);
        assert_eq!(after, Err(HostError::Closed));
    }
}

/// BRP-11, BRP-21.
#[test]
fn no_more_commands_are_sent_than_there_are_credits() {
    let (mut session, mut buffers) = session(|reply| reply.credits.set(1));
    session
        .submit(0, &host::flush(), &buffers)
        .expect("a credit");
    assert_eq!(
        session.submit(1, &host::flush(), &buffers),
        Err(NoRoom::Credits)
    );
    emit(&mut session, &buffers);
    let mut done = Vec::new();
    let reply = Short::reply(0, 0, Status::Success, 2, 0);
    session
        .handle_bytes(reply.as_bytes(), &mut buffers, &mut done)
        .expect("valid");
    assert_eq!(done.len(), 1);
    session
        .submit(0, &host::flush(), &buffers)
        .expect("a credit");
    session
        .submit(1, &host::flush(), &buffers)
        .expect("another");
    assert_eq!(
        session.submit(2, &host::flush(), &buffers),
        Err(NoRoom::Credits)
    );
}

/// BRP-36, BRP-37.
#[test]
fn joined_replies_are_replies_and_fill_their_message() {
    let reply = |tag| Short::reply(tag, 0, Status::Success, 4, 0);
    let handle = |features: Features, parts: &[&[u8]]| {
        let (mut session, mut buffers) = session(|reply| reply.features.set(features.0));
        for tag in 0..3 {
            let taken = session.submit(tag, &host::flush(), &buffers);
            taken.expect("credits");
        }
        emit(&mut session, &buffers);
        let mut done = Vec::new();
        let mut result = Ok(());
        for piece in parts.concat().chunks(7) {
            result = result.and_then(|()| session.handle_bytes(piece, &mut buffers, &mut done));
        }
        result.map(|()| done.iter().map(|outcome| outcome.tag).collect::<Vec<_>>())
    };
    let merge = Step::Merge.features();
    let (zero, one, two) = (reply(0), reply(1), reply(2));
    let joined = Short::replies(2, 32);
    let all = [&joined, &one, &zero, &two].map(IntoBytes::as_bytes);
    assert_eq!(handle(merge, &all), Ok(vec![1, 0, 2]));
    assert_eq!(
        handle(Step::Parallel.features(), &all),
        Err(Violation::Kind.into())
    );
    let mut more = one;
    more.code = Short::MORE;
    let cases: [(Violation, [Short; 3]); 7] = [
        (Violation::Length, [Short::replies(0, 32), one, zero]),
        (Violation::Length, [Short::replies(2, 31), one, zero]),
        (Violation::Length, [Short::replies(2, 33), one, zero]),
        (Violation::Length, [Short::replies(2, 40_000), one, zero]),
        (Violation::Kind, [joined, joined, zero]),
        (Violation::Kind, [joined, Short::new(Kind::Pong), zero]),
        (Violation::Length, [joined, more, zero]),
    ];
    for (violation, messages) in cases {
        let parts = messages.each_ref().map(IntoBytes::as_bytes);
        assert_eq!(handle(merge, &parts), Err(violation.into()), "{messages:?}");
    }
}

/// BRP-33.
#[test]
fn a_login_that_is_rejected_ends_the_connection() {
    let mut session = HostSession::new(login(), None);
    let mut buffers = Buffers::new(TAGS, 512);
    emit(&mut session, &buffers);
    let reply = LoginReply::rejected(LoginStatus::NoSession);
    let result = session.handle_bytes(reply.as_bytes(), &mut buffers, &mut Vec::new());
    let rejected = LoginError::Rejected(LoginStatus::NoSession);
    assert_eq!(result, Err(HostError::Login(rejected)));
    assert!(session.resumption().is_none());
}

#[test]
fn corpora_are_replayed() {
    assert!(block::testing::replay("brp_target_session", crate::testing::fuzz::target_session) > 0);
    assert!(block::testing::replay("brp_host_session", crate::testing::fuzz::host_session) > 0);
}
