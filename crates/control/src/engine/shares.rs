//! Shares: what a person can do with them, and what they are.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use server::{
    ClientNameInfo, FileStatistics, Force, ServerError, ShareClient, ShareInfo, ShareName,
};
use utoipa::ToSchema;

use super::statistics_views::{KindView, by_procedure};
use super::views::unix_s;
use super::{Contents, Engine, EngineError};
use crate::change::Change;
use crate::definitions::{DefinitionFault, OptionList, Share, ShareKind};
use crate::natural::sort_by_text;
use crate::text::{Size, Text};

/// A share as it is now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ShareView {
    /// Its name.
    pub name: String,
    /// The path that clients mount: `/NAME`.
    pub path: String,
    /// What holds its files.
    pub kind: ShareKind,
    /// For `dir`: the directory.
    #[schema(value_type = Option<String>)]
    pub directory: Option<PathBuf>,
    /// The memory that its files may take; none: what the memory budget has.
    pub quota_bytes: Option<u64>,
    /// How many files, directories and links it may hold.
    pub files_max: u64,
    /// Clients that may use it: addresses, networks and host names. Without a list it is not served
    /// through a portal that other machines can reach.
    pub clients: Vec<String>,
    /// What is known of the host names among them.
    pub client_names: Vec<ClientNameView>,
    /// All options, in the words of exports(5).
    pub options: String,
    /// When its tree of files was made, in seconds since 1970. A restart, and erasing it, make
    /// another.
    pub created_unix_s: u64,
    /// Memory that its files take; of a directory 0.
    pub used_bytes: u64,
    /// Memory that its files may take besides; of a directory, what its file system has free.
    pub free_bytes: u64,
    /// Files, directories and links in it, without its root. Those of a directory are not counted:
    /// 0.
    pub files: u64,
    /// Whether the files that clients wrote are there.
    pub contents: Contents,
    /// Why it is not served at present, and how to fix that; it is tried again.
    pub problem: Option<String>,
    /// Sessions that use it.
    pub sessions: usize,
    /// What clients have done, by procedure of NFS and MOUNT. Those that were not called are not
    /// listed.
    pub statistics: BTreeMap<String, KindView>,
}

/// A host name of a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClientNameView {
    /// The name.
    pub name: String,
    /// Its addresses: clients at these may use the share.
    pub addresses: Vec<String>,
    /// Why the last look-up failed, and how to fix that; it is repeated.
    pub problem: Option<String>,
}

impl From<&ClientNameInfo> for ClientNameView {
    fn from(info: &ClientNameInfo) -> Self {
        Self {
            name: info.name.to_string(),
            addresses: info.addresses.iter().map(ToString::to_string).collect(),
            problem: info.problem.clone(),
        }
    }
}

/// What is to change of a share; what is absent stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SharePatch {
    /// The memory that its files may take; null: what the memory budget has. Files that take more
    /// already stay.
    #[serde(
        skip_serializing_if = "Option::is_none",
        deserialize_with = "crate::definitions::some"
    )]
    #[schema(value_type = Option<String>, example = "16G")]
    pub quota: Option<Option<Size>>,
    /// How many files, directories and links it may hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub files_max: Option<NonZeroU64>,
    /// All clients that may use it: addresses, networks and host names.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<String>>, example = json!(["192.0.2.0/24"]))]
    pub clients: Option<Vec<Text<ShareClient>>>,
    /// Options in the words of exports(5). Those that are not named stay.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "ro")]
    pub options: Option<Text<OptionList>>,
}

impl SharePatch {
    /// The share with these changes.
    fn apply(self, from: Share) -> Share {
        let options = from.options;
        Share {
            kind: from.kind,
            path: from.path,
            quota: self.quota.unwrap_or(from.quota),
            files_max: self.files_max.unwrap_or(from.files_max),
            clients: self.clients.unwrap_or(from.clients),
            options: (self.options).map_or(options, |list| Text(options.0.with(&list.0))),
        }
    }
}

impl Engine {
    /// Creates a share.
    pub fn create_share(&self, name: ShareName, share: Share) -> Result<(), EngineError> {
        let mut store = self.begin();
        if self.read().shares.contains_key(&Text(name.clone())) {
            return Err(ServerError::ShareExists(name).into());
        }
        share
            .check()
            .map_err(|fault| DefinitionFault::share(&name, fault))?;
        let change = Change::SetShare(Text(name), share);
        self.commit(&mut store, vec![change], Force::No, |_| false)
    }

    /// Changes a share while clients use it. Those that are no longer allowed are refused from now
    /// on.
    pub fn change_share(&self, name: &ShareName, patch: SharePatch) -> Result<(), EngineError> {
        let mut store = self.begin();
        let from = self.defined_share(name)?;
        let to = patch.apply(from.clone());
        to.check()
            .map_err(|fault| DefinitionFault::share(name, fault))?;
        if from == to {
            return Ok(());
        }
        let change = Change::SetShare(Text(name.clone()), to);
        self.commit(&mut store, vec![change], Force::No, |_| false)
    }

    /// Removes every file of a share; refused while sessions use it, unless forced. Clients that
    /// have it mounted have to mount it again.
    pub fn erase_share(&self, name: &ShareName, force: Force) -> Result<(), EngineError> {
        let _store = self.begin();
        self.defined_share(name)?;
        self.server().erase_share(name, force)?;
        self.lost_shares().remove(name);
        tracing::info!(share = %name, "erased");
        Ok(())
    }

    /// Removes a share and its files; refused while sessions use it or it holds files, unless
    /// forced.
    pub fn remove_share(&self, name: &ShareName, force: Force) -> Result<(), EngineError> {
        let mut store = self.begin();
        self.defined_share(name)?;
        if force == Force::No {
            self.guard_share(name)?;
        }
        let change = Change::RemoveShare(Text(name.clone()));
        self.commit(&mut store, vec![change], Force::Yes, |_| false)
    }

    /// Every share, by name.
    pub fn shares(&self) -> Vec<ShareView> {
        let infos = self.server().shares();
        let mut views: Vec<_> = infos
            .iter()
            .filter_map(|info| self.share_view(info))
            .collect();
        sort_by_text(&mut views, |share| &share.name);
        views
    }

    /// One share.
    pub fn share(&self, name: &ShareName) -> Result<ShareView, ServerError> {
        let view = self.share_view(&self.server().share(name)?);
        view.ok_or_else(|| ServerError::UnknownShare(name.clone()))
    }

    /// What clients have done to each share, by name.
    pub(crate) fn share_statistics(&self) -> Vec<(String, FileStatistics)> {
        let shares = self.server().shares().into_iter();
        shares
            .map(|share| (share.definition.name.to_string(), share.statistics))
            .collect()
    }

    fn defined_share(&self, name: &ShareName) -> Result<Share, ServerError> {
        let definitions = self.read();
        let share = definitions.shares.get(&Text(name.clone()));
        share
            .cloned()
            .ok_or_else(|| ServerError::UnknownShare(name.clone()))
    }

    fn guard_share(&self, name: &ShareName) -> Result<(), EngineError> {
        let info = self.server().share(name)?;
        if info.sessions > 0 {
            return Err(ServerError::ShareInUse {
                share: name.clone(),
                sessions: info.sessions,
            }
            .into());
        }
        if info.files > 0 {
            return Err(EngineError::HoldsFiles {
                share: name.clone(),
                files: info.files,
                used_bytes: info.used_bytes,
            });
        }
        Ok(())
    }

    fn share_view(&self, info: &ShareInfo) -> Option<ShareView> {
        let name = &info.definition.name;
        let share = self.defined_share(name).ok()?;
        let is_ramfs = share.kind == ShareKind::Ramfs;
        let is_lost = is_ramfs && info.files == 0 && self.lost_shares().contains(name);
        Some(ShareView {
            name: name.to_string(),
            path: info.definition.path(),
            kind: share.kind,
            directory: share.path,
            quota_bytes: share.quota.map(|quota| quota.0),
            files_max: share.files_max.get(),
            clients: share.clients.iter().map(ToString::to_string).collect(),
            client_names: info.client_names.iter().map(Into::into).collect(),
            options: share.options.to_string(),
            created_unix_s: unix_s(info.created),
            used_bytes: info.used_bytes,
            free_bytes: info.free_bytes,
            files: info.files,
            contents: if is_lost {
                Contents::Lost
            } else {
                Contents::Present
            },
            problem: info.problem.clone(),
            sessions: info.sessions,
            statistics: by_procedure(&info.statistics),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::engine::LostContents;
    use crate::testing::{Folder, server_config};

    #[test]
    fn a_share_is_defined_and_empty_after_a_restart_and_says_so_until_it_is_erased() {
        let folder = Folder::new();
        let open = || {
            let lost_contents = LostContents::default();
            Engine::open(server_config(), &folder.state(), lost_contents).expect("the engine opens")
        };
        let stop = |engine: Engine| engine.stop(Duration::from_secs(1));
        let name: ShareName = "db".parse().expect("a name");
        let view = |engine: &Engine| engine.share(&name).expect("it exists");
        let share = Share {
            quota: Some(Size(8 << 20)),
            ..Share::default()
        };
        let engine = open();
        engine.create_share(name.clone(), share).expect("created");
        let before = view(&engine);
        assert_eq!(before.contents, Contents::Present);
        stop(engine);
        let engine = open();
        let after = view(&engine);
        assert_eq!(after.contents, Contents::Lost);
        assert_eq!(after.quota_bytes, before.quota_bytes);
        engine.erase_share(&name, Force::No).expect("erased");
        assert_eq!(view(&engine).contents, Contents::Present);
        stop(engine);
    }
}
