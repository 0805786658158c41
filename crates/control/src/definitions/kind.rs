//! The kind of a volume in definitions, the state file and the REST API.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};
use volume::{Provision, VolumeKind};

use crate::text::Text;

/// The kind of a volume, which determines where its blocks are stored, and the settings of that
/// kind, among the fields of the volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Fields", into = "Fields")]
pub struct KindFields(pub VolumeKind);

/// Where the blocks are stored, and when memory is allocated.
///
/// Unlike a tagged enum, a struct takes its fields out of those of the
/// volume, so that the volume can reject every field that is left over.
#[derive(Serialize, Deserialize, ToSchema)]
struct Fields {
    /// Where the blocks are stored: `ram` is memory of this machine.
    #[serde(default)]
    #[schema(inline, default = "ram")]
    kind: Name,
    /// When memory is allocated: `thin` on write, `thick` at creation.
    #[serde(default = "thin")]
    #[schema(value_type = String, default = "thin", example = "thick")]
    provisioning: Text<Provision>,
}

#[derive(Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum Name {
    #[default]
    Ram,
}

fn thin() -> Text<Provision> {
    Text(Provision::Thin)
}

impl From<Fields> for KindFields {
    fn from(fields: Fields) -> Self {
        Self(match fields.kind {
            Name::Ram => VolumeKind::Ram {
                provision: fields.provisioning.0,
            },
        })
    }
}

impl From<KindFields> for Fields {
    fn from(kind: KindFields) -> Self {
        match kind.0 {
            VolumeKind::Ram { provision } => Self {
                kind: Name::Ram,
                provisioning: Text(provision),
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
