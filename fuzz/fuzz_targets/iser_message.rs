//! Messages of iSER, and the private data of its connection requests.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| iscsi::testing::fuzz::iser_message(input));
