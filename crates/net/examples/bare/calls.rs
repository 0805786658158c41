//! An end that calls recv and send, with and without epoll.

use std::{
    io::{self, Read as _, Write as _},
    net::TcpStream,
};

use rustix::event::{PollFd, PollFlags, Timespec, epoll as ep, poll};

use crate::exchange::{BUFFER_BYTES, End, Idle};

/// Buffers of an end.
struct Buffers {
    received: Vec<u8>,
    sent: Vec<u8>,
}

impl Buffers {
    fn new() -> Self {
        Self {
            received: vec![0; BUFFER_BYTES],
            sent: vec![0x5a; BUFFER_BYTES],
        }
    }
}

/// What a call did.
#[derive(PartialEq, Eq)]
enum Progress {
    Some,
    None,
    Closed,
}

fn send(mut socket: &TcpStream, end: &mut End<'_>, buffers: &Buffers) -> io::Result<Progress> {
    if end.to_send == 0 {
        return Ok(Progress::None);
    }
    let len = end.to_send.min(BUFFER_BYTES);
    match socket.write(&buffers.sent[..len]) {
        Ok(len) => {
            end.to_send -= len;
            Ok(Progress::Some)
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Progress::None),
        Err(error) => Err(error),
    }
}

fn receive(
    mut socket: &TcpStream,
    end: &mut End<'_>,
    buffers: &mut Buffers,
) -> io::Result<Progress> {
    match socket.read(&mut buffers.received) {
        Ok(0) => Ok(Progress::Closed),
        Ok(len) => {
            end.receive(len);
            Ok(Progress::Some)
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Progress::None),
        Err(error) => Err(error),
    }
}

/// Receives and sends until the connection ends; sleeps in poll where it may.
pub fn plain(socket: &TcpStream, mut end: End<'_>, idle: Idle) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    let mut buffers = Buffers::new();
    while !end.is_over() {
        let sent = send(socket, &mut end, &buffers)?;
        let received = receive(socket, &mut end, &mut buffers)?;
        if received == Progress::Closed {
            return Ok(());
        }
        let nothing = sent != Progress::Some && received != Progress::Some;
        if nothing && idle == Idle::Sleep {
            let wanted = if end.to_send > 0 {
                PollFlags::IN | PollFlags::OUT
            } else {
                PollFlags::IN
            };
            poll(&mut [PollFd::new(socket, wanted)], None)?;
        }
    }
    Ok(())
}

/// The same, but asks epoll before it receives.
pub fn epoll(socket: &TcpStream, mut end: End<'_>, idle: Idle) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    let mut buffers = Buffers::new();
    let set = ep::create(ep::CreateFlags::CLOEXEC)?;
    ep::add(&set, socket, ep::EventData::new_u64(0), ep::EventFlags::IN)?;
    let mut events = Vec::with_capacity(1);
    let at_once = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    while !end.is_over() {
        send(socket, &mut end, &buffers)?;
        let timeout = match idle {
            Idle::Sleep if end.to_send == 0 => None,
            Idle::Sleep | Idle::Spin => Some(&at_once),
        };
        events.clear();
        ep::wait(&set, rustix::buffer::spare_capacity(&mut events), timeout)?;
        if !events.is_empty() && receive(socket, &mut end, &mut buffers)? == Progress::Closed {
            return Ok(());
        }
    }
    Ok(())
}
