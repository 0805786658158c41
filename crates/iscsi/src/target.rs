//! The target's tasks, whatever the transport.

pub(crate) mod command;
pub(crate) mod control;
pub(crate) mod task;
pub(crate) mod waiting;
pub(crate) mod work;

pub use task::COMMANDS_MAX;
