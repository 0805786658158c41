//! Acknowledgement of lost contents.

use server::{Availability, ServerError, VolumeName};

use super::{Engine, EngineError};
use crate::definitions::Volume;
use crate::text::Text;

impl Engine {
    /// Acknowledges that a volume's contents are lost, and sets the volume online.
    pub fn acknowledge_loss(&self, name: &VolumeName) -> Result<(), EngineError> {
        let _: Volume = self.defined_volume(name)?;
        self.found_empty(name)?;
        tracing::info!(volume = %name, "loss of contents acknowledged");
        Ok(())
    }

    /// Acknowledges every loss. Returns the names of the volumes.
    pub fn acknowledge_losses(&self) -> Result<Vec<String>, EngineError> {
        let lost: Vec<_> = self.lost().iter().cloned().collect();
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

    /// Sets a volume online that is known to be empty.
    pub(super) fn found_empty(&self, name: &VolumeName) -> Result<(), ServerError> {
        self.lost().remove(name);
        self.server()
            .set_volume_availability(name, Availability::Online)
    }
}
