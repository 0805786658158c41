//! A target in plain memory, an initiator of any messages, and both ends of a channel, for tests
//! and fuzz targets.

pub mod fuzz;
mod initiator;
mod link;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use block::{Access, Volume};
use scsi::testing::SeenVolumes;
use scsi::{Device, Lun, LunMap, NexusId, NexusPorts, SanitizeWork, View};
use session::SourceId;

pub use initiator::{Answer, Form, SrpBed, command, login, management};
pub use link::ChannelLink;

use crate::backend::{Abort, Backend, Completed, Saved, Standing};

/// A target with a volume behind each LUN from 0 on.
#[derive(Clone)]
pub struct TestTarget {
    device: Arc<Mutex<Device>>,
    members: Arc<Mutex<Members>>,
}

/// The channels of a target.
#[derive(Default)]
struct Members {
    channels: Vec<Channel>,
    last_id: u64,
    /// Channels that a volume or another channel has woken.
    wakes: BTreeSet<u64>,
    adopted: usize,
}

struct Channel {
    id: u64,
    nexus: NexusId,
    aborts: Vec<Abort>,
    standing: Standing,
}

/// The backend of one channel to a [`TestTarget`].
pub struct TestBackend {
    target: TestTarget,
    id: u64,
    nexus: NexusId,
    view: Option<View>,
    seen: SeenVolumes,
    /// The most bytes that the channel's commands may hold.
    pub hold_max_bytes: u64,
    /// What was done, oldest first.
    pub completed: Vec<Completed>,
}

impl TestTarget {
    /// A target with these logical units.
    pub fn new<V: Volume + 'static>(units: impl IntoIterator<Item = Arc<V>>) -> Self {
        Self {
            device: Arc::new(Mutex::new(scsi::testing::device("t", (0..).zip(units)))),
            members: Arc::default(),
        }
    }

    /// The backend of a new channel, in a nexus of its own.
    ///
    /// # Panics
    /// If the device has no room.
    pub fn backend(&self) -> TestBackend {
        let ports = NexusPorts {
            initiator: "0x1".into(),
            target_port: 1,
        };
        let nexus = self
            .device()
            .open_nexus(ports, LunMap::All, Access::ReadWrite);
        self.channel(nexus.expect("there is room"))
    }

    /// The backend of another channel of the nexus.
    pub fn backend_beside(&self, other: &TestBackend) -> TestBackend {
        self.channel(other.nexus)
    }

    fn channel(&self, nexus: NexusId) -> TestBackend {
        let mut members = lock(&self.members);
        members.last_id += 1;
        let id = members.last_id;
        members.channels.push(Channel {
            id,
            nexus,
            aborts: Vec::new(),
            standing: Standing::Active,
        });
        TestBackend {
            target: self.clone(),
            id,
            nexus,
            view: None,
            seen: SeenVolumes::default(),
            hold_max_bytes: u64::MAX,
            completed: Vec::new(),
        }
    }

    /// The device server, for changes by a test.
    pub fn device(&self) -> MutexGuard<'_, Device> {
        lock(&self.device)
    }

    /// How many sanitize operations outlived their channels.
    pub fn adopted(&self) -> usize {
        lock(&self.members).adopted
    }
}

impl TestBackend {
    /// Whether the channel was woken since the last call.
    pub fn take_wake(&mut self) -> bool {
        lock(&self.target.members).wakes.remove(&self.id)
    }

    /// Changes the standing of the channel.
    pub fn set_standing(&self, standing: Standing) {
        for channel in &mut lock(&self.target.members).channels {
            if channel.id == self.id {
                channel.standing = standing;
            }
        }
    }

    /// Clears the unit attentions of the power-on.
    pub fn clear_attention(&self) {
        for lun in 0..scsi::UNITS_MAX as Lun {
            self.target.device().begin(self.nexus, lun, &[0; 16]);
        }
    }
}

impl Members {
    fn abort(&mut self, is_meant: impl Fn(&Channel) -> bool, abort: Abort) {
        for channel in self.channels.iter_mut().filter(|channel| is_meant(channel)) {
            channel.aborts.push(abort);
            self.wakes.insert(channel.id);
        }
    }
}

impl Backend for TestBackend {
    fn connection(&self) -> u64 {
        self.id
    }

    fn with_device<R>(&mut self, call: impl FnOnce(&mut Device, NexusId) -> R) -> R {
        let mut device = self.target.device();
        let result = call(&mut device, self.nexus);
        let mut members = lock(&self.target.members);
        while let Some((nexus, lun)) = device.poll_abort() {
            members.abort(|channel| channel.nexus == nexus, Abort::ByAnother(lun));
        }
        result
    }

    fn view(&mut self, lun: Lun) -> Option<(&View, SourceId)> {
        self.view = self.target.device().view(self.nexus, lun);
        let view = self.view.as_ref()?;
        Some((view, SourceId(self.seen.number(lun, &view.volume))))
    }

    fn charge(&mut self, len_bytes: u64) -> bool {
        len_bytes <= self.hold_max_bytes
    }

    fn abort_on_others(&mut self, lun: Lun) {
        let (id, nexus) = (self.id, self.nexus);
        let is_meant = |channel: &Channel| channel.nexus == nexus && channel.id != id;
        lock(&self.target.members).abort(is_meant, Abort::ByOwn(lun));
    }

    fn take_aborts(&mut self) -> Vec<Abort> {
        let mut members = lock(&self.target.members);
        let own = members.channels.iter_mut();
        let own = own.filter(|channel| channel.id == self.id);
        let aborts = own
            .flat_map(|own| std::mem::take(&mut own.aborts))
            .collect();
        let all: Vec<_> = members.channels.iter().map(|channel| channel.id).collect();
        members.wakes.extend(all);
        aborts
    }

    fn fence(&mut self) -> u64 {
        0
    }

    fn is_past(&mut self, _: u64) -> bool {
        let members = lock(&self.target.members);
        let mut others = members.channels.iter();
        others.all(|channel| channel.id == self.id || channel.aborts.is_empty())
    }

    fn unsaved(&mut self) -> Option<u64> {
        None
    }

    fn saved(&mut self, _: u64) -> Saved {
        Saved::Yes
    }

    fn standing(&mut self) -> Standing {
        let members = lock(&self.target.members);
        let own = members
            .channels
            .iter()
            .find(|channel| channel.id == self.id);
        own.map_or(Standing::Ended, |channel| channel.standing)
    }

    fn completed(&mut self, command: Completed) {
        self.completed.push(command);
    }

    fn adopt(&mut self, _: Box<SanitizeWork>) {
        lock(&self.target.members).adopted += 1;
    }

    fn close(&mut self) {
        let mut members = lock(&self.target.members);
        members.channels.retain(|channel| channel.id != self.id);
        let is_last = members
            .channels
            .iter()
            .all(|other| other.nexus != self.nexus);
        drop(members);
        if is_last {
            self.target.device().close_nexus(self.nexus);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
