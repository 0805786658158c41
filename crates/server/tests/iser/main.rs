//! iSER portals of the server, reached by a small initiator over RoCEv2 in user space on loopback.

mod attacks;
#[path = "../each_kind/mod.rs"]
mod each_kind;
#[path = "../fixture/mod.rs"]
mod fixture;
mod hostile;
mod kinds;
mod peer;
#[path = "../../../fabric/tests/ports/mod.rs"]
mod ports;
#[path = "../fixture/rdma_crowd.rs"]
mod rdma_crowd;

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use block::Access;
use block::testing::Turn;
use iscsi::iser::wire::Tag;
use iscsi::wire::{NO_TASK_TAG, request, response};
use peer::{Addresses, GOOD, Peer, READ, WRITE, cdb_10};
use server::{
    AllowedHost, ByteSize, HostDefinition, HostPolicy, PortalAuth, PortalDefinition, Server,
    ServerConfig, ServerError, SessionProtocol, ToldBy, Transport, VolumeSpec,
};

const MIB: u64 = 1 << 20;
const IQN: &str = "iqn.2026-11.com.example:disks";
const HOST: &str = "iqn.2026-11.com.example:host";

struct Fixture {
    server: Server,
    udp_port: u16,
    portal: PortalDefinition,
    _turn: Turn,
}

impl Fixture {
    /// A server with a volume of 16 MiB behind LUN 0, at an iSER portal.
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
        fixture::offer(&server, IQN, "disk", HostPolicy::Local);
        let portal = server.add_portal(portal(3260)).expect("a portal");
        Self {
            server,
            udp_port,
            portal,
            _turn: turn,
        }
    }

    fn try_connect(&self) -> Result<Peer, peer::NotConnected> {
        self.try_connect_with(Addresses::InFull)
    }

    fn try_connect_with(&self, addresses: Addresses) -> Result<Peer, peer::NotConnected> {
        Peer::connect(self.here(), self.portal.address, addresses)
    }

    /// Where peers are.
    fn here(&self) -> SocketAddr {
        SocketAddr::new(Ipv4Addr::new(127, 36, 0, 2).into(), self.udp_port)
    }

    /// A peer that has sent its login, with its status.
    fn log_in(&self) -> (Peer, (u8, u8)) {
        self.log_in_with(Addresses::InFull)
    }

    fn log_in_with(&self, addresses: Addresses) -> (Peer, (u8, u8)) {
        let mut peer = self.try_connect_with(addresses).expect("taken");
        let status = peer.log_in(HOST, IQN);
        (peer, status)
    }

    fn ready(&self) -> Peer {
        self.ready_with(Addresses::InFull)
    }

    fn ready_with(&self, addresses: Addresses) -> Peer {
        let (mut peer, status) = self.log_in_with(addresses);
        assert_eq!(status, GOOD);
        // UNIT ATTENTION, perhaps.
        command(&mut peer, READ, &[0; 6], 0, &[], (None, None));
        peer
    }
}

fn portal(port: u16) -> PortalDefinition {
    fixture::portal(Transport::Iser, (Ipv4Addr::new(127, 36, 0, 1), port))
}

fn command(
    peer: &mut Peer,
    flags: u8,
    cdb: &[u8],
    expected_len: u32,
    immediate: &[u8],
    tags: (Option<Tag>, Option<Tag>),
) -> (u8, u8) {
    let message = peer
        .initiator
        .command((7, flags), cdb, expected_len, immediate, tags);
    peer.send(&message);
    let answer = peer.receive();
    assert_eq!(answer.bhs.opcode(), response::SCSI_RESPONSE);
    answer.status()
}

fn wait_until(what: &str, done: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(10);
    while !done() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn data_go_both_ways_and_keys_are_invalidated() {
    let fixture = Fixture::new();
    let mut peer = fixture.ready();
    assert_eq!(peer.private_data[0], 0x80, "messages invalidate keys");
    for len in [512_u32, 8192, 8704, 65_536, 1 << 20] {
        let blocks = (len / 512) as u16;
        let pattern: Vec<u8> = (0..len).map(|i| (i / 3 + i % 253) as u8).collect();
        peer.data()[..len as usize].copy_from_slice(&pattern);
        let immediate = &pattern[..pattern.len().min(8192)];
        let tag = (len > 8192).then(|| peer.register(len.into()));
        let from = tag.map(|tag| Tag {
            base: tag.base + 8192,
            ..tag
        });
        let write = cdb_10(0x2A, 16, blocks);
        let status = command(&mut peer, WRITE, &write, len, immediate, (from, None));
        assert_eq!(status, GOOD, "{len} bytes are written");
        assert!(tag.is_none_or(|tag| !peer.invalidate(tag)));
        peer.data().fill(0);
        let to = peer.register(len.into());
        let read = cdb_10(0x28, 16, blocks);
        let status = command(&mut peer, READ, &read, len, &[], (None, Some(to)));
        assert_eq!(status, GOOD, "{len} bytes are read");
        assert_eq!(peer.data()[..len as usize], pattern);
        assert!(!peer.invalidate(to), "the response has done so");
    }
}

#[test]
fn zero_based_addresses_are_used_where_both_ends_have_them() {
    for addresses in [Addresses::ZeroBased, Addresses::ZeroBasedUnsaid] {
        let fixture = Fixture::new();
        let mut peer = fixture.ready_with(addresses);
        assert_eq!(peer.private_data[0], 0, "addresses are zero-based");
        let pattern: Vec<u8> = (0..65_536_u32).map(|i| (i / 3 + i % 253) as u8).collect();
        let len = pattern.len() as u32;
        peer.data()[..pattern.len()].copy_from_slice(&pattern);
        let from = peer.register(len.into());
        assert_eq!(from.base, 0);
        let write = cdb_10(0x2A, 16, 128);
        let immediate = &pattern[..8192];
        let status = command(&mut peer, WRITE, &write, len, immediate, (Some(from), None));
        assert_eq!(status, GOOD);
        peer.data().fill(0);
        let to = peer.register(len.into());
        let read = cdb_10(0x28, 16, 128);
        let status = command(&mut peer, READ, &read, len, &[], (None, Some(to)));
        assert_eq!(status, GOOD);
        assert_eq!(peer.data()[..pattern.len()], pattern);
        assert!(!peer.invalidate(to), "the response has done so");
    }
}

#[test]
fn sessions_are_listed_counted_and_ended() {
    let fixture = Fixture::new();
    let mut peer = fixture.ready();
    let to = peer.register(4096);
    command(
        &mut peer,
        READ,
        &cdb_10(0x28, 0, 8),
        4096,
        &[],
        (None, Some(to)),
    );
    wait_until("the read is counted", || {
        let sessions = fixture.server.sessions();
        sessions[0].statistics.kind(block::OpKind::Read).operations == 1
    });
    let sessions = fixture.server.sessions();
    assert_eq!(sessions.len(), 1);
    assert_eq!(sessions[0].host.as_str(), HOST);
    let SessionProtocol::Iscsi { transport, .. } = &sessions[0].protocol else {
        panic!("an iSCSI session");
    };
    assert_eq!(*transport, Transport::Iser);
    assert_eq!(fixture.server.portals()[0].connections, 1);
    fixture
        .server
        .end_session(sessions[0].id)
        .expect("it is there");
    peer.until("the end", |peer| peer.is_gone);
    wait_until("the session is gone", || {
        fixture.server.sessions().is_empty()
    });
}

#[test]
fn access_rules_are_those_of_tcp() {
    let fixture = Fixture::new();
    let other = "iqn.2026-11.com.example:other";
    let definition = HostDefinition {
        name: other.parse().expect("a name"),
        told_by: ToldBy::Name,
        addresses: Vec::new(),
        chap: None,
        dhchap: None,
        tls: None,
    };
    fixture.server.create_host(definition).expect("new");
    let listed = HostPolicy::Listed(vec![AllowedHost {
        host: other.parse().expect("a name"),
        access: Access::ReadWrite,
        luns: None,
    }]);
    let name = IQN.parse().expect("a name");
    fixture
        .server
        .set_target_hosts(&name, listed)
        .expect("listed");
    let (mut peer, status) = fixture.log_in();
    assert_eq!(status, (2, 2), "authorization failure");
    peer.until("the end", |peer| peer.is_gone);
}

#[test]
fn a_portal_that_requires_authentication_refuses_hosts_without_a_secret() {
    let mut fixture = Fixture::new();
    let open = fixture.portal;
    fixture.server.remove_portal(open).expect("removes");
    let required = PortalDefinition {
        auth: PortalAuth::Required,
        ..open
    };
    fixture.portal = fixture.server.add_portal(required).expect("a portal");
    let (mut peer, status) = fixture.log_in();
    assert_eq!(status, (2, 1), "authentication failure");
    peer.until("the end", |peer| peer.is_gone);
}

#[test]
fn discovery_tells_the_portals_of_the_same_transport() {
    let fixture = Fixture::new();
    let tcp = PortalDefinition {
        transport: Transport::Iscsi,
        ..portal(0)
    };
    fixture.server.add_portal(tcp).expect("beside");
    let mut peer = fixture.try_connect().expect("taken");
    let login = peer
        .initiator
        .login(&[("InitiatorName", HOST), ("SessionType", "Discovery")]);
    peer.send(&login);
    assert_eq!(peer.receive().bhs.specific_20[16], 0);
    let mut message = peer.initiator.control(request::TEXT, 0x80, 5, NO_TASK_TAG);
    let text = b"SendTargets=All\0";
    message[28 + 7] = text.len() as u8;
    message.extend_from_slice(text);
    peer.send(&message);
    let answer = peer.receive();
    assert_eq!(answer.bhs.opcode(), response::TEXT);
    let told = String::from_utf8(answer.segment).expect("text");
    assert_eq!(
        told,
        format!("TargetName={IQN}\0TargetAddress=127.36.0.1:3260,1\0")
    );
}

#[test]
fn a_buffer_that_is_not_the_peers_ends_its_connection_alone() {
    let fixture = Fixture::new();
    let mut peer = fixture.ready();
    let Tag { stag, base } = peer.register(4096);
    let wrong = Tag {
        stag: stag ^ 0x100,
        base,
    };
    let message = peer.initiator.command(
        (9, READ),
        &cdb_10(0x28, 0, 8),
        4096,
        &[],
        (None, Some(wrong)),
    );
    peer.send(&message);
    peer.until("the end", |peer| peer.is_gone);
    wait_until("the session is gone", || {
        fixture.server.sessions().is_empty()
    });
    drop(peer);
    fixture.ready();
}

#[test]
fn a_peer_that_takes_no_reads_is_refused() {
    let fixture = Fixture::new();
    let refused = Peer::connect_for(0, fixture.here(), fixture.portal.address, Addresses::InFull);
    // Its writes could not be fetched.
    assert!(matches!(refused, Err(peer::NotConnected::Rejected)));
    fixture.ready();
}

#[test]
fn portals_share_the_address_and_close_by_themselves() {
    let fixture = Fixture::new();
    let second = fixture.server.add_portal(portal(3261)).expect("beside");
    let taken = fixture.server.add_portal(portal(3261));
    assert!(matches!(taken, Err(ServerError::PortalExists(_))));
    let zero = fixture.server.add_portal(portal(0));
    assert!(matches!(zero, Err(ServerError::RdmaPort(_))));
    let mut peer = fixture.ready();
    fixture.server.remove_portal(second).expect("open");
    let nop = peer
        .initiator
        .control(request::NOP_OUT, 0x80, 3, NO_TASK_TAG);
    peer.send(&nop);
    assert_eq!(peer.receive().bhs.opcode(), response::NOP_IN);
    fixture.server.remove_portal(fixture.portal).expect("open");
    peer.until("the end", |peer| peer.is_gone);
    // The thread is gone, and so its UDP port is free.
    fixture.server.add_portal(portal(3262)).expect("again");
}

#[test]
fn a_server_that_stops_ends_sessions_over_rdma_too() {
    let fixture = Fixture::new();
    let mut peer = fixture.ready();
    fixture.server.stop(Duration::from_secs(5));
    peer.until("the end", |peer| peer.is_gone);
}
