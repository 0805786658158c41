//! A way to one peer: its address is not looked at, and no route looked up, with each datagram that
//! is sent.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;

use super::control::Control;
use super::{Others, Piece, UdpOptions, UdpSocket, send_message};

/// A connected socket that sends to one peer, from a port of its own, and receives nothing.
///
/// Linux counts the identifications of its IPv4 packets on from call to call, so nothing may rely
/// on them.
#[derive(Debug)]
pub struct UdpLane(UdpSocket);

impl UdpLane {
    /// A lane from an address of this machine to a peer.
    pub fn open(from: IpAddr, to: SocketAddr) -> io::Result<Self> {
        // The least that the system gives: what is not received takes no room.
        let options = UdpOptions {
            recv_buffer_bytes: 0,
        };
        let socket = UdpSocket::open(SocketAddr::new(from, 0), options, Others::Refused)?;
        rustix::net::connect(&socket.fd, &to)?;
        Ok(Self(socket))
    }

    /// Sends `pieces`, one after the other, as one datagram. The pieces are the same however often
    /// they are gone through.
    pub fn send<'v>(&mut self, pieces: impl Iterator<Item = Piece<'v>> + Clone) -> io::Result<()> {
        let UdpSocket { fd, iovecs, .. } = &mut self.0;
        iovecs.with(pieces, |iovecs| {
            send_message(fd.as_fd(), None, iovecs, &mut Control::default())
        })
    }
}
