use std::collections::BTreeSet;
use std::path::PathBuf;

use serde_json::{Value, json};
use target::{Cores, Server, ServerConfig};

use super::*;
use crate::{Client, ClientError, Endpoint};

/// A daemon in this process, with a folder that goes with it.
struct Daemon {
    api: Option<Api>,
    engine: Engine,
    client: Client,
    folder: PathBuf,
}

impl Daemon {
    fn start(name: &str) -> Self {
        let folder =
            std::env::temp_dir().join(format!("ramport-api-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("the temporary folder can be written");
        let server = Server::start(ServerConfig {
            cores: Cores::Count(1),
            memory_bytes: Some(256 << 20),
        })
        .expect("the server starts");
        let engine = Engine::open(server, &folder.join("state")).expect("the engine opens");
        let socket = folder.join("socket");
        let config = ApiConfig {
            socket: socket.clone(),
            owner: SocketOwner::User,
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
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A request, and the status that it should get: method, route, path, body, status.
type Exchange = (&'static str, &'static str, &'static str, Value, u16);

/// Every route at least once, and what goes wrong on it, in an order in which each finds what it needs.
fn exchanges() -> Vec<Exchange> {
    let none = || Value::Null;
    let volume = "/v1/volumes/{name}";
    let target = "/v1/targets/{name}";
    let host = "/v1/hosts/{name}";
    let portal = "/v1/portals/{url}";
    let namespace = "/v1/targets/{name}/namespaces/{nsid}";
    vec![
        ("get", "/v1/status", "/v1/status", none(), 200),
        ("get", "/v1/capacity", "/v1/capacity", none(), 200),
        ("get", "/v1/tasks", "/v1/tasks", none(), 200),
        ("get", "/openapi.json", "/openapi.json", none(), 200),
        ("post", volume, "/v1/volumes/a", json!({"size": "4M"}), 201),
        ("post", volume, "/v1/volumes/a", json!({"size": "4M"}), 409),
        ("post", volume, "/v1/volumes/b", json!({"size": "4X"}), 400),
        (
            "post",
            volume,
            "/v1/volumes/b",
            json!({"size": "4M", "colour": 1}),
            400,
        ),
        (
            "post",
            volume,
            "/v1/volumes/b%20c",
            json!({"size": "4M"}),
            400,
        ),
        (
            "post",
            volume,
            "/v1/volumes/b",
            json!({"size": "1T", "provisioning": "thick"}),
            507,
        ),
        (
            "post",
            volume,
            "/v1/volumes/thick",
            json!({"size": "4M", "provisioning": "thick"}),
            201,
        ),
        ("get", volume, "/v1/volumes/a", none(), 200),
        ("get", volume, "/v1/volumes/none", none(), 404),
        ("get", "/v1/volumes", "/v1/volumes", none(), 200),
        (
            "patch",
            volume,
            "/v1/volumes/a",
            json!({"size": "8M", "read_only": true}),
            200,
        ),
        ("patch", volume, "/v1/volumes/a", json!({"size": "4M"}), 409),
        (
            "patch",
            volume,
            "/v1/volumes/a?force=true",
            json!({"size": "4M"}),
            200,
        ),
        ("patch", volume, "/v1/volumes/a", json!({"size": 1}), 400),
        ("patch", volume, "/v1/volumes/none", json!({}), 404),
        (
            "patch",
            volume,
            "/v1/volumes/a",
            json!({"filters": {"delay": {"read": "1ms"}}}),
            200,
        ),
        (
            "post",
            "/v1/volumes/{name}/erase",
            "/v1/volumes/a/erase",
            none(),
            200,
        ),
        (
            "post",
            "/v1/volumes/{name}/erase",
            "/v1/volumes/none/erase",
            none(),
            404,
        ),
        (
            "post",
            "/v1/volumes/{name}/acknowledge",
            "/v1/volumes/a/acknowledge",
            none(),
            200,
        ),
        (
            "post",
            "/v1/volumes/{name}/acknowledge",
            "/v1/volumes/none/acknowledge",
            none(),
            404,
        ),
        (
            "post",
            host,
            "/v1/hosts/nqn.h",
            json!({"addresses": ["192.0.2.0/24"]}),
            201,
        ),
        ("post", host, "/v1/hosts/nqn.h", json!({}), 409),
        (
            "post",
            host,
            "/v1/hosts/other",
            json!({"told_by": "address"}),
            400,
        ),
        ("put", host, "/v1/hosts/nqn.h", json!({}), 200),
        ("put", host, "/v1/hosts/none", json!({}), 404),
        ("get", host, "/v1/hosts/nqn.h", none(), 200),
        ("get", host, "/v1/hosts/none", none(), 404),
        ("get", "/v1/hosts", "/v1/hosts", none(), 200),
        (
            "post",
            target,
            "/v1/targets/t",
            json!({"namespaces": {"1": "a"}}),
            201,
        ),
        ("post", target, "/v1/targets/t", json!({}), 409),
        (
            "post",
            target,
            "/v1/targets/u",
            json!({"namespaces": {"1": "none"}}),
            400,
        ),
        ("get", target, "/v1/targets/t", none(), 200),
        ("get", target, "/v1/targets/none", none(), 404),
        ("get", "/v1/targets", "/v1/targets", none(), 200),
        (
            "put",
            "/v1/targets/{name}/access",
            "/v1/targets/t/access",
            json!({"hosts": {"nqn.h": "read_only"}}),
            200,
        ),
        (
            "put",
            "/v1/targets/{name}/access",
            "/v1/targets/t/access",
            json!({"hosts": {"x": "read_only"}}),
            400,
        ),
        (
            "put",
            "/v1/targets/{name}/access",
            "/v1/targets/none/access",
            json!({}),
            404,
        ),
        ("delete", host, "/v1/hosts/nqn.h", none(), 409),
        ("delete", volume, "/v1/volumes/a", none(), 409),
        (
            "post",
            "/v1/targets/{name}/namespaces",
            "/v1/targets/t/namespaces",
            json!({"volume": "thick"}),
            201,
        ),
        (
            "post",
            "/v1/targets/{name}/namespaces",
            "/v1/targets/t/namespaces",
            json!({"volume": "thick", "nsid": 1}),
            409,
        ),
        (
            "post",
            "/v1/targets/{name}/namespaces",
            "/v1/targets/t/namespaces",
            json!({"volume": "thick", "nsid": 0}),
            400,
        ),
        (
            "post",
            "/v1/targets/{name}/namespaces",
            "/v1/targets/t/namespaces",
            json!({"volume": "none"}),
            404,
        ),
        (
            "delete",
            namespace,
            "/v1/targets/t/namespaces/2",
            none(),
            204,
        ),
        (
            "delete",
            namespace,
            "/v1/targets/t/namespaces/2",
            none(),
            404,
        ),
        (
            "delete",
            namespace,
            "/v1/targets/t/namespaces/x",
            none(),
            400,
        ),
        (
            "post",
            portal,
            "/v1/portals/nvme+tcp:%2F%2F127.0.0.1:0",
            none(),
            201,
        ),
        ("post", portal, "/v1/portals/localhost", none(), 400),
        ("get", portal, "/v1/portals/127.0.0.1:1", none(), 404),
        ("delete", portal, "/v1/portals/127.0.0.1:1", none(), 404),
        ("get", "/v1/portals", "/v1/portals", none(), 200),
        ("get", "/v1/sessions", "/v1/sessions", none(), 200),
        ("get", "/v1/sessions/{id}", "/v1/sessions/9", none(), 404),
        ("get", "/v1/sessions/{id}", "/v1/sessions/x", none(), 400),
        ("delete", "/v1/sessions/{id}", "/v1/sessions/9", none(), 404),
        ("get", "/metrics", "/metrics", none(), 200),
        ("get", "/v1/definitions", "/v1/definitions", none(), 200),
        (
            "put",
            "/v1/definitions",
            "/v1/definitions?dry_run=true",
            json!({}),
            200,
        ),
        ("put", "/v1/definitions", "/v1/definitions", json!({}), 409),
        (
            "put",
            "/v1/definitions",
            "/v1/definitions",
            json!({"volume": {}}),
            400,
        ),
        ("delete", target, "/v1/targets/t", none(), 204),
        ("delete", target, "/v1/targets/t", none(), 404),
        ("delete", volume, "/v1/volumes/a", none(), 204),
        ("delete", volume, "/v1/volumes/a", none(), 404),
        ("delete", host, "/v1/hosts/nqn.h", none(), 204),
        ("delete", host, "/v1/hosts/nqn.h", none(), 404),
        (
            "put",
            "/v1/definitions",
            "/v1/definitions?force=true",
            json!({}),
            200,
        ),
    ]
}

#[test]
fn every_route_answers_as_its_document_says() {
    let daemon = Daemon::start("routes");
    let document = serde_json::to_value(openapi()).expect("a document");
    let mut driven = BTreeSet::new();
    for (method, route, path, body, expected) in exchanges() {
        let name = method.to_uppercase();
        let (status, text) = daemon.client.raw(&name, path, &body).expect("an answer");
        assert_eq!(status, expected, "{name} {path} {body}: {text}");
        let responses = &document["paths"][route][method]["responses"];
        assert!(
            responses.get(expected.to_string()).is_some(),
            "{name} {route}: {expected} is not in the document"
        );
        if expected >= 400 {
            let error: ErrorBody = serde_json::from_str(&text).expect("an error's body");
            assert!(!error.error.message.is_empty());
        }
        driven.insert((route.to_owned(), method.to_owned()));
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
fn a_path_that_does_not_exist_is_told() {
    let daemon = Daemon::start("nowhere");
    let (status, text) = daemon
        .client
        .raw("GET", "/v2", &Value::Null)
        .expect("an answer");
    assert_eq!(status, 404);
    assert!(text.contains("/openapi.json tells what there is"));
}

#[test]
fn a_failed_apply_undoes_everything() {
    let daemon = Daemon::start("undo");
    let blocker = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = blocker.local_addr().expect("an address");
    let definitions = json!({
        "volumes": { "a": { "size": "1M" }, "b": { "size": "1M" } },
        "targets": { "t": { "namespaces": { "1": "a" } } },
        "portals": [format!("nvme+tcp://{taken}")],
    });
    let (status, text) = daemon
        .client
        .raw("PUT", "/v1/definitions", &definitions)
        .expect("an answer");
    assert_eq!(status, 400, "{text}");
    assert!(text.contains("can't listen on"), "{text}");
    assert!(daemon.engine.definitions().is_empty());
    assert!(daemon.engine.volumes().is_empty() && daemon.engine.targets().is_empty());
}

#[test]
fn metrics_name_every_volume_and_keep_the_format() {
    let daemon = Daemon::start("metrics");
    let volume = json!({"size": "1M"});
    daemon
        .client
        .raw("POST", "/v1/volumes/a", &volume)
        .expect("an answer");
    let text = daemon.client.get_text("/metrics").expect("metrics");
    assert!(
        text.contains("ramport_volume_size_bytes{volume=\"a\"} 1048576\n"),
        "{text}"
    );
    assert!(text.contains("ramport_volume_operations_total{volume=\"a\",kind=\"read\"} 0\n"));
    let mut heads = BTreeSet::new();
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("# TYPE ") {
            assert!(heads.insert(name.to_owned()), "{name} twice");
        } else if !line.starts_with('#') {
            let value = line.rsplit_once(' ').expect("a value").1;
            assert!(value.parse::<f64>().is_ok(), "{line}");
        }
    }
}

#[test]
fn tcp_takes_requests_with_the_token_alone() {
    let daemon = Daemon::start("tcp");
    let file = daemon.folder.join("token");
    let write = |secret: &str| {
        std::fs::write(&file, secret).expect("written");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(&file, mode).expect("set");
        Token::read(&file).expect("a token")
    };
    let right = write("a-secret-of-some-length");
    let wrong = write("another-secret-of-length");
    let config = ApiConfig {
        socket: daemon.folder.join("second"),
        owner: SocketOwner::User,
        tcp: Some(("127.0.0.1:0".parse().expect("an address"), right.clone())),
    };
    let api = Api::start(daemon.engine.clone(), config).expect("starts");
    let address = api.tcp_address().expect("an address").to_string();
    let ask = |token| {
        let client = Client::new(Endpoint::Tcp(address.clone(), token)).expect("a client");
        client.get::<Value>("/v1/status")
    };
    assert!(ask(right).is_ok());
    let refused = ask(wrong).expect_err("refused");
    assert!(matches!(refused, ClientError::Refused { kind, .. } if kind == "unauthorized"));
    api.stop();
}

#[test]
fn the_socket_is_for_its_owner_alone() {
    let daemon = Daemon::start("mode");
    let socket = daemon.folder.join("socket");
    let mode = std::fs::metadata(&socket).expect("exists").permissions();
    let mode = std::os::unix::fs::PermissionsExt::mode(&mode);
    assert_eq!(mode & 0o777, 0o600);
    let config = ApiConfig {
        socket,
        owner: SocketOwner::User,
        tcp: None,
    };
    let second = Api::start(daemon.engine.clone(), config);
    assert!(matches!(second, Err(ListenError::InUse { .. })));
}
