//! Several threads' providers at one address, all driven by the test, and one peer with many
//! connections to them.

mod receive_buffers;

use std::collections::HashMap;
use std::net::Ipv4Addr;

use block::ByteRange;

use super::*;
use crate::ports::free_udp_port;
use crate::verbs::{
    Data, Inline, MemoryId, MemoryRange, SendOp, Signal, WorkId, WorkKind, WorkStatus,
};

const CONNECTIONS: usize = 24;
const THREADS: usize = 3;
const PORT: u16 = 4420;
const MESSAGE_BYTES: u64 = 64;

struct Pair {
    client: Soft,
    servers: Vec<Soft>,
    /// Where each server's queue pairs receive, by number.
    receives: Vec<MemoryId>,
    /// The servers' queue pairs: which server has them.
    accepted: HashMap<Qpn, usize>,
    connected: usize,
    /// What the client was sent: by queue pair.
    answers: HashMap<Qpn, Vec<Vec<u8>>>,
    ended: usize,
    /// The client's ends of connections.
    made: Vec<(Qpn, CommId)>,
    memory: MemoryId,
}

fn at(memory: MemoryId, index: u64) -> MemoryRange {
    MemoryRange {
        memory,
        range: ByteRange {
            offset: index * MESSAGE_BYTES,
            len: MESSAGE_BYTES,
        },
    }
}

fn message(text: &[u8]) -> SendRequest {
    SendRequest {
        id: WorkId(0),
        op: SendOp::Send(Data::Inline(Inline::new(text).expect("it is short"))),
        signal: Signal::OnError,
    }
}

impl Pair {
    fn new(choosing: Choosing) -> Self {
        let udp_port = free_udp_port();
        let options = |host| SoftOptions::at((Ipv4Addr::new(127, 38, 1, host), udp_port).into());
        let mut servers =
            Soft::bind_group(&options(1), THREADS, choosing).expect("a port of loopback is free");
        let mut client = Soft::bind(&options(2)).expect("a port of loopback is free");
        let room = CONNECTIONS * MESSAGE_BYTES as usize;
        let receives = servers.iter_mut().map(|server| {
            server.listen(PORT).expect("any port will do");
            server.allocate(room).expect("memory")
        });
        Self {
            receives: receives.collect(),
            memory: client.allocate(room).expect("memory"),
            client,
            servers,
            accepted: HashMap::new(),
            connected: 0,
            answers: HashMap::new(),
            ended: 0,
            made: Vec::new(),
        }
    }

    fn until(&mut self, what: &str, done: impl Fn(&Self) -> bool) {
        let end = Instant::now() + Duration::from_secs(20);
        while !done(self) {
            assert!(Instant::now() < end, "{what} did not come");
            for index in 0..THREADS {
                self.serve(index);
            }
            self.client.poll(Wait::Poll).expect("the socket works");
            while let Some(event) = self.client.next_event() {
                match event {
                    Event::Connected { .. } => self.connected += 1,
                    Event::Disconnected { .. } => {}
                    other => panic!("{other:?}"),
                }
            }
            while let Some(completion) = self.client.next_completion() {
                if completion.status == WorkStatus::Flushed {
                    continue;
                }
                assert_eq!(
                    (completion.status, completion.kind),
                    (WorkStatus::Success, WorkKind::Recv)
                );
                let bytes = self.client.bytes(self.memory);
                let start = (completion.id.0 * MESSAGE_BYTES) as usize;
                let text = bytes[start..][..completion.len_bytes as usize].to_vec();
                self.answers.entry(completion.qpn).or_default().push(text);
            }
        }
    }

    /// A server's round: it accepts every connection, and sends received messages back.
    fn serve(&mut self, index: usize) {
        let (server, receives) = (&mut self.servers[index], self.receives[index]);
        server.poll(Wait::Poll).expect("the socket works");
        while let Some(event) = server.next_event() {
            match event {
                Event::Request(request) => {
                    let qpn = server.create_qp(QpConfig::default()).expect("room");
                    let id = WorkId(self.accepted.len() as u64);
                    let into = at(receives, id.0);
                    self.accepted.insert(qpn, index);
                    server
                        .post_recv(qpn, RecvRequest { id, into })
                        .expect("room");
                    server.accept(request.id, qpn, b"").expect("it waits");
                }
                Event::Established { .. } => {}
                Event::Disconnected { .. } => self.ended += 1,
                other => panic!("{other:?}"),
            }
        }
        while let Some(completion) = server.next_completion() {
            if (completion.status, completion.kind) != (WorkStatus::Success, WorkKind::Recv) {
                continue;
            }
            let start = (completion.id.0 * MESSAGE_BYTES) as usize;
            let text = server.bytes(receives)[start..][..completion.len_bytes as usize].to_vec();
            let again = RecvRequest {
                id: completion.id,
                into: at(receives, completion.id.0),
            };
            server.post_recv(completion.qpn, again).expect("room");
            server
                .post_send(completion.qpn, message(&text))
                .expect("room");
        }
    }

    /// Makes connections and sends through each, one after the other; how many runs came to another
    /// thread's socket.
    fn converse(&mut self) -> u64 {
        let to = ConnectTo {
            address: self.servers[0].local_addr().ip(),
            port: PORT,
            private_data: b"",
        };
        for index in 0..CONNECTIONS {
            let qpn = self.client.create_qp(QpConfig::default()).expect("room");
            self.post_recv(qpn, index as u64);
            let id = self.client.connect(qpn, &to).expect("it is asked for");
            self.until("a connection", |pair| pair.connected > index);
            self.say(qpn);
            self.until("an answer", |pair| pair.answers.contains_key(&qpn));
            self.made.push((qpn, id));
        }
        let handed_over = |server: &Soft| server.statistics().runs_handed_over;
        self.servers.iter().map(handed_over).sum()
    }

    /// Sends through all connections at once, then ends all at once: our end joins what is equally
    /// long into runs.
    fn talk_at_once(&mut self) {
        let made = std::mem::take(&mut self.made);
        for (index, (qpn, _)) in (0..).zip(&made) {
            self.post_recv(*qpn, index);
            self.say(*qpn);
        }
        self.until("all answers", |pair| {
            pair.answers.values().all(|answers| answers.len() == 2)
        });
        for (qpn, id) in made {
            let text = qpn.get().to_be_bytes();
            assert_eq!(self.answers[&qpn], [text, text]);
            self.client.disconnect(id).expect("it is connected");
        }
        self.until("all ends", |pair| pair.ended == CONNECTIONS);
    }

    fn post_recv(&mut self, qpn: Qpn, index: u64) {
        let (id, into) = (WorkId(index), at(self.memory, index));
        let posted = self.client.post_recv(qpn, RecvRequest { id, into });
        posted.expect("room");
    }

    fn say(&mut self, qpn: Qpn) {
        let text = qpn.get().to_be_bytes();
        let posted = self.client.post_send(qpn, message(&text));
        posted.expect("it is connected");
    }
}

#[test]
fn connections_are_spread_and_all_that_is_theirs_comes_to_their_thread() {
    let mut pair = Pair::new(Choosing::BySteering);
    // An acknowledgement that is late leaves with the next connection's, in one run.
    let handed_over = pair.converse();
    assert!(handed_over <= CONNECTIONS as u64 / 2, "{handed_over}");
    for (qpn, index) in &pair.accepted {
        assert_eq!(qpn.get() as usize % THREADS, *index);
    }
    let busy = |index| pair.accepted.values().filter(|of| **of == index).count();
    let spread: Vec<_> = (0..THREADS).map(busy).collect();
    // The kernel spreads them by a hash of their random ports, so one thread may get none.
    let busy = spread.iter().filter(|count| **count > 0).count();
    assert!(busy > 1, "{spread:?}");
    pair.talk_at_once();
}

#[test]
fn what_comes_to_the_wrong_thread_is_handed_over() {
    let mut pair = Pair::new(Choosing::BySource);
    let handed_over = pair.converse();
    assert!(handed_over > CONNECTIONS as u64, "{handed_over}");
    let spread: std::collections::HashSet<_> = pair.accepted.values().collect();
    assert_eq!(spread.len(), THREADS);
    pair.talk_at_once();
}

#[test]
fn a_port_belongs_to_one_group() {
    let local = SocketAddr::new(Ipv4Addr::new(127, 38, 1, 3).into(), free_udp_port());
    let options = SoftOptions::at(local);
    let group = Soft::bind_several(&options, 2).expect("a port of loopback is free");
    assert_eq!(group.len(), 2);
    for threads in [1, 2] {
        let error = Soft::bind_several(&options, threads).expect_err("the port is taken");
        assert!(matches!(error, FabricError::SoftPort { .. }), "{error}");
    }
    let mut group = group.into_iter();
    let last = group.nth(1).expect("there are two");
    drop(group);
    let error = Soft::bind(&options).expect_err("a thread is left");
    assert!(matches!(error, FabricError::SoftPort { .. }), "{error}");
    drop(last);
    let one = Soft::bind_several(&options, 0).expect("the port is free again");
    assert_eq!(one.len(), 1);
}
