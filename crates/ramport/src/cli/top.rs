//! Arguments of `ramport top`.

use clap::{Args, ValueEnum};
use control::{TextFault, TopInterval};

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

/// What is listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum View {
    /// Volumes
    Volumes,
    /// Sessions: hosts connected to targets
    Sessions,
    /// Portals
    Portals,
    /// Threads that drive connections
    Threads,
    /// Volumes that are caches
    Caches,
}

/// A column of a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Column {
    /// The name; that of a session is its target and its number
    Name,
    /// The host of a session
    Host,
    /// Commands per second
    Iops,
    /// MiB read per second
    Read,
    /// MiB written per second
    Write,
    /// Mean latency in the server
    Mean,
    /// Latency that 99 % of the commands kept within
    P99,
    /// Mean number of commands in the server
    Depth,
    /// Failed commands since counting began
    Errors,
    /// Memory that a volume holds
    Used,
    /// Reads of a cache of which everything was in memory, in percent
    ReadHits,
    /// Writes of a cache of which everything was in memory, in percent
    WriteHits,
    /// Blocks of a cache that made room for others, per second
    Evictions,
    /// MiB per second read from the volume behind a cache
    SlowerRead,
    /// MiB per second written to the volume behind a cache
    SlowerWrite,
    /// Memory of a cache whose contents the volume behind it does not have yet
    Dirty,
    /// Open connections of a session or a portal
    Connections,
    /// CPU time of a thread in percent of a core
    Cpu,
}
