//! Options of `ramport study`.

use std::path::PathBuf;
use std::time::Duration;

use bench::{NumberError, parse_time};
use clap::{Args, Subcommand};

use super::examples;

#[derive(Debug, Subcommand)]
pub(crate) enum StudyVerb {
    /// Compare a fleet without RDMA and with it, for 0, 10 and 30 % writes
    #[command(after_help = examples::STUDY_RDMA)]
    Rdma(StudyRdmaArgs),
}

#[derive(Debug, Args)]
pub(crate) struct StudyRdmaArgs {
    /// How long to measure each combination: seconds, or a time such as 2m
    #[arg(long, value_name = "TIME", default_value = "120", value_parser = parse_seconds)]
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

/// A time that is not nothing.
fn parse_seconds(text: &str) -> Result<Duration, NumberError> {
    let time = parse_time(text)?;
    if time.is_zero() {
        return Err(NumberError::Time {
            text: text.to_owned(),
        });
    }
    Ok(time)
}
