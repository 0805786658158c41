//! The server over loopback, reached by hosts of BRP. Requirements are cited by their numbers in
//! docs/brp.md.

#[path = "../fixture/mod.rs"]
mod fixture;
mod raw;
mod rdma;
#[path = "../fixture/rdma_crowd.rs"]
mod rdma_crowd;
mod sessions;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use block::testing::{Turn, assert_not_delayed, timed};
use block::{Access, Blocks, Extent, Lba, OpKind, Unmap};
use brp::wire::{LoginStatus, Operation as WireOperation, Status, Violation};
use initiator::{
    Backoff, CommandError, Device, DeviceOptions, OnLoss, Operation, Queue, Request, Slot,
    WaitStrategy,
};
use raw::{Raw, command, login};
use server::{
    AllowedHost, ByteSize, DhChapDefinition, DhChapSecret, DhGroupPolicy, Force, HostDefinition,
    HostPolicy, PortalAuth, PortalDefinition, Server, ServerConfig, ServerError, SessionProtocol,
    TlsPolicy, ToldBy, Transport, VolumeSpec, WriteLock,
};
use zerocopy::IntoBytes;

const MIB: u64 = 1 << 20;
const PATIENCE: Duration = Duration::from_secs(20);
const NQN: &str = "nqn.2025-01.io.ramport:test";
const HOST: &str = "nqn.2014-08.org.example:host";

struct Fixture {
    server: Server,
    portal: PortalDefinition,
    _turn: Turn,
}

impl Fixture {
    /// A server with one volume of 64 MiB, a target and a portal over TCP on loopback.
    fn new() -> Self {
        Self::over(Transport::Brp)
    }

    fn over(transport: Transport) -> Self {
        Self::at(Turn::shared(), transport)
    }

    /// The same for a test that bounds a delay.
    fn alone(transport: Transport) -> Self {
        Self::at(Turn::alone(), transport)
    }

    fn at(turn: Turn, transport: Transport) -> Self {
        let spec = VolumeSpec::thin(ByteSize(64 * MIB));
        let config = ServerConfig {
            rdma_threads: Some(1),
            ..fixture::config(2, 256 * MIB)
        };
        let server = fixture::start(config, "rd0", &spec);
        fixture::offer(&server, NQN, "rd0", HostPolicy::Local);
        let address: SocketAddr = if transport.is_rdma() {
            (own_loopback(), 4424).into()
        } else {
            (Ipv4Addr::LOCALHOST, 0).into()
        };
        let portal = fixture::portal(transport, address);
        Self {
            portal: server.add_portal(portal).expect("a free port"),
            server,
            _turn: turn,
        }
    }

    fn address(&self) -> SocketAddr {
        self.portal.address
    }

    fn attach(&self, query: &str) -> (Device, Queue) {
        attach(&self.portal, query)
    }

    fn allow(&self, access: Access) {
        let allowed = AllowedHost {
            host: HOST.parse().expect("a name"),
            access,
            luns: None,
        };
        let set = self
            .server
            .set_target_hosts(&target(), HostPolicy::Listed(vec![allowed]));
        set.expect("a list");
    }

    fn define_host(&self, dhchap: Option<DhChapDefinition>) {
        let definition = HostDefinition {
            name: HOST.parse().expect("a name"),
            told_by: ToldBy::Name,
            addresses: Vec::new(),
            chap: None,
            dhchap: dhchap.map(Arc::new),
            tls: None,
        };
        match self.server.create_host(definition.clone()) {
            Ok(()) => {}
            Err(_) => self.server.change_host(definition).expect("it exists"),
        }
    }
}

/// An address of loopback that no other test has: RDMA has one UDP port.
fn own_loopback() -> Ipv4Addr {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    Ipv4Addr::new(127, 47, std::process::id() as u8, number)
}

fn attach(portal: &PortalDefinition, query: &str) -> (Device, Queue) {
    let url = format!("{portal}/{NQN}?hostnqn={HOST}{query}");
    let url = url.parse().expect("a URL");
    let mut device = Device::connect(&url, &options()).expect("attaches");
    let queue = device.take_queues().remove(0);
    (device, queue)
}

fn options() -> DeviceOptions {
    DeviceOptions {
        depth: 32,
        buffer_bytes: MIB as usize,
        on_loss: OnLoss::Resubmit,
        backoff: Backoff {
            first: Duration::from_millis(1),
            max: Duration::from_millis(20),
            give_up_after: PATIENCE,
            ..Backoff::default()
        },
        ..DeviceOptions::default()
    }
}

fn target() -> server::TargetName {
    NQN.parse().expect("a name")
}

fn volume() -> server::VolumeName {
    "rd0".parse().expect("a name")
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
    let extent = Extent::new(Lba(lba), Blocks(blocks));
    let request = Request {
        slot: Slot(0),
        operation,
        extent,
    };
    let mut done = Vec::new();
    queue.submit(request).expect("the slot is free");
    queue
        .wait(WaitStrategy::Sleep, PATIENCE, &mut done)
        .expect("the queue lives");
    assert_eq!(done.len(), 1, "one command, one completion");
    done[0].result
}

fn fill(queue: &mut Queue, byte: u8, blocks: usize) {
    queue.buffer_mut(Slot(0))[..blocks * 512].fill(byte);
}

fn reads(queue: &mut Queue, byte: u8, lba: u64, blocks: u64) -> bool {
    run(queue, Operation::Read, lba, blocks).expect("read");
    let data = &queue.buffer(Slot(0))[..blocks as usize * 512];
    data.iter().all(|&read| read == byte)
}

/// BRP-6, BRP-8: each reason for which a login is rejected, and that the connection is closed then.
#[test]
fn a_login_is_rejected_with_its_reason_and_the_connection_is_closed() {
    let fixture = Fixture::new();
    let reject = |change: &dyn Fn(&mut brp::wire::Login), status: LoginStatus| {
        let mut login = login();
        change(&mut login);
        let mut raw = Raw::connect(fixture.address());
        raw.send(login.as_bytes());
        assert_eq!(raw.login_reply().status.get(), status as u16, "{status:?}");
        raw.expect_closed();
    };
    let named = |name: &str| brp::wire::NameField::new(name).expect("a name");
    for unknown in [
        "nqn.unknown",
        "nqn.2014-08.org.nvmexpress.discovery",
        "iqn.2026-11.com.example:rd0",
        "no name",
    ] {
        reject(
            &|login| login.target = named(unknown),
            LoginStatus::NoTarget,
        );
    }
    reject(&|login| login.unit.set(2), LoginStatus::NoUnit);
    reject(&|login| login.tags.set(0), LoginStatus::Malformed);
    reject(&|login| login.host = named("a\nb"), LoginStatus::Malformed);
    reject(&|login| login.version.set(0), LoginStatus::Version);
    reject(&|login| login.session.0 = [7; 16], LoginStatus::NoSession);
    let secret = DhChapSecret::new(&[7; 32], None).expect("32 bytes");
    fixture.define_host(Some(DhChapDefinition {
        secret,
        other_secret: None,
        controller_secret: None,
        hash: None,
        group: DhGroupPolicy::Any,
    }));
    reject(&|_| {}, LoginStatus::Denied);
    fixture.define_host(None);
    Raw::logged_in(fixture.address(), &login());
    fixture.allow(Access::ReadOnly);
    reject(
        &|login| login.host = named("nqn.other"),
        LoginStatus::Denied,
    );
    let (_raw, reply) = Raw::logged_in(fixture.address(), &login());
    let read_only = brp::wire::ReplyFlags::READ_ONLY;
    assert!(brp::wire::ReplyFlags(reply.flags).contains(read_only));
}

/// BRP-1: what is reserved is ignored on receipt, and sent as zero.
#[test]
fn what_is_reserved_is_ignored_and_sent_as_zero() {
    let fixture = Fixture::new();
    let mut login = login();
    login.reserved1 = [0xFF; 3];
    login.reserved2 = [0xFF; 12];
    let (mut raw, reply) = Raw::logged_in(fixture.address(), &login);
    assert!(reply.as_bytes()[80..].iter().all(|&byte| byte == 0));
    let mut read = command(WireOperation::Read, 0, 1, 0).as_bytes().to_vec();
    read[28..32].fill(0xFF);
    raw.send(&read);
    let reply = raw.short();
    assert_eq!((reply.status(), reply.data_bytes.get()), (0, 512));
    assert_eq!(reply.code, 0);
}

#[test]
fn every_operation_does_what_it_says_and_two_hosts_see_the_same_volume() {
    check_operations(Transport::Brp);
}

fn check_operations(over: Transport) {
    let fixture = Fixture::over(over);
    let (_device, mut queue) = fixture.attach("");
    let (_other, mut other) = fixture.attach("&queues=2");
    assert_eq!(queue.geometry().len_bytes(), 64 * MIB);
    for (byte, lba, blocks) in [(1, 0, 1), (2, 5, 8), (3, 100, 300), (4, 1000, 2048)] {
        fill(&mut queue, byte, blocks);
        run(&mut queue, Operation::Write, lba, blocks as u64).expect("write");
        assert!(reads(&mut other, byte, lba, blocks as u64), "{byte}");
    }
    fill(&mut other, 9, 8);
    run(&mut other, Operation::WriteDurable, 5, 8).expect("write");
    run(&mut other, Operation::Flush, 0, 0).expect("flush");
    assert!(reads(&mut queue, 9, 5, 8));
    run(&mut queue, Operation::WriteZeroes(Unmap::Forbidden), 5, 4).expect("zeroes");
    run(&mut queue, Operation::Deallocate, 9, 4).expect("discard");
    assert!(reads(&mut other, 0, 5, 8));
    queue.buffer_mut(Slot(0))[..512].fill(0);
    queue.buffer_mut(Slot(0))[512..1024].fill(6);
    run(&mut queue, Operation::CompareAndWrite, 5, 1).expect("as expected");
    let again = run(&mut queue, Operation::CompareAndWrite, 5, 1);
    assert_eq!(again, Err(CommandError::Brp(Status::Miscompare)));
    assert!(reads(&mut other, 6, 5, 1));
    let beyond = run(&mut queue, Operation::Read, 64 * MIB / 512, 1);
    assert_eq!(beyond, Err(CommandError::Brp(Status::LbaOutOfRange)));
    let tcp = fixture::portal(Transport::NvmeTcp, ([127, 0, 0, 1], 0));
    let tcp = fixture.server.add_portal(tcp).expect("a free port");
    let (_nvme, mut nvme) = attach(&tcp, "");
    assert!(reads(&mut nvme, 6, 5, 1), "the same volume over NVMe");
}

#[test]
fn figures_and_sessions_are_counted_and_a_session_can_be_ended() {
    check_figures(Transport::Brp);
}

fn check_figures(over: Transport) {
    let fixture = Fixture::over(over);
    let server = &fixture.server;
    let (device, mut queue) = fixture.attach("");
    fill(&mut queue, 1, 8);
    run(&mut queue, Operation::Write, 0, 8).expect("write");
    assert!(reads(&mut queue, 1, 0, 8));
    let session = server.sessions().remove(0);
    assert_eq!(session.host.as_str(), HOST);
    assert_eq!(session.target, Some(target()));
    assert_eq!(session.protocol.transport(), over);
    assert!(matches!(
        session.protocol,
        SessionProtocol::Brp {
            unit: 1,
            tags: 32,
            is_resumed: false,
            ..
        }
    ));
    let written = |statistics: &server::IoStatistics| statistics.kind(OpKind::Write).bytes;
    wait_until(|| written(&server.sessions()[0].statistics) == 4096);
    assert_eq!(
        written(&server.target(&target()).expect("it").statistics),
        4096
    );
    assert_eq!(
        written(&server.volume(&volume()).expect("it").statistics),
        4096
    );
    assert_eq!(written(&server.portals()[0].statistics), 4096);
    let refused = server.remove_target(&target(), Force::No);
    assert!(matches!(
        refused,
        Err(ServerError::TargetInUse { sessions: 1, .. })
    ));
    server.end_session(session.id).expect("it exists");
    assert!(
        reads(&mut queue, 1, 0, 8),
        "the host comes again, with a new session"
    );
    let again = server.sessions().remove(0);
    assert_ne!(again.id, session.id);
    assert!(matches!(
        again.protocol,
        SessionProtocol::Brp {
            is_resumed: false,
            ..
        }
    ));
    drop((queue, device));
    wait_until(|| server.sessions().is_empty());
}

#[test]
fn what_changes_for_a_host_holds_at_once() {
    check_changes(Transport::Brp);
}

fn check_changes(over: Transport) {
    let fixture = Fixture::over(over);
    fixture.define_host(None);
    fixture.allow(Access::ReadWrite);
    let (_device, mut queue) = fixture.attach("");
    fill(&mut queue, 1, 1);
    run(&mut queue, Operation::Write, 0, 1).expect("write");
    fixture.allow(Access::ReadOnly);
    let denied = run(&mut queue, Operation::Write, 0, 1);
    assert_eq!(denied, Err(CommandError::Brp(Status::Denied)));
    assert!(reads(&mut queue, 1, 0, 1));
    fixture.allow(Access::ReadWrite);
    let server = &fixture.server;
    server
        .set_volume_lock(&volume(), WriteLock::ReadOnly)
        .expect("it exists");
    let locked = run(&mut queue, Operation::Write, 0, 1);
    assert_eq!(locked, Err(CommandError::Brp(Status::WriteProtected)));
    server
        .set_volume_lock(&volume(), WriteLock::Writable)
        .expect("it exists");
    server
        .resize_volume(&volume(), 96 * MIB, Force::No, &mut |_| {})
        .expect("room");
    wait_until(|| {
        queue
            .poll(Instant::now(), &mut Vec::new())
            .expect("it lives");
        queue.geometry().len_bytes() == 96 * MIB
    });
    server
        .detach_volume(&target(), 1, Force::Yes)
        .expect("it is attached");
    let gone = run(&mut queue, Operation::Read, 0, 1);
    assert_eq!(gone, Err(CommandError::Brp(Status::Gone)));
    server
        .remove_target(&target(), Force::Yes)
        .expect("it exists");
    wait_until(|| server.sessions().is_empty());
}

#[test]
fn a_portal_cannot_ask_for_proof() {
    let fixture = Fixture::new();
    let portal = fixture::portal(Transport::Brp, ([127, 0, 0, 1], 0));
    let auth = PortalDefinition {
        auth: PortalAuth::Required,
        ..portal
    };
    let tls = PortalDefinition {
        tls: TlsPolicy::Required,
        ..portal
    };
    let server = &fixture.server;
    assert!(matches!(
        server.add_portal(auth),
        Err(ServerError::NoAuthentication(_))
    ));
    assert!(matches!(server.add_portal(tls), Err(ServerError::NoTls(_))));
}

/// Peers that break the protocol or never finish get a FAULT, and others notice nothing.
#[test]
fn hostile_peers_are_disconnected_and_disturb_nobody() {
    let fixture = Fixture::alone(Transport::Brp);
    let (_device, mut queue) = fixture.attach("");
    let mut raw = Raw::connect(fixture.address());
    raw.send(b"GET / HTTP/1.1\r\n\r\n");
    raw.expect_fault(Violation::Kind);
    let mut raw = Raw::connect(fixture.address());
    raw.send(command(WireOperation::Read, 0, 1, 0).as_bytes());
    raw.expect_fault(Violation::Login);
    let (mut raw, _) = Raw::logged_in(fixture.address(), &login());
    raw.send(command(WireOperation::Read, 4, 1, 0).as_bytes());
    raw.expect_fault(Violation::Tag);
    let (mut raw, reply) = Raw::logged_in(fixture.address(), &login());
    let mut long = command(WireOperation::Write, 0, 1, 0);
    long.data_bytes.set(reply.command_data_max_bytes.get() + 1);
    raw.send(long.as_bytes());
    raw.expect_fault(Violation::Length);
    // Commands whose data never come hold nothing up.
    let mut stalled = Vec::new();
    for _ in 0..8 {
        let (mut raw, _) = Raw::logged_in(fixture.address(), &login());
        for tag in 0..4 {
            raw.send(command(WireOperation::Write, tag, 1, 0).as_bytes());
        }
        stalled.push(raw);
    }
    let mut round_trip = || writes_and_reads(&mut queue, 8);
    let beside: Vec<_> = (0..BESIDE).map(|_| timed(&mut round_trip)).collect();
    let used_before = fixture.server.capacity().used_bytes;
    drop(stalled);
    wait_until(|| fixture.server.portals()[0].connections == 1);
    assert!(fixture.server.capacity().used_bytes < used_before);
    assert_not_delayed(&beside, round_trip);
}

/// Round trips of a host beside hostile peers.
const BESIDE: usize = 30;

fn writes_and_reads(queue: &mut Queue, blocks: u64) {
    fill(queue, 5, blocks as usize);
    run(queue, Operation::Write, 0, blocks).expect("write");
    assert!(reads(queue, 5, 0, blocks));
}
