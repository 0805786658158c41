//! A wire between a host and the server that can be stalled, and that looks at what the server
//! sends.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// The wire. It passes connections until the listener's thread ends with the process.
pub struct Tap {
    pub address: SocketAddr,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    is_stalled: AtomicBool,
    has_seen: AtomicBool,
    passed_bytes: AtomicU64,
    open: AtomicU64,
}

impl Tap {
    /// The byte of which a row is looked for.
    pub const LOOKED_FOR: u8 = 0xBB;
    /// A row of this length is data, not a part of a header.
    const ROW: [u8; 64] = [Self::LOOKED_FOR; 64];

    pub fn start(server: SocketAddr) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let tap = Self {
            address: listener.local_addr().expect("bound"),
            state: Arc::default(),
        };
        let state = Arc::clone(&tap.state);
        thread::spawn(move || {
            for host in listener.incoming() {
                let (Ok(host), Ok(server)) = (host, TcpStream::connect(server)) else {
                    return;
                };
                let (host_reads, server_writes) = (clone(&host), clone(&server));
                thread::spawn(move || pass(host_reads, server_writes, |_| {}));
                let state = Arc::clone(&state);
                state.open.fetch_add(1, Ordering::Relaxed);
                thread::spawn(move || {
                    pass(server, host, |bytes| state.look(bytes));
                    state.open.fetch_sub(1, Ordering::Relaxed);
                });
            }
        });
        tap
    }

    /// From now on nothing that the server sends is read.
    pub fn stall(&self) {
        self.state.is_stalled.store(true, Ordering::Relaxed);
    }

    pub fn go_on(&self) {
        self.state.is_stalled.store(false, Ordering::Relaxed);
    }

    /// Whether the server has sent a row of [`Self::LOOKED_FOR`].
    pub fn has_seen(&self) -> bool {
        self.state.has_seen.load(Ordering::Relaxed)
    }

    pub fn passed_bytes(&self) -> u64 {
        self.state.passed_bytes.load(Ordering::Relaxed)
    }

    /// Whether the server has closed every connection.
    pub fn has_ended(&self) -> bool {
        self.state.open.load(Ordering::Relaxed) == 0
    }
}

impl State {
    fn look(&self, bytes: &[u8]) {
        self.passed_bytes
            .fetch_add(bytes.len() as u64, Ordering::Relaxed);
        if bytes.windows(Tap::ROW.len()).any(|row| row == Tap::ROW) {
            self.has_seen.store(true, Ordering::Relaxed);
        }
        while self.is_stalled.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(2));
        }
    }
}

fn clone(stream: &TcpStream) -> TcpStream {
    stream.try_clone().expect("a descriptor")
}

/// Passes bytes on until the sender ends; `look` sees them first. A receiver that is gone ends
/// nothing, so that the rest is seen.
fn pass(mut from: TcpStream, mut to: TcpStream, look: impl Fn(&[u8])) {
    let mut bytes = vec![0; 64 * 1024];
    while let Ok(len @ 1..) = from.read(&mut bytes) {
        look(&bytes[..len]);
        let _ = to.write_all(&bytes[..len]);
    }
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}
