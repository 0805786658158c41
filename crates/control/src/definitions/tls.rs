//! Keys of NVMe hosts for TLS, which are stored and never shown.

use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use server::{TlsKeyError, TlsKeys};
use utoipa::ToSchema;

use super::secret::{Secret, SecretFault};

/// The keys of an NVMe host for TLS.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "TlsForm", into = "TlsForm")]
pub struct Tls {
    /// The key, in the form `NVMeTLSkey-1:hh:BASE64:`.
    pub psk: Secret,
    /// A key that the host may use in its place, while it is being changed.
    pub other_psk: Option<Secret>,
}

/// Keys for TLS over NVMe/TCP. Either `psk` or `psk_file` is required.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Tls)]
pub(crate) struct TlsForm {
    /// The host's key, as `ramport host keygen --tls` or `nvme gen-tls-key` prints it. `(hidden)`
    /// keeps the stored one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    psk: Option<String>,
    /// A file whose first line is the key. Other users must not be able to read it. Only
    /// `ramport apply` reads it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "host.psk")]
    psk_file: Option<PathBuf>,
    /// Another key that the host may use in its place, while it is being changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    other_psk: Option<String>,
    /// A file whose first line is the other key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "other.psk")]
    other_psk_file: Option<PathBuf>,
}

impl TryFrom<TlsForm> for Tls {
    type Error = SecretFault;

    fn try_from(form: TlsForm) -> Result<Self, SecretFault> {
        Ok(Self {
            psk: Secret::from_form(form.psk, form.psk_file)?,
            other_psk: Secret::from_optional(form.other_psk, form.other_psk_file)?,
        })
    }
}

impl From<Tls> for TlsForm {
    fn from(tls: Tls) -> Self {
        let (psk, psk_file) = tls.psk.into_form();
        let other = tls.other_psk.map_or((None, None), Secret::into_form);
        Self {
            psk,
            psk_file,
            other_psk: other.0,
            other_psk_file: other.1,
        }
    }
}

impl Tls {
    pub(super) fn secrets_mut(&mut self) -> impl Iterator<Item = &mut Secret> {
        std::iter::once(&mut self.psk).chain(&mut self.other_psk)
    }

    fn secrets(&self) -> impl Iterator<Item = &Secret> {
        std::iter::once(&self.psk).chain(&self.other_psk)
    }

    /// Whether a key is in a file that was not read.
    pub(super) fn is_unread(&self) -> bool {
        self.secrets().any(Secret::is_unread)
    }

    /// Whether its keys are valid, as far as they are not hidden.
    pub(super) fn check(&self) -> Result<(), TlsKeyError> {
        let known = self
            .secrets()
            .filter(|secret| !secret.is_hidden() && !secret.is_unread());
        for secret in known {
            secret.to_tls_key()?;
        }
        Ok(())
    }

    pub(crate) fn to_server(&self) -> Result<TlsKeys, TlsKeyError> {
        let other = self
            .other_psk
            .as_ref()
            .map(Secret::to_tls_key)
            .transpose()?;
        Ok(TlsKeys {
            key: Arc::new(self.psk.to_tls_key()?),
            other: other.map(Arc::new),
        })
    }

    /// Puts the keys of `known` in the place of hidden ones; false if there is none to put there.
    pub(super) fn fill_in(&mut self, known: Option<&Self>) -> bool {
        let is_whole = self.psk.fill_in(known.map(|known| &known.psk));
        let other = known.and_then(|known| known.other_psk.as_ref());
        let mut own = self.other_psk.iter_mut();
        own.all(|secret| secret.fill_in(other)) && is_whole
    }
}

#[cfg(test)]
mod tests {
    use crate::Definitions;

    const KEY: &str = "NVMeTLSkey-1:01:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ:";

    fn text(key: &str) -> String {
        format!(
            "[hosts.\"nqn.2014-08.org.example:h\".tls]\npsk = \"{key}\"\nother_psk = \"{KEY}\"\n"
        )
    }

    #[test]
    fn hidden_keys_mean_the_stored_ones() {
        let known = Definitions::from_toml(&text(KEY)).expect("definitions");
        let told = known.clone().without_secrets();
        assert!(!told.to_toml().contains("VRLb") && !format!("{known:?}").contains("VRLb"));
        let mut back = Definitions::from_toml(&told.to_toml()).expect("reads back");
        back.fill_in_secrets(&known).expect("known");
        assert_eq!(back, known);
        told.clone()
            .fill_in_secrets(&Definitions::default())
            .expect_err("nothing is known");
    }

    #[test]
    fn keys_that_are_invalid_are_refused_without_being_shown() {
        for key in ["open sesame", &KEY.replace("VRLb", "VRLc")] {
            let told = Definitions::from_toml(&text(key)).expect_err("refused");
            let told = told.to_string();
            assert!(
                told.contains("TLS key") && !told.contains("sesame"),
                "{told}"
            );
            assert!(!told.contains("VRLc"), "{told}");
        }
    }
}
