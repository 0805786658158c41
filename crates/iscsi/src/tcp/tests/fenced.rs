//! Answers that wait until what the request ended on other connections is over.

use session::Session as _;

use super::{Fixture, WRITE, World};
use crate::PeerError;
use crate::text::TextBuilder;
use crate::wire::command::{function, function_response};
use crate::wire::{FINAL, request, response};

fn login_pdu(fixture: &Fixture) -> Vec<u8> {
    let mut text = TextBuilder::default();
    text.push("InitiatorName", "iqn.i");
    text.push("TargetName", "iqn.t");
    let mut header = [0; 48];
    (header[0], header[1], header[13], header[27]) = (0x43, 0x87, 1, 1);
    fixture.bytes_of(header, &text.into_bytes())
}

/// A fixture whose login waits.
fn waiting_login() -> Fixture {
    let world = World {
        is_past: false,
        ..World::new()
    };
    let mut fixture = Fixture::of(world, usize::MAX);
    let login = login_pdu(&fixture);
    fixture.send_raw(&login).expect("a sensible login");
    assert!(!fixture.connection.wants_transmit());
    assert_eq!(fixture.receive(), []);
    fixture
}

/// What was ended is over, of which the connection learns.
fn pass(fixture: &mut Fixture) {
    fixture.world.is_past = true;
    wake(fixture);
}

fn wake(fixture: &mut Fixture) {
    let woken = fixture
        .connection
        .handle_wake(fixture.now, &mut fixture.world);
    woken.expect("the connection goes on");
}

/// A request that is not a command, with a reason or function.
fn request(fixture: &mut Fixture, opcode: u8, function: u8, itt: u8) {
    let mut header = [0; 48];
    (header[0], header[1], header[19]) = (opcode, FINAL | function, itt);
    header[24..28].copy_from_slice(&fixture.cmd_sn.to_be_bytes());
    fixture.cmd_sn += 1;
    fixture.send(header, &[]);
}

#[test]
fn a_login_is_answered_when_what_it_replaces_is_over() {
    let mut fixture = waiting_login();
    wake(&mut fixture);
    assert_eq!(fixture.receive(), [], "woken for something else");
    pass(&mut fixture);
    let answer = fixture.receive().remove(0);
    assert_eq!((answer.header[0], answer.header[36]), (response::LOGIN, 0));
    fixture.settle();
}

#[test]
fn nothing_may_arrive_before_the_login_is_answered() {
    let mut fixture = waiting_login();
    let login = login_pdu(&fixture);
    let second = fixture.send_raw(&login);
    assert_eq!(second, Err(PeerError::BeforeLoginResponse(request::LOGIN)));
}

#[test]
fn a_session_that_is_replaced_before_its_login_is_answered_ends() {
    let mut fixture = waiting_login();
    fixture.world.state = crate::SessionState::Ended;
    pass(&mut fixture);
    assert!(fixture.connection.is_closing());
    assert!(!fixture.connection.wants_transmit());
}

#[test]
fn task_management_and_logouts_are_answered_in_order_when_what_they_ended_is_over() {
    const OTHER_CONNECTION: u8 = 1;
    let mut fixture = Fixture::logged_in(usize::MAX, &[]);
    fixture.settle();
    fixture.world.is_past = false;
    request(
        &mut fixture,
        request::TASK_MANAGEMENT,
        function::LOGICAL_UNIT_RESET,
        5,
    );
    request(&mut fixture, request::LOGOUT, OTHER_CONNECTION, 6);
    assert_eq!(fixture.receive(), []);
    assert!(!fixture.connection.is_idle());
    pass(&mut fixture);
    let answers = fixture.receive();
    let told: Vec<_> = answers
        .iter()
        .map(|answer| (answer.header[0], answer.header[19]))
        .collect();
    assert_eq!(
        told,
        [(response::TASK_MANAGEMENT, 5), (response::LOGOUT, 6)]
    );
    assert_eq!(answers[0].header[2], function_response::COMPLETE);
}

#[test]
fn a_reservation_command_is_answered_when_what_it_aborts_is_over() {
    let mut fixture = Fixture::logged_in(usize::MAX, &[]);
    fixture.settle();
    fixture.world.is_past = false;
    let mut register = [0; 24];
    register[15] = 1;
    let cdb = [0x5F, 0, 0, 0, 0, 0, 0, 0, 24, 0];
    fixture.command(WRITE, &cdb, 24, &register);
    assert_eq!(fixture.receive(), []);
    wake(&mut fixture);
    assert_eq!(fixture.receive(), []);
    pass(&mut fixture);
    let answer = fixture.receive().remove(0);
    assert_eq!(
        (answer.header[0], answer.header[3]),
        (response::SCSI_RESPONSE, 0)
    );
}
