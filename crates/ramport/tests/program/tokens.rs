//! REST over TCP as a person uses it: tokens, roles, TLS, the audit log; and what no core dump has.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::daemon::{Daemon, ramport};
use crate::logs::Logged;

const PATIENCE: Duration = Duration::from_secs(30);

/// A daemon that serves REST at a port of its own over TLS, and writes an audit log. Also returns
/// the URL.
fn start(name: &str) -> (Daemon, String) {
    let audit = std::env::temp_dir().join(format!("ramport-{name}-{}", std::process::id()));
    let audit = audit.join("audit").display().to_string();
    let mut daemon = Daemon::start_with(
        name,
        &[
            "--log-level",
            "error,ramport=info",
            "--api-listen",
            "127.0.0.1:0",
            "--api-tls",
            "on",
            "--audit-log",
            &audit,
        ],
    );
    let api = format!("https://{}", daemon.rest_address(1));
    (daemon, api)
}

/// A new token, in a file.
fn token(daemon: &Daemon, role: &str) -> String {
    let text = daemon.ok(&["token", "create", role, "--role", role]);
    let file = daemon.folder.join(role);
    fs::write(&file, text).expect("written");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("set");
    file.to_str().expect("a plain path").to_owned()
}

fn over_tls(daemon: &Daemon, api: &str, token: &str, args: &[&str]) -> Output {
    ramport()
        .args(["--api", api, "--api-token-file", token, "--api-ca"])
        .arg(daemon.folder.join("api-cert.pem"))
        .args(args)
        .output()
        .expect("the program runs")
}

#[test]
fn holders_of_tokens_do_what_their_role_includes_and_the_audit_log_has_it() {
    let (daemon, api) = start("tokens");
    let [reader, operator] = ["read-only", "operator"].map(|role| token(&daemon, role));
    let told = daemon.mistake(&["token", "create", "operator", "--role", "operator"]);
    assert!(told.contains("already exists"), "{told}");
    let create = ["volume", "create", "rd0", "--size", "4M"];
    let refused = over_tls(&daemon, &api, &reader, &create);
    assert_eq!(refused.status.code(), Some(2));
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(told.contains("needs operator"), "{told}");
    let done = over_tls(&daemon, &api, &operator, &create);
    assert!(done.status.success(), "{done:?}");
    let listed = over_tls(&daemon, &api, &reader, &["volume", "ls"]);
    assert!(String::from_utf8_lossy(&listed.stdout).contains("rd0"));
    let tokens = daemon.json(&["token", "ls"]);
    assert_eq!(tokens[0]["role"], "operator");
    daemon.ok(&["token", "remove", "operator"]);
    let refused = over_tls(&daemon, &api, &operator, &["volume", "ls"]);
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(told.contains("token is missing or wrong"), "{told}");
    // A stranger's certificate: the system's issuers signed none such.
    let stranger = ramport()
        .args(["--api", &api])
        .args(["--api-token-file", &reader, "--api-ca"])
        .arg(daemon.folder.join("read-only"))
        .args(["volume", "ls"])
        .output()
        .expect("the program runs");
    let told = String::from_utf8_lossy(&stranger.stderr).into_owned();
    assert!(told.contains("--api-ca"), "{told}");

    let lines = audit_lines(&daemon, |lines| {
        lines
            .iter()
            .any(|line| line["fields"]["message"] == "done" && line["span"]["token"] == "operator")
    });
    let of = |outcome: &str, token: &str| {
        let mut found = lines.iter();
        found.find(|line| line["fields"]["message"] == outcome && line["span"]["token"] == token)
    };
    let done = of("done", "operator").expect("the operator's change");
    assert_eq!(done["fields"]["request"], "POST /v1/volumes/rd0");
    assert!(done["timestamp"].is_string(), "{done}");
    let rejected = of("rejected", "read-only").expect("the reader's request");
    assert_eq!(rejected["fields"]["status"], 403);
    let text = lines.iter().map(Value::to_string).collect::<String>();
    for file in [reader, operator] {
        let secret = fs::read_to_string(file).expect("the token");
        assert!(!text.contains(secret.trim()), "{text}");
    }
}

/// The SHA-256 of a certificate in PEM, in hexadecimal digits.
fn fingerprint(certificate: &Path) -> String {
    let shell = "sed '/^-/d' \"$0\" | base64 --decode | sha256sum";
    let output = Command::new("sh")
        .args(["-c", shell])
        .arg(certificate)
        .output();
    let text = String::from_utf8(output.expect("there is a shell").stdout).expect("text");
    text.split(' ').next().expect("a sum").to_owned()
}

#[test]
fn the_certificate_of_the_first_start_is_kept_across_restarts() {
    let (mut daemon, _) = start("certificate");
    let reader = token(&daemon, "read-only");
    let [certificate, key] = ["api-cert.pem", "api-key.pem"].map(|name| daemon.folder.join(name));
    let first = [&certificate, &key].map(|path| fs::read(path).expect("it was generated"));
    let mode = fs::metadata(&key).expect("a file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    daemon.stop_and_restart();
    assert_eq!(
        [&certificate, &key].map(|path| fs::read(path).expect("it is kept")),
        first
    );
    let api = format!("https://{}", daemon.rest_address(2));
    let listed = over_tls(&daemon, &api, &reader, &["volume", "ls"]);
    assert!(listed.status.success(), "{listed:?}");
}

#[test]
fn the_log_shows_the_fingerprint_of_the_certificate() {
    let logged = Logged::start("print", &["--api-listen", "127.0.0.1:0", "--api-tls", "on"]);
    let sum = fingerprint(&logged.daemon.folder.join("api-cert.pem"));
    assert_eq!(sum.len(), 64);
    logged.line(&["the certificate of REST on TCP", &sum]);
}

/// The lines of the audit log, as soon as they are complete.
fn audit_lines(daemon: &Daemon, is_complete: impl Fn(&[Value]) -> bool) -> Vec<Value> {
    let begin = Instant::now();
    loop {
        let files = fs::read_dir(daemon.folder.join("audit")).expect("a folder");
        let text: String = files
            .map(|file| fs::read_to_string(file.expect("an entry").path()).expect("text"))
            .collect();
        let lines = text.lines().map(serde_json::from_str);
        let lines: Result<Vec<Value>, _> = lines.collect();
        match lines {
            Ok(lines) if is_complete(&lines) => return lines,
            _ => assert!(begin.elapsed() < PATIENCE, "{text}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_daemon_that_is_aborted_leaves_no_core_dump() {
    let is_tried = others_leave_core_dumps();
    let mut daemon = Daemon::start("core");
    let pid = daemon.child.id();
    let limited = Command::new("prlimit")
        .args(["--pid", &pid.to_string(), "--core=unlimited"])
        .status();
    assert!(limited.expect("util-linux has prlimit").success());
    let ended = abort(&mut daemon.child);
    assert!(!ended.core_dumped(), "{ended:?}, others: {is_tried}");
    daemon.restart();
}

/// Such as one that has read a host's secrets.
#[test]
fn a_client_that_is_aborted_leaves_no_core_dump() {
    let is_tried = others_leave_core_dumps();
    let daemon = Daemon::start("core-client");
    let shell = "ulimit -c unlimited; exec \"$0\" --socket \"$1\" shell";
    let mut client = Command::new("sh")
        .args(["-c", shell])
        .arg(ramport().get_program())
        .arg(daemon.folder.join("socket"))
        .current_dir(std::env::temp_dir())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("the program starts");
    let of_process = |name: &str| format!("/proc/{}/{name}", client.id());
    let has_limit = || {
        // Before that it is the shell.
        let is_client = fs::read_to_string(of_process("comm")).expect("it runs") == "ramport\n";
        let limits = fs::read_to_string(of_process("limits")).expect("it runs");
        let mut lines = limits.lines();
        let line = lines.find_map(|line| line.strip_prefix("Max core file size"));
        is_client && line.is_some_and(|line| line.trim_start().starts_with("0 "))
    };
    let begin = Instant::now();
    while !has_limit() {
        assert!(begin.elapsed() < PATIENCE, "its limit is not set");
        std::thread::sleep(Duration::from_millis(20));
    }
    let ended = abort(&mut client);
    assert!(!ended.core_dumped(), "{ended:?}, others: {is_tried}");
}

/// Whether a program that is aborted leaves a core dump on this machine.
fn others_leave_core_dumps() -> bool {
    let shell = "ulimit -c unlimited; kill -ABRT $$";
    let other = Command::new("sh")
        .args(["-c", shell])
        .current_dir(std::env::temp_dir())
        .status();
    other.expect("there is a shell").core_dumped()
}

fn abort(child: &mut Child) -> ExitStatus {
    let killed = Command::new("kill")
        .args(["-ABRT", &child.id().to_string()])
        .status();
    assert!(killed.expect("there is kill").success());
    let ended = child.wait().expect("a child");
    assert_eq!(ended.signal(), Some(6));
    ended
}
