//! The sender of a request, and the audit trail in the log: each change names its sender, and each
//! request for a change is logged with its outcome. Request bodies are not logged, since they may
//! hold secrets.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use axum::extract::connect_info::{ConnectInfo, Connected};
use axum::extract::{Extension, Request};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::Response;
use axum::serve::IncomingStream;
use percent_encoding::percent_decode_str;
use tokio::net::UnixListener;
use tracing::{Instrument, Span};

use super::answer::Reason;
use super::role::Role;
use super::tokens::TokenView;

/// The other end of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) enum Caller {
    /// A process on this machine, as the kernel reports it.
    Local { uid: Option<u32>, pid: Option<i32> },
    /// A peer over TCP.
    Remote(SocketAddr),
}

/// The listener that requests arrive at.
#[derive(Clone, Debug)]
pub(super) enum ApiListener {
    /// The Unix socket at this path.
    Socket(String),
    /// TCP, where requests carry tokens.
    Network,
}

/// The names that a client's certificate proves on a connection.
#[derive(Clone, Debug)]
pub(super) struct CertificateNames(pub(super) Arc<[String]>);

impl Connected<IncomingStream<'_, UnixListener>> for Caller {
    fn connect_info(stream: IncomingStream<'_, UnixListener>) -> Self {
        let credentials = stream.io().peer_cred().ok();
        Self::Local {
            uid: credentials.map(|it| it.uid()),
            pid: credentials.and_then(|it| it.pid()),
        }
    }
}

/// The maximum length of a logged request line, in characters.
const PATH_MAX_CHARS: usize = 1024;

/// Handles a request in a span that names its sender, and logs the outcome if it asks for a change
/// or for secrets.
pub(super) async fn log_changes(
    Extension(listener): Extension<ApiListener>,
    ConnectInfo(caller): ConnectInfo<Caller>,
    request: Request,
    next: Next,
) -> Response {
    let uri = request.uri();
    let needed = Role::needed(request.method(), uri.path(), uri.query());
    let line = (needed > Role::ReadOnly).then(|| shown(&request));
    let span = span(caller, &listener, request.extensions().get());
    let response = next.run(request).instrument(span.clone()).await;
    if let Some(line) = line {
        span.in_scope(|| log_outcome(&line, &response));
    }
    response
}

/// The span of all lines that a request causes.
fn span(caller: Caller, listener: &ApiListener, holder: Option<&TokenView>) -> Span {
    let (uid, pid, client) = match caller {
        Caller::Local { uid, pid } => (uid, pid, None),
        Caller::Remote(address) => (None, None, Some(address.to_string())),
    };
    let user = uid.and_then(|uid| user_name(uid, Path::new("/etc/passwd")));
    let socket = match listener {
        ApiListener::Socket(path) => Some(path.as_str()),
        ApiListener::Network => None,
    };
    let token = holder.map(|holder| holder.name.as_str());
    tracing::info_span!("request", user, uid, pid, socket, client, token)
}

/// A request's method, decoded path, and query.
fn shown(request: &Request) -> String {
    let uri = request.uri();
    let path = percent_decode_str(uri.path()).decode_utf8_lossy();
    let mut line = format!("{} {path}", request.method());
    if let Some(query) = uri.query() {
        line.push('?');
        line.push_str(query);
    }
    line.chars().take(PATH_MAX_CHARS).collect()
}

fn log_outcome(request: &str, response: &Response) {
    let status = response.status();
    let outcome = match status {
        status if status.is_success() => "done",
        status if status.is_server_error() && status != StatusCode::INSUFFICIENT_STORAGE => {
            "failed"
        }
        _ => "rejected",
    };
    let reason = response
        .extensions()
        .get()
        .map(|Reason(reason)| reason.as_str());
    tracing::info!(target: "audit", request, status = status.as_u16(), reason, "{outcome}");
}

/// The name of a user in a file such as `/etc/passwd`.
fn user_name(uid: u32, users: &Path) -> Option<String> {
    let users = fs::read_to_string(users).ok()?;
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then(|| name.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_by_number() {
        let path = std::env::temp_dir().join(format!("ramport-users-{}", std::process::id()));
        fs::write(
            &path,
            "root:x:0:0:root:/root:/bin/sh\nbroken\nann:x:1000:100::/:\n",
        )
        .expect("written");
        assert_eq!(user_name(1000, &path).as_deref(), Some("ann"));
        assert_eq!(user_name(0, &path).as_deref(), Some("root"));
        assert_eq!(user_name(100, &path), None);
        fs::remove_file(&path).expect("removed");
        assert_eq!(user_name(0, &path), None);
    }
}
