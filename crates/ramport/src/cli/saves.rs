//! Options of `ramport volume save`, `restore`, `set` and `acknowledge`.

use clap::{ArgGroup, Args, Subcommand, ValueEnum, ValueHint};
use control::{AfterCrash, Period, Saving, Size, Text};

use super::examples;
use super::values::parse_period;

#[derive(Debug, Subcommand)]
pub(crate) enum SaveVerb {
    /// Change a volume: its size, when and where it is saved
    #[command(after_help = examples::VOLUME_SET)]
    Set(VolumeSetArgs),
    /// Save what a volume in memory holds at this moment to a file, while it is in use
    #[command(after_help = examples::VOLUME_SAVE)]
    Save(SaveArgs),
    /// Make a volume what it was when it was saved
    #[command(after_help = examples::VOLUME_RESTORE)]
    Restore(RestoreArgs),
    /// Acknowledge that a restart lost the contents, or that parts of a save were damaged: serve
    /// zeros
    #[command(after_help = examples::VOLUME_ACKNOWLEDGE)]
    Acknowledge(AcknowledgeArgs),
}

#[derive(Debug, Args)]
pub(crate) struct SaveArgs {
    /// The volume
    pub(crate) name: String,
    /// The file on the daemon's machine [default: that of --save-to]
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) file: Option<String>,
    /// Replace a save of other contents
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RestoreArgs {
    /// The volume
    pub(crate) name: String,
    /// The file on the daemon's machine [default: that of --save-to]
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) file: Option<String>,
    /// Restore a damaged file, too: its damaged parts, which are listed, become zeros
    #[arg(long)]
    pub(crate) zero_damaged: bool,
    /// Even if sessions use the volume, or it holds data that are lost
    #[arg(long)]
    pub(crate) force: bool,
}

/// When and where a volume is saved.
#[derive(Debug, Args)]
pub(crate) struct SavingArgs {
    /// Save the volume at shutdown and on request in this folder, as NAME.save
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) save_to: Option<String>,
    /// Save it regularly, too: 30s, 5m, 1h
    #[arg(long, value_name = "TIME", value_parser = parse_period)]
    pub(crate) save_every: Option<Period>,
    /// What the volume is when the daemon ended without saving it [default: offline]
    #[arg(long, value_name = "WHAT")]
    pub(crate) after_crash: Option<AfterCrashWord>,
}

impl SavingArgs {
    /// What they change of `before`; `None` if there is no folder.
    pub(crate) fn saving(&self, before: Option<&Saving>) -> Option<Saving> {
        let to = match &self.save_to {
            // The daemon refuses an empty path, for one that cannot be made absolute.
            Some(to) => std::path::absolute(to)
                .unwrap_or_default()
                .display()
                .to_string(),
            None => before?.to.clone(),
        };
        Some(Saving {
            to,
            every: (self.save_every.map(Text)).or(before.and_then(|before| before.every)),
            after_crash: match self.after_crash {
                Some(word) => word.into(),
                None => before.map(|before| before.after_crash).unwrap_or_default(),
            },
        })
    }

    /// Whether none is given.
    pub(crate) fn is_empty(&self) -> bool {
        self.save_to.is_none() && self.save_every.is_none() && self.after_crash.is_none()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum AfterCrashWord {
    /// Its contents are lost, and it is offline until someone restores it or acknowledges that
    Offline,
    /// What it was when it was last saved
    Restore,
}

impl From<AfterCrashWord> for AfterCrash {
    fn from(word: AfterCrashWord) -> Self {
        match word {
            AfterCrashWord::Offline => Self::Offline,
            AfterCrashWord::Restore => Self::Restore,
        }
    }
}

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("change").required(true).multiple(true).args(["size", "save_to", "save_every", "after_crash", "no_save"]))]
pub(crate) struct VolumeSetArgs {
    /// Its name
    pub(crate) name: String,
    /// The new capacity
    #[arg(long, short)]
    pub(crate) size: Option<Size>,
    #[command(flatten)]
    pub(crate) saving: SavingArgs,
    /// Save it on request alone
    #[arg(long, conflicts_with_all = ["save_to", "save_every", "after_crash"])]
    pub(crate) no_save: bool,
    /// Even if that discards data at its end
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Debug, Args)]
pub(crate) struct AcknowledgeArgs {
    /// Its name
    #[arg(required_unless_present = "all", conflicts_with = "all")]
    pub(crate) name: Option<String>,
    /// Every volume that lost its contents
    #[arg(long)]
    pub(crate) all: bool,
}
