//! What a BRP connection uses of the server: the unit that its host has logged in to.
//!
//! On the data path nothing here takes a lock: the unit is looked up once and cached until the
//! target or the member changes, and counters have one writer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ::brp::target::{
    Backend, Completed, LogIn, LoginRequest, Permission, SessionRecord, Standing, UnitRef,
};
use ::brp::wire::{LoginStatus, SessionId, Status};
use ::nvme::controller::{Gate, Permit, WakeToken};
use ::nvme::wire::Nsid;
use block::{Access, HostIdentity, Pinned};
use net::{Accepted, Attachment, CloseReason, LoginProgress, Reactors};
use rustix::rand::{GetRandomFlags, getrandom};
use session::SourceId;
use volume::Charge;

use super::super::Core;
use super::{BrpPortalId, Rejection};
use crate::HostName;
use crate::access::Grant;
use crate::brp::{Asked, Facts, Member, Resumed};
use crate::nvme_target::NvmeTarget;
use crate::registry::Member as RegistryMember;
use crate::unsent::Done;
use crate::views::{Found, Views};

/// What a connection knows of the server.
pub(crate) struct BrpBackend {
    core: Arc<Core>,
    accepted: Accepted,
    portal: BrpPortalId,
    binding: Option<Binding>,
    /// The unit, once it was used.
    views: Views<Nsid, Permission>,
    /// The versions of target and member that `views` were looked up at.
    seen: (u64, u64),
    charge: Charge,
    /// For the output that is kept while the peer does not read: charged when that first happens,
    /// since a peer that stalls once does it again.
    stall_charge: Option<Charge>,
    /// For data of commands that wait for their volume.
    input_charge: Option<Charge>,
}

/// The session of the connection.
struct Binding {
    target: Arc<NvmeTarget>,
    member: Arc<Member>,
    /// Whether the session is with this connection still.
    is_attached: bool,
}

/// What a session is charged for each tag: its record, its slot, and a piece of a block.
const TAG_BYTES: u64 = 5 << 10;

impl Binding {
    fn token(&self) -> WakeToken {
        WakeToken(self.member.facts.connection.0)
    }

    fn versions(&self) -> (u64, u64) {
        (self.target.generation(), self.member.changes())
    }

    fn look_up(&self, unit: Nsid) -> Option<Found<Permission>> {
        let found = self.target.foreign_view(self.member.access(), unit)?;
        Some(found.map(permission))
    }
}

impl BrpBackend {
    pub(super) fn new(
        core: Arc<Core>,
        accepted: Accepted,
        portal: BrpPortalId,
        charge: Charge,
    ) -> Self {
        let sums = core.connection_opened(accepted.id, portal.port, &portal.totals);
        Self {
            core,
            accepted,
            portal,
            binding: None,
            views: Views::new(sums),
            seen: (0, 0),
            charge,
            stall_charge: None,
            input_charge: None,
        }
    }

    fn try_log_in(&mut self, login: &LoginRequest<'_>) -> Result<LogIn, Rejection> {
        let host: HostName = login
            .host
            .parse()
            .map_err(|_| Rejection::new(LoginStatus::Malformed, "the host's name is invalid"))?;
        let who = HostIdentity {
            name: Some(login.host),
            address: self.accepted.peer.ip(),
        };
        let (target, access) = self.core.open_brp(login.target, who)?;
        let unit = Nsid(login.unit);
        let machine = self.core.state().machine;
        let volume = target.volume_id(machine, unit).ok_or(Rejection::new(
            LoginStatus::NoUnit,
            "the target has no such volume",
        ))?;
        let facts = Facts {
            session: login.session,
            connection: self.accepted.id,
            transport: self.portal.transport,
            host,
            unit,
            tags: login.tags,
            hold: Duration::from_millis(login.hold_ms.into()),
            is_resumed: login.session != SessionId::NONE,
        };
        let (record, member) = if facts.is_resumed {
            match self.resume(&target, facts, access) {
                Ok(resumed) => resumed,
                Err(Resumed::Wait) => return Ok(LogIn::Wait),
                Err(_) => {
                    let why = "the session does not exist";
                    return Err(Rejection::new(LoginStatus::NoSession, why));
                }
            }
        } else {
            self.begin(&target, facts, access)?
        };
        self.bind(target, member, access);
        Ok(LogIn::Granted { record, volume })
    }

    fn begin(
        &self,
        target: &NvmeTarget,
        facts: Facts,
        access: Access,
    ) -> Result<(SessionRecord, Arc<Member>), Rejection> {
        let charge = self
            .core
            .charge_connection(TAG_BYTES * u64::from(facts.tags));
        let charge = charge.ok_or(Rejection::new(
            LoginStatus::Busy,
            "too little of the memory budget is free",
        ))?;
        let session = new_session();
        let record = SessionRecord::new(session, facts.tags);
        let facts = Facts { session, ..facts };
        let member = Member::new(facts, access, self.core.handle.clone());
        let begun = target.brp().begin(&member, charge);
        begun.map_err(|status| Rejection::new(status, "the target was removed"))?;
        Ok((record, member))
    }

    fn resume(
        &self,
        target: &NvmeTarget,
        facts: Facts,
        access: Access,
    ) -> Result<(SessionRecord, Arc<Member>), Resumed> {
        let host = facts.host.clone();
        let asked = Asked {
            session: facts.session,
            host: &host,
            unit: facts.unit,
            connection: self.accepted.id,
        };
        let mut member = None;
        let make = |tags| {
            let made = Member::new(Facts { tags, ..facts }, access, self.core.handle.clone());
            Arc::clone(member.insert(made))
        };
        match (target.brp().resume(Instant::now(), make, &asked), member) {
            (Resumed::Granted(record), Some(member)) => Ok((record, member)),
            (resumed, _) => Err(resumed),
        }
    }

    fn bind(&mut self, target: Arc<NvmeTarget>, member: Arc<Member>, access: Access) {
        let host = &member.facts.host;
        let entry = RegistryMember::Brp(Arc::clone(&target), Arc::clone(&member));
        let (session, totals) = self.core.registry.bind(&self.accepted, entry, host);
        tracing::debug!(
            connection = %self.accepted.id,
            %session,
            %host,
            peer = %self.accepted.peer,
            unit = member.facts.unit.0,
            is_resumed = member.facts.is_resumed,
            "a host has logged in"
        );
        self.views.count_in(totals);
        self.views.count_in(Arc::clone(target.totals()));
        // Policy or target may have changed between the check and the session's entry in the
        // registry.
        let who = HostIdentity {
            name: Some(host.as_str()),
            address: self.accepted.peer.ip(),
        };
        let now = self.core.access(&target, who);
        if now != access {
            member.set_grant(&Grant::all(now));
        }
        let binding = Binding {
            target,
            member,
            is_attached: true,
        };
        let token = binding.token();
        binding
            .target
            .with(|subsystem| subsystem.add_foreign(token));
        self.binding = Some(binding);
    }

    /// The session is with this connection no longer.
    fn leave(&mut self) -> Option<&Binding> {
        let binding = self.binding.as_mut()?;
        if !std::mem::take(&mut binding.is_attached) {
            return None;
        }
        let token = binding.token();
        binding
            .target
            .with(|subsystem| subsystem.remove_foreign(token));
        Some(binding)
    }
}

impl Backend for BrpBackend {
    fn connection(&self) -> u64 {
        self.accepted.id.0
    }

    fn log_in(&mut self, login: &LoginRequest<'_>) -> LogIn {
        self.try_log_in(login).unwrap_or_else(|rejection| {
            tracing::warn!(
                target = login.target,
                host = login.host,
                unit = login.unit,
                peer = %self.accepted.peer,
                reason = rejection.why,
                "rejected a login"
            );
            LogIn::Rejected(rejection.status)
        })
    }

    fn log_out(&mut self) {
        if let Some(binding) = self.leave() {
            binding.target.brp().forget(&binding.member);
        }
    }

    fn detach(&mut self, record: SessionRecord) {
        if let Some(binding) = self.leave() {
            let now = Instant::now();
            binding.target.brp().detach(now, &binding.member, record);
        }
    }

    fn standing(&mut self) -> Standing {
        let Some(binding) = &self.binding else {
            return Standing::Ended;
        };
        let token = binding.token();
        let target = &binding.target;
        target.with(|subsystem| subsystem.acknowledge_foreign(token));
        binding.member.standing()
    }

    fn unit(&mut self) -> Option<UnitRef<'_>> {
        let binding = self.binding.as_ref()?;
        let versions = binding.versions();
        if versions != self.seen {
            self.seen = versions;
            self.views.refresh(|unit| binding.look_up(unit));
        }
        let unit = binding.member.facts.unit;
        let view = self.views.find(unit, || binding.look_up(unit))?;
        Some(UnitRef {
            volume: &view.volume,
            source: view.source,
            permission: view.part,
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

    fn completed(&mut self, command: &Completed) {
        let Some(binding) = &self.binding else {
            return;
        };
        self.views.note(&Done {
            key: binding.member.facts.unit,
            kind: command.kind,
            bytes: u64::from(command.len_bytes),
            is_success: command.is_success,
            started: command.started,
            now: command.now,
        });
    }
}

impl Attachment for BrpBackend {
    fn memory(&self, source: SourceId) -> Option<&dyn Pinned> {
        self.views.memory(source)
    }

    fn may_send(&self, source: SourceId) -> bool {
        let Some(view) = self.views.of_source(source) else {
            // As for a unit that no longer exists.
            return true;
        };
        let Some(binding) = &self.binding else {
            return false;
        };
        if binding.versions() == self.seen {
            return view.part.read.is_ok();
        }
        // Something has changed since the last look-up.
        let now = binding.look_up(view.key);
        binding.member.standing() != Standing::Ended && now.is_none_or(|now| now.part.read.is_ok())
    }

    fn charged_bytes(&self) -> u64 {
        self.charge.len_bytes()
    }

    fn login_progress(&self) -> LoginProgress {
        if self.binding.is_some() {
            LoginProgress::Admitted
        } else {
            LoginProgress::Pending
        }
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

impl Drop for BrpBackend {
    fn drop(&mut self) {
        // The session has ended in order, unless its code has panicked.
        self.log_out();
        self.views.leave_all();
        self.core.registry.connection_closed(self.accepted.id);
    }
}

/// What a permit of the subsystem means in BRP's terms.
fn permission(permit: Permit) -> Permission {
    let of = |gate| match gate {
        Gate::Open => Ok(()),
        Gate::ReservationConflict => Err(Status::Conflict),
        Gate::AccessDenied => Err(Status::Denied),
        Gate::ControllerGone => Err(Status::Gone),
        Gate::PathInaccessible => Err(Status::NotReady),
    };
    Permission {
        read: of(permit.read),
        write: of(permit.write),
    }
}

/// An identifier that nobody can predict (BRP-29).
fn new_session() -> SessionId {
    let mut id = [0; 16];
    let drawn = getrandom(&mut id, GetRandomFlags::empty());
    assert_eq!(
        drawn,
        Ok(id.len()),
        "so few bytes are never drawn in parts, and a started system has them"
    );
    SessionId(id)
}
