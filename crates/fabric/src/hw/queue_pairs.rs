//! Queue pairs, and what is posted to them.

use std::ffi::c_uint;
use std::io;

use roce::wire::NakCode;
use rustc_hash::FxHashMap;

use super::ledger::{Ledger, Ticket};
use super::queue_pair::{Depths, Qp, Source, Work};
use super::regions::remote_rights;
use super::sys::{ibv_qp_attr, ibv_sge, qp_attr_mask, qp_state, wr};
use super::verbs::Mw;
use super::{Hw, HwError};
use crate::verbs::{
    CommId, Completion, Data, Event, Gather, PostError, ProtectionDomain, QpConfig, QpFailure,
    QpState, Qpn, RecvRequest, Remote, SendOp, SendRequest, WorkKind, WorkStatus,
};

/// A queue pair's own number, which is never used again, other than the adapter's. Completions come with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Serial(u32);

/// What the completion of a request comes with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Label {
    pub(super) serial: Serial,
    pub(super) is_recv: bool,
    /// Its place in the send queue; nothing for receives, which complete in order.
    pub(super) number: u32,
}

impl Label {
    const RECV: u64 = 1 << Ledger::NUMBER_BITS;

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
    pub(super) ledger: Ledger,
    pub(super) connection: Option<CommId>,
    /// RDMA READs of ours that the peer answers at once.
    pub(super) initiator_depth: u8,
    /// Requests that the adapter is told of with the next round.
    unposted: Vec<Work>,
}

/// All queue pairs. Their numbers are ours and the adapter's, not a peer's to choose.
#[derive(Default)]
pub(super) struct QueuePairs {
    by_serial: FxHashMap<Serial, Pair>,
    by_number: FxHashMap<u32, Serial>,
    next: u32,
    /// Completions that all of them may have waiting: as many as their queues are long.
    completions: Depths,
    /// Those that have requests which the adapter has not been told of.
    unposted: Vec<Serial>,
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

    /// All that work as far as we know.
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

    /// A completion has been taken.
    pub(super) fn release(&mut self, serial: Serial, kind: WorkKind) {
        if let Some(pair) = self.by_serial.get_mut(&serial) {
            pair.ledger.release(kind);
        }
    }

    /// Posts the binding of a window, to a queue pair that the adapter has been told all requests of.
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
        let ticket = pair.ledger.bind().map_err(|_| HwError::WindowOwner)?;
        let label = Label::of_send(owner, ticket);
        let is_signaled = ticket.is_signaled;
        let posted = pair.qp.post_bind(label, window, range, rights, is_signaled);
        posted.map_err(|error| {
            pair.ledger.retract_send();
            failed(error)
        })
    }

    /// Keeps a request until the adapter is told of it.
    fn hold(&mut self, serial: Serial, work: Work) {
        if let Some(pair) = self.by_serial.get_mut(&serial) {
            if pair.unposted.is_empty() {
                self.unposted.push(serial);
            }
            pair.unposted.push(work);
        }
    }

    /// Tells the adapter of the requests of a queue pair.
    fn post(&mut self, serial: Serial) -> io::Result<()> {
        let Some(pair) = self.by_serial.get_mut(&serial) else {
            return Ok(());
        };
        let posted = pair.qp.post_sends(&mut pair.unposted);
        pair.unposted.clear();
        posted
    }

    fn insert(&mut self, qp: Qp, config: QpConfig) -> Qpn {
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
            ledger: Ledger::new(qpn, &config),
            connection: None,
            initiator_depth: 0,
            unposted: Vec::new(),
        };
        self.by_serial.insert(serial, pair);
        qpn
    }

    fn remove(&mut self, serial: Serial) -> Option<Pair> {
        let pair = self.by_serial.remove(&serial)?;
        self.by_number.remove(&pair.qpn.get());
        let depths = depths(&pair.config);
        self.completions.sends -= depths.sends;
        self.completions.receives -= depths.receives;
        Some(pair)
    }
}

impl Label {
    const fn of_send(serial: Serial, ticket: Ticket) -> u64 {
        let label = Self {
            serial,
            is_recv: false,
            number: ticket.number,
        };
        label.to_wire()
    }

    const fn of_recv(serial: Serial) -> u64 {
        let label = Self {
            serial,
            is_recv: true,
            number: 0,
        };
        label.to_wire()
    }
}

/// How long the queues must be: windows are bound through the send queue, too.
fn depths(config: &QpConfig) -> Depths {
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

impl Hw {
    pub(super) fn create_pair(&mut self, config: QpConfig) -> Result<Qpn, HwError> {
        let depths = depths(&config);
        let room = self.context.caps.queue_depth_max;
        for (what, asked) in [
            ("requests in a send queue", depths.sends),
            ("receives in a queue", depths.receives),
        ] {
            if asked > room {
                return Err(HwError::Room { what, asked, room });
            }
        }
        let completions = self.pairs.completions.plus(depths);
        self.queues
            .reserve(completions, self.context.caps.completions_max)?;
        let pd = self.pd(config.domain)?;
        let qp = Qp::new(&pd, &self.queues.cqs, depths)?;
        let attr = ibv_qp_attr {
            qp_state: qp_state::INIT,
            qp_access_flags: remote_rights(config.access),
            port_num: self.anchor.device_port(),
            ..ibv_qp_attr::default()
        };
        // From now on it takes receives. The connection tells which partition it is in.
        let mask = qp_attr_mask::STATE
            | qp_attr_mask::ACCESS_FLAGS
            | qp_attr_mask::PKEY_INDEX
            | qp_attr_mask::PORT;
        qp.modify(&attr, mask)?;
        Ok(self.pairs.insert(qp, config))
    }

    pub(super) fn destroy_pair(&mut self, qpn: Qpn) {
        let Some((serial, pair)) = self.pairs.by_qpn(qpn) else {
            return;
        };
        pair.state = QpState::Error;
        pair.qp.fail();
        if let Some(id) = pair.connection.take() {
            // Where the connection has ended already there is nothing to ask for.
            let _ = self.end_connection(id);
        }
        // What the adapter tells of it counts; what it does not is flushed below.
        let _ = self.reap();
        self.regions.remove_owned(serial);
        if let Some(pair) = self.pairs.remove(serial) {
            let mut ledger = pair.ledger;
            drop(pair.qp);
            // The adapter may give the number to the next.
            let is_of_it =
                |event: &Event| matches!(event, Event::QpFailed { qpn: of, .. } if *of == qpn);
            self.events.retain(|event| !is_of_it(event));
            while let Some(completion) = ledger.flush() {
                self.completions.push_back((serial, completion));
            }
        }
    }

    /// A queue pair has failed, or is to: nothing goes through it any more, and what is outstanding is flushed.
    pub(super) fn fail_pair(&mut self, serial: Serial, failure: QpFailure) {
        let Some(pair) = self.pairs.get_mut(serial) else {
            return;
        };
        if pair.state == QpState::Error {
            return;
        }
        pair.state = QpState::Error;
        pair.qp.fail();
        if failure != QpFailure::Closed {
            self.events.push_back(Event::QpFailed {
                qpn: pair.qpn,
                id: pair.connection,
                failure,
            });
        }
    }

    pub(super) fn post_request(&mut self, qpn: Qpn, request: SendRequest) -> Result<(), PostError> {
        let (serial, pair) = self.pairs.by_qpn(qpn).ok_or(PostError::NoSuchQp)?;
        match pair.state {
            QpState::Init => return Err(PostError::NotConnected),
            QpState::Error => return Err(PostError::Failed),
            QpState::ReadyToSend => {}
        }
        if matches!(request.op, SendOp::Read(..)) && pair.initiator_depth == 0 {
            return Err(PostError::NoReads);
        }
        let domain = pair.config.domain;
        let ticket = pair.ledger.send(&request)?;
        let form = Form::of(&request.op);
        let source = match form.data {
            Data::Inline(data) => Source::Bytes(data),
            Data::Gather(gather) => {
                let mut parts = [ibv_sge::default(); Gather::PARTS_MAX];
                let pd = pair.qp.pd();
                let mut count = 0;
                for part in gather.parts().iter().filter(|part| part.range.len > 0) {
                    let Some(named) = self.memory.local(*part, domain, pd) else {
                        self.fail_locally(serial);
                        return Ok(());
                    };
                    parts[count] = named;
                    count += 1;
                }
                Source::Registered(parts, count)
            }
        };
        let work = Work {
            slot: ticket.number as usize,
            id: Label::of_send(serial, ticket),
            opcode: form.opcode,
            source,
            extra: form.extra,
            remote: form.remote,
            is_signaled: ticket.is_signaled,
        };
        self.pairs.hold(serial, work);
        Ok(())
    }

    /// Tells the adapter of all requests that were posted since the last time: one call for many, since each rings its doorbell.
    pub(super) fn post_held(&mut self) {
        let mut unposted = std::mem::take(&mut self.pairs.unposted);
        unposted
            .drain(..)
            .for_each(|serial| self.post_held_of(serial));
        self.pairs.unposted = unposted;
    }

    pub(super) fn post_held_of(&mut self, serial: Serial) {
        if self.is_gone {
            // They were flushed, or are when the queue pair is destroyed.
            return;
        }
        self.queues.watch.posted();
        if let Err(error) = self.pairs.post(serial) {
            let device = self.device();
            tracing::warn!(%error, device, "the adapter refuses requests; their connection ends");
            self.fail_pair(serial, QpFailure::Request(WorkStatus::LocalMemory));
        }
    }

    /// A request names memory that is not there: it fails before the adapter sees it.
    fn fail_locally(&mut self, serial: Serial) {
        self.post_held_of(serial);
        let status = WorkStatus::LocalMemory;
        if let Some(pair) = self.pairs.get_mut(serial) {
            let done = pair.ledger.fail_last_send(status);
            self.tell(serial, done);
        }
        self.fail_pair(serial, QpFailure::Request(status));
    }

    pub(super) fn post_receive(&mut self, qpn: Qpn, request: RecvRequest) -> Result<(), PostError> {
        let (serial, pair) = self.pairs.by_qpn(qpn).ok_or(PostError::NoSuchQp)?;
        if pair.state == QpState::Error {
            return Err(PostError::Failed);
        }
        let mut into = request.into;
        into.range.len = into.range.len.min(u64::from(u32::MAX >> 1));
        let part = self.memory.local(into, pair.config.domain, pair.qp.pd());
        pair.ledger.recv(request.id)?;
        if part.is_none() {
            let done = pair.ledger.fail_last_recv(WorkStatus::LocalMemory);
            self.tell(serial, done);
            let code = NakCode::RemoteOperationalError;
            self.fail_pair(serial, QpFailure::Responder(code));
            return Ok(());
        }
        let part = part.filter(|part| part.length > 0);
        let posted = pair.qp.post_recv(Label::of_recv(serial), part);
        posted.map_err(|error| {
            pair.ledger.retract_recv();
            refused(&error)
        })
    }

    /// Lets the poster take a completion.
    pub(super) fn tell(&mut self, serial: Serial, completion: Option<Completion>) {
        if let Some(completion) = completion {
            self.completions.push_back((serial, completion));
        }
    }
}

/// A request as adapters take it.
struct Form {
    opcode: c_uint,
    data: Data,
    extra: u32,
    remote: Option<Remote>,
}

impl Form {
    const fn of(op: &SendOp) -> Self {
        let (opcode, data, extra, remote) = match *op {
            SendOp::Send(data) => (wr::SEND, data, 0, None),
            SendOp::SendImmediate(data, value) => (wr::SEND_WITH_IMM, data, value.to_be(), None),
            SendOp::SendInvalidate(data, key) => (wr::SEND_WITH_INV, data, key.0, None),
            SendOp::Write(data, to) => (wr::RDMA_WRITE, data, 0, Some(to)),
            SendOp::WriteImmediate(data, to, value) => {
                (wr::RDMA_WRITE_WITH_IMM, data, value.to_be(), Some(to))
            }
            SendOp::Read(into, from) => (wr::RDMA_READ, Data::Gather(into), 0, Some(from)),
        };
        Self {
            opcode,
            data,
            extra,
            remote,
        }
    }
}

/// Why the adapter took no request.
fn refused(error: &std::io::Error) -> PostError {
    match error.raw_os_error() {
        Some(libc::ENOMEM) => PostError::Full,
        _ => PostError::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_survive_the_adapter() {
        for serial in [0, 7, u32::MAX] {
            for number in [0, 1, (1 << Ledger::NUMBER_BITS) - 1] {
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
