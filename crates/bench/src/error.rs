//! Why a run could not be made.

use std::{io, path::PathBuf, time::Duration};

use initiator::ConnectError;

use crate::port::PortError;

/// Why a run could not be made or finished.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// A namespace could not be attached.
    #[error("{source_name}: {source}")]
    Attach {
        /// The source.
        source_name: String,
        /// Why.
        source: ConnectError,
    },
    /// A file or device could not be opened.
    #[error("{path}: {source}", path = path.display())]
    Open {
        /// The path.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A block device is mounted or used by something else.
    #[error("{path} is in use (mounted?), and this run would overwrite it; unmount it first", path = path.display())]
    InUse {
        /// The path.
        path: PathBuf,
    },
    /// A file that has no length, and none was requested.
    #[error("{path} is missing or empty; add --size to lay it out, e.g. --size 1g", path = path.display())]
    EmptyFile {
        /// The path.
        path: PathBuf,
    },
    /// The controller gives fewer queues than there are jobs.
    #[error(
        "{source_name}: {wanted} jobs need {wanted} queues, but only {possible} are available; use --numjobs {possible}"
    )]
    TooFewQueues {
        /// The source.
        source_name: String,
        /// Jobs.
        wanted: u16,
        /// Queues.
        possible: usize,
    },
    /// The queue depth is beyond what the controller takes.
    #[error(
        "{source_name}: depth {wanted} is too large; use --iodepth {possible} and more --numjobs"
    )]
    TooDeep {
        /// The source.
        source_name: String,
        /// The depth requested.
        wanted: u16,
        /// The most possible.
        possible: u16,
    },
    /// A transfer is longer than the controller takes.
    #[error("{source_name}: transfers of {wanted} bytes are too long; use --bs {possible}")]
    TransferTooLong {
        /// The source.
        source_name: String,
        /// Bytes per I/O.
        wanted: u32,
        /// The most possible.
        possible: usize,
    },
    /// The block size of the run is not in whole blocks of the source.
    #[error("{source_name}: --bs {bs} is not a multiple of its block size {unit_bytes}")]
    Unaligned {
        /// The source.
        source_name: String,
        /// Bytes per I/O.
        bs: u32,
        /// Bytes per block.
        unit_bytes: u32,
    },
    /// The offset is not in whole blocks of the source.
    #[error(
        "{source_name}: --offset {offset_bytes} is not a multiple of its block size {unit_bytes}"
    )]
    UnalignedOffset {
        /// The source.
        source_name: String,
        /// The offset.
        offset_bytes: u64,
        /// Bytes per block.
        unit_bytes: u32,
    },
    /// The region does not fit.
    #[error(
        "{source_name} has {len_bytes} bytes; the region ends at {end_bytes}: lower --offset or --size"
    )]
    BeyondEnd {
        /// The source.
        source_name: String,
        /// Its length.
        len_bytes: u64,
        /// Where the region would end.
        end_bytes: u64,
    },
    /// The region holds no whole I/O.
    #[error(
        "{source_name}: the region of {region_bytes} bytes is smaller than one I/O of {bs} bytes; lower --bs or raise --size"
    )]
    RegionTooSmall {
        /// The source.
        source_name: String,
        /// The region.
        region_bytes: u64,
        /// Bytes per I/O.
        bs: u32,
    },
    /// An option's value is not possible.
    #[error("--{option} {value} is invalid; {expected}")]
    Option {
        /// The option.
        option: &'static str,
        /// The value.
        value: u64,
        /// What is allowed.
        expected: &'static str,
    },
    /// A time is too short or too long.
    #[error("--{option} {time:?} is out of range; choose a time from {min:?} to {max:?}")]
    Time {
        /// The option.
        option: &'static str,
        /// The value.
        time: Duration,
        /// The shortest time.
        min: Duration,
        /// The longest time.
        max: Duration,
    },
    /// The buffers do not fit into the machine's memory.
    #[error(
        "the buffers need {wanted_bytes} bytes, but only {available_bytes} bytes of memory are available; lower \
         --iodepth, --bs or --numjobs"
    )]
    Memory {
        /// What all jobs together need.
        wanted_bytes: u64,
        /// What the machine has.
        available_bytes: u64,
    },
    /// A path that is neither a file nor a block device.
    #[error("{path} is neither a block device nor a regular file", path = path.display())]
    NotStorage {
        /// The path.
        path: PathBuf,
    },
    /// The run would overwrite data, which was not confirmed.
    #[error(
        "this run would overwrite data on {names}; add --write to overwrite them, or measure with --rw read or randread"
    )]
    HoldsData {
        /// The sources that hold data.
        names: String,
    },
    /// The run would lengthen a file with contents, which was not confirmed.
    #[error(
        "this run would lengthen {names} up to the end of its region; add --write to lengthen it, or lower --offset or --size"
    )]
    Lengthens {
        /// The files.
        names: String,
    },
    /// A stop was requested before there was anything to report.
    #[error("interrupted")]
    Interrupted,
    /// Two options that exclude each other, or one that misses another.
    #[error("--{option} {conflict}")]
    Combination {
        /// The option.
        option: &'static str,
        /// What is wrong, and how to fix it.
        conflict: &'static str,
    },
    /// Pinning a thread failed.
    #[error("cannot run on processor {cpu}: {source}; choose others with --cpus")]
    Pin {
        /// The processor.
        cpu: usize,
        /// Why.
        source: io::Error,
    },
    /// A queue failed during the run.
    #[error("{source_name}: {source}")]
    Port {
        /// The source.
        source_name: String,
        /// Why.
        source: PortError,
    },
    /// A report could not be written.
    #[error("cannot write {path}: {source}", path = path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A picture could not be drawn.
    #[error("cannot draw {path}: {reason}", path = path.display())]
    Draw {
        /// The file.
        path: PathBuf,
        /// What the drawing library says.
        reason: String,
    },
}

impl BenchError {
    /// Whether the user can fix it with another request (exit status 2); otherwise a part of the
    /// system failed (exit status 1).
    pub fn is_usage(&self) -> bool {
        match self {
            Self::InUse { .. }
            | Self::EmptyFile { .. }
            | Self::TooFewQueues { .. }
            | Self::TooDeep { .. }
            | Self::TransferTooLong { .. }
            | Self::Unaligned { .. }
            | Self::UnalignedOffset { .. }
            | Self::BeyondEnd { .. }
            | Self::RegionTooSmall { .. }
            | Self::Option { .. }
            | Self::Time { .. }
            | Self::Memory { .. }
            | Self::NotStorage { .. }
            | Self::HoldsData { .. }
            | Self::Lengthens { .. }
            | Self::Combination { .. }
            | Self::Pin { .. } => true,
            Self::Open { source, .. } => source.kind() == io::ErrorKind::NotFound,
            Self::Attach { source, .. } => source.is_mistake(),
            Self::Interrupted | Self::Port { .. } | Self::Write { .. } | Self::Draw { .. } => false,
        }
    }
}

#[cfg(test)]
mod tests;
