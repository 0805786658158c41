//! CHAP of iSCSI hosts and targets: names, and secrets, which are stored and never shown.

use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use server::{
    ChapDefinition, ChapFault, ChapOwner, ChapSecret, DhChapSecret, DhChapSecretError, HostName,
    TargetName,
};
use utoipa::ToSchema;

use super::{DefinitionFault, Definitions, DhChap, HIDDEN_SECRET, Host, Target};
use crate::secret_file::is_exposed;
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
    /// A file whose first line is the secret. Other users must not be able to read it. Only `ramport apply` reads it.
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
    /// The targets' secret, of 12 to 255 bytes, other than the host's. `(hidden)` keeps the stored one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    secret: Option<String>,
    /// A file whose first line is the secret, as for the host's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "target.secret")]
    secret_file: Option<PathBuf>,
}

/// A secret that is not given once.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SecretFault {
    #[error("missing field `secret` or `secret_file`")]
    Missing,
    #[error("secret and secret_file exclude each other; keep one of them")]
    Twice,
}

/// A CHAP secret. The state file and backups contain the secret itself, all other output
/// [`Secret::HIDDEN`]. As input, `HIDDEN` means the secret that is stored already.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Written);

#[derive(Clone, PartialEq, Eq)]
enum Written {
    Text(String),
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
        Self(Written::Text(text.into()))
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
        let mut line = String::new();
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
            Written::Text(text) => (Some(text), None),
            Written::File(file) => (None, Some(file)),
        }
    }

    /// Reads the file that the secret is in, if it is in one. Relative paths begin at `folder`.
    fn resolve(&mut self, folder: &Path) -> Result<(), SecretFileError> {
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
        matches!(&self.0, Written::Text(text) if text == Self::HIDDEN)
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

    fn to_server(&self) -> Result<ChapSecret, ChapFault> {
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
            chap.chain(host.dhchap.iter_mut().flat_map(DhChap::secrets_mut))
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
