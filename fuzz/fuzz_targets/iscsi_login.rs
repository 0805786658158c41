//! Login Requests to an iSCSI target.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| iscsi::testing::fuzz::login(input));
