//! A channel against an initiator with memory of its own.

mod hostile;
mod management;
mod sense;
mod waiting;

use std::sync::Arc;
use std::time::Duration;

use block::testing::VecVolume;
use block::{BlockSize, OpKind};
use proptest::prelude::*;
use session::Session as _;

use crate::backend::Standing;
use crate::testing::{Answer, Form, SrpBed, TestTarget, command};
use crate::wire::{Direction, ResponseHeader, opcode};

const BLOCKS: u64 = 256;
const MEMORY_BYTES: usize = 256 << 10;

fn target() -> (Arc<VecVolume>, TestTarget) {
    let volume = Arc::new(VecVolume::new(BlockSize::B512, BLOCKS));
    let target = TestTarget::new([Arc::clone(&volume)]);
    (volume, target)
}

fn bed() -> (Arc<VecVolume>, SrpBed) {
    let (volume, target) = target();
    (volume, SrpBed::new(target.backend(), MEMORY_BYTES))
}

/// READ (10) or WRITE (10).
fn transfer(opcode: u8, lba: u32, blocks: u16) -> [u8; 10] {
    let mut cdb = [0; 10];
    cdb[0] = opcode;
    cdb[2..6].copy_from_slice(&lba.to_be_bytes());
    cdb[7..9].copy_from_slice(&blocks.to_be_bytes());
    cdb
}

fn read(tag: u64, lba: u32, blocks: u16) -> Vec<u8> {
    let buffer = SrpBed::buffer(0, u32::from(blocks) * 512);
    let data = Some((Direction::In, Form::Direct));
    command(tag, &transfer(0x28, lba, blocks), data, &[buffer], &[])
}

fn write(tag: u64, lba: u32, blocks: u16) -> Vec<u8> {
    let buffer = SrpBed::buffer(0, u32::from(blocks) * 512);
    let data = Some((Direction::Out, Form::Direct));
    command(tag, &transfer(0x2A, lba, blocks), data, &[buffer], &[])
}

/// Sends a request, and returns its answer.
fn ask(bed: &mut SrpBed, message: &[u8]) -> Answer {
    bed.send(message).expect("a valid message");
    let mut answers = bed.run().expect("valid work");
    assert_eq!(answers.len(), 1, "{answers:?}");
    answers.remove(0)
}

fn is_good(answer: &Answer) -> bool {
    let header = &answer.header;
    (header.status, header.flags, answer.data.len()) == (0, 0, 0)
}

#[test]
fn a_write_and_a_read_move_the_bytes() {
    let (volume, mut bed) = bed();
    let bytes: Vec<u8> = (0..64 * 512_u32).map(|at| (at % 251) as u8).collect();
    bed.memory[..bytes.len()].copy_from_slice(&bytes);
    assert!(is_good(&ask(&mut bed, &write(1, 4, 64))));
    assert_eq!(volume.contents()[4 * 512..68 * 512], bytes);
    bed.memory.fill(0);
    assert!(is_good(&ask(&mut bed, &read(2, 4, 64))));
    assert_eq!(bed.memory[..bytes.len()], bytes);
    assert_eq!(bed.credits, 8, "each answer gives its request back");
    let done: Vec<_> = bed
        .backend
        .completed
        .iter()
        .map(|done| (done.kind, done.len_bytes))
        .collect();
    assert_eq!(done, [(OpKind::Write, 64 * 512), (OpKind::Read, 64 * 512)]);
}

#[test]
fn immediate_data_are_written_without_a_read() {
    let (volume, mut bed) = bed();
    bed.holds_reads = true;
    let data = Some((Direction::Out, Form::Immediate));
    let message = command(1, &transfer(0x2A, 7, 3), data, &[], &[0x5A; 3 * 512]);
    assert!(is_good(&ask(&mut bed, &message)));
    assert_eq!(volume.contents()[7 * 512..10 * 512], [0x5A; 3 * 512]);
}

#[test]
fn report_luns_and_inquiry_answer_with_the_residual_of_their_buffer() {
    let (_, mut bed) = bed();
    let data = Some((Direction::In, Form::Direct));
    let mut cdb = [0; 12];
    (cdb[0], cdb[8]) = (0xA0, 1);
    let answer = ask(
        &mut bed,
        &command(1, &cdb, data, &[SrpBed::buffer(0, 256)], &[]),
    );
    assert_eq!(answer.header.flags, ResponseHeader::DATA_IN_UNDER);
    assert_eq!(answer.header.data_in_residual.get(), 256 - 16);
    assert_eq!(
        bed.memory[..16],
        [0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
    );
    // More than the buffer takes.
    let cdb = [0x12, 0, 0, 0, 96, 0];
    let answer = ask(
        &mut bed,
        &command(2, &cdb, data, &[SrpBed::buffer(0, 36)], &[]),
    );
    assert_eq!(answer.header.flags, ResponseHeader::DATA_IN_OVER);
    assert_eq!(answer.header.data_in_residual.get(), 60);
    assert_eq!(bed.memory[8..16], *b"RAMPORT ");
    // No buffer at all.
    let answer = ask(&mut bed, &command(3, &transfer(0x2A, 0, 2), None, &[], &[]));
    assert_eq!(answer.header.flags, ResponseHeader::DATA_OUT_OVER);
    assert_eq!(answer.header.data_out_residual.get(), 1024);
}

#[test]
fn a_failed_command_has_sense_data() {
    let (_, mut bed) = bed();
    let answer = ask(&mut bed, &read(1, BLOCKS as u32, 1));
    assert_eq!(answer.header.status, 2);
    assert_eq!(answer.sense(), Some((5, 0x2100)), "LBA OUT OF RANGE");
    assert_eq!(answer.header.sense_len.get() as usize, answer.data.len());
    assert_eq!(answer.header.data_in_residual.get(), 512);
}

#[test]
fn parameter_lists_are_fetched() {
    let (volume, mut bed) = bed();
    volume.fill(10, &[1; 512]);
    // UNMAP of block 10.
    let mut list = [0; 24];
    (list[1], list[3], list[15], list[19]) = (22, 16, 10, 1);
    bed.memory[..24].copy_from_slice(&list);
    let mut cdb = [0; 10];
    (cdb[0], cdb[8]) = (0x42, 24);
    let data = Some((Direction::Out, Form::Direct));
    let message = command(1, &cdb, data, &[SrpBed::buffer(0, 24)], &[]);
    assert!(is_good(&ask(&mut bed, &message)));
    assert_eq!(volume.contents()[10 * 512..11 * 512], [0; 512]);
    // PERSISTENT RESERVE OUT: REGISTER.
    bed.memory[..24].fill(0);
    bed.memory[15] = 7;
    let mut cdb = [0; 10];
    (cdb[0], cdb[8]) = (0x5F, 24);
    let message = command(2, &cdb, data, &[SrpBed::buffer(0, 24)], &[]);
    assert!(is_good(&ask(&mut bed, &message)));
}

#[test]
fn an_ordered_command_waits_for_others_and_others_wait_for_it() {
    let (volume, mut bed) = bed();
    bed.holds_reads = true;
    bed.send(&write(1, 0, 1)).expect("valid");
    let mut ordered = write(2, 0, 1);
    ordered[29] = 2;
    bed.send(&ordered).expect("valid");
    bed.send(&read(3, 0, 1)).expect("valid");
    assert_eq!(bed.run(), Ok(Vec::new()));
    assert_eq!(bed.reads(), 1, "the first write's");
    bed.memory[..512].fill(1);
    bed.finish_read().expect("valid");
    let answers = bed.run().expect("valid");
    assert_eq!(answers.iter().map(Answer::tag).collect::<Vec<_>>(), [1]);
    assert_eq!(bed.reads(), 1, "the ordered write's");
    let mut head = read(4, 0, 1);
    head[29] = 1;
    bed.send(&head).expect("valid");
    let answers = bed.run().expect("valid");
    assert_eq!(
        answers.iter().map(Answer::tag).collect::<Vec<_>>(),
        [4],
        "HEAD OF QUEUE"
    );
    bed.memory[..512].fill(2);
    bed.finish_read().expect("valid");
    let answers = bed.run().expect("valid");
    assert_eq!(answers.iter().map(Answer::tag).collect::<Vec<_>>(), [2, 3]);
    assert_eq!(volume.contents()[..512], [2; 512]);
}

/// A WRITE (10) of the first two blocks from `offset`, by two descriptors. The table is at
/// `offset` + 4096, and the message holds the first descriptor alone.
fn write_by_table(bed: &mut SrpBed, tag: u64, offset: u64) -> Vec<u8> {
    let buffers = [0, 512].map(|at| SrpBed::buffer(offset + at, 512));
    let at = offset + 4096;
    for (buffer, index) in buffers.iter().zip(0..) {
        let descriptor = crate::wire::Descriptor::of(*buffer);
        let start = at as usize + index * 16;
        bed.memory[start..start + 16].copy_from_slice(zerocopy::IntoBytes::as_bytes(&descriptor));
    }
    let table = SrpBed::buffer(at, 32);
    let data = Some((Direction::Out, Form::Indirect { table, listed: 1 }));
    command(tag, &transfer(0x2A, 0, 2), data, &buffers, &[])
}

#[test]
fn an_ordered_command_keeps_its_place_if_a_table_is_fetched() {
    for ordered in [0, 1] {
        let (volume, mut bed) = bed();
        bed.holds_reads = true;
        bed.memory[..1024].fill(2);
        bed.memory[8192..9216].fill(1);
        let mut messages = [write_by_table(&mut bed, 1, 8192), write(2, 0, 2)];
        messages[ordered][29] = 2;
        for message in messages {
            bed.send(&message).expect("valid");
        }
        assert_eq!(bed.run(), Ok(Vec::new()));
        assert_eq!(bed.reads(), 1, "the table's");
        bed.holds_reads = false;
        let answers = bed.run().expect("valid");
        assert_eq!(answers.iter().map(Answer::tag).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(volume.contents()[..1024], [2; 1024]);
    }
}

#[test]
fn a_blocked_command_that_is_aborted_is_not_blocked_any_more() {
    let (_, target) = target();
    let mut bed = SrpBed::new(target.backend(), MEMORY_BYTES);
    let mut other = SrpBed::new(target.backend(), MEMORY_BYTES);
    bed.holds_reads = true;
    bed.send(&write(1, 0, 1)).expect("valid");
    let mut ordered = write(2, 0, 1);
    ordered[29] = 2;
    bed.send(&ordered).expect("valid");
    bed.run().expect("valid");
    assert!(bed.target.tasks.has_blocked());
    let reset = crate::testing::management(1, crate::wire::function::LUN_RESET, 0);
    other.send(&reset).expect("valid");
    let answers = bed.run().expect("valid");
    assert_eq!(answers.iter().map(Answer::tag).collect::<Vec<_>>(), [2]);
    assert_eq!(answers[0].header.status, 0x40, "TASK ABORTED");
    assert!(!bed.target.tasks.has_blocked());
}

#[test]
fn a_channel_that_drains_answers_what_is_in_progress_and_logs_out() {
    let (_, mut bed) = bed();
    bed.holds_reads = true;
    bed.send(&write(1, 0, 8)).expect("valid");
    bed.run().expect("valid");
    bed.backend
        .set_standing(Standing::Draining(Duration::from_secs(3)));
    bed.send(&read(2, 0, 8)).expect("it is ignored");
    assert_eq!(bed.run(), Ok(Vec::new()));
    assert!(!bed.is_logged_out);
    bed.finish_read().expect("valid");
    let answers = bed.run().expect("valid");
    assert_eq!(answers.iter().map(Answer::tag).collect::<Vec<_>>(), [1]);
    assert!(bed.is_logged_out && bed.target.is_closing());
}

#[test]
fn a_channel_that_drains_has_a_time_limit() {
    let (_, mut bed) = bed();
    bed.holds_reads = true;
    bed.send(&write(1, 0, 8)).expect("valid");
    bed.run().expect("valid");
    bed.backend
        .set_standing(Standing::Draining(Duration::from_secs(3)));
    bed.send(&read(2, 0, 8)).expect("it is ignored");
    bed.now += Duration::from_secs(3);
    assert_eq!(bed.run(), Ok(Vec::new()));
    assert!(bed.is_logged_out && bed.target.is_closing());
}

#[test]
fn a_nexus_that_was_dropped_answers_nothing_more() {
    let (_, mut bed) = bed();
    bed.send(&read(1, 0, 1)).expect("valid");
    bed.backend.set_standing(Standing::Dropped);
    assert_eq!(bed.run(), Ok(Vec::new()));
    assert!(bed.is_logged_out && bed.target.is_closing());
}

#[test]
fn a_logout_closes_the_channel() {
    let (_, mut bed) = bed();
    let mut logout = [0; 16];
    logout[0] = opcode::I_LOGOUT;
    bed.send(&logout).expect("valid");
    assert_eq!(bed.run(), Ok(Vec::new()));
    assert!(bed.target.is_closing() && !bed.is_logged_out);
}

#[test]
fn corpora_pass() {
    use crate::testing::fuzz;
    assert!(block::testing::replay("srp_wire", fuzz::wire) > 0);
    assert!(block::testing::replay("srp_session", fuzz::target_session) > 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever the initiator's memory is cut into, and however much of the table is in the
    /// message, the same bytes arrive.
    #[test]
    fn data_move_through_any_table(
        cuts in prop::collection::vec(1_u32..3000, 1..40),
        listed in 0_u8..40,
        piece_bytes in prop::sample::select(vec![4096_u32, 8192, 65_536]),
        depth in 1_usize..9,
    ) {
        let (volume, mut bed) = bed();
        (bed.posted.piece_max_bytes, bed.posted.depth_max) = (piece_bytes, depth);
        let (mut at, mut buffers) = (0, Vec::new());
        for cut in cuts {
            // Holes between the buffers.
            buffers.push(SrpBed::buffer(at, cut));
            at += u64::from(cut) + 100;
        }
        let total: u32 = buffers.iter().map(|buffer| buffer.len_bytes).sum();
        let blocks = (total / 512).min(BLOCKS as u32) as u16;
        let bytes: Vec<u8> = (0..at).map(|at| (at % 253) as u8).collect();
        bed.memory[..bytes.len()].copy_from_slice(&bytes);
        let table_at = 200 << 10;
        for (index, buffer) in buffers.iter().enumerate() {
            let descriptor = crate::wire::Descriptor::of(*buffer);
            let start = table_at + index * 16;
            bed.memory[start..start + 16].copy_from_slice(zerocopy::IntoBytes::as_bytes(&descriptor));
        }
        let table = SrpBed::buffer(table_at as u64, buffers.len() as u32 * 16);
        let listed = listed.min(buffers.len() as u8);
        let form = Form::Indirect { table, listed };
        let out = Some((Direction::Out, form));
        let answer = ask(&mut bed, &command(1, &transfer(0x2A, 0, blocks), out, &buffers, &[]));
        prop_assert_eq!(answer.header.status, 0);
        prop_assert_eq!(answer.header.data_out_residual.get(), total - u32::from(blocks) * 512);
        let gathered: Vec<u8> = buffers.iter().flat_map(|buffer| {
            let start = (buffer.address - SrpBed::ADDRESS) as usize;
            bytes[start..start + buffer.len_bytes as usize].to_vec()
        }).collect();
        let len = usize::from(blocks) * 512;
        prop_assert_eq!(&volume.contents()[..len], &gathered[..len]);
        bed.memory[..table_at].fill(0);
        let into = Some((Direction::In, form));
        let answer = ask(&mut bed, &command(2, &transfer(0x28, 0, blocks), into, &buffers, &[]));
        prop_assert_eq!(answer.header.status, 0);
        let scattered: Vec<u8> = buffers.iter().flat_map(|buffer| {
            let start = (buffer.address - SrpBed::ADDRESS) as usize;
            bed.memory[start..start + buffer.len_bytes as usize].to_vec()
        }).collect();
        prop_assert_eq!(&scattered[..len], &gathered[..len]);
        prop_assert!(scattered[len..].iter().all(|byte| *byte == 0));
    }

    /// Any messages end in answers, or in the end of the channel, without a panic.
    #[test]
    fn any_messages_are_borne(input in prop::collection::vec(
        prop_oneof![(prop::collection::vec(any::<u8>(), 7)), prop::collection::vec(any::<u8>(), 0..60)],
        0..40,
    )) {
        let input: Vec<u8> = input.into_iter().flat_map(|message| {
            let mut bytes = vec![message.len() as u8];
            bytes.extend(message);
            bytes
        }).collect();
        crate::testing::fuzz::target_session(&input);
    }
}
