//! The host's end of a BRP connection over RDMA.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| brp::testing::fuzz::rdma::host_session(input));
