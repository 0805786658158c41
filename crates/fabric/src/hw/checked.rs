//! The results of the libraries' functions.

use std::ffi::c_int;
use std::io;
use std::ptr::NonNull;

use crate::error::HwError;

/// The library's functions return 0 on success, otherwise an error number, or -1 with the error in
/// `errno`.
pub(super) fn checked(call: &'static str, code: c_int) -> Result<(), HwError> {
    let error = match code {
        0 => return Ok(()),
        -1 => io::Error::last_os_error(),
        code => io::Error::from_raw_os_error(code.abs()),
    };
    Err(HwError::Call { call, error })
}

/// The library's functions that create an object return null on failure.
pub(super) fn made<T>(call: &'static str, raw: *mut T) -> Result<NonNull<T>, HwError> {
    NonNull::new(raw).ok_or_else(|| HwError::Call {
        call,
        error: io::Error::last_os_error(),
    })
}
