//! The target's end of a BRP connection over TCP.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| brp::testing::fuzz::target_session(input));
