//! The protocol of rdma-core's `rping`, both ends, by either provider:
//!
//! ```sh
//! fabric_ping serve auto 10.2.0.2 7174                 # for: rping -c -a 10.2.0.2 -C 10 -V
//! fabric_ping ask soft 10.2.0.2 10.2.0.1 7174 10       # for: rping -s -a 10.2.0.1 -C 10 -V
//! ```
//!
//! The client sends where its data are; the server reads them, and sends any message. The client
//! then sends where it wants the data; the server writes them there, and sends any message. An
//! advertisement is address (8 bytes), key (4) and length (4), in network byte order.

use std::error::Error;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use block::ByteRange;
use fabric::verbs::{
    Access, CommId, Completion, Data, Event, Gather, Inline, MemoryId, MemoryRange,
    ProtectionDomain, QpConfig, Qpn, RecvRequest, Region, Remote, Rkey, SendOp, SendRequest,
    Signal, WorkId, WorkKind, WorkStatus,
};
use fabric::{Choice, ConnectTo, Provider, SoftOptions, Wait, open};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// For how long something is waited for.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The bytes of an advertisement.
const ADVERTISEMENT_BYTES: usize = 16;
/// The longest data.
const DATA_MAX_BYTES: u64 = 64 << 10;
/// The client's state in one round.
const DATA_BYTES: u64 = 1000;
/// Where the data are. The receive buffer lies before them.
const DATA_OFFSET: u64 = 4096;

fn main() -> Outcome<()> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["serve", choice, address, port] => {
            let mut end = End::open(choice.parse()?, address.parse()?)?;
            end.accept(port.parse()?)?;
            end.serve()
        }
        ["ask", choice, address, to, port, rounds] => {
            let mut end = End::open(choice.parse()?, address.parse()?)?;
            end.connect(to.parse()?, port.parse()?)?;
            end.ask(rounds.parse()?)
        }
        _ => Err(
            "give: serve auto|hw|soft ADDRESS PORT, or ask auto|hw|soft ADDRESS TO PORT ROUNDS"
                .into(),
        ),
    }
}

/// One end of a connection.
struct End {
    provider: Box<dyn Provider>,
    qpn: Qpn,
    memory: MemoryId,
    connection: CommId,
    /// Completed requests, in order.
    ended: Vec<Completion>,
    is_over: bool,
}

impl End {
    fn open(choice: Choice, address: IpAddr) -> Outcome<Self> {
        let opened = open(choice, &SoftOptions::at_ip(address))?;
        println!("{}", opened.reason);
        let mut provider = opened.provider.boxed();
        let config = QpConfig {
            access: Access {
                read: true,
                write: true,
                ..Access::default()
            },
            send_depth: 16,
            recv_depth: 16,
            ..QpConfig::default()
        };
        let qpn = provider.create_qp(config)?;
        let memory = provider.allocate((DATA_OFFSET + 2 * DATA_MAX_BYTES) as usize)?;
        let mut end = Self {
            provider,
            qpn,
            memory,
            connection: CommId(0),
            ended: Vec::new(),
            is_over: false,
        };
        end.receive()?;
        Ok(end)
    }

    fn accept(&mut self, port: u16) -> Outcome<()> {
        self.provider.listen(port)?;
        println!("listening");
        loop {
            match self.event()? {
                Event::Request(request) => {
                    self.connection = request.id;
                    self.provider.accept(request.id, self.qpn, b"")?;
                }
                Event::Established { .. } => return Ok(()),
                other => return Err(format!("{other:?}").into()),
            }
        }
    }

    fn connect(&mut self, address: IpAddr, port: u16) -> Outcome<()> {
        let to = ConnectTo {
            address,
            port,
            private_data: b"",
        };
        self.connection = self.provider.connect(self.qpn, &to)?;
        match self.event()? {
            Event::Connected { .. } => Ok(()),
            other => Err(format!("{other:?}").into()),
        }
    }

    fn serve(&mut self) -> Outcome<()> {
        let mut rounds = 0;
        while let Some(source) = self.advertised()? {
            let data = self.place(DATA_OFFSET, source.1.min(DATA_MAX_BYTES));
            let gather = Gather::new(&[data])?;
            self.send(SendOp::Read(gather, source.0))?;
            self.send(SendOp::Send(go_ahead()))?;
            let Some(sink) = self.advertised()? else {
                return Err("the peer left in the middle of a round".into());
            };
            self.send(SendOp::Write(Data::Gather(gather), sink.0))?;
            // The peer may leave as soon as it has this message, before it acknowledges it.
            self.try_send(SendOp::Send(go_ahead()))?;
            rounds += 1;
        }
        println!("served {rounds} rounds");
        Ok(())
    }

    fn ask(&mut self, rounds: u64) -> Outcome<()> {
        let places = [0, DATA_MAX_BYTES].map(|at| self.place(DATA_OFFSET + at, DATA_BYTES));
        let regions = places.map(|placement| Region {
            domain: ProtectionDomain::default(),
            placement,
            base_va: 0x1000_0000,
            access: Access {
                read: true,
                write: true,
                ..Access::default()
            },
        });
        let source = self.provider.register(regions[0])?;
        let sink = self.provider.register(regions[1])?;
        for round in 0..rounds {
            // The server takes the data for a string, and returns the bytes up to its end.
            let letters = (1..DATA_BYTES).map(|at| b'a' + ((at * 7 + round) % 26) as u8);
            let sent: Vec<u8> = letters.chain([0]).collect();
            self.bytes(places[0]).copy_from_slice(&sent);
            self.bytes(places[1]).fill(0);
            for remote in [source, sink] {
                self.send(SendOp::Send(advertisement(remote)))?;
                self.advertised()?.ok_or("the peer left")?;
            }
            if self.bytes(places[1]) != sent {
                return Err(format!("round {round} brought other data back").into());
            }
        }
        self.provider.disconnect(self.connection)?;
        while !self.is_over {
            self.event()?;
        }
        println!("{rounds} rounds came back");
        Ok(())
    }

    /// The peer's next message, as an advertisement; `None` if the peer has disconnected.
    fn advertised(&mut self) -> Outcome<Option<(Remote, u64)>> {
        if !self.completed(WorkKind::Recv)? {
            return Ok(None);
        }
        let place = self.place(0, ADVERTISEMENT_BYTES as u64);
        let bytes: [u8; ADVERTISEMENT_BYTES] = self.bytes(place).try_into()?;
        self.receive()?;
        let [va, rest] = [0, 8].map(|at| bytes[at..at + 8].try_into().map(u64::from_be_bytes));
        let (va, rest) = (va?, rest?);
        let rkey = Rkey((rest >> 32) as u32);
        Ok(Some((Remote { va, rkey }, u64::from(rest as u32))))
    }

    /// Posts a request and waits until it completes.
    fn send(&mut self, op: SendOp) -> Outcome<()> {
        if self.try_send(op)? {
            Ok(())
        } else {
            Err("the peer left".into())
        }
    }

    /// The same; `false` if the connection ended first.
    fn try_send(&mut self, op: SendOp) -> Outcome<bool> {
        let kind = op.kind();
        let request = SendRequest {
            id: WorkId(1),
            op,
            signal: Signal::Always,
        };
        self.provider.post_send(self.qpn, request)?;
        self.completed(kind)
    }

    fn receive(&mut self) -> Outcome<()> {
        let into = self.place(0, ADVERTISEMENT_BYTES as u64);
        let request = RecvRequest {
            id: WorkId(2),
            into,
        };
        Ok(self.provider.post_recv(self.qpn, request)?)
    }

    /// Waits until a request completes; `false` if the connection ended first. Completions of the
    /// other queue are kept until they are waited for.
    fn completed(&mut self, kind: WorkKind) -> Outcome<bool> {
        let end = Instant::now() + TIMEOUT;
        loop {
            let ended = std::iter::from_fn(|| self.provider.next_completion());
            self.ended.extend(ended);
            if let Some(at) = self.ended.iter().position(|done| done.kind == kind) {
                return match self.ended.remove(at).status {
                    WorkStatus::Success => Ok(true),
                    WorkStatus::Flushed => Ok(false),
                    failed => Err(format!("{kind:?}: {failed:?}").into()),
                };
            }
            self.wait(end)?;
        }
    }

    fn event(&mut self) -> Outcome<Event> {
        let end = Instant::now() + TIMEOUT;
        loop {
            if let Some(event) = self.provider.next_event() {
                self.is_over |= matches!(event, Event::Disconnected { .. });
                return Ok(event);
            }
            self.wait(end)?;
        }
    }

    fn wait(&mut self, end: Instant) -> Outcome<()> {
        if Instant::now() >= end {
            return Err("nothing happens".into());
        }
        Ok(self
            .provider
            .poll(Wait::AtMost(Duration::from_millis(100)))?)
    }

    fn place(&self, offset: u64, len: u64) -> MemoryRange {
        MemoryRange {
            memory: self.memory,
            range: ByteRange { offset, len },
        }
    }

    fn bytes(&mut self, place: MemoryRange) -> &mut [u8] {
        let start = place.range.offset as usize;
        let memory = self.provider.bytes_mut(self.memory);
        &mut memory[start..start + place.range.len as usize]
    }
}

/// The "go on" message, as long as an advertisement.
fn go_ahead() -> Data {
    let nothing = Inline::new(&[0; ADVERTISEMENT_BYTES]);
    Data::Inline(nothing.expect("it is short"))
}

fn advertisement(remote: Remote) -> Data {
    let mut bytes = [0; ADVERTISEMENT_BYTES];
    bytes[..8].copy_from_slice(&remote.va.to_be_bytes());
    bytes[8..12].copy_from_slice(&remote.rkey.0.to_be_bytes());
    bytes[12..].copy_from_slice(&(DATA_BYTES as u32).to_be_bytes());
    Data::Inline(Inline::new(&bytes).expect("it is short"))
}
