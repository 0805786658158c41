//! Calls and replies of a client on a queue pair.

mod compounds;
mod hostile;
mod long;
mod placed;

use std::sync::Arc;

use file_tree::Timestamp;
use memory::Budget;
use ramfs::{Quota, RamTree};
use zerocopy::IntoBytes;

use super::wire::{PrivateData, Segment, procedure};
use crate::rdma::RdmaSession;
use crate::testing::{Arguments, RdmaHeader, RdmaPeer, TestServer};
use crate::xdr::Reader;

const NFS: (u32, u32) = (100_003, 3);
const GETATTR: u32 = 1;
const READLINK: u32 = 5;
const READ: u32 = 6;
const WRITE: u32 = 7;
const CREATE: u32 = 8;
const SYMLINK: u32 = 10;
const READDIRPLUS: u32 = 17;
const FSINFO: u32 = 19;
/// The length of a reply up to its results.
const REPLY_HEAD: usize = 24;

struct Setup {
    server: TestServer,
    peer: RdmaPeer,
    xid: u32,
    root: Vec<u8>,
}

fn args() -> Arguments {
    Arguments::default()
}

impl Setup {
    fn new() -> Self {
        Self::with(RdmaPeer::new())
    }

    fn with(peer: RdmaPeer) -> Self {
        let budget = Arc::new(Budget::new(64 << 20));
        let quota = Quota {
            bytes: None,
            files: 1000,
        };
        let clock = Arc::new(|| Timestamp {
            seconds: 1,
            nanoseconds: 0,
        });
        let tree = RamTree::new(budget, quota, clock).expect("room");
        let mut setup = Self {
            server: TestServer::new(Arc::new(tree)),
            peer,
            xid: 100,
            root: Vec::new(),
        };
        let call = args().opaque(b"/db").call(7, (100_005, 3, 1), (0, 0));
        setup.send(&RdmaHeader::message(7), &call);
        let (_, reply) = setup.peer.receive().expect("a reply");
        let mut reader = results(&reply);
        assert_eq!(reader.u32(), Ok(0));
        setup.root = reader.opaque(64).expect("a handle").to_vec();
        setup
    }

    fn send(&mut self, header: &RdmaHeader, body: &[u8]) {
        self.peer.send(&mut self.server, &header.encode(body));
    }

    /// The bytes of a call, and a header for it.
    fn encode(&mut self, number: u32, arguments: &Arguments) -> (RdmaHeader, Vec<u8>) {
        self.xid += 1;
        let what = (NFS.0, NFS.1, number);
        let call = arguments.call(self.xid, what, (0, 0));
        (RdmaHeader::message(self.xid), call)
    }

    /// Calls with a header that `change` has changed. Returns the header of the reply, and what
    /// follows.
    fn call(
        &mut self,
        number: u32,
        arguments: &Arguments,
        change: impl FnOnce(&mut RdmaHeader),
    ) -> (RdmaHeader, Vec<u8>) {
        let (mut header, call) = self.encode(number, arguments);
        change(&mut header);
        self.send(&header, &call);
        let (reply, body) = self.peer.receive().expect("a reply");
        assert_eq!(reply.xid, header.xid);
        assert_eq!(reply.version, 1);
        assert_eq!(reply.credits, u32::from(RdmaSession::<TestServer>::CREDITS));
        assert_eq!(self.peer.receive(), None, "one reply");
        assert!(self.peer.is_idle());
        (reply, body)
    }

    fn create(&mut self, name: &[u8]) -> Vec<u8> {
        let arguments = args().opaque(&self.root).opaque(name).u32(0).mode(0o644);
        let (_, reply) = self.call(CREATE, &arguments, |_| {});
        let mut reader = results(&reply);
        assert_eq!(reader.u32(), Ok(0));
        assert_eq!(reader.bool(), Ok(true));
        reader.opaque(64).expect("a handle").to_vec()
    }

    /// Writes inline.
    fn write(&mut self, file: &[u8], offset: u64, data: &[u8]) {
        let head = args().opaque(file).u64(offset).u32(data.len() as u32);
        let (_, reply) = self.call(WRITE, &head.u32(0).opaque(data), |_| {});
        assert_eq!(results(&reply).u32(), Ok(0));
    }

    /// Reads in pieces that fit a message.
    fn contents(&mut self, file: &[u8]) -> Vec<u8> {
        let mut contents = Vec::new();
        loop {
            let arguments = args().opaque(file).u64(contents.len() as u64).u32(2048);
            let (header, reply) = self.call(READ, &arguments, |_| {});
            assert_eq!(header.procedure, procedure::MSG);
            let mut reader = results(&reply);
            let (count, is_end) = read_head(&mut reader);
            let data = reader.opaque(count).expect("data");
            assert_eq!(data.len(), count);
            contents.extend_from_slice(data);
            if is_end {
                return contents;
            }
        }
    }
}

/// The results of an accepted call.
fn results(reply: &[u8]) -> Reader<'_> {
    let (head, results) = reply.split_at(REPLY_HEAD);
    assert_eq!(
        head[4..],
        [0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
    );
    Reader::new(results)
}

/// READ3resok up to its data: how many there are, and whether the file ends there.
fn read_head(reader: &mut Reader<'_>) -> (usize, bool) {
    assert_eq!(reader.u32(), Ok(0));
    skip_attributes(reader);
    let count = reader.u32().expect("count") as usize;
    (count, reader.bool().expect("eof"))
}

fn skip_attributes(reader: &mut Reader<'_>) {
    if reader.bool() == Ok(true) {
        reader.array::<84>().expect("attributes");
    }
}

/// A segment without the bytes before `begin`, of `len` bytes.
fn part(segment: Segment, begin: u64, len: u32) -> Segment {
    Segment {
        len_bytes: len.into(),
        offset: (segment.offset.get() + begin).into(),
        ..segment
    }
}

fn lengths(chunk: &[Segment]) -> Vec<u32> {
    chunk
        .iter()
        .map(|segment| segment.len_bytes.get())
        .collect()
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 251) as u8).collect()
}

#[test]
fn a_connection_is_accepted_with_messages_of_4096_bytes() {
    let peer = RdmaPeer::new();
    let reply = PrivateData::parse(&peer.private_data).expect("the format");
    assert_eq!(reply.receive_bytes(), 4096);
    assert!(
        !reply.invalidates(),
        "keys of the server are given to nobody"
    );
}

#[test]
fn a_call_and_its_reply_fit_messages() {
    let mut setup = Setup::new();
    let arguments = args().opaque(&setup.root);
    let (header, reply) = setup.call(GETATTR, &arguments, |_| {});
    assert_eq!(header.procedure, procedure::MSG);
    assert_eq!((header.writes.len(), header.reply), (0, None));
    assert_eq!(reply[..4], setup.xid.to_be_bytes());
    let mut reader = results(&reply);
    assert_eq!(reader.u32(), Ok(0));
    assert_eq!(reader.u32(), Ok(2), "a directory");
    let (header, reply) = setup.call(FSINFO, &arguments, |_| {});
    assert_eq!(header.procedure, procedure::MSG);
    assert_eq!(results(&reply).u32(), Ok(0));
    assert_eq!(setup.peer.invalidated, [], "there was no key");
}

#[test]
fn calls_in_flight_are_bounded_by_the_credits() {
    let mut setup = Setup::new();
    let arguments = args().opaque(&setup.root);
    let credits = RdmaSession::<TestServer>::CREDITS;
    for _ in 0..credits {
        let (header, call) = setup.encode(GETATTR, &arguments);
        let message = header.encode(&call);
        let sent = setup.peer.send_only(&mut setup.server, &message);
        assert_eq!(sent, Ok(()));
    }
    assert!(!setup.peer.is_idle());
    setup.peer.work(&mut setup.server);
    for _ in 0..credits {
        assert!(setup.peer.receive().is_some());
    }
    for index in 0..=credits {
        let (header, call) = setup.encode(GETATTR, &arguments);
        let message = header.encode(&call);
        let sent = setup.peer.send_only(&mut setup.server, &message);
        assert_eq!(sent.is_err(), index == credits);
    }
    setup.peer.work(&mut setup.server);
    assert_eq!(setup.peer.receive(), None, "the connection ends");
}

#[test]
fn a_repeated_call_has_the_reply_of_the_first() {
    let mut setup = Setup::new();
    let arguments = args().opaque(&setup.root).opaque(b"a").u32(1).mode(0o644);
    let (header, call) = setup.encode(CREATE, &arguments);
    let replies = [(); 2].map(|()| {
        // As after a reconnection.
        setup.peer = RdmaPeer::new();
        setup.send(&header, &call);
        setup.peer.receive().expect("a reply")
    });
    assert_eq!(results(&replies[0].1).u32(), Ok(0), "it is created once");
    assert_eq!(replies[0], replies[1]);
}

#[test]
fn replies_wait_for_room_in_the_send_queue() {
    let mut setup = Setup::new();
    let file = setup.create(b"f");
    let data = pattern(3000);
    setup.write(&file, 0, &data);
    setup.peer.posted.depth_max = 1;
    setup.peer.posted.piece_max_bytes = 4096;
    let memory = setup.peer.register(&[0; 3000]);
    let arguments = args().opaque(&file).u64(0).u32(3000);
    let parts = vec![part(memory, 0, 1000), part(memory, 1000, 2000)];
    let (header, _) = setup.call(READ, &arguments, |header| header.writes = vec![parts]);
    assert_eq!(lengths(&header.writes[0]), [1000, 2000]);
    assert_eq!(setup.peer.memory(memory), data);
}

#[test]
fn a_client_without_private_data_gets_short_messages_and_keeps_its_keys() {
    let mut setup = Setup::with(RdmaPeer::with(&[0; 56]));
    let file = setup.create(b"f");
    setup.write(&file, 0, &pattern(2000));
    let arguments = args().opaque(&file).u64(0).u32(2000);
    let (header, reply) = setup.call(READ, &arguments, |_| {});
    assert_eq!(header.procedure, procedure::MSG);
    let (count, is_end) = read_head(&mut results(&reply));
    assert!((500..1000).contains(&count) && !is_end, "{count}");
    let memory = setup.peer.register(&[0; 2000]);
    setup.call(READ, &arguments, |header| {
        header.writes = vec![vec![memory]];
    });
    assert_eq!(setup.peer.memory(memory), pattern(2000));
    assert_eq!(setup.peer.invalidated, []);
    assert!(PrivateData::parse(setup.peer.private_data.as_bytes()).is_some());
}
