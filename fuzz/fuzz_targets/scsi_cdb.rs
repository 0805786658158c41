//! CDBs and parameter lists through the device server.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| scsi::testing::fuzz::cdb(input));
