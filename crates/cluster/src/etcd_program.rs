//! The etcd that a node runs, and the ports of a node.

use std::net::SocketAddr;

use crate::membership::{CERTIFICATE, EtcdRun, ISSUERS, KEY, NodeFolder, NodeRecord};
use crate::process::Program;
use crate::url::EtcdUrl;

/// From the node's port to that of etcd's clients.
const CLIENT_PORT_OFFSET: u16 = 1;
/// From the node's port to that of etcd's members.
const PEER_PORT_OFFSET: u16 = 2;
/// From the node's port to that where other nodes bring writes and reads of volumes.
const LINK_PORT_OFFSET: u16 = 3;
/// The highest port of a node.
pub(crate) const NODE_PORT_MAX: u16 = u16::MAX - LINK_PORT_OFFSET;
/// Where etcd keeps its data, in the node's folder.
const DATA: &str = "etcd";
/// The most that etcd keeps: 2 GiB, its own default, stated because a full store stops changes.
const QUOTA_BYTES: u64 = 2 << 30;

/// Where clients reach the etcd of the node at `address`.
pub(crate) fn client_url(address: SocketAddr) -> EtcdUrl {
    EtcdUrl::https(
        address.ip().to_string(),
        address.port() + CLIENT_PORT_OFFSET,
    )
}

/// Where other nodes bring writes and reads of volumes to the node at `address`.
pub(crate) fn link_address(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip(), address.port() + LINK_PORT_OFFSET)
}

/// Where other members reach it.
pub(crate) fn peer_url(address: SocketAddr) -> String {
    let port = address.port() + PEER_PORT_OFFSET;
    EtcdUrl::https(address.ip().to_string(), port).to_string()
}

/// How etcd is started. All of its traffic is TLS with certificates of the cluster at both ends.
pub(crate) fn program(
    path: &str,
    folder: &NodeFolder,
    node: &NodeRecord,
    cluster_id: &str,
    run: &EtcdRun,
) -> Program {
    let file = |name: &str| folder.join(name).display().to_string();
    let (clients, peers) = (client_url(node.address).to_string(), peer_url(node.address));
    let data = format!("--data-dir={}", file(DATA));
    let state = if run.is_new { "new" } else { "existing" };
    let options = [
        ("name", node.name.to_string()),
        ("listen-client-urls", clients.clone()),
        ("advertise-client-urls", clients),
        ("listen-peer-urls", peers.clone()),
        ("initial-advertise-peer-urls", peers),
        ("initial-cluster", run.initial_cluster.clone()),
        ("initial-cluster-state", state.to_owned()),
        ("initial-cluster-token", cluster_id.to_owned()),
        ("cert-file", file(CERTIFICATE)),
        ("key-file", file(KEY)),
        ("trusted-ca-file", file(ISSUERS)),
        ("peer-cert-file", file(CERTIFICATE)),
        ("peer-key-file", file(KEY)),
        ("peer-trusted-ca-file", file(ISSUERS)),
        ("client-cert-auth", "true".to_owned()),
        ("peer-client-cert-auth", "true".to_owned()),
        // Otherwise members are refused that send from another address than the certificate's, and
        // DNS is asked for its names.
        (
            "experimental-peer-skip-client-san-verification",
            "true".to_owned(),
        ),
        // Changes are followed and read at once; an hour of them is enough for someone who was
        // away.
        ("auto-compaction-mode", "periodic".to_owned()),
        ("auto-compaction-retention", "1h".to_owned()),
        ("quota-backend-bytes", QUOTA_BYTES.to_string()),
        ("logger", "zap".to_owned()),
        ("log-level", "warn".to_owned()),
    ];
    let options = options
        .into_iter()
        .map(|(name, value)| format!("--{name}={value}"));
    Program {
        path: path.into(),
        args: std::iter::once(data.clone()).chain(options).collect(),
        pid_file: folder.join("etcd.pid"),
        mark: data,
    }
}
