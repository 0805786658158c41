//! What hostile peers do to a target, each from an address of its own.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fabric::verbs::{Data, QpConfig, Remote, Rkey, SendOp};
use fabric::{ConnectTo, Provider, Soft, SoftOptions, Wait};
use nvme::rdma::wire::ConnectRequest;
use nvme::wire::fabrics::ConnectSqe;
use nvme::wire::{Cid, opcode};
use roce::Flow;
use roce::testing::forge;
use roce::wire::{Bth, Opcode, Position, Psn, Qpn, SendTail};
use zerocopy::IntoBytes;

use super::peer::{self, Peer, transfer};

/// Hostile peers: their addresses, the portal that they attack, and how fast.
pub struct Attackers {
    /// The target's portal: its port is that of the connection manager.
    pub portal: SocketAddr,
    /// The port of all packets, the target's and the peers'.
    pub udp_port: u16,
    /// The first of the peers' four addresses, which follow each other.
    pub first_host: Ipv4Addr,
    /// How long peers without a connection pause between some of their packets.
    pub pause: Duration,
    /// Whether peers without a connection stop.
    pub is_over: AtomicBool,
}

/// What a peer does over a connection that the target accepted.
#[derive(Clone, Copy, Debug)]
pub enum Attack {
    /// Writes with a guessed key to a guessed address.
    Write,
    /// Reads from there.
    Read,
    /// Invalidates a guessed key.
    Invalidate,
    /// Sends a message that is shorter than a capsule.
    NoCapsule,
    /// Sends a message that is longer than the receives that the target posts.
    Overlong,
    /// Sends a command whose data are in memory that is not registered.
    WrongKey,
    /// Sends more commands than its queue has entries.
    Overrun,
}

const ATTACKS: [Attack; 7] = [
    Attack::Write,
    Attack::Read,
    Attack::Invalidate,
    Attack::NoCapsule,
    Attack::Overlong,
    Attack::WrongKey,
    Attack::Overrun,
];
/// The most datagrams of garbage, and the most connection requests.
const GARBAGE_MAX: u32 = 50_000;
const REQUESTS_MAX: u32 = 2_000;
/// The distance between the possible numbers of a thread's first queue pair: two threads have room
/// for 4096 queue pairs each.
const QPN_STEP: u32 = 1 << 13;
/// The least and the largest number of times that all of these numbers are tried.
const SWEEPS: u32 = 4;
const SWEEPS_MAX: u32 = 40;

impl Attack {
    /// Carries the attack out, and waits until the server has closed the connection.
    fn carry_out(self, peer: &mut Peer, guess: u32) {
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

/// Pseudo-random numbers (xorshift).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

impl Attackers {
    /// Carries out each attack once, with keys that depend on the round.
    pub fn attack(&self, round: u32) {
        for (attack, guess) in ATTACKS.into_iter().zip(round..) {
            let peer = Peer::connect(self.host(0), self.portal, 0);
            let mut peer = peer.expect("the target accepts others");
            attack.carry_out(&mut peer, guess.wrapping_mul(0x0101_0101));
        }
    }

    /// Starts the attacks that need no connection, each in a thread, until [`Self::end`].
    pub fn disturb<'scope>(&'scope self, scope: &'scope std::thread::Scope<'scope, '_>) {
        scope.spawn(|| self.send_garbage());
        scope.spawn(|| self.flood_with_requests());
        scope.spawn(|| self.send_as_a_stranger());
    }

    pub fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    fn target(&self) -> SocketAddr {
        SocketAddr::new(self.portal.ip(), self.udp_port)
    }

    /// A peer's address: of the four, that with this index.
    fn host(&self, index: u32) -> SocketAddr {
        let address = Ipv4Addr::from_bits(self.first_host.to_bits() + index);
        SocketAddr::new(address.into(), self.udp_port)
    }

    /// Sends datagrams, some of which look like packets, with wrong checksums, to any queue pair.
    fn send_garbage(&self) {
        let to = self.target();
        let socket = UdpSocket::bind(self.host(1)).expect("an address of ours");
        let mut numbers = Numbers(0x9E37_79B9_7F4A_7C15);
        let mut datagram = [0; 4096];
        for _ in 0..GARBAGE_MAX {
            if self.is_over() {
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
            if numbers.next().is_multiple_of(16) {
                std::thread::sleep(self.pause);
            }
        }
    }

    /// Sends valid packets to queue pairs of others, to queue pairs that do not exist and in other
    /// partitions, and invalid messages to the connection manager.
    fn send_as_a_stranger(&self) {
        let (from, to) = (self.host(3), self.target());
        let socket = UdpSocket::bind(from).expect("an address of ours");
        let flow = Flow::new(from, to).expect("one family");
        let send = Opcode::Send(Position::Only, SendTail::Plain);
        let generations = (1 << 24) / QPN_STEP;
        let sweeps = (0..SWEEPS_MAX).take_while(|&n| n < SWEEPS || !self.is_over());
        for generation in sweeps.flat_map(|_| 1..generations) {
            let numbers = [0, 1].map(|thread| generation * QPN_STEP + thread);
            let mut bths =
                numbers.map(|number| Bth::new(send.to_wire(), Qpn::new(number), Psn::new(0)));
            match generation % 32 {
                0 => bths[0].pkey = 0x7ABC.into(),
                1 => bths[1] = Bth::new(Opcode::DatagramSend.to_wire(), Qpn::GSI, Psn::new(0)),
                2 => std::thread::sleep(self.pause),
                _ => {}
            }
            for bth in bths {
                let datagram = forge::datagram(&flow, bth, &[], &[0; 8]);
                // The other end's buffer may be full.
                let _ = socket.send_to(&datagram, to);
            }
        }
    }

    /// Sends connection requests and never completes a connection.
    fn flood_with_requests(&self) {
        let mut soft = Soft::bind(&SoftOptions::at(self.host(2))).expect("an address of ours");
        let asked = ConnectRequest::new(0, peer::ENTRIES);
        let to = ConnectTo {
            address: self.portal.ip(),
            port: self.portal.port(),
            private_data: asked.as_bytes(),
        };
        for _ in 0..REQUESTS_MAX {
            if self.is_over() {
                return;
            }
            let Ok(qpn) = soft.create_qp(QpConfig::default()) else {
                return;
            };
            let _ = soft.connect(qpn, &to);
            soft.poll(Wait::AtMost(self.pause))
                .expect("the socket works");
        }
    }
}
