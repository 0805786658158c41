//! Several sockets at one place, each for a thread of its own: a program of classic BPF (cBPF)
//! chooses for each datagram.
//!
//! Read first: `socket(7)` on `SO_REUSEPORT` and `SO_ATTACH_REUSEPORT_CBPF`.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use super::{Others, UdpOptions, UdpSocket, set};

/// An instruction of a program that reads a datagram without its UDP header, and returns the number
/// of a socket, in the order of their creation. Loads beyond the end return 0. With a number that
/// no socket has, the system chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instruction {
    /// Loads 4 bytes, in the network's order, into A.
    LoadWord {
        /// Offset of the first byte.
        at: u32,
    },
    /// Loads 2 bytes, in the network's order, into A.
    LoadHalf {
        /// Offset of the first byte.
        at: u32,
    },
    /// Loads a byte into A.
    LoadByte {
        /// Its address.
        at: u32,
    },
    /// Copies A to X.
    CopyToX,
    /// Adds X to A.
    AddX,
    /// A and a constant, bit by bit.
    And(u32),
    /// A modulo a constant that is not 0.
    Modulo(u32),
    /// Skips instructions: `then` if A equals `equal_to`, otherwise `otherwise`.
    SkipIf {
        /// The value.
        equal_to: u32,
        /// How many to skip if A is equal.
        then: u8,
        /// How many to skip otherwise.
        otherwise: u8,
    },
    /// Returns A.
    Return,
}

impl Instruction {
    /// As the kernel expects it (`linux/filter.h`).
    const fn encoded(self) -> libc::sock_filter {
        let (code, jt, jf, k) = match self {
            Self::LoadWord { at } => (0x20, 0, 0, at),
            Self::LoadHalf { at } => (0x28, 0, 0, at),
            Self::LoadByte { at } => (0x30, 0, 0, at),
            Self::CopyToX => (0x07, 0, 0, 0),
            Self::AddX => (0x0c, 0, 0, 0),
            Self::And(bits) => (0x54, 0, 0, bits),
            Self::Modulo(divisor) => (0x94, 0, 0, divisor),
            Self::SkipIf {
                equal_to,
                then,
                otherwise,
            } => (0x15, then, otherwise, equal_to),
            Self::Return => (0x16, 0, 0, 0),
        };
        libc::sock_filter { code, jt, jf, k }
    }
}

impl UdpSocket {
    /// Binds one more socket to this one's address. Only other programs of this user could do the
    /// same.
    pub fn beside(&self, options: &UdpOptions) -> io::Result<Self> {
        set(self.fd.as_fd(), libc::SOL_SOCKET, libc::SO_REUSEPORT, 1)?;
        Self::open(self.local, *options, Others::Allowed)
    }

    /// Attaches a program that chooses among this socket and those made by
    /// [`beside`](Self::beside).
    pub fn steer(&self, program: &[Instruction]) -> io::Result<()> {
        let mut program: Vec<_> = program.iter().map(|one| one.encoded()).collect();
        let program = libc::sock_fprog {
            len: u16::try_from(program.len()).map_err(|_| io::ErrorKind::InvalidInput)?,
            filter: program.as_mut_ptr(),
        };
        // SAFETY: `program` and the instructions that it points to, as many as it says, live across
        // the call, which reads them.
        let result = unsafe {
            libc::setsockopt(
                self.fd.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_ATTACH_REUSEPORT_CBPF,
                (&raw const program).cast(),
                size_of::<libc::sock_fprog>() as libc::socklen_t,
            )
        };
        if result == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }
}
