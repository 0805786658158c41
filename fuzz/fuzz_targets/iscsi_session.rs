//! An iSCSI initiator session against a target that says what the input tells it to.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| iscsi::testing::fuzz::session(input));
