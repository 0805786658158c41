//! Two ends in virtual time, with a network between them that injects faults.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use crate::Piece;

use super::TestMemory;
use crate::Flow;
use crate::backend::Backend;
use crate::cm::ConnectParams;
use crate::config::EndpointConfig;
use crate::endpoint::{Endpoint, Received};
use crate::event::Event;
use crate::qp::QpConfig;
use crate::transmit::TransmitList;
use crate::wire::cm::{CommId, ServiceId};
use crate::wire::{Ipv4Identification, PathMtu, Qpn, UDP_PORT, verify};
use crate::work::Completion;

/// The faults of the network, each in percent of datagrams.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// Lost datagrams.
    pub loss: u64,
    /// Duplicated datagrams.
    pub duplication: u64,
    /// Datagrams with a changed byte, or truncated.
    pub corruption: u64,
    /// Reordered datagrams: later ones overtake them.
    pub reordering: u64,
    /// Datagrams delayed by up to 10 ms.
    pub delay: u64,
}

/// One end.
#[derive(Debug)]
pub struct End {
    /// The end itself.
    pub endpoint: Endpoint,
    /// Its memory.
    pub memory: TestMemory,
    /// Its address.
    pub address: IpAddr,
    /// Completions that the test has not taken.
    pub completions: Vec<Completion>,
    /// Events that the test has not taken.
    pub events: Vec<Event>,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct InFlight {
    at: Instant,
    order: u64,
    to: usize,
    bytes: Vec<u8>,
    identification: u16,
}

/// Two ends: 0 requests connections, 1 listens.
#[derive(Debug)]
pub struct Pair {
    /// The ends.
    pub ends: [End; 2],
    /// The virtual time.
    pub now: Instant,
    /// The faults of the network.
    pub faults: Faults,
    /// Datagrams that were put on the network.
    pub sent: u64,
    /// Damaged datagrams that pass the check without their identification, as one in about 65,536
    /// does.
    pub unseen: u64,
    network: BinaryHeap<Reverse<InFlight>>,
    list: TransmitList,
    chance: TestMemory,
}

impl Pair {
    /// The service that end 1 listens to.
    pub const SERVICE: ServiceId = ServiceId::tcp(4420);
    /// The delay of a datagram without a fault.
    const LATENCY: Duration = Duration::from_micros(20);

    /// Two ends with `memory_bytes` of memory each; every choice follows from `seed`.
    pub fn new(
        seed: u64,
        config: &EndpointConfig,
        addresses: [&str; 2],
        memory_bytes: usize,
    ) -> Self {
        let end = |index: u64, address: &str| {
            let mut memory = TestMemory::zeroed(seed ^ (index + 1) << 32, memory_bytes);
            let config = EndpointConfig {
                ca_guid: index + 1,
                ..*config
            };
            End {
                endpoint: Endpoint::new(&config, &mut memory),
                memory,
                address: address.parse().expect("tests give addresses"),
                completions: Vec::new(),
                events: Vec::new(),
            }
        };
        let [first, second] = addresses;
        let mut ends = [end(0, first), end(1, second)];
        ends[1].endpoint.listen(Self::SERVICE);
        Self {
            ends,
            now: Instant::now(),
            faults: Faults::default(),
            sent: 0,
            unseen: 0,
            network: BinaryHeap::new(),
            list: TransmitList::new(16 << 10, 16),
            chance: TestMemory::new(seed),
        }
    }

    /// From end `from` to the other.
    pub fn flow(&self, from: usize) -> Flow {
        let address = |end: &End| SocketAddr::new(end.address, UDP_PORT);
        let (local, remote) = (address(&self.ends[from]), address(&self.ends[1 - from]));
        Flow::new(local, remote).expect("both ends are of one family")
    }

    /// Requests a connection from end 0 to end 1.
    pub fn connect(&mut self, config: QpConfig, path_mtu: PathMtu) -> (CommId, Qpn) {
        let flow = self.flow(0);
        let end = &mut self.ends[0];
        let qpn = end.endpoint.create_qp(config).expect("there is room");
        let params = ConnectParams {
            flow,
            service: Self::SERVICE,
            path_mtu,
            private_data: b"hello",
        };
        let id = end
            .endpoint
            .connect(self.now, qpn, &params, &mut end.memory)
            .expect("the parameters are right");
        (id, qpn)
    }

    /// Connects a queue pair of each end; `[end 0, end 1]`.
    ///
    /// # Panics
    /// If it takes longer than a minute of virtual time.
    pub fn connected(&mut self, configs: [QpConfig; 2], path_mtu: PathMtu) -> [(CommId, Qpn); 2] {
        let [client, server] = configs;
        let asked = self.connect(client, path_mtu);
        let mut accepted = None;
        let done = self.run(Duration::from_secs(60), |pair| {
            if let Some(id) = pair.take_request() {
                accepted = Some((id, pair.accept(id, server)));
            }
            let is_connected =
                |e: &Event| matches!(e, Event::Connected { id, .. } if *id == asked.0);
            pair.ends[0].events.iter().any(is_connected)
        });
        assert!(done, "not connected: {:?}", self.ends[0].events);
        self.ends[0].events.clear();
        [asked, accepted.expect("end 1 accepted")]
    }

    /// The connection request that end 1 has received, if any.
    pub fn take_request(&mut self) -> Option<CommId> {
        let events = &mut self.ends[1].events;
        let index = events.iter().position(|e| matches!(e, Event::Request(_)))?;
        match events.remove(index) {
            Event::Request(request) => Some(request.id),
            _ => None,
        }
    }

    /// End 1 accepts.
    pub fn accept(&mut self, id: CommId, config: QpConfig) -> Qpn {
        let end = &mut self.ends[1];
        let qpn = end.endpoint.create_qp(config).expect("there is room");
        end.endpoint
            .accept(self.now, id, qpn, b"welcome", &mut end.memory)
            .expect("the request is open");
        qpn
    }

    /// Advances the time until `done` returns true; returns whether that was within `limit`.
    pub fn run(&mut self, limit: Duration, mut done: impl FnMut(&mut Self) -> bool) -> bool {
        let end = self.now + limit;
        loop {
            self.transmit();
            if done(self) {
                return true;
            }
            if self.ends.iter().any(|e| e.endpoint.wants_transmit()) {
                continue;
            }
            match self.next_instant() {
                Some(at) if at <= end => self.now = self.now.max(at),
                _ => {
                    self.now = end;
                    return false;
                }
            }
            self.advance();
        }
    }

    /// Passes a datagram to an end as if the other end had sent it.
    pub fn inject(&mut self, to: usize, bytes: &[u8]) {
        let received = Received {
            flow: self.flow(1 - to),
            bytes,
            segment_len_bytes: None,
            identification: Ipv4Identification::Known(0),
            congestion_experienced: false,
        };
        self.inject_received(to, &received);
    }

    /// Passes a datagram with these properties to an end.
    pub fn inject_received(&mut self, to: usize, received: &Received<'_>) {
        let end = &mut self.ends[to];
        end.endpoint
            .handle_received(self.now, received, &mut end.memory);
        end.collect();
    }

    /// The datagrams that an end sends now. They are not delivered.
    pub fn intercept(&mut self, from: usize) -> Vec<(Flow, u16, Vec<u8>)> {
        let end = &mut self.ends[from];
        let mut sent = Vec::new();
        while end.endpoint.wants_transmit() {
            end.endpoint
                .poll_transmit(self.now, &mut end.memory, &mut self.list);
            drain(&mut self.list, &end.memory, |flow, id, bytes| {
                sent.push((*flow, id, bytes));
            });
        }
        end.collect();
        sent
    }

    fn next_instant(&self) -> Option<Instant> {
        let network = self.network.peek().map(|Reverse(d)| d.at);
        let timeouts = self.ends.iter().map(|e| e.endpoint.poll_timeout());
        timeouts.chain([network]).flatten().min()
    }

    fn transmit(&mut self) {
        for from in 0..2 {
            for (flow, identification, bytes) in self.intercept(from) {
                assert_eq!(flow.remote().ip(), self.ends[1 - from].address);
                self.sent += 1;
                self.put_on_network(1 - from, identification, bytes);
            }
        }
    }

    fn put_on_network(&mut self, to: usize, identification: u16, mut bytes: Vec<u8>) {
        if self.percent(self.faults.loss) {
            return;
        }
        let copies = 1 + u64::from(self.percent(self.faults.duplication));
        for _ in 0..copies {
            let mut at = self.now + Self::LATENCY;
            if self.percent(self.faults.reordering) {
                at += Duration::from_micros(self.chance.random() % 100);
            }
            if self.percent(self.faults.delay) {
                at += Duration::from_micros(self.chance.random() % 10_000);
            }
            if self.percent(self.faults.corruption) {
                let index = (self.chance.random() % bytes.len() as u64) as usize;
                match self.chance.random() % 4 {
                    0 => bytes.truncate(index),
                    _ => bytes[index] ^= 1 + (self.chance.random() % 255) as u8,
                }
            }
            self.network.push(Reverse(InFlight {
                at,
                order: self.sent,
                to,
                bytes: bytes.clone(),
                identification,
            }));
            if bytes.is_empty() {
                return;
            }
        }
    }

    fn advance(&mut self) {
        while self
            .network
            .peek()
            .is_some_and(|Reverse(d)| d.at <= self.now)
        {
            let Some(Reverse(datagram)) = self.network.pop() else {
                return;
            };
            let flow = self.flow(1 - datagram.to);
            let received = Received {
                flow,
                bytes: &datagram.bytes,
                segment_len_bytes: None,
                identification: self.learnt(flow, &datagram),
                congestion_experienced: false,
            };
            self.inject_received(datagram.to, &received);
        }
        for end in &mut self.ends {
            if end.endpoint.poll_timeout().is_some_and(|at| at <= self.now) {
                end.endpoint.handle_timeout(self.now);
            }
            end.collect();
        }
    }

    /// What a receiver knows about an identification: nothing from a socket, or a guess from the
    /// packet's place in a run, which may be wrong.
    fn learnt(&mut self, flow: Flow, datagram: &InFlight) -> Ipv4Identification {
        let known = Ipv4Identification::Known(datagram.identification);
        let learnt = match self.chance.random() % 4 {
            0 => known,
            1 => Ipv4Identification::Likely(self.chance.random() as u16 & 3),
            _ => Ipv4Identification::Unknown,
        };
        let passes = |identification| verify(flow, identification, &datagram.bytes);
        if passes(learnt) && !passes(known) {
            self.unseen += 1;
            return known;
        }
        learnt
    }

    fn percent(&mut self, percent: u64) -> bool {
        self.chance.random() % 100 < percent
    }
}

impl End {
    fn collect(&mut self) {
        while let Some(completion) = self.endpoint.poll_completion() {
            self.completions.push(completion);
        }
        while let Some(event) = self.endpoint.poll_event() {
            self.events.push(event);
        }
    }
}

/// Cuts the batches of a list into datagrams as the operating system does, and clears it: flow,
/// IPv4 identification, bytes.
///
/// # Panics
/// If a batch does not meet the rules of segmentation offload.
pub fn drain(
    list: &mut TransmitList,
    memory: &TestMemory,
    mut each: impl FnMut(&Flow, u16, Vec<u8>),
) {
    for batch in list.batches() {
        let mut bytes = Vec::with_capacity(batch.len_bytes as usize);
        for part in batch.parts() {
            match part {
                Piece::Bytes(own) => bytes.extend_from_slice(own),
                Piece::Memory(place) => bytes.extend_from_slice(memory.at(place)),
            }
        }
        assert_eq!(bytes.len(), batch.len_bytes as usize);
        let datagrams = bytes.chunks(usize::from(batch.segment_len_bytes));
        assert_eq!(datagrams.len(), usize::from(batch.segments));
        for (index, datagram) in datagrams.enumerate() {
            each(batch.flow, index as u16, datagram.to_vec());
        }
    }
    list.clear();
}
