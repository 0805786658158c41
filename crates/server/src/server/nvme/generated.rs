//! Keys for TLS that authentications have generated, while their hosts connect with them.
//!
//! A host that concatenates a secure channel authenticates at a plain connection, then connects
//! again by TLS: first an admin queue, then I/O queues. Each association has a key of its own,
//! which ends with its last connection. The host may replace it within TLS; that is then the key of
//! the association.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tls::{Identity, Key};

use crate::{DhChapDefinition, HostName};

/// The keys of all hosts, the oldest first.
#[derive(Default)]
pub(in super::super) struct GeneratedKeys {
    entries: Mutex<Entries>,
}

#[derive(Default)]
struct Entries {
    keys: VecDeque<Entry>,
    next: u64,
}

/// Names the key of an association, which may be replaced by another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KeyNumber(u64);

/// Who has a key generated.
#[derive(Clone, Debug)]
pub(super) struct KeyOwner<'a> {
    pub(super) host: &'a HostName,
    pub(super) subsystem_nqn: &'a str,
    /// What the host has proven.
    pub(super) proven: Arc<DhChapDefinition>,
}

struct Entry {
    number: KeyNumber,
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

    /// Keeps a key, in the place of the host's oldest one if it has too many, or of the oldest one
    /// if there are too many in all.
    pub(super) fn keep(&self, owner: &KeyOwner<'_>, key: &Arc<Key>, now: Instant) -> KeyNumber {
        let mut entries = self.lock();
        let keys = &mut entries.keys;
        keys.retain(|entry| entry.is_in_use() || entry.is_valid(now));
        let is_of_host = |entry: &Entry| entry.host == *owner.host;
        if keys.iter().filter(|entry| is_of_host(entry)).count() >= Self::OF_HOST_MAX
            && let Some(oldest) = keys.iter().position(is_of_host)
        {
            keys.remove(oldest);
        }
        if keys.len() >= Self::ALL_MAX {
            keys.pop_front();
        }
        let number = KeyNumber(entries.next);
        entries.next += 1;
        entries.keys.push_back(Entry {
            number,
            host: owner.host.clone(),
            subsystem_nqn: owner.subsystem_nqn.to_owned(),
            proven: Arc::clone(&owner.proven),
            key: Arc::clone(key),
            made: now,
            connections: 0,
        });
        number
    }

    /// Replaces the key of an association, whose connections go on. The key that was replaced no
    /// longer admits connections. Returns `false` if the association has no key any more.
    pub(super) fn replace(
        &self,
        number: KeyNumber,
        proven: &Arc<DhChapDefinition>,
        key: &Arc<Key>,
        now: Instant,
    ) -> bool {
        let mut entries = self.lock();
        let entry = entries.find(number);
        let is_replaced = entry.is_some();
        if let Some(entry) = entry {
            (entry.key, entry.made) = (Arc::clone(key), now);
            entry.proven = Arc::clone(proven);
        }
        is_replaced
    }

    /// Removes a key that another one replaces.
    pub(super) fn forget(&self, number: KeyNumber) {
        self.lock().keys.retain(|entry| entry.number != number);
    }

    /// A connection uses the key of an identity. Returns its number, if there is one still.
    pub(super) fn connected(&self, identity: &Identity) -> Option<KeyNumber> {
        let mut entries = self.lock();
        let mut keys = entries.keys.iter_mut();
        let entry = keys.find(|entry| entry.is_named(identity))?;
        entry.connections += 1;
        Some(entry.number)
    }

    /// A connection of an association has ended. The last one ends its key.
    pub(super) fn disconnected(&self, number: KeyNumber) {
        let mut entries = self.lock();
        if let Some(entry) = entries.find(number) {
            entry.connections = entry.connections.saturating_sub(1);
            if !entry.is_in_use() {
                entries.keys.retain(|entry| entry.number != number);
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
            .keys
            .iter()
            .filter(|entry| entry.is_of(identity))
            .filter(|entry| entry.is_valid(now) && *entry.proven == *current)
            .map(|entry| Arc::clone(&entry.key))
            .collect()
    }

    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entries {
    fn find(&mut self, number: KeyNumber) -> Option<&mut Entry> {
        self.keys.iter_mut().find(|entry| entry.number == number)
    }
}

impl Entry {
    fn is_in_use(&self) -> bool {
        self.connections > 0
    }

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

    fn key(byte: u8) -> Arc<Key> {
        Arc::new(Key::generated(&[byte; 32]).expect("a key"))
    }

    fn owner<'a>(host: &'a HostName, proven: &Arc<DhChapDefinition>) -> KeyOwner<'a> {
        KeyOwner {
            host,
            subsystem_nqn: SUBSYSTEM,
            proven: Arc::clone(proven),
        }
    }

    #[test]
    fn a_key_ends_with_its_association_or_when_another_replaces_it() {
        let proven = proven("DHHC-1:01:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:");
        let host: HostName = "nqn.2014-08.org.example:host".parse().expect("a name");
        let (keys, now) = (GeneratedKeys::default(), Instant::now());
        let owner = owner(&host, &proven);
        let [_, second] = [1, 2].map(|byte| keys.keep(&owner, &key(byte), now));
        let found = || keys.of(&identity(&host), &proven, now);
        let name = |byte| key(byte).identity(host.as_str(), SUBSYSTEM);
        // An admin queue and an I/O queue.
        let [admin, io] = [(); 2].map(|()| keys.connected(&name(1)).expect("a key"));
        assert_eq!(admin, io);
        keys.disconnected(io);
        assert_eq!(found(), [key(1), key(2)]);
        keys.disconnected(admin);
        assert_eq!(found(), [key(2)]);
        // Connections with keys that a user configured count for nothing.
        let mut configured = name(2);
        configured.source = Source::Configured;
        assert_eq!(keys.connected(&configured), None);
        keys.forget(second);
        assert_eq!(found(), []);
    }

    #[test]
    fn a_key_that_is_replaced_admits_no_one_and_its_association_goes_on() {
        let old = proven("DHHC-1:01:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:");
        let new = Arc::new(Credentials {
            group: GroupPolicy::NoGroup,
            ..(*old).clone()
        });
        let host: HostName = "nqn.2014-08.org.example:host".parse().expect("a name");
        let (keys, now) = (GeneratedKeys::default(), Instant::now());
        let found = |proven, now| keys.of(&identity(&host), proven, now);
        let name = |byte| key(byte).identity(host.as_str(), SUBSYSTEM);
        keys.keep(&owner(&host, &old), &key(1), now);
        let [admin, io] = [(); 2].map(|()| keys.connected(&name(1)).expect("a key"));
        // It may be replaced when it is too old for new connections, and its time begins anew.
        let late = now + GeneratedKeys::LIFETIME;
        keys.keep(&owner(&host, &old), &key(9), late);
        assert!(keys.replace(admin, &new, &key(2), late));
        assert_eq!(found(&old, late), [key(9)]);
        assert_eq!(found(&new, late), [key(2)]);
        assert_eq!(keys.connected(&name(1)), None);
        // The I/O queue that used the former key keeps the new one.
        keys.disconnected(admin);
        assert_eq!(found(&new, late), [key(2)]);
        keys.disconnected(io);
        assert_eq!(found(&new, late), []);
        assert!(!keys.replace(io, &new, &key(3), late));
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
        keys.keep(&owner(&other, &old), &key(200), now);
        for byte in 0..100 {
            keys.keep(&owner(&host, &old), &key(byte), now);
            // The keys of another target are keys of the host, too.
            let subsystem_nqn = "another";
            let owner = owner(&host, &old);
            keys.keep(
                &KeyOwner {
                    subsystem_nqn,
                    ..owner
                },
                &key(byte),
                now,
            );
        }
        let found = keys.of(&identity(&host), &old, now);
        assert_eq!(found.len(), GeneratedKeys::OF_HOST_MAX / 2);
        assert!(found.contains(&key(99)), "the newest");
        assert!(keys.of(&identity(&host), &new, now).is_empty());
        // No host pushes out the keys of another one.
        assert_eq!(keys.of(&identity(&other), &old, now).len(), 1);
        let late = now + GeneratedKeys::LIFETIME;
        assert!(keys.of(&identity(&host), &old, late).is_empty());
        for number in 0..GeneratedKeys::ALL_MAX {
            let name = format!("{other}{number}").parse().expect("a name");
            keys.keep(&owner(&name, &old), &key(1), now);
        }
        let entries = keys.lock().keys.len();
        assert_eq!(entries, GeneratedKeys::ALL_MAX);
    }
}
