use zerocopy::FromBytes;

use super::*;
use crate::wire::identify::IdentifyController;
use crate::wire::log::{CommandEffectsLog, ErrorEntry, SmartLog, lid};

#[test]
fn the_supported_pages_are_those_that_can_be_read() {
    for (mut fixture, pages) in [
        (
            Fixture::new(),
            vec![0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x0C, 0x80],
        ),
        (Fixture::discovery(), vec![0x00, 0x01, 0x70]),
    ] {
        let admin = fixture.host();
        let supported = fixture.log(&admin, lid::SUPPORTED_PAGES, 1024);
        for page in 0..=255 {
            let is_supported = pages.contains(&page);
            assert_eq!(
                u32_at(&supported, usize::from(page) * 4),
                u32::from(is_supported)
            );
            let reply = fixture.admin(&admin, &log_sqe(page, 0, 64, RetainEvent::Retain));
            match reply {
                Reply::Data(bytes) => assert!(is_supported && bytes.len() == 64, "{page:#x}"),
                reply => {
                    assert!(!is_supported, "{page:#x}");
                    assert_eq!(code(&reply), StatusCode::InvalidLogPage);
                }
            }
        }
    }
}

#[test]
fn an_offset_gives_the_rest_and_what_lies_beyond_is_zeros() {
    let mut fixture = Fixture::new();
    let admin = fixture.host();
    let whole = fixture.log(&admin, lid::SMART, 512);
    let rest = fixture.data(&admin, &log_sqe(lid::SMART, 32, 512, RetainEvent::Clear));
    assert_eq!(rest[..480], whole[32..]);
    assert_eq!(rest[480..], [0; 32]);
    let end = fixture.data(&admin, &log_sqe(lid::SMART, 512, 4, RetainEvent::Clear));
    assert_eq!(end, [0; 4]);
}

#[test]
fn offsets_and_lengths_out_of_bounds_are_refused() {
    let mut fixture = Fixture::new();
    let admin = fixture.host();
    let mut by_index = log_sqe(lid::SMART, 0, 512, RetainEvent::Clear);
    by_index.cdw14 = U32::new(1 << 23);
    for sqe in [
        log_sqe(lid::SMART, 516, 4, RetainEvent::Clear),
        log_sqe(lid::SMART, !3, 4, RetainEvent::Clear),
        log_sqe(lid::SMART, 2, 4, RetainEvent::Clear),
        log_sqe(lid::SMART, 0, (1 << 20) + 4, RetainEvent::Clear),
        by_index,
    ] {
        assert_eq!(fixture.error(&admin, &sqe), StatusCode::InvalidField);
    }
    let mut no_room = log_sqe(lid::SMART, 0, 512, RetainEvent::Clear);
    no_room.sgl1 = Sgl::transport(508);
    assert_eq!(
        fixture.error(&admin, &no_room),
        StatusCode::DataSglLengthInvalid
    );
}

#[test]
fn smart_shows_what_was_served() {
    let mut fixture = Fixture::new();
    let admin = fixture.host();
    let bytes = fixture.log(&admin, lid::SMART, 512);
    let log = SmartLog::read_from_bytes(&bytes).expect("512 bytes");
    assert_eq!((log.spare_percent, log.critical_warning), (80, 0));
    assert_eq!(log.temperature_k.get(), 298, "room temperature");
    assert_eq!(log.data_units_read[0].get(), 1);
    assert_eq!(log.data_units_written[0].get(), 2);
    assert_eq!(
        (log.read_commands[0].get(), log.write_commands[0].get()),
        (3, 4)
    );
    assert_eq!(
        (log.busy_minutes[0].get(), log.power_on_hours[0].get()),
        (5, 6)
    );
    assert_eq!(log.media_errors[0].get(), 7);
}

#[test]
fn a_threshold_on_the_wrong_side_of_the_temperature_is_a_warning() {
    const UNDER: u32 = 1 << 20;
    let mut fixture = Fixture::new();
    let admin = fixture.host();
    for (threshold, warning) in [
        (299, 0),
        (298, SmartLog::TEMPERATURE_WARNING),
        (0xFFFF, 0),
        (UNDER + 297, 0),
        (UNDER + 298, SmartLog::TEMPERATURE_WARNING),
    ] {
        let mut set = sqe(opcode::SET_FEATURES, 0, 0x04);
        set.cdw11 = U32::new(threshold);
        fixture.ok(&admin, &set);
        let bytes = fixture.log(&admin, lid::SMART, 512);
        assert_eq!(bytes[0], warning, "{threshold:#x}");
    }
}

#[test]
fn smart_is_of_the_controller_not_of_a_namespace() {
    let mut fixture = Fixture::new();
    let admin = fixture.host();
    let mut sqe = log_sqe(lid::SMART, 0, 512, RetainEvent::Clear);
    sqe.nsid = U32::new(1);
    assert_eq!(fixture.error(&admin, &sqe), StatusCode::InvalidField);
    sqe.nsid = U32::ZERO;
    assert_eq!(fixture.data(&admin, &sqe).len(), 512);
}

#[test]
fn each_failed_command_leaves_an_error_entry_and_says_more() {
    let mut fixture = Fixture::new();
    let admin = fixture.host();
    let io = fixture.io_queue(&admin, 1);
    let Reply::Done(completion) = fixture.admin(&admin, &sqe(opcode::IDENTIFY, 9, 0xFF)) else {
        panic!("an error is expected");
    };
    assert_ne!(completion.status.field() & 1 << 13, 0, "More");
    let read = FailedCommand {
        cid: Cid(0x66),
        nsid: Nsid(2),
        opcode: opcode::READ,
        lba: block::Lba(77),
    };
    let status = Status::from(StatusCode::UnrecoveredReadError);
    fixture.subsystem.record_error(&io, &read, status);
    let page = fixture.log(&admin, lid::ERROR, 128);
    let entry = |at: usize| ErrorEntry::read_from_bytes(&page[at * 64..][..64]).expect("64 bytes");
    let (newest, older) = (entry(0), entry(1));
    assert_eq!((newest.error_count.get(), older.error_count.get()), (2, 1));
    assert_eq!((newest.sq_id.get(), newest.cid.get()), (1, 0x66));
    assert_eq!((newest.lba.get(), newest.nsid.get()), (77, 2));
    assert_eq!(newest.status.get(), status.field() << 1);
    assert_eq!((older.opcode, older.location.get()), (opcode::IDENTIFY, 40));
    let smart = fixture.log(&admin, lid::SMART, 512);
    assert_eq!(u64_at(&smart, 176), 2);
}

#[test]
fn effects_tell_commands_that_change_blocks() {
    let mut fixture = Fixture::new();
    let admin = fixture.host();
    let bytes = fixture.log(&admin, lid::COMMAND_EFFECTS, 4096);
    let log = CommandEffectsLog::read_from_bytes(&bytes).expect("4096 bytes");
    assert_eq!(log.admin[usize::from(opcode::IDENTIFY)].get(), 1);
    assert_eq!(log.io[usize::from(opcode::READ)].get(), 1);
    assert_eq!(log.io[usize::from(opcode::WRITE)].get(), 0b11);
    assert_eq!(log.io[usize::from(opcode::WRITE_UNCORRECTABLE)].get(), 0);
}

#[test]
fn the_firmware_slot_is_the_one_there_is() {
    let mut fixture = Fixture::new();
    let admin = fixture.host();
    let bytes = fixture.log(&admin, lid::FIRMWARE_SLOT, 512);
    assert_eq!(bytes[0], 1);
    assert_eq!(&bytes[8..16], b"0.1.0   ");
    assert_eq!(bytes[16..24], [0; 8]);
}

/// The state of each group, and the change count of the log, in a log without NSIDs.
fn groups(fixture: &mut Fixture, connection: &Connection) -> (u64, Vec<(u32, u8)>) {
    let mut sqe = log_sqe(lid::ANA, 0, 16 + 2 * 32, RetainEvent::Clear);
    sqe.cdw10 = U32::new(sqe.cdw10.get() | 1 << 8);
    let bytes = fixture.data(connection, &sqe);
    let count = usize::from(u16_at(&bytes, 8));
    let at = |group: usize| 16 + 32 * group;
    let groups = (0..count).map(|group| (u32_at(&bytes, at(group)), bytes[at(group) + 16]));
    (u64_at(&bytes, 0), groups.collect())
}

#[test]
fn ana_shows_the_path_of_each_namespace() {
    let mut fixture = Fixture::new();
    let admin = fixture.host();
    let (count, states) = groups(&mut fixture, &admin);
    assert_eq!(states, [(1, 1), (2, 1)]);
    let permit = |fixture: &Fixture, nsid| {
        let permit = fixture.subsystem.permit(admin.controller, Nsid(nsid));
        permit.check(CommandClass::Write)
    };
    let inaccessible = Err(StatusCode::AsymmetricAccessInaccessible);
    for (state, shown, permitted) in [
        (PathState::NonOptimized, 2, Ok(())),
        (PathState::Inaccessible, 3, inaccessible),
        (PathState::Optimized, 1, Ok(())),
    ] {
        fixture.set_path(2, state);
        assert_eq!(groups(&mut fixture, &admin).1, [(1, 1), (2, shown)]);
        assert_eq!(permit(&fixture, 2), permitted, "{state:?}");
        assert_eq!(permit(&fixture, 1), Ok(()));
    }
    assert_eq!(groups(&mut fixture, &admin).0, count + 3);
    fixture.subsystem.remove_namespace(Nsid(1));
    assert_eq!(groups(&mut fixture, &admin).1, [(2, 1)]);
}

#[test]
fn ana_names_the_namespace_of_each_group_unless_only_groups_are_requested() {
    let mut fixture = Fixture::new();
    let admin = fixture.host();
    let bytes = fixture.log(&admin, lid::ANA, 16 + 2 * 36);
    let at = |group: usize| 16 + 36 * group;
    for (group, nsid) in [(0, 1), (1, 2)] {
        let (members, member) = (at(group) + 4, at(group) + 32);
        assert_eq!([u32_at(&bytes, members), u32_at(&bytes, member)], [1, nsid]);
    }
    let mut sqe = log_sqe(lid::ANA, 0, 96, RetainEvent::Clear);
    sqe.cdw10 = U32::new(sqe.cdw10.get() | 1 << 8);
    let bytes = fixture.data(&admin, &sqe);
    assert_eq!([u32_at(&bytes, 20), u32_at(&bytes, 48)], [0, 2]);
    assert_eq!(bytes[80..], [0; 16]);
    sqe.cdw10 = U32::new(sqe.cdw10.get() | 2 << 8);
    assert_eq!(fixture.error(&admin, &sqe), StatusCode::InvalidField);
}

#[test]
fn ana_is_as_long_as_hosts_calculate_from_identify_controller() {
    let mut fixture = Fixture::new();
    let admin = fixture.host();
    let bytes = fixture.data(&admin, &sqe(opcode::IDENTIFY, 0, 1));
    let id = IdentifyController::read_from_bytes(&bytes).expect("4096 bytes");
    let (groups, namespaces) = (id.ana_groups.get(), id.namespaces_max.get());
    assert_eq!((groups, id.ana_group_max.get()), (16, 16));
    let end = u64::from(16 + 32 * groups + 4 * namespaces);
    let tail = log_sqe(lid::ANA, end - 8, 8, RetainEvent::Clear);
    assert_eq!(fixture.data(&admin, &tail), [0; 8]);
    let beyond = log_sqe(lid::ANA, end + 8, 8, RetainEvent::Clear);
    assert_eq!(fixture.error(&admin, &beyond), StatusCode::InvalidField);
}
