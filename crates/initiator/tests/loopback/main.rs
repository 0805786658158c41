//! Devices over loopback against the targets' session cores.

mod iscsi_tcp;
mod nvme;
mod nvme_rdma;
mod nvme_tcp;
mod support;
