//! An NVMe/TCP host session with a controller whose PDUs are determined by the input.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| nvme::testing::fuzz::host_session(input));
