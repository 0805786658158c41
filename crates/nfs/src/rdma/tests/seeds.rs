use super::*;
#[test]
fn write_seeds() {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/nfs_rdma");
    std::fs::create_dir_all(dir).unwrap();
    let mut setup = Setup::new();
    let root = setup.root.clone();
    let file = setup.create(b"f");
    let seg = |key: u32, len: u32| Segment {
        handle: key.into(),
        len_bytes: len.into(),
        offset: 0x7000_0000.into(),
    };
    let nfs = |number: u32, a: Arguments| a.call(9, (NFS.0, NFS.1, number), (0, 0));
    let create = RdmaHeader::message(9).encode(&nfs(
        CREATE,
        args().opaque(&root).opaque(b"f").u32(0).mode(0o644),
    ));
    let mount =
        RdmaHeader::message(9).encode(&args().opaque(b"/db").call(7, (100_005, 3, 1), (0, 0)));
    let write = nfs(
        WRITE,
        args().opaque(&file).u64(0).u32(4095).u32(0).u32(4095),
    );
    let write = RdmaHeader {
        reads: vec![(write.len() as u32, seg(2, 4096))],
        ..RdmaHeader::message(9)
    }
    .encode(&write);
    let big = nfs(
        WRITE,
        args().opaque(&file).u64(5).u32(262144).u32(2).u32(262144),
    );
    let big = RdmaHeader {
        reads: vec![(big.len() as u32, seg(4, 262144))],
        ..RdmaHeader::message(9)
    }
    .encode(&big);
    let read = nfs(READ, args().opaque(&file).u64(0).u32(4097));
    let read = RdmaHeader {
        writes: vec![vec![seg(1, 64), seg(3, 65536)], vec![]],
        reply: Some(vec![seg(2, 4096)]),
        ..RdmaHeader::message(9)
    }
    .encode(&read);
    let inline = RdmaHeader::message(9).encode(&nfs(READ, args().opaque(&file).u64(0).u32(100)));
    let long_read = RdmaHeader {
        reply: Some(vec![seg(3, 65536)]),
        ..RdmaHeader::message(9)
    }
    .encode(&nfs(READ, args().opaque(&file).u64(0).u32(65000)));
    let dir_plus = RdmaHeader {
        reply: Some(vec![seg(3, 65536)]),
        ..RdmaHeader::message(9)
    }
    .encode(&nfs(
        READDIRPLUS,
        args().opaque(&root).u64(0).u64(0).u32(8192).u32(32768),
    ));
    let link = nfs(
        SYMLINK,
        args().opaque(&root).opaque(b"l").mode(0o777).u32(64),
    );
    let link = RdmaHeader {
        reads: vec![(link.len() as u32, seg(1, 64))],
        ..RdmaHeader::message(9)
    }
    .encode(&link);
    let long = RdmaHeader::long(0, &[seg(1, 64), seg(2, 4096)]).encode(&[]);
    let version = RdmaHeader {
        version: 2,
        ..RdmaHeader::message(9)
    }
    .encode(&[]);
    let outside = RdmaHeader {
        writes: vec![vec![seg(1, 65)]],
        ..RdmaHeader::message(9)
    }
    .encode(&nfs(READ, args().opaque(&file).u64(0).u32(65)));
    for (name, messages) in [
        ("inline", vec![&mount, &create, &inline]),
        ("placed", vec![&create, &write, &big, &read, &inline]),
        ("long", vec![&create, &big, &long_read, &dir_plus, &long]),
        ("links", vec![&link, &dir_plus, &version]),
        ("outside", vec![&create, &write, &outside]),
    ] {
        let mut bytes = Vec::new();
        for message in messages {
            bytes.extend((message.len() as u16).to_be_bytes());
            bytes.extend(message);
        }
        std::fs::write(format!("{dir}/{name}"), bytes).unwrap();
    }
}
