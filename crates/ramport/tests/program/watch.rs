//! `ramport watch` of a machine that belongs to no cluster.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::daemon::Daemon;
use crate::load::load;
use crate::terminal::Terminal;

#[test]
fn one_machine_under_load_has_figures_as_a_table_and_as_documents() {
    let daemon = Daemon::start("watch-one");
    let once = ["watch", "--once", "--interval", "200ms"];
    let idle = daemon.json(&once);
    assert_eq!(idle["nodes"][0]["name"], "this machine");
    assert_eq!(idle["total"]["iops"], 0.0);
    let _load = load(&daemon, "randwrite");
    let end = Instant::now() + Duration::from_secs(60);
    let shown = loop {
        let shown = daemon.json(&once);
        // Before it writes, the program reads what it would overwrite.
        let total = &shown["total"];
        if total["writes_per_s"].as_f64() > Some(0.0) && total["reads_per_s"] == 0.0 {
            break shown;
        }
        assert!(Instant::now() < end, "no load: {shown}");
    };
    let total = &shown["total"];
    let number = |name: &str| total[name].as_f64().expect("a figure");
    assert_eq!(shown["nodes"][0]["figures"], *total);
    assert!((number("write_bytes_per_s") - 4096.0 * number("writes_per_s")).abs() < 1.0);
    assert!(number("latency_mean_us") > 0.0 && number("queue") > 0.0);
    assert!(total["rebuild"].is_null() && total["copies"] == 0);
    let table = daemon.ok(&once);
    assert!(
        table.contains("IOPS") && table.contains("this machine"),
        "{table}"
    );
    assert!(!table.contains("total"), "{table}");
}

#[test]
fn documents_follow_each_other_until_their_reader_is_gone() {
    let daemon = Daemon::start("watch-lines");
    let program = env!("CARGO_BIN_EXE_ramport");
    let socket = daemon.folder.join("socket");
    let line = format!(
        "{program} --socket {} watch --json --interval 100ms | head -n 2",
        socket.display()
    );
    let output = std::process::Command::new("sh")
        .args(["-c", &line])
        .output();
    let output = String::from_utf8(output.expect("sh runs").stdout).expect("text");
    let documents: Vec<Value> = output
        .lines()
        .map(|line| serde_json::from_str(line).expect("a document per line"))
        .collect();
    assert_eq!(documents.len(), 2, "{output}");
    let time = |at: usize| documents[at]["time_unix_ms"].as_u64().expect("a time");
    assert!(time(1) >= time(0) + 50, "{output}");
}

#[test]
fn without_a_terminal_a_hint_is_given_and_with_one_there_is_a_screen() {
    let daemon = Daemon::start("watch-terminal");
    let told = daemon.mistake(&["watch"]);
    assert!(told.contains("ramport watch --once"), "{told}");
    let program = env!("CARGO_BIN_EXE_ramport");
    let socket = daemon.folder.join("socket");
    let command = format!(
        "stty rows 24 cols 100; {program} --socket {} watch --interval 100ms; echo \"status $?\"",
        socket.display()
    );
    let mut terminal = Terminal::run(&command, &[]);
    terminal.wait_for("this machine");
    terminal.type_in("q");
    terminal.wait_for("status 0");
    terminal.end();
}
