use std::net::Ipv6Addr;

use block::HostIdentity;
use zerocopy::FromBytes;

use super::*;
use crate::wire::discovery::{
    DISCOVERY_NQN, DiscoveryEntry, DiscoveryHeader, RdmaProvider, SubsystemType, TransportType,
};
use crate::wire::fabrics::NqnField;
use crate::wire::log::lid;

/// Admits hosts of one name.
struct Only(&'static str);

impl HostFilter for Only {
    fn admits(&self, host: HostIdentity<'_>) -> bool {
        host.name == Some(self.0)
    }
}

fn record(kind: SubsystemType, name: &str, address: IpAddr) -> DiscoveryRecord {
    DiscoveryRecord {
        kind,
        subsystem_nqn: NqnField::new(name).expect("fits"),
        transport: TransportType::Tcp,
        rdma_provider: RdmaProvider::NotSpecified,
        address,
        service_port: 4420,
        portal: PortalNumber(1),
        secure_channel: SecureChannel::NotSpecified,
        admin_queue_depth_max: 128,
        visible_to: None,
    }
}

fn nvm(name: &str) -> DiscoveryRecord {
    record(
        SubsystemType::Nvm,
        name,
        IpAddr::V4(Ipv4Addr::new(192, 0, 2, 9)),
    )
}

fn read(fixture: &mut Fixture, admin: &Connection) -> (DiscoveryHeader, Vec<DiscoveryEntry>) {
    let bytes = fixture.log(admin, lid::DISCOVERY, 1024);
    let header = DiscoveryHeader::read_from_bytes(&bytes).expect("1024 bytes");
    let records = header.records.get();
    let entries = (1..=records).map(|at| {
        let sqe = log_sqe(lid::DISCOVERY, at * 1024, 1024, RetainEvent::Clear);
        DiscoveryEntry::read_from_bytes(&fixture.data(admin, &sqe)).expect("1024 bytes")
    });
    (header, entries.collect())
}

fn names(entries: &[DiscoveryEntry]) -> Vec<&str> {
    entries
        .iter()
        .filter_map(|entry| entry.subsystem_nqn.name())
        .collect()
}

#[test]
fn records_tell_where_subsystems_are() {
    let mut fixture = Fixture::discovery();
    let admin = fixture.host();
    fixture.subsystem.set_discovery_records(vec![
        record(
            SubsystemType::Current,
            DISCOVERY_NQN,
            IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        ),
        nvm("nvmet-rd0"),
        record(
            SubsystemType::Referral,
            DISCOVERY_NQN,
            IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)),
        ),
    ]);
    let (header, entries) = read(&mut fixture, &admin);
    assert_eq!(
        (header.generation.get(), header.record_format.get()),
        (1, 0)
    );
    assert_eq!(names(&entries), [DISCOVERY_NQN, "nvmet-rd0", DISCOVERY_NQN]);
    let [current, rd0, referral] = &entries[..] else {
        panic!("three records");
    };
    assert_eq!(
        current.address(),
        Some("192.0.2.1"),
        "where the host itself came to"
    );
    assert_eq!((current.subsystem_type, current.flags.get()), (3, 0b10));
    assert_eq!(
        (rd0.transport, rd0.address_family, rd0.subsystem_type),
        (3, 1, 2)
    );
    assert_eq!(
        (rd0.address(), rd0.service()),
        (Some("192.0.2.9"), Some("4420"))
    );
    assert_eq!((rd0.controller.get(), rd0.port.get()), (0xFFFF, 1));
    assert_eq!(rd0.admin_sq_entries_max.get(), 128);
    assert_eq!(
        (referral.address(), referral.address_family),
        (Some("2001:db8::1"), 2)
    );
    assert_eq!(referral.subsystem_type, 1);
}

#[test]
fn the_log_may_be_read_in_any_pieces() {
    let mut fixture = Fixture::discovery();
    let admin = fixture.host();
    fixture
        .subsystem
        .set_discovery_records(["a", "b", "c"].map(nvm).to_vec());
    let whole = fixture.log(&admin, lid::DISCOVERY, 4096);
    assert_eq!(u64_at(&whole, 8), 3);
    for piece in [4_u64, 16, 1000, 1024, 1500, 4096] {
        let mut gathered = Vec::new();
        while (gathered.len() as u64) < 4096 {
            let offset = gathered.len() as u64;
            let sqe = log_sqe(lid::DISCOVERY, offset, piece, RetainEvent::Clear);
            gathered.extend(fixture.data(&admin, &sqe));
        }
        assert_eq!(gathered[..4096], whole, "in pieces of {piece} bytes");
    }
    let beyond = log_sqe(lid::DISCOVERY, 4100, 4, RetainEvent::Clear);
    assert_eq!(fixture.error(&admin, &beyond), StatusCode::InvalidField);
}

#[test]
fn records_over_rdma_say_what_carries_it() {
    let mut fixture = Fixture::discovery();
    let admin = fixture.host();
    let providers = [
        (RdmaProvider::NotSpecified, 1),
        (RdmaProvider::InfiniBand, 2),
        (RdmaProvider::RoceV2, 4),
    ];
    let mut generations = Vec::new();
    for (rdma_provider, prtype) in providers {
        let over_rdma = DiscoveryRecord {
            transport: TransportType::Rdma,
            rdma_provider,
            ..nvm("a")
        };
        fixture
            .subsystem
            .set_discovery_records(vec![over_rdma, nvm("b")]);
        let (header, entries) = read(&mut fixture, &admin);
        generations.push(header.generation.get());
        let specific = |at: usize| &entries[at].transport_specific;
        assert_eq!(specific(0)[..4], [1, prtype, 1, 0]);
        assert_eq!(specific(1), &[0; 256], "no security over TCP");
    }
    assert!(generations.is_sorted_by(|a, b| a < b), "{generations:?}");
}

#[test]
fn records_over_tcp_say_whether_tls_is_used() {
    let mut fixture = Fixture::discovery();
    let admin = fixture.host();
    let channels = [
        (SecureChannel::NotSpecified, 0b100, 0),
        (SecureChannel::Allowed, 0b110, 2),
        (SecureChannel::Required, 0b101, 2),
    ];
    let mut generations = Vec::new();
    for (secure_channel, requirements, security) in channels {
        let record = DiscoveryRecord {
            secure_channel,
            ..nvm("a")
        };
        fixture.subsystem.set_discovery_records(vec![record]);
        let (header, entries) = read(&mut fixture, &admin);
        generations.push(header.generation.get());
        assert_eq!(entries[0].requirements, requirements);
        assert_eq!(entries[0].transport_specific[..2], [security, 0]);
    }
    assert!(generations.is_sorted_by(|a, b| a < b), "{generations:?}");
}

#[test]
fn hosts_see_what_they_may_use() {
    let mut fixture = Fixture::discovery();
    let admin = fixture.host();
    let other = fixture.host_with(|request| "other".clone_into(&mut request.host.nqn));
    let hidden = DiscoveryRecord {
        visible_to: Some(Arc::new(Only(HOST))),
        ..nvm("hidden")
    };
    fixture
        .subsystem
        .set_discovery_records(vec![hidden, nvm("open")]);
    assert_eq!(names(&read(&mut fixture, &admin).1), ["hidden", "open"]);
    assert_eq!(names(&read(&mut fixture, &other).1), ["open"]);
}

#[test]
fn loopback_portals_are_shown_to_hosts_that_came_by_loopback() {
    let mut fixture = Fixture::discovery();
    let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let remote = fixture.host();
    let local = fixture.host_with(|request| request.origin.local = loopback);
    let inside = record(SubsystemType::Nvm, "inside", loopback);
    fixture
        .subsystem
        .set_discovery_records(vec![inside, nvm("outside")]);
    assert_eq!(names(&read(&mut fixture, &remote).1), ["outside"]);
    assert_eq!(names(&read(&mut fixture, &local).1), ["inside", "outside"]);
}

#[test]
fn the_generation_changes_with_the_records_and_hosts_are_notified() {
    const LOG_CHANGED: u64 = 0x0070_F002;
    let mut fixture = Fixture::discovery();
    let admin = fixture.host();
    fixture.request_events(&admin, 4);
    fixture.wakes();
    let generation = |fixture: &mut Fixture| read(fixture, &admin).0.generation.get();
    let before = generation(&mut fixture);
    fixture.subsystem.set_discovery_records(vec![nvm("a")]);
    assert_eq!(fixture.wakes(), [admin.wake.0]);
    assert_eq!(fixture.events(&admin), [LOG_CHANGED]);
    fixture.subsystem.set_discovery_records(vec![nvm("a")]);
    assert_eq!(
        generation(&mut fixture),
        before + 1,
        "the same records are no change"
    );
    assert_eq!(fixture.events(&admin), []);
    let filtered = DiscoveryRecord {
        visible_to: Some(Arc::new(Only(HOST))),
        ..nvm("a")
    };
    fixture.subsystem.set_discovery_records(vec![filtered]);
    assert_eq!(fixture.events(&admin), [], "this host sees the same");
    assert_eq!(generation(&mut fixture), before + 1);
}

#[test]
fn a_change_that_a_host_does_not_see_is_none_to_it() {
    let mut fixture = Fixture::discovery();
    fixture.subsystem.set_discovery_records(vec![nvm("a")]);
    let admin = fixture.host();
    let other = fixture
        .host_with(|request| "nqn.2014-08.org.example:other".clone_into(&mut request.host.nqn));
    fixture.request_events(&admin, 4);
    fixture.request_events(&other, 4);
    fixture.wakes();
    let generation =
        |fixture: &mut Fixture, host: &Connection| read(fixture, host).0.generation.get();
    let before = [
        generation(&mut fixture, &admin),
        generation(&mut fixture, &other),
    ];
    let hidden = DiscoveryRecord {
        visible_to: Some(Arc::new(Only(HOST))),
        ..nvm("b")
    };
    fixture
        .subsystem
        .set_discovery_records(vec![nvm("a"), hidden]);
    assert_eq!(fixture.wakes(), [admin.wake.0]);
    assert!(generation(&mut fixture, &admin) > before[0]);
    assert_eq!(generation(&mut fixture, &other), before[1]);
    // A host that connects later never sees a number that another log had.
    let late = fixture.host();
    assert_eq!(
        generation(&mut fixture, &late),
        generation(&mut fixture, &admin)
    );
}

#[test]
fn subsystems_with_namespaces_have_no_records() {
    let mut fixture = Fixture::new();
    let admin = fixture.host();
    fixture.subsystem.set_discovery_records(vec![nvm("a")]);
    let sqe = log_sqe(lid::DISCOVERY, 0, 1024, RetainEvent::Clear);
    assert_eq!(fixture.error(&admin, &sqe), StatusCode::InvalidLogPage);
}
