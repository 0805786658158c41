//! The token that requests over TCP carry.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::secret_file::is_exposed;

/// The shortest token.
const LEN_MIN_BYTES: usize = 16;

/// A secret. Its `Debug` output hides it. The log names it by its file.
#[derive(Clone)]
pub struct Token {
    name: String,
    secret: Vec<u8>,
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
        let token = fs::read(path).map_err(failed)?.trim_ascii().to_vec();
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

    /// Whether the value of an `Authorization` header has this token. Takes the same time for every
    /// wrong value of a given length.
    pub(super) fn is_in(&self, header: &[u8]) -> bool {
        let expected = self.bearer();
        let difference = expected.iter().zip(header).fold(0, |difference, (a, b)| {
            std::hint::black_box(difference | (a ^ b))
        });
        expected.len() == header.len() && difference == 0
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
    fn only_the_whole_token_is_accepted() {
        let token = Token {
            name: "token".to_owned(),
            secret: b"0123456789abcdef".to_vec(),
        };
        assert!(token.is_in(b"Bearer 0123456789abcdef"));
        for wrong in [
            b"Bearer 0123456789abcdeF".as_slice(),
            b"Bearer 0123456789abcde",
            b"Bearer 0123456789abcdef ",
            b"bearer 0123456789abcdef",
            b"",
        ] {
            assert!(!token.is_in(wrong));
        }
        assert_eq!(format!("{token:?}"), r#"Token("token", secret)"#);
    }

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
        assert!(token.is_in(b"Bearer 0123456789abcdef0123456789abcdef"));
        fs::write(&path, "short").expect("written");
        assert!(matches!(Token::read(&path), Err(TokenError::Short { .. })));
        fs::remove_file(&path).expect("removed");
        assert!(matches!(Token::read(&path), Err(TokenError::Read { .. })));
    }
}
