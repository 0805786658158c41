//! A token in a file: a client's, or an administrator's that the daemon is given.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

use crate::secret_file::is_exposed;

/// The shortest token.
const LEN_MIN_BYTES: usize = 16;

/// A secret. Its `Debug` output hides it. The log names it by its file.
#[derive(Clone)]
pub struct Token {
    name: String,
    secret: Zeroizing<Vec<u8>>,
}

/// Why a token could not be read.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The file cannot be read.
    #[error(
        "cannot read the token file {path}: {source}; create one with `(umask 077; head -c 32 /dev/urandom | base64 > {path})`",
        path = path.display()
    )]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Other users can read the file.
    #[error("other users can read the token file {path}; run `chmod 600 {path}`", path = path.display())]
    Exposed {
        /// The file.
        path: PathBuf,
    },
    /// The token is too short to be a secret.
    #[error(
        "the token in {path} is shorter than {LEN_MIN_BYTES} bytes; create one with `(umask 077; head -c 32 /dev/urandom | base64 > {path})`",
        path = path.display()
    )]
    Short {
        /// The file.
        path: PathBuf,
    },
}

impl Token {
    /// Reads a token from a file that only its owner can read. White space around the token is
    /// ignored.
    pub fn read(path: &Path) -> Result<Self, TokenError> {
        let failed = |source| TokenError::Read {
            path: path.to_owned(),
            source,
        };
        if is_exposed(&fs::metadata(path).map_err(failed)?) {
            return Err(TokenError::Exposed {
                path: path.to_owned(),
            });
        }
        let text = Zeroizing::new(fs::read(path).map_err(failed)?);
        let token = Zeroizing::new(text.trim_ascii().to_vec());
        if token.len() < LEN_MIN_BYTES {
            return Err(TokenError::Short {
                path: path.to_owned(),
            });
        }
        let name = path.file_name().unwrap_or(path.as_os_str());
        Ok(Self {
            name: name.to_string_lossy().into_owned(),
            secret: token,
        })
    }

    /// The name of the token's file.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The value of the `Authorization` header with this token.
    pub(crate) fn bearer(&self) -> Vec<u8> {
        [b"Bearer ".as_slice(), &self.secret].concat()
    }

    /// The secret itself.
    pub fn bytes(&self) -> &[u8] {
        &self.secret
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Token({:?}, secret)", self.name)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_token_file_that_others_can_read_is_rejected() {
        let path = std::env::temp_dir().join(format!("ramport-token-{}", std::process::id()));
        fs::write(&path, "0123456789abcdef0123456789abcdef\n").expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("set");
        assert!(matches!(
            Token::read(&path),
            Err(TokenError::Exposed { .. })
        ));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("set");
        let token = Token::read(&path).expect("a token");
        assert_eq!(token.bytes(), b"0123456789abcdef0123456789abcdef");
        assert!(format!("{token:?}").ends_with(", secret)"));
        fs::write(&path, "short").expect("written");
        assert!(matches!(Token::read(&path), Err(TokenError::Short { .. })));
        fs::remove_file(&path).expect("removed");
        assert!(matches!(Token::read(&path), Err(TokenError::Read { .. })));
    }
}
