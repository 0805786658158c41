//! What an NVMe session uses of the server: the target that its host names, and the namespaces
//! there.
//!
//! On the data path nothing here takes a lock: a namespace is looked up once and cached until the
//! subsystem's generation changes, and counters have one writer.

use std::sync::Arc;
use std::time::Instant;

use block::{Access, HostIdentity, Pinned};
use net::{Accepted, Attachment, CloseReason, LoginProgress, Reactors};
use nvme::auth::{
    AuthOutcome, Concatenation, Credentials, DhGroup, Exponentiation, GeneratedKey, Power,
};
use nvme::controller::{
    Backend, CommandClass, Completed, ControllerId, Demand, NamespaceRef, OpenError, Origin,
    Permit, PortalNumber, Subsystem, WakeToken,
};
use nvme::wire::discovery::TransportType;
use nvme::wire::{Nsid, Status};
use rustix::rand::{GetRandomFlags, getrandom};
use session::SourceId;
use tls::{Key, KeySource as _, Proven, Source};
use uuid::Uuid;
use volume::Charge;

use super::super::Core;
use super::super::key_exchange::PowerSlot;
use super::generated::{KeyNumber, KeyOwner};
use crate::counters::Totals;
use crate::names::DISCOVERY_NQN;
use crate::nvme_target::NvmeTarget;
use crate::registry::Member;
use crate::unsent::Done;
use crate::views::Views;
use crate::{HostName, PortalAuth, TargetName, Transport};

/// The prefix of the Host Identifier in the name of a host that gave no name. It is not an NQN, so
/// it matches no host definition.
const UNNAMED_PREFIX: &str = "unnamed:";

/// The portal that a connection came through.
#[derive(Clone, Debug)]
pub(crate) struct NvmePortalId {
    pub(crate) port: PortalNumber,
    pub(crate) transport: Transport,
    pub(crate) auth: PortalAuth,
    pub(crate) totals: Arc<Totals>,
}

/// What a connection knows of the server.
pub(crate) struct ConnectionBackend {
    core: Arc<Core>,
    accepted: Accepted,
    portal: NvmePortalId,
    binding: Option<Binding>,
    /// Namespaces that the connection has used.
    views: Views<Nsid, Permit>,
    /// The generation that `views` were looked up at.
    seen: u64,
    charge: Charge,
    /// For the output that is kept while the peer does not read: charged when that first happens,
    /// since a peer that stalls once does it again.
    stall_charge: Option<Charge>,
    /// For data of commands that wait for their volume.
    input_charge: Option<Charge>,
    /// The power that an authentication waits for.
    power: PowerSlot,
    /// Which key TLS has proven, and for which target.
    secured: Option<Proven>,
    /// The key of the association that the connection belongs to, if it was generated.
    association: Option<KeyNumber>,
    /// Whether the portal has TLS, so that keys may be generated for it.
    concatenation: Concatenation,
    /// What the host has to prove in its present authentication, or had to in its last one. The
    /// settings may have changed since.
    proving: Option<Arc<Credentials>>,
    /// The host has authenticated in band.
    is_authenticated: bool,
    /// The key that the last authentication of this connection has generated.
    generated: Option<KeyNumber>,
}

/// The target that the host has named, and who it is.
struct Binding {
    target: Arc<NvmeTarget>,
    host: HostName,
    access: Access,
    controller: Option<ControllerId>,
}

impl ConnectionBackend {
    pub(crate) fn new(
        core: Arc<Core>,
        accepted: Accepted,
        portal: NvmePortalId,
        concatenation: Concatenation,
        charge: Charge,
    ) -> Self {
        let sums = core.connection_opened(accepted.id, portal.port, &portal.totals);
        Self {
            core,
            accepted,
            portal,
            binding: None,
            views: Views::new(sums),
            seen: 0,
            charge,
            stall_charge: None,
            input_charge: None,
            power: PowerSlot::default(),
            secured: None,
            association: None,
            concatenation,
            proving: None,
            is_authenticated: false,
            generated: None,
        }
    }

    /// A key of TLS proves one host for one target. A host that uses TLS must not connect under
    /// another name or to another target.
    /// The key must not have been removed since the handshake.
    fn check_secured(&self, subsystem_nqn: &str, host_nqn: &str) -> Result<(), OpenError> {
        let Some(Proven { identity, key }) = &self.secured else {
            return Ok(());
        };
        let peer = &self.accepted.peer;
        if identity.host_nqn != host_nqn || identity.subsystem_nqn != subsystem_nqn {
            tracing::warn!(
                target = subsystem_nqn,
                host = host_nqn,
                %peer,
                "rejected a host whose TLS identity is for {} and {}",
                identity.host_nqn,
                identity.subsystem_nqn
            );
            return Err(OpenError::HostNotAllowed);
        }
        if !self.core.keys(identity).contains(key) {
            tracing::warn!(
                target = subsystem_nqn,
                host = host_nqn,
                %peer,
                "rejected a host whose TLS key was removed or replaced since its handshake"
            );
            return Err(OpenError::HostNotAllowed);
        }
        Ok(())
    }

    fn uses_generated_key(&self) -> bool {
        let identity = self.secured.as_ref().map(|proven| &proven.identity);
        identity.is_some_and(|identity| identity.source == Source::Generated)
    }

    /// A portal that requires authentication rejects hosts that have no secret.
    fn check_secret(&self, subsystem_nqn: &str, who: HostIdentity<'_>) -> Result<(), OpenError> {
        if self.portal.auth != PortalAuth::Required || self.core.dhchap(who).is_some() {
            return Ok(());
        }
        tracing::warn!(
            target = subsystem_nqn,
            host = who.name,
            peer = %self.accepted.peer,
            "rejected a host without a secret, since the portal requires authentication; set one with `ramport host create NAME --dhchap-secret-file FILE`"
        );
        Err(OpenError::HostNotAllowed)
    }

    fn target(&self) -> Option<&Arc<NvmeTarget>> {
        self.binding.as_ref().map(|binding| &binding.target)
    }
}

impl Backend for ConnectionBackend {
    fn origin(&self) -> Origin {
        Origin {
            transport: transport_type(self.portal.transport),
            address: self.accepted.peer.ip().to_canonical(),
            local: self.accepted.local.ip().to_canonical(),
            portal: self.portal.port,
            wake: WakeToken(self.accepted.id.0),
        }
    }

    fn open(
        &mut self,
        subsystem_nqn: &str,
        host_nqn: &str,
        host_id: [u8; 16],
    ) -> Result<Access, OpenError> {
        self.check_secured(subsystem_nqn, host_nqn)?;
        let unnamed = format!("{UNNAMED_PREFIX}{}", Uuid::from_bytes(host_id));
        let is_unnamed = host_nqn.is_empty();
        let host_nqn = if is_unnamed { &unnamed } else { host_nqn };
        let who = HostIdentity {
            name: Some(host_nqn),
            address: self.accepted.peer.ip(),
        };
        let host: HostName = host_nqn.parse().map_err(|error| {
            tracing::warn!(
                target = subsystem_nqn,
                host = host_nqn,
                peer = %self.accepted.peer,
                %error,
                "rejected a host with an invalid name"
            );
            OpenError::HostNotAllowed
        })?;
        let opened = self.core.open(subsystem_nqn, who);
        let (target, access) = opened.inspect_err(|error| {
            tracing::warn!(
                target = subsystem_nqn,
                host = host_nqn,
                peer = %self.accepted.peer,
                %error,
                "a connect was rejected"
            );
        })?;
        if access == Access::Denied {
            tracing::warn!(
                target = subsystem_nqn,
                host = host_nqn,
                peer = %self.accepted.peer,
                "rejected a host that is not allowed"
            );
            return Err(OpenError::HostNotAllowed);
        }
        self.check_secret(subsystem_nqn, who)?;
        if is_unnamed {
            tracing::warn!(
                target = subsystem_nqn,
                host = host_nqn,
                peer = %self.accepted.peer,
                "a host sent an empty HOSTNQN; it is accepted under the name shown, which matches no host definition"
            );
        }
        self.binding = Some(Binding {
            target,
            host,
            access,
            controller: None,
        });
        Ok(access)
    }

    fn bind(&mut self, controller: ControllerId) {
        let Some(binding) = &mut self.binding else {
            return;
        };
        let member = Member::Controller(
            Arc::clone(&binding.target),
            controller,
            self.portal.transport,
        );
        let (session, totals) = self
            .core
            .registry
            .bind(&self.accepted, member, &binding.host);
        tracing::debug!(
            connection = %self.accepted.id,
            %session,
            host = %binding.host,
            peer = %self.accepted.peer,
            controller = controller.0,
            "a host has connected a queue"
        );
        binding.controller = Some(controller);
        self.views.count_in(totals);
        self.views.count_in(Arc::clone(binding.target.totals()));
        // Policy or target may have changed between the check and the session's entry in the
        // registry.
        let who = HostIdentity {
            name: Some(binding.host.as_str()),
            address: self.accepted.peer.ip(),
        };
        let access = self.core.access(&binding.target, who);
        if access != binding.access {
            binding
                .target
                .with(|subsystem| subsystem.set_access(controller, access));
        }
    }

    fn with_subsystem<R>(&mut self, f: impl FnOnce(&mut Subsystem) -> R) -> R {
        self.target()
            .expect("the core opens a subsystem before it uses one")
            .with(f)
    }

    fn namespace(&mut self, nsid: Nsid) -> Option<NamespaceRef<'_>> {
        let binding = self.binding.as_ref()?;
        let controller = binding.controller?;
        let look_up = |nsid| binding.target.view(controller, nsid);
        let generation = binding.target.generation();
        if generation != self.seen {
            self.seen = generation;
            self.views.refresh(look_up);
        }
        let view = self.views.find(nsid, || look_up(nsid))?;
        Some(NamespaceRef {
            volume: &view.volume,
            source: view.source,
            permit: view.part,
            is_pinned: view.is_pinned,
        })
    }

    fn charge_input(&mut self, len_bytes: u64) -> bool {
        let charged = if let Some(charge) = &mut self.input_charge {
            charge.resize(len_bytes)
        } else {
            let charge = self.core.budget.reserve(len_bytes);
            charge.map(|charge| self.input_charge = Some(charge))
        };
        charged.is_ok()
    }

    fn credentials(&mut self) -> Option<Arc<Credentials>> {
        self.proving = None;
        let binding = self.binding.as_ref()?;
        // The discovery service shows nothing but names and addresses: it authenticates hosts only
        // where all have to.
        if binding.target.name().is_none() && self.portal.auth == PortalAuth::ByHost {
            return None;
        }
        self.proving = self.core.dhchap(HostIdentity {
            name: Some(binding.host.as_str()),
            address: self.accepted.peer.ip(),
        });
        self.proving.clone()
    }

    fn demand(&self) -> Demand {
        // The host was authenticated when the key was generated.
        if self.uses_generated_key() {
            Demand::Permitted
        } else {
            Demand::Required
        }
    }

    fn concatenation(&self) -> Concatenation {
        let binding = self.binding.as_ref();
        let host = binding.map(|binding| &binding.host);
        let is_known = host.is_some_and(|host| self.core.dhchap_of(host).is_some());
        if !is_known {
            Concatenation::Refused
        } else if self.uses_generated_key() {
            Concatenation::Replacing
        } else if self.secured.is_none() {
            self.concatenation
        } else {
            // A key that a user defined is the user's to change.
            Concatenation::Refused
        }
    }

    fn keep_generated_key(&mut self, key: &GeneratedKey) {
        let Some(binding) = &self.binding else {
            return;
        };
        let Some(target) = binding.target.name() else {
            return;
        };
        let Ok(key) = Key::generated(key.as_bytes()) else {
            return;
        };
        let Some(proven) = self.proving.clone() else {
            return;
        };
        let (keys, now) = (&self.core.generated_keys, Instant::now());
        let key = Arc::new(key);
        let association = self.association;
        if association.is_some_and(|number| keys.replace(number, &proven, &key, now)) {
            tracing::debug!(
                target = target.as_str(),
                host = %binding.host,
                peer = %self.accepted.peer,
                "a host replaced its key for TLS"
            );
            return;
        }
        if let Some(replaced) = self.generated.take() {
            keys.forget(replaced);
        }
        let owner = KeyOwner {
            host: &binding.host,
            subsystem_nqn: target.as_str(),
            proven,
        };
        self.generated = Some(keys.keep(&owner, &key, now));
    }

    fn random(&mut self, bytes: &mut [u8]) {
        let drawn = getrandom(&mut *bytes, GetRandomFlags::empty());
        assert_eq!(
            drawn,
            Ok(bytes.len()),
            "so few bytes are never drawn in parts, and a started system has them"
        );
    }

    fn compute(&mut self, power: Exponentiation) -> bool {
        let slot = self.power.clone();
        self.core
            .key_exchange
            .compute(power, slot, self.accepted.id)
    }

    fn poll_power(&mut self) -> Option<Power> {
        self.power.take()
    }

    fn note_authentication(&mut self, outcome: &AuthOutcome) {
        self.is_authenticated |= matches!(outcome, AuthOutcome::Authenticated { .. });
        let Some(binding) = &self.binding else {
            return;
        };
        let target = binding
            .target
            .name()
            .map_or(DISCOVERY_NQN, TargetName::as_str);
        let (host, peer) = (&binding.host, self.accepted.peer);
        match outcome {
            AuthOutcome::Authenticated {
                hash,
                group,
                is_mutual,
            } => tracing::debug!(
                target,
                %host,
                %peer,
                %hash,
                group = group.map_or(DhGroup::NONE_NAME, DhGroup::name),
                is_mutual,
                "a host is authenticated"
            ),
            AuthOutcome::Rejected(reason) => {
                tracing::warn!(target, %host, %peer, %reason, "rejected a host that was not authenticated");
            }
            AuthOutcome::RejectedByHost(reason) => {
                tracing::warn!(target, %host, %peer, %reason, "a host rejected the authentication of this target");
            }
            AuthOutcome::TimedOut => {
                tracing::warn!(target, %host, %peer, "disconnected a host that did not authenticate in time");
            }
        }
    }

    fn completed(&mut self, command: &Completed) {
        self.views.note(&Done {
            key: command.nsid,
            kind: command.kind,
            bytes: u64::from(command.len_bytes),
            is_success: command.status == Status::SUCCESS,
            started: command.started,
            now: command.now,
        });
    }
}

impl Attachment for ConnectionBackend {
    fn memory(&self, source: SourceId) -> Option<&dyn Pinned> {
        self.views.memory(source)
    }

    fn may_send(&self, source: SourceId) -> bool {
        let Some(view) = self.views.of_source(source) else {
            // As for a namespace that no longer exists.
            return true;
        };
        let Some(binding) = &self.binding else {
            return false;
        };
        if binding.target.generation() == self.seen {
            return view.part.check(CommandClass::Read).is_ok();
        }
        // The subsystem has changed since the last look-up.
        let controller = binding.controller;
        controller.is_none_or(|controller| may_read(&binding.target, controller, view.key))
    }

    fn charged_bytes(&self) -> u64 {
        self.charge.len_bytes()
    }

    fn login_progress(&self) -> LoginProgress {
        let binding = self.binding.as_ref();
        let is_bound = binding.is_some_and(|binding| binding.controller.is_some());
        let must_prove = self.proving.is_some() && self.demand() == Demand::Required;
        if !is_bound {
            LoginProgress::Pending
        } else if must_prove && !self.is_authenticated {
            LoginProgress::Authenticating
        } else {
            LoginProgress::Admitted
        }
    }

    fn handle_secured(&mut self, proven: &Proven) {
        let identity = &proven.identity;
        tracing::debug!(
            connection = %self.accepted.id,
            peer = %self.accepted.peer,
            host = identity.host_nqn,
            target = identity.subsystem_nqn,
            suite = %identity.suite,
            "a connection is encrypted"
        );
        self.association = self.core.generated_keys.connected(identity);
        self.secured = Some(proven.clone());
    }

    fn handle_sent(&mut self, now: Instant) {
        self.views.handle_sent(now);
    }

    fn handle_stalled(&mut self) {
        let budget = &self.core.budget;
        let charge = || budget.overdraw(Reactors::UNDRAINED_MAX_BYTES as u64);
        self.stall_charge.get_or_insert_with(charge);
    }

    fn handle_drained(&mut self) {
        self.views.handle_drained();
    }

    fn handle_closed(&mut self, reason: &CloseReason) {
        self.core.connection_ended(&self.accepted, reason);
    }
}

impl Drop for ConnectionBackend {
    fn drop(&mut self) {
        self.views.leave_all();
        if let Some(number) = self.association {
            self.core.generated_keys.disconnected(number);
        }
        self.core.registry.connection_closed(self.accepted.id);
    }
}

/// Whether a controller's host may read a namespace now. What was placed of a namespace that no
/// longer exists is still sent, once.
fn may_read(target: &NvmeTarget, controller: ControllerId, nsid: Nsid) -> bool {
    let now = target.view(controller, nsid);
    now.is_none_or(|now| now.part.check(CommandClass::Read).is_ok())
}

/// The transport type in NVMe's terms.
pub(crate) const fn transport_type(transport: Transport) -> TransportType {
    match transport {
        Transport::NvmeRdma => TransportType::Rdma,
        _ => TransportType::Tcp,
    }
}
