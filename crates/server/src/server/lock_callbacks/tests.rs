use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};

use super::super::client_calls::CALL_WITHIN;
use super::*;

const PATIENCE: Duration = Duration::from_secs(20);

/// A client's portmapper, whose port is returned, and its lock manager, which answers each callback
/// with a status. Sends what the lock manager was called with.
fn client(status: u8) -> (u16, Receiver<Vec<u8>>) {
    let portmapper = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let manager = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let port = portmapper.local_addr().expect("an address").port();
    let manager_port = manager.local_addr().expect("an address").port();
    thread::spawn(move || {
        for stream in portmapper.incoming() {
            let results = u32::from(manager_port).to_be_bytes();
            answer(&mut stream.expect("a connection"), &results);
        }
    });
    let (sender, receiver) = channel();
    thread::spawn(move || {
        for stream in manager.incoming() {
            let results = [0, 0, 0, 1, b'c', 0, 0, 0, 0, 0, 0, status];
            let call = answer(&mut stream.expect("a connection"), &results);
            if sender.send(call).is_err() {
                return;
            }
        }
    });
    (port, receiver)
}

fn answer(stream: &mut TcpStream, results: &[u8]) -> Vec<u8> {
    let mut header = [0; 4];
    stream.read_exact(&mut header).expect("a header");
    let mut call = vec![0; (u32::from_be_bytes(header) & !(1 << 31)) as usize];
    stream.read_exact(&mut call).expect("a call");
    let mark = ((24 + results.len()) as u32 | 1 << 31).to_be_bytes();
    let reply = [&mark[..], &call[..4], &[0, 0, 0, 1], &[0; 16], results].concat();
    stream.write_all(&reply).expect("a reader");
    call
}

/// The state of clients with one that has got the lock it waits for.
fn clients() -> Arc<NfsClients> {
    let clients = Arc::new(NfsClients::new(1, Box::new(|_| ())));
    clients.with(&mut |clients| {
        ::nfs::testing::locks::grant(clients, Ipv4Addr::LOCALHOST.into());
    });
    clients
}

fn locks(clients: &NfsClients) -> usize {
    let mut locks = 0;
    clients.with(&mut |clients| locks = clients.count().locks);
    locks
}

/// Runs the thread until it is dropped.
struct Running(Arc<NfsClients>, Option<thread::JoinHandle<()>>);

impl Running {
    fn start(clients: &Arc<NfsClients>, port: u16) -> Self {
        let of_thread = Arc::clone(clients);
        let thread = thread::spawn(move || serve(&of_thread, port));
        Self(Arc::clone(clients), Some(thread))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.stop();
        let ended = self.1.take().map(thread::JoinHandle::join);
        assert!(matches!(ended, Some(Ok(()))), "the thread ends");
    }
}

#[test]
fn a_client_is_told_of_its_lock_at_the_port_that_its_portmapper_names() {
    for (status, left) in [(0, 1), (1, 0)] {
        let clients = clients();
        let (port, called) = client(status);
        let _running = Running::start(&clients, port);
        let call = called.recv_timeout(PATIENCE).expect("a callback");
        // Program, version and procedure.
        assert_eq!(call[12..24], [0, 1, 0x86, 0xb5, 0, 0, 0, 4, 0, 0, 0, 5]);
        let until = Instant::now() + PATIENCE;
        while locks(&clients) != left {
            assert!(Instant::now() < until, "status {status}");
            thread::sleep(Duration::from_millis(2));
        }
        assert_eq!(locks(&clients), left, "a lock that is refused is released");
    }
}

#[test]
fn a_client_that_does_not_answer_takes_bounded_time_and_keeps_the_lock_for_now() {
    let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let port = silent.local_addr().expect("an address").port();
    let clients = clients();
    let grants = clients.wait_for_grants(None).expect("it goes on");
    let begin = Instant::now();
    call(&grants[0], port).expect_err("nothing is accepted");
    assert!(begin.elapsed() < 3 * CALL_WITHIN);
    assert_eq!(locks(&clients), 1);
    // One that sends its reply byte by byte takes no longer.
    thread::spawn(move || {
        for stream in silent.incoming() {
            let mut stream = stream.expect("a connection");
            while stream.write_all(&[0x80]).is_ok() {
                thread::sleep(CALL_WITHIN / 3);
            }
        }
    });
    let begin = Instant::now();
    call(&grants[0], port).expect_err("no reply in time");
    assert!(begin.elapsed() < 3 * CALL_WITHIN);
}
