//! Load generator, latency statistics, verification, reports.

#![forbid(unsafe_code)]
