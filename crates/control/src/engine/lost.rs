//! Contents that went with the process before this one. A RAM volume loses what was written whenever the daemon ends; see
//! `docs/design/0014-lost-contents.md`.

use std::collections::BTreeSet;

use server::{Availability, Server, ServerError, VolumeName};

use super::{Engine, EngineError};
use crate::definitions::Volume;
use crate::text::Text;

/// What becomes of volumes whose contents were lost in a restart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LostContents {
    /// They are offline: commands of hosts fail until the loss is acknowledged.
    #[default]
    Offline,
    /// They are served, and read as zeros.
    Zeros,
}

impl LostContents {
    pub(super) fn apply(self, server: &Server, name: &VolumeName) -> Result<(), ServerError> {
        match self {
            Self::Offline => server.set_volume_availability(name, Availability::Offline),
            Self::Zeros => Ok(()),
        }
    }

    /// Says at start what was lost.
    pub(super) fn tell(self, lost: &BTreeSet<VolumeName>) {
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

/// The most names in one line of the log.
const NAMES_MAX: usize = 20;

/// Names for a line of the log; if there are too many, the first of them.
pub(super) fn first_names(names: &BTreeSet<VolumeName>) -> String {
    let first = names.iter().take(NAMES_MAX).map(VolumeName::as_str);
    let more = (names.len() > NAMES_MAX).then_some("…");
    first.chain(more).collect::<Vec<_>>().join(" ")
}

impl Engine {
    /// Takes note that a volume's contents are lost: it no longer says so, and is online.
    pub fn acknowledge_loss(&self, name: &VolumeName) -> Result<(), EngineError> {
        let _: Volume = self.defined_volume(name)?;
        self.found_empty(name)?;
        tracing::info!(volume = %name, "loss of contents acknowledged");
        Ok(())
    }

    /// Takes note of every loss. Returns the volumes concerned.
    pub fn acknowledge_losses(&self) -> Result<Vec<String>, EngineError> {
        let lost: Vec<_> = self.lost().iter().cloned().collect();
        let mut names = Vec::new();
        for name in lost {
            // One may have been removed meanwhile.
            if self.read().volumes.contains_key(&Text(name.clone())) {
                self.acknowledge_loss(&name)?;
                names.push(name.to_string());
            }
        }
        Ok(names)
    }

    /// Somebody knows that the volume is empty.
    pub(super) fn found_empty(&self, name: &VolumeName) -> Result<(), ServerError> {
        self.lost().remove(name);
        self.server()
            .set_volume_availability(name, Availability::Online)
    }
}
