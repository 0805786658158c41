//! Load generator, latency statistics, verification, reports.
//!
//! It drives queues of I/O ([`initiator::Queue`] over the network, [`file_io::FileIo`] on files and
//! block devices) from threads of its own and measures their speed: what `ramport bench` prints. It
//! knows neither the bytes of protocols nor the internals of daemons; it reads a daemon's CPU time
//! from /proc, as for any process.
//!
//! ```
//! use std::time::Duration;
//! use bench::{End, Plan, ProgressBar, Source};
//! let path = std::env::temp_dir().join(format!("bench-doc-{}", std::process::id()));
//! let plan = Plan {
//!     size_bytes: Some(1 << 20),
//!     end: End::After(Duration::from_millis(50)),
//!     ..Plan::new(vec![Source::Path(path.clone())])
//! };
//! let report = bench::run(&plan, &ProgressBar::hidden()).unwrap();
//! assert!(report.read.unwrap().latency_us.mean > 0.0);
//! # std::fs::remove_file(path).unwrap();
//! ```

#![forbid(unsafe_code)]
#![expect(
    clippy::cast_precision_loss,
    reason = "figures for people: counts and nanoseconds beyond 2^53 do not occur"
)]

mod args;
mod attachment;
mod bars;
mod check;
mod command;
mod compare;
mod consent;
mod cpu;
mod direction;
mod error;
mod format;
mod job;
mod latency;
mod numbers;
mod order;
mod part;
mod plan;
mod polling;
mod port;
mod progress;
mod report;
mod run;
mod source;
mod stop;
mod suite;
mod svg;
mod tally;
mod verify;
mod wait;
mod worker;

pub use args::Args;
pub use bars::BarChart;
pub use command::{Verdict, ask, command};
pub use compare::{Comparison, Difference, compare};
pub use cpu::{Daemon, Found};
pub use direction::Direction;
pub use error::BenchError;
pub use file_io::Caching;
pub use indicatif::ProgressBar;
pub use latency::Latencies;
pub use numbers::{CpuList, NumberError, parse_cpus, parse_len, parse_time};
pub use part::{Part, PartFigures};
pub use plan::{End, Kind, OnError, Order, Pattern, PatternError, Plan, Rate};
pub use port::PortError;
pub use report::{CpuUse, DaemonUse, Latency, Outage, Report, Side, SourceShare, Workload};
pub use run::run;
pub use source::Source;
pub use stop::Stop;
pub use suite::{SuiteKind, SuiteReport, SuiteRow, run_suite};
pub use verify::{Mismatch, VerifyReport, verify};
pub use wait::Wait;
