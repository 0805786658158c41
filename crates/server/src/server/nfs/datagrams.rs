//! NFS over UDP: a thread for each portal, with its socket.
//!
//! ```text
//!            ┌───────────────────────────────────────────────────────────────────┐
//!            ▼                                                                   │
//!  mailbox ─► socket ─► queue of each client ─► one datagram of each client ─► sleep
//!               └─► strangers: a short reply, or none
//! ```
//!
//! The socket is emptied before calls are executed, and what a client has sent beyond its queue is
//! dropped, so a client that sends faster than its calls are executed takes nothing from the
//! others. An address that may use no share gets no session ([`answer_stranger`]).

mod worker;

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use block::Completion;
use net::parts::{Mailbox, ThreadClock};
use net::{
    ConnectionId, ExternalDriver, GracePeriod, Membership, ThreadUsage, TooLong, UdpOptions,
    UdpSocket,
};
use nvme::controller::PortalNumber;

use super::NfsPortal;
use worker::Worker;

/// The threads, by the portals that they serve.
#[derive(Default)]
pub(in crate::server) struct Datagrams(Mutex<BTreeMap<PortalNumber, Serving>>);

struct Serving {
    mailbox: Arc<Common>,
    thread: JoinHandle<()>,
    name: String,
    clock: ThreadClock,
    membership: Membership,
}

/// What others ask of a thread.
struct Common(Mailbox<Message>);

enum Message {
    /// Forget this client.
    Close(ConnectionId),
    /// End. Clients send again what was not answered.
    Stop,
}

impl Datagrams {
    /// Serves a portal from now on. Returns its real address.
    pub(in crate::server) fn listen(
        &self,
        address: SocketAddr,
        portal: NfsPortal,
    ) -> io::Result<SocketAddr> {
        let options = UdpOptions {
            too_long: TooLong::Fragment,
            ..UdpOptions::default()
        };
        let socket = UdpSocket::bind(address, &options)?;
        let (address, port) = (socket.local_addr(), portal.id.port);
        let core = Arc::clone(&portal.core);
        let mailbox = Arc::new(Common(Mailbox::new()?));
        let driver: Arc<dyn ExternalDriver> = Arc::clone(&mailbox) as _;
        let none_left = || io::Error::other("there are too many threads for connections");
        let membership = core.handle.join(driver).ok_or_else(none_left)?;
        core.threads.start(membership.index());
        let index = membership.index();
        let of_thread = Arc::clone(&mailbox);
        let name = format!("nfs-udp-{}", address.port());
        let (ready, is_ready) = sync_channel(1);
        let thread = thread::Builder::new().name(name.clone()).spawn(move || {
            let clock = ThreadClock::of_current();
            let has_clock = clock.is_ok();
            // The starter waits for this, and has no portal without a clock.
            let _ = ready.send(clock);
            if has_clock {
                Worker::new(index, portal, socket, of_thread).run();
            }
        })?;
        let gone = |_| Err(io::ErrorKind::BrokenPipe.into());
        let clock = is_ready.recv().unwrap_or_else(gone)?;
        let serving = Serving {
            mailbox,
            thread,
            name,
            clock,
            membership,
        };
        self.lock().insert(port, serving);
        Ok(address)
    }

    /// Serves a portal no more.
    pub(in crate::server) fn unlisten(&self, portal: PortalNumber) {
        let served = self.lock().remove(&portal);
        if let Some(serving) = served {
            serving.stop();
        }
    }

    /// Serves nothing any more. Not for threads that drive connections.
    pub(in crate::server) fn stop(&self) {
        let served = std::mem::take(&mut *self.lock());
        served.into_values().for_each(Serving::stop);
    }

    /// The threads with the CPU time that they have used.
    pub(in crate::server) fn usage(&self) -> Vec<ThreadUsage> {
        let served = self.lock();
        let usage = served.values().filter_map(|serving| {
            Some(ThreadUsage {
                index: serving.membership.index(),
                name: serving.name.clone(),
                cpu_time: serving.clock.cpu_time()?,
            })
        });
        usage.collect()
    }

    /// The map is whole between any two statements, so a poisoned lock is used.
    fn lock(&self) -> MutexGuard<'_, BTreeMap<PortalNumber, Serving>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Datagrams {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Serving {
    fn stop(self) {
        self.mailbox.0.post(Message::Stop);
        if self.thread.join().is_err() {
            tracing::error!("a thread for NFS over UDP had panicked");
        }
    }
}

impl ExternalDriver for Common {
    fn wake(&self, connection: ConnectionId) {
        self.0.post_wake(connection);
    }

    fn complete(&self, completions: &[Completion]) {
        self.0.post_completions(completions);
    }

    fn close(&self, connection: ConnectionId) {
        self.0.post(Message::Close(connection));
    }

    fn post_checkpoint(&self, period: GracePeriod) {
        self.0.post_checkpoint(period);
    }
}
