//! Secrets in definitions: as text, in a file that was not read yet, or hidden.

use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use server::{ChapFault, ChapSecret, DhChapSecret, DhChapSecretError, TlsKey, TlsKeyError};
use zeroize::Zeroizing;

use super::HIDDEN_SECRET;
use crate::secret_file::is_exposed;

/// A secret that is not given once.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SecretFault {
    #[error("missing field `secret` or `secret_file`")]
    Missing,
    #[error("secret and secret_file exclude each other; keep one of them")]
    Twice,
}

/// A secret of CHAP or DH-HMAC-CHAP. It is erased from memory when it drops. The state file and
/// backups contain the secret itself, all other output [`Secret::HIDDEN`]. As input, `HIDDEN` means
/// the secret that is stored already.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Written);

#[derive(Clone, PartialEq, Eq)]
enum Written {
    Text(Zeroizing<String>),
    /// In a file that was not read yet.
    File(PathBuf),
}

/// Why a file gives no secret.
#[derive(Debug, thiserror::Error)]
pub enum SecretFileError {
    /// It cannot be read.
    #[error(
        "cannot read a secret from {path}: {source}; give a file whose first line is the secret",
        path = path.display()
    )]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Others may read it.
    #[error("other users can read the secret file {path}; run `chmod 600 {path}`", path = path.display())]
    Exposed {
        /// The file.
        path: PathBuf,
    },
}

/// The most that is read of a file with a secret, which has at most 255 bytes.
const SECRET_LINE_MAX_BYTES: u64 = 4096;

impl Secret {
    /// The text shown instead of a secret. It is too short to be a secret.
    pub const HIDDEN: &'static str = HIDDEN_SECRET;

    /// A secret.
    pub fn new(text: impl Into<String>) -> Self {
        Self(Written::Text(Zeroizing::new(text.into())))
    }

    /// Reads a secret: the first line of a file that its owner alone may read.
    pub fn read(path: &Path) -> Result<Self, SecretFileError> {
        let unreadable = |source| SecretFileError::Read {
            path: path.to_owned(),
            source,
        };
        let file = File::open(path).map_err(unreadable)?;
        if is_exposed(&file.metadata().map_err(unreadable)?) {
            return Err(SecretFileError::Exposed {
                path: path.to_owned(),
            });
        }
        Self::read_from(file).map_err(unreadable)
    }

    /// Reads a secret: the first line.
    pub fn read_from(source: impl Read) -> io::Result<Self> {
        let mut line = Zeroizing::new(String::new());
        BufReader::new(source.take(SECRET_LINE_MAX_BYTES)).read_line(&mut line)?;
        Ok(Self::new(line.trim_end_matches(['\r', '\n'])))
    }

    pub(super) fn from_form(
        text: Option<String>,
        file: Option<PathBuf>,
    ) -> Result<Self, SecretFault> {
        match (text, file) {
            (Some(text), None) => Ok(Self::new(text)),
            (None, Some(file)) => Ok(Self(Written::File(file))),
            (None, None) => Err(SecretFault::Missing),
            (Some(_), Some(_)) => Err(SecretFault::Twice),
        }
    }

    /// The same for a secret that may be absent.
    pub(super) fn from_optional(
        text: Option<String>,
        file: Option<PathBuf>,
    ) -> Result<Option<Self>, SecretFault> {
        match (&text, &file) {
            (None, None) => Ok(None),
            _ => Self::from_form(text, file).map(Some),
        }
    }

    pub(super) fn into_form(self) -> (Option<String>, Option<PathBuf>) {
        match self.0 {
            Written::Text(text) => (Some(text.as_str().to_owned()), None),
            Written::File(file) => (None, Some(file)),
        }
    }

    /// Reads the file that the secret is in, if it is in one. Relative paths begin at `folder`.
    pub(super) fn resolve(&mut self, folder: &Path) -> Result<(), SecretFileError> {
        if let Written::File(file) = &self.0 {
            *self = Self::read(&folder.join(file))?;
        }
        Ok(())
    }

    /// A placeholder for the secret that is stored already.
    pub fn hidden() -> Self {
        Self::new(Self::HIDDEN)
    }

    pub(super) fn is_hidden(&self) -> bool {
        matches!(&self.0, Written::Text(text) if **text == *Self::HIDDEN)
    }

    pub(super) fn is_unread(&self) -> bool {
        matches!(self.0, Written::File(_))
    }

    /// Takes the place of a hidden secret with `known`. Returns `false` if that does not exist.
    pub(super) fn fill_in(&mut self, known: Option<&Self>) -> bool {
        match known {
            _ if !self.is_hidden() => true,
            Some(known) => {
                *self = known.clone();
                true
            }
            None => false,
        }
    }

    pub(super) fn to_dhchap(&self) -> Result<DhChapSecret, DhChapSecretError> {
        match &self.0 {
            Written::Text(text) => text.parse(),
            Written::File(_) => Err(DhChapSecretError::Form),
        }
    }

    pub(super) fn to_tls_key(&self) -> Result<TlsKey, TlsKeyError> {
        match &self.0 {
            Written::Text(text) => text.parse(),
            Written::File(_) => Err(TlsKeyError::Form),
        }
    }

    pub(super) fn to_server(&self) -> Result<ChapSecret, ChapFault> {
        match &self.0 {
            Written::Text(text) => ChapSecret::new(text.as_bytes()),
            Written::File(_) => Err(ChapFault::SecretLength),
        }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::HIDDEN)
    }
}
