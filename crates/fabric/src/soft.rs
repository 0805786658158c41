//! RoCEv2 in software: crate `roce` on a UDP socket.
//!
//! A round receives everything that waits, then sends all answers, so that one acknowledgement
//! answers a whole run. If the program above has new completions, answers wait for one more round:
//! the program is about to send data, which then leave first, and the acknowledgements behind them.
//! An empty poll of the socket costs as much as handling a packet. So while there is other work,
//! polls that are likely to be empty are skipped (`poll_predictor`), and so is the poll before a
//! sleep if nothing has happened since the last: an arriving packet ends the sleep at once.

mod loopback_probe;
mod memory;
mod poll_predictor;
mod port_share;
mod receive_buffers;
mod route;
mod statistics;
mod steering;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use net::{TooLong, UdpOptions, UdpRun, UdpSocket};
use roce::wire::cm::ServiceId;
use roce::wire::{Ipv4Identification, PathMtu, UDP_PORT};
use roce::{
    ConnectParams, Connection, Endpoint, EndpointConfig, Flow, Piece, Received, TransmitList,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::FabricError;
use crate::provider::{ConnectTo, PeerQp, Provider, RETRIES, Wait};
use crate::verbs::{
    CommId, Completion, ConnectRequest, Event, MemoryId, PostError, QpConfig, Qpn, RecvRequest,
    Region, RejReason, Remote, Rkey, SendRequest,
};
use loopback_probe::{Damaged, LoopbackProbe};
use memory::Memory;
use poll_predictor::PollPredictor;
use port_share::{PortGroup, PortShare};
use receive_buffers::ReceiveBuffers;
use route::Route;
pub use statistics::SoftStatistics;

/// Whether the system cuts runs of packets into datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Segmentation {
    /// It does (GSO), unless packets that the socket sends to itself show that this damages them.
    On,
    /// One call per packet, for networks whose adapters segment in a way that breaks IPv4
    /// checksums.
    Off,
}

/// How the provider in software is made.
#[derive(Clone, Copy, Debug)]
pub struct SoftOptions {
    /// Its address. Peers expect port 4791.
    pub local: SocketAddr,
    /// The largest path MTU; long ones hold towards peers that agree on them.
    pub path_mtu: PathMtu,
    /// Whether the system cuts runs of packets into datagrams.
    pub segmentation: Segmentation,
    /// The most queue pairs.
    pub qps_max: u32,
    /// The receive buffer to ask the system for, in bytes.
    pub recv_buffer_bytes: u32,
}

impl SoftOptions {
    /// At `local`, with defaults.
    pub fn at(local: SocketAddr) -> Self {
        Self {
            local,
            path_mtu: PathMtu::B4096,
            segmentation: Segmentation::On,
            qps_max: 4096,
            recv_buffer_bytes: UdpOptions::default().recv_buffer_bytes,
        }
    }

    /// At `address` and the port of RoCEv2.
    pub fn at_ip(address: IpAddr) -> Self {
        Self::at(SocketAddr::new(address, UDP_PORT))
    }

    const fn udp(&self) -> UdpOptions {
        UdpOptions {
            recv_buffer_bytes: self.recv_buffer_bytes,
            too_long: TooLong::Refuse,
        }
    }

    /// Why there is no socket.
    const fn unbound(&self, error: io::Error) -> FabricError {
        FabricError::SoftPort {
            local: self.local,
            error,
        }
    }
}

/// The provider in software.
#[derive(Debug)]
pub struct Soft {
    socket: UdpSocket,
    segmentation: Segmentation,
    /// Set if several threads share the address.
    share: Option<PortShare>,
    endpoint: Endpoint,
    memory: Memory,
    path_mtu: PathMtu,
    route: Route,
    list: TransmitList,
    /// Runs of the list that have been sent.
    runs_sent: usize,
    receive_buffers: ReceiveBuffers,
    statistics: SoftStatistics,
    order: Order,
    /// Predicts polls while the program above has new completions.
    behind_news: PollPredictor,
    /// Predicts polls right after sending.
    after_sending: PollPredictor,
    /// Whether the last poll was empty, or was skipped.
    is_drained: bool,
}

/// The first step of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// With receiving.
    ReceiveFirst,
    /// With the requests that the program above has posted, and the answers that have waited for
    /// them.
    TransmitFirst,
}

/// What follows a round in which nothing happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Before {
    /// Another round.
    More,
    /// Sleep. Any packet to the socket ends it.
    Sleep,
}

/// How the system chooses the thread of a datagram if there are several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Choosing {
    /// The system, by our rule.
    BySteering,
    /// By its source address: all datagrams of a peer go to one thread, which hands most of them
    /// over.
    #[cfg(test)]
    BySource,
}

/// Whether the socket accepted everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flushed {
    All,
    Blocked,
}

impl Soft {
    /// Calls that receive, before answers are sent.
    const RECEIVES_PER_TURN: usize = 64;
    /// Bytes of headers and small data of one list.
    const LIST_BYTES: usize = 64 << 10;

    /// The most threads that share an address.
    pub const THREADS_MAX: usize = 16;

    /// A provider at an address of this machine. It sends packets to itself first. If runs of
    /// packets arrive damaged, the system is not asked to segment.
    pub fn bind(options: &SoftOptions) -> Result<Self, FabricError> {
        let (socket, segmentation) = Self::probed(options)?;
        Self::with(options, socket, segmentation, fresh_guid()?, None)
    }

    /// Several providers at one address and port, each for a thread of its own. Peers' connections
    /// are spread over them. There are `threads` of them, at least one and at most
    /// [`THREADS_MAX`](Self::THREADS_MAX). To peers they are one.
    pub fn bind_several(options: &SoftOptions, threads: usize) -> Result<Vec<Self>, FabricError> {
        Self::bind_group(options, threads, Choosing::BySteering)
    }

    fn bind_group(
        options: &SoftOptions,
        threads: usize,
        choosing: Choosing,
    ) -> Result<Vec<Self>, FabricError> {
        let threads = threads.clamp(1, Self::THREADS_MAX);
        if threads == 1 {
            return Ok(vec![Self::bind(options)?]);
        }
        let (first, segmentation) = Self::probed(options)?;
        let mut sockets = vec![first];
        while sockets.len() < threads {
            let next = sockets[0].beside(&options.udp());
            sockets.push(next.map_err(|error| options.unbound(error))?);
        }
        let kept: io::Result<Vec<_>> = sockets
            .iter()
            .map(|socket| socket.as_fd().try_clone_to_owned())
            .collect();
        let (group, guid) = (PortGroup::new(kept?)?, fresh_guid()?);
        if choosing == Choosing::BySteering {
            sockets[0].steer(&group.steering().program())?;
        }
        sockets
            .into_iter()
            .zip(group.shares())
            .map(|(socket, share)| Self::with(options, socket, segmentation, guid, Some(share)))
            .collect()
    }

    /// A socket, and whether it may leave runs to the system to cut.
    fn probed(options: &SoftOptions) -> Result<(UdpSocket, Segmentation), FabricError> {
        let bound = UdpSocket::bind(options.local, &options.udp());
        let mut socket = bound.map_err(|error| options.unbound(error))?;
        let local = socket.local_addr();
        let own_path_mtu = Route::from(options.local.ip())?.path_mtu(options.local.ip())?;
        let probe = LoopbackProbe {
            local,
            path_mtu: options.path_mtu.min(own_path_mtu),
            nonce: roce::Backend::random(&mut Memory::new()?),
        };
        let mut buffer = vec![0; UdpSocket::ARRIVAL_LEN_MAX_BYTES];
        let segmentation = probe
            .segmentation(&mut socket, options.segmentation, &mut buffer)
            .map_err(|Damaged| FabricError::SoftPackets(local))?;
        Ok((socket, segmentation))
    }

    fn with(
        options: &SoftOptions,
        socket: UdpSocket,
        segmentation: Segmentation,
        ca_guid: u64,
        share: Option<PortShare>,
    ) -> Result<Self, FabricError> {
        let mut memory = Memory::new()?;
        let config = EndpointConfig {
            qps_max: options.qps_max,
            number_stride: share.as_ref().map_or(1, PortShare::threads),
            number_offset: share.as_ref().map_or(0, PortShare::index),
            ca_guid,
            udp_port: socket.local_addr().port(),
            path_mtu_max: options.path_mtu,
            ..EndpointConfig::default()
        };
        let segments_max = match segmentation {
            Segmentation::On => TransmitList::SEGMENTS_MAX,
            Segmentation::Off => 1,
        };
        let endpoint = Endpoint::new(&config, &mut memory);
        let receive_buffers = ReceiveBuffers::new(&mut memory, UdpSocket::ARRIVAL_LEN_MAX_BYTES);
        Ok(Self {
            endpoint,
            socket,
            segmentation,
            share,
            memory,
            path_mtu: options.path_mtu,
            route: Route::from(options.local.ip())?,
            list: TransmitList::new(Self::LIST_BYTES, segments_max),
            runs_sent: 0,
            receive_buffers,
            statistics: SoftStatistics::default(),
            order: Order::ReceiveFirst,
            behind_news: PollPredictor::default(),
            after_sending: PollPredictor::default(),
            is_drained: false,
        })
    }

    /// Its address.
    pub const fn local_addr(&self) -> SocketAddr {
        self.socket.local_addr()
    }

    /// Whether the system segments runs of packets: as requested, unless it was seen to damage
    /// them.
    pub const fn segmentation(&self) -> Segmentation {
        self.segmentation
    }

    /// The counts.
    pub fn statistics(&self) -> SoftStatistics {
        SoftStatistics {
            endpoint: self.endpoint.counters(),
            ..self.statistics
        }
    }

    /// Takes memory over, as if it had been allocated here, until it is [taken
    /// back](Self::take_back). Data then need not be copied between the caller's memory and the
    /// provider's.
    pub fn lend(&mut self, bytes: Box<[u8]>) -> MemoryId {
        self.memory.insert(bytes)
    }

    /// Returns registered memory to the caller; `None` if there is no such memory. As with
    /// [`release`](Provider::release), keys to the memory must be invalidated and requests that
    /// name it completed.
    pub fn take_back(&mut self, memory: MemoryId) -> Option<Box<[u8]>> {
        self.forget(memory);
        self.memory.remove(memory)
    }

    /// Whether a round polls the socket, after sending or not.
    fn is_look_due(&mut self, has_sent: bool, before: Before) -> bool {
        let is_due = if has_sent {
            self.after_sending.should_poll()
        } else {
            before == Before::More || !self.is_drained
        };
        self.is_drained |= !is_due;
        is_due
    }

    fn is_timer_due(&self, now: Instant) -> bool {
        self.endpoint.poll_timeout().is_some_and(|due| due <= now)
    }

    /// Receives what waits in the socket. Returns whether anything did.
    fn receive(&mut self, now: Instant) -> io::Result<bool> {
        if !self.endpoint.has_completions() {
            self.receive_buffers.clear();
        }
        self.is_drained = false;
        for look in 0..Self::RECEIVES_PER_TURN {
            let is_behind_news = look > 0 && self.endpoint.has_news();
            if is_behind_news && !self.behind_news.should_poll() {
                break;
            }
            let Some(region) = self.receive_buffers.room() else {
                break;
            };
            let mut buffer = self.memory.take_out(region);
            let has_come = self.receive_run(now, region, &mut buffer);
            if self.memory.put_back(region, buffer) {
                self.receive_buffers.keep();
            }
            let has_come = has_come?;
            if is_behind_news {
                self.behind_news.record(has_come);
            }
            if !has_come {
                self.is_drained = true;
                return Ok(look > 0);
            }
        }
        Ok(true)
    }

    /// Receives one datagram, or run of datagrams, into `buffer`, the memory of `region`.
    fn receive_run(
        &mut self,
        now: Instant,
        region: MemoryId,
        buffer: &mut [u8],
    ) -> io::Result<bool> {
        let Some(arrival) = self.socket.receive(buffer)? else {
            return Ok(false);
        };
        self.statistics.receive_calls += 1;
        let Some(flow) = Flow::new(arrival.source, arrival.dest) else {
            return Ok(true);
        };
        let received = Received {
            flow,
            bytes: &buffer[..arrival.len_bytes],
            segment_len_bytes: arrival.segment_len_bytes,
            identification: Ipv4Identification::Unknown,
            congestion_experienced: arrival.congestion_experienced,
        };
        self.memory.arrived(region, buffer);
        let mut take = |own: &Received<'_>| {
            self.endpoint.handle_received(now, own, &mut self.memory);
        };
        match &self.share {
            None => take(&received),
            Some(share) => self.statistics.runs_handed_over += share.sort(&received, take),
        }
        Ok(true)
    }

    /// Handles datagrams that other threads have forwarded. Returns whether there were any.
    fn take_handed_over(&mut self, now: Instant) -> bool {
        let Some(share) = &self.share else {
            return false;
        };
        share.collect(|own| self.endpoint.handle_received(now, own, &mut self.memory))
    }

    /// Sends whatever may be sent.
    fn transmit(&mut self, now: Instant) -> io::Result<Flushed> {
        loop {
            if self.flush()? == Flushed::Blocked {
                return Ok(Flushed::Blocked);
            }
            if !self.endpoint.wants_transmit() {
                return Ok(Flushed::All);
            }
            self.endpoint
                .poll_transmit(now, &mut self.memory, &mut self.list);
        }
    }

    /// Sends the rest of the list.
    fn flush(&mut self) -> io::Result<Flushed> {
        let memory = &self.memory;
        for batch in self.list.batches().skip(self.runs_sent) {
            let run = UdpRun {
                source: batch.flow.local().ip(),
                dest: batch.flow.remote(),
                segment_len_bytes: (batch.segments > 1).then_some(batch.segment_len_bytes),
            };
            let pieces = batch.parts().map(|part| match part {
                Piece::Bytes(bytes) => bytes,
                Piece::Memory(place) => memory.slice(place).unwrap_or_default(),
            });
            match self.socket.send(&run, pieces) {
                Ok(()) => {
                    self.statistics.send_calls += 1;
                    self.statistics.datagrams_sent += u64::from(batch.segments);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Ok(Flushed::Blocked);
                }
                Err(error) if is_of_the_socket(&error) => return Err(error),
                // No route, or no such peer: as if the packets were lost.
                Err(_) => self.statistics.sends_refused += 1,
            }
            self.runs_sent += 1;
        }
        self.list.clear();
        self.runs_sent = 0;
        Ok(Flushed::All)
    }

    /// Called before memory is freed. If packets that wait for the socket have their payload there,
    /// all waiting packets are dropped, and retransmitted where necessary.
    fn forget(&mut self, memory: MemoryId) {
        let is_there = |part| matches!(part, Piece::Memory(place) if place.memory == memory);
        let waiting = || self.list.batches().skip(self.runs_sent);
        if waiting().any(|batch| batch.parts().any(is_there)) {
            self.list.clear();
            self.runs_sent = 0;
        }
    }

    /// Sleeps until the socket or the clock has something, at most `at_most`.
    fn sleep(
        &self,
        now: Instant,
        at_most: Duration,
        event: Option<BorrowedFd<'_>>,
        flushed: Flushed,
    ) -> io::Result<()> {
        let due = self.endpoint.poll_timeout();
        let until_due = due.map_or(at_most, |due| due.saturating_duration_since(now));
        let wait = until_due.min(at_most);
        let timeout = Timespec {
            tv_sec: i64::try_from(wait.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: wait.subsec_nanos().into(),
        };
        let flags = match flushed {
            Flushed::All => PollFlags::IN,
            Flushed::Blocked => PollFlags::OUT,
        };
        let socket = PollFd::new(&self.socket, flags);
        let until = |events: [Option<BorrowedFd<'_>>; 2]| {
            let mut watched = [socket.clone(), socket.clone(), socket.clone()];
            let mut count = 1;
            for event in events.into_iter().flatten() {
                watched[count] = PollFd::from_borrowed_fd(event, PollFlags::IN);
                count += 1;
            }
            match poll(&mut watched[..count], Some(&timeout)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
                Err(error) => Err(error.into()),
            }
        };
        match &self.share {
            None => until([event, None]),
            Some(share) => share.asleep(|handed_over| until([event, Some(handed_over)])),
        }
    }

    /// The way to a peer.
    fn flow_to(&self, peer: IpAddr) -> Result<Flow, FabricError> {
        let local = self.local_addr();
        if local.ip().is_unspecified() {
            return Err(FabricError::NoSource(local.ip()));
        }
        let remote = SocketAddr::new(peer, local.port());
        Flow::new(local, remote).ok_or(FabricError::Family {
            local: local.ip(),
            peer,
        })
    }

    /// Whether the path to a requester has room for packets of the length that it requests. Its
    /// request sets the length for both ends, but it knows only its own interface.
    fn can_answer(&mut self, request: &ConnectRequest) -> bool {
        let peer = request.flow.remote().ip();
        let wanted = request.path_mtu;
        match self.route.path_mtu(peer) {
            Ok(ours) if wanted <= ours => true,
            Ok(ours) => {
                tracing::warn!(
                    %peer,
                    "rejected an RDMA connection: it needs packets of {} bytes, but the path to the peer has room for {}; give the \
                     interfaces at both ends the same MTU (ip link set INTERFACE mtu BYTES)",
                    wanted.bytes(),
                    ours.bytes(),
                );
                false
            }
            Err(error) => {
                tracing::warn!(%peer, %error, "rejected an RDMA connection: no route to the peer");
                false
            }
        }
    }

    /// One round. Returns whether it received anything. `before` is the next step.
    fn turn(&mut self, before: Before) -> io::Result<(bool, Flushed)> {
        let now = Instant::now();
        // The list names memory. A request completes only after it was sent, so the memory is
        // unchanged.
        if self.flush()? == Flushed::Blocked {
            return Ok((false, Flushed::Blocked));
        }
        // The program above has posted its requests, which need not wait for a poll of the socket.
        let has_sent = self.order == Order::TransmitFirst;
        if has_sent {
            self.order = Order::ReceiveFirst;
            if self.transmit(now)? == Flushed::Blocked {
                return Ok((false, Flushed::Blocked));
            }
        }
        let mut was_busy = self.take_handed_over(now);
        // The timer may be waiting for a packet that has arrived already.
        if self.is_look_due(has_sent, before) || self.is_timer_due(now) {
            let has_come = self.receive(now)?;
            if has_sent {
                self.after_sending.record(has_come);
            }
            was_busy |= has_come;
        }
        if self.is_timer_due(now) {
            self.endpoint.handle_timeout(now);
            was_busy = true;
        }
        // Events mean that connections begin or end. Peers are notified of that at once.
        let is_progress = self.endpoint.has_news() && !self.endpoint.has_events();
        if was_busy && is_progress {
            self.order = Order::TransmitFirst;
            return Ok((true, Flushed::All));
        }
        Ok((was_busy, self.transmit(now)?))
    }
}

/// The GUID by which peers know this channel adapter.
fn fresh_guid() -> io::Result<u64> {
    Ok(roce::Backend::random(&mut Memory::new()?) | 1)
}

/// Whether this socket cannot send at all any more.
fn is_of_the_socket(error: &io::Error) -> bool {
    let codes = [rustix::io::Errno::BADF, rustix::io::Errno::NOTSOCK];
    rustix::io::Errno::from_io_error(error).is_some_and(|errno| codes.contains(&errno))
}

impl AsFd for Soft {
    /// The socket, to wait for it together with other descriptors.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Provider for Soft {
    fn allocate(&mut self, len_bytes: usize) -> Result<MemoryId, FabricError> {
        Ok(self.memory.insert(vec![0; len_bytes].into_boxed_slice()))
    }

    fn release(&mut self, memory: MemoryId) {
        self.forget(memory);
        self.memory.remove(memory);
    }

    fn bytes(&self, memory: MemoryId) -> &[u8] {
        self.memory.bytes(memory)
    }

    fn bytes_mut(&mut self, memory: MemoryId) -> &mut [u8] {
        self.memory.bytes_mut(memory)
    }

    fn register(&mut self, region: Region) -> Result<Remote, FabricError> {
        if self.memory.slice(region.placement).is_none() {
            return Err(FabricError::NotAllocated);
        }
        Ok(Remote {
            va: region.base_va,
            rkey: self.endpoint.register(region, &mut self.memory)?,
        })
    }

    fn invalidate(&mut self, key: Rkey) -> bool {
        self.endpoint.invalidate(key)
    }

    fn create_qp(&mut self, config: QpConfig) -> Result<Qpn, FabricError> {
        Ok(self.endpoint.create_qp(config)?)
    }

    fn destroy_qp(&mut self, qpn: Qpn) {
        // The owner may reuse the memory now. For other queue pairs, the listed packets count as
        // lost.
        self.list.clear();
        self.runs_sent = 0;
        self.endpoint.destroy_qp(Instant::now(), qpn);
    }

    #[inline]
    fn post_send(&mut self, qpn: Qpn, request: SendRequest) -> Result<(), PostError> {
        self.order = Order::TransmitFirst;
        self.endpoint.post_send(qpn, request)
    }

    #[inline]
    fn post_recv(&mut self, qpn: Qpn, request: RecvRequest) -> Result<(), PostError> {
        self.endpoint.post_recv(qpn, request)
    }

    fn listen(&mut self, port: u16) -> Result<(), FabricError> {
        self.endpoint.listen(ServiceId::tcp(port));
        Ok(())
    }

    fn stop_listening(&mut self, port: u16) {
        self.endpoint.stop_listening(ServiceId::tcp(port));
    }

    fn connect(&mut self, qpn: Qpn, to: &ConnectTo<'_>) -> Result<CommId, FabricError> {
        let params = ConnectParams {
            flow: self.flow_to(to.address)?,
            service: ServiceId::tcp(to.port),
            path_mtu: self.path_mtu.min(self.route.path_mtu(to.address)?),
            private_data: to.private_data,
        };
        let now = Instant::now();
        Ok(self.endpoint.connect(now, qpn, &params, &mut self.memory)?)
    }

    fn pair(&mut self, qpn: Qpn, with: &PeerQp) -> Result<(), FabricError> {
        let connection = Connection {
            flow: self.flow_to(with.address)?,
            remote_qpn: with.qpn,
            path_mtu: with.path_mtu,
            send_psn: with.send_psn,
            recv_psn: with.recv_psn,
            initiator_depth: u8::MAX,
            retry_max: RETRIES,
            rnr_retry_max: RETRIES,
        };
        Ok(self.endpoint.pair(qpn, connection)?)
    }

    fn accept(&mut self, id: CommId, qpn: Qpn, private_data: &[u8]) -> Result<(), FabricError> {
        let now = Instant::now();
        Ok(self
            .endpoint
            .accept(now, id, qpn, private_data, &mut self.memory)?)
    }

    fn reject(
        &mut self,
        id: CommId,
        reason: RejReason,
        private_data: &[u8],
    ) -> Result<(), FabricError> {
        Ok(self.endpoint.reject(id, reason, private_data)?)
    }

    fn disconnect(&mut self, id: CommId) -> Result<(), FabricError> {
        Ok(self.endpoint.disconnect(Instant::now(), id)?)
    }

    fn poll(&mut self, wait: Wait<'_>) -> io::Result<()> {
        let (at_most, event) = match wait {
            Wait::Poll => return self.turn(Before::More).map(|_| ()),
            Wait::AtMost(at_most) => (at_most, None),
            Wait::Event { at_most, event } => (at_most, Some(event)),
        };
        let (was_busy, flushed) = self.turn(Before::Sleep)?;
        if was_busy || self.endpoint.has_news() {
            return Ok(());
        }
        self.sleep(Instant::now(), at_most, event, flushed)?;
        self.turn(Before::More).map(|_| ())
    }

    #[inline]
    fn next_completion(&mut self) -> Option<Completion> {
        self.endpoint.poll_completion()
    }

    fn next_event(&mut self) -> Option<Event> {
        loop {
            let mut event = self.endpoint.poll_event()?;
            if let Event::Request(request) = &mut event
                && !self.can_answer(request)
            {
                // If the requester has disconnected meanwhile, it needs no answer.
                let _ = self
                    .endpoint
                    .reject(request.id, RejReason::INVALID_MTU, &[]);
                continue;
            }
            return Some(event);
        }
    }
}

#[cfg(test)]
mod tests;
