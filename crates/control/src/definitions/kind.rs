//! The kind of a volume in definitions, the state file and the REST API.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use server::RemoteError;
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};
use volume::{Provision, VolumeKind};

use crate::text::{Period, Text};

/// The kind of a volume, which determines where its blocks are stored, and the settings of that
/// kind, among the fields of the volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Fields", into = "Fields")]
pub struct KindFields(pub VolumeKind);

/// Where the blocks are stored, and the settings of each kind.
///
/// Unlike a tagged enum, a struct takes its fields out of those of the
/// volume, so that the volume can reject every field that is left over.
#[derive(Serialize, Deserialize, ToSchema)]
struct Fields {
    /// Where the blocks are stored: `ram` is memory of this machine, `file` a regular file or block device, `remote` a disk of another machine, `snapshot` shows what another volume was at one
    /// moment, `clone` shows a snapshot and what was written to the clone.
    #[serde(default)]
    #[schema(inline, default = "ram")]
    kind: Name,
    /// For `file`: the absolute path of the file or device. A file that does not exist is created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = json!(null))]
    path: Option<String>,
    /// For `ram` and `file`: when memory, or the space of the file, is allocated: `thin` on write, `thick` at creation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, default = "thin", example = "thick")]
    provisioning: Option<Text<Provision>>,
    /// For `remote`: URLs of the disk, as `ramport bench` takes them: `nvme+tcp`, `nvme+rdma` or `iscsi`. Several are paths to one
    /// disk, of which one is used at a time. CHAP secrets stand in a file that the URL names: `chap=/absolute/path`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = json!(null))]
    urls: Option<Vec<String>>,
    /// For `remote`: how long a command may take while no path answers, before it fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, default = "30s", example = json!(null))]
    io_timeout: Option<Text<Period>>,
    /// For `remote`: what distinguishes the disk from others. It is filled in when the volume is created; a path that leads to
    /// another disk is not used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = json!(null))]
    disk: Option<String>,
    /// For `snapshot`: the volume that it is of. For `clone`: the snapshot that it is of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = json!(null))]
    of: Option<String>,
}

#[derive(Clone, Copy, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum Name {
    #[default]
    Ram,
    File,
    Remote,
    Snapshot,
    Clone,
}

/// A field that a kind needs, or does not have.
#[derive(Debug, thiserror::Error)]
pub enum KindFault {
    /// It is made of something.
    #[error("a snapshot or a clone needs `of`, the name of what it is of")]
    NoParent,
    /// It is made of nothing.
    #[error("`of` is for kind snapshot or clone; leave it out, or set `kind`")]
    Parent,
    /// Memory is allocated when it is needed.
    #[error("`provisioning` is for kinds ram and file; leave it out")]
    Provisioning,
    /// A file has a name.
    #[error("a volume of kind file needs the path of its file: path = \"/absolute/path\"")]
    NoPath,
    /// Memory has none.
    #[error("`path` is for kind file; leave it out, or set kind = \"file\"")]
    Path,
    /// A disk of another machine is somewhere.
    #[error("a volume of kind remote needs the URLs of its disk: urls = [\"nvme+tcp://HOST/NQN\"]")]
    NoUrls,
    /// No other kind is reached by URLs.
    #[error(
        "`urls`, `io_timeout` and `disk` are for kind remote; leave them out, or set kind = \"remote\""
    )]
    Urls,
    /// A URL is not one, or contains a secret.
    #[error(transparent)]
    Url(#[from] RemoteError),
}

impl TryFrom<Fields> for KindFields {
    type Error = KindFault;

    fn try_from(fields: Fields) -> Result<Self, KindFault> {
        let Fields {
            kind,
            path,
            provisioning,
            urls,
            io_timeout,
            disk,
            of,
        } = fields;
        let provision = provisioning.map_or(Provision::Thin, |text| text.0);
        if path.is_some() && !matches!(kind, Name::File) {
            return Err(KindFault::Path);
        }
        let has_remote = urls.is_some() || io_timeout.is_some() || disk.is_some();
        if has_remote && !matches!(kind, Name::Remote) {
            return Err(KindFault::Urls);
        }
        Ok(Self(match (kind, provisioning, of) {
            (Name::Ram, _, None) => VolumeKind::Ram { provision },
            (Name::File, _, None) => VolumeKind::File {
                path: path.ok_or(KindFault::NoPath)?.into(),
                provision,
            },
            (Name::Remote, None, None) => {
                let urls = urls.ok_or(KindFault::NoUrls)?;
                let urls = urls.iter().map(|url| server::check_url(url));
                VolumeKind::Remote {
                    // As they are stored and compared: without secrets.
                    urls: urls.collect::<Result<_, _>>()?,
                    io_timeout: io_timeout.map_or(server::IO_TIMEOUT_DEFAULT, |text| text.0.0),
                    disk,
                }
            }
            (Name::Ram | Name::File | Name::Remote, _, Some(_)) => return Err(KindFault::Parent),
            (Name::Snapshot | Name::Clone, _, None) => return Err(KindFault::NoParent),
            (Name::Remote | Name::Snapshot | Name::Clone, Some(_), _) => {
                return Err(KindFault::Provisioning);
            }
            (Name::Snapshot, None, Some(of)) => VolumeKind::Snapshot { of },
            (Name::Clone, None, Some(of)) => VolumeKind::Clone { of },
        }))
    }
}

impl From<KindFields> for Fields {
    fn from(kind: KindFields) -> Self {
        let none = Self {
            kind: Name::Ram,
            path: None,
            provisioning: None,
            urls: None,
            io_timeout: None,
            disk: None,
            of: None,
        };
        match kind.0 {
            VolumeKind::Ram { provision } => Self {
                provisioning: Some(Text(provision)),
                ..none
            },
            VolumeKind::File { path, provision } => Self {
                kind: Name::File,
                // It came as text, so nothing is lost.
                path: Some(path.to_string_lossy().into_owned()),
                provisioning: Some(Text(provision)),
                ..none
            },
            VolumeKind::Remote {
                urls,
                io_timeout,
                disk,
            } => Self {
                kind: Name::Remote,
                urls: Some(urls),
                io_timeout: Some(Text(Period(io_timeout))),
                disk,
                ..none
            },
            VolumeKind::Snapshot { of } => Self {
                kind: Name::Snapshot,
                of: Some(of),
                ..none
            },
            VolumeKind::Clone { of } => Self {
                kind: Name::Clone,
                of: Some(of),
                ..none
            },
        }
    }
}

impl PartialSchema for KindFields {
    fn schema() -> RefOr<Schema> {
        Fields::schema()
    }
}

impl ToSchema for KindFields {
    fn name() -> Cow<'static, str> {
        "VolumeKind".into()
    }
}
