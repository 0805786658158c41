//! The other end of the REST interface: blocking, for the command line.

mod tls;

use std::io;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;

use crate::api::{ErrorBody, Token};
pub use tls::{ClientTls, ClientTlsError};

/// The address of a daemon's REST interface.
#[derive(Clone, Debug)]
pub enum Endpoint {
    /// A Unix socket.
    Unix(PathBuf),
    /// TCP.
    Tcp {
        /// HOST:PORT.
        address: String,
        /// The token that requests carry, unless a certificate says who sends them.
        token: Option<Token>,
        /// TLS, unless HTTP is plain.
        tls: Option<ClientTls>,
    },
}

/// Why a request was not answered as wished.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No daemon is there.
    #[error(
        "no ramport daemon answers at {endpoint}; start one with `ramport serve` (or `systemctl start ramport`), or give its socket with --socket"
    )]
    NotRunning {
        /// The address.
        endpoint: String,
    },
    /// The socket is not for this user.
    #[error("no permission to use {endpoint}; use sudo, or start the daemon with --socket-group")]
    Forbidden {
        /// The address.
        endpoint: String,
    },
    /// The daemon refused.
    #[error("{message}")]
    Refused {
        /// What kind of error it is, in the interface's words.
        kind: String,
        /// The reason and how to fix it, without the hint at force.
        message: String,
        /// Whether the same request with force does it anyway.
        needs_force: bool,
    },
    /// The connection broke.
    #[error("the connection to {endpoint} failed: {source}")]
    Broken {
        /// The daemon's address.
        endpoint: String,
        /// What happened.
        source: io::Error,
    },
    /// The daemon's certificate is not one that is trusted.
    #[error(
        "the certificate of the daemon at {endpoint} is not trusted: {source}; give the daemon's certificate, or its issuer's, with --api-ca (a generated one is api-cert.pem beside the daemon's state file)"
    )]
    Certificate {
        /// The address.
        endpoint: String,
        /// What is wrong with it.
        source: rustls::Error,
    },
    /// The daemon does not speak TLS.
    #[error(
        "the daemon at {endpoint} does not speak TLS; write --api http://{endpoint} if the network is trusted, or start it with --api-tls on"
    )]
    NoTls {
        /// The address.
        endpoint: String,
    },
    /// The response has no known form.
    #[error(
        "the daemon at {endpoint} sent a response that this version does not understand ({status}); use the same version for both"
    )]
    Answer {
        /// The address.
        endpoint: String,
        /// The answer's status.
        status: StatusCode,
    },
}

impl ClientError {
    /// Whether the user can fix it with another request.
    pub fn is_mistake(&self) -> bool {
        match self {
            Self::Refused { kind, .. } => kind != "internal" && kind != "unavailable",
            Self::NotRunning { .. }
            | Self::Forbidden { .. }
            | Self::Certificate { .. }
            | Self::NoTls { .. } => true,
            Self::Broken { .. } | Self::Answer { .. } => false,
        }
    }
}

/// A client. Each request has a connection of its own.
#[derive(Debug)]
pub struct Client {
    endpoint: Endpoint,
    runtime: tokio::runtime::Runtime,
    time_limit: Option<Duration>,
}

impl Client {
    /// A client of the daemon at `endpoint`; nothing is sent yet.
    pub fn new(endpoint: Endpoint) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        Ok(Self {
            endpoint,
            runtime,
            time_limit: None,
        })
    }

    /// Requests that are not answered within `limit` fail; without a limit, they wait.
    #[must_use]
    pub fn with_time_limit(mut self, limit: Duration) -> Self {
        self.time_limit = Some(limit);
        self
    }

    /// Reads.
    pub fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.value(Method::GET, path, None::<&()>)
    }

    /// Reads what is no JSON.
    pub fn get_text(&self, path: &str) -> Result<String, ClientError> {
        let (_, bytes) = self.send(Method::GET, path, None::<&()>)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Creates, or does something, with a body.
    pub fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, ClientError> {
        self.value(Method::POST, path, Some(body))
    }

    /// Replaces.
    pub fn put<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, ClientError> {
        self.value(Method::PUT, path, Some(body))
    }

    /// Changes.
    pub fn patch<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, ClientError> {
        self.value(Method::PATCH, path, Some(body))
    }

    /// Removes.
    pub fn delete(&self, path: &str) -> Result<(), ClientError> {
        self.send(Method::DELETE, path, None::<&()>).map(drop)
    }

    fn value<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<T, ClientError> {
        let (status, bytes) = self.send(method, path, body)?;
        serde_json::from_slice(&bytes).map_err(|_| self.not_understood(status))
    }

    /// Sends a request and returns whatever the answer is.
    #[cfg(test)]
    pub(crate) fn raw(
        &self,
        method: &str,
        path: &str,
        body: &serde_json::Value,
    ) -> Result<(u16, String), ClientError> {
        let method = method.parse().expect("a method");
        let body = (!body.is_null()).then_some(body);
        let (status, bytes) = self.ask(method, path, body)?;
        Ok((
            status.as_u16(),
            String::from_utf8_lossy(&bytes).into_owned(),
        ))
    }

    /// Sends a request; an answer that is an error becomes one.
    fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<(StatusCode, Bytes), ClientError> {
        let (status, bytes) = self.ask(method, path, body)?;
        if status.is_success() {
            return Ok((status, bytes));
        }
        Err(self.refusal(status, &bytes))
    }

    fn refusal(&self, status: StatusCode, body: &[u8]) -> ClientError {
        match serde_json::from_slice::<ErrorBody>(body) {
            Ok(ErrorBody { error }) => ClientError::Refused {
                message: error.reason().to_owned(),
                needs_force: error.needs_force,
                kind: error.kind,
            },
            Err(_) => self.not_understood(status),
        }
    }

    /// Follows a stream of server-sent events: calls `on_event` with each document until the stream
    /// ends or `on_event` breaks. The time limit is for each event.
    pub fn follow<T: DeserializeOwned>(
        &self,
        path: &str,
        mut on_event: impl FnMut(T) -> ControlFlow<()>,
    ) -> Result<(), ClientError> {
        let request = self.request(Method::GET, path, None::<&()>)?;
        self.runtime.block_on(async {
            let mut response = self.limited(self.open(request)).await?;
            let status = response.status();
            if !status.is_success() {
                let bytes = self.limited(self.rest_of(response)).await?;
                return Err(self.refusal(status, &bytes));
            }
            let mut events = Events::default();
            while let Some(bytes) = self.limited(self.next_of(&mut response)).await? {
                for document in events.push(&bytes) {
                    let document = serde_json::from_slice(&document);
                    let document = document.map_err(|_| self.not_understood(status))?;
                    if on_event(document).is_break() {
                        return Ok(());
                    }
                }
                if events.unfinished.len() > EVENT_MAX_BYTES {
                    return Err(self.not_understood(status));
                }
            }
            Ok(())
        })
    }

    fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<(StatusCode, Bytes), ClientError> {
        let request = self.request(method, path, body)?;
        let answer = async {
            let response = self.open(request).await?;
            let status = response.status();
            Ok((status, self.rest_of(response).await?))
        };
        self.runtime.block_on(self.limited(answer))
    }

    fn request(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<Request<Full<Bytes>>, ClientError> {
        let body = body.map_or_else(Vec::new, |body| {
            serde_json::to_vec(body).expect("requests are structs that serialise")
        });
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "ramport")
            .header("content-type", "application/json");
        if let Endpoint::Tcp {
            token: Some(token), ..
        } = &self.endpoint
        {
            request = request.header("authorization", token.bearer());
        }
        let request = request.body(Full::from(body));
        request.map_err(|error| self.broken(io::Error::other(error)))
    }

    /// Sends a request on a connection of its own.
    async fn open(&self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, ClientError> {
        let response = match &self.endpoint {
            Endpoint::Unix(path) => {
                let stream = UnixStream::connect(path).await;
                exchange(stream.map_err(|e| self.unreachable(e))?, request).await
            }
            Endpoint::Tcp { address, tls, .. } => {
                let stream = TcpStream::connect(address).await;
                let stream = stream.map_err(|e| self.unreachable(e))?;
                match tls {
                    None => exchange(stream, request).await,
                    Some(ClientTls { config, name }) => {
                        let connector = TlsConnector::from(Arc::clone(config));
                        let stream = connector.connect(name.clone(), stream).await;
                        exchange(stream.map_err(|e| self.untrusted(e))?, request).await
                    }
                }
            }
        };
        response.map_err(|error| self.broken(io::Error::other(error)))
    }

    /// The whole body of a response.
    async fn rest_of(&self, response: Response<Incoming>) -> Result<Bytes, ClientError> {
        let body = response.into_body().collect().await;
        let body = body.map_err(|error| self.broken(io::Error::other(error)))?;
        Ok(body.to_bytes())
    }

    /// The next part of the body of a response; `None` at its end.
    async fn next_of(
        &self,
        response: &mut Response<Incoming>,
    ) -> Result<Option<Bytes>, ClientError> {
        let Some(frame) = response.body_mut().frame().await else {
            return Ok(None);
        };
        let frame = frame.map_err(|error| self.broken(io::Error::other(error)))?;
        Ok(Some(frame.into_data().unwrap_or_default()))
    }

    /// Fails if `step` takes longer than the time limit.
    async fn limited<T>(
        &self,
        step: impl Future<Output = Result<T, ClientError>>,
    ) -> Result<T, ClientError> {
        match self.time_limit {
            None => step.await,
            Some(limit) => tokio::time::timeout(limit, step)
                .await
                .unwrap_or_else(|_| Err(self.broken(io::ErrorKind::TimedOut.into()))),
        }
    }

    fn broken(&self, source: io::Error) -> ClientError {
        ClientError::Broken {
            endpoint: self.shown(),
            source,
        }
    }

    fn unreachable(&self, error: io::Error) -> ClientError {
        let endpoint = self.shown();
        match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                ClientError::NotRunning { endpoint }
            }
            io::ErrorKind::PermissionDenied => ClientError::Forbidden { endpoint },
            _ => self.broken(error),
        }
    }

    fn untrusted(&self, error: io::Error) -> ClientError {
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
        match inner {
            Some(source @ rustls::Error::InvalidCertificate(_)) => ClientError::Certificate {
                endpoint: self.shown(),
                source: source.clone(),
            },
            Some(rustls::Error::InvalidMessage(_)) => ClientError::NoTls {
                endpoint: self.shown(),
            },
            _ => self.broken(error),
        }
    }

    fn not_understood(&self, status: StatusCode) -> ClientError {
        ClientError::Answer {
            endpoint: self.shown(),
            status,
        }
    }

    fn shown(&self) -> String {
        match &self.endpoint {
            Endpoint::Unix(path) => path.display().to_string(),
            Endpoint::Tcp { address, .. } => address.clone(),
        }
    }
}

/// Sends one request. The connection ends with the response's body.
async fn exchange<S>(stream: S, request: Request<Full<Bytes>>) -> hyper::Result<Response<Incoming>>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    sender.send_request(request).await
}

/// The longest event: figures of some ten thousand objects.
const EVENT_MAX_BYTES: usize = 64 << 20;

/// Cuts server-sent events out of a stream. Each has one line of data and no other field.
#[derive(Debug, Default)]
struct Events {
    /// What follows the last complete line.
    unfinished: Vec<u8>,
}

impl Events {
    /// Takes the next part of a stream. Returns the data of the events that are complete then.
    fn push(&mut self, bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut complete = Vec::new();
        for part in bytes.split_inclusive(|&byte| byte == b'\n') {
            self.unfinished.extend_from_slice(part);
            if part.ends_with(b"\n") {
                let line = std::mem::take(&mut self.unfinished);
                complete.extend(line.strip_prefix(b"data: ").map(<[u8]>::to_vec));
            }
        }
        complete
    }
}

/// Characters of a path's part that are not escaped.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b':');

/// A name as a part of a path, percent-encoded.
pub fn path_part(name: &str) -> String {
    utf8_percent_encode(name, PLAIN).to_string()
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn a_daemon_that_does_not_answer_is_given_up_after_the_time_limit() {
        let path = std::env::temp_dir().join(format!("ramport-silent-{}", std::process::id()));
        let _silent = UnixListener::bind(&path).expect("a socket");
        let client = Client::new(Endpoint::Unix(path.clone())).expect("a client");
        let client = client.with_time_limit(Duration::from_millis(50));
        let error = client.get::<()>("/v1/volumes").expect_err("no answer");
        std::fs::remove_file(&path).expect("removed");
        let ClientError::Broken { source, .. } = &error else {
            panic!("{error}");
        };
        assert_eq!(source.kind(), io::ErrorKind::TimedOut);
    }
    #[test]
    fn events_are_cut_out_of_any_chunks() {
        let stream = b": a comment\ndata: {\"a\":1}\n\ndata: 2\n\ndata: unfinished";
        for len in 1..stream.len() {
            let mut events = Events::default();
            let found: Vec<_> = stream
                .chunks(len)
                .flat_map(|part| events.push(part))
                .collect();
            assert_eq!(
                found,
                [&b"{\"a\":1}\n"[..], b"2\n"],
                "chunks of {len} bytes"
            );
            assert_eq!(events.unfinished, b"data: unfinished");
        }
    }
}
