//! Arguments of `ramport attach` and `ramport detach`.

use std::str::FromStr;

use clap::{Args, ValueEnum};
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use control::Period;
use initiator::{Url, UrlError};

use super::values::parse_wait;

/// The variable that has the URL, for units, and so that secrets are on no command line.
pub(crate) const URL_VARIABLE: &str = "RAMPORT_ATTACH_URL";

#[derive(Debug, Args)]
pub(crate) struct AttachArgs {
    /// The disk: brp://HOST[:PORT]/NQN, nvme+tcp://HOST/NQN[?ns=N], nvme+rdma://HOST/NQN or
    /// iscsi://[USER[%SECRET]@]HOST/IQN/LUN
    #[arg(env = URL_VARIABLE, hide_env_values = true)]
    pub(crate) url: DiskUrl,
    /// Its name, for `ramport detach` [default: disk0, or the next one that is free]
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// How long requests wait for a target that is away; then they fail, until the disk is
    /// attached again: seconds, or a time such as 500ms
    #[arg(long, value_name = "TIME", default_value = "2m", value_parser = parse_wait)]
    pub(crate) give_up_after: Period,
    /// Refuse writes
    #[arg(long)]
    pub(crate) read_only: bool,
    /// The kernel's interface [default: ublk if the kernel has it]
    #[arg(long)]
    pub(crate) via: Option<ViaArg>,
    /// Serve the disk from this process, until SIGTERM or Ctrl-C, instead of one in the background
    #[arg(long)]
    pub(crate) foreground: bool,
    /// Serve the disk as the process in the background
    #[arg(long, hide = true)]
    pub(crate) background_child: bool,
}

/// An interface of the kernel.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum ViaArg {
    /// A ublk device (Linux 6.5 or later, module ublk_drv)
    Ublk,
    /// A FUSE file with a loop device on it
    Loop,
}

impl From<ViaArg> for ::attach::Via {
    fn from(via: ViaArg) -> Self {
        match via {
            ViaArg::Ublk => Self::Ublk,
            ViaArg::Loop => Self::Loop,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct DetachDiskArgs {
    /// The disk's name or device; without it, the attached disks are listed
    #[arg(value_name = "NAME|DEVICE", add = ArgValueCandidates::new(disks))]
    pub(crate) disk: Option<String>,
}

fn disks() -> Vec<CompletionCandidate> {
    let disks = ::attach::list().into_iter();
    disks
        .map(|disk| CompletionCandidate::new(disk.name).help(Some(disk.url.into())))
        .collect()
}

/// A URL, and its text with the secrets in it.
#[derive(Clone)]
pub(crate) struct DiskUrl {
    pub(crate) url: Url,
    text: String,
}

impl DiskUrl {
    /// For the environment of a process of the same user.
    pub(crate) fn with_secrets(&self) -> &str {
        &self.text
    }
}

impl std::fmt::Debug for DiskUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.url)
    }
}

impl FromStr for DiskUrl {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        Ok(Self {
            url: text.parse()?,
            text: text.to_owned(),
        })
    }
}
