//! A protocol with one letter per command, and a server of it.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use block::Pinned;
use fabric::runtime::{
    Admitted, MessageAcceptor, QueueShape, Refusal, Request, RuntimeGroup, RuntimeOptions,
    drive_messages,
};
use fabric::{Soft, SoftOptions};
use memory::Budget;
use net::{
    Accepted, Attachment, CloseReason, ConnectionId, LoginProgress, ReactorOptions, Reactors,
};
use session::{MessageSession, RemoteBuffer, RemoteKey, Session, WorkList};

pub const PORT: u16 = 4420;

pub struct ServerOptions {
    pub reactors: ReactorOptions,
    pub budget: Arc<Budget>,
    pub pool_max_bytes: u64,
    pub threads: usize,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            reactors: ReactorOptions::default(),
            budget: Arc::new(Budget::new(1 << 30)),
            pool_max_bytes: 64 << 20,
            threads: 1,
        }
    }
}

/// What happened at the server.
#[derive(Default)]
pub struct Log {
    pub closed: AtomicUsize,
    pub delayed: AtomicUsize,
    connections: Mutex<Vec<ConnectionId>>,
    threads: Mutex<HashSet<ThreadId>>,
    reasons: Mutex<Vec<String>>,
}

pub struct Server {
    pub runtime: RuntimeGroup,
    pub reactors: Reactors,
    pub budget: Arc<Budget>,
    pub log: Arc<Log>,
    pub udp_port: u16,
    hosts: AtomicU16,
}

impl Server {
    pub const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 37, 0, 1));

    pub fn start(options: ServerOptions) -> Self {
        let reactors = Reactors::start(options.reactors).expect("threads start");
        let udp_port = crate::ports::free_udp_port();
        let soft = SoftOptions::at(SocketAddr::new(Self::ADDRESS, udp_port));
        let runtime_options = RuntimeOptions {
            pool_max_bytes: options.pool_max_bytes,
            ..RuntimeOptions::default()
        };
        let softs = Soft::bind_several(&soft, options.threads).expect("a port of loopback is free");
        let runtime =
            RuntimeGroup::start(softs, &reactors.handle(), &options.budget, &runtime_options)
                .expect("threads start");
        let log = Arc::new(Log::default());
        let acceptor: Arc<dyn MessageAcceptor> = Arc::new(Toys(Arc::clone(&log)));
        runtime.listen(PORT, &acceptor).expect("the port is free");
        Self {
            runtime,
            reactors,
            budget: options.budget,
            log,
            udp_port,
            hosts: AtomicU16::new(2),
        }
    }

    /// An address for one more peer: those of a server count as one host where addresses are told
    /// apart by it.
    pub fn peer_address(&self) -> SocketAddr {
        let host = self.hosts.fetch_add(1, Ordering::Relaxed);
        let address = Ipv4Addr::new(127, 37, 0, host as u8);
        SocketAddr::new(address.into(), self.udp_port)
    }

    pub fn until(&self, what: &str, done: impl Fn(&Self) -> bool) {
        let end = Instant::now() + Duration::from_secs(10);
        while !done(self) {
            assert!(Instant::now() < end, "{what}: {:?}", self.log.reasons());
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Log {
    pub fn reasons(&self) -> Vec<String> {
        self.reasons.lock().expect("unpoisoned").clone()
    }

    /// All that were accepted, in order.
    pub fn connections(&self) -> Vec<ConnectionId> {
        self.connections.lock().expect("unpoisoned").clone()
    }

    /// How many threads have accepted some.
    pub fn threads(&self) -> usize {
        self.threads.lock().expect("unpoisoned").len()
    }

    pub fn last_connection(&self) -> ConnectionId {
        *self.connections().last().expect("one has come")
    }
}

struct Toys(Arc<Log>);

impl MessageAcceptor for Toys {
    fn accept(
        &self,
        _now: Instant,
        accepted: &Accepted,
        request: &Request<'_>,
    ) -> Result<Admitted, Refusal> {
        if request.private_data.starts_with(b"stranger") {
            return Err(Refusal::Protocol {
                error: "a stranger".into(),
                private_data: b"who are you".to_vec(),
            });
        }
        let mut connections = self.0.connections.lock().expect("unpoisoned");
        connections.push(accepted.id);
        let mut threads = self.0.threads.lock().expect("unpoisoned");
        threads.insert(std::thread::current().id());
        let backend = ToyBackend {
            log: Arc::clone(&self.0),
            login_progress: LoginProgress::Pending,
        };
        Ok(Admitted {
            driven: drive_messages(Toy::default(), backend),
            shape: QueueShape {
                receives: 8,
                receive_len_bytes: 128,
                sends: 16,
                reads: 4,
            },
            private_data: b"welcome".to_vec(),
        })
    }
}

struct ToyBackend {
    log: Arc<Log>,
    login_progress: LoginProgress,
}

impl Attachment for ToyBackend {
    fn memory(&self, _region: session::SourceId) -> Option<&dyn Pinned> {
        None
    }

    fn may_send(&self, _region: session::SourceId) -> bool {
        true
    }

    fn charged_bytes(&self) -> u64 {
        0
    }

    fn login_progress(&self) -> LoginProgress {
        self.login_progress
    }

    fn handle_sent(&mut self, _now: Instant) {}

    fn handle_stalled(&mut self) {}

    fn handle_drained(&mut self) {}

    fn handle_closed(&mut self, reason: &CloseReason) {
        self.log.closed.fetch_add(1, Ordering::Relaxed);
        let mut reasons = self.log.reasons.lock().expect("unpoisoned");
        reasons.push(reason.to_string());
    }
}

/// Something that is still to be done.
enum Todo {
    Send(Vec<u8>, Option<RemoteKey>),
    Write(RemoteBuffer, u32),
    Read(RemoteBuffer, u32),
    /// Waits for data.
    Sum,
}

#[derive(Default)]
struct Toy {
    todo: std::collections::VecDeque<Todo>,
    sum: u64,
    left_bytes: u32,
    is_closing: bool,
    late_at: Option<Instant>,
}

#[derive(Debug, thiserror::Error)]
#[error("not a command")]
struct NotACommand;

impl MessageSession for Toy {
    fn handle_message(
        &mut self,
        now: Instant,
        message: &[u8],
        _invalidated: Option<RemoteKey>,
        backend: &mut ToyBackend,
    ) -> Result<(), NotACommand> {
        backend.login_progress = LoginProgress::Admitted;
        let (command, rest) = message.split_first().ok_or(NotACommand)?;
        let todo = match command {
            b'E' => Todo::Send(rest.to_vec(), None),
            b'W' => Todo::Write(buffer(rest), 0),
            b'R' => Todo::Read(buffer(rest), 0),
            b'I' => Todo::Send(b"invalidated".to_vec(), Some(buffer(rest).key)),
            b'Q' => {
                self.is_closing = true;
                Todo::Send(b"bye".to_vec(), None)
            }
            b'D' => {
                self.late_at = Some(now + Duration::from_millis(300));
                backend.log.delayed.fetch_add(1, Ordering::Relaxed);
                return Ok(());
            }
            b'P' => panic!("asked to"),
            _ => {
                let last_word = b"you broke it".to_vec();
                self.todo.push_back(Todo::Send(last_word, None));
                return Err(NotACommand);
            }
        };
        self.todo.push_back(todo);
        Ok(())
    }

    fn handle_read(
        &mut self,
        _now: Instant,
        tag: u64,
        data: &[u8],
        _backend: &mut ToyBackend,
    ) -> Result<(), NotACommand> {
        assert_eq!(tag, u64::from(self.left_bytes), "data come in order");
        self.sum += data.iter().map(|&byte| u64::from(byte)).sum::<u64>();
        self.left_bytes -= data.len() as u32;
        Ok(())
    }

    fn poll_transmit(&mut self, _now: Instant, _b: &mut ToyBackend, out: &mut dyn WorkList) {
        while let Some(todo) = self.todo.front_mut() {
            match todo {
                Todo::Send(bytes, key) => {
                    let Some(room) = out.send(bytes.len() as u32, *key) else {
                        return;
                    };
                    room.copy_from_slice(bytes);
                    self.todo.pop_front();
                }
                Todo::Write(to, done) if *done == to.len_bytes => {
                    *todo = Todo::Send(b"written".to_vec(), None);
                }
                Todo::Write(to, done) => {
                    let len = out.piece_bytes(to.len_bytes - *done);
                    let Some(room) = out.write(to.piece(*done, len).expect("inside")) else {
                        return;
                    };
                    for (at, byte) in (*done..).zip(room) {
                        *byte = at as u8;
                    }
                    *done += len;
                }
                Todo::Read(from, done) if *done == from.len_bytes => *todo = Todo::Sum,
                Todo::Read(from, done) => {
                    if *done == 0 {
                        (self.sum, self.left_bytes) = (0, from.len_bytes);
                    }
                    let len = out.piece_bytes(from.len_bytes - *done);
                    let tag = u64::from(from.len_bytes - *done);
                    if !out.read(tag, from.piece(*done, len).expect("inside")) {
                        return;
                    }
                    *done += len;
                }
                Todo::Sum if self.left_bytes > 0 => return,
                Todo::Sum => *todo = Todo::Send(self.sum.to_le_bytes().to_vec(), None),
            }
        }
    }
}

impl Session for Toy {
    type Backend = ToyBackend;
    type Error = NotACommand;

    fn wants_transmit(&self) -> bool {
        match self.todo.front() {
            None => false,
            Some(Todo::Sum) => self.left_bytes == 0,
            Some(_) => true,
        }
    }

    fn is_idle(&self) -> bool {
        self.todo.is_empty() && self.late_at.is_none()
    }

    fn is_closing(&self) -> bool {
        self.is_closing
    }

    fn handle_wake(&mut self, _now: Instant, _b: &mut ToyBackend) -> Result<(), NotACommand> {
        self.todo.push_back(Todo::Send(b"woken".to_vec(), None));
        Ok(())
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.late_at
    }

    fn handle_timeout(&mut self, _now: Instant, _b: &mut ToyBackend) -> Result<(), NotACommand> {
        self.late_at = None;
        self.todo.push_back(Todo::Send(b"late".to_vec(), None));
        Ok(())
    }

    fn handle_close(&mut self, _now: Instant, _backend: &mut ToyBackend) {}
}

/// Key, length and address, as the peer of the test writes them.
fn buffer(bytes: &[u8]) -> RemoteBuffer {
    let word = |at: usize| u32::from_le_bytes(*bytes[at..].first_chunk().expect("whole"));
    RemoteBuffer {
        key: RemoteKey(word(0)),
        len_bytes: word(4),
        address: u64::from_le_bytes(*bytes[8..].first_chunk().expect("whole")),
    }
}
