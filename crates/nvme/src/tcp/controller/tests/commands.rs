//! I/O commands: what they do, and the status of each way in which they are wrong.

use block::{Admission, Volume};
use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromBytes, IntoBytes};

use super::*;
use crate::controller::{
    COPY_BLOCKS_MAX, COPY_RANGE_BLOCKS_MAX, COPY_RANGES_MAX, CopyRange, DatasetRange,
};
use crate::wire::Psdt;
use crate::wire::log::{ErrorEntry, lid};

fn status(io: &mut Peer, sqe: &Sqe) -> Status {
    io.command(sqe, &[]).1
}

fn dataset_range(lba: u64, blocks: u32) -> DatasetRange {
    DatasetRange {
        context_attributes: U32::ZERO,
        blocks: U32::new(blocks),
        lba: U64::new(lba),
    }
}

fn deallocate(ranges: &[DatasetRange]) -> Sqe {
    let mut sqe = Sqe::new(opcode::DATASET_MANAGEMENT, Cid(9), Nsid(1));
    sqe.cdw10 = U32::new(ranges.len() as u32 - 1);
    sqe.cdw11 = U32::new(1 << 2);
    sqe.sgl1 = Sgl::in_capsule(0, ranges.as_bytes().len() as u32);
    sqe
}

fn copy_range(lba: u64, blocks: u16) -> CopyRange {
    CopyRange {
        reserved1: [0; 8],
        lba: U64::new(lba),
        nlb: U16::new(blocks - 1),
        reserved2: [0; 6],
        tags: [0; 8],
    }
}

fn copy(to: u64, ranges: &[CopyRange]) -> Sqe {
    let mut sqe = Sqe::new(opcode::COPY, Cid(9), Nsid(1));
    sqe.set_cdw10_11(to);
    sqe.cdw12 = U32::new(ranges.len() as u32 - 1);
    sqe.sgl1 = Sgl::in_capsule(0, ranges.as_bytes().len() as u32);
    sqe
}

fn write_zeroes(lba: u64, blocks: u32) -> Sqe {
    transfer(opcode::WRITE_ZEROES, 9, lba, blocks, Sgl::transport(0))
}

#[test]
fn an_unknown_opcode_is_invalid() {
    let (mut io, _admin) = peer(&volume());
    for opcode in [opcode::WRITE_UNCORRECTABLE, 0x0B, 0x7E, 0xFF] {
        let sqe = Sqe::new(opcode, Cid(1), Nsid(1));
        assert_code(status(&mut io, &sqe), StatusCode::InvalidOpcode);
    }
    assert!(io.backend.completed.is_empty(), "not counted");
}

#[test]
fn a_namespace_that_is_not_there_is_invalid() {
    let (mut io, _admin) = peer(&volume());
    for nsid in [0, 2, 0xFFFF_FFFF] {
        let mut sqe = read(1, 0, 1);
        sqe.nsid = U32::new(nsid);
        assert_code(status(&mut io, &sqe), StatusCode::InvalidNamespaceOrFormat);
    }
}

#[test]
fn blocks_beyond_the_end_are_out_of_range() {
    let (mut io, _admin) = peer(&volume());
    for (lba, blocks) in [
        (BLOCKS, 1),
        (BLOCKS - 1, 2),
        (u64::MAX, 1),
        (u64::MAX - 1, 8),
    ] {
        for opcode in [opcode::READ, opcode::WRITE, opcode::COMPARE] {
            let sqe = transfer(opcode, 1, lba, blocks, Sgl::transport(blocks * 512));
            assert_code(status(&mut io, &sqe), StatusCode::LbaOutOfRange);
        }
        let sqe = write_zeroes(lba, blocks);
        assert_code(status(&mut io, &sqe), StatusCode::LbaOutOfRange);
        let sqe = transfer(opcode::VERIFY, 1, lba, blocks, Sgl::transport(0));
        assert_code(status(&mut io, &sqe), StatusCode::LbaOutOfRange);
    }
}

#[test]
fn a_failed_command_is_in_the_error_log() {
    let (mut io, mut admin) = peer(&volume());
    assert_code(
        status(&mut io, &read(0x77, BLOCKS, 1)),
        StatusCode::LbaOutOfRange,
    );
    let mut sqe = Sqe::new(opcode::GET_LOG_PAGE, Cid(1), Nsid::ALL);
    sqe.cdw10 = U32::new(15 << 16 | u32::from(lid::ERROR));
    sqe.sgl1 = Sgl::transport(64);
    let (log, _) = admin.command(&sqe, &[]);
    let entry = ErrorEntry::read_from_bytes(&log).expect("64 bytes");
    assert_eq!((entry.error_count.get(), entry.sq_id.get()), (1, 1));
    assert_eq!((entry.cid.get(), entry.opcode), (0x77, opcode::READ));
    assert_eq!((entry.nsid.get(), entry.lba.get()), (1, BLOCKS));
}

#[test]
fn an_sgl_of_another_length_than_the_command_is_invalid() {
    let (mut io, _admin) = peer(&volume());
    for len in [0, 511, 513, 1024] {
        for opcode in [opcode::READ, opcode::WRITE] {
            let sqe = transfer(opcode, 1, 0, 1, Sgl::transport(len));
            assert_code(status(&mut io, &sqe), StatusCode::DataSglLengthInvalid);
        }
    }
    let (_, status) = io.command(&write_in_capsule(1, 0, 2), &[0; 512]);
    assert_code(status, StatusCode::DataSglLengthInvalid);
}

#[test]
fn an_sgl_that_tcp_does_not_know_is_invalid() {
    let (mut io, _admin) = peer(&volume());
    for identifier in [0x00, 0x02, 0x30, 0x40, 0x4F, 0x5B, 0xFF] {
        let mut sqe = read(1, 0, 1);
        sqe.sgl1.identifier = identifier;
        assert_code(status(&mut io, &sqe), StatusCode::SglDescriptorTypeInvalid);
    }
    let sqe = transfer(opcode::READ, 1, 0, 1, Sgl::in_capsule(0, 512));
    let (_, status) = io.command(&sqe, &[0; 512]);
    assert_code(status, StatusCode::SglDescriptorTypeInvalid);
    let sqe = transfer(opcode::WRITE, 1, 0, 1, Sgl::in_capsule(4, 512));
    let (_, status) = io.command(&sqe, &[0; 516]);
    assert_code(status, StatusCode::SglOffsetInvalid);
}

#[test]
fn prps_are_invalid() {
    let (mut io, _admin) = peer(&volume());
    let mut sqe = read(1, 0, 1);
    sqe.flags = 0;
    assert_eq!(sqe.psdt(), Psdt::Prp);
    assert_code(status(&mut io, &sqe), StatusCode::InvalidField);
}

#[test]
fn protection_information_is_rejected_with_do_not_retry() {
    let (mut io, _admin) = peer(&volume());
    let mut sqe = read(1, 0, 1);
    sqe.cdw12 = U32::new(1 << 29);
    assert_eq!(status(&mut io, &sqe).field(), 0x4181);
}

#[test]
fn transfers_beyond_mdts_are_invalid() {
    let (mut io, _admin) = peer(&volume());
    let most = Limits::default().transfer_max_bytes() as u32 / 512;
    let (data, good) = io.command(&read(1, 0, most), &[]);
    assert!(good.is_success() && data.len() == most as usize * 512);
    let sqe = read(1, 0, most + 1);
    assert_code(status(&mut io, &sqe), StatusCode::InvalidField);
    let sqe = write_by_r2t(1, 0, most + 1);
    assert_code(status(&mut io, &sqe), StatusCode::InvalidField);
    // VSL says the same of a Verify, which moves no data.
    let verify = |blocks| transfer(opcode::VERIFY, 1, 0, blocks, Sgl::transport(0));
    assert!(status(&mut io, &verify(most)).is_success());
    let too_long = status(&mut io, &verify(most + 1));
    assert_code(too_long, StatusCode::InvalidField);
}

#[test]
fn compare_distinguishes_equal_from_different() {
    for chunks in [Chunks::Whole, Chunks::Of(100)] {
        let volume = volume();
        let (mut io, _admin) = peer(&volume);
        io.chunks = chunks;
        let mut data = volume.contents()[512..][..8192].to_vec();
        let inside = transfer(opcode::COMPARE, 1, 1, 16, Sgl::in_capsule(0, 8192));
        let remote = transfer(opcode::COMPARE, 1, 1, 16, Sgl::transport(8192));
        assert!(io.command(&inside, &data).1.is_success());
        assert!(io.write_by_r2t(&remote, &data, 1000).is_success());
        data[8191] ^= 1;
        assert_code(io.command(&inside, &data).1, StatusCode::CompareFailure);
        let status = io.write_by_r2t(&remote, &data, 1000);
        assert_code(status, StatusCode::CompareFailure);
        assert_eq!(volume.contents(), self::volume().contents());
    }
}

#[test]
fn write_zeroes_zeroes_only_its_blocks() {
    let volume = volume();
    let (mut io, _admin) = peer(&volume);
    let before = volume.contents();
    assert!(status(&mut io, &write_zeroes(10, 5)).is_success());
    let mut deallocating = write_zeroes(20, 1);
    deallocating.cdw12 = U32::new(1 << 25);
    assert!(status(&mut io, &deallocating).is_success());
    let mut expected = before;
    expected[10 * 512..15 * 512].fill(0);
    expected[20 * 512..21 * 512].fill(0);
    assert!(volume.contents() == expected);
}

#[test]
fn long_work_is_done_in_turns_and_does_not_delay_others() {
    let volume = Arc::new(VecVolume::new(BlockSize::B4096, 8192));
    volume.fill(0, &vec![1; 8192 * 4096]);
    let (mut io, _admin) = io_peer(ControllerConfig::default(), &[Arc::clone(&volume)], 128);
    let zeroes = io.capsule(&write_zeroes(0, 8192), &[]);
    io.send(&zeroes).expect("a good capsule");
    assert!(io.pdus().is_empty(), "not done in one turn");
    assert_eq!(io.session.poll_timeout(), Some(io.now));
    let sqe = transfer(opcode::READ, 1, 8191, 1, Sgl::transport(4096));
    let (data, good) = io.command(&sqe, &[]);
    assert!(good.is_success() && data == [1; 4096]);
    io.advance(Duration::ZERO).expect("it works on");
    assert!(io.pdus()[0].cqe().status().is_success());
    assert!(volume.contents().iter().all(|&byte| byte == 0));
    assert_eq!(io.session.poll_timeout(), None);
}

#[test]
fn blocks_that_a_snapshot_keeps_are_deallocated_in_turns() {
    let deallocated_at_once = |copies: bool| {
        let volume = Arc::new(VecVolume::new(BlockSize::B4096, 8192));
        volume.fill(0, &vec![1; 8192 * 4096]);
        if copies {
            volume.set_copies_discarded();
        }
        let (mut io, _admin) = io_peer(ControllerConfig::default(), &[Arc::clone(&volume)], 128);
        let ranges = [dataset_range(0, 8192)];
        let capsule = io.capsule(&deallocate(&ranges), ranges.as_bytes());
        io.send(&capsule).expect("a good capsule");
        let contents = volume.contents();
        let freed = contents.iter().position(|&byte| byte != 0);
        assert_eq!(io.pdus().is_empty(), copies);
        freed
    };
    assert_eq!(deallocated_at_once(false), None, "all of it");
    assert_eq!(deallocated_at_once(true), Some(4 << 20));
}

#[test]
fn deallocate_takes_256_ranges() {
    let volume = volume();
    let (mut io, _admin) = peer(&volume);
    let ranges: Vec<_> = (0..256).map(|i| dataset_range(i * 3, 2)).collect();
    let (_, status) = io.command(&deallocate(&ranges), ranges.as_bytes());
    assert!(status.is_success(), "{status:?}");
    let mut expected = self::volume().contents();
    for range in 0..256 {
        expected[range * 3 * 512..][..1024].fill(0);
    }
    assert!(volume.contents() == expected);
}

#[test]
fn a_list_of_ranges_may_be_shorter_than_the_data() {
    let volume = volume();
    let (mut io, _admin) = peer(&volume);
    let ranges = [dataset_range(5, 1)];
    let mut sqe = deallocate(&ranges);
    let mut page = ranges.as_bytes().to_vec();
    page.resize(4096, 0xee);
    sqe.sgl1 = Sgl::in_capsule(0, 4096);
    let (_, status) = io.command(&sqe, &page);
    assert!(status.is_success(), "{status:?}");
    assert!(volume.block(5).iter().all(|&byte| byte == 0));
    assert_eq!(volume.block(6), self::volume().block(6));
    sqe.sgl1 = Sgl::transport(4096);
    let status = io.write_by_r2t(&sqe, &page, 4096);
    assert!(status.is_success(), "{status:?}");
    sqe.sgl1 = Sgl::in_capsule(0, 12);
    let (_, status) = io.command(&sqe, &page[..12]);
    assert_code(status, StatusCode::DataSglLengthInvalid);
}

#[test]
fn one_range_out_of_range_leaves_all_untouched() {
    let volume = volume();
    let (mut io, _admin) = peer(&volume);
    let ranges = [dataset_range(0, 8), dataset_range(BLOCKS, 1)];
    let (_, status) = io.command(&deallocate(&ranges), ranges.as_bytes());
    assert_code(status, StatusCode::LbaOutOfRange);
    let ranges = [copy_range(0, 8), copy_range(BLOCKS - 7, 8)];
    let (_, status) = io.command(&copy(100, &ranges), ranges.as_bytes());
    assert_code(status, StatusCode::LbaOutOfRange);
    let ranges = [copy_range(0, 8), copy_range(16, 8)];
    let (_, status) = io.command(&copy(BLOCKS - 15, &ranges), ranges.as_bytes());
    assert_code(status, StatusCode::LbaOutOfRange);
    assert!(volume.contents() == self::volume().contents());
}

#[test]
fn dataset_management_without_deallocate_is_a_hint() {
    let volume = volume();
    let (mut io, _admin) = peer(&volume);
    let ranges = [dataset_range(0, 8)];
    let mut sqe = deallocate(&ranges);
    sqe.cdw11 = U32::new(0b011);
    let (_, status) = io.command(&sqe, ranges.as_bytes());
    assert!(status.is_success(), "{status:?}");
    assert!(volume.contents() == self::volume().contents());
}

#[test]
fn copy_puts_ranges_one_behind_the_other() {
    let volume = volume();
    let (mut io, _admin) = peer(&volume);
    let ranges = [copy_range(7, 3), copy_range(100, 1), copy_range(50, 20)];
    let (_, status) = io.command(&copy(1000, &ranges), ranges.as_bytes());
    assert!(status.is_success(), "{status:?}");
    let mut expected = self::volume().contents();
    let mut to = 1000 * 512;
    for (lba, blocks) in [(7, 3), (100, 1), (50, 20)] {
        expected.copy_within(lba * 512..(lba + blocks) * 512, to);
        to += blocks * 512;
    }
    assert!(volume.contents() == expected);
}

#[test]
fn copy_beyond_its_limits_is_rejected_with_do_not_retry() {
    const LIMIT: u16 = 0x4183;
    let (mut io, _admin) = peer(&volume());
    let ranges = [copy_range(0, COPY_RANGE_BLOCKS_MAX + 1)];
    let (_, status) = io.command(&copy(0, &ranges), ranges.as_bytes());
    assert_eq!(status.field(), LIMIT);
    let ranges = vec![copy_range(0, 1); COPY_RANGES_MAX as usize + 1];
    let (_, status) = io.command(&copy(0, &ranges), ranges.as_bytes());
    assert_eq!(status.field(), LIMIT);
    let mut sqe = copy(0, &ranges[..1]);
    sqe.cdw12 = U32::new(1 << 8);
    let (_, status) = io.command(&sqe, ranges[..1].as_bytes());
    assert_code(status, StatusCode::InvalidField);
    assert!(u64::from(COPY_BLOCKS_MAX) >= u64::from(COPY_RANGE_BLOCKS_MAX));
}

#[test]
fn flush_and_verify_succeed() {
    let (mut io, _admin) = peer(&volume());
    for nsid in [Nsid(1), Nsid::ALL] {
        let sqe = Sqe::new(opcode::FLUSH, Cid(1), nsid);
        assert!(status(&mut io, &sqe).is_success());
    }
    let sqe = Sqe::new(opcode::FLUSH, Cid(1), Nsid(2));
    assert_code(status(&mut io, &sqe), StatusCode::InvalidNamespaceOrFormat);
    let sqe = transfer(opcode::VERIFY, 1, 0, 2048, Sgl::transport(0));
    assert!(status(&mut io, &sqe).is_success());
}

#[test]
fn writes_are_durable_if_the_host_asks_or_was_told_of_no_write_cache() {
    const FUA: u32 = 1 << 30;
    let volume = volume();
    let write_zeroes = |fua| {
        let mut sqe = transfer(opcode::WRITE_ZEROES, 1, 0, 1, Sgl::transport(0));
        sqe.cdw12 = U32::new(sqe.cdw12.get() | fua);
        sqe
    };
    let (mut io, _admin) = peer(&volume);
    assert!(status(&mut io, &write_zeroes(0)).is_success());
    assert_eq!(volume.durable_commands(), 1, "it will not flush");
    volume.set_volatile_cache();
    let (mut io, _admin) = peer(&volume);
    assert!(status(&mut io, &write_zeroes(0)).is_success());
    assert_eq!(volume.durable_commands(), 1, "it flushes");
    assert!(status(&mut io, &write_zeroes(FUA)).is_success());
    assert_eq!(volume.durable_commands(), 2);
    let all = Sqe::new(opcode::FLUSH, Cid(1), Nsid::ALL);
    assert_code(status(&mut io, &all), StatusCode::InvalidNamespaceOrFormat);
}

#[test]
fn what_a_volume_says_becomes_the_status_for_it() {
    let volume = volume();
    let (mut io, _admin) = peer(&volume);
    for (failure, code) in [
        (
            block::Status::WriteProtected,
            StatusCode::NamespaceWriteProtected,
        ),
        (
            block::Status::CapacityExceeded,
            StatusCode::CapacityExceeded,
        ),
        (block::Status::WriteError, StatusCode::WriteFault),
        (block::Status::ReadError, StatusCode::UnrecoveredReadError),
        (block::Status::Busy, StatusCode::CommandInterrupted),
        (block::Status::Gone, StatusCode::InvalidNamespaceOrFormat),
    ] {
        volume.set_failure(Some(failure));
        let (_, status) = io.command(&write_in_capsule(1, 0, 2), &[9; 1024]);
        assert_code(status, code);
        let status = io.write_by_r2t(&write_by_r2t(1, 0, 4), &[9; 2048], 512);
        assert_code(status, code);
        assert_code(self::status(&mut io, &read(1, 0, 1)), code);
        assert_code(self::status(&mut io, &read(1, 0, 200)), code);
        assert_code(self::status(&mut io, &write_zeroes(0, 1)), code);
    }
    volume.set_failure(None);
    volume.set_read_only(true);
    let (_, status) = io.command(&write_in_capsule(1, 0, 2), &[9; 1024]);
    assert_code(status, StatusCode::NamespaceWriteProtected);
    assert!(volume.contents() == self::volume().contents());
}

#[test]
fn an_identifier_in_use_conflicts_and_the_first_command_goes_on() {
    let volume = volume();
    let (mut io, _admin) = peer(&volume);
    let waiting = io.capsule(&write_by_r2t(5, 0, 1), &[]);
    io.send(&waiting).expect("a good capsule");
    let r2t = io.pdus()[0].data_header();
    assert_code(
        status(&mut io, &read(5, 0, 1)),
        StatusCode::CommandIdConflict,
    );
    let data = io.h2c_data(Cid(5), r2t.ttag.get(), 0, PduFlags::LAST, &[3; 512]);
    io.send(&data).expect("good data");
    assert!(io.pdus()[0].cqe().status().is_success());
    assert_eq!(volume.block(0), [3; 512]);
    assert!(status(&mut io, &read(5, 0, 1)).is_success(), "free again");
}

#[test]
fn a_delayed_command_is_completed_in_time_and_others_pass_it() {
    let volume = volume();
    let (mut io, _admin) = peer(&volume);
    let later = io.now + Duration::from_millis(5);
    volume.set_admission(Admission::NotBefore(later));
    let write = io.capsule(&write_in_capsule(1, 0, 1), &[1; 512]);
    io.send(&write).expect("a good capsule");
    let slow_read = io.capsule(&read(2, 0, 1), &[]);
    io.send(&slow_read).expect("a good capsule");
    assert!(io.pdus().is_empty());
    volume.set_admission(Admission::Now);
    assert!(status(&mut io, &read(3, 1, 1)).is_success());
    assert_eq!(io.session.poll_timeout(), Some(later));
    io.advance(Duration::from_millis(4))
        .expect("nothing is due");
    assert!(io.pdus().is_empty());
    io.advance(Duration::from_millis(1)).expect("both are due");
    let pdus = io.pdus();
    assert_eq!(types(&pdus), [PduType::CapsuleResp, PduType::C2hData]);
    assert_eq!(pdus[1].data, [1; 512]);
}

#[test]
fn a_command_that_a_filter_fails_moves_no_data() {
    let volume = volume();
    let (mut io, _admin) = peer(&volume);
    volume.set_admission(Admission::Fail(block::Status::WriteError, None));
    let (_, status) = io.command(&write_in_capsule(1, 0, 1), &[1; 512]);
    assert_code(status, StatusCode::WriteFault);
    let (_, status) = io.command(&write_by_r2t(1, 0, 1), &[]);
    assert_code(status, StatusCode::WriteFault);
    assert!(volume.contents() == self::volume().contents());
}

#[test]
fn a_namespace_removed_under_a_command_fails_it() {
    let volume = volume();
    let (mut io, _admin) = peer(&volume);
    let capsule = io.capsule(&write_by_r2t(5, 0, 2), &[]);
    io.send(&capsule).expect("a good capsule");
    let ttag = io.pdus()[0].data_header().ttag.get();
    let subsystem = io.backend.subsystem();
    let mut subsystem = subsystem.lock().expect("not poisoned");
    subsystem.remove_namespace(Nsid(1)).expect("it is there");
    drop(subsystem);
    let data = io.h2c_data(Cid(5), ttag, 0, PduFlags::LAST, &[3; 1024]);
    io.send(&data).expect("good data");
    assert_code(
        io.pdus()[0].cqe().status(),
        StatusCode::InvalidNamespaceOrFormat,
    );
    assert!(volume.contents() == self::volume().contents());
}

#[test]
fn a_volume_that_shrinks_under_a_command_fails_it() {
    let volume = volume();
    let (mut io, _admin) = peer(&volume);
    let capsule = io.capsule(&write_by_r2t(5, BLOCKS - 2, 2), &[]);
    io.send(&capsule).expect("a good capsule");
    let ttag = io.pdus()[0].data_header().ttag.get();
    volume.resize(BLOCKS - 1);
    let data = io.h2c_data(Cid(5), ttag, 0, PduFlags::LAST, &[3; 1024]);
    io.send(&data).expect("good data");
    assert_code(io.pdus()[0].cqe().status(), StatusCode::LbaOutOfRange);
    assert_eq!(volume.geometry().blocks.0, BLOCKS - 1);
}

#[test]
fn every_io_command_is_counted_once() {
    let volume = volume();
    let (mut io, _admin) = peer(&volume);
    io.command(&read(1, 0, 3), &[]);
    io.command(&write_in_capsule(1, 0, 1), &[0; 512]);
    status(&mut io, &read(1, BLOCKS, 1));
    let counted: Vec<_> = io
        .backend
        .completed
        .iter()
        .map(|one| (one.kind, one.len_bytes, one.status.is_success()))
        .collect();
    let expected = [
        (block::OpKind::Read, 1536, true),
        (block::OpKind::Write, 512, true),
        (block::OpKind::Read, 0, false),
    ];
    assert_eq!(counted, expected);
}
