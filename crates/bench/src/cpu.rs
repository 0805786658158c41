//! CPU time of this process and of a daemon on the same machine.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    os::fd::BorrowedFd,
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

/// A process whose CPU time is watched, and how it was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Daemon {
    /// Its process ID.
    pub pid: u32,
    /// Its name.
    pub name: String,
    /// How it was found.
    pub found: Found,
}

/// How a daemon's process was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Found {
    /// It owns the other end of the first connection, or the UDP port that RDMA in software goes to
    /// (by /proc/net/tcp or /proc/net/udp, and /proc/PID/fd).
    BySocket,
    /// It was named (`--daemon-pid`).
    ByPid,
}

/// The CPU time that this process has used.
pub(crate) fn own() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or(0),
        u32::try_from(time.tv_nsec).unwrap_or(0),
    )
}

impl Daemon {
    /// The daemon with this process ID, if any.
    pub(crate) fn by_pid(pid: u32) -> Option<Self> {
        Self::new(pid, Found::ByPid)
    }

    /// The process on this machine that owns the other end of `socket`, if any that may be looked
    /// at.
    pub(crate) fn by_socket(socket: BorrowedFd<'_>) -> Option<Self> {
        let ours = SocketAddr::try_from(rustix::net::getsockname(socket).ok()?).ok()?;
        let theirs = SocketAddr::try_from(rustix::net::getpeername(socket).ok()??).ok()?;
        let inode = inode_of(theirs, ours)?;
        Self::new(owner_of(inode)?, Found::BySocket)
    }

    /// The process on this machine that answers RDMA in software at `address`, if there is one
    /// whose figures we may read.
    pub(crate) fn by_roce_address(address: IpAddr) -> Option<Self> {
        let at = |ip| inode_of_udp(SocketAddr::new(ip, ROCE_PORT));
        let any = match address {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let inode = at(address).or_else(|| at(any))?;
        Self::new(owner_of(inode)?, Found::BySocket)
    }

    fn new(pid: u32, found: Found) -> Option<Self> {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
        Some(Self {
            pid,
            name: name.trim_end().to_owned(),
            found,
        })
    }

    /// The CPU time that its threads have used, where it still runs.
    pub(crate) fn cpu(&self) -> Option<Duration> {
        let mut total_ns = 0;
        for thread in fs::read_dir(format!("/proc/{}/task", self.pid)).ok()? {
            let path = thread.ok()?.path().join("schedstat");
            // A thread may have ended between the two calls.
            let text = fs::read_to_string(path).unwrap_or_default();
            let first = text.split_ascii_whitespace().next().unwrap_or("0");
            total_ns += first.parse::<u64>().unwrap_or(0);
        }
        Some(Duration::from_nanos(total_ns))
    }
}

/// The inode of the socket between two addresses of this machine.
fn inode_of(local: SocketAddr, remote: SocketAddr) -> Option<u64> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"];
    tables.iter().find_map(|table| {
        let text = fs::read_to_string(table).ok()?;
        text.lines()
            .skip(1)
            .find_map(|line| inode_in(line, local, remote))
    })
}

/// The UDP port of RoCEv2.
const ROCE_PORT: u16 = 4791;

/// The inode of the unconnected UDP socket at an address of this machine.
fn inode_of_udp(local: SocketAddr) -> Option<u64> {
    let any = match local {
        SocketAddr::V4(_) => SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0),
        SocketAddr::V6(_) => SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), 0),
    };
    let tables = ["/proc/net/udp", "/proc/net/udp6"];
    tables.iter().find_map(|table| {
        let text = fs::read_to_string(table).ok()?;
        let mut lines = text.lines().skip(1);
        lines.find_map(|line| inode_in(line, local, any))
    })
}

/// The inode in a line of /proc/net/tcp or /proc/net/udp, if the line is that of a socket between
/// these addresses.
fn inode_in(line: &str, local: SocketAddr, remote: SocketAddr) -> Option<u64> {
    let mut fields = line.split_ascii_whitespace().skip(1);
    let matches = |field: &str, wanted: SocketAddr| {
        let found = parse_address(field)?;
        (found.0 == canonical(wanted) && found.1 == wanted.port()).then_some(())
    };
    matches(fields.next()?, local)?;
    matches(fields.next()?, remote)?;
    // After state, queues, timer, retransmissions, user and timeout.
    fields.nth(6)?.parse().ok()
}

/// An address as 16 bytes, IPv4 mapped into IPv6, since either table may hold the connection.
fn canonical(address: SocketAddr) -> [u8; 16] {
    match address {
        SocketAddr::V4(v4) => v4.ip().to_ipv6_mapped().octets(),
        SocketAddr::V6(v6) => v6.ip().octets(),
    }
}

/// `0100007F:1144`: the address in words of the machine's byte order, the port in hexadecimal.
fn parse_address(field: &str) -> Option<([u8; 16], u16)> {
    let (address, port) = field.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let mut bytes = Vec::with_capacity(16);
    for at in (0..address.len()).step_by(8) {
        let word = u32::from_str_radix(address.get(at..at + 8)?, 16).ok()?;
        bytes.extend(word.to_ne_bytes());
    }
    let octets = match <[u8; 4]>::try_from(bytes.as_slice()) {
        Ok(v4) => std::net::Ipv4Addr::from(v4).to_ipv6_mapped().octets(),
        Err(_) => bytes.try_into().ok()?,
    };
    Some((octets, port))
}

/// The process that has the socket with this inode open.
fn owner_of(inode: u64) -> Option<u32> {
    let link = PathBuf::from(format!("socket:[{inode}]"));
    fs::read_dir("/proc").ok()?.flatten().find_map(|entry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        has_open(&entry.path(), &link).then_some(pid)
    })
}

fn has_open(process: &Path, link: &Path) -> bool {
    let Ok(descriptors) = fs::read_dir(process.join("fd")) else {
        return false;
    };
    descriptors
        .flatten()
        .any(|entry| fs::read_link(entry.path()).is_ok_and(|target| target == link))
}

#[cfg(test)]
mod tests {
    use std::{
        net::{TcpListener, TcpStream, UdpSocket},
        os::fd::AsFd as _,
    };

    use super::*;

    #[test]
    fn the_owner_of_a_connections_other_end_is_found() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(address) else {
                continue;
            };
            let there = listener.local_addr().expect("bound");
            let socket = TcpStream::connect(there).expect("connects");
            let _accepted = listener.accept().expect("accepts");
            let daemon = Daemon::by_socket(socket.as_fd()).expect("it is this process");
            assert_eq!(daemon.pid, std::process::id());
            assert_eq!(daemon.found, Found::BySocket);
            assert!(daemon.cpu().is_some());
        }
    }

    #[test]
    fn the_owner_of_a_socket_for_rdma_is_found() {
        // The address is of this process alone.
        let [_, _, a, b] = std::process::id().to_be_bytes();
        let address = IpAddr::from(Ipv4Addr::new(127, 61, a, b.max(1)));
        assert_eq!(Daemon::by_roce_address(address), None);
        let socket = UdpSocket::bind((address, ROCE_PORT)).expect("loopback has it");
        let daemon = Daemon::by_roce_address(address).expect("it is this process");
        assert_eq!(daemon.pid, std::process::id());
        drop(socket);
    }

    #[test]
    fn an_ipv4_connection_is_found_in_the_ipv6_table() {
        let line = " 1: 0000000000000000FFFF00000100007F:1144 0000000000000000FFFF00000100007F:B2A4 \
                    01 00000000:00000000 00:00000000 00000000  1000        0 4242 1";
        let local = "127.0.0.1:4420".parse().expect("an address");
        let remote = "127.0.0.1:45732".parse().expect("an address");
        assert_eq!(inode_in(line, local, remote), Some(4242));
        assert_eq!(inode_in(line, remote, local), None);
    }
}
