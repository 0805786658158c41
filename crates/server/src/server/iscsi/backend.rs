//! The backend of an iSCSI connection: the targets that its initiator may use, and their LUNs.
//!
//! As for NVMe, the data path takes no lock: LUNs are looked up once and kept until the target's
//! generation changes. The exception is the command window of a session that may have several
//! connections.

use std::sync::Arc;
use std::time::Instant;

use block::{Access, HostIdentity, Pinned};
use iscsi::{
    Abort, AbortScope, Authentication, Backend, CommandWindow, Completed, LoggedIn, LoginStatus,
    OpenError, Opened, Parameters, Saved, SessionEnds, SessionKind, SessionState, TargetRecord,
};
use net::{Accepted, Attachment, CloseReason, GracePeriod, LoginProgress, Reactors};
use nvme::controller::PortalNumber;
use rustix::rand::{GetRandomFlags, getrandom};
use scsi::{Device, Lun, NexusId, SanitizeWork, View};
use session::SourceId;
use volume::Charge;

use super::super::Core;
use super::{CONNECTION_BYTES, sanitizing};
use crate::access::Grant;
use crate::counters::Totals;
use crate::iscsi::{IscsiTarget, Member, Negotiated, SharedSession};
use crate::registry;
use crate::unsent::Done;
use crate::views::Views;
use crate::{HostName, PortalAuth, PortalGroup, Transport};

/// The portal of a connection.
#[derive(Clone, Debug)]
pub(crate) struct IscsiPortalId {
    pub(crate) port: PortalNumber,
    pub(crate) transport: Transport,
    pub(crate) group: PortalGroup,
    pub(crate) auth: PortalAuth,
    pub(crate) totals: Arc<Totals>,
}

/// How to fix that a portal refuses hosts without a secret.
const NO_SECRET_HINT: &str = "the portal requires authentication, and the host has no CHAP secret; set one with `ramport host create NAME --chap-secret-file FILE`";

/// The backend of one connection.
pub(crate) struct IscsiBackend {
    core: Arc<Core>,
    accepted: Accepted,
    transport: Transport,
    group: PortalGroup,
    auth: PortalAuth,
    /// Why the host was refused, if the portal requires a secret of it that it does not have.
    refusal_hint: Option<&'static str>,
    binding: Option<Binding>,
    /// The login is done.
    login_progress: LoginProgress,
    views: Views<Lun, View>,
    /// The generation that `views` and `state` were looked up at.
    seen: u64,
    state: SessionState,
    charge: Charge,
    /// For output that waits while the peer does not read.
    stall_charge: Option<Charge>,
}

/// The session that the connection belongs to.
struct Binding {
    target: Arc<IscsiTarget>,
    opened: Opened,
    isid: [u8; 6],
    grant: Grant,
    /// What its connections share, if it may have several.
    shared: Option<SharedSession>,
}

impl IscsiBackend {
    pub(crate) fn new(
        core: Arc<Core>,
        accepted: Accepted,
        portal: IscsiPortalId,
        charge: Charge,
    ) -> Self {
        let IscsiPortalId {
            port,
            transport,
            group,
            auth,
            totals,
        } = portal;
        let sums = core.connection_opened(accepted.id, port, &totals);
        Self {
            core,
            accepted,
            transport,
            group,
            auth,
            refusal_hint: None,
            binding: None,
            login_progress: LoginProgress::Pending,
            views: Views::new(sums),
            seen: 0,
            state: SessionState::Active,
            charge,
            stall_charge: None,
        }
    }

    fn who<'a>(&self, initiator: &'a str) -> HostIdentity<'a> {
        HostIdentity {
            name: Some(initiator),
            address: self.accepted.peer.ip(),
        }
    }

    /// Checks access, and reserves memory for the connection.
    fn admit(&mut self, ends: SessionEnds<'_>) -> Result<(Arc<IscsiTarget>, Grant), OpenError> {
        let who = self.who(ends.initiator);
        let (target, grant) = self.core.open_iscsi(ends.target, self.group, who)?;
        if grant.access == Access::Denied {
            return Err(OpenError::Forbidden);
        }
        if self.charge.resize(CONNECTION_BYTES).is_err() {
            self.core.note_rejected_connection();
            return Err(OpenError::OutOfResources);
        }
        Ok((target, grant))
    }

    fn bind(
        &mut self,
        target: Arc<IscsiTarget>,
        opened: Opened,
        ends: SessionEnds<'_>,
        grant: Grant,
        shared: Option<SharedSession>,
    ) {
        self.views.count_in(Arc::clone(target.totals()));
        self.binding = Some(Binding {
            target,
            opened,
            isid: ends.isid,
            grant,
            shared,
        });
    }

    /// Looks everything up again if it may have changed.
    fn refresh(&mut self) {
        let Some(Binding { target, opened, .. }) = &self.binding else {
            return;
        };
        let generation = target.generation();
        if generation != self.seen {
            self.seen = generation;
            self.state = target.connection_state(*opened, self.accepted.id);
            self.views.refresh(|lun| target.view(opened.nexus, lun));
        }
    }

    /// Registers the connection with its session.
    fn register(&mut self, login: &LoggedIn) {
        let Ok(host) = login.initiator.parse::<HostName>() else {
            return;
        };
        let (member, isid) = if let Some(binding) = &self.binding {
            let target = Arc::clone(&binding.target);
            (Member::Normal(target, binding.opened), binding.isid)
        } else {
            let handle = self.core.handle.clone();
            (Member::Discovery(self.accepted.id, handle), [0; 6])
        };
        let keys = login.parameters.in_force();
        let negotiated = Arc::new(Negotiated {
            transport: self.transport,
            isid,
            cid: login.cid,
            keys,
        });
        let member = registry::Member::Iscsi(member, negotiated);
        let (session, totals) = self.core.registry.bind(&self.accepted, member, &host);
        self.views.count_in(totals);
        tracing::debug!(
            connection = %self.accepted.id,
            %session,
            %host,
            peer = %self.accepted.peer,
            target = login.target,
            "an initiator has logged in"
        );
    }
}

impl Backend for IscsiBackend {
    fn authentication(&mut self, initiator: &str, target: Option<&str>) -> Option<Authentication> {
        let found = self.core.authentication(self.who(initiator), target);
        if self.auth == PortalAuth::Required && found.initiator.is_none() {
            self.refusal_hint = Some(NO_SECRET_HINT);
            return None;
        }
        Some(found)
    }

    fn connection(&self) -> u64 {
        self.accepted.id.0
    }

    fn portal_group(&self) -> u16 {
        self.group.tag()
    }

    fn open(&mut self, ends: SessionEnds<'_>) -> Result<Opened, OpenError> {
        let (target, grant) = self.admit(ends)?;
        let opened = target.open(ends, self.group, grant.clone(), self.accepted.id)?;
        self.bind(target, opened, ends, grant, None);
        Ok(opened)
    }

    fn share(&mut self, parameters: &Parameters, window: CommandWindow, cid: u16) {
        if let Some(Binding {
            target,
            opened,
            shared,
            ..
        }) = &mut self.binding
        {
            *shared = Some(target.share(*opened, parameters.clone(), window, cid));
        }
    }

    fn join(
        &mut self,
        ends: SessionEnds<'_>,
        tsih: u16,
        cid: u16,
    ) -> Result<(Opened, Parameters), OpenError> {
        let (target, grant) = self.admit(ends)?;
        let (opened, shared) = target.join(ends, self.group, (tsih, cid), self.accepted.id)?;
        let parameters = shared.parameters().clone();
        self.bind(target, opened, ends, grant, Some(shared));
        Ok((opened, parameters))
    }

    fn with_window<R>(&mut self, call: impl FnOnce(&mut CommandWindow) -> R) -> R {
        let binding = self.binding.as_ref();
        binding
            .and_then(|binding| binding.shared.as_ref())
            .expect("the core uses the window of a session that it has shared or joined")
            .with_window(call)
    }

    fn end_others(&mut self, cid: Option<u16>) -> usize {
        let own = self.accepted.id;
        self.binding.as_ref().map_or(0, |binding| {
            binding.target.end_others(binding.opened, own, cid)
        })
    }

    fn abort_on_others(&mut self, scope: AbortScope, before: u32) {
        if let Some(Binding { target, opened, .. }) = &self.binding {
            let abort = Abort::ByOwn { scope, before };
            target.abort_on_others(*opened, self.accepted.id, abort);
        }
    }

    fn fence(&mut self) -> u64 {
        let binding = self.binding.as_ref();
        binding.map_or(0, |binding| binding.target.grace().0)
    }

    fn is_past(&mut self, fence: u64) -> bool {
        let handle = &self.core.handle;
        handle.is_over(GracePeriod(fence), self.accepted.id)
    }

    fn wake_other(&mut self, cid: u16) {
        if let Some(binding) = &self.binding {
            binding.target.wake_other(binding.opened, cid);
        }
    }

    fn logged_in(&mut self, login: &LoggedIn) {
        self.login_progress = LoginProgress::Admitted;
        self.register(login);
        if let (SessionKind::Normal(opened), Some(binding)) = (&login.kind, &self.binding) {
            // Between the check and the session's entry in the registry, policy or target may have
            // changed.
            let who = self.who(&login.initiator);
            let grant = self.core.iscsi_grant(&binding.target, who);
            if grant != binding.grant {
                binding.target.set_grant(*opened, grant);
            }
        }
    }

    fn login_refused(&mut self, initiator: &str, target: Option<&str>, status: LoginStatus) {
        tracing::warn!(
            host = initiator,
            target,
            peer = %self.accepted.peer,
            %status,
            hint = self.refusal_hint,
            "a login was refused"
        );
    }

    fn charge(&mut self, len_bytes: u64) -> bool {
        self.charge.resize(CONNECTION_BYTES + len_bytes).is_ok()
    }

    fn targets(&mut self, initiator: &str) -> Vec<TargetRecord> {
        let local = self.accepted.local.ip();
        let who = self.who(initiator);
        self.core.iscsi_targets(who, (self.transport, local))
    }

    fn with_device<R>(&mut self, call: impl FnOnce(&mut Device, NexusId) -> R) -> R {
        let binding = self.binding.as_ref();
        let binding = binding.expect("the core uses the device of a session that it has opened");
        let nexus = binding.opened.nexus;
        binding.target.with_device(|device| call(device, nexus))
    }

    fn view(&mut self, lun: Lun) -> Option<(&View, SourceId)> {
        self.refresh();
        let Binding { target, opened, .. } = self.binding.as_ref()?;
        let found = self.views.find(lun, || target.view(opened.nexus, lun))?;
        Some((&found.part, found.source))
    }

    fn unsaved(&mut self) -> Option<u64> {
        self.binding.as_ref()?.target.unsaved()
    }

    fn saved(&mut self, number: u64) -> Saved {
        let binding = self.binding.as_ref();
        binding.map_or(Saved::Yes, |binding| binding.target.saved(number))
    }

    fn random(&mut self) -> [u8; 17] {
        let mut bytes = [0; 17];
        let drawn = getrandom(&mut bytes, GetRandomFlags::empty());
        assert_eq!(
            drawn,
            Ok(bytes.len()),
            "so few bytes are never drawn in parts, and a started system has them"
        );
        bytes
    }

    fn completed(&mut self, command: Completed) {
        self.views.note(&Done {
            key: command.lun,
            kind: command.kind,
            bytes: command.len_bytes,
            is_success: command.ok,
            started: command.started,
            now: command.started,
        });
    }

    fn take_aborts(&mut self) -> Vec<Abort> {
        let own = self.accepted.id;
        self.binding.as_ref().map_or_else(Vec::new, |binding| {
            binding.target.take_aborts(binding.opened, own)
        })
    }

    fn session_state(&mut self) -> SessionState {
        self.refresh();
        self.state
    }

    fn drop_session(&mut self) {
        if let Some(binding) = &self.binding {
            binding.target.drop_session(binding.opened);
        }
    }

    fn adopt(&mut self, sanitize: Box<SanitizeWork>) {
        sanitizing::go_on_with(sanitize, &self.core.handle);
    }

    fn close(&mut self) {
        if let Some(binding) = &self.binding {
            binding.target.leave(binding.opened, self.accepted.id);
        }
    }
}

impl Attachment for IscsiBackend {
    fn memory(&self, source: SourceId) -> Option<&dyn Pinned> {
        self.views.memory(source)
    }

    /// Nothing more may be sent to a session that was ended. A reservation that was made meanwhile
    /// does not concern commands that have started.
    fn may_send(&self, _: SourceId) -> bool {
        let Some(binding) = &self.binding else {
            return false;
        };
        if binding.target.generation() == self.seen {
            self.state.is_served()
        } else {
            let (opened, own) = (binding.opened, self.accepted.id);
            binding.target.connection_state(opened, own).is_served()
        }
    }

    fn charged_bytes(&self) -> u64 {
        self.charge.len_bytes()
    }

    fn login_progress(&self) -> LoginProgress {
        self.login_progress
    }

    fn handle_stalled(&mut self) {
        let budget = &self.core.budget;
        let charge = || budget.overdraw(Reactors::UNDRAINED_MAX_BYTES as u64);
        self.stall_charge.get_or_insert_with(charge);
    }

    fn handle_sent(&mut self, now: Instant) {
        self.views.handle_sent(now);
        self.core.tell_of_short_space();
    }

    fn handle_drained(&mut self) {
        self.views.handle_drained();
    }

    fn handle_closed(&mut self, reason: &CloseReason) {
        self.core.connection_ended(&self.accepted, reason);
    }
}

impl Drop for IscsiBackend {
    fn drop(&mut self) {
        self.views.leave_all();
        // The connection may have ended before the session closed it.
        if let Some(binding) = &self.binding {
            binding.target.leave(binding.opened, self.accepted.id);
        }
        self.core.registry.connection_closed(self.accepted.id);
    }
}
