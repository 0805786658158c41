use proptest::prelude::*;
use session::{RemoteBuffer, RemoteKey};
use zerocopy::IntoBytes;

use super::*;
use crate::target::{TargetConfig, accept};

/// The private data of Linux 6.12's ib_srp: id_ext 0x0002c903000e8acd, ioc_guid 0x0002c903000e8acc,
/// initiator_ext 1, a GID that ends with fe80:…:5054:ff:fe12:3456, immediate data.
const LINUX_LOGIN: [u8; 56] = [
    0, 0, 0, 0, 0, 0, 0, 0, // tag
    0x00, 0x06, 0x80, 0x00, // buffer formats, flags, opcode
    0x00, 0x00, 0x20, 0x44, // 8260 bytes
    0, 0, 0, 0, 0, 0, 0, 1, 0x50, 0x54, 0, 0xFF, 0xFE, 0x12, 0x34, 0x56, // initiator port
    0x00, 0x02, 0xC9, 0x03, 0x00, 0x0E, 0x8A, 0xCD, // target port: id_ext
    0x00, 0x02, 0xC9, 0x03, 0x00, 0x0E, 0x8A, 0xCC, // ioc_guid
    0x00, 0x44, 0, 0, 0, 0, 0, 0, // immediate data at byte 68
];

#[test]
fn a_login_of_linux_is_understood_and_answered() {
    let login = Login::parse(&LINUX_LOGIN).expect("a login");
    assert_eq!(login.as_bytes(), LINUX_LOGIN);
    assert_eq!(
        login.initiator.to_string(),
        "0x0000000000000001505400fffe123456"
    );
    assert_eq!(login.target.extension(), 0x0002_C903_000E_8ACD);
    assert_eq!(login.target.guid(), 0x0002_C903_000E_8ACC);
    assert_eq!(
        (login.is_multi(), login.immediate_offset()),
        (false, Some(68))
    );
    let accepted = accept(login, TargetConfig::default()).expect("it is accepted");
    let mut expected = [0; 52];
    expected[0] = 0xC0;
    expected[4..8].copy_from_slice(&128_u32.to_be_bytes());
    expected[16..20].copy_from_slice(&8320_u32.to_be_bytes());
    expected[20..24].copy_from_slice(&68_u32.to_be_bytes());
    expected[25] = 0x06;
    expected[26] = 0x82;
    assert_eq!(accepted.response(Some(true)).as_bytes(), expected);
    let padded = [&LINUX_LOGIN[..], &[0; 36]].concat();
    assert_eq!(Login::parse(&padded), Some(login));
    assert_eq!(Login::parse(&LINUX_LOGIN[..55]), None);
}

#[test]
fn a_login_beyond_what_is_supported_is_rejected() {
    let login = *Login::parse(&LINUX_LOGIN).expect("a login");
    let reason = |login| accept(&login, TargetConfig::default()).map(|_| ()).err();
    let long = Login {
        request_len_bytes: 8321.into(),
        ..login
    };
    assert_eq!(reason(long), Some(RejectReason::RequestLength));
    let odd = Login {
        formats: 0x0008.into(),
        ..login
    };
    assert_eq!(reason(odd), Some(RejectReason::Formats));
    let reject = LoginReject::new([7; 8], RejectReason::Association);
    let mut expected = [0; 32];
    (expected[0], expected[5], expected[7], expected[25]) = (0xC2, 1, 3, 0x06);
    expected[8..16].fill(7);
    assert_eq!(reject.as_bytes(), expected);
}

/// READ (10) of 8 blocks with an indirect table of three descriptors, of which two are listed.
fn indirect() -> Vec<u8> {
    let mut message = vec![0; 48];
    (message[0], message[5], message[7]) = (0x02, 0x02, 2);
    message[8] = 9;
    message[21] = 3;
    message[32] = 0x28;
    message[40] = 8;
    let descriptor = |address: u64, key: u32, len: u32| {
        let mut bytes = address.to_be_bytes().to_vec();
        bytes.extend(key.to_be_bytes());
        bytes.extend(len.to_be_bytes());
        bytes
    };
    message.extend(descriptor(0x1000, 5, 48));
    message.extend(4096_u32.to_be_bytes());
    message.extend(descriptor(0x2000, 6, 1024));
    message.extend(descriptor(0x3000, 7, 2048));
    message
}

fn buffer(address: u64, key: u32, len_bytes: u32) -> RemoteBuffer {
    RemoteBuffer {
        address,
        key: RemoteKey(key),
        len_bytes,
    }
}

#[test]
fn an_indirect_table_that_is_not_all_in_the_message_is_fetched() {
    let message = indirect();
    let request = parse_command(&message, None).expect("a command");
    assert_eq!((request.command.tag[0], request.command.lun[1]), (9, 3));
    let Data::Memory {
        direction,
        descriptors,
        table,
        len_bytes,
    } = request.data
    else {
        panic!("its data are in memory")
    };
    assert_eq!((direction, len_bytes), (Direction::In, 4096));
    let listed: Vec<_> = descriptors.iter().map(Descriptor::buffer).collect();
    assert_eq!(listed, [buffer(0x2000, 6, 1024), buffer(0x3000, 7, 2048)]);
    assert_eq!(table, Some(buffer(0x1020, 5, 16)));
}

#[test]
fn tables_that_contradict_themselves_are_violations() {
    let with = |at: usize, value: u32| {
        let mut message = indirect();
        message[at..at + 4].copy_from_slice(&value.to_be_bytes());
        parse_command(&message, None).err()
    };
    // The length of the table: no whole descriptors, too many, beyond the last address.
    assert_eq!(with(60, 47), Some(Violation::Table));
    assert_eq!(with(60, (DESCRIPTORS_MAX + 1) * 16), Some(Violation::Table));
    assert_eq!(with(60, DESCRIPTORS_MAX * 16), None);
    let mut message = indirect();
    message[48..56].fill(0xFF);
    assert_eq!(parse_command(&message, None).err(), Some(Violation::Table));
    // More descriptors than the message has.
    let mut message = indirect();
    message[7] = 3;
    let len = message.len();
    assert_eq!(
        parse_command(&message, None).err(),
        Some(Violation::Length(len))
    );
    // Data-out and data-in at once, and formats that do not exist.
    for formats in [0x11, 0x04, 0x03, 0x30] {
        let mut message = indirect();
        message[5] = formats;
        assert_eq!(
            parse_command(&message, None).err(),
            Some(Violation::Format(formats))
        );
    }
}

#[test]
fn descriptors_stand_behind_an_additional_cdb() {
    let mut message = indirect();
    message[31] = 4 << 2;
    message.splice(48..48, [0xEE; 16]);
    let request = parse_command(&message, None).expect("a command");
    assert!(matches!(
        request.data,
        Data::Memory {
            len_bytes: 4096,
            ..
        }
    ));
}

#[test]
fn immediate_data_lie_behind_their_descriptor_and_inside_the_message() {
    let message = crate::testing::command(
        1,
        &[0x2A],
        Some((Direction::Out, crate::testing::Form::Immediate)),
        &[],
        &[9; 512],
    );
    let request = parse_command(&message, Some(68)).expect("a command");
    assert_eq!(request.data, Data::Immediate(&[9; 512]));
    assert_eq!(parse_command(&message, None), Err(Violation::Format(0x30)));
    assert_eq!(parse_command(&message, Some(51)), Err(Violation::Table));
    let len = message.len() - 1;
    assert_eq!(
        parse_command(&message[..len], Some(68)),
        Err(Violation::Length(len))
    );
    assert_eq!(
        parse_command(&message, Some(u16::MAX)),
        Err(Violation::Length(len + 1))
    );
}

proptest! {
    /// Any bytes are parsed or refused, and what is parsed lies inside of the bounds.
    #[test]
    fn any_bytes_are_a_command_or_none(
        mut bytes in prop::collection::vec(any::<u8>(), 0..400),
        formats in 0_u8..64,
        offset in prop::option::of(any::<u16>()),
    ) {
        if let Some(byte) = bytes.get_mut(5) {
            *byte = formats;
        }
        crate::testing::fuzz::wire(&bytes);
        if let Ok(Request { data: Data::Memory { descriptors, table, .. }, .. }) = parse_command(&bytes, offset) {
            let left = table.map_or(0, |table| table.len_bytes / 16);
            prop_assert!(descriptors.len() as u32 + left <= DESCRIPTORS_MAX);
        }
    }
}
