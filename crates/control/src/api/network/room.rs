//! How many connections there are at once. If there is no room for one more, one of those ends that have not
//! sent a valid token yet, of the address that has most of them.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::future;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

/// The most connections at once.
pub(in crate::api) const CONNECTIONS_MAX: usize = 256;
/// How long an evicted connection may take to free its place.
const EVICTION_TIMEOUT: Duration = Duration::from_secs(1);
/// An IPv6 network of one customer or link has this prefix.
const IPV6_PREFIX_BITS: u32 = 64;

/// Places for connections.
#[derive(Debug)]
pub(super) struct Room {
    places: Arc<Semaphore>,
    unproven: Unproven,
    next: u64,
}

/// The connections that have not sent a valid token, by their number, which is in the order of their start.
type Unproven = Arc<Mutex<BTreeMap<u64, Stranger>>>;

#[derive(Debug)]
struct Stranger {
    network: IpAddr,
    evict: oneshot::Sender<()>,
}

/// A place for a connection until it drops.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) identity: Unidentified,
    evicted: oneshot::Receiver<()>,
    _permit: OwnedSemaphorePermit,
}

/// A connection as long as it has not sent a valid token.
#[derive(Clone, Debug)]
pub(in crate::api) struct Unidentified(Arc<Number>);

#[derive(Debug)]
struct Number {
    number: u64,
    unproven: Unproven,
}

impl Room {
    pub(super) fn new() -> Self {
        Self {
            places: Arc::new(Semaphore::new(CONNECTIONS_MAX)),
            unproven: Arc::default(),
            next: 0,
        }
    }

    /// A place for a connection from `peer`. `None` if all are taken by connections that have sent a valid
    /// token.
    pub(super) async fn enter(&mut self, peer: IpAddr) -> Option<Entry> {
        let permit = match Arc::clone(&self.places).try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => self.evict_one().await?,
        };
        let number = self.next;
        self.next += 1;
        let (evict, evicted) = oneshot::channel();
        let network = network_of(peer);
        lock(&self.unproven).insert(number, Stranger { network, evict });
        let unproven = Arc::clone(&self.unproven);
        Some(Entry {
            identity: Unidentified(Arc::new(Number { number, unproven })),
            evicted,
            _permit: permit,
        })
    }

    async fn evict_one(&self) -> Option<OwnedSemaphorePermit> {
        {
            let mut unproven = lock(&self.unproven);
            let number = oldest_of_the_greediest(&unproven)?;
            // A connection that ends at the same moment frees its place, too.
            let _ = unproven.remove(&number)?.evict.send(());
        }
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
            // The connection has sent a valid token and stays.
            future::pending::<()>().await;
        }
    }
}

impl Unidentified {
    /// The connection has sent a valid token, and is not evicted any more.
    pub(in crate::api) fn identified(&self) {
        lock(&self.0.unproven).remove(&self.0.number);
    }
}

impl Drop for Number {
    fn drop(&mut self) {
        lock(&self.unproven).remove(&self.number);
    }
}

fn lock(unproven: &Unproven) -> MutexGuard<'_, BTreeMap<u64, Stranger>> {
    unproven.lock().unwrap_or_else(PoisonError::into_inner)
}

fn oldest_of_the_greediest(unproven: &BTreeMap<u64, Stranger>) -> Option<u64> {
    let mut networks: BTreeMap<IpAddr, (usize, u64)> = BTreeMap::new();
    for (&number, stranger) in unproven {
        let (count, _) = networks.entry(stranger.network).or_insert((0, number));
        *count += 1;
    }
    let networks = networks.into_values();
    let greediest = networks.max_by_key(|&(count, oldest)| (count, Reverse(oldest)));
    greediest.map(|(_, oldest)| oldest)
}

/// The address, or an IPv6 address's network, all of whose addresses one machine may have.
fn network_of(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) => {
            let mask = u128::MAX << (u128::BITS - IPV6_PREFIX_BITS);
            IpAddr::V6((address.to_bits() & mask).into())
        }
        address @ IpAddr::V4(_) => address,
    }
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

    #[test]
    fn a_connection_with_a_valid_token_is_never_evicted() {
        run(async {
            let mut room = Room::new();
            let mut entries = Vec::new();
            for _ in 0..CONNECTIONS_MAX {
                let entry = room.enter(address("192.0.2.1")).await.expect("room");
                entry.identity.identified();
                entries.push(entry);
            }
            assert!(room.enter(address("192.0.2.9")).await.is_none());
            assert!(!is_evicted(&mut entries[0]).await);
            entries.pop();
            assert!(room.enter(address("192.0.2.9")).await.is_some());
            assert!(lock(&room.unproven).is_empty());
        });
    }

    #[test]
    fn addresses_of_one_ipv6_network_count_as_one() {
        let [first, second] = ["2001:db8::1", "2001:db8::ffff:1"].map(address);
        assert_eq!(network_of(first), network_of(second));
        assert_ne!(network_of(first), network_of(address("2001:db8:0:1::1")));
        let [mapped, plain] = ["::ffff:192.0.2.1", "192.0.2.1"].map(address);
        assert_eq!(network_of(mapped), plain);
        assert_ne!(plain, network_of(address("192.0.2.2")));
    }
}
