//! The addresses of clients that shares name by host name, and the thread that looks them up.
//!
//! A name is resolved to addresses, never an address to a name, because the owner of an address can
//! choose the name that it resolves to. Connections are checked by addresses alone, so a slow name
//! service delays no client that was found before.
//!
//! ```text
//!             found                       REFRESH_EVERY
//! unknown ───────────► addresses ─────────────────────────────┐
//!    │                     ▲  └── found again, or others ◄────┤
//!    └── not found ──┐     │                                  └── not found: the addresses stay for KEEP_FOR
//!                    ▼     │
//!                 problem ─┘ RETRY_AFTER
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, ToSocketAddrs as _};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::share_client::{ClientName, ClientNameInfo};

/// What is known of names.
#[derive(Default)]
pub(super) struct ClientNames {
    table: Mutex<Table>,
    /// There is another name to look up, one was looked up, or the end has come.
    changed: Condvar,
}

/// The thread, which ends when this is dropped. A look-up that hangs is not waited for.
pub(super) struct NameThread(Arc<ClientNames>);

/// Looks the addresses of a name up, as `getaddrinfo` does.
pub(super) type LookUp = Box<dyn Fn(&ClientName) -> io::Result<Vec<IpAddr>> + Send>;

#[derive(Default)]
struct Table {
    names: BTreeMap<ClientName, Entry>,
    /// Whether the thread has not completed a look-up within [`FIRST_WITHIN`]. Until it completes
    /// one, definitions of shares do not wait for look-ups.
    is_slow: bool,
    is_stopping: bool,
}

#[derive(Default)]
struct Entry {
    addresses: Vec<IpAddr>,
    /// When the addresses were found.
    found: Option<Instant>,
    /// When the name is looked up again; at once if it never was.
    due: Option<Instant>,
    problem: Option<String>,
}

/// The most names in all shares.
pub(super) const NAMES_MAX: usize = 256;
/// The most addresses of a name. Others are left out.
const ADDRESSES_MAX: usize = 16;
/// How often a name is looked up. The system tells no lifetime (TTL) of an answer, and caches if it
/// is set up to.
const REFRESH_EVERY: Duration = Duration::from_secs(60);
/// How soon a name is looked up again that was not found.
const RETRY_AFTER: Duration = Duration::from_secs(10);
/// How long addresses stay valid while the name is not found: a name service that fails for a while
/// must not end mounts.
const KEEP_FOR: Duration = Duration::from_secs(15 * 60);
/// How long the definition of a share waits for the first look-ups.
const FIRST_WITHIN: Duration = Duration::from_secs(2);

impl ClientNames {
    /// Looks these names up from now on, and no others.
    pub(super) fn want(&self, names: &BTreeSet<&ClientName>) {
        let mut table = self.lock();
        table.names.retain(|name, _| names.contains(name));
        for &name in names {
            if !table.names.contains_key(name) {
                table.names.insert(name.clone(), Entry::default());
            }
        }
        self.changed.notify_all();
    }

    /// Waits until each name was looked up once, at most [`FIRST_WITHIN`], so that a client finds
    /// its share open. Called without the lock of the server's state, which publishing needs.
    pub(super) fn settle(&self) {
        let table = self.lock();
        let is_open = |table: &mut Table| {
            let is_new = |entry: &Entry| entry.due.is_none();
            !table.is_slow && !table.is_stopping && table.names.values().any(is_new)
        };
        let waited = self
            .changed
            .wait_timeout_while(table, FIRST_WITHIN, is_open);
        let (mut table, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        table.is_slow |= timeout.timed_out();
    }

    /// The addresses of a name, as far as they are known.
    pub(super) fn addresses(&self, name: &ClientName) -> Vec<IpAddr> {
        let table = self.lock();
        let entry = table.names.get(name);
        entry.map_or_else(Vec::new, |entry| entry.addresses.clone())
    }

    /// What is known of a name.
    pub(super) fn info(&self, name: &ClientName) -> ClientNameInfo {
        let table = self.lock();
        let entry = table.names.get(name);
        ClientNameInfo {
            name: name.clone(),
            addresses: entry.map_or_else(Vec::new, |entry| entry.addresses.clone()),
            problem: entry.and_then(|entry| entry.problem.clone()),
        }
    }

    /// Waits for a name that is due. `None` at the end.
    fn next(&self) -> Option<ClientName> {
        let mut table = self.lock();
        loop {
            if table.is_stopping {
                return None;
            }
            let first = table.names.iter().min_by_key(|(_, entry)| entry.due);
            let first = first.map(|(name, entry)| (name.clone(), entry.due));
            let left = match first {
                None => None,
                Some((name, due)) => {
                    let left = due.map(|due| due.saturating_duration_since(Instant::now()));
                    match left.filter(|left| !left.is_zero()) {
                        None => return Some(name),
                        left => left,
                    }
                }
            };
            table = match left {
                None => (self.changed.wait(table)).unwrap_or_else(PoisonError::into_inner),
                Some(left) => {
                    let waited = self.changed.wait_timeout(table, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    /// Takes the result of a look-up. Returns whether the addresses are others than before.
    fn take(&self, name: &ClientName, found: io::Result<Vec<IpAddr>>, now: Instant) -> bool {
        let mut table = self.lock();
        table.is_slow = false;
        let Some(entry) = table.names.get_mut(name) else {
            return false;
        };
        let before = entry.addresses.clone();
        entry.take(name, found, now);
        entry.addresses != before
    }

    /// Ends a look-up whose addresses, if they have changed, were published: [`settle`] waits for
    /// that, too.
    ///
    /// [`settle`]: Self::settle
    fn finish(&self, name: &ClientName, due: Instant) {
        if let Some(entry) = self.lock().names.get_mut(name) {
            entry.due = Some(due);
        }
        self.changed.notify_all();
    }

    /// Values are complete between any two statements, so a poisoned lock is used.
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    fn take(&mut self, name: &ClientName, found: io::Result<Vec<IpAddr>>, now: Instant) {
        let problem = match found {
            Ok(addresses) if !addresses.is_empty() => {
                self.addresses = normalized(addresses);
                self.found = Some(now);
                self.problem = None;
                return;
            }
            Ok(_) => "it has no address".to_owned(),
            Err(error) => error.to_string(),
        };
        if self
            .found
            .is_some_and(|found| now.saturating_duration_since(found) >= KEEP_FOR)
        {
            self.addresses.clear();
            self.found = None;
        }
        let problem = format!(
            "client {name} is not found: {problem}; add it to the name service or to /etc/hosts of this machine, or name it by address"
        );
        if self.problem.is_none() {
            tracing::warn!("{problem}");
        }
        self.problem = Some(problem);
    }
}

impl NameThread {
    /// Starts the thread. It calls `publish` when addresses have changed.
    pub(super) fn start(
        names: Arc<ClientNames>,
        look_up: LookUp,
        publish: Box<dyn Fn() + Send>,
    ) -> io::Result<Self> {
        let of_thread = Arc::clone(&names);
        thread::Builder::new()
            .name("client-names".to_owned())
            .spawn(move || serve(&of_thread, &look_up, &publish))?;
        Ok(Self(names))
    }
}

impl Drop for NameThread {
    fn drop(&mut self) {
        self.0.lock().is_stopping = true;
        self.0.changed.notify_all();
    }
}

/// Looks names up until it is stopped.
fn serve(names: &ClientNames, look_up: &LookUp, publish: &dyn Fn()) {
    while let Some(name) = names.next() {
        let found = look_up(&name);
        let again = if found.is_ok() {
            REFRESH_EVERY
        } else {
            RETRY_AFTER
        };
        let now = Instant::now();
        if names.take(&name, found, now) {
            publish();
        }
        names.finish(&name, now + again);
    }
}

/// By the system: /etc/hosts and DNS, as `/etc/nsswitch.conf` says.
pub(super) fn by_system(name: &ClientName) -> io::Result<Vec<IpAddr>> {
    let found = (name.as_str(), 0).to_socket_addrs()?;
    Ok(found.map(|address| address.ip()).collect())
}

/// In an order of our own, since name services answer in changing orders.
fn normalized(mut addresses: Vec<IpAddr>) -> Vec<IpAddr> {
    addresses.sort_unstable();
    addresses.dedup();
    addresses.truncate(ADDRESSES_MAX);
    addresses
}

#[cfg(test)]
mod tests;
