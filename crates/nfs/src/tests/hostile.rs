//! Peers that break the protocol or do not read, and what sessions allocate.

use proptest::prelude::*;

use super::procedure::*;
use super::status::*;
use super::{Setup, args};
use crate::testing::{Arguments, Peer, TestServer, record};

/// accept_stat GARBAGE_ARGS.
const GARBAGE_ARGS: u32 = 4;

impl Setup {
    /// Sends a call and returns accept_stat.
    fn accept_status(&mut self, procedure: u32, arguments: &Arguments) -> u32 {
        let call = arguments.call(9, (100_003, 3, procedure), (0, 0));
        self.peer.send(&mut self.server, &record(&call));
        let mut reply = self.peer.next_reply().expect("a reply");
        assert_eq!(reply.words::<5>(), [9, 1, 0, 0, 0]);
        reply.u32()
    }

    /// Valid arguments of each procedure, by its number.
    fn arguments(&mut self) -> Vec<Arguments> {
        let file = self.create(b"arguments", 0o644);
        let (one, entry) = (args().opaque(&file), self.entry(b"x"));
        vec![
            args(),
            one.clone(),
            one.clone().mode(0o600).u32(1).u32(2).u32(3),
            entry.clone(),
            one.clone().u32(1),
            one.clone(),
            one.clone().u64(0).u32(1),
            one.clone().u64(0).u32(5).u32(0).opaque(b"hello"),
            entry.clone().u32(0).mode(0o600),
            entry.clone().mode(0o600),
            entry.clone().mode(0o600).opaque(b"path"),
            entry.clone().u32(3).mode(0o600).u32(1).u32(2),
            entry.clone(),
            entry.clone(),
            entry.clone().raw(&entry.0),
            one.clone().raw(&entry.0),
            one.clone().u64(0).u64(0).u32(4096),
            one.clone().u64(0).u64(0).u32(4096).u32(4096),
            one.clone(),
            one.clone(),
            one.clone(),
            one.u64(0).u32(0),
        ]
    }
}

#[test]
fn arguments_that_are_cut_or_too_long_are_garbage() {
    let mut setup = Setup::new();
    for (procedure, arguments) in setup.arguments().into_iter().enumerate() {
        let procedure = procedure as u32;
        for len in (0..arguments.0.len()).step_by(4) {
            let cut = Arguments(arguments.0[..len].to_vec());
            assert_eq!(
                setup.accept_status(procedure, &cut),
                GARBAGE_ARGS,
                "{procedure} {len}"
            );
        }
        let long = arguments.clone().u32(0);
        assert_eq!(
            setup.accept_status(procedure, &long),
            GARBAGE_ARGS,
            "{procedure}"
        );
        assert_eq!(setup.accept_status(procedure, &arguments), 0, "{procedure}");
    }
}

#[test]
fn values_out_of_their_range_are_garbage() {
    let mut setup = Setup::new();
    let handle = args().opaque(&setup.root);
    let entry = setup.entry(b"x");
    for (procedure, arguments) in [
        (GETATTR, args().opaque(&[0; 68])),
        (GETATTR, args().u32(u32::MAX)),
        (SETATTR, handle.clone().u32(2).u32(0)),
        (
            SETATTR,
            handle
                .clone()
                .u32(0)
                .u32(0)
                .u32(0)
                .u32(0)
                .u32(3)
                .u32(0)
                .u32(0),
        ),
        (SETATTR, handle.clone().mode(0).u32(2)),
        (CREATE, entry.clone().u32(3).mode(0)),
        (MKNOD, entry.clone().u32(0)),
        (MKNOD, entry.clone().u32(8)),
        (LOOKUP, handle.clone().u32(u32::MAX).u32(0)),
        (WRITE, handle.clone().u64(0).u32(4).u32(3).opaque(b"data")),
        (WRITE, handle.clone().u64(0).u32(5).u32(0).opaque(b"data")),
        (
            WRITE,
            handle.clone().u64(0).u32(u32::MAX).u32(0).u32(u32::MAX),
        ),
        (SYMLINK, entry.mode(0).opaque(&vec![b'x'; 20_000])),
    ] {
        assert_eq!(
            setup.accept_status(procedure, &arguments),
            GARBAGE_ARGS,
            "{procedure}"
        );
    }
    let mut reply = setup.peer.call(&mut setup.server, GETATTR, handle);
    assert_eq!(reply.u32(), OK, "the connection goes on");
}

#[test]
fn a_long_write_whose_length_is_wrong_is_garbage() {
    let mut setup = Setup::new();
    let file = setup.create(b"file", 0o644);
    let write = args().opaque(&file).u64(0).u32(200_000).u32(0).u32(200_000);
    for len in [199_999, 200_004, 300_000] {
        let arguments = write.clone().raw(&vec![1; len]);
        assert_eq!(
            setup.accept_status(WRITE, &arguments),
            GARBAGE_ARGS,
            "{len}"
        );
        // In two fragments the length is not known before the end.
        let call = arguments.call(9, (100_003, 3, WRITE), (0, 0));
        let (first, last) = call.split_at(150_000);
        let mut stream = (first.len() as u32).to_be_bytes().to_vec();
        stream.extend(first);
        stream.extend(record(last));
        setup.peer.send(&mut setup.server, &stream);
        let mut reply = setup.peer.next_reply().expect("a reply");
        assert_eq!(reply.words::<6>()[5], GARBAGE_ARGS, "{len}");
        assert_eq!(setup.peer.next_reply(), None);
    }
}

#[test]
fn a_call_that_is_refused_is_skipped_however_long_it_is() {
    let mut setup = Setup::new();
    let file = setup.create(b"file", 0o644);
    let write = args()
        .opaque(&file)
        .u64(0)
        .u32(500_000)
        .u32(0)
        .opaque(&vec![1; 500_000]);
    let mut call = write.call(9, (100_003, 3, WRITE), (0, 0));
    // The flavor of the verifier.
    call[60] = 1;
    setup.peer.send(&mut setup.server, &record(&call));
    let mut reply = setup.peer.next_reply().expect("a reply");
    assert_eq!(reply.words::<5>(), [9, 1, 1, 1, 3], "AUTH_BADVERF");
    assert_eq!(setup.accept_status(NULL, &args()), 0);
}

#[test]
fn a_call_that_is_longer_than_any_is_garbage_however_it_arrives() {
    let mut setup = Setup::new();
    let link = |len: usize| {
        let arguments = setup.entry(b"link").mode(0).opaque(&vec![b'x'; len]);
        let call = arguments.call(9, (100_003, 3, SYMLINK), (0, 0));
        (call.len(), record(&call))
    };
    let overhead = link(0).0;
    let longest = link((16 << 10) - overhead).1;
    let too_long = link((16 << 10) - overhead + 4).1;
    for (stream, status) in [(longest, 0), (too_long, GARBAGE_ARGS)] {
        for piece in [usize::MAX, 1000, 1] {
            assert!(setup.peer.try_send(&mut setup.server, &stream, piece));
            let mut reply = setup.peer.next_reply().expect("a reply");
            assert_eq!(reply.words::<6>()[5], status);
        }
    }
}

#[test]
fn a_record_that_is_too_long_ends_the_connection_behind_earlier_replies() {
    let mut setup = Setup::new();
    let null = args().call(5, (100_003, 3, NULL), (0, 0));
    let stream = [record(&null), vec![0xff; 8]].concat();
    assert!(!setup.peer.try_send(&mut setup.server, &stream, usize::MAX));
    assert_eq!(setup.peer.next_reply().expect("the first reply").u32(), 5);
    assert_eq!(setup.peer.next_reply(), None);
}

#[test]
fn a_million_tiny_fragments_are_one_call_at_most() {
    let mut setup = Setup::new();
    let mut stream = vec![0; 4 << 20];
    setup.peer.send(&mut setup.server, &stream);
    stream.clear();
    for byte in args().call(5, (100_003, 3, NULL), (0, 0)) {
        stream.extend([0, 0, 0, 1, byte, 0, 0, 0, 0]);
    }
    stream.extend([0x80, 0, 0, 0]);
    setup.peer.send(&mut setup.server, &stream);
    assert_eq!(setup.peer.next_reply().expect("a reply").u32(), 5);
    // Records without a call have no reply.
    let empty = [0x80, 0, 0, 0].repeat(1 << 18);
    setup.peer.send(&mut setup.server, &empty);
    assert_eq!(setup.peer.next_reply(), None);
}

#[test]
fn a_peer_that_does_not_read_is_not_read() {
    let mut setup = Setup::new();
    let root = setup.root.clone();
    let getattr = record(&args().opaque(&root).call(5, (100_003, 3, GETATTR), (0, 0)));
    let flood = getattr.repeat(20_000);
    let taken = setup.peer.send_only(&mut setup.server, &flood);
    assert!(taken < 256 << 10, "{taken} bytes were taken");
    assert!(setup.peer.wants_transmit());
    setup.peer.receive(&mut setup.server);
    let mut replies = 0;
    while setup.peer.next_reply().is_some() {
        replies += 1;
    }
    assert_eq!(replies, taken / getattr.len());
    // A READ holds back all that follows.
    let mut other = Setup::new();
    let file = other.create(b"file", 0o644);
    let read = args().opaque(&file).u64(0).u32(1 << 20);
    let flood = record(&read.call(5, (100_003, 3, READ), (0, 0))).repeat(20_000);
    assert!(other.peer.send_only(&mut other.server, &flood) <= 64 << 10);
}

proptest! {
    /// Bytes of calls that are changed anywhere have a well-formed reply, or none, and nothing
    /// panics.
    #[test]
    fn changed_calls_do_no_harm(
        changes in prop::collection::vec((0..22_usize, any::<prop::sample::Index>(), any::<u8>()), 1..60),
        piece in 1_usize..300,
    ) {
        let mut setup = Setup::new();
        let valid = setup.arguments();
        let mut stream = Vec::new();
        for (procedure, at, value) in changes {
            let mut call = valid[procedure].call(1, (100_003, 3, procedure as u32), (0, 0));
            let at = at.index(call.len());
            call[at] = value;
            stream.extend(record(&call));
        }
        prop_assert!(setup.peer.try_send(&mut setup.server, &stream, piece));
        while let Some(mut reply) = setup.peer.next_reply() {
            reply.u32();
            prop_assert_eq!(reply.u32(), 1);
        }
    }

    #[test]
    fn arbitrary_bytes_do_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..500), piece in 1_usize..50) {
        let mut setup = Setup::new();
        setup.peer.try_send(&mut setup.server, &bytes, piece);
    }
}

#[test]
fn nothing_is_allocated_per_call() {
    let mut setup = Setup::new();
    let file = setup.create(b"file", 0o644);
    let one = args().opaque(&file);
    let write = |len: usize| {
        one.clone()
            .u64(0)
            .u32(len as u32)
            .u32(0)
            .opaque(&vec![1; len])
    };
    let entry = setup.entry(b"again");
    let size = args().u32(0).u32(0).u32(0).u32(1).u64(4096).u32(0).u32(0);
    let calls = [
        (WRITE, write(4096)),
        (READ, one.clone().u64(0).u32(4096)),
        (WRITE, write(1 << 20)),
        (READ, one.clone().u64(0).u32(1 << 20)),
        (GETATTR, one.clone()),
        (ACCESS, one.clone().u32(0x3f)),
        (LOOKUP, setup.entry(b"file")),
        (COMMIT, one.clone().u64(0).u32(0)),
        (SETATTR, one.clone().raw(&size.0).u32(0)),
        (
            READDIRPLUS,
            args().opaque(&setup.root).u64(0).u64(0).u32(4096).u32(4096),
        ),
        (LOOKUP, entry),
    ];
    for (procedure, arguments) in calls {
        let mut calls: Vec<_> = (0..600)
            .map(|xid| record(&arguments.call(xid, (100_003, 3, procedure), (0, 0))))
            .collect();
        let counted = calls.split_off(536);
        let Setup { server, peer, .. } = &mut setup;
        let mut execute = |calls: &[Vec<u8>]| {
            for call in calls {
                send_all(peer, server, call);
            }
        };
        execute(&calls);
        let allocations = allocation_counter::measure(|| execute(&counted));
        assert_eq!(allocations.count_total, 0, "{procedure}: {allocations:?}");
    }
}

/// Sends one call and forgets the reply.
fn send_all(peer: &mut Peer, server: &mut TestServer, call: &[u8]) {
    let mut rest = call;
    while !rest.is_empty() {
        let taken = peer.send_only(server, rest);
        rest = &rest[taken..];
        peer.receive(server);
    }
    peer.discard();
}
