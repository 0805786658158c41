//! Those that are measured: how they are started, asked and ended.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{READ_PERCENT, Shape, VOLUME_MIB};

/// What one measurement gave. A figure that is not known is 0.
#[derive(Clone, Copy, Debug, Default)]
pub struct Figures {
    pub iops: f64,
    /// CPU time of the target per I/O.
    pub target_us: f64,
    pub p99_us: f64,
    pub stddev_us: f64,
}

impl Figures {
    pub fn to_json(self) -> Value {
        json!({
            "iops": self.iops, "target_us": self.target_us,
            "p99_us": self.p99_us, "stddev_us": self.stddev_us,
        })
    }
}

const TARGET_CORE: &str = "0";
const CLIENT_CORE: &str = "1";
const CLIENT_MASK: &str = "0x2";
/// The host's name where a key belongs to it.
const HOST: &str = "nqn.2025-01.example:host";

/// The daemon with one volume.
pub struct Ramport {
    program: PathBuf,
    folder: PathBuf,
    daemon: Child,
}

impl Ramport {
    pub const URL: &str = "nvme+tcp://127.0.0.1:24980/nqn.2025-01.example:bench";
    pub const PERF: &str =
        "trtype:TCP adrfam:IPv4 traddr:127.0.0.1 trsvcid:24980 subnqn:nqn.2025-01.example:bench";
    pub const SECURED_PERF: &str =
        "trtype:TCP adrfam:IPv4 traddr:127.0.0.1 trsvcid:24982 subnqn:nqn.2025-01.example:bench";

    /// The URL of its portal with TLS.
    pub fn secured_url(key: &Path) -> String {
        let key = key.display();
        format!(
            "nvme+tcp://127.0.0.1:24982/nqn.2025-01.example:bench?hostnqn={HOST}&tls-psk-file={key}"
        )
    }

    pub fn start(root: &Path, volume_mib: u64) -> io::Result<Self> {
        let program = root.join("target/release/ramport");
        let folder = std::env::temp_dir().join(format!("ramport-bench-{}", std::process::id()));
        fs::create_dir_all(&folder)?;
        let daemon = Command::new(&program)
            .arg("--socket")
            .arg(folder.join("socket"))
            .args([
                "serve",
                "--cores",
                &format!("{TARGET_CORE},"),
                "--memory",
                "2G",
            ])
            .args(["--nvme-tcp", "127.0.0.1:24980", "--log-level", "warn"])
            .arg("--state")
            .arg(folder.join("state"))
            .spawn()?;
        let this = Self {
            program,
            folder,
            daemon,
        };
        wait_for(&this.folder.join("socket"))?;
        this.control(&[
            "volume",
            "create",
            "v0",
            "--size",
            &format!("{volume_mib}MiB"),
        ])?;
        this.control(&[
            "target",
            "create",
            "nqn.2025-01.example:bench",
            "--volume",
            "v0",
        ])?;
        Ok(this)
    }

    /// Opens a portal with TLS. Returns the file of the host's key.
    pub fn secure(&self) -> io::Result<PathBuf> {
        let made = self.control(&["host", "keygen", "--tls", "--json", HOST])?;
        let made: Value = serde_json::from_slice(&made.stdout)?;
        let key = made.get("secret").and_then(Value::as_str);
        let key = key.ok_or_else(|| io::Error::other("keygen printed no secret"))?;
        let path = self.folder.join("key");
        let mut file = fs::File::options()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)?;
        file.write_all(key.as_bytes())?;
        let file = path.to_string_lossy();
        self.control(&["host", "create", HOST, "--tls-psk-file", &file])?;
        let portal = "nvme+tcp://127.0.0.1:24982?tls=required";
        self.control(&["portal", "create", portal])?;
        Ok(path)
    }

    fn control(&self, args: &[&str]) -> io::Result<Output> {
        let mut command = Command::new(&self.program);
        command.arg("--socket").arg(self.folder.join("socket"));
        output(command.args(args))
    }

    /// Writes the whole volume, so that no read meets memory that is not there yet.
    pub fn fill(&self) -> io::Result<()> {
        self.fill_other(Self::URL)
    }

    /// Writes the whole of another target's volume.
    pub fn fill_other(&self, url: &str) -> io::Result<()> {
        let args = [
            "bench",
            url,
            "--write",
            "--rw",
            "write",
            "--bs",
            "128k",
            "--iodepth",
            "8",
        ];
        output(
            Command::new(&self.program)
                .args(args)
                .args(["--size", &format!("{VOLUME_MIB}m")]),
        )
        .map(|_| ())
    }

    /// Measures a target with our own host.
    pub fn measure(&self, url: &str, shape: Shape, seconds: &str) -> io::Result<Figures> {
        let out = output(
            Command::new(&self.program)
                .args([
                    "bench",
                    url,
                    "--write",
                    "--json",
                    "--cpus",
                    CLIENT_CORE,
                    "--poll",
                    "spin",
                ])
                .args(["--rw", shape.rw, "--rwmixread", READ_PERCENT])
                .args([
                    "--bs",
                    &shape.bs.to_string(),
                    "--iodepth",
                    &shape.depth.to_string(),
                ])
                .args([
                    "--runtime",
                    seconds,
                    "--ramp-time",
                    "200ms",
                    "--interval",
                    "100ms",
                ]),
        )?;
        let report: Value = serde_json::from_slice(&out.stdout)?;
        let number = |path: &str| report.pointer(path).and_then(Value::as_f64);
        let worst = |name: &str| {
            let of = |side: &str| number(&format!("/{side}/latency_us/{name}")).unwrap_or(0.0);
            of("read").max(of("write"))
        };
        Ok(Figures {
            iops: number("/iops").unwrap_or(0.0),
            target_us: number("/daemon/us_per_io").unwrap_or(0.0),
            p99_us: worst("p99"),
            stddev_us: worst("stddev"),
        })
    }

    /// How many cores the daemon uses while nothing happens.
    pub fn idle_cores(&self) -> io::Result<f64> {
        sleep(Duration::from_millis(500));
        let (before, begun) = (self.cpu_ns()?, Instant::now());
        sleep(Duration::from_secs(3));
        let used = Duration::from_nanos(self.cpu_ns()? - before);
        Ok(used.as_secs_f64() / begun.elapsed().as_secs_f64())
    }

    fn cpu_ns(&self) -> io::Result<u64> {
        let mut total = 0;
        for thread in fs::read_dir(format!("/proc/{}/task", self.daemon.id()))? {
            let text = fs::read_to_string(thread?.path().join("schedstat"))?;
            let first = text.split_ascii_whitespace().next().unwrap_or("0");
            total += first.parse::<u64>().unwrap_or(0);
        }
        Ok(total)
    }
}

impl Drop for Ramport {
    fn drop(&mut self) {
        let _ = signal(&self.daemon, "TERM");
        let _ = self.daemon.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// SPDK's target with one malloc bdev, stopped while it is not measured.
pub struct Spdk {
    folder: PathBuf,
    daemon: Child,
}

impl Spdk {
    pub const URL: &str = "nvme+tcp://127.0.0.1:24981/nqn.2016-06.io.spdk:bench";
    pub const PERF: &str =
        "trtype:TCP adrfam:IPv4 traddr:127.0.0.1 trsvcid:24981 subnqn:nqn.2016-06.io.spdk:bench";
    pub const SECURED_PERF: &str =
        "trtype:TCP adrfam:IPv4 traddr:127.0.0.1 trsvcid:24983 subnqn:nqn.2016-06.io.spdk:bench";
    const SOCKET: &str = "/tmp/spdk-bench.sock";
    const NQN: &str = "nqn.2016-06.io.spdk:bench";

    /// The URL of its listener with TLS, which knows identities of version 0 only.
    pub fn secured_url(key: &Path) -> String {
        let (nqn, key) = (Self::NQN, key.display());
        format!("nvme+tcp://127.0.0.1:24983/{nqn}?hostnqn={HOST}&tls-psk-file={key}&tls-identity=0")
    }

    pub fn start(folder: &Path, volume_mib: u64) -> io::Result<Self> {
        let daemon = Command::new(folder.join("build/bin/nvmf_tgt"))
            .args(["--no-huge", "-s", "1536", "-m", "0x1", "-r", Self::SOCKET])
            .arg("--wait-for-rpc")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let this = Self {
            folder: folder.to_owned(),
            daemon,
        };
        wait_for(Path::new(Self::SOCKET))?;
        let nqn = Self::NQN;
        this.call(&[
            // Of sockets with TLS: as large as those without. Its default of 4 KiB holds no record.
            "sock_impl_set_options -i ssl --send-buf-size 2097152 --recv-buf-size 2097152",
            "framework_start_init",
            "nvmf_create_transport -t TCP -q 256 -c 8192",
            &format!("bdev_malloc_create -b M0 {volume_mib} 512"),
            &format!("nvmf_create_subsystem {nqn} -a -s SPDK0"),
            &format!("nvmf_subsystem_add_ns {nqn} M0"),
            &format!("nvmf_subsystem_add_listener {nqn} -t tcp -a 127.0.0.1 -s 24981"),
        ])?;
        signal(&this.daemon, "STOP")?;
        Ok(this)
    }

    /// Listens with TLS, too, for a host that has this key, and serves no other host from now on:
    /// it refuses to do both. The target has to be running.
    pub fn secure(&self, key: &Path) -> io::Result<()> {
        let (nqn, key) = (Self::NQN, key.display());
        self.call(&[
            &format!("nvmf_subsystem_allow_any_host --no-allow-any-host {nqn}"),
            &format!(
                "nvmf_subsystem_add_listener {nqn} -t tcp -a 127.0.0.1 -s 24983 --secure-channel"
            ),
            &format!("keyring_file_add_key key0 {key}"),
            &format!("nvmf_subsystem_add_host {nqn} {HOST} --psk key0"),
        ])
    }

    fn call(&self, calls: &[&str]) -> io::Result<()> {
        for call in calls {
            let mut command = Command::new("/usr/bin/python3");
            command.arg(self.folder.join("scripts/rpc.py"));
            command.args(["-s", Self::SOCKET]);
            output(command.args(call.split(' ')))?;
        }
        Ok(())
    }

    /// Lets the target run while `measure` does.
    pub fn while_running<R>(&self, measure: impl FnOnce() -> io::Result<R>) -> io::Result<R> {
        signal(&self.daemon, "CONT")?;
        let result = measure();
        signal(&self.daemon, "STOP")?;
        result
    }

    /// Measures a target with spdk_nvme_perf.
    pub fn perf(&self, transport: &str, shape: Shape) -> io::Result<Figures> {
        self.perf_as("nqn.2025-01.example:perf", transport, shape, &[])
    }

    /// The same over TLS.
    pub fn secured_perf(&self, transport: &str, shape: Shape, key: &Path) -> io::Result<Figures> {
        let key = key.to_string_lossy();
        self.perf_as(HOST, transport, shape, &["-S", "ssl", "--psk-path", &key])
    }

    fn perf_as(
        &self,
        host: &str,
        transport: &str,
        shape: Shape,
        options: &[&str],
    ) -> io::Result<Figures> {
        let mut command = Command::new(self.folder.join("build/bin/spdk_nvme_perf"));
        command
            .args(["--no-huge", "-s", "512", "-c", CLIENT_MASK, "-t", "1"])
            .args(["-q", &shape.depth.to_string(), "-o", &shape.bs.to_string()])
            .args(["-w", shape.rw, "-r"])
            .arg(format!("{transport} hostnqn:{host}"))
            .args(options);
        if shape.rw.ends_with("rw") {
            command.args(["-M", READ_PERCENT]);
        }
        let out = output(&mut command)?;
        let text = String::from_utf8_lossy(&out.stdout);
        let total = text.lines().find_map(|line| {
            let (name, figures) = line.split_once(':')?;
            (name.trim() == "Total").then_some(figures)
        });
        let first = total.and_then(|figures| figures.split_whitespace().next()?.parse().ok());
        let iops = first.ok_or_else(|| io::Error::other("spdk_nvme_perf printed no total"))?;
        Ok(Figures {
            iops,
            ..Figures::default()
        })
    }
}

impl Drop for Spdk {
    fn drop(&mut self) {
        let _ = signal(&self.daemon, "CONT");
        let _ = signal(&self.daemon, "TERM");
        let _ = self.daemon.wait();
    }
}

/// The bare exchange of a shape, both ends polling, with the server's data in this much memory;
/// none for mixed I/O.
pub fn bare(
    root: &Path,
    shape: Shape,
    seconds: &str,
    memory_bytes: u64,
) -> io::Result<Option<Figures>> {
    let direction = match shape.rw {
        "randread" | "read" => "read",
        "randwrite" | "write" => "write",
        _ => return Ok(None),
    };
    let json = std::env::temp_dir().join(format!("bare-{}.json", std::process::id()));
    output(
        Command::new(root.join("target/release/examples/bare"))
            .args([
                "--shape",
                &format!("{direction}:{}:{}", shape.bs, shape.depth),
            ])
            .args([
                "--calls",
                "plain",
                "--sleepers",
                "none",
                "--seconds",
                seconds,
            ])
            .args(["--work", "messages", "--cpus", TARGET_CORE, CLIENT_CORE])
            .args(["--memory-bytes", &memory_bytes.to_string()])
            .arg("--json")
            .arg(&json),
    )?;
    let rows: Value = serde_json::from_slice(&fs::read(&json)?)?;
    fs::remove_file(&json)?;
    let number = |path: &str| rows.pointer(path).and_then(Value::as_f64).unwrap_or(0.0);
    Ok(Some(Figures {
        iops: number("/0/per_second"),
        target_us: number("/0/server_cpu_us"),
        ..Figures::default()
    }))
}

fn output(command: &mut Command) -> io::Result<Output> {
    let out = command.stdin(Stdio::null()).output()?;
    if out.status.success() {
        return Ok(out);
    }
    Err(io::Error::other(format!(
        "{command:?} failed: {}",
        String::from_utf8_lossy(&out.stderr)
    )))
}

fn signal(child: &Child, name: &str) -> io::Result<()> {
    let pid = child.id().to_string();
    output(Command::new("kill").args(["-s", name, &pid])).map(|_| ())
}

fn wait_for(socket: &Path) -> io::Result<()> {
    for _ in 0..100 {
        if std::os::unix::net::UnixStream::connect(socket).is_ok() {
            return Ok(());
        }
        sleep(Duration::from_millis(100));
    }
    let socket = socket.display();
    Err(io::Error::other(format!("nothing answers at {socket}")))
}
