use std::collections::HashMap;
use std::os::unix::net::UnixListener;
use std::sync::mpsc::{Receiver, channel};

use super::*;

/// What rpcbind does with RPCBPROC_SET and RPCBPROC_UNSET, on a socket of its own: one address per
/// program, version and transport. Sends what is registered after each connection.
fn rpcbind(socket: &Path) -> Receiver<HashMap<Vec<u8>, Vec<u8>>> {
    let listener = UnixListener::bind(socket).expect("a new socket");
    let (sender, receiver) = channel();
    thread::spawn(move || {
        let mut registered = HashMap::new();
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            while let Some(done) = answer(&mut stream, &mut registered) {
                assert!(done <= 1);
            }
            if sender.send(registered.clone()).is_err() {
                return;
            }
        }
    });
    receiver
}

fn answer(stream: &mut UnixStream, registered: &mut HashMap<Vec<u8>, Vec<u8>>) -> Option<u8> {
    let mut header = [0; 4];
    stream.read_exact(&mut header).ok()?;
    let mut call = vec![0; (u32::from_be_bytes(header) & !(1 << 31)) as usize];
    stream.read_exact(&mut call).ok()?;
    let (netid_len, behind) = (call[51] as usize, &call[52..]);
    let key = [&call[40..48], &behind[..netid_len]].concat();
    let behind = &behind[netid_len.next_multiple_of(4)..];
    let address = behind[4..4 + behind[3] as usize].to_vec();
    let is_done = match call[23] {
        1 => registered.entry(key).or_insert(address.clone()) == &address,
        2 => registered.remove(&key).is_some(),
        other => panic!("procedure {other}"),
    };
    let done = u8::from(is_done);
    let head = [0x80, 0, 0, 28];
    let rest = [0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let reply = [&head, &call[..4], &rest, &[0, 0, 0, done]].concat();
    stream.write_all(&reply).expect("a reader");
    Some(done)
}

fn address(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

fn tcp(text: &str) -> (IpProtocol, SocketAddr) {
    (IpProtocol::Tcp, address(text))
}

/// The addresses that are registered, each once, sorted.
fn addresses(registered: &HashMap<Vec<u8>, Vec<u8>>) -> Vec<String> {
    let mut texts: Vec<_> = (registered.values())
        .map(|address| String::from_utf8_lossy(address).into_owned())
        .collect();
    texts.sort();
    texts.dedup();
    texts
}

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("ramport-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        Self(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const PATIENCE: Duration = Duration::from_secs(20);

#[test]
fn portals_are_registered_moved_and_removed() {
    let folder = Folder::new("portmapper");
    let socket = folder.0.join("rpcbind.sock");
    let received = rpcbind(&socket);
    let portmapper = Portmapper::start(Some(socket)).expect("a thread");
    let next = || received.recv_timeout(PATIENCE).expect("a connection");

    portmapper.register([tcp("192.0.2.1:2049")].into_iter());
    let registered = next();
    assert_eq!(registered.len(), 5, "NFS 3 and 4, MOUNT 3, NLM 4, NSM 1");
    assert_eq!(addresses(&registered), ["192.0.2.1.8.1"]);

    portmapper.register([tcp("192.0.2.1:2050"), tcp("[2001:db8::1]:2049")].into_iter());
    let registered = next();
    assert_eq!(registered.len(), 10, "both versions of IP");
    assert_eq!(addresses(&registered), ["192.0.2.1.8.2", "2001:db8::1.8.1"]);

    portmapper.stop(PATIENCE);
    assert_eq!(addresses(&next()), [""; 0]);
}

#[test]
fn a_registration_of_another_server_is_left_alone() {
    let folder = Folder::new("portmapper-other");
    let socket = folder.0.join("rpcbind.sock");
    let received = rpcbind(&socket);
    let next = || received.recv_timeout(PATIENCE).expect("a connection");
    let other = Portmapper::start(Some(socket.clone())).expect("a thread");
    other.register([tcp("192.0.2.1:2049")].into_iter());
    assert_eq!(addresses(&next()), ["192.0.2.1.8.1"]);

    let portmapper = Portmapper::start(Some(socket)).expect("a thread");
    portmapper.register([tcp("192.0.2.1:2050")].into_iter());
    assert_eq!(addresses(&next()), ["192.0.2.1.8.1"], "refused");
    portmapper.stop(PATIENCE);
    other.stop(PATIENCE);
    assert_eq!(addresses(&next()), [""; 0]);
}

#[test]
fn an_absent_portmapper_holds_nothing_up() {
    let folder = Folder::new("portmapper-absent");
    let portmapper = Portmapper::start(Some(folder.0.join("none"))).expect("a thread");
    portmapper.register([tcp("192.0.2.1:2049")].into_iter());
    portmapper.stop(PATIENCE);
    let wish = portmapper.0.as_ref().expect("it has a thread");
    assert!(wish.lock().has_ended);
}

#[test]
fn one_portal_per_version_of_ip_is_registered_and_none_on_loopback() {
    let chosen = |portals: &[&str]| {
        let portals: Vec<_> = portals.iter().map(|text| tcp(text)).collect();
        registrations(&portals)
    };
    let of = |texts: &[&str]| -> Vec<_> {
        let portals = texts.iter().map(|text| tcp(text));
        portals
            .flat_map(|(protocol, address)| Registration::of_portal(protocol, address))
            .collect()
    };
    assert_eq!(chosen(&["127.0.0.1:2049", "[::1]:2049"]), []);
    assert_eq!(
        chosen(&["192.0.2.1:1000", "192.0.2.2:2049", "127.0.0.1:9"]),
        of(&["192.0.2.2:2049"])
    );
    assert_eq!(
        chosen(&["[::]:2049"]),
        of(&["0.0.0.0:2049", "[::]:2049"]),
        "it serves both"
    );
    assert_eq!(
        chosen(&["[::]:2049", "192.0.2.1:2049"]),
        of(&["192.0.2.1:2049", "[::]:2049"])
    );
}

#[test]
fn portals_for_udp_are_registered_beside_those_for_tcp() {
    let udp = |text| (IpProtocol::Udp, address(text));
    let chosen = registrations(&[
        tcp("192.0.2.1:2049"),
        udp("[::]:2049"),
        udp("127.0.0.1:2049"),
    ]);
    let shown: Vec<_> = chosen.iter().map(ToString::to_string).collect();
    assert_eq!(shown.len(), 5 + 4, "version 4 is not served over UDP");
    for text in [
        "program 100003 version 3 at tcp 192.0.2.1:2049",
        "program 100003 version 4 at tcp 192.0.2.1:2049",
        "program 100003 version 3 at udp6 [::]:2049",
        "program 100021 version 4 at udp6 [::]:2049",
    ] {
        assert!(shown.contains(&text.to_owned()), "{text}: {shown:?}");
    }
}
