//! Options of `ramport volume snapshot`, `clone` and `rollback`.

use clap::{ArgGroup, Args, Subcommand};

use super::examples;

#[derive(Debug, Subcommand)]
pub(crate) enum SnapshotVerb {
    /// Take snapshots: read-only volumes that show what volumes are at this moment
    #[command(after_help = examples::VOLUME_SNAPSHOT)]
    Snapshot(SnapshotArgs),
    /// Create a volume that shows a snapshot and can be written
    #[command(after_help = examples::VOLUME_CLONE)]
    Clone(CloneArgs),
    /// Make a volume what it was when a snapshot was taken of it
    #[command(after_help = examples::VOLUME_ROLLBACK)]
    Rollback(RollbackArgs),
}

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("naming").required(true))]
pub(crate) struct SnapshotArgs {
    /// The volumes; all snapshots show the same moment
    #[arg(required = true, value_name = "VOLUME")]
    pub(crate) volumes: Vec<String>,
    /// The name of the snapshot, of one volume
    #[arg(long, value_name = "NAME", group = "naming")]
    pub(crate) name: Option<String>,
    /// Name each snapshot as its volume, with this at the end
    #[arg(
        long,
        value_name = "TEXT",
        group = "naming",
        allow_hyphen_values = true
    )]
    pub(crate) suffix: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct CloneArgs {
    /// The snapshot
    pub(crate) snapshot: String,
    /// The name of the clone
    #[arg(long, value_name = "NAME")]
    pub(crate) name: String,
}

#[derive(Debug, Args)]
pub(crate) struct RollbackArgs {
    /// The volume
    pub(crate) name: String,
    /// The snapshot
    #[arg(long, value_name = "SNAPSHOT")]
    pub(crate) to: String,
    /// Even if sessions use the volume, or what was written since is lost
    #[arg(long)]
    pub(crate) force: bool,
}
