//! Real etcd for tests, as child processes.

use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use block::testing::Folder;
use cluster::{ClientTls, Etcd, EtcdUrl};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// How long etcd may take to start: far more than it needs, as machines that test are busy.
const START_TIME: Duration = Duration::from_secs(60);

/// An etcd of some members.
pub(crate) struct Server {
    pub(crate) urls: Vec<EtcdUrl>,
    members: Vec<Child>,
    _folder: Folder,
}

/// Whether etcd is installed. If not, the test is skipped.
pub(crate) fn is_there() -> bool {
    let found = Command::new("etcd").arg("--version").output().is_ok();
    if !found {
        block::testing::skip("etcd is not installed (Debian: etcd-server)");
    }
    found
}

/// A port that no program uses.
pub(crate) fn port() -> u16 {
    let listener = TcpListener::bind((LOCAL, 0)).expect("a port");
    listener.local_addr().expect("an address").port()
}

impl Server {
    /// Starts etcd without TLS.
    pub(crate) fn plain(members: usize) -> Self {
        Self::start(members, "http", |_| Vec::new())
    }

    /// Starts etcd for clients with certificates of `issuer`.
    pub(crate) fn with_tls(issuer: &TestIssuer) -> Self {
        Self::start(1, "https", |folder| {
            let (certificate, key) = issuer.issue();
            let files = [
                ("--cert-file", "cert.pem", certificate),
                ("--key-file", "key.pem", key),
                ("--trusted-ca-file", "ca.pem", issuer.pem.clone()),
            ];
            let files = files.into_iter().flat_map(|(option, name, text)| {
                let path = folder.join(name);
                std::fs::write(&path, text).expect("written");
                [option.to_owned(), path.display().to_string()]
            });
            files.chain(["--client-cert-auth".to_owned()]).collect()
        })
    }

    fn start(members: usize, scheme: &str, more: impl Fn(&Folder) -> Vec<String>) -> Self {
        let folder = Folder::new();
        let ports: Vec<_> = (0..members).map(|_| (port(), port())).collect();
        let all: Vec<_> = ports
            .iter()
            .enumerate()
            .map(|(at, (_, peers))| format!("m{at}=http://{LOCAL}:{peers}"))
            .collect();
        let more = more(&folder);
        let members = ports.iter().enumerate().map(|(at, (clients, peers))| {
            Command::new("etcd")
                .args(["--name", &format!("m{at}")])
                .arg("--data-dir")
                .arg(folder.join(format!("m{at}")))
                .args([
                    "--listen-client-urls",
                    &format!("{scheme}://{LOCAL}:{clients}"),
                ])
                .args([
                    "--advertise-client-urls",
                    &format!("{scheme}://{LOCAL}:{clients}"),
                ])
                .args(["--listen-peer-urls", &format!("http://{LOCAL}:{peers}")])
                .args([
                    "--initial-advertise-peer-urls",
                    &format!("http://{LOCAL}:{peers}"),
                ])
                .args(["--initial-cluster", &all.join(",")])
                .args(&more)
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .expect("etcd starts")
        });
        let urls = ports.iter().map(|(clients, _)| {
            let url = format!("{scheme}://{LOCAL}:{clients}");
            url.parse().expect("a URL")
        });
        Self {
            urls: urls.collect(),
            members: members.collect(),
            _folder: folder,
        }
    }

    /// A client of all members, once they answer.
    pub(crate) async fn client(&self, tls: Option<ClientTls>) -> Etcd {
        let etcd = Etcd::new(self.urls.clone(), tls);
        let begin = Instant::now();
        loop {
            match etcd.get("start").await {
                Ok(_) => return etcd,
                Err(error) => assert!(begin.elapsed() < START_TIME, "{error}"),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub(crate) fn kill(&mut self, member: usize) {
        self.members[member].kill().expect("killed");
        self.members[member].wait().expect("ended");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        for member in &mut self.members {
            // Those that were killed cannot be killed again.
            let _ = member.kill();
            let _ = member.wait();
        }
    }
}

/// An issuer of certificates for loopback.
pub(crate) struct TestIssuer {
    issuer: Issuer<'static, KeyPair>,
    pub(crate) pem: String,
}

impl TestIssuer {
    pub(crate) fn new() -> Self {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).expect("signed").pem();
        Self {
            issuer: Issuer::new(params, key),
            pem,
        }
    }

    /// A certificate and its key.
    fn issue(&self) -> (String, String) {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new([LOCAL.to_string()]).expect("a name");
        let certificate = params.signed_by(&key, &self.issuer).expect("signed");
        (certificate.pem(), key.serialize_pem())
    }

    /// A client that trusts `servers` and shows a certificate of this issuer.
    pub(crate) fn client(&self, servers: &Self) -> ClientTls {
        self.client_of(&servers.pem)
    }

    /// The same, with the servers' issuer as PEM.
    pub(crate) fn client_of(&self, servers: &str) -> ClientTls {
        let (certificate, key) = self.issue();
        ClientTls::new(servers, &certificate, &key).expect("usable")
    }
}
