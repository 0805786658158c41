//! Connections over TCP: how many there are at once, and how long each may take to begin.

mod room;

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;

use axum::Router;
use axum::extract::connect_info::ConnectInfo;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::caller::{Caller, CertificateNames};
use super::tls::{ServerTls, client_names};
use super::wait;
#[cfg(test)]
pub(super) use room::CONNECTIONS_MAX;
use room::Room;
pub(super) use room::{InProgress, Membership, OF_TOKEN_MAX, TooMany};

/// How long a TLS handshake may take.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the head of a request may take, and how long a connection may be idle.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// The pause after a connection could not be accepted, for example for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves `router` until `stopped`, and answers the requests in flight then.
pub(super) async fn serve(
    listener: TcpListener,
    tls: Option<ServerTls>,
    router: Router,
    stopped: watch::Receiver<bool>,
) -> io::Result<()> {
    let acceptor = tls.map(|tls| TlsAcceptor::from(tls.config));
    let mut room = Room::new();
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            () = wait(stopped.clone()) => break,
            Some(_) = connections.join_next() => continue,
            accepted = listener.accept() => accepted,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection of REST");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let Some(mut entry) = room.enter(peer.ip()).await else {
            tracing::warn!(%peer, "closed a connection of REST, since there are too many");
            continue;
        };
        let (acceptor, stopped) = (acceptor.clone(), stopped.clone());
        let session = Session {
            router: router.clone(),
            peer,
            membership: entry.membership.clone(),
            names: None,
        };
        connections.spawn(async move {
            let serve = async {
                match acceptor {
                    None => converse(stream, session, stopped).await,
                    Some(acceptor) => converse_by_tls(&acceptor, stream, session, stopped).await,
                }
            };
            tokio::select! {
                () = serve => {}
                () = entry.evicted() => {
                    tracing::warn!(%peer, "closed a connection of REST that had no request in progress, to make room for another one");
                }
            }
        });
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
    Ok(())
}

/// What the requests of a connection are handled with.
struct Session {
    router: Router,
    peer: SocketAddr,
    membership: Membership,
    /// With TLS, what the client's certificate proves.
    names: Option<CertificateNames>,
}

async fn converse_by_tls(
    acceptor: &TlsAcceptor,
    stream: TcpStream,
    mut session: Session,
    stopped: watch::Receiver<bool>,
) {
    let peer = session.peer;
    match tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => {
            let names = client_names(stream.get_ref().1);
            session.names = Some(CertificateNames(names.into()));
            converse(stream, session, stopped).await;
        }
        Ok(Err(error)) => {
            tracing::warn!(%peer, %error, "a client of REST did not complete the TLS handshake");
        }
        Err(_) => {
            tracing::warn!(%peer, "closed a connection of REST, since its TLS handshake took too long");
        }
    }
}

async fn converse<S>(stream: S, session: Session, stopped: watch::Receiver<bool>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let router = TowerToHyperService::new(session.router);
    // Layers would do the same, with much more code.
    let service = service_fn(move |mut request: Request<Incoming>| {
        let extensions = request.extensions_mut();
        extensions.insert(ConnectInfo(Caller::Remote(session.peer)));
        extensions.insert(session.membership.clone());
        if let Some(names) = &session.names {
            extensions.insert(names.clone());
        }
        router.call(request)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    // What ends a connection early is the peer's affair.
    tokio::select! {
        _ = connection.as_mut() => return,
        () = wait(stopped) => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}
