//! A client of etcd over its JSON gateway (HTTP/1.1): keys, transactions, leases, watches, members.
//!
//! Read first: etcd's "gRPC gateway" (version 3.4) and its `rpc.proto`.
//!
//! A request goes to one endpoint after another until one answers. A request that changes something
//! and that was sent without an answer is not repeated: whether it was executed is not known, and
//! the error says so.

mod error;
mod members;
mod watch;
mod wire;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::client_tls::ClientTls;
use crate::connection::{Connection, Fault};
use crate::url::EtcdUrl;
pub use error::EtcdError;
pub use members::Member;
pub use watch::{Change, Watch};
use wire::{
    Bytes, Compare, DeleteRangeRequest, Int, KeyValue, LeaseGrantRequest, LeaseRequest,
    LeaseResponse, PutRequest, RangeRequest, RangeResponse, RequestOp, Streamed, TxnRequest,
    TxnResponse,
};

/// How long one endpoint may take to answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(3);
/// The longest answer.
const ANSWER_MAX_BYTES: usize = 16 << 20;
/// Connections that are kept for later requests.
const IDLE_MAX: usize = 4;
/// Entries that one request returns.
const PAGE_ENTRIES: i64 = 1_000;
/// Entries that a list may have.
const LIST_MAX_ENTRIES: usize = 1_000_000;

/// The client. Its clones share connections. Its methods need a runtime of tokio.
#[derive(Clone, Debug)]
pub struct Etcd(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    endpoints: Mutex<Vec<EtcdUrl>>,
    /// The place in `endpoints` of the one that answered last.
    current: AtomicUsize,
    tls: Option<ClientTls>,
    idle: Mutex<Vec<(EtcdUrl, Connection)>>,
}

/// A key with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// The value.
    pub value: Vec<u8>,
    /// The revision of the store that wrote the value.
    pub revision: i64,
    /// The lease that the key ends with.
    pub lease: Option<Lease>,
}

/// A lease by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease(i64);

/// Changes that are made together if all conditions hold.
#[derive(Debug, Default)]
pub struct Txn {
    compares: Vec<Compare>,
    changes: Vec<RequestOp>,
}

/// What became of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TxnOutcome {
    /// The changes were made, in this revision of the store.
    Made {
        /// The revision.
        revision: i64,
    },
    /// A condition did not hold; nothing was changed.
    ConditionFailed,
}

impl Txn {
    /// A transaction without conditions.
    pub fn new() -> Self {
        Self::default()
    }

    /// Only if `key` does not exist.
    #[must_use]
    pub fn if_absent(mut self, key: &str) -> Self {
        self.compares.push(Compare {
            create_revision: Some(Int(0)),
            ..compare(key, "CREATE")
        });
        self
    }

    /// Only if the value of `key` is the one that `revision` wrote.
    #[must_use]
    pub fn if_revision(mut self, key: &str, revision: i64) -> Self {
        self.compares.push(Compare {
            mod_revision: Some(Int(revision)),
            ..compare(key, "MOD")
        });
        self
    }

    /// Sets a key.
    #[must_use]
    pub fn put(self, key: &str, value: impl Into<Vec<u8>>) -> Self {
        self.put_with(key, value.into(), Int(0))
    }

    /// Sets a key that ends with `lease`.
    #[must_use]
    pub fn put_leased(self, key: &str, value: impl Into<Vec<u8>>, lease: Lease) -> Self {
        self.put_with(key, value.into(), Int(lease.0))
    }

    fn put_with(mut self, key: &str, value: Vec<u8>, lease: Int) -> Self {
        self.changes.push(RequestOp {
            put: Some(PutRequest {
                key: bytes(key),
                value: Bytes(value),
                lease,
            }),
            delete: None,
        });
        self
    }

    /// Removes a key, if it exists.
    #[must_use]
    pub fn delete(self, key: &str) -> Self {
        self.delete_range(bytes(key), None)
    }

    /// Removes all keys that begin with `prefix`.
    #[must_use]
    pub fn delete_prefix(self, prefix: &str) -> Self {
        self.delete_range(bytes(prefix), Some(end_of(prefix)))
    }

    fn delete_range(mut self, key: Bytes, range_end: Option<Bytes>) -> Self {
        let delete = DeleteRangeRequest { key, range_end };
        self.changes.push(RequestOp {
            put: None,
            delete: Some(delete),
        });
        self
    }
}

fn compare(key: &str, target: &'static str) -> Compare {
    Compare {
        key: bytes(key),
        target,
        result: "EQUAL",
        mod_revision: None,
        create_revision: None,
    }
}

/// Whether a request may be sent again when it is not known whether it was executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Repeat {
    Safe,
    Unsafe,
}

impl Etcd {
    /// A client of the etcd at `endpoints`; nothing is sent yet. URLs with `https` need `tls`.
    pub fn new(endpoints: Vec<EtcdUrl>, tls: Option<ClientTls>) -> Self {
        Self(Arc::new(Inner {
            endpoints: Mutex::new(endpoints),
            current: AtomicUsize::new(0),
            tls,
            idle: Mutex::default(),
        }))
    }

    /// Where requests are sent.
    pub fn endpoints(&self) -> Vec<EtcdUrl> {
        locked(&self.0.endpoints).clone()
    }

    /// Replaces the endpoints, since members were added or removed.
    pub fn set_endpoints(&self, endpoints: Vec<EtcdUrl>) {
        *locked(&self.0.endpoints) = endpoints;
    }

    /// Reads a key. The answer is not older than the request.
    pub async fn get(&self, key: &str) -> Result<Option<Entry>, EtcdError> {
        let request = RangeRequest {
            key: bytes(key),
            ..RangeRequest::default()
        };
        let answer: RangeResponse = self.ask(Repeat::Safe, "/v3/kv/range", &request).await?;
        answer.kvs.into_iter().next().map(entry).transpose()
    }

    /// Reads all keys that begin with `prefix`, as they are at one moment, and the revision of the
    /// store then.
    pub async fn list(&self, prefix: &str) -> Result<(Vec<Entry>, i64), EtcdError> {
        let mut request = RangeRequest {
            key: bytes(prefix),
            range_end: Some(end_of(prefix)),
            limit: Int(PAGE_ENTRIES),
            revision: Int(0),
        };
        let mut entries = Vec::new();
        loop {
            let answer: RangeResponse = self.ask(Repeat::Safe, "/v3/kv/range", &request).await?;
            if request.revision == Int(0) {
                request.revision = answer.header.revision;
            }
            let last = answer.kvs.last().map(|last| last.key.0.clone());
            for found in answer.kvs {
                entries.push(entry(found)?);
            }
            let Some(mut next) = last.filter(|_| answer.more) else {
                return Ok((entries, request.revision.0));
            };
            // The smallest key after the last one. Hostile endpoints could answer without an end.
            next.push(0);
            if next <= request.key.0 || entries.len() >= LIST_MAX_ENTRIES {
                return Err(EtcdError::NotUnderstood {
                    what: "/v3/kv/range",
                });
            }
            request.key = Bytes(next);
        }
    }

    /// Makes changes together.
    pub async fn commit(&self, txn: Txn) -> Result<TxnOutcome, EtcdError> {
        let request = TxnRequest {
            compare: txn.compares,
            success: txn.changes,
        };
        let answer: TxnResponse = self.ask(Repeat::Unsafe, "/v3/kv/txn", &request).await?;
        Ok(if answer.succeeded {
            let revision = answer.header.revision.0;
            TxnOutcome::Made { revision }
        } else {
            TxnOutcome::ConditionFailed
        })
    }

    /// A lease that ends `ttl` after it was last kept alive; whole seconds.
    pub async fn grant_lease(&self, ttl: Duration) -> Result<Lease, EtcdError> {
        let seconds = i64::try_from(ttl.as_secs()).unwrap_or(i64::MAX);
        let request = LeaseGrantRequest { ttl: Int(seconds) };
        // One that is granted and never used ends by itself.
        let answer: LeaseResponse = self.ask(Repeat::Safe, "/v3/lease/grant", &request).await?;
        Ok(Lease(answer.id.0))
    }

    /// Keeps a lease alive. Returns whether it still exists.
    pub async fn keep_alive(&self, lease: Lease) -> Result<bool, EtcdError> {
        let request = LeaseRequest { id: Int(lease.0) };
        let path = "/v3/lease/keepalive";
        let answer: Streamed<LeaseResponse> = self.ask(Repeat::Safe, path, &request).await?;
        Ok(answer.result.ttl.0 > 0)
    }

    /// Ends a lease and its keys.
    pub async fn revoke(&self, lease: Lease) -> Result<(), EtcdError> {
        let request = LeaseRequest { id: Int(lease.0) };
        let done: Result<wire::Empty, _> =
            self.ask(Repeat::Safe, "/v3/lease/revoke", &request).await;
        done.map(drop)
    }

    /// Follows changes of keys that begin with `prefix`, from `revision` on.
    pub async fn watch(&self, prefix: &str, revision: i64) -> Result<Watch, EtcdError> {
        let mut last = EtcdError::NoEndpoint;
        for (at, url) in self.in_turn() {
            let opened = async {
                let connection = Connection::open(&url, self.0.tls.as_ref()).await?;
                Watch::open(connection, &url, prefix, revision).await
            };
            match within(ANSWER_LIMIT, opened).await {
                Ok(watch) => {
                    self.0.current.store(at, Ordering::Relaxed);
                    return Ok(watch);
                }
                Err(fault) => last = unreachable(&url, &fault),
            }
        }
        Err(last)
    }

    /// Sends a request to one endpoint after another until one answers.
    async fn ask<T: DeserializeOwned>(
        &self,
        repeat: Repeat,
        path: &'static str,
        request: &impl Serialize,
    ) -> Result<T, EtcdError> {
        let body = serde_json::to_vec(request).expect("requests are structs that serialise");
        let mut last = EtcdError::NoEndpoint;
        for (at, url) in self.in_turn() {
            match self.exchange(&url, path, &body).await {
                Ok(answer) => {
                    self.0.current.store(at, Ordering::Relaxed);
                    return serde_json::from_slice(&answer)
                        .map_err(|_| EtcdError::NotUnderstood { what: path });
                }
                Err(Fault::Refused { message, .. }) => {
                    return Err(EtcdError::Refused { message });
                }
                Err(fault) if fault.may_be_executed() && repeat == Repeat::Unsafe => {
                    let reason = fault.to_string();
                    return Err(EtcdError::OutcomeUnknown { url, reason });
                }
                Err(fault) => last = unreachable(&url, &fault),
            }
        }
        Err(last)
    }

    /// The endpoints, beginning with the one that answered last.
    fn in_turn(&self) -> Vec<(usize, EtcdUrl)> {
        let endpoints = self.endpoints();
        let first = self.0.current.load(Ordering::Relaxed);
        let len = endpoints.len();
        let places = (0..len).map(|at| (first + at) % len);
        places.map(|at| (at, endpoints[at].clone())).collect()
    }

    async fn exchange(
        &self,
        url: &EtcdUrl,
        path: &'static str,
        body: &[u8],
    ) -> Result<Vec<u8>, Fault> {
        if let Some(connection) = self.idle(url) {
            match self.on(connection, url, path, body).await {
                // The server has closed the connection meanwhile.
                Err(Fault::NotSent(_)) => {}
                other => return other,
            }
        }
        let open = Connection::open(url, self.0.tls.as_ref());
        let connection = within(ANSWER_LIMIT, open).await;
        let connection = connection.map_err(|fault| Fault::NotSent(fault.to_string()))?;
        self.on(connection, url, path, body).await
    }

    async fn on(
        &self,
        mut connection: Connection,
        url: &EtcdUrl,
        path: &'static str,
        body: &[u8],
    ) -> Result<Vec<u8>, Fault> {
        let answer = connection.exchange(url, path, body, ANSWER_MAX_BYTES);
        let answer = within(ANSWER_LIMIT, answer).await?;
        let mut idle = locked(&self.0.idle);
        if idle.len() < IDLE_MAX {
            idle.push((url.clone(), connection));
        }
        Ok(answer)
    }

    fn idle(&self, url: &EtcdUrl) -> Option<Connection> {
        let mut idle = locked(&self.0.idle);
        let at = idle.iter().position(|(other, _)| other == url)?;
        Some(idle.swap_remove(at).1)
    }
}

/// Limits the time of an exchange. What may have been sent by then may be executed.
async fn within<T>(
    limit: Duration,
    work: impl Future<Output = Result<T, Fault>>,
) -> Result<T, Fault> {
    match tokio::time::timeout(limit, work).await {
        Ok(done) => done,
        Err(_) => Err(Fault::Lost(format!(
            "no answer within {} s",
            limit.as_secs()
        ))),
    }
}

fn unreachable(url: &EtcdUrl, fault: &Fault) -> EtcdError {
    EtcdError::Unreachable {
        url: url.clone(),
        reason: fault.to_string(),
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn bytes(text: &str) -> Bytes {
    Bytes(text.as_bytes().to_vec())
}

/// The first key after those that begin with `prefix`, which is text: its last byte is below 255.
fn end_of(prefix: &str) -> Bytes {
    let mut end = prefix.as_bytes().to_vec();
    match end.last_mut() {
        Some(last) => *last += 1,
        // A single zero stands for the end of all keys.
        None => end.push(0),
    }
    Bytes(end)
}

fn entry(found: KeyValue) -> Result<Entry, EtcdError> {
    let key = String::from_utf8(found.key.0);
    let key = key.map_err(|_| EtcdError::NotUnderstood { what: "a key" })?;
    Ok(Entry {
        key,
        value: found.value.0,
        revision: found.mod_revision.0,
        lease: (found.lease.0 != 0).then_some(Lease(found.lease.0)),
    })
}
