//! Compounds of version 4 over a queue pair.

use super::*;
use crate::testing::compounds::operation::{PUTROOTFH, READ, READDIR, READLINK, WRITE};
use crate::testing::compounds::{
    COMPOUND, compound, create_session, exchange, open, root, sequenced,
};

/// A client with a session and an open file, `/db/file`.
struct Client {
    setup: Setup,
    session: Vec<u8>,
    sequence: u32,
    open: Vec<u8>,
}

/// The results of a compound behind those of its SEQUENCE.
struct Results<'a>(Reader<'a>);

impl Client {
    fn new() -> Self {
        let mut setup = Setup::new();
        let reply = call(&mut setup, &exchange(b"one", 1, 0));
        let mut results = head(&reply, 1);
        results.skip(2);
        let client = results.0.u64().expect("the client ID");
        let reply = call(&mut setup, &create_session(client, 1));
        let mut results = head(&reply, 1);
        results.skip(2);
        let mut this = Self {
            setup,
            session: results.0.array::<16>().expect("the session").to_vec(),
            sequence: 0,
            open: Vec::new(),
        };
        let (_, reply) = this.compound(1, &args().u32(58).u32(0), |_, _| {});
        assert_eq!(Results::new(&reply, 2).0.u32(), Ok(58));
        let operation = open((client, b"one"), (3, 0), b"file");
        let (_, reply) = this.compound(3, &root().raw(&operation.0), |_, _| {});
        let mut results = Results::new(&reply, 4);
        results.skip(6);
        this.open = results.0.array::<16>().expect("the state").to_vec();
        this
    }

    /// Calls operations behind a SEQUENCE, with a header that `change` has changed.
    fn compound(
        &mut self,
        count: u32,
        operations: &Arguments,
        change: impl FnOnce(&mut RdmaHeader, &mut Vec<u8>),
    ) -> (RdmaHeader, Vec<u8>) {
        self.sequence += 1;
        let operations = sequenced(&self.session, (0, self.sequence, 0), operations);
        let setup = &mut self.setup;
        setup.xid += 1;
        let mut call = compound(count + 1, &operations).call(setup.xid, COMPOUND, (0, 0));
        let mut header = RdmaHeader::message(setup.xid);
        change(&mut header, &mut call);
        setup.send(&header, &call);
        setup.peer.receive().expect("a reply")
    }

    /// Operations on the file.
    fn on_file(operation: &Arguments) -> Arguments {
        root().u32(15).opaque(b"file").raw(&operation.0)
    }

    /// Writes data that are in a chunk, with GETATTR behind it.
    fn write(&mut self, data: &[u8], offset: u64) -> (RdmaHeader, Vec<u8>) {
        let len = data.len() as u32;
        let write = args().u32(WRITE).raw(&self.open).u64(offset);
        let operations = Self::on_file(&write.u32(0).u32(len).u32(9).u32(1).u32(1 << 4));
        let chunk = self.setup.peer.register(data);
        self.compound(5, &operations, |header, call| {
            header.reads = vec![(call.len() as u32 - 12, chunk)];
        })
    }

    fn read(&self, offset: u64, count: u32) -> Arguments {
        args().u32(READ).raw(&self.open).u64(offset).u32(count)
    }

    /// The contents, read without chunks.
    fn contents(&mut self, len: usize) -> Vec<u8> {
        let mut contents = Vec::new();
        while contents.len() < len {
            let read = self.read(contents.len() as u64, 2048);
            let (_, reply) = self.compound(4, &Self::on_file(&read), |_, _| {});
            let mut results = Results::new(&reply, 5);
            results.skip(6 + 3);
            contents.extend(results.0.opaque(2048).expect("data"));
        }
        contents
    }
}

impl<'a> Results<'a> {
    fn new(reply: &'a [u8], count: u32) -> Self {
        let mut results = head(reply, count);
        results.skip(11);
        results
    }

    fn skip(&mut self, words: usize) {
        for _ in 0..words {
            self.0.u32().expect("a word");
        }
    }
}

/// The results of a compound of which all `count` operations have succeeded.
fn head(reply: &[u8], count: u32) -> Results<'_> {
    let mut reader = results(reply);
    assert_eq!(reader.u32(), Ok(0), "the status");
    assert_eq!(reader.opaque(0), Ok(&[][..]));
    assert_eq!(reader.u32(), Ok(count));
    Results(reader)
}

/// Calls a compound without a session.
fn call(setup: &mut Setup, arguments: &Arguments) -> Vec<u8> {
    setup.xid += 1;
    let call = arguments.call(setup.xid, COMPOUND, (0, 0));
    setup.send(&RdmaHeader::message(setup.xid), &call);
    setup.peer.receive().expect("a reply").1
}

#[test]
fn data_of_write_are_read_in_front_of_the_operations_that_follow() {
    for len in [1, 4096, 4097, 200_003, 256 << 10] {
        let mut client = Client::new();
        let data = pattern(len);
        let (header, reply) = client.write(&data, 0);
        assert_eq!((header.procedure, header.reads), (procedure::MSG, vec![]));
        let mut results = Results::new(&reply, 6);
        results.skip(6 + 2);
        assert_eq!(results.0.u32(), Ok(len as u32));
        // The level of stability, the verifier, and GETATTR with the size.
        results.skip(1 + 2 + 2 + 2 + 1);
        assert_eq!(results.0.u64(), Ok(len as u64), "{len}");
        assert_eq!(
            client
                .setup
                .server
                .completed
                .last()
                .map(|done| done.bytes_in),
            Some(len as u64)
        );
        assert_eq!(client.contents(len), data, "{len}");
    }
}

#[test]
fn data_of_several_reads_go_into_the_chunks_of_the_write_list() {
    let mut client = Client::new();
    let data = pattern(10_001);
    client.write(&data, 0);
    let (one, two) = ([0xAA; 9000], [0xBB; 5000]);
    let (one, two) = (
        client.setup.peer.register(&one),
        client.setup.peer.register(&two),
    );
    let reads = client.read(0, 9000).raw(&client.read(9000, 5000).0);
    let reads = reads.raw(&client.read(1, 3).0).u32(9).u32(1).u32(1 << 4);
    let (header, reply) = client.compound(7, &Client::on_file(&reads), |header, _| {
        header.writes = vec![vec![part(one, 0, 1000), part(one, 1000, 8000)], vec![two]];
    });
    assert_eq!(header.procedure, procedure::MSG);
    assert_eq!(lengths(&header.writes[0]), [1000, 8000]);
    assert_eq!(lengths(&header.writes[1]), [1001]);
    assert_eq!(client.setup.peer.memory(one), &data[..9000]);
    assert_eq!(client.setup.peer.memory(two)[..1001], data[9000..]);
    assert_eq!(client.setup.peer.memory(two)[1001..], [0xBB; 5000][1001..]);
    let mut results = Results::new(&reply, 8);
    results.skip(6);
    for (len, is_end) in [(9000, false), (1001, true)] {
        results.skip(2);
        assert_eq!((results.0.bool(), results.0.u32()), (Ok(is_end), Ok(len)));
    }
    // There is no chunk for the third: its data are in the message.
    results.skip(3);
    assert_eq!(results.0.opaque(3), Ok(&data[1..4]));
    results.skip(2 + 2 + 1);
    assert_eq!(results.0.u64(), Ok(10_001));
    assert_eq!(results.0.rest(), []);
}

#[test]
fn a_path_is_placed_and_a_long_list_goes_into_the_reply_chunk() {
    let mut client = Client::new();
    let create = |name: &[u8]| root().u32(6).u32(5).opaque(&[b'p'; 1001]).opaque(name);
    for number in 0..100 {
        let name = format!("link-{number:0100}");
        let create = create(name.as_bytes()).u32(0).u32(0);
        let (_, reply) = client.compound(3, &create, |_, _| {});
        Results::new(&reply, 4);
    }
    let memory = client.setup.peer.register(&[0; 1100]);
    let link = format!("link-{:0100}", 7);
    let read = root().u32(15).opaque(link.as_bytes()).u32(READLINK);
    let (header, reply) = client.compound(4, &read, |header, _| {
        header.writes = vec![vec![memory]];
    });
    assert_eq!(lengths(&header.writes[0]), [1001]);
    assert_eq!(client.setup.peer.memory(memory)[..1001], [b'p'; 1001]);
    let mut results = Results::new(&reply, 5);
    results.skip(6 + 2);
    assert_eq!((results.0.u32(), results.0.rest()), (Ok(1001), &[][..]));

    let list = args().u32(READDIR).u64(0).u64(0).u32(1 << 16).u32(1 << 16);
    let list = root().raw(&list.u32(0).0);
    let memory = client.setup.peer.register(&vec![0; 64 << 10]);
    let (header, _) = client.compound(3, &list, |header, _| {
        header.reply = Some(vec![memory]);
    });
    assert_eq!(header.procedure, procedure::NOMSG);
    let written = lengths(header.reply.as_deref().expect("the chunk"))[0] as usize;
    assert!(written > 100 * 105, "{written}");
    Results::new(&client.setup.peer.memory(memory)[..written], 4);
}

#[test]
fn a_compound_may_be_in_a_chunk_up_to_the_longest_that_a_session_allows() {
    for (len, status) in [(3, 0), (5001, 0), (256 << 10, 0), (300 << 10, 10_065)] {
        let mut client = Client::new();
        let data = pattern(len);
        let write = args().u32(WRITE).raw(&client.open).u64(0).u32(0);
        let operations = Client::on_file(&write.opaque(&data));
        client.sequence += 1;
        let operations = sequenced(&client.session, (0, client.sequence, 0), &operations);
        let setup = &mut client.setup;
        let call = compound(5, &operations).call(9, COMPOUND, (0, 0));
        let memory = setup.peer.register(&call);
        setup.send(&RdmaHeader::long(9, &[memory]), &[]);
        let (_, reply) = setup.peer.receive().expect("a reply");
        assert_eq!(results(&reply).u32(), Ok(status), "{len}");
        if status == 0 {
            assert_eq!(client.contents(len), data, "{len}");
        }
    }
}

#[test]
fn calls_that_are_gathered_wait_for_the_memory_of_others() {
    let mut client = Client::new();
    let parts: Vec<_> = (0..20_u8).map(|part| vec![part; 200_000]).collect();
    for (index, data) in parts.iter().enumerate() {
        let len = data.len() as u32;
        let write = args()
            .u32(WRITE)
            .raw(&client.open)
            .u64(index as u64 * 200_000);
        let operations = Client::on_file(&write.u32(0).u32(len));
        // Each in a slot of its own.
        let slot = (1 + index as u32, 1, 0);
        let operations = sequenced(&client.session, slot, &operations);
        let setup = &mut client.setup;
        let call = compound(5, &operations).call(9, COMPOUND, (0, 0));
        let mut header = RdmaHeader::message(9);
        header.reads = vec![(call.len() as u32, setup.peer.register(data))];
        let sent = setup
            .peer
            .send_only(&mut setup.server, &header.encode(&call));
        assert_eq!(sent, Ok(()));
    }
    let setup = &mut client.setup;
    setup.peer.posted.depth_max = 3;
    setup.peer.work(&mut setup.server);
    for _ in &parts {
        let (_, reply) = setup.peer.receive().expect("a reply");
        head(&reply, 5);
    }
    assert!(setup.peer.is_idle());
    assert_eq!(client.contents(4_000_000), parts.concat());
}

#[test]
fn chunks_of_compounds_that_do_not_fit_are_errors() {
    let mut client = Client::new();
    client.write(&pattern(5000), 0);
    let short = client.setup.peer.register(&[0; 4000]);
    let read = Client::on_file(&client.read(0, 5000));
    let (header, _) = client.compound(4, &read, |header, _| {
        header.writes = vec![vec![short]];
    });
    assert_eq!(
        (header.procedure, header.error),
        (procedure::ERROR, vec![2])
    );
    // Without any chunk the data fit no message.
    let (header, _) = client.compound(4, &read, |_, _| {});
    assert_eq!(
        (header.procedure, header.error),
        (procedure::ERROR, vec![2])
    );
    // An argument that is longer than any, and operations that are cut off.
    let long = client.setup.peer.register(&vec![0; 300 << 10]);
    let nothing = args().u32(PUTROOTFH);
    for (extra, chunk) in [(0, long), (1, short)] {
        let (header, _) = client.compound(1, &nothing, |header, call| {
            header.reads = vec![(call.len() as u32, chunk)];
            call.resize(call.len() + extra, 0);
        });
        assert_eq!(
            (header.procedure, header.error),
            (procedure::ERROR, vec![2])
        );
        client.sequence -= 1;
    }
}
