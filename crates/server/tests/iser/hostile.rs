//! A session that continues undisturbed beside hostile initiators: the target closes their
//! connections or rejects their messages.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU32, Ordering};

use block::testing::{assert_not_delayed, timed};

use super::attacks::Attackers;
use super::rdma_crowd::{Crowd, assert_bounded};
use super::*;

/// The least number of times that each attack is made.
const ROUNDS: u32 = 20;
/// The least number of times that the initiator writes and reads meanwhile.
const TRANSFERS: u32 = 50;
/// The length of its commands.
const LEN: u32 = 4096;
const BLOCKS: u16 = 8;

/// Writes, reads and compares.
fn write_and_read(io: &mut Peer, mark: u8) {
    io.data()[..LEN as usize].fill(mark);
    let from = io.register(LEN.into());
    let write = cdb_10(0x2A, 64, BLOCKS);
    let status = command(io, WRITE, &write, LEN, &[], (Some(from), None));
    assert_eq!(status, GOOD);
    io.data()[..LEN as usize].fill(!mark);
    let into = io.register(LEN.into());
    let read = cdb_10(0x28, 64, BLOCKS);
    let status = command(io, READ, &read, LEN, &[], (None, Some(into)));
    assert_eq!(status, GOOD);
    assert!(io.data()[..LEN as usize].iter().all(|&byte| byte == mark));
}

#[test]
fn an_initiator_beside_hostile_peers_notices_nothing() {
    let fixture = Fixture::alone();
    let mut io = fixture.ready();
    let attackers = Attackers {
        from: SocketAddr::new(Ipv4Addr::new(127, 36, 0, 3).into(), fixture.udp_port),
        portal: fixture.portal.address,
        target: IQN,
    };
    let transfers = AtomicU32::new(0);
    let mut times = Vec::new();
    std::thread::scope(|scope| {
        let attacks = scope.spawn(|| {
            let mut round = 0;
            while round < ROUNDS || transfers.load(Ordering::Relaxed) < TRANSFERS {
                attackers.attack(round);
                round += 1;
            }
        });
        while !attacks.is_finished() {
            let mark = transfers.fetch_add(1, Ordering::Relaxed).to_le_bytes()[0];
            times.push(timed(|| write_and_read(&mut io, mark)));
        }
    });
    assert!(transfers.into_inner() >= TRANSFERS);
    assert_not_delayed(&times, || write_and_read(&mut io, 0));
}

#[test]
fn a_crowd_that_never_logs_in_leaves_memory_and_time_to_others() {
    let fixture = Fixture::alone();
    let mut io = fixture.ready();
    let crowds = [40, 41, 42, 43].map(|host| Crowd {
        from: (Ipv4Addr::new(127, 36, 0, host), fixture.udp_port).into(),
        to: fixture.portal.address,
        private_data: &[0x80, 0, 0, 0],
    });
    let mut mark = 0_u8;
    let probe = || {
        mark = mark.wrapping_add(1);
        write_and_read(&mut io, mark);
    };
    let late = || {
        let from = (Ipv4Addr::new(127, 36, 0, 3), fixture.udp_port).into();
        let late = Peer::connect(from, fixture.portal.address, Addresses::InFull);
        let mut late = late.expect("taken");
        assert_eq!(late.log_in("iqn.2026-11.com.example:late", IQN), GOOD);
    };
    assert_bounded(&fixture.server, &crowds, probe, late);
}
