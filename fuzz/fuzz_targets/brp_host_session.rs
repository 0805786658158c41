//! The host's end of a BRP connection over TCP.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| brp::testing::fuzz::host_session(input));
