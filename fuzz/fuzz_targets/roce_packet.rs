//! Every header of RoCEv2, the invariant CRC and messages of communication management.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| roce::testing::fuzz::packet(input));
