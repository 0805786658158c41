//! The command's options, in any combination, on a small file.

use std::{
    fs,
    path::PathBuf,
    sync::{
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use clap::Parser;
use proptest::{option, prelude::*, sample::select};

use super::*;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    args: Args,
}

/// A file that is removed in the end.
struct TempFile(PathBuf);

impl TempFile {
    fn new() -> Self {
        Self::of(7)
    }

    fn of(byte: u8) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("bench-command-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::write(&path, vec![byte; LEN_BYTES]).expect("temp folder takes files");
        Self(path)
    }
}

impl TempFile {
    fn holds_only(&self, byte: u8) -> bool {
        let bytes = fs::read(&self.0).expect("reads");
        bytes.iter().all(|&it| it == byte)
    }

    /// Whether it is as it was created with `byte`.
    fn is_untouched(&self, byte: u8) -> bool {
        let metadata = fs::metadata(&self.0).expect("exists");
        metadata.len() == LEN_BYTES as u64 && self.holds_only(byte)
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

const LEN_BYTES: usize = 1 << 20;
/// The longest time for a run: it takes milliseconds, but longer on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs the command on `file` with `options`; no one answers questions.
fn bench(file: &TempFile, options: &str) -> Result<(Verdict, String), BenchError> {
    bench_asking(file, options, |_| false)
}

/// As [`bench`], with `answer` to the question whether data may be overwritten.
fn bench_asking(
    file: &TempFile,
    options: &str,
    answer: fn(&str) -> bool,
) -> Result<(Verdict, String), BenchError> {
    let words = options.replace("FILE", &file.0.display().to_string());
    let line = std::iter::once("bench").chain(words.split_ascii_whitespace());
    let args = Cli::try_parse_from(line).unwrap_or_else(|error| panic!("{options}: {error}"));
    let (sender, ended) = mpsc::channel();
    thread::spawn(move || {
        let bar = ProgressBar::hidden();
        let carried_out = agree(&args.args, &bar, &answer)
            .and_then(|()| carry_out(&args.args, &bar, &Stop::default()));
        sender.send(carried_out)
    });
    match ended.recv_timeout(PATIENCE) {
        Ok(outcome) => outcome,
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("{options}: does not end"),
        Err(mpsc::RecvTimeoutError::Disconnected) => panic!("{options}: panicked"),
    }
}

#[test]
fn buffered_reads_that_complete_at_once_end() {
    let file = TempFile::new();
    for poll in ["spin", "sleep"] {
        let options = format!("FILE --rw randread --buffered --runtime 20ms --poll {poll}");
        let (verdict, text) = bench(&file, &options).expect("measures");
        assert_eq!(verdict, Verdict::Good, "{text}");
    }
}

#[test]
fn a_thread_that_serves_several_files_keeps_the_runtime() {
    let file = TempFile::new();
    for poll in ["spin", "sleep", "20us"].repeat(10) {
        let shape = "--runtime 1ms --numjobs 9 --iodepth 150 --threads 1";
        let (verdict, text) =
            bench(&file, &format!("FILE {shape} --poll {poll}")).expect("measures");
        assert_eq!(verdict, Verdict::Good, "{text}");
    }
}

/// Lines that would overwrite the file.
const OVERWRITING: [&str; 7] = [
    "FILE --runtime 1ms --rw randwrite",
    "FILE --runtime 1ms --rw randrw",
    "FILE --runtime 1ms --rw trim",
    "FILE --size 1m --rw write --verify",
    "FILE --suite quick",
    "FILE --suite quick --rw write",
    "--compare FILE FILE --runs 1 --runtime 1ms --rw write",
];

#[test]
fn data_are_not_overwritten_without_an_agreement() {
    let file = TempFile::new();
    for options in OVERWRITING {
        let error = bench(&file, options).expect_err(options);
        assert!(matches!(error, BenchError::HoldsData { .. }), "{error}");
        assert!(
            error.is_usage() && error.to_string().contains("--write"),
            "{error}"
        );
        assert!(file.holds_only(7), "{options}");
    }
}

#[test]
fn data_are_overwritten_after_an_agreement() {
    let file = TempFile::new();
    bench(&file, "FILE --size 1m --rw randwrite --write").expect("--write agrees");
    assert!(!file.holds_only(7));
    let file = TempFile::new();
    let agree = |names: &str| names.contains("bench-command");
    bench_asking(&file, "FILE --size 1m --rw randwrite", agree).expect("the answer agrees");
    assert!(!file.holds_only(7));
}

#[test]
fn what_holds_no_data_is_overwritten_without_a_question() {
    let file = TempFile::of(0);
    bench(&file, "FILE --size 1m --rw randwrite").expect("it holds zeros");
    assert!(!file.holds_only(0));
    let file = TempFile::new();
    let written = fs::OpenOptions::new().write(true).open(&file.0);
    written
        .expect("opens")
        .write_all(&[0; 8192])
        .expect("writes");
    bench(&file, "FILE --size 8k --rw randwrite").expect("the region holds zeros");
    fs::remove_file(&file.0).expect("removed");
    bench(&file, "FILE --size 64k --rw randwrite").expect("it does not exist yet");
}

#[test]
fn a_file_with_contents_is_lengthened_only_after_an_agreement() {
    let file = TempFile::new();
    for options in [
        "FILE --size 2m --rw read",
        "FILE --size 2m",
        "FILE --size 64k --offset 1m --rw write",
        "FILE --size 2m --verify",
        "--compare FILE FILE --runs 1 --size 2m",
    ] {
        let error = bench(&file, options).expect_err(options);
        assert!(matches!(error, BenchError::Lengthens { .. }), "{error}");
        assert!(error.is_usage() && file.is_untouched(7), "{options}");
    }
    bench(&file, "FILE --size 2m --rw read --write").expect("--write agrees");
    let len_bytes = fs::metadata(&file.0).expect("exists").len();
    assert_eq!(len_bytes, 2 << 20);
}

#[test]
fn a_picture_that_cannot_be_written_fails_the_run_and_keeps_its_figures() {
    let file = TempFile::new();
    let (verdict, text) =
        bench(&file, "FILE --runtime 20ms --svg /nonexistent/x.svg").expect("measures");
    assert_eq!(verdict, Verdict::Bad);
    assert!(text.contains("CPU of this process"), "{text}");
    assert!(text.contains("cannot write /nonexistent/x.svg"), "{text}");
}

#[test]
fn the_load_begins_at_its_time_and_continues_after_measuring_without_being_counted() {
    let file = TempFile::new();
    for jobs in [1, 3] {
        let now = SystemTime::now();
        let begin = now + Duration::from_millis(200);
        let begin_ms = begin
            .duration_since(UNIX_EPOCH)
            .expect("after 1970")
            .as_millis();
        let began = Instant::now();
        let options = format!(
            "FILE --buffered --runtime 100ms --cool-down 400ms --numjobs {jobs} --begin-unix-ms {begin_ms} --json"
        );
        let (verdict, text) = bench(&file, &options).expect("it runs");
        assert_eq!(verdict, Verdict::Good);
        assert!(began.elapsed() >= Duration::from_millis(690), "{text}");
        let report: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        let elapsed_s = report["elapsed_s"].as_f64().expect("seconds");
        assert!((0.1..0.4).contains(&elapsed_s), "{text}");
        let ios = report["read"]["ios"].as_f64().expect("I/Os");
        let iops = report["iops"].as_f64().expect("IOPS");
        assert!((ios - iops * elapsed_s).abs() < 1.0, "{text}");
    }
}

#[test]
fn a_part_has_the_counts_of_the_report() {
    let file = TempFile::new();
    let (_, text) = bench(&file, "FILE --buffered --runtime 100ms --part").expect("it runs");
    let part: Part = serde_json::from_str(&text).expect("a part");
    let figures = part.direction(crate::Direction::Read).expect("it reads");
    assert!(figures.ios > 0 && figures.latency_us.p99 > 0.0, "{text}");
    assert_eq!(figures.bytes, figures.ios * 4096);
    assert_eq!(part.all().ios, figures.ios);
    assert!(part.direction(crate::Direction::Write).is_none());
}

#[test]
fn a_suite_that_only_reads_changes_nothing() {
    let file = TempFile::new();
    let (_, text) = bench(&file, "FILE --suite quick --rw read --json").expect("measures");
    let report: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let rows = report["rows"].as_array().expect("rows");
    assert!(rows.len() >= 3, "{report}");
    for row in rows {
        assert!(row["report"]["write"].is_null() && row["report"]["read"].is_object());
    }
    assert!(file.holds_only(7));
}

#[test]
fn values_that_no_run_can_have_are_mistakes() {
    let file = TempFile::new();
    for options in [
        "FILE --runtime 0",
        "FILE --runtime 99999999999999",
        "FILE --ramp-time 9999999999h",
        "FILE --interval 1us",
        "FILE --offset 1k --size 18446744073709551615",
        "FILE --bs 0 --verify",
        "FILE --iodepth 0 --verify",
        "FILE --iodepth 65535",
        "FILE --bs 4294967295 --iodepth 30000 --numjobs 60000",
        "/dev/zero",
        "/tmp",
    ] {
        let error = bench(&file, options).expect_err(options);
        assert!(error.is_usage(), "{options}: {error}");
    }
}

#[test]
fn a_pass_that_ends_within_the_ramp_measures_nothing() {
    let file = TempFile::new();
    let (_, text) = bench(&file, "FILE --size 64k --ramp-time 5s --json").expect("measures");
    let report: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(report["read"]["ios"], 0);
    assert_eq!(report["iops"], 0.0);
}

/// An option that is left out in half of the lines.
fn maybe(
    name: &'static str,
    values: &'static [&'static str],
) -> impl Strategy<Value = Option<String>> {
    option::of(select(values).prop_map(move |value| format!("{name} {value}")))
}

const PATTERNS: &[&str] = &[
    "read",
    "write",
    "rw",
    "trim",
    "randread",
    "randwrite",
    "randrw",
    "randtrim",
];

/// Command lines of runs that are short, whatever they combine.
fn lines() -> impl Strategy<Value = String> {
    let shape = (
        maybe("--rw", PATTERNS),
        maybe("--rwmixread", &["0", "70", "100", "101"]),
        maybe("--bs", &["0", "512", "1000", "4k", "64k", "2m"]),
        maybe("--iodepth", &["0", "1", "7", "64", "150"]),
        maybe("--numjobs", &["0", "1", "3", "9"]),
        maybe("--threads", &["0", "1", "2", "50"]),
        maybe("--poll", &["spin", "sleep", "20us", "0"]),
        maybe("--cpus", &["0", "0,0", "0-1000"]),
    );
    let extent = (
        maybe("--size", &["0", "512", "64k", "1m", "3m"]),
        maybe("--offset", &["512", "4k", "100", "1m"]),
        maybe("--ramp-time", &["0", "1ms", "5ms"]),
        maybe("--interval", &["0", "1ms", "3ms", "1h"]),
        maybe("--runtime", &["1us", "1ms", "5ms"]),
    );
    let manner = (
        maybe("--buffered", &[""]),
        maybe("--continue-on-error", &[""]),
        maybe("--json", &[""]),
        select(&["", "--verify", "--compare"][..]),
        maybe("--write", &[""]),
        maybe("--rate-iops", &["0", "5000", "18446744073709551615"]),
    );
    (shape, extent, manner).prop_map(|(shape, extent, manner)| {
        let (rw, mix, bs, iodepth, numjobs, threads, poll, cpus) = shape;
        let (size, offset, ramp, interval, runtime) = extent;
        let (buffered, go_on, json, mode, write, rate) = manner;
        let runtime = runtime.unwrap_or_else(|| match size {
            Some(_) => String::new(),
            None => "--runtime 2ms".to_owned(),
        });
        let (source, rate) = match mode {
            "--verify" => ("--verify FILE", None),
            "--compare" => ("--compare FILE FILE --runs 1", rate),
            _ => ("FILE", rate),
        };
        let options = [
            rw, mix, bs, iodepth, numjobs, threads, poll, cpus, size, offset, ramp, interval,
            buffered, go_on, json, write, rate,
        ];
        let words = options.into_iter().flatten();
        words.fold(format!("{source} {runtime}"), |line, word| {
            line + " " + &word
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(block::testing::cases(96)))]

    #[test]
    fn every_combination_of_options_ends_with_a_report_or_names_the_mistake(line in lines()) {
        let file = TempFile::new();
        match bench(&file, &line) {
            Ok((_, text)) => {
                prop_assert!(!text.is_empty());
                prop_assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
                if line.contains("--json") {
                    prop_assert!(serde_json::from_str::<serde_json::Value>(&text).is_ok());
                }
            }
            Err(error) => prop_assert!(error.is_usage(), "{error}"),
        }
        prop_assert!(line.contains("--write") || file.is_untouched(7), "data were changed");
    }
}
