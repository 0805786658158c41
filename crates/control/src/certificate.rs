//! Certificates and their private keys as PEM files (RFC 7468), for both ends of REST over TLS.

use std::fs;
use std::path::{Path, PathBuf};

use rustls::RootCertStore;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::secret_file::is_exposed;

/// A certificate with its key, as files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The certificate, and those that lead to its issuer, as PEM.
    pub certificate: PathBuf,
    /// Its private key as PEM, which its owner alone may read.
    pub key: PathBuf,
}

/// Why files of certificates cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// A file cannot be read as PEM.
    #[error("cannot read {what} from {path}: {source}; give a PEM file that holds one", path = path.display())]
    Read {
        /// What was looked for.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: pem::Error,
    },
    /// Other users can read the key.
    #[error("other users can read the private key {path}; run `chmod 600 {path}`", path = path.display())]
    Exposed {
        /// The file.
        path: PathBuf,
    },
    /// Certificate and key cannot be used.
    #[error("cannot use the certificate {path}: {source}; give a certificate and its key", path = path.display())]
    Unusable {
        /// The certificate's file.
        path: PathBuf,
        /// What is wrong.
        source: rustls::Error,
    },
    /// No certificate of a file can be used as an issuer's.
    #[error("cannot use {what} from {path}; give a PEM file that holds one", path = path.display())]
    NoIssuer {
        /// What was looked for.
        what: &'static str,
        /// The file.
        path: PathBuf,
    },
}

/// A certificate with those that lead to its issuer, and its private key.
pub(crate) struct Identity {
    /// Its own certificate is the first.
    pub(crate) chain: Vec<CertificateDer<'static>>,
    pub(crate) key: PrivateKeyDer<'static>,
}

impl CertificateFiles {
    /// Reads both files.
    pub(crate) fn read(&self) -> Result<Identity, CertificateError> {
        let chain = read_all("a certificate", &self.certificate)?;
        if fs::metadata(&self.key).is_ok_and(|found| is_exposed(&found)) {
            let path = self.key.clone();
            return Err(CertificateError::Exposed { path });
        }
        let key = PrivateKeyDer::from_pem_file(&self.key);
        let key = key.map_err(|source| unreadable("a private key", &self.key, source))?;
        Ok(Identity { chain, key })
    }

    /// What is wrong with a certificate and a key that were read.
    pub(crate) fn unusable(&self, source: rustls::Error) -> CertificateError {
        let path = self.certificate.clone();
        CertificateError::Unusable { path, source }
    }
}

/// Reads the certificates of a file, which holds at least one. `what` describes one of them in an
/// error.
pub(crate) fn read_all(
    what: &'static str,
    path: &Path,
) -> Result<Vec<CertificateDer<'static>>, CertificateError> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
    let read: Vec<_> = read.map_err(|source| unreadable(what, path, source))?;
    if read.is_empty() {
        return Err(unreadable(what, path, pem::Error::NoItemsFound));
    }
    Ok(read)
}

/// The issuers among the certificates that were read from `path`. `what` describes one of them in
/// an error.
pub(crate) fn issuers(
    what: &'static str,
    path: &Path,
    certificates: &[CertificateDer<'static>],
) -> Result<RootCertStore, CertificateError> {
    let mut issuers = RootCertStore::empty();
    let (usable, _) = issuers.add_parsable_certificates(certificates.iter().cloned());
    if usable == 0 {
        let path = path.to_owned();
        return Err(CertificateError::NoIssuer { what, path });
    }
    Ok(issuers)
}

fn unreadable(what: &'static str, path: &Path, source: pem::Error) -> CertificateError {
    CertificateError::Read {
        what,
        path: path.to_owned(),
        source,
    }
}
