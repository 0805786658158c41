//! Calls through a session, and the bytes of callbacks.

use super::*;
use crate::clients::Clients;
use crate::testing::compounds::{
    create_session, exchange, head, open, result, root, sequenced, skip_sequence, state_id,
};
use crate::testing::locks::{grant, lock, lock_call};
use crate::testing::{Arguments, Peer};
use crate::tests::Setup;

// Procedures of NLM.
const TEST: u32 = 1;
const LOCK: u32 = 2;
const CANCEL: u32 = 3;
const UNLOCK: u32 = 4;
const FREE_ALL: u32 = 23;

impl Setup {
    /// Calls a procedure and returns the status.
    fn locked(&mut self, procedure: u32, arguments: Arguments) -> u32 {
        let mut reply = self.peer.lock_call(&mut self.server, procedure, arguments);
        assert_eq!(reply.opaque(), b"cook", "the cookie");
        let status = reply.u32();
        if procedure != TEST || status != 1 {
            reply.end();
        }
        status
    }
}

impl Setup {
    /// See [`Clients::records_number`].
    fn records_number(&mut self) -> u64 {
        let mut number = 0;
        self.server
            .with_clients(&mut |clients| number = clients.records_number());
        number
    }
}

fn cookie() -> Arguments {
    Arguments::default().opaque(b"cook")
}

#[test]
fn locks_of_owners_exclude_each_other() {
    let mut setup = Setup::new();
    let file = setup.create(b"file", 0o644);
    let (first, second) = (lock(&file, 1, (0, 10)), lock(&file, 2, (5, 0)));
    assert_eq!(setup.locked(LOCK, lock_call(0, 1, &first)), 0);
    assert_eq!(setup.locked(LOCK, lock_call(0, 0, &second)), 1);
    let test = cookie().u32(0).raw(&second.0);
    let mut reply = setup.peer.lock_call(&mut setup.server, TEST, test.clone());
    assert_eq!((reply.opaque(), reply.u32()), (b"cook".to_vec(), 1));
    assert_eq!((reply.bool(), reply.u32()), (true, 1), "exclusive, svid");
    assert_eq!(reply.opaque(), b"1@client");
    assert_eq!((reply.u64(), reply.u64()), (0, 10));
    reply.end();
    assert_eq!(
        setup.locked(UNLOCK, cookie().raw(&lock(&file, 1, (5, 0)).0)),
        0
    );
    assert_eq!(setup.locked(TEST, test), 0);
    assert_eq!(setup.locked(LOCK, lock_call(0, 0, &second)), 0);
    assert_eq!(setup.server.count_clients().locks, 2);
    let free = Arguments::default().opaque(b"client").u32(0);
    setup
        .peer
        .lock_call(&mut setup.server, FREE_ALL, free)
        .end();
    assert_eq!(setup.server.count_clients().locks, 0);
}

#[test]
fn an_owner_waits_is_told_and_may_cancel() {
    let mut setup = Setup::new();
    let file = setup.create(b"file", 0o644);
    let (first, second) = (lock(&file, 1, (0, 0)), lock(&file, 2, (0, 0)));
    let unlock = cookie().raw(&first.0);
    assert_eq!(setup.locked(LOCK, lock_call(1, 1, &first)), 0);
    assert_eq!(setup.locked(LOCK, lock_call(1, 1, &second)), 3);
    let cancel = cookie().u32(1).u32(1).raw(&second.0);
    assert_eq!(setup.locked(CANCEL, cancel.clone()), 0);
    assert_eq!(setup.locked(CANCEL, cancel), 1);
    assert_eq!(setup.locked(LOCK, lock_call(1, 1, &second)), 3);
    assert_eq!(setup.locked(UNLOCK, unlock), 0);
    let grant = setup.server.next_grant().expect("the second");
    let call = grant.call(9);
    let golden = [
        &[
            0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 2, 0, 1, 0x86, 0xb5, 0, 0, 0, 4, 0, 0, 0, 5,
        ][..],
        &[0; 16],
        &[0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1],
        &second.0,
    ];
    assert_eq!(
        call[4..],
        golden.concat(),
        "a call with the arguments of TEST"
    );
    setup.server.end_grant(&grant, false);
    assert_eq!(
        setup.locked(LOCK, lock_call(0, 1, &first)),
        0,
        "it was released"
    );
}

#[test]
fn replies_to_callbacks_accept_refuse_or_say_nothing() {
    let reply = |status: u8, cookie: &[u8]| {
        let head = [0x80, 0, 0, 36, 0, 0, 0, 9, 0, 0, 0, 1];
        [
            &head[..],
            &[0; 16],
            &[0, 0, 0, 4],
            cookie,
            &[0, 0, 0, status],
        ]
        .concat()
    };
    for (status, accepted) in [(0, Some(true)), (1, Some(false)), (4, None)] {
        assert_eq!(Grant::read_reply(9, &reply(status, b"cook")), accepted);
    }
    assert_eq!(
        Grant::read_reply(8, &reply(0, b"cook")),
        None,
        "another call's"
    );
    assert_eq!(Grant::read_reply(9, &reply(0, b"cookie--")), None);
    assert_eq!(Grant::read_reply(9, &[]), None);
    let mut clients = Clients::new(1);
    grant(&mut clients, [127, 0, 0, 1].into());
    assert!(clients.has_grants());
}

#[test]
fn locks_of_version_4_and_of_nlm_exclude_each_other() {
    let mut setup = Setup::new();
    let file = setup.create(b"file", 0o644);
    let mut peer = Peer::default();
    let mut reply = peer.compound(&mut setup.server, exchange(b"four", 1, 0));
    assert_eq!((head(&mut reply), result(&mut reply)), ((0, 1), (42, 0)));
    let client = reply.u64();
    let mut reply = peer.compound(&mut setup.server, create_session(client, 1));
    assert_eq!((head(&mut reply), result(&mut reply)), ((0, 1), (43, 0)));
    let session = state_id(&mut reply);
    let mut sequence = 0;
    let mut run = |setup: &mut Setup, count: u32, operations: &Arguments| {
        sequence += 1;
        let operations = sequenced(&session, (0, sequence, 0), operations);
        let arguments = Arguments::default().opaque(b"").u32(2).u32(count + 1);
        let mut reply = peer.compound(&mut setup.server, arguments.raw(&operations.0));
        let (status, _) = head(&mut reply);
        skip_sequence(&mut reply);
        (status, reply)
    };
    // RECLAIM_COMPLETE, PUTROOTFH, LOOKUP of `db`, OPEN, and LOCK of the first 10 bytes with the
    // current state ID.
    let reclaimed = Arguments::default().u32(58).u32(0);
    let opened = open((client, b"four"), (3, 0), b"file");
    let current = [0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let locked = Arguments::default().u32(12).u32(2).u32(0).u64(0).u64(10);
    let locked = locked
        .u32(1)
        .u32(0)
        .raw(&current)
        .u32(0)
        .u64(client)
        .opaque(b"locker");
    let operations = reclaimed.raw(&root().raw(&opened.0).0).raw(&locked.0);
    let four = run(&mut setup, 5, &operations).0;
    assert_eq!(four, 0);
    let mine = lock(&file, 1, (5, 10));
    assert_eq!(setup.locked(LOCK, lock_call(0, 1, &mine)), 1);
    let mut reply = setup
        .peer
        .lock_call(&mut setup.server, TEST, cookie().u32(1).raw(&mine.0));
    assert_eq!((reply.opaque(), reply.u32()), (b"cook".to_vec(), 1));
    assert_eq!(
        (reply.bool(), reply.u32(), reply.opaque()),
        (true, 0, b"locker".to_vec())
    );
    let behind = lock(&file, 1, (10, 10));
    assert_eq!(setup.locked(LOCK, lock_call(0, 1, &behind)), 0);
    // LOCKT of version 4, of bytes that NLM has locked: NFS4ERR_DENIED.
    let lookup = Arguments::default().u32(15).opaque(b"file");
    let tested = Arguments::default()
        .u32(13)
        .u32(1)
        .u64(15)
        .u64(1)
        .u64(client)
        .opaque(b"locker");
    let operations = root().raw(&lookup.0).raw(&tested.0);
    assert_eq!(run(&mut setup, 4, &operations).0, 10_010);
}

#[test]
fn invalid_locks_have_the_error_that_the_specification_names() {
    let mut setup = Setup::new();
    let file = setup.create(b"file", 0o644);
    let root = setup.root.clone();
    let mut strange = file.clone();
    strange[0] ^= 1;
    for (handle, range, status) in [
        (&file, (u64::MAX, 2), LockStatus::TooLarge),
        (&root, (0, 1), LockStatus::Failed),
        (&strange, (0, 1), LockStatus::StaleHandle),
        (&file[..31].to_vec(), (0, 1), LockStatus::StaleHandle),
    ] {
        let call = lock_call(0, 1, &lock(handle, 1, range));
        assert_eq!(setup.locked(LOCK, call), status as u32);
    }
    let secret = setup.create(b"secret", 0o600);
    setup.peer.user = (1000, 1000);
    let call = lock_call(0, 0, &lock(&secret, 1, (0, 1)));
    assert_eq!(setup.locked(LOCK, call), LockStatus::Denied as u32);
    // A lock that is reclaimed, since there is no grace period.
    let call = cookie()
        .u32(0)
        .u32(0)
        .raw(&lock(&file, 1, (0, 1)).0)
        .u32(1)
        .u32(7);
    assert_eq!(setup.locked(LOCK, call), LockStatus::Denied as u32);
    assert_eq!(setup.server.count_clients().locks, 0);
}

#[test]
fn a_client_reclaims_its_locks_in_the_grace_period_and_no_other_does() {
    let mut setup = Setup::new();
    setup.server.exports[0].outlives_restart = true;
    let file = setup.create(b"file", 0o644);
    let claim = |lock: &Arguments, is_reclaim| {
        let call = cookie().u32(0).u32(1).raw(&lock.0);
        call.u32(is_reclaim).u32(7)
    };
    let (own, more) = (lock(&file, 1, (0, 10)), lock(&file, 1, (20, 10)));
    assert_eq!(setup.locked(LOCK, claim(&own, 0)), 0);
    let (denied, grace) = (LockStatus::Denied as u32, LockStatus::Grace as u32);
    assert_eq!(setup.locked(LOCK, claim(&own, 1)), denied, "no restart");
    // Nothing is saved again for each lock.
    let saved = setup.records_number();
    assert_eq!(setup.locked(UNLOCK, cookie().raw(&own.0)), 0);
    assert_eq!(setup.locked(LOCK, claim(&own, 0)), 0);
    assert_eq!(setup.records_number(), saved);

    setup.server.restart(setup.peer.now);
    assert_eq!(setup.server.count_clients().locks, 0);
    assert_eq!(setup.locked(LOCK, claim(&more, 0)), grace);
    let here = setup.server.client;
    setup.server.client = [192, 0, 2, 9].into();
    assert_eq!(setup.locked(LOCK, claim(&own, 1)), denied, "a stranger");
    setup.server.client = here;
    assert_eq!(setup.locked(LOCK, claim(&own, 1)), 0);
    assert_eq!(setup.locked(LOCK, claim(&more, 0)), grace, "still");
    setup.peer.now += crate::clients::LEASE;
    assert_eq!(setup.locked(LOCK, claim(&more, 1)), denied, "too late");
    assert_eq!(setup.locked(LOCK, claim(&more, 0)), 0);
    assert_eq!(setup.server.count_clients().locks, 2);
}

#[test]
fn a_client_that_has_restarted_or_stays_away_reclaims_nothing() {
    let mut setup = Setup::new();
    setup.server.exports[0].outlives_restart = true;
    let file = setup.create(b"file", 0o644);
    let own = lock(&file, 1, (0, 10));
    let reclaim = cookie().u32(0).u32(1).raw(&own.0).u32(1).u32(7);
    let (denied, free) = (
        LockStatus::Denied as u32,
        Arguments::default().opaque(b"client").u32(9),
    );
    assert_eq!(setup.locked(LOCK, lock_call(0, 1, &own)), 0);
    setup.server.restart(setup.peer.now);
    let freed = (setup.peer).lock_call(&mut setup.server, FREE_ALL, free);
    freed.end();
    assert_eq!(setup.locked(LOCK, reclaim.clone()), denied);
    assert_eq!(
        setup.locked(LOCK, lock_call(0, 1, &own)),
        0,
        "nobody is waited for"
    );

    setup.server.restart(setup.peer.now);
    setup.peer.now += crate::clients::LEASE;
    let other = lock(&file, 2, (50, 1));
    let test = cookie().u32(0).raw(&other.0);
    assert_eq!(setup.locked(TEST, test), 0, "the grace period is over");
    setup.server.restart(setup.peer.now);
    assert_eq!(
        setup.locked(LOCK, reclaim),
        denied,
        "it was away in the last one"
    );
}

#[test]
fn a_bounded_number_of_clients_is_noted() {
    let mut setup = Setup::new();
    setup.server.exports[0].outlives_restart = true;
    let file = setup.create(b"file", 0o644);
    let own = lock(&file, 1, (0, 10));
    for number in 0..2_100_u32 {
        setup.server.client = std::net::IpAddr::from((0x0a00_0000 + number).to_be_bytes());
        assert_eq!(setup.locked(LOCK, lock_call(0, 1, &own)), 0);
        assert_eq!(setup.locked(UNLOCK, cookie().raw(&own.0)), 0);
    }
    let mut hosts = Vec::new();
    setup
        .server
        .with_clients(&mut |clients| hosts = clients.lock_hosts());
    assert_eq!(hosts.len(), crate::LockHost::HOSTS_MAX);
    assert_eq!(
        hosts.last().map(|host| host.address),
        Some(setup.server.client)
    );
}
