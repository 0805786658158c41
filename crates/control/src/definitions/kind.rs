//! The kind of a volume in definitions, the state file and the REST API.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use server::RemoteError;
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};
use volume::{
    ByteSize, CacheModeName, CacheSettings, Placement, Provision, VolumeKind, VolumeSpec,
};

use crate::text::{Period, Size, Text};

/// The kind of a volume, which determines where its blocks are stored, and the settings of that
/// kind, among the fields of the volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Fields", into = "Fields")]
pub struct KindFields(pub VolumeKind);

/// Where the blocks are stored, and the settings of each kind.
///
/// Unlike a tagged enum, a struct takes its fields out of those of the
/// volume, so that the volume can reject every field that is left over.
#[derive(Default, Serialize, Deserialize, ToSchema)]
struct Fields {
    /// Where the blocks are stored: `ram` is memory of this machine, `file` a regular file or block
    /// device, `remote` a disk of another machine, `snapshot` shows what another volume was at one
    /// moment, `clone` shows a snapshot and what was written to the clone, `linear` is other
    /// volumes one after another, `stripe` units of other volumes in turn, `mirror` is other
    /// volumes that hold the same bytes, `cache` is memory in front of another volume, `replicated`
    /// is memory of nodes of the cluster, each of which holds a copy.
    #[serde(default)]
    #[schema(inline, default = "ram")]
    kind: Name,
    /// For `file`: the absolute path of the file or device. A file that does not exist is created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = json!(null))]
    path: Option<String>,
    /// For `ram` and `file`: when memory, or the space of the file, is allocated: `thin` on write,
    /// `thick` at creation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, default = "thin", example = "thick")]
    provisioning: Option<Text<Provision>>,
    /// For `remote`: URLs of the disk, as `ramport bench` takes them: `nvme+tcp`, `nvme+rdma`,
    /// `brp`, `brp+rdma`, `srp` or `iscsi`. Several are paths to one disk, of which one is used at
    /// a time. CHAP secrets stand in a file that the URL names: `chap=/absolute/path`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = json!(null))]
    urls: Option<Vec<String>>,
    /// For `remote`: how long a command may take while no path answers, before it fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, default = "30s", example = json!(null))]
    io_timeout: Option<Text<Period>>,
    /// For `remote`: what distinguishes the disk from others. It is filled in when the volume is
    /// created; a path that leads to another disk is not used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = json!(null))]
    disk: Option<String>,
    /// For `snapshot`: the volume that it is of. For `clone`: the snapshot that it is of. For
    /// `cache`: the slower volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = json!(null))]
    of: Option<String>,
    /// For `linear`, `stripe` and `mirror`: the volumes that it is made of, in their order. Nothing
    /// else may use them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = json!(null))]
    members: Option<Vec<String>>,
    /// For `stripe`: bytes of a unit, a power of two from 4 KiB to 16 MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = json!(null))]
    stripe_unit: Option<Size>,
    /// For `mirror`: bytes per second that are copied at most to members that missed something; as
    /// fast as they take it if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = json!(null))]
    resync_rate: Option<Size>,
    /// For `cache`: its memory, at most the size of the slower volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = json!(null))]
    cache_size: Option<Size>,
    /// For `cache`: `write-through`, which is the default, `write-around` or `write-back`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = json!(null))]
    cache_mode: Option<Text<CacheModeName>>,
    /// For `cache`: bytes that it keeps and evicts as one, a power of two from 4 KiB to 64 KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = json!(null))]
    cache_block: Option<Size>,
    /// For `cache`: commands that continue a sequential stream beyond this length leave nothing in
    /// it; 0 turns that off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = json!(null))]
    sequential_bypass: Option<Size>,
    /// For `replicated`: how many nodes hold a copy, 1 to 3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = json!(null))]
    copies: Option<u8>,
    /// For `replicated`: what distinguishes the volume from others of the cluster, 16 hexadecimal
    /// digits. The cluster fills it in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = json!(null))]
    replica: Option<String>,
    /// For `replicated`: the numbers of the nodes that hold copies. The cluster fills them in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = json!(null))]
    nodes: Option<Vec<u32>>,
}

/// The word for a [`VolumeKind`] in definitions: [`Fields`] says why that is no tagged enum.
/// Conversions match every variant of either, so a new kind does not compile before it has its
/// word.
#[derive(Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum Name {
    #[default]
    Ram,
    File,
    Remote,
    Snapshot,
    Clone,
    Linear,
    Stripe,
    Mirror,
    Cache,
    Replicated,
}

/// A field that a kind needs, or does not have.
#[derive(Debug, thiserror::Error)]
pub enum KindFault {
    /// It is made of something.
    #[error("a snapshot, a clone or a cache needs `of`, the name of what it is of")]
    NoParent,
    /// It is made of nothing.
    #[error("`of` is for kind snapshot, clone or cache; leave it out, or set `kind`")]
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
    /// It is made of several volumes.
    #[error(
        "a mirror, a linear or a striped volume needs `members`, the names of the volumes that it is made of"
    )]
    NoMembers,
    /// It is not.
    #[error("`members` is for kinds linear, stripe and mirror; leave it out, or set `kind`")]
    Members,
    /// Only stripes have units.
    #[error("`stripe_unit` is for kind stripe; leave it out, or set kind = \"stripe\"")]
    StripeUnit,
    /// Only mirrors copy to members.
    #[error("`resync_rate` is for kind mirror; leave it out, or set kind = \"mirror\"")]
    ResyncRate,
    /// A cache has memory.
    #[error("a volume of kind cache needs the size of its memory: cache_size = \"1G\"")]
    NoCacheSize,
    /// Only caches have settings of caches.
    #[error(
        "`cache_size`, `cache_mode`, `cache_block` and `sequential_bypass` are for kind cache; leave them out, or set kind = \"cache\""
    )]
    CacheField,
    /// Copies are counted.
    #[error("a volume of kind replicated needs the number of its copies: copies = 2")]
    NoCopies,
    /// Only replicated volumes have copies.
    #[error(
        "`copies`, `replica` and `nodes` are for kind replicated; leave them out, or set kind = \"replicated\""
    )]
    ReplicatedField,
    /// A placement is complete.
    #[error(
        "`replica` is 16 hexadecimal digits and `nodes` as many numbers as `copies` says, or one more; leave both out, the cluster fills them in"
    )]
    Placement,
}

impl TryFrom<Fields> for KindFields {
    type Error = KindFault;

    fn try_from(fields: Fields) -> Result<Self, KindFault> {
        let provision = fields.provisioning.map_or(Provision::Thin, |text| text.0);
        fields.check()?;
        let of = fields.of.ok_or(KindFault::NoParent);
        let members = fields.members.ok_or(KindFault::NoMembers);
        let bytes = |size: Option<Size>, default| size.map_or(default, |size| ByteSize(size.0));
        Ok(Self(match fields.kind {
            Name::Ram => VolumeKind::Ram { provision },
            Name::File => VolumeKind::File {
                path: fields.path.ok_or(KindFault::NoPath)?.into(),
                provision,
            },
            Name::Remote => {
                let urls = fields.urls.ok_or(KindFault::NoUrls)?;
                let urls = urls.iter().map(|url| server::check_url(url));
                let io_timeout = fields.io_timeout.map(|text| text.0.0);
                VolumeKind::Remote {
                    // As they are stored and compared: without secrets.
                    urls: urls.collect::<Result<_, _>>()?,
                    io_timeout: io_timeout.unwrap_or(server::IO_TIMEOUT_DEFAULT),
                    disk: fields.disk,
                }
            }
            Name::Snapshot => VolumeKind::Snapshot { of: of? },
            Name::Clone => VolumeKind::Clone { of: of? },
            Name::Linear => VolumeKind::Linear { members: members? },
            Name::Stripe => VolumeKind::Stripe {
                members: members?,
                unit: match fields.stripe_unit {
                    Some(unit) => ByteSize(unit.0),
                    None => VolumeSpec::UNIT_DEFAULT,
                },
            },
            Name::Mirror => VolumeKind::Mirror {
                members: members?,
                resync_rate: resync_rate(fields.resync_rate),
            },
            Name::Cache => VolumeKind::Cache {
                of: [of?],
                settings: CacheSettings {
                    size: ByteSize(fields.cache_size.ok_or(KindFault::NoCacheSize)?.0),
                    mode: fields
                        .cache_mode
                        .map_or_else(Default::default, |text| text.0.0),
                    block: bytes(fields.cache_block, CacheSettings::BLOCK_DEFAULT),
                    bypass: bytes(fields.sequential_bypass, CacheSettings::BYPASS_DEFAULT),
                },
            },
            Name::Replicated => {
                let copies = fields.copies.ok_or(KindFault::NoCopies)?;
                let placement = placement(copies, fields.replica, fields.nodes)?;
                VolumeKind::Replicated { copies, placement }
            }
        }))
    }
}

/// A rate, of which 0 is none.
pub(crate) fn resync_rate(given: Option<Size>) -> Option<ByteSize> {
    let given = given.filter(|rate| rate.0 != 0);
    given.map(|rate| ByteSize(rate.0))
}

/// Where the copies are, if that is known.
fn placement(
    copies: u8,
    replica: Option<String>,
    nodes: Option<Vec<u32>>,
) -> Result<Option<Placement>, KindFault> {
    let (replica, nodes) = match (replica, nodes) {
        (None, None) => return Ok(None),
        // One more while a copy is made elsewhere.
        (Some(replica), Some(nodes))
            if (usize::from(copies)..=usize::from(copies) + 1).contains(&nodes.len()) =>
        {
            (replica, nodes)
        }
        _ => return Err(KindFault::Placement),
    };
    let is_id = replica.len() == 16 && replica.bytes().all(|b| b.is_ascii_hexdigit());
    let volume = u64::from_str_radix(&replica, 16).ok().filter(|_| is_id);
    let volume = volume.ok_or(KindFault::Placement)?;
    Ok(Some(Placement { volume, nodes }))
}

impl Fields {
    fn of_members(kind: Name, members: Vec<String>) -> Self {
        Self {
            kind,
            members: Some(members),
            ..Self::default()
        }
    }

    fn of_copies(copies: u8, placement: Option<Placement>) -> Self {
        let (replica, nodes) = placement
            .map(|of| (format!("{:016x}", of.volume), of.nodes))
            .unzip();
        Self {
            kind: Name::Replicated,
            copies: Some(copies),
            replica,
            nodes,
            ..Self::default()
        }
    }

    /// Checks that there is no field of another kind.
    fn check(&self) -> Result<(), KindFault> {
        let of_kinds = |field: bool, kinds: &[Name], fault| {
            if field && !kinds.contains(&self.kind) {
                return Err(fault);
            }
            Ok(())
        };
        of_kinds(self.path.is_some(), &[Name::File], KindFault::Path)?;
        let provisioned = [Name::Ram, Name::File];
        of_kinds(
            self.provisioning.is_some(),
            &provisioned,
            KindFault::Provisioning,
        )?;
        let derived = [Name::Snapshot, Name::Clone, Name::Cache];
        of_kinds(self.of.is_some(), &derived, KindFault::Parent)?;
        let has_remote = self.urls.is_some() || self.io_timeout.is_some() || self.disk.is_some();
        of_kinds(has_remote, &[Name::Remote], KindFault::Urls)?;
        let composed = [Name::Linear, Name::Stripe, Name::Mirror];
        of_kinds(self.members.is_some(), &composed, KindFault::Members)?;
        of_kinds(
            self.stripe_unit.is_some(),
            &[Name::Stripe],
            KindFault::StripeUnit,
        )?;
        let has_rate = self.resync_rate.is_some();
        of_kinds(has_rate, &[Name::Mirror], KindFault::ResyncRate)?;
        let sizes = [self.cache_size, self.cache_block, self.sequential_bypass];
        let is_set = sizes.iter().any(Option::is_some) || self.cache_mode.is_some();
        of_kinds(is_set, &[Name::Cache], KindFault::CacheField)?;
        let is_placed = self.replica.is_some() || self.nodes.is_some();
        of_kinds(
            self.copies.is_some() || is_placed,
            &[Name::Replicated],
            KindFault::ReplicatedField,
        )
    }
}

impl From<KindFields> for Fields {
    fn from(kind: KindFields) -> Self {
        match kind.0 {
            VolumeKind::Ram { provision } => Self {
                provisioning: Some(Text(provision)),
                ..Self::default()
            },
            VolumeKind::File { path, provision } => Self {
                kind: Name::File,
                // It came as text, so nothing is lost.
                path: Some(path.to_string_lossy().into_owned()),
                provisioning: Some(Text(provision)),
                ..Self::default()
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
                ..Self::default()
            },
            VolumeKind::Snapshot { of } => Self {
                kind: Name::Snapshot,
                of: Some(of),
                ..Self::default()
            },
            VolumeKind::Clone { of } => Self {
                kind: Name::Clone,
                of: Some(of),
                ..Self::default()
            },
            VolumeKind::Linear { members } => Self::of_members(Name::Linear, members),
            VolumeKind::Stripe { members, unit } => Self {
                stripe_unit: Some(Size(unit.0)),
                ..Self::of_members(Name::Stripe, members)
            },
            VolumeKind::Mirror {
                members,
                resync_rate,
            } => Self {
                resync_rate: resync_rate.map(|rate| Size(rate.0)),
                ..Self::of_members(Name::Mirror, members)
            },
            VolumeKind::Cache { of: [of], settings } => Self {
                kind: Name::Cache,
                of: Some(of),
                cache_size: Some(Size(settings.size.0)),
                cache_mode: Some(Text(CacheModeName(settings.mode))),
                cache_block: Some(Size(settings.block.0)),
                sequential_bypass: Some(Size(settings.bypass.0)),
                ..Self::default()
            },
            VolumeKind::Replicated { copies, placement } => Self::of_copies(copies, placement),
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
