//! The reader of discovery logs.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| nvme::testing::fuzz::discovery_log(input));
