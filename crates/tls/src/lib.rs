//! TLS 1.3 with pre-shared keys, as NVMe/TCP uses it.
//!
//! - [`Key`], [`Identity`] — the keys that a user configures (`NVMeTLSkey-1:`), the names that
//!   hosts send for them, and what both sides derive;
//! - [`Entry`] — the first bytes of a connection that was accepted: TLS, plain, or rejected;
//! - [`ClientHandshake`] — the host's side;
//! - [`Records`] — the records of a connection whose handshake is done, both ways.
//!
//! The path of a byte: the socket's owner gives what it received to an [`Entry`], and later to
//! [`Records`], which decrypt it in place for the protocol's session. What the session sends is
//! copied once into records, encrypted there and passed to the socket.
//!
//! What this crate must not know: sockets, clocks, threads, NVMe's messages.
//!
//! # Why the unsafe code here is sound
//!
//! All of it is in `openssl`, which calls functions of OpenSSL that were loaded at run time. Its
//! types follow the headers of OpenSSL 3, whose interface is stable within that version. An `SSL`
//! is used by one thread at a time, since its owner is borrowed mutably; an `SSL_CTX` is only
//! shared where OpenSSL counts references atomically. Callbacks find what they use by a pointer
//! that is set in their thread while its handshake runs, and only then.

mod client_hello;
mod entry;
mod identity;
mod key;
mod openssl;
mod record;
mod suite;

pub use entry::{
    ClientHandshake, Entry, EntryError, KeySource, Policy, Progress, Proven, Secured, Server,
    UnknownPolicy,
};
pub use identity::{Derivation, Identity, IdentityFault, Source, Version};
pub use key::{Key, KeyError};
pub use openssl::{Provider, ProviderError};
pub use record::{Output, RecordError, Records, Sealed};
pub use suite::Suite;

/// Parses a client's first record, for fuzz targets. Returns how many identities it offers.
#[doc(hidden)]
pub fn offered(record: &[u8]) -> Option<usize> {
    client_hello::ClientHello::parse(record)
        .ok()
        .map(|hello| hello.offers().count())
}
