//! Shares, from the command line and with calls of a client.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use crate::daemon::Daemon;

/// How long a session that ended may be counted.
const SESSION_END: Duration = Duration::from_secs(30);
/// NFS3ERR_STALE (RFC 1813 section 2.6).
const STALE: u32 = 70;
/// MNT3ERR_ACCES (RFC 1813 section 5.1.5).
const DENIED: u32 = 13;
const MOUNT: u32 = 100_005;
const NFS: u32 = 100_003;

/// A client that makes single calls as user 0 and waits for each reply.
struct Client(TcpStream);

impl Client {
    fn connect(daemon: &Daemon) -> Self {
        let portals = daemon.json(&["portal", "ls"]);
        let mut urls = (portals.as_array().expect("a list").iter())
            .filter_map(|portal| portal["url"].as_str()?.strip_prefix("nfs://"));
        let address: SocketAddr =
            (urls.next().expect("an NFS portal").parse()).expect("an address");
        Self(TcpStream::connect(address).expect("it listens"))
    }

    /// Calls a procedure of version 3 of a program; returns its status and the results behind it.
    fn call(&mut self, program: u32, procedure: u32, arguments: &[u8]) -> (u32, Vec<u8>) {
        // Transaction, CALL, RPC version 2; AUTH_SYS of 20 bytes: stamp, no machine name, user and
        // group 0, no other groups; AUTH_NONE.
        let head = [1, 0, 2, program, 3, procedure, 1, 20, 0, 0, 0, 0, 0, 0, 0];
        let head = head.map(u32::to_be_bytes).concat();
        let call = [&head, arguments].concat();
        let mark = 1 << 31 | u32::try_from(call.len()).expect("short");
        let record = [&mark.to_be_bytes()[..], &call].concat();
        self.0.write_all(&record).expect("sent");
        let mut mark = [0; 4];
        self.0.read_exact(&mut mark).expect("a reply");
        let mut reply = vec![0; (u32::from_be_bytes(mark) & 0x7fff_ffff) as usize];
        self.0.read_exact(&mut reply).expect("a whole reply");
        let word = |at: usize| u32::from_be_bytes(reply[at..at + 4].try_into().expect("4 bytes"));
        // Transaction, REPLY, accepted, AUTH_NONE without a body, SUCCESS; then the procedure's
        // status.
        assert_eq!([word(0), word(4), word(8), word(20)], [1, 1, 0, 0]);
        (word(24), reply[28..].to_vec())
    }

    /// The handle of the root of a share, or the status of MOUNT.
    fn mount(&mut self, path: &str) -> Result<Vec<u8>, u32> {
        let (status, results) = self.call(MOUNT, 1, &opaque(path.as_bytes()));
        if status != 0 {
            return Err(status);
        }
        let len = u32::from_be_bytes(results[..4].try_into().expect("4 bytes")) as usize;
        Ok(results[4..4 + len].to_vec())
    }

    /// MKDIR without attributes; returns the status.
    fn make_directory(&mut self, parent: &[u8], name: &str) -> u32 {
        let no_attributes = [0; 6 * 4];
        let arguments = [
            opaque(parent),
            opaque(name.as_bytes()),
            no_attributes.into(),
        ];
        self.call(NFS, 9, &arguments.concat()).0
    }

    /// GETATTR; returns the status.
    fn attributes(&mut self, file: &[u8]) -> u32 {
        self.call(NFS, 1, &opaque(file)).0
    }
}

/// Bytes with their length before them, and zeros up to a multiple of four.
fn opaque(bytes: &[u8]) -> Vec<u8> {
    let len = u32::try_from(bytes.len()).expect("short");
    let mut all = [&len.to_be_bytes()[..], bytes].concat();
    all.resize(all.len().next_multiple_of(4), 0);
    all
}

fn start(name: &str) -> Daemon {
    let daemon = Daemon::start_with(name, &["--nfs", "127.0.0.1:0"]);
    let options = "insecure,no_root_squash";
    daemon.ok(&[
        "share",
        "create",
        "db",
        "--quota",
        "8M",
        "--options",
        options,
    ]);
    daemon
}

#[test]
fn a_share_lives_from_creation_to_removal() {
    let daemon = start("share-life");
    let shown = daemon.ok(&["share", "show", "db"]);
    for text in [
        "files     0 of 1048576\n",
        "quota     8 MiB\n",
        "options   rw,sync,insecure,no_root_squash,anonuid=65534,anongid=65534\n",
        " 127.0.0.1:/db /mnt\n",
    ] {
        assert!(shown.contains(text), "{text}: {shown}");
    }
    daemon.ok(&["share", "set", "db", "--options", "ro", "--no-quota"]);
    let share = daemon.json(&["share", "show", "db"]);
    assert_eq!(
        share["options"],
        "ro,sync,insecure,no_root_squash,anonuid=65534,anongid=65534"
    );
    assert_eq!(share["quota_bytes"], serde_json::Value::Null);
    daemon.ok(&[
        "share",
        "set",
        "db",
        "--client",
        "192.0.2.0/24",
        "--client",
        "::1",
    ]);
    let listed = daemon.ok(&["share", "ls"]);
    assert!(
        listed.contains("ramfs, read-only  192.0.2.0/24 ::1"),
        "{listed}"
    );
    let mut client = Client::connect(&daemon);
    assert_eq!(
        client.mount("/db"),
        Err(DENIED),
        "its address is not listed"
    );
    daemon.ok(&["share", "set", "db", "--no-clients"]);
    let root = client.mount("/db");
    let root = root.expect("any address through loopback");
    assert_eq!(client.attributes(&root), 0);
    let tree = daemon.ok(&["ls"]);
    assert!(tree.contains("db  0 files, "), "{tree}");
    assert!(tree.contains("nfs sessions"), "{tree}");
    let session = daemon.json(&["session", "ls"])[0].clone();
    assert_eq!(
        (&session["transport"], &session["nfs"]["shares"]),
        (&"nfs".into(), &serde_json::json!(["db"]))
    );
    assert_eq!(session["nfs"]["procedures"]["mount_mnt"]["operations"], 2);
    drop(client);
    daemon.ok(&["share", "rm", "db", "--force"]);
    assert_eq!(daemon.json(&["share", "ls"]), serde_json::json!([]));
}

#[test]
fn a_share_that_holds_files_or_is_used_is_removed_only_by_force() {
    let daemon = start("share-files");
    let mut client = Client::connect(&daemon);
    let root = client.mount("/db").expect("it is exported");
    assert_eq!(client.make_directory(&root, "sub"), 0);
    let told = daemon.mistake(&["share", "rm", "db"]);
    assert!(told.contains("is used by 1 sessions"), "{told}");
    drop(client);
    let begin = Instant::now();
    while daemon.json(&["share", "show", "db"])["sessions"] != 0 {
        assert!(begin.elapsed() < SESSION_END, "the session stays");
        thread::sleep(Duration::from_millis(10));
    }
    let told = daemon.mistake(&["share", "rm", "db"]);
    assert!(told.contains("share db holds 1 files"), "{told}");
    assert!(told.contains("use --force"), "{told}");
    assert_eq!(daemon.metric("ramport_share_files", "db"), 1);
    let mut client = Client::connect(&daemon);
    daemon.ok(&["share", "erase", "db", "--force"]);
    assert_eq!(client.attributes(&root), STALE);
    assert_eq!(daemon.json(&["share", "show", "db"])["files"], 0);
    daemon.ok(&["share", "rm", "db", "--force"]);
}

#[test]
fn a_share_is_served_empty_after_a_restart_and_handles_of_lost_files_are_stale() {
    let mut daemon = start("share-lost");
    let mut client = Client::connect(&daemon);
    let root = client.mount("/db").expect("it is exported");
    assert_eq!(client.make_directory(&root, "sub"), 0);
    daemon.kill_and_restart();
    let share = daemon.json(&["share", "show", "db"]);
    assert_eq!(
        (&share["files"], &share["contents"]),
        (&0.into(), &"lost".into())
    );
    let listed = daemon.ok(&["share", "ls"]);
    assert!(listed.contains("ramfs, contents lost"), "{listed}");
    let mut client = Client::connect(&daemon);
    assert_eq!(
        client.attributes(&root),
        STALE,
        "even its root is another file"
    );
    let root = client.mount("/db").expect("it is exported");
    assert_eq!(client.make_directory(&root, "sub"), 0);
    let share = daemon.json(&["share", "show", "db"]);
    assert_eq!(share["contents"], "present", "somebody uses it again");
}

#[test]
fn shares_are_applied_and_exported() {
    let daemon = start("share-apply");
    let exported = daemon.ok(&["export"]);
    assert!(exported.contains("[shares.db]"), "{exported}");
    let file = daemon.folder.join("site.toml");
    std::fs::write(&file, exported.replace("8 MiB", "16 MiB")).expect("written");
    let file = file.to_str().expect("text");
    let shown = daemon.ok(&["apply", file]);
    assert!(
        shown.contains("~ share db quota: 8 MiB -> 16 MiB"),
        "{shown}"
    );
    assert_eq!(
        daemon.json(&["share", "show", "db"])["quota_bytes"],
        16 << 20
    );
    std::fs::write(file, "").expect("written");
    let output = daemon.run(&["apply", file]);
    assert_eq!(output.status.code(), Some(1));
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("the contents of share db"), "{told}");
}
