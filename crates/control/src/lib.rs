//! Desired state, its file, REST API, metrics.

#![forbid(unsafe_code)]
