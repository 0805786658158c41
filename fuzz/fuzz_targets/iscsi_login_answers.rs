//! Login Responses to an iSCSI initiator.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| iscsi::testing::fuzz::login_answers(input));
