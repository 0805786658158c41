//! Copies between volumes of a server, files and disks of other machines.
//!
//! A file or a disk is opened as a volume for as long as the copy lasts, so that every copy is one
//! between volumes, and locks, retries and error codes are those of volumes.

use std::fmt;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use block::{Completion, Completions};
use initiator::DeviceInfo;
use remote::OwnDisks;
use volume::copy::{Before, Copied, Copy, CopyError, Verify, holds_data};
use volume::{
    Budget, ByteSize, ManagedVolume, Origin, Platform, Progress, Relay, VolumeError, VolumeSpec,
};

use crate::{Force, VolumeName};

/// The most memory of a copy outside of a server: two windows, and what is in flight.
const MEMORY_BYTES: u64 = 1 << 30;

/// Something that is copied from or to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CopyPlace {
    /// A volume of the server.
    Volume(VolumeName),
    /// A file or block device of this machine, by its absolute path.
    File(PathBuf),
    /// A disk of another machine, by its URL.
    Url(String),
}

/// How a copy is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyOptions {
    /// Whether what was written is read back.
    pub verify: Verify,
    /// Whether the data of the destination may be overwritten.
    pub force: Force,
}

/// Reports how far a copy is; its answer may stop the copy.
pub type CopyProgress<'a> = dyn FnMut(Progress) -> ControlFlow<()> + Send + 'a;

/// Why a copy was not made, or not finished.
#[derive(Debug, thiserror::Error)]
pub enum CopyFailure {
    /// A volume is named where there is no server.
    #[error("{0} is a volume of a daemon")]
    NoServer(VolumeName),
    /// A file or disk could not be opened.
    #[error("cannot open {place}: {error}")]
    Open {
        /// What.
        place: CopyPlace,
        /// Why.
        #[source]
        error: VolumeError,
    },
    /// The source is the destination.
    #[error("source and destination are both {0}; name another destination")]
    Same(CopyPlace),
    /// The destination is not empty.
    #[error("{0} holds data, which the copy overwrites")]
    HoldsData(CopyPlace),
    /// The copy failed.
    #[error("copying {source_place} to {destination} failed: {error}")]
    Copy {
        /// What was read.
        source_place: CopyPlace,
        /// What was written.
        destination: CopyPlace,
        /// Why.
        #[source]
        error: CopyError,
    },
}

/// A place that is opened.
pub(crate) struct Opened {
    pub(crate) place: CopyPlace,
    pub(crate) volume: Arc<dyn ManagedVolume>,
    /// Whether it was created for the copy, and so has only zeros.
    pub(crate) is_new: bool,
}

impl Opened {
    /// A volume of the server.
    pub(crate) fn volume(name: &VolumeName, volume: Arc<dyn ManagedVolume>) -> Self {
        Self {
            place: CopyPlace::Volume(name.clone()),
            volume,
            is_new: false,
        }
    }
}

/// Copies between files and disks of other machines, without a server.
///
/// # Errors
/// If one of them cannot be opened, if the destination holds data, or if the copy fails.
pub fn copy_outside(
    source: &CopyPlace,
    destination: &CopyPlace,
    options: CopyOptions,
    progress: &mut CopyProgress<'_>,
) -> Result<Copied, CopyFailure> {
    let platform = Platform {
        budget: Arc::new(Budget::new(MEMORY_BYTES)),
        relay: Relay::new(Arc::new(NoSessions)),
        lanes: Arc::default(),
        record: None,
    };
    let own: Arc<dyn OwnDisks> = Arc::new(NoDisks);
    let source = open(source, None, &platform, &own)?;
    let size = ByteSize(source.volume.geometry().len_bytes());
    let destination = open(destination, Some(size), &platform, &own)?;
    copy(&platform.relay, &source, &destination, options, progress)
}

/// Opens a file or disk. A file that does not exist is created if it is to have a size.
pub(crate) fn open(
    place: &CopyPlace,
    new_size: Option<ByteSize>,
    platform: &Platform,
    own: &Arc<dyn OwnDisks>,
) -> Result<Opened, CopyFailure> {
    let opened = match place {
        CopyPlace::Volume(name) => return Err(CopyFailure::NoServer(name.clone())),
        CopyPlace::File(path) => open_file(path, new_size, platform),
        CopyPlace::Url(url) => {
            remote::open_url(url, platform, Arc::clone(own)).map(|volume| (volume, false))
        }
    };
    let (volume, is_new) = opened.map_err(|error| CopyFailure::Open {
        place: place.clone(),
        error,
    })?;
    Ok(Opened {
        place: place.clone(),
        volume,
        is_new,
    })
}

fn open_file(
    path: &Path,
    new_size: Option<ByteSize>,
    platform: &Platform,
) -> Result<(Arc<dyn ManagedVolume>, bool), VolumeError> {
    let (spec, is_new) = VolumeSpec::of_file(path, new_size)?;
    let go_on = &mut |_| ControlFlow::Continue(());
    let volume = volume::create(&spec, Origin::New, platform, go_on)?;
    Ok((volume, is_new))
}

/// Copies between what is opened.
pub(crate) fn copy(
    relay: &Arc<Relay>,
    source: &Opened,
    destination: &Opened,
    options: CopyOptions,
    progress: &mut CopyProgress<'_>,
) -> Result<Copied, CopyFailure> {
    if Arc::ptr_eq(&source.volume, &destination.volume) {
        return Err(CopyFailure::Same(source.place.clone()));
    }
    let copy = Copy {
        relay,
        source: &source.volume,
        destination: &destination.volume,
        before: if destination.is_new {
            Before::Zeros
        } else {
            Before::Anything
        },
        verify: options.verify,
    };
    let failed = |error| CopyFailure::Copy {
        source_place: source.place.clone(),
        destination: destination.place.clone(),
        error,
    };
    // First what costs nothing to find out.
    copy.check().map_err(failed)?;
    let may_overwrite = destination.is_new || options.force == Force::Yes;
    if !may_overwrite && holds_data(relay, &destination.volume) {
        return Err(CopyFailure::HoldsData(destination.place.clone()));
    }
    copy.run(progress).map_err(failed)
}

impl fmt::Display for CopyPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Volume(name) => write!(f, "volume {name}"),
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Url(url) => f.write_str(url),
        }
    }
}

/// There are no sessions whose commands could be reported.
struct NoSessions;

impl Completions for NoSessions {
    fn done(&self, _: Completion) {}
}

/// There is no server whose disks could be meant.
#[derive(Debug)]
struct NoDisks;

impl OwnDisks for NoDisks {
    fn contain(&self, _: &DeviceInfo) -> bool {
        false
    }
}
