//! Devices against the real server, with a proxy between that cuts, slows and stalls.

#[path = "../../../server/tests/fixture/mod.rs"]
mod fixture;
mod hostile;
mod iscsi_tcp;
mod proxy;
mod srp;

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use block::testing::{Turn, assert_not_delayed, timed};
use block::{Access, Blocks, Extent, Lba};
use initiator::{
    Backoff, CommandError, Completion, ConnectError, Device, DeviceOptions, Operation, Queue,
    RecordKind, Request, Slot, Url, WaitStrategy, discover,
};
use nvme::wire::StatusCode;
use proxy::{Pace, Proxy};
use server::{ByteSize, Force, HostPolicy, Server, Transport, VolumeSpec};

const MIB: u64 = 1 << 20;
const PATIENCE: Duration = Duration::from_secs(60);

struct Fixture {
    server: Server,
    address: SocketAddr,
    _turn: Turn,
}

impl Fixture {
    fn start(len_bytes: u64) -> Self {
        Self::with_memory(len_bytes, 256 * MIB)
    }

    /// For a test that bounds delays.
    fn alone() -> Self {
        Self::at(Turn::alone(), 64 * MIB, 256 * MIB)
    }

    fn with_memory(len_bytes: u64, memory_bytes: u64) -> Self {
        Self::at(Turn::shared(), len_bytes, memory_bytes)
    }

    fn at(turn: Turn, len_bytes: u64, memory_bytes: u64) -> Self {
        let spec = VolumeSpec::thin(ByteSize(len_bytes));
        let server = fixture::start(fixture::config(1, memory_bytes), "vol", &spec);
        let hosts = HostPolicy::Any(Access::ReadWrite);
        fixture::offer(&server, "rd0", "vol", hosts);
        let portal = fixture::portal(Transport::NvmeTcp, ([127, 0, 0, 1], 0));
        let portal = server.add_portal(portal).unwrap();
        Self {
            server,
            address: portal.address,
            _turn: turn,
        }
    }

    fn attach(&self, query: &str) -> (Device, Vec<Queue>) {
        attach(self.address, query)
    }

    /// Offers the volume over iSCSI, too; gives the portal's address.
    fn offer_iscsi(&self, name: &str) -> SocketAddr {
        let hosts = HostPolicy::Any(Access::ReadWrite);
        fixture::offer(&self.server, name, "vol", hosts);
        let portal = fixture::portal(Transport::Iscsi, ([127, 0, 0, 1], 0));
        self.server.add_portal(portal).unwrap().address
    }
}

fn url(address: SocketAddr, query: &str) -> Url {
    format!("nvme+tcp://{address}/rd0?{query}").parse().unwrap()
}

fn options() -> DeviceOptions {
    DeviceOptions {
        depth: 16,
        buffer_bytes: 128 * 1024,
        backoff: Backoff {
            first: Duration::from_millis(1),
            max: Duration::from_millis(50),
            ..Backoff::default()
        },
        ..DeviceOptions::default()
    }
}

fn attach(address: SocketAddr, query: &str) -> (Device, Vec<Queue>) {
    let mut device = Device::connect(&url(address, query), &options()).unwrap();
    let queues = device.take_queues();
    (device, queues)
}

fn request(slot: u16, operation: Operation, lba: u64, blocks: u64) -> Request {
    Request {
        slot: Slot(slot),
        operation,
        extent: Extent::new(Lba(lba), Blocks(blocks)),
    }
}

fn run(queue: &mut Queue, request: Request) -> Result<(), CommandError> {
    let mut done = Vec::new();
    queue.submit(request).unwrap();
    queue
        .wait(WaitStrategy::Sleep, PATIENCE, &mut done)
        .unwrap();
    assert_eq!(done.len(), 1, "an answer within {PATIENCE:?}");
    done[0].result
}

/// Writes and reads in turn, each slot its own stretch, and checks what comes back; calls `disturb`
/// in each round.
fn verify(queue: &mut Queue, first_lba: u64, rounds: u64, disturb: impl Fn(u64)) {
    const BLOCKS: u64 = 100;
    let depth = queue.depth();
    let len = BLOCKS as usize * 512;
    let mut done = Vec::new();
    for round in 0..rounds {
        for operation in [Operation::Write, Operation::Read] {
            for slot in 0..depth {
                let fill = (round as u8).wrapping_mul(37) ^ slot as u8;
                let buffer = &mut queue.buffer_mut(Slot(slot))[..len];
                buffer.fill(if operation == Operation::Write {
                    fill
                } else {
                    !fill
                });
                let lba = first_lba + u64::from(slot) * BLOCKS;
                queue.submit(request(slot, operation, lba, BLOCKS)).unwrap();
            }
            queue.poll(Instant::now(), &mut done).unwrap();
            disturb(round);
            finish(queue, &mut done, &format!("round {round}"));
            for completion in done.drain(..) {
                assert_eq!(completion.result, Ok(()), "round {round}");
                let fill = (round as u8).wrapping_mul(37) ^ completion.slot.0 as u8;
                let buffer = &queue.buffer(completion.slot)[..len];
                assert!(buffer.iter().all(|&b| b == fill), "round {round}");
            }
        }
    }
}

/// Waits until there is an outcome of each slot in `done`.
fn finish(queue: &mut Queue, done: &mut Vec<Completion>, what: &str) {
    while done.len() < usize::from(queue.depth()) {
        let came = queue.wait(WaitStrategy::Sleep, PATIENCE, done).unwrap();
        assert!(came > 0, "{what}: no progress");
    }
}

/// Verifies on two queues of each client, on blocks of its own, while `proxy` cuts their
/// connections again and again.
fn verify_while_cut<const N: usize>(proxy: &Proxy, clients: [((Device, Vec<Queue>), u64); N]) {
    std::thread::scope(|scope| {
        for ((device, queues), lba) in clients {
            scope.spawn(move || {
                let _keep = device;
                for (mut queue, lba) in queues.into_iter().zip([lba, lba + 5_000]) {
                    verify(&mut queue, lba, 12, |round| {
                        if round % 4 == 1 {
                            proxy.cut();
                        }
                    });
                }
            });
        }
    });
}

#[test]
fn data_stay_whole_while_connections_are_cut() {
    let fixture = Fixture::start(64 * MIB);
    let proxy = Proxy::start(fixture.address);
    let clients = [
        ("queues=2", 0),
        ("queues=2&hdgst=on", 10_000),
        ("queues=2&hdgst=on&ddgst=on", 20_000),
    ]
    .map(|(query, lba)| (attach(proxy.address, query), lba));
    verify_while_cut(&proxy, clients);
}

#[test]
fn a_stalled_and_a_slow_client_do_not_stop_others() {
    let fixture = Fixture::alone();
    let clients = [Pace::Stalled, Pace::Slow].map(|pace| {
        let proxy = Proxy::start(fixture.address);
        let (device, mut queues) = attach(proxy.address, "");
        proxy.set_pace(pace);
        // More answers than the sockets between hold.
        for slot in 0..queues[0].depth() {
            queues[0]
                .submit(request(slot, Operation::Read, 0, 256))
                .unwrap();
        }
        queues[0].poll(Instant::now(), &mut Vec::new()).unwrap();
        (proxy, device, queues)
    });
    let (_device, mut queues) = fixture.attach("");
    let mut round_trip = || verify(&mut queues[0], 0, 1, |_| {});
    let times: Vec<_> = (0..100).map(|_| timed(&mut round_trip)).collect();
    // Both go on where they were as soon as they can.
    for (proxy, _device, mut queues) in clients {
        proxy.set_pace(Pace::Full);
        let (queue, mut done) = (&mut queues[0], Vec::new());
        finish(queue, &mut done, "at full pace again");
        assert!(done.iter().all(|completion| completion.result.is_ok()));
    }
    assert_not_delayed(&times, round_trip);
}

#[test]
fn a_thousand_connects_leave_neither_memory_nor_sessions_behind() {
    let fixture = Fixture::start(MIB);
    let (first, queues) = fixture.attach("");
    drop((first, queues));
    let settle = |what: &str, is_settled: &dyn Fn() -> bool| {
        let deadline = Instant::now() + PATIENCE;
        while !is_settled() {
            assert!(Instant::now() < deadline, "{what} are left");
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    settle("sessions", &|| fixture.server.sessions().is_empty());
    let used = |fixture: &Fixture| fixture.server.capacity().used_bytes;
    let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let (used_before, descriptors_before) = (used(&fixture), descriptors());
    for round in 0..1000 {
        let (device, mut queues) = fixture.attach("");
        if round % 20 == 0 {
            assert_eq!(
                run(&mut queues[0], request(0, Operation::Read, 0, 1)),
                Ok(())
            );
        }
        drop((queues, device));
    }
    settle("sessions", &|| fixture.server.sessions().is_empty());
    settle("bytes", &|| used(&fixture) == used_before);
    // Other tests of this process have some at the same time, a thousand would be more.
    settle("descriptors", &|| descriptors() < descriptors_before + 200);
}

#[test]
fn discovery_lists_the_target_where_it_was_asked() {
    let fixture = Fixture::start(MIB);
    let service: Url = format!("nvme+tcp://{}", fixture.address).parse().unwrap();
    let records = discover(&service, PATIENCE).unwrap();
    let record = records
        .iter()
        .find(|record| record.subsystem_nqn == "rd0")
        .unwrap();
    assert_eq!(record.kind, RecordKind::Nvm);
    assert_eq!(record.address, fixture.address.ip().to_string());
    assert_eq!(record.service, fixture.address.port().to_string());
}

#[test]
fn a_name_that_is_not_served_is_rejected() {
    let fixture = Fixture::start(MIB);
    let url = url(fixture.address, "").with_target("other");
    let error = Device::connect(&url, &options()).unwrap_err();
    assert!(matches!(error, ConnectError::Setup { .. }), "{error}");
    assert!(error.to_string().contains("no subsystem"), "{error}");
}

#[test]
fn a_resize_is_seen_while_attached() {
    let fixture = Fixture::start(MIB);
    let (device, mut queues) = fixture.attach("");
    assert_eq!(device.geometry().blocks, Blocks(2048));
    let name = "vol".parse().unwrap();
    fixture
        .server
        .resize_volume(&name, 2 * MIB, Force::No, &mut |_| {})
        .unwrap();
    let deadline = Instant::now() + PATIENCE;
    while device.geometry().blocks != Blocks(4096) {
        assert!(Instant::now() < deadline, "no event came");
        std::thread::sleep(Duration::from_millis(2));
    }
    let last = request(0, Operation::Write, 4095, 1);
    assert_eq!(run(&mut queues[0], last), Ok(()));
}

#[test]
fn exhausted_memory_fails_only_writes_until_memory_is_freed() {
    let fixture = Fixture::with_memory(256 * MIB, 64 * MIB);
    let (_device, mut queues) = fixture.attach("");
    let queue = &mut queues[0];
    queue.buffer_mut(Slot(0)).fill(1);
    let mut failed_at = None;
    for lba in (0..512 * 1024).step_by(4096) {
        match run(queue, request(0, Operation::Write, lba, 8)) {
            Ok(()) => {}
            Err(CommandError::Status(status)) => {
                assert_eq!(status.code(), Some(StatusCode::CapacityExceeded));
                failed_at = Some(lba);
                break;
            }
            Err(error) => panic!("{error}"),
        }
    }
    let failed_at = failed_at.expect("256 MiB do not fit into 64");
    assert_eq!(run(queue, request(1, Operation::Read, 0, 8)), Ok(()));
    assert!(queue.buffer(Slot(1))[..4096].iter().all(|&b| b == 1));
    let unwritten = request(1, Operation::Read, failed_at, 8);
    assert_eq!(run(queue, unwritten), Ok(()));
    assert!(queue.buffer(Slot(1))[..4096].iter().all(|&b| b == 0));
    let all = request(1, Operation::Deallocate, 0, 512 * 1024);
    assert_eq!(run(queue, all), Ok(()));
    let again = request(0, Operation::Write, failed_at, 8);
    assert_eq!(run(queue, again), Ok(()));
}
