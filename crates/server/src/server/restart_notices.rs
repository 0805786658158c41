//! Notifies clients of NLM that the server has restarted, so that they reclaim their locks
//! (SM_NOTIFY). Each call takes a bounded time, and up to [`THREADS_MAX`] threads make them. A
//! client that does not answer is called again in the next round, up to [`ROUNDS_MAX`] times.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use ::nfs::RestartNotice;

use super::client_calls::{ClientProgram, PORTMAPPER_PORT, XID, exchange, invalid, port_of};
use crate::nfs::NfsClients;

/// How long a round waits for the next one.
const RETRY_AFTER: Duration = Duration::from_secs(10);
/// How often a client is called: for 15 minutes, as Linux's sm-notify does. After the grace period
/// the client's locks are lost; the notification then lets the client find that out.
const ROUNDS_MAX: u32 = 90;
/// The threads that call clients, so that those that do not answer delay the others by little of
/// the grace period.
const THREADS_MAX: usize = 16;
/// How long one address with several names is called in a round.
const ADDRESS_WITHIN: Duration = Duration::from_secs(10);
const THREAD_NAME: &str = "restart-notices";

/// Sends notices in threads of their own, which end when all were sent or the clients' state is
/// stopped.
pub(super) fn send(notices: Vec<RestartNotice>, clients: Arc<NfsClients>) {
    let started = thread::Builder::new()
        .name(THREAD_NAME.to_owned())
        .spawn(move || serve(notices, &clients, (PORTMAPPER_PORT, RETRY_AFTER)));
    if let Err(error) = started {
        tracing::error!(%error, "could not notify clients of NFS version 3 of the restart: they lose their locks");
    }
}

fn serve(notices: Vec<RestartNotice>, clients: &NfsClients, (port, retry): (u16, Duration)) {
    let mut left = notices;
    for number in 1..=ROUNDS_MAX {
        let round = Round {
            number,
            portmapper_port: port,
            clients,
            waiting: Mutex::new(by_address(left)),
            failed: Mutex::default(),
        };
        left = round.run();
        if left.is_empty() || !clients.pause(retry) {
            return;
        }
    }
    for notice in left {
        let client = notice.client();
        tracing::warn!(%client, "a client with locks of NFS version 3 did not answer the notification of the restart: its locks are lost");
    }
}

fn by_address(notices: Vec<RestartNotice>) -> BTreeMap<IpAddr, Vec<RestartNotice>> {
    let mut sorted = BTreeMap::<_, Vec<_>>::new();
    for notice in notices {
        sorted.entry(notice.client()).or_default().push(notice);
    }
    sorted
}

/// A call to each client.
struct Round<'a> {
    number: u32,
    portmapper_port: u16,
    clients: &'a NfsClients,
    /// The notices to addresses that no thread has begun with.
    waiting: Mutex<BTreeMap<IpAddr, Vec<RestartNotice>>>,
    /// Notices that were not sent.
    failed: Mutex<Vec<RestartNotice>>,
}

impl Round<'_> {
    /// Sends the notices. Returns those that were not sent.
    fn run(self) -> Vec<RestartNotice> {
        let others = THREADS_MAX.min(lock(&self.waiting).len()).saturating_sub(1);
        thread::scope(|scope| {
            for _ in 0..others {
                let builder = thread::Builder::new().name(THREAD_NAME.to_owned());
                // Without another thread, this one makes the calls.
                let _ = builder.spawn_scoped(scope, || self.call_addresses());
            }
            self.call_addresses();
        });
        let failed = self.failed.into_inner();
        failed.unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls addresses until none waits, or the clients' state is stopped.
    fn call_addresses(&self) {
        while self.clients.pause(Duration::ZERO)
            && let Some(notices) = self.next_address()
        {
            let failed = self.call_address(notices);
            lock(&self.failed).extend(failed);
        }
    }

    fn next_address(&self) -> Option<Vec<RestartNotice>> {
        let (_, notices) = lock(&self.waiting).pop_first()?;
        Some(notices)
    }

    /// Sends the notices to one address, until a call fails. Returns those that were not sent.
    fn call_address(&self, mut notices: Vec<RestartNotice>) -> Vec<RestartNotice> {
        let until = Instant::now() + ADDRESS_WITHIN;
        while let Some(notice) = notices.last() {
            let client = notice.client();
            if let Err(error) = notify(notice, self.portmapper_port) {
                let round = self.number;
                tracing::debug!(%client, round, %error, "could not notify a client of the restart");
                break;
            }
            tracing::debug!(%client, "notified a client of the restart");
            notices.pop();
            if Instant::now() >= until {
                break;
            }
        }
        notices
    }
}

fn notify(notice: &RestartNotice, portmapper_port: u16) -> io::Result<()> {
    let (client, local) = (notice.client(), notice.local());
    let portmapper = SocketAddr::new(client, portmapper_port);
    let monitor = port_of(ClientProgram::StatusMonitor, portmapper, local)?;
    let reply = exchange(monitor, local, &notice.call(XID))?;
    if RestartNotice::is_accepted(XID, &reply) {
        Ok(())
    } else {
        Err(invalid(
            "its status monitor sent no valid reply to SM_NOTIFY",
        ))
    }
}

/// Values are complete between any two statements, so a poisoned lock is used.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{Ipv4Addr, TcpListener};
    use std::sync::mpsc::{Receiver, channel};

    use ::nfs::LockHost;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    /// A client's portmapper and status monitor at one port. The first `failures` connections are
    /// closed. Sends what the monitor was called with.
    fn client(address: Ipv4Addr, failures: usize) -> (u16, Receiver<Vec<u8>>) {
        let listener = TcpListener::bind((address, 0)).expect("a free port");
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
        notice_to(Ipv4Addr::LOCALHOST)
    }

    fn notice_to(address: Ipv4Addr) -> RestartNotice {
        let host = LockHost {
            address: address.into(),
            local: Ipv4Addr::LOCALHOST.into(),
            name: b"client"[..].into(),
        };
        RestartNotice::new(host, 7)
    }

    #[test]
    fn a_client_is_accepted_at_the_port_of_its_monitor_and_again_if_it_does_not_answer() {
        let clients = NfsClients::new(1, Box::new(|_| ()));
        let (port, called) = client(Ipv4Addr::LOCALHOST, 2);
        serve(vec![notice()], &clients, (port, Duration::from_millis(1)));
        let call = called.recv_timeout(PATIENCE).expect("a call");
        // Program, version and procedure; the name and the state.
        assert_eq!(call[12..24], [0, 1, 0x86, 0xb8, 0, 0, 0, 1, 0, 0, 0, 6]);
        assert_eq!(call[40..], *b"\0\0\0\x09127.0.0.1\0\0\0\0\0\0\x07");
        assert!(called.try_recv().is_err(), "once");
    }

    #[test]
    fn the_end_of_the_program_ends_the_calls() {
        let clients = Arc::new(NfsClients::new(1, Box::new(|_| ())));
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

    /// Each call to a client that does not answer takes a second: [`SILENT`] addresses one after
    /// the other, or as many names of one address, take longer than the test waits.
    #[test]
    fn clients_that_do_not_answer_delay_the_others_little() {
        const SILENT: u8 = 24;
        let clients = Arc::new(NfsClients::new(1, Box::new(|_| ())));
        // The last of all, in the order of addresses and in that of notices.
        let last = Ipv4Addr::new(127, 0, 2, 1);
        let (port, called) = client(last, 0);
        let address = |number| Ipv4Addr::new(127, 0, 1, number);
        let listen = |number| TcpListener::bind((address(number), port)).expect("a free port");
        let silent: Vec<_> = (1..=SILENT).map(listen).collect();
        let mut notices: Vec<_> = (1..=SILENT).map(|_| notice_to(address(1))).collect();
        notices.extend((2..=SILENT).map(|number| notice_to(address(number))));
        notices.push(notice_to(last));
        let of_thread = Arc::clone(&clients);
        let thread = thread::spawn(move || serve(notices, &of_thread, (port, PATIENCE)));
        called.recv_timeout(PATIENCE).expect("a call");
        clients.stop();
        thread.join().expect("it ends");
        drop(silent);
    }
}
