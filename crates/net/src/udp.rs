//! Datagrams in runs: one call sends many of one size (UDP generic segmentation offload, GSO), one
//! call receives many (GRO).
//!
//! Read first: `udp(7)`, `ip(7)`, `ipv6(7)`.
//!
//! # Why the unsafe code here is sound
//!
//! Three calls take pointers: `setsockopt` (to an integer, or a program), `sendmsg` and `recvmsg`
//! (to a message header, an address, control data and byte ranges). All of these are locals or
//! slices that are borrowed across the call. Control data and addresses that come back are read by
//! copies of whole values inside of what the kernel says it wrote.

mod address;
mod control;
mod group;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType};

use address::Name;
use control::Control;
pub use group::Instruction;

/// How a socket for datagrams is made.
#[derive(Clone, Copy, Debug)]
pub struct UdpOptions {
    /// The receive buffer to ask for, in bytes; the system may give less.
    pub recv_buffer_bytes: u32,
    /// What is done with datagrams that are longer than a packet of the path.
    pub too_long: TooLong,
}

/// What is done with datagrams that are longer than a packet of the path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TooLong {
    /// Sending fails: IPv4 packets carry DF.
    #[default]
    Refuse,
    /// They are sent as fragments.
    Fragment,
}

impl Default for UdpOptions {
    fn default() -> Self {
        Self {
            recv_buffer_bytes: 16 << 20,
            too_long: TooLong::default(),
        }
    }
}

/// Datagrams that are sent with one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpRun {
    /// The source address.
    pub source: IpAddr,
    /// The destination.
    pub dest: SocketAddr,
    /// The length of each but the last, which may be shorter; `None` if there is only one.
    pub segment_len_bytes: Option<u16>,
}

/// Datagrams that one call received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpArrival {
    /// Bytes in all.
    pub len_bytes: usize,
    /// The source.
    pub source: SocketAddr,
    /// The address that they were sent to.
    pub dest: SocketAddr,
    /// The length of each but the last, which may be shorter; `None` if there is only one.
    pub segment_len_bytes: Option<u16>,
    /// Whether a router marked them since it was congested (ECN CE).
    pub congestion_experienced: bool,
}

/// A UDP socket. It is never connected: then Linux sends IPv4 packets whose identification is 0, or
/// counts from 0 in each run, which checksums over the IP header rely on.
#[derive(Debug)]
pub struct UdpSocket {
    fd: OwnedFd,
    local: SocketAddr,
    iovecs: Iovecs,
}

/// Whether other sockets may be bound to the same address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Others {
    /// None.
    Refused,
    /// Those that allow it, too.
    Allowed,
}

/// Scratch for building calls.
#[derive(Default)]
struct Iovecs(Vec<libc::iovec>);

// SAFETY: the pointers are valid only inside `Iovecs::with`, which clears them first and takes
// `&mut self`; between calls nothing reads them.
unsafe impl Send for Iovecs {}

impl Iovecs {
    /// The most per call (`IOV_MAX` of Linux).
    const LEN_MAX: usize = 1024;

    /// Calls `send` with the addresses of the pieces.
    fn with<'v>(
        &mut self,
        pieces: impl Iterator<Item = &'v [u8]>,
        send: impl FnOnce(&[libc::iovec]) -> io::Result<()>,
    ) -> io::Result<()> {
        let iovecs = &mut self.0;
        iovecs.clear();
        iovecs.extend(pieces.map(|piece| iovec(piece.as_ptr(), piece.len())));
        if iovecs.len() > Self::LEN_MAX {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        send(iovecs)
    }
}

impl std::fmt::Debug for Iovecs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Iovecs")
    }
}

impl UdpSocket {
    /// The most bytes that one call receives.
    pub const ARRIVAL_LEN_MAX_BYTES: usize = 65_536;

    /// A socket at `local`. Fails if another socket is bound there.
    pub fn bind(local: SocketAddr, options: &UdpOptions) -> io::Result<Self> {
        Self::open(local, *options, Others::Refused)
    }

    fn open(local: SocketAddr, options: UdpOptions, others: Others) -> io::Result<Self> {
        let family = if local.is_ipv4() {
            AddressFamily::INET
        } else {
            AddressFamily::INET6
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let fd = rustix::net::socket_with(family, SocketType::DGRAM, flags, None)?;
        let socket = fd.as_fd();
        // More than the system's limit requires a privilege. Without it, the limit is used.
        let bytes = i32::try_from(options.recv_buffer_bytes).unwrap_or(i32::MAX);
        if set(socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, bytes).is_err() {
            set(socket, libc::SOL_SOCKET, libc::SO_RCVBUF, bytes)?;
        }
        set(socket, libc::SOL_UDP, libc::UDP_GRO, 1)?;
        // A socket at one address receives only what was sent to that address.
        let has_any_address = i32::from(local.ip().is_unspecified());
        if local.is_ipv4() {
            let discover = match options.too_long {
                TooLong::Refuse => libc::IP_PMTUDISC_DO,
                TooLong::Fragment => libc::IP_PMTUDISC_DONT,
            };
            set(socket, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, discover)?;
            set(socket, libc::IPPROTO_IP, libc::IP_PKTINFO, has_any_address)?;
            set(socket, libc::IPPROTO_IP, libc::IP_RECVTOS, 1)?;
            set(socket, libc::IPPROTO_IP, libc::IP_TOS, ECN_CAPABLE)?;
        } else {
            let discover = match options.too_long {
                TooLong::Refuse => libc::IPV6_PMTUDISC_DO,
                TooLong::Fragment => libc::IPV6_PMTUDISC_DONT,
            };
            let level = libc::IPPROTO_IPV6;
            set(socket, level, libc::IPV6_V6ONLY, 1)?;
            set(socket, level, libc::IPV6_MTU_DISCOVER, discover)?;
            set(socket, level, libc::IPV6_RECVPKTINFO, has_any_address)?;
            set(socket, level, libc::IPV6_RECVTCLASS, 1)?;
            set(socket, level, libc::IPV6_TCLASS, ECN_CAPABLE)?;
            // RoCEv2 peers send no UDP checksum, which IPv6 accepts only with this option.
            set(socket, libc::SOL_UDP, UDP_NO_CHECK6_RX, 1)?;
        }
        if others == Others::Allowed {
            set(socket, libc::SOL_SOCKET, libc::SO_REUSEPORT, 1)?;
        }
        rustix::net::bind(&fd, &local)?;
        let bound = rustix::net::getsockname(&fd)?;
        let local = SocketAddr::try_from(bound).map_err(io::Error::from)?;
        Ok(Self {
            fd,
            local,
            iovecs: Iovecs::default(),
        })
    }

    /// Its address.
    pub const fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Sends `pieces`, one after the other, as a run of datagrams; all of them or none.
    pub fn send<'v>(
        &mut self,
        run: &UdpRun,
        pieces: impl Iterator<Item = &'v [u8]>,
    ) -> io::Result<()> {
        let mut name = Name::of(run.dest);
        let mut control = Control::default();
        // A socket at one address sends from that.
        if !run.source.is_unspecified() && run.source != self.local.ip() {
            control.push_source(run.source);
        }
        if let Some(len) = run.segment_len_bytes {
            control.push(libc::SOL_UDP, libc::UDP_SEGMENT, &len.to_ne_bytes());
        }
        self.iovecs.with(pieces, |iovecs| {
            send_message(self.fd.as_fd(), &mut name, iovecs, &mut control)
        })
    }

    /// Receives into `buffer`, which should have [`UdpSocket::ARRIVAL_LEN_MAX_BYTES`]; `None` if
    /// nothing has arrived.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<UdpArrival>> {
        let mut name = Name::room();
        let mut control = Control::room();
        let received = receive_message(self.fd.as_fd(), &mut name, buffer, &mut control);
        let len_bytes = match received {
            Ok(len) => len,
            Err(error) if is_transient(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        let Some(source) = name.address() else {
            return Ok(None);
        };
        let info = control.arrival();
        let ip = info.dest.unwrap_or(self.local.ip());
        Ok(Some(UdpArrival {
            len_bytes,
            source,
            dest: SocketAddr::new(ip, self.local.port()),
            segment_len_bytes: info.segment_len_bytes,
            congestion_experienced: info.traffic_class & ECN_MASK == ECN_CONGESTED,
        }))
    }
}

impl AsFd for UdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Nothing has arrived, or an earlier outgoing datagram was rejected, which does not affect
/// receiving.
fn is_transient(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock
            | io::ErrorKind::Interrupted
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::HostUnreachable
            | io::ErrorKind::NetworkUnreachable
    )
}

const fn iovec(ptr: *const u8, len: usize) -> libc::iovec {
    libc::iovec {
        iov_base: ptr.cast_mut().cast(),
        iov_len: len,
    }
}

/// Sets an option that is an integer.
fn set(socket: BorrowedFd<'_>, level: i32, name: i32, value: i32) -> io::Result<()> {
    // SAFETY: `value` lives across the call, which reads as many bytes as it has.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            size_of::<i32>() as libc::socklen_t,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

fn send_message(
    socket: BorrowedFd<'_>,
    name: &mut Name,
    iovecs: &[libc::iovec],
    control: &mut Control,
) -> io::Result<()> {
    // SAFETY: all zeros is a valid `msghdr`: no name, no control data, no iovecs.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_name = name.as_mut_ptr().cast();
    message.msg_namelen = name.len();
    message.msg_iov = iovecs.as_ptr().cast_mut();
    message.msg_iovlen = iovecs.len() as _;
    if control.len() > 0 {
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = control.len() as _;
    }
    // SAFETY: message, name, control data and iovecs live across the call, which only reads them
    // and what the iovecs point to: slices borrowed by the caller of `Iovecs::with`.
    let sent = unsafe {
        libc::sendmsg(
            socket.as_raw_fd(),
            &raw const message,
            libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
        )
    };
    if sent < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

fn receive_message(
    socket: BorrowedFd<'_>,
    name: &mut Name,
    buffer: &mut [u8],
    control: &mut Control,
) -> io::Result<usize> {
    let mut into = iovec(buffer.as_ptr(), buffer.len());
    // SAFETY: all zeros is a valid `msghdr`: no name, no control data, no iovecs.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_name = name.as_mut_ptr().cast();
    message.msg_namelen = name.len();
    into.iov_base = buffer.as_mut_ptr().cast();
    message.msg_iov = &raw mut into;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = control.len() as _;
    // SAFETY: message, name, control data and the iovec live across the call; they and `buffer`,
    // which is borrowed mutably, have as many bytes as the message says.
    let received =
        unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_DONTWAIT) };
    let len = usize::try_from(received).map_err(|_| io::Error::last_os_error())?;
    name.set_len(message.msg_namelen);
    control.set_len(message.msg_controllen as usize);
    Ok(len)
}

/// ECN: this transport understands congestion marks (ECT(0)).
const ECN_CAPABLE: i32 = 0b10;
const ECN_MASK: u8 = 0b11;
const ECN_CONGESTED: u8 = 0b11;
/// Not in `libc`: take IPv6 datagrams without checksum (`linux/udp.h`).
const UDP_NO_CHECK6_RX: i32 = 102;

#[cfg(test)]
mod tests;
