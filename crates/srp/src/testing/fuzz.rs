//! What fuzz targets run: a channel gets any messages.

use std::sync::Arc;

use block::testing::VecVolume;
use block::{BlockSize, Blocks, Extent, Lba};
use scsi::host::{CommandKey, Outcome, io};
use session::testing::HostMemory;
use session::{BufferRange, Buffers, RemoteBuffer, RemoteKey, Session as _};
use zerocopy::IntoBytes as _;

use super::{Form, SrpBed, TestTarget, command, management};
use crate::initiator::{InitiatorSession, Terms};
use crate::wire::{Direction, Login, ResponseHeader, Tag, opcode, parse_command};

/// Blocks of the volume.
const BLOCKS: u64 = 64;
/// Bytes of the initiator's memory.
const MEMORY_BYTES: usize = 64 << 10;

/// Parses anything as a login and as a command.
pub fn wire(input: &[u8]) {
    let _ = Login::parse(input);
    for offset in [None, Some(0), Some(68), Some(u16::MAX)] {
        let _ = parse_command(input, offset);
    }
}

/// A target's end gets messages: the input is cut into them by a length before each. Most are made
/// into commands on memory that exists. The whole request limit can be used again once all requests
/// have been answered, and no RDMA READ is left outstanding.
pub fn target_session(input: &[u8]) {
    let volume = Arc::new(VecVolume::new(BlockSize::B512, BLOCKS));
    let target = TestTarget::new([Arc::clone(&volume)]);
    let mut bed = SrpBed::new(target.backend(), MEMORY_BYTES);
    bed.posted.piece_max_bytes = 4096;
    bed.posted.depth_max = 3;
    let request_limit = bed.credits;
    let mut is_over = false;
    let mut left = input;
    while let Some((&len, behind)) = left.split_first() {
        let (bytes, behind) = behind.split_at(usize::from(len).min(behind.len()));
        left = behind;
        bed.holds_reads = len % 3 == 0;
        let message = message(bytes);
        is_over = bed.send(&message).is_err() || bed.run().is_err() || bed.target.is_closing();
        if is_over {
            break;
        }
        if !matches!(message[0], opcode::CMD | opcode::TSK_MGMT) {
            // The request limit does not count it.
            bed.credits += 1;
        }
    }
    bed.holds_reads = false;
    is_over |= bed.run().is_err();
    if !is_over {
        assert_eq!(bed.credits, request_limit, "each request is given back");
        assert_eq!(bed.reads(), 0, "no data are left to be fetched");
    }
    bed.target.handle_close(bed.now, &mut bed.backend);
}

/// Keys of the initiator.
const KEYS: u16 = 4;
/// The longest immediate data of the initiator, bytes.
const IMMEDIATE_MAX_BYTES: u32 = 512;

/// An initiator's end gets any messages, with commands of each kind in flight. The first byte of
/// each is its length, the second the key that it invalidates; 21 bytes become a response to one of
/// the commands. Each command ends once at most, and no key outlives the channel.
pub fn initiator_session(input: &[u8]) {
    let _ = Terms::of(input);
    let terms = Terms {
        request_limit: u32::from(KEYS) + 1,
        immediate_max_bytes: IMMEDIATE_MAX_BYTES,
    };
    let mut session = InitiatorSession::new(terms, 0, KEYS);
    let mut memory = HostMemory::new(Buffers::new(KEYS, 4096), usize::MAX, 4096);
    let mut busy = [None; KEYS as usize];
    let mut tags: Vec<Tag> = Vec::new();
    let mut left = input;
    while let [len, key, behind @ ..] = left {
        let (bytes, behind) = behind.split_at(usize::from(*len).min(behind.len()));
        left = behind;
        for (key, busy) in (0..KEYS).zip(&mut busy) {
            let command = host_command(key);
            if busy.is_none() && session.submit(CommandKey(key), &command).is_ok() {
                *busy = Some(command.transfer.len_bytes());
            }
        }
        if bytes.len().is_multiple_of(3) {
            session.abort(CommandKey(u16::from(*key) % KEYS));
        }
        session.poll_transmit(&mut memory);
        let posted = memory.sent.drain(..);
        tags.extend(posted.filter_map(|message| Tag::try_from(message.get(8..16)?).ok()));
        let invalidated = (*key > 0).then(|| RemoteKey(u32::from(*key)));
        let was_valid = invalidated.is_some_and(|key| memory.invalidate(key));
        let mut done = Vec::new();
        let message = answer(bytes, &tags);
        let handled = session.handle_message(&message, invalidated, &mut memory, &mut done);
        for Outcome { key, result } in done {
            let len = busy[usize::from(key.0)]
                .take()
                .expect("a command ends once");
            assert!(result.is_err() || result.is_ok_and(|moved| moved <= len));
        }
        if handled.is_err() {
            if let Some(key) = invalidated.filter(|_| was_valid) {
                memory.forget_invalidation(key);
            }
            break;
        }
        while session.poll_event().is_some() {}
        let in_flight = busy.iter().flatten().count();
        assert_eq!(in_flight, usize::from(session.in_flight()));
        assert!(memory.keys() <= in_flight, "keys end with commands");
    }
    session.handle_close(&mut memory);
    assert_eq!(memory.keys(), 0, "keys end with the channel");
}

/// A command of each kind of transfer.
fn host_command(key: u16) -> scsi::host::Command {
    let extent = |blocks| Extent::new(Lba(0), Blocks(blocks));
    match key {
        0 => io::read(extent(8), BufferRange::first(key, 4096)),
        1 => io::write(extent(1), BufferRange::first(key, IMMEDIATE_MAX_BYTES)),
        2 => io::write(extent(8), BufferRange::first(key, 4096)),
        _ => io::synchronize_cache(),
    }
}

/// A message of these bytes: a response to one of the requests if they are 21, or as they are.
fn answer(bytes: &[u8], tags: &[Tag]) -> Vec<u8> {
    let Ok(
        [
            which,
            delta,
            flags,
            status,
            residual,
            response_len,
            sense_len,
            rest @ ..,
        ],
    ) = <[u8; 21]>::try_from(bytes)
    else {
        return bytes.to_vec();
    };
    let tag = tags[usize::from(which) % tags.len()];
    let mut header = ResponseHeader::new(tag, i32::from(delta.cast_signed()).cast_unsigned());
    (header.flags, header.status) = (flags, status);
    header.data_in_residual.set(u32::from(residual) * 64);
    header.data_out_residual.set(u32::from(residual) * 64);
    header.response_len.set(response_len.into());
    header.sense_len.set(sense_len.into());
    [header.as_bytes(), &rest].concat()
}

/// READ and WRITE (10), INQUIRY, UNMAP, COMPARE AND WRITE, WRITE SAME (10), PERSISTENT RESERVE OUT.
const OPCODES: [u8; 7] = [0x28, 0x2A, 0x12, 0x42, 0x89, 0x41, 0x5F];

/// A message of these bytes: a request if they are as many as it takes, or as they are.
fn message(bytes: &[u8]) -> Vec<u8> {
    let &[what, tag, lba, blocks, form, len, more] = bytes else {
        return bytes.to_vec();
    };
    if what % 8 == 7 {
        return management((u64::from(tag) << 8) | 1, more, u64::from(lba % 4));
    }
    let mut cdb = [0; 16];
    (cdb[0], cdb[5], cdb[8]) = (OPCODES[usize::from(what % 8)], lba, blocks % 32);
    let direction = if what & 0x80 == 0 {
        Direction::In
    } else {
        Direction::Out
    };
    let buffers: Vec<RemoteBuffer> = (0..=u64::from(form >> 3))
        .map(|index| SrpBed::buffer(index * 512, u32::from(len) * 8))
        .collect();
    let table = RemoteBuffer {
        len_bytes: buffers.len() as u32 * 16 + u32::from(more == 77),
        key: RemoteKey(SrpBed::KEY.0),
        ..SrpBed::buffer(32 << 10, 0)
    };
    let form = match form % 4 {
        0 => return command(tag.into(), &cdb, None, &[], &[]),
        1 => Form::Direct,
        2 => Form::Immediate,
        _ => Form::Indirect {
            table,
            listed: more % 34,
        },
    };
    let immediate = vec![lba; usize::from(len) * 8];
    let data = Some((direction, form));
    command(tag.into(), &cdb, data, &buffers, &immediate)
}
