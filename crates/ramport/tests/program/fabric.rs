//! `ramport fabric`, which needs no daemon.

use serde_json::Value;

use crate::daemon::ramport;

#[test]
fn fabric_ls_says_what_works_here_and_why() {
    let output = ramport().args(["fabric", "ls", "--json"]).output();
    let output = output.expect("runs");
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{complaint}");
    let answer: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let devices = answer["devices"].as_array().expect("a list");
    let [hw, soft] = [0, 1].map(|index| &answer["providers"][index]);
    assert_eq!((&hw["name"], &soft["name"]), (&"hw".into(), &"soft".into()));
    for provider in [hw, soft] {
        let reason = provider["reason"].as_str().expect("a sentence");
        assert!(
            provider["is_available"].is_boolean() && reason.len() > 10,
            "{reason}"
        );
    }
    if devices.is_empty() {
        assert_eq!(hw["is_available"], false);
        let reason = hw["reason"].as_str().expect("a sentence");
        assert!(reason.contains("soft needs none"), "{reason}");
    }
    let text = ramport()
        .args(["fabric", "ls"])
        .output()
        .expect("runs")
        .stdout;
    let text = String::from_utf8(text).expect("text");
    let last = text.lines().last().expect("a line");
    let words = if soft["is_available"] == true {
        "soft works: UDP port 4791"
    } else {
        "soft does not work: cannot use UDP port 4791"
    };
    assert!(last.starts_with(words), "{text}");
}
