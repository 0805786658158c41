//! What daemons ask each other, and answer.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::has_etcd;
use super::shared::SharedNode;
use crate::name::Name;

/// The paths.
pub(super) const OFFER: &str = "/v1/offer";
pub(super) const ENTER: &str = "/v1/enter";
pub(super) const FORGET: &str = "/v1/forget";
pub(super) const ADMIT: &str = "/v1/admit";
pub(super) const COUNTERS: &str = "/v1/counters";

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
