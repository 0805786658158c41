//! `ramport shell`: commands as an argument, from standard input, and at a terminal.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::{Output, Stdio};

use crate::daemon::{Daemon, ramport};
use crate::terminal::Terminal;

fn script(daemon: &Daemon, text: &str) -> Output {
    let mut child = ramport()
        .arg("--socket")
        .arg(daemon.folder.join("socket"))
        .arg("shell")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program runs");
    let mut input = child.stdin.take().expect("a pipe");
    input.write_all(text.as_bytes()).expect("written");
    drop(input);
    child.wait_with_output().expect("ended")
}

#[test]
fn a_script_works_in_the_tree_and_stops_at_its_first_failure() {
    let daemon = Daemon::start("shell-script");
    let text = "# A volume.\ncd /volumes; create rd0 --size 4M\n\ncd rd0\ngrow 4M; pwd\n";
    let output = script(&daemon, text);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(told.ends_with("/volumes/rd0\n"), "{told}");
    assert_eq!(
        daemon.json(&["volume", "show", "rd0"])["size_bytes"],
        8 << 20
    );

    // As the plain command does, it requires --force.
    let output = script(&daemon, "cd /volumes/rd0\nshrink 4M\nlock\n");
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(daemon.json(&["volume", "show", "rd0"])["read_only"], false);
    let output = script(&daemon, "cd /volumes/rd9\nvolume remove rd0\n");
    assert_eq!(output.status.code(), Some(2));
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("volume rd9 does not exist"), "{told}");
    let output = script(&daemon, "volume show rd0 --nonsense; volume remove rd0\n");
    assert_eq!(output.status.code(), Some(2));
    daemon.ok(&["volume", "show", "rd0"]);

    let output = script(&daemon, "cd /volumes/rd0; rm; pwd; exit; nonsense");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(String::from_utf8_lossy(&output.stdout).ends_with("/volumes\n"));
}

#[test]
fn commands_as_an_argument_have_the_options_of_the_shell() {
    let daemon = Daemon::start("shell-argument");
    daemon.ok(&["volume", "create", "rd0", "--size", "4M"]);
    let volumes = daemon.json(&["shell", "cd /volumes; ls"]);
    assert_eq!(volumes[0]["name"], "rd0");
    let shown = daemon.ok(&["shell", "ls volumes/rd0"]);
    assert!(shown.contains("4 MiB"), "{shown}");
    let help = daemon.ok(&["shell", "cd /volumes; help; help grow"]);
    assert!(help.contains("Grow a volume by an amount"), "{help}");
    let told = daemon.mistake(&["shell", "serve"]);
    assert!(told.contains("does not run in the shell"), "{told}");
}

#[test]
fn a_person_completes_commands_and_objects_and_finds_a_history() {
    let daemon = Daemon::start("shell-person");
    daemon.ok(&["volume", "create", "scratch", "--size", "4M"]);
    let state = daemon.folder.join("home");
    let command = format!(
        "{} --socket {} shell",
        env!("CARGO_BIN_EXE_ramport"),
        daemon.folder.join("socket").display()
    );
    let home = state.to_str().expect("UTF-8");
    let mut terminal = Terminal::run(&command, &[("XDG_STATE_HOME", home)]);
    terminal.wait_for("/> ");
    terminal.type_in("cd /vol\tscr\t\n");
    terminal.wait_for("/volumes/scratch> ");
    terminal.type_in("gro\t4M\n");
    terminal.wait_for("8 MiB");
    // A failure does not end it.
    terminal.type_in("nonsense\n");
    terminal.wait_for("unrecognized subcommand");
    terminal.type_in("\u{4}");
    terminal.end();
    let history = state.join("ramport/shell-history");
    let text = std::fs::read_to_string(&history).expect("a history");
    assert!(text.contains("grow 4M"), "{text}");
    let metadata = std::fs::metadata(&history).expect("a file");
    assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
}
