use super::*;

#[test]
fn commands_before_enable_are_out_of_sequence() {
    let mut fixture = Fixture::new();
    let admin = fixture.connect_with(|_| {});
    for opcode in [
        opcode::IDENTIFY,
        opcode::KEEP_ALIVE,
        opcode::ASYNC_EVENT_REQUEST,
    ] {
        let status = fixture.error(&admin, &sqe(opcode, 0, 1));
        assert_eq!(status, StatusCode::CommandSequenceError);
    }
}

#[test]
fn unknown_opcodes_are_invalid() {
    let known = [
        opcode::GET_LOG_PAGE,
        opcode::IDENTIFY,
        opcode::ABORT,
        opcode::SET_FEATURES,
        opcode::GET_FEATURES,
        opcode::ASYNC_EVENT_REQUEST,
        opcode::KEEP_ALIVE,
        Sqe::OPCODE_FABRICS,
    ];
    let mut fixture = Fixture::new();
    let admin = fixture.host();
    for opcode in (0..=255).filter(|opcode| !known.contains(opcode)) {
        let status = fixture.error(&admin, &sqe(opcode, 0, 0));
        assert_eq!(status, StatusCode::InvalidOpcode, "{opcode:#x}");
    }
}

#[test]
fn unknown_fabrics_commands_are_invalid_and_a_second_connect_is_out_of_sequence() {
    let mut fixture = Fixture::new();
    let admin = fixture.host();
    for (fctype, expected) in [
        (0x01, StatusCode::CommandSequenceError),
        (0x02, StatusCode::InvalidOpcode),
        (0x05, StatusCode::InvalidOpcode),
        (0x06, StatusCode::InvalidOpcode),
    ] {
        let status = fixture.error(&admin, &sqe(Sqe::OPCODE_FABRICS, fctype, 0));
        assert_eq!(status, expected, "{fctype:#x}");
    }
}

#[test]
fn fused_or_prp_admin_commands_are_invalid() {
    let mut fixture = Fixture::new();
    let admin = fixture.host();
    for flags in [0x00, 0x41, 0x42, 0xC0] {
        let mut command = sqe(opcode::IDENTIFY, 0, 1);
        command.flags = flags;
        assert_eq!(
            fixture.error(&admin, &command),
            StatusCode::InvalidField,
            "{flags:#x}"
        );
    }
}

#[test]
fn abort_finds_event_requests_and_nothing_else() {
    let mut fixture = Fixture::new();
    let admin = fixture.host();
    fixture.request_events(&admin, 2);
    let abort = |cid: u32, queue: u32| sqe(opcode::ABORT, 0, cid << 16 | queue);
    assert_eq!(fixture.ok(&admin, &abort(0x999, 0)), 1, "no such command");
    assert_eq!(fixture.ok(&admin, &abort(0x100, 1)), 1, "another queue");
    assert_eq!(fixture.ok(&admin, &abort(0x101, 0)), 0);
    let (cid, completion) = fixture
        .subsystem
        .poll_kept(&admin)
        .expect("the aborted request completes");
    assert_eq!(cid, Cid(0x101));
    assert_eq!(completion.status.code(), Some(StatusCode::AbortRequested));
}

#[test]
fn one_event_request_too_many_is_refused() {
    let mut fixture = Fixture::new();
    let admin = fixture.host();
    fixture.request_events(&admin, Limits::ASYNC_EVENT_REQUESTS_MAX as u16);
    let status = fixture.error(&admin, &sqe(opcode::ASYNC_EVENT_REQUEST, 0, 0));
    assert_eq!(status, StatusCode::AsyncEventLimitExceeded);
}

#[test]
fn a_silent_host_loses_its_controller_when_the_timer_runs_out() {
    let mut fixture = Fixture::new();
    let start = fixture.now;
    let admin = fixture.host_with(|request| request.keep_alive_timeout_ms = 5_000);
    let io = fixture.io_queue(&admin, 1);
    let at = |ms| start + Duration::from_millis(ms);
    let first = fixture.subsystem.poll_timeout(admin.controller);
    assert_eq!(first, Some(at(5_000)));
    // Connect and what followed counts as traffic in the first interval.
    fixture
        .subsystem
        .handle_timeout(at(5_000), admin.controller);
    assert!(fixture.subsystem.is_connected(&admin));
    assert_eq!(
        fixture.subsystem.poll_timeout(admin.controller),
        Some(at(10_000))
    );
    // So do commands on an I/O queue, without any lock.
    io.activity.mark();
    fixture
        .subsystem
        .handle_timeout(at(10_000), admin.controller);
    assert!(fixture.subsystem.is_connected(&admin));
    fixture.now = at(11_000);
    fixture.ok(&admin, &sqe(opcode::KEEP_ALIVE, 0, 0));
    assert_eq!(
        fixture.subsystem.poll_timeout(admin.controller),
        Some(at(16_000))
    );
    fixture
        .subsystem
        .handle_timeout(at(16_000), admin.controller);
    assert!(fixture.subsystem.is_connected(&admin));
    fixture.wakes();
    fixture
        .subsystem
        .handle_timeout(at(21_000), admin.controller);
    assert!(!fixture.subsystem.is_connected(&admin));
    assert!(!fixture.subsystem.is_connected(&io));
    assert_eq!(fixture.wakes(), [admin.wake.0, io.wake.0]);
    assert_eq!(fixture.subsystem.poll_timeout(admin.controller), None);
}

#[test]
fn a_discovery_controller_without_keep_alive_lasts_two_minutes() {
    let mut fixture = Fixture::discovery();
    let admin = fixture.host();
    let deadline = fixture.subsystem.poll_timeout(admin.controller);
    assert_eq!(deadline, Some(fixture.now + Duration::from_secs(120)));
}

#[test]
fn a_command_for_a_deleted_controller_fails() {
    let mut fixture = Fixture::new();
    let admin = fixture.host();
    fixture.subsystem.delete_controller(admin.controller);
    let status = fixture.error(&admin, &sqe(opcode::IDENTIFY, 0, 1));
    assert_eq!(status, StatusCode::InternalError);
}

#[test]
fn removing_a_target_ends_every_controller() {
    let mut fixture = Fixture::new();
    let hosts = [fixture.host(), fixture.host()];
    fixture.wakes();
    fixture.subsystem.delete_all_controllers();
    assert_eq!(fixture.wakes(), hosts.map(|host| host.wake.0));
}

#[test]
fn data_from_the_host_are_known_before_execution() {
    let cases = [
        (opcode::IDENTIFY, 0, 0, 0),
        (opcode::SET_FEATURES, 0x0B, 0, 0),
        (opcode::SET_FEATURES, 0x0E, 0, 8),
        (opcode::SET_FEATURES, 0x16, 0, 512),
        (opcode::SET_FEATURES, 0x81, 0, 8),
        (opcode::SET_FEATURES, 0x81, 1, 16),
        (opcode::RESERVATION_REGISTER, 0, 0, 16),
        (opcode::RESERVATION_ACQUIRE, 0, 0, 16),
        (opcode::RESERVATION_REPORT, 0, 0, 0),
    ];
    for (opcode, cdw10, cdw11, expected) in cases {
        let mut command = sqe(opcode, 1, cdw10);
        command.cdw11 = U32::new(cdw11);
        assert_eq!(host_data_len(&command), expected, "{opcode:#x} {cdw10:#x}");
    }
    let mut release = sqe(opcode::RESERVATION_RELEASE, 1, 0);
    for (sgl, expected) in [(4, 8), (8, 8), (16, 16), (4096, 16)] {
        release.sgl1 = Sgl::transport(sgl);
        assert_eq!(host_data_len(&release), expected, "an SGL of {sgl} bytes");
    }
}
