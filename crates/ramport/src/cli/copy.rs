//! Options of `ramport volume copy`.

use clap::{Args, ValueHint};

#[derive(Debug, Args)]
pub(crate) struct CopyArgs {
    /// What is read: a volume; a file or device, whose path has a '/'; or a disk of another machine
    /// by its URL (nvme+tcp, nvme+rdma, brp, brp+rdma, srp or iscsi)
    #[arg(value_name = "SRC", value_hint = ValueHint::AnyPath)]
    pub(crate) source: String,
    /// What is written, from its start on. A file that does not exist is created
    #[arg(value_name = "DST", value_hint = ValueHint::AnyPath)]
    pub(crate) destination: String,
    /// Read back what was written, and compare
    #[arg(long)]
    pub(crate) verify: bool,
    /// Even if the destination holds data, or sessions use it
    #[arg(long)]
    pub(crate) force: bool,
}
