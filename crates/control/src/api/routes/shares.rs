//! Routes of shares.

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;

use super::super::answer::{ErrorBody, call, read};
use super::{Answer, Created, Done, ForceQuery};
use crate::definitions::Share;
use crate::engine::{Engine, SharePatch, ShareView};
use crate::text::parse;

/// Every share
#[utoipa::path(get, path = "/v1/shares", responses((status = 200, body = Vec<ShareView>)))]
pub(super) async fn list_shares(State(engine): State<Engine>) -> Answer<Vec<ShareView>> {
    call(engine, |engine| Ok(Json(engine.shares()))).await
}

/// One share
#[utoipa::path(get, path = "/v1/shares/{name}", params(("name" = String, Path, description = "Its name")), responses((status = 200, body = ShareView), (status = 400, description = "What was sent is wrong", body = ErrorBody), (status = 404, description = "There is no such thing", body = ErrorBody)))]
pub(super) async fn get_share(
    State(engine): State<Engine>,
    Path(name): Path<String>,
) -> Answer<ShareView> {
    call(engine, move |engine| {
        Ok(Json(engine.share(&parse(&name)?)?))
    })
    .await
}

/// Create a share
#[utoipa::path(post, path = "/v1/shares/{name}", request_body = Share, params(("name" = String, Path, description = "Its name")), responses((status = 201, body = ShareView), (status = 400, description = "What was sent is wrong", body = ErrorBody), (status = 409, description = "It stands against something that exists, or sessions or data stand in the way", body = ErrorBody), (status = 503, description = "It could not be made durable and was undone", body = ErrorBody), (status = 507, description = "The memory budget or another limit is used up", body = ErrorBody)))]
pub(super) async fn create_share(
    State(engine): State<Engine>,
    Path(name): Path<String>,
    body: Bytes,
) -> Created<ShareView> {
    let definition: Share = read(&body)?;
    call(engine, move |engine| {
        let name: server::ShareName = parse(&name)?;
        engine.create_share(name.clone(), definition)?;
        Ok((StatusCode::CREATED, Json(engine.share(&name)?)))
    })
    .await
}

/// Change a share while clients use it
#[utoipa::path(patch, path = "/v1/shares/{name}", request_body = SharePatch, params(("name" = String, Path, description = "Its name")), responses((status = 200, body = ShareView), (status = 400, description = "What was sent is wrong", body = ErrorBody), (status = 404, description = "There is no such thing", body = ErrorBody), (status = 409, description = "It stands against something that exists, or sessions or data stand in the way", body = ErrorBody), (status = 503, description = "It could not be made durable and was undone", body = ErrorBody)))]
pub(super) async fn change_share(
    State(engine): State<Engine>,
    Path(name): Path<String>,
    body: Bytes,
) -> Answer<ShareView> {
    let patch: SharePatch = read(&body)?;
    call(engine, move |engine| {
        let name: server::ShareName = parse(&name)?;
        engine.change_share(&name, patch)?;
        Ok(Json(engine.share(&name)?))
    })
    .await
}

/// Remove every file of a share
#[utoipa::path(post, path = "/v1/shares/{name}/erase", params(("name" = String, Path, description = "Its name"), ForceQuery), responses((status = 200, body = ShareView), (status = 400, description = "What was sent is wrong", body = ErrorBody), (status = 404, description = "There is no such thing", body = ErrorBody), (status = 409, description = "Sessions stand in the way", body = ErrorBody), (status = 507, description = "The memory budget or another limit is used up", body = ErrorBody)))]
pub(super) async fn erase_share(
    State(engine): State<Engine>,
    Path(name): Path<String>,
    Query(query): Query<ForceQuery>,
) -> Answer<ShareView> {
    call(engine, move |engine| {
        let name: server::ShareName = parse(&name)?;
        engine.erase_share(&name, query.force())?;
        Ok(Json(engine.share(&name)?))
    })
    .await
}

/// Remove a share and its files
#[utoipa::path(delete, path = "/v1/shares/{name}", params(("name" = String, Path, description = "Its name"), ForceQuery), responses((status = 204, description = "It is gone"), (status = 400, description = "What was sent is wrong", body = ErrorBody), (status = 404, description = "There is no such thing", body = ErrorBody), (status = 409, description = "It stands against something that exists, or sessions or data stand in the way", body = ErrorBody), (status = 503, description = "It could not be made durable and was undone", body = ErrorBody)))]
pub(super) async fn remove_share(
    State(engine): State<Engine>,
    Path(name): Path<String>,
    Query(query): Query<ForceQuery>,
) -> Done {
    call(engine, move |engine| {
        engine.remove_share(&parse(&name)?, query.force())?;
        Ok(StatusCode::NO_CONTENT)
    })
    .await
}
