//! An end on io_uring: one receive always in flight, one send where there is something to send.
//!
//! Memory safety: the buffers belong to the function that drives the ring, which waits for what is
//! in flight before it returns (the socket is shut down by then, so nothing stays in flight).

use std::{io, net::TcpStream, os::fd::AsRawFd as _};

use io_uring::{IoUring, opcode, types};

use crate::{
    end::{BUFFER_BYTES, End},
    exchange::Idle,
};

const RECEIVE: u64 = 1;
const SEND: u64 = 2;

/// A ring for one thread, whose completions are made when it requests them, where the kernel can do
/// that (Linux 6.1).
pub fn ring() -> io::Result<IoUring> {
    let (entries, completions) = (8, 64);
    let deferred = IoUring::builder()
        .setup_cqsize(completions)
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_taskrun_flag()
        .build(entries);
    match deferred {
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
            IoUring::builder().setup_cqsize(completions).build(entries)
        }
        other => other,
    }
}

/// Receives and sends until the connection ends.
pub fn run(socket: &TcpStream, mut end: End<'_>, idle: Idle) -> io::Result<()> {
    let mut received = vec![0_u8; BUFFER_BYTES];
    let mut ring = ring()?;
    ring.submitter().register_files(&[socket.as_raw_fd()])?;
    let fd = types::Fixed(0);
    let (mut receiving, mut sending, mut closed) = (false, false, false);
    while !(closed && !receiving && !sending) {
        if !receiving && !closed {
            let entry = opcode::Recv::new(fd, received.as_mut_ptr(), BUFFER_BYTES as u32)
                .build()
                .user_data(RECEIVE);
            // SAFETY: `received` outlives the request, since this function waits for it.
            unsafe { ring.submission().push(&entry) }.expect("the queue has room for two");
            receiving = true;
        }
        if !sending && !closed && end.has_to_send() {
            let bytes = end.next_bytes();
            let entry = opcode::Send::new(fd, bytes.as_ptr(), bytes.len() as u32)
                .build()
                .user_data(SEND);
            // SAFETY: the end's buffer outlives the request, since this function waits for it, and
            // the end does not touch what it gave out before the completion reports that it was
            // sent.
            unsafe { ring.submission().push(&entry) }.expect("the queue has room for two");
            sending = true;
        }
        let queue = ring.submission();
        let must_enter = !queue.is_empty() || queue.taskrun();
        drop(queue);
        match idle {
            Idle::Sleep => ring.submit_and_wait(1).map(|_| ())?,
            Idle::Spin if must_enter => ring.submit().map(|_| ())?,
            Idle::Spin => std::hint::spin_loop(),
        }
        for entry in ring.completion() {
            let result = entry.result();
            if entry.user_data() == RECEIVE {
                receiving = false;
            } else {
                sending = false;
            }
            match usize::try_from(result) {
                Ok(0) | Err(_) => closed = true,
                Ok(len) if entry.user_data() == RECEIVE => end.receive(&received[..len]),
                Ok(len) => end.sent(len),
            }
        }
        closed |= end.is_over() && idle == Idle::Spin;
    }
    Ok(())
}
