//! What a command costs in the NVMe/TCP host session, sockets left out: nanoseconds of one core for
//! each, in batches of 128, the best of many batches, since whatever else the machine does only
//! adds to it.
//!
//! `cargo bench -p nvme --bench host_session`

use std::time::{Duration, Instant};

use block::{Blocks, Extent, Lba};
use nvme::host::{BufferRange, Buffers, CommandKey, Outcome, io};
use nvme::tcp::wire::{CapsuleResp, DataPdu, Dgst, Digest, IcResp, Layout, Pda, PduFlags, PduType};
use nvme::tcp::{HostConfig, HostSession};
use nvme::wire::{Cid, Cqe, Nsid, Status};
use session::SendList;
use zerocopy::IntoBytes;
use zerocopy::little_endian::{U16, U32};

const DEPTH: u16 = 128;
const BATCHES: u32 = 20_000;
/// Command identifiers repeat after this many generations.
const GENERATIONS: u16 = 16;

#[derive(Clone, Copy, Debug)]
enum Kind {
    Read,
    Write,
}

fn main() {
    for dgst in [Dgst::NONE, Dgst::HEADER | Dgst::DATA] {
        for len_bytes in [512, 4096] {
            for kind in [Kind::Read, Kind::Write] {
                let best = run(kind, len_bytes, dgst);
                let nanoseconds = best.as_nanos() / u128::from(DEPTH);
                println!("{kind:?} of {len_bytes:>4} B, digests {dgst:?}: {nanoseconds:>4} ns");
            }
        }
    }
}

fn run(kind: Kind, len_bytes: u32, dgst: Dgst) -> Duration {
    let mut session = HostSession::new(HostConfig {
        dgst,
        keys: DEPTH,
        in_flight_max: DEPTH,
        in_capsule_max_bytes: 8192,
    });
    let mut buffers = Buffers::new(DEPTH, len_bytes as usize);
    let mut done: Vec<Outcome> = Vec::with_capacity(DEPTH.into());
    let mut list = SendList::with_capacity(1 << 20);
    send(&mut session, &buffers, &mut list, &mut done);
    let terms = IcResp::new(Pda(0), dgst, 131_072);
    session
        .handle_bytes(terms.as_bytes(), &mut buffers, &mut done)
        .expect("good terms");
    let answers: Vec<Vec<u8>> = (0..GENERATIONS)
        .map(|generation| answers(kind, len_bytes, dgst, generation))
        .collect();
    let extent = Extent::new(Lba(0), Blocks(u64::from(len_bytes) / 512));
    let mut best = Duration::MAX;
    for (_, answers) in (0..BATCHES).zip(answers.iter().cycle()) {
        let start = Instant::now();
        for key in 0..DEPTH {
            let data = BufferRange::first(key, len_bytes);
            let command = match kind {
                Kind::Read => io::read(Nsid(1), extent, data),
                Kind::Write => io::write(Nsid(1), extent, data),
            };
            session
                .submit(CommandKey(key), &command, &buffers)
                .expect("there is room");
        }
        send(&mut session, &buffers, &mut list, &mut done);
        session
            .handle_bytes(answers, &mut buffers, &mut done)
            .expect("good PDUs");
        best = best.min(start.elapsed());
        assert_eq!(done.len(), usize::from(DEPTH));
        assert!(done.drain(..).all(|outcome| outcome.status.is_success()));
    }
    best
}

fn send(
    session: &mut HostSession,
    buffers: &Buffers,
    list: &mut SendList,
    done: &mut Vec<Outcome>,
) {
    while session.wants_transmit() {
        session.poll_transmit(buffers, list);
        let len_bytes = list.len_bytes();
        list.consume(len_bytes);
        session.handle_sent(len_bytes, done);
    }
}

/// What a controller answers to a batch.
fn answers(kind: Kind, len_bytes: u32, dgst: Dgst, generation: u16) -> Vec<u8> {
    let layout = Layout { dgst, pda: Pda(0) };
    let mut bytes = Vec::new();
    for key in 0..DEPTH {
        let cid = generation * CommandKey::COUNT_MAX + key;
        let header = match kind {
            Kind::Read => {
                let flags = PduFlags::LAST | PduFlags::SUCCESS;
                let pdu = DataPdu {
                    ch: layout.common_header(PduType::C2hData, flags, len_bytes),
                    cccid: U16::new(cid),
                    ttag: U16::ZERO,
                    datao: U32::ZERO,
                    datal: U32::new(len_bytes),
                    reserved: [0; 4],
                };
                pdu.as_bytes().to_vec()
            }
            Kind::Write => {
                let pdu = CapsuleResp {
                    ch: layout.common_header(PduType::CapsuleResp, PduFlags::NONE, 0),
                    cqe: zerocopy::transmute!(Cqe::new(Cid(cid), Status::SUCCESS, 0)),
                };
                pdu.as_bytes().to_vec()
            }
        };
        bytes.extend_from_slice(&header);
        if dgst.header() {
            bytes.extend_from_slice(&Digest::of(&header).to_wire());
        }
        if let Kind::Read = kind {
            let data = vec![1; len_bytes as usize];
            bytes.extend_from_slice(&data);
            if dgst.data() {
                bytes.extend_from_slice(&Digest::of(&data).to_wire());
            }
        }
    }
    bytes
}
