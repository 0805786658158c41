//! Every route, with what the OpenAPI document says of it.

mod cluster;
mod contents;
mod members;
mod shares;
mod tokens;

use axum::Json;
use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Extension, Path, Query, State};
use axum::http::{Method, StatusCode, Uri, header};
use axum::middleware::from_fn;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use server::{Force, SessionId};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::{IntoParams, Modify, OpenApi, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::access::{authenticate, authorize};
use super::answer::{ApiError, Applied, BODY_MAX_BYTES, ErrorBody, call, read, with_error_body};
use super::caller::{ApiListener, log_changes};
use super::metrics;
use super::tokens::{TokenView, Tokens};
use super::top::TopStreams;
use crate::definitions::{Definitions, Host, Nsid, NsidFault, Target, Volume};
use crate::engine::{
    CapacityView, Engine, HostView, IfClosed, PortalPatch, PortalView, ReferralView, SessionView,
    StatusView, TargetAccess, TargetView, Task, TopView, VolumePatch, VolumeView,
};
use crate::text::parse;
pub(super) use cluster::Cluster;

/// The routes of `engine`. Requests arrive at `listener`; over TCP, each must carry one of
/// `tokens`.
pub(super) fn router(
    engine: &Engine,
    streams: &TopStreams,
    listener: ApiListener,
    tokens: &Tokens,
    cluster: &Cluster,
) -> Router {
    Router::from(routes())
        .fallback(no_route)
        .method_not_allowed_fallback(no_method)
        .layer(DefaultBodyLimit::max(BODY_MAX_BYTES))
        .layer(from_fn(with_error_body))
        .layer(from_fn(authorize))
        .layer(from_fn(log_changes))
        .layer(from_fn(authenticate))
        .layer(Extension(listener))
        .layer(Extension(streams.clone()))
        .layer(Extension(tokens.clone()))
        .layer(Extension(cluster.clone()))
        .with_state(engine.clone())
}

/// The OpenAPI document.
pub fn openapi() -> utoipa::openapi::OpenApi {
    routes().into_openapi()
}

/// All handlers. Each handler's attribute has its path and method; the document is collected from
/// the same list.
fn routes() -> OpenApiRouter<Engine> {
    OpenApiRouter::with_openapi(Document::openapi())
        .routes(routes!(get_status))
        .routes(routes!(get_capacity))
        .routes(routes!(list_tasks))
        .routes(routes!(get_definitions, apply_definitions))
        .routes(routes!(list_volumes))
        .routes(routes!(
            get_volume,
            create_volume,
            change_volume,
            remove_volume
        ))
        .routes(routes!(erase_volume))
        .routes(routes!(contents::copy_volume))
        .routes(routes!(contents::take_snapshots))
        .routes(routes!(contents::roll_back_volume))
        .routes(routes!(contents::save_volume))
        .routes(routes!(contents::restore_volume))
        .routes(routes!(members::add_member))
        .routes(routes!(members::fail_member))
        .routes(routes!(members::return_member))
        .routes(routes!(members::replace_member))
        .routes(routes!(members::scrub_volume))
        .routes(routes!(acknowledge_loss))
        .routes(routes!(acknowledge_losses))
        .routes(routes!(list_targets, create_iscsi_target))
        .routes(routes!(get_target, create_target, remove_target))
        .routes(routes!(set_target_access))
        .routes(routes!(attach_volume))
        .routes(routes!(detach_volume))
        .routes(routes!(shares::list_shares))
        .routes(routes!(
            shares::get_share,
            shares::create_share,
            shares::change_share,
            shares::remove_share
        ))
        .routes(routes!(shares::erase_share))
        .routes(routes!(list_hosts))
        .routes(routes!(get_host, create_host, change_host, remove_host))
        .routes(routes!(list_portals))
        .routes(routes!(
            get_portal,
            add_portal,
            change_portal,
            remove_portal
        ))
        .routes(routes!(list_referrals))
        .routes(routes!(get_referral, add_referral, remove_referral))
        .routes(routes!(tokens::list_tokens))
        .routes(routes!(tokens::create_token, tokens::remove_token))
        .merge(cluster_routes())
        .routes(routes!(list_sessions))
        .routes(routes!(get_session, end_session))
        .routes(routes!(get_top))
        .routes(routes!(get_openapi))
        .routes(routes!(get_metrics))
}

fn cluster_routes() -> OpenApiRouter<Engine> {
    OpenApiRouter::new()
        .routes(routes!(
            cluster::get_cluster,
            cluster::create_cluster,
            cluster::change_cluster,
            cluster::leave_cluster
        ))
        .routes(routes!(cluster::join_cluster))
        .routes(routes!(cluster::list_nodes))
        .routes(routes!(cluster::get_node))
        .routes(routes!(cluster::watch))
        .routes(routes!(cluster::drain_node, cluster::undrain_node))
}

#[derive(OpenApi)]
#[openapi(
    info(
        title = "ramport",
        description = "Lends a machine's RAM to other machines as disks and shared files."
    ),
    modifiers(&BearerToken),
    security((), ("token" = []))
)]
struct Document;

/// The scheme of requests over TCP. Requests on the Unix socket need none.
struct BearerToken;

impl Modify for BearerToken {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let description = "Needed over TCP: a token that `ramport token create` or POST /v1/tokens/{name} returned, or the content of the daemon's --api-token-file. The Unix socket needs none.";
        let token = HttpBuilder::new()
            .scheme(HttpAuthScheme::Bearer)
            .description(Some(description));
        let components = document.components.get_or_insert_default();
        components.add_security_scheme("token", SecurityScheme::Http(token.build()));
    }
}

/// What a new volume holds.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields, default)]
struct FromQuery {
    /// The absolute path of a save on the daemon's machine, which a RAM volume is restored from;
    /// without a size in the definition, size and block size are those of the save. Absent: zeros.
    from: Option<String>,
    /// Overwrite what members of a mirror hold, besides the first.
    force: bool,
}

/// Whether to proceed although sessions or data are affected.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields, default)]
struct ForceQuery {
    /// Do it all the same.
    force: bool,
}

impl ForceQuery {
    fn force(&self) -> Force {
        if self.force { Force::Yes } else { Force::No }
    }
}

/// How to apply definitions.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields, default)]
struct ApplyQuery {
    /// Only say what would change, and whether it would be refused.
    dry_run: bool,
    /// Destroy data and end sessions if necessary.
    force: bool,
}

/// The form of definitions.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields, default)]
struct DefinitionsQuery {
    /// With everything that another daemon needs to become the same: secrets, and what identifiers
    /// are derived from.
    with_secrets: bool,
}

/// How often figures are sent.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields, default)]
struct TopQuery {
    /// The length of an interval, from `100ms` to `60s`; `1s` where absent.
    interval: Option<String>,
}

/// A volume to be attached.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Attach {
    /// The volume.
    volume: String,
    /// The namespace ID or LUN; the lowest free one where absent.
    #[serde(default)]
    nsid: Option<u32>,
}

/// The attachments of a volume.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
struct Attached {
    /// The namespace ID or LUN.
    nsid: u32,
}

type Answer<T> = Result<Json<T>, ApiError>;
type Created<T> = Result<(StatusCode, Json<T>), ApiError>;
type Done = Result<StatusCode, ApiError>;

async fn no_route(uri: Uri) -> ApiError {
    ApiError::no_route(uri.path())
}

async fn no_method(method: Method, uri: Uri) -> ApiError {
    ApiError::no_method(&method, uri.path())
}

/// The daemon
#[utoipa::path(get, path = "/v1/status", responses((status = 200, body = StatusView)))]
async fn get_status(State(engine): State<Engine>) -> Answer<StatusView> {
    call(engine, |engine| Ok(Json(engine.status()))).await
}

/// Memory: budget, used, what things cost
#[utoipa::path(get, path = "/v1/capacity", responses((status = 200, body = CapacityView)))]
async fn get_capacity(State(engine): State<Engine>) -> Answer<CapacityView> {
    call(engine, |engine| Ok(Json(engine.capacity()))).await
}

/// The long operation in progress
#[utoipa::path(get, path = "/v1/tasks", responses((status = 200, body = Vec<Task>)))]
async fn list_tasks(State(engine): State<Engine>) -> Answer<Vec<Task>> {
    call(engine, |engine| Ok(Json(engine.tasks()))).await
}

/// Everything that is defined
#[utoipa::path(get, path = "/v1/definitions", params(DefinitionsQuery), responses((status = 200, body = Definitions)))]
async fn get_definitions(
    State(engine): State<Engine>,
    Query(query): Query<DefinitionsQuery>,
) -> Answer<Definitions> {
    call(engine, move |engine| {
        let definitions = if query.with_secrets {
            tracing::info!("definitions were read with secrets");
            engine.backup()
        } else {
            engine.definitions()
        };
        Ok(Json(definitions))
    })
    .await
}

/// Make everything what is given, as one transaction
#[utoipa::path(put, path = "/v1/definitions", request_body = Definitions, params(ApplyQuery), responses((status = 200, body = Applied), (status = 400, description = "What was sent is wrong", body = ErrorBody), (status = 409, description = "It stands against something that exists, or sessions or data stand in the way", body = ErrorBody), (status = 503, description = "It could not be made durable and was undone", body = ErrorBody), (status = 507, description = "The memory budget or another limit is used up", body = ErrorBody)))]
async fn apply_definitions(
    State(engine): State<Engine>,
    Query(query): Query<ApplyQuery>,
    body: Bytes,
) -> Answer<Applied> {
    let definitions: Definitions = read(&body)?;
    let force = if query.force { Force::Yes } else { Force::No };
    call(engine, move |engine| {
        let applied = if query.dry_run {
            engine.compare(definitions, force)?.into()
        } else {
            Applied {
                changes: engine.apply(definitions, force)?,
                applied: true,
                refused: None,
            }
        };
        Ok(Json(applied))
    })
    .await
}

/// Every volume
#[utoipa::path(get, path = "/v1/volumes", responses((status = 200, body = Vec<VolumeView>)))]
async fn list_volumes(State(engine): State<Engine>) -> Answer<Vec<VolumeView>> {
    call(engine, |engine| Ok(Json(engine.volumes()))).await
}

/// One volume
#[utoipa::path(get, path = "/v1/volumes/{name}", params(("name" = String, Path, description = "Its name")), responses((status = 200, body = VolumeView), (status = 400, description = "What was sent is wrong", body = ErrorBody), (status = 404, description = "There is no such thing", body = ErrorBody)))]
async fn get_volume(State(engine): State<Engine>, Path(name): Path<String>) -> Answer<VolumeView> {
    call(engine, move |engine| {
        Ok(Json(engine.volume(&parse(&name)?)?))
    })
    .await
}

/// Create a volume
#[utoipa::path(post, path = "/v1/volumes/{name}", request_body = Volume, params(("name" = String, Path, description = "Its name"), FromQuery), responses((status = 201, body = VolumeView), (status = 400, description = "What was sent is wrong", body = ErrorBody), (status = 409, description = "It stands against something that exists, or sessions or data stand in the way", body = ErrorBody), (status = 503, description = "It could not be made durable and was undone", body = ErrorBody), (status = 507, description = "The memory budget or another limit is used up", body = ErrorBody)))]
async fn create_volume(
    State(engine): State<Engine>,
    Path(name): Path<String>,
    Query(query): Query<FromQuery>,
    Extension(cluster): Extension<Cluster>,
    body: Bytes,
) -> Created<VolumeView> {
    let definition: Volume = read(&body)?;
    call(engine, move |engine| {
        let name: server::VolumeName = parse(&name)?;
        if definition.is_replicated() && query.from.is_none() {
            cluster.control()?.create_volume(name.clone(), definition)?;
        } else if let Some(file) = &query.from {
            engine.create_volume_from(&name, definition, file)?;
        } else {
            let force = if query.force { Force::Yes } else { Force::No };
            engine.create_volume(name.clone(), definition, force)?;
        }
        Ok((StatusCode::CREATED, Json(engine.volume(&name)?)))
    })
    .await
}

/// Resize, lock, unlock, set filters and saves
#[utoipa::path(patch, path = "/v1/volumes/{name}", request_body = VolumePatch, params(("name" = String, Path, description = "Its name"), ForceQuery), responses((status = 200, body = VolumeView), (status = 400, description = "What was sent is wrong", body = ErrorBody), (status = 404, description = "There is no such thing", body = ErrorBody), (status = 409, description = "It stands against something that exists, or sessions or data stand in the way", body = ErrorBody), (status = 503, description = "It could not be made durable and was undone", body = ErrorBody), (status = 507, description = "The memory budget or another limit is used up", body = ErrorBody)))]
async fn change_volume(
    State(engine): State<Engine>,
    Path(name): Path<String>,
    Query(query): Query<ForceQuery>,
    body: Bytes,
) -> Answer<VolumeView> {
    let patch: VolumePatch = read(&body)?;
    call(engine, move |engine| {
        let name = parse(&name)?;
        engine.change_volume(&name, patch, query.force())?;
        Ok(Json(engine.volume(&name)?))
    })
    .await
}

/// Remove a volume
#[utoipa::path(delete, path = "/v1/volumes/{name}", params(("name" = String, Path, description = "Its name"), ForceQuery), responses((status = 204, description = "It is gone"), (status = 400, description = "What was sent is wrong", body = ErrorBody), (status = 404, description = "There is no such thing", body = ErrorBody), (status = 409, description = "It stands against something that exists, or sessions or data stand in the way", body = ErrorBody), (status = 503, description = "It could not be made durable and was undone", body = ErrorBody)))]
async fn remove_volume(
    State(engine): State<Engine>,
    Path(name): Path<String>,
    Query(query): Query<ForceQuery>,
    Extension(cluster): Extension<Cluster>,
) -> Done {
    call(engine, move |engine| {
        let name = parse(&name)?;
        if engine.replicated_volume(&name).is_some() {
            cluster.control()?.remove_volume(name, query.force())?;
        } else {
            engine.remove_volume(&name, query.force())?;
        }
        Ok(StatusCode::NO_CONTENT)
    })
    .await
}

/// Make every block read as zeros
#[utoipa::path(post, path = "/v1/volumes/{name}/erase", params(("name" = String, Path, description = "Its name"), ForceQuery), responses((status = 200, body = VolumeView), (status = 400, description = "What was sent is wrong", body = ErrorBody), (status = 404, description = "There is no such thing", body = ErrorBody), (status = 409, description = "It stands against something that exists, or sessions or data stand in the way", body = ErrorBody)))]
async fn erase_volume(
    State(engine): State<Engine>,
    Path(name): Path<String>,
    Query(query): Query<ForceQuery>,
) -> Answer<VolumeView> {
    call(engine, move |engine| {
        let name = parse(&name)?;
        engine.erase_volume(&name, query.force())?;
        Ok(Json(engine.volume(&name)?))
    })
    .await
}

/// Take note that the contents are lost: the volume is served empty
#[utoipa::path(post, path = "/v1/volumes/{name}/acknowledge", params(("name" = String, Path, description = "Its name")), responses((status = 200, body = VolumeView), (status = 400, description = "What was sent is wrong", body = ErrorBody), (status = 404, description = "There is no such thing", body = ErrorBody)))]
async fn acknowledge_loss(
    State(engine): State<Engine>,
    Path(name): Path<String>,
) -> Answer<VolumeView> {
    call(engine, move |engine| {
        let name = parse(&name)?;
        engine.acknowledge_loss(&name)?;
        Ok(Json(engine.volume(&name)?))
    })
    .await
}

/// Take note that the contents of all volumes that lost them are lost; returns the volumes
#[utoipa::path(post, path = "/v1/acknowledge", responses((status = 200, body = Vec<String>)))]
async fn acknowledge_losses(State(engine): State<Engine>) -> Answer<Vec<String>> {
    call(engine, |engine| Ok(Json(engine.acknowledge_losses()?))).await
}

/// Every target
#[utoipa::path(get, path = "/v1/targets", responses((status = 200, body = Vec<TargetView>)))]
async fn list_targets(State(engine): State<Engine>) -> Answer<Vec<TargetView>> {
    call(engine, |engine| Ok(Json(engine.targets()))).await
}

/// One target
#[utoipa::path(get, path = "/v1/targets/{name}", params(("name" = String, Path, description = "Its name")), responses((status = 200, body = TargetView), (status = 400, description = "What was sent is wrong", body = ErrorBody), (status = 404, description = "There is no such thing", body = ErrorBody)))]
async fn get_target(State(engine): State<Engine>, Path(name): Path<String>) -> Answer<TargetView> {
    call(engine, move |engine| {
        Ok(Json(engine.target(&parse(&name)?)?))
    })
    .await
}

/// Create a target
#[utoipa::path(post, path = "/v1/targets/{name}", request_body = Target, params(("name" = String, Path, description = "Its name")), responses((status = 201, body = TargetView), (status = 400, description = "What was sent is wrong", body = ErrorBody), (status = 409, description = "It stands against something that exists, or sessions or data stand in the way", body = ErrorBody), (status = 503, description = "It could not be made durable and was undone", body = ErrorBody), (status = 507, description = "The memory budget or another limit is used up", body = ErrorBody)))]
async fn create_target(
    State(engine): State<Engine>,
    Path(name): Path<String>,
    body: Bytes,
) -> Created<TargetView> {
    let definition: Target = read(&body)?;
    call(engine, move |engine| {
        let name: server::TargetName = parse(&name)?;
        engine.create_target(name.clone(), definition)?;
        Ok((StatusCode::CREATED, Json(engine.target(&name)?)))
    })
    .await
}

/// Create an iSCSI target whose name is made by the daemon
#[utoipa::path(post, path = "/v1/targets", request_body = Target, responses((status = 201, body = TargetView), (status = 400, description = "What was sent is wrong", body = ErrorBody), (status = 409, description = "It stands against something that exists, or sessions or data stand in the way", body = ErrorBody), (status = 503, description = "It could not be made durable and was undone", body = ErrorBody), (status = 507, description = "The memory budget or another limit is used up", body = ErrorBody)))]
async fn create_iscsi_target(State(engine): State<Engine>, body: Bytes) -> Created<TargetView> {
    let definition: Target = read(&body)?;
    call(engine, move |engine| {
        let name = engine.create_iscsi_target(definition)?;
        Ok((StatusCode::CREATED, Json(engine.target(&name)?)))
    })
    .await
}

/// Set the hosts that may use a target
#[utoipa::path(put, path = "/v1/targets/{name}/access", request_body = TargetAccess, params(("name" = String, Path, description = "Its name")), responses((status = 200, body = TargetView), (status = 400, description = "What was sent is wrong", body = ErrorBody), (status = 404, description = "There is no such thing", body = ErrorBody), (status = 409, description = "It stands against something that exists, or sessions or data stand in the way", body = ErrorBody), (status = 503, description = "It could not be made durable and was undone", body = ErrorBody)))]
async fn set_target_access(
    State(engine): State<Engine>,
    Path(name): Path<String>,
    body: Bytes,
) -> Answer<TargetView> {
    let access: TargetAccess = read(&body)?;
    call(engine, move |engine| {
        let name = parse(&name)?;
        engine.set_target_access(&name, access)?;
        Ok(Json(engine.target(&name)?))
    })
    .await
}

/// Remove a target
#[utoipa::path(delete, path = "/v1/targets/{name}", params(("name" = String, Path, description = "Its name"), ForceQuery), responses((status = 204, description = "It is gone"), (status = 400, description = "What was sent is wrong", body = ErrorBody), (status = 404, description = "There is no such thing", body = ErrorBody), (status = 409, description = "It stands against something that exists, or sessions or data stand in the way", body = ErrorBody), (status = 503, description = "It could not be made durable and was undone", body = ErrorBody)))]
async fn remove_target(
    State(engine): State<Engine>,
    Path(name): Path<String>,
    Query(query): Query<ForceQuery>,
) -> Done {
    call(engine, move |engine| {
        engine.remove_target(&parse(&name)?, query.force())?;
        Ok(StatusCode::NO_CONTENT)
    })
    .await
}

/// Attach a volume to a target
#[utoipa::path(post, path = "/v1/targets/{name}/namespaces", request_body = Attach, params(("name" = String, Path, description = "Its name")), responses((status = 201, body = Attached), (status = 400, description = "What was sent is wrong", body = ErrorBody), (status = 404, description = "There is no such thing", body = ErrorBody), (status = 409, description = "It stands against something that exists, or sessions or data stand in the way", body = ErrorBody), (status = 503, description = "It could not be made durable and was undone", body = ErrorBody), (status = 507, description = "The memory budget or another limit is used up", body = ErrorBody)))]
async fn attach_volume(
    State(engine): State<Engine>,
    Path(name): Path<String>,
    body: Bytes,
) -> Created<Attached> {
    let attach: Attach = read(&body)?;
    call(engine, move |engine| {
        let nsid = attach.nsid.map(nsid_of).transpose()?;
        let nsid = engine.attach_volume(&parse(&name)?, parse(&attach.volume)?, nsid)?;
        Ok((StatusCode::CREATED, Json(Attached { nsid: nsid.0 })))
    })
    .await
}

/// Detach a volume from a target
#[utoipa::path(delete, path = "/v1/targets/{name}/namespaces/{nsid}", params(("name" = String, Path, description = "Its name"), ("nsid" = u32, Path, description = "The namespace ID"), ForceQuery), responses((status = 204, description = "It is detached"), (status = 400, description = "What was sent is wrong", body = ErrorBody), (status = 404, description = "There is no such thing", body = ErrorBody), (status = 409, description = "It stands against something that exists, or sessions or data stand in the way", body = ErrorBody), (status = 503, description = "It could not be made durable and was undone", body = ErrorBody)))]
async fn detach_volume(
    State(engine): State<Engine>,
    Path((name, nsid)): Path<(String, String)>,
    Query(query): Query<ForceQuery>,
) -> Done {
    call(engine, move |engine| {
        let nsid: Nsid = nsid
            .parse()
            .map_err(|fault: NsidFault| ApiError::invalid(fault.to_string()))?;
        engine.detach_volume(&parse(&name)?, nsid, query.force())?;
        Ok(StatusCode::NO_CONTENT)
    })
    .await
}

/// Every host
#[utoipa::path(get, path = "/v1/hosts", responses((status = 200, body = Vec<HostView>)))]
async fn list_hosts(State(engine): State<Engine>) -> Answer<Vec<HostView>> {
    call(engine, |engine| Ok(Json(engine.hosts()))).await
}

/// One host
#[utoipa::path(get, path = "/v1/hosts/{name}", params(("name" = String, Path, description = "Its name")), responses((status = 200, body = HostView), (status = 400, description = "What was sent is wrong", body = ErrorBody), (status = 404, description = "There is no such thing", body = ErrorBody)))]
async fn get_host(State(engine): State<Engine>, Path(name): Path<String>) -> Answer<HostView> {
    call(engine, move |engine| Ok(Json(engine.host(&parse(&name)?)?))).await
}

/// Create a host
#[utoipa::path(post, path = "/v1/hosts/{name}", request_body = Host, params(("name" = String, Path, description = "Its name")), responses((status = 201, body = HostView), (status = 400, description = "What was sent is wrong", body = ErrorBody), (status = 409, description = "It stands against something that exists, or sessions or data stand in the way", body = ErrorBody), (status = 503, description = "It could not be made durable and was undone", body = ErrorBody)))]
async fn create_host(
    State(engine): State<Engine>,
    Path(name): Path<String>,
    body: Bytes,
) -> Created<HostView> {
    let definition: Host = read(&body)?;
    call(engine, move |engine| {
        let name: server::HostName = parse(&name)?;
        engine.create_host(name.clone(), definition)?;
        Ok((StatusCode::CREATED, Json(engine.host(&name)?)))
    })
    .await
}

/// Change a host
#[utoipa::path(put, path = "/v1/hosts/{name}", request_body = Host, params(("name" = String, Path, description = "Its name")), responses((status = 200, body = HostView), (status = 400, description = "What was sent is wrong", body = ErrorBody), (status = 404, description = "There is no such thing", body = ErrorBody), (status = 503, description = "It could not be made durable and was undone", body = ErrorBody)))]
async fn change_host(
    State(engine): State<Engine>,
    Path(name): Path<String>,
    body: Bytes,
) -> Answer<HostView> {
    let definition: Host = read(&body)?;
    call(engine, move |engine| {
        let name: server::HostName = parse(&name)?;
        engine.change_host(name.clone(), definition)?;
        Ok(Json(engine.host(&name)?))
    })
    .await
}

/// Remove a host
#[utoipa::path(delete, path = "/v1/hosts/{name}", params(("name" = String, Path, description = "Its name")), responses((status = 204, description = "It is gone"), (status = 400, description = "What was sent is wrong", body = ErrorBody), (status = 404, description = "There is no such thing", body = ErrorBody), (status = 409, description = "It stands against something that exists, or sessions or data stand in the way", body = ErrorBody), (status = 503, description = "It could not be made durable and was undone", body = ErrorBody)))]
async fn remove_host(State(engine): State<Engine>, Path(name): Path<String>) -> Done {
    call(engine, move |engine| {
        engine.remove_host(&parse(&name)?)?;
        Ok(StatusCode::NO_CONTENT)
    })
    .await
}

/// Every portal
#[utoipa::path(get, path = "/v1/portals", responses((status = 200, body = Vec<PortalView>)))]
async fn list_portals(State(engine): State<Engine>) -> Answer<Vec<PortalView>> {
    call(engine, |engine| Ok(Json(engine.portals()))).await
}

/// One portal
#[utoipa::path(get, path = "/v1/portals/{url}", params(("url" = String, Path, description = "Its URL, percent-encoded")), responses((status = 200, body = PortalView), (status = 400, description = "What was sent is wrong", body = ErrorBody), (status = 404, description = "There is no such thing", body = ErrorBody)))]
async fn get_portal(State(engine): State<Engine>, Path(url): Path<String>) -> Answer<PortalView> {
    call(engine, move |engine| Ok(Json(engine.portal(parse(&url)?)?))).await
}

/// Open a portal
#[utoipa::path(post, path = "/v1/portals/{url}", params(("url" = String, Path, description = "Its URL, percent-encoded")), responses((status = 201, body = PortalView), (status = 400, description = "What was sent is wrong", body = ErrorBody), (status = 409, description = "It stands against something that exists, or sessions or data stand in the way", body = ErrorBody), (status = 503, description = "It could not be made durable and was undone", body = ErrorBody)))]
async fn add_portal(State(engine): State<Engine>, Path(url): Path<String>) -> Created<PortalView> {
    call(engine, move |engine| {
        let portal = engine.add_portal(parse(&url)?, IfClosed::Refuse)?;
        Ok((StatusCode::CREATED, Json(engine.portal(portal)?)))
    })
    .await
}

/// Change a portal over RDMA: its hosts connect again
#[utoipa::path(patch, path = "/v1/portals/{url}", params(("url" = String, Path, description = "Its URL, percent-encoded; what carries RDMA may be left out of it")), request_body = PortalPatch, responses((status = 200, body = PortalView), (status = 400, description = "What was sent is wrong", body = ErrorBody), (status = 404, description = "There is no such thing", body = ErrorBody), (status = 409, description = "It stands against something that exists, or sessions or data stand in the way", body = ErrorBody), (status = 503, description = "It could not be made durable and was undone", body = ErrorBody)))]
async fn change_portal(
    State(engine): State<Engine>,
    Path(url): Path<String>,
    body: Bytes,
) -> Answer<PortalView> {
    let patch: PortalPatch = read(&body)?;
    call(engine, move |engine| {
        let portal = engine.change_portal(parse(&url)?, patch)?;
        Ok(Json(engine.portal(portal)?))
    })
    .await
}

/// Close a portal
#[utoipa::path(delete, path = "/v1/portals/{url}", params(("url" = String, Path, description = "Its URL, percent-encoded"), ForceQuery), responses((status = 204, description = "It is closed"), (status = 400, description = "What was sent is wrong", body = ErrorBody), (status = 404, description = "There is no such thing", body = ErrorBody), (status = 409, description = "It stands against something that exists, or sessions or data stand in the way", body = ErrorBody), (status = 503, description = "It could not be made durable and was undone", body = ErrorBody)))]
async fn remove_portal(
    State(engine): State<Engine>,
    Path(url): Path<String>,
    Query(query): Query<ForceQuery>,
) -> Done {
    call(engine, move |engine| {
        engine.remove_portal(parse(&url)?, query.force())?;
        Ok(StatusCode::NO_CONTENT)
    })
    .await
}

/// Every other discovery service that hosts are referred to
#[utoipa::path(get, path = "/v1/referrals", responses((status = 200, body = Vec<ReferralView>)))]
async fn list_referrals(State(engine): State<Engine>) -> Answer<Vec<ReferralView>> {
    call(engine, |engine| Ok(Json(engine.referrals()))).await
}

/// One referral
#[utoipa::path(get, path = "/v1/referrals/{url}", params(("url" = String, Path, description = "Its URL, percent-encoded")), responses((status = 200, body = ReferralView), (status = 400, description = "What was sent is wrong", body = ErrorBody), (status = 404, description = "There is no such thing", body = ErrorBody)))]
async fn get_referral(
    State(engine): State<Engine>,
    Path(url): Path<String>,
) -> Answer<ReferralView> {
    call(engine, move |engine| {
        Ok(Json(engine.referral(parse(&url)?)?))
    })
    .await
}

/// Refer hosts to another discovery service
#[utoipa::path(post, path = "/v1/referrals/{url}", params(("url" = String, Path, description = "Its URL, percent-encoded")), responses((status = 201, body = ReferralView), (status = 400, description = "What was sent is wrong", body = ErrorBody), (status = 409, description = "It stands against something that exists, or sessions or data stand in the way", body = ErrorBody), (status = 503, description = "It could not be made durable and was undone", body = ErrorBody), (status = 507, description = "The memory budget or another limit is used up", body = ErrorBody)))]
async fn add_referral(
    State(engine): State<Engine>,
    Path(url): Path<String>,
) -> Created<ReferralView> {
    call(engine, move |engine| {
        let referral = parse(&url)?;
        engine.add_referral(referral)?;
        Ok((StatusCode::CREATED, Json(engine.referral(referral)?)))
    })
    .await
}

/// Refer hosts there no more
#[utoipa::path(delete, path = "/v1/referrals/{url}", params(("url" = String, Path, description = "Its URL, percent-encoded")), responses((status = 204, description = "It is gone"), (status = 400, description = "What was sent is wrong", body = ErrorBody), (status = 404, description = "There is no such thing", body = ErrorBody), (status = 503, description = "It could not be made durable and was undone", body = ErrorBody)))]
async fn remove_referral(State(engine): State<Engine>, Path(url): Path<String>) -> Done {
    call(engine, move |engine| {
        engine.remove_referral(parse(&url)?)?;
        Ok(StatusCode::NO_CONTENT)
    })
    .await
}

/// Every session
#[utoipa::path(get, path = "/v1/sessions", responses((status = 200, body = Vec<SessionView>)))]
async fn list_sessions(State(engine): State<Engine>) -> Answer<Vec<SessionView>> {
    call(engine, |engine| Ok(Json(engine.sessions()))).await
}

/// One session
#[utoipa::path(get, path = "/v1/sessions/{id}", params(("id" = u64, Path, description = "Its number")), responses((status = 200, body = SessionView), (status = 400, description = "What was sent is wrong", body = ErrorBody), (status = 404, description = "There is no such thing", body = ErrorBody)))]
async fn get_session(State(engine): State<Engine>, Path(id): Path<String>) -> Answer<SessionView> {
    call(engine, move |engine| {
        Ok(Json(engine.session(session_of(&id)?)?))
    })
    .await
}

/// End a session
#[utoipa::path(delete, path = "/v1/sessions/{id}", params(("id" = u64, Path, description = "Its number")), responses((status = 204, description = "It ended"), (status = 400, description = "What was sent is wrong", body = ErrorBody), (status = 404, description = "There is no such thing", body = ErrorBody)))]
async fn end_session(State(engine): State<Engine>, Path(id): Path<String>) -> Done {
    call(engine, move |engine| {
        engine.end_session(session_of(&id)?)?;
        Ok(StatusCode::NO_CONTENT)
    })
    .await
}

/// What the daemon does: a stream of server-sent events, one at the end of each interval
#[utoipa::path(get, path = "/v1/top", params(TopQuery), responses((status = 200, description = "Each event is a document", body = TopView, content_type = "text/event-stream"), (status = 400, description = "What was sent is wrong", body = ErrorBody), (status = 503, description = "Too many streams are open", body = ErrorBody)))]
async fn get_top(
    State(engine): State<Engine>,
    Extension(streams): Extension<TopStreams>,
    Extension(tokens): Extension<Tokens>,
    holder: Option<Extension<TokenView>>,
    Query(query): Query<TopQuery>,
) -> Result<Response, ApiError> {
    let interval = query.interval.as_deref().map(parse).transpose()?;
    let is_permitted = move || holder.as_ref().is_none_or(|holder| tokens.has(holder));
    streams.open(engine, interval.unwrap_or_default(), is_permitted)
}

/// This document
#[utoipa::path(get, path = "/openapi.json", responses((status = 200, description = "An OpenAPI document")))]
async fn get_openapi() -> Json<utoipa::openapi::OpenApi> {
    Json(openapi())
}

/// Metrics in the OpenMetrics text format
#[utoipa::path(get, path = "/metrics", responses((status = 200, description = "Metrics", body = String, content_type = "application/openmetrics-text")))]
async fn get_metrics(State(engine): State<Engine>) -> Result<Response, ApiError> {
    let text = call(engine, |engine| Ok(metrics::render(engine))).await?;
    let kind = [(header::CONTENT_TYPE, metrics::CONTENT_TYPE)];
    Ok((kind, text).into_response())
}

fn nsid_of(nsid: u32) -> Result<Nsid, ApiError> {
    nsid.to_string()
        .parse()
        .map_err(|fault: NsidFault| ApiError::invalid(fault.to_string()))
}

fn session_of(id: &str) -> Result<SessionId, ApiError> {
    match id.parse() {
        Ok(id) => Ok(SessionId(id)),
        Err(_) => Err(ApiError::invalid(format!(
            "{id:?} is not the number of a session; GET /v1/sessions lists them"
        ))),
    }
}
