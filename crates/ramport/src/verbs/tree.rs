//! `ramport ls`: everything as a tree.

use control::{
    CapacityView, HostView, PortalView, ReferralView, SessionView, ShareView, StatusView,
    TargetView, VolumeView,
};
use serde_json::json;

use super::words::noun;
use super::{Daemon, host, portal, session, share, target, volume};
use crate::failure::Failure;
use crate::output::{self, TextRole, paint};
use crate::units::{age, bytes, span};

/// Everything, as the daemon tells it.
struct Everything {
    status: StatusView,
    capacity: CapacityView,
    volumes: Vec<VolumeView>,
    targets: Vec<TargetView>,
    shares: Vec<ShareView>,
    hosts: Vec<HostView>,
    portals: Vec<PortalView>,
    referrals: Vec<ReferralView>,
    sessions: Vec<SessionView>,
}

/// A line and what hangs below it.
struct Node {
    text: String,
    below: Vec<Node>,
}

impl Node {
    fn leaf(text: String) -> Self {
        Self {
            text,
            below: Vec::new(),
        }
    }
}

pub(super) fn show(daemon: &Daemon) -> Result<(), Failure> {
    let client = &daemon.client;
    let all = Everything {
        status: client.get("/v1/status")?,
        capacity: client.get("/v1/capacity")?,
        volumes: client.get("/v1/volumes")?,
        targets: client.get("/v1/targets")?,
        shares: client.get("/v1/shares")?,
        hosts: client.get("/v1/hosts")?,
        portals: client.get("/v1/portals")?,
        referrals: client.get("/v1/referrals")?,
        sessions: client.get("/v1/sessions")?,
    };
    if daemon.is_json() {
        return output::json(&json!({
            "status": all.status,
            "capacity": all.capacity,
            "volumes": all.volumes,
            "targets": all.targets,
            "shares": all.shares,
            "hosts": all.hosts,
            "portals": all.portals,
            "referrals": all.referrals,
            "sessions": all.sessions,
        }));
    }
    output::line(render(&tree(&all)))
}

fn tree(all: &Everything) -> Node {
    let detached: Vec<_> = all
        .volumes
        .iter()
        .filter(|volume| volume.attachments.is_empty())
        .map(|volume| Node::leaf(volume_line(volume)))
        .collect();
    let elsewhere = all
        .sessions
        .iter()
        .filter(|session| session.target.is_none() && session.nfs.is_none());
    let nfs = all.sessions.iter().filter(|session| session.nfs.is_some());
    let groups = [
        (
            "targets",
            all.targets.iter().map(|t| target_node(t, all)).collect(),
        ),
        ("volumes without a target", detached),
        ("shares", all.shares.iter().map(share_node).collect()),
        ("portals", all.portals.iter().map(portal_node).collect()),
        (
            "referrals",
            all.referrals
                .iter()
                .map(|referral| Node::leaf(referral.url.clone()))
                .collect(),
        ),
        ("hosts", all.hosts.iter().map(host_node).collect()),
        ("nfs sessions", nfs.map(session_node).collect()),
        ("discovery sessions", elsewhere.map(session_node).collect()),
    ];
    Node {
        text: format!(
            "ramport {}, up {}, {} of {} budget used",
            all.status.version,
            span(all.status.uptime_s),
            bytes(all.capacity.used_bytes),
            bytes(all.capacity.budget_bytes)
        ),
        below: groups
            .into_iter()
            .filter(|(_, below): &(_, Vec<Node>)| !below.is_empty())
            .map(|(text, below)| Node {
                text: text.to_owned(),
                below,
            })
            .collect(),
    }
}

fn target_node(target: &TargetView, all: &Everything) -> Node {
    let namespaces = target.namespaces.iter().map(|namespace| {
        let volume = all.volumes.iter().find(|v| v.name == namespace.volume);
        let line = volume.map_or_else(|| namespace.volume.clone(), volume_line);
        let noun = noun(&target.name);
        Node::leaf(format!("{noun} {}: {line}", namespace.nsid))
    });
    let is_mine = |session: &&SessionView| session.target.as_ref() == Some(&target.name);
    let sessions = all.sessions.iter().filter(is_mine).map(session_node);
    Node {
        text: format!(
            "{}  {}",
            paint(TextRole::Name, &target.name),
            paint(TextRole::Quiet, &format!("for {}", target::terms(target)))
        ),
        below: namespaces.chain(sessions).collect(),
    }
}

fn volume_line(view: &VolumeView) -> String {
    format!(
        "{}  {}, {} used, {} B blocks, {}",
        paint(TextRole::Name, &view.name),
        bytes(view.size_bytes),
        bytes(view.used_bytes),
        view.block_size,
        volume::remarks(view)
    )
}

fn share_node(view: &ShareView) -> Node {
    Node::leaf(share::line(view))
}

fn portal_node(view: &PortalView) -> Node {
    let by = portal::provider(view).map_or_else(String::new, |provider| format!(" by {provider}"));
    Node::leaf(format!(
        "{}  {}{by}, {} connections",
        paint(TextRole::Name, &view.url),
        portal::painted_state(view),
        view.connections
    ))
}

fn host_node(host: &HostView) -> Node {
    let name = paint(TextRole::Name, &host.name);
    Node::leaf(match host.chap {
        Some(_) => format!("{name}  CHAP {}", host::chap_of(host.chap.as_ref())),
        None => name,
    })
}

fn session_node(view: &SessionView) -> Node {
    Node::leaf(format!(
        "session {}: {} from {} by {}, {}, {} connections, since {}",
        view.id,
        view.host,
        view.peer,
        view.transport,
        session::state(view),
        view.connections,
        age(view.since_unix_s)
    ))
}

fn render(root: &Node) -> String {
    let mut lines = vec![root.text.clone()];
    render_below(&root.below, "", &mut lines);
    lines.join("\n")
}

fn render_below(nodes: &[Node], indent: &str, lines: &mut Vec<String>) {
    for (at, node) in nodes.iter().enumerate() {
        let (mark, more) = if at + 1 == nodes.len() {
            ("└─ ", "   ")
        } else {
            ("├─ ", "│  ")
        };
        lines.push(format!("{indent}{mark}{}", node.text));
        render_below(&node.below, &format!("{indent}{more}"), lines);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_shows_what_hangs_where() {
        let node = |text: &str, below| Node {
            text: text.to_owned(),
            below,
        };
        let root = node(
            "root",
            vec![
                node("a", vec![node("a1", vec![]), node("a2", vec![])]),
                node("b", vec![node("b1", vec![])]),
            ],
        );
        insta::assert_snapshot!(render(&root), @r"
        root
        ├─ a
        │  ├─ a1
        │  └─ a2
        └─ b
           └─ b1
        ");
    }
}
