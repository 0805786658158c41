//! Routes of the cluster and its nodes.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Extension, Path, Query, State};
use axum::http::StatusCode;
use server::ErrorKind;

use super::super::answer::{ApiError, ErrorBody, call, read};
use super::{Answer, Created, Done, ForceQuery};
use crate::cluster::{
    ClusterControl, ClusterFault, ClusterPatch, ClusterView, JoinCluster, NewCluster, NodeView,
    WatchView,
};
use crate::engine::Engine;

/// The cluster, if the daemon takes part in clusters.
#[derive(Clone)]
pub(in crate::api) struct Cluster(pub(in crate::api) Option<Arc<dyn ClusterControl>>);

impl Cluster {
    pub(super) fn control(&self) -> Result<&dyn ClusterControl, ApiError> {
        let control = self.0.as_deref();
        control.ok_or_else(|| ClusterFault::not_enabled().into())
    }

    /// One node.
    fn node(&self, name: &str) -> Result<NodeView, ApiError> {
        let nodes = self.control()?.show()?.nodes;
        let node = nodes.into_iter().find(|node| node.name == name);
        node.ok_or_else(|| ClusterFault::no_node(name).into())
    }
}

/// The cluster that this machine belongs to
#[utoipa::path(get, path = "/v1/cluster", responses((status = 200, body = ClusterView), (status = 404, description = "It belongs to none", body = ErrorBody), (status = 409, description = "The daemon takes part in no cluster", body = ErrorBody), (status = 503, description = "etcd does not answer", body = ErrorBody)))]
pub(super) async fn get_cluster(
    State(engine): State<Engine>,
    Extension(cluster): Extension<Cluster>,
) -> Answer<ClusterView> {
    call(engine, move |_| Ok(Json(cluster.control()?.show()?))).await
}

/// Make a cluster of machines
#[utoipa::path(post, path = "/v1/cluster", request_body = NewCluster, responses((status = 201, body = ClusterView), (status = 400, description = "What was sent is wrong", body = ErrorBody), (status = 409, description = "A machine belongs to a cluster, or the daemon takes part in none", body = ErrorBody), (status = 503, description = "A machine or etcd does not answer; nothing was made", body = ErrorBody)))]
pub(super) async fn create_cluster(
    State(engine): State<Engine>,
    Extension(cluster): Extension<Cluster>,
    body: Bytes,
) -> Created<ClusterView> {
    let request: NewCluster = read(&body)?;
    call(engine, move |_| {
        let made = cluster.control()?.create(request)?;
        Ok((StatusCode::CREATED, Json(made)))
    })
    .await
}

/// Make this machine a node of a cluster
#[utoipa::path(post, path = "/v1/cluster/join", request_body = JoinCluster, responses((status = 200, body = ClusterView), (status = 400, description = "What was sent is wrong", body = ErrorBody), (status = 409, description = "The machine belongs to a cluster, or the daemon takes part in none", body = ErrorBody), (status = 503, description = "The other machine or etcd does not answer", body = ErrorBody)))]
pub(super) async fn join_cluster(
    State(engine): State<Engine>,
    Extension(cluster): Extension<Cluster>,
    body: Bytes,
) -> Answer<ClusterView> {
    let request: JoinCluster = read(&body)?;
    call(engine, move |_| Ok(Json(cluster.control()?.join(request)?))).await
}

/// Make this machine leave its cluster
#[utoipa::path(delete, path = "/v1/cluster", params(ForceQuery), responses((status = 204, description = "It belongs to no cluster any more"), (status = 404, description = "It belongs to none", body = ErrorBody), (status = 409, description = "It needs force, or the daemon takes part in no cluster", body = ErrorBody), (status = 503, description = "etcd does not answer", body = ErrorBody)))]
pub(super) async fn leave_cluster(
    State(engine): State<Engine>,
    Extension(cluster): Extension<Cluster>,
    Query(query): Query<ForceQuery>,
) -> Done {
    call(engine, move |_| {
        cluster.control()?.leave(query.force())?;
        Ok(StatusCode::NO_CONTENT)
    })
    .await
}

/// Change the cluster
#[utoipa::path(patch, path = "/v1/cluster", request_body = ClusterPatch, responses((status = 200, body = ClusterView), (status = 400, description = "What was sent is wrong", body = ErrorBody), (status = 404, description = "This machine belongs to no cluster", body = ErrorBody), (status = 409, description = "The daemon takes part in no cluster, or the cluster was changed meanwhile", body = ErrorBody), (status = 503, description = "etcd does not answer", body = ErrorBody)))]
pub(super) async fn change_cluster(
    State(engine): State<Engine>,
    Extension(cluster): Extension<Cluster>,
    body: Bytes,
) -> Answer<ClusterView> {
    let patch: ClusterPatch = read(&body)?;
    call(engine, move |_| {
        let control = cluster.control()?;
        Ok(Json(control.set_repair_after(patch.repair_after_s)?))
    })
    .await
}

/// Move primaries and copies away from a node
#[utoipa::path(post, path = "/v1/nodes/{name}/drain", params(("name" = String, Path, description = "Its name"), ForceQuery), responses((status = 200, description = "They move away from now on; `drain` says how far that is", body = NodeView), (status = 404, description = "There is no such thing", body = ErrorBody), (status = 409, description = "It needs force, or the daemon takes part in no cluster", body = ErrorBody), (status = 503, description = "etcd does not answer", body = ErrorBody)))]
pub(super) async fn drain_node(
    State(engine): State<Engine>,
    Extension(cluster): Extension<Cluster>,
    Path(name): Path<String>,
    Query(query): Query<ForceQuery>,
) -> Answer<NodeView> {
    call(engine, move |_| {
        cluster.control()?.drain(name.clone(), query.force())?;
        Ok(Json(cluster.node(&name)?))
    })
    .await
}

/// Let a node hold primaries and copies again
#[utoipa::path(delete, path = "/v1/nodes/{name}/drain", params(("name" = String, Path, description = "Its name")), responses((status = 204, description = "It may hold them"), (status = 404, description = "There is no such thing", body = ErrorBody), (status = 409, description = "The daemon takes part in no cluster", body = ErrorBody), (status = 503, description = "etcd does not answer", body = ErrorBody)))]
pub(super) async fn undrain_node(
    State(engine): State<Engine>,
    Extension(cluster): Extension<Cluster>,
    Path(name): Path<String>,
) -> Done {
    call(engine, move |_| {
        cluster.control()?.undrain(name)?;
        Ok(StatusCode::NO_CONTENT)
    })
    .await
}

/// Every node of the cluster
#[utoipa::path(get, path = "/v1/nodes", responses((status = 200, body = Vec<NodeView>), (status = 404, description = "This machine belongs to no cluster", body = ErrorBody), (status = 409, description = "The daemon takes part in no cluster", body = ErrorBody), (status = 503, description = "etcd does not answer", body = ErrorBody)))]
pub(super) async fn list_nodes(
    State(engine): State<Engine>,
    Extension(cluster): Extension<Cluster>,
) -> Answer<Vec<NodeView>> {
    call(engine, move |_| Ok(Json(cluster.control()?.show()?.nodes))).await
}

/// One node of the cluster
#[utoipa::path(get, path = "/v1/nodes/{name}", params(("name" = String, Path, description = "Its name")), responses((status = 200, body = NodeView), (status = 404, description = "There is no such thing", body = ErrorBody), (status = 409, description = "The daemon takes part in no cluster", body = ErrorBody), (status = 503, description = "etcd does not answer", body = ErrorBody)))]
pub(super) async fn get_node(
    State(engine): State<Engine>,
    Extension(cluster): Extension<Cluster>,
    Path(name): Path<String>,
) -> Answer<NodeView> {
    call(engine, move |_| Ok(Json(cluster.node(&name)?))).await
}

/// What each node of the cluster has done since it started, or this machine alone if it belongs to
/// no cluster
#[utoipa::path(get, path = "/v1/watch", responses((status = 200, body = WatchView), (status = 503, description = "The daemon is stopping", body = ErrorBody)))]
pub(super) async fn watch(
    State(engine): State<Engine>,
    Extension(cluster): Extension<Cluster>,
) -> Answer<WatchView> {
    call(engine, move |engine| {
        let watched = match &cluster.0 {
            Some(control) => control.watch(),
            None => Ok(engine.watch_alone()),
        };
        match watched {
            Ok(view) => Ok(Json(view)),
            Err(fault) if fault.kind == ErrorKind::NotFound => Ok(Json(engine.watch_alone())),
            Err(fault) => Err(fault.into()),
        }
    })
    .await
}
