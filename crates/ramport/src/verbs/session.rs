//! `ramport session`.

use control::{IscsiConnectionView, IscsiState, NfsClientView, SessionView};

use super::Daemon;
use super::words::statistics;
use crate::cli::SessionVerb;
use crate::failure::Failure;
use crate::output::{self, TextRole, paint};
use crate::units::{age, paths, span};

pub(super) fn run(daemon: &Daemon, verb: &SessionVerb) -> Result<(), Failure> {
    match verb {
        SessionVerb::List => list(daemon),
        SessionVerb::Show(args) => {
            let path = format!("/v1/sessions/{}", args.id);
            show(daemon, &daemon.client.get(&path)?)
        }
        SessionVerb::Remove(args) => {
            daemon.client.delete(&format!("/v1/sessions/{}", args.id))?;
            daemon.say(format_args!("session {} ended", args.id))
        }
    }
}

fn list(daemon: &Daemon) -> Result<(), Failure> {
    let sessions: Vec<SessionView> = daemon.client.get("/v1/sessions")?;
    if daemon.is_json() {
        return output::json(&sessions);
    }
    if sessions.is_empty() {
        return output::line("no sessions: no host is connected");
    }
    let rows = sessions.iter().map(|session| {
        vec![
            session.id.to_string(),
            target(session),
            session.host.clone(),
            session.peer.clone(),
            session.connections.to_string(),
            age(session.since_unix_s),
        ]
    });
    let head = ["ID", "TARGET", "HOST", "FROM", "CONNECTIONS", "SINCE"];
    output::table(&head, &["ID", "CONNECTIONS", "SINCE"], rows)
}

fn show(daemon: &Daemon, session: &SessionView) -> Result<(), Failure> {
    if daemon.is_json() {
        return output::json(session);
    }
    let mut fields = vec![
        ("session", paint(TextRole::Name, &session.id.to_string())),
        (
            if session.nfs.is_some() {
                "shares"
            } else {
                "target"
            },
            target(session),
        ),
        ("host", session.host.clone()),
        ("transport", session.transport.clone()),
        ("from", session.peer.clone()),
        ("to", session.local.clone()),
    ];
    let controller = session.controller.map(|id| id.to_string());
    fields.extend(controller.map(|id| ("controller", id)));
    if let Some(iscsi) = &session.iscsi {
        fields.push(("state", state(session).to_owned()));
        fields.push(("isid", iscsi.isid.clone()));
        fields.push(("tsih", iscsi.tsih.to_string()));
    }
    if let Some(brp) = &session.brp {
        fields.push(("unit", brp.unit.to_string()));
        fields.push(("tags", brp.tags.to_string()));
        fields.push(("kept for", span(brp.hold_ms / 1000)));
        let began = if brp.resumed {
            "with a lost connection's commands"
        } else {
            "as a new one"
        };
        fields.push(("began", began.to_owned()));
    }
    fields.extend([
        ("connections", session.connections.to_string()),
        ("since", age(session.since_unix_s)),
        ("reads", statistics(&session.statistics.read)),
        ("writes", statistics(&session.statistics.write)),
    ]);
    let calls = session.nfs.iter().flat_map(|nfs| &nfs.procedures);
    fields.extend(calls.map(|(procedure, calls)| (procedure.as_str(), statistics(calls))));
    let clients = session.nfs.iter().flat_map(|nfs| &nfs.clients);
    fields.extend(clients.map(|client| ("client", client_line(client))));
    let connections = session.iscsi.iter().flat_map(|iscsi| &iscsi.connections);
    fields.extend(connections.map(|connection| ("connection", connection_line(connection))));
    let keys = session.iscsi.iter().flat_map(|iscsi| &iscsi.parameters);
    let keys = keys.filter(|(key, _)| !OF_CONNECTIONS.contains(&key.as_str()));
    fields.extend(keys.map(|(key, value)| (key.as_str(), value.clone())));
    output::fields(&fields)
}

/// The keys that each connection negotiates for itself.
const OF_CONNECTIONS: [&str; 4] = [
    "HeaderDigest",
    "DataDigest",
    "MaxRecvDataSegmentLength",
    "MaxXmitDataSegmentLength",
];

/// A connection with the keys that are its own.
fn connection_line(connection: &IscsiConnectionView) -> String {
    let mut line = format!(
        "CID {}, from {} to {}",
        connection.cid, connection.peer, connection.local
    );
    for key in OF_CONNECTIONS {
        if let Some(value) = connection.parameters.get(key) {
            line = format!("{line}, {key} {value}");
        }
    }
    line
}

/// What a client of NFS version 4 holds.
fn client_line(client: &NfsClientView) -> String {
    let NfsClientView {
        name,
        sessions,
        opens,
        locks,
        delegations,
    } = client;
    format!("{name}: sessions {sessions}, opens {opens}, locks {locks}, delegations {delegations}")
}

/// How a session stands, in words.
pub(super) fn state(session: &SessionView) -> &'static str {
    match session.iscsi.as_ref().map(|iscsi| iscsi.state) {
        None if session.nfs.is_some() => "connected",
        None | Some(IscsiState::LoggedIn) => "logged in",
        Some(IscsiState::LogoutRequested) => "asked to log out",
        Some(IscsiState::Dropped) => "dropped",
    }
}

/// The target of a session, or the shares that it has used.
fn target(session: &SessionView) -> String {
    match (&session.nfs, &session.target) {
        (Some(nfs), _) => paths(&nfs.shares),
        (None, Some(target)) => target.clone(),
        (None, None) => "discovery".to_owned(),
    }
}
