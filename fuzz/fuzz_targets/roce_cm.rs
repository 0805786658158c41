//! The connection manager under messages, answers and time.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| roce::testing::fuzz::connection_manager(input));
