//! Seeded streams of commands against a model of the volume.

use super::*;

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

#[test]
fn random_streams_leave_the_volume_as_the_model_says() {
    for seed in 1..=12 {
        let mut random = Random(0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(seed));
        let volume = volume();
        let mut model = volume.contents();
        let dgst = Dgst(random.below(4) as u8);
        let (mut io, _admin) = digested(&volume, dgst, Pda(random.below(32) as u8));
        io.chunks = Chunks::Random(seed);
        for _ in 0..200 {
            step(&mut random, &mut io, &mut model);
        }
        assert!(volume.contents() == model, "seed {seed}");
    }
}

/// Executes one random command and checks its result.
fn step(random: &mut Random, io: &mut Peer, model: &mut [u8]) {
    let blocks_max = if random.below(8) == 0 { 300 } else { 16 };
    let blocks = 1 + random.below(blocks_max) as u32;
    let lba = random.below(BLOCKS + 4);
    let at = lba as usize * 512;
    let len = blocks as usize * 512;
    let fits = lba + u64::from(blocks) <= BLOCKS;
    let cid = random.below(1 << 16) as u16;
    let data: Vec<u8> = (0..len)
        .map(|i| (i as u64 * 31).wrapping_add(random.0) as u8)
        .collect();
    let status = match random.below(6) {
        0 | 1 => {
            let (data, status) = io.command(&read(cid, lba, blocks), &[]);
            assert!(!fits || data == model[at..at + len], "a read differs");
            status
        }
        2 if len <= 8192 => {
            let (_, status) = io.command(&write_in_capsule(cid, lba, blocks), &data);
            if fits {
                model[at..at + len].copy_from_slice(&data);
            }
            status
        }
        2 | 3 => {
            let piece = 1 + random.below(20_000) as usize;
            let status = io.write_by_r2t(&write_by_r2t(cid, lba, blocks), &data, piece);
            if fits {
                model[at..at + len].copy_from_slice(&data);
            }
            status
        }
        4 => {
            let sqe = transfer(opcode::WRITE_ZEROES, cid, lba, blocks, Sgl::transport(0));
            if fits {
                model[at..at + len].fill(0);
            }
            io.command(&sqe, &[]).1
        }
        _ => {
            let sqe = transfer(
                opcode::COMPARE,
                cid,
                lba,
                blocks,
                Sgl::transport(len as u32),
            );
            let expected = if fits { &model[at..at + len] } else { &data };
            io.write_by_r2t(&sqe, expected, 5000)
        }
    };
    let code = if fits {
        StatusCode::Success
    } else {
        StatusCode::LbaOutOfRange
    };
    assert_eq!(status.code(), Some(code));
}

#[test]
fn disjoint_writes_and_reads_in_one_batch_do_not_disturb_each_other() {
    for seed in [3, 8] {
        let mut random = Random(seed);
        let volume = volume();
        let mut model = volume.contents();
        let (mut io, _admin) = peer(&volume);
        io.chunks = Chunks::Random(seed);
        for _ in 0..50 {
            let mut bytes = Vec::new();
            for cid in 0..64u16 {
                let (lba, blocks) = (u64::from(cid) * 64, 1 + random.below(16) as u32);
                let (at, len) = (lba as usize * 512, blocks as usize * 512);
                if random.below(2) == 0 {
                    bytes.extend(io.capsule(&read(cid, lba, blocks), &[]));
                } else {
                    let data = vec![random.below(256) as u8; len];
                    model[at..at + len].copy_from_slice(&data);
                    bytes.extend(io.capsule(&write_in_capsule(cid, lba, blocks), &data));
                }
            }
            io.send(&bytes).expect("good capsules");
            let pdus = io.pdus();
            assert_eq!(pdus.len(), 64, "each command has one answer");
            for pdu in pdus.iter().filter(|pdu| !pdu.data.is_empty()) {
                let lba = u64::from(pdu.data_header().cccid.get()) * 64;
                assert!(model[lba as usize * 512..].starts_with(&pdu.data));
            }
        }
        assert!(volume.contents() == model);
    }
}
