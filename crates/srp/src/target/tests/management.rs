use super::*;
use crate::testing::management;
use crate::wire::function;

/// The result of task management.
fn result(answer: &Answer) -> u8 {
    assert_eq!(answer.header.flags, ResponseHeader::RESPONSE_VALID);
    assert_eq!(answer.data[..3], [0; 3]);
    answer.data[3]
}

#[test]
fn an_abort_is_answered_when_no_read_of_the_command_is_outstanding() {
    let (volume, mut bed) = bed();
    bed.holds_reads = true;
    bed.memory[..512].fill(9);
    bed.send(&write(1, 0, 1)).expect("valid");
    bed.run().expect("valid");
    bed.send(&management(2, function::ABORT_TASK, 1))
        .expect("valid");
    assert_eq!(
        bed.run(),
        Ok(Vec::new()),
        "the initiator's memory is in use"
    );
    bed.finish_read().expect("valid");
    let answers = bed.run().expect("valid");
    assert_eq!(answers.iter().map(Answer::tag).collect::<Vec<_>>(), [2]);
    assert_eq!(result(&answers[0]), 0);
    assert_eq!(volume.contents()[..512], [0; 512], "nothing was written");
    assert_eq!(
        bed.credits, 8,
        "the aborted command's request is given back too"
    );
    assert!(bed.target.is_idle());
}

#[test]
fn an_abort_of_a_command_that_was_answered_is_complete() {
    let (_, mut bed) = bed();
    assert!(is_good(&ask(&mut bed, &read(1, 0, 1))));
    assert_eq!(
        result(&ask(&mut bed, &management(2, function::ABORT_TASK, 1))),
        0
    );
}

#[test]
fn a_reset_ends_the_commands_of_all_channels() {
    let (_, target) = target();
    let mut bed = SrpBed::new(target.backend(), MEMORY_BYTES);
    let beside = target.backend_beside(&bed.backend);
    let mut channel = SrpBed::new(beside, MEMORY_BYTES);
    let mut other = SrpBed::new(target.backend(), MEMORY_BYTES);
    for bed in [&mut bed, &mut channel, &mut other] {
        bed.holds_reads = true;
        bed.send(&write(1, 0, 1)).expect("valid");
        bed.run().expect("valid");
        bed.holds_reads = false;
    }
    bed.send(&management(2, function::LUN_RESET, 0))
        .expect("valid");
    assert_eq!(
        bed.run(),
        Ok(Vec::new()),
        "the other channel has not ended its command"
    );
    assert_eq!(channel.run(), Ok(Vec::new()), "its command is not answered");
    assert!(channel.target.is_idle());
    let answers = other.run().expect("valid");
    assert_eq!(answers[0].header.status, 0x40, "TASK ABORTED");
    let answers = bed.run().expect("valid");
    assert_eq!((answers.len(), result(&answers[0])), (1, 0));
    let attention = ask(&mut bed, &read(3, 0, 1));
    assert_eq!(
        attention.sense(),
        Some((6, 0x2903)),
        "BUS DEVICE RESET FUNCTION OCCURRED"
    );
}

#[test]
fn requests_that_another_channel_has_aborted_are_returned() {
    let (_, target) = target();
    let mut bed = SrpBed::new(target.backend(), MEMORY_BYTES);
    let beside = target.backend_beside(&bed.backend);
    let mut channel = SrpBed::new(beside, MEMORY_BYTES);
    for round in 1..=3 {
        channel.holds_reads = true;
        for tag in 0..8 {
            channel.send(&write(tag, 0, 1)).expect("valid");
        }
        channel.run().expect("valid");
        assert_eq!(channel.credits, 0);
        bed.send(&management(1, function::LUN_RESET, 0))
            .expect("valid");
        assert_eq!(channel.run(), Ok(Vec::new()));
        assert_eq!(channel.credits, 0, "the reads are outstanding");
        channel.holds_reads = false;
        assert_eq!(channel.run(), Ok(Vec::new()));
        assert_eq!(channel.credits, 8);
        assert!(channel.credit_requests >= round);
        assert_eq!(bed.run().expect("valid").len(), 1);
        // The reset's unit attention.
        channel.backend.clear_attention();
    }
    assert_eq!(bed.credit_requests, 0, "the answers return its own");
    assert!(channel.target.is_idle());
}

#[test]
fn functions_that_cannot_be_done_say_so() {
    let (_, mut bed) = bed();
    assert_eq!(
        result(&ask(&mut bed, &management(1, 0x40, 0))),
        4,
        "CLEAR ACA"
    );
    let mut request = management(2, function::LUN_RESET, 0);
    request[21] = 9;
    assert_eq!(result(&ask(&mut bed, &request)), 2, "no such logical unit");
}

#[test]
fn a_channel_starts_no_command_before_the_commands_that_its_login_has_ended_are_over() {
    let (volume, target) = target();
    let mut first = SrpBed::new(target.backend(), MEMORY_BYTES);
    let mut beside = SrpBed::new(target.backend_beside(&first.backend), MEMORY_BYTES);
    first
        .send(&management(1, function::LUN_RESET, 0))
        .expect("valid");
    let mut bed = SrpBed::new(target.backend(), MEMORY_BYTES);
    bed.memory[..512].fill(5);
    let mut head = write(2, 1, 1);
    head[29] = 1;
    for message in [write(1, 0, 1), head, write(3, 2, 1)] {
        bed.send(&message).expect("valid");
    }
    assert_eq!(bed.run(), Ok(Vec::new()), "HEAD OF QUEUE waits, too");
    assert_eq!(volume.contents()[..1024], [0; 1024]);
    assert_eq!(beside.run(), Ok(Vec::new()));
    let answers = bed.run().expect("valid");
    assert!(answers.iter().all(is_good), "{answers:?}");
    assert_eq!(answers.len(), 3);
    assert_eq!(volume.contents()[..1536], [5; 1536]);
}
