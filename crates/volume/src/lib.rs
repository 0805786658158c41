//! Volumes: RAM, and the filters that any volume can wear.

#![forbid(unsafe_code)]
