//! The stream of figures.

use std::io::{BufRead, BufReader, Write};
use std::ops::ControlFlow;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use super::super::top::TOP_STREAMS_MAX;
use super::*;
use crate::TopView;

/// How long anything may take: far more than it needs, as machines that test are busy.
const PATIENCE: Duration = Duration::from_secs(30);

/// Volumes whose figures fill a socket's buffer within a few intervals.
const VOLUMES: usize = 2000;

impl Daemon {
    /// A request for a stream whose response nobody reads yet.
    fn open_stream(&self) -> BufReader<UnixStream> {
        let mut socket = UnixStream::connect(self.folder.join("socket")).expect("it listens");
        socket.set_read_timeout(Some(PATIENCE)).expect("set");
        let request = "GET /v1/top?interval=100ms HTTP/1.1\r\nhost: ramport\r\n\r\n";
        socket.write_all(request.as_bytes()).expect("sent");
        BufReader::new(socket)
    }

    fn with_volumes(count: usize) -> Self {
        let daemon = Self::start();
        let volumes = (0..count).map(|at| (format!("v{at}"), json!({"size": "1M"})));
        let volumes: serde_json::Map<_, _> = volumes.collect();
        let put = daemon
            .client
            .raw("PUT", "/v1/definitions", &json!({"volumes": volumes}));
        assert_eq!(put.expect("an answer").0, 200);
        daemon
    }
}

fn line(stream: &mut BufReader<UnixStream>) -> String {
    let mut line = String::new();
    stream.read_line(&mut line).expect("a line");
    line
}

/// The next document of a stream.
fn document(stream: &mut BufReader<UnixStream>) -> TopView {
    loop {
        if let Some(json) = line(stream).strip_prefix("data: ") {
            return serde_json::from_str(json).expect("a document");
        }
    }
}

#[test]
fn a_client_that_does_not_read_is_skipped_and_another_has_every_interval() {
    let daemon = Daemon::with_volumes(VOLUMES);
    let mut stalled = daemon.open_stream();
    assert_eq!(line(&mut stalled), "HTTP/1.1 200 OK\r\n");
    let mut views: Vec<TopView> = Vec::new();
    let followed = daemon.client.follow("/v1/top?interval=100ms", |view| {
        views.push(view);
        if views.len() < 30 {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    });
    followed.expect("a stream");
    for view in &views {
        assert_eq!(view.volumes.len(), VOLUMES);
        assert!(view.interval_ms >= 100.0, "{}", view.interval_ms);
        assert_eq!(view.threads[0].name, "reactor-0");
        assert_eq!(view.memory.budget_bytes, 256 << 20);
        assert!(view.total.latency_mean_us.is_none() && view.total.iops == 0.0);
    }
    let names: Vec<_> = views[0]
        .volumes
        .iter()
        .map(|one| one.name.as_str())
        .collect();
    assert_eq!(names[..3], ["v0", "v1", "v2"]);
    assert!(views.is_sorted_by(|a, b| a.time_unix_ms < b.time_unix_ms));
    // Nothing was read for the client that did not read: when it does, an interval is as long as
    // its pause.
    let last_ms = views[views.len() - 1].time_unix_ms;
    let interval_ms = loop {
        let view = document(&mut stalled);
        if view.time_unix_ms > last_ms {
            break view.interval_ms;
        }
    };
    assert!(interval_ms > 1000.0, "{interval_ms}");
}

#[test]
fn streams_are_bounded_and_a_closed_one_frees_its_place() {
    let daemon = Daemon::start();
    let mut open: Vec<_> = (0..TOP_STREAMS_MAX).map(|_| daemon.open_stream()).collect();
    for stream in &mut open {
        assert_eq!(line(stream), "HTTP/1.1 200 OK\r\n");
    }
    let (status, text) = daemon
        .client
        .raw("GET", "/v1/top", &Value::Null)
        .expect("an answer");
    assert_eq!(status, 503);
    assert!(text.contains("16 streams of figures are open"), "{text}");
    open.pop();
    let end = Instant::now() + PATIENCE;
    let first = || {
        let mut first = None;
        let followed = daemon
            .client
            .follow("/v1/top?interval=100ms", |view: TopView| {
                first = Some(view);
                ControlFlow::Break(())
            });
        followed.ok().and(first)
    };
    while first().is_none() {
        assert!(Instant::now() < end, "the place is not free");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn an_interval_out_of_range_is_rejected_with_the_range() {
    let daemon = Daemon::start();
    for (given, reason) in [
        (
            "99ms",
            r#"interval \"99ms\" is out of range; choose a duration from 100ms to 1m"#,
        ),
        ("61s", "choose a duration from 100ms to 1m"),
        (
            "soon",
            r#"interval \"soon\" is not a whole number with a unit"#,
        ),
    ] {
        let path = format!("/v1/top?interval={given}");
        let (status, text) = daemon
            .client
            .raw("GET", &path, &Value::Null)
            .expect("an answer");
        assert_eq!(status, 400);
        assert!(text.contains(reason), "{text}");
    }
}

#[test]
fn streams_end_when_the_interface_stops_even_if_a_client_does_not_read() {
    let mut daemon = Daemon::with_volumes(VOLUMES);
    let mut stalled = daemon.open_stream();
    assert_eq!(line(&mut stalled), "HTTP/1.1 200 OK\r\n");
    let client = Client::new(Endpoint::Unix(daemon.folder.join("socket"))).expect("a client");
    let (tell, told) = std::sync::mpsc::channel();
    let follower = thread::spawn(move || {
        let mut seen = 0;
        client.follow("/v1/top?interval=100ms", |_: TopView| {
            seen += 1;
            if seen == 10 {
                tell.send(()).expect("the test waits");
            }
            ControlFlow::Continue(())
        })
    });
    told.recv().expect("documents");
    let begin = Instant::now();
    daemon.api.take().expect("it runs").stop();
    assert!(begin.elapsed() < PATIENCE, "{:?}", begin.elapsed());
    let followed = follower.join().expect("no panic");
    followed.expect("the stream has an end");
}
