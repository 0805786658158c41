//! An end that calls recv and send, with and without epoll.

use std::{
    io::{self, Read as _, Write as _},
    net::TcpStream,
};

use rustix::event::{PollFd, PollFlags, Timespec, epoll as ep, poll};

use crate::{
    end::{BUFFER_BYTES, End},
    exchange::Idle,
};

/// What a call did.
#[derive(PartialEq, Eq)]
enum Progress {
    Some,
    None,
    Closed,
}

fn send(mut socket: &TcpStream, end: &mut End<'_>) -> io::Result<Progress> {
    let bytes = end.next_bytes();
    if bytes.is_empty() {
        return Ok(Progress::None);
    }
    match socket.write(bytes) {
        Ok(len) => {
            end.sent(len);
            Ok(Progress::Some)
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Progress::None),
        Err(error) => Err(error),
    }
}

fn receive(mut socket: &TcpStream, end: &mut End<'_>, buffer: &mut [u8]) -> io::Result<Progress> {
    match socket.read(buffer) {
        Ok(0) => Ok(Progress::Closed),
        Ok(len) => {
            end.receive(&buffer[..len]);
            Ok(Progress::Some)
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Progress::None),
        Err(error) => Err(error),
    }
}

/// Receives and sends until the connection ends; sleeps in poll where it may.
pub fn plain(socket: &TcpStream, mut end: End<'_>, idle: Idle) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    let mut buffer = vec![0; BUFFER_BYTES];
    while !end.is_over() {
        let sent = send(socket, &mut end)?;
        let received = receive(socket, &mut end, &mut buffer)?;
        if received == Progress::Closed {
            return Ok(());
        }
        let nothing = sent != Progress::Some && received != Progress::Some;
        if nothing && idle == Idle::Sleep {
            let wanted = if end.has_to_send() {
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
    let mut buffer = vec![0; BUFFER_BYTES];
    let set = ep::create(ep::CreateFlags::CLOEXEC)?;
    ep::add(&set, socket, ep::EventData::new_u64(0), ep::EventFlags::IN)?;
    let mut events = Vec::with_capacity(1);
    let at_once = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    while !end.is_over() {
        send(socket, &mut end)?;
        let timeout = match idle {
            Idle::Sleep if !end.has_to_send() => None,
            Idle::Sleep | Idle::Spin => Some(&at_once),
        };
        events.clear();
        ep::wait(&set, rustix::buffer::spare_capacity(&mut events), timeout)?;
        if !events.is_empty() && receive(socket, &mut end, &mut buffer)? == Progress::Closed {
            return Ok(());
        }
    }
    Ok(())
}
