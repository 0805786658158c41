//! The daemon as a node of a cluster.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use cluster::{Name, Node, NodeConfig};
use control::{Engine, Token};
use node_link::Replicas;

use crate::cli::ClusterArgs;
use crate::failure::Failure;
use crate::mistake::Mistake;

/// Where Linux shows the name of the machine.
const HOST_NAME: &str = "/proc/sys/kernel/hostname";

/// The node, if the daemon takes part in clusters. Its folder is beside the state file.
pub(super) fn start(
    args: &ClusterArgs,
    state: &Path,
    memory_bytes: u64,
    (engine, replicas): (Engine, Arc<Replicas>),
) -> Result<Option<Node>, Failure> {
    let (Some(address), Some(file)) = (args.cluster, &args.cluster_token_file) else {
        return Ok(None);
    };
    let name = match &args.node_name {
        Some(name) => name.clone(),
        None => name_of_machine()?,
    };
    let node = Node::start(NodeConfig {
        address,
        token: Token::read(file).map_err(Failure::mistake)?,
        folder: state.with_file_name("cluster"),
        zone: args.zone.clone().unwrap_or_else(|| name.clone()),
        name,
        memory_bytes,
        etcd: args.etcd_program.clone(),
        engine,
        replicas,
    });
    let node = node.map_err(Failure::mistake)?;
    tracing::info!(%address, "takes part in clusters");
    Ok(Some(node))
}

fn name_of_machine() -> Result<Name, Failure> {
    let name = fs::read_to_string(HOST_NAME).unwrap_or_default();
    let first = name.trim().split('.').next().unwrap_or_default();
    first.to_ascii_lowercase().parse().map_err(|_| {
        let name = first.to_owned();
        Mistake::NoNodeName { name }.into()
    })
}
