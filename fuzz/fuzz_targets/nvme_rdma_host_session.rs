//! An NVMe/RDMA host session against a controller that says what the input tells it to.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| nvme::testing::fuzz::rdma_host_session(input));
