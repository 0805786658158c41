//! Contents of RAM volumes, which are lost when the daemon ends. See
//! `docs/design/0014-lost-contents.md`.

use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use utoipa::ToSchema;

use server::{Availability, Server, ServerError, ShareName, VolumeName};

/// Whether what was written to a volume is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Contents {
    /// It is.
    Present,
    /// The daemon was restarted and memory went with it; nothing was written since.
    Lost,
    /// The daemon restores it from its last save.
    Restoring,
    /// Parts of the save that it was restored from were damaged. Reads of them fail.
    Damaged,
}

/// The availability of volumes whose contents were lost in a restart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LostContents {
    /// The volumes are offline: commands fail until the loss is acknowledged.
    #[default]
    Offline,
    /// The volumes are online and read as zeros.
    Zeros,
}

impl LostContents {
    pub(super) fn apply(self, server: &Server, name: &VolumeName) -> Result<(), ServerError> {
        match self {
            Self::Offline => server.set_volume_availability(name, Availability::Offline),
            Self::Zeros => Ok(()),
        }
    }

    /// Logs which contents were lost.
    pub(super) fn log(self, lost: &BTreeSet<VolumeName>) {
        if lost.is_empty() {
            return;
        }
        let (count, names) = (lost.len(), first_names(lost));
        match self {
            Self::Offline => {
                tracing::warn!(
                    count,
                    volumes = names,
                    "volumes lost their contents in the restart and are offline; `ramport volume acknowledge --all` serves them empty"
                );
            }
            Self::Zeros => {
                tracing::warn!(
                    count,
                    volumes = names,
                    "volumes lost their contents in the restart and read as zeros"
                );
            }
        }
    }
}

/// Logs which shares are empty after a restart. They are served at once: the handles that clients
/// have of lost files are stale, so every program is notified.
pub(super) fn log_shares(lost: &BTreeSet<ShareName>) {
    if !lost.is_empty() {
        tracing::warn!(
            count = lost.len(),
            shares = first_names(lost),
            "shares lost their files in the restart and are empty; clients get errors (stale file handle) until they mount them again"
        );
    }
}

/// The maximum number of names in one line of the log.
const NAMES_MAX: usize = 20;

/// The names for a line of the log; the first [`NAMES_MAX`] if there are more.
pub(super) fn first_names(names: &BTreeSet<impl ToString>) -> String {
    let first = names.iter().take(NAMES_MAX).map(ToString::to_string);
    let more = (names.len() > NAMES_MAX).then(|| "…".to_owned());
    first.chain(more).collect::<Vec<_>>().join(" ")
}
