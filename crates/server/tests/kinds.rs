//! A volume of each kind over each protocol that our initiators speak, compared with a vector; over
//! iSER, which they do not, in `iser/kinds.rs`.

mod each_kind;
mod fixture;

use std::net::SocketAddr;

use block::{Blocks, Extent, Lba};
use each_kind::{BLOCK, BLOCKS_MAX, PATIENCE};
use initiator::{Device, DeviceOptions, Operation, Queue, Request, Slot, WaitStrategy};
use server::{ByteSize, HostPolicy, Transport, VolumeSpec};

const MIB: u64 = 1 << 20;

fn target_of(transport: Transport, volume: &str) -> (String, &'static str) {
    match transport {
        Transport::Iscsi => (format!("iqn.2026-11.com.example:{volume}"), "/0"),
        Transport::NvmeTcp => (format!("nqn.2026-11.com.example:{volume}"), "?ns=1"),
        // Queue pairs in software share a port, so each end has an address of its own.
        Transport::NvmeRdma => (
            format!("nqn.2026-11.com.example:{volume}"),
            "?ns=1&rdma=soft&local=127.0.56.2",
        ),
        _ => panic!("our initiators do not speak {transport:?}"),
    }
}

struct Host {
    _device: Device,
    queue: Queue,
}

impl Host {
    fn new(url: &str) -> Self {
        let url = url.parse().expect("a URL");
        let options = DeviceOptions {
            depth: 4,
            buffer_bytes: BLOCKS_MAX as usize * BLOCK,
            ..DeviceOptions::default()
        };
        let mut device = Device::connect(&url, &options).expect("attaches");
        let queue = device.take_queues().remove(0);
        Self {
            _device: device,
            queue,
        }
    }
}

impl each_kind::Host for Host {
    fn run(&mut self, operation: Operation, lba: u64, blocks: u64, data: &[u8]) {
        self.queue.buffer_mut(Slot(0))[..data.len()].copy_from_slice(data);
        let request = Request {
            slot: Slot(0),
            operation,
            extent: Extent::new(Lba(lba), Blocks(blocks)),
        };
        self.queue.submit(request).expect("the slot is free");
        let mut done = Vec::new();
        let waited = self.queue.wait(WaitStrategy::Sleep, PATIENCE, &mut done);
        waited.expect("the queue lives");
        let outcome = done.first().expect("it is answered in time").result;
        outcome.unwrap_or_else(|error| panic!("{operation:?} at {lba}: {error}"));
    }

    fn read(&mut self, lba: u64, blocks: u64) -> Vec<u8> {
        self.run(Operation::Read, lba, blocks, &[]);
        self.queue.buffer(Slot(0))[..blocks as usize * BLOCK].to_vec()
    }
}

fn over(transport: Transport, port: u16) {
    let first = VolumeSpec::thin(ByteSize(MIB));
    let server = fixture::start(fixture::config(1, 256 * MIB), "first", &first);
    let address: SocketAddr = ([127, 0, 56, 1], port).into();
    let portal = fixture::portal(transport, address);
    let portal = server.add_portal(portal).expect("a free port");
    each_kind::over(&server, |volume| {
        let (target, query) = target_of(transport, volume);
        fixture::offer(&server, &target, volume, HostPolicy::Local);
        let url = format!("{portal}/{target}{query}");
        Box::new(move || Host::new(&url))
    });
}

#[test]
fn each_kind_does_what_a_vector_does_over_nvme_tcp() {
    over(Transport::NvmeTcp, 0);
}

#[test]
fn each_kind_does_what_a_vector_does_over_nvme_rdma() {
    over(Transport::NvmeRdma, 4420);
}

#[test]
fn each_kind_does_what_a_vector_does_over_iscsi() {
    over(Transport::Iscsi, 0);
}
