//! Random numbers that no one can predict.

use std::io;

use rustix::rand::{GetRandomFlags, getrandom};

/// Fills `bytes`.
pub(crate) fn fill(bytes: &mut [u8]) -> io::Result<()> {
    let mut filled = 0;
    while filled < bytes.len() {
        filled += getrandom(&mut bytes[filled..], GetRandomFlags::empty())?;
    }
    Ok(())
}
