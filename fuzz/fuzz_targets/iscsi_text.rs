//! The texts of iSCSI negotiations and discovery.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| iscsi::testing::fuzz::text(input));
