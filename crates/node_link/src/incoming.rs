//! Connections from other nodes: the listener, and a thread for each connection.

use std::collections::BTreeMap;
use std::io::{self, BufReader, Read as _};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use block::{Stranger, network_of, oldest_of_the_greediest};
use replica::wire::{FrameHeader, FrameKind, Hello, Packet, WireError};

use crate::security::Security;

/// The most connections at a time: one of each other node, those that they replace, and strangers.
const CONNECTIONS_MAX: usize = 256;
/// The most of them whose peers have not proved to be nodes: a further one closes an older one.
const STRANGERS_MAX: usize = 16;
/// How long a peer may take to prove it.
const GREETING_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a peer may send nothing. It pings more often.
const RECEIVE_TIMEOUT: Duration = Duration::from_secs(2);
/// What is received with one call.
const BUFFER_BYTES: usize = 256 << 10;
/// The pause after a connection could not be accepted, for example for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What connections report to.
pub(crate) trait Receiver: Send + Sync + 'static {
    /// Whether the first frame of a connection is one for this node.
    fn admits(&self, hello: &Hello) -> bool;

    /// Takes a packet of `from`. Returns whether the connection goes on.
    fn handle(&self, from: u32, packet: Packet) -> bool;
}

/// The open connections, so that they can be closed.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    open: BTreeMap<u64, Connection>,
    last: u64,
    is_over: bool,
}

#[derive(Debug)]
struct Connection {
    /// What is shut down to end it.
    stream: TcpStream,
    /// `None`: its peer is a node.
    stranger: Option<Greeting>,
}

/// What is known of a peer before its greeting.
#[derive(Debug)]
struct Greeting {
    network: IpAddr,
    since: Instant,
    /// The connection is shut down, and its thread about to end.
    is_closing: bool,
}

/// Why a connection ends.
#[derive(Debug, thiserror::Error)]
enum Ended {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Wire(#[from] WireError),
    #[error("the first frame is no greeting")]
    NoHello,
    #[error(
        "node {from} of cluster {cluster:#x} wants node {to}, which is another one, or is unknown here"
    )]
    NotAdmitted { cluster: u64, from: u32, to: u32 },
    #[error("the certificate is not that of node {0}")]
    Name(u32),
}

impl Connections {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Accepts connections until all are closed.
    pub fn accept<R: Receiver>(
        self: &Arc<Self>,
        listener: &TcpListener,
        security: &Security,
        receiver: &Arc<R>,
    ) {
        loop {
            let accepted = listener.accept();
            if self.lock().is_over {
                return;
            }
            match accepted {
                Ok((stream, from)) => self.start(stream, from, security, receiver),
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection of a node");
                    thread::sleep(ACCEPT_PAUSE);
                }
            }
        }
    }

    /// Ends all connections; `listening` wakes the thread that accepts them.
    pub fn close(&self, listening: SocketAddr) {
        let mut state = self.lock();
        state.is_over = true;
        for connection in state.open.values() {
            connection.shut_down();
        }
        drop(state);
        // Nothing is sent: the connection itself is the wake-up.
        let _ = TcpStream::connect_timeout(&listening, RECEIVE_TIMEOUT);
    }

    /// Closes connections whose peers have not proved to be nodes in time.
    pub fn handle_tick(&self) {
        for connection in self.lock().open.values_mut() {
            let since = connection.stranger.as_ref().map(|stranger| stranger.since);
            if since.is_some_and(|since| since.elapsed() >= GREETING_TIMEOUT) {
                connection.close_stranger();
            }
        }
    }

    fn start<R: Receiver>(
        self: &Arc<Self>,
        stream: TcpStream,
        peer: SocketAddr,
        security: &Security,
        receiver: &Arc<R>,
    ) {
        let Some(id) = self.enter(&stream, peer) else {
            tracing::warn!(%peer, "closed a connection of a node, since there are too many");
            return;
        };
        let (connections, receiver) = (Arc::clone(self), Arc::clone(receiver));
        let security = security.clone();
        let thread = thread::Builder::new().name("from-node".to_owned());
        let started = thread.spawn(move || {
            let ended = serve(stream, &security, &*receiver, || connections.admit(id));
            connections.lock().open.remove(&id);
            match ended {
                Err(Ended::Io(error)) => {
                    tracing::debug!(%peer, %error, "a connection of a node ended");
                }
                Err(error) => tracing::warn!(%peer, %error, "closed a connection of a node"),
                Ok(()) => {}
            }
        });
        if let Err(error) = started {
            tracing::warn!(%error, "cannot start a thread for a connection of a node");
            self.lock().open.remove(&id);
        }
    }

    fn enter(&self, stream: &TcpStream, peer: SocketAddr) -> Option<u64> {
        let stream = stream.try_clone().ok()?;
        let mut state = self.lock();
        if state.is_over || state.open.len() >= CONNECTIONS_MAX {
            return None;
        }
        let strangers = || state.open.iter().filter_map(stranger);
        if strangers().count() >= STRANGERS_MAX
            && let Some(oldest) = oldest_of_the_greediest(strangers())
            && let Some(connection) = state.open.get_mut(&oldest)
        {
            connection.close_stranger();
        }
        state.last += 1;
        let id = state.last;
        let greeting = Greeting {
            network: network_of(peer.ip()),
            since: Instant::now(),
            is_closing: false,
        };
        let connection = Connection {
            stream,
            stranger: Some(greeting),
        };
        state.open.insert(id, connection);
        Some(id)
    }

    fn admit(&self, id: u64) {
        if let Some(connection) = self.lock().open.get_mut(&id) {
            connection.stranger = None;
        }
    }
}

impl Connection {
    fn shut_down(&self) {
        // It fails if the peer was faster.
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    fn close_stranger(&mut self) {
        if let Some(stranger) = &mut self.stranger {
            stranger.is_closing = true;
            self.shut_down();
        }
    }
}

/// The stranger of a connection that may have to make room.
fn stranger((number, connection): (&u64, &Connection)) -> Option<Stranger<u64>> {
    let greeting = connection.stranger.as_ref()?;
    let stranger = Stranger {
        number: *number,
        network: greeting.network,
        held: 1,
    };
    (!greeting.is_closing).then_some(stranger)
}

/// Receives until the connection ends. Calls `on_admitted` when the peer has proved to be a node.
fn serve<R: Receiver>(
    stream: TcpStream,
    security: &Security,
    receiver: &R,
    on_admitted: impl FnOnce(),
) -> Result<(), Ended> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(RECEIVE_TIMEOUT))?;
    stream.set_write_timeout(Some(RECEIVE_TIMEOUT))?;
    let mut reader = BufReader::with_capacity(BUFFER_BYTES, security.accept(stream)?);
    let mut body = Vec::new();
    let (kind, len) = next_header(&mut reader)?;
    let is_short = kind == FrameKind::Hello && len <= Hello::LEN_BYTES;
    if !is_short {
        return Err(Ended::NoHello);
    }
    let Packet::Hello(hello) = next_packet(&mut reader, kind, len, &mut body)? else {
        return Err(Ended::NoHello);
    };
    let Hello {
        cluster, from, to, ..
    } = hello;
    if !reader.get_ref().is_of(from) {
        return Err(Ended::Name(from));
    }
    if !receiver.admits(&hello) {
        return Err(Ended::NotAdmitted { cluster, from, to });
    }
    on_admitted();
    loop {
        let (kind, len) = next_header(&mut reader)?;
        let packet = next_packet(&mut reader, kind, len, &mut body)?;
        if !receiver.handle(from, packet) {
            return Ok(());
        }
    }
}

fn next_header(reader: &mut impl io::Read) -> Result<(FrameKind, usize), Ended> {
    let mut header = [0; FrameHeader::LEN_BYTES];
    reader.read_exact(&mut header)?;
    Ok(FrameHeader::decode(&header)?)
}

fn next_packet(
    reader: &mut impl io::Read,
    kind: FrameKind,
    len: usize,
    body: &mut Vec<u8>,
) -> Result<Packet, Ended> {
    body.clear();
    reader.take(len as u64).read_to_end(body)?;
    // A body that was cut short has a wrong length.
    Ok(Packet::decode(kind, body)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both ends of a connection.
    fn pair(listener: &TcpListener) -> (TcpStream, TcpStream, SocketAddr) {
        let address = listener.local_addr().expect("bound");
        let near = TcpStream::connect(address).expect("connected");
        let (far, peer) = listener.accept().expect("accepted");
        (near, far, peer)
    }

    fn is_open(stream: &TcpStream) -> bool {
        stream.set_nonblocking(true).expect("set");
        let read = (&*stream).read(&mut [0]);
        read.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }

    #[test]
    fn the_oldest_stranger_makes_room_and_no_node_does() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let connections = Connections::default();
        let enter = || {
            let (near, far, peer) = pair(&listener);
            let id = connections.enter(&far, peer);
            (near, id.expect("there is room"))
        };
        let (node, id) = enter();
        connections.admit(id);
        let strangers: Vec<_> = (0..STRANGERS_MAX + 3).map(|_| enter().0).collect();
        let are_open: Vec<bool> = strangers.iter().map(is_open).collect();
        assert_eq!(are_open[..3], [false; 3]);
        assert_eq!(are_open[3..], [true; STRANGERS_MAX]);
        assert!(is_open(&node));
    }

    #[test]
    fn a_stranger_that_takes_too_long_is_closed_and_no_node_is() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let connections = Connections::default();
        let mut streams = Vec::new();
        for is_node in [true, false] {
            let (near, far, peer) = pair(&listener);
            let id = connections.enter(&far, peer).expect("there is room");
            let mut state = connections.lock();
            let connection = state.open.get_mut(&id).expect("entered");
            let greeting = connection.stranger.as_mut().expect("a stranger");
            greeting.since -= GREETING_TIMEOUT;
            if is_node {
                connection.stranger = None;
            }
            streams.push(near);
        }
        connections.handle_tick();
        assert!(is_open(&streams[0]));
        assert!(!is_open(&streams[1]));
    }
}
