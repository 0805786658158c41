//! A program at a terminal of its own, which util-linux's `script` makes.

use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How long a program may take to write something: far more than it needs, as machines that test
/// are busy.
const ANSWER_TIME: Duration = Duration::from_secs(60);

pub(crate) struct Terminal {
    child: Child,
    /// What was written since the last look.
    output: Arc<Mutex<String>>,
}

impl Terminal {
    /// Runs a command of `sh`, with some variables of the environment.
    pub(crate) fn run(command: &str, environment: &[(&str, &str)]) -> Self {
        let mut child = Command::new("script")
            .args(["--quiet", "--flush", "--command", command, "/dev/null"])
            .env("TERM", "xterm")
            .env("INPUTRC", "/dev/null")
            .envs(environment.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("script runs");
        let output = Arc::new(Mutex::new(String::new()));
        let written = Arc::clone(&output);
        let mut reader = child.stdout.take().expect("a pipe");
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(len @ 1..) = reader.read(&mut buffer) {
                let text = String::from_utf8_lossy(&buffer[..len]);
                let mut written = written.lock().unwrap_or_else(PoisonError::into_inner);
                written.push_str(&text);
            }
        });
        Self { child, output }
    }

    pub(crate) fn type_in(&mut self, text: &str) {
        let input = self.child.stdin.as_mut().expect("a pipe");
        input.write_all(text.as_bytes()).expect("typed");
        input.flush().expect("typed");
    }

    /// Waits until the program has written `text`, and returns what it wrote until then.
    pub(crate) fn wait_for(&mut self, text: &str) -> String {
        let begin = Instant::now();
        loop {
            {
                let mut output = self.output.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(at) = output.find(text) {
                    let rest = output.split_off(at + text.len());
                    return std::mem::replace(&mut output, rest);
                }
                assert!(begin.elapsed() < ANSWER_TIME, "no {text:?} in {output:?}");
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until the program has ended.
    pub(crate) fn end(mut self) {
        let begin = Instant::now();
        while self.child.try_wait().expect("a child").is_none() {
            assert!(begin.elapsed() < ANSWER_TIME, "the program does not end");
            thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
