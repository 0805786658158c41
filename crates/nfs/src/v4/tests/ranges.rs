//! ALLOCATE, CLONE and READ_PLUS.

use std::sync::Arc;

use file_tree::Timestamp;
use memory::Budget;
use ramfs::{Quota, RamTree};

use super::*;

// Status codes.
const IS_DIRECTORY: u32 = 21;
const INVALID: u32 = 22;
const TOO_LARGE: u32 = 27;
const NO_SPACE: u32 = 28;
const READ_ONLY: u32 = 30;
const QUOTA_EXCEEDED: u32 = 69;
const DELAY: u32 = 10_008;
const BAD_STATE_ID: u32 = 10_025;
const OPEN_MODE: u32 = 10_038;

/// A server with a client that has opened `/db/file` for reading and writing.
fn opened() -> (TestServer, Client, Vec<u8>) {
    let mut server = TestServer::new(tree());
    let mut client = Client::new(&mut server, b"one", 1);
    let (status, open) = client.open(&mut server, b"file", (3, 0));
    assert_eq!(status, OK);
    (server, client, open)
}

fn write(client: &mut Client, server: &mut TestServer, name: &[u8], offset: u64, data: &[u8]) {
    let write = args().u32(38).raw(&[0; 16]).u64(offset);
    let mut reply = client.on_file(server, name, &write.u32(0).opaque(data));
    assert_eq!((reply.u32(), reply.u32()), (OK, data.len() as u32));
}

/// The size and the used space of a file.
fn size_and_space(client: &mut Client, server: &mut TestServer, name: &[u8]) -> (u64, u64) {
    let ask = args().u32(9).u32(2).u32(1 << 4).u32(1 << 13);
    let mut reply = client.on_file(server, name, &ask);
    assert_eq!(reply.u32(), OK);
    let (_bitmap, _len): ([u32; 3], u32) = (reply.words(), reply.u32());
    (reply.u64(), reply.u64())
}

#[test]
fn allocate_extends_a_file_by_zeros_that_take_space() {
    let (mut server, mut client, open) = opened();
    write(&mut client, &mut server, b"file", 0, b"data");
    let mut allocate = |id: &[u8], name: &[u8], offset: u64, len: u64| {
        let allocate = args().u32(59).raw(id).u64(offset).u64(len);
        on_file_2(&mut client, &mut server, name, &allocate).u32()
    };
    assert_eq!(allocate(&open, b"file", 2, 20_000), OK);
    assert_eq!(allocate(&open, b"file", 0, 0), INVALID);
    assert_eq!(allocate(&open, b"file", u64::MAX, 2), INVALID);
    assert_eq!(allocate(&open, b"file", 8 << 40, 1), TOO_LARGE);
    assert_eq!(allocate(&[1; 16], b"file", 0, 1), BAD_STATE_ID);
    let sizes = size_and_space(&mut client, &mut server, b"file");
    assert_eq!(sizes, (20_002, 5 * 4096));
    let read = args().u32(25).raw(&open).u64(0).u32(100_000);
    let mut reply = client.on_file(&mut server, b"file", &read);
    assert_eq!((reply.u32(), reply.bool()), (OK, true));
    let data = reply.opaque();
    assert_eq!(&data[..4], b"data");
    assert!(data[4..].iter().all(|byte| *byte == 0));
    // A directory has no data, nobody writes by an open for reading, nor to a share that is
    // read-only.
    let mut reply = client.in_root(&mut server, &args().u32(59));
    assert_eq!(reply.u32(), 10_044, "minor version 1 has no ALLOCATE");
    let on_root = root().u32(59).raw(&[0; 16]).u64(0).u64(1);
    let mut reply = call_2(&mut client, &mut server, 3, &on_root);
    assert_eq!(reply.words::<5>()[4], 59);
    assert_eq!(reply.u32(), IS_DIRECTORY);
    let (_, reading) = client.open(&mut server, b"other", (1, 0));
    let on_other = args().u32(59).raw(&reading).u64(0).u64(1);
    let mut reply = on_file_2(&mut client, &mut server, b"other", &on_other);
    assert_eq!(reply.u32(), OPEN_MODE);
    server.exports[0].options.read_only = true;
    let again = args().u32(59).raw(&open).u64(0).u64(1);
    let mut reply = on_file_2(&mut client, &mut server, b"file", &again);
    assert_eq!(reply.u32(), READ_ONLY);
}

#[test]
fn allocate_beyond_the_quota_changes_nothing_and_large_ranges_take_several_calls() {
    let budget = Arc::new(Budget::new(400 << 20));
    let files = RamTree::new(budget, Quota::UNLIMITED, Arc::new(Timestamp::default));
    let files = Arc::new(files.expect("it fits"));
    let mut server = TestServer::new(files.clone());
    let mut client = Client::new(&mut server, b"one", 1);
    let (_, open) = client.open(&mut server, b"file", (3, 0));
    let used = files.used_bytes();
    let quota = |bytes| Quota {
        bytes: Some(bytes),
        files: 100,
    };
    let mut allocate = |server: &mut TestServer, len: u64| {
        let allocate = args().u32(59).raw(&open).u64(0).u64(len);
        on_file_2(&mut client, server, b"file", &allocate).u32()
    };
    files.set_quota(quota(used + 100_000));
    assert_eq!(allocate(&mut server, 200_000), QUOTA_EXCEEDED);
    assert_eq!(files.used_bytes(), used);
    files.set_quota(Quota::UNLIMITED);
    assert_eq!(allocate(&mut server, 1 << 40), NO_SPACE);
    assert_eq!(files.used_bytes(), used);
    // These are more than the tree reserves at a time.
    assert_eq!(allocate(&mut server, 300 << 20), DELAY);
    assert_eq!(allocate(&mut server, 300 << 20), OK);
    assert!(files.used_bytes() > 300 << 20);
}

#[test]
fn a_clone_is_the_same_until_one_of_the_two_is_written() {
    let (mut server, mut client, to) = opened();
    let (_, from) = client.open(&mut server, b"from", (1, 0));
    let data: Vec<u8> = (0..20_000_u32).map(|at| (at / 7) as u8).collect();
    write(&mut client, &mut server, b"from", 0, &data);
    write(&mut client, &mut server, b"from", 40_960, b"end");
    write(&mut client, &mut server, b"file", 0, &[1; 9000]);
    let mut clone = |ids: [&[u8]; 2], names: [&[u8]; 2], offsets: (u64, u64), count: u64| {
        let clone = args().u32(71).raw(ids[0]).raw(ids[1]);
        let clone = clone.u64(offsets.0).u64(offsets.1).u64(count);
        let operations = root().u32(15).opaque(names[0]).u32(32);
        let operations = operations.raw(&root().0).u32(15).opaque(names[1]);
        let mut reply = call_2(&mut client, &mut server, 8, &operations.raw(&clone.0));
        for _ in 0..7 {
            assert_eq!(result(&mut reply).1, OK);
        }
        result(&mut reply)
    };
    let (ids, names): ([&[u8]; 2], [&[u8]; 2]) = ([&from, &to], [b"from", b"file"]);
    assert_eq!(clone(ids, names, (4096, 8192), 8192), (71, OK));
    // Offsets and lengths that are not of whole pages, and what is not in the file.
    for (offsets, count) in [((1, 0), 4096), ((0, 1), 4096), ((0, 0), 4097)] {
        assert_eq!(clone(ids, names, offsets, count), (71, INVALID));
    }
    assert_eq!(clone(ids, names, (0, 0), 40_964), (71, INVALID));
    assert_eq!(clone(ids, names, (45_056, 0), 0), (71, INVALID));
    let same = [&b"file"[..], b"file"];
    assert_eq!(clone([&to, &to], same, (0, 4096), 8192), (71, INVALID));
    assert_eq!(clone([&to, &from], names, (0, 0), 0), (71, BAD_STATE_ID));
    assert_eq!(
        clone([&from, &from], [b"from"; 2], (0, 0), 0),
        (71, OPEN_MODE)
    );
    let contents = |client: &mut Client, server: &mut TestServer| {
        let read = args().u32(25).raw(&[0; 16]).u64(0).u32(1 << 18);
        let mut reply = client.on_file(server, b"file", &read);
        assert_eq!((reply.u32(), reply.bool()), (OK, true));
        reply.opaque()
    };
    let mut expected = vec![1; 8192];
    expected.extend_from_slice(&data[4096..12_288]);
    assert_eq!(contents(&mut client, &mut server), expected);
    // All of it, and what the source has afterwards is not in the clone.
    let whole = args().u32(71).raw(&from).raw(&to).u64(0).u64(0).u64(0);
    let operations = root().u32(15).opaque(b"from").u32(32);
    let operations = operations.raw(&root().0).u32(15).opaque(b"file");
    let mut reply = call_2(&mut client, &mut server, 8, &operations.raw(&whole.0));
    assert_eq!(head_of(&mut reply), (71, OK));
    write(&mut client, &mut server, b"from", 0, b"changed");
    let mut expected = data;
    expected.resize(40_960, 0);
    expected.extend_from_slice(b"end");
    assert_eq!(contents(&mut client, &mut server), expected);
    let sizes = size_and_space(&mut client, &mut server, b"file");
    assert_eq!(sizes, (40_963, 6 * 4096), "holes stay holes");
}

#[test]
fn a_compound_that_has_moved_enough_is_continued_later() {
    const MIB: u64 = 1 << 20;
    let (mut server, mut client, to) = opened();
    let (_, from) = client.open(&mut server, b"from", (1, 0));
    write(&mut client, &mut server, b"from", 2 * MIB, b"end");
    let ids = |operation: u32| args().u32(operation).raw(&from).raw(&to);
    let copy = ids(60).u64(0).u64(0).u64(MIB).u32(1).u32(1).u32(0);
    let clone = ids(71).u64(0).u64(0).u64(MIB);
    let allocate = args().u32(59).raw(&to).u64(0).u64(MIB);
    let files = root().u32(15).opaque(b"from").u32(32);
    let files = files.raw(&root().0).u32(15).opaque(b"file");
    for (first, number) in [(&clone, 71), (&allocate, 59)] {
        let both = files.clone().raw(&first.0).raw(&copy.0);
        let mut reply = call_2(&mut client, &mut server, 9, &both);
        assert_eq!(head_of(&mut reply), (number, OK));
        assert_eq!(result(&mut reply), (60, DELAY));
    }
    for (next, number) in [(&clone, 71), (&allocate, 59), (&copy, 60)] {
        let both = files.clone().raw(&copy.0).raw(&next.0);
        let mut reply = call_2(&mut client, &mut server, 9, &both);
        assert_eq!(head_of(&mut reply), (60, OK));
        let (callback, copied): (u32, u64) = (reply.u32(), reply.u64());
        assert_eq!((callback, copied), (0, MIB));
        let [_, _, _, consecutive, synchronous] = reply.words();
        assert_eq!((consecutive, synchronous), (1, 1));
        assert_eq!(result(&mut reply), (number, DELAY));
    }
    // Smaller ones are executed together.
    let small = ids(60).u64(0).u64(0).u64(1000).u32(1).u32(1).u32(0);
    let both = files.clone().raw(&small.0).raw(&allocate.0);
    let mut reply = call_2(&mut client, &mut server, 9, &both);
    assert_eq!(head_of(&mut reply), (60, OK));
    let _results: [u32; 8] = reply.words();
    assert_eq!(result(&mut reply), (59, OK));
}

/// The last of eight results.
fn head_of(reply: &mut Reply) -> (u32, u32) {
    for _ in 0..7 {
        assert_eq!(result(reply).1, OK);
    }
    result(reply)
}

#[test]
fn read_plus_gives_data_and_holes_as_rfc_7862_lays_them_out() {
    let (mut server, mut client, open) = opened();
    write(&mut client, &mut server, b"file", 8192, b"data!");
    let mut read = |offset: u64, count: u32, golden: &[u32]| {
        let read = args().u32(68).raw(&open).u64(offset).u32(count);
        let mut reply = on_file_2(&mut client, &mut server, b"file", &read);
        assert_eq!(reply.u32(), OK);
        let words: Vec<_> = golden.iter().map(|_| reply.u32()).collect();
        assert_eq!(words, golden);
        reply.end();
    };
    let text = |bytes: &[u8; 4]| u32::from_be_bytes(*bytes);
    // The file ends there; two segments: a hole of 8192 bytes from 0 on, and 5 bytes of data from
    // 8192 on.
    let hole = [1, 0, 0, 0, 8192];
    let golden = [
        &[1, 2][..],
        &hole,
        &[0, 0, 8192, 5, text(b"data"), text(b"!\0\0\0")],
    ];
    read(0, 100_000, &golden.concat());
    let golden = [&[0, 2][..], &hole, &[0, 0, 8192, 2, text(b"da\0\0")]];
    read(0, 8194, &golden.concat());
    read(10, 100, &[0, 1, 1, 0, 10, 0, 100]);
    read(8196, 9, &[1, 1, 0, 0, 8196, 1, text(b"!\0\0\0")]);
    read(8197, 9, &[1, 0]);
    read(u64::MAX, 9, &[1, 0]);
    read(0, 0, &[0, 0]);
}

#[test]
fn read_plus_returns_no_more_segments_than_are_bounded() {
    let (mut server, mut client, open) = opened();
    for page in 0..80 {
        write(&mut client, &mut server, b"file", page * 8192, b"x");
    }
    let read = args().u32(68).raw(&open).u64(0).u32(1 << 20);
    let mut reply = on_file_2(&mut client, &mut server, b"file", &read);
    assert_eq!((reply.u32(), reply.bool(), reply.u32()), (OK, false, 64));
    // It fits into a reply of less than what was asked for, and the client goes on behind it.
    assert!(reply.bytes().len() < 256 << 10);
}
