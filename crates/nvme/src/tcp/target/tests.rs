//! The whole session, driven byte by byte.

use std::sync::Arc;
use std::time::Duration;

use block::{BlockSize, StreamSession};
use zerocopy::little_endian::U32;

use super::*;
use crate::testing::{Chunks, Peer, VecVolume, io_peer};
use crate::wire::{Cid, Nsid, Sgl, Sqe, opcode};

fn volume() -> Arc<VecVolume> {
    let volume = VecVolume::new(BlockSize::B512, 4096);
    let bytes: Vec<u8> = (0..4096 * 512u32).map(|i| (i / 512 + i) as u8).collect();
    volume.fill(0, &bytes);
    Arc::new(volume)
}

fn peer(volume: &Arc<VecVolume>) -> (Peer, Peer) {
    io_peer(TargetConfig::default(), &[Arc::clone(volume)], 128)
}

fn transfer(opcode: u8, cid: u16, lba: u64, blocks: u32, sgl: Sgl) -> Sqe {
    let mut sqe = Sqe::new(opcode, Cid(cid), Nsid(1));
    sqe.set_cdw10_11(lba);
    sqe.cdw12 = U32::new(blocks - 1);
    sqe.sgl1 = sgl;
    sqe
}

fn read(cid: u16, lba: u64, blocks: u32) -> Sqe {
    transfer(opcode::READ, cid, lba, blocks, Sgl::transport(blocks * 512))
}

#[test]
fn reads_give_the_volumes_bytes_in_any_length() {
    let volume = volume();
    let (mut io, _admin) = peer(&volume);
    for blocks in [1, 2, 8, 31, 32, 33, 200, 2048] {
        let (data, status) = io.command(&read(7, 3, blocks), &[]);
        assert!(status.is_success(), "{blocks} blocks: {status:?}");
        assert_eq!(data, volume.contents()[3 * 512..][..blocks as usize * 512]);
    }
}

#[test]
fn writes_in_the_capsule_and_by_r2t_reach_the_volume() {
    for chunks in [
        Chunks::Whole,
        Chunks::Of(1),
        Chunks::Of(700),
        Chunks::Random(5),
    ] {
        let volume = volume();
        let (mut io, _admin) = peer(&volume);
        io.chunks = chunks;
        let data = vec![0xa5; 8192];
        let sqe = transfer(opcode::WRITE, 1, 16, 16, Sgl::in_capsule(0, 8192));
        let (_, status) = io.command(&sqe, &data);
        assert!(status.is_success(), "{status:?}");
        assert_eq!(volume.contents()[16 * 512..][..8192], data);
        let data = vec![0x5a; 1 << 20];
        let sqe = transfer(opcode::WRITE, 2, 64, 2048, Sgl::transport(1 << 20));
        let status = io.write_by_r2t(&sqe, &data, 100_000);
        assert!(status.is_success(), "{status:?}");
        assert_eq!(volume.contents()[64 * 512..][..1 << 20], data);
    }
}

#[test]
fn a_host_that_does_not_connect_in_time_is_dropped() {
    let (mut io, _admin) = peer(&volume());
    io.advance(Duration::from_secs(60))
        .expect("it is connected");
    let subsystem = crate::testing::subsystem(crate::target::Limits::default(), &[]);
    let mut late = Peer::new(TargetConfig::default(), subsystem, 9);
    let error = late.advance(Duration::from_secs(30));
    assert_eq!(error, Err(SessionError::ConnectTimeout));
    assert!(late.session.is_closing());
}
