//! Both ends together.

mod asking;
mod captured;
mod connections;
mod faults;
mod hostile;
mod simulation;
mod staying;
mod transfers;

use std::time::Duration;

use crate::memory::MemoryRange;

use crate::testing::{Pair, TestMemory};
use crate::wire::{PathMtu, Qpn, Rkey};
use crate::{
    Access, Completion, Data, EndpointConfig, Gather, Inline, ProtectionDomain, QpConfig,
    RecvRequest, Region, Remote, SendOp, SendRequest, Signal, WorkId, WorkKind, WorkStatus,
};

const V4: [&str; 2] = ["10.9.0.1", "10.9.0.2"];
const V6: [&str; 2] = ["fd09::1", "fd09::2"];
const MEMORY_BYTES: usize = 256 << 10;
const SECOND: Duration = Duration::from_secs(1);
/// Where tests put what they send; what is received goes elsewhere.
const SOURCE: u64 = 0;
const SINK: u64 = 128 << 10;
const BASE_VA: u64 = 0xFFFF_8000_0000_1000;
const EVERYTHING: Access = Access {
    read: true,
    write: true,
    atomic: true,
    invalidate: true,
};

/// A connected pair.
struct Connected {
    pair: Pair,
    qpns: [Qpn; 2],
}

fn config() -> QpConfig {
    QpConfig {
        domain: ProtectionDomain(1),
        access: EVERYTHING,
        send_depth: 64,
        recv_depth: 64,
        ..QpConfig::default()
    }
}

impl Connected {
    fn new(mtu: PathMtu) -> Self {
        Self::with(1, V6, mtu, [config(); 2])
    }

    fn with(seed: u64, addresses: [&str; 2], mtu: PathMtu, configs: [QpConfig; 2]) -> Self {
        let mut pair = Pair::new(seed, &EndpointConfig::default(), addresses, MEMORY_BYTES);
        let [(_, client), (_, server)] = pair.connected(configs, mtu);
        for (index, end) in pair.ends.iter_mut().enumerate() {
            for (at, byte) in end.memory.bytes.iter_mut().enumerate().take(SINK as usize) {
                *byte = (at * 31 + at / 251 + index * 7) as u8;
            }
        }
        pair.run(SECOND, |_| false);
        pair.ends[1].events.clear();
        Self {
            pair,
            qpns: [client, server],
        }
    }

    fn post(&mut self, end: usize, id: u64, op: SendOp) {
        self.post_signaled(end, id, op, Signal::Always);
    }

    fn post_signaled(&mut self, end: usize, id: u64, op: SendOp, signal: Signal) {
        let request = SendRequest {
            id: WorkId(id),
            op,
            signal,
        };
        self.pair.ends[end]
            .endpoint
            .post_send(self.qpns[end], request)
            .unwrap();
    }

    fn recv(&mut self, end: usize, id: u64, into: MemoryRange) {
        let request = RecvRequest {
            id: WorkId(id),
            into,
        };
        self.pair.ends[end]
            .endpoint
            .post_recv(self.qpns[end], request)
            .unwrap();
    }

    fn register(&mut self, end: usize, place: MemoryRange, access: Access) -> Remote {
        let region = Region {
            domain: ProtectionDomain(1),
            placement: place,
            base_va: BASE_VA,
            access,
        };
        let end = &mut self.pair.ends[end];
        let rkey = end.endpoint.register(region, &mut end.memory).unwrap();
        Remote { va: BASE_VA, rkey }
    }

    /// Runs until an end has `count` completions, and takes them.
    fn complete(&mut self, end: usize, count: usize) -> Vec<Completion> {
        let done = self.pair.run(Duration::from_secs(20), |pair| {
            pair.ends[end].completions.len() >= count
        });
        let taken = std::mem::take(&mut self.pair.ends[end].completions);
        assert!(done, "{count} completions expected, {taken:?} came");
        taken
    }

    fn bytes(&self, end: usize, place: MemoryRange) -> &[u8] {
        self.pair.ends[end].memory.at(place)
    }

    /// Whether what one end has at `from` is what the other has at `to`.
    fn assert_moved(&self, end: usize, from: MemoryRange, to: MemoryRange) {
        let (sent, received) = (self.bytes(end, from), self.bytes(1 - end, to));
        assert!(sent == received, "{from:?} is not what came to {to:?}");
    }
}

fn place(offset: u64, len: u64) -> MemoryRange {
    TestMemory::place(offset, len)
}

fn data(offset: u64, len: u64) -> Data {
    Data::Gather(Gather::new(&[place(offset, len)]).unwrap())
}

fn inline(bytes: &[u8]) -> Data {
    Data::Inline(Inline::new(bytes).unwrap())
}

fn statuses(completions: &[Completion]) -> Vec<(u64, WorkStatus)> {
    completions.iter().map(|c| (c.id.0, c.status)).collect()
}

/// The bytes of hexadecimal digits, whatever stands between them.
pub(crate) fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}
