//! Why an adapter cannot be used.

use std::ffi::c_int;
use std::io;
use std::net::IpAddr;
use std::ptr::NonNull;

/// Why an adapter cannot be used, or a call on it failed.
#[derive(Debug, thiserror::Error)]
pub enum HwError {
    /// A library of rdma-core's is not there.
    #[error("cannot load {name} ({reason}); install rdma-core's librdmacm1 and ibverbs-providers")]
    Library {
        /// Its file.
        name: &'static str,
        /// The loader's message.
        reason: Box<str>,
    },
    /// A library is too old: it has not this function, in this version.
    #[error("{0} is missing; install rdma-core 25 or newer")]
    Symbol(Box<str>),
    /// The kernel has no connection manager for RDMA.
    #[error("the kernel has no RDMA adapters ({0}); load rdma_ucm and the adapter's driver")]
    NoDevices(#[source] io::Error),
    /// No adapter has the address.
    #[error("no RDMA adapter has the address {0}")]
    NoSuchAddress(IpAddr),
    /// It speaks iWARP, or something that is the vendor's own.
    #[error("adapter {0} supports neither InfiniBand nor RoCE")]
    Transport(Box<str>),
    /// A call failed.
    #[error("{call}: {error}")]
    Call {
        /// The function.
        call: &'static str,
        /// The system's error.
        error: io::Error,
    },
    /// Memory could not be allocated or pinned.
    #[error(
        "cannot pin {len_bytes} bytes for the adapter ({error}); raise the limit of locked memory (ulimit -l, or \
         LimitMEMLOCK= of the service)"
    )]
    Pin {
        /// How much.
        len_bytes: u64,
        /// The system's error.
        error: io::Error,
    },
    /// The adapter does not let peers invalidate its keys.
    #[error(
        "the adapter has no memory windows, so peers cannot invalidate its keys; register without remote invalidation"
    )]
    Windows,
    /// A window belongs to a queue pair.
    #[error(
        "a key for remote invalidation belongs to one connected queue pair; give the queue pair its own protection domain"
    )]
    WindowOwner,
    /// More than the adapter has room for.
    #[error("{asked} {what} are too many; the adapter supports {room}")]
    Room {
        /// Which objects.
        what: &'static str,
        /// How many were requested.
        asked: u32,
        /// How many fit.
        room: u32,
    },
    /// It was removed, or has failed for good.
    #[error("the adapter {0} was removed")]
    Gone(Box<str>),
}

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

/// The library's functions that make something answer with null on failure.
pub(super) fn made<T>(call: &'static str, raw: *mut T) -> Result<NonNull<T>, HwError> {
    NonNull::new(raw).ok_or_else(|| HwError::Call {
        call,
        error: io::Error::last_os_error(),
    })
}
