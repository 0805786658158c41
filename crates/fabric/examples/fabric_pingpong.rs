//! The protocol of rdma-core's `ibv_rc_pingpong`, both ends, by either provider. It uses no
//! connection manager: the ends exchange their queue pairs' parameters over TCP.
//!
//! ```sh
//! fabric_pingpong serve soft 10.2.0.2 18515 100             # for: ibv_rc_pingpong -g GID -n 100 10.2.0.2
//! fabric_pingpong ask soft 10.2.0.2 10.2.0.1 18515 100      # for: ibv_rc_pingpong -g GID -n 100
//! ```
//!
//! Each end sends a line of hexadecimal numbers, its LID, queue pair number, first PSN and GID,
//! with colons in between and a zero byte behind: first the end that asks, then the other. The end
//! that asks says "done", and sends the first message.

use std::error::Error;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv6Addr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use block::ByteRange;
use fabric::verbs::{
    Data, Gather, MemoryId, MemoryRange, PathMtu, Psn, QpConfig, Qpn, RecvRequest, SendOp,
    SendRequest, Signal, WorkId, WorkKind, WorkStatus,
};
use fabric::{Choice, PeerQp, Provider, SoftOptions, Wait, open};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// For how long something is waited for.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The defaults of `ibv_rc_pingpong`.
const PATH_MTU: PathMtu = PathMtu::B1024;
const MESSAGE_BYTES: u64 = 4096;
/// A line, with the zero byte.
const LINE_BYTES: usize = 52;
const DONE: &[u8] = b"done\0";
/// Receives that wait.
const RECEIVES: u64 = 16;

fn main() -> Outcome<()> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["serve", choice, address, port, rounds] => {
            let mut end = End::open(choice.parse()?, address.parse()?)?;
            let listener = TcpListener::bind((address.parse::<IpAddr>()?, port.parse()?))?;
            println!("listening");
            let (mut stream, _) = listener.accept()?;
            let peer = read_parameters(&mut stream)?;
            end.pair(&peer)?;
            stream.write_all(end.line().as_bytes())?;
            let mut done = [0; DONE.len()];
            stream.read_exact(&mut done)?;
            end.play(rounds.parse()?, Turn::Theirs)
        }
        ["ask", choice, address, to, port, rounds] => {
            let mut end = End::open(choice.parse()?, address.parse()?)?;
            let mut stream = TcpStream::connect((to.parse::<IpAddr>()?, port.parse()?))?;
            stream.write_all(end.line().as_bytes())?;
            let peer = read_parameters(&mut stream)?;
            end.pair(&peer)?;
            stream.write_all(DONE)?;
            end.play(rounds.parse()?, Turn::Ours)
        }
        _ => Err(
            "give: serve auto|hw|soft ADDRESS TCP_PORT ROUNDS, or ask auto|hw|soft ADDRESS TO TCP_PORT ROUNDS"
                .into(),
        ),
    }
}

/// A peer's queue pair, as its line names it.
struct PeerParameters {
    qpn: u32,
    psn: u32,
    gid: Ipv6Addr,
}

fn read_parameters(stream: &mut TcpStream) -> Outcome<PeerParameters> {
    stream.set_read_timeout(Some(TIMEOUT))?;
    let mut bytes = [0; LINE_BYTES];
    stream.read_exact(&mut bytes)?;
    let text = std::str::from_utf8(&bytes[..LINE_BYTES - 1])?;
    let [_lid, qpn, psn, gid] = text.split(':').collect::<Vec<_>>()[..] else {
        return Err(format!("{text:?} names no queue pair").into());
    };
    Ok(PeerParameters {
        qpn: u32::from_str_radix(qpn, 16)?,
        psn: u32::from_str_radix(psn, 16)?,
        gid: u128::from_str_radix(gid, 16)?.into(),
    })
}

/// Which end sends first.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    Ours,
    Theirs,
}

/// One end.
struct End {
    provider: Box<dyn Provider>,
    address: IpAddr,
    qpn: Qpn,
    psn: u32,
    /// The message to send, and behind it the receive buffer.
    memory: MemoryId,
}

impl End {
    fn open(choice: Choice, address: IpAddr) -> Outcome<Self> {
        let opened = open(choice, &SoftOptions::at_ip(address))?;
        println!("{}", opened.reason);
        let mut provider = opened.provider.boxed();
        let qpn = provider.create_qp(QpConfig::default())?;
        let memory = provider.allocate(((1 + RECEIVES) * MESSAGE_BYTES) as usize)?;
        // Any number will do; this one shows that all 24 bits are used.
        let psn = 0x00FF_FFF0;
        Ok(Self {
            provider,
            address,
            qpn,
            psn,
            memory,
        })
    }

    /// What the peer needs to know of this end.
    fn line(&self) -> String {
        let gid = match self.address {
            IpAddr::V4(v4) => v4.to_ipv6_mapped(),
            IpAddr::V6(v6) => v6,
        };
        let (qpn, psn, gid) = (self.qpn.get(), self.psn, u128::from(gid));
        format!("0000:{qpn:06x}:{psn:06x}:{gid:032x}\0")
    }

    fn pair(&mut self, peer: &PeerParameters) -> Outcome<()> {
        for index in 0..RECEIVES {
            self.receive(index)?;
        }
        let with = PeerQp {
            address: peer.gid.to_canonical(),
            qpn: Qpn::new(peer.qpn),
            path_mtu: PATH_MTU,
            send_psn: Psn::new(self.psn),
            recv_psn: Psn::new(peer.psn),
        };
        Ok(self.provider.pair(self.qpn, &with)?)
    }

    /// Sends `rounds` messages and receives as many, in turn.
    fn play(&mut self, rounds: u64, first: Turn) -> Outcome<()> {
        let end = Instant::now() + TIMEOUT;
        let (mut sent, mut ended, mut came) = (0, 0, 0);
        while ended < rounds || came < rounds {
            let is_our_turn = came + u64::from(first == Turn::Ours) > sent && sent == ended;
            if sent < rounds && is_our_turn {
                self.send()?;
                sent += 1;
            }
            let Some(completion) = self.provider.next_completion() else {
                if Instant::now() >= end {
                    return Err(format!("{came} of {rounds} messages came").into());
                }
                self.provider
                    .poll(Wait::AtMost(Duration::from_millis(100)))?;
                continue;
            };
            match (completion.status, completion.kind) {
                (WorkStatus::Success, WorkKind::Recv) => {
                    if u64::from(completion.len_bytes) != MESSAGE_BYTES {
                        return Err(format!("a message of {} bytes", completion.len_bytes).into());
                    }
                    came += 1;
                    self.receive(completion.id.0)?;
                }
                (WorkStatus::Success, _) => ended += 1,
                (failed, kind) => return Err(format!("{kind:?}: {failed:?}").into()),
            }
        }
        // The last acknowledgement leaves.
        self.provider
            .poll(Wait::AtMost(Duration::from_millis(100)))?;
        println!("{rounds} rounds played");
        Ok(())
    }

    fn send(&mut self) -> Outcome<()> {
        let request = SendRequest {
            id: WorkId(RECEIVES),
            op: SendOp::Send(Data::Gather(Gather::new(&[self.place(0)])?)),
            signal: Signal::Always,
        };
        Ok(self.provider.post_send(self.qpn, request)?)
    }

    fn receive(&mut self, index: u64) -> Outcome<()> {
        let request = RecvRequest {
            id: WorkId(index),
            into: self.place(1 + index),
        };
        Ok(self.provider.post_recv(self.qpn, request)?)
    }

    fn place(&self, index: u64) -> MemoryRange {
        MemoryRange {
            memory: self.memory,
            range: ByteRange {
                offset: index * MESSAGE_BYTES,
                len: MESSAGE_BYTES,
            },
        }
    }
}
