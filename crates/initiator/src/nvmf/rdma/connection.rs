//! A queue pair and the session that speaks over it.

use std::{
    fmt, io,
    net::SocketAddr,
    os::fd::BorrowedFd,
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use block::{BufferRange, Buffers, ByteRange, Placement, RegionId, RemoteBuffer, RemoteKey};
use fabric::verbs::{
    Access, Completion, Data, Event, Gather, Inline, ProtectionDomain, QpConfig, Qpn, RecvRequest,
    Region, RejReason, Rkey, SendOp, SendRequest, Signal, WorkId, WorkKind, WorkStatus,
};
use fabric::{ConnectTo, FabricError, Provider, Wait};
use nvme::host::{Command, CommandKey, NoRoom, Outcome, Transfer};
use nvme::rdma::wire::{ConnectReject, ConnectReply, ConnectRequest, RECORD_FORMAT};
use nvme::rdma::{HostConfig, HostSession, HostWork, Reach};
use nvme::wire::Sqe;
use zerocopy::{FromBytes as _, IntoBytes as _};

use super::port::{Drive, End, News, Port};
use super::{RdmaError, Rejection};
use crate::ConnectionError;
use crate::mailbox::Sever;
use crate::nvmf::transport::{NvmeConnection, QueueShape};

/// A queue pair with its session. Its data are staged in memory of the provider's: adapters reach no other.
pub(crate) struct RdmaConnection {
    port: Arc<Port>,
    end: Arc<End>,
    desk: Desk,
    session: HostSession,
    /// By key: where the data of a read go.
    reads: Box<[Option<BufferRange>]>,
    news: Vec<News>,
    outcomes: Vec<Outcome>,
    ended: Vec<Outcome>,
}

/// A queue pair and its memory.
struct Desk {
    qpn: Qpn,
    domain: ProtectionDomain,
    /// The queue's buffers, one after the other.
    data: RegionId,
    slot_bytes: u64,
    /// Command capsules by key, one after the other.
    capsules: RegionId,
    capsule_bytes: u64,
    /// Receives, one after the other.
    receives: RegionId,
}

/// A desk at work: with the provider, and the buffers that it stages.
struct AtWork<'a> {
    desk: &'a Desk,
    provider: &'a mut dyn Provider,
    buffers: &'a Buffers,
}

const RESPONSE_BYTES: u64 = HostSession::RESPONSE_BYTES as u64;
const SQE_BYTES: u64 = size_of::<Sqe>() as u64;
/// RDMA READs that are answered at once.
const READS_MAX: u8 = 16;
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
        let desk = Desk::open(drive.provider.as_mut(), domain, shape)?;
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
            }),
            desk,
            reads: vec![None; usize::from(shape.keys)].into_boxed_slice(),
            news: Vec::new(),
            outcomes: Vec::with_capacity(shape.keys.into()),
            ended: Vec::new(),
        };
        asked?;
        connection.wait_connected(timeout)?;
        Ok(connection)
    }

    fn wait_connected(&mut self, timeout: Duration) -> Result<(), RdmaError> {
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
                    && on_connecting(&event)?
                {
                    return Ok(());
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
        provider: &mut dyn Provider,
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
                let key = CommandKey(completion.id.0 as u16);
                self.session.handle_sent(key, &mut self.ended);
            }
            // An event says why.
            _ => return Ok(()),
        }
        // What is named by the keys that were open is not written any more: copied, since the caller's buffers are its own.
        for outcome in self.ended.drain(..) {
            let read = self.reads[usize::from(outcome.key.0)].take();
            if let Some(range) = read.filter(|_| outcome.status.is_success()) {
                let staged = self.desk.staged(provider, range);
                buffers.range_mut(range).copy_from_slice(staged);
            }
            self.outcomes.push(outcome);
        }
        Ok(())
    }

    fn on_message(
        &mut self,
        provider: &mut dyn Provider,
        completion: &Completion,
        buffers: &Buffers,
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
            desk: &self.desk,
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
        self.reads[usize::from(key.0)] = match command.transfer {
            Transfer::ToHost(range) => Some(range),
            Transfer::None | Transfer::ToController(_) => None,
        };
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
    fn transmit(&mut self, drive: &mut Drive, buffers: &Buffers) {
        if self.session.wants_transmit() {
            self.session.poll_transmit(&mut AtWork {
                desk: &self.desk,
                provider: drive.provider.as_mut(),
                buffers,
            });
        }
    }
}

impl Drop for RdmaConnection {
    fn drop(&mut self) {
        let mut drive = self.port.lock();
        self.session.handle_close(&mut AtWork {
            desk: &self.desk,
            provider: drive.provider.as_mut(),
            buffers: &Buffers::new(0, 0),
        });
        drive.leave(self.desk.qpn);
        self.desk.close(drive.provider.as_mut());
        // The peer is told; where that gets lost, it finds out by itself.
        let _ = drive.poll(Wait::Poll, None);
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
        provider: &mut dyn Provider,
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
            send_depth: shape.keys,
            recv_depth: entries,
            responder_resources: READS_MAX,
            initiator_depth: 0,
            ..QpConfig::default()
        })?;
        let mut taken = Vec::new();
        let mut allocate = |len_bytes: u64| {
            let region = provider.allocate(len_bytes as usize)?;
            taken.push(region);
            Ok::<_, FabricError>(region)
        };
        let allocated = allocate(u64::from(shape.slots) * slot_bytes as u64).and_then(|data| {
            let capsules = allocate(u64::from(shape.keys) * capsule_bytes)?;
            Ok((
                data,
                capsules,
                allocate(u64::from(entries) * RESPONSE_BYTES)?,
            ))
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
            slot_bytes: slot_bytes as u64,
            capsules,
            capsule_bytes,
            receives,
        };
        for index in 0..u64::from(entries) {
            let posted = provider.post_recv(qpn, desk.receive(index));
            posted.expect("a new queue pair has room for as many receives as it was made for");
        }
        Ok(desk)
    }

    fn close(&self, provider: &mut dyn Provider) {
        provider.destroy_qp(self.qpn);
        for region in [self.data, self.capsules, self.receives] {
            provider.release(region);
        }
    }

    fn receive(&self, index: u64) -> RecvRequest {
        RecvRequest {
            id: WorkId(index),
            into: place(self.receives, index * RESPONSE_BYTES, RESPONSE_BYTES),
        }
    }

    fn data_place(&self, range: BufferRange) -> Placement {
        let offset = u64::from(range.slot) * self.slot_bytes + u64::from(range.offset);
        place(self.data, offset, range.len_bytes.into())
    }

    fn staged<'p>(&self, provider: &'p dyn Provider, range: BufferRange) -> &'p [u8] {
        let place = self.data_place(range).range;
        &provider.bytes(self.data)[place.offset as usize..(place.offset + place.len) as usize]
    }
}

impl HostWork for AtWork<'_> {
    fn open(&mut self, range: BufferRange, reach: Reach) -> Option<RemoteBuffer> {
        let placement = self.desk.data_place(range);
        if reach == Reach::Read {
            copy(self.provider, placement, self.buffers.range(range));
        }
        let region = Region {
            domain: self.desk.domain,
            placement,
            base_va: ADDRESSES_FROM + placement.range.offset,
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
        let data = match data {
            None => Inline::new(sqe.as_bytes()).map(Data::Inline),
            Some(range) => {
                let at = u64::from(key.0) * self.desk.capsule_bytes;
                let len = SQE_BYTES + u64::from(range.len_bytes);
                let capsule = place(self.desk.capsules, at, len);
                let behind = place(self.desk.capsules, at + SQE_BYTES, range.len_bytes.into());
                copy(self.provider, capsule, sqe.as_bytes());
                copy(self.provider, behind, self.buffers.range(range));
                Gather::new(&[capsule]).ok().map(Data::Gather)
            }
        };
        let Some(data) = data else {
            return false;
        };
        let request = SendRequest {
            id: WorkId(key.0.into()),
            op: SendOp::Send(data),
            signal: Signal::Always,
        };
        self.provider.post_send(self.desk.qpn, request).is_ok()
    }
}

/// Copies bytes to the start of memory of the provider's.
fn copy(provider: &mut dyn Provider, to: Placement, bytes: &[u8]) {
    let start = to.range.offset as usize;
    provider.bytes_mut(to.region)[start..start + bytes.len()].copy_from_slice(bytes);
}

fn place(region: RegionId, offset: u64, len: u64) -> Placement {
    Placement {
        region,
        range: ByteRange { offset, len },
    }
}

/// Whether a connection that was asked for is made.
fn on_connecting(event: &Event) -> Result<bool, RdmaError> {
    match event {
        Event::Connected { private_data, .. } => {
            let reply = ConnectReply::read_from_prefix(private_data).ok();
            let is_known =
                reply.is_some_and(|(reply, _)| reply.record_format.get() == RECORD_FORMAT);
            if !is_known {
                return Err(RdmaError::Reply {
                    len_bytes: private_data.len(),
                });
            }
            Ok(true)
        }
        Event::Rejected {
            reason,
            private_data,
            ..
        } => {
            let said = ConnectReject::read_from_prefix(private_data).ok();
            let status = said
                .filter(|_| *reason == RejReason::CONSUMER)
                .map(|(said, _)| said.status.get());
            Err(RdmaError::Rejected(Rejection {
                reason: *reason,
                status,
            }))
        }
        Event::Unreachable { .. } => Err(RdmaError::Unreachable),
        Event::QpFailed { failure, .. } => Err(RdmaError::Failed(*failure)),
        _ => Ok(false),
    }
}
