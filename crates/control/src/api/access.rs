//! Who sends a request over TCP, and whether that is allowed. Requests on the Unix socket come from
//! administrators: the system checks who may use it.

use axum::body::{Body, to_bytes};
use axum::extract::{ConnectInfo, Extension, Request};
use axum::http::header;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::answer::{ApiError, BODY_MAX_BYTES};
use super::caller::{Caller, CertificateNames, Entrance};
use super::network::Unidentified;
use super::role::{Role, names_a_place};
use super::tokens::{TokenView, Tokens};

/// Rejects requests over TCP without a valid token. Others go on with what the token says. A token in the
/// header comes before one that a certificate proves.
pub(super) async fn authenticate(
    Extension(entrance): Extension<Entrance>,
    Extension(tokens): Extension<Tokens>,
    ConnectInfo(caller): ConnectInfo<Caller>,
    mut request: Request,
    next: Next,
) -> Response {
    if let Entrance::Socket(_) = entrance {
        return next.run(request).await;
    }
    let certificate = request.extensions().get::<CertificateNames>();
    let holder = match (request.headers().get(header::AUTHORIZATION), certificate) {
        (Some(value), _) => tokens.find(value.as_bytes()),
        (None, Some(CertificateNames(names))) => tokens.of_certificate(names),
        (None, None) => None,
    };
    let Some(holder) = holder else {
        if let Caller::Remote(peer) = caller {
            let names = certificate.map(|CertificateNames(names)| names);
            let certificate = names.filter(|names| !names.is_empty());
            let certificate = certificate.map(tracing::field::debug);
            tracing::warn!(target: "audit", %peer, certificate, "rejected a request whose token is missing or wrong");
        }
        return ApiError::unauthorized().into_response();
    };
    if let Some(connection) = request.extensions().get::<Unidentified>() {
        connection.identified();
    }
    request.extensions_mut().insert(holder);
    next.run(request).await
}

/// Rejects requests that the role of their token does not include.
pub(super) async fn authorize(
    Extension(entrance): Extension<Entrance>,
    request: Request,
    next: Next,
) -> Response {
    if let Entrance::Socket(_) = entrance {
        return next.run(request).await;
    }
    let Some(holder) = request.extensions().get::<TokenView>().cloned() else {
        return ApiError::unauthorized().into_response();
    };
    let uri = request.uri();
    let needed = Role::needed(request.method(), uri.path(), uri.query());
    if holder.role < needed {
        return ApiError::forbidden(&holder, needed).into_response();
    }
    if holder.role == Role::Administrator || needed == Role::ReadOnly {
        return next.run(request).await;
    }
    let (parts, body) = request.into_parts();
    let Ok(body) = to_bytes(body, BODY_MAX_BYTES).await else {
        let message = format!("the body has more than {BODY_MAX_BYTES} bytes, or broke off");
        return ApiError::invalid(message).into_response();
    };
    if names_a_place(&body) {
        return ApiError::names_a_place(&holder).into_response();
    }
    next.run(Request::from_parts(parts, Body::from(body))).await
}
