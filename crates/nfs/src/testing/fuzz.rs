//! The functions of fuzz targets. `cargo test` runs the same functions over the corpora.

use std::sync::Arc;

use file_tree::FileTree;

use super::{Peer, TestServer};

/// A stream of bytes to a session, in pieces of a length that the first byte gives. Replies are records, each of one
/// fragment, whatever the input is.
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
