//! How daemons ask each other: JSON over HTTP/1.1 and TLS, where both ends prove that they hold the
//! token. Someone without it does not get past the handshake. Each request has a connection of its
//! own.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustls::ServerConfig;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

use crate::client_tls::ClientTls;
use crate::connection::{Connection, Fault};
use crate::url::EtcdUrl;

/// Connections at once; others wait in the system's queue.
const CONNECTIONS_MAX: usize = 64;
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

/// Serves `router` until it is dropped.
pub(crate) async fn serve(listener: TcpListener, tls: Arc<ServerConfig>, router: Router) {
    let acceptor = TlsAcceptor::from(tls);
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let permit = Arc::clone(&room).acquire_owned().await;
        let permit = permit.expect("the semaphore is never closed");
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection of another node");
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let (acceptor, router) = (acceptor.clone(), router.clone());
        connections.spawn(async move {
            let _permit = permit;
            let _ = timeout(CONNECTION_LIMIT, converse(&acceptor, stream, peer, router)).await;
        });
    }
}

async fn converse(acceptor: &TlsAcceptor, stream: TcpStream, peer: SocketAddr, router: Router) {
    let stream = match timeout(HANDSHAKE_LIMIT, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            tracing::warn!(target: "audit", %peer, %error, "rejected a connection of a node that does not hold the token");
            return;
        }
        Err(_) => return,
    };
    let served = http1::Builder::new()
        .keep_alive(false)
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_LIMIT)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router))
        .await;
    if let Err(error) = served {
        tracing::debug!(%peer, %error, "a connection of another node broke");
    }
}
