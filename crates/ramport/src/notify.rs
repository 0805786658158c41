//! Tells systemd how the daemon is.

use std::env;
use std::ffi::OsStr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Sends a line to the service manager, if one requested notifications.
pub(crate) fn tell(line: &str) {
    let Some(path) = env::var_os("NOTIFY_SOCKET") else {
        return;
    };
    if let Err(error) = send(&path, line) {
        tracing::warn!(%error, "cannot tell the service manager");
    }
}

/// A name that begins with `@` is in the abstract namespace.
fn send(path: &OsStr, line: &str) -> std::io::Result<()> {
    let address = match path.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(path)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.send_to_addr(line.as_bytes(), &address).map(drop)
}
