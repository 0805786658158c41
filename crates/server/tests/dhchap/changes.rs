//! Secrets and access that change while hosts authenticate.

use std::sync::atomic::AtomicBool;
use std::thread;

use crate::hostile::portal_that_requires_proof;
use crate::raw_host::Raw;

use super::*;

const OTHER_SECRET: u8 = 3;

/// The host with this secret, or none, and another one that is valid meanwhile.
fn with_secrets(byte: Option<u8>, other: Option<u8>) -> HostDefinition {
    let mut host = host(None, DhGroupPolicy::NoGroup, byte.unwrap_or(OTHER_SECRET));
    let dhchap = host.dhchap.take().expect("set");
    host.dhchap = byte.map(|_| {
        Arc::new(DhChapDefinition {
            other_secret: other.map(secret),
            ..(*dhchap).clone()
        })
    });
    host
}

#[test]
fn a_secret_that_is_revoked_while_its_host_authenticates_proves_nothing() {
    let fixture = Fixture::new(None, DhGroupPolicy::NoGroup);
    let portals = [fixture.tcp, portal_that_requires_proof(&fixture)];
    for (now, is_accepted) in [
        (with_secrets(Some(HOST_SECRET), None), true),
        (with_secrets(Some(OTHER_SECRET), Some(HOST_SECRET)), true),
        (with_secrets(Some(OTHER_SECRET), None), false),
        (with_secrets(None, None), false),
    ] {
        for portal in &portals {
            let before = with_secrets(Some(HOST_SECRET), None);
            fixture.server.change_host(before).expect("changes");
            let mut raw = Raw::connected(portal);
            let mut auth = prover(HOST_SECRET);
            // AUTH_Negotiate and the challenge.
            assert_eq!((raw.step(&mut auth), raw.step(&mut auth)), (None, None));
            fixture.server.change_host(now.clone()).expect("changes");
            let end = raw.authenticate(&mut auth);
            assert_eq!(end == AuthStep::Done, is_accepted, "{end:?}");
            assert_eq!(raw.is_admitted(), is_accepted);
        }
    }
}

#[test]
fn a_secret_that_is_revoked_ends_no_session_but_admits_no_further_queue() {
    let fixture = Fixture::new(None, DhGroupPolicy::NoGroup);
    let mut raw = Raw::connected(&fixture.tcp);
    let proven = raw.authenticate(&mut prover(HOST_SECRET));
    assert_eq!(proven, AuthStep::Done);
    for now in [
        with_secrets(Some(OTHER_SECRET), None),
        with_secrets(None, None),
    ] {
        fixture.server.change_host(now).expect("changes");
        assert!(raw.is_admitted());
    }
    // It has no secret any more that could be proven.
    let again = raw.authenticate(&mut prover(HOST_SECRET));
    assert!(matches!(again, AuthStep::Failed(_)), "{again:?}");
    assert!(!raw.is_admitted());
}

#[test]
fn a_host_that_loses_its_access_while_it_authenticates_is_disconnected() {
    let fixture = Fixture::new(None, DhGroupPolicy::NoGroup);
    let mut raw = Raw::connected(&fixture.tcp);
    let mut auth = prover(HOST_SECRET);
    assert_eq!(raw.step(&mut auth), None);
    let name = NQN.parse().expect("a name");
    let nobody = HostPolicy::Listed(Vec::new());
    let server = &fixture.server;
    server.set_target_hosts(&name, nobody).expect("changes");
    server
        .remove_host(&HOST.parse().expect("a name"))
        .expect("no list names it");
    assert!(!raw.is_admitted());
    wait_for_no_session(server);
}

fn wait_for_no_session(server: &Server) {
    let until = Instant::now() + PATIENCE;
    while !server.sessions().is_empty() {
        assert!(Instant::now() < until, "a session stays");
        thread::sleep(Duration::from_millis(2));
    }
}

/// How often our host authenticates again, in these tests.
const INTERVAL: Duration = Duration::from_secs(1);

#[test]
fn our_host_authenticates_again_with_the_secret_of_the_moment() {
    let fixture = Fixture::new(None, DhGroupPolicy::NoGroup);
    let file = fixture.files.join("changing");
    let write = |byte| {
        let text = format!("{}\n", *secret(byte).reveal());
        std::fs::write(&file, text).expect("writes");
    };
    let set = |byte, other| {
        let now = with_secrets(Some(byte), other);
        fixture.server.change_host(now).expect("changes");
    };
    let ctrl = fixture.files.join(CTRL_SECRET.to_string());
    write(HOST_SECRET);
    for portal in [fixture.tcp, fixture.rdma] {
        let options = format!(
            "&dhchap-secret-file={}&dhchap-ctrl-secret-file={}&dhchap-interval={}",
            file.display(),
            ctrl.display(),
            INTERVAL.as_secs()
        );
        let url = Fixture::url(&portal, &options);
        let attached = Device::connect(&url, &DeviceOptions::default());
        let mut device = attached.expect("attaches");
        let mut queue = device.take_queues().remove(0);
        let sessions = || {
            let sessions = fixture.server.sessions();
            let mut ids: Vec<_> = sessions.iter().map(|session| session.id).collect();
            ids.sort_unstable();
            ids
        };
        let first = sessions();
        // The secret is changed while two are valid, and the session goes on.
        set(OTHER_SECRET, Some(HOST_SECRET));
        write(OTHER_SECRET);
        for step in 0..2 {
            if step == 1 {
                set(OTHER_SECRET, None);
            }
            let changed = Instant::now();
            while changed.elapsed() < 2 * INTERVAL {
                read(&mut queue).expect("the queue goes on");
                thread::sleep(INTERVAL / 20);
            }
        }
        assert_eq!(sessions(), first);
        // Only the target changes it: what it admitted before ends.
        set(HOST_SECRET, None);
        wait_for_no_session(&fixture.server);
        // The host has it now, too: its queues connect again.
        write(HOST_SECRET);
        read(&mut queue).expect("the queue goes on");
        drop((queue, device));
        wait_for_no_session(&fixture.server);
    }
}

/// Threads that attach while secrets change.
const HOSTS: usize = 4;
const CHANGES: usize = 100;

#[test]
fn secrets_change_while_many_hosts_authenticate() {
    let fixture = Fixture::new(None, DhGroupPolicy::Any);
    let before = fixture.server.capacity().used_bytes;
    let ends = AtomicBool::new(false);
    let [old, new] = [HOST_SECRET, OTHER_SECRET].map(|byte| fixture.secrets(byte, CTRL_SECRET));
    let attach = |options: &str| {
        let mut accepted = 0;
        while !ends.load(Ordering::Relaxed) {
            match fixture.try_tcp(options) {
                Ok(()) => accepted += 1,
                Err(error) => assert!(error.contains("rejected the authentication"), "{error}"),
            }
        }
        accepted
    };
    let accepted = thread::scope(|scope| {
        let (attach, secrets) = (&attach, [&old, &new]);
        let hosts: Vec<_> = (0..HOSTS)
            .map(|at| scope.spawn(move || attach(secrets[at % 2])))
            .collect();
        for at in 0..CHANGES {
            let byte = [HOST_SECRET, OTHER_SECRET][at % 2];
            let now = with_secrets(Some(byte), None);
            fixture.server.change_host(now).expect("changes");
            thread::sleep(Duration::from_millis(20));
        }
        ends.store(true, Ordering::Relaxed);
        hosts
            .into_iter()
            .map(|host| host.join().expect("only refusals"))
            .sum::<usize>()
    });
    assert!(accepted > 0);
    let until = Instant::now() + PATIENCE;
    while !fixture.server.sessions().is_empty() || fixture.server.capacity().used_bytes > before {
        assert!(Instant::now() < until, "sessions or memory stay");
        thread::sleep(Duration::from_millis(2));
    }
    // The last change counts.
    assert_eq!(fixture.try_tcp(&new), Ok(()));
    assert_rejected(fixture.try_tcp(&old));
}
