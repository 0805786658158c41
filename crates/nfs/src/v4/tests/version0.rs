//! Clients of minor version 0: client IDs, numbered requests of owners, leases, and beside them
//! clients with sessions.

use super::*;
use crate::testing::version0::{OldClient, compound_0, set_client};

// Status codes.
const DENIED: u32 = 10_010;
const EXPIRED: u32 = 10_011;
const GRACE: u32 = 10_013;
const SHARE_DENIED: u32 = 10_015;
const CLIENT_ID_IN_USE: u32 = 10_017;
const RESOURCE: u32 = 10_018;
const STALE_CLIENT_ID: u32 = 10_022;
const STALE_STATE_ID: u32 = 10_023;
const OLD_STATE_ID: u32 = 10_024;
const BAD_STATE_ID: u32 = 10_025;
const BAD_SEQUENCE: u32 = 10_026;
const NO_GRACE: u32 = 10_033;
const LOCKS_HELD: u32 = 10_037;
const ILLEGAL: u32 = 10_044;

/// More than half of a lease.
const HALF: Duration = Duration::from_secs(50);
/// How long a client keeps its state, and how long the grace period is.
const LEASE: Duration = Duration::from_secs(90);

/// SETCLIENTID. Returns the client ID and the verifier that confirms it.
fn identified(client: &mut OldClient, server: &mut TestServer, verifier: u64) -> (u64, u64) {
    let mut reply = client.call(server, 1, &set_client(client.owner, verifier));
    assert_eq!(result(&mut reply), (35, OK));
    (reply.u64(), reply.u64())
}

fn confirmed(client: &mut OldClient, server: &mut TestServer, id: (u64, u64)) -> u32 {
    let confirm = args().u32(36).u64(id.0).u64(id.1);
    result(&mut client.call(server, 1, &confirm)).1
}

fn renewed(client: &mut OldClient, server: &mut TestServer, id: u64) -> u32 {
    result(&mut client.call(server, 1, &args().u32(30).u64(id))).1
}

#[test]
fn a_file_is_opened_confirmed_downgraded_and_closed() {
    let mut server = TestServer::new(tree());
    let mut client = OldClient::new(&mut server, b"old", 1);
    let (status, first, needs_confirmation) = client.try_open(&mut server, b"file", (3, 0));
    assert_eq!((status, needs_confirmation), (OK, true));
    // Before it is confirmed nothing can be done with it.
    let write = |open: &[u8]| args().u32(38).raw(open).u64(0).u32(0).opaque(b"data");
    assert_eq!(
        client.on_file(&mut server, b"file", &write(&first)).u32(),
        BAD_STATE_ID
    );
    let (status, open) = client.confirm(&mut server, b"file", &first);
    assert_eq!(status, OK);
    assert_eq!(
        client.on_file(&mut server, b"file", &write(&first)).u32(),
        OLD_STATE_ID
    );
    assert_eq!(
        client.on_file(&mut server, b"file", &write(&open)).u32(),
        OK
    );
    // A second file needs no confirmation any more.
    assert!(!client.try_open(&mut server, b"other", (1, 0)).2);
    // For reading alone, which one OPEN was for, then closed.
    let open = client.open(&mut server, b"file", (1, 0));
    let down = args().u32(21).raw(&open).u32(client.open_number);
    client.open_number += 1;
    let mut reply = client.on_file(&mut server, b"file", &down.u32(1).u32(0));
    assert_eq!(reply.u32(), OK);
    let open = state_id(&mut reply);
    assert_eq!(
        client.on_file(&mut server, b"file", &write(&open)).u32(),
        10_038
    );
    assert_eq!(client.close(&mut server, &open), OK);
    assert_eq!(server.count_clients().opens, 1);
}

#[test]
fn locks_are_taken_tested_released_and_forgotten() {
    let mut server = TestServer::new(tree());
    let mut client = OldClient::new(&mut server, b"old", 1);
    let open = client.open(&mut server, b"file", (3, 0));
    let mut reply = client.first_lock(&mut server, &open, 0, (0, 10));
    assert_eq!(reply.u32(), OK);
    let locks = state_id(&mut reply);
    let mut reply = client.next_lock(&mut server, &locks, (20, 10));
    assert_eq!(reply.u32(), OK);
    let locks = state_id(&mut reply);
    let test = |owner: &[u8]| {
        args()
            .u32(13)
            .u32(2)
            .u64(0)
            .u64(5)
            .u64(client.id)
            .opaque(owner)
    };
    let (own, other) = (test(b"old"), test(b"other"));
    assert_eq!(client.on_file(&mut server, b"file", &own).u32(), OK);
    assert_eq!(client.on_file(&mut server, b"file", &other).u32(), DENIED);
    let release = args().u32(39).u64(client.id).opaque(b"old");
    let mut reply = client.call(&mut server, 1, &release);
    assert_eq!(result(&mut reply), (39, LOCKS_HELD));
    let unlock = args().u32(14).u32(2).u32(client.lock_number).raw(&locks);
    let unlock = unlock.u64(0).u64(u64::MAX);
    assert_eq!(client.on_file(&mut server, b"file", &unlock).u32(), OK);
    let mut reply = client.call(&mut server, 1, &release);
    assert_eq!(result(&mut reply), (39, OK));
}

#[test]
fn a_repeated_request_of_an_owner_has_the_results_of_the_first() {
    let mut server = TestServer::new(tree());
    let mut client = OldClient::new(&mut server, b"old", 1);
    let open = client.open(&mut server, b"file", (3, 0));
    // GUARDED4, which would fail a second time; with GETFH behind it.
    let create = args().u32(18).u32(client.open_number).u32(3).u32(0);
    let create = create.u64(client.id).opaque(b"old").u32(1).u32(1);
    let create = create.u32(0).u32(0).u32(0).opaque(b"new").u32(10);
    client.open_number += 1;
    let mut call = |client: &mut OldClient, operation: &Arguments, count| {
        let reply = client.call(&mut server, count, operation);
        reply.bytes()[24..].to_vec()
    };
    let created = root().raw(&create.0);
    let first = call(&mut client, &created, 4);
    assert_eq!(first[..8], [0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(call(&mut client, &created, 4), first);
    // LOCK: granted, and repeated with its old state ID; denied, and repeated when it would be
    // granted.
    let locate = root().u32(15).opaque(b"file");
    let lock = |client: &OldClient, owner: &[u8], range: u64| {
        let lock = args().u32(12).u32(2).u32(0).u64(range).u64(1).u32(1);
        let lock = lock.u32(client.open_number).raw(&open).u32(0);
        locate.clone().raw(&lock.u64(client.id).opaque(owner).0)
    };
    let granted = lock(&client, b"one", 5);
    client.open_number += 1;
    let first = call(&mut client, &granted, 4);
    assert_eq!(call(&mut client, &granted, 4), first);
    let denied = lock(&client, b"two", 5);
    client.open_number += 1;
    let first = call(&mut client, &denied, 4);
    assert_eq!(first[..4], DENIED.to_be_bytes());
    assert_eq!(call(&mut client, &denied, 4), first);
    // CLOSE, whose state is gone. The locks end with it.
    let close = args().u32(4).u32(client.open_number).raw(&open);
    let close = locate.clone().raw(&close.0);
    let first = call(&mut client, &close, 4);
    assert_eq!(first[..4], OK.to_be_bytes());
    assert_eq!(call(&mut client, &close, 4), first);
    assert_eq!(server.count_clients().locks, 0);
}

/// What the number of a request leads to, by the last one (RFC 7530 section 9.1.7).
#[test]
fn numbers_of_requests_follow_each_other() {
    let mut server = TestServer::new(tree());
    let mut client = OldClient::new(&mut server, b"old", 1);
    let open = client.open(&mut server, b"file", (3, 0));
    let last = client.open_number - 1;
    for (number, status) in [
        // The last one, of another operation; those before and behind.
        (last, BAD_SEQUENCE),
        (last - 1, BAD_SEQUENCE),
        (last + 2, BAD_SEQUENCE),
        (0, BAD_SEQUENCE),
        (last + 1, OK),
    ] {
        client.open_number = number;
        assert_eq!(
            client.try_open(&mut server, b"other", (1, 0)).0,
            status,
            "{number}"
        );
    }
    // Some errors take the number, and some do not.
    let missing = args().u32(18).u32(client.open_number).u32(1).u32(0);
    let missing = missing.u64(client.id).opaque(b"old").u32(0).u32(0);
    let mut reply = client.in_root(&mut server, &missing.opaque(b"missing"));
    assert_eq!(reply.u32(), 2);
    assert_eq!(
        client.try_open(&mut server, b"other", (1, 0)).0,
        BAD_SEQUENCE
    );
    let close = |number: u32, open: &[u8]| args().u32(4).u32(number).raw(open);
    let number = client.open_number;
    let bad = [&[0, 0, 0, 9], &open[4..]].concat();
    for _ in 0..2 {
        let mut reply = client.on_file(&mut server, b"file", &close(number, &bad));
        assert_eq!(reply.u32(), BAD_STATE_ID);
    }
    let mut reply = client.on_file(&mut server, b"file", &close(number, &open));
    assert_eq!(reply.u32(), OK);
    // A lock-owner has numbers of its own.
    client.open_number = number + 1;
    let open = client.open(&mut server, b"file", (3, 0));
    let mut reply = client.first_lock(&mut server, &open, 0, (0, 1));
    assert_eq!(reply.u32(), OK);
    let locks = state_id(&mut reply);
    client.lock_number += 1;
    assert_eq!(
        client.next_lock(&mut server, &locks, (1, 1)).u32(),
        BAD_SEQUENCE
    );
    client.lock_number -= 2;
    assert_eq!(client.next_lock(&mut server, &locks, (1, 1)).u32(), OK);
    assert_eq!(
        client.next_lock(&mut server, &locks, (2, 1)).u32(),
        OLD_STATE_ID
    );
}

#[test]
fn an_open_that_is_not_confirmed_ends_with_the_next_one() {
    let mut server = TestServer::new(tree());
    let mut client = OldClient::new(&mut server, b"old", 1);
    let mut other = OldClient::new(&mut server, b"other", 1);
    let (_, late, _) = client.try_open(&mut server, b"file", (3, 3));
    assert_eq!(other.try_open(&mut server, b"file", (1, 0)).0, SHARE_DENIED);
    // The client knows nothing of that one: it begins with another number.
    client.open_number = 100;
    let (status, open, needs_confirmation) = client.try_open(&mut server, b"third", (1, 0));
    assert_eq!((status, needs_confirmation), (OK, true));
    assert_eq!(other.try_open(&mut server, b"file", (1, 0)).0, OK);
    assert_eq!(client.confirm(&mut server, b"file", &late).0, BAD_STATE_ID);
    client.open_number -= 1;
    assert_eq!(client.confirm(&mut server, b"third", &open).0, OK);
    // Once only.
    assert_eq!(client.confirm(&mut server, b"third", &open).0, BAD_STATE_ID);
    assert_eq!(server.count_clients().opens, 2);
}

/// The cases of RFC 7530 sections 16.33.5 and 16.34.5.
#[test]
fn client_ids_are_set_and_confirmed_as_rfc_7530_says() {
    let mut server = TestServer::new(tree());
    let mut client = OldClient::new(&mut server, b"old", 1);
    let open = client.open(&mut server, b"file", (3, 3));
    let id = client.id;
    // The same client again: a new verifier, and nothing is lost. Both confirm any number of times,
    // but no others.
    let again = identified(&mut client, &mut server, 1);
    assert_eq!(again.0, id);
    for (verifier, status) in [(again.1, OK), (again.1, OK), (again.1 + 1, STALE_CLIENT_ID)] {
        assert_eq!(confirmed(&mut client, &mut server, (id, verifier)), status);
    }
    // The client restarts, twice: the first of the two is replaced, and nothing is lost yet.
    let first = identified(&mut client, &mut server, 2);
    let second = identified(&mut client, &mut server, 3);
    assert!(first.0 != id && second.0 != id && first.0 != second.0);
    assert_eq!(confirmed(&mut client, &mut server, first), STALE_CLIENT_ID);
    assert_eq!(renewed(&mut client, &mut server, id), OK);
    assert_eq!(renewed(&mut client, &mut server, second.0), STALE_CLIENT_ID);
    // Another user may not replace it, nor another address confirm it.
    client.peer.user = (1000, 1000);
    let mut reply = client.call(&mut server, 1, &set_client(b"old", 3));
    assert_eq!(result(&mut reply), (35, CLIENT_ID_IN_USE));
    assert_eq!(reply.u64(), 0, "an address of no client");
    reply.end();
    assert_eq!(
        confirmed(&mut client, &mut server, second),
        CLIENT_ID_IN_USE
    );
    client.peer.user = (0, 0);
    server.client = [192, 0, 2, 7].into();
    assert_eq!(
        confirmed(&mut client, &mut server, second),
        CLIENT_ID_IN_USE
    );
    assert_eq!(renewed(&mut client, &mut server, id), STALE_CLIENT_ID);
    assert_eq!(client.close(&mut server, &open), BAD_STATE_ID);
    server.client = [127, 0, 0, 1].into();
    assert_eq!(confirmed(&mut client, &mut server, second), OK);
    assert_eq!(renewed(&mut client, &mut server, id), EXPIRED);
    assert_eq!(client.close(&mut server, &open), EXPIRED);
    assert_eq!(server.count_clients().opens, 0);
}

#[test]
fn a_lease_is_renewed_by_any_operation_with_state_and_expires_otherwise() {
    let mut server = TestServer::new(tree());
    let mut one = OldClient::new(&mut server, b"one", 1);
    let mut two = OldClient::new(&mut server, b"two", 1);
    let open = one.open(&mut server, b"file", (3, 3));
    let read = args().u32(25).raw(&open).u64(0).u32(1);
    let anonymous = args().u32(25).raw(&[0; 16]).u64(0).u32(1);
    for _ in 0..3 {
        one.peer.now += HALF;
        assert_eq!(one.on_file(&mut server, b"file", &read).u32(), OK);
        one.peer.now += HALF;
        let id = one.id;
        assert_eq!(renewed(&mut one, &mut server, id), OK);
    }
    // The second was silent. Without a state ID, nothing renews the first one's lease.
    two.peer.now = one.peer.now;
    assert_eq!(two.try_open(&mut server, b"other", (1, 0)).0, EXPIRED);
    two.identify(&mut server, 1);
    assert_eq!(two.try_open(&mut server, b"file", (1, 0)).0, SHARE_DENIED);
    one.peer.now += HALF;
    assert_eq!(one.on_file(&mut server, b"file", &anonymous).u32(), 10_012);
    one.peer.now += HALF;
    assert_eq!(one.on_file(&mut server, b"file", &anonymous).u32(), OK);
    assert_eq!(one.on_file(&mut server, b"file", &read).u32(), EXPIRED);
    assert_eq!(one.close(&mut server, &open), EXPIRED);
}

#[test]
fn a_compound_that_is_sent_again_is_executed_once() {
    let mut server = TestServer::new(tree());
    let client = OldClient::new(&mut server, b"old", 1);
    // CREATE of a directory, which fails a second time.
    let create = args().u32(6).u32(2).opaque(b"dir").u32(0).u32(0);
    let create = compound_0(3, &root().raw(&create.0));
    let first = client.call_anew(&mut server, 0x1001, &create);
    assert_eq!(first.as_deref().map(|reply| &reply[..4]), Some(&[0; 4][..]));
    assert_eq!(client.call_anew(&mut server, 0x1001, &create), first);
    let other = client.call_anew(&mut server, 0x1002, &create);
    assert_eq!(other.expect("a reply")[..4], [0, 0, 0, 17], "it exists");
    // What only asks is executed again: the reply is about what is now.
    let ask = compound_0(3, &root().u32(15).opaque(b"later"));
    let missing = client
        .call_anew(&mut server, 0x1003, &ask)
        .expect("a reply");
    assert_eq!(missing[..4], [0, 0, 0, 2]);
    let later = args().u32(6).u32(2).opaque(b"later").u32(0).u32(0);
    let later = compound_0(3, &root().raw(&later.0));
    client.call_anew(&mut server, 0x1004, &later);
    let found = client
        .call_anew(&mut server, 0x1003, &ask)
        .expect("a reply");
    assert_eq!(found[..4], [0; 4]);
}

#[test]
fn operations_of_other_minor_versions_are_refused() {
    let mut server = TestServer::new(tree());
    let mut client = OldClient::new(&mut server, b"old", 1);
    for (number, shown) in [
        (0, 10_044),
        (2, 10_044),
        (40, 10_044),
        (53, 10_044),
        (200, 10_044),
    ] {
        let mut reply = client.call(&mut server, 1, &args().u32(number));
        assert_eq!(result(&mut reply), (shown, ILLEGAL), "{number}");
    }
    let mut reply = client.call(&mut server, 1, &args().u32(7).u64(client.id));
    assert_eq!(result(&mut reply), (7, 10_004), "DELEGPURGE");
    // RENEW and the others of minor version 0 are not supported later (RFC 8881 section 17).
    let mut new = Client::new(&mut server, b"new", 1);
    for number in [20, 30, 35, 36, 39] {
        let mut reply = new.call(&mut server, 1, &args().u32(number));
        assert_eq!(result(&mut reply), (number, 10_004));
    }
    // A minor version that is not served has no results, whatever the operations are.
    let later = args().opaque(b"").u32(3).u32(1).u32(53);
    let mut reply = client.peer.compound(&mut server, later);
    assert_eq!(head(&mut reply), (10_021, 0));
    // 65 operations are too many; 64 are not.
    let many = |count: u32| {
        let one = args().u32(24).0.repeat(count as usize);
        compound_0(count, &Arguments(one))
    };
    let mut reply = client.peer.compound(&mut server, many(64));
    assert_eq!(head(&mut reply), (OK, 64));
    let mut reply = client.peer.compound(&mut server, many(65));
    assert_eq!(head(&mut reply), (RESOURCE, 1));
}

#[test]
fn state_ids_of_other_clients_and_starts_are_refused() {
    let mut server = TestServer::new(tree());
    let mut client = OldClient::new(&mut server, b"old", 1);
    let mut new = Client::new(&mut server, b"new", 1);
    // Names and state IDs of one kind of client are none of the other's.
    let open = client.open(&mut server, b"file", (3, 0));
    let (_, other) = new.open(&mut server, b"file", (3, 0));
    let read = |open: &[u8]| args().u32(25).raw(open).u64(0).u32(1);
    assert_eq!(
        new.on_file(&mut server, b"file", &read(&open)).u32(),
        BAD_STATE_ID
    );
    assert_eq!(
        client.on_file(&mut server, b"file", &read(&other)).u32(),
        BAD_STATE_ID
    );
    let stale = [&other[..4], &[0xff; 4], &other[8..]].concat();
    assert_eq!(
        client.on_file(&mut server, b"file", &read(&stale)).u32(),
        STALE_STATE_ID
    );
    assert_eq!(
        client.on_file(&mut server, b"file", &read(&[0; 16])).u32(),
        OK
    );
    let current = [&[0, 0, 0, 1], &[0; 12][..]].concat();
    assert_eq!(
        client.on_file(&mut server, b"file", &read(&current)).u32(),
        BAD_STATE_ID
    );
    let id = new.id;
    assert_eq!(renewed(&mut client, &mut server, id), STALE_CLIENT_ID);
}

#[test]
fn opens_and_locks_exclude_those_of_clients_with_sessions() {
    let mut server = TestServer::new(tree());
    let mut old = OldClient::new(&mut server, b"same", 1);
    let mut new = Client::new(&mut server, b"same", 1);
    let open = old.open(&mut server, b"file", (3, 0));
    assert_eq!(new.open(&mut server, b"file", (3, 2)).0, SHARE_DENIED);
    let (status, other) = new.open(&mut server, b"file", (3, 0));
    assert_eq!(status, OK);
    assert_eq!(old.first_lock(&mut server, &open, 0, (0, 10)).u32(), OK);
    let mut reply = new.lock(&mut server, &other, 2, (5, 10));
    assert_eq!((reply.u32(), reply.u64(), reply.u64()), (DENIED, 0, 10));
    assert_eq!(new.lock(&mut server, &other, 2, (10, 10)).u32(), OK);
    assert_eq!(old.close(&mut server, &open), OK);
    assert_eq!(new.lock(&mut server, &other, 2, (5, 10)).u32(), OK);
}

#[test]
fn what_a_client_had_is_reclaimed_after_a_restart() {
    let mut server = TestServer::new(tree());
    server.exports[0].outlives_restart = true;
    let mut old = OldClient::new(&mut server, b"old", 1);
    let mut idle = OldClient::new(&mut server, b"idle", 1);
    let open = old.open(&mut server, b"file", (3, 0));
    assert_eq!(old.first_lock(&mut server, &open, 0, (0, 10)).u32(), OK);
    let mut reply = old.on_file(&mut server, b"file", &args().u32(10));
    let handle = (reply.u32(), reply.opaque()).1;
    // Without a restart there is nothing to be reclaimed.
    let reclaim = |old: &mut OldClient, server: &mut TestServer| {
        let open = args().u32(18).u32(old.open_number).u32(3).u32(0);
        let open = open.u64(old.id).opaque(old.owner).u32(0).u32(1).u32(0);
        old.open_number += 1;
        let mut reply = old.call(server, 2, &args().u32(22).opaque(&handle).raw(&open.0));
        assert_eq!(result(&mut reply), (22, OK));
        match result(&mut reply) {
            (18, OK) => (OK, state_id(&mut reply)),
            (_, status) => (status, Vec::new()),
        }
    };
    assert_eq!(reclaim(&mut old, &mut server).0, NO_GRACE);
    let restarted = old.peer.now;
    server.restart(restarted);
    let id = old.id;
    assert_eq!(renewed(&mut old, &mut server, id), STALE_CLIENT_ID);
    assert_eq!(old.close(&mut server, &open), STALE_STATE_ID);
    old.identify(&mut server, 1);
    // The first open-owner that comes back needs no confirmation.
    let (status, open) = reclaim(&mut old, &mut server);
    assert_eq!(status, OK);
    assert_eq!(old.first_lock(&mut server, &open, 0, (0, 10)).u32(), GRACE);
    assert_eq!(old.first_lock(&mut server, &open, 1, (0, 10)).u32(), OK);
    // A client that had nothing open reclaims nothing, and others wait for all of the grace period,
    // since no client of this version says that it is done.
    idle.identify(&mut server, 1);
    assert_eq!(reclaim(&mut idle, &mut server).0, 10_034);
    let mut new = Client::new(&mut server, b"new", 1);
    assert_eq!(new.open(&mut server, b"file", (3, 0)).0, GRACE);
    new.peer.now = restarted + HALF;
    assert_eq!(
        new.call(&mut server, 1, &args().u32(PUTROOTFH)).u32(),
        PUTROOTFH
    );
    old.peer.now = restarted + HALF;
    let id = old.id;
    assert_eq!(renewed(&mut old, &mut server, id), OK);
    new.peer.now = restarted + LEASE;
    let (status, other) = new.open(&mut server, b"file", (3, 0));
    assert_eq!(status, OK);
    assert_eq!(new.lock(&mut server, &other, 2, (9, 1)).u32(), DENIED);
    assert_eq!(new.lock(&mut server, &other, 2, (10, 1)).u32(), OK);
    // What was reclaimed is so again after another restart.
    server.restart(new.peer.now);
    old.peer.now = new.peer.now;
    old.identify(&mut server, 1);
    assert_eq!(reclaim(&mut old, &mut server).0, OK);
}

#[test]
fn attributes_and_security_are_those_of_rfc_7530() {
    let mut server = TestServer::new(tree());
    let mut client = OldClient::new(&mut server, b"old", 1);
    client.open(&mut server, b"file", (1, 0));
    // supported_attrs has no third word, and suppattr_exclcreat is not given.
    let ask = args().u32(9).u32(3).u32(1).u32(0).u32(1 << 11);
    let mut reply = client.on_file(&mut server, b"file", &ask);
    assert_eq!((reply.u32(), reply.u32(), reply.u32()), (OK, 1, 1));
    let supported = reply.opaque();
    assert_eq!(supported[..4], [0, 0, 0, 2]);
    // SECINFO leaves the current file, in later versions it does not.
    let operations = root().u32(33).opaque(b"file").u32(10);
    let mut reply = client.call(&mut server, 4, &operations);
    assert_eq!(result(&mut reply), (PUTROOTFH, OK));
    assert_eq!(result(&mut reply), (15, OK));
    assert_eq!(
        (result(&mut reply), reply.u32(), reply.u32()),
        ((33, OK), 1, 1)
    );
    assert_eq!(result(&mut reply), (10, OK));
    // READLINK of a file has an error of this version.
    let mut reply = client.on_file(&mut server, b"file", &args().u32(27));
    assert_eq!(reply.u32(), 22);
}
