//! Frames to one other node, and the thread that sends them.

use std::hash::{BuildHasher as _, RandomState};
use std::io::{self, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use replica::LocalTime;
use replica::wire::{Hello, Packet, Ping};

use crate::clock::now;
use crate::security::Security;

/// The most bytes that wait to be sent to a node. Further frames are dropped: the protocol sends
/// entries again, and the rest is repeated or expires.
const OUTBOX_BYTES_MAX: usize = 64 << 20;
/// A buffer that was larger is freed when it was sent.
const KEPT_BYTES_MAX: usize = 4 << 20;
/// Time between two pings.
const PING_INTERVAL: Duration = Duration::from_millis(200);
/// How long a connection attempt may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// The pause after a connection was lost. It doubles while the peer is not heard.
const RETRY_PAUSE: Duration = Duration::from_millis(100);
/// The longest pause, or a quarter longer.
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(5);
/// How long the handshake and the greeting may take.
const GREETING_TIMEOUT: Duration = Duration::from_secs(3);
/// A peer that is silent for longer is not connected. It pings more often.
const SILENCE_MAX: Duration = Duration::from_secs(2);
/// How many lengths of a pause there are.
const JITTER_STEPS: u64 = 256;
/// How long the peer may take no bytes.
const SEND_TIMEOUT: Duration = Duration::from_secs(2);

/// Another node.
#[derive(Debug)]
pub(crate) struct Peer {
    pub node: u32,
    outbox: Mutex<Outbox>,
    has_work: Condvar,
    /// The peer's clock as its last ping showed it, in nanoseconds; 0: it sent none.
    heard_clock: AtomicU64,
}

#[derive(Debug, Default)]
struct Outbox {
    bytes: Vec<u8>,
    addresses: Vec<SocketAddr>,
    connection: Option<Connection>,
    /// When the peer pinged last, over its own connection.
    heard_at: Option<Instant>,
    /// The next attempt to connect need not wait: the peer was heard, or has other addresses.
    is_hurried: bool,
    is_over: bool,
}

#[derive(Debug)]
struct Connection {
    /// What is shut down to end it.
    control: TcpStream,
    since: Instant,
    /// Whether the greeting was sent. Frames are kept only from then on.
    is_greeted: bool,
}

impl Peer {
    pub fn new(node: u32, addresses: Vec<SocketAddr>) -> Self {
        Self {
            node,
            outbox: Mutex::new(Outbox {
                addresses,
                ..Outbox::default()
            }),
            has_work: Condvar::new(),
            heard_clock: AtomicU64::new(0),
        }
    }

    /// Starts the thread that connects and sends.
    pub fn start(self: &Arc<Self>, security: Security, hello: Hello) -> io::Result<JoinHandle<()>> {
        let peer = Arc::clone(self);
        thread::Builder::new()
            .name(format!("to-node-{}", self.node))
            .spawn(move || peer.run(&security, hello))
    }

    /// Other addresses of the node, for the next connection.
    pub fn set_addresses(&self, addresses: Vec<SocketAddr>) {
        let mut outbox = self.lock();
        if outbox.addresses != addresses {
            outbox.addresses = addresses;
            outbox.is_hurried = true;
            self.has_work.notify_one();
        }
    }

    /// Adds a frame, if there is a connection and the node is not too far behind.
    pub fn send(&self, packet: &Packet) {
        let mut outbox = self.lock();
        let connection = outbox.connection.as_ref();
        let is_greeted = connection.is_some_and(|connection| connection.is_greeted);
        if !is_greeted || outbox.bytes.len() >= OUTBOX_BYTES_MAX {
            return;
        }
        let is_first = outbox.bytes.is_empty();
        packet.encode(&mut outbox.bytes);
        drop(outbox);
        if is_first {
            self.has_work.notify_one();
        }
    }

    /// Whether frames reach the node, as far as its pings show: it has answered nothing else.
    pub fn is_connected(&self) -> bool {
        let outbox = self.lock();
        let is_recent = |at: Instant| at.elapsed() < SILENCE_MAX;
        outbox.was_heard() && outbox.heard_at.is_some_and(is_recent)
    }

    /// Ends a connection whose handshake takes too long.
    pub fn handle_tick(&self) {
        let outbox = self.lock();
        if let Some(connection) = &outbox.connection
            && !connection.is_greeted
            && connection.since.elapsed() >= GREETING_TIMEOUT
        {
            connection.shut_down();
        }
    }

    /// The peer's clock, which may have gone on since.
    pub fn heard_clock(&self) -> Option<LocalTime> {
        let ns = self.heard_clock.load(Ordering::Relaxed);
        (ns > 0).then(|| LocalTime(Duration::from_nanos(ns)))
    }

    pub fn on_ping(&self, ping: Ping) {
        let ns = u64::try_from(ping.sent_at.0.as_nanos()).unwrap_or(u64::MAX);
        self.heard_clock.store(ns, Ordering::Relaxed);
        let mut outbox = self.lock();
        outbox.heard_at = Some(Instant::now());
        if outbox.connection.is_none() {
            outbox.is_hurried = true;
            self.has_work.notify_one();
        }
    }

    /// Ends the connection and the thread.
    pub fn close(&self) {
        let mut outbox = self.lock();
        outbox.is_over = true;
        if let Some(connection) = &outbox.connection {
            connection.shut_down();
        }
        self.has_work.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, Outbox> {
        self.outbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, security: &Security, hello: Hello) {
        let mut attempt = 0;
        let mut pause = RETRY_PAUSE;
        loop {
            let address = {
                let outbox = self.lock();
                if outbox.is_over {
                    return;
                }
                let count = outbox.addresses.len().max(1);
                outbox.addresses.get(attempt % count).copied()
            };
            attempt += 1;
            let ended = address.map(|address| self.converse(address, security, hello));
            if let Some(Err(error)) = ended {
                tracing::debug!(node = self.node, %error, "a connection to a node ended");
            }
            let mut outbox = self.lock();
            let was_heard = outbox.was_heard();
            outbox.connection = None;
            drop(outbox);
            pause = if was_heard { RETRY_PAUSE } else { pause * 2 };
            pause = pause.min(RETRY_PAUSE_MAX);
            if self.wait_to_retry(pause) {
                pause = RETRY_PAUSE;
            }
        }
    }

    /// Waits for `pause`, or up to a quarter longer, so that nodes that lost each other do not all
    /// connect at a time. Ends early if there is a reason to connect at once, and returns whether
    /// there is one.
    fn wait_to_retry(&self, pause: Duration) -> bool {
        let share = RandomState::new().hash_one(self.node) % JITTER_STEPS;
        let pause = pause + pause / 4 * share as u32 / JITTER_STEPS as u32;
        let until = Instant::now() + pause;
        let mut outbox = self.lock();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if outbox.is_over || left.is_zero() {
                return false;
            }
            if std::mem::take(&mut outbox.is_hurried) {
                return true;
            }
            let waited = self.has_work.wait_timeout(outbox, left);
            (outbox, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Registers a connection, so that it can be ended. Returns whether it goes on.
    fn begin(&self, control: TcpStream) -> bool {
        let mut outbox = self.lock();
        outbox.connection = Some(Connection {
            control,
            since: Instant::now(),
            is_greeted: false,
        });
        !outbox.is_over
    }

    /// Connects and sends until the connection fails or the peer is closed.
    fn converse(&self, address: SocketAddr, security: &Security, hello: Hello) -> io::Result<()> {
        let stream = TcpStream::connect_timeout(&address, CONNECT_TIMEOUT)?;
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(SEND_TIMEOUT))?;
        stream.set_read_timeout(Some(SEND_TIMEOUT))?;
        if !self.begin(stream.try_clone()?) {
            return Ok(());
        }
        let mut writer = security.connect(stream, self.node)?;
        let mut bytes = Vec::new();
        Packet::Hello(hello).encode(&mut bytes);
        writer.write_all(&bytes)?;
        writer.flush()?;
        {
            let mut outbox = self.lock();
            outbox.bytes.clear();
            if let Some(connection) = &mut outbox.connection {
                connection.is_greeted = true;
            }
        }
        let mut pinged_at: Option<Instant> = None;
        loop {
            bytes.clear();
            if bytes.capacity() > KEPT_BYTES_MAX {
                bytes = Vec::new();
            }
            if !self.take(&mut bytes, pinged_at) {
                return Ok(());
            }
            if pinged_at.is_none_or(|at| at.elapsed() >= PING_INTERVAL) {
                pinged_at = Some(Instant::now());
                Packet::Ping(Ping { sent_at: now() }).encode(&mut bytes);
            }
            writer.write_all(&bytes)?;
            writer.flush()?;
        }
    }

    /// Takes what is to be sent into `bytes`, which is empty. Waits for that until the next ping.
    /// Returns whether the connection goes on.
    fn take(&self, bytes: &mut Vec<u8>, pinged_at: Option<Instant>) -> bool {
        let mut outbox = self.lock();
        let since = pinged_at.map_or(PING_INTERVAL, |at| at.elapsed());
        let left = PING_INTERVAL.saturating_sub(since);
        if outbox.bytes.is_empty() && !outbox.is_over && !left.is_zero() {
            let waited = self.has_work.wait_timeout(outbox, left);
            (outbox, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
        std::mem::swap(&mut outbox.bytes, bytes);
        !outbox.is_over
    }
}

impl Outbox {
    /// Whether the peer has pinged since the present connection began.
    fn was_heard(&self) -> bool {
        let connection = self.connection.as_ref();
        let greeted = connection.filter(|connection| connection.is_greeted);
        greeted.is_some_and(|connection| self.heard_at >= Some(connection.since))
    }
}

impl Connection {
    fn shut_down(&self) {
        // It fails if the peer was faster.
        let _ = self.control.shutdown(Shutdown::Both);
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    const HELLO: Hello = Hello {
        cluster: 1,
        from: 1,
        to: 2,
        incarnation: 1,
    };
    /// How long anything may take, on a machine with other work.
    const PATIENCE: Duration = Duration::from_secs(20);

    fn await_that(what: &str, is_it: impl Fn() -> bool) {
        let since = Instant::now();
        while !is_it() {
            assert!(since.elapsed() < PATIENCE, "{what}");
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn ping() -> Ping {
        Ping { sent_at: now() }
    }

    #[test]
    fn a_peer_is_connected_once_it_pings() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        let peer = Arc::new(Peer::new(2, vec![address]));
        // From before the connection.
        peer.on_ping(ping());
        let thread = peer.start(Security::Plain, HELLO).expect("a thread");
        let _accepted = listener.accept().expect("it connects");
        let is_greeted = || {
            let outbox = peer.lock();
            let connection = outbox.connection.as_ref();
            connection.is_some_and(|connection| connection.is_greeted)
        };
        await_that("the greeting is sent", is_greeted);
        assert!(!peer.is_connected());
        peer.on_ping(ping());
        assert!(peer.is_connected());
        peer.close();
        thread.join().expect("it ends");
    }

    #[test]
    fn a_peer_that_closes_each_connection_is_tried_ever_less_often_until_it_pings() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        let peer = Arc::new(Peer::new(2, vec![address]));
        let thread = peer.start(Security::Plain, HELLO).expect("a thread");
        // Pauses of 200, 400 and 800 ms at least.
        let since = Instant::now();
        for _ in 0..4 {
            drop(listener.accept().expect("it connects"));
        }
        assert!(since.elapsed() >= RETRY_PAUSE * 14);
        await_that("the connection ends", || peer.lock().connection.is_none());
        let since = Instant::now();
        peer.on_ping(ping());
        drop(listener.accept().expect("it connects"));
        // The next pause is 1,600 ms.
        assert!(since.elapsed() < RETRY_PAUSE * 15);
        peer.close();
        thread.join().expect("it ends");
    }

    #[test]
    fn a_handshake_that_is_not_answered_ends_in_time_and_when_the_peer_is_closed() {
        let peer = Peer::new(2, Vec::new());
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        let is_shut_down = |stream: &TcpStream| (&*stream).write(&[0]).is_err();
        let connect = || {
            let stream = TcpStream::connect(address).expect("connected");
            assert!(peer.begin(stream.try_clone().expect("cloned")));
            stream
        };
        let stream = connect();
        peer.handle_tick();
        assert!(!is_shut_down(&stream));
        let mut outbox = peer.lock();
        let connection = outbox.connection.as_mut().expect("begun");
        connection.since -= GREETING_TIMEOUT;
        drop(outbox);
        peer.handle_tick();
        assert!(is_shut_down(&stream));
        let stream = connect();
        peer.close();
        assert!(is_shut_down(&stream));
        assert!(!peer.begin(stream), "it is over");
    }
}
