//! The REST interface: the engine over HTTP, on a Unix socket and, with tokens and TLS, on TCP.

mod access;
mod answer;
mod caller;
mod listen;
mod metrics;
mod network;
mod role;
mod routes;
mod tls;
mod token;
mod tokens;
mod top;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Instant;

use tokio::net::{TcpListener, UnixListener};
use tokio::sync::watch;

use crate::cluster::ClusterControl;
use crate::engine::{Engine, RemoteWatch, ShortageLog};
use caller::{ApiListener, Caller};
use top::TopStreams;

pub use answer::{Applied, ErrorBody, ErrorDetail};
pub use listen::{ListenError, SocketOwner};
pub use role::{Role, RoleFault};
use routes::Cluster;
pub use routes::openapi;
pub use tls::{ServerTls, ServerTlsError};
pub use token::{Token, TokenError};
use tokens::Tokens;
pub use tokens::{NewToken, TokenProof, TokenRequest, TokenView, TokensError};

/// The addresses of the interface.
#[derive(Debug)]
pub struct ApiConfig {
    /// The Unix socket.
    pub socket: PathBuf,
    /// Who may use the socket.
    pub owner: SocketOwner,
    /// The file of tokens for requests over TCP.
    pub tokens: PathBuf,
    /// TCP, if it is served.
    pub tcp: Option<TcpConfig>,
}

/// The interface over TCP.
#[derive(Debug)]
pub struct TcpConfig {
    /// The address.
    pub address: SocketAddr,
    /// An administrator's token beside those of the file.
    pub token: Option<Token>,
    /// TLS; plain HTTP if absent.
    pub tls: Option<ServerTls>,
}

/// How often portals that could not be opened are tried again.
/// Between two looks at remote volumes.
const REMOTE_INTERVAL: std::time::Duration = std::time::Duration::from_secs(1);
/// Between two attempts to open portals that are closed and shares that are unavailable.
const PORTAL_RETRY: std::time::Duration = std::time::Duration::from_secs(5);
/// How often the counters of what the memory budget rejected are read for the log.
const SHORTAGE_INTERVAL: std::time::Duration = std::time::Duration::from_secs(5);

/// How long clients may take to read responses after the interface was stopped.
const STOP_WAIT: std::time::Duration = std::time::Duration::from_secs(5);

/// The most engine calls at once; further ones wait.
const CALLS_MAX: usize = 32;

/// The interface at work, on a thread of its own.
#[derive(Debug)]
pub struct Api {
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
    socket: PathBuf,
    tcp: Option<SocketAddr>,
}

/// The interface with its listeners open; requests wait.
#[derive(Debug)]
pub struct Listening {
    unix: StdUnix,
    tcp: Option<(StdTcp, Option<ServerTls>)>,
    tokens: Tokens,
    socket: PathBuf,
}

impl Listening {
    /// Starts serving. `cluster` answers requests about clusters, if the daemon takes part in them.
    pub fn serve(
        self,
        engine: Engine,
        cluster: Option<Arc<dyn ClusterControl>>,
    ) -> Result<Api, ListenError> {
        let Self {
            unix,
            tcp,
            tokens,
            socket,
        } = self;
        let listener = tcp.as_ref().map(|(listener, _)| listener);
        let tcp_address = listener.and_then(|listener| listener.local_addr().ok());
        let (stop, stopped) = watch::channel(false);
        let path = socket.display().to_string();
        let thread = thread::Builder::new()
            .name("control".to_owned())
            .spawn(move || {
                let unix = (unix, path);
                let cluster = Cluster(cluster);
                if let Err(error) = run(&engine, unix, tcp, (&tokens, &cluster), &stopped) {
                    tracing::error!(%error, "the REST interface ended");
                }
            })
            .map_err(ListenError::Thread)?;
        Ok(Api {
            stop,
            thread: Some(thread),
            socket,
            tcp: tcp_address,
        })
    }
}

impl Api {
    /// Opens the listeners.
    pub fn listen(config: ApiConfig) -> Result<Listening, ListenError> {
        let token = config.tcp.as_ref().and_then(|tcp| tcp.token.as_ref());
        let tokens = Tokens::open(&config.tokens, token)?;
        let tcp = match config.tcp {
            Some(tcp) => Some((listen::tcp(tcp.address)?, tcp.tls)),
            None => None,
        };
        Ok(Listening {
            unix: listen::unix(&config.socket, &config.owner)?,
            tcp,
            tokens,
            socket: config.socket,
        })
    }

    /// Opens the listeners and starts serving.
    pub fn start(engine: Engine, config: ApiConfig) -> Result<Self, ListenError> {
        Self::listen(config)?.serve(engine, None)
    }

    /// The TCP address, if any; its port is the real one.
    pub fn tcp_address(&self) -> Option<SocketAddr> {
        self.tcp
    }

    /// Takes no more requests, answers those in flight and returns. Clients that do not read are
    /// cut off after [`STOP_WAIT`].
    pub fn stop(mut self) {
        let _ = self.stop.send(true);
        if let Some(thread) = self.thread.take() {
            // The panic hook has reported a panic of the thread.
            let _ = thread.join();
        }
        let _ = std::fs::remove_file(&self.socket);
    }
}

type StdTcp = std::net::TcpListener;
type StdUnix = std::os::unix::net::UnixListener;

fn run(
    engine: &Engine,
    (unix, path): (StdUnix, String),
    tcp: Option<(StdTcp, Option<ServerTls>)>,
    (tokens, cluster): (&Tokens, &Cluster),
    stopped: &watch::Receiver<bool>,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(CALLS_MAX)
        .build()?;
    runtime.block_on(async {
        let retry = tokio::spawn(retry_closed(engine.clone()));
        let report = tokio::spawn(report_shortages(engine.clone()));
        let watch = tokio::spawn(watch_remote_volumes(engine.clone()));
        let streams = TopStreams::new(stopped.clone());
        let router = routes::router(engine, &streams, ApiListener::Socket(path), tokens, cluster);
        let service = router.into_make_service_with_connect_info::<Caller>();
        let unix = axum::serve(UnixListener::from_std(unix)?, service)
            .with_graceful_shutdown(wait(stopped.clone()));
        let tcp = tcp.map(|(listener, tls)| {
            let router = routes::router(engine, &streams, ApiListener::Network, tokens, cluster);
            let listener = TcpListener::from_std(listener)?;
            io::Result::Ok(network::serve(listener, tls, router, stopped.clone()))
        });
        let tcp = tcp.transpose()?;
        let serve = async {
            match tcp {
                Some(tcp) => tokio::try_join!(unix.into_future(), tcp).map(drop),
                None => unix.await,
            }
        };
        tokio::select! {
            served = serve => served?,
            () = give_up(stopped.clone()) => {}
        }
        retry.abort();
        watch.abort();
        report.abort();
        Ok(())
    })
}

async fn wait(mut stopped: watch::Receiver<bool>) {
    // The sender's end is the end as well.
    let _ = stopped.wait_for(|&is_stopped| is_stopped).await;
}

/// Ends when requests in flight have had [`STOP_WAIT`] to be answered.
async fn give_up(stopped: watch::Receiver<bool>) {
    wait(stopped).await;
    tokio::time::sleep(STOP_WAIT).await;
    tracing::warn!("clients of the REST interface do not read their responses; they are cut off");
}

async fn retry_closed(engine: Engine) {
    loop {
        tokio::time::sleep(PORTAL_RETRY).await;
        let engine = engine.clone();
        let _ = tokio::task::spawn_blocking(move || {
            if engine.has_closed_portals() {
                engine.retry_portals();
            }
            engine.retry_shares();
        })
        .await;
    }
}

/// Follows what becomes of remote volumes.
async fn watch_remote_volumes(engine: Engine) {
    let mut watch = RemoteWatch::default();
    loop {
        tokio::time::sleep(REMOTE_INTERVAL).await;
        let engine = engine.clone();
        let looked = tokio::task::spawn_blocking(move || {
            watch.look(&engine);
            watch
        });
        match looked.await {
            Ok(after) => watch = after,
            // A panic was reported when it happened.
            Err(_) => watch = RemoteWatch::default(),
        }
    }
}

/// Logs what the memory budget rejected.
async fn report_shortages(engine: Engine) {
    let mut log = ShortageLog::default();
    loop {
        tokio::time::sleep(SHORTAGE_INTERVAL).await;
        log.report(&engine, Instant::now());
    }
}

#[cfg(test)]
mod tests;
