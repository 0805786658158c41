//! Arguments of `ramport watch`.

use clap::Args;
use control::{TextFault, TopInterval};

#[derive(Debug, Args)]
pub(crate) struct WatchArgs {
    /// The length of an interval, from 100ms to 60s
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = parse_interval)]
    pub(crate) interval: TopInterval,
    /// Print the figures of one interval and exit; without it, --json prints a document per line
    /// and interval
    #[arg(long)]
    pub(crate) once: bool,
}

fn parse_interval(text: &str) -> Result<TopInterval, TextFault> {
    control::parse(text)
}
