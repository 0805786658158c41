//! Definitions as a file: backups with secrets, and secrets in files of their own.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::daemon::{Daemon, mistake, ramport};

const HOST: &str = "iqn.2025-01.io.ramport:h";

fn write_secret(path: &Path, secret: &str) -> String {
    fs::write(path, secret).expect("written");
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).expect("set");
    path.display().to_string()
}

fn mode(path: &Path) -> u32 {
    let metadata = fs::metadata(path).expect("the file is there");
    metadata.permissions().mode() & 0o777
}

/// Defines something of every kind, with secrets.
fn define(daemon: &Daemon) {
    let theirs = write_secret(&daemon.folder.join("theirs"), "open sesame, please\n");
    let ours = write_secret(&daemon.folder.join("ours"), "the other way round\n");
    let secrets = [
        "--chap-user",
        "h",
        "--chap-secret-file",
        &theirs,
        "--mutual-secret-file",
        &ours,
    ];
    daemon.ok(&[&["host", "create", HOST], &secrets[..]].concat());
    daemon.ok(&[
        "host",
        "create",
        "backup",
        "--address",
        "192.0.2.7",
        "--told-by-address",
    ]);
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
        "volume",
        "create",
        "rd1",
        "--size",
        "4M",
        "--thick",
        "--read-only",
    ]);
    daemon.ok(&["volume", "filter", "set", "rd0", "--delay", "1ms"]);
    daemon.ok(&[
        "target", "create", "--iscsi", "--volume", "rd0", "--host", HOST,
    ]);
    daemon.ok(&[
        "target",
        "create",
        "nqn.2025-01.io.ramport:n",
        "--volume",
        "rd1=7",
    ]);
    let chap = ["--chap-user", "all", "--chap-secret-file", &ours];
    let create = ["target", "create", "iqn.2025-01.io.ramport:t"];
    daemon.ok(&[&create[..], &chap[..]].concat());
    daemon.ok(&["portal", "create", "iscsi://127.0.0.1:0,2"]);
    daemon.ok(&["referral", "create", "nvme+tcp://192.0.2.7:8009"]);
}

#[test]
fn a_backup_makes_a_new_daemon_the_same() {
    let mut old = Daemon::start("backup-old");
    define(&old);
    let new = Daemon::start("backup-new");
    let backup = new.folder.join("backup.toml");
    let backup_text = backup.display().to_string();
    // One that is there already is replaced, also if others may read it.
    fs::write(&backup, "").expect("written");
    old.ok(&["export", "--with-secrets", "--output", &backup_text]);
    assert_eq!(mode(&backup), 0o600);
    let hidden = old.ok(&["export"]);
    assert!(
        !hidden.contains("sesame") && !hidden.contains("machine"),
        "{hidden}"
    );
    // Their ports are free again.
    old.child.kill().expect("killed");
    old.child.wait().expect("ended");
    new.ok(&["apply", &backup_text]);
    let text = fs::read_to_string(&backup).expect("read");
    assert!(text.contains("open sesame, please") && text.contains("the other way round"));
    assert_eq!(new.ok(&["export", "--with-secrets"]), text);
    assert_eq!(new.ok(&["export"]), hidden);
    // Identifiers are derived from the same.
    new.ok(&["target", "create", "--iscsi", "--volume", "rd1"]);
    let names = new.ok(&["target", "ls"]);
    let first = names.lines().filter(|line| line.contains(".rd"));
    let machines: Vec<_> = first.filter_map(|line| line.split(".rd").next()).collect();
    assert!(machines.len() == 2 && machines[0] == machines[1], "{names}");
    // What identifiers are derived from stays while targets have some.
    let line = text
        .lines()
        .find(|line| line.starts_with("machine"))
        .expect("a machine");
    let other = text.replace(line, "machine = \"11111111-2222-3333-4444-555555555555\"");
    fs::write(&backup, other).expect("written");
    let output = new.run(&["apply", &backup_text, "--force"]);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(
        told.contains("machine cannot change while there are targets"),
        "{told}"
    );
}

#[test]
fn secrets_are_not_written_where_others_can_read_them() {
    let daemon = Daemon::start("backup-exposed");
    let path = daemon.folder.join("exposed.toml");
    let file = fs::File::create(&path).expect("created");
    file.set_permissions(fs::Permissions::from_mode(0o644))
        .expect("set");
    let args = ["export", "--with-secrets"];
    let output = ramport()
        .arg("--socket")
        .arg(daemon.folder.join("socket"))
        .args(args)
        .stdout(file)
        .output()
        .expect("the program runs");
    assert!(mistake(&output, &args).contains("--output FILE"));
    assert_eq!(fs::read(&path).expect("read"), b"");
}

#[test]
fn a_secret_may_be_in_a_file_beside_the_definitions() {
    let daemon = Daemon::start("secret-files");
    let site = daemon.folder.join("site.toml");
    let site_text = site.display().to_string();
    let apply = |text: &str| {
        fs::write(&site, text).expect("written");
        daemon.run(&["apply", &site_text])
    };
    let text = format!(
        "portals = []\n[hosts.\"{HOST}\".chap]\nuser = \"h\"\nsecret_file = \"theirs\"\nmutual = {{ user = \"t\", secret_file = \"{}/ours\" }}\n",
        daemon.folder.display()
    );
    let refused = |text: &str, reason: &str| {
        let output = apply(text);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{told}");
        assert!(told.contains(reason), "{told}");
    };
    refused(&text, "cannot read a secret from");
    write_secret(&daemon.folder.join("theirs"), "open sesame, please\r\nmore");
    write_secret(&daemon.folder.join("ours"), "the other way round");
    assert!(apply(&text).status.success());
    let kept = daemon.ok(&["export", "--with-secrets"]);
    assert!(kept.contains("\"open sesame, please\"") && kept.contains("\"the other way round\""));
    assert!(!kept.contains("secret_file"), "{kept}");
    let exposed = fs::Permissions::from_mode(0o640);
    fs::set_permissions(daemon.folder.join("ours"), exposed).expect("set");
    refused(&text, "chmod 600");
    refused(
        &text.replace(
            "secret_file = \"theirs\"",
            "secret_file = \"theirs\"\nsecret = \"x\"",
        ),
        "keep one of them",
    );
    refused(
        &text.replace("secret_file = \"theirs\"\n", ""),
        "missing field `secret`",
    );
}
