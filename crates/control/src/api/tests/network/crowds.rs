//! Many clients that prove nothing, and one that does.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

use tokio::net::TcpSocket;

use super::super::super::network::CONNECTIONS_MAX;
use super::*;

/// A client that proves nothing sends this much of a ClientHello: a record of 512 bytes is
/// announced.
const HALF_HELLO: [u8; 9] = [0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00, 0x01, 0xFC];
/// Connections of such clients.
const CROWD: usize = 1000;
/// How long one request of another client may take meanwhile.
const REQUEST_MAX: Duration = Duration::from_secs(5);
/// When all connections of the crowd must have ended: its handshakes may take 10 s.
const CROWD_MAX: Duration = Duration::from_secs(20);

/// Clients at 127.0.0.2.
struct UnprovenClients {
    daemon: SocketAddr,
    runtime: tokio::runtime::Runtime,
}

impl UnprovenClients {
    fn of(network: &Network) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build();
        Self {
            daemon: network.address.parse().expect("an address"),
            runtime: runtime.expect("a runtime"),
        }
    }

    /// Connects and sends `bytes`.
    fn connect(&self, bytes: &[u8]) -> TcpStream {
        let connect = async {
            let socket = TcpSocket::new_v4()?;
            socket.bind(SocketAddr::from(([127, 0, 0, 2], 0)))?;
            socket.connect(self.daemon).await?.into_std()
        };
        let mut stream = self.runtime.block_on(connect).expect("a connection");
        stream.set_nonblocking(false).expect("set");
        stream.set_write_timeout(Some(REQUEST_MAX)).expect("set");
        // The daemon may have closed it already.
        let _ = stream.write_all(bytes);
        stream
    }
}

/// Whether the daemon has closed it.
fn is_closed(mut stream: &TcpStream) -> bool {
    let limit = Some(Duration::from_millis(1));
    stream.set_read_timeout(limit).expect("set");
    match stream.read(&mut [0; 64]) {
        Ok(len) => len == 0,
        Err(error) => error.kind() != ErrorKind::WouldBlock,
    }
}

fn open_of(crowd: &[TcpStream]) -> usize {
    crowd.iter().filter(|stream| !is_closed(stream)).count()
}

/// A client with a token.
fn holder_of_a_token(network: &Network) -> Client {
    let daemon = Some(network.certificate.certificate.as_path());
    let tls = ClientTls::new(daemon, None, "localhost").expect("usable");
    let right = token(&network.daemon.folder, "a-secret-of-some-length");
    network.client(right, Some(tls))
}

#[test]
fn a_thousand_half_open_handshakes_are_bounded_and_leave_room_for_others() {
    let network = Network::start(Encryption::Tls);
    let client = holder_of_a_token(&network);
    let ask = || {
        let begin = Instant::now();
        client.get::<Value>("/v1/status").expect("an answer");
        assert!(begin.elapsed() < REQUEST_MAX, "{:?}", begin.elapsed());
    };
    let strangers = UnprovenClients::of(&network);
    let begin = Instant::now();
    let mut crowd = Vec::new();
    for at in 0..CROWD {
        let bytes = if at % 2 == 0 { &HALF_HELLO[..] } else { &[] };
        crowd.push(strangers.connect(bytes));
        if at % 50 == 49 {
            ask();
        }
    }
    let open = open_of(&crowd);
    assert!((1..=CONNECTIONS_MAX).contains(&open), "{open} are open");
    while open_of(&crowd) > 0 {
        ask();
        assert!(begin.elapsed() < CROWD_MAX, "half-open handshakes stay");
    }
}

#[test]
fn what_is_no_handshake_ends_its_own_connection_alone() {
    let network = Network::start(Encryption::Tls);
    let strangers = UnprovenClients::of(&network);
    let mut long = vec![0x16, 0x03, 0x01, 0xFF, 0xFF];
    long.resize(1 << 17, 0);
    for bytes in [
        b"GET /v1/status HTTP/1.1\r\nHost: a\r\n\r\n".as_slice(),
        // Application data before a handshake.
        &[0x17, 0x03, 0x03, 0x00, 0x01, 0x00],
        &long,
        &[0xFF; 4096],
    ] {
        let mut stream = strangers.connect(bytes);
        stream.set_read_timeout(Some(REQUEST_MAX)).expect("set");
        let mut answer = Vec::new();
        if let Err(error) = stream.read_to_end(&mut answer) {
            assert_ne!(error.kind(), ErrorKind::WouldBlock, "the connection stays");
        }
        // At most an alert, and no HTTP.
        assert!(answer.len() <= 64, "{answer:?}");
        assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
    }
    let client = holder_of_a_token(&network);
    assert!(client.get::<Value>("/v1/status").is_ok());
}
