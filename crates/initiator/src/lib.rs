//! Hosts that reach a volume over the network: URLs, sockets, reconnection.

#![forbid(unsafe_code)]
