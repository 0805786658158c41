//! Errors as answers, and bodies as values.

use axum::Json;
use axum::body::Bytes;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use server::{ErrorKind, ServerError};
use utoipa::ToSchema;

use crate::engine::{Engine, EngineError};
use crate::text::TextFault;

/// The body of every answer that is an error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorBody {
    /// The error.
    pub error: ErrorDetail,
}

/// An error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorDetail {
    /// `not_found`, `conflict`, `invalid`, `exhausted`, `unavailable`, `unauthorized`, `internal`.
    pub kind: String,
    /// The reason and the mend, for people.
    pub message: String,
}

/// An error on its way out.
#[derive(Debug)]
pub(super) struct ApiError {
    status: StatusCode,
    kind: &'static str,
    message: String,
}

impl ApiError {
    pub(super) fn unauthorized() -> Self {
        Self {
            status: StatusCode::UNAUTHORIZED,
            kind: "unauthorized",
            message: "the token is missing or wrong; send the header `Authorization: Bearer TOKEN`"
                .to_owned(),
        }
    }

    pub(super) fn invalid(message: String) -> Self {
        Self {
            status: StatusCode::BAD_REQUEST,
            kind: "invalid",
            message,
        }
    }

    pub(super) fn no_route(path: &str) -> Self {
        Self {
            status: StatusCode::NOT_FOUND,
            kind: "not_found",
            message: format!("there is nothing at {path}; /openapi.json tells what there is"),
        }
    }

    fn internal() -> Self {
        Self {
            status: StatusCode::INTERNAL_SERVER_ERROR,
            kind: "internal",
            message: "the daemon failed here; its log says more".to_owned(),
        }
    }

    fn of_kind(kind: ErrorKind, message: String) -> Self {
        let (status, kind) = match kind {
            ErrorKind::NotFound => (StatusCode::NOT_FOUND, "not_found"),
            ErrorKind::Conflict => (StatusCode::CONFLICT, "conflict"),
            ErrorKind::Invalid => (StatusCode::BAD_REQUEST, "invalid"),
            ErrorKind::Exhausted => (StatusCode::INSUFFICIENT_STORAGE, "exhausted"),
            ErrorKind::Unavailable => (StatusCode::SERVICE_UNAVAILABLE, "unavailable"),
        };
        Self {
            status,
            kind,
            message,
        }
    }
}

impl From<EngineError> for ApiError {
    fn from(error: EngineError) -> Self {
        Self::of_kind(error.kind(), error.to_string())
    }
}

impl From<ServerError> for ApiError {
    fn from(error: ServerError) -> Self {
        Self::of_kind(error.kind(), error.to_string())
    }
}

impl From<TextFault> for ApiError {
    fn from(fault: TextFault) -> Self {
        Self::invalid(fault.to_string())
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let body = ErrorBody {
            error: ErrorDetail {
                kind: self.kind.to_owned(),
                message: self.message,
            },
        };
        (self.status, Json(body)).into_response()
    }
}

/// Reads a JSON body. An empty one is an empty object.
pub(super) fn read<T: DeserializeOwned>(body: &Bytes) -> Result<T, ApiError> {
    let bytes: &[u8] = if body.is_empty() { b"{}" } else { body };
    serde_json::from_slice(bytes)
        .map_err(|error| ApiError::invalid(format!("the body is not what is expected: {error}")))
}

/// Calls the engine on a thread that may wait.
pub(super) async fn call<T: Send + 'static>(
    engine: Engine,
    verb: impl FnOnce(&Engine) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    match tokio::task::spawn_blocking(move || verb(&engine)).await {
        Ok(answer) => answer,
        Err(_) => Err(ApiError::internal()),
    }
}
