//! `ramport cluster` and `ramport node`.

use std::path::Path;

use control::{
    ClusterView, ExternalEtcd, JoinCluster, NewCluster, NodeRole, NodeState, NodeView, PemIdentity,
    path_part,
};

use super::{Daemon, query};
use crate::cli::{ClusterCreateArgs, ClusterVerb, NodeVerb};
use crate::failure::Failure;
use crate::mistake::Mistake;
use crate::output::{self, TextRole, paint};
use crate::units::bytes;

pub(super) fn run(daemon: &Daemon, verb: &ClusterVerb) -> Result<(), Failure> {
    match verb {
        ClusterVerb::Create(args) => {
            show(daemon, &daemon.client.post("/v1/cluster", &request(args)?)?)
        }
        ClusterVerb::Join(args) => {
            let address = args.address.to_string();
            let path = "/v1/cluster/join";
            show(daemon, &daemon.client.post(path, &JoinCluster { address })?)
        }
        ClusterVerb::Leave(args) => {
            let path = format!("/v1/cluster{}", query(args.force));
            daemon.client.delete(&path)?;
            daemon.say("this machine has left its cluster")
        }
        ClusterVerb::List => show(daemon, &daemon.client.get("/v1/cluster")?),
    }
}

pub(super) fn run_node(daemon: &Daemon, verb: &NodeVerb) -> Result<(), Failure> {
    match verb {
        NodeVerb::List => {
            let nodes: Vec<NodeView> = daemon.client.get("/v1/nodes")?;
            if daemon.is_json() {
                return output::json(&nodes);
            }
            table(&nodes)
        }
        NodeVerb::Show(args) => {
            let path = format!("/v1/nodes/{}", path_part(&args.name));
            show_node(daemon, &daemon.client.get(&path)?)
        }
    }
}

fn request(args: &ClusterCreateArgs) -> Result<NewCluster, Failure> {
    let tls = match (&args.etcd_ca, &args.etcd_cert, &args.etcd_key) {
        (Some(issuers), Some(certificate), Some(key)) => Some(PemIdentity {
            issuers: read(issuers)?,
            certificate: read(certificate)?,
            key: read(key)?,
        }),
        _ => None,
    };
    let etcd = (!args.etcd.is_empty()).then(|| ExternalEtcd {
        urls: args.etcd.iter().map(ToString::to_string).collect(),
        tls,
    });
    Ok(NewCluster {
        name: args.name.to_string(),
        nodes: args.nodes.iter().map(ToString::to_string).collect(),
        witness: args.witness.map(|address| address.to_string()),
        etcd,
    })
}

fn read(path: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(path).map_err(|source| {
        let path = path.to_owned();
        Mistake::ReadFile { path, source }.into()
    })
}

fn show(daemon: &Daemon, cluster: &ClusterView) -> Result<(), Failure> {
    if daemon.is_json() {
        return output::json(cluster);
    }
    let up = cluster
        .nodes
        .iter()
        .filter(|node| node.state == NodeState::Up);
    let up = format!("{} of {} up", up.count(), cluster.nodes.len());
    let etcd = if cluster.etcd_is_own {
        "run by nodes"
    } else {
        "another one"
    };
    let mut fields = vec![
        ("cluster", paint(TextRole::Name, &cluster.name)),
        ("id", cluster.id.clone()),
        ("this node", cluster.this_node.clone()),
        ("nodes", up),
        ("memory of all nodes", bytes(cluster.memory_bytes)),
        (
            "after the largest node is lost",
            bytes(cluster.memory_after_loss_bytes),
        ),
        ("etcd", format!("{etcd}: {}", cluster.etcd.join(" "))),
    ];
    if let Some(losses) = cluster.etcd_losses_max {
        let text = match losses {
            0 => {
                "none; add nodes with `ramport cluster join`, or create the cluster with --witness"
                    .to_owned()
            }
            losses => losses.to_string(),
        };
        fields.push(("etcds that can be lost", text));
    }
    output::fields(&fields)?;
    output::line("")?;
    table(&cluster.nodes)
}

fn table(nodes: &[NodeView]) -> Result<(), Failure> {
    let rows = nodes.iter().map(|node| {
        vec![
            node.name.clone(),
            node.address.clone(),
            role(node).to_owned(),
            node.zone.clone(),
            bytes(node.memory_bytes),
            etcd(node).to_owned(),
            state(node),
        ]
    });
    let head = ["NODE", "ADDRESS", "ROLE", "ZONE", "MEMORY", "ETCD", "STATE"];
    output::table(&head, &["MEMORY"], rows)
}

fn show_node(daemon: &Daemon, node: &NodeView) -> Result<(), Failure> {
    if daemon.is_json() {
        return output::json(node);
    }
    output::fields(&[
        ("node", paint(TextRole::Name, &node.name)),
        ("number", node.number.to_string()),
        ("address", node.address.clone()),
        ("role", role(node).to_owned()),
        ("zone", node.zone.clone()),
        ("memory", bytes(node.memory_bytes)),
        ("runs etcd", etcd(node).to_owned()),
        ("state", state(node)),
    ])
}

fn role(node: &NodeView) -> &'static str {
    match node.role {
        NodeRole::Storage => "storage",
        NodeRole::Witness => "witness",
    }
}

fn etcd(node: &NodeView) -> &'static str {
    if node.has_etcd { "yes" } else { "no" }
}

fn state(node: &NodeView) -> String {
    match node.state {
        NodeState::Up => "up".to_owned(),
        NodeState::Down => paint(TextRole::Warning, "down"),
    }
}
