//! Options of TLS.

use std::path::PathBuf;

use tls::Version;

use super::{UrlError, decode, encode_name};

/// TLS of NVMe/TCP, as a URL sets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsOptions {
    /// The file of the key (`tls-psk-file=`); plain if absent.
    pub psk_file: Option<PathBuf>,
    /// Whether an authentication generates the key (`tls=generated`).
    pub generates_key: bool,
    /// The version of the identity to send (`tls-identity=`). Some targets know only version 0.
    pub identity: Version,
}

impl Default for TlsOptions {
    fn default() -> Self {
        Self {
            psk_file: None,
            generates_key: false,
            identity: Version::One,
        }
    }
}

impl TlsOptions {
    /// Sets `option`; `known` are those that a URL may have.
    pub(super) fn set(
        &mut self,
        option: &str,
        value: &str,
        known: &'static str,
    ) -> Result<(), UrlError> {
        let bad = |option, expected| UrlError::OptionValue {
            option,
            value: value.to_owned(),
            expected,
        };
        match (option, value) {
            ("tls-psk-file", path) => self.psk_file = Some(decode(path)?.into()),
            ("tls-identity", "0") => self.identity = Version::Zero,
            ("tls-identity", "1") => self.identity = Version::One,
            ("tls-identity", _) => return Err(bad("tls-identity", "its version is 0 or 1")),
            ("tls", "generated") => self.generates_key = true,
            ("tls", _) => {
                let expected = "it is generated; tls-psk-file= names a key";
                return Err(bad("tls", expected));
            }
            _ => {
                return Err(UrlError::UnknownOption {
                    option: option.to_owned(),
                    known,
                });
            }
        }
        Ok(())
    }

    /// The options in a URL.
    pub(super) fn shown(&self) -> impl Iterator<Item = String> {
        let file = self.psk_file.as_ref().map(|path| {
            let path = path.to_string_lossy();
            format!("tls-psk-file={}", encode_name(&path))
        });
        let shown = [
            file,
            self.generates_key.then(|| "tls=generated".to_owned()),
            (self.identity == Version::Zero).then(|| "tls-identity=0".to_owned()),
        ];
        shown.into_iter().flatten()
    }
}
