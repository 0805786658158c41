//! NFS portals over RDMA, reached by a small client over RoCEv2 in user space on loopback.

#[expect(dead_code, reason = "these tests have no targets")]
#[path = "../fixture/mod.rs"]
mod fixture;
mod peer;
#[path = "../../../fabric/tests/ports/mod.rs"]
mod ports;

use std::cell::Cell;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use block::testing::Turn;
use nfs::rdma::wire::{PrivateData, Segment, procedure};
use nfs::testing::{Arguments, RdmaHeader};
use peer::Peer;
use server::{
    ByteSize, ExportOptions, FileProcedure, Force, PortalDefinition, Server, ServerConfig,
    SessionProtocol, ShareDefinition, ShareKind, Squash, Transport, VolumeSpec,
};

const MIB: u64 = 1 << 20;
const NFS: u32 = 100_003;
const MOUNT: u32 = 100_005;
const GETATTR: u32 = 1;
const READ: u32 = 6;
const WRITE: u32 = 7;
const CREATE: u32 = 8;
/// The length of a reply up to its results.
const REPLY_HEAD: usize = 24;

struct Fixture {
    server: Server,
    udp_port: u16,
    /// The last byte of the address of the client that connected last. All ends of RoCEv2 have the
    /// same port.
    last_address: Cell<u8>,
    portal: PortalDefinition,
    _turn: Turn,
}

impl Fixture {
    /// A server with a share `db` at an NFS portal over RDMA. Its clients must connect from a port
    /// below 1024, which over RDMA is not checked.
    fn new() -> Self {
        let turn = Turn::shared();
        let udp_port = ports::free_udp_port();
        let config = ServerConfig {
            rdma_udp_port: Some(udp_port),
            rdma_threads: Some(1),
            ..fixture::config(1, 256 * MIB)
        };
        let spec = VolumeSpec::thin(ByteSize(16 * MIB));
        let server = fixture::start(config, "disk", &spec);
        let share = ShareDefinition {
            name: "db".parse().expect("a name"),
            kind: ShareKind::Ramfs {
                quota_bytes: None,
                files_max: 1000,
            },
            options: ExportOptions {
                squash: Squash::None,
                ..ExportOptions::default()
            },
            clients: Vec::new(),
        };
        server.create_share(share).expect("a new share");
        let at = (Ipv4Addr::new(127, 39, 0, 1), 20_049);
        let portal = server.add_portal(fixture::portal(Transport::NfsRdma, at));
        Self {
            portal: portal.expect("a portal"),
            server,
            udp_port,
            last_address: Cell::new(1),
            _turn: turn,
        }
    }

    fn connect(&self) -> Client {
        let last = self.last_address.get() + 1;
        self.last_address.set(last);
        let from = SocketAddr::new(Ipv4Addr::new(127, 39, 0, last).into(), self.udp_port);
        let peer = Peer::connect(from, self.portal.address);
        Client {
            peer,
            xid: 500,
            root: Vec::new(),
        }
    }

    fn mounted(&self) -> Client {
        let mut client = self.connect();
        let (_, reply) = client.call((MOUNT, 3, 1), &args().opaque(b"/db"), |_, _| {});
        assert_eq!(word(&reply, REPLY_HEAD), 0);
        client.root = opaque(&reply, REPLY_HEAD + 4);
        client
    }
}

struct Client {
    peer: Peer,
    xid: u32,
    root: Vec<u8>,
}

impl Client {
    /// Calls with a header that `change` has changed, which is given the length of the call.
    /// Returns the header of the reply, and what follows.
    fn call(
        &mut self,
        what: (u32, u32, u32),
        arguments: &Arguments,
        change: impl FnOnce(&mut RdmaHeader, u32),
    ) -> (RdmaHeader, Vec<u8>) {
        self.xid += 1;
        let call = arguments.call(self.xid, what, (0, 0));
        let mut header = RdmaHeader::message(self.xid);
        change(&mut header, call.len() as u32);
        self.peer.send(&header.encode(&call));
        let message = self.peer.receive();
        let (reply, body) = RdmaHeader::decode(&message);
        assert_eq!(reply.xid, self.xid);
        (reply, body)
    }

    fn nfs(
        &mut self,
        number: u32,
        arguments: &Arguments,
        change: impl FnOnce(&mut RdmaHeader, u32),
    ) -> (RdmaHeader, Vec<u8>) {
        self.call((NFS, 3, number), arguments, change)
    }

    fn create(&mut self, name: &[u8]) -> Vec<u8> {
        let arguments = args().opaque(&self.root).opaque(name).u32(0).mode(0o644);
        let (_, reply) = self.nfs(CREATE, &arguments, |_, _| {});
        assert_eq!(
            (word(&reply, REPLY_HEAD), word(&reply, REPLY_HEAD + 4)),
            (0, 1)
        );
        opaque(&reply, REPLY_HEAD + 8)
    }

    fn write_from(&mut self, file: &[u8], segment: Segment) -> (RdmaHeader, Vec<u8>) {
        let len = segment.len_bytes.get();
        let arguments = args().opaque(file).u64(0).u32(len).u32(2).u32(len);
        self.nfs(WRITE, &arguments, |header, at| {
            header.reads = vec![(at, segment)];
        })
    }

    fn read_into(&mut self, file: &[u8], segment: Segment) -> (RdmaHeader, Vec<u8>) {
        let arguments = args().opaque(file).u64(0).u32(segment.len_bytes.get());
        self.nfs(READ, &arguments, |header, _| {
            header.writes = vec![vec![segment]];
        })
    }
}

fn args() -> Arguments {
    Arguments::default()
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().expect("4 bytes"))
}

fn opaque(bytes: &[u8], at: usize) -> Vec<u8> {
    bytes[at + 4..][..word(bytes, at) as usize].to_vec()
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8).collect()
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn data_go_both_ways_and_are_counted() {
    let fixture = Fixture::new();
    let mut client = fixture.mounted();
    let reply = PrivateData::parse(&client.peer.private_data).expect("the format");
    assert_eq!(reply.receive_bytes(), 4096);
    let file = client.create(b"f");
    let data = pattern(300_001);
    client.peer.data()[..data.len()].copy_from_slice(&data);
    let from = client.peer.register(0, data.len() as u64);
    let (header, reply) = client.write_from(&file, from);
    assert_eq!(
        (header.procedure, word(&reply, REPLY_HEAD)),
        (procedure::MSG, 0)
    );
    assert!(
        !client.peer.invalidate(from),
        "the reply has invalidated the key"
    );

    client.peer.data().fill(0);
    let into = client.peer.register(64, 400_000);
    let (header, reply) = client.read_into(&file, into);
    assert_eq!(
        (header.procedure, word(&reply, REPLY_HEAD)),
        (procedure::MSG, 0)
    );
    assert_eq!(header.writes[0][0].len_bytes.get() as usize, data.len());
    assert_eq!(client.peer.data()[64..64 + data.len()], data);
    assert!(
        !client.peer.invalidate(into),
        "the reply has invalidated the key"
    );

    let sessions = fixture.server.sessions();
    let [session] = &sessions[..] else {
        panic!("{sessions:?}");
    };
    let SessionProtocol::Nfs {
        transport, shares, ..
    } = &session.protocol
    else {
        panic!("{session:?}");
    };
    assert_eq!((*transport, shares.len()), (Transport::NfsRdma, 1));
    wait_until("the calls are counted", || {
        let sessions = fixture.server.sessions();
        let [session] = &sessions[..] else {
            return false;
        };
        let SessionProtocol::Nfs { operations, .. } = &session.protocol else {
            return false;
        };
        [FileProcedure::Read, FileProcedure::Write]
            .iter()
            .all(|kind| operations.kind(*kind).bytes == 300_001)
    });
    drop(client);
    wait_until("the session ends", || fixture.server.sessions().is_empty());
}

#[test]
fn a_share_is_reached_over_tcp_and_rdma_at_once() {
    let fixture = Fixture::new();
    let tcp = fixture::portal(Transport::Nfs, (Ipv4Addr::LOCALHOST, 0));
    fixture.server.add_portal(tcp).expect("a free port");
    let (mut first, mut second) = (fixture.mounted(), fixture.connect());
    second.root = first.root.clone();
    first.create(b"f");
    let (_, reply) = second.nfs(GETATTR, &args().opaque(&second.root.clone()), |_, _| {});
    assert_eq!(word(&reply, REPLY_HEAD), 0);
    let portals = fixture.server.portals();
    let over_rdma = portals
        .iter()
        .find(|portal| portal.definition.transport == Transport::NfsRdma);
    let over_rdma = over_rdma.expect("it is open");
    assert_eq!(
        over_rdma.definition.to_string().split('?').next(),
        Some("nfs+rdma://127.39.0.1:20049")
    );
    assert_eq!(over_rdma.connections, 2);
    fixture
        .server
        .remove_portal(over_rdma.definition)
        .expect("it is open");
    first.peer.until("the connection ends", |peer| peer.is_gone);
}

#[test]
fn a_removed_share_is_stale() {
    let fixture = Fixture::new();
    let mut client = fixture.mounted();
    let name = "db".parse().expect("a name");
    fixture
        .server
        .remove_share(&name, Force::Yes)
        .expect("forced");
    let root = client.root.clone();
    let (_, reply) = client.nfs(GETATTR, &args().opaque(&root), |_, _| {});
    assert_eq!(word(&reply, REPLY_HEAD), 70, "NFS3ERR_STALE");
}

#[test]
fn hostile_clients_are_disconnected_and_others_go_on() {
    let fixture = Fixture::new();
    let mut good = fixture.mounted();
    let file = good.create(b"f");
    let key = good.peer.register(0, 4096);
    assert_eq!(word(&good.write_from(&file, key).1, REPLY_HEAD), 0);
    // Keys and addresses of no memory of the client's, longer than the memory, and keys of another
    // client's.
    for (is_read, handle, offset, len) in [
        (true, 0xDEAD_BEEF_u32, 0_u64, 4096_u32),
        (false, 0xDEAD_BEEF, 0, 4096),
        (true, 0, u64::MAX - 5000, 4096),
        (false, 0, 0, 4096),
    ] {
        let mut bad = fixture.mounted();
        let mut segment = bad.peer.register(0, 1024);
        segment.len_bytes = len.into();
        segment.offset = (if offset == 0 {
            segment.offset.get()
        } else {
            offset
        })
        .into();
        if handle != 0 {
            segment.handle = handle.into();
        }
        bad.xid += 1;
        let mut header = RdmaHeader::message(bad.xid);
        let arguments = if is_read {
            header.writes = vec![vec![segment]];
            args().opaque(&file).u64(0).u32(len)
        } else {
            args().opaque(&file).u64(0).u32(len).u32(0).u32(len)
        };
        let number = if is_read { READ } else { WRITE };
        let call = arguments.call(bad.xid, (NFS, 3, number), (0, 0));
        if !is_read {
            header.reads = vec![(call.len() as u32, segment)];
        }
        bad.peer.send(&header.encode(&call));
        bad.peer.until("the connection ends", |peer| peer.is_gone);
    }
    // Headers that are cut off or of no sense are answered.
    let mut odd = fixture.mounted();
    for message in [
        &RdmaHeader::long(7, &[]).encode(&[])[..],
        &[0, 0, 0, 7, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0],
    ] {
        odd.peer.send(message);
        let (header, _) = RdmaHeader::decode(&odd.peer.receive());
        assert_eq!(
            (header.procedure, header.error),
            (procedure::ERROR, vec![2])
        );
    }
    let key = good.peer.register(0, 4096);
    assert_eq!(word(&good.read_into(&file, key).1, REPLY_HEAD), 0);
}
