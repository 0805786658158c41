//! `ramport study`: series of measurements that compare ways to serve volumes, as reports.

mod machine;
mod report;

pub(crate) use machine::Machine;
pub(crate) use report::{Cell, Section, StudyReport};
