//! Compounds against a tree in memory, as a client of version 4 sends them.

mod delegations;
mod extended;
mod ranges;
mod reclaim;
mod version0;

use std::time::Duration;

use crate::testing::compounds::operation::PUTROOTFH;
use crate::testing::compounds::{
    compound, create_session, exchange, head, open, result, root, sequenced, skip_sequence,
    state_id,
};
use crate::testing::{Arguments, Peer, Reply, TestServer};
use crate::tests::tree;

/// A client with a session.
struct Client {
    peer: Peer,
    id: u64,
    session: Vec<u8>,
    sequence: u32,
    owner: &'static [u8],
}

const OK: u32 = 0;

fn args() -> Arguments {
    Arguments::default()
}

impl Client {
    /// A client that may open files.
    fn new(server: &mut TestServer, owner: &'static [u8], verifier: u64) -> Self {
        let mut this = Self::returned(server, owner, verifier);
        assert_eq!(this.complete(server), OK);
        this
    }

    /// RECLAIM_COMPLETE.
    fn complete(&mut self, server: &mut TestServer) -> u32 {
        let mut reply = self.call(server, 1, &args().u32(58).u32(0));
        let (number, status) = result(&mut reply);
        assert_eq!(number, 58);
        status
    }

    /// A client that may reclaim what it had.
    fn returned(server: &mut TestServer, owner: &'static [u8], verifier: u64) -> Self {
        let mut peer = Peer::default();
        let mut reply = peer.compound(server, exchange(owner, verifier, 0));
        assert_eq!(head(&mut reply), (OK, 1));
        assert_eq!(result(&mut reply), (42, OK));
        let (id, sequence) = (reply.u64(), reply.u32());
        let mut this = Self {
            peer,
            id,
            session: Vec::new(),
            sequence: 0,
            owner,
        };
        let mut reply = this.create_session(server, sequence);
        assert_eq!(head(&mut reply), (OK, 1));
        assert_eq!(result(&mut reply), (43, OK));
        this.session = state_id(&mut reply);
        assert_eq!((reply.u32(), reply.u32()), (sequence, 0));
        this
    }

    fn create_session(&mut self, server: &mut TestServer, sequence: u32) -> Reply {
        self.peer
            .compound(server, create_session(self.id, sequence))
    }

    /// SEQUENCE with these numbers, and operations.
    fn sequenced(&self, slot: (u32, u32, u32), operations: &Arguments) -> Arguments {
        sequenced(&self.session, slot, operations)
    }

    /// Calls operations behind a SEQUENCE, and returns what follows its result.
    fn call(&mut self, server: &mut TestServer, count: u32, operations: &Arguments) -> Reply {
        self.sequence += 1;
        let arguments = self.sequenced((0, self.sequence, 0), operations);
        let mut reply = self.peer.compound(server, compound(count + 1, &arguments));
        let _status = head(&mut reply).0;
        skip_sequence(&mut reply);
        reply
    }

    /// Calls one operation on the root of `/db`, and returns its reply behind its number.
    fn in_root(&mut self, server: &mut TestServer, operation: &Arguments) -> Reply {
        let operations = root().raw(&operation.0);
        let mut reply = self.call(server, 3, &operations);
        assert_eq!(result(&mut reply), (PUTROOTFH, OK));
        assert_eq!(result(&mut reply), (15, OK));
        let _number = reply.u32();
        reply
    }

    /// Opens a file in the root of `/db`. Returns the status and the state ID.
    fn open(&mut self, server: &mut TestServer, name: &[u8], modes: (u32, u32)) -> (u32, Vec<u8>) {
        let open = open((self.id, self.owner), modes, name);
        let mut reply = self.in_root(server, &open);
        let status = reply.u32();
        if status != OK {
            return (status, Vec::new());
        }
        (status, state_id(&mut reply))
    }

    /// An operation on a file in the root of `/db`. Returns the reply behind its number.
    fn on_file(&mut self, server: &mut TestServer, name: &[u8], operation: &Arguments) -> Reply {
        let operations = root().u32(15).opaque(name).raw(&operation.0);
        let mut reply = self.call(server, 4, &operations);
        for number in [PUTROOTFH, 15, 15] {
            assert_eq!(result(&mut reply), (number, OK));
        }
        let _number = reply.u32();
        reply
    }

    /// LOCK of a range with an open.
    fn lock(
        &mut self,
        server: &mut TestServer,
        open: &[u8],
        kind: u32,
        range: (u64, u64),
    ) -> Reply {
        let lock = args().u32(12).u32(kind).u32(0).u64(range.0).u64(range.1);
        let lock = lock.u32(1).u32(0).raw(open).u32(0).u64(self.id);
        self.on_file(server, b"file", &lock.opaque(self.owner))
    }
}

#[test]
fn a_file_is_opened_written_read_and_closed() {
    let mut server = TestServer::new(tree());
    let mut client = Client::new(&mut server, b"one", 1);
    let (status, open) = client.open(&mut server, b"file", (3, 0));
    assert_eq!(status, OK);
    let write = args().u32(38).raw(&open).u64(2).u32(0).opaque(b"data!");
    let mut reply = client.on_file(&mut server, b"file", &write);
    assert_eq!((reply.u32(), reply.u32()), (OK, 5));
    let read = args().u32(25).raw(&open).u64(0).u32(100);
    let mut reply = client.on_file(&mut server, b"file", &read);
    assert_eq!((reply.u32(), reply.bool()), (OK, true));
    assert_eq!(reply.opaque(), b"\0\0data!");
    reply.end();
    let close = args().u32(4).u32(0).raw(&open);
    assert_eq!(client.on_file(&mut server, b"file", &close).u32(), OK);
    // The state ID is not valid any more.
    assert_eq!(client.on_file(&mut server, b"file", &read).u32(), 10_025);
}

#[test]
fn the_root_above_all_exports_lists_them() {
    let mut server = TestServer::new(tree());
    let mut client = Client::new(&mut server, b"one", 1);
    // READDIR with the attributes type and mounted_on_fileid.
    let list = args().u32(26).u64(0).u64(0).u32(4096).u32(4096);
    let list = args()
        .u32(PUTROOTFH)
        .raw(&list.u32(2).u32(2).u32(1 << 23).0);
    let mut reply = client.call(&mut server, 2, &list);
    assert_eq!(result(&mut reply), (PUTROOTFH, OK));
    assert_eq!(result(&mut reply), (26, OK));
    let _verifier = reply.u64();
    assert!(reply.bool());
    assert_eq!(reply.u64(), 3);
    assert_eq!(reply.opaque(), b"db");
    assert_eq!((reply.u32(), reply.u32(), reply.u32()), (2, 2, 1 << 23));
    let attributes = reply.opaque();
    assert_eq!(attributes[..4], [0, 0, 0, 2], "a directory");
    assert_eq!((reply.bool(), reply.bool()), (false, true));
    reply.end();
}

#[test]
fn a_repeated_request_gets_the_reply_that_was_kept() {
    let mut server = TestServer::new(tree());
    let mut client = Client::new(&mut server, b"one", 1);
    // CREATE of a directory, which a second execution would fail to do.
    let create = args().u32(6).u32(2).opaque(b"dir").u32(0).u32(0);
    let operations = root().raw(&create.0);
    let request = |client: &Client, slot| compound(4, &client.sequenced(slot, &operations));
    let first = client
        .peer
        .compound(&mut server, request(&client, (1, 1, 1)));
    let again = client
        .peer
        .compound(&mut server, request(&client, (1, 1, 1)));
    let body = |reply: &Reply| reply.bytes()[24..].to_vec();
    assert_eq!(body(&first), body(&again));
    assert_eq!(head(&mut again.clone()), (OK, 4));

    // Another request with the same number, and numbers out of order.
    let other = compound(2, &client.sequenced((1, 1, 1), &args().u32(PUTROOTFH)));
    let mut reply = client.peer.compound(&mut server, other);
    assert_eq!(head(&mut reply), (10_076, 1));
    // One that differs in its length alone, behind the bytes that are compared.
    let write = |client: &Client, len: usize| {
        let write = args().u32(38).raw(&[0; 16]).u64(0).u32(0);
        let write = write.opaque(&vec![1; len]);
        compound(2, &client.sequenced((2, 1, 1), &write))
    };
    for (len, status) in [(4000, 10_020), (4000, 10_020), (4004, 10_076)] {
        let request = write(&client, len);
        let mut reply = client.peer.compound(&mut server, request);
        assert_eq!(head(&mut reply).0, status);
    }
    for sequence in [0, 3] {
        let mut reply = client
            .peer
            .compound(&mut server, request(&client, (1, sequence, 1)));
        assert_eq!(head(&mut reply), (10_063, 1));
    }
    // A slot that the session has not.
    let mut reply = client
        .peer
        .compound(&mut server, request(&client, (64, 1, 1)));
    assert_eq!(head(&mut reply), (10_053, 1));
}

#[test]
fn a_repeated_request_whose_reply_was_not_kept_is_not_executed() {
    let mut server = TestServer::new(tree());
    let mut client = Client::new(&mut server, b"one", 1);
    let request = compound(2, &client.sequenced((1, 1, 0), &args().u32(PUTROOTFH)));
    let mut reply = client.peer.compound(&mut server, request.clone());
    assert_eq!(head(&mut reply), (OK, 2));
    let mut reply = client.peer.compound(&mut server, request);
    assert_eq!(head(&mut reply), (10_068, 2));
    skip_sequence(&mut reply);
    assert_eq!(result(&mut reply), (PUTROOTFH, 10_068));
}

#[test]
fn share_reservations_of_two_clients_conflict() {
    let mut server = TestServer::new(tree());
    let mut one = Client::new(&mut server, b"one", 1);
    let mut two = Client::new(&mut server, b"two", 2);
    // For reading, denying others to write.
    let (status, open) = one.open(&mut server, b"file", (1, 2));
    assert_eq!(status, OK);
    assert_eq!(two.open(&mut server, b"file", (2, 0)).0, 10_015);
    assert_eq!(two.open(&mut server, b"file", (1, 0)).0, OK);
    // Neither may another client use the open, nor a write without one get by it.
    let read = args().u32(25).raw(&open).u64(0).u32(1);
    assert_eq!(two.on_file(&mut server, b"file", &read).u32(), 10_025);
    let anonymous = args().u32(38).raw(&[0; 16]).u64(0).u32(0).opaque(b"x");
    assert_eq!(two.on_file(&mut server, b"file", &anonymous).u32(), 10_012);
    let own = args().u32(38).raw(&open).u64(0).u32(0).opaque(b"x");
    assert_eq!(one.on_file(&mut server, b"file", &own).u32(), 10_038);
}

#[test]
fn locks_exclude_other_owners_until_they_are_released_or_the_lease_expires() {
    let mut server = TestServer::new(tree());
    let mut one = Client::new(&mut server, b"one", 1);
    let mut two = Client::new(&mut server, b"two", 2);
    let (_, first) = one.open(&mut server, b"file", (3, 0));
    let (_, second) = two.open(&mut server, b"file", (3, 0));
    let mut reply = one.lock(&mut server, &first, 2, (10, 10));
    assert_eq!(reply.u32(), OK);
    let locked = state_id(&mut reply);
    let mut reply = two.lock(&mut server, &second, 1, (0, u64::MAX));
    assert_eq!(reply.u32(), 10_010);
    assert_eq!((reply.u64(), reply.u64(), reply.u32()), (10, 10, 2));
    assert_eq!((reply.u64(), reply.opaque()), (one.id, b"one".to_vec()));
    assert_eq!(two.lock(&mut server, &second, 1, (20, 1)).u32(), OK);
    // The middle is released.
    let unlock = args().u32(14).u32(2).u32(0).raw(&locked).u64(12).u64(2);
    assert_eq!(one.on_file(&mut server, b"file", &unlock).u32(), OK);
    assert_eq!(two.lock(&mut server, &second, 2, (12, 2)).u32(), OK);
    assert_eq!(two.lock(&mut server, &second, 2, (14, 1)).u32(), 10_010);
    assert_eq!(two.lock(&mut server, &second, 2, (0, 0)).u32(), 22);
    assert_eq!(two.lock(&mut server, &second, 2, (u64::MAX, 2)).u32(), 22);
    // The first client is not heard of for a lease; the second is.
    for _ in 0..2 {
        two.peer.now += Duration::from_secs(50);
        assert_eq!(
            two.call(&mut server, 1, &args().u32(PUTROOTFH)).u32(),
            PUTROOTFH
        );
    }
    assert_eq!(two.lock(&mut server, &second, 2, (14, 1)).u32(), OK);
    one.peer.now = two.peer.now;
    let request = compound(1, &one.sequenced((0, one.sequence + 1, 0), &args()));
    let mut reply = one.peer.compound(&mut server, request);
    assert_eq!(head(&mut reply), (10_052, 1));
}

#[test]
fn a_client_that_restarts_replaces_its_state_and_other_addresses_cannot() {
    let mut server = TestServer::new(tree());
    let mut old = Client::new(&mut server, b"one", 1);
    assert_eq!(old.open(&mut server, b"file", (3, 3)).0, OK);
    // Another address can neither replace the client nor use its session, though it has its name.
    server.client = [192, 0, 2, 7].into();
    let mut other = Client::new(&mut server, b"one", 2);
    assert_eq!(other.open(&mut server, b"file", (1, 0)).0, 10_015);
    let request = compound(1, &old.sequenced((0, old.sequence + 1, 0), &args()));
    let mut reply = old.peer.compound(&mut server, request);
    assert_eq!(head(&mut reply), (10_052, 1));
    server.client = [127, 0, 0, 1].into();
    // The restarted client opens the file that its former self has kept for itself.
    let mut new = Client::new(&mut server, b"one", 2);
    assert_ne!(new.id, old.id);
    assert_eq!(new.open(&mut server, b"file", (3, 3)).0, OK);
}

#[test]
fn compounds_out_of_order_are_refused_as_rfc_8881_says() {
    let mut server = TestServer::new(tree());
    let mut client = Client::new(&mut server, b"one", 1);
    let mut first = |arguments: Arguments| head(&mut client.peer.compound(&mut server, arguments));
    // Without SEQUENCE, an unknown operation, another minor version, nothing at all.
    assert_eq!(first(compound(1, &args().u32(PUTROOTFH))), (10_071, 1));
    assert_eq!(first(compound(1, &args().u32(59))), (10_044, 1));
    assert_eq!(first(args().opaque(b"").u32(3).u32(0)), (10_021, 0));
    assert_eq!(first(compound(0, &args())), (OK, 0));
    let two = exchange(b"two", 1, 0);
    let two = compound(2, &args().raw(&two.0[12..]));
    assert_eq!(first(two), (10_081, 1));
    // SEQUENCE twice, an operation without a file, arguments that are cut off, more operations than
    // allowed.
    let again = client.sequenced((0, 1, 0), &args());
    assert_eq!(client.call(&mut server, 1, &again).u32(), 53);
    let mut reply = client.call(&mut server, 1, &args().u32(10));
    assert_eq!(result(&mut reply), (10, 10_020));
    let mut reply = client.call(&mut server, 1, &args().u32(22).u32(32));
    assert_eq!(result(&mut reply), (22, 10_036));
    let request = compound(17, &client.sequenced((0, client.sequence + 1, 0), &args()));
    let mut reply = client.peer.compound(&mut server, request);
    assert_eq!(head(&mut reply), (10_070, 1));
}

#[test]
fn a_flag_of_version_4_2_is_invalid_in_4_1() {
    let mut server = TestServer::new(tree());
    let fence = exchange(b"one", 1, 4);
    let mut reply = Peer::default().compound(&mut server, fence.clone());
    assert_eq!(head(&mut reply), (22, 1));
    let second = args().opaque(b"").u32(2).raw(&fence.0[8..]);
    let mut reply = Peer::default().compound(&mut server, second);
    assert_eq!(head(&mut reply), (OK, 1));
}

#[test]
fn a_file_that_was_removed_while_it_was_open_is_closed_by_its_client_alone() {
    let mut server = TestServer::new(tree());
    let mut one = Client::new(&mut server, b"one", 1);
    let mut two = Client::new(&mut server, b"two", 2);
    let (status, open) = one.open(&mut server, b"file", (3, 0));
    assert_eq!(status, OK);
    let find = root().u32(15).opaque(b"file").u32(10);
    let mut reply = one.call(&mut server, 4, &find);
    for operation in [PUTROOTFH, 15, 15] {
        assert_eq!(result(&mut reply), (operation, OK));
    }
    assert_eq!(result(&mut reply), (10, OK));
    let put = args().u32(22).opaque(&reply.opaque());
    let remove = root().u32(28).opaque(b"file");
    let mut reply = two.call(&mut server, 3, &remove);
    for operation in [PUTROOTFH, 15, 28] {
        assert_eq!(result(&mut reply), (operation, OK));
    }
    // PUTFH of others fails; that of the client that has it open does not, and what needs the file
    // does.
    assert_eq!(result(&mut two.call(&mut server, 1, &put)), (22, 70));
    let ask = put.clone().u32(9).u32(1).u32(8);
    let mut reply = one.call(&mut server, 2, &ask);
    assert_eq!(result(&mut reply), (22, OK));
    assert_eq!(result(&mut reply), (9, 70));
    let close = put.clone().u32(4).u32(0).raw(&open);
    let mut reply = one.call(&mut server, 2, &close);
    assert_eq!(result(&mut reply), (22, OK));
    assert_eq!(result(&mut reply), (4, OK));
    assert_eq!(result(&mut one.call(&mut server, 1, &put)), (22, 70));
}

/// Calls operations of minor version 2 behind a SEQUENCE, and returns what follows its result.
fn call_2(
    client: &mut Client,
    server: &mut TestServer,
    count: u32,
    operations: &Arguments,
) -> Reply {
    client.sequence += 1;
    let operations = client.sequenced((0, client.sequence, 0), operations);
    let compound = args().opaque(b"").u32(2).u32(count + 1);
    let mut reply = client.peer.compound(server, compound.raw(&operations.0));
    let _status = head(&mut reply).0;
    skip_sequence(&mut reply);
    reply
}

/// An operation of minor version 2 on a file in the root of `/db`. Returns the reply behind its
/// number.
fn on_file_2(
    client: &mut Client,
    server: &mut TestServer,
    name: &[u8],
    operation: &Arguments,
) -> Reply {
    let operations = root().u32(15).opaque(name).raw(&operation.0);
    let mut reply = call_2(client, server, 4, &operations);
    for number in [PUTROOTFH, 15, 15] {
        assert_eq!(result(&mut reply), (number, OK));
    }
    let _number = reply.u32();
    reply
}

#[test]
fn data_and_holes_are_found() {
    let mut server = TestServer::new(tree());
    let mut client = Client::new(&mut server, b"one", 1);
    let (_, open) = client.open(&mut server, b"file", (3, 0));
    for offset in [8192_u64, 40_960] {
        let write = args().u32(38).raw(&open).u64(offset).u32(0).opaque(b"data");
        assert_eq!(client.on_file(&mut server, b"file", &write).u32(), OK);
    }
    let mut seek = |minor_two: bool, offset: u64, what: u32| {
        let seek = args().u32(69).raw(&open).u64(offset).u32(what);
        let operations = root().u32(15).opaque(b"file").raw(&seek.0);
        let mut reply = if minor_two {
            call_2(&mut client, &mut server, 4, &operations)
        } else {
            client.call(&mut server, 4, &operations)
        };
        for number in [PUTROOTFH, 15, 15] {
            assert_eq!(result(&mut reply), (number, OK));
        }
        let (_, status) = result(&mut reply);
        (status, (status == OK).then(|| (reply.bool(), reply.u64())))
    };
    // 0 is data, 1 a hole; the file has 40,964 bytes.
    assert_eq!(seek(true, 0, 0), (OK, Some((false, 8192))));
    assert_eq!(seek(true, 8193, 0), (OK, Some((false, 8193))));
    assert_eq!(seek(true, 0, 1), (OK, Some((false, 0))));
    assert_eq!(seek(true, 8192, 1), (OK, Some((false, 12_288))));
    assert_eq!(seek(true, 12_288, 0), (OK, Some((false, 40_960))));
    assert_eq!(seek(true, 40_960, 1), (OK, Some((true, 40_964))));
    assert_eq!(seek(true, 40_964, 0), (6, None));
    assert_eq!(seek(true, 0, 2), (10_090, None));
    assert_eq!(seek(false, 0, 0).0, 10_044, "minor version 1 has no SEEK");
}

#[test]
fn bytes_are_copied_within_a_share() {
    let mut server = TestServer::new(tree());
    let mut client = Client::new(&mut server, b"one", 1);
    let (_, from) = client.open(&mut server, b"from", (1, 0));
    let (_, to) = client.open(&mut server, b"to", (2, 0));
    let data: Vec<u8> = (0..200_000_u32).map(|at| (at / 7) as u8).collect();
    let write = args().u32(38).raw(&[0; 16]).u64(0).u32(0).opaque(&data);
    assert_eq!(client.on_file(&mut server, b"from", &write).u32(), OK);
    let mut copy = |names: [&[u8]; 2], ids: [&[u8]; 2], offsets: (u64, u64), count: u64| {
        let copy = args().u32(60).raw(ids[0]).raw(ids[1]);
        let copy = copy.u64(offsets.0).u64(offsets.1).u64(count);
        let copy = copy.u32(1).u32(1).u32(0);
        let operations = root().u32(15).opaque(names[0]).u32(32);
        let operations = operations.raw(&root().0).u32(15).opaque(names[1]);
        let mut reply = call_2(&mut client, &mut server, 8, &operations.raw(&copy.0));
        for _ in 0..7 {
            assert_eq!(result(&mut reply).1, OK);
        }
        let (_, status) = result(&mut reply);
        (status, (status == OK).then(|| (reply.u32(), reply.u64()).1))
    };
    let names: [&[u8]; 2] = [b"from", b"to"];
    assert_eq!(
        copy(names, [&from, &to], (1, 5), 150_000),
        (OK, Some(150_000))
    );
    assert_eq!(copy(names, [&from, &to], (199_000, 0), 0), (OK, Some(1000)));
    assert_eq!(copy(names, [&from, &to], (0, 0), 200_001), (22, None));
    assert_eq!(copy(names, [&from, &from], (0, 0), 1), (10_025, None));
    let same: [&[u8]; 2] = [b"from", b"from"];
    assert_eq!(copy(same, [&from, &[0; 16]], (0, 10), 11), (22, None));
    assert_eq!(copy(same, [&from, &from], (0, 10), 5), (10_038, None));
    let read = args().u32(25).raw(&[0; 16]).u64(0).u32(1 << 18);
    let mut reply = client.on_file(&mut server, b"to", &read);
    assert_eq!((reply.u32(), reply.bool()), (OK, true));
    let contents = reply.opaque();
    assert_eq!(contents.len(), 150_005);
    assert_eq!(contents[..1000], data[199_000..]);
    assert_eq!(contents[1000..], data[996..150_001]);
}
