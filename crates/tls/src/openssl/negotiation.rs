//! One handshake: an `SSL` between two streams in memory.

use std::cell::Cell;
use std::ffi::{CStr, CString, c_char, c_int, c_long, c_uchar};
use std::ptr::{self, NonNull};

use zeroize::Zeroizing;

use super::Provider;
use super::library::{Bio, Context, EvpMd, Library, ProviderError, Ssl, SslSession};
use crate::key::Psk;
use crate::record::{Records, Updates};
use crate::suite::SecretBytes;

/// Whose side of a handshake this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Client,
    Server,
}

/// A handshake in progress.
pub(crate) struct Negotiation {
    provider: Provider,
    side: Side,
    ssl: NonNull<Ssl>,
    /// What the peer has sent. The `SSL` owns both streams.
    input: NonNull<Bio>,
    output: NonNull<Bio>,
    /// What callbacks use. Boxed, so that its address stays.
    shared: Box<Shared>,
}

// SAFETY: an `SSL` may be used by any thread, one at a time, and `&mut self` ensures that.
unsafe impl Send for Negotiation {}

/// What callbacks use.
struct Shared {
    library: Library,
    psk: Psk,
    client_secret: Option<SecretBytes>,
    server_secret: Option<SecretBytes>,
}

const TLS1_3_VERSION: c_int = 0x0304;
const SSL_CTRL_SET_MIN_PROTO_VERSION: c_int = 123;
const SSL_VERIFY_PEER: c_int = 1;
const SSL_ERROR_WANT_READ: c_int = 2;
/// What is read of a stream at once.
const READ_BYTES: u16 = 2048;
/// The most that a handshake writes at once: a few records.
const OUTPUT_MAX_BYTES: usize = 64 << 10;

/// Sets up what all handshakes share.
pub(super) fn configure(context: &mut Context) -> Result<(), ProviderError> {
    let (library, ctx) = (context.library, context.ctx.as_ptr());
    // SAFETY: the context is ours alone; the callbacks have the types that the headers state and
    // live as long as the program.
    let is_set = unsafe {
        let version = c_long::from(TLS1_3_VERSION);
        let no_data = ptr::null_mut();
        (library.ctx_set_find_session)(ctx, find_session);
        (library.ctx_set_use_session)(ctx, use_session);
        (library.ctx_set_keylog)(ctx, log_key);
        // Tickets would be records of the new keys, which `Records` counts, and nobody uses them.
        (library.ctx_set_num_tickets)(ctx, 0) == 1
            && (library.ctx_ctrl)(ctx, SSL_CTRL_SET_MIN_PROTO_VERSION, version, no_data) == 1
    };
    if is_set {
        Ok(())
    } else {
        Err(ProviderError::Setup(library.take_errors()))
    }
}

impl Negotiation {
    /// A handshake that succeeds only if the peer has the same key.
    pub(crate) fn new(provider: &Provider, side: Side, psk: Psk) -> Result<Self, Box<str>> {
        let library = provider.context.library;
        let suites = CString::new(psk.suite.name()).expect("names have no zero byte");
        let shared = Box::new(Shared {
            library,
            psk,
            client_secret: None,
            server_secret: None,
        });
        // SAFETY: the context is valid. `SSL_new` takes a reference of it.
        let ssl = unsafe { (library.ssl_new)(provider.context.ctx.as_ptr()) };
        let ssl = NonNull::new(ssl).ok_or_else(|| library.take_errors())?;
        // SAFETY: no arguments but a static method.
        let new_bio = || unsafe { NonNull::new((library.bio_new)((library.bio_s_mem)())) };
        let (Some(input), Some(output)) = (new_bio(), new_bio()) else {
            // SAFETY: the reference is ours. A stream that was made alone leaks, where memory has
            // run out.
            unsafe { (library.ssl_free)(ssl.as_ptr()) };
            return Err(library.take_errors());
        };
        // SAFETY: `ssl` is valid and takes ownership of the streams; the names are a C string.
        let is_set = unsafe {
            (library.ssl_set_bio)(ssl.as_ptr(), input.as_ptr(), output.as_ptr());
            match side {
                Side::Client => {
                    (library.ssl_set_connect_state)(ssl.as_ptr());
                    // A server that has a certificate instead of the key is rejected: no authority
                    // is trusted.
                    (library.ssl_set_verify)(ssl.as_ptr(), SSL_VERIFY_PEER, ptr::null());
                }
                Side::Server => (library.ssl_set_accept_state)(ssl.as_ptr()),
            }
            (library.ssl_set_ciphersuites)(ssl.as_ptr(), suites.as_ptr()) == 1
        };
        let negotiation = Self {
            provider: provider.clone(),
            side,
            ssl,
            input,
            output,
            shared,
        };
        if is_set {
            Ok(negotiation)
        } else {
            Err(library.take_errors())
        }
    }

    /// Takes whole records of the peer and appends what is to be sent to `output`, after an error,
    /// too. Returns the connection's records when both sides have proven themselves.
    pub(crate) fn step(
        &mut self,
        records: &[u8],
        output: &mut Vec<u8>,
    ) -> Result<Option<Records>, Box<str>> {
        let Library {
            bio_write,
            ssl_do_handshake,
            ssl_get_error,
            err_clear,
            ..
        } = self.library();
        let ssl = self.ssl.as_ptr();
        if !records.is_empty() {
            let len = c_int::try_from(records.len()).expect("records are short");
            // SAFETY: the stream belongs to the `SSL`, which is valid; the bytes are borrowed.
            let written = unsafe { bio_write(self.input.as_ptr(), records.as_ptr().cast(), len) };
            if written != len {
                return Err(self.library().take_errors());
            }
        }
        RUNNING.set(&raw mut *self.shared);
        // SAFETY: `ssl` is valid and used by this thread alone, as `&mut self` shows. Callbacks use
        // `shared`, to which no reference of ours exists meanwhile.
        let (result, error) = unsafe {
            err_clear();
            let result = ssl_do_handshake(ssl);
            (result, ssl_get_error(ssl, result))
        };
        RUNNING.set(ptr::null_mut());
        self.take_output(output);
        match (result, error) {
            (1, _) => self.finish().map(Some),
            (_, SSL_ERROR_WANT_READ) => Ok(None),
            _ => Err(self.library().take_errors()),
        }
    }

    fn library(&self) -> Library {
        self.provider.context.library
    }

    fn take_output(&mut self, output: &mut Vec<u8>) {
        let bio_read = self.library().bio_read;
        let mut buffer = [0u8; READ_BYTES as usize];
        while output.len() < OUTPUT_MAX_BYTES {
            // SAFETY: the stream belongs to the `SSL`, which is valid; the buffer has this length.
            let len = unsafe {
                bio_read(
                    self.output.as_ptr(),
                    buffer.as_mut_ptr().cast(),
                    c_int::from(READ_BYTES),
                )
            };
            let Ok(len @ 1..) = usize::try_from(len) else {
                return;
            };
            output.extend_from_slice(&buffer[..len]);
        }
    }

    fn finish(&mut self) -> Result<Records, Box<str>> {
        // SAFETY: `ssl` is valid.
        let is_proven = unsafe { (self.library().ssl_session_reused)(self.ssl.as_ptr()) } == 1;
        if !is_proven {
            return Err("the peer did not use the pre-shared key".into());
        }
        let secrets = (
            self.shared.client_secret.take(),
            self.shared.server_secret.take(),
        );
        let (Some(client), Some(server)) = secrets else {
            return Err("OpenSSL did not report the secrets of the connection".into());
        };
        let (input, output, updates) = match self.side {
            Side::Client => (server, client, Updates::Begun),
            Side::Server => (client, server, Updates::Answered),
        };
        Ok(Records::new(self.shared.psk.suite, input, output, updates))
    }
}

impl Drop for Negotiation {
    fn drop(&mut self) {
        // SAFETY: the reference is ours, and `shared` is dropped only after this.
        unsafe { (self.library().ssl_free)(self.ssl.as_ptr()) };
    }
}

thread_local! {
    /// What the handshake shares that runs in this thread: callbacks get no other pointer of ours.
    static RUNNING: Cell<*mut Shared> = const { Cell::new(ptr::null_mut()) };
}

/// Runs `f` with what the handshake that calls back shares; `None` if none runs.
fn with_running<R>(f: impl FnOnce(&mut Shared) -> R) -> Option<R> {
    // SAFETY: the pointer was set by `Negotiation::step` of this thread, which is running and holds
    // no reference to what it points to. Callbacks do not call each other.
    unsafe { RUNNING.get().as_mut() }.map(f)
}

/// A server asks for the session of an identity.
unsafe extern "C" fn find_session(
    ssl: *mut Ssl,
    identity: *const c_uchar,
    len: usize,
    session: *mut *mut SslSession,
) -> c_int {
    let found = with_running(|shared| {
        // SAFETY: OpenSSL passes the identity's bytes, which live across this call.
        let identity = unsafe { std::slice::from_raw_parts(identity, len) };
        if identity == shared.psk.identity.as_bytes() {
            new_session(shared, ssl)
        } else {
            ptr::null_mut()
        }
    });
    // SAFETY: OpenSSL passes a place for the result, and takes the reference over.
    unsafe { session.write(found.unwrap_or(ptr::null_mut())) };
    1
}

/// A client asks for the session to offer.
unsafe extern "C" fn use_session(
    ssl: *mut Ssl,
    _hash: *const EvpMd,
    identity: *mut *const c_uchar,
    len: *mut usize,
    session: *mut *mut SslSession,
) -> c_int {
    let made = with_running(|shared| {
        let name = shared.psk.identity.as_bytes();
        // SAFETY: OpenSSL passes places for the results, copies the identity, and takes the
        // session's reference over. The identity lives as long as the handshake.
        unsafe {
            identity.write(name.as_ptr());
            len.write(name.len());
            session.write(new_session(shared, ssl));
        }
    });
    c_int::from(made.is_some())
}

/// A session whose secret is the key; null if memory has run out.
fn new_session(shared: &Shared, ssl: *mut Ssl) -> *mut SslSession {
    let library = &shared.library;
    let secret = &shared.psk.secret;
    // SAFETY: `ssl` is the connection that calls back, the secret is borrowed, and the session is
    // ours until it is returned.
    unsafe {
        let session = (library.session_new)();
        let cipher = (library.cipher_find)(ssl, shared.psk.suite.code().as_ptr());
        if session.is_null() || cipher.is_null() {
            return session;
        }
        let is_whole = (library.session_set_key)(session, secret.as_ptr(), secret.len()) == 1
            && (library.session_set_cipher)(session, cipher) == 1
            && (library.session_set_version)(session, TLS1_3_VERSION) == 1;
        if !is_whole {
            (library.session_free)(session);
            return ptr::null_mut();
        }
        session
    }
}

/// OpenSSL reports a secret, as a line of a key log: name, random number of the client, secret.
unsafe extern "C" fn log_key(_ssl: *const Ssl, line: *const c_char) {
    with_running(|shared| {
        // SAFETY: OpenSSL passes a C string that lives across this call.
        let line = unsafe { CStr::from_ptr(line) }.to_bytes();
        let mut words = line.split(|&byte| byte == b' ');
        let (name, secret) = (words.next(), words.nth(1));
        let place = match name {
            Some(b"CLIENT_TRAFFIC_SECRET_0") => &mut shared.client_secret,
            Some(b"SERVER_TRAFFIC_SECRET_0") => &mut shared.server_secret,
            _ => return,
        };
        *place = secret.and_then(from_hex);
    });
}

fn from_hex(text: &[u8]) -> Option<SecretBytes> {
    let digit = |byte: u8| Some(char::from(byte).to_digit(16)? as u8);
    let mut bytes = Zeroizing::new(Vec::with_capacity(text.len() / 2));
    for pair in text.chunks(2) {
        let &[high, low] = pair else { return None };
        bytes.push(digit(high)? << 4 | digit(low)?);
    }
    Some(bytes)
}
