//! The `ramport` program: the daemon and every verb that speaks to it.

#![forbid(unsafe_code)]

fn main() {}
