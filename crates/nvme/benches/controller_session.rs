//! What a command costs in the NVMe/TCP target session, sockets left out: nanoseconds of one core
//! for each, in batches of 128 as a host at queue depth 128 sends them. The volume is a vector
//! behind a lock, which is part of the figure.
//!
//! `cargo bench -p nvme --features testing`

use std::sync::Arc;
use std::time::Instant;

use block::BlockSize;
use nvme::tcp::ControllerConfig;
use nvme::tcp::wire::PduFlags;
use nvme::testing::{Peer, VecVolume, io_peer};
use nvme::wire::{Cid, Nsid, Sgl, Sqe, opcode};
use session::{SendList, Session, StreamSession};
use zerocopy::little_endian::U32;

const DEPTH: u16 = 128;
const BATCHES: u32 = 20_000;

fn main() {
    for len_bytes in [512, 4096] {
        let mut io = peer();
        let batch = batch(&io, opcode::READ, len_bytes);
        report("read", len_bytes, run(&mut io, &batch));
        let batch = self::batch(&io, opcode::WRITE, len_bytes);
        report("write in capsule", len_bytes, run(&mut io, &batch));
    }
    let mut io = peer();
    report("write by R2T", 16384, run_r2t(&mut io));
}

fn report(what: &str, len_bytes: u32, nanoseconds: f64) {
    println!("{what:>18} of {len_bytes:>5} B: {nanoseconds:>6.1} ns");
}

fn peer() -> Peer {
    let volume = Arc::new(VecVolume::new(BlockSize::B512, 1 << 16));
    io_peer(ControllerConfig::default(), &[volume], DEPTH + 1).0
}

fn command(opcode: u8, cid: u16, len_bytes: u32) -> Sqe {
    let mut sqe = Sqe::new(opcode, Cid(cid), Nsid(1));
    let blocks = len_bytes / 512;
    sqe.set_cdw10_11(u64::from(cid) * 7919 % 65_000 / u64::from(blocks) * u64::from(blocks));
    sqe.cdw12 = U32::new(blocks - 1);
    sqe.sgl1 = Sgl::transport(len_bytes);
    sqe
}

fn batch(io: &Peer, opcode: u8, len_bytes: u32) -> Vec<u8> {
    let data = vec![1; len_bytes as usize];
    let capsule = |cid| {
        let mut sqe = command(opcode, cid, len_bytes);
        if opcode == opcode::READ {
            return io.capsule(&sqe, &[]);
        }
        sqe.sgl1 = Sgl::in_capsule(0, len_bytes);
        io.capsule(&sqe, &data)
    };
    (0..DEPTH).flat_map(capsule).collect()
}

fn run(io: &mut Peer, batch: &[u8]) -> f64 {
    let mut out = SendList::with_capacity(1 << 20);
    let start = Instant::now();
    for _ in 0..BATCHES {
        feed(io, batch, &mut out);
    }
    per_command(start)
}

fn run_r2t(io: &mut Peer) -> f64 {
    let data = vec![2; 16384];
    let mut commands = Vec::new();
    let mut answers = Vec::new();
    for cid in 0..DEPTH {
        commands.extend(io.capsule(&command(opcode::WRITE, cid, 16384), &[]));
        // Slots are given out from the last to the first and back again, so the order of tags is
        // the same each time.
        answers.push(cid);
    }
    let mut out = SendList::with_capacity(1 << 20);
    let mut elapsed = 0.0;
    for _ in 0..BATCHES / 10 {
        let start = Instant::now();
        feed(io, &commands, &mut out);
        elapsed += start.elapsed().as_secs_f64();
        // Building the answers is the host's work and is not counted.
        let mut bytes = Vec::new();
        for &cid in &answers {
            let slot = (0..=DEPTH).find(|&slot| {
                io.session.queue().receiving(nvme::controller::SlotId(slot)) == Some(Cid(cid))
            });
            let ttag = slot.expect("the command awaits its data");
            bytes.extend(io.h2c_data(Cid(cid), ttag, 0, PduFlags::LAST, &data));
        }
        let start = Instant::now();
        feed(io, &bytes, &mut out);
        elapsed += start.elapsed().as_secs_f64();
    }
    elapsed * 1e9 / f64::from(BATCHES / 10) / f64::from(DEPTH)
}

fn feed(io: &mut Peer, batch: &[u8], out: &mut SendList) {
    let now = io.now;
    io.session
        .handle_bytes(now, batch, &mut io.backend)
        .expect("good PDUs");
    while io.session.wants_transmit() {
        io.session.poll_transmit(now, &mut io.backend, out);
        let len_bytes = out.len_bytes();
        out.consume(len_bytes);
    }
    io.backend.completed.clear();
}

fn per_command(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e9 / f64::from(BATCHES) / f64::from(DEPTH)
}
