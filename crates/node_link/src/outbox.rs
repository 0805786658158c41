//! Frames to one other node, and the thread that sends them.

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
/// The pause after a connection was lost or could not be made.
const RETRY_PAUSE: Duration = Duration::from_millis(100);
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
    /// What is shut down to end the connection; frames are only kept while there is one.
    connection: Option<TcpStream>,
    is_over: bool,
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
        self.lock().addresses = addresses;
    }

    /// Adds a frame, if the node is connected and not too far behind.
    pub fn send(&self, packet: &Packet) {
        let mut outbox = self.lock();
        if outbox.connection.is_none() || outbox.bytes.len() >= OUTBOX_BYTES_MAX {
            return;
        }
        let is_first = outbox.bytes.is_empty();
        packet.encode(&mut outbox.bytes);
        drop(outbox);
        if is_first {
            self.has_work.notify_one();
        }
    }

    pub fn is_connected(&self) -> bool {
        self.lock().connection.is_some()
    }

    /// The peer's clock, which may have gone on since.
    pub fn heard_clock(&self) -> Option<LocalTime> {
        let ns = self.heard_clock.load(Ordering::Relaxed);
        (ns > 0).then(|| LocalTime(Duration::from_nanos(ns)))
    }

    pub fn on_ping(&self, ping: Ping) {
        let ns = u64::try_from(ping.sent_at.0.as_nanos()).unwrap_or(u64::MAX);
        self.heard_clock.store(ns, Ordering::Relaxed);
    }

    /// Ends the connection and the thread.
    pub fn close(&self) {
        let mut outbox = self.lock();
        outbox.is_over = true;
        if let Some(connection) = &outbox.connection {
            // It fails if the peer was faster.
            let _ = connection.shutdown(Shutdown::Both);
        }
        self.has_work.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, Outbox> {
        self.outbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, security: &Security, hello: Hello) {
        let mut attempt = 0;
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
            self.lock().connection = None;
            if let Some(Err(error)) = ended {
                tracing::debug!(node = self.node, %error, "a connection to a node ended");
            }
            let outbox = self.lock();
            if !outbox.is_over {
                let waited = self.has_work.wait_timeout(outbox, RETRY_PAUSE);
                drop(waited.unwrap_or_else(PoisonError::into_inner));
            }
        }
    }

    /// Connects and sends until the connection fails or the peer is closed.
    fn converse(&self, address: SocketAddr, security: &Security, hello: Hello) -> io::Result<()> {
        let stream = TcpStream::connect_timeout(&address, CONNECT_TIMEOUT)?;
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(SEND_TIMEOUT))?;
        stream.set_read_timeout(Some(SEND_TIMEOUT))?;
        let control = stream.try_clone()?;
        let mut writer = security.connect(stream, self.node)?;
        let mut bytes = Vec::new();
        Packet::Hello(hello).encode(&mut bytes);
        writer.write_all(&bytes)?;
        {
            let mut outbox = self.lock();
            outbox.bytes.clear();
            outbox.connection = Some(control);
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
