//! What other daemons may ask of this one, if they hold the token.

use std::time::Duration;

use axum::extract::{DefaultBodyLimit, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use control::{ClusterFault, NodeCounters};
use tokio::time::timeout;

use super::admit::{Admission, admit};
use super::messages::{ADMIT, COUNTERS, ENTER, FORGET, Forget, Nothing, OFFER, Offer, offer};
use super::shared::SharedNode;
use super::{enter, forget, watch};
use crate::connection::ErrorAnswer;
use crate::fault::Fault;
use crate::membership::Membership;

/// How long a node waits until others have been admitted.
const ADMISSION_LIMIT: Duration = Duration::from_secs(10);
/// The longest request.
const REQUEST_MAX_BYTES: usize = 256 << 10;

/// All routes.
pub(super) fn router(shared: SharedNode) -> Router {
    Router::new()
        .route(OFFER, post(give_offer))
        .route(ENTER, post(enter_cluster))
        .route(FORGET, post(forget_cluster))
        .route(ADMIT, post(admit_node))
        .route(COUNTERS, post(give_counters))
        .layer(DefaultBodyLimit::max(REQUEST_MAX_BYTES))
        .with_state(shared)
}

async fn give_offer(State(shared): State<SharedNode>) -> Result<Json<Offer>, Refusal> {
    let _changing = shared.changing.try_lock().map_err(|_| Fault::Busy)?;
    shared.require_none()?;
    Ok(Json(offer(&shared).await))
}

async fn enter_cluster(
    State(shared): State<SharedNode>,
    Json(membership): Json<Membership>,
) -> Result<Json<Nothing>, Refusal> {
    let _changing = shared.changing.try_lock().map_err(|_| Fault::Busy)?;
    enter(&shared, membership)?;
    Ok(Json(Nothing {}))
}

async fn forget_cluster(
    State(shared): State<SharedNode>,
    Json(request): Json<Forget>,
) -> Result<Json<Nothing>, Refusal> {
    let _changing = shared.changing.try_lock().map_err(|_| Fault::Busy)?;
    forget(&shared, request.id).await?;
    Ok(Json(Nothing {}))
}

async fn admit_node(
    State(shared): State<SharedNode>,
    Json(request): Json<Admission>,
) -> Result<Json<Membership>, Refusal> {
    let changing = timeout(ADMISSION_LIMIT, shared.changing.lock()).await;
    let _changing = changing.map_err(|_| Fault::Busy)?;
    Ok(Json(admit(&shared, request).await?))
}

async fn give_counters(
    State(shared): State<SharedNode>,
    Json(_): Json<Nothing>,
) -> Result<Json<NodeCounters>, Refusal> {
    Ok(Json(watch::counters(&shared).await?))
}

/// An answer that is an error.
struct Refusal(ClusterFault);

impl From<Fault> for Refusal {
    fn from(fault: Fault) -> Self {
        Self(fault.into())
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let answer = ErrorAnswer::new(self.0.message);
        (StatusCode::CONFLICT, Json(answer)).into_response()
    }
}
