//! Keys for TLS that authentications have generated, while their hosts connect with them.
//!
//! A host that concatenates a secure channel authenticates at a plain connection, then connects again
//! by TLS: first an admin queue, then I/O queues. Each association has a key of its own, which ends with
//! its last connection.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tls::{Identity, Key};

use crate::{DhChapDefinition, HostName};

/// The keys of all hosts, the oldest first.
#[derive(Default)]
pub(in super::super) struct GeneratedKeys {
    entries: Mutex<VecDeque<Entry>>,
}

struct Entry {
    host: HostName,
    subsystem_nqn: String,
    /// What the host had proven.
    proven: Arc<DhChapDefinition>,
    key: Arc<Key>,
    made: Instant,
    /// Connections that use the key.
    connections: usize,
}

impl GeneratedKeys {
    /// For how long a host may connect with a key. After that it authenticates again.
    const LIFETIME: Duration = Duration::from_secs(3600);
    /// The most keys of a host, whatever their targets: one per association.
    const OF_HOST_MAX: usize = 64;
    /// The most keys in all. Only hosts that are authenticated add some, and one host has at most
    /// 1/64 of them.
    const ALL_MAX: usize = 4096;

    /// Keeps a key, in the place of the host's oldest one if it has too many, or of the oldest one if there
    /// are too many in all.
    pub(super) fn keep(
        &self,
        host: &HostName,
        subsystem_nqn: &str,
        proven: Arc<DhChapDefinition>,
        key: Key,
        now: Instant,
    ) -> Arc<Key> {
        let mut entries = self.lock();
        entries.retain(|entry| entry.is_valid(now));
        let is_of_host = |entry: &Entry| entry.host == *host;
        if entries.iter().filter(|entry| is_of_host(entry)).count() >= Self::OF_HOST_MAX
            && let Some(oldest) = entries.iter().position(is_of_host)
        {
            entries.remove(oldest);
        }
        if entries.len() >= Self::ALL_MAX {
            entries.pop_front();
        }
        let key = Arc::new(key);
        entries.push_back(Entry {
            host: host.clone(),
            subsystem_nqn: subsystem_nqn.to_owned(),
            proven,
            key: Arc::clone(&key),
            made: now,
            connections: 0,
        });
        key
    }

    /// Removes a key that another one replaces.
    pub(super) fn forget(&self, key: &Arc<Key>) {
        self.lock().retain(|entry| !Arc::ptr_eq(&entry.key, key));
    }

    /// A connection uses the key of an identity.
    pub(super) fn connected(&self, identity: &Identity) {
        let mut entries = self.lock();
        if let Some(entry) = entries.iter_mut().find(|entry| entry.is_named(identity)) {
            entry.connections += 1;
        }
    }

    /// A connection that used the key of an identity has ended. The last one ends the key.
    pub(super) fn disconnected(&self, identity: &Identity) {
        let mut entries = self.lock();
        if let Some(at) = entries.iter().position(|entry| entry.is_named(identity)) {
            let connections = entries[at].connections.saturating_sub(1);
            entries[at].connections = connections;
            if connections == 0 {
                entries.remove(at);
            }
        }
    }

    /// The keys of an identity's host, if it would prove `current` today.
    pub(super) fn of(
        &self,
        identity: &Identity,
        current: &DhChapDefinition,
        now: Instant,
    ) -> Vec<Arc<Key>> {
        self.lock()
            .iter()
            .filter(|entry| entry.is_of(identity))
            .filter(|entry| entry.is_valid(now) && *entry.proven == *current)
            .map(|entry| Arc::clone(&entry.key))
            .collect()
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    /// Whether the key is for the host and the target of an identity.
    fn is_of(&self, identity: &Identity) -> bool {
        self.host.as_str() == identity.host_nqn && self.subsystem_nqn == identity.subsystem_nqn
    }

    /// Whether an identity is that of the key.
    fn is_named(&self, identity: &Identity) -> bool {
        self.is_of(identity)
            && self
                .key
                .identity(&identity.host_nqn, &identity.subsystem_nqn)
                == *identity
    }

    fn is_valid(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.made) < GeneratedKeys::LIFETIME
    }
}

#[cfg(test)]
mod tests {
    use nvme::auth::{Credentials, GroupPolicy};
    use tls::Source;

    use super::*;

    const SUBSYSTEM: &str = "nqn.2014-08.org.example:subsystem";

    fn proven(secret: &str) -> Arc<DhChapDefinition> {
        Arc::new(Credentials {
            secret: secret.parse().expect("a secret"),
            other_secret: None,
            controller_secret: None,
            hash: None,
            group: GroupPolicy::Any,
        })
    }

    fn identity(host: &HostName) -> Identity {
        format!("NVMe1G01 {host} {SUBSYSTEM} digest")
            .parse()
            .expect("an identity")
    }

    fn key(byte: u8) -> Key {
        Key::generated(&[byte; 32]).expect("a key")
    }

    #[test]
    fn a_key_ends_with_its_association_or_when_another_replaces_it() {
        let proven = proven("DHHC-1:01:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:");
        let host: HostName = "nqn.2014-08.org.example:host".parse().expect("a name");
        let (keys, now) = (GeneratedKeys::default(), Instant::now());
        let [first, second] =
            [1, 2].map(|byte| keys.keep(&host, SUBSYSTEM, Arc::clone(&proven), key(byte), now));
        let found = || keys.of(&identity(&host), &proven, now).len();
        let name = first.identity(host.as_str(), SUBSYSTEM);
        // An admin queue and an I/O queue.
        keys.connected(&name);
        keys.connected(&name);
        keys.disconnected(&name);
        assert_eq!(found(), 2);
        keys.disconnected(&name);
        assert_eq!(found(), 1);
        assert_eq!(
            keys.of(&identity(&host), &proven, now),
            [Arc::clone(&second)]
        );
        // Connections with keys that a user configured count for nothing.
        let mut configured = second.identity(host.as_str(), SUBSYSTEM);
        configured.source = Source::Configured;
        keys.connected(&configured);
        keys.disconnected(&configured);
        assert_eq!(found(), 1);
        keys.forget(&second);
        assert_eq!(found(), 0);
    }

    #[test]
    fn keys_are_bounded_and_end_with_their_time_or_their_secret() {
        let old = proven("DHHC-1:01:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:");
        let new = Arc::new(Credentials {
            group: GroupPolicy::NoGroup,
            ..(*old).clone()
        });
        let host: HostName = "nqn.2014-08.org.example:host".parse().expect("a name");
        let other: HostName = "nqn.2014-08.org.example:other".parse().expect("a name");
        let (keys, now) = (GeneratedKeys::default(), Instant::now());
        keys.keep(&other, SUBSYSTEM, Arc::clone(&old), key(200), now);
        for byte in 0..100 {
            keys.keep(&host, SUBSYSTEM, Arc::clone(&old), key(byte), now);
            // The keys of another target are keys of the host, too.
            keys.keep(&host, "another", Arc::clone(&old), key(byte), now);
        }
        let found = keys.of(&identity(&host), &old, now);
        assert_eq!(found.len(), GeneratedKeys::OF_HOST_MAX / 2);
        assert!(found.iter().any(|found| **found == key(99)), "the newest");
        assert!(keys.of(&identity(&host), &new, now).is_empty());
        // No host pushes out the keys of another one.
        assert_eq!(keys.of(&identity(&other), &old, now).len(), 1);
        let late = now + GeneratedKeys::LIFETIME;
        assert!(keys.of(&identity(&host), &old, late).is_empty());
        for number in 0..GeneratedKeys::ALL_MAX {
            let name = format!("{other}{number}").parse().expect("a name");
            keys.keep(&name, SUBSYSTEM, Arc::clone(&old), key(1), now);
        }
        let entries = keys.entries.lock().expect("not poisoned").len();
        assert_eq!(entries, GeneratedKeys::ALL_MAX);
    }
}
