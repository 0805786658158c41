//! The kinds of volume: the one enum that definitions, the state file, the REST API and the command line share.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use volume::Provision;

use super::Size;
use crate::text::Text;

/// The kind of a volume, which says where its blocks are stored: `ram` is memory of this machine, and the default.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "kind", rename_all = "snake_case", from = "Fields")]
pub enum VolumeKind {
    /// Memory of this machine.
    Ram {
        /// When memory is allocated: `thin` on write, `thick` at creation.
        #[schema(value_type = String, default = "thin", example = "thick")]
        provisioning: Text<Provision>,
    },
}

/// The fields of all kinds, as they are read. Unlike a tagged enum, a struct takes its fields out of those of the volume,
/// so that the volume can reject every field that is left over.
#[derive(Deserialize)]
struct Fields {
    #[serde(default)]
    kind: Name,
    #[serde(default = "thin")]
    provisioning: Text<Provision>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Name {
    #[default]
    Ram,
}

fn thin() -> Text<Provision> {
    Text(Provision::Thin)
}

impl From<Fields> for VolumeKind {
    fn from(fields: Fields) -> Self {
        match fields.kind {
            Name::Ram => Self::Ram {
                provisioning: fields.provisioning,
            },
        }
    }
}

impl VolumeKind {
    /// Memory.
    pub const fn ram(provision: Provision) -> Self {
        Self::Ram {
            provisioning: Text(provision),
        }
    }

    /// The memory that a volume of this kind takes from the budget at its creation, of `size`.
    pub(crate) fn reserved_bytes(&self, size: Size) -> u64 {
        match self {
            Self::Ram { provisioning } => match provisioning.0 {
                Provision::Thin => 0,
                Provision::Thick => size.0,
            },
        }
    }

    /// Whether a volume holds something that was written, as far as can be told from the memory that it uses and the bytes
    /// that hosts wrote since it was created.
    pub(crate) fn holds_data(&self, used_bytes: u64, written_bytes: u64) -> bool {
        match self {
            Self::Ram { provisioning } => match provisioning.0 {
                Provision::Thin => used_bytes > 0,
                // All its memory is in use from the beginning.
                Provision::Thick => written_bytes > 0,
            },
        }
    }
}

/// In words, such as `ram, thin`.
impl fmt::Display for VolumeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ram { provisioning } => write!(f, "ram, {provisioning}"),
        }
    }
}
