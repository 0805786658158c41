//! A listening socket: takes connections in and passes them to the reactor with the least to do.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use crate::ListenerId;
use crate::driven::Acceptor;

/// A listening socket and what makes sessions of its connections.
pub(crate) struct Listener {
    pub(crate) id: ListenerId,
    pub(crate) socket: OwnedFd,
    pub(crate) acceptor: Arc<dyn Acceptor>,
    pub(crate) is_queued: bool,
}

/// A connection that is passed to the reactor that will drive it.
pub(crate) struct Incoming {
    pub(crate) socket: OwnedFd,
    pub(crate) peer: SocketAddr,
    pub(crate) local: SocketAddr,
    pub(crate) listener: ListenerId,
    pub(crate) acceptor: Arc<dyn Acceptor>,
}

/// Connections that wait in the system to be accepted.
const BACKLOG: i32 = 1024;

/// Opens a listening socket and returns it with its address.
pub(crate) fn open(address: SocketAddr) -> io::Result<(OwnedFd, SocketAddr)> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    rustix::net::bind(&socket, &address)?;
    rustix::net::listen(&socket, BACKLOG)?;
    let local = rustix::net::getsockname(&socket)?.try_into()?;
    Ok((socket, local))
}

impl Listener {
    /// The address that it listens on; `None` if the system does not report it.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        rustix::net::getsockname(&self.socket).ok()?.try_into().ok()
    }

    /// The next connection that has come in; `None` if none waits.
    pub(crate) fn accept(&self) -> io::Result<Option<Incoming>> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let (socket, peer) = match rustix::net::acceptfrom_with(&self.socket, flags) {
            Ok((socket, Some(peer))) => (socket, peer.try_into()?),
            Ok((_, None)) => return Err(io::ErrorKind::NotConnected.into()),
            Err(rustix::io::Errno::AGAIN) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let local = rustix::net::getsockname(&socket)?.try_into()?;
        Ok(Some(Incoming {
            socket,
            peer,
            local,
            listener: self.id,
            acceptor: Arc::clone(&self.acceptor),
        }))
    }
}
