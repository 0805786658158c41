//! What clients reclaim after a restart of the server, and who has to wait for that.

use super::*;
use crate::testing::locks::lock_call;

// Status codes.
const DENIED: u32 = 10_010;
const GRACE: u32 = 10_013;
const NO_GRACE: u32 = 10_033;
const RECLAIM_BAD: u32 = 10_034;
/// NLM4_DENIED_GRACE_PERIOD.
const NLM_GRACE: u32 = 4;

/// How long a client keeps its state, and how long the grace period is.
const LEASE: Duration = Duration::from_secs(90);
/// Almost as long.
const SHORTER: Duration = Duration::from_secs(89);

/// A server whose files outlive it.
fn server() -> TestServer {
    let mut server = TestServer::new(tree());
    server.exports[0].outlives_restart = true;
    server
}

impl Client {
    /// The handle of a file in the root of `/db`.
    fn handle(&mut self, server: &mut TestServer, name: &[u8]) -> Vec<u8> {
        let mut reply = self.on_file(server, name, &args().u32(10));
        assert_eq!(reply.u32(), OK);
        reply.opaque()
    }

    /// OPEN with CLAIM_PREVIOUS. Returns the status and the state ID.
    fn reclaim(&mut self, server: &mut TestServer, handle: &[u8]) -> (u32, Vec<u8>) {
        let open = args().u32(18).u32(0).u32(3).u32(0).u64(self.id);
        let open = open.opaque(self.owner).u32(0).u32(1).u32(0);
        let operations = args().u32(22).opaque(handle).raw(&open.0);
        let mut reply = self.call(server, 2, &operations);
        assert_eq!(result(&mut reply), (22, OK));
        match result(&mut reply) {
            (18, OK) => (OK, state_id(&mut reply)),
            (18, status) => (status, Vec::new()),
            other => panic!("OPEN has the result {other:?}"),
        }
    }

    /// LOCK of ten bytes that the client had locked.
    fn reclaim_lock(&mut self, server: &mut TestServer, open: &[u8]) -> u32 {
        let lock = args().u32(12).u32(2).u32(1).u64(0).u64(10);
        let lock = lock.u32(1).u32(0).raw(open).u32(0).u64(self.id);
        self.on_file(server, b"file", &lock.opaque(self.owner))
            .u32()
    }
}

#[test]
fn clients_reclaim_opens_and_locks_before_others_get_any() {
    let mut server = server();
    let mut one = Client::new(&mut server, b"one", 1);
    let mut two = Client::new(&mut server, b"two", 1);
    let (_, open) = one.open(&mut server, b"file", (3, 0));
    assert_eq!(one.lock(&mut server, &open, 2, (0, 10)).u32(), OK);
    assert_eq!(two.open(&mut server, b"other", (3, 0)).0, OK);
    let handle = one.handle(&mut server, b"file");
    // Without a restart there is nothing to be reclaimed.
    assert_eq!(one.reclaim(&mut server, &handle).0, NO_GRACE);
    server.restart(one.peer.now);
    let mut one = Client::returned(&mut server, b"one", 1);
    let mut three = Client::new(&mut server, b"three", 1);
    assert_eq!(three.open(&mut server, b"file", (3, 0)).0, GRACE);
    assert_eq!(one.open(&mut server, b"file", (3, 0)).0, GRACE);
    let (status, open) = one.reclaim(&mut server, &handle);
    assert_eq!(status, OK);
    assert_eq!(one.lock(&mut server, &open, 2, (0, 10)).u32(), GRACE);
    assert_eq!(one.reclaim_lock(&mut server, &open), OK);
    assert_eq!(one.complete(&mut server), OK);
    assert_eq!(one.complete(&mut server), 10_054);
    assert_eq!(one.reclaim(&mut server, &handle).0, NO_GRACE);
    // The second client may have held something, too.
    assert_eq!(three.open(&mut server, b"file", (3, 0)).0, GRACE);
    let mut two = Client::returned(&mut server, b"two", 1);
    assert_eq!(two.complete(&mut server), OK);
    let (status, open) = three.open(&mut server, b"file", (3, 0));
    assert_eq!(status, OK);
    assert_eq!(three.lock(&mut server, &open, 2, (9, 1)).u32(), DENIED);
    assert_eq!(three.lock(&mut server, &open, 2, (10, 1)).u32(), OK);
}

#[test]
fn only_clients_that_may_have_held_something_reclaim_it() {
    let mut server = server();
    let mut one = Client::new(&mut server, b"one", 1);
    let _two = Client::new(&mut server, b"two", 1);
    assert_eq!(one.open(&mut server, b"file", (3, 0)).0, OK);
    let handle = one.handle(&mut server, b"file");
    server.restart(one.peer.now);
    let mut three = Client::returned(&mut server, b"three", 1);
    assert_eq!(three.reclaim(&mut server, &handle).0, RECLAIM_BAD);
    // A client that has restarted meanwhile has lost what it held.
    let mut again = Client::returned(&mut server, b"one", 2);
    assert_eq!(again.reclaim(&mut server, &handle).0, RECLAIM_BAD);
    // And a name counts at its address only.
    server.client = [192, 0, 2, 7].into();
    let mut elsewhere = Client::returned(&mut server, b"two", 1);
    assert_eq!(elsewhere.reclaim(&mut server, &handle).0, RECLAIM_BAD);
    // Files that do not outlive the server are not waited for.
    server.exports[0].outlives_restart = false;
    assert_eq!(elsewhere.reclaim(&mut server, &handle).0, NO_GRACE);
    assert_eq!(elsewhere.complete(&mut server), OK);
    assert_eq!(elsewhere.open(&mut server, b"file", (3, 0)).0, OK);
}

#[test]
fn clients_that_do_not_return_are_waited_for_once() {
    let mut server = server();
    let mut one = Client::new(&mut server, b"one", 1);
    assert_eq!(one.open(&mut server, b"file", (3, 3)).0, OK);
    let handle = one.handle(&mut server, b"file");
    let restarted = one.peer.now;
    // A restart in the grace period begins another one.
    server.restart(restarted);
    server.restart(restarted);
    let mut two = Client::new(&mut server, b"two", 1);
    two.peer.now = restarted + SHORTER;
    assert_eq!(two.open(&mut server, b"file", (3, 0)).0, GRACE);
    two.peer.now = restarted + LEASE;
    assert_eq!(two.open(&mut server, b"file", (3, 0)).0, OK);
    // What the first held is the second's now, also after another restart.
    server.restart(two.peer.now);
    let mut one = Client::returned(&mut server, b"one", 1);
    assert_eq!(one.reclaim(&mut server, &handle).0, RECLAIM_BAD);
    let mut two = Client::returned(&mut server, b"two", 1);
    assert_eq!(two.reclaim(&mut server, &handle).0, OK);
}

#[test]
fn a_client_whose_lease_has_expired_reclaims_nothing() {
    let mut server = server();
    let mut one = Client::new(&mut server, b"one", 1);
    assert_eq!(one.open(&mut server, b"file", (3, 3)).0, OK);
    let handle = one.handle(&mut server, b"file");
    let mut two = Client::new(&mut server, b"two", 1);
    for _ in 0..2 {
        two.peer.now += SHORTER;
        two.handle(&mut server, b"file");
    }
    assert_eq!(two.open(&mut server, b"file", (3, 0)).0, OK);
    server.restart(two.peer.now);
    let mut one = Client::returned(&mut server, b"one", 1);
    assert_eq!(one.reclaim(&mut server, &handle).0, RECLAIM_BAD);
}

#[test]
fn clients_of_version_3_get_locks_after_the_grace_period() {
    let mut server = server();
    let mut one = Client::new(&mut server, b"one", 1);
    assert_eq!(one.open(&mut server, b"file", (3, 0)).0, OK);
    let handle = one.handle(&mut server, b"file");
    server.restart(one.peer.now);
    let mut peer = Peer::default();
    let mut lock = |server: &mut TestServer| {
        let lock = crate::testing::locks::lock(&handle, 1, (0, 10));
        let mut reply = peer.lock_call(server, 2, lock_call(0, 1, &lock));
        assert_eq!(reply.opaque(), b"cook");
        reply.u32()
    };
    assert_eq!(lock(&mut server), NLM_GRACE);
    let mut one = Client::returned(&mut server, b"one", 1);
    let (status, open) = one.reclaim(&mut server, &handle);
    assert_eq!((status, one.reclaim_lock(&mut server, &open)), (OK, OK));
    assert_eq!(lock(&mut server), NLM_GRACE);
    assert_eq!(one.complete(&mut server), OK);
    assert_eq!(lock(&mut server), 1, "it is the first client's");
}
