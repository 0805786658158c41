//! The thread that notifies hosts when they reach a volume in another way.
//!
//! A volume reports such a change from any of its threads, with locks of its own held or in a
//! reactor's turn, where the server's state must not be waited for.
//!
//! ```text
//!  volume ── watcher ──► names of volumes ──► thread ──► State: targets of the volume ──► their hosts
//! ```

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Weak};
use std::thread;

use volume::PathWatcher;

use super::Core;
use super::targets::VolumeChange;
use crate::VolumeName;

/// The way to the thread, which ends when this is dropped.
pub(super) struct PathNotices(Arc<Sender<Change>>);

/// A volume is reached in another way.
pub(super) struct Change {
    volume: VolumeName,
    /// Set while the volume waits for the thread, so that it waits once.
    is_waiting: Arc<AtomicBool>,
}

impl PathNotices {
    /// The way to a thread, and what [`notify_hosts`] takes.
    pub(super) fn new() -> (Self, Receiver<Change>) {
        let (sender, changes) = channel();
        (Self(Arc::new(sender)), changes)
    }

    /// What a volume reports its changes to. It may outlive the thread.
    pub(super) fn watcher(&self, name: &VolumeName) -> PathWatcher {
        let sender = Arc::downgrade(&self.0);
        let (volume, is_waiting) = (name.clone(), Arc::new(AtomicBool::new(false)));
        Arc::new(move || {
            if let Some(sender) = sender.upgrade()
                && !is_waiting.swap(true, Ordering::AcqRel)
            {
                // Without the thread there are no hosts any more.
                let _ = sender.send(Change {
                    volume: volume.clone(),
                    is_waiting: Arc::clone(&is_waiting),
                });
            }
        })
    }
}

/// Starts the thread.
pub(super) fn notify_hosts(core: Weak<Core>, changes: Receiver<Change>) -> io::Result<()> {
    let thread = thread::Builder::new().name("path-notices".to_owned());
    thread.spawn(move || {
        while let Ok(change) = changes.recv() {
            let Some(core) = core.upgrade() else {
                return;
            };
            // Before the path is read: what changes from now on is reported again.
            change.is_waiting.store(false, Ordering::Release);
            core.state()
                .notify_hosts(&change.volume, VolumeChange::Path);
        }
    })?;
    Ok(())
}
