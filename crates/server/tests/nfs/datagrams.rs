//! Shares over UDP, beside TCP.

use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};

use nfs::testing::{Arguments, Reply};

use super::directory::Folder;
use super::*;

const MNT: (u32, u32, u32) = (100_005, 3, 1);
const EXPORT: (u32, u32, u32) = (100_005, 3, 5);
const CREATE: u32 = 8;
const READ: u32 = 6;
/// The longest READ over UDP.
const READ_MAX: usize = 32 << 10;
/// Clients that flood a portal of a server that stops.
const FLOODS: usize = 4;
/// How long the stop may take at most.
const STOPS_WITHIN: Duration = Duration::from_secs(5);
/// When a call is sent again.
const RETRY: Duration = Duration::from_millis(200);

/// A client that sends datagrams.
struct Sender {
    socket: UdpSocket,
    to: SocketAddr,
    xid: u32,
    /// Calls that were sent again.
    retries: u32,
}

impl Sender {
    fn new(from: [u8; 4], portal: &PortalDefinition) -> Self {
        let socket = UdpSocket::bind((Ipv4Addr::from(from), 0)).expect("a free port");
        socket.set_read_timeout(Some(RETRY)).expect("a socket");
        Self {
            socket,
            to: portal.address,
            xid: 0,
            retries: 0,
        }
    }

    /// The datagram that replies to another.
    fn exchange(&mut self, call: &[u8]) -> Vec<u8> {
        let until = Instant::now() + PATIENCE;
        loop {
            assert!(Instant::now() < until, "no reply");
            self.socket.send_to(call, self.to).expect("sent");
            let mut bytes = vec![0; 1 << 16];
            while let Ok((len, from)) = self.socket.recv_from(&mut bytes) {
                assert_eq!(from, self.to, "the address that the client knows");
                // Replies to earlier datagrams of the same call may come late.
                if bytes[..4] == call[..4] {
                    bytes.truncate(len);
                    return bytes;
                }
            }
            self.retries += 1;
        }
    }

    fn call(&mut self, what: (u32, u32, u32), arguments: &Arguments) -> Reply {
        self.xid += 1;
        let reply = self.exchange(&arguments.call(self.xid, what, (0, 0)));
        Reply::accepted(reply, self.xid)
    }

    fn nfs(&mut self, procedure: u32, arguments: &Arguments) -> Reply {
        self.call((NFS, 3, procedure), arguments)
    }

    fn mount(&mut self, path: &str) -> Vec<u8> {
        let mut reply = self.call(MNT, &Arguments::default().opaque(path.as_bytes()));
        assert_eq!(reply.u32(), OK);
        reply.opaque()
    }
}

fn udp_portal(it: &Fixture) -> PortalDefinition {
    let portal = fixture::portal(Transport::NfsUdp, (Ipv4Addr::LOCALHOST, 0));
    it.server.add_portal(portal).expect("a free port")
}

fn create_arguments(directory: &[u8], name: &[u8]) -> Arguments {
    let arguments = Arguments::default().opaque(directory).opaque(name);
    arguments.u32(0).mode(0o666)
}

#[test]
fn a_share_is_used_over_udp_beside_tcp() {
    let folder = Folder::new("udp");
    let it = Fixture::new(256 * MIB);
    it.server.create_share(folder.share()).expect("a new share");
    let portal = udp_portal(&it);
    let mut sender = Sender::new([127, 0, 0, 1], &portal);
    for share in ["db", "pub"] {
        let root = sender.mount(&format!("/{share}"));
        let call = create_arguments(&root, b"file").call(9000, (NFS, 3, CREATE), (0, 0));
        let reply = sender.exchange(&call);
        assert_eq!(sender.exchange(&call), reply, "it is executed once");
        let mut reply = Reply::accepted(reply, 9000);
        assert_eq!((reply.u32(), reply.bool()), (OK, true));
        let file = reply.opaque();

        let (mut client, _) = it.mounted(&format!("/{share}"));
        let data = pattern(100_000);
        client.write(&file, 0, &data).expect("written over TCP");
        for offset in [0, 70_000] {
            let read = Arguments::default().opaque(&file).u64(offset as u64);
            let mut reply = sender.nfs(READ, &read.u32(1 << 20));
            assert_eq!(reply.u32(), OK);
            assert!(reply.after().is_some());
            let (count, is_end) = (reply.u32() as usize, reply.bool());
            assert_eq!(count, READ_MAX.min(data.len() - offset), "{share}");
            assert_eq!(is_end, offset + count == data.len());
            assert_eq!(reply.opaque(), data[offset..offset + count]);
        }
    }

    let session = || {
        let mut sessions = it.server.sessions().into_iter();
        sessions.find_map(|session| match &session.protocol {
            SessionProtocol::Nfs {
                transport: Transport::NfsUdp,
                shares,
                ..
            } => Some((session.id, shares.len())),
            _ => None,
        })
    };
    let (id, shares) = session().expect("the client has one");
    assert_eq!(shares, 2);
    it.server.end_session(id).expect("ended");
    wait_until(|| session().is_none());
    sender.mount("/db");
    assert!(session().is_some(), "the next datagram begins another");
    it.server.remove_portal(portal).expect("closed");
    assert!(session().is_none());
}

#[test]
fn an_address_without_a_share_gets_a_short_rejection() {
    let it = Fixture::new(256 * MIB);
    it.change("db", |share| {
        share.clients = vec!["127.0.0.1".parse().expect("a client")];
    });
    let portal = udp_portal(&it);
    let mut stranger = Sender::new([127, 0, 0, 2], &portal);
    let call = Arguments::default().call(5, EXPORT, (0, 0));
    let reply = stranger.exchange(&call);
    assert_eq!(reply.len(), 20, "AUTH_ERROR");
    stranger.call((NFS, 3, 0), &Arguments::default()).end();
    assert_eq!(it.server.portals().len(), 2);
    let used = |transport| {
        let mut portals = it.server.portals().into_iter();
        let portal = portals.find(|portal| portal.definition.transport == transport);
        portal.expect("it is open").connections
    };
    assert_eq!(used(Transport::NfsUdp), 0, "it has no session");
    let mut client = Sender::new([127, 0, 0, 1], &portal);
    let mut exports = client.call(EXPORT, &Arguments::default());
    assert_eq!((exports.u32(), exports.opaque()), (1, b"/db".to_vec()));
    assert_eq!(used(Transport::NfsUdp), 1);
}

/// Sends calls as fast as possible until `ends` is set, at most for [`PATIENCE`].
fn flood(sender: &Sender, ends: &AtomicBool) {
    let call = Arguments::default().call(1, EXPORT, (0, 0));
    let until = Instant::now() + PATIENCE;
    while !ends.load(Ordering::Relaxed) && Instant::now() < until {
        for _ in 0..16 {
            // The socket may be full.
            let _ = sender.socket.send_to(&call, sender.to);
        }
        std::thread::yield_now();
    }
}

/// One that may use the share and one that may not send as fast as they can. The client beside them
/// has to send few calls again.
#[test]
fn floods_do_not_hold_up_a_client() {
    let it = Fixture::new(256 * MIB);
    it.change("db", |share| {
        let clients = ["127.0.0.1", "127.0.0.3"].into_iter();
        share.clients = clients
            .map(|text| text.parse().expect("a client"))
            .collect();
    });
    let portal = udp_portal(&it);
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for source in [[127, 0, 0, 2], [127, 0, 0, 3]] {
            let (sender, ends) = (Sender::new(source, &portal), &ends);
            scope.spawn(move || flood(&sender, ends));
        }
        let mut client = Sender::new([127, 0, 0, 1], &portal);
        let root = client.mount("/db");
        for number in 0..200_u32 {
            let name = number.to_string();
            let mut reply = client.nfs(CREATE, &create_arguments(&root, name.as_bytes()));
            assert_eq!(reply.u32(), OK);
        }
        ends.store(true, Ordering::Relaxed);
        assert!(client.retries <= 20, "{} calls were lost", client.retries);
    });
    assert_eq!(it.share("db").files, 200);
}

/// The server stops although the queues of clients never run empty.
#[test]
fn a_flood_does_not_keep_the_server_running() {
    let it = Fixture::new(256 * MIB);
    let portal = udp_portal(&it);
    let ends = AtomicBool::new(false);
    let took = std::thread::scope(|scope| {
        for _ in 0..FLOODS {
            let (sender, ends) = (Sender::new([127, 0, 0, 1], &portal), &ends);
            scope.spawn(move || flood(&sender, ends));
        }
        wait_until(|| it.server.sessions().len() == FLOODS);
        let begin = Instant::now();
        it.server.stop(PATIENCE);
        let took = begin.elapsed();
        ends.store(true, Ordering::Relaxed);
        took
    });
    assert!(took < STOPS_WITHIN, "{took:?}");
    assert!(it.server.sessions().is_empty());
}
