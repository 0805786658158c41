//! The thread that notifies clients of NLM of locks that they have waited for (NLM4_GRANTED). It
//! asks the client's portmapper for the port of the client's lock manager, and calls the lock
//! manager. Each call takes a bounded time, and a client that does not answer is not called for
//! [`RETRY_AFTER`], so that it seldom delays other clients.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use ::nfs::Grant;

use super::client_calls::{ClientProgram, PORTMAPPER_PORT, XID, exchange, invalid, port_of};
use crate::nfs::NfsClients;

/// The way to the thread, which ends when this is dropped.
pub(super) struct LockCallbacks(Arc<NfsClients>);

/// A callback that is to be made.
struct Job {
    grant: Grant,
    due: Instant,
    tries: u32,
}

/// How long a client that has not answered is not called. Linux asks for the lock again after 30 s,
/// and then has it.
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

/// Until when the client of a grant is not called.
fn postponed(jobs: &VecDeque<Job>, grant: &Grant) -> Instant {
    let same = jobs
        .iter()
        .filter(|job| job.grant.client() == grant.client());
    let due = same.map(|job| job.due).max();
    due.unwrap_or_else(Instant::now)
}

/// Notifies a client of a lock. Returns whether it accepts the lock.
fn call(grant: &Grant, portmapper_port: u16) -> io::Result<bool> {
    let (client, local) = (grant.client(), grant.local());
    let portmapper = SocketAddr::new(client, portmapper_port);
    let manager = port_of(ClientProgram::LockManager, portmapper, local)?;
    let reply = exchange(manager, local, &grant.call(XID))?;
    Grant::read_reply(XID, &reply)
        .ok_or_else(|| invalid("its lock manager sent no valid reply to NLM4_GRANTED"))
}

#[cfg(test)]
mod tests;
