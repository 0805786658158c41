//! A queue pair and the session that speaks over it.

use std::{
    fmt, io,
    net::SocketAddr,
    os::fd::BorrowedFd,
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use block::ByteRange;
use fabric::verbs::{
    Access, Completion, Data, Event, Gather, Inline, PathMtu, PostError, ProtectionDomain,
    QpConfig, Qpn, RecvRequest, Region, RejReason, Rkey, SendOp, SendRequest, Signal, WorkId,
    WorkKind, WorkStatus,
};
use fabric::{ConnectTo, FabricError, Wait};
use nvme::host::{Command, CommandKey, NoRoom, Outcome, Transfer};
use nvme::rdma::wire::{ConnectReject, ConnectReply, ConnectRequest};
use nvme::rdma::{HostConfig, HostSession, HostWork, Reach};
use nvme::wire::Sqe;
use session::{BufferRange, Buffers, Placement, RegionId, RemoteBuffer, RemoteKey, SlotMemory};
use zerocopy::IntoBytes as _;

use super::port::{Drive, End, News, Port};
use super::provider::HostProvider;
use super::{RdmaError, Rejection};
use crate::ConnectionError;
use crate::mailbox::Sever;
use crate::nvmf::transport::{NvmeConnection, QueueShape};

/// A queue pair with its session.
pub(crate) struct RdmaConnection {
    port: Arc<Port>,
    end: Arc<End>,
    desk: Desk,
    session: HostSession,
    /// By key: where its data are.
    transfers: Box<[Transfer]>,
    is_open: bool,
    news: Vec<News>,
    outcomes: Vec<Outcome>,
    ended: Vec<Outcome>,
}

/// A queue pair and its memory.
struct Desk {
    qpn: Qpn,
    domain: ProtectionDomain,
    data: DataMemory,
    slots: u16,
    slot_bytes: u64,
    /// Command capsules by key, one after the other.
    capsules: RegionId,
    capsule_bytes: u64,
    /// By key: whether the capsule that was there need not be sent again.
    capsules_sent: Box<[bool]>,
    /// Receives, one after the other.
    receives: RegionId,
    /// No other command is in flight than the one that is posted.
    is_alone: bool,
}

/// Where data are while their commands are in flight.
enum DataMemory {
    /// In the queue's own buffers, which are lent to the provider meanwhile.
    Lent {
        /// By slot.
        loans: Box<[Option<Loan>]>,
        /// By key: the slot whose loan its command holds.
        holders: Box<[Option<u16>]>,
    },
    /// In memory of the provider's, slot by slot, between which and the buffers they are copied: adapters reach no other.
    Staged(RegionId),
}

/// A slot's buffer that is lent.
struct Loan {
    region: RegionId,
    /// Where the buffer begins in the memory that is lent.
    start: usize,
    /// Commands in flight whose data are there: two of a fused pair.
    users: u8,
}

/// A desk at work: with the provider, and the queue's buffers.
struct AtWork<'a> {
    desk: &'a mut Desk,
    provider: &'a mut dyn HostProvider,
    buffers: &'a mut Buffers,
}

const RESPONSE_BYTES: u64 = HostSession::RESPONSE_BYTES as u64;
const SQE_BYTES: u64 = size_of::<Sqe>() as u64;
/// Names of sends from here on are of capsules with data, by key; those below have none.
const CAPSULES_FROM: u64 = 1 << 16;
/// Commands posted at once whose data go inside of capsules, where packets are made in software and a capsule takes several: what
/// adapters make costs the same in any order.
const IN_CAPSULE_BATCH_MAX: u16 = 4;
/// The least room for capsules that are not acknowledged.
const SENDS_MIN: u16 = 64;
/// RDMA READs that are answered at once; adapters answer as many as they can.
const READS_MAX: u8 = 64;
/// Addresses of buffers, as the controller knows them, begin here: 0 means nothing to some.
const ADDRESSES_FROM: u64 = 1 << 32;

impl RdmaConnection {
    /// Asks for a connection to `address`, and waits until it is made.
    pub(super) fn connect(
        port: Arc<Port>,
        address: SocketAddr,
        shape: &QueueShape,
        timeout: Duration,
    ) -> Result<Self, RdmaError> {
        let end = port.end()?;
        let domain = port.domain();
        let mut drive = port.lock();
        let provider = drive.provider.as_mut();
        let in_capsule_batch_max = if provider.software().is_some() {
            IN_CAPSULE_BATCH_MAX
        } else {
            u16::MAX
        };
        let desk = Desk::open(provider, domain, shape)?;
        drive.enter(desk.qpn, Arc::clone(&end));
        let entries = shape.in_flight_max + 1;
        let mut request = ConnectRequest::new(shape.queue.0, entries);
        request.controller.set(shape.controller_id);
        let to = ConnectTo {
            address: address.ip(),
            port: address.port(),
            private_data: request.as_bytes(),
        };
        let asked = drive.provider.connect(desk.qpn, &to);
        drop(drive);
        let mut connection = Self {
            port,
            end,
            session: HostSession::new(HostConfig {
                keys: shape.keys,
                in_flight_max: shape.in_flight_max,
                in_capsule_max_bytes: shape.in_capsule_max_bytes,
                in_capsule_batch_max,
            }),
            desk,
            transfers: vec![Transfer::None; usize::from(shape.keys)].into_boxed_slice(),
            is_open: true,
            news: Vec::new(),
            outcomes: Vec::with_capacity(shape.keys.into()),
            ended: Vec::new(),
        };
        asked?;
        let path_mtu = connection.wait_connected(timeout)?;
        if u64::from(path_mtu.bytes()) >= connection.desk.capsule_bytes {
            // Capsules of one packet leave in long runs, too.
            connection.session.set_in_capsule_batch_max(u16::MAX);
        }
        Ok(connection)
    }

    /// Waits until the connection is made; its path MTU.
    fn wait_connected(&mut self, timeout: Duration) -> Result<PathMtu, RdmaError> {
        let io_error = |error: io::Error| RdmaError::Fabric(error.into());
        let deadline = Instant::now() + timeout;
        loop {
            let mut drive = self.port.lock();
            let qpn = self.desk.qpn;
            drive.poll(Wait::Poll, Some(qpn)).map_err(io_error)?;
            drive.take_news(qpn, &mut self.news);
            drop(drive);
            for news in self.news.drain(..) {
                if let News::Event(event) = news
                    && let Some(path_mtu) = on_connecting(&event)?
                {
                    return Ok(path_mtu);
                }
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(RdmaError::Unreachable);
            }
            self.port
                .doze(qpn, &self.end, None, left)
                .map_err(io_error)?;
        }
    }

    /// Takes in what came.
    fn handle(
        &mut self,
        provider: &mut dyn HostProvider,
        news: &News,
        buffers: &mut Buffers,
    ) -> Result<(), ConnectionError> {
        let completion = match news {
            News::Completion(completion) => completion,
            News::Event(Event::QpFailed { failure, .. }) => {
                return Err(ConnectionError::QueuePair(*failure));
            }
            News::Event(Event::Disconnected { .. }) => return Err(ConnectionError::Closed),
            News::Event(_) => return Ok(()),
        };
        match (completion.status, completion.kind) {
            (WorkStatus::Success, WorkKind::Recv) => {
                self.on_message(provider, completion, buffers)?;
            }
            (WorkStatus::Success, _) => {
                if let Some(key) = completion.id.0.checked_sub(CAPSULES_FROM) {
                    self.desk.capsules_sent[key as usize] = true;
                }
                return Ok(());
            }
            // An event says why.
            _ => return Ok(()),
        }
        for outcome in self.ended.drain(..) {
            let transfer = self.transfers[usize::from(outcome.key.0)];
            let transfer = match transfer {
                Transfer::ToHost(_) if !outcome.status.is_success() => Transfer::None,
                _ => transfer,
            };
            self.desk.unstage(provider, transfer, buffers);
            self.desk.give_back(provider, outcome.key, buffers);
            self.outcomes.push(outcome);
        }
        Ok(())
    }

    fn on_message(
        &mut self,
        provider: &mut dyn HostProvider,
        completion: &Completion,
        buffers: &mut Buffers,
    ) -> Result<(), ConnectionError> {
        let index = completion.id.0;
        let mut message = [0; RESPONSE_BYTES as usize];
        let len_bytes = message.len().min(completion.len_bytes as usize);
        // Copied, so that it stays what it was while it is judged, and the receive can be posted again.
        let from = (index * RESPONSE_BYTES) as usize;
        let receives = provider.bytes(self.desk.receives);
        message[..len_bytes].copy_from_slice(&receives[from..from + len_bytes]);
        let invalidated = completion.invalidated.map(|key| RemoteKey(key.0));
        let mut work = AtWork {
            desk: &mut self.desk,
            provider,
            buffers,
        };
        let message = &message[..len_bytes];
        self.session
            .handle_message(message, invalidated, &mut work, &mut self.ended)
            .map_err(ConnectionError::RdmaProtocol)?;
        // It fails only where the queue pair has failed, of which an event tells.
        let _ = provider.post_recv(self.desk.qpn, self.desk.receive(index));
        Ok(())
    }
}

impl NvmeConnection for RdmaConnection {
    #[inline]
    fn submit(&mut self, key: CommandKey, command: &Command, _: &Buffers) -> Result<(), NoRoom> {
        self.session.submit(key, command)?;
        self.transfers[usize::from(key.0)] = command.transfer;
        Ok(())
    }

    fn room(&self) -> u16 {
        self.session.room()
    }

    fn turn(&mut self, buffers: &mut Buffers) -> Result<(), ConnectionError> {
        if self.end.is_severed() {
            return Err(ConnectionError::Closed);
        }
        let port = Arc::clone(&self.port);
        let mut drive = port.lock();
        self.transmit(&mut drive, buffers);
        drive.poll(Wait::Poll, Some(self.desk.qpn))?;
        drive.take_news(self.desk.qpn, &mut self.news);
        if self.news.is_empty() {
            return Ok(());
        }
        let mut news = std::mem::take(&mut self.news);
        let handled = news
            .drain(..)
            .try_for_each(|news| self.handle(drive.provider.as_mut(), &news, buffers));
        self.news = news;
        self.transmit(&mut drive, buffers);
        handled
    }

    fn outcomes(&mut self) -> &mut Vec<Outcome> {
        &mut self.outcomes
    }

    fn handle(&self) -> Weak<dyn Sever> {
        let end: Arc<dyn Sever> = Arc::<End>::clone(&self.end);
        Arc::downgrade(&end)
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.end.waker.descriptor()
    }

    fn doze(&self, also: Option<BorrowedFd<'_>>, timeout: Duration) -> io::Result<()> {
        self.port.doze(self.desk.qpn, &self.end, also, timeout)
    }
}

impl RdmaConnection {
    #[inline]
    fn transmit(&mut self, drive: &mut Drive, buffers: &mut Buffers) {
        if self.session.wants_transmit() {
            self.desk.is_alone = self.session.in_flight() == 1;
            self.session.poll_transmit(&mut AtWork {
                desk: &mut self.desk,
                provider: drive.provider.as_mut(),
                buffers,
            });
        }
    }
}

impl RdmaConnection {
    /// The connection is over: the peer is told, and what it has of the queue's buffers goes back to `buffers`.
    pub(crate) fn end(&mut self, buffers: &mut Buffers) {
        if !std::mem::take(&mut self.is_open) {
            return;
        }
        let mut drive = self.port.lock();
        let provider = drive.provider.as_mut();
        self.session.handle_close(&mut AtWork {
            desk: &mut self.desk,
            provider,
            buffers,
        });
        self.desk.close(provider, buffers);
        drive.leave(self.desk.qpn);
        // Where this gets lost, the peer finds out by itself.
        let _ = drive.poll(Wait::Poll, None);
    }
}

impl Drop for RdmaConnection {
    fn drop(&mut self) {
        // The queue's buffers go with it.
        let slots = self.desk.slots;
        self.end(&mut Buffers::new(slots, 0));
    }
}

impl fmt::Debug for RdmaConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RdmaConnection")
            .field("qpn", &self.desk.qpn)
            .field("in_flight", &self.session.in_flight())
            .finish_non_exhaustive()
    }
}

impl Desk {
    /// A queue pair with its memory, whose receives are posted.
    fn open(
        provider: &mut dyn HostProvider,
        domain: ProtectionDomain,
        shape: &QueueShape,
    ) -> Result<Self, RdmaError> {
        let entries = shape.in_flight_max + 1;
        let slot_bytes = shape.slot_bytes.next_multiple_of(64);
        let capsule_bytes = SQE_BYTES + u64::from(shape.in_capsule_max_bytes);
        let qpn = provider.create_qp(QpConfig {
            domain,
            access: Access {
                read: true,
                write: true,
                invalidate: true,
                atomic: false,
            },
            // Those of commands that were answered may not be acknowledged yet.
            send_depth: shape.keys.saturating_mul(2).max(SENDS_MIN),
            recv_depth: entries,
            responder_resources: READS_MAX,
            initiator_depth: 0,
            ..QpConfig::default()
        })?;
        let lends_memory = provider.software().is_some();
        let mut taken = Vec::new();
        let mut allocate = |len_bytes: u64| {
            let region = provider.allocate(len_bytes as usize)?;
            taken.push(region);
            Ok::<_, FabricError>(region)
        };
        let allocated = allocate(u64::from(shape.keys) * capsule_bytes).and_then(|capsules| {
            let receives = allocate(u64::from(entries) * RESPONSE_BYTES)?;
            let data = if lends_memory {
                DataMemory::Lent {
                    loans: (0..shape.slots).map(|_| None).collect(),
                    holders: vec![None; shape.keys.into()].into_boxed_slice(),
                }
            } else {
                let len_bytes = u64::from(shape.slots) * slot_bytes as u64;
                DataMemory::Staged(allocate(len_bytes)?)
            };
            Ok((data, capsules, receives))
        });
        let (data, capsules, receives) = match allocated {
            Ok(regions) => regions,
            Err(error) => {
                provider.destroy_qp(qpn);
                for region in taken {
                    provider.release(region);
                }
                return Err(error.into());
            }
        };
        let desk = Self {
            qpn,
            domain,
            data,
            slots: shape.slots,
            slot_bytes: slot_bytes as u64,
            capsules,
            capsule_bytes,
            capsules_sent: vec![true; shape.keys.into()].into_boxed_slice(),
            receives,
            is_alone: true,
        };
        for index in 0..u64::from(entries) {
            match provider.post_recv(qpn, desk.receive(index)) {
                // Where it has failed, as for want of memory to pin, the connection can't be asked for.
                Ok(()) | Err(PostError::Failed) => {}
                Err(error) => panic!("a new queue pair has room for its receives: {error}"),
            }
        }
        Ok(desk)
    }

    fn close(&mut self, provider: &mut dyn HostProvider, buffers: &mut Buffers) {
        provider.destroy_qp(self.qpn);
        provider.release(self.capsules);
        provider.release(self.receives);
        match &mut self.data {
            DataMemory::Staged(region) => provider.release(*region),
            DataMemory::Lent { loans, .. } => {
                for (slot, loan) in (0..).zip(loans) {
                    take_back(provider, slot, loan, buffers);
                }
            }
        }
    }

    /// The address by which the controller knows a place in the buffers.
    fn address(&self, range: BufferRange) -> u64 {
        ADDRESSES_FROM + u64::from(range.slot) * self.slot_bytes + u64::from(range.offset)
    }

    fn receive(&self, index: u64) -> RecvRequest {
        RecvRequest {
            id: WorkId(index),
            into: place(self.receives, index * RESPONSE_BYTES, RESPONSE_BYTES),
        }
    }

    /// Where the provider finds the data of command `key`, which is about to be posted; `None` where it takes none of them.
    fn reach(
        &mut self,
        provider: &mut dyn HostProvider,
        key: CommandKey,
        range: BufferRange,
        buffers: &mut Buffers,
    ) -> Option<Placement> {
        let (loans, holders) = match &mut self.data {
            DataMemory::Staged(region) => {
                let offset = u64::from(range.slot) * self.slot_bytes + u64::from(range.offset);
                return Some(place(*region, offset, range.len_bytes.into()));
            }
            DataMemory::Lent { loans, holders } => (loans, holders),
        };
        let slot = &mut loans[usize::from(range.slot)];
        if slot.is_none() {
            let provider = provider.software()?;
            let SlotMemory { bytes, start } = buffers.take(range.slot);
            *slot = Some(Loan {
                region: provider.lend(bytes),
                start,
                users: 0,
            });
        }
        let loan = slot.as_mut()?;
        let holder = &mut holders[usize::from(key.0)];
        if holder.replace(range.slot).is_none() {
            loan.users += 1;
        }
        let offset = loan.start as u64 + u64::from(range.offset);
        Some(place(loan.region, offset, range.len_bytes.into()))
    }

    /// Copies what a command has brought to where its caller looks for it, where it was staged.
    fn unstage(&self, provider: &dyn HostProvider, transfer: Transfer, buffers: &mut Buffers) {
        if let (DataMemory::Staged(region), Transfer::ToHost(range)) = (&self.data, transfer) {
            let start = u64::from(range.slot) * self.slot_bytes + u64::from(range.offset);
            let staged = &provider.bytes(*region)[start as usize..];
            let staged = &staged[..range.len_bytes as usize];
            buffers.range_mut(range).copy_from_slice(staged);
        }
    }

    /// Command `key` has ended, and its key to memory is closed: its buffer is the caller's again.
    fn give_back(
        &mut self,
        provider: &mut dyn HostProvider,
        key: CommandKey,
        buffers: &mut Buffers,
    ) {
        let DataMemory::Lent { loans, holders } = &mut self.data else {
            return;
        };
        let Some(slot) = holders[usize::from(key.0)].take() else {
            return;
        };
        let loan = &mut loans[usize::from(slot)];
        let is_last = loan.as_mut().is_some_and(|loan| {
            loan.users -= 1;
            loan.users == 0
        });
        if is_last {
            take_back(provider, slot, loan, buffers);
        }
    }
}

/// The buffer of a slot goes back to where it came from.
fn take_back(
    provider: &mut dyn HostProvider,
    slot: u16,
    loan: &mut Option<Loan>,
    buffers: &mut Buffers,
) {
    if let Some(Loan { region, start, .. }) = loan.take() {
        let bytes = provider.software().and_then(|soft| soft.take_back(region));
        let bytes = bytes.expect("what was lent is there until it is taken back");
        buffers.put_back(slot, SlotMemory { bytes, start });
    }
}

impl HostWork for AtWork<'_> {
    fn open(&mut self, key: CommandKey, range: BufferRange, reach: Reach) -> Option<RemoteBuffer> {
        let placement = self.desk.reach(self.provider, key, range, self.buffers)?;
        if let (DataMemory::Staged(_), Reach::Read) = (&self.desk.data, reach) {
            copy(self.provider, placement, self.buffers.range(range));
        }
        let region = Region {
            domain: self.desk.domain,
            placement,
            base_va: self.desk.address(range),
            access: Access {
                read: reach == Reach::Read,
                write: reach == Reach::Write,
                invalidate: true,
                atomic: false,
            },
        };
        let remote = self.provider.register(region).ok()?;
        Some(RemoteBuffer {
            address: remote.va,
            key: RemoteKey(remote.rkey.0),
            len_bytes: range.len_bytes,
        })
    }

    fn close(&mut self, key: RemoteKey) {
        self.provider.invalidate(Rkey(key.0));
    }

    fn send(&mut self, key: CommandKey, sqe: &Sqe, data: Option<BufferRange>) -> bool {
        let (id, data) = match data {
            None => (key.0.into(), Inline::new(sqe.as_bytes()).map(Data::Inline)),
            Some(range) => {
                if !self.desk.capsules_sent[usize::from(key.0)] {
                    return false;
                }
                let at = u64::from(key.0) * self.desk.capsule_bytes;
                let len = SQE_BYTES + u64::from(range.len_bytes);
                let capsule = place(self.desk.capsules, at, len);
                let behind = place(self.desk.capsules, at + SQE_BYTES, range.len_bytes.into());
                copy(self.provider, capsule, sqe.as_bytes());
                copy(self.provider, behind, self.buffers.range(range));
                let id = CAPSULES_FROM + u64::from(key.0);
                (id, Gather::new(&[capsule]).ok().map(Data::Gather))
            }
        };
        let Some(data) = data else {
            return false;
        };
        // Where more commands are in flight, acknowledgements of their capsules come now and then, which is often enough.
        let signal = if id >= CAPSULES_FROM || self.desk.is_alone {
            Signal::Always
        } else {
            Signal::OnError
        };
        let request = SendRequest {
            id: WorkId(id),
            op: SendOp::Send(data),
            signal,
        };
        let is_posted = self.provider.post_send(self.desk.qpn, request).is_ok();
        if is_posted && id >= CAPSULES_FROM {
            self.desk.capsules_sent[usize::from(key.0)] = false;
        }
        is_posted
    }
}

/// Copies bytes to the start of memory of the provider's.
fn copy(provider: &mut dyn HostProvider, to: Placement, bytes: &[u8]) {
    let start = to.range.offset as usize;
    provider.bytes_mut(to.region)[start..start + bytes.len()].copy_from_slice(bytes);
}

fn place(region: RegionId, offset: u64, len: u64) -> Placement {
    Placement {
        region,
        range: ByteRange { offset, len },
    }
}

/// The path MTU of a connection that was asked for, where it is made.
fn on_connecting(event: &Event) -> Result<Option<PathMtu>, RdmaError> {
    match event {
        Event::Connected {
            private_data,
            path_mtu,
            ..
        } => {
            if ConnectReply::parse(private_data).is_none() {
                return Err(RdmaError::Reply {
                    len_bytes: private_data.len(),
                });
            }
            Ok(Some(*path_mtu))
        }
        Event::Rejected {
            reason,
            private_data,
            ..
        } => {
            let said = ConnectReject::parse(private_data);
            let status = said
                .filter(|_| *reason == RejReason::CONSUMER)
                .map(|said| said.status.get());
            Err(RdmaError::Rejected(Rejection {
                reason: *reason,
                status,
            }))
        }
        Event::Unreachable { .. } => Err(RdmaError::Unreachable),
        Event::QpFailed { failure, .. } => Err(RdmaError::Failed(*failure)),
        _ => Ok(None),
    }
}
