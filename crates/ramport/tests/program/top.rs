//! `ramport top`: on a terminal, and once for a daemon under load.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::daemon::Daemon;
use crate::load::{TARGET, load};
use crate::terminal::Terminal;

/// A number of a document.
fn number(object: &Value, name: &str) -> f64 {
    object[name]
        .as_f64()
        .unwrap_or_else(|| panic!("no {name} in {object}"))
}

fn top_once(daemon: &Daemon) -> Value {
    daemon.json(&["top", "--once", "--interval", "200ms"])
}

#[test]
fn a_daemon_under_load_has_figures_of_everything() {
    let daemon = Daemon::start("top-once");
    assert_eq!(top_once(&daemon)["total"]["iops"], 0.0);
    let _load = load(&daemon, "randread");
    let end = Instant::now() + Duration::from_secs(60);
    let view = loop {
        let view = top_once(&daemon);
        if number(&view["total"], "iops") > 0.0 {
            break view;
        }
        assert!(Instant::now() < end, "no load: {view}");
    };
    for (list, name) in [("volumes", "rd0"), ("threads", "reactor-0")] {
        assert_eq!(view[list][0]["name"], name);
    }
    assert_eq!(view["sessions"][0]["target"], TARGET);
    for list in ["volumes", "sessions", "portals", "threads"] {
        let figures = &view[list][0];
        let iops = number(figures, "iops");
        assert!(iops > 0.0, "{list}: {view}");
        assert_eq!(figures["errors_total"], 0);
        let is_close = |a: f64, b: f64| (a - b).abs() <= 1e-6 * b.abs();
        let read_bytes_per_s = number(figures, "read_bytes_per_s");
        assert!(is_close(read_bytes_per_s, 4096.0 * iops), "{list}: {view}");
        assert_eq!(figures["write_bytes_per_s"], 0.0);
        let mean_us = number(figures, "latency_mean_us");
        assert!(
            mean_us > 0.0 && number(figures, "latency_p99_us") > 0.0,
            "{list}: {view}"
        );
        // The mean is in whole nanoseconds.
        let depth = number(figures, "queue_depth");
        assert!(
            (depth - iops * mean_us / 1e6).abs() <= iops * 1e-9,
            "{list}: {view}"
        );
    }
    assert!(number(&view, "cpu_percent") > 0.0);
    assert!(number(&view["threads"][0], "cpu_percent") > 0.0);
    assert_eq!(view["memory"]["budget_bytes"], 256 << 20);
    let table = daemon.ok(&["top", "--once", "--view", "sessions", "--sort", "p99"]);
    assert!(table.contains("NAME") && table.contains(TARGET), "{table}");
    let table = daemon.ok(&["top", "--once", "--filter", "none of them"]);
    assert!(!table.contains("rd0"), "{table}");
}

#[test]
fn without_a_terminal_or_with_a_column_of_another_view_a_hint_is_given() {
    let daemon = Daemon::start("top-hints");
    for args in [&["top"][..], &["top", "--json"]] {
        let told = daemon.mistake(args);
        assert!(told.contains("use `ramport top --once`"), "{told}");
    }
    let told = daemon.mistake(&["top", "--once", "--sort", "cpu"]);
    assert!(
        told.contains("the view volumes has no column cpu; its columns are name, iops"),
        "{told}"
    );
    let told = daemon.mistake(&["top", "--interval", "1ms"]);
    assert!(
        told.contains("choose a duration from 100ms to 1m"),
        "{told}"
    );
}

/// A terminal with `ramport top`, and its process ID. A shell around it says how the terminal was
/// left.
fn terminal(daemon: &Daemon) -> (Terminal, String) {
    let program = env!("CARGO_BIN_EXE_ramport");
    let socket = daemon.folder.join("socket");
    let top = format!(
        "exec {program} --socket {} top --interval 200ms",
        socket.display()
    );
    let command = format!(
        "stty rows 24 cols 80; before=$(stty -g); sh -c 'echo process $$ runs; {top}'; \
         echo \"status $?\"; test \"$before\" = \"$(stty -g)\" && echo restored"
    );
    let mut terminal = Terminal::run(&command, &[]);
    terminal.wait_for("process ");
    let process = terminal
        .wait_for(" runs")
        .trim_end_matches(" runs")
        .to_owned();
    terminal.wait_for(ENTER);
    (terminal, process)
}

/// Checks that the program ends in order and leaves the terminal as it was.
fn is_restored(mut terminal: Terminal) {
    terminal.wait_for(LEAVE);
    terminal.wait_for("status 0");
    terminal.wait_for("restored");
    terminal.end();
}

/// Enters and leaves the alternate screen (xterm's control sequences, DECSET 1049).
const ENTER: &str = "\u{1b}[?1049h";
const LEAVE: &str = "\u{1b}[?1049l";

#[test]
fn a_terminal_shows_figures_and_is_restored_by_q() {
    let daemon = Daemon::start("top-terminal");
    let _load = load(&daemon, "randread");
    let (mut terminal, _) = terminal(&daemon);
    terminal.wait_for("rd0");
    terminal.type_in("4");
    // Only cells that change are written, so this waits for a title that no other view has.
    terminal.wait_for("CPU %");
    terminal.type_in("q");
    is_restored(terminal);
}

#[test]
fn a_daemon_that_returns_is_followed_and_a_signal_restores_the_terminal() {
    let mut daemon = Daemon::start("top-returns");
    let (mut terminal, process) = terminal(&daemon);
    terminal.wait_for("Volumes");
    daemon.child.kill().expect("killed");
    daemon.child.wait().expect("ended");
    terminal.wait_for("trying");
    daemon.kill_and_restart();
    // The hints of keys are there again.
    terminal.wait_for("quit");
    let kill = std::process::Command::new("kill").arg(&process).status();
    assert!(kill.expect("kill runs").success(), "{process}");
    is_restored(terminal);
}

#[test]
fn a_program_whose_terminal_is_closed_ends() {
    let daemon = Daemon::start("top-closed");
    let (mut terminal, process) = terminal(&daemon);
    terminal.wait_for("Volumes");
    drop(terminal);
    let end = Instant::now() + Duration::from_secs(60);
    let command_line = format!("/proc/{process}/cmdline");
    // That of a process that has ended and was not waited for is empty.
    while std::fs::read(&command_line).is_ok_and(|line| !line.is_empty()) {
        assert!(Instant::now() < end, "process {process} goes on");
        std::thread::sleep(Duration::from_millis(10));
    }
}
