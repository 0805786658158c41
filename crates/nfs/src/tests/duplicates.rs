//! Calls that arrive twice: RFC 1813 section 4.5.

use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use super::procedure::*;
use super::status::*;
use super::{Setup, args};
use crate::Procedure;
use crate::reply_cache::{CallKey, Known, ReplyCache};
use crate::testing::{Peer, record};
use crate::xdr::Writer;

impl Setup {
    /// Sends a call with an xid on a new connection. Returns the reply's bytes, or nothing if there
    /// is none.
    fn send_anew(&mut self, call: &[u8]) -> Option<Vec<u8>> {
        let mut peer = Peer::default();
        peer.now = self.peer.now;
        peer.send(&mut self.server, &record(call));
        peer.next_reply().map(|reply| reply.bytes().to_vec())
    }
}

fn status_of(reply: &[u8]) -> u32 {
    u32::from_be_bytes(reply[24..28].try_into().expect("a status"))
}

#[test]
fn a_call_sent_again_after_a_reconnection_has_the_same_reply() {
    let mut setup = Setup::new();
    let file = setup.create(b"file", 0o644);
    let entry = |name: &[u8]| args().opaque(&setup.root).opaque(name);
    let calls = [
        (SETATTR, args().opaque(&file).mode(0o600).u32(0)),
        (CREATE, entry(b"created").u32(1).mode(0)),
        (MKDIR, entry(b"directory").mode(0)),
        (SYMLINK, entry(b"link").mode(0).opaque(b"x")),
        (MKNOD, entry(b"pipe").u32(7).mode(0)),
        (LINK, args().opaque(&file).raw(&entry(b"hard").0)),
        (RENAME, entry(b"hard").raw(&entry(b"harder").0)),
        (REMOVE, entry(b"harder")),
        (RMDIR, entry(b"directory")),
    ];
    for (index, (procedure, arguments)) in calls.iter().enumerate() {
        let xid = 1000 + index as u32;
        let call = arguments.call(xid, (100_003, 3, *procedure), (0, 0));
        let first = setup.send_anew(&call).expect("a reply");
        assert_eq!(status_of(&first), OK, "{procedure}");
        let counted = setup.server.completed.len();
        assert_eq!(setup.send_anew(&call), Some(first), "{procedure}");
        assert_eq!(setup.server.completed.len(), counted, "it is not executed");
    }
}

#[test]
fn a_call_that_differs_in_anything_is_executed() {
    let mut setup = Setup::new();
    let arguments = setup.entry(b"file").u32(1).mode(0);
    let call = |xid, user| arguments.call(xid, (100_003, 3, CREATE), user);
    assert_eq!(
        setup
            .send_anew(&call(7, (0, 0)))
            .map(|reply| status_of(&reply)),
        Some(OK)
    );
    let original = setup
        .send_anew(&call(7, (0, 0)))
        .map(|reply| status_of(&reply));
    assert_eq!(original, Some(OK));
    for call in [call(8, (0, 0)), call(7, (1, 0))] {
        assert_eq!(
            setup.send_anew(&call).map(|reply| status_of(&reply)),
            Some(EXIST)
        );
    }
    // Of another client, and after a long time.
    let client = setup.server.client;
    setup.server.client = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
    assert_eq!(
        setup
            .send_anew(&call(7, (0, 0)))
            .map(|reply| status_of(&reply)),
        Some(EXIST)
    );
    setup.server.client = client;
    setup.peer.now += Duration::from_secs(121);
    assert_eq!(
        setup
            .send_anew(&call(7, (0, 0)))
            .map(|reply| status_of(&reply)),
        Some(EXIST)
    );
}

#[test]
fn malformed_arguments_are_answered_the_same_way_again() {
    let mut setup = Setup::new();
    let call = args().u32(99).call(7, (100_003, 3, REMOVE), (0, 0));
    let first = setup.send_anew(&call).expect("a reply");
    assert_eq!(&first[20..], [0, 0, 0, 4], "GARBAGE_ARGS");
    assert_eq!(setup.send_anew(&call), Some(first));
}

fn address(number: u32) -> IpAddr {
    IpAddr::V4(Ipv4Addr::from(number))
}

fn key(xid: u32) -> CallKey {
    CallKey {
        xid,
        procedure: Procedure::Create,
        checksum: 1,
        len_bytes: 2,
    }
}

fn begin(cache: &mut ReplyCache, client: u32, xid: u32, now: Instant) -> Known {
    let mut reply = Vec::new();
    cache.begin(address(client), key(xid), now, &mut Writer::new(&mut reply))
}

#[test]
fn a_call_that_is_being_executed_elsewhere_is_dropped() {
    let (mut cache, now) = (ReplyCache::default(), Instant::now());
    assert_eq!(begin(&mut cache, 1, 1, now), Known::New);
    assert_eq!(begin(&mut cache, 1, 1, now), Known::InProgress);
    assert_eq!(begin(&mut cache, 2, 1, now), Known::New);
    cache.finish(address(1), key(1), b"reply");
    assert_eq!(begin(&mut cache, 1, 1, now), Known::Replied);
    assert_eq!(begin(&mut cache, 2, 1, now), Known::InProgress);
}

#[test]
fn the_cache_is_bounded_and_clients_do_not_evict_each_other_early() {
    let (mut cache, now) = (ReplyCache::default(), Instant::now());
    for client in 0..300 {
        begin(&mut cache, client, 1, now);
        cache.finish(address(client), key(1), b"reply");
    }
    // A client that calls often has its own last replies, and others have theirs.
    for xid in 0..10_000 {
        begin(&mut cache, 999, xid, now);
        cache.finish(address(999), key(xid), b"reply");
    }
    assert_eq!(begin(&mut cache, 999, 9999, now), Known::Replied);
    assert_eq!(begin(&mut cache, 999, 10_000 - 256, now), Known::Replied);
    assert_eq!(begin(&mut cache, 999, 10_000 - 257, now), Known::New);
    assert_eq!(begin(&mut cache, 299, 1, now), Known::Replied);
    // The clients that have not called for the longest time were evicted.
    assert_eq!(begin(&mut cache, 0, 1, now), Known::New);
    for client in 1000..1500 {
        for xid in 0..100 {
            begin(&mut cache, client, xid, now);
        }
    }
    assert!(cache.bytes() <= ReplyCache::BYTES_MAX);
}
