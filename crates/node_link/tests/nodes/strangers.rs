//! Connections of those that are no nodes.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use block::{BlockSize, Blocks, Extent, Lba};
use node_link::node_name;
use replica::wire::{Command, CommandKind, Hello, Packet};
use replica::{Contents, LocalTime};
use rustix::time::{ClockId, clock_gettime};
use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::cluster::{CLUSTER, Cluster, PATIENCE, VOLUME};
use crate::security::Authority;

#[test]
fn bytes_that_are_no_greeting_end_a_connection() {
    let cluster = Cluster::start();
    let cases = [
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        vec![0xFF; 4096],
        hello(CLUSTER + 1, 1, 0),
        hello(CLUSTER, 1, 2),
        hello(CLUSTER, 9, 0),
    ];
    for bytes in cases {
        let mut stream = connect(&cluster);
        stream.write_all(&bytes).expect("sent");
        await_end(&mut stream);
    }
    cluster.await_copies(0, 3);
}

#[test]
fn without_certificates_anyone_can_write_as_a_node() {
    let cluster = Cluster::start();
    cluster.await_copies(0, 3);
    let mut stream = connect(&cluster);
    stream.write_all(&forged_write()).expect("sent");
    let since = Instant::now();
    while first_block(&cluster) != [9; 4096] {
        assert!(since.elapsed() < PATIENCE, "it was not written");
    }
}

#[test]
fn strangers_without_the_certificate_of_the_node_that_they_claim_to_be_reach_nothing() {
    let (authority, other) = (Authority::new(), Authority::new());
    let security = (0..3).map(|node| authority.credentials(node)).collect();
    let cluster = Cluster::with_security(security, None);
    cluster.await_copies(0, 3);
    let mut plain = connect(&cluster);
    plain.write_all(&forged_write()).expect("sent");
    await_end(&mut plain);
    for shown in [None, Some((&other, 1)), Some((&authority, 2))] {
        let name = ServerName::try_from(node_name(0)).expect("a name");
        let config = Arc::new(client(&authority, shown));
        let session = ClientConnection::new(config, name).expect("a client");
        let mut stream = StreamOwned::new(session, connect(&cluster));
        // The node may have rejected the certificate already.
        let _ = stream.write_all(&forged_write());
        await_end(&mut stream);
    }
    assert_eq!(first_block(&cluster), [0; 4096]);
    assert_eq!(cluster.status(0).in_sync.len(), 3);
}

fn connect(cluster: &Cluster) -> TcpStream {
    let node = cluster.machines[0].node.as_ref().expect("it runs");
    let stream = TcpStream::connect(node.listening()).expect("connected");
    stream.set_read_timeout(Some(PATIENCE)).expect("set");
    stream
}

/// Reads until the connection has ended.
fn await_end(stream: &mut impl Read) {
    let mut buffer = [0; 512];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) => {
                let waits = [ErrorKind::WouldBlock, ErrorKind::TimedOut];
                assert!(!waits.contains(&error.kind()), "the connection goes on");
                return;
            }
        }
    }
}

fn hello(cluster: u64, from: u32, to: u32) -> Vec<u8> {
    let mut frame = Vec::new();
    let incarnation = 1;
    Packet::Hello(Hello {
        cluster,
        from,
        to,
        incarnation,
    })
    .encode(&mut frame);
    frame
}

/// What node 1 would send to the primary for a host that writes the first block.
fn forged_write() -> Vec<u8> {
    let time = clock_gettime(ClockId::Boottime);
    let secs = u64::try_from(time.tv_sec).expect("after the start of the machine");
    let ns = u32::try_from(time.tv_nsec).expect("less than a second");
    let contents = Contents::of_bytes(BlockSize::B4096, Arc::from([9; 4096]));
    let command = Command {
        id: 1,
        volume: VOLUME.0,
        heard_at: LocalTime(Duration::new(secs, ns)),
        block_size: BlockSize::B4096,
        extent: Extent::new(Lba(0), Blocks(1)),
        kind: CommandKind::Write(contents.expect("a block")),
    };
    let mut frames = hello(CLUSTER, 1, 0);
    Packet::Command(command).encode(&mut frames);
    frames
}

fn first_block(cluster: &Cluster) -> Vec<u8> {
    let held = cluster.host(0).read(0, 1, PATIENCE);
    held.expect("the primary serves")
}

/// A client that trusts `authority`, and shows a certificate of that issuer for that node.
fn client(authority: &Authority, shown: Option<(&Authority, u32)>) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    let issuer = authority.certificate.der().clone();
    roots.add(issuer).expect("an issuer");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("the provider has it")
        .with_root_certificates(roots);
    let Some((issuer, node)) = shown else {
        return builder.with_no_client_auth();
    };
    let (own, key) = issuer.sign(node);
    let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
    let config = builder.with_client_auth_cert(vec![own.der().clone()], key);
    config.expect("they fit")
}
