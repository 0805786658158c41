//! Every NVMe/TCP PDU parser.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| nvme::testing::fuzz::pdu(input));
