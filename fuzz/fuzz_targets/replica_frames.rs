//! Frames between nodes, and a member that handles their messages.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| replica::testing::frames(input));
