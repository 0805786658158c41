//! SRP portals of the server, reached by a small initiator over RoCEv2 in user space on loopback.

#[path = "../fixture/mod.rs"]
mod fixture;
mod peer;
#[path = "../../../fabric/tests/ports/mod.rs"]
mod ports;

use std::cell::Cell;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use block::testing::Turn;
use block::{Access, OpKind};
use peer::Peer;
use server::{
    AllowedHost, ByteSize, ChapDefinition, ChapSecret, HostDefinition, HostPolicy, LoginPolicy,
    PortalAuth, PortalDefinition, Server, ServerConfig, ServerError, SessionProtocol, ToldBy,
    Transport, VolumeSpec,
};
use session::RemoteBuffer;
use srp::testing::{Form, command, login, management};
use srp::wire::{ChannelFlags, Descriptor, Direction, Login, PortId, RejectReason, function};
use zerocopy::IntoBytes;

const MIB: u64 = 1 << 20;
const IQN: &str = "iqn.2026-11.com.example:disks";
/// The initiator's port identifier.
const HOST: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 1, 0x50, 0x54, 0, 0xFF, 0xFE, 1, 2, 3];
const HOST_NAME: &str = "0x0000000000000001505400fffe010203";

struct Fixture {
    server: Server,
    udp_port: u16,
    portal: PortalDefinition,
    /// Peers so far, each of which has an address of its own.
    peers: Cell<u8>,
    _turn: Turn,
}

impl Fixture {
    /// A server with a volume of 16 MiB behind LUN 0, at an SRP portal.
    fn new() -> Self {
        let turn = Turn::shared();
        let udp_port = ports::free_udp_port();
        let config = ServerConfig {
            rdma_udp_port: Some(udp_port),
            rdma_threads: Some(2),
            ..fixture::config(1, 256 * MIB)
        };
        let spec = VolumeSpec::thin(ByteSize(16 * MIB));
        let server = fixture::start(config, "disk", &spec);
        fixture::offer(&server, IQN, "disk", HostPolicy::Local);
        let portal = server.add_portal(portal(5555)).expect("a portal");
        Self {
            server,
            udp_port,
            portal,
            peers: Cell::new(1),
            _turn: turn,
        }
    }

    /// Where the next peer is.
    fn here(&self) -> SocketAddr {
        self.peers.set(self.peers.get() + 1);
        let ip = Ipv4Addr::new(127, 37, 0, self.peers.get());
        SocketAddr::new(ip.into(), self.udp_port)
    }

    fn try_log_in(&self, login: &Login) -> Result<Peer, u32> {
        Peer::connect(self.here(), self.portal.address, login)
    }

    /// The first channel of an initiator, ready for commands.
    fn ready(&self) -> Peer {
        let mut peer = self.try_log_in(&the_login()).expect("accepted");
        // UNIT ATTENTION.
        assert_eq!(peer.ask(&command(0, &[0; 6], None, &[], &[])).0, 2);
        peer
    }
}

fn the_login() -> Login {
    let target = server::srp_port(&IQN.parse().expect("a name"));
    login(PortId(HOST), target)
}

fn portal(port: u16) -> PortalDefinition {
    fixture::portal(Transport::Srp, (Ipv4Addr::new(127, 37, 0, 1), port))
}

fn transfer(opcode: u8, lba: u32, blocks: u16) -> [u8; 10] {
    let mut cdb = [0; 10];
    cdb[0] = opcode;
    cdb[2..6].copy_from_slice(&lba.to_be_bytes());
    cdb[7..9].copy_from_slice(&blocks.to_be_bytes());
    cdb
}

fn read(tag: u64, lba: u32, buffer: RemoteBuffer) -> Vec<u8> {
    let data = Some((Direction::In, Form::Direct));
    let blocks = (buffer.len_bytes / 512) as u16;
    command(tag, &transfer(0x28, lba, blocks), data, &[buffer], &[])
}

fn write(tag: u64, lba: u32, buffer: RemoteBuffer) -> Vec<u8> {
    let data = Some((Direction::Out, Form::Direct));
    let blocks = (buffer.len_bytes / 512) as u16;
    command(tag, &transfer(0x2A, lba, blocks), data, &[buffer], &[])
}

fn wait_until(what: &str, done: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(10);
    while !done() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn data_go_both_ways() {
    let fixture = Fixture::new();
    let mut peer = fixture.ready();
    assert_eq!(peer.login.expect("logged in").request_limit.get(), 128);
    for len in [512_u32, 8192, 65_536, 1 << 20] {
        let pattern: Vec<u8> = (0..len).map(|i| (i / 3 + i % 253) as u8).collect();
        peer.data()[..len as usize].copy_from_slice(&pattern);
        let buffer = peer.register(0, len);
        assert_eq!(
            peer.ask(&write(1, 16, buffer)).0,
            0,
            "{len} bytes are written"
        );
        peer.data().fill(0);
        assert_eq!(peer.ask(&read(2, 16, buffer)).0, 0, "{len} bytes are read");
        assert_eq!(peer.data()[..len as usize], pattern);
    }
    let data = Some((Direction::Out, Form::Immediate));
    let message = command(3, &transfer(0x2A, 100, 16), data, &[], &[7; 8192]);
    assert_eq!(peer.ask(&message).0, 0);
    let buffer = peer.register(0, 8192);
    assert_eq!(peer.ask(&read(4, 100, buffer)).0, 0);
    assert_eq!(peer.data()[..8192], [7; 8192]);
}

#[test]
fn a_table_that_is_not_in_the_message_is_fetched() {
    const TABLE_AT: u64 = 768 << 10;
    let fixture = Fixture::new();
    let mut peer = fixture.ready();
    let buffers: Vec<_> = (0..300)
        .map(|index| peer.register(index * 2048, 1024))
        .collect();
    for (index, buffer) in buffers.iter().enumerate() {
        let at = TABLE_AT as usize + index * 16;
        peer.data()[at..at + 16].copy_from_slice(Descriptor::of(*buffer).as_bytes());
        let at = index * 2048;
        peer.data()[at..at + 1024].fill(index as u8);
    }
    let table = peer.register(TABLE_AT, 300 * 16);
    for listed in [0, 12, 255] {
        let form = Form::Indirect { table, listed };
        let out = Some((Direction::Out, form));
        let message = command(1, &transfer(0x2A, 0, 600), out, &buffers, &[]);
        assert_eq!(peer.ask(&message).0, 0);
        peer.data()[..TABLE_AT as usize].fill(0xEE);
        let into = Some((Direction::In, form));
        let message = command(2, &transfer(0x28, 0, 600), into, &buffers, &[]);
        assert_eq!(peer.ask(&message).0, 0);
        for index in 0..300 {
            let at = index * 2048;
            assert_eq!(peer.data()[at..at + 1024], [index as u8; 1024]);
            assert_eq!(peer.data()[at + 1024..at + 2048], [0xEE; 1024], "a hole");
        }
    }
}

#[test]
fn commands_are_aborted_and_the_request_limit_can_be_used_whole() {
    let fixture = Fixture::new();
    let mut peer = fixture.ready();
    let buffer = peer.register(0, 4096);
    for tag in 0..128 {
        peer.send(&read(tag, 0, buffer));
    }
    peer.until("all answers", |peer| peer.waiting() == 128);
    for _ in 0..128 {
        assert_eq!(peer.receive().0, 0);
    }
    let (_, data) = peer.ask(&management(200, function::ABORT_TASK, 5));
    assert_eq!(data, [0; 4]);
    let (_, data) = peer.ask(&management(201, function::LUN_RESET, 0));
    assert_eq!(data, [0; 4]);
    let (status, sense) = peer.ask(&read(1, 0, buffer));
    assert_eq!((status, sense[2] & 0xF), (2, 6), "UNIT ATTENTION");
}

#[test]
fn channels_of_a_nexus_are_one_session_and_a_new_login_replaces_them() {
    let fixture = Fixture::new();
    let mut first = fixture.ready();
    let multi = Login {
        flags: ChannelFlags::IMMEDIATE | ChannelFlags::MULTI,
        ..the_login()
    };
    let mut second = fixture.try_log_in(&multi).expect("accepted");
    let flags = second.login.expect("logged in").flags;
    assert_eq!(flags, ChannelFlags::IMMEDIATE | ChannelFlags::MAINTAINED);
    let buffer = second.register(0, 512);
    assert_eq!(
        second.ask(&read(1, 0, buffer)).0,
        0,
        "the nexus is the same"
    );
    let sessions = fixture.server.sessions();
    assert_eq!((sessions.len(), sessions[0].connections), (1, 2));
    assert_eq!(sessions[0].host.as_str(), HOST_NAME);
    assert!(matches!(sessions[0].protocol, SessionProtocol::Srp { .. }));
    let third = fixture.try_log_in(&the_login()).expect("accepted");
    let flags = third.login.expect("logged in").flags;
    assert_eq!(flags, ChannelFlags::IMMEDIATE | ChannelFlags::ENDED);
    first.until("the end", |peer| peer.is_gone);
    second.until("the end", |peer| peer.is_gone);
    wait_until("one channel is left", || {
        let sessions = fixture.server.sessions();
        sessions.len() == 1 && sessions[0].connections == 1
    });
}

#[test]
fn sessions_are_counted_and_ended() {
    let fixture = Fixture::new();
    let mut peer = fixture.ready();
    let buffer = peer.register(0, 4096);
    assert_eq!(peer.ask(&read(1, 0, buffer)).0, 0);
    let reads = || {
        let sessions = fixture.server.sessions();
        sessions[0].statistics.kind(OpKind::Read).operations
    };
    wait_until("the read is counted", || reads() == 1);
    let portals = fixture.server.portals();
    assert_eq!(portals[0].connections, 1);
    assert_eq!(portals[0].statistics.kind(OpKind::Read).bytes, 4096);
    let id = fixture.server.sessions()[0].id;
    fixture.server.end_session(id).expect("it is there");
    peer.until("the end", |peer| peer.is_gone);
    assert!(peer.is_logged_out);
    wait_until("the session is gone", || {
        fixture.server.sessions().is_empty()
    });
}

#[test]
fn a_host_is_known_by_its_port_identifier() {
    let fixture = Fixture::new();
    let define = |name: &str| {
        let definition = HostDefinition {
            name: name.parse().expect("a name"),
            told_by: ToldBy::Name,
            addresses: Vec::new(),
            chap: None,
            dhchap: None,
            tls: None,
        };
        fixture.server.create_host(definition).expect("new");
    };
    let allow = |name: &str, access| {
        let listed = HostPolicy::Listed(vec![AllowedHost {
            host: name.parse().expect("a name"),
            access,
            luns: None,
        }]);
        let target = IQN.parse().expect("a name");
        fixture
            .server
            .set_target_hosts(&target, listed)
            .expect("listed");
    };
    let other = "0x00000000000000020000000000000003";
    define(other);
    define(HOST_NAME);
    let mut peer = fixture.ready();
    allow(other, Access::ReadWrite);
    peer.until("the end", |peer| peer.is_gone);
    let refused = fixture.try_log_in(&the_login()).err();
    assert_eq!(refused, Some(RejectReason::Association as u32));
    allow(HOST_NAME, Access::ReadOnly);
    let mut peer = fixture.ready();
    let buffer = peer.register(0, 512);
    assert_eq!(peer.ask(&read(1, 0, buffer)).0, 0);
    let (status, sense) = peer.ask(&write(2, 0, buffer));
    assert_eq!((status, sense[2] & 0xF), (2, 7), "DATA PROTECT");
}

#[test]
fn a_channel_with_other_access_does_not_join_a_nexus() {
    let fixture = Fixture::new();
    let mut allowed = Vec::new();
    let hosts = [
        ("0x00000000000000000000000000000002", 2, Access::ReadWrite),
        ("0x00000000000000000000000000000003", 3, Access::ReadWrite),
        ("0x00000000000000000000000000000004", 4, Access::ReadOnly),
    ];
    for (name, last, access) in hosts {
        let definition = HostDefinition {
            name: name.parse().expect("a name"),
            told_by: ToldBy::Address,
            addresses: vec![format!("127.37.0.{last}").parse().expect("an address")],
            chap: None,
            dhchap: None,
            tls: None,
        };
        fixture.server.create_host(definition).expect("new");
        allowed.push(AllowedHost {
            host: name.parse().expect("a name"),
            access,
            luns: None,
        });
    }
    let target = IQN.parse().expect("a name");
    fixture
        .server
        .set_target_hosts(&target, HostPolicy::Listed(allowed))
        .expect("listed");
    let multi = Login {
        flags: ChannelFlags::IMMEDIATE | ChannelFlags::MULTI,
        ..the_login()
    };
    let _first = fixture.ready();
    let _second = fixture.try_log_in(&multi).expect("it has the same access");
    let refused = fixture.try_log_in(&multi).err();
    assert_eq!(refused, Some(RejectReason::Association as u32));
    assert_eq!(fixture.server.sessions()[0].connections, 2);
}

#[test]
fn logins_that_cannot_be_served_say_why() {
    let fixture = Fixture::new();
    let good = the_login();
    let rejected = |login: Login| fixture.try_log_in(&login).err();
    let unknown = Login {
        target: PortId([9; 16]),
        ..good
    };
    assert_eq!(rejected(unknown), Some(RejectReason::Association as u32));
    let long = Login {
        request_len_bytes: 1_000_000.into(),
        ..good
    };
    assert_eq!(rejected(long), Some(RejectReason::RequestLength as u32));
    let formats = Login {
        formats: 0xFFFF.into(),
        ..good
    };
    assert_eq!(rejected(formats), Some(RejectReason::Formats as u32));
    // Private data are padded with zeros, so a part of a login is one for another target.
    let short = &good.as_bytes()[..20];
    let association = RejectReason::Association as u32;
    for (garbage, reason) in [
        (&[0xFF; 56][..], 0),
        (&[], association),
        (short, association),
    ] {
        let refused = Peer::connect_with(fixture.here(), fixture.portal.address, garbage);
        assert_eq!(refused.err(), Some(reason));
    }
    // SRP has no proof of who a host is.
    let chap = ChapDefinition {
        user: "user".into(),
        secret: ChapSecret::new(*b"a secret of some length").expect("long enough"),
        mutual: None,
    };
    let logins = LoginPolicy {
        chap: Some(chap),
        ..LoginPolicy::default()
    };
    let name = IQN.parse().expect("a name");
    fixture
        .server
        .set_target_logins(&name, logins)
        .expect("set");
    assert_eq!(rejected(good), Some(RejectReason::Association as u32));
    let required = PortalDefinition {
        auth: PortalAuth::Required,
        ..portal(5556)
    };
    let refused = fixture.server.add_portal(required);
    assert!(matches!(refused, Err(ServerError::NoAuthentication(_))));
}

#[test]
fn what_hostile_initiators_do_ends_their_connection_alone() {
    let fixture = Fixture::new();
    let mut host = fixture.ready();
    let buffer = host.register(0, 4096);
    let attacks: [fn(&mut Peer); 6] = [
        |peer| {
            // A key that is not the peer's.
            let mut buffer = peer.register(0, 4096);
            buffer.key.0 ^= 0x100;
            peer.send(&read(1, 0, buffer));
        },
        |peer| {
            let mut buffer = peer.register(0, 4096);
            buffer.key.0 ^= 0x100;
            peer.send(&write(1, 0, buffer));
        },
        |peer| {
            // More memory than the key reaches.
            let mut buffer = peer.register(0, 512);
            buffer.len_bytes = 64 << 10;
            peer.send(&write(1, 0, buffer));
        },
        |peer| {
            // A table that is not the peer's.
            let mut table = peer.register(0, 64);
            table.key.0 ^= 0x100;
            let data = Some((Direction::Out, Form::Indirect { table, listed: 0 }));
            let buffers = [peer.register(0, 512)];
            peer.send(&command(1, &transfer(0x2A, 0, 1), data, &buffers, &[]));
        },
        |peer| peer.send(&[2; 20]),
        |peer| {
            let message = command(1, &[0; 6], None, &[], &[]);
            for _ in 0..8 {
                peer.send(&[&message[..], &[0xAA; 64]].concat());
                peer.send(&[0xC1; 48]);
            }
        },
    ];
    for (number, attack) in attacks.into_iter().enumerate() {
        let login = Login {
            initiator: PortId([number as u8 + 1; 16]),
            ..the_login()
        };
        let mut peer = fixture.try_log_in(&login).expect("accepted");
        peer.ask(&command(0, &[0; 6], None, &[], &[]));
        attack(&mut peer);
        peer.until(&format!("the end after attack {number}"), |peer| {
            peer.is_gone
        });
        assert_eq!(host.ask(&read(1, 0, buffer)).0, 0, "the host is served");
    }
    wait_until("their sessions are gone", || {
        fixture.server.sessions().len() == 1
    });
}

#[test]
fn a_server_that_stops_and_a_portal_that_closes_log_initiators_out() {
    let fixture = Fixture::new();
    let mut peer = fixture.ready();
    fixture.server.remove_portal(fixture.portal).expect("open");
    peer.until("the end", |peer| peer.is_gone);
    assert!(peer.is_logged_out);
    fixture.server.add_portal(portal(5555)).expect("again");
    let mut peer = fixture.ready();
    fixture.server.stop(Duration::from_secs(5));
    peer.until("the end", |peer| peer.is_gone);
    assert!(peer.is_logged_out);
}

#[test]
fn the_target_is_shared_with_iscsi_and_has_a_port_of_its_own() {
    let fixture = Fixture::new();
    let mut peer = fixture.ready();
    let buffer = peer.register(0, 1024);
    let data = Some((Direction::In, Form::Direct));
    // INQUIRY, page 83h.
    let message = command(1, &[0x12, 1, 0x83, 4, 0, 0], data, &[buffer], &[]);
    assert_eq!(peer.ask(&message).0, 0);
    let target = server::srp_port(&IQN.parse().expect("a name"));
    let name = format!("eui.{:016x}{:016x}", target.extension(), target.guid());
    let page = peer.data()[..1024].to_vec();
    let at = page
        .windows(name.len())
        .position(|text| text == name.as_bytes());
    let at = at.expect("the name of the port");
    assert_eq!(page[at - 4..at - 2], [0x43, 0x98], "a port of SRP");
}
