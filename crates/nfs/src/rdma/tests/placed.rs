//! Data that are read from the client's memory and written into it: WRITE, READ, READLINK, SYMLINK.

use super::*;

/// Writes with data in the chunk that `chunk` makes of the memory.
fn write_from(
    setup: &mut Setup,
    file: &[u8],
    data: &[u8],
    chunk: &[Segment],
) -> (RdmaHeader, Vec<u8>) {
    let len = data.len() as u32;
    let head = args().opaque(file).u64(0).u32(len).u32(2).u32(len);
    let (mut header, call) = setup.encode(WRITE, &head);
    let position = call.len() as u32;
    header.reads = chunk.iter().map(|segment| (position, *segment)).collect();
    setup.send(&header, &call);
    setup.peer.receive().expect("a reply")
}

#[test]
fn data_of_write_are_read_with_their_padding_or_without() {
    for (len, chunk_len) in [
        (4096, 4096),
        (4097, 4097),
        (4097, 4100),
        (1 << 20, 1 << 20),
        (0, 0),
    ] {
        let mut setup = Setup::new();
        let file = setup.create(b"f");
        let data = pattern(len);
        let mut memory = data.clone();
        memory.resize(chunk_len, 0xEE);
        let memory = setup.peer.register(&memory);
        let (header, reply) = write_from(&mut setup, &file, &data, &[memory]);
        assert_eq!((header.procedure, header.reads), (procedure::MSG, vec![]));
        let mut reader = results(&reply);
        assert_eq!(reader.u32(), Ok(0), "{len}");
        assert_eq!(setup.peer.invalidated, [memory.handle.get()]);
        assert_eq!(setup.contents(&file), data, "{len}");
    }
}

#[test]
fn data_of_write_may_be_in_many_segments() {
    let mut setup = Setup::new();
    let file = setup.create(b"f");
    let data = pattern(200_000);
    let memory = [&data[..70_001], &data[70_001..100_000], &data[100_000..]];
    let mut chunk: Vec<_> = memory
        .iter()
        .map(|part| setup.peer.register(part))
        .collect();
    chunk.insert(1, part(chunk[0], 0, 0));
    let (_, reply) = write_from(&mut setup, &file, &data, &chunk);
    assert_eq!(results(&reply).u32(), Ok(0));
    assert_eq!(setup.contents(&file), data);
    assert_eq!(setup.peer.invalidated, [], "there are several keys");
}

#[test]
fn data_of_several_writes_arrive_in_the_order_of_the_calls() {
    let mut setup = Setup::new();
    let file = setup.create(b"f");
    setup.peer.posted.depth_max = 3;
    let parts: Vec<_> = (0..8_u8).map(|part| vec![part; 150_000]).collect();
    for (index, data) in parts.iter().enumerate() {
        let len = data.len() as u32;
        let head = args().opaque(&file).u64(index as u64 * 150_000);
        let (mut header, call) = setup.encode(WRITE, &head.u32(len).u32(0).u32(len));
        header.reads = vec![(call.len() as u32, setup.peer.register(data))];
        let message = header.encode(&call);
        let sent = setup.peer.send_only(&mut setup.server, &message);
        assert_eq!(sent, Ok(()));
    }
    setup.peer.work(&mut setup.server);
    for _ in &parts {
        let (_, reply) = setup.peer.receive().expect("a reply");
        assert_eq!(results(&reply).u32(), Ok(0));
    }
    assert_eq!(setup.contents(&file), parts.concat());
}

#[test]
fn data_of_read_are_placed_without_padding() {
    let mut setup = Setup::new();
    let file = setup.create(b"f");
    let data = pattern(3001);
    setup.write(&file, 0, &data);
    for (offset, count, expected) in [
        (0, 3001, 3001),
        (0, 1 << 20, 3001),
        (3000, 10, 1),
        (5000, 10, 0),
    ] {
        let memory = setup.peer.register(&[0xAA; 4096]);
        setup.peer.written_bytes = 0;
        setup.peer.invalidated.clear();
        let arguments = args().opaque(&file).u64(offset as u64).u32(count);
        let (header, reply) = setup.call(READ, &arguments, |header| {
            header.writes = vec![vec![memory]];
        });
        assert_eq!(header.procedure, procedure::MSG);
        assert_eq!(lengths(&header.writes[0]), [expected as u32]);
        assert_eq!(header.writes[0][0].handle, memory.handle);
        let mut reader = results(&reply);
        assert_eq!(read_head(&mut reader), (expected, true));
        assert_eq!(reader.u32(), Ok(expected as u32));
        assert_eq!(
            reader.rest(),
            [],
            "the data and their padding are not in the message"
        );
        let data = data.get(offset..).unwrap_or_default();
        assert_eq!(setup.peer.memory(memory)[..expected], data[..expected]);
        assert_eq!(
            setup.peer.memory(memory)[expected..],
            [0xAA; 4096][expected..]
        );
        assert_eq!(setup.peer.written_bytes, expected);
        assert_eq!(setup.peer.invalidated, [memory.handle.get()]);
    }
}

#[test]
fn a_failed_read_leaves_the_chunk_unused() {
    let mut setup = Setup::new();
    let memory = setup.peer.register(&[0xAA; 512]);
    let root = setup.root.clone();
    let arguments = args().opaque(&root).u64(0).u32(512);
    let spare = setup.peer.register(&[0xAA; 512]);
    let (header, reply) = setup.call(READ, &arguments, |header| {
        header.writes = vec![vec![memory], vec![spare, spare]];
        header.reply = Some(vec![spare]);
    });
    assert_eq!(header.procedure, procedure::MSG);
    assert_eq!(
        header
            .writes
            .iter()
            .map(|chunk| lengths(chunk))
            .collect::<Vec<_>>(),
        [vec![0], vec![0, 0]]
    );
    assert_eq!(header.reply.as_deref().map(lengths), Some(vec![0]));
    assert_eq!(results(&reply).u32(), Ok(22), "NFS3ERR_INVAL: a directory");
    assert_eq!(setup.peer.written_bytes, 0);
    assert_eq!(setup.peer.invalidated, []);
}

#[test]
fn an_empty_chunk_asks_for_data_in_the_reply() {
    let mut setup = Setup::new();
    let file = setup.create(b"f");
    setup.write(&file, 0, b"hello");
    let arguments = args().opaque(&file).u64(0).u32(100);
    let (header, reply) = setup.call(READ, &arguments, |header| header.writes = vec![vec![]]);
    assert_eq!(header.writes, [vec![]]);
    let mut reader = results(&reply);
    assert_eq!(read_head(&mut reader), (5, true));
    assert_eq!(reader.opaque(100), Ok(&b"hello"[..]));
    assert_eq!(reader.rest(), []);
}

#[test]
fn paths_of_symbolic_links_go_both_ways() {
    for len in [1, 1023, 1024] {
        let mut setup = Setup::new();
        let path = vec![b'p'; len];
        let memory = setup.peer.register(&path);
        // SYMLINK: the path is its last argument.
        let head = args()
            .opaque(&setup.root)
            .opaque(b"link")
            .mode(0o777)
            .u32(len as u32);
        let (mut header, call) = setup.encode(SYMLINK, &head);
        header.reads = vec![(call.len() as u32, memory)];
        setup.send(&header, &call);
        let (_, reply) = setup.peer.receive().expect("a reply");
        let mut reader = results(&reply);
        assert_eq!((reader.u32(), reader.bool()), (Ok(0), Ok(true)), "{len}");
        let link = reader.opaque(64).expect("a handle").to_vec();

        let back = setup.peer.register(&[0; 1024]);
        let arguments = args().opaque(&link);
        let (header, reply) = setup.call(READLINK, &arguments, |header| {
            header.writes = vec![vec![back]];
        });
        assert_eq!(lengths(&header.writes[0]), [len as u32]);
        let mut reader = results(&reply);
        assert_eq!(reader.u32(), Ok(0));
        skip_attributes(&mut reader);
        assert_eq!((reader.u32(), reader.rest()), (Ok(len as u32), &[][..]));
        assert_eq!(setup.peer.memory(back)[..len], path);
        // And without a chunk.
        let (_, reply) = setup.call(READLINK, &arguments, |_| {});
        let mut reader = results(&reply);
        assert_eq!(reader.u32(), Ok(0));
        skip_attributes(&mut reader);
        assert_eq!(reader.opaque(1024), Ok(&path[..]));
    }
}
