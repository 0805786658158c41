//! Calls that arrive as datagrams.

use std::time::Instant;

use super::procedure::*;
use super::status::*;
use super::{Setup, args};
use crate::testing::{Arguments, Reply, TestServer};
use crate::{DATAGRAM_TRANSFER_BYTES_MAX, DatagramSession, answer_stranger};

const NFS: u32 = 100_003;
const MOUNT: u32 = 100_005;

/// A client over UDP beside the one over TCP.
struct Datagrams {
    it: Setup,
    session: DatagramSession<TestServer>,
    xid: u32,
}

impl Datagrams {
    fn new() -> Self {
        let mut it = Setup::new();
        it.server.transfer_bytes_max = DATAGRAM_TRANSFER_BYTES_MAX;
        let session = DatagramSession::new();
        Self {
            it,
            session,
            xid: 70,
        }
    }

    /// The reply to a datagram; empty if there is none.
    fn send(&mut self, datagram: &[u8]) -> Vec<u8> {
        let mut reply = b"left over".to_vec();
        let server = &mut self.it.server;
        self.session
            .handle_datagram(Instant::now(), datagram, server, &mut reply);
        reply
    }

    fn call(&mut self, procedure: u32, arguments: &Arguments) -> Reply {
        self.xid += 1;
        let call = arguments.call(self.xid, (NFS, 3, procedure), (0, 0));
        let reply = self.send(&call);
        Reply::accepted(reply, self.xid)
    }
}

#[test]
fn files_are_read_and_written_in_datagrams() {
    let mut it = Datagrams::new();
    let file = it.it.create(b"file", 0o644);
    let data: Vec<u8> = (0..40_000_u32).map(|n| (n % 251) as u8).collect();
    let write = args().opaque(&file).u64(0).u32(data.len() as u32);
    let mut written = it.call(WRITE, &write.u32(2).opaque(&data));
    assert_eq!(written.u32(), OK);
    written.change();
    assert_eq!(written.u32(), 40_000, "as much as a datagram carries");

    let mut read = it.call(READ, &args().opaque(&file).u64(1).u32(1 << 20));
    assert_eq!(read.u32(), OK);
    assert!(read.after().is_some());
    assert_eq!(read.u32() as usize, DATAGRAM_TRANSFER_BYTES_MAX);
    assert!(!read.bool(), "there is more");
    assert_eq!(read.opaque(), data[1..=DATAGRAM_TRANSFER_BYTES_MAX]);
    read.end();
    let mut stale = it.call(READ, &args().opaque(&[7; 32]).u64(0).u32(9));
    assert_eq!(stale.u32(), STALE);

    let mut information = it.call(FSINFO, &args().opaque(&it.it.root.clone()));
    assert_eq!(information.u32(), OK);
    assert!(information.after().is_some());
    let [read_max, _, _, write_max, _, _, listing] = information.words();
    assert_eq!([read_max, write_max, listing], [32 << 10; 3]);
}

#[test]
fn a_call_that_is_sent_again_is_executed_once() {
    let mut it = Datagrams::new();
    let create = it.it.entry(b"once").u32(1).mode(0);
    let call = create.call(5, (NFS, 3, CREATE), (0, 0));
    let first = it.send(&call);
    assert_eq!(Reply::accepted(first.clone(), 5).u32(), OK);
    let counted = it.it.server.completed.len();
    assert_eq!(it.send(&call), first);
    assert_eq!(it.it.server.completed.len(), counted);
}

#[test]
fn lists_are_short_enough_for_a_datagram() {
    let mut it = Datagrams::new();
    for number in 0..600 {
        it.it.create(format!("{number:0200}").as_bytes(), 0);
    }
    let root = it.it.root.clone();
    let list = args().opaque(&root).u64(0).u64(0).u32(u32::MAX);
    for (procedure, arguments) in [(READDIR, list.clone()), (READDIRPLUS, list.u32(u32::MAX))] {
        let mut reply = it.call(procedure, &arguments);
        assert_eq!(reply.u32(), OK);
        let len = reply.bytes().len();
        assert!(len > 16 << 10 && len < 33 << 10, "{procedure}: {len}");
    }
    it.it.server.mounts = vec![vec![b'x'; 1000]; 100];
    let dump = it.send(&args().call(6, (MOUNT, 3, 2), (0, 0)));
    assert!(
        dump.len() > 3 << 10 && dump.len() < 5 << 10,
        "{}",
        dump.len()
    );
}

#[test]
fn other_versions_and_what_is_no_call_are_not_executed() {
    let mut it = Datagrams::new();
    for (version, procedure) in [(4, 0), (4, 1), (2, 0)] {
        let reply = it.send(&args().call(7, (NFS, version, procedure), (0, 0)));
        let words: Vec<u32> = (reply.as_chunks::<4>().0.iter())
            .map(|word| u32::from_be_bytes(*word))
            .collect();
        assert_eq!(words, [7, 1, 0, 0, 0, 2, 3, 3], "PROG_MISMATCH: 3 alone");
    }
    let call = args().call(8, (NFS, 3, NULL), (0, 0));
    for (len, reply_len) in [(0, 0), (3, 0), (7, 0), (8, 24), (call.len(), 24)] {
        assert_eq!(it.send(&call[..len]).len(), reply_len, "{len}");
    }
    let mut reply = call;
    reply[7] = 1;
    assert_eq!(it.send(&reply), [], "a reply has no reply");
    assert!(it.session.is_idle() && it.session.next_reply().is_none());
}

#[test]
fn a_stranger_gets_less_than_it_sends() {
    let it = Setup::new();
    let mut reply = Vec::new();
    for (what, is_answered) in [
        ((NFS, 3, NULL), true),
        ((MOUNT, 3, 0), true),
        ((MOUNT, 3, 5), false),
        ((MOUNT, 3, 2), false),
        ((NFS, 3, READ), false),
        ((NFS, 4, 1), false),
        ((100_024, 1, 6), false),
    ] {
        let call = args().opaque(&it.root).u64(0).u32(1 << 20);
        let call = call.call(9, what, (0, 0));
        answer_stranger(&call, &mut reply);
        assert!(!reply.is_empty() && reply.len() < call.len());
        let is_success = reply.len() == 24 && reply[8..] == [0; 16];
        assert_eq!(is_success, is_answered, "{what:?}");
    }
    answer_stranger(b"x", &mut reply);
    assert_eq!(reply, []);
}
