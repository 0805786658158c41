//! Shares: trees of files that clients mount over NFS.

use std::sync::Arc;
use std::time::SystemTime;

use ::nfs::{Export, ExportId};
use file_tree::{FileTree as _, Timestamp};
use ramfs::{Quota, RamTree};
use volume::{Charge, MemoryError};

use super::{Core, Server, State};
use crate::access::AccessList;
use crate::capacity::SHARE_BYTES;
use crate::nfs::{FileTotals, Share, new_export_id};
use crate::{
    Force, PortalDefinition, ServerError, ShareDefinition, ShareInfo, ShareKind, ShareName,
};

/// A share: its definition, and the files that it holds.
pub(super) struct ShareEntry {
    definition: ShareDefinition,
    files: Files,
    totals: Arc<FileTotals>,
    /// What it costs besides its files.
    _charge: Charge,
}

/// The files of a share, until they are erased.
#[derive(Clone)]
struct Files {
    id: ExportId,
    tree: Arc<RamTree>,
    created: SystemTime,
}

/// The root directory, which a tree counts as a file.
const ROOT: u64 = 1;
/// The most shares.
const SHARES_MAX: usize = 1024;

impl Server {
    /// Creates a share without files.
    ///
    /// # Errors
    /// If the name is taken, the share would be open to the network without an explicit setting,
    /// there are too many shares, or memory could not be allocated.
    pub fn create_share(&self, definition: ShareDefinition) -> Result<(), ServerError> {
        let mut state = self.state();
        state.check_running()?;
        if state.shares.contains_key(&definition.name) {
            return Err(ServerError::ShareExists(definition.name));
        }
        if state.shares.len() >= SHARES_MAX {
            return Err(ServerError::TooMany {
                what: "shares",
                max: SHARES_MAX,
            });
        }
        State::check_share_exposure(std::iter::once(&definition), state.portals.keys())?;
        let core = self.core();
        let entry = ShareEntry {
            _charge: core.reserve(SHARE_BYTES)?,
            files: core.new_files(&definition)?,
            totals: Arc::default(),
            definition,
        };
        state.shares.insert(entry.definition.name.clone(), entry);
        core.publish_shares(&state);
        Ok(())
    }

    /// Changes how a share is exported, and its quota. When this returns, no call is executed any
    /// more by what was true before. Files stay even if they take more than a lower quota.
    ///
    /// # Errors
    /// If there is no such share, or it would be open to the network without an explicit setting.
    pub fn change_share(&self, definition: ShareDefinition) -> Result<(), ServerError> {
        let mut state = self.state();
        state.check_running()?;
        State::check_share_exposure(std::iter::once(&definition), state.portals.keys())?;
        let entry = state.share_mut(&definition.name)?;
        entry.files.tree.set_quota(quota(&definition.kind));
        entry.definition = definition;
        self.core().publish_shares(&state);
        drop(state);
        self.finish_turns()
    }

    /// Removes every file of a share. Clients have to mount it again: what they had open does not
    /// exist any more.
    ///
    /// # Errors
    /// If there is no such share, sessions use it, unless forced, or memory could not be allocated.
    pub fn erase_share(&self, name: &ShareName, force: Force) -> Result<(), ServerError> {
        let mut state = self.state();
        state.check_running()?;
        let core = self.core();
        core.check_unused_share(&state, name, force)?;
        let entry = state.share_mut(name)?;
        let files = core.new_files(&entry.definition)?;
        let erased = std::mem::replace(&mut entry.files, files);
        core.publish_shares(&state);
        drop(state);
        let finished = self.finish_turns();
        erased.tree.close();
        finished
    }

    /// Removes a share with its files. Clients that use it learn that its files do not exist any
    /// more.
    ///
    /// # Errors
    /// If there is no such share, or sessions use it, unless forced.
    pub fn remove_share(&self, name: &ShareName, force: Force) -> Result<(), ServerError> {
        let mut state = self.state();
        state.check_running()?;
        self.core().check_unused_share(&state, name, force)?;
        let removed = state.shares.remove(name);
        self.core().publish_shares(&state);
        drop(state);
        let finished = self.finish_turns();
        if let Some(entry) = removed {
            entry.files.tree.close();
        }
        finished
    }

    /// Every share, by name.
    pub fn shares(&self) -> Vec<ShareInfo> {
        let sessions = self.core().registry.sessions_by_share();
        let state = self.state();
        let shares = state.shares.values();
        shares
            .map(|entry| {
                let sessions = sessions.get(&entry.definition.name);
                entry.info(sessions.copied().unwrap_or_default())
            })
            .collect()
    }

    /// One share.
    ///
    /// # Errors
    /// If there is no such share.
    pub fn share(&self, name: &ShareName) -> Result<ShareInfo, ServerError> {
        let sessions = self.core().registry.sessions_by_share();
        let state = self.state();
        let entry = state.share(name)?;
        Ok(entry.info(sessions.get(name).copied().unwrap_or_default()))
    }
}

impl Core {
    /// An empty tree for a share.
    fn new_files(&self, definition: &ShareDefinition) -> Result<Files, ServerError> {
        let budget = Arc::clone(&self.budget);
        let tree = RamTree::new(budget, quota(&definition.kind), Arc::new(now));
        let tree = tree.map_err(|error| share_error(error, &definition.name))?;
        Ok(Files {
            id: new_export_id(),
            tree: Arc::new(tree),
            created: SystemTime::now(),
        })
    }

    fn check_unused_share(
        &self,
        state: &State,
        name: &ShareName,
        force: Force,
    ) -> Result<(), ServerError> {
        state.share(name)?;
        let by_share = self.registry.sessions_by_share();
        match by_share.get(name) {
            Some(&sessions) if force == Force::No => Err(ServerError::ShareInUse {
                share: name.clone(),
                sessions,
            }),
            _ => Ok(()),
        }
    }
}

impl State {
    fn share(&self, name: &ShareName) -> Result<&ShareEntry, ServerError> {
        let entry = self.shares.get(name);
        entry.ok_or_else(|| ServerError::UnknownShare(name.clone()))
    }

    fn share_mut(&mut self, name: &ShareName) -> Result<&mut ShareEntry, ServerError> {
        let entry = self.shares.get_mut(name);
        entry.ok_or_else(|| ServerError::UnknownShare(name.clone()))
    }

    /// The definitions of all shares.
    pub(super) fn share_definitions(&self) -> impl Iterator<Item = &ShareDefinition> {
        self.shares.values().map(|entry| &entry.definition)
    }

    /// Rejects what would open a share to the network without an explicit setting.
    pub(super) fn check_share_exposure<'a>(
        mut shares: impl Iterator<Item = &'a ShareDefinition>,
        mut portals: impl Iterator<Item = &'a PortalDefinition>,
    ) -> Result<(), ServerError> {
        let is_outside = |portal: &&PortalDefinition| {
            portal.transport.is_nfs() && !portal.address.ip().is_loopback()
        };
        let outside = portals.find(is_outside);
        let open = shares.find(|share| share.clients.is_empty());
        match (open, outside) {
            (Some(share), Some(&portal)) => Err(ServerError::ShareOpenToNetwork {
                share: share.name.clone(),
                portal,
            }),
            _ => Ok(()),
        }
    }
}

impl ShareEntry {
    /// The share as connections use it.
    pub(super) fn share(&self) -> Share {
        let ShareDefinition {
            name,
            options,
            clients,
            ..
        } = &self.definition;
        Share {
            name: name.clone(),
            export: Export {
                id: self.files.id,
                path: self.definition.path(),
                tree: Arc::clone(&self.files.tree) as _,
                options: *options,
            },
            access: AccessList::of_addresses(clients),
            clients: clients.iter().map(ToString::to_string).collect(),
            totals: Arc::clone(&self.totals),
        }
    }

    fn info(&self, sessions: usize) -> ShareInfo {
        let space = self.files.tree.space();
        ShareInfo {
            definition: self.definition.clone(),
            created: self.files.created,
            used_bytes: self.files.tree.used_bytes(),
            free_bytes: space.free_bytes,
            files: self.files.tree.files().saturating_sub(ROOT),
            sessions,
            statistics: self.totals.sum(),
        }
    }
}

fn quota(kind: &ShareKind) -> Quota {
    let ShareKind::Ramfs {
        quota_bytes,
        files_max,
    } = *kind;
    Quota {
        bytes: quota_bytes,
        files: files_max.saturating_add(ROOT),
    }
}

/// The present time, which files are stamped with.
fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let since = since.unwrap_or_default();
    Timestamp {
        seconds: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
        nanoseconds: since.subsec_nanos(),
    }
}

/// The error of a tree that could not be created.
fn share_error(error: MemoryError, name: &ShareName) -> ServerError {
    ServerError::of_memory(error, |source| ServerError::ShareMemory {
        share: name.clone(),
        source,
    })
}
