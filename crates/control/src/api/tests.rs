mod metrics;
mod network;
mod shares;
mod top;
mod unfinished;

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::*;
use crate::testing::{Folder, server_config};
use crate::{
    Client, ClientError, Endpoint, IfClosed, LostContents, PortalState, RdmaProvider, parse,
};

/// A daemon in this process, with a folder that goes with it.
struct Daemon {
    api: Option<Api>,
    engine: Engine,
    client: Client,
    folder: Folder,
}

impl Daemon {
    fn start() -> Self {
        let folder = Folder::new();
        let engine = Engine::open(server_config(), &folder.state(), LostContents::default())
            .expect("the engine opens");
        let socket = folder.join("socket");
        let config = ApiConfig {
            socket: socket.clone(),
            owner: SocketOwner::User,
            tokens: folder.join("api-tokens"),
            tcp: None,
        };
        let api = Api::start(engine.clone(), config).expect("the interface starts");
        Self {
            api: Some(api),
            engine,
            client: Client::new(Endpoint::Unix(socket)).expect("a client"),
            folder,
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Some(api) = self.api.take() {
            api.stop();
        }
        self.engine.stop(std::time::Duration::from_secs(1));
    }
}

/// Requests, and the status that each should get: method, status, path, body. Every route at least
/// once, and what goes wrong on it, in an order in which each finds what it needs.
const EXCHANGES: &str = r#"
GET    200 /v1/status
GET    200 /v1/capacity
GET    200 /v1/tasks
GET    200 /openapi.json
POST   201 /v1/volumes/a {"size": "4M"}
POST   409 /v1/volumes/a {"size": "4M"}
POST   400 /v1/volumes/b {"size": "4X"}
POST   400 /v1/volumes/b {"size": "4M", "colour": 1}
POST   400 /v1/volumes/b%20c {"size": "4M"}
POST   507 /v1/volumes/b {"size": "1T", "provisioning": "thick"}
POST   201 /v1/volumes/thick {"size": "4M", "provisioning": "thick"}
POST   201 /v1/volumes/own {"size": "4M", "identity": {"uuid": "6ba7b810-9dad-41d1-80b4-00c04fd430c8", "serial": "S1"}}
POST   409 /v1/volumes/other {"size": "4M", "identity": {"serial": "S1"}}
POST   400 /v1/volumes/other {"size": "4M", "identity": {"eui64": "0000000000000000"}}
DELETE 204 /v1/volumes/own
GET    200 /v1/volumes/a
GET    404 /v1/volumes/none
GET    200 /v1/volumes
PATCH  200 /v1/volumes/a {"size": "8M", "read_only": true}
PATCH  409 /v1/volumes/a {"size": "4M"}
PATCH  200 /v1/volumes/a?force=true {"size": "4M"}
PATCH  400 /v1/volumes/a {"size": 1}
PATCH  404 /v1/volumes/none {}
PATCH  200 /v1/volumes/a {"filters": {"delay": {"read": "1ms"}}}
POST   200 /v1/volumes/a/erase
POST   200 /v1/volumes/a/erase?force=true
POST   404 /v1/volumes/none/erase
POST   201 /v1/volumes/m {"size": "4M"}
POST   200 /v1/copies {"source": "a", "destination": "m", "verify": true}
POST   409 /v1/copies {"source": "m", "destination": "m"}
POST   404 /v1/copies?force=true {"source": "none", "destination": "m"}
POST   409 /v1/copies {"source": "/none", "destination": "m"}
POST   400 /v1/copies {"source": "a"}
POST   400 /v1/volumes/r {"kind": "remote", "urls": ["disk"]}
POST   400 /v1/volumes/r {"kind": "remote", "urls": ["iscsi://a%secret@127.0.0.1/iqn.x:y"]}
POST   409 /v1/volumes/r {"kind": "remote", "urls": ["nvme+tcp://127.0.0.1:1/nqn.x:y"]}
POST   400 /v1/volumes/s {"size": "4M", "kind": "snapshot"}
POST   400 /v1/volumes/s {"size": "4M", "kind": "snapshot", "of": "none"}
POST   400 /v1/volumes/s {"size": "8M", "kind": "snapshot", "of": "m"}
POST   400 /v1/volumes/s {"size": "4M", "kind": "snapshot", "of": "m", "provisioning": "thin"}
POST   400 /v1/volumes/s {"size": "4M", "of": "m"}
POST   201 /v1/volumes/s {"size": "4M", "kind": "snapshot", "of": "m"}
POST   201 /v1/snapshots {"snapshots": {"s1": "m", "s2": "thick"}}
POST   409 /v1/snapshots {"snapshots": {"s3": "thick", "s1": "m"}}
POST   400 /v1/snapshots {"snapshots": {"s3": "m", "s4": "m"}}
POST   404 /v1/snapshots {"snapshots": {"s3": "none"}}
POST   409 /v1/snapshots {"snapshots": {"s3": "s1"}}
POST   409 /v1/volumes/s1/erase
PATCH  409 /v1/volumes/s1 {"size": "8M"}
POST   400 /v1/volumes/c {"size": "4M", "kind": "clone", "of": "m"}
POST   201 /v1/volumes/c {"size": "8M", "kind": "clone", "of": "s1"}
POST   200 /v1/volumes/m/rollback/s1
POST   409 /v1/volumes/m/rollback/s2
POST   404 /v1/volumes/m/rollback/none
POST   201 /v1/volumes/p1 {"size": "1M"}
POST   201 /v1/volumes/p2 {"size": "1M"}
POST   201 /v1/volumes/p3 {"size": "2M"}
POST   201 /v1/volumes/l {"kind": "linear", "members": ["p1", "p2"]}
POST   400 /v1/volumes/l2 {"kind": "linear", "members": ["p1"]}
POST   400 /v1/volumes/l2 {"kind": "stripe", "members": ["p3", "l2"]}
DELETE 409 /v1/volumes/p1?force=true
PATCH  409 /v1/volumes/p1 {"size": "2M"}
POST   409 /v1/volumes/p1/erase
POST   409 /v1/volumes/p1/members/p3
POST   200 /v1/volumes/l/members/p3
POST   400 /v1/volumes/l/members/p3
POST   400 /v1/volumes/l/members/l
POST   404 /v1/volumes/l/members/none
POST   200 /v1/volumes/l/erase
DELETE 204 /v1/volumes/l
POST   400 /v1/volumes/mm {"kind": "mirror", "members": ["p1"]}
POST   201 /v1/volumes/mm {"kind": "mirror", "members": ["p1", "p2"]}
PATCH  200 /v1/volumes/mm {"resync_rate": "1M"}
PATCH  409 /v1/volumes/p3 {"resync_rate": "1M"}
POST   200 /v1/volumes/mm/members/p2/fail
POST   409 /v1/volumes/mm/members/p1/fail
POST   200 /v1/volumes/mm/members/p2/return
POST   200 /v1/volumes/mm/members/p2/replace/p3
POST   409 /v1/volumes/p1/members/p3/replace/p2
POST   404 /v1/volumes/mm/members/p3/replace/none
POST   200 /v1/volumes/mm/scrub?repair=true
POST   400 /v1/volumes/mm/scrub?repair=perhaps
POST   409 /v1/volumes/p3/scrub
DELETE 204 /v1/volumes/mm
DELETE 204 /v1/volumes/p1
DELETE 204 /v1/volumes/p2
DELETE 204 /v1/volumes/p3
DELETE 409 /v1/volumes/m?force=true
DELETE 409 /v1/volumes/s1?force=true
DELETE 204 /v1/volumes/c
DELETE 204 /v1/volumes/s1
DELETE 204 /v1/volumes/s2
DELETE 204 /v1/volumes/s
DELETE 204 /v1/volumes/m
POST   409 /v1/volumes/a/save {}
POST   400 /v1/volumes/a/save {"file": "here"}
POST   503 /v1/volumes/a/save {"file": "/dev/null/a.save"}
POST   404 /v1/volumes/none/save {}
POST   409 /v1/volumes/a/restore {}
POST   400 /v1/volumes/a/restore {"file": "/dev/null/a.save"}
POST   400 /v1/volumes/a/restore {"file": "here", "zero_damaged": true}
POST   404 /v1/volumes/none/restore {}
PATCH  400 /v1/volumes/a {"save": {"to": "/dev/null/saves"}}
PATCH  200 /v1/volumes/a {"save": null}
POST   200 /v1/volumes/a/acknowledge
POST   404 /v1/volumes/none/acknowledge
POST   201 /v1/hosts/nqn.h {"addresses": ["192.0.2.0/24"]}
POST   409 /v1/hosts/nqn.h {}
POST   400 /v1/hosts/other {"told_by": "address"}
PUT    200 /v1/hosts/nqn.h {}
PUT    404 /v1/hosts/none {}
GET    200 /v1/hosts/nqn.h
GET    404 /v1/hosts/none
GET    200 /v1/hosts
POST   201 /v1/targets/t {"namespaces": {"1": "a"}}
POST   409 /v1/targets/t {}
POST   400 /v1/targets/u {"namespaces": {"1": "none"}}
GET    200 /v1/targets/t
GET    404 /v1/targets/none
GET    200 /v1/targets
PUT    200 /v1/targets/t/access {"hosts": {"nqn.h": "read_only"}}
PUT    400 /v1/targets/t/access {"hosts": {"x": "read_only"}}
PUT    400 /v1/targets/t/access {"portal_groups": [2]}
PUT    404 /v1/targets/none/access {}
DELETE 409 /v1/hosts/nqn.h
DELETE 409 /v1/volumes/a
POST   201 /v1/targets/t/namespaces {"volume": "thick"}
POST   409 /v1/targets/t/namespaces {"volume": "thick", "nsid": 1}
POST   400 /v1/targets/t/namespaces {"volume": "thick"}
POST   400 /v1/targets/t/namespaces {"volume": "thick", "nsid": 0}
POST   404 /v1/targets/t/namespaces {"volume": "none"}
DELETE 204 /v1/targets/t/namespaces/2
DELETE 404 /v1/targets/t/namespaces/2
DELETE 400 /v1/targets/t/namespaces/x
POST   201 /v1/portals/nvme+tcp:%2F%2F127.0.0.1:0
POST   400 /v1/portals/localhost
GET    404 /v1/portals/127.0.0.1:1
DELETE 404 /v1/portals/127.0.0.1:1
DELETE 404 /v1/portals/127.0.0.1:1?force=true
POST   201 /v1/portals/iscsi:%2F%2F127.0.0.1:0,7
POST   400 /v1/portals/nvme+rdma:%2F%2F127.0.0.1:4420%3Frdma=hw
POST   400 /v1/portals/nvme+tcp:%2F%2F127.0.0.1:4420%3Frdma=soft
PATCH  404 /v1/portals/nvme+rdma:%2F%2F127.0.0.1:4420 {"rdma": "soft"}
PATCH  400 /v1/portals/nvme+rdma:%2F%2F127.0.0.1:4420 {"rdma": "some"}
GET    200 /v1/portals
POST   201 /v1/tokens/ci {"role": "operator"}
POST   409 /v1/tokens/ci {"role": "operator"}
POST   400 /v1/tokens/a {"role": "root"}
POST   400 /v1/tokens/a%20b {"role": "read-only"}
GET    200 /v1/tokens
DELETE 204 /v1/tokens/ci
DELETE 404 /v1/tokens/ci
POST   201 /v1/portals/nfs:%2F%2F127.0.0.1:0
POST   201 /v1/shares/db {"quota": "8M", "options": "rw,no_root_squash"}
POST   409 /v1/shares/db {}
POST   400 /v1/shares/other {"options": "rw,krb5"}
POST   400 /v1/shares/other {"quota": "8"}
POST   400 /v1/shares/.. {}
GET    200 /v1/shares/db
GET    404 /v1/shares/none
GET    200 /v1/shares
PATCH  200 /v1/shares/db {"quota": null, "files_max": 10, "clients": ["192.0.2.0/24"], "options": "ro"}
PATCH  400 /v1/shares/db {"quota": "8"}
PATCH  404 /v1/shares/none {}
POST   200 /v1/shares/db/erase
POST   404 /v1/shares/none/erase?force=true
DELETE 404 /v1/shares/none
DELETE 204 /v1/shares/db
POST   201 /v1/shares/docs {}
POST   201 /v1/referrals/192.0.2.7:8009
POST   409 /v1/referrals/nvme+tcp:%2F%2F192.0.2.7:8009
POST   400 /v1/referrals/0.0.0.0
GET    200 /v1/referrals/192.0.2.7:8009
GET    404 /v1/referrals/192.0.2.8
GET    200 /v1/referrals
DELETE 204 /v1/referrals/192.0.2.7:8009
DELETE 404 /v1/referrals/192.0.2.7:8009
GET    200 /v1/sessions
GET    404 /v1/sessions/9
GET    400 /v1/sessions/x
DELETE 404 /v1/sessions/9
GET    409 /v1/cluster
POST   409 /v1/cluster {"name": "lab", "nodes": ["192.0.2.1"]}
POST   400 /v1/cluster {"name": "lab"}
POST   409 /v1/cluster/join {"address": "192.0.2.1"}
POST   400 /v1/cluster/join {"address": 1}
PATCH  409 /v1/cluster {"repair_after_s": 60}
PATCH  400 /v1/cluster {"repair_after_s": "1m"}
DELETE 409 /v1/cluster
GET    409 /v1/nodes
GET    409 /v1/nodes/n1
POST   409 /v1/nodes/n1/drain
DELETE 409 /v1/nodes/n1/drain
GET    200 /v1/watch
GET    400 /v1/top?interval=1ms
GET    200 /metrics
POST   200 /v1/acknowledge
GET    200 /v1/definitions
GET    200 /v1/definitions?with_secrets=true
PUT    200 /v1/definitions?dry_run=true {}
PUT    409 /v1/definitions {}
PUT    400 /v1/definitions {"volume": {}}
POST   201 /v1/hosts/iqn.2025-01.io.ramport:h {"chap": {"user": "h", "secret": "open sesame, please"}}
PUT    200 /v1/hosts/iqn.2025-01.io.ramport:h {"chap": {"user": "h", "secret": "(hidden)"}}
PUT    400 /v1/hosts/iqn.2025-01.io.ramport:h {"chap": {"user": "h", "secret": "short"}}
POST   400 /v1/hosts/new {"chap": {"user": "h", "secret": "(hidden)"}}
POST   400 /v1/hosts/new {"chap": {"user": "h", "secret_file": "/etc/passwd"}}
POST   201 /v1/targets {"namespaces": {"0": "a"}}
POST   201 /v1/targets {"namespaces": {"0": "a"}, "hosts": {"iqn.2025-01.io.ramport:h": "read_write"}, "luns": {"iqn.2025-01.io.ramport:h": {"3": "0"}}}
POST   400 /v1/targets {"luns": {"iqn.2025-01.io.ramport:h": {"3": "0"}}}
POST   201 /v1/portals/iscsi:%2F%2F127.0.0.1:0,2
DELETE 204 /v1/targets/t
DELETE 404 /v1/targets/t
DELETE 409 /v1/volumes/a
DELETE 204 /v1/volumes/a?force=true
DELETE 404 /v1/volumes/a
DELETE 204 /v1/hosts/nqn.h
DELETE 404 /v1/hosts/nqn.h
PUT    200 /v1/definitions?force=true {}
"#;

/// A line of the table: method, path, body, expected status.
fn exchange(line: &str) -> (&str, &str, Value, u16) {
    let (method, rest) = line.split_once(' ').expect("a method");
    let mut rest = rest.trim_start().splitn(3, ' ');
    let status = rest.next().and_then(|word| word.parse().ok());
    let path = rest.next().expect("a path");
    let body = rest.next().map_or(Value::Null, |text| {
        serde_json::from_str(text).expect("JSON")
    });
    (method, path, body, status.expect("a status"))
}

/// The route of the document that a path is for.
fn route_of(document: &Value, path: &str) -> String {
    let path = path.split('?').next().expect("a first part");
    let parts: Vec<_> = path.split('/').collect();
    let fits = |route: &&String| {
        let names: Vec<_> = route.split('/').collect();
        let is_same = |(name, part): (&&str, &&str)| name.starts_with('{') || name == part;
        names.len() == parts.len() && names.iter().zip(&parts).all(is_same)
    };
    let paths = document["paths"].as_object().expect("paths");
    paths.keys().find(fits).expect("a documented route").clone()
}

#[test]
fn every_route_answers_as_its_document_says() {
    let daemon = Daemon::start();
    let document = serde_json::to_value(openapi()).expect("a document");
    let mut driven = BTreeSet::new();
    for line in EXCHANGES.lines().filter(|line| !line.is_empty()) {
        let (name, path, body, expected) = exchange(line);
        let (route, method) = (route_of(&document, path), name.to_lowercase());
        let (status, text) = daemon.client.raw(name, path, &body).expect("an answer");
        assert_eq!(status, expected, "{line}: {text}");
        let responses = &document["paths"][&route][&method]["responses"];
        assert!(
            responses.get(expected.to_string()).is_some(),
            "{name} {route}: {expected} is not in the document"
        );
        if expected >= 400 {
            let error: ErrorBody = serde_json::from_str(&text).expect("an error's body");
            assert!(!error.error.message.is_empty());
        }
        driven.insert((route, method));
    }
    let paths = document["paths"].as_object().expect("paths");
    let documented: BTreeSet<_> = paths
        .iter()
        .flat_map(|(path, methods)| {
            let methods = methods.as_object().expect("methods");
            methods.keys().map(|method| (path.clone(), method.clone()))
        })
        .collect();
    assert_eq!(
        documented, driven,
        "the document and this test list other routes"
    );
    assert!(daemon.engine.definitions().is_empty());
}

#[test]
fn a_portal_over_rdma_says_what_carries_it_and_changes_whole_or_not_at_all() {
    let daemon = Daemon::start();
    let [_, _, a, b] = std::process::id().to_be_bytes();
    // An address of this process's own: RoCEv2 has one port at each.
    let place = format!("iser:%2F%2F127.37.{a}.{}:3260,2", b.max(1));
    let path = format!("/v1/portals/{place}");
    let told = |method: &str, path: &str, body: Value, status: u16| -> Value {
        let (got, text) = daemon.client.raw(method, path, &body).expect("an answer");
        assert_eq!(got, status, "{method} {path} {body}: {text}");
        serde_json::from_str(&text).unwrap_or_default()
    };
    let soft = told("POST", &format!("{path}%3Frdma=soft"), Value::Null, 201);
    let shown = ["state", "rdma", "provider", "reason"].map(|field| soft[field].clone());
    assert_eq!(
        shown,
        ["open", "soft", "soft", "software was asked for"].map(Value::from)
    );
    assert!(soft["segmentation"].is_string(), "{soft}");
    assert_eq!(soft["statistics"]["packets_dropped"]["malformed"], 0);
    // The URL need not say what carries it.
    let auto = told("PATCH", &path, json!({"rdma": "auto"}), 200);
    assert_eq!(
        (&auto["rdma"], &auto["provider"]),
        (&"auto".into(), &"soft".into())
    );
    let reason = auto["reason"].as_str().expect("a reason");
    assert!(
        reason.contains("adapter") || reason.contains("librdmacm"),
        "{reason}"
    );
    let taken = told("POST", &format!("{path}%3Frdma=hw"), Value::Null, 409);
    assert!(taken.to_string().contains("already exists"), "{taken}");
    let refused = told("PATCH", &path, json!({"rdma": "hw"}), 400);
    let refused = refused.to_string();
    assert!(refused.contains("rdma=soft needs none"), "{refused}");
    assert_eq!(
        told("GET", &path, Value::Null, 200),
        auto,
        "it is as it was"
    );
    let [other] =
        ["127.0.0.1:0"].map(|tcp| told("POST", &format!("/v1/portals/{tcp}"), Value::Null, 201));
    let tcp = crate::path_part(other["url"].as_str().expect("a URL"));
    for field in ["rdma", "segmentation", "statistics"] {
        assert_eq!(other[field], Value::Null, "{field}");
    }
    told(
        "PATCH",
        &format!("/v1/portals/{tcp}"),
        json!({"rdma": "soft"}),
        400,
    );
    told("PATCH", &format!("/v1/portals/{tcp}"), json!({}), 200);
    told("DELETE", &path, Value::Null, 204);
    told("GET", &path, Value::Null, 404);
}

#[test]
fn a_portal_whose_port_is_taken_is_kept_closed_with_the_reason_and_tried_again() {
    let daemon = Daemon::start();
    let [_, _, a, b] = std::process::id().to_be_bytes();
    let address = format!("127.38.{a}.{}", b.max(1));
    let blocker = std::net::UdpSocket::bind(format!("{address}:4791")).expect("it is ours");
    let portal: crate::Portal = parse(&format!("nvme+rdma://{address}")).expect("a portal");
    let refused = daemon.engine.add_portal(portal, IfClosed::Refuse);
    let refused = refused.expect_err("the port is taken").to_string();
    assert!(refused.contains("UDP port 4791"), "{refused}");
    assert!(daemon.engine.definitions().is_empty());
    let kept = daemon.engine.add_portal(portal, IfClosed::Keep);
    assert_eq!(kept.expect("kept"), portal);
    let view = || daemon.engine.portal(portal).expect("it is defined");
    assert_eq!(
        (view().state, view().reason),
        (PortalState::Closed, Some(refused))
    );
    assert_eq!(daemon.engine.retry_portals(), 1);
    drop(blocker);
    assert_eq!(daemon.engine.retry_portals(), 0);
    assert_eq!(
        (view().state, view().provider),
        (PortalState::Open, Some(RdmaProvider::Soft))
    );
    let removed = daemon.engine.remove_portal(portal, server::Force::No);
    removed.expect("it is there");
    // One that is closed can be taken away, too, also by a whole file.
    let blocker = std::net::UdpSocket::bind(format!("{address}:4791")).expect("free again");
    daemon
        .engine
        .add_portal(portal, IfClosed::Keep)
        .expect("kept");
    let nothing = crate::Definitions::default();
    let applied = daemon.engine.apply(nothing, server::Force::No);
    applied.expect("applied");
    assert!(daemon.engine.portals().is_empty());
    drop(blocker);
}

#[test]
fn a_path_that_does_not_exist_is_reported() {
    let daemon = Daemon::start();
    let (status, text) = daemon
        .client
        .raw("GET", "/v2", &Value::Null)
        .expect("an answer");
    assert_eq!(status, 404);
    assert!(text.contains("/openapi.json lists all paths"));
}

#[test]
fn an_empty_name_in_a_path_is_rejected_with_a_hint() {
    let daemon = Daemon::start();
    for (method, path) in [
        ("GET", "/v1/volumes/"),
        ("POST", "/v1/volumes//erase"),
        ("POST", "/v1/targets/"),
        ("DELETE", "/v1/hosts/"),
    ] {
        let answer = daemon.client.raw(method, path, &Value::Null);
        let (status, text) = answer.expect("an answer");
        assert_eq!(status, 400, "{method} {path}: {text}");
        assert!(
            text.contains("is empty; give at least one character"),
            "{text}"
        );
    }
}

#[test]
fn a_method_that_a_path_has_not_is_answered_with_a_body() {
    let daemon = Daemon::start();
    for (method, path) in [("PUT", "/v1/volumes/a"), ("DELETE", "/v1/status")] {
        let (status, text) = daemon
            .client
            .raw(method, path, &Value::Null)
            .expect("an answer");
        assert_eq!(status, 405);
        let ErrorBody { error } = serde_json::from_str(&text).expect("an error's body");
        assert_eq!(error.kind, "method_not_allowed");
        assert!(
            error
                .message
                .contains(&format!("{path} does not accept {method}"))
        );
    }
}

#[test]
fn a_parameter_of_another_type_is_answered_with_a_body() {
    let daemon = Daemon::start();
    for (method, path, reason) in [
        ("DELETE", "/v1/volumes/a?force=maybe", "force"),
        ("DELETE", "/v1/volumes/a?forse=true", "forse"),
        ("DELETE", "/v1/targets/t/namespaces/one", "one"),
        ("GET", "/v1/sessions/first", "first"),
        ("PUT", "/v1/definitions?dry_run=1", "dry_run"),
    ] {
        let (status, text) = daemon
            .client
            .raw(method, path, &Value::Null)
            .expect("an answer");
        assert_eq!(status, 400, "{path}: {text}");
        let ErrorBody { error } = serde_json::from_str(&text).expect("an error's body");
        assert_eq!(error.kind, "invalid");
        assert!(error.message.contains(reason), "{path}: {}", error.message);
    }
}

#[test]
fn what_force_overrides_names_the_parameter_over_rest() {
    let daemon = Daemon::start();
    let volume = json!({"size": "4M"});
    let raw = |method, path, body: &Value| {
        let (status, text) = daemon.client.raw(method, path, body).expect("an answer");
        (status, serde_json::from_str::<ErrorBody>(&text).ok())
    };
    raw("POST", "/v1/volumes/a", &volume);
    raw("POST", "/v1/targets/t", &json!({"namespaces": {"1": "a"}}));
    for (method, path, body) in [
        ("PATCH", "/v1/volumes/a", json!({"size": "1M"})),
        ("DELETE", "/v1/volumes/a", Value::Null),
        ("PUT", "/v1/definitions", json!({})),
    ] {
        let (status, body) = raw(method, path, &body);
        let ErrorDetail {
            message,
            needs_force,
            ..
        } = body.expect("an error's body").error;
        assert_eq!((status, needs_force), (409, true), "{message}");
        assert!(
            message.ends_with("repeat the request with ?force=true"),
            "{message}"
        );
        assert!(!message.contains("--force"), "{message}");
    }
    let (_, other) = raw("POST", "/v1/volumes/a", &volume);
    assert!(!other.expect("an error's body").error.needs_force);
    // The client leaves the hint to the program, which has options.
    let refused = daemon.client.delete("/v1/volumes/a").expect_err("in use");
    assert!(!refused.to_string().contains("force"), "{refused}");
}

#[test]
fn a_portal_with_connections_is_closed_only_with_force() {
    let daemon = Daemon::start();
    let portal = parse("nvme+tcp://127.0.0.1:0").expect("a portal");
    let portal = daemon.engine.add_portal(portal, IfClosed::Refuse);
    let portal = portal.expect("a free port");
    let _connection = std::net::TcpStream::connect(portal.0.address).expect("it listens");
    let view = || daemon.engine.portal(portal).expect("it is there");
    let end = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while view().connections == 0 {
        assert!(std::time::Instant::now() < end, "it is not counted");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let path = format!("/v1/portals/{}", crate::path_part(&portal.to_string()));
    let delete = |path: &str| {
        let answer = daemon.client.raw("DELETE", path, &Value::Null);
        answer.expect("an answer")
    };
    let (status, text) = delete(&path);
    assert!(
        status == 409 && text.contains("has 1 connections"),
        "{text}"
    );
    assert_eq!(view().state, PortalState::Open);
    assert_eq!(delete(&format!("{path}?force=true")).0, 204);
    assert!(daemon.engine.portals().is_empty());
}

#[test]
fn the_document_names_the_token_of_requests_over_tcp() {
    let document = serde_json::to_value(openapi()).expect("a document");
    let scheme = &document["components"]["securitySchemes"]["token"];
    assert_eq!(
        (&scheme["type"], &scheme["scheme"]),
        (&"http".into(), &"bearer".into())
    );
    assert_eq!(document["security"], json!([{}, {"token": []}]));
}

#[test]
fn lists_are_in_the_order_of_numbers_in_names() {
    let daemon = Daemon::start();
    for name in ["v10", "v2", "v1"] {
        let volume = json!({"size": "1M"});
        let path = |noun: &str| format!("/v1/{noun}/{name}");
        for (noun, body) in [
            ("volumes", volume),
            ("targets", json!({})),
            ("hosts", json!({})),
        ] {
            let made = daemon.client.raw("POST", &path(noun), &body);
            assert_eq!(made.expect("an answer").0, 201);
        }
    }
    for noun in ["volumes", "targets", "hosts"] {
        let listed: Vec<Value> = daemon.client.get(&format!("/v1/{noun}")).expect("a list");
        let names: Vec<_> = listed.iter().map(|one| one["name"].as_str()).collect();
        assert_eq!(names, ["v1", "v2", "v10"].map(Some), "{noun}");
    }
}

/// Definitions that are refused: what is there before, what is applied, and the reason.
fn refused_definitions() -> Vec<(Value, Value, &'static str)> {
    let one = json!({ "volumes": { "a": { "size": "1M" } } });
    let with =
        |portals: Value, target: Value| json!({ "portals": portals, "targets": { "t": target } });
    let taken = |port: u16| json!([format!("nvme+tcp://127.0.0.1:{port}")]);
    let blocker = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = blocker.local_addr().expect("an address").port();
    // It stays taken as long as the test runs.
    std::mem::forget(blocker);
    let thick = json!({ "volumes": { "b": { "size": "1T", "provisioning": "thick" } } });
    let wide = json!(["nvme+tcp://0.0.0.0:24911"]);
    vec![
        (one, json!({}), "destroy the contents of volume a"),
        (json!({}), thick, "1 TiB"),
        (json!({}), with(taken(port), json!({})), "cannot listen on"),
        (json!({}), with(wide, json!({})), "has no host list"),
    ]
}

#[test]
fn a_comparison_refuses_what_an_apply_refuses() {
    for (before, wanted, reason) in refused_definitions() {
        let daemon = Daemon::start();
        let put = |path, body: &Value| {
            let (status, text) = daemon.client.raw("PUT", path, body).expect("an answer");
            let body: Value = serde_json::from_str(&text).expect("JSON");
            (status, body)
        };
        assert_eq!(put("/v1/definitions", &before).0, 200);
        let defined = daemon.engine.definitions();
        let (status, compared) = put("/v1/definitions?dry_run=true", &wanted);
        assert_eq!((status, &compared["applied"]), (200, &false.into()));
        assert_ne!(compared["changes"], json!([]));
        let refused = &compared["refused"];
        assert!(
            refused["message"].to_string().contains(reason),
            "{compared}"
        );
        let (status, error) = put("/v1/definitions", &wanted);
        assert!(status >= 400, "{error}");
        assert_eq!(error["error"], *refused);
        assert_eq!(daemon.engine.definitions(), defined);
        // Force overrides what needs it, and nothing else.
        let (_, forced) = put("/v1/definitions?dry_run=true&force=true", &wanted);
        assert_eq!(forced["refused"].is_null(), refused["needs_force"] == true);
    }
}

#[test]
fn a_failed_apply_undoes_everything() {
    let daemon = Daemon::start();
    let [_, _, a, b] = std::process::id().to_be_bytes();
    // An address of this process's own: whether RDMA can be served shows only when it is tried.
    let address = format!("127.43.{a}.{}", b.max(1));
    let _blocker = std::net::UdpSocket::bind(format!("{address}:4791")).expect("it is ours");
    let definitions = json!({
        "volumes": { "a": { "size": "1M" }, "b": { "size": "1M" } },
        "targets": { "t": { "namespaces": { "1": "a" } } },
        "portals": [format!("nvme+rdma://{address}?rdma=soft")],
    });
    let (status, text) = daemon
        .client
        .raw("PUT", "/v1/definitions", &definitions)
        .expect("an answer");
    assert_eq!(status, 400, "{text}");
    assert!(text.contains("UDP port 4791"), "{text}");
    assert!(daemon.engine.definitions().is_empty());
    assert!(daemon.engine.volumes().is_empty() && daemon.engine.targets().is_empty());
}

#[test]
fn the_socket_is_for_its_owner_alone() {
    let daemon = Daemon::start();
    let socket = daemon.folder.join("socket");
    let mode = std::fs::metadata(&socket).expect("exists").permissions();
    let mode = std::os::unix::fs::PermissionsExt::mode(&mode);
    assert_eq!(mode & 0o777, 0o600);
    let config = ApiConfig {
        socket,
        owner: SocketOwner::User,
        tokens: daemon.folder.join("api-tokens"),
        tcp: None,
    };
    let second = Api::start(daemon.engine.clone(), config);
    assert!(matches!(second, Err(ListenError::InUse { .. })));
}
