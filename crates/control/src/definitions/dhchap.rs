//! DH-HMAC-CHAP of NVMe hosts: secrets, which are stored and never shown.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use server::{DhChapDefinition, DhChapHash, DhChapSecretError, DhGroupPolicy};
use utoipa::ToSchema;

use super::secret::{Secret, SecretFault};
use crate::text::Text;

/// What an NVMe host has to prove when it connects a queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "DhChapForm", into = "DhChapForm")]
pub struct DhChap {
    /// The host's secret, in the form `DHHC-1:hh:BASE64:`.
    pub secret: Secret,
    /// A secret that the host may use in its place, while it is being changed.
    pub other_secret: Option<Secret>,
    /// What targets prove to the host, if it requests that.
    pub ctrl_secret: Option<Secret>,
    /// The only hash function to accept; any if absent.
    pub hash: Option<Text<DhChapHash>>,
    /// The groups to accept.
    pub dhgroup: Text<DhGroupPolicy>,
}

/// DH-HMAC-CHAP for NVMe. Either `secret` or `secret_file` is required.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = DhChap)]
pub(crate) struct DhChapForm {
    /// The host's secret, as `ramport host keygen` or `nvme gen-dhchap-key` prints it. `(hidden)`
    /// keeps the stored one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    secret: Option<String>,
    /// A file whose first line is the secret. Other users must not be able to read it. Only
    /// `ramport apply` reads it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "host.secret")]
    secret_file: Option<PathBuf>,
    /// Another secret that the host may use in its place, while it is being changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    other_secret: Option<String>,
    /// A file whose first line is the other secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "other.secret")]
    other_secret_file: Option<PathBuf>,
    /// The secret that targets prove to the host if it requests that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ctrl_secret: Option<String>,
    /// A file whose first line is the secret of targets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "ctrl.secret")]
    ctrl_secret_file: Option<PathBuf>,
    /// The only hash function to accept: `sha256`, `sha384` or `sha512`. Absent: the first that the
    /// host offers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "sha256")]
    hash: Option<Text<DhChapHash>>,
    /// The groups to accept: `any` (the smallest that the host offers, or none if it offers none),
    /// `none`, `ffdhe2048`,
    /// `ffdhe3072`, `ffdhe4096`, `ffdhe6144` or `ffdhe8192`.
    #[serde(default, skip_serializing_if = "is_any")]
    #[schema(value_type = String, default = "any", example = "ffdhe2048")]
    dhgroup: Text<DhGroupPolicy>,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde calls it with a reference"
)]
fn is_any(group: &Text<DhGroupPolicy>) -> bool {
    group.0 == DhGroupPolicy::Any
}

impl TryFrom<DhChapForm> for DhChap {
    type Error = SecretFault;

    fn try_from(form: DhChapForm) -> Result<Self, SecretFault> {
        Ok(Self {
            secret: Secret::from_form(form.secret, form.secret_file)?,
            other_secret: Secret::from_optional(form.other_secret, form.other_secret_file)?,
            ctrl_secret: Secret::from_optional(form.ctrl_secret, form.ctrl_secret_file)?,
            hash: form.hash,
            dhgroup: form.dhgroup,
        })
    }
}

impl From<DhChap> for DhChapForm {
    fn from(dhchap: DhChap) -> Self {
        let optional = |secret: Option<Secret>| secret.map_or((None, None), Secret::into_form);
        let (secret, secret_file) = dhchap.secret.into_form();
        let (other_secret, other_secret_file) = optional(dhchap.other_secret);
        let (ctrl_secret, ctrl_secret_file) = optional(dhchap.ctrl_secret);
        Self {
            secret,
            secret_file,
            other_secret,
            other_secret_file,
            ctrl_secret,
            ctrl_secret_file,
            hash: dhchap.hash,
            dhgroup: dhchap.dhgroup,
        }
    }
}

impl DhChap {
    pub(super) fn secrets_mut(&mut self) -> impl Iterator<Item = &mut Secret> {
        let others = [&mut self.other_secret, &mut self.ctrl_secret];
        std::iter::once(&mut self.secret).chain(others.into_iter().flatten())
    }

    fn secrets(&self) -> impl Iterator<Item = &Secret> {
        let others = [&self.other_secret, &self.ctrl_secret];
        std::iter::once(&self.secret).chain(others.into_iter().flatten())
    }

    /// Whether a secret is in a file that was not read.
    pub(super) fn is_unread(&self) -> bool {
        self.secrets().any(Secret::is_unread)
    }

    /// Whether its secrets are valid, as far as they are not hidden.
    pub(super) fn check(&self) -> Result<(), DhChapSecretError> {
        let known = self
            .secrets()
            .filter(|secret| !secret.is_hidden() && !secret.is_unread());
        for secret in known {
            secret.to_dhchap()?;
        }
        Ok(())
    }

    pub(crate) fn to_server(&self) -> Result<DhChapDefinition, DhChapSecretError> {
        let optional = |secret: &Option<Secret>| secret.as_ref().map(Secret::to_dhchap).transpose();
        Ok(DhChapDefinition {
            secret: self.secret.to_dhchap()?,
            other_secret: optional(&self.other_secret)?,
            controller_secret: optional(&self.ctrl_secret)?,
            hash: self.hash.as_ref().map(|hash| hash.0),
            group: self.dhgroup.0,
        })
    }

    /// Puts the secrets of `known` in the place of hidden ones; false if there is none to put
    /// there.
    pub(super) fn fill_in(&mut self, known: Option<&Self>) -> bool {
        let mut is_whole = self.secret.fill_in(known.map(|known| &known.secret));
        if let Some(secret) = &mut self.other_secret {
            is_whole &= secret.fill_in(known.and_then(|known| known.other_secret.as_ref()));
        }
        if let Some(secret) = &mut self.ctrl_secret {
            is_whole &= secret.fill_in(known.and_then(|known| known.ctrl_secret.as_ref()));
        }
        is_whole
    }
}

#[cfg(test)]
mod tests {
    use crate::{DefinitionFault, Definitions};

    const SECRET: &str = "DHHC-1:01:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";
    const CTRL: &str =
        "DHHC-1:02:ZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXp7fH1+f4CBgoOEhYaHiImKi4yNjo+QkZKTvGwQfg==:";

    fn text(secret: &str) -> String {
        format!(
            "[hosts.\"nqn.2014-08.org.example:h\".dhchap]\n\
             secret = \"{secret}\"\nother_secret = \"{SECRET}\"\nctrl_secret = \"{CTRL}\"\n\
             hash = \"sha384\"\ndhgroup = \"ffdhe2048\"\n"
        )
    }

    #[test]
    fn hidden_secrets_mean_the_stored_ones() {
        let known = Definitions::from_toml(&text(SECRET)).expect("definitions");
        let back = Definitions::from_toml(&known.to_toml()).expect("reads back");
        assert_eq!(back, known);
        let told = known.clone().without_secrets();
        assert!(!told.to_toml().contains("AAEC") && !told.to_toml().contains("ZGVm"));
        assert!(!format!("{known:?}").contains("AAEC"));
        let mut back = Definitions::from_toml(&told.to_toml()).expect("reads back");
        back.fill_in_secrets(&known).expect("known");
        assert_eq!(back, known);
        let fault = told.clone().fill_in_secrets(&Definitions::default());
        assert!(matches!(fault, Err(DefinitionFault::HiddenSecret { .. })));
    }

    #[test]
    fn secrets_that_are_invalid_are_refused_without_being_shown() {
        for secret in ["open sesame", &SECRET.replace("AAEC", "AAED")] {
            let told = Definitions::from_toml(&text(secret))
                .expect_err("refused")
                .to_string();
            assert!(told.contains("DH-HMAC-CHAP"), "{told}");
            assert!(!told.contains("sesame") && !told.contains("AAED"), "{told}");
        }
    }

    #[test]
    fn iscsi_hosts_have_no_dhchap() {
        let iscsi = text(SECRET).replace("nqn.2014-08.org.example:h", "iqn.2014-08.org.example:h");
        let told = Definitions::from_toml(&iscsi).expect_err("refused");
        assert!(told.to_string().contains("chap"), "{told}");
    }
}
