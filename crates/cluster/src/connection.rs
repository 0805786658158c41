//! One HTTP connection, to etcd or to another node.

use std::fmt;

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use crate::client_tls::ClientTls;
use crate::url::EtcdUrl;

/// The longest body of an error.
const ERROR_MAX_BYTES: usize = 64 << 10;
/// gRPC's DEADLINE_EXCEEDED: etcd gave up waiting for its members.
const DEADLINE_EXCEEDED: u32 = 4;
/// gRPC's UNAVAILABLE: etcd has no leader, is stopping, or does not serve this as a learner.
const UNAVAILABLE: u32 = 14;

/// A connection, with nothing in flight between calls.
#[derive(Debug)]
pub(crate) struct Connection {
    sender: SendRequest<Full<Bytes>>,
}

/// Why an endpoint did not do what was asked.
#[derive(Debug)]
pub(crate) enum Fault {
    /// It received nothing of the request.
    NotSent(String),
    /// It received the request, or some of it, and did not answer.
    Lost(String),
    /// It cannot answer now. Other endpoints may.
    Unavailable(String),
    /// It refused, as others would.
    Refused { message: String },
}

impl Fault {
    /// Whether the request may be executed nevertheless.
    pub(crate) fn may_be_executed(&self) -> bool {
        match self {
            Self::NotSent(_) | Self::Refused { .. } => false,
            Self::Lost(_) | Self::Unavailable(_) => true,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotSent(reason) | Self::Lost(reason) | Self::Unavailable(reason) => {
                f.write_str(reason)
            }
            Self::Refused { message } => f.write_str(message),
        }
    }
}

impl Connection {
    /// Connects. Faults are such that nothing was sent.
    pub(crate) async fn open(url: &EtcdUrl, tls: Option<&ClientTls>) -> Result<Self, Fault> {
        let failed = |error: std::io::Error| Fault::NotSent(error.to_string());
        let stream = TcpStream::connect(url.place()).await.map_err(failed)?;
        let _ = stream.set_nodelay(true);
        if !url.is_tls() {
            return Self::begin(stream).await;
        }
        let Some(tls) = tls else {
            let reason = "it wants TLS, for which no certificates were given";
            return Err(Fault::NotSent(reason.to_owned()));
        };
        let name = url.server_name();
        let name = name.map_err(|error| Fault::NotSent(error.to_string()))?;
        let stream = tls.connector().connect(name, stream).await;
        Self::begin(stream.map_err(failed)?).await
    }

    async fn begin(
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    ) -> Result<Self, Fault> {
        let begun = handshake(TokioIo::new(stream)).await;
        let (sender, connection) = begun.map_err(|error| Fault::NotSent(error.to_string()))?;
        // Ends when `sender` is dropped. Its errors are those of the requests.
        tokio::spawn(async move {
            let _ = connection.await;
        });
        Ok(Self { sender })
    }

    /// Sends a request and reads the whole answer, at most `max_bytes`.
    pub(crate) async fn exchange(
        &mut self,
        url: &EtcdUrl,
        path: &str,
        body: &[u8],
        max_bytes: usize,
    ) -> Result<Vec<u8>, Fault> {
        let response = self.send(url, path, body).await?;
        let body = Limited::new(response.into_body(), max_bytes)
            .collect()
            .await;
        let body = body.map_err(|error| Fault::Lost(error.to_string()))?;
        Ok(body.to_bytes().to_vec())
    }

    /// Sends a request and returns an answer that is no error, with its body to be read.
    pub(crate) async fn send(
        &mut self,
        url: &EtcdUrl,
        path: &str,
        body: &[u8],
    ) -> Result<Response<Incoming>, Fault> {
        let request = Request::post(path)
            .header("host", url.place())
            .header("content-type", "application/json")
            .body(Full::from(body.to_vec()))
            .map_err(|error| Fault::NotSent(error.to_string()))?;
        // A connection that is closed already gives the request back.
        let ready = self.sender.ready().await;
        ready.map_err(|error| Fault::NotSent(error.to_string()))?;
        let response = self.sender.try_send_request(request).await;
        let response = response.map_err(|mut error| {
            let is_unsent = error.take_message().is_some();
            let reason = error.into_error().to_string();
            if is_unsent {
                Fault::NotSent(reason)
            } else {
                Fault::Lost(reason)
            }
        })?;
        if response.status().is_success() {
            return Ok(response);
        }
        Err(refusal(response).await)
    }
}

/// The body of an error, from etcd's gateway or from another node.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct ErrorAnswer {
    /// What the gateway of etcd 3.4 has beside `message`.
    #[serde(skip_serializing)]
    error: String,
    message: String,
    /// gRPC's status code.
    code: u32,
}

impl ErrorAnswer {
    /// An error that is no passing one.
    pub(crate) fn new(message: String) -> Self {
        Self {
            message,
            ..Self::default()
        }
    }
}

async fn refusal(response: Response<Incoming>) -> Fault {
    let status = response.status();
    let body = Limited::new(response.into_body(), ERROR_MAX_BYTES)
        .collect()
        .await;
    let answer: ErrorAnswer = body
        .ok()
        .and_then(|body| serde_json::from_slice(&body.to_bytes()).ok())
        .unwrap_or_default();
    let message = [answer.message, answer.error, status.to_string()];
    let message = message.into_iter().find(|text| !text.is_empty());
    let message = message.unwrap_or_default();
    let is_passing = matches!(answer.code, DEADLINE_EXCEEDED | UNAVAILABLE);
    if is_passing || status.is_server_error() && answer.code == 0 {
        Fault::Unavailable(message)
    } else {
        Fault::Refused { message }
    }
}
