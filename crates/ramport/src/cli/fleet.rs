//! Options of `ramport fleet`.

use std::path::PathBuf;
use std::time::Duration;

use bench::parse_time;
use clap::{Args, Subcommand};
use control::Size;

use super::sweep::SweepItem;
use super::{Switch, examples};

/// The most clients of a fleet: each is a process.
const CLIENTS_MAX: i64 = 256;

#[derive(Debug, Subcommand)]
pub(crate) enum FleetVerb {
    /// Create the volumes of a fleet, each with a target of its own
    #[command(after_help = examples::FLEET_CREATE)]
    Create(FleetCreateArgs),
    /// List the volumes of the fleet
    #[command(visible_alias = "ls", after_help = examples::FLEET_LIST)]
    List,
    /// Remove the fleet, with what its volumes hold
    #[command(visible_alias = "rm", after_help = examples::FLEET_REMOVE)]
    Remove,
    /// Load all volumes of the fleet at the same time, each by a process of its own, and measure
    /// them together
    #[command(after_help = examples::FLEET_RUN)]
    Run(FleetRunArgs),
    /// Add up what fleets of several nodes counted
    #[command(after_help = examples::FLEET_MERGE)]
    Merge(FleetMergeArgs),
}

#[derive(Debug, Args)]
pub(crate) struct FleetCreateArgs {
    /// How many clients the fleet has, each with a volume
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=CLIENTS_MAX))]
    pub(crate) clients: u16,
    /// The size of each volume
    #[arg(long, value_name = "SIZE", default_value = "64M")]
    pub(crate) size: Size,
    /// Keep each volume in the memory of this many nodes of the cluster, 1 to 3
    #[arg(long, value_name = "N")]
    pub(crate) copies: Option<u8>,
    /// Allow any host from any address to use the volumes, which a daemon needs whose portals other
    /// machines reach [default: hosts on this machine]
    #[arg(long)]
    pub(crate) allow_any_host: bool,
}

#[derive(Debug, Args)]
pub(crate) struct FleetRunArgs {
    /// What to vary, and what not: bs (bytes per I/O), w (writes in per cent), threads (of each
    /// client), iodepth (of each thread), runtime (seconds). Each combination of the values is
    /// measured. May be given several times, or once with semicolons [default: bs=4k; w=0;
    /// threads=1; iodepth=4; runtime=10]
    #[arg(long, value_name = "NAME=VALUE,…", value_delimiter = ';')]
    pub(crate) sweep: Vec<SweepItem>,
    /// How long to load before measuring
    #[arg(long, value_name = "TIME", default_value = "2", value_parser = parse_time)]
    pub(crate) warm_up: Duration,
    /// How long to keep the load up after measuring
    #[arg(long, value_name = "TIME", default_value = "1", value_parser = parse_time)]
    pub(crate) cool_down: Duration,
    /// Whether clients connect by RDMA or by TCP
    #[arg(long, value_name = "on|off", default_value = "off")]
    pub(crate) rdma: Switch,
    /// When the first combination begins, in seconds since 1970 (`date +%s`); the others follow at
    /// fixed times. Commands on several nodes load them together then
    #[arg(long, value_name = "SECONDS")]
    pub(crate) begin: Option<u64>,
    /// Write the counts to this file too, for `ramport fleet merge`
    #[arg(long, value_name = "FILE")]
    pub(crate) counts: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) files: FleetFiles,
}

#[derive(Debug, Args)]
pub(crate) struct FleetMergeArgs {
    /// Files that `ramport fleet run --counts` wrote, of one sweep on several nodes
    #[arg(required = true, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub(crate) counts: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) files: FleetFiles,
}

/// Files that get the figures.
#[derive(Debug, Args)]
pub(crate) struct FleetFiles {
    /// Write all figures to this file as comma-separated values too
    #[arg(long, value_name = "FILE")]
    pub(crate) csv: Option<PathBuf>,
    /// Draw the figures of each combination into this file too
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
}
