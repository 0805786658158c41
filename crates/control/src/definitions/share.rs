//! Shares: file trees that clients mount.

use std::fmt;
use std::num::NonZeroU64;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use server::{ShareClient, ShareDefinition, ShareName};
use utoipa::ToSchema;
use volume::ByteSize;

use super::ShareOptions;
use crate::text::{Size, Text};

/// A share: a tree of files that clients mount over NFS. Its name is the path of its export:
/// `/NAME`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Share {
    /// What holds its files: `ramfs`, memory of the daemon; `dir`, a directory of the machine. It
    /// cannot be changed later.
    #[schema(inline, default = "ramfs")]
    pub kind: ShareKind,
    /// For `dir`: the absolute path of the directory, which exists. It cannot be changed later.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "/srv/db")]
    pub path: Option<PathBuf>,
    /// For `ramfs`: the memory that its files may take, at least 1 MiB; absent: what the memory
    /// budget has.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "8G")]
    pub quota: Option<Size>,
    /// For `ramfs`: how many files, directories and links it may hold.
    #[schema(value_type = u64, default = 1_048_576)]
    pub files_max: NonZeroU64,
    /// Clients that may use it: addresses, networks and host names. Without a list it is not served
    /// through a portal that other machines can reach.
    #[schema(value_type = Vec<String>, example = json!(["192.0.2.0/24"]))]
    pub clients: Vec<Text<ShareClient>>,
    /// What clients may do, in the words of exports(5): `rw` or `ro`, `sync` or `async`, `secure`
    /// or `insecure`, `root_squash`, `no_root_squash` or `all_squash`, `anonuid=N`, `anongid=N`.
    /// What is not named has its default.
    #[schema(
        value_type = String,
        default = "rw,sync,secure,root_squash,anonuid=65534,anongid=65534",
        example = "ro,all_squash"
    )]
    pub options: Text<ShareOptions>,
}

/// What holds the files of a share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ShareKind {
    /// Memory of the daemon. Files are lost when it ends.
    #[default]
    Ramfs,
    /// A directory of the machine. Files stay in it.
    Dir,
}

impl fmt::Display for ShareKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ramfs => "ramfs",
            Self::Dir => "dir",
        })
    }
}

/// How many files a share may hold if its definition does not say.
const FILES_MAX: NonZeroU64 =
    NonZeroU64::new(server::ShareKind::FILES_MAX_DEFAULT).expect("it is not zero");
/// The smallest quota. It keeps a missing unit from making a share that holds next to nothing.
const QUOTA_MIN: ByteSize = ByteSize(1 << 20);

impl Default for Share {
    fn default() -> Self {
        Self {
            kind: ShareKind::default(),
            path: None,
            quota: None,
            files_max: FILES_MAX,
            clients: Vec::new(),
            options: Text(ShareOptions::default()),
        }
    }
}

/// What is wrong with a share.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShareFault {
    /// A directory is needed.
    #[error(
        "a share of kind dir needs a directory; give its absolute path: --path /srv/NAME, or path = \"/srv/NAME\" in definitions"
    )]
    NoPath,
    /// A directory is for another kind.
    #[error("a path is for kind dir; leave it out, or choose --kind dir")]
    Path,
    /// The daemon's working folder means nothing to others.
    #[error("path {} is not absolute; give the path from / on, as the daemon sees it", .0.display())]
    RelativePath(PathBuf),
    /// A limit that a directory does not have.
    #[error(
        "a quota of bytes or files is for kind ramfs; leave it out, and limit the directory with a quota of its file system"
    )]
    DirQuota,
    /// The quota is below the minimum.
    #[error("quota {given} is too small; choose a size of at least {QUOTA_MIN}, or leave it out")]
    Quota {
        /// What was given.
        given: ByteSize,
    },
}

impl Share {
    pub(crate) fn check(&self) -> Result<(), ShareFault> {
        match (self.kind, &self.path) {
            (ShareKind::Ramfs, Some(_)) => return Err(ShareFault::Path),
            (ShareKind::Dir, None) => return Err(ShareFault::NoPath),
            (ShareKind::Dir, Some(path)) if !path.is_absolute() => {
                return Err(ShareFault::RelativePath(path.clone()));
            }
            (ShareKind::Dir, Some(_)) if self.quota.is_some() || self.files_max != FILES_MAX => {
                return Err(ShareFault::DirQuota);
            }
            (ShareKind::Ramfs, None) | (ShareKind::Dir, Some(_)) => {}
        }
        match self.quota {
            Some(Size(bytes)) if bytes < QUOTA_MIN.0 => Err(ShareFault::Quota {
                given: ByteSize(bytes),
            }),
            _ => Ok(()),
        }
    }

    /// The share in the server's form.
    pub(crate) fn to_server(&self, name: &ShareName) -> ShareDefinition {
        ShareDefinition {
            name: name.clone(),
            kind: match self.kind {
                ShareKind::Ramfs => server::ShareKind::Ramfs {
                    quota_bytes: self.quota.map(|quota| quota.0),
                    files_max: self.files_max.get(),
                },
                // Definitions were checked before they became steps.
                ShareKind::Dir => server::ShareKind::Dir {
                    path: self.path.clone().unwrap_or_default(),
                },
            },
            options: self.options.0.into(),
            clients: self.clients.iter().map(|client| client.0.clone()).collect(),
        }
    }
}
