//! The functions of fuzz targets. `cargo test` runs the same functions over the corpora.

mod cm;

use std::time::Duration;

use zerocopy::IntoBytes;

use super::{Pair, TestMemory, forge};
use crate::wire::cm::{IpCmHeader, Message};
use crate::wire::{
    Aeth, Bth, Extended, Ipv4Identification, MAD_LEN_BYTES, Opcode, Packet, PathMtu, Position, Psn,
    Qpn, Reth, Rkey, verify,
};
use crate::{
    Access, Data, EndpointConfig, Flow, Gather, ProtectionDomain, QpConfig, RecvRequest, Region,
    Remote, SendOp, SendRequest, Signal, WorkId,
};

pub use cm::connection_manager;

const ADDRESSES: [&str; 2] = ["fd09::1", "fd09::2"];
const DOMAIN: ProtectionDomain = ProtectionDomain(1);
/// The memory of an end: a read-only source, the region that peers access, the receives, and a
/// read-only remainder.
const MEMORY_BYTES: usize = 16 << 10;
const REGION: std::ops::Range<u64> = 4096..8192;
const RECVS: std::ops::Range<u64> = 8192..12_288;
const BASE_VA: u64 = 0x1000;

/// Every header: addresses and family by the first byte, a datagram in the rest.
pub fn packet(input: &[u8]) {
    let Some((&choice, bytes)) = input.split_first() else {
        return;
    };
    let flow = test_flow(choice);
    // Neither must panic, and knowing the identification never accepts more.
    let is_right = verify(flow, Ipv4Identification::Known(0), bytes);
    let may_be_right = verify(flow, Ipv4Identification::Unknown, bytes);
    assert!(may_be_right || !is_right);
    let Ok(packet) = Packet::parse(bytes) else {
        return;
    };
    assert_eq!(packet.opcode.to_wire(), packet.bth.opcode);
    assert_eq!(packet.bth.as_bytes(), &bytes[..size_of::<Bth>()]);
    let headers = size_of::<Bth>() + packet.opcode.extended_len_bytes();
    let pad = packet.bth.pad_len_bytes() as usize;
    assert_eq!(headers + packet.payload.len() + pad + 4, bytes.len());
    if let Extended::Acknowledge(aeth) | Extended::AtomicAcknowledge(aeth, _) = packet.extended
        && let Some(syndrome) = aeth.syndrome()
    {
        let again = Aeth::new(syndrome, aeth.msn.get());
        assert_eq!(again.syndrome(), Some(syndrome));
    }
    let sealed = forge::seal(&flow, &bytes[..bytes.len() - 4]);
    assert!(verify(flow, Ipv4Identification::Known(0), &sealed));
    assert!(verify(flow, Ipv4Identification::Unknown, &sealed));
    mad(packet.payload);
}

/// Every message of communication management is written back as it was read.
fn mad(bytes: &[u8]) {
    let Ok((tid, message)) = Message::parse(bytes) else {
        return;
    };
    let again = message.to_mad(tid);
    // The parser ignores the fields of the MAD header that are reserved or used by the sender
    // alone.
    assert_eq!(again.len(), MAD_LEN_BYTES);
    assert_eq!(again[24..], bytes[24..]);
    if let Message::Req(req) = message {
        let header = zerocopy::FromBytes::read_from_prefix(&req.private_data);
        if let Ok((header, _)) = header {
            let header: IpCmHeader = header;
            let both = header.addresses();
            assert!(both.is_none_or(|(source, dest)| source.is_ipv4() == dest.is_ipv4()));
        }
        let _ = (
            req.path_mtu(),
            req.service().tcp_port(),
            req.local_cm_timeout().duration(),
        );
    }
}

fn test_flow(choice: u8) -> Flow {
    let [local, remote] = if choice & 1 == 0 {
        ["10.9.0.1:4791", "10.9.0.2:4791"]
    } else {
        ["[fd09::1]:4791", "[fd09::2]:4791"]
    };
    let parse = |text: &str| text.parse().expect("an address");
    Flow::new(parse(local), parse(remote)).expect("one family")
}

/// Two connected ends and a script: forged packets to both, work of both, lost and delivered
/// datagrams, time. Each step is 8 bytes; some take payload from what follows.
pub fn received(input: &[u8]) {
    let mut world = World::new();
    let mut script = input;
    let mut steps = 0;
    while let Some((step, rest)) = script.split_first_chunk::<8>() {
        script = rest;
        steps += 1;
        if steps > STEPS_MAX {
            break;
        }
        world.step(*step, &mut script);
    }
    world.check();
}

/// The longest script, so that one run takes milliseconds.
const STEPS_MAX: usize = 200;

struct World {
    pair: Pair,
    qpns: [Qpn; 2],
    rkeys: [Rkey; 2],
    before: [Vec<u8>; 2],
    /// Where the next forged packet to each end starts from.
    psns: [u32; 2],
    posted: [usize; 2],
    completed: [usize; 2],
}

impl World {
    fn new() -> Self {
        let config = QpConfig {
            domain: DOMAIN,
            access: Access {
                read: true,
                write: true,
                atomic: true,
                invalidate: true,
            },
            send_depth: 16,
            recv_depth: 16,
            responder_resources: 2,
            ..QpConfig::default()
        };
        let mut pair = Pair::new(1, &small(), ADDRESSES, MEMORY_BYTES);
        let connected = pair.connected([config; 2], PathMtu::B256);
        let mut rkeys = [Rkey(0); 2];
        for (end, rkey) in pair.ends.iter_mut().zip(&mut rkeys) {
            let region = Region {
                domain: DOMAIN,
                placement: TestMemory::place(REGION.start, REGION.end - REGION.start),
                base_va: BASE_VA,
                access: config.access,
            };
            *rkey = end
                .endpoint
                .register(region, &mut end.memory)
                .expect("there is room");
        }
        let before = [0, 1].map(|end: usize| pair.ends[end].memory.bytes.clone());
        Self {
            qpns: connected.map(|(_, qpn)| qpn),
            rkeys,
            before,
            psns: [0, 1].map(|to| next_psn(&mut pair, to, connected[1 - to].1)),
            pair,
            posted: [1; 2],
            completed: [0; 2],
        }
    }

    fn step(&mut self, step: [u8; 8], script: &mut &[u8]) {
        let [kind, ..] = step;
        let end = usize::from(kind >> 7);
        match kind & 7 {
            0..=3 => self.forge(end, step, script),
            4 => self.post(end, step),
            5 => self.recv(end, step),
            6 => {
                // The datagrams that this end sends are lost.
                self.pair.intercept(end);
            }
            _ => {
                let millis = u64::from(step[1]);
                self.pair.run(Duration::from_millis(millis), |_| false);
            }
        }
        self.check();
    }

    /// A packet to `to` with its peer's address.
    fn forge(&mut self, to: usize, step: [u8; 8], script: &mut &[u8]) {
        let [_, code, ahead, va, len, flags, payload_len, pad] = step;
        let taken = usize::from(payload_len).min(script.len());
        let (noise, rest) = script.split_at(taken);
        *script = rest;
        let psn = self.psns[to]
            .wrapping_add(u32::from(ahead))
            .wrapping_sub(128);
        let dest = self.qpns[to];
        let bth = Bth::new(code, dest, Psn::new(psn));
        let bth = if flags & 1 == 0 {
            bth.with_ack_request()
        } else {
            bth
        };
        let va = (BASE_VA + u64::from(va) * 32).wrapping_sub(u64::from(flags >> 6) * 8192);
        let key = if flags & 2 == 0 {
            self.rkeys[to]
        } else {
            Rkey(3)
        };
        let reth = Reth::new(va, key, u32::from(len) * 16);
        let wanted = Opcode::from_wire(code).map_or(0, Opcode::extended_len_bytes);
        let mut headers = match wanted {
            16 | 20 | 28 => reth.as_bytes().to_vec(),
            _ => vec![flags; wanted],
        };
        headers.resize(wanted, flags & 0x3C);
        let full = vec![pad; 256];
        let payload = if flags & 4 == 0 { noise } else { &full[..] };
        let flow = self.pair.flow(1 - to);
        let datagram = forge::datagram(&flow, bth, &headers, payload);
        self.pair.inject(to, &datagram);
        if flags & 8 == 0 {
            self.psns[to] = self.psns[to].wrapping_add(1);
        }
    }

    fn post(&mut self, end: usize, step: [u8; 8]) {
        let [_, kind, offset, len, va, ..] = step;
        let place = TestMemory::place(u64::from(offset) * 8, u64::from(len) * 8);
        let own = Gather::new(&[place]).expect("one part");
        let into = TestMemory::place(RECVS.start + u64::from(offset), u64::from(len) * 4);
        let into = Gather::new(&[into]).expect("one part");
        let data = Data::Gather(own);
        let remote = Remote {
            va: BASE_VA + u64::from(va) * 8,
            rkey: self.rkeys[1 - end],
        };
        let op = match kind % 6 {
            0 => SendOp::Send(data),
            1 => SendOp::SendImmediate(data, u32::from(va)),
            2 => SendOp::SendInvalidate(data, remote.rkey),
            3 => SendOp::Write(data, remote),
            4 => SendOp::WriteImmediate(data, remote, u32::from(va)),
            _ => SendOp::Read(into, remote),
        };
        let request = SendRequest {
            id: WorkId(0),
            op,
            signal: match kind >> 5 & 3 {
                0 => Signal::Always,
                1 => Signal::OnError,
                _ => Signal::Eventually,
            },
        };
        let qpn = self.qpns[end];
        let posted = self.pair.ends[end].endpoint.post_send(qpn, request);
        self.posted[end] += usize::from(posted.is_ok());
    }

    fn recv(&mut self, end: usize, step: [u8; 8]) {
        let [_, slot, len, ..] = step;
        let into = TestMemory::place(RECVS.start + u64::from(slot) * 8, u64::from(len) * 8);
        let request = RecvRequest {
            id: WorkId(1),
            into,
        };
        let qpn = self.qpns[end];
        let posted = self.pair.ends[end].endpoint.post_recv(qpn, request);
        self.posted[end] += usize::from(posted.is_ok());
    }

    /// Only memory with write access was written, and only posted requests completed.
    fn check(&mut self) {
        for (index, end) in self.pair.ends.iter_mut().enumerate() {
            self.completed[index] += end.completions.len();
            assert!(self.completed[index] <= self.posted[index]);
            end.completions.clear();
            end.events.clear();
            for untouched in [0..REGION.start, RECVS.end..MEMORY_BYTES as u64] {
                let range = untouched.start as usize..untouched.end as usize;
                assert!(end.memory.bytes[range.clone()] == self.before[index][range]);
            }
        }
    }
}

/// An end with small queues, which is created quickly.
fn small() -> EndpointConfig {
    EndpointConfig {
        qps_max: 16,
        regions_max: 16,
        ..EndpointConfig::default()
    }
}

/// The PSN that end `to` expects next: learnt from a packet of its peer that is not delivered.
fn next_psn(pair: &mut Pair, to: usize, sender: Qpn) -> u32 {
    pair.intercept(1 - to);
    let request = SendRequest {
        id: WorkId(0),
        op: SendOp::Send(Data::Gather(Gather::EMPTY)),
        signal: Signal::Always,
    };
    let end = &mut pair.ends[1 - to];
    end.endpoint
        .post_send(sender, request)
        .expect("the queue pair is connected and idle");
    let sent = pair.intercept(1 - to);
    let packet = Packet::parse(&sent[0].2).expect("our own packet");
    assert_eq!(
        packet.opcode,
        Opcode::Send(Position::Only, crate::wire::SendTail::Plain)
    );
    packet.bth.psn().get()
}

#[cfg(test)]
mod tests {
    use block::testing::replay;

    #[test]
    fn corpora_pass() {
        assert!(replay("roce_packet", super::packet) > 0);
        assert!(replay("roce_received", super::received) > 0);
        assert!(replay("roce_cm", super::connection_manager) > 0);
    }
}
