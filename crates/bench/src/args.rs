//! The command line of `ramport bench`.

use std::{
    path::PathBuf,
    time::{Duration, SystemTime},
};

use clap::Args as ClapArgs;
use file_io::Caching;

use crate::{
    End, Kind, OnError, Order, Pattern, Plan, Rate, Source, Stop, SuiteKind, Wait,
    numbers::{CpuList, NumberError, parse_cpus, parse_len, parse_time},
};

/// Measure volumes over the network, block devices and files, in fio's vocabulary
#[derive(Clone, Debug, ClapArgs)]
pub struct Args {
    /// What to measure, all at once: nvme+tcp://HOST[:PORT]/NQN[?ns=1],
    /// nvme+rdma://HOST[:PORT]/NQN, brp://HOST[:PORT]/NQN[?unit=1],
    /// brp+rdma://HOST[:PORT]/NQN, srp://HOST[:PORT]/IQN/LUN, iscsi://HOST[:PORT]/IQN/LUN, block
    /// devices, files
    #[arg(value_name = "URL|PATH", required_unless_present = "compare")]
    pub sources: Vec<Source>,

    /// read, write, rw (readwrite), trim, randread, randwrite, randrw, randtrim [default:
    /// randread]. With --suite: measure only the shapes that read, that write, or that do both
    /// [default: all shapes]
    #[arg(long, alias = "readwrite")]
    pub rw: Option<Pattern>,

    /// Overwrite or discard the data that a volume, block device or file holds, or lengthen a file
    /// that is not empty, without asking
    #[arg(long)]
    pub write: bool,

    /// Share of reads in mixed I/O, in per cent
    #[arg(long, value_name = "PERCENT", default_value_t = 50)]
    pub rwmixread: u8,

    /// Block size of each I/O: 512, 4k, 1m
    #[arg(long, value_name = "LEN", default_value = "4k", value_parser = parse_u32_len)]
    pub bs: u32,

    /// I/Os in flight per job
    #[arg(long, value_name = "N", default_value_t = 32)]
    pub iodepth: u16,

    /// Jobs per source, each with its own connection (queue, session)
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub numjobs: u16,

    /// How long to measure: 10, 500ms, 2m [default: with --size until each job has transferred that
    /// many bytes, otherwise 10 s]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub runtime: Option<Duration>,

    /// Size of the region to use [default: all]; a file that is shorter is written to that length
    /// first
    #[arg(long, value_name = "LEN", value_parser = parse_len)]
    pub size: Option<u64>,

    /// Start of the region in the source
    #[arg(long, value_name = "LEN", default_value = "0", value_parser = parse_len)]
    pub offset: u64,

    /// Warm-up time before measuring
    #[arg(long, alias = "ramp_time", value_name = "TIME", default_value = "0", value_parser = parse_time)]
    pub ramp_time: Duration,

    /// How long to keep the load up after measuring; runs of several clients end under load then
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = parse_time)]
    pub cool_down: Duration,

    /// Begin at this time, in milliseconds since 1970; connections are made before
    #[arg(long, value_name = "MS", hide = true)]
    pub begin_unix_ms: Option<u64>,

    /// Print what can be added to the counts of other clients, as JSON
    #[arg(long, hide = true, conflicts_with_all = ["suite", "compare", "verify"])]
    pub part: bool,

    /// Limit I/Os per second and job; latency is then measured from the time an I/O was due
    #[arg(
        long,
        alias = "rate_iops",
        value_name = "IOPS",
        conflicts_with = "rate"
    )]
    pub rate_iops: Option<u64>,

    /// Limit bytes per second and job
    #[arg(long, value_name = "LEN", value_parser = parse_len)]
    pub rate: Option<u64>,

    /// Seed for order, mix and contents
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    pub randseed: u64,

    /// Processors to pin threads to, in turn: 1 or 0,2-3
    #[arg(long, alias = "cpus_allowed", value_name = "LIST", value_parser = parse_cpus)]
    pub cpus: Option<CpuList>,

    /// Threads that share the jobs [default: one per job, at most one per processor]
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,

    /// How to wait for completions: spin (a whole core), sleep, or a time to poll before sleeping
    /// (50us) [default: spin; if the target is on this machine or there are as many threads as
    /// processors, 50us; if both, sleep]
    #[arg(long, value_name = "HOW", value_parser = parse_wait)]
    pub poll: Option<Wait>,

    /// Use the page cache (files and block devices)
    #[arg(long)]
    pub buffered: bool,

    /// Count failed I/Os and continue instead of ending the run
    #[arg(long, alias = "continue_on_error")]
    pub continue_on_error: bool,

    /// Fail if a source does not answer for longer than TIME [default: any outage is reported;
    /// verification and runs without --runtime fail after 60 s]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub max_outage: Option<Duration>,

    /// Process whose CPU time is reported [default: the local process at the other end of the
    /// connection]
    #[arg(long, value_name = "PID")]
    pub daemon_pid: Option<u32>,

    /// Interval of IOPS samples for their standard deviation
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = parse_time)]
    pub interval: Duration,

    /// Write a seeded pattern and verify every block (with --rw read or randread, the default: only
    /// verify)
    #[arg(long, conflicts_with_all = ["suite", "compare", "rate", "rate_iops"])]
    pub verify: bool,

    /// Measure two sources in turn (A B B A …) and print medians and their differences
    #[arg(long, num_args = 2, value_names = ["A", "B"], conflicts_with = "sources")]
    pub compare: Option<Vec<Source>>,

    /// Runs of each source with --compare
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub runs: u32,

    /// Measure a series of shapes: 512 B, 4 KiB and 128 KiB at several depths
    #[arg(long, conflicts_with = "compare")]
    pub suite: Option<SuiteKind>,

    /// Print JSON
    #[arg(long)]
    pub json: bool,

    /// Write the latency distribution as an SVG file
    #[arg(long, value_name = "FILE", conflicts_with_all = ["suite", "compare", "verify"])]
    pub svg: Option<PathBuf>,
}

/// What is measured without `--rw`.
const PATTERN_DEFAULT: Pattern = Pattern {
    order: Order::Random,
    kind: Kind::Read,
};

/// How long to measure unless an option says otherwise.
const RUNTIME_DEFAULT: Duration = Duration::from_secs(10);

impl Args {
    /// Which shapes of a suite are measured; all of them without a kind.
    pub(crate) fn shapes(&self) -> Option<Kind> {
        self.rw.map(|pattern| pattern.kind)
    }

    /// The plan of one run on `sources`, which `stop` ends early.
    pub(crate) fn plan(&self, sources: &[Source], stop: &Stop) -> Plan {
        let end = match (self.runtime, self.size) {
            (Some(runtime), _) => End::After(runtime),
            (None, Some(_)) => End::OnePass,
            (None, None) => End::After(RUNTIME_DEFAULT),
        };
        let rate = match (self.rate_iops, self.rate) {
            (Some(iops), _) => Some(Rate::Iops(iops)),
            (None, Some(bytes)) => Some(Rate::BytesPerSecond(bytes)),
            (None, None) => None,
        };
        Plan {
            sources: sources.to_vec(),
            pattern: self.rw.unwrap_or(PATTERN_DEFAULT),
            read_percent: self.rwmixread,
            block_len_bytes: self.bs,
            depth: self.iodepth,
            jobs: self.numjobs,
            end,
            ramp: self.ramp_time,
            cool_down: self.cool_down,
            begin: self
                .begin_unix_ms
                .map(|ms| SystemTime::UNIX_EPOCH + Duration::from_millis(ms)),
            offset_bytes: self.offset,
            size_bytes: self.size,
            rate,
            seed: self.randseed,
            wait: self.poll,
            cpus: self.cpus.clone().unwrap_or_default(),
            threads: self.threads,
            caching: if self.buffered {
                Caching::Buffered
            } else {
                Caching::DirectWherePossible
            },
            daemon_pid: self.daemon_pid,
            on_error: if self.continue_on_error {
                OnError::Count
            } else {
                OnError::Stop
            },
            max_outage: self.max_outage,
            interval: self.interval,
            stop: stop.clone(),
        }
    }
}

fn parse_u32_len(text: &str) -> Result<u32, NumberError> {
    u32::try_from(parse_len(text)?).map_err(|_| NumberError::Len {
        text: text.to_owned(),
    })
}

fn parse_wait(text: &str) -> Result<Wait, NumberError> {
    match text {
        "spin" => Ok(Wait::Spin),
        "sleep" => Ok(Wait::Sleep),
        time => parse_time(time).map(Wait::Adaptive),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    fn parse(line: &str) -> Result<Args, clap::Error> {
        Cli::try_parse_from(std::iter::once("bench").chain(line.split(' '))).map(|cli| cli.args)
    }

    #[test]
    fn fios_vocabulary_is_understood() {
        let line = "/dev/ram0 --rw randrw --rwmixread 70 --bs 4k --iodepth 32 --numjobs 4 --runtime 10 \
                    --size 1g --ramp_time 500ms --rate_iops 1000 --randseed 3 --cpus 0,1";
        let args = parse(line).expect("parses");
        let plan = args.plan(&args.sources, &Stop::default());
        assert_eq!(plan.pattern.to_string(), "randrw");
        assert_eq!((plan.read_percent, plan.block_len_bytes), (70, 4096));
        assert_eq!((plan.depth, plan.jobs), (32, 4));
        assert_eq!(plan.end, End::After(Duration::from_secs(10)));
        assert_eq!(plan.size_bytes, Some(1 << 30));
        assert_eq!(plan.rate, Some(Rate::Iops(1000)));
        assert_eq!(plan.ramp, Duration::from_millis(500));
    }

    #[test]
    fn a_size_without_a_runtime_means_one_pass() {
        let args = parse("file --size 1m").expect("parses");
        assert_eq!(args.plan(&args.sources, &Stop::default()).end, End::OnePass);
        let args = parse("file").expect("parses");
        let plan = args.plan(&args.sources, &Stop::default());
        assert_eq!(plan.end, End::After(RUNTIME_DEFAULT));
    }

    #[test]
    fn bench_mistakes_get_a_hint_and_exit_status_2() {
        for (line, hint) in [
            ("file --bs 4x", "4k"),
            ("file --rw randomread", "randread"),
            ("file --runtime soon", "500ms"),
            ("rbd://host/x", "nvme+tcp"),
            ("", "nvme+tcp"),
            ("--rw read", "URL|PATH"),
        ] {
            let error = parse(line).expect_err(line);
            assert_eq!(error.exit_code(), 2, "{line}");
            assert!(error.to_string().contains(hint), "{line}: {error}");
        }
    }
}
