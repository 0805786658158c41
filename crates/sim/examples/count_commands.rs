//! Executes 4 KiB commands on a RAM volume through a protocol's target session, without sockets, so
//! that an instruction counter can tell what one command costs:
//!
//! `valgrind --tool=callgrind target/release/examples/count_commands nvme-tcp read 2000`
//!
//! The difference between two counts leaves the set-up out.

use sim::{Protocol, command_loop};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [protocol, operation, count] = arguments.as_slice() else {
        panic!("usage: count_commands nvme-tcp|nvme-rdma|iscsi|iser read|write COUNT");
    };
    let protocol = match protocol.as_str() {
        "nvme-tcp" => Protocol::NvmeTcp,
        "nvme-rdma" => Protocol::NvmeRdma,
        "iscsi" => Protocol::Iscsi,
        "iser" => Protocol::Iser,
        other => panic!("{other} is not a protocol"),
    };
    let is_read = match operation.as_str() {
        "read" => true,
        "write" => false,
        other => panic!("{other} is neither read nor write"),
    };
    let count: u32 = count.parse().expect("COUNT is a number");
    let mut execute = command_loop(protocol, is_read);
    for _ in 0..count {
        execute();
    }
}
