//! Shares, and NFS sessions as the registry knows them.

use std::collections::{BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};

use ::nfs::{
    ClientInfo, ClientRecord, Clients, DATAGRAM_TRANSFER_BYTES_MAX, Export, ExportId, Grant,
    LockHost, Procedure, Refusal, ReplyCache, TRANSFER_BYTES_MAX,
};
use block::{Access, HostIdentity};
use net::{ConnectionId, ReactorHandle};
use uuid::Uuid;

use crate::access::AccessList;
use crate::counters::{Counters, Totals};
use crate::statistics::PROCEDURES;
use crate::workers::Workers;
use crate::{SessionProtocol, ShareName, Transport};

pub(crate) type FileCounters = Counters<Procedure, PROCEDURES>;
pub(crate) type FileTotals = Totals<Procedure, PROCEDURES>;

/// A share as connections use it, as of its last change.
pub(crate) struct Share {
    pub(crate) name: ShareName,
    pub(crate) export: Export,
    pub(crate) access: AccessList,
    /// The addresses that may use it, as text; all if empty.
    pub(crate) clients: Vec<String>,
    pub(crate) totals: Arc<FileTotals>,
    /// The threads that execute its calls, if its tree waits for storage.
    pub(crate) workers: Option<Arc<Workers>>,
}

impl Share {
    /// Whether a client at this address may know of the share.
    pub(crate) fn is_for(&self, address: IpAddr) -> bool {
        let who = HostIdentity {
            name: None,
            address,
        };
        self.access.check(who) > Access::Denied
    }

    /// Why a connection from `peer` may not use the share, if so. Over RDMA a port says nothing:
    /// Linux's client binds none, and the devices of a client are its administrator's.
    pub(crate) fn refusal(&self, peer: SocketAddr, transport: Transport) -> Option<Refusal> {
        let is_port_free = peer.port() >= PORT_FREE_MIN && !transport.is_rdma();
        let is_port_refused = self.export.options.privileged_port && is_port_free;
        (is_port_refused || !self.is_for(peer.ip())).then_some(Refusal::Denied)
    }
}

/// The lowest port that any user of a client may connect from.
const PORT_FREE_MIN: u16 = 1024;

/// What all NFS connections share.
pub(crate) struct Exports {
    /// Moves after each change of `shares`.
    generation: AtomicU64,
    /// By their IDs.
    shares: Mutex<Arc<[Arc<Share>]>>,
    replies: Mutex<ReplyCache>,
    /// What clients hold, whichever connections they use.
    clients: Arc<NfsClients>,
    mounts: Mutex<Mounts>,
    /// See [`nfs::Backend::write_verifier`].
    verifier: [u8; 8],
    /// See [`nfs::Backend::scope`].
    scope: Uuid,
    /// Held shared while a thread of [`Workers`] executes a call, by what was true when it began.
    executing: RwLock<()>,
}

impl Exports {
    /// `scope` is the same after a restart.
    pub(crate) fn new(scope: Uuid, reactors: ReactorHandle) -> Self {
        let wake = Box::new(move |connection| reactors.wake(connection));
        let (verifier, start) = Uuid::new_v4().as_u64_pair();
        // Its lower bits are random; zero is what no client ID begins with.
        let start = (start as u32).max(1);
        Self {
            generation: AtomicU64::new(0),
            shares: Mutex::new(Arc::new([])),
            replies: Mutex::default(),
            clients: Arc::new(NfsClients::new(start, wake)),
            mounts: Mutex::default(),
            verifier: verifier.to_be_bytes(),
            scope,
            executing: RwLock::new(()),
        }
    }

    /// Held while a call is executed by a thread that may wait.
    pub(crate) fn begin_call(&self) -> RwLockReadGuard<'_, ()> {
        self.executing
            .read()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until no such call is executed by what was true before. Not for threads that execute
    /// calls.
    pub(crate) fn finish_calls(&self) {
        drop(
            self.executing
                .write()
                .unwrap_or_else(PoisonError::into_inner),
        );
    }

    /// Replaces the shares that connections see.
    pub(crate) fn publish(&self, shares: impl Iterator<Item = Share>) {
        let mut shares: Vec<_> = shares.map(Arc::new).collect();
        shares.sort_by_key(|share| share.export.id);
        let exists = |id| shares.iter().any(|share| share.export.id == id);
        self.clients
            .with(&mut |clients| clients.keep_exports(exists));
        *lock(&self.shares) = shares.into();
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// A number that stays the same until the shares change. It is read before them.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// The shares, by their IDs.
    pub(crate) fn shares(&self) -> Arc<[Arc<Share>]> {
        Arc::clone(&lock(&self.shares))
    }

    /// Calls `take` with the path and the clients of each share that a client may know of, by name.
    pub(crate) fn each_for(&self, address: IpAddr, take: &mut dyn FnMut(&str, &[String])) {
        let shares = self.shares();
        let known = shares.iter().filter(|share| share.is_for(address));
        let mut known: Vec<_> = known.collect();
        known.sort_by_key(|share| &share.name);
        for share in known {
            take(&share.export.path, &share.clients);
        }
    }

    pub(crate) fn with_replies(&self, use_cache: &mut dyn FnMut(&mut ReplyCache)) {
        use_cache(&mut lock(&self.replies));
    }

    pub(crate) fn with_clients(&self, use_clients: &mut dyn FnMut(&mut Clients)) {
        self.clients.with(use_clients);
    }

    /// What clients hold.
    pub(crate) fn clients(&self) -> Arc<NfsClients> {
        Arc::clone(&self.clients)
    }

    /// What clients of NFSv4 at an address hold.
    pub(crate) fn clients_at(&self, address: IpAddr) -> Vec<ClientInfo> {
        lock(&self.clients.clients).at(address)
    }

    pub(crate) fn with_mounts<R>(&self, use_mounts: impl FnOnce(&mut Mounts) -> R) -> R {
        use_mounts(&mut lock(&self.mounts))
    }

    pub(crate) fn scope(&self) -> [u8; 16] {
        self.scope.into_bytes()
    }

    /// See [`nfs::Backend::settle_records`].
    pub(crate) fn settle_records(&self) {
        self.clients.settle_records();
    }

    pub(crate) const fn verifier(&self) -> [u8; 8] {
        self.verifier
    }
}

/// Who may reclaim what it held, after a restart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Noted {
    /// Clients of version 4.
    pub(crate) clients: Vec<ClientRecord>,
    /// Clients of NLM.
    pub(crate) hosts: Vec<LockHost>,
}

/// Makes a connection check what clients hold.
pub(crate) type WakeConnection = Box<dyn Fn(ConnectionId) + Send + Sync>;

/// What clients of NFS hold, and the signal that locks were granted to waiting clients.
pub(crate) struct NfsClients {
    clients: Mutex<Clients>,
    /// Wakes a connection that has calls to make to clients.
    wake: WakeConnection,
    /// There are grants, records to be saved, or the end has come.
    changed: Condvar,
    /// Which records a thread has saved; without one, [`None`].
    saved: Mutex<Option<u64>>,
    /// `saved` has changed.
    was_saved: Condvar,
    is_stopping: AtomicBool,
}

impl NfsClients {
    pub(crate) fn new(start: u32, wake: WakeConnection) -> Self {
        Self {
            clients: Mutex::new(Clients::new(start)),
            wake,
            changed: Condvar::new(),
            saved: Mutex::new(None),
            was_saved: Condvar::new(),
            is_stopping: AtomicBool::new(false),
        }
    }

    pub(crate) fn with(&self, use_clients: &mut dyn FnMut(&mut Clients)) {
        let mut clients = lock(&self.clients);
        let records = clients.records_number();
        use_clients(&mut clients);
        while let Some(connection) = clients.next_wake() {
            (self.wake)(ConnectionId(connection));
        }
        if clients.has_grants() || clients.records_number() != records {
            self.changed.notify_all();
        }
    }

    /// Waits for granted locks of which clients have to be notified, at most until an instant.
    /// `None` at the end.
    pub(crate) fn wait_for_grants(&self, until: Option<Instant>) -> Option<Vec<Grant>> {
        let mut clients = lock(&self.clients);
        loop {
            if self.is_stopping.load(Ordering::Acquire) {
                return None;
            }
            let grants: Vec<_> = std::iter::from_fn(|| clients.next_grant()).collect();
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if !grants.is_empty() || left.is_some_and(|left| left.is_zero()) {
                return Some(grants);
            }
            clients = match left {
                None => (self.changed.wait(clients)).unwrap_or_else(PoisonError::into_inner),
                Some(left) => {
                    let waited = self.changed.wait_timeout(clients, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    /// Begins the grace period after a restart. From now on a thread saves records.
    pub(crate) fn begin_grace(&self, noted: Noted) {
        let mut clients = lock(&self.clients);
        *lock(&self.saved) = Some(clients.records_number());
        let now = Instant::now();
        clients.begin_grace(now, noted.clients);
        clients.remember_hosts(now, noted.hosts);
    }

    /// Waits for records that are others than those with this number, at most for a while. `None`
    /// at the end, once these are saved.
    pub(crate) fn wait_for_records(&self, saved: u64) -> Option<(u64, Noted)> {
        let mut clients = lock(&self.clients);
        loop {
            let number = clients.records_number();
            if number != saved {
                let (hosts, clients) = (clients.lock_hosts(), clients.records());
                return Some((number, Noted { clients, hosts }));
            }
            if self.is_stopping.load(Ordering::Acquire) {
                return None;
            }
            clients = (self.changed.wait(clients)).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits for a while. Returns whether the program goes on.
    pub(crate) fn pause(&self, time: Duration) -> bool {
        let clients = lock(&self.clients);
        let goes_on = |_: &mut Clients| !self.is_stopping.load(Ordering::Acquire);
        let waited = self.changed.wait_timeout_while(clients, time, goes_on);
        drop(waited);
        !self.is_stopping.load(Ordering::Acquire)
    }

    /// The records with this number were saved, or that was tried.
    pub(crate) fn note_saved(&self, number: u64) {
        *lock(&self.saved) = Some(number);
        self.was_saved.notify_all();
    }

    /// Waits until the records are saved as they are now, if a thread saves them, for a bounded
    /// time.
    pub(crate) fn settle_records(&self) {
        let number = lock(&self.clients).records_number();
        let is_behind = |saved: &mut Option<u64>| saved.is_some_and(|saved| saved < number);
        let saved = lock(&self.saved);
        drop(
            self.was_saved
                .wait_timeout_while(saved, SETTLE_WITHIN, is_behind),
        );
    }

    /// Keeps grants of which clients have still to be notified.
    pub(crate) fn retain_pending<T>(&self, jobs: &mut VecDeque<T>, grant: impl Fn(&T) -> &Grant) {
        let clients = lock(&self.clients);
        jobs.retain(|job| clients.is_pending(grant(job)));
    }

    /// A client has accepted a lock, or does not want it.
    pub(crate) fn end_grant(&self, grant: &Grant, is_accepted: bool) {
        self.with(&mut |clients| clients.end_grant(grant, is_accepted));
    }

    /// Ends every wait for grants.
    pub(crate) fn stop(&self) {
        let _clients = lock(&self.clients);
        self.is_stopping.store(true, Ordering::Release);
        self.changed.notify_all();
    }
}

/// How long a call waits for records of clients to be saved. Then the disk is so slow that the
/// client would ask again.
const SETTLE_WITHIN: Duration = Duration::from_secs(10);

/// Which client has mounted what, for `showmount -a`, oldest first. It is a hint: clients need not
/// say when they unmount.
#[derive(Default)]
pub(crate) struct Mounts(VecDeque<(IpAddr, Vec<u8>)>);

/// The most mounts that are remembered; older ones are forgotten.
const MOUNTS_MAX: usize = 256;
/// The longest path that is remembered.
const MOUNT_PATH_LEN_MAX: usize = 1024;
/// The most memory that the replies, the state and the mounts of all clients take, in bytes.
pub(crate) const SHARED_BYTES: u64 = (ReplyCache::BYTES_MAX
    + Clients::BYTES_MAX
    + Clients::RECORDS_BYTES_MAX
    + MOUNTS_MAX * (MOUNT_PATH_LEN_MAX + 128)) as u64;

impl Mounts {
    pub(crate) fn add(&mut self, client: IpAddr, path: &[u8]) {
        self.remove(client, Some(path));
        if path.len() > MOUNT_PATH_LEN_MAX {
            return;
        }
        if self.0.len() >= MOUNTS_MAX {
            self.0.pop_front();
        }
        self.0.push_back((client, path.to_vec()));
    }

    /// Forgets a mount of a client, or all of them.
    pub(crate) fn remove(&mut self, client: IpAddr, path: Option<&[u8]>) {
        let is_it = |mount: &(IpAddr, Vec<u8>)| {
            mount.0 == client && path.is_none_or(|path| mount.1 == path)
        };
        self.0.retain(|mount| !is_it(mount));
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (IpAddr, &[u8])> {
        let mounts = self.0.iter();
        mounts.map(|(client, path)| (*client, path.as_slice()))
    }
}

/// An NFS session as the registry knows it: one connection.
pub(crate) struct Member {
    connection: ConnectionId,
    transport: Transport,
    handle: ReactorHandle,
    shares: Mutex<BTreeSet<ShareName>>,
    pub(crate) operations: FileTotals,
}

impl Member {
    pub(crate) fn new(
        connection: ConnectionId,
        transport: Transport,
        handle: ReactorHandle,
    ) -> Self {
        Self {
            connection,
            transport,
            handle,
            shares: Mutex::default(),
            operations: FileTotals::default(),
        }
    }

    /// Closes the connection. Not for reactor threads.
    pub(crate) fn end(&self) {
        self.handle.close(self.connection);
    }

    /// The client uses a share.
    pub(crate) fn uses(&self, share: &ShareName) {
        lock(&self.shares).insert(share.clone());
    }

    /// A share does not exist any more.
    pub(crate) fn forget(&self, share: &ShareName) {
        lock(&self.shares).remove(share);
    }

    /// The shares that it has used.
    pub(crate) fn shares(&self) -> BTreeSet<ShareName> {
        lock(&self.shares).clone()
    }

    /// Its part of a session, without what its client holds beyond connections.
    pub(crate) fn protocol(&self) -> SessionProtocol {
        SessionProtocol::Nfs {
            transport: self.transport,
            shares: self.shares().into_iter().collect(),
            operations: self.operations.sum(),
            clients: Vec::new(),
        }
    }
}

/// See [`nfs::Backend::transfer_bytes_max`].
pub(crate) const fn transfer_bytes_max(transport: Transport) -> usize {
    match transport {
        Transport::NfsUdp => DATAGRAM_TRANSFER_BYTES_MAX,
        _ => TRANSFER_BYTES_MAX,
    }
}

/// An ID for the files that a share holds from now on. Handles of files that it held before, or
/// that a share of this name held before a restart, name none of these.
pub(crate) fn new_export_id() -> ExportId {
    ExportId(Uuid::new_v4().into_bytes())
}

/// The ID of the files in a directory of this machine. It is the same after a restart, and another
/// one if another file system is mounted there.
pub(crate) fn directory_export_id(
    machine: Uuid,
    name: &ShareName,
    path: &Path,
    file_system: u64,
) -> ExportId {
    let mut text = format!("{name} {file_system:016x} ").into_bytes();
    text.extend_from_slice(path.as_os_str().as_bytes());
    ExportId(Uuid::new_v5(&machine, &text).into_bytes())
}

/// Values are complete between any two statements, so a poisoned lock is used.
fn lock<T: ?Sized>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_a_directory_have_an_id_of_their_own_that_stays() {
        let id = |machine: u128, name: &str, path: &str, file_system| {
            let name = name.parse().expect("a name");
            directory_export_id(
                Uuid::from_u128(machine),
                &name,
                Path::new(path),
                file_system,
            )
        };
        let first = id(1, "db", "/srv/db", 7);
        assert_eq!(first, id(1, "db", "/srv/db", 7));
        for other in [
            id(2, "db", "/srv/db", 7),
            id(1, "log", "/srv/db", 7),
            id(1, "db", "/srv", 7),
            id(1, "db", "/srv/db", 8),
        ] {
            assert_ne!(first, other);
        }
    }

    #[test]
    fn mounts_are_bounded_and_forgotten() {
        let mut mounts = Mounts::default();
        let client = |last| IpAddr::from([192, 0, 2, last]);
        let listed = |mounts: &Mounts| mounts.iter().map(|(at, _)| at).collect::<Vec<_>>();
        for _ in 0..2 {
            mounts.add(client(1), b"/db");
        }
        mounts.add(client(1), b"/log");
        mounts.add(client(2), b"/db");
        mounts.add(client(2), &[b'a'; MOUNT_PATH_LEN_MAX + 1]);
        assert_eq!(listed(&mounts), [client(1), client(1), client(2)]);
        mounts.remove(client(1), Some(b"/db"));
        assert_eq!(listed(&mounts), [client(1), client(2)]);
        mounts.remove(client(1), None);
        assert_eq!(listed(&mounts), [client(2)]);
        for number in 0..MOUNTS_MAX {
            mounts.add(client(3), number.to_string().as_bytes());
        }
        assert_eq!(mounts.iter().count(), MOUNTS_MAX);
        assert!(!listed(&mounts).contains(&client(2)), "the oldest is gone");
    }
}
