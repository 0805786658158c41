//! NFS version 4, minor versions 0, 1 and 2: compounds of operations on a file tree.
//!
//! Read first: RFC 8881 sections 2.10, 16 and 18; RFC 7862 section 15 and RFC 8276 for minor
//! version 2; RFC 7530 sections 9 and 16 for minor version 0, whose compounds have no session
//! (`owned`, `once`).
//!
//! A compound is executed operation by operation, until one fails. Files are named by the current
//! and the saved file handle. [`Clients`](crate::Clients) has what outlives a compound. There are
//! no layouts.

mod attributes;
mod bitmap;
mod client;
mod compound;
mod copy;
mod create;
mod data;
mod delegation;
mod directory;
mod extended;
mod file;
mod listing;
mod lock;
mod once;
mod open;
mod operation;
mod owned;
mod place;
mod ranges;
mod skip;

pub(crate) use compound::{Outcome, Resumption, Stopped, execute, resume};

#[cfg(test)]
mod tests;
