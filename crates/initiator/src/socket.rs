//! TCP sockets: names to addresses, connecting with a limit, waiting.

use std::{
    io,
    net::{SocketAddr, TcpStream, ToSocketAddrs},
    os::fd::{BorrowedFd, OwnedFd},
    time::Duration,
};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use crate::ConnectError;

/// The addresses of a host, in the resolver's order.
pub(crate) fn resolve(host: &str, port: u16) -> Result<Vec<SocketAddr>, ConnectError> {
    let failed = |source| ConnectError::Resolve {
        host: host.to_owned(),
        source,
    };
    let addresses: Vec<SocketAddr> = (host, port).to_socket_addrs().map_err(failed)?.collect();
    if addresses.is_empty() {
        return Err(failed(io::ErrorKind::NotFound.into()));
    }
    Ok(addresses)
}

/// A connection to `address`, nonblocking, without the delay that gathers small segments: a session
/// sends as much at once as it has.
pub(crate) fn connect(address: SocketAddr, timeout: Duration) -> Result<TcpStream, ConnectError> {
    let connect = || {
        let stream = TcpStream::connect_timeout(&address, timeout)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(stream)
    };
    connect().map_err(|source| ConnectError::Connect { address, source })
}

/// A descriptor that one thread makes readable to wake another.
#[derive(Debug)]
pub(crate) struct Waker(OwnedFd);

impl Waker {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(eventfd(
            0,
            EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC,
        )?))
    }

    /// Makes the descriptor readable.
    pub(crate) fn wake(&self) {
        // It fails only if the counter is full, and then it is readable.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Makes it unreadable again.
    pub(crate) fn clear(&self) {
        // It fails only if no thread has woken it, and then it is unreadable.
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        use std::os::fd::AsFd as _;
        self.0.as_fd()
    }
}

/// Which of a socket's conditions to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interest {
    Read,
    ReadWrite,
}

/// Sleeps until a connection's descriptor is ready, `also` is readable or `timeout` is over.
pub(crate) fn wait(
    descriptor: BorrowedFd<'_>,
    interest: Interest,
    also: Option<BorrowedFd<'_>>,
    timeout: Duration,
) -> io::Result<()> {
    let own = (descriptor, interest);
    match also {
        Some(also) => sleep(&[own, (also, Interest::Read)], Some(timeout)),
        None => sleep(&[own], Some(timeout)),
    }
}

/// Sleeps until one of the descriptors is ready or `timeout` is over (never, if there is none).
pub(crate) fn sleep(
    descriptors: &[(BorrowedFd<'_>, Interest)],
    timeout: Option<Duration>,
) -> io::Result<()> {
    const DESCRIPTORS_MAX: usize = 2;
    assert!(
        (1..=DESCRIPTORS_MAX).contains(&descriptors.len()),
        "a queue waits for its socket and for the supervisor"
    );
    let entry = |index: usize| {
        let (descriptor, interest) = &descriptors[index.min(descriptors.len() - 1)];
        let flags = match interest {
            Interest::Read => PollFlags::IN,
            Interest::ReadWrite => PollFlags::IN | PollFlags::OUT,
        };
        PollFd::from_borrowed_fd(*descriptor, flags)
    };
    let mut entries = [entry(0), entry(1)];
    let timeout = timeout.map(|timeout| Timespec {
        tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    });
    match poll(&mut entries[..descriptors.len()], timeout.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
