//! Copies between volumes, files and disks of other machines.

use std::sync::Arc;

use remote::OwnDisks;
use volume::ByteSize;
use volume::copy::Copied;

use super::Server;
use super::remote::OfferedDisks;
use crate::ServerError;
use crate::copying::{self, CopyOptions, CopyPlace, CopyProgress, Opened};

impl Server {
    /// Copies all of `source` to the start of `destination`. Takes long; other calls go on
    /// meanwhile.
    ///
    /// # Errors
    /// If one of them does not exist or does not fit, if another volume holds the destination, if
    /// the destination holds data and `options` do not force, or if the copy fails or is stopped.
    pub fn copy(
        &self,
        source: &CopyPlace,
        destination: &CopyPlace,
        options: CopyOptions,
        progress: &mut CopyProgress<'_>,
    ) -> Result<Copied, ServerError> {
        let source = match source {
            CopyPlace::Volume(name) => Opened::volume(name, self.running_volume(name)?),
            outside => self.open_outside(outside, None)?,
        };
        let size = ByteSize(source.volume.geometry().len_bytes());
        let destination = match destination {
            CopyPlace::Volume(name) => Opened::volume(name, self.free_volume(name)?),
            outside => self.open_outside(outside, Some(size))?,
        };
        let relay = &self.core().relay;
        let copied = copying::copy(relay, &source, &destination, options, progress);
        Ok(copied?)
    }

    fn open_outside(
        &self,
        place: &CopyPlace,
        new_size: Option<ByteSize>,
    ) -> Result<Opened, ServerError> {
        let own: Arc<dyn OwnDisks> = Arc::new(OfferedDisks(Arc::downgrade(self.core())));
        Ok(copying::open(place, new_size, &self.platform(), &own)?)
    }
}
