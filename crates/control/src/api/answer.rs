//! Errors as answers, and bodies as values.

use axum::Json;
use axum::body::{Bytes, to_bytes};
use axum::extract::Request;
use axum::http::{Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use server::{ErrorKind, ServerError};
use utoipa::ToSchema;

use super::role::Role;
use super::tokens::{TokenView, TokensError};
use crate::cluster::ClusterFault;
use crate::engine::{Comparison, Engine, EngineError};
use crate::text::TextFault;

/// The longest body of a request: definitions of some ten thousand volumes.
pub(super) const BODY_MAX_BYTES: usize = 16 << 20;

/// The body of every answer that is an error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorBody {
    /// The error.
    pub error: ErrorDetail,
}

/// An error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorDetail {
    /// `not_found`, `conflict`, `invalid`, `exhausted`, `unavailable`, `unauthorized`,
    /// `forbidden`, `method_not_allowed`, `internal`.
    pub kind: String,
    /// The reason and how to fix it, for people.
    pub message: String,
    /// Whether the same request with the parameter `force=true` does it anyway.
    #[serde(default)]
    pub needs_force: bool,
}

impl ErrorDetail {
    /// The message without the hint at REST's parameter.
    pub fn reason(&self) -> &str {
        let message = &self.message;
        message.strip_suffix(FORCE_HINT).unwrap_or(message)
    }
}

/// What applying a file changed, or would change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Applied {
    /// A line for each change: `+` new, `-` gone, `~` changed.
    pub changes: Vec<String>,
    /// Whether they were made.
    pub applied: bool,
    /// Why they would not be made, if they were only compared and would be refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<ErrorDetail>,
}

impl From<Comparison> for Applied {
    fn from(comparison: Comparison) -> Self {
        Self {
            changes: comparison.changes,
            applied: false,
            refused: comparison
                .refused
                .map(|error| ApiError::from(error).detail()),
        }
    }
}

/// What ends the message of an error that `force=true` overrides.
const FORCE_HINT: &str = "; to do it anyway, repeat the request with ?force=true";

/// An error response.
#[derive(Debug)]
pub(super) struct ApiError {
    status: StatusCode,
    kind: &'static str,
    message: String,
    /// The text of the log, if the message quotes the request's body, which may hold secrets.
    logged: Option<&'static str>,
    force: Override,
}

/// Why a request failed. Stands in a response's extensions, for the log.
#[derive(Clone, Debug)]
pub(super) struct Reason(pub(super) String);

/// Whether `force=true` does what was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Override {
    None,
    Force,
}

impl Override {
    fn when(needs_force: bool) -> Self {
        if needs_force { Self::Force } else { Self::None }
    }
}

impl ApiError {
    pub(super) fn unauthorized() -> Self {
        Self {
            status: StatusCode::UNAUTHORIZED,
            kind: "unauthorized",
            message: "the token is missing or wrong; send the header `Authorization: Bearer TOKEN`, or use a certificate that `ramport token create NAME --certificate` names"
                .to_owned(),
            logged: None,
            force: Override::None,
        }
    }

    fn refuse(holder: &TokenView, why: &str) -> Self {
        let TokenView { name, role, .. } = holder;
        Self {
            status: StatusCode::FORBIDDEN,
            kind: "forbidden",
            message: format!("the token {name} has the role {role}; {why}"),
            logged: None,
            force: Override::None,
        }
    }

    pub(super) fn forbidden(holder: &TokenView, needed: Role) -> Self {
        let why = format!(
            "this request needs {needed}: use another token, or create one with `ramport token create NAME --role {needed}`"
        );
        Self::refuse(holder, &why)
    }

    pub(super) fn names_a_place(holder: &TokenView) -> Self {
        let why = "requests with files of the daemon's machine or with other machines need administrator: use another token, or leave them out";
        Self::refuse(holder, why)
    }

    pub(super) fn invalid(message: String) -> Self {
        Self {
            status: StatusCode::BAD_REQUEST,
            kind: "invalid",
            message,
            logged: None,
            force: Override::None,
        }
    }

    fn invalid_body(error: &serde_json::Error) -> Self {
        Self {
            logged: Some("the body is not what is expected"),
            ..Self::invalid(format!("the body is not what is expected: {error}"))
        }
    }

    pub(super) fn no_route(path: &str) -> Self {
        if path.split('/').skip(1).any(str::is_empty) {
            let message = format!("a name in {path} is empty; give at least one character");
            return Self::invalid(message);
        }
        Self {
            status: StatusCode::NOT_FOUND,
            kind: "not_found",
            message: format!("{path} does not exist; /openapi.json lists all paths"),
            logged: None,
            force: Override::None,
        }
    }

    pub(super) fn no_method(method: &Method, path: &str) -> Self {
        Self {
            status: StatusCode::METHOD_NOT_ALLOWED,
            kind: "method_not_allowed",
            message: format!(
                "{path} does not accept {method}; the header `Allow` and /openapi.json list the methods"
            ),
            logged: None,
            force: Override::None,
        }
    }

    pub(super) fn too_many_connections(holder: &TokenView, max: usize) -> Self {
        Self {
            status: StatusCode::SERVICE_UNAVAILABLE,
            kind: "unavailable",
            message: format!(
                "the token {} has requests in progress on {max} connections, which is the maximum; wait for some of them, or give each program a token of its own",
                holder.name
            ),
            logged: None,
            force: Override::None,
        }
    }

    pub(super) fn too_many_streams(max: usize) -> Self {
        Self {
            status: StatusCode::SERVICE_UNAVAILABLE,
            kind: "unavailable",
            message: format!(
                "{max} streams of figures are open, which is the maximum; close one, for example a `ramport top`, and try again"
            ),
            logged: None,
            force: Override::None,
        }
    }

    fn internal() -> Self {
        Self {
            status: StatusCode::INTERNAL_SERVER_ERROR,
            kind: "internal",
            message: "the daemon failed here; its log says more".to_owned(),
            logged: None,
            force: Override::None,
        }
    }

    fn detail(self) -> ErrorDetail {
        ErrorDetail {
            kind: self.kind.to_owned(),
            message: self.message,
            needs_force: self.force == Override::Force,
        }
    }

    fn of_kind(kind: ErrorKind, mut message: String, force: Override) -> Self {
        if force == Override::Force {
            message.push_str(FORCE_HINT);
        }
        let (status, kind) = match kind {
            ErrorKind::NotFound => (StatusCode::NOT_FOUND, "not_found"),
            ErrorKind::Conflict => (StatusCode::CONFLICT, "conflict"),
            ErrorKind::Invalid => (StatusCode::BAD_REQUEST, "invalid"),
            ErrorKind::Exhausted => (StatusCode::INSUFFICIENT_STORAGE, "exhausted"),
            ErrorKind::Unavailable => (StatusCode::SERVICE_UNAVAILABLE, "unavailable"),
            ErrorKind::Unfinished => (StatusCode::INTERNAL_SERVER_ERROR, "unfinished"),
        };
        Self {
            status,
            kind,
            message,
            logged: None,
            force,
        }
    }
}

impl From<EngineError> for ApiError {
    fn from(error: EngineError) -> Self {
        let force = Override::when(error.needs_force());
        Self::of_kind(error.kind(), error.to_string(), force)
    }
}

impl From<ServerError> for ApiError {
    fn from(error: ServerError) -> Self {
        EngineError::from(error).into()
    }
}

impl From<TokensError> for ApiError {
    fn from(error: TokensError) -> Self {
        let kind = match error {
            TokensError::Exists(_) => ErrorKind::Conflict,
            TokensError::Unknown(_) => ErrorKind::NotFound,
            TokensError::Name(_) => ErrorKind::Invalid,
            TokensError::TooMany => ErrorKind::Exhausted,
            TokensError::File { .. } | TokensError::Damaged { .. } => ErrorKind::Unavailable,
        };
        Self::of_kind(kind, error.to_string(), Override::None)
    }
}

impl From<ClusterFault> for ApiError {
    fn from(fault: ClusterFault) -> Self {
        let force = Override::when(fault.needs_force);
        Self::of_kind(fault.kind, fault.message, force)
    }
}

impl From<TextFault> for ApiError {
    fn from(fault: TextFault) -> Self {
        Self::invalid(fault.to_string())
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let (status, logged) = (self.status, self.logged);
        let error = self.detail();
        let reason = logged.unwrap_or(&error.message).to_owned();
        let mut response = (status, Json(ErrorBody { error })).into_response();
        response.extensions_mut().insert(Reason(reason));
        response
    }
}

/// The longest text of a rejection by crate `axum`.
const REJECTION_MAX_BYTES: usize = 4096;

/// Gives rejections by crate `axum`, which are plain text, the body of all other errors: parameters
/// and parts of paths that have another type, bodies that are too long.
pub(super) async fn with_error_body(request: Request, next: Next) -> Response {
    let response = next.run(request).await;
    let status = response.status();
    let form = response.headers().get(header::CONTENT_TYPE);
    let is_text = form.is_some_and(|form| form.as_bytes().starts_with(b"text/plain"));
    if !(status.is_client_error() && is_text) {
        return response;
    }
    let text = to_bytes(response.into_body(), REJECTION_MAX_BYTES).await;
    let message = match &text {
        Ok(text) => String::from_utf8_lossy(text).into_owned(),
        Err(_) => status.to_string(),
    };
    let error = ApiError {
        status,
        ..ApiError::invalid(message)
    };
    error.into_response()
}

/// Reads a JSON body. An empty one is an empty object.
pub(super) fn read<T: DeserializeOwned>(body: &Bytes) -> Result<T, ApiError> {
    let bytes: &[u8] = if body.is_empty() { b"{}" } else { body };
    serde_json::from_slice(bytes).map_err(|error| ApiError::invalid_body(&error))
}

/// Calls the engine on a thread that may block. What the engine logs names the sender of the
/// request.
pub(super) async fn call<T: Send + 'static>(
    engine: Engine,
    verb: impl FnOnce(&Engine) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let span = tracing::Span::current();
    let call = move || span.in_scope(|| verb(&engine));
    match tokio::task::spawn_blocking(call).await {
        Ok(answer) => answer,
        Err(_) => Err(ApiError::internal()),
    }
}
