//! An end on io_uring whose one receive yields completion after completion, each with a buffer that
//! the kernel chose, and that sends from registered buffers, with a copy or without.
//!
//! Memory safety: what requests in flight refer to is dropped only after the last of them has
//! ended; if the ring fails before that (or something panics), it is leaked.

use std::{io, mem::ManuallyDrop, net::TcpStream, os::fd::AsRawFd as _};

use io_uring::{IoUring, cqueue, opcode, types};

use crate::{
    end::End,
    exchange::Idle,
    outgoing::{Outgoing, Sending},
    provided::ProvidedBuffers,
    uring::ring,
};

const RECEIVE: u64 = u64::MAX;
const SOCKET: types::Fixed = types::Fixed(0);

/// Receives and sends until the connection ends.
pub fn run(socket: &TcpStream, end: End<'_>, idle: Idle, sending: Sending) -> io::Result<()> {
    let mut ring = ring()?;
    ring.submitter().register_files(&[socket.as_raw_fd()])?;
    let mut connection = ManuallyDrop::new(Connection {
        outgoing: Outgoing::new(end, sending),
        provided: ProvidedBuffers::new()?,
        is_receiving: false,
        is_sending: false,
        has_ended: false,
        error: None,
    });
    // SAFETY: the connection is dropped only after everything in flight has ended.
    unsafe {
        connection.provided.register(&ring.submitter())?;
        connection.outgoing.register(&ring.submitter())?;
    }
    while !connection.is_idle() {
        connection.push(&mut ring);
        let queue = ring.submission();
        let must_enter = !queue.is_empty() || queue.taskrun();
        drop(queue);
        match idle {
            Idle::Sleep => ring.submit_and_wait(1).map(|_| ())?,
            Idle::Spin if must_enter => ring.submit().map(|_| ())?,
            Idle::Spin => std::hint::spin_loop(),
        }
        for entry in ring.completion() {
            connection.handle_completion(&entry);
        }
    }
    let Connection { error, .. } = ManuallyDrop::into_inner(connection);
    error.map_or(Ok(()), Err)
}

/// An end and what is in flight for it.
struct Connection<'a> {
    outgoing: Outgoing<'a>,
    provided: ProvidedBuffers,
    is_receiving: bool,
    /// One send at a time, so that bytes stay in order. Its notification may come after the next
    /// send's begin.
    is_sending: bool,
    /// Nothing more will arrive. Until then all input is received, since the peer's sends would not
    /// end otherwise.
    has_ended: bool,
    /// The first failure.
    error: Option<io::Error>,
}

impl Connection<'_> {
    /// Whether the connection is over and nothing is in flight.
    fn is_idle(&self) -> bool {
        self.has_ended && !self.is_receiving && !self.outgoing.is_in_use()
    }

    /// Queues the receive, where it has ended, and the next send.
    fn push(&mut self, ring: &mut IoUring) {
        if self.has_ended {
            return;
        }
        if !self.is_receiving {
            let entry = opcode::RecvMulti::new(SOCKET, ProvidedBuffers::GROUP)
                .build()
                .user_data(RECEIVE);
            // SAFETY: the buffers of the group outlive the request, see `run`.
            unsafe { ring.submission().push(&entry) }.expect("the queue has room for two");
            self.is_receiving = true;
        }
        if self.is_sending || self.error.is_some() || self.outgoing.end.is_over() {
            return;
        }
        if let Some((entry, buffer)) = self.outgoing.next_send(SOCKET) {
            let entry = entry.user_data(buffer as u64);
            // SAFETY: the buffer outlives the request, see `run`, and is not written before it is
            // released.
            unsafe { ring.submission().push(&entry) }.expect("the queue has room for two");
            self.is_sending = true;
        }
    }

    fn handle_completion(&mut self, entry: &cqueue::Entry) {
        if entry.user_data() == RECEIVE {
            return self.on_received(entry);
        }
        let flags = entry.flags();
        if !cqueue::notif(flags) {
            self.is_sending = false;
            match usize::try_from(entry.result()) {
                Ok(len) => self.outgoing.end.sent(len),
                Err(_) => self.fail(entry.result()),
            }
        }
        // A zero-copy send that took bytes promises a notification.
        if !cqueue::more(flags) {
            self.outgoing.release(entry.user_data() as usize);
        }
    }

    fn on_received(&mut self, entry: &cqueue::Entry) {
        self.is_receiving = cqueue::more(entry.flags());
        match (
            usize::try_from(entry.result()),
            cqueue::buffer_select(entry.flags()),
        ) {
            (Ok(len @ 1..), Some(id)) => {
                self.outgoing.end.receive(self.provided.bytes(id, len));
                self.provided.give(id);
            }
            (Ok(_), _) => self.has_ended = true,
            // All buffers were full; by the time of the next receive they are back.
            (Err(_), _) if entry.result() == -libc::ENOBUFS => {}
            (Err(_), _) => {
                self.has_ended = true;
                self.fail(entry.result());
            }
        }
    }

    fn fail(&mut self, result: i32) {
        self.error
            .get_or_insert_with(|| io::Error::from_raw_os_error(-result));
    }
}
