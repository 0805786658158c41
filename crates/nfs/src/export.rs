//! Trees that clients may mount, and how.

use std::sync::Arc;

use file_tree::FileTree;

/// Names an export in file handles: the UUID of the share. A file handle is this, the file's number
/// and its generation: 32 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ExportId(pub [u8; 16]);

/// Which users an export maps to the anonymous user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Squash {
    /// None (`no_root_squash`).
    None,
    /// User 0 and group 0 (`root_squash`).
    #[default]
    Root,
    /// All users and groups (`all_squash`).
    All,
}

/// How clients may use an export. The default is
/// `rw,sync,secure,root_squash,anonuid=65534,anongid=65534`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExportOptions {
    /// Changes are refused (`ro`).
    pub read_only: bool,
    /// Which users are mapped to the anonymous user.
    pub squash: Squash,
    /// The anonymous user (`anonuid`).
    pub anonymous_uid: u32,
    /// The anonymous group (`anongid`).
    pub anonymous_gid: u32,
    /// Clients must connect from a port below 1024 (`secure`). The program checks it.
    pub privileged_port: bool,
    /// Replies do not wait until data are as safe as the tree makes any (`async`).
    pub is_async: bool,
}

impl ExportOptions {
    /// The user and group `nobody` of Linux.
    pub const NOBODY: u32 = 65_534;
}

impl Default for ExportOptions {
    fn default() -> Self {
        Self {
            read_only: false,
            squash: Squash::Root,
            anonymous_uid: Self::NOBODY,
            anonymous_gid: Self::NOBODY,
            privileged_port: true,
            is_async: false,
        }
    }
}

/// A tree that clients may mount.
#[derive(Clone)]
pub struct Export {
    /// Names it in file handles.
    pub id: ExportId,
    /// Its path, `/NAME`: a slash and one component.
    pub path: String,
    /// The files.
    pub tree: Arc<dyn FileTree>,
    /// The files outlive the program, and have the same handles after its restart.
    pub outlives_restart: bool,
    /// The files change by clients alone, so that these may be given delegations: they would not
    /// learn of other changes.
    pub may_delegate: bool,
    /// How clients may use it.
    pub options: ExportOptions,
}

/// Why a connection may not use an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No such export, or it was removed.
    #[error("no such export")]
    Unknown,
    /// The client's address or port is not allowed.
    #[error("the client is not allowed to use this export")]
    Denied,
}
