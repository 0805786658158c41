//! NVMe/TCP portals with TLS: our own host at our own portals, and OpenSSL's client.

mod fixture;
#[path = "fixture/raw_host.rs"]
mod raw_host;
#[path = "fixture/sockets.rs"]
mod sockets;

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use block::testing::{Turn, assert_not_delayed, timed};
use block::{Access, Blocks, Extent, Lba};
use initiator::{
    CommandError, Device, DeviceOptions, Operation, Queue, Request, Slot, Url, WaitStrategy,
};
use nvme::auth::{AuthStep, Concatenation, HostAuth};
use raw_host::{AUTHENTICATION_REQUIRED, Answer, Raw};
use rustix::net::{AddressFamily, SocketType};
use server::{
    AllowedHost, ByteSize, DhChapDefinition, DhChapHash, DhChapSecret, DhGroupPolicy,
    HostDefinition, HostPolicy, PortalDefinition, Server, ServerError, TlsKey, TlsKeys, TlsPolicy,
    TlsSuite, ToldBy, Transport, VolumeSpec,
};
use sockets::is_open;

const MIB: u64 = 1 << 20;
const PATIENCE: Duration = Duration::from_secs(20);
/// The names and the key of libnvme's test/psk.c, and the key that libnvme derives of them.
const NQN: &str = "nqn.psk-test-subsys";
const HOST: &str = "nqn.psk-test-host";
const KEY: &str = "NVMeTLSkey-1:01:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ:";
const PSK: &str = "05c6503551ad136e6ee32e6eeb3f6d500b69701d84ec71e328f65c7f51566f68";

struct Fixture {
    server: Server,
    portal: PortalDefinition,
    files: PathBuf,
    _turn: Turn,
}

impl Fixture {
    /// A server with a volume that one host may use, which has a key.
    fn new(tls: TlsPolicy, key: TlsKey) -> Self {
        Self::at(Turn::shared(), tls, key)
    }

    /// The same for a test that bounds a delay.
    fn alone(tls: TlsPolicy, key: TlsKey) -> Self {
        Self::at(Turn::alone(), tls, key)
    }

    fn at(turn: Turn, tls: TlsPolicy, key: TlsKey) -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        // Room for the half-open connections of two addresses, which hold a quarter of it at most.
        let config = fixture::config(1, 1024 * MIB);
        let server = fixture::start(config, "rd0", &VolumeSpec::thin(ByteSize(16 * MIB)));
        server.create_host(host(key, None)).expect("a host");
        let listed = HostPolicy::Listed(vec![AllowedHost {
            host: HOST.parse().expect("a name"),
            access: Access::ReadWrite,
            luns: None,
        }]);
        fixture::offer(&server, NQN, "rd0", listed);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let portal = PortalDefinition {
            tls,
            ..fixture::portal(Transport::NvmeTcp, ([127, 0, 0, 1], 0))
        };
        let files = std::env::temp_dir().join(format!("tls-{}-{number}", std::process::id()));
        fs::create_dir_all(&files).expect("a folder");
        Self {
            portal: server.add_portal(portal).expect("a free port"),
            server,
            files,
            _turn: turn,
        }
    }

    fn address(&self) -> SocketAddr {
        self.portal.address
    }

    /// Attaches with a key, or plain, and reads what it has written.
    fn try_with(&self, key: Option<&TlsKey>, host: &str) -> Result<(), String> {
        let (_device, mut queue) = self.attach(key, host)?;
        carry(&mut queue).map_err(|error| format!("{error:?}"))
    }

    /// From now on the host has to prove this.
    fn prove(&self, secret: &DhChapSecret, group: DhGroupPolicy) {
        let mut host = host(key(1, TlsSuite::Aes128GcmSha256), None);
        host.dhchap = Some(Arc::new(DhChapDefinition {
            secret: secret.clone(),
            other_secret: None,
            controller_secret: None,
            hash: None,
            group,
        }));
        self.server.change_host(host).expect("changes");
    }

    /// Attaches by TLS with a key that the authentication generates.
    fn attach_generating(
        &self,
        secret: &DhChapSecret,
        hash: DhChapHash,
    ) -> Result<(Device, Queue), String> {
        let path = self.files.join("secret");
        fs::write(&path, format!("{}\n", *secret.reveal())).expect("writes");
        let path = path.display();
        let options = format!("tls=generated&dhchap-hash={hash}&dhchap-secret-file={path}");
        self.attach_with(HOST, &format!("&{options}"))
    }

    fn attach(&self, key: Option<&TlsKey>, host: &str) -> Result<(Device, Queue), String> {
        let option = key.map_or(String::new(), |key| self.key_option(key));
        self.attach_with(host, &option)
    }

    /// The option of a URL that names a file with the key.
    fn key_option(&self, key: &TlsKey) -> String {
        let path = self.files.join("key");
        fs::write(&path, format!("{}\n", *key.reveal())).expect("writes");
        format!("&tls-psk-file={}", path.display())
    }

    fn attach_with(&self, host: &str, option: &str) -> Result<(Device, Queue), String> {
        let address = self.address();
        let url: Url = format!("nvme+tcp://{address}/{NQN}?hostnqn={host}{option}")
            .parse()
            .expect("a URL");
        let connected = Device::connect(&url, &options());
        let mut device = connected.map_err(|error| error.to_string())?;
        let queue = device.take_queues().remove(0);
        Ok((device, queue))
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.files));
    }
}

fn options() -> DeviceOptions {
    DeviceOptions {
        buffer_bytes: MIB as usize,
        ..DeviceOptions::default()
    }
}

fn key(byte: u8, suite: TlsSuite) -> TlsKey {
    TlsKey::new(&vec![byte; suite.hash_bytes()], Some(suite)).expect("a key")
}

fn host(key: TlsKey, other: Option<TlsKey>) -> HostDefinition {
    HostDefinition {
        name: HOST.parse().expect("a name"),
        told_by: ToldBy::Name,
        addresses: Vec::new(),
        chap: None,
        dhchap: None,
        tls: Some(TlsKeys {
            key: Arc::new(key),
            other: other.map(Arc::new),
        }),
    }
}

/// Writes and reads commands of several lengths, and compares.
fn carry(queue: &mut Queue) -> Result<(), CommandError> {
    for (turn, blocks) in [1u32, 8, 33, 1024].into_iter().enumerate() {
        let extent = Extent::new(Lba(7), Blocks(blocks.into()));
        let len = blocks as usize * 512;
        let byte_at = |at: usize| (at * 31 + at / 4096 + turn) as u8;
        for (at, byte) in queue.buffer_mut(Slot(0))[..len].iter_mut().enumerate() {
            *byte = byte_at(at);
        }
        execute(queue, Operation::Write, extent)?;
        queue.buffer_mut(Slot(0))[..len].fill(0);
        execute(queue, Operation::Read, extent)?;
        let read = &queue.buffer_mut(Slot(0))[..len];
        assert!(
            (0..len).all(|at| read[at] == byte_at(at)),
            "{blocks} blocks"
        );
    }
    Ok(())
}

fn execute(queue: &mut Queue, operation: Operation, extent: Extent) -> Result<(), CommandError> {
    let mut done = Vec::new();
    let request = Request {
        slot: Slot(0),
        operation,
        extent,
    };
    queue.submit(request).expect("the slot is free");
    queue
        .wait(WaitStrategy::Sleep, PATIENCE, &mut done)
        .expect("the queue lives");
    done[0].result
}

#[test]
fn both_suites_carry_data_where_tls_is_required_or_allowed() {
    for policy in [TlsPolicy::Required, TlsPolicy::Allowed] {
        for suite in TlsSuite::ALL {
            let fixture = Fixture::new(policy, key(1, suite));
            let used = key(1, suite);
            assert_eq!(fixture.try_with(Some(&used), HOST), Ok(()), "{suite}");
        }
    }
}

/// Names go in the clear, and some targets know only those of version 0.
#[test]
fn our_host_sends_the_identity_that_its_url_asks_for() {
    let used = key(1, TlsSuite::Aes128GcmSha256);
    let fixture = Fixture::new(TlsPolicy::Required, key(1, TlsSuite::Aes128GcmSha256));
    for (option, version) in [("", 1), ("&tls-identity=0", 0), ("&tls-identity=1", 1)] {
        let option = format!("{}{option}", fixture.key_option(&used));
        let (_device, mut queue) = fixture.attach_with(HOST, &option).expect("attaches");
        assert_eq!(carry(&mut queue), Ok(()), "{option}");

        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let address = listener.local_addr().expect("bound");
        let url = format!("nvme+tcp://{address}/{NQN}?hostnqn={HOST}{option}");
        let url: Url = url.parse().expect("a URL");
        let host = thread::spawn(move || Device::connect(&url, &options()).map(drop));
        let (mut stream, _) = listener.accept().expect("connected");
        let mut hello = [0; 4096];
        let len = stream.read(&mut hello).expect("a first message");
        drop((stream, listener));
        let name = format!("NVMe{version}R01 {HOST} {NQN}");
        let mut windows = hello[..len].windows(name.len());
        assert!(windows.any(|part| part == name.as_bytes()), "{option}");
        host.join().expect("joins").expect_err("nobody answered");
    }
}

#[test]
fn plain_hosts_are_served_where_tls_is_allowed_only() {
    let ours = || key(1, TlsSuite::Aes128GcmSha256);
    let fixture = Fixture::new(TlsPolicy::Allowed, ours());
    assert_eq!(fixture.try_with(None, HOST), Ok(()));
    let fixture = Fixture::new(TlsPolicy::Required, ours());
    fixture.try_with(None, HOST).expect_err("refused");
    let fixture = Fixture::new(TlsPolicy::Off, ours());
    fixture.try_with(Some(&ours()), HOST).expect_err("refused");
    assert_eq!(fixture.try_with(None, HOST), Ok(()));
}

#[test]
fn wrong_keys_and_strangers_are_refused_and_others_go_on() {
    let suite = TlsSuite::Aes256GcmSha384;
    let fixture = Fixture::new(TlsPolicy::Required, key(1, suite));
    let (_device, mut queue) = fixture
        .attach(Some(&key(1, suite)), HOST)
        .expect("attaches");
    for (key, host) in [
        (key(2, suite), HOST),
        (key(1, TlsSuite::Aes128GcmSha256), HOST),
        (key(1, suite), "nqn.2025-01.io.ramport:stranger"),
    ] {
        let error = fixture.try_with(Some(&key), host).expect_err("refused");
        assert!(error.contains("handshake failed"), "{error}");
    }
    assert_eq!(carry(&mut queue), Ok(()));
}

#[test]
fn either_key_is_accepted_while_it_is_changed() {
    let suite = TlsSuite::Aes128GcmSha256;
    let fixture = Fixture::new(TlsPolicy::Required, key(1, suite));
    let both = host(key(1, suite), Some(key(2, suite)));
    fixture.server.change_host(both).expect("changes");
    for byte in [1, 2] {
        assert_eq!(fixture.try_with(Some(&key(byte, suite)), HOST), Ok(()));
    }
    let new = host(key(2, suite), None);
    fixture.server.change_host(new).expect("changes");
    let old = fixture.try_with(Some(&key(1, suite)), HOST);
    old.expect_err("no longer valid");
    assert_eq!(fixture.try_with(Some(&key(2, suite)), HOST), Ok(()));
}

/// Secure channel concatenation: the host has a secret, and no key.
#[test]
fn our_host_uses_tls_with_a_key_that_its_authentication_generates() {
    for (policy, is_served) in [
        (TlsPolicy::Allowed, true),
        (TlsPolicy::Off, false),
        (TlsPolicy::Required, false),
    ] {
        let fixture = Fixture::new(policy, key(1, TlsSuite::Aes128GcmSha256));
        for (hash, byte) in [(DhChapHash::Sha256, 7), (DhChapHash::Sha384, 8)] {
            let secret = DhChapSecret::new(&[byte; 32], None).expect("a secret");
            fixture.prove(&secret, DhGroupPolicy::Any);
            let attached = fixture.attach_generating(&secret, hash);
            assert_eq!(attached.is_ok(), is_served, "{policy} {:?}", attached.err());
            let Ok((_device, mut queue)) = attached else {
                continue;
            };
            assert_eq!(carry(&mut queue), Ok(()));
            // Another secret generates nothing, and no group no key.
            let other = DhChapSecret::new(&[9; 32], None).expect("a secret");
            fixture
                .attach_generating(&other, hash)
                .expect_err("another secret");
            fixture.prove(&secret, DhGroupPolicy::NoGroup);
            fixture
                .attach_generating(&secret, hash)
                .expect_err("no group");
            assert_eq!(carry(&mut queue), Ok(()));
        }
    }
}

/// The host authenticates again each second, with REPLACETLSPSK.
#[test]
fn our_host_replaces_its_generated_key_while_it_is_connected() {
    let fixture = Fixture::new(TlsPolicy::Allowed, key(1, TlsSuite::Aes128GcmSha256));
    let secret = DhChapSecret::new(&[7; 32], None).expect("a secret");
    fixture.prove(&secret, DhGroupPolicy::Any);
    let path = fixture.files.join("secret");
    fs::write(&path, format!("{}\n", *secret.reveal())).expect("writes");
    let path = path.display();
    let option = format!("&tls=generated&dhchap-interval=1&dhchap-secret-file={path}");
    let (_device, mut queue) = fixture.attach_with(HOST, &option).expect("attaches");
    let sessions = || fixture.server.sessions();
    let first: Vec<_> = sessions().iter().map(|session| session.id).collect();
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(4) {
        assert_eq!(carry(&mut queue), Ok(()));
        thread::sleep(Duration::from_millis(50));
    }
    let now: Vec<_> = sessions().iter().map(|session| session.id).collect();
    assert_eq!(now, first);
    // A secret that is not the host's any more replaces nothing, and ends what was admitted before.
    let other = DhChapSecret::new(&[9; 32], None).expect("a secret");
    fixture.prove(&other, DhGroupPolicy::Any);
    let changed = Instant::now();
    while sessions().iter().any(|session| first.contains(&session.id)) {
        assert!(changed.elapsed() < PATIENCE, "it is not asked again");
        thread::sleep(Duration::from_millis(50));
    }
}

/// A connection by TLS with this key, after the handshake; `None` if the server does not accept the
/// key.
fn secured(address: SocketAddr, key: &TlsKey) -> Option<(TcpStream, tls::Records)> {
    let provider = tls::Provider::load().expect("OpenSSL 3 is installed where tests run");
    let mut output = Vec::new();
    let mut handshake = tls::ClientHandshake::new(
        &provider,
        key,
        tls::Version::One,
        tls::Derivation::Specified,
        (HOST, NQN),
        &mut output,
    )
    .expect("begins");
    let mut stream = TcpStream::connect(address).expect("connects");
    stream.set_read_timeout(Some(PATIENCE)).expect("set");
    loop {
        stream.write_all(&output).ok()?;
        output.clear();
        let mut input = vec![0; handshake.wanted_bytes()];
        stream.read_exact(&mut input).ok()?;
        if let Some(records) = handshake.handle_bytes(&input, &mut output).ok()? {
            stream.write_all(&output).ok()?;
            return Some((stream, records));
        }
    }
}

/// An admin queue by TLS with this key: its status and double word 0.
fn connect_secured(address: SocketAddr, key: &TlsKey) -> Option<(Raw, (u16, u32))> {
    let (stream, records) = secured(address, key)?;
    let mut raw = Raw::initialize(stream, Some(records));
    let connected = raw.connect(NQN, HOST);
    Some((raw, connected))
}

/// Status of Connect: Connect Invalid Host.
const INVALID_HOST: u16 = 0x184;

#[test]
fn a_key_that_is_removed_after_the_handshake_admits_no_one() {
    let suite = TlsSuite::Aes128GcmSha256;
    let fixture = Fixture::new(TlsPolicy::Required, key(1, suite));
    let (old, new) = (key(1, suite), key(2, suite));
    for (now, is_admitted) in [
        (host(new.clone(), Some(old.clone())), true),
        (host(new.clone(), None), false),
    ] {
        let before = host(old.clone(), None);
        fixture.server.change_host(before).expect("changes");
        let (stream, records) = secured(fixture.address(), &old).expect("accepted");
        let mut raw = Raw::initialize(stream, Some(records));
        fixture.server.change_host(now).expect("changes");
        let (status, _) = raw.connect(NQN, HOST);
        let code = status & 0x7FF;
        assert_eq!(code, if is_admitted { 0 } else { INVALID_HOST });
    }
}

/// The host's side of an authentication that generates a key.
fn generating(secret: &DhChapSecret, concatenation: Concatenation) -> HostAuth {
    raw_host::prover(secret.clone(), (NQN, HOST), concatenation)
}

fn generated(auth: &HostAuth) -> TlsKey {
    let key = auth.generated_key().expect("generated");
    TlsKey::generated(key.as_bytes()).expect("a key")
}

#[test]
fn a_host_replaces_its_generated_key_within_tls() {
    let fixture = Fixture::new(TlsPolicy::Allowed, key(1, TlsSuite::Aes128GcmSha256));
    let secret = DhChapSecret::new(&[7; 32], None).expect("a secret");
    fixture.prove(&secret, DhGroupPolicy::Any);
    let address = fixture.address();
    let mut plain = Raw::plain(address);
    let (status, dw0) = plain.connect(NQN, HOST);
    assert_eq!(
        (status, dw0 & AUTHENTICATION_REQUIRED),
        (0, AUTHENTICATION_REQUIRED)
    );
    let mut auth = generating(&secret, Concatenation::Offered);
    assert_eq!(plain.authenticate(&mut auth), AuthStep::Done);
    let first = generated(&auth);
    drop(plain);

    let (mut raw, (status, dw0)) = connect_secured(address, &first).expect("accepted");
    // The key has proven who it is.
    assert_eq!((status, dw0 & AUTHENTICATION_REQUIRED), (0, 0));
    let mut auth = generating(&secret, Concatenation::Replacing);
    assert_eq!(raw.authenticate(&mut auth), AuthStep::Done);
    let second = generated(&auth);
    assert!(first != second);
    assert!(secured(address, &first).is_none(), "it was replaced");
    let (_io, (status, _)) = connect_secured(address, &second).expect("accepted");
    assert_eq!(status, 0);
    // Another key is not added within TLS, and a failure ends the connection and no key.
    let mut auth = generating(&secret, Concatenation::Offered);
    assert!(matches!(raw.authenticate(&mut auth), AuthStep::Failed(_)));
    assert_eq!(raw.receive(64), Answer::Ended);
    assert!(connect_secured(address, &second).is_some());
}

#[test]
fn a_key_that_a_user_defined_is_not_replaced_by_its_host() {
    let suite = TlsSuite::Aes128GcmSha256;
    let fixture = Fixture::new(TlsPolicy::Allowed, key(1, suite));
    let secret = DhChapSecret::new(&[7; 32], None).expect("a secret");
    fixture.prove(&secret, DhGroupPolicy::Any);
    for (concatenation, is_accepted) in [
        (Concatenation::Refused, true),
        (Concatenation::Replacing, false),
    ] {
        let (mut raw, (status, dw0)) =
            connect_secured(fixture.address(), &key(1, suite)).expect("accepted");
        assert_eq!(
            (status, dw0 & AUTHENTICATION_REQUIRED),
            (0, AUTHENTICATION_REQUIRED)
        );
        let end = raw.authenticate(&mut generating(&secret, concatenation));
        assert_eq!(end == AuthStep::Done, is_accepted, "{end:?}");
    }
}

#[test]
fn a_thousand_half_open_handshakes_are_bounded_slow_no_one_and_end() {
    let suite = TlsSuite::Aes128GcmSha256;
    let fixture = Fixture::alone(TlsPolicy::Required, key(1, suite));
    let (_device, mut queue) = fixture
        .attach(Some(&key(1, suite)), HOST)
        .expect("attaches");
    let before_bytes = resident_bytes();
    let started = Instant::now();
    let sources = [2, 3].map(|last| Ipv4Addr::new(127, 0, 0, last));
    let half = half_open(&fixture, sources);
    let opened = Instant::now();
    // Neither a host that is connected nor one that connects is affected.
    let mut transfer = || assert_eq!(carry(&mut queue), Ok(()));
    let connect = || assert_eq!(fixture.try_with(Some(&key(1, suite)), HOST), Ok(()));
    let transfers: Vec<_> = (0..BESIDE).map(|_| timed(&mut transfer)).collect();
    let connects: Vec<_> = (0..BESIDE).map(|_| timed(connect)).collect();
    assert!(half.iter().any(is_open), "they are open meanwhile");
    let grown_bytes = resident_bytes().saturating_sub(before_bytes);
    assert!(
        grown_bytes < HALF_OPEN_MEMORY_MAX_BYTES,
        "{grown_bytes} bytes"
    );
    // One address may have 512 of its 600 connections.
    let open = || half.iter().filter(|stream| is_open(stream)).count();
    while open() > 2 * 512 {
        assert!(opened.elapsed() < HALF_OPEN_TIME, "too many are open");
        thread::sleep(Duration::from_millis(20));
    }
    let kept = open();
    // On a slow machine, the time of the first ones is over.
    assert!(kept == 2 * 512 || started.elapsed() > HALF_OPEN_TIME);
    // The time limit of handshakes ends these.
    while half.iter().any(is_open) {
        assert!(opened.elapsed() < 2 * HALF_OPEN_TIME);
        thread::sleep(Duration::from_millis(50));
    }
    assert_not_delayed(&transfers, transfer);
    assert_not_delayed(&connects, connect);
}

/// Transfers, and connections, of hosts beside half-open handshakes.
const BESIDE: usize = 20;

/// How long a handshake may take.
const HALF_OPEN_TIME: Duration = Duration::from_secs(10);

/// What 1200 handshakes may take, of both sides.
const HALF_OPEN_MEMORY_MAX_BYTES: u64 = 192 * MIB;

/// 600 connections of each address. Half of them send the start of a record of 16 KiB, the others a
/// genuine first message, and nothing else.
fn half_open(fixture: &Fixture, sources: [Ipv4Addr; 2]) -> Vec<TcpStream> {
    let hello = hello();
    let connections = sources
        .into_iter()
        .flat_map(|source| (0..600).map(move |number| (source, number)));
    let open = |(source, number): (Ipv4Addr, u32)| {
        let mut stream = connect_from(source, fixture.address());
        let bytes = if number % 2 == 0 {
            &[22, 3, 1, 64, 0, 1][..]
        } else {
            &hello
        };
        // The server may have closed it.
        drop(stream.write_all(bytes));
        stream
    };
    connections.map(open).collect()
}

/// The first message of a host that has the key.
fn hello() -> Vec<u8> {
    let provider = tls::Provider::load().expect("OpenSSL 3 is installed where tests run");
    let mut hello = Vec::new();
    let handshake = tls::ClientHandshake::new(
        &provider,
        &key(1, TlsSuite::Aes128GcmSha256),
        tls::Version::One,
        tls::Derivation::Specified,
        (HOST, NQN),
        &mut hello,
    );
    handshake.expect("begins");
    hello
}

fn connect_from(source: Ipv4Addr, to: SocketAddr) -> TcpStream {
    let socket =
        rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
    rustix::net::bind(&socket, &SocketAddr::from((source, 0))).expect("binds");
    rustix::net::connect(&socket, &to).expect("connects");
    TcpStream::from(socket)
}

/// The memory of this process.
fn resident_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/statm").expect("Linux has it");
    let pages = status.split_whitespace().nth(1).expect("the second number");
    pages.parse::<u64>().expect("a number") * rustix::param::page_size() as u64
}

#[test]
fn tls_is_for_nvme_over_tcp() {
    let fixture = Fixture::new(TlsPolicy::Off, key(1, TlsSuite::Aes128GcmSha256));
    let iscsi = PortalDefinition {
        tls: TlsPolicy::Required,
        ..fixture::portal(Transport::Iscsi, ([127, 0, 0, 1], 0))
    };
    let refused = fixture.server.add_portal(iscsi);
    assert!(matches!(refused, Err(ServerError::NoTls(_))), "{refused:?}");
}

/// A host of another project: OpenSSL's client, with the key that libnvme derives.
#[test]
fn openssl_s_client_gets_an_answer_to_its_icreq() {
    let fixture = Fixture::new(TlsPolicy::Required, KEY.parse().expect("a key"));
    let mut client = Command::new("openssl")
        .args(["s_client", "-quiet", "-ign_eof", "-tls1_3"])
        .args(["-ciphersuites", "TLS_AES_128_GCM_SHA256", "-psk", PSK])
        .args(["-psk_identity", &format!("NVMe0R01 {HOST} {NQN}")])
        .args(["-connect", &fixture.address().to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("openssl is installed where tests run");
    // ICReq: type 0, header and PDU of 128 bytes, no options.
    let mut icreq = [0; 128];
    icreq[..8].copy_from_slice(&[0, 0, 128, 0, 128, 0, 0, 0]);
    let mut stdin = client.stdin.take().expect("piped");
    stdin.write_all(&icreq).expect("writes");
    let mut icresp = [0; 128];
    let mut stdout = client.stdout.take().expect("piped");
    let read = stdout.read_exact(&mut icresp);
    client.kill().expect("it runs");
    client.wait().expect("it ends");
    read.expect("an answer");
    assert_eq!(icresp[..8], [1, 0, 128, 0, 128, 0, 0, 0]);
}
