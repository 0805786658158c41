//! Sending a [`SendList`]: one system call for many replies, gathered from the list's own bytes and
//! from volumes' memory where it lies.
//!
//! ```text
//!  SendList   [ bytes | placement | bytes | placement … ]
//!                 │        │ Pinned::pin
//!  iovecs     [ ptr,len | ptr,len … ]  ──► sendmsg ──► Pinned::unpin
//! ```
//!
//! A block that was sent in part must be completed with the same version of its bytes, but the
//! volume is pinned only for the one call. So if the socket accepts only a part of a block, the
//! rest of that block is copied into the connection's [`Bounce`] before the pin ends, and goes out
//! first next time.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use block::{ByteRange, RawSpan};
use session::{Placement, Segment, SendList};
use tls::Output;

use crate::driven::Attachment;

/// Rests of blocks are kept whole to this boundary of the volume, which is one of every block size.
const BLOCK_BYTES: u64 = 4096;
/// The most bytes that one call offers to the socket, so that no pin lasts long.
const SEND_MAX_BYTES: u64 = 1 << 20;
/// No further segment is copied for encryption beyond this number of bytes. The rest of a block may
/// be added, so it is a block less than [`Output::CONTENTS_MAX_BYTES`].
const COPY_FILL_BYTES: u64 = Output::CONTENTS_MAX_BYTES as u64 - BLOCK_BYTES;
/// No further segment is added beyond this number of iovecs; a pin of [`SEND_MAX_BYTES`] adds at
/// most 256 and one.
const IOVECS_FILL: usize = 512;
/// What one call takes (`IOV_MAX` of Linux).
const IOVECS_MAX: usize = 1024;

/// The rest of a block that was sent in part.
#[derive(Debug, Default)]
pub(crate) struct Bounce {
    bytes: Option<Box<[u8; BLOCK_BYTES as usize]>>,
    head: usize,
    tail: usize,
}

impl Bounce {
    fn bytes(&self) -> &[u8] {
        match &self.bytes {
            Some(bytes) => &bytes[self.head..self.tail],
            None => &[],
        }
    }

    fn consume(&mut self, sent: usize) {
        self.head += sent;
        if self.head == self.tail {
            *self = Self::default();
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_none()
    }
}

/// The result of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// This many bytes were sent; more may follow at once.
    Bytes(u64),
    /// This many bytes were sent, and the socket accepts no more.
    Blocked(u64),
}

/// Scratch for building calls; a reactor has one.
#[derive(Default)]
pub(crate) struct Gather {
    iovecs: Vec<libc::iovec>,
    pins: Vec<Placement>,
}

/// Pinned memory, released however this scope is left.
struct Pins<'a> {
    placements: &'a mut Vec<Placement>,
    attachment: &'a dyn Attachment,
}

impl Drop for Pins<'_> {
    fn drop(&mut self) {
        for placement in self.placements.drain(..) {
            if let Some(memory) = self.attachment.memory(placement.source) {
                memory.unpin(placement.range);
            }
        }
    }
}

impl Gather {
    /// Sends as much of `bounce` and then `list` as one call takes.
    pub(crate) fn send(
        &mut self,
        socket: BorrowedFd<'_>,
        bounce: &mut Bounce,
        list: &mut SendList,
        attachment: &dyn Attachment,
    ) -> io::Result<Sent> {
        self.iovecs.clear();
        self.pins.clear();
        let pins = Pins {
            placements: &mut self.pins,
            attachment,
        };
        let offered = fill(&mut self.iovecs, pins.placements, bounce, list, attachment)?;
        let sent = match send_iovecs(socket, &self.iovecs) {
            Ok(sent) => sent,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Ok(Sent::Blocked(0));
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                return Ok(Sent::Bytes(0));
            }
            Err(error) => return Err(error),
        };
        let from_bounce = sent.min(bounce.bytes().len() as u64);
        bounce.consume(from_bounce as usize);
        let mut consumed = sent - from_bounce;
        if sent < offered {
            let rest = rest_of_block(consumed, list, pins.placements);
            keep(bounce, &self.iovecs, sent, rest);
            consumed += rest;
        }
        drop(pins);
        list.consume(consumed);
        Ok(if sent < offered {
            Sent::Blocked(sent)
        } else {
            Sent::Bytes(sent)
        })
    }

    /// Copies the start of `list` into `output` and takes it off the list. The copy is the one that
    /// encryption in place needs.
    pub(crate) fn copy(
        &mut self,
        output: &mut Output,
        list: &mut SendList,
        attachment: &dyn Attachment,
    ) -> io::Result<()> {
        self.pins.clear();
        let pins = Pins {
            placements: &mut self.pins,
            attachment,
        };
        let mut copied = 0;
        for segment in list.segments() {
            let left = COPY_FILL_BYTES.saturating_sub(copied);
            match segment {
                _ if left == 0 => break,
                Segment::Bytes(bytes) => {
                    let take = bytes.len().min(left as usize);
                    output.push(&bytes[..take]);
                    copied += take as u64;
                }
                Segment::Place(placement) => {
                    let each = &mut |span: RawSpan| copy_span(output, span);
                    copied += pin_head(placement, left, pins.placements, attachment, each)?;
                }
            }
        }
        drop(pins);
        list.consume(copied);
        Ok(())
    }
}

/// Copies pinned memory.
fn copy_span(output: &mut Output, span: RawSpan) {
    let mut copied = 0;
    while copied < span.len {
        let room = output.room(span.len - copied);
        // SAFETY: the span's memory is pinned by our caller, so that it is valid and no write
        // changes it; `room` is our own and not longer than the rest of the span.
        unsafe {
            let from = span.ptr.cast::<u8>().add(copied);
            std::ptr::copy_nonoverlapping(from, room.as_mut_ptr(), room.len());
        }
        copied += room.len();
    }
}

/// Pins the part of a placement that one call takes ([`head_of`]) and gives its memory to `each`.
/// Returns its length.
fn pin_head(
    placement: Placement,
    max_bytes: u64,
    pins: &mut Vec<Placement>,
    attachment: &dyn Attachment,
    each: &mut dyn FnMut(RawSpan),
) -> io::Result<u64> {
    let range = head_of(placement.range, max_bytes);
    if !attachment.may_send(placement.source) {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let memory = attachment
        .memory(placement.source)
        .ok_or(io::ErrorKind::NotFound)?;
    memory.pin(range, each);
    pins.push(Placement { range, ..placement });
    Ok(range.len)
}

/// Makes the iovecs of one call and pins what they point to. Returns the bytes offered.
fn fill(
    iovecs: &mut Vec<libc::iovec>,
    pins: &mut Vec<Placement>,
    bounce: &Bounce,
    list: &SendList,
    attachment: &dyn Attachment,
) -> io::Result<u64> {
    let mut offered = bounce.bytes().len() as u64;
    if offered > 0 {
        push(iovecs, bounce.bytes().as_ptr(), bounce.bytes().len());
    }
    for segment in list.segments() {
        if iovecs.len() >= IOVECS_FILL || offered >= SEND_MAX_BYTES {
            break;
        }
        match segment {
            Segment::Bytes(bytes) => {
                push(iovecs, bytes.as_ptr(), bytes.len());
                offered += bytes.len() as u64;
            }
            Segment::Place(placement) => {
                let each = &mut |span: RawSpan| push(iovecs, span.ptr, span.len);
                let left = SEND_MAX_BYTES - offered;
                let len = pin_head(placement, left, pins, attachment, each)?;
                offered += len;
                if len < placement.range.len {
                    break;
                }
            }
        }
    }
    Ok(offered)
}

fn push(iovecs: &mut Vec<libc::iovec>, ptr: *const u8, len: usize) {
    iovecs.push(libc::iovec {
        iov_base: ptr.cast_mut().cast(),
        iov_len: len,
    });
}

/// The part of a range that one call takes: at least a block, at most about `max_bytes`, ending
/// between blocks.
fn head_of(range: ByteRange, max_bytes: u64) -> ByteRange {
    let end = (range.offset + max_bytes).next_multiple_of(BLOCK_BYTES);
    ByteRange {
        offset: range.offset,
        len: range.len.min(end - range.offset),
    }
}

/// How many bytes are missing of the block inside which a call stopped that took `taken` bytes of
/// `list`: 0 if it stopped between blocks or in bytes that the list holds itself.
fn rest_of_block(taken: u64, list: &SendList, pins: &[Placement]) -> u64 {
    let mut left = taken;
    let mut pins = pins.iter();
    for segment in list.segments() {
        let (len, pinned) = match segment {
            Segment::Bytes(bytes) => (bytes.len() as u64, None),
            Segment::Place(placement) => (placement.range.len, pins.next()),
        };
        if left < len {
            let Some(pinned) = pinned else { return 0 };
            let at = pinned.range.offset + left;
            let end = pinned.range.offset + pinned.range.len;
            let block_end = at.next_multiple_of(BLOCK_BYTES).min(end);
            return if left == 0 { 0 } else { block_end - at };
        }
        left -= len;
    }
    0
}

fn send_iovecs(socket: BorrowedFd<'_>, iovecs: &[libc::iovec]) -> io::Result<u64> {
    // SAFETY: all zeros is a valid `msghdr`: no name, no control data, no iovecs.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = iovecs.as_ptr().cast_mut();
    message.msg_iovlen = iovecs.len().min(IOVECS_MAX) as _;
    // SAFETY: `message` and the iovecs live across the call, which only reads them. The memory they
    // point to is valid for reads: bytes of the bounce buffer and of the send list are borrowed by
    // our caller, and volume memory is pinned by it (`Pinned::pin` promises validity until
    // `unpin`). The kernel copies or references it as a peer would read it, without any Rust
    // reference to it.
    let sent = unsafe {
        libc::sendmsg(
            socket.as_raw_fd(),
            &raw const message,
            libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
        )
    };
    u64::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// Copies the `rest` bytes that follow the first `sent` bytes of `iovecs` into the bounce buffer,
/// which is empty.
fn keep(bounce: &mut Bounce, iovecs: &[libc::iovec], sent: u64, rest: u64) {
    if rest == 0 {
        return;
    }
    assert!(bounce.is_empty() && rest < BLOCK_BYTES);
    let mut bytes = Box::new([0; BLOCK_BYTES as usize]);
    let mut skip = sent as usize;
    let mut filled = 0;
    for iovec in iovecs {
        let skipped = skip.min(iovec.iov_len);
        skip -= skipped;
        let take = (iovec.iov_len - skipped).min(rest as usize - filled);
        if take == 0 {
            continue;
        }
        let room = &mut bytes[filled..filled + take];
        // SAFETY: the iovec's memory is pinned (see `send_iovecs`), `skipped + take` is within it,
        // and `room` is `take` bytes of a fresh buffer. While pinned no write changes these bytes.
        unsafe {
            let from = iovec.iov_base.cast::<u8>().add(skipped);
            std::ptr::copy_nonoverlapping(from, room.as_mut_ptr(), take);
        }
        filled += take;
    }
    *bounce = Bounce {
        bytes: Some(bytes),
        head: 0,
        tail: rest as usize,
    };
}

#[cfg(test)]
mod tests;
