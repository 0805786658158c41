//! Core dumps, which would have secrets and the contents of volumes.

use std::io;

use rustix::process::{
    DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit,
};

/// Sets the limit of core dumps of this process to 0. Programs that read secrets from a pipe of
/// their caller need `/proc/self/fd`, so they do no more than that.
pub(crate) fn limit_to_none() -> io::Result<()> {
    let limit = Rlimit {
        current: Some(0),
        ..getrlimit(Resource::Core)
    };
    Ok(setrlimit(Resource::Core, limit)?)
}

/// Lets the system write none whatever its limit is, and keeps debuggers of the same user away.
pub(crate) fn forbid() -> io::Result<()> {
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}
