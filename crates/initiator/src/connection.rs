//! One connection: a socket, the session core that speaks over it, and what is on its way.

use std::{
    io::{self, IoSlice, IoSliceMut, Read as _},
    net::TcpStream,
    os::fd::{AsFd as _, BorrowedFd},
    sync::Arc,
    time::{Duration, Instant},
};

use block::{Segment, SendList};
use nvme::host::{Buffers, Command, CommandKey, Outcome};
use nvme::tcp::{HostConfig, HostSession, NoRoom};
use rustix::{
    io::Errno,
    net::{SendAncillaryBuffer, SendFlags, sendmsg},
};

use crate::ConnectionError;
use crate::socket::{Interest, sleep};

/// A socket with its session.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: Arc<TcpStream>,
    session: HostSession,
    list: SendList,
    inbox: Box<[u8]>,
    outcomes: Vec<Outcome>,
    /// Whether the operating system had no room for all that is to be sent.
    blocked: Blocked,
}

/// How much memory a connection takes for what is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sizes {
    /// Bytes received at once.
    pub(crate) inbox_bytes: usize,
    /// Bytes gathered for sending at once, placed data not counted.
    pub(crate) list_bytes: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Blocked {
    No,
    Yes,
}

impl Sizes {
    /// Of an admin queue.
    pub(crate) const ADMIN: Self = Self {
        inbox_bytes: 16 * 1024,
        list_bytes: 16 * 1024,
    };
    /// Of an I/O queue: everything that a deep queue of small commands has on its way fits.
    pub(crate) const IO: Self = Self {
        inbox_bytes: 256 * 1024,
        list_bytes: 256 * 1024,
    };
}

/// Pieces of one send: enough for a list's worth of long writes, small enough for the stack.
const PIECES_MAX: usize = 64;

/// Receives in one turn, so that a fast controller does not keep the caller from submitting.
const RECEIVES_PER_TURN: usize = 16;

/// Sends in one turn.
const SENDS_PER_TURN: usize = 64;

/// What is received besides data in place while long reads are in flight: some headers, and little of the data that
/// follow the last of them, since these have to be copied.
const BULK_INBOX_BYTES: usize = 4096;

impl Connection {
    pub(crate) fn new(stream: TcpStream, config: HostConfig, sizes: Sizes) -> Self {
        Self {
            stream: Arc::new(stream),
            session: HostSession::new(config),
            list: SendList::with_capacity(sizes.list_bytes),
            inbox: vec![0; sizes.inbox_bytes].into_boxed_slice(),
            outcomes: Vec::with_capacity(usize::from(config.keys)),
            blocked: Blocked::No,
        }
    }

    pub(crate) fn stream(&self) -> &Arc<TcpStream> {
        &self.stream
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    pub(crate) fn interest(&self) -> Interest {
        match self.blocked {
            Blocked::No => Interest::Read,
            Blocked::Yes => Interest::ReadWrite,
        }
    }

    pub(crate) fn room(&self) -> u16 {
        self.session.room()
    }

    pub(crate) fn submit(
        &mut self,
        key: CommandKey,
        command: &Command,
        buffers: &Buffers,
    ) -> Result<(), NoRoom> {
        self.session.submit(key, command, buffers)
    }

    /// What has ended since the last call; the vector is the caller's to drain.
    pub(crate) fn outcomes(&mut self) -> &mut Vec<Outcome> {
        &mut self.outcomes
    }

    /// Sends what is to be sent and takes what has arrived, without waiting.
    pub(crate) fn turn(&mut self, buffers: &mut Buffers) -> Result<(), ConnectionError> {
        self.transmit(buffers)?;
        if let Err(error) = self.receive(buffers) {
            // The session may have a last word for the controller; whether it arrives changes nothing.
            let _ = self.transmit(buffers);
            return Err(error);
        }
        // What has arrived may ask for data.
        if self.session.wants_transmit() {
            self.transmit(buffers)?;
        }
        Ok(())
    }

    /// Takes turns until a command has ended, for `timeout` at most.
    pub(crate) fn wait_outcome(
        &mut self,
        buffers: &mut Buffers,
        timeout: Duration,
    ) -> Result<Outcome, ConnectionError> {
        let deadline = Instant::now() + timeout;
        loop {
            self.turn(buffers)?;
            if !self.outcomes.is_empty() {
                return Ok(self.outcomes.remove(0));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(ConnectionError::Silent { waited: timeout });
            }
            sleep(&[(self.descriptor(), self.interest())], Some(left))?;
        }
    }

    fn transmit(&mut self, buffers: &Buffers) -> Result<(), ConnectionError> {
        for _ in 0..SENDS_PER_TURN {
            if self.list.is_empty() {
                if !self.session.wants_transmit() {
                    self.blocked = Blocked::No;
                    return Ok(());
                }
                self.session.poll_transmit(buffers, &mut self.list);
            }
            match send(&self.stream, &self.list, buffers) {
                Ok(sent_bytes) => {
                    self.list.consume(sent_bytes as u64);
                    self.session
                        .handle_sent(sent_bytes as u64, &mut self.outcomes);
                }
                Err(Errno::AGAIN) => {
                    self.blocked = Blocked::Yes;
                    return Ok(());
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(io::Error::from(error).into()),
            }
        }
        self.blocked = Blocked::Yes;
        Ok(())
    }

    fn receive(&mut self, buffers: &mut Buffers) -> Result<(), ConnectionError> {
        for _ in 0..RECEIVES_PER_TURN {
            let inbox_bytes = if self.session.expects_bulk() {
                BULK_INBOX_BYTES.min(self.inbox.len())
            } else {
                self.inbox.len()
            };
            let inbox = &mut self.inbox[..inbox_bytes];
            let direct = self.session.direct();
            let placed_max = direct.map_or(0, |range| range.len_bytes as usize);
            let received = match direct {
                None => (&*self.stream).read(inbox),
                Some(range) => {
                    let place = IoSliceMut::new(buffers.range_mut(range));
                    (&*self.stream).read_vectored(&mut [place, IoSliceMut::new(inbox)])
                }
            };
            let received_bytes = match received {
                Ok(0) => return Err(ConnectionError::Closed),
                Ok(received_bytes) => received_bytes,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error.into()),
            };
            let placed_bytes = received_bytes.min(placed_max);
            if placed_bytes > 0 {
                self.session
                    .handle_placed(placed_bytes as u32, buffers, &mut self.outcomes);
            }
            let input = &self.inbox[..received_bytes - placed_bytes];
            self.session
                .handle_bytes(input, buffers, &mut self.outcomes)?;
            if received_bytes < placed_max + inbox_bytes {
                // The socket is empty, most likely; a call that says so is saved.
                return Ok(());
            }
        }
        Ok(())
    }
}

/// Sends the start of a list in one call.
fn send(stream: &TcpStream, list: &SendList, buffers: &Buffers) -> Result<usize, Errno> {
    let mut pieces = [IoSlice::new(&[]); PIECES_MAX];
    let mut count = 0;
    for (piece, segment) in pieces.iter_mut().zip(list.segments()) {
        *piece = IoSlice::new(match segment {
            Segment::Bytes(bytes) => bytes,
            Segment::Place(place) => buffers.at(place.range.offset, place.range.len),
        });
        count += 1;
    }
    if let [piece] = &pieces[..count] {
        return rustix::net::send(stream, piece, SendFlags::NOSIGNAL);
    }
    sendmsg(
        stream,
        &pieces[..count],
        &mut SendAncillaryBuffer::default(),
        SendFlags::NOSIGNAL,
    )
}
