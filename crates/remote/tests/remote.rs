//! Remote volumes through whole servers: one has the disk, another a volume on it.

#[path = "../../server/tests/fixture/mod.rs"]
mod fixture;
#[path = "../../initiator/tests/server/proxy.rs"]
mod proxy;

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use block::{BlockSize, Blocks, Extent, Lba, Persistence, Status, Unmap, WriteCache};
use fixture::{config, offer, portal};
use proxy::{Pace, Proxy};
use server::{
    ByteSize, ChapDefinition, ChapSecret, DriveError, Driver, Force, HostPolicy, LoginPolicy,
    NamespaceDefinition, Server, ServerError, TargetDefinition, Transport, VolumeIdentity,
    VolumeInfo, VolumeKind, VolumeName, VolumeSpec,
};
use volume::Provision;

const MIB: u64 = 1 << 20;
const BLOCK: usize = 512;
/// How long a test waits for what must come.
const PATIENCE: Duration = Duration::from_secs(60);
const NQN: &str = "nqn.2026-11.com.example:disk";
const IQN: &str = "iqn.2026-11.com.example:disk";

fn name(name: &str) -> VolumeName {
    name.parse().expect("a name")
}

/// The machine that has the disk: volume `disk`, as namespace 1 of [`NQN`] and LUN 0 of [`IQN`].
struct Origin {
    server: Server,
    nvme: SocketAddr,
    iscsi: SocketAddr,
}

impl Origin {
    fn new(spec: &VolumeSpec) -> Self {
        Self::at(spec, [0, 0])
    }

    /// At these ports, or at free ones in place of 0.
    fn at(spec: &VolumeSpec, ports: [u16; 2]) -> Self {
        let server = fixture::start(config(1, 128 * MIB), "disk", spec);
        offer(&server, NQN, "disk", HostPolicy::Local);
        offer(&server, IQN, "disk", HostPolicy::Local);
        let [nvme, iscsi] = [(Transport::NvmeTcp, ports[0]), (Transport::Iscsi, ports[1])].map(
            |(transport, port)| {
                let portal = portal(transport, ([127, 0, 0, 1], port));
                server.add_portal(portal).expect("the port is free").address
            },
        );
        Self {
            server,
            nvme,
            iscsi,
        }
    }

    fn url(&self, transport: Transport) -> String {
        match transport {
            Transport::Iscsi => iscsi_url(self.iscsi),
            _ => nvme_url(self.nvme),
        }
    }

    fn driver(&self) -> Driver {
        let driver = self.server.driver(&name("disk"), PATIENCE);
        driver.expect("the volume exists")
    }
}

fn nvme_url(address: SocketAddr) -> String {
    format!("nvme+tcp://{address}/{NQN}")
}

fn iscsi_url(address: SocketAddr) -> String {
    format!("iscsi://{address}/{IQN}/0")
}

/// The volume over these paths, with a time limit in milliseconds.
fn remote(urls: &[String], size_bytes: u64, io_timeout_ms: u64) -> VolumeSpec {
    VolumeSpec {
        size: ByteSize(size_bytes),
        block_size: BlockSize::B512,
        kind: VolumeKind::Remote {
            urls: urls.to_vec(),
            io_timeout: Duration::from_millis(io_timeout_ms),
            disk: None,
        },
    }
}

/// The machine that uses the disk as volume `r0`.
struct User {
    server: Server,
}

impl User {
    fn new(urls: &[String], size_bytes: u64, io_timeout_ms: u64) -> Self {
        let user = Self::without_volume();
        user.create(&remote(urls, size_bytes, io_timeout_ms))
            .expect("the disk is reached");
        user
    }

    fn without_volume() -> Self {
        let server = Server::start(config(1, 128 * MIB)).expect("starts");
        Self { server }
    }

    fn create(&self, spec: &VolumeSpec) -> Result<(), ServerError> {
        self.server.create_volume(name("r0"), spec, &mut |_| {})
    }

    fn driver(&self) -> Driver {
        let driver = self.server.driver(&name("r0"), PATIENCE);
        driver.expect("the volume exists")
    }

    fn info(&self) -> VolumeInfo {
        self.server.volume(&name("r0")).expect("it exists")
    }

    /// Waits until the volume is as `is` says.
    fn wait_until(&self, is: impl Fn(&VolumeInfo) -> bool) {
        let end = Instant::now() + PATIENCE;
        while !is(&self.info()) {
            assert!(Instant::now() < end, "{:?}", self.info());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn refusal(&self, spec: &VolumeSpec) -> String {
        self.create(spec).expect_err("it is refused").to_string()
    }
}

fn extent(lba: u64, blocks: u64) -> Extent {
    Extent::new(Lba(lba), Blocks(blocks))
}

/// A generator that repeats with its seed.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// Does random operations, and compares every read with a model of what was written. Calls
/// `between` before each.
fn verify(
    driver: &mut Driver,
    random: &mut Random,
    model: &mut [u8],
    operations: u32,
    mut between: impl FnMut(u32),
) {
    let blocks = (model.len() / BLOCK) as u64;
    for number in 0..operations {
        between(number);
        let lba = random.below(blocks);
        let count = 1 + random.below((blocks - lba).min(300));
        let extent = extent(lba, count);
        let range = lba as usize * BLOCK..(lba + count) as usize * BLOCK;
        let kind = random.below(8);
        match kind {
            0..=2 => {
                let data = vec![number as u8 ^ 0x5A; range.len()];
                let persistence = [Persistence::Volatile, Persistence::Durable];
                let persistence = persistence[random.below(2) as usize];
                let written = driver.write(extent, &data, persistence);
                written.unwrap_or_else(|error| panic!("write {number}: {error}"));
                model[range].copy_from_slice(&data);
            }
            3 => {
                let unmap = [Unmap::Allowed, Unmap::Forbidden][random.below(2) as usize];
                driver.write_zeroes(extent, unmap).expect("zeroed");
                model[range].fill(0);
            }
            4 => driver.flush().expect("flushed"),
            _ => {
                let mut data = vec![0xEE; range.len()];
                driver.read(extent, &mut data).expect("read");
                assert!(data == model[range], "operation {number}: {extent:?}");
            }
        }
    }
}

fn contents(driver: &mut Driver, len: usize) -> Vec<u8> {
    let mut data = vec![0xEE; len];
    let all = extent(0, (len / BLOCK) as u64);
    driver.read(all, &mut data).expect("read");
    data
}

#[test]
fn a_volume_is_what_its_disk_is_over_either_protocol() {
    for transport in [Transport::NvmeTcp, Transport::Iscsi] {
        let origin = Origin::new(&VolumeSpec::thin(ByteSize(4 * MIB)));
        let user = User::new(&[origin.url(transport)], 4 * MIB, 30_000);
        let mut model = vec![0; 4 * MIB as usize];
        let mut random = Random(7 + transport as u64);
        verify(&mut user.driver(), &mut random, &mut model, 300, |_| {});
        assert!(contents(&mut user.driver(), model.len()) == model);
        assert!(contents(&mut origin.driver(), model.len()) == model);
        let path = &user.info().paths[0];
        assert!(path.is_up && path.errors == 0, "{path:?}");
        // Memory needs no flush, and that is passed on.
        let cache = user.driver().volume().write_cache();
        assert_eq!(cache, WriteCache::Absent, "{transport:?}");
    }
}

#[test]
fn a_disk_is_reached_over_rdma_in_software() {
    let spec = VolumeSpec::thin(ByteSize(4 * MIB));
    let server = fixture::start(config(1, 128 * MIB), "disk", &spec);
    offer(&server, NQN, "disk", HostPolicy::Local);
    let portal = server::PortalDefinition {
        rdma: server::RdmaChoice::Soft,
        auth: server::PortalAuth::default(),
        tls: server::TlsPolicy::Off,
        ..portal(Transport::NvmeRdma, ([127, 77, 0, 1], 4420))
    };
    let portal = server.add_portal(portal).expect("no other test has it");
    let url = format!(
        "nvme+rdma://{}/{NQN}?rdma=soft&local=127.77.0.2",
        portal.address
    );
    let user = User::new(&[url], 4 * MIB, 30_000);
    let mut model = vec![0; 4 * MIB as usize];
    let mut random = Random(77);
    verify(&mut user.driver(), &mut random, &mut model, 150, |_| {});
    let driver = server.driver(&name("disk"), PATIENCE);
    assert!(contents(&mut driver.expect("it exists"), model.len()) == model);
}

#[test]
fn one_protocol_is_served_over_another() {
    for (below, above) in [
        (Transport::Iscsi, Transport::NvmeTcp),
        (Transport::NvmeTcp, Transport::Iscsi),
    ] {
        let origin = Origin::new(&VolumeSpec::thin(ByteSize(4 * MIB)));
        let middle = User::new(&[origin.url(below)], 4 * MIB, 30_000);
        // Other names, since the machine is the same.
        let (target, url) = if above == Transport::Iscsi {
            let target = "iqn.2026-11.com.example:above";
            (target, format!("/{target}/0"))
        } else {
            let target = "nqn.2026-11.com.example:above";
            (target, format!("/{target}"))
        };
        offer(&middle.server, target, "r0", HostPolicy::Local);
        let portal = portal(above, ([127, 0, 0, 1], 0));
        let portal = middle.server.add_portal(portal).expect("a free port");
        let top = User::new(&[format!("{portal}{url}")], 4 * MIB, 30_000);
        let mut model = vec![0; 4 * MIB as usize];
        let mut random = Random(99 + above as u64);
        verify(&mut top.driver(), &mut random, &mut model, 150, |_| {});
        assert!(contents(&mut origin.driver(), model.len()) == model);
    }
}

#[test]
fn lost_connections_lose_no_data() {
    for transport in [Transport::NvmeTcp, Transport::Iscsi] {
        let origin = Origin::new(&VolumeSpec::thin(ByteSize(4 * MIB)));
        let (address, url): (_, fn(_) -> _) = match transport {
            Transport::Iscsi => (origin.iscsi, iscsi_url),
            _ => (origin.nvme, nvme_url),
        };
        let proxies = [Proxy::start(address), Proxy::start(address)];
        let urls = proxies.each_ref().map(|proxy| url(proxy.address));
        let user = User::new(&urls, 4 * MIB, 60_000);
        let mut model = vec![0; 4 * MIB as usize];
        let mut random = Random(3 + transport as u64);
        let mut when = Random(11);
        let is_done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (is_done, proxies) = (&is_done, &proxies);
            scope.spawn(move || {
                while !is_done.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_millis(5 + when.below(60)));
                    proxies[when.below(2) as usize].cut();
                }
            });
            verify(&mut user.driver(), &mut random, &mut model, 400, |_| {});
            is_done.store(true, Ordering::Relaxed);
        });
        assert!(contents(&mut origin.driver(), model.len()) == model);
        let losses: u64 = user.info().paths.iter().map(|path| path.losses).sum();
        assert!(losses > 0, "the test has cut something");
        user.wait_until(|info| info.paths.iter().all(|path| path.is_up));
    }
}

/// A file that goes with the test.
struct File(PathBuf);

impl File {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("ramport-remote-{}-{number}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }

    fn spec(&self, size_bytes: u64) -> VolumeSpec {
        VolumeSpec {
            size: ByteSize(size_bytes),
            block_size: BlockSize::B512,
            kind: VolumeKind::File {
                path: self.0.clone(),
                provision: Provision::Thin,
            },
        }
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn a_server_that_ends_and_returns_under_io_loses_nothing() {
    for transport in [Transport::NvmeTcp, Transport::Iscsi] {
        let file = File::new();
        let spec = file.spec(4 * MIB);
        let origin = Origin::new(&spec);
        let ports = [origin.nvme.port(), origin.iscsi.port()];
        let user = User::new(&[origin.url(transport)], 4 * MIB, 60_000);
        let cache = user.driver().volume().write_cache();
        assert_eq!(cache, WriteCache::Volatile, "as the file's");
        let mut model = vec![0; 4 * MIB as usize];
        let mut random = Random(21 + transport as u64);
        let mut running = Some(origin);
        verify(&mut user.driver(), &mut random, &mut model, 60, |number| {
            if number % 20 == 10 {
                // Nothing is answered any more, whether it was executed or not.
                let ended = running.take().expect("it runs");
                ended.server.stop(Duration::ZERO);
                drop(ended);
                running = Some(Origin::at(&spec, ports));
            }
        });
        assert!(user.info().paths[0].losses >= 3);
        let origin = running.expect("it runs");
        assert!(contents(&mut origin.driver(), model.len()) == model);
    }
}

#[test]
fn commands_fail_when_their_time_is_over_and_work_again_when_the_disk_is_back() {
    for transport in [Transport::NvmeTcp, Transport::Iscsi] {
        let file = File::new();
        let spec = file.spec(MIB);
        let origin = Origin::new(&spec);
        let ports = [origin.nvme.port(), origin.iscsi.port()];
        let user = User::new(&[origin.url(transport)], MIB, 1_000);
        let mut driver = user.driver();
        let old = [1; BLOCK];
        let written = driver.write(extent(5, 1), &old, Persistence::Durable);
        written.expect("the disk is there");
        origin.server.stop(Duration::ZERO);
        drop(origin);
        let began = Instant::now();
        let lost = driver.write(extent(5, 1), &[2; BLOCK], Persistence::Durable);
        assert_eq!(lost, Err(DriveError::Status(Status::NotReady)));
        let waited = began.elapsed();
        assert!(waited >= Duration::from_secs(1), "{waited:?}");
        let path = user.info().paths[0].clone();
        assert!(!path.is_up && path.problem.is_some(), "{path:?}");
        let origin = Origin::at(&spec, ports);
        user.wait_until(|info| info.paths[0].is_up);
        // What has failed is not written later.
        let mut data = [0xEE; BLOCK];
        driver.read(extent(5, 1), &mut data).expect("it is back");
        assert_eq!(data, old, "{transport:?}");
        drop(origin);
    }
}

#[test]
fn a_path_that_does_not_answer_is_replaced_by_another() {
    let origin = Origin::new(&VolumeSpec::thin(ByteSize(MIB)));
    let silent = Proxy::start(origin.nvme);
    let urls = [nvme_url(silent.address), nvme_url(origin.nvme)];
    let user = User::new(&urls, MIB, 4_000);
    let mut driver = user.driver();
    silent.set_pace(Pace::Stalled);
    // The proxy still passes one answer, for which it has waited.
    for byte in [6, 7] {
        let written = driver.write(extent(0, 8), &[byte; 8 * BLOCK], Persistence::Volatile);
        written.expect("the second path answers in time");
    }
    assert!(contents(&mut origin.driver(), 8 * BLOCK) == [7; 8 * BLOCK]);
    assert_eq!(user.info().paths[0].losses, 1);
    silent.set_pace(Pace::Full);
    user.wait_until(|info| info.paths[0].is_up);
}

#[test]
fn a_restored_volume_waits_offline_until_its_disk_is_reached() {
    let file = File::new();
    let spec = file.spec(MIB);
    let origin = Origin::new(&spec);
    let (url, ports) = (
        origin.url(Transport::NvmeTcp),
        [origin.nvme.port(), origin.iscsi.port()],
    );
    origin.server.stop(Duration::ZERO);
    drop(origin);
    let user = User::without_volume();
    let restored = user.server.restore_volume(
        name("r0"),
        VolumeIdentity::default(),
        &remote(&[url], MIB, 30_000),
    );
    restored.expect("the other machine is not needed");
    user.wait_until(|info| info.paths[0].problem.is_some());
    let problem = user.info().problem.expect("it is offline");
    assert!(problem.contains("comes online when it is"), "{problem}");
    let mut driver = user.driver();
    let read = driver.read(extent(0, 1), &mut [0; BLOCK]);
    assert_eq!(read, Err(DriveError::Status(Status::NotReady)));
    let _origin = Origin::at(&spec, ports);
    user.wait_until(|info| info.problem.is_none());
    driver
        .read(extent(0, 1), &mut [0; BLOCK])
        .expect("it is online");
}

#[test]
fn what_is_not_the_disk_is_refused() {
    let origin = Origin::new(&VolumeSpec::thin(ByteSize(4 * MIB)));
    let other = Origin::new(&VolumeSpec::thin(ByteSize(4 * MIB)));
    let second = name("second");
    let spec = VolumeSpec::thin(ByteSize(4 * MIB));
    let made = origin.server.create_volume(second, &spec, &mut |_| {});
    made.expect("room");
    let others = "nqn.2026-11.com.example:other";
    offer(&origin.server, others, "second", HostPolicy::Local);
    let url = origin.url(Transport::NvmeTcp);
    let user = User::without_volume();
    let nowhere = "nvme+tcp://127.0.0.1:1/nqn.x:y".to_owned();
    let no_target = format!("nvme+tcp://{}/nqn.2026-11.com.example:none", origin.nvme);
    let other_disk = format!("nvme+tcp://{}/{others}", origin.nvme);
    for (urls, size_bytes, hint) in [
        (vec![url.clone()], 8 * MIB, "has 4 MiB, not 8 MiB"),
        (vec![nowhere], 4 * MIB, "cannot connect"),
        (vec![no_target], 4 * MIB, "no subsystem with this name"),
        (vec![url.clone(), other_disk], 4 * MIB, "another disk"),
        (
            vec![url.clone(), origin.url(Transport::Iscsi)],
            4 * MIB,
            "another disk",
        ),
    ] {
        let refusal = user.refusal(&remote(&urls, size_bytes, 30_000));
        assert!(refusal.contains(hint), "{refusal}");
    }
    let large_blocks = VolumeSpec {
        block_size: BlockSize::B4096,
        ..remote(std::slice::from_ref(&url), 4 * MIB, 30_000)
    };
    let refusal = user.refusal(&large_blocks);
    assert!(refusal.contains("blocks of 512 bytes"), "{refusal}");
    let mut known = remote(std::slice::from_ref(&url), 4 * MIB, 30_000);
    if let VolumeKind::Remote { disk, .. } = &mut known.kind {
        *disk = Some("uuid.of-another".to_owned());
    }
    let refusal = user.refusal(&known);
    assert!(refusal.contains("uuid.of-another"), "{refusal}");
    // A volume of the machine itself, which both servers of this test are not.
    let own = origin.server.create_volume(
        name("r0"),
        &remote(&[other.url(Transport::NvmeTcp)], 4 * MIB, 30_000),
        &mut |_| {},
    );
    let refusal = own.expect_err("same machine, same names").to_string();
    assert!(refusal.contains("of this daemon"), "{refusal}");
    assert!(user.server.volumes().is_empty(), "nothing has changed");
}

#[test]
fn chap_needs_the_secret() {
    let origin = Origin::new(&VolumeSpec::thin(ByteSize(MIB)));
    let target = "iqn.2026-11.com.example:secret";
    let chap = ChapDefinition {
        user: "alice".to_owned(),
        secret: ChapSecret::new(b"correct-horse".to_vec()).expect("long enough"),
        mutual: None,
    };
    let defined = origin.server.create_target(TargetDefinition {
        name: target.parse().expect("a name"),
        logins: LoginPolicy {
            chap: Some(chap),
            ..LoginPolicy::default()
        },
        hosts: HostPolicy::Local,
        namespaces: vec![NamespaceDefinition {
            nsid: 0,
            volume: name("disk"),
        }],
    });
    defined.expect("a target");
    let file = File::new();
    let url = format!(
        "iscsi://{}/{target}/0?chap={}",
        origin.iscsi,
        file.0.display()
    );
    let spec = remote(&[url], MIB, 30_000);
    let secret = |secret: &str| {
        std::fs::write(&file.0, format!("alice\n{secret}\n")).expect("written");
        let mode = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(&file.0, mode).expect("ours");
    };
    let user = User::without_volume();
    secret("battery-staple");
    let refusal = user.refusal(&spec);
    assert!(!refusal.contains("battery"), "{refusal}");
    secret("correct-horse");
    user.create(&spec).expect("the secret is right");
    let written = user
        .driver()
        .write(extent(0, 1), &[3; BLOCK], Persistence::Volatile);
    written.expect("written");
}

#[test]
fn a_disk_that_grows_makes_the_volume_grow() {
    for transport in [Transport::NvmeTcp, Transport::Iscsi] {
        let origin = Origin::new(&VolumeSpec::thin(ByteSize(MIB)));
        let user = User::new(&[origin.url(transport)], MIB, 30_000);
        let grown = origin
            .server
            .resize_volume(&name("disk"), 2 * MIB, Force::No, &mut |_| {});
        grown.expect("thin");
        let mut driver = user.driver();
        let end = Instant::now() + PATIENCE;
        while user.info().spec.size.0 != 2 * MIB {
            assert!(Instant::now() < end, "{transport:?}: {:?}", user.info());
            // An iSCSI target tells with the answer of the next command.
            driver.read(extent(0, 1), &mut [0; BLOCK]).expect("read");
            std::thread::sleep(Duration::from_millis(10));
        }
        let last = extent(2 * MIB / 512 - 1, 1);
        let written = driver.write(last, &[9; BLOCK], Persistence::Volatile);
        written.expect("it exists");
        let shrunk = user
            .server
            .resize_volume(&name("r0"), MIB, Force::Yes, &mut |_| {});
        let refusal = shrunk.expect_err("not here").to_string();
        assert!(refusal.contains("on the other machine"), "{refusal}");
    }
}

#[test]
fn a_disk_that_refuses_writes_gives_a_volume_that_does() {
    let origin = Origin::new(&VolumeSpec::thin(ByteSize(MIB)));
    let locked = origin
        .server
        .set_volume_lock(&name("disk"), volume::WriteLock::ReadOnly);
    locked.expect("it exists");
    for transport in [Transport::NvmeTcp, Transport::Iscsi] {
        let user = User::new(&[origin.url(transport)], MIB, 30_000);
        let mut driver = user.driver();
        assert!(driver.volume().is_read_only());
        let refused = driver.write(extent(0, 1), &[1; BLOCK], Persistence::Volatile);
        assert_eq!(refused, Err(DriveError::Status(Status::WriteProtected)));
    }
}

#[test]
fn errors_of_the_disk_are_errors_of_the_volume() {
    for transport in [Transport::NvmeTcp, Transport::Iscsi] {
        // Room for one slab besides the connections.
        let origin = Origin::new(&VolumeSpec::thin(ByteSize(1024 * MIB)));
        let user = User::new(&[origin.url(transport)], 1024 * MIB, 30_000);
        let mut driver = user.driver();
        let data = vec![1; MIB as usize];
        let full = (0..512).find_map(|number| {
            let extent = extent(number * 2 * MIB / 512, MIB / 512);
            driver.write(extent, &data, Persistence::Volatile).err()
        });
        let full = full.expect("the budget of the other machine is smaller");
        assert_eq!(full, DriveError::Status(Status::CapacityExceeded));
        let away = server::Availability::Offline;
        let set = origin.server.set_volume_availability(&name("disk"), away);
        set.expect("it exists");
        let read = driver.read(extent(0, 1), &mut [0; BLOCK]);
        assert_eq!(read, Err(DriveError::Status(Status::NotReady)));
        assert!(user.info().paths[0].errors >= 2);
    }
}
