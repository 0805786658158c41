//! A volume of an earlier run that cannot be opened. It says why, and executes nothing.

use std::ops::ControlFlow;
use std::time::Instant;

use block::{Admission, Geometry, Intent, Op, Status, Ticket, Volume};
use memory::Progress;

use crate::{ByteSize, Storage, VolumeError, VolumeSpec};

/// What a volume was to be, and why it is not.
#[derive(Debug)]
pub(crate) struct Unopened {
    spec: VolumeSpec,
    problem: String,
}

impl Unopened {
    pub(crate) fn new(spec: &VolumeSpec, error: &VolumeError) -> Self {
        Self {
            spec: spec.clone(),
            problem: error.to_string(),
        }
    }
}

impl Volume for Unopened {
    fn geometry(&self) -> Geometry {
        self.spec.geometry()
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn is_ready(&self) -> bool {
        false
    }

    fn admit(&self, _now: Instant, _intent: &Intent<'_>, _ticket: Ticket) -> Admission {
        Admission::Fail(Status::NotReady, None)
    }

    fn execute(&self, _op: Op<'_>) -> Result<(), Status> {
        Err(Status::NotReady)
    }
}

impl Storage for Unopened {
    fn spec(&self) -> VolumeSpec {
        self.spec.clone()
    }

    fn used_bytes(&self) -> u64 {
        0
    }

    fn resize(
        &self,
        _size: ByteSize,
        _progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<(), VolumeError> {
        Err(VolumeError::Storage(Status::NotReady))
    }

    fn erase(&self) -> Result<(), VolumeError> {
        Err(VolumeError::Storage(Status::NotReady))
    }

    fn close(&self) {
        // Nothing was opened.
    }

    fn problem(&self) -> Option<String> {
        Some(self.problem.clone())
    }
}
