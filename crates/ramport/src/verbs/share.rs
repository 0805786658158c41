//! `ramport share`.

use std::net::SocketAddr;

use control::{
    ClientNameView, Contents, Portal, PortalState, PortalView, Share, ShareKind, SharePatch,
    ShareView, Text, path_part,
};
use server::Transport;

use super::words::statistics;
use super::{Daemon, query};
use crate::cli::{ShareCreateArgs, ShareSetArgs, ShareVerb};
use crate::failure::Failure;
use crate::output::{self, TextRole, paint};
use crate::units::bytes;

pub(super) fn run(daemon: &Daemon, verb: ShareVerb) -> Result<(), Failure> {
    match verb {
        ShareVerb::Create(args) => {
            let definition = definition(&args);
            show(daemon, &daemon.client.post(&path(&args.name), &definition)?)
        }
        ShareVerb::List => list(daemon),
        ShareVerb::Show(args) => show(daemon, &daemon.client.get(&path(&args.name))?),
        ShareVerb::Set(args) => {
            let patch = patch(&args);
            show(daemon, &daemon.client.patch(&path(&args.name), &patch)?)
        }
        ShareVerb::Erase(args) => {
            let path = format!("{}/erase{}", path(&args.name), query(args.force));
            let _: ShareView = daemon.client.post(&path, &())?;
            daemon.say(format_args!("share {} is erased", args.name))
        }
        ShareVerb::Remove(args) => {
            let path = format!("{}{}", path(&args.name), query(args.force));
            daemon.client.delete(&path)?;
            daemon.say(format_args!("share {} is removed", args.name))
        }
    }
}

fn path(name: &str) -> String {
    format!("/v1/shares/{}", path_part(name))
}

fn definition(args: &ShareCreateArgs) -> Share {
    let default = Share::default();
    Share {
        kind: args.kind.into(),
        path: args.path.clone(),
        quota: args.quota,
        files_max: args.files.unwrap_or(default.files_max),
        clients: args.client.iter().cloned().map(Text).collect(),
        options: args.options.map_or(default.options, Text),
    }
}

fn patch(args: &ShareSetArgs) -> SharePatch {
    let clients = (args.client.iter().cloned()).map(Text).collect();
    SharePatch {
        quota: (args.no_quota || args.quota.is_some()).then_some(args.quota),
        files_max: args.files,
        clients: (args.no_clients || !args.client.is_empty()).then_some(clients),
        options: args.options.clone().map(Text),
    }
}

fn list(daemon: &Daemon) -> Result<(), Failure> {
    let shares: Vec<ShareView> = daemon.client.get("/v1/shares")?;
    if daemon.is_json() {
        return output::json(&shares);
    }
    if shares.is_empty() {
        return output::line(
            "no shares; create one with `ramport share create NAME --client ADDRESS/BITS`",
        );
    }
    let rows = shares.iter().map(|share| {
        vec![
            share.name.clone(),
            in_memory(share, bytes(share.used_bytes)),
            quota(share),
            in_memory(share, share.files.to_string()),
            remarks(share),
            clients(share),
            share.sessions.to_string(),
        ]
    });
    let head = [
        "NAME", "USED", "QUOTA", "FILES", "STATE", "CLIENTS", "SESSIONS",
    ];
    output::table(&head, &["USED", "QUOTA", "FILES", "SESSIONS"], rows)
}

fn quota(share: &ShareView) -> String {
    share.quota_bytes.map_or_else(|| "none".to_owned(), bytes)
}

/// What is known of files in memory, and not of those in a directory.
fn in_memory(share: &ShareView, text: String) -> String {
    match share.kind {
        ShareKind::Ramfs => text,
        ShareKind::Dir => "-".to_owned(),
    }
}

/// The addresses that may use a share, in words.
fn clients(share: &ShareView) -> String {
    if share.clients.is_empty() {
        return "through loopback".to_owned();
    }
    share.clients.join(" ")
}

/// A client's name with its addresses.
fn resolved(client: &ClientNameView) -> String {
    let addresses = match &*client.addresses {
        [] => "no address".to_owned(),
        addresses => addresses.join(" "),
    };
    format!("{}: {addresses}", client.name)
}

/// The kind and state of a share, in words.
pub(super) fn remarks(share: &ShareView) -> String {
    let mut words = vec![match &share.directory {
        Some(directory) => format!("{} {}", share.kind, directory.display()),
        None => share.kind.to_string(),
    }];
    if share.options.split(',').any(|option| option == "ro") {
        words.push("read-only".to_owned());
    }
    if share.problem.is_some() {
        words.push("unavailable".to_owned());
    }
    if share.contents == Contents::Lost {
        words.push("contents lost".to_owned());
    }
    words.join(", ")
}

/// A share in one line of a tree.
pub(super) fn line(share: &ShareView) -> String {
    let files = match share.kind {
        ShareKind::Ramfs => format!("{} files, {} used, ", share.files, bytes(share.used_bytes)),
        ShareKind::Dir => String::new(),
    };
    format!(
        "{}  {files}{}, for {}, {} sessions",
        paint(TextRole::Name, &share.name),
        remarks(share),
        clients(share),
        share.sessions
    )
}

fn show(daemon: &Daemon, share: &ShareView) -> Result<(), Failure> {
    if daemon.is_json() {
        return output::json(share);
    }
    let mut fields = vec![
        ("share", paint(TextRole::Name, &share.name)),
        ("path", share.path.clone()),
        ("state", remarks(share)),
    ];
    fields.extend(match share.kind {
        ShareKind::Ramfs => vec![
            ("used", bytes(share.used_bytes)),
            ("quota", quota(share)),
            ("files", format!("{} of {}", share.files, share.files_max)),
        ],
        ShareKind::Dir => vec![("free", bytes(share.free_bytes))],
    });
    fields.extend([("clients", clients(share))]);
    let names = share.client_names.iter();
    fields.extend(names.map(|name| ("client", resolved(name))));
    fields.extend([
        ("options", share.options.clone()),
        ("sessions", share.sessions.to_string()),
    ]);
    let calls = share.statistics.iter();
    fields.extend(calls.map(|(procedure, calls)| (procedure.as_str(), statistics(calls))));
    let portals: Vec<PortalView> = daemon.client.get("/v1/portals")?;
    let lines = portals
        .iter()
        .filter_map(|portal| mount_line(portal, share));
    fields.extend(lines.map(|line| ("mount", line)));
    output::fields(&fields)?;
    if let Some(problem) = &share.problem {
        let text = format!("{problem}. It is tried again every 5 seconds.");
        output::line(paint(TextRole::Warning, &text))?;
    }
    for problem in share
        .client_names
        .iter()
        .filter_map(|name| name.problem.as_ref())
    {
        output::line(paint(TextRole::Warning, &format!("{problem}.")))?;
    }
    if share.contents == Contents::Lost {
        let text = "The daemon was restarted, so the files are gone; clients that had mounted the share get errors (stale file handle) until they mount it again.";
        output::line(paint(TextRole::Warning, text))?;
    }
    Ok(())
}

/// The command of a Linux client that mounts a share through an open portal.
fn mount_line(portal: &PortalView, share: &ShareView) -> Option<String> {
    let (at, transport) = open_address(portal)?;
    let (version, protocol) = match transport {
        Transport::Nfs => ("4.2", "tcp"),
        Transport::NfsRdma => ("4.2", "rdma"),
        Transport::NfsUdp => ("3", "udp,mountproto=udp"),
        _ => return None,
    };
    let host = match at.ip() {
        ip if ip.is_unspecified() => "HOST".to_owned(),
        std::net::IpAddr::V4(ip) => ip.to_string(),
        std::net::IpAddr::V6(ip) => format!("[{ip}]"),
    };
    let (port, path) = (at.port(), &share.path);
    Some(format!(
        "mount -t nfs -o vers={version},proto={protocol},port={port} {host}:{path} /mnt"
    ))
}

/// The address and the transport of a portal, if it is open.
fn open_address(portal: &PortalView) -> Option<(SocketAddr, Transport)> {
    let Portal(at) = portal.url.parse().ok()?;
    (portal.state == PortalState::Open).then_some((at.address, at.transport))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share() -> ShareView {
        ShareView {
            name: "db".to_owned(),
            path: "/db".to_owned(),
            kind: ShareKind::Ramfs,
            directory: None,
            problem: None,
            quota_bytes: None,
            files_max: 100,
            clients: Vec::new(),
            client_names: Vec::new(),
            options: "ro,sync".to_owned(),
            used_bytes: 0,
            files: 0,
            contents: Contents::Lost,
            sessions: 0,
            created_unix_s: 0,
            free_bytes: 0,
            statistics: std::collections::BTreeMap::new(),
        }
    }

    #[test]
    fn mount_lines_are_for_open_nfs_portals() {
        let portal = |url: &str, state| -> PortalView {
            let view = serde_json::json!({ "url": url, "state": state, "connections": 0 });
            serde_json::from_value(view).expect("a portal")
        };
        let line = |url, state| mount_line(&portal(url, state), &share());
        insta::assert_snapshot!(
            line("nfs://192.0.2.1:2050", "open").expect("it is open"),
            @"mount -t nfs -o vers=4.2,proto=tcp,port=2050 192.0.2.1:/db /mnt"
        );
        for (url, host) in [
            ("nfs://[::]:2049", "HOST"),
            ("nfs://[2001:db8::1]:2049", "[2001:db8::1]"),
        ] {
            let line = line(url, "open").expect("it is open");
            assert!(line.contains(&format!(" {host}:/db ")), "{line}");
        }
        assert_eq!(line("nfs://192.0.2.1:2049", "closed"), None);
        assert_eq!(line("iscsi://192.0.2.1:3260", "open"), None);
        let line_udp = line("nfs+udp://192.0.2.1:2049", "open").expect("it is open");
        assert!(
            line_udp.contains(" vers=3,proto=udp,mountproto=udp,port=2049 "),
            "{line_udp}"
        );
        insta::assert_snapshot!(
            line("nfs+rdma://192.0.2.1:20049", "open").expect("it is open"),
            @"mount -t nfs -o vers=4.2,proto=rdma,port=20049 192.0.2.1:/db /mnt"
        );
    }

    #[test]
    fn a_share_says_what_is_worth_knowing() {
        assert_eq!(remarks(&share()), "ramfs, read-only, contents lost");
        let directory = ShareView {
            kind: ShareKind::Dir,
            directory: Some("/srv/db".into()),
            contents: Contents::Present,
            ..share()
        };
        assert_eq!(remarks(&directory), "dir /srv/db, read-only");
        let missing = ShareView {
            problem: Some("the directory does not exist".to_owned()),
            ..directory
        };
        assert_eq!(remarks(&missing), "dir /srv/db, read-only, unavailable");
        assert_eq!(clients(&share()), "through loopback");
        let name = |addresses: &[&str]| ClientNameView {
            name: "db1".to_owned(),
            addresses: addresses.iter().map(ToString::to_string).collect(),
            problem: None,
        };
        assert_eq!(resolved(&name(&[])), "db1: no address");
        assert_eq!(resolved(&name(&["::7", "192.0.2.7"])), "db1: ::7 192.0.2.7");
    }
}
