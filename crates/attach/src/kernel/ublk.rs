//! Block devices whose requests this process carries out, by Linux's ublk driver.

mod control;
mod queue;
mod wire;

pub(crate) use control::{Shape, UblkDevice, delete_left};
pub(crate) use queue::UblkRequests;
