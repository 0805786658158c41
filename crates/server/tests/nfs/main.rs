//! Shares over loopback, reached by a bare client of NFS.

#[path = "../fixture/mod.rs"]
mod fixture;

mod client;
mod datagrams;
mod directory;
mod locks;

use std::io::{ErrorKind, Read as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use block::testing::{Turn, skip};
use block::{Access, OpKind};
use client::{ACCES, Arguments, Client, NFS, NOENT, OK, ROFS, STALE, TRY_LATER};
use server::{
    ByteSize, ExportOptions, FileProcedure, Force, HostPolicy, PortalDefinition, Server,
    ServerConfig, ServerError, SessionInfo, SessionProtocol, ShareDefinition, ShareInfo, ShareKind,
    ShareName, Squash, Transport, VolumeSpec,
};

const NQN: &str = "nqn.2025-01.io.ramport:beside";
const MIB: u64 = 1 << 20;
const PATIENCE: Duration = Duration::from_secs(20);

struct Fixture {
    server: Server,
    portal: PortalDefinition,
    _turn: Turn,
}

impl Fixture {
    /// A server with a portal on loopback and the share `db`, which any port and user may use,
    /// beside a target that any host may use.
    fn new(memory_bytes: u64) -> Self {
        Self::start(fixture::config(1, memory_bytes))
    }

    /// The same with a file in which clients are noted.
    fn noting(path: &Path) -> Self {
        Self::start(ServerConfig {
            nfs_client_records: Some(path.into()),
            ..fixture::config(1, 256 * MIB)
        })
    }

    fn start(config: ServerConfig) -> Self {
        let turn = Turn::shared();
        let spec = VolumeSpec::thin(ByteSize(16 * MIB));
        let server = fixture::start(config, "rd0", &spec);
        fixture::offer(&server, NQN, "rd0", HostPolicy::Any(Access::ReadWrite));
        server.create_share(share("db")).expect("a new share");
        let portal = fixture::portal(Transport::Nfs, (Ipv4Addr::LOCALHOST, 0));
        Self {
            portal: server.add_portal(portal).expect("a free port"),
            server,
            _turn: turn,
        }
    }

    fn client(&self) -> Client {
        Client::connect(self.portal.address)
    }

    /// A client that has mounted a share, with the share's root.
    fn mounted(&self, path: &str) -> (Client, Vec<u8>) {
        let mut client = self.client();
        let root = client.mount(path).expect("a share");
        (client, root)
    }

    /// The handle of a path, or the status.
    fn mounted_path(&self, path: &str) -> Result<Vec<u8>, u32> {
        self.client().mount(path)
    }

    fn share(&self, name: &str) -> ShareInfo {
        self.server.share(&name_of(name)).expect("a share")
    }

    fn change(&self, name: &str, change: impl FnOnce(&mut ShareDefinition)) {
        let mut definition = self.share(name).definition;
        change(&mut definition);
        self.server.change_share(definition).expect("a change");
    }

    fn session(&self) -> SessionInfo {
        let mut sessions = self.server.sessions();
        assert_eq!(sessions.len(), 1, "{sessions:?}");
        sessions.remove(0)
    }

    fn used_bytes(&self) -> u64 {
        self.server.capacity().used_bytes
    }
}

fn name_of(name: &str) -> ShareName {
    name.parse().expect("a name")
}

fn share(name: &str) -> ShareDefinition {
    ShareDefinition {
        name: name_of(name),
        kind: ShareKind::Ramfs {
            quota_bytes: None,
            files_max: 1000,
        },
        options: ExportOptions {
            squash: Squash::None,
            privileged_port: false,
            ..ExportOptions::default()
        },
        clients: Vec::new(),
    }
}

fn wait_until(mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < until, "it did not come to be so");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The bytes of a file, none of which repeat soon.
fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8).collect()
}

/// Whether the peer has closed the connection.
fn is_closed(client: &mut Client) -> bool {
    match client.stream.read(&mut [0; 64]) {
        Ok(len) => len == 0,
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    }
}

#[test]
fn a_file_is_written_and_read_and_everything_is_counted() {
    let it = Fixture::new(256 * MIB);
    let (mut client, root) = it.mounted("/db");
    let file = client.create(&root, "table").expect("a new file");
    let data = pattern(300_000);
    let verifier = client.write(&file, 0, &data).expect("written");
    assert_eq!(client.read(&file, 0, 1 << 20), Ok(data.clone()));
    assert_eq!(client.lookup(&root, "table"), Ok(file.clone()));
    assert_eq!(client.lookup(&root, "other"), Err(NOENT));
    let commit = Arguments::default().opaque(&file).u64(0).u32(0);
    assert_eq!(client.status(client::COMMIT, &commit), OK);

    // The last reply may be counted just after it was received.
    let commits = || {
        it.share("db")
            .statistics
            .kind(FileProcedure::Commit)
            .operations
    };
    wait_until(|| commits() == 1);
    let session = it.session();
    assert_eq!((session.connections, session.target.as_ref()), (1, None));
    assert_eq!(session.host.as_str(), "127.0.0.1");
    let io = &session.statistics;
    let bytes = data.len() as u64;
    for kind in [OpKind::Read, OpKind::Write] {
        assert_eq!((io.kind(kind).operations, io.kind(kind).bytes), (1, bytes));
        assert_eq!(io.kind(kind).latency.count(), 1);
    }
    assert_eq!(io.kind(OpKind::Flush).operations, 1);
    let SessionProtocol::Nfs {
        shares, operations, ..
    } = session.protocol
    else {
        panic!("an NFS session");
    };
    assert_eq!(shares, [name_of("db")]);
    assert_eq!(operations.kind(FileProcedure::Mnt).operations, 1);
    let lookups = operations.kind(FileProcedure::Lookup);
    assert_eq!((lookups.operations, lookups.errors), (2, 1));
    assert_eq!(operations.kind(FileProcedure::Read).bytes, bytes);

    let info = it.share("db");
    assert_eq!((info.sessions, info.files), (1, 1));
    assert!(info.used_bytes >= bytes, "{}", info.used_bytes);
    assert_eq!(it.server.portals()[0].connections, 1);
    drop(client);
    wait_until(|| it.server.sessions().is_empty());
    let after = it.share("db");
    assert_eq!((after.sessions, &after.statistics), (0, &info.statistics));
    let through = &it.server.portals()[0].statistics;
    assert_eq!(through.kind(OpKind::Write).bytes, bytes);
    assert_eq!(it.server.statistics().kind(OpKind::Read).bytes, bytes);

    let (mut client, root) = it.mounted("/db");
    let file = client.lookup(&root, "table").expect("the file");
    assert_eq!(client.write(&file, 0, b"x"), Ok(verifier), "of this server");
}

/// The name is in /etc/hosts. Only its addresses count.
#[test]
fn a_client_is_told_by_its_host_name() {
    let it = Fixture::new(256 * MIB);
    let define = |client: &str| ShareDefinition {
        clients: vec![client.parse().expect("a client")],
        ..share("ours")
    };
    it.server
        .create_share(define("LOCALHOST"))
        .expect("a share");
    let mut client = it.client();
    client
        .mount("/ours")
        .expect("it comes from an address of that name");
    let names = it.share("ours").client_names;
    assert_eq!(names.len(), 1);
    assert!(names[0].addresses.contains(&Ipv4Addr::LOCALHOST.into()));
    assert_eq!(names[0].problem, None);

    it.server
        .change_share(define("192.0.2.7"))
        .expect("changed");
    assert_eq!(client.mount("/ours"), Err(ACCES));
    assert_eq!(it.share("ours").client_names, []);
    it.server
        .change_share(define("localhost."))
        .expect("changed");
    client.mount("/ours").expect("at once");
}

#[test]
fn clients_see_the_shares_that_they_may_use() {
    let it = Fixture::new(256 * MIB);
    let clients = ["192.0.2.0/24"].map(|text| text.parse().expect("a client"));
    let others = ShareDefinition {
        clients: clients.to_vec(),
        ..share("others")
    };
    it.server.create_share(others).expect("a share");
    let clients = ["127.0.0.0/8", "::1"].map(|text| text.parse().expect("a client"));
    let ours = ShareDefinition {
        clients: clients.to_vec(),
        ..share("a-b")
    };
    it.server.create_share(ours).expect("a share");
    let mut client = it.client();
    let clients = ["127.0.0.0/8", "::1"].map(str::to_owned).to_vec();
    let exports = [("/a-b".to_owned(), clients), ("/db".to_owned(), Vec::new())];
    assert_eq!(client.exports(), exports);
    assert_eq!(client.mount("/others"), Err(ACCES));
    assert_eq!(client.mount("/none"), Err(NOENT));

    client.mount("/db").expect("a share");
    client.mount("/a-b").expect("a share");
    let mounts = ["/db", "/a-b"].map(|path| ("127.0.0.1".to_owned(), path.to_owned()));
    assert_eq!(client.mounts(), mounts);
    client.call(client::MOUNT, client::UMNTALL, &Arguments::default());
    assert_eq!(client.mounts(), []);
}

#[test]
fn access_is_revoked_and_granted_under_an_open_connection() {
    let it = Fixture::new(256 * MIB);
    let (mut client, root) = it.mounted("/db");
    assert_eq!(client.getattr(&root), OK);
    it.change("db", |db| {
        db.clients = vec!["192.0.2.1".parse().expect("a range")];
    });
    assert_eq!(client.getattr(&root), ACCES);
    assert_eq!(client.create(&root, "x"), Err(ACCES));
    it.change("db", |db| db.clients.clear());
    assert_eq!(client.getattr(&root), OK);
    it.change("db", |db| db.options.read_only = true);
    assert_eq!(client.create(&root, "x"), Err(ROFS));
    it.change("db", |db| db.options.read_only = false);
    assert!(client.create(&root, "x").is_ok());
    // The counters of the share went on through all of that.
    wait_until(|| it.share("db").statistics.kind(FileProcedure::Create).errors == 2);
}

#[test]
fn a_client_that_may_use_nothing_is_no_session() {
    let it = Fixture::new(256 * MIB);
    it.change("db", |db| {
        db.clients = vec!["192.0.2.1".parse().expect("a range")];
    });
    let mut client = it.client();
    assert_eq!(client.mount("/db"), Err(ACCES));
    assert_eq!(client.exports(), []);
    assert!(it.server.sessions().is_empty());
    assert_eq!(it.server.portals()[0].connections, 1);
}

#[test]
fn a_secure_share_needs_a_privileged_port() {
    let it = Fixture::new(256 * MIB);
    let (mut client, root) = it.mounted("/db");
    it.change("db", |db| db.options.privileged_port = true);
    assert_eq!(client.getattr(&root), ACCES);
    assert_eq!(it.client().mount("/db"), Err(ACCES));
    let Some(stream) = connect_from_privileged_port(it.portal.address) else {
        skip("this user may not use a port below 1024");
        return;
    };
    let mut client = Client::of(stream);
    assert_eq!(client.mount("/db"), Ok(root.clone()));
    assert_eq!(client.getattr(&root), OK);
}

/// `None` without the right to.
fn connect_from_privileged_port(to: SocketAddr) -> Option<TcpStream> {
    use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
    for port in (600..1024).rev() {
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
        let from = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        match bind(&socket, &from) {
            Ok(()) => {
                connect(&socket, &to).expect("the portal listens");
                return Some(socket.into());
            }
            Err(rustix::io::Errno::ADDRINUSE) => {}
            Err(_) => return None,
        }
    }
    None
}

#[test]
fn a_removed_share_is_stale_for_its_clients_and_its_memory_is_free() {
    let it = Fixture::new(256 * MIB);
    let empty = it.share("db").used_bytes;
    let before = it.used_bytes();
    it.server.create_share(share("log")).expect("a share");
    let (mut client, root) = it.mounted("/log");
    let file = client.create(&root, "entries").expect("a file");
    client.write(&file, 0, &pattern(1 << 20)).expect("written");
    assert!(it.used_bytes() > before + MIB);
    let refused = it.server.remove_share(&name_of("log"), Force::No);
    assert!(matches!(
        refused,
        Err(ServerError::ShareInUse { sessions: 1, .. })
    ));
    assert_eq!(client.getattr(&file), OK);

    it.server
        .remove_share(&name_of("log"), Force::Yes)
        .expect("forced");
    assert_eq!(client.getattr(&file), STALE);
    assert_eq!(client.read(&file, 0, 10), Err(STALE));
    assert_eq!(client.mount("/log"), Err(NOENT));
    // Another share of the same name has files of its own.
    it.server.create_share(share("log")).expect("a share");
    assert_eq!(client.getattr(&root), STALE);
    let root = client.mount("/log").expect("a share");
    assert_eq!(client.lookup(&root, "entries"), Err(NOENT));
    assert_eq!(it.share("log").used_bytes, empty);
    drop(client);
    wait_until(|| it.server.sessions().is_empty());
    let removed = it.server.remove_share(&name_of("log"), Force::No);
    removed.expect("nobody uses it");
    wait_until(|| it.used_bytes() == before);
}

#[test]
fn an_erased_share_is_empty_and_stale() {
    let it = Fixture::new(256 * MIB);
    let empty = it.share("db").used_bytes;
    let (mut client, root) = it.mounted("/db");
    let file = client.create(&root, "table").expect("a file");
    let refused = it.server.erase_share(&name_of("db"), Force::No);
    assert!(matches!(refused, Err(ServerError::ShareInUse { .. })));
    assert_eq!(client.getattr(&file), OK);
    it.server
        .erase_share(&name_of("db"), Force::Yes)
        .expect("forced");
    assert_eq!(
        (client.getattr(&file), client.getattr(&root)),
        (STALE, STALE)
    );
    assert_eq!(
        (it.share("db").used_bytes, it.share("db").files),
        (empty, 0)
    );
    let root = client.mount("/db").expect("a share");
    assert!(client.create(&root, "table").is_ok());
}

#[test]
fn a_client_whose_session_was_ended_goes_on_with_its_handles() {
    let it = Fixture::new(256 * MIB);
    let (mut client, root) = it.mounted("/db");
    let file = client.create(&root, "table").expect("a file");
    it.server.end_session(it.session().id).expect("a session");
    assert!(is_closed(&mut client));
    let mut client = it.client();
    assert!(client.write(&file, 0, b"still here").is_ok());
    wait_until(|| it.server.sessions().len() == 1);
}

#[test]
fn a_call_that_is_sent_again_is_executed_once() {
    let it = Fixture::new(256 * MIB);
    let (mut client, root) = it.mounted("/db");
    client.create(&root, "a").expect("a file");
    let call = client.encode(NFS, client::REMOVE, &client::remove(&root, "a"));
    client.send(&call).expect("sent");
    assert_eq!(client.receive().expect("a reply").u32(), OK);
    // By another connection, since the reply might have been lost with the first one.
    let mut again = it.client();
    again.xid = client.xid;
    again.send(&call).expect("sent");
    assert_eq!(again.receive().expect("a reply").u32(), OK);
    let other = client::remove(&root, "a");
    assert_eq!(again.status(client::REMOVE, &other), NOENT);
}

#[test]
fn an_open_share_and_an_outside_portal_exclude_each_other() {
    let it = Fixture::new(256 * MIB);
    let outside = fixture::portal(Transport::Nfs, ([0, 0, 0, 0], 0));
    let refused = it.server.add_portal(outside);
    assert!(matches!(
        refused,
        Err(ServerError::ShareOpenToNetwork { .. })
    ));
    assert_eq!(it.server.portals().len(), 1);
    // Portals of other protocols do not reach it.
    let other = fixture::portal(Transport::NvmeTcp, ([0, 0, 0, 0], 0));
    it.server.add_portal(other).expect("a portal");

    it.change("db", |db| {
        db.clients = vec!["127.0.0.1".parse().expect("a range")];
    });
    it.server.add_portal(outside).expect("a portal");
    let refused = it.server.create_share(share("open"));
    assert!(matches!(
        refused,
        Err(ServerError::ShareOpenToNetwork { .. })
    ));
    assert_eq!(it.server.shares().len(), 1);
    let refused = it.server.change_share(share("db"));
    assert!(matches!(
        refused,
        Err(ServerError::ShareOpenToNetwork { .. })
    ));
    assert_eq!(it.share("db").definition.clients.len(), 1);
}

#[test]
fn a_rejected_request_changes_nothing() {
    let it = Fixture::new(256 * MIB);
    let (mut client, root) = it.mounted("/db");
    client.create(&root, "table").expect("a file");
    let before = it.used_bytes();
    let exists = it.server.create_share(share("db"));
    assert!(matches!(exists, Err(ServerError::ShareExists(_))));
    let none = name_of("none");
    let unknown = |result| matches!(result, Err(ServerError::UnknownShare(_)));
    assert!(unknown(it.server.change_share(share("none"))));
    assert!(unknown(it.server.remove_share(&none, Force::Yes)));
    assert!(unknown(it.server.erase_share(&none, Force::Yes)));
    assert!(unknown(it.server.share(&none).map(|_| ())));
    assert!(client.lookup(&root, "table").is_ok());
    assert_eq!(it.used_bytes(), before);
    it.server.stop(PATIENCE);
    let stopping = |result| matches!(result, Err(ServerError::Stopping));
    assert!(stopping(it.server.create_share(share("late"))));
    assert!(stopping(it.server.remove_share(&name_of("db"), Force::Yes)));
}

#[test]
fn connections_are_charged_to_the_budget() {
    let it = Fixture::new(64 * MIB);
    let (client, _) = it.mounted("/db");
    let one = it.used_bytes();
    let mut others = vec![it.mounted("/db").0];
    let each = it.used_bytes() - one;
    assert!(each > 256 << 10, "{each} bytes");
    let rejected = || it.server.capacity().rejected_connections;
    while rejected() == 0 {
        assert!(others.len() < 1000, "the budget has room for all");
        others.push(it.client());
        let other = others.last_mut().expect("the one just added");
        // The call fails if the connection was rejected.
        let _ = other.try_call(NFS, client::NULL, &Arguments::default());
    }
    assert!(it.used_bytes() <= 64 * MIB);
    drop((client, others));
    wait_until(|| it.used_bytes() <= one - each);
    it.mounted("/db");
}

#[test]
fn a_full_budget_is_no_space_and_nothing_else() {
    let it = Fixture::new(48 * MIB);
    let (mut client, root) = it.mounted("/db");
    let file = client.create(&root, "large").expect("a file");
    let data = pattern(1 << 20);
    let full = (0..64).find_map(|part| client.write(&file, part * MIB, &data).err());
    assert_eq!(full, Some(28), "NFS3ERR_NOSPC");
    assert_eq!(client.read(&file, 0, 1 << 20), Ok(data.clone()));
    assert_eq!(
        client.status(client::REMOVE, &client::remove(&root, "large")),
        OK
    );
    let file = client.create(&root, "small").expect("a file");
    assert!(client.write(&file, 0, &data).is_ok());
}

#[test]
fn a_quota_is_kept_and_raised() {
    let it = Fixture::new(256 * MIB);
    let ramfs = |quota_bytes, files_max| ShareKind::Ramfs {
        quota_bytes: Some(quota_bytes),
        files_max,
    };
    it.change("db", |db| db.kind = ramfs(2 * MIB, 3));
    let (mut client, root) = it.mounted("/db");
    let file = client.create(&root, "a").expect("a file");
    let data = pattern(1 << 20);
    let mut written = (0..4).map(|part| client.write(&file, part * MIB, &data));
    let refused = written.find_map(Result::err);
    assert!(matches!(refused, Some(28 | 69)), "{refused:?}");
    it.change("db", |db| db.kind = ramfs(16 * MIB, 3));
    assert!(client.write(&file, 0, &pattern(3 << 20)[..1 << 20]).is_ok());
    assert!(client.write(&file, 3 * MIB, &data).is_ok());
}

#[test]
fn a_server_stops_while_clients_are_connected() {
    let it = Fixture::new(256 * MIB);
    let (mut client, root) = it.mounted("/db");
    let mut idle = it.client();
    assert_eq!(client.getattr(&root), OK);
    let began = Instant::now();
    it.server.stop(PATIENCE);
    assert!(began.elapsed() < PATIENCE / 2, "{:?}", began.elapsed());
    assert!(is_closed(&mut client) && is_closed(&mut idle));
    assert!(it.server.sessions().is_empty());
}

#[test]
fn a_peer_that_breaks_record_marking_is_disconnected_and_others_go_on() {
    let it = Fixture::new(256 * MIB);
    let (mut own, root) = it.mounted("/db");
    let mut hostile = it.client();
    // A fragment of 2 GiB.
    hostile.send(&[0xff; 64]).expect("sent");
    assert!(is_closed(&mut hostile));
    assert_eq!(own.getattr(&root), OK);
}

#[test]
fn a_peer_that_does_not_read_takes_bounded_memory() {
    let it = Fixture::new(256 * MIB);
    let (mut own, root) = it.mounted("/db");
    let file = own.create(&root, "large").expect("a file");
    own.write(&file, 0, &pattern(1 << 20)).expect("written");
    let (mut greedy, _) = it.mounted("/db");
    let before = it.used_bytes();
    greedy.stream.set_nonblocking(true).expect("a socket");
    let call = greedy.encode(NFS, client::READ, &client::read(&file, 0, 1 << 20));
    // Sent until the socket takes no more: a call that was cut is fine, since no reply is read.
    let sent = (0..1_000_000).position(|_| greedy.send(&call).is_err());
    assert!(sent.is_some(), "the server reads without end");
    assert!(
        it.used_bytes() - before <= MIB,
        "{}",
        it.used_bytes() - before
    );
    assert_eq!(own.read(&file, 0, 1 << 20), Ok(pattern(1 << 20)));
}
