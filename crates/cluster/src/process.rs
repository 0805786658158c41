//! A program that runs as long as the daemon: restarted when it ends, ended with the daemon.

use std::collections::VecDeque;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

/// The wait after the first end; it doubles with each end that follows soon.
const BACK_OFF_MIN: Duration = Duration::from_millis(200);
/// The longest wait.
const BACK_OFF_MAX: Duration = Duration::from_secs(30);
/// After so long the program counts as one that runs.
const RUNS: Duration = Duration::from_secs(60);
/// How long the program may take to end after SIGTERM.
const END_LIMIT: Duration = Duration::from_secs(5);
/// How long the last lines of a program that has ended are waited for.
const REST_LIMIT: Duration = Duration::from_secs(1);
/// The longest line that is kept of what the program writes.
const LINE_MAX_BYTES: usize = 1 << 10;
/// Lines that are kept.
const LINES_MAX: usize = 5;

/// How to start a program.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) path: PathBuf,
    pub(crate) args: Vec<String>,
    /// Where its process number is kept, so that one that a killed daemon left is found.
    pub(crate) pid_file: PathBuf,
    /// An argument that no other process has.
    pub(crate) mark: String,
}

/// A program at work.
#[derive(Debug)]
pub(crate) struct Supervised {
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
    last_lines: Arc<Mutex<VecDeque<String>>>,
}

impl Supervised {
    /// Starts the program, within a runtime.
    pub(crate) fn start(program: Program) -> Self {
        let (stop, stopped) = watch::channel(false);
        let last_lines = Arc::default();
        let task = tokio::spawn(supervise(program, stopped, Arc::clone(&last_lines)));
        Self {
            stop,
            task,
            last_lines,
        }
    }

    /// What the program wrote last, for errors.
    pub(crate) fn last_lines(&self) -> String {
        let lines = self
            .last_lines
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        lines.iter().cloned().collect::<Vec<_>>().join("; ")
    }

    /// Ends the program and waits for its end.
    pub(crate) async fn stop(self) {
        let _ = self.stop.send(true);
        // A panic of the task was reported; its child was killed.
        let _ = self.task.await;
    }
}

async fn supervise(
    program: Program,
    mut stopped: watch::Receiver<bool>,
    lines: Arc<Mutex<VecDeque<String>>>,
) {
    end_leftover(&program).await;
    let name = program.path.display().to_string();
    let mut back_off = BACK_OFF_MIN;
    while !*stopped.borrow() {
        let begin = Instant::now();
        let ended = match spawn(&program) {
            Ok(mut child) => {
                // Until the end of what it writes: a program whose output nobody reads is killed
                // by SIGPIPE instead of ending in order.
                let written = child.stderr.take().map(|written| {
                    let lines = Arc::clone(&lines);
                    tokio::spawn(async move { read_lines(written, &lines).await })
                });
                let ended = tokio::select! {
                    ended = child.wait() => Some(ended),
                    () = is_stopped(&mut stopped) => None,
                };
                let Some(ended) = ended else {
                    end(&mut child).await;
                    break;
                };
                if let Some(written) = written {
                    // A process that it started may have its output open.
                    let _ = timeout(REST_LIMIT, written).await;
                }
                ended.map_or_else(|error| error.to_string(), |status| status.to_string())
            }
            Err(error) => error.to_string(),
        };
        if begin.elapsed() >= RUNS {
            back_off = BACK_OFF_MIN;
        }
        let again_ms = back_off.as_millis();
        let last = last_of(&lines);
        tracing::warn!(
            program = name,
            ended,
            last,
            again_ms,
            "a program of the cluster ended"
        );
        keep(&lines, format!("{name}: {ended}"));
        tokio::select! {
            () = sleep(back_off) => {}
            () = is_stopped(&mut stopped) => {}
        }
        back_off = (2 * back_off).min(BACK_OFF_MAX);
    }
    let _ = fs::remove_file(&program.pid_file);
}

async fn is_stopped(stopped: &mut watch::Receiver<bool>) {
    // The sender's end is the end as well.
    let _ = stopped.wait_for(|&is_stopped| is_stopped).await;
}

fn spawn(program: &Program) -> io::Result<Child> {
    let child = Command::new(&program.path)
        .args(&program.args)
        // Its options are complete; etcd would take further ones from variables.
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    if let Some(pid) = child.id() {
        fs::write(&program.pid_file, pid.to_string())?;
    }
    Ok(child)
}

async fn read_lines(mut from: impl AsyncRead + Unpin, lines: &Mutex<VecDeque<String>>) {
    let mut line = Vec::new();
    let mut buffer = [0; 4096];
    while let Ok(len @ 1..) = from.read(&mut buffer).await {
        for byte in &buffer[..len] {
            match byte {
                b'\n' => keep(
                    lines,
                    String::from_utf8_lossy(&std::mem::take(&mut line)).into(),
                ),
                _ if line.len() < LINE_MAX_BYTES => line.push(*byte),
                _ => {}
            }
        }
    }
}

fn keep(lines: &Mutex<VecDeque<String>>, line: String) {
    tracing::debug!(line, "a program of the cluster wrote");
    let mut lines = lines.lock().unwrap_or_else(PoisonError::into_inner);
    if lines.len() == LINES_MAX {
        lines.pop_front();
    }
    lines.push_back(line);
}

fn last_of(lines: &Mutex<VecDeque<String>>) -> Option<String> {
    let lines = lines.lock().unwrap_or_else(PoisonError::into_inner);
    lines.back().cloned()
}

/// Ends the program: with SIGTERM, and after [`END_LIMIT`] with SIGKILL.
async fn end(child: &mut Child) {
    let pid = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
    if let Some(pid) = pid {
        let _ = kill_process(pid, Signal::TERM);
    }
    if timeout(END_LIMIT, child.wait()).await.is_err() {
        let _ = child.kill().await;
    }
}

/// Ends the program that a killed daemon left behind.
async fn end_leftover(program: &Program) {
    let Some(pid) = leftover(&program.pid_file, &program.mark) else {
        return;
    };
    tracing::info!(
        pid = pid.as_raw_nonzero().get(),
        "ends a program that a daemon left behind"
    );
    let _ = kill_process(pid, Signal::TERM);
    let begin = Instant::now();
    while leftover(&program.pid_file, &program.mark).is_some() {
        if begin.elapsed() >= END_LIMIT {
            let _ = kill_process(pid, Signal::KILL);
        }
        if begin.elapsed() >= 2 * END_LIMIT {
            return;
        }
        sleep(Duration::from_millis(20)).await;
    }
}

/// The process of the file, if it is the program: its number may belong to another one by now.
fn leftover(pid_file: &Path, mark: &str) -> Option<Pid> {
    let number: i32 = fs::read_to_string(pid_file).ok()?.trim().parse().ok()?;
    let pid = (number > 0).then(|| Pid::from_raw(number)).flatten()?;
    let line = fs::read(format!("/proc/{number}/cmdline")).ok()?;
    let mut args = line.split(|byte| *byte == 0);
    args.any(|arg| arg == mark.as_bytes()).then_some(pid)
}

#[cfg(test)]
mod tests {
    use block::testing::Folder;

    use super::*;

    /// A shell that adds a line to a file and then does `then`.
    fn shell(folder: &Folder, then: &str) -> Program {
        let mark = folder.join("runs").display().to_string();
        let script = format!("echo run >> \"$0\"; echo told >&2; {then}");
        Program {
            path: "/bin/sh".into(),
            args: vec!["-c".to_owned(), script, mark.clone()],
            pid_file: folder.join("pid"),
            mark,
        }
    }

    fn runs(folder: &Folder) -> usize {
        let text = fs::read_to_string(folder.join("runs")).unwrap_or_default();
        text.lines().count()
    }

    async fn until(is_so: impl Fn() -> bool) {
        let begin = Instant::now();
        while !is_so() {
            assert!(begin.elapsed() < Duration::from_secs(30));
            sleep(Duration::from_millis(10)).await;
        }
    }

    #[tokio::test]
    async fn a_program_that_ends_is_started_again_ever_later() {
        let folder = Folder::new();
        let begin = Instant::now();
        let program = Supervised::start(shell(&folder, "exit 3"));
        until(|| runs(&folder) == 4).await;
        let waits = BACK_OFF_MIN * (1 + 2 + 4);
        assert!(begin.elapsed() >= waits, "{:?}", begin.elapsed());
        assert!(
            program.last_lines().contains("told"),
            "{}",
            program.last_lines()
        );
        assert!(program.last_lines().contains("exit status: 3"));
        program.stop().await;
        assert!(!folder.join("pid").exists());
    }

    #[tokio::test]
    async fn a_program_ends_with_the_daemon_and_one_that_was_left_is_ended() {
        let folder = Folder::new();
        let endless = || shell(&folder, "while :; do sleep 1; done");
        let (pid_file, mark) = (folder.join("pid"), endless().mark);
        let first = Supervised::start(endless());
        until(|| runs(&folder) == 1 && leftover(&pid_file, &mark).is_some()).await;
        let pid = leftover(&pid_file, &mark);
        // As if the daemon had been killed: its file stays.
        let copy = folder.join("copy");
        fs::copy(&pid_file, &copy).expect("copied");
        let other = Program {
            pid_file: copy.clone(),
            ..endless()
        };
        let second = Supervised::start(other);
        until(|| runs(&folder) >= 2).await;
        until(|| leftover(&copy, &mark) != pid).await;
        first.stop().await;
        second.stop().await;
        assert_eq!(leftover(&copy, &mark), None);
    }

    #[tokio::test]
    async fn a_program_that_is_ended_can_write_until_its_end() {
        let folder = Folder::new();
        let then = "trap 'echo last >&2; echo last >&2; echo end > \"$0\"; exit' TERM; \
                    while :; do sleep 0.1; done";
        let program = Supervised::start(shell(&folder, then));
        until(|| runs(&folder) == 1).await;
        // The trap is set after the first line.
        sleep(Duration::from_millis(300)).await;
        let lines = Arc::clone(&program.last_lines);
        program.stop().await;
        assert_eq!(
            fs::read_to_string(folder.join("runs")).expect("written"),
            "end\n"
        );
        assert_eq!(last_of(&lines).as_deref(), Some("last"));
    }

    #[test]
    fn a_process_that_is_another_program_is_left_alone() {
        let folder = Folder::new();
        let pid_file = folder.join("pid");
        fs::write(&pid_file, std::process::id().to_string()).expect("written");
        assert_eq!(leftover(&pid_file, "no argument of this test"), None);
        for text in ["", "-1", "0", "x", "99999999999"] {
            fs::write(&pid_file, text).expect("written");
            assert_eq!(leftover(&pid_file, ""), None, "{text}");
        }
    }
}
