//! `ramport connect-line` with a daemon.

use crate::daemon::Daemon;

const TARGET: &str = "iqn.2025-01.io.ramport:lines";
const HOST: &str = "iqn.1993-08.org.debian:01:9b8e2c";
const SECRET: &str = "twelve-bytes-or-more";

#[test]
fn the_lines_of_a_target_have_what_the_daemon_serves_and_no_secret() {
    let daemon = Daemon::start("connect-line");
    daemon.ok(&["volume", "create", "rd0", "--size", "4M"]);
    let secret = daemon.folder.join("secret");
    std::fs::write(&secret, SECRET).expect("written");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&secret, mode).expect("a mode");
    let secret = secret.to_str().expect("UTF-8");
    daemon.ok(&["host", "create", HOST, "--chap-secret-file", secret]);
    daemon.ok(&[
        "target", "create", TARGET, "--volume", "rd0", "--host", HOST,
    ]);
    let told = daemon.mistake(&["connect-line", TARGET]);
    assert!(told.contains("portal create iscsi://ADDRESS"), "{told}");

    daemon.ok(&["portal", "create", "iscsi://127.0.0.1:0"]);
    let lines = daemon.json(&["connect-line", TARGET]);
    let naa = &daemon.json(&["volume", "show", "rd0"])["attachments"][0]["identifiers"]["naa"];
    let naa = naa.as_str().expect("an NAA designator");
    assert_eq!(
        lines["disks"][0]["device"],
        format!("/dev/disk/by-id/scsi-3{naa}")
    );
    assert_eq!(lines["host"], HOST);
    let update = lines["portals"][0]["connect"][2]
        .as_str()
        .expect("a command");
    assert!(
        update.contains(&format!("username --value={HOST} ")),
        "{update}"
    );
    assert!(!lines.to_string().contains(SECRET), "{lines}");

    let text = daemon.ok(&["connect-line", TARGET]);
    for line in text.lines() {
        assert!(!line.contains(SECRET), "{line}");
    }
    assert!(
        text.contains("no other machine reaches the target"),
        "{text}"
    );
    let told = daemon.mistake(&[
        "connect-line",
        TARGET,
        "--host",
        "iqn.2025-01.io.ramport:else",
    ]);
    assert!(told.contains("does not list host"), "{told}");
    daemon.mistake(&["connect-line", "nqn.2025-01.io.ramport:nowhere"]);
}

#[test]
fn a_generated_secret_comes_with_the_line_that_connects_to_the_target() {
    const NQN: &str = "nqn.2025-01.io.ramport:keygen";
    const NVME_HOST: &str = "nqn.2025-01.io.ramport:host";
    let daemon = Daemon::start("keygen");
    daemon.ok(&["volume", "create", "rd0", "--size", "4M"]);
    daemon.ok(&["target", "create", NQN, "--volume", "rd0"]);
    let portals = daemon.json(&["portal", "ls"]);
    let url = portals[0]["url"].as_str().expect("a URL");
    let (_, port) = url.rsplit_once(':').expect("a port");
    let path = format!("--transport=tcp --traddr=127.0.0.1 --trsvcid={port}");
    let keygen = ["host", "keygen", "--target", NQN, NVME_HOST];
    let made = daemon.json(&keygen);
    let secret = made["secret"].as_str().expect("a secret");
    let expected =
        |proof: &str| format!("nvme connect {path} --nqn={NQN} --hostnqn={NVME_HOST} {proof}");
    let line = expected(&format!("--dhchap-secret={secret}"));
    assert_eq!(made["connect"], serde_json::json!([line]));
    let text = daemon.ok(&[&keygen[..], &["--tls"]].concat());
    assert!(text.contains(&expected("--tls")), "{text}");
    assert!(text.contains(&format!("--subsysnqn={NQN} ")), "{text}");
    daemon.mistake(&["host", "keygen", "--target", TARGET, NVME_HOST]);
}
