//! The interface over TCP: TLS, tokens, roles, and bounds.

mod certificates;
mod crowds;
mod revoked;

use std::path::Path;
use std::time::Duration;

use super::*;
use crate::{
    CertificateFiles, ClientTls, NewToken, Role, ServerTls, TcpConfig, TokenProof, TokenRequest,
};

/// An interface over TCP of a daemon's engine.
struct Network {
    daemon: Daemon,
    /// On the second socket: an administrator.
    local: Client,
    api: Option<Api>,
    address: String,
    certificate: CertificateFiles,
}

impl Network {
    fn start(encryption: Encryption<'_>) -> Self {
        let daemon = Daemon::start();
        let address = "127.0.0.1:0".parse().expect("an address");
        let certificate = CertificateFiles {
            certificate: daemon.folder.join("api-cert.pem"),
            key: daemon.folder.join("api-key.pem"),
        };
        let serve = |issuers| {
            let address = "192.0.2.1".parse().expect("an address");
            ServerTls::read_or_generate(&certificate, issuers, address).expect("a certificate")
        };
        let tls = match encryption {
            Encryption::Off => None,
            Encryption::Tls => Some(serve(None)),
            Encryption::Clients(issuers) => Some(serve(Some(issuers))),
        };
        let config = ApiConfig {
            socket: daemon.folder.join("second"),
            owner: SocketOwner::User,
            tokens: daemon.folder.join("api-tokens"),
            tcp: Some(TcpConfig {
                address,
                token: Some(token(&daemon.folder, "a-secret-of-some-length")),
                tls,
            }),
        };
        let socket = config.socket.clone();
        let api = Api::start(daemon.engine.clone(), config).expect("starts");
        Self {
            local: Client::new(Endpoint::Unix(socket)).expect("a client"),
            address: api.tcp_address().expect("an address").to_string(),
            api: Some(api),
            certificate,
            daemon,
        }
    }

    fn client(&self, token: impl Into<Option<Token>>, tls: Option<ClientTls>) -> Client {
        let (address, token) = (self.address.clone(), token.into());
        let endpoint = Endpoint::Tcp {
            address,
            token,
            tls,
        };
        Client::new(endpoint).expect("a client")
    }

    /// A client that has a new token of this role.
    fn holder(&self, role: Role) -> Client {
        let new = self.create(&role.to_string(), role, TokenProof::Bearer);
        let text = new.token.expect("a token");
        self.client(token(&self.daemon.folder, &text), None)
    }

    fn create(&self, name: &str, role: Role, proof: TokenProof) -> NewToken {
        let path = format!("/v1/tokens/{name}");
        let request = TokenRequest { role, proof };
        self.local.post(&path, &request).expect("created")
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        if let Some(api) = self.api.take() {
            api.stop();
        }
    }
}

#[derive(Clone, Copy)]
enum Encryption<'a> {
    Off,
    Tls,
    /// With client certificates that the issuers in this file signed.
    Clients(&'a Path),
}

fn token(folder: &Folder, text: &str) -> Token {
    let file = folder.join("token");
    std::fs::write(&file, text).expect("written");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&file, mode).expect("set");
    Token::read(&file).expect("a token")
}

fn status_of(client: &Client, line: &str) -> (u16, String) {
    let (method, path, body, _) = exchange(line);
    client.raw(method, path, &body).expect("an answer")
}

#[test]
fn requests_over_tcp_need_a_token() {
    let network = Network::start(Encryption::Off);
    let folder = &network.daemon.folder;
    let right = network.client(token(folder, "a-secret-of-some-length"), None);
    assert!(right.get::<Value>("/v1/status").is_ok());
    let wrong = network.client(token(folder, "another-secret-of-length"), None);
    let refused = wrong.get::<Value>("/v1/status").expect_err("refused");
    assert!(matches!(refused, ClientError::Refused { kind, .. } if kind == "unauthorized"));
    let holder = network.holder(Role::ReadOnly);
    assert!(holder.get::<Value>("/v1/status").is_ok());
    network.local.delete("/v1/tokens/read-only").expect("gone");
    let refused = holder.get::<Value>("/v1/status").expect_err("refused");
    assert!(matches!(refused, ClientError::Refused { kind, .. } if kind == "unauthorized"));
}

#[test]
fn each_role_does_what_it_includes_and_is_told_what_else_needs() {
    let network = Network::start(Encryption::Off);
    let roles = [Role::ReadOnly, Role::Operator, Role::Administrator];
    let clients = roles.map(|role| (role, network.holder(role)));
    // What each is answered: read-only, operator, administrator.
    for (line, answers) in [
        ("GET 0 /v1/volumes", [200, 200, 200]),
        ("GET 0 /metrics", [200, 200, 200]),
        ("GET 0 /v1/definitions", [200, 200, 200]),
        ("GET 0 /v1/definitions?with_secrets=true", [403, 403, 200]),
        ("GET 0 /v1/tokens", [403, 403, 200]),
        (
            r#"POST 0 /v1/tokens/more {"role": "administrator"}"#,
            [403, 403, 201],
        ),
        (r#"POST 0 /v1/volumes/a {"size": "4M"}"#, [403, 201, 409]),
        (
            r#"POST 0 /v1/snapshots {"snapshots": {"s": "a"}}"#,
            [403, 201, 409],
        ),
        (
            r#"POST 0 /v1/volumes/f {"kind": "file", "path": "/none/f"}"#,
            [403, 403, 400],
        ),
        (
            r#"POST 0 /v1/copies {"source": "a", "destination": "/none/f"}"#,
            [403, 403, 409],
        ),
        ("POST 0 /v1/hosts/h {}", [403, 403, 201]),
        (
            "POST 0 /v1/portals/nvme+tcp:%2F%2F127.0.0.1:0",
            [403, 403, 201],
        ),
        ("PUT 0 /v1/definitions?dry_run=true {}", [403, 403, 200]),
        ("DELETE 0 /v1/volumes/s", [403, 204, 404]),
    ] {
        for ((role, client), expected) in clients.iter().zip(answers) {
            let (status, text) = status_of(client, line);
            if (line.contains("/none/f"), expected) == (true, 400) {
                assert!(
                    (400..600).contains(&status) && status != 403,
                    "{line}: {text}"
                );
                continue;
            }
            assert_eq!(status, expected, "{role}: {line}: {text}");
            if status == 403 {
                let told = format!("the token {role} has the role {role}");
                assert!(
                    text.contains(&told) && text.contains("\"forbidden\""),
                    "{text}"
                );
                assert!(text.contains("need"), "{text}");
            }
        }
    }
}

#[test]
fn over_tls_the_client_takes_the_certificate_that_it_was_given_and_no_other() {
    let network = Network::start(Encryption::Tls);
    let folder = &network.daemon.folder;
    let right = || token(folder, "a-secret-of-some-length");
    let certificate = &network.certificate.certificate;
    let ask = |tls: Option<ClientTls>| {
        let client = network.client(right(), tls);
        client
            .with_time_limit(Duration::from_secs(20))
            .get::<Value>("/v1/status")
    };
    // By the name in it, and pinned under another one.
    for host in ["localhost", "127.0.0.1", "other.example"] {
        let tls = ClientTls::new(Some(certificate), None, host).expect("trusted");
        assert!(ask(Some(tls)).is_ok(), "{host}");
    }
    let other = CertificateFiles {
        certificate: folder.join("other.pem"),
        key: folder.join("other-key.pem"),
    };
    let address = "192.0.2.1".parse().expect("an address");
    ServerTls::read_or_generate(&other, None, address).expect("a certificate");
    let tls = ClientTls::new(Some(&other.certificate), None, "localhost").expect("trusted");
    let error = ask(Some(tls)).expect_err("a stranger");
    assert!(error.is_mistake(), "{error}");
    let told = error.to_string();
    assert!(
        told.contains("is not trusted") && told.contains("--api-ca"),
        "{told}"
    );
    // Plain HTTP gets no answer.
    assert!(ask(None).is_err());
    let wrong = ClientTls::new(Some(&folder.join("token")), None, "localhost");
    let told = wrong.expect_err("no certificate").to_string();
    assert!(told.contains("--api-ca"), "{told}");
}

#[test]
fn a_daemon_without_tls_is_told_from_one_that_is_not_trusted() {
    let network = Network::start(Encryption::Off);
    let files = CertificateFiles {
        certificate: network.daemon.folder.join("c.pem"),
        key: network.daemon.folder.join("k.pem"),
    };
    let address = "192.0.2.1".parse().expect("an address");
    ServerTls::read_or_generate(&files, None, address).expect("a certificate");
    let tls = ClientTls::new(Some(&files.certificate), None, "localhost").expect("trusted");
    let right = token(&network.daemon.folder, "a-secret-of-some-length");
    let client = network.client(right, Some(tls));
    let error = client.get::<Value>("/v1/status").expect_err("no TLS");
    assert!(error.to_string().contains("does not speak TLS"), "{error}");
}
