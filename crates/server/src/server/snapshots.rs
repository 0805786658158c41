//! Snapshots of several volumes at one moment, and the way back to one.

use volume::{Availability, Progress, VolumeError, VolumeSpec};

use super::Server;
use super::volumes::volume_error;
use crate::{ServerError, VolumeIdentity, VolumeName};

/// A snapshot that is to be taken.
#[derive(Clone, Debug)]
pub struct NewSnapshot {
    /// Its name.
    pub name: VolumeName,
    /// Its identifiers.
    pub identity: VolumeIdentity,
    /// The volume that it is of.
    pub of: VolumeName,
}

impl Server {
    /// Takes snapshots of several volumes at one moment, while these are in use. Returns what each
    /// is, in the same order.
    ///
    /// # Errors
    /// If a name is taken, a volume does not exist, occurs twice, cannot have snapshots or has too
    /// many, there are too many volumes, or the memory budget has no room for them. None is taken
    /// then.
    pub fn create_snapshots(&self, new: &[NewSnapshot]) -> Result<Vec<VolumeSpec>, ServerError> {
        for (index, snapshot) in new.iter().enumerate() {
            if new[..index].iter().any(|other| other.of == snapshot.of) {
                return Err(ServerError::SnapshotTwice(snapshot.of.clone()));
            }
        }
        let mut specs = Vec::new();
        let names = new
            .iter()
            .map(|new| (new.name.clone(), new.identity.clone()));
        self.insert_volumes(names.collect(), |server| {
            let mut origins = Vec::new();
            for snapshot in new {
                let origin = server.running_volume(&snapshot.of)?;
                specs.push(origin.storage().spec().snapshot(snapshot.of.as_str()));
                origins.push(origin);
            }
            let pairs = specs.iter().zip(&origins);
            let pairs: Vec<_> = pairs.map(|(spec, origin)| (spec, &**origin)).collect();
            let taken = volume::take_snapshots(&pairs);
            taken.map_err(|(index, error)| volume_error(error, &new[index].of, &specs[index]))
        })?;
        Ok(specs)
    }

    /// How much of a volume has changed since a snapshot of it was taken, in bytes.
    ///
    /// # Errors
    /// If it does not exist, or is no snapshot.
    pub fn changed_bytes(&self, snapshot: &VolumeName) -> Result<u64, ServerError> {
        let volume = self.running_volume(snapshot)?;
        let changed = volume::changed_bytes(&*volume);
        changed.map_err(|error| volume_error(error, snapshot, &volume.storage().spec()))
    }

    /// Makes a volume what it was when the snapshot `to` was taken of it. It is offline meanwhile,
    /// and stays offline if this fails midway, until a roll back succeeds.
    ///
    /// # Errors
    /// If one does not exist, `to` is no snapshot of the volume, or their sizes differ. If the
    /// memory budget has no room for what later snapshots show; this may be midway. If a thread
    /// executes commands that began before for too long; nothing is changed then.
    pub fn roll_back_volume(
        &self,
        name: &VolumeName,
        to: &VolumeName,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(), ServerError> {
        let (volume, snapshot) = (self.free_volume(name)?, self.running_volume(to)?);
        let availability = self.take_offline(name, &*volume)?;
        let result = volume::roll_back(&*volume, &*snapshot, progress);
        let then = match &result {
            Ok(()) => Availability::Online,
            Err(VolumeError::HalfRolledBack(_)) => Availability::Offline,
            Err(_) => availability,
        };
        let is_set = self.set_volume_availability(name, then);
        result.map_err(|error| volume_error(error, name, &volume.storage().spec()))?;
        is_set
    }
}
