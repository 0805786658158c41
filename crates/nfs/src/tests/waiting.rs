//! Calls whose tree waits for storage: a directory of the host, whose calls are executed when a
//! test says so.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use dir_tree::DirTree;
use memory::Budget;

use super::*;
use crate::testing::compounds::{
    COMPOUND, compound, create_session, exchange, head, open, result, sequenced, skip_sequence,
    state_id,
};
use crate::testing::version0::{OldClient, compound_0};
use crate::testing::{RdmaHeader, RdmaPeer};

/// NFS3ERR_JUKEBOX and NFS4ERR_DELAY.
const LATER: u32 = 10_008;
const NFS: u32 = 100_003;
/// The most calls of a connection that wait.
const CALLS_MAX: usize = 64;

/// A server with the share `/db` in memory and the share `/dir` in a directory, which is removed at
/// the end.
struct Slow {
    it: Setup,
    folder: PathBuf,
    root: Vec<u8>,
}

impl Slow {
    fn new() -> Self {
        static LAST: AtomicU32 = AtomicU32::new(0);
        let number = LAST.fetch_add(1, Ordering::Relaxed);
        let name = format!("nfs-waiting-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir(&folder).expect("a new directory");
        let budget = Arc::new(Budget::new(64 << 20));
        let tree = DirTree::open(&folder, &budget).expect("it opens");
        tree.set_durable(false);
        let mut it = Setup::new();
        let mut export = it.server.exports[0].clone();
        export.id = crate::ExportId(*b"a slow directory");
        export.path = "/dir".into();
        export.tree = Arc::new(tree);
        it.server.exports.push(export);
        let mut reply = it
            .peer
            .mount_call(&mut it.server, 1, args().opaque(b"/dir"));
        assert_eq!(reply.u32(), 0);
        let root = reply.opaque();
        Self { it, folder, root }
    }

    /// Sends a call without executing it.
    fn begin(&mut self, xid: u32, procedure: u32, arguments: &Arguments) {
        let call = arguments.call(xid, (NFS, 3, procedure), (0, 0));
        let record = crate::testing::record(&call);
        let taken = self.it.peer.send_only(&mut self.it.server, &record);
        assert_eq!(taken, record.len());
        self.it.peer.receive(&mut self.it.server);
    }

    /// The transaction identifiers of the replies that were received.
    fn replies(&mut self) -> Vec<u32> {
        std::iter::from_fn(|| self.it.peer.next_reply())
            .map(|mut reply| reply.u32())
            .collect()
    }

    fn create(&mut self, name: &[u8]) -> Vec<u8> {
        let arguments = args().opaque(&self.root).opaque(name).u32(1).mode(0o644);
        self.it.created(procedure::CREATE, arguments)
    }

    fn write(file: &[u8], offset: u64, data: &[u8]) -> Arguments {
        let head = args().opaque(file).u64(offset).u32(data.len() as u32);
        head.u32(2).opaque(data)
    }

    fn status(&mut self, procedure: u32, arguments: Arguments) -> u32 {
        self.it.status(procedure, arguments)
    }

    fn file(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.folder.join(name)).expect("it exists")
    }
}

impl Drop for Slow {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

#[test]
fn a_call_that_waits_delays_no_other() {
    let mut slow = Slow::new();
    let (root, other) = (args().opaque(&slow.root), args().opaque(&slow.it.root));
    slow.begin(901, procedure::GETATTR, &root);
    slow.begin(902, procedure::GETATTR, &other);
    assert_eq!(slow.replies(), [902]);
    assert!(!slow.it.peer.is_idle());
    slow.it.peer.finish_waiting(&mut slow.it.server);
    assert_eq!(slow.replies(), [901]);
    assert!(slow.it.peer.is_idle());
}

#[test]
fn replies_leave_in_the_order_in_which_calls_end() {
    let mut slow = Slow::new();
    let root = args().opaque(&slow.root);
    for xid in 901..=903 {
        slow.begin(xid, procedure::GETATTR, &root);
    }
    for at in [2, 0, 0] {
        slow.it.server.finish(at);
    }
    assert_eq!(slow.replies(), []);
    slow.it.peer.wake(&mut slow.it.server);
    assert_eq!(slow.replies(), [903, 901, 902]);
}

#[test]
fn a_call_ends_without_its_connection() {
    let mut slow = Slow::new();
    let file = slow.create(b"file");
    slow.begin(901, procedure::WRITE, &Slow::write(&file, 0, b"data"));
    slow.it.peer = Peer::default();
    slow.it.server.finish(0);
    slow.it.peer.wake(&mut slow.it.server);
    slow.it.peer.discard();
    assert_eq!(slow.file("file"), b"data");
    assert_eq!(
        slow.status(procedure::GETATTR, args().opaque(&file)),
        status::OK
    );
}

#[test]
fn a_call_that_cannot_wait_is_tried_later() {
    let mut slow = Slow::new();
    let file = slow.create(b"file");
    for (is_busy, is_poor) in [(true, false), (false, true)] {
        (slow.it.server.is_busy, slow.it.server.is_poor) = (is_busy, is_poor);
        let getattr = args().opaque(&file);
        assert_eq!(slow.status(procedure::GETATTR, getattr), LATER);
        for len in [10, 300_000] {
            let write = Slow::write(&file, 0, &vec![7; len]);
            assert_eq!(slow.status(procedure::WRITE, write), LATER);
        }
        let other = args().opaque(&slow.it.root);
        assert_eq!(slow.status(procedure::GETATTR, other), status::OK);
    }
    (slow.it.server.is_busy, slow.it.server.is_poor) = (false, false);
    assert_eq!(slow.file("file"), b"");
    let write = Slow::write(&file, 0, &vec![7; 300_000]);
    assert_eq!(slow.status(procedure::WRITE, write), status::OK);
    assert_eq!(slow.file("file"), vec![7; 300_000]);
}

#[test]
fn calls_that_wait_are_bounded() {
    let mut slow = Slow::new();
    let file = slow.create(b"file");
    let getattr = args().opaque(&file);
    let write = Slow::write(&file, 0, &vec![7; 1 << 20]);
    for (procedure, arguments, count, at_once) in [
        (procedure::GETATTR, getattr, 100, CALLS_MAX),
        (procedure::WRITE, write, 6, 4),
    ] {
        let records: Vec<u8> = (0..count)
            .flat_map(|xid| {
                crate::testing::record(&arguments.call(xid, (NFS, 3, procedure), (0, 0)))
            })
            .collect();
        let mut taken = slow.it.peer.send_only(&mut slow.it.server, &records);
        assert_eq!(slow.it.server.waiting.len(), at_once);
        let mut replied = Vec::new();
        while replied.len() < count as usize {
            assert!(slow.it.server.waiting.len() <= at_once);
            slow.it.server.finish(0);
            slow.it.peer.wake(&mut slow.it.server);
            taken += slow
                .it
                .peer
                .send_only(&mut slow.it.server, &records[taken..]);
            replied.extend(slow.replies());
        }
        assert_eq!(taken, records.len());
        assert!(slow.it.peer.is_idle());
    }
}

/// A client of version 4 on a connection.
struct Client {
    id: u64,
    session: Vec<u8>,
}

impl Client {
    fn new(slow: &mut Slow) -> Self {
        let Setup { server, peer, .. } = &mut slow.it;
        let mut reply = peer.compound(server, exchange(b"one", 1, 0));
        assert_eq!(head(&mut reply), (0, 1));
        assert_eq!(result(&mut reply), (42, 0));
        let (id, sequence) = (reply.u64(), reply.u32());
        let mut reply = peer.compound(server, create_session(id, sequence));
        assert_eq!(head(&mut reply), (0, 1));
        assert_eq!(result(&mut reply), (43, 0));
        let session = state_id(&mut reply);
        let this = Self { id, session };
        let done = args().u32(58).u32(0);
        let mut reply = peer.compound(server, this.encode((0, 1, 0), 1, &done));
        assert_eq!(head(&mut reply), (0, 2));
        this
    }

    fn encode(&self, slot: (u32, u32, u32), count: u32, operations: &Arguments) -> Arguments {
        compound(count + 1, &sequenced(&self.session, slot, operations))
    }

    /// PUTFH of the root of `/dir`, OPEN of a file, GETFH.
    fn open(&self, slow: &Slow, name: &[u8]) -> Arguments {
        let operations = args().u32(22).opaque(&slow.root);
        let opened = open((self.id, b"owner"), (3, 0), name);
        operations.raw(&opened.0).u32(10)
    }
}

/// A COMPOUND as a record.
fn record(xid: u32, compound: &Arguments) -> Vec<u8> {
    crate::testing::record(&compound.call(xid, COMPOUND, (0, 0)))
}

#[test]
fn a_compound_stops_where_it_has_to_wait_and_goes_on() {
    let mut slow = Slow::new();
    let client = Client::new(&mut slow);
    let Setup { server, peer, .. } = &mut slow.it;
    // The root above all shares, whose entries do not wait, and then one that does.
    let to_dir = args().u32(24).u32(10).u32(15).opaque(b"dir").u32(10);
    let operations = to_dir.u32(9).u32(1).u32(1 << 4);
    let call = client.encode((0, 2, 0), 5, &operations);
    peer.send_only(server, &record(901, &call));
    peer.receive(server);
    assert_eq!((peer.next_reply(), server.waiting.len()), (None, 1));
    // The same slot again, while its request is executed.
    peer.send_only(server, &record(902, &call));
    peer.receive(server);
    let mut reply = peer.next_reply().expect("it does not wait");
    let _head: [u32; 6] = reply.words();
    assert_eq!(head(&mut reply), (LATER, 1));
    peer.finish_waiting(server);
    let mut reply = peer.next_reply().expect("it has ended");
    let _head: [u32; 6] = reply.words();
    assert_eq!(head(&mut reply), (0, 6));
    skip_sequence(&mut reply);
    assert_eq!(result(&mut reply), (24, 0));
    assert_eq!((result(&mut reply), reply.opaque().len()), ((10, 0), 32));
    assert_eq!(result(&mut reply), (15, 0));
    assert_eq!(
        (result(&mut reply), reply.opaque()),
        ((10, 0), slow.root.clone())
    );
    assert_eq!(result(&mut reply), (9, 0));
}

#[test]
fn a_compound_that_lost_its_connection_is_executed_once() {
    let mut slow = Slow::new();
    let client = Client::new(&mut slow);
    let operations = client.open(&slow, b"file");
    let call = client.encode((0, 2, 1), 3, &operations);
    let Setup { server, peer, .. } = &mut slow.it;
    peer.send_only(server, &record(901, &call));
    peer.receive(server);
    assert_eq!(server.waiting.len(), 1);
    *peer = Peer::default();
    server.finish(0);
    peer.wake(server);
    peer.discard();
    let mut first = peer.compound(server, call.clone());
    assert_eq!(head(&mut first), (0, 4));
    skip_sequence(&mut first);
    assert_eq!(result(&mut first), (22, 0));
    assert_eq!(result(&mut first), (18, 0));
    let second = peer.compound(server, call);
    assert_eq!(&second.bytes()[4..], &first.bytes()[4..], "the kept reply");
    assert!(slow.folder.join("file").exists());
}

#[test]
fn a_compound_of_version_4_0_that_waits_is_executed_once() {
    let mut slow = Slow::new();
    // CREATE of a directory, which fails a second time.
    let create = args().u32(22).opaque(&slow.root).u32(6).u32(2);
    let create = compound_0(2, &create.opaque(b"new").u32(0).u32(0));
    let call = crate::testing::record(&create.call(901, COMPOUND, (0, 0)));
    let Setup { server, peer, .. } = &mut slow.it;
    peer.send_only(server, &call);
    peer.receive(server);
    // The connection is lost, and the call is sent again by another one before it was executed.
    let mut again = Peer::default();
    again.send_only(server, &call);
    again.receive(server);
    assert_eq!(server.waiting.len(), 2);
    server.finish(0);
    peer.wake(server);
    peer.receive(server);
    let first = peer.next_reply().expect("a reply");
    again.finish_waiting(server);
    let second = again.next_reply().expect("a reply");
    assert_eq!(second.bytes(), first.bytes());
    assert_eq!(first.bytes()[24..28], [0; 4]);
    // And it is not executed after that either.
    again.send_only(server, &call);
    again.finish_waiting(server);
    let third = again.next_reply().expect("a reply");
    assert_eq!(third.bytes(), first.bytes());
}

#[test]
fn a_compound_that_cannot_wait_is_delayed_and_frees_its_slot() {
    let mut slow = Slow::new();
    let client = Client::new(&mut slow);
    let operations = client.open(&slow, b"file");
    slow.it.server.is_busy = true;
    let Setup { server, peer, .. } = &mut slow.it;
    let mut reply = peer.compound(server, client.encode((0, 2, 0), 3, &operations));
    assert_eq!(head(&mut reply), (LATER, 2));
    skip_sequence(&mut reply);
    assert_eq!(result(&mut reply), (22, LATER));
    reply.end();
    server.is_busy = false;
    let mut reply = peer.compound(server, client.encode((0, 3, 0), 3, &operations));
    assert_eq!(head(&mut reply), (0, 4));
}

#[test]
fn a_compound_of_version_4_0_that_cannot_wait_is_delayed_except_for_requests_of_owners() {
    const RESOURCE: u32 = 10_018;
    let mut slow = Slow::new();
    let mut client = OldClient::new(&mut slow.it.server, b"old", 1);
    slow.it.server.is_busy = true;
    let folder = args().u32(24).u32(15).opaque(b"dir");
    let create = args().u32(6).u32(2).opaque(b"new").u32(0).u32(0);
    let open = args().u32(18).u32(client.open_number).u32(1).u32(0);
    let open = open.u64(client.id).opaque(b"old");
    let open = open.u32(0).u32(0).opaque(b"file");
    for (operation, expected) in [(create, (6, LATER)), (open, (18, RESOURCE))] {
        let operations = folder.clone().raw(&operation.0);
        let mut reply = client.call(&mut slow.it.server, 3, &operations);
        assert_eq!((result(&mut reply), result(&mut reply)), ((24, 0), (15, 0)));
        assert_eq!(result(&mut reply), expected);
        reply.end();
    }
}

#[test]
fn data_are_placed_over_rdma() {
    let mut slow = Slow::new();
    let file = slow.create(b"file");
    let data: Vec<u8> = (0..400_000_u32).map(|at| (at % 251) as u8).collect();
    let server = &mut slow.it.server;
    let mut peer = RdmaPeer::new();
    // A WRITE whose data are in a read chunk.
    let segment = peer.register(&data);
    let head = args().opaque(&file).u64(0).u32(data.len() as u32).u32(2);
    let call = head.u32(data.len() as u32).call(901, (NFS, 3, 7), (0, 0));
    let mut header = RdmaHeader::message(901);
    header.reads.push((call.len() as u32, segment));
    peer.send(server, &header.encode(&call));
    assert_eq!((peer.receive(), server.waiting.len()), (None, 1));
    // Meanwhile, a call that does not wait.
    let other = args().opaque(&slow.it.root).call(902, (NFS, 3, 1), (0, 0));
    peer.send(server, &RdmaHeader::message(902).encode(&other));
    assert_eq!(peer.receive().expect("a reply").0.xid, 902);
    peer.finish_waiting(server);
    assert_eq!(peer.receive().expect("a reply").0.xid, 901);
    assert_eq!(
        std::fs::read(slow.folder.join("file")).expect("it exists"),
        data
    );
    // A READ whose data go to a write chunk.
    let segment = peer.register(&vec![0; data.len()]);
    let read = args().opaque(&file).u64(0).u32(data.len() as u32);
    let mut header = RdmaHeader::message(903);
    header.writes.push(vec![segment]);
    peer.send(server, &header.encode(&read.call(903, (NFS, 3, 6), (0, 0))));
    assert_eq!((peer.receive(), server.waiting.len()), (None, 1));
    peer.finish_waiting(server);
    let (reply, _) = peer.receive().expect("a reply");
    assert_eq!(reply.writes[0][0].len_bytes.get() as usize, data.len());
    assert_eq!(peer.memory(segment), data);
    assert!(peer.is_idle());
}

#[test]
fn compounds_wait_over_rdma() {
    let mut slow = Slow::new();
    let client = Client::new(&mut slow);
    let file = slow.create(b"file");
    let data: Vec<u8> = (0..200_000_u32).map(|at| (at % 241) as u8).collect();
    let server = &mut slow.it.server;
    let mut peer = RdmaPeer::new();
    let anonymous = [0; 16];
    let put = args().u32(22).opaque(&file);
    let write = put.clone().u32(38).raw(&anonymous).u64(0).u32(2);
    let operations = write.u32(data.len() as u32);
    let mut call = client.encode((0, 2, 0), 3, &operations);
    let position = call.call(901, COMPOUND, (0, 0)).len();
    // GETATTR of the size behind the data.
    call = call.u32(9).u32(1).u32(1 << 4);
    let segment = peer.register(&data);
    let mut header = RdmaHeader::message(901);
    header.reads.push((position as u32, segment));
    peer.send(server, &header.encode(&call.call(901, COMPOUND, (0, 0))));
    assert_eq!((peer.receive(), server.waiting.len()), (None, 1));
    peer.finish_waiting(server);
    let (_, body) = peer.receive().expect("a reply");
    assert_eq!(body[24..28], [0; 4], "the status");
    assert_eq!(
        std::fs::read(slow.folder.join("file")).expect("it exists"),
        data
    );
    let read = put.u32(25).raw(&anonymous).u64(0).u32(data.len() as u32);
    let segment = peer.register(&vec![0; data.len()]);
    let mut header = RdmaHeader::message(902);
    header.writes.push(vec![segment]);
    let call = client.encode((0, 3, 0), 2, &read);
    peer.send(server, &header.encode(&call.call(902, COMPOUND, (0, 0))));
    assert_eq!(server.waiting.len(), 1);
    peer.finish_waiting(server);
    assert!(peer.receive().is_some());
    assert_eq!(peer.memory(segment), data);
    // A connection that ends while a call waits.
    let call = client.encode((0, 4, 0), 1, &args().u32(22).opaque(&file));
    peer.send(
        server,
        &RdmaHeader::message(903).encode(&call.call(903, COMPOUND, (0, 0))),
    );
    drop(peer);
    server.finish(0);
}

#[test]
fn waiting_calls_over_rdma_are_bounded() {
    let mut slow = Slow::new();
    let file = slow.create(b"file");
    let server = &mut slow.it.server;
    let mut peer = RdmaPeer::new();
    let segment = peer.register(&vec![7; 1 << 20]);
    for xid in 0..10 {
        let head = args().opaque(&file).u64(0).u32(1 << 20).u32(2).u32(1 << 20);
        let call = head.call(xid, (NFS, 3, 7), (0, 0));
        let mut header = RdmaHeader::message(xid);
        header.reads.push((call.len() as u32, segment));
        peer.send(server, &header.encode(&call));
    }
    assert_eq!(server.waiting.len(), 4);
    let mut replies = 0;
    while !server.waiting.is_empty() {
        assert!(server.waiting.len() <= 4);
        server.finish(0);
        peer.wake(server);
        replies += std::iter::from_fn(|| peer.receive()).count();
    }
    assert_eq!(replies, 10);
    assert!(peer.is_idle());
}

#[test]
fn datagrams_about_a_directory_are_answered_when_their_calls_end() {
    use crate::{DATAGRAM_TRANSFER_BYTES_MAX, DatagramSession};
    let mut slow = Slow::new();
    let file = slow.create(b"file");
    slow.it.server.transfer_bytes_max = DATAGRAM_TRANSFER_BYTES_MAX;
    let data = vec![7; 33 << 10];
    let write = Slow::write(&file, 0, &data);
    assert_eq!(slow.status(procedure::WRITE, write), status::OK);
    let mut session = DatagramSession::new();
    let (server, now) = (&mut slow.it.server, slow.it.peer.now);
    let read = args().opaque(&file).u64(0).u32(1 << 20);
    let mut reply = Vec::new();
    for xid in 0..=CALLS_MAX as u32 {
        let call = read.call(xid, (NFS, 3, procedure::READ), (0, 0));
        session.handle_datagram(now, &call, server, &mut reply);
        assert_eq!(reply, [], "no thread has executed it");
    }
    assert!(server.waiting.len() <= CALLS_MAX && !session.is_idle());
    let waiting = server.waiting.len();
    while !server.waiting.is_empty() {
        server.finish(0);
    }
    session.handle_wake(now, server);
    for xid in 0..waiting as u32 {
        let mut reply = Reply::accepted(session.next_reply().expect("one each"), xid);
        assert_eq!(reply.u32(), status::OK);
        assert!(reply.after().is_some());
        assert_eq!(reply.u32() as usize, DATAGRAM_TRANSFER_BYTES_MAX);
    }
    assert!(session.next_reply().is_none() && session.is_idle());
}
