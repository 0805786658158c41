//! What shares are: trees of files that clients mount over NFS.

use std::path::PathBuf;

use ::nfs::ExportOptions;

use crate::{ShareClient, ShareName};

/// A share: a tree of files that is exported under a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShareDefinition {
    /// Its name. Clients mount `/NAME`.
    pub name: ShareName,
    /// What holds its files.
    pub kind: ShareKind,
    /// How it is exported.
    pub options: ExportOptions,
    /// The clients that may use it; all if empty. A share without such a list is not served through
    /// a portal that other machines can reach.
    pub clients: Vec<ShareClient>,
}

/// What holds the files of a share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShareKind {
    /// Memory of the server's budget. The files, and the handles by which clients name them, last
    /// until the share is removed or erased, or the server ends.
    Ramfs {
        /// The most bytes that its files may take, with their names and attributes; only the budget
        /// limits them if absent.
        quota_bytes: Option<u64>,
        /// The most files of any kind, besides its root.
        files_max: u64,
    },
    /// A directory of this machine. Handles by which clients name its files outlast the server.
    Dir {
        /// Its absolute path.
        path: PathBuf,
    },
}

impl ShareKind {
    /// The most files of a share in memory, if its definition does not state a number.
    pub const FILES_MAX_DEFAULT: u64 = 1 << 20;
}

impl ShareDefinition {
    /// The path that clients mount.
    pub fn path(&self) -> String {
        format!("/{}", self.name)
    }
}
