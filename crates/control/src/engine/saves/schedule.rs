//! The thread that restores volumes at the start and then saves them regularly.

use std::io;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use server::VolumeName;

use super::{at_low_priority, cheapest, leave_the_processor};
use crate::engine::{Engine, EngineError, Shared};

/// How soon a save is tried again that another operation on the volume was in the way of.
const RETRY: Duration = Duration::from_secs(1);
/// How long the thread sleeps if nothing is to be saved.
const IDLE: Duration = Duration::from_secs(3600);

/// The thread, and how it is woken and ended.
#[derive(Debug, Default)]
pub(in crate::engine) struct SaveThread {
    signal: Arc<SaveSignal>,
    handle: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct SaveSignal {
    is_stopping: AtomicBool,
    /// Whether definitions have changed since the thread looked.
    has_changed: Mutex<bool>,
    changed: Condvar,
}

impl SaveThread {
    /// Starts it.
    pub(in crate::engine) fn start(&self, engine: &Engine) -> io::Result<()> {
        let shared = Arc::downgrade(&engine.shared);
        let signal = Arc::clone(&self.signal);
        let thread = thread::Builder::new().name("saves".to_owned());
        let handle = thread.spawn(move || run(&shared, &signal))?;
        *self.handle.lock().unwrap_or_else(PoisonError::into_inner) = Some(handle);
        Ok(())
    }

    /// Lets it look at the definitions.
    pub(in crate::engine) fn wake(&self) {
        let has_changed = self.signal.has_changed.lock();
        *has_changed.unwrap_or_else(PoisonError::into_inner) = true;
        self.signal.changed.notify_all();
    }

    /// Cancels saves and restorations, except those of the shutdown, and waits for the thread.
    pub(super) fn stop(&self) {
        self.signal.is_stopping.store(true, Ordering::Relaxed);
        self.wake();
        let handle = self
            .handle
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(handle) = handle
            && handle.join().is_err()
        {
            tracing::error!("the thread that saves volumes has panicked");
        }
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.signal.is_stopping.load(Ordering::Relaxed)
    }

    /// Whether a save or restoration goes on.
    pub(super) fn flow(&self) -> ControlFlow<()> {
        if self.is_stopping() {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }
}

impl Drop for SaveThread {
    fn drop(&mut self) {
        self.signal.is_stopping.store(true, Ordering::Relaxed);
        self.wake();
    }
}

fn run(shared: &Weak<Shared>, signal: &SaveSignal) {
    let engine = || shared.upgrade().map(|shared| Engine { shared });
    if let Some(engine) = engine() {
        // Hosts wait for what is read.
        engine.restore_early();
        if let Err(error) = at_low_priority(|| engine.restore_planned()) {
            tracing::error!(%error, "volumes are not restored, and stay offline");
        }
    }
    while !signal.is_stopping.load(Ordering::Relaxed) {
        let Some(engine) = engine() else { return };
        let wait = engine.save_due();
        drop(engine);
        let has_changed = signal.has_changed.lock();
        let has_changed = has_changed.unwrap_or_else(PoisonError::into_inner);
        let woken = signal
            .changed
            .wait_timeout_while(has_changed, wait, |has_changed| !*has_changed);
        *woken.unwrap_or_else(PoisonError::into_inner).0 = false;
    }
}

impl Engine {
    /// Saves the volumes whose time has come, and returns how long it is to that of the next.
    fn save_due(&self) -> Duration {
        let mut next = IDLE;
        for (name, every) in self.regular() {
            if self.shared.save_thread.is_stopping() {
                return Duration::ZERO;
            }
            let now = Instant::now();
            let attempted = *self.saves().of(&name).attempted.get_or_insert(now);
            let mut left = every.saturating_sub(now - attempted);
            if left.is_zero() {
                left = if self.save_regularly(&name, now) {
                    every.saturating_sub(now.elapsed())
                } else {
                    RETRY
                };
            }
            next = next.min(left);
        }
        next
    }

    /// The volumes that are saved regularly, and how often.
    fn regular(&self) -> Vec<(VolumeName, Duration)> {
        let definitions = self.read();
        let volumes = definitions.volumes.iter();
        let every = volumes.filter_map(|(name, volume)| {
            let every = volume.save.as_ref()?.every?;
            Some((name.0.clone(), every.0.0))
        });
        every.collect()
    }

    /// Whether it was tried.
    fn save_regularly(&self, name: &VolumeName, now: Instant) -> bool {
        // Another operation on the volume goes on.
        let Ok(mut turn) = self.save_turn(name) else {
            return false;
        };
        self.saves().of(name).attempted = Some(now);
        match (self.guard_contents(name), self.save_file(name, None)) {
            (Ok(()), Ok(path)) => {
                let note = &mut |progress| turn.note(progress);
                // What fails is in the log and in the state of the volume.
                let _noted = self.write_save(name, &cheapest(&path, leave_the_processor), note);
            }
            (Err(error @ EngineError::Damaged { .. }), _) => {
                tracing::error!(volume = %name, %error, "not saved; earlier saves stay");
                self.saves().of(name).failure = Some(error.to_string());
            }
            // A volume without contents has none to save, and may have been removed meanwhile.
            _ => {}
        }
        true
    }
}
