//! The thread that tells clients of NLM about locks that they have waited for. It asks the client's
//! portmapper for the port of its lock manager, and calls that. Both take a bounded time, and a
//! client that does not answer is left alone for a while, so that it holds others up seldom.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use ::nfs::{Grant, Registration};

use super::client_calls::{PORTMAPPER_PORT, exchange};
use crate::nfs::NfsClients;

/// The way to the thread, which ends when this is dropped.
pub(super) struct LockCallbacks(Arc<NfsClients>);

/// A callback that is to be made.
struct Job {
    grant: Grant,
    due: Instant,
    tries: u32,
}

/// How long a client is left alone that has not answered. Linux asks for the lock again after 30 s,
/// and finds that it has it.
const RETRY_AFTER: Duration = Duration::from_secs(10);
/// How often a client is called. Then it has not asked for the lock for minutes, and the lock is
/// released.
const TRIES_MAX: u32 = 18;

impl LockCallbacks {
    /// Starts the thread.
    pub(super) fn start(clients: Arc<NfsClients>) -> io::Result<Self> {
        let of_thread = Arc::clone(&clients);
        thread::Builder::new()
            .name("lock-callbacks".to_owned())
            .spawn(move || serve(&of_thread, PORTMAPPER_PORT))?;
        Ok(Self(clients))
    }
}

impl Drop for LockCallbacks {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// Makes callbacks until it is stopped.
fn serve(clients: &NfsClients, portmapper_port: u16) {
    // No more than there are grants, which the clients' state bounds.
    let mut jobs = VecDeque::new();
    while let Some(grants) = clients.wait_for_grants(next_due(&jobs)) {
        let now = Instant::now();
        for grant in grants {
            let due = now.max(postponed(&jobs, &grant));
            let tries = 0;
            jobs.push_back(Job { grant, due, tries });
        }
        clients.retain_pending(&mut jobs, |job| &job.grant);
        let Some(at) = jobs.iter().position(|job| job.due <= now) else {
            continue;
        };
        let Some(mut job) = jobs.remove(at) else {
            continue;
        };
        // The client that held the lock before must not reclaim it after a restart.
        clients.settle_records();
        match call(&job.grant, portmapper_port) {
            Ok(is_accepted) => clients.end_grant(&job.grant, is_accepted),
            Err(error) => {
                let (client, tries) = (job.grant.client(), job.tries + 1);
                tracing::debug!(%client, tries, %error, "could not notify a client that its lock was granted");
                if tries == TRIES_MAX {
                    tracing::warn!(%client, "released a lock that a client has waited for: it does not answer");
                    clients.end_grant(&job.grant, false);
                    continue;
                }
                let due = Instant::now() + RETRY_AFTER;
                for other in &mut jobs {
                    if other.grant.client() == client {
                        other.due = due;
                    }
                }
                (job.due, job.tries) = (due, tries);
                jobs.push_back(job);
            }
        }
    }
}

fn next_due(jobs: &VecDeque<Job>) -> Option<Instant> {
    jobs.iter().map(|job| job.due).min()
}

/// Until when the client of a grant is left alone.
fn postponed(jobs: &VecDeque<Job>, grant: &Grant) -> Instant {
    let same = jobs
        .iter()
        .filter(|job| job.grant.client() == grant.client());
    let due = same.map(|job| job.due).max();
    due.unwrap_or_else(Instant::now)
}

/// Tells a client of a lock. Returns whether it accepts it.
fn call(grant: &Grant, portmapper_port: u16) -> io::Result<bool> {
    /// There is one call on each connection.
    const XID: u32 = 1;
    let invalid = |what| io::Error::new(io::ErrorKind::InvalidData, what);
    let portmapper = SocketAddr::new(grant.client(), portmapper_port);
    let reply = exchange(portmapper, grant.local(), &Registration::ask_for_locks(XID))?;
    let port = Registration::read_port(XID, &reply)
        .ok_or_else(|| invalid("its portmapper knows no lock manager"))?;
    let manager = SocketAddr::new(grant.client(), port.get());
    let reply = exchange(manager, grant.local(), &grant.call(XID))?;
    Grant::read_reply(XID, &reply)
        .ok_or_else(|| invalid("its lock manager replies with something else"))
}

#[cfg(test)]
mod tests;
