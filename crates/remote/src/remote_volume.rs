//! A volume on a disk of another machine.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

use block::{Admission, Geometry, Intent, Op, Settled, Status, Ticket, Volume, WriteCache};
use volume::{
    ByteSize, Managed, ManagedVolume, Origin, PathInfo, Platform, Progress, Storage, VolumeError,
    VolumeKind, VolumeSpec,
};
use window::Window;

use crate::attach::{Attachment, OwnDisks, SizeRule, probe};
use crate::error::RemoteError;
use crate::limits::IO_TIMEOUT_DEFAULT;
use crate::path::Paths;
use crate::settings::{DEPTH, Settings, TRANSFER_BYTES};
use crate::worker::Worker;

/// Memory of a connection besides the buffers of its commands.
const CONNECTION_BYTES: u64 = 1 << 20;

/// A volume on a disk of another machine. Its contents outlive it.
#[derive(Debug)]
pub struct RemoteVolume {
    kind: VolumeKind,
    window: Arc<Window>,
    paths: Arc<Paths>,
    write_cache: WriteCache,
}

/// Opens the disk that `spec` names as a volume. For a new volume every URL has to lead to a disk
/// of the size that it says, and to the same. A restored volume is opened in the background: until
/// a path is connected, it executes nothing.
///
/// # Errors
/// If the settings are invalid, if memory or threads are missing, and, for a new volume, if a URL
/// does not lead to the disk.
pub fn open(
    spec: &VolumeSpec,
    origin: Origin,
    platform: &Platform,
    own: Arc<dyn OwnDisks>,
) -> Result<Arc<dyn ManagedVolume>, VolumeError> {
    spec.check()?;
    let opened = RemoteVolume::connect(spec, origin, platform, own)?;
    Ok(Arc::new(Managed::new(opened)))
}

/// Opens the disk at a URL as a volume that is as large as the disk.
///
/// # Errors
/// Those of [`open`], and if the disk cannot be reached.
pub fn open_url(
    url: &str,
    platform: &Platform,
    own: Arc<dyn OwnDisks>,
) -> Result<Arc<dyn ManagedVolume>, VolumeError> {
    let kind = VolumeKind::Remote {
        urls: vec![url.to_owned()],
        io_timeout: IO_TIMEOUT_DEFAULT,
        disk: None,
    };
    let form = probe(&kind)?;
    let spec = VolumeSpec {
        size: form.size,
        block_size: form.block_size,
        kind,
    };
    open(&spec, Origin::New, platform, own)
}

impl RemoteVolume {
    fn connect(
        spec: &VolumeSpec,
        origin: Origin,
        platform: &Platform,
        own: Arc<dyn OwnDisks>,
    ) -> Result<Self, RemoteError> {
        let settings = Settings::of(&spec.kind)?;
        let paths = Arc::new(Paths::new(&settings, spec.geometry(), own)?);
        let per_path = u64::from(DEPTH) * u64::from(TRANSFER_BYTES) + CONNECTION_BYTES;
        let charge = platform.budget.reserve(per_path * paths.count() as u64)?;
        let attachments: Vec<_> = (0..paths.count())
            .map(|number| match origin {
                Origin::New => paths.connect(number, SizeRule::Same).map(Some),
                Origin::Restored => Ok(None),
            })
            .collect::<Result<_, _>>()?;
        let write_cache = write_cache_of(&attachments);
        let window = platform.window(spec.geometry(), TRANSFER_BYTES, Arc::clone(&paths) as _);
        // From here on, dropping the volume ends its threads.
        let volume = Self {
            kind: spec.kind.clone(),
            window,
            paths,
            write_cache,
        };
        // In order, before the worker looks: it uses the first.
        let devices: Vec<_> = (0..)
            .zip(attachments)
            .map(|(number, new)| new.map(|new| volume.paths.hand_over(number, new)))
            .collect();
        let worker = Worker::new(
            &volume.paths,
            &volume.window,
            &settings,
            write_cache,
            charge,
        );
        worker.start()?;
        if origin == Origin::New {
            volume.paths.note_ready();
        }
        for (number, device) in devices.into_iter().enumerate() {
            volume.paths.start(number, device)?;
        }
        Ok(volume)
    }
}

/// What a volume advertises. What is not known may be a cache.
fn write_cache_of(attachments: &[Option<Attachment>]) -> WriteCache {
    let is_absent = |attachment: &Option<Attachment>| {
        attachment
            .as_ref()
            .is_some_and(|it| it.device.info().write_cache == WriteCache::Absent)
    };
    if attachments.iter().all(is_absent) {
        WriteCache::Absent
    } else {
        WriteCache::Volatile
    }
}

impl Volume for RemoteVolume {
    fn geometry(&self) -> Geometry {
        self.window.geometry()
    }

    fn is_read_only(&self) -> bool {
        self.paths.is_write_protected()
    }

    fn is_ready(&self) -> bool {
        self.paths.is_ready()
    }

    /// What the other side said when the volume was created. After a restart of the program a cache
    /// is advertised until the volume is created again, since hosts may connect before the other
    /// side does.
    fn write_cache(&self) -> WriteCache {
        self.write_cache
    }

    fn admit(&self, _now: Instant, intent: &Intent<'_>, ticket: Ticket) -> Admission {
        if !self.paths.is_ready() {
            return Admission::Fail(Status::NotReady, None);
        }
        let writes = matches!(intent.kind, block::OpKind::Write | block::OpKind::Discard);
        if writes && self.paths.is_write_protected() {
            return Admission::Fail(Status::WriteProtected, None);
        }
        self.window.admit(intent, ticket)
    }

    fn execute(&self, op: Op<'_>) -> Result<(), Status> {
        self.window.execute(op)
    }

    fn settle(&self, ticket: Ticket) -> Result<Settled, Status> {
        self.window.settle(ticket)
    }

    fn release(&self, ticket: Ticket) {
        self.window.release(ticket);
    }
}

impl Storage for RemoteVolume {
    fn spec(&self) -> VolumeSpec {
        let geometry = self.geometry();
        VolumeSpec {
            size: ByteSize(geometry.len_bytes()),
            block_size: geometry.block_size,
            kind: self.kind.clone(),
        }
    }

    /// What the disk takes is the other machine's to say.
    fn used_bytes(&self) -> u64 {
        0
    }

    fn resize(
        &self,
        size: ByteSize,
        _progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<(), VolumeError> {
        // The disk may have grown to that size meanwhile.
        if size == self.spec().size {
            return Ok(());
        }
        Err(RemoteError::Resize.into())
    }

    fn erase(&self) -> Result<(), VolumeError> {
        self.window.erase_all().map_err(VolumeError::Storage)
    }

    fn close(&self) {
        self.window.close();
        self.paths.close();
    }

    fn problem(&self) -> Option<String> {
        if self.is_ready() {
            return None;
        }
        let paths = self.paths.infos().into_iter();
        let problems: Vec<_> = paths
            .map(|path| path.problem.unwrap_or_else(|| "connecting".to_owned()))
            .collect();
        Some(format!(
            "the disk was not reached since the daemon was started ({}); the volume comes online when it is",
            problems.join("; ")
        ))
    }

    fn paths(&self) -> Vec<PathInfo> {
        self.paths.infos()
    }
}

impl Drop for RemoteVolume {
    fn drop(&mut self) {
        self.close();
    }
}
