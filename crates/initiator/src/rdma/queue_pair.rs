//! A queue pair, the memory that its work uses, and what sessions post to it.

use std::{
    io,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use block::ByteRange;
use fabric::verbs::{
    Access, Data, Event, Gather, Inline, MemoryId, MemoryRange, PathMtu, PostError,
    ProtectionDomain, QpConfig, Qpn, RecvRequest, Region, Rkey, SendOp, SendRequest, Signal,
    WorkId,
};
use fabric::{ConnectTo, FabricError, Wait};
use session::{BufferRange, Buffers, HostWork, Reach, RemoteBuffer, RemoteKey, SlotMemory};

use super::locked_provider::{LockedProvider, Notification, RdmaConnectionHandle};
use super::provider::HostProvider;
use crate::{RdmaError, Rejection};

/// A queue pair that is being connected or is connected.
pub(crate) struct QueuePair {
    pub(super) provider: Arc<LockedProvider>,
    pub(super) handle: Arc<RdmaConnectionHandle>,
    pub(super) resources: QpResources,
    pub(super) notifications: Vec<Notification>,
    is_open: bool,
}

/// What a queue pair is to be like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PairShape {
    /// Keys of commands.
    pub(crate) keys: u16,
    /// The queue's buffers, and their length.
    pub(crate) slots: u16,
    pub(crate) slot_bytes: usize,
    /// Longer messages that are not acknowledged at once, and the length of each.
    pub(crate) messages: u16,
    pub(crate) message_bytes: u32,
    /// Receives to keep posted, and the length of each.
    pub(crate) receives: u16,
    pub(crate) receive_bytes: u32,
}

/// What is known of a connection that has just been made.
#[derive(Debug)]
pub(crate) struct Established {
    pub(crate) private_data: Vec<u8>,
    pub(crate) path_mtu: PathMtu,
    pub(crate) is_software: bool,
}

/// A queue pair's number, and the memory that its work uses.
pub(super) struct QpResources {
    pub(super) qpn: Qpn,
    domain: ProtectionDomain,
    data: DataMemory,
    /// By key: the range that the peer may write.
    reads: Box<[Option<BufferRange>]>,
    pub(super) slots: u16,
    slot_bytes: u64,
    /// Messages that do not fit into a request, one after the other.
    messages: MemoryId,
    message_bytes: u64,
    /// Those that are not in use.
    free: Vec<u16>,
    /// Receives, one after the other.
    pub(super) receives: MemoryId,
    pub(super) receive_bytes: u64,
    /// Whether the command that is being posted is the only one in flight.
    pub(super) is_alone: bool,
}

/// Where the data of commands in flight are.
enum DataMemory {
    /// In the queue's buffers, which the provider borrows for the time of the command.
    Lent {
        /// By slot.
        lent: Box<[Option<BorrowedSlot>]>,
        /// By key: the slot whose buffer its command uses.
        holders: Box<[Option<u16>]>,
    },
    /// In memory that the provider has allocated, slot by slot. Data are copied between it and the
    /// buffers, since adapters reach no other memory.
    Staged(MemoryId),
}

/// A slot's buffer that the provider borrows.
struct BorrowedSlot {
    region: MemoryId,
    /// The offset of the buffer in the registered memory.
    start: usize,
    /// Commands in flight that use the buffer. A fused pair of NVMe has two.
    users: u8,
}

/// What posting work needs: the queue pair, the provider and the queue's buffers.
pub(crate) struct WorkContext<'a> {
    pub(super) resources: &'a mut QpResources,
    pub(super) provider: &'a mut dyn HostProvider,
    pub(super) buffers: &'a mut Buffers,
}

/// Work IDs of sends from here on have a message of that number; those below have none.
const MESSAGES_FROM: u64 = 1 << 16;
/// The minimum depth of the send queue, for messages that are not yet acknowledged.
const SENDS_MIN: u16 = 64;
/// Concurrent RDMA READs of a peer. An adapter may support fewer.
const READS_MAX: u8 = 64;
/// The lowest address that is advertised to the peer. Some controllers treat 0 as no address.
const ADDRESSES_FROM: u64 = 1 << 32;

impl QueuePair {
    /// Connects to `address` and waits until the connection is established.
    pub(super) fn connect(
        shared: Arc<LockedProvider>,
        address: SocketAddr,
        shape: &PairShape,
        private_data: &[u8],
        timeout: Duration,
    ) -> Result<(Self, Established), RdmaError> {
        let handle = shared.new_handle()?;
        let domain = shared.domain();
        let mut state = shared.lock();
        let provider = state.provider.as_mut();
        let is_software = provider.software().is_some();
        let resources = QpResources::open(provider, domain, shape)?;
        state.add(resources.qpn, Arc::clone(&handle));
        let to = ConnectTo {
            address: address.ip(),
            port: address.port(),
            private_data,
        };
        let asked = state.provider.connect(resources.qpn, &to);
        drop(state);
        let mut pair = Self {
            provider: shared,
            handle,
            resources,
            notifications: Vec::new(),
            is_open: true,
        };
        asked?;
        let established = pair.wait_connected(timeout)?;
        Ok((
            pair,
            Established {
                is_software,
                ..established
            },
        ))
    }

    /// Waits until the connection is established. Returns what its peer said.
    fn wait_connected(&mut self, timeout: Duration) -> Result<Established, RdmaError> {
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
                    && let Some(established) = on_connecting(&event)?
                {
                    return Ok(established);
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

    /// Calls `last` if the queue pair is open, disconnects, and returns the registered buffers to
    /// `buffers`.
    pub(super) fn close(&mut self, buffers: &mut Buffers, last: impl FnOnce(&mut WorkContext<'_>)) {
        if !std::mem::take(&mut self.is_open) {
            return;
        }
        let mut state = self.provider.lock();
        let provider = state.provider.as_mut();
        last(&mut WorkContext {
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

impl Drop for QueuePair {
    fn drop(&mut self) {
        // The registered buffers are dropped with the queue.
        let slots = self.resources.slots;
        self.close(&mut Buffers::new(slots, 0), |_| {});
    }
}

impl QpResources {
    /// Creates a queue pair with its memory and posts its receives.
    fn open(
        provider: &mut dyn HostProvider,
        domain: ProtectionDomain,
        shape: &PairShape,
    ) -> Result<Self, RdmaError> {
        let qpn = provider.create_qp(QpConfig {
            domain,
            access: Access {
                read: true,
                write: true,
                invalidate: true,
                atomic: false,
            },
            // Messages of completed commands may not be acknowledged yet.
            send_depth: shape.keys.saturating_mul(2).max(SENDS_MIN),
            recv_depth: shape.receives,
            responder_resources: READS_MAX,
            initiator_depth: 0,
            ..QpConfig::default()
        })?;
        let (data, messages, receives) = match allocate(provider, shape) {
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
            reads: vec![None; shape.keys.into()].into_boxed_slice(),
            slots: shape.slots,
            slot_bytes: slot_bytes(shape),
            messages,
            message_bytes: shape.message_bytes.into(),
            free: (0..shape.messages).collect(),
            receives,
            receive_bytes: shape.receive_bytes.into(),
            is_alone: true,
        };
        for index in 0..u64::from(shape.receives) {
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
        provider.release(self.messages);
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

    /// The address of a range of the buffers, as advertised to the peer.
    fn address(&self, range: BufferRange) -> u64 {
        ADDRESSES_FROM + u64::from(range.slot) * self.slot_bytes + u64::from(range.offset)
    }

    pub(super) fn receive(&self, index: u64) -> RecvRequest {
        let from = index * self.receive_bytes;
        RecvRequest {
            id: WorkId(index),
            into: place(self.receives, from, self.receive_bytes),
        }
    }

    /// A send has completed.
    pub(super) fn handle_sent(&mut self, id: WorkId) {
        if let Some(index) = id.0.checked_sub(MESSAGES_FROM) {
            self.free.push(index as u16);
        }
    }

    /// Command `key` has ended, and its memory key is invalid: its data go back to the caller's
    /// buffer.
    pub(super) fn end(
        &mut self,
        provider: &mut dyn HostProvider,
        key: u16,
        is_success: bool,
        buffers: &mut Buffers,
    ) {
        let read = self.reads[usize::from(key)].take();
        if let (DataMemory::Staged(region), Some(range), true) = (&self.data, read, is_success) {
            let start = u64::from(range.slot) * self.slot_bytes + u64::from(range.offset);
            let staged = &provider.bytes(*region)[start as usize..];
            let staged = &staged[..range.len_bytes as usize];
            buffers.range_mut(range).copy_from_slice(staged);
        }
        self.release_slot(provider, key, buffers);
    }

    /// Returns where the provider finds the data of command `key`, which is about to be posted.
    /// Lends the slot's buffer to the provider if necessary.
    fn placement_of(
        &mut self,
        provider: &mut dyn HostProvider,
        key: u16,
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
            *slot = Some(BorrowedSlot {
                region: provider.lend(bytes),
                start,
                users: 0,
            });
        }
        let lent_slot = slot.as_mut()?;
        let holder = &mut holders[usize::from(key)];
        if holder.replace(range.slot).is_none() {
            lent_slot.users += 1;
        }
        let offset = lent_slot.start as u64 + u64::from(range.offset);
        Some(place(lent_slot.region, offset, range.len_bytes.into()))
    }

    /// Takes the buffer of command `key` back from the provider, after its memory key was
    /// invalidated.
    fn release_slot(&mut self, provider: &mut dyn HostProvider, key: u16, buffers: &mut Buffers) {
        let DataMemory::Lent { lent, holders } = &mut self.data else {
            return;
        };
        let Some(slot) = holders[usize::from(key)].take() else {
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
fn slot_bytes(shape: &PairShape) -> u64 {
    shape.slot_bytes.next_multiple_of(64) as u64
}

/// Allocates the memory of a queue pair: for data, messages and receives. Frees it again on
/// failure.
fn allocate(
    provider: &mut dyn HostProvider,
    shape: &PairShape,
) -> Result<(DataMemory, MemoryId, MemoryId), FabricError> {
    let lends_memory = provider.software().is_some();
    let mut allocated = Vec::new();
    let mut allocate = |count: u16, len_bytes: u64| -> Result<MemoryId, FabricError> {
        let memory = provider.allocate((u64::from(count) * len_bytes) as usize)?;
        allocated.push(memory);
        Ok(memory)
    };
    let mut allocate_all = || {
        let messages = allocate(shape.messages, shape.message_bytes.into())?;
        let receives = allocate(shape.receives, shape.receive_bytes.into())?;
        let data = if lends_memory {
            DataMemory::Lent {
                lent: (0..shape.slots).map(|_| None).collect(),
                holders: vec![None; shape.keys.into()].into_boxed_slice(),
            }
        } else {
            DataMemory::Staged(allocate(shape.slots, slot_bytes(shape))?)
        };
        Ok((data, messages, receives))
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
    lent_slot: &mut Option<BorrowedSlot>,
    buffers: &mut Buffers,
) {
    if let Some(BorrowedSlot { region, start, .. }) = lent_slot.take() {
        let bytes = provider.software().and_then(|soft| soft.take_back(region));
        let bytes = bytes.expect("what was lent is there until it is taken back");
        buffers.put_back(slot, SlotMemory { bytes, start });
    }
}

impl HostWork for WorkContext<'_> {
    fn open(&mut self, key: u16, range: BufferRange, reach: Reach) -> Option<RemoteBuffer> {
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
        self.resources.reads[usize::from(key)] = (reach == Reach::Write).then_some(range);
        Some(RemoteBuffer {
            address: remote.va,
            key: RemoteKey(remote.rkey.0),
            len_bytes: range.len_bytes,
        })
    }

    fn close(&mut self, key: RemoteKey) {
        self.provider.invalidate(Rkey(key.0));
    }

    fn send(&mut self, head: &[u8], data: Option<BufferRange>) -> bool {
        let (id, data) = if let Some(inline) = Inline::new(head).filter(|_| data.is_none()) {
            (0, Some(Data::Inline(inline)))
        } else {
            let Some(&index) = self.resources.free.last() else {
                return false;
            };
            let id = MESSAGES_FROM + u64::from(index);
            (id, self.fill_message(index, head, data))
        };
        let Some(data) = data else {
            return false;
        };
        // With more commands in flight, the acknowledgement of one send covers those before it.
        let signal = if id >= MESSAGES_FROM || self.resources.is_alone {
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
        if is_posted && id >= MESSAGES_FROM {
            self.resources.free.pop();
        }
        is_posted
    }
}

impl WorkContext<'_> {
    /// Copies data that came inside a message to a range of the queue's buffers.
    pub(crate) fn put_data(&mut self, range: BufferRange, data: &[u8]) {
        self.buffers.range_mut(range).copy_from_slice(data);
    }

    /// Copies a message to the memory of message `index`.
    fn fill_message(&mut self, index: u16, head: &[u8], data: Option<BufferRange>) -> Option<Data> {
        let behind = data.map_or(&[][..], |range| self.buffers.range(range));
        let len = (head.len() + behind.len()) as u64;
        assert!(
            len <= self.resources.message_bytes,
            "sessions know how long messages may be"
        );
        let memory = self.resources.messages;
        let at = u64::from(index) * self.resources.message_bytes;
        let bytes = &mut self.provider.bytes_mut(memory)[at as usize..];
        let (to_head, rest) = bytes.split_at_mut(head.len());
        to_head.copy_from_slice(head);
        rest[..behind.len()].copy_from_slice(behind);
        Gather::new(&[place(memory, at, len)])
            .ok()
            .map(Data::Gather)
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

/// Handles an event of a connection that is being established. Returns what the peer said once it
/// is.
fn on_connecting(event: &Event) -> Result<Option<Established>, RdmaError> {
    match event {
        Event::Connected {
            private_data,
            path_mtu,
            ..
        } => Ok(Some(Established {
            private_data: private_data.to_vec(),
            path_mtu: *path_mtu,
            is_software: false,
        })),
        Event::Rejected {
            reason,
            private_data,
            ..
        } => Err(RdmaError::Rejected(Rejection::new(*reason, private_data))),
        Event::Unreachable { .. } => Err(RdmaError::Unreachable),
        Event::QpFailed { failure, .. } => Err(RdmaError::Failed(*failure)),
        _ => Ok(None),
    }
}
