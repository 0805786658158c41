use super::*;
use crate::opcodes;
use crate::sense::SenseKey;
use crate::testing::{execute, in_turns};
use crate::{Response, ScsiStatus, Step, Turn};
use block::testing::VecVolume;
use std::sync::Arc;

const GEOMETRY: Geometry = Geometry::new(BlockSize::B512, Blocks(1 << 20));

fn cdb(bytes: &[u8]) -> [u8; 16] {
    let mut cdb = [0; 16];
    cdb[..bytes.len()].copy_from_slice(bytes);
    cdb
}

fn parsed(bytes: &[u8]) -> Result<Medium, Sense> {
    let cdb = cdb(bytes);
    let row = opcodes::find(&cdb).unwrap_or_else(|_| panic!("opcode {:02x} is known", cdb[0]));
    parse(row.name, &cdb, GEOMETRY)
}

fn asc(result: Result<Medium, Sense>) -> Asc {
    result.expect_err("refused").asc
}

#[test]
fn the_four_lengths_of_read_give_the_same_extent() {
    let want = Ok(Medium::Read(Extent::new(Lba(0x1234), Blocks(8))));
    assert_eq!(parsed(&[0x08, 0, 0x12, 0x34, 8, 0]), want);
    assert_eq!(parsed(&[0x28, 0, 0, 0, 0x12, 0x34, 0, 0, 8]), want);
    assert_eq!(parsed(&[0xA8, 0, 0, 0, 0x12, 0x34, 0, 0, 0, 8]), want);
    assert_eq!(
        parsed(&[0x88, 0, 0, 0, 0, 0, 0, 0, 0x12, 0x34, 0, 0, 0, 8]),
        want
    );
}

#[test]
fn read_6_of_length_0_reads_256_blocks() {
    let want = Ok(Medium::Read(Extent::new(Lba(0), Blocks(256))));
    assert_eq!(parsed(&[0x08, 0, 0, 0, 0, 0]), want);
}

#[test]
fn beyond_the_end_is_out_of_range_even_with_no_blocks() {
    assert_eq!(
        asc(parsed(&[0x28, 0, 0, 0x0F, 0xFF, 0xFF, 0, 0, 2])),
        Asc::LBA_OUT_OF_RANGE
    );
    assert_eq!(
        asc(parsed(&[0x28, 0, 0, 0x10, 0, 1, 0, 0, 0])),
        Asc::LBA_OUT_OF_RANGE
    );
    assert!(parsed(&[0x28, 0, 0, 0x0F, 0xFF, 0xFF, 0, 0, 1]).is_ok());
}

#[test]
fn protection_bits_are_refused_in_every_transfer() {
    for opcode in [
        0x28, 0x2A, 0x2E, 0x2F, 0x41, 0x88, 0x8A, 0x8B, 0x89, 0x93, 0xA8, 0xAA,
    ] {
        let refused = parsed(&[opcode, 0x20]);
        assert_eq!(
            asc(refused),
            Asc::INVALID_FIELD_IN_CDB,
            "opcode {opcode:02x}"
        );
    }
}

#[test]
fn transfers_longer_than_the_limit_are_refused() {
    let blocks = (TRANSFER_LEN_BYTES_MAX >> 9) as u32 + 1;
    let mut long = cdb(&[0x88]);
    long[10..14].copy_from_slice(&blocks.to_be_bytes());
    assert_eq!(asc(parsed(&long)), Asc::INVALID_FIELD_IN_CDB);
}

#[test]
fn compare_and_write_takes_twice_its_blocks() {
    let mut caw = cdb(&[0x89]);
    caw[13] = 3;
    let command = parsed(&caw).expect("three blocks");
    assert_eq!(command.data_out_len(BlockSize::B512), 2 * 3 * 512);
    caw[13] = COMPARE_AND_WRITE_BLOCKS_MAX + 1;
    assert_eq!(asc(parsed(&caw)), Asc::INVALID_FIELD_IN_CDB);
}

#[test]
fn write_same_of_no_blocks_and_anchors_are_refused() {
    assert_eq!(asc(parsed(&[0x41])), Asc::INVALID_FIELD_IN_CDB);
    assert_eq!(
        asc(parsed(&[0x41, 0x18, 0, 0, 0, 0, 0, 0, 1])),
        Asc::INVALID_FIELD_IN_CDB
    );
    assert_eq!(asc(parsed(&[0x42, 0x01])), Asc::INVALID_FIELD_IN_CDB);
}

#[test]
fn or_write_keeps_old_bits() {
    let volume = Arc::new(VecVolume::new(BlockSize::B512, 8));
    let extent = Extent::new(Lba(2), Blocks(2));
    execute(Medium::Write(extent), &[0xA0; 1024], volume.as_ref()).expect("write");
    execute(Medium::OrWrite(extent), &[0x05; 1024], volume.as_ref()).expect("or");
    assert_eq!((volume.block(2)[0], volume.block(3)[511]), (0xA5, 0xA5));
}

#[test]
fn verify_of_one_block_against_many_finds_the_odd_one() {
    let volume = Arc::new(VecVolume::new(BlockSize::B512, 8));
    let extent = Extent::new(Lba(0), Blocks(4));
    let verify = Medium::VerifyData(extent, VerifyMode::OneBlock);
    execute(verify, &[0; 512], volume.as_ref()).expect("all zeros");
    let last = Extent::new(Lba(3), Blocks(1));
    execute(Medium::Write(last), &[1; 512], volume.as_ref()).expect("write");
    let refused = execute(verify, &[0; 512], volume.as_ref()).expect_err("block 3 differs");
    assert_eq!(refused.key, SenseKey::Miscompare);
}

#[test]
fn write_same_repeats_its_block_and_zeros_need_none() {
    let volume = Arc::new(VecVolume::new(BlockSize::B512, 1024));
    let extent = Extent::new(Lba(1), Blocks(1000));
    let fill = Medium::WriteSame {
        extent,
        unmap: Unmap::Forbidden,
        zeros: false,
    };
    execute(fill, &[7; 512], volume.as_ref()).expect("fill");
    assert_eq!(
        (
            volume.block(0)[0],
            volume.block(1)[0],
            volume.block(1000)[511]
        ),
        (0, 7, 7)
    );
    assert_eq!(volume.block(1001)[0], 0);
    let zeros = Medium::WriteSame {
        extent,
        unmap: Unmap::Allowed,
        zeros: true,
    };
    execute(zeros, &[], volume.as_ref()).expect("zeros");
    assert_eq!(volume.block(500)[0], 0);
}

#[test]
fn unmap_checks_all_descriptors_before_the_first_is_executed() {
    let volume = Arc::new(VecVolume::new(BlockSize::B512, 8));
    let whole = Extent::new(Lba(0), Blocks(8));
    execute(Medium::Write(whole), &[9; 4096], volume.as_ref()).expect("write");
    let mut list = vec![0; 8 + 32];
    list[3] = 32;
    list[8 + 11] = 4; // blocks 0 to 3
    list[24 + 7] = 7;
    list[24 + 11] = 2; // blocks 7 and 8: beyond the end
    let command = Medium::Unmap { len_bytes: 40 };
    let refused = execute(command, &list, volume.as_ref()).expect_err("beyond the end");
    assert_eq!(refused.asc, Asc::LBA_OUT_OF_RANGE);
    assert_eq!(volume.block(0)[0], 9);
    list[24 + 11] = 1;
    execute(command, &list, volume.as_ref()).expect("in range");
    assert_eq!(
        (volume.block(0)[0], volume.block(4)[0], volume.block(7)[0]),
        (0, 9, 0)
    );
}

/// How many turns a command takes that succeeds.
fn turns(command: Medium, data: &[u8], volume: &VecVolume) -> usize {
    let mut execution = Execution::new(command);
    let (response, turns) = in_turns(|turn| execution.go_on(data, volume, turn));
    assert_eq!(response.status, ScsiStatus::Good);
    turns
}

#[test]
fn what_covers_much_of_a_volume_takes_many_turns_and_all_of_it_is_done() {
    const BLOCKS: u64 = 64 << 20 >> 9;
    let volume = Arc::new(VecVolume::new(BlockSize::B512, BLOCKS));
    let whole = Extent::new(Lba(0), Blocks(BLOCKS));
    let inner = Extent::new(Lba(3), Blocks(BLOCKS - 7));
    let same = |extent, unmap, zeros| Medium::WriteSame {
        extent,
        unmap,
        zeros,
    };
    let ends = || [0, 2, 3, BLOCKS / 2, BLOCKS - 5, BLOCKS - 4].map(|lba| volume.block(lba)[511]);

    let filled = turns(same(whole, Unmap::Forbidden, false), &[7; 512], &volume);
    assert!(
        (16..=32).contains(&filled),
        "4 MiB or less in each of {filled}"
    );
    assert_eq!(ends(), [7; 6]);
    let zeroed = turns(same(inner, Unmap::Forbidden, true), &[], &volume);
    assert!(
        (16..=32).contains(&zeroed),
        "4 MiB or less in each of {zeroed}"
    );
    assert_eq!(ends(), [7, 7, 0, 0, 0, 7]);

    turns(same(whole, Unmap::Forbidden, false), &[7; 512], &volume);
    let mut list = vec![0; 24];
    list[3] = 16;
    list[15] = 3;
    list[16..20].copy_from_slice(&(inner.blocks.0 as u32).to_be_bytes());
    let unmapped = turns(Medium::Unmap { len_bytes: 24 }, &list, &volume);
    assert!(
        (4..=8).contains(&unmapped),
        "16 MiB or less in each of {unmapped}"
    );
    assert_eq!(ends(), [7, 7, 0, 0, 0, 7]);

    turns(same(whole, Unmap::Forbidden, false), &[7; 512], &volume);
    let sanitized = turns(Medium::Sanitize(whole), &[], &volume);
    assert!(
        (4..=8).contains(&sanitized),
        "16 MiB or less in each of {sanitized}"
    );
    assert_eq!(ends(), [0; 6]);
}

#[test]
fn blocks_that_a_snapshot_keeps_are_discarded_in_turns_like_those_of_writes() {
    const BLOCKS: u64 = 64 << 20 >> 9;
    let volume = Arc::new(VecVolume::new(BlockSize::B512, BLOCKS));
    volume.set_copies_discarded();
    volume.fill(0, &vec![7; 64 << 20]);
    let whole = Extent::new(Lba(0), Blocks(BLOCKS));
    let taken = turns(Medium::Sanitize(whole), &[], &volume);
    assert!(
        (16..=32).contains(&taken),
        "4 MiB or less in each of {taken}"
    );
    assert!(volume.contents().iter().all(|&byte| byte == 0));
}

#[test]
fn short_commands_take_one_turn_and_many_share_it() {
    let volume = Arc::new(VecVolume::new(BlockSize::B4096, 1024));
    let extent = Extent::new(Lba(5), Blocks(8));
    let mut turn = Turn::new();
    let mut done = 0;
    while !turn.is_over() {
        let fill = Medium::WriteSame {
            extent,
            unmap: Unmap::Forbidden,
            zeros: false,
        };
        let step = Execution::new(fill).go_on(&[7; 4096], volume.as_ref(), &mut turn);
        assert!(matches!(
            step,
            Step::Over(Response {
                status: ScsiStatus::Good,
                ..
            })
        ));
        done += 1;
    }
    assert!((64..=128).contains(&done), "{done} commands of 32 KiB");
}

#[test]
fn verify_without_data_covers_no_more_than_a_transfer() {
    let most = (TRANSFER_LEN_BYTES_MAX >> 9) as u32;
    let verify = |blocks: u32| {
        let mut cdb = [0; 16];
        cdb[0] = 0x8F;
        cdb[10..14].copy_from_slice(&blocks.to_be_bytes());
        parsed(&cdb)
    };
    let extent = Extent::new(Lba(0), Blocks(most.into()));
    assert_eq!(verify(most), Ok(Medium::VerifyMedium(extent)));
    assert_eq!(verify(most + 1), Err(Sense::invalid_cdb_field(10)));
}

#[test]
fn pre_fetch_fetches_the_first_of_many_blocks() {
    let most = TRANSFER_LEN_BYTES_MAX >> 9;
    let fetched = |lba: u64, blocks| Ok(Medium::PreFetch(Extent::new(Lba(lba), Blocks(blocks))));
    assert_eq!(parsed(&[0x34, 0, 0, 0, 0, 5, 0, 0, 8]), fetched(5, 8));
    // 0 is "up to the last block".
    assert_eq!(parsed(&[0x34]), fetched(0, most));
    let all_but_five = [0x90, 0, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0x0F, 0xFF, 0xFB];
    assert_eq!(parsed(&all_but_five), fetched(5, most));
    let one_too_many = [0x90, 0, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0x0F, 0xFF, 0xFC];
    assert_eq!(asc(parsed(&one_too_many)), Asc::LBA_OUT_OF_RANGE);
}

#[test]
fn forced_writes_and_reads_are_those_with_fua_and_verified_writes() {
    let of = |code, byte_1| {
        let mut cdb = [0; 16];
        cdb[..2].copy_from_slice(&[code, byte_1]);
        persistence(&cdb)
    };
    for code in [0x28, 0x2A, 0xA8, 0xAA, 0x88, 0x8A, 0x89, 0x8B] {
        assert_eq!(of(code, 0x08), Persistence::Durable, "{code:#x}");
        assert_eq!(of(code, 0x10), Persistence::Volatile, "{code:#x}: DPO");
    }
    for code in [0x2E, 0xAE, 0x8E] {
        assert_eq!(of(code, 0), Persistence::Durable, "{code:#x}");
    }
    // WRITE (6) has part of its address there, WRITE SAME its UNMAP.
    for code in [0x08, 0x0A, 0x41, 0x93, 0x42, 0x35] {
        assert_eq!(of(code, 0x08), Persistence::Volatile, "{code:#x}");
    }
}
