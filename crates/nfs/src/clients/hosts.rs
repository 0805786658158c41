//! Clients of NLM that may hold locks of files that outlive the program: they are notified of its
//! restart, and reclaim the locks in the grace period.
//!
//! ```text
//!          LOCK                    restart                    the grace period is over
//! nothing ──────► noted ─────────────────────► may reclaim ──────────────────────────────► noted if it has a lock, or nothing
//!                   └── its own restart (SM_NOTIFY, FREE_ALL), or another needs the room and it has no lock ──► nothing
//! ```
//!
//! A client stays noted when it has released its last lock, because it will likely lock again and
//! each change has to be saved first. It may therefore be notified although it holds no lock.
//!
//! Read first: X/Open's "Protocols for Interworking: XNFS", chapter 11 (NSM).

use std::net::IpAddr;
use std::time::Instant;

use super::nlm::NlmCaller;
use super::{CLIENTS_MAX, Clients, LEASE};

/// A client of NLM that may hold locks of files that outlive the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockHost {
    /// The address that it calls from, and is called at.
    pub address: IpAddr,
    /// The address of this server that it knows.
    pub local: IpAddr,
    /// The name that it gives itself.
    pub name: Box<[u8]>,
}

/// Those that are noted.
#[derive(Debug, Default)]
pub(super) struct LockHosts {
    noted: Vec<LockHost>,
    /// How many of them, the first ones, were noted before the program's restart and may reclaim
    /// locks.
    from_before: usize,
    /// When the grace period ends in which they may.
    end: Option<Instant>,
}

impl LockHost {
    /// The longest name in bytes (LM_MAXSTRLEN).
    pub const NAME_BYTES_MAX: usize = 1024;
    /// The most that are noted.
    pub const HOSTS_MAX: usize = CLIENTS_MAX;

    fn is(&self, address: IpAddr, name: &[u8]) -> bool {
        self.address == address && *self.name == *name
    }
}

impl LockHosts {
    /// The most memory in bytes that they take: as they are, and while they are saved.
    pub(super) const BYTES_MAX: usize =
        2 * LockHost::HOSTS_MAX * (LockHost::NAME_BYTES_MAX + size_of::<LockHost>());

    /// Whether some may reclaim their locks.
    pub(super) fn are_waited_for(&self, now: Instant) -> bool {
        self.from_before > 0 && self.end.is_some_and(|end| now < end)
    }

    fn position(&self, address: IpAddr, name: &[u8]) -> Option<usize> {
        self.noted.iter().position(|host| host.is(address, name))
    }

    /// Removes those that `is_gone` selects. Returns whether there were any.
    fn remove(&mut self, is_gone: impl Fn(&LockHost) -> bool) -> bool {
        let before = self.noted.len();
        let mut at = 0;
        while at < self.noted.len() {
            if is_gone(&self.noted[at]) {
                self.noted.remove(at);
                self.from_before -= usize::from(at < self.from_before);
            } else {
                at += 1;
            }
        }
        self.noted.len() != before
    }
}

impl Clients {
    /// These clients may have held locks when the program ended: they may reclaim them from now on,
    /// for as long as the grace period lasts.
    pub fn remember_hosts(&mut self, now: Instant, mut hosts: Vec<LockHost>) {
        hosts.truncate(LockHost::HOSTS_MAX);
        self.hosts = LockHosts {
            from_before: hosts.len(),
            end: (!hosts.is_empty()).then(|| now + LEASE),
            noted: hosts,
        };
    }

    /// The clients of NLM that may reclaim their locks if the program ends now. What
    /// [`records_number`](Self::records_number) says counts for them, too.
    pub fn lock_hosts(&self) -> Vec<LockHost> {
        self.hosts.noted.clone()
    }

    /// A client has asked for a lock of a file that outlives the program, at an address of this
    /// server.
    pub(crate) fn note_host(&mut self, caller: NlmCaller<'_>, local: IpAddr) {
        let is_noted = self.hosts.position(caller.address, caller.name).is_some();
        // Without a lock or a wait it is not known.
        if is_noted || self.find_nlm(caller).is_none() {
            return;
        }
        // There is one without locks, since as many clients of NLM as there are places include this
        // one.
        if self.hosts.noted.len() >= LockHost::HOSTS_MAX && !self.drop_absent_hosts(1) {
            return;
        }
        self.hosts.noted.push(LockHost {
            address: caller.address,
            local,
            name: caller.name.into(),
        });
        self.note_change();
    }

    /// Whether a client may reclaim locks of files that outlive the program.
    pub(crate) fn may_reclaim_nlm(&mut self, now: Instant, caller: NlmCaller<'_>) -> bool {
        let at = self.hosts.position(caller.address, caller.name);
        at.is_some_and(|at| at < self.hosts.from_before) && self.is_in_grace(now)
    }

    /// A client has restarted, so it has nothing to reclaim.
    pub(super) fn forget_hosts(&mut self, address: IpAddr, name: Option<&[u8]>) {
        let is_it =
            |host: &LockHost| host.address == address && name.is_none_or(|it| *host.name == *it);
        if self.hosts.remove(is_it) {
            self.note_change();
        }
    }

    /// The grace period is over: those that did not return do not any more.
    pub(super) fn end_host_grace(&mut self) {
        self.hosts.end = None;
        if std::mem::take(&mut self.hosts.from_before) > 0 && self.drop_absent_hosts(usize::MAX) {
            self.note_change();
        }
    }

    /// Removes some that have no locks. Returns whether there were any.
    fn drop_absent_hosts(&mut self, max: usize) -> bool {
        let is_absent = |host: &&LockHost| {
            let caller = NlmCaller {
                address: host.address,
                name: &host.name,
                owner: &[],
            };
            self.find_nlm(caller).is_none()
        };
        let absent = self.hosts.noted.iter().filter(is_absent).take(max);
        let absent: Vec<_> = absent.cloned().collect();
        self.hosts.remove(|host| absent.contains(host))
    }
}
