//! `ramport demo`: a RAM disk in one command, checked and measured. A daemon of its own serves it.

use std::env;
use std::fs;
use std::net::{IpAddr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use bench::{Plan, ProgressBar, Source, SuiteKind};
use control::{Client, Endpoint, Size, StatusView, Target, TargetView, Volume, VolumeView};
use indicatif::ProgressStyle;
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

use crate::cli::DemoArgs;
use crate::failure::Failure;
use crate::verbs::open_to_others;
use crate::{output, paths};

/// The RAM disk's name.
const VOLUME: &str = "rd0";
/// The target's name.
const TARGET: &str = "nqn.2025-01.io.ramport:rd0";
/// NVMe/TCP's port.
const PORT: u16 = 4420;
/// How long the daemon may take to start.
const START_TIME: Duration = Duration::from_secs(10);
/// How long it may take to stop.
const STOP_TIME: Duration = Duration::from_secs(10);

/// Serves, checks, measures, and goes on serving until a signal.
pub(crate) fn run(args: &DemoArgs) -> Result<(), Failure> {
    let mut daemon = DemoDaemon::start()?;
    let outcome = show(&mut daemon, args);
    daemon.stop();
    outcome
}

fn show(daemon: &mut DemoDaemon, args: &DemoArgs) -> Result<(), Failure> {
    let client = daemon.wait()?;
    define(&client, args.size)?;
    let url = format!("nvme+tcp://127.0.0.1:{}/{TARGET}?ns=1", daemon.port);
    output::line(format_args!(
        "RAM disk of {} at {url}\n",
        output::bytes(args.size.0)
    ))?;
    let source: Source = url.parse().map_err(Failure::mistake)?;
    verify(&source)?;
    measure(&source, daemon)?;
    tell_how_to_attach(daemon)?;
    if args.once {
        return Ok(());
    }
    output::line("\nServing. Ctrl-C ends it.")?;
    daemon.wait_for_end()
}

fn define(client: &Client, size: Size) -> Result<(), Failure> {
    let volume: Volume =
        serde_json::from_value(json!({ "size": size })).map_err(anyhow::Error::from)?;
    let _: VolumeView = client.post(&format!("/v1/volumes/{VOLUME}"), &volume)?;
    let target: Target = serde_json::from_value(json!({ "namespaces": { "1": VOLUME } }))
        .map_err(anyhow::Error::from)?;
    let _: TargetView = client.post(&format!("/v1/targets/{TARGET}"), &target)?;
    Ok(())
}

fn verify(source: &Source) -> Result<(), Failure> {
    let bar = bar("writing and verifying");
    let plan = Plan {
        block_len_bytes: 128 << 10,
        end: bench::End::OnePass,
        ..Plan::new(vec![source.clone()])
    };
    let report = bench::verify(&plan, &bar).context("can't verify the RAM disk")?;
    bar.finish_and_clear();
    if report.differing_blocks > 0 || report.errors > 0 {
        return Err(Failure::Broken(anyhow!("verification failed:\n{report}")));
    }
    output::line(format_args!("{report}\n"))
}

fn measure(source: &Source, daemon: &DemoDaemon) -> Result<(), Failure> {
    let bar = bar("measuring");
    let plan = Plan {
        daemon_pid: Some(daemon.child.id()),
        ..Plan::new(vec![source.clone()])
    };
    let report = bench::run_suite(&plan, SuiteKind::Quick, &bar).context("can't measure")?;
    bar.finish_and_clear();
    output::line(report)
}

fn bar(what: &str) -> ProgressBar {
    let style = ProgressStyle::with_template("{prefix} {wide_bar} {percent}% {msg}")
        .expect("the template is well-formed");
    let bar = ProgressBar::new(0)
        .with_style(style)
        .with_prefix(what.to_owned());
    bar.enable_steady_tick(Duration::from_millis(250));
    bar
}

fn tell_how_to_attach(daemon: &DemoDaemon) -> Result<(), Failure> {
    let port = daemon.port;
    let address = own_address();
    let program = daemon.client_command();
    output::line(format_args!(
        "\nOn this machine, as root (nvme-cli):\n\
         \x20 modprobe nvme-tcp\n\
         \x20 nvme discover -t tcp -a 127.0.0.1 -s {port}\n\
         \x20 nvme connect -t tcp -a 127.0.0.1 -s {port} -n {TARGET}\n\
         \n\
         It listens on loopback alone. To open it to other machines:\n\
         {}\n\
         \n\
         Then, on another machine, as root:\n\
         \x20 modprobe nvme-tcp\n\
         \x20 nvme discover -t tcp -a {address} -s {PORT}\n\
         \x20 nvme connect -t tcp -a {address} -s {PORT} -n {TARGET}\n\
         \x20 nvme disconnect -n {TARGET}\n\
         \n\
         Look around with:\n\
         \x20 {program} ls",
        open_to_others(&program, TARGET, &address)
    ))
}

/// The address of this machine that other machines reach: the one that packets to them would come from. Nothing is
/// sent.
fn own_address() -> String {
    let address = UdpSocket::bind("0.0.0.0:0").and_then(|socket| {
        // TEST-NET-1: any address beyond the local network does.
        socket.connect("192.0.2.1:9")?;
        socket.local_addr()
    });
    match address.map(|address| address.ip()) {
        Ok(IpAddr::V4(address)) if !address.is_loopback() && !address.is_unspecified() => {
            address.to_string()
        }
        _ => "ADDRESS".to_owned(),
    }
}

/// A daemon that lives as long as the demonstration.
struct DemoDaemon {
    child: Child,
    folder: PathBuf,
    socket: PathBuf,
    port: u16,
}

impl DemoDaemon {
    fn start() -> Result<Self, Failure> {
        let folder = env::temp_dir().join(format!("ramport-demo-{}", std::process::id()));
        fs::create_dir_all(&folder)
            .with_context(|| format!("can't make the folder {}", folder.display()))?;
        let socket = demo_socket(&folder);
        let port = free_port();
        let program = env::current_exe().context("can't find the program itself")?;
        let child = Command::new(program)
            .args(["serve", "--log-level", "warn"])
            .arg("--socket")
            .arg(&socket)
            .arg("--state")
            .arg(folder.join("state"))
            .arg("--nvme-tcp")
            .arg(format!("127.0.0.1:{port}"))
            .spawn()
            .context("can't start the daemon")?;
        Ok(Self {
            child,
            folder,
            socket,
            port,
        })
    }

    /// Waits until the daemon answers.
    fn wait(&mut self) -> Result<Client, Failure> {
        let client = Client::new(Endpoint::Unix(self.socket.clone()))?;
        let deadline = Instant::now() + START_TIME;
        loop {
            if client.get::<StatusView>("/v1/status").is_ok() {
                return Ok(client);
            }
            if let Some(status) = self.child.try_wait()? {
                return Err(Failure::Broken(anyhow!("the daemon ended: {status}")));
            }
            if Instant::now() > deadline {
                return Err(Failure::Broken(anyhow!(
                    "the daemon does not answer after {} s",
                    START_TIME.as_secs()
                )));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// How to speak to it from another terminal.
    fn client_command(&self) -> String {
        let program = env::current_exe().unwrap_or_else(|_| "ramport".into());
        if self.socket == paths::socket() {
            return program.display().to_string();
        }
        format!("{} --socket {}", program.display(), self.socket.display())
    }

    /// Waits until a signal comes, or the daemon ends by itself.
    fn wait_for_end(&mut self) -> Result<(), Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let status: std::io::Result<_> = runtime.block_on(async {
            let mut interrupt = signal(SignalKind::interrupt())?;
            let mut terminate = signal(SignalKind::terminate())?;
            loop {
                tokio::select! {
                    _ = interrupt.recv() => return Ok(None),
                    _ = terminate.recv() => return Ok(None),
                    () = tokio::time::sleep(Duration::from_millis(500)) => {}
                }
                if let Some(status) = self.child.try_wait()? {
                    return Ok(Some(status));
                }
            }
        });
        match status? {
            None => Ok(()),
            Some(status) => Err(Failure::Broken(anyhow!("the daemon ended: {status}"))),
        }
    }

    /// Ends the daemon. A Ctrl-C has reached it already, as it is in the same foreground group; a second signal would
    /// cut its end short, so it gets one only where it goes on.
    fn stop(&mut self) {
        let deadline = Instant::now() + STOP_TIME;
        let mut told = Instant::now() + Duration::from_millis(300);
        while let Ok(None) = self.child.try_wait() {
            let now = Instant::now();
            if now > deadline {
                let _ = self.child.kill();
                let _ = self.child.wait();
                break;
            }
            if now > told && self.socket.exists() {
                self.terminate();
                told = deadline;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = fs::remove_dir_all(&self.folder);
    }

    fn terminate(&self) {
        let pid = i32::try_from(self.child.id())
            .ok()
            .and_then(rustix::process::Pid::from_raw);
        if let Some(pid) = pid {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
    }
}

/// The default socket, so that `ramport ls` finds the daemon; one in the demonstration's folder where another daemon has
/// that.
fn demo_socket(folder: &Path) -> PathBuf {
    let default = paths::socket();
    let taken = std::os::unix::net::UnixStream::connect(&default).is_ok();
    if taken {
        folder.join("ramport.sock")
    } else {
        default
    }
}

/// NVMe/TCP's port on loopback, or another one where that is taken.
fn free_port() -> u16 {
    let port = |wanted| {
        let listener = TcpListener::bind(("127.0.0.1", wanted))?;
        listener.local_addr().map(|address| address.port())
    };
    port(PORT)
        .or_else(|_: std::io::Error| port(0))
        .unwrap_or(PORT)
}
