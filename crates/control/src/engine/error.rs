//! What a person asked of the engine and cannot have, and why it did not start.

use std::path::PathBuf;

use server::{ErrorKind, PortalDefinition, ServerError, ShareName, StartError, VolumeName};
use volume::{ByteSize, Damage};

use crate::definitions::DefinitionFault;
use crate::engine::restore::RestoreError;
use crate::plan::PlanError;
use crate::store::StoreError;
use crate::text::TextFault;

/// Why nothing was changed, unless its kind is [`ErrorKind::Unfinished`].
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The server refused.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// The definitions contradict each other.
    #[error(transparent)]
    Definition(#[from] DefinitionFault),
    /// What exists cannot become what was requested.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A name, size or address is wrong.
    #[error(transparent)]
    Text(#[from] TextFault),
    /// The change could not be made durable; it was undone.
    #[error("the change was undone because it could not be saved: {0}")]
    Store(#[from] StoreError),
    /// Something else is being done to the volume.
    #[error("volume {volume} is busy: {action} is in progress; try again later")]
    Busy {
        /// The volume.
        volume: VolumeName,
        /// The operation in progress.
        action: &'static str,
    },
    /// All nodes of the cluster have the volume.
    #[error(
        "volume {volume} is replicated, and a file of definitions changes one machine only; use `ramport volume create --copies` and `ramport volume remove`, which change all nodes, and leave it in the file as `ramport export` prints it"
    )]
    OfCluster {
        /// The volume.
        volume: VolumeName,
    },
    /// Removing a volume would destroy what hosts wrote.
    #[error(
        "volume {volume} holds data ({} of memory), which removing it destroys", ByteSize(*used_bytes)
    )]
    HoldsData {
        /// The volume.
        volume: VolumeName,
        /// Memory that it holds.
        used_bytes: u64,
    },
    /// Removing a share would destroy what clients wrote.
    #[error(
        "share {share} holds {files} files ({} of memory), which removing it destroys", ByteSize(*used_bytes)
    )]
    HoldsFiles {
        /// The share.
        share: ShareName,
        /// Files, directories and links in it.
        files: u64,
        /// Memory that they take.
        used_bytes: u64,
    },
    /// The contents of a volume were lost, so a snapshot or a clone would show zeros.
    #[error(
        "volume {volume} lost its contents in a restart; `ramport volume acknowledge {volume}` first, if zeros will do"
    )]
    ContentsLost {
        /// The volume.
        volume: VolumeName,
    },
    /// The contents of a volume are not there yet.
    #[error(
        "volume {volume} is being restored; wait until `ramport volume show {volume}` does not say so any more"
    )]
    Restoring {
        /// The volume.
        volume: VolumeName,
    },
    /// The save that a volume was restored from is damaged, and a save, a snapshot or a copy would
    /// show zeros there.
    #[error(
        "{damage} of volume {volume} were damaged in the save that it was restored from; let hosts write them, restore another save, or make them zeros with `ramport volume acknowledge {volume}`"
    )]
    Damaged {
        /// The volume.
        volume: VolumeName,
        /// What is damaged.
        damage: Damage,
    },
    /// Restoring replaces what is there.
    #[error(
        "volume {volume} holds data ({} of memory), which restoring it replaces", ByteSize(*used_bytes)
    )]
    Overwrites {
        /// The volume.
        volume: VolumeName,
        /// Memory that it holds.
        used_bytes: u64,
    },
    /// A mirror would overwrite what a member holds.
    #[error("volume {volume} holds data, which mirror {mirror} overwrites")]
    MirrorOverwrites {
        /// The member.
        volume: VolumeName,
        /// The mirror.
        mirror: VolumeName,
    },
    /// There is no file to save to or to restore from.
    #[error(
        "volume {volume} has no folder for saves; name a file, or set a folder with `ramport volume set {volume} --save-to DIR`"
    )]
    NoSaveFile {
        /// The volume.
        volume: VolumeName,
    },
    /// The daemon's working folder means nothing to others.
    #[error("{} is no absolute path; give one that begins with /", path.display())]
    RelativeFile {
        /// The path.
        path: PathBuf,
    },
    /// The folder for saves does not exist.
    #[error(
        "volume {volume} cannot be saved to {to}, which is no folder that the daemon sees; create it, and let the daemon's user write there"
    )]
    NoSaveFolder {
        /// The volume.
        volume: VolumeName,
        /// The folder.
        to: String,
    },
    /// The system refused a thread.
    #[error("cannot start a thread: {0}; check the limit of the daemon's tasks")]
    Thread(#[source] std::io::Error),
    /// Rolling back discards what was written since.
    #[error(
        "volume {volume} has changed since {snapshot} ({} differ), which rolling back discards", ByteSize(*changed_bytes)
    )]
    DiscardsChanges {
        /// The volume.
        volume: VolumeName,
        /// The snapshot.
        snapshot: VolumeName,
        /// How much differs, at most.
        changed_bytes: u64,
    },
    /// Hosts are connected through the portal.
    #[error("portal {portal} has {connections} connections, which removing it ends")]
    PortalInUse {
        /// The portal.
        portal: PortalDefinition,
        /// How many connections.
        connections: usize,
    },
    /// Applying a file would destroy data.
    #[error("this would destroy the contents of {names}")]
    LosesData {
        /// The volumes and shares, as a list for people.
        names: String,
    },
}

impl EngineError {
    /// Its kind.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Server(error) => error.kind(),
            Self::Definition(DefinitionFault::SameIdentifier { .. })
            | Self::Plan(_)
            | Self::Busy { .. }
            | Self::OfCluster { .. }
            | Self::HoldsData { .. }
            | Self::HoldsFiles { .. }
            | Self::ContentsLost { .. }
            | Self::Restoring { .. }
            | Self::Damaged { .. }
            | Self::Overwrites { .. }
            | Self::MirrorOverwrites { .. }
            | Self::NoSaveFile { .. }
            | Self::DiscardsChanges { .. }
            | Self::PortalInUse { .. }
            | Self::LosesData { .. } => ErrorKind::Conflict,
            Self::Definition(_)
            | Self::Text(_)
            | Self::RelativeFile { .. }
            | Self::NoSaveFolder { .. } => ErrorKind::Invalid,
            Self::Store(_) | Self::Thread(_) => ErrorKind::Unavailable,
        }
    }

    /// Whether it would have been done with [`Force::Yes`](server::Force::Yes).
    pub fn needs_force(&self) -> bool {
        match self {
            Self::Server(error) => error.needs_force(),
            Self::HoldsData { .. }
            | Self::HoldsFiles { .. }
            | Self::Overwrites { .. }
            | Self::MirrorOverwrites { .. }
            | Self::DiscardsChanges { .. }
            | Self::PortalInUse { .. }
            | Self::LosesData { .. } => true,
            _ => false,
        }
    }
}

/// Why the engine did not start.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The state file cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The server did not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// A thread could not be made.
    #[error("cannot start the thread that saves reservations: {0}")]
    Thread(#[source] std::io::Error),
    /// The server rejected a definition of the state file.
    #[error(transparent)]
    Restore(#[from] RestoreError),
}

#[cfg(test)]
mod tests;
