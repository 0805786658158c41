//! Copies between volumes, files and disks of other machines.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Deserialize, Serialize};
use server::{Copied, CopyOptions, CopyPlace, Force, ServerError, Verify};
use utoipa::ToSchema;

use super::{Engine, EngineError};
use crate::text::parse;

/// What is to be copied where. Each is the name of a volume, an absolute path of the daemon's
/// machine, which has a `/`, or the URL of a disk of another machine, as `ramport bench` takes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewCopy {
    /// What is read.
    #[schema(example = "rd0")]
    pub source: String,
    /// What is written. A file that does not exist is created.
    #[schema(example = "/srv/rd0.img")]
    pub destination: String,
    /// Whether what was written is read back and compared.
    #[serde(default)]
    pub verify: bool,
}

/// What was copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CopyView {
    /// The size of the source.
    pub total_bytes: u64,
    /// How much of it was written as data.
    pub data_bytes: u64,
    /// How much of it are zeros, which were not written.
    pub zero_bytes: u64,
    /// Whether what was written was read back and is the same.
    pub verified: bool,
}

impl NewCopy {
    /// What is read, and what is written.
    ///
    /// # Errors
    /// If a text is none of what may be copied.
    pub fn places(&self) -> Result<[CopyPlace; 2], EngineError> {
        Ok([place(&self.source)?, place(&self.destination)?])
    }

    /// What was copied.
    pub fn view(&self, copied: Copied) -> CopyView {
        CopyView {
            total_bytes: copied.total_bytes,
            data_bytes: copied.data_bytes,
            zero_bytes: copied.zero_bytes,
            verified: self.verify,
        }
    }

    /// How it is copied.
    pub fn options(&self, force: Force) -> CopyOptions {
        CopyOptions {
            verify: if self.verify {
                Verify::ReadBack
            } else {
                Verify::No
            },
            force,
        }
    }
}

fn place(text: &str) -> Result<CopyPlace, EngineError> {
    if text.contains("://") {
        return Ok(CopyPlace::Url(text.to_owned()));
    }
    if text.contains('/') {
        return Ok(CopyPlace::File(PathBuf::from(text)));
    }
    Ok(CopyPlace::Volume(parse(text)?))
}

impl Engine {
    /// Copies all of one volume, file or disk to the start of another. Volumes are busy meanwhile.
    /// The copy stops when `stop` is set.
    ///
    /// # Errors
    /// If the copy is not possible, if the destination holds data or has sessions and is not
    /// forced, or if the copy fails.
    pub fn copy(
        &self,
        new: &NewCopy,
        force: Force,
        stop: &AtomicBool,
    ) -> Result<CopyView, EngineError> {
        let [source, destination] = new.places()?;
        if source == destination {
            return Err(ServerError::from(server::CopyFailure::Same(source)).into());
        }
        let enter = |place: &CopyPlace| match place {
            CopyPlace::Volume(name) => self.shared.busy.enter(name, "copy", 0).map(Some),
            CopyPlace::File(_) | CopyPlace::Url(_) => Ok(None),
        };
        let busy = [enter(&source)?, enter(&destination)?];
        if let CopyPlace::Volume(name) = &source {
            self.guard_contents(name)?;
        }
        if let CopyPlace::Volume(name) = &destination {
            self.guard_sessions(name, force)?;
        }
        let copied =
            self.server()
                .copy(&source, &destination, new.options(force), &mut |progress| {
                    busy.iter().flatten().for_each(|busy| busy.note(progress));
                    if stop.load(Ordering::Relaxed) {
                        return ControlFlow::Break(());
                    }
                    ControlFlow::Continue(())
                })?;
        tracing::info!(%source, %destination, data_bytes = copied.data_bytes, "copied");
        Ok(new.view(copied))
    }
}
