//! The state of a device that its supervisor and its queues share.

use std::{
    io,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};

use block::{Blocks, Geometry};

use crate::socket::Waker;

/// The state that all threads of a device share.
#[derive(Debug)]
pub(crate) struct DeviceState {
    is_stopping: AtomicBool,
    /// Wakes the supervisor's thread.
    pub(crate) supervisor: Waker,
    geometry: GeometryCell,
}

/// The geometry of the namespace as last learned. The block size never changes.
#[derive(Debug)]
struct GeometryCell {
    initial: Geometry,
    blocks: AtomicU64,
}

impl DeviceState {
    pub(crate) fn new(geometry: Geometry) -> io::Result<Self> {
        Ok(Self {
            is_stopping: AtomicBool::new(false),
            supervisor: Waker::new()?,
            geometry: GeometryCell {
                initial: geometry,
                blocks: AtomicU64::new(geometry.blocks.0),
            },
        })
    }

    pub(crate) fn geometry(&self) -> Geometry {
        let blocks = self.geometry.blocks.load(Ordering::Relaxed);
        Geometry::new(self.geometry.initial.block_size, Blocks(blocks))
    }

    pub(crate) fn set_blocks(&self, blocks: Blocks) {
        self.geometry.blocks.store(blocks.0, Ordering::Relaxed);
    }

    pub(crate) fn stop(&self) {
        self.is_stopping.store(true, Ordering::Release);
        self.supervisor.wake();
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Acquire)
    }
}
