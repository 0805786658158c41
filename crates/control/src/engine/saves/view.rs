//! Saves as people see them.

use std::path::Path;
use std::time::{Duration, SystemTime};

use block::ByteRange;
use serde::{Deserialize, Serialize};
use server::VolumeName;
use utoipa::ToSchema;
use volume::{Damage, Restored, Saved};

use crate::definitions::{AfterCrash, Saving};
use crate::engine::save_states::SaveStates;
use crate::text::{Period, Text};

/// Where a volume is to be saved.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SaveRequest {
    /// The absolute path of the file on the daemon's machine; absent: that of the volume's
    /// definition.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "/srv/saves/rd0-monday.save")]
    pub file: Option<String>,
}

/// What a volume is to be restored from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RestoreRequest {
    /// The absolute path of the file on the daemon's machine; absent: that of the volume's
    /// definition.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "/srv/saves/rd0-monday.save")]
    pub file: Option<String>,
    /// Restore a damaged file, too: its damaged parts become zeros.
    pub zero_damaged: bool,
}

/// When and where a volume is saved, and how that went.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SaveView {
    /// The folder.
    pub to: String,
    /// The time from the start of a save to that of the next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "5m")]
    pub every: Option<Text<Period>>,
    /// What the volume is when the daemon ended without saving it.
    #[schema(inline)]
    pub after_crash: AfterCrash,
    /// The file.
    pub file: String,
    /// The last save that succeeded, or that the volume was restored from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<LastSaveView>,
    /// Why the last attempt to save or restore it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

/// A save that succeeded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LastSaveView {
    /// The moment that it shows, in seconds since 1970.
    pub moment_unix_s: u64,
    /// How long it took; absent for one of an earlier process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// Length of the file and its increments.
    pub file_bytes: u64,
    /// How many increments there are beside the file.
    #[serde(default)]
    pub increments: u32,
    /// Bytes of the volume that it holds: all others are zeros.
    pub held_bytes: u64,
    /// Its number among the saves of the same contents.
    pub sequence: u64,
}

/// What was saved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SavedView {
    /// The file.
    pub file: String,
    /// The save.
    #[serde(flatten)]
    pub save: LastSaveView,
}

/// What was restored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RestoredView {
    /// The file.
    pub file: String,
    /// The save.
    #[serde(flatten)]
    pub save: LastSaveView,
    /// What the file had damaged, and that is zeros now.
    #[serde(flatten)]
    pub damage: DamageView,
}

/// Bytes of a volume that are damaged in a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DamageView {
    /// How many.
    pub damaged_bytes: u64,
    /// The first ranges of them.
    pub damaged: Vec<DamagedRange>,
}

/// Bytes of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DamagedRange {
    /// Where it begins.
    pub offset_bytes: u64,
    /// How long it is.
    pub len_bytes: u64,
}

impl SaveView {
    /// What the definition says.
    pub fn saving(&self) -> Saving {
        Saving {
            to: self.to.clone(),
            every: self.every,
            after_crash: self.after_crash,
        }
    }
}

impl LastSaveView {
    fn new(saved: &Saved, took: Option<Duration>) -> Self {
        let since_1970 = saved.moment.duration_since(SystemTime::UNIX_EPOCH);
        Self {
            moment_unix_s: since_1970.map_or(0, |since| since.as_secs()),
            duration_ms: took.map(|took| took.as_millis() as u64),
            file_bytes: saved.file_bytes,
            increments: saved.increments,
            held_bytes: saved.held_bytes,
            sequence: saved.id.sequence,
        }
    }
}

impl SavedView {
    pub(super) fn new(path: &Path, saved: Saved, took: Duration) -> Self {
        Self {
            file: path.display().to_string(),
            save: LastSaveView::new(&saved, Some(took)),
        }
    }
}

impl RestoredView {
    pub(super) fn new(path: &Path, restored: &Restored) -> Self {
        Self {
            file: path.display().to_string(),
            save: LastSaveView::new(&restored.saved, None),
            damage: DamageView::from(&restored.damage),
        }
    }
}

impl From<&Damage> for DamageView {
    fn from(damage: &Damage) -> Self {
        let ranges = damage.ranges.iter();
        Self {
            damaged_bytes: damage.total_bytes,
            damaged: ranges
                .map(|range| DamagedRange {
                    offset_bytes: range.offset,
                    len_bytes: range.len,
                })
                .collect(),
        }
    }
}

impl From<&DamageView> for Damage {
    fn from(view: &DamageView) -> Self {
        let ranges = view.damaged.iter();
        Self {
            ranges: ranges
                .map(|range| ByteRange {
                    offset: range.offset_bytes,
                    len: range.len_bytes,
                })
                .collect(),
            total_bytes: view.damaged_bytes,
        }
    }
}

impl SaveStates {
    /// How a volume is saved, as its definition says.
    pub(in crate::engine) fn view(&self, name: &VolumeName, saving: &Saving) -> SaveView {
        let state = self.get(name);
        let last = state.and_then(|state| state.last.as_ref());
        SaveView {
            to: saving.to.clone(),
            every: saving.every,
            after_crash: saving.after_crash,
            file: saving.file(name).display().to_string(),
            last: last.map(|(saved, took)| LastSaveView::new(saved, *took)),
            failure: state.and_then(|state| state.failure.clone()),
        }
    }
}
