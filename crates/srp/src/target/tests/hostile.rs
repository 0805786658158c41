use block::Admission;

use super::*;
use crate::backend::Backend as _;
use crate::testing::management;
use crate::wire::{Violation, function};

#[test]
fn more_requests_than_allowed_end_the_channel() {
    let (_, mut bed) = bed();
    bed.holds_reads = true;
    for tag in 0..6 {
        bed.send(&write(tag, 0, 1)).expect("within the limit");
    }
    bed.run().expect("valid");
    bed.send(&management(6, function::ABORT_TASK, 0))
        .expect("within the limit");
    bed.send(&write(7, 0, 1)).expect("within the limit");
    for message in [write(8, 0, 1), management(8, function::ABORT_TASK, 1)] {
        assert_eq!(bed.send(&message), Err(Violation::RequestLimit));
    }
}

#[test]
fn a_tag_in_use_ends_the_channel() {
    let (_, mut bed) = bed();
    bed.holds_reads = true;
    bed.send(&write(1, 0, 1)).expect("valid");
    assert_eq!(bed.send(&read(1, 0, 1)), Err(Violation::TagInUse));
    assert_eq!(
        bed.send(&management(1, function::ABORT_TASK, 7)),
        Err(Violation::TagInUse)
    );
    bed.run().expect("valid");
    bed.send(&management(2, function::ABORT_TASK, 1))
        .expect("valid");
    assert_eq!(bed.run(), Ok(Vec::new()), "a read is outstanding");
    assert_eq!(bed.send(&read(2, 0, 1)), Err(Violation::TagInUse));
}

#[test]
fn messages_of_other_types_end_the_channel() {
    for first in [opcode::LOGIN_REQ, opcode::RSP, opcode::T_LOGOUT, 0x41, 0xFF] {
        let (_, mut bed) = bed();
        assert_eq!(bed.send(&[first; 64]), Err(Violation::Opcode(first)));
    }
    let (_, mut bed) = bed();
    assert_eq!(bed.send(&[]), Err(Violation::Length(0)));
    assert_eq!(bed.send(&[opcode::CMD; 47]), Err(Violation::Length(47)));
    assert_eq!(
        bed.send(&[opcode::TSK_MGMT; 47]),
        Err(Violation::Length(47))
    );
}

#[test]
fn a_table_with_less_memory_than_it_says_ends_the_channel() {
    let (_, mut bed) = bed();
    // The table in memory holds zeros: no memory at all.
    let buffers = [SrpBed::buffer(0, 512), SrpBed::buffer(512, 512)];
    let table = SrpBed::buffer(4096, 32);
    let data = Some((Direction::Out, Form::Indirect { table, listed: 1 }));
    bed.send(&command(1, &transfer(0x2A, 0, 2), data, &buffers, &[]))
        .expect("the table is not there yet");
    assert_eq!(bed.run(), Err(Violation::Table));
}

#[test]
fn tables_beyond_the_room_are_answered_with_task_set_full() {
    let (_, mut bed) = bed();
    bed.backend.hold_max_bytes = 0;
    let buffers = [SrpBed::buffer(0, 512), SrpBed::buffer(512, 512)];
    let table = SrpBed::buffer(4096, 32);
    let data = Some((Direction::Out, Form::Indirect { table, listed: 1 }));
    let message = command(1, &transfer(0x2A, 0, 2), data, &buffers, &[]);
    assert_eq!(ask(&mut bed, &message).header.status, 0x28);
    assert_eq!(bed.reads(), 0);
}

#[test]
fn an_address_at_the_end_of_all_fails_the_command() {
    let (_, mut bed) = bed();
    let mut buffer = SrpBed::buffer(0, 512);
    buffer.address = u64::MAX - 100;
    for (tag, opcode, direction) in [(1, 0x2A, Direction::Out), (2, 0x28, Direction::In)] {
        let data = Some((direction, Form::Direct));
        let message = command(tag, &transfer(opcode, 0, 1), data, &[buffer], &[]);
        let answer = ask(&mut bed, &message);
        assert_eq!(answer.sense(), Some((0x0B, 0x4B00)), "DATA PHASE ERROR");
    }
}

#[test]
fn completions_of_aborted_commands_are_not_held_back_without_bound() {
    let (volume, mut bed) = bed();
    let until = bed.now + Duration::from_secs(3600);
    volume.set_admission(Admission::NotBefore(until));
    bed.send(&read(1, 0, 1)).expect("valid");
    for tag in (2..1000).step_by(2) {
        bed.send(&read(tag, 0, 1)).expect("valid");
        bed.run().expect("valid");
        bed.send(&management(tag + 1, function::ABORT_TASK, tag))
            .expect("valid");
        assert_eq!(bed.run().expect("valid").len(), 1);
    }
    // Twice the request limit of this test's channel.
    let mut held = bed.target.held.clone();
    let count = std::iter::from_fn(|| held.pop_due(until)).count();
    assert!(count <= 16, "{count}");
    bed.now = until;
    assert!(is_good(&bed.run().expect("valid")[0]));
}

#[test]
fn a_channel_that_ends_releases_its_nexus() {
    let (_, mut bed) = bed();
    bed.holds_reads = true;
    bed.send(&write(1, 0, 1)).expect("valid");
    bed.run().expect("valid");
    bed.target.handle_close(bed.now, &mut bed.backend);
    assert_eq!(bed.target.poll_timeout(), None);
    assert!(bed.backend.view(0).is_none(), "the nexus is closed");
}
