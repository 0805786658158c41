//! Snapshots, clones, and the way back.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use server::{Force, NewSnapshot, ServerError, VolumeName};
use utoipa::ToSchema;

use super::{Engine, EngineError};
use crate::change::Change;
use crate::definitions::{BlockLen, Filters, Identity, KindFields, Volume};
use crate::plan::Step;
use crate::text::{Size, Text};

/// Snapshots that are to be taken at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewSnapshots {
    /// The name of each snapshot, with the volume that it is of.
    #[schema(value_type = BTreeMap<String, String>, example = json!({"rd0-monday": "rd0", "rd1-monday": "rd1"}))]
    pub snapshots: BTreeMap<Text<VolumeName>, Text<VolumeName>>,
}

impl Engine {
    /// Takes snapshots of several volumes at one moment, while hosts use these.
    pub fn take_snapshots(&self, new: &NewSnapshots) -> Result<(), EngineError> {
        let (mut busy, mut seen) = (Vec::new(), BTreeSet::new());
        for (name, of) in &new.snapshots {
            if !seen.insert(of) {
                return Err(ServerError::SnapshotTwice(of.0.clone()).into());
            }
            self.defined_volume(&of.0)?;
            self.guard_contents(&of.0)?;
            if self.read().volumes.contains_key(name) {
                return Err(ServerError::VolumeExists(name.0.clone()).into());
            }
            busy.push(self.shared.busy.enter(&of.0, "snapshot", 0)?);
            busy.push(self.shared.busy.enter(&name.0, "creation", 0)?);
        }
        let wanted = new.snapshots.iter().map(|(name, of)| NewSnapshot {
            name: name.0.clone(),
            identity: Identity::default().to_server(),
            of: of.0.clone(),
        });
        let specs = self
            .server()
            .create_snapshots(&wanted.collect::<Vec<_>>())?;
        let changes = new.snapshots.keys().zip(specs).map(|(name, spec)| {
            let volume = Volume {
                size: Size(spec.size.0),
                block_size: BlockLen(spec.block_size),
                kind: KindFields(spec.kind),
                identity: Identity::default(),
                read_only: false,
                filters: Filters::default(),
                save: None,
            };
            Change::SetVolume(name.clone(), volume)
        });
        let is_creation = |step: &Step| matches!(step, Step::CreateVolume(..));
        self.commit(&mut self.begin(), changes.collect(), Force::No, is_creation)
    }

    /// Makes a volume what it was when the snapshot `to` was taken of it. What was written since is
    /// lost, unless a later snapshot shows it. Rejected while sessions use the volume or if it has
    /// changed, unless forced. Hosts get errors meanwhile. Other changes are not blocked.
    pub fn roll_back_volume(
        &self,
        name: &VolumeName,
        to: &VolumeName,
        force: Force,
    ) -> Result<(), EngineError> {
        for volume in [name, to] {
            self.defined_volume(volume)?;
            self.guard_contents(volume)?;
        }
        self.guard_sessions(name, force)?;
        let changed_bytes = self.server().changed_bytes(to)?;
        if changed_bytes > 0 && force == Force::No {
            return Err(EngineError::DiscardsChanges {
                volume: name.clone(),
                snapshot: to.clone(),
                changed_bytes,
            });
        }
        let busy = self.shared.busy.enter(name, "roll back", changed_bytes)?;
        let _snapshot = self.shared.busy.enter(to, "roll back", 0)?;
        let note = &mut |progress| busy.note(progress);
        self.server().roll_back_volume(name, to, note)?;
        tracing::info!(volume = %name, snapshot = %to, "rolled back");
        Ok(())
    }
}
