//! The initiator's end of an SRP channel.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| srp::testing::fuzz::initiator_session(input));
