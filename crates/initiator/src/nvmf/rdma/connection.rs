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
    Access, Completion, Data, Event, Gather, Inline, MemoryId, MemoryRange, PathMtu, PostError,
    ProtectionDomain, QpConfig, Qpn, RecvRequest, Region, RejReason, Rkey, SendOp, SendRequest,
    Signal, WorkId, WorkKind, WorkStatus,
};
use fabric::{ConnectTo, FabricError, Wait};
use nvme::host::{Command, CommandKey, NoRoom, Outcome, Transfer};
use nvme::rdma::wire::{ConnectReject, ConnectReply, ConnectRequest};
use nvme::rdma::{HostConfig, HostSession, HostWork, Reach};
use nvme::wire::Sqe;
use session::{BufferRange, Buffers, RemoteBuffer, RemoteKey, SlotMemory};
use zerocopy::IntoBytes as _;

use super::locked_provider::{LockedProvider, Notification, ProviderState, RdmaConnectionHandle};
use super::provider::HostProvider;
use crate::nvmf::transport::{NvmeConnection, QueueShape};
use crate::queue_connection::ConnectionHandle;
use crate::{ConnectionError, RdmaError, Rejection};

/// A queue pair and its session.
pub(crate) struct RdmaConnection {
    provider: Arc<LockedProvider>,
    handle: Arc<RdmaConnectionHandle>,
    resources: QpResources,
    session: HostSession,
    /// By key: the data of the command.
    transfers: Box<[Transfer]>,
    is_open: bool,
    notifications: Vec<Notification>,
    outcomes: Vec<Outcome>,
    ended: Vec<Outcome>,
}

/// A queue pair and the memory that its work uses.
struct QpResources {
    qpn: Qpn,
    domain: ProtectionDomain,
    data: DataMemory,
    slots: u16,
    slot_bytes: u64,
    /// Command capsules by key, one after the other.
    capsules: MemoryId,
    capsule_bytes: u64,
    /// By key: whether the last send of the capsule has completed.
    capsules_sent: Box<[bool]>,
    /// Receives, one after the other.
    receives: MemoryId,
    /// Whether the command that is being posted is the only one in flight.
    is_alone: bool,
}

/// Where the data of commands in flight are.
enum DataMemory {
    /// In the queue's buffers, which the provider borrows for the time of the command.
    Lent {
        /// By slot.
        lent: Box<[Option<LentSlot>]>,
        /// By key: the slot whose buffer its command uses.
        holders: Box<[Option<u16>]>,
    },
    /// In memory that the provider has allocated, slot by slot. Data are copied between it and the
    /// buffers, since adapters reach no other memory.
    Staged(MemoryId),
}

/// A slot's buffer that the provider borrows.
struct LentSlot {
    region: MemoryId,
    /// The offset of the buffer in the registered memory.
    start: usize,
    /// Commands in flight that use the buffer. A fused pair has two.
    users: u8,
}

/// What posting work needs: the queue pair, the provider and the queue's buffers.
struct WorkContext<'a> {
    resources: &'a mut QpResources,
    provider: &'a mut dyn HostProvider,
    buffers: &'a mut Buffers,
}

const RESPONSE_BYTES: u64 = HostSession::RESPONSE_BYTES as u64;
const SQE_BYTES: u64 = size_of::<Sqe>() as u64;
/// Work IDs from here on are capsules with data, by key; work IDs below are capsules without data.
const CAPSULES_FROM: u64 = 1 << 16;
/// Commands with in-capsule data that are posted at once if software makes the packets and a
/// capsule takes several. With an adapter the order makes no difference.
const IN_CAPSULE_BATCH_MAX: u16 = 4;
/// The minimum depth of the send queue, for capsules that are not yet acknowledged.
const SENDS_MIN: u16 = 64;
/// Concurrent RDMA READs of a peer. An adapter may support fewer.
const READS_MAX: u8 = 64;
/// The lowest address that is advertised to the controller. Some controllers treat 0 as no address.
const ADDRESSES_FROM: u64 = 1 << 32;

impl RdmaConnection {
    /// Connects to `address` and waits until the connection is established.
    pub(super) fn connect(
        shared: Arc<LockedProvider>,
        address: SocketAddr,
        shape: &QueueShape,
        timeout: Duration,
    ) -> Result<Self, RdmaError> {
        let handle = shared.new_handle()?;
        let domain = shared.domain();
        let mut state = shared.lock();
        let provider = state.provider.as_mut();
        let in_capsule_batch_max = if provider.software().is_some() {
            IN_CAPSULE_BATCH_MAX
        } else {
            u16::MAX
        };
        let resources = QpResources::open(provider, domain, shape)?;
        state.add(resources.qpn, Arc::clone(&handle));
        let entries = shape.in_flight_max + 1;
        let mut request = ConnectRequest::new(shape.queue.0, entries);
        request.controller.set(shape.controller_id);
        let to = ConnectTo {
            address: address.ip(),
            port: address.port(),
            private_data: request.as_bytes(),
        };
        let asked = state.provider.connect(resources.qpn, &to);
        drop(state);
        let mut connection = Self {
            provider: shared,
            handle,
            session: HostSession::new(HostConfig {
                keys: shape.keys,
                in_flight_max: shape.in_flight_max,
                in_capsule_max_bytes: shape.in_capsule_max_bytes,
                in_capsule_batch_max,
            }),
            resources,
            transfers: vec![Transfer::None; usize::from(shape.keys)].into_boxed_slice(),
            is_open: true,
            notifications: Vec::new(),
            outcomes: Vec::with_capacity(shape.keys.into()),
            ended: Vec::new(),
        };
        asked?;
        let path_mtu = connection.wait_connected(timeout)?;
        if u64::from(path_mtu.bytes()) >= connection.resources.capsule_bytes {
            // Each capsule is one packet, so that the order makes no difference.
            connection.session.set_in_capsule_batch_max(u16::MAX);
        }
        Ok(connection)
    }

    /// Waits until the connection is established. Returns its path MTU.
    fn wait_connected(&mut self, timeout: Duration) -> Result<PathMtu, RdmaError> {
        let io_error = |error: io::Error| RdmaError::Fabric(error.into());
        let deadline = Instant::now() + timeout;
        loop {
            let mut state = self.provider.lock();
            let qpn = self.resources.qpn;
            state.poll(Wait::Poll, Some(qpn)).map_err(io_error)?;
            state.take_notifications(qpn, &mut self.notifications);
            drop(state);
            for notifications in self.notifications.drain(..) {
                if let Notification::Event(event) = notifications
                    && let Some(path_mtu) = on_connecting(&event)?
                {
                    return Ok(path_mtu);
                }
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(RdmaError::Unreachable);
            }
            self.provider
                .wait_input(qpn, &self.handle, None, left)
                .map_err(io_error)?;
        }
    }

    /// Handles a completion or an event.
    fn handle(
        &mut self,
        provider: &mut dyn HostProvider,
        notifications: &Notification,
        buffers: &mut Buffers,
    ) -> Result<(), ConnectionError> {
        let completion = match notifications {
            Notification::Completion(completion) => completion,
            Notification::Event(Event::QpFailed { failure, .. }) => {
                return Err(ConnectionError::QueuePair(*failure));
            }
            Notification::Event(Event::Disconnected { .. }) => return Err(ConnectionError::Closed),
            Notification::Event(_) => return Ok(()),
        };
        match (completion.status, completion.kind) {
            (WorkStatus::Success, WorkKind::Recv) => {
                self.on_message(provider, completion, buffers)?;
            }
            (WorkStatus::Success, _) => {
                if let Some(key) = completion.id.0.checked_sub(CAPSULES_FROM) {
                    self.resources.capsules_sent[key as usize] = true;
                }
                return Ok(());
            }
            // An event with the reason follows.
            _ => return Ok(()),
        }
        for outcome in self.ended.drain(..) {
            let transfer = self.transfers[usize::from(outcome.key.0)];
            let transfer = match transfer {
                Transfer::ToHost(_) if !outcome.status.is_success() => Transfer::None,
                _ => transfer,
            };
            self.resources.unstage(provider, transfer, buffers);
            self.resources.release_slot(provider, outcome.key, buffers);
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
        // The copy cannot change while it is checked, and the receive can be posted again.
        let from = (index * RESPONSE_BYTES) as usize;
        let receives = provider.bytes(self.resources.receives);
        message[..len_bytes].copy_from_slice(&receives[from..from + len_bytes]);
        let invalidated = completion.invalidated.map(|key| RemoteKey(key.0));
        let mut work = WorkContext {
            resources: &mut self.resources,
            provider,
            buffers,
        };
        let message = &message[..len_bytes];
        self.session
            .handle_message(message, invalidated, &mut work, &mut self.ended)
            .map_err(ConnectionError::RdmaProtocol)?;
        // It fails only if the queue pair has failed, which an event reports.
        let _ = provider.post_recv(self.resources.qpn, self.resources.receive(index));
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
        if self.handle.is_closed() {
            return Err(ConnectionError::Closed);
        }
        let shared = Arc::clone(&self.provider);
        let mut state = shared.lock();
        self.transmit(&mut state, buffers);
        state.poll(Wait::Poll, Some(self.resources.qpn))?;
        state.take_notifications(self.resources.qpn, &mut self.notifications);
        if self.notifications.is_empty() {
            return Ok(());
        }
        let mut notifications = std::mem::take(&mut self.notifications);
        let handled = notifications.drain(..).try_for_each(|notifications| {
            self.handle(state.provider.as_mut(), &notifications, buffers)
        });
        self.notifications = notifications;
        self.transmit(&mut state, buffers);
        handled
    }

    fn outcomes(&mut self) -> &mut Vec<Outcome> {
        &mut self.outcomes
    }

    fn handle(&self) -> Weak<dyn ConnectionHandle> {
        let handle: Arc<dyn ConnectionHandle> = Arc::<RdmaConnectionHandle>::clone(&self.handle);
        Arc::downgrade(&handle)
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.handle.waker.descriptor()
    }

    fn signals(&self) -> bool {
        false
    }

    fn release_buffers(&mut self, buffers: &mut Buffers) {
        self.close(buffers);
    }

    fn wait_input(&self, also: Option<BorrowedFd<'_>>, timeout: Duration) -> io::Result<()> {
        self.provider
            .wait_input(self.resources.qpn, &self.handle, also, timeout)
    }
}

impl RdmaConnection {
    #[inline]
    fn transmit(&mut self, state: &mut ProviderState, buffers: &mut Buffers) {
        if self.session.wants_transmit() {
            self.resources.is_alone = self.session.in_flight() == 1;
            self.session.poll_transmit(&mut WorkContext {
                resources: &mut self.resources,
                provider: state.provider.as_mut(),
                buffers,
            });
        }
    }
}

impl RdmaConnection {
    /// Disconnects, and returns the registered buffers to `buffers`.
    fn close(&mut self, buffers: &mut Buffers) {
        if !std::mem::take(&mut self.is_open) {
            return;
        }
        let mut state = self.provider.lock();
        let provider = state.provider.as_mut();
        self.session.handle_close(&mut WorkContext {
            resources: &mut self.resources,
            provider,
            buffers,
        });
        self.resources.close(provider, buffers);
        state.remove(self.resources.qpn);
        // If the disconnect is lost, the peer times out.
        let _ = state.poll(Wait::Poll, None);
    }
}

impl Drop for RdmaConnection {
    fn drop(&mut self) {
        // The registered buffers are dropped with the queue.
        let slots = self.resources.slots;
        self.close(&mut Buffers::new(slots, 0));
    }
}

impl fmt::Debug for RdmaConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RdmaConnection")
            .field("qpn", &self.resources.qpn)
            .field("in_flight", &self.session.in_flight())
            .finish_non_exhaustive()
    }
}

impl QpResources {
    /// Creates a queue pair with its memory and posts its receives.
    fn open(
        provider: &mut dyn HostProvider,
        domain: ProtectionDomain,
        shape: &QueueShape,
    ) -> Result<Self, RdmaError> {
        let entries = shape.in_flight_max + 1;
        let qpn = provider.create_qp(QpConfig {
            domain,
            access: Access {
                read: true,
                write: true,
                invalidate: true,
                atomic: false,
            },
            // Capsules of completed commands may not be acknowledged yet.
            send_depth: shape.keys.saturating_mul(2).max(SENDS_MIN),
            recv_depth: entries,
            responder_resources: READS_MAX,
            initiator_depth: 0,
            ..QpConfig::default()
        })?;
        let (data, capsules, receives) = match allocate(provider, shape) {
            Ok(memory) => memory,
            Err(error) => {
                provider.destroy_qp(qpn);
                return Err(error.into());
            }
        };
        let resources = Self {
            qpn,
            domain,
            data,
            slots: shape.slots,
            slot_bytes: slot_bytes(shape),
            capsules,
            capsule_bytes: capsule_bytes(shape),
            capsules_sent: vec![true; shape.keys.into()].into_boxed_slice(),
            receives,
            is_alone: true,
        };
        for index in 0..u64::from(entries) {
            match provider.post_recv(qpn, resources.receive(index)) {
                // If the queue pair has failed, for example because memory could not be pinned,
                // connecting reports it.
                Ok(()) | Err(PostError::Failed) => {}
                Err(error) => panic!("a new queue pair has room for its receives: {error}"),
            }
        }
        Ok(resources)
    }

    fn close(&mut self, provider: &mut dyn HostProvider, buffers: &mut Buffers) {
        provider.destroy_qp(self.qpn);
        provider.release(self.capsules);
        provider.release(self.receives);
        match &mut self.data {
            DataMemory::Staged(region) => provider.release(*region),
            DataMemory::Lent { lent, .. } => {
                for (slot, lent_slot) in (0..).zip(lent) {
                    take_back(provider, slot, lent_slot, buffers);
                }
            }
        }
    }

    /// The address of a range of the buffers, as advertised to the controller.
    fn address(&self, range: BufferRange) -> u64 {
        ADDRESSES_FROM + u64::from(range.slot) * self.slot_bytes + u64::from(range.offset)
    }

    fn receive(&self, index: u64) -> RecvRequest {
        RecvRequest {
            id: WorkId(index),
            into: place(self.receives, index * RESPONSE_BYTES, RESPONSE_BYTES),
        }
    }

    /// Returns where the provider finds the data of command `key`, which is about to be posted.
    /// Lends the slot's buffer to the provider if necessary.
    fn placement_of(
        &mut self,
        provider: &mut dyn HostProvider,
        key: CommandKey,
        range: BufferRange,
        buffers: &mut Buffers,
    ) -> Option<MemoryRange> {
        let (lent, holders) = match &mut self.data {
            DataMemory::Staged(region) => {
                let offset = u64::from(range.slot) * self.slot_bytes + u64::from(range.offset);
                return Some(place(*region, offset, range.len_bytes.into()));
            }
            DataMemory::Lent { lent, holders } => (lent, holders),
        };
        let slot = &mut lent[usize::from(range.slot)];
        if slot.is_none() {
            let provider = provider.software()?;
            let SlotMemory { bytes, start } = buffers.take(range.slot);
            *slot = Some(LentSlot {
                region: provider.lend(bytes),
                start,
                users: 0,
            });
        }
        let lent_slot = slot.as_mut()?;
        let holder = &mut holders[usize::from(key.0)];
        if holder.replace(range.slot).is_none() {
            lent_slot.users += 1;
        }
        let offset = lent_slot.start as u64 + u64::from(range.offset);
        Some(place(lent_slot.region, offset, range.len_bytes.into()))
    }

    /// Copies staged data that a command has read to the caller's buffer.
    fn unstage(&self, provider: &dyn HostProvider, transfer: Transfer, buffers: &mut Buffers) {
        if let (DataMemory::Staged(region), Transfer::ToHost(range)) = (&self.data, transfer) {
            let start = u64::from(range.slot) * self.slot_bytes + u64::from(range.offset);
            let staged = &provider.bytes(*region)[start as usize..];
            let staged = &staged[..range.len_bytes as usize];
            buffers.range_mut(range).copy_from_slice(staged);
        }
    }

    /// Takes the buffer of command `key` back from the provider, after its memory key was
    /// invalidated.
    fn release_slot(
        &mut self,
        provider: &mut dyn HostProvider,
        key: CommandKey,
        buffers: &mut Buffers,
    ) {
        let DataMemory::Lent { lent, holders } = &mut self.data else {
            return;
        };
        let Some(slot) = holders[usize::from(key.0)].take() else {
            return;
        };
        let lent_slot = &mut lent[usize::from(slot)];
        let is_last = lent_slot.as_mut().is_some_and(|lent_slot| {
            lent_slot.users -= 1;
            lent_slot.users == 0
        });
        if is_last {
            take_back(provider, slot, lent_slot, buffers);
        }
    }
}

/// Bytes of each slot's buffer in staged memory.
fn slot_bytes(shape: &QueueShape) -> u64 {
    shape.slot_bytes.next_multiple_of(64) as u64
}

/// Bytes of each command capsule.
fn capsule_bytes(shape: &QueueShape) -> u64 {
    SQE_BYTES + u64::from(shape.in_capsule_max_bytes)
}

/// Allocates the memory of a queue pair: for data, capsules and receives. Frees it again on
/// failure.
fn allocate(
    provider: &mut dyn HostProvider,
    shape: &QueueShape,
) -> Result<(DataMemory, MemoryId, MemoryId), FabricError> {
    let lends_memory = provider.software().is_some();
    let mut allocated = Vec::new();
    let mut allocate = |len_bytes: u64| -> Result<MemoryId, FabricError> {
        let memory = provider.allocate(len_bytes as usize)?;
        allocated.push(memory);
        Ok(memory)
    };
    let mut allocate_all = || {
        let capsules = allocate(u64::from(shape.keys) * capsule_bytes(shape))?;
        let receives = allocate(u64::from(shape.in_flight_max + 1) * RESPONSE_BYTES)?;
        let data = if lends_memory {
            DataMemory::Lent {
                lent: (0..shape.slots).map(|_| None).collect(),
                holders: vec![None; shape.keys.into()].into_boxed_slice(),
            }
        } else {
            DataMemory::Staged(allocate(u64::from(shape.slots) * slot_bytes(shape))?)
        };
        Ok((data, capsules, receives))
    };
    let result = allocate_all();
    if result.is_err() {
        for memory in allocated {
            provider.release(memory);
        }
    }
    result
}

/// Takes the buffer of a slot back from the provider.
fn take_back(
    provider: &mut dyn HostProvider,
    slot: u16,
    lent_slot: &mut Option<LentSlot>,
    buffers: &mut Buffers,
) {
    if let Some(LentSlot { region, start, .. }) = lent_slot.take() {
        let bytes = provider.software().and_then(|soft| soft.take_back(region));
        let bytes = bytes.expect("what was lent is there until it is taken back");
        buffers.put_back(slot, SlotMemory { bytes, start });
    }
}

impl HostWork for WorkContext<'_> {
    fn open(&mut self, key: CommandKey, range: BufferRange, reach: Reach) -> Option<RemoteBuffer> {
        let placement = self
            .resources
            .placement_of(self.provider, key, range, self.buffers)?;
        if let (DataMemory::Staged(_), Reach::Read) = (&self.resources.data, reach) {
            copy(self.provider, placement, self.buffers.range(range));
        }
        let region = Region {
            domain: self.resources.domain,
            placement,
            base_va: self.resources.address(range),
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
                if !self.resources.capsules_sent[usize::from(key.0)] {
                    return false;
                }
                let at = u64::from(key.0) * self.resources.capsule_bytes;
                let len = SQE_BYTES + u64::from(range.len_bytes);
                let capsule = place(self.resources.capsules, at, len);
                let behind = place(
                    self.resources.capsules,
                    at + SQE_BYTES,
                    range.len_bytes.into(),
                );
                copy(self.provider, capsule, sqe.as_bytes());
                copy(self.provider, behind, self.buffers.range(range));
                let id = CAPSULES_FROM + u64::from(key.0);
                (id, Gather::new(&[capsule]).ok().map(Data::Gather))
            }
        };
        let Some(data) = data else {
            return false;
        };
        // With more commands in flight, the acknowledgement of one send covers those before it.
        let signal = if id >= CAPSULES_FROM || self.resources.is_alone {
            Signal::Always
        } else {
            Signal::OnError
        };
        let request = SendRequest {
            id: WorkId(id),
            op: SendOp::Send(data),
            signal,
        };
        let is_posted = self.provider.post_send(self.resources.qpn, request).is_ok();
        if is_posted && id >= CAPSULES_FROM {
            self.resources.capsules_sent[usize::from(key.0)] = false;
        }
        is_posted
    }
}

/// Copies bytes to memory that the provider has allocated.
fn copy(provider: &mut dyn HostProvider, to: MemoryRange, bytes: &[u8]) {
    let start = to.range.offset as usize;
    provider.bytes_mut(to.memory)[start..start + bytes.len()].copy_from_slice(bytes);
}

fn place(memory: MemoryId, offset: u64, len: u64) -> MemoryRange {
    MemoryRange {
        memory,
        range: ByteRange { offset, len },
    }
}

/// Handles an event of a connection that is being established. Returns its path MTU once it is.
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
