//! Two connected ends under forged packets, work, loss and time.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| roce::testing::fuzz::received(input));
