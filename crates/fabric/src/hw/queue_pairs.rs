//! Queue pairs: their numbers, states and outstanding requests.

use std::ffi::c_uint;
use std::io;

use rustc_hash::FxHashMap;

use super::queue_pair::{Depths, Qp, Work};
use super::verbs::Mw;
use super::work_tracker::{Ticket, WorkTracker};
use crate::HwError;
use crate::verbs::{CommId, ProtectionDomain, QpConfig, QpState, Qpn, WorkKind};

/// Our own number of a queue pair. Unlike the adapter's, it is never used again. Completions carry
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Serial(u32);

/// What the completion of a request carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Label {
    pub(super) serial: Serial,
    pub(super) is_recv: bool,
    /// Its place in the send queue; nothing for receives, which complete in order.
    pub(super) number: u32,
}

impl Label {
    const RECV: u64 = 1 << WorkTracker::NUMBER_BITS;

    const fn to_wire(self) -> u64 {
        let kind = if self.is_recv { Self::RECV } else { 0 };
        (self.serial.0 as u64) << 32 | kind | self.number as u64
    }

    pub(super) const fn from_wire(id: u64) -> Self {
        Self {
            serial: Serial((id >> 32) as u32),
            is_recv: id & Self::RECV != 0,
            number: (id & (Self::RECV - 1)) as u32,
        }
    }
}

/// A queue pair.
pub(super) struct Pair {
    pub(super) qp: Qp,
    pub(super) qpn: Qpn,
    pub(super) config: QpConfig,
    pub(super) state: QpState,
    pub(super) tracker: WorkTracker,
    pub(super) connection: Option<CommId>,
    /// RDMA READs of ours that the peer answers at once.
    pub(super) initiator_depth: u8,
    /// Requests that the next round posts to the adapter.
    unposted: Vec<Work>,
}

/// All queue pairs. Their numbers are ours and the adapter's, not a peer's to choose.
#[derive(Default)]
pub(super) struct QueuePairs {
    by_serial: FxHashMap<Serial, Pair>,
    by_number: FxHashMap<u32, Serial>,
    next: u32,
    /// Completions that all of them may have waiting: as many as their queues are long.
    pub(super) completions: Depths,
    /// Queue pairs with requests that were not yet posted to the adapter.
    pub(super) unposted: Vec<Serial>,
}

impl QueuePairs {
    pub(super) fn serial_of(&self, qpn: Qpn) -> Option<Serial> {
        self.by_number.get(&qpn.get()).copied()
    }

    pub(super) fn get_mut(&mut self, serial: Serial) -> Option<&mut Pair> {
        self.by_serial.get_mut(&serial)
    }

    pub(super) fn by_qpn(&mut self, qpn: Qpn) -> Option<(Serial, &mut Pair)> {
        let serial = self.serial_of(qpn)?;
        Some((serial, self.by_serial.get_mut(&serial)?))
    }

    /// The queue pair that an event of the device is about.
    pub(super) fn at_address(&self, address: usize) -> Option<Serial> {
        let mut all = self.by_serial.iter();
        all.find(|(_, pair)| pair.qp.address() == address)
            .map(|(serial, _)| *serial)
    }

    /// The connected queue pairs that are not known to have failed.
    pub(super) fn connected(&self) -> impl Iterator<Item = (Serial, &Pair)> {
        let all = self.by_serial.iter().map(|(serial, pair)| (*serial, pair));
        all.filter(|(_, pair)| pair.state == QpState::ReadyToSend)
    }

    pub(super) fn all(&self) -> Vec<Serial> {
        self.by_serial.keys().copied().collect()
    }

    /// The connected queue pair of a domain that has no other, if its peer may invalidate keys.
    pub(super) fn only_connected_in(&self, domain: ProtectionDomain) -> Option<Serial> {
        let mut of_domain = (self.by_serial.iter()).filter(|(_, p)| p.config.domain == domain);
        let (serial, pair) = of_domain.next()?;
        let is_able = pair.state == QpState::ReadyToSend && pair.config.access.invalidate;
        (of_domain.next().is_none() && is_able).then_some(*serial)
    }

    /// The caller has taken a completion.
    pub(super) fn release(&mut self, serial: Serial, kind: WorkKind) {
        if let Some(pair) = self.by_serial.get_mut(&serial) {
            pair.tracker.release(kind);
        }
    }

    /// Posts the binding of a window. All requests of the queue pair must have been posted to the
    /// adapter.
    pub(super) fn bind(
        &mut self,
        owner: Serial,
        window: &Mw,
        range: (u64, u64),
        rights: c_uint,
    ) -> Result<(), HwError> {
        let failed = |error| HwError::Call {
            call: "ibv_post_send (bind)",
            error,
        };
        let pair = self.by_serial.get_mut(&owner);
        let able = pair.filter(|pair| pair.state == QpState::ReadyToSend);
        let pair = able.ok_or(HwError::WindowOwner)?;
        let ticket = pair.tracker.bind().map_err(|_| HwError::WindowOwner)?;
        let label = Label::of_send(owner, ticket);
        let is_signaled = ticket.is_signaled;
        let posted = pair.qp.post_bind(label, window, range, rights, is_signaled);
        posted.map_err(|error| {
            pair.tracker.retract_send();
            failed(error)
        })
    }

    /// Keeps a request until it is posted to the adapter.
    pub(super) fn hold(&mut self, serial: Serial, work: Work) {
        if let Some(pair) = self.by_serial.get_mut(&serial) {
            if pair.unposted.is_empty() {
                self.unposted.push(serial);
            }
            pair.unposted.push(work);
        }
    }

    /// Posts the requests of a queue pair to the adapter.
    pub(super) fn post(&mut self, serial: Serial) -> io::Result<()> {
        let Some(pair) = self.by_serial.get_mut(&serial) else {
            return Ok(());
        };
        let posted = pair.qp.post_sends(&mut pair.unposted);
        pair.unposted.clear();
        posted
    }

    pub(super) fn insert(&mut self, qp: Qp, config: QpConfig) -> Qpn {
        let serial = Serial(self.next);
        self.next = self.next.wrapping_add(1);
        let qpn = Qpn::new(qp.number());
        self.completions = self.completions.plus(depths(&config));
        self.by_number.insert(qpn.get(), serial);
        let pair = Pair {
            qp,
            qpn,
            config,
            state: QpState::Init,
            tracker: WorkTracker::new(qpn, &config),
            connection: None,
            initiator_depth: 0,
            unposted: Vec::new(),
        };
        self.by_serial.insert(serial, pair);
        qpn
    }

    pub(super) fn remove(&mut self, serial: Serial) -> Option<Pair> {
        let pair = self.by_serial.remove(&serial)?;
        self.by_number.remove(&pair.qpn.get());
        let depths = depths(&pair.config);
        self.completions.sends -= depths.sends;
        self.completions.receives -= depths.receives;
        Some(pair)
    }
}

impl Label {
    pub(super) const fn of_send(serial: Serial, ticket: Ticket) -> u64 {
        let label = Self {
            serial,
            is_recv: false,
            number: ticket.number,
        };
        label.to_wire()
    }

    pub(super) const fn of_recv(serial: Serial) -> u64 {
        let label = Self {
            serial,
            is_recv: true,
            number: 0,
        };
        label.to_wire()
    }
}

/// How long the queues must be: windows are bound through the send queue, too.
pub(super) fn depths(config: &QpConfig) -> Depths {
    let binds = if config.access.invalidate {
        config.send_depth
    } else {
        0
    };
    Depths {
        sends: u32::from(config.send_depth.max(1)) + u32::from(binds),
        receives: config.recv_depth.max(1).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_survive_the_adapter() {
        for serial in [0, 7, u32::MAX] {
            for number in [0, 1, (1 << WorkTracker::NUMBER_BITS) - 1] {
                for is_recv in [false, true] {
                    let label = Label {
                        serial: Serial(serial),
                        is_recv,
                        number,
                    };
                    assert_eq!(Label::from_wire(label.to_wire()), label);
                }
            }
        }
    }

    #[test]
    fn queues_have_room_for_windows_where_peers_invalidate() {
        let mut config = QpConfig {
            send_depth: 8,
            recv_depth: 0,
            ..QpConfig::default()
        };
        assert_eq!(depths(&config).sends, 8);
        assert_eq!(depths(&config).receives, 1);
        config.access.invalidate = true;
        assert_eq!(depths(&config).sends, 16);
        assert_eq!(depths(&config).receives, 1);
    }
}
