//! One controller: a host's association with a subsystem.
//!
//! Read first: NVM Express Base 2.0, "Controller Properties", "Shutdown Processing", "Keep Alive".
//!
//! ```text
//!              CC.EN 0→1, valid                    CC.SHN 0→1|2
//!  Disabled ─────────────────────► Ready ──────────────────────────► Shut down
//!     ▲  │                           │                                   │
//!     │  └── CC.EN 0→1, invalid ─► Fatal                                  │
//!     └────────────── CC.EN 1→0 (controller reset) ◄─────────────────────┘
//! ```

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use block::{Access, WriteCache};
use zerocopy::{FromZeros, IntoBytes};

use super::events::{Event, Events};
use super::feature_values::Features;
use super::log_entries::{ChangedNamespaces, Errors};
use crate::controller::connection::{ConnectRequest, IoQueues};
use crate::controller::{Activity, Host, Origin, QueueId, WakeToken};
use crate::wire::Nsid;
use crate::wire::fabrics::{Configuration, ControllerStatus};
use crate::wire::log::{ReservationLog, ReservationNotice};

/// Keep Alive Support (KAS) in units of 100 ms: the granularity to which timeouts are rounded up.
pub(in crate::controller) const KEEP_ALIVE_GRANULARITY: u16 = 1;
const KEEP_ALIVE_GRANULARITY_MS: u32 = KEEP_ALIVE_GRANULARITY as u32 * 100;

/// How long a discovery controller whose host requested no keep alive may be silent.
pub(in crate::controller) const DISCOVERY_TIMEOUT_MS: u32 = 120_000;

/// What a write to CC asks the subsystem to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::controller) enum Transition {
    /// Nothing further.
    None,
    /// A controller reset or a shutdown: the I/O queues end.
    EndIoQueues,
}

#[derive(Debug)]
pub(in crate::controller) struct Controller {
    pub(in crate::controller) host: Host,
    pub(in crate::controller) origin: Origin,
    pub(in crate::controller) access: Access,
    /// Whether its host has proven who it is, if it has to.
    pub(in crate::controller) is_proven: bool,
    /// What Identify Controller says about a volatile write cache: whether a namespace had one when
    /// the host connected.
    pub(in crate::controller) write_cache: WriteCache,
    pub(in crate::controller) queues: BTreeMap<QueueId, WakeToken>,
    /// I/O queues that have been idle since the server began to stop.
    rested: BTreeSet<QueueId>,
    pub(in crate::controller) io_queue_state: IoQueues,
    pub(in crate::controller) configuration: Configuration,
    pub(in crate::controller) status: ControllerStatus,
    pub(in crate::controller) keep_alive: KeepAlive,
    pub(in crate::controller) events: Events,
    pub(in crate::controller) features: Features,
    pub(in crate::controller) errors: Errors,
    pub(in crate::controller) changed: ChangedNamespaces,
    pub(in crate::controller) reservation_notices: ReservationNotices,
    /// The directory's generation when the discovery log that this host sees last changed.
    pub(in crate::controller) discovery_generation: u64,
}

impl Controller {
    pub(in crate::controller) fn new(
        now: Instant,
        request: ConnectRequest,
        events_supported: u32,
        write_cache: WriteCache,
    ) -> Self {
        let is_proven = !request.must_authenticate();
        Self {
            host: request.host,
            origin: request.origin,
            access: request.access,
            is_proven,
            write_cache,
            queues: BTreeMap::new(),
            rested: BTreeSet::new(),
            io_queue_state: IoQueues::default(),
            configuration: Configuration::default(),
            status: ControllerStatus::default(),
            keep_alive: KeepAlive::new(now, request.keep_alive_timeout_ms),
            events: Events::new(events_supported),
            features: Features::default(),
            errors: Errors::default(),
            changed: ChangedNamespaces::default(),
            reservation_notices: ReservationNotices::default(),
            discovery_generation: 0,
        }
    }

    /// Handles a write to Controller Configuration (CC).
    pub(in crate::controller) fn configure(&mut self, new: Configuration) -> Transition {
        let old = std::mem::replace(&mut self.configuration, new);
        let mut transition = Transition::None;
        if new.is_enabled() && !old.is_enabled() {
            self.status = ControllerStatus(if is_acceptable(new) {
                ControllerStatus::READY
            } else {
                ControllerStatus::FATAL
            });
        }
        if !new.is_enabled() && old.is_enabled() {
            self.status = ControllerStatus::default();
            self.events.reset();
            transition = Transition::EndIoQueues;
        }
        if new.shutdown() != 0 && old.shutdown() == 0 {
            self.status.0 |= ControllerStatus::SHUTDOWN_COMPLETE;
            transition = Transition::EndIoQueues;
        }
        if new.shutdown() == 0 && old.shutdown() != 0 {
            self.status.0 &= !ControllerStatus::SHUTDOWN_COMPLETE;
        }
        transition
    }

    /// A queue has connected.
    pub(in crate::controller) fn insert_queue(&mut self, queue: QueueId, wake: WakeToken) {
        self.queues.insert(queue, wake);
        self.publish_io_queues();
    }

    /// An I/O queue's connection has ended.
    pub(in crate::controller) fn remove_io_queue(&mut self, queue: QueueId) {
        self.queues.remove(&queue);
        self.rested.remove(&queue);
        self.publish_io_queues();
    }

    /// Removes all I/O queues from the controller and returns them.
    pub(in crate::controller) fn take_io_queues(&mut self) -> BTreeMap<QueueId, WakeToken> {
        let taken = self.queues.split_off(&QueueId(1));
        self.publish_io_queues();
        taken
    }

    /// An I/O queue is idle, and the server is stopping.
    pub(in crate::controller) fn note_rest(&mut self, queue: QueueId) {
        self.rested.insert(queue);
        self.publish_io_queues();
    }

    /// Whether each I/O queue has been idle since the server began to stop.
    pub(in crate::controller) fn has_rested(&self) -> bool {
        let mut io_queues = self.queues.range(QueueId(1)..);
        io_queues.all(|(queue, _)| self.rested.contains(queue))
    }

    fn publish_io_queues(&self) {
        let count = self.io_queues().count();
        self.io_queue_state.set(count, self.has_rested());
    }

    pub(in crate::controller) fn has_io_queues(&self) -> bool {
        self.io_queues().next().is_some()
    }

    /// The connections of its I/O queues.
    pub(in crate::controller) fn io_queues(&self) -> impl Iterator<Item = WakeToken> {
        self.queues.range(QueueId(1)..).map(|(_, &wake)| wake)
    }

    /// Records a change of a reservation that the host must learn of. Returns `true` if it has to
    /// be notified now.
    pub(in crate::controller) fn notify(&mut self, notice: ReservationNotice, nsid: Nsid) -> bool {
        if !self.features.wants(notice, nsid) {
            return false;
        }
        self.reservation_notices.push(notice, nsid);
        self.events.raise(Event::ReservationLogAvailable)
    }

    /// The host has read the notification at the head.
    pub(in crate::controller) fn next_reservation_notice(&mut self) {
        if self.reservation_notices.pop() {
            self.events.raise(Event::ReservationLogAvailable);
        }
    }

    /// Whether commands other than Fabrics ones may be executed.
    pub(in crate::controller) fn is_ready(&self) -> bool {
        self.configuration.is_enabled() && self.status.is_ready()
    }
}

/// Whether a controller can work with this configuration: NVM command set (or all command sets), 4
/// KiB pages, round robin, entries of 64 and 16 bytes.
fn is_acceptable(configuration: Configuration) -> bool {
    const NVM: u8 = 0b000;
    configuration.command_set() == NVM
        && configuration.page_shift() == 0
        && configuration.arbitration() == 0
        && configuration.sq_entry_shift() == 6
        && configuration.cq_entry_shift() == 4
}

/// The Reservation Notification log of a controller.
#[derive(Debug, Default)]
pub(in crate::controller) struct ReservationNotices {
    /// Notices so far.
    count: u64,
    /// Those not yet read, oldest first; at most [`Self::ENTRIES_MAX`].
    notices: VecDeque<(u64, ReservationNotice, Nsid)>,
}

impl ReservationNotices {
    const ENTRIES_MAX: usize = 256;

    /// Adds a notice. If there are too many, the oldest is dropped; the host sees the gap in the
    /// numbers.
    fn push(&mut self, notice: ReservationNotice, nsid: Nsid) {
        if self.notices.len() == Self::ENTRIES_MAX {
            self.notices.pop_front();
        }
        self.count += 1;
        self.notices.push_back((self.count, notice, nsid));
    }

    /// Removes the oldest; `true` if others are left.
    fn pop(&mut self) -> bool {
        self.notices.pop_front();
        !self.notices.is_empty()
    }

    pub(in crate::controller) fn page(&self) -> Vec<u8> {
        let log = match self.notices.front() {
            Some(&(count, notice, nsid)) => {
                let others = (self.notices.len() - 1).min(usize::from(u8::MAX)) as u8;
                ReservationLog::new(count, notice, others, nsid.0)
            }
            None => ReservationLog::new_zeroed(),
        };
        log.as_bytes().to_vec()
    }
}

/// The Keep Alive Timer. Any command restarts it (traffic based keep alive), so it runs out after
/// one to two timeouts without any.
#[derive(Debug)]
pub(in crate::controller) struct KeepAlive {
    timeout_ms: u32,
    deadline: Option<Instant>,
    pub(in crate::controller) activity: Activity,
}

impl KeepAlive {
    fn new(now: Instant, timeout_ms: u32) -> Self {
        let mut keep_alive = Self {
            timeout_ms: 0,
            deadline: None,
            activity: Activity::default(),
        };
        keep_alive.set_timeout_ms(now, timeout_ms);
        keep_alive
    }

    /// The timeout in milliseconds, rounded up to the granularity; 0 is none.
    pub(in crate::controller) fn timeout_ms(&self) -> u32 {
        self.timeout_ms
    }

    pub(in crate::controller) fn set_timeout_ms(&mut self, now: Instant, timeout_ms: u32) {
        self.timeout_ms = timeout_ms
            .div_ceil(KEEP_ALIVE_GRANULARITY_MS)
            .saturating_mul(KEEP_ALIVE_GRANULARITY_MS);
        self.restart(now);
    }

    pub(in crate::controller) fn restart(&mut self, now: Instant) {
        self.deadline = match self.timeout_ms {
            0 => None,
            ms => now.checked_add(Duration::from_millis(u64::from(ms))),
        };
    }

    pub(in crate::controller) fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Whether the timer has expired at `now`. Restarts it if there was traffic.
    pub(in crate::controller) fn is_expired(&mut self, now: Instant) -> bool {
        match self.deadline {
            Some(deadline) if deadline <= now => {
                if !self.activity.take() {
                    return true;
                }
                self.restart(now);
                false
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keep_alive_rounds_up_to_its_granularity_and_traffic_restarts_it() {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let mut timer = KeepAlive::new(start, 4_950);
        assert_eq!(timer.timeout_ms(), 5_000);
        assert_eq!(timer.deadline(), Some(at(5_000)));
        assert!(!timer.is_expired(at(4_999)));
        timer.activity.mark();
        assert!(!timer.is_expired(at(5_000)));
        assert_eq!(timer.deadline(), Some(at(10_000)));
        assert!(timer.is_expired(at(10_000)));
    }

    #[test]
    fn a_timeout_of_zero_never_expires() {
        let start = Instant::now();
        let mut timer = KeepAlive::new(start, 0);
        assert_eq!(timer.deadline(), None);
        assert!(!timer.is_expired(start + Duration::from_secs(1 << 30)));
    }

    #[test]
    fn only_the_advertised_configuration_is_acceptable() {
        assert!(is_acceptable(Configuration::ENABLE_NVM));
        for wrong in [
            1 << 4,  // CSS
            1 << 7,  // MPS
            1 << 11, // AMS
            1 << 16, // IOSQES 7
            1 << 20, // IOCQES 5
        ] {
            let configuration = Configuration(Configuration::ENABLE_NVM.0 ^ wrong);
            assert!(!is_acceptable(configuration), "{wrong:#x}");
        }
    }
}
