//! An NVMe/RDMA target session: its private data, and a queue driven by odd commands.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| nvme::testing::fuzz::rdma_session(input));
