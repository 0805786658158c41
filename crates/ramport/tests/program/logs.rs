//! What the daemon logs: who changed what, what peers cause, and what the memory budget rejects.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use crate::daemon::{Daemon, ramport};

/// The maximum time until a line is written.
const LINE_TIME: Duration = Duration::from_secs(30);
const SECRET: &str = "open sesame, please";

/// A daemon whose log goes to a file. Verbs are those of [`Daemon`].
pub(crate) struct Logged {
    pub(crate) daemon: Daemon,
    log: PathBuf,
}

impl Logged {
    pub(crate) fn start(name: &str, more: &[&str]) -> Self {
        let mut daemon = Daemon::start(name);
        end(&mut daemon.child);
        let log = daemon.folder.join("log");
        let file = File::create(&log).expect("created");
        let data = file.metadata().expect("it has metadata");
        daemon.child = ramport()
            .args(["serve", "--cores", "1", "--drain", "1"])
            .args(["--nvme-tcp", "127.0.0.1:0"])
            .args(more)
            .arg("--socket")
            .arg(daemon.folder.join("socket"))
            .arg("--state")
            .arg(daemon.folder.join("state"))
            .env("JOURNAL_STREAM", format!("{}:{}", data.dev(), data.ino()))
            .stdin(Stdio::null())
            .stderr(file)
            .spawn()
            .expect("the daemon starts");
        daemon.wait();
        Self { daemon, log }
    }

    pub(crate) fn text(&self) -> String {
        fs::read_to_string(&self.log).expect("the log")
    }

    /// Waits for the first line with all of `parts`.
    pub(crate) fn line(&self, parts: &[&str]) -> String {
        let begin = Instant::now();
        loop {
            let text = self.text();
            let has_all = |line: &&str| parts.iter().all(|part| line.contains(part));
            if let Some(line) = text.lines().find(has_all) {
                return line.to_owned();
            }
            assert!(begin.elapsed() < LINE_TIME, "{parts:?} is not in:\n{text}");
            thread::sleep(Duration::from_millis(20));
        }
    }
}

fn end(child: &mut Child) {
    rustix::process::kill_process(Pid::from_child(child), Signal::TERM).expect("sent");
    child.wait().expect("ended");
}

/// Sends definitions as they stand, and returns the answer.
fn put(daemon: &Daemon, body: &str) -> String {
    let head = "PUT /v1/definitions HTTP/1.1\r\nhost: x\r\nconnection: close\r\n";
    let request = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
    let socket = UnixStream::connect(daemon.folder.join("socket"));
    let mut socket = socket.expect("it listens");
    socket.write_all(request.as_bytes()).expect("sent");
    let mut answer = String::new();
    socket.read_to_string(&mut answer).expect("an answer");
    answer
}

#[test]
fn changes_are_logged_with_their_sender_and_outcome_and_without_secrets() {
    let logged = Logged::start("audit", &["--memory", "256M"]);
    let daemon = &logged.daemon;
    daemon.ok(&["volume", "create", "rd0", "--size", "4M"]);
    let uid = rustix::process::getuid().as_raw();
    let sender = format!("uid={uid} pid=");
    let socket = format!("socket={:?}", daemon.folder.join("socket"));
    let who = [sender.as_str(), socket.as_str()];
    let has = |parts: &[&str]| logged.line(&[&who[..], parts].concat());
    let line = has(&["changed", r#"change="+ volume rd0 "#]);
    assert!(line.starts_with("<6>"), "{line}");
    has(&[
        "audit: done",
        r#"request="POST /v1/volumes/rd0" status=201"#,
    ]);
    daemon.mistake(&["volume", "create", "rd0", "--size", "4M"]);
    has(&[
        "audit: rejected",
        "status=409",
        r#"reason="volume rd0 already exists"#,
    ]);
    daemon.mistake(&["volume", "show", "none"]);
    let file = daemon.folder.join("secret");
    fs::write(&file, SECRET).expect("written");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("set");
    let file = file.to_str().expect("a plain path");
    let host = "iqn.2025-01.com.example:h";
    daemon.ok(&["host", "create", host, "--chap-secret-file", file]);
    has(&["changed", host, "secret (hidden)"]);
    // The error of an invalid body goes only to its sender.
    let wrong = format!(r#"{{"hosts": {{"{host}": {{"chap": "{SECRET}"}}}}}}"#);
    let answer = put(daemon, &wrong);
    assert!(answer.contains(SECRET), "it says what is wrong: {answer}");
    let not_understood = r#"reason="the body is not what is expected""#;
    has(&[
        r#"request="PUT /v1/definitions" status=400"#,
        not_understood,
    ]);
    daemon.ok(&["export", "--with-secrets", "--output", file]);
    has(&["definitions were read with secrets"]);
    daemon.ok(&["volume", "erase", "rd0"]);
    has(&["erased", "volume=rd0"]);
    daemon.ok(&["volume", "remove", "rd0"]);
    has(&[
        "audit: done",
        r#"request="DELETE /v1/volumes/rd0" status=204"#,
    ]);
    let text = logged.text();
    assert!(!text.contains(SECRET), "{text}");
    assert!(
        !text
            .replace(r#"request="GET /v1/definitions?with_secrets"#, "")
            .contains("request=\"GET"),
        "reading is no change: {text}"
    );
}

#[test]
fn changes_over_tcp_are_logged_with_address_and_token() {
    let folder = std::env::temp_dir().join(format!("ramport-token-log-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("created");
    let token = |name: &str, text: &str| {
        let file = folder.join(name);
        fs::write(&file, text).expect("written");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("set");
        file.to_str().expect("a plain path").to_owned()
    };
    let right = token("operators", "a-secret-of-some-length");
    let wrong = token("others", "another-secret-of-length");
    let tcp = ["--api-listen", "127.0.0.1:0", "--api-token-file", &right];
    let logged = Logged::start("audit-tcp", &tcp);
    let line = logged.line(&["REST on TCP"]);
    let address = line
        .split("address=\"")
        .nth(1)
        .and_then(|rest| rest.split('"').next());
    let address = address.expect("an address").to_owned();
    let run = |file: &str| {
        ramport()
            .args(["--api", &address, "--api-token-file", file])
            .args(["volume", "create", "rd0", "--size", "4M"])
            .output()
            .expect("the program runs")
    };
    for _ in 0..20 {
        assert_eq!(run(&wrong).status.code(), Some(2));
    }
    assert!(run(&right).status.success());
    logged.line(&[
        "audit: done",
        "client=\"127.0.0.1:",
        "token=\"operators\"",
        "status=201",
    ]);
    let text = logged.text();
    assert_eq!(
        text.matches("token is missing or wrong").count(),
        1,
        "{text}"
    );
    assert!(
        !text.contains("a-secret-of") && !text.contains("another-secret"),
        "{text}"
    );
    fs::remove_dir_all(folder).expect("removed");
}

#[test]
fn rejected_hosts_cost_a_line_per_cause_and_cannot_forge_one() {
    let logged = Logged::start("rejected", &["--memory", "256M", "--iscsi", "127.0.0.1:0"]);
    let portals = logged.daemon.json(&["portal", "list"]);
    let portals = portals.as_array().expect("a list");
    for (scheme, target, event) in [
        (
            "iscsi",
            "iqn.2025-01.com.example:none",
            "a login was refused",
        ),
        (
            "nvme+tcp",
            "nqn.2025-01.com.example:none",
            "a connect was rejected",
        ),
    ] {
        let mut urls = portals.iter().filter_map(|portal| portal["url"].as_str());
        let url = urls.find(|url| url.starts_with(scheme));
        let url = url.expect("the portal");
        for number in 0..20 {
            let name = format!("{url}/{target}-{number}");
            let output = logged.daemon.run(&["bench", &name, "--runtime", "1"]);
            assert_eq!(output.status.code(), Some(2));
        }
        let first = format!("target=\"{target}-0\"");
        let line = logged.line(&[event, &first]);
        assert!(line.starts_with("<4>"), "{line}");
        let text = logged.text();
        assert_eq!(text.matches(event).count(), 1, "{text}");
    }
}

#[test]
fn hosts_without_a_required_secret_are_logged_with_how_to_give_them_one() {
    let portals = ["--iscsi", "127.0.0.1:0?auth=required"];
    let logged = Logged::start("required", &[&portals[..], &["--memory", "256M"]].concat());
    let daemon = &logged.daemon;
    let listed = daemon.json(&["portal", "ls"]);
    let url = |scheme: &str| {
        let portals = listed.as_array().expect("a list");
        let mut urls = portals.iter().filter_map(|portal| portal["url"].as_str());
        urls.find(|url| url.starts_with(scheme)).expect("a portal")
    };
    let (iscsi, nvme) = (url("iscsi"), url("nvme+tcp"));
    daemon.ok(&["portal", "set", nvme, "--require-auth", "on"]);
    let shown = daemon.json(&["portal", "show", nvme]);
    assert_eq!(
        (&shown["require_auth"], &shown["open"]),
        (&true.into(), &false.into())
    );
    assert!(daemon.ok(&["portal", "ls"]).contains("required"));
    for (url, target, event, hint) in [
        (
            iscsi,
            "iqn.2025-01.com.example:t",
            "a login was refused",
            "--chap-secret-file",
        ),
        (
            nvme,
            "nqn.2025-01.com.example:t",
            "since the portal requires",
            "--dhchap-secret-file",
        ),
    ] {
        daemon.ok(&["target", "create", target]);
        let (bare, _) = url.split_once('?').unwrap_or((url, ""));
        let output = daemon.run(&["bench", &format!("{bare}/{target}"), "--runtime", "1"]);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let line = logged.line(&[event, hint]);
        assert!(line.starts_with("<4>"), "{line}");
    }
    let refused = daemon.mistake(&["portal", "set", nvme, "--require-auth", "perhaps"]);
    assert!(refused.contains("on, off"), "{refused}");
    // Without it, only the target's list decides.
    daemon.ok(&["portal", "set", iscsi, "--require-auth", "off"]);
    let (bare, _) = iscsi.split_once('?').expect("an option");
    let output = daemon.run(&["discover", bare]);
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn a_portal_that_admits_strangers_is_marked_and_logged_once() {
    let more = ["--nvme-tcp", "0.0.0.0:0", "--memory", "256M"];
    let logged = Logged::start("strangers", &more);
    logged.line(&[
        "without authentication or TLS",
        "portal=nvme+tcp://0.0.0.0",
        "--require-auth on",
    ]);
    let daemon = &logged.daemon;
    daemon.ok(&["portal", "create", "nfs://0.0.0.0:0"]);
    logged.line(&["clients by address alone", "portal=nfs://0.0.0.0"]);
    daemon.ok(&["portal", "create", "nvme+tcp://0.0.0.0:0?tls=required"]);
    let portals = daemon.json(&["portal", "ls"]);
    for portal in portals.as_array().expect("a list") {
        let url = portal["url"].as_str().expect("a URL");
        let is_safe = url.contains("127.0.0.1") || url.contains("tls=required");
        assert_eq!(portal["open"], !is_safe, "{portal}");
    }
    let list = daemon.ok(&["portal", "ls"]);
    for (url, auth) in [
        ("nvme+tcp://0.0.0.0", "open to anyone"),
        ("nfs://0.0.0.0", "client addresses"),
    ] {
        let mut lines = list.lines();
        let is_marked = lines.any(|line| line.starts_with(url) && line.contains(auth));
        assert!(is_marked, "{list}");
    }
    assert_eq!(
        logged
            .text()
            .matches("other machines reach this portal")
            .count(),
        2
    );
}

#[test]
fn what_the_budget_cannot_give_is_logged_and_counted() {
    const TARGET: &str = "nqn.2025-01.com.example:big";
    let logged = Logged::start("shortage", &["--memory", "16M"]);
    let daemon = &logged.daemon;
    let file = daemon.folder.join("file");
    let file = file.to_str().expect("a path in UTF-8");
    daemon.ok(&["volume", "create", "disk", "--file", file, "--size", "1G"]);
    daemon.ok(&["volume", "create", "big", "--size", "1G"]);
    daemon.ok(&["target", "create", TARGET, "--volume", "big"]);
    logged.line(&["larger than the memory budget", r#"volumes="big""#]);
    let portals = daemon.json(&["portal", "list"]);
    let portal = portals[0]["url"].as_str().expect("a URL");
    let url = format!("{portal}/{TARGET}");
    let fill = "--rw write --bs 1M --size 64M --iodepth 1 --write";
    let args: Vec<_> = fill.split(' ').collect();
    let output = daemon.run(&[&["bench", &url], &args[..]].concat());
    assert_eq!(output.status.code(), Some(1), "writes fail");
    let line = logged.line(&["writes failed because the memory budget is used up"]);
    assert!(
        line.starts_with("<4>") && line.contains("budget_bytes=16777216"),
        "{line}"
    );
    // The budget has no room for a connection either.
    let address = portal.trim_start_matches("nvme+tcp://");
    let connect = |_| TcpStream::connect(address).expect("it listens");
    let _peers: Vec<_> = (0..16).map(connect).collect();
    logged.line(&["connections were rejected because the memory budget is used up"]);
    let capacity = daemon.json(&["capacity"]);
    let figure = |name: &str| capacity[name].as_u64().expect("a number");
    assert_eq!(figure("oversized_volumes"), 1);
    assert_eq!(figure("promised_bytes"), 1 << 30, "not of the file");
    assert!(
        figure("failed_writes") > 0 && figure("rejected_connections") > 0,
        "{capacity}"
    );
    let text = logged.text();
    assert_eq!(text.matches("writes failed because").count(), 1, "{text}");
    let shown = daemon.ok(&["capacity"]);
    assert!(
        shown.contains("writes failed for lack of memory"),
        "{shown}"
    );
}

/// Secure channel concatenation by our own host, which authenticates again each second.
#[test]
fn a_host_that_replaces_its_key_for_tls_is_logged() {
    const HOST: &str = "nqn.2025-01.com.example:host";
    const NQN: &str = "nqn.2025-01.com.example:replaced";
    let logged = Logged::start("replaced", &["--log-level", "debug"]);
    let daemon = &logged.daemon;
    let made = daemon.json(&["host", "keygen"]);
    let secret = daemon.folder.join("secret");
    fs::write(&secret, made["secret"].as_str().expect("a secret")).expect("written");
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).expect("set");
    let secret = secret.to_str().expect("a plain path");
    daemon.ok(&["volume", "create", "rd0", "--size", "4M"]);
    daemon.ok(&["host", "create", HOST, "--dhchap-secret-file", secret]);
    daemon.ok(&["target", "create", NQN, "--volume", "rd0", "--host", HOST]);
    daemon.ok(&["portal", "create", "nvme+tcp://127.0.0.1:0?tls=allowed"]);
    let portals = daemon.json(&["portal", "ls"]);
    let mut portals = portals.as_array().expect("a list").iter();
    let portal = portals.find_map(|portal| portal["url"].as_str()?.strip_suffix("?tls=allowed"));
    let portal = portal.expect("the portal");
    let options = format!("tls=generated&dhchap-interval=1&dhchap-secret-file={secret}");
    let url = format!("{portal}/{NQN}?hostnqn={HOST}&{options}");
    let output = daemon.run(&["bench", &url, "--rw", "read", "--runtime", "3"]);
    assert!(output.status.success(), "{output:?}");
    logged.line(&["a host replaced its key for TLS", HOST, NQN]);
    assert!(!logged.text().contains("rejected a host"));
}
