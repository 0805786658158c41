//! Notifies clients of NLM that the server has restarted, so that they reclaim their locks
//! (SM_NOTIFY). Clients are called one after the other. Each call takes a bounded time, and a
//! client that does not answer is called again, up to [`ROUNDS_MAX`] times.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use ::nfs::{Registration, RestartNotice};

use super::client_calls::{PORTMAPPER_PORT, exchange};
use crate::nfs::NfsClients;

/// How long a round waits for the next one.
const RETRY_AFTER: Duration = Duration::from_secs(10);
/// How often a client is called: for 15 minutes, as Linux's sm-notify does. After the grace period
/// the client's locks are lost; the notification then lets the client find that out.
const ROUNDS_MAX: u32 = 90;

/// Sends notices in a thread of their own, which ends when all were sent or the clients' state is
/// stopped.
pub(super) fn send(notices: Vec<RestartNotice>, clients: Arc<NfsClients>) {
    let started = thread::Builder::new()
        .name("restart-notices".to_owned())
        .spawn(move || serve(notices, &clients, (PORTMAPPER_PORT, RETRY_AFTER)));
    if let Err(error) = started {
        tracing::error!(%error, "could not notify clients of NFS version 3 of the restart: they lose their locks");
    }
}

fn serve(notices: Vec<RestartNotice>, clients: &NfsClients, (port, retry): (u16, Duration)) {
    let mut left = VecDeque::from(notices);
    for round in 1..=ROUNDS_MAX {
        for _ in 0..left.len() {
            if !clients.pause(Duration::ZERO) {
                return;
            }
            let Some(notice) = left.pop_front() else {
                return;
            };
            let client = notice.client();
            match notify(&notice, port) {
                Ok(()) => tracing::debug!(%client, "notified a client of the restart"),
                Err(error) => {
                    tracing::debug!(%client, round, %error, "could not notify a client of the restart");
                    left.push_back(notice);
                }
            }
        }
        if left.is_empty() || !clients.pause(retry) {
            return;
        }
    }
    for notice in left {
        let client = notice.client();
        tracing::warn!(%client, "a client with locks of NFS version 3 did not answer the notification of the restart: its locks are lost");
    }
}

fn notify(notice: &RestartNotice, portmapper_port: u16) -> io::Result<()> {
    /// There is one call on each connection.
    const XID: u32 = 1;
    let invalid = |what| io::Error::new(io::ErrorKind::InvalidData, what);
    let (client, local) = (notice.client(), notice.local());
    let portmapper = SocketAddr::new(client, portmapper_port);
    let reply = exchange(portmapper, local, &Registration::ask_for_status(XID))?;
    let port = Registration::read_port(XID, &reply)
        .ok_or_else(|| invalid("its portmapper knows no status monitor"))?;
    let monitor = SocketAddr::new(client, port.get());
    let reply = exchange(monitor, local, &notice.call(XID))?;
    if RestartNotice::is_accepted(XID, &reply) {
        Ok(())
    } else {
        Err(invalid("its status monitor replies with something else"))
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{IpAddr, Ipv4Addr, TcpListener};
    use std::sync::mpsc::{Receiver, channel};
    use std::time::Instant;

    use ::nfs::LockHost;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    /// A client's portmapper and status monitor at one port. The first `failures` connections are
    /// closed. Sends what the monitor was called with.
    fn client(failures: usize) -> (u16, Receiver<Vec<u8>>) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let (sender, receiver) = channel();
        thread::spawn(move || {
            for stream in listener.incoming().skip(failures) {
                let mut stream = stream.expect("a connection");
                let mut header = [0; 4];
                stream.read_exact(&mut header).expect("a header");
                let mut call = vec![0; (u32::from_be_bytes(header) & !(1 << 31)) as usize];
                stream.read_exact(&mut call).expect("a call");
                let is_portmapper = call[15] == 0xa0;
                let results = if is_portmapper {
                    u32::from(port).to_be_bytes().to_vec()
                } else {
                    Vec::new()
                };
                let mark = ((24 + results.len()) as u32 | 1 << 31).to_be_bytes();
                let head = [&mark[..], &call[..4], &[0, 0, 0, 1], &[0; 16]].concat();
                stream.write_all(&[head, results].concat()).expect("sent");
                if !is_portmapper && sender.send(call).is_err() {
                    return;
                }
            }
        });
        (port, receiver)
    }

    fn notice() -> RestartNotice {
        let here = IpAddr::from(Ipv4Addr::LOCALHOST);
        let host = LockHost {
            address: here,
            local: here,
            name: b"client"[..].into(),
        };
        RestartNotice::new(host, 7)
    }

    #[test]
    fn a_client_is_accepted_at_the_port_of_its_monitor_and_again_if_it_does_not_answer() {
        let clients = NfsClients::new(1);
        let (port, called) = client(2);
        serve(vec![notice()], &clients, (port, Duration::from_millis(1)));
        let call = called.recv_timeout(PATIENCE).expect("a call");
        // Program, version and procedure; the name and the state.
        assert_eq!(call[12..24], [0, 1, 0x86, 0xb8, 0, 0, 0, 1, 0, 0, 0, 6]);
        assert_eq!(call[40..], *b"\0\0\0\x09127.0.0.1\0\0\0\0\0\0\x07");
        assert!(called.try_recv().is_err(), "once");
    }

    #[test]
    fn the_end_of_the_program_ends_the_calls() {
        let clients = Arc::new(NfsClients::new(1));
        let of_thread = Arc::clone(&clients);
        // Nothing listens there.
        let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let port = silent.local_addr().expect("an address").port();
        drop(silent);
        let thread = thread::spawn(move || serve(vec![notice()], &of_thread, (port, PATIENCE)));
        thread::sleep(Duration::from_millis(50));
        let begin = Instant::now();
        clients.stop();
        thread.join().expect("it ends");
        assert!(begin.elapsed() < PATIENCE / 2);
    }
}
