//! A TCP proxy that cuts, stalls or slows what passes through it.

use std::{
    io::{Read as _, Write as _},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU8, Ordering},
    },
    thread,
    time::Duration,
};

/// How the proxy passes what the server sends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Pace {
    /// At once.
    Full,
    /// A few bytes now and then.
    Slow,
    /// Not at all.
    Stalled,
}

pub struct Proxy {
    pub address: SocketAddr,
    streams: Arc<Mutex<Vec<TcpStream>>>,
    pace: Arc<AtomicU8>,
}

impl Proxy {
    pub fn start(server: SocketAddr) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let proxy = Self {
            address: listener.local_addr().unwrap(),
            streams: Arc::default(),
            pace: Arc::new(AtomicU8::new(Pace::Full as u8)),
        };
        let (streams, pace) = (Arc::clone(&proxy.streams), Arc::clone(&proxy.pace));
        thread::spawn(move || {
            for client in listener.incoming() {
                let (Ok(client), Ok(server)) = (client, TcpStream::connect(server)) else {
                    return;
                };
                for stream in [&client, &server] {
                    stream.set_nodelay(true).unwrap();
                    streams.lock().unwrap().push(stream.try_clone().unwrap());
                }
                let full = Arc::new(AtomicU8::new(Pace::Full as u8));
                pass(
                    client.try_clone().unwrap(),
                    server.try_clone().unwrap(),
                    full,
                );
                pass(server, client, Arc::clone(&pace));
            }
        });
        proxy
    }

    /// Ends every connection that passes.
    pub fn cut(&self) {
        for stream in self.streams.lock().unwrap().drain(..) {
            // It fails only if the connection has ended already.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    pub fn set_pace(&self, pace: Pace) {
        self.pace.store(pace as u8, Ordering::Relaxed);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.set_pace(Pace::Full);
        self.cut();
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, pace: Arc<AtomicU8>) {
    thread::spawn(move || {
        let mut bytes = vec![0; 64 * 1024];
        loop {
            let len = match pace.load(Ordering::Relaxed) {
                slow if slow == Pace::Slow as u8 => {
                    thread::sleep(Duration::from_millis(1));
                    100
                }
                stalled if stalled == Pace::Stalled as u8 => {
                    thread::sleep(Duration::from_millis(5));
                    continue;
                }
                _ => bytes.len(),
            };
            match from.read(&mut bytes[..len]) {
                Ok(len @ 1..) if to.write_all(&bytes[..len]).is_ok() => {}
                _ => break,
            }
        }
        let _ = to.shutdown(Shutdown::Both);
        let _ = from.shutdown(Shutdown::Both);
    });
}
