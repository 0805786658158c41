//! Completion in real shells. Each test types a line with the Tab key at a terminal and reads what
//! the shell makes of it.

use std::path::PathBuf;
use std::process::Command;

use crate::daemon::{Daemon, ramport};
use crate::terminal::Terminal;

const TARGET: &str = "nqn.2025-01.io.ramport:complete";

/// A daemon with objects, and the script for a shell.
struct Setting {
    daemon: Daemon,
    script: PathBuf,
}

impl Setting {
    fn new(shell: &str) -> Self {
        let daemon = Daemon::start(&format!("complete-{shell}"));
        daemon.ok(&["volume", "create", "scratch", "--size", "4M"]);
        daemon.ok(&["target", "create", TARGET, "--volume", "scratch"]);
        let output = ramport()
            .args(["completions", shell])
            .output()
            .expect("runs");
        assert!(output.status.success());
        let script = daemon.folder.join("script");
        std::fs::write(&script, output.stdout).expect("written");
        Self { daemon, script }
    }

    /// Input of a shell before a person types.
    fn prologue(&self) -> String {
        let program = PathBuf::from(env!("CARGO_BIN_EXE_ramport"));
        let folder = program.parent().expect("a folder").display();
        let socket = self.daemon.folder.join("socket");
        format!(
            "export PATH={folder}:$PATH RAMPORT_SOCKET={}; source {}",
            socket.display(),
            self.script.display()
        )
    }
}

fn is_installed(shell: &str) -> bool {
    let is_there = Command::new(shell).arg("--version").output().is_ok();
    if !is_there {
        block::testing::skip(&format!(
            "{shell} is not installed; its completion is not tested"
        ));
    }
    is_there
}

/// Types lines whose completion the shell has to write out.
fn complete_by_tab(mut terminal: Terminal, prologue: &str) {
    terminal.type_in(&format!("{prologue}; echo rea'dy'\n"));
    terminal.wait_for("ready");
    // Each: what is typed, and what Tab has to add.
    for (typed, added) in [
        ("ramport volume show scr", "atch"),
        ("ramport target show nqn.2025-01.io.ramport:com", "plete"),
        ("ramport target attach nqn.2", "025-01.io.ramport:complete"),
        ("ramport volume create x --block", "-size"),
        ("ramport connect-l", "ine"),
    ] {
        terminal.type_in(typed);
        terminal.wait_for(typed);
        terminal.type_in("\t");
        terminal.wait_for(added);
        // Ctrl-U discards the line.
        terminal.type_in("\u{15}");
        terminal.type_in(" echo do'ne'\n");
        terminal.wait_for("done");
    }
    terminal.type_in("exit\n");
    terminal.end();
}

#[test]
fn bash_completes_objects_and_options() {
    let setting = Setting::new("bash");
    let terminal = Terminal::run("bash --norc --noprofile -i", &[]);
    complete_by_tab(terminal, &setting.prologue());
}

#[test]
fn zsh_completes_objects_and_options() {
    if !is_installed("zsh") {
        return;
    }
    let setting = Setting::new("zsh");
    let terminal = Terminal::run("zsh -f -i", &[]);
    let prologue = format!(
        "autoload -Uz compinit; compinit -u -D; zstyle ':completion:*' insert-tab false; {}",
        setting.prologue()
    );
    complete_by_tab(terminal, &prologue);
}

#[test]
fn fish_completes_objects_and_options() {
    if !is_installed("fish") {
        return;
    }
    let setting = Setting::new("fish");
    for (line, candidate) in [
        ("ramport volume show ", "scratch\t4 MiB"),
        (
            "ramport target show nqn.2025-01.io.ramport:c",
            "nqn.2025-01.io.ramport:complete\tnvme",
        ),
        ("ramport target create x --volume ", "scratch\t4 MiB"),
        ("ramport portal set x --rdma h", "hw\tUse an adapter only"),
    ] {
        let command = format!("{}; complete --do-complete '{line}'", setting.prologue());
        let output = Command::new("fish")
            .args(["--no-config", "--command", &command])
            .output();
        let output = output.expect("fish runs");
        let told = String::from_utf8_lossy(&output.stdout);
        assert!(told.lines().any(|line| line == candidate), "{line}: {told}");
    }
}

#[test]
fn without_a_daemon_completion_is_silent_and_quick() {
    let output = ramport()
        .env("RAMPORT_SOCKET", "/nonexistent/socket")
        .args(["complete", "--", "ramport", "volume", "show", "rd"])
        .output()
        .expect("runs");
    assert!(output.status.success());
    assert_eq!(String::from_utf8_lossy(&output.stdout), "");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}
