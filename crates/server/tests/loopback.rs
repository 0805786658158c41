//! The server over loopback, reached by our own hosts.

mod fixture;
mod snapshots;
mod tap;

use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use block::testing::{LateVolume, Lateness, Turn};
use block::{Access, BlockSize, Blocks, ByteRange, Extent, Lba, OpKind, Unmap};
use initiator::{
    Backoff, CommandError, Device, DeviceOptions, OnLoss, Operation, Queue, RecordKind, Request,
    Slot, Url, WaitStrategy, discover,
};
use nvme::wire::StatusCode;
use server::{
    AllowedHost, ByteSize, Force, HostDefinition, HostName, HostPolicy, NamespaceDefinition,
    PortalDefinition, Server, ServerConfig, ServerError, TargetDefinition, TargetName, ToldBy,
    Transport, VolumeIdentity, VolumeName, VolumeSpec, WriteLock,
};
use tap::Tap;
use uuid::Uuid;
use volume::Managed;
use volume::filters::{Delay, FilterSpec, Latency};

const MIB: u64 = 1 << 20;
const PATIENCE: Duration = Duration::from_secs(20);
const NQN: &str = "nqn.2025-01.io.ramport:test";

struct Fixture {
    server: Server,
    portal: PortalDefinition,
    _turn: Turn,
}

impl Fixture {
    /// A server with one volume of 64 MiB, a target and a portal on loopback.
    fn new(budget_bytes: u64) -> Self {
        let turn = Turn::shared();
        let spec = VolumeSpec::thin(ByteSize(64 * MIB));
        let server = fixture::start(fixture::config(2, budget_bytes), "rd0", &spec);
        fixture::offer(&server, NQN, "rd0", HostPolicy::Local);
        Self {
            portal: server.add_portal(loopback()).expect("a free port"),
            server,
            _turn: turn,
        }
    }

    fn create_volume(&self, name: &str, len_bytes: u64) -> Result<(), ServerError> {
        let spec = VolumeSpec::thin(ByteSize(len_bytes));
        self.server.create_volume(volume(name), &spec, &mut |_| {})
    }

    fn url(&self, query: &str) -> Url {
        format!("{}/{NQN}?{query}", self.portal)
            .parse()
            .expect("a URL")
    }

    fn attach(&self, query: &str) -> (Device, Queue) {
        let mut device = Device::connect(&self.url(query), &options()).expect("attaches");
        let queue = device.take_queues().remove(0);
        (device, queue)
    }

    /// From now on this host alone may use the target.
    fn allow(&self, host: &str, access: Access) {
        let host: HostName = host.parse().expect("a name");
        let definition = HostDefinition {
            name: host.clone(),
            told_by: ToldBy::Name,
            addresses: Vec::new(),
            chap: None,
            dhchap: None,
            tls: None,
        };
        match self.server.create_host(definition) {
            Ok(()) | Err(ServerError::HostExists(_)) => {}
            Err(error) => panic!("{error}"),
        }
        let listed = HostPolicy::Listed(vec![AllowedHost {
            host,
            access,
            luns: None,
        }]);
        self.server
            .set_target_hosts(&target(), listed)
            .expect("a list");
    }

    fn wait_sessions(&self, count: usize) {
        wait_until(|| self.server.sessions().len() == count);
    }
}

/// A reactor is preempted in a write of a host that shuts its controller down. The shutdown is
/// complete when that write is over, so the host may rely on what it writes through another.
#[test]
fn a_shutdown_is_complete_when_a_write_that_has_begun_is_over() {
    let moment = Duration::from_millis(200);
    let fixture = Fixture::new(256 * MIB);
    let stopping = Arc::new(Managed::new(LateVolume::new(BlockSize::B512, 2048)));
    stopping.volume().set_lateness(Lateness::Never);
    let added = fixture.server.add_volume(volume("slow"), stopping.clone());
    added.expect("a new name");
    let attached = fixture
        .server
        .attach_volume(&target(), &volume("slow"), Some(2));
    attached.expect("a free number");
    // The admin queue is on the reactor of the portal, the I/O queue on the other.
    let (device, mut queue) = fixture.attach("ns=2");
    stopping.volume().stop_next_write();
    queue.buffer_mut(Slot(0))[..512].fill(7);
    let request = Request {
        slot: Slot(0),
        operation: Operation::Write,
        extent: Extent::new(Lba(0), Blocks(1)),
    };
    queue.submit(request).expect("the slot is free");
    queue.poll(Instant::now(), &mut Vec::new()).expect("sent");
    wait_until(|| stopping.volume().is_stopped());
    let leaving = std::thread::spawn(move || drop((queue, device)));
    std::thread::sleep(moment);
    assert!(!leaving.is_finished() && stopping.volume().is_stopped());
    stopping.volume().go_on();
    leaving.join().expect("no panic");
    let (_device, mut queue) = fixture.attach("ns=2");
    queue.buffer_mut(Slot(0))[..512].fill(8);
    run(&mut queue, Operation::Write, 0, 1).expect("write");
    let first = stopping
        .volume()
        .disk()
        .bytes(ByteRange { offset: 0, len: 1 });
    assert_eq!(first, [8]);
}

fn volume(name: &str) -> VolumeName {
    name.parse().expect("a name")
}

fn target() -> TargetName {
    NQN.parse().expect("a name")
}

fn loopback() -> PortalDefinition {
    fixture::portal(Transport::NvmeTcp, ([127, 0, 0, 1], 0))
}

fn options() -> DeviceOptions {
    DeviceOptions {
        depth: 32,
        buffer_bytes: MIB as usize,
        on_loss: OnLoss::Fail,
        backoff: Backoff {
            first: Duration::from_millis(1),
            max: Duration::from_millis(20),
            give_up_after: Duration::from_secs(5),
            ..Backoff::default()
        },
        ..DeviceOptions::default()
    }
}

fn wait_until(mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < until, "it did not come to be so");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Submits one command and waits for it.
fn run(queue: &mut Queue, operation: Operation, lba: u64, blocks: u64) -> Result<(), CommandError> {
    let request = Request {
        slot: Slot(0),
        operation,
        extent: Extent::new(Lba(lba), Blocks(blocks)),
    };
    let mut done = Vec::new();
    queue.submit(request).expect("the slot is free");
    queue
        .wait(WaitStrategy::Sleep, PATIENCE, &mut done)
        .expect("the queue lives");
    assert_eq!(done.len(), 1, "one command, one completion");
    done[0].result
}

fn fill(queue: &mut Queue, seed: usize, len: usize) {
    for (at, byte) in queue.buffer_mut(Slot(0))[..len].iter_mut().enumerate() {
        *byte = (at * 7 + at / 512 + seed) as u8;
    }
}

fn check(queue: &Queue, seed: usize, len: usize) {
    let buffer = &queue.buffer(Slot(0))[..len];
    let wrong = (0..len).find(|&at| buffer[at] != (at * 7 + at / 512 + seed) as u8);
    assert_eq!(wrong, None, "the first wrong byte");
}

fn has_failed_with(result: Result<(), CommandError>, code: StatusCode) -> bool {
    matches!(result, Err(CommandError::Status(status)) if status.code() == Some(code))
}

#[test]
fn data_of_every_length_come_back_with_and_without_digests() {
    let fixture = Fixture::new(256 * MIB);
    for query in ["ns=1", "ns=1&hdgst=on&ddgst=on"] {
        let (_device, mut queue) = fixture.attach(query);
        for (seed, blocks) in [1_u64, 7, 8, 16, 17, 64, 256, 2048].into_iter().enumerate() {
            let len = blocks as usize * 512;
            fill(&mut queue, seed, len);
            run(&mut queue, Operation::Write, 100 + seed as u64, blocks).expect("written");
            queue.buffer_mut(Slot(0))[..len].fill(0);
            run(&mut queue, Operation::Read, 100 + seed as u64, blocks).expect("read");
            check(&queue, seed, len);
        }
    }
    let volume = fixture.server.volume(&volume("rd0")).expect("exists");
    let reads = volume.statistics.kind(OpKind::Read);
    assert_eq!((reads.operations, reads.errors), (16, 0));
    assert_eq!(
        reads.bytes,
        2 * 512 * (1 + 7 + 8 + 16 + 17 + 64 + 256 + 2048)
    );
    assert_eq!(reads.latency.count(), 16);
}

#[test]
fn counters_outlive_their_session() {
    let fixture = Fixture::new(256 * MIB);
    let (device, mut queue) = fixture.attach("ns=1");
    run(&mut queue, Operation::Write, 0, 8).expect("written");
    let beyond = run(&mut queue, Operation::Read, 1 << 40, 8);
    assert!(has_failed_with(beyond, StatusCode::LbaOutOfRange));
    let sessions = fixture.server.sessions();
    assert_eq!(sessions.len(), 1);
    assert_eq!(sessions[0].connections, 2);
    assert_eq!(sessions[0].target, Some(target()));
    let threads = fixture.server.threads();
    let connections: usize = threads.iter().map(|thread| thread.connections).sum();
    assert_eq!(connections, 2);
    wait_until(|| {
        let session = &fixture.server.sessions()[0];
        let reads = session.statistics.kind(OpKind::Read);
        (reads.operations, reads.errors) == (1, 1)
    });
    drop((queue, device));
    fixture.wait_sessions(0);
    let of_target = fixture.server.target(&target()).expect("exists").statistics;
    let of_volume = fixture
        .server
        .volume(&volume("rd0"))
        .expect("exists")
        .statistics;
    assert_eq!(of_target, of_volume);
    assert_eq!(fixture.server.portals()[0].statistics, of_volume);
    let threads = fixture.server.threads();
    let names: Vec<_> = threads.iter().map(|thread| thread.name.as_str()).collect();
    assert_eq!(names, ["reactor-0", "reactor-1"]);
    let operations: u64 = (threads.iter())
        .map(|thread| thread.statistics.total().operations)
        .sum();
    assert_eq!(operations, of_volume.total().operations);
    assert!(threads.iter().all(|thread| thread.connections == 0));
    assert!(threads.iter().any(|thread| !thread.cpu_time.is_zero()));
    assert_eq!(of_target.kind(OpKind::Write).bytes, 4096);
    let budget = fixture.server.capacity();
    let left = 2 * MIB + budget.volume_bytes;
    assert_eq!(budget.used_bytes, left, "only the volume is left");
}

#[test]
fn a_volume_grows_shrinks_locks_and_erases_under_a_session() {
    let fixture = Fixture::new(256 * MIB);
    let (_device, mut queue) = fixture.attach("ns=1");
    let (rd0, server) = (volume("rd0"), &fixture.server);
    fill(&mut queue, 3, 4096);
    run(&mut queue, Operation::Write, 0, 8).expect("written");
    let beyond = 64 * MIB / 512;
    let refused = run(&mut queue, Operation::Write, beyond, 8);
    assert!(has_failed_with(refused, StatusCode::LbaOutOfRange));
    server
        .resize_volume(&rd0, 128 * MIB, Force::No, &mut |_| {})
        .expect("grows");
    run(&mut queue, Operation::Write, beyond, 8).expect("written where it grew");
    let shrink = server.resize_volume(&rd0, 64 * MIB, Force::No, &mut |_| {});
    assert!(matches!(shrink, Err(ServerError::ShrinkLosesData { .. })));
    server
        .resize_volume(&rd0, 64 * MIB, Force::Yes, &mut |_| {})
        .expect("shrinks");
    let refused = run(&mut queue, Operation::Read, beyond, 8);
    assert!(has_failed_with(refused, StatusCode::LbaOutOfRange));
    server
        .set_volume_lock(&rd0, WriteLock::ReadOnly)
        .expect("locks");
    let refused = run(&mut queue, Operation::Write, 0, 8);
    assert!(has_failed_with(
        refused,
        StatusCode::NamespaceWriteProtected
    ));
    run(&mut queue, Operation::Read, 0, 8).expect("read");
    check(&queue, 3, 4096);
    server
        .set_volume_lock(&rd0, WriteLock::Writable)
        .expect("unlocks");
    server.erase_volume(&rd0).expect("erases");
    run(&mut queue, Operation::Read, 0, 8).expect("read");
    assert!(queue.buffer(Slot(0))[..4096].iter().all(|&byte| byte == 0));
}

#[test]
fn a_full_budget_fails_that_write_alone() {
    let fixture = Fixture::new(8 * MIB);
    let (_device, mut queue) = fixture.attach("ns=1");
    let mut written = 0;
    let refused = loop {
        let lba = written * 2 * MIB / 512;
        match run(&mut queue, Operation::Write, lba, 8) {
            Ok(()) => written += 1,
            refused => break refused,
        }
        assert!(written < 5, "the budget has no bound");
    };
    assert!(has_failed_with(refused, StatusCode::CapacityExceeded));
    run(&mut queue, Operation::Read, 0, 8).expect("reads go on");
    run(&mut queue, Operation::Write, 0, 8).expect("writes to what is there, too");
    let used = fixture.server.capacity().used_bytes;
    fixture.server.erase_volume(&volume("rd0")).expect("erases");
    assert!(fixture.server.capacity().used_bytes < used);
}

#[test]
fn removing_a_volume_needs_force_and_ends_its_namespace() {
    let fixture = Fixture::new(256 * MIB);
    let (_device, mut queue) = fixture.attach("ns=1");
    run(&mut queue, Operation::Write, 0, 8).expect("written");
    let (rd0, server) = (volume("rd0"), &fixture.server);
    let refused = server.remove_volume(&rd0, Force::No);
    assert!(matches!(
        refused,
        Err(ServerError::VolumeInUse { sessions: 1, .. })
    ));
    server.remove_volume(&rd0, Force::Yes).expect("removed");
    let gone = run(&mut queue, Operation::Read, 0, 8);
    assert!(
        has_failed_with(gone, StatusCode::InvalidNamespaceOrFormat),
        "{gone:?}"
    );
    assert!(
        server
            .target(&target())
            .expect("exists")
            .definition
            .namespaces
            .is_empty()
    );
    fixture
        .create_volume("rd0", 8 * MIB)
        .expect("the name is free");
    assert_eq!(
        server
            .attach_volume(&target(), &rd0, None)
            .expect("attached"),
        1
    );
    run(&mut queue, Operation::Read, 0, 8).expect("the new one");
    assert!(queue.buffer(Slot(0))[..4096].iter().all(|&byte| byte == 0));
}

#[test]
fn a_host_that_is_taken_off_the_list_loses_its_session() {
    let fixture = Fixture::new(256 * MIB);
    let server = &fixture.server;
    for name in ["nqn.2025-01.io.ramport:a", "nqn.2025-01.io.ramport:b"] {
        let definition = HostDefinition {
            name: name.parse().expect("a name"),
            told_by: ToldBy::Name,
            addresses: Vec::new(),
            chap: None,
            dhchap: None,
            tls: None,
        };
        server.create_host(definition).expect("a host");
    }
    let list = |names: &[(&str, Access)]| {
        let allowed = names.iter().map(|&(name, access)| AllowedHost {
            host: name.parse().expect("a name"),
            access,
            luns: None,
        });
        HostPolicy::Listed(allowed.collect())
    };
    let (a, b) = ("nqn.2025-01.io.ramport:a", "nqn.2025-01.io.ramport:b");
    let both = list(&[(a, Access::ReadWrite), (b, Access::ReadOnly)]);
    server.set_target_hosts(&target(), both).expect("a list");
    let (_device_a, mut queue_a) = fixture.attach(&format!("ns=1&hostnqn={a}"));
    let (_device_b, mut queue_b) = fixture.attach(&format!("ns=1&hostnqn={b}"));
    run(&mut queue_a, Operation::Write, 0, 8).expect("may write");
    run(&mut queue_b, Operation::Read, 0, 8).expect("may read");
    let refused = run(&mut queue_b, Operation::Write, 0, 8);
    assert!(has_failed_with(refused, StatusCode::AccessDenied));
    let stranger = fixture.url("ns=1&hostnqn=nqn.2025-01.io.ramport:c");
    let refused = Device::connect(&stranger, &options()).expect_err("not listed");
    assert!(
        refused.to_string().contains("does not admit this host"),
        "{refused}"
    );
    let only_b = list(&[(b, Access::ReadOnly)]);
    server.set_target_hosts(&target(), only_b).expect("a list");
    wait_until(|| run_lost(&mut queue_a));
    run(&mut queue_b, Operation::Read, 0, 8).expect("goes on");
    wait_until(|| server.sessions().iter().all(|s| s.host.as_str() == b));
    let refused = server.remove_host(&b.parse().expect("a name"));
    assert!(matches!(refused, Err(ServerError::HostInUse { .. })));
    server
        .remove_host(&a.parse().expect("a name"))
        .expect("unused");
}

/// Whether a read fails since the connection was lost.
fn run_lost(queue: &mut Queue) -> bool {
    let request = Request {
        slot: Slot(0),
        operation: Operation::Read,
        extent: Extent::new(Lba(0), Blocks(8)),
    };
    let mut done = Vec::new();
    if queue.submit(request).is_err() {
        return true;
    }
    let waited = queue.wait(WaitStrategy::Sleep, PATIENCE, &mut done);
    waited.is_err() || done.iter().any(|completion| completion.result.is_err())
}

#[test]
fn ending_a_session_lets_its_host_come_again() {
    let fixture = Fixture::new(256 * MIB);
    let (_device, mut queue) = fixture.attach("ns=1");
    run(&mut queue, Operation::Write, 0, 8).expect("written");
    let first = fixture.server.sessions()[0].id;
    fixture.server.end_session(first).expect("ended");
    wait_until(|| fixture.server.sessions().iter().any(|s| s.id != first));
    wait_until(|| !run_lost(&mut queue));
    let twice = fixture.server.end_session(first);
    assert!(matches!(twice, Err(ServerError::UnknownSession(_))));
}

#[test]
fn discovery_tells_the_targets_that_a_host_may_see() {
    let fixture = Fixture::new(256 * MIB);
    let hidden: TargetName = "nqn.2025-01.io.ramport:hidden".parse().expect("a name");
    let definition = TargetDefinition {
        name: hidden,
        logins: server::LoginPolicy::default(),
        hosts: HostPolicy::Listed(Vec::new()),
        namespaces: Vec::new(),
    };
    fixture.server.create_target(definition).expect("a target");
    let url: Url = fixture.portal.to_string().parse().expect("a URL");
    let records = discover(&url, PATIENCE).expect("discovered");
    let names: Vec<_> = records
        .iter()
        .filter(|record| record.kind == RecordKind::Nvm)
        .map(|record| record.subsystem_nqn.clone())
        .collect();
    assert_eq!(names, [NQN]);
}

#[test]
fn a_portal_for_other_machines_needs_a_host_list() {
    let fixture = Fixture::new(256 * MIB);
    let outside = fixture::portal(Transport::NvmeTcp, ([0, 0, 0, 0], 0));
    let refused = fixture.server.add_portal(outside);
    let refused = refused.expect_err("refused").to_string();
    assert!(refused.contains("--allow-any-host"), "{refused}");
    let any = HostPolicy::Any(Access::ReadWrite);
    fixture
        .server
        .set_target_hosts(&target(), any)
        .expect("said so");
    let opened = fixture.server.add_portal(outside).expect("opened");
    assert_ne!(opened.address.port(), 0);
    let local = fixture
        .server
        .set_target_hosts(&target(), HostPolicy::Local);
    assert!(matches!(local, Err(ServerError::OpenToNetwork { .. })));
    fixture.server.remove_portal(opened).expect("closed");
    wait_until(|| TcpStream::connect(("127.0.0.1", opened.address.port())).is_err());
}

/// The identifier and the serial number that our host reads of the first volume of a target.
fn disk_at(portal: &PortalDefinition, target: &str) -> (String, String) {
    let unit = match portal.transport {
        Transport::Iscsi => "/0",
        _ => "",
    };
    let url = format!("{portal}/{target}{unit}").parse().expect("a URL");
    let device = Device::connect(&url, &options()).expect("attaches");
    let bytes = device.info().identifier.iter();
    let digits: Vec<_> = bytes.map(|byte| format!("{byte:02x}")).collect();
    (digits.concat(), device.info().serial.clone())
}

/// The identifiers that hosts see of a volume with `identity` in two NVMe targets and an iSCSI
/// target.
fn disks_of(
    fixture: &Fixture,
    iscsi: &PortalDefinition,
    identity: VolumeIdentity,
) -> Vec<(String, String)> {
    let name = volume("own");
    let spec = VolumeSpec::thin(ByteSize(4 * MIB));
    let created = (fixture.server).create_volume_as(name.clone(), identity, &spec, &mut |_| {});
    created.expect("a volume");
    let targets = [
        ("nqn.2025-01.io.ramport:a", &fixture.portal),
        ("nqn.2025-01.io.ramport:b", &fixture.portal),
        ("iqn.2025-01.io.ramport:c", iscsi),
    ];
    let disks = targets.map(|(target, portal)| {
        let created = fixture.server.create_target(TargetDefinition {
            name: target.parse().expect("a name"),
            logins: server::LoginPolicy::default(),
            hosts: HostPolicy::Local,
            namespaces: vec![NamespaceDefinition {
                nsid: u32::from(portal.transport == Transport::NvmeTcp),
                volume: name.clone(),
            }],
        });
        created.expect("a target");
        let disk = disk_at(portal, target);
        let target = target.parse().expect("a name");
        fixture
            .server
            .remove_target(&target, Force::Yes)
            .expect("it is there");
        disk
    });
    fixture
        .server
        .remove_volume(&name, Force::Yes)
        .expect("it is there");
    disks.into()
}

#[test]
fn hosts_of_both_protocols_see_the_identifiers_that_are_set() {
    const UUID: &str = "6ba7b810-9dad-41d1-80b4-00c04fd430c8";
    const NGUID: &str = "0123456789abcdef0123456789abcdef";
    const NAA: &str = "60014050000000000000000000000001";
    let fixture = Fixture::new(256 * MIB);
    let iscsi = fixture.server.add_portal(PortalDefinition {
        transport: Transport::Iscsi,
        ..loopback()
    });
    let iscsi = iscsi.expect("a free port");
    let from_uuid = VolumeIdentity {
        uuid: Some(UUID.parse().expect("a UUID")),
        ..VolumeIdentity::default()
    };
    let digits = UUID.replace('-', "");
    let disks = disks_of(&fixture, &iscsi, from_uuid.clone());
    // All that is not set is derived from the UUID.
    assert_eq!([&disks[0].0, &disks[1].0], [&digits; 2]);
    assert_eq!(disks[2], (format!("3{}", &digits[1..16]), digits));
    let all = VolumeIdentity {
        nguid: Some(NGUID.parse().expect("an NGUID")),
        naa: Some(NAA.parse().expect("an NAA designator")),
        serial: Some("S-1".parse().expect("a serial number")),
        ..from_uuid
    };
    let disks = disks_of(&fixture, &iscsi, all);
    assert_eq!([&disks[0].0, &disks[1].0], [NGUID; 2]);
    assert_eq!(disks[2], (NAA.to_owned(), "S-1".to_owned()));
}

/// Targets of one name are one subsystem to hosts, on whichever machines they are; local volumes of
/// two machines are two disks all the same.
#[test]
fn the_serial_number_of_a_target_depends_on_its_name_alone() {
    const OTHER: &str = "nqn.2025-01.io.ramport:other";
    let _turn = Turn::shared();
    let [first, second] = [1, 2].map(|machine| {
        let config = ServerConfig {
            machine: Some(Uuid::from_u128(machine)),
            ..fixture::config(1, 256 * MIB)
        };
        let server = fixture::start(config, "rd0", &VolumeSpec::thin(ByteSize(4 * MIB)));
        let portal = server.add_portal(loopback()).expect("a free port");
        [NQN, OTHER].map(|target| {
            fixture::offer(&server, target, "rd0", HostPolicy::Local);
            disk_at(&portal, target)
        })
    });
    assert_eq!(first[0].1, second[0].1);
    assert_ne!(first[0].1, first[1].1);
    assert_ne!(first[0].0, second[0].0);
}

#[test]
fn stopping_answers_what_is_in_flight_and_closes() {
    let fixture = Fixture::new(256 * MIB);
    let (_device, mut queue) = fixture.attach("ns=1");
    run(&mut queue, Operation::Write, 0, 8).expect("written");
    let started = Instant::now();
    fixture.server.stop(PATIENCE);
    assert!(
        started.elapsed() < PATIENCE / 2,
        "idle sessions end at once"
    );
    assert!(run_lost(&mut queue));
    let created = fixture.create_volume("late", MIB);
    assert!(matches!(created, Err(ServerError::Stopping)));
}

#[test]
fn a_thousand_volumes_behind_one_target_are_served() {
    let fixture = Fixture::new(1024 * MIB);
    for number in 0..999 {
        let name = format!("v{number}");
        fixture.create_volume(&name, MIB).expect("a volume");
        fixture
            .server
            .attach_volume(&target(), &volume(&name), None)
            .expect("attached");
    }
    for nsid in [1, 2, 500, 1000] {
        let (_device, mut queue) = fixture.attach(&format!("ns={nsid}"));
        fill(&mut queue, nsid, 4096);
        run(&mut queue, Operation::Write, 0, 8).expect("written");
        run(&mut queue, Operation::Read, 0, 8).expect("read");
        check(&queue, nsid, 4096);
    }
    assert_eq!(fixture.server.volumes().len(), 1000);
}

#[test]
fn a_host_may_be_made_a_reader_and_a_writer_again_while_it_is_connected() {
    const HOST: &str = "nqn.2025-01.io.ramport:a";
    let fixture = Fixture::new(256 * MIB);
    fixture.allow(HOST, Access::ReadWrite);
    let (_device, mut queue) = fixture.attach(&format!("ns=1&hostnqn={HOST}"));
    fill(&mut queue, 5, 4096);
    run(&mut queue, Operation::Write, 0, 8).expect("may write");
    let session = fixture.server.sessions()[0].id;
    fixture.allow(HOST, Access::ReadOnly);
    let Err(CommandError::Status(refused)) = run(&mut queue, Operation::Write, 0, 8) else {
        panic!("it may not write any more");
    };
    assert_eq!(refused.code(), Some(StatusCode::AccessDenied));
    for changes in [
        Operation::Deallocate,
        Operation::WriteZeroes(Unmap::Allowed),
    ] {
        let refused = run(&mut queue, changes, 0, 8);
        assert!(has_failed_with(refused, StatusCode::AccessDenied));
    }
    run(&mut queue, Operation::Read, 0, 8).expect("may read");
    check(&queue, 5, 4096);
    fixture.allow(HOST, Access::ReadWrite);
    run(&mut queue, Operation::Write, 0, 8).expect("may write again");
    let sessions = fixture.server.sessions();
    assert_eq!(sessions.len(), 1);
    assert_eq!(sessions[0].id, session, "it stayed connected throughout");
}

#[test]
fn commands_held_back_go_with_their_connection() {
    let fixture = Fixture::new(256 * MIB);
    let before = fixture.server.capacity().used_bytes;
    let hour = Duration::from_secs(3600);
    let filters = FilterSpec {
        delay: Some(Delay {
            latency: Latency::same(hour),
            bytes_per_second: None,
        }),
        ..FilterSpec::default()
    };
    let set = fixture.server.set_volume_filters(&volume("rd0"), filters);
    set.expect("a volume");
    let (device, mut queue) = fixture.attach("ns=1");
    for slot in 0..queue.depth() {
        let request = Request {
            slot: Slot(slot),
            operation: Operation::Read,
            extent: Extent::new(Lba(0), Blocks(8)),
        };
        queue.submit(request).expect("the slot is free");
    }
    let mut done = Vec::new();
    queue
        .wait(WaitStrategy::Sleep, Duration::from_millis(50), &mut done)
        .expect("the queue lives");
    assert!(done.is_empty(), "all are held back");
    drop((queue, device));
    fixture.wait_sessions(0);
    wait_until(|| fixture.server.capacity().used_bytes == before);
}

#[test]
fn a_portal_that_was_closed_opens_again_at_once() {
    let fixture = Fixture::new(256 * MIB);
    for round in 0..100 {
        let attached = (round % 10 == 0).then(|| fixture.attach("ns=1"));
        fixture
            .server
            .remove_portal(fixture.portal)
            .expect("it is open");
        assert_eq!(fixture.server.sessions().len(), 0, "they ended with it");
        let opened = fixture.server.add_portal(fixture.portal);
        assert_eq!(opened.expect("the address is free"), fixture.portal);
        drop(attached);
    }
}

#[test]
fn a_host_that_lost_its_right_gets_nothing_of_what_was_placed_for_it() {
    const SLOW: &str = "nqn.2025-01.io.ramport:slow";
    const OTHER: &str = "nqn.2025-01.io.ramport:other";
    let fixture = Fixture::new(256 * MIB);
    let server = &fixture.server;
    fixture.allow(OTHER, Access::ReadWrite);
    let (device, mut writer) = fixture.attach(&format!("ns=1&hostnqn={OTHER}"));
    writer.buffer_mut(Slot(0)).fill(0xAA);
    run(&mut writer, Operation::Write, 0, 2048).expect("may write");
    drop((writer, device));
    // What its connections were charged has to be back before a charge can tell something.
    let volume_alone = 2 * MIB + server.capacity().volume_bytes;
    wait_until(|| server.capacity().used_bytes == volume_alone);
    fixture.allow(SLOW, Access::ReadWrite);
    let tap = Tap::start(fixture.portal.address);
    let url = format!("nvme+tcp://{}/{NQN}?ns=1&hostnqn={SLOW}", tap.address);
    let url = url.parse().expect("a URL");
    let mut slow = Device::connect(&url, &options()).expect("attaches");
    let mut reader = slow.take_queues().remove(0);
    let idle = server.capacity().used_bytes;
    tap.stall();
    for slot in 0..reader.depth() {
        let request = Request {
            slot: Slot(slot),
            operation: Operation::Read,
            extent: Extent::new(Lba(0), Blocks(2048)),
        };
        reader.submit(request).expect("the slot is free");
    }
    reader
        .poll(Instant::now(), &mut Vec::new())
        .expect("the queue lives");
    // What waits to be sent is charged, so this tells that the socket takes no more.
    wait_until(|| server.capacity().used_bytes > idle);
    fixture.allow(OTHER, Access::ReadWrite);
    let (_device, mut writer) = fixture.attach(&format!("ns=1&hostnqn={OTHER}"));
    writer.buffer_mut(Slot(0)).fill(Tap::LOOKED_FOR);
    run(&mut writer, Operation::Write, 0, 2048).expect("may write");
    tap.go_on();
    wait_until(|| server.sessions().len() == 1);
    wait_until(|| tap.has_ended());
    assert!(tap.passed_bytes() > 1 << 16, "it got what was sent before");
    assert!(!tap.has_seen(), "and nothing that was written after");
}
