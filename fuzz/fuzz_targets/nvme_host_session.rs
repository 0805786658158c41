//! An NVMe/TCP host session against a controller that says what the input tells it to.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| nvme::testing::fuzz::host_session(input));
