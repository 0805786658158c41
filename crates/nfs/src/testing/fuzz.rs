//! The functions of fuzz targets. `cargo test` runs the same functions over the corpora.

use std::sync::Arc;

use file_tree::FileTree;

use super::{Peer, RdmaPeer, TestServer};

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
