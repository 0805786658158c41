//! Secrets of hosts and tokens: nothing that the daemon shows or writes down for others has them.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use crate::logs::Logged;

const CHAP: &str = "open-sesame-please-1";
const MUTUAL: &str = "open-sesame-please-2";
const USER: &str = "alice";
const IQN: &str = "iqn.2025-01.com.example:secret";
const NQN: &str = "nqn.2025-01.com.example:secret";
const INITIATOR: &str = "iqn.2025-01.com.example:host";
const HOST: &str = "nqn.2025-01.com.example:host";
const STRANGER: &str = "nqn.2025-01.com.example:stranger";

/// A daemon whose hosts have every kind of secret, and the texts of them all.
struct SecretDaemon {
    logged: Logged,
    secrets: Vec<String>,
}

impl SecretDaemon {
    fn start() -> Self {
        let more = ["--iscsi", "127.0.0.1:0", "--memory", "256M"];
        let logged = Logged::start(
            "no-secrets",
            &[&more[..], &["--log-level", "debug"]].concat(),
        );
        let mut secret_daemon = Self {
            logged,
            secrets: Vec::new(),
        };
        secret_daemon.define();
        secret_daemon
    }

    /// A file with a secret, which nothing may show.
    fn file(&mut self, name: &str, secret: &str) -> String {
        let path = self.logged.daemon.folder.join(name);
        fs::write(&path, secret).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("set");
        self.secrets.push(secret.to_owned());
        path.to_str().expect("a plain path").to_owned()
    }

    fn generated(&mut self, name: &str, args: &[&str]) -> String {
        let made = self
            .logged
            .daemon
            .json(&[&["host", "keygen"], args].concat());
        let secret = made["secret"].as_str().expect("a secret").to_owned();
        self.file(name, &secret)
    }

    fn define(&mut self) {
        let [chap, mutual] =
            [("chap", CHAP), ("mutual", MUTUAL)].map(|(name, secret)| self.file(name, secret));
        let [host, ctrl] = ["host", "ctrl"].map(|name| self.generated(name, &[]));
        let psk = self.generated("psk", &["--tls"]);
        let daemon = &self.logged.daemon;
        daemon.ok(&["volume", "create", "rd0", "--size", "4M"]);
        daemon.ok(&[
            "host",
            "create",
            INITIATOR,
            "--chap-user",
            USER,
            "--chap-secret-file",
            &chap,
            "--mutual-user",
            "ours",
            "--mutual-secret-file",
            &mutual,
        ]);
        daemon.ok(&[
            "host",
            "create",
            HOST,
            "--dhchap-secret-file",
            &host,
            "--dhchap-ctrl-secret-file",
            &ctrl,
            "--tls-psk-file",
            &psk,
        ]);
        for (target, host) in [(IQN, INITIATOR), (NQN, HOST)] {
            daemon.ok(&[
                "target", "create", target, "--volume", "rd0", "--host", host,
            ]);
        }
        let token = daemon.ok(&["token", "create", "ci", "--role", "operator"]);
        self.secrets.push(token.trim().to_owned());
    }

    /// Hosts that prove their secrets and hosts that do not.
    fn use_them(&self) {
        let daemon = &self.logged.daemon;
        let portals = daemon.json(&["portal", "ls"]);
        let portals = portals.as_array().expect("a list").iter();
        let urls: Vec<_> = portals
            .filter_map(|portal| portal["url"].as_str())
            .collect();
        let url = |scheme: &str| {
            let mut urls = urls.iter();
            *urls.find(|url| url.starts_with(scheme)).expect("a portal")
        };
        let (iscsi, nvme) = (url("iscsi"), url("nvme+tcp"));
        let [host, ctrl] =
            ["host", "ctrl"].map(|name| daemon.folder.join(name).display().to_string());
        let address = iscsi.strip_prefix("iscsi://").expect("a URL");
        let proven = [
            format!("iscsi://{USER}%{CHAP}@{address}/{IQN}/0?initiator={INITIATOR}"),
            format!(
                "{nvme}/{NQN}?hostnqn={HOST}&dhchap-secret-file={host}&dhchap-ctrl-secret-file={ctrl}"
            ),
        ];
        let rejected = [
            format!("iscsi://{USER}%{MUTUAL}@{address}/{IQN}/0?initiator={INITIATOR}"),
            format!("{nvme}/{NQN}?hostnqn={HOST}&dhchap-secret-file={ctrl}"),
            format!("{nvme}/{NQN}?hostnqn={STRANGER}"),
        ];
        let bench = |url: &str| {
            let args = ["bench", url, "--rw", "read", "--size", "1M"];
            daemon.run(&args)
        };
        for url in proven {
            let output = bench(&url);
            assert!(output.status.success(), "{output:?}");
        }
        for url in rejected {
            assert!(!bench(&url).status.success(), "{url}");
        }
        self.logged.line(&["a host is authenticated"]);
    }

    fn assert_absent(&self, text: &str, place: &str) {
        assert!(!text.is_empty(), "{place}");
        for secret in &self.secrets {
            // Of a secret with a header and a checksum, its middle.
            let core = secret.split(':').nth(2).unwrap_or(secret);
            let core = core.trim_end_matches('=');
            for part in [core, &core[..core.len() / 2], &core[core.len() / 2..]] {
                assert!(!text.contains(part), "{part} is in {place}:\n{text}");
            }
        }
    }
}

#[test]
fn secrets_are_in_no_log_list_metric_or_answer() {
    let secret_daemon = SecretDaemon::start();
    secret_daemon.use_them();
    let daemon = &secret_daemon.logged.daemon;
    for path in [
        "/v1/hosts",
        "/v1/definitions",
        "/v1/targets",
        "/v1/portals",
        "/v1/sessions",
        "/v1/tokens",
        "/v1/status",
        "/metrics",
    ] {
        secret_daemon.assert_absent(&daemon.get(path), path);
    }
    for line in [
        "host ls",
        "host show nqn.2025-01.com.example:host",
        "host show iqn.2025-01.com.example:host",
        "--json host ls",
        "target show iqn.2025-01.com.example:secret",
        "connect-line nqn.2025-01.com.example:secret",
        "token ls",
        "export",
        "ls",
    ] {
        let args: Vec<_> = line.split(' ').collect();
        secret_daemon.assert_absent(&daemon.ok(&args), line);
    }
    secret_daemon.assert_absent(&secret_daemon.logged.text(), "the log");
    let tokens = fs::read_to_string(daemon.folder.join("api-tokens")).expect("a file");
    secret_daemon.assert_absent(&tokens, "the file of tokens");
    // Where they are, only who asks for them by name sees them.
    let backup = daemon.ok(&["export", "--with-secrets"]);
    let state = fs::metadata(daemon.folder.join("state")).expect("a file");
    assert_eq!(state.permissions().mode() & 0o777, 0o600);
    let (token, others) = secret_daemon.secrets.split_last().expect("some");
    assert!(!backup.contains(token));
    for secret in others {
        assert!(backup.contains(secret), "{backup}");
    }
}
