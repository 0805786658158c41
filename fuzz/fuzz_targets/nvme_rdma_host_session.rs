//! An NVMe/RDMA host session with a controller whose messages are determined by the input.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| nvme::testing::fuzz::rdma_host_session(input));
