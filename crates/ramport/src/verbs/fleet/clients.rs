//! The clients of a fleet: each is a process that runs `ramport bench` on one volume.

use std::env;
use std::io::{self, Read};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bench::{Part, Stop};
use rustix::process::{Pid, Signal, kill_process};

use super::{Measured, Member, NodeCounts, Route};
use crate::cli::Point;
use crate::failure::Failure;
use crate::mistake::{Mistake, SystemFailure};

/// How long clients have to connect before they begin together, and how much more each of them
/// adds.
const CONNECT_TIME: Duration = Duration::from_millis(500);
const CONNECT_TIME_PER_CLIENT: Duration = Duration::from_millis(20);
/// How long a client may take beyond its times.
const END_TIME: Duration = Duration::from_secs(60);
/// How long a client may take to end after it was asked to.
const STOP_TIME: Duration = Duration::from_secs(5);
/// The interval of looks whether clients have ended.
const TICK: Duration = Duration::from_millis(50);
/// The most that is read of what a client prints.
const OUTPUT_MAX_BYTES: u64 = 64 << 20;

/// What is measured.
pub(crate) struct Load<'a> {
    pub(crate) point: Point,
    pub(crate) warm_up: Duration,
    pub(crate) cool_down: Duration,
    /// When the load begins; as soon as all clients can be connected, without it.
    pub(crate) begin: Option<SystemTime>,
    pub(crate) route: &'a Route,
    pub(crate) members: &'a [Member],
    /// The name of this machine's node.
    pub(crate) node: &'a str,
}

/// Sleeps until a time; false if `stop` was requested.
fn sleep_until(time: SystemTime, stop: &Stop) -> bool {
    while let Ok(left) = time.duration_since(SystemTime::now()) {
        if stop.is_requested() {
            return false;
        }
        thread::sleep(left.min(TICK));
    }
    true
}

/// Starts a client per member and waits for their counts; nothing if `stop` was requested.
pub(crate) fn measure(load: &Load<'_>, stop: &Stop) -> Result<Option<Measured>, Failure> {
    let clients = u32::try_from(load.members.len()).unwrap_or(u32::MAX);
    let connect_time = CONNECT_TIME + CONNECT_TIME_PER_CLIENT * clients;
    let now = SystemTime::now();
    let begin = load.begin.unwrap_or(now + connect_time);
    // Connections that wait for long would be given up.
    let start = begin - connect_time;
    if start < now && load.begin.is_some() {
        return Err(Mistake::BeginPassed { connect_time }.into());
    }
    if !sleep_until(start, stop) {
        return Ok(None);
    }
    let started = load.members.iter();
    let started = started.map(|member| Client::start(load, member, begin));
    let mut clients = started.collect::<Result<Vec<_>, _>>()?;
    let Load {
        point,
        warm_up,
        cool_down,
        ..
    } = load;
    let deadline = Instant::now() + connect_time + *warm_up + point.runtime + *cool_down + END_TIME;
    if !wait(&mut clients, deadline, stop)? {
        return Ok(None);
    }
    let counted = clients.into_iter().map(Client::finish);
    Ok(Some(Measured {
        point: *point,
        nodes: vec![NodeCounts {
            node: load.node.to_owned(),
            portal: load.route.portal.url.clone(),
            clients: counted.collect::<Result<_, _>>()?,
        }],
    }))
}

/// Waits until all clients have ended; false if `stop` was requested.
fn wait(clients: &mut [Client], deadline: Instant, stop: &Stop) -> Result<bool, Failure> {
    loop {
        let mut running = None;
        for client in clients.iter_mut() {
            if client.child.try_wait()?.is_none() {
                running = Some(client.name.clone());
            }
        }
        let Some(name) = running else {
            return Ok(!stop.is_requested());
        };
        if stop.is_requested() {
            interrupt(clients);
            return Ok(false);
        }
        if Instant::now() > deadline {
            return Err(SystemFailure::ClientSilent { name }.into());
        }
        thread::sleep(TICK);
    }
}

/// Asks the clients to end, and waits for them. Those that do not are killed when they are dropped.
fn interrupt(clients: &mut [Client]) {
    for client in clients.iter_mut() {
        let pid = Pid::from_child(&client.child);
        if let Ok(None) = client.child.try_wait() {
            // It may have ended meanwhile.
            let _ = kill_process(pid, Signal::INT);
        }
    }
    let deadline = Instant::now() + STOP_TIME;
    while Instant::now() < deadline
        && clients
            .iter_mut()
            .any(|it| matches!(it.child.try_wait(), Ok(None)))
    {
        thread::sleep(TICK);
    }
}

/// A process, which is killed when it is dropped.
struct Client {
    name: String,
    child: Child,
    output: Option<JoinHandle<io::Result<String>>>,
    errors: Option<JoinHandle<io::Result<String>>>,
}

impl Client {
    fn start(load: &Load<'_>, member: &Member, begin: SystemTime) -> Result<Self, Failure> {
        let program = env::current_exe().map_err(SystemFailure::Program)?;
        let mut child = Command::new(program)
            .args(arguments(load, member, begin))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Ctrl-C reaches this process alone, which ends the clients.
            .process_group(0)
            .spawn()
            .map_err(SystemFailure::StartClient)?;
        let (output, errors) = (child.stdout.take(), child.stderr.take());
        Ok(Self {
            name: member.volume.clone(),
            child,
            output: output.map(read_all),
            errors: errors.map(read_all),
        })
    }

    /// Its counts, after it has ended.
    fn finish(mut self) -> Result<(String, Part), Failure> {
        let name = self.name.clone();
        let output = text(self.output.take());
        if let Ok(part) = serde_json::from_str(&output) {
            return Ok((name, part));
        }
        let errors = text(self.errors.take());
        let reason = errors.lines().last().unwrap_or("it printed nothing");
        let reason = reason.trim_start_matches("ramport: ").to_owned();
        Err(SystemFailure::Client { name, reason }.into())
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Reads what a process writes, on a thread: pipes hold little.
fn read_all(from: impl Read + Send + 'static) -> JoinHandle<io::Result<String>> {
    thread::spawn(move || {
        let mut text = String::new();
        from.take(OUTPUT_MAX_BYTES).read_to_string(&mut text)?;
        Ok(text)
    })
}

fn text(reader: Option<JoinHandle<io::Result<String>>>) -> String {
    let read = reader.and_then(|reader| reader.join().ok());
    read.and_then(Result::ok).unwrap_or_default()
}

/// The command line of a client.
fn arguments(load: &Load<'_>, member: &Member, begin: SystemTime) -> Vec<String> {
    let Point {
        bs,
        w,
        threads,
        iodepth,
        runtime,
    } = load.point;
    let begin = begin.duration_since(UNIX_EPOCH).unwrap_or_default();
    let rw = match w {
        0 => "randread",
        100 => "randwrite",
        _ => "randrw",
    };
    let seconds = |time: Duration| time.as_secs_f64().to_string();
    let options = [
        ("--rw", rw.to_owned()),
        ("--rwmixread", (100 - w).to_string()),
        ("--bs", bs.to_string()),
        ("--numjobs", threads.to_string()),
        ("--iodepth", iodepth.to_string()),
        ("--runtime", seconds(runtime)),
        ("--ramp-time", seconds(load.warm_up)),
        ("--cool-down", seconds(load.cool_down)),
        ("--randseed", member.number.to_string()),
        ("--begin-unix-ms", begin.as_millis().to_string()),
        // Many processes share the processors.
        ("--poll", "sleep".to_owned()),
    ];
    let url = load.route.url(&member.target, member.number);
    let mut arguments = vec!["bench".to_owned(), url];
    arguments.extend(["--part", "--write", "--continue-on-error"].map(str::to_owned));
    for (name, value) in options {
        arguments.extend([name.to_owned(), value]);
    }
    arguments
}
