//! Restoring volumes at the start, while hosts use them.

use std::sync::{MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use server::{ServerError, VolumeName};
use volume::{LoadStep, Loader, Progress, SaveId};

use crate::engine::busy::BusyGuard;
use crate::engine::save_states::Restoration;
use crate::engine::{Engine, EngineError};

/// A volume that is served while its save is read.
pub(super) struct Load<'a> {
    name: VolumeName,
    loader: Loader,
    busy: BusyGuard<'a>,
    _no_save: BusyGuard<'a>,
    /// Memory ran out: it is not tried again before.
    paused_until: Option<Instant>,
    has_damage: bool,
}

/// How long a load pauses if memory runs out.
const PAUSE: Duration = Duration::from_secs(1);
/// How long the thread sleeps if all loads pause.
const PAUSE_STEP: Duration = Duration::from_millis(20);

impl Load<'_> {
    /// Reads a chunk. Returns whether more are left.
    fn step(&mut self) -> bool {
        match self.loader.step() {
            Ok(LoadStep::Loaded) => {
                self.busy.note(self.loader.progress());
                self.paused_until = None;
            }
            Ok(LoadStep::Damaged { cause }) => {
                if !self.has_damage {
                    self.has_damage = true;
                    let cause = cause.map(tracing::field::display);
                    tracing::error!(volume = %self.name, cause, damage = %self.loader.damage(), "the save is damaged; reads of these bytes fail until they are written");
                }
            }
            Ok(LoadStep::End) => return false,
            Err(error) => {
                if self.paused_until.is_none() {
                    tracing::error!(volume = %self.name, %error, "restoring pauses; it is tried again every second");
                }
                self.paused_until = Some(Instant::now() + PAUSE);
            }
        }
        true
    }

    fn is_paused(&self) -> bool {
        self.paused_until
            .is_some_and(|until| until > Instant::now())
    }
}

impl Engine {
    /// Serves the volumes that are to be restored, and reads their saves meanwhile. What is left
    /// when the thread is stopped is for [`finish_loading`](Self::finish_loading).
    pub(super) fn restore_early(&self) {
        let mut loads = self.begin_loads();
        self.load(&mut loads);
        self.leave_unfinished(loads);
    }

    /// Sets the volumes online that are to be restored, except those that other volumes hold.
    pub(super) fn begin_loads(&self) -> Vec<Load<'_>> {
        let mut loads = Vec::new();
        let planned = self.saves().planned();
        for (name, only) in planned {
            if self.server().check_free(&name).is_err() {
                continue;
            }
            match self.begin_load(&name, only) {
                Ok(load) => loads.push(load),
                Err(error) => self.note_unrestored(&name, &error),
            }
        }
        loads
    }

    /// Reads the saves of volumes, and first what commands wait for, until the thread is stopped.
    fn load(&self, loads: &mut Vec<Load<'_>>) {
        while !loads.is_empty() && !self.shared.save_thread.is_stopping() {
            let is_ready = |load: &Load<'_>| !load.is_paused();
            let is_awaited = |load: &Load<'_>| is_ready(load) && load.loader.is_awaited();
            let awaited = loads.iter().position(is_awaited);
            let Some(index) = awaited.or_else(|| loads.iter().position(is_ready)) else {
                thread::sleep(PAUSE_STEP);
                continue;
            };
            if !loads[index].step() {
                let load = loads.remove(index);
                self.end_load(&load.name, &load.loader);
            }
        }
    }

    pub(super) fn leave_unfinished(&self, loads: Vec<Load<'_>>) {
        let left = loads.into_iter().map(|load| (load.name, load.loader));
        self.unfinished().extend(left);
    }

    fn begin_load(&self, name: &VolumeName, only: Option<SaveId>) -> Result<Load<'_>, EngineError> {
        let path = self.save_file(name, None)?;
        let no_save = self.shared.saving.enter(name, "save", 0)?;
        let busy = self.shared.busy.enter(name, "restoration", 0)?;
        let loader = self.server().begin_restore(name, &path, only)?;
        if let Some(error) = loader.broken() {
            tracing::error!(volume = %name, %error, sequence = loader.saved().id.sequence, "the last save is not complete; the one before is restored");
        }
        busy.note(loader.progress());
        self.serve(name, loader.saved(), Restoration::Loading)?;
        tracing::info!(volume = %name, file = %path.display(), bytes = loader.saved().held_bytes, "online; its save is being read");
        Ok(Load {
            name: name.clone(),
            loader,
            busy,
            _no_save: no_save,
            paused_until: None,
            has_damage: false,
        })
    }

    /// All of a save has been read.
    fn end_load(&self, name: &VolumeName, loader: &Loader) {
        self.saves().of(name).restoration = Restoration::None;
        let (saved, damage) = (loader.saved(), loader.damage());
        tracing::info!(volume = %name, sequence = saved.id.sequence, bytes = saved.held_bytes, "restored");
        if !damage.is_empty() {
            tracing::error!(volume = %name, %damage, "parts of the save are damaged; reads of them fail until they are written");
        }
    }

    /// Reads the rest of each save that was not read when the thread was stopped. A volume that no
    /// host has changed is left as it is: its save holds all of it, and is noted as that of the
    /// shutdown.
    pub(super) fn finish_loading(&self, progress: &mut dyn FnMut(&VolumeName, Progress)) {
        let unfinished = std::mem::take(&mut *self.unfinished());
        for (name, mut loader) in unfinished {
            let noted = if loader.has_changed() {
                self.finish_load(&name, &mut loader, progress)
            } else {
                self.set_shutdown_save(&name, Some(loader.saved().id))
            };
            if let Err(error) = noted {
                tracing::error!(volume = %name, %error, "not restored completely, so it is not saved; earlier saves stay");
            }
        }
    }

    fn finish_load(
        &self,
        name: &VolumeName,
        loader: &mut Loader,
        progress: &mut dyn FnMut(&VolumeName, Progress),
    ) -> Result<(), EngineError> {
        loop {
            let step = loader.step().map_err(|source| ServerError::Restore {
                volume: name.clone(),
                source: Box::new(source),
            })?;
            if matches!(step, LoadStep::End) {
                break;
            }
            progress(name, loader.progress());
        }
        self.end_load(name, loader);
        Ok(())
    }

    fn unfinished(&self) -> MutexGuard<'_, Vec<(VolumeName, Loader)>> {
        let unfinished = self.shared.unfinished.lock();
        unfinished.unwrap_or_else(PoisonError::into_inner)
    }
}
