//! An NVMe/TCP target session from its first byte on, in any chunking.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| nvme::testing::fuzz::session(input));
