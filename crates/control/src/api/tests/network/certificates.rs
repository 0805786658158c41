//! Certificates of clients: whose are accepted, and for which role.

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    date_time_ymd,
};

use super::*;

/// An issuer of certificates of clients.
struct Issuer {
    folder: Folder,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// What is wrong with a certificate, if anything.
#[derive(Clone, Copy, PartialEq)]
enum Flaw {
    None,
    Expired,
    NotYetValid,
    ForServers,
}

impl Issuer {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let issuer = CertifiedIssuer::self_signed(params, key).expect("an issuer");
        let folder = Folder::new();
        std::fs::write(folder.join("ca.pem"), issuer.pem()).expect("written");
        Self { folder, issuer }
    }

    fn path(&self) -> PathBuf {
        self.folder.join("ca.pem")
    }

    /// A certificate with these DNS names.
    fn issue(&self, names: &[&str], flaw: Flaw) -> CertificateFiles {
        let names: Vec<_> = names.iter().map(ToString::to_string).collect();
        let mut params = CertificateParams::new(names).expect("names");
        params.extended_key_usages = vec![match flaw {
            Flaw::ForServers => ExtendedKeyUsagePurpose::ServerAuth,
            _ => ExtendedKeyUsagePurpose::ClientAuth,
        }];
        match flaw {
            Flaw::Expired => params.not_after = date_time_ymd(2020, 1, 1),
            Flaw::NotYetValid => params.not_before = date_time_ymd(4000, 1, 1),
            Flaw::None | Flaw::ForServers => {}
        }
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        let files = CertificateFiles {
            certificate: self.folder.join("client.pem"),
            key: self.folder.join("client-key.pem"),
        };
        std::fs::write(&files.certificate, certificate.pem()).expect("written");
        let _ = std::fs::remove_file(&files.key);
        std::fs::write(&files.key, key.serialize_pem()).expect("written");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(&files.key, mode).expect("set");
        files
    }
}

impl Network {
    /// A client that shows a certificate.
    fn with_certificate(&self, files: &CertificateFiles, token: Option<Token>) -> Client {
        let daemon = Some(self.certificate.certificate.as_path());
        let tls = ClientTls::new(daemon, Some(files), "localhost").expect("usable");
        let client = self.client(token, Some(tls));
        client.with_time_limit(Duration::from_secs(20))
    }
}

fn kind(result: Result<Value, ClientError>) -> String {
    match result {
        Ok(_) => "done".to_owned(),
        Err(ClientError::Refused { kind, .. }) => kind,
        Err(ClientError::Broken { .. }) => "broken".to_owned(),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_certificate_has_the_role_of_its_name_until_that_is_removed() {
    let issuer = Issuer::new();
    let network = Network::start(Encryption::Clients(&issuer.path()));
    let files = issuer.issue(&["unknown.example", "ops.example"], Flaw::None);
    let client = network.with_certificate(&files, None);
    let status = || kind(client.get("/v1/status"));
    assert_eq!(status(), "unauthorized");
    // A token of that name whose proof is the token itself is another matter.
    network.create("unknown.example", Role::Administrator, TokenProof::Bearer);
    assert_eq!(status(), "unauthorized");
    let new = network.create("ops.example", Role::Operator, TokenProof::Certificate);
    assert_eq!(new.token, None);
    assert_eq!(status(), "done");
    let (code, text) = status_of(&client, r#"POST 0 /v1/volumes/a {"size": "4M"}"#);
    assert_eq!(code, 201, "{text}");
    let (code, text) = status_of(&client, "POST 0 /v1/hosts/h {}");
    assert_eq!(code, 403, "{text}");
    assert!(text.contains("ops.example has the role operator"), "{text}");
    network
        .local
        .delete("/v1/tokens/ops.example")
        .expect("gone");
    assert_eq!(status(), "unauthorized");
}

#[test]
fn a_token_comes_before_a_certificate_and_a_wrong_one_is_rejected() {
    let issuer = Issuer::new();
    let network = Network::start(Encryption::Clients(&issuer.path()));
    network.create("ops.example", Role::Administrator, TokenProof::Certificate);
    let new = network.create("reader", Role::ReadOnly, TokenProof::Bearer);
    let files = issuer.issue(&["ops.example"], Flaw::None);
    let folder = &network.daemon.folder;
    let of = |text: &str| network.with_certificate(&files, Some(token(folder, text)));
    let reader = of(&new.token.expect("a token"));
    assert_eq!(status_of(&reader, "GET 0 /v1/status").0, 200);
    assert_eq!(status_of(&reader, "POST 0 /v1/hosts/h {}").0, 403);
    let wrong = of("another-secret-of-length");
    assert_eq!(status_of(&wrong, "GET 0 /v1/status").0, 401);
    // Clients without a certificate use tokens as before.
    let daemon = Some(network.certificate.certificate.as_path());
    let tls = ClientTls::new(daemon, None, "localhost").expect("usable");
    let right = token(folder, "a-secret-of-some-length");
    let plain = network.client(right, Some(tls));
    assert_eq!(status_of(&plain, "POST 0 /v1/hosts/h {}").0, 201);
}

#[test]
fn certificates_of_strangers_and_those_that_are_not_valid_end_the_handshake() {
    let issuer = Issuer::new();
    let network = Network::start(Encryption::Clients(&issuer.path()));
    network.create("ops.example", Role::Administrator, TokenProof::Certificate);
    let ask = |files: &CertificateFiles| {
        let client = network.with_certificate(files, None);
        kind(client.get("/v1/status"))
    };
    assert_eq!(ask(&issuer.issue(&["ops.example"], Flaw::None)), "done");
    for flaw in [Flaw::Expired, Flaw::NotYetValid, Flaw::ForServers] {
        assert_eq!(ask(&issuer.issue(&["ops.example"], flaw)), "broken");
    }
    let stranger = Issuer::new();
    assert_eq!(ask(&stranger.issue(&["ops.example"], Flaw::None)), "broken");
    // A name that another name includes is not it.
    for name in ["*.example", "ops.example.org", "xops.example"] {
        assert_eq!(
            ask(&issuer.issue(&[name], Flaw::None)),
            "unauthorized",
            "{name}"
        );
    }
    assert_eq!(ask(&issuer.issue(&["OPS.example"], Flaw::None)), "done");
}

#[test]
fn without_issuers_certificates_of_clients_prove_nothing() {
    let issuer = Issuer::new();
    let network = Network::start(Encryption::Tls);
    network.create("ops.example", Role::Administrator, TokenProof::Certificate);
    let files = issuer.issue(&["ops.example"], Flaw::None);
    let client = network.with_certificate(&files, None);
    assert_eq!(kind(client.get("/v1/status")), "unauthorized");
}
