//! The program as a person uses it: the real binary, a real daemon.

mod apply;
mod backup;
mod bench;
mod brp;
mod caches;
mod cluster;
mod cluster_paths;
mod completion;
mod connect_line;
mod copy;
mod crashes;
mod daemon;
mod disk;
mod exit;
mod fabric;
mod files;
mod fleet;
mod guards;
mod identity;
mod iscsi;
mod load;
mod logs;
mod lost;
mod members;
mod mirrors;
mod nvme_admin;
mod outages;
mod rdma;
mod refusals;
mod remote;
mod restore;
mod saves;
mod secrets;
mod shares;
mod shell;
mod snapshots;
mod srp;
mod start;
mod study;
mod target;
mod terminal;
mod tokens;
mod top;
mod watch;

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::Value;

use daemon::{Daemon, mistake, ramport};

#[test]
fn a_volume_lives_from_creation_to_removal() {
    let daemon = Daemon::start("life");
    daemon.ok(&[
        "volume",
        "create",
        "rd0",
        "--size",
        "8M",
        "--block-size",
        "4096",
    ]);
    daemon.ok(&[
        "target",
        "create",
        "nqn.2025-01.io.ramport:rd0",
        "--volume",
        "rd0",
    ]);
    let volume = daemon.json(&["volume", "show", "rd0"]);
    assert_eq!(volume["size_bytes"], 8 << 20);
    assert_eq!(volume["attachments"][0]["nsid"], 1);
    daemon.ok(&["volume", "grow", "rd0", "8M"]);
    let told = daemon.mistake(&["volume", "shrink", "rd0", "4M"]);
    assert!(told.contains("--force"), "{told}");
    daemon.ok(&["volume", "shrink", "rd0", "4M", "--force"]);
    daemon.ok(&["volume", "lock", "rd0"]);
    daemon.ok(&[
        "volume",
        "filter",
        "set",
        "rd0",
        "--delay-read",
        "1ms",
        "--iops",
        "100",
    ]);
    let volume = daemon.json(&["volume", "show", "rd0"]);
    assert_eq!(volume["size_bytes"], 12 << 20);
    assert_eq!(volume["read_only"], true);
    assert_eq!(volume["filters"]["delay"]["read"], "1ms");
    daemon.ok(&["volume", "filter", "clear", "rd0", "delay"]);
    let volume = daemon.json(&["volume", "show", "rd0"]);
    assert_eq!(
        volume["filters"],
        serde_json::json!({"rate_limit": {"iops": 100}})
    );
    let tree = daemon.ok(&["ls"]);
    assert!(
        tree.contains("1: rd0  12 MiB, 0 B used, 4096 B blocks, ram, thin, read-only, filtered"),
        "{tree}"
    );
    let told = daemon.mistake(&["volume", "remove", "rd0"]);
    assert!(
        told.contains("is attached to nqn.2025-01.io.ramport:rd0"),
        "{told}"
    );
    daemon.ok(&["volume", "remove", "rd0", "--force"]);
    assert_eq!(daemon.json(&["volume", "list"]), serde_json::json!([]));
}

#[test]
fn a_host_that_a_target_names_is_defined_with_it() {
    const TARGET: &str = "nqn.2025-01.io.ramport:rd0";
    const HOSTS: [&str; 2] = [
        "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-3333-4444-555555555555",
        "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-3333-4444-666666666666",
    ];
    let daemon = Daemon::start("named-hosts");
    daemon.ok(&["volume", "create", "rd0", "--size", "4M"]);
    let create = ["target", "create", TARGET, "--volume", "rd0"];
    daemon.ok(&[&create[..], &["--host", HOSTS[0]]].concat());
    daemon.ok(&["target", "set", TARGET, "--host", HOSTS[1]]);
    for host in HOSTS {
        daemon.ok(&["host", "show", host]);
    }
    // Another name may be mistyped.
    let told = daemon.mistake(&["target", "set", TARGET, "--host", "db1"]);
    assert!(
        told.contains("lists host db1, which is not defined"),
        "{told}"
    );
    daemon.mistake(&["host", "show", "db1"]);
}

#[test]
fn filters_and_sizes_are_shown_in_words() {
    let daemon = Daemon::start("words");
    daemon.ok(&["volume", "create", "a", "--size", "8M"]);
    let filters = ["--delay-read", "1ms", "--iops", "100"];
    daemon.ok(&[&["volume", "filter", "set", "a"], &filters[..]].concat());
    let shown = daemon.ok(&["volume", "show", "a"]);
    let filters = "filters     delay (read 1ms), rate limit (iops 100)\n";
    assert!(shown.contains(filters), "{shown}");
    assert!(shown.contains("block size  512 B\n"), "{shown}");
    let told = daemon.mistake(&["volume", "create", "b", "--size", "1T", "--thick"]);
    assert!(told.contains("1 TiB are needed, but only"), "{told}");
}

#[test]
fn errors_are_json_with_the_json_flag() {
    let daemon = Daemon::start("json-errors");
    daemon.ok(&["volume", "create", "a", "--size", "4M"]);
    for (args, kind, message, needs_force) in [
        (
            &["volume", "show", "none"][..],
            "not_found",
            "there is no volume none",
            false,
        ),
        (&["volume", "create", "a"], "usage", "--size", false),
        (
            &["volume", "resize", "a", "--size", "1M"],
            "conflict",
            "; to do it anyway, use --force",
            true,
        ),
        (
            &["host", "create", "h", "--chap-secret-file", "/none"],
            "mistake",
            "cannot read",
            false,
        ),
    ] {
        let output = daemon.run(&[&["--json"], args].concat());
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        let error: Value = serde_json::from_slice(&output.stderr).expect("JSON on standard error");
        let error = &error["error"];
        assert_eq!(
            (&error["kind"], &error["needs_force"]),
            (&kind.into(), &needs_force.into())
        );
        let told = error["message"].as_str().expect("text");
        assert!(told.contains(message), "{told}");
        assert!(output.stdout.is_empty(), "{args:?}");
    }
}

#[test]
fn a_daemon_does_not_start_with_a_budget_or_level_that_cannot_be() {
    for (option, value, hint) in [
        (
            "--memory",
            "4000T",
            "is more than this machine, or its control group, has",
        ),
        ("--memory", "0", "choose a size of at least 16 MiB"),
        ("--memory", "1K", "choose a size of at least 16 MiB"),
        ("--memory", "0%", "from 1% to 100%"),
        (
            "--log-level",
            "warning",
            "\"warning\" is not a level; write error, warn",
        ),
    ] {
        let args = [
            "serve",
            "--state",
            "/none/state",
            "--socket",
            "/none/socket",
            option,
            value,
        ];
        let output = ramport().args(args).output().expect("the program runs");
        let told = mistake(&output, &args);
        assert!(told.contains(hint), "{value}: {told}");
    }
}

#[test]
fn secrets_are_the_first_line_of_a_file_that_only_its_owner_can_read() {
    use std::os::unix::fs::PermissionsExt;
    let daemon = Daemon::start("secrets");
    let file = daemon.folder.join("secret");
    std::fs::write(&file, "open sesame, please\r\na second line\n").expect("written");
    let path = file.to_str().expect("a plain path");
    let create = |name| ["host", "create", name, "--chap-secret-file", path];
    let mode = |mode| {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(&file, mode).expect("set");
    };
    mode(0o640);
    let told = daemon.mistake(&create("iqn.2025-01.io.ramport:h"));
    assert!(told.contains("run `chmod 600"), "{told}");
    mode(0o600);
    daemon.ok(&create("iqn.2025-01.io.ramport:h"));
    // The state file has what was read.
    let state = std::fs::read_to_string(daemon.folder.join("state")).expect("the state file");
    assert!(state.contains("\"open sesame, please\""), "{state}");
    let told = daemon.mistake(&create("nqn.2025-01.io.ramport:h"));
    assert!(told.contains("NVMe does not use CHAP"), "{told}");
}

#[test]
fn mistakes_get_a_hint_and_exit_status_2() {
    let daemon = Daemon::start("mistakes");
    for (line, hint) in [
        ("volume create a --size 1X", "use K, M, G"),
        ("volume create a@b --size 1M", "use letters"),
        ("volume create a --size 1K", "choose a size from 1 MiB"),
        (
            "volume create a --size 1M --block-size 1K",
            "choose 512 or 4096",
        ),
        ("volume create a --size 1G --thick", "--memory"),
        ("volume show none", "ramport volume ls"),
        ("target create t --volume none", "which is not defined"),
        ("target set t", "--allow-any-host"),
        ("host create h --told-by-address", "--address"),
        ("portal create localhost", "host names are not resolved"),
        ("session remove 7", "it may have ended"),
        ("apply /nonexistent.toml", "cannot read /nonexistent.toml"),
        (
            "volume filter set a --fault read:broken",
            "STATUS is read_error",
        ),
        ("volume filter set a", "--delay"),
        ("volumes", "volume"),
        ("serve --cores 9999", "use 1 to 256"),
        ("discover nvme+tcp://127.0.0.1:1", "check address and port"),
        ("bench nvme+tcp://127.0.0.1:1/x", "check address and port"),
    ] {
        let args: Vec<_> = line.split(' ').collect();
        let told = daemon.mistake(&args);
        assert!(told.contains(hint), "{line}: {told}");
    }
}

#[test]
fn wrong_names_and_ports_get_a_hint() {
    let daemon = Daemon::start("names");
    for (args, hint) in [
        (
            &["portal", "create", "nvme+tcp://127.0.0.1:70000"][..],
            "has no port from 0 to 65535",
        ),
        (&["volume", "create", "", "--size", "1M"], "is empty"),
        (&["volume", "show", ""], "is empty"),
        (&["target", "create", ""], "is empty"),
        (&["target", "attach", "t", ""], "is empty"),
        (
            &["target", "create", "IQN.2025-01.com.example:t"],
            "contains 'I'; use lower-case letters",
        ),
        (
            &["discover", "iscsi://127.0.0.1:1"],
            "check address and port",
        ),
    ] {
        let told = daemon.mistake(args);
        assert!(told.contains(hint), "{args:?}: {told}");
    }
}

#[test]
fn a_volume_is_attached_to_a_target_once_and_detached_by_number_or_name() {
    const TARGETS: [&str; 2] = ["nqn.2025-01.com.example:t", "iqn.2025-01.com.example:t"];
    let daemon = Daemon::start("detach");
    for name in ["a", "b"] {
        daemon.ok(&["volume", "create", name, "--size", "4M"]);
    }
    for (target, first) in TARGETS.into_iter().zip([1, 0]) {
        let create = ["target", "create", target, "--volume", "a"];
        daemon.ok(&[&create[..], &["--volume", "b"]].concat());
        let told = daemon.mistake(&["target", "attach", target, "a"]);
        let reason = format!("has volume a as {first} and as {}", first + 2);
        assert!(told.contains(&reason), "{told}");
        let told = daemon.mistake(&["target", "detach", target, "c"]);
        assert!(told.contains("has no volume \"c\""), "{told}");
        daemon.ok(&["target", "detach", target, "a"]);
        daemon.ok(&["target", "detach", target, &(first + 1).to_string()]);
        let shown = daemon.json(&["target", "show", target]);
        assert_eq!(shown["namespaces"], serde_json::json!([]));
    }
    let told = daemon.mistake(&["target", "detach", TARGETS[0], "a"]);
    assert!(told.contains("ramport target show"), "{told}");
}

#[test]
fn without_a_daemon_the_error_says_how_to_start_one() {
    let args = ["--socket", "/nonexistent/socket", "ls"];
    let output = ramport().args(args).output().expect("the program runs");
    assert!(mistake(&output, &args).contains("`ramport serve`"));
}

#[test]
fn a_target_for_this_machine_is_not_opened_to_the_network() {
    let daemon = Daemon::start("exposure");
    daemon.ok(&["target", "create", "t"]);
    let told = daemon.mistake(&["portal", "create", "0.0.0.0:0"]);
    assert!(told.contains("--allow-any-host"), "{told}");
    daemon.ok(&["target", "set", "t", "--allow-any-host"]);
    daemon.ok(&["portal", "create", "0.0.0.0:0"]);
}

#[test]
fn discovery_lists_referrals_until_they_are_removed() {
    let mut daemon = Daemon::start("referral");
    let portals = daemon.json(&["portal", "list"]);
    let portal = portals[0]["url"].as_str().expect("a URL").to_owned();
    let told = daemon.mistake(&["referral", "create", &portal]);
    assert!(told.contains("refer to another machine"), "{told}");
    let told = daemon.mistake(&["referral", "create", "0.0.0.0"]);
    assert!(told.contains("give the address and port"), "{told}");
    // Loopback, since a referral to it is shown only to hosts that came by loopback.
    let service = "nvme+tcp://127.0.0.9:8009";
    daemon.ok(&["referral", "create", service]);
    assert!(daemon.ok(&["referral", "ls"]).contains(service));
    assert!(daemon.ok(&["ls"]).contains(service));
    daemon.kill_and_restart();
    let is_referral = |record: &&Value| record["kind"] == "referral";
    let records = daemon.json(&["discover", &portal]);
    let found = records.as_array().expect("a list").iter().find(is_referral);
    let found = found.expect("the referral");
    assert_eq!(found["address"], "127.0.0.9");
    assert_eq!(found["service"], "8009");
    assert_eq!(found["subsystem"], "nqn.2014-08.org.nvmexpress.discovery");
    daemon.ok(&["referral", "remove", service]);
    let records = daemon.json(&["discover", &portal]);
    assert!(
        !records
            .as_array()
            .expect("a list")
            .iter()
            .any(|r| is_referral(&r))
    );
    let told = daemon.mistake(&["referral", "remove", service]);
    assert!(told.contains("ramport referral ls"), "{told}");
}

#[test]
fn sighup_changes_nothing_and_sigterm_ends_the_daemon_cleanly() {
    let mut daemon = Daemon::start("term");
    let pid = i32::try_from(daemon.child.id()).expect("a process ID");
    let pid = rustix::process::Pid::from_raw(pid).expect("a process ID");
    let send = |signal| rustix::process::kill_process(pid, signal).expect("sent");
    daemon.ok(&["volume", "create", "a", "--size", "4M"]);
    send(rustix::process::Signal::HUP);
    daemon.ok(&["volume", "show", "a"]);
    assert!(daemon.child.try_wait().expect("known").is_none());
    send(rustix::process::Signal::TERM);
    let status = daemon.child.wait().expect("ended");
    assert!(status.success(), "{status}");
    assert!(!daemon.folder.join("socket").exists());
}

#[test]
fn completions_and_manual_pages_come_from_the_same_source() {
    let output = ramport()
        .args(["completions", "bash"])
        .output()
        .expect("runs");
    assert!(String::from_utf8_lossy(&output.stdout).contains("_ramport()"));
    let folder = std::env::temp_dir().join(format!("ramport-man-{}", std::process::id()));
    let output = ramport().arg("man").arg(&folder).output().expect("runs");
    assert!(output.status.success());
    let page = std::fs::read_to_string(folder.join("ramport-volume-create.1")).expect("a page");
    assert!(page.contains("512MiB"));
    std::fs::remove_dir_all(folder).expect("removed");
}

/// `ramport demo` with its things in a folder of its own.
struct Demo {
    child: Child,
    folder: PathBuf,
    _alone: MutexGuard<'static, ()>,
}

/// Demonstrations that start in the same moment find the same port free: one at a time.
static DEMO: Mutex<()> = Mutex::new(());

impl Demo {
    fn start(name: &str, args: &[&str]) -> Self {
        let alone = DEMO.lock().unwrap_or_else(PoisonError::into_inner);
        let folder = std::env::temp_dir().join(format!("ramport-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("the temporary folder can be written");
        let child = ramport()
            .args(["demo", "--size", "16M"])
            .args(args)
            .env("TMPDIR", &folder)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the demonstration starts");
        Self {
            child,
            folder,
            _alone: alone,
        }
    }

    /// What it prints until it ends, or until a line that contains `last`;
    /// and the pipe, which closes when it is dropped.
    fn read_until(&mut self, last: &str) -> (String, impl Sized + use<>) {
        let mut output = BufReader::new(self.child.stdout.take().expect("piped"));
        let mut text = String::new();
        loop {
            let from = text.len();
            let len = output.read_line(&mut text).expect("text");
            if len == 0 || (!last.is_empty() && text[from..].contains(last)) {
                return (text, output);
            }
        }
    }

    /// Asserts that nothing is left of it.
    fn assert_clean(&self) {
        let left: Vec<_> = std::fs::read_dir(&self.folder)
            .expect("the folder")
            .map(|entry| entry.expect("an entry").file_name())
            .collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

#[test]
fn the_demonstration_verifies_measures_and_says_how_to_attach() {
    let mut demo = Demo::start("demo", &["--once"]);
    let (text, _) = demo.read_until("");
    let status = demo.child.wait().expect("ended");
    assert!(status.success(), "{status}: {text}");
    let url = text
        .split_whitespace()
        .find(|w| w.starts_with("nvme+tcp://"));
    let url = url.expect("the URL of the RAM disk");
    let port = url.split([':', '/']).nth(4).expect("a port");
    for expected in [
        // Every block of 16 MiB was written and came back.
        "16 MiB",
        &format!("nvme discover -t tcp -a 127.0.0.1 -s {port}"),
        &format!("nvme connect -t tcp -a 127.0.0.1 -s {port} -n nqn.2025-01.io.ramport:rd0"),
        "portal create nvme+tcp://",
        "nvme discover -t tcp -a ",
        "nvme disconnect -n nqn.2025-01.io.ramport:rd0",
        "iscsiadm -m discovery -t sendtargets -p 127.0.0.1:",
        "iscsiadm -m node -T iqn.2025-01.io.ramport:rd0 -p 127.0.0.1:",
    ] {
        assert!(text.contains(expected), "{expected:?} is missing:\n{text}");
    }
    for shape in ["512 B", "4 KiB", "128 KiB"] {
        assert!(text.contains(shape), "{shape} was not measured:\n{text}");
    }
    demo.assert_clean();
}

#[test]
fn a_demonstration_never_changes_another_daemon() {
    let daemon = Daemon::start("demo-beside");
    let socket = daemon.folder.join("socket");
    let mut demo = ramport();
    demo.args(["demo", "--once", "--size", "16M"]);
    let alone = DEMO.lock().unwrap_or_else(PoisonError::into_inner);
    // The environment names the daemon of other commands.
    let output = demo.env("RAMPORT_SOCKET", &socket).output().expect("runs");
    assert!(output.status.success(), "{output:?}");
    drop(alone);
    let output = demo.env_remove("RAMPORT_SOCKET").arg("--socket");
    let output = output.arg(&socket).output().expect("runs");
    assert_eq!(output.status.code(), Some(2));
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(told.contains("another daemon answers on"), "{told}");
    assert_eq!(daemon.json(&["volume", "list"]), serde_json::json!([]));
    assert_eq!(daemon.json(&["target", "list"]), serde_json::json!([]));
}

#[test]
fn ctrl_c_ends_the_demonstration_with_its_daemon() {
    let mut demo = Demo::start("interrupt", &[]);
    let (text, _reader) = demo.read_until("A RAM disk of");
    assert!(text.contains("nvme+tcp://127.0.0.1:"), "{text}");
    let pid = i32::try_from(demo.child.id()).expect("a process ID");
    let pid = rustix::process::Pid::from_raw(pid).expect("a process ID");
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("sent");
    let status = demo.child.wait().expect("ended");
    assert!(status.success(), "{status}");
    demo.assert_clean();
}

#[test]
fn a_demonstration_whose_reader_goes_away_ends_its_daemon() {
    let mut demo = Demo::start("reader", &["--once"]);
    // The reader has read its first line and closed the pipe, as `head -1` does.
    let (text, reader) = demo.read_until("A RAM disk of");
    drop(reader);
    assert!(text.contains("nvme+tcp://127.0.0.1:"), "{text}");
    let status = demo.child.wait().expect("ended");
    assert!(status.success(), "{status}");
    demo.assert_clean();
}

#[test]
fn the_unit_of_attached_disks_is_valid() {
    let folder = std::env::temp_dir().join(format!("ramport-attach-unit-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("the temporary folder can be written");
    let unit = include_str!("../../../../packaging/ramport-attach@.service");
    let unit = unit.replace("/usr/local/bin/ramport", env!("CARGO_BIN_EXE_ramport"));
    let path = folder.join("ramport-attach@db1.service");
    std::fs::write(&path, unit).expect("written");
    let verified = Command::new("systemd-analyze")
        .args(["verify", "--man=no"])
        .arg(&path)
        .env("SYSTEMD_LOG_LEVEL", "notice")
        .output();
    let Ok(verified) = verified else {
        block::testing::skip("systemd-analyze is not installed; the systemd unit is not verified");
        return;
    };
    let told = String::from_utf8_lossy(&verified.stderr).into_owned();
    assert!(verified.status.success() && told.is_empty(), "{told}");
    std::fs::remove_dir_all(folder).expect("removed");
}

#[test]
fn the_systemd_unit_is_valid_and_sandboxed() {
    let folder = std::env::temp_dir().join(format!("ramport-unit-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("the temporary folder can be written");
    let unit = include_str!("../../../../packaging/ramport.service");
    let here = env!("CARGO_BIN_EXE_ramport");
    let unit = unit.replace("/usr/local/bin/ramport", here);
    let path = folder.join("ramport.service");
    std::fs::write(&path, unit).expect("written");
    let analyze = |args: &[&str]| {
        Command::new("systemd-analyze")
            .args(args)
            .arg(&path)
            .env("SYSTEMD_LOG_LEVEL", "notice")
            .output()
    };
    let Ok(verified) = analyze(&["verify", "--man=no"]) else {
        block::testing::skip("systemd-analyze is not installed; the systemd unit is not verified");
        return;
    };
    let told = String::from_utf8_lossy(&verified.stderr).into_owned();
    assert!(verified.status.success() && told.is_empty(), "{told}");
    // 0 is fully confined, 100 is not at all; above the threshold it fails.
    let security = analyze(&["security", "--offline=true", "--no-pager", "--threshold=15"]);
    let security = security.expect("it was there just now");
    let told = String::from_utf8_lossy(&security.stdout).into_owned();
    assert!(security.status.success(), "{told}");
    std::fs::remove_dir_all(folder).expect("removed");
}
