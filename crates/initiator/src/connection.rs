//! One connection: a socket, the session core that uses it, and the data in flight.

use std::{
    fmt::Debug,
    io::{self, IoSlice, IoSliceMut, Read as _},
    net::TcpStream,
    os::fd::{AsFd as _, BorrowedFd},
    sync::{Arc, Weak},
    time::Duration,
};

use rustix::{
    io::Errno,
    net::{SendAncillaryBuffer, SendFlags, sendmsg},
};
use session::{BufferRange, Buffers, Segment, SendList};

use crate::ConnectionError;
use crate::queue_connection::ConnectionHandle;
use crate::secured::Secured;
use crate::session_connection::SessionConnection;
use crate::socket::{Interest, wait};

/// The host's end of a protocol over a byte stream, without a socket.
pub(crate) trait Core {
    /// How a command ended.
    type Outcome;
    /// Why the connection has to end.
    type Error: Into<ConnectionError>;

    /// Takes all of `input`, in any chunking.
    fn handle_bytes(
        &mut self,
        input: &[u8],
        buffers: &mut Buffers,
        done: &mut Vec<Self::Outcome>,
    ) -> Result<(), Self::Error>;

    /// The buffer range for the next received bytes, if they are data of a long read.
    fn direct(&self) -> Option<BufferRange>;

    /// Records that `len_bytes` bytes were received into the start of the range that
    /// [`direct`](Self::direct) returned.
    fn handle_placed(
        &mut self,
        len_bytes: u32,
        buffers: &Buffers,
        done: &mut Vec<Self::Outcome>,
    ) -> Result<(), Self::Error>;

    /// Whether most of what will arrive are data of long reads.
    fn expects_bulk(&self) -> bool;

    /// Adds pending output to `out`, as much as fits.
    fn poll_transmit(&mut self, buffers: &Buffers, out: &mut SendList);

    /// Whether [`poll_transmit`](Self::poll_transmit) would add anything to an empty list.
    fn wants_transmit(&self) -> bool;

    /// Records that `len_bytes` more bytes of the list were sent.
    fn handle_sent(&mut self, len_bytes: u64, done: &mut Vec<Self::Outcome>);
}

/// A socket with its session.
#[derive(Debug)]
pub(crate) struct Connection<S: Core> {
    stream: Arc<TcpStream>,
    session: S,
    list: SendList,
    inbox: Box<[u8]>,
    outcomes: Vec<S::Outcome>,
    /// Whether the operating system had no room for all that is to be sent.
    blocked: Blocked,
    /// Its records, if it is in TLS.
    secured: Option<Box<Secured>>,
}

/// The memory of a connection for data in flight.
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
    /// For an I/O queue: all data in flight of a deep queue of small commands fit.
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

/// What is received besides data in place while long reads are in flight: some headers, and little
/// of the data that follow the last of them, since these have to be copied.
const BULK_INBOX_BYTES: usize = 4096;

impl<S: Core> Connection<S> {
    /// A session that has just begun over `stream`, with at most `keys` commands in flight.
    pub(crate) fn new(stream: TcpStream, session: S, sizes: Sizes, keys: u16) -> Self {
        Self {
            stream: Arc::new(stream),
            session,
            list: SendList::with_capacity(sizes.list_bytes),
            inbox: vec![0; sizes.inbox_bytes].into_boxed_slice(),
            outcomes: Vec::with_capacity(usize::from(keys)),
            blocked: Blocked::No,
            secured: None,
        }
    }

    /// The same in TLS.
    pub(crate) fn secured(self, secured: Option<Box<Secured>>) -> Self {
        Self { secured, ..self }
    }

    pub(crate) fn session(&mut self) -> &mut S {
        &mut self.session
    }

    pub(crate) fn session_ref(&self) -> &S {
        &self.session
    }

    fn transmit(&mut self, buffers: &Buffers) -> Result<(), ConnectionError> {
        if self.secured.is_some() {
            return self.transmit_secured(buffers);
        }
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

    fn transmit_secured(&mut self, buffers: &Buffers) -> Result<(), ConnectionError> {
        let secured = self.secured.as_mut().expect("the caller has checked it");
        self.blocked = Blocked::Yes;
        for _ in 0..SENDS_PER_TURN {
            if !secured.send(&self.stream)? {
                return Ok(());
            }
            if self.list.is_empty() && self.session.wants_transmit() {
                self.session.poll_transmit(buffers, &mut self.list);
            }
            if self.list.is_empty() && secured.is_drained() {
                self.blocked = Blocked::No;
                return Ok(());
            }
            let taken = secured.seal(&self.list, buffers)? as u64;
            self.list.consume(taken);
            self.session.handle_sent(taken, &mut self.outcomes);
        }
        Ok(())
    }

    fn receive_secured(&mut self, buffers: &mut Buffers) -> Result<(), ConnectionError> {
        let secured = self.secured.as_mut().expect("the caller has checked it");
        for _ in 0..RECEIVES_PER_TURN {
            let received_bytes = match (&*self.stream).read(&mut self.inbox) {
                Ok(0) => return Err(ConnectionError::Closed),
                Ok(received_bytes) => received_bytes,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error.into()),
            };
            let (session, outcomes) = (&mut self.session, &mut self.outcomes);
            let input = &mut self.inbox[..received_bytes];
            secured.records.handle_bytes(input, |bytes| {
                let taken = session.handle_bytes(bytes, buffers, outcomes);
                taken.map_err(S::Error::into)
            })?;
            if received_bytes < self.inbox.len() {
                return Ok(());
            }
        }
        Ok(())
    }

    fn receive(&mut self, buffers: &mut Buffers) -> Result<(), ConnectionError> {
        if self.secured.is_some() {
            return self.receive_secured(buffers);
        }
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
                    .handle_placed(placed_bytes as u32, buffers, &mut self.outcomes)
                    .map_err(S::Error::into)?;
            }
            let input = &self.inbox[..received_bytes - placed_bytes];
            self.session
                .handle_bytes(input, buffers, &mut self.outcomes)
                .map_err(S::Error::into)?;
            if received_bytes < placed_max + inbox_bytes {
                // The socket is empty, most likely; a call that says so is saved.
                return Ok(());
            }
        }
        Ok(())
    }
}

impl<S> SessionConnection for Connection<S>
where
    S: Core + Debug + Send,
    S::Outcome: Debug + Send,
{
    type Outcome = S::Outcome;

    #[inline]
    fn turn(&mut self, buffers: &mut Buffers) -> Result<(), ConnectionError> {
        self.transmit(buffers)?;
        if let Err(error) = self.receive(buffers) {
            // The session may have a last word for the controller; whether it arrives changes
            // nothing.
            let _ = self.transmit(buffers);
            return Err(error);
        }
        // What has arrived may ask for data.
        let owes_record = (self.secured.as_ref()).is_some_and(|secured| !secured.is_drained());
        if self.session.wants_transmit() || owes_record {
            self.transmit(buffers)?;
        }
        Ok(())
    }

    #[inline]
    fn outcomes(&mut self) -> &mut Vec<S::Outcome> {
        &mut self.outcomes
    }

    fn handle(&self) -> Weak<dyn ConnectionHandle> {
        let stream: Arc<dyn ConnectionHandle> = Arc::<TcpStream>::clone(&self.stream);
        Arc::downgrade(&stream)
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    fn interest(&self) -> Interest {
        match self.blocked {
            Blocked::No => Interest::Read,
            Blocked::Yes => Interest::ReadWrite,
        }
    }

    fn signals(&self) -> bool {
        true
    }

    fn wait_input(&self, also: Option<BorrowedFd<'_>>, timeout: Duration) -> io::Result<()> {
        wait(self.descriptor(), self.interest(), also, timeout)
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
