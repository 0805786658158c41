//! A backend over one subsystem.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex, PoisonError};

use block::{Access, Volume};
use session::SourceId;

use crate::auth::{AuthOutcome, Concatenation, Credentials, Exponentiation, GeneratedKey, Power};
use crate::controller::{
    Backend, Completed, ControllerId, Generation, Limits, Namespace, NamespaceIds, NamespaceRef,
    OpenError, Origin, Permit, PortalNumber, Statistics, Subsystem, SubsystemConfig, Usage,
    WakeToken,
};
use crate::wire::Nsid;
use crate::wire::discovery::TransportType;

/// A subsystem with these volumes as namespaces 1, 2, ….
pub fn subsystem<V: Volume + 'static>(limits: Limits, volumes: &[Arc<V>]) -> Arc<Mutex<Subsystem>> {
    let config = SubsystemConfig {
        nqn: "nqn.2014-08.org.example:test".to_owned(),
        serial: "1".to_owned(),
        model: "test".to_owned(),
        firmware: "1".to_owned(),
        limits,
    };
    let mut subsystem = Subsystem::new(config, Box::new(NoStatistics));
    for (nsid, volume) in (1..).zip(volumes) {
        let namespace = Namespace {
            volume: Arc::clone(volume) as Arc<dyn Volume>,
            ids: NamespaceIds::from_seed([nsid as u8; 16]),
        };
        subsystem
            .add_namespace(Nsid(nsid), namespace)
            .expect("a few namespaces fit");
    }
    Arc::new(Mutex::new(subsystem))
}

struct NoStatistics;

impl Statistics for NoStatistics {
    fn usage(&self) -> Usage {
        Usage::default()
    }

    fn allocated_bytes(&self, _nsid: Nsid) -> u64 {
        0
    }
}

/// When a backend computes powers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Computes {
    /// When they are polled.
    AtOnce,
    /// Not before that is changed.
    Later,
    /// It has too many to compute.
    Never,
}

/// A connection's backend. It admits every host.
pub struct TestBackend {
    subsystem: Arc<Mutex<Subsystem>>,
    generation: Generation,
    seen: Option<u64>,
    controller: Option<ControllerId>,
    namespaces: Vec<Known>,
    sources: u32,
    wake: WakeToken,
    /// The transport of the connection.
    pub transport: TransportType,
    /// The completed commands, in order.
    pub completed: Vec<Completed>,
    /// Bytes that are charged for the data of waiting commands.
    pub charged_bytes: u64,
    /// The most bytes that may be charged.
    pub charged_max_bytes: u64,
    /// The error of the next [`Backend::open`].
    pub open_error: Option<OpenError>,
    /// What hosts have to prove.
    pub credentials: Option<Arc<Credentials>>,
    /// Whether keys for TLS are generated.
    pub concatenation: Concatenation,
    /// The keys that were generated.
    pub generated: Vec<GeneratedKey>,
    /// Whether powers are computed.
    pub computes: Computes,
    /// The power that is to be polled, or to be computed.
    pub power: Option<Exponentiation>,
    /// How authentications ended.
    pub authentications: Vec<AuthOutcome>,
}

struct Known {
    nsid: Nsid,
    volume: Arc<dyn Volume>,
    source: SourceId,
    permit: Permit,
    is_pinned: bool,
}

impl TestBackend {
    /// The backend of connection `wake`.
    pub fn new(subsystem: Arc<Mutex<Subsystem>>, wake: u64) -> Self {
        let generation = lock(&subsystem, |subsystem| subsystem.generation());
        Self {
            subsystem,
            generation,
            seen: None,
            controller: None,
            namespaces: Vec::new(),
            sources: 0,
            wake: WakeToken(wake),
            transport: TransportType::Tcp,
            completed: Vec::new(),
            charged_bytes: 0,
            charged_max_bytes: u64::MAX,
            open_error: None,
            credentials: None,
            concatenation: Concatenation::Refused,
            generated: Vec::new(),
            computes: Computes::AtOnce,
            power: None,
            authentications: Vec::new(),
        }
    }

    /// The subsystem.
    pub fn subsystem(&self) -> Arc<Mutex<Subsystem>> {
        Arc::clone(&self.subsystem)
    }

    /// The volume in a source.
    pub fn volume(&self, source: SourceId) -> Option<&Arc<dyn Volume>> {
        let known = self
            .namespaces
            .iter()
            .find(|known| known.source == source)?;
        Some(&known.volume)
    }

    fn refresh(&mut self) {
        let Some(controller) = self.controller else {
            return;
        };
        let old = std::mem::take(&mut self.namespaces);
        let found: Vec<_> = lock(&self.subsystem, |subsystem| {
            subsystem
                .namespaces()
                .map(|(nsid, namespace)| {
                    let permit = subsystem.permit(controller, nsid);
                    (nsid, Arc::clone(&namespace.volume), permit)
                })
                .collect()
        });
        for (nsid, volume, permit) in found {
            let known = old.iter().find(|known| Arc::ptr_eq(&known.volume, &volume));
            let source = known.map_or(SourceId(self.sources), |known| known.source);
            if known.is_none() {
                self.sources += 1;
            }
            self.namespaces.push(Known {
                nsid,
                is_pinned: volume.pinned().is_some(),
                volume,
                source,
                permit,
            });
        }
    }
}

impl Backend for TestBackend {
    fn origin(&self) -> Origin {
        Origin {
            transport: self.transport,
            address: IpAddr::V4(Ipv4Addr::LOCALHOST),
            local: IpAddr::V4(Ipv4Addr::LOCALHOST),
            portal: PortalNumber(1),
            wake: self.wake,
        }
    }

    fn open(&mut self, _nqn: &str, _host_nqn: &str, _id: [u8; 16]) -> Result<Access, OpenError> {
        match self.open_error.take() {
            Some(error) => Err(error),
            None => Ok(Access::ReadWrite),
        }
    }

    fn bind(&mut self, controller: ControllerId) {
        self.controller = Some(controller);
    }

    fn with_subsystem<R>(&mut self, f: impl FnOnce(&mut Subsystem) -> R) -> R {
        lock(&self.subsystem, f)
    }

    fn namespace(&mut self, nsid: Nsid) -> Option<NamespaceRef<'_>> {
        let generation = self.generation.get();
        if self.seen != Some(generation) {
            self.refresh();
            self.seen = Some(generation);
        }
        let known = self.namespaces.iter().find(|known| known.nsid == nsid)?;
        Some(NamespaceRef {
            volume: &known.volume,
            source: known.source,
            permit: known.permit,
            is_pinned: known.is_pinned,
        })
    }

    fn charge_input(&mut self, len_bytes: u64) -> bool {
        let fits = len_bytes <= self.charged_max_bytes;
        if fits {
            self.charged_bytes = len_bytes;
        }
        fits
    }

    fn credentials(&mut self) -> Option<Arc<Credentials>> {
        self.credentials.clone()
    }

    fn concatenation(&self) -> Concatenation {
        self.concatenation
    }

    fn keep_generated_key(&mut self, key: &GeneratedKey) {
        self.generated.push(key.clone());
    }

    fn random(&mut self, bytes: &mut [u8]) {
        bytes.fill(self.wake.0 as u8);
    }

    fn compute(&mut self, power: Exponentiation) -> bool {
        let is_taken = self.computes != Computes::Never;
        self.power = Some(power).filter(|_| is_taken);
        is_taken
    }

    fn poll_power(&mut self) -> Option<Power> {
        if self.computes == Computes::Later {
            return None;
        }
        self.power.take().map(|power| power.compute())
    }

    fn note_authentication(&mut self, outcome: &AuthOutcome) {
        self.authentications.push(*outcome);
    }

    fn completed(&mut self, command: &Completed) {
        self.completed.push(*command);
    }
}

fn lock<R>(subsystem: &Mutex<Subsystem>, f: impl FnOnce(&mut Subsystem) -> R) -> R {
    f(&mut subsystem.lock().unwrap_or_else(PoisonError::into_inner))
}
