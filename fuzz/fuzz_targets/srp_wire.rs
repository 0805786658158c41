//! A login and a command of SRP as bytes.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| srp::testing::fuzz::wire(input));
