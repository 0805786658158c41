//! When and where a volume is saved.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use server::VolumeName;
use utoipa::ToSchema;
use volume::VolumeKind;

use super::Volume;
use crate::text::{Period, Text};

/// When and where a RAM volume is saved: at shutdown and on request, and regularly where `every` is
/// set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Saving {
    /// The absolute path of a folder that exists. The file there has the name of the volume, and
    /// `.save` at its end.
    #[schema(example = "/srv/saves")]
    pub to: String,
    /// The time from the start of a save to that of the next: at least 1s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "5m")]
    pub every: Option<Text<Period>>,
    /// What the volume is when the daemon ended without saving it.
    #[serde(default, skip_serializing_if = "AfterCrash::is_default")]
    #[schema(inline, default = "offline")]
    pub after_crash: AfterCrash,
}

/// What a volume is when the daemon ended without saving it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AfterCrash {
    /// Its contents are lost, and it is offline until someone restores it or acknowledges that.
    #[default]
    Offline,
    /// What it was when it was last saved.
    Restore,
}

/// What is wrong with the saving of a volume.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SavingFault {
    /// The kind of volume is not saved.
    #[error(
        "a volume of kind {kind} is not saved regularly; only RAM volumes are: leave out `save`"
    )]
    Kind {
        /// The kind.
        kind: VolumeKind,
    },
    /// The daemon's working folder means nothing to others.
    #[error("the folder {to:?} of its saves is not absolute; give a path that begins with /")]
    RelativeFolder {
        /// The folder.
        to: String,
    },
    /// The saves would follow each other without a pause.
    #[error("it cannot be saved every {given}; choose a time of at least {min}", min = Period(EVERY_MIN))]
    TooOften {
        /// The time that was given.
        given: Period,
    },
}

/// The shortest time between two saves.
const EVERY_MIN: Duration = Duration::from_secs(1);

impl AfterCrash {
    #[expect(
        clippy::trivially_copy_pass_by_ref,
        reason = "serde calls it with a reference"
    )]
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl Saving {
    /// The file of a volume.
    pub(crate) fn file(&self, name: &VolumeName) -> PathBuf {
        Path::new(&self.to).join(format!("{name}.save"))
    }
}

impl Volume {
    pub(super) fn check_saving(&self) -> Result<(), SavingFault> {
        let Some(Saving { to, every, .. }) = &self.save else {
            return Ok(());
        };
        let kind = &self.kind.0;
        if !matches!(kind, VolumeKind::Ram { .. }) {
            return Err(SavingFault::Kind { kind: kind.clone() });
        }
        if !Path::new(to).is_absolute() {
            return Err(SavingFault::RelativeFolder { to: to.clone() });
        }
        match every {
            Some(Text(given)) if given.0 < EVERY_MIN => {
                Err(SavingFault::TooOften { given: *given })
            }
            _ => Ok(()),
        }
    }
}
