//! TLS 1.3 (RFC 8446) to etcd and to other nodes, with a certificate of the client.

use std::sync::Arc;

use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use tokio_rustls::TlsConnector;

/// Whom the client trusts, and what it shows.
#[derive(Clone, Debug)]
pub struct ClientTls(Arc<ClientConfig>);

/// Why TLS cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ClientTlsError {
    /// A text is not PEM, or does not hold what is needed.
    #[error("cannot read {what}: {source}; give a PEM file that holds one")]
    Read {
        /// What was looked for.
        what: &'static str,
        /// What is wrong.
        source: pem::Error,
    },
    /// The certificates do not serve.
    #[error("cannot use these certificates: {0}; give an issuer, and a certificate with its key")]
    Unusable(#[from] rustls::Error),
}

impl ClientTls {
    /// From PEM texts: the issuers of servers, and the client's certificate with its key.
    pub fn new(issuers: &str, certificate: &str, key: &str) -> Result<Self, ClientTlsError> {
        let mut roots = RootCertStore::empty();
        for issuer in certificates("the issuer's certificate", issuers)? {
            roots.add(issuer)?;
        }
        let chain = certificates("the client's certificate", certificate)?;
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes());
        let what = "the client's private key";
        let key = key.map_err(|source| ClientTlsError::Read { what, source })?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, key)?;
        Ok(Self(Arc::new(config)))
    }

    #[cfg(test)]
    pub(crate) fn config(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.0)
    }

    pub(crate) fn connector(&self) -> TlsConnector {
        TlsConnector::from(Arc::clone(&self.0))
    }
}

/// The certificates of a PEM text, which holds at least one.
pub(crate) fn certificates(
    what: &'static str,
    text: &str,
) -> Result<Vec<CertificateDer<'static>>, ClientTlsError> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
    let read = read.map_err(|source| ClientTlsError::Read { what, source })?;
    if read.is_empty() {
        let source = pem::Error::NoItemsFound;
        return Err(ClientTlsError::Read { what, source });
    }
    Ok(read)
}
