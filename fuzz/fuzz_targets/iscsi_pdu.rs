//! Every iSCSI PDU header.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| iscsi::testing::fuzz::pdu(input));
