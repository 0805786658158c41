//! Whom the client takes for the daemon: the holder of a certificate that it was given, or of one
//! that a trusted issuer signed.

use std::path::Path;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, OtherError, SignatureScheme};

use crate::certificate::{CertificateError, CertificateFiles, Identity, issuers, read_all};

/// Where systems keep the issuers that they trust.
const SYSTEM_ISSUERS: &str = "/etc/ssl/certs/ca-certificates.crt";
/// What the file of trusted certificates holds.
const ISSUER: &str = "a certificate for --api-ca";

/// How to check that a daemon is the right one.
#[derive(Clone, Debug)]
pub struct ClientTls {
    pub(super) config: Arc<ClientConfig>,
    pub(super) name: ServerName<'static>,
}

/// Why TLS cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ClientTlsError {
    /// A file of certificates cannot be used.
    #[error("{0}")]
    Files(#[from] CertificateError),
    /// The host in the address is neither a name nor an IP address.
    #[error("{host:?} is neither a host name nor an address; write https://HOST:PORT")]
    Host {
        /// What was given.
        host: String,
    },
}

impl ClientTls {
    /// Trusts the certificates in `trusted` and those that they signed; without a file, the issuers
    /// that the system trusts. The daemon is at `host`. `own` is what the client shows.
    pub fn new(
        trusted: Option<&Path>,
        own: Option<&CertificateFiles>,
        host: &str,
    ) -> Result<Self, ClientTlsError> {
        let path = trusted.unwrap_or(Path::new(SYSTEM_ISSUERS));
        let certificates = read_all(ISSUER, path)?;
        let name = ServerName::try_from(host.to_owned()).map_err(|_| ClientTlsError::Host {
            host: host.to_owned(),
        })?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let roots = Arc::new(issuers(ISSUER, path, &certificates)?);
        let none = || CertificateError::NoIssuer {
            what: ISSUER,
            path: path.to_owned(),
        };
        let signed = WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&provider));
        let signed = signed.build().map_err(|_| none())?;
        // The issuers of the system are no daemons.
        let exact = trusted.map_or_else(Vec::new, |_| certificates);
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|_| none())?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Verifier { exact, signed }));
        let config = match own {
            None => builder.with_no_client_auth(),
            Some(files) => {
                let Identity { chain, key } = files.read()?;
                let config = builder.with_client_auth_cert(chain, key);
                config.map_err(|source| files.unusable(source))?
            }
        };
        Ok(Self {
            config: Arc::new(config),
            name,
        })
    }
}

/// Accepts a certificate that was given itself, whatever names it has, and otherwise asks the rules
/// of the Web PKI.
#[derive(Debug)]
struct Verifier {
    exact: Vec<CertificateDer<'static>>,
    signed: Arc<WebPkiServerVerifier>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if self.exact.contains(certificate) {
            return Ok(ServerCertVerified::assertion());
        }
        let signed = &self.signed;
        signed.verify_server_cert(certificate, intermediates, name, ocsp, now)
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::Other(OtherError(Arc::new(OldVersion))))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let signed = &self.signed;
        signed.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.signed.supported_verify_schemes()
    }
}

/// TLS 1.2, which is not offered.
#[derive(Debug, thiserror::Error)]
#[error("only TLS 1.3 is used")]
struct OldVersion;
