//! Arguments of `ramport top`.

use clap::Args;
use control::{TextFault, TopInterval};

use crate::top::{Column, View};

#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    /// The length of an interval, from 100ms to 60s
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_interval)]
    pub(crate) interval: TopInterval,
    /// What to list first
    #[arg(long, default_value = "volumes")]
    pub(crate) view: View,
    /// The column to sort by: names up, figures down
    #[arg(long, value_name = "COLUMN", default_value = "iops")]
    pub(crate) sort: Column,
    /// List only what has this text in its name, or in the name of its host
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true
    )]
    pub(crate) filter: String,
    /// Print the figures of one interval and exit; with --json the document of `GET /v1/top`, which
    /// lists everything
    #[arg(long)]
    pub(crate) once: bool,
}

fn parse_interval(text: &str) -> Result<TopInterval, TextFault> {
    control::parse(text)
}
