//! What fuzz targets run: a channel gets any messages.

use std::sync::Arc;

use block::testing::VecVolume;
use block::{BlockSize, Volume as _};
use session::{RemoteBuffer, RemoteKey, Session as _};

use super::{Form, SrpBed, TestTarget, command, management};
use crate::wire::{Direction, Login, parse_command};

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
/// into commands on memory that exists. Afterwards nothing may be held.
pub fn target_session(input: &[u8]) {
    let volume = Arc::new(VecVolume::new(BlockSize::B512, BLOCKS));
    let target = TestTarget::new([Arc::clone(&volume)]);
    let mut bed = SrpBed::new(target.backend(), MEMORY_BYTES);
    bed.posted.piece_max_bytes = 4096;
    bed.posted.depth_max = 3;
    let mut left = input;
    while let Some((&len, behind)) = left.split_first() {
        let (bytes, behind) = behind.split_at(usize::from(len).min(behind.len()));
        left = behind;
        bed.holds_reads = len % 3 == 0;
        let is_over = bed.send(&message(bytes)).is_err() || bed.run().is_err();
        if is_over || bed.target.is_closing() {
            break;
        }
    }
    bed.holds_reads = false;
    let _ = bed.run();
    bed.target.handle_close(bed.now, &mut bed.backend);
    assert_eq!(volume.geometry().blocks.0, BLOCKS);
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
