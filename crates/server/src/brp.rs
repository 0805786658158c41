//! BRP sessions of a target: the connection of each, and the records of those that have none.
//!
//! Read first: docs/brp.md, "Reconnect and replay".
//!
//! ```text
//!          begin              connection lost             resume
//!  (none) ───────► Attached ──────────────────► Detached ─────────► Attached
//!                     │ logout, ended              │ hold time over, too many, ended
//!                     └──────────► (none) ◄────────┘
//! ```
//!
//! The record of an attached session is with its connection, which hands it back in its own turn.
//! So a login that resumes the session gets the record when nothing that came through the old
//! connection is executed any more (BRP-28).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use block::Access;
use brp::target::{SessionRecord, Standing};
use brp::wire::{LoginStatus, SessionId};
use net::{ConnectionId, ReactorHandle};
use nvme::wire::Nsid;
use volume::Charge;

use crate::access::Grant;
use crate::{HostName, SessionProtocol, Transport};

/// Detached sessions that are kept of each host and of each target at most (BRP-32).
const DETACHED_OF_HOST_MAX: usize = 64;
const DETACHED_MAX: usize = 1024;
/// How long a record is kept at least for a login that waits for it.
const WAITING_MAX: Duration = Duration::from_secs(10);

/// A session as its connection and the registry know it. A resumed session is another member.
pub(crate) struct Member {
    pub(crate) facts: Facts,
    handle: ReactorHandle,
    /// Moves with each change of `state`.
    changes: AtomicU64,
    state: Mutex<MemberState>,
}

/// What stays the same.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    pub(crate) session: SessionId,
    pub(crate) connection: ConnectionId,
    pub(crate) transport: Transport,
    pub(crate) host: HostName,
    pub(crate) unit: Nsid,
    pub(crate) tags: u16,
    pub(crate) hold: Duration,
    pub(crate) is_resumed: bool,
}

#[derive(Clone, Copy)]
struct MemberState {
    standing: Standing,
    access: Access,
}

impl Member {
    pub(crate) fn new(facts: Facts, access: Access, handle: ReactorHandle) -> Arc<Self> {
        let standing = Standing::Good;
        Arc::new(Self {
            facts,
            handle,
            changes: AtomicU64::new(0),
            state: Mutex::new(MemberState { standing, access }),
        })
    }

    /// A number that moves when the results of [`Self::standing`] or [`Self::access`] may have
    /// changed.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    pub(crate) fn standing(&self) -> Standing {
        lock(&self.state).standing
    }

    pub(crate) fn access(&self) -> Access {
        lock(&self.state).access
    }

    /// Changes what the host may do. A host that may do nothing loses its session.
    pub(crate) fn set_grant(&self, grant: &Grant) {
        if grant.access == Access::Denied {
            self.end();
        } else {
            self.change(|state| state.access = grant.access);
        }
    }

    /// Ends the session. Its connection notices between two turns.
    pub(crate) fn end(&self) {
        self.change(|state| state.standing = Standing::Ended);
    }

    fn replace(&self) {
        self.change(|state| {
            if state.standing == Standing::Good {
                state.standing = Standing::Replaced;
            }
        });
    }

    fn change(&self, change: impl FnOnce(&mut MemberState)) {
        change(&mut lock(&self.state));
        self.changes.fetch_add(1, Ordering::Release);
        self.handle.wake(self.facts.connection);
    }

    /// Its part of a session.
    pub(crate) fn protocol(&self) -> SessionProtocol {
        SessionProtocol::Brp {
            transport: self.facts.transport,
            unit: self.facts.unit.0,
            tags: self.facts.tags,
            hold: self.facts.hold,
            is_resumed: self.facts.is_resumed,
        }
    }
}

/// The sessions of a target. No other lock is taken under this one, except a member's.
pub(crate) struct Sessions {
    inner: Mutex<Inner>,
    handle: ReactorHandle,
}

#[derive(Default)]
struct Inner {
    sessions: BTreeMap<SessionId, Session>,
    /// The target was removed: it grants no login.
    is_removed: bool,
}

struct Session {
    host: HostName,
    unit: Nsid,
    place: Place,
    _charge: Charge,
}

/// Where a session's record is.
enum Place {
    /// With this member's connection. The other connection waits for it.
    Attached(Arc<Member>, Option<ConnectionId>),
    Detached {
        record: SessionRecord,
        since: Instant,
        until: Instant,
    },
}

/// The answer to a login that names a session.
pub(crate) enum Resumed {
    /// The record is the caller's, who becomes the session's member.
    Granted(SessionRecord),
    /// The connection is woken when the session's old one has ended.
    Wait,
    /// The session does not exist, or is of another host or unit.
    Unknown,
}

impl Sessions {
    pub(crate) fn new(handle: ReactorHandle) -> Self {
        Self {
            inner: Mutex::default(),
            handle,
        }
    }

    /// Begins a session, whose record is with the connection of `member`.
    pub(crate) fn begin(&self, member: &Arc<Member>, charge: Charge) -> Result<(), LoginStatus> {
        let mut inner = lock(&self.inner);
        if inner.is_removed {
            return Err(LoginStatus::NoTarget);
        }
        let session = Session {
            host: member.facts.host.clone(),
            unit: member.facts.unit,
            _charge: charge,
            place: Place::Attached(Arc::clone(member), None),
        };
        inner.sessions.insert(member.facts.session, session);
        Ok(())
    }

    /// Takes the record of a session for the connection of `member` (BRP-28, BRP-29).
    pub(crate) fn resume(
        &self,
        now: Instant,
        make_member: impl FnOnce(u16) -> Arc<Member>,
        asked: &Asked<'_>,
    ) -> Resumed {
        let mut inner = lock(&self.inner);
        inner.forget_expired(now);
        let Some(session) = inner.sessions.get_mut(&asked.session) else {
            return Resumed::Unknown;
        };
        if session.host != *asked.host || session.unit != asked.unit {
            return Resumed::Unknown;
        }
        match &mut session.place {
            Place::Attached(member, waiting) => {
                *waiting = Some(asked.connection);
                member.replace();
                Resumed::Wait
            }
            Place::Detached { record, .. } => {
                let tags = record.tags();
                let place = Place::Attached(make_member(tags), None);
                match std::mem::replace(&mut session.place, place) {
                    Place::Detached { record, .. } => Resumed::Granted(record),
                    Place::Attached(..) => unreachable!("the match has just found it detached"),
                }
            }
        }
    }

    /// The connection of `member` has ended without a logout: keeps the record (BRP-27).
    pub(crate) fn detach(&self, now: Instant, member: &Arc<Member>, record: SessionRecord) {
        let mut inner = lock(&self.inner);
        inner.forget_expired(now);
        if !inner.is_attached(member) {
            return;
        }
        let waiting = inner.waiting_for(member);
        let id = member.facts.session;
        let waits = waiting.map_or(Duration::ZERO, |_| WAITING_MAX);
        let hold = member.facts.hold.max(waits);
        if hold.is_zero() || member.standing() == Standing::Ended {
            inner.sessions.remove(&id);
        } else if let Some(session) = inner.sessions.get_mut(&id) {
            session.place = Place::Detached {
                record,
                since: now,
                until: now + hold,
            };
            inner.bound_detached(&member.facts.host);
        }
        drop(inner);
        if let Some(waiting) = waiting {
            self.handle.wake(waiting);
        }
    }

    /// The session of `member` has ended: nothing is kept of it.
    pub(crate) fn forget(&self, member: &Arc<Member>) {
        let mut inner = lock(&self.inner);
        if !inner.is_attached(member) {
            return;
        }
        let waiting = inner.waiting_for(member);
        inner.sessions.remove(&member.facts.session);
        drop(inner);
        if let Some(waiting) = waiting {
            self.handle.wake(waiting);
        }
    }

    /// The target was removed: ends every session.
    pub(crate) fn remove(&self) {
        let mut inner = lock(&self.inner);
        inner.is_removed = true;
        inner.sessions.retain(|_, session| match &session.place {
            Place::Attached(member, _) => {
                member.end();
                true
            }
            Place::Detached { .. } => false,
        });
    }
}

/// What a login that names a session asks for.
pub(crate) struct Asked<'a> {
    pub(crate) session: SessionId,
    pub(crate) host: &'a HostName,
    pub(crate) unit: Nsid,
    pub(crate) connection: ConnectionId,
}

impl Inner {
    /// Whether the record is with the connection of `member`.
    fn is_attached(&self, member: &Arc<Member>) -> bool {
        let session = self.sessions.get(&member.facts.session);
        session.is_some_and(|session| match &session.place {
            Place::Attached(attached, _) => Arc::ptr_eq(attached, member),
            Place::Detached { .. } => false,
        })
    }

    /// The connection that waits for the record of `member`.
    fn waiting_for(&self, member: &Member) -> Option<ConnectionId> {
        match self.sessions.get(&member.facts.session)?.place {
            Place::Attached(_, waiting) => waiting,
            Place::Detached { .. } => None,
        }
    }

    fn forget_expired(&mut self, now: Instant) {
        self.sessions.retain(|_, session| match session.place {
            Place::Attached(..) => true,
            Place::Detached { until, .. } => until > now,
        });
    }

    /// Forgets the longest detached sessions if there are too many (BRP-32).
    fn bound_detached(&mut self, host: &HostName) {
        self.bound(DETACHED_OF_HOST_MAX, |session| session.host == *host);
        self.bound(DETACHED_MAX, |_| true);
    }

    fn bound(&mut self, max: usize, counts: impl Fn(&Session) -> bool) {
        let detached = || {
            let counted = self.sessions.iter().filter(|(_, session)| counts(session));
            counted.filter_map(|(id, session)| match session.place {
                Place::Attached(..) => None,
                Place::Detached { since, .. } => Some((since, *id)),
            })
        };
        if detached().count() > max
            && let Some((_, oldest)) = detached().min()
        {
            self.sessions.remove(&oldest);
        }
    }
}

/// Values are complete between any two statements, so a poisoned lock is used.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
