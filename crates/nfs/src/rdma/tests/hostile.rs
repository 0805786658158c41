//! Headers of a hostile client. Each has a reply with an error, or none; nothing is read or
//! written.

use super::*;

const ERR_VERS: &[u32] = &[1, 1, 1];
const ERR_CHUNK: &[u32] = &[2];

impl Setup {
    /// What a message is answered with: the error, or none if there is no reply. The session goes
    /// on.
    fn error(&mut self, message: &[u8]) -> Option<Vec<u32>> {
        self.peer.send(&mut self.server, message);
        let error = self.peer.receive().map(|(header, _)| {
            assert_eq!(header.procedure, procedure::ERROR);
            assert_eq!(header.xid, 99);
            header.error
        });
        let arguments = args().opaque(&self.root);
        let (_, reply) = self.call(GETATTR, &arguments, |_| {});
        assert_eq!(results(&reply).u32(), Ok(0));
        assert_eq!(self.peer.written_bytes, 0);
        error
    }

    fn refused(&mut self, header: &RdmaHeader, body: &[u8]) {
        assert_eq!(
            self.error(&header.encode(body)).as_deref(),
            Some(ERR_CHUNK),
            "{header:?}"
        );
    }
}

fn call(number: u32, arguments: &Arguments) -> Vec<u8> {
    arguments.call(99, (NFS.0, NFS.1, number), (0, 0))
}

#[test]
fn another_version_is_answered_with_ours() {
    let mut setup = Setup::new();
    let header = RdmaHeader {
        version: 2,
        ..RdmaHeader::message(99)
    };
    assert_eq!(setup.error(&header.encode(&[])).as_deref(), Some(ERR_VERS));
    // Whatever follows the fixed part.
    assert_eq!(
        setup.error(&header.encode(&[])[..16]).as_deref(),
        Some(ERR_VERS)
    );
}

#[test]
fn truncated_headers_are_errors_or_ignored() {
    let mut setup = Setup::new();
    let segment = setup.peer.register(&[0; 64]);
    let header = RdmaHeader {
        reads: vec![(64, segment)],
        writes: vec![vec![segment, segment]],
        reply: Some(vec![segment]),
        ..RdmaHeader::message(99)
    };
    let message = header.encode(&[]);
    for len in 0..message.len() {
        let error = setup.error(&message[..len]);
        let expected = (len >= 16).then_some(ERR_CHUNK);
        assert_eq!(error.as_deref(), expected, "{len}");
    }
}

#[test]
fn other_kinds_of_messages_are_ignored_or_refused() {
    let mut setup = Setup::new();
    let is_ignored = |procedure| [procedure::DONE, procedure::ERROR].contains(&procedure);
    for procedure in [
        procedure::MSGP,
        procedure::DONE,
        procedure::ERROR,
        5,
        u32::MAX,
    ] {
        let header = RdmaHeader {
            procedure,
            ..RdmaHeader::message(99)
        };
        let error = setup.error(&header.encode(&[]));
        assert_eq!(error.is_none(), is_ignored(procedure), "{procedure}");
    }
    // Neither a call in the message nor one in a chunk, and both.
    let segment = setup.peer.register(&[0; 64]);
    setup.refused(&RdmaHeader::long(99, &[]), &[]);
    let both = RdmaHeader {
        reads: vec![(0, segment)],
        ..RdmaHeader::message(99)
    };
    setup.refused(&both, &call(GETATTR, &args()));
}

#[test]
fn what_is_no_call_has_no_reply() {
    let mut setup = Setup::new();
    for body in [&[][..], &[0; 7], &[0, 0, 0, 99, 0, 0, 0, 1]] {
        assert_eq!(setup.error(&RdmaHeader::message(99).encode(body)), None);
    }
}

#[test]
fn lists_are_bounded() {
    let mut setup = Setup::new();
    let segment = setup.peer.register(&[0; 64]);
    let body = call(GETATTR, &args());
    let long = |segments: usize| vec![segment; segments];
    let base = RdmaHeader::message(99);
    let reads = vec![(64, segment); 65];
    for header in [
        RdmaHeader {
            reads,
            ..base.clone()
        },
        RdmaHeader {
            writes: vec![long(65)],
            ..base.clone()
        },
        RdmaHeader {
            writes: vec![long(1); 5],
            ..base.clone()
        },
        RdmaHeader {
            writes: vec![long(40)],
            reply: Some(long(25)),
            ..base.clone()
        },
    ] {
        setup.refused(&header, &body);
    }
    // A count without its segments.
    let mut message = base.encode(&[]);
    message.truncate(20);
    message.extend([0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff]);
    assert_eq!(setup.error(&message).as_deref(), Some(ERR_CHUNK));
    // Booleans are 0 or 1.
    let mut message = base.encode(&body);
    message[19] = 2;
    assert_eq!(setup.error(&message).as_deref(), Some(ERR_CHUNK));
}

#[test]
fn segments_may_not_wrap_around() {
    let mut setup = Setup::new();
    let segment = Segment {
        handle: 1.into(),
        len_bytes: 16.into(),
        offset: (u64::MAX - 8).into(),
    };
    let body = call(GETATTR, &args());
    let base = RdmaHeader::message(99);
    setup.refused(
        &RdmaHeader {
            reads: vec![(64, segment)],
            ..base.clone()
        },
        &body,
    );
    setup.refused(
        &RdmaHeader {
            writes: vec![vec![segment]],
            ..base.clone()
        },
        &body,
    );
    setup.refused(
        &RdmaHeader {
            reply: Some(vec![segment]),
            ..base.clone()
        },
        &body,
    );
    setup.refused(&RdmaHeader::long(99, &[segment]), &[]);
}

#[test]
fn arguments_in_chunks_stand_where_they_belong() {
    let mut setup = Setup::new();
    let file = setup.create(b"f");
    let segment = setup.peer.register(&[1; 64]);
    let body = call(WRITE, &args().opaque(&file).u64(0).u32(64).u32(0).u32(64));
    let end = body.len() as u32;
    let base = RdmaHeader::message(99);
    let with = |reads: &[(u32, Segment)]| RdmaHeader {
        reads: reads.to_vec(),
        ..base.clone()
    };
    // In front of the data, behind the call, not at a multiple of 4, twice, and in descending
    // order.
    for reads in [
        &[(end - 4, segment)][..],
        &[(end + 4, segment)],
        &[(u32::MAX, segment)],
        &[(end - 1, segment)],
        &[(end, segment), (end + 64, segment)],
        &[(end, segment), (0, segment)],
    ] {
        setup.refused(&with(reads), &body);
    }
    // Shorter and longer than the data.
    for len in [0, 4, 60, 61] {
        setup.refused(&with(&[(end, part(segment, 0, len))]), &body);
    }
    setup.refused(&with(&[(end, segment), (end, segment)]), &body);
    // Arguments that are not in chunks.
    let other = call(GETATTR, &args().opaque(&file));
    setup.refused(&with(&[(other.len() as u32, segment)]), &other);
    assert_eq!(setup.contents(&file), []);
}

#[test]
fn calls_in_chunks_are_bounded() {
    let mut setup = Setup::new();
    let segment = Segment {
        handle: 77.into(),
        len_bytes: (2 << 20).into(),
        offset: 0.into(),
    };
    setup.refused(&RdmaHeader::long(99, &[segment]), &[]);
    let longest = Segment {
        len_bytes: u32::MAX.into(),
        ..segment
    };
    setup.refused(&RdmaHeader::long(99, &[longest; 60]), &[]);
    let misplaced = RdmaHeader {
        reads: vec![(0, part(segment, 0, 64)), (60, part(segment, 0, 64))],
        ..RdmaHeader::long(99, &[])
    };
    setup.refused(&misplaced, &[]);
    assert!(!setup.peer.has_failed, "nothing was read");
}

#[test]
fn a_result_that_does_not_fit_its_chunk_is_an_error() {
    let mut setup = Setup::new();
    let file = setup.create(b"f");
    setup.write(&file, 0, &[1; 100]);
    let memory = setup.peer.register(&[0; 99]);
    let body = call(READ, &args().opaque(&file).u64(0).u32(100));
    let header = RdmaHeader {
        writes: vec![vec![memory]],
        ..RdmaHeader::message(99)
    };
    setup.refused(&header, &body);
}

#[test]
fn malformed_calls_in_chunks_are_garbage() {
    let mut setup = Setup::new();
    let file = setup.create(b"f");
    let full = call(
        WRITE,
        &args()
            .opaque(&file)
            .u64(0)
            .u32(5000)
            .u32(0)
            .opaque(&[1; 5000]),
    );
    let mut longer = full.clone();
    longer.extend([0; 4]);
    let wrong = call(GETATTR, &args().opaque(&[0; 200]));
    let overlong = vec![0; 9000];
    let overlong = call(GETATTR, &args().opaque(&file).opaque(&overlong));
    for call in [&full[..full.len() - 4], &longer, &wrong, &overlong] {
        let memory = setup.peer.register(call);
        setup.send(&RdmaHeader::long(99, &[memory]), &[]);
        let (header, reply) = setup.peer.receive().expect("a reply");
        assert_eq!(header.procedure, procedure::MSG);
        assert_eq!(reply[REPLY_HEAD - 4..], [0, 0, 0, 4], "GARBAGE_ARGS");
        assert!(setup.peer.is_idle());
    }
    assert_eq!(setup.contents(&file), []);
}

#[test]
fn keys_of_other_memory_end_only_this_connection() {
    let mut setup = Setup::new();
    let file = setup.create(b"f");
    setup.write(&file, 0, &[1; 100]);
    let nothing = Segment {
        handle: 1000.into(),
        len_bytes: 100.into(),
        offset: 0.into(),
    };
    let arguments = args().opaque(&file).u64(0).u32(100);
    let (mut header, body) = setup.encode(READ, &arguments);
    header.writes = vec![vec![nothing]];
    setup.send(&header, &body);
    assert!(setup.peer.has_failed);
    setup.peer = RdmaPeer::new();
    assert_eq!(setup.contents(&file), [1; 100]);
}
