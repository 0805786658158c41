//! How connections between nodes are protected: TLS 1.3 (RFC 8446) with certificates of both sides.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, StreamOwned,
};
use webpki::EndEntityCert;

/// Whether connections between nodes are encrypted.
#[derive(Clone, Debug)]
pub enum Security {
    /// Anybody who reaches the port is believed to be the node that it claims to be: for tests, and
    /// for networks that nobody else reaches.
    Plain,
    /// Both sides show a certificate that the cluster's issuer signed, for the name of their node.
    Mutual(Credentials),
}

/// A node's certificate and key, and the issuer of the cluster.
#[derive(Clone)]
pub struct Credentials {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
}

/// Why credentials cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    /// A text is no PEM.
    #[error("cannot read {what}: {source}; give a PEM text that holds one")]
    Pem {
        /// What was looked for.
        what: &'static str,
        /// What is wrong.
        source: rustls::pki_types::pem::Error,
    },
    /// Certificate, key and issuer do not serve for TLS.
    #[error(
        "cannot use the node's certificate: {0}; give a certificate of the cluster and its key"
    )]
    Tls(#[from] rustls::Error),
    /// The issuer's certificate does not serve to check others.
    #[error("cannot use the issuer's certificate; give that of the cluster")]
    Issuer,
}

/// The DNS name in the certificate of a node (subjectAltName, RFC 5280 §4.2.1.6).
pub fn node_name(node: u32) -> String {
    format!("node-{node}.ramport.internal")
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").finish_non_exhaustive()
    }
}

impl Credentials {
    /// Credentials of PEM texts: the node's certificate with those that lead to its issuer, its
    /// key, and the certificates of issuers.
    ///
    /// # Errors
    /// If a text holds something else, or they do not fit together.
    pub fn from_pem(chain: &str, key: &str, issuers: &str) -> Result<Self, CredentialsError> {
        let chain = certificates("a certificate", chain)?;
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(|source| {
            let what = "a private key";
            CredentialsError::Pem { what, source }
        })?;
        let mut roots = RootCertStore::empty();
        for issuer in certificates("an issuer's certificate", issuers)? {
            roots.add(issuer).map_err(|_| CredentialsError::Issuer)?;
        }
        let roots = Arc::new(roots);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let versions = [&rustls::version::TLS13];
        let clients =
            WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider));
        let clients = clients.build().map_err(|_| CredentialsError::Issuer)?;
        let mut server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&versions)?
            .with_client_cert_verifier(clients)
            .with_single_cert(chain.clone(), key.clone_key())?;
        // Bytes go one way only, so nobody would read tickets.
        server.send_tls13_tickets = 0;
        server.session_storage = Arc::new(NoServerSessionStorage {});
        let client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&versions)?
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, key)?;
        Ok(Self {
            client: Arc::new(client),
            server: Arc::new(server),
        })
    }
}

fn certificates(
    what: &'static str,
    pem: &str,
) -> Result<Vec<CertificateDer<'static>>, CredentialsError> {
    let held: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    held.map_err(|source| CredentialsError::Pem { what, source })
}

/// The end of a connection that receives.
pub(crate) enum Incoming {
    Plain(TcpStream),
    Mutual(Box<StreamOwned<ServerConnection, TcpStream>>),
}

impl Security {
    /// The sending end of a connection to `node`. The handshake happens with the first bytes.
    pub(crate) fn connect(
        &self,
        stream: TcpStream,
        node: u32,
    ) -> io::Result<Box<dyn Write + Send>> {
        Ok(match self {
            Self::Plain => Box::new(stream),
            Self::Mutual(credentials) => {
                let name = ServerName::try_from(node_name(node)).map_err(io::Error::other)?;
                let client = ClientConnection::new(Arc::clone(&credentials.client), name);
                let client = client.map_err(io::Error::other)?;
                Box::new(StreamOwned::new(client, stream))
            }
        })
    }

    /// The receiving end of a connection.
    pub(crate) fn accept(&self, stream: TcpStream) -> io::Result<Incoming> {
        Ok(match self {
            Self::Plain => Incoming::Plain(stream),
            Self::Mutual(credentials) => {
                let server = ServerConnection::new(Arc::clone(&credentials.server));
                let server = server.map_err(io::Error::other)?;
                Incoming::Mutual(Box::new(StreamOwned::new(server, stream)))
            }
        })
    }
}

impl Incoming {
    /// Whether the peer, which has sent something, has proved to be `node`.
    pub fn is_of(&self, node: u32) -> bool {
        let Self::Mutual(stream) = self else {
            return true;
        };
        let shown = stream.conn.peer_certificates().unwrap_or_default();
        let own = shown.first().map(EndEntityCert::try_from);
        let name = ServerName::try_from(node_name(node));
        let (Some(Ok(own)), Ok(name)) = (own, name) else {
            return false;
        };
        own.verify_is_valid_for_subject_name(&name).is_ok()
    }
}

impl Read for Incoming {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.read(buffer),
            Self::Mutual(stream) => stream.read(buffer),
        }
    }
}
