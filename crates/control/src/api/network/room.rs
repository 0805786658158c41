//! How many connections there are at once, and which one ends if there is no room for one more: one
//! of those that have not sent a valid token yet, of the address that has most of them; else the
//! one that is idle for longest, of the token that has most.

use std::collections::BTreeMap;
use std::future;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use block::{Stranger, network_of, oldest_of_the_greediest};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

/// The most connections at once.
pub(in crate::api) const CONNECTIONS_MAX: usize = 256;
/// The most connections at once whose last request had the same token.
pub(in crate::api) const OF_TOKEN_MAX: usize = CONNECTIONS_MAX / 2;
/// How long an evicted connection may take to free its place.
const EVICTION_TIMEOUT: Duration = Duration::from_secs(1);

/// Places for connections.
#[derive(Debug)]
pub(super) struct Room {
    places: Arc<Semaphore>,
    connections: Connections,
}

type Connections = Arc<Mutex<List>>;

/// The connections by their number, which is in the order of their start. One that is evicted is in
/// the list no more.
#[derive(Debug, Default)]
struct List {
    connections: BTreeMap<u64, ApiConnection>,
    /// The next number of a connection, and of a request.
    next: u64,
}

#[derive(Debug)]
struct ApiConnection {
    network: IpAddr,
    /// The token of its last request; `None` if none was valid.
    token: Option<String>,
    /// Requests in progress.
    requests: usize,
    /// The number of its last request.
    last_request: u64,
    evict: oneshot::Sender<()>,
}

/// A place for a connection until it drops.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) membership: Membership,
    evicted: oneshot::Receiver<()>,
    _permit: OwnedSemaphorePermit,
}

/// A connection's place in the list, until it and its requests drop.
#[derive(Clone, Debug)]
pub(in crate::api) struct Membership(Arc<Number>);

#[derive(Debug)]
struct Number {
    number: u64,
    connections: Connections,
}

/// A request in progress, until it drops: its connection is not idle.
#[derive(Debug)]
pub(in crate::api) struct InProgress(Membership);

/// A token has so many connections with requests in progress that it gets no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::api) struct TooMany;

impl Room {
    pub(super) fn new() -> Self {
        Self {
            places: Arc::new(Semaphore::new(CONNECTIONS_MAX)),
            connections: Arc::default(),
        }
    }

    /// A place for a connection from `peer`. `None` if all are taken by connections with requests
    /// in progress.
    pub(super) async fn enter(&mut self, peer: IpAddr) -> Option<Entry> {
        let permit = match Arc::clone(&self.places).try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => self.evict_one().await?,
        };
        let (evict, evicted) = oneshot::channel();
        let number = lock(&self.connections).add(network_of(peer), evict);
        let connections = Arc::clone(&self.connections);
        Some(Entry {
            membership: Membership(Arc::new(Number {
                number,
                connections,
            })),
            evicted,
            _permit: permit,
        })
    }

    async fn evict_one(&self) -> Option<OwnedSemaphorePermit> {
        lock(&self.connections).evict_one()?;
        let freed = Arc::clone(&self.places).acquire_owned();
        tokio::time::timeout(EVICTION_TIMEOUT, freed)
            .await
            .ok()?
            .ok()
    }
}

impl Entry {
    /// Ends when the connection has to make room.
    pub(super) async fn evicted(&mut self) {
        if (&mut self.evicted).await.is_err() {
            // It has left the list, since it ends.
            future::pending::<()>().await;
        }
    }
}

impl Membership {
    /// A request with a valid token begins. If the token has too many connections, another of them
    /// makes room, which is idle.
    pub(in crate::api) fn begin(&self, token: &str) -> Result<InProgress, TooMany> {
        let mut connections = lock(&self.0.connections);
        connections.begin(self.0.number, token)?;
        Ok(InProgress(self.clone()))
    }

    /// A request had no valid token, or no longer.
    pub(in crate::api) fn reject(&self) {
        if let Some(connection) = lock(&self.0.connections)
            .connections
            .get_mut(&self.0.number)
        {
            connection.token = None;
        }
    }
}

impl Drop for InProgress {
    fn drop(&mut self) {
        let Membership(connection) = &self.0;
        if let Some(connection) = lock(&connection.connections)
            .connections
            .get_mut(&connection.number)
        {
            connection.requests = connection.requests.saturating_sub(1);
        }
    }
}

impl Drop for Number {
    fn drop(&mut self) {
        lock(&self.connections).connections.remove(&self.number);
    }
}

impl List {
    fn add(&mut self, network: IpAddr, evict: oneshot::Sender<()>) -> u64 {
        let number = self.count();
        let connection = ApiConnection {
            network,
            token: None,
            requests: 0,
            last_request: number,
            evict,
        };
        self.connections.insert(number, connection);
        number
    }

    fn count(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn begin(&mut self, number: u64, token: &str) -> Result<(), TooMany> {
        let is_of_token = |connection: &ApiConnection| connection.token.as_deref() == Some(token);
        let others = self.connections.iter();
        let others =
            others.filter(|&(&other, connection)| other != number && is_of_token(connection));
        if others.count() >= OF_TOKEN_MAX {
            let idle =
                self.longest_idle(|other, connection| other != number && is_of_token(connection));
            self.evict(idle.ok_or(TooMany)?);
        }
        let last_request = self.count();
        // One that is evicted ends at once.
        if let Some(connection) = self.connections.get_mut(&number) {
            connection.token = Some(token.to_owned());
            connection.requests += 1;
            connection.last_request = last_request;
        }
        Ok(())
    }

    /// `None` if all connections have requests in progress.
    fn evict_one(&mut self) -> Option<()> {
        let number = self
            .oldest_of_the_greediest_network()
            .or_else(|| self.longest_idle_of_the_greediest_token())?;
        self.evict(number);
        Some(())
    }

    fn evict(&mut self, number: u64) {
        if let Some(connection) = self.connections.remove(&number) {
            // A connection that ends at the same moment frees its place, too.
            let _ = connection.evict.send(());
        }
    }

    fn oldest_of_the_greediest_network(&self) -> Option<u64> {
        let strangers = self.connections.iter();
        let strangers = strangers.filter(|(_, connection)| connection.token.is_none());
        oldest_of_the_greediest(strangers.map(|(&number, connection)| Stranger {
            number,
            network: connection.network,
            held: 1,
        }))
    }

    /// Of the tokens that have an idle connection.
    fn longest_idle_of_the_greediest_token(&self) -> Option<u64> {
        let mut tokens: BTreeMap<&str, (usize, bool)> = BTreeMap::new();
        for connection in self.connections.values() {
            if let Some(token) = &connection.token {
                let (count, has_idle) = tokens.entry(token).or_default();
                *count += 1;
                *has_idle |= connection.requests == 0;
            }
        }
        let tokens = tokens.into_iter().filter(|(_, (_, has_idle))| *has_idle);
        let (greediest, _) = tokens.max_by_key(|(_, (count, _))| *count)?;
        self.longest_idle(|_, connection| connection.token.as_deref() == Some(greediest))
    }

    fn longest_idle(&self, is_meant: impl Fn(u64, &ApiConnection) -> bool) -> Option<u64> {
        let idle = self
            .connections
            .iter()
            .filter(|(_, connection)| connection.requests == 0);
        let idle = idle.filter(|&(&number, connection)| is_meant(number, connection));
        let longest = idle.min_by_key(|(_, connection)| connection.last_request);
        longest.map(|(&number, _)| number)
    }
}

fn lock(connections: &Connections) -> MutexGuard<'_, List> {
    connections.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build();
        runtime.expect("a runtime").block_on(test);
    }

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    async fn is_evicted(entry: &mut Entry) -> bool {
        let wait = Duration::from_millis(1);
        tokio::time::timeout(wait, entry.evicted()).await.is_ok()
    }

    #[test]
    fn the_greediest_address_makes_room_and_others_stay() {
        run(async {
            let mut room = Room::new();
            let mut other = room.enter(address("192.0.2.9")).await.expect("room");
            let mut greedy = Vec::new();
            for _ in 1..CONNECTIONS_MAX {
                greedy.push(room.enter(address("192.0.2.1")).await.expect("room"));
            }
            let mut oldest = greedy.remove(0);
            let ended = async {
                oldest.evicted().await;
                drop(oldest);
            };
            let (entry, ()) = tokio::join!(room.enter(address("192.0.2.1")), ended);
            assert!(entry.is_some());
            assert!(!is_evicted(&mut other).await);
            assert!(!is_evicted(&mut greedy[0]).await);
        });
    }

    #[test]
    fn among_addresses_with_as_many_the_oldest_makes_room() {
        run(async {
            let mut room = Room::new();
            let mut entries = Vec::new();
            for _ in 0..CONNECTIONS_MAX / 2 {
                for peer in ["192.0.2.9", "192.0.2.1"] {
                    entries.push(room.enter(address(peer)).await.expect("room"));
                }
            }
            let mut oldest = entries.remove(0);
            let ended = async {
                oldest.evicted().await;
                drop(oldest);
            };
            let (entry, ()) = tokio::join!(room.enter(address("192.0.2.2")), ended);
            assert!(entry.is_some());
            for other in &mut entries[..2] {
                assert!(!is_evicted(other).await);
            }
        });
    }

    /// Takes as many places, with a request of this token at each.
    async fn fill(room: &mut Room, count: usize, token: &str) -> Vec<(Entry, InProgress)> {
        let mut entries = Vec::new();
        for _ in 0..count {
            let entry = room.enter(address("192.0.2.1")).await.expect("room");
            let request = entry.membership.begin(token).expect("not too many");
            entries.push((entry, request));
        }
        entries
    }

    /// Enters while `evicted` ends as soon as it has to.
    async fn enter_in_place_of(room: &mut Room, mut evicted: Entry) -> Option<Entry> {
        let ended = async {
            evicted.evicted().await;
            drop(evicted);
        };
        let (entry, ()) = tokio::join!(room.enter(address("192.0.2.9")), ended);
        entry
    }

    #[test]
    fn of_connections_with_valid_tokens_the_longest_idle_of_the_greediest_makes_room() {
        run(async {
            let mut room = Room::new();
            let (few, many) = (CONNECTIONS_MAX / 2 - 1, CONNECTIONS_MAX / 2 + 1);
            let few = fill(&mut room, few, "few").await;
            let mut few: Vec<_> = few.into_iter().map(|(entry, _)| entry).collect();
            // As many as a token may have, the first two of them idle.
            let mut busy = fill(&mut room, many - 1, "many").await;
            let (last, _) = fill(&mut room, 1, "third").await.remove(0);
            let idle: Vec<_> = busy.drain(..2).map(|(entry, _)| entry).collect();
            // A later request of the first makes the second the longest idle.
            drop(idle[0].membership.begin("many").expect("not too many"));
            let [mut first, second] = idle.try_into().expect("two");
            assert!(enter_in_place_of(&mut room, second).await.is_some());
            for (other, _) in &mut busy[..2] {
                assert!(!is_evicted(other).await);
            }
            for other in [&mut first, &mut few[0]] {
                assert!(!is_evicted(other).await);
            }
            drop((last, busy));
            assert!(room.enter(address("192.0.2.9")).await.is_some());
        });
    }

    #[test]
    fn connections_with_requests_in_progress_stay() {
        run(async {
            let mut room = Room::new();
            let mut held = fill(&mut room, OF_TOKEN_MAX, "a").await;
            held.extend(fill(&mut room, OF_TOKEN_MAX, "b").await);
            assert!(room.enter(address("192.0.2.9")).await.is_none());
            assert!(!is_evicted(&mut held[0].0).await);
            held.pop();
            assert!(room.enter(address("192.0.2.9")).await.is_some());
            drop(held);
            assert!(lock(&room.connections).connections.is_empty());
        });
    }

    #[test]
    fn a_token_has_half_of_the_places_and_its_own_idle_connections_make_room() {
        run(async {
            let mut room = Room::new();
            let mut held = fill(&mut room, OF_TOKEN_MAX, "a").await;
            let entry = room.enter(address("192.0.2.1")).await.expect("room");
            assert_eq!(entry.membership.begin("a").err(), Some(TooMany));
            // A second request at a connection that it has already is none more.
            let _more = held[0].0.membership.begin("a").expect("not one more");
            let (mut idle, _) = held.pop().expect("one");
            let _request = entry.membership.begin("a").expect("one is idle");
            assert!(is_evicted(&mut idle).await);
            assert!(!is_evicted(&mut held[0].0).await);
        });
    }

    #[test]
    fn a_connection_whose_token_is_no_longer_valid_makes_room_first() {
        run(async {
            let mut room = Room::new();
            let mut held = fill(&mut room, OF_TOKEN_MAX, "a").await;
            held.extend(fill(&mut room, OF_TOKEN_MAX, "b").await);
            let (revoked, _request) = held.remove(7);
            revoked.membership.reject();
            assert!(enter_in_place_of(&mut room, revoked).await.is_some());
            assert!(!is_evicted(&mut held[0].0).await);
        });
    }
}
