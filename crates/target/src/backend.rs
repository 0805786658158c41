//! What a connection's session asks of the server: the target that its host names, and the namespaces there.
//!
//! On the data path nothing here takes a lock: namespaces are looked up once and kept until the subsystem's generation
//! moves, and counters have one writer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use block::{Access, HostIdentity, RegionId, Volume};
use net::{Accepted, Attachment, CloseReason, Reactors};
use nvme::target::{
    Backend, CommandClass, Completed, ControllerId, NamespaceRef, OpenError, Origin, Permit,
    PortId, Subsystem, WakeToken,
};
use nvme::wire::{Nsid, Status};
use volume::Charge;

use crate::HostName;
use crate::offered::Offered;
use crate::server::Core;
use crate::tally::{Batch, Tally, Totals};

/// A connection's way to the server.
pub(crate) struct ConnectionBackend {
    core: Arc<Core>,
    accepted: Accepted,
    portal: PortId,
    binding: Option<Binding>,
    /// Namespaces that the connection has used, by number.
    views: Vec<View>,
    /// The view used last: most connections use one.
    last: usize,
    /// The generation that `views` were looked up at.
    seen: u64,
    regions: Regions,
    /// Commands completed in this turn, until it is known how long they took.
    batches: Vec<PendingBatch>,
    _charge: Charge,
    /// For the output that is kept when the peer does not read: taken when that first happens, since a peer that
    /// stalls once will again.
    stall_charge: Option<Charge>,
}

/// The target that the host has named, and who it is.
struct Binding {
    offered: Arc<Offered>,
    host: HostName,
    access: Access,
    controller: Option<ControllerId>,
    session_totals: Option<Arc<Totals>>,
}

/// A namespace as it was when the generation last moved.
struct View {
    nsid: Nsid,
    region: RegionId,
    volume: Arc<dyn Volume>,
    permit: Permit,
    tally: Arc<Tally>,
    volume_totals: Option<Arc<Totals>>,
}

/// The volumes that placements can name. A number is never used for another volume, and one that has gone is kept
/// until nothing waits to be sent from it.
#[derive(Default)]
struct Regions {
    last: u32,
    retired: Vec<(RegionId, Arc<dyn Volume>)>,
}

struct PendingBatch {
    nsid: Nsid,
    /// When they were completed by the queue.
    now: Instant,
    batch: Batch,
}

/// Batches kept apart in one turn; beyond them, a batch is counted before its reply is sent.
const BATCHES_MAX: usize = 32;

impl ConnectionBackend {
    pub(crate) fn new(core: Arc<Core>, accepted: Accepted, portal: PortId, charge: Charge) -> Self {
        core.registry.connection_opened(accepted.id, portal);
        Self {
            core,
            accepted,
            portal,
            binding: None,
            views: Vec::new(),
            last: 0,
            seen: 0,
            regions: Regions::default(),
            batches: Vec::new(),
            _charge: charge,
            stall_charge: None,
        }
    }

    fn offered(&self) -> Option<&Arc<Offered>> {
        self.binding.as_ref().map(|binding| &binding.offered)
    }

    /// Looks every kept namespace up again.
    fn refresh(&mut self, generation: u64) {
        self.seen = generation;
        let Some(binding) = &self.binding else { return };
        let Some(controller) = binding.controller else {
            return;
        };
        let mut kept = Vec::with_capacity(self.views.len());
        for mut view in self.views.drain(..) {
            match binding.offered.view(controller, view.nsid) {
                Some(now) if Arc::ptr_eq(&now.volume, &view.volume) => {
                    view.permit = now.permit;
                    kept.push(view);
                }
                _ => {
                    leave(binding, &view);
                    self.regions.retired.push((view.region, view.volume));
                }
            }
        }
        self.views = kept;
    }

    /// The place of a namespace among the views, looked up where it is not yet among them.
    fn find(&mut self, nsid: Nsid) -> Option<usize> {
        if self.views.get(self.last).is_some_and(|v| v.nsid == nsid) {
            return Some(self.last);
        }
        let at = match self.views.binary_search_by_key(&nsid, |view| view.nsid) {
            Ok(at) => at,
            Err(at) => {
                let view = self.look_up(nsid)?;
                self.views.insert(at, view);
                at
            }
        };
        self.last = at;
        Some(at)
    }

    fn look_up(&mut self, nsid: Nsid) -> Option<View> {
        let binding = self.binding.as_ref()?;
        let found = binding.offered.view(binding.controller?, nsid)?;
        let tally = Arc::new(Tally::default());
        let volume_totals = found.totals;
        let of_session = binding.session_totals.iter();
        for totals in of_session.chain(&volume_totals) {
            totals.enter(&tally);
        }
        binding.offered.totals().enter(&tally);
        self.regions.last += 1;
        Some(View {
            nsid,
            region: RegionId(self.regions.last),
            volume: found.volume,
            permit: found.permit,
            tally,
            volume_totals,
        })
    }

    fn record(&mut self, pending: &PendingBatch, sent: Instant) {
        let waited = sent.saturating_duration_since(pending.now);
        let batch = Batch {
            latency_ns: pending.batch.latency_ns + nanos(waited),
            ..pending.batch
        };
        if let Ok(at) = self
            .views
            .binary_search_by_key(&pending.nsid, |view| view.nsid)
        {
            self.views[at].tally.record(&batch);
        }
    }
}

impl Backend for ConnectionBackend {
    fn origin(&self) -> Origin {
        Origin {
            address: self.accepted.peer.ip().to_canonical(),
            local: self.accepted.local.ip().to_canonical(),
            port: self.portal,
            wake: WakeToken(self.accepted.id.0),
        }
    }

    fn open(
        &mut self,
        subsystem_nqn: &str,
        host_nqn: &str,
        _host_id: [u8; 16],
    ) -> Result<Access, OpenError> {
        let who = HostIdentity {
            name: Some(host_nqn),
            address: self.accepted.peer.ip(),
        };
        let host = host_nqn.parse().map_err(|_| OpenError::HostNotAllowed)?;
        let (offered, access) = self.core.open(subsystem_nqn, who)?;
        if access == Access::Denied {
            tracing::warn!(
                target = subsystem_nqn,
                host = host_nqn,
                peer = %self.accepted.peer,
                "a host that is not allowed was turned away"
            );
            return Err(OpenError::HostNotAllowed);
        }
        self.binding = Some(Binding {
            offered,
            host,
            access,
            controller: None,
            session_totals: None,
        });
        Ok(access)
    }

    fn bind(&mut self, controller: ControllerId) {
        let Some(binding) = &mut self.binding else {
            return;
        };
        let (session, totals) =
            self.core
                .registry
                .bind(&self.accepted, &binding.offered, controller, &binding.host);
        tracing::debug!(
            connection = %self.accepted.id,
            %session,
            host = %binding.host,
            peer = %self.accepted.peer,
            controller = controller.0,
            "a host has connected a queue"
        );
        binding.controller = Some(controller);
        binding.session_totals = Some(totals);
        // Between the check and the session's entry in the registry, policy or target may have changed.
        let who = HostIdentity {
            name: Some(binding.host.as_str()),
            address: self.accepted.peer.ip(),
        };
        let access = self.core.access(&binding.offered, who);
        if access != binding.access {
            binding
                .offered
                .with(|subsystem| subsystem.set_access(controller, access));
        }
    }

    fn with_subsystem<R>(&mut self, f: impl FnOnce(&mut Subsystem) -> R) -> R {
        self.offered()
            .expect("the core opens a subsystem before it uses one")
            .with(f)
    }

    fn namespace(&mut self, nsid: Nsid) -> Option<NamespaceRef<'_>> {
        let generation = self.offered()?.generation();
        if generation != self.seen {
            self.refresh(generation);
        }
        let at = self.find(nsid)?;
        let view = &self.views[at];
        Some(NamespaceRef {
            volume: &*view.volume,
            region: view.region,
            permit: view.permit,
        })
    }

    fn completed(&mut self, command: &Completed) {
        let is_success = command.status == Status::SUCCESS;
        let latency_ns = nanos(command.now.saturating_duration_since(command.started));
        let bytes = if is_success {
            u64::from(command.len_bytes)
        } else {
            0
        };
        if let Some(last) = self.batches.last_mut()
            && last.nsid == command.nsid
            && last.batch.kind == command.kind
            && last.batch.latency_ns == latency_ns
            && last.now == command.now
        {
            last.batch.operations += 1;
            last.batch.bytes += bytes;
            last.batch.errors += u64::from(!is_success);
            return;
        }
        let pending = PendingBatch {
            nsid: command.nsid,
            now: command.now,
            batch: Batch {
                kind: command.kind,
                operations: 1,
                bytes,
                errors: u64::from(!is_success),
                latency_ns,
            },
        };
        if self.batches.len() < BATCHES_MAX {
            self.batches.push(pending);
        } else {
            self.record(&pending, command.now);
        }
    }
}

impl Attachment for ConnectionBackend {
    fn volume(&self, region: RegionId) -> Option<&dyn Volume> {
        if let Some(view) = self.views.get(self.last)
            && view.region == region
        {
            return Some(&*view.volume);
        }
        let current = self.views.iter().find(|view| view.region == region);
        let retired = || self.regions.retired.iter().find(|(id, _)| *id == region);
        match current {
            Some(view) => Some(&*view.volume),
            None => retired().map(|(_, volume)| &**volume),
        }
    }

    fn may_send(&self, region: RegionId) -> bool {
        let is_it = |view: &&View| view.region == region;
        let last = self.views.get(self.last).filter(is_it);
        let Some(view) = last.or_else(|| self.views.iter().find(is_it)) else {
            // Of a namespace that is gone, what was placed before still goes out.
            return true;
        };
        let Some(binding) = &self.binding else {
            return false;
        };
        let permit = if binding.offered.generation() == self.seen {
            Some(view.permit)
        } else {
            // Something has changed since the session last looked.
            let controller = binding.controller;
            let now = controller.and_then(|id| binding.offered.view(id, view.nsid));
            now.map(|now| now.permit)
        };
        permit.is_none_or(|permit| permit.check(CommandClass::Read).is_ok())
    }

    fn is_admitted(&self) -> bool {
        let binding = self.binding.as_ref();
        binding.is_some_and(|binding| binding.controller.is_some())
    }

    fn handle_sent(&mut self, now: Instant) {
        let mut batches = std::mem::take(&mut self.batches);
        for pending in batches.drain(..) {
            self.record(&pending, now);
        }
        self.batches = batches;
    }

    fn handle_stalled(&mut self) {
        let budget = &self.core.budget;
        let charge = || budget.overdraw(Reactors::UNDRAINED_MAX_BYTES as u64);
        self.stall_charge.get_or_insert_with(charge);
    }

    fn handle_drained(&mut self) {
        self.regions.retired.clear();
    }

    fn handle_closed(&mut self, reason: &CloseReason) {
        let connection = self.accepted.id;
        let peer = self.accepted.peer;
        match reason {
            CloseReason::PeerClosed | CloseReason::Stopping | CloseReason::SessionEnded => {
                tracing::debug!(%connection, %peer, %reason, "a connection has ended");
            }
            CloseReason::Panicked => {
                tracing::error!(%connection, %peer, %reason, "a connection was ended");
            }
            _ => tracing::warn!(%connection, %peer, %reason, "a connection was ended"),
        }
    }
}

impl Drop for ConnectionBackend {
    fn drop(&mut self) {
        if let Some(binding) = &self.binding {
            for view in &self.views {
                leave(binding, view);
            }
        }
        self.core.registry.connection_closed(self.accepted.id);
    }
}

/// Folds what was counted for a namespace into the sums that outlive the connection.
fn leave(binding: &Binding, view: &View) {
    let sums = binding.session_totals.iter().chain(&view.volume_totals);
    for totals in sums {
        totals.leave(&view.tally);
    }
    binding.offered.totals().leave(&view.tally);
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
