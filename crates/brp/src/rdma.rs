//! BRP over a queue pair (RDMA).
