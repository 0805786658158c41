//! Messages of in-band authentication (DH-HMAC-CHAP), to both sides.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| nvme::testing::fuzz::auth_messages(input));
