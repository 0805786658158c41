//! Options of `ramport study`.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use bench::{NumberError, parse_time};
use clap::{Args, Subcommand, ValueEnum};
use control::Size;

use super::examples;

#[derive(Debug, Subcommand)]
pub(crate) enum StudyVerb {
    /// Compare BRP's three steps with SRP, NVMe and iSCSI over RDMA and TCP
    #[command(after_help = examples::STUDY_BRP)]
    Brp(StudyBrpArgs),
    /// Compare a fleet without RDMA and with it, for 0, 10 and 30 % writes
    #[command(after_help = examples::STUDY_RDMA)]
    Rdma(StudyRdmaArgs),
}

#[derive(Debug, Args)]
pub(crate) struct StudyBrpArgs {
    /// Address of the daemon's machine, where the study opens portals. With --api, the daemon of
    /// another machine is measured from this one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    pub(crate) target: IpAddr,
    /// Measure only these series [default: all]
    #[arg(long, value_name = "SERIES", value_delimiter = ',')]
    pub(crate) series: Vec<StudySeries>,
    /// How long each measurement takes [default: 5s]
    #[arg(long, value_name = "TIME", value_parser = parse_time_of_some_length)]
    pub(crate) runtime: Option<Duration>,
    /// A short run for a first impression: 200 ms per measurement
    #[arg(long, conflicts_with = "runtime")]
    pub(crate) quick: bool,
    /// How often each measurement is repeated, in turn; medians are reported
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(3..=99))]
    pub(crate) repeats: u16,
    /// Size of the volume that is created and written for the study, at least 16M
    #[arg(long, value_name = "SIZE", default_value = "256M")]
    pub(crate) size: Size,
    /// Write the report to this folder too: study-brp.md, .json and .svg
    #[arg(long, value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct StudyRdmaArgs {
    /// How long to measure each combination: seconds, or a time such as 2m
    #[arg(long, value_name = "TIME", default_value = "120", value_parser = parse_time_of_some_length)]
    pub(crate) runtime: Duration,
    /// How long to load before measuring
    #[arg(long, value_name = "TIME", default_value = "5", value_parser = parse_time)]
    pub(crate) warm_up: Duration,
    /// How often to measure each combination; medians are reported
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=99))]
    pub(crate) repeats: u16,
    /// Write the report to this folder too: study-rdma.md, .json and .svg
    #[arg(long, value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,
}

/// A series of measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum StudySeries {
    /// Reads and writes of 4 KiB, one at a time
    Latency,
    /// Random reads and writes of 4 KiB, 32 at a time
    Depth,
    /// 16 jobs, 4 KiB and 1 MiB, sequential and random
    Matrix,
    /// Random writes with joined replies, from 1 to 64 at a time
    Load,
}

impl StudyBrpArgs {
    const RUNTIME_DEFAULT: Duration = Duration::from_secs(5);
    const RUNTIME_QUICK: Duration = Duration::from_millis(200);

    /// How long each measurement takes.
    pub(crate) fn runtime(&self) -> Duration {
        let usual = if self.quick {
            Self::RUNTIME_QUICK
        } else {
            Self::RUNTIME_DEFAULT
        };
        self.runtime.unwrap_or(usual)
    }

    /// Whether a series is to be measured.
    pub(crate) fn includes(&self, series: StudySeries) -> bool {
        self.series.is_empty() || self.series.contains(&series)
    }
}

/// A time that is not nothing.
fn parse_time_of_some_length(text: &str) -> Result<Duration, NumberError> {
    let time = parse_time(text)?;
    if time.is_zero() {
        return Err(NumberError::Time {
            text: text.to_owned(),
        });
    }
    Ok(time)
}
