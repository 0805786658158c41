//! The target's end of a BRP connection over RDMA.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| brp::testing::fuzz::rdma::target_session(input));
