//! A session that continues undisturbed beside hostile peers: the target closes their connections.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use block::testing::{assert_not_delayed, timed};
use server::RdmaStatistics;

use super::attacks::Attackers;
use super::rdma_crowd::{Crowd, assert_bounded};
use super::*;

/// The least number of times that each attack is made. They go on until the host has made its
/// transfers, up to `ROUNDS_MAX` times.
const ROUNDS: u32 = 10;
const ROUNDS_MAX: u32 = 40 * ROUNDS;
/// The least number of times that the host writes and reads meanwhile.
const TRANSFERS: u32 = 70;
/// The length of the host's commands.
const LEN: usize = 4096;

/// A cause for which packets were dropped or requests rejected, the least number of times, and the
/// counter.
type Provoked = (&'static str, u64, fn(&RdmaStatistics) -> u64);

/// The causes that the attacks provoke.
const PROVOKED: [Provoked; 9] = [
    ("malformed", 1, |of| of.endpoint.malformed),
    ("wrong ICRC", 1, |of| of.endpoint.bad_icrc),
    ("wrong partition", 1, |of| of.endpoint.bad_pkey),
    ("unknown queue pair", 1, |of| of.endpoint.no_such_qp),
    ("stranger", 1, |of| of.endpoint.stranger),
    ("no message of the connection manager", 1, |of| {
        of.endpoint.bad_mad
    }),
    ("wrong key", ROUNDS as u64, |of| of.endpoint.refused_access),
    ("no right to it, or too long", 3 * ROUNDS as u64, |of| {
        of.endpoint.refused_invalid
    }),
    ("too many connections", 1, |of| {
        of.endpoint.cm.refused_by_limit
    }),
];

/// Asserts that the server has counted each cause.
fn assert_counted(fixture: &Fixture) {
    let counted = |server: &Server| {
        let portals = server.portals();
        let statistics = portals.first().and_then(|portal| portal.rdma_statistics);
        statistics.expect("software counts")
    };
    for (cause, min, count) in PROVOKED {
        fixture.until(cause, |server| count(&counted(server)) >= min);
    }
}

/// Writes, reads and compares.
fn write_and_read(io: &mut Peer, mark: u8) {
    io.data()[..LEN].fill(mark);
    let status = io.command(&transfer(opcode::WRITE, 1, LEN), LEN).status();
    assert!(status.is_success(), "{status:?}");
    io.data()[..LEN].fill(!mark);
    let status = io.command(&transfer(opcode::READ, 2, LEN), LEN).status();
    assert!(status.is_success(), "{status:?}");
    assert!(io.data()[..LEN].iter().all(|&byte| byte == mark));
}

#[test]
fn a_host_beside_hostile_peers_notices_nothing() {
    let fixture = Fixture::alone();
    let (_admin, controller) = fixture.admin(2, NQN);
    let mut io = fixture.connect(3, 1).expect("taken");
    let status = connect_queue(&mut io, NQN, 1, controller).status();
    assert!(status.is_success(), "{status:?}");
    let attackers = Attackers {
        portal: fixture.portal.address,
        udp_port: fixture.udp_port,
        first_host: Ipv4Addr::new(127, 38, 0, 4),
        pause: Duration::from_micros(200),
        is_over: AtomicBool::new(false),
    };
    let transfers = AtomicU32::new(0);
    let mut times = Vec::new();
    std::thread::scope(|scope| {
        let attacks = scope.spawn(|| {
            for round in 0..ROUNDS_MAX {
                if round >= ROUNDS && transfers.load(Ordering::Relaxed) > TRANSFERS {
                    break;
                }
                attackers.attack(round);
            }
        });
        attackers.disturb(scope);
        while !attacks.is_finished() {
            let mark = transfers.fetch_add(1, Ordering::Relaxed).to_le_bytes()[0];
            times.push(timed(|| write_and_read(&mut io, mark)));
        }
        attackers.end();
    });
    assert!(transfers.into_inner() >= TRANSFERS);
    assert_not_delayed(&times, || write_and_read(&mut io, 0));
    assert_counted(&fixture);
    let sessions = fixture.server.sessions();
    let [session] = &sessions[..] else {
        panic!("one session, not {}", sessions.len());
    };
    assert_eq!(session.connections, 2);
    assert_eq!(session.statistics.kind(OpKind::Write).errors, 0);
    assert_eq!(session.statistics.kind(OpKind::Read).errors, 0);
}

#[test]
fn a_crowd_that_never_connects_its_queues_leaves_memory_and_time_to_others() {
    let fixture = Fixture::alone();
    let (mut admin, controller) = fixture.admin(2, NQN);
    let mut io = fixture.connect(3, 1).expect("taken");
    let status = connect_queue(&mut io, NQN, 1, controller).status();
    assert!(status.is_success(), "{status:?}");
    let asked = nvme::rdma::wire::ConnectRequest::new(0, 128);
    let crowds = [40, 41, 42, 43].map(|host| Crowd {
        from: (Ipv4Addr::new(127, 38, 0, host), fixture.udp_port).into(),
        to: fixture.portal.address,
        private_data: asked.as_bytes(),
    });
    let mut mark = 0_u8;
    let alive = Sqe::new(opcode::KEEP_ALIVE, Cid(3), Nsid::NONE);
    let probe = || {
        mark = mark.wrapping_add(1);
        write_and_read(&mut io, mark);
        // A queue pair that its host does not drive acknowledges nothing, and fails after seconds.
        assert!(admin.command(&alive, 0).status().is_success());
    };
    let late = || drop(fixture.admin(4, NQN));
    assert_bounded(&fixture.server, &crowds, probe, late);
}
