//! The thread that registers NFS portals with the portmapper (rpcbind) of this machine, so that
//! clients find them without naming ports. rpcbind may be absent, start later, or restart and
//! forget everything: the thread asks again.

use std::collections::HashSet;
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use ::nfs::{Change, IpProtocol, Registration};

/// The way to the thread. Without a socket in the settings there is none, and nothing is
/// registered.
pub(super) struct Portmapper(Option<Arc<Wish>>);

/// What the thread is to do.
#[derive(Default)]
struct Wish {
    state: Mutex<Wanted>,
    changed: Condvar,
}

#[derive(Default)]
struct Wanted {
    registrations: Vec<Registration>,
    /// The thread has not seen the registrations yet.
    is_new: bool,
    /// Everything is to be removed, and the thread to end.
    is_stopping: bool,
    has_ended: bool,
}

/// How often everything is registered again, in case rpcbind has restarted.
const INTERVAL: Duration = Duration::from_secs(30);
/// How long rpcbind may take for a reply.
const REPLY_WITHIN: Duration = Duration::from_secs(1);
/// How often it is asked to remove the registrations at the end.
const TRIES_AT_END: u32 = 3;
/// The port of NFS, which is registered if several portals are open.
const NFS_PORT: u16 = 2049;

impl Portmapper {
    /// Starts the thread. `socket` is rpcbind's.
    pub(super) fn start(socket: Option<PathBuf>) -> io::Result<Self> {
        let Some(socket) = socket else {
            return Ok(Self(None));
        };
        let wish = Arc::<Wish>::default();
        let of_thread = Arc::clone(&wish);
        thread::Builder::new()
            .name("portmapper".to_owned())
            .spawn(move || serve(&of_thread, &socket))?;
        Ok(Self(Some(wish)))
    }

    /// Registers these portals from now on, and no others. Does not wait.
    pub(super) fn register(&self, portals: impl Iterator<Item = (IpProtocol, SocketAddr)>) {
        let Some(wish) = &self.0 else {
            return;
        };
        let registrations = registrations(&portals.collect::<Vec<_>>());
        let mut wanted = wish.lock();
        if wanted.registrations != registrations {
            wanted.registrations = registrations;
            wanted.is_new = true;
            wish.changed.notify_all();
        }
    }

    /// Removes what is registered, and ends the thread. Waits for that at most `timeout`.
    pub(super) fn stop(&self, timeout: Duration) {
        let Some(wish) = &self.0 else {
            return;
        };
        let mut wanted = wish.lock();
        wanted.is_stopping = true;
        wish.changed.notify_all();
        // A poisoned lock means that the thread has ended.
        let waited = wish
            .changed
            .wait_timeout_while(wanted, timeout, |wanted| !wanted.has_ended);
        drop(waited);
    }
}

impl Drop for Portmapper {
    fn drop(&mut self) {
        self.stop(Duration::ZERO);
    }
}

impl Wish {
    fn lock(&self) -> MutexGuard<'_, Wanted> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until something else is wanted, or for [`INTERVAL`] if anything is. Returns what is
    /// wanted, and whether the thread goes on.
    fn wait(&self) -> (Vec<Registration>, bool) {
        let mut wanted = self.lock();
        while !wanted.is_new && !wanted.is_stopping {
            if wanted.registrations.is_empty() {
                wanted = self
                    .changed
                    .wait(wanted)
                    .unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let waited = self.changed.wait_timeout(wanted, INTERVAL);
            let (guard, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            wanted = guard;
            if timeout.timed_out() {
                break;
            }
        }
        wanted.is_new = false;
        if wanted.is_stopping {
            return (Vec::new(), false);
        }
        (wanted.registrations.clone(), true)
    }
}

/// What is registered of portals: one per version of IP, since rpcbind has one address per program,
/// version and transport. Portals on loopback are left out: other machines cannot reach them.
fn registrations(portals: &[(IpProtocol, SocketAddr)]) -> Vec<Registration> {
    let of = |protocol| registrations_over(protocol, portals);
    [of(IpProtocol::Tcp), of(IpProtocol::Udp)].concat()
}

fn registrations_over(
    protocol: IpProtocol,
    portals: &[(IpProtocol, SocketAddr)],
) -> Vec<Registration> {
    let outside = portals.iter().filter_map(|&(over, portal)| {
        (over == protocol && !portal.ip().is_loopback()).then_some(portal)
    });
    // A TCP socket of all addresses of IPv6 serves those of IPv4, too.
    let both = outside.flat_map(|portal| {
        let is_dual =
            protocol == IpProtocol::Tcp && portal.is_ipv6() && portal.ip().is_unspecified();
        let as_v4 = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), portal.port());
        [Some((false, portal)), is_dual.then_some((true, as_v4))]
    });
    let all: Vec<_> = both.flatten().collect();
    let best = |is_v6: bool| {
        let of_family = all.iter().filter(|(_, portal)| portal.is_ipv6() == is_v6);
        of_family
            .min_by_key(|(is_derived, portal)| (portal.port() != NFS_PORT, *is_derived, *portal))
    };
    let chosen = [best(false), best(true)].into_iter().flatten();
    chosen
        .flat_map(|&(_, portal)| Registration::of_portal(protocol, portal))
        .collect()
}

fn serve(wish: &Wish, socket: &Path) {
    let mut known = Known::default();
    loop {
        let (wanted, goes_on) = wish.wait();
        known.reconcile(&wanted, socket);
        if !goes_on {
            // There is no other time to remove what a busy rpcbind did not.
            for _ in 1..TRIES_AT_END {
                known.reconcile(&wanted, socket);
            }
            wish.lock().has_ended = true;
            wish.changed.notify_all();
            return;
        }
    }
}

/// What rpcbind has replied.
#[derive(Default)]
struct Known {
    registered: HashSet<Registration>,
    /// Refused, and logged.
    refused: HashSet<Registration>,
    is_unreachable: bool,
    xid: u32,
}

impl Known {
    fn reconcile(&mut self, wanted: &[Registration], socket: &Path) {
        if wanted.is_empty() && self.registered.is_empty() {
            return;
        }
        let result = self.try_reconcile(wanted, socket);
        match result {
            Err(error) if !self.is_unreachable => {
                tracing::info!(
                    socket = %socket.display(), %error,
                    "no portmapper answers: clients of NFS version 3 have to name port and mountport, and use nolock"
                );
                self.is_unreachable = true;
            }
            Err(_) => {}
            Ok(()) => self.is_unreachable = false,
        }
    }

    fn try_reconcile(&mut self, wanted: &[Registration], socket: &Path) -> io::Result<()> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(REPLY_WITHIN))?;
        stream.set_write_timeout(Some(REPLY_WITHIN))?;
        self.refused.retain(|refused| wanted.contains(refused));
        let gone: Vec<_> = (self.registered.iter())
            .filter(|registered| !wanted.contains(registered))
            .copied()
            .collect();
        for registration in gone {
            self.call(&mut stream, registration, Change::Unset)?;
            self.registered.remove(&registration);
        }
        for &registration in wanted {
            if self.call(&mut stream, registration, Change::Set)? {
                self.refused.remove(&registration);
                self.registered.insert(registration);
            } else if self.refused.insert(registration) {
                self.registered.remove(&registration);
                tracing::warn!(
                    %registration,
                    "the portmapper refuses a registration, likely since another server has it: stop that, or name port and \
                     mountport when mounting"
                );
            }
        }
        Ok(())
    }

    fn call(
        &mut self,
        stream: &mut UnixStream,
        registration: Registration,
        change: Change,
    ) -> io::Result<bool> {
        self.xid = self.xid.wrapping_add(1);
        stream.write_all(&registration.call(self.xid, change))?;
        let mut header = [0; 4];
        stream.read_exact(&mut header)?;
        let len = (u32::from_be_bytes(header) & !(1 << 31)) as usize;
        let mut reply = [0; Registration::REPLY_BYTES_MAX];
        let invalid = || io::Error::new(io::ErrorKind::InvalidData, "the reply is invalid");
        let reply = reply.get_mut(..4 + len).ok_or_else(invalid)?;
        reply[..4].copy_from_slice(&header);
        stream.read_exact(&mut reply[4..])?;
        Registration::read_reply(self.xid, reply).ok_or_else(invalid)
    }
}

#[cfg(test)]
mod tests;
