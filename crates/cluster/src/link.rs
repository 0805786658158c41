//! How daemons ask each other: JSON over HTTP/1.1 and TLS, where both ends prove that they hold the
//! token. Someone without it does not get past the handshake. Each request has a connection of its
//! own.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use block::{Stranger, network_of, oldest_of_the_greediest};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustls::ServerConfig;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

use crate::client_tls::ClientTls;
use crate::connection::{Connection, Fault};
use crate::url::EtcdUrl;

/// Connections of nodes that are served at once; others wait.
const CONNECTIONS_MAX: usize = 64;
/// Handshakes at once. With more, the oldest of the network that has most of them ends.
const HANDSHAKES_MAX: usize = 64;
/// How long a handshake may take.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(5);
/// How long a connection may last.
const CONNECTION_LIMIT: Duration = Duration::from_secs(120);
/// How long a request's header may take.
const HEADER_LIMIT: Duration = Duration::from_secs(5);
/// Pause after an error of `accept`, such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);
/// The longest answer.
const ANSWER_MAX_BYTES: usize = 1 << 20;

/// Why another daemon did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// It does not answer.
    #[error(
        "no daemon of the cluster answers at {address}: {reason}; start one there with `ramport serve --cluster {address} --cluster-token-file FILE`, with the same token"
    )]
    Unreachable {
        /// Where it was looked for.
        address: SocketAddr,
        /// What happened.
        reason: String,
    },
    /// It refuses.
    #[error("the daemon at {address} refuses: {message}")]
    Refused {
        /// Where it is.
        address: SocketAddr,
        /// Its reason.
        message: String,
    },
    /// Its answer has no known form.
    #[error(
        "the answer of the daemon at {address} is not understood; use the same version on all machines"
    )]
    NotUnderstood {
        /// Where it is.
        address: SocketAddr,
    },
}

/// Sends a request and waits for the answer, at most `limit`.
pub(crate) async fn ask<T: DeserializeOwned>(
    tls: &ClientTls,
    address: SocketAddr,
    path: &str,
    request: &impl Serialize,
    limit: Duration,
) -> Result<T, LinkError> {
    let url = EtcdUrl::https(address.ip().to_string(), address.port());
    let body = serde_json::to_vec(request).expect("requests are structs that serialise");
    let exchange = async {
        let mut connection = Connection::open(&url, Some(tls)).await?;
        connection
            .exchange(&url, path, &body, ANSWER_MAX_BYTES)
            .await
    };
    let answer = match timeout(limit, exchange).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(Fault::Refused { message })) => {
            return Err(LinkError::Refused { address, message });
        }
        Ok(Err(fault)) => {
            let reason = fault.to_string();
            return Err(LinkError::Unreachable { address, reason });
        }
        Err(_) => {
            let reason = format!("no answer within {} s", limit.as_secs());
            return Err(LinkError::Unreachable { address, reason });
        }
    };
    serde_json::from_slice(&answer).map_err(|_| LinkError::NotUnderstood { address })
}

/// What the connections of one listener share.
struct Server {
    acceptor: TlsAcceptor,
    router: Router,
    places: Semaphore,
    /// Peers whose handshake is not complete, by their order: where they are, and what ends them.
    strangers: Mutex<BTreeMap<u64, (IpAddr, AbortHandle)>>,
}

/// Serves `router` until it is dropped.
pub(crate) async fn serve(listener: TcpListener, tls: Arc<ServerConfig>, router: Router) {
    let server = Arc::new(Server {
        acceptor: TlsAcceptor::from(tls),
        router,
        places: Semaphore::new(CONNECTIONS_MAX),
        strangers: Mutex::default(),
    });
    let mut connections = JoinSet::new();
    for number in 0.. {
        while connections.try_join_next().is_some() {}
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection of another node");
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let mut strangers = server.strangers();
        if strangers.len() >= HANDSHAKES_MAX {
            end_one(&mut strangers);
        }
        let conversation = Arc::clone(&server).converse(number, stream, peer);
        let task = connections.spawn(async move {
            let _ = timeout(CONNECTION_LIMIT, conversation).await;
        });
        // The task waits for this lock before it takes the entry out.
        strangers.insert(number, (network_of(peer.ip()), task));
    }
}

/// Makes room for a handshake.
fn end_one(strangers: &mut BTreeMap<u64, (IpAddr, AbortHandle)>) {
    let all = strangers.iter().map(|(number, (network, _))| Stranger {
        number: *number,
        network: *network,
        held: 1,
    });
    let oldest = oldest_of_the_greediest(all);
    if let Some((_, task)) = oldest.and_then(|number| strangers.remove(&number)) {
        task.abort();
    }
}

impl Server {
    fn strangers(&self) -> MutexGuard<'_, BTreeMap<u64, (IpAddr, AbortHandle)>> {
        self.strangers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers the request of one connection, if its peer holds the token.
    async fn converse(self: Arc<Self>, number: u64, stream: TcpStream, peer: SocketAddr) {
        let greeted = timeout(HANDSHAKE_LIMIT, self.acceptor.accept(stream)).await;
        self.strangers().remove(&number);
        let stream = match greeted {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => {
                tracing::warn!(target: "audit", %peer, %error, "rejected a connection of a node that does not hold the token");
                return;
            }
            Err(_) => return,
        };
        let _place = self.places.acquire().await;
        let served = http1::Builder::new()
            .keep_alive(false)
            .timer(TokioTimer::new())
            .header_read_timeout(HEADER_LIMIT)
            .serve_connection(
                TokioIo::new(stream),
                TowerToHyperService::new(self.router.clone()),
            )
            .await;
        if let Err(error) = served {
            tracing::debug!(%peer, %error, "a connection of another node broke");
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::routing::post;

    use super::*;
    use crate::certificates::{Authority, Subject, client, server};

    #[tokio::test]
    async fn strangers_that_say_nothing_do_not_keep_a_node_from_being_served() {
        let address: IpAddr = "127.0.0.1".parse().expect("an address");
        let identity = Authority::create("a")
            .and_then(|authority| {
                authority.issue(&Subject {
                    address,
                    names: &[],
                })
            })
            .expect("made");
        let listener = TcpListener::bind((address, 0)).await.expect("a free port");
        let at = listener.local_addr().expect("its address");
        let router = Router::new().route("/v1/name", post(|| async { "\"a\"" }));
        tokio::spawn(serve(listener, server(&identity).expect("made"), router));
        let mut strangers = Vec::new();
        for _ in 0..2 * HANDSHAKES_MAX {
            strangers.push(TcpStream::connect(at).await.expect("accepted"));
        }
        let tls = client(&identity).expect("made");
        // Strangers are given up only after `HANDSHAKE_LIMIT`.
        let limit = HANDSHAKE_LIMIT / 2;
        let answer: String = ask(&tls, at, "/v1/name", &(), limit).await.expect("served");
        assert_eq!(answer, "a");
        drop(strangers);
    }
}
