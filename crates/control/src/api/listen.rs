//! Opens the listeners.

use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::fs::Mode;

use super::tokens::TokensError;

/// Who may use the Unix socket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SocketOwner {
    /// The user that the daemon runs as, and root.
    #[default]
    User,
    /// That user, and members of the group with this number.
    Group(u32),
}

/// Why the interface is not offered.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Another daemon is there.
    #[error(
        "another ramport serves {path}; stop it, or choose another --socket",
        path = path.display()
    )]
    InUse {
        /// The socket.
        path: PathBuf,
    },
    /// The socket cannot be made.
    #[error(
        "cannot create the socket {path}: {source}; choose another path with --socket",
        path = path.display()
    )]
    Unix {
        /// The socket.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The address cannot be had.
    #[error("cannot listen on {address} for REST: {source}; choose another --api-listen")]
    Tcp {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// The file of tokens cannot be used.
    #[error(transparent)]
    Tokens(#[from] TokensError),
    /// The thread cannot be made.
    #[error("cannot start the control thread: {0}")]
    Thread(#[source] io::Error),
}

/// A socket that its owner alone can use from its first moment on. One that a killed daemon left
/// behind is replaced.
pub(super) fn unix(path: &Path, owner: &SocketOwner) -> Result<UnixListener, ListenError> {
    let failed = |source| ListenError::Unix {
        path: path.to_owned(),
        source,
    };
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(failed)?;
    }
    match UnixStream::connect(path) {
        Ok(_) => {
            return Err(ListenError::InUse {
                path: path.to_owned(),
            });
        }
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(path).map_err(failed)?;
        }
        Err(_) => {}
    }
    let before = rustix::process::umask(Mode::from_raw_mode(0o177));
    let listener = UnixListener::bind(path);
    rustix::process::umask(before);
    let listener = listener.map_err(failed)?;
    if let SocketOwner::Group(group) = owner {
        std::os::unix::fs::chown(path, None, Some(*group)).map_err(failed)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o660)).map_err(failed)?;
    }
    listener.set_nonblocking(true).map_err(failed)?;
    Ok(listener)
}

pub(super) fn tcp(address: SocketAddr) -> Result<TcpListener, ListenError> {
    let listen = || {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    };
    listen().map_err(|source| ListenError::Tcp { address, source })
}
