//! An iSCSI initiator session with a target whose PDUs are determined by the input.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| iscsi::testing::fuzz::session(input));
