//! READ, WRITE and COMMIT.

use proptest::prelude::*;

use super::procedure::*;
use super::status::*;
use super::{Setup, args};
use crate::testing::{Arguments, WireAttributes};

/// What READ has returned.
#[derive(Debug, PartialEq, Eq)]
struct Read {
    data: Vec<u8>,
    is_end: bool,
}

/// What WRITE has returned.
#[derive(Debug)]
struct Written {
    count: u32,
    committed: u32,
    before: Option<u64>,
    after: Option<WireAttributes>,
}

fn write_arguments(file: &[u8], offset: u64, data: &[u8], stable: u32) -> Arguments {
    let arguments = args().opaque(file).u64(offset).u32(data.len() as u32);
    arguments.u32(stable).opaque(data)
}

impl Setup {
    fn read(&mut self, file: &[u8], offset: u64, count: u32) -> Result<Read, u32> {
        let arguments = args().opaque(file).u64(offset).u32(count);
        let mut reply = self.call(READ, arguments);
        let status = reply.u32();
        let attributes = reply.after();
        if status != OK {
            reply.end();
            return Err(status);
        }
        assert!(attributes.is_some());
        let (count, is_end, data) = (reply.u32(), reply.bool(), reply.opaque());
        assert_eq!(count as usize, data.len());
        reply.end();
        Ok(Read { data, is_end })
    }

    fn write(
        &mut self,
        file: &[u8],
        offset: u64,
        data: &[u8],
        stable: u32,
    ) -> Result<Written, u32> {
        let mut reply = self.call(WRITE, write_arguments(file, offset, data, stable));
        let status = reply.u32();
        let (before, after) = reply.change();
        if status != OK {
            reply.end();
            return Err(status);
        }
        let (count, committed) = (reply.u32(), reply.u32());
        assert_eq!(reply.u64().to_be_bytes(), self.server.verifier);
        reply.end();
        Ok(Written {
            count,
            committed,
            before: before.map(|(size_bytes, _)| size_bytes),
            after,
        })
    }
}

fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len)
        .map(|at| (at * 7 + at / 251 + seed) as u8)
        .collect()
}

#[test]
fn data_are_read_as_they_were_written() {
    let mut setup = Setup::new();
    let file = setup.create(b"file", 0o644);
    for (stable, offset) in [(0, 0), (1, 10), (2, 20)] {
        let written = setup
            .write(&file, offset, b"0123456789", stable)
            .expect("it is written");
        // A tree in memory is always as safe as it gets.
        assert_eq!((written.count, written.committed), (10, 2));
        assert_eq!(written.before, Some(offset));
        assert_eq!(
            written.after.map(|after| after.size_bytes),
            Some(offset + 10)
        );
    }
    let read = |data: &[u8], is_end| {
        Ok(Read {
            data: data.into(),
            is_end,
        })
    };
    assert_eq!(setup.read(&file, 8, 4), read(b"8901", false));
    assert_eq!(setup.read(&file, 27, 3), read(b"789", true));
    assert_eq!(setup.read(&file, 27, 100), read(b"789", true));
    assert_eq!(setup.read(&file, 30, 100), read(b"", true));
    assert_eq!(setup.read(&file, u64::MAX, 100), read(b"", true));
    assert_eq!(setup.read(&file, 8, 0), read(b"", false));
    let written = setup.write(&file, 5, b"", 2).expect("nothing is written");
    assert_eq!((written.count, written.before), (0, Some(30)));
}

#[test]
fn the_longest_reads_and_writes_take_several_lists() {
    let mut setup = Setup::new();
    let file = setup.create(b"file", 0o644);
    let data = pattern((1 << 20) + 5, 3);
    let first = setup
        .write(&file, 0, &data[..1 << 20], 0)
        .expect("it is written");
    assert_eq!((first.count, first.before), (1 << 20, Some(0)));
    setup
        .write(&file, 1 << 20, &data[1 << 20..], 0)
        .expect("it is written");
    let read = setup.read(&file, 0, 1 << 20).expect("it is read");
    assert!(read.data == data[..1 << 20] && !read.is_end);
    let read = setup.read(&file, 5, 1 << 20).expect("it is read");
    assert!(read.data == data[5..] && read.is_end);
    // More than rtmax is cut off there.
    let read = setup.read(&file, 0, u32::MAX).expect("it is read");
    assert!(read.data == data[..1 << 20] && !read.is_end);
    // So is more than wtmax.
    let long = setup
        .write(&file, 0, &pattern((1 << 20) + 4096, 9), 0)
        .expect("it is written");
    assert_eq!(long.count, 1 << 20);
    assert_eq!(
        setup.read(&file, 1 << 20, 100).expect("it is read").data,
        data[1 << 20..]
    );
    let [first, .., last] = &setup.server.completed[..] else {
        panic!("calls are counted");
    };
    assert_eq!((first.bytes_in, first.bytes_out), (0, 0));
    assert_eq!((last.bytes_in, last.bytes_out), (0, 5));
}

#[test]
fn data_of_other_kinds_of_files_are_refused() {
    let mut setup = Setup::new();
    let root = setup.root.clone();
    let file = setup.create(b"file", 0o600);
    assert_eq!(setup.read(&root, 0, 1), Err(INVAL));
    assert_eq!(setup.write(&root, 0, b"x", 0).err(), Some(INVAL));
    assert_eq!(
        setup.status(COMMIT, args().opaque(&root).u64(0).u32(0)),
        INVAL
    );
    assert_eq!(setup.write(&file, u64::MAX - 1, b"xy", 0).err(), Some(FBIG));
    assert_eq!(setup.read(b"bad", 0, 1), Err(BADHANDLE));
    assert_eq!(setup.write(b"bad", 0, b"x", 0).err(), Some(BADHANDLE));
    setup.peer.user = (5, 5);
    assert_eq!(setup.read(&file, 0, 1), Err(ACCES));
    assert_eq!(
        setup.write(&file, 0, &vec![0; 100_000], 0).err(),
        Some(ACCES)
    );
    let completed = setup.server.completed.last().expect("it is counted");
    assert!(!completed.is_ok && completed.bytes_in == 0);
}

#[test]
fn commit_gives_the_verifier_of_writes() {
    let mut setup = Setup::new();
    let file = setup.create(b"file", 0o644);
    let mut reply = setup.call(COMMIT, args().opaque(&file).u64(0).u32(0));
    assert_eq!(reply.u32(), OK);
    let (before, after) = reply.change();
    assert!(before.is_some() && after.is_some());
    assert_eq!(reply.u64().to_be_bytes(), setup.server.verifier);
    reply.end();
    assert_eq!(
        setup.status(COMMIT, args().opaque(b"bad").u64(0).u32(0)),
        BADHANDLE
    );
}

#[test]
fn a_write_in_parts_hides_no_change_by_others() {
    let mut setup = Setup::new();
    let file = setup.create(b"file", 0o644);
    let data = pattern(300_000, 1);
    let call = write_arguments(&file, 0, &data, 0).call(77, (100_003, 3, WRITE), (0, 0));
    let stream = crate::testing::record(&call);
    for is_disturbed in [false, true] {
        setup.peer.send(&mut setup.server, &stream[..200_000]);
        if is_disturbed {
            let mut other = crate::testing::Peer::default();
            let arguments = write_arguments(&file, 1_000_000, b"other", 0);
            assert_eq!(other.call(&mut setup.server, WRITE, arguments).u32(), OK);
        }
        setup.peer.send(&mut setup.server, &stream[200_000..]);
        let mut reply = setup.peer.next_reply().expect("a reply");
        reply.words::<6>();
        assert_eq!(reply.u32(), OK);
        let (before, after) = reply.change();
        assert_eq!(before.is_none(), is_disturbed);
        assert!(after.is_some());
        assert_eq!(reply.u32() as usize, data.len());
    }
}

#[test]
fn a_write_ends_where_access_was_revoked() {
    let mut setup = Setup::new();
    let file = setup.create(b"file", 0o644);
    let data = pattern(300_000, 1);
    let call = write_arguments(&file, 0, &data, 0).call(77, (100_003, 3, WRITE), (0, 0));
    let stream = crate::testing::record(&call);
    let head = stream.len() - data.len();
    setup
        .peer
        .send(&mut setup.server, &stream[..head + 100_000]);
    setup.server.denied = Some("/db".into());
    setup
        .peer
        .send(&mut setup.server, &stream[head + 100_000..]);
    setup.server.denied = None;
    let mut reply = setup.peer.next_reply().expect("a reply");
    reply.words::<6>();
    assert_eq!(reply.u32(), OK);
    reply.change();
    assert_eq!(reply.u32(), 100_000);
    assert_eq!(
        setup.read(&file, 99_990, 100).expect("data"),
        Read {
            data: data[99_990..100_000].into(),
            is_end: true,
        }
    );
}

/// Begins to read 1 MiB through lists of 64 KiB.
fn read_slowly(setup: &mut Setup) -> Vec<u8> {
    let file = setup.create(b"file", 0o644);
    setup
        .write(&file, 0, &vec![1; 1 << 20], 0)
        .expect("it is written");
    let arguments = args().opaque(&file).u64(0).u32(1 << 20);
    let call = arguments.call(78, (100_003, 3, READ), (0, 0));
    let stream = crate::testing::record(&call);
    assert_eq!(
        setup.peer.send_only(&mut setup.server, &stream),
        stream.len()
    );
    setup.peer.receive_list(&mut setup.server);
    file
}

#[test]
fn a_read_of_a_file_that_is_cut_off_meanwhile_ends_with_zeros() {
    let mut setup = Setup::with_lists_of(64 << 10);
    let file = read_slowly(&mut setup);
    let mut other = crate::testing::Peer::default();
    let size = args()
        .u32(0)
        .u32(0)
        .u32(0)
        .u32(1)
        .u64(100_001)
        .u32(0)
        .u32(0);
    let arguments = args().opaque(&file).raw(&size.0).u32(0);
    assert_eq!(other.call(&mut setup.server, SETATTR, arguments).u32(), OK);
    setup.peer.receive(&mut setup.server);
    let mut reply = setup.peer.next_reply().expect("a reply");
    reply.words::<6>();
    assert_eq!(reply.u32(), OK);
    assert!(reply.after().is_some());
    assert_eq!((reply.u32(), reply.bool()), (1 << 20, true));
    let data = reply.opaque();
    assert!(data[..100_001].iter().all(|byte| *byte == 1));
    assert!(data[100_001..].iter().all(|byte| *byte == 0));
    assert_eq!(setup.read(&file, 0, 10).expect("it goes on").data, [1; 10]);
}

#[test]
fn a_read_that_cannot_be_finished_ends_the_connection() {
    for is_removed in [true, false] {
        let mut setup = Setup::with_lists_of(64 << 10);
        read_slowly(&mut setup);
        if is_removed {
            let mut other = crate::testing::Peer::default();
            let arguments = setup.entry(b"file");
            assert_eq!(other.call(&mut setup.server, REMOVE, arguments).u32(), OK);
        } else {
            setup.server.denied = Some("/db".into());
        }
        let more = args().call(79, (100_003, 3, NULL), (0, 0));
        let goes_on = setup
            .peer
            .try_send(&mut setup.server, &crate::testing::record(&more), 100);
        assert!(!goes_on && setup.peer.next_reply().is_none());
    }
}

#[derive(Clone, Debug)]
enum Operation {
    Write { offset: u64, len: usize },
    Read { offset: u64, count: u32 },
    Size(u64),
}

fn operation() -> impl Strategy<Value = Operation> {
    let offset = || prop_oneof![0..200_u64, 0..300_000_u64];
    let len = || prop_oneof![0..2000_usize, 0..200_000_usize];
    prop_oneof![
        (offset(), len()).prop_map(|(offset, len)| Operation::Write { offset, len }),
        (offset(), len()).prop_map(|(offset, len)| Operation::Read {
            offset,
            count: len as u32
        }),
        offset().prop_map(Operation::Size),
    ]
}

/// The calls of operations on a file, in fragments of this length.
fn pipelined(file: &[u8], operations: &[Operation], fragment: usize) -> Vec<u8> {
    let mut stream = Vec::new();
    for (index, operation) in operations.iter().enumerate() {
        let (procedure, arguments) = match operation {
            Operation::Write { offset, len } => (
                WRITE,
                write_arguments(file, *offset, &pattern(*len, index), 0),
            ),
            Operation::Read { offset, count } => {
                (READ, args().opaque(file).u64(*offset).u32(*count))
            }
            Operation::Size(size) => {
                let size = args().u32(0).u32(0).u32(0).u32(1).u64(*size).u32(0).u32(0);
                (SETATTR, args().opaque(file).raw(&size.0).u32(0))
            }
        };
        let call = arguments.call(index as u32, (100_003, 3, procedure), (0, 0));
        let fragments = call.chunks(fragment);
        let last = fragments.len() - 1;
        for (number, bytes) in fragments.enumerate() {
            let mark = bytes.len() as u32 | u32::from(number == last) << 31;
            stream.extend(mark.to_be_bytes());
            stream.extend(bytes);
        }
    }
    stream
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Pipelined calls, in fragments and pieces of any length, have the results that a file in a
    /// vector has.
    #[test]
    fn calls_have_their_results_in_order_however_they_arrive(
        operations in prop::collection::vec(operation(), 1..12),
        fragment in 1_usize..70_000,
        piece in prop_oneof![1_usize..200, 1000_usize..300_000],
        list_bytes in prop_oneof![Just(17 << 10), Just(64 << 10), Just(256 << 10)],
    ) {
        let mut setup = Setup::with_lists_of(list_bytes);
        let file = setup.create(b"file", 0o644);
        let stream = pipelined(&file, &operations, fragment);
        prop_assert!(setup.peer.try_send(&mut setup.server, &stream, piece));
        let mut model = Vec::new();
        for (index, operation) in operations.iter().enumerate() {
            let mut reply = setup.peer.next_reply().expect("a reply to each call");
            prop_assert_eq!(reply.u32(), index as u32);
            reply.words::<5>();
            prop_assert_eq!(reply.u32(), OK);
            match operation {
                Operation::Write { offset, len } => {
                    let offset = *offset as usize;
                    if *len > 0 {
                        model.resize(model.len().max(offset + len), 0);
                        model[offset..offset + len].copy_from_slice(&pattern(*len, index));
                    }
                    let (before, _) = reply.change();
                    prop_assert!(before.is_some());
                    prop_assert_eq!(reply.u32() as usize, *len);
                }
                Operation::Read { offset, count } => {
                    let begin = model.len().min(*offset as usize);
                    let end = model.len().min(begin + *count as usize);
                    reply.after();
                    reply.u32();
                    prop_assert_eq!(reply.bool(), end == model.len());
                    prop_assert!(reply.opaque() == model[begin..end]);
                    reply.end();
                }
                Operation::Size(size) => model.resize(*size as usize, 0),
            }
        }
        prop_assert_eq!(setup.peer.next_reply(), None);
    }
}
