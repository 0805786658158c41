//! Starts that fail.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use crate::daemon::{Daemon, ramport};

/// A folder for a test, which is removed with it.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("ramport-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("the temporary folder can be written");
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A start that has to fail.
fn failed(state: &Path, socket: &Path, more: &[&str]) -> Output {
    let output = ramport()
        .args(["serve", "--memory", "64M", "--cores", "1"])
        .args(["--log-level", "error"])
        .args(["--nvme-tcp", "127.0.0.1:0"])
        .args(more)
        .arg("--socket")
        .arg(socket)
        .arg("--state")
        .arg(state)
        .stdin(Stdio::null())
        .output()
        .expect("the program runs");
    assert!(!output.status.success());
    output
}

#[test]
fn a_failed_start_leaves_the_state_file_unchanged() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = taken.local_addr().expect("an address").to_string();
    let folder = Folder::new("failed-start");
    let (state, socket) = (folder.0.join("state"), folder.0.join("socket"));
    failed(&state, &socket, &["--nvme-tcp", &taken]);
    assert!(!state.exists(), "nothing was defined");
    // A file of another daemon's that has definitions, and whose last line was cut short.
    let other = Daemon::start("start-other");
    other.ok(&["volume", "create", "rd0", "--size", "4M"]);
    let mut text = std::fs::read(other.folder.join("state")).expect("its state");
    text.extend_from_slice(b"12345678 [{");
    std::fs::write(&state, &text).expect("written");
    let causes: [(PathBuf, &[&str]); 3] = [
        (socket.clone(), &["--nvme-tcp", &taken]),
        (socket.clone(), &["--iscsi", &taken]),
        (other.folder.join("socket"), &["--iscsi", "127.0.0.1:0"]),
    ];
    for (socket, more) in causes {
        failed(&state, &socket, more);
        assert_eq!(std::fs::read(&state).expect("read"), text, "{more:?}");
    }
}
