//! Which of several machines executes the commands on a volume that all of them offer.

/// How commands of this machine's hosts reach a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostPath {
    /// How well.
    pub state: PathState,
    /// The number of this machine among those that offer the volume as the same disk, from 1. 0 if
    /// this machine alone does.
    pub machine: u32,
}

/// How well commands of this machine's hosts reach a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum PathState {
    /// This machine executes them.
    #[default]
    Optimized,
    /// Another machine executes them, to which this one passes them on, or they wait for it.
    NonOptimized,
    /// They reach nothing at present. Hosts are better off with another machine.
    Inaccessible,
}
