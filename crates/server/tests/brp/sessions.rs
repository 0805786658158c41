//! Sessions that outlive their connections.

use super::*;

/// BRP-30: every compare-and-write is executed once, although the server closes connections at any
/// moment: each counts a block up from what the host has last seen, so one that were lost or
/// executed twice would differ.
#[test]
fn a_counter_is_counted_up_once_for_each_command_while_connections_are_lost() {
    check_replays(Transport::Brp);
}

pub(crate) fn check_replays(over: Transport) {
    const COUNTS: u64 = 400;
    const LOSSES: usize = 12;
    let fixture = Fixture::over(over);
    let (_device, mut queue) = fixture.attach("");
    let counting = std::thread::spawn(move || {
        for count in 0..COUNTS {
            let buffer = queue.buffer_mut(Slot(0));
            buffer[..1024].fill(0);
            buffer[..8].copy_from_slice(&count.to_le_bytes());
            buffer[512..520].copy_from_slice(&(count + 1).to_le_bytes());
            run(&mut queue, Operation::CompareAndWrite, 7, 1).expect("nobody else counts");
            std::thread::sleep(Duration::from_millis(1));
        }
        run(&mut queue, Operation::Read, 7, 1).expect("read");
        let count = queue.buffer(Slot(0))[..8].try_into().expect("8 bytes");
        u64::from_le_bytes(count)
    });
    let (server, portal) = (&fixture.server, fixture.portal);
    let mut resumed = 0;
    for _ in 0..LOSSES {
        std::thread::sleep(Duration::from_millis(20));
        server.remove_portal(portal).expect("it is open");
        wait_until(|| server.sessions().is_empty());
        server.add_portal(portal).expect("the port is free");
        wait_until(|| counting.is_finished() || !server.sessions().is_empty());
        let sessions = server.sessions();
        let has_resumed = |protocol: &SessionProtocol| {
            matches!(
                protocol,
                SessionProtocol::Brp {
                    is_resumed: true,
                    ..
                }
            )
        };
        resumed += sessions
            .iter()
            .filter(|it| has_resumed(&it.protocol))
            .count();
    }
    assert_eq!(counting.join().expect("no panic"), COUNTS);
    assert!(resumed > 0, "sessions have gone on");
}

/// BRP-27, BRP-28, BRP-29.
#[test]
fn a_session_goes_on_for_its_host_alone_and_takes_it_from_the_old_connection() {
    let fixture = Fixture::new();
    let (mut first, reply) = Raw::logged_in(fixture.address(), &login());
    first.write(0, 1, 0, 7);
    first.expect_reply(0, Status::Success);
    let mut resume = login();
    resume.session = reply.session;
    let mut stranger = resume;
    stranger.host = brp::wire::NameField::new("nqn.other").expect("a name");
    let mut raw = Raw::connect(fixture.address());
    raw.send(stranger.as_bytes());
    assert_eq!(
        raw.login_reply().status.get(),
        LoginStatus::NoSession as u16
    );
    let (mut second, again) = Raw::logged_in(fixture.address(), &resume);
    assert_eq!(again.session, reply.session);
    first.expect_fault(Violation::Replaced);
    // Another host's write comes in between; the replay must not undo it.
    let (mut other, _) = Raw::logged_in(fixture.address(), &login());
    other.write(0, 1, 0, 8);
    other.expect_reply(0, Status::Success);
    second.write(0, 1, 0, 7);
    second.expect_reply(0, Status::Success);
    assert_eq!(second.read(1, 1, 0), [8; 512]);
    wait_until(|| fixture.server.sessions().len() == 2);
}

/// BRP-34: a tag whose command was given up is used with a higher number, on the same session.
#[test]
fn a_command_is_given_up_by_a_higher_number() {
    let fixture = Fixture::new();
    let (mut first, reply) = Raw::logged_in(fixture.address(), &login());
    let mut write = command(WireOperation::Write, 0, 1, 3);
    write.data_bytes.set(512);
    first.send(write.as_bytes());
    first.send(&[7; 100]);
    assert!(
        first.is_silent(Duration::from_millis(50)),
        "it waits for data"
    );
    drop(first);
    let mut resume = login();
    resume.session = reply.session;
    let (mut second, _) = Raw::logged_in(fixture.address(), &resume);
    second.write(0, 2, 4, 9);
    second.expect_reply(0, Status::Success);
    assert_eq!(second.read(0, 3, 3), [0; 512], "the other was never whole");
    assert_eq!(second.read(0, 4, 4), [9; 512]);
}

/// BRP-32: a target keeps 64 sessions of a host that have no connection, and forgets the longest
/// detached ones.
#[test]
fn detached_sessions_are_bounded_and_end_with_their_hold_time() {
    const KEPT: usize = 64;
    let fixture = Fixture::new();
    let detach = |hold_ms: u32| {
        let mut login = login();
        login.hold_ms.set(hold_ms);
        let (raw, reply) = Raw::logged_in(fixture.address(), &login);
        drop(raw);
        wait_until(|| fixture.server.sessions().is_empty());
        reply.session
    };
    let resumes = |session| {
        let mut login = login();
        login.session = session;
        let mut raw = Raw::connect(fixture.address());
        raw.send(login.as_bytes());
        let status = raw.login_reply().status.get();
        drop(raw);
        wait_until(|| fixture.server.portals()[0].connections == 0);
        status == LoginStatus::Ok as u16
    };
    let sessions: Vec<_> = (0..=KEPT).map(|_| detach(60_000)).collect();
    assert!(!resumes(sessions[0]), "the oldest is forgotten");
    assert!(resumes(sessions[1]) && resumes(sessions[KEPT]));
    let short = detach(20);
    std::thread::sleep(Duration::from_millis(60));
    assert!(!resumes(short));
    assert!(!resumes(detach(0)));
}
