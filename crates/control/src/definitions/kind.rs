//! How the kind of a volume stands in definitions, the state file and the REST API.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};
use volume::{Provision, VolumeKind};

use crate::text::Text;

/// What a volume's blocks are kept in, among the fields of the volume: `kind` names it, and its
/// settings stand beside that name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Fields", into = "Fields")]
pub struct KindFields(pub VolumeKind);

/// The fields of all kinds. Unlike a tagged enum, a struct takes its fields out of those of the
/// volume, so that the volume can reject every field that is left over.
#[derive(Serialize, Deserialize, ToSchema)]
struct Fields {
    /// What the blocks are kept in: `ram`, memory of this machine.
    #[serde(default)]
    #[schema(inline)]
    kind: Name,
    /// When a RAM volume's memory is taken from the budget: `thin`, as it is written, or `thick`,
    /// at creation.
    #[serde(default = "thin")]
    #[schema(value_type = String, example = "thin")]
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
