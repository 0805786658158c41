//! `ramport cluster` and `ramport node`.

use std::path::Path;
use std::thread;
use std::time::Duration;

use control::{
    ClusterPatch, ClusterView, ExternalEtcd, JoinCluster, NewCluster, NodeRole, NodeState,
    NodeView, PemIdentity, Period, path_part,
};

use super::{Daemon, query};
use crate::cli::{ClusterCreateArgs, ClusterVerb, NodeDrainArgs, NodeVerb};
use crate::failure::Failure;
use crate::mistake::Mistake;
use crate::output::{self, TextRole, paint};
use crate::units::bytes;

/// Between two looks at a node that is drained.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

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
        ClusterVerb::Set(args) => {
            let repair_after_s = args.repair_after;
            let patch = ClusterPatch { repair_after_s };
            show(daemon, &daemon.client.patch("/v1/cluster", &patch)?)
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
        NodeVerb::Show(args) => show_node(daemon, &node(daemon, &args.name)?),
        NodeVerb::Drain(args) => drain(daemon, args),
        NodeVerb::Undrain(args) => {
            let path = format!("/v1/nodes/{}/drain", path_part(&args.name));
            daemon.client.delete(&path)?;
            let name = &args.name;
            daemon.say(format!("node {name} may hold primaries and copies again"))
        }
    }
}

fn node(daemon: &Daemon, name: &str) -> Result<NodeView, Failure> {
    let path = format!("/v1/nodes/{}", path_part(name));
    Ok(daemon.client.get(&path)?)
}

/// Drains a node, and waits until all that can has moved away.
fn drain(daemon: &Daemon, args: &NodeDrainArgs) -> Result<(), Failure> {
    let name = &args.name;
    let path = format!("/v1/nodes/{}/drain{}", path_part(name), query(args.force));
    let mut node: NodeView = daemon.client.post(&path, &())?;
    let mut shown = None;
    loop {
        let Some(drain) = node.drain.filter(|drain| drain.moving > 0 && !args.no_wait) else {
            return show_node(daemon, &node);
        };
        if !daemon.is_json() && shown.replace(drain.moving) != Some(drain.moving) {
            let copies = node.copies;
            output::line(format!(
                "{} volumes still move away from node {name}; it holds {copies} copies",
                drain.moving
            ))?;
        }
        thread::sleep(LOOK_AGAIN);
        node = self::node(daemon, name)?;
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
        ("copies are made elsewhere", repair_after(cluster)),
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

fn repair_after(cluster: &ClusterView) -> String {
    match cluster.repair_after_s {
        0 => "when a node is drained".to_owned(),
        seconds => {
            let after = Period(Duration::from_secs(seconds));
            format!("when a node is drained, or away for {after}")
        }
    }
}

fn table(nodes: &[NodeView]) -> Result<(), Failure> {
    let rows = nodes.iter().map(|node| {
        vec![
            node.name.clone(),
            node.address.clone(),
            role(node).to_owned(),
            node.zone.clone(),
            bytes(node.memory_bytes),
            node.copies.to_string(),
            node.primaries.to_string(),
            etcd(node).to_owned(),
            state(node),
        ]
    });
    let head = [
        "NODE",
        "ADDRESS",
        "ROLE",
        "ZONE",
        "MEMORY",
        "COPIES",
        "PRIMARIES",
        "ETCD",
        "STATE",
    ];
    output::table(&head, &["MEMORY", "COPIES", "PRIMARIES"], rows)
}

fn show_node(daemon: &Daemon, node: &NodeView) -> Result<(), Failure> {
    if daemon.is_json() {
        return output::json(node);
    }
    let mut fields = vec![
        ("node", paint(TextRole::Name, &node.name)),
        ("number", node.number.to_string()),
        ("address", node.address.clone()),
        ("role", role(node).to_owned()),
        ("zone", node.zone.clone()),
        ("memory", bytes(node.memory_bytes)),
        ("runs etcd", etcd(node).to_owned()),
        ("copies", node.copies.to_string()),
        ("primaries", node.primaries.to_string()),
        ("state", state(node)),
    ];
    if let Some(drain) = node.drain {
        fields.push(("volumes that still move away", drain.moving.to_string()));
        fields.push(("copies that stay", drain.staying.to_string()));
    }
    output::fields(&fields)
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
    let state = match node.state {
        NodeState::Up => "up".to_owned(),
        NodeState::Down => paint(TextRole::Warning, "down"),
    };
    match node.drain {
        None => state,
        Some(drain) if drain.moving > 0 => format!("{state}, draining"),
        Some(_) => format!("{state}, drained"),
    }
}
