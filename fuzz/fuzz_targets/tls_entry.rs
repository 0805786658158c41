//! The first bytes of a connection to a portal with TLS, by a peer that has no key: the entry, and
//! the parser of the first record.

#![no_main]

use std::sync::{Arc, LazyLock};

use tls::{Entry, Identity, Key, KeySource, Policy, Progress, Provider, Server};

/// Every host has this key.
struct OneKey(Arc<Key>);

impl KeySource for OneKey {
    fn keys(&self, _: &Identity) -> Vec<Arc<Key>> {
        vec![Arc::clone(&self.0)]
    }
}

static SERVER: LazyLock<Server> = LazyLock::new(|| Server {
    provider: Provider::load().expect("OpenSSL 3 is installed where tests run"),
    keys: Arc::new(OneKey(Arc::new(Key::new(&[7; 32], None).expect("a key")))),
});

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    tls::offered(input);
    let mut entry = Entry::new(Policy::Required, SERVER.clone());
    let (mut rest, mut output) = (input, Vec::new());
    while !rest.is_empty() {
        let (head, tail) = rest.split_at(entry.wanted_bytes().min(rest.len()));
        rest = tail;
        match entry.handle_bytes(head, &mut output) {
            Ok(Progress::Pending) => {}
            Ok(other) => panic!("nobody has proven the key: {other:?}"),
            Err(_) => break,
        }
    }
});
