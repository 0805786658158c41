//! What other daemons may ask of this one, if they hold the token.

use std::net::SocketAddr;

use axum::extract::{DefaultBodyLimit, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use control::ClusterFault;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::admit::{Admission, admit};
use super::shared::SharedNode;
use super::{enter, forget, has_etcd};
use crate::connection::ErrorAnswer;
use crate::fault::Fault;
use crate::membership::Membership;
use crate::name::Name;

/// The longest request.
const REQUEST_MAX_BYTES: usize = 256 << 10;

/// The paths.
pub(super) const OFFER: &str = "/v1/offer";
pub(super) const ENTER: &str = "/v1/enter";
pub(super) const FORGET: &str = "/v1/forget";
pub(super) const ADMIT: &str = "/v1/admit";

/// An empty body.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Nothing {}

/// What a machine brings to a cluster.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Offer {
    pub(super) name: Name,
    pub(super) address: SocketAddr,
    pub(super) zone: Name,
    pub(super) memory_bytes: u64,
    /// Whether etcd is installed.
    pub(super) has_etcd: bool,
}

/// The cluster that a machine is to forget.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Forget {
    pub(super) id: Uuid,
}

/// All routes.
pub(super) fn router(shared: SharedNode) -> Router {
    Router::new()
        .route(OFFER, post(give_offer))
        .route(ENTER, post(enter_cluster))
        .route(FORGET, post(forget_cluster))
        .route(ADMIT, post(admit_node))
        .layer(DefaultBodyLimit::max(REQUEST_MAX_BYTES))
        .with_state(shared)
}

/// What this machine brings.
pub(super) async fn offer(shared: &SharedNode) -> Offer {
    let own = &shared.own;
    Offer {
        name: own.name.clone(),
        address: own.address,
        zone: own.zone.clone(),
        memory_bytes: own.memory_bytes,
        has_etcd: has_etcd(&own.etcd).await,
    }
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
    let _changing = shared.changing.try_lock().map_err(|_| Fault::Busy)?;
    Ok(Json(admit(&shared, request).await?))
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
