//! What an NFS session uses of the server: the shares that its client may use.
//!
//! On the data path nothing here takes a lock: shares are looked up once and cached until one of
//! them changes, and counters have one writer.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use ::nfs::{
    Answer, Backend, Clients, Completed, Export, ExportId, Procedure, Refusal, ReplyCache,
    WaitingCall,
};
use block::{OpKind, Pinned};
use net::{Accepted, Attachment, CloseReason, LoginProgress, Reactors};
use nvme::controller::PortalNumber;
use session::SourceId;
use volume::Charge;

use super::super::Core;
use super::waiting::Waiting;
use crate::counters::{Batch, Counters, Totals};
use crate::nfs::{FileCounters, Member, Share, transfer_bytes_max};
use crate::registry::Member as RegistryMember;
use crate::unsent::{Done, Unsent};
use crate::{HostName, Transport};

/// The portal that a connection came through.
pub(crate) struct NfsPortalId {
    pub(crate) port: PortalNumber,
    pub(crate) transport: Transport,
    pub(crate) totals: Arc<Totals>,
}

/// What a connection knows of the server.
pub(crate) struct NfsBackend {
    core: Arc<Core>,
    accepted: Accepted,
    transport: Transport,
    /// What the registry shows once the client has used the server.
    member: Arc<Member>,
    login_progress: LoginProgress,
    /// The shares of the server, by their IDs, as of the generation `seen`.
    shares: Arc<[Arc<Share>]>,
    seen: u64,
    /// The shares that the connection has used.
    uses: Vec<Use>,
    /// The index in `uses` of the share that the present call is about.
    current: Option<usize>,
    unsent: Unsent<Option<ExportId>, Procedure>,
    /// Reads, writes and commits of files, as operations of every protocol are counted.
    io: Arc<Counters>,
    /// The totals that `io` belongs to.
    sums: Vec<Arc<Totals>>,
    /// Calls about no share.
    others: Arc<FileCounters>,
    /// Calls that other threads execute.
    waiting: Waiting,
    charge: Charge,
    /// For the output that is kept while the peer does not read: charged when that first happens,
    /// since a peer that stalls once does it again.
    stall_charge: Option<Charge>,
}

/// A share that the connection has used.
struct Use {
    share: Arc<Share>,
    refusal: Option<Refusal>,
    /// Its own, or those of calls about no share if too little of the budget was free.
    counters: Arc<FileCounters>,
    charge: Option<Charge>,
}

/// What the counters of a share are charged: 117 numbers for each of 38 procedures, rounded up.
pub(super) const COUNTERS_BYTES: u64 = 35 << 10;

impl NfsBackend {
    pub(crate) fn new(
        core: Arc<Core>,
        accepted: Accepted,
        portal: &NfsPortalId,
        charge: Charge,
    ) -> Self {
        let sums = core.connection_opened(accepted.id, portal.port, &portal.totals);
        let io = Arc::default();
        for totals in &sums {
            totals.enter(&io);
        }
        let member = Member::new(accepted.id, portal.transport, core.handle.clone());
        let others = Arc::default();
        member.operations.enter(&others);
        let seen = core.exports.generation();
        Self {
            shares: core.exports.shares(),
            core,
            accepted,
            transport: portal.transport,
            member: Arc::new(member),
            login_progress: LoginProgress::Pending,
            seen,
            uses: Vec::new(),
            current: None,
            unsent: Unsent::default(),
            io,
            sums,
            others,
            waiting: Waiting::default(),
            charge,
            stall_charge: None,
        }
    }

    /// Looks the shares up again if one of them has changed.
    fn refresh(&mut self) {
        let generation = self.core.exports.generation();
        if generation == self.seen {
            return;
        }
        self.seen = generation;
        self.shares = self.core.exports.shares();
        self.current = None;
        for mut used in std::mem::take(&mut self.uses) {
            let now = find(&self.shares, used.share.export.id);
            if let Some(now) = now {
                used.refusal = now.refusal(self.accepted.peer, self.transport);
                if used.refusal.is_none() {
                    self.member.uses(&now.name);
                }
                used.share = now;
                self.uses.push(used);
            } else {
                self.leave(&used);
            }
        }
        let is_gone = |name: &_| !self.shares.iter().any(|share| share.name == *name);
        for name in self.member.shares().into_iter().filter(is_gone) {
            self.member.forget(&name);
        }
    }

    /// Makes a share that of the present call.
    fn choose(&mut self, share: Arc<Share>) -> Result<&Export, Refusal> {
        let id = share.export.id;
        let known = self.uses.iter().position(|used| used.share.export.id == id);
        let at = known.unwrap_or_else(|| self.begin_use(share));
        self.take(at)
    }

    fn take(&mut self, at: usize) -> Result<&Export, Refusal> {
        self.current = Some(at);
        let used = &self.uses[at];
        used.refusal.map_or(Ok(&used.share.export), Err)
    }

    fn begin_use(&mut self, share: Arc<Share>) -> usize {
        let charge = self.core.budget.reserve(COUNTERS_BYTES).ok();
        let counters = match &charge {
            Some(_) => Arc::default(),
            None => Arc::clone(&self.others),
        };
        if charge.is_some() {
            share.totals.enter(&counters);
            self.member.operations.enter(&counters);
        }
        let refusal = share.refusal(self.accepted.peer, self.transport);
        if refusal.is_none() {
            self.member.uses(&share.name);
        } else {
            tracing::warn!(
                share = %share.name,
                peer = %self.accepted.peer,
                "rejected a client whose address or port is not allowed"
            );
        }
        self.uses.push(Use {
            share,
            refusal,
            counters,
            charge,
        });
        self.uses.len() - 1
    }

    fn leave(&self, used: &Use) {
        if used.charge.is_some() {
            used.share.totals.leave(&used.counters);
            self.member.operations.leave(&used.counters);
        }
    }

    /// A call was answered: the connection is a session from now on, if its client may use
    /// anything.
    fn admit(&mut self) {
        let peer = self.accepted.peer;
        if !self.shares.iter().any(|share| share.is_for(peer.ip())) {
            return;
        }
        let host: HostName = client_name(peer.ip())
            .parse()
            .expect("an address is a name");
        let member = RegistryMember::Nfs(Arc::clone(&self.member));
        let (session, totals) = self.core.registry.bind(&self.accepted, member, &host);
        tracing::debug!(connection = %self.accepted.id, %session, %peer, "an NFS client has connected");
        totals.enter(&self.io);
        self.sums.push(totals);
        self.login_progress = LoginProgress::Admitted;
    }
}

impl Backend for NfsBackend {
    fn by_id(&mut self, id: ExportId) -> Result<&Export, Refusal> {
        self.refresh();
        let is_it = |used: &Use| used.share.export.id == id;
        let last = self.current.filter(|&at| is_it(&self.uses[at]));
        if let Some(at) = last.or_else(|| self.uses.iter().position(is_it)) {
            return self.take(at);
        }
        let share = find(&self.shares, id).ok_or(Refusal::Unknown)?;
        self.choose(share)
    }

    fn by_path(&mut self, path: &[u8]) -> Result<&Export, Refusal> {
        self.refresh();
        let is_it = |share: &&Arc<Share>| share.export.path.as_bytes() == path;
        let share = self.shares.iter().find(is_it).cloned();
        self.choose(share.ok_or(Refusal::Unknown)?)
    }

    fn each_export(&mut self, take: &mut dyn FnMut(&str, &[String])) {
        self.refresh();
        let address = self.accepted.peer.ip();
        self.core.exports.each_for(address, take);
    }

    fn each_mount(&mut self, take: &mut dyn FnMut(&str, &[u8])) {
        self.core.exports.with_mounts(|mounts| {
            for (client, path) in mounts.iter() {
                take(&client.to_string(), path);
            }
        });
    }

    fn mounted(&mut self, path: &[u8]) {
        let client = self.client();
        let exports = &self.core.exports;
        exports.with_mounts(|mounts| mounts.add(client, path));
    }

    fn unmounted(&mut self, path: Option<&[u8]>) {
        let client = self.client();
        let exports = &self.core.exports;
        exports.with_mounts(|mounts| mounts.remove(client, path));
    }

    fn write_verifier(&self) -> [u8; 8] {
        self.core.exports.verifier()
    }

    fn scope(&self) -> [u8; 16] {
        self.core.exports.scope()
    }

    fn client(&self) -> IpAddr {
        self.accepted.peer.ip().to_canonical()
    }

    fn transfer_bytes_max(&self) -> usize {
        transfer_bytes_max(self.transport)
    }

    fn back_channel(&self) -> Option<u64> {
        let is_stream = self.transport == Transport::Nfs;
        is_stream.then_some(self.accepted.id.0)
    }

    fn local(&self) -> IpAddr {
        self.accepted.local.ip().to_canonical()
    }

    fn with_replies(&mut self, use_cache: &mut dyn FnMut(&mut ReplyCache)) {
        self.core.exports.with_replies(use_cache);
    }

    fn with_clients(&mut self, use_clients: &mut dyn FnMut(&mut Clients)) {
        self.core.exports.with_clients(use_clients);
    }

    /// A reactor does not wait: calls about files that outlive the program are executed by
    /// [`Workers`].
    ///
    /// [`Workers`]: crate::workers::Workers
    fn settle_records(&mut self) {}

    fn charge_waiting(&mut self) -> bool {
        self.waiting.charge(&self.core)
    }

    fn submit(&mut self, call: WaitingCall) -> Result<(), WaitingCall> {
        let is_it = |used: &&Use| used.share.export.id == call.export();
        let used = self.uses.iter().find(is_it);
        match used.and_then(|used| used.share.workers.as_ref()) {
            Some(workers) => {
                let connection = (&self.core, &self.accepted, self.transport);
                self.waiting.submit(call, workers, connection)
            }
            None => Err(call),
        }
    }

    fn next_answer(&mut self) -> Option<Answer> {
        self.waiting.next()
    }

    fn count(&mut self, completed: &Completed, now: Instant) {
        if self.login_progress == LoginProgress::Pending {
            self.admit();
        }
        let current = self.current.take().and_then(|at| self.uses.get(at));
        let done = Done {
            key: current.map(|used| used.share.export.id),
            kind: completed.procedure,
            bytes: completed.bytes_in + completed.bytes_out,
            is_success: completed.is_ok,
            started: completed.began,
            now,
        };
        if let Some((key, batch)) = self.unsent.note(&done) {
            record(&self.uses, &self.others, &self.io, key, &batch);
        }
    }
}

impl Attachment for NfsBackend {
    /// Bytes of files are copied into the output, so there are no placements.
    fn memory(&self, _: SourceId) -> Option<&dyn Pinned> {
        None
    }

    fn may_send(&self, _: SourceId) -> bool {
        true
    }

    fn charged_bytes(&self) -> u64 {
        self.charge.len_bytes()
    }

    fn login_progress(&self) -> LoginProgress {
        self.login_progress
    }

    fn handle_sent(&mut self, now: Instant) {
        let (uses, others, io) = (&self.uses, &self.others, &self.io);
        self.unsent
            .handle_sent(now, |key, batch| record(uses, others, io, key, batch));
    }

    fn handle_stalled(&mut self) {
        let budget = &self.core.budget;
        let charge = || budget.overdraw(Reactors::UNDRAINED_MAX_BYTES as u64);
        self.stall_charge.get_or_insert_with(charge);
    }

    fn handle_drained(&mut self) {}

    fn handle_closed(&mut self, reason: &CloseReason) {
        self.core.connection_ended(&self.accepted, reason);
    }
}

impl Drop for NfsBackend {
    fn drop(&mut self) {
        for used in std::mem::take(&mut self.uses) {
            self.leave(&used);
        }
        for totals in &self.sums {
            totals.leave(&self.io);
        }
        self.core.registry.connection_closed(self.accepted.id);
    }
}

/// Counts calls about a share, or about none.
fn record(
    uses: &[Use],
    others: &FileCounters,
    io: &Counters,
    key: Option<ExportId>,
    batch: &Batch<Procedure>,
) {
    let used = uses.iter().find(|used| Some(used.share.export.id) == key);
    used.map_or(others, |used| &*used.counters).record(batch);
    let kind = match batch.kind {
        Procedure::Read => OpKind::Read,
        Procedure::Write => OpKind::Write,
        Procedure::Commit => OpKind::Flush,
        _ => return,
    };
    io.record(&batch.of_kind(kind));
}

fn find(shares: &[Arc<Share>], id: ExportId) -> Option<Arc<Share>> {
    let at = shares.binary_search_by_key(&id, |share| share.export.id);
    at.ok().map(|at| Arc::clone(&shares[at]))
}

/// The name under which sessions show a client: its address.
fn client_name(address: IpAddr) -> String {
    address.to_canonical().to_string()
}
