//! NVMe/RDMA portals of the server, reached by a small host over RoCEv2 in user space on loopback.

mod attacks;
#[path = "../fixture/mod.rs"]
mod fixture;
mod hostile;
mod peer;
#[path = "../../../fabric/tests/ports/mod.rs"]
mod ports;
#[path = "../fixture/rdma_crowd.rs"]
mod rdma_crowd;

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use block::OpKind;
use block::testing::Turn;
use nvme::wire::discovery::{DISCOVERY_NQN, DiscoveryEntry, DiscoveryHeader};
use nvme::wire::fabrics::{
    Configuration, ConnectData, ConnectSqe, NqnField, Property, PropertySqe,
};
use nvme::wire::{Cid, Cqe, Nsid, Sqe, Status, StatusCode, opcode};
use peer::{Peer, Refused, transfer};
use server::{
    ByteSize, Force, HostPolicy, PortalDefinition, Server, ServerConfig, ServerError,
    SessionProtocol, ThreadInfo, Transport, VolumeSpec,
};
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, IntoBytes};

const MIB: u64 = 1 << 20;
const NQN: &str = "nqn.2026-11.com.example:disks";
const HOST: &str = "nqn.2026-11.com.example:host";
const LOOPBACK: Ipv4Addr = Ipv4Addr::new(127, 38, 0, 1);

struct Fixture {
    server: Server,
    udp_port: u16,
    portal: PortalDefinition,
    _turn: Turn,
}

impl Fixture {
    /// A server with a volume of 16 MiB as namespace 1, at a portal over RDMA.
    fn new() -> Self {
        Self::at(Turn::shared())
    }

    /// The same for a test that bounds delays.
    fn alone() -> Self {
        Self::at(Turn::alone())
    }

    fn at(turn: Turn) -> Self {
        let udp_port = ports::free_udp_port();
        let config = ServerConfig {
            rdma_udp_port: Some(udp_port),
            rdma_threads: Some(2),
            ..fixture::config(1, 256 * MIB)
        };
        let spec = VolumeSpec::thin(ByteSize(16 * MIB));
        let server = fixture::start(config, "disk", &spec);
        fixture::offer(&server, NQN, "disk", HostPolicy::Local);
        let portal = server.add_portal(portal(4420)).expect("a portal");
        Self {
            server,
            udp_port,
            portal,
            _turn: turn,
        }
    }

    /// A connection for a queue, from the address with this last number.
    fn connect(&self, host: u8, queue: u16) -> Result<Peer, Refused> {
        let from = Ipv4Addr::new(127, 38, 0, host);
        let from = SocketAddr::new(from.into(), self.udp_port);
        Peer::connect(from, self.portal.address, queue)
    }

    /// An admin queue of a controller of the subsystem, enabled.
    fn admin(&self, host: u8, nqn: &str) -> (Peer, u16) {
        let mut admin = self.connect(host, 0).expect("taken");
        let cqe = connect_queue(&mut admin, nqn, 0, ConnectData::CONTROLLER_ANY);
        assert!(cqe.status().is_success(), "{:?}", cqe.status());
        let enable = u64::from(Configuration::ENABLE_NVM.0);
        let set = PropertySqe::set(Cid(1), Property::Configuration, enable);
        let status = admin.command(&zerocopy::transmute!(set), 0).status();
        assert!(status.is_success(), "{status:?}");
        (admin, cqe.dw0() as u16)
    }

    /// The names of the RDMA threads, their connections, and the bytes written through them.
    fn rdma_threads(&self) -> (Vec<String>, usize, u64) {
        let threads = self.server.threads().into_iter();
        let threads: Vec<_> = threads.filter(|one| one.name.starts_with("rdma")).collect();
        let written = |one: &ThreadInfo| one.statistics.kind(OpKind::Write).bytes;
        let connections = threads.iter().map(|one| one.connections).sum();
        let bytes = threads.iter().map(written).sum();
        let names = threads.into_iter().map(|one| one.name).collect();
        (names, connections, bytes)
    }

    fn until(&self, what: &str, done: impl Fn(&Server) -> bool) {
        let end = Instant::now() + Duration::from_secs(10);
        while !done(&self.server) {
            assert!(Instant::now() < end, "{what}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

fn portal(port: u16) -> PortalDefinition {
    fixture::portal(Transport::NvmeRdma, (LOOPBACK, port))
}

fn connect_queue(peer: &mut Peer, nqn: &str, queue: u16, controller: u16) -> Cqe {
    connect_queue_as(HOST, peer, nqn, (queue, controller))
}

fn connect_queue_as(
    host: &str,
    peer: &mut Peer,
    nqn: &str,
    (queue, controller): (u16, u16),
) -> Cqe {
    let name = |name| NqnField::new(name).expect("a short name");
    let data = ConnectData::new([7; 16], controller, name(nqn), name(host));
    peer.data()[..size_of::<ConnectData>()].copy_from_slice(data.as_bytes());
    let sqe = ConnectSqe::new(Cid(0), queue, peer::ENTRIES);
    peer.command(&zerocopy::transmute!(sqe), size_of::<ConnectData>())
}

#[test]
fn data_go_both_ways_and_sessions_are_counted() {
    let fixture = Fixture::new();
    let (_admin, controller) = fixture.admin(2, NQN);
    let mut io = fixture.connect(3, 1).expect("taken");
    assert!(
        connect_queue(&mut io, NQN, 1, controller)
            .status()
            .is_success()
    );
    let len = 1 << 20;
    let data: Vec<u8> = (0..len).map(|at| (at / 13) as u8).collect();
    io.data()[..len].copy_from_slice(&data);
    let status = io.command(&transfer(opcode::WRITE, 1, len), len).status();
    assert!(status.is_success(), "{status:?}");
    io.data().fill(0);
    let status = io.command(&transfer(opcode::READ, 2, len), len).status();
    assert!(status.is_success(), "{status:?}");
    assert_eq!(io.data()[..len], data);
    // What changes elsewhere in the target has the host's rights looked up again.
    let name = "disk".parse().expect("a name");
    let resized = (fixture.server).resize_volume(&name, 32 * MIB, Force::No, &mut |_| {});
    resized.expect("room");
    io.data().fill(0);
    let status = io.command(&transfer(opcode::READ, 3, len), len).status();
    assert!(status.is_success(), "{status:?}");
    assert_eq!(io.data()[..len], data);
    let sessions = fixture.server.sessions();
    let [session] = &sessions[..] else {
        panic!("one session, not {}", sessions.len());
    };
    let protocol = SessionProtocol::Nvme {
        transport: Transport::NvmeRdma,
        controller,
    };
    assert_eq!((&session.protocol, session.connections), (&protocol, 2));
    let written = session.statistics.kind(OpKind::Write);
    assert_eq!((written.operations, written.bytes), (1, len as u64));
    assert_eq!(fixture.server.portals()[0].connections, 2);
    assert_eq!(fixture.rdma_threads().1, 2);
    fixture.server.end_session(session.id).expect("it is there");
    io.until_gone();
    fixture.until("the session is forgotten", |s| s.sessions().is_empty());
    let names = ["rdma-0 127.38.0.1", "rdma-1 127.38.0.1"].map(str::to_owned);
    let written = (names.to_vec(), 0, len as u64);
    assert_eq!(fixture.rdma_threads(), written);
    let of_portal = &fixture.server.portals()[0].statistics;
    assert_eq!(of_portal.kind(OpKind::Write).bytes, len as u64);
    // The threads that serve the address next have done nothing yet.
    let removed = fixture.server.remove_portal(fixture.portal);
    removed.expect("it is there");
    assert_eq!(fixture.rdma_threads(), (Vec::new(), 0, 0));
    fixture
        .server
        .add_portal(fixture.portal)
        .expect("free again");
    assert_eq!(fixture.rdma_threads(), (names.to_vec(), 0, 0));
}

#[test]
fn discovery_tells_of_portals_over_rdma() {
    let fixture = Fixture::new();
    let (mut admin, _) = fixture.admin(2, DISCOVERY_NQN);
    let len = size_of::<DiscoveryHeader>() + 2 * size_of::<DiscoveryEntry>();
    let mut sqe = Sqe::new(0x02, Cid(5), Nsid(0));
    sqe.cdw10 = U32::new((len as u32 / 4 - 1) << 16 | 0x70);
    let status = admin.command(&sqe, len).status();
    assert!(status.is_success(), "{status:?}");
    let log = &admin.data()[..len];
    let (header, rest) = DiscoveryHeader::ref_from_prefix(log).expect("1024 bytes");
    assert_eq!(header.records.get(), 2);
    let entries = <[DiscoveryEntry]>::ref_from_bytes(rest).expect("two entries");
    let disk = entries
        .iter()
        .find(|entry| entry.subsystem_nqn.name() == Some(NQN));
    let disk = disk.expect("the target is told");
    assert_eq!((disk.transport, disk.service()), (1, Some("4420")));
    // Connected queue pairs, RoCEv2, rdma_cm.
    assert_eq!(disk.transport_specific[..3], [1, 4, 1]);
}

#[test]
fn hosts_and_queues_that_are_not_allowed_are_refused_with_the_reason() {
    let fixture = Fixture::new();
    let refused = fixture.connect(2, 999).expect_err("no such queue");
    assert_eq!(refused.private_data[..4], [0, 0, 3, 0]);
    let listed = HostPolicy::Listed(Vec::new());
    let target = NQN.parse().expect("a name");
    fixture
        .server
        .set_target_hosts(&target, listed)
        .expect("set");
    let mut admin = fixture.connect(3, 0).expect("taken");
    let cqe = connect_queue(&mut admin, NQN, 0, ConnectData::CONTROLLER_ANY);
    assert_eq!(cqe.status(), Status::from(StatusCode::ConnectInvalidHost));
}

#[test]
fn a_host_without_a_name_is_served_where_any_host_is() {
    let fixture = Fixture::new();
    let queue = (0, ConnectData::CONTROLLER_ANY);
    let mut admin = fixture.connect(2, 0).expect("taken");
    let cqe = connect_queue_as("", &mut admin, NQN, queue);
    assert!(cqe.status().is_success(), "{:?}", cqe.status());
    let sessions = fixture.server.sessions();
    assert!(sessions[0].host.as_str().starts_with("unnamed:"));
    let target = NQN.parse().expect("a name");
    let listed = HostPolicy::Listed(Vec::new());
    let set = fixture.server.set_target_hosts(&target, listed);
    set.expect("the target is there");
    let mut admin = fixture.connect(3, 0).expect("taken");
    let cqe = connect_queue_as("", &mut admin, NQN, queue);
    assert_eq!(cqe.status(), Status::from(StatusCode::ConnectInvalidHost));
}

#[test]
fn portals_need_a_port_and_come_and_go() {
    let fixture = Fixture::new();
    let error = fixture.server.add_portal(portal(0)).expect_err("no port");
    assert!(matches!(error, ServerError::RdmaPort(_)), "{error}");
    let (mut admin, _) = fixture.admin(2, NQN);
    fixture.server.remove_portal(fixture.portal).expect("open");
    admin.until_gone();
    let taken = std::net::UdpSocket::bind((LOOPBACK, fixture.udp_port));
    let taken = taken.expect("the port is free with the last portal");
    let error = fixture
        .server
        .add_portal(fixture.portal)
        .expect_err("taken");
    assert!(error.to_string().contains("UDP port"), "{error}");
    drop(taken);
    fixture
        .server
        .add_portal(fixture.portal)
        .expect("free again");
    fixture.admin(3, NQN);
}
