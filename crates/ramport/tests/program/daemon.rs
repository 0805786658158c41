//! A daemon that tests drive: the real binary in a folder of its own.

use std::fs::OpenOptions;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

/// How long a daemon may take to answer: far more than it needs, as machines that test are busy.
const START_TIME: Duration = Duration::from_secs(30);

pub(crate) struct Daemon {
    pub(crate) child: Child,
    pub(crate) folder: PathBuf,
    /// Arguments of `serve` beside those of all daemons.
    more: Vec<String>,
}

impl Daemon {
    pub(crate) fn start(name: &str) -> Self {
        Self::start_with(name, &[])
    }

    pub(crate) fn start_with(name: &str, more: &[&str]) -> Self {
        let folder = std::env::temp_dir().join(format!("ramport-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("the temporary folder can be written");
        let mut daemon = Self {
            child: serve(&folder, more),
            folder,
            more: more.iter().map(ToString::to_string).collect(),
        };
        daemon.wait();
        daemon
    }

    /// Waits until the daemon answers.
    pub(crate) fn wait(&mut self) {
        self.wait_for(|daemon| daemon.run(&["capacity"]).status.success().then_some(()));
    }

    /// Repeats `answer` until it returns a value.
    fn wait_for<T>(&mut self, answer: impl Fn(&Self) -> Option<T>) -> T {
        let begin = Instant::now();
        loop {
            if let Some(value) = answer(self) {
                return value;
            }
            assert!(begin.elapsed() < START_TIME, "the daemon does not answer");
            let ended = self.child.try_wait().expect("a child");
            assert!(ended.is_none(), "the daemon ended: {ended:?}");
            thread::sleep(Duration::from_millis(5));
        }
    }

    pub(crate) fn kill_and_restart(&mut self) {
        self.kill();
        self.restart();
    }

    /// Starts the daemon again.
    pub(crate) fn restart(&mut self) {
        self.child = self.serve();
        self.wait();
    }

    /// Stops the daemon as a service manager does, and starts it again.
    pub(crate) fn stop_and_restart(&mut self) {
        let pid = self.child.id().to_string();
        let told = Command::new("kill").args(["-TERM", &pid]).status();
        assert!(told.expect("there is kill").success());
        let ended = self.child.wait().expect("a child");
        assert!(ended.success(), "the daemon ended: {ended:?}");
        self.restart();
    }

    /// Kills the daemon, starts it again, and repeats `answer` until it returns a value. Returns
    /// the value, and how long that took from the start.
    pub(crate) fn kill_and_restart_until<T>(
        &mut self,
        answer: impl Fn(&Self) -> Option<T>,
    ) -> (T, Duration) {
        self.kill();
        let begin = Instant::now();
        self.child = self.serve();
        let value = self.wait_for(answer);
        (value, begin.elapsed())
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("killed");
        self.child.wait().expect("ended");
    }

    fn serve(&self) -> Child {
        let more: Vec<_> = self.more.iter().map(String::as_str).collect();
        serve(&self.folder, &more)
    }

    pub(crate) fn run(&self, args: &[&str]) -> Output {
        ramport()
            .arg("--socket")
            .arg(self.folder.join("socket"))
            .args(args)
            .output()
            .expect("the program runs")
    }

    /// What a verb that succeeds prints.
    pub(crate) fn ok(&self, args: &[&str]) -> String {
        let output = self.run(args);
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{args:?}: {told}");
        String::from_utf8(output.stdout).expect("text")
    }

    pub(crate) fn json(&self, args: &[&str]) -> Value {
        serde_json::from_str(&self.ok(&[&["--json"], args].concat())).expect("JSON")
    }

    /// The log of the daemon and of those before it in the same folder.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    /// Where it serves REST on TCP after this many starts, which its log says at level `info`.
    pub(crate) fn rest_address(&mut self, starts: usize) -> String {
        self.wait_for(|daemon| {
            let log = daemon.log();
            let address = log.split("REST on TCP address=\"").nth(starts)?;
            let (address, _) = address.split_once('"')?;
            Some(address.to_owned())
        })
    }

    /// What the REST interface answers to a GET.
    pub(crate) fn get(&self, path: &str) -> String {
        let socket = self.folder.join("socket");
        let mut socket = UnixStream::connect(socket).expect("the daemon listens");
        write!(socket, "GET {path} HTTP/1.0\r\n\r\n").expect("sent");
        let mut answer = String::new();
        socket.read_to_string(&mut answer).expect("text");
        let (_, body) = answer.split_once("\r\n\r\n").expect("a header");
        body.to_owned()
    }

    /// Waits until a metric of one volume has this value; `label` is another of its labels.
    pub(crate) fn wait_for_metric(&self, metric: &str, label: &str, value: u64) {
        let begin = Instant::now();
        while self.metric(metric, label) != value {
            let metrics = self.get("/metrics");
            assert!(begin.elapsed() < 2 * START_TIME, "{metric}:\n{metrics}");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// The value of the metric of this name with this label.
    pub(crate) fn metric(&self, metric: &str, label: &str) -> u64 {
        let metrics = self.get("/metrics");
        let is_it = |line: &&str| {
            let labels = line.strip_prefix(metric).unwrap_or_default();
            labels.starts_with('{') && labels.contains(&format!("={label:?}"))
        };
        let line = metrics.lines().find(is_it);
        let line = line.unwrap_or_else(|| panic!("no {metric} of {label}:\n{metrics}"));
        let (_, value) = line.rsplit_once(' ').expect("a value");
        value.parse().expect("a number")
    }

    /// The message of a mistake.
    pub(crate) fn mistake(&self, args: &[&str]) -> String {
        mistake(&self.run(args), args)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let log = self.log();
        if thread::panicking() && !log.is_empty() {
            println!("the daemon's log:\n{log}");
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

pub(crate) fn ramport() -> Command {
    Command::new(env!("CARGO_BIN_EXE_ramport"))
}

pub(crate) fn serve(folder: &std::path::Path, more: &[&str]) -> Child {
    let mut log = OpenOptions::new();
    let log = log.create(true).append(true).open(folder.join("log"));
    ramport()
        .args(["serve", "--memory", "256M", "--cores", "1"])
        .args(["--nvme-tcp", "127.0.0.1:0"])
        .args(more)
        .env("RAMPORT_LOG", "error")
        .env("RAMPORT_LOST_CONTENTS", "zeros")
        .arg("--socket")
        .arg(folder.join("socket"))
        .arg("--state")
        .arg(folder.join("state"))
        .stdin(Stdio::null())
        .stderr(log.expect("the folder can be written"))
        .spawn()
        .expect("the daemon starts")
}

pub(crate) fn mistake(output: &Output, args: &[&str]) -> String {
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{args:?}: {told}");
    told
}
