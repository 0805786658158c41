//! `ramport study`: series of measurements that compare ways to serve volumes, as reports.

mod brp;
mod machine;
mod rdma;
mod report;

use std::process::ExitCode;

use super::Daemon;
use crate::cli::StudyVerb;
use crate::failure::Failure;

pub(crate) use machine::Machine;
pub(crate) use report::{Cell, Section, StudyReport};

pub(super) fn run(daemon: &Daemon, verb: &StudyVerb) -> Result<ExitCode, Failure> {
    match verb {
        StudyVerb::Brp(args) => brp::run(daemon, args),
        StudyVerb::Rdma(args) => rdma::run(daemon, args),
    }
}
