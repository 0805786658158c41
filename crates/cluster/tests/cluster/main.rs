//! The client of etcd and the nodes of clusters, with real etcd.

mod etcd;
mod machines;
mod nodes;
mod server;
mod volumes;
