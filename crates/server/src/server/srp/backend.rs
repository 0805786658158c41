//! The backend of an SRP channel: the target that its initiator has logged in to.
//!
//! As for iSCSI, the data path takes no lock: LUNs are looked up once and kept until the target's
//! generation changes.

use std::sync::Arc;
use std::time::Instant;

use ::iscsi::{self, AbortScope, Opened, SessionState};
use ::srp::wire::{Login, RejectReason};
use ::srp::{Abort, Backend, Completed, Saved, Standing};
use block::{HostIdentity, Pinned};
use net::{Accepted, Attachment, CloseReason, GracePeriod, LoginProgress};
use scsi::{Device, Lun, NexusId, SanitizeWork, View};
use session::SourceId;
use volume::Charge;

use super::super::Core;
use super::super::iscsi::{IscsiPortal, sanitizing};
use super::Rejection;
use crate::HostName;
use crate::access::Grant;
use crate::iscsi::{IscsiTarget, Member};
use crate::registry;
use crate::unsent::Done;
use crate::views::Views;

/// What a channel is charged: the sum of its bounds. 128 tasks of 400 bytes, 800 leases of 32
/// bytes, 255 descriptors of 16 bytes for each task. What commands hold comes on top, and what was
/// posted to receive messages.
const CHANNEL_BYTES: u64 = 640 << 10;

/// The backend of one channel.
pub(super) struct SrpBackend {
    core: Arc<Core>,
    accepted: Accepted,
    target: Arc<IscsiTarget>,
    opened: Opened,
    views: Views<Lun, View>,
    /// The generation that `views` and `state` were looked up at.
    seen: u64,
    state: SessionState,
    charge: Charge,
}

impl SrpBackend {
    /// Checks access, and opens a channel. Returns whether other channels of its nexus go on, if
    /// there were any.
    pub(super) fn open(
        IscsiPortal { core, id: portal }: &IscsiPortal,
        accepted: &Accepted,
        login: &Login,
    ) -> Result<(Self, Option<bool>), Rejection> {
        let initiator = login.initiator.to_string();
        let who = HostIdentity {
            name: Some(&initiator),
            address: accepted.peer.ip(),
        };
        let (target, grant) = core.open_srp(login.target, portal.group, who)?;
        let charge = core.charge_connection(CHANNEL_BYTES);
        let charge = charge.ok_or(Rejection::new(
            RejectReason::Resources,
            "too little of the memory budget is free",
        ))?;
        let (group, is_multi) = (portal.group, login.is_multi());
        let opened = target.open_channel(&initiator, is_multi, group, grant.clone(), accepted.id);
        let (opened, others) = opened?;
        let sums = core.connection_opened(accepted.id, portal.port, &portal.totals);
        let mut backend = Self {
            core: Arc::clone(core),
            accepted: *accepted,
            target,
            opened,
            views: Views::new(sums),
            seen: 0,
            state: SessionState::Active,
            charge,
        };
        backend.register(who, &grant);
        Ok((backend, others))
    }

    fn register(&mut self, who: HostIdentity<'_>, grant: &Grant) {
        self.views.count_in(Arc::clone(self.target.totals()));
        let host = who.name.and_then(|name| name.parse::<HostName>().ok());
        let host = host.expect("a port identifier is a name");
        let member = Member::Normal(Arc::clone(&self.target), self.opened);
        let registry = &self.core.registry;
        let (session, totals) = registry.bind(&self.accepted, registry::Member::Srp(member), &host);
        self.views.count_in(totals);
        tracing::debug!(
            connection = %self.accepted.id,
            %session,
            %host,
            peer = %self.accepted.peer,
            target = %self.target.name(),
            "an initiator has logged in"
        );
        // Between the check and the session's entry in the registry, policy or target may have
        // changed.
        let now = self.core.iscsi_grant(&self.target, who);
        if now != *grant {
            self.target.set_grant(self.opened, now);
        }
    }

    /// Looks everything up again if it may have changed.
    fn refresh(&mut self) {
        let generation = self.target.generation();
        if generation != self.seen {
            self.seen = generation;
            let (target, opened) = (&self.target, self.opened);
            self.state = target.connection_state(opened, self.accepted.id);
            self.views.refresh(|lun| target.view(opened.nexus, lun));
        }
    }
}

impl Backend for SrpBackend {
    fn connection(&self) -> u64 {
        self.accepted.id.0
    }

    fn with_device<R>(&mut self, call: impl FnOnce(&mut Device, NexusId) -> R) -> R {
        let nexus = self.opened.nexus;
        self.target.with_device(|device| call(device, nexus))
    }

    fn view(&mut self, lun: Lun) -> Option<(&View, SourceId)> {
        self.refresh();
        let (target, nexus) = (&self.target, self.opened.nexus);
        let found = self.views.find(lun, || target.view(nexus, lun))?;
        Some((&found.part, found.source))
    }

    fn charge(&mut self, len_bytes: u64) -> bool {
        self.charge.resize(CHANNEL_BYTES + len_bytes).is_ok()
    }

    fn abort_on_others(&mut self, lun: Lun) {
        // Commands of SRP have no numbers.
        let abort = iscsi::Abort::ByOwn {
            scope: AbortScope::Lun(lun),
            before: 0,
        };
        self.target
            .abort_on_others(self.opened, self.accepted.id, abort);
    }

    fn take_aborts(&mut self) -> Vec<Abort> {
        let aborts = self.target.take_aborts(self.opened, self.accepted.id);
        let aborts = aborts.into_iter();
        let own = aborts.filter_map(|abort| match abort {
            iscsi::Abort::ByAnother(lun) => Some(Abort::ByAnother(lun)),
            iscsi::Abort::ByOwn {
                scope: AbortScope::Lun(lun),
                ..
            } => Some(Abort::ByOwn(lun)),
            // Channels abort by LUN alone, and each LUN is listed once at most.
            iscsi::Abort::ByOwn { .. } => None,
        });
        own.collect()
    }

    fn fence(&mut self) -> u64 {
        self.target.grace().0
    }

    fn is_past(&mut self, fence: u64) -> bool {
        let handle = &self.core.handle;
        handle.is_over(GracePeriod(fence), self.accepted.id)
    }

    fn unsaved(&mut self) -> Option<u64> {
        self.target.unsaved()
    }

    fn saved(&mut self, number: u64) -> Saved {
        match self.target.saved(number) {
            iscsi::Saved::Pending => Saved::Pending,
            iscsi::Saved::Yes => Saved::Yes,
            iscsi::Saved::Failed => Saved::Failed,
        }
    }

    fn standing(&mut self) -> Standing {
        self.refresh();
        match self.state {
            SessionState::Active => Standing::Active,
            SessionState::LogoutRequested(within) => Standing::Draining(within),
            SessionState::SessionDropped | SessionState::ConnectionDropped => Standing::Dropped,
            SessionState::Ended => Standing::Ended,
        }
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

    fn adopt(&mut self, sanitize: Box<SanitizeWork>) {
        sanitizing::go_on_with(sanitize, &self.core.handle);
    }

    fn close(&mut self) {
        self.target.leave(self.opened, self.accepted.id);
    }
}

impl Attachment for SrpBackend {
    fn memory(&self, source: SourceId) -> Option<&dyn Pinned> {
        self.views.memory(source)
    }

    /// Nothing is sent from where it lies in a volume.
    fn may_send(&self, _: SourceId) -> bool {
        false
    }

    fn charged_bytes(&self) -> u64 {
        self.charge.len_bytes()
    }

    fn login_progress(&self) -> LoginProgress {
        LoginProgress::Admitted
    }

    /// Over a queue pair, output never waits outside of the session.
    fn handle_stalled(&mut self) {}

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

impl Drop for SrpBackend {
    fn drop(&mut self) {
        self.views.leave_all();
        // The channel may have ended before the session closed it.
        self.target.leave(self.opened, self.accepted.id);
        self.core.registry.connection_closed(self.accepted.id);
    }
}
