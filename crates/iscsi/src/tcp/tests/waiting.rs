//! Commands on a volume that answers late.

use block::testing::{LateVolume, Lateness};
use block::{Status, Ticket};

use super::*;
use crate::wire::command::{function, function_response};
use crate::wire::request;

const GOOD: u8 = 0;
const CHECK_CONDITION: u8 = 2;
const ABORTED_COMMAND: u8 = 0xB;
const TASK_SET_FULL: u8 = 0x28;
const TASK_ABORTED: u8 = 0x40;
/// Immediate data, unsolicited data without R2T, and R2Ts.
const KEYS: [(&str, &str); 3] = [
    ("InitialR2T", "No"),
    ("ImmediateData", "Yes"),
    ("FirstBurstLength", "4096"),
];

fn late(chunk: usize) -> (Arc<LateVolume>, Fixture) {
    let disk = Arc::new(VecVolume::new(BlockSize::B512, BLOCKS));
    let late = Arc::new(LateVolume::over(Arc::clone(&disk)));
    let world = World::over(Arc::clone(&late), disk);
    let mut fixture = Fixture::of(world, chunk).log_in(&KEYS);
    fixture.settle();
    (late, fixture)
}

fn complete(fixture: &mut Fixture, late: &LateVolume, ticket: Ticket, result: Result<(), Status>) {
    let completion = late.complete(ticket, result);
    fixture
        .connection
        .handle_completion(fixture.now, completion, &mut fixture.world)
        .expect("completions end no connection");
}

/// The oldest command that waits for the volume continues.
fn go_on(fixture: &mut Fixture, late: &LateVolume, result: Result<(), Status>) {
    complete(fixture, late, late.waiting()[0], result);
}

/// The status of the one command that was answered.
fn status(fixture: &mut Fixture) -> u8 {
    let answers = fixture.receive();
    assert_eq!(answers.len(), 1, "{answers:x?}");
    answers[0].header[3]
}

fn assert_done(fixture: &mut Fixture, late: &LateVolume) {
    assert_eq!(late.leases(), 0, "every lease has ended");
    assert!(fixture.connection.is_idle() && fixture.receive().is_empty());
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i / 7) as u8).collect()
}

/// A Data-Out of the command with this tag.
fn data_out(fixture: &mut Fixture, (itt, ttt): (u32, u32), sn: u8, offset: u32, data: &[u8]) {
    let mut header = [0; 48];
    header[0] = request::DATA_OUT;
    header[1] = FINAL;
    header[16..20].copy_from_slice(&itt.to_be_bytes());
    header[20..24].copy_from_slice(&ttt.to_be_bytes());
    header[39] = sn;
    header[40..44].copy_from_slice(&offset.to_be_bytes());
    fixture.send(header, data);
}

#[test]
fn a_read_is_copied_out_when_its_blocks_are_in_memory() {
    let (late, mut fixture) = late(1 << 20);
    let data = pattern(131_072);
    fixture.world.disk.fill(0, &data);
    fixture.command(READ, &[0x28, 0, 0, 0, 0, 0, 0, 1, 0, 0], 131_072, &[]);
    assert!(fixture.receive().is_empty() && !fixture.connection.is_idle());
    go_on(&mut fixture, &late, Ok(()));
    let read: Vec<u8> = fixture
        .receive()
        .into_iter()
        .flat_map(|pdu| pdu.data)
        .collect();
    assert_eq!(read, data);
    assert_done(&mut fixture, &late);
}

#[test]
fn immediate_data_are_kept_until_the_volume_is_ready_and_safe_before_the_answer() {
    for chunk in [1, 100, 1 << 20] {
        let (late, mut fixture) = late(chunk);
        let data = pattern(1024);
        fixture.command(WRITE, &write_10(1, 2), 1024, &data);
        assert_eq!(fixture.world.disk.contents()[512..1536], [0; 1024]);
        go_on(&mut fixture, &late, Ok(()));
        assert_eq!(fixture.world.disk.contents()[512..1536], data);
        assert_eq!(fixture.receive(), [], "not yet safe");
        go_on(&mut fixture, &late, Ok(()));
        assert_eq!(status(&mut fixture), GOOD);
        assert_done(&mut fixture, &late);
    }
}

#[test]
fn a_volume_may_be_ready_while_immediate_data_arrive() {
    let (late, mut fixture) = late(1 << 20);
    let data = pattern(1024);
    let mut header = [0; 48];
    (header[0], header[1], header[19]) = (request::SCSI_COMMAND, WRITE, 9);
    header[22] = 4;
    header[27] = fixture.cmd_sn as u8;
    header[32..42].copy_from_slice(&write_10(0, 2));
    let bytes = fixture.bytes_of(header, &data);
    let (first, rest) = bytes.split_at(48 + 700);
    fixture.send_raw(first).expect("half of it");
    go_on(&mut fixture, &late, Ok(()));
    assert_eq!(
        fixture.receive(),
        [],
        "no R2T for data that are on their way"
    );
    fixture.send_raw(rest).expect("the rest");
    assert_eq!(fixture.world.disk.contents()[..1024], data);
    go_on(&mut fixture, &late, Ok(()));
    assert_eq!(status(&mut fixture), GOOD);
    assert_done(&mut fixture, &late);
}

#[test]
fn no_data_are_asked_for_before_the_volume_is_ready() {
    let (late, mut fixture) = late(1 << 20);
    fixture.command(WRITE, &write_10(0, 2), 1024, &[]);
    assert_eq!(fixture.receive(), [], "no R2T");
    go_on(&mut fixture, &late, Ok(()));
    let r2t = fixture.receive().remove(0);
    let (r2t, data) = (*r2t.cast::<R2t>(), pattern(1024));
    assert_eq!(r2t.desired_len.get(), 1024);
    data_out(&mut fixture, (r2t.itt.get(), r2t.ttt.get()), 0, 0, &data);
    assert_eq!(fixture.world.disk.contents()[..1024], data);
    go_on(&mut fixture, &late, Ok(()));
    assert_eq!(status(&mut fixture), GOOD);
    assert_done(&mut fixture, &late);
}

#[test]
fn unsolicited_data_are_kept_and_the_rest_is_asked_for() {
    for ready_first in [false, true] {
        let (late, mut fixture) = late(1 << 20);
        let (itt, data) = (fixture.cmd_sn, pattern(8192));
        fixture.command(WRITE & !FINAL, &write_10(0, 16), 8192, &data[..700]);
        if ready_first {
            go_on(&mut fixture, &late, Ok(()));
        }
        data_out(&mut fixture, (itt, NO_TASK_TAG), 0, 700, &data[700..4096]);
        if !ready_first {
            assert_eq!(fixture.receive(), []);
            go_on(&mut fixture, &late, Ok(()));
        }
        let r2t = *fixture.receive().remove(0).cast::<R2t>();
        assert_eq!(
            (r2t.buffer_offset.get(), r2t.desired_len.get()),
            (4096, 4096)
        );
        data_out(&mut fixture, (itt, r2t.ttt.get()), 0, 4096, &data[4096..]);
        go_on(&mut fixture, &late, Ok(()));
        assert_eq!(status(&mut fixture), GOOD);
        assert_eq!(fixture.world.disk.contents()[..8192], data);
        assert_done(&mut fixture, &late);
    }
}

#[test]
fn unsolicited_data_that_find_no_room_are_refused() {
    let (late, mut fixture) = late(1 << 20);
    fixture.world.gather_max = 0;
    fixture.command(WRITE, &write_10(0, 8), 4096, &pattern(4096));
    assert_eq!(status(&mut fixture), TASK_SET_FULL);
    assert_done(&mut fixture, &late);
}

#[test]
fn a_command_that_could_not_be_made_ready_moves_no_data() {
    for flags in [READ, WRITE] {
        let (late, mut fixture) = late(1 << 20);
        let cdb = if flags == READ {
            read_10(0, 2)
        } else {
            write_10(0, 2)
        };
        fixture.command(flags, &cdb, 1024, &[]);
        let counted = fixture.world.completed;
        go_on(&mut fixture, &late, Err(Status::ReadError));
        assert_eq!(status(&mut fixture), CHECK_CONDITION);
        assert_eq!(fixture.world.completed, counted + 1, "a failed command");
        assert_done(&mut fixture, &late);
    }
}

#[test]
fn effects_that_could_not_be_made_safe_are_reported() {
    let (late, mut fixture) = late(1 << 20);
    late.set_lateness(Lateness::Settling);
    fixture.command(WRITE, &write_10(0, 1), 512, &[5; 512]);
    go_on(&mut fixture, &late, Err(Status::WriteError));
    assert_eq!(status(&mut fixture), CHECK_CONDITION);
    late.set_settle_error(Some(Status::WriteError));
    fixture.command(WRITE, &write_10(0, 1), 512, &[5; 512]);
    assert_eq!(status(&mut fixture), CHECK_CONDITION);
    assert_done(&mut fixture, &late);
}

#[test]
fn commands_of_every_kind_wait_twice() {
    let mut unmap_list = [0; 24];
    (unmap_list[1], unmap_list[3], unmap_list[15], unmap_list[19]) = (22, 16, 8, 4);
    let mut compare_and_write = [0; 16];
    (compare_and_write[0], compare_and_write[13]) = (0x89, 1);
    let mut write_same = [0; 16];
    (write_same[0], write_same[13]) = (0x93, 8);
    let halves = [[0; 512], [7; 512]].concat();
    let commands: [(&[u8], &[u8]); 4] = [
        (&[0x42, 0, 0, 0, 0, 0, 0, 0, 24, 0], &unmap_list),
        (&compare_and_write, &halves),
        (&write_same, &[7; 512]),
        (&[0x35, 0, 0, 0, 0, 0, 0, 0, 0, 0], &[]),
    ];
    for (cdb, data) in commands {
        let (late, mut fixture) = late(1 << 20);
        fixture.command(WRITE, cdb, data.len() as u32, data);
        for _ in ["filled", "settled"] {
            assert_eq!(fixture.receive(), [], "{cdb:x?}");
            go_on(&mut fixture, &late, Ok(()));
        }
        assert_eq!(status(&mut fixture), GOOD, "{cdb:x?}");
        assert_done(&mut fixture, &late);
    }
}

#[test]
fn a_volume_without_room_for_leases_makes_hosts_retry() {
    let (late, mut fixture) = late(1 << 20);
    late.set_leases_max(0);
    fixture.command(WRITE, &write_10(0, 1), 512, &[5; 512]);
    let answer = fixture.receive().remove(0);
    assert_eq!(
        (answer.header[3], answer.data[2 + 2]),
        (CHECK_CONDITION, ABORTED_COMMAND)
    );
    assert_done(&mut fixture, &late);
}

#[test]
fn an_aborted_command_ends_its_lease_and_is_not_answered() {
    for steps in [0, 1] {
        let (late, mut fixture) = late(1 << 20);
        let itt = fixture.cmd_sn;
        fixture.command(WRITE, &write_10(0, 1), 512, &[5; 512]);
        for _ in 0..steps {
            go_on(&mut fixture, &late, Ok(()));
        }
        let ticket = late.waiting()[0];
        let mut header = [0; 48];
        header[0] = request::TASK_MANAGEMENT | 0x40;
        header[1] = FINAL | function::ABORT_TASK;
        header[16..20].copy_from_slice(&99_u32.to_be_bytes());
        header[20..24].copy_from_slice(&itt.to_be_bytes());
        header[24..28].copy_from_slice(&fixture.cmd_sn.to_be_bytes());
        fixture.send(header, &[]);
        let answers = fixture.receive();
        assert_eq!(answers.len(), 1);
        let answer = (answers[0].header[0], answers[0].header[2]);
        assert_eq!(
            answer,
            (response::TASK_MANAGEMENT, function_response::COMPLETE)
        );
        assert_eq!(late.leases(), 0);
        complete(&mut fixture, &late, ticket, Ok(()));
        assert_done(&mut fixture, &late);
    }
}

#[test]
fn another_nexus_ends_commands_that_wait() {
    for steps in [0, 1] {
        let (late, mut fixture) = late(1 << 20);
        fixture.command(WRITE, &write_10(0, 1), 512, &[5; 512]);
        for _ in 0..steps {
            go_on(&mut fixture, &late, Ok(()));
        }
        let ticket = late.waiting()[0];
        fixture.world.aborts = vec![Abort::ByAnother(0)];
        fixture
            .connection
            .handle_wake(fixture.now, &mut fixture.world)
            .expect("the connection goes on");
        complete(&mut fixture, &late, ticket, Ok(()));
        assert_eq!(status(&mut fixture), TASK_ABORTED);
        assert_done(&mut fixture, &late);
    }
}

#[test]
fn commands_whose_unit_is_removed_fail_when_the_connection_learns_of_it() {
    let (late, mut fixture) = late(1 << 20);
    fixture.command(READ, &read_10(0, 1), 512, &[]);
    let ticket = late.waiting()[0];
    fixture.world.device.remove_unit(0);
    fixture
        .connection
        .handle_wake(fixture.now, &mut fixture.world)
        .expect("the connection goes on");
    assert_eq!(status(&mut fixture), CHECK_CONDITION);
    complete(&mut fixture, &late, ticket, Ok(()));
    assert_done(&mut fixture, &late);
}

#[test]
fn a_lock_that_comes_while_a_write_waits_refuses_it() {
    let (late, mut fixture) = late(1 << 20);
    fixture.command(WRITE, &write_10(0, 1), 512, &[5; 512]);
    fixture.world.disk.set_read_only(true);
    go_on(&mut fixture, &late, Ok(()));
    assert_eq!(status(&mut fixture), CHECK_CONDITION);
    assert_eq!(fixture.world.disk.contents()[..512], [0; 512]);
    assert_done(&mut fixture, &late);
}

#[test]
fn a_resize_that_comes_while_a_command_waits_ends_it() {
    let (late, mut fixture) = late(1 << 20);
    fixture.command(READ, &read_10(200, 1), 512, &[]);
    fixture.world.disk.resize(100);
    go_on(&mut fixture, &late, Ok(()));
    assert_eq!(status(&mut fixture), CHECK_CONDITION);
    assert_done(&mut fixture, &late);
}

#[test]
fn the_end_of_a_connection_or_session_ends_its_leases() {
    for is_session in [false, true] {
        let (late, mut fixture) = late(1 << 20);
        fixture.command(READ, &read_10(0, 1), 512, &[]);
        fixture.command(WRITE, &write_10(0, 1), 512, &[5; 512]);
        let ticket = late.waiting()[0];
        if is_session {
            fixture.world.state = SessionState::Ended;
            fixture
                .connection
                .handle_wake(fixture.now, &mut fixture.world)
                .expect("the connection closes in order");
        } else {
            fixture
                .connection
                .handle_close(fixture.now, &mut fixture.world);
        }
        assert_eq!(late.leases(), 0);
        complete(&mut fixture, &late, ticket, Ok(()));
        assert_eq!(fixture.receive(), []);
    }
}

#[test]
fn commands_that_wait_are_answered_in_any_order() {
    let (late, mut fixture) = late(1 << 20);
    late.set_lateness(Lateness::Settling);
    let first = fixture.cmd_sn;
    for byte in 1..=3 {
        fixture.command(WRITE, &write_10(0, 1), 512, &[byte; 512]);
    }
    assert_eq!(fixture.world.disk.contents()[0], 3, "the last one in order");
    let tickets = late.waiting();
    for at in [2, 0, 1] {
        complete(&mut fixture, &late, tickets[at], Ok(()));
        let answer = fixture.receive().remove(0);
        assert_eq!(answer.header[19], (first as usize + at) as u8);
    }
    assert_done(&mut fixture, &late);
}
