//! Acknowledgement of lost contents.

use server::{Availability, VolumeName};

use super::{Engine, EngineError};
use crate::definitions::Volume;
use crate::text::Text;

impl Engine {
    /// Acknowledges that a volume's contents are lost, and sets the volume online; or that parts of
    /// them were damaged in its save, and makes these zeros.
    pub fn acknowledge_loss(&self, name: &VolumeName) -> Result<(), EngineError> {
        let _: Volume = self.defined_volume(name)?;
        // While it is restored, hosts would see a mixture.
        let _busy = self.shared.busy.enter(name, "acknowledgement", 0)?;
        self.found_empty(name)?;
        tracing::info!(volume = %name, "loss of contents acknowledged");
        Ok(())
    }

    /// Acknowledges every loss, except of volumes that are being restored. Returns the names of the
    /// volumes.
    pub fn acknowledge_losses(&self) -> Result<Vec<String>, EngineError> {
        let lost: Vec<_> = self.lost().iter().cloned().collect();
        let lost = lost
            .into_iter()
            .filter(|name| !self.saves().is_planned(name));
        let mut names = Vec::new();
        for name in lost {
            // The volume may have been removed in the meantime.
            if self.read().volumes.contains_key(&Text(name.clone())) {
                self.acknowledge_loss(&name)?;
                names.push(name.to_string());
            }
        }
        Ok(names)
    }

    /// Sets a volume online that holds nothing but what was written since the restart.
    pub(super) fn found_empty(&self, name: &VolumeName) -> Result<(), EngineError> {
        self.abandon_restoration(name)?;
        self.server().accept_damage(name)?;
        self.lost().remove(name);
        let online = Availability::Online;
        Ok(self.server().set_volume_availability(name, online)?)
    }
}
