//! Peers that mean harm beside a host that works: they end, and it notices nothing.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use fabric::verbs::{Data, QpConfig, Remote, Rkey, SendOp};
use fabric::{ConnectTo, Provider, Soft, SoftOptions, Wait};

use nvme::rdma::wire::ConnectRequest;
use roce::Flow;
use roce::testing::forge;
use roce::wire::{Bth, Opcode, Position, Psn, Qpn, SendTail};
use target::RdmaStatistics;

use super::*;

/// What a peer does over a connection that it was given.
#[derive(Clone, Copy, Debug)]
enum Harm {
    /// Writes where it guesses that memory is.
    Write,
    /// Reads there.
    Read,
    /// Makes a key worthless that it guesses.
    Invalidate,
    /// Sends a message that is no capsule.
    NoCapsule,
    /// Sends one that is longer than what waits for it.
    Overlong,
    /// Sends a command whose data are in memory that it does not lend.
    WrongKey,
    /// Sends more commands than its queue has entries.
    Overrun,
}

const HARMS: [Harm; 7] = [
    Harm::Write,
    Harm::Read,
    Harm::Invalidate,
    Harm::NoCapsule,
    Harm::Overlong,
    Harm::WrongKey,
    Harm::Overrun,
];
/// How often each is done: so often, and on until the host beside had its transfers, but not for ever.
const ROUNDS: u32 = 10;
const ROUNDS_MAX: u32 = 40 * ROUNDS;
/// How often the host writes and reads meanwhile, at the least.
const TRANSFERS: u32 = 70;
/// Datagrams of garbage, and requests for connections, at the most.
const GARBAGE_MAX: u32 = 50_000;
const REQUESTS_MAX: u32 = 2_000;
/// What the numbers of a thread's first queue pair may be multiples of, but for the thread's own: two threads have room for 4096
/// queue pairs each.
const QPN_STEP: u32 = 1 << 13;
/// How often strangers try all of them, at the least and at the most.
const SWEEPS: u32 = 4;
const SWEEPS_MAX: u32 = 40;
/// The length of the host's commands.
const LEN: usize = 4096;

impl Harm {
    /// Does it, and waits until the server has ended the connection.
    fn do_it(self, peer: &mut Peer, guess: u32) {
        let remote = Remote {
            va: u64::from(guess) << 12,
            rkey: Rkey(guess),
        };
        let command = transfer(opcode::READ, 1, 4096);
        match self {
            Self::Write => peer.send(SendOp::Write(peer.inline(16), remote)),
            Self::Read => peer.send(SendOp::Read(peer.gather(4096), remote)),
            Self::Invalidate => peer.send(SendOp::SendInvalidate(peer.inline(16), remote.rkey)),
            Self::NoCapsule => peer.send(SendOp::Send(peer.inline(3))),
            Self::Overlong => peer.send(SendOp::Send(Data::Gather(peer.gather(1 << 16)))),
            Self::WrongKey => {
                let connect = ConnectSqe::new(Cid(0), 0, peer::ENTRIES);
                peer.command_to(&zerocopy::transmute!(connect), remote);
            }
            Self::Overrun => (0..64).for_each(|_| peer.command_to(&command, remote)),
        }
        peer.until_over();
    }
}

/// Numbers that repeat themselves late (xorshift).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// Datagrams that look like packets, or not, with wrong checksums, to any queue pair.
fn send_garbage(to: SocketAddr, from: SocketAddr, is_over: &AtomicBool) {
    let socket = UdpSocket::bind(from).expect("an address of loopback");
    let mut numbers = Numbers(0x9E37_79B9_7F4A_7C15);
    let mut datagram = [0; 4096];
    for _ in 0..GARBAGE_MAX {
        if is_over.load(Ordering::Relaxed) {
            return;
        }
        for word in datagram[..64].chunks_exact_mut(8) {
            word.copy_from_slice(&numbers.next().to_ne_bytes());
        }
        // Opcode of a reliable connection, default partition, a queue pair with a low number.
        datagram[0] &= 0x1F;
        datagram[2..4].fill(0xFF);
        datagram[5..7].fill(0);
        let len = (numbers.next() % 4096) as usize >> (numbers.next() % 8);
        // The other end's buffer may be full.
        let _ = socket.send_to(&datagram[..len], to);
        if numbers.next() % 16 == 0 {
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}

/// Sends whole packets to queue pairs of others and to none, of other partitions, and messages that no connection manager sends.
fn send_as_a_stranger(to: SocketAddr, from: SocketAddr, is_over: &AtomicBool) {
    let socket = UdpSocket::bind(from).expect("an address of loopback");
    let flow = Flow::new(from, to).expect("one family");
    let send = Opcode::Send(Position::Only, SendTail::Plain);
    let generations = (1 << 24) / QPN_STEP;
    let sweeps = (0..SWEEPS_MAX).take_while(|&n| n < SWEEPS || !is_over.load(Ordering::Relaxed));
    for (sweep, generation) in sweeps.flat_map(|n| (1..generations).map(move |g| (n, g))) {
        let numbers = [0, 1].map(|thread| generation * QPN_STEP + thread);
        let mut bths =
            numbers.map(|number| Bth::new(send.to_wire(), Qpn::new(number), Psn::new(0)));
        match generation % 32 {
            0 => bths[0].pkey = 0x7ABC.into(),
            1 => bths[1] = Bth::new(Opcode::DatagramSend.to_wire(), Qpn::GSI, Psn::new(0)),
            2 => std::thread::sleep(Duration::from_micros(200)),
            _ => {}
        }
        for bth in bths {
            // Queue pairs of two ends of ours have agreed on trains.
            let datagram = match sweep % 2 {
                0 => forge::in_train(bth, &[], &[0; 8]),
                _ => forge::datagram(&flow, bth, &[], &[0; 8]),
            };
            // The other end's buffer may be full.
            let _ = socket.send_to(&datagram, to);
        }
    }
}

/// Asks for connections and never goes on with any.
fn flood_with_requests(to: SocketAddr, from: SocketAddr, is_over: &AtomicBool) {
    let mut soft = Soft::bind(&SoftOptions::at(from)).expect("an address of loopback");
    let asked = ConnectRequest::new(0, peer::ENTRIES);
    let to = ConnectTo {
        address: to.ip(),
        port: 4420,
        private_data: asked.as_bytes(),
    };
    for _ in 0..REQUESTS_MAX {
        if is_over.load(Ordering::Relaxed) {
            return;
        }
        let Ok(qpn) = soft.create_qp(QpConfig::default()) else {
            return;
        };
        let _ = soft.connect(qpn, &to);
        soft.poll(Wait::AtMost(Duration::from_millis(1)))
            .expect("the socket works");
    }
}

/// A cause for which packets were dropped or requests refused: how often at the least, and its count.
type Provoked = (&'static str, u64, fn(&RdmaStatistics) -> u64);

/// What the peers above provoke.
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

/// The server tells of each cause that was provoked.
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

#[test]
fn a_host_beside_hostile_peers_notices_nothing() {
    let fixture = Fixture::new();
    let (_admin, controller) = fixture.admin(2, NQN);
    let mut io = fixture.connect(3, 1).expect("taken");
    let status = connect_queue(&mut io, NQN, 1, controller).status();
    assert!(status.is_success(), "{status:?}");
    let server_at = SocketAddr::new(LOOPBACK.into(), fixture.udp_port);
    let host = |last| SocketAddr::new(Ipv4Addr::new(127, 38, 0, last).into(), fixture.udp_port);
    let is_over = AtomicBool::new(false);
    let transfers = AtomicU32::new(0);
    std::thread::scope(|scope| {
        let harms = scope.spawn(|| {
            for round in 0..ROUNDS_MAX {
                if round >= ROUNDS && transfers.load(Ordering::Relaxed) > TRANSFERS {
                    break;
                }
                for (harm, guess) in HARMS.into_iter().zip(round..) {
                    let mut peer = fixture.connect(4, 0).expect("the server takes others");
                    harm.do_it(&mut peer, guess.wrapping_mul(0x0101_0101));
                }
            }
        });
        scope.spawn(|| send_garbage(server_at, host(5), &is_over));
        scope.spawn(|| flood_with_requests(server_at, host(6), &is_over));
        scope.spawn(|| send_as_a_stranger(server_at, host(7), &is_over));
        while !harms.is_finished() {
            let mark = transfers.fetch_add(1, Ordering::Relaxed).to_le_bytes()[0];
            io.data()[..LEN].fill(mark);
            let status = io.command(&transfer(opcode::WRITE, 1, LEN), LEN).status();
            assert!(status.is_success(), "{status:?}");
            io.data()[..LEN].fill(!mark);
            let status = io.command(&transfer(opcode::READ, 2, LEN), LEN).status();
            assert!(status.is_success(), "{status:?}");
            assert!(io.data()[..LEN].iter().all(|&byte| byte == mark));
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert!(transfers.into_inner() >= TRANSFERS);
    assert_counted(&fixture);
    let sessions = fixture.server.sessions();
    let [session] = &sessions[..] else {
        panic!("one session, not {}", sessions.len());
    };
    assert_eq!(session.connections, 2);
    assert_eq!(session.statistics.kind(OpKind::Write).errors, 0);
    assert_eq!(session.statistics.kind(OpKind::Read).errors, 0);
}
