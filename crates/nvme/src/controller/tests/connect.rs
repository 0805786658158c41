use std::sync::{Mutex, MutexGuard};

use super::*;
use crate::testing::TestBackend;
use crate::wire::fabrics::{
    Capabilities, ConnectData, ConnectSqe, ControllerStatus, InvalidParameter, NqnField,
};

struct Server(Arc<Mutex<Subsystem>>);

impl Server {
    fn new() -> Self {
        Self(Arc::new(Mutex::new(Fixture::new().subsystem)))
    }

    fn lock(&self) -> MutexGuard<'_, Subsystem> {
        self.0.lock().expect("not poisoned")
    }

    fn connect(&self, sqe: ConnectSqe, data: &[u8], wake: u64) -> Result<Connection, Completion> {
        let mut backend = TestBackend::new(Arc::clone(&self.0), wake);
        super::super::connect(
            Instant::now(),
            &zerocopy::transmute!(sqe),
            data,
            &mut backend,
        )
    }

    fn admin(&self, wake: u64) -> Connection {
        let connection = self
            .connect(ConnectSqe::new(CID, 0, 32), &data(0xFFFF), wake)
            .expect("room for a controller");
        let set = PropertySqe::set(CID, Property::Configuration, enabled());
        let now = Instant::now();
        let sqe = zerocopy::transmute!(set);
        let reply = self.lock().admin(now, connection.controller, &sqe, &[]);
        assert_eq!(reply, Reply::Done(Completion::SUCCESS));
        connection
    }
}

fn data(controller: u16) -> Vec<u8> {
    data_of(controller, HOST, HOST_ID)
}

fn data_of(controller: u16, host: &str, id: [u8; 16]) -> Vec<u8> {
    let name = |name| NqnField::new(name).expect("fits");
    ConnectData::new(
        id,
        controller,
        name("nqn.2014-08.org.example:test"),
        name(host),
    )
    .as_bytes()
    .to_vec()
}

fn invalid(place: InvalidParameter) -> (StatusCode, u64) {
    (StatusCode::ConnectInvalidParameters, u64::from(place.dw0()))
}

fn failure(result: Result<Connection, Completion>) -> (StatusCode, u64) {
    let completion = result.expect_err("must fail");
    (
        completion.status.code().expect("a known status"),
        completion.result,
    )
}

#[test]
fn an_admin_connect_creates_a_controller_and_returns_its_id() {
    let server = Server::new();
    let first = server.admin(1);
    let second = server.admin(2);
    assert!(first.queue.is_admin());
    assert_ne!(first.controller, second.controller);
    assert_eq!(connected(&second).result, u64::from(second.controller.0));
    assert_eq!(first.sq_entries, 32);
}

#[test]
fn a_first_command_that_is_not_connect_is_out_of_sequence() {
    let mut backend = TestBackend::new(Server::new().0, 1);
    let sqe = Sqe::new(opcode::IDENTIFY, CID, Nsid::NONE);
    let result = super::super::connect(Instant::now(), &sqe, &[], &mut backend);
    assert_eq!(failure(result), (StatusCode::CommandSequenceError, 0));
}

#[test]
fn connect_data_of_another_length_are_refused() {
    let result = Server::new().connect(ConnectSqe::new(CID, 0, 32), &[0; 1023], 1);
    assert_eq!(failure(result).0, StatusCode::DataSglLengthInvalid);
}

#[test]
fn an_unknown_record_format_is_incompatible() {
    let mut sqe = ConnectSqe::new(CID, 0, 32);
    sqe.record_format.set(1);
    let result = Server::new().connect(sqe, &data(0xFFFF), 1);
    assert_eq!(failure(result).0, StatusCode::ConnectIncompatibleFormat);
}

#[test]
fn invalid_parameters_name_their_place() {
    use InvalidParameter::{Command, Data};
    let server = Server::new();
    let admin = server.admin(1);
    let mut unnamed = data(0xFFFF);
    unnamed[256..512].fill(b'n');
    let mut hostless = data(0xFFFF);
    hostless[512..768].fill(b'n');
    let own = admin.controller.0;
    let cases = [
        ("a static controller", 0, 32, data(5), Data(16)),
        ("no end of the subsystem's name", 0, 32, unnamed, Data(256)),
        ("no end of the host's name", 0, 32, hostless, Data(512)),
        ("a queue of one entry", 0, 1, data(0xFFFF), Command(44)),
        ("an admin queue too deep", 0, 129, data(0xFFFF), Command(44)),
        ("an I/O queue too deep", 1, 1025, data(own), Command(44)),
        ("a queue beyond the limit", 9, 32, data(own), Command(42)),
        ("an unknown controller", 1, 32, data(own + 1), Data(16)),
        (
            "another host",
            1,
            32,
            data_of(own, "other", HOST_ID),
            Data(512),
        ),
        (
            "another host identifier",
            1,
            32,
            data_of(own, HOST, [8; 16]),
            Data(0),
        ),
    ];
    for (what, queue, entries, data, place) in cases {
        let result = server.connect(ConnectSqe::new(CID, queue, entries), &data, 9);
        assert_eq!(failure(result), invalid(place), "{what}");
    }
}

#[test]
fn what_the_backend_says_becomes_a_status() {
    let server = Server::new();
    for (error, expected) in [
        (
            OpenError::UnknownSubsystem,
            invalid(InvalidParameter::Data(256)),
        ),
        (
            OpenError::HostNotAllowed,
            (StatusCode::ConnectInvalidHost, 0x1_0200),
        ),
        (OpenError::Busy, (StatusCode::ConnectControllerBusy, 0)),
    ] {
        let mut backend = TestBackend::new(Arc::clone(&server.0), 1);
        backend.open_error = Some(error);
        let sqe = zerocopy::transmute!(ConnectSqe::new(CID, 0, 32));
        let result = super::super::connect(Instant::now(), &sqe, &data(0xFFFF), &mut backend);
        assert_eq!(failure(result), expected, "{error}");
    }
}

#[test]
fn more_controllers_than_the_limit_are_busy_and_a_retry_may_pass() {
    let server = Server::new();
    let first = server.admin(1);
    for wake in 2..=4 {
        server.admin(wake);
    }
    let again = || server.connect(ConnectSqe::new(CID, 0, 32), &data(0xFFFF), 5);
    let refused = again().expect_err("the limit is reached");
    assert_eq!(
        refused.status.code(),
        Some(StatusCode::ConnectControllerBusy)
    );
    assert!(!refused.status.is_do_not_retry());
    server.lock().connection_closed(&first);
    again().expect("there is room again");
}

#[test]
fn an_io_queue_joins_its_controller_once_and_only_when_enabled() {
    let server = Server::new();
    let connect = |controller: ControllerId, wake| {
        server.connect(ConnectSqe::new(CID, 1, 128), &data(controller.0), wake)
    };
    let disabled = server
        .connect(ConnectSqe::new(CID, 0, 32), &data(0xFFFF), 1)
        .expect("room");
    let early = failure(connect(disabled.controller, 2)).0;
    assert_eq!(early, StatusCode::CommandSequenceError);
    let admin = server.admin(3);
    let io = connect(admin.controller, 4).expect("the queue is free");
    assert_eq!((io.queue, io.sq_entries), (QueueId(1), 128));
    let twice = failure(connect(admin.controller, 5)).0;
    assert_eq!(twice, StatusCode::CommandSequenceError);
    server.lock().connection_closed(&io);
    connect(admin.controller, 6).expect("the queue is free again");
}

#[test]
fn discovery_controllers_have_no_io_queues() {
    let mut fixture = Fixture::discovery();
    let admin = fixture.host();
    let result = fixture
        .subsystem
        .connect(fixture.now, request(1, admin.controller.0, 9));
    assert_eq!(failure(result), invalid(InvalidParameter::Command(42)));
}

#[test]
fn sq_flow_control_may_be_disabled() {
    let mut sqe = ConnectSqe::new(CID, 0, 32);
    sqe.attributes = ConnectSqe::ATTRIBUTE_NO_SQ_FLOW;
    let connection = Server::new().connect(sqe, &data(0xFFFF), 1).expect("room");
    assert_eq!(connection.sq_flow, SqFlow::Disabled);
}

#[test]
fn controller_ids_are_not_soon_used_again() {
    let mut fixture = Fixture::new();
    let first = fixture.connect_with(|_| {});
    fixture.subsystem.connection_closed(&first);
    let second = fixture.connect_with(|_| {});
    assert_ne!(first.controller, second.controller);
    fixture.subsystem.last_controller = ControllerId(0xFFEF);
    let wrapped = fixture.connect_with(|_| {});
    assert_eq!(wrapped.controller, ControllerId(1));
}

#[test]
fn the_admin_connections_end_takes_the_controller_and_its_queues() {
    let mut fixture = Fixture::new();
    let admin = fixture.host();
    let io = fixture.io_queue(&admin, 1);
    fixture.wakes();
    let generation = fixture.subsystem.generation().get();
    fixture.subsystem.connection_closed(&admin);
    assert!(!fixture.subsystem.is_connected(&io));
    assert!(fixture.wakes().contains(&io.wake.0));
    assert_ne!(fixture.subsystem.generation().get(), generation);
    let permit = fixture.subsystem.permit(admin.controller, Nsid(1));
    assert_eq!(permit, Permit::closed(Gate::ControllerGone));
    let status = Status::from(permit.check(CommandClass::Read).unwrap_err());
    assert!(!status.is_do_not_retry(), "{status:?}");
}

#[test]
fn properties_follow_enable_shutdown_and_reset() {
    let mut fixture = Fixture::new();
    let admin = fixture.connect_with(|_| {});
    let set = |fixture: &mut Fixture, value: u32| {
        let sqe = PropertySqe::set(CID, Property::Configuration, u64::from(value));
        fixture.ok(&admin, &zerocopy::transmute!(sqe));
        ControllerStatus(fixture.property(&admin, Property::Status) as u32)
    };
    let cap = Capabilities(fixture.property(&admin, Property::Capabilities));
    assert_eq!(cap.queue_entries_max(), 1024);
    assert_eq!(fixture.property(&admin, Property::Version), 0x0002_0000);
    let on = Configuration::ENABLE_NVM;
    assert!(
        set(&mut fixture, Configuration(on.0 | 1 << 7).0).is_fatal(),
        "8 KiB pages"
    );
    assert_eq!(set(&mut fixture, 0).0, 0);
    assert!(set(&mut fixture, on.0).is_ready());
    assert_eq!(
        fixture.property(&admin, Property::Configuration),
        u64::from(on.0)
    );
    end_io_queues(&mut fixture, &admin, on.with_shutdown(1));
    let status = ControllerStatus(fixture.property(&admin, Property::Status) as u32);
    assert!(status.is_shutdown_complete());
    assert!(!set(&mut fixture, 0).is_ready());
    assert!(set(&mut fixture, on.0).is_ready());
    end_io_queues(&mut fixture, &admin, Configuration(0));
    assert!(fixture.subsystem.is_connected(&admin));
}

/// Sets a configuration that ends the I/O queues. It completes when these execute nothing any more.
fn end_io_queues(fixture: &mut Fixture, admin: &Connection, configuration: Configuration) {
    let io = fixture.io_queue(admin, 1);
    fixture.wakes();
    let sqe = PropertySqe::set(CID, Property::Configuration, u64::from(configuration.0));
    let reply = fixture.admin(admin, &zerocopy::transmute!(sqe));
    assert_eq!(reply, Reply::Hold);
    assert_eq!(fixture.wakes(), [io.wake.0]);
    let subsystem = &mut fixture.subsystem;
    assert_eq!(subsystem.poll_kept(admin), None);
    assert!(!subsystem.acknowledge(&io), "it must be closed");
    assert_eq!(subsystem.poll_kept(admin), Some((CID, Completion::SUCCESS)));
    assert_eq!(fixture.wakes(), [admin.wake.0]);
}

#[test]
fn a_new_controller_is_answered_when_io_queues_of_former_ones_execute_nothing_any_more() {
    let mut fixture = Fixture::new();
    let former = fixture.host();
    let io = fixture.io_queue(&former, 1);
    fixture.subsystem.connection_closed(&former);
    let admin = fixture.connect_with(|_| {});
    let subsystem = &mut fixture.subsystem;
    assert_eq!(subsystem.answer_connect(&admin, CID), Reply::Hold);
    assert_eq!(subsystem.poll_kept(&admin), None);
    subsystem.connection_closed(&io);
    let kept = subsystem.poll_kept(&admin);
    assert_eq!(kept, Some((CID, connected(&admin))));
    let admin = fixture.host();
    let another = fixture.io_queue(&admin, 1);
    let done = Reply::Done(connected(&another));
    assert_eq!(fixture.subsystem.answer_connect(&another, CID), done);
}

#[test]
fn properties_that_do_not_exist_or_have_another_length_are_refused() {
    let mut fixture = Fixture::new();
    let admin = fixture.connect_with(|_| {});
    let mut unknown = PropertySqe::get(CID, Property::Status);
    unknown.offset.set(0x0C);
    let mut short = PropertySqe::get(CID, Property::Capabilities);
    short.attributes = 0;
    let mut reserved = PropertySqe::get(CID, Property::Status);
    reserved.attributes = 2;
    let read_only = PropertySqe::set(CID, Property::Status, 0);
    for sqe in [unknown, short, reserved, read_only] {
        let sqe = zerocopy::transmute!(sqe);
        assert_eq!(fixture.error(&admin, &sqe), StatusCode::InvalidField);
    }
}

#[test]
fn disconnect_ends_an_io_queue_and_not_the_admin_queue() {
    let mut fixture = Fixture::new();
    let admin = fixture.host();
    let io = fixture.io_queue(&admin, 1);
    let mut sqe = Sqe::new(Sqe::OPCODE_FABRICS, CID, Nsid(8));
    assert_eq!(fixture.error(&admin, &sqe), StatusCode::InvalidQueueType);
    sqe.cdw10 = U32::new(1);
    let reply = fixture.subsystem.io_control(&io, &sqe, &[]);
    assert_eq!(code(&reply), StatusCode::ConnectIncompatibleFormat);
    sqe.cdw10 = U32::ZERO;
    let reply = fixture.subsystem.io_control(&io, &sqe, &[]);
    assert_eq!(reply, Reply::Done(Completion::SUCCESS));
    assert!(!fixture.subsystem.is_connected(&io));
    assert!(fixture.subsystem.is_connected(&admin));
    fixture.io_queue(&admin, 1);
}
