//! OpenSSL's two libraries, opened at run time: a machine without them needs neither to start this
//! program.
//!
//! Read first: `openssl/ssl.h`, `openssl/bio.h` and `openssl/err.h` of OpenSSL 3.0.

use std::ffi::{CStr, c_char, c_int, c_long, c_uchar, c_ulong, c_void};
use std::ptr::NonNull;

const LIBSSL: &CStr = c"libssl.so.3";
const LIBCRYPTO: &CStr = c"libcrypto.so.3";

/// Why there is no OpenSSL.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ProviderError {
    /// A library was not found.
    #[error(
        "cannot load {name}, which TLS needs: {reason}; install OpenSSL 3 (Debian: libssl3, Fedora: openssl-libs)"
    )]
    Library {
        /// Its name.
        name: &'static str,
        /// What the loader said.
        reason: Box<str>,
    },
    /// A function was not found.
    #[error("{name} has no function {function}, which TLS needs; update OpenSSL to 3.0 or later")]
    Symbol {
        /// The library.
        name: &'static str,
        /// The function.
        function: Box<str>,
    },
    /// The program is linked statically and cannot load libraries.
    #[error(
        "this program is linked statically and cannot load OpenSSL, which TLS needs; install the package of your distribution or build from source"
    )]
    Static,
    /// OpenSSL cannot do what is needed.
    #[error("OpenSSL does not work: {0}; check its configuration (openssl.cnf)")]
    Setup(Box<str>),
}

/// Types of OpenSSL of which only pointers are used.
macro_rules! opaque {
    ($($(#[$doc:meta])* $name:ident;)*) => { $(
        $(#[$doc])*
        #[repr(C)]
        pub(super) struct $name {
            _opaque: [u8; 0],
        }
    )* };
}

opaque! {
    /// A connection.
    Ssl;
    /// What connections share.
    SslCtx;
    /// A method: TLS.
    SslMethod;
    /// A session: here, a pre-shared key.
    SslSession;
    /// A cipher suite.
    SslCipher;
    /// A stream of bytes: here, memory.
    Bio;
    /// A kind of stream.
    BioMethod;
    /// A hash function.
    EvpMd;
}

/// `SSL_psk_find_session_cb_func`.
pub(super) type FindSession =
    unsafe extern "C" fn(*mut Ssl, *const c_uchar, usize, *mut *mut SslSession) -> c_int;
/// `SSL_psk_use_session_cb_func`.
pub(super) type UseSession = unsafe extern "C" fn(
    *mut Ssl,
    *const EvpMd,
    *mut *const c_uchar,
    *mut usize,
    *mut *mut SslSession,
) -> c_int;
/// `SSL_CTX_keylog_cb_func`.
pub(super) type KeyLog = unsafe extern "C" fn(*const Ssl, *const c_char);

/// Defines the table of functions, each with its name and type.
macro_rules! functions {
    ($($object:ident of $library:ident { $($field:ident = $name:literal: fn($($argument:ty),*) $(-> $result:ty)?;)* })*) => {
        /// The functions that are used.
        #[derive(Clone, Copy)]
        pub(super) struct Library {
            $($(pub(super) $field: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*)*
        }

        impl Library {
            /// Loads the libraries; the error names the missing part.
            pub(super) fn load() -> Result<Self, ProviderError> {
                if cfg!(target_feature = "crt-static") {
                    return Err(ProviderError::Static);
                }
                $(let $object = Object::open($library)?;)*
                // SAFETY: each type is that of OpenSSL's headers for the function beside it.
                unsafe {
                    Ok(Self { $($($field: $object.symbol($name)?,)*)* })
                }
            }
        }
    };
}

functions! {
    crypto of LIBCRYPTO {
        bio_new = c"BIO_new": fn(*const BioMethod) -> *mut Bio;
        bio_s_mem = c"BIO_s_mem": fn() -> *const BioMethod;
        bio_read = c"BIO_read": fn(*mut Bio, *mut c_void, c_int) -> c_int;
        bio_write = c"BIO_write": fn(*mut Bio, *const c_void, c_int) -> c_int;
        err_clear = c"ERR_clear_error": fn();
        err_get = c"ERR_get_error": fn() -> c_ulong;
        err_text = c"ERR_error_string_n": fn(c_ulong, *mut c_char, usize);
    }
    ssl of LIBSSL {
        tls_method = c"TLS_method": fn() -> *const SslMethod;
        ctx_new = c"SSL_CTX_new": fn(*const SslMethod) -> *mut SslCtx;
        ctx_free = c"SSL_CTX_free": fn(*mut SslCtx);
        ctx_ctrl = c"SSL_CTX_ctrl": fn(*mut SslCtx, c_int, c_long, *mut c_void) -> c_long;
        ctx_set_num_tickets = c"SSL_CTX_set_num_tickets": fn(*mut SslCtx, usize) -> c_int;
        ssl_set_verify = c"SSL_set_verify": fn(*mut Ssl, c_int, *const c_void);
        ctx_set_find_session = c"SSL_CTX_set_psk_find_session_callback": fn(*mut SslCtx, FindSession);
        ctx_set_use_session = c"SSL_CTX_set_psk_use_session_callback": fn(*mut SslCtx, UseSession);
        ctx_set_keylog = c"SSL_CTX_set_keylog_callback": fn(*mut SslCtx, KeyLog);
        ssl_new = c"SSL_new": fn(*mut SslCtx) -> *mut Ssl;
        ssl_free = c"SSL_free": fn(*mut Ssl);
        ssl_set_bio = c"SSL_set_bio": fn(*mut Ssl, *mut Bio, *mut Bio);
        ssl_set_ciphersuites = c"SSL_set_ciphersuites": fn(*mut Ssl, *const c_char) -> c_int;
        ssl_set_accept_state = c"SSL_set_accept_state": fn(*mut Ssl);
        ssl_set_connect_state = c"SSL_set_connect_state": fn(*mut Ssl);
        ssl_do_handshake = c"SSL_do_handshake": fn(*mut Ssl) -> c_int;
        ssl_get_error = c"SSL_get_error": fn(*const Ssl, c_int) -> c_int;
        ssl_session_reused = c"SSL_session_reused": fn(*const Ssl) -> c_int;
        cipher_find = c"SSL_CIPHER_find": fn(*mut Ssl, *const c_uchar) -> *const SslCipher;
        session_new = c"SSL_SESSION_new": fn() -> *mut SslSession;
        session_free = c"SSL_SESSION_free": fn(*mut SslSession);
        session_set_key = c"SSL_SESSION_set1_master_key": fn(*mut SslSession, *const c_uchar, usize) -> c_int;
        session_set_cipher = c"SSL_SESSION_set_cipher": fn(*mut SslSession, *const SslCipher) -> c_int;
        session_set_version = c"SSL_SESSION_set_protocol_version": fn(*mut SslSession, c_int) -> c_int;
    }
}

impl Library {
    /// The errors of this thread's last call, and forgets them.
    pub(super) fn take_errors(&self) -> Box<str> {
        let mut texts = Vec::new();
        for _ in 0..ERRORS_MAX {
            // SAFETY: no arguments.
            let code = unsafe { (self.err_get)() };
            if code == 0 {
                break;
            }
            let mut text = [0u8; 256];
            // SAFETY: the buffer has the given length, and the function ends the text inside it.
            unsafe { (self.err_text)(code, text.as_mut_ptr().cast(), text.len()) };
            let text = CStr::from_bytes_until_nul(&text).unwrap_or_default();
            // error:CODE:LIBRARY:FUNCTION:REASON
            let text = text.to_string_lossy();
            texts.push(text.rsplit(':').next().unwrap_or_default().to_owned());
        }
        // SAFETY: no arguments.
        unsafe { (self.err_clear)() };
        if texts.is_empty() {
            return "OpenSSL gives no reason".into();
        }
        texts.join(", ").into()
    }
}

/// The most errors that are read of a thread's queue, which has 16 entries.
const ERRORS_MAX: usize = 16;

/// What connections share: an `SSL_CTX`.
pub(super) struct Context {
    pub(super) library: Library,
    pub(super) ctx: NonNull<SslCtx>,
}

// SAFETY: an `SSL_CTX` is changed by `configure` alone, before it is shared; afterwards it is only
// given to `SSL_new` and `SSL_CTX_free`, which count references atomically.
unsafe impl Send for Context {}
// SAFETY: see above.
unsafe impl Sync for Context {}

impl Context {
    pub(super) fn new(library: Library) -> Result<Self, ProviderError> {
        // SAFETY: TLS_method returns a static method.
        let ctx = unsafe { (library.ctx_new)((library.tls_method)()) };
        let ctx = NonNull::new(ctx).ok_or_else(|| ProviderError::Setup(library.take_errors()))?;
        Ok(Self { library, ctx })
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: the reference is ours; connections hold their own.
        unsafe { (self.library.ctx_free)(self.ctx.as_ptr()) };
    }
}

/// A shared object that is never unloaded.
struct Object {
    name: &'static CStr,
    handle: NonNull<c_void>,
}

impl Object {
    fn open(name: &'static CStr) -> Result<Self, ProviderError> {
        // SAFETY: the name is a C string. The library's code on loading is trusted as much as its
        // other code.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_NODELETE) };
        let handle = NonNull::new(handle).ok_or_else(|| ProviderError::Library {
            name: text(name),
            reason: last_error(),
        })?;
        Ok(Self { name, handle })
    }

    /// A function of the object.
    ///
    /// # Safety
    /// `F` is a pointer to a function of the type that the function has.
    unsafe fn symbol<F: Copy>(&self, function: &CStr) -> Result<F, ProviderError> {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        // SAFETY: the handle is never closed, and the name is a C string.
        let found = unsafe { libc::dlsym(self.handle.as_ptr(), function.as_ptr()) };
        if found.is_null() {
            return Err(ProviderError::Symbol {
                name: text(self.name),
                function: function.to_string_lossy().into(),
            });
        }
        // SAFETY: the pointer is not null, of the same size, and points to a function of that type,
        // as the caller promises.
        Ok(unsafe { std::mem::transmute_copy::<*mut c_void, F>(&found) })
    }
}

fn text(name: &'static CStr) -> &'static str {
    name.to_str().unwrap_or("a library")
}

/// The loader's last error in this thread.
fn last_error() -> Box<str> {
    // SAFETY: dlerror returns null or a C string that stays until the thread's next call of the
    // loader.
    unsafe {
        let message = libc::dlerror();
        if message.is_null() {
            return "the loader does not say why".into();
        }
        CStr::from_ptr(message).to_string_lossy().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named() {
        let Err(error) = Object::open(c"libramport-is-not-here.so.1") else {
            panic!("there is no such library");
        };
        let told = error.to_string();
        assert!(told.contains("libramport-is-not-here.so.1") && told.contains("libssl3"));
        let libc = Object::open(c"libc.so.6").expect("every program has it");
        // SAFETY: the function is not called.
        let missing = unsafe { libc.symbol::<unsafe extern "C" fn()>(c"SSL_nothing") };
        let told = missing.expect_err("no such function").to_string();
        assert!(told.contains("SSL_nothing") && told.contains("libc.so.6"));
    }
}
