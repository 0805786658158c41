//! Who sends a request over TCP, and whether that is allowed. Requests on the Unix socket come from
//! administrators: the system checks who may use it.

use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::{ConnectInfo, Extension, Request};
use axum::http::header;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http_body_util::BodyExt as _;

use super::answer::{ApiError, BODY_MAX_BYTES};
use super::caller::{ApiListener, Caller, CertificateNames};
use super::network::{InProgress, Membership, OF_TOKEN_MAX, TooMany};
use super::role::{Role, names_a_place};
use super::tokens::{TokenView, Tokens};

/// How long the body of a request over TCP may take.
const BODY_TIMEOUT: Duration = Duration::from_secs(60);

/// Rejects requests over TCP without a valid token. Others go on with what the token says. A token
/// in the header comes before one that a certificate proves.
pub(super) async fn authenticate(
    Extension(listener): Extension<ApiListener>,
    Extension(tokens): Extension<Tokens>,
    ConnectInfo(caller): ConnectInfo<Caller>,
    mut request: Request,
    next: Next,
) -> Response {
    if let ApiListener::Socket(_) = listener {
        return next.run(request).await;
    }
    let Some(holder) = holder_of(&request, &tokens) else {
        return refuse(&request, caller);
    };
    let in_progress = match request.extensions().get::<Membership>() {
        None => None,
        Some(membership) => match membership.begin(&holder.name) {
            Ok(in_progress) => Some(in_progress),
            Err(TooMany) => {
                return ApiError::too_many_connections(&holder, OF_TOKEN_MAX).into_response();
            }
        },
    };
    request.extensions_mut().insert(holder);
    until_sent(next.run(request).await, in_progress)
}

fn holder_of(request: &Request, tokens: &Tokens) -> Option<TokenView> {
    let certificate = request.extensions().get::<CertificateNames>();
    match (request.headers().get(header::AUTHORIZATION), certificate) {
        (Some(value), _) => tokens.find(value.as_bytes()),
        (None, Some(CertificateNames(names))) => tokens.of_certificate(names),
        (None, None) => None,
    }
}

/// The answer to a request whose token is missing or wrong.
fn refuse(request: &Request, caller: Caller) -> Response {
    if let Some(membership) = request.extensions().get::<Membership>() {
        membership.reject();
    }
    if let Caller::Remote(peer) = caller {
        let certificate = request.extensions().get::<CertificateNames>();
        let names = certificate.map(|CertificateNames(names)| names);
        let certificate = names.filter(|names| !names.is_empty());
        let certificate = certificate.map(tracing::field::debug);
        tracing::warn!(target: "audit", %peer, certificate, "rejected a request whose token is missing or wrong");
    }
    ApiError::unauthorized().into_response()
}

/// The request is in progress until its answer is sent.
fn until_sent(response: Response, in_progress: Option<InProgress>) -> Response {
    response.map(|body| {
        Body::new(body.map_frame(move |frame| {
            let _ = &in_progress;
            frame
        }))
    })
}

/// Rejects requests that the role of their token does not include, and those whose token was
/// removed while their body came.
pub(super) async fn authorize(
    Extension(listener): Extension<ApiListener>,
    Extension(tokens): Extension<Tokens>,
    ConnectInfo(caller): ConnectInfo<Caller>,
    request: Request,
    next: Next,
) -> Response {
    if let ApiListener::Socket(_) = listener {
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
    if needed == Role::ReadOnly {
        return next.run(request).await;
    }
    let (parts, body) = request.into_parts();
    let body = match tokio::time::timeout(BODY_TIMEOUT, to_bytes(body, BODY_MAX_BYTES)).await {
        Ok(Ok(body)) => body,
        Ok(Err(_)) => {
            let message = format!("the body has more than {BODY_MAX_BYTES} bytes, or broke off");
            return ApiError::invalid(message).into_response();
        }
        Err(_) => {
            let seconds = BODY_TIMEOUT.as_secs();
            let message = format!("the body was not complete within {seconds} s");
            return ApiError::invalid(message).into_response();
        }
    };
    let is_known = tokens.has(&holder);
    let is_permitted = holder.role == Role::Administrator || !names_a_place(&body);
    let request = Request::from_parts(parts, Body::from(body));
    if !is_known {
        return refuse(&request, caller);
    }
    if !is_permitted {
        return ApiError::names_a_place(&holder).into_response();
    }
    next.run(request).await
}
