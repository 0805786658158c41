//! The engine: definitions, the server that runs them and the file that keeps them, changed
//! together.
//!
//! Each change is a transaction: it is checked, applied to the server, made durable, and then
//! answered. If a step fails, the steps before it are undone. Steps that destroy data come last,
//! when no other step can fail.

mod acknowledge;
mod apply;
mod brp_views;
mod busy;
mod cache_view;
mod copies;
mod error;
mod guards;
mod iscsi_views;
mod lost;
mod members;
mod mirror_view;
mod nfs_views;
mod portals;
mod rdma;
mod remote;
mod replicated;
mod replication_view;
mod restore;
mod save_states;
mod saver;
mod saves;
mod shares;
mod shortage;
mod snapshots;
mod statistics_views;
mod steps;
mod top;
mod verbs;
mod views;
mod watch;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, SystemTime};

use server::{
    Force, PortalDefinition, ReservationFeed, Server, ServerConfig, ShareName, VolumeName,
};
use uuid::Uuid;
use volume::Loader;

use crate::change::{Change, describe};
use crate::definitions::{Definitions, ShareKind};
use crate::plan::{Phase, Step, plan};
use crate::saved_state::{SavedReservations, SavedState, ShutdownSaves};
use crate::store::{Store, StoreError};
use crate::text::{Portal, Text};

pub use apply::Comparison;
pub use brp_views::BrpSessionView;
pub use busy::Task;
pub use cache_view::{CacheFigures, CacheView};
pub use copies::{CopyView, NewCopy};
pub use error::{EngineError, OpenError};
pub use iscsi_views::{IscsiConnectionView, IscsiSessionView, IscsiState};
pub use lost::{Contents, LostContents};
pub use mirror_view::{MemberState, MemberView, MirrorView, RangeView, ScrubView};
pub use nfs_views::{NfsClientView, NfsSessionView};
pub use portals::{IfClosed, PortalPatch};
pub use rdma::{RdmaProvider, RdmaSegmentation, RdmaStatisticsView};
pub use remote::PathView;
pub(crate) use remote::RemoteWatch;
pub use replication_view::{CopyState, ReplicaView, ReplicationView};
pub use restore::RestoreError;
pub use saves::{
    DamageView, DamagedRange, LastSaveView, RestoreRequest, RestoredView, SaveRequest, SaveView,
    SavedView,
};
pub use shares::{ClientNameView, SharePatch, ShareView};
pub(crate) use shortage::ShortageLog;
pub use snapshots::NewSnapshots;
pub use statistics_views::{KindView, StatisticsView};
pub(crate) use top::Reading;
pub use top::{
    Figures, PortalFigures, SessionFigures, ThreadFigures, TopInterval, TopIntervalFault, TopView,
    VolumeFigures,
};
pub use verbs::{TargetAccess, VolumePatch};
pub use views::{
    AttachmentView, CapacityView, ChapView, DhChapView, HostView, NamespaceView, PortalState,
    PortalView, ReferralView, SessionView, StatusView, TargetView, TlsView, VolumeState,
    VolumeView,
};

use busy::{Busy, BusyGuard};
use save_states::SaveStates;
use saves::SaveThread;

/// Cheap to clone; all clones are the same engine.
#[derive(Clone)]
pub struct Engine {
    shared: Arc<Shared>,
}

struct Shared {
    server: Server,
    /// Held for the whole of a transaction, so these follow each other.
    store: Mutex<Store>,
    /// Written by the holder of `store` alone, and only for a moment: reads never wait for a
    /// transaction.
    definitions: RwLock<Definitions>,
    /// Reservations that outlive a restart; written by the holder of `store` alone.
    reservations: Mutex<SavedReservations>,
    /// Volumes whose contents went with a process before this one.
    lost: Mutex<BTreeSet<VolumeName>>,
    /// Shares whose files went with a process before this one.
    lost_shares: Mutex<BTreeSet<ShareName>>,
    saves: Mutex<SaveStates>,
    /// Written by the holder of `store` alone.
    shutdown_saves: Mutex<ShutdownSaves>,
    save_thread: SaveThread,
    /// What the save thread had not finished when it was stopped.
    unfinished: Mutex<Vec<(VolumeName, Loader)>>,
    /// Why the portals that could not be opened are closed.
    closed: Mutex<BTreeMap<PortalDefinition, String>>,
    busy: Busy,
    /// Volumes that are being saved, which may be changed meanwhile.
    saving: Busy,
    since: SystemTime,
}

/// An engine that is starting. Its changes are not in the state file yet, so that a start that
/// fails later leaves the file unchanged.
pub struct Starting {
    engine: Engine,
    feed: ReservationFeed,
}

impl Starting {
    /// The engine, for what is part of the start.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Writes the changes of the start to the state file. Reservations are saved from now on; the
    /// commands that made them have waited.
    pub fn finish(self) -> Result<Engine, OpenError> {
        self.engine.begin().settle()?;
        saver::start(&self.engine, self.feed).map_err(OpenError::Thread)?;
        let saves = self.engine.shared.save_thread.start(&self.engine);
        saves.map_err(OpenError::Thread)?;
        Ok(self.engine)
    }
}

impl Engine {
    /// Starts an engine that is complete: [`start`](Self::start) and [`Starting::finish`].
    pub fn open(
        config: ServerConfig,
        state: &Path,
        lost_contents: LostContents,
    ) -> Result<Self, OpenError> {
        Self::start(config, state, lost_contents)?.finish()
    }

    /// Reads the state file, starts a server and applies the file to it. Disks keep their
    /// identifiers even if the machine's ID changes, since the UUID that they are derived from is
    /// in the file.
    pub fn start(
        config: ServerConfig,
        state: &Path,
        lost_contents: LostContents,
    ) -> Result<Starting, OpenError> {
        let (mut store, mut saved) = Store::open(state)?;
        let machine = Some(settle_machine(&mut store, &mut saved)?);
        let beside = |ending| {
            let mut path = state.as_os_str().to_owned();
            path.push(ending);
            Some(path.into())
        };
        let server = Server::start(ServerConfig {
            machine,
            mirror_records: beside(".mirrors"),
            nfs_client_records: beside(".nfs-clients"),
            ..config
        })?;
        let feed = server.reservation_feed();
        let saves = SaveStates::at_start(&saved);
        let closed = restore::restore(&server, &saved, lost_contents, &saves)?;
        let SavedState {
            definitions,
            reservations,
            shutdown_saves,
        } = saved;
        let volumes = definitions.volumes.iter();
        let lost: BTreeSet<_> = volumes
            .filter(|(name, volume)| restore::loses_contents(&server, &name.0, &volume.kind.0))
            .map(|(name, _)| name.0.clone())
            .collect();
        let unplanned = lost.iter().filter(|name| !saves.is_planned(name));
        lost_contents.log(&unplanned.cloned().collect());
        let in_memory = definitions.shares.iter();
        let in_memory = in_memory.filter(|(_, share)| share.kind == ShareKind::Ramfs);
        let lost_shares = in_memory.map(|(name, _)| name.0.clone());
        let lost_shares: BTreeSet<_> = lost_shares.collect();
        lost::log_shares(&lost_shares);
        let engine = Self {
            shared: Arc::new(Shared {
                server,
                store: Mutex::new(store),
                definitions: RwLock::new(definitions),
                reservations: Mutex::new(reservations),
                lost: Mutex::new(lost),
                lost_shares: Mutex::new(lost_shares),
                saves: Mutex::new(saves),
                shutdown_saves: Mutex::new(shutdown_saves),
                save_thread: SaveThread::default(),
                unfinished: Mutex::default(),
                closed: Mutex::new(closed),
                busy: Busy::default(),
                saving: Busy::default(),
                since: SystemTime::now(),
            }),
        };
        Ok(Starting { engine, feed })
    }

    /// Everything that is defined, without the secrets.
    pub fn definitions(&self) -> Definitions {
        self.read().clone().without_secrets()
    }

    /// Everything that a new daemon needs to become the same: definitions with secrets, and what
    /// identifiers are derived from.
    pub fn backup(&self) -> Definitions {
        self.read().clone()
    }

    /// Stops the server. Commands in flight complete; connections that are left after `patience`
    /// are closed.
    pub fn stop(&self, patience: Duration) {
        self.shared.server.stop(patience);
    }

    pub(crate) fn server(&self) -> &Server {
        &self.shared.server
    }

    /// A panic under one of these locks would have left whole values, so the locks are taken all
    /// the same.
    fn begin(&self) -> MutexGuard<'_, Store> {
        let store = self.shared.store.lock();
        store.unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self) -> RwLockReadGuard<'_, Definitions> {
        let definitions = self.shared.definitions.read();
        definitions.unwrap_or_else(PoisonError::into_inner)
    }

    fn lost(&self) -> MutexGuard<'_, BTreeSet<VolumeName>> {
        let lost = self.shared.lost.lock();
        lost.unwrap_or_else(PoisonError::into_inner)
    }

    fn lost_shares(&self) -> MutexGuard<'_, BTreeSet<ShareName>> {
        let lost = self.shared.lost_shares.lock();
        lost.unwrap_or_else(PoisonError::into_inner)
    }

    fn saves(&self) -> MutexGuard<'_, SaveStates> {
        let saves = self.shared.saves.lock();
        saves.unwrap_or_else(PoisonError::into_inner)
    }

    fn shutdown_saves(&self) -> MutexGuard<'_, ShutdownSaves> {
        let saves = self.shared.shutdown_saves.lock();
        saves.unwrap_or_else(PoisonError::into_inner)
    }

    fn closed(&self) -> MutexGuard<'_, BTreeMap<PortalDefinition, String>> {
        let closed = self.shared.closed.lock();
        closed.unwrap_or_else(PoisonError::into_inner)
    }

    /// Does `changes` as one transaction. `store` is what [`begin`](Self::begin) gave. Of the
    /// steps, those for which `is_done` holds have been taken already; they are undone with the
    /// others where something fails.
    ///
    /// # Errors
    /// Nothing is changed then, unless the error is of the kind
    /// [`Unfinished`](server::ErrorKind::Unfinished).
    fn commit(
        &self,
        store: &mut Store,
        mut changes: Vec<Change>,
        force: Force,
        is_done: impl Fn(&Step) -> bool,
    ) -> Result<(), EngineError> {
        let steps = plan(&self.read(), &changes)?;
        // A portal that is not open has nothing to be closed, and nothing to be undone.
        let is_idle =
            |step: &Step| matches!(step, Step::RemovePortal(portal) if !self.is_open(*portal));
        let (destroying, undoable): (Vec<_>, Vec<_>) = steps
            .into_iter()
            .filter(|step| !is_idle(step))
            .partition(|step| step.phase() == Phase::Destroy);
        let mut transaction = steps::Transaction::new(self.server());
        let (done, to_do): (Vec<_>, Vec<_>) = undoable.into_iter().partition(is_done);
        for step in done {
            transaction.note_done(step);
        }
        for step in to_do {
            self.guard_new_members(&step, transaction.done(), force)?;
            if let Some((asked, opened)) = transaction.take(step, force)? {
                replace_portal(&mut changes, asked, opened);
            }
        }
        store.append(&changes)?;
        let mut unfinished = transaction.keep();
        let shown = describe(&self.read(), &changes);
        for line in shown {
            tracing::info!(change = line, "changed");
        }
        self.make(changes);
        if store.wants_compaction()
            && let Err(error) = store.compact(&self.saved())
        {
            tracing::warn!(%error, "cannot compact the state file; it goes on growing");
        }
        for step in destroying {
            match steps::take(self.server(), &step, Force::Yes) {
                Ok(_) => {}
                Err(error) if steps::is_taken(&error) => unfinished = Some(error),
                Err(error) => tracing::error!(?step, %error, "a step that should not fail did"),
            }
        }
        unfinished.map_or(Ok(()), |error| Err(error.into()))
    }

    fn make(&self, changes: Vec<Change>) {
        let definitions = self.shared.definitions.write();
        let mut definitions = definitions.unwrap_or_else(PoisonError::into_inner);
        for change in changes {
            if let Change::RemoveVolume(name) = &change {
                // A later volume of this name has lost nothing.
                self.lost().remove(&name.0);
                self.saves().remove(&name.0);
            }
            if let Change::RemoveShare(name) = &change {
                self.lost_shares().remove(&name.0);
            }
            if let Change::RemovePortal(portal) = &change {
                self.closed().remove(&portal.0.0);
            }
            self.reservations().make(&change);
            self.shutdown_saves().make(&change);
            definitions.make(change);
        }
        self.shared.save_thread.wake();
    }

    /// What the state file has to hold.
    fn saved(&self) -> SavedState {
        SavedState {
            definitions: self.read().clone(),
            reservations: self.reservations().clone(),
            shutdown_saves: self.shutdown_saves().clone(),
        }
    }

    fn reservations(&self) -> MutexGuard<'_, SavedReservations> {
        let reservations = self.shared.reservations.lock();
        reservations.unwrap_or_else(PoisonError::into_inner)
    }
}

/// The UUID that identifiers are derived from: that of the file, or, for a new file, this machine's
/// ID.
fn settle_machine(store: &mut Store, saved: &mut SavedState) -> Result<Uuid, StoreError> {
    if let Some(machine) = saved.definitions.machine {
        return Ok(machine);
    }
    let machine = server::machine();
    let change = Change::SetMachine(machine);
    store.append(std::slice::from_ref(&change))?;
    saved.make(change);
    Ok(machine)
}

/// A portal that was requested with port 0 is kept with the port that it got.
fn replace_portal(changes: &mut [Change], asked: PortalDefinition, opened: PortalDefinition) {
    for change in changes {
        if *change == Change::AddPortal(Text(Portal(asked))) {
            *change = Change::AddPortal(Text(Portal(opened)));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Instant;

    use super::*;
    use crate::testing::{Folder, server_config};

    /// The name that a server gives a target which has none shows what identifiers are derived
    /// from.
    fn name(folder: &Folder) -> String {
        let engine = Engine::open(server_config(), &folder.state(), LostContents::default())
            .expect("the engine opens");
        let name = engine.server().iscsi_names("a").next();
        engine.stop(Duration::from_secs(1));
        name.expect("they have no end").to_string()
    }

    /// Opens the state of an engine that was dropped. Its threads may keep the lock for a moment
    /// longer.
    fn open_again(folder: &Folder) -> (Store, SavedState) {
        let until = Instant::now() + Duration::from_secs(30);
        loop {
            match Store::open(&folder.state()) {
                Err(StoreError::InUse { .. }) if Instant::now() < until => {
                    thread::sleep(Duration::from_millis(10));
                }
                opened => return opened.expect("opens"),
            }
        }
    }

    #[test]
    fn identifiers_are_derived_from_what_the_state_file_says() {
        let folder = Folder::new();
        let (mut store, _) = Store::open(&folder.state()).expect("opens");
        let machine = Uuid::from_u128(0x1234_5678 << 96);
        let change = Change::SetMachine(machine);
        store.append(&[change]).expect("appended");
        store.settle().expect("written");
        drop(store);
        assert_eq!(name(&folder), "iqn.2025-01.io.ramport:12345678.a");
    }

    #[test]
    fn a_start_that_is_not_finished_writes_nothing() {
        let folder = Folder::new();
        let started = Engine::start(server_config(), &folder.state(), LostContents::default())
            .expect("starts");
        let portal = crate::parse("nvme+tcp://127.0.0.1:0").expect("a portal");
        let added = started.engine().add_portal(portal, IfClosed::Refuse);
        added.expect("opens");
        drop(started);
        assert!(!folder.state().exists());
    }

    #[test]
    fn a_new_state_file_keeps_what_identifiers_are_derived_from() {
        let folder = Folder::new();
        let first = name(&folder);
        let (_store, saved) = open_again(&folder);
        let machine = saved
            .definitions
            .machine
            .expect("it was settled")
            .simple()
            .to_string();
        assert_eq!(first, format!("iqn.2025-01.io.ramport:{}.a", &machine[..8]));
    }
}
