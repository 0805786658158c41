//! Routes of members of volumes.

use axum::Json;
use axum::extract::{Path, Query, State};
use serde::Deserialize;
use utoipa::IntoParams;
use volume::Repair;

use super::super::answer::{ErrorBody, call};
use super::{Answer, ForceQuery};
use crate::engine::{Engine, ScrubView, VolumeView};
use crate::text::parse;

/// Add a volume to a linear volume, which grows by it
#[utoipa::path(post, path = "/v1/volumes/{name}/members/{member}", params(("name" = String, Path, description = "The linear volume"), ("member" = String, Path, description = "The volume that becomes its last member")), responses((status = 200, body = VolumeView), (status = 400, description = "What was sent is wrong", body = ErrorBody), (status = 404, description = "There is no such thing", body = ErrorBody), (status = 409, description = "It is no linear volume, or the member does not fit or is used otherwise", body = ErrorBody), (status = 503, description = "It could not be made durable and was undone", body = ErrorBody)))]
pub(super) async fn add_member(
    State(engine): State<Engine>,
    Path((name, member)): Path<(String, String)>,
) -> Answer<VolumeView> {
    call(engine, move |engine| {
        let name = parse(&name)?;
        engine.add_member(&name, &parse(&member)?)?;
        Ok(Json(engine.volume(&name)?))
    })
    .await
}

/// Take a member of a mirror out of use
#[utoipa::path(post, path = "/v1/volumes/{name}/members/{member}/fail", params(("name" = String, Path, description = "The mirror"), ("member" = String, Path, description = "The member")), responses((status = 200, body = VolumeView), (status = 400, description = "What was sent is wrong", body = ErrorBody), (status = 404, description = "There is no such thing", body = ErrorBody), (status = 409, description = "It is no mirror, or the member has the only good copy", body = ErrorBody)))]
pub(super) async fn fail_member(
    State(engine): State<Engine>,
    Path((name, member)): Path<(String, String)>,
) -> Answer<VolumeView> {
    call(engine, move |engine| {
        let name = parse(&name)?;
        engine.fail_member(&name, &parse(&member)?)?;
        Ok(Json(engine.volume(&name)?))
    })
    .await
}

/// Use another volume instead of a member of a mirror
#[utoipa::path(post, path = "/v1/volumes/{name}/members/{member}/replace/{new}", params(("name" = String, Path, description = "The mirror"), ("member" = String, Path, description = "The member"), ("new" = String, Path, description = "The volume that replaces it"), ForceQuery), responses((status = 200, body = VolumeView), (status = 400, description = "What was sent is wrong", body = ErrorBody), (status = 404, description = "There is no such thing", body = ErrorBody), (status = 409, description = "It is no mirror, the member has the only good copy, or the new one does not fit, holds data or is used otherwise", body = ErrorBody), (status = 503, description = "It could not be made durable and was undone", body = ErrorBody)))]
pub(super) async fn replace_member(
    State(engine): State<Engine>,
    Path((name, member, new)): Path<(String, String, String)>,
    Query(query): Query<ForceQuery>,
) -> Answer<VolumeView> {
    call(engine, move |engine| {
        let name = parse(&name)?;
        engine.replace_member(&name, &parse(&member)?, &parse(&new)?, query.force())?;
        Ok(Json(engine.volume(&name)?))
    })
    .await
}

/// Use a member of a mirror again, to which what it missed is copied
#[utoipa::path(post, path = "/v1/volumes/{name}/members/{member}/return", params(("name" = String, Path, description = "The mirror"), ("member" = String, Path, description = "The member")), responses((status = 200, body = VolumeView), (status = 400, description = "What was sent is wrong", body = ErrorBody), (status = 404, description = "There is no such thing", body = ErrorBody), (status = 409, description = "It is no mirror", body = ErrorBody)))]
pub(super) async fn return_member(
    State(engine): State<Engine>,
    Path((name, member)): Path<(String, String)>,
) -> Answer<VolumeView> {
    call(engine, move |engine| {
        let name = parse(&name)?;
        engine.return_member(&name, &parse(&member)?)?;
        Ok(Json(engine.volume(&name)?))
    })
    .await
}

/// What becomes of differences.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct ScrubQuery {
    /// Whether the other members get what the first member in sync holds.
    #[serde(default)]
    #[param(default = false)]
    repair: bool,
}

/// Compare what members of a mirror hold while hosts use it
#[utoipa::path(post, path = "/v1/volumes/{name}/scrub", params(("name" = String, Path, description = "The mirror"), ScrubQuery), responses((status = 200, body = ScrubView), (status = 400, description = "What was sent is wrong", body = ErrorBody), (status = 404, description = "There is no such thing", body = ErrorBody), (status = 409, description = "It is no mirror, or no member can be read", body = ErrorBody)))]
pub(super) async fn scrub_volume(
    State(engine): State<Engine>,
    Path(name): Path<String>,
    Query(query): Query<ScrubQuery>,
) -> Answer<ScrubView> {
    call(engine, move |engine| {
        let repair = if query.repair {
            Repair::Yes
        } else {
            Repair::No
        };
        Ok(Json(engine.scrub_volume(&parse(&name)?, repair)?))
    })
    .await
}
