use block::{Blocks, Extent, Lba};
use session::{RemoteBuffer, RemoteKey};
use zerocopy::{FromBytes, IntoBytes};

use super::*;

/// The bytes of a view are `golden`, and `golden` parses to it.
fn golden<T>(value: &T, golden: &[u8])
where
    T: FromBytes + IntoBytes + zerocopy::Immutable + PartialEq + std::fmt::Debug,
{
    assert_eq!(value.as_bytes(), golden);
    assert_eq!(T::read_from_bytes(golden).ok().as_ref(), Some(value));
}

#[test]
fn golden_command() {
    let extent = Extent::new(Lba(0x0102_0304_0506_0708), Blocks(0x0A0B_0C0D));
    let mut command = Command::new(Operation::Write, Flags(0x0105), extent);
    command.tag.set(0x0203);
    command.descriptors.set(2);
    command.data_bytes.set(0x1000);
    command.sequence.set(0xAABB_CCDD);
    golden(
        &command,
        &[
            0x10, 2, 0x05, 0x01, 0x03, 0x02, 2, 0, 8, 7, 6, 5, 4, 3, 2, 1, 0x0D, 0x0C, 0x0B, 0x0A,
            0, 0x10, 0, 0, 0xDD, 0xCC, 0xBB, 0xAA, 0, 0, 0, 0,
        ],
    );
    assert_eq!(command.extent(), extent);
    assert!(command.flags().contains(Flags::FUA) && command.flags().contains(Flags::INVALIDATE));
    assert!(!command.flags().contains(Flags::KEEP));
}

#[test]
fn golden_descriptor() {
    let buffer = RemoteBuffer {
        address: 0x1122_3344_5566_7788,
        key: RemoteKey(0x99AA_BBCC),
        len_bytes: 4096,
    };
    let bytes = [
        0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 0xCC, 0xBB, 0xAA, 0x99, 0, 0x10, 0, 0,
    ];
    golden(&Descriptor::of(buffer), &bytes);
    assert_eq!(Descriptor::of(buffer).buffer(), buffer);
}

#[test]
fn golden_short_messages() {
    let reply = Short::reply(7, 512, Status::Miscompare, 0x0102, 0x0304_0506);
    golden(&reply, &[0x11, 0, 7, 0, 0, 2, 0, 0, 5, 0, 2, 1, 6, 5, 4, 3]);
    assert_eq!(
        (reply.status(), reply.credits(), reply.second()),
        (5, 0x0102, 0x0304_0506)
    );
    let part = Short::part(7, 512, 9);
    golden(&part, &[0x11, 1, 7, 0, 0, 2, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0]);
    assert!(part.has_more() && !reply.has_more());
    golden(
        &Short::replies(0x0203, 0x0102_0304),
        &[0x15, 0, 3, 2, 4, 3, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0],
    );
    let pull = Short::pull(0x0201, 0x1000, 0x2000);
    golden(
        &pull,
        &[0x12, 0, 1, 2, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0x20, 0, 0],
    );
    assert_eq!((pull.first(), pull.second()), (0x1000, 0x2000));
    golden(
        &Short::data(3, 5),
        &[0x13, 0, 3, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    );
    let abort = Short::abort(3, 0x0102_0304);
    golden(&abort, &[0x14, 0, 3, 0, 0, 0, 0, 0, 4, 3, 2, 1, 0, 0, 0, 0]);
    let event = Short::event(EventCode::Resized, 0x0102);
    golden(&event, &[0x32, 1, 0, 0, 0, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0]);
    assert_eq!(event.value(), 0x0102);
    let mut ping = Short::new(Kind::Ping);
    ping.rest = [1, 2, 3, 4, 5, 6, 7, 8];
    golden(
        &Short::pong(&ping),
        &[0x31, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8],
    );
    golden(
        &Short::fault(Violation::Tag),
        &[0x3F, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    );
    golden(
        &Short::new(Kind::Logout),
        &[0x33, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    );
}

#[test]
fn golden_login() {
    let mut login = Login::new("nqn.h", "nqn.t", 0x0506).expect("names");
    login.tags.set(32);
    login.features.set(Features::ANY_ORDER.0);
    login.keep_alive_ms.set(15_000);
    login.hold_ms.set(60_000);
    login.transfer_max_bytes.set(1 << 20);
    login.reply_data_max_bytes.set(4096);
    login.session = SessionId([0xAB; 16]);
    let mut bytes = [0; 512];
    bytes[0] = 1;
    bytes[4..8].copy_from_slice(b"BRP1");
    bytes[8..12].copy_from_slice(&[1, 0, 32, 0]);
    bytes[12..20].copy_from_slice(&[1, 0, 0, 0, 6, 5, 0, 0]);
    bytes[20..28].copy_from_slice(&[0x98, 0x3A, 0, 0, 0x60, 0xEA, 0, 0]);
    bytes[28..36].copy_from_slice(&[0, 0, 0x10, 0, 0, 0x10, 0, 0]);
    bytes[48..64].fill(0xAB);
    bytes[64..69].copy_from_slice(b"nqn.h");
    bytes[288..293].copy_from_slice(b"nqn.t");
    golden(&login, &bytes);
    assert_eq!(
        (login.host.name(), login.target.name()),
        (Some("nqn.h"), Some("nqn.t"))
    );
    assert_eq!(login.tags(), Some(32));
}

#[test]
fn golden_login_reply() {
    let mut reply = LoginReply::rejected(LoginStatus::Ok);
    reply.flags = ReplyFlags::RESUMED.0 | ReplyFlags::WRITE_CACHE.0;
    reply.tags.set(16);
    reply.features.set(1);
    reply.credits.set(15);
    reply.block_shift = 12;
    reply.descriptors_max = 4;
    reply.blocks.set(0x0102_0304_0506);
    reply.transfer_max_bytes.set(1 << 20);
    reply.command_data_max_bytes.set(1 << 16);
    reply.compare_max_bytes.set(1 << 17);
    reply.reply_data_max_bytes.set(0);
    reply.keep_alive_ms.set(15_000);
    reply.hold_ms.set(60_000);
    reply.session = SessionId([7; 16]);
    reply.volume = [9; 16];
    let mut bytes = [0; 128];
    bytes[..16].copy_from_slice(&[2, 5, 0, 0, 1, 0, 16, 0, 1, 0, 0, 0, 15, 0, 12, 4]);
    bytes[16..24].copy_from_slice(&[6, 5, 4, 3, 2, 1, 0, 0]);
    bytes[24..36].copy_from_slice(&[0, 0, 0x10, 0, 0, 0, 1, 0, 0, 0, 2, 0]);
    bytes[40..48].copy_from_slice(&[0x98, 0x3A, 0, 0, 0x60, 0xEA, 0, 0]);
    bytes[48..64].fill(7);
    bytes[64..80].fill(9);
    golden(&reply, &bytes);
    let rejected = LoginReply::rejected(LoginStatus::NoSession);
    assert_eq!(rejected.as_bytes()[..6], [2, 0, 7, 0, 1, 0]);
    assert!(rejected.as_bytes()[6..].iter().all(|&byte| byte == 0));
}

#[test]
fn golden_connection_request_and_reply() {
    golden(
        &ConnectionRequest::new(0x0102),
        &[b'B', b'R', b'P', b'1', 1, 0, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0],
    );
    let bytes = [
        b'B', b'R', b'P', b'1', 1, 0, 2, 1, 0x20, 0x10, 0, 0, 0, 0, 0, 0,
    ];
    let reply = ConnectionReply::parse(&bytes).expect("a reply");
    assert_eq!(
        (reply.tags.get(), reply.receive_bytes.get()),
        (0x0102, 0x1020)
    );
    golden(&ConnectionReply::new(0x0102, 0x1020), &bytes);
    let request = ConnectionRequest::new(0x0102);
    for (is_valid, change) in [
        (true, (4, 2)),
        (false, (4, 0)),
        (false, (0, 0)),
        (false, (7, 0xFF)),
    ] {
        let mut bytes = request.as_bytes().to_vec();
        bytes[change.0] = change.1;
        assert_eq!(ConnectionRequest::parse(&bytes).is_some(), is_valid);
    }
    assert_eq!(ConnectionRequest::parse(&request.as_bytes()[..15]), None);
    assert_eq!(
        ConnectionRequest::parse(ConnectionRequest::new(0).as_bytes()),
        None
    );
    let mut other = bytes;
    other[4] = 2;
    assert_eq!(ConnectionReply::parse(&other), None);
    assert_eq!(ConnectionReply::parse(&bytes[..15]), None);
}

/// BRP-7.
#[test]
fn a_name_is_text_of_1_to_223_bytes_and_zeros() {
    assert_eq!(NameField::new(""), None);
    assert_eq!(NameField::new("a\0b"), None);
    let longest = "x".repeat(NAME_BYTES_MAX);
    assert_eq!(NameField::new(&format!("{longest}x")), None);
    assert_eq!(
        NameField::new(&longest).expect("fits").name(),
        Some(longest.as_str())
    );
    let with = |change: &dyn Fn(&mut [u8; 224])| {
        let mut bytes = [0; 224];
        bytes[..2].copy_from_slice(b"ab");
        change(&mut bytes);
        NameField::read_from_bytes(&bytes)
            .expect("its length")
            .name()
            .map(str::to_owned)
    };
    assert_eq!(with(&|_| {}).as_deref(), Some("ab"));
    assert_eq!(with(&|bytes| bytes[9] = b'c'), None, "bytes behind the end");
    assert_eq!(with(&|bytes| bytes.fill(b'c')), None, "no end");
    assert_eq!(with(&|bytes| bytes[0] = 0xFF), None, "not UTF-8");
    assert_eq!(with(&|bytes| bytes[0] = 0), None);
}

#[test]
fn numbers_and_kinds_are_those_of_their_tables() {
    for byte in 0..=u8::MAX {
        if let Some(kind) = Kind::from_byte(byte) {
            assert_eq!(kind as u8, byte);
            assert!(kind.is_of_host() || kind.is_of_target());
        }
        if let Some(violation) = Violation::from_byte(byte) {
            assert_eq!(violation as u8, byte);
        }
        if let Some(event) = EventCode::from_byte(byte) {
            assert_eq!(event as u8, byte);
        }
        if let Some(operation) = Operation::from_byte(byte) {
            assert_eq!(operation as u8, byte);
        }
        let number = u16::from(byte);
        if let Some(status) = Status::from_number(number) {
            assert_eq!(status as u16, number);
        }
        if let Some(status) = LoginStatus::from_number(number) {
            assert_eq!(status as u16, number);
        }
    }
    assert_eq!(
        (0x20..0x30).find_map(Kind::from_byte),
        None,
        "reserved for windows"
    );
    assert_eq!(
        (0x40..0x50).find_map(Operation::from_byte),
        None,
        "reserved for windows"
    );
}
