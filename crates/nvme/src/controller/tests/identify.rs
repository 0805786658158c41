use zerocopy::FromBytes;

use super::*;
use crate::wire::identify::{
    IdentifyController, IdentifyIndependentNamespace, IdentifyNamespace, IdentifyNvmController,
    NamespaceDescriptor, parse_namespace_list,
};

fn identify(nsid: u32, cns: u8) -> Sqe {
    sqe(opcode::IDENTIFY, nsid, u32::from(cns))
}

#[test]
fn the_controller_says_what_it_is_and_its_limits() {
    let mut fixture = Fixture::new();
    let admin = fixture.host();
    let bytes = fixture.data(&admin, &identify(0, 1));
    let id = IdentifyController::read_from_bytes(&bytes).expect("4096 bytes");
    assert_eq!(&id.serial, b"4711                ");
    assert_eq!(&id.model[..8], b"ramport ");
    assert_eq!(&id.firmware, b"0.1.0   ");
    assert_eq!(id.controller_id.get(), admin.controller.0);
    assert_eq!((id.controller_type, id.mdts), (1, 8));
    assert_eq!(id.commands_max.get(), 1024);
    assert_eq!((id.namespaces.get(), id.namespaces_max.get()), (16, 16));
    assert_eq!(id.command_capsule_units.get(), (64 + 8192) / 16);
    assert_eq!(id.response_capsule_units.get(), 1);
    assert_eq!(
        id.subsystem_nqn.name(),
        Some("nqn.2014-08.org.example:test")
    );
    assert_ne!(id.sgls.get() & 0b11, 0, "SGLs are mandatory in Fabrics");
    assert_ne!(id.keep_alive_granularity.get(), 0);
    assert_ne!(id.attributes.get() & 1 << 6, 0, "traffic based keep alive");
    assert_eq!(id.events.get(), 1 << 8 | 1 << 11);
}

#[test]
fn a_discovery_controller_says_that_it_is_one_and_knows_nothing_else() {
    let mut fixture = Fixture::discovery();
    let admin = fixture.host();
    let bytes = fixture.data(&admin, &identify(0, 1));
    let id = IdentifyController::read_from_bytes(&bytes).expect("4096 bytes");
    assert_eq!((id.controller_type, id.discovery_type), (2, 1));
    assert_eq!((id.namespaces.get(), id.nvm_commands.get()), (0, 0));
    assert_eq!(id.events.get(), 1 << 31);
    for cns in [0x00, 0x02, 0x03, 0x05, 0x06, 0x1C] {
        assert_eq!(
            fixture.error(&admin, &identify(1, cns)),
            StatusCode::InvalidField
        );
    }
}

#[test]
fn a_namespace_says_its_size_use_and_identity() {
    let mut fixture = Fixture::new();
    let admin = fixture.host();
    let bytes = fixture.data(&admin, &identify(2, 0));
    let id = IdentifyNamespace::read_from_bytes(&bytes).expect("4096 bytes");
    assert_eq!((id.size_blocks.get(), id.capacity_blocks.get()), (16, 16));
    assert_eq!(id.used_blocks.get(), 2, "of 4096 bytes");
    assert_eq!(id.current_format().data_shift, 12);
    assert_eq!(id.capacity_bytes[0].get(), 65536);
    assert_eq!((id.nguid, id.attributes), ([2; 16], 0));
    assert_eq!(id.ana_group.get(), 2, "a group of its own");
    fixture.volumes[1].resize(32);
    fixture.volumes[1].set_read_only(true);
    let bytes = fixture.data(&admin, &identify(2, 0));
    let id = IdentifyNamespace::read_from_bytes(&bytes).expect("4096 bytes");
    assert_eq!((id.size_blocks.get(), id.attributes), (32, 1));
}

#[test]
fn a_host_that_may_only_read_sees_a_write_protected_namespace() {
    let mut fixture = Fixture::new();
    let admin = fixture.host_with(|request| request.access = Access::ReadOnly);
    let bytes = fixture.data(&admin, &identify(1, 0));
    let id = IdentifyNamespace::read_from_bytes(&bytes).expect("4096 bytes");
    assert_eq!(id.attributes, 1);
    let permit = fixture.subsystem.permit(admin.controller, Nsid(1));
    assert_eq!(permit.check(CommandClass::Read), Ok(()));
    assert_eq!(
        permit.check(CommandClass::Write),
        Err(StatusCode::AccessDenied)
    );
}

#[test]
fn an_inactive_namespace_is_zeros_and_an_invalid_one_an_error() {
    let mut fixture = Fixture::new();
    let admin = fixture.host();
    assert_eq!(fixture.data(&admin, &identify(3, 0)), [0; 4096]);
    for nsid in [0, 17, 0xFFFF_FFFE, 0xFFFF_FFFF] {
        let status = fixture.error(&admin, &identify(nsid, 0));
        assert_eq!(status, StatusCode::InvalidNamespaceOrFormat, "{nsid:#x}");
    }
    for cns in [0x03, 0x05, 0x08, 0x12] {
        let status = fixture.error(&admin, &identify(3, cns));
        assert_eq!(status, StatusCode::InvalidNamespaceOrFormat, "{cns:#x}");
    }
}

#[test]
fn the_active_list_begins_after_the_namespace_given() {
    let mut fixture = Fixture::new();
    fixture.add_namespace(7);
    let admin = fixture.host();
    for cns in [0x02, 0x07, 0x10] {
        let list = |fixture: &mut Fixture, nsid| {
            let bytes = fixture.data(&admin, &identify(nsid, cns));
            parse_namespace_list(&bytes)
                .map(|nsid| nsid.0)
                .collect::<Vec<_>>()
        };
        assert_eq!(list(&mut fixture, 0), [1, 2, 7]);
        assert_eq!(list(&mut fixture, 2), [7]);
        assert_eq!(list(&mut fixture, 7), []);
        for nsid in [0xFFFF_FFFE, 0xFFFF_FFFF] {
            let status = fixture.error(&admin, &identify(nsid, cns));
            assert_eq!(status, StatusCode::InvalidNamespaceOrFormat);
        }
    }
}

#[test]
fn descriptors_name_all_identifiers() {
    let mut fixture = Fixture::new();
    let admin = fixture.host();
    let bytes = fixture.data(&admin, &identify(1, 3));
    let ids = NamespaceIds::from_seed([1; 16]);
    let expected = [
        NamespaceDescriptor::Uuid(ids.uuid),
        NamespaceDescriptor::Nguid(ids.nguid),
        NamespaceDescriptor::Eui64(ids.eui64),
        NamespaceDescriptor::CommandSet(0),
    ];
    assert_eq!(NamespaceDescriptor::parse(&bytes), expected);
}

#[test]
fn identifiers_differ_by_seed_and_stay_with_it() {
    let a = NamespaceIds::from_seed([1; 16]);
    let b = NamespaceIds::from_seed([2; 16]);
    assert_eq!(a, NamespaceIds::from_seed([1; 16]));
    assert_ne!(a.eui64, b.eui64);
    assert_ne!(a.eui64, [0; 8]);
    assert_eq!(a.eui64[0] & 0b11, 0b10, "locally administered, not a group");
}

#[test]
fn the_command_set_structures_are_those_of_nvm_only() {
    let mut fixture = Fixture::new();
    let admin = fixture.host();
    let bytes = fixture.data(&admin, &identify(0, 6));
    let id = IdentifyNvmController::read_from_bytes(&bytes).expect("4096 bytes");
    assert_eq!(id.verify_max_shift, Limits::default().mdts);
    assert_eq!(id.write_zeroes_max_shift, Limits::WRITE_ZEROES_MAX_SHIFT);
    assert_eq!(fixture.data(&admin, &identify(1, 5)), [0; 4096]);
    let sets = fixture.data(&admin, &identify(0, 0x1C));
    assert_eq!(u64_at(&sets, 0), 1);
    let mut zoned = identify(1, 5);
    zoned.cdw11 = U32::new(2 << 24);
    assert_eq!(fixture.error(&admin, &zoned), StatusCode::InvalidField);
}

#[test]
fn the_independent_structure_says_ready() {
    let mut fixture = Fixture::new();
    let admin = fixture.host();
    let bytes = fixture.data(&admin, &identify(1, 8));
    let id = IdentifyIndependentNamespace::read_from_bytes(&bytes).expect("4096 bytes");
    assert_eq!((id.status, id.ana_group.get()), (1, 1));
    let bytes = fixture.data(&admin, &identify(2, 8));
    let id = IdentifyIndependentNamespace::read_from_bytes(&bytes).expect("4096 bytes");
    assert_eq!(id.ana_group.get(), 2);
}

#[test]
fn the_independent_structure_says_that_an_offline_volume_is_not_ready() {
    let mut fixture = Fixture::new();
    let admin = fixture.host();
    for (failure, expected) in [(Some(block::Status::NotReady), 0), (None, 1)] {
        fixture.volumes[0].set_failure(failure);
        let bytes = fixture.data(&admin, &identify(1, 8));
        let id = IdentifyIndependentNamespace::read_from_bytes(&bytes).expect("4096 bytes");
        assert_eq!(id.status, expected);
    }
    let told = crate::wire::Status::from(block::Status::NotReady);
    assert_eq!(told, StatusCode::NamespaceNotReady.into());
}

#[test]
fn controller_lists_begin_with_the_identifier_given() {
    let mut fixture = Fixture::new();
    let first = fixture.host();
    let second = fixture.host();
    let ids = [first.controller.0, second.controller.0];
    for cns in [0x12, 0x13] {
        let list = fixture.data(&first, &identify(1, cns));
        assert_eq!(
            [u16_at(&list, 0), u16_at(&list, 2), u16_at(&list, 4)],
            [2, ids[0], ids[1]]
        );
        let mut later = identify(1, cns);
        later.cdw10 = U32::new(u32::from(ids[1]) << 16 | u32::from(cns));
        let list = fixture.data(&first, &later);
        assert_eq!([u16_at(&list, 0), u16_at(&list, 2)], [1, ids[1]]);
    }
}

#[test]
fn structures_that_need_what_is_not_supported_are_refused() {
    let mut fixture = Fixture::new();
    let admin = fixture.host();
    for cns in [0x04, 0x09, 0x14, 0x15, 0x16, 0x17, 0x18, 0x19, 0x20, 0xFF] {
        let status = fixture.error(&admin, &identify(1, cns));
        assert_eq!(status, StatusCode::InvalidField, "{cns:#x}");
    }
}

#[test]
fn data_must_have_room() {
    let mut fixture = Fixture::new();
    let admin = fixture.host();
    let mut command = identify(0, 1);
    command.sgl1 = Sgl::transport(4092);
    assert_eq!(
        fixture.error(&admin, &command),
        StatusCode::DataSglLengthInvalid
    );
}

#[test]
fn a_volatile_write_cache_is_told_to_hosts_that_connect_after_it() {
    let mut fixture = Fixture::new();
    let before = fixture.host();
    fixture.volumes[1].set_volatile_cache();
    let after = fixture.host();
    for (admin, cache) in [(&before, 0b110), (&after, 0b101)] {
        let bytes = fixture.data(admin, &identify(0, 1));
        let id = IdentifyController::read_from_bytes(&bytes).expect("4096 bytes");
        assert_eq!(id.volatile_write_cache, cache);
    }
    for (nsid, not_present) in [(1, 1 << 5), (2, 0)] {
        let bytes = fixture.data(&after, &identify(nsid, 8));
        let id = IdentifyIndependentNamespace::read_from_bytes(&bytes).expect("4096 bytes");
        assert_eq!(id.features & 1 << 5, not_present, "namespace {nsid}");
    }
}
