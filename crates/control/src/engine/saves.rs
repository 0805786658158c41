//! Saves of volumes: on request, regularly and at shutdown; and the way back. See
//! `docs/design/0020-saves.md`.

mod early;
mod schedule;
mod view;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use server::{Availability, Background, Force, ServerError, VolumeName};
use volume::{IfDamaged, Progress, Replace, RestoreError, Restored, SaveError, SaveId, SaveMode};
use volume::{Saved, Target, VolumeKind, Wanted, WriteError};

use super::busy::BusyGuard;
use super::save_states::Restoration;
use super::{Engine, EngineError};
use crate::change::Change;
use crate::definitions::{BlockLen, Volume};
use crate::text::{Size, Text};

pub(super) use schedule::SaveThread;
pub use view::{
    DamageView, DamagedRange, LastSaveView, RestoreRequest, RestoredView, SaveRequest, SaveView,
    SavedView,
};

/// A save in progress, of which there is one for each volume.
struct SaveTurn<'a> {
    saving: BusyGuard<'a>,
    /// Until the snapshot is taken, nothing else is done to the volume: half a roll back is not
    /// worth saving.
    start: Option<BusyGuard<'a>>,
    thread: &'a SaveThread,
}

impl SaveTurn<'_> {
    /// Notes how far it is. It ends when the daemon does.
    fn note(&mut self, progress: Progress) -> ControlFlow<()> {
        // The first report of progress comes when the snapshot is taken.
        self.start = None;
        self.saving.note(progress);
        self.thread.flow()
    }
}

impl Engine {
    /// Saves what a volume holds at this moment, while it is in use: to `file`, or to the file of
    /// its definition. With force, a save of other contents is replaced.
    pub fn save_volume(
        &self,
        name: &VolumeName,
        file: Option<&str>,
        force: Force,
    ) -> Result<SavedView, EngineError> {
        let path = self.save_file(name, file)?;
        self.guard_contents(name)?;
        let replace = match force {
            Force::No => Replace::SameLineage,
            Force::Yes => Replace::AnySave,
        };
        // Who asks for a save gets a complete file.
        let mode = match file {
            Some(_) => SaveMode::Single,
            None => SaveMode::Complete,
        };
        let target = Target {
            path: &path,
            replace,
            mode,
            prepare: leave_the_processor,
        };
        let mut turn = self.save_turn(name)?;
        let note = &mut |progress| turn.note(progress);
        let (saved, took) = self.write_save(name, &target, note)?;
        Ok(SavedView::new(&path, saved, took))
    }

    /// Makes a volume what `file`, or the file of its definition, holds. Refused while sessions use
    /// the volume or if it holds data, unless forced. Hosts get errors meanwhile.
    pub fn restore_volume(
        &self,
        name: &VolumeName,
        file: Option<&str>,
        if_damaged: IfDamaged,
        force: Force,
    ) -> Result<RestoredView, EngineError> {
        let path = self.save_file(name, file)?;
        self.server().check_free(name)?;
        self.guard_sessions(name, force)?;
        self.guard_overwriting(name, force)?;
        let _no_save = self.shared.saving.enter(name, "save", 0)?;
        let busy = self.shared.busy.enter(name, "restoration", 0)?;
        let wanted = Wanted {
            only: None,
            if_damaged,
        };
        let restored = at_low_priority(|| self.read_save(name, &path, wanted, &busy))??;
        Ok(RestoredView::new(&path, &restored))
    }

    /// Creates a RAM volume that holds what `file` does. If its definition has no size, size and
    /// block size are those of the save. A volume that cannot be restored is removed again.
    pub fn create_volume_from(
        &self,
        name: &VolumeName,
        mut volume: Volume,
        file: &str,
    ) -> Result<(), EngineError> {
        let failed = |source| ServerError::Restore {
            volume: name.clone(),
            source: Box::new(source),
        };
        let kind = &volume.kind.0;
        if !matches!(kind, VolumeKind::Ram { .. }) {
            let kind = kind.clone();
            return Err(failed(RestoreError::NotInMemory { kind }).into());
        }
        if volume.lacks_size() {
            let path = absolute(file.into())?;
            let (size, block_size) = volume::saved_form(&path).map_err(failed)?;
            volume.size = Size(size.0);
            volume.block_size = BlockLen(block_size);
        }
        self.create_volume(name.clone(), volume, Force::No)?;
        let restored = self.restore_volume(name, Some(file), IfDamaged::Refuse, Force::No);
        if restored.is_err()
            && let Err(error) = self.remove_volume(name, Force::No)
        {
            tracing::warn!(volume = %name, %error, "a volume that was not restored stays");
        }
        restored.map(drop)
    }

    /// Saves every volume whose definition says so, when the engine has stopped. Reports to
    /// `progress` at least before and after each. Volumes that are not saved are in the log.
    pub fn save_at_shutdown(&self, progress: &mut dyn FnMut(&VolumeName, Progress)) {
        self.shared.save_thread.stop();
        self.finish_loading(progress);
        let is_saved = |(name, volume): (&Text<VolumeName>, &Volume)| {
            let saving = volume.save.as_ref()?;
            Some((name.0.clone(), saving.file(&name.0)))
        };
        let files: Vec<_> = self.read().volumes.iter().filter_map(is_saved).collect();
        for (name, path) in files {
            if let Err(error) = self.guard_contents(&name) {
                tracing::warn!(volume = %name, %error, "not saved; earlier saves stay");
                continue;
            }
            let Some(_turn) = self.await_turn(&name) else {
                tracing::error!(volume = %name, "not saved, since another operation on it does not end; earlier saves stay");
                continue;
            };
            let note = &mut |done| {
                progress(&name, done);
                ControlFlow::Continue(())
            };
            // No session is left, and the system waits.
            let target = cheapest(&path, lower_priority);
            let saved = self.write_save(&name, &target, note);
            if let Ok((saved, _)) = saved
                && let Err(error) = self.set_shutdown_save(&name, Some(saved.id))
            {
                tracing::error!(volume = %name, %error, "saved, but not noted in the state file; restore it after the start");
            }
        }
    }

    /// Begins a save of a volume, if no other save and no change of it is in progress.
    fn save_turn(&self, name: &VolumeName) -> Result<SaveTurn<'_>, EngineError> {
        Ok(SaveTurn {
            saving: self.shared.saving.enter(name, "save", 0)?,
            start: Some(self.shared.busy.enter(name, "save", 0)?),
            thread: &self.shared.save_thread,
        })
    }

    /// Waits until what is in progress has been cancelled or has ended, and begins a save. Returns
    /// `None` if that takes longer than [`AWAIT_MAX`].
    fn await_turn(&self, name: &VolumeName) -> Option<SaveTurn<'_>> {
        let until = Instant::now() + AWAIT_MAX;
        loop {
            match self.save_turn(name) {
                Ok(turn) => return Some(turn),
                Err(_) if Instant::now() < until => thread::sleep(AWAIT_STEP),
                Err(_) => return None,
            }
        }
    }

    /// Restores what is planned and cannot be served meanwhile, one volume after the other.
    fn restore_planned(&self) {
        for (name, only) in self.saves().planned() {
            let restored = self.restore_as_planned(&name, only);
            if self.shared.save_thread.is_stopping() {
                return;
            }
            if let Err(error) = restored {
                self.note_unrestored(&name, &error);
            }
        }
    }

    /// Gives up to restore a volume that is planned to be.
    fn note_unrestored(&self, name: &VolumeName, error: &EngineError) {
        tracing::error!(volume = %name, %error, "a volume is not restored, and stays offline");
        let mut saves = self.saves();
        let state = saves.of(name);
        state.restoration = Restoration::None;
        state.failure = Some(error.to_string());
    }

    fn restore_as_planned(
        &self,
        name: &VolumeName,
        only: Option<SaveId>,
    ) -> Result<(), EngineError> {
        let path = self.save_file(name, None)?;
        let _no_save = self.shared.saving.enter(name, "save", 0)?;
        let busy = self.shared.busy.enter(name, "restoration", 0)?;
        let if_damaged = IfDamaged::Refuse;
        let wanted = Wanted { only, if_damaged };
        self.read_save(name, &path, wanted, &busy).map(drop)
    }

    /// Writes a save, and notes how that ended.
    fn write_save(
        &self,
        name: &VolumeName,
        target: &Target<'_>,
        note: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<(Saved, Duration), ServerError> {
        let id = self.saves().of(name).id;
        let id = id.map_or_else(SaveId::first, SaveId::next);
        let started = Instant::now();
        let result = self.server().save_volume(name, id, target, note);
        let took = started.elapsed();
        let mut saves = self.saves();
        let state = saves.of(name);
        match result {
            Ok(saved) => {
                // If nothing has changed, it is the one before.
                state.id = Some(saved.id);
                state.last = Some((saved, Some(took)));
                state.failure = None;
                tracing::info!(volume = %name, file = %target.path.display(), sequence = saved.id.sequence, increments = saved.increments, bytes = saved.file_bytes, ms = took.as_millis() as u64, "saved");
                Ok((saved, took))
            }
            Err(error) => {
                if !is_cancelled(&error) {
                    state.failure = Some(error.to_string());
                    tracing::error!(volume = %name, %error, "not saved; earlier saves stay");
                }
                Err(error)
            }
        }
    }

    /// Makes a volume what a file holds, and sets it online.
    fn read_save(
        &self,
        name: &VolumeName,
        path: &Path,
        wanted: Wanted,
        busy: &BusyGuard<'_>,
    ) -> Result<Restored, EngineError> {
        let progress = &mut |progress| {
            busy.note(progress);
            self.shared.save_thread.flow()
        };
        let restored = self.server().restore_contents(name, path, wanted, progress);
        let restored = restored.inspect_err(|error| {
            if let ServerError::Restore { source, .. } = error
                && matches!(**source, RestoreError::Spoiled { .. })
            {
                self.lost().insert(name.clone());
            }
        })?;
        self.serve(name, restored.saved, Restoration::None)?;
        tracing::info!(volume = %name, file = %path.display(), sequence = restored.saved.id.sequence, bytes = restored.saved.held_bytes, "restored");
        if !restored.damage.is_empty() {
            tracing::warn!(volume = %name, damage = %restored.damage, "damaged parts of the save are zeros now");
        }
        Ok(restored)
    }

    /// Notes what a volume is restored from, and sets it online.
    fn serve(
        &self,
        name: &VolumeName,
        saved: Saved,
        restoration: Restoration,
    ) -> Result<(), EngineError> {
        // Before hosts write: after a crash the volume is not what was saved at the shutdown.
        self.set_shutdown_save(name, None)?;
        {
            let mut saves = self.saves();
            let state = saves.of(name);
            state.id = Some(saved.id);
            state.last = Some((saved, None));
            state.failure = None;
            state.restoration = restoration;
        }
        self.lost().remove(name);
        let online = Availability::Online;
        Ok(self.server().set_volume_availability(name, online)?)
    }

    /// Ends the plan to restore a volume, whose loss someone has acknowledged.
    pub(super) fn abandon_restoration(&self, name: &VolumeName) -> Result<(), EngineError> {
        self.saves().of(name).restoration = Restoration::None;
        self.set_shutdown_save(name, None)
    }

    /// Notes in the state file what a volume was saved as at the shutdown.
    fn set_shutdown_save(
        &self,
        name: &VolumeName,
        save: Option<SaveId>,
    ) -> Result<(), EngineError> {
        let mut store = self.begin();
        if self.shutdown_saves().of(name) == save {
            return Ok(());
        }
        let change = Change::SetShutdownSave(Text(name.clone()), save.map(Into::into));
        store.append(std::slice::from_ref(&change))?;
        self.make(vec![change]);
        Ok(())
    }

    /// The file of a save: the one that is given, or the one of the definition.
    fn save_file(&self, name: &VolumeName, given: Option<&str>) -> Result<PathBuf, EngineError> {
        let volume = self.defined_volume(name)?;
        let path = match (given, &volume.save) {
            (Some(given), _) => PathBuf::from(given),
            (None, Some(saving)) => saving.file(name),
            (None, None) => {
                return Err(EngineError::NoSaveFile {
                    volume: name.clone(),
                });
            }
        };
        absolute(path)
    }

    /// Refuses to restore a volume that holds data.
    fn guard_overwriting(&self, name: &VolumeName, force: Force) -> Result<(), EngineError> {
        let info = self.server().volume(name)?;
        let written = info.statistics.kind(block::OpKind::Write);
        let kind = self.defined_volume(name)?.kind.0;
        if force == Force::No && kind.holds_data(info.used_bytes, written.bytes) {
            return Err(EngineError::Overwrites {
                volume: name.clone(),
                used_bytes: info.used_bytes,
            });
        }
        Ok(())
    }
}

/// A save to the file of a definition that no person asked for.
fn cheapest(path: &Path, prepare: fn()) -> Target<'_> {
    Target {
        path,
        replace: Replace::SameLineage,
        mode: SaveMode::Cheapest,
        prepare,
    }
}

/// Refuses a path that depends on the daemon's working folder.
fn absolute(path: PathBuf) -> Result<PathBuf, EngineError> {
    if path.is_absolute() {
        Ok(path)
    } else {
        Err(EngineError::RelativeFile { path })
    }
}

/// Refuses to define saves into a folder that does not exist: the first save would fail, much
/// later.
pub(super) fn check_folder(name: &VolumeName, volume: &Volume) -> Result<(), EngineError> {
    match &volume.save {
        Some(saving) if !Path::new(&saving.to).is_dir() => Err(EngineError::NoSaveFolder {
            volume: name.clone(),
            to: saving.to.clone(),
        }),
        _ => Ok(()),
    }
}

fn is_cancelled(error: &ServerError) -> bool {
    let ServerError::Save { source, .. } = error else {
        return false;
    };
    matches!(**source, SaveError::File(WriteError::Cancelled))
}

/// How long the shutdown waits for another operation on a volume.
const AWAIT_MAX: Duration = Duration::from_secs(10);
/// How often it looks.
const AWAIT_STEP: Duration = Duration::from_millis(20);
/// Does `work` in a thread that leaves the processor to those that serve hosts.
fn at_low_priority<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T, EngineError> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("save".to_owned());
        let worker = thread.spawn_scoped(scope, || {
            lower_priority();
            work()
        });
        let done = worker.map_err(EngineError::Thread)?.join();
        Ok(done.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

/// Lowers the priority of this thread, which someone waits for, or a shutdown.
fn lower_priority() {
    enter_background(Background::Lowest);
}

/// Lets this thread have what sessions leave of the processors.
fn leave_the_processor() {
    enter_background(Background::Idle);
}

fn enter_background(share: Background) {
    // A sandbox may forbid it; saves then compete.
    if let Err(error) = server::enter_background(share) {
        tracing::debug!(%error, "cannot lower the priority of a save");
    }
}

#[cfg(test)]
mod tests;
