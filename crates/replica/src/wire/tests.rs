use std::sync::Arc;
use std::time::Duration;

use block::{BlockSize, Blocks, Extent, Lba};

use super::*;
use crate::ids::{Epoch, LocalTime, MemberId, Seq, StreamId};
use crate::message::{Beacon, Body as MessageBody, Entry, EntryBody, Envelope, Report};
use crate::testing::packets;
use crate::{Claim, Config, Contents};

fn member(node: u32) -> MemberId {
    MemberId {
        node,
        incarnation: 0x0102_0304_0506_0708,
    }
}

fn config() -> Config {
    let config = Config::first(member(1), &[member(1), member(2)]);
    config.expect("valid")
}

fn stream() -> StreamId {
    StreamId {
        number: 3,
        opened: Epoch(2),
    }
}

fn entry(body: EntryBody<Contents>) -> MessageBody<Contents> {
    MessageBody::Entry(Entry {
        stream: stream(),
        seq: Seq(9),
        settled: Seq(8),
        body,
    })
}

fn message(body: MessageBody<Contents>) -> Packet {
    Packet::Message {
        volume: 0x11,
        envelope: Envelope {
            from: member(1),
            to: member(2),
            epoch: Epoch(2),
            body,
        },
    }
}

fn contents(byte: u8) -> Contents {
    let bytes = Arc::from(vec![byte; 512]);
    Contents::of_bytes(BlockSize::B512, bytes).expect("a block")
}

fn command(kind: CommandKind) -> Packet {
    Packet::Command(Command {
        id: 5,
        volume: 0x11,
        heard_at: LocalTime(Duration::from_nanos(77)),
        block_size: BlockSize::B512,
        extent: Extent::new(Lba(4), Blocks(1)),
        kind,
    })
}

fn answer(code: AnswerCode, contents: Option<Contents>) -> Packet {
    Packet::Answer(Answer {
        id: 5,
        volume: 0x11,
        code,
        contents,
    })
}

/// One packet of each form, by the name of its input in the corpus.
fn all() -> Vec<(&'static str, Packet)> {
    let extent = Extent::new(Lba(4), Blocks(1));
    let sent_at = LocalTime(Duration::from_nanos(77));
    let mut packets = entries();
    packets.extend([
        (
            "hello",
            Packet::Hello(Hello {
                cluster: 0xC1,
                from: 1,
                to: 2,
                incarnation: 6,
            }),
        ),
        ("ping", Packet::Ping(Ping { sent_at })),
        (
            "beacon",
            message(MessageBody::Beacon(Beacon {
                sent_at,
                config: config(),
                stream: Some(stream()),
                settled: Seq(8),
                is_reconciled: true,
            })),
        ),
        ("beacon_ack", message(MessageBody::BeaconAck { sent_at })),
        (
            "report",
            message(MessageBody::Report(Report {
                stream: stream(),
                claim: Claim {
                    through: Epoch(1),
                    below: Lba(16),
                    below_through: Epoch(2),
                },
                unsettled: vec![extent],
            })),
        ),
        (
            "entry_ack",
            message(MessageBody::EntryAck {
                stream: stream(),
                applied: Seq(9),
            }),
        ),
        ("newer", message(MessageBody::Newer(config()))),
        ("command_read", command(CommandKind::Read)),
        ("command_write", command(CommandKind::Write(contents(2)))),
        ("command_copy", command(CommandKind::Copy(Lba(9)))),
        ("answer_read", answer(AnswerCode::Done, Some(contents(3)))),
        ("answer_full", answer(AnswerCode::Full, None)),
    ]);
    packets
}

fn named(name: &str) -> Packet {
    let mut packets = all().into_iter();
    let found = packets.find(|(given, _)| *given == name);
    found.expect("a packet of this name").1
}

/// Those of entries.
fn entries() -> Vec<(&'static str, Packet)> {
    let extent = Extent::new(Lba(4), Blocks(1));
    vec![
        (
            "write",
            message(entry(EntryBody::Write {
                extent,
                data: contents(0xAB),
            })),
        ),
        (
            "zeros",
            message(entry(EntryBody::Write {
                extent: Extent::new(Lba(0), Blocks(64)),
                data: Contents::zeros(BlockSize::B512, 64),
            })),
        ),
        (
            "piece",
            message(entry(EntryBody::Piece {
                extent,
                data: contents(1),
                stamp: Epoch(1),
                below: Lba(5),
                complete_through: Epoch(2),
            })),
        ),
        (
            "copy_end",
            message(entry(EntryBody::CopyEnd {
                complete_through: Epoch(2),
            })),
        ),
    ]
}

fn encoded(packet: &Packet) -> Vec<u8> {
    let mut out = Vec::new();
    packet.encode(&mut out);
    out
}

/// Hex digits without what separates them.
fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| {
        let pair = std::str::from_utf8(pair).expect("digits");
        u8::from_str_radix(pair, 16).expect("digits")
    };
    digits.chunks(2).map(byte).collect()
}

#[test]
fn each_packet_is_the_same_after_its_frame_was_decoded() {
    for (name, packet) in all() {
        let frame = encoded(&packet);
        let [Ok(decoded)] = &packets(&frame)[..] else {
            panic!("{name} is one packet");
        };
        assert_eq!(format!("{decoded:?}"), format!("{packet:?}"), "{name}");
    }
}

#[test]
fn the_corpus_has_a_frame_of_each_form() {
    let corpus = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../fuzz/corpus/replica_frames"
    );
    for (name, packet) in all() {
        let path = format!("{corpus}/{name}");
        let held = std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        assert_eq!(held, encoded(&packet), "{name}");
    }
    let path = format!("{corpus}/session");
    assert_eq!(std::fs::read(&path).expect("an input"), session());
}

/// What the secondary of the fuzz target takes: a beacon that names its stream, and entries.
fn session() -> Vec<u8> {
    let id = |node| MemberId {
        node,
        incarnation: 1,
    };
    // The first number is given up with the first configuration.
    let stream = StreamId {
        number: 2,
        opened: Epoch(1),
    };
    let beacon = MessageBody::Beacon(Beacon {
        sent_at: LocalTime(Duration::from_nanos(77)),
        config: Config::first(id(1), &[id(1), id(2)]).expect("valid"),
        stream: Some(stream),
        settled: Seq(0),
        is_reconciled: true,
    });
    let write = |seq, extent: Extent, data| {
        MessageBody::Entry(Entry {
            stream,
            seq: Seq(seq),
            settled: Seq(seq - 1),
            body: EntryBody::Write { extent, data },
        })
    };
    let one = Extent::new(Lba(4), Blocks(1));
    let all = Extent::new(Lba(0), Blocks(64));
    let bodies = [
        beacon.clone(),
        write(1, one, contents(1)),
        write(2, all, Contents::zeros(BlockSize::B512, 64)),
        beacon,
    ];
    let mut out = Vec::new();
    for body in bodies {
        let envelope = Envelope {
            from: id(1),
            to: id(2),
            epoch: Epoch(1),
            body,
        };
        Packet::Message {
            volume: 1,
            envelope,
        }
        .encode(&mut out);
    }
    out
}

#[test]
fn a_member_executes_the_entries_of_frames() {
    let medium = crate::testing::VecMedium(vec![9; 64 * 512]);
    let id = MemberId {
        node: 2,
        incarnation: 1,
    };
    let now = LocalTime::default();
    let member = crate::Member::new(id, crate::testing::settings(), medium, now);
    let mut member = member.expect("valid settings");
    let frames = packets(&session());
    for packet in &frames[..2] {
        let Ok(Packet::Message { envelope, .. }) = packet else {
            panic!("a message");
        };
        member.handle_message(now, envelope.clone());
    }
    let held = &member.medium().0;
    assert_eq!((held[4 * 512 - 1], held[4 * 512], held[5 * 512]), (9, 1, 9));
    for packet in frames.into_iter().flatten().skip(2) {
        let Packet::Message { envelope, .. } = packet else {
            panic!("a message");
        };
        member.handle_message(now, envelope);
    }
    assert!(member.medium().0.iter().all(|byte| *byte == 0));
}

#[test]
fn a_beacon_has_the_bytes_of_the_map() {
    let beacon = named("beacon");
    let golden = "
        52504e31 a8000000 0100 10 0000000000
        1100000000000000
        01000000 00000000 0807060504030201
        02000000 00000000 0807060504030201
        0200000000000000
        4d00000000000000
        0300000000000000 0200000000000000
        0800000000000000
        03000000 00000000
        0100000000000000
        01000000 00000000 0807060504030201
        02000000 00000000
        01000000 00000000 0807060504030201
        02000000 00000000 0807060504030201";
    let mut golden = bytes(golden);
    golden[4] = (golden.len() - FrameHeader::LEN_BYTES) as u8;
    assert_eq!(encoded(&beacon), golden);
}

#[test]
fn a_write_and_a_command_have_the_bytes_of_the_map() {
    let fields = |packet: &Packet| {
        let mut frame = encoded(packet);
        frame.truncate(frame.len() - 512);
        frame
    };
    let write = "
        52504e31 80020000 0100 13 0000000000
        1100000000000000
        01000000 00000000 0807060504030201
        02000000 00000000 0807060504030201
        0200000000000000
        0300000000000000 0200000000000000
        0900000000000000 0800000000000000
        01000000 09 01 0000
        0400000000000000 0100000000000000
        0000000000000000 0000000000000000 0000000000000000";
    assert_eq!(fields(&named("write")), bytes(write));
    let command = "
        52504e31 38020000 0100 20 0000000000
        0500000000000000 1100000000000000 4d00000000000000
        02000000 09 01 0000
        0400000000000000 0100000000000000
        0000000000000000";
    assert_eq!(fields(&named("command_write")), bytes(command));
}

#[test]
fn frames_that_are_cut_or_go_on_are_rejected() {
    for (name, packet) in all() {
        let frame = encoded(&packet);
        let kind = FrameKind::from_byte(frame[10]).expect("ours");
        let body = &frame[FrameHeader::LEN_BYTES..];
        for len in 0..body.len() {
            assert!(Packet::decode(kind, &body[..len]).is_err(), "{name} {len}");
        }
        let longer = [body, &[0]].concat();
        assert!(Packet::decode(kind, &longer).is_err(), "{name}");
    }
}

#[test]
fn headers_that_break_the_protocol_are_rejected() {
    let good: [u8; 16] = encoded(&named("ping"))[..16].try_into().expect("a header");
    let with = |place: usize, byte: u8| {
        let mut header = good;
        header[place] = byte;
        FrameHeader::decode(&header).expect_err("rejected")
    };
    assert!(FrameHeader::decode(&good).is_ok());
    assert!(matches!(with(0, b'X'), WireError::Magic(_)));
    assert_eq!(with(8, 2), WireError::Version(2));
    assert_eq!(with(10, 0x7F), WireError::Kind(0x7F));
    assert!(matches!(with(7, 1), WireError::TooLong(_)));
    assert!(matches!(with(15, 1), WireError::Field { .. }));
}

/// The frame with another byte, counted from its body.
fn changed(name: &str, place: usize, byte: u8) -> Result<Packet, WireError> {
    let (_, packet) = all().into_iter().find(|(of, _)| *of == name).expect("one");
    let mut frame = encoded(&packet);
    let kind = FrameKind::from_byte(frame[10]).expect("ours");
    frame[FrameHeader::LEN_BYTES + place] = byte;
    Packet::decode(kind, &frame[FrameHeader::LEN_BYTES..])
}

#[test]
fn fields_with_invalid_values_are_rejected() {
    let cases = [
        ("beacon", 48 + 32, 4),      // an unknown flag
        ("beacon", 48 + 40, 0),      // epoch 0
        ("beacon", 48 + 40 + 24, 9), // more members than are allowed
        ("beacon", 48 + 40 + 32, 3), // members that are not in order
        ("beacon", 48 + 40 + 8, 5),  // a primary that is no member
        ("report", 48 + 48 + 8, 0),  // an empty extent
        ("report", 48 + 43, 1),      // more extents than are allowed
        ("write", 48 + 16, 0),       // entry 0
        ("write", 48 + 32, 4),       // an unknown kind
        ("write", 48 + 36, 10),      // a block size that does not exist
        ("write", 48 + 36, 200),     // …and a shift beyond all numbers
        ("write", 48 + 37, 2),       // neither zeros nor bytes
        ("write", 48 + 38, 1),       // reserved
        ("write", 48 + 55, 0xFF),    // blocks beyond the frame
        ("command_read", 24, 9),     // an unknown kind
        ("command_read", 44, 0xFF),  // a read beyond the longest contents
        ("answer_full", 24, 6),      // an unknown code
        ("hello", 24, 1),            // reserved
    ];
    for (name, place, byte) in cases {
        assert!(changed(name, place, byte).is_err(), "{name} {place} {byte}");
    }
    let long = changed("command_read", 44, 0xFF);
    let field = "command blocks";
    assert!(matches!(long, Err(WireError::Field { field: of, .. }) if of == field));
}

#[test]
fn a_configuration_survives_the_store_and_damage_is_noticed() {
    let held = encode_config(&config());
    assert_eq!(decode_config(&held), Ok(config()));
    assert!(decode_config(&held[1..]).is_err());
    assert!(decode_config(&[&held[..], &[0]].concat()).is_err());
}
