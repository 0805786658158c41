//! What hosts leave behind that come and go. It stands alone, since it counts what its whole
//! process has.

mod fixture;

use std::time::{Duration, Instant};

use block::{Blocks, Extent, Lba};
use initiator::{Device, DeviceOptions, OnLoss, Operation, Request, Slot, Url, WaitStrategy};
use server::{ByteSize, HostPolicy, Server, Transport, VolumeSpec};

const MIB: u64 = 1 << 20;
const PATIENCE: Duration = Duration::from_secs(20);
const NQN: &str = "nqn.2025-01.io.ramport:leaks";
/// Hosts that come and go before anything is counted: allocators and pools reach their size.
const WARM_UP: usize = 100;
const HOSTS: usize = 1000;
/// How far resident memory may have grown, in bytes: a host that left 1 KiB behind would reach it.
/// What is in order grows by less than a tenth of it.
const GROWTH_MAX_BYTES: u64 = MIB;

/// What the process and the server have.
#[derive(Debug, PartialEq, Eq)]
struct Held {
    descriptors: usize,
    threads: usize,
    charged_bytes: u64,
    connections: usize,
    sessions: usize,
}

impl Held {
    fn now(server: &Server) -> Self {
        Self {
            descriptors: entries("/proc/self/fd"),
            threads: entries("/proc/self/task"),
            charged_bytes: server.capacity().used_bytes,
            connections: server.portals()[0].connections,
            sessions: server.sessions().len(),
        }
    }
}

fn entries(folder: &str) -> usize {
    std::fs::read_dir(folder).expect("procfs").count()
}

/// The memory of this process that no file backs.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("procfs");
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
    kib.and_then(|kib| kib.parse::<u64>().ok())
        .expect("a number of KiB")
        << 10
}

/// A host attaches, reads a block and takes its leave.
fn come_and_go(url: &Url) {
    let options = DeviceOptions {
        depth: 4,
        buffer_bytes: 4096,
        on_loss: OnLoss::Fail,
        ..DeviceOptions::default()
    };
    let mut device = Device::connect(url, &options).expect("attaches");
    let mut queue = device.take_queues().remove(0);
    let request = Request {
        slot: Slot(0),
        operation: Operation::Read,
        extent: Extent::new(Lba(0), Blocks(8)),
    };
    queue.submit(request).expect("the slot is free");
    let mut done = Vec::new();
    queue
        .wait(WaitStrategy::Sleep, PATIENCE, &mut done)
        .expect("the queue lives");
    done[0].result.as_ref().expect("read");
}

fn serve() -> (Server, Url) {
    let spec = VolumeSpec::thin(ByteSize(MIB));
    let server = fixture::start(fixture::config(2, 256 * MIB), "rd0", &spec);
    let portal = fixture::portal(Transport::NvmeTcp, ([127, 0, 0, 1], 0));
    let portal = server.add_portal(portal).expect("a free port");
    fixture::offer(&server, NQN, "rd0", HostPolicy::Local);
    let url = format!("{portal}/{NQN}?ns=1").parse().expect("a URL");
    (server, url)
}

#[test]
fn a_thousand_hosts_come_and_go_and_leave_no_memory_and_no_descriptor() {
    let (server, url) = serve();
    let start = Held::now(&server);
    assert_eq!((start.connections, start.sessions), (0, 0));
    let back_at_start = || {
        let until = Instant::now() + PATIENCE;
        while Held::now(&server) != start {
            let now = Held::now(&server);
            assert!(Instant::now() < until, "{now:?} is left of {start:?}");
            std::thread::sleep(Duration::from_millis(2));
        }
    };
    (0..WARM_UP).for_each(|_| come_and_go(&url));
    back_at_start();
    let warm_bytes = resident_bytes();
    (0..HOSTS).for_each(|_| come_and_go(&url));
    back_at_start();
    let grown_bytes = resident_bytes().saturating_sub(warm_bytes);
    assert!(grown_bytes < GROWTH_MAX_BYTES, "{grown_bytes} bytes more");
}
