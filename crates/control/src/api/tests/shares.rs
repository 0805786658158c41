//! Shares over REST.

use super::*;
use crate::engine::EngineError;

fn told(daemon: &Daemon, method: &str, path: &str, body: &Value, status: u16) -> Value {
    let (got, text) = daemon.client.raw(method, path, body).expect("an answer");
    assert_eq!(got, status, "{method} {path} {body}: {text}");
    serde_json::from_str(&text).unwrap_or_default()
}

#[test]
fn a_patch_changes_what_it_names_and_nothing_else() {
    let daemon = Daemon::start();
    let share = json!({"quota": "8M", "clients": ["::1"], "options": "ro,all_squash"});
    let made = told(&daemon, "POST", "/v1/shares/db", &share, 201);
    assert_eq!(made["path"], "/db");
    assert_eq!(made["quota_bytes"], 8 << 20);
    assert_eq!(
        (&made["files"], &made["contents"]),
        (&0.into(), &"present".into())
    );
    let patch = json!({"options": "rw,anonuid=0", "files_max": 7});
    let changed = told(&daemon, "PATCH", "/v1/shares/db", &patch, 200);
    assert_eq!(
        changed["options"],
        "rw,sync,secure,all_squash,anonuid=0,anongid=65534"
    );
    assert_eq!(changed["files_max"], 7);
    for field in ["quota_bytes", "clients"] {
        assert_eq!(changed[field], made[field], "{field}");
    }
    let changed = told(
        &daemon,
        "PATCH",
        "/v1/shares/db",
        &json!({"quota": null}),
        200,
    );
    assert_eq!(changed["quota_bytes"], Value::Null);
}

#[test]
fn a_share_for_any_address_is_not_served_to_the_network() {
    let daemon = Daemon::start();
    told(&daemon, "POST", "/v1/shares/db", &json!({}), 201);
    let portal = "/v1/portals/nfs:%2F%2F0.0.0.0:0";
    let refused = told(&daemon, "POST", portal, &Value::Null, 409);
    let message = refused["error"]["message"].as_str().expect("text");
    assert!(message.contains("--client"), "{message}");
    let file = "portals = [\"nfs://0.0.0.0:0\"]\n[shares.db]\n";
    let compare = |file: &str| {
        let to = crate::Definitions::from_toml(file).expect("definitions");
        let compared = daemon.engine.compare(to, server::Force::No);
        compared.expect("they agree with themselves").refused
    };
    assert!(matches!(compare(file), Some(EngineError::Server(_))));
    let listed = format!("{file}clients = [\"192.0.2.0/24\"]\n");
    assert!(compare(&listed).is_none());
}

#[test]
fn metrics_of_shares_count_calls_by_procedure() {
    let daemon = Daemon::start();
    let metrics = || daemon.client.get_text("/metrics").expect("metrics");
    assert!(!metrics().contains("ramport_share_"), "there are none");
    told(
        &daemon,
        "POST",
        "/v1/shares/db",
        &json!({"quota": "8M"}),
        201,
    );
    told(&daemon, "POST", "/v1/shares/free", &json!({}), 201);
    let text = metrics();
    for line in [
        "ramport_share_quota_bytes{share=\"db\"} 8388608",
        "ramport_share_files{share=\"free\"} 0",
        "ramport_share_contents_lost{share=\"db\"} 0",
        "ramport_share_operations_total{share=\"db\",procedure=\"readdirplus\"} 0",
        "ramport_share_bytes_total{share=\"db\",procedure=\"write\"} 0",
    ] {
        assert!(text.contains(&format!("\n{line}\n")), "{line}: {text}");
    }
    assert!(!text.contains("quota_bytes{share=\"free\"}"), "{text}");
    assert!(text.ends_with("# EOF\n"), "OpenMetrics ends with a mark");
}

#[test]
fn applying_a_file_without_a_share_needs_force() {
    let daemon = Daemon::start();
    told(&daemon, "POST", "/v1/shares/db", &json!({}), 201);
    let refused = told(&daemon, "PUT", "/v1/definitions", &json!({}), 409);
    let message = refused["error"]["message"].as_str().expect("text");
    assert!(message.contains("the contents of share db"), "{message}");
    let applied = told(
        &daemon,
        "PUT",
        "/v1/definitions?force=true",
        &json!({}),
        200,
    );
    assert_eq!(
        applied["changes"],
        json!(["- share db (its files are lost)"])
    );
    told(&daemon, "GET", "/v1/shares/db", &Value::Null, 404);
}
