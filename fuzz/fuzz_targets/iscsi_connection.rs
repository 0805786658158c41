//! An iSCSI target connection from its first byte on, in any chunking.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| iscsi::testing::fuzz::connection(input));
