//! What the kernel asks of the file, and the replies. No I/O.

use block::Geometry;
use rustix::io::Errno;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::wire::{
    self, Attr, AttrOut, FallocateIn, InHeader, InitIn, InitOut, OpenOut, OutHeader, StatfsOut,
    TransferIn, WriteOut, opcode,
};
use crate::requests::Ask;

/// A request of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Call<'a> {
    /// Identifies the request in its reply.
    pub(crate) unique: u64,
    pub(crate) operation: Operation<'a>,
}

/// What a request wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation<'a> {
    /// Agree on versions and limits.
    Init {
        flags: u32,
        max_readahead: u32,
    },
    Attributes,
    Open,
    /// Something of the disk; `data` are those of a write.
    Disk {
        ask: Ask,
        data: &'a [u8],
    },
    Statistics,
    /// Succeeds without effect.
    Nothing,
    /// Has no reply.
    Silent,
    /// Fails with this error.
    Refused(Errno),
}

/// Reads a message. `None` if it is shorter than its head says.
pub(crate) fn parse(message: &[u8]) -> Option<Call<'_>> {
    let (head, body) = InHeader::read_from_prefix(message).ok()?;
    if head.len as usize != message.len() {
        return None;
    }
    let refused = Operation::Refused(Errno::INVAL);
    Some(Call {
        unique: head.unique,
        operation: operation(head.opcode, body).unwrap_or(refused),
    })
}

fn operation(code: u32, body: &[u8]) -> Option<Operation<'_>> {
    Some(match code {
        opcode::INIT => {
            let (init, _) = InitIn::read_from_prefix(body).ok()?;
            if init.major != wire::MAJOR || init.minor < wire::MINOR {
                return Some(Operation::Refused(Errno::PROTO));
            }
            Operation::Init {
                flags: init.flags,
                max_readahead: init.max_readahead,
            }
        }
        opcode::GETATTR | opcode::SETATTR => Operation::Attributes,
        opcode::OPEN => Operation::Open,
        opcode::READ => {
            let (read, _) = TransferIn::read_from_prefix(body).ok()?;
            of_disk(Ask::Read {
                offset: read.offset,
                len_bytes: read.len_bytes,
            })
        }
        opcode::WRITE => {
            let (write, data) = TransferIn::read_from_prefix(body).ok()?;
            if data.len() != write.len_bytes as usize {
                return None;
            }
            Operation::Disk {
                ask: Ask::Write {
                    offset: write.offset,
                    len_bytes: write.len_bytes,
                },
                data,
            }
        }
        opcode::FSYNC => of_disk(Ask::Flush),
        opcode::FALLOCATE => {
            let (zero, _) = FallocateIn::read_from_prefix(body).ok()?;
            let keep_allocated = match zero.mode & !wire::KEEP_SIZE {
                wire::PUNCH_HOLE => false,
                wire::ZERO_RANGE => true,
                _ => return Some(Operation::Refused(Errno::OPNOTSUPP)),
            };
            of_disk(Ask::Zero {
                offset: zero.offset,
                len_bytes: zero.len_bytes,
                keep_allocated,
            })
        }
        opcode::STATFS => Operation::Statistics,
        opcode::FLUSH | opcode::RELEASE | opcode::DESTROY => Operation::Nothing,
        opcode::FORGET | opcode::BATCH_FORGET | opcode::INTERRUPT => Operation::Silent,
        _ => Operation::Refused(Errno::NOSYS),
    })
}

/// Something of the disk that carries no data.
fn of_disk(ask: Ask) -> Operation<'static> {
    Operation::Disk { ask, data: &[] }
}

/// The head of a reply with `body_bytes` bytes behind it.
pub(crate) fn head(unique: u64, body_bytes: usize) -> OutHeader {
    OutHeader {
        len: (size_of::<OutHeader>() + body_bytes) as u32,
        error: 0,
        unique,
    }
}

/// The reply that a request failed.
pub(crate) fn failed(unique: u64, error: Errno) -> OutHeader {
    OutHeader {
        error: -error.raw_os_error(),
        ..head(unique, 0)
    }
}

/// A reply in one piece.
pub(crate) fn reply<T: IntoBytes + Immutable + KnownLayout>(unique: u64, body: &T) -> Vec<u8> {
    let body = body.as_bytes();
    [head(unique, body.len()).as_bytes(), body].concat()
}

/// The answer to `Init`: requests of at most `transfer_bytes_max` bytes, `depth` at a time.
pub(crate) fn init(flags: u32, max_readahead: u32, transfer_bytes_max: u32, depth: u16) -> InitOut {
    let wanted = wire::ASYNC_READ | wire::BIG_WRITES | wire::ASYNC_DIO | wire::MAX_PAGES;
    InitOut {
        major: wire::MAJOR,
        minor: wire::MINOR,
        max_readahead,
        flags: flags & wanted,
        max_background: depth,
        congestion_threshold: depth,
        max_write: transfer_bytes_max,
        time_granularity: 1,
        max_pages: u16::try_from(transfer_bytes_max / PAGE_BYTES).unwrap_or(u16::MAX),
        ..wire::zeroed()
    }
}

/// The unit of `max_pages`. Larger pages only make requests shorter than they could be.
pub(crate) const PAGE_BYTES: u32 = 4096;

/// Permissions of the file: a regular one, of its owner only.
pub(crate) const MODE: u32 = 0o100_600;

/// The file's attributes: as long as the disk.
pub(crate) fn attributes(geometry: Geometry) -> AttrOut {
    AttrOut {
        attr: Attr {
            node: wire::ROOT,
            len_bytes: geometry.len_bytes(),
            blocks: geometry.len_bytes() >> 9,
            mode: MODE,
            links: 1,
            block_bytes: geometry.block_size.bytes() as u32,
            ..wire::zeroed()
        },
        ..wire::zeroed()
    }
}

/// The reply to `Open`.
pub(crate) fn opened() -> OpenOut {
    OpenOut {
        flags: wire::OPEN_DIRECT | wire::OPEN_PARALLEL,
        ..wire::zeroed()
    }
}

/// The reply to `Write`.
pub(crate) fn written(len_bytes: u32) -> WriteOut {
    WriteOut {
        len_bytes,
        reserved: 0,
    }
}

/// The file system's statistics. The loop device takes its discard granularity from the block size.
pub(crate) fn statistics(geometry: Geometry) -> StatfsOut {
    let block_bytes = geometry.block_size.bytes() as u32;
    StatfsOut {
        blocks: geometry.blocks.0,
        files: 1,
        block_bytes,
        fragment_bytes: block_bytes,
        ..wire::zeroed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(opcode: u32, body: &[u8]) -> Vec<u8> {
        let head = InHeader {
            len: (size_of::<InHeader>() + body.len()) as u32,
            opcode,
            unique: 7,
            ..wire::zeroed()
        };
        [head.as_bytes(), body].concat()
    }

    fn transfer(offset: u64, len_bytes: u32) -> TransferIn {
        TransferIn {
            offset,
            len_bytes,
            ..wire::zeroed()
        }
    }

    fn asked(message: &[u8]) -> Option<Operation<'_>> {
        parse(message).map(|call| call.operation)
    }

    #[test]
    fn a_write_carries_exactly_the_bytes_that_it_announces() {
        let body = [transfer(4096, 3).as_bytes(), b"abc"].concat();
        let expected = Operation::Disk {
            ask: Ask::Write {
                offset: 4096,
                len_bytes: 3,
            },
            data: b"abc",
        };
        assert_eq!(asked(&message(opcode::WRITE, &body)), Some(expected));
        let short = message(opcode::WRITE, &body[..body.len() - 1]);
        assert_eq!(asked(&short), Some(Operation::Refused(Errno::INVAL)));
    }

    #[test]
    fn a_message_shorter_than_its_head_says_is_no_request() {
        let whole = message(opcode::READ, transfer(0, 512).as_bytes());
        for len in 0..whole.len() {
            assert_eq!(parse(&whole[..len]), None, "{len} bytes");
        }
    }

    #[test]
    fn bodies_that_are_too_short_are_refused() {
        for code in [opcode::INIT, opcode::READ, opcode::WRITE, opcode::FALLOCATE] {
            let short = message(code, &[0; 8]);
            assert_eq!(
                asked(&short),
                Some(Operation::Refused(Errno::INVAL)),
                "{code}"
            );
        }
    }

    #[test]
    fn only_holes_and_zeros_are_allocated() {
        let zero = |mode| {
            let body = FallocateIn {
                len_bytes: 8192,
                mode,
                ..wire::zeroed()
            };
            message(opcode::FALLOCATE, body.as_bytes())
        };
        let expected = |keep_allocated| {
            of_disk(Ask::Zero {
                offset: 0,
                len_bytes: 8192,
                keep_allocated,
            })
        };
        assert_eq!(asked(&zero(wire::PUNCH_HOLE | 1)), Some(expected(false)));
        assert_eq!(asked(&zero(wire::ZERO_RANGE | 1)), Some(expected(true)));
        let refused = Some(Operation::Refused(Errno::OPNOTSUPP));
        assert_eq!(asked(&zero(0)), refused);
        assert_eq!(asked(&zero(0x40)), refused);
    }

    #[test]
    fn an_older_kernel_is_refused() {
        let init = |minor| {
            let body = InitIn {
                major: wire::MAJOR,
                minor,
                max_readahead: 0,
                flags: wire::MAX_PAGES,
            };
            message(opcode::INIT, body.as_bytes())
        };
        let old = init(wire::MINOR - 1);
        assert_eq!(asked(&old), Some(Operation::Refused(Errno::PROTO)));
        let new = init(wire::MINOR);
        assert!(matches!(asked(&new), Some(Operation::Init { .. })));
    }
}
