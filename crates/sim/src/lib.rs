//! Virtual network and clock, model volume, checkers for tests.

#![forbid(unsafe_code)]
