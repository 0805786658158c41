//! NVMe hosts that have to prove a secret: our own host at our own portals, over TCP and over RDMA
//! in software.

mod changes;
#[path = "../fixture/crowd.rs"]
mod crowd;
#[path = "../fixture/mod.rs"]
mod fixture;
mod hostile;
#[path = "../fixture/raw_host.rs"]
mod raw_host;
#[path = "../fixture/sockets.rs"]
mod sockets;

use std::fs;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use block::testing::Turn;
use block::{Access, Blocks, Extent, Lba};
use initiator::{
    CommandError, Device, DeviceOptions, Operation, Queue, Request, Slot, Url, WaitStrategy,
};
use nvme::auth::{AuthStep, Concatenation, HostAuth};
use server::{
    AllowedHost, ByteSize, DhChapDefinition, DhChapHash, DhChapSecret, DhGroup, DhGroupPolicy,
    HostDefinition, HostPolicy, PortalAuth, PortalDefinition, Server, ServerError, TlsPolicy,
    ToldBy, Transport, VolumeSpec,
};

const MIB: u64 = 1 << 20;
const PATIENCE: Duration = Duration::from_secs(20);
const NQN: &str = "nqn.2025-01.io.ramport:test";
const HOST: &str = "nqn.2025-01.io.ramport:host";
const HOST_SECRET: u8 = 1;
const CTRL_SECRET: u8 = 2;

struct Fixture {
    server: Server,
    tcp: PortalDefinition,
    rdma: PortalDefinition,
    files: PathBuf,
    _turn: Turn,
}

impl Fixture {
    /// A server with a volume that one host may use, which has to prove a secret.
    fn new(hash: Option<DhChapHash>, group: DhGroupPolicy) -> Self {
        Self::at(Turn::shared(), hash, group)
    }

    /// The same for a test that bounds a delay.
    fn alone(hash: Option<DhChapHash>, group: DhGroupPolicy) -> Self {
        Self::at(Turn::alone(), hash, group)
    }

    fn at(turn: Turn, hash: Option<DhChapHash>, group: DhGroupPolicy) -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        // Room for the half-open connections of two addresses, which hold a quarter of it at most.
        let config = fixture::config(1, 1024 * MIB);
        let server = fixture::start(config, "rd0", &VolumeSpec::thin(ByteSize(16 * MIB)));
        server
            .create_host(host(hash, group, HOST_SECRET))
            .expect("a host");
        let listed = HostPolicy::Listed(vec![AllowedHost {
            host: HOST.parse().expect("a name"),
            access: Access::ReadWrite,
            luns: None,
        }]);
        fixture::offer(&server, NQN, "rd0", listed);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let tcp = fixture::portal(Transport::NvmeTcp, ([127, 0, 0, 1], 0));
        let rdma = fixture::portal(Transport::NvmeRdma, ([127, 39, 0, number as u8 + 1], 4420));
        let files = std::env::temp_dir().join(format!("dhchap-{}-{number}", std::process::id()));
        fs::create_dir_all(&files).expect("a folder");
        for byte in 1..=3 {
            let text = format!("{}\n", *secret(byte).reveal());
            fs::write(files.join(byte.to_string()), text).expect("writes");
        }
        Self {
            tcp: server.add_portal(tcp).expect("a free port"),
            rdma: server.add_portal(rdma).expect("a free address"),
            server,
            files,
            _turn: turn,
        }
    }

    fn url(portal: &PortalDefinition, options: &str) -> Url {
        format!("{portal}/{NQN}?hostnqn={HOST}{options}")
            .parse()
            .expect("a URL")
    }

    /// The options for a host secret and a controller secret.
    fn secrets(&self, host: u8, ctrl: u8) -> String {
        let files = self.files.display();
        format!("&dhchap-secret-file={files}/{host}&dhchap-ctrl-secret-file={files}/{ctrl}")
    }

    /// Attaches and reads.
    fn try_portal(portal: &PortalDefinition, options: &str) -> Result<(), String> {
        let url = Self::url(portal, options);
        let connected = Device::connect(&url, &DeviceOptions::default());
        let mut device = connected.map_err(|error| error.to_string())?;
        let mut queue = device.take_queues().remove(0);
        read(&mut queue).map_err(|error| format!("{error:?}"))
    }

    fn try_tcp(&self, options: &str) -> Result<(), String> {
        Self::try_portal(&self.tcp, options)
    }

    fn attach(&self, options: &str) -> (Device, Queue) {
        let url = Self::url(&self.tcp, options);
        let mut device = Device::connect(&url, &DeviceOptions::default()).expect("attaches");
        let queue = device.take_queues().remove(0);
        (device, queue)
    }
}

/// Asserts that the server rejected what a host proved.
fn assert_rejected(attached: Result<(), String>) {
    let error = attached.expect_err("it is rejected");
    assert!(error.contains("rejected the authentication"), "{error}");
}

impl Drop for Fixture {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.files));
    }
}

fn secret(byte: u8) -> DhChapSecret {
    DhChapSecret::new(&[byte; 32], Some(DhChapHash::Sha256)).expect("32 bytes")
}

/// HOST's side of an authentication.
fn prover(byte: u8) -> HostAuth {
    raw_host::prover(secret(byte), (NQN, HOST), Concatenation::Refused)
}

fn host(hash: Option<DhChapHash>, group: DhGroupPolicy, byte: u8) -> HostDefinition {
    HostDefinition {
        name: HOST.parse().expect("a name"),
        told_by: ToldBy::Name,
        addresses: Vec::new(),
        chap: None,
        dhchap: Some(Arc::new(DhChapDefinition {
            secret: secret(byte),
            other_secret: None,
            controller_secret: Some(secret(CTRL_SECRET)),
            hash,
            group,
        })),
        tls: None,
    }
}

fn read(queue: &mut Queue) -> Result<(), CommandError> {
    let mut done = Vec::new();
    let request = Request {
        slot: Slot(0),
        operation: Operation::Read,
        extent: Extent::new(Lba(0), Blocks(8)),
    };
    queue.submit(request).expect("the slot is free");
    queue
        .wait(WaitStrategy::Sleep, PATIENCE, &mut done)
        .expect("the queue lives");
    done[0].result
}

#[test]
fn every_hash_function_and_group_over_tcp() {
    let groups = DhGroup::ALL.map(DhGroupPolicy::Only);
    let fixture = Fixture::new(None, DhGroupPolicy::Any);
    let options = fixture.secrets(HOST_SECRET, CTRL_SECRET);
    for hash in DhChapHash::ALL {
        for group in groups.into_iter().chain([DhGroupPolicy::NoGroup]) {
            let required = host(Some(hash), group, HOST_SECRET);
            fixture.server.change_host(required).expect("changes");
            assert_eq!(fixture.try_tcp(&options), Ok(()), "{hash} {group}");
        }
    }
}

#[test]
fn some_over_rdma() {
    let fixture = Fixture::new(None, DhGroupPolicy::Any);
    let options = fixture.secrets(HOST_SECRET, CTRL_SECRET);
    for (hash, group) in [
        (DhChapHash::Sha256, DhGroupPolicy::NoGroup),
        (DhChapHash::Sha384, DhGroupPolicy::Only(DhGroup::Ffdhe2048)),
        (DhChapHash::Sha512, DhGroupPolicy::Only(DhGroup::Ffdhe8192)),
    ] {
        let required = host(Some(hash), group, HOST_SECRET);
        fixture.server.change_host(required).expect("changes");
        let done = Fixture::try_portal(&fixture.rdma, &options);
        assert_eq!(done, Ok(()), "{hash} {group}");
        let wrong = fixture.secrets(3, CTRL_SECRET);
        let error = Fixture::try_portal(&fixture.rdma, &wrong);
        let error = error.expect_err("a wrong secret");
        assert!(error.contains("rejected the authentication"), "{error}");
    }
}

#[test]
fn wrong_and_missing_secrets_are_refused_with_the_reason() {
    let fixture = Fixture::new(None, DhGroupPolicy::Any);
    for (options, reason) in [
        (String::new(), "requires DH-HMAC-CHAP"),
        (
            fixture.secrets(3, CTRL_SECRET),
            "rejected the authentication",
        ),
        (fixture.secrets(HOST_SECRET, 3), "did not prove the secret"),
    ] {
        let error = fixture.try_tcp(&options).expect_err("refused");
        assert!(error.contains(reason), "{error}");
    }
    let until = Instant::now() + PATIENCE;
    while !fixture.server.sessions().is_empty() {
        assert!(Instant::now() < until, "sessions stay");
        std::thread::sleep(Duration::from_millis(2));
    }
    let options = fixture.secrets(HOST_SECRET, CTRL_SECRET);
    assert_eq!(fixture.try_tcp(&options), Ok(()));
}

#[test]
fn what_is_set_is_required_of_the_host() {
    let fixture = Fixture::new(Some(DhChapHash::Sha384), DhGroupPolicy::NoGroup);
    let options = fixture.secrets(HOST_SECRET, CTRL_SECRET);
    for (option, reason) in [
        ("&dhchap-hash=sha256", "no hash function is usable"),
        (
            "&dhchap-dhgroup=ffdhe2048",
            "no Diffie-Hellman group is usable",
        ),
    ] {
        let error = fixture.try_tcp(&format!("{options}{option}"));
        let error = error.expect_err("refused");
        assert!(error.contains(reason), "{error}");
    }
}

#[test]
fn a_secret_is_changed_while_two_are_valid() {
    let fixture = Fixture::new(None, DhGroupPolicy::NoGroup);
    let [old, new] = [HOST_SECRET, 3].map(|byte| fixture.secrets(byte, CTRL_SECRET));
    let (_device, mut queue) = fixture.attach(&old);
    let mut both = host(None, DhGroupPolicy::NoGroup, HOST_SECRET);
    let dhchap = both.dhchap.as_deref().expect("set").clone();
    both.dhchap = Some(Arc::new(DhChapDefinition {
        other_secret: Some(secret(3)),
        ..dhchap
    }));
    fixture.server.change_host(both).expect("changes");
    assert_eq!(fixture.try_tcp(&old), Ok(()));
    assert_eq!(fixture.try_tcp(&new), Ok(()));
    let one = host(None, DhGroupPolicy::NoGroup, 3);
    fixture.server.change_host(one).expect("changes");
    assert_rejected(fixture.try_tcp(&old));
    assert_eq!(fixture.try_tcp(&new), Ok(()));
    read(&mut queue).expect("a session goes on with the secret that it began with");
}

/// At a portal that requires authentication, over TCP and over RDMA.
#[test]
fn a_portal_can_require_authentication_of_all_for_discovery_too() {
    let fixture = Fixture::new(None, DhGroupPolicy::NoGroup);
    let stranger = "nqn.2025-01.io.ramport:stranger";
    let any = HostPolicy::Any(Access::ReadWrite);
    let name = NQN.parse().expect("a name");
    let server = &fixture.server;
    server.set_target_hosts(&name, any).expect("any host");
    let discover = |portal: &PortalDefinition, host: &str, options: &str| {
        let portal = PortalDefinition {
            auth: PortalAuth::default(),
            ..*portal
        };
        let url = format!("{portal}?hostnqn={host}{options}");
        let url = url.parse().expect("a URL");
        initiator::discover(&url, PATIENCE).map_err(|error| error.to_string())
    };
    let secrets = fixture.secrets(HOST_SECRET, CTRL_SECRET);
    let wrong = fixture.secrets(3, CTRL_SECRET);
    for portal in [fixture.tcp, fixture.rdma] {
        let url = |portal: &PortalDefinition| {
            let portal = PortalDefinition {
                auth: PortalAuth::default(),
                ..*portal
            };
            format!("{portal}/{NQN}?hostnqn={stranger}")
        };
        let attach = |portal: &PortalDefinition| {
            let url = url(portal).parse().expect("a URL");
            let attached = Device::connect(&url, &DeviceOptions::default());
            attached.map(drop).map_err(|error| error.to_string())
        };
        assert_eq!(attach(&portal), Ok(()));
        assert!(discover(&portal, stranger, "").is_ok() && discover(&portal, HOST, "").is_ok());

        server.remove_portal(portal).expect("removes");
        let required = PortalDefinition {
            auth: PortalAuth::Required,
            ..portal
        };
        let portal = server.add_portal(required).expect("a portal");
        for refused in [
            attach(&portal),
            discover(&portal, stranger, "").map(drop),
            discover(&portal, stranger, &secrets).map(drop),
        ] {
            let error = refused.expect_err("a host without a secret here");
            assert!(error.contains("does not admit this host"), "{error}");
        }
        let error = discover(&portal, HOST, "").expect_err("no proof");
        assert!(error.contains("requires DH-HMAC-CHAP"), "{error}");
        let error = discover(&portal, HOST, &wrong).expect_err("a wrong secret");
        assert!(error.contains("rejected the authentication"), "{error}");
        let found = discover(&portal, HOST, &secrets).expect("proven");
        assert!(found.iter().any(|record| record.subsystem_nqn == NQN));
    }
}

#[test]
fn authentication_is_required_only_where_there_is_one() {
    let fixture = Fixture::new(None, DhGroupPolicy::NoGroup);
    let nfs = PortalDefinition {
        auth: PortalAuth::Required,
        ..fixture::portal(Transport::Nfs, ([127, 0, 0, 1], 0))
    };
    let error = fixture.server.add_portal(nfs).expect_err("refused");
    assert!(
        error.to_string().contains("sec=sys of NFS proves nothing"),
        "{error}"
    );
    let referral = PortalDefinition {
        auth: PortalAuth::Required,
        ..fixture::portal(Transport::NvmeTcp, ([192, 0, 2, 1], 4420))
    };
    let refused = fixture.server.add_referral(referral);
    assert!(matches!(refused, Err(ServerError::NoAuthentication(of)) if of == referral));
}

#[test]
fn portals_that_admit_strangers_are_told_from_others() {
    let at = |transport, address: &str, auth| PortalDefinition {
        auth,
        ..fixture::portal(transport, (address.parse::<IpAddr>().expect("one"), 1))
    };
    for address in ["127.0.0.1", "::1", "::ffff:127.0.0.1"] {
        let local = at(Transport::NvmeTcp, address, PortalAuth::ByHost);
        assert!(!local.admits_strangers(), "{address}");
    }
    for address in ["192.0.2.1", "0.0.0.0", "::"] {
        for transport in [Transport::NvmeTcp, Transport::Iser, Transport::NfsRdma] {
            assert!(at(transport, address, PortalAuth::ByHost).admits_strangers());
        }
        let required = at(Transport::Iscsi, address, PortalAuth::Required);
        assert!(!required.admits_strangers(), "{address}");
        for (tls, is_open) in [(TlsPolicy::Allowed, true), (TlsPolicy::Required, false)] {
            let by_host = at(Transport::NvmeTcp, address, PortalAuth::ByHost);
            let portal = PortalDefinition { tls, ..by_host };
            assert_eq!(portal.admits_strangers(), is_open, "{portal}");
        }
    }
}

#[test]
fn secrets_are_in_no_list() {
    let fixture = Fixture::new(None, DhGroupPolicy::Any);
    let shown = format!("{:?}", fixture.server.hosts());
    let text = secret(HOST_SECRET).reveal();
    assert!(
        shown.contains("Secret") && !shown.contains(&text[10..30]),
        "{shown}"
    );
}
