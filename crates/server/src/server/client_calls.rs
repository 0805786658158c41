//! Calls to programs of clients: a connection with one call and one reply, in a bounded time.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use ::nfs::{Grant, Registration};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};

/// A program of a client's that is called.
#[derive(Clone, Copy, Debug)]
pub(super) enum ClientProgram {
    /// NLM.
    LockManager,
    /// NSM.
    StatusMonitor,
}

/// The port of portmappers.
pub(super) const PORTMAPPER_PORT: u16 = 111;
/// The transaction identifier of calls. There is one call on each connection.
pub(super) const XID: u32 = 1;
/// How long a connection with a call and its reply may take.
pub(super) const CALL_WITHIN: Duration = Duration::from_secs(1);
/// The longest reply in bytes, with the header of its record.
const REPLY_BYTES_MAX: usize = Grant::REPLY_BYTES_MAX;

/// Asks a client's portmapper, from an address of ours, where a program of the client's is.
pub(super) fn port_of(
    program: ClientProgram,
    portmapper: SocketAddr,
    local: IpAddr,
) -> io::Result<SocketAddr> {
    let (call, missing) = match program {
        ClientProgram::LockManager => (
            Registration::ask_for_locks(XID),
            "its portmapper knows no lock manager",
        ),
        ClientProgram::StatusMonitor => (
            Registration::ask_for_status(XID),
            "its portmapper knows no status monitor",
        ),
    };
    let reply = exchange(portmapper, local, &call)?;
    let port = Registration::read_port(XID, &reply).ok_or_else(|| invalid(missing))?;
    Ok(SocketAddr::new(portmapper.ip(), port.get()))
}

/// The error for a reply that is not as it should be.
pub(super) fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// Connects from an address of ours, sends a call and returns the record of the reply.
pub(super) fn exchange(to: SocketAddr, from: IpAddr, call: &[u8]) -> io::Result<Vec<u8>> {
    let until = Instant::now() + CALL_WITHIN;
    let family = if to.is_ipv4() {
        AddressFamily::INET
    } else {
        AddressFamily::INET6
    };
    let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // It applies to connecting, too (socket(7)).
    set_socket_timeout(&socket, Timeout::Send, Some(CALL_WITHIN))?;
    bind(&socket, &SocketAddr::new(from, 0))?;
    connect(&socket, &to)?;
    let mut stream = TcpStream::from(socket);
    stream.write_all(call)?;
    let mut reply = vec![0; 4];
    read_until(&mut stream, &mut reply, until)?;
    let mark = u32::from_be_bytes([reply[0], reply[1], reply[2], reply[3]]);
    let len = (mark & !(1 << 31)) as usize;
    if mark >> 31 == 0 || 4 + len > REPLY_BYTES_MAX {
        return Err(invalid("the reply is no record of one short fragment"));
    }
    reply.resize(4 + len, 0);
    read_until(&mut stream, &mut reply[4..], until)?;
    Ok(reply)
}

/// Fills `bytes`, however slowly the peer sends them, if that is done in time.
fn read_until(stream: &mut TcpStream, mut bytes: &mut [u8], until: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(bytes)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            len => bytes = &mut bytes[len..],
        }
    }
    Ok(())
}
