//! CHAP of iSCSI hosts and targets: names, and secrets that are kept and never told.

use std::fmt;

use serde::{Deserialize, Serialize};
use server::{ChapDefinition, ChapFault, ChapOwner, ChapSecret, HostName, TargetName};
use utoipa::ToSchema;

use super::{DefinitionFault, Definitions, Host, Target};
use crate::text::Text;

/// What an iSCSI host has to prove when it logs in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Chap {
    /// The name that the host gives.
    pub user: String,
    /// Its secret, of 12 to 255 bytes.
    #[schema(value_type = String)]
    pub secret: Secret,
    /// What targets prove to the host, where it asks for that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mutual: Option<MutualChap>,
}

/// What targets prove to an iSCSI host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MutualChap {
    /// The name that targets give.
    pub user: String,
    /// Their secret, of 12 to 255 bytes and not the host's.
    #[schema(value_type = String)]
    pub secret: Secret,
}

/// A CHAP secret as it is written: in the state file itself, everywhere else as [`Secret::HIDDEN`]. Where that comes in
/// again it stands for the secret that is there already.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// What is told instead of a secret. It is too short to be one.
    pub const HIDDEN: &'static str = "(hidden)";

    /// A secret.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// What stands for a secret that is there already.
    pub fn hidden() -> Self {
        Self::new(Self::HIDDEN)
    }

    fn is_hidden(&self) -> bool {
        self.0 == Self::HIDDEN
    }

    fn to_server(&self) -> Result<ChapSecret, ChapFault> {
        ChapSecret::new(self.0.as_bytes())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::HIDDEN)
    }
}

impl Chap {
    /// Whether it can be, as far as its secrets are not hidden.
    pub(super) fn check(&self) -> Result<(), ChapFault> {
        let mutual = self.mutual.as_ref();
        if self.secret.is_hidden() || mutual.is_some_and(|mutual| mutual.secret.is_hidden()) {
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

    fn hide(&mut self) {
        self.secret = Secret::hidden();
        if let Some(mutual) = &mut self.mutual {
            mutual.secret = Secret::hidden();
        }
    }

    /// Puts the secrets of `known` in the place of hidden ones; false where there is none to put there.
    fn fill_in(&mut self, known: Option<&Self>) -> bool {
        let mut is_whole = true;
        let mut fill = |secret: &mut Secret, known: Option<&Secret>| {
            if secret.is_hidden() {
                match known {
                    Some(known) => *secret = known.clone(),
                    None => is_whole = false,
                }
            }
        };
        fill(&mut self.secret, known.map(|chap| &chap.secret));
        if let Some(mutual) = &mut self.mutual {
            let known = known.and_then(|chap| chap.mutual.as_ref());
            fill(&mut mutual.secret, known.map(|mutual| &mutual.secret));
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
        let known = known.and_then(|host| host.chap.as_ref());
        fill_in(&mut self.chap, known, || ChapOwner::Host(name.clone()))
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
    /// The same without the secrets.
    #[must_use]
    pub fn without_secrets(mut self) -> Self {
        let of_hosts = self.hosts.values_mut().map(|host| &mut host.chap);
        let of_targets = self.targets.values_mut().map(|target| &mut target.chap);
        let chaps = of_hosts.chain(of_targets).filter_map(Option::as_mut);
        chaps.for_each(Chap::hide);
        self
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
    fn secrets_go_out_hidden_and_come_back_as_they_were() {
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
