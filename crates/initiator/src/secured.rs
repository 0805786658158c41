//! A connection in TLS: its handshake, and its records between socket and session.

use std::{
    io::{self, ErrorKind, Read as _, Write as _},
    net::TcpStream,
    os::fd::AsFd as _,
    time::{Duration, Instant},
};

use session::{Buffers, Segment, SendList};
use tls::{ClientHandshake, Output, Records, Sealed};

use crate::ConnectionError;
use crate::socket::{Interest, wait};

/// The records of a connection, and those that the socket has not taken.
#[derive(Debug)]
pub(crate) struct Secured {
    pub(crate) records: Records,
    output: Output,
    sealed: Sealed,
}

impl Secured {
    /// Records after a handshake.
    pub(crate) fn new(records: Records) -> Self {
        Self {
            records,
            output: Output::default(),
            sealed: Sealed::default(),
        }
    }

    /// Whether everything that was encrypted was sent, and nothing has to be sent besides.
    pub(crate) fn is_drained(&self) -> bool {
        self.sealed.is_empty() && !self.records.wants_transmit()
    }

    /// Encrypts the start of a list, if what was encrypted before was sent. Returns the number of
    /// bytes, which the caller takes off the list.
    pub(crate) fn seal(
        &mut self,
        list: &SendList,
        buffers: &Buffers,
    ) -> Result<usize, ConnectionError> {
        if !self.sealed.is_empty() {
            return Ok(0);
        }
        let mut taken = 0;
        for segment in list.segments() {
            let bytes = match segment {
                Segment::Bytes(bytes) => bytes,
                Segment::Place(place) => buffers.at(place.range.offset, place.range.len),
            };
            let left = Output::CONTENTS_MAX_BYTES - taken;
            let bytes = &bytes[..bytes.len().min(left)];
            self.output.push(bytes);
            taken += bytes.len();
            if taken == Output::CONTENTS_MAX_BYTES {
                break;
            }
        }
        self.sealed = self.records.seal(&mut self.output)?;
        Ok(taken)
    }

    /// Sends what was encrypted. Returns false if the socket takes no more.
    pub(crate) fn send(&mut self, stream: &TcpStream) -> Result<bool, ConnectionError> {
        let mut sent_bytes = 0;
        let is_sent = send(stream, self.sealed.unsent(), &mut sent_bytes)?;
        self.sealed.consume(sent_bytes);
        if is_sent {
            self.output.reuse(std::mem::take(&mut self.sealed));
        }
        Ok(is_sent)
    }
}

/// Carries a handshake out that has begun with `output`.
pub(crate) fn shake_hands(
    stream: &TcpStream,
    mut handshake: ClientHandshake,
    mut output: Vec<u8>,
    timeout: Duration,
) -> Result<Records, ConnectionError> {
    let deadline = Instant::now() + timeout;
    let mut input = [0; 4096];
    let mut records = None;
    loop {
        let mut sent_bytes = 0;
        while !send(stream, &output, &mut sent_bytes)? {
            await_socket(stream, Interest::ReadWrite, deadline, timeout)?;
        }
        output.clear();
        if let Some(records) = records {
            return Ok(records);
        }
        let wanted = handshake.wanted_bytes().min(input.len());
        match (&*stream).read(&mut input[..wanted]) {
            Ok(0) => return Err(ConnectionError::Closed),
            Ok(len) => records = handshake.handle_bytes(&input[..len], &mut output)?,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                await_socket(stream, Interest::Read, deadline, timeout)?;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Sends `bytes` after the first `sent_bytes`. Returns false if the socket takes no more.
fn send(mut stream: &TcpStream, bytes: &[u8], sent_bytes: &mut usize) -> io::Result<bool> {
    while *sent_bytes < bytes.len() {
        match stream.write(&bytes[*sent_bytes..]) {
            Ok(sent) => *sent_bytes += sent,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

fn await_socket(
    stream: &TcpStream,
    interest: Interest,
    deadline: Instant,
    timeout: Duration,
) -> Result<(), ConnectionError> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(ConnectionError::Silent { waited: timeout });
    }
    Ok(wait(stream.as_fd(), interest, None, left)?)
}
