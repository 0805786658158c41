//! A connected NVMe/TCP I/O queue, driven by a script.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| nvme::testing::fuzz::queue(input));
