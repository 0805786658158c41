//! The functions of fuzz targets. `cargo test` runs the same functions over the corpora.

use std::sync::Arc;
use std::time::Duration;

use file_tree::FileTree;

use super::compounds::{
    compound, create_session, exchange, head, open, result, root, sequenced, skip_sequence,
    state_id,
};
use super::peer::record;
use super::version0::{OldClient, compound_0};
use super::{Arguments, Peer, RdmaPeer, TestServer};

/// A stream of bytes to a session, in pieces of a length that the first byte gives. Replies are
/// records, each of one fragment, whatever the input is.
pub fn session(tree: Arc<dyn FileTree>, input: &[u8]) {
    let Some((&piece, stream)) = input.split_first() else {
        return;
    };
    let piece_max = match piece {
        0 => usize::MAX,
        piece => usize::from(piece),
    };
    let mut server = TestServer::new(tree);
    let mut peer = Peer::default();
    peer.try_send(&mut server, stream, piece_max);
    while let Some(mut reply) = peer.next_reply() {
        let _xid = reply.u32();
        assert_eq!(reply.u32(), 1, "a reply");
    }
}

/// Operations of compounds, each behind the number of operations in one byte and the length in two.
/// The client has a session, and has opened `/db/file` with the state ID 1 of its own. The low bit
/// of the number's byte chooses the minor version.
pub fn compounds(tree: Arc<dyn FileTree>, input: &[u8]) {
    let mut server = TestServer::new(tree);
    let mut peer = Peer::default();
    let mut reply = peer.compound(&mut server, exchange(b"fuzz", 1, 0));
    assert_eq!((head(&mut reply), result(&mut reply)), ((0, 1), (42, 0)));
    let client = reply.u64();
    let mut reply = peer.compound(&mut server, create_session(client, 1));
    assert_eq!((head(&mut reply), result(&mut reply)), ((0, 1), (43, 0)));
    let session = state_id(&mut reply);
    let reclaimed = Arguments::default().u32(58).u32(0);
    let opened = open((client, b"fuzz"), (3, 0), b"file");
    let operations = reclaimed.raw(&root().raw(&opened.0).0);
    let first = sequenced(&session, (0, 1, 0), &operations);
    let mut reply = peer.compound(&mut server, compound(5, &first));
    assert_eq!(head(&mut reply), (0, 5));
    let (mut rest, mut sequence) = (input, 1);
    while let Some(([kind, len @ ..], behind)) = rest.split_first_chunk::<3>() {
        let len = usize::from(u16::from_be_bytes(*len)).min(behind.len());
        let (operations, behind) = behind.split_at(len);
        rest = behind;
        sequence += 1;
        let (count, minor) = (u32::from(kind >> 1), u32::from(kind & 1) + 1);
        let operations = Arguments(operations.to_vec());
        let operations = sequenced(&session, (0, sequence, 0), &operations);
        let arguments = Arguments::default().opaque(b"").u32(minor);
        let arguments = arguments.u32(count + 1).raw(&operations.0);
        let mut reply = peer.compound(&mut server, arguments);
        let (status, results) = head(&mut reply);
        if results > 1 {
            skip_sequence(&mut reply);
        }
        assert!(results <= count + 1 && (status != 0 || results == count + 1));
    }
}

/// Operations of compounds of minor version 0, each behind the number of operations in one byte and
/// the length in two. The client ID and the state ID of `/db/file`, which is open and confirmed
/// with the number 8, are those of a server's first client. Every lock and open ends with the
/// client's lease.
pub fn compounds_0(tree: Arc<dyn FileTree>, input: &[u8]) {
    let mut server = TestServer::new(tree);
    let mut client = OldClient::new(&mut server, b"fuzz", 1);
    client.open(&mut server, b"file", (3, 0));
    let mut rest = input;
    while let Some(([count, len @ ..], behind)) = rest.split_first_chunk::<3>() {
        let len = usize::from(u16::from_be_bytes(*len)).min(behind.len());
        let (operations, behind) = behind.split_at(len);
        rest = behind;
        let count = u32::from(*count);
        let compound = compound_0(count, &Arguments(operations.to_vec()));
        let mut reply = client.peer.compound(&mut server, compound);
        let (status, results) = head(&mut reply);
        assert!(results <= count && (status != 0 || results == count));
    }
    client.peer.now += Duration::from_secs(3600);
    client.identify(&mut server, 2);
    let counts = server.count_clients();
    assert_eq!((counts.opens, counts.locks), (0, 0));
}

/// Calls of NLM and NSM, each behind the number of its procedure in one byte and the length of its
/// arguments in two. The high bit of the number chooses NSM. A file `/db/file` exists, whose handle
/// replaces a handle of zeros. Each grant is accepted or refused by turns. FREE_ALL at the end
/// frees what is left.
pub fn locks(tree: Arc<dyn FileTree>, input: &[u8]) {
    let mut server = TestServer::new(tree);
    let mut peer = Peer::default();
    let root = peer.root(&mut server);
    let create = Arguments::default().opaque(&root).opaque(b"file");
    let mut reply = peer.call(&mut server, 8, create.u32(0).mode(0o644));
    assert_eq!((reply.u32(), reply.bool()), (0, true), "a new file");
    let file = reply.opaque();
    let (mut rest, mut xid) = (input, 0);
    while let Some(([procedure, len @ ..], behind)) = rest.split_first_chunk::<3>() {
        let len = usize::from(u16::from_be_bytes(*len)).min(behind.len());
        let (arguments, behind) = behind.split_at(len);
        rest = behind;
        let mut arguments = Arguments(arguments.to_vec());
        let is_place = |bytes: &[u8]| *bytes == [0; 32];
        if let Some(at) = arguments.0.windows(32).position(is_place) {
            arguments.0[at..at + 32].copy_from_slice(&file);
        }
        xid += 1;
        let number = u32::from(procedure & 0x7f);
        let what = if *procedure < 0x80 {
            (100_021, 4, number)
        } else {
            (100_024, 1, number)
        };
        let call = arguments.call(xid, what, (0, 0));
        peer.send(&mut server, &record(&call));
        let mut reply = peer.next_reply().expect("each call has a reply");
        assert_eq!((reply.u32(), reply.u32()), (xid, 1));
        while let Some(grant) = server.next_grant() {
            assert!(grant.call(xid).len() <= 4 + 256 + 3 * 1028);
            server.end_grant(&grant, xid & 1 == 0);
        }
    }
    let notify = Arguments::default().opaque(b"").u32(0);
    let call = notify.call(0, (100_024, 1, 6), (0, 0));
    peer.send(&mut server, &record(&call));
    assert_eq!(server.count_clients().locks, 0);
}

/// Messages to a session over a queue pair, each behind its length in two bytes. The client's keys
/// are 1 to 4, of memory of 64 bytes to 256 KiB. Each message that is received has a valid header,
/// and each call is done when the session has nothing to do.
pub fn rdma(tree: Arc<dyn FileTree>, input: &[u8]) {
    const MEMORY_BYTES: [usize; 4] = [64, 4 << 10, 64 << 10, 256 << 10];
    let mut server = TestServer::new(tree);
    let mut peer = RdmaPeer::new();
    for len in MEMORY_BYTES {
        peer.register(&vec![0; len]);
    }
    let mut rest = input;
    while let Some((len, behind)) = rest.split_first_chunk() {
        let len = usize::from(u16::from_be_bytes(*len))
            .min(behind.len())
            .min(4096);
        let (message, behind) = behind.split_at(len);
        rest = behind;
        let sent = peer.send_only(&mut server, message);
        assert_eq!(sent, Ok(()), "one call is in flight");
        peer.work(&mut server);
        if peer.has_failed {
            return;
        }
        assert!(peer.is_idle());
        while peer.receive().is_some() {}
    }
}
