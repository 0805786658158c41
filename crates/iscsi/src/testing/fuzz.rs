//! The functions of fuzz targets. `cargo test` runs the same functions over the corpora.

mod iser;
mod session;
mod target;

use std::time::Instant;

use ::session::{Session as _, StreamSession as _};
use block::BlockSize;
use block::testing::VecVolume;
use std::sync::Arc;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::TestTarget;
use crate::backend::Authentication;
use crate::chap::Credentials;
use crate::initiator::PortalAddress;
use crate::tcp::TargetSession;
use crate::text;
use crate::text::{TextBuilder, encode_hex, parse, parse_binary, parse_number};
use crate::wire::{Bhs, command, data, login as login_wire, other, parse_lun, request, response};

pub use iser::{iser_message, iser_session};
pub use session::{login_answers, session};
pub use target::{commands, connection};

/// Every header: each one that is read is written back alike, and lengths are in their range.
pub fn pdu(input: &[u8]) {
    let Ok((bhs, rest)) = Bhs::read_from_prefix(input) else {
        return;
    };
    assert!(bhs.ahs_len() <= 255 * 4);
    assert!(bhs.padded_data_len() % 4 == 0 && bhs.padded_data_len() < (1 << 24) + 4);
    if let Some(lun) = parse_lun(bhs.lun) {
        assert_eq!(parse_lun(scsi::lun_bytes(lun)), Some(lun));
    }
    match bhs.opcode() {
        request::SCSI_COMMAND => same::<command::ScsiCommand>(&bhs),
        request::TASK_MANAGEMENT => same::<command::TaskManagementRequest>(&bhs),
        request::LOGIN => same::<login_wire::LoginRequest>(&bhs),
        request::TEXT => same::<login_wire::TextRequest>(&bhs),
        request::DATA_OUT => same::<data::DataOut>(&bhs),
        request::LOGOUT => same::<login_wire::LogoutRequest>(&bhs),
        request::NOP_OUT => same::<other::NopOut>(&bhs),
        request::SNACK => same::<other::SnackRequest>(&bhs),
        response::SCSI_RESPONSE => same::<command::ScsiResponse>(&bhs),
        response::TASK_MANAGEMENT => same::<command::TaskManagementResponse>(&bhs),
        response::LOGIN => same::<login_wire::LoginResponse>(&bhs),
        response::TEXT => same::<login_wire::TextResponse>(&bhs),
        response::DATA_IN => same::<data::DataIn>(&bhs),
        response::LOGOUT => same::<login_wire::LogoutResponse>(&bhs),
        response::NOP_IN => same::<other::NopIn>(&bhs),
        response::R2T => same::<data::R2t>(&bhs),
        response::ASYNC => same::<other::AsyncMessage>(&bhs),
        response::REJECT => same::<other::Reject>(&bhs),
        _ => {}
    }
    // The rest may be sense data.
    if let Some(sense) = scsi::host::ReceivedSense::parse(rest) {
        assert!(!sense.to_string().is_empty());
    }
}

fn same<T: FromBytes + IntoBytes + KnownLayout + Immutable + Unaligned>(bhs: &Bhs) {
    assert_eq!(bhs.cast::<T>().as_bytes(), bhs.as_bytes());
}

/// The texts of negotiations and of discovery, and their values.
pub fn text(input: &[u8]) {
    if let Ok(pairs) = parse(input) {
        assert!(pairs.len() <= text::PAIRS_MAX);
        let mut again = TextBuilder::default();
        for (key, value) in &pairs {
            again.push(key, value);
            value_forms(value);
        }
        assert_eq!(parse(&again.into_bytes()), Ok(pairs));
    }
    if let Ok(value) = std::str::from_utf8(input) {
        value_forms(value);
    }
    crate::initiator::parse_targets(input);
}

fn value_forms(value: &str) {
    const LEN_MAX: usize = 64;
    parse_number(value);
    if let Some(portal) = PortalAddress::parse(value) {
        assert!(!portal.host.is_empty());
    }
    if let Some(bytes) = parse_binary(value, LEN_MAX) {
        assert!(bytes.len() <= LEN_MAX);
        assert_eq!(parse_binary(&encode_hex(&bytes), LEN_MAX), Some(bytes));
    }
}

/// The CHAP secrets of both sides.
fn authentication() -> Authentication {
    let credentials = |name: &str, secret: &[u8]| {
        Some(Credentials {
            name: name.into(),
            secret: secret.to_vec().into(),
        })
    };
    Authentication {
        initiator: credentials("alice", b"initiator secret"),
        target: credentials("bob", b"target's own secret"),
    }
}

fn test_target(blocks: u64) -> TestTarget {
    TestTarget::new(vec![Arc::new(VecVolume::new(BlockSize::B512, blocks))])
}

/// Login Requests whose flags and texts are the input, to a target with or without CHAP.
pub fn login(input: &[u8]) {
    let Some((&config, mut script)) = input.split_first() else {
        return;
    };
    let mut target = test_target(8);
    if config & 1 != 0 {
        target = target.with_authentication(authentication());
    }
    let mut backend = target.backend();
    let mut connection = TargetSession::new();
    let now = Instant::now();
    while let Some([flags, len]) = take(&mut script) {
        let mut header = [0; 48];
        header[0] = 0x43;
        header[1] = flags;
        header[13] = config >> 1 & 1;
        let (text, rest) = script.split_at(script.len().min(len.into()));
        script = rest;
        header[7] = text.len() as u8;
        let mut bytes = header.to_vec();
        bytes.extend_from_slice(text);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        let taken = connection.handle_bytes(now, &bytes, &mut backend);
        let answer = backend.drain(now, &mut connection);
        if taken.is_err() || connection.is_closing() {
            break;
        }
        // In the login each request has one response, whose header has its length.
        let len = u32::from_be_bytes([0, answer[5], answer[6], answer[7]]) as usize;
        assert_eq!(answer.len(), 48 + len.next_multiple_of(4));
        assert_eq!(answer[0], response::LOGIN);
        parse(&answer[48..48 + len]).expect("the target's text is well-formed");
        if answer[1] & 0x83 == 0x83 {
            break;
        }
    }
    connection.handle_close(now, &mut backend);
}

/// The next bytes of a script.
fn take<const N: usize>(script: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, rest) = script.split_first_chunk()?;
    *script = rest;
    Some(*taken)
}

/// Cuts a stream into headers with their data segments, without digests or with both digests.
fn pdus(mut stream: &[u8], digests: bool) -> Vec<(Bhs, Vec<u8>)> {
    let mut pdus = Vec::new();
    let digest = if digests { 4 } else { 0 };
    while !stream.is_empty() {
        let (bhs, rest) = Bhs::read_from_prefix(stream).expect("whole headers");
        let header_len = 48 + bhs.ahs_len();
        let crc = crc32c::crc32c(&stream[..header_len]).to_le_bytes();
        assert!(!digests || rest[header_len - 48..][..4] == crc);
        stream = &stream[header_len + digest..];
        let (len, padded) = (bhs.data_segment_len.get() as usize, bhs.padded_data_len());
        if len > 0 {
            let crc = crc32c::crc32c(&stream[..padded]).to_le_bytes();
            assert!(!digests || stream[padded..][..4] == crc);
            pdus.push((bhs, stream[..len].to_vec()));
            stream = &stream[padded + digest..];
        } else {
            pdus.push((bhs, Vec::new()));
        }
    }
    pdus
}

/// A PDU on the wire.
fn wire(mut header: [u8; 48], segment: &[u8], digests: bool) -> Vec<u8> {
    header[5..8].copy_from_slice(&(segment.len() as u32).to_be_bytes()[1..]);
    let mut bytes = header.to_vec();
    if digests {
        bytes.extend(crc32c::crc32c(&header).to_le_bytes());
    }
    if !segment.is_empty() {
        let mut padded = segment.to_vec();
        padded.resize(segment.len().next_multiple_of(4), 0);
        bytes.extend_from_slice(&padded);
        if digests {
            bytes.extend(crc32c::crc32c(&padded).to_le_bytes());
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use block::testing::replay;

    #[test]
    fn corpora_pass() {
        assert!(replay("iser_message", super::iser_message) > 0);
        assert!(replay("iser_session", super::iser_session) > 0);
        assert!(replay("iscsi_pdu", super::pdu) > 0);
        assert!(replay("iscsi_text", super::text) > 0);
        assert!(replay("iscsi_login", super::login) > 0);
        assert!(replay("iscsi_login_answers", super::login_answers) > 0);
        assert!(replay("iscsi_connection", super::connection) > 0);
        assert!(replay("iscsi_commands", super::commands) > 0);
        assert!(replay("iscsi_session", super::session) > 0);
    }
}
