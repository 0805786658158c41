//! Routes of tokens.

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Extension, Path, State};
use axum::http::StatusCode;

use super::super::answer::{ErrorBody, call, read};
use super::super::tokens::{NewToken, TokenRequest, TokenView, Tokens};
use super::{Answer, Created, Done};
use crate::engine::Engine;

/// Every token for requests over TCP, without the tokens themselves
#[utoipa::path(get, path = "/v1/tokens", responses((status = 200, body = Vec<TokenView>)))]
pub(super) async fn list_tokens(Extension(tokens): Extension<Tokens>) -> Answer<Vec<TokenView>> {
    Ok(Json(tokens.list()))
}

/// Create a token, which is shown in this answer alone
#[utoipa::path(post, path = "/v1/tokens/{name}", request_body = TokenRequest, params(("name" = String, Path, description = "Its name")), responses((status = 201, body = NewToken), (status = 400, description = "What was sent is wrong", body = ErrorBody), (status = 409, description = "There is a token of that name", body = ErrorBody), (status = 503, description = "It could not be stored", body = ErrorBody), (status = 507, description = "There are too many", body = ErrorBody)))]
pub(super) async fn create_token(
    State(engine): State<Engine>,
    Extension(tokens): Extension<Tokens>,
    Path(name): Path<String>,
    body: Bytes,
) -> Created<NewToken> {
    let request: TokenRequest = read(&body)?;
    call(engine, move |_| {
        let token = tokens.create(&name, request)?;
        Ok((StatusCode::CREATED, Json(token)))
    })
    .await
}

/// Remove a token, which is invalid from then on
#[utoipa::path(delete, path = "/v1/tokens/{name}", params(("name" = String, Path, description = "Its name")), responses((status = 204, description = "It is gone"), (status = 404, description = "There is no such thing", body = ErrorBody), (status = 503, description = "It could not be stored", body = ErrorBody)))]
pub(super) async fn remove_token(
    State(engine): State<Engine>,
    Extension(tokens): Extension<Tokens>,
    Path(name): Path<String>,
) -> Done {
    call(engine, move |_| {
        tokens.remove(&name)?;
        Ok(StatusCode::NO_CONTENT)
    })
    .await
}
