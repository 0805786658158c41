//! Shares: trees of files that clients mount over NFS.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use ::nfs::{Export, ExportId};
use block::Access;
use dir_tree::{DirTree, OpenError};
use file_tree::{FileTree, Timestamp};
use ramfs::{Quota, RamTree};
use uuid::Uuid;
use volume::{Charge, MemoryError};

use super::client_names::{ClientNames, NAMES_MAX};
use super::{Core, Server, State};
use crate::access::AccessList;
use crate::capacity::SHARE_BYTES;
use crate::error::SharePathFault;
use crate::nfs::{FileTotals, Share, directory_export_id, new_export_id};
use crate::workers::Workers;
use crate::{
    AddressRange, ClientName, Force, PortalDefinition, ServerError, ShareClient, ShareDefinition,
    ShareInfo, ShareKind, ShareName,
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
    tree: Tree,
    created: SystemTime,
}

/// A tree of files, of one kind or the other.
#[derive(Clone)]
enum Tree {
    Ram(Arc<RamTree>),
    Dir(Arc<DirTree>, Arc<Workers>),
    /// A directory that could not be opened when the server started.
    Unavailable(Unavailable),
}

/// Why there are no files.
#[derive(Clone)]
struct Unavailable {
    problem: String,
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
        self.insert_share(definition, Core::new_files)
    }

    /// Creates a share that existed before a restart. If its directory cannot be served now, the
    /// share is unavailable: its [`ShareInfo::problem`] says why, and
    /// [`retry_shares`](Self::retry_shares) tries again.
    ///
    /// # Errors
    /// As [`create_share`](Self::create_share), except for those of its directory.
    pub fn restore_share(&self, definition: ShareDefinition) -> Result<(), ServerError> {
        self.insert_share(definition, |core, definition, machine| {
            core.new_files(definition, machine).or_else(unavailable)
        })
    }

    /// Tries again to open the directories of shares that are unavailable. Returns those that are
    /// available now.
    pub fn retry_shares(&self) -> Vec<ShareName> {
        let mut state = self.state();
        if state.check_running().is_err() {
            return Vec::new();
        }
        let (core, machine) = (self.core(), state.machine);
        let mut opened = Vec::new();
        for entry in state.shares.values_mut() {
            if entry.files.tree.problem().is_some() {
                entry.reopen(core, machine);
                if entry.files.tree.problem().is_none() {
                    opened.push(entry.definition.name.clone());
                }
            }
        }
        if !opened.is_empty() {
            core.publish_shares(&state);
        }
        opened
    }

    fn insert_share(
        &self,
        definition: ShareDefinition,
        files: impl FnOnce(&Core, &ShareDefinition, Uuid) -> Result<Files, ServerError>,
    ) -> Result<(), ServerError> {
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
        state.check_share_path(&definition)?;
        state.check_client_names(&definition)?;
        let core = self.core();
        let entry = ShareEntry {
            _charge: core.reserve(SHARE_BYTES)?,
            files: files(core, &definition, state.machine)?,
            totals: Arc::default(),
            definition,
        };
        state.shares.insert(entry.definition.name.clone(), entry);
        core.publish_shares(&state);
        drop(state);
        core.client_names.settle();
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
        state.check_client_names(&definition)?;
        let machine = state.machine;
        let entry = state.share_mut(&definition.name)?;
        entry.files.tree.set_definition(&definition)?;
        entry.definition = definition;
        entry.reopen(self.core(), machine);
        self.core().publish_shares(&state);
        drop(state);
        self.core().client_names.settle();
        self.finish_calls()
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
        if let ShareKind::Dir { path } = &state.share(name)?.definition.kind {
            return Err(ServerError::ShareNotErasable {
                share: name.clone(),
                path: path.clone(),
            });
        }
        let machine = state.machine;
        let entry = state.share_mut(name)?;
        let files = core.new_files(&entry.definition, machine)?;
        let erased = std::mem::replace(&mut entry.files, files);
        core.publish_shares(&state);
        drop(state);
        let finished = self.finish_calls();
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
        let finished = self.finish_calls();
        if let Some(entry) = removed {
            entry.files.tree.close();
        }
        finished
    }

    /// Waits until no call is executed any more by what was true before.
    fn finish_calls(&self) -> Result<(), ServerError> {
        self.core().exports.finish_calls();
        self.finish_turns()
    }

    /// Every share, by name.
    pub fn shares(&self) -> Vec<ShareInfo> {
        let sessions = self.core().registry.sessions_by_share();
        let state = self.state();
        let names = &self.core().client_names;
        let shares = state.shares.values();
        shares
            .map(|entry| {
                let sessions = sessions.get(&entry.definition.name);
                entry.info(names, sessions.copied().unwrap_or_default())
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
        let names = &self.core().client_names;
        Ok(entry.info(names, sessions.get(name).copied().unwrap_or_default()))
    }
}

impl Core {
    /// An empty tree for a share.
    fn new_files(&self, definition: &ShareDefinition, machine: Uuid) -> Result<Files, ServerError> {
        let name = &definition.name;
        let (id, tree) = match &definition.kind {
            ShareKind::Ramfs {
                quota_bytes,
                files_max,
            } => {
                let budget = Arc::clone(&self.budget);
                let quota = quota(*quota_bytes, *files_max);
                let tree = RamTree::new(budget, quota, Arc::new(now));
                let tree = tree.map_err(|error| share_error(error, name))?;
                let tree = Arc::new(tree);
                self.freeing.serve(&tree);
                (new_export_id(), Tree::Ram(tree))
            }
            ShareKind::Dir { path } => {
                let opened = DirTree::open(path, &self.budget);
                let tree = opened.map_err(|error| directory_error(error, name, path))?;
                let id = directory_export_id(machine, name, path, tree.file_system());
                (id, Tree::Dir(Arc::new(tree), Arc::default()))
            }
        };
        tree.set_definition(definition)?;
        Ok(Files {
            id,
            tree,
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

    /// Rejects a directory that another share has already, or has as a part.
    fn check_share_path(&self, definition: &ShareDefinition) -> Result<(), ServerError> {
        let Some(path) = directory(&definition.kind) else {
            return Ok(());
        };
        let own = path.canonicalize();
        let own = own.as_deref().unwrap_or(path);
        for other in self.share_definitions() {
            let Some(other_path) = directory(&other.kind) else {
                continue;
            };
            let theirs = other_path.canonicalize();
            let theirs = theirs.as_deref().unwrap_or(other_path);
            if own.starts_with(theirs) || theirs.starts_with(own) {
                return Err(ServerError::ShareOverlaps {
                    share: definition.name.clone(),
                    path: path.into(),
                    other: other.name.clone(),
                    other_path: other_path.into(),
                });
            }
        }
        Ok(())
    }

    /// Rejects more names than are looked up.
    fn check_client_names(&self, definition: &ShareDefinition) -> Result<(), ServerError> {
        let others = self.share_definitions();
        let others = others.filter(|other| other.name != definition.name);
        let names: BTreeSet<_> = others
            .flat_map(client_names)
            .chain(client_names(definition))
            .collect();
        if names.len() > NAMES_MAX {
            return Err(ServerError::TooMany {
                what: "host names of clients in shares",
                max: NAMES_MAX,
            });
        }
        Ok(())
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
    /// Opens the directory, if that was not possible before.
    fn reopen(&mut self, core: &Core, machine: Uuid) {
        if self.files.tree.problem().is_some() {
            let files = core.new_files(&self.definition, machine);
            match files.or_else(unavailable) {
                Ok(files) => self.files = files,
                Err(error) => {
                    let problem = error.to_string();
                    self.files.tree = Tree::Unavailable(Unavailable { problem });
                }
            }
        }
    }

    /// The share as connections use it, unless it is unavailable.
    pub(super) fn share(&self, names: &ClientNames) -> Option<Share> {
        let ShareDefinition {
            name,
            options,
            clients,
            ..
        } = &self.definition;
        Some(Share {
            name: name.clone(),
            export: Export {
                id: self.files.id,
                path: self.definition.path(),
                tree: self.files.tree.as_file_tree()?,
                outlives_restart: matches!(self.files.tree, Tree::Dir(..)),
                // Programs of this machine change the files of a directory, too.
                may_delegate: matches!(self.files.tree, Tree::Ram(_)),
                options: *options,
            },
            access: access(clients, names),
            clients: clients.iter().map(ToString::to_string).collect(),
            totals: Arc::clone(&self.totals),
            workers: match &self.files.tree {
                Tree::Ram(_) | Tree::Unavailable(_) => None,
                Tree::Dir(_, workers) => Some(Arc::clone(workers)),
            },
        })
    }

    fn info(&self, names: &ClientNames, sessions: usize) -> ShareInfo {
        let tree = &self.files.tree;
        let space = tree.as_file_tree().map(|tree| tree.space());
        ShareInfo {
            definition: self.definition.clone(),
            created: self.files.created,
            used_bytes: tree.used_bytes(),
            free_bytes: space.map_or(0, |space| space.free_bytes),
            files: tree.files(),
            sessions,
            problem: tree.problem().map(str::to_owned),
            client_names: client_names(&self.definition)
                .map(|name| names.info(name))
                .collect(),
            statistics: self.totals.sum(),
        }
    }
}

impl Tree {
    fn as_file_tree(&self) -> Option<Arc<dyn FileTree>> {
        match self {
            Self::Ram(tree) => Some(Arc::clone(tree) as _),
            Self::Dir(tree, _) => Some(Arc::clone(tree) as _),
            Self::Unavailable(_) => None,
        }
    }

    /// Why there are no files, if so.
    fn problem(&self) -> Option<&str> {
        match self {
            Self::Ram(_) | Self::Dir(..) => None,
            Self::Unavailable(why) => Some(&why.problem),
        }
    }

    /// Takes what the definition says of the files over.
    fn set_definition(&self, definition: &ShareDefinition) -> Result<(), ServerError> {
        let options = &definition.options;
        match (self, &definition.kind) {
            (
                Self::Ram(tree),
                &ShareKind::Ramfs {
                    quota_bytes,
                    files_max,
                },
            ) => tree.set_quota(quota(quota_bytes, files_max)),
            (Self::Dir(tree, _), ShareKind::Dir { path }) => {
                if !options.read_only && !tree.is_writable() {
                    return Err(ServerError::SharePath {
                        share: definition.name.clone(),
                        path: path.clone(),
                        fault: SharePathFault::NotWritable,
                    });
                }
                tree.set_durable(!options.is_async);
            }
            // Definitions that change the kind remove the share and create another.
            _ => {}
        }
        Ok(())
    }

    /// Memory that files take. A directory's files take none of it.
    fn used_bytes(&self) -> u64 {
        match self {
            Self::Ram(tree) => tree.used_bytes(),
            Self::Dir(..) | Self::Unavailable(_) => 0,
        }
    }

    /// Files besides the root. Those of a directory are not counted.
    fn files(&self) -> u64 {
        match self {
            Self::Ram(tree) => tree.files().saturating_sub(ROOT),
            Self::Dir(..) | Self::Unavailable(_) => 0,
        }
    }

    /// Ends the files, also for those that still hold the tree.
    fn close(&self) {
        if let Self::Ram(tree) = self {
            tree.close();
        }
    }
}

/// The clients of a share that are named by host name.
pub(super) fn client_names(definition: &ShareDefinition) -> impl Iterator<Item = &ClientName> {
    definition.clients.iter().filter_map(|client| match client {
        ShareClient::Name(name) => Some(name),
        ShareClient::Range(_) => None,
    })
}

/// Who may use a share, as far as names are known.
fn access(clients: &[ShareClient], names: &ClientNames) -> AccessList {
    if clients.is_empty() {
        return AccessList::Any(Access::ReadWrite);
    }
    let addresses = |client: &ShareClient| match client {
        ShareClient::Range(range) => vec![*range],
        ShareClient::Name(name) => {
            let addresses = names.addresses(name).into_iter();
            addresses.map(AddressRange::one).collect()
        }
    };
    AccessList::of_addresses(clients.iter().flat_map(addresses).collect())
}

/// The files of a share whose directory cannot be served now. Other errors stay.
fn unavailable(error: ServerError) -> Result<Files, ServerError> {
    match error {
        ServerError::SharePath { .. } => {
            let problem = error.to_string();
            Ok(Files {
                id: new_export_id(),
                tree: Tree::Unavailable(Unavailable { problem }),
                created: SystemTime::now(),
            })
        }
        error => Err(error),
    }
}

/// The directory of a share, if it has one.
fn directory(kind: &ShareKind) -> Option<&Path> {
    match kind {
        ShareKind::Ramfs { .. } => None,
        ShareKind::Dir { path } => Some(path),
    }
}

fn quota(quota_bytes: Option<u64>, files_max: u64) -> Quota {
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

/// The error of a directory that cannot be served.
fn directory_error(error: OpenError, name: &ShareName, path: &Path) -> ServerError {
    match error {
        OpenError::Memory(error) => share_error(error, name),
        error => ServerError::SharePath {
            share: name.clone(),
            path: path.into(),
            fault: SharePathFault::Open(error),
        },
    }
}

/// The error of a tree that could not be created.
fn share_error(error: MemoryError, name: &ShareName) -> ServerError {
    ServerError::of_memory(error, |source| ServerError::ShareMemory {
        share: name.clone(),
        source,
    })
}
