//! `ramport demo`: a RAM disk in one command, checked and measured. A daemon of its own serves it.

use std::env;
use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{self, Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use bench::{Plan, ProgressBar, Source, SuiteKind};
use control::{Client, Endpoint, Size, StatusView, Target, TargetView, Volume, VolumeView};
use indicatif::ProgressStyle;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

use crate::cli::{Connection, DemoArgs};
use crate::failure::Failure;
use crate::local_address;
use crate::mistake::{Mistake, SystemFailure};
use crate::output;
use crate::units::bytes;
use crate::verbs::open_to_others;

/// The RAM disk's name.
const VOLUME: &str = "rd0";
/// The target's name.
const TARGET: &str = "nqn.2025-01.io.ramport:rd0";
/// The target's name over iSCSI.
const ISCSI_TARGET: &str = "iqn.2025-01.io.ramport:rd0";
/// NVMe/TCP's port.
const PORT: u16 = 4420;
/// iSCSI's port.
const ISCSI_PORT: u16 = 3260;
/// The most bytes of the RAM disk that are written and verified. The first write of a block costs
/// more, so the whole disk is written before it is measured, unless it is larger.
const VERIFIED_MAX_BYTES: u64 = 1 << 30;
/// How long the daemon may take to start.
const START_TIME: Duration = Duration::from_secs(10);
/// How long it may take to stop.
const STOP_TIME: Duration = Duration::from_secs(10);

/// Serves, verifies, measures, and continues serving until a signal.
pub(crate) fn run(connection: &Connection, args: &DemoArgs) -> Result<(), Failure> {
    let daemon = Arc::new(DemoDaemon::start(own_socket(connection))?);
    end_by_signal(Arc::clone(&daemon))?;
    let outcome = show(&daemon, args);
    if daemon.is_ending.load(Ordering::Acquire) {
        // The failure has a reason: a signal has ended the daemon. The thread of signals ends this
        // process.
        loop {
            thread::park();
        }
    }
    daemon.stop();
    outcome
}

/// The socket that the command line names. The environment names that of another daemon.
fn own_socket(connection: &Connection) -> Option<&Path> {
    let others = env::var_os("RAMPORT_SOCKET").map(PathBuf::from);
    let socket = connection.socket.as_deref();
    socket.filter(|socket| others.as_deref() != Some(*socket))
}

fn show(daemon: &DemoDaemon, args: &DemoArgs) -> Result<(), Failure> {
    let client = daemon.wait()?;
    define(&client, args.size)?;
    let url = format!("nvme+tcp://127.0.0.1:{}/{TARGET}?ns=1", daemon.port);
    let size = bytes(args.size.0);
    output::line(format_args!("A RAM disk of {size} at {url}\n"))?;
    let source: Source = url.parse().map_err(Failure::mistake)?;
    verify(&source, args.size)?;
    measure(&source, daemon)?;
    tell_how_to_attach(daemon)?;
    if args.once {
        return Ok(());
    }
    output::line("\nServing. Ctrl-C ends it.")?;
    daemon.wait_for_end()
}

/// Makes SIGINT and SIGTERM end the daemon, and then this process, at any time.
fn end_by_signal(daemon: Arc<DemoDaemon>) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let (mut interrupt, mut terminate) = {
        let _guard = runtime.enter();
        (
            signal(SignalKind::interrupt())?,
            signal(SignalKind::terminate())?,
        )
    };
    thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            runtime.block_on(async {
                tokio::select! { _ = interrupt.recv() => {}, _ = terminate.recv() => {} }
            });
            daemon.is_ending.store(true, Ordering::Release);
            daemon.stop();
            process::exit(0);
        })?;
    Ok(())
}

fn define(client: &Client, size: Size) -> Result<(), Failure> {
    let volume: Volume =
        serde_json::from_value(json!({ "size": size })).map_err(anyhow::Error::from)?;
    let _: VolumeView = client.post(&format!("/v1/volumes/{VOLUME}"), &volume)?;
    // The same volume by both protocols: namespaces are numbered from 1, LUNs from 0.
    for (name, number) in [(TARGET, "1"), (ISCSI_TARGET, "0")] {
        let target: Target = serde_json::from_value(json!({ "namespaces": { number: VOLUME } }))
            .map_err(anyhow::Error::from)?;
        let _: TargetView = client.post(&format!("/v1/targets/{name}"), &target)?;
    }
    Ok(())
}

fn verify(source: &Source, size: Size) -> Result<(), Failure> {
    let bar = bar("writing and verifying");
    let plan = Plan {
        pattern: "write".parse().expect("a pattern that exists"),
        block_len_bytes: 128 << 10,
        depth: 8,
        end: bench::End::OnePass,
        size_bytes: Some(size.0.min(VERIFIED_MAX_BYTES)),
        ..Plan::new(vec![source.clone()])
    };
    let report = bench::verify(&plan, &bar).map_err(SystemFailure::Verify)?;
    bar.finish_and_clear();
    if report.differing_blocks > 0 || report.errors > 0 {
        return Err(SystemFailure::Differs(Box::new(report)).into());
    }
    output::line(format_args!("{report}\n"))
}

fn measure(source: &Source, daemon: &DemoDaemon) -> Result<(), Failure> {
    let bar = bar("measuring");
    let plan = Plan {
        daemon_pid: Some(daemon.child().id()),
        ..Plan::new(vec![source.clone()])
    };
    let report =
        bench::run_suite(&plan, SuiteKind::Quick, None, &bar).map_err(SystemFailure::Measure)?;
    bar.finish_and_clear();
    output::line(report)
}

fn bar(what: &str) -> ProgressBar {
    let style = ProgressStyle::with_template("{prefix} {wide_bar} {percent}% {msg}")
        .expect("the template is well-formed");
    let bar = ProgressBar::no_length()
        .with_style(style)
        .with_prefix(what.to_owned());
    bar.enable_steady_tick(Duration::from_millis(250));
    bar
}

fn tell_how_to_attach(daemon: &DemoDaemon) -> Result<(), Failure> {
    let (port, iscsi_port) = (daemon.port, daemon.iscsi_port);
    let address = local_address::facing_others(Ipv4Addr::UNSPECIFIED.into())
        .map_or_else(|| "ADDRESS".to_owned(), |address| address.to_string());
    let program = daemon.client_command();
    output::line(format_args!(
        "\nOn this machine, as root (nvme-cli):\n\
         \x20 modprobe nvme-tcp\n\
         \x20 nvme discover -t tcp -a 127.0.0.1 -s {port}\n\
         \x20 nvme connect -t tcp -a 127.0.0.1 -s {port} -n {TARGET}\n\
         or the same disk over iSCSI (open-iscsi):\n\
         \x20 iscsiadm -m discovery -t sendtargets -p 127.0.0.1:{iscsi_port}\n\
         \x20 iscsiadm -m node -T {ISCSI_TARGET} -p 127.0.0.1:{iscsi_port} --login\n\
         \n\
         It listens on loopback alone. To open it to other machines:\n\
         {}\n\
         \x20 (over iSCSI: the same with {ISCSI_TARGET} and iscsi://{address})\n\
         \n\
         Then, on another machine, as root:\n\
         \x20 modprobe nvme-tcp\n\
         \x20 nvme discover -t tcp -a {address} -s {PORT}\n\
         \x20 nvme connect -t tcp -a {address} -s {PORT} -n {TARGET}\n\
         \x20 nvme disconnect -n {TARGET}\n\
         \x20 (over iSCSI: iscsiadm as above with {address}, and --logout)\n\
         \n\
         Look around with:\n\
         \x20 {program} ls",
        open_to_others(&program, TARGET, &address)
    ))
}

/// A daemon that lives as long as the demonstration.
struct DemoDaemon {
    child: Mutex<Child>,
    folder: PathBuf,
    socket: PathBuf,
    port: u16,
    iscsi_port: u16,
    /// A signal has requested the end.
    is_ending: AtomicBool,
}

impl DemoDaemon {
    /// Starts the daemon on this socket, on which no daemon may answer, or on a private one.
    fn start(socket: Option<&Path>) -> Result<Self, Failure> {
        if let Some(taken) = socket.filter(|socket| UnixStream::connect(socket).is_ok()) {
            let socket = taken.to_owned();
            return Err(Mistake::DaemonOnSocket { socket }.into());
        }
        let folder = env::temp_dir().join(format!("ramport-demo-{}", process::id()));
        fs::create_dir_all(&folder).map_err(|source| SystemFailure::MakeFolder {
            path: folder.clone(),
            source,
        })?;
        let socket = socket.map_or_else(|| folder.join("ramport.sock"), Path::to_path_buf);
        let (port, iscsi_port) = (free_port(PORT), free_port(ISCSI_PORT));
        let program = env::current_exe().map_err(SystemFailure::Program)?;
        let child = Command::new(program)
            .args(["serve", "--log-level", "warn"])
            .arg("--socket")
            .arg(&socket)
            .arg("--state")
            .arg(folder.join("state"))
            .arg("--nvme-tcp")
            .arg(format!("127.0.0.1:{port}"))
            .arg("--iscsi")
            .arg(format!("127.0.0.1:{iscsi_port}"))
            // Ctrl-C reaches this process alone, which ends the daemon.
            .process_group(0)
            .spawn()
            .map_err(SystemFailure::StartDaemon)?;
        Ok(Self {
            child: Mutex::new(child),
            folder,
            socket,
            port,
            iscsi_port,
            is_ending: AtomicBool::new(false),
        })
    }

    /// Waits until the daemon answers.
    fn wait(&self) -> Result<Client, Failure> {
        let client = Client::new(Endpoint::Unix(self.socket.clone()))?;
        let deadline = Instant::now() + START_TIME;
        loop {
            if client.get::<StatusView>("/v1/status").is_ok() {
                return Ok(client);
            }
            if let Some(status) = self.child().try_wait()? {
                return Err(SystemFailure::DaemonEnded(status).into());
            }
            if Instant::now() > deadline {
                let waited_s = START_TIME.as_secs();
                return Err(SystemFailure::DaemonSilent { waited_s }.into());
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// The beginning of commands to this daemon from another terminal.
    fn client_command(&self) -> String {
        let program = env::current_exe().unwrap_or_else(|_| "ramport".into());
        format!("{} --socket {}", program.display(), self.socket.display())
    }

    /// Waits until the daemon ends by itself, which is a failure.
    fn wait_for_end(&self) -> Result<(), Failure> {
        loop {
            thread::sleep(Duration::from_millis(500));
            if let Some(status) = self.child().try_wait()? {
                return Err(SystemFailure::DaemonEnded(status).into());
            }
        }
    }

    /// Ends the daemon; kills it if it takes too long.
    fn stop(&self) {
        let mut child = self.child();
        let pid = i32::try_from(child.id()).ok();
        if let (Ok(None), Some(pid)) = (child.try_wait(), pid.and_then(Pid::from_raw)) {
            // It may have ended meanwhile.
            let _ = kill_process(pid, Signal::TERM);
        }
        let deadline = Instant::now() + STOP_TIME;
        while let Ok(None) = child.try_wait() {
            if Instant::now() > deadline {
                let _ = child.kill();
                let _ = child.wait();
            }
            thread::sleep(Duration::from_millis(20));
        }
        let _ = fs::remove_dir_all(&self.folder);
    }

    fn child(&self) -> MutexGuard<'_, Child> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A protocol's port on loopback, or another one where that is taken.
fn free_port(usual: u16) -> u16 {
    let port = |wanted| {
        let listener = TcpListener::bind(("127.0.0.1", wanted))?;
        listener.local_addr().map(|address| address.port())
    };
    port(usual)
        .or_else(|_: std::io::Error| port(0))
        .unwrap_or(usual)
}
