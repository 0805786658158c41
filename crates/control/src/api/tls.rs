//! The certificate that the REST interface shows over TCP: from files, or generated at the first
//! start. TLS 1.3 alone (RFC 8446).

use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{ServerConfig, ServerConnection};
use server::replace_private;
use sha2::{Digest as _, Sha256};
use webpki::EndEntityCert;

use super::tokens::hex;
use crate::certificate::{CertificateError, CertificateFiles, Identity, issuers, read_all};

/// Where Linux shows the name of the machine.
const HOST_NAME: &str = "/proc/sys/kernel/hostname";
/// What the file of issuers of clients holds.
const CLIENT_ISSUER: &str = "a certificate for --api-client-ca";
/// The most names of a client's certificate that are used.
const CLIENT_NAMES_MAX: usize = 16;

/// What is needed to serve TLS.
#[derive(Clone, Debug)]
pub struct ServerTls {
    pub(super) config: Arc<ServerConfig>,
    fingerprint: String,
}

/// Why TLS is not served.
#[derive(Debug, thiserror::Error)]
pub enum ServerTlsError {
    /// The certificate, its key or the issuers of clients cannot be used.
    #[error("{0}")]
    Files(#[from] CertificateError),
    /// A certificate cannot be generated.
    #[error("cannot generate a certificate: {0}; give one with --api-cert and --api-key")]
    Generate(#[source] rcgen::Error),
    /// The generated certificate cannot be stored.
    #[error("cannot write {path}: {source}; make its folder writable, or give a certificate with --api-cert and --api-key", path = path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl ServerTls {
    /// Reads certificate and key. Clients may show certificates that the issuers in the file
    /// `client_issuers` signed.
    pub fn read(
        files: &CertificateFiles,
        client_issuers: Option<&Path>,
    ) -> Result<Self, ServerTlsError> {
        let Identity { chain, key } = files.read()?;
        let fingerprint = chain.first().map(|own| hex(&Sha256::digest(own)));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let clients = client_verifier(client_issuers, &provider)?;
        let config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .and_then(|builder| {
                let builder = builder.with_client_cert_verifier(clients);
                builder.with_single_cert(chain, key)
            });
        let mut config = config.map_err(|source| files.unusable(source))?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        // A resumed session would go on with a certificate that has expired since.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(Self {
            config: Arc::new(config),
            fingerprint: fingerprint.unwrap_or_default(),
        })
    }

    /// Reads certificate and key, which are generated if neither exists. Clients know the
    /// certificate by `address`, unless that is unspecified, and by the names of this machine.
    pub fn read_or_generate(
        files: &CertificateFiles,
        client_issuers: Option<&Path>,
        address: IpAddr,
    ) -> Result<Self, ServerTlsError> {
        if !files.certificate.exists() && !files.key.exists() {
            generate(files, address)?;
        }
        Self::read(files, client_issuers)
    }

    /// The SHA-256 of the certificate, by which people compare it.
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }
}

/// Checks the certificates of clients, which need none.
fn client_verifier(
    issuers_file: Option<&Path>,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, CertificateError> {
    let Some(path) = issuers_file else {
        return Ok(WebPkiClientVerifier::no_client_auth());
    };
    let roots = issuers(CLIENT_ISSUER, path, &read_all(CLIENT_ISSUER, path)?)?;
    let builder =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider));
    let verifier = builder.allow_unauthenticated().build();
    verifier.map_err(|_| CertificateError::NoIssuer {
        what: CLIENT_ISSUER,
        path: path.to_owned(),
    })
}

/// The DNS names of the certificate that the client of a connection showed, and that a trusted
/// issuer signed (subjectAltName, RFC 5280 §4.2.1.6).
pub(super) fn client_names(connection: &ServerConnection) -> Vec<String> {
    let shown = connection.peer_certificates().unwrap_or_default();
    let own = shown.first().map(EndEntityCert::try_from);
    let Some(Ok(own)) = own else {
        return Vec::new();
    };
    let names = own.valid_dns_names().take(CLIENT_NAMES_MAX);
    names.map(str::to_owned).collect()
}

fn generate(files: &CertificateFiles, address: IpAddr) -> Result<(), ServerTlsError> {
    let mut names = vec![
        "localhost".to_owned(),
        "127.0.0.1".to_owned(),
        "::1".to_owned(),
    ];
    let host = fs::read_to_string(HOST_NAME).unwrap_or_default();
    names.extend((!host.trim().is_empty()).then(|| host.trim().to_owned()));
    if !address.is_unspecified() {
        names.push(address.to_canonical().to_string());
    }
    names.sort_unstable();
    names.dedup();
    let generated = rcgen::generate_simple_self_signed(names).map_err(ServerTlsError::Generate)?;
    let key = zeroize::Zeroizing::new(generated.signing_key.serialize_pem());
    for (path, text) in [
        (&files.key, key.as_str()),
        (&files.certificate, generated.cert.pem().as_str()),
    ] {
        replace_private(path, text.as_bytes()).map_err(|source| ServerTlsError::Write {
            path: path.clone(),
            source,
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::testing::Folder;

    fn files(folder: &Folder) -> CertificateFiles {
        CertificateFiles {
            certificate: folder.join("api-cert.pem"),
            key: folder.join("api-key.pem"),
        }
    }

    #[test]
    fn a_certificate_is_generated_once_and_its_key_is_private() {
        let folder = Folder::new();
        let files = files(&folder);
        let address = "192.0.2.1".parse().expect("an address");
        let first = ServerTls::read_or_generate(&files, None, address).expect("generated");
        let mode = fs::metadata(&files.key)
            .expect("a file")
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
        let second = ServerTls::read_or_generate(&files, None, address).expect("read");
        assert_eq!(first.fingerprint(), second.fingerprint());
        assert_eq!(first.fingerprint().len(), 64);
    }

    #[test]
    fn files_that_do_not_serve_are_rejected_with_their_reason() {
        let folder = Folder::new();
        let files = files(&folder);
        let address = "192.0.2.1".parse().expect("an address");
        ServerTls::read_or_generate(&files, None, address).expect("generated");
        let told = || {
            ServerTls::read(&files, None)
                .expect_err("rejected")
                .to_string()
        };
        fs::set_permissions(&files.key, fs::Permissions::from_mode(0o644)).expect("set");
        assert!(told().contains("chmod 600"), "{}", told());
        fs::set_permissions(&files.key, fs::Permissions::from_mode(0o600)).expect("set");
        let told_of_issuers = || {
            let issuers = Some(files.key.as_path());
            let error = ServerTls::read(&files, issuers).expect_err("no issuer");
            error.to_string()
        };
        assert!(
            told_of_issuers().contains("for --api-client-ca from"),
            "{}",
            told_of_issuers()
        );
        fs::write(&files.certificate, "no certificate\n").expect("written");
        assert!(told().contains("give a PEM file"), "{}", told());
        fs::remove_file(&files.certificate).expect("removed");
        let half = ServerTls::read_or_generate(&files, None, address).expect_err("half");
        assert!(half.to_string().contains("api-cert.pem"), "{half}");
    }
}
