use super::*;
use crate::record::{Output, RecordError};
use crate::suite::Suite;

const HOST: &str = "nqn.2014-08.org.example:host";
const SUBSYSTEM: &str = "nqn.2014-08.org.example:subsystem";

/// The keys of one host.
struct OneHost(Vec<Arc<Key>>);

impl KeySource for OneHost {
    fn keys(&self, identity: &Identity) -> Vec<Arc<Key>> {
        if identity.host_nqn == HOST {
            self.0.clone()
        } else {
            Vec::new()
        }
    }
}

fn key(byte: u8, suite: Suite) -> Key {
    Key::new(&vec![byte; suite.hash_bytes()], Some(suite)).expect("a key")
}

fn provider() -> Provider {
    Provider::load().expect("OpenSSL 3 is installed where tests run")
}

fn server(keys: &[&Key]) -> Server {
    let keys = keys.iter().map(|&key| Arc::new(key.clone())).collect();
    Server {
        provider: provider(),
        keys: Arc::new(OneHost(keys)),
    }
}

fn client(key: &Key, version: Version, derivation: Derivation) -> (ClientHandshake, Vec<u8>) {
    client_named(key, version, derivation, HOST)
}

fn client_named(
    key: &Key,
    version: Version,
    derivation: Derivation,
    host: &str,
) -> (ClientHandshake, Vec<u8>) {
    let mut sent = Vec::new();
    let names = (host, SUBSYSTEM);
    let made = ClientHandshake::new(&provider(), key, version, derivation, names, &mut sent);
    (made.expect("a client"), sent)
}

/// Gives `bytes` to `take` as it wants them.
fn feed(bytes: &mut Vec<u8>, wanted: usize) -> Vec<u8> {
    let len = bytes.len().min(wanted);
    bytes.drain(..len).collect()
}

/// Runs a handshake to its end.
fn shake(
    mut entry: Entry,
    (mut client, mut to_server): (ClientHandshake, Vec<u8>),
) -> Result<(Box<Secured>, Records), EntryError> {
    let (mut to_client, mut secured, mut records) = (Vec::new(), None, None);
    for _ in 0..1000 {
        if let (Some(_), Some(_)) = (&secured, &records) {
            break;
        }
        let input = feed(&mut to_server, entry.wanted_bytes());
        if !input.is_empty() {
            match entry.handle_bytes(&input, &mut to_client)? {
                Progress::Secured(done) => secured = Some(done),
                Progress::Pending => {}
                Progress::Plain => panic!("it began with a record"),
            }
        }
        let input = feed(&mut to_client, client.wanted_bytes());
        if !input.is_empty() {
            records = client.handle_bytes(&input, &mut to_server)?.or(records);
        }
    }
    assert!(to_client.is_empty() && to_server.is_empty());
    Ok((secured.expect("done"), records.expect("done")))
}

/// Everything that `from` sends reaches `to`, in chunks of this length.
fn carry(from: &mut Records, to: &mut Records, bytes: &[u8], chunk: usize) -> Vec<u8> {
    let mut output = Output::default();
    let mut arrived = Vec::new();
    for part in bytes.chunks(Output::CONTENTS_MAX_BYTES) {
        output.push(part);
        let mut sealed = from.seal(&mut output).expect("sealed");
        assert!(sealed.unsent().len() <= Output::SEALED_MAX_BYTES);
        while !sealed.is_empty() {
            let len = sealed.unsent().len().min(chunk);
            let part = &mut sealed.unsent()[..len].to_vec();
            sealed.consume(len);
            let taken = to.handle_bytes(part, |bytes| {
                arrived.extend_from_slice(bytes);
                Ok::<_, RecordError>(())
            });
            taken.expect("opened");
        }
        output.reuse(sealed);
    }
    arrived
}

#[test]
fn every_version_derivation_and_suite_connects_and_carries_bytes() {
    let bytes: Vec<u8> = (0..200_000u32).map(|at| at as u8).collect();
    for suite in Suite::ALL {
        for version in [Version::Zero, Version::One] {
            for derivation in Derivation::ALL {
                let key = key(7, suite);
                let entry = Entry::new(Policy::Required, server(&[&key]));
                let shaken = shake(entry, client(&key, version, derivation));
                let (mut secured, mut records) = shaken.expect("both have the key");
                assert_eq!(secured.proven.identity.host_nqn, HOST);
                assert_eq!(secured.proven.identity.subsystem_nqn, SUBSYSTEM);
                assert_eq!((secured.records.suite(), records.suite()), (suite, suite));
                for chunk in [1, 5, 16_406, 70_000] {
                    let there = carry(&mut records, &mut secured.records, &bytes, chunk);
                    assert!(there == bytes);
                    let back = carry(&mut secured.records, &mut records, &bytes[..9], chunk);
                    assert!(back == bytes[..9]);
                }
            }
        }
    }
}

#[test]
fn either_of_two_keys_connects_while_a_key_is_changed() {
    let keys = [1, 2].map(|byte| key(byte, Suite::Aes256GcmSha384));
    for used in &keys {
        for version in [Version::Zero, Version::One] {
            let entry = Entry::new(Policy::Allowed, server(&[&keys[0], &keys[1]]));
            let handshake = client(used, version, Derivation::Specified);
            shake(entry, handshake).expect("one of the keys");
        }
    }
}

#[test]
fn hosts_without_the_right_key_never_reach_openssl() {
    let suite = Suite::Aes128GcmSha256;
    let ours = key(1, suite);
    let theirs = key(2, suite);
    for version in [Version::Zero, Version::One] {
        let entry = Entry::new(Policy::Required, server(&[&ours]));
        let error = shake(entry, client(&theirs, version, Derivation::Specified));
        let Err(EntryError::WrongKey { host }) = error else {
            panic!("{error:?}");
        };
        assert_eq!(&*host, HOST);
    }
    let stranger = client_named(&ours, Version::Zero, Derivation::Specified, "nqn.stranger");
    let error = shake(Entry::new(Policy::Required, server(&[&ours])), stranger);
    assert!(
        matches!(error, Err(EntryError::UnknownIdentity { .. })),
        "{error:?}"
    );
    // A key for the other suite.
    let long = key(1, Suite::Aes256GcmSha384);
    let entry = Entry::new(Policy::Required, server(&[&ours]));
    let error = shake(entry, client(&long, Version::Zero, Derivation::Specified));
    assert!(
        matches!(error, Err(EntryError::UnknownIdentity { .. })),
        "{error:?}"
    );
}

#[test]
fn a_client_rejects_a_server_that_has_not_its_key() {
    let suite = Suite::Aes128GcmSha256;
    let (ours, theirs) = (key(1, suite), key(2, suite));
    let (mut client, mut sent) = client(&ours, Version::Zero, Derivation::Specified);
    let psk = theirs.psk(Version::Zero, Derivation::Specified, HOST, SUBSYSTEM);
    let mut server = Negotiation::new(&provider(), Side::Server, psk).expect("a server");
    let mut reply = Vec::new();
    assert!(server.step(&std::mem::take(&mut sent), &mut reply).is_err());
    let mut ended = false;
    while !reply.is_empty() {
        let input = feed(&mut reply, client.wanted_bytes());
        ended |= client.handle_bytes(&input, &mut sent).is_err();
    }
    assert!(ended);
}

#[test]
fn the_first_byte_decides_where_tls_is_allowed() {
    let suite = Suite::Aes128GcmSha256;
    let server = server(&[&key(1, suite)]);
    let mut sent = Vec::new();
    let plain = Entry::new(Policy::Allowed, server.clone()).handle_bytes(&[0, 0, 128], &mut sent);
    assert!(matches!(plain, Ok(Progress::Plain)));
    let plain = Entry::off().handle_bytes(&[0], &mut sent);
    assert!(matches!(plain, Ok(Progress::Plain)));
    let error = Entry::new(Policy::Required, server).handle_bytes(&[0], &mut sent);
    assert!(matches!(error, Err(EntryError::Required)));
    let error = Entry::off().handle_bytes(&[HANDSHAKE], &mut sent);
    assert!(matches!(error, Err(EntryError::NotOffered)));
    assert!(sent.is_empty());
}

#[test]
fn invalid_first_messages_are_rejected_and_take_no_memory() {
    let suite = Suite::Aes128GcmSha256;
    let ours = key(1, suite);
    let server = server(&[&ours]);
    let (_, hello) = client(&ours, Version::One, Derivation::Specified);
    let mut sent = Vec::new();
    // Each byte changed, and each length cut: none is accepted, none panics.
    for at in 0..hello.len() {
        let mut changed = hello.clone();
        changed[at] ^= 0x55;
        let mut entry = Entry::new(Policy::Required, server.clone());
        while !changed.is_empty() {
            let input = feed(&mut changed, entry.wanted_bytes());
            match entry.handle_bytes(&input, &mut sent) {
                Ok(Progress::Pending) => assert!(entry.negotiation.is_none() || at < 3),
                Ok(other) => panic!("{other:?}"),
                Err(_) => break,
            }
        }
        assert!(ClientHello::parse(&hello[..at]).is_err());
    }
    for header in [[HANDSHAKE, 3, 1, 0, 0], [HANDSHAKE, 3, 1, 255, 255]] {
        let error = Entry::new(Policy::Required, server.clone()).handle_bytes(&header, &mut sent);
        assert!(matches!(error, Err(EntryError::Record)));
    }
}

#[test]
fn the_corpus_of_the_fuzz_target_passes() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/tls_entry");
    let server = server(&[&key(7, Suite::Aes128GcmSha256)]);
    let offered = |name: &str| {
        let input = std::fs::read(format!("{folder}/{name}")).expect("it is in the tree");
        crate::offered(&input)
    };
    let names = std::fs::read_dir(folder).expect("it is in the tree");
    for name in names {
        let name = name.expect("readable").file_name();
        let expected = (name == "genuine").then_some(1);
        assert_eq!(offered(&name.to_string_lossy()), expected, "{name:?}");
        let mut input = std::fs::read(format!("{folder}/{}", name.to_string_lossy()))
            .expect("it is in the tree");
        let (mut entry, mut output) = (Entry::new(Policy::Required, server.clone()), Vec::new());
        while !input.is_empty() {
            let head = feed(&mut input, entry.wanted_bytes());
            match entry.handle_bytes(&head, &mut output) {
                Ok(progress) => assert!(matches!(progress, Progress::Pending), "{name:?}"),
                Err(_) => break,
            }
        }
    }
}

#[test]
fn a_replayed_first_message_leads_nowhere() {
    let suite = Suite::Aes128GcmSha256;
    let ours = key(1, suite);
    let server = server(&[&ours]);
    let (mut genuine, hello) = client(&ours, Version::One, Derivation::Specified);
    let reply_to = |hello: &[u8]| {
        let (mut entry, mut reply, mut sent) = (
            Entry::new(Policy::Required, server.clone()),
            Vec::new(),
            hello.to_vec(),
        );
        while !sent.is_empty() {
            let input = feed(&mut sent, entry.wanted_bytes());
            entry
                .handle_bytes(&input, &mut reply)
                .expect("the key is right");
        }
        (entry, reply)
    };
    let (_, mut reply) = reply_to(&hello);
    let (mut replayed, _) = reply_to(&hello);
    let mut finished = Vec::new();
    while !reply.is_empty() {
        let input = feed(&mut reply, genuine.wanted_bytes());
        genuine
            .handle_bytes(&input, &mut finished)
            .expect("genuine");
    }
    // The answer to another handshake does not end this one.
    let mut ended = false;
    while !finished.is_empty() && !ended {
        let input = feed(&mut finished, replayed.wanted_bytes());
        ended = replayed.handle_bytes(&input, &mut Vec::new()).is_err();
    }
    assert!(ended);
}
