//! The thread that frees the memory of large files that were removed or cut off, which would hold
//! up the I/O of a reactor for longer than a turn.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Weak};
use std::thread;

use ramfs::RamTree;

/// The way to the thread. It ends when this and the trees are dropped.
pub(super) struct Freeing(Sender<Job>);

struct Job {
    tree: Weak<RamTree>,
    /// Set while the tree waits for the thread, so that it waits once.
    is_waiting: Arc<AtomicBool>,
}

impl Freeing {
    pub(super) fn start() -> io::Result<Self> {
        let (sender, receiver) = channel();
        thread::Builder::new()
            .name("freeing".to_owned())
            .spawn(move || free_all(&receiver))?;
        Ok(Self(sender))
    }

    /// Lets the thread free what a tree puts aside from now on.
    pub(super) fn serve(&self, tree: &Arc<RamTree>) {
        let sender = self.0.clone();
        let weak = Arc::downgrade(tree);
        let is_waiting = Arc::new(AtomicBool::new(false));
        tree.set_notify(Arc::new(move || {
            if !is_waiting.swap(true, Ordering::AcqRel) {
                // If the thread has ended, the tree frees memory when it needs some.
                let _ = sender.send(Job {
                    tree: Weak::clone(&weak),
                    is_waiting: Arc::clone(&is_waiting),
                });
            }
        }));
    }
}

fn free_all(jobs: &Receiver<Job>) {
    while let Ok(job) = jobs.recv() {
        job.is_waiting.store(false, Ordering::Release);
        // A tree that is dropped meanwhile has freed everything.
        while job.tree.upgrade().is_some_and(|tree| tree.free_piece()) {}
    }
}
