//! One measurement: a server and a client thread, each on its processor.

use std::{
    io,
    net::{TcpListener, TcpStream},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use rustix::{
    thread::{CpuSet, sched_setaffinity},
    time::{ClockId, clock_gettime},
};
use serde::Serialize;

use crate::{
    Calls, Case, Shape, Sleepers, calls,
    end::{End, Sizes},
    multishot,
    outgoing::Sending,
    uring,
};

/// What was measured.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Figures {
    /// Exchanges per second.
    pub per_second: f64,
    /// CPU time of the server per exchange in microseconds.
    pub server_cpu_us: f64,
    /// CPU time of the client per exchange in microseconds.
    pub client_cpu_us: f64,
}

/// Whether an end sleeps while nothing arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Idle {
    Spin,
    Sleep,
}

impl Idle {
    /// What the server and the client do.
    const fn of_both(sleepers: Sleepers) -> (Self, Self) {
        match sleepers {
            Sleepers::None => (Self::Spin, Self::Spin),
            Sleepers::Server => (Self::Sleep, Self::Spin),
            Sleepers::Both => (Self::Sleep, Self::Sleep),
        }
    }
}

/// Exchanges messages and measures for `time`, after a warm-up of a fifth of it.
pub fn exchange(
    case: Case,
    time: Duration,
    [server_cpu, client_cpu]: [usize; 2],
) -> io::Result<Figures> {
    let Case {
        shape,
        work,
        calls,
        sleepers,
        memory_bytes,
    } = case;
    let (server_idle, client_idle) = Idle::of_both(sleepers);
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let client = TcpStream::connect(listener.local_addr()?)?;
    let (server, _) = listener.accept()?;
    let (requests, replies) = (AtomicU64::new(0), AtomicU64::new(0));
    let (server_cpu_ns, client_cpu_ns) = (AtomicU64::new(0), AtomicU64::new(0));
    let stop = AtomicBool::new(false);
    let sizes = |header, message| Sizes {
        header,
        data: message - header,
    };
    let request = sizes(Shape::COMMAND_BYTES, shape.request_bytes());
    let reply = sizes(Shape::REPLY_BYTES, shape.reply_bytes());
    let server_end = End::new(work, [request, reply], memory_bytes, 0, &requests, &stop);
    let slots_bytes = shape.depth as usize * shape.len_bytes as usize;
    let sizes = [reply, request];
    let client_end = End::new(work, sizes, slots_bytes, shape.depth, &replies, &stop);
    let server_end = Placed {
        end: server_end,
        cpu: server_cpu,
        cpu_ns: &server_cpu_ns,
    };
    let client_end = Placed {
        end: client_end,
        cpu: client_cpu,
        cpu_ns: &client_cpu_ns,
    };
    thread::scope(|scope| {
        let server = scope.spawn(|| server_end.run(&server, calls, server_idle));
        let client_handle = scope.spawn(|| client_end.run(&client, calls, client_idle));
        let per_second = replies_per_second(&replies, time);
        stop.store(true, Ordering::Relaxed);
        // Wakes an end that sleeps.
        client.shutdown(std::net::Shutdown::Both)?;
        server.join().expect("the server does not panic")?;
        client_handle.join().expect("the client does not panic")?;
        let all = replies.load(Ordering::Relaxed).max(1) as f64;
        let cpu_us = |ns: &AtomicU64| ns.load(Ordering::Relaxed) as f64 / 1000.0 / all;
        Ok(Figures {
            per_second,
            server_cpu_us: cpu_us(&server_cpu_ns),
            client_cpu_us: cpu_us(&client_cpu_ns),
        })
    })
}

/// Counts replies for `time`, after a fifth of it has passed.
fn replies_per_second(replies: &AtomicU64, time: Duration) -> f64 {
    thread::sleep(time / 5);
    let (begun, first) = (Instant::now(), replies.load(Ordering::Relaxed));
    thread::sleep(time);
    let (elapsed, last) = (begun.elapsed(), replies.load(Ordering::Relaxed));
    (last - first) as f64 / elapsed.as_secs_f64()
}

/// An end and the processor that it runs on.
struct Placed<'a> {
    end: End<'a>,
    cpu: usize,
    cpu_ns: &'a AtomicU64,
}

impl Placed<'_> {
    fn run(self, socket: &TcpStream, calls: Calls, idle: Idle) -> io::Result<()> {
        let mut set = CpuSet::new();
        set.set(self.cpu);
        sched_setaffinity(None, &set)?;
        socket.set_nodelay(true)?;
        let ended = match calls {
            Calls::Plain => calls::plain(socket, self.end, idle),
            Calls::Epoll => calls::epoll(socket, self.end, idle),
            Calls::Uring => uring::run(socket, self.end, idle),
            Calls::UringMulti => multishot::run(socket, self.end, idle, Sending::Copy),
            Calls::UringZc => multishot::run(socket, self.end, idle, Sending::ZeroCopy),
        };
        let used = clock_gettime(ClockId::ThreadCPUTime);
        let ns = used.tv_sec.unsigned_abs() * 1_000_000_000 + used.tv_nsec.unsigned_abs();
        self.cpu_ns.store(ns, Ordering::Relaxed);
        match ended {
            // The shutdown that ends the measurement.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset
                ) =>
            {
                Ok(())
            }
            other => other,
        }
    }
}
