//! Default paths of the daemon's socket and state: the system's folders for root, the user's own
//! folders for other users.

use std::env;
use std::path::PathBuf;

/// The Unix socket of the REST interface.
pub(crate) fn socket() -> PathBuf {
    if is_root() {
        return "/run/ramport/ramport.sock".into();
    }
    match env::var_os("XDG_RUNTIME_DIR") {
        Some(folder) => PathBuf::from(folder).join("ramport/ramport.sock"),
        None => state_folder().join("ramport.sock"),
    }
}

/// The state file.
pub(crate) fn state() -> PathBuf {
    state_folder().join("state")
}

/// The lines that were typed in `ramport shell`.
pub(crate) fn shell_history() -> PathBuf {
    user_state_folder().join("shell-history")
}

fn state_folder() -> PathBuf {
    if is_root() {
        return "/var/lib/ramport".into();
    }
    user_state_folder()
}

fn user_state_folder() -> PathBuf {
    if let Some(folder) = env::var_os("XDG_STATE_HOME") {
        return PathBuf::from(folder).join("ramport");
    }
    match env::var_os("HOME") {
        Some(home) => PathBuf::from(home).join(".local/state/ramport"),
        None => env::temp_dir().join("ramport"),
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
