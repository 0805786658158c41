//! An iSER session that is logged in, driven by a script.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| iscsi::testing::fuzz::iser_session(input));
