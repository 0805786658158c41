//! Listeners, portals, sessions bound to volumes, access check, counters.

#![forbid(unsafe_code)]
