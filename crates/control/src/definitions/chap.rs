//! CHAP of iSCSI hosts and targets: names, and secrets, which are stored and never shown.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use server::{ChapDefinition, ChapFault, ChapOwner, HostName, TargetName};
use utoipa::ToSchema;

use super::dhchap::DhChap;
use super::secret::{Secret, SecretFault, SecretFileError};
use super::tls::Tls;
use super::{DefinitionFault, Definitions, Host, Target};
use crate::text::Text;

/// What an iSCSI host has to prove when it logs in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "ChapForm", into = "ChapForm")]
pub struct Chap {
    /// The name that the host gives.
    pub user: String,
    /// Its secret, of 12 to 255 bytes.
    pub secret: Secret,
    /// What targets prove to the host, if it requests that.
    pub mutual: Option<MutualChap>,
}

/// What targets prove to an iSCSI host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "MutualForm", into = "MutualForm")]
pub struct MutualChap {
    /// The name that targets give.
    pub user: String,
    /// Their secret, of 12 to 255 bytes and not the host's.
    pub secret: Secret,
}

/// CHAP for logins over iSCSI. Either `secret` or `secret_file` is required.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Chap)]
pub(crate) struct ChapForm {
    /// The name that the host gives.
    user: String,
    /// The host's secret, of 12 to 255 bytes. `(hidden)` keeps the stored one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    secret: Option<String>,
    /// A file whose first line is the secret. Other users must not be able to read it. Only
    /// `ramport apply` reads it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "other.secret")]
    secret_file: Option<PathBuf>,
    /// Mutual CHAP: what targets prove to the host if it requests that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<MutualForm>)]
    mutual: Option<MutualChap>,
}

/// Mutual CHAP. Either `secret` or `secret_file` is required.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = MutualChap)]
pub(crate) struct MutualForm {
    /// The name that targets give.
    user: String,
    /// The targets' secret, of 12 to 255 bytes, other than the host's. `(hidden)` keeps the stored
    /// one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    secret: Option<String>,
    /// A file whose first line is the secret, as for the host's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "target.secret")]
    secret_file: Option<PathBuf>,
}

impl TryFrom<ChapForm> for Chap {
    type Error = SecretFault;

    fn try_from(form: ChapForm) -> Result<Self, SecretFault> {
        Ok(Self {
            user: form.user,
            secret: Secret::from_form(form.secret, form.secret_file)?,
            mutual: form.mutual,
        })
    }
}

impl From<Chap> for ChapForm {
    fn from(chap: Chap) -> Self {
        let (secret, secret_file) = chap.secret.into_form();
        Self {
            user: chap.user,
            secret,
            secret_file,
            mutual: chap.mutual,
        }
    }
}

impl TryFrom<MutualForm> for MutualChap {
    type Error = SecretFault;

    fn try_from(form: MutualForm) -> Result<Self, SecretFault> {
        Ok(Self {
            user: form.user,
            secret: Secret::from_form(form.secret, form.secret_file)?,
        })
    }
}

impl From<MutualChap> for MutualForm {
    fn from(mutual: MutualChap) -> Self {
        let (secret, secret_file) = mutual.secret.into_form();
        Self {
            user: mutual.user,
            secret,
            secret_file,
        }
    }
}

impl Chap {
    fn secrets_mut(&mut self) -> impl Iterator<Item = &mut Secret> {
        let mutual = self.mutual.as_mut().map(|mutual| &mut mutual.secret);
        std::iter::once(&mut self.secret).chain(mutual)
    }

    /// Whether a secret is in a file that was not read.
    pub(super) fn is_unread(&self) -> bool {
        let mutual = self.mutual.as_ref();
        self.secret.is_unread() || mutual.is_some_and(|mutual| mutual.secret.is_unread())
    }

    /// Whether it can be, as far as its secrets are not hidden.
    pub(super) fn check(&self) -> Result<(), ChapFault> {
        let is_unknown = |secret: &Secret| secret.is_hidden() || secret.is_unread();
        let mutual = self.mutual.as_ref();
        if is_unknown(&self.secret) || mutual.is_some_and(|mutual| is_unknown(&mutual.secret)) {
            return Ok(());
        }
        self.to_server().map(drop)
    }

    pub(crate) fn to_server(&self) -> Result<ChapDefinition, ChapFault> {
        let mutual = self.mutual.as_ref();
        let mutual = mutual.map(|mutual| Ok((mutual.user.clone(), mutual.secret.to_server()?)));
        let definition = ChapDefinition {
            user: self.user.clone(),
            secret: self.secret.to_server()?,
            mutual: mutual.transpose()?,
        };
        definition.check()?;
        Ok(definition)
    }

    /// Puts the secrets of `known` in the place of hidden ones; false if there is none to put
    /// there.
    fn fill_in(&mut self, known: Option<&Self>) -> bool {
        let mut is_whole = self.secret.fill_in(known.map(|chap| &chap.secret));
        if let Some(mutual) = &mut self.mutual {
            let known = known.and_then(|chap| chap.mutual.as_ref());
            is_whole &= mutual.secret.fill_in(known.map(|mutual| &mutual.secret));
        }
        is_whole
    }
}

/// Puts secrets that are known in the place of hidden ones.
fn fill_in(
    chap: &mut Option<Chap>,
    known: Option<&Chap>,
    owner: impl FnOnce() -> ChapOwner,
) -> Result<(), DefinitionFault> {
    if chap.as_ref().is_some_and(Chap::is_unread) {
        return Err(DefinitionFault::UnreadSecret { owner: owner() });
    }
    if chap.as_mut().is_none_or(|chap| chap.fill_in(known)) {
        Ok(())
    } else {
        Err(DefinitionFault::HiddenSecret { owner: owner() })
    }
}

impl Host {
    /// Puts secrets that are known in the place of hidden ones.
    pub(crate) fn fill_in_secrets(
        &mut self,
        name: &HostName,
        known: &Definitions,
    ) -> Result<(), DefinitionFault> {
        let known = known.hosts.get(&Text(name.clone()));
        let owner = || ChapOwner::Host(name.clone());
        if self.dhchap.as_ref().is_some_and(DhChap::is_unread) {
            return Err(DefinitionFault::UnreadSecret { owner: owner() });
        }
        let dhchap = known.and_then(|host| host.dhchap.as_ref());
        if self.dhchap.as_mut().is_some_and(|own| !own.fill_in(dhchap)) {
            return Err(DefinitionFault::HiddenSecret { owner: owner() });
        }
        if self.tls.as_ref().is_some_and(Tls::is_unread) {
            return Err(DefinitionFault::UnreadSecret { owner: owner() });
        }
        let tls = known.and_then(|host| host.tls.as_ref());
        if self.tls.as_mut().is_some_and(|own| !own.fill_in(tls)) {
            return Err(DefinitionFault::HiddenSecret { owner: owner() });
        }
        let known = known.and_then(|host| host.chap.as_ref());
        fill_in(&mut self.chap, known, owner)
    }
}

impl Target {
    /// Puts secrets that are known in the place of hidden ones.
    pub(crate) fn fill_in_secrets(
        &mut self,
        name: &TargetName,
        known: &Definitions,
    ) -> Result<(), DefinitionFault> {
        let known = known.targets.get(&Text(name.clone()));
        let known = known.and_then(|target| target.chap.as_ref());
        fill_in(&mut self.chap, known, || ChapOwner::Target(name.clone()))
    }
}

impl Definitions {
    /// The same without the secrets, and without what identifiers are derived from: on another
    /// machine it would give disks the identifiers of this one's.
    #[must_use]
    pub fn without_secrets(mut self) -> Self {
        self.secrets_mut()
            .for_each(|secret| *secret = Secret::hidden());
        self.machine = None;
        self
    }

    /// Reads the files that `secret_file` names. Relative paths begin at `folder`.
    pub fn read_secret_files(&mut self, folder: &Path) -> Result<(), SecretFileError> {
        for secret in self.secrets_mut() {
            secret.resolve(folder)?;
        }
        Ok(())
    }

    fn secrets_mut(&mut self) -> impl Iterator<Item = &mut Secret> {
        let of_hosts = self.hosts.values_mut().flat_map(|host| {
            let chap = host.chap.iter_mut().flat_map(Chap::secrets_mut);
            let dhchap = host.dhchap.iter_mut().flat_map(DhChap::secrets_mut);
            let tls = host.tls.iter_mut().flat_map(Tls::secrets_mut);
            chap.chain(dhchap).chain(tls)
        });
        let of_targets = self.targets.values_mut();
        let of_targets = of_targets.flat_map(|target| target.chap.iter_mut());
        of_hosts.chain(of_targets.flat_map(Chap::secrets_mut))
    }

    /// Puts secrets that are known in the place of hidden ones.
    pub(crate) fn fill_in_secrets(&mut self, known: &Self) -> Result<(), DefinitionFault> {
        for (name, host) in &mut self.hosts {
            host.fill_in_secrets(&name.0, known)?;
        }
        for (name, target) in &mut self.targets {
            target.fill_in_secrets(&name.0, known)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
        [hosts."iqn.2025-01.io.ramport:h".chap]
        user = "h"
        secret = "open sesame, please"
        mutual = { user = "t", secret = "the other way round" }
        [targets."iqn.2025-01.io.ramport:t"]
        portal_groups = [2]
        chap = { user = "anyone", secret = "open sesame, too" }
    "#;

    #[test]
    fn hidden_secrets_mean_the_stored_ones() {
        let known = Definitions::from_toml(TEXT).expect("definitions");
        let told = known.clone().without_secrets();
        assert!(!told.to_toml().contains("sesame") && !told.to_toml().contains("round"));
        assert!(!format!("{known:?}").contains("sesame"));
        let mut back = Definitions::from_toml(&told.to_toml()).expect("reads back");
        back.fill_in_secrets(&known).expect("known");
        assert_eq!(back, known);
    }

    #[test]
    fn a_hidden_secret_of_a_new_host_is_a_mistake() {
        let mut told = Definitions::from_toml(TEXT).expect("definitions");
        told = told.without_secrets();
        let fault = told.fill_in_secrets(&Definitions::default());
        assert!(matches!(fault, Err(DefinitionFault::HiddenSecret { .. })));
    }

    #[test]
    fn a_secret_that_is_short_or_used_both_ways_is_refused() {
        let short = TEXT.replace("open sesame, please", "sesame");
        let same = TEXT.replace("the other way round", "open sesame, please");
        for text in [short, same] {
            let told = Definitions::from_toml(&text)
                .expect_err("refused")
                .to_string();
            assert!(!told.contains("sesame"), "{told}");
        }
    }
}
