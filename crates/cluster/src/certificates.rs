//! Certificates (X.509, RFC 5280) of nodes and their issuer.
//!
//! A cluster has an issuer of its own, with a random key that every node holds, so that any of them
//! can admit another. Before there is a cluster, daemons know each other by a token: the key of
//! another issuer is derived from it, so that holders of the token, and nobody else, have
//! certificates that the others accept. The token itself is never sent.

use std::net::IpAddr;
use std::sync::Arc;

use control::{PemIdentity, Token};
use hmac::{Hmac, Mac as _};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ED25519,
};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};
use sha2::Sha256;
use zeroize::Zeroizing;

use crate::client_tls::{ClientTls, ClientTlsError, certificates};

/// The shortest token: someone who sees a certificate may try tokens without being noticed.
const TOKEN_MIN_BYTES: usize = 32;
/// What the key of the token's issuer is derived for.
const DERIVATION: &[u8] = b"ramport cluster: issuer of nodes that hold the token, version 1";
/// PKCS#8 (RFC 5958) of an Ed25519 key (RFC 8410 §7), up to the key's 32 bytes.
const ED25519_PKCS8: [u8; 16] = [
    0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20,
];

/// Why certificates cannot be made or used.
#[derive(Debug, thiserror::Error)]
pub enum CertificateFault {
    /// The token is too short.
    #[error(
        "the cluster's token is shorter than {TOKEN_MIN_BYTES} bytes; create one with `(umask 077; head -c 32 /dev/urandom | base64 > FILE)` and copy it to each machine"
    )]
    ShortToken,
    /// A certificate cannot be made.
    #[error("cannot make a certificate: {0}")]
    Make(#[from] rcgen::Error),
    /// A certificate cannot be used.
    #[error(transparent)]
    Use(#[from] ClientTlsError),
    /// A server's configuration cannot be made.
    #[error("cannot use the certificates of this node: {0}")]
    Serve(#[from] rustls::Error),
}

/// An issuer of certificates.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
}

/// Whom a certificate is for.
pub(crate) struct Subject<'a> {
    /// Where the node is reached.
    pub(crate) address: IpAddr,
    /// DNS names.
    pub(crate) names: &'a [String],
}

impl Authority {
    /// A new one, with a random key.
    pub(crate) fn create(cluster: &str) -> Result<Self, CertificateFault> {
        Self::with_key(cluster, KeyPair::generate()?)
    }

    /// One whose key is known.
    pub(crate) fn restore(cluster: &str, key: &str) -> Result<Self, CertificateFault> {
        Self::with_key(cluster, KeyPair::from_pem(key)?)
    }

    /// The one that all holders of a token have.
    pub(crate) fn of_token(token: &Token) -> Result<Self, CertificateFault> {
        if token.bytes().len() < TOKEN_MIN_BYTES {
            return Err(CertificateFault::ShortToken);
        }
        let mut derive =
            Hmac::<Sha256>::new_from_slice(token.bytes()).expect("HMAC takes keys of any length");
        derive.update(DERIVATION);
        let seed = Zeroizing::new(derive.finalize().into_bytes().to_vec());
        let der = Zeroizing::new([&ED25519_PKCS8[..], seed.as_slice()].concat());
        let key = PrivatePkcs8KeyDer::from(der.as_slice());
        let key = KeyPair::from_pkcs8_der_and_sign_algo(&key, &PKCS_ED25519)?;
        Self::with_key("of the token", key)
    }

    fn with_key(cluster: &str, key: KeyPair) -> Result<Self, CertificateFault> {
        let mut params = CertificateParams::default();
        let name = format!("ramport cluster {cluster}");
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let certificate = params.self_signed(&key)?.pem();
        Ok(Self {
            issuer: Issuer::new(params, key),
            certificate,
        })
    }

    /// The private key as PEM.
    pub(crate) fn key(&self) -> String {
        self.issuer.key().serialize_pem()
    }

    /// A certificate for both ends of connections, with a new key.
    pub(crate) fn issue(&self, subject: &Subject<'_>) -> Result<PemIdentity, CertificateFault> {
        let key = KeyPair::generate()?;
        let address = subject.address.to_string();
        let names: Vec<_> = subject.names.iter().cloned().chain([address]).collect();
        let mut params = CertificateParams::new(names)?;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        params.use_authority_key_identifier_extension = true;
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok(PemIdentity {
            issuers: self.certificate.clone(),
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        })
    }
}

/// The client's end with an identity.
pub(crate) fn client(identity: &PemIdentity) -> Result<ClientTls, ClientTlsError> {
    ClientTls::new(&identity.issuers, &identity.certificate, &identity.key)
}

/// The server's end: clients must show a certificate of the same issuer.
pub(crate) fn server(identity: &PemIdentity) -> Result<Arc<ServerConfig>, CertificateFault> {
    let mut roots = RootCertStore::empty();
    for issuer in certificates("the issuer's certificate", &identity.issuers)? {
        roots.add(issuer)?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
    let verifier = verifier.build().map_err(|error| {
        // Without roots there is no verifier; there is one.
        CertificateFault::Serve(rustls::Error::General(error.to_string()))
    })?;
    let chain = certificates("the node's certificate", &identity.certificate)?;
    let what = "the node's private key";
    let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes())
        .map_err(|source| ClientTlsError::Read { what, source })?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key)?;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use block::testing::Folder;
    use rustls::pki_types::ServerName;
    use rustls::{ClientConnection, ServerConnection};

    use super::*;

    fn token(text: &str) -> Token {
        let folder = Folder::new();
        let path = folder.join("token");
        std::fs::write(&path, text).expect("written");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("set");
        Token::read(&path).expect("a token")
    }

    fn issue(authority: &Authority) -> PemIdentity {
        let subject = Subject {
            address: "192.0.2.1".parse().expect("an address"),
            names: &["node-1.ramport.internal".to_owned()],
        };
        authority.issue(&subject).expect("issued")
    }

    /// Whether two ends accept each other.
    fn meet(at_client: &PemIdentity, at_server: &PemIdentity, name: &str) -> bool {
        let client = client(at_client).expect("usable");
        let name: ServerName<'static> = name.to_owned().try_into().expect("a name");
        let mut client = ClientConnection::new(client.config(), name).expect("a connection");
        let config = server(at_server).expect("usable");
        let mut server = ServerConnection::new(config).expect("a connection");
        for _ in 0..8 {
            let mut bytes = Vec::new();
            client.write_tls(&mut bytes).expect("written");
            let mut left = bytes.as_slice();
            while !left.is_empty() {
                server.read_tls(&mut left).expect("read");
            }
            if server.process_new_packets().is_err() {
                return false;
            }
            bytes.clear();
            server.write_tls(&mut bytes).expect("written");
            let mut left = bytes.as_slice();
            while !left.is_empty() {
                client.read_tls(&mut left).expect("read");
            }
            if client.process_new_packets().is_err() {
                return false;
            }
        }
        assert!(!client.is_handshaking() && !server.is_handshaking());
        true
    }

    #[test]
    fn holders_of_one_token_accept_each_other_and_no_others() {
        let (own, other) = ("o".repeat(32), "p".repeat(32));
        let of = |text: &str| Authority::of_token(&token(text)).expect("derived");
        let (first, second) = (issue(&of(&own)), issue(&of(&own)));
        let stranger = issue(&of(&other));
        assert!(meet(&first, &second, "192.0.2.1"));
        assert!(!meet(&first, &second, "192.0.2.2"), "another address");
        assert!(!meet(&first, &stranger, "192.0.2.1"));
        assert!(!meet(&stranger, &first, "192.0.2.1"));
        // It trusts the others but has no certificate that they accept.
        let intruder = PemIdentity {
            issuers: first.issuers.clone(),
            ..stranger
        };
        assert!(!meet(&intruder, &first, "192.0.2.1"));
        let short = Authority::of_token(&token(&"o".repeat(31)));
        assert!(matches!(short, Err(CertificateFault::ShortToken)));
    }

    #[test]
    fn a_restored_issuer_issues_for_the_same_cluster() {
        let authority = Authority::create("a").expect("created");
        let restored = Authority::restore("a", &authority.key()).expect("restored");
        let (first, second) = (issue(&authority), issue(&restored));
        assert!(meet(&first, &second, "node-1.ramport.internal"));
        let other = issue(&Authority::create("a").expect("created"));
        assert!(!meet(&first, &other, "192.0.2.1"));
    }
}
