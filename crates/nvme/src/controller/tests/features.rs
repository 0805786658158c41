use super::*;
use crate::wire::feature;

fn get(fid: u8, select: u32) -> Sqe {
    sqe(opcode::GET_FEATURES, 0, select << 8 | u32::from(fid))
}

fn set(fid: u8, value: u32) -> Sqe {
    let mut sqe = sqe(opcode::SET_FEATURES, 0, u32::from(fid));
    sqe.cdw11 = U32::new(value);
    sqe
}

fn on_namespace(mut sqe: Sqe, nsid: u32) -> Sqe {
    sqe.nsid = U32::new(nsid);
    sqe
}

#[test]
fn what_is_set_is_got_and_the_default_stays() {
    let mut fixture = Fixture::new();
    let admin = fixture.host();
    for (fid, value, default) in [
        (feature::ARBITRATION, 0x0102_0307, 0),
        (feature::POWER_MANAGEMENT, 0, 0),
        (feature::TEMPERATURE_THRESHOLD, 350, 0xFFFF),
        (feature::WRITE_ATOMICITY, 1, 0),
        (feature::ASYNC_EVENT_CONFIGURATION, 1 << 8, 1 << 8 | 1 << 11),
    ] {
        assert_eq!(fixture.ok(&admin, &set(fid, value)), 0, "{fid:#x}");
        assert_eq!(
            fixture.ok(&admin, &get(fid, 0)),
            u64::from(value),
            "{fid:#x}"
        );
        assert_eq!(fixture.ok(&admin, &get(fid, 1)), default, "{fid:#x}");
        assert_eq!(fixture.ok(&admin, &get(fid, 2)), default, "{fid:#x}");
    }
}

#[test]
fn thresholds_over_and_under_are_apart_and_there_are_no_sensors() {
    let mut fixture = Fixture::new();
    let admin = fixture.host();
    fixture.ok(
        &admin,
        &set(feature::TEMPERATURE_THRESHOLD, 1 << 20 | 0x118),
    );
    let under = {
        let mut sqe = get(feature::TEMPERATURE_THRESHOLD, 0);
        sqe.cdw11 = U32::new(1 << 20);
        sqe
    };
    assert_eq!(fixture.ok(&admin, &under), 0x118);
    assert_eq!(
        fixture.ok(&admin, &get(feature::TEMPERATURE_THRESHOLD, 0)),
        0xFFFF
    );
    for wrong in [1 << 16, 2 << 20] {
        let status = fixture.error(&admin, &set(feature::TEMPERATURE_THRESHOLD, wrong));
        assert_eq!(status, StatusCode::InvalidField);
    }
}

#[test]
fn capabilities_say_changeable_and_scope() {
    let mut fixture = Fixture::new();
    let admin = fixture.host();
    for (fid, expected) in [
        (feature::ARBITRATION, 0b100),
        (feature::ERROR_RECOVERY, 0b110),
        (feature::NAMESPACE_WRITE_PROTECTION, 0b010),
        (feature::HOST_IDENTIFIER, 0b000),
    ] {
        assert_eq!(fixture.ok(&admin, &get(fid, 3)), expected, "{fid:#x}");
    }
    let status = fixture.error(&admin, &get(feature::ARBITRATION, 4));
    assert_eq!(status, StatusCode::InvalidField);
}

#[test]
fn unknown_features_are_invalid() {
    let mut fixture = Fixture::new();
    let admin = fixture.host();
    let known = [0x01, 0x02, 0x04, 0x05, 0x07, 0x0A, 0x0B, 0x0E, 0x0F, 0x16];
    for fid in (0..=0x80).filter(|fid| !known.contains(fid)) {
        assert_eq!(
            fixture.error(&admin, &get(fid, 0)),
            StatusCode::InvalidField,
            "{fid:#x}"
        );
        assert_eq!(
            fixture.error(&admin, &set(fid, 0)),
            StatusCode::InvalidField,
            "{fid:#x}"
        );
    }
}

#[test]
fn nothing_can_be_saved() {
    let mut fixture = Fixture::new();
    let admin = fixture.host();
    let mut command = set(feature::ARBITRATION, 1);
    command.cdw10 = U32::new(1 << 31 | u32::from(feature::ARBITRATION));
    assert_eq!(
        fixture.error(&admin, &command),
        StatusCode::FeatureNotSaveable
    );
}

#[test]
fn a_controllers_feature_is_not_set_for_a_namespace() {
    let mut fixture = Fixture::new();
    let admin = fixture.host();
    let status = fixture.error(&admin, &on_namespace(set(feature::ARBITRATION, 1), 1));
    assert_eq!(status, StatusCode::FeatureNotNamespaceSpecific);
    fixture.ok(
        &admin,
        &on_namespace(set(feature::ARBITRATION, 1), 0xFFFF_FFFF),
    );
}

#[test]
fn number_of_queues_grants_the_limit_before_there_are_any() {
    let mut fixture = Fixture::new();
    let admin = fixture.host();
    let granted = 7 << 16 | 7;
    assert_eq!(
        fixture.ok(&admin, &set(feature::NUMBER_OF_QUEUES, 0x003F_003F)),
        granted
    );
    assert_eq!(
        fixture.ok(&admin, &get(feature::NUMBER_OF_QUEUES, 0)),
        granted
    );
    let status = fixture.error(&admin, &set(feature::NUMBER_OF_QUEUES, 0xFFFF));
    assert_eq!(status, StatusCode::InvalidField);
    fixture.io_queue(&admin, 1);
    let status = fixture.error(&admin, &set(feature::NUMBER_OF_QUEUES, 0));
    assert_eq!(status, StatusCode::CommandSequenceError);
}

#[test]
fn events_that_do_not_exist_can_not_be_enabled() {
    let mut fixture = Fixture::new();
    let admin = fixture.host();
    let status = fixture.error(&admin, &set(feature::ASYNC_EVENT_CONFIGURATION, 1 << 31));
    assert_eq!(status, StatusCode::InvalidField);
}

#[test]
fn the_timestamp_goes_on_from_what_was_set() {
    let mut fixture = Fixture::new();
    let admin = fixture.host();
    assert_eq!(fixture.data(&admin, &get(feature::TIMESTAMP, 0)), [0; 8]);
    let ms: u64 = 0x0102_0304_0506;
    let reply = fixture.admin_with(&admin, &set(feature::TIMESTAMP, 0), &ms.to_le_bytes());
    assert_eq!(reply, Reply::Done(Completion::SUCCESS));
    fixture.now += Duration::from_millis(10);
    let bytes = fixture.data(&admin, &get(feature::TIMESTAMP, 0));
    assert_eq!(bytes, [0x10, 5, 4, 3, 2, 1, 0b010, 0]);
    let reply = fixture.admin_with(&admin, &set(feature::TIMESTAMP, 0), &[0; 4]);
    assert_eq!(code(&reply), StatusCode::DataSglLengthInvalid);
}

#[test]
fn keep_alive_can_be_changed_and_rounds_up() {
    let mut fixture = Fixture::new();
    let admin = fixture.host();
    assert_eq!(fixture.subsystem.poll_timeout(admin.controller), None);
    fixture.ok(&admin, &set(feature::KEEP_ALIVE_TIMER, 2_001));
    assert_eq!(
        fixture.ok(&admin, &get(feature::KEEP_ALIVE_TIMER, 0)),
        2_100
    );
    let deadline = fixture.subsystem.poll_timeout(admin.controller);
    assert_eq!(deadline, Some(fixture.now + Duration::from_millis(2_100)));
    fixture.ok(&admin, &set(feature::KEEP_ALIVE_TIMER, u32::MAX));
    fixture.ok(&admin, &set(feature::KEEP_ALIVE_TIMER, 0));
    assert_eq!(fixture.subsystem.poll_timeout(admin.controller), None);
}

#[test]
fn the_host_identifier_of_connect_cannot_be_changed() {
    let mut fixture = Fixture::new();
    let admin = fixture.host();
    let mut extended = get(feature::HOST_IDENTIFIER, 0);
    extended.cdw11 = U32::new(1);
    assert_eq!(fixture.data(&admin, &extended), HOST_ID);
    let status = fixture.error(&admin, &get(feature::HOST_IDENTIFIER, 0));
    assert_eq!(status, StatusCode::InvalidField);
    let reply = fixture.admin_with(&admin, &set(feature::HOST_IDENTIFIER, 1), &[1; 16]);
    assert_eq!(code(&reply), StatusCode::CommandSequenceError);
}

#[test]
fn host_behavior_keeps_what_exists() {
    let mut fixture = Fixture::new();
    let admin = fixture.host();
    let mut behavior = [0; 512];
    behavior[0] = 1;
    behavior[2] = 1;
    let reply = fixture.admin_with(&admin, &set(feature::HOST_BEHAVIOR_SUPPORT, 0), &behavior);
    assert_eq!(reply, Reply::Done(Completion::SUCCESS));
    behavior[2] = 0;
    assert_eq!(
        fixture.data(&admin, &get(feature::HOST_BEHAVIOR_SUPPORT, 0)),
        behavior
    );
    behavior[0] = 2;
    let reply = fixture.admin_with(&admin, &set(feature::HOST_BEHAVIOR_SUPPORT, 0), &behavior);
    assert_eq!(code(&reply), StatusCode::InvalidField);
}

#[test]
fn features_of_namespaces_are_set_for_one_or_all() {
    let mut fixture = Fixture::new();
    let admin = fixture.host();
    for fid in [
        feature::ERROR_RECOVERY,
        feature::RESERVATION_NOTIFICATION_MASK,
    ] {
        let value =
            |fixture: &mut Fixture, nsid| fixture.ok(&admin, &on_namespace(get(fid, 0), nsid));
        fixture.ok(&admin, &on_namespace(set(fid, 0b1000), 1));
        assert_eq!((value(&mut fixture, 1), value(&mut fixture, 2)), (8, 0));
        fixture.ok(&admin, &on_namespace(set(fid, 0b0010), 0xFFFF_FFFF));
        assert_eq!((value(&mut fixture, 1), value(&mut fixture, 2)), (2, 2));
        for nsid in [0, 3] {
            for command in [get(fid, 0), set(fid, 0)] {
                let status = fixture.error(&admin, &on_namespace(command, nsid));
                assert_eq!(status, StatusCode::InvalidNamespaceOrFormat);
            }
        }
    }
    let masks = on_namespace(set(feature::RESERVATION_NOTIFICATION_MASK, 1), 1);
    assert_eq!(fixture.error(&admin, &masks), StatusCode::InvalidField);
    let unwritten_errors = on_namespace(set(feature::ERROR_RECOVERY, 1 << 16), 1);
    assert_eq!(
        fixture.error(&admin, &unwritten_errors),
        StatusCode::InvalidField
    );
}

#[test]
fn reservations_do_not_persist() {
    let mut fixture = Fixture::new();
    let admin = fixture.host();
    let get = on_namespace(get(feature::RESERVATION_PERSISTENCE, 0), 1);
    assert_eq!(fixture.ok(&admin, &get), 0);
    fixture.ok(
        &admin,
        &on_namespace(set(feature::RESERVATION_PERSISTENCE, 0), 1),
    );
    let persist = on_namespace(set(feature::RESERVATION_PERSISTENCE, 1), 1);
    assert_eq!(fixture.error(&admin, &persist), StatusCode::InvalidField);
}

#[test]
fn a_locked_volume_is_shown_write_protected_and_not_unlocked_by_hosts() {
    let mut fixture = Fixture::new();
    let admin = fixture.host();
    let get = on_namespace(get(feature::NAMESPACE_WRITE_PROTECTION, 0), 1);
    assert_eq!(fixture.ok(&admin, &get), 0);
    fixture.volumes[0].set_read_only(true);
    assert_eq!(fixture.ok(&admin, &get), 1);
    let unlock = on_namespace(set(feature::NAMESPACE_WRITE_PROTECTION, 0), 1);
    assert_eq!(
        fixture.error(&admin, &unlock),
        StatusCode::FeatureNotChangeable
    );
}

#[test]
fn discovery_controllers_have_two_features() {
    let mut fixture = Fixture::discovery();
    let admin = fixture.host();
    let events = fixture.ok(&admin, &get(feature::ASYNC_EVENT_CONFIGURATION, 0));
    assert_eq!(events, 1 << 31);
    assert_eq!(
        fixture.ok(&admin, &get(feature::KEEP_ALIVE_TIMER, 0)),
        120_000
    );
    let status = fixture.error(&admin, &get(feature::NUMBER_OF_QUEUES, 0));
    assert_eq!(status, StatusCode::InvalidField);
}

#[test]
fn a_write_cache_is_a_feature_of_hosts_that_were_told_of_it_and_stays_on() {
    let mut fixture = Fixture::new();
    let before = fixture.host();
    fixture.volumes[0].set_volatile_cache();
    let after = fixture.host();
    let fid = feature::VOLATILE_WRITE_CACHE;
    let status = fixture.error(&before, &get(fid, 0));
    assert_eq!(status, StatusCode::InvalidField);
    assert_eq!(fixture.ok(&after, &get(fid, 0)), 1);
    assert_eq!(fixture.ok(&after, &set(fid, 1)), 0);
    let status = fixture.error(&after, &set(fid, 0));
    assert_eq!(status, StatusCode::FeatureNotChangeable);
}
