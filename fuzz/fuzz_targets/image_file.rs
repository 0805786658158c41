//! The reader of saved volumes.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| image::testing::read_file(input));
