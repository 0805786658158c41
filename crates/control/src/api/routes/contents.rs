//! Routes that take, move and bring back what volumes hold: snapshots, saves, copies.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use volume::IfDamaged;

use super::super::answer::{ErrorBody, call, read};
use super::{Answer, Created, ForceQuery};
use crate::engine::{
    CopyView, Engine, NewCopy, NewSnapshots, RestoreRequest, RestoredView, SaveRequest, SavedView,
    VolumeView,
};
use crate::text::parse;

/// Take snapshots of several volumes at one moment
#[utoipa::path(post, path = "/v1/snapshots", request_body = NewSnapshots, responses((status = 201, body = Vec<VolumeView>), (status = 400, description = "What was sent is wrong", body = ErrorBody), (status = 404, description = "There is no such thing", body = ErrorBody), (status = 409, description = "It stands against something that exists, or a volume cannot have snapshots", body = ErrorBody), (status = 503, description = "It could not be made durable and was undone", body = ErrorBody), (status = 507, description = "The memory budget or another limit is used up", body = ErrorBody)))]
pub(super) async fn take_snapshots(
    State(engine): State<Engine>,
    body: Bytes,
) -> Created<Vec<VolumeView>> {
    let new: NewSnapshots = read(&body)?;
    call(engine, move |engine| {
        engine.take_snapshots(&new)?;
        let views = new.snapshots.keys().map(|name| engine.volume(&name.0));
        let views: Vec<_> = views.collect::<Result<_, _>>()?;
        Ok((StatusCode::CREATED, Json(views)))
    })
    .await
}

/// Make a volume what it was when a snapshot was taken of it
#[utoipa::path(post, path = "/v1/volumes/{name}/rollback/{snapshot}", params(("name" = String, Path, description = "Its name"), ("snapshot" = String, Path, description = "The snapshot"), ForceQuery), responses((status = 200, body = VolumeView), (status = 400, description = "What was sent is wrong", body = ErrorBody), (status = 404, description = "There is no such thing", body = ErrorBody), (status = 409, description = "It is of another volume, or sessions or data stand in the way", body = ErrorBody), (status = 507, description = "The memory budget or another limit is used up", body = ErrorBody)))]
pub(super) async fn roll_back_volume(
    State(engine): State<Engine>,
    Path((name, snapshot)): Path<(String, String)>,
    Query(query): Query<ForceQuery>,
) -> Answer<VolumeView> {
    call(engine, move |engine| {
        let name = parse(&name)?;
        engine.roll_back_volume(&name, &parse(&snapshot)?, query.force())?;
        Ok(Json(engine.volume(&name)?))
    })
    .await
}

/// Save what a volume holds at this moment, while it is in use
#[utoipa::path(post, path = "/v1/volumes/{name}/save", request_body = SaveRequest, params(("name" = String, Path, description = "Its name"), ForceQuery), responses((status = 200, body = SavedView), (status = 400, description = "What was sent is wrong", body = ErrorBody), (status = 404, description = "There is no such thing", body = ErrorBody), (status = 409, description = "The file holds something else, or the volume cannot be saved", body = ErrorBody), (status = 503, description = "The file cannot be written", body = ErrorBody), (status = 507, description = "The memory budget is used up", body = ErrorBody)))]
pub(super) async fn save_volume(
    State(engine): State<Engine>,
    Path(name): Path<String>,
    Query(query): Query<ForceQuery>,
    body: Bytes,
) -> Answer<SavedView> {
    let request: SaveRequest = read(&body)?;
    call(engine, move |engine| {
        let file = request.file.as_deref();
        Ok(Json(engine.save_volume(
            &parse(&name)?,
            file,
            query.force(),
        )?))
    })
    .await
}

/// Make a volume what it was when it was saved
#[utoipa::path(post, path = "/v1/volumes/{name}/restore", request_body = RestoreRequest, params(("name" = String, Path, description = "Its name"), ForceQuery), responses((status = 200, body = RestoredView), (status = 400, description = "What was sent is wrong, or the file is no save", body = ErrorBody), (status = 404, description = "There is no such thing", body = ErrorBody), (status = 409, description = "The file does not fit the volume or is damaged, or sessions or data stand in the way", body = ErrorBody), (status = 503, description = "It could not be made durable", body = ErrorBody), (status = 507, description = "The memory budget is used up", body = ErrorBody)))]
pub(super) async fn restore_volume(
    State(engine): State<Engine>,
    Path(name): Path<String>,
    Query(query): Query<ForceQuery>,
    body: Bytes,
) -> Answer<RestoredView> {
    let request: RestoreRequest = read(&body)?;
    let if_damaged = if request.zero_damaged {
        IfDamaged::Zeros
    } else {
        IfDamaged::Refuse
    };
    call(engine, move |engine| {
        let file = request.file.as_deref();
        let restored = engine.restore_volume(&parse(&name)?, file, if_damaged, query.force());
        Ok(Json(restored?))
    })
    .await
}

/// Copy a volume, file or disk to another; the copy stops if the client disconnects
#[utoipa::path(post, path = "/v1/copies", params(ForceQuery), request_body = NewCopy, responses((status = 200, body = CopyView), (status = 400, description = "What was sent is wrong", body = ErrorBody), (status = 404, description = "There is no such thing", body = ErrorBody), (status = 409, description = "It does not fit, or sessions or data stand in the way", body = ErrorBody), (status = 503, description = "One of them failed, or the copy was stopped", body = ErrorBody), (status = 507, description = "The memory budget or another limit is used up", body = ErrorBody)))]
pub(super) async fn copy_volume(
    State(engine): State<Engine>,
    Query(query): Query<ForceQuery>,
    body: Bytes,
) -> Answer<CopyView> {
    let new: NewCopy = read(&body)?;
    // Dropped with this future, if the client is gone.
    let stop = StopOnDrop(Arc::default());
    let stops = Arc::clone(&stop.0);
    call(engine, move |engine| {
        Ok(Json(engine.copy(&new, query.force(), &stops)?))
    })
    .await
}

/// Sets what it holds when it is dropped.
struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
