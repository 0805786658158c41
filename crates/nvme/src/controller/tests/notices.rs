use super::*;
use crate::wire::feature;
use crate::wire::log::lid;

const NAMESPACE_CHANGED: u64 = 0x0004_0002;
const ANA_CHANGED: u64 = 0x000C_0302;

#[test]
fn adding_resizing_and_removing_a_namespace_is_reported_once_until_the_log_is_read() {
    let mut fixture = Fixture::new();
    let admin = fixture.host();
    fixture.request_events(&admin, 4);
    fixture.wakes();
    fixture.add_namespace(5);
    assert_eq!(fixture.wakes(), [admin.wake.0]);
    assert_eq!(fixture.events(&admin), [NAMESPACE_CHANGED]);
    fixture.subsystem.namespace_changed(Nsid(1));
    assert_eq!(fixture.events(&admin), [], "masked until the log is read");
    let changed = fixture.log(&admin, lid::CHANGED_NAMESPACES, 4096);
    assert_eq!(
        [
            u32_at(&changed, 0),
            u32_at(&changed, 4),
            u32_at(&changed, 8)
        ],
        [1, 5, 0]
    );
    fixture
        .subsystem
        .remove_namespace(Nsid(5))
        .expect("it was there");
    assert_eq!(fixture.events(&admin), [NAMESPACE_CHANGED]);
    let changed = fixture.log(&admin, lid::CHANGED_NAMESPACES, 4096);
    assert_eq!([u32_at(&changed, 0), u32_at(&changed, 4)], [5, 0]);
}

#[test]
fn removing_a_namespace_wakes_io_queues_whose_commands_may_wait_for_it() {
    let mut fixture = Fixture::new();
    let admin = fixture.host();
    let io = fixture.io_queue(&admin, 1);
    fixture.wakes();
    let removed = fixture.subsystem.remove_namespace(Nsid(1));
    removed.expect("it was there");
    assert!(fixture.wakes().contains(&io.wake.0));
}

#[test]
fn retaining_the_event_keeps_the_list_and_the_mask() {
    let mut fixture = Fixture::new();
    let admin = fixture.host();
    fixture.request_events(&admin, 2);
    fixture.subsystem.namespace_changed(Nsid(2));
    assert_eq!(fixture.events(&admin), [NAMESPACE_CHANGED]);
    let retain = log_sqe(lid::CHANGED_NAMESPACES, 0, 4096, RetainEvent::Retain);
    for _ in 0..2 {
        let changed = fixture.data(&admin, &retain);
        assert_eq!([u32_at(&changed, 0), u32_at(&changed, 4)], [2, 0]);
    }
    fixture.subsystem.namespace_changed(Nsid(2));
    assert_eq!(fixture.events(&admin), []);
}

#[test]
fn a_log_read_that_fails_clears_nothing() {
    let mut fixture = Fixture::new();
    let admin = fixture.host();
    fixture.subsystem.namespace_changed(Nsid(2));
    let mut no_room = log_sqe(lid::CHANGED_NAMESPACES, 0, 4096, RetainEvent::Clear);
    no_room.sgl1 = Sgl::transport(4);
    fixture.error(&admin, &no_room);
    let changed = fixture.log(&admin, lid::CHANGED_NAMESPACES, 4096);
    assert_eq!(u32_at(&changed, 0), 2);
}

#[test]
fn every_controller_is_notified_and_has_its_own_list() {
    let mut fixture = Fixture::new();
    let (first, second) = (fixture.host(), fixture.host());
    fixture.wakes();
    fixture.subsystem.namespace_changed(Nsid(1));
    assert_eq!(fixture.wakes(), [first.wake.0, second.wake.0]);
    fixture.log(&first, lid::CHANGED_NAMESPACES, 4096);
    let changed = fixture.log(&second, lid::CHANGED_NAMESPACES, 4096);
    assert_eq!(u32_at(&changed, 0), 1);
}

#[test]
fn a_host_gets_no_event_that_it_has_not_enabled() {
    let mut fixture = Fixture::new();
    let admin = fixture.host();
    let mut set = sqe(
        opcode::SET_FEATURES,
        0,
        u32::from(feature::ASYNC_EVENT_CONFIGURATION),
    );
    set.cdw11 = U32::new(1 << 11);
    fixture.ok(&admin, &set);
    fixture.request_events(&admin, 2);
    fixture.wakes();
    fixture.subsystem.namespace_changed(Nsid(1));
    assert_eq!(fixture.wakes(), []);
    fixture.set_path(1, PathState::NonOptimized);
    assert_eq!(fixture.events(&admin), [ANA_CHANGED]);
}

#[test]
fn a_change_of_path_notifies_every_host_once_until_the_log_is_read() {
    let mut fixture = Fixture::new();
    let hosts = [fixture.host(), fixture.host()];
    for host in &hosts {
        fixture.request_events(host, 2);
    }
    fixture.wakes();
    fixture.set_path(1, PathState::NonOptimized);
    assert_eq!(fixture.wakes(), hosts.each_ref().map(|host| host.wake.0));
    // What has not changed is not reported.
    fixture.subsystem.path_changed(Nsid(1));
    fixture.subsystem.path_changed(Nsid(9));
    assert_eq!(fixture.wakes(), []);
    for host in &hosts {
        assert_eq!(fixture.events(host), [ANA_CHANGED]);
    }
    fixture.set_path(1, PathState::Optimized);
    assert_eq!(
        fixture.events(&hosts[0]),
        [],
        "masked until the log is read"
    );
    fixture.log(&hosts[0], lid::ANA, 64);
    fixture.set_path(2, PathState::Inaccessible);
    assert_eq!(fixture.events(&hosts[0]), [ANA_CHANGED]);
}

#[test]
fn a_reset_forgets_requests_and_events() {
    let mut fixture = Fixture::new();
    let admin = fixture.host();
    fixture.request_events(&admin, 2);
    for value in [0, enabled()] {
        let set = PropertySqe::set(CID, Property::Configuration, value);
        fixture.ok(&admin, &zerocopy::transmute!(set));
    }
    fixture.subsystem.namespace_changed(Nsid(1));
    assert_eq!(fixture.events(&admin), [], "the requests are gone");
    fixture.request_events(&admin, 1);
    assert_eq!(fixture.events(&admin), [NAMESPACE_CHANGED]);
}

#[test]
fn the_generation_moves_with_everything_that_a_snapshot_shows() {
    let mut fixture = Fixture::new();
    let admin = fixture.host();
    let generation = fixture.subsystem.generation();
    let mut last = generation.get();
    let mut moved = |what: &str| {
        assert_ne!(generation.get(), last, "{what}");
        last = generation.get();
    };
    fixture.add_namespace(3);
    moved("add");
    fixture.subsystem.namespace_changed(Nsid(3));
    moved("resize or lock");
    fixture.subsystem.remove_namespace(Nsid(3));
    moved("remove");
    fixture.set_path(1, PathState::Inaccessible);
    moved("ANA");
    fixture.subsystem.delete_controller(admin.controller);
    moved("controller");
}

#[test]
fn namespaces_that_can_not_be_are_refused() {
    let mut fixture = Fixture::new();
    let mut add = |nsid| {
        let namespace = Namespace {
            volume: Arc::clone(&fixture.volumes[0]) as Arc<dyn Volume>,
            ids: NamespaceIds::from_seed([9; 16]),
        };
        fixture.subsystem.add_namespace(Nsid(nsid), namespace)
    };
    let last = Nsid(16);
    for nsid in [0, 17, 0xFFFF_FFFF] {
        let nsid = Nsid(nsid);
        assert_eq!(add(nsid.0), Err(NamespaceError::InvalidNsid { nsid, last }));
    }
    assert_eq!(add(1), Err(NamespaceError::Exists(Nsid(1))));
    assert_eq!(add(16), Ok(()));
}

#[test]
fn a_change_of_access_is_shown_as_write_protection_to_that_host_only() {
    let mut fixture = Fixture::new();
    let (changed, other) = (fixture.host(), fixture.host());
    fixture.request_events(&changed, 1);
    fixture.wakes();
    let generation = fixture.subsystem.generation().get();
    for _ in 0..2 {
        fixture
            .subsystem
            .set_access(changed.controller, Access::ReadOnly);
    }
    assert_eq!(fixture.wakes(), [changed.wake.0]);
    assert_eq!(fixture.events(&changed), [NAMESPACE_CHANGED]);
    assert_eq!(fixture.subsystem.generation().get(), generation + 1);
    let list = fixture.log(&changed, lid::CHANGED_NAMESPACES, 4096);
    assert_eq!([u32_at(&list, 0), u32_at(&list, 4)], [1, 2]);
    let permit = |fixture: &Fixture, connection: &Connection| {
        fixture.subsystem.permit(connection.controller, Nsid(1))
    };
    assert_eq!(permit(&fixture, &changed).write, Gate::AccessDenied);
    assert_eq!(permit(&fixture, &other), Permit::ALL);
    fixture
        .subsystem
        .set_access(changed.controller, Access::Denied);
    assert!(!fixture.subsystem.is_connected(&changed));
}
