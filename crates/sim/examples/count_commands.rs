//! Executes 4 KiB commands on a RAM volume through a protocol's target session, without sockets, so that an
//! instruction counter can tell what one command costs:
//!
//! `valgrind --tool=callgrind target/release/examples/count_commands nvme-tcp read 2000`
//!
//! The difference between two counts leaves the set-up out.

use std::sync::Arc;

use memory::Budget;
use nvme::tcp::ControllerConfig;
use nvme::testing::{RdmaHost, io_peer, rdma_host};
use nvme::wire::{Cid, Nsid, Sgl, Sqe, opcode};
use session::{MessageSession, RemoteBuffer, RemoteKey, WorkList};
use session::{SendList, StreamSession};
use volume::{ByteSize, RamSpec, RamVolume};

const BLOCKS: u32 = 8;
const LEN_BYTES: usize = BLOCKS as usize * 512;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [protocol, operation, count] = arguments.as_slice() else {
        panic!("usage: count_commands nvme-tcp|nvme-rdma read|write COUNT");
    };
    let count: u32 = count.parse().expect("COUNT is a number");
    let opcode = match operation.as_str() {
        "read" => opcode::READ,
        "write" => opcode::WRITE,
        _ => panic!("{operation} is neither read nor write"),
    };
    match protocol.as_str() {
        "nvme-tcp" => nvme_tcp(opcode, count),
        "nvme-rdma" => nvme_rdma(opcode, count),
        _ => panic!("{protocol} is not a protocol"),
    }
}

fn volume() -> Arc<RamVolume> {
    let budget = Arc::new(Budget::new(1 << 30));
    let spec = RamSpec::thin(ByteSize(16 << 20));
    RamVolume::new(spec, &budget).expect("a small volume fits")
}

fn command(opcode: u8, sgl: Sgl) -> Sqe {
    let mut sqe = Sqe::new(opcode, Cid(1), Nsid(1));
    sqe.cdw12 = (BLOCKS - 1).into();
    sqe.sgl1 = sgl;
    sqe
}

/// Write data come in the capsule, as Linux sends them.
fn nvme_tcp(opcode: u8, count: u32) {
    let (mut io, _admin) = io_peer(ControllerConfig::default(), &[volume()], 2);
    let len_bytes = LEN_BYTES as u32;
    let capsule = if opcode == opcode::READ {
        io.capsule(&command(opcode, Sgl::transport(len_bytes)), &[])
    } else {
        let sqe = command(opcode, Sgl::in_capsule(0, len_bytes));
        io.capsule(&sqe, &[7; LEN_BYTES])
    };
    let mut out = SendList::with_capacity(1 << 20);
    for _ in 0..count {
        io.session
            .handle_bytes(io.now, &capsule, &mut io.backend)
            .expect("good PDUs");
        io.session.poll_transmit(io.now, &mut io.backend, &mut out);
        out.consume(out.len_bytes());
        assert_eq!(io.backend.completed.len(), 1, "each command is answered");
        io.backend.completed.clear();
    }
}

fn nvme_rdma(opcode: u8, count: u32) {
    let (mut io, _admin) = rdma_host(&[volume()], 2);
    let message =
        zerocopy::IntoBytes::as_bytes(&command(opcode, RdmaHost::keyed(0, LEN_BYTES))).to_vec();
    let mut out = OneBuffer::default();
    for _ in 0..count {
        let (now, backend) = (io.now, &mut io.backend);
        io.session
            .handle_message(now, &message, None, backend)
            .expect("a good capsule");
        io.session.poll_transmit(now, backend, &mut out);
        if let Some(tag) = out.read.take() {
            io.session
                .handle_read(now, tag, &[7; LEN_BYTES], backend)
                .expect("data that were asked for");
            io.session.poll_transmit(now, backend, &mut out);
        }
        assert_eq!(backend.completed.len(), 1, "each command is answered");
        backend.completed.clear();
    }
}

/// A send queue that forgets what is posted, so that its own cost is small.
struct OneBuffer {
    bytes: Vec<u8>,
    /// The tag of the last RDMA READ.
    read: Option<u64>,
}

impl Default for OneBuffer {
    fn default() -> Self {
        Self {
            bytes: vec![0; 64 << 10],
            read: None,
        }
    }
}

impl WorkList for OneBuffer {
    fn piece_max_bytes(&self) -> u32 {
        64 << 10
    }

    fn write(&mut self, to: RemoteBuffer) -> Option<&mut [u8]> {
        Some(&mut self.bytes[..to.len_bytes as usize])
    }

    fn retract(&mut self) {}

    fn read(&mut self, tag: u64, _from: RemoteBuffer) -> bool {
        self.read = Some(tag);
        true
    }

    fn send(&mut self, len_bytes: u32, _invalidate: Option<RemoteKey>) -> Option<&mut [u8]> {
        Some(&mut self.bytes[..len_bytes as usize])
    }
}
