//! What tests and fuzz targets share: a target in plain memory, around which [`Connection`]s work.

pub mod fuzz;
mod iser;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use block::testing::VecVolume;
use block::{Access, RegionId, Segment, SendList, StreamSession as _, Volume};
use scsi::{Device, Lun, LunMap, NexusId, NexusPorts, TargetPort, UnitIdentity, View};

pub use iser::{IserBed, IserInitiator, Received};

use crate::backend::{
    Abort, AbortScope, Authentication, Backend, Completed, OpenError, Opened, Saved, SessionEnds,
};
use crate::window::SharedSession;
use crate::{Connection, LoggedIn, LoginStatus, SEND_LIST_MIN_BYTES, TargetAddress, TargetRecord};

/// A target with a volume behind each LUN from 0 on.
#[derive(Clone)]
pub struct TestTarget {
    device: Arc<Mutex<Device>>,
    /// Aborts that connections have not taken yet.
    aborts: Arc<Mutex<Vec<(NexusId, Lun)>>>,
    volumes: Arc<[Arc<VecVolume>]>,
    authentication: Authentication,
}

/// The backend of one connection to a [`TestTarget`].
pub struct TestBackend {
    target: TestTarget,
    view: Option<View>,
    /// How many commands have ended.
    pub completed: u64,
}

impl TestTarget {
    /// Its TargetName.
    pub const NAME: &'static str = "iqn.2026-11.com.example:test";

    /// A target that needs no authentication.
    pub fn new(volumes: Vec<Arc<VecVolume>>) -> Self {
        let port = TargetPort {
            relative_id: 1,
            name: format!("{},t,0x0001", Self::NAME),
            group: 1,
        };
        let mut device = Device::new(Self::NAME.into(), vec![port]);
        for (lun, volume) in (0..).zip(&volumes) {
            let identity = UnitIdentity {
                unique: u64::from(lun) + 1,
                serial: format!("test{lun}"),
            };
            device.insert_unit(lun, Arc::clone(volume) as Arc<dyn Volume>, identity);
        }
        Self {
            device: Arc::new(Mutex::new(device)),
            aborts: Arc::default(),
            volumes: volumes.into(),
            authentication: Authentication::default(),
        }
    }

    /// The same target, whose logins must prove something.
    #[must_use]
    pub fn with_authentication(self, authentication: Authentication) -> Self {
        Self {
            authentication,
            ..self
        }
    }

    /// The backend of a new connection.
    pub fn backend(&self) -> TestBackend {
        TestBackend {
            target: self.clone(),
            view: None,
            completed: 0,
        }
    }

    /// The device server, for changes under a test's hand.
    pub fn device(&self) -> MutexGuard<'_, Device> {
        lock(&self.device)
    }

    /// The volume behind `lun`.
    pub fn volume(&self, lun: Lun) -> &VecVolume {
        &self.volumes[usize::from(lun)]
    }
}

impl TestBackend {
    /// Everything that `connection` has to send.
    pub fn drain(&mut self, now: Instant, connection: &mut Connection<Self>) -> Vec<u8> {
        let mut list = SendList::with_capacity(SEND_LIST_MIN_BYTES);
        let mut bytes = Vec::new();
        while connection.wants_transmit() {
            connection.poll_transmit(now, self, &mut list);
            if list.is_empty() {
                break;
            }
            for segment in list.segments() {
                match segment {
                    Segment::Bytes(part) => bytes.extend_from_slice(part),
                    Segment::Place(place) => {
                        let volume = self.target.volume(place.region.0 as Lun);
                        bytes.extend(volume.bytes(place.range));
                    }
                }
            }
            list.consume(list.len_bytes());
        }
        bytes
    }
}

impl Backend for TestBackend {
    fn authentication(&mut self, _: &str, _: Option<&str>) -> Authentication {
        self.target.authentication.clone()
    }

    fn portal_group(&self) -> u16 {
        1
    }

    fn open(&mut self, ends: SessionEnds<'_>) -> Result<Opened, OpenError> {
        if ends.target != TestTarget::NAME {
            return Err(OpenError::NotFound);
        }
        let ports = NexusPorts {
            initiator: ends.initiator.into(),
            target_port: 1,
        };
        let nexus = self
            .target
            .device()
            .open_nexus(ports, LunMap::All, Access::ReadWrite);
        let nexus = nexus.ok_or(OpenError::OutOfResources)?;
        Ok(Opened { tsih: 1, nexus })
    }

    fn share(&mut self, _: Opened, _: &SharedSession, _: u16) {}

    fn join(
        &mut self,
        _: SessionEnds<'_>,
        _: u16,
        _: u16,
    ) -> Result<(Opened, SharedSession), OpenError> {
        Err(OpenError::NoSession)
    }

    fn end_others(&mut self, _: Opened, _: Option<u16>) -> usize {
        0
    }

    fn abort_on_others(&mut self, _: Opened, _: AbortScope) -> bool {
        false
    }

    fn logged_in(&mut self, _: &LoggedIn) {}

    fn login_refused(&mut self, _: &str, _: Option<&str>, _: LoginStatus) {}

    fn charge(&mut self, _: u64) -> bool {
        true
    }

    fn targets(&mut self, _: &str) -> Vec<TargetRecord> {
        vec![TargetRecord {
            name: TestTarget::NAME.into(),
            addresses: vec![TargetAddress {
                ip: std::net::Ipv4Addr::LOCALHOST.into(),
                port: 3260,
                group: 1,
            }],
        }]
    }

    fn with_device<R>(&mut self, call: impl FnOnce(&mut Device) -> R) -> R {
        call(&mut self.target.device())
    }

    fn view(&mut self, nexus: NexusId, lun: Lun) -> Option<(&View, RegionId)> {
        self.view = self.target.device().view(nexus, lun);
        let view = self.view.as_ref()?;
        Some((view, RegionId(u32::from(lun))))
    }

    fn unsaved(&mut self) -> Option<u64> {
        None
    }

    fn saved(&mut self, _: u64) -> Saved {
        Saved::Yes
    }

    fn random(&mut self) -> [u8; 17] {
        [7; 17]
    }

    fn completed(&mut self, _: Completed) {
        self.completed += 1;
    }

    fn take_aborts(&mut self, opened: Opened) -> Vec<Abort> {
        let nexus = opened.nexus;
        let mut aborts = lock(&self.target.aborts);
        let mut device = self.target.device();
        aborts.extend(std::iter::from_fn(|| device.poll_abort()));
        let mine = aborts.iter().filter(|(aborted, _)| *aborted == nexus);
        let mine = mine.map(|(_, lun)| Abort::ByAnother(*lun)).collect();
        aborts.retain(|(aborted, _)| *aborted != nexus);
        mine
    }

    fn is_ended(&mut self, _: Opened) -> bool {
        false
    }

    fn close(&mut self, opened: Opened) {
        self.target.device().close_nexus(opened.nexus);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
