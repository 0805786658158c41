//! Calls in chunks, and replies in the reply chunk.

use super::*;

/// A directory whose list is longer than a message.
fn with_entries(setup: &mut Setup) {
    for number in 0..60 {
        setup.create(format!("a-name-of-some-length-{number:03}").as_bytes());
    }
}

/// Arguments of READDIRPLUS of the whole directory.
fn whole_list(setup: &Setup) -> Arguments {
    let len_bytes = 32 << 10;
    args()
        .opaque(&setup.root)
        .u64(0)
        .u64(0)
        .u32(len_bytes)
        .u32(len_bytes)
}

#[test]
fn a_long_reply_goes_into_the_reply_chunk() {
    let mut setup = Setup::new();
    with_entries(&mut setup);
    let arguments = whole_list(&setup);
    let (first, second) = (
        setup.peer.register(&[0; 5000]),
        setup.peer.register(&vec![0; 32 << 10]),
    );
    let (header, body) = setup.call(READDIRPLUS, &arguments, |header| {
        header.reply = Some(vec![first, second]);
    });
    assert_eq!((header.procedure, body), (procedure::NOMSG, vec![]));
    let written = lengths(header.reply.as_deref().expect("the chunk"));
    assert_eq!(written[0], 5000);
    let rest = setup.peer.memory(second)[..written[1] as usize].to_vec();
    let reply = [setup.peer.memory(first), &rest].concat();
    let mut reader = results(&reply);
    assert_eq!(reader.u32(), Ok(0));
    skip_attributes(&mut reader);
    let mut names = Vec::new();
    reader.array::<8>().expect("the verifier");
    while reader.bool() == Ok(true) {
        reader.u64().expect("fileid");
        names.push(reader.opaque(255).expect("a name").to_vec());
        reader.u64().expect("cookie");
        skip_attributes(&mut reader);
        if reader.bool() == Ok(true) {
            reader.opaque(64).expect("a handle");
        }
    }
    assert_eq!((reader.bool(), reader.rest()), (Ok(true), &[][..]));
    assert_eq!(names.len(), 62);
}

#[test]
fn a_short_reply_leaves_the_reply_chunk_unused() {
    let mut setup = Setup::new();
    let memory = setup.peer.register(&[0xAA; 8192]);
    let arguments = args().opaque(&setup.root).u64(0).u64(0).u32(8192).u32(8192);
    let (header, reply) = setup.call(READDIRPLUS, &arguments, |header| {
        header.reply = Some(vec![memory]);
    });
    assert_eq!(header.procedure, procedure::MSG);
    assert_eq!(header.reply.as_deref().map(lengths), Some(vec![0]));
    assert_eq!(results(&reply).u32(), Ok(0));
    assert_eq!(setup.peer.written_bytes, 0);
    assert_eq!(setup.peer.invalidated, [memory.handle.get()]);
}

#[test]
fn a_reply_that_fits_nowhere_is_an_error() {
    let mut setup = Setup::new();
    with_entries(&mut setup);
    let arguments = whole_list(&setup);
    let short = setup.peer.register(&[0; 4096]);
    for reply in [None, Some(vec![short]), Some(vec![])] {
        let (header, _) = setup.call(READDIRPLUS, &arguments, |header| header.reply = reply);
        assert_eq!(
            (header.procedure, header.error),
            (procedure::ERROR, vec![2])
        );
    }
    assert_eq!(setup.peer.written_bytes, 0);
    assert_eq!(setup.peer.invalidated, []);
}

#[test]
fn data_of_read_may_go_into_the_reply_chunk() {
    let mut setup = Setup::new();
    let file = setup.create(b"f");
    for at in 0..40 {
        setup.write(&file, at * 2000, &pattern(2000));
    }
    let memory = setup.peer.register(&vec![0; 30_000]);
    let arguments = args().opaque(&file).u64(0).u32(1 << 20);
    let (header, _) = setup.call(READ, &arguments, |header| header.reply = Some(vec![memory]));
    assert_eq!(header.procedure, procedure::NOMSG);
    let written = lengths(header.reply.as_deref().expect("the chunk"))[0] as usize;
    let mut reader = results(&setup.peer.memory(memory)[..written]);
    let (count, is_end) = read_head(&mut reader);
    assert!(count > 29_000 && !is_end, "{count}");
    assert_eq!(reader.opaque(count).map(<[u8]>::len), Ok(count));
    assert_eq!(reader.rest(), []);
}

#[test]
fn a_call_may_be_in_a_chunk() {
    let mut setup = Setup::new();
    let arguments = args().opaque(&setup.root);
    let (header, call) = setup.encode(GETATTR, &arguments);
    let memory = setup.peer.register(&call);
    let (front, rest) = (
        part(memory, 0, 10),
        part(memory, 10, call.len() as u32 - 10),
    );
    setup.send(&RdmaHeader::long(header.xid, &[front, rest]), &[]);
    let (header, reply) = setup.peer.receive().expect("a reply");
    assert_eq!(header.procedure, procedure::MSG);
    assert_eq!(results(&reply).u32(), Ok(0));
    assert_eq!(setup.peer.invalidated, [memory.handle.get()]);
}

#[test]
fn a_write_may_be_in_a_chunk_in_whole_or_up_to_its_data() {
    for (len, is_split) in [
        (0, false),
        (3, false),
        (900, false),
        (1_000_001, false),
        (3, true),
        (100_001, true),
    ] {
        let mut setup = Setup::new();
        let file = setup.create(b"f");
        let data = pattern(len);
        let head = args().opaque(&file).u64(0).u32(len as u32).u32(0);
        let arguments = if is_split {
            head.u32(len as u32)
        } else {
            head.opaque(&data)
        };
        let (header, call) = setup.encode(WRITE, &arguments);
        let call_memory = setup.peer.register(&call);
        let mut header = RdmaHeader::long(header.xid, &[call_memory]);
        if is_split {
            header
                .reads
                .push((call.len() as u32, setup.peer.register(&data)));
        }
        setup.send(&header, &[]);
        let (_, reply) = setup.peer.receive().expect("a reply");
        let mut reader = results(&reply);
        assert_eq!(reader.u32(), Ok(0), "{len}");
        let done = setup.server.completed.last().expect("it was counted");
        assert_eq!(done.bytes_in, len as u64);
        assert_eq!(setup.contents(&file), data, "{len}");
    }
}
